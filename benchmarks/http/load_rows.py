"""Rows about hits in memory: beside a fill, and against a server without a cache."""

import asyncio
import os
import shutil
import subprocess
import time

import cgroups
import measuring
import origin_server
import proxies

HOT = 100


def beside(args, settings, proxy, workload, hits):
    """Hits by few connections while many others put this load on the same proxy: both as measured."""
    # It outlasts the hits, as it is their origin, too.
    hot = ["--hot", str(HOT)] if workload == "hit" else []
    command = measuring.bench_command(
        args, settings, [proxy], workload, "--origin-listen", settings.origin, *hot,
        "--connections", "32", "--seconds", str(args.seconds + 4))
    load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(1)
        seen, = measuring.measured(args, settings, [proxy], "hit", "--origin-listen", "127.0.0.1:0", *hits)
        other, = measuring.measurements(command, load)
    finally:
        load.kill()
        load.wait()
    return seen, other


def filling(args, settings, rivals):
    """Hits by few connections alone, beside many others' hits, and beside their fill."""
    samples = {proxy.name: [] for proxy in rivals}
    measuring.start_all(rivals)
    hits = ["--hot", str(HOT), "--connections", "4", "--warmup", "1"]
    for number in range(args.rounds):
        for turn in range(len(rivals)):
            proxy = rivals[(turn + number) % len(rivals)]
            alone, = measuring.measured(
                args, settings, [proxy], "hit", "--origin-listen", settings.origin, *hits)
            busy, _ = beside(args, settings, proxy, "hit", hits)
            filled, fill = beside(args, settings, proxy, "fill", hits)
            samples[proxy.name].append({
                "times": filled["p99_us"] / alone["p99_us"],
                "times busy": filled["p99_us"] / busy["p99_us"],
                "p99 us alone": alone["p99_us"], "p99 us busy": busy["p99_us"],
                "p99 us filling": filled["p99_us"], "hits/s filling": filled["requests_per_second"],
                "fills/s": fill["requests_per_second"], "failed": filled["failed"] + fill["failed"],
            })
    what = (
        "p99 of hits in memory (8 KiB, 4 connections): alone, while 32 other connections get hits, and "
        "while 32 others fill at full speed, all through one core; the loads and the origin share "
        "another. `times` is filling by alone, `times busy` filling by the same number of hits, which "
        "leaves out that a busy core has a queue. A proxy that fills slower disturbs its hits less."
    )
    columns = ["times", "times busy", "p99 us alone", "p99 us busy", "p99 us filling",
               "hits/s filling", "fills/s", "failed"]
    return measuring.compared(what, samples, columns, "less")


async def head_of(port, path):
    """The header lines of an answer, but for those that hyper adds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n".encode())
    lines = (await reader.read(-1)).partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    writer.close()
    made = ("date:", "content-length:", "connection:")
    return "\n".join(line for line in lines if not line.lower().startswith(made)) + "\n"


def hyper(args, settings, rivals):
    """What a hit costs beyond the library that speaks HTTP."""
    own = next((proxy for proxy in rivals if proxy.name == "damelo"), None)
    bare = proxies.BareHyper(settings, 8789)
    if own is None or not os.path.exists(bare.program):
        raise cgroups.Missing(
            "needs damelo, and cargo build --release -p damelo-http-proxy --example bare_hyper")
    origin = origin_server.Origin(settings)
    measuring.start_all([own])
    path = f"/h/{settings.object_bytes}"
    asyncio.run(origin_server.get(own.port, path, "bench"))
    bare.head = asyncio.run(head_of(own.port, path))
    origin.close()
    try:
        samples = measuring.bench(args, settings, [own, bare], "hit", "--hot", str(HOT))
    finally:
        bare.kill()
        shutil.rmtree(bare.dir, ignore_errors=True)
    for hit, floor in zip(samples["damelo"], samples[bare.name]):
        hit["beyond bare %"] = (hit["cpu us/req"] / floor["cpu us/req"] - 1) * 100
    what = (
        "CPU of a hit of 8 KiB in memory, and of the same head and body from a server that has "
        "nothing else: hyper and tokio with the same options. 32 connections that stay."
    )
    return measuring.compared(what, samples, ["cpu us/req", "beyond bare %", "req/s", "p99 us", "failed"], "none")


RUN = {"filling": filling, "hyper": hyper}
