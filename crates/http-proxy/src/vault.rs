//! HTTP resources in the store: which keys they lie under, and how they get in, change and go.
//!
//! A resource without `Vary` is one object under its primary key, `scheme://host/path?query`. With
//! `Vary` the primary key holds a marker that lists the header names, and the variants lie under
//! primary key, 0x00, the marker's generation, and the values the request has for those headers.
//! An invalidation removes the primary key only: variants of a removed marker are unreachable,
//! because the next marker has another generation. A body larger than `whole_body_bytes_max` lies
//! under a key of its own (that of its response, 0x01, a generation) and is streamed; all others lie
//! beside their metadata, so that a hit is one read and a lookup never drags a large body in.
//!
//! Invariants: a fill that began before an invalidation of its resource leaves nothing behind; new
//! metadata is written only beside the body that it was made from. Threads: shared by all workers;
//! changes to one resource are ordered by a lock chosen by its primary key.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use damelo::{CreateOptions, GroupId, Reader, Store, Writer, WriterOptions};
use http::HeaderMap;
use http::header::HeaderName;
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard};

use crate::entry::{Apart, Entry, StoredResponse, VaryMarker};
use crate::metrics::Counters;
use crate::purge::ledger::Ledger;
use crate::purge::marks::{Standing, Subject};
use crate::purge::stamp::{self, Moment, Stamp};
use crate::purge::{url_hash, url_of_key};
use crate::rules::cache_status::Forward;
use crate::rules::storing::NotStoredReason;
use crate::rules::vary::{self, Vary};

/// Longest primary key; requests with longer targets go past the cache.
pub(crate) const PRIMARY_KEY_BYTES_MAX: usize = 16 << 10;
/// Longest values of varying headers in a key; requests with more are not cached.
const SECONDARY_KEY_BYTES_MAX: usize = 8 << 10;
/// Variants of one resource; the oldest is dropped for another.
const VARIANTS_MAX: usize = 32;
/// Locks and epochs; two resources that share one only wait for or disturb each other.
const STRIPES: usize = 1024;

/// What a resource is called.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Key of the resource.
    pub(crate) primary: Vec<u8>,
    /// Host of the key.
    pub(crate) host: String,
    /// Host the client asked, for comparison with `Referer`.
    pub(crate) client_host: String,
    pub(crate) path_and_query: String,
}

/// A stored response and its body.
pub(crate) struct Found {
    /// Where it lies.
    pub(crate) key: Vec<u8>,
    /// Its metadata as it was read.
    pub(crate) blob: Bytes,
    pub(crate) response: StoredResponse,
    pub(crate) body: FoundBody,
    pub(crate) lies: Lies,
}

/// A stored body.
pub(crate) enum FoundBody {
    Whole(Bytes),
    Large(Box<Reader>),
    /// Not asked for; its length.
    Length(u64),
}

impl FoundBody {
    pub(crate) fn length_bytes(&self) -> u64 {
        match self {
            FoundBody::Whole(bytes) => bytes.len() as u64,
            FoundBody::Large(reader) => reader.info().length_bytes,
            FoundBody::Length(length) => *length,
        }
    }
}

/// Where a stored response lies, and what purges know it by.
#[derive(Debug, Clone)]
pub(crate) struct Lies {
    pub(crate) group: GroupId,
    pub(crate) in_memory: bool,
    pub(crate) stamp: Stamp,
}

/// What lies under a key.
struct Probed {
    blob: Bytes,
    entry: Entry,
    body: FoundBody,
    lies: Lies,
}

/// An entry and its stamp.
pub(crate) fn decode(blob: &Bytes) -> Option<(Entry, Stamp)> {
    let (length, stamp) = Stamp::split(blob)?;
    Some((Entry::decode(&blob.slice(..length))?, stamp))
}

/// New metadata of a response fetched since `epoch`, with its stamp.
fn stamped(metadata: &[u8], epoch: Epoch) -> Option<Vec<u8>> {
    let Entry::Response(response) = Entry::decode(&Bytes::copy_from_slice(metadata))? else {
        return None;
    };
    let tags = stamp::tags_of(&response.headers)?;
    let mut metadata = metadata.to_vec();
    Stamp { moment: epoch.moment?, tags }.append(&mut metadata);
    Some(metadata)
}

