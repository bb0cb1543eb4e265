//! The measured proxies: others by URL, and our own as a child process on a temporary cache, which
//! can be killed and restarted. The child ends with its owner, and with this process.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::failure::Failure;

/// How to start a proxy of our own.
#[derive(Debug, Clone)]
pub(crate) struct OwnProxy {
    /// `PATH:SIZE`, as `damelo proxy --cache` takes it.
    pub(crate) cache: String,
    /// As `--memory` takes it.
    pub(crate) memory: String,
    /// Threads; the proxy's default if `None`.
    pub(crate) workers: Option<u16>,
    /// The origin.
    pub(crate) origin: SocketAddr,
    /// Settings, as `--set` takes them.
    pub(crate) set: Vec<String>,
}

/// A running proxy of our own. Killed with SIGKILL on drop.
pub(crate) struct Running {
    child: Child,
    /// Its listening address.
    pub(crate) address: SocketAddr,
    /// URL of its metrics.
    pub(crate) metrics: Option<String>,
    /// When it was started.
    pub(crate) started: Instant,
}

impl OwnProxy {
    /// Starts the proxy and waits until it reports that it serves.
    pub(crate) fn start(&self) -> Result<Running, Failure> {
        let failed = |source| Failure::io("start `damelo proxy`", source);
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(["proxy", "--json", "--from", "127.0.0.1:0", "--memory", &self.memory]);
        command.args(["--cache", &self.cache, "--to", &format!("http://{}", self.origin)]);
        if let Some(workers) = self.workers {
            command.args(["--workers", &workers.to_string()]);
        }
        for setting in &self.set {
            command.args(["--set", setting]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        // SAFETY: prctl only sets a flag of the child, and may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        let started = Instant::now();
        let mut child = command.spawn().map_err(failed)?;
        let line = child.stdout.take().map_or(Ok(String::new()), |stdout| {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        let mut running =
            Running { child, address: SocketAddr::from(([0; 4], 0)), metrics: None, started };
        let info: Value = serde_json::from_str(&line.map_err(failed)?)
            .map_err(|_| Failure::Child("`damelo proxy` did not start; see above".to_owned()))?;
        running.address = resolve(info["url"].as_str().unwrap_or_default())?;
        running.metrics = info["metrics"].as_str().map(str::to_owned);
        Ok(running)
    }
}

impl Running {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGKILL and waits for the end; fails if the process had already ended by itself.
    pub(crate) fn kill(mut self) -> Result<(), Failure> {
        let asked = self.child.try_wait();
        if let Some(status) = asked.map_err(|e| Failure::io("ask after `damelo proxy`", e))? {
            return Err(Failure::Child(format!("`damelo proxy` ended by itself: {status}")));
        }
        self.child.kill().map_err(|source| Failure::io("kill `damelo proxy`", source))?;
        self.child.wait().map_err(|source| Failure::io("wait for `damelo proxy`", source))?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address in `http://HOST[:PORT]`.
pub(crate) fn resolve(url: &str) -> Result<SocketAddr, Failure> {
    let wrong = || Failure::Usage(format!("`{url}` is not http://HOST[:PORT]"));
    let authority = url.strip_prefix("http://").ok_or_else(wrong)?.trim_end_matches('/');
    if authority.is_empty() || authority.contains('/') {
        return Err(wrong());
    }
    let ported = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let text = if ported { authority.to_owned() } else { format!("{authority}:80") };
    let failed = |source| Failure::io(format!("find the address of `{url}`"), source);
    text.to_socket_addrs().map_err(failed)?.next().ok_or_else(wrong)
}

/// A temporary directory's cache file with its size, as `--cache` takes it.
pub(crate) fn cache_spec(dir: &Path, size: &str) -> String {
    let path: PathBuf = dir.join("bench.damelo");
    format!("{}:{size}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_proxies_are_checked() {
        assert_eq!(resolve("http://127.0.0.1:81/").unwrap().port(), 81);
        assert_eq!(resolve("http://127.0.0.1").unwrap().port(), 80);
        for wrong in ["127.0.0.1:80", "https://x", "http://", "http://127.0.0.1/x"] {
            assert!(matches!(resolve(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
