//! Objects by what falls as time passes: their size times the requests until they are asked for
//! again. The greatest goes first; of equals the one with the greatest key.
//!
//! Of two objects the larger one's product falls faster, so that the order changes though nobody is
//! asked for, and of each two at most once. The objects are in a kinetic heap (Basch, Guibas and
//! Hershberger 1997): an entry knows before which request it and what is below it are in order for
//! certain, and when that comes, only what has expired is put in order.
//!
//! Invariants: at the present request no object goes before the one it hangs from; an entry expires
//! no later than the first request at which, without changes, that would not hold for something
//! below it; the place of an object is that of its entry. An object takes 4 bytes, and 16 more
//! while it is there. One thread at a time.

use std::cmp::Ordering;

use super::NEVER;
use super::sizes::LargeSizes;
use crate::cpu_prefetch;

/// The place of an object that is not there.
const ABSENT: u32 = u32::MAX;

/// An object and how it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rank {
    pub(super) key: u32,
    pub(super) size_bytes: u64,
    /// Number of the request.
    pub(super) next_use: u32,
}

impl Rank {
    /// What is greatest goes first.
    fn product(&self, now: u32) -> i128 {
        i128::from(self.size_bytes) * (i128::from(self.next_use) - i128::from(now))
    }

    /// How it goes beside another one: `Greater` is before it.
    fn order(&self, other: &Rank, now: u32) -> Ordering {
        self.product(now).cmp(&other.product(now)).then(self.key.cmp(&other.key))
    }

