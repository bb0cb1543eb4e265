#!/usr/bin/env python3
"""Prints the first table of docs/decisions/0012-defaults-on-disks.md: the store with one setting
changed at a time, on two modelled disks, and on flash that writes twice as much as it is given.

    defaults_on_disks.py --program target/release/damelo bu95.csv.zst:256MiB:16MiB \\
        nasa-ksc.csv.zst:24MiB:4MiB 'gen:web?requests=400000:360MiB:22MiB'

Each workload is a trace, the store's size and its memory. All is counted in virtual time, so that
neither a debug build nor a busy machine changes a number. Needs Python 3.9.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

SETTINGS = [
    ("**default**", "store", []),
    ("page 16 KiB", "store", ["--page", "16KiB"]),
    ("page 32 KiB", "store", ["--page", "32KiB"]),
    ("page 128 KiB", "store", ["--page", "128KiB"]),
    ("page 256 KiB", "store", ["--page", "256KiB"]),
    ("group host-path", "store", ["--group", "host-path"]),
    ("group page", "store", ["--group", "page"]),
    ("group size-class", "store", ["--group", "size-class"]),
    ("group none", "store", ["--group", "none"]),
    ("group none, page 128 KiB", "store", ["--group", "none", "--page", "128KiB"]),
    ("not to be had: group oracle", "store", ["--group", "oracle"]),
    ("disk LFU with aging", "store:disk=lfu-aging", []),
    ("disk LRU", "store:disk=lru", []),
    ("disk FIFO", "store:disk=fifo", []),
    ("C_max 1", "store:cmax=1", []),
    ("C_max 2", "store:cmax=2", []),
    ("A_max 0.5", "store:amax=50", []),
    ("A_max 3", "store:amax=300", []),
    ("reinsert 5%", "store:reinsert=5", []),
    ("reinsert 15%", "store:reinsert=15", []),
    ("reinsert 30%", "store:reinsert=30", []),
    ("reinsert 50%", "store:reinsert=50", []),
    ("second hit", "store:admission=second-hit", []),
    ("memory S3-FIFO", "store:memory=s3-fifo", []),
    ("memory LRU", "store:memory=lru", []),
    ("memory clock", "store:memory=clock", []),
]


def measure(program, workload, design, more, drive):
    """One run, as its JSON."""
    trace, cache, memory = workload.rsplit(":", 2)
    command = [program, "lab", "designs", trace, design, "--drive", str(drive), "--cache", cache]
    command += ["--memory", memory, "--json", *more]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(done.stdout)


def cells(program, workload, design, more, flash):
    """Hits, seconds on the hard disk and on flash, megabytes written."""
    disk = measure(program, workload, design, more, "hdd-18tb")
    fast = measure(program, workload, design, more, flash)
    return [
        f"{disk['hit_percent']:.1f}",
        f"{disk['disk_seconds']:.0f}",
        f"{fast['disk_seconds']:.2f}",
        f"{disk['write_bytes'] / 1e6:.0f}",
    ]


def amplified(drives, folder):
    """The flash drive with a collector that writes as much again as it is given."""
    drive = json.loads((drives / "nvme-1tb.json").read_text())
    drive["name"], drive["write_amplification_percent"] = "nvme-1tb-full", 200
    path = pathlib.Path(folder) / "nvme-1tb-full.json"
    path.write_text(json.dumps(drive))
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", default="target/release/damelo")
    parser.add_argument("workloads", nargs="+", metavar="TRACE:CACHE:MEMORY")
    args = parser.parse_args()
    drives = pathlib.Path(__file__).resolve().parents[2] / "crates/lab/drives"

    def line(label, design, more, flash):
        row = [cells(args.program, w, design, more, flash) for w in args.workloads]
        print(f"| {label} | " + " | ".join(cell for part in row for cell in part) + " |", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        full = amplified(drives, folder)
        line(*SETTINGS[0], "nvme-1tb")
        line("the same, flash that writes twice as much", "store", [], full)
        for label, design, more in SETTINGS[1:]:
            line(label, design, more, "nvme-1tb")


if __name__ == "__main__":
    main()
