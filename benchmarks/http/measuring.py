"""How a row is measured: loads by `damelo bench http` or wrk on proxies in turn, and what is made of what they print."""

import asyncio
import json
import re
import shlex
import subprocess
import time

import origin_server


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
    origin, serving = origin_server.Origin(settings), []
    for proxy in rivals:
        before = proxy.cpu_ticks()
        asyncio.run(origin_server.get_all(proxy.port, [f"/first/{n}/100" for n in range(1500)], 8))
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


WRK_LUA = """
local paths = {{}}
for line in io.lines("{paths}") do paths[#paths + 1] = line end
local at = 0
request = function()
  at = at % #paths + 1
  return wrk.format(nil, paths[at])
end
"""


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
