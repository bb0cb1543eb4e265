//! Which resources were asked for before, for rules that store at the second request.
//!
//! A table of fingerprints, one place for each hash: a resource that another one pushed out counts as
//! new once more. Invariant: it takes no memory before a rule asks for it, and 256 KiB from then on.
//! Threads: shared by all workers, without locks; two first requests at once may both count as second.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const PLACES: usize = 1 << 16;

/// What was asked for.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    places: OnceLock<Box<[AtomicU32]>>,
    hasher: RandomState,
}

impl Seen {
    /// Whether this was asked for before; from now on it was.
    pub(crate) fn before(&self, key: &[u8]) -> bool {
        let places = self.places.get_or_init(|| (0..PLACES).map(|_| AtomicU32::new(0)).collect());
        let hash = self.hasher.hash_one(key);
        // 0 is an empty place.
        let print = (hash >> 32) as u32 | 1;
        places[hash as usize % PLACES].swap(print, Ordering::Relaxed) == print
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_time_is_known_and_nothing_else() {
        let seen = Seen::default();
        assert!(seen.places.get().is_none(), "nothing before it is needed");
        assert_eq!((seen.before(b"a"), seen.before(b"a"), seen.before(b"a")), (false, true, true));
        let others = || (0..10 * PLACES as u64).map(|number| seen.before(&number.to_le_bytes()));
        // Two keys must meet in place and fingerprint to be taken for each other.
        assert!(others().filter(|before| *before).count() < 100);
    }
}