/// Result of a lookup.
pub(crate) enum Looked {
    Found(Box<Found>),
    /// Nothing usable; the key that was missed and why.
    Missed {
        key: Vec<u8>,
        reason: Forward,
    },
    /// The request's varying headers are too long to be a key.
    Unkeyable,
}

/// State of a resource before a fetch; an invalidation since then shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch {
    stripe: usize,
    count: u64,
    /// Later purges cover what is fetched from now on; `None` before the purges are known.
    moment: Option<Moment>,
}

struct Stripe {
    lock: Mutex<()>,
    epoch: AtomicU64,
}

/// The store as HTTP sees it.
pub(crate) struct Vault {
    store: Store,
    ledger: Arc<Ledger>,
    whole_body_bytes_max: u64,
    stripes: Box<[Stripe]>,
    hasher: std::hash::RandomState,
}

/// A response on its way into the store.
pub(crate) struct Deposit {
    key: Vec<u8>,
    epoch: Epoch,
    group: GroupId,
    response: StoredResponse,
    stamp: Stamp,
    whole_body_bytes_max: u64,
    body: DepositBody,
}

/// The body of a deposit so far.
enum DepositBody {
    /// Few bytes yet: it may turn out small.
    Small { chunks: Vec<Bytes>, length_bytes: u64 },
    /// Being written under a key of its own.
    Large { writer: Box<Writer>, apart: Apart },
}

