//! Reading an object in pieces.
//!
//! Invariant: the piece last handed out is kept until the next call with this reader. Threads: one
//! at a time for each reader.

use std::ffi::{c_int, c_void};

use bytes::Bytes;
use damelo::Reader;

use crate::border::{bytes, exclusive, give, guard, guard_or, out, shared, slice, take};
use crate::error::Failure;
use crate::info::DameloInfo;
use crate::store::{DameloStore, store as store_of};

/// `damelo_reader`.
pub struct DameloReader {
    reader: Reader,
    /// Keeps the bytes alive that C was told of.
    piece: Option<Bytes>,
}

/// Begins to read an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_reader_open(
    store: *mut DameloStore,
    key: *const c_void,
    key_bytes: usize,
    out: *mut *mut DameloReader,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, std::ptr::null_mut()) }?;
        // SAFETY: by the contract of the crate.
        let (store, key) = unsafe { (store_of(store)?, bytes("key", key, key_bytes)?) };
        let reader = store.reader(key).wait()?.ok_or_else(Failure::not_found)?;
        *place = give(DameloReader { reader, piece: None });
        Ok(())
    })
}

/// Frees a reader; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_reader_close(reader: *mut DameloReader) {
    guard_or((), || {
        if !reader.is_null() {
            // SAFETY: by the contract of the crate.
            drop(unsafe { take("reader", reader) }?);
        }
        Ok(())
    });
}

/// What is known of the object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_reader_info(
    reader: *const DameloReader,
    out: *mut DameloInfo,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, DameloInfo::default()) }?;
        // SAFETY: by the contract of the crate.
        *place = DameloInfo::from(unsafe { shared("reader", reader) }?.reader.info());
        Ok(())
    })
}

/// The object's metadata.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_reader_metadata(
    reader: *const DameloReader,
    metadata_bytes: *mut usize,
) -> *const c_void {
    guard_or(std::ptr::null(), || {
        // SAFETY: by the contract of the crate.
        unsafe {
            slice(&[], metadata_bytes);
            Ok(slice(&shared("reader", reader)?.reader.info().metadata, metadata_bytes))
        }
    })
}

/// The next piece.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_reader_next(
    reader: *mut DameloReader,
    data: *mut *const c_void,
    data_bytes: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate. Both are set before either is complained about.
        let (data, length) =
            unsafe { (out("data", data, std::ptr::null()), out("data_bytes", data_bytes, 0)) };
        let (data, length) = (data?, length?);
        // SAFETY: by the contract of the crate; a reader belongs to one thread.
        let handle = unsafe { exclusive("reader", reader) }?;
        handle.piece = None;
        handle.piece = handle.reader.next().wait()?;
        if let Some(piece) = &handle.piece {
            *data = piece.as_ptr().cast();
            *length = piece.len();
        }
        Ok(())
    })
}

/// Goes to another place in the object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_reader_seek(reader: *mut DameloReader, offset: u64) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate; a reader belongs to one thread.
        let handle = unsafe { exclusive("reader", reader) }?;
        handle.piece = None;
        handle.reader.seek(offset);
        Ok(())
    })
}
