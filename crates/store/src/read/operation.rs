//! A read as an operation: served from memory, submitted to the device, or left to a worker thread.
//!
//! Threads: any; starting an operation never blocks.

use std::sync::Arc;

use super::disk::{AwaitedRead, InHand, Indirect};
use super::large::LargeObject;
use super::memory::InMemory;
use super::range::KeptHead;
use crate::deferred::{Caller, Deferred, OneShot};
use crate::engine::Engine;
use crate::error::ReadError;
use crate::object::Object;
use crate::space::SegmentId;
use crate::stats::add;
use crate::types::KeyHash;
use crate::workers::Lane;

/// A read that has begun, or is to begin.
pub(crate) type Reading<T> = Deferred<Result<Option<T>, ReadError>>;

/// What is known of a key without I/O.
pub(crate) enum AtOnce {
    /// It is in memory, and counted as a hit.
    Object(Object),
    /// A miss, which is counted.
    Nothing,
    /// Its newer metadata, or the list of its parts, are in memory, the object is not.
    Indirect,
    /// The index has places where it may lie, and nothing of it is in memory; or it came into
    /// memory after that was asked.
    OnDisk,
}

impl Engine {
    #[inline]
    pub(crate) fn at_once(self: &Arc<Engine>, hash: KeyHash, key: &[u8]) -> AtOnce {
        match self.lookup_memory(hash, key) {
            InMemory::Found(object) => return AtOnce::Object(object),
            InMemory::Dead => return AtOnce::Nothing,
            InMemory::Nothing => {}
        }
        let indirect = self.indirect_in_memory(hash, key);
        if let Some(object) = self.lookup_assembled(hash, &indirect) {
            return AtOnce::Object(object);
        }
        match indirect {
            Indirect::Found(..) => AtOnce::Indirect,
            Indirect::Dead => AtOnce::Nothing,
            Indirect::Nothing if !self.index.candidates(hash.get()).is_empty() => AtOnce::OnDisk,
            Indirect::Nothing if self.came_meanwhile(hash, key) => AtOnce::OnDisk,
            Indirect::Nothing => {
                add(&self.counters.misses_not_found, 1);
                AtOnce::Nothing
            }
        }
    }

