//! Origin, proxy and client for scripts over real sockets on 127.0.0.1.
//!
//! The origin answers by a closure and records what it was asked; the proxy runs on a temporary
//! store with a clock the script moves; the client reads one answer a connection and says whether
//! its body was complete. Threads: each of the three has its own; dropping a proxy drains it.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod frames;
pub(crate) mod wire;

use std::fmt::Write as _;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use damelo::{ByteSize, Clock, Config, Store, SystemClock};
use damelo_http_proxy::{OriginTarget, ProxyConfig, RunningInfo, run};

/// Longest wait of a client for anything: a hang fails the test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A message head and body as they came over the wire.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    /// Request or status line.
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// False: the connection ended within the body.
    pub(crate) complete: bool,
}

impl Message {
    /// Values of a header joined by a comma; empty if there is none.
    pub(crate) fn header(&self, name: &str) -> String {
        let lines = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        lines.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
    }

    pub(crate) fn method(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }

    pub(crate) fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn status(&self) -> u16 {
        self.line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn cache(&self) -> String {
        self.header("cache-status")
    }

    pub(crate) fn age(&self) -> Option<u64> {
        self.header("age").parse().ok()
    }
}

/// Reads a message; `no_body` for answers to HEAD.
pub(crate) fn read_message(stream: &mut impl std::io::BufRead, no_body: bool) -> Option<Message> {
    let mut message = Message { line: read_line(stream)?, ..Message::default() };
    loop {
        let line = read_line(stream)?;
        let Some((name, value)) = line.split_once(':') else { break };
        message.headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let is_response = message.line.starts_with("HTTP/");
    let bodyless = no_body || (is_response && matches!(message.status(), 101 | 204 | 304));
    message.complete = true;
    if bodyless {
        return Some(message);
    }
    if message.header("transfer-encoding").eq_ignore_ascii_case("chunked") {
        message.complete = read_chunks(stream, &mut message.body).is_some();
    } else if let Ok(length) = message.header("content-length").parse::<u64>() {
        let _ = stream.take(length).read_to_end(&mut message.body);
        message.complete = message.body.len() as u64 == length;
    } else if is_response {
        message.complete = stream.read_to_end(&mut message.body).is_ok();
    }
    Some(message)
}

fn read_line(stream: &mut impl std::io::BufRead) -> Option<String> {
    let mut line = Vec::new();
    let length = stream.read_until(b'\n', &mut line).ok()?;
    (length > 0).then(|| String::from_utf8_lossy(&line).trim_end().to_owned())
}

fn read_chunks(stream: &mut impl std::io::BufRead, body: &mut Vec<u8>) -> Option<()> {
    loop {
        let length = u64::from_str_radix(&read_line(stream)?, 16).ok()?;
        let before = body.len() as u64;
        stream.take(length).read_to_end(body).ok()?;
        if body.len() as u64 - before != length {
            return None;
        }
        read_line(stream)?;
        if length == 0 {
            return Some(());
        }
    }
}

/// What the origin sends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) chunked: bool,
    /// Sent after a chunked body, as `name: value`.
    pub(crate) trailer: Option<&'static str>,
    /// Close after this many bytes of the body.
    pub(crate) break_after: Option<usize>,
    pub(crate) delay: Duration,
    /// Pause after each 64 KiB of the body.
    pub(crate) pace: Duration,
    /// Wait for the gate with the body from the first multiple of 64 KiB at or after this many
    /// bytes.
    pub(crate) hold: Option<(usize, Gate)>,
    /// Sent before the head, which comes when the gate is open.
    pub(crate) interim: Option<(&'static str, Gate)>,
}

/// An answer with these headers, one `name: value` a line.
pub(crate) fn reply(status: u16, headers: &str, body: impl Into<Vec<u8>>) -> Reply {
    let parse = |line: &str| {
        let (name, value) = line.split_once(':').expect("name: value");
        (name.trim().to_owned(), value.trim().to_owned())
    };
    let headers = headers.lines().filter(|l| !l.trim().is_empty()).map(parse).collect();
    Reply { status, headers, body: body.into(), ..Reply::default() }
}

/// A scripted origin.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Message>>>,
    connections: Arc<AtomicUsize>,
}

impl Origin {
    pub(crate) fn start(answer: impl Fn(&Message) -> Reply + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let (answer, log, count) = (Arc::new(answer), asked.clone(), connections.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                let (answer, log) = (answer.clone(), log.clone());
                std::thread::spawn(move || serve_origin(stream, &*answer, &log));
            }
        });
        Origin { address, asked, connections }
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Requests so far.
    pub(crate) fn asked(&self) -> Vec<Message> {
        self.asked.lock().expect("lock").clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.asked.lock().expect("lock").len()
    }

    pub(crate) fn last(&self) -> Message {
        self.asked().last().cloned().expect("a request")
    }
}

