//! The busiest URLs and hosts, in a bounded sketch.
//!
//! HeavyKeeper (Gong et al., USENIX ATC 2018, §3.3) with one table and two candidate slots per
//! name. A name without a slot decrements the smaller count of its two slots with a probability
//! that falls exponentially with that count, and takes the slot when the count reaches zero. So
//! rare names rarely enter, and a crowd of them never displaces a frequent one. Deviation from the
//! paper: one table of two slots rather than two tables. What decays is only the count that defends
//! a slot: what is shown was counted since the name has it, so that hits and times belong to the
//! requests. Counts are never too high, except when 64-bit hashes collide, and a little too low.
//! Counting proceeds in windows. The last complete one is shown together with the one that lasts,
//! so that the numbers are recent, and are not of a moment only. Memory is fixed except for the
//! names. Threads: one worker counts, the admin listener reads, a lock between them.

use std::time::{Duration, Instant};

/// Length of a window. A complete one is shown for two more at most: what is still going on has
/// brought the next by then.
const WINDOW: Duration = Duration::from_secs(10);
const URL_SLOTS: usize = 1024;
const HOST_SLOTS: usize = 128;
/// Base of the decay probability, as in the paper.
const DECAY: f64 = 1.08;
/// Longest part of a name that is kept.
const NAME_BYTES_MAX: usize = 256;

/// One name and its counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) requests: u64,
    pub(crate) hits: u64,
    /// Total time of its responses.
    pub(crate) took_us: u64,
}

#[derive(Debug, Default)]
struct Slot {
    hash: u64,
    /// What other names must bring down to zero to take the slot.
    defence: u64,
    row: Row,
}

/// The busiest names of one kind.
#[derive(Debug)]
struct Sketch {
    slots: Box<[Slot]>,
}

impl Sketch {
    fn new(slots: usize) -> Sketch {
        Sketch { slots: (0..slots).map(|_| Slot::default()).collect() }
    }

    fn record(&mut self, name: &[u8], hit: bool, took_us: u64, random: &mut fastrand::Rng) {
        let hash = damelo::GroupId::of(name).get();
        let count = self.slots.len();
        let places = [hash as usize % count, (hash >> 32) as usize % count];
        let holds = |at: &usize| self.slots[*at].defence > 0 && self.slots[*at].hash == hash;
        let at = match places.iter().find(|at| holds(at)) {
            Some(at) => *at,
            None => {
                let smaller = |at: &&usize| self.slots[**at].defence;
                let at = places.iter().min_by_key(smaller).copied().unwrap_or(0);
                let slot = &mut self.slots[at];
                if slot.defence > 0 {
                    let exponent = i32::try_from(slot.defence).unwrap_or(i32::MAX);
                    if random.f64() >= DECAY.powi(-exponent) {
                        return;
                    }
                    slot.defence -= 1;
                    if slot.defence > 0 {
                        return;
                    }
                }
                let name = &name[..name.len().min(NAME_BYTES_MAX)];
                let name = String::from_utf8_lossy(name).into_owned();
                *slot = Slot { hash, defence: 0, row: Row { name, ..Row::default() } };
                at
            }
        };
        let Slot { defence, row, .. } = &mut self.slots[at];
        *defence += 1;
        row.requests += 1;
        row.hits += u64::from(hit);
        row.took_us = row.took_us.saturating_add(took_us);
    }

    /// Returns all rows and empties the sketch.
    fn take(&mut self) -> Vec<Row> {
        let slots = self.slots.iter_mut().map(|slot| std::mem::take(slot).row);
        slots.filter(|row| row.requests > 0).collect()
    }

    fn rows(&self) -> Vec<Row> {
        let rows = self.slots.iter().map(|slot| &slot.row);
        rows.filter(|row| row.requests > 0).cloned().collect()
    }
}

