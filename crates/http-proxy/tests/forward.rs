//! The forward proxy: any origin through the cache, tunnels, rules, passwords.

mod support;

use std::io::{BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use damelo::{ByteSize, Store};
use damelo_http_proxy::{
    ForwardConfig, ListenAddress, LogFormat, LogTarget, ProxyConfig, ProxyError, RunningInfo,
    Settings, ask_admin, hash_credentials, run_forward,
};
use support::frames::{DATA, END_HEADERS, HEADERS, RST_STREAM, frame, http2_raw, next_frame};
use support::wire::{Authority, Http2Origin, raw_answer};
use support::{Gate, Message, Origin, eventually, read_message, reply};

struct Forward {
    info: RunningInfo,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _home: tempfile::TempDir,
}

fn store(home: &tempfile::TempDir) -> Store {
    let mut config = damelo::Config::new(home.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    Store::open(config).expect("store")
}

/// What a forward proxy is started with.
struct Config {
    proxy: ProxyConfig,
    forward: ForwardConfig,
}

impl Config {
    /// It is refused.
    fn refused(self) -> ProxyError {
        let home = tempfile::tempdir().expect("tempdir");
        let never = std::future::pending::<()>();
        run_forward(self.proxy, self.forward, store(&home), |_| {}, never).expect_err("refused")
    }
}

fn local() -> Config {
    let mut proxy = ProxyConfig::for_forward(SocketAddr::from(([127, 0, 0, 1], 0)));
    proxy.workers = 1;
    proxy.timeouts.drain = Duration::from_secs(2);
    Config { proxy, forward: ForwardConfig::default() }
}

impl Forward {
    fn start(tweak: impl FnOnce(&mut Config)) -> Forward {
        let home = tempfile::tempdir().expect("tempdir");
        let store = store(&home);
        let mut config = local();
        // A listener where the script says who the client is.
        let listener = "proxy+tcp:127.0.0.1:0".parse().expect("a listener");
        config.proxy.listen = vec![listener];
        config.proxy.proxy_protocol.networks = vec!["127.0.0.1/32".parse().expect("network")];
        tweak(&mut config);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, info) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let ready = |info| ready.send(info).expect("test lives");
            run_forward(config.proxy, config.forward, store, ready, stopped).expect("proxy runs");
        });
        let info = info.recv_timeout(support::PATIENCE).expect("proxy starts");
        Forward { info, stop: Some(stop), thread: Some(thread), _home: home }
    }

    fn get(&self, url: &str) -> Message {
        self.ask("GET", url, "")
    }

    fn ask(&self, method: &str, target: &str, headers: &str) -> Message {
        let request = format!("{method} {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        raw_answer(self.info.address, request.as_bytes())
    }

    /// As a client with that address.
    fn ask_as(&self, client: &str, method: &str, target: &str) -> Message {
        let request = format!(
            "PROXY TCP4 {client} 192.0.2.1 1000 80\r\n{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n"
        );
        match self.info.listeners[0].address {
            ListenAddress::Tcp(address) => raw_answer(address, request.as_bytes()),
            ListenAddress::Unix(_) => panic!("not TCP"),
        }
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

fn named(name: &'static str) -> Origin {
    Origin::start(move |_| reply(200, "Cache-Control: max-age=60", name))
}

/// An address of this host that is not loopback, if it has one.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Sends nothing: only asks for the way there.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

#[test]
fn any_origin_is_reached_and_cached_by_its_own_name() {
    let (first, second, proxy) = (named("first"), named("second"), Forward::start(|_| {}));
    for _ in 0..3 {
        assert_eq!(proxy.get(&format!("http://{}/", first.address)).text(), "first");
        assert_eq!(proxy.get(&format!("http://{}/", second.address)).text(), "second");
    }
    assert_eq!((first.count(), second.count()), (1, 1));
    let asked = first.last();
    assert_eq!(asked.header("host"), first.address.to_string(), "not what Host said");
    assert_eq!(asked.line, "GET / HTTP/1.1");
    assert!(!asked.has("x-forwarded-for") && asked.header("via").contains("damelo"));
    // Another name of the same origin is another origin.
    let port = first.address.port();
    assert_eq!(proxy.get(&format!("http://LOCALHOST:{port}")).text(), "first");
    assert!(proxy.get(&format!("http://localhost:{port}/")).cache().contains("hit"));
    assert_eq!(first.count(), 2);
}

#[test]
fn a_target_without_a_path_has_a_slash_for_one() {
    let (origin, proxy) = (named("x"), Forward::start(|_| {}));
    let url = format!("http://{}", origin.address);
    for (target, line) in [("?a=/b", "GET /?a=/b HTTP/1.1"), ("?", "GET /? HTTP/1.1")] {
        assert_eq!(proxy.get(&format!("{url}{target}")).status(), 200);
        assert_eq!(origin.last().line, line);
        // By either spelling it is the same.
        assert!(proxy.get(&format!("{url}/{target}")).cache().contains("hit"), "{target}");
    }
    let proxy = Forward::start(|config| {
        let rules = "[[rule]]\npath = \"/\"\nquery = \"a=**\"\npass = true\n";
        config.proxy.ruleset = Settings::parse(rules).expect("rules").proxy.ruleset;
    });
    assert!(proxy.get(&format!("{url}?a=b")).cache().contains("detail=rule"));
}

#[test]
fn requests_with_bodies_pass_and_connections_are_used_again() {
    let origin = Origin::start(|request| reply(200, "", request.body.clone()));
    let proxy = Forward::start(|_| {});
    for _ in 0..3 {
        let request = format!(
            "POST http://{}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
            origin.address
        );
        assert_eq!(raw_answer(proxy.info.address, request.as_bytes()).text(), "hello");
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn what_is_no_request_for_a_forward_proxy() {
    let proxy = Forward::start(|_| {});
    for (method, target, status, detail) in [
        ("GET", "/", 400, "bad-target"),
        ("GET", "https://127.0.0.1/", 501, "https-target"),
        ("GET", "ftp://127.0.0.1/", 400, "bad-target"),
        ("GET", "http://127.0.0.1:99999/", 400, "bad-host"),
        ("GET", "http://127.0.0.1:65616/", 400, "bad-host"),
        ("GET", "http://[::1]:65616/", 400, "bad-host"),
        ("GET", "http://127.0.0.1:0/", 400, "bad-host"),
        ("CONNECT", "127.0.0.1:0", 400, "bad-host"),
        ("CONNECT", "127.0.0.1:65979", 400, "bad-host"),
        ("GET", "http://ann:secret@127.0.0.1/", 400, "bad-target"),
        ("CONNECT", "127.0.0.1", 400, "bad-target"),
        ("GET", "http://nobody.invalid/", 502, "unresolved"),
        ("CONNECT", "nobody.invalid:443", 502, "unresolved"),
    ] {
        let answer = proxy.ask(method, target, "");
        assert_eq!(answer.status(), status, "{method} {target}: {answer:?}");
        assert!(answer.cache().contains(&format!("detail={detail}")), "{target}: {answer:?}");
        if status == 502 {
            let text = "the name nobody.invalid could not be resolved";
            assert!(answer.text().contains(text), "{answer:?}");
        }
    }
}

#[test]
fn connect_makes_a_tunnel() {
    let (authority, proxy) = (Authority::new(), Forward::start(|_| {}));
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("read");
        got.make_ascii_uppercase();
        stream.write_all(&got).expect("write");
    });
    let mut stream = TcpStream::connect(proxy.info.address).expect("connect");
    stream.set_read_timeout(Some(support::PATIENCE)).expect("timeout");
    let head = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("write");
    let mut reader = BufReader::new(stream.try_clone().expect("clone"));
    let answer = read_message(&mut reader, true).expect("an answer");
    assert_eq!(answer.status(), 200);
    assert!(!answer.has("content-length") && !answer.has("transfer-encoding"), "{answer:?}");
    stream.write_all(b"any bytes").expect("write");
    stream.shutdown(std::net::Shutdown::Write).expect("shutdown");
    let mut back = String::new();
    reader.read_to_string(&mut back).expect("read");
    assert_eq!(back, "ANY BYTES");

    // TLS and HTTP/2 right through.
    let origin = Http2Origin::start(Some((&authority, "localhost")));
    let answer = support::wire::block_on(async {
        let target = format!("localhost:{}", origin.address.port());
        let mut tcp = tokio::net::TcpStream::connect(proxy.info.address).await.expect("connect");
        support::wire::tunnel_through(&mut tcp, &target).await;
        support::wire::get_tls_on(&authority, tcp, "localhost", &[b"h2"], "/x").await
    });
    assert_eq!(answer.expect("TLS").body, "https://localhost/x false");
}

/// The address of an origin that answers the byte that comes through a tunnel with so many, and
/// then, when the gate opens, breaks the tunnel off or ends it.
fn end_of_tunnel(answer_bytes: usize, breaks_off: bool, gate: Gate) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address").to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        stream.peek(&mut [0]).expect("a byte");
        if answer_bytes > 0 {
            stream.write_all(&vec![7; answer_bytes]).expect("write");
        }
        gate.wait();
        // A socket that is closed with bytes unread resets its connection.
        if !breaks_off {
            stream.read_exact(&mut [0]).expect("a byte");
        }
    });
    address
}

