#!/usr/bin/env python3
"""Measures damelo's proxy beside nginx, Varnish, Squid and Traffic Server: the same origin, the same
load, in turn, medians over rounds. `--help` lists the rows; README.md tells how to read them.

Needs Python 3.9, a release build of damelo, `wrk`, `h2load`, and of the others those that are to be measured
(Debian: apt-get install nginx varnish squid trafficserver wrk nghttp2-client). Root for memory cgroups (version 1).
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time

import basic_rows
import cgroups
import connection_rows
import disk_rows
import load_rows
import measuring
import proxies
import traffic_rows

RUN = {**basic_rows.RUN, **connection_rows.RUN, **traffic_rows.RUN, **load_rows.RUN, **disk_rows.RUN}
# Of the others one needs a file, and one takes as long as all of these.
DEFAULT = [row for row in RUN if row not in ("trace", "restart1m")]


class Settings:
    """What the proxies of a row are started with."""

    def __init__(self, args):
        self.dir = os.path.abspath(args.dir)
        self.program = os.path.abspath(args.program)
        self.origin = "127.0.0.1:8790"
        self.core = args.proxy_core if args.proxy_core >= 0 else None
        self.memory_mib = 256
        self.disk_mib = 1024
        self.limit_mib = None
        self.fits = True
        self.objects = 100_000
        self.object_bytes = args.object_bytes
        self.reads_held = False
        self.tls = False
        self.ranges = False
        self.redirects = 0
        self.workers = args.workers

    def cgroups(self, name):
        """The groups that a proxy starts in."""
        found = []
        if self.limit_mib:
            found.append(cgroups.with_memory(name, self.limit_mib))
        if self.reads_held:
            found.append(cgroups.with_reads(name, self.dir, 0))
        return found


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("rows", nargs="*", default=DEFAULT, metavar="ROW", help=", ".join(RUN))
    parser.add_argument("--program", default="target/release/damelo", help="the damelo to measure")
    parser.add_argument("--dir", default="/var/tmp/damelo-http-rivals",
                        help="on the disk to measure; what it names is emptied")
    parser.add_argument("--only", help="these proxies, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="of one measurement")
    parser.add_argument("--proxy-core", type=int, default=0, help="core of the proxy; -1: any")
    parser.add_argument("--load-core", type=int, default=1, help="core of load and origin; -1: any")
    parser.add_argument("--workers", type=int, default=1,
                        help="threads or processes of each proxy that serve; Varnish has threads as it likes")
    parser.add_argument("--trace", help="for the row trace: a log, or a trace in another form that damelo lab reads")
    parser.add_argument("--lock", default="", help="command that each measurement runs below")
    parser.add_argument("--object-bytes", type=int, default=8192,
                        help="length of a body, or its mean, in the rows hit, hit1000, zipf, pages and fill")
    parser.add_argument("--tail", type=float,
                        help="lengths by a Pareto law with this exponent in these rows, not all alike")
    parser.add_argument("--full-size", action="store_true",
                        help="zipf, pages, throttled and cold with 3 GiB of objects and 512 MiB of memory, not an eighth")
    parser.add_argument("--out", help="directory for run.json and table.md")
    args = parser.parse_args()
    if args.object_bytes < 1:
        parser.error("--object-bytes must be at least 1")
    unknown = [row for row in args.rows if row not in RUN]
    if unknown:
        parser.error(f"no row {unknown[0]}: there are {', '.join(RUN)}")
    return args


def chosen(args, settings):
    found = []
    for number, kind in enumerate(proxies.ALL):
        if args.only and kind.name not in args.only.split(","):
            continue
        if kind.name != "damelo" and proxies.version(kind.name) is None:
            print(f"{kind.name} is not installed: left out", file=sys.stderr)
            continue
        found.append(kind(settings, 8781 + number))
    return found


def machine(args):
    with open("/proc/cpuinfo") as file:
        model = next((l.split(":")[1].strip() for l in file if l.startswith("model name")), "?")
    damelo = subprocess.run([args.program, "--version"], capture_output=True, text=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    df = subprocess.run(["df", "--output=source,fstype", args.dir], capture_output=True, text=True)
    names = list(proxies.VERSIONS)
    return {
        "command": " ".join(["benchmarks/http/rivals.py"] + sys.argv[1:]),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "versions": {
            "damelo": damelo.stdout.strip() + " at " + commit.stdout.strip(),
            **{name: proxies.version(name) for name in names},
        },
        "cpu": f"{os.cpu_count()} x {model}",
        "kernel": platform.release(),
        "disk": " ".join(df.stdout.split()[-2:]),
        "load_at_start": os.getloadavg()[0],
    }


def table(results):
    """Markdown: a section for each row, a line for each proxy, its ratio to damelo."""
    lines = []
    for row, result in results.items():
        lines += [f"\n## {row}\n", result["what"] + "\n"]
        columns = result["columns"]
        lines.append("| proxy | " + " | ".join(columns) + " | damelo is |")
        lines.append("|---|" + "---:|" * (len(columns) + 1))
        key, better = columns[0], result["better"]
        own = median(result["samples"].get("damelo", []), key)
        for name, samples in result["samples"].items():
            cells = [number(median(samples, column)) for column in columns]
            lines.append(f"| {name} | " + " | ".join(cells) + f" | {verdict(own, median(samples, key), name, better)} |")
    return "\n".join(lines) + "\n"


def median(samples, key):
    values = [sample[key] for sample in samples if sample.get(key) is not None]
    return statistics.median(values) if values else None


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def verdict(own, other, name, better):
    """How many times as good damelo is."""
    if name == "damelo" or own is None or better == "none":
        return ""
    if not other:
        return "alone"
    ratio = own / other if better == "more" else other / max(own, 1e-9)
    return f"{ratio:.2f}x" + (" **LOSES**" if ratio < 1 else "")


def keep(args, about, results):
    """What there is so far: a run that is broken off leaves its rows."""
    if not args.out:
        return
    os.makedirs(args.out, exist_ok=True)
    with open(f"{args.out}/run.json", "w") as file:
        json.dump({**about, "results": results}, file, indent=1)
    head = [f"- {key}: {value}" for key, value in about.items() if key != "versions"]
    versions = [f"- {key}: {value}" for key, value in about["versions"].items()]
    with open(f"{args.out}/table.md", "w") as file:
        file.write("\n".join(head + versions) + "\n" + table(results))


def main():
    args = arguments()
    # So that what was started is ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    shutil.rmtree(args.dir, ignore_errors=True)
    os.makedirs(args.dir)
    os.chmod(args.dir, 0o755)
    about, results, failed = machine(args), {}, []
    try:
        for row in args.rows:
            settings = Settings(args)
            rivals = chosen(args, settings)
            try:
                print(f"{row} ...", file=sys.stderr)
                results[row] = RUN[row](args, settings, rivals)
                print(table({row: results[row]}), flush=True)
                keep(args, about, results)
            except cgroups.Missing as missing:
                print(f"{row} is left out: {missing}", file=sys.stderr)
            except measuring.RowFailed as failure:
                failed.append(row)
                print(f"{row} failed: {failure}", file=sys.stderr)
            finally:
                for proxy in rivals:
                    proxy.kill()
                    shutil.rmtree(proxy.dir, ignore_errors=True)
                    cgroups.remove(proxy.name)
    finally:
        shutil.rmtree(args.dir, ignore_errors=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
