//! The catalogue that the origin serves and the load generator checks: path, size and bytes of
//! object `n` of a run follow from the seed, so neither side stores any body.
//!
//! Objects are laid out as pages: a document and what it embeds have consecutive numbers. Paths are
//! `/c/RUN/PAGE/ITEM`, item 0 being the document. Those of a recorded trace have its lengths and
//! names, `/HOST/PATH~RUN-NUMBER`. Immutable once made; shared by all threads.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;

use super::replay::Replay;

/// Bytes in the pool from which all bodies are cut.
const POOL_BYTES: usize = 1 << 20;
/// Bytes at the start of a body that identify its object.
const STAMP_BYTES: usize = 16;
/// Largest body of a heavy-tailed catalogue, as a multiple of the mean.
const TAIL_MAX: f64 = 1024.0;

/// An object: the run that first requested it, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObjectRef {
    /// Keeps the objects of different runs distinct.
    pub(crate) run: u64,
    /// Number within the run.
    pub(crate) number: u64,
}

/// The objects that can be requested.
pub(crate) struct Catalogue {
    mean_bytes: u64,
    tail: Option<f64>,
    page_objects: u64,
    replay: Option<Arc<Replay>>,
    seed: u64,
    pool: Vec<u8>,
}

impl Catalogue {
    /// A catalogue of bodies of `mean_bytes`: all of that length, or Pareto-distributed with
    /// exponent `tail` (above 1), cut at 1024 means. A page is a document and `embedded` objects.
    pub(crate) fn new(mean_bytes: u64, tail: Option<f64>, embedded: u32, seed: u64) -> Catalogue {
        let mut pool = vec![0; POOL_BYTES];
        Rng::with_seed(seed).fill(&mut pool);
        let page_objects = u64::from(embedded) + 1;
        Catalogue { mean_bytes, tail, page_objects, replay: None, seed, pool }
    }

    /// A catalogue of the objects of a recorded trace.
    pub(crate) fn of_trace(replay: Arc<Replay>, seed: u64) -> Catalogue {
        Catalogue { replay: Some(replay), ..Catalogue::new(0, None, 0, seed) }
    }

    /// Objects of a page, its document included.
    pub(crate) fn page_objects(&self) -> u64 {
        self.page_objects
    }

    /// Length of an object's body.
    pub(crate) fn length_bytes(&self, object: ObjectRef) -> u64 {
        if let Some(replay) = &self.replay {
            return replay.length_bytes(object.number);
        }
        let Some(shape) = self.tail else { return self.mean_bytes };
        let mean = self.mean_bytes as f64;
        let least = mean * (shape - 1.0) / shape;
        let uniform = 1.0 - Rng::with_seed(self.mix(object, 1)).f64();
        (least * uniform.powf(-1.0 / shape)).min(mean * TAIL_MAX).max(1.0) as u64
    }

    /// The document that embeds an object. `None` for a document, and for a trace, which records
    /// that per request.
    pub(crate) fn document_of(&self, object: ObjectRef) -> Option<ObjectRef> {
        let item = object.number % self.page_objects;
        (item > 0).then(|| ObjectRef { number: object.number - item, ..object })
    }

    /// Whether an object embeds others.
    pub(crate) fn is_document(&self, object: ObjectRef) -> bool {
        match &self.replay {
            Some(replay) => replay.is_document(object.number),
            None => self.page_objects > 1 && object.number.is_multiple_of(self.page_objects),
        }
    }

    /// Appends the object's path.
    pub(crate) fn push_path(&self, object: ObjectRef, text: &mut String) {
        if let Some(replay) = &self.replay {
            replay.push_name(object.number, text);
            let _ = write!(text, "~{}-{}", object.run, object.number);
            return;
        }
        let (page, item) = (object.number / self.page_objects, object.number % self.page_objects);
        // Writing to a String cannot fail.
        let _ = write!(text, "/c/{}/{page}/{item}", object.run);
    }

    /// The object with this path, if it is one of the catalogue's.
    pub(crate) fn find(&self, path: &str) -> Option<ObjectRef> {
        if let Some(replay) = &self.replay {
            let (run, number) = path.rsplit_once('~')?.1.split_once('-')?;
            let object = ObjectRef { run: run.parse().ok()?, number: number.parse().ok()? };
            return (object.number < replay.objects()).then_some(object);
        }
        let mut numbers = path.strip_prefix("/c/")?.split('/').map(str::parse::<u64>);
        let run = numbers.next()?.ok()?;
        let page = numbers.next()?.ok()?;
        let item = numbers.next()?.ok()?;
        let whole = numbers.next().is_none() && item < self.page_objects;
        let number = page.checked_mul(self.page_objects)?.checked_add(item)?;
        whole.then_some(ObjectRef { run, number })
    }

