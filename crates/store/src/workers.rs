//! A small pool of threads that do blocking work for callers that may not block (async ones).
//!
//! Threads start when first needed, at most `THREADS_MAX`, and end when the store does; operations
//! that callers `wait()` for never come here. Creates that wait for memory or a slow disk occupy a
//! limited number of the threads and run after other jobs, prefetches fewer and last. Streamed
//! creates occupy a few others, and one thread is kept for them, since creates and reads wait for
//! the memory that they hold. Invariants: every job handed in runs; a job that panics does not end
//! its thread. Threads: any thread hands in jobs; workers run them.

use crate::process::SignalsBlocked;
use crate::sync::{Arc, Condvar, Mutex, PoisonError, lock, thread};
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// Most worker threads.
const THREADS_MAX: usize = 16;
/// Most threads that creates may occupy while they wait.
const CREATING_MAX: usize = 8;
/// Most threads that streamed creates may occupy; the others are left for reads.
const WRITING_MAX: usize = 4;
/// Most threads that prefetches may occupy.
const PREFETCHING_MAX: usize = 2;
const _: () = assert!(CREATING_MAX + WRITING_MAX + PREFETCHING_MAX < THREADS_MAX);
/// Most threads that all but streamed creates may occupy: a writer finds one, however many reads
/// and creates came before it and wait for the memory that it holds.
const OTHERS_MAX: usize = THREADS_MAX - 1;

/// The kind of work that a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Reads.
    Soon,
    /// Prefetches, which may read three quarters of the memory.
    Ahead,
    /// Creates and metadata changes, which may wait for memory; removes, purges and syncs that
    /// somebody awaits, which wait for the disk.
    Creates,
    /// Pieces and commits of streamed creates, which may wait for memory or for their parts to be
    /// written.
    Writers,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    prefetches: VecDeque<Job>,
    creates: VecDeque<Job>,
    writers: VecDeque<Job>,
    /// Threads busy with jobs of the lane `Soon`.
    reading: usize,
    /// Threads busy with prefetches.
    prefetching: usize,
    /// Threads busy with creates.
    creating: usize,
    /// Threads busy with streamed creates.
    writing: usize,
    idle: usize,
    threads: usize,
    /// Threads beyond these, with a job each.
    apart: usize,
    stopped: bool,
}

impl State {
    fn next(&mut self) -> Option<(Job, Lane)> {
        // One writer always runs, however many reads there are: they may wait for the memory that
        // it holds.
        if self.writing == 0
            && let Some(job) = self.next_writer()
        {
            return Some((job, Lane::Writers));
        }
        let may_others = self.others() < OTHERS_MAX;
        if may_others && let Some(job) = self.jobs.pop_front() {
            self.reading += 1;
            return Some((job, Lane::Soon));
        }
        if let Some(job) = self.next_writer() {
            return Some((job, Lane::Writers));
        }
        if may_others
            && self.creating < CREATING_MAX
            && let Some(job) = self.creates.pop_front()
        {
            self.creating += 1;
            return Some((job, Lane::Creates));
        }
        if !may_others || self.prefetching >= PREFETCHING_MAX {
            return None;
        }
        let job = self.prefetches.pop_front()?;
        self.prefetching += 1;
        Some((job, Lane::Ahead))
    }

    /// Threads busy with anything but streamed creates.
    fn others(&self) -> usize {
        self.reading + self.creating + self.prefetching
    }

    fn next_writer(&mut self) -> Option<Job> {
        if self.writing >= WRITING_MAX {
            return None;
        }
        let job = self.writers.pop_front()?;
        self.writing += 1;
        Some(job)
    }

    /// Jobs that a thread could begin now.
    fn ready(&self) -> usize {
        let creates = self.creates.len().min(CREATING_MAX - self.creating);
        let writers = self.writers.len().min(WRITING_MAX - self.writing);
        let prefetches = self.prefetches.len().min(PREFETCHING_MAX - self.prefetching);
        (self.jobs.len() + creates + prefetches).min(OTHERS_MAX - self.others()) + writers
    }
}

