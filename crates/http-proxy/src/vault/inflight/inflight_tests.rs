//! Tests of bodies that are read while they are filled, without origin or clients.

use std::task::{Context, Poll};

use damelo::{ByteSize, Config, GroupId};

use super::*;
use crate::vault::sections::{SECTION_BYTES, section_key};

fn store(directory: &std::path::Path) -> Store {
    let size = ByteSize::new(64 << 20);
    let mut config = Config::new(directory.join("store"), size);
    config.memory = ByteSize::new(8 << 20);
    Store::open(config).unwrap()
}

/// A body of unknown length beside which this many bytes may be in transit.
fn body(directory: &std::path::Path, transit_bytes_max: u64) -> Arc<InflightBody> {
    body_of(directory, transit_bytes_max, None)
}

fn body_of(
    directory: &std::path::Path,
    transit_bytes_max: u64,
    length_bytes: Option<u64>,
) -> Arc<InflightBody> {
    let transit = Arc::new(Transit::new(transit_bytes_max));
    InflightBody::new(&store(directory), &transit, b"k".to_vec(), length_bytes)
}

/// What of it is in memory.
fn tail_bytes(body: &InflightBody) -> u64 {
    body.state().tail.iter().map(|(_, piece)| piece.len() as u64).sum()
}

/// What a reader gets at once; `None` if it has to wait.
fn get(reader: &mut InflightReader) -> Option<Result<usize, BodyError>> {
    match reader.poll_chunk(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(Chunk::Bytes(bytes))) => Some(Ok(bytes.len())),
        Poll::Ready(Ok(Chunk::End(_))) => Some(Ok(0)),
        Poll::Ready(Err(error)) => Some(Err(error)),
        Poll::Pending => None,
    }
}

#[test]
fn what_a_reader_at_the_head_is_about_to_get_stays_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let body = body(directory.path(), u64::MAX);
    let mut reader = InflightReader::new(body.clone(), None);
    assert_eq!(get(&mut reader), None);
    body.push(Bytes::from(vec![1; 1000]));
    // As it is in the store no more: it was evicted at once.
    body.stored(7, 1000);
    assert_eq!(get(&mut reader), Some(Ok(1000)));
    assert_eq!(get(&mut reader), None);
    body.push(Bytes::from(vec![2; NEAR_BYTES as usize]));
    let starts: Vec<_> = body.state().tail.iter().map(|(start, _)| *start).collect();
    assert_eq!(starts, [1000], "nobody is about to get what came before");
}

/// It may wait for the store meanwhile, and the client that began the fill may leave.
#[test]
fn who_is_about_to_read_counts_as_a_reader() {
    let directory = tempfile::tempdir().unwrap();
    let body = body(directory.path(), u64::MAX);
    let coming = body.await_reader();
    assert_eq!(body.readers(), 1);
    let reader = InflightReader::new(body.clone(), None);
    drop(coming);
    assert_eq!(body.readers(), 1);
    drop(reader);
    assert_eq!(body.readers(), 0);
}

/// An origin may send its bytes one by one.
#[test]
fn what_comes_in_the_smallest_pieces_is_kept_in_larger_ones_and_found() {
    let directory = tempfile::tempdir().unwrap();
    let body = body(directory.path(), u64::MAX);
    let count = NEAR_BYTES as usize;
    for at in 0..count {
        body.push(Bytes::from_static(if at % 2 == 0 { b"a" } else { b"b" }));
    }
    let state = body.state();
    assert!(state.tail.len() <= count / 512, "{} pieces", state.tail.len());
    for at in (0..count as u64).rev() {
        let piece = state.of_tail(at).unwrap();
        assert_eq!(piece[0], if at % 2 == 0 { b'a' } else { b'b' });
    }
    assert_eq!(state.of_tail(count as u64), None);
    assert!(body.transit.held_bytes() > NEAR_BYTES - 512, "and counted");
}

#[test]
fn a_fill_that_is_not_stored_waits_for_its_first_reader_or_else_the_foremost() {
    let directory = tempfile::tempdir().unwrap();
    let body = body(directory.path(), u64::MAX);
    let read_on = |reader: &mut InflightReader| while get(reader).is_some() {};
    let mut first = InflightReader::new(body.clone(), None);
    let mut others = [0, 1].map(|_| InflightReader::new(body.clone(), None));
    body.give_up_storing(7, 0);
    assert!(!body.is_open());
    let half = Bytes::from(vec![1; NEAR_BYTES as usize / 2]);
    for _ in 0..3 {
        body.push(half.clone());
    }
    others.iter_mut().for_each(read_on);
    assert_eq!(body.awaited(), Some((0, 0)), "however far the others are");
    read_on(&mut first);
    assert_eq!(body.awaited(), None);
    drop(first);
    for _ in 0..3 {
        body.push(half.clone());
        read_on(&mut others[0]);
    }
    assert_eq!(body.awaited(), None, "one is at the head");
    for _ in 0..3 {
        body.push(half.clone());
        read_on(&mut others[0]);
    }
    assert_eq!(get(&mut others[1]), Some(Err(BodyError::Store)), "too far behind");
    assert!(body.has_pacer());
    for number in [1, 2] {
        body.wait_no_longer_for((number, 0));
    }
    assert!(!body.has_pacer(), "nobody takes anything");
    body.end(Ok(None));
    assert_eq!(get(&mut others[0]), Some(Ok(0)), "its end");
}

