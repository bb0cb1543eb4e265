//! Records that are of no use to a reader: they are forgotten, and the miss is counted.
//!
//! Invariants: a record is forgotten only while readers get it. If the object was kept elsewhere or
//! replaced since the record was found, it is looked up again. What lies on a volume out of service
//! is a miss and not forgotten: nothing is wrong with it, and the next open may find the volume
//! well. Threads: any.

use std::sync::Arc;
use std::time::Duration;

use super::disk::Found;
use super::lost::Lost;
use super::memory::Death;
use crate::engine::Engine;
use crate::error::ReadError;
use crate::format::RecordHeader;
use crate::index::{Candidate, Location};
use crate::memory::resident::Found as Resident;
use crate::space::{SegmentId, Turn};
use crate::stats::add;
use crate::types::{KeyHash, SegmentLife};

impl Engine {
    /// Counts a miss.
    pub(super) fn missed(&self, lost: Lost) {
        let counter = match lost {
            Lost::Overwritten => &self.counters.misses_overwritten,
            Lost::Damaged => &self.counters.misses_damaged,
            Lost::Unreadable | Lost::OutOfService => &self.counters.misses_io,
        };
        add(counter, 1);
    }

    /// True if the index still maps the hash to this location in this life of its segment. The life
    /// is checked last: it changes before the index gets any new entry there.
    pub(super) fn knows(&self, hash: KeyHash, location: Location, life: SegmentLife) -> bool {
        self.index.contains_at(hash.get(), location) && self.life_of(location) == life
    }

    /// Whether recovery has ended since a candidate was chosen that the index has no more: what it
    /// knew of deletes is gone with it. Asked after `death_of`, while which it may have ended.
    pub(super) fn is_outlived(
        &self,
        hash: KeyHash,
        location: Location,
        life: SegmentLife,
        was_loading: bool,
    ) -> bool {
        was_loading && self.recovery.is_done() && !self.knows(hash, location, life)
    }

    /// Forgets a manifest or patch whose value is lost. One that is not on disk yet (its location
    /// is the last there is) leaves memory then, and is not written.
    pub(super) fn value_gone(
        &self,
        header: &RecordHeader,
        location: Location,
        life: SegmentLife,
        lost: Lost,
    ) -> Found {
        let hash = header.key_hash();
        if location != Location::MAX {
            return self.gone(hash, location, life, lost);
        }
        let is_it = |entry: &Resident<'_>| entry.record().head.sequence() == header.sequence();
        self.gone_if(hash, lost, |resident| resident.is_some_and(is_it))
    }

    /// Forgets a record that the device could not read.
    pub(super) fn unreadable(&self, hash: KeyHash, location: Location, life: SegmentLife) -> Found {
        self.gone(hash, location, life, self.not_read(self.space.split(location).0))
    }

    /// Why a read of a segment failed.
    pub(super) fn not_read(&self, segment: SegmentId) -> Lost {
        if self.space.is_in_service(segment) { Lost::Unreadable } else { Lost::OutOfService }
    }

    /// What a candidate is without a look at it, if its volume is out of service: a miss.
    pub(super) fn unread(&self, hash: KeyHash, candidate: &Candidate) -> Option<Found> {
        let (segment, _) = self.space.split(candidate.location);
        let life = self.life_of(candidate.location);
        let is_out = !self.space.is_in_service(segment);
        is_out.then(|| self.unreadable(hash, candidate.location, life))
    }

    /// Refuses, and counts, a read of a segment whose volume does not answer, unless it is the one
    /// that finds out whether that is still so. That one has a turn, which it holds until its read
    /// is over, and is to wait for nothing else: neither for another read, which may be lost, nor
    /// for room, which lost reads hold.
    pub(super) fn ask(&self, segment: SegmentId) -> Result<Option<Turn>, ReadError> {
        self.unless_silent(self.space.ask(self.space.spot(segment, 0).volume))
    }

