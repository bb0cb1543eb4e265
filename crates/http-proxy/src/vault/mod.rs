//! HTTP resources in the store: their keys, and how responses are stored, updated and removed.
//!
//! A resource without `Vary` is one object under its primary key, `scheme://host/path?query`. With
//! `Vary` the primary key holds a marker that lists the header names, and each variant is stored
//! under primary key, 0x00, the marker's generation, and the request's values of those headers. An
//! invalidation removes only the primary key: variants of a removed marker are unreachable, because
//! the next marker has another generation. A body larger than `whole_body_bytes_max` is streamed
//! into objects of its own (see `sections`); smaller bodies are stored beside their metadata, so
//! that a hit is one read and a lookup never reads a large body. Slices of a resource are stored
//! under primary key, 0x03, their size, their number, and the generation of their sentinel.
//!
//! Invariants: a fill that began before an invalidation of its resource leaves nothing behind; new
//! metadata is written only beside the body that it was made from; a part never replaces a complete
//! response. Threads: shared by all workers; a lock chosen by the primary key orders changes to one
//! resource.

// What counts for all slices of a version.
mod confirmed;
// Entries that a thread decoded lately.
mod decoded;
// Metadata of a response.
pub(crate) mod entry;
// What a lookup gives.
mod found;
// Responses that are members of several groups.
mod groups;
// Groups loved and hated by use.
mod hints;
// The limit on a wait for the store.
mod in_time;
// Bodies that are read while they are written, also once the store takes no more of them.
pub(crate) mod inflight;
// A response on its way in.
pub(crate) mod insertion;
// Removal for good.
mod invalidate;
// When variants were last used.
mod last_uses;
// When a slice is read whole.
mod part_reads;
// What was lately invalidated, for fills under way.
mod recent_invalidations;
// Large bodies.
pub(crate) mod sections;
// Aligned parts of a resource.
mod slices;
// Whether purges and groups leave a response valid.
mod validity;
// Variants of a resource, and their keys.
pub(crate) mod variants;
// How much of origins' answers is written.
pub(crate) mod writes;

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use damelo::{GroupId, MetadataError, ObjectInfo, Store};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName};
use tokio::sync::{Mutex, MutexGuard};

use crate::config::ProxyConfig;
use crate::metrics::Counters;
use crate::purge::ledger::Ledger;
use crate::purge::marks::Standing;
use crate::purge::recent::RecentPurges;
use crate::purge::stamp::{self, Moment, Stamp};
use crate::rules::cache_groups;
use crate::rules::group::Groups;
use crate::rules::vary::{self, Vary};
use crate::rules::{CachingConfig, ForwardReason, NotStoredReason, Policy};
use crate::vault::entry::{Apart, Entry, StoredResponse, VaryMarker};
use crate::vault::hints::GroupHints;
use crate::vault::in_time::in_time;
use crate::vault::insertion::Insertion;
use crate::vault::sections::{Sections, WholeReads};
use confirmed::Confirmations;
pub(crate) use found::{Found, FoundBody, NextPiece, Placement, RangeReader};
pub(crate) use in_time::Late;
use last_uses::LastUses;
use recent_invalidations::RecentInvalidations;
pub(crate) use slices::{KnownSlice, Slice, Stretch, slice_key};
pub(crate) use variants::Variant;
use variants::variant_key;

/// Longest primary key; requests with longer targets bypass the cache.
pub(crate) const PRIMARY_KEY_BYTES_MAX: usize = 16 << 10;
/// Number of locks; two resources that share one only wait for each other.
const STRIPES: usize = 1024;

/// Invalidations of resources that a stripe remembers individually.
const RECENT_MAX: usize = 64;

/// Invalidations of groups remembered individually: all that come while a body is on the way,
/// unless there are very many.
const GROUPS_RECENT_MAX: usize = 1024;

/// The names of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Key of the resource.
    pub(crate) primary: Vec<u8>,
    /// Scheme of the key.
    pub(crate) scheme: &'static str,
    /// Host of the key.
    pub(crate) host: String,
    /// Host that the request was sent to, whatever host a proxy before this one was asked for.
    pub(crate) client_host: String,
    pub(crate) path_and_query: PathAndQuery,
}

