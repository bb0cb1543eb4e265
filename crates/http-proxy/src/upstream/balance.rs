//! Choice of the origin that gets a request. Invariant: an origin is never chosen twice for one
//! request.
//!
//! Consistent choice uses rendezvous hashing (Thaler and Ravishankar, "A Name-Based Mapping
//! Scheme for Rendezvous", 1996, §4): each origin has a score for each key and the best one wins,
//! so the loss of an origin moves only its own keys. Pure functions; no threads.

use twox_hash::XxHash3_64;

use crate::config::transport::OriginChoice;

/// An origin as the choice sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Hash of its name, the same in every process.
    pub(crate) name_hash: u64,
    /// Requests in flight.
    pub(crate) load: usize,
    /// False while health checks report the origin down, or failed requests have ejected it.
    pub(crate) healthy: bool,
    /// It is asked only where no other is healthy.
    pub(crate) is_backup: bool,
    /// The origin was already asked for this request.
    pub(crate) tried: bool,
}

/// The origins of a site that a request may still go to.
#[derive(Default)]
pub(crate) struct Open {
    /// Of all, only this one.
    pub(crate) only: Option<usize>,
    /// Not these, which could not be reached.
    pub(crate) asked: Vec<usize>,
}

impl Open {
    pub(crate) fn has(&self, index: usize) -> bool {
        self.only.is_none_or(|only| only == index) && !self.asked.contains(&index)
    }

    /// Whether it has any of the first `count`.
    pub(crate) fn has_any(&self, count: usize) -> bool {
        (0..count).any(|index| self.has(index))
    }
}

/// Hash of an origin's name.
pub(crate) fn name_hash(name: &str) -> u64 {
    XxHash3_64::oneshot(name.as_bytes())
}

/// Hash of the requested resource.
pub(crate) fn key_hash(host: &[u8], path_and_query: &str) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(host), path_and_query.as_bytes())
}

/// Index of the origin to ask next; `None` when all were tried. If no untried origin is healthy,
/// the unhealthy ones are eligible: a failed request is no worse than none. Backups come behind the
/// others of the same health.
pub(crate) fn choose(candidates: &[Candidate], choice: OriginChoice, key: u64) -> Option<usize> {
    let untried = |wanted: (bool, bool)| {
        let all = candidates.iter().enumerate().filter(|(_, candidate)| !candidate.tried);
        all.filter(move |(_, candidate)| (candidate.healthy, candidate.is_backup) == wanted)
    };
    let best = |wanted: (bool, bool)| match choice {
        OriginChoice::ConsistentHash => {
            untried(wanted).max_by_key(|(_, candidate)| score(candidate, key))
        }
        // The key breaks ties; otherwise the first origin would get all sequential requests.
        OriginChoice::LeastLoaded => untried(wanted)
            .min_by_key(|(_, candidate)| (candidate.load, u64::MAX - score(candidate, key))),
    };
    let kinds = [(true, false), (true, true), (false, false), (false, true)];
    kinds.into_iter().find_map(best).map(|(index, _)| index)
}

fn score(candidate: &Candidate, key: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(key, &candidate.name_hash.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(count: usize) -> Vec<Candidate> {
        let one = |number: usize| Candidate {
            name_hash: name_hash(&format!("http://10.0.0.{number}")),
            load: 0,
            healthy: true,
            is_backup: false,
            tried: false,
        };
        (0..count).map(one).collect()
    }

    fn key(number: u32) -> u64 {
        key_hash(b"a", &format!("/{number}"))
    }

    #[test]
    fn keys_spread_evenly_and_only_those_of_the_lost_origin_move() {
        let mut all = candidates(5);
        let chosen = |all: &[Candidate]| -> Vec<usize> {
            (0..10_000)
                .map(|n| choose(all, OriginChoice::ConsistentHash, key(n)).unwrap())
                .collect()
        };
        let before = chosen(&all);
        for index in 0..5 {
            let share = before.iter().filter(|chosen| **chosen == index).count();
            assert!((1700..2300).contains(&share), "{index} got {share}");
        }
        all[2].healthy = false;
        for (before, after) in before.into_iter().zip(chosen(&all)) {
            assert!(if before == 2 { after != 2 } else { after == before });
        }
    }

    #[test]
    fn the_least_loaded_gets_it_and_equals_share() {
        let mut all = candidates(3);
        let seen: std::collections::HashSet<_> =
            (0..100).map(|n| choose(&all, OriginChoice::LeastLoaded, key(n))).collect();
        assert_eq!(seen.len(), 3);
        all[0].load = 2;
        all[1].load = 1;
        all[2].load = 3;
        assert_eq!(choose(&all, OriginChoice::LeastLoaded, 7), Some(1));
        all[1].tried = true;
        assert_eq!(choose(&all, OriginChoice::LeastLoaded, 7), Some(0));
    }

    #[test]
    fn a_backup_is_asked_when_no_other_is_healthy() {
        for choice in [OriginChoice::ConsistentHash, OriginChoice::LeastLoaded] {
            let mut all = candidates(3);
            (all[2].is_backup, all[0].load, all[1].load) = (true, 9, 9);
            let chosen = |all: &[Candidate]| -> std::collections::BTreeSet<usize> {
                (0..100).map(|n| choose(all, choice, key(n)).unwrap()).collect()
            };
            assert_eq!(chosen(&all), [0, 1].into());
            all[0].healthy = false;
            assert_eq!(chosen(&all), [1].into());
            all[1].tried = true;
            assert_eq!(chosen(&all), [2].into(), "before what is not healthy");
            all[2].healthy = false;
            assert_eq!(chosen(&all), [0].into(), "behind what is no better");
            all[0].tried = true;
            assert_eq!(chosen(&all), [2].into());
        }
    }

    #[test]
    fn the_sick_are_asked_when_nobody_else_is_left() {
        let mut all = candidates(2);
        all[0].healthy = false;
        all[1].tried = true;
        assert_eq!(choose(&all, OriginChoice::ConsistentHash, 7), Some(0));
        all[0].tried = true;
        assert_eq!(choose(&all, OriginChoice::ConsistentHash, 7), None);
    }
}
