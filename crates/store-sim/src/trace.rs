//! The record of the writes to a disk, and the images that a crash may leave of them.
//!
//! Each begin and end of a write or sync takes one tick of a counter that all disks of a world
//! share, so that "the moment before tick T" is the same moment for all of them. Rules of survival:
//!
//! - a write that ended before a sync began, where the sync ended before T, survives everything,
//!   unless a sync of the journal that failed had given it up before;
//! - after a kill, every write that ended before T survives; of writes in flight, any sectors;
//! - after a power loss, any sectors of every other write survive, in any combination.
//!
//! A sector always holds one of the contents that the cache held for it at some time (sectors are
//! atomic; a small journal write survives only with all earlier ones in the same sector). Threads:
//! none; [`Ticks`] is atomic.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{SECTOR_BYTES, SimDisk};

/// A moment: how many disk events came before it.
pub type Tick = u64;

/// End of a write that has not ended.
const IN_FLIGHT: Tick = Tick::MAX;

/// The counter of disk events.
#[derive(Debug, Default)]
pub struct Ticks(AtomicU64);

impl Ticks {
    /// The moment now.
    pub fn now(&self) -> Tick {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn take(&self) -> Tick {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// Kind of a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashKind {
    /// The process dies (`kill -9`); the machine goes on.
    Kill,
    /// The machine loses power; the disk loses its cache.
    Power,
}

#[derive(Debug, Clone)]
struct Write {
    end: Tick,
    offset: u64,
    bytes: Box<[u8]>,
    journal: bool,
    /// When the system took it for written although it was not; no later sync covers it.
    given_up: Tick,
}

#[derive(Debug, Clone)]
struct Sync {
    begin: Tick,
    end: Tick,
    /// Only journal writes in this range; `None`: everything.
    journal: Option<Range<u64>>,
}

/// The base image and all writes since.
#[derive(Debug)]
pub(crate) struct Trace {
    base: Arc<Vec<u8>>,
    base_tick: Tick,
    writes: BTreeMap<Tick, Write>,
    syncs: Vec<Sync>,
    volatile_bytes: u64,
}

/// The fate of one write in a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Whole,
    Lost,
    Torn,
}

impl Trace {
    pub(crate) fn new(base: Arc<Vec<u8>>) -> Trace {
        Trace { base, base_tick: 0, writes: BTreeMap::new(), syncs: vec![], volatile_bytes: 0 }
    }

    pub(crate) fn begin_write(&mut self, begin: Tick, offset: u64, bytes: &[u8], journal: bool) {
        self.volatile_bytes += bytes.len() as u64;
        let (end, bytes) = (IN_FLIGHT, bytes.into());
        self.writes.insert(begin, Write { end, offset, bytes, journal, given_up: IN_FLIGHT });
    }

    /// The write ended, and this many of its first bytes landed.
    pub(crate) fn end_write(&mut self, begin: Tick, end: Tick, landed: usize) {
        if let Some(write) = self.writes.get_mut(&begin) {
            write.end = end;
            if landed < write.bytes.len() {
                write.bytes = write.bytes[..landed].into();
            }
        }
    }

    pub(crate) fn sync(&mut self, begin: Tick, end: Tick, journal: Option<Range<u64>>) {
        self.syncs.push(Sync { begin, end, journal });
    }

    /// A sync of a part of the journal, or of all but the journal, failed: the system says so once,
    /// and has given up what it could not write.
    pub(crate) fn sync_failed(&mut self, at: Tick, journal: Option<&Range<u64>>) {
        for write in self.writes.values_mut() {
            let is_covered = match journal {
                Some(range) => write.journal && range.contains(&write.offset),
                None => !write.journal,
            };
            if is_covered && write.end < at {
                write.given_up = write.given_up.min(at);
            }
        }
    }

    /// Bytes written since the base image.
    pub(crate) fn volatile_bytes(&self) -> u64 {
        self.volatile_bytes
    }

    /// Discards history: all completed writes become part of the base image.
    pub(crate) fn compact(&mut self, now: Tick) {
        let image = Arc::make_mut(&mut self.base);
        let mut ended: Vec<&Write> = self.writes.values().filter(|w| w.end < now).collect();
        ended.sort_by_key(|w| w.end);
        for write in ended {
            copy(image, write.offset, &write.bytes);
        }
        self.writes.retain(|_, w| w.end >= now);
        self.syncs.clear();
        self.volatile_bytes = self.writes.values().map(|w| w.bytes.len() as u64).sum();
        self.base_tick = now;
    }

