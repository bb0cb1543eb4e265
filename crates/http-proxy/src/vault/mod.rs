//! HTTP resources in the store: which keys they lie under, and how they get in, change and go.
//!
//! A resource without `Vary` is one object under its primary key, `scheme://host/path?query`. With
//! `Vary` the primary key holds a marker that lists the header names, and the variants lie under
//! primary key, 0x00, the marker's generation, and the values the request has for those headers.
//! An invalidation removes the primary key only: variants of a removed marker are unreachable,
//! because the next marker has another generation. A body larger than `whole_body_bytes_max` lies
//! under keys of its own (`sections` has them) and is streamed; all others lie beside their metadata,
//! so that a hit is one read and a lookup never drags a large body in. Slices of a resource lie under
//! primary key, 0x03, their size, their number, and the generation of their sentinel.
//!
//! Invariants: a fill that began before an invalidation of its resource leaves nothing behind; new
//! metadata is written only beside the body that it was made from; a part never replaces a whole.
//! Threads: shared by all workers;
//! changes to one resource are ordered by a lock chosen by its primary key.

pub(crate) mod entry;
mod found;
mod groups;
mod hints;
pub(crate) mod inflight;
pub(crate) mod insertion;
mod invalidate;
mod part_reads;
mod recent_invalidations;
pub(crate) mod sections;
mod slices;
mod validity;
pub(crate) mod variants;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use damelo::{CreateError, GroupId, Store};
use http::HeaderMap;
use tokio::sync::{Mutex, MutexGuard};

use crate::config::ProxyConfig;
use crate::metrics::Counters;
use crate::purge::ledger::Ledger;
use crate::purge::marks::Standing;
use crate::purge::stamp::{self, Moment, Stamp};
use crate::rules::group::Groups;
use crate::rules::vary::{self, Vary};
use crate::rules::{CachingConfig, ForwardReason, NotStoredReason};
use crate::vault::entry::{Apart, Entry, StoredResponse, VaryMarker};
use crate::vault::hints::GroupHints;
use crate::vault::insertion::Insertion;
use crate::vault::sections::{Sections, WholeReads};
pub(crate) use found::{Found, FoundBody, NextPiece, Placement, RangeReader};
use recent_invalidations::RecentInvalidations;
pub(crate) use slices::{Stretch, slice_key};
pub(crate) use variants::Variant;
use variants::variant_key;

/// Longest primary key; requests with longer targets go past the cache.
pub(crate) const PRIMARY_KEY_BYTES_MAX: usize = 16 << 10;
/// Locks; two resources that share one only wait for each other.
const STRIPES: usize = 1024;

/// What a resource is called.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Key of the resource.
    pub(crate) primary: Vec<u8>,
    /// Scheme of the key.
    pub(crate) scheme: &'static str,
    /// Host of the key.
    pub(crate) host: String,
    /// Host the client asked, for comparison with `Referer`.
    pub(crate) client_host: String,
    pub(crate) path_and_query: String,
}

/// What lies under a key.
struct Probed {
    blob: Bytes,
    entry: Entry,
    body: FoundBody,
    placement: Placement,
}

impl Probed {
    /// What it is found under its own key as, or the marker that it is.
    fn into_found(self) -> Result<Found, VaryMarker> {
        let Probed { blob, entry, body, placement } = self;
        match entry {
            Entry::Response(response) => {
                Ok(Found { variant_key: None, blob, response, body, placement })
            }
            Entry::Marker(marker) => Err(marker),
        }
    }
}

/// An entry and its stamp.
pub(crate) fn decode(blob: &Bytes) -> Option<(Entry, Stamp)> {
    let (length, stamp) = Stamp::split(blob)?;
    Some((Entry::decode(&blob.slice(..length))?, stamp))
}

/// New metadata of a response fetched since `epoch`, with its stamp.
fn stamped(metadata: &[u8], epoch: Epoch) -> Result<Vec<u8>, NotStoredReason> {
    let Some(Entry::Response(response)) = Entry::decode(&Bytes::copy_from_slice(metadata)) else {
        return Err(NotStoredReason::HeadersTooLarge);
    };
    let mut metadata = metadata.to_vec();
    epoch.stamp(&response)?.append(&mut metadata);
    Ok(metadata)
}

