//! Futures on the heap, made where they will lie.
//!
//! `Box::pin(future())` makes the future on the stack and copies all of its bytes, most of which
//! mean nothing before its first poll: for the future of a miss these are kilobytes. No threads.

use std::pin::Pin;

/// The future that `make` returns, pinned on the heap.
#[inline(always)]
pub(crate) fn boxed<F>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    // The memory comes first, so that the compiler can have `make` write to it.
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}
