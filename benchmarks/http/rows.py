"""The rows of the comparison: which load, what is counted."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import threading
import time
from email.utils import formatdate

import proxies

MIB = 1 << 20


def on_core(args):
    return ["taskset", "-c", str(args.load_core)] if args.load_core >= 0 else []


def locked(args):
    return shlex.split(args.lock)


def start_all(rivals):
    for proxy in rivals:
        proxy.reset()
        proxy.start()
        proxy.wait()
    time.sleep(1)


def bench(args, settings, rivals, workload, *more, seconds=True):
    """`damelo bench http` on all in turn; it is also their origin."""
    start_all(rivals)
    # The process that serves is the one that uses CPU time when there are requests.
    origin, serving = Origin(settings), []
    for proxy in rivals:
        before = proxy.cpu_ticks()
        asyncio.run(get_all(proxy.port, [f"/first/{n}/100" for n in range(1500)], 8))
        serving.append(proxy.busiest_since(before))
    origin.close()
    found = measured(args, settings, rivals, workload, "--origin-listen", settings.origin,
                     "--rounds", str(args.rounds), "--pid", ",".join(map(str, serving)), *more, seconds=seconds)
    names = {proxy.url: proxy.name for proxy in rivals}
    samples = {proxy.name: [] for proxy in rivals}
    for m in found:
        name = next(n for url, n in names.items() if m["target"].rstrip("/") in (url, url[7:]))
        samples[name].append(sample_of(m))
    return samples


def sample_of(m):
    """The columns of a measurement that `damelo bench http` printed."""
    return {
        "req/s": m["requests_per_second"], "p99 us": m["p99_us"],
        "MB/s": m["body_bytes_per_second"] / 1e6,
        "hit ratio": m["hit_ratio_origin"],
        "disk reads/req": m["machine_disk_reads_per_request"],
        "cpu us/req": m["cpu_us_per_request"], "failed": m["failed"],
    }


def bench_command(args, settings, rivals, workload, *more, seconds=True):
    first, *others = [proxy.url for proxy in rivals]
    against = ["--against", ",".join(others)] if others else []
    return locked(args) + on_core(args) + [
        settings.program, "bench", "http", workload, "--url", first, *against,
        "--dir", settings.dir, "--json", *more,
        *([] if "--warmup" in more else ["--warmup", "0"]),
        *(["--seconds", str(args.seconds)] if seconds and "--seconds" not in more and "--requests" not in more else []),
    ]


def measured(args, settings, rivals, workload, *more, seconds=True):
    """What `damelo bench http` measured, one for each proxy and round."""
    command = bench_command(args, settings, rivals, workload, *more, seconds=seconds)
    return measurements(command, subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


class RowFailed(Exception):
    """A row of which nothing can be said."""


def measurements(command, child):
    out, errors = child.communicate()
    if child.returncode:
        raise RowFailed(f"{' '.join(command)}\n{errors[-2000:]}")
    return [m for m in map(json.loads, out.splitlines()) if "workload" in m]


def compared(what, samples, columns, better="more"):
    return {"what": what, "columns": columns, "better": better, "samples": samples}


def lengths(args):
    """The lengths of bodies, for `damelo bench http`."""
    tail = ["--tail", str(args.tail)] if args.tail else []
    return ["--size", str(args.object_bytes), *tail]


def told(args):
    """The lengths in words."""
    length = f"{args.object_bytes / 1024:g} KiB"
    return f"{length} on average (Pareto {args.tail:g})" if args.tail else length


COLUMNS = ["req/s", "p99 us", "cpu us/req", "hit ratio", "failed"]


def hit(args, settings, rivals):
    samples = bench(args, settings, rivals, "hit", "--hot", "100", "--connections", "32", *lengths(args))
    what = f"100 objects of {told(args)} in memory, 32 connections that stay."
    return compared(what, samples, COLUMNS)


def hit1000(args, settings, rivals):
    samples = bench(args, settings, rivals, "hit", "--hot", "100", "--connections", "1000", *lengths(args))
    return compared("The same with 1,000 connections.", samples, COLUMNS)


def larger_than_memory(args, settings, rivals, workload, *more):
    limit(args, settings)
    objects = ["--objects", str(settings.objects), "--alpha", "0.8", *lengths(args)]
    return bench(args, settings, rivals, workload, *objects, *more)


DISK_COLUMNS = ["req/s", "p99 us", "disk reads/req", "cpu us/req", "hit ratio", "failed"]
# A catalogue and the memory it does not fit into. What a program is told leaves room for the program itself.
EIGHTH = dict(objects=49152, memory_mib=64, limit_mib=160, disk_mib=1024)
FULL_SIZE = dict(objects=393216, memory_mib=416, limit_mib=512, disk_mib=4608)


def limit(args, settings):
    """A catalogue that is larger than the memory."""
    vars(settings).update(FULL_SIZE if args.full_size else EIGHTH, fits=False)
    settings.objects = max(settings.objects * 8192 // args.object_bytes, 1)


def limited(args):
    """What `limit` makes of it, in words."""
    size = FULL_SIZE if args.full_size else EIGHTH
    return (
        f"{size['objects'] // 128} MiB of objects of {told(args)}, a cgroup of {size['limit_mib']} MiB for each proxy, its page "
        f"cache included; damelo, Squid and Traffic Server are told to use {size['memory_mib']} MiB. Zipf 0.8"
    )


def zipf(args, settings, rivals):
    samples = larger_than_memory(args, settings, rivals, "zipf", "--connections", "32")
    return compared(limited(args) + ".", samples, DISK_COLUMNS)


def pages(args, settings, rivals):
    samples = larger_than_memory(args, settings, rivals, "pages", "--embedded", "15")
    what = limited(args) + " over pages: a document and its 15 objects in short succession."
    return compared(what, samples, DISK_COLUMNS)


def fill(args, settings, rivals):
    samples = bench(args, settings, rivals, "fill", "--connections", "32", *lengths(args))
    what = f"Every request a miss that is stored, {told(args)}; the origin shares the load's core."
    return compared(what, samples, COLUMNS)


LARGE_COLUMNS = ["MB/s", "req/s", "cpu us/req", "disk reads/req", "hit ratio", "failed"]


def large(args, settings, rivals):
    vars(settings).update(EIGHTH, fits=False, disk_mib=2048)
    samples = bench(args, settings, rivals, "zipf", "--objects", "4", "--size", "256MiB", "--alpha", "0",
                    "--embedded", "0", "--connections", "1")
    what = (
        "4 objects of 256 MiB, one client that takes one after the other, a cgroup of 160 MiB for each proxy, "
        "its page cache included; damelo, Squid and Traffic Server are told to use 64 MiB.")
    return compared(what, samples, LARGE_COLUMNS)


RANGE_COLUMNS = ["req/s", "MB/s", "p99 us", "cpu us/req", "disk reads/req", "hit ratio", "failed"]


def parts(args, settings, rivals, **memory):
    settings.ranges, settings.disk_mib = True, 2048
    rivals = [proxy for proxy in rivals if proxy.name != "squid"]
    vars(settings).update(memory)
    return bench(args, settings, rivals, "ranges", "--objects", "30", "--size", "20MiB", "--alpha", "0",
                 "--range", "64KiB", "--embedded", "0", "--connections", "32", "--verify")


def how_ranges():
    """What each of them does with a range, in words."""
    blocks = os.path.exists(proxies.SLICE_PLUGIN)
    traffic_server = (
        "Traffic Server has blocks of 1 MiB (its plugins slice and cache_range_requests)" if blocks else
        "Traffic Server, as it comes without the plugin slice, passes them on")
    return (
        "All was asked for once before, range after range. damelo as it comes; nginx with `slice 1m`; "
        f"{traffic_server}; Varnish fetches the whole. Squid is left out: as it comes it passes ranges on and "
        "keeps none of them.")


def ranges(args, settings, rivals):
    samples = parts(args, settings, rivals, memory_mib=1024)
    what = (
        "64 KiB from anywhere in one of 30 objects of 20 MiB, 32 connections that stay, one core each, "
        f"every byte checked, 1 GiB of memory for data. {how_ranges()}")
    return compared(what, samples, RANGE_COLUMNS)


def ranges512(args, settings, rivals):
    samples = parts(args, settings, rivals, memory_mib=416, limit_mib=512, fits=False)
    what = (
        "The same in a cgroup of 512 MiB for each proxy, its page cache included; damelo and Traffic "
        "Server are told to use 416 MiB.")
    return compared(what, samples, RANGE_COLUMNS)


class Origin:
    """Answers anything with a body of the length that the path ends in, and counts."""

    def __init__(self, settings, delay_s=0.0):
        self.count, self.delay_s = 0, delay_s
        self.address = settings.origin.split(":")
        ready = threading.Event()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait()

    def run(self, ready):
        asyncio.set_event_loop(self.loop)
        host, port = self.address
        start = asyncio.start_server(self.serve, host, int(port), backlog=4096)
        self.server = self.loop.run_until_complete(start)
        ready.set()
        self.loop.run_forever()

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.count += 1
                path = head.split(b" ", 2)[1].decode()
                found = re.search(r"(\d+)$", path)
                # wrk asks for / before it loads its script.
                length = int(found.group(1)) if found else 0
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nCache-Control: max-age=86400\r\nContent-Type: text/plain\r\n"
                    b"ETag: \"1\"\r\nDate: %s\r\nContent-Length: %d\r\n\r\n"
                    % (formatdate(usegmt=True).encode(), length) + b"x" * length)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    def close(self):
        async def stop():
            self.server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.loop.stop()
        self.loop.call_soon_threadsafe(lambda: self.loop.create_task(stop()))
        self.thread.join()
        self.loop.close()


async def get(port, path, host=None):
    """One request on a connection of its own; the length of the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        host = host or f"127.0.0.1:{port}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        data = await reader.read(-1)
        head, _, body = data.partition(b"\r\n\r\n")
        return len(body) if head.startswith(b"HTTP/1.1 200") else -1
    except ConnectionError:
        return -1
    finally:
        writer.close()


