//! What the store says about itself: shape, warnings, statistics. Any thread.

use std::ffi::{CString, c_char, c_int};

use damelo::StoreInfo;

use crate::border::{guard, guard_or, number, out};
use crate::error::Failure;
use crate::store::{DameloStore, store as store_of};

/// `damelo_store_info`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
#[expect(missing_docs, reason = "documented in damelo.h")]
pub struct DameloStoreInfo {
    pub page_bytes: u64,
    pub segment_bytes: u64,
    pub segments: u64,
    pub objects_max: u64,
    pub index_bytes: u64,
    pub memory_bytes: u64,
    pub volumes: u64,
    pub volumes_in_service: u64,
    pub created: u64,
    pub store_id: [u8; 16],
    pub object_bytes_max: u64,
    pub reserved: [u64; 3],
}

impl From<&StoreInfo> for DameloStoreInfo {
    fn from(info: &StoreInfo) -> DameloStoreInfo {
        let in_service = info.volumes.iter().filter(|volume| volume.in_service).count();
        DameloStoreInfo {
            page_bytes: number(info.page_bytes),
            segment_bytes: number(info.segment_bytes),
            segments: number(info.segments),
            objects_max: number(info.objects_max),
            index_bytes: number(info.index_bytes),
            memory_bytes: number(info.memory_bytes),
            volumes: number(info.volumes.len()),
            volumes_in_service: number(in_service),
            created: u64::from(info.created),
            store_id: info.store_id,
            object_bytes_max: number(info.object_bytes_max),
            reserved: [0; 3],
        }
    }
}

/// What the store was made with and costs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_get_store_info(
    store: *const DameloStore,
    out: *mut DameloStoreInfo,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, DameloStoreInfo::default()) }?;
        // SAFETY: by the contract of the crate.
        *place = DameloStoreInfo::from(&unsafe { store_of(store) }?.info());
        Ok(())
    })
}

/// Text for C, which frees it with `damelo_text_free`. It cannot hold a zero byte: those are left
/// out.
fn give_text(text: String) -> Result<*mut c_char, Failure> {
    let bytes: Vec<u8> = text.into_bytes().into_iter().filter(|byte| *byte != 0).collect();
    let text = CString::new(bytes).map_err(|error| Failure::invalid(error.to_string()))?;
    Ok(text.into_raw())
}

/// Warnings of the open, one a line.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_warnings_text(
    store: *const DameloStore,
    out: *mut *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, std::ptr::null_mut()) }?;
        // SAFETY: by the contract of the crate.
        let info = unsafe { store_of(store) }?.info();
        *place = give_text(info.warnings.iter().map(|line| format!("{line}\n")).collect())?;
        Ok(())
    })
}

/// All statistics in OpenMetrics text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_stats_text(
    store: *const DameloStore,
    out: *mut *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, std::ptr::null_mut()) }?;
        // SAFETY: by the contract of the crate.
        *place = give_text(unsafe { store_of(store) }?.stats().to_openmetrics())?;
        Ok(())
    })
}

/// Frees a text; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_text_free(text: *mut c_char) {
    guard_or((), || {
        if !text.is_null() {
            // SAFETY: it came from `CString::into_raw` in `give_text`, and comes back once.
            drop(unsafe { CString::from_raw(text) });
        }
        Ok(())
    });
}
