"""Rows of the first kind: hits, misses, ranges, more than fits in memory, storms, restarts, memory, a trace."""

import asyncio
import os
import time

import measuring
import origin_server
import proxies

MIB = 1 << 20
COLUMNS = ["req/s", "p99 us", "cpu us/req", "hit ratio", "failed"]


def hit(args, settings, rivals):
    samples = measuring.bench(args, settings, rivals, "hit", "--hot", "100", "--connections", "32", *measuring.lengths(args))
    what = f"100 objects of {measuring.told(args)} in memory, 32 connections that stay."
    return measuring.compared(what, samples, COLUMNS)


def hit1000(args, settings, rivals):
    samples = measuring.bench(args, settings, rivals, "hit", "--hot", "100", "--connections", "1000", *measuring.lengths(args))
    return measuring.compared("The same with 1,000 connections.", samples, COLUMNS)


def larger_than_memory(args, settings, rivals, workload, *more):
    measuring.limit(args, settings)
    objects = ["--objects", str(settings.objects), "--alpha", "0.8", *measuring.lengths(args)]
    return measuring.bench(args, settings, rivals, workload, *objects, *more)


DISK_COLUMNS = ["req/s", "p99 us", "disk reads/req", "cpu us/req", "hit ratio", "failed"]


def zipf(args, settings, rivals):
    samples = larger_than_memory(args, settings, rivals, "zipf", "--connections", "32")
    return measuring.compared(measuring.limited(args) + ".", samples, DISK_COLUMNS)


def pages(args, settings, rivals):
    samples = larger_than_memory(args, settings, rivals, "pages", "--embedded", "15")
    what = measuring.limited(args) + " over pages: a document and its 15 objects in short succession."
    return measuring.compared(what, samples, DISK_COLUMNS)


def fill(args, settings, rivals):
    samples = measuring.bench(args, settings, rivals, "fill", "--connections", "32", *measuring.lengths(args))
    what = f"Every request a miss that is stored, {measuring.told(args)}; the origin shares the load's core."
    return measuring.compared(what, samples, COLUMNS)


LARGE_COLUMNS = ["MB/s", "req/s", "cpu us/req", "disk reads/req", "hit ratio", "failed"]


def large(args, settings, rivals):
    vars(settings).update(measuring.EIGHTH, fits=False, disk_mib=2048)
    samples = measuring.bench(args, settings, rivals, "zipf", "--objects", "4", "--size", "256MiB", "--alpha", "0",
                    "--embedded", "0", "--connections", "1")
    what = (
        "4 objects of 256 MiB, one client that takes one after the other, a cgroup of 160 MiB for each proxy, "
        "its page cache included; damelo, Squid and Traffic Server are told to use 64 MiB.")
    return measuring.compared(what, samples, LARGE_COLUMNS)


RANGE_COLUMNS = ["req/s", "MB/s", "p99 us", "cpu us/req", "disk reads/req", "hit ratio", "failed"]


