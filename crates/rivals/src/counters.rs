//! What the kernel counts: the device's I/Os (everybody's on the machine) and this process's
//! bytes. The same counters for every contestant, so that none counts itself.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

const SECTOR_BYTES: u64 = 512;

/// Counters at one moment, or their growth between two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Reads completed by the device, whoever asked for them.
    pub device_reads: u64,
    /// Bytes those reads moved.
    pub device_read_bytes: u64,
    /// Writes completed by the device.
    pub device_writes: u64,
    /// Bytes those writes moved.
    pub device_write_bytes: u64,
    /// Bytes this process alone caused to be fetched from storage (`/proc/self/io`).
    pub process_read_bytes: u64,
    /// Bytes this process alone had written to storage.
    #[serde(default)]
    pub process_written_bytes: u64,
    /// Microseconds of processor time this process used.
    pub cpu_us: u64,
}

impl Counters {
    /// Reads them; a device of `None` counts nothing.
    pub fn now(device: Option<&str>) -> Counters {
        let mut counters = Counters {
            process_read_bytes: process_bytes("read_bytes: ").unwrap_or(0),
            process_written_bytes: process_bytes("write_bytes: ").unwrap_or(0),
            cpu_us: cpu_us(),
            ..Counters::default()
        };
        let stats = fs::read_to_string("/proc/diskstats").unwrap_or_default();
        let fields = stats.lines().find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (fields.len() > 9 && Some(fields[2]) == device).then(|| {
                let number = |i: usize| fields[i].parse::<u64>().unwrap_or(0);
                [number(3), number(5), number(7), number(9)]
            })
        });
        if let Some([reads, read_sectors, writes, write_sectors]) = fields {
            counters.device_reads = reads;
            counters.device_read_bytes = read_sectors * SECTOR_BYTES;
            counters.device_writes = writes;
            counters.device_write_bytes = write_sectors * SECTOR_BYTES;
        }
        counters
    }

    /// Growth since an earlier moment.
    pub fn since(self, before: Counters) -> Counters {
        Counters {
            device_reads: self.device_reads - before.device_reads,
            device_read_bytes: self.device_read_bytes - before.device_read_bytes,
            device_writes: self.device_writes - before.device_writes,
            device_write_bytes: self.device_write_bytes - before.device_write_bytes,
            process_read_bytes: self.process_read_bytes - before.process_read_bytes,
            process_written_bytes: self.process_written_bytes - before.process_written_bytes,
            cpu_us: self.cpu_us - before.cpu_us,
        }
    }
}

fn process_bytes(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

fn cpu_us() -> u64 {
    // SAFETY: rusage is plain numbers, for which zero is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live rusage.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let us = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

/// Largest resident size this process had, in bytes.
pub fn peak_rss_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split(' ').rev().nth(1));
    kib.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0) << 10
}

/// `major:minor` of the device a path lies on.
pub fn device_number(path: &Path) -> Option<(u32, u32)> {
    let dev = fs::metadata(path).ok()?.dev();
    Some((libc::major(dev), libc::minor(dev)))
}

/// Name of the device a path lies on, as in `/proc/diskstats`; `None` for none (tmpfs, overlay).
pub fn device_name(path: &Path) -> Option<String> {
    let (major, minor) = device_number(path)?;
    let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}