async def get_all(port, paths, at_once, host=None):
    places = asyncio.Semaphore(at_once)

    async def one(path):
        async with places:
            return await get(port, path, host)

    return await asyncio.gather(*(one(path) for path in paths))


def storm(args, settings, rivals):
    """Many clients want one cold object of a slow origin."""
    clients, delay_s, length = 500, 0.3, 65536
    origin = Origin(settings, delay_s)
    samples = {proxy.name: [] for proxy in rivals}
    try:
        start_all(rivals)
        for number in range(args.rounds):
            for proxy in rivals:
                before, start = origin.count, time.monotonic()
                path = f"/storm/{number}/{length}"
                lengths = asyncio.run(get_all(proxy.port, [path] * clients, clients))
                samples[proxy.name].append({
                    "origin requests": origin.count - before,
                    "seconds until all have it": time.monotonic() - start,
                    "failed": sum(got != length for got in lengths),
                })
    finally:
        origin.close()
    what = f"{clients} clients at once on one object of 64 KiB that is not there; the origin takes 0.3 s."
    columns = ["origin requests", "seconds until all have it", "failed"]
    return compared(what, samples, columns, "less")


def restart(args, settings, rivals):
    """kill -9 once all is on disk, start again, ask until something is a hit."""
    count, length = 10_000, 8192
    origin = Origin(settings)
    samples = {proxy.name: [] for proxy in rivals}
    paths = [f"/r/{number}/{length}" for number in range(count)]
    try:
        for proxy in rivals:
            proxy.reset()
            proxy.start()
            proxy.wait()
            asyncio.run(get_all(proxy.port, paths, 32))
            time.sleep(8)
            for _ in range(args.rounds):
                proxy.kill()
                proxy.start()
                proxy.wait()
                samples[proxy.name].append(until_hit(origin, proxy, paths, length))
            proxy.kill()
    finally:
        origin.close()
    what = (
        f"{count:,} objects of 8 KiB, kill -9, start: time from exec to the first answer that did not "
        "come from the origin (kernel caches warm), and the share of 500 objects then still there."
    )
    return compared(what, samples, ["seconds to first hit", "kept"], "less")


