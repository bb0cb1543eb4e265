//! Tests: which objects wait, in which order groups are written, and that no object is forgotten.

use super::taking::GROUPS_AT_ONCE;
use super::*;
use crate::memory::pool::Pool;

const PAGE: u64 = 4096;

fn object(run: &Run, due: u64) -> Staged {
    Staged {
        run: run.clone(),
        offset: 0,
        stored_bytes: 2048,
        reinserted: false,
        freq: 0,
        beside_older: false,
        may_wait: false,
        due: Due::at(Duration::from_secs(due)),
        round: 0,
        came_at: 0,
    }
}

/// Queues an object that is due, and was created, at this time.
fn stage(nursery: &Nursery, group: u64, run: &Run, due: u64) -> bool {
    nursery.push(GroupId::new(group), object(run, due), Sequence::from_raw(due))
}

#[test]
fn what_is_put_back_keeps_its_time() {
    let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
    let nursery = Nursery::new(4 * PAGE, Duration::ZERO);
    for due in 10..15 {
        assert!(stage(&nursery, 7, &run, due));
    }
    let take = |now| nursery.take(PAGE, || Duration::from_secs(now), || Duration::ZERO);
    let Work::Pages { mut groups, partial: false } = take(0) else { panic!("two full pages") };
    let mut objects = groups.pop().expect("one group").1;
    let rest = objects.split_off(4);
    nursery.finished(&Finished::of(&objects));
    nursery.put_back(GroupId::new(7), rest);
    assert!(matches!(take(13), Work::Idle), "the rest is not due yet");
    let Work::Pages { groups, partial: true } = take(14) else { panic!("it is due") };
    assert_eq!(groups[0].1.len(), 1);
}

/// A drain asks once: what it waits for may be in the flusher's hands then, and come back.
#[test]
fn what_is_put_back_while_somebody_waits_for_it_is_asked_for_again() {
    let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
    let nursery = Nursery::new(4 * PAGE, Duration::ZERO);
    for due in 10..15 {
        assert!(stage(&nursery, 7, &run, due));
    }
    let take = || nursery.take(PAGE, || Duration::ZERO, || Duration::ZERO);
    let Work::Pages { mut groups, partial: false } = take() else { panic!("two full pages") };
    let mut objects = groups.pop().expect("one group").1;
    let rest = std::cell::Cell::new(Some(objects.split_off(4)));
    nursery.finished(&Finished::of(&objects));
    nursery.drain(|| {
        if let Some(rest) = rest.take() {
            assert!(matches!(take(), Work::Idle), "all is in hand");
            nursery.put_back(GroupId::new(7), rest);
        }
        let Work::Pages { groups, partial: true } = take() else { panic!("it is asked for") };
        nursery.finished(&Finished::of(&groups[0].1));
    });
    assert_eq!(nursery.bytes(), 0);
}

#[test]
fn what_lists_took_stays_charged() {
    let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
    let nursery = Nursery::new(1 << 20, Duration::ZERO);
    assert_eq!(nursery.table_bytes(), 0);
    assert!((0..10).all(|due| stage(&nursery, 7, &run, due)));
    let ten = nursery.table_bytes();
    assert!(ten >= 10 * size_of::<Staged>());
    let Work::Pages { groups, .. } =
        nursery.take(PAGE, || Duration::from_secs(10), || Duration::ZERO)
    else {
        panic!("all are due")
    };
    assert!(stage(&nursery, 8, &run, 11));
    assert!(nursery.table_bytes() > ten, "those being written count, too");
    nursery.finished(&Finished::of(&groups[0].1));
    assert!(nursery.table_bytes() > ten);
}

fn extent(run: &Run) -> StagedExtent {
    let staged = Staged { stored_bytes: 8192, due: Due::NEVER, ..object(run, 0) };
    StagedExtent { staged, part: None, group: GroupId::new(1) }
}