/// Result of a lookup.
pub(crate) enum Lookup {
    Found(Box<Found>),
    /// Nothing usable; the key that was missed and why.
    Missed {
        key: Vec<u8>,
        reason: ForwardReason,
    },
    /// The request's varying headers are too long to be a key.
    Unkeyable,
}

/// State of a resource before a fetch; an invalidation since then shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// Hash of the primary key.
    resource: u64,
    /// Invalidations in its stripe so far.
    count: u64,
    /// Invalidations of groups: any of them may have meant what is being fetched.
    groups: u64,
    /// Later purges cover what is fetched from now on; `None` before the purges are known.
    moment: Option<Moment>,
}

impl Epoch {
    /// The stamp of a response fetched since. There is none if it has too many tags, or if the store
    /// has not told its purges yet, or takes none.
    fn stamp(self, response: &StoredResponse) -> Result<Stamp, NotStoredReason> {
        let moment = self.moment.ok_or(NotStoredReason::Store)?;
        let tags = stamp::tags_of(&response.headers).ok_or(NotStoredReason::HeadersTooLarge)?;
        Ok(Stamp { moment, tags })
    }
}

struct Stripe {
    lock: Mutex<()>,
    invalidated: RecentInvalidations,
}

/// The store as HTTP sees it.
pub(crate) struct Vault {
    pub(crate) store: Store,
    ledger: Arc<Ledger>,
    whole_body_bytes_max: u64,
    /// Half of the store: a body that takes more would push out all that is cached, and its own
    /// beginning.
    pub(crate) body_bytes_max: u64,
    /// Those of the running configuration.
    caching: ArcSwap<CachingConfig>,
    /// Which slices and sections are read whole.
    whole_reads: Arc<WholeReads>,
    stripes: Box<[Stripe]>,
    /// Invalidations of groups so far.
    pub(crate) group_epoch: AtomicU64,
    /// Which groups are loved and hated by how they are used.
    pub(crate) group_hints: GroupHints,
    hasher: std::hash::RandomState,
}

impl Vault {
    pub(crate) fn new(store: Store, ledger: Arc<Ledger>, config: &ProxyConfig) -> Vault {
        let stripe =
            |_| Stripe { lock: Mutex::new(()), invalidated: RecentInvalidations::default() };
        let whole_reads = Arc::new(WholeReads::new(store.stats().memory_bytes));
        let info = store.info();
        Vault {
            store,
            ledger,
            whole_body_bytes_max: config.whole_body_bytes_max,
            body_bytes_max: info.segments * info.segment_bytes / 2,
            caching: ArcSwap::from_pointee(config.caching.clone()),
            group_epoch: AtomicU64::new(0),
            group_hints: GroupHints::new(config.hints_by_use),
            whole_reads,
            stripes: (0..STRIPES).map(stripe).collect(),
            hasher: std::hash::RandomState::new(),
        }
    }

    /// Stores and finds by these rules from now on.
    pub(crate) fn set_caching(&self, caching: &CachingConfig) {
        self.caching.store(Arc::new(caching.clone()));
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn stripe_of(&self, resource: u64) -> &Stripe {
        &self.stripes[resource as usize % STRIPES]
    }

    pub(crate) async fn lock(&self, primary: &[u8]) -> MutexGuard<'_, ()> {
        self.stripe_of(self.hasher.hash_one(primary)).lock.lock().await
    }

    /// Remembers the moment before a fetch.
    pub(crate) fn epoch(&self, primary: &[u8]) -> Epoch {
        let resource = self.hasher.hash_one(primary);
        Epoch {
            resource,
            count: self.stripe_of(resource).invalidated.count(),
            groups: self.group_epoch.load(Ordering::SeqCst),
            moment: self.ledger.now(),
        }
    }

