//! Objects in memory: create, read, remove, and the pinned object a read gives.
//!
//! Invariant: the bytes behind a `damelo_object` stay where they are until it is released, also
//! when the object is replaced or removed or the store closed. Threads: a pin is read by many.

use std::ffi::{c_int, c_void};

use damelo::{CreateOptions, GroupId, Object};

use crate::border::{bytes, expiry, give, guard, guard_or, out, shared, slice, take};
use crate::error::Failure;
use crate::store::{DameloStore, store as store_of};

/// `damelo_object`.
pub struct DameloObject {
    object: Object,
}

/// Stores an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_create(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
    group: u64,
    value: *const c_void,
    value_bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let (store, key, value) = unsafe {
            (store_of(store)?, bytes("key", key, key_bytes)?, bytes("value", value, value_bytes)?)
        };
        Ok(store.create(key, GroupId::new(group), value).wait()?)
    })
}

/// Stores an object with metadata and expiry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_create_with(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
    group: u64,
    value: *const c_void,
    value_bytes: usize,
    metadata: *const c_void,
    metadata_bytes: usize,
    expires_unix_s: u64,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let (store, key, value, metadata) = unsafe {
            (
                store_of(store)?,
                bytes("key", key, key_bytes)?,
                bytes("value", value, value_bytes)?,
                bytes("metadata", metadata, metadata_bytes)?,
            )
        };
        let options = CreateOptions { metadata, expires_unix_s: expiry(expires_unix_s) };
        Ok(store.create_with(key, GroupId::new(group), value, options).wait()?)
    })
}

/// Pins an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_read(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
    out: *mut *mut DameloObject,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, std::ptr::null_mut()) }?;
        // SAFETY: by the contract of the crate.
        let (store, key) = unsafe { (store_of(store)?, bytes("key", key, key_bytes)?) };
        let object = store.read(key).wait()?.ok_or_else(Failure::not_found)?;
        *place = give(DameloObject { object });
        Ok(())
    })
}

/// Deletes an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_remove(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let (store, key) = unsafe { (store_of(store)?, bytes("key", key, key_bytes)?) };
        if store.remove(key)? { Ok(()) } else { Err(Failure::not_found()) }
    })
}

/// Ends a pin; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_object_release(object: *mut DameloObject) {
    guard_or((), || {
        if !object.is_null() {
            // SAFETY: by the contract of the crate.
            drop(unsafe { take("object", object) }?);
        }
        Ok(())
    });
}

/// The object behind a handle.
///
/// # Safety
/// The contract of the crate.
unsafe fn object_of<'a>(handle: *const DameloObject) -> Result<&'a Object, Failure> {
    // SAFETY: the same contract.
    Ok(&unsafe { shared("object", handle) }?.object)
}

/// A second pin.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_object_clone(object: *const DameloObject) -> *mut DameloObject {
    guard_or(std::ptr::null_mut(), || {
        // SAFETY: by the contract of the crate.
        let object = unsafe { object_of(object) }?.clone();
        Ok(give(DameloObject { object }))
    })
}

/// The bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_object_data(object: *const DameloObject) -> *const c_void {
    // SAFETY: by the contract of the crate.
    guard_or(std::ptr::null(), || Ok(unsafe { object_of(object) }?.as_ptr().cast()))
}

/// How many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_object_length(object: *const DameloObject) -> usize {
    // SAFETY: by the contract of the crate.
    guard_or(0, || Ok(unsafe { object_of(object) }?.len()))
}

/// The key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_object_key(
    object: *const DameloObject,
    key_bytes: *mut usize,
) -> *const c_void {
    // SAFETY: by the contract of the crate.
    unsafe { field(object, key_bytes, Object::key) }
}

/// The metadata.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_object_metadata(
    object: *const DameloObject,
    metadata_bytes: *mut usize,
) -> *const c_void {
    // SAFETY: by the contract of the crate.
    unsafe { field(object, metadata_bytes, Object::metadata) }
}

/// A part of the object that is bytes.
///
/// # Safety
/// The contract of the crate.
unsafe fn field(
    object: *const DameloObject,
    length: *mut usize,
    part: impl FnOnce(&Object) -> &[u8],
) -> *const c_void {
    guard_or(std::ptr::null(), || {
        // SAFETY: by the contract of the crate.
        unsafe {
            slice(&[], length);
            Ok(slice(part(object_of(object)?), length))
        }
    })
}

/// The group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_object_group(object: *const DameloObject) -> u64 {
    // SAFETY: by the contract of the crate.
    guard_or(0, || Ok(unsafe { object_of(object) }?.group().get()))
}

/// The expiry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_object_expires(object: *const DameloObject) -> u64 {
    // SAFETY: by the contract of the crate.
    guard_or(0, || Ok(unsafe { object_of(object) }?.expires_unix_s().unwrap_or(0)))
}

/// Whether the read cost no I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_object_from_memory(object: *const DameloObject) -> c_int {
    // SAFETY: by the contract of the crate.
    guard_or(0, || Ok(c_int::from(unsafe { object_of(object) }?.from_memory())))
}
