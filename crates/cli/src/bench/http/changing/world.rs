//! The objects of a changing origin: their versions, when each was superseded, and hence which
//! versions a cache may still serve at any moment.
//!
//! Bytes, length and entity tag of object `n` follow from seed, number and version, so that bytes
//! of two versions never fit together. Threads: changed by one, read by all; a version counts as
//! current before its predecessor counts as superseded, so a cache is never blamed for a change
//! that it could not know of.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::bench::http::catalogue::{Catalogue, ObjectRef};

/// Tolerance for ages: caches compute them in whole seconds from two clocks (RFC 9111 §4.2.3), so a
/// second may be lost to rounding.
const CLOCK_STEP: Duration = Duration::from_secs(1);
/// Mean length of large bodies, which span several sections and slices.
const LARGE_MEAN_BYTES: u64 = 768 << 10;
/// Pareto exponent of the lengths: two versions rarely have the same length.
const TAIL: f64 = 2.0;
/// Numbers of groups and of folders: objects whose numbers have the same remainder share one.
pub(crate) const GROUPS: u64 = 61;
pub(crate) const FOLDERS: u64 = 16;

/// The field, in lower case, in which the origin says which life of the proxy it answers. Not in a
/// 304, which would bring what is stored up to date.
pub(crate) const LIFE: &str = "x-life";

/// How a cache learns that an object has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only by a purge: fresh for a day.
    Purged,
    /// As `Purged`, with a body of several sections.
    Large,
    /// By expiry: fresh for this number of seconds.
    Short(u64),
    /// By validation on every request.
    Validated,
}

/// State of one object.
#[derive(Default)]
struct State {
    current: AtomicU64,
    /// The oldest version that may still be served.
    least: AtomicU64,
    /// Superseded versions that a cache may still hold as fresh, and when each was superseded.
    past: Mutex<VecDeque<(u64, Instant)>>,
}

/// All objects.
pub(crate) struct World {
    small: Catalogue,
    large: Catalogue,
    states: Vec<State>,
    /// Which life of the proxy this is.
    life: AtomicU64,
}

impl World {
    /// `count` objects of `mean_bytes`, all in their first version.
    pub(crate) fn new(count: u32, mean_bytes: u64, seed: u64) -> World {
        World {
            small: Catalogue::new(mean_bytes, Some(TAIL), 0, seed),
            large: Catalogue::new(LARGE_MEAN_BYTES, Some(TAIL), 0, seed),
            states: (0..count).map(|_| State::default()).collect(),
            life: AtomicU64::new(0),
        }
    }