/// The same of HTTP/1, where the connection is the tunnel.
#[test]
fn a_tunnel_that_the_origin_breaks_off_ends_in_a_reset() {
    for breaks_off in [true, false] {
        let gate = Gate::default();
        let address = end_of_tunnel(100_000, breaks_off, gate.clone());
        let proxy = Forward::start(|_| {});
        let mut stream = TcpStream::connect(proxy.info.address).expect("connect");
        stream.set_read_timeout(Some(support::PATIENCE)).expect("timeout");
        let head = format!("CONNECT {address} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("write");
        let mut reader = BufReader::new(stream.try_clone().expect("clone"));
        assert_eq!(read_message(&mut reader, true).expect("an answer").status(), 200);
        stream.write_all(b"x").expect("write");
        reader.read_exact(&mut [0; 100_000]).expect("what was sent before");
        gate.open();
        let end = reader.read_to_end(&mut Vec::new());
        let reset = Err(ErrorKind::ConnectionReset);
        assert_eq!(end.map_err(|error| error.kind()), if breaks_off { reset } else { Ok(0) });
    }
}

/// What its client has not taken yet arrives before the reset.
#[test]
fn a_tunnel_that_is_cut_for_silence_delivers_what_the_system_holds() {
    const LENGTH: usize = 400_000;
    const IDLE: Duration = Duration::from_secs(2);
    let proxy = Forward::start(|config| config.proxy.timeouts.tunnel_idle = IDLE);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address").to_string();
    let sending = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        stream.write_all(&vec![7; LENGTH]).expect("write");
        stream
    });
    let mut stream = support::wire::connect_with_little_room(proxy.info.address);
    let head = format!("CONNECT {address} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("write");
    let mut reader = BufReader::new(stream);
    assert_eq!(read_message(&mut reader, true).expect("an answer").status(), 200);
    let _origin = sending.join().expect("sent");
    std::thread::sleep(2 * IDLE);
    let mut got = Vec::new();
    let end = reader.read_to_end(&mut got);
    assert_eq!((got.len(), end.is_err()), (LENGTH, true), "{end:?}");
}

