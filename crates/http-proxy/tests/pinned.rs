//! Logins that count for a connection (NTLM, Negotiate): whose requests go on it.

mod support;

use std::io::{BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use damelo_http_proxy::{Control, ForwardConfig, ProxyConfig, Settings, run_forward};
use support::{Home, Message, Origin, PATIENCE, Proxy, eventually, read_message, reply};

/// An origin that knows users by their connection: `Authorization: NTLM hello` is answered by a
/// challenge, `NTLM NAME` after that is a login, `Negotiate NAME` is one at once, and what follows
/// is that user's. `X-Close` has a connection end that was used before.
struct ByConnection {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl ByConnection {
    fn start() -> ByConnection {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || serve(stream));
            }
        });
        ByConnection { address, connections }
    }
}

fn serve(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().expect("clone"));
    let (mut user, mut challenged) = (None, false);
    let mut served = 0;
    while let Some(request) = read_message(&mut reader, false) {
        if request.has("x-close") && served > 0 {
            return;
        }
        served += 1;
        let shown = request.header("authorization");
        if let Some(name) = shown.strip_prefix("Negotiate ") {
            user = Some(name.to_owned());
        }
        match shown.strip_prefix("NTLM ") {
            Some("hello") => (user, challenged) = (None, true),
            Some(name) if challenged => user = Some(name.to_owned()),
            _ => {}
        }
        let (status, header, body) = match &user {
            // As many servers do, it leaves unsaid that this is for one user.
            Some(user) => ("200 OK", "Cache-Control: max-age=60", format!("mail of {user}")),
            None if challenged => {
                ("401 Unauthorized", "WWW-Authenticate: NTLM challenge", "more".to_owned())
            }
            None => ("401 Unauthorized", "WWW-Authenticate: NTLM", "who?".to_owned()),
        };
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {status}\r\n{header}\r\nContent-Length: {length}\r\n\r\n{body}");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A client that keeps its connection to the proxy.
struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    target: String,
}

impl Client {
    fn of(proxy: SocketAddr, target: &str) -> Client {
        let stream = TcpStream::connect(proxy).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        let reader = BufReader::new(stream.try_clone().expect("clone"));
        Client { stream, reader, target: target.to_owned() }
    }

    fn ask(&mut self, headers: &str) -> Message {
        let head = format!("GET {} HTTP/1.1\r\nHost: a\r\n{headers}\r\n", self.target);
        self.stream.write_all(head.as_bytes()).expect("write");
        read_message(&mut self.reader, false).expect("an answer")
    }

    /// Logs in by two requests; what the second brings.
    fn log_in(&mut self, name: &str, more: &str) -> Message {
        let challenge = self.ask(&format!("Authorization: NTLM hello\r\n{more}"));
        assert_eq!(challenge.header("www-authenticate"), "NTLM challenge", "{challenge:?}");
        self.ask(&format!("Authorization: NTLM {name}\r\n{more}"))
    }
}

/// An origin that knows users by their connections, and a proxy before it.
fn proxied() -> (ByConnection, Proxy) {
    let (origin, unused) = (ByConnection::start(), Origin::start(|_| reply(200, "", "")));
    let proxy = Proxy::start_with(&unused, |config| {
        config.to = damelo_http_proxy::OriginTarget::Url(format!("http://{}", origin.address));
        config.workers = 1;
    });
    (origin, proxy)
}

#[test]
fn a_login_of_a_connection_is_its_clients_alone() {
    let (_origin, proxy) = proxied();
    let mut ann = Client::of(proxy.info.address, "/mail");
    let first = ann.ask("");
    assert_eq!(first.status(), 401);
    assert_eq!(first.header("proxy-support"), "Session-Based-Authentication");
    assert_eq!(ann.log_in("ann", "").text(), "mail of ann");
    for _ in 0..3 {
        let mut other = Client::of(proxy.info.address, "/mail");
        let answer = other.ask("");
        assert_eq!((answer.status(), answer.text()), (401, "who?".to_owned()));
        let again = ann.ask("");
        assert_eq!(again.text(), "mail of ann", "without credentials, on her connection");
        assert!(again.cache().contains("connection-auth"), "{again:?}");
    }
    let mut bob = Client::of(proxy.info.address, "/mail");
    assert_eq!(bob.log_in("bob", "").text(), "mail of bob");
    assert_eq!(ann.ask("").text(), "mail of ann");
    // Nothing of it was kept for anybody.
    drop((ann, bob));
    assert_eq!(Client::of(proxy.info.address, "/mail").ask("").status(), 401);
}

