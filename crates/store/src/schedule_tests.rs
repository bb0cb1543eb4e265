//! Schedule tests of the store's own code under shuttle: at every lock, wait, channel and shared
//! atomic (see `sync.rs`) shuttle decides which thread continues, over thousands of schedules. A
//! failure prints the schedule, which `shuttle::replay` accepts.
//!
//! First the parts alone, then a whole store with its threads on a device in memory. Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test -p damelo --release --lib shuttle_`; `DAMELO_SCHEDULES`
//! sets the number of schedules for each test.

use std::time::Duration;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config as Plan, FailurePersistence, MaxSteps, Runner};

use crate::memory::pool::{Pool, Run};
use crate::read::flight::{Flights, Joined};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock, thread};
use crate::types::{GroupId, KeyHash, Sequence};
use crate::write::gate::Gate;
use crate::write::nursery::{Due, Finished, Nursery, Place, Staged, Work};

mod store;

/// More steps than any test needs: a schedule that takes more does not end.
const STEPS_MAX: usize = 3_000_000;
/// The store puts buffers on its stacks.
const STACK_BYTES: usize = 512 << 10;

fn schedules(default: usize) -> usize {
    let wanted = std::env::var("DAMELO_SCHEDULES").ok();
    wanted.map_or(default, |count| count.parse().expect("DAMELO_SCHEDULES is a number"))
}

/// Runs a test under this many random schedules, half of them with few preemptions at hidden
/// places.
fn explore(count: usize, test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    let count = schedules(count).div_ceil(2);
    run(RandomScheduler::new(count), &test);
    run(PctScheduler::new(3, count), &test);
}

fn run(scheduler: impl Scheduler + 'static, test: &Arc<impl Fn() + Send + Sync + 'static>) {
    let mut plan = Plan::new();
    plan.stack_size = STACK_BYTES;
    plan.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    plan.failure_persistence = FailurePersistence::Print;
    let test = Arc::clone(test);
    Runner::new(scheduler, plan).run(move || test());
}

