//! Objects that wait for others of their group hold little more memory than they fill, however few
//! of those that came with them still wait.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::sync::Arc;

use damelo::{ByteSize, Config, GroupId, Store, SystemClock};

mod in_memory;

use in_memory::{Memory, State};

const DEVICE_BYTES: usize = 256 << 20;

fn opened() -> Store {
    let mut config = Config::new("waiting", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(32 << 20);
    config.seed = Some(1);
    let disk = State::new(DEVICE_BYTES, false);
    let store =
        Store::open_on(config, vec![Memory::device(&disk)], Arc::new(SystemClock::new())).unwrap();
    store.wait_recovered();
    store
}

fn value(number: u32, bytes: usize) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

fn create(store: &Store, number: u32, group: u32, bytes: usize) {
    let (key, group) = (format!("object {number}"), GroupId::new(u64::from(group)));
    store.create(key.as_bytes(), group, &value(number, bytes)).wait().unwrap();
}

/// One object in eight is of a group of its own, the others fill pages of one group at once.
#[test]
fn those_that_came_first_are_moved_together() {
    const BYTES: usize = 1_000;
    let store = opened();
    let mut shares = Vec::new();
    for number in 0..60_000 {
        let group = if number % 8 == 0 { number } else { 1 };
        create(&store, number, group, BYTES);
        let stats = store.stats();
        if number % 100 == 0 && stats.evicted_memory > 0 {
            let shown = stats.resident_objects as f64 * BYTES as f64;
            shares.push(shown / stats.memory_used_bytes as f64);
        }
    }
    shares.sort_by(f64::total_cmp);
    // A record takes 100 bytes more than its value.
    assert!(shares[shares.len() / 2] > 0.8, "{}", shares[shares.len() / 2]);
    assert!(store.stats().nursery_moved_bytes > 0);
    store.sync().unwrap();
    while store.stats().resident_objects > 0 {
        store.drop_memory();
    }
    for number in (0..60_000).step_by(7) {
        let found = store.read(format!("object {number}").as_bytes()).wait().unwrap().unwrap();
        assert!(found[..] == value(number, BYTES), "object {number}");
    }
}

/// While they are moved they are read, replaced and removed.
#[test]
fn what_is_moved_is_the_newest() {
    let store = opened();
    let mut newest = vec![None; 3_000];
    let mut rng = fastrand::Rng::with_seed(3);
    let readers: Vec<_> = (0..200)
        .filter_map(|number| {
            create(&store, number, number, 900);
            newest[number as usize] = Some(number);
            store.read(format!("object {number}").as_bytes()).wait().unwrap()
        })
        .collect();
    for round in 0..40_000_u32 {
        let number = rng.u32(0..3_000);
        let key = format!("object {number}");
        match rng.u32(0..10) {
            0 => {
                store.remove(key.as_bytes()).unwrap();
                newest[number as usize] = None;
            }
            1..6 => {
                let group = GroupId::new(u64::from(number));
                let value = value(round, 900);
                store.create(key.as_bytes(), group, &value).wait().unwrap();
                newest[number as usize] = Some(round);
            }
            _ => {
                let found = store.read(key.as_bytes()).wait().unwrap();
                let found = found.as_ref().map(|object| object[..].to_vec());
                let wanted = newest[number as usize].map(|round| value(round, 900));
                assert!(found == wanted, "{key}");
            }
        }
        // Fills pages at once, so that the others' runs are left.
        if round % 2 == 0 {
            create(&store, 1_000_000 + round, 1_000_000, 3_000);
        }
    }
    assert!(store.stats().nursery_moved_bytes > 0);
    for (number, object) in readers.iter().enumerate() {
        assert!(object[..] == value(number as u32, 900), "what a reader holds stays as it is");
    }
}
