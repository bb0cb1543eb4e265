//! What the system under the designs is, as people write it: which file system with which habits,
//! how it maps files, and how much memory it has for them. Pure.
//!
//! The defaults are those of [`MachineConfig::new`](crate::machine::MachineConfig::new); papers'
//! systems are in their own files.

use crate::design::spec::{YES_NO, choice, number, size};
use crate::fs::FfsParams;
use crate::name_hint::there_are;
use crate::vm::VmParams;

/// Memory of the system where only the block size of ext2 is chosen; as a machine has it.
const BUFFERS_BYTES: u64 = 128 << 20;

type Named = (&'static str, fn() -> FfsParams);

const FILE_SYSTEMS: [Named; 5] = [
    ("ufs-8k", FfsParams::ufs_8k),
    ("ffs-4k", || FfsParams { buffer_cache_bytes: BUFFERS_BYTES, ..FfsParams::bsd_4k() }),
    ("ext2-1k", || FfsParams::ext2(1 << 10, BUFFERS_BYTES)),
    ("ext2-2k", || FfsParams::ext2(2 << 10, BUFFERS_BYTES)),
    ("ext2-4k", || FfsParams::ext2(4 << 10, BUFFERS_BYTES)),
];

struct Setting<P> {
    name: &'static str,
    set: fn(&mut P, &str) -> Result<(), String>,
}

const FILES: [Setting<FfsParams>; 4] = [
    Setting {
        name: "metadata",
        set: |params, text| {
            let is_sync = choice(text, &[("sync", true), ("async", false)])?;
            params.sync_metadata = is_sync;
            Ok(())
        },
    },
    Setting {
        name: "names",
        set: |params, text| {
            number(text, 1..=1 << 24).map(|entries| params.name_cache_entries = entries)
        },
    },
    Setting {
        name: "period",
        set: |params, text| number(text, 1..=86_400).map(|s| params.sync_period_s = s),
    },
    Setting {
        name: "access-time",
        set: |params, text| choice(text, &YES_NO).map(|yes| params.update_access_time = yes),
    },
];

const MAPPED: [Setting<VmParams>; 2] = [
    Setting {
        name: "page",
        set: |params, text| size(text, 4 << 10..=64 << 10).map(|bytes| params.page_bytes = bytes),
    },
    Setting {
        name: "period",
        set: |params, text| number(text, 1..=86_400).map(|s| params.clean_period_s = s),
    },
];

/// Names of the file systems, for help texts.
pub fn file_system_names() -> impl Iterator<Item = &'static str> {
    FILE_SYSTEMS.iter().map(|(name, _)| *name)
}

/// A file system by its name, with parameters behind it: `ffs-4k:metadata=async`.
///
/// # Errors
/// What would be right.
pub fn parse_files(given: &str) -> Result<FfsParams, String> {
    let (name, parameters) = given.split_once(':').unwrap_or((given, ""));
    let found = FILE_SYSTEMS.iter().find(|(known, _)| *known == name.trim());
    let (_, make) = found.ok_or_else(|| there_are(name, file_system_names()))?;
    let mut params = make();
    apply(&mut params, parameters, &FILES)?;
    Ok(params)
}

/// How files are mapped: `page=4KiB:period=5`.
///
/// # Errors
/// What would be right.
pub fn parse_mapped(given: &str) -> Result<VmParams, String> {
    let mut params = VmParams::default();
    apply(&mut params, given, &MAPPED)?;
    Ok(params)
}

fn apply<P>(params: &mut P, given: &str, settings: &[Setting<P>]) -> Result<(), String> {
    let mut names = Vec::new();
    for part in given.split(':').filter(|part| !part.trim().is_empty()) {
        let wrong = |right: String| format!("`{part}`: {right}");
        let named = part.split_once('=').ok_or_else(|| wrong("write name=value".to_owned()))?;
        let (name, value) = (named.0.trim(), named.1.trim());
        let setting = settings
            .iter()
            .find(|setting| setting.name == name)
            .ok_or_else(|| wrong(there_are(name, settings.iter().map(|setting| setting.name))))?;
        if names.contains(&name) {
            return Err(wrong("it is given twice".to_owned()));
        }
        names.push(name);
        (setting.set)(params, value).map_err(wrong)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Drive;
    use crate::machine::MachineConfig;

    #[test]
    fn the_defaults_are_those_of_a_machine() {
        let machine = MachineConfig::new(Drive::named("atlas-10k").expect("known"));
        assert_eq!(parse_files("ufs-8k"), Ok(machine.files));
        assert_eq!(parse_mapped(""), Ok(machine.mapped));
        for name in file_system_names() {
            let params = parse_files(name).expect("named");
            params.check();
            assert_eq!(params.buffer_cache_bytes, BUFFERS_BYTES, "{name}");
        }
    }

    #[test]
    fn parameters_change_what_they_name() {
        let params = parse_files("ffs-4k:metadata=async:names=9:period=5:access-time=no");
        let wanted = FfsParams {
            sync_metadata: false,
            name_cache_entries: 9,
            sync_period_s: 5,
            update_access_time: false,
            buffer_cache_bytes: BUFFERS_BYTES,
            ..FfsParams::bsd_4k()
        };
        assert_eq!(params, Ok(wanted));
        let mapped = VmParams { page_bytes: 4 << 10, clean_period_s: 7, ..VmParams::default() };
        assert_eq!(parse_mapped("page=4KiB:period=7"), Ok(mapped));
    }

    #[test]
    fn errors_say_what_would_be_right() {
        for (given, right) in [
            ("ufs8k", "do you mean `ufs-8k`? there are ufs-8k, ffs-4k, ext2-1k"),
            ("ufs-8k:metadata", "`metadata`: write name=value"),
            ("ufs-8k:metadata=maybe", "`metadata=maybe`: write one of sync, async"),
            ("ufs-8k:name=9", "`name=9`: do you mean `names`? there are metadata, names"),
            ("ufs-8k:names=0", "`names=0`: write a whole number from 1 to 16777216"),
            ("ufs-8k:names=9:period=5:names=8", "`names=8`: it is given twice"),
        ] {
            let said = parse_files(given).expect_err(given);
            assert!(said.starts_with(right), "{given}: {said}");
        }
        let said = parse_mapped("page=5KiB").expect_err("no power of two");
        assert_eq!(said, "`page=5KiB`: write a power of two from 4KiB to 64KiB");
    }
}
