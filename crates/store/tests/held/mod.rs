//! All memory of a store held by guards, for operations that are to wait for it.
//!
//! Owns nothing. Threads: the test's.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use damelo::{CreateError, GroupId, Object, Store};

const GROUP: GroupId = GroupId::new(1);

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Creates that ended, one way or the other.
pub(crate) fn ended(store: &Store) -> u64 {
    let stats = store.stats();
    stats.creates + stats.drops_abandoned + stats.drops_memory_full
}

/// Creates objects and keeps a guard on each until a create must wait although nothing is left to
/// be written: the guards hold all memory.
pub(crate) fn hold_all_memory(store: &Store) -> Vec<Object> {
    let mut guards = Vec::new();
    for key in 0_u32.. {
        let mut create = store.create(&key.to_le_bytes(), GROUP, &[1; 100_000]);
        let mut cx = Context::from_waker(Waker::noop());
        let mut outcome = Pin::new(&mut create).poll(&mut cx);
        if outcome.is_pending() {
            store.sync().unwrap();
            let synced = Instant::now();
            while outcome.is_pending() && synced.elapsed() < Duration::from_secs(3) {
                std::thread::sleep(Duration::from_millis(1));
                outcome = Pin::new(&mut create).poll(&mut cx);
            }
        }
        match outcome {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(CreateError::MemoryFull)) => break,
            Poll::Ready(Err(error)) => panic!("{error}"),
            Poll::Pending => {
                let before = ended(store);
                drop(create);
                wait_until("the last one ends", || ended(store) > before);
                break;
            }
        }
        guards.extend(store.read(&key.to_le_bytes()).wait().unwrap());
    }
    guards
}
