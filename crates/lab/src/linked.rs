//! Lists through the entries of an array, linked by index: no allocation for each entry, and four
//! bytes a link. Both the maps in order of use and the queues of policies are made of them.
//!
//! Invariants: an entry is in at most one list; a list runs from the oldest to the newest entry and
//! back over the same ones. All operations take constant time. Threads: one user.

/// No entry.
pub(crate) const NONE: u32 = u32::MAX;

/// Neighbours of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) older: u32,
    pub(crate) newer: u32,
}

impl Link {
    /// Of an entry that is in no list.
    pub(crate) const NOWHERE: Link = Link { older: NONE, newer: NONE };
}

/// Entries that have a link each.
pub(crate) trait Linked {
    fn link(&self, at: u32) -> Link;
    fn link_mut(&mut self, at: u32) -> &mut Link;
}

/// Both ends of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct List {
    oldest: u32,
    newest: u32,
}

impl List {
    /// A list of nothing.
    pub(crate) const EMPTY: List = List { oldest: NONE, newest: NONE };

    /// The entry at one end, `NONE` of an empty list.
    #[inline]
    pub(crate) fn oldest(&self) -> u32 {
        self.oldest
    }

    /// The entry at the other end.
    #[inline]
    pub(crate) fn newest(&self) -> u32 {
        self.newest
    }

    /// An entry of no list becomes the newest.
    #[inline]
    pub(crate) fn push(&mut self, entries: &mut impl Linked, at: u32) {
        let second = std::mem::replace(&mut self.newest, at);
        *entries.link_mut(at) = Link { older: second, newer: NONE };
        match second {
            NONE => self.oldest = at,
            _ => entries.link_mut(second).newer = at,
        }
    }

    /// An entry of no list becomes the next older one of `other`, which is in this list.
    #[inline]
    pub(crate) fn push_before(&mut self, entries: &mut impl Linked, at: u32, other: u32) {
        let older = std::mem::replace(&mut entries.link_mut(other).older, at);
        *entries.link_mut(at) = Link { older, newer: other };
        match older {
            NONE => self.oldest = at,
            _ => entries.link_mut(older).newer = at,
        }
    }

    /// An entry of this list leaves it. Its own link stays as it was.
    #[inline]
    pub(crate) fn remove(&mut self, entries: &mut impl Linked, at: u32) {
        let Link { older, newer } = entries.link(at);
        match older {
            NONE => self.oldest = newer,
            _ => entries.link_mut(older).newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => entries.link_mut(newer).older = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Linked for Vec<Link> {
        fn link(&self, at: u32) -> Link {
            self[at as usize]
        }

        fn link_mut(&mut self, at: u32) -> &mut Link {
            &mut self[at as usize]
        }
    }

    fn both_ways(list: &List, entries: &Vec<Link>) -> (Vec<u32>, Vec<u32>) {
        let walk = |from: u32, next: fn(Link) -> u32| {
            let entry = |at: u32| (at != NONE).then_some(at);
            let step = |at: &u32| entry(next(entries.link(*at)));
            std::iter::successors(entry(from), step).collect::<Vec<_>>()
        };
        (walk(list.oldest(), |link| link.newer), walk(list.newest(), |link| link.older))
    }

    /// A vector in the same order is the model.
    #[test]
    fn behaves_like_a_vector() {
        let mut rng = fastrand::Rng::with_seed(9);
        let (mut entries, mut list) = (vec![Link::NOWHERE; 12], List::EMPTY);
        let mut model: Vec<u32> = Vec::new();
        for _ in 0..5_000 {
            let at = rng.u32(0..12);
            match model.iter().position(|entry| *entry == at) {
                Some(place) => {
                    list.remove(&mut entries, at);
                    model.remove(place);
                }
                None if rng.bool() && !model.is_empty() => {
                    let place = rng.usize(0..model.len());
                    list.push_before(&mut entries, at, model[place]);
                    model.insert(place, at);
                }
                None => {
                    list.push(&mut entries, at);
                    model.push(at);
                }
            }
            let (up, mut down) = both_ways(&list, &entries);
            down.reverse();
            assert_eq!((&up, &down), (&model, &model));
        }
    }
}