/// URLs and hosts of one window, and the window's length.
#[derive(Debug, Clone, Default)]
pub(crate) struct Busiest {
    pub(crate) urls: Vec<Row>,
    pub(crate) hosts: Vec<Row>,
    pub(crate) window: Duration,
}

/// The busiest URLs and hosts of one worker.
#[derive(Debug)]
pub(crate) struct HeavyHitters {
    urls: Sketch,
    hosts: Sketch,
    random: fastrand::Rng,
    began: Option<Instant>,
    last: Busiest,
    /// The end of that window.
    ended: Option<Instant>,
}

impl Default for HeavyHitters {
    fn default() -> HeavyHitters {
        HeavyHitters {
            urls: Sketch::new(URL_SLOTS),
            hosts: Sketch::new(HOST_SLOTS),
            random: fastrand::Rng::new(),
            began: None,
            last: Busiest::default(),
            ended: None,
        }
    }
}

impl HeavyHitters {
    /// Counts a request for a URL.
    pub(crate) fn record(&mut self, url: &[u8], hit: bool, took: Duration, now: Instant) {
        self.turn(now);
        self.began.get_or_insert(now);
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.urls.record(url, hit, took_us, &mut self.random);
        self.hosts.record(host_of(url), hit, took_us, &mut self.random);
    }

    /// Ends the window if it is over.
    fn turn(&mut self, now: Instant) {
        let Some(began) = self.began else { return };
        let window = now.saturating_duration_since(began);
        if window >= WINDOW {
            let (urls, hosts) = (self.urls.take(), self.hosts.take());
            // A window that ended long ago says nothing about the present.
            let recent = window < 2 * WINDOW;
            self.last = if recent { Busiest { urls, hosts, window } } else { Busiest::default() };
            (self.began, self.ended) = (None, Some(now));
        }
    }

    /// The window that lasts, and the last complete one if that ended lately, as one.
    pub(crate) fn busiest(&mut self, now: Instant) -> Busiest {
        self.turn(now);
        let since = |moment: Instant| now.saturating_duration_since(moment);
        let lasts = self.began.map_or(Duration::ZERO, since);
        let is_recent = self.ended.is_some_and(|ended| since(ended) < 2 * WINDOW);
        let mut shown = if is_recent { self.last.clone() } else { Busiest::default() };
        let sum = |before: &mut Vec<Row>, now: Vec<Row>| {
            *before = merged([std::mem::take(before), now], usize::MAX);
        };
        sum(&mut shown.urls, self.urls.rows());
        sum(&mut shown.hosts, self.hosts.rows());
        shown.window += lasts;
        shown
    }
}

fn host_of(url: &[u8]) -> &[u8] {
    let after = url.windows(3).position(|w| w == b"://").map_or(url, |at| &url[at + 3..]);
    let host = after.split(|byte| *byte == b'/').next().unwrap_or_default();
    // `OPTIONS *` asks for no path: what stands behind the host is the asterisk.
    host.strip_suffix(b"*").unwrap_or(host)
}