def until_hit(origin, proxy, paths, length, host=None):
    first = None
    for path in paths[::7]:
        before = origin.count
        if asyncio.run(get(proxy.port, path, host)) == length and origin.count == before:
            first = time.monotonic() - proxy.started
            break
        if time.monotonic() - proxy.started > 20:
            break
    before = origin.count
    sample = paths[3::len(paths) // 500][:500]
    asyncio.run(get_all(proxy.port, sample, 8, host))
    return {"seconds to first hit": first, "kept": 1 - (origin.count - before) / len(sample)}


def memory(args, settings, rivals):
    """What the processes occupy for each small object, beyond what they do when empty."""
    count, length = 20_000, 1024
    origin = Origin(settings)
    samples = {proxy.name: [] for proxy in rivals}
    try:
        for proxy in rivals:
            proxy.reset()
            proxy.start()
            proxy.wait()
            asyncio.run(get_all(proxy.port, [f"/w/{length}"] * 100, 8))
            empty = proxy.rss_bytes()
            asyncio.run(get_all(proxy.port, [f"/m/{n}/{length}" for n in range(count)], 32))
            time.sleep(6)
            full = proxy.rss_bytes()
            samples[proxy.name].append({
                "bytes/object": (full - empty) / count, "MiB empty": empty / MIB,
                "MiB full": full / MIB,
            })
            proxy.kill()
    finally:
        origin.close()
    what = (
        f"Anonymous and shared memory of all processes before and after {count:,} objects of 1 KiB; "
        "256 MiB are allowed for data. Page cache, where nginx keeps its bodies, does not count."
    )
    return compared(what, samples, ["bytes/object", "MiB empty", "MiB full"], "less")


WRK_LUA = """
local paths = {{}}
for line in io.lines("{paths}") do paths[#paths + 1] = line end
local at = 0
request = function()
  at = at % #paths + 1
  return wrk.format(nil, paths[at])
end
"""


def trace(args, settings, rivals):
    """Requests of a real log in its order, from an empty cache, bodies of its lengths."""
    if not args.trace:
        raise SystemExit("the row trace needs --trace FILE, in a form that damelo lab reads")
    limit(args, settings)
    samples = bench(args, settings, rivals, "trace", "--trace", os.path.abspath(args.trace),
                    "--connections", "32", seconds=False)
    size = FULL_SIZE if args.full_size else EIGHTH
    what = (
        f"{os.path.basename(args.trace)}, all of it in its order and with its lengths, from an empty cache each round; a cgroup "
        f"of {size['limit_mib']} MiB for each proxy, {size['disk_mib']} MiB of disk; damelo, Squid and Traffic Server are told to "
        f"use {size['memory_mib']} MiB of memory. 32 connections."
    )
    return compared(what, samples, [*DISK_COLUMNS, "MB/s"])


def wrk(args, origin, proxy, lua, url=None):
    before = origin.count
    command = locked(args) + on_core(args) + [
        "wrk", "-t1", "-c32", f"-d{args.seconds}s", "--latency", "-s", lua, url or proxy.url]
    out = subprocess.run(command, capture_output=True, text=True).stdout
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))
    amount, unit = re.search(r"Transfer/sec:\s+([\d.]+)(\w+)", out).groups()
    p99, p99_unit = re.search(r"99%\s+([\d.]+)(\w+)", out).groups()
    errors = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    return {
        "req/s": rate, "requests": int(re.search(r"(\d+) requests in", out).group(1)),
        "MB/s": float(amount) * {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}[unit] / 1e6,
        "p99 us": float(p99) * {"us": 1, "ms": 1e3, "s": 1e6}[p99_unit],
        "origin requests": origin.count - before,
        "failed": int(errors.group(1)) if errors else 0,
    }


RUN = {
    "hit": hit, "hit1000": hit1000, "zipf": zipf, "pages": pages, "fill": fill, "trace": trace,
    "storm": storm, "restart": restart, "memory": memory, "ranges": ranges, "ranges512": ranges512,
    "large": large,
}