def parts(args, settings, rivals, **memory):
    settings.ranges, settings.disk_mib = True, 2048
    rivals = [proxy for proxy in rivals if proxy.name != "squid"]
    vars(settings).update(memory)
    return measuring.bench(args, settings, rivals, "ranges", "--objects", "30", "--size", "20MiB", "--alpha", "0",
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
    return measuring.compared(what, samples, RANGE_COLUMNS)


def ranges512(args, settings, rivals):
    samples = parts(args, settings, rivals, memory_mib=416, limit_mib=512, fits=False)
    what = (
        "The same in a cgroup of 512 MiB for each proxy, its page cache included; damelo and Traffic "
        "Server are told to use 416 MiB.")
    return measuring.compared(what, samples, RANGE_COLUMNS)


def storm(args, settings, rivals):
    """Many clients want one cold object of a slow origin."""
    clients, delay_s, length = 500, 0.3, 65536
    origin = origin_server.Origin(settings, delay_s)
    samples = {proxy.name: [] for proxy in rivals}
    try:
        measuring.start_all(rivals)
        for number in range(args.rounds):
            for proxy in rivals:
                before, start = origin.count, time.monotonic()
                path = f"/storm/{number}/{length}"
                lengths = asyncio.run(origin_server.get_all(proxy.port, [path] * clients, clients))
                samples[proxy.name].append({
                    "origin requests": origin.count - before,
                    "seconds until all have it": time.monotonic() - start,
                    "failed": sum(got != length for got in lengths),
                })
    finally:
        origin.close()
    what = f"{clients} clients at once on one object of 64 KiB that is not there; the origin takes 0.3 s."
    columns = ["origin requests", "seconds until all have it", "failed"]
    return measuring.compared(what, samples, columns, "less")


def restart(args, settings, rivals):
    """kill -9 once all is on disk, start again, ask until something is a hit."""
    count, length = 10_000, 8192
    origin = origin_server.Origin(settings)
    samples = {proxy.name: [] for proxy in rivals}
    paths = [f"/r/{number}/{length}" for number in range(count)]
    try:
        for proxy in rivals:
            proxy.reset()
            proxy.start()
            proxy.wait()
            asyncio.run(origin_server.get_all(proxy.port, paths, 32))
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
    return measuring.compared(what, samples, ["seconds to first hit", "kept"], "less")


def until_hit(origin, proxy, paths, length, host=None):
    first = None
    for path in paths[::7]:
        before = origin.count
        if asyncio.run(origin_server.get(proxy.port, path, host)) == length and origin.count == before:
            first = time.monotonic() - proxy.started
            break
        if time.monotonic() - proxy.started > 20:
            break
    before = origin.count
    sample = paths[3::len(paths) // 500][:500]
    asyncio.run(origin_server.get_all(proxy.port, sample, 8, host))
    return {"seconds to first hit": first, "kept": 1 - (origin.count - before) / len(sample)}


def memory(args, settings, rivals):
    """What the processes occupy for each small object, beyond what they do when empty."""
    count, length = 20_000, 1024
    origin = origin_server.Origin(settings)
    samples = {proxy.name: [] for proxy in rivals}
    try:
        for proxy in rivals:
            proxy.reset()
            proxy.start()
            proxy.wait()
            asyncio.run(origin_server.get_all(proxy.port, [f"/w/{length}"] * 100, 8))
            empty = proxy.rss_bytes()
            asyncio.run(origin_server.get_all(proxy.port, [f"/m/{n}/{length}" for n in range(count)], 32))
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
    return measuring.compared(what, samples, ["bytes/object", "MiB empty", "MiB full"], "less")


def trace(args, settings, rivals):
    """Requests of a real log in its order, from an empty cache, bodies of its lengths."""
    if not args.trace:
        raise SystemExit("the row trace needs --trace FILE, in a form that damelo lab reads")
    measuring.limit(args, settings)
    samples = measuring.bench(args, settings, rivals, "trace", "--trace", os.path.abspath(args.trace),
                    "--connections", "32", seconds=False)
    size = measuring.FULL_SIZE if args.full_size else measuring.EIGHTH
    what = (
        f"{os.path.basename(args.trace)}, all of it in its order and with its lengths, from an empty cache each round; a cgroup "
        f"of {size['limit_mib']} MiB for each proxy, {size['disk_mib']} MiB of disk; damelo, Squid and Traffic Server are told to "
        f"use {size['memory_mib']} MiB of memory. 32 connections."
    )
    return measuring.compared(what, samples, [*DISK_COLUMNS, "MB/s"])


RUN = {
    "hit": hit, "hit1000": hit1000, "zipf": zipf, "pages": pages, "fill": fill, "trace": trace,
    "storm": storm, "restart": restart, "memory": memory, "ranges": ranges, "ranges512": ranges512,
    "large": large,
}
