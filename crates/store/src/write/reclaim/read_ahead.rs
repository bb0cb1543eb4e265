//! Reads what reclaim keeps of a segment, several reads under way at once: the flusher, which waits
//! for them, writes nothing meanwhile, and on a busy disk each takes its turn among many others.
//!
//! Owns: the buffers. Invariants: records are asked for in disk order, and windows are begun and
//! used in that order. All windows together hold [`AHEAD_BYTES_MAX`] at most, or one record that is
//! longer. Threads: the flusher; completions run on I/O threads.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use super::Keeper;
use crate::engine::Engine;
use crate::memory::mapped::AlignedBuf;
use crate::signal::Signal;
use crate::space::SegmentId;
use crate::stats::add;
use crate::sync::{Arc, Mutex, lock};

/// Most bytes under way and read ahead of their use.
const AHEAD_BYTES_MAX: u64 = 1 << 20;
/// Most windows under way and read ahead of their use: those who read wait for their turn too.
const AHEAD_WINDOWS_MAX: usize = 32;

/// What is read at once.
struct Limits {
    /// Kept objects with gaps of at most this many bytes are read together.
    gap_bytes: u64,
    /// Most bytes of one read of several objects.
    window_bytes: u64,
}

/// With seeks, reading the gap costs less than another revolution.
const WITH_SEEKS: Limits = Limits { gap_bytes: 64 << 10, window_bytes: AHEAD_BYTES_MAX };
/// On flash, a gap costs about as much as another read, and a read is done sooner in pieces.
const ON_FLASH: Limits = Limits { gap_bytes: 16 << 10, window_bytes: AHEAD_BYTES_MAX / 8 };

/// Reads records of one segment.
///
/// A bad sector should cost only the objects on it and count few errors: otherwise one sector would
/// put a whole volume out of service. After a joint read failed, each object is read by itself, and
/// an object that contains a range that failed by itself is not tried.
pub(super) struct ReadAhead<'a> {
    engine: &'a Engine,
    segment: SegmentId,
    limits: Limits,
    /// Those that no window was begun for, in disk order.
    rest: &'a [Keeper],
    /// In disk order.
    under_way: VecDeque<Window>,
    /// The last read that was waited for.
    landed: Option<(Range<u64>, Landed)>,
    /// Range of the last single-object read that failed.
    unreadable: Option<Range<u64>>,
}

/// A part of the segment that is being read.
struct Window {
    range: Range<u64>,
    landing: Arc<Landing>,
}

/// Where a read brings its outcome.
#[derive(Default)]
struct Landing {
    outcome: Mutex<Option<Landed>>,
    changed: Signal,
}

struct Landed {
    buf: AlignedBuf,
    is_read: bool,
}

impl Landing {
    fn put(&self, landed: Landed) {
        *lock(&self.outcome) = Some(landed);
        self.changed.notify_one();
    }

    /// Waits for the read.
    fn take(&self) -> Landed {
        let mut outcome = lock(&self.outcome);
        loop {
            match outcome.take() {
                Some(landed) => return landed,
                None => outcome = self.changed.wait(outcome),
            }
        }
    }
}

