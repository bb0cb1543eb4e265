//! What frames, runs and large pages of a pool come to.

use super::*;

const FRAME: usize = 4096;

#[test]
fn runs_are_contiguous_and_come_back() {
    let pool = Pool::new(8, FRAME).unwrap();
    let a = pool.try_take(3 * FRAME).unwrap();
    let b = pool.try_take(5 * FRAME).unwrap();
    assert!(pool.try_take_frame().is_none());
    assert_eq!((a.len_bytes(), b.len_bytes()), (3 * FRAME, 5 * FRAME));
    let again = a.clone();
    drop(a);
    assert!(pool.try_take_frame().is_none(), "a clone keeps the run");
    drop(again);
    assert!(pool.try_take(3 * FRAME).is_some());
    assert_eq!(pool.used_bytes(), 5 * FRAME);
}

/// A thread of the parent may hold the pool's lock at the fork: here the one that forks does.
#[test]
#[cfg(not(miri))]
fn a_run_is_dropped_in_a_child_without_the_lock() {
    let pool = Pool::new(2, FRAME).unwrap();
    let run = pool.try_take_frame().unwrap();
    let state = lock(&pool.state);
    // SAFETY: the child drops a run and leaves, without unwinding into the test; one that hangs is
    // killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::alarm(60) };
        drop(run);
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    drop(state);
    let mut status = 0;
    // SAFETY: the place for the status is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was killed: it hung");
    drop(run);
    assert_eq!(pool.used_bytes(), 0, "the parent's pool goes on");
}

#[test]
fn a_run_over_a_third_of_a_frame_is_as_long_as_it_must_be() {
    let pool = Pool::new(5, 16 * FRAME).unwrap();
    let lengths = [1, 16 * FRAME / 3, 6 * FRAME, 8 * FRAME + 1, 16 * FRAME, 16 * FRAME + 1];
    let runs = lengths.map(|bytes| pool.try_take(bytes).unwrap());
    let grains = runs.each_ref().map(|run| run.len_bytes() / FRAME);
    assert_eq!(grains, [16, 16, 6, 9, 16, 17]);
    assert_eq!(pool.used_bytes(), 80 * FRAME);
    let pool = Pool::new(10, 16 * FRAME).unwrap();
    let run = pool.try_take(8 * 16 * FRAME + 1).unwrap();
    assert_eq!(run.len_bytes(), 9 * 16 * FRAME, "whole frames of many");
}

#[test]
fn what_is_cut_off_a_run_is_others_to_take() {
    let pool = Pool::new(2, 16 * FRAME).unwrap();
    let (cut, whole) = (pool.try_take_frame().unwrap(), pool.try_take_frame().unwrap());
    pool.shorten(&whole, 14 * FRAME + 1);
    assert_eq!(whole.len_bytes(), 16 * FRAME, "one grain is not worth it");
    // SAFETY: freshly taken, nobody else knows it.
    unsafe { cut.bytes_mut(0, 16 * FRAME) }.fill(7);
    pool.shorten(&cut, 9 * FRAME + 1);
    assert_eq!((cut.len_bytes(), pool.available_bytes()), (10 * FRAME, 6 * FRAME));
    assert!(cut.bytes(0, 10 * FRAME).iter().all(|&byte| byte == 7));
    let other = pool.try_take(6 * FRAME).unwrap();
    assert_eq!(pool.used_bytes(), 32 * FRAME);
    drop((cut, whole, other));
    assert_eq!(pool.used_bytes(), 0);
    assert!(pool.try_take_frame().is_some() && pool.try_take(2 * 16 * FRAME).is_some());
}

/// Large pages are the system's business: what is in memory and what is counted stays the same.
#[test]
fn what_is_in_memory_stays_when_large_pages_are_taken_apart() {
    let frames = 12 * BLOCK_BYTES / (16 * FRAME);
    let pool = Pool::new(if cfg!(miri) { 4 } else { frames }, 16 * FRAME).unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let mut held: Vec<(Run, u8)> = Vec::new();
    for step in 0..if cfg!(miri) { 20 } else { 3_000 } {
        let bytes = if rng.u8(..8) == 0 { rng.usize(1..40 * FRAME) } else { 16 * FRAME };
        match pool.try_take(bytes) {
            Some(run) => {
                // SAFETY: freshly taken, nobody else knows it.
                unsafe { run.bytes_mut(0, bytes) }.fill(step as u8);
                held.push((run, step as u8));
            }
            None => drop(held.swap_remove(rng.usize(..held.len()))),
        }
        pool.enlarge();
        if step % 50 == 0 {
            let is_whole = |(run, byte): &(Run, u8)| run.bytes(0, 1) == [*byte];
            assert!(held.iter().all(is_whole));
        }
    }
    let used: usize = held.iter().map(|(run, _)| run.len_bytes()).sum();
    assert_eq!(pool.used_bytes(), used);
    let large = pool.large_page_bytes() / BLOCK_BYTES;
    assert!(cfg!(miri) || large >= 8, "{large} of 12 are left, for one run in eight");
    pool.set_limit(1);
    drop(held);
    assert_eq!(pool.large_page_bytes(), 0, "one frame is left");
}

