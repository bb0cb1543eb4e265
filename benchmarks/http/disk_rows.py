"""Rows about a disk that is slow, a memory that is empty, and a cache that is full of objects."""

import os
import subprocess
import time

import basic_rows
import cgroups
import measuring
import origin_server

READS_PER_SECOND = 150
SECONDS_MIN = 10  # At so few reads a second less says nothing.


def hold(settings, proxy, per_second):
    cgroups.with_reads(proxy.name, settings.dir, per_second)


def drop_caches():
    """The kernel's, for the whole machine."""
    if os.geteuid() != 0:
        raise cgroups.Missing("needs root, to empty the kernel's caches")
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def filled(args, settings, proxy, workload="zipf"):
    """Asks once for every object, the popular ones last; the run to ask for again."""
    m, = measuring.measured(args, settings, [proxy], workload, "--origin-listen", settings.origin,
                       "--requests", "1", *objects(settings, workload))
    return m["run"]


def objects(settings, workload):
    embedded = "15" if workload == "pages" else "0"
    return ["--objects", str(settings.objects), "--alpha", "0.8", "--embedded", embedded,
            "--size", str(settings.object_bytes)]


def slow_disk(args, settings, rivals, before, workload):
    """Over a catalogue that does not fit, reads held while it is measured."""
    measuring.limit(args, settings)
    settings.reads_held = True
    seconds = str(max(args.seconds, SECONDS_MIN))
    samples, runs = {proxy.name: [] for proxy in rivals}, {}
    cgroups.with_reads("probe", settings.dir, 0)
    cgroups.remove("probe")
    measuring.start_all(rivals)
    for proxy in rivals:
        runs[proxy.name] = filled(args, settings, proxy, workload)
    time.sleep(5)  # What is still to be written.
    for number in range(args.rounds):
        for turn in range(len(rivals)):
            proxy = rivals[(turn + number) % len(rivals)]
            before(proxy)
            pids = ",".join(map(str, proxy.pids()[:1]))
            hold(settings, proxy, READS_PER_SECOND)
            try:
                m, = measuring.measured(
                    args, settings, [proxy], workload, "--origin-listen", settings.origin,
                    "--again", str(runs[proxy.name]), "--seconds", seconds, "--connections", "32",
                    "--first-round", str(number + 2), "--pid", pids, *objects(settings, workload))
            finally:
                hold(settings, proxy, 0)
            samples[proxy.name].append(measuring.sample_of(m))
    return samples


def throttled(args, settings, rivals, workload="zipf"):
    samples = slow_disk(args, settings, rivals, lambda proxy: None, workload)
    over = " over pages of 16 objects" if workload == "pages" else ""
    what = (
        f"{measuring.limited(args)}{over}; reads of the disk held to {READS_PER_SECOND}/s for each proxy by blkio, "
        "which counts those of nginx's and Squid's files before they are merged."
    )
    return measuring.compared(what, samples, COLUMNS)


def throttled_pages(args, settings, rivals):
    return throttled(args, settings, rivals, "pages")


def cold(args, settings, rivals, workload="zipf"):
    rivals = [proxy for proxy in rivals if not proxy.forgets]

    def again(proxy):
        proxy.kill()
        proxy.start()
        proxy.wait()
        time.sleep(1)
        drop_caches()

    samples = slow_disk(args, settings, rivals, again, workload)
    what = (
        f"The same as throttled{'-pages' if workload == 'pages' else ''} right after kill -9 and a start, the kernel's caches emptied, too. "
        "Varnish is left out: its cache does not outlive it."
    )
    return measuring.compared(what, samples, COLUMNS)


def cold_pages(args, settings, rivals):
    return cold(args, settings, rivals, "pages")


COLUMNS = ["req/s", "p99 us", "disk reads/req", "hit ratio", "failed"]


def restart1m(args, settings, rivals):
    """As `restart`, with a million objects."""
    settings.objects, settings.object_bytes, settings.disk_mib = 1_000_000, 1024, 6144
    samples = {}
    for proxy in [proxy for proxy in rivals if not proxy.forgets]:
        proxy.reset()
        proxy.start()
        proxy.wait()
        run = filled(args, settings, proxy)
        time.sleep(8)
        paths = [f"/c/{run}/{number}/0" for number in range(settings.objects)]
        origin = origin_server.Origin(settings)
        samples[proxy.name] = []
        try:
            for _ in range(args.rounds):
                proxy.kill()
                proxy.start()
                proxy.wait()
                samples[proxy.name].append(
                    basic_rows.until_hit(origin, proxy, paths, settings.object_bytes, settings.origin))
        finally:
            origin.close()
        # Millions of files take disk that the next one may want.
        proxy.kill()
        subprocess.run(["rm", "-rf", proxy.dir], check=True)
    what = (
        f"{settings.objects:,} objects of 1 KiB, kill -9, start: time from exec to the first answer "
        "that did not come from the origin, and the share of 500 objects then still there."
    )
    return measuring.compared(what, samples, ["seconds to first hit", "kept"], "less")


RUN = {
    "throttled": throttled, "throttled-pages": throttled_pages, "cold": cold, "cold-pages": cold_pages,
    "restart1m": restart1m,
}