fn serve_origin(
    stream: TcpStream,
    answer: &(dyn Fn(&Message) -> Reply + Send + Sync),
    log: &Mutex<Vec<Message>>,
) {
    let mut reader = BufReader::new(stream.try_clone().expect("clone"));
    let mut stream = stream;
    while let Some(request) = read_message(&mut reader, false) {
        log.lock().expect("lock").push(request.clone());
        let reply = answer(&request);
        std::thread::sleep(reply.delay);
        if write_reply(&mut stream, &request, &reply).is_none() {
            return;
        }
    }
}

/// None: the connection is to be closed.
fn write_reply(stream: &mut TcpStream, request: &Message, reply: &Reply) -> Option<()> {
    if let Some((interim, gate)) = &reply.interim {
        stream.write_all(interim.as_bytes()).ok()?;
        gate.wait();
    }
    let mut head = format!("HTTP/1.1 {} X\r\n", reply.status);
    for (name, value) in &reply.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    let bodyless = matches!(reply.status, 204 | 304);
    if reply.chunked {
        head.push_str("Transfer-Encoding: chunked\r\n");
    } else if !bodyless {
        let _ = write!(head, "Content-Length: {}\r\n", reply.body.len());
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    if bodyless || request.method() == "HEAD" {
        return Some(());
    }
    let end = reply.break_after.unwrap_or(reply.body.len());
    for (index, piece) in reply.body[..end].chunks(65536).enumerate() {
        if let Some((_, gate)) = reply.hold.as_ref().filter(|(from, _)| index * 65536 >= *from) {
            gate.wait();
        }
        if reply.chunked {
            stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).ok()?;
        }
        stream.write_all(piece).ok()?;
        if reply.chunked {
            stream.write_all(b"\r\n").ok()?;
        }
        std::thread::sleep(reply.pace);
    }
    reply.break_after.is_none().then_some(())?;
    if reply.chunked {
        let trailer = reply.trailer.map_or(String::new(), |line| format!("{line}\r\n"));
        stream.write_all(format!("0\r\n{trailer}\r\n").as_bytes()).ok()?;
    }
    Some(())
}

/// Time of day that stands still until a test moves it: no second passes by itself on a slow
/// machine.
#[derive(Debug)]
pub(crate) struct TestClock {
    system: SystemClock,
    unix_ms: AtomicU64,
}

impl TestClock {
    pub(crate) fn at(unix_s: u64) -> TestClock {
        TestClock { system: SystemClock::new(), unix_ms: AtomicU64::new(unix_s * 1000) }
    }

    pub(crate) fn pass_seconds(&self, seconds: u64) {
        self.pass_millis(seconds * 1000);
    }

    pub(crate) fn pass_millis(&self, millis: u64) {
        self.unix_ms.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn unix_seconds(&self) -> u64 {
        self.unix_millis() / 1000
    }

    fn unix_millis(&self) -> u64 {
        self.unix_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic()
    }
}

/// Where a store lives while proxies come and go.
pub(crate) struct Home {
    directory: tempfile::TempDir,
    pub(crate) memory: ByteSize,
    /// Longest object of the store, if not the default.
    pub(crate) object_bytes_max: Option<ByteSize>,
}

impl Home {
    pub(crate) fn new() -> Home {
        let directory = tempfile::tempdir().expect("tempdir");
        Home { directory, memory: ByteSize::new(8 << 20), object_bytes_max: None }
    }

    pub(crate) fn open(&self) -> Store {
        let path = self.directory.path().join("store");
        let mut config = Config::new(path, ByteSize::new(64 << 20));
        config.memory = self.memory;
        config.object_bytes_max = self.object_bytes_max.unwrap_or(config.object_bytes_max);
        let store = Store::open(config).expect("store");
        store.wait_recovered();
        store
    }
}

/// A running proxy.
pub(crate) struct Proxy {
    pub(crate) info: RunningInfo,
    pub(crate) store: Store,
    clock: Arc<TestClock>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    home: Option<Home>,
}

impl Proxy {
    pub(crate) fn start(origin: &Origin) -> Proxy {
        Proxy::start_with(origin, |_| {})
    }

    pub(crate) fn start_with(origin: &Origin, tweak: impl FnOnce(&mut ProxyConfig)) -> Proxy {
        let home = Home::new();
        let to = OriginTarget::Url(format!("http://{}", origin.address));
        let mut proxy = Proxy::start_in(&home, to, tweak);
        proxy.home = Some(home);
        proxy
    }

    pub(crate) fn start_in(
        home: &Home,
        to: OriginTarget,
        tweak: impl FnOnce(&mut ProxyConfig),
    ) -> Proxy {
        Proxy::start_on(home.open(), to, tweak)
    }