impl Vault {
    pub(crate) fn new(store: Store, ledger: Arc<Ledger>, whole_body_bytes_max: u64) -> Vault {
        let stripe = |_| Stripe { lock: Mutex::new(()), epoch: AtomicU64::new(0) };
        Vault {
            store,
            ledger,
            whole_body_bytes_max,
            stripes: (0..STRIPES).map(stripe).collect(),
            hasher: std::hash::RandomState::new(),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn stripe_of(&self, primary: &[u8]) -> usize {
        self.hasher.hash_one(primary) as usize % STRIPES
    }

    async fn lock(&self, primary: &[u8]) -> MutexGuard<'_, ()> {
        self.stripes[self.stripe_of(primary)].lock.lock().await
    }

    /// Remembers the moment before a fetch.
    pub(crate) fn epoch(&self, primary: &[u8]) -> Epoch {
        let stripe = self.stripe_of(primary);
        let count = self.stripes[stripe].epoch.load(Ordering::SeqCst);
        Epoch { stripe, count, moment: self.ledger.now() }
    }

    fn is_current(&self, epoch: Epoch) -> bool {
        self.stripes[epoch.stripe].epoch.load(Ordering::SeqCst) == epoch.count
    }

    /// False: certainly nothing is stored for this key. Costs no I/O.
    pub(crate) fn may_contain(&self, key: &[u8]) -> bool {
        self.store.may_contain(key)
    }

    /// Finds what is stored for a request. Failures of the store are misses.
    pub(crate) async fn look(
        &self,
        primary: &[u8],
        request: &HeaderMap,
        want_body: bool,
        counters: &Counters,
    ) -> Looked {
        let missed = |key: &[u8], reason| Looked::Missed { key: key.to_vec(), reason };
        match self.probe(primary, want_body, counters).await {
            None => missed(primary, Forward::UriMiss),
            Some(Probed { entry: Entry::Response(response), blob, body, lies }) => {
                let key = primary.to_vec();
                Looked::Found(Box::new(Found { key, blob, response, body, lies }))
            }
            Some(Probed { entry: Entry::Marker(marker), .. }) => {
                let Some(key) = variant_key(primary, &marker, request) else {
                    return Looked::Unkeyable;
                };
                match self.probe(&key, want_body, counters).await {
                    Some(Probed { entry: Entry::Response(response), blob, body, lies }) => {
                        Looked::Found(Box::new(Found { key, blob, response, body, lies }))
                    }
                    _ => missed(&key, Forward::VaryMiss),
                }
            }
        }
    }

    async fn probe(&self, key: &[u8], want_body: bool, counters: &Counters) -> Option<Probed> {
        let object = match self.store.read(key).await {
            Ok(object) => object?,
            Err(_) => {
                counters.store_errors.one();
                return None;
            }
        };
        let blob = Bytes::copy_from_slice(object.metadata());
        let Some((mut entry, stamp)) = decode(&blob) else {
            counters.damaged_entries.one();
            return None;
        };
        let lies = Lies { group: object.group(), in_memory: object.from_memory(), stamp };
        match self.standing(key, &lies) {
            Standing::Untouched => {}
            Standing::Stale { since_unix_s } => entry.end_freshness(since_unix_s),
            Standing::Gone => {
                counters.purged_misses.one();
                return None;
            }
        }
        let body = match &entry {
            Entry::Response(StoredResponse { apart: Some(apart), .. }) if want_body => {
                self.open_body(key, apart).await?
            }
            Entry::Response(StoredResponse { apart: Some(apart), .. }) => {
                FoundBody::Length(apart.length_bytes)
            }
            _ if want_body => FoundBody::Whole(object.into()),
            _ => FoundBody::Length(object.len() as u64),
        };
        Some(Probed { blob, entry, body, lies })
    }

    /// How an entry stands with the purges.
    fn standing(&self, key: &[u8], lies: &Lies) -> Standing {
        if self.ledger.is_clear(lies.stamp.moment) {
            return Standing::Untouched;
        }
        let (stamp, url) = (&lies.stamp, url_of_key(key));
        let group = lies.group.get();
        self.ledger.judge(&Subject { stamp, url, url_hash: url_hash(url), group })
    }

    /// A body that lies apart; a miss if the store has let it go.
    async fn open_body(&self, key: &[u8], apart: &Apart) -> Option<FoundBody> {
        let reader = self.store.reader(&body_key(key, apart.generation)).await.ok()??;
        let whole = reader.info().length_bytes == apart.length_bytes;
        whole.then(|| FoundBody::Large(Box::new(reader)))
    }

    /// Begins to store a response fetched since `epoch`.
    pub(crate) async fn begin(
        &self,
        target: &Target,
        epoch: Epoch,
        request: &HeaderMap,
        response: &StoredResponse,
        length_bytes: Option<u64>,
        group: GroupId,
    ) -> Result<Deposit, NotStoredReason> {
        // Found out now rather than after the body.
        response.encode().ok_or(NotStoredReason::HeadersTooLarge)?;
        let tags = stamp::tags_of(&response.headers).ok_or(NotStoredReason::HeadersTooLarge)?;
        let moment = epoch.moment.ok_or(NotStoredReason::Store)?;
        let stamp = Stamp { moment, tags };
        let key = match vary::of(&response.headers) {
            Vary::Nothing => target.primary.clone(),
            Vary::Star => return Err(NotStoredReason::VaryStar),
            Vary::Names(names) => {
                self.place_variant(&target.primary, names, request, group).await?
            }
        };
        let mut deposit = Deposit {
            key,
            epoch,
            group,
            response: response.clone(),
            stamp,
            whole_body_bytes_max: self.whole_body_bytes_max,
            body: DepositBody::Small { chunks: Vec::new(), length_bytes: 0 },
        };
        if length_bytes.is_some_and(|length| length > self.whole_body_bytes_max) {
            deposit.body = deposit.begin_large(&self.store, length_bytes)?;
        }
        Ok(deposit)
    }

    /// Adds bytes of the body, waiting at most `limit` for room.
    pub(crate) async fn write(
        &self,
        deposit: &mut Deposit,
        bytes: &Bytes,
        limit: Duration,
    ) -> Result<(), NotStoredReason> {
        if let DepositBody::Small { chunks, length_bytes } = &mut deposit.body {
            chunks.push(bytes.clone());
            *length_bytes += bytes.len() as u64;
            if *length_bytes <= deposit.whole_body_bytes_max {
                return Ok(());
            }
            let chunks = std::mem::take(chunks);
            deposit.body = deposit.begin_large(&self.store, None)?;
            for chunk in &chunks {
                deposit.write_large(chunk, limit).await?;
            }
            return Ok(());
        }
        deposit.write_large(bytes, limit).await
    }

    /// Makes the marker list this variant, and returns the variant's key.
    async fn place_variant(
        &self,
        primary: &[u8],
        names: Vec<HeaderName>,
        request: &HeaderMap,
        group: GroupId,
    ) -> Result<Vec<u8>, NotStoredReason> {
        let _ordered = self.lock(primary).await;
        let (marker, mut variants) = match self.read_marker(primary).await {
            // A marker that splits at least as finely serves this response too.
            Some((marker, variants)) if names.iter().all(|n| marker.names.contains(n)) => {
                (marker, variants)
            }
            other => (new_marker(names, other.map(|(marker, _)| marker)), Vec::new()),
        };
        let key = variant_key(primary, &marker, request).ok_or(NotStoredReason::HeadersTooLarge)?;
        if variants.contains(&key) {
            return Ok(key);
        }
        variants.push(key.clone());
        while variants.len() > VARIANTS_MAX {
            // The oldest goes; if the store cannot say so, it is merely not listed any more.
            let _ = self.store.remove(&variants.remove(0));
        }
        // The marker names no tags: it says nothing that a purge could be about.
        let moment = self.ledger.now().ok_or(NotStoredReason::Store)?;
        let mut metadata = marker.encode();
        Stamp { moment, tags: Vec::new() }.append(&mut metadata);
        let options = CreateOptions { metadata: &metadata, ..CreateOptions::default() };
        let value = encode_variants(&variants);
        self.store
            .create_with(primary, group, &value, options)
            .await
            .map_err(|_| NotStoredReason::Store)?;
        Ok(key)
    }

    async fn read_marker(&self, primary: &[u8]) -> Option<(VaryMarker, Vec<Vec<u8>>)> {
        let object = self.store.read(primary).await.ok()??;
        match decode(&Bytes::copy_from_slice(object.metadata()))?.0 {
            Entry::Marker(marker) => Some((marker, decode_variants(&object))),
            Entry::Response(_) => None,
        }
    }

    /// Replaces the metadata of a stored response, if it is still the one that was read. False: it
    /// is not, and nothing was changed.
    pub(crate) async fn update(
        &self,
        primary: &[u8],
        found: &Found,
        metadata: &[u8],
        epoch: Epoch,
    ) -> bool {
        let _ordered = self.lock(primary).await;
        if !self.is_current(epoch) {
            return false;
        }
        let Some(metadata) = stamped(metadata, epoch) else { return false };
        match self.store.lookup(&found.key).await {
            Ok(Some(info)) if info.metadata == found.blob => {}
            _ => return false,
        }
        matches!(self.store.set_metadata(&found.key, &metadata).await, Ok(true))
    }

    /// Finishes a deposit: from now on it is served.
    pub(crate) async fn commit(
        &self,
        primary: &[u8],
        deposit: Deposit,
    ) -> Result<(), NotStoredReason> {
        let _ordered = self.lock(primary).await;
        if !self.is_current(deposit.epoch) {
            return Err(NotStoredReason::Invalidated);
        }
        let (key, epoch) = (deposit.key.clone(), deposit.epoch);
        deposit.commit(&self.store).await?;
        if !self.is_current(epoch) {
            // Invalidated while it was committed: take it out again.
            self.forget(&key);
            return Err(NotStoredReason::Invalidated);
        }
        Ok(())
    }

    /// Keys of the variants of a resource.
    pub(crate) async fn variants_of(&self, primary: &[u8]) -> Vec<Vec<u8>> {
        self.read_marker(primary).await.map(|(_, variants)| variants).unwrap_or_default()
    }

    /// Forgets a resource for good, and says how many responses it had.
    pub(crate) async fn purge_url(&self, primary: &[u8]) -> Result<u64, damelo::PurgeError> {
        let variants = match self.read_marker(primary).await {
            Some((_, variants)) => {
                variants.iter().filter(|key| self.store.may_contain(key)).count() as u64
            }
            None => 1,
        };
        self.stripes[self.stripe_of(primary)].epoch.fetch_add(1, Ordering::SeqCst);
        let was_there = self.store.remove(primary)?;
        Ok(if was_there { variants } else { 0 })
    }

    /// Forgets one stored response.
    pub(crate) fn forget(&self, key: &[u8]) {
        // A store that cannot remove is closed or broken, and serves nothing either. A body that
        // lay apart is unreachable now, and goes when the ring comes round.
        let _ = self.store.remove(key);
    }

    /// Forgets a resource with all its variants, and whatever is being fetched for it now.
    pub(crate) fn invalidate(&self, primary: &[u8]) {
        self.stripes[self.stripe_of(primary)].epoch.fetch_add(1, Ordering::SeqCst);
        self.forget(primary);
    }
}

impl Deposit {
    fn begin_large(
        &self,
        store: &Store,
        length: Option<u64>,
    ) -> Result<DepositBody, NotStoredReason> {
        let apart = Apart { generation: fastrand::u64(..), length_bytes: 0 };
        let options = WriterOptions { metadata: Vec::new(), expires_unix_s: None, length };
        let writer = store
            .writer(&body_key(&self.key, apart.generation), self.group, options)
            .map_err(|_| NotStoredReason::Store)?;
        Ok(DepositBody::Large { writer: Box::new(writer), apart })
    }

