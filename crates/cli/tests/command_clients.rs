//! Real clients of the command line before the proxy: curl in each version of HTTP that it is
//! asked for, and `nghttp` and `h2load`, which share no code with what the proxy is made of.
//!
//! What curl gets through the proxy is compared with what it gets from the origin itself. A client
//! that is not installed is named on standard error, and its test passes. Each has a limit in time.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

#[expect(dead_code, reason = "the tests with a browser use all of it")]
#[path = "browser/origin.rs"]
mod origin;

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;

use origin::{CODED_TEXT, Origin, SOUND_BYTES};

/// Longest time that a client may take, in seconds: a hang fails the test.
const PATIENCE_S: &str = "60";

/// Whether a program is in the path; says loudly if not.
fn has(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    if !found {
        // Not by a macro: what those print of a test that passes is not shown.
        let _ = writeln!(std::io::stderr(), "\nSKIPPED: {name} is not installed.\n");
    }
    found
}

/// What a program says on standard output; it must succeed.
fn run(command: &mut Command) -> Vec<u8> {
    let done = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}: {errors}", done.status);
    done.stdout
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A proxy with a listener in clear text and one with TLS, and an origin behind it; killed on drop.
struct Bed {
    child: Child,
    /// In clear text, and by https.
    urls: [String; 2],
    origin: Origin,
    home: TempDir,
}

impl Bed {
    fn start() -> Bed {
        let origin = Origin::start();
        let address = origin.address;
        Bed::before(address, origin, "128MiB")
    }