/// The waiting extents always suffice for a write, however many were taken.
#[test]
fn pages_get_their_turn_while_extents_keep_coming() {
    let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
    let nursery = Nursery::new(4 * PAGE, Duration::ZERO);
    let next = |now| {
        assert!(nursery.push_extent(extent(&run), Sequence::ZERO));
        match nursery.take(PAGE, || Duration::from_secs(now), || Duration::ZERO) {
            Work::Extents(extents) => {
                nursery.finished(&Finished::of(extents.iter().map(|e| &e.staged)));
                None
            }
            Work::Pages { groups, partial } => {
                let objects: Vec<_> = groups.into_iter().flat_map(|(_, all)| all).collect();
                nursery.finished(&Finished::of(&objects));
                Some((objects.len(), partial))
            }
            Work::Sparse { .. } | Work::Idle | Work::Stop => panic!("extents wait"),
        }
    };
    assert!(stage(&nursery, 7, &run, 100));
    assert!((0..5).all(|now| next(now).is_none()), "nothing asks for the page");
    assert!((99..101).any(|_| next(100) == Some((1, true))), "its time has come");
    assert!(stage(&nursery, 7, &run, 200));
    nursery.request_flush();
    assert!((0..2).any(|_| next(101) == Some((1, true))), "somebody waits for it");
    // The request does not cover an object that comes later.
    assert!(stage(&nursery, 7, &run, 200));
    assert!((0..5).all(|_| next(102).is_none()));
    assert!((0..4).all(|_| stage(&nursery, 8, &run, 200)));
    assert!((0..2).any(|_| next(103) == Some((4, false))), "two pages of one group");
}

/// A request for one kind leaves nothing behind: otherwise the flusher would find it again and
/// again without work.
#[test]
fn a_wish_ends_with_what_it_was_for() {
    let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
    let nursery = Nursery::new(1 << 20, Duration::ZERO);
    let take = || nursery.take(PAGE, || Duration::ZERO, || Duration::ZERO);
    nursery.request_flush();
    assert!(matches!(take(), Work::Idle));
    assert!(stage(&nursery, 7, &run, 100) && nursery.push_extent(extent(&run), Sequence::ZERO));
    assert!(matches!(take(), Work::Idle), "neither is due, and nobody asked for what came since");
    nursery.request_flush();
    assert!(matches!(take(), Work::Extents(_)));
    assert!(nursery.push_extent(extent(&run), Sequence::ZERO));
    assert!(matches!(take(), Work::Pages { .. }), "though extents wait again");
    assert!(matches!(take(), Work::Idle), "the new one may wait for more");
    nursery.request_flush();
    assert!(matches!(take(), Work::Extents(_)));
    assert!(matches!(take(), Work::Idle));
}

/// Full pages go without being asked for. A request that they have met must not keep the flusher
/// from waiting for work.
#[test]
fn a_request_for_pages_ends_when_nothing_waits() {
    let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
    let nursery = Nursery::new(4 * PAGE, Duration::ZERO);
    assert!((0..8).all(|_| stage(&nursery, 7, &run, 100)));
    nursery.request_flush();
    let take = || nursery.take(PAGE, || Duration::ZERO, || Duration::ZERO);
    while let Work::Pages { groups, .. } = take() {
        groups.iter().for_each(|(_, objects)| nursery.finished(&Finished::of(objects)));
    }
    assert!(!lock(&nursery.state).drain_pages);
}

#[test]
fn what_comes_after_the_flusher_ended_is_refused_and_nobody_waits_for_it() {
    let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
    let nursery = Nursery::new(4 * PAGE, Duration::ZERO);
    assert!(stage(&nursery, 7, &run, 1));
    nursery.stop();
    let take = || nursery.take(PAGE, || Duration::ZERO, || Duration::ZERO);
    let Work::Pages { groups, .. } = take() else { panic!("what waits is written first") };
    nursery.finished(&Finished::of(&groups[0].1));
    assert!(stage(&nursery, 7, &run, 2), "the flusher still comes back");
    let Work::Pages { groups, .. } = take() else { panic!("it came in time") };
    nursery.finished(&Finished::of(&groups[0].1));
    assert!(matches!(take(), Work::Stop));
    assert!(!stage(&nursery, 7, &run, 3));
    nursery.drain(|| panic!("there is nothing to do"));
    assert_eq!(nursery.bytes(), 0);
}

