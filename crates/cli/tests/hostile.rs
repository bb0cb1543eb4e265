//! The proxy command where the system refuses what it usually grants: a standard error that takes
//! nothing, a log that nobody reads, few open files, small files. Each test has a directory of its own.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::fs::File;
use std::io::{BufRead, BufReader, PipeWriter, Read, Write, pipe};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Longest wait for anything: a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

const FILE: &str = "from = \"127.0.0.1:0\"\nto = \"demo\"\ncache = \"c.damelo:64MiB\"\n\
                    memory = \"16MiB\"\nworkers = 1\n";

struct Bed(TempDir);

impl Bed {
    fn new(settings: &str) -> Bed {
        let bed = Bed(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
        std::fs::write(bed.0.path().join("damelo.toml"), settings).unwrap();
        bed
    }

    /// A proxy with the bed's settings, run by a shell after these commands.
    fn after(&self, commands: &str) -> Command {
        let mut command = Command::new("sh");
        let run = format!("{commands}\nexec \"$0\" proxy --json --config damelo.toml");
        command.args(["-c", &run, env!("CARGO_BIN_EXE_damelo")]);
        command.current_dir(self.0.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }
}

/// Killed on drop.
struct Running {
    child: Child,
    address: String,
}

impl Running {
    fn spawn(mut command: Command) -> Running {
        Running { child: command.spawn().unwrap(), address: String::new() }
    }

    /// Started, and serving.
    fn serving(command: Command) -> Running {
        let mut running = Running::spawn(command);
        let mut line = String::new();
        BufReader::new(running.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let started: Value = serde_json::from_str(&line).unwrap();
        let url = started["url"].as_str().unwrap().strip_prefix("http://").unwrap();
        running.address = url.trim_end_matches('/').to_owned();
        running
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Fills the pipe: a write to it waits from now on.
fn fill(pipe: &mut PipeWriter) {
    let descriptor = pipe.as_raw_fd();
    // SAFETY: system calls without pointers, on a descriptor that is open.
    let set = |flags: libc::c_int| unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags) };
    // SAFETY: as above.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    assert_eq!(set(flags | libc::O_NONBLOCK), 0);
    while pipe.write(&[b'x'; 4096]).is_ok() {}
    assert_eq!(set(flags), 0);
}

#[test]
fn a_standard_error_that_is_full_keeps_nobody_from_ending_it() {
    let bed = Bed::new(FILE);
    let mut command = bed.after("");
    command.stderr(File::options().write(true).open("/dev/full").unwrap());
    let mut running = Running::serving(command);
    running.signal("-HUP");
    running.signal("-TERM");
    assert_eq!(running.ended().code(), Some(0));
}

#[test]
fn a_standard_error_that_nobody_reads_keeps_nobody_from_ending_it() {
    let bed = Bed::new(FILE);
    let mut command = bed.after("");
    let (_reader, mut writer) = pipe().unwrap();
    command.stderr(writer.try_clone().unwrap());
    let mut running = Running::serving(command);
    fill(&mut writer);
    running.signal("-HUP");
    running.signal("-TERM");
    assert_eq!(running.ended().code(), Some(0));
}