/// What the alerts compare: tunnels count among what is sent to origins, not only among failures.
#[test]
fn tunnels_count_as_requests_to_origins() {
    let proxy = Forward::start(|config| {
        config.proxy.admin.from = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    });
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let target = listener.local_addr().expect("address").to_string();
    let admin = proxy.info.admin.expect("an admin listener");
    let counted = || {
        let text = support::ask_at(admin, "GET", "/metrics", "", b"").text();
        ["forwarded", "origin_errors"].map(|name| {
            let name = format!("damelo_proxy_{name}_total");
            let lines = text.lines().filter(|line| line.starts_with(&name));
            let value = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
            lines.map(|line| value(line).expect("a number")).sum::<u64>()
        })
    };
    assert_eq!(proxy.ask("CONNECT", &target, "").status(), 200);
    assert_eq!(counted(), [1, 0]);
    drop(listener);
    assert_eq!(proxy.ask("CONNECT", &target, "").status(), 502);
    assert_eq!(counted(), [2, 1]);
}

/// RFC 9113 §8.5: a client of a protocol that does not say where it ends must not take a part for
/// the whole.
#[test]
fn a_tunnel_on_http2_that_the_origin_breaks_off_ends_in_a_reset() {
    for breaks_off in [true, false] {
        let gate = Gate::default();
        gate.open();
        let (proxy, address) = (Forward::start(|_| {}), end_of_tunnel(0, breaks_off, gate));
        let mut stream = http2_raw(proxy.info.address);
        let length = u8::try_from(address.len()).expect("a short address");
        // `:method CONNECT` and `:authority`, literal, named by the static table.
        let block = [b"\x02\x07CONNECT\x01", &[length][..], address.as_bytes()].concat();
        stream.write_all(&frame(HEADERS, END_HEADERS, 1, &block)).expect("write");
        stream.write_all(&frame(DATA, 0, 1, b"x")).expect("write");
        let frames = std::iter::from_fn(|| next_frame(&mut stream)).filter(|one| one.stream == 1);
        let last = frames.skip(1).find(|one| one.ends_stream() || one.kind == RST_STREAM);
        let last = last.expect("an end of the stream");
        assert_eq!(last.kind == RST_STREAM, breaks_off, "{}", last.kind);
    }
}

