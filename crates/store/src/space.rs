//! The volumes of a store as one address space of segments. Maps locations to volumes (`volume`),
//! does I/O (`transfers`), counts errors, takes failing volumes out of service, and knows which of
//! them do not answer (`answers`).
//!
//! Invariants: a location is `segment * segment_bytes + offset`, in 64-byte units; no I/O crosses a
//! segment. Threads: any.

mod answers;
mod transfers;
mod volume;

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use self::answers::{Answers, Taken};
use self::volume::ErrorEvents;
pub(crate) use self::volume::Volume;
use crate::device::{Device, IoOp};
use crate::error::OpenError;
use crate::format::{StoreNonce, Superblock, UNIT_BYTES};
use crate::index::Location;
use crate::sync::{Mutex, lock};
use crate::sync_errors::SyncErrors;
use crate::types::Clock;

/// Segment number, counted over all volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SegmentId(pub(crate) u32);

/// A page: the how-manieth it is in its segment, and how far apart the pages there lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageAt {
    pub(crate) segment: SegmentId,
    pub(crate) number: u64,
    /// Bytes to the next page: all that the page takes on disk.
    pub(crate) stride: u64,
}

impl PageAt {
    /// The page that has the byte at `offset` of the segment.
    pub(crate) fn with(segment: SegmentId, offset: u64, stride: u64) -> PageAt {
        PageAt { segment, number: offset / stride, stride }
    }

    /// Where it begins in its segment, in bytes.
    pub(crate) fn start(self) -> u64 {
        self.number * self.stride
    }

    pub(crate) fn next(self) -> PageAt {
        PageAt { number: self.number + 1, ..self }
    }
}

pub(crate) struct Space {
    pub(crate) volumes: Vec<Volume>,
    pub(crate) page_bytes: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) segments: u32,
    pub(crate) nonce: StoreNonce,
    errors_max: u32,
    /// A volume that leaves every read unanswered for so long is asked no more until it answers.
    answer_wait: Duration,
    clock: Arc<dyn Clock>,
    /// While the checkpoint of a clean close still speaks for the segments: nothing may be written
    /// to them then, nor to the tables of their lives.
    untouched: AtomicBool,
    /// Held by whoever takes a volume out of service that must not be the last.
    leaving: Mutex<()>,
    /// Told which volume answers again after a silence, in which reads may have been lost. Called
    /// by whichever thread ended a read.
    regained: OnceLock<Regained>,
}

type Regained = Box<dyn Fn(usize) + Send + Sync>;

/// The turn of the one read that a silent volume is given, as long as that read has not ended.
/// Dropped before the device was given any, it leaves the turn to another read.
pub(crate) struct Turn {
    space: Arc<Space>,
    volume: usize,
    taken: Taken,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.space.volumes[self.volume].answers.give_back(&self.taken);
    }
}

/// A place on a volume.
pub(crate) struct Spot<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) offset: u64,
}

impl Space {
    pub(crate) fn new(
        volumes: Vec<(PathBuf, Arc<dyn Device>, Superblock)>,
        (errors_max, answer_wait): (u32, Duration),
        clock: Arc<dyn Clock>,
    ) -> Space {
        let first = &volumes[0].2;
        let (page_bytes, segment_bytes) = (u64::from(first.page_bytes), first.segment_bytes);
        let nonce = first.nonce();
        let segments = volumes.iter().map(|(_, _, s)| s.segment_count).sum();
        let volumes = volumes
            .into_iter()
            .map(|(path, device, superblock)| Volume {
                path,
                device,
                superblock,
                answers: Answers::default(),
                read_events: ErrorEvents::default(),
                write_events: ErrorEvents::default(),
                errors_in_row: AtomicU32::new(0),
                write_errors_in_row: AtomicU32::new(0),
                sync_errors_in_row: AtomicU32::new(0),
                sync_errors: SyncErrors::default(),
                out_of_service: AtomicBool::new(false),
                out_because: OnceLock::new(),
                is_missing: false,
            })
            .collect();
        Space {
            volumes,
            page_bytes,
            segment_bytes,
            segments,
            nonce,
            errors_max,
            answer_wait,
            clock,
            untouched: AtomicBool::new(false),
            leaving: Mutex::default(),
            regained: OnceLock::new(),
        }
    }

    /// Goes on without this volume, of which there is only a stand-in.
    pub(crate) fn leave_out(&mut self, number: usize, why: &OpenError) {
        let volume = &mut self.volumes[number];
        volume.is_missing = true;
        // An error of a volume begins with its path, as does what is told of one out of service.
        let path = format!("{}", volume.path.display());
        let said = why.to_string();
        let said =
            said.strip_prefix(&path).map_or(&*said, |said| said.trim_start_matches(':').trim());
        let cause = why.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        let said = match why {
            OpenError::VolumeMissing { .. } => "it does not exist, or holds nothing of the store",
            _ => said,
        };
        volume.take_out(format!("the store was opened without it: {said}{cause}"));
    }