/// Hands in runs until there is work, and returns that.
fn refill_until_work(nursery: &Nursery, run: &Run) -> (u64, Work) {
    let take = || nursery.take(PAGE, || Duration::ZERO, || Duration::ZERO);
    let before = nursery.handed_in();
    loop {
        match take() {
            Work::Idle => assert!(!nursery.wants_flush()),
            work => return (nursery.handed_in() - before, work),
        }
        nursery.refill(run.clone());
    }
}

#[test]
fn what_came_long_ago_is_moved_though_little_waits() {
    let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
    let nursery = Nursery::new(16 * PAGE, Duration::ZERO);
    // Two objects of half a page hold a run each, and the runs between them may be held as well.
    assert!(stage(&nursery, 5, &run, 100));
    (0..3).for_each(|_| nursery.refill(run.clone()));
    assert!(stage(&nursery, 6, &run, 100));
    let (bytes, work) = refill_until_work(&nursery, &run);
    assert_eq!(bytes, PAGE, "four runs for one page, and an eighth of the limit is two");
    let Work::Sparse { groups, came_before } = work else { panic!("they are not to be written") };
    let [(group, objects)] = &groups[..] else { panic!("the other came later") };
    assert_eq!((group.get(), objects[0].came_at), (5, 0));
    assert!((1..=3 * PAGE).contains(&came_before));
    // Once it is moved, it has come just now, and the other is the oldest.
    let (group, mut objects) = groups.into_iter().next().unwrap();
    objects[0].came_at = nursery.handed_in();
    nursery.put_back(group, objects);
    let (bytes, work) = refill_until_work(&nursery, &run);
    assert!(matches!(work, Work::Sparse { .. }));
    assert_eq!(bytes, 3 * PAGE, "as long after the other came as before");
}

/// More groups than are taken at once, chosen without examining each.
#[test]
fn of_many_groups_those_go_that_are_to_go() {
    const GROUPS: u64 = 3 * GROUPS_AT_ONCE as u64;
    let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
    let nursery = Nursery::new(1 << 30, Duration::ZERO);
    for group in 0..GROUPS {
        assert!(stage(&nursery, group, &run, 100 + group));
    }
    let take = |now| nursery.take(PAGE, || Duration::from_secs(now), || Duration::ZERO);
    let groups_of = |work| match work {
        Work::Pages { groups, partial: true } => {
            groups.into_iter().map(|(id, _)| id.get()).collect()
        }
        _ => Vec::new(),
    };
    assert!(matches!(take(99), Work::Idle));
    assert_eq!(groups_of(take(109)), (0..10).collect::<Vec<_>>());
    assert!(matches!(take(109), Work::Idle));
    assert_eq!(groups_of(take(110)), [10]);
    // An object due earlier than the known next due time.
    assert!(stage(&nursery, 0, &run, 105));
    assert_eq!(groups_of(take(110)), [0]);
    assert!(stage(&nursery, 20, &run, 200));
    nursery.request_flush();
    let all = groups_of(take(110));
    assert_eq!((all.len() as u64, all[0]), (GROUPS - 11, 20), "all, the largest first");
    assert!(matches!(take(1_000_000), Work::Idle));
}

#[test]
fn the_largest_groups_go_until_there_is_room_and_a_full_one_is_found_whenever_it_fills() {
    let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
    let nursery = Nursery::new(16 * PAGE, Duration::ZERO);
    let take = || match nursery.take(PAGE, || Duration::ZERO, || Duration::ZERO) {
        Work::Pages { groups, partial } => {
            let objects: Vec<_> = groups.iter().flat_map(|(_, objects)| objects).collect();
            nursery.finished(&Finished::of(objects.iter().copied()));
            (groups.iter().map(|(id, _)| id.get()).collect::<Vec<_>>(), partial)
        }
        _ => panic!("half of the limit waits"),
    };
    let push = |group| assert!(stage(&nursery, group, &run, 100));
    // Sixteen objects of half a page are half of the limit: group 3 has a page's worth, the others
    // less.
    (0..15).chain([3]).for_each(push);
    assert_eq!(take(), (vec![3, 0, 1, 2, 4, 5, 6], true), "a quarter of the limit, oldest first");
    // The others are still there, one of them fills, and a group put back counts together with
    // later objects.
    (0..5).for_each(|_| push(7));
    (20..30).for_each(push);
    assert_eq!(take(), (vec![7], false));
    nursery.request_flush();
    let Work::Pages { mut groups, .. } = nursery.take(PAGE, || Duration::ZERO, || Duration::ZERO)
    else {
        panic!("asked for")
    };
    assert_eq!(groups.len(), 17);
    let (group, mut objects) = groups.pop().expect("one of them");
    nursery.finished(&Finished::of(groups.iter().flat_map(|(_, objects)| objects)));
    (0..3).for_each(|_| push(group.get()));
    nursery.put_back(group, std::mem::take(&mut objects));
    (100..112).for_each(push);
    assert_eq!(take(), (vec![group.get()], false), "four objects are two pages");
}