#[derive(Default)]
pub(crate) struct Workers {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Workers {
    /// Runs `job` on a worker, or on this thread if no worker can be started or the store is
    /// stopping.
    pub(crate) fn run(&self, lane: Lane, job: Job) {
        let mut state = lock(&self.shared.0);
        if state.stopped {
            drop(state);
            return job();
        }
        match lane {
            Lane::Soon => state.jobs.push_back(job),
            Lane::Ahead => state.prefetches.push_back(job),
            Lane::Creates => state.creates.push_back(job),
            Lane::Writers => state.writers.push_back(job),
        }
        let start = state.idle < state.ready() && state.threads < THREADS_MAX;
        if start {
            state.threads += 1;
            let shared = Arc::clone(&self.shared);
            let name = format!("damelo-worker-{}", state.threads);
            let _program_s = SignalsBlocked::new();
            let spawned = thread::Builder::new().name(name).spawn(move || work(&shared));
            if spawned.is_err() {
                state.threads -= 1;
                if state.threads == 0 {
                    let job = state.jobs.pop_back().or_else(|| state.creates.pop_back());
                    let job = job.or_else(|| state.writers.pop_back());
                    let job = job.or_else(|| state.prefetches.pop_back());
                    drop(state);
                    if let Some(job) = job {
                        job();
                    }
                    return;
                }
            }
        }
        drop(state);
        self.shared.1.notify_one();
    }

    /// Runs `job` on a thread of its own, beyond the number of workers: all of them may wait for
    /// what it finds out. For what happens seldom.
    pub(crate) fn run_apart(&self, job: Job) {
        let mut state = lock(&self.shared.0);
        if state.stopped {
            drop(state);
            return job();
        }
        state.apart += 1;
        drop(state);
        let (job, shared) = (Arc::new(Mutex::new(Some(job))), Arc::clone(&self.shared));
        let theirs = Arc::clone(&job);
        let run = move || {
            WORKS_FOR.set(Arc::as_ptr(&shared).addr());
            let job = lock(&theirs).take();
            // As for workers: its waiter has been told.
            let _ = catch_unwind(AssertUnwindSafe(|| job.into_iter().for_each(|job| job())));
            lock(&shared.0).apart -= 1;
            shared.1.notify_all();
        };
        let _program_s = SignalsBlocked::new();
        let name = "damelo-probe".to_owned();
        if thread::Builder::new().name(name).spawn(run).is_err() {
            lock(&self.shared.0).apart -= 1;
            let job = lock(&job).take();
            job.into_iter().for_each(|job| self.run(Lane::Soon, job));
        }
    }

    /// Makes the workers end once the queues are empty.
    pub(crate) fn stop(&self) {
        lock(&self.shared.0).stopped = true;
        self.shared.1.notify_all();
    }