    pub(crate) fn start_to(
        home: &Home,
        url: String,
        tweak: impl FnOnce(&mut ProxyConfig),
    ) -> Proxy {
        Proxy::start_in(home, OriginTarget::Url(url), tweak)
    }

    pub(crate) fn start_on(
        store: Store,
        to: OriginTarget,
        tweak: impl FnOnce(&mut ProxyConfig),
    ) -> Proxy {
        let clock = Arc::new(TestClock::at(SystemClock::new().unix_seconds()));
        let mut config = ProxyConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)), to);
        config.clock = clock.clone();
        config.workers = 2;
        config.admin.from = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.timeouts.drain = Duration::from_secs(2);
        tweak(&mut config);
        let handle = store.clone();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, info) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let ready = |info| ready.send(info).expect("test lives");
            run(config, handle, ready, stopped).expect("proxy runs");
        });
        let info = info.recv_timeout(PATIENCE).expect("proxy starts");
        Proxy { info, store, clock, stop: Some(stop), thread: Some(thread), home: None }
    }

    /// Moves the proxy's clock.
    pub(crate) fn pass_seconds(&self, seconds: u64) {
        self.clock.pass_seconds(seconds);
    }

    pub(crate) fn get(&self, path: &str) -> Message {
        self.ask("GET", path, "")
    }

    pub(crate) fn get_with(&self, path: &str, headers: &str) -> Message {
        self.ask("GET", path, headers)
    }

    /// Sends a request with these headers, one `name: value` a line.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str) -> Message {
        let answer = ask_at(self.info.address, method, path, headers, b"");
        assert!(answer.cache().contains("damelo"), "Cache-Status on every answer: {answer:?}");
        assert!(answer.header("via").contains("damelo"), "Via on every answer: {answer:?}");
        answer
    }

    pub(crate) fn ask_with_body(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Message {
        ask_at(self.info.address, method, path, headers, body)
    }

    /// The value of a counter, as the admin listener tells it.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let admin = self.info.admin.expect("an admin listener");
        let text = ask_at(admin, "GET", "/metrics", "", b"").text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the counter");
        line.trim().parse().expect("a number")
    }

    /// Stops, and closes the store if this was the last handle.
    pub(crate) fn stop(mut self) {
        self.end();
        self.store.clone().close().expect("store closes");
    }

    fn end(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the proxy panicked");
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end();
    }
}

/// What clients ask for that say no `Host`: the same at every start of a proxy, unlike its port.
pub(crate) const HOST: &str = "a";

/// Opens a connection and writes a request to it.
pub(crate) fn send_to(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream.set_write_timeout(Some(PATIENCE)).expect("timeout");
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.to_ascii_lowercase().contains("host:") {
        let _ = write!(head, "Host: {HOST}\r\n");
    }
    for line in headers.lines().filter(|line| !line.trim().is_empty()) {
        let _ = write!(head, "{}\r\n", line.trim());
    }
    if !body.is_empty() {
        let _ = write!(head, "Content-Length: {}\r\n", body.len());
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).expect("write");
    stream.write_all(body).expect("write");
    BufReader::new(stream)
}

/// Reads a head, and as much of the body as is wanted.
pub(crate) fn read_some(stream: &mut BufReader<TcpStream>, bytes: usize) -> (Message, Vec<u8>) {
    let mut head = Message { line: read_line(stream).expect("a line"), ..Message::default() };
    while let Some((name, value)) = read_line(stream).expect("a line").split_once(':') {
        head.headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut body = vec![0; bytes];
    stream.read_exact(&mut body).expect("so many bytes");
    (head, body)
}

/// One request on its own connection.
pub(crate) fn ask_at(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Message {
    let mut stream = send_to(address, method, path, headers, body);
    read_message(&mut stream, method == "HEAD").expect("an answer")
}

/// An HTTP date so many seconds from now.
pub(crate) fn date(offset_s: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let then = now.wrapping_add_signed(offset_s);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(then))
}

/// Waits until something becomes true.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Holds whoever comes to it until it is opened, so that a script need not guess how long things
/// take.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn wait(&self) {
        let opened = self.0.0.lock().expect("lock");
        let waited = self.0.1.wait_timeout_while(opened, PATIENCE, |opened| !*opened);
        assert!(!waited.expect("lock").1.timed_out(), "nobody opened the gate");
    }

    pub(crate) fn open(&self) {
        *self.0.0.lock().expect("lock") = true;
        self.0.1.notify_all();
    }
}

/// An address that stays taken and where nobody listens: connections to it are refused.
pub(crate) struct Nobody(tokio::net::TcpSocket);

impl Nobody {
    pub(crate) fn new() -> Nobody {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("bind");
        Nobody(socket)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().expect("address"))
    }
}

/// Bytes that differ everywhere, the same for the same seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}
