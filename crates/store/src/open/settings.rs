//! The limits of settings: checks of a `Config` that need no volume.
//!
//! Invariant: an error names the setting, its value and the limit. Threads: any; pure, except that
//! the system is asked whether it would give the memory that tables take.

use std::ops::RangeInclusive;

use crate::config::{Admission, Config, Reinsertion};
use crate::error::OpenError;
use crate::format::{PAGE_BYTES_MAX, PAGE_MIN_BYTES, SEGMENT_BYTES_MAX, VALUE_BYTES_MAX};
use crate::policy::reinsertion::REINSERT_PERCENT_LIMIT;
use crate::types::ByteSize;

const MEMORY_MIN: u64 = 4 << 20;
/// Fewest pages that memory must hold: some are always being filled, written or read into.
const MEMORY_PAGES_MIN: u64 = 16;
/// The largest size of a store on disk.
const MEMORY_MAX: u64 = 16 << 40;
/// No table takes more than this part of memory: the counters of `HitDensity` do at most.
const TABLE_SHARE: u64 = 16;
const QUEUE_DEPTH_MAX: u64 = 4096;
const GROUPS_TRACKED_MAX: u64 = 1 << 32;
// What a new store may be given; what the format can hold is more.
const PAGE_CONFIG_MIN: u64 = 16 << 10;
const PAGE_CONFIG_MAX: u64 = 1 << 20;
pub(super) const SEGMENT_CONFIG_MIN: u64 = 256 << 10;
const SEGMENT_CONFIG_MAX: u64 = 64 << 20;

// What is accepted can be written.
const _: () = {
    assert!(PAGE_CONFIG_MIN >= PAGE_MIN_BYTES as u64 && PAGE_CONFIG_MAX <= PAGE_BYTES_MAX as u64);
    assert!(SEGMENT_CONFIG_MAX <= SEGMENT_BYTES_MAX);
};

/// Checks that the volumes can be found.
pub(crate) fn validate_paths(config: &Config) -> Result<(), OpenError> {
    if config.volumes.iter().any(|volume| volume.path.as_os_str().is_empty()) {
        let (value, limit) = ("\"\"".to_owned(), "each volume has a path".to_owned());
        return Err(OpenError::Setting { setting: "volumes", value, limit });
    }
    Ok(())
}

/// Checks the settings that do not depend on the volumes.
pub(crate) fn validate(config: &Config) -> Result<(), OpenError> {
    let bad = |setting, value: String, limit: &str| {
        Err(OpenError::Setting { setting, value, limit: limit.to_owned() })
    };
    if config.volumes.is_empty() || config.volumes.len() > 64 {
        return bad("volumes", config.volumes.len().to_string(), "a store has 1 to 64 volumes");
    }
    if config.anew && config.must_exist {
        return bad("anew", "true".to_owned(), "not together with must_exist");
    }
    if config.memory.bytes() < MEMORY_MIN {
        return bad("memory", format!("{:#}", config.memory), "at least 4MiB");
    }
    if config.memory.bytes() > MEMORY_MAX {
        return bad("memory", format!("{:#}", config.memory), "at most 16TiB");
    }
    if !has_room_for_tables(config.memory.bytes()) {
        let limit = "the system has no room for the tables of so much";
        return bad("memory", format!("{:#}", config.memory), limit);
    }
    if !(1..=VALUE_BYTES_MAX).contains(&config.object_bytes_max.bytes()) {
        return bad("object_bytes_max", format!("{:#}", config.object_bytes_max), "1B to 1TiB");
    }
    check_counts(config)?;
    if let Some(page) = config.page {
        let fits = (PAGE_CONFIG_MIN..=PAGE_CONFIG_MAX).contains(&page.bytes())
            && page.bytes().is_power_of_two();
        if !fits {
            return bad("page", page.to_string(), "a power of two from 16KiB to 1MiB");
        }
        enough_memory(config, page.bytes())?;
    }
    if let Some(segment) = config.segment {
        let fits = (SEGMENT_CONFIG_MIN..=SEGMENT_CONFIG_MAX).contains(&segment.bytes())
            && segment.bytes().is_power_of_two();
        if !fits {
            return bad("segment", segment.to_string(), "a power of two from 256KiB to 64MiB");
        }
    }
    if config.fbc_count_max > 3 {
        return bad(
            "fbc_count_max",
            config.fbc_count_max.to_string(),
            "0 to 3: the index has two bits",
        );
    }
    Ok(())
}

/// Checks the settings that are counts or percentages.
fn check_counts(config: &Config) -> Result<(), OpenError> {
    let within = |setting, value: u64, limits: RangeInclusive<u64>| {
        if limits.contains(&value) {
            return Ok(());
        }
        let limit = format!("{} to {}", limits.start(), limits.end());
        Err(OpenError::Setting { setting, value: value.to_string(), limit })
    };
    // The upper limit depends on the volumes.
    within("objects_max", config.objects_max.unwrap_or(1), 1..=u64::MAX)?;
    within("queue_depth", config.queue_depth.into(), 1..=QUEUE_DEPTH_MAX)?;
    within("groups_tracked_max", config.groups_tracked_max as u64, 0..=GROUPS_TRACKED_MAX)?;
    let percent_max = REINSERT_PERCENT_LIMIT.into();
    within("reinsert_percent_max", config.reinsert_percent_max.into(), 0..=percent_max)?;
    if let Reinsertion::Used { hits_min } = config.reinsertion {
        within("reinsertion.hits_min", hits_min.into(), 1..=3)?;
    }
    match config.admission {
        Admission::Probability { percent } => {
            within("admission.percent", percent.into(), 0..=100)?;
        }
        Admission::WriteBudget { window, .. } if window.is_zero() => {
            let (value, limit) = (format!("{window:?}"), "a time above zero".to_owned());
            return Err(OpenError::Setting { setting: "admission.window", value, limit });
        }
        _ => {}
    }
    Ok(())
}

/// Whether the system would give the largest of the tables that so much memory needs. It is asked
/// beforehand, as a table that cannot be allocated ends the process, and in C that of the caller.
fn has_room_for_tables(memory_bytes: u64) -> bool {
    let largest = usize::try_from(memory_bytes / TABLE_SHARE).unwrap_or(usize::MAX);
    Vec::<u8>::new().try_reserve_exact(largest).is_ok()
}

/// Checks that memory holds as many pages as are in use at once.
pub(super) fn enough_memory(config: &Config, page_bytes: u64) -> Result<(), OpenError> {
    let min = page_bytes * MEMORY_PAGES_MIN;
    if config.memory.bytes() >= min {
        return Ok(());
    }
    Err(OpenError::Setting {
        setting: "memory",
        value: format!("{:#}", config.memory),
        limit: format!("at least {} with pages this large", ByteSize::new(min)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than any address space holds.
    #[test]
    fn tables_that_no_system_has_room_for_are_seen_beforehand() {
        assert!(has_room_for_tables(MEMORY_MIN));
        assert!(!has_room_for_tables(1 << 62));
    }
}