    /// The longest contiguous piece of the body from `offset` on; empty at the end.
    fn piece(&self, object: ObjectRef, offset: u64) -> &[u8] {
        let left = self.length_bytes(object).saturating_sub(offset);
        let from = self.mix(object, 2).wrapping_add(offset) as usize % POOL_BYTES;
        let to = (from as u64).saturating_add(left).min(POOL_BYTES as u64) as usize;
        &self.pool[from..to]
    }

    fn stamp(object: ObjectRef) -> [u8; STAMP_BYTES] {
        let mut stamp = [0; STAMP_BYTES];
        stamp[..8].copy_from_slice(&object.number.to_le_bytes());
        stamp[8..].copy_from_slice(&object.run.to_le_bytes());
        stamp
    }

    /// Appends the whole body.
    pub(crate) fn push_body(&self, object: ObjectRef, bytes: &mut Vec<u8>) {
        self.push_range(object, 0..self.length_bytes(object), bytes);
    }

    /// Appends this range of the body, cut at the body's end.
    pub(crate) fn push_range(&self, object: ObjectRef, range: Range<u64>, bytes: &mut Vec<u8>) {
        let mut offset = range.start;
        let stamped = range.end.min(STAMP_BYTES as u64).min(self.length_bytes(object));
        if offset < stamped {
            let stamp = Catalogue::stamp(object);
            bytes.extend_from_slice(&stamp[offset as usize..stamped as usize]);
            offset = stamped;
        }
        while offset < range.end {
            let piece = self.piece(object, offset);
            let length = piece.len().min(usize::try_from(range.end - offset).unwrap_or(usize::MAX));
            if length == 0 {
                return;
            }
            bytes.extend_from_slice(&piece[..length]);
            offset += length as u64;
        }
    }

    /// Whether the body contains `bytes` at `offset`.
    pub(crate) fn matches(&self, object: ObjectRef, offset: u64, bytes: &[u8]) -> bool {
        let (mut offset, mut rest) = (offset, bytes);
        if offset < STAMP_BYTES as u64 {
            let at = offset as usize;
            let stamped = rest.len().min(STAMP_BYTES - at);
            if rest[..stamped] != Catalogue::stamp(object)[at..at + stamped] {
                return false;
            }
            offset += stamped as u64;
            rest = &rest[stamped..];
        }
        while !rest.is_empty() {
            let piece = self.piece(object, offset);
            let length = piece.len().min(rest.len());
            if length == 0 || piece[..length] != rest[..length] {
                return false;
            }
            offset += length as u64;
            rest = &rest[length..];
        }
        true
    }

    /// A pseudo-random number derived from seed, object and purpose (SplitMix64's finisher).
    fn mix(&self, object: ObjectRef, purpose: u64) -> u64 {
        let mut x = self.seed ^ object.run.rotate_left(32) ^ (purpose << 56);
        x = x.wrapping_add(object.number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_matches_itself_in_any_pieces_and_nothing_else() {
        for (mean_bytes, tail) in [(1, None), (10, None), (3 << 20, None), (5000, Some(1.2))] {
            let catalogue = Catalogue::new(mean_bytes, tail, 7, 1);
            let object = ObjectRef { run: 3, number: 21 };
            let mut body = Vec::new();
            catalogue.push_body(object, &mut body);
            assert_eq!(body.len() as u64, catalogue.length_bytes(object));
            for start in [0, 5, 16, 17, body.len() / 2] {
                let mut part = Vec::new();
                catalogue.push_range(object, start as u64..body.len() as u64 + 9, &mut part);
                assert!(part == body[start.min(body.len())..], "from {start} of {}", body.len());
            }
            let mut at = 0;
            for piece in body.chunks(7777) {
                assert!(catalogue.matches(object, at, piece));
                at += piece.len() as u64;
            }
            assert!(!catalogue.matches(ObjectRef { number: 22, ..object }, 0, &body));
            let last = body.len() - 1;
            body[last] ^= 1;
            assert!(!catalogue.matches(object, 0, &body));
        }
    }

    #[test]
    fn paths_lead_back_to_their_objects() {
        let catalogue = Catalogue::new(100, None, 3, 1);
        let mut path = String::new();
        catalogue.push_path(ObjectRef { run: 9, number: 14 }, &mut path);
        assert_eq!(path, "/c/9/3/2");
        assert_eq!(catalogue.find(&path), Some(ObjectRef { run: 9, number: 14 }));
        for wrong in ["/", "/c/9/3", "/c/9/3/4", "/c/9/3/2/1", "/c/9/x/1", "/c/9/-1/1"] {
            assert_eq!(catalogue.find(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_heavy_tail_has_its_mean_and_long_bodies() {
        let catalogue = Catalogue::new(8192, Some(1.5), 0, 1);
        let length = |number| catalogue.length_bytes(ObjectRef { run: 0, number });
        let lengths: Vec<u64> = (0..100_000).map(length).collect();
        let mean = lengths.iter().sum::<u64>() as f64 / 1e5;
        assert!((7000.0..9000.0).contains(&mean), "{mean}");
        assert!(lengths.iter().any(|&length| length > 500_000));
    }
}
