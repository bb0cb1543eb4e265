//! The demo proxy: started, asked, stopped and started again, and what it has for itself meanwhile.

use super::*;

/// A running proxy. Killed with SIGKILL on drop.
struct RunningProxy {
    child: std::process::Child,
    stdout: std::io::BufReader<std::process::ChildStdout>,
    address: String,
}

impl RunningProxy {
    fn start(bed: &Bed) -> RunningProxy {
        let args = ["proxy", "--from", "127.0.0.1:0", "--to", "demo", "--cache", "p.damelo:64MiB"];
        let mut child = bed
            .command(&[&args[..], &["--memory", "16MiB", "--json"]].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap();
        let address = started["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        RunningProxy { child, stdout, address }
    }

    /// The whole response, headers and body, as text.
    fn get(&self, path: &str) -> String {
        let mut stream = std::net::TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = Vec::new();
        std::io::Read::read_to_end(&mut stream, &mut response).unwrap();
        String::from_utf8(response).unwrap()
    }

    fn is_hit(&self, path: &str) -> bool {
        let response = self.get(path);
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        let line = response.lines().find(|line| line.to_lowercase().starts_with("cache-status:"));
        line.unwrap().contains("; hit")
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for RunningProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_demo_proxy_hits_ends_cleanly_and_hits_again() {
    let bed = Bed::empty();
    let mut proxy = RunningProxy::start(&bed);
    assert!(!proxy.is_hit("/img/0.svg"));
    assert!(proxy.is_hit("/img/0.svg"));
    proxy.signal("-TERM");
    assert!(proxy.child.wait().unwrap().success());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut proxy.stdout, &mut rest).unwrap();
    assert_eq!(rest, "", "one JSON object and nothing else");
    let again = RunningProxy::start(&bed);
    assert!(again.is_hit("/img/0.svg"), "the hit is still there");
}

#[test]
fn the_proxy_s_store_is_locked_and_its_address_taken() {
    let bed = Bed::empty();
    let proxy = RunningProxy::start(&bed);
    let error = bed.fails(3, &["stat", "p.damelo"]);
    assert!(error.contains("p.damelo"), "{error}");
    let busy = ["proxy", "--from", &proxy.address, "--to", "demo", "--cache", "q.damelo:64MiB"];
    let error = bed.fails(4, &busy);
    assert!(error.contains(&proxy.address) && error.contains("--from"), "{error}");
    bed.fails(2, &["proxy", "--to", "ftp://x", "--cache", "r.damelo:64MiB"]);
}
