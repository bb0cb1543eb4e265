//! Errors on their way to C: what failed and why (`Failure`), the calling thread's last one, and
//! the entry points that put them into words.
//!
//! Invariant: the pointer from `damelo_last_error_message` stays good until the thread's next call
//! of the library that fails. Threads: the last error is thread-local, nothing is shared.

use std::any::Any;
use std::cell::RefCell;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io::Write as _;

use damelo::{CreateError, MetadataError, OpenError, PurgeError, ReadError, SyncError};

use crate::border::{guard_or, optional_text};
use crate::status::Status;

/// A result other than success, with details for a person.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    detail: String,
}

impl Failure {
    pub(crate) fn new(status: Status, detail: impl Into<String>) -> Failure {
        Failure { status, detail: detail.into() }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Failure {
        Failure::new(Status::Invalid, detail)
    }

    pub(crate) fn not_found() -> Failure {
        Failure::new(Status::NotFound, "")
    }

    /// A panic that was caught. Its payload is leaked: a payload's destructor may panic as well.
    pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> Failure {
        let detail = if let Some(text) = payload.downcast_ref::<&str>() {
            (*text).to_owned()
        } else if let Some(text) = payload.downcast_ref::<String>() {
            text.clone()
        } else {
            String::new()
        };
        std::mem::forget(payload);
        Failure::new(Status::Panic, detail)
    }

    /// Remembers this as the thread's last error and gives its number.
    pub(crate) fn report(self) -> c_int {
        let text: Vec<u8> = self.detail.into_bytes().into_iter().filter(|b| *b != 0).collect();
        let text = CString::new(text).unwrap_or_default();
        // A thread that is being torn down has no last error any more: the number must do.
        let _ = LAST.try_with(|last| *last.borrow_mut() = (self.status, text));
        self.status as c_int
    }
}

/// An error and its causes in one line; a cause that the error already tells is left out.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

macro_rules! failure_from {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::new(Status::from(&error), with_causes(&error))
            }
        })*
    };
}

failure_from!(OpenError, CreateError, MetadataError, ReadError, PurgeError, SyncError);

thread_local! {
    static LAST: RefCell<(Status, CString)> = RefCell::new((Status::Ok, CString::default()));
}

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };

fn words(status: c_int) -> &'static CStr {
    Status::from_number(status).map_or(c"unknown status", Status::text)
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn damelo_version() -> *const c_char {
    guard_or(c"".as_ptr(), || Ok(VERSION.as_ptr()))
}

/// What a status means; never null.
#[unsafe(no_mangle)]
pub extern "C" fn damelo_strerror(status: c_int) -> *const c_char {
    guard_or(c"".as_ptr(), || Ok(words(status).as_ptr()))
}

/// Writes a prefix, what the status means, and the details of the thread's last error if it had
/// this status, to stderr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_perror(prefix: *const c_char, status: c_int) {
    guard_or((), || {
        // SAFETY: null or text, by the contract of the crate.
        let prefix = unsafe { optional_text(prefix) }.unwrap_or_default();
        let mut line = prefix.to_vec();
        if !line.is_empty() {
            line.extend_from_slice(b": ");
        }
        line.extend_from_slice(words(status).to_bytes());
        let _ = LAST.try_with(|last| {
            let (last_status, detail) = &*last.borrow();
            if *last_status as c_int == status && !detail.is_empty() {
                line.extend_from_slice(b" (");
                line.extend_from_slice(detail.to_bytes());
                line.push(b')');
            }
        });
        line.push(b'\n');
        // As in C: there is nobody to tell that stderr is closed.
        let _ = std::io::stderr().write_all(&line);
        Ok(())
    });
}

/// Details of the thread's last error; empty if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn damelo_last_error_message() -> *const c_char {
    guard_or(c"".as_ptr(), || {
        Ok(LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(c"".as_ptr()))
    })
}
