//! Options: a `damelo::Config` being filled in. Every setter checks its own value; what only the
//! whole can show is refused by `damelo_open`. Threads: one at a time.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use damelo::{
    Admission, ByteSize, Config, DiskPolicyKind, Durability, IoEngine, Reinsertion,
    ResidencyPolicyKind, VolumeConfig, WhenMemoryFull,
};

use crate::border::{choice, exclusive, give, guard, guard_or, millis, take, text};
use crate::error::Failure;

/// `damelo_options`.
#[derive(Debug)]
pub struct DameloOptions {
    pub(crate) config: Config,
}

/// A path as C says it.
pub(crate) fn path(bytes: &[u8]) -> Result<PathBuf, Failure> {
    if bytes.is_empty() {
        return Err(Failure::invalid("the path is empty"));
    }
    Ok(PathBuf::from(OsStr::from_bytes(bytes)))
}

/// A store on one volume; size 0 declares none.
pub(crate) fn config(path: PathBuf, size_bytes: u64) -> Config {
    match size_bytes {
        0 => Config::existing(path),
        size => Config::new(path, ByteSize::new(size)),
    }
}

/// What `damelo_open` would refuse of settings that are narrower than their arguments.
const REINSERT_PERCENT_LIMIT: u32 = 90;
const FBC_COUNT_LIMIT: u32 = 3;

fn at_most(what: &str, value: u32, limit: u32) -> Result<u32, Failure> {
    match value {
        value if value <= limit => Ok(value),
        _ => Err(Failure::invalid(format!("{what} is {limit} at most, not {value}"))),
    }
}

fn size(bytes: u64) -> Option<ByteSize> {
    (bytes != 0).then_some(ByteSize::new(bytes))
}

/// Changes one thing in the options.
///
/// # Safety
/// The contract of the crate.
unsafe fn change(
    options: *mut DameloOptions,
    apply: impl FnOnce(&mut Config) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // SAFETY: by the contract of the crate; options belong to one thread.
    apply(&mut unsafe { exclusive("options", options) }?.config)
}

/// Options for a store on one volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_options_new(
    path: *const c_char,
    size_bytes: u64,
) -> *mut DameloOptions {
    guard_or(std::ptr::null_mut(), || {
        // SAFETY: by the contract of the crate.
        let path = self::path(unsafe { text("path", path) }?)?;
        Ok(give(DameloOptions { config: config(path, size_bytes) }))
    })
}

/// Frees options; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_options_free(options: *mut DameloOptions) {
    guard_or((), || {
        if !options.is_null() {
            // SAFETY: by the contract of the crate.
            drop(unsafe { take("options", options) }?);
        }
        Ok(())
    });
}

/// Adds a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_options_add_volume(
    options: *mut DameloOptions,
    path: *const c_char,
    size_bytes: u64,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let path = self::path(unsafe { text("path", path) }?)?;
        // SAFETY: by the contract of the crate.
        unsafe {
            change(options, |config| {
                config.volumes.push(VolumeConfig { path, size: size(size_bytes) });
                Ok(())
            })
        }
    })
}

/// A setter of one value: `name(argument: type, ...) |config| change`.
macro_rules! setters {
    ($($(#[doc = $doc:literal])* $name:ident($($argument:ident: $type:ty),*) |$config:ident| $body:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(options: *mut DameloOptions, $($argument: $type),*) -> c_int {
                guard(|| {
                    // SAFETY: by the contract of the crate.
                    unsafe {
                        change(options, |$config| {
                            $body;
                            Ok(())
                        })
                    }
                })
            }
        )*
    };
}