    /// Whether the store was opened without the volume of this segment.
    pub(crate) fn is_missing(&self, segment: SegmentId) -> bool {
        self.spot(segment, 0).volume.is_missing
    }

    /// Has this called, with its number, when a volume answers again. The first one counts.
    pub(crate) fn when_regained(&self, call: impl Fn(usize) + Send + Sync + 'static) {
        let _ = self.regained.set(Box::new(call));
    }

    fn read_ended(&self, volume: &Volume) {
        if volume.answers.end(self.answer_wait, || self.clock.monotonic())
            && let Some(call) = self.regained.get()
        {
            call(volume.superblock.volume_index as usize);
        }
    }

    pub(crate) fn is_untouched(&self) -> bool {
        self.untouched.load(Ordering::Acquire)
    }

    pub(crate) fn set_untouched(&self, untouched: bool) {
        self.untouched.store(untouched, Ordering::Release);
    }

    /// A write that the checkpoint of a clean close does not know of would be lost, or worse.
    fn assert_touched(&self) {
        assert!(!self.is_untouched(), "a write while a clean checkpoint speaks for the segments");
    }

    pub(crate) fn location(&self, segment: SegmentId, offset: u64) -> Location {
        debug_assert!(offset.is_multiple_of(UNIT_BYTES) && offset < self.segment_bytes);
        Location::new((u64::from(segment.0) * self.segment_bytes + offset) / UNIT_BYTES)
    }

    /// The segment of a location and the offset within it, in bytes.
    pub(crate) fn split(&self, location: Location) -> (SegmentId, u64) {
        let bytes = location.units() * UNIT_BYTES;
        (SegmentId((bytes / self.segment_bytes) as u32), bytes % self.segment_bytes)
    }

    /// False for a page that would reach beyond its segment, as one may that was made of an offset
    /// and a stride of different lives.
    pub(crate) fn holds_page(&self, page: PageAt) -> bool {
        page.start() + page.stride <= self.segment_bytes
    }

    pub(crate) fn holds(&self, segment: SegmentId) -> bool {
        segment.0 < self.segments
    }

    /// The place of `offset` within a segment on its volume.
    pub(crate) fn spot(&self, segment: SegmentId, offset: u64) -> Spot<'_> {
        let volume = self
            .volumes
            .iter()
            .rev()
            .find(|v| v.superblock.first_segment <= segment.0)
            .expect("segment numbers start at zero on the first volume");
        let local = u64::from(segment.0 - volume.superblock.first_segment);
        let start = volume.superblock.segments_offset + local * self.segment_bytes;
        Spot { volume, offset: start + offset }
    }

    /// Whether the volume of a segment is in service.
    pub(crate) fn is_in_service(&self, segment: SegmentId) -> bool {
        !self.spot(segment, 0).volume.is_out()
    }

    /// Alignment of I/O in bytes: the largest block size of all volumes.
    pub(crate) fn block(&self) -> u64 {
        self.volumes
            .iter()
            .map(|v| u64::from(v.device.info().block_bytes))
            .max()
            .unwrap_or(1)
            .max(512)
    }

    pub(crate) fn seeks(&self) -> bool {
        self.volumes.iter().any(|v| v.device.info().seeks)
    }

    pub(crate) fn all_gone(&self) -> bool {
        self.volumes.iter().all(Volume::is_out)
    }

    /// Which volumes are out of service, and why.
    pub(crate) fn volumes_out(&self) -> impl Iterator<Item = String> {
        let out = self.volumes.iter().filter(|volume| volume.is_out());
        out.map(|volume| volume.named(volume.out_error()).to_string())
    }

    /// The same in one text, once all of them are.
    pub(crate) fn why_gone(&self) -> String {
        self.volumes_out().collect::<Vec<_>>().join("; ")
    }

    /// Takes every volume out of service.
    pub(crate) fn take_out(&self, why: &str) {
        self.volumes.iter().for_each(|volume| volume.take_out(why.to_owned()));
    }

    /// Writes outside the segments, synchronously, what no segment can be used without. That it
    /// succeeds does not say that a segment could be written: there may be no room for any.
    pub(crate) fn write_beside(&self, volume: &Volume, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.assert_touched();
        volume.usable()?;
        let events = volume.error_events(IoOp::Write).count();
        let outcome = volume.device.write_at(at, bytes);
        match outcome {
            Ok(()) => volume.note(&outcome, self.errors_max),
            Err(_) => return self.noted(IoOp::Write, volume, events, outcome),
        }
        Ok(())
    }
}