#[test]
fn shuttle_a_run_is_free_only_when_nobody_refers_to_it() {
    explore(4_000, || {
        let pool = Pool::new(2, 4096).unwrap();
        let threads: Vec<_> = (0..3_u8)
            .map(|id| {
                let pool = Arc::clone(&pool);
                thread::spawn(move || {
                    for round in 0..3 {
                        let Some(run) = pool.try_take_frame() else {
                            pool.wait_freed();
                            continue;
                        };
                        let mark = id * 16 + round;
                        // SAFETY: freshly taken, nobody else knows it.
                        unsafe { run.bytes_mut(0, 64) }.fill(mark);
                        // Two threads refer to it anew at once, as readers of one object do.
                        let shared = Arc::new(run);
                        let theirs = Arc::clone(&shared);
                        let reader = thread::spawn(move || {
                            let own = Run::clone(&theirs);
                            drop(theirs);
                            assert_eq!(own.bytes(0, 64), [mark; 64]);
                        });
                        let own = Run::clone(&shared);
                        drop(shared);
                        assert_eq!(own.bytes(0, 64), [mark; 64]);
                        drop(own);
                        reader.join().unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(pool.used_bytes(), 0);
        // One by one, since taking a frame asserts that no count is left on it, or below nothing.
        let all = [pool.try_take_frame(), pool.try_take_frame()];
        assert!(all.iter().all(Option::is_some), "everything came back");
    });
}

#[test]
fn shuttle_a_flight_has_one_leader_and_everybody_lands() {
    explore(4_000, || {
        let flights = Arc::new(Flights::default());
        let leading = Arc::new(AtomicBool::new(false));
        let there = Arc::new(AtomicBool::new(false));
        let reads = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (flights, there) = (Arc::clone(&flights), Arc::clone(&there));
                let (leading, reads) = (Arc::clone(&leading), Arc::clone(&reads));
                thread::spawn(move || {
                    while !there.load(Ordering::SeqCst) {
                        match flights.join(7) {
                            Joined::Leader(lead) => {
                                assert!(!leading.swap(true, Ordering::SeqCst), "two leaders");
                                // As in a read: the leader looks again before it reads.
                                if !there.load(Ordering::SeqCst) {
                                    reads.fetch_add(1, Ordering::SeqCst);
                                    there.store(true, Ordering::SeqCst);
                                }
                                leading.store(false, Ordering::SeqCst);
                                drop(lead);
                            }
                            Joined::Follower(flight) => flight.wait(),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(reads.load(Ordering::SeqCst), 1, "one I/O for all");
    });
}

#[test]
fn shuttle_a_checkpoint_waits_for_those_inside_the_gate() {
    explore(4_000, || {
        let gate = Arc::new(Gate::default());
        let published = Arc::new(Mutex::new(Vec::new()));
        let next = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..3_u64)
            .map(|id| {
                let (gate, published, next) =
                    (Arc::clone(&gate), Arc::clone(&published), Arc::clone(&next));
                thread::spawn(move || {
                    let hash = KeyHash::from_raw(id << 32);
                    let inside = gate.enter(hash);
                    let seq = next.fetch_add(1, Ordering::SeqCst);
                    lock(&published).push(seq);
                    drop(inside);
                })
            })
            .collect();
        let older_than = next.load(Ordering::SeqCst);
        gate.wait_empty();
        let there = lock(&published).iter().filter(|&&seq| seq < older_than).count();
        assert_eq!(there as u64, older_than, "whoever had a number is published");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

const PAGE: u64 = 4096;

fn staged(run: &Run, seq: u64) -> Staged {
    Staged {
        run: run.clone(),
        // Tells them apart; nothing is read there.
        offset: seq as u32,
        stored_bytes: 1024,
        reinserted: false,
        freq: 0,
        beside_older: false,
        may_wait: false,
        due: Due::NEVER,
        round: 0,
        came_at: 0,
    }
}

/// The flusher's loop without its I/O: puts back what fills no page when it need not be written.
fn flush(nursery: &Nursery, written: &Mutex<Vec<u64>>) {
    loop {
        match nursery.take(PAGE, || Duration::ZERO, || Duration::from_millis(1)) {
            Work::Stop => return,
            Work::Idle => {}
            Work::Extents(_) | Work::Sparse { .. } => unreachable!("none was handed in"),
            Work::Pages { groups, partial } => {
                for (group, mut objects) in groups {
                    let whole = if partial { objects.len() } else { objects.len() / 4 * 4 };
                    nursery.put_back(group, objects.split_off(whole));
                    lock(written).extend(objects.iter().map(|object| u64::from(object.offset)));
                    nursery.finished(&Finished::of(&objects));
                }
            }
        }
    }
}

#[test]
fn shuttle_a_drain_ends_when_what_came_before_is_written() {
    explore(2_000, || {
        let nursery = Arc::new(Nursery::new(4 * PAGE, Duration::ZERO));
        let written = Arc::new(Mutex::new(Vec::new()));
        let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
        let flusher = {
            let (nursery, written) = (Arc::clone(&nursery), Arc::clone(&written));
            thread::spawn(move || flush(&nursery, &written))
        };
        let creators: Vec<_> = (0..2_u64)
            .map(|id| {
                let (nursery, written) = (Arc::clone(&nursery), Arc::clone(&written));
                let run = run.clone();
                thread::spawn(move || {
                    for n in 0..7 {
                        let mut place = Place::default();
                        while nursery.is_full(1024, &mut place) {
                            nursery.stand_in_line(1024, &mut place);
                            nursery.wait_progress(Duration::from_millis(1));
                        }
                        assert!(nursery.push(
                            GroupId::new(n % 2),
                            staged(&run, 100 * id + n),
                            Sequence::from_raw(100 * id + n)
                        ));
                    }
                    nursery.drain(|| ());
                    let written = lock(&written);
                    let mine = written.iter().filter(|&&seq| seq / 100 == id).count();
                    assert_eq!(mine, 7, "all that this thread had pushed");
                })
            })
            .collect();
        creators.into_iter().for_each(|thread| thread.join().unwrap());
        nursery.stop();
        flusher.join().unwrap();
        assert_eq!((nursery.bytes(), lock(&written).len()), (0, 14));
    });
}
