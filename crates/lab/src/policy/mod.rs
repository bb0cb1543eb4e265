//! Policy-only caches: which requests hit when nothing counts but room and what is let go.
//!
//! Where a policy is also in libCacheSim, it decides alike to the last request, so that results can
//! be laid side by side: sizes are those of the object's arrival, an object larger than the cache
//! passes by, and room is made before the new object goes in (but for GDSF). One policy a file; the
//! registry is the table in `registry.rs`.

mod arc;
mod arrivals;
mod ascending;
mod belady;
mod belady_size;
mod clock;
mod falling;
mod fbc;
mod gdsf;
mod heap;
mod lfu;
mod lfu_aging;
mod lirs;
mod lists;
mod log;
mod one_queue;
mod registry;
mod rings;
mod room;
mod s3_fifo;
mod sieve;
mod sizes;
mod slru;
mod store_disk;
mod store_memory;
#[cfg(test)]
mod tests;
mod two_q;
mod w_tinylfu;

pub(crate) use registry::CAPACITY_BYTES_MAX;
pub use registry::{POLICIES, PolicyInfo, PolicySpec};

/// Written as next use where there is none.
pub const NEVER: u32 = u32::MAX;
/// Written as size of a step that deletes.
const DELETES: u64 = u64::MAX;
/// State of an object is fetched while those so many before it are looked up: as long as memory
/// takes.
const AHEAD: usize = 12;

/// One request as policies see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    size_bytes: u64,
    key: u32,
    next_use: u32,
}

impl Step {
    /// A request for an object; `next_use` is the number of the next request for it, or [`NEVER`].
    #[must_use]
    pub fn get(key: u32, size_bytes: u64, next_use: u32) -> Step {
        Step { size_bytes: size_bytes.min(DELETES - 1), key, next_use }
    }

    /// A request that removes an object.
    #[must_use]
    pub fn delete(key: u32) -> Step {
        Step { size_bytes: DELETES, key, next_use: NEVER }
    }

    /// Which object.
    #[must_use]
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Its size in this request; no meaning for a delete.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// True if it removes the object.
    #[must_use]
    pub fn is_delete(&self) -> bool {
        self.size_bytes == DELETES
    }

    #[cfg(test)]
    pub(crate) fn next_use(&self) -> u32 {
        self.next_use
    }

    pub(crate) fn set_next_use(&mut self, next_use: u32) {
        self.next_use = next_use;
    }
}

/// Requests and misses. Bytes are what 64 bits hold, if they are more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tally {
    /// Requests, deletes not among them.
    pub requests: u64,
    /// Those that missed.
    pub misses: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Bytes of those that missed.
    pub miss_bytes: u64,
}

impl Tally {
    /// Share of requests that missed, 0 if there were none.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.misses as f64 / self.requests as f64 }
    }

    /// Share of bytes that missed, 0 if there were none.
    #[must_use]
    pub fn byte_miss_ratio(&self) -> f64 {
        if self.bytes == 0 { 0.0 } else { self.miss_bytes as f64 / self.bytes as f64 }
    }

    /// What was counted since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Tally) -> Tally {
        Tally {
            requests: self.requests - earlier.requests,
            misses: self.misses - earlier.misses,
            bytes: self.bytes - earlier.bytes,
            miss_bytes: self.miss_bytes - earlier.miss_bytes,
        }
    }
}

/// A cache that knows only keys and sizes.
pub trait Policy: Send {
    /// Asks for an object; if it is not there, it comes in as the policy decides. True for a hit.
    fn get(&mut self, step: &Step) -> bool;

    /// Takes an object out, if it is there.
    fn delete(&mut self, key: u32);

    /// Bytes of what is there; at most the capacity.
    fn used_bytes(&self) -> u64;

    /// Objects that are there.
    fn objects(&self) -> u64;

    /// Begins to fetch state of an object ahead of its request.
    fn fetch(&self, _key: u32) {}

    /// The same for state that is found through what `fetch` has brought.
    fn fetch_more(&self, _key: u32) {}

    /// Runs a batch. Compiled for each policy, so that only batches cost an indirect call. Memory
    /// is asked ahead of requests: it answers many reads in the time of one.
    fn run(&mut self, steps: &[Step], tally: &mut Tally) {
        for (at, step) in steps.iter().enumerate() {
            if let Some(later) = steps.get(at + 2 * AHEAD) {
                self.fetch(later.key);
            }
            if let Some(later) = steps.get(at + AHEAD) {
                self.fetch_more(later.key);
            }
            if step.is_delete() {
                self.delete(step.key);
                continue;
            }
            let hit = self.get(step);
            tally.requests += 1;
            tally.bytes = tally.bytes.saturating_add(step.size_bytes);
            if !hit {
                tally.misses += 1;
                tally.miss_bytes = tally.miss_bytes.saturating_add(step.size_bytes);
            }
        }
    }
}
