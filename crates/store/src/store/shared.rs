//! What all handles of a store share, and how it is closed: by [`Store::close`](super::Store), or
//! with the last handle.
//!
//! Invariants: a store is closed once; a thread that completes I/O waits for none. Threads: any; a
//! close on a completion thread goes on in one of its own.

use std::time::{Duration, Instant};

use crate::device::on_completion_thread;
use crate::engine::Engine;
use crate::error::SyncError;
use crate::open::Threads;
use crate::process::SignalsBlocked;
use crate::sync::{Arc, Mutex, lock, thread};

/// Longest wait at a close for what other threads still hold of the store.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// Shared by all handles; closes the engine when the last one is dropped.
pub(super) struct Shared {
    pub(super) engine: Arc<Engine>,
    threads: Mutex<Option<Threads>>,
}

impl Shared {
    pub(super) fn new(engine: Arc<Engine>, threads: Threads) -> Shared {
        Shared { engine, threads: Mutex::new(Some(threads)) }
    }

    /// Closes the store, once.
    pub(super) fn close(&self) -> Result<(), SyncError> {
        if self.engine.process.is_another() {
            return Err(SyncError::Closed);
        }
        match lock(&self.threads).take() {
            Some(threads) => close(&self.engine, threads),
            None => Err(SyncError::Closed),
        }
    }
}

fn close(engine: &Arc<Engine>, mut threads: Threads) -> Result<(), SyncError> {
    engine.recovery.wait_done();
    let synced = engine.sync();
    threads.end(engine);
    let checkpoint = if engine.space.all_gone() {
        Err(SyncError::VolumesGone { reason: engine.space.why_gone() })
    } else {
        engine.checkpoint_at_close().map_err(SyncError::Io)
    };
    engine.workers.stop();
    // What runs on other threads lets go of the store, and so of its files, a little after its
    // caller heard of it; they may be opened again at once.
    let begun = Instant::now();
    let left = || SETTLE_MAX.saturating_sub(begun.elapsed());
    engine.workers.settle(left());
    engine.space.volumes.iter().for_each(|volume| volume.device.settle(left()));
    // Frames of clean objects are released now, except those that guards pin.
    engine.cache.drop_all();
    synced.and(checkpoint)
}

/// Closes a store whose last handle was dropped on a thread that completes I/O: by a waker that
/// held a task with the handle. That thread must not wait for I/O, which nobody else completes.
fn close_apart(engine: Arc<Engine>, threads: Threads) {
    let _program_s = SignalsBlocked::new();
    let new = thread::Builder::new().name("damelo-close".to_owned());
    // If there is no thread to be had, the store stays open without a handle: its own threads go on
    // to write what was created, and the end of the process is like a crash.
    let _ = new.spawn(move || close(&engine, threads));
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.engine.process.is_another() {
            // A fork has copied no threads to join, and any lock held at that moment stays locked
            // for ever.
            std::mem::forget(lock(&self.threads).take());
            std::mem::forget(Arc::clone(&self.engine));
            return;
        }
        let Some(threads) = lock(&self.threads).take() else { return };
        if on_completion_thread() {
            return close_apart(Arc::clone(&self.engine), threads);
        }
        // Errors are ignored here; `Store::close` returns them.
        let _ = close(&self.engine, threads);
    }
}
