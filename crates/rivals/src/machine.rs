//! What a result has to carry to be worth anything: the command, the versions, the machine.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

/// The versions this was built with; foyer's is the one that counts.
const LOCK: &str = include_str!("../Cargo.lock");

/// Circumstances of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The command as typed.
    pub command: String,
    /// Day of the run, UTC.
    pub date: String,
    /// Name of the machine.
    pub host: String,
    /// Kernel and architecture.
    pub kernel: String,
    /// Processor as it calls itself.
    pub processor: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Memory of the machine, in bytes.
    pub memory_bytes: u64,
    /// File system, device and mount options of the benchmark directory.
    pub mount: String,
    /// Whether the device says that it rotates.
    pub rotational: String,
    /// Load average when the run began: others at work spoil absolute figures.
    pub load: String,
    /// Version of damelo.
    pub damelo: String,
    /// Version of foyer.
    pub foyer: String,
    /// Compiler found on the path.
    pub rustc: String,
    /// Commit of this repository, `-dirty` if changed.
    pub commit: String,
}

impl fmt::Display for Machine {
    /// As it stands above a table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { damelo, foyer, kernel, mount, cores, load, .. } = self;
        write!(
            f,
            "damelo {damelo}, foyer {foyer}, {kernel}, {mount}, {cores} cores, load {load} at the start"
        )
    }
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or("").to_owned()
}

/// First line a command prints; `unknown` if it cannot be run.
pub fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

/// Value of a field of a `/proc` file with `name : value` lines.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Version of a package in this crate's lock file.
fn locked(package: &str) -> String {
    let after = LOCK.split_once(&format!("name = \"{package}\"\nversion = \"")).map(|(_, v)| v);
    after.and_then(|v| v.split('"').next()).unwrap_or("not built in").to_owned()
}

/// The line of `/proc/mounts` that holds a path.
fn mount_of(directory: &Path) -> String {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let holds =
        |line: &&str| line.split(' ').nth(1).is_some_and(|point| directory.starts_with(point));
    let longest =
        mounts.lines().filter(holds).max_by_key(|line| line.split(' ').nth(1).map_or(0, str::len));
    longest.unwrap_or("unknown").to_owned()
}

impl Machine {
    /// Looks around; `directory` is where the benchmark writes.
    pub fn look(directory: &Path) -> Machine {
        let device = crate::counters::device_name(directory).unwrap_or_default();
        let kib = field("/proc/meminfo", "MemTotal").unwrap_or_default();
        let kib: u64 = kib.trim_end_matches(" kB").parse().unwrap_or(0);
        Machine {
            command: std::env::args().collect::<Vec<_>>().join(" "),
            date: output_of("date", &["-u", "+%F"]),
            host: first_line("/proc/sys/kernel/hostname"),
            kernel: output_of("uname", &["-srm"]),
            processor: field("/proc/cpuinfo", "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kib << 10,
            mount: mount_of(directory),
            rotational: first_line(&format!("/sys/block/{device}/queue/rotational")),
            load: first_line("/proc/loadavg"),
            damelo: locked("damelo"),
            foyer: locked("foyer"),
            rustc: output_of("rustc", &["--version"]),
            commit: output_of("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
        }
    }
}
