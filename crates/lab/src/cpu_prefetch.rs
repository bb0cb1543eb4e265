//! Brings memory nearer before it is needed, without waiting for it as a read would.
//!
//! Owns nothing. Invariant: nothing changes but what is in the processor's caches. Threads: any.

/// Begins to fetch an entry of a table; nothing for a place beyond its end.
#[inline]
pub(crate) fn fetch<T>(table: &[T], at: usize) {
    let Some(entry) = table.get(at) else { return };
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = std::ptr::from_ref(entry).cast();
        // SAFETY: a hint with the address of an entry that is there; every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = entry;
}