/// The object read under a key.
struct Probed {
    blob: Bytes,
    entry: Entry,
    body: FoundBody,
    placement: Placement,
}

impl Probed {
    /// The response found under its own key, or the vary marker as the error.
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

/// Result of a lookup.
pub(crate) enum Lookup {
    Found(Box<Found>),
    /// Nothing usable; the missed key and the reason.
    Missed {
        key: Vec<u8>,
        reason: ForwardReason,
    },
    /// The request's varying headers are too long for a key.
    Unkeyable,
}

/// State of a resource before a fetch, so that a later invalidation can be detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch {
    /// Hash of the primary key.
    resource: u64,
    /// Invalidations in the resource's stripe so far.
    count: u64,
    /// Invalidations of groups so far: until it is known which groups the response being fetched is
    /// in, any of them may concern it.
    groups: u64,
    /// Later purges cover responses fetched from now on; `None` before the purges are loaded.
    moment: Option<Moment>,
}

struct Stripe {
    lock: Mutex<()>,
    invalidated: RecentInvalidations<RECENT_MAX>,
}

/// The metadata that newer ones replace, after a crash in which these are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Older {
    /// They are right, if older.
    MayComeBack,
    IsWrong,
}

/// The store as HTTP sees it.
pub(crate) struct Vault {
    pub(crate) store: Store,
    ledger: Arc<Ledger>,
    /// Longest body, or joined part, that lies in one piece.
    pub(crate) whole_body_bytes_max: u64,
    /// Half of the store: a larger body would evict everything cached, and its own beginning.
    pub(crate) body_bytes_max: u64,
    /// The running configuration's.
    caching: ArcSwap<CachingConfig>,
    /// Header fields with tags beside those that are known by themselves.
    tag_headers: ArcSwap<Vec<HeaderName>>,
    /// Whether rules have added to keys since the start, so that one URL may be stored under
    /// several.
    extended_keys: AtomicBool,
    /// The rules on keys at the start, and whether there have been others since.
    key_rules: String,
    other_keys: AtomicBool,
    /// Decides which slices and sections are read whole.
    whole_reads: Arc<WholeReads>,
    stripes: Box<[Stripe]>,
    invalidated_groups: RecentInvalidations<GROUPS_RECENT_MAX>,
    /// Hard purges of single URLs, for who asks what has become of one.
    pub(crate) urls_purged: RecentPurges,
    confirmations: Confirmations,
    /// Group hints derived from use.
    pub(crate) group_hints: GroupHints,
    last_uses: LastUses,
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
            whole_body_bytes_max: config.limits.whole_body_bytes_max,
            body_bytes_max: info.segments * info.segment_bytes / 2,
            caching: ArcSwap::from_pointee(config.caching.clone()),
            tag_headers: ArcSwap::from_pointee(config.purge.tag_headers.clone()),
            extended_keys: AtomicBool::new(config.ruleset.extends_keys()),
            key_rules: config.ruleset.of_keys(),
            other_keys: AtomicBool::new(false),
            invalidated_groups: RecentInvalidations::default(),
            urls_purged: RecentPurges::default(),
            confirmations: Confirmations::new(),
            group_hints: GroupHints::new(config.groups.hints_by_use),
            whole_reads,
            last_uses: LastUses::new(),
            stripes: (0..STRIPES).map(stripe).collect(),
            hasher: std::hash::RandomState::new(),
        }
    }

    /// Applies these settings from now on.
    pub(crate) fn follow(&self, config: &ProxyConfig) {
        self.caching.store(Arc::new(config.caching.clone()));
        self.tag_headers.store(Arc::new(config.purge.tag_headers.clone()));
        self.extended_keys.fetch_or(config.ruleset.extends_keys(), Ordering::Relaxed);
        self.other_keys.fetch_or(config.ruleset.of_keys() != self.key_rules, Ordering::Relaxed);
    }

    /// Whether one URL may be stored under several keys. What rules have added to keys stays there
    /// when they are gone, is found again should they come back, and may be on its way in.
    pub(crate) fn has_extended_keys(&self) -> bool {
        self.extended_keys.load(Ordering::Relaxed)
    }

    /// Whether other rules than those of now have decided on keys since the start.
    pub(crate) fn has_other_keys(&self) -> bool {
        self.other_keys.load(Ordering::Relaxed)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Placement of a response fetched since `epoch`, if it is stored in this group.
    pub(crate) fn placement(
        &self,
        epoch: Epoch,
        group: GroupId,
        response: &StoredResponse,
    ) -> Result<Placement, NotStoredReason> {
        Ok(Placement { group, in_memory: true, stamp: self.stamp(epoch, response)? })
    }

    /// The stamp of a response fetched since `epoch`. An error if the response has too many tags or
    /// groups, or if the ledger has not loaded its purges or cannot write them.
    pub(crate) fn stamp(
        &self,
        epoch: Epoch,
        response: &StoredResponse,
    ) -> Result<Stamp, NotStoredReason> {
        let moment = epoch.moment.ok_or(NotStoredReason::Store)?;
        let (headers, more) = (&response.headers, self.tag_headers.load());
        if !stamp::is_tagged(headers, &more) {
            return Ok(Stamp { moment, tags: Vec::new() });
        }
        let tags = stamp::tags_of(headers, &more).ok_or(NotStoredReason::HeadersTooLarge)?;
        if cache_groups::are_too_many(headers) {
            return Err(NotStoredReason::HeadersTooLarge);
        }
        Ok(Stamp { moment, tags })
    }

    /// Encodes metadata of a response fetched since `epoch`, with its stamp.
    fn stamped(&self, metadata: &[u8], epoch: Epoch) -> Result<Vec<u8>, NotStoredReason> {
        let blob = Bytes::copy_from_slice(metadata);
        let Some(Entry::Response(response)) = Entry::decode(&blob) else {
            return Err(NotStoredReason::HeadersTooLarge);
        };
        let mut metadata = metadata.to_vec();
        self.stamp(epoch, &response)?.append(&mut metadata);
        Ok(metadata)
    }

    /// What the fields were is as right after a crash as it was before a validation, unless it may
    /// be used for longer, or invalidated by other names, than what they are.
    pub(crate) fn older(&self, stored: &StoredResponse, updated: &StoredResponse) -> Older {
        let (is_less, more) =
            (stored.policy.allows_no_more_than(&updated.policy), self.tag_headers.load());
        let tags = |response: &StoredResponse| stamp::tags_of(&response.headers, &more);
        if is_less && tags(stored) == tags(updated) { Older::MayComeBack } else { Older::IsWrong }
    }

    fn stripe_of(&self, resource: u64) -> &Stripe {
        &self.stripes[resource as usize % STRIPES]
    }

    pub(crate) async fn lock(&self, primary: &[u8]) -> MutexGuard<'_, ()> {
        self.stripe_of(self.hasher.hash_one(primary)).lock.lock().await
    }

    /// Records the state before a fetch.
    pub(crate) fn epoch(&self, primary: &[u8]) -> Epoch {
        let resource = self.hasher.hash_one(primary);
        Epoch {
            resource,
            count: self.stripe_of(resource).invalidated.count(),
            groups: self.invalidated_groups.count(),
            moment: self.ledger.now(),
        }
    }

    /// Whether the resource, whatever groups it is in, has certainly not been invalidated since
    /// `epoch`.
    pub(crate) fn is_current(&self, epoch: Epoch) -> bool {
        self.is_resource_current(epoch) && self.invalidated_groups.count() == epoch.groups
    }

    /// Whether a response in these groups, fetched since `epoch`, has certainly not been
    /// invalidated.
    pub(crate) fn is_current_in(
        &self,
        epoch: Epoch,
        mut groups: impl Iterator<Item = GroupId>,
    ) -> bool {
        self.is_resource_current(epoch)
            && !groups.any(|group| self.invalidated_groups.has(group.get(), epoch.groups))
    }

    fn is_resource_current(&self, epoch: Epoch) -> bool {
        !self.stripe_of(epoch.resource).invalidated.has(epoch.resource, epoch.count)
    }

    /// False if the store certainly has nothing under this key. Costs no I/O.
    pub(crate) fn may_contain(&self, key: &[u8]) -> bool {
        self.store.may_contain(key)
    }

    /// What lies under a key, purged or not. What the store fails to read is not there.
    pub(crate) async fn lying(&self, key: &[u8]) -> Result<Option<ObjectInfo>, Late> {
        Ok(in_time(self.store.lookup(key)).await?.ok().flatten())
    }

    /// Finds the stored response for a request. Failures of the store are misses.
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
            // Stored before the configuration added headers or cookies to the key: whose response
            // it is, is unknown.
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
                            self.last_uses.note(primary, &key);
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

    /// As [`Vault::probe`], with a prepared read of this key.
    async fn probe_by(
        &self,
        read: damelo::Read,
        key: &[u8],
        want_body: bool,
        counters: &Counters,
    ) -> Option<Probed> {
        let object = match in_time(read).await {
            Ok(Ok(object)) => object?,
            Ok(Err(_)) | Err(Late) => {
                counters.store_errors.one();
                return None;
            }
        };
        let (place, length_bytes) = ((object.group(), object.from_memory()), object.len() as u64);
        // Without its body a response may be kept for long, and must not pin memory.
        let (blob, value) = match want_body {
            true => object.into_parts(),
            false => (Bytes::copy_from_slice(object.metadata()), Bytes::new()),
        };
        let (entry, placement) = self.judge(key, &blob, place, counters).await?;
        let body = match &entry {
            Entry::Response(StoredResponse { apart: Some(apart), .. }) if want_body => {
                FoundBody::Large(Box::new(self.sections(key, apart)))
            }
            Entry::Response(StoredResponse { apart: Some(apart), .. }) => {
                FoundBody::Length(apart.length_bytes)
            }
            _ if want_body => FoundBody::Whole(value),
            _ => FoundBody::Length(length_bytes),
        };
        Some(Probed { blob, entry, body, placement })
    }

    /// A large body, of which the store may have evicted something.
    fn sections(&self, key: &[u8], apart: &Apart) -> Sections {
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
        // Fails now rather than after the body has been received.
        let encoded = response.encode().ok_or(NotStoredReason::HeadersTooLarge)?;
        let stamp = self.stamp(epoch, &response)?;
        let key = match vary::with_configured(&response.headers, &self.caching.load()) {
            Vary::Nothing => {
                let now_ms = response.policy.response_time_ms;
                self.place_default(&target.primary, now_ms, request, group).await?
            }
            Vary::Star => return Err(NotStoredReason::VaryStar),
            Vary::Names(names) => {
                let by = (names, response.policy.response_time_ms);
                self.place_variant(&target.primary, by, request, group).await?
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

    /// Replaces the metadata of a stored response by that of `updated`, if it is unchanged since it
    /// was read. Otherwise changes nothing and returns the reason. `older` is what is replaced.
    pub(crate) async fn update(
        &self,
        primary: &[u8],
        key: &[u8],
        blob: &Bytes,
        updated: &StoredResponse,
        older: Older,
        epoch: Epoch,
    ) -> Result<(), NotStoredReason> {
        let metadata = updated.encode().ok_or(NotStoredReason::HeadersTooLarge)?;
        let _ordered = self.lock(primary).await;
        if !self.is_resource_current(epoch) {
            return Err(NotStoredReason::Invalidated);
        }
        let metadata = self.stamped(&metadata, epoch)?;
        match in_time(self.store.lookup(key)).await? {
            Ok(Some(info)) if info.metadata == *blob => {
                if !self.is_current_in(epoch, updated.groups_with(info.group)) {
                    return Err(NotStoredReason::Invalidated);
                }
            }
            Ok(_) => return Err(NotStoredReason::Superseded),
            Err(_) => return Err(NotStoredReason::Store),
        }
        let set = match older {
            Older::MayComeBack => self.store.refresh_metadata(key, &metadata),
            Older::IsWrong => self.store.set_metadata(key, &metadata),
        };
        match in_time(set).await? {
            Ok(true) => Ok(()),
            // Removed or replaced since: the newer state stands.
            Ok(false) | Err(MetadataError::Superseded) => Err(NotStoredReason::Superseded),
            Err(_) => Err(NotStoredReason::Store),
        }
    }

    /// Finishes an insertion: from now on lookups find it.
    pub(crate) async fn commit(
        &self,
        primary: &[u8],
        insertion: Box<Insertion>,
    ) -> Result<(), NotStoredReason> {
        let (is_whole, epoch) = (insertion.response.part.is_none(), insertion.epoch);
        debug_assert_eq!(epoch.resource, self.hasher.hash_one(primary));
        let _ordered = self.stripe_of(epoch.resource).lock.lock().await;
        let groups = insertion.groups();
        if self.is_outdated(&insertion.key, epoch, &groups, &insertion.placement()) {
            // What is purged may not displace what was fetched after the purge.
            return Err(NotStoredReason::Invalidated);
        }
        if !is_whole && self.holds_whole(&insertion.key).await {
            return Err(NotStoredReason::Partial);
        }
        let policy = insertion.response.policy;
        if self.is_for_fewer(&insertion.key, policy).await
            || (is_whole && policy.is_personal && self.has_slices_for_all(primary).await)
        {
            return Err(NotStoredReason::Cookie);
        }
        let key = insertion.commit(&self.store).await?;
        if is_whole && self.may_have_slices_anywhere(primary) {
            // The slices are older than the stored response, and would outlive it.
            self.forget_slices(primary);
        }
        if !self.is_current_in(epoch, groups.iter().copied()) {
            // Invalidated during the commit: remove it again.
            self.forget(&key);
            return Err(NotStoredReason::Invalidated);
        }
        Ok(())
    }

    /// True if the key holds, or may hold, a complete response, which a part must not replace.
    async fn holds_whole(&self, key: &[u8]) -> bool {
        let Ok(standing) = self.standing_response(key).await else { return true };
        match standing {
            Some((_, StoredResponse { part: None, apart: Some(apart), .. })) => {
                self.sections(key, &apart).has(0..u64::MAX)
            }
            Some((_, stored)) => stored.part.is_none(),
            None => false,
        }
    }

    /// True if what may be for one user would replace what is fresh, and for all.
    async fn is_for_fewer(&self, key: &[u8], new: Policy) -> bool {
        if !new.is_personal {
            return false;
        }
        let Ok(Some((_, stored))) = self.standing_response(key).await else { return false };
        !stored.policy.is_personal && stored.policy.staleness_ms(new.response_time_ms).is_none()
    }

    /// The response stored under a key, without its body, if no hard purge covers it.
    async fn standing_response(&self, key: &[u8]) -> Result<Option<(Bytes, StoredResponse)>, Late> {
        let info = self.lying(key).await?;
        Ok(info.and_then(|info| self.standing_of(key, info)))
    }

    /// As [`Vault::standing_response`], of what was found under the key.
    fn standing_of(&self, key: &[u8], info: ObjectInfo) -> Option<(Bytes, StoredResponse)> {
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

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use damelo::{ByteSize, Config};

    use super::*;
    use crate::config::OriginTarget;

    /// A vault on a store of 64 MiB in this directory, with 8 MiB of memory.
    pub(crate) fn vault_in(directory: &Path) -> Vault {
        let mut config = Config::new(directory.join("store"), ByteSize::new(64 << 20));
        config.memory = ByteSize::new(8 << 20);
        vault_on(Store::open(config).unwrap())
    }

    /// A vault on this store, which it waits for.
    pub(crate) fn vault_on(store: Store) -> Vault {
        store.wait_recovered();
        let ledger = Ledger::open(store.clone()).unwrap();
        let config = ProxyConfig::new("127.0.0.1:0".parse().unwrap(), OriginTarget::Demo);
        Vault::new(store, ledger, &config)
    }
}
