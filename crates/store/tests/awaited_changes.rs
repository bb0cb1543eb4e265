//! Removes, purges and syncs that are awaited: they block no thread of the caller's, and one that
//! is dropped takes effect before that, or never.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod troubled;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use damelo::{ByteSize, Config, Durability, GroupId, PurgeError, Store, SyncError};
use troubled::{Disk, Stopped, get, put};

const GROUP: u64 = 7;

fn open(disk: &Disk, durability: Durability) -> Store {
    let mut config = Config::new("disk", ByteSize::new(24 << 20));
    config.memory = ByteSize::new(4 << 20);
    config.durability = durability;
    config.checkpoint_period = Duration::ZERO;
    config.flush_period = Duration::ZERO;
    config.seed = Some(1);
    let store = Store::open_on(config, vec![disk.device()], Arc::new(Stopped)).unwrap();
    store.wait_recovered();
    store
}

fn poll<F: Future + Unpin>(operation: &mut F) -> Poll<F::Output> {
    Pin::new(operation).poll(&mut Context::from_waker(Waker::noop()))
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(operation: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut operation = pin!(operation);
    loop {
        match operation.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn what_waits_for_no_disk_is_done_when_the_call_returns() {
    let store = open(&Disk::new(24 << 20), Durability::Flushed);
    put(&store, "a", GROUP, b"value");
    put(&store, "b", GROUP, b"value");
    let removal = store.awaited().remove(b"a");
    assert!(removal.is_ready() && get(&store, "a").is_none());
    assert!(block_on(removal).unwrap());
    assert!(!store.awaited().remove(b"a").wait().unwrap(), "it is gone");
    let purge = store.awaited().purge_prefix(b"b");
    assert!(purge.is_ready() && get(&store, "b").is_none());
    block_on(purge).unwrap();
    put(&store, "b", GROUP, b"value");
    block_on(store.awaited().purge_group(GroupId::new(GROUP))).unwrap();
    assert!(get(&store, "b").is_none());
    put(&store, "b", GROUP, b"value");
    block_on(store.awaited().purge_all()).unwrap();
    assert!(get(&store, "b").is_none());
    let refused = block_on(store.awaited().purge_prefix(b""));
    assert!(matches!(refused, Err(PurgeError::PrefixLength { length: 0, .. })), "{refused:?}");
}

#[test]
fn what_waits_for_the_disk_is_pending_until_then() {
    let disk = Disk::new(24 << 20);
    let store = open(&disk, Durability::Flushed);
    put(&store, "a", GROUP, b"value");
    let held = disk.hold_next_sync();
    let mut sync = store.awaited().sync();
    assert!(poll(&mut sync).is_pending());
    held.wait();
    block_on(sync).unwrap();
    assert_eq!(store.stats().nursery_bytes, 0, "it is written");
    let before = store.stats().checkpoints;
    block_on(store.awaited().checkpoint()).unwrap();
    assert_eq!(store.stats().checkpoints, before + 1);
    block_on(store.awaited().sync_removes()).unwrap();
}

#[test]
fn what_is_dropped_before_it_began_does_nothing_and_what_is_awaited_does() {
    let store = open(&Disk::new(24 << 20), Durability::Synced);
    put(&store, "a", GROUP, b"value");
    let changes = |store: &Store| {
        let awaited = store.awaited();
        let (removal, purge) = (awaited.remove(b"a"), awaited.purge_group(GroupId::new(GROUP)));
        assert!(!removal.is_ready() && !purge.is_ready(), "they wait for a sync");
        (removal, purge)
    };
    drop(changes(&store));
    assert_eq!(get(&store, "a").as_deref(), Some(&b"value"[..]));
    let (removal, purge) = changes(&store);
    assert!(block_on(removal).unwrap() && get(&store, "a").is_none());
    put(&store, "b", GROUP, b"value");
    block_on(purge).unwrap();
    assert!(get(&store, "b").is_none());
}

#[test]
fn what_is_dropped_while_it_is_done_spares_what_comes_later() {
    let store = open(&Disk::new(24 << 20), Durability::Synced);
    for round in 0..200 {
        let key = format!("key {round}");
        put(&store, &key, GROUP, b"old");
        let mut removal = store.awaited().remove(key.as_bytes());
        let mut purge = store.awaited().purge_prefix(key.as_bytes());
        let _either_way = (poll(&mut removal), poll(&mut purge));
        drop((removal, purge));
        put(&store, &key, GROUP, b"new");
        assert_eq!(get(&store, &key).as_deref(), Some(&b"new"[..]));
    }
    block_on(store.awaited().sync()).unwrap();
    for round in 0..200 {
        assert_eq!(get(&store, &format!("key {round}")).as_deref(), Some(&b"new"[..]), "{round}");
    }
}

#[test]
fn a_closed_store_says_so() {
    let store = open(&Disk::new(24 << 20), Durability::Synced);
    store.clone().close().unwrap();
    let awaited = store.awaited();
    assert!(matches!(block_on(awaited.remove(b"a")), Err(PurgeError::Closed)));
    assert!(matches!(block_on(awaited.purge_all()), Err(PurgeError::Closed)));
    assert!(matches!(block_on(awaited.sync()), Err(SyncError::Closed)));
    assert!(matches!(block_on(awaited.checkpoint()), Err(SyncError::Closed)));
}