#[test]
fn what_follows_a_connect_that_opens_no_tunnel_is_no_request() {
    let (origin, proxy) = (named("x"), Forward::start(|_| {}));
    let address = origin.address;
    let follows = format!("GET http://{address}/ HTTP/1.1\r\nHost: {address}\r\n\r\n");
    for (target, fields, status) in [
        ("nobody.invalid:443", "", 502),
        ("169.254.169.254:80", "", 403),
        ("a.test", "", 400),
        (&*format!("http://{address}/"), "", 400),
        (&*address.to_string(), "Content-Length: 5\r\n", 400),
        (&*address.to_string(), "Transfer-Encoding: chunked\r\n", 400),
    ] {
        let mut stream = TcpStream::connect(proxy.info.address).expect("connect");
        stream.set_read_timeout(Some(support::PATIENCE)).expect("timeout");
        let head = format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n{fields}\r\n{follows}");
        stream.write_all(head.as_bytes()).expect("write");
        let mut answers = String::new();
        stream.read_to_string(&mut answers).expect("the end of the connection");
        assert!(answers.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {answers}");
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{target}: {answers}");
    }
    assert_eq!(origin.count(), 0);
}

/// Python's library asks for tunnels in HTTP/1.0.
#[test]
fn a_tunnel_that_is_refused_to_an_old_client_ends_in_no_reset() {
    let proxy = Forward::start(|_| {});
    let mut stream = TcpStream::connect(proxy.info.address).expect("connect");
    stream.set_read_timeout(Some(support::PATIENCE)).expect("timeout");
    let head = "CONNECT nobody.invalid:443 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an orderly end");
    assert!(answer.starts_with("HTTP/1.0 502 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[test]
fn clients_from_elsewhere_need_a_rule() {
    let origin = named("x");
    let url = format!("http://{}/", origin.address);
    let port = origin.address.port();
    let closed = Forward::start(|config| config.forward.to_loopback = true);
    assert_eq!(closed.ask_as("198.51.100.1", "GET", &url).status(), 403);
    assert_eq!(
        closed.ask_as("198.51.100.1", "CONNECT", &format!("127.0.0.1:{port}")).status(),
        403
    );
    assert_eq!(origin.connections(), 0, "nothing is dialled for the uninvited");

    let rules = [
        format!("deny port={port} method=DELETE"),
        "allow client=198.51.100.0/24 to=127.0.0.0/8".to_owned(),
    ];
    let open = Forward::start(|config| {
        config.forward.to_loopback = true;
        config.forward.rules = rules.iter().map(|rule| rule.parse().expect("a rule")).collect();
    });
    assert_eq!(open.ask_as("198.51.100.1", "GET", &url).status(), 200);
    assert_eq!(open.ask_as("198.51.100.1", "DELETE", &url).status(), 403);
    assert_eq!(open.ask_as("203.0.113.1", "GET", &url).status(), 403);
    // By name the rule about addresses is asked with the addresses.
    let by_name = format!("http://localhost:{port}/");
    assert_eq!(open.ask_as("198.51.100.1", "GET", &by_name).status(), 200);
    assert_eq!(open.ask_as("203.0.113.1", "GET", &by_name).status(), 403);
}

#[test]
fn our_own_loopback_is_not_for_others_even_from_the_cache() {
    let origin = named("secret");
    let port = origin.address.port();
    let proxy = Forward::start(|config| {
        config.forward.rules = vec!["allow client=198.51.100.0/24".parse().expect("a rule")];
    });
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{port}/");
        assert_eq!(proxy.get(&url).text(), "secret", "it is ours to see");
        assert!(proxy.get(&url).cache().contains("hit"));
        assert_eq!(proxy.ask_as("198.51.100.1", "GET", &url).status(), 403, "{url}");
        let target = format!("{host}:{port}");
        assert_eq!(proxy.ask_as("198.51.100.1", "CONNECT", &target).status(), 403, "{target}");
    }
}

#[test]
fn our_own_admin_listener_is_for_nobody() {
    let proxy = Forward::start(|config| {
        config.proxy.admin.from = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.forward.to_loopback = true;
        config.forward.rules = vec!["allow".parse().expect("a rule")];
    });
    let admin = proxy.info.admin.expect("an admin listener");
    let direct =
        raw_answer(admin, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(direct.status(), 200);
    for host in ["127.0.0.1", "localhost", "127.9.9.9", "[::ffff:127.0.0.1]", "2130706433"] {
        let target = format!("{host}:{}", admin.port());
        for (method, target) in [("GET", format!("http://{target}/healthz")), ("CONNECT", target)] {
            let answer = proxy.ask_as("198.51.100.1", method, &target);
            assert_eq!(answer.status(), 403, "{method} {target}: {answer:?}");
            assert_eq!(proxy.ask(method, &target, "").status(), 403, "{method} {target}");
        }
    }
    // Also what was found only when the name was looked up.
    let metrics =
        raw_answer(admin, b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").text();
    assert!(metrics.contains("\ndamelo_proxy_forward_denied_total 20\n"), "{metrics}");
}

#[test]
fn nothing_is_known_of_https_and_who_asks_is_told_why() {
    let proxy = Forward::start(|config| {
        config.proxy.admin.from = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    });
    let admin = proxy.info.admin.expect("an admin listener");
    let asked =
        |url: &str| ask_admin(admin, "/explain", None, Some(&format!("{{\"url\":\"{url}\"}}")));
    assert!(asked("http://a.test/").expect("an answer").contains("http://a.test/"));
    let refused = asked("https://a.test/").expect_err("refused").to_string();
    assert!(refused.contains("in tunnels"), "{refused}");
}

#[test]
fn clients_are_not_believed_who_they_are() {
    let mut config = local();
    config.proxy.forwarded.trust_client = true;
    let error = config.refused();
    assert!(matches!(error, ProxyError::TrustInForward), "{error}");
}

#[test]
fn metadata_addresses_are_never_dialled() {
    let proxy = Forward::start(|config| config.proxy.timeouts.connect = Duration::from_millis(300));
    for host in [
        "169.254.169.254",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[fd00:ec2::23]",
        "[fd20:ce::254]",
        "[64:ff9b:1::a9fe:a9fe]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "0.0.0.0",
        // As getaddrinfo reads numbers.
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
    ] {
        let answer = proxy.get(&format!("http://{host}/latest/meta-data/"));
        assert_eq!(answer.status(), 403, "{host}: {answer:?}");
        let answer = proxy.ask("CONNECT", &format!("{host}:80"), "");
        assert_eq!(answer.status(), 403, "{host}: {answer:?}");
    }
}

#[test]
fn cookies_are_for_who_asked() {
    let number = AtomicUsize::new(0);
    let origin = Origin::start(move |request| {
        let cookie = format!("Set-Cookie: session={}", number.fetch_add(1, Ordering::SeqCst));
        let said = match request.path() {
            "/guessed" => "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT",
            "/fresh" => "Cache-Control: max-age=60",
            _ => "Cache-Control: max-age=0\nETag: \"x\"",
        };
        let status = if request.has("if-none-match") { 304 } else { 200 };
        reply(status, &format!("{said}\n{cookie}"), "page")
    });
    let proxy = Forward::start(|_| {});
    let cookie = |path: &str| {
        let answer = proxy.get(&format!("http://{}{path}", origin.address));
        assert_eq!((answer.status(), answer.text()), (200, "page".to_owned()), "{answer:?}");
        answer.header("set-cookie")
    };
    // Nothing says that it is for all: each asks for its own.
    assert_eq!([cookie("/guessed"), cookie("/guessed")], ["session=0", "session=1"]);
    // The page is for all, and the cookie for who brought it.
    assert_eq!([cookie("/fresh"), cookie("/fresh")], ["session=2", ""]);
    // A 304 brings one, too.
    assert_eq!(
        [cookie("/old"), cookie("/old"), cookie("/old")],
        ["session=3", "session=4", "session=5"]
    );
    assert_eq!(origin.count(), 6);
    assert!(origin.last().has("if-none-match"));
}

/// The cookie, which is not stored, was the sign that the page is for one user.
#[test]
fn a_page_that_came_with_a_cookie_is_not_served_stale_to_another() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}/", listener.local_addr().expect("address"));
    // It answers once, and is gone.
    let origin = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let _ = read_message(&mut BufReader::new(&stream), false).expect("a request");
        let answer = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=0\r\nETag: \"a\"\r\n\
            Set-Cookie: session=1\r\nContent-Length: 8\r\n\r\nof alice";
        stream.write_all(answer).expect("write");
    });
    let proxy = Forward::start(|_| {});
    let answer = proxy.get(&url);
    assert!(answer.text() == "of alice" && answer.cache().contains("stored"), "{answer:?}");
    origin.join().expect("an origin");
    let answer = proxy.get(&url);
    assert_eq!(answer.status(), 502, "{answer:?}");
}

