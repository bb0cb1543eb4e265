"""The proxies that are compared: how each is configured, started and killed.

Every one listens on 127.0.0.1, has one thread that serves, one origin on ORIGIN, no access log, an
upstream connection that stays open, and collapses concurrent misses where it can. Each lives in a
directory of its own below the run's and, if a limit is given, in a memory cgroup (version 1).
"""

import os
import shutil
import signal
import socket
import subprocess
import time

NGINX = """
daemon off; worker_processes {workers}; pid {dir}/nginx.pid; error_log {dir}/error.log error;
worker_rlimit_nofile 65536; {user}
events {{ worker_connections 8192; }}
http {{
  access_log off; sendfile on; tcp_nopush off; tcp_nodelay on;
  keepalive_timeout 300s; keepalive_requests 1000000000;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/temp; fastcgi_temp_path {dir}/fcgi;
  uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
  proxy_cache_path {dir}/cache levels=1:2 keys_zone=z:{keys_mib}m max_size={disk_mib}m inactive=1d use_temp_path=off;
  upstream o {{ server {origin}; keepalive 64; keepalive_requests 1000000000; }}
  {moved}
  server {{
    listen 127.0.0.1:{port} backlog=4096;{tls} {if_moved}
    location / {{
      proxy_pass http://o; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host $http_host; proxy_cache z; proxy_cache_key $request_uri{slice_key};
      proxy_cache_lock on; proxy_cache_valid 200 206 1d;{slices}
      add_header X-Cache $upstream_cache_status;
    }}
  }}
}}
"""

# Its own answer to ranges of what is large: each slice is an object of its cache.
NGINX_SLICES = """
      slice 1m; proxy_set_header Range $slice_range;"""

VCL = """
vcl 4.1;
backend default {{ .host = "{host}"; .port = "{origin_port}"; .max_connections = 1000; }}
sub vcl_recv {{ unset req.http.Cookie; }}
sub vcl_deliver {{ if (obj.hits > 0) {{ set resp.http.X-Cache = "HIT"; }} else {{ set resp.http.X-Cache = "MISS"; }} }}
"""

SQUID = """
http_port 127.0.0.1:{port} accel defaultsite={origin} no-vhost
{tls}
cache_peer {host} parent {origin_port} 0 no-query no-digest originserver name=o
acl all_of_it src all
http_access allow all_of_it
cache_peer_access o allow all_of_it
never_direct allow all_of_it
cache_dir rock {dir}/cache {disk_mib} max-size=1048576 slot-size={slot_bytes}
cache_mem {memory_mib} MB
maximum_object_size 64 MB
maximum_object_size_in_memory 1 MB
collapsed_forwarding on
workers {workers}
access_log none
cache_log {dir}/cache.log
cache_store_log none
pid_filename {dir}/squid.pid
coredump_dir {dir}
pinger_enable off
memory_pools on
shutdown_lifetime 1 seconds
max_filedescriptors 16384
visible_hostname bench
"""

# Two plugins that come with Traffic Server: one cuts ranges into blocks, the other stores those.
SLICE_PLUGINS = (
    " @plugin=slice.so @pparam=--blockbytes=1048576 @plugin=cache_range_requests.so")
SLICE_PLUGIN = "/usr/lib/trafficserver/modules/slice.so"