/// Where runs lie and what is counted is the same; only what the system gets back is not.
#[test]
fn a_pool_that_keeps_memory_takes_the_same_places() {
    for seed in 0..if cfg!(miri) { 2 } else { 20 } {
        let mut rng = fastrand::Rng::with_seed(seed);
        let pools = [Pool::new(12, 4 * FRAME).unwrap(), Pool::keeping(12, 4 * FRAME).unwrap()];
        let mut held: Vec<[Run; 2]> = Vec::new();
        for step in 0..300 {
            if rng.bool() && !held.is_empty() {
                held.swap_remove(rng.usize(..held.len()));
            } else {
                let bytes = rng.usize(1..10 * FRAME);
                let [Some(plain), Some(kept)] = pools.each_ref().map(|pool| pool.try_take(bytes))
                else {
                    held.pop();
                    continue;
                };
                assert_eq!((plain.first(), plain.len_bytes()), (kept.first(), kept.len_bytes()));
                // SAFETY: freshly taken, nobody else knows it.
                unsafe { kept.bytes_mut(0, bytes) }.fill(step as u8);
                held.push([plain, kept]);
            }
            assert_eq!(pools[0].used_bytes(), pools[1].used_bytes());
        }
    }
}

#[test]
fn bytes_outlive_the_pool_handle() {
    let pool = Pool::new(2, FRAME).unwrap();
    let run = pool.try_take_frame().unwrap();
    // SAFETY: freshly taken, nobody else knows it.
    unsafe { run.bytes_mut(0, 5) }.copy_from_slice(b"hello");
    drop(pool);
    assert_eq!(run.bytes(0, 5), b"hello");
}

#[test]
fn a_lower_limit_refuses_and_a_window_skips_what_is_held() {
    let pool = Pool::new(8, FRAME).unwrap();
    pool.set_limit(2);
    let held = pool.try_take(2 * FRAME).unwrap();
    assert!(pool.try_take_frame().is_none());
    pool.set_limit(8);
    let window = pool.window(4 * FRAME, |first| first != held.first() as usize).unwrap();
    assert!(window.start >= 2);
    let next = pool.window(2 * FRAME, |_| true).unwrap();
    assert_eq!(next.start, window.end, "another part makes room each time");
}

/// Each search begins where the last one ended, and ends where it would begin again.
#[test]
fn a_window_may_lie_across_the_end_of_the_last_one() {
    let pool = Pool::new(8, FRAME).unwrap();
    let _held: Vec<Run> = std::iter::from_fn(|| pool.try_take_frame()).collect();
    assert_eq!(pool.window(4 * FRAME, |_| true), Some(0..4));
    assert_eq!(pool.window(4 * FRAME, |first| ![0, 6].contains(&first)), Some(1..5));
}

#[test]
fn a_run_of_several_frames_is_not_cut() {
    let pool = Pool::new(2, 16 * FRAME).unwrap();
    let run = pool.try_take(17 * FRAME).unwrap();
    pool.shorten(&run, FRAME);
    assert_eq!((run.len_bytes(), pool.used_bytes()), (17 * FRAME, 17 * FRAME));
}

#[test]
fn nothing_beyond_a_run_can_be_reached() {
    let pool = Pool::new(2, FRAME).unwrap();
    let run = pool.try_take_frame().unwrap();
    for (offset, len) in [(0, FRAME + 1), (1, FRAME), (FRAME + 1, 0), (1, usize::MAX)] {
        let reached = std::panic::AssertUnwindSafe(|| run.bytes(offset, len).len());
        assert!(std::panic::catch_unwind(reached).is_err(), "{len} bytes from {offset}");
    }
    assert_eq!(run.bytes(FRAME, 0), []);
}
