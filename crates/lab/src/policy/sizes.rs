//! Sizes of objects in 32 bits: the few that do not fit lie aside. Invariant: what was packed for a
//! key last is what is unpacked for it. One thread at a time.

use std::collections::HashMap;

/// Written where the size does not fit.
const LARGE: u32 = u32::MAX;

/// Sizes of 4 GiB and more, by key.
#[derive(Debug, Default)]
pub(super) struct LargeSizes(HashMap<u32, u64>);

impl LargeSizes {
    /// What to keep of an object's size.
    #[inline]
    pub(super) fn packed(&mut self, key: u32, size: u64) -> u32 {
        match u32::try_from(size) {
            Ok(small) if small != LARGE => small,
            _ => {
                self.0.insert(key, size);
                LARGE
            }
        }
    }

    /// The size of which that was kept.
    #[inline]
    pub(super) fn unpacked(&self, key: u32, kept: u32) -> u64 {
        match kept {
            LARGE => self.0.get(&key).copied().unwrap_or(u64::from(LARGE)),
            size => u64::from(size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_they_were() {
        let mut sizes = LargeSizes::default();
        for size in [0, 1, u64::from(LARGE) - 1, u64::from(LARGE), 1 << 40, u64::MAX, 7] {
            let kept = sizes.packed(3, size);
            assert_eq!(sizes.unpacked(3, kept), size);
        }
        assert_eq!(sizes.0.len(), 1);
    }
}
