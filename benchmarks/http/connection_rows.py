"""Rows about hits in memory by the connections that they come over: TLS, HTTP/2, one for each request."""

import contextlib
import os
import re
import shutil
import subprocess

import cgroups
import measuring
import origin_server

HOT = 100
CONNECTIONS = 16
STREAMS = 8


def needs(program, why):
    if not shutil.which(program):
        raise cgroups.Missing(f"needs {program}, {why}")


def certificate(settings):
    """A self-signed certificate of its own for each run."""
    directory = f"{settings.dir}/certificates"
    os.makedirs(directory, exist_ok=True)
    needs("openssl", "for a certificate")
    subprocess.run([
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
        "-keyout", f"{directory}/key.pem", "-out", f"{directory}/chain.pem",
    ], check=True, capture_output=True)
    for name in ["key.pem", "chain.pem"]:
        # Servers that give up root read it afterwards.
        os.chmod(f"{directory}/{name}", 0o644)


def with_tls(settings, rivals):
    settings.tls = True
    certificate(settings)
    return [proxy for proxy in rivals if proxy.tls]


def in_turn(args, settings, rivals, load):
    """`turns` with an origin that answers everything alike."""
    with contextlib.closing(origin_server.Origin(settings)) as origin:
        return turns(args, rivals, origin, load)


def turns(args, rivals, origin, load):
    """What `load` measured of each proxy in each round; before the first one it fills their caches."""
    samples = {proxy.name: [] for proxy in rivals}
    measuring.start_all(rivals)
    for number in range(-1, args.rounds):
        for turn in range(len(rivals)):
            proxy = rivals[(turn + number) % len(rivals)]
            before = sum(proxy.cpu_ticks().values())
            found = load(origin, proxy)
            ticks = sum(proxy.cpu_ticks().values()) - before
            found["cpu us/req"] = ticks * 1e6 / os.sysconf("SC_CLK_TCK") / found["requests"]
            if number >= 0:
                samples[proxy.name].append(found)
    return samples


def paths():
    return [f"/t/{number}/8192" for number in range(HOT)]


def wrk_script(settings, asked, more=""):
    """A script for wrk that asks for these paths in turn, and has `more` before."""
    lua = f"{settings.dir}/connections.lua"
    with open(f"{settings.dir}/paths", "w") as file:
        file.write("\n".join(asked))
    with open(lua, "w") as file:
        file.write(more + measuring.WRK_LUA.format(paths=f"{settings.dir}/paths"))
    return lua


COLUMNS = ["req/s", "p99 us", "cpu us/req", "origin requests", "failed"]


def tls(args, settings, rivals):
    needs("wrk", "which speaks TLS")
    rivals, lua = with_tls(settings, rivals), wrk_script(settings, paths())
    samples = in_turn(args, settings, rivals, lambda origin, proxy: measuring.wrk(
        args, origin, proxy, lua, f"https://127.0.0.1:{proxy.tls_port}"))
    what = (
        f"{HOT} objects of 8 KiB in memory, over TLS as client and proxy agree, 32 connections that "
        "stay; load by wrk. Varnish is left out: it leaves TLS to another program."
    )
    return measuring.compared(what, samples, COLUMNS)


def churn(args, settings, rivals):
    needs("wrk", "which ends connections")
    lua = wrk_script(settings, paths(), 'wrk.headers["Connection"] = "close"\n')
    samples = in_turn(args, settings, rivals, lambda origin, proxy: measuring.wrk(args, origin, proxy, lua))
    what = f"{HOT} objects of 8 KiB in memory, a new connection for each request, 32 at once; load by wrk."
    return measuring.compared(what, samples, COLUMNS)


def h2load(args, settings, origin, proxy):
    before = origin.count
    urls = f"{settings.dir}/urls"
    with open(urls, "w") as file:
        file.writelines(f"https://127.0.0.1:{proxy.tls_port}{path}\n" for path in paths())
    command = measuring.locked(args) + measuring.on_core(args) + [
        "h2load", "-D", str(args.seconds), "-c", str(CONNECTIONS), "-m", str(STREAMS), "-i", urls]
    out = subprocess.run(command, capture_output=True, text=True).stdout
    if "Application protocol: h2" not in out:
        raise SystemExit(f"{proxy.name} does not speak HTTP/2:\n{out[-2000:]}")
    done, succeeded = map(int, re.search(r"(\d+) done, (\d+) succeeded", out).groups())
    good = int(re.search(r"(\d+) 2xx", out).group(1))
    mean, unit = re.search(r"time for request:(?:\s+\S+){2}\s+([\d.]+)(us|ms|s)\s", out).groups()
    return {
        "req/s": float(re.search(r"([\d.]+) req/s,", out).group(1)), "requests": max(done, 1),
        "mean us": float(mean) * {"us": 1, "ms": 1e3, "s": 1e6}[unit],
        "origin requests": origin.count - before,
        "failed": done - min(succeeded, good),
    }


def http2(args, settings, rivals):
    needs("h2load", "of the package nghttp2-client")
    rivals = [proxy for proxy in with_tls(settings, rivals) if proxy.http2]
    samples = in_turn(args, settings, rivals, lambda origin, proxy: h2load(args, settings, origin, proxy))
    what = (
        f"{HOT} objects of 8 KiB in memory, over HTTP/2 and TLS, {CONNECTIONS} connections that stay with {STREAMS} streams "
        "each; load by h2load. Squid does not speak HTTP/2 to clients, and Varnish leaves TLS to another program."
    )
    return measuring.compared(what, samples, ["req/s", "mean us", "cpu us/req", "origin requests", "failed"])


RUN = {"tls": tls, "http2": http2, "churn": churn}
