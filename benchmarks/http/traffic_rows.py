"""Rows about requests that are not plain hits or misses: what browsers send, what is asked again, what only passes.

The load is wrk's; the origin is an nginx of its own on the load's core, since here origins answer more than one thing.
"""

import contextlib
import os
import re
import shutil
import subprocess
import time
import urllib.request

import connection_rows
import measuring

ORIGIN = """
daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/error.log error; {user}
events {{ worker_connections 4096; }}
http {{
  access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000000; etag on;
  default_type text/html; client_body_temp_path {dir}/body;
  server {{
    listen {origin} backlog=4096; root {dir}/files; client_max_body_size 0;
    location /kept/ {{ add_header Cache-Control max-age=86400; }}
    location /asked/ {{ add_header Cache-Control no-cache; }}
    location /own/ {{ add_header Cache-Control "no-store"; }}
    location /form/ {{ return 204; }}
    location = /count {{ stub_status; }}
    location /site/ {{
      default_type image/png;
      add_header Cache-Control "public, max-age=86400, stale-while-revalidate=60";
      add_header Vary Accept-Encoding; add_header X-Frame-Options SAMEORIGIN;
      add_header X-Content-Type-Options nosniff; add_header Referrer-Policy strict-origin-when-cross-origin;
      add_header Strict-Transport-Security "max-age=31536000; includeSubDomains; preload";
      add_header Content-Security-Policy "default-src 'self'; img-src 'self' data: https:; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; frame-ancestors 'self'";
      add_header Permissions-Policy "geolocation=(), microphone=(), camera=()";
      add_header X-Request-Id $request_id; add_header Access-Control-Allow-Origin "*";
      add_header Alt-Svc 'h3=":443"; ma=86400'; add_header Server-Timing "total;dur=12.3";
    }}
  }}
}}
"""

# What a browser of today sends with a request for an image of a page.
BROWSER = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
    "Accept": "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8",
    "Accept-Encoding": "gzip, deflate, br, zstd",
    "Accept-Language": "en-GB,en;q=0.9,es;q=0.8",
    "Referer": "http://bench.example/news/2026/11/what-browsers-send.html",
    "Cookie": "session=5f3a9c2be81d47c6a0b1; consent=all; _ga=GA1.2.1234567890.1700000000; theme=dark",
    "Sec-Ch-Ua": '"Chromium";v="131", "Not_A Brand";v="24"',
    "Sec-Ch-Ua-Mobile": "?0", "Sec-Ch-Ua-Platform": '"Linux"', "Sec-Fetch-Dest": "image",
    "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Site": "same-origin", "DNT": "1", "Priority": "u=1, i",
}
COLUMNS = ["req/s", "p99 us", "cpu us/req", "asked of origin", "failed"]
LENGTH = 8192


class Origin:
    """nginx with files."""

    def __init__(self, args, settings):
        connection_rows.needs("nginx", "which is the origin here")
        connection_rows.needs("wrk", "which is the load here")
        self.dir, self.address = os.path.join(settings.dir, "origin"), settings.origin
        for name in ["kept", "asked", "own", "site"]:
            os.makedirs(f"{self.dir}/files/{name}")
            for number in range(connection_rows.HOT):
                with open(f"{self.dir}/files/{name}/{number}", "wb") as file:
                    file.write(b"x" * LENGTH)
                # One time, so that all have one validator.
                os.utime(file.name, (1_700_000_000, 1_700_000_000))
        subprocess.run(["chmod", "-R", "a+rX", settings.dir], check=True)
        path = f"{self.dir}/nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""
        with open(path, "w") as file:
            file.write(ORIGIN.format(dir=self.dir, origin=settings.origin, user=user))
        command = measuring.on_core(args) + ["nginx", "-p", self.dir, "-c", path]
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        time.sleep(0.5)
        if self.child.poll() is not None:
            raise SystemExit(f"the origin did not start: see {self.dir}/error.log")

    @property
    def count(self):
        """Requests so far, with those for this count."""
        with urllib.request.urlopen(f"http://{self.address}/count") as answer:
            found = re.search(r"^ \d+ \d+ (\d+) *$", answer.read().decode(), re.MULTILINE)
        return int(found.group(1))

    def close(self):
        self.child.terminate()
        self.child.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def script(settings, name, fields, method="GET", body_bytes=0):
    """A script for wrk that asks for all the files of a directory in turn, with these fields."""
    lines = [f'wrk.method = "{method}"']
    lines += [f"wrk.headers[{quoted(field)}] = {quoted(value)}" for field, value in fields.items()]
    if body_bytes:
        lines.append(f'wrk.body = string.rep("x", {body_bytes})')
    asked = [f"/{name}/{number}" for number in range(connection_rows.HOT)]
    return connection_rows.wrk_script(settings, asked, "\n".join(lines))


def quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def etag(settings):
    """The validator of the files, of which all have one time and one length."""
    out = subprocess.run(["curl", "-sI", f"http://{settings.origin}/kept/1"], capture_output=True, text=True).stdout
    return re.search(r"etag: *(\S+)", out, re.IGNORECASE).group(1)


def in_turn(args, settings, rivals, name, fields, **more):
    with contextlib.closing(Origin(args, settings)) as origin:
        given = fields(settings) if callable(fields) else fields
        lua = script(settings, name, given, **more)

        def load(_, proxy):
            found = measuring.wrk(args, origin, proxy, lua)
            # The share of requests that reached the origin; the count's own are none of them.
            asked = max(found["origin requests"] - 1, 0)
            return {**found, "asked of origin": asked / max(found["requests"], 1)}

        return connection_rows.turns(args, rivals, origin, load)


def browser(args, settings, rivals):
    samples = in_turn(args, settings, rivals, "site", BROWSER)
    what = "Hits of 8 KiB with 14 fields that a browser sends, and 12 that sites add to what servers say."
    return measuring.compared(what, samples, COLUMNS)


def conditional(args, settings, rivals):
    samples = in_turn(args, settings, rivals, "kept", lambda settings: {"If-None-Match": etag(settings)})
    what = "Clients that have the newest already and ask with If-None-Match: 304 from memory."
    return measuring.compared(what, samples, COLUMNS)


def validated(args, settings, rivals):
    samples = in_turn(args, settings, rivals, "asked", {})
    what = "8 KiB with no-cache: each hit asks the origin first, which says 304."
    return measuring.compared(what, samples, COLUMNS)


def passed(args, settings, rivals):
    samples = in_turn(args, settings, rivals, "own", {})
    what = "8 KiB with no-store: each request goes to the origin and nothing is kept."
    return measuring.compared(what, samples, COLUMNS)


def uploads(args, settings, rivals):
    samples = in_turn(args, settings, rivals, "form", {}, method="POST", body_bytes=65536)
    what = "POST with 64 KiB, which the origin reads and answers with 204."
    return measuring.compared(what, samples, COLUMNS)


def redirects(args, settings, rivals):
    """Each with a list of paths that have moved, as sites have that are old."""
    settings.redirects = 5000
    rivals = [proxy for proxy in rivals if proxy.redirects]
    samples = in_turn(args, settings, rivals, "kept", {})
    what = (
        f"Hits of 8 KiB beside {settings.redirects} redirects of other paths: rules in damelo, a map in nginx, lines of "
        "remap.config in Traffic Server. Squid has none without a helper, and Varnish takes minutes to compile so many conditions."
    )
    return measuring.compared(what, samples, COLUMNS)


RUN = {"browser": browser, "conditional": conditional, "validated": validated, "passed": passed, "uploads": uploads,
       "redirects": redirects}
