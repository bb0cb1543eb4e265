//! What is known of an object without reading its bytes, and its metadata. Any thread.

use std::ffi::{c_int, c_void};

use damelo::ObjectInfo;

use crate::border::{bytes, expiry, guard, number, out};
use crate::error::Failure;
use crate::status::Status;
use crate::store::{DameloStore, store as store_of};

/// `damelo_info`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in damelo.h")]
pub struct DameloInfo {
    pub group: u64,
    pub length_bytes: u64,
    pub metadata_bytes: u64,
    pub expires_unix_s: u64,
    pub resident: u64,
    pub reserved: [u64; 3],
}

impl From<&ObjectInfo> for DameloInfo {
    fn from(info: &ObjectInfo) -> DameloInfo {
        DameloInfo {
            group: info.group.get(),
            length_bytes: info.length_bytes,
            metadata_bytes: number(info.metadata.len()),
            expires_unix_s: info.expires_unix_s.unwrap_or(0),
            resident: u64::from(info.resident),
            reserved: [0; 3],
        }
    }
}

/// What is known of an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_lookup(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
    out: *mut DameloInfo,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, DameloInfo::default()) }?;
        // SAFETY: by the contract of the crate.
        let (store, key) = unsafe { (store_of(store)?, bytes("key", key, key_bytes)?) };
        let info = store.lookup(key).wait()?.ok_or_else(Failure::not_found)?;
        *place = DameloInfo::from(&info);
        Ok(())
    })
}

/// An object's length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_length(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
    out: *mut u64,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, 0) }?;
        // SAFETY: by the contract of the crate.
        let (store, key) = unsafe { (store_of(store)?, bytes("key", key, key_bytes)?) };
        *place = store.length(key).wait()?.ok_or_else(Failure::not_found)?;
        Ok(())
    })
}

/// Whether an object may be there, without I/O.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_may_contain(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
    out: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, 0) }?;
        // SAFETY: by the contract of the crate.
        let (store, key) = unsafe { (store_of(store)?, bytes("key", key, key_bytes)?) };
        *place = c_int::from(store.may_contain(key));
        Ok(())
    })
}

/// Copies an object's metadata out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_get_metadata(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
    buffer: *mut c_void,
    capacity: usize,
    metadata_bytes: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let length = unsafe { self::out("metadata_bytes", metadata_bytes, 0) }?;
        // SAFETY: by the contract of the crate.
        let (store, key) = unsafe { (store_of(store)?, bytes("key", key, key_bytes)?) };
        if buffer.is_null() && capacity != 0 {
            return Err(Failure::invalid(format!("buffer is null, its capacity {capacity}")));
        }
        let metadata = store.lookup(key).wait()?.ok_or_else(Failure::not_found)?.metadata;
        *length = metadata.len();
        if metadata.len() > capacity {
            let detail = format!("{} bytes of metadata, room for {capacity}", metadata.len());
            return Err(Failure::new(Status::Buffer, detail));
        }
        if !metadata.is_empty() {
            // SAFETY: the buffer is not null and holds `capacity` bytes by the contract of the
            // crate; it cannot overlap memory of the store, which C may not write to.
            unsafe { std::ptr::copy(metadata.as_ptr(), buffer.cast(), metadata.len()) };
        }
        Ok(())
    })
}

/// Replaces an object's metadata.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_set_metadata(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
    metadata: *const c_void,
    metadata_bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let (store, key, metadata) = unsafe {
            (
                store_of(store)?,
                bytes("key", key, key_bytes)?,
                bytes("metadata", metadata, metadata_bytes)?,
            )
        };
        if store.set_metadata(key, metadata).wait()? { Ok(()) } else { Err(Failure::not_found()) }
    })
}

/// Replaces an object's metadata and its expiry.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_set_metadata_with(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
    metadata: *const c_void,
    metadata_bytes: usize,
    expires_unix_s: u64,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let (store, key, metadata) = unsafe {
            (
                store_of(store)?,
                bytes("key", key, key_bytes)?,
                bytes("metadata", metadata, metadata_bytes)?,
            )
        };
        match store.set_metadata_with(key, metadata, expiry(expires_unix_s)).wait()? {
            true => Ok(()),
            false => Err(Failure::not_found()),
        }
    })
}