    /// False: the resource was, or may have been, invalidated since.
    pub(crate) fn is_current(&self, epoch: Epoch) -> bool {
        !self.stripe_of(epoch.resource).invalidated.has(epoch.resource, epoch.count)
            && self.group_epoch.load(Ordering::SeqCst) == epoch.groups
    }

    /// False: certainly nothing is stored for this key. Costs no I/O.
    pub(crate) fn may_contain(&self, key: &[u8]) -> bool {
        self.store.may_contain(key)
    }

    /// Finds what is stored for a request. Failures of the store are misses.
    pub(crate) async fn lookup(
        &self,
        primary: &[u8],
        request: &HeaderMap,
        want_body: bool,
        counters: &Counters,
    ) -> Lookup {
        let missed = |key: &[u8], reason| Lookup::Missed { key: key.to_vec(), reason };
        match self.probe(primary, want_body, counters).await {
            None => missed(primary, ForwardReason::UriMiss),
            // Stored before the configuration put headers or cookies into the key: nobody knows whose.
            Some(Probed { entry: Entry::Response(_), .. })
                if !self.caching.load().key.selects_nothing() =>
            {
                missed(primary, ForwardReason::UriMiss)
            }
            Some(probed) => match probed.into_found() {
                Ok(found) => Lookup::Found(Box::new(found)),
                Err(marker) => {
                    let Some(key) = variant_key(primary, &marker, request, &self.caching.load())
                    else {
                        return Lookup::Unkeyable;
                    };
                    let probed = self.probe(&key, want_body, counters).await;
                    match probed.and_then(|probed| probed.into_found().ok()) {
                        None => missed(&key, ForwardReason::VaryMiss),
                        Some(found) => {
                            Lookup::Found(Box::new(Found { variant_key: Some(key), ..found }))
                        }
                    }
                }
            },
        }
    }

    async fn probe(&self, key: &[u8], want_body: bool, counters: &Counters) -> Option<Probed> {
        self.probe_by(self.store.read(key), key, want_body, counters).await
    }

    /// As [`Vault::probe`], by a read of this key that was prepared.
    async fn probe_by(
        &self,
        read: damelo::Read,
        key: &[u8],
        want_body: bool,
        counters: &Counters,
    ) -> Option<Probed> {
        let object = match read.await {
            Ok(object) => object?,
            Err(_) => {
                counters.store_errors.one();
                return None;
            }
        };
        let blob = Bytes::copy_from_slice(object.metadata());
        let place = (object.group(), object.from_memory());
        let (entry, placement) = self.judge(key, &blob, place, counters).await?;
        let body = match &entry {
            Entry::Response(StoredResponse { apart: Some(apart), .. }) if want_body => {
                FoundBody::Large(Box::new(self.sections(key, apart)?))
            }
            Entry::Response(StoredResponse { apart: Some(apart), .. }) => {
                FoundBody::Length(apart.length_bytes)
            }
            _ if want_body => FoundBody::Whole(object.into()),
            _ => FoundBody::Length(object.len() as u64),
        };
        Some(Probed { blob, entry, body, placement })
    }

    /// A large body; `None` if the store has let go of any of it.
    fn sections(&self, key: &[u8], apart: &Apart) -> Option<Sections> {
        Sections::complete(&self.store, key, apart, &self.whole_reads)
    }

    /// Begins to store a response fetched since `epoch`.
    pub(crate) async fn begin(
        &self,
        target: &Target,
        epoch: Epoch,
        request: &HeaderMap,
        mut response: StoredResponse,
        length_bytes: Option<u64>,
        groups: &Groups,
    ) -> Result<Box<Insertion>, NotStoredReason> {
        let group = GroupId::of(&groups.home);
        response.groups = self.join_groups(&groups.others).await?;
        // Found out now rather than after the body.
        let encoded = response.encode().ok_or(NotStoredReason::HeadersTooLarge)?;
        let stamp = epoch.stamp(&response)?;
        let key = match vary::with_configured(&response.headers, &self.caching.load()) {
            Vary::Nothing => self.place_default(&target.primary, request, group).await?,
            Vary::Star => return Err(NotStoredReason::VaryStar),
            Vary::Names(names) => {
                self.place_variant(&target.primary, names, request, group).await?
            }
        };
        let mut insertion =
            Insertion::new(key, epoch, group, response, stamp, self.whole_body_bytes_max);
        insertion.encoded = Some(encoded);
        insertion.announce(&self.store, length_bytes)?;
        Ok(insertion)
    }

