#!/usr/bin/env python3
"""Counts the instructions that the proxy's own program executes for a hit, for a stored miss, for a hit that
the origin is asked about first, for what only passes, for a hit with tags of which others were purged since it
was stored, and for a hit beside rules on how long answers are kept.

A count is the same on a busy machine as on an idle one, where times differ by a factor of two. It
leaves out the kernel, and says nothing of caches. Needs valgrind, and root: valgrind 3.19 lets no
other thread run while one waits for io_uring, so the system must refuse it while the store opens.
What callgrind wrote stays in --dir, for `callgrind_annotate --inclusive=yes`.
"""

import argparse
import json
import os
import re
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from email.utils import formatdate

SWITCH = "/proc/sys/kernel/io_uring_disabled"
FIELDS = (
    "Date: {}\r\nCache-Control: {}\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
    'ETag: "one"\r\nServer: origin\r\n'
)
TAGS, RULES = 20, 20
# By the first part of a path.
CONTROLS = {"asked": "no-cache", "own": "no-store"}
# The C library copies what is longer than some kilobytes with one `rep movsb`, of which valgrind
# counts every byte as an instruction: a body of 8 KiB, copied once, would be a tenth of a miss.
TUNABLES = "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000"


class Origin(socketserver.StreamRequestHandler):
    """Answers every request with the same body, or with 304 if it has a condition."""

    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while line := self.rfile.readline():
            control = CONTROLS.get(line.split(b"/")[1].decode(), "max-age=86400")
            is_conditional = False
            while (field := self.rfile.readline()) not in (b"\r\n", b""):
                is_conditional |= field.lower().startswith(b"if-none-match:")
            fields = FIELDS.format(formatdate(usegmt=True), control)
            if line.split(b"/")[1] == b"tagged":
                tags = " ".join(f"tag-{number}" for number in range(TAGS))
                fields += f"Surrogate-Key: {tags}\r\n"
            if is_conditional:
                self.wfile.write(f"HTTP/1.1 304 Not Modified\r\n{fields}\r\n".encode())
                continue
            body = b"x" * self.server.object_bytes
            fields += f"Content-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            self.wfile.write(f"HTTP/1.1 200 OK\r\n{fields}\r\n".encode() + body)


class Origins(socketserver.ThreadingTCPServer):
    daemon_threads = True


class Client:
    """One connection that stays."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get(self, path, method="GET", more=""):
        """The head of the answer; its body is read, too."""
        fields = f"Host: 127.0.0.1\r\nUser-Agent: count\r\nAccept: */*{more}"
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\n{fields}\r\n\r\n".encode())
        read = b""
        while b"\r\n\r\n" not in read:
            read += self.more()
        head, _, body = read.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)[1])
        while len(body) < length:
            body += self.more()
        return head.decode().lower()

    def more(self):
        found = self.socket.recv(1 << 16)
        if not found:
            sys.exit("the proxy closed the connection")
        return found


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def without_io_uring(start):
    """Calls `start` while the system refuses io_uring."""
    with open(SWITCH, encoding="ascii") as file:
        before = file.read()
    with open(SWITCH, "w", encoding="ascii") as file:
        file.write("2")
    try:
        return start()
    finally:
        with open(SWITCH, "w", encoding="ascii") as file:
            file.write(before)


def configuration(args, name, rules):
    """A file that lets clients purge, with so many rules on how long answers are kept."""
    path = os.path.join(args.dir, f"{name}.toml")
    one = "[[rule]]\npath = \"/{}/**\"\nttl = \"1h\"\n"
    with open(path, "w", encoding="utf-8") as file:
        file.write("[purge]\nmethod = true\n" + "".join(map(one.format, range(rules))))
    return path


def proxy(args, name, port, origin, rules):
    """Starts the proxy below valgrind, and waits until it answers."""
    store, out = os.path.join(args.dir, "store"), os.path.join(args.dir, name)
    for path in (store, out):
        if os.path.exists(path):
            os.remove(path)
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
    command += [args.program, "proxy", "--to", f"http://127.0.0.1:{origin}", "--from",
                f"127.0.0.1:{port}", "--workers", "1", "--cache", f"{store}:256MiB", "--memory",
                "64MiB", "--config", configuration(args, name, rules)]
    environment = {**os.environ, "GLIBC_TUNABLES": TUNABLES}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    for _ in range(600):
        if child.poll() is not None:
            sys.exit("the proxy ended: is valgrind there, and the program?")
        try:
            Client(port).get("/first")
            return child, out
        except ConnectionRefusedError:
            time.sleep(0.1)
    sys.exit("the proxy does not listen")


def counted(args, name, origin, paths, expected, rules=0, purges=False):
    """Instructions for each request of these paths, after half as many to warm up, and a purge."""
    port = free_port()
    child, out = without_io_uring(lambda: proxy(args, name, port, origin, rules))
    client = Client(port)

    def count(switch):
        control = ["callgrind_control", "-i", switch, str(child.pid)]
        subprocess.run(control, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    for number in range(args.requests // 2):
        client.get(paths(-1 - number))
    if purges:
        client.get("/", "PURGE", "\r\nSurrogate-Key: another")
        # The store writes a checkpoint then.
        time.sleep(3)
    count("on")
    for number in range(args.requests):
        head = client.get(paths(number))
        if expected not in head:
            sys.exit(f"not a {name}:\n{head}")
    count("off")
    child.send_signal(signal.SIGINT)
    child.wait(timeout=120)
    with open(out, encoding="utf-8") as file:
        total = re.search(r"^totals: (\d+)", file.read(), re.MULTILINE)
    return int(total[1]) / args.requests


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", default="target/release/damelo")
    parser.add_argument("--dir", default="/var/tmp/damelo-instructions")
    parser.add_argument("--requests", type=int, default=2000, help="counted, for each row")
    parser.add_argument("--object-bytes", type=int, default=8192)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.program = os.path.abspath(args.program)
    os.makedirs(args.dir, exist_ok=True)
    origin = Origins(("127.0.0.1", 0), Origin)
    origin.object_bytes = args.object_bytes
    threading.Thread(target=origin.serve_forever, daemon=True).start()
    at = origin.server_address[1]
    found = {
        "hit": counted(args, "hit", at, lambda _: "/one", "damelo; hit"),
        "miss": counted(args, "miss", at, lambda n: f"/of/{n}", "stored"),
        "validated": counted(args, "validated", at, lambda _: "/asked/one", "fwd-status=304"),
        "passed": counted(args, "passed", at, lambda _: "/own/one", "detail=no-store"),
        "purged": counted(args, "purged", at, lambda _: "/tagged/one", "damelo; hit",
                          purges=True),
        "ruled": counted(args, "ruled", at, lambda _: "/one", "damelo; hit", rules=RULES),
    }
    if args.json:
        print(json.dumps(found))
        return
    for name, count in found.items():
        print(f"{name:9} {count:10,.0f} instructions")


if __name__ == "__main__":
    main()