#[test]
fn passwords() {
    let origin = named("x");
    let url = format!("http://{}/", origin.address);
    let home = tempfile::tempdir().expect("tempdir");
    let users = home.path().join("users");
    std::fs::write(&users, hash_credentials("ann", "open sesame").expect("hash")).expect("write");
    let proxy = Forward::start(|config| config.forward.users = Some(users));
    // ann:open sesame, ann:wrong
    let (right, wrong) = ("YW5uOm9wZW4gc2VzYW1l", "YW5uOndyb25n");
    for headers in [
        String::new(),
        format!("Proxy-Authorization: Basic {wrong}\r\n"),
        format!("Proxy-Authorization: Bearer {right}\r\n"),
        format!("Authorization: Basic {right}\r\n"),
        format!("Proxy-Authorization: Basic {right}\r\nProxy-Authorization: Basic {right}\r\n"),
    ] {
        let answer = proxy.ask("GET", &url, &headers);
        assert_eq!(answer.status(), 407, "{headers}");
        assert!(answer.header("proxy-authenticate").starts_with("Basic realm="));
        let target = origin.address.to_string();
        assert_eq!(proxy.ask("CONNECT", &target, &headers).status(), 407);
    }
    assert_eq!(origin.count(), 0);
    let good = format!("Proxy-Authorization: Basic {right}\r\n");
    assert_eq!(proxy.ask("GET", &url, &good).status(), 200);
    assert!(!origin.last().has("proxy-authorization"), "not for the origin");
    assert!(proxy.ask("GET", &url, &good).cache().contains("hit"));
    let refused = format!("Proxy-Authorization: Basic {wrong}\r\n");
    assert_eq!(proxy.ask("GET", &url, &refused).status(), 407, "nor after a right one");
}

