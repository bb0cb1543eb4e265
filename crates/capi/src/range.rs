//! Part of an object, pinned. The same invariant and threads as for whole objects.

use std::ffi::{c_int, c_void};

use damelo::ObjectRange;

use crate::border::{bytes, give, guard, guard_or, out, shared, slice, take};
use crate::error::Failure;
use crate::store::{DameloStore, store as store_of};

/// `damelo_range`.
pub struct DameloRange {
    range: ObjectRange,
}

/// Pins part of an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_read_range(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
    offset: u64,
    length: u64,
    out: *mut *mut DameloRange,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, std::ptr::null_mut()) }?;
        // SAFETY: by the contract of the crate.
        let (store, key) = unsafe { (store_of(store)?, bytes("key", key, key_bytes)?) };
        let wanted = offset..offset.saturating_add(length);
        let range = store.read_range(key, wanted).wait()?.ok_or_else(Failure::not_found)?;
        *place = give(DameloRange { range });
        Ok(())
    })
}

/// Ends a pin; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_range_release(range: *mut DameloRange) {
    guard_or((), || {
        if !range.is_null() {
            // SAFETY: by the contract of the crate.
            drop(unsafe { take("range", range) }?);
        }
        Ok(())
    });
}

/// The range behind a handle.
///
/// # Safety
/// The contract of the crate.
unsafe fn range_of<'a>(handle: *const DameloRange) -> Result<&'a ObjectRange, Failure> {
    // SAFETY: the same contract.
    Ok(&unsafe { shared("range", handle) }?.range)
}

/// The bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_range_data(range: *const DameloRange) -> *const c_void {
    // SAFETY: by the contract of the crate.
    guard_or(std::ptr::null(), || Ok(unsafe { range_of(range) }?.as_ptr().cast()))
}

/// How many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_range_length(range: *const DameloRange) -> usize {
    // SAFETY: by the contract of the crate.
    guard_or(0, || Ok(unsafe { range_of(range) }?.len()))
}

/// Where in the object they start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_range_offset(range: *const DameloRange) -> u64 {
    // SAFETY: by the contract of the crate.
    guard_or(0, || Ok(unsafe { range_of(range) }?.offset()))
}

/// How long the whole object is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_range_object_length(range: *const DameloRange) -> u64 {
    // SAFETY: by the contract of the crate.
    guard_or(0, || Ok(unsafe { range_of(range) }?.object_length_bytes()))
}

/// The object's metadata.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_range_metadata(
    range: *const DameloRange,
    metadata_bytes: *mut usize,
) -> *const c_void {
    guard_or(std::ptr::null(), || {
        // SAFETY: by the contract of the crate.
        unsafe {
            slice(&[], metadata_bytes);
            Ok(slice(range_of(range)?.metadata(), metadata_bytes))
        }
    })
}