setters! {
    /// Memory for data.
    damelo_options_set_memory(bytes: u64) |config| config.memory = ByteSize::new(bytes);
    /// Room in the index of a new store.
    damelo_options_set_objects_max(objects: u64) |config|
        config.objects_max = (objects != 0).then_some(objects);
    /// Largest object accepted.
    damelo_options_set_object_bytes_max(bytes: u64) |config| config.object_bytes_max = ByteSize::new(bytes);
    /// Page size of a new store.
    damelo_options_set_page(bytes: u64) |config| config.page = size(bytes);
    /// Segment size of a new store.
    damelo_options_set_segment(bytes: u64) |config| config.segment = size(bytes);
    /// How long acknowledged deletes last.
    damelo_options_set_durability(durability: c_int) |config|
        config.durability = choice(
            "durability",
            durability,
            &[Durability::None, Durability::Flushed, Durability::Synced],
        )?;
    /// What performs disk I/O.
    damelo_options_set_io_engine(io_engine: c_int) |config|
        config.io_engine =
            choice("io_engine", io_engine, &[IoEngine::Auto, IoEngine::IoUring, IoEngine::Threads])?;
    /// Whether to bypass the page cache.
    damelo_options_set_direct(direct: c_int) |config| config.direct = direct != 0;
    /// Whether to overwrite something else.
    damelo_options_set_force(force: c_int) |config| config.force = force != 0;
    /// Whether to make a new store even where there is one.
    damelo_options_set_anew(anew: c_int) |config| config.anew = anew != 0;
    /// Whether to refuse to make a store.
    damelo_options_set_must_exist(must_exist: c_int) |config| config.must_exist = must_exist != 0;
    /// Whether to open a store without volumes that are missing.
    damelo_options_set_without_missing(without_missing: c_int) |config|
        config.without_missing = without_missing != 0;
    /// I/Os at the device at once.
    damelo_options_set_queue_depth(depth: u32) |config| {
        if depth == 0 {
            return Err(Failure::invalid("the queue depth cannot be 0"));
        }
        config.queue_depth = depth;
    };
    /// Whether the disks have seeks.
    damelo_options_set_seeks(seeks: c_int) |config| {
        config.seeks = choice("seeks", seeks, &[None, Some(false), Some(true)])?;
    };
    /// What happens when readers hold all memory.
    damelo_options_set_when_memory_full(what: c_int, wait_ms: u64) |config| {
        config.when_memory_full =
            choice("what", what, &[WhenMemoryFull::Wait, WhenMemoryFull::Refuse])?;
        config.memory_wait = millis(wait_ms);
    };
    /// How long a create waits for memory or the disk.
    damelo_options_set_create_wait(wait_ms: u64) |config| {
        config.create_wait = Some(millis(wait_ms));
    };
    /// Which objects stay in memory.
    damelo_options_set_residency(policy: c_int) |config| {
        use ResidencyPolicyKind::{Clock, HitDensity, Lru, S3Fifo};
        config.residency = choice("residency", policy, &[S3Fifo, Lru, Clock, HitDensity])?;
    };
    /// Which objects survive a turn of the ring.
    damelo_options_set_disk_policy(policy: c_int) |config| {
        use DiskPolicyKind::{Fbc, Fifo, LfuAging, Lru};
        config.disk_policy = choice("disk policy", policy, &[Fbc, LfuAging, Lru, Fifo])?;
    };
    /// Which new objects are written.
    damelo_options_set_admission(policy: c_int, number: u64) |config| {
        let percent = u32::try_from(number).unwrap_or(u32::MAX);
        let rules = [
            Admission::Always,
            Admission::SecondHit,
            Admission::write_rate(number),
            Admission::SizeMax { bytes: number },
            Admission::Probability { percent: percent.min(100) as u8 },
        ];
        let rule = choice("admission", policy, &rules)?;
        if matches!(rule, Admission::Probability { .. }) {
            at_most("the percentage of admitted objects", percent, 100)?;
        }
        config.admission = rule;
    };
    /// Bytes that are written in a time.
    damelo_options_set_write_budget(bytes: u64, window_ms: u64) |config| {
        if window_ms == 0 {
            return Err(Failure::invalid("a write budget is one of a time above zero"));
        }
        config.admission = Admission::WriteBudget { bytes, window: millis(window_ms) };
    };
    /// What is written again of what survives.
    damelo_options_set_reinsertion(policy: c_int) |config| {
        let used = |hits_min| Reinsertion::Used { hits_min };
        let rules = [Reinsertion::Worthy, used(1), used(2), used(3), Reinsertion::Never];
        config.reinsertion = choice("reinsertion", policy, &rules)?;
    };
    /// Least time between index checkpoints.
    damelo_options_set_checkpoint_period(period_ms: u64) |config|
        config.checkpoint_period = millis(period_ms);
    /// Longest time an object stays only in memory.
    damelo_options_set_flush_period(period_ms: u64) |config|
        config.flush_period = millis(period_ms);
    /// Share of a reused segment that may be written again.
    damelo_options_set_reinsert_percent_max(percent: u32) |config|
        config.reinsert_percent_max =
            at_most("the share of a reused segment that is written again", percent, REINSERT_PERCENT_LIMIT)? as u8;
    /// FBC: hits counted per object at most.
    damelo_options_set_fbc_count_max(count: u32) |config|
        config.fbc_count_max = at_most("the count of hits", count, FBC_COUNT_LIMIT)? as u8;
    /// FBC: mean count above which counts are halved.
    damelo_options_set_fbc_average_max_percent(percent: u32) |config|
        config.fbc_average_max_percent = percent;
    /// Groups that are remembered at once.
    damelo_options_set_groups_tracked_max(groups: u64) |config|
        config.groups_tracked_max = usize::try_from(groups).unwrap_or(usize::MAX);
    /// Consecutive errors after which a volume is taken out of service.
    damelo_options_set_volume_errors_max(errors: u32) |config| {
        if errors == 0 {
            return Err(Failure::invalid("a volume without errors stays in service"));
        }
        config.volume_errors_max = errors;
    };
    /// How long a volume may answer no read before it is asked no more.
    damelo_options_set_answer_wait(wait_ms: u64) |config| config.answer_wait = millis(wait_ms);
    /// How long the open waits for recovery.
    damelo_options_set_open_wait(wait_ms: u64) |config| config.open_wait = millis(wait_ms);
}