impl<'a> ReadAhead<'a> {
    /// `keepers`: those whose records may be asked for, in disk order.
    pub(super) fn new(
        engine: &'a Engine,
        segment: SegmentId,
        keepers: &'a [Keeper],
    ) -> ReadAhead<'a> {
        ReadAhead {
            engine,
            segment,
            limits: if engine.space.seeks() { WITH_SEEKS } else { ON_FLASH },
            rest: keepers,
            under_way: VecDeque::new(),
            landed: None,
            unreadable: None,
        }
    }

    /// The bytes of a record; `None` if they cannot be read.
    pub(super) fn record(&mut self, keeper: &Keeper) -> Option<&[u8]> {
        let own = self.blocks_of(keeper.start()..keeper.end());
        if !self.reaches(&own) {
            self.land(keeper, &own);
        }
        if !self.holds(&own) && !self.read_alone(&own) {
            return None;
        }
        let (range, Landed { buf, .. }) = self.landed.as_ref()?;
        let from = (keeper.start() - range.start) as usize;
        buf.get(from..from + keeper.stored_bytes() as usize)
    }

    fn blocks_of(&self, bytes: Range<u64>) -> Range<u64> {
        let block = self.engine.space.block();
        let end = bytes.end.next_multiple_of(block).min(self.engine.space.segment_bytes);
        bytes.start - bytes.start % block..end
    }

    fn reaches(&self, own: &Range<u64>) -> bool {
        self.landed.as_ref().is_some_and(|(range, _)| own.end <= range.end)
    }

    fn holds(&self, own: &Range<u64>) -> bool {
        let landed = self.landed.as_ref().filter(|(range, _)| range.start <= own.start);
        self.reaches(own) && landed.is_some_and(|(_, landed)| landed.is_read)
    }

    /// Waits for the window that reaches the object, if there is one, after beginning as many as
    /// may be.
    fn land(&mut self, keeper: &Keeper, own: &Range<u64>) {
        self.landed = None;
        self.begin_windows(keeper);
        while !self.reaches(own)
            && self.under_way.front().is_some_and(|window| window.range.start <= own.start)
            && let Some(window) = self.under_way.pop_front()
        {
            self.wait_for(window, own);
        }
    }

    /// Reads one object alone, unless that is known to fail. False if it is not read.
    fn read_alone(&mut self, own: &Range<u64>) -> bool {
        let bad = self.unreadable.as_ref();
        if bad.is_some_and(|bad| own.start <= bad.start && bad.end <= own.end) {
            return false;
        }
        let window = self.begin(own.clone());
        self.wait_for(window, own);
        self.holds(own)
    }

    /// Notes the object's own range as unreadable if it was read alone and that failed.
    fn wait_for(&mut self, window: Window, own: &Range<u64>) {
        self.landed = None;
        let landed = window.landing.take();
        if !landed.is_read && window.range == *own {
            self.unreadable = Some(own.clone());
        }
        self.landed = Some((window.range, landed));
    }

    /// Begins windows for this object, which is needed now, and for those behind it.
    fn begin_windows(&mut self, first: &Keeper) {
        let passed = self.rest.iter().take_while(|k| k.start() < first.start()).count();
        self.rest = &self.rest[passed..];
        while self.under_way.len() < AHEAD_WINDOWS_MAX {
            let Some((range, rest)) = self.next_window() else { return };
            let held: u64 = self.under_way.iter().map(|w| w.range.end - w.range.start).sum();
            let more = range.end - range.start;
            if !self.under_way.is_empty() && held + more > AHEAD_BYTES_MAX {
                return;
            }
            self.rest = rest;
            let window = self.begin(range);
            self.under_way.push_back(window);
        }
    }

    /// What is to be read next, as far as it lies near, and the objects behind it.
    fn next_window(&self) -> Option<(Range<u64>, &'a [Keeper])> {
        let is_wanted =
            |k: &Keeper| k.is_kept_by_itself(self.engine) && !k.is_resident(self.engine);
        let at = self.rest.iter().position(is_wanted)?;
        let (first, mut rest) = self.rest[at..].split_first()?;
        let (start, mut end) = (first.start(), first.end());
        while let Some((next, behind)) = rest.split_first() {
            let Limits { gap_bytes, window_bytes } = self.limits;
            if next.start() > end + gap_bytes {
                break;
            }
            if is_wanted(next) {
                let longer = self.blocks_of(start..next.end());
                if longer.end - longer.start > window_bytes {
                    break;
                }
                end = next.end();
            }
            rest = behind;
        }
        Some((self.blocks_of(start..end), rest))
    }

    fn begin(&self, range: Range<u64>) -> Window {
        // Of its own for each: one that is used again would hold as much as its longest read
        // needed.
        let buf = AlignedBuf::zeroed((range.end - range.start) as usize);
        let landing = Arc::new(Landing::default());
        let window = Window { range: range.clone(), landing: Arc::clone(&landing) };
        add(&self.engine.counters.maintenance_reads, 1);
        let done = move |outcome: io::Result<()>, buf| {
            landing.put(Landed { buf, is_read: outcome.is_ok() });
        };
        self.engine.space.submit_read_first(self.segment, range.start, buf, done);
        window
    }
}

#[cfg(test)]
mod tests;
