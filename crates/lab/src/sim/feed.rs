//! From a trace to batches of steps: names become dense keys a batch at a time, so that the lookups
//! of a batch overlap in memory. Requests without a body of their own are left out, as those of no
//! bytes are by libCacheSim: a validation is no object. An error reply that has one is. One thread.

use super::future::Future;
use crate::error::TraceError;
use crate::ids::{IdTable, MixedName, mix};
use crate::policy::{NEVER, Step};
use crate::request::Op;
use crate::trace::{RawRequest, RecordSource, Trace};

/// Requests read at once.
pub(crate) const BATCH_READ: usize = 1 << 10;
/// The line of the table and then the name of a request are fetched while those so many before it
/// are looked up: as long as memory takes.
const AHEAD: usize = 12;

/// A trace as steps.
pub(crate) struct Feed {
    trace: Trace,
    ids: IdTable,
    raw: Vec<RawRequest>,
    mixed: Vec<MixedName>,
    ignores_sizes: bool,
    /// Requests without a body of their own, left out.
    empty: u64,
    /// Steps that delete.
    deletes: u64,
    has_ended: bool,
}

impl Feed {
    /// `ids`: of names that have keys already.
    pub(crate) fn new(trace: Trace, ids: IdTable, ignores_sizes: bool) -> Feed {
        Feed {
            trace,
            ids,
            raw: Vec::with_capacity(BATCH_READ),
            mixed: Vec::with_capacity(BATCH_READ),
            ignores_sizes,
            empty: 0,
            deletes: 0,
            has_ended: false,
        }
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }

    pub(crate) fn empty(&self) -> u64 {
        self.empty
    }

    pub(crate) fn deletes(&self) -> u64 {
        self.deletes
    }

    pub(crate) fn objects(&self) -> usize {
        self.ids.len()
    }

    /// Appends the next steps and their times; nothing at the end.
    pub(crate) fn fill(
        &mut self,
        steps: &mut Vec<Step>,
        times_us: &mut Vec<u64>,
    ) -> Result<(), TraceError> {
        self.read()?;
        self.mixed.clear();
        self.mixed.extend(self.raw.iter().map(|raw| mix(raw.object)));
        for (at, (raw, mixed)) in self.raw.iter().zip(&self.mixed).enumerate() {
            if let Some(later) = self.mixed.get(at + 2 * AHEAD) {
                self.ids.fetch_bucket(*later);
            }
            if let Some(later) = self.mixed.get(at + AHEAD) {
                self.ids.fetch_name(*later);
            }
            let key = self.ids.intern(raw.object, *mixed);
            let key =
                key.ok_or(TraceError::TooMany { what: "objects", max: u64::from(u32::MAX) })?;
            let size_bytes = if self.ignores_sizes { 1 } else { raw.size_bytes };
            steps.push(match raw.op {
                Op::Delete => Step::delete(key),
                Op::Read | Op::Write => Step::get(key, size_bytes, NEVER),
            });
            times_us.push(raw.time_us);
        }
        Ok(())
    }

    /// Reads until there is something to number, or the trace ends.
    fn read(&mut self) -> Result<(), TraceError> {
        self.raw.clear();
        while self.raw.is_empty() && !self.has_ended {
            self.trace.batch(&mut self.raw, BATCH_READ)?;
            self.has_ended = self.raw.len() < BATCH_READ;
            self.deletes += self.raw.iter().filter(|raw| raw.op == Op::Delete).count() as u64;
            let before = self.raw.len();
            self.raw.retain(|raw| raw.size_bytes > 0 || raw.op == Op::Delete);
            self.empty += (before - self.raw.len()) as u64;
        }
        Ok(())
    }
}

/// What a first pass over a trace finds out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// Steps: requests and deletes.
    pub steps: u64,
    /// Distinct objects that are asked for.
    pub objects: u64,
    /// Sum of their first sizes.
    pub bytes: u64,
}

/// Counts the working set: each object where it is asked for first. A delete may name one before,
/// or one that nobody ever asks for.
#[derive(Default)]
struct WorkingSet {
    scan: Scan,
    /// Distinct objects, those that are only deleted among them.
    keys: u64,
    /// A bit for each key that was deleted and not asked for yet; none while there are none.
    only_deleted: Vec<u64>,
}

impl WorkingSet {
    #[inline]
    fn add(&mut self, step: &Step) {
        let key = step.key();
        let is_new = u64::from(key) == self.keys;
        self.keys += u64::from(is_new);
        if step.is_delete() {
            if is_new {
                self.note_deleted(key);
            }
        } else if is_new || self.was_only_deleted(key) {
            self.scan.objects += 1;
            self.scan.bytes = self.scan.bytes.saturating_add(step.size_bytes());
        }
    }

    fn note_deleted(&mut self, key: u32) {
        let (word, bit) = (key as usize / 64, key % 64);
        self.only_deleted.resize(word + 1, 0);
        self.only_deleted[word] |= 1 << bit;
    }

    /// True at most once for each key.
    #[inline]
    fn was_only_deleted(&mut self, key: u32) -> bool {
        let Some(word) = self.only_deleted.get_mut(key as usize / 64) else { return false };
        let bit = 1 << (key % 64);
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }
}

/// What it leaves to the second one.
pub(crate) struct First {
    pub(crate) scan: Scan,
    /// When objects are asked for again, if that was asked for.
    pub(crate) future: Option<Future>,
    /// All names, with the keys that they have in both passes: they are found once more, not placed
    /// anew.
    pub(crate) ids: IdTable,
}

/// Reads a trace to find its working set, and if wanted all next uses.
///
/// # Errors
/// When the trace cannot be read, or has more requests than 32 bits count and next uses are wanted,
/// or these find no room.
pub(crate) fn scan(
    trace: Trace,
    ids: IdTable,
    ignores_sizes: bool,
    wants_next_uses: bool,
    mut progress: impl FnMut(&Trace, u64),
) -> Result<First, TraceError> {
    let mut feed = Feed::new(trace, ids, ignores_sizes);
    let (mut steps, mut times_us) = (Vec::new(), Vec::new());
    let mut counted = WorkingSet::default();
    let mut future = wants_next_uses.then(Future::new);
    loop {
        steps.clear();
        times_us.clear();
        feed.fill(&mut steps, &mut times_us)?;
        if steps.is_empty() && feed.has_ended {
            break;
        }
        for step in &steps {
            counted.add(step);
            if let Some(future) = &mut future {
                future.push(step.key(), step.is_delete())?;
            }
        }
        counted.scan.steps += steps.len() as u64;
        progress(feed.trace(), counted.scan.steps);
    }
    if let Some(future) = &mut future {
        if future.len() >= u64::from(NEVER) {
            return Err(TraceError::TooMany { what: "requests", max: u64::from(NEVER) - 1 });
        }
        future.turn_around(counted.keys as usize)?;
    }
    Ok(First { scan: counted.scan, future, ids: feed.ids })
}
