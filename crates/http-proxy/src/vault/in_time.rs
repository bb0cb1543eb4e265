//! The limit on a wait for the store: a disk that hangs says nothing, not even that it has failed.
//!
//! The store knows of a volume that answers nothing for a while, and refuses reads of it at once;
//! that is the same here. Invariant: no answer waits longer than [`READ_WAIT_MAX`] for one read of
//! the store, after which the origin is asked. What is in memory costs no timer. Threads: the
//! caller's.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use damelo::{MetadataError, ReadError};
use tokio::time::{Duration, sleep};

use crate::rules::NotStoredReason;

/// Longest wait for a read of the store: longer than a busy disk lets wait, and as long as an
/// origin may by default take to be reached.
const READ_WAIT_MAX: Duration = Duration::from_secs(5);

/// The store did not answer in time: whether it has what was looked for is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Late;

impl From<Late> for NotStoredReason {
    fn from(_: Late) -> NotStoredReason {
        NotStoredReason::Store
    }
}

/// What a read of the store gives, or new metadata, which it reads for.
pub(super) trait Outcome {
    /// Whether the store was not asked, as the disk hangs.
    fn is_unanswered(&self) -> bool;
}

impl<T> Outcome for Result<T, ReadError> {
    fn is_unanswered(&self) -> bool {
        matches!(self, Err(ReadError::Unanswered { .. }))
    }
}

impl<T> Outcome for Result<T, MetadataError> {
    fn is_unanswered(&self) -> bool {
        matches!(self, Err(MetadataError::Unanswered { .. }))
    }
}

/// Waits for a read of the store, which must be harmless to drop.
pub(super) async fn in_time<T: Outcome>(reading: impl Future<Output = T>) -> Result<T, Late> {
    let (mut reading, mut limit) = (pin!(reading), None);
    poll_fn(|cx| {
        if let Poll::Ready(read) = reading.as_mut().poll(cx) {
            return Poll::Ready(if read.is_unanswered() { Err(Late) } else { Ok(read) });
        }
        // Boxed, since the future of a hit reserves the room.
        let limit = limit.get_or_insert_with(|| Box::pin(sleep(READ_WAIT_MAX)));
        limit.as_mut().poll(cx).map(|()| Err(Late))
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::mem;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use damelo::device::{Device, Io, IoOp};
    use damelo::{ByteSize, Config, GroupId, Store};
    use damelo_store_sim::{SimClock, SimDisk, SimOptions, SimWorld};
    use http::{HeaderMap, StatusCode, Version};
    use tokio::time::Instant;

    use super::*;
    use crate::metrics::Counters;
    use crate::rules::group::Groups;
    use crate::rules::{ForwardReason, Policy};
    use crate::tapped::{Tap, Tapped};
    use crate::vault::entry::StoredResponse;
    use crate::vault::tests::vault_on;
    use crate::vault::{Lookup, Target, Vault};

    const SIZE: u64 = 64 << 20;

    /// Whether the reads of a disk never end.
    struct Hangs(Arc<AtomicBool>);

    impl Tap for Hangs {
        fn submit(&self, disk: &dyn Device, io: Io) {
            match io.op == IoOp::Read && self.0.load(Ordering::SeqCst) {
                true => mem::forget(io),
                false => disk.submit(io),
            }
        }
    }

    fn target(path: &str) -> Target {
        Target {
            primary: format!("http://a{path}").into_bytes(),
            scheme: "http",
            host: "a".to_owned(),
            client_host: "a".to_owned(),
            path_and_query: path.parse().unwrap(),
        }
    }

    /// Stores a response of so many bytes, a member of another group than its own.
    async fn put(vault: &Vault, target: &Target, headers: &HeaderMap, bytes: usize) {
        let groups = Groups { home: b"h".to_vec(), others: vec![b"o".to_vec()] };
        let stored = StoredResponse::new(
            StatusCode::OK,
            Version::HTTP_11,
            Policy::default(),
            headers.clone(),
        );
        let epoch = vault.epoch(&target.primary);
        let request = HeaderMap::new();
        let length = Some(bytes as u64);
        let begun = vault.begin(target, epoch, &request, stored, length, &groups).await;
        let mut insertion = begun.unwrap();
        let body = vec![7; bytes].into();
        vault.write(&mut insertion, &body, Duration::from_secs(9)).await.unwrap();
        vault.commit(&target.primary, insertion).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_makes_misses() {
        let options = SimOptions { history: false, ..SimOptions::new(1) };
        let clock = Arc::new(SimClock::new());
        let world = SimWorld::start(&[SimDisk::blank(SIZE)], &options, Arc::clone(&clock));
        let hangs = Arc::new(AtomicBool::new(false));
        let hanging =
            |disk| Arc::new(Tapped { disk, tap: Hangs(hangs.clone()) }) as Arc<dyn Device>;
        let disks = world.devices().into_iter().map(hanging).collect();
        let mut config = Config::new("sim", ByteSize::new(SIZE));
        config.memory = ByteSize::new(8 << 20);
        let store = Store::open_on(config, disks, world.clock()).unwrap();
        let vault = vault_on(store.clone());
        let (none, vary) =
            (HeaderMap::new(), HeaderMap::from_iter([(http::header::VARY, "a".parse().unwrap())]));
        let (small, large, varied) = (target("/small"), target("/large"), target("/varied"));
        put(&vault, &small, &none, 1 << 10).await;
        put(&vault, &large, &none, 600 << 10).await;
        put(&vault, &varied, &vary, 1 << 10).await;
        let counters = Counters::default();
        let find = async |target: &Target| {
            vault.lookup(&target.primary, &HeaderMap::new(), true, &counters).await
        };
        assert!(matches!(find(&small).await, Lookup::Found(_)));
        let Lookup::Found(found) = find(&large).await else { panic!("it is there") };
        store.sync().unwrap();
        store.drop_memory();

        hangs.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        let Lookup::Missed { reason, .. } = find(&small).await else { panic!("it hangs") };
        assert_eq!((reason, begun.elapsed()), (ForwardReason::UriMiss, READ_WAIT_MAX));
        assert_eq!(counters.store_errors.get(), 1);
        let crate::vault::FoundBody::Large(mut body) = found.body else { panic!("it is large") };
        assert!(body.read_first(0..9).await.is_err());
        assert!(vault.variants(&varied.primary, b"", 9).await.is_empty());
        assert!(vault.lying(&small.primary).await.is_err());
        // What it has is unknown, and must not be replaced as if it were nothing.
        let is_unknown = async || {
            let joined = vault.join_group(GroupId::of(b"o")).await;
            assert_eq!(joined.unwrap_err(), NotStoredReason::Store);
            let placed = vault.place_default(&varied.primary, 0, &none, GroupId::of("h")).await;
            assert_eq!(placed.unwrap_err(), NotStoredReason::Store);
            assert!(vault.holds_whole(&small.primary).await);
        };
        is_unknown().await;

        // By now the store knows, and nobody waits.
        clock.advance(READ_WAIT_MAX);
        let (begun, errors) = (Instant::now(), counters.store_errors.get());
        assert!(matches!(find(&small).await, Lookup::Missed { .. }));
        assert!(matches!(find(&large).await, Lookup::Missed { .. }));
        assert!(body.read_first(0..9).await.is_err());
        assert!(vault.variants(&varied.primary, &varied.primary, 9).await.is_empty());
        is_unknown().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(counters.store_errors.get(), errors + 2);
        assert_eq!(store.stats().volumes_unanswering, 1);
    }
}
