//! The proxy command where the system refuses what it usually grants: a standard error that takes
//! nothing, a log that nobody reads, few open files, small files. Each test has a directory of its
//! own.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::fs::File;
use std::io::{BufRead, BufReader, PipeWriter, Read, Write, pipe};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
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

    /// What it says on standard error when it ends at its start, with this exit code.
    fn refused(&self, commands: &str, code: i32) -> String {
        let path = self.0.path().join("stderr");
        let mut command = self.after(commands);
        command.stderr(File::create(&path).unwrap());
        let ended = Running::spawn(command).ended();
        let said = std::fs::read_to_string(path).unwrap();
        assert_eq!(ended.code(), Some(code), "{said}");
        said
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

fn fifo(bed: &Bed, name: &str) {
    assert!(Command::new("mkfifo").arg(bed.0.path().join(name)).status().unwrap().success());
}

#[test]
fn a_log_to_a_fifo_that_nobody_reads_is_an_error() {
    let bed = Bed::new(&format!("{FILE}[log]\nto = \"log\"\n"));
    fifo(&bed, "log");
    let said = bed.refused("", 4);
    assert!(said.contains("nobody reads this FIFO"), "{said}");
}

#[test]
fn a_log_that_takes_nothing_does_not_keep_the_cache_from_being_closed() {
    let bed = Bed::new(&format!("{FILE}[log]\nto = \"log\"\n"));
    fifo(&bed, "log");
    let path = bed.0.path().join("log");
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
    let mut reader = options.open(path).unwrap();
    let mut running = Running::serving(bed.after(""));
    while reader.write(&[b'x'; 4096]).is_ok() {}
    assert!(running.get("/").contains("200 OK"));
    running.signal("-TERM");
    assert_eq!(running.ended().code(), Some(0), "4 is that of one that was cut off");
}

#[test]
fn the_reader_of_a_fifo_gets_the_log() {
    let bed = Bed::new(&format!("{FILE}[log]\nto = \"log\"\n"));
    fifo(&bed, "log");
    // Opened for both, it waits for no writer and gives the proxy a reader.
    let path = bed.0.path().join("log");
    let _reader = File::options().read(true).write(true).open(path).unwrap();
    let mut running = Running::serving(bed.after(""));
    running.signal("-TERM");
    assert_eq!(running.ended().code(), Some(0));
}

/// It waits for its certificate: nothing runs yet that a signal could end.
#[test]
fn what_waits_before_it_serves_ends_in_time_all_the_same() {
    let late = "[timeouts]\nstop = \"1s\"\ndrain = \"1s\"\n[tls]\ncertificates = [\"pem,pem\"]\n";
    let bed = Bed::new(&format!("{FILE}{late}"));
    fifo(&bed, "pem");
    let mut running = Running::spawn(bed.after(""));
    let mut writing = File::options();
    writing.write(true).custom_flags(libc::O_NONBLOCK);
    let (start, path) = (Instant::now(), bed.0.path().join("pem"));
    // Until this writer is closed, the proxy waits for more.
    let _writer = loop {
        match writing.open(&path) {
            Ok(writer) => break writer,
            Err(error) => assert!(start.elapsed() < PATIENCE, "nobody reads it: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    running.signal("-TERM");
    assert_eq!(running.ended().code(), Some(4));
}

/// Shells count in blocks of 512 or 1024 bytes: about 68 or 137 MiB.
const FILES_OF_68_MIB: &str = "ulimit -f 140000";

#[test]
fn a_log_beyond_the_limit_on_files_is_lost_and_nothing_else() {
    let bed = Bed::new(&format!("{FILE}[log]\nto = \"log\"\n"));
    File::create(bed.0.path().join("log")).unwrap().set_len(1 << 30).unwrap();
    let mut running = Running::serving(bed.after(FILES_OF_68_MIB));
    for _ in 0..3 {
        assert!(running.get("/").starts_with("HTTP/1.1 200"));
    }
    running.signal("-TERM");
    assert_eq!(running.ended().code(), Some(0));
}

#[test]
fn a_store_beyond_the_limit_on_files_is_refused_with_words() {
    let bed = Bed::new(&FILE.replace("64MiB", "256MiB"));
    let mut running = Running::serving(bed.after(""));
    running.signal("-TERM");
    assert_eq!(running.ended().code(), Some(0));
    let said = bed.refused(FILES_OF_68_MIB, 3);
    assert!(said.contains("268435456") && said.contains("ulimit -f"), "{said}");
}

#[test]
fn too_few_open_files_are_refused_with_words() {
    let bed = Bed::new(FILE);
    let said = bed.refused("ulimit -n 40", 4);
    assert!(said.contains("40 open files") && said.contains("ulimit -n"), "{said}");
    assert!(!bed.0.path().join("c.damelo").exists(), "refused before anything is made");
}

/// Denies one system call to this process and those it starts, as filters of containers do.
fn deny(call: libc::c_long) -> std::io::Result<()> {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let number = u32::try_from(call).map_err(std::io::Error::other)?;
    let mut steps = [
        // The number of the call comes first in what a filter sees.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program and its steps are alive during the calls.
    let failed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
    };
    if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

#[test]
fn a_ring_that_may_be_made_and_not_used_is_done_without() {
    let bed = Bed::new(FILE);
    let mut command = bed.after("");
    // SAFETY: system calls only, on memory of the closure's own.
    unsafe { command.pre_exec(|| deny(libc::SYS_io_uring_enter)) };
    let mut running = Running::serving(command);
    assert!(running.get("/").starts_with("HTTP/1.1 200"));
    running.signal("-TERM");
    assert_eq!(running.ended().code(), Some(0));
}

#[test]
fn a_file_of_settings_without_end_is_refused() {
    let bed = Bed::new(FILE);
    let path = bed.0.path().join("damelo.toml");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(bed.refused("", 4).contains("too long"));
}