    async fn write_large(&mut self, bytes: &[u8], limit: Duration) -> Result<(), NotStoredReason> {
        let DepositBody::Large { writer, apart } = &mut self.body else { return Ok(()) };
        apart.length_bytes += bytes.len() as u64;
        match tokio::time::timeout(limit, writer.write(bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(NotStoredReason::Store),
        }
    }

    /// The body first, where it lies apart: nothing refers to what is not there.
    async fn commit(mut self, store: &Store) -> Result<(), NotStoredReason> {
        let failed = |_| NotStoredReason::Store;
        let value = match self.body {
            DepositBody::Large { writer, apart } => {
                writer.commit().await.map_err(failed)?;
                self.response.apart = Some(apart);
                Bytes::new()
            }
            DepositBody::Small { chunks, .. } => joined(chunks),
        };
        let mut metadata = self.response.encode().ok_or(NotStoredReason::HeadersTooLarge)?;
        self.stamp.append(&mut metadata);
        let options = CreateOptions { metadata: &metadata, ..CreateOptions::default() };
        store.create_with(&self.key, self.group, &value, options).await.map_err(failed)
    }
}

/// The chunks as one; without copy if there is only one.
fn joined(mut chunks: Vec<Bytes>) -> Bytes {
    match chunks.len() {
        0 => Bytes::new(),
        1 => chunks.swap_remove(0),
        _ => chunks.concat().into(),
    }
}

fn body_key(key: &[u8], generation: u64) -> Vec<u8> {
    let mut body = Vec::with_capacity(key.len() + 9);
    body.extend_from_slice(key);
    body.push(1);
    body.put_u64(generation);
    body
}

/// A marker for these names and those of the one it replaces, with a generation never used before.
fn new_marker(mut names: Vec<HeaderName>, old: Option<VaryMarker>) -> VaryMarker {
    let known = old.map(|marker| marker.names).unwrap_or_default();
    if names.len() + known.len() <= vary::VARY_NAMES_MAX {
        names.extend(known);
        names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        names.dedup();
    }
    VaryMarker { generation: fastrand::u64(..), names }
}

fn variant_key(primary: &[u8], marker: &VaryMarker, request: &HeaderMap) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(primary.len() + 128);
    key.extend_from_slice(primary);
    key.push(0);
    key.put_u64(marker.generation);
    let start = key.len();
    vary::secondary_key(&marker.names, request, &mut key);
    (key.len() - start <= SECONDARY_KEY_BYTES_MAX).then_some(key)
}

fn encode_variants(variants: &[Vec<u8>]) -> Vec<u8> {
    let mut list = Vec::new();
    for key in variants {
        list.put_u32_le(u32::try_from(key.len()).unwrap_or(0));
        list.extend_from_slice(key);
    }
    list
}

/// Reads the list as far as it can be read.
fn decode_variants(mut list: &[u8]) -> Vec<Vec<u8>> {
    let mut variants = Vec::new();
    while let Some((length, rest)) = list.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((key, rest)) = rest.split_at_checked(length) else { break };
        variants.push(key.to_vec());
        list = rest;
    }
    variants
}