#[test]
fn the_access_log_names_users_tunnels_and_refusals() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        stream.write_all(b"any bytes").expect("write");
    });
    let home = tempfile::tempdir().expect("tempdir");
    let (users, log) = (home.path().join("users"), home.path().join("access.log"));
    std::fs::write(&users, hash_credentials("ann", "open sesame").expect("hash")).expect("write");
    let proxy = Forward::start(|config| {
        config.forward.users = Some(users);
        config.forward.rules = vec!["deny port=1".parse().expect("a rule")];
        config.proxy.log.to = LogTarget::File(log.clone());
        config.proxy.log.format = LogFormat::Squid;
    });
    let lines = || std::fs::read_to_string(&log).expect("a log");
    let (right, wrong) = ("YW5uOm9wZW4gc2VzYW1l", "YW5uOndyb25n");
    let credentials = |which| format!("Proxy-Authorization: Basic {which}\r\n");
    assert_eq!(proxy.ask("CONNECT", "127.0.0.1:2", &credentials(wrong)).status(), 407);
    assert_eq!(proxy.ask("CONNECT", "127.0.0.1:1", &credentials(right)).status(), 403);
    let unscreened = format!("{}Expect: what\r\n", credentials(wrong));
    assert_eq!(proxy.ask("GET", "http://127.0.0.1:2/", &unscreened).status(), 417);
    eventually("all are written", || lines().lines().count() == 3);
    for (target, told) in [
        ("http://127.0.0.1:2/ - HIER_", "/417"),
        ("127.0.0.1:2 - HIER_NONE/-", "TCP_DENIED/407"),
        ("127.0.0.1:1 ann HIER_NONE/-", "TCP_DENIED/403"),
    ] {
        let found = lines().lines().any(|line| line.contains(target) && line.contains(told));
        assert!(found, "{}", lines());
    }
    let mut stream = TcpStream::connect(proxy.info.address).expect("connect");
    stream.set_read_timeout(Some(support::PATIENCE)).expect("timeout");
    let head = format!("CONNECT {address} HTTP/1.1\r\nHost: x\r\n{}\r\n", credentials(right));
    stream.write_all(head.as_bytes()).expect("write");
    let mut reader = BufReader::new(stream);
    assert_eq!(read_message(&mut reader, true).expect("an answer").status(), 200);
    let mut received = [0; 9];
    reader.read_exact(&mut received).expect("read");
    drop(reader);
    eventually("the tunnel is written", || lines().lines().count() == 4);
    let told = format!(" TCP_TUNNEL/200 9 CONNECT {address} ann HIER_DIRECT/127.0.0.1 ");
    assert!(lines().contains(&told), "{}", lines());
}

