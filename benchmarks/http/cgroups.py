"""Cgroups of version 1 for the proxies: a limit of memory, and one of reads from the disk.

Groups are made below the one this process is in, are shared by nobody, and go with `remove`.
"""

import os
import time


class Missing(Exception):
    """The machine cannot do what a row needs; says what."""


def own(controller):
    """This process's group of a controller, below which others can be made."""
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.strip().split(":", 2)
            if controller in controllers.split(","):
                root = f"/sys/fs/cgroup/{controller}" + path.rstrip("/")
                if os.access(root, os.W_OK):
                    return root
    raise Missing(f"needs {controller} cgroups of version 1, and the right to make them")


def write(path, file, value):
    with open(f"{path}/{file}", "w") as opened:
        opened.write(str(value))


def made(controller, name):
    path = f"{own(controller)}/damelo-http-{name}"
    os.makedirs(path, exist_ok=True)
    return path


def with_memory(name, limit_mib):
    path = made("memory", name)
    write(path, "memory.limit_in_bytes", limit_mib << 20)
    return path


def with_reads(name, directory, per_second):
    """Reads of the disk below `directory` held to so many a second; 0: not held."""
    path = made("blkio", name)
    try:
        write(path, "blkio.throttle.read_iops_device", f"{disk_of(directory)} {per_second}")
    except OSError as error:
        raise Missing(f"cannot hold reads of the disk below {directory}: {error}") from error
    return path


def disk_of(directory):
    """MAJOR:MINOR of the whole disk: partitions cannot be held."""
    device = os.stat(directory).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    node = os.path.realpath(f"/sys/dev/block/{number}")
    if not os.path.exists(node):
        raise Missing(f"{directory} is on no block device")
    if os.path.exists(f"{node}/partition"):
        with open(f"{os.path.dirname(node)}/dev") as file:
            return file.read().strip()
    return number


def remove(name):
    """Once nothing is left in them."""
    for controller in ["memory", "blkio"]:
        try:
            path = f"{own(controller)}/damelo-http-{name}"
        except Missing:
            continue
        for _ in range(50):
            if not os.path.isdir(path):
                break
            try:
                os.rmdir(path)
            except OSError:
                time.sleep(0.02)