    /// Adds bytes of the body, waiting at most `limit` for room.
    pub(crate) async fn write(
        &self,
        insertion: &mut Insertion,
        bytes: &Bytes,
        limit: Duration,
    ) -> Result<(), NotStoredReason> {
        insertion.write(&self.store, bytes, limit).await
    }

    /// Replaces the metadata of a stored response, if it is still the one that was read; else
    /// nothing is changed, for the reason that comes back.
    pub(crate) async fn update(
        &self,
        primary: &[u8],
        key: &[u8],
        blob: &Bytes,
        metadata: &[u8],
        epoch: Epoch,
    ) -> Result<(), NotStoredReason> {
        let _ordered = self.lock(primary).await;
        if !self.is_current(epoch) {
            return Err(NotStoredReason::Invalidated);
        }
        let metadata = stamped(metadata, epoch)?;
        match self.store.lookup(key).await {
            Ok(Some(info)) if info.metadata == *blob => {}
            Ok(_) => return Err(NotStoredReason::Superseded),
            Err(_) => return Err(NotStoredReason::Store),
        }
        match self.store.set_metadata(key, &metadata).await {
            Ok(true) => Ok(()),
            // Removed or replaced since: the store lets that stand.
            Ok(false) | Err(CreateError::Superseded) => Err(NotStoredReason::Superseded),
            Err(_) => Err(NotStoredReason::Store),
        }
    }

    /// Finishes an insertion: from now on it is served.
    pub(crate) async fn commit(
        &self,
        primary: &[u8],
        insertion: Box<Insertion>,
    ) -> Result<(), NotStoredReason> {
        let _ordered = self.lock(primary).await;
        if !self.is_current(insertion.epoch) {
            return Err(NotStoredReason::Invalidated);
        }
        let (key, epoch) = (insertion.key.clone(), insertion.epoch);
        if insertion.response.part.is_some() && self.holds_whole(&key).await {
            return Err(NotStoredReason::Partial);
        }
        let is_whole = insertion.response.part.is_none();
        insertion.commit(&self.store).await?;
        if is_whole && self.has_slices(primary) {
            // They are older than what is stored now, and would outlive it.
            self.forget_slices(primary);
        }
        if !self.is_current(epoch) {
            // Invalidated while it was committed: take it out again.
            self.forget(&key);
            return Err(NotStoredReason::Invalidated);
        }
        Ok(())
    }

    /// Where a response just fetched since `epoch` lies.
    pub(crate) fn placement_now(
        &self,
        group: GroupId,
        epoch: Epoch,
        response: &StoredResponse,
    ) -> Option<Placement> {
        Some(Placement { group, in_memory: true, stamp: epoch.stamp(response).ok()? })
    }

    /// True if a whole response lies there that a part must not replace.
    async fn holds_whole(&self, key: &[u8]) -> bool {
        match self.standing_response(key).await {
            Some((_, StoredResponse { part: None, apart: Some(apart), .. })) => {
                self.sections(key, &apart).is_some()
            }
            Some((_, stored)) => stored.part.is_none(),
            None => false,
        }
    }

    /// The response stored under a key without its body, if no hard purge covers it.
    async fn standing_response(&self, key: &[u8]) -> Option<(Bytes, StoredResponse)> {
        let info = self.store.lookup(key).await.ok()??;
        let (mut entry, stamp) = decode(&info.metadata)?;
        let placement = Placement { group: info.group, in_memory: info.resident, stamp };
        match self.standing(key, &placement) {
            Standing::Untouched => {}
            Standing::Stale { since_unix_s } => entry.end_freshness(since_unix_s),
            Standing::Gone => return None,
        }
        match entry {
            Entry::Response(response) => Some((info.metadata, response)),
            Entry::Marker(_) => None,
        }
    }
}
