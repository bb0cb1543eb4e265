//! A short inline list, for index calls that return several values without allocating.
//!
//! Plain value, no threads. Invariant: `len <= FEW`, and a pair of buckets has no more slots than
//! that, so pushes never run out of room.

use std::ops::Deref;

use super::table::BUCKET_SLOTS;

/// Slots in a pair of buckets: the most entries that one call can find, drop or evict.
pub(super) const FEW: usize = 2 * BUCKET_SLOTS;

/// Up to sixteen values; used as a slice.
#[derive(Debug, Clone, Copy)]
pub struct Few<T> {
    items: [T; FEW],
    len: u8,
}

impl<T: Copy + Default> Default for Few<T> {
    fn default() -> Few<T> {
        Few::new()
    }
}

impl<T: Copy + Default> Few<T> {
    pub(super) fn new() -> Few<T> {
        Few { items: [T::default(); FEW], len: 0 }
    }

    pub(super) fn push(&mut self, item: T) {
        self.items[usize::from(self.len)] = item;
        self.len += 1;
    }
}

impl<T> Few<T> {
    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