RECORDS = {
    "proxy.config.http.server_ports": "STRING 127.0.0.1:{port}{tls}",
    "proxy.config.ssl.server.cert.path": "STRING {certificates}",
    "proxy.config.ssl.server.private_key.path": "STRING {certificates}",
    "proxy.config.cache.min_average_object_size": "INT {average_bytes}",
    "proxy.config.exec_thread.autoconfig": "INT 0",
    "proxy.config.exec_thread.limit": "INT {workers}",
    "proxy.config.accept_threads": "INT 0",
    "proxy.config.task_threads": "INT 1",
    "proxy.config.admin.user_id": "STRING #-1",
    "proxy.config.cache.ram_cache.size": "INT {memory_bytes}",
    "proxy.config.cache.ram_cache_cutoff": "INT 4194304",
    "proxy.config.http.cache.required_headers": "INT 2",
    "proxy.config.http.insert_response_via_str": "INT 0",
    "proxy.config.http.insert_request_via_str": "INT 0",
    "proxy.config.http.response_server_enabled": "INT 0",
    "proxy.config.http.keep_alive_no_activity_timeout_in": "INT 300",
    "proxy.config.http.cache.open_write_fail_action": "INT 2",
    "proxy.config.cache.enable_read_while_writer": "INT 1",
    "proxy.config.http.cache.max_open_write_retries": "INT 10",
    "proxy.config.http.background_fill_completed_threshold": "FLOAT 0.0",
    "proxy.config.url_remap.pristine_host_hdr": "INT 1",
    "proxy.config.log.logging_enabled": "INT 0",
    "proxy.config.diags.show_location": "INT 0",
    "proxy.config.net.connections_throttle": "INT 16000",
    "proxy.config.net.max_connections_in": "INT 16000",
}

RUNROOT = """prefix: {dir}
exec_prefix: /usr
bindir: /usr/bin
sbindir: /usr/sbin
sysconfdir: {dir}/etc
datadir: {dir}/data
includedir: /usr/include
libdir: /usr/lib/trafficserver
libexecdir: /usr/lib/trafficserver/modules
localstatedir: {dir}/var
runtimedir: {dir}/run
logdir: {dir}/log
cachedir: {dir}/cache
"""


def redirect(number):
    """A path that has moved, and where to."""
    return f"/old/section-{number % 7}/page-{number}", f"http://moved.example/page-{number}"


