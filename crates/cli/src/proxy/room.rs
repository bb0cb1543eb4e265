//! Checks at start whether the configured memory is available, since the system would later kill a
//! process that exceeds it without explanation.
//!
//! Owns nothing; reads `/proc/meminfo` and the limits of the process's own cgroups, v1 and v2.
//! Where these cannot be read it prints no warning. Threads: the caller's.

use std::fs;
use std::path::Path;

use damelo::{ByteSize, StoreInfo};

/// Memory that the program needs beside the store, without connections.
const PROGRAM_BYTES: u64 = 30 << 20;

const CGROUPS: &str = "/sys/fs/cgroup";

/// Memory that the system grants this process.
#[derive(Debug, PartialEq, Eq)]
struct Granted {
    bytes: u64,
    by: &'static str,
}

/// A warning if the store and the program need more memory than is granted.
pub(crate) fn warning(info: &StoreInfo) -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| of_machine(&text));
    let granted = of_cgroups(Path::new(CGROUPS), &groups).into_iter().chain(machine);
    too_little(info.memory_bytes, info.index_bytes, &granted.min_by_key(|granted| granted.bytes)?)
}

fn too_little(memory_bytes: u64, index_bytes: u64, granted: &Granted) -> Option<String> {
    let wanted = memory_bytes.saturating_add(index_bytes).saturating_add(PROGRAM_BYTES);
    let size = ByteSize::new;
    (wanted > granted.bytes).then(|| {
        format!(
            "memory = {}, with an index of {} and the program itself, comes to {}, and {} has {}: the \
             system will end the process when it is used; set `memory` lower",
            size(memory_bytes),
            size(index_bytes),
            size(wanted),
            granted.by,
            size(granted.bytes)
        )
    })
}

fn of_machine(meminfo: &str) -> Option<Granted> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Granted { bytes: kib.saturating_mul(1024), by: "this machine" })
}

/// The lowest memory limit of the cgroups that the process is in. `text` is `/proc/self/cgroup`:
/// one line per hierarchy with number, controllers (empty in version 2) and path. A group's limit
/// also applies to its descendants, so every ancestor is read. In a container the path may be the
/// host's, and the mount's root may be the process's own group.
fn of_cgroups(root: &Path, text: &str) -> Option<Granted> {
    let mut lowest = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (base, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        for above in Path::new(path.trim_start_matches('/')).ancestors() {
            let limit = fs::read_to_string(base.join(above).join(file)).ok();
            // `max` means no limit; it does not parse.
            let limit = limit.and_then(|text| text.trim().parse::<u64>().ok());
            lowest = limit.into_iter().chain(lowest).min();
        }
    }
    lowest.map(|bytes| Granted { bytes, by: "the cgroup" })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_lowest_limit_of_the_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let limit = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let found = |text: &str| of_cgroups(root.path(), text).map(|granted| granted.bytes);
        assert_eq!(found("0::/a/b\n"), None);
        limit("a/b/memory.max", "max\n");
        limit("a/memory.max", "104857600\n");
        assert_eq!(found("0::/a/b\n"), Some(100 * MIB));
        limit("a/b/memory.max", "1048576\n");
        assert_eq!(found("0::/a/b\n"), Some(MIB));
        limit("memory/memory.limit_in_bytes", "9223372036854771712\n");
        limit("memory/old/memory.limit_in_bytes", "2097152\n");
        assert_eq!(found("9:cpu:/a\n4:memory,x:/old\nnonsense\n"), Some(2 * MIB));
        assert_eq!(found("4:memory:/on/the/host\n"), Some(9_223_372_036_854_771_712));
    }

    #[test]
    fn a_warning_has_both_numbers_and_the_key() {
        let machine = of_machine("MemFree: 1 kB\nMemTotal:       262144 kB\n").unwrap();
        assert_eq!(machine, Granted { bytes: 256 * MIB, by: "this machine" });
        assert_eq!(too_little(200 * MIB, 26 * MIB, &machine), None);
        let said = too_little(256 * MIB, 8 * MIB, &machine).unwrap();
        for part in ["294MiB", "this machine has 256MiB", "`memory`"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(too_little(u64::MAX, 1, &machine).is_some());
    }
}
