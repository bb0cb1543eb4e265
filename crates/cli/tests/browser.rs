//! A real browser as the client of the proxies: it loads pages through them, and the pages tell
//! what came.
//!
//! Chromium without a window, as `chromium-headless-shell` or `chromium` in the path, or what
//! `DAMELO_BROWSER` names. Where there is none the tests say so on standard error and pass. Each
//! run has a profile of its own, hence an empty cache, and a limit in time.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

#[path = "browser/origin.rs"]
mod origin;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rcgen::PublicKeyData as _;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tempfile::TempDir;

use origin::{Origin, SOUND_BYTES, STREAMED_BYTES};

/// Longest wait for a page: a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(60);
const NAMES: [&str; 3] = ["chromium-headless-shell", "chromium", "google-chrome"];
/// Without what a browser does on its own account.
const QUIET: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--mute-audio",
];

/// The browser to use; `None` after saying loudly that there is none.
fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("DAMELO_BROWSER").filter(|name| !name.is_empty()) {
        return Some(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|dir| NAMES.map(|name| dir.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        // Not by a macro: what those print of a test that passes is not shown.
        let _ = writeln!(
            std::io::stderr(),
            "\nSKIPPED: no browser. Install chromium-headless-shell, or name one in DAMELO_BROWSER.\n"
        );
    }
    found
}

fn home() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A browser that loads one page; ended on drop, with all its processes.
struct Run {
    child: Child,
    started: Instant,
    home: TempDir,
}

impl Run {
    fn start(program: &Path, args: &[&str], url: &str) -> Run {
        let home = home();
        let file = |name: &str| File::create(home.path().join(name)).unwrap();
        let profile = format!("--user-data-dir={}", home.path().join("profile").display());
        let mut command = Command::new(program);
        command.args(QUIET).arg(profile).args(args).arg(url).stdin(Stdio::null());
        command.stdout(file("out")).stderr(file("errors")).env("HOME", home.path());
        // A group of its own, so that its helpers can be ended with it.
        let child = command.process_group(0).spawn();
        let child = child.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Run { child, started: Instant::now(), home }
    }

    fn read(&self, name: &str) -> String {
        let bytes = std::fs::read(self.home.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until there is something.
    fn until<T>(&mut self, mut look: impl FnMut(&mut Child) -> Option<T>) -> T {
        loop {
            if let Some(found) = look(&mut self.child) {
                return found;
            }
            let errors = || self.read("errors");
            assert!(self.started.elapsed() < PATIENCE, "the browser took too long: {}", errors());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The document as it is when the page has loaded and its script has run.
    fn document(program: &Path, args: &[&str], url: &str) -> String {
        let args = [&["--virtual-time-budget=10000", "--dump-dom"], args].concat();
        let mut run = Run::start(program, &args, url);
        let ended = run.until(|child| child.try_wait().unwrap());
        assert!(ended.success(), "{ended}: {}", run.read("errors"));
        run.read("out")
    }

    /// What the probe page reports.
    fn report(program: &Path, args: &[&str], url: &str, origin: &Origin) -> Value {
        let mut run = Run::start(program, args, &format!("{url}/probe"));
        run.until(|_| origin.report())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // Its helpers end with it, but not at once, and would write into what is removed next.
        let group = i32::try_from(self.child.id()).unwrap();
        // SAFETY: no memory is passed; the group is that of a child that was not waited for, or
        // whose members are gone.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

/// A running proxy of either kind; killed on drop.
struct Proxy {
    child: Child,
    started: Value,
    _home: TempDir,
}

impl Proxy {
    fn start(kind: &str, args: &[&str]) -> Proxy {
        let home = home();
        let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
        command.args([kind, "--json", "--from", "127.0.0.1:0", "--cache", "c:128MiB"]);
        command.args(["--memory", "32MiB", "--workers", "1"]).args(args);
        command.current_dir(home.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Proxy { child, started: serde_json::from_str(&line).unwrap(), _home: home }
    }

    /// What it says of itself at start.
    fn says(&self, name: &str) -> &str {
        self.started[name].as_str().unwrap()
    }

    /// A counter of its metrics.
    fn counts(&self, name: &str) -> u64 {
        let address = self.says("metrics")["http://".len()..].trim_end_matches("/metrics");
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let name = format!("damelo_proxy_{name} ");
        page.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A certificate that nobody has signed: an option of the proxy, and one of the browser that makes
/// it trust this key. (With all errors ignored, the browser would store nothing.)
fn certificate(home: &TempDir) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (chain, key) = (home.path().join("chain.pem"), home.path().join("key.pem"));
    std::fs::write(&chain, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let public = made.signing_key.subject_public_key_info();
    let hash = BASE64_STANDARD.encode(digest(&SHA256, &public));
    let trusted = format!("--ignore-certificate-errors-spki-list={hash}");
    (format!("{},{}", chain.display(), key.display()), trusted)
}

#[test]
fn the_demo_page_shows_misses_then_hits() {
    let Some(browser) = browser() else { return };
    let proxy = Proxy::start("proxy", &["--to", "demo"]);
    let url = format!("{}/", proxy.says("url"));
    let parts = ["/", "/style.css", "/demo.js", "/img/0.svg", "/img/5.svg"];
    for word in ["fwd=uri-miss; fwd-status=200; stored", "hit"] {
        let document = Run::document(&browser, &[], &url);
        for part in parts {
            let row = format!("<td>{part}</td><td>damelo; {word}");
            assert!(document.contains(&row), "{row}: {document}");
        }
    }
    assert_eq!(proxy.counts("not_stored_total{reason=\"no-store\"}"), 0);
    assert!(proxy.counts("hits_total") >= 9, "page, style, script, six images");
}

/// What every browser must report, whatever was between it and the origin; `hit` if another came
/// before it.
fn check(report: &Value, protocol: &str, hit: bool) {
    let said = |step: &str, part: &str| report[step][part].as_str().unwrap_or_default().to_owned();
    let word = if hit { "; hit" } else { "; fwd=uri-miss" };
    for (step, part) in [("page", "cache"), ("range", "cache"), ("validated", "first")] {
        assert!(said(step, part).contains(word), "{step}: {report}");
    }
    assert_eq!(report["protocol"], protocol, "{report}");
    assert_eq!(report["images"], json!(["32x32", "32x32", "32x32", "32x32"]), "{report}");
    assert_eq!(report["streamed"], json!({"bytes": STREAMED_BYTES, "right": true}), "{report}");
    let range = &report["range"];
    assert_eq!((&range["status"], &range["right"]), (&json!(206), &json!(true)), "{report}");
    assert_eq!(range["of"], format!("bytes 3000000-3099999/{SOUND_BYTES}"), "{report}");
    assert_eq!(range["bytes"], 100_000, "{report}");
    assert_eq!(report["sound"]["at"], 1000, "{report}");
    let languages = [format!("de {hit}"), format!("nl {hit}"), "de true".to_owned()];
    assert_eq!(report["languages"], json!(languages), "{report}");
    // Its own copy was stale, and a 304 of the proxy made it fresh.
    assert!(said("validated", "second").contains("; hit"), "{report}");
    assert_eq!(report["validated"]["sent"], "304", "{report}");
    assert_eq!(report["validated"]["bytes"], 5000, "{report}");
    assert_eq!(report["reloaded"]["bytes"], 3126, "{report}");
    assert!(said("posted", "cache").contains("fwd=method"), "{report}");
    assert_eq!(report["posted"]["bytes"], 100_000, "{report}");
    assert_eq!(report["left"], 200, "{report}");
}

/// What is asked of the origin once, however many browsers come.
const ONCE: [&str; 5] = ["/probe", "/1.bmp", "/2.bmp", "/3.bmp", "/streamed"];

/// A reverse proxy before `origin` that also speaks TLS, and where.
fn over_tls(origin: &Origin, certificate: &str) -> (Proxy, String) {
    let to = format!("http://{}", origin.address);
    let listen = "tls+tcp:127.0.0.1:0";
    let args = ["--to", &to, "--listen", listen, "--certificate", certificate];
    let proxy = Proxy::start("proxy", &args);
    let listener = proxy.started["listeners"][0].as_str().unwrap();
    let url = format!("https://{}", listener.rsplit("tcp:").next().unwrap());
    (proxy, url)
}

#[test]
fn a_page_over_tls_and_http2() {
    let Some(browser) = browser() else { return };
    let (origin, home) = (Origin::start(), home());
    let (certificate, trusted) = certificate(&home);
    let (_proxy, url) = over_tls(&origin, &certificate);
    for hit in [false, true] {
        let report = Run::report(&browser, &[&trusted], &url, &origin);
        check(&report, "h2", hit);
    }
    assert_eq!(origin.asked_of_all(&ONCE), [1; 5]);
}

// What is on this host goes through the proxy, too.
const NO_BYPASS: &str = "--proxy-bypass-list=<-loopback>";

#[test]
fn a_page_through_the_forward_proxy() {
    let Some(browser) = browser() else { return };
    let origin = Origin::start();
    let proxy = Proxy::start("forward", &[]);
    let server = format!("--proxy-server={}", proxy.says("proxy"));
    let url = format!("http://{}", origin.address);
    for hit in [false, true] {
        let report = Run::report(&browser, &[&server, NO_BYPASS], &url, &origin);
        check(&report, "http/1.1", hit);
    }
    assert_eq!(origin.asked_of_all(&ONCE), [1; 5]);
}

#[test]
fn a_page_through_a_tunnel_of_the_forward_proxy_that_is_reached_over_tls() {
    let Some(browser) = browser() else { return };
    let (origin, home) = (Origin::start(), home());
    let (certificate, trusted) = certificate(&home);
    let (_proxy, url) = over_tls(&origin, &certificate);
    let args = ["--listen", "tls+tcp:127.0.0.1:0", "--certificate", &certificate];
    let forward = Proxy::start("forward", &args);
    let listener = forward.started["listeners"][0].as_str().unwrap();
    let server = format!("--proxy-server=https://{}", listener.rsplit("tcp:").next().unwrap());
    let report = Run::report(&browser, &[&server, NO_BYPASS, &trusted], &url, &origin);
    check(&report, "h2", false);
    assert!(forward.counts("tunnels_total") > 0);
    let plain = format!("http://{}", origin.address);
    let report = Run::report(&browser, &[&server, NO_BYPASS, &trusted], &plain, &origin);
    check(&report, "h2", false);
}