impl Space {
    /// Counts an I/O outcome; an error is given the volume's path. `events` there were of such I/Os
    /// of the volume when the I/O began.
    ///
    /// What is under way when something happens (a link is reset, say) fails all at once, and
    /// counts as one error: the reads as one, and the writes.
    ///
    /// Want of room does not count against the last volume in service: what it has can be read, and
    /// room may come again, for a sparse file, a quota, or a file system that writes elsewhere on
    /// each overwrite. Of several one that has none goes out, or the others would wait for it.
    fn noted(
        &self,
        op: IoOp,
        volume: &Volume,
        events: u32,
        outcome: io::Result<()>,
    ) -> io::Result<()> {
        if outcome.is_err() && !volume.error_events(op).is_another(events, self.clock.monotonic()) {
            return outcome.map_err(|error| volume.named(error));
        }
        if op == IoOp::Write {
            self.note_write(volume, &outcome);
        }
        let is_want = outcome.as_ref().is_err_and(is_want_of_room);
        let _alone = is_want.then(|| lock(&self.leaving));
        if !is_want || self.in_service() > 1 {
            volume.note(&outcome, self.errors_max);
        }
        outcome.map_err(|error| volume.named(error))
    }

    /// Of several volumes one that takes no writes goes out, however many reads of it succeed
    /// meanwhile: what is new would go there again and again, its segments being free, and be
    /// dropped. The last one goes by what `note` counts alone.
    fn note_write(&self, volume: &Volume, outcome: &io::Result<()>) {
        let in_row = &volume.write_errors_in_row;
        match outcome {
            Ok(()) if in_row.load(Ordering::Relaxed) > 0 => in_row.store(0, Ordering::Relaxed),
            Ok(()) => {}
            Err(error) => self.take_out_unless_last(volume, in_row, "writes", error),
        }
    }

    /// Counts one more error in a row of its kind; too many take the volume out, unless it is the
    /// last in service.
    fn take_out_unless_last(
        &self,
        volume: &Volume,
        in_row: &AtomicU32,
        what: &str,
        error: &io::Error,
    ) {
        let errors = in_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if errors >= self.errors_max {
            let _alone = lock(&self.leaving);
            if self.in_service() > 1 {
                volume.take_out(format!("{errors} {what} in a row failed, the last: {error}"));
            }
        }
    }

    /// For how long a volume has not answered, if it is not to be asked for that.
    pub(crate) fn silent_for(&self, volume: &Volume) -> Option<Duration> {
        let is_asked = !volume.is_out() && !self.answer_wait.is_zero();
        let now = || self.clock.monotonic();
        is_asked.then(|| volume.answers.silent_for(self.answer_wait, now)).flatten()
    }

    /// As `silent_for`, but it is no error for a read that may find out whether that is still so.
    pub(crate) fn may_ask(&self, volume: &Volume) -> Result<(), Duration> {
        match self.silent_for(volume) {
            Some(silent) if !volume.answers.is_probe_due(self.answer_wait, silent) => Err(silent),
            _ => Ok(()),
        }
    }

    /// As `may_ask`, for the read that is about to do so, one of all that may: that has a turn.
    pub(crate) fn ask(self: &Arc<Space>, volume: &Volume) -> Result<Option<Turn>, Duration> {
        let Some(silent) = self.silent_for(volume) else { return Ok(None) };
        let taken = volume.answers.probe(self.answer_wait, silent).ok_or(silent)?;
        let volume = volume.superblock.volume_index as usize;
        Ok(Some(Turn { space: Arc::clone(self), volume, taken }))
    }

    /// Volumes in service.
    pub(crate) fn in_service(&self) -> usize {
        self.volumes.iter().filter(|volume| !volume.is_out()).count()
    }

    /// Makes durable what was written to a volume.
    ///
    /// Errors count apart from those of reads and writes, which may go on without any: the system
    /// takes what the device refuses later. Of several volumes one that cannot be synced goes out
    /// of service, since nothing that it is given is sure to stay, and no checkpoint is complete
    /// with it. The last one stays: what it has can be read, and `sync` says that no more is
    /// promised.
    pub(crate) fn sync(&self, volume: &Volume) -> io::Result<()> {
        let Err(error) = volume.device.sync() else {
            volume.sync_errors_in_row.store(0, Ordering::Relaxed);
            return Ok(());
        };
        volume.sync_errors.note(&error);
        self.take_out_unless_last(volume, &volume.sync_errors_in_row, "syncs", &error);
        Err(volume.named(error))
    }

    /// Prefixes an error of the journal, which is on the first volume, with that volume's path.
    pub(crate) fn of_journal(&self, error: io::Error) -> io::Error {
        self.volumes[0].named(error)
    }

    /// As `sync`, of the volume that has this segment.
    pub(crate) fn sync_at(&self, segment: SegmentId) -> io::Result<()> {
        self.sync(self.spot(segment, 0).volume)
    }
}

/// True if a write failed only because there is no room, which there may be later.
pub(crate) fn is_want_of_room(error: &io::Error) -> bool {
    // The last: a limit of the process for files (`ulimit -f`).
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
