#!/usr/bin/env python3
"""Runs the public test suite for HTTP caches (https://cache-tests.fyi, npm package http-cache-tests)
against damelo, nginx, Varnish, Squid and Traffic Server, and counts. `--help` lists the options.

The suite is installed by npm below `--dir` and is no part of this repository. Each proxy has the
settings that the suite's own container image gives it, so that none stores what names no lifetime.
Needs Python 3.9, node and npm, a release build of damelo, and the others that are to be tested.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import types

import proxies

PACKAGE = "http-cache-tests@0.4.5"
ORIGIN_PORT = 8791

# What the tests are: id, kind, those that it depends on, its suite.
LIST_TESTS = """
const { default: suites } = await import(process.argv[1] + '/tests/index.mjs');
for (const more of ['surrogate-control', 'cdn-cache-control']) {
  try { suites.push((await import(`${process.argv[1]}/tests/${more}.mjs`)).default) } catch {}
}
const seen = {};
for (const suite of suites) for (const test of suite.tests)
  if (!test.browser_only) seen[test.id] =
    { suite: suite.id, kind: test.kind ?? 'required', needs: test.depends_on ?? [], name: test.name };
console.log(JSON.stringify(seen));
"""

NGINX = """
daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/error.log error; {user}
events {{ worker_connections 2048; }}
http {{
  access_log off;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/temp; fastcgi_temp_path {dir}/fcgi;
  uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
  proxy_cache_path {dir}/cache levels=1:2 keys_zone=z:8m max_size=1000m inactive=600m;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://{origin}; proxy_cache z; proxy_cache_revalidate on; }}
  }}
}}
"""

VCL = """
vcl 4.1;
backend default {{ .host = "{host}"; .port = "{origin_port}"; }}
"""

SQUID = """
http_port 127.0.0.1:{port} accel defaultsite=localhost no-vhost
cache_peer {host} parent {origin_port} 0 no-query no-digest originserver default name=o
cache_peer_access o allow all
http_access allow all
shutdown_lifetime 1 second
connect_retries 3
access_log none
cache_log {dir}/cache.log
pid_filename {dir}/squid.pid
coredump_dir {dir}
pinger_enable off
visible_hostname conformance
"""

RECORDS = {
    "proxy.config.http.server_ports": "STRING 127.0.0.1:{port}",
    "proxy.config.admin.user_id": "STRING #-1",
    "proxy.config.http.insert_response_via_str": "INT 0",
    "proxy.config.http.cache.ignore_client_cc_max_age": "INT 1",
    "proxy.config.http.cache.cache_responses_to_cookies": "INT 1",
    "proxy.config.http.cache.when_to_revalidate": "INT 0",
    "proxy.config.http.cache.required_headers": "INT 2",
    "proxy.config.http.normalize_ae": "INT 1",
    "proxy.config.http.connect_attempts_max_retries": "INT 3",
    "proxy.config.url_remap.pristine_host_hdr": "INT 1",
    "proxy.config.log.logging_enabled": "INT 0",
    "proxy.config.diags.show_location": "INT 0",
}


class Nginx(proxies.Nginx):
    def prepare(self):
        self.write("nginx.conf", NGINX)


class Varnish(proxies.Varnish):
    def prepare(self):
        self.write("default.vcl", VCL)

    def command(self):
        return [
            "varnishd", "-F", "-j", "none", "-n", f"{self.dir}/work", "-f", f"{self.dir}/default.vcl",
            "-a", f"127.0.0.1:{self.port}", "-T", "none", "-s", "malloc,64M",
            "-p", "default_ttl=0", "-p", "default_grace=0", "-p", "default_keep=3600",
        ]


class Squid(proxies.Squid):
    def prepare(self):
        self.write("squid.conf", SQUID)
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", "proxy:proxy", self.dir], check=True)

    def command(self):
        return super().command() + ["-N"]


class TrafficServer(proxies.TrafficServer):
    def prepare(self):
        super().prepare()
        lines = [f"CONFIG {key} {value}\n" for key, value in RECORDS.items()]
        self.write("etc/records.config", "".join(lines))


PROXIES = [proxies.Damelo, Nginx, Varnish, Squid, TrafficServer]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", default="target/release/damelo", help="the damelo to test")
    parser.add_argument("--dir", default="/var/tmp/damelo-conformance",
                        help="where the suite is installed and the proxies work")
    parser.add_argument("--suite", help="a checkout of the suite, in place of the npm package")
    parser.add_argument("--only", help="these proxies, separated by commas")
    parser.add_argument("--test", help="one test by its id, with all that was sent and received")
    parser.add_argument("--out", help="directory for run.json and table.md")
    return parser.parse_args()


def installed(args):
    """The directory of the suite; npm installs it if it is not there."""
    if args.suite:
        return os.path.abspath(args.suite)
    path = os.path.join(args.dir, "node_modules", PACKAGE.split("@")[0])
    if not os.path.isdir(path):
        os.makedirs(args.dir, exist_ok=True)
        subprocess.run(["npm", "install", "--no-save", "--prefix", args.dir, PACKAGE], check=True)
    return path


def environment(args, **values):
    """Settings of a package, as npm hands them to what it runs."""
    base = {"protocol": "http", "port": str(ORIGIN_PORT), "base": "", "id": args.test or "",
            "pidfile": os.path.join(args.dir, "server.pid"), **values}
    return {**os.environ, **{f"npm_package_config_{key}": value for key, value in base.items()}}


def run_suite(args, suite, proxy):
    """The results of one proxy, by test: True, or what was wrong."""
    with open(f"{proxy.dir}/suite.log", "wb") as log:
        server = subprocess.Popen(["node", "server/server.mjs"], cwd=suite, stdout=log, stderr=log,
                                  env=environment(args))
        try:
            proxy.start()
            proxy.wait()
            time.sleep(2)
            client = subprocess.run(
                ["node", "--no-warnings", "cli.mjs"], cwd=suite, stderr=log, stdout=subprocess.PIPE,
                env=environment(args, base=proxy.url), check=True, text=True)
        finally:
            proxy.kill()
            server.kill()
            server.wait()
    if args.test:
        print(f"==== {proxy.name}\n{client.stdout}")
        return {}
    return json.loads(client.stdout[client.stdout.index("{"):])


def outcome(tests, results, name):
    """`passed`, `failed`, or why there is no verdict: a test that it needs failed, or its setup."""
    result = results.get(name)
    if result is None:
        return "not run"
    needs = [need for need in tests[name]["needs"] if need in tests]
    if any(outcome(tests, results, need) != "passed" for need in needs):
        return "depends"
    if result is True:
        return "passed"
    return "setup" if result[0] == "Setup" else "failed"


def counted(tests, outcomes, kind):
    found = [outcomes[name] for name in tests if tests[name]["kind"] == kind]
    return {key: found.count(key) for key in ["passed", "failed", "depends", "setup", "not run"]}


KINDS = [
    ("required", "what the RFCs require: a failure is a fault"),
    ("optimal", "what a good cache does: a failure is a request too many"),
    ("check", "yes or no, neither of them wrong: passed means yes"),
]


def table(tests, all_outcomes):
    lines = []
    for kind, meaning in KINDS:
        lines += [f"\n## {kind}\n", f"{meaning}\n",
                  "| proxy | passed | failed | needs one that failed | setup failed |", "|---|---:|---:|---:|---:|"]
        for name, outcomes in all_outcomes.items():
            n = counted(tests, outcomes, kind)
            lines.append(f"| {name} | {n['passed']} | {n['failed']} | {n['depends']} | {n['setup']} |")
    lines += ["\n## What damelo does not pass\n", "| test | kind | damelo | others that pass |", "|---|---|---|---|"]
    for name, test in tests.items():
        own = all_outcomes.get("damelo", {}).get(name, "passed")
        others = [p for p, outcomes in all_outcomes.items() if outcomes[name] == "passed"]
        if own != "passed":
            lines.append(f"| {name} | {test['kind']} | {own} | {', '.join(others) or '-'} |")
    return "\n".join(lines) + "\n"


def about(args, names):
    damelo = subprocess.run([args.program, "--version"], capture_output=True, text=True).stdout.strip()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    node = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()
    versions = {name: proxies.version(name) for name in names if name != "damelo"}
    return {
        "command": " ".join(["benchmarks/http/conformance.py"] + sys.argv[1:]),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "suite": args.suite or PACKAGE, "node": node,
        "damelo": f"{damelo} at {commit.stdout.strip()}", **versions,
    }


def main():
    args = arguments()
    suite = installed(args)
    listing = subprocess.run(["node", "--input-type=module", "-e", LIST_TESTS, suite],
                             check=True, capture_output=True, text=True)
    tests = json.loads(listing.stdout)
    settings = types.SimpleNamespace(
        dir=os.path.join(os.path.abspath(args.dir), "proxies"), program=os.path.abspath(args.program),
        origin=f"127.0.0.1:{ORIGIN_PORT}", core=None, memory_mib=64, disk_mib=512, fits=True,
        objects=1000, object_bytes=8192, tls=False, ranges=False, redirects=0, workers=1, cgroups=lambda name: [])
    details, outcomes = {}, {}
    for number, kind in enumerate(PROXIES):
        if args.only and kind.name not in args.only.split(","):
            continue
        if kind.name != "damelo" and proxies.version(kind.name) is None:
            print(f"{kind.name} is not installed: left out", file=sys.stderr)
            continue
        print(f"{kind.name} ...", file=sys.stderr)
        proxy = kind(settings, ORIGIN_PORT + 1 + number)
        proxy.reset()
        results = details[kind.name] = run_suite(args, suite, proxy)
        outcomes[kind.name] = {name: outcome(tests, results, name) for name in tests}
    if args.test:
        return
    facts = about(args, outcomes)
    text = "\n".join(f"- {key}: {value}" for key, value in facts.items()) + "\n" + table(tests, outcomes)
    print(text)
    if args.out:
        os.makedirs(args.out, exist_ok=True)
        rows = {name: {"kind": test["kind"], **{p: o[name] for p, o in outcomes.items()}}
                for name, test in tests.items()}
        with open(f"{args.out}/run.json", "w") as file:
            json.dump({**facts, "tests": rows}, file, indent=1)
        with open(f"{args.out}/table.md", "w") as file:
            file.write(text)
    with open(os.path.join(args.dir, "details.json"), "w") as file:
        json.dump(details, file, indent=1)


if __name__ == "__main__":
    main()