#[test]
fn what_is_removed_as_the_origin_broke_off_was_not_lost_by_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let body = body(directory.path(), u64::MAX);
    let mut behind = InflightReader::new(body.clone(), None);
    let mut said = || loop {
        if let Some(said) = get(&mut behind) {
            return said;
        }
    };
    for _ in 0..2 {
        body.push(Bytes::from(vec![1; NEAR_BYTES as usize]));
    }
    // As they are in the store no more.
    body.stored(7, 2 * NEAR_BYTES);
    assert_eq!(said(), Err(BodyError::Store));
    body.end(Err(BodyError::Broken));
    assert_eq!(said(), Err(BodyError::Broken));
}

#[tokio::test]
async fn while_much_is_in_transit_only_what_is_read_along_is_kept_and_who_joins_waits() {
    let directory = tempfile::tempdir().unwrap();
    let body = body_of(directory.path(), 0, Some(2 * SECTION_BYTES + SECTION_BYTES / 2));
    let half = Bytes::from(vec![1; NEAR_BYTES as usize / 2]);
    body.push(half.clone());
    body.push(half.clone());
    assert_eq!(tail_bytes(&body), NEAR_BYTES, "it may yet be stored with its head");
    body.stored(7, 0);
    body.push(half.clone());
    assert_eq!(tail_bytes(&body), NEAR_BYTES / 2, "what came last");
    let mut late = InflightReader::new(body.clone(), None);
    assert_eq!(get(&mut late), None, "what is not kept is on its way into the store");
    for section in 0..2 {
        let key = section_key(&body.key, 7, section);
        let value = vec![1; SECTION_BYTES as usize];
        body.store.create(&key, GroupId::of("g"), &value).wait().unwrap();
    }
    body.stored(7, SECTION_BYTES);
    let mut read_bytes = 0;
    while read_bytes < SECTION_BYTES {
        let piece = get(&mut late).map_or(0, |piece| piece.unwrap());
        read_bytes += piece as u64;
    }
    assert_eq!(get(&mut late), Some(Ok(half.len())));
    read_bytes += half.len() as u64;
    assert_eq!(get(&mut late), None);
    body.push(half.clone());
    assert_eq!(tail_bytes(&body), NEAR_BYTES, "one is right behind it");
    body.stored(7, 2 * SECTION_BYTES);
    assert_eq!(tail_bytes(&body), 0, "it can be read");
    while read_bytes < 2 * SECTION_BYTES {
        let piece = get(&mut late).map_or(0, |piece| piece.unwrap());
        read_bytes += piece as u64;
    }
    assert_eq!(get(&mut late), None);
    body.end(Ok(None));
    assert_eq!(get(&mut late), Some(Ok(0)));
}

#[test]
fn for_who_waits_for_what_comes_later_nothing_else_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let some = Bytes::from(vec![1; 2 * NEAR_BYTES as usize]);
    let length = some.len() as u64;
    let body = body_of(directory.path(), 0, Some(4 * length));
    let mut ahead = InflightReader::new(body.clone(), None);
    ahead.seek(2 * length + 10..4 * length);
    body.stored(7, 0);
    assert_eq!(get(&mut ahead), None);
    for _ in 0..2 {
        body.push(some.clone());
        assert_eq!((tail_bytes(&body), get(&mut ahead)), (length, None));
    }
    body.push(some.clone());
    assert_eq!(get(&mut ahead), Some(Ok(some.len() - 10)));
}

#[test]
fn who_waits_for_what_is_not_kept_is_told_if_it_is_not_stored() {
    let directory = tempfile::tempdir().unwrap();
    let body = body(directory.path(), 0);
    let some = Bytes::from_static(&[1; 2000]);
    body.stored(7, 0);
    for _ in 0..2 {
        body.push(some.clone());
    }
    let mut late = InflightReader::new(body.clone(), None);
    assert_eq!(get(&mut late), None);
    body.give_up_storing(7, 0);
    assert_eq!(get(&mut late), Some(Err(BodyError::Store)));
}

#[test]
fn who_was_left_behind_goes_on_if_a_body_of_unknown_length_is_too_long_for_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let body = body(directory.path(), 0);
    let some = Bytes::from(vec![1; 2 * NEAR_BYTES as usize]);
    let length = some.len() as u64;
    let mut first = InflightReader::in_reserve(body.clone(), None);
    let mut late = InflightReader::new(body.clone(), None);
    body.stored(7, 0);
    for _ in 0..2 {
        body.push(some.clone());
    }
    assert_eq!(tail_bytes(&body), length, "the first gets it from the fill, the other later");
    body.leave_first_at(length);
    for _ in 0..2 {
        body.push(some.clone());
    }
    body.give_up_storing(7, 0);
    body.end(Ok(None));
    first.skip(length);
    for _ in 0..3 {
        assert_eq!(get(&mut first), Some(Ok(some.len())));
    }
    assert_eq!(get(&mut first), Some(Ok(0)));
    assert_eq!(get(&mut late), Some(Err(BodyError::Store)));
}

#[test]
fn what_comes_after_its_end_is_not_kept() {
    let directory = tempfile::tempdir().unwrap();
    let body = body(directory.path(), u64::MAX);
    body.push(Bytes::from_static(b"read along"));
    body.end(Err(BodyError::Broken));
    for _ in 0..100 {
        body.push(Bytes::from_static(b"for that one alone"));
    }
    let state = body.state();
    assert_eq!((state.tail.len(), state.shown_bytes), (1, 10));
}
