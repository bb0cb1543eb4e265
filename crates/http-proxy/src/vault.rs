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
//! A response lies in one group of the store, its home. For every further group that its origin
//! names, the group has a *sentinel*: a small object in that group with a random generation, which
//! the response remembers. Purging the group takes the sentinel, and with it every response that
//! remembers it, in constant time; a sentinel that the store lets go costs misses, never a lie.
//!
//! Invariants: a fill that began before an invalidation of its resource leaves nothing behind; new
//! metadata is written only beside the body that it was made from; a part never replaces a whole.
//! Threads: shared by all workers;
//! changes to one resource are ordered by a lock chosen by its primary key.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes};
use damelo::{CreateOptions, GroupId, Reader, Store, Writer, WriterOptions};
use http::header::HeaderName;
use http::{HeaderMap, StatusCode};
use tokio::sync::{Mutex, MutexGuard};

use crate::entry::{Apart, Entry, Membership, StoredResponse, VaryMarker};
use crate::metrics::Counters;
use crate::rules::group::Groups;
use crate::rules::parts::{self, Part};
use crate::rules::vary::{self, Vary};
use crate::rules::{Forward, NotStoredReason, Rules};

/// Longest primary key; requests with longer targets go past the cache.
pub(crate) const PRIMARY_KEY_BYTES_MAX: usize = 16 << 10;
/// Longest values of varying headers in a key; requests with more are not cached.
const SECONDARY_KEY_BYTES_MAX: usize = 8 << 10;
/// What keys of sentinels begin with: no key of a resource does.
const SENTINEL: &[u8] = b"\x02group";
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
}

/// A stored variant without its body.
pub(crate) struct Variant {
    pub(crate) key: Vec<u8>,
    /// Its metadata as it was read.
    pub(crate) blob: Bytes,
    pub(crate) response: StoredResponse,
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
    /// Invalidations of groups: any of them may have meant what is being fetched.
    groups: u64,
}

struct Stripe {
    lock: Mutex<()>,
    epoch: AtomicU64,
}

/// The store as HTTP sees it.
pub(crate) struct Vault {
    store: Store,
    whole_body_bytes_max: u64,
    rules: Rules,
    stripes: Box<[Stripe]>,
    group_epoch: AtomicU64,
    hasher: std::hash::RandomState,
}

/// A response on its way into the store.
pub(crate) struct Deposit {
    key: Vec<u8>,
    epoch: Epoch,
    group: GroupId,
    response: StoredResponse,
    whole_body_bytes_max: u64,
    /// A stored part that this one is to be joined with.
    older: Option<(Part, Bytes)>,
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
    pub(crate) fn new(store: Store, whole_body_bytes_max: u64, rules: Rules) -> Vault {
        let stripe = |_| Stripe { lock: Mutex::new(()), epoch: AtomicU64::new(0) };
        Vault {
            store,
            whole_body_bytes_max,
            rules,
            group_epoch: AtomicU64::new(0),
            stripes: (0..STRIPES).map(stripe).collect(),
            hasher: std::hash::RandomState::new(),
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
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
        Epoch { stripe, count, groups: self.group_epoch.load(Ordering::SeqCst) }
    }

    fn is_current(&self, epoch: Epoch) -> bool {
        self.stripes[epoch.stripe].epoch.load(Ordering::SeqCst) == epoch.count
            && self.group_epoch.load(Ordering::SeqCst) == epoch.groups
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
            Some((blob, Entry::Response(response), body)) => {
                let key = primary.to_vec();
                Looked::Found(Box::new(Found { key, blob, response, body }))
            }
            Some((_, Entry::Marker(marker), _)) => {
                let Some(key) = variant_key(primary, &marker, request, &self.rules) else {
                    return Looked::Unkeyable;
                };
                match self.probe(&key, want_body, counters).await {
                    Some((blob, Entry::Response(response), body)) => {
                        Looked::Found(Box::new(Found { key, blob, response, body }))
                    }
                    _ => missed(&key, Forward::VaryMiss),
                }
            }
        }
    }