    /// With this origin behind the proxy, whatever `origin` is there for, and a cache of this size.
    fn before(address: SocketAddr, origin: Origin, cache: &str) -> Bed {
        let home = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        fs::write(home.path().join("chain.pem"), made.cert.pem()).unwrap();
        fs::write(home.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_damelo"));
        command.args(["proxy", "--json", "--from", "127.0.0.1:0", "--cache"]);
        command.args([&format!("c:{cache}"), "--memory", "32MiB", "--workers", "1"]);
        command.args(["--to", &format!("http://{address}")]);
        command.args(["--listen", "tls+tcp:127.0.0.1:0", "--certificate", "chain.pem,key.pem"]);
        command.current_dir(home.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let says: Value = serde_json::from_str(&line).unwrap();
        let tls = says["listeners"][0].as_str().unwrap().rsplit("tcp:").next().unwrap();
        let urls = [says["url"].as_str().unwrap().to_owned(), format!("https://{tls}")];
        Bed { child, urls, origin, home }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The options of curl for each version of HTTP, the address, and how it names the version.
    fn ways(&self) -> [(&'static [&'static str], &str, &'static str); 4] {
        let [clear, tls] = &self.urls;
        [
            (&["--http1.1"], clear, "1.1"),
            (&["--http2-prior-knowledge"], clear, "2"),
            (&["--http1.1", "--cacert", "chain.pem"], tls, "1.1"),
            (&["--http2", "--cacert", "chain.pem"], tls, "2"),
        ]
    }

    /// Runs curl in the directory of the test; returns the body.
    fn curl(&self, args: &[&str], url: &str) -> Vec<u8> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", PATIENCE_S, "--noproxy", "*"]);
        run(command.args(args).arg(url).current_dir(self.home.path()))
    }

    /// What the origin itself gives curl.
    fn direct(&self, args: &[&str], path: &str) -> Vec<u8> {
        self.curl(args, &format!("http://{}{path}", self.origin.address))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn curl_gets_wholes_and_ranges_in_each_version_of_http() {
    if !has("curl") {
        return;
    }
    let bed = Bed::start();
    let whole = bed.direct(&[], "/sound.wav");
    assert_eq!(whole.len(), SOUND_BYTES as usize);
    let asked = bed.origin.asked("/sound.wav");
    let told = "%{http_version} %{response_code}";
    for (options, base, version) in bed.ways() {
        let url = format!("{base}/sound.wav");
        let with = |more: &[&str]| bed.curl(&[options, more].concat(), &url);
        let said = with(&["--output", "got", "--write-out", told]);
        assert_eq!(text(&said), format!("{version} 200"), "{options:?}");
        assert!(fs::read(bed.file("got")).unwrap() == whole, "{options:?}");
        assert!(with(&["--range", "3000000-3099999"]) == whole[3_000_000..3_100_000]);
        assert!(with(&["--range", "-44"]) == whole[whole.len() - 44..]);
        let several = text(&with(&["--range", "0-3,40-43", "--dump-header", "-"]));
        assert!(several.contains("multipart/byteranges") && several.contains("RIFF"), "{several}");
        // A download that broke off goes on where it was.
        fs::write(bed.file("half"), &whole[..4_000_000]).unwrap();
        let said = with(&["--continue-at", "-", "--output", "half", "--write-out", told]);
        assert_eq!(text(&said), format!("{version} 206"), "{options:?}");
        assert!(fs::read(bed.file("half")).unwrap() == whole, "{options:?}");
        let head = text(&with(&["--head"])).to_lowercase();
        assert!(head.contains(&format!("content-length: {SOUND_BYTES}")), "{head}");
        assert!(head.contains("cache-status: damelo; hit"), "{head}");
    }
    // Once for each of http and https, which are two resources.
    assert_eq!(bed.origin.asked("/sound.wav"), asked + 2);
}

#[test]
fn curl_compares_tags_and_takes_codings() {
    if !has("curl") {
        return;
    }
    let bed = Bed::start();
    let body = bed.direct(&[], "/validated");
    for (options, base, _) in bed.ways() {
        let _ = fs::remove_file(bed.file("tag"));
        let url = format!("{base}/validated");
        let tags =
            ["--etag-save", "tag", "--etag-compare", "tag", "--write-out", "%{response_code}"];
        let args = [options, &tags, &["--output", "got"]].concat();
        fs::write(bed.file("tag"), "").unwrap();
        assert_eq!(text(&bed.curl(&args, &url)), "200", "{options:?}");
        assert!(fs::read(bed.file("got")).unwrap() == body, "{options:?}");
        assert_eq!(fs::read_to_string(bed.file("tag")).unwrap().trim(), "\"v\"");
        assert_eq!(text(&bed.curl(&args, &url)), "304", "{options:?}");
        let url = format!("{base}/coded");
        for more in [&["--compressed"][..], &[]] {
            let got = bed.curl(&[options, more].concat(), &url);
            assert_eq!(text(&got), CODED_TEXT, "{options:?} {more:?}");
        }
        let coded = bed.curl(&[options, &["--header", "Accept-Encoding: gzip"]].concat(), &url);
        assert!(coded.starts_with(&[31, 139]), "{options:?}");
    }
    // Once for each `Accept-Encoding`, by http and by https.
    assert_eq!(bed.origin.asked("/coded"), 2 * 3);
}

#[test]
fn curl_sends_bodies_in_each_version_of_http() {
    if !has("curl") {
        return;
    }
    let bed = Bed::start();
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect();
    fs::write(bed.file("sent"), &sent).unwrap();
    for (options, base, version) in bed.ways() {
        let url = format!("{base}/echo");
        // Of such a length curl waits for 100 (Continue) in HTTP/1.1.
        for body in [["--data-binary", "@sent"], ["--upload-file", "sent"]] {
            let told = ["--output", "got", "--write-out", "%{http_version} %{response_code}"];
            let args = [options, &body, &told].concat();
            assert_eq!(text(&bed.curl(&args, &url)), format!("{version} 200"), "{body:?}");
            assert!(fs::read(bed.file("got")).unwrap() == sent, "{options:?} {body:?}");
        }
    }
    assert_eq!(bed.origin.asked("/echo"), 8);
}

#[test]
fn one_curl_keeps_its_connection_and_asks_at_once() {
    if !has("curl") {
        return;
    }
    let bed = Bed::start();
    // Prior knowledge is left out: curl 7.88 fails where it uses such a connection again, whatever
    // the server (curl's issue 10634).
    let ways = bed
        .ways()
        .into_iter()
        .filter(|(_, url, version)| *version == "1.1" || url.starts_with("https"));
    for (options, base, _) in ways {
        let told = ["--write-out", "%{num_connects} "];
        let outputs = ["--output", "a", "--output", "b", "--output", "c"];
        let urls = ["/1.bmp", "/streamed"].map(|path| format!("{base}{path}"));
        let args = [options, &told, &outputs, &[&urls[0], &urls[1]]].concat();
        assert_eq!(text(&bed.curl(&args, &urls[0])), "1 0 0 ", "{options:?}");
        assert!(fs::read(bed.file("b")).unwrap() == bed.direct(&[], "/streamed"), "{options:?}");
        let args = [options, &["--parallel"], &outputs, &[&urls[0], &urls[1]]].concat();
        bed.curl(&args, &urls[1]);
        for name in ["b", "c"] {
            let got = fs::read(bed.file(name)).unwrap();
            assert!(got == bed.direct(&[], "/streamed"), "{options:?} {name}");
        }
    }
}

#[test]
fn nghttp_gets_what_curl_gets() {
    if !has("curl") || !has("nghttp") {
        return;
    }
    let bed = Bed::start();
    for path in ["/streamed", "/1.bmp"] {
        let whole = bed.direct(&[], path);
        for base in &bed.urls {
            let url = format!("{base}{path}");
            for _ in ["missed", "hit"] {
                let mut command = Command::new("nghttp");
                command.args(["--no-dep", "--timeout", PATIENCE_S, "--window-bits", "20", &url]);
                assert!(run(&mut command) == whole, "{url}");
            }
            // Small windows: what is sent waits for room again and again.
            let mut command = Command::new("nghttp");
            command.args(["--window-bits", "10", "--timeout", PATIENCE_S, &url]);
            assert!(run(&mut command) == whole, "{url}");
        }
        assert_eq!(bed.origin.asked(path), 1 + 2, "{path}");
    }
}

#[test]
fn h2load_is_answered_on_every_stream() {
    if !has("h2load") {
        return;
    }
    let bed = Bed::start();
    for base in &bed.urls {
        for more in [&["--max-concurrent-streams", "32"][..], &["--h1"]] {
            let mut command = Command::new("h2load");
            command.args(["--requests", "400", "--clients", "4"]).args(more);
            command.args(["--connection-active-timeout", PATIENCE_S]);
            command.args([format!("{base}/1.bmp"), format!("{base}/language")]);
            let said = text(&run(&mut command));
            let all = "400 done, 400 succeeded, 0 failed, 0 errored, 0 timeout";
            assert!(said.contains(all), "{more:?}: {said}");
            assert!(said.contains("status codes: 400 2xx"), "{more:?}: {said}");
        }
    }
    assert_eq!(bed.origin.asked("/1.bmp"), 2, "one for each scheme");
}

/// Longer than what 32 bits count, and no multiple of anything.
const HUGE_BYTES: u64 = (5 << 30) + 7;
/// What the huge body consists of, again and again.
const BLOCK_BYTES: usize = 1 << 20;

fn block() -> Vec<u8> {
    (0..BLOCK_BYTES).map(|at| ((at * 31 + (at >> 8)) & 255) as u8).collect()
}

/// An origin of the huge body, to be kept if the path says so; counts what it was asked for.
fn huge_origin() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::<AtomicUsize>::default();
    let count = asked.clone();
    std::thread::spawn(move || {
        let block = block();
        for mut stream in listener.incoming().flatten() {
            let mut head = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
            count.fetch_add(1, Ordering::SeqCst);
            let kept = if head.contains("/kept") { "max-age=6000" } else { "no-store" };
            let fields = format!("Cache-Control: {kept}\r\nContent-Length: {HUGE_BYTES}");
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n{fields}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let mut left = HUGE_BYTES;
            while left > 0 {
                let take = left.min(BLOCK_BYTES as u64) as usize;
                // The test fails by what its client says.
                if stream.write_all(&block[..take]).is_err() {
                    break;
                }
                left -= take as u64;
            }
        }
    });
    (address, asked)
}

/// Reads what curl gets, of which nothing is kept; panics at the first wrong byte.
fn check_huge(bed: &Bed, url: &str) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--fail", "--noproxy", "*", url]);
    let mut curl = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut body = curl.stdout.take().unwrap();
    let (block, mut got, mut at) = (block(), vec![0; BLOCK_BYTES], 0);
    while at < HUGE_BYTES {
        let take = (HUGE_BYTES - at).min(BLOCK_BYTES as u64) as usize;
        body.read_exact(&mut got[..take]).unwrap();
        assert!(got[..take] == block[..take], "{url}: within 1 MiB from {at}");
        at += take as u64;
    }
    assert_eq!(body.read(&mut got).unwrap(), 0, "{url}: more than it should be");
    assert!(curl.wait().unwrap().success(), "{url}");
    let peak_kib = peak_memory_kib(bed);
    assert!(peak_kib < 400 << 10, "{url}: {peak_kib} KiB");
}

/// The most memory that the proxy ever occupied.
fn peak_memory_kib(bed: &Bed) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", bed.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Run it by name, with `--ignored`: it writes 5 GiB, and wants 12 GiB of disk.
#[test]
#[ignore = "writes 5 GiB"]
fn a_body_of_5_gib_passes_and_is_stored_in_bounded_memory() {
    if !has("curl") {
        return;
    }
    let (address, asked) = huge_origin();
    let bed = Bed::before(address, Origin::start(), "12GiB");
    let url = |path: &str| format!("{}{path}", bed.urls[0]);
    check_huge(&bed, &url("/passed"));
    check_huge(&bed, &url("/kept"));
    // Across 4 GiB, and at the end.
    let block = block();
    for (first, last) in [((4_u64 << 30) - 5, (4 << 30) + 4), (HUGE_BYTES - 3, HUGE_BYTES - 1)] {
        let got = bed.curl(&["--range", &format!("{first}-{last}")], &url("/kept"));
        let expected = (first..=last).map(|at| block[at as usize % BLOCK_BYTES]);
        assert!(got.into_iter().eq(expected), "{first}-{last}");
    }
    check_huge(&bed, &url("/kept"));
    assert_eq!(asked.load(Ordering::SeqCst), 2, "what is stored was not asked for again");
}