/// A name without a check is anybody's claim.
#[test]
fn the_access_log_names_nobody_where_nobody_is_checked() {
    let home = tempfile::tempdir().expect("tempdir");
    let log = home.path().join("access.log");
    let proxy = Forward::start(|config| {
        config.proxy.log.to = LogTarget::File(log.clone());
        config.proxy.log.format = LogFormat::Squid;
    });
    let claim = "Proxy-Authorization: Basic YW5uOndyb25n\r\n";
    let origin = named("x");
    let url = format!("http://{}/", origin.address);
    assert_eq!(proxy.ask("GET", &url, claim).status(), 200);
    let lines = || std::fs::read_to_string(&log).expect("a log");
    eventually("it is written", || lines().lines().count() == 1);
    assert!(lines().contains(&format!(" GET {url} - HIER_DIRECT/")), "{}", lines());
}

#[test]
fn it_listens_on_loopback_only_unless_told_otherwise() {
    let mut config = local();
    config.proxy.from = "0.0.0.0:0".parse().expect("address");
    let error = config.refused();
    assert!(matches!(error, ProxyError::NotLoopback { .. }), "{error}");
    let mut config = local();
    config.proxy.listen = vec!["tcp:0.0.0.0:0".parse().expect("a listener")];
    let error = config.refused();
    assert!(matches!(error, ProxyError::NotLoopback { .. }), "{error}");

    let Some(own) = own_address() else { return };
    let proxy = Forward::start(|config| {
        config.forward.remote = true;
        config.proxy.from = SocketAddr::new(own, 0);
    });
    let origin = named("x");
    let answer = proxy.get(&format!("http://{}/", origin.address));
    assert_eq!(answer.status(), 403, "a client from elsewhere has no rule: {answer:?}");
}