/// As long as creates outpace the device, each turn of the flusher finds too much, and full groups.
#[test]
fn what_is_asked_for_or_due_is_written_while_full_groups_keep_coming() {
    let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
    let nursery = Nursery::new(4 * PAGE, Duration::ZERO);
    let push = |group, due| assert!(stage(&nursery, group, &run, due));
    let next = |now| {
        (0..4).for_each(|_| push(7, 100));
        let work = nursery.take(PAGE, || Duration::from_secs(now), || Duration::ZERO);
        let Work::Pages { groups, partial } = work else { panic!("two pages of a group wait") };
        let all: Vec<_> = groups.iter().flat_map(|(_, objects)| objects).collect();
        nursery.finished(&Finished::of(all));
        let small = groups.iter().any(|(group, _)| group.get() == 8);
        assert_eq!(partial, small, "the full group is broken up for nothing else");
        (small, groups.len())
    };
    push(8, 50);
    assert!((0..5).all(|_| next(49) == (false, 1)), "nobody asks for it");
    assert!((0..2).any(|_| next(50) == (true, 1)), "it is due, alone");
    assert!((0..5).all(|_| next(50) == (false, 1)));
    push(8, 200);
    nursery.request_flush();
    assert!((0..2).any(|_| next(50) == (true, 2)), "somebody waits for all that came before");
    assert!((0..5).all(|_| next(50) == (false, 1)), "and no longer");
    // Groups that are not full make room as well, the largest first.
    let next = |now| {
        (10..17).for_each(|group| (0..2).for_each(|_| push(group, 100)));
        let work = nursery.take(PAGE, || Duration::from_secs(now), || Duration::ZERO);
        let Work::Pages { groups, .. } = work else { panic!("more than half of the limit waits") };
        nursery.finished(&Finished::of(groups.iter().flat_map(|(_, objects)| objects)));
        groups.iter().any(|(group, _)| group.get() == 8)
    };
    push(8, 60);
    assert!((0..5).all(|_| !next(59)));
    assert!((0..3).any(|_| next(60)));
}

/// Each write ends with a page that is not full.
#[test]
fn what_is_due_takes_along_what_is_due_soon() {
    let run = Pool::new(1, PAGE as usize).unwrap().try_take_frame().unwrap();
    let nursery = Nursery::new(1 << 30, Duration::from_secs(8));
    let groups_at = |now| match nursery.take(PAGE, || Duration::from_secs(now), || Duration::ZERO) {
        Work::Pages { groups, partial: true } => {
            let objects: Vec<_> = groups.iter().flat_map(|(_, objects)| objects).collect();
            nursery.finished(&Finished::of(objects));
            groups.into_iter().map(|(id, _)| id.get()).collect()
        }
        _ => Vec::new(),
    };
    // Named as they are due.
    let push = |group| assert!(stage(&nursery, group, &run, group));
    (100..112).for_each(push);
    assert!(groups_at(99).is_empty(), "none is due");
    assert_eq!(groups_at(100), (100..109).collect::<Vec<_>>(), "few pages: all of the period");
    assert!(groups_at(108).is_empty(), "what was due went before its time");
    assert_eq!(groups_at(109), [109, 110, 111]);
    (200..240).for_each(push);
    assert_eq!(groups_at(200), (200..205).collect::<Vec<_>>(), "many: half of the period");
    assert_eq!(groups_at(206), (205..211).collect::<Vec<_>>());
    nursery.request_flush();
    assert_eq!(groups_at(207).len(), 29);
    push(213);
    assert!(groups_at(212).is_empty(), "a group that was due by then has gone otherwise");
    assert_eq!(groups_at(213), [213]);
}
