//! Measurements of a proxy from outside, before and after a run: CPU time of its processes, reads
//! of the machine's disk, reads by its own counters. Unavailable values are `None`, never zero.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use super::target::resolve;
use crate::bench::disk::device_counters;

/// Longest wait for metrics.
const METRICS_MAX: Duration = Duration::from_secs(5);
/// Our own proxy's metric for reads of its devices.
const OWN_READS: &str = "damelo_device_reads_total";

/// Totals at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Probe {
    /// CPU time of the proxy and its children.
    pub(crate) cpu_seconds: Option<f64>,
    /// Reads of the block device by all processes.
    pub(crate) machine_reads: Option<u64>,
    /// Reads by the proxy's own count.
    pub(crate) own_reads: Option<u64>,
}

impl Probe {
    /// Reads all counters.
    pub(crate) fn take(pid: Option<u32>, disk: Option<&Path>, metrics: Option<&str>) -> Probe {
        Probe {
            cpu_seconds: pid.and_then(cpu_seconds),
            machine_reads: disk.and_then(|path| device_counters(path).reads),
            own_reads: metrics.and_then(|url| sum_of(&fetch(url)?, OWN_READS)),
        }
    }

    /// The difference since `before`.
    pub(crate) fn since(self, before: Probe) -> Probe {
        let minus = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        Probe {
            cpu_seconds: self.cpu_seconds.zip(before.cpu_seconds).map(|(now, before)| now - before),
            machine_reads: minus(self.machine_reads, before.machine_reads),
            own_reads: minus(self.own_reads, before.own_reads),
        }
    }
}

/// User and system time of a process and its descendants (`/proc/PID/stat`).
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    let mut processes = HashMap::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        if let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>()
            && let Some(stat) = fs::read_to_string(entry.path().join("stat")).ok()
            && let Some(parsed) = parse_stat(&stat)
        {
            processes.insert(id, parsed);
        }
    }
    processes.get(&pid)?;
    let mut family = HashSet::from([pid]);
    loop {
        let before = family.len();
        let children: Vec<u32> = processes
            .iter()
            .filter(|(_, (parent, _))| family.contains(parent))
            .map(|(id, _)| *id)
            .collect();
        family.extend(children);
        if family.len() == before {
            break;
        }
    }
    let ticks: u64 = family.iter().filter_map(|id| Some(processes.get(id)?.1)).sum();
    // SAFETY: sysconf takes a number and touches no memory of ours.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    (per_second > 0).then(|| ticks as f64 / per_second as f64)
}

/// Parent and ticks of CPU time. The process name, in parentheses, may contain any character.
fn parse_stat(stat: &str) -> Option<(u32, u64)> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((fields.get(1)?.parse().ok()?, ticks(11)? + ticks(12)?))
}

/// The text at a URL, if it answers in time.
fn fetch(url: &str) -> Option<String> {
    let (authority, path) = url.strip_prefix("http://")?.split_once('/')?;
    let address = resolve(&format!("http://{authority}")).ok()?;
    let mut stream = TcpStream::connect_timeout(&address, METRICS_MAX).ok()?;
    stream.set_read_timeout(Some(METRICS_MAX)).ok()?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// The sum of a metric over its labels.
fn sum_of(text: &str, name: &str) -> Option<u64> {
    let values: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with([' ', '{']))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse().ok())
        .collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_where_they_stand() {
        let stat = "7 (a) b) S 3 7 7 0 -1 4194304 1 0 0 0 25 17 0 0 20 0";
        assert_eq!(parse_stat(stat), Some((3, 42)));
        let text =
            "# x\nreads_total{volume=\"0\"} 5\nreads_total{volume=\"1\"} 6\nreads_total_x 9\n";
        assert_eq!(sum_of(text, "reads_total"), Some(11));
        assert_eq!(sum_of(text, "writes_total"), None);
        assert!(cpu_seconds(std::process::id()).is_some());
    }
}