class Proxy:
    """One proxy. `command` gives what starts it, `prepare` writes what it reads."""

    name = ""
    forgets = False
    tls = ""  # What makes it listen for TLS; empty if it does not speak it.
    http2 = True  # To clients, over TLS.
    redirects = True  # It has redirects of its own.

    def __init__(self, settings, port):
        self.settings, self.port = settings, port
        self.dir = os.path.join(settings.dir, self.name)
        self.child = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def tls_port(self):
        return self.port + 100

    def values(self):
        host, origin_port = self.settings.origin.split(":")
        memory, objects = self.settings.memory_mib, self.settings.objects
        certificates = os.path.join(self.settings.dir, "certificates")
        listening = dict(tls_port=self.tls_port, certificates=certificates, origin=self.settings.origin)
        small = self.settings.object_bytes <= 2048
        return dict(
            certificates=certificates, keys_mib=max(64, objects // 6000),
            slot_bytes=4096 if small else 16384, average_bytes=2000 if small else 8000,
            tls=self.tls.format(**listening) if self.settings.tls else "",
            dir=self.dir, port=self.port, origin=self.settings.origin, host=host,
            origin_port=origin_port, disk_mib=self.settings.disk_mib, memory_mib=memory,
            memory_bytes=memory << 20, workers=self.settings.workers,
            user="user root;" if os.geteuid() == 0 else "",
            slice_key="$slice_range" if self.settings.ranges else "",
            slices=NGINX_SLICES if self.settings.ranges else "", moved="", if_moved="",
        )

    def redirect_lines(self, line):
        """The redirects of a row that has any, each as this makes it."""
        return "\n".join(line(*redirect(number)) for number in range(self.settings.redirects))

    def write(self, name, template):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(template.format(**self.values()))
        return path

    def reset(self):
        """An empty cache."""
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(self.dir)
        self.prepare()

    def start(self):
        if self.is_listening():
            raise SystemExit(f"port {self.port} is taken, which {self.name} was to have: end what listens there")
        command = self.command()
        if self.settings.core is not None:
            command = ["taskset", "-c", str(self.settings.core)] + command
        for group in self.settings.cgroups(self.name):
            command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', group] + command
        log = open(os.path.join(self.dir, "output"), "ab")
        # A group of its own, so that it goes as a whole.
        self.child = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
        self.started = time.monotonic()

    def wait(self, limit_s=30):
        while time.monotonic() - self.started < limit_s:
            if self.child.poll() is not None:
                break
            if self.is_listening():
                return
            time.sleep(0.005)
        with open(os.path.join(self.dir, "output"), errors="replace") as file:
            raise SystemExit(f"{self.name} did not start:\n{file.read()[-2000:]}")

    def is_listening(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def kill(self):
        """SIGKILL to all of it, the first before it can start others again."""
        if self.child:
            for pid in self.pids():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.child.wait()
            self.child = None
            time.sleep(0.2)

    def pids(self):
        """Its processes: the one that was started and all below it."""
        out = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True).stdout
        pairs = [tuple(map(int, line.split())) for line in out.splitlines()]
        found = [self.child.pid]
        for parent in found:
            found += [pid for pid, ppid in pairs if ppid == parent]
        return found

    def cpu_ticks(self):
        """CPU time so far of each of its processes."""
        ticks = {}
        for pid in self.pids():
            try:
                with open(f"/proc/{pid}/stat") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
                ticks[pid] = int(fields[11]) + int(fields[12])
            except OSError:
                pass
        return ticks

    def busiest_since(self, before):
        """The process that has used most CPU time since `before`: the one that serves."""
        now = self.cpu_ticks()
        return max(now, key=lambda pid: now[pid] - before.get(pid, 0))

    def rss_bytes(self):
        total = 0
        for pid in self.pids():
            try:
                with open(f"/proc/{pid}/status") as file:
                    for line in file:
                        if line.startswith(("RssAnon:", "RssShmem:")):
                            total += int(line.split()[1]) << 10
            except OSError:
                pass
        return total


class Damelo(Proxy):
    name = "damelo"
    tls = "tls+tcp:127.0.0.1:{tls_port}"

    def prepare(self):
        rule = '[[rule]]\npath = "{0}"\nrespond = 301\nlocation = "{1}"'
        self.write("rules.toml", self.redirect_lines(rule.format))

    def command(self):
        v = self.values()
        return [
            self.settings.program, "proxy", "--json", "--config", f"{self.dir}/rules.toml", "--from", f"127.0.0.1:{self.port}",
            "--to", f"http://{v['origin']}", "--workers", str(v["workers"]), "--admin", "none",
            "--cache", f"{self.dir}/store:{v['disk_mib']}MiB",
            "--memory", f"{v['memory_mib']}MiB", "--connections", "16000",
        ] + (["--listen", v["tls"], "--certificate", "{0}/chain.pem,{0}/key.pem".format(v["certificates"])]
             if v["tls"] else [])


class Nginx(Proxy):
    name = "nginx"
    tls = """
    listen 127.0.0.1:{tls_port} ssl http2 backlog=4096;
    ssl_certificate {certificates}/chain.pem; ssl_certificate_key {certificates}/key.pem;"""

    def values(self):
        moved = self.redirect_lines("{0} {1};".format)
        if not moved:
            return super().values()
        tables = "map_hash_max_size 65536; map_hash_bucket_size 128;"
        return {
            **super().values(), "moved": f"{tables} map $uri $moved {{ {moved} }}",
            "if_moved": "if ($moved) { return 301 $moved; }",
        }

    def prepare(self):
        self.write("nginx.conf", NGINX)

    def command(self):
        return ["nginx", "-p", self.dir, "-c", f"{self.dir}/nginx.conf"]


class Varnish(Proxy):
    name = "varnish"
    forgets = True  # Its storage does not outlive the process.
    redirects = False  # Its language has them as conditions, and thousands take it minutes to compile.

    def prepare(self):
        self.write("default.vcl", VCL)

    def storage(self):
        v = self.values()
        # Nothing on disk where all fits into memory: its fastest.
        if self.settings.fits:
            return f"malloc,{v['memory_mib']}m"
        return f"file,{self.dir}/storage,{v['disk_mib']}m"

    def command(self):
        return [
            "varnishd", "-F", "-j", "none", "-n", f"{self.dir}/work", "-f", f"{self.dir}/default.vcl",
            "-a", f"127.0.0.1:{self.port}", "-s", self.storage(), "-T", "none", "-t", "86400",
            "-p", "thread_pools=1", "-p", "thread_pool_min=100", "-p", "thread_pool_max=2000",
            "-p", "timeout_idle=300",
        ]


class Squid(Proxy):
    name = "squid"
    http2 = False
    redirects = False
    tls = ("https_port 127.0.0.1:{tls_port} accel defaultsite={origin} no-vhost "
           "tls-cert={certificates}/chain.pem tls-key={certificates}/key.pem")

    def prepare(self):
        config = self.write("squid.conf", SQUID)
        os.makedirs(f"{self.dir}/cache")
        if os.geteuid() == 0:
            subprocess.run(["chown", "-R", "proxy:proxy", self.dir], check=True)
        subprocess.run(["squid", "-f", config, "-N", "-z"], check=True, capture_output=True)

    def command(self):
        # -N has one process, but no rock cache; without it a master watches the others.
        return ["squid", "-f", f"{self.dir}/squid.conf", "--foreground", "-n", f"bench{self.port}"]


class TrafficServer(Proxy):
    name = "trafficserver"
    tls = " {tls_port}:ssl:ip-in=127.0.0.1"

    def prepare(self):
        shutil.copytree("/etc/trafficserver", f"{self.dir}/etc")
        for name in ["data", "run", "log", "cache", "var"]:
            os.makedirs(f"{self.dir}/{name}")
        self.write("runroot.yaml", RUNROOT)
        lines = [f"CONFIG {key} {value}\n" for key, value in RECORDS.items()]
        self.write("etc/records.config", "".join(lines))
        plugins = SLICE_PLUGINS if self.settings.ranges and os.path.exists(SLICE_PLUGIN) else ""
        moved = self.redirect_lines(f"redirect http://127.0.0.1:{self.port}{{0}} {{1}}".format)
        self.write("etc/remap.config", moved + "\nmap / http://{origin}/" + plugins + "\n")
        self.write("etc/storage.config", "{dir}/cache {disk_mib}M\n")
        self.write("etc/plugin.config", "")
        if self.settings.tls:
            self.write("etc/ssl_multicert.config",
                       "dest_ip=* ssl_cert_name=chain.pem ssl_key_name=key.pem\n")

    def command(self):
        return ["env", f"TS_RUNROOT={self.dir}/runroot.yaml", "traffic_server"]


class BareHyper(Proxy):
    """No cache: one answer to all, on what damelo speaks HTTP with. A floor, not a rival."""

    name = "bare hyper"
    head = ""  # Header lines of the answer.

    @property
    def program(self):
        return os.path.join(os.path.dirname(self.settings.program), "examples", "bare_hyper")

    def prepare(self):
        with open(f"{self.dir}/head", "w") as file:
            file.write(self.head)

    def command(self):
        length = str(self.settings.object_bytes)
        return [self.program, f"127.0.0.1:{self.port}", f"{self.dir}/head", length]


ALL = [Damelo, Nginx, Varnish, Squid, TrafficServer]
VERSIONS = {
    "nginx": ["nginx", "-v"], "varnish": ["varnishd", "-V"], "squid": ["squid", "-v"],
    "trafficserver": ["traffic_server", "-V"], "wrk": ["wrk", "-v"],
}


def version(name):
    """The first line in which a program says its version, or None if it is not there."""
    if not shutil.which(VERSIONS[name][0]):
        return None
    out = subprocess.run(VERSIONS[name], capture_output=True, text=True)
    lines = [line for line in (out.stdout + out.stderr).splitlines() if any(c.isdigit() for c in line)]
    return lines[0].strip() if lines else "unknown"
