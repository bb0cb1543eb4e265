//! Tests that a snapshot with its delta is what the marks were, whatever was purged, and that other
//! bytes are refused.

use super::super::marks::{Standing, Subject};
use super::super::stamp::Stamp;
use super::*;

fn scope(random: &mut fastrand::Rng) -> Scope {
    let host = random.u8(..9);
    match random.u8(..40) {
        0 => Scope::All,
        1..=12 => Scope::Url(random.u64(..)),
        13..=24 => Scope::Tag(TagId(random.u64(..))),
        25..=34 => Scope::Group(random.u64(..)),
        35 => Scope::Prefix(format!("http://h{host}/").into_bytes()),
        _ => Scope::Prefix(format!("http://h{host}/{}", random.u16(..)).into_bytes()),
    }
}

fn purge(known: &mut Known, random: &mut fastrand::Rng) {
    let kind = if random.bool() { PurgeKind::Soft } else { PurgeKind::Hard };
    known.set(scope(random), kind, random.u64(..));
}

fn some(purges: usize) -> Known {
    let mut known = Known::new(Marks::new(7));
    let mut random = fastrand::Rng::with_seed(purges as u64);
    (0..purges).for_each(|_| purge(&mut known, &mut random));
    known
}

/// Long enough for marks to become coarser between snapshot and delta, which has to go the same way
/// when the purges are made again.
#[test]
fn a_snapshot_and_its_delta_are_the_marks() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut known = Known::new(Marks::new(7).after_restart());
        let mut snapshot = Snapshot::encode(1, &known.marks, 0);
        // No purge of everything in the odd ones, else nothing ever becomes coarser.
        let everything = seed % 2 == 0;
        for step in 0..9_000 {
            let scope = scope(&mut random);
            if scope != Scope::All || everything {
                known.set(scope, PurgeKind::Hard, step);
            }
            if random.u16(..600) == 0 {
                let reach = known.changes.reach();
                snapshot = Snapshot::encode(2, &known.marks, random.usize(..900));
                // What comes while a snapshot is written is not forgotten.
                (0..random.u8(..3)).for_each(|_| purge(&mut known, &mut random));
                known.changes.forget_up_to(reach);
            }
            if random.u16(..300) == 0 {
                let snapshot = Snapshot::decode(&snapshot).unwrap();
                let number = snapshot.number.unwrap();
                let delta = Delta::encode(number, &known.changes, random.usize(..900));
                let delta = Delta::decode(&delta).unwrap();
                assert_eq!(delta.changes, known.changes);
                assert!(snapshot.continued(&delta).unwrap() == known.marks, "seed {seed} {step}");
            }
        }
    }
}

#[test]
fn only_what_belongs_together_is_put_together() {
    let snapshot = Snapshot { number: Some(3), marks: some(5).marks };
    let after = |snapshot, generation| Delta { snapshot, changes: Changes::after(generation) };
    assert_eq!(snapshot.continued(&after(3, 5)), Some(snapshot.marks.clone()));
    assert_eq!(snapshot.continued(&after(4, 5)), None, "of another snapshot");
    assert_eq!(snapshot.continued(&after(3, 4)), None, "of another generation");
    let unnamed = Snapshot { number: None, ..snapshot };
    assert_eq!(unnamed.continued(&after(3, 5)), None);
}

#[test]
fn more_than_a_delta_holds_is_forgotten_at_once() {
    let mut known = Known::new(Marks::new(7));
    let reach = known.changes.reach();
    let prefix = |n: u32| [format!("http://h/{n}").into_bytes(), vec![b'x'; 4000]].concat();
    for n in 0..1000 {
        known.set(Scope::Prefix(prefix(n)), PurgeKind::Hard, 0);
        assert!(known.changes.bytes.len() <= CHANGES_BYTES_MAX);
        let reached = known.changes.since + u64::from(known.changes.count);
        assert_eq!(reached, known.marks.now().generation);
    }
    // A snapshot that was begun before knows nothing of what was forgotten since.
    let since = known.changes.since();
    assert!(since > 0);
    known.changes.forget_up_to(reach);
    assert_eq!(known.changes.since(), since);
}

#[test]
fn what_was_purged_too_often_to_be_noted_before_marks_were_found_is_everything() {
    let found = some(5).marks;
    let stamp = Stamp { moment: found.now(), tags: Vec::new() };
    let subject = Subject { stamp: &stamp, url: b"http://h/0/x", url_hash: 0, group: 0 };
    for (prefixes, wanted) in [(1, Standing::Untouched), (200, Standing::Gone)] {
        let mut known = Known::new(Marks::new(1));
        for n in 0..prefixes {
            let prefix = format!("http://g/{n}{}", "x".repeat(4000)).into_bytes();
            known.set(Scope::Prefix(prefix), PurgeKind::Hard, 0);
        }
        known.go_on_with(found.clone());
        assert_eq!(known.marks.now().ledger, found.now().ledger);
        assert_eq!(known.marks.judge(&subject), wanted);
    }
}

#[test]
fn golden_bytes() {
    let mut known = Known::new(Marks::new(9));
    known.set(Scope::Tag(TagId(0x0102)), PurgeKind::Hard, 4);
    known.set(Scope::Prefix(b"http://h/".to_vec()), PurgeKind::Soft, 5);
    let mut wanted = vec![1, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];
    wanted.extend([2, 2, 1, 0, 0, 0, 0, 0, 0]);
    wanted.extend([0x84, 9, 0]);
    wanted.extend(b"http://h/\x05\0\0\0\0\0\0\0\0\0");
    assert_eq!(Delta::encode(6, &known.changes, wanted.len()), wanted);
    let marks = known.marks.encode();
    let snapshot = Snapshot::encode(6, &known.marks, 0);
    assert_eq!(snapshot[..9], [2, 6, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(snapshot[9..13], (marks.len() as u32).to_le_bytes());
    // Two runs over the same table give its entries in the same order.
    assert_eq!(snapshot[13..], marks);
}

#[test]
fn marks_alone_are_a_snapshot_of_an_older_version() {
    let marks = some(40).marks;
    let wanted = Snapshot { number: None, marks: marks.clone() };
    assert_eq!(Snapshot::decode(&marks.encode_as_before()), Some(wanted));
}

#[test]
fn damage_is_refused_and_never_panics() {
    let known = some(30);
    let snapshot = Snapshot::encode(5, &known.marks, 0);
    let delta = Delta::encode(5, &known.changes, 0);
    for end in 0..snapshot.len() {
        assert_eq!(Snapshot::decode(&snapshot[..end]), None);
    }
    for end in 0..delta.len() {
        assert_eq!(Delta::decode(&delta[..end]), None);
    }
    assert_eq!(Snapshot::decode(&[&snapshot[..], &[0, 1]].concat()), None, "padding is zeros");
    assert_eq!(Delta::decode(&[&delta[..], &[0, 1]].concat()), None, "padding is zeros");
    for seed in 0..5000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut damaged = [snapshot.clone(), delta.clone()];
        for bytes in &mut damaged {
            for _ in 0..random.usize(..3) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
        }
        let [snapshot, delta] = damaged;
        if let (Some(snapshot), Some(delta)) = (Snapshot::decode(&snapshot), Delta::decode(&delta))
        {
            let _ = snapshot.continued(&delta);
        }
    }
}