    /// What is asked of one object: at once if it is in memory or certainly absent, and as
    /// `of_disk` says if its head is kept.
    pub(crate) fn reading_of<T: Send + 'static>(
        self: &Arc<Engine>,
        key: &[u8],
        of_memory: impl FnOnce(Object) -> T,
        of_disk: impl FnOnce(KeptHead) -> Reading<T>,
        blocking: impl FnOnce(&Arc<Engine>, &[u8]) -> Result<Option<T>, ReadError> + Send + 'static,
    ) -> Reading<T> {
        if self.is_closed() {
            return Deferred::ready(Err(ReadError::Closed));
        }
        let hash = self.hash(key);
        let of_segment = match self.at_once(hash, key) {
            AtOnce::Object(object) => return Deferred::ready(Ok(Some(of_memory(object)))),
            AtOnce::Nothing => return Deferred::ready(Ok(None)),
            AtOnce::Indirect => None,
            AtOnce::OnDisk => {
                if let Some(kept) = self.by_kept_head(hash, key) {
                    return of_disk(kept);
                }
                let newest = self.ordered_candidates(hash).first().copied();
                newest.map(|newest| self.space.split(newest.location).0)
            }
        };
        let (this, key) = (Arc::clone(self), key.to_vec());
        let work = move || blocking(&this, &key);
        match of_segment {
            Some(segment) => self.reading_there(segment, work),
            None => self.reading(work),
        }
    }

    /// As `reading`, of what lies in a segment whose volume may not answer. That is asked here, and
    /// not by a worker: all of them may wait for the volume.
    fn reading_there<T: Send + 'static>(
        self: &Arc<Engine>,
        segment: SegmentId,
        work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
    ) -> Deferred<Result<T, ReadError>> {
        if let Err(error) = self.may_ask(segment) {
            return Deferred::ready(Err(error));
        }
        let (this, engine) = (Arc::clone(self), Arc::clone(self));
        let work = move || match this.is_closed() {
            true => Err(ReadError::Closed),
            false => work(),
        };
        Deferred::blocking_by(work, move |job| {
            match engine.ask(segment) {
                Err(error) => return Some(Err(error)),
                Ok(None) => engine.workers.run(Lane::Soon, job),
                // For the same reasons as `probe`. The read takes the turn again itself.
                Ok(Some(turn)) => engine.workers.run_apart(Box::new(move || {
                    drop(turn);
                    job();
                })),
            }
            None
        })
    }

    pub(crate) fn reading<T: Send + 'static>(
        self: &Arc<Engine>,
        work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
    ) -> Deferred<Result<T, ReadError>> {
        self.reading_in(Lane::Soon, |_| work())
    }

    /// As `reading`, among jobs of this kind.
    pub(crate) fn reading_in<T: Send + 'static>(
        self: &Arc<Engine>,
        lane: Lane,
        work: impl FnOnce(&Caller) -> Result<T, ReadError> + Send + 'static,
    ) -> Deferred<Result<T, ReadError>> {
        if self.is_closed() {
            return Deferred::ready(Err(ReadError::Closed));
        }
        // Asked again: a close does not wait for all that is queued by then.
        let this = Arc::clone(self);
        Deferred::blocking_in(lane, self, move |caller| match this.is_closed() {
            true => Err(ReadError::Closed),
            false => work(caller),
        })
    }

    /// What an object's head tells, which is a hit.
    pub(crate) fn told<T: Send + 'static>(
        &self,
        kept: KeptHead,
        tell: impl FnOnce(Arc<LargeObject>) -> T,
    ) -> Reading<T> {
        kept.note_use(self);
        add(&self.counters.hits_disk, 1);
        Deferred::ready(Ok(Some(tell(kept.large))))
    }

    /// Starts a read; it is complete at once if the object is in memory or certainly absent.
    pub(crate) fn read_operation(self: &Arc<Engine>, key: &[u8]) -> Reading<Object> {
        if self.is_closed() {
            return Deferred::ready(Err(ReadError::Closed));
        }
        let hash = self.hash(key);
        match self.at_once(hash, key) {
            AtOnce::Object(object) => return Deferred::ready(Ok(Some(object))),
            AtOnce::Nothing => return Deferred::ready(Ok(None)),
            AtOnce::Indirect => {
                // What lies on disk may be an older state of it.
                let (this, key) = (Arc::clone(self), key.to_vec());
                return self.reading(move || this.read_blocking(hash, &key));
            }
            AtOnce::OnDisk => {}
        }
        let key: Arc<[u8]> = Arc::from(key);
        let (this, wanted) = (Arc::clone(self), Arc::clone(&key));
        let (other, submitted) = (Arc::clone(self), key);
        Deferred::startable(
            move || this.read_blocking(hash, &wanted),
            move |promise| other.read_submitted(hash, submitted, promise),
        )
    }

    /// Starts an asynchronous read: one submitted I/O in the common case, otherwise a worker
    /// thread.
    fn read_submitted(
        self: &Arc<Engine>,
        hash: KeyHash,
        key: Arc<[u8]>,
        promise: Arc<OneShot<Result<Option<Object>, ReadError>>>,
    ) {
        let engine = Arc::clone(self);
        let (wanted, theirs) = (Arc::clone(&key), Arc::clone(&promise));
        let fallback = move |in_hand: Option<InHand>| {
            // The workers of a closed store are gone, and this may be the I/O thread: a read here
            // would wait for itself.
            if engine.is_closed() {
                return theirs.put(Err(ReadError::Closed));
            }
            let this = Arc::clone(&engine);
            engine.workers.run(
                Lane::Soon,
                Box::new(move || {
                    let read = || match this.lookup_memory(hash, &wanted) {
                        InMemory::Found(object) => Ok(Some(object)),
                        InMemory::Dead => Ok(None),
                        InMemory::Nothing if this.is_closed() => Err(ReadError::Closed),
                        InMemory::Nothing => this.read_blocking_in_hand(hash, &wanted, in_hand),
                    };
                    theirs.begin(|| theirs.put(read()));
                }),
            );
        };
        self.submit_object_read(AwaitedRead { hash, key, promise }, fallback, None);
    }
}
