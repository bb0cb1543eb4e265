//! Counters of disk traffic: of the store's devices, of this process and of a whole block device.
//! Each is a running total; a benchmark takes the difference over a stage. A counter that the
//! system does not provide is `None`, never zero.

use std::fs;
use std::os::linux::fs::MetadataExt as _;
use std::path::Path;

use damelo::device::DeviceStats;
use serde::{Deserialize, Serialize};

/// Bytes of a sector in the kernel's block statistics, independent of the device's sector size.
const SECTOR_BYTES: u64 = 512;

/// Reads and writes, as counts and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskCounters {
    /// Reads.
    pub(crate) reads: Option<u64>,
    /// Bytes read.
    pub(crate) read_bytes: Option<u64>,
    /// Writes.
    pub(crate) writes: Option<u64>,
    /// Bytes written.
    pub(crate) write_bytes: Option<u64>,
}

impl DiskCounters {
    /// The difference since `before`.
    pub(crate) fn since(self, before: DiskCounters) -> DiskCounters {
        let minus = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        DiskCounters {
            reads: minus(self.reads, before.reads),
            read_bytes: minus(self.read_bytes, before.read_bytes),
            writes: minus(self.writes, before.writes),
            write_bytes: minus(self.write_bytes, before.write_bytes),
        }
    }
}

/// Counters of the block device that holds `path`, all processes together (`/proc/diskstats`).
pub(crate) fn device_counters(path: &Path) -> DiskCounters {
    let counters = || {
        let device = fs::metadata(path).ok()?.st_dev();
        let stats = fs::read_to_string("/proc/diskstats").ok()?;
        parse_diskstats(&stats, libc::major(device), libc::minor(device))
    };
    counters().unwrap_or_default()
}

/// Fields after major, minor and name: reads, merged, sectors read, ms, writes, merged, sectors.
fn parse_diskstats(stats: &str, major: u32, minor: u32) -> Option<DiskCounters> {
    let (major, minor) = (major.to_string(), minor.to_string());
    let fields: Vec<&str> =
        stats
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|fields| fields.len() > 9 && fields[0] == major && fields[1] == minor)?;
    let number = |i: usize| fields[i].parse::<u64>().ok();
    Some(DiskCounters {
        reads: number(3),
        read_bytes: number(5).map(|sectors| sectors * SECTOR_BYTES),
        writes: number(7),
        write_bytes: number(9).map(|sectors| sectors * SECTOR_BYTES),
    })
}

/// Bytes read from disk for this process (`/proc/self/io`).
pub(crate) fn process_read_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
}

/// Counters of a store's devices together.
pub(crate) fn store_counters(store: &damelo::Store) -> DiskCounters {
    let devices = store.stats().devices;
    let sum = |field: fn(&DeviceStats) -> u64| Some(devices.iter().map(field).sum());
    DiskCounters {
        reads: sum(|device| device.reads),
        read_bytes: sum(|device| device.read_bytes),
        writes: sum(|device| device.writes),
        write_bytes: sum(|device| device.write_bytes),
    }
}

/// Resident memory of this process in bytes (`VmRSS`).
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_device_is_found() {
        let stats = "   7  0 loop0 0 0 0 0 0 0 0 0\n 254  0 vda 10 1 80 4 20 2 160 9 0 1 2\n";
        let counters = parse_diskstats(stats, 254, 0).unwrap();
        assert_eq!((counters.reads, counters.read_bytes), (Some(10), Some(40960)));
        assert_eq!((counters.writes, counters.write_bytes), (Some(20), Some(81920)));
        assert!(parse_diskstats(stats, 8, 0).is_none());
    }

    #[test]
    fn differences_of_unknowns_are_unknown() {
        let known = DiskCounters { reads: Some(5), ..DiskCounters::default() };
        let later = DiskCounters { reads: Some(9), read_bytes: Some(1), ..known };
        let delta = later.since(known);
        assert_eq!((delta.reads, delta.read_bytes), (Some(4), None));
    }

    #[test]
    fn this_process_has_memory() {
        assert!(resident_bytes().unwrap() > 0);
    }
}