    /// The first request at which another one goes before this one, which is before it now.
    fn overtaken_at(&self, other: &Rank) -> u32 {
        if self.size_bytes <= other.size_bytes {
            return NEVER;
        }
        // Products are equal where this is divided without a rest.
        let ahead = self.product(0) - other.product(0);
        let gain = i128::from(self.size_bytes) - i128::from(other.size_bytes);
        let wins_ties = other.key > self.key && ahead % gain == 0;
        u32::try_from(ahead / gain + i128::from(!wins_ties)).unwrap_or(NEVER)
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u32,
    next_use: u32,
    /// Packed.
    size: u32,
    expires: u32,
}

const _: () = assert!(size_of::<Entry>() == 16);

/// The heap.
#[derive(Debug)]
pub(super) struct Falling {
    entries: Vec<Entry>,
    /// By key.
    places: Vec<u32>,
    large: LargeSizes,
    now: u32,
}

impl Falling {
    pub(super) fn new() -> Falling {
        let (entries, places, large) = (Vec::new(), Vec::new(), LargeSizes::default());
        Falling { entries, places, large, now: 0 }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn holds(&self, key: u32) -> bool {
        self.place(key).is_some()
    }

    /// Begins to fetch what is known of an object.
    #[inline]
    pub(super) fn fetch(&self, key: u32) {
        cpu_prefetch::fetch(&self.places, key as usize);
    }

    /// Whose turn it is to go.
    pub(super) fn first(&self) -> Option<u32> {
        self.entries.first().map(|entry| entry.key)
    }

    /// Time passes.
    pub(super) fn pass_to(&mut self, now: u32) {
        self.now = now;
        self.renew(0);
    }

    /// An object that is not there comes.
    pub(super) fn push(&mut self, rank: Rank) {
        let key = rank.key as usize;
        if self.places.len() <= key {
            self.places.resize(key + 1, ABSENT);
        }
        let size = self.large.packed(rank.key, rank.size_bytes);
        let entry = Entry { key: rank.key, next_use: rank.next_use, size, expires: NEVER };
        let at = self.entries.len();
        self.entries.push(entry);
        self.settle(at, entry);
    }

    /// An object that is there will be asked for later than it was to be.
    pub(super) fn postpone(&mut self, key: u32, next_use: u32) {
        if let Some(at) = self.place(key) {
            self.settle(at, Entry { next_use, ..self.entries[at] });
        }
    }

    /// An object leaves, if it is there.
    pub(super) fn remove(&mut self, key: u32) -> Option<Rank> {
        let at = self.place(key)?;
        let rank = self.rank(at);
        self.places[key as usize] = ABSENT;
        let last = self.entries.pop()?;
        if at < self.entries.len() {
            self.settle(at, last);
        }
        Some(rank)
    }

    fn place(&self, key: u32) -> Option<usize> {
        let place = self.places.get(key as usize).copied().unwrap_or(ABSENT);
        (place != ABSENT).then_some(place as usize)
    }

    fn rank(&self, at: usize) -> Rank {
        let Entry { key, next_use, size, .. } = self.entries[at];
        Rank { key, size_bytes: self.large.unpacked(key, size), next_use }
    }

    fn is_before(&self, at: usize, other: usize) -> bool {
        self.rank(at).order(&self.rank(other), self.now) == Ordering::Greater
    }

    fn put(&mut self, at: usize, entry: Entry) {
        self.places[entry.key as usize] = at as u32;
        self.entries[at] = entry;
    }

    fn swap(&mut self, at: usize, other: usize) {
        let (entry, other_entry) = (self.entries[at], self.entries[other]);
        self.put(at, other_entry);
        self.put(other, entry);
    }

    /// Those that hang from an entry.
    fn children(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        let end = self.entries.len();
        (2 * at + 1..2 * at + 3).filter(move |child| *child < end)
    }

    /// Puts an entry where it may go before or after those around it.
    fn settle(&mut self, at: usize, entry: Entry) {
        self.put(at, entry);
        let mut top = at;
        while top > 0 && self.is_before(top, (top - 1) / 2) {
            self.swap(top, (top - 1) / 2);
            top = (top - 1) / 2;
        }
        // What has risen is before all that is below it; what has not may have to sink.
        let mut changed = if top < at { at } else { self.sink(at) };
        self.note_expiry(changed);
        while changed > 0 {
            changed = (changed - 1) / 2;
            self.note_expiry(changed);
        }
    }

    /// Lets an entry sink to where it belongs; says where.
    fn sink(&mut self, mut at: usize) -> usize {
        loop {
            let before = |a: usize, b: usize| if self.is_before(b, a) { b } else { a };
            let first = self.children(at).fold(at, before);
            if first == at {
                return at;
            }
            self.swap(at, first);
            at = first;
        }
    }

    /// Notes until when an entry and all below it are in order, which those below it know.
    fn note_expiry(&mut self, at: usize) {
        let rank = self.rank(at);
        let until = |child| rank.overtaken_at(&self.rank(child)).min(self.entries[child].expires);
        self.entries[at].expires = self.children(at).map(until).min().unwrap_or(NEVER);
    }

    /// Puts in order what has expired of an entry and what is below it. Goes as deep as the heap.
    fn renew(&mut self, at: usize) {
        if self.entries.get(at).is_none_or(|entry| entry.expires > self.now) {
            return;
        }
        self.children(at).for_each(|child| self.renew(child));
        let mut changed = self.sink(at);
        while changed > at {
            self.note_expiry(changed);
            changed = (changed - 1) / 2;
        }
        self.note_expiry(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search among all is the model; sizes of which many are equal, and some that 32 bits do not
    /// hold.
    #[test]
    fn the_first_is_the_greatest_at_every_request() {
        for (keys, size_max) in [(40, 3), (40, 1 << 20), (400, 1 << 40), (40, u64::MAX - 1)] {
            let mut rng = fastrand::Rng::with_seed(size_max);
            let (mut falling, mut model) = (Falling::new(), Vec::<Rank>::new());
            for now in 0..6_000 {
                falling.pass_to(now);
                let key = rng.u32(0..keys);
                let far = 1 << rng.u32(0..12);
                let next_use = now + 1 + rng.u32(0..far);
                match model.iter().position(|rank| rank.key == key) {
                    Some(at) if rng.u8(0..4) == 0 => {
                        assert_eq!(falling.remove(key), Some(model.remove(at)));
                    }
                    Some(at) => {
                        falling.postpone(key, next_use);
                        model[at].next_use = next_use;
                    }
                    None => {
                        let rank = Rank { key, size_bytes: rng.u64(0..=size_max), next_use };
                        falling.push(rank);
                        model.push(rank);
                    }
                }
                let first = model.iter().max_by(|a, b| a.order(b, now)).map(|rank| rank.key);
                assert_eq!(falling.first(), first, "{now}");
                assert_eq!(falling.len(), model.len());
            }
        }
    }

    /// Worked out on paper. 2 bytes in 10 requests go before 1 byte in 15 (20 and 15), until 5
    /// requests have passed (10 and 10): then the newer name goes, or they wait for one more.
    #[test]
    fn the_larger_one_is_overtaken_when_products_meet() {
        let rank = |key, size_bytes, next_use| Rank { key, size_bytes, next_use };
        assert_eq!(rank(0, 2, 10).overtaken_at(&rank(1, 1, 15)), 5);
        assert_eq!(rank(1, 2, 10).overtaken_at(&rank(0, 1, 15)), 6);
        assert_eq!(rank(0, 3, 10).overtaken_at(&rank(1, 1, 11)), 10);
        assert_eq!(rank(0, 1, 10).overtaken_at(&rank(1, 2, 4)), NEVER);
    }
}
