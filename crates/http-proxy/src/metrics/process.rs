//! Metrics of this process as the system reports them, with the names that all Prometheus clients
//! use.
//!
//! Read from `/proc` on each scrape; on systems without it these metrics are absent. Threads: the
//! admin listener's.

use std::fs;

/// Clock ticks per second in `/proc`: the same on every architecture that Linux supports.
const TICKS_PER_S: f64 = 100.0;

/// The process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Process {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) open_fds: u64,
    /// The soft limit.
    pub(crate) max_fds: u64,
    /// Since 1970.
    pub(crate) start_seconds: f64,
}

impl Process {
    /// Reads the values; `None` where the system does not report them.
    pub(crate) fn now() -> Option<Process> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{name}")).ok();
        let (cpu_seconds, started) = times(&read("self/stat")?)?;
        // The listed directory is itself open meanwhile.
        let open_fds = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64;
        Some(Process {
            cpu_seconds,
            resident_bytes: resident_bytes(&read("self/status")?)?,
            open_fds,
            max_fds: max_fds(&read("self/limits")?)?,
            start_seconds: boot_seconds(&read("stat")?)? + started,
        })
    }
}

/// CPU time so far, and the process's start, in seconds since boot (`proc_pid_stat(5)`).
fn times(stat: &str) -> Option<(f64, f64)> {
    // The name before it may contain anything, parentheses and spaces included.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks =
        |field: usize| -> Option<f64> { rest.split_whitespace().nth(field - 3)?.parse().ok() };
    Some(((ticks(14)? + ticks(15)?) / TICKS_PER_S, ticks(22)? / TICKS_PER_S))
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

fn max_fds(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn boot_seconds(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_proc_are_understood() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 0 9 9 9 9 150 50 3 3 20 0 8 0 123450 9 9";
        assert_eq!(times(stat), Some((2.0, 1234.5)));
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   12 kB\n"), Some(12 << 10));
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        assert_eq!(max_fds(limits), Some(1024));
        assert_eq!(max_fds(&limits.replace("1024", "unlimited")), Some(u64::MAX));
        assert_eq!(boot_seconds("cpu 1 2\nbtime 1700000000\n"), Some(1.7e9));
        for bad in ["", "7 (a", "7 (a) S 1", "VmRSS: x kB", "Max open files", "btime x"] {
            assert_eq!((times(bad), resident_bytes(bad)), (None, None), "{bad}");
            assert_eq!((max_fds(bad), boot_seconds(bad)), (None, None), "{bad}");
        }
    }

    #[test]
    fn this_process_is_told_of() {
        let Some(process) = Process::now() else { return };
        assert!(process.resident_bytes > 1 << 20 && process.open_fds >= 3, "{process:?}");
        assert!(process.max_fds >= process.open_fds, "{process:?}");
        let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = unix.as_secs_f64() - process.start_seconds;
        assert!((-2.0..3600.0).contains(&age), "{age} s old");
    }
}