/// A reload that concerns no connection to an origin.
fn rename(control: &Control, mut config: ProxyConfig, mut ask: impl FnMut() -> Message) {
    config.name = "other".to_owned();
    control.reload(config).expect("good settings");
    eventually("the worker sees the new settings", || ask().cache().contains("other;"));
}

#[test]
fn a_reload_leaves_a_login_of_a_connection() {
    let (origin, proxy) = proxied();
    let mut ann = Client::of(proxy.info.address, "/mail");
    assert_eq!(ann.log_in("ann", "").text(), "mail of ann");
    let settings = Settings::parse("").expect("settings").proxy;
    rename(&proxy.info.control, settings, || ann.ask(""));
    assert_eq!(ann.ask("").text(), "mail of ann");
    assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn a_login_that_is_sent_again_is_its_clients_alone_too() {
    let (origin, proxy) = proxied();
    let mut ann = Client::of(proxy.info.address, "/mail");
    assert_eq!(ann.ask("Authorization: Negotiate ann\r\n").text(), "mail of ann");
    let again = ann.ask("Authorization: Negotiate ann\r\nX-Close: 1\r\n");
    assert_eq!(again.text(), "mail of ann");
    assert_eq!(origin.connections.load(Ordering::SeqCst), 2, "hers had closed");
    assert_eq!(Client::of(proxy.info.address, "/mail").ask("").status(), 401);
    assert_eq!(ann.ask("").text(), "mail of ann");
}

#[test]
fn a_login_through_a_forward_proxy() {
    let (origin, elsewhere) = (ByConnection::start(), Origin::start(|_| reply(200, "", "x")));
    let home = Home::new();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (ready, info) = std::sync::mpsc::channel();
    let store = home.open();
    let thread = std::thread::spawn(move || {
        let mut proxy = ProxyConfig::for_forward(SocketAddr::from(([127, 0, 0, 1], 0)));
        proxy.workers = 1;
        let ready = |info: damelo_http_proxy::RunningInfo| ready.send(info).expect("test lives");
        run_forward(proxy, ForwardConfig::default(), store, ready, stopped).expect("proxy runs");
    });
    let info = info.recv_timeout(PATIENCE).expect("proxy starts");
    let address = info.address;
    let mail = format!("http://{}/mail", origin.address);
    let mut ann = Client::of(address, &mail);
    assert_eq!(ann.log_in("ann", "").text(), "mail of ann");
    assert_eq!(Client::of(address, &mail).ask("").status(), 401);
    ann.target = format!("http://{}/", elsewhere.address);
    assert_eq!(ann.ask("").text(), "x", "hers to one origin is not used for another");
    ann.target = mail;
    rename(&info.control, ProxyConfig::for_forward(address), || ann.ask(""));
    assert_eq!(ann.ask("").text(), "mail of ann");
    assert_eq!(origin.connections.load(Ordering::SeqCst), 2);
    drop(ann);
    drop(stop);
    thread.join().expect("the proxy ends");
}

#[test]
fn nobody_has_a_connection_of_their_own_through_another_proxy() {
    let (_origin, proxy) = proxied();
    for sign in ["Via: 1.1 front\r\n", "X-Forwarded-For: 192.0.2.1\r\n", "Forwarded: for=_a\r\n"] {
        // It may send the next user's request on the same connection.
        let mut front = Client::of(proxy.info.address, "/mail");
        let last = front.log_in("ann", sign);
        assert_eq!(last.status(), 401, "{sign}: {last:?}");
        assert_eq!(front.ask(sign).status(), 401);
        assert!(!last.has("proxy-support"), "{last:?}");
    }
}
