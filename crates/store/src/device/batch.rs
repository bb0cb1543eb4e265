//! Batches the submissions of one thread, so that a device's thread is woken once for all of them.
//!
//! Waking a sleeping device thread takes a system call, and on a busy processor the woken thread
//! runs at once, so the submitter would be descheduled for each read. An event loop that is about
//! to submit more says so with a [`Deferral`].
//!
//! Owns: the list of devices that have requests of this thread and were not woken yet. Invariants:
//! a deferred request is in its device's queue already, so that the device starts it if it wakes
//! for another reason. It is deferred at most until [`submit_deferred`], the [`BATCH_MAX`]th
//! submission, a wait of this thread in this library, or the end of the deferral. Threads: each has
//! its own list.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

/// Most submissions in a batch.
const BATCH_MAX: usize = 32;

/// A thread that takes submissions and sleeps when there are none.
pub(super) trait Sleeper: Send + Sync {
    /// Wakes the thread if it sleeps.
    fn wake(&self);
}

/// What one thread has submitted and not announced yet.
struct Batch {
    announce: Rc<dyn Fn()>,
    sleepers: Vec<Arc<dyn Sleeper>>,
    submissions: usize,
}

thread_local! {
    static BATCH: RefCell<Option<Batch>> = const { RefCell::new(None) };
}

/// While this exists, the I/O that this thread submits goes to the devices in batches.
///
/// ```
/// use damelo::{Deferral, submit_deferred};
///
/// // An event loop would put `submit_deferred` at the end of its queue here.
/// let _deferral = Deferral::begin(|| {});
/// // Reads are asked for, one after the other, and then all of them go to the disk together:
/// submit_deferred();
/// ```
#[must_use = "it ends when it is dropped"]
#[derive(Debug)]
pub struct Deferral(PhantomData<*const ()>);

impl Deferral {
    /// Begins a deferral. `announce` is called when the first submission is deferred; it must
    /// ensure that this thread calls [`submit_deferred`] soon. The library's own waiting functions
    /// submit by themselves; a thread that waits in another way without submitting may wait for
    /// ever.
    ///
    /// # Panics
    /// If this thread has a deferral already.
    pub fn begin(announce: impl Fn() + 'static) -> Deferral {
        BATCH.with_borrow_mut(|batch| {
            assert!(batch.is_none(), "a thread has one deferral at most");
            let announce = Rc::new(announce);
            *batch = Some(Batch { announce, sleepers: Vec::new(), submissions: 0 });
        });
        Deferral(PhantomData)
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        submit_deferred();
        // If the thread's storage is gone, its contents are too.
        let _ = BATCH.try_with(|batch| batch.replace(None));
    }
}

/// Submits everything that this thread has deferred. Nearly free if there is nothing.
pub fn submit_deferred() {
    while let Some(sleeper) = with_batch(|batch| {
        batch.submissions = 0;
        batch.sleepers.pop()
    }) {
        sleeper.wake();
    }
}

/// Whether waking `sleeper`, which has a new request, is deferred. If not, the caller must wake it.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only io_uring has a sleeper"))]
pub(super) fn defer<S: Sleeper + 'static>(sleeper: &Arc<S>) -> bool {
    let mut full = false;
    let mut announce = None;
    let taken = with_batch(|batch| {
        let known =
            |one: &Arc<dyn Sleeper>| std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(sleeper));
        if !batch.sleepers.iter().any(known) {
            batch.sleepers.push(Arc::<S>::clone(sleeper));
        }
        announce = (batch.submissions == 0).then(|| Rc::clone(&batch.announce));
        batch.submissions += 1;
        full = batch.submissions >= BATCH_MAX;
        Some(())
    });
    // Called with nothing borrowed, since `announce` may submit at once.
    if let Some(announce) = announce {
        announce();
    }
    if full {
        submit_deferred();
    }
    taken.is_some()
}

fn with_batch<T>(work: impl FnOnce(&mut Batch) -> Option<T>) -> Option<T> {
    let found = BATCH.try_with(|batch| batch.borrow_mut().as_mut().and_then(work));
    found.ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Sleeper for Counting {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn wakes(sleeper: &Counting) -> usize {
        sleeper.0.load(Ordering::Relaxed)
    }

    #[test]
    fn each_is_woken_once_for_all_that_it_got() {
        let (one, other) = (Arc::<Counting>::default(), Arc::<Counting>::default());
        assert!(!defer(&one), "nobody has asked for it");
        let announced = Rc::new(Cell::new(0));
        let count = Rc::clone(&announced);
        let deferral = Deferral::begin(move || count.set(count.get() + 1));
        for round in 1..=2 {
            assert!(defer(&one) && defer(&other) && defer(&one));
            assert_eq!(
                (announced.get(), wakes(&one), wakes(&other)),
                (round, round - 1, round - 1)
            );
            submit_deferred();
            submit_deferred();
            assert_eq!((wakes(&one), wakes(&other)), (round, round));
        }
        assert!(defer(&one));
        drop(deferral);
        assert_eq!(wakes(&one), 3, "the end hands over what is left");
        assert!(!defer(&one));
    }

    #[test]
    fn a_full_batch_is_submitted() {
        let one = Arc::<Counting>::default();
        let _deferral = Deferral::begin(|| {});
        for _ in 0..2 * BATCH_MAX {
            assert!(defer(&one));
        }
        assert_eq!(wakes(&one), 2);
    }

    #[test]
    fn who_cannot_wait_submits_when_told() {
        let one = Arc::<Counting>::default();
        let _deferral = Deferral::begin(submit_deferred);
        assert!(defer(&one));
        assert_eq!(wakes(&one), 1);
    }
}