    /// The same of a read that asks later, on another thread.
    pub(super) fn may_ask(&self, segment: SegmentId) -> Result<(), ReadError> {
        self.unless_silent(self.space.may_ask(self.space.spot(segment, 0).volume))
    }

    fn unless_silent<T>(&self, asked: Result<T, Duration>) -> Result<T, ReadError> {
        asked.map_err(|silent| {
            add(&self.counters.reads_unanswered, 1);
            ReadError::Unanswered { waited_ms: silent.as_millis() as u64 }
        })
    }

    /// Has what waits for reads that a silent volume may have lost go on once it answers again.
    pub(crate) fn watch_silences(self: &Arc<Engine>) {
        let engine = Arc::downgrade(self);
        self.space.when_regained(move |volume| {
            let Some(engine) = engine.upgrade() else { return };
            let this = Arc::clone(&engine);
            // Whoever ended a read may hold locks, and all workers may wait for what is lost.
            engine.workers.run_apart(Box::new(move || this.regained(volume)));
        });
    }

    /// Reads of a volume from before its silence may be lost. They are not given up, since their
    /// memory is the device's, but nobody else waits for them.
    fn regained(&self, volume: usize) {
        // First: those who follow may wait for room next.
        self.reads.under_way[volume].forget();
        // All of them: where else a flight reads is not known, and to read twice is right, too.
        self.reads.flights.give_up();
    }

    /// Forgets a record that differs from what was written.
    pub(super) fn damaged(&self, hash: KeyHash, location: Location, life: SegmentLife) -> Found {
        let found = self.gone(hash, location, life, Lost::Damaged);
        let is_counted = matches!(found, Found::Gone);
        add(&self.counters.damaged_records, u64::from(is_counted));
        found
    }

    /// Forgets a record that is dead. Its marks, the journal or its expiry say so after a crash
    /// too.
    pub(super) fn dead(
        &self,
        hash: KeyHash,
        location: Location,
        life: SegmentLife,
        death: Death,
    ) -> Found {
        // Locked, or a newer version could enter the index before its entries are removed.
        let shard = self.cache.resident.shard(hash);
        // If nothing is there, the read of its page has forgotten it, or another reader.
        let forgotten = self.index.candidates(hash.get()).is_empty();
        if shard.contains(hash) || !(forgotten || self.knows(hash, location, life)) {
            return Found::LookAgain;
        }
        self.forget(hash);
        self.died(death);
        Found::Gone
    }

    /// Forgets a record that came with a page if it has expired; true then. In memory it would push
    /// out what lives, and left in the index it would cost a read of its own. Nobody has asked for
    /// it, so it is no miss.
    pub(super) fn forgets_expired(
        &self,
        header: &RecordHeader,
        location: Location,
        life: SegmentLife,
    ) -> bool {
        if header.expires_s == 0 || !header.expired(self.clock.unix_seconds()) {
            return false;
        }
        let hash = header.key_hash();
        // Locked as in `dead`.
        let shard = self.cache.resident.shard(hash);
        let is_it = self.is_only_version(hash, location) && self.life_of(location) == life;
        if is_it && !shard.contains(hash) {
            self.forget(hash);
        }
        true
    }

    /// If anything is in memory, readers get that: a newer version, or this one, whole.
    fn gone(&self, hash: KeyHash, location: Location, life: SegmentLife, lost: Lost) -> Found {
        self.gone_if(hash, lost, |resident| resident.is_none() && self.knows(hash, location, life))
    }

    fn gone_if(
        &self,
        hash: KeyHash,
        lost: Lost,
        is_current: impl FnOnce(Option<&Resident<'_>>) -> bool,
    ) -> Found {
        let is_gone = match lost {
            Lost::OutOfService => is_current(self.cache.resident.shard(hash).get(hash).as_ref()),
            Lost::Overwritten | Lost::Damaged | Lost::Unreadable => {
                self.forget_if(hash, is_current)
            }
        };
        if !is_gone {
            return Found::LookAgain;
        }
        self.missed(lost);
        Found::Gone
    }
}
