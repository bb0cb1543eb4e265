//! Segments of a mapped file: objects padded to 512, 1,024, 2,048, 4,096 or 8,192 bytes, one after
//! the other or packed so that none crosses a page (Maltzahn 1999 §2.4.2, §2.4.4, figure 3).
//!
//! Invariants: segments in use do not overlap; packed ones do not cross a multiple of 8,192.
//! Threads: one user.
//!
//! Deviation: a segment that is released is used again for the next of its class; the paper has
//! no deletions here.

use crate::requests::Requests;

/// Largest object of the mapped file: the page of the system.
pub(crate) const SMALL_BYTES_MAX: u64 = 8_192;
/// Segment sizes.
pub(crate) const CLASSES: usize = 5;

/// The class of an object, 0 for 512 bytes.
pub(crate) fn class_of(bytes: u64) -> usize {
    (0..CLASSES).find(|&class| bytes <= segment_bytes(class)).unwrap_or(CLASSES - 1)
}

pub(crate) fn segment_bytes(class: usize) -> u64 {
    512 << class
}

/// Most bytes that the small objects of these requests take in a mapped file, whatever replaces
/// them: a segment that is free is used only for its class.
#[must_use]
pub fn mapped_bytes_max(requests: Requests<'_>) -> u64 {
    let mut classes: Vec<u8> = Vec::new();
    let mut bytes = SMALL_BYTES_MAX;
    for request in requests.iter() {
        if !request.has_body() || request.size_bytes > SMALL_BYTES_MAX {
            continue;
        }
        let (at, class) = (request.key as usize, class_of(request.size_bytes));
        classes.resize(classes.len().max(at + 1), 0);
        if classes[at] & 1 << class == 0 {
            classes[at] |= 1 << class;
            bytes += segment_bytes(class);
        }
    }
    bytes
}

/// Gives out segments.
#[derive(Debug, Clone)]
pub(crate) struct Segments {
    aligned: bool,
    end: u64,
    free: [Vec<u64>; CLASSES],
}

impl Segments {
    /// One after the other in the order of the misses (§2.4.2).
    pub(crate) fn contiguous() -> Segments {
        Segments { aligned: false, end: 0, free: Default::default() }
    }

    /// Packed within pages (figure 3).
    pub(crate) fn packed() -> Segments {
        Segments { aligned: true, ..Segments::contiguous() }
    }

    pub(crate) fn end_bytes(&self) -> u64 {
        self.end
    }

    /// A segment for so many bytes: where, and how many are written (the padding as well).
    pub(crate) fn place(&mut self, bytes: u64) -> (u64, u32) {
        let class = class_of(bytes);
        let offset = self.take(class, u64::MAX).unwrap_or(self.end);
        (offset, segment_bytes(class) as u32)
    }

    /// A segment of a class that ends by `limit`, if there is one.
    pub(crate) fn take(&mut self, class: usize, limit: u64) -> Option<u64> {
        if let Some(offset) = self.free[class].pop() {
            return Some(offset);
        }
        let size = segment_bytes(class);
        if !self.aligned {
            let offset = self.end;
            (offset + size <= limit).then(|| self.end += size)?;
            return Some(offset);
        }
        let from = (class + 1..CLASSES).find(|&larger| !self.free[larger].is_empty());
        let (offset, top) = match from {
            Some(larger) => (self.free[larger].pop()?, larger),
            None => {
                let offset = self.end;
                (offset + SMALL_BYTES_MAX <= limit).then(|| self.end += SMALL_BYTES_MAX)?;
                (offset, CLASSES - 1)
            }
        };
        // The rest of what was cut is left as one segment of each smaller class.
        for rest in class..top {
            self.free[rest].push(offset + segment_bytes(rest));
        }
        Some(offset)
    }

    pub(crate) fn release(&mut self, offset: u64, bytes: u64) {
        self.free[class_of(bytes)].push(offset);
    }
}

/// The mapped file alone, without a cache: where an object would lie.
#[derive(Debug, Clone)]
pub(crate) struct MappedFile(Segments);

impl MappedFile {
    /// SquidM's and SquidML's.
    pub(crate) fn contiguous() -> MappedFile {
        MappedFile(Segments::contiguous())
    }

    /// SquidMLA's.
    pub(crate) fn packed() -> MappedFile {
        MappedFile(Segments::packed())
    }

    pub(crate) fn place(&mut self, bytes: u64) -> u64 {
        self.0.place(bytes).0
    }

    pub(crate) fn end_bytes(&self) -> u64 {
        self.0.end_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects of 600, 500, 3,000, 5,000 and 400 bytes. Packed: 1 KB at 0 leaves 1 KB at 1,024,
    /// 2 KB at 2,048 and 4 KB at 4,096; 512 takes the 1 KB at 1,024 and leaves 512 at 1,536; 4 KB
    /// at 4,096; 8 KB opens a page at 8,192; 512 at 1,536.
    #[test]
    fn packing_fills_pages_without_crossing_them() {
        let mut packed = Segments::packed();
        let places: Vec<u64> =
            [600, 500, 3_000, 5_000, 400].iter().map(|&b| packed.place(b).0).collect();
        assert_eq!(places, [0, 1_024, 4_096, 8_192, 1_536]);
        let mut contiguous = Segments::contiguous();
        let places: Vec<u64> =
            [600, 500, 3_000, 5_000, 400].iter().map(|&b| contiguous.place(b).0).collect();
        assert_eq!(places, [0, 1_024, 1_536, 5_632, 13_824]);
    }

    #[test]
    fn segments_do_not_overlap() {
        let mut rng = fastrand::Rng::with_seed(2);
        for mut segments in [Segments::packed(), Segments::contiguous()] {
            let mut alive: std::collections::BTreeMap<u64, u64> = Default::default();
            for _ in 0..5_000 {
                let bytes = rng.u64(1..=8_192);
                let (offset, size) = segments.place(bytes);
                let end = offset + u64::from(size);
                assert!(end <= segments.end_bytes());
                assert!(!segments.aligned || offset / 8_192 == (end - 1) / 8_192);
                assert!(alive.range(..end).next_back().is_none_or(|(&o, &s)| o + s <= offset));
                alive.insert(offset, u64::from(size));
                if alive.len() > 500 {
                    let at = rng.u64(0..segments.end_bytes());
                    if let Some((&offset, &size)) = alive.range(at..).next() {
                        alive.remove(&offset);
                        segments.release(offset, size);
                    }
                }
            }
        }
    }
}
