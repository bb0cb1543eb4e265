//! Groups: hints, prefetch, statistics and purges. Any thread.

use std::ffi::{c_int, c_void};

use damelo::{GroupId, Hint};

use crate::border::{bytes, guard, guard_or, number, out};
use crate::error::Failure;
use crate::status::Status;
use crate::store::{DameloStore, store as store_of};

/// The group of a name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_group_of(name: *const c_void, name_bytes: usize) -> u64 {
    // SAFETY: by the contract of the crate.
    guard_or(0, || Ok(GroupId::of(unsafe { bytes("name", name, name_bytes) }?).get()))
}

/// Keep this group's objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_love(store: *mut DameloStore, group: u64) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        unsafe { store_of(store) }?.love(GroupId::new(group));
        Ok(())
    })
}

/// Let this group's objects go first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_hate(store: *mut DameloStore, group: u64) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        unsafe { store_of(store) }?.hate(GroupId::new(group));
        Ok(())
    })
}

/// Neither.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_neutral(store: *mut DameloStore, group: u64) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        unsafe { store_of(store) }?.neutral(GroupId::new(group));
        Ok(())
    })
}

/// Brings a group into memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_prefetch(
    store: *mut DameloStore,
    group: u64,
    pages: *mut u64,
    bytes: *mut u64,
) -> c_int {
    guard(|| {
        let (mut pages_unwanted, mut bytes_unwanted) = (0, 0);
        let pages = if pages.is_null() { &raw mut pages_unwanted } else { pages };
        let bytes = if bytes.is_null() { &raw mut bytes_unwanted } else { bytes };
        // SAFETY: by the contract of the crate, or one of the two above.
        let (pages, bytes) = unsafe { (out("pages", pages, 0)?, out("bytes", bytes, 0)?) };
        // SAFETY: by the contract of the crate.
        let report = unsafe { store_of(store) }?.prefetch(GroupId::new(group)).wait()?;
        *pages = number(report.pages);
        *bytes = number(report.bytes);
        Ok(())
    })
}

/// `damelo_group_stats`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in damelo.h")]
pub struct DameloGroupStats {
    pub objects_created: u64,
    pub bytes_created: u64,
    pub disk_reads: u64,
    pub page_reads: u64,
    pub prefetched: u64,
    pub prefetch_hits: u64,
    pub pages_known: u64,
    pub hint: u64,
    pub reserved: [u64; 4],
}

/// The number in `enum damelo_hint`.
fn hint_number(hint: Hint) -> u64 {
    match hint {
        Hint::Neutral => 0,
        Hint::Loved => 1,
        Hint::Hated => 2,
    }
}

/// What is known of a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_get_group_stats(
    store: *const DameloStore,
    group: u64,
    out: *mut DameloGroupStats,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, DameloGroupStats::default()) }?;
        // SAFETY: by the contract of the crate.
        let stats = unsafe { store_of(store) }?
            .group_stats(GroupId::new(group))
            .ok_or_else(|| Failure::new(Status::NotFound, format!("group {group} is unknown")))?;
        *place = DameloGroupStats {
            objects_created: number(stats.objects_created),
            bytes_created: number(stats.bytes_created),
            disk_reads: number(stats.disk_reads),
            page_reads: number(stats.page_reads),
            prefetched: number(stats.prefetched),
            prefetch_hits: number(stats.prefetch_hits),
            pages_known: number(stats.pages_known),
            hint: hint_number(stats.hint),
            reserved: [0; 4],
        };
        Ok(())
    })
}

/// Drops a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_purge_group(store: *mut DameloStore, group: u64) -> c_int {
    // SAFETY: by the contract of the crate.
    guard(|| Ok(unsafe { store_of(store) }?.purge_group(GroupId::new(group))?))
}

/// Drops the keys with a prefix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_purge_prefix(
    store: *mut DameloStore,
    prefix: *const c_void,
    prefix_bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let (store, prefix) = unsafe { (store_of(store)?, bytes("prefix", prefix, prefix_bytes)?) };
        Ok(store.purge_prefix(prefix)?)
    })
}

/// Drops everything.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_purge_all(store: *mut DameloStore) -> c_int {
    // SAFETY: by the contract of the crate.
    guard(|| Ok(unsafe { store_of(store) }?.purge_all()?))
}