    /// The proxy is about to be started again.
    pub(crate) fn begin_life(&self) {
        self.life.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn life(&self) -> u64 {
        self.life.load(Ordering::SeqCst)
    }

    /// Number of objects.
    pub(crate) fn count(&self) -> u64 {
        self.states.len() as u64
    }

    pub(crate) fn kind(number: u64) -> Kind {
        match number % 10 {
            0..=3 => Kind::Purged,
            4 => Kind::Large,
            5 | 6 => Kind::Short(1),
            7 => Kind::Short(2),
            _ => Kind::Validated,
        }
    }

    /// The `Cache-Control` of an object.
    pub(crate) fn cache_control(number: u64) -> String {
        match World::kind(number) {
            Kind::Purged | Kind::Large => "max-age=86400".to_owned(),
            Kind::Short(seconds) => format!("max-age={seconds}"),
            Kind::Validated if number.is_multiple_of(2) => "no-cache".to_owned(),
            Kind::Validated => "max-age=0, must-revalidate".to_owned(),
        }
    }

    pub(crate) fn path(number: u64) -> String {
        format!("/v/{}/{number}", number % FOLDERS)
    }

    /// The object with this path.
    pub(crate) fn find(&self, path: &str) -> Option<u64> {
        let number = path.strip_prefix("/v/")?.split_once('/')?.1.parse().ok()?;
        (number < self.count() && World::path(number) == path).then_some(number)
    }

    pub(crate) fn tag(number: u64, version: u64) -> String {
        format!("\"{number}-{version}\"")
    }

    /// The version that an entity tag names.
    pub(crate) fn version_of(number: u64, tag: &str) -> Option<u64> {
        let (named, version) = tag.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
        (named.parse() == Ok(number)).then(|| version.parse().ok())?
    }

    fn catalogue(&self, number: u64) -> &Catalogue {
        if World::kind(number) == Kind::Large { &self.large } else { &self.small }
    }

    pub(crate) fn length_bytes(&self, number: u64, version: u64) -> u64 {
        self.catalogue(number).length_bytes(ObjectRef { run: version, number })
    }

    pub(crate) fn push_body(&self, number: u64, version: u64, bytes: &mut Vec<u8>) {
        self.catalogue(number).push_body(ObjectRef { run: version, number }, bytes);
    }

    /// Whether this version contains `bytes` at `offset`.
    pub(crate) fn matches(&self, number: u64, version: u64, offset: u64, bytes: &[u8]) -> bool {
        self.catalogue(number).matches(ObjectRef { run: version, number }, offset, bytes)
    }

    fn state(&self, number: u64) -> &State {
        &self.states[number as usize]
    }

    pub(crate) fn current(&self, number: u64) -> u64 {
        self.state(number).current.load(Ordering::SeqCst)
    }

    /// Creates a new version. Called by one thread only.
    pub(crate) fn change(&self, number: u64) {
        let state = self.state(number);
        let old = state.current.fetch_add(1, Ordering::SeqCst);
        if let Kind::Short(_) = World::kind(number) {
            let mut past = state.past.lock().unwrap_or_else(PoisonError::into_inner);
            past.push_back((old, Instant::now()));
        }
    }

    /// Forbids versions older than `version` from now on: a purge that began while it was current
    /// has been acknowledged.
    pub(crate) fn forbid_before(&self, number: u64, version: u64) {
        self.state(number).least.fetch_max(version, Ordering::SeqCst);
    }

    /// The oldest version that may answer a request sent after this call.
    pub(crate) fn least(&self, number: u64) -> u64 {
        self.least_at(number, Instant::now())
    }

    fn least_at(&self, number: u64, now: Instant) -> u64 {
        let state = self.state(number);
        match World::kind(number) {
            Kind::Validated => return self.current(number),
            Kind::Purged | Kind::Large => {}
            Kind::Short(seconds) => {
                let fresh = Duration::from_secs(seconds) + CLOCK_STEP;
                let mut past = state.past.lock().unwrap_or_else(PoisonError::into_inner);
                while let Some((version, since)) = past.front()
                    && now.saturating_duration_since(*since) > fresh
                {
                    state.least.fetch_max(version + 1, Ordering::SeqCst);
                    past.pop_front();
                }
            }
        }
        state.least.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_served_follows_changes_purges_and_time() {
        let world = World::new(20, 1000, 1);
        let now = Instant::now();
        let later = |millis| now + Duration::from_millis(millis);
        for number in 0..20 {
            assert_eq!((world.current(number), world.least_at(number, now)), (0, 0));
            world.change(number);
            world.change(number);
            assert_eq!(world.current(number), 2);
        }
        for (number, at, least) in [
            // Fresh for a day: the old version is permitted.
            (0, later(100_000), 0),
            (4, later(100_000), 0),
            // Fresh for one or two seconds, plus one second of tolerance.
            (5, later(1900), 0),
            (5, later(2500), 2),
            (7, later(2900), 0),
            (7, later(3500), 2),
            // Validated: the old version is forbidden at once.
            (8, now, 2),
        ] {
            assert_eq!(world.least_at(number, at), least, "{number}");
        }
        world.forbid_before(0, 1);
        assert_eq!(world.least(0), 1);
    }

    #[test]
    fn versions_have_names_and_bytes_of_their_own() {
        let world = World::new(10, 1000, 1);
        assert_eq!(World::version_of(4, &World::tag(4, 7)), Some(7));
        for wrong in ["\"5-7\"", "4-7", "\"4-\"", "W/\"4-7\"", ""] {
            assert_eq!(World::version_of(4, wrong), None, "{wrong}");
        }
        assert_eq!(world.find(&World::path(9)), Some(9));
        assert_eq!((world.find("/v/0/9"), world.find(&World::path(10))), (None, None));
        let mut body = Vec::new();
        world.push_body(4, 1, &mut body);
        assert_eq!(body.len() as u64, world.length_bytes(4, 1));
        assert!(world.matches(4, 1, 100, &body[100..500]));
        assert!(!world.matches(4, 2, 100, &body[100..500]));
    }
}
