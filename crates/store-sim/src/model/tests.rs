//! Tests of the oracle: an oracle that accepts everything would find nothing.

use super::*;
use crate::content;

fn key() -> Key {
    Arc::from(&b"k"[..])
}

fn state(version: u64) -> ObjectState {
    ObjectState {
        version,
        length: 100,
        metadata_version: version,
        metadata_length: 4,
        group: GroupId::new(1),
        expires_unix_s: None,
    }
}

fn create(version: u64) -> Change {
    Change::Create { key: key(), state: state(version), contested: false }
}

/// Runs changes at ticks 10, 20, ...: begun at the tick, acknowledged one later.
fn model(durability: Durability, changes: Vec<Change>) -> Model {
    let mut model = Model::new(Demand::Strict, durability);
    for (i, change) in changes.into_iter().enumerate() {
        let begin = 10 * (i as u64 + 1);
        model.record(Event { begin, ack: begin + 1, change, outcome: Outcome::Done });
    }
    model
}

/// Which versions the model accepts; 0 stands for a miss.
fn accepted(model: &Model) -> Vec<u64> {
    let mut found = Vec::new();
    if model.clone().check_miss(b"k", 0, true).is_ok() {
        found.push(0);
    }
    for version in 1..5 {
        let (bytes, meta) =
            (content::value(b"k", version, 100), content::metadata(b"k", version, 4));
        let seen = Seen {
            bytes: Some((0, &bytes)),
            length: 100,
            metadata: Some(&meta),
            group: Some(GroupId::new(1)),
            expires_unix_s: Some(None),
        };
        if model.clone().check_hit(b"k", &seen, 0, true).is_ok() {
            found.push(version);
        }
    }
    found
}

#[test]
fn while_running_only_the_newest_value_is_right() {
    assert_eq!(accepted(&model(Durability::Flushed, vec![create(1)])), [1]);
    assert_eq!(accepted(&model(Durability::Flushed, vec![create(1), create(2)])), [2]);
    let removed = vec![create(1), Change::Remove { key: key() }];
    assert_eq!(accepted(&model(Durability::Flushed, removed)), [0]);
    let purged = vec![create(1), Change::PurgeGroup(GroupId::new(1))];
    assert_eq!(accepted(&model(Durability::Flushed, purged)), [0]);
    let other = vec![create(1), Change::PurgeGroup(GroupId::new(2))];
    assert_eq!(accepted(&model(Durability::Flushed, other)), [1]);
}

#[test]
fn crashes_leave_what_durability_promises() {
    use CrashKind::{Kill, Power};
    use Durability::{Flushed, None as Memory, Synced};
    let remove = || Change::Remove { key: key() };
    let cases: &[(Vec<Change>, Durability, CrashKind, &[u64])] = &[
        (vec![create(1)], Flushed, Kill, &[0, 1]),
        (vec![create(1), Change::Sync], Flushed, Power, &[1]),
        (vec![create(1), Change::Sync, create(2)], Flushed, Kill, &[0, 2]),
        (vec![create(1), Change::Sync, create(2)], Flushed, Power, &[0, 1, 2]),
        (vec![create(1), Change::Sync, create(2)], Synced, Power, &[0, 2]),
        (vec![create(1), Change::Sync, remove()], Flushed, Kill, &[0]),
        (vec![create(1), Change::Sync, remove()], Flushed, Power, &[0, 1]),
        (vec![create(1), Change::Sync, remove()], Synced, Power, &[0]),
        (vec![create(1), Change::Sync, remove()], Memory, Kill, &[0, 1]),
        (vec![create(1), Change::Sync, remove(), Change::Sync], Flushed, Power, &[0]),
        (vec![create(1), Change::Sync, Change::PurgeAll, create(2)], Synced, Power, &[0, 2]),
    ];
    for (i, (changes, durability, kind, expected)) in cases.iter().enumerate() {
        let after = model(*durability, changes.clone()).after_crash(1000, *kind);
        assert_eq!(accepted(&after), *expected, "case {i}");
    }
}

#[test]
fn an_operation_cut_short_may_or_may_not_have_happened() {
    let changes = vec![create(1), Change::Sync, Change::Remove { key: key() }];
    let model = model(Durability::Synced, changes);
    let at = |tick| accepted(&model.after_crash(tick, CrashKind::Power));
    assert_eq!(at(10), [0]);
    assert_eq!(at(11), [0, 1]);
    assert_eq!(at(21), [1]);
    assert_eq!(at(30), [1]);
    assert_eq!(at(31), [0]);
    // Begun at 30 and acknowledged at 31: no tick lies between, so stretch it.
    let mut slow = model.clone();
    slow.events[2].ack = 35;
    assert_eq!(accepted(&slow.after_crash(33, CrashKind::Power)), [0, 1]);
}

#[test]
fn what_was_purged_before_one_crash_stays_away_after_the_next() {
    let changes = vec![create(1), Change::Sync, Change::Remove { key: key() }];
    let first = model(Durability::Flushed, changes).after_crash(100, CrashKind::Kill);
    assert_eq!(accepted(&first.after_crash(0, CrashKind::Power)), [0]);
}

#[test]
fn older_metadata_may_be_found_while_loading_only_where_it_was_refreshed() {
    let renewed = |is_refreshed| {
        let change = Change::SetMetadata { key: key(), version: 2, length: 4, is_refreshed };
        model(Durability::Flushed, vec![create(1), Change::Sync, change, Change::Sync])
            .after_crash(100, CrashKind::Kill)
    };
    let (bytes, older) = (content::value(b"k", 1, 100), content::metadata(b"k", 1, 4));
    let seen = Seen {
        bytes: Some((0, &bytes)),
        length: 100,
        metadata: Some(&older),
        group: None,
        expires_unix_s: None,
    };
    assert!(renewed(true).check_hit(b"k", &seen, 0, false).is_ok());
    assert!(renewed(true).check_hit(b"k", &seen, 0, true).is_err());
    assert!(renewed(false).check_hit(b"k", &seen, 0, false).is_err());
}

#[test]
fn an_expired_value_is_wrong_and_its_absence_right() {
    let mut change = create(1);
    if let Change::Create { state, .. } = &mut change {
        state.expires_unix_s = Some(500);
    }
    let mut model = model(Durability::Flushed, vec![change]);
    assert!(model.check_miss(b"k", 499, true).is_err());
    let bytes = content::value(b"k", 1, 100);
    let seen = Seen {
        bytes: Some((0, &bytes)),
        length: 100,
        metadata: None,
        group: None,
        expires_unix_s: None,
    };
    assert!(model.check_hit(b"k", &seen, 499, true).is_ok());
    assert!(model.check_hit(b"k", &seen, 500, true).is_err());
    assert!(model.check_miss(b"k", 500, true).is_ok());
    assert!(model.check_miss(b"k", 400, true).is_ok(), "it may be gone for good");
}
