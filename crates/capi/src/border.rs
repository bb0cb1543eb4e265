//! The border itself: catching panics and checking what C hands over. No state, no threads.
//!
//! Invariant: `guard` and `guard_or` return whatever their body does; no panic leaves them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::error::Failure;

/// Runs an entry point that returns a status.
///
/// Unwind safety is asserted: what a body holds across a panic is a handle, and those stay usable
/// (the store's own locks recover) or are freed by the caller.
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(failure)) => failure.report(),
        Err(payload) => Failure::panicked(payload).report(),
    }
}

/// Runs an entry point that returns a value, or `otherwise` when it fails.
pub(crate) fn guard_or<T>(otherwise: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure.report(),
        Err(payload) => Failure::panicked(payload).report(),
    };
    otherwise
}

/// The bytes of a key, value or metadata.
///
/// # Safety
/// `data` is null or valid for reads of `length` bytes, unchanged during the call.
pub(crate) unsafe fn bytes<'a>(
    what: &str,
    data: *const c_void,
    length: usize,
) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::invalid(format!("{what} is null, its length {length}")));
    }
    if length > isize::MAX as usize {
        return Err(Failure::invalid(format!("{what} cannot be {length} bytes long")));
    }
    // SAFETY: not null, a possible length, and valid for it by this function's contract.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), length) })
}

/// A text without its final zero byte.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub(crate) unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a [u8], Failure> {
    // SAFETY: the same contract.
    unsafe { optional_text(text) }.ok_or_else(|| Failure::invalid(format!("{what} is null")))
}

/// A text that may be missing.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub(crate) unsafe fn optional_text<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: not null where it is used, and ended by this function's contract.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

fn check<T>(what: &str, pointer: *const T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{what} is null")));
    }
    if !pointer.is_aligned() {
        return Err(Failure::invalid(format!("{what} is not an aligned pointer")));
    }
    Ok(())
}

/// A handle that is only looked at.
///
/// # Safety
/// `handle` is null or a live handle that nobody changes or frees during the call.
pub(crate) unsafe fn shared<'a, T>(what: &str, handle: *const T) -> Result<&'a T, Failure> {
    check(what, handle)?;
    // SAFETY: not null, aligned, and live by this function's contract.
    Ok(unsafe { &*handle })
}

/// A handle that is changed.
///
/// # Safety
/// `handle` is null or a live handle that nobody else uses during the call.
pub(crate) unsafe fn exclusive<'a, T>(what: &str, handle: *mut T) -> Result<&'a mut T, Failure> {
    check(what, handle)?;
    // SAFETY: not null, aligned, live and unshared by this function's contract.
    Ok(unsafe { &mut *handle })
}

/// Takes a handle back from C.
///
/// # Safety
/// `handle` is null or came from [`give`] and is not used again.
pub(crate) unsafe fn take<T>(what: &str, handle: *mut T) -> Result<Box<T>, Failure> {
    check(what, handle)?;
    // SAFETY: it came from `Box::into_raw` in `give`, and comes back once.
    Ok(unsafe { Box::from_raw(handle) })
}

/// Hands a handle to C, which owns it from now on.
pub(crate) fn give<T>(handle: T) -> *mut T {
    Box::into_raw(Box::new(handle))
}

/// A place for a result, set to `empty` first.
///
/// # Safety
/// `place` is null or valid for writes of a `T`, by this thread alone during the call.
pub(crate) unsafe fn out<'a, T>(what: &str, place: *mut T, empty: T) -> Result<&'a mut T, Failure> {
    check(what, place)?;
    // SAFETY: not null, aligned, writable by this function's contract, and written before it is
    // borrowed, so that the reference is to an initialised value.
    unsafe {
        place.write(empty);
        Ok(&mut *place)
    }
}

/// A slice for C: its address, and its length through `length` unless that is null.
///
/// # Safety
/// `length` is null or valid for a write.
pub(crate) unsafe fn slice(bytes: &[u8], length: *mut usize) -> *const c_void {
    if !length.is_null() {
        // SAFETY: not null, and writable by this function's contract.
        unsafe { length.write_unaligned(bytes.len()) };
    }
    bytes.as_ptr().cast()
}

/// One of an enumeration's values.
pub(crate) fn choice<T: Copy>(what: &str, number: c_int, values: &[T]) -> Result<T, Failure> {
    usize::try_from(number)
        .ok()
        .and_then(|index| values.get(index).copied())
        .ok_or_else(|| Failure::invalid(format!("{what} cannot be {number}")))
}

/// A count of any width as C gets it.
pub(crate) fn number(count: impl TryInto<u64>) -> u64 {
    count.try_into().unwrap_or(u64::MAX)
}

/// An expiry as C says it: 0 is never.
pub(crate) fn expiry(unix_s: u64) -> Option<u64> {
    (unix_s != 0).then_some(unix_s)
}

/// A time as C says it.
pub(crate) fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::damelo_last_error_message;
    use crate::status::Status;

    fn last() -> String {
        // SAFETY: never null, ended, and not replaced before it is copied.
        unsafe { CStr::from_ptr(damelo_last_error_message()) }.to_string_lossy().into_owned()
    }

    extern "C" fn panics() -> c_int {
        guard(|| panic!("the {} is gone", "floor"))
    }

    #[test]
    fn a_panic_becomes_a_number_and_a_message() {
        assert_eq!(panics(), Status::Panic as c_int);
        assert_eq!(last(), "the floor is gone");
        assert_eq!(guard_or(7, || std::panic::panic_any(1_u8)), 7);
        assert_eq!(last(), "");
    }

    #[test]
    fn impossible_pointers_are_refused() {
        let byte = 0_u8;
        let address = (&raw const byte).cast::<c_void>();
        // SAFETY: refused before anything is read.
        unsafe {
            assert!(bytes("b", std::ptr::null(), 1).is_err());
            assert!(bytes("b", address, usize::MAX).is_err());
            assert!(bytes("b", std::ptr::null(), 0).is_ok_and(<[u8]>::is_empty));
            assert!(out("o", std::ptr::without_provenance_mut::<u64>(0x1001), 0).is_err());
            assert!(shared::<u64>("s", std::ptr::null()).is_err());
        }
    }

    #[test]
    fn enumerations_accept_their_values_only() {
        assert!(matches!(choice("c", 1, &['a', 'b']), Ok('b')));
        assert!(choice("c", 2, &['a', 'b']).is_err());
        assert!(choice("c", -1, &['a', 'b']).is_err());
    }
}