    /// An image that a crash just before tick `at` may leave; `seed` selects one of the possible
    /// ones.
    pub(crate) fn image_at(&self, at: Tick, kind: CrashKind, seed: u64) -> SimDisk {
        assert!(at >= self.base_tick, "the past before tick {} is gone", self.base_tick);
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut begun: Vec<&Write> = self.writes.range(..at).map(|(_, w)| w).collect();
        begun.sort_by_key(|w| w.end);
        let volatile = begun.iter().filter(|w| !self.survives(w, at, kind)).count();
        let mut fates = fates(volatile, rng).into_iter();
        let mut cache = self.base.to_vec();
        let mut media = if kind == CrashKind::Power { self.base.to_vec() } else { Vec::new() };
        for write in begun {
            let fate = if self.survives(write, at, kind) {
                Fate::Whole
            } else {
                fates.next().unwrap_or(Fate::Lost)
            };
            if write.end < at {
                copy(&mut cache, write.offset, &write.bytes);
            } else {
                land(&mut cache, write, fate, rng);
            }
            if kind == CrashKind::Power {
                destage(&mut media, &cache, write, fate, rng);
            }
        }
        SimDisk::from_bytes(if kind == CrashKind::Power { media } else { cache })
    }

    fn survives(&self, write: &Write, at: Tick, kind: CrashKind) -> bool {
        write.end < at
            && (kind == CrashKind::Kill
                || self.syncs.iter().any(|s| {
                    s.begin > write.end && s.end < at.min(write.given_up) && s.covers(write)
                }))
    }
}

impl Sync {
    fn covers(&self, write: &Write) -> bool {
        match &self.journal {
            None => true,
            Some(range) => write.journal && range.contains(&write.offset),
        }
    }
}

fn copy(image: &mut [u8], offset: u64, bytes: &[u8]) {
    image[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
}

/// Applies a write in flight to the cache, as far as it came.
fn land(cache: &mut [u8], write: &Write, fate: Fate, rng: &mut fastrand::Rng) {
    match fate {
        Fate::Lost => {}
        Fate::Whole => copy(cache, write.offset, &write.bytes),
        // A journal write is a copy into the page cache, cut at any byte.
        Fate::Torn if write.journal => {
            copy(cache, write.offset, &write.bytes[..rng.usize(0..=write.bytes.len())]);
        }
        Fate::Torn => {
            for piece in torn(sectors(write), rng) {
                let from = (piece.start.max(write.offset) - write.offset) as usize;
                let to = (piece.end - write.offset).min(write.bytes.len() as u64) as usize;
                copy(cache, write.offset + from as u64, &write.bytes[from..to]);
            }
        }
    }
}

/// Moves the sectors of a write that survive from the cache to the media.
fn destage(media: &mut [u8], cache: &[u8], write: &Write, fate: Fate, rng: &mut fastrand::Rng) {
    let pieces = match fate {
        Fate::Lost => return,
        Fate::Whole => vec![sectors(write)],
        Fate::Torn => torn(sectors(write), rng),
    };
    for piece in pieces {
        let range = piece.start as usize..(piece.end as usize).min(cache.len());
        media[range.clone()].copy_from_slice(&cache[range]);
    }
}

fn sectors(write: &Write) -> Range<u64> {
    let end = write.offset + write.bytes.len() as u64;
    write.offset / SECTOR_BYTES * SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) * SECTOR_BYTES
}

/// Some of the sectors of a range: its head, its tail, all but a hole, or each by coin.
fn torn(range: Range<u64>, rng: &mut fastrand::Rng) -> Vec<Range<u64>> {
    let count = (range.end - range.start) / SECTOR_BYTES;
    let cut = range.start + rng.u64(0..=count) * SECTOR_BYTES;
    match rng.u8(0..4) {
        0 => std::iter::once(range.start..cut).collect(),
        1 => std::iter::once(cut..range.end).collect(),
        2 => vec![range.start..cut, (cut + SECTOR_BYTES).min(range.end)..range.end],
        _ => (0..count)
            .map(|i| range.start + i * SECTOR_BYTES)
            .filter(|_| rng.bool())
            .map(|start| start..start + SECTOR_BYTES)
            .collect(),
    }
}

/// Fates of `count` writes, in order. The patterns target typical errors of recovery code: one
/// hole, a single survivor, later writes without earlier ones.
fn fates(count: usize, rng: &mut fastrand::Rng) -> Vec<Fate> {
    use Fate::{Lost, Torn, Whole};
    let one = rng.usize(0..count.max(1));
    let pattern = rng.u8(0..8);
    (0..count)
        .map(|i| match pattern {
            0 => Lost,
            1 => Whole,
            2 => [Whole, Lost][rng.usize(0..2)],
            3 => [Whole, Lost, Torn][rng.usize(0..3)],
            4 => [Whole, [Lost, Torn][rng.usize(0..2)]][usize::from(i == one)],
            5 => [Lost, [Whole, Torn][rng.usize(0..2)]][usize::from(i == one)],
            6 => [Lost, Whole][usize::from(i >= one)],
            _ => [Whole, Lost][usize::from(i > one)],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let mut trace = Trace::new(Arc::new(vec![0; 8192]));
        trace.begin_write(0, 0, &[1; 4096], false);
        trace.end_write(0, 1, 4096);
        trace.sync(2, 3, None);
        trace.begin_write(4, 0, &[2; 4096], false);
        trace.end_write(4, 5, 4096);
        trace.begin_write(6, 4096, &[3; 4096], false);
        trace
    }

    #[test]
    fn a_kill_keeps_what_ended_and_power_loss_keeps_what_was_synced() {
        let trace = trace();
        for seed in 0..200 {
            let kill = trace.image_at(7, CrashKind::Kill, seed);
            assert!(kill.bytes()[..4096].iter().all(|&b| b == 2));
            assert!(kill.bytes()[4096..].iter().all(|&b| b == 0 || b == 3));
            let power = trace.image_at(7, CrashKind::Power, seed);
            assert!(power.bytes()[..4096].iter().all(|&b| b == 1 || b == 2));
            let early = trace.image_at(3, CrashKind::Power, seed);
            assert!(early.bytes()[..4096].iter().all(|&b| b == 0 || b == 1));
            let none = trace.image_at(0, CrashKind::Power, seed);
            assert!(none.bytes().iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn what_a_failed_sync_gave_up_no_later_one_makes_durable() {
        for (journal, failed) in [(false, None), (true, Some(0..4096))] {
            let mut trace = Trace::new(Arc::new(vec![0; 8192]));
            trace.begin_write(0, 0, &[1; 4096], journal);
            trace.end_write(0, 1, 4096);
            trace.sync_failed(2, failed.as_ref());
            trace.begin_write(3, 4096, &[2; 4096], journal);
            trace.end_write(3, 4, 4096);
            trace.sync(5, 6, None);
            let images = (0..50).map(|seed| trace.image_at(7, CrashKind::Power, seed));
            let (mut lost, mut there) = (0, 0);
            for image in images {
                lost += usize::from(image.bytes()[..4096].iter().all(|b| *b == 0));
                there += usize::from(image.bytes()[4096..].iter().all(|b| *b == 2));
            }
            assert!(lost > 0 && there == 50, "{lost} {there}");
        }
    }

    #[test]
    fn every_mixture_of_sectors_turns_up() {
        let trace = trace();
        let mut mixed = 0;
        for seed in 0..200 {
            let image = trace.image_at(7, CrashKind::Power, seed);
            for sector in image.bytes().chunks(512) {
                assert!(sector.iter().all(|&b| b == sector[0]), "sectors are atomic");
            }
            mixed +=
                u32::from(image.bytes()[..4096].contains(&1) && image.bytes()[..4096].contains(&2));
        }
        assert!(mixed > 5, "torn writes turn up");
    }

    #[test]
    fn journal_writes_of_one_sector_survive_in_order() {
        let mut trace = Trace::new(Arc::new(vec![0; 4096]));
        for i in 0..8 {
            trace.begin_write(2 * i, 32 * i, &[i as u8 + 1; 32], true);
            trace.end_write(2 * i, 2 * i + 1, 32);
        }
        for seed in 0..100 {
            let image = trace.image_at(16, CrashKind::Power, seed);
            let survivors: Vec<bool> = (0..8).map(|i| image.bytes()[32 * i] != 0).collect();
            assert!(survivors.windows(2).all(|w| w[0] || !w[1]), "{survivors:?}");
        }
    }

    #[test]
    fn compaction_keeps_the_contents() {
        let mut trace = trace();
        let before = trace.image_at(6, CrashKind::Kill, 0);
        trace.compact(6);
        assert_eq!(trace.image_at(6, CrashKind::Kill, 0).bytes(), before.bytes());
        assert_eq!(trace.volatile_bytes(), 4096);
    }
}
