//! The contents of a disk that is not open, and ways to damage them. Plain data.

use std::ops::Range;
use std::sync::Arc;

/// The unit that a disk writes atomically.
pub const SECTOR_BYTES: u64 = 512;

/// An image of a disk at rest.
#[derive(Clone, PartialEq, Eq)]
pub struct SimDisk {
    bytes: Arc<Vec<u8>>,
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimDisk({} bytes)", self.bytes.len())
    }
}

impl SimDisk {
    /// A new disk full of zeros.
    pub fn blank(size_bytes: u64) -> SimDisk {
        assert_eq!(size_bytes % 4096, 0, "disks are whole blocks");
        SimDisk { bytes: Arc::new(vec![0; size_bytes as usize]) }
    }

    /// A disk with these contents.
    pub fn from_bytes(bytes: Vec<u8>) -> SimDisk {
        assert_eq!(bytes.len() % 4096, 0, "disks are whole blocks");
        SimDisk { bytes: Arc::new(bytes) }
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The contents.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn shared(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.bytes)
    }

    /// Changes the contents in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.bytes).as_mut_slice()
    }

    /// Flips `count` random bits within `range`; returns the byte offsets that changed.
    pub fn flip_bits(
        &mut self,
        range: Range<u64>,
        count: u32,
        rng: &mut fastrand::Rng,
    ) -> Vec<u64> {
        assert!(range.start < range.end && range.end <= self.size_bytes(), "range on the disk");
        let offsets: Vec<u64> = (0..count).map(|_| rng.u64(range.clone())).collect();
        let bytes = self.bytes_mut();
        for &offset in &offsets {
            bytes[offset as usize] ^= 1 << rng.u8(0..8);
        }
        offsets
    }

    /// Overwrites `range` with random bytes.
    pub fn scribble(&mut self, range: Range<u64>, rng: &mut fastrand::Rng) {
        rng.fill(&mut self.bytes_mut()[range.start as usize..range.end as usize]);
    }

    /// Byte ranges that are not all zero, in units of `step` bytes: the parts ever written.
    pub fn used_ranges(&self, step: u64) -> Vec<Range<u64>> {
        let mut used: Vec<Range<u64>> = Vec::new();
        for (index, piece) in self.bytes.chunks(step as usize).enumerate() {
            if piece.iter().all(|&b| b == 0) {
                continue;
            }
            let start = index as u64 * step;
            match used.last_mut() {
                Some(last) if last.end == start => last.end = start + piece.len() as u64,
                _ => used.push(start..start + piece.len() as u64),
            }
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flips_change_exactly_the_reported_bytes() {
        let mut disk = SimDisk::blank(8192);
        let before = disk.clone();
        let offsets = disk.flip_bits(4096..8192, 1, &mut fastrand::Rng::with_seed(1));
        let changed: Vec<u64> =
            (0..8192).filter(|&i| disk.bytes()[i as usize] != before.bytes()[i as usize]).collect();
        assert_eq!(changed, offsets);
        assert_eq!(disk.used_ranges(4096), vec![4096..8192]);
    }
}