/// Rows of all workers as one list, busiest first, at most `count`.
pub(crate) fn merged(lists: impl IntoIterator<Item = Vec<Row>>, count: usize) -> Vec<Row> {
    let mut sums: std::collections::HashMap<String, Row> = std::collections::HashMap::new();
    for row in lists.into_iter().flatten() {
        let sum = sums.entry(row.name.clone()).or_default();
        sum.name = row.name;
        sum.requests += row.requests;
        sum.hits += row.hits;
        sum.took_us = sum.took_us.saturating_add(row.took_us);
    }
    let mut rows: Vec<Row> = sums.into_values().collect();
    rows.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.name.cmp(&b.name)));
    rows.truncate(count);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_are_found_in_a_crowd_and_never_overcounted() {
        for seed in 0..5 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut sketch = Sketch::new(URL_SLOTS);
            let mut exact = std::collections::HashMap::<String, u64>::new();
            for _ in 0..200_000 {
                // Half of all requests for 20 names, the others for a crowd of 50,000.
                let n = if random.bool() { random.u32(..20) } else { random.u32(20..50_000) };
                let name = format!("http://h/{n}");
                *exact.entry(name.clone()).or_default() += 1;
                sketch.record(name.as_bytes(), n % 2 == 0, 10, &mut random);
            }
            let rows = merged([sketch.rows()], 20);
            for row in &rows {
                let truth = exact[&row.name];
                assert!(row.requests <= truth, "seed {seed} {row:?} {truth}");
                assert!(row.requests * 100 >= truth * 95, "seed {seed} {row:?} {truth}");
                let n: u32 = row.name.rsplit('/').next().unwrap().parse().unwrap();
                assert!(n < 20, "seed {seed} {row:?}");
                let hits = if n.is_multiple_of(2) { row.requests } else { 0 };
                assert_eq!((row.hits, row.took_us), (hits, row.requests * 10), "seed {seed}");
            }
            assert_eq!(rows.len(), 20);
        }
    }

    /// All names in one pair of slots: those of others wear down what defends a name.
    #[test]
    fn ratio_and_mean_of_a_row_are_those_of_its_requests() {
        let (mut sketch, mut random) = (Sketch::new(1), fastrand::Rng::with_seed(7));
        for n in 0..3000 {
            sketch.record(b"busy", n % 4 == 0, 100, &mut random);
            sketch.record(n.to_string().as_bytes(), false, 1, &mut random);
        }
        let rows = sketch.rows();
        let row = &rows[0];
        assert_eq!((rows.len(), row.name.as_str()), (1, "busy"));
        assert_eq!(row.took_us, row.requests * 100);
        assert!(row.hits.abs_diff(row.requests / 4) <= 1, "{row:?}");
    }

    #[test]
    fn the_asterisk_of_options_is_no_part_of_a_host() {
        assert_eq!(host_of(b"http://h:1*"), b"h:1");
        assert_eq!(host_of(b"http://h:1/*"), b"h:1");
    }

    #[test]
    fn windows_end_and_old_ones_are_not_shown() {
        let mut hot = HeavyHitters::default();
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        hot.record(b"http://h:1/a", true, Duration::from_millis(1), at(0));
        assert_eq!(hot.busiest(at(1)).urls.len(), 1, "the first window is shown as it grows");
        hot.record(b"http://h:1/b", false, Duration::from_millis(1), at(11));
        hot.record(b"http://h:1/b", false, Duration::from_millis(1), at(11));
        let shown = hot.busiest(at(12));
        let urls: Vec<_> = shown.urls.iter().map(|row| (row.name.as_str(), row.requests)).collect();
        assert_eq!(urls, [("http://h:1/b", 2), ("http://h:1/a", 1)], "what is new is there");
        assert_eq!((shown.hosts.len(), shown.hosts[0].requests), (1, 3));
        assert_eq!((shown.hosts[0].hits, shown.hosts[0].took_us), (1, 3000));
        assert_eq!(shown.window, Duration::from_secs(11 + 1), "of both");
        let shown = hot.busiest(at(22));
        assert_eq!((shown.urls.len(), shown.urls[0].name.as_str()), (1, "http://h:1/b"));
        hot.record(b"http://h:1/c", false, Duration::from_millis(1), at(23));
        assert!(hot.busiest(at(90)).urls.is_empty());
        hot.record(b"http://h:1/d", false, Duration::from_millis(1), at(100));
        assert_eq!(hot.busiest(at(112)).urls.len(), 1);
        let idle = hot.busiest(at(200));
        assert!(idle.urls.is_empty() && idle.hosts.is_empty(), "nothing comes any more");
        hot.record(b"http://h:1/e", false, Duration::from_millis(1), at(201));
        assert_eq!(hot.busiest(at(202)).urls[0].name, "http://h:1/e", "as the first did");
    }
}
