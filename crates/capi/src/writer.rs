//! Writing an object bit by bit. Threads: one at a time for each writer.

use std::ffi::{c_int, c_void};

use damelo::{CreateError, GroupId, Writer, WriterOptions};

use crate::border::{bytes, exclusive, expiry, give, guard, guard_or, out, take};
use crate::store::{DameloStore, store as store_of};

/// `damelo_writer`.
pub struct DameloWriter {
    writer: Writer,
    /// A write was refused here, before the writer heard of it: what it has is not the whole
    /// object.
    is_torn: bool,
}

/// `DAMELO_LENGTH_UNKNOWN`.
const LENGTH_UNKNOWN: u64 = u64::MAX;

/// Begins an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_writer_open(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
    group: u64,
    metadata: *const c_void,
    metadata_bytes: usize,
    expires_unix_s: u64,
    length_hint: u64,
    out: *mut *mut DameloWriter,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, std::ptr::null_mut()) }?;
        // SAFETY: by the contract of the crate.
        let (store, key, metadata) = unsafe {
            (
                store_of(store)?,
                bytes("key", key, key_bytes)?,
                bytes("metadata", metadata, metadata_bytes)?,
            )
        };
        let options = WriterOptions {
            metadata: metadata.to_vec(),
            expires_unix_s: expiry(expires_unix_s),
            length: (length_hint != LENGTH_UNKNOWN).then_some(length_hint),
        };
        let writer = store.writer(key, GroupId::new(group), options)?;
        *place = give(DameloWriter { writer, is_torn: false });
        Ok(())
    })
}

/// Appends to the object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_writer_write(
    writer: *mut DameloWriter,
    data: *const c_void,
    data_bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate; a writer belongs to one thread.
        let (handle, data) =
            unsafe { (exclusive("writer", writer)?, bytes("data", data, data_bytes)) };
        if handle.is_torn {
            return Err(CreateError::Torn.into());
        }
        handle.is_torn = data.is_err();
        Ok(handle.writer.write(data?).wait()?)
    })
}

/// Replaces the metadata the object will have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_writer_set_metadata(
    writer: *mut DameloWriter,
    metadata: *const c_void,
    metadata_bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate; a writer belongs to one thread.
        let (handle, metadata) =
            unsafe { (exclusive("writer", writer)?, bytes("metadata", metadata, metadata_bytes)?) };
        handle.writer.set_metadata(metadata.to_vec());
        Ok(())
    })
}

/// Makes the object visible and frees the writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_writer_commit(writer: *mut DameloWriter) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let handle = unsafe { take("writer", writer) }?;
        if handle.is_torn {
            return Err(CreateError::Torn.into());
        }
        Ok(handle.writer.commit().wait()?)
    })
}

/// Forgets the object and frees the writer; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_writer_abort(writer: *mut DameloWriter) {
    guard_or((), || {
        if !writer.is_null() {
            // SAFETY: by the contract of the crate.
            drop(unsafe { take("writer", writer) }?);
        }
        Ok(())
    });
}