    /// Waits, for `most` at most, until stopped workers have ended: a job's caller goes on before
    /// the job lets go of what it holds. A worker does not wait for itself.
    pub(crate) fn settle(&self, most: Duration) {
        if WORKS_FOR.get() == Arc::as_ptr(&self.shared).addr() {
            return;
        }
        let state = lock(&self.shared.0);
        let has_some = |state: &mut State| state.threads + state.apart > 0;
        drop(self.shared.1.wait_timeout_while(state, most, has_some));
    }
}

thread_local! {
    /// Where what this worker shares with others lies, for which nothing else lies there; 0 for
    /// other threads.
    static WORKS_FOR: Cell<usize> = const { Cell::new(0) };
}

fn work(shared: &(Mutex<State>, Condvar)) {
    WORKS_FOR.set(std::ptr::from_ref(shared).addr());
    let mut state = lock(&shared.0);
    loop {
        if let Some((job, lane)) = state.next() {
            drop(state);
            // The job has already passed a panic on to its waiter; this thread must go on.
            let _ = catch_unwind(AssertUnwindSafe(job));
            state = lock(&shared.0);
            state.reading -= usize::from(lane == Lane::Soon);
            state.prefetching -= usize::from(lane == Lane::Ahead);
            state.creating -= usize::from(lane == Lane::Creates);
            state.writing -= usize::from(lane == Lane::Writers);
        } else if state.stopped {
            // Remaining creates, writers and prefetches are run by the threads that are busy with
            // such jobs now.
            state.threads -= 1;
            shared.1.notify_all();
            return;
        } else {
            state.idle += 1;
            state = shared.1.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// More creates or writers than there are threads wait for something that comes only after a
    /// read is done.
    #[test]
    fn creates_and_writers_that_wait_leave_threads_to_others() {
        for (lane, most) in [(Lane::Creates, CREATING_MAX), (Lane::Writers, WRITING_MAX)] {
            let workers = Workers::default();
            let gate = std::sync::Arc::new(std::sync::Barrier::new(most + 1));
            let (done, all) = mpsc::channel();
            let rounds = 2 * THREADS_MAX / most;
            for _ in 0..rounds * most {
                let (gate, done) = (std::sync::Arc::clone(&gate), done.clone());
                let job = move || {
                    gate.wait();
                    done.send("waited").expect("somebody listens");
                };
                workers.run(lane, Box::new(job));
            }
            for round in 0..rounds {
                let read_done = done.clone();
                workers.run(Lane::Soon, Box::new(move || read_done.send("read").expect("heard")));
                assert_eq!(all.recv(), Ok("read"), "{lane:?}, round {round}");
                gate.wait();
                for _ in 0..most {
                    assert_eq!(all.recv(), Ok("waited"));
                }
            }
            workers.stop();
        }
    }

    #[test]
    fn settled_workers_have_let_go_of_what_their_jobs_held() {
        let (workers, held) = (Workers::default(), std::sync::Arc::new(()));
        let (heard, hears) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let in_job = std::sync::Arc::clone(&held);
        let job = move || {
            heard.send(()).expect("heard");
            goes.recv().expect("it goes on");
            thread::sleep(Duration::from_millis(20));
            drop(in_job);
        };
        workers.run(Lane::Soon, Box::new(job));
        assert_eq!(hears.recv(), Ok(()));
        assert_eq!(std::sync::Arc::strong_count(&held), 2, "the caller hears of it earlier");
        workers.stop();
        go.send(()).expect("it waits");
        workers.settle(Duration::from_secs(60));
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }

    #[test]
    fn a_worker_waits_for_those_of_another_store_and_not_for_itself() {
        let (workers, others) = (std::sync::Arc::new(Workers::default()), Workers::default());
        let held = std::sync::Arc::new(());
        let in_job = std::sync::Arc::clone(&held);
        let job = move || {
            thread::sleep(Duration::from_millis(20));
            drop(in_job);
        };
        others.run(Lane::Soon, Box::new(job));
        others.stop();
        let (done, is_done) = mpsc::channel();
        let own = std::sync::Arc::clone(&workers);
        let close_both = move || {
            own.stop();
            own.settle(Duration::from_secs(60));
            others.settle(Duration::from_secs(60));
            done.send(std::sync::Arc::strong_count(&held)).expect("heard");
        };
        workers.run(Lane::Soon, Box::new(close_both));
        assert_eq!(is_done.recv_timeout(Duration::from_secs(30)), Ok(1));
    }

    #[test]
    fn creates_that_wait_leave_threads_to_the_writers_that_hold_their_memory() {
        let workers = Workers::default();
        let (written, wait) = mpsc::channel::<()>();
        let (wait, (done, all)) = (std::sync::Arc::new(Mutex::new(wait)), mpsc::channel());
        for _ in 0..THREADS_MAX {
            let (wait, done) = (std::sync::Arc::clone(&wait), done.clone());
            let create = move || done.send(lock(&wait).recv().is_err()).expect("heard");
            workers.run(Lane::Creates, Box::new(create));
        }
        workers.run(Lane::Writers, Box::new(move || drop(written)));
        assert!((0..THREADS_MAX).all(|_| all.recv() == Ok(true)));
        workers.stop();
    }

    #[test]
    fn reads_that_wait_leave_a_thread_to_the_writer_that_holds_their_memory() {
        for creates in [0, 1, CREATING_MAX] {
            let workers = Workers::default();
            let (written, wait) = mpsc::channel::<()>();
            let (wait, (done, all)) = (std::sync::Arc::new(Mutex::new(wait)), mpsc::channel());
            let (begun, begins) = mpsc::channel();
            let lanes = [Lane::Creates].repeat(creates).into_iter();
            for lane in lanes.chain([Lane::Soon].repeat(THREADS_MAX)) {
                let (wait, done, begun) =
                    (std::sync::Arc::clone(&wait), done.clone(), begun.clone());
                let job = move || {
                    begun.send(()).expect("heard");
                    done.send(lock(&wait).recv().is_err()).expect("heard");
                };
                workers.run(lane, Box::new(job));
            }
            // Nothing is left for a writer if one more begins.
            assert!((1..THREADS_MAX).all(|_| begins.recv() == Ok(())));
            let _ = begins.recv_timeout(Duration::from_millis(100));
            workers.run(Lane::Writers, Box::new(move || drop(written)));
            let ended = |_| all.recv_timeout(Duration::from_secs(30)) == Ok(true);
            assert!((0..THREADS_MAX + creates).all(ended), "{creates} creates");
            workers.stop();
        }
    }

    /// More jobs panic than there are threads.
    #[test]
    fn jobs_that_panic_leave_the_threads_to_others() {
        let workers = Workers::default();
        for lane in [Lane::Creates, Lane::Writers, Lane::Soon] {
            for _ in 0..2 * THREADS_MAX {
                workers.run(lane, Box::new(|| panic!("a policy of the test's own")));
            }
            let (done, all) = mpsc::channel();
            workers.run(lane, Box::new(move || done.send(()).expect("heard")));
            assert_eq!(all.recv(), Ok(()), "{lane:?}");
        }
        workers.stop();
    }
}