    async fn probe(
        &self,
        key: &[u8],
        want_body: bool,
        counters: &Counters,
    ) -> Option<(Bytes, Entry, FoundBody)> {
        let object = match self.store.read(key).await {
            Ok(object) => object?,
            Err(_) => {
                counters.store_errors.one();
                return None;
            }
        };
        let blob = Bytes::copy_from_slice(object.metadata());
        let Some(entry) = Entry::decode(&blob) else {
            counters.damaged_entries.one();
            return None;
        };
        if let Entry::Response(response) = &entry
            && !self.all_groups_stand(&response.groups).await
        {
            return None;
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
        Some((blob, entry, body))
    }

    /// A body that lies apart; a miss if the store has let it go.
    async fn open_body(&self, key: &[u8], apart: &Apart) -> Option<FoundBody> {
        let reader = self.store.reader(&body_key(key, apart.generation)).await.ok()??;
        let whole = reader.info().length_bytes == apart.length_bytes;
        whole.then(|| FoundBody::Large(Box::new(reader)))
    }

    /// True if none of the groups has been purged since the response was stored.
    async fn all_groups_stand(&self, groups: &[Membership]) -> bool {
        for member in groups {
            if self.generation_of(member.group).await != Some(member.generation) {
                return false;
            }
        }
        true
    }

    async fn generation_of(&self, group: GroupId) -> Option<u64> {
        let object = self.store.read(&sentinel_key(group)).await.ok()??;
        Some(u64::from_le_bytes(object.get(..)?.try_into().ok()?))
    }

    /// Makes a response a member of these groups, by the sentinels that stand for them.
    async fn join_groups(&self, names: &[Vec<u8>]) -> Result<Vec<Membership>, NotStoredReason> {
        let mut joined = Vec::with_capacity(names.len());
        for name in names {
            let group = GroupId::of(name);
            let key = sentinel_key(group);
            let _ordered = self.lock(&key).await;
            let generation = match self.generation_of(group).await {
                Some(generation) => generation,
                None => {
                    let generation = fastrand::u64(..);
                    let made = self.store.create(&key, group, &generation.to_le_bytes()).await;
                    made.map_err(|_| NotStoredReason::Store)?;
                    generation
                }
            };
            joined.push(Membership { group, generation });
        }
        Ok(joined)
    }

    /// Begins to store a response fetched since `epoch`.
    pub(crate) async fn begin(
        &self,
        target: &Target,
        epoch: Epoch,
        request: &HeaderMap,
        response: &StoredResponse,
        length_bytes: Option<u64>,
        groups: &Groups,
    ) -> Result<Deposit, NotStoredReason> {
        let group = GroupId::of(&groups.home);
        let mut response = response.clone();
        response.groups = self.join_groups(&groups.others).await?;
        // Found out now rather than after the body.
        response.encode().ok_or(NotStoredReason::HeadersTooLarge)?;
        let key = match vary::with_configured(&response.headers, &self.rules) {
            Vary::Nothing => self.place_default(&target.primary, request, group).await?,
            Vary::Star => return Err(NotStoredReason::VaryStar),
            Vary::Names(names) => {
                self.place_variant(&target.primary, names, request, group).await?
            }
        };
        let mut deposit = Deposit {
            key,
            epoch,
            group,
            response,
            whole_body_bytes_max: self.whole_body_bytes_max,
            older: None,
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

    /// Where a response without `Vary` goes. Some resources leave the field out of one answer among
    /// many; that one must not displace the variants (RFC 9111 §4.1), and becomes one of them.
    async fn place_default(
        &self,
        primary: &[u8],
        request: &HeaderMap,
        group: GroupId,
    ) -> Result<Vec<u8>, NotStoredReason> {
        if self.may_contain(primary) && self.read_marker(primary).await.is_some() {
            return self.place_variant(primary, Vec::new(), request, group).await;
        }
        Ok(primary.to_vec())
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
        let key = variant_key(primary, &marker, request, &self.rules)
            .ok_or(NotStoredReason::HeadersTooLarge)?;
        if variants.contains(&key) {
            return Ok(key);
        }
        variants.push(key.clone());
        while variants.len() > self.rules.variants_max.max(1) {
            // The oldest goes; if the store cannot say so, it is merely not listed any more.
            let _ = self.store.remove(&variants.remove(0));
        }
        let metadata = marker.encode();
        let options = CreateOptions { metadata: &metadata, ..CreateOptions::default() };
        let value = encode_variants(&variants);
        self.store
            .create_with(primary, group, &value, options)
            .await
            .map_err(|_| NotStoredReason::Store)?;
        Ok(key)
    }

    /// The stored variants of a resource without their bodies, the newest first, at most `max`.
    pub(crate) async fn variants(&self, primary: &[u8], max: usize) -> Vec<Variant> {
        let Some((_, keys)) = self.read_marker(primary).await else { return Vec::new() };
        let mut variants = Vec::new();
        for key in keys.into_iter().rev().take(max) {
            let Ok(Some(info)) = self.store.lookup(&key).await else { continue };
            if let Some(Entry::Response(response)) = Entry::decode(&info.metadata)
                && self.all_groups_stand(&response.groups).await
            {
                variants.push(Variant { key, blob: info.metadata, response });
            }
        }
        variants
    }

    /// A variant with its body; `None` if it is another one by now.
    pub(crate) async fn open(&self, variant: &Variant, counters: &Counters) -> Option<Found> {
        let (blob, entry, body) = self.probe(&variant.key, true, counters).await?;
        let Entry::Response(response) = entry else { return None };
        let same = blob == variant.blob;
        same.then(|| Found { key: variant.key.clone(), blob, response, body })
    }

    async fn read_marker(&self, primary: &[u8]) -> Option<(VaryMarker, Vec<Vec<u8>>)> {
        let object = self.store.read(primary).await.ok()??;
        match Entry::decode(&Bytes::copy_from_slice(object.metadata()))? {
            Entry::Marker(marker) => Some((marker, decode_variants(&object))),
            Entry::Response(_) => None,
        }
    }

    /// Replaces the metadata of a stored response, if it is still the one that was read. False: it
    /// is not, and nothing was changed.
    pub(crate) async fn update(
        &self,
        primary: &[u8],
        key: &[u8],
        blob: &Bytes,
        metadata: &[u8],
        epoch: Epoch,
    ) -> bool {
        let _ordered = self.lock(primary).await;
        if !self.is_current(epoch) {
            return false;
        }
        match self.store.lookup(key).await {
            Ok(Some(info)) if info.metadata == *blob => {}
            _ => return false,
        }
        matches!(self.store.set_metadata(key, metadata).await, Ok(true))
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
        if deposit.response.part.is_some() && self.holds_whole(&key).await {
            return Err(NotStoredReason::Partial);
        }
        deposit.commit(&self.store).await?;
        if !self.is_current(epoch) {
            // Invalidated while it was committed: take it out again.
            self.forget(&key);
            return Err(NotStoredReason::Invalidated);
        }
        Ok(())
    }

    /// True if a whole response lies there that a part must not replace.
    async fn holds_whole(&self, key: &[u8]) -> bool {
        let Ok(Some(info)) = self.store.lookup(key).await else { return false };
        matches!(Entry::decode(&info.metadata), Some(Entry::Response(stored)) if stored.part.is_none())
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

impl Vault {
    /// Forgets everything in these groups, wherever it lies, and whatever is being fetched now.
    pub(crate) fn invalidate_groups(&self, names: &[Vec<u8>]) {
        if names.is_empty() {
            return;
        }
        self.group_epoch.fetch_add(1, Ordering::SeqCst);
        for name in names {
            // In effect even if the journal could not be written.
            let _ = self.store.purge_group(GroupId::of(name));
        }
    }
}

impl Deposit {
    /// Joins this part with an older one of the same version.
    pub(crate) fn join_with(&mut self, older: Part, bytes: Bytes) {
        self.older = Some((older, bytes));
    }

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
            DepositBody::Small { chunks, .. } => self.response.joined(joined(chunks), self.older),
        };
        let metadata = self.response.encode().ok_or(NotStoredReason::HeadersTooLarge)?;
        let options = CreateOptions { metadata: &metadata, ..CreateOptions::default() };
        store.create_with(&self.key, self.group, &value, options).await.map_err(failed)
    }
}

impl StoredResponse {
    /// Joins the bytes of a part with those of an older one; what comes out may be the whole.
    fn joined(&mut self, bytes: Bytes, older: Option<(Part, Bytes)>) -> Bytes {
        let (Some(part), Some((older, older_bytes))) = (self.part, older) else { return bytes };
        let all = parts::joined_bytes((&older, &older_bytes), (&part, &bytes));
        let (Some(all), Some(joined)) = (all, older.joined(&part)) else { return bytes };
        self.part = (!joined.is_whole()).then_some(joined);
        if self.part.is_none() {
            self.status = StatusCode::OK;
        }
        all.into()
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

fn sentinel_key(group: GroupId) -> Vec<u8> {
    let mut key = SENTINEL.to_vec();
    key.put_u64(group.get());
    key
}

fn variant_key(
    primary: &[u8],
    marker: &VaryMarker,
    request: &HeaderMap,
    rules: &Rules,
) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(primary.len() + 128);
    key.extend_from_slice(primary);
    key.push(0);
    key.put_u64(marker.generation);
    let start = key.len();
    vary::secondary_key(&marker.names, request, rules, &mut key);
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
