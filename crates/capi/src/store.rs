//! A store: open, close, and what concerns it as a whole. Threads: any number at once, except that
//! closing must be the last use.

use std::ffi::c_int;

use damelo::{GroupId, Store};

use crate::border::{give, guard, millis, number, out, shared, take};
use crate::error::Failure;
use crate::options::DameloOptions;

/// `damelo_store`.
pub struct DameloStore {
    pub(crate) store: Store,
}

/// The store behind a handle.
///
/// # Safety
/// The contract of the crate.
pub(crate) unsafe fn store<'a>(handle: *const DameloStore) -> Result<&'a Store, Failure> {
    // SAFETY: the same contract.
    Ok(&unsafe { shared("store", handle) }?.store)
}

/// Opens a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_open(
    options: *const DameloOptions,
    out: *mut *mut DameloStore,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, std::ptr::null_mut()) }?;
        // SAFETY: by the contract of the crate.
        let options = unsafe { shared("options", options) }?;
        *place = give(DameloStore { store: Store::open(options.config.clone())? });
        Ok(())
    })
}

/// Closes and frees a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_close(store: *mut DameloStore) -> c_int {
    guard(|| {
        if store.is_null() {
            return Ok(());
        }
        // SAFETY: by the contract of the crate.
        let handle = unsafe { take("store", store) }?;
        Ok(handle.store.close()?)
    })
}

/// Waits until everything is on disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_sync(store: *mut DameloStore) -> c_int {
    // SAFETY: by the contract of the crate.
    guard(|| Ok(unsafe { self::store(store) }?.sync()?))
}

/// Waits until what was removed and purged is durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_sync_removes(store: *mut DameloStore) -> c_int {
    // SAFETY: by the contract of the crate.
    guard(|| Ok(unsafe { self::store(store) }?.sync_removes()?))
}

/// Writes an index checkpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_checkpoint(store: *mut DameloStore) -> c_int {
    // SAFETY: by the contract of the crate.
    guard(|| Ok(unsafe { self::store(store) }?.checkpoint()?))
}

/// Sets how long a group's objects may stay only in memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_set_flush_period(
    store: *mut DameloStore,
    group: u64,
    period_ms: u64,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        unsafe { self::store(store) }?.set_flush_period(GroupId::new(group), millis(period_ms));
        Ok(())
    })
}

/// Forgets what is in memory and also on disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_drop_memory(store: *mut DameloStore) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        unsafe { self::store(store) }?.drop_memory();
        Ok(())
    })
}

/// `damelo_recovery_progress`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in damelo.h")]
pub struct DameloRecoveryProgress {
    pub done: u64,
    pub segments_wanted: u64,
    pub segments_loaded: u64,
    pub objects_loaded: u64,
    pub reserved: [u64; 4],
}

/// How far loading has come.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_recovery(
    store: *const DameloStore,
    out: *mut DameloRecoveryProgress,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, DameloRecoveryProgress::default()) }?;
        // SAFETY: by the contract of the crate.
        let progress = unsafe { self::store(store) }?.recovery();
        *place = DameloRecoveryProgress {
            done: u64::from(progress.done),
            segments_wanted: number(progress.segments_wanted),
            segments_loaded: number(progress.segments_loaded),
            objects_loaded: number(progress.objects_loaded),
            reserved: [0; 4],
        };
        Ok(())
    })
}

/// Waits until everything is loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_wait_recovered(store: *const DameloStore) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        unsafe { self::store(store) }?.wait_recovered();
        Ok(())
    })
}
