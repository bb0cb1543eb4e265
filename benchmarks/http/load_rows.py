"""Rows about hits in memory: over TLS, beside a fill, and against a server without a cache."""

import asyncio
import os
import shutil
import subprocess
import time

import cgroups
import proxies
import rows

HOT = 100


def certificate(settings):
    """A self-signed certificate of its own for each run."""
    directory = f"{settings.dir}/certificates"
    os.makedirs(directory, exist_ok=True)
    if not shutil.which("openssl"):
        raise cgroups.Missing("needs openssl for a certificate")
    subprocess.run([
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
        "-keyout", f"{directory}/key.pem", "-out", f"{directory}/chain.pem",
    ], check=True, capture_output=True)
    for name in ["key.pem", "chain.pem"]:
        # Servers that give up root read it afterwards.
        os.chmod(f"{directory}/{name}", 0o644)


def tls(args, settings, rivals):
    settings.tls = True
    rivals = [proxy for proxy in rivals if proxy.tls]
    if not shutil.which("wrk"):
        raise cgroups.Missing("needs wrk, which speaks TLS")
    certificate(settings)
    lua = f"{settings.dir}/tls.lua"
    with open(f"{settings.dir}/paths", "w") as file:
        file.write("\n".join(f"/t/{number}/8192" for number in range(HOT)))
    with open(lua, "w") as file:
        file.write(rows.WRK_LUA.format(paths=f"{settings.dir}/paths"))
    origin = rows.Origin(settings)
    samples = {proxy.name: [] for proxy in rivals}
    try:
        rows.start_all(rivals)
        for number in range(-1, args.rounds):
            for turn in range(len(rivals)):
                proxy = rivals[(turn + number) % len(rivals)]
                before = sum(proxy.cpu_ticks().values())
                url = f"https://127.0.0.1:{proxy.tls_port}"
                found = rows.wrk(args, origin, proxy, lua, url)
                ticks = sum(proxy.cpu_ticks().values()) - before
                found["cpu us/req"] = ticks * 1e6 / os.sysconf("SC_CLK_TCK") / found["requests"]
                if number >= 0:  # The first is to fill the caches.
                    samples[proxy.name].append(found)
    finally:
        origin.close()
    what = (
        f"{HOT} objects of 8 KiB in memory, over TLS as client and proxy agree, 32 connections that "
        "stay; load by wrk. Varnish is left out: it leaves TLS to another program."
    )
    return rows.compared(what, samples, ["req/s", "p99 us", "cpu us/req", "origin requests", "failed"])


def beside(args, settings, proxy, workload, hits):
    """Hits by few connections while many others put this load on the same proxy: both as measured."""
    # It outlasts the hits, as it is their origin, too.
    command = rows.bench_command(
        args, settings, [proxy], workload, "--origin-listen", settings.origin, "--hot", str(HOT),
        "--connections", "32", "--seconds", str(args.seconds + 4))
    load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        time.sleep(1)
        seen, = rows.measured(args, settings, [proxy], "hit", "--origin-listen", "127.0.0.1:0", *hits)
        other, = rows.measurements(command, load)
    finally:
        load.kill()
        load.wait()
    return seen, other


def filling(args, settings, rivals):
    """Hits by few connections alone, beside many others' hits, and beside their fill."""
    samples = {proxy.name: [] for proxy in rivals}
    rows.start_all(rivals)
    hits = ["--hot", str(HOT), "--connections", "4", "--warmup", "1"]
    for number in range(args.rounds):
        for turn in range(len(rivals)):
            proxy = rivals[(turn + number) % len(rivals)]
            alone, = rows.measured(
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
    return rows.compared(what, samples, columns, "less")


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
    origin = rows.Origin(settings)
    rows.start_all([own])
    path = f"/h/{settings.object_bytes}"
    asyncio.run(rows.get(own.port, path, "bench"))
    bare.head = asyncio.run(head_of(own.port, path))
    origin.close()
    try:
        samples = rows.bench(args, settings, [own, bare], "hit", "--hot", str(HOT))
    finally:
        bare.kill()
        shutil.rmtree(bare.dir, ignore_errors=True)
    for hit, floor in zip(samples["damelo"], samples[bare.name]):
        hit["beyond bare %"] = (hit["cpu us/req"] / floor["cpu us/req"] - 1) * 100
    what = (
        "CPU of a hit of 8 KiB in memory, and of the same head and body from a server that has "
        "nothing else: hyper and tokio with the same options. 32 connections that stay."
    )
    return rows.compared(what, samples, ["cpu us/req", "beyond bare %", "req/s", "p99 us", "failed"], "none")


RUN = {"tls": tls, "filling": filling, "hyper": hyper}
