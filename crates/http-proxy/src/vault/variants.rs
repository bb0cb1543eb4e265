//! Variants of a resource: the marker that lists them, and their keys.
//!
//! Invariants: a marker that replaces one with other names gets a new generation, so that the
//! former's variants become unreachable; at most `variants_max` are listed, of which the one that
//! was not used for longest makes room for another. Threads: as the vault.

use bytes::{BufMut, Bytes};
use damelo::{CreateOptions, GroupId};
use http::HeaderMap;
use http::header::HeaderName;

use super::in_time::{Late, in_time};
use super::{Found, Placement, Vault, decode};
use crate::metrics::Counters;
use crate::purge::marks::Standing;
use crate::purge::stamp::Stamp;
use crate::rules::storing::varies_by_user;
use crate::rules::vary::Vary;
use crate::rules::{CachingConfig, NotStoredReason, vary};
use crate::vault::entry::{Entry, StoredResponse, VaryMarker};

/// Longest varying header values in a key; requests with longer ones are not cached.
const SECONDARY_KEY_BYTES_MAX: usize = 8 << 10;

/// A stored variant without its body.
pub(crate) struct Variant {
    pub(crate) key: Vec<u8>,
    /// Its metadata as read.
    pub(crate) blob: Bytes,
    pub(crate) response: StoredResponse,
    pub(crate) length_bytes: u64,
}

/// A marker, the keys of its variants, and where it lies.
type LyingMarker = (VaryMarker, Vec<Vec<u8>>, Placement);

impl Vault {
    /// The key for a response without `Vary`. Some origins omit the field from occasional
    /// responses. Such a response must not displace the variants (RFC 9111 §4.1), so it becomes one
    /// of them.
    pub(super) async fn place_default(
        &self,
        primary: &[u8],
        now_ms: u64,
        request: &HeaderMap,
        group: GroupId,
    ) -> Result<Vec<u8>, NotStoredReason> {
        if self.may_contain(primary) && self.read_marker(primary).await?.is_some() {
            return self.place_variant(primary, (Vec::new(), now_ms), request, group).await;
        }
        Ok(primary.to_vec())
    }

    /// Adds this variant to the marker's list, and returns the variant's key. The response varies
    /// on these names, and came at this time.
    pub(super) async fn place_variant(
        &self,
        primary: &[u8],
        (names, now_ms): (Vec<HeaderName>, u64),
        request: &HeaderMap,
        group: GroupId,
    ) -> Result<Vec<u8>, NotStoredReason> {
        let _ordered = self.lock(primary).await;
        let (marker, mut variants) = match self.read_marker(primary).await? {
            // A marker with at least these names serves this response too.
            Some((marker, variants)) if names.iter().all(|n| marker.names.contains(n)) => {
                (marker, variants)
            }
            other => {
                let former = other.map(|(marker, _)| marker);
                self.leaves_to_others(primary, &names, former.as_ref(), request, now_ms).await?;
                (new_marker(names, former), Vec::new())
            }
        };
        let key = variant_key(primary, &marker, request, &self.caching.load())
            .ok_or(NotStoredReason::HeadersTooLarge)?;
        self.last_uses.note(primary, &key);
        if variants.contains(&key) {
            return Ok(key);
        }
        while variants.len() >= self.caching.load().variants_max.max(1)
            && let Some(unused) = self.last_uses.longest_unused(primary, &variants)
        {
            // If the removal fails, it is no longer listed.
            let _ = self.store.remove(&variants.remove(unused));
        }
        variants.push(key.clone());
        // The marker has no tags, so purges by tag do not concern it.
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

    /// Refuses names that would take from all what is stored for them and fresh, on account of a
    /// response to who says in such a field who they are: what others get may well not vary on it.
    async fn leaves_to_others(
        &self,
        primary: &[u8],
        names: &[HeaderName],
        former: Option<&VaryMarker>,
        request: &HeaderMap,
        now_ms: u64,
    ) -> Result<(), NotStoredReason> {
        let varied = Vary::Names(former.map(|marker| marker.names.clone()).unwrap_or_default());
        let by_sender = Vary::Names(names.to_vec()).beyond(&varied);
        let Some(reason) = by_sender.and_then(|by| varies_by_user(&by, request)) else {
            return Ok(());
        };
        let is_for_all = |stored: &StoredResponse| {
            !stored.policy.is_personal && stored.policy.staleness_ms(now_ms).is_none()
        };
        let is_taken = match former {
            None => self.standing_response(primary).await?.is_some_and(|(_, it)| is_for_all(&it)),
            Some(_) => {
                let variants = self.variants(primary, &[], self.caching.load().variants_max).await;
                variants.iter().any(|variant| is_for_all(&variant.response))
            }
        };
        if is_taken { Err(reason) } else { Ok(()) }
    }

    /// Stored variants of a resource without their bodies, newest first, for a request that is for
    /// none of them but for `sought`: of the newest `max` those in memory, and of those on disk the
    /// one whose request was most like it. To read them all would take longer than to ask the
    /// origin for one more.
    pub(crate) async fn variants(&self, primary: &[u8], sought: &[u8], max: usize) -> Vec<Variant> {
        let Ok(Some((_, mut keys))) = self.read_marker(primary).await else { return Vec::new() };
        keys.drain(..keys.len().saturating_sub(max));
        let costs_a_read = |key: &[u8]| !self.store.lookup(key).is_ready();
        let alike = |key: &[u8]| key.iter().zip(sought).take_while(|(a, b)| a == b).count();
        // Of equals the newest, which is the last.
        let on_disk = keys.iter().filter(|key| costs_a_read(key));
        let nearest = on_disk.max_by_key(|key| alike(key)).cloned();
        let mut variants = Vec::new();
        for key in keys.into_iter().rev() {
            if nearest.as_ref() != Some(&key) && costs_a_read(&key) {
                continue;
            }
            let Ok(Ok(Some(info))) = in_time(self.store.lookup(&key)).await else { continue };
            let beside_bytes = info.length_bytes;
            if let Some((blob, response)) = self.standing_of(&key, info)
                && self.all_groups_stand(&response.groups).await
            {
                let length_bytes = response.complete_bytes(beside_bytes);
                variants.push(Variant { key, blob, response, length_bytes });
            }
        }
        variants
    }

    /// A variant with its body; `None` if the stored one has changed.
    pub(crate) async fn open(&self, variant: &Variant, counters: &Counters) -> Option<Found> {
        let found = self.probe(&variant.key, true, counters).await?.into_found().ok()?;
        let same = found.blob == variant.blob;
        same.then(|| Found { variant_key: Some(variant.key.clone()), ..found })
    }

    /// The marker of a resource and the keys of the variants that it lists. One that was purged is
    /// none: lookups do not follow it, so that what is stored now must not be listed in it either.
    pub(super) async fn read_marker(
        &self,
        primary: &[u8],
    ) -> Result<Option<(VaryMarker, Vec<Vec<u8>>)>, Late> {
        let lying = self.lying_marker(primary).await?;
        let standing = lying.filter(|(_, _, at)| self.standing(primary, at) != Standing::Gone);
        Ok(standing.map(|(marker, variants, _)| (marker, variants)))
    }

    /// The same, purged or not.
    async fn lying_marker(&self, primary: &[u8]) -> Result<Option<LyingMarker>, Late> {
        let object = in_time(self.store.read(primary)).await?.ok().flatten();
        Ok(object.and_then(|object| {
            let (entry, stamp) = decode(&Bytes::copy_from_slice(object.metadata()))?;
            let Entry::Marker(marker) = entry else { return None };
            let (group, in_memory) = (object.group(), object.from_memory());
            let placement = Placement { group, in_memory, stamp };
            Some((marker, decode_variants(&object), placement))
        }))
    }

    /// Keys of the variants of a resource, also of those that went with its marker.
    pub(crate) async fn variants_of(&self, primary: &[u8]) -> Vec<Vec<u8>> {
        let lying = self.lying_marker(primary).await.ok().flatten();
        lying.map(|(_, variants, _)| variants).unwrap_or_default()
    }
}

/// A marker for these names and those of the marker it replaces, with a generation never used
/// before.
fn new_marker(mut names: Vec<HeaderName>, old: Option<VaryMarker>) -> VaryMarker {
    let known = old.map(|marker| marker.names).unwrap_or_default();
    if names.len() + known.len() <= vary::VARY_NAMES_MAX {
        names.extend(known);
        names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
        names.dedup();
    }
    VaryMarker { generation: fastrand::u64(..), names }
}

pub(super) fn variant_key(
    primary: &[u8],
    marker: &VaryMarker,
    request: &HeaderMap,
    caching: &CachingConfig,
) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(primary.len() + 128);
    key.extend_from_slice(primary);
    key.push(0);
    key.put_u64(marker.generation);
    let start = key.len();
    vary::secondary_key(&marker.names, request, caching, &mut key);
    (key.len() - start <= SECONDARY_KEY_BYTES_MAX).then_some(key)
}

pub(crate) fn encode_variants(variants: &[Vec<u8>]) -> Vec<u8> {
    let mut list = Vec::new();
    for key in variants {
        list.put_u32_le(u32::try_from(key.len()).unwrap_or(0));
        list.extend_from_slice(key);
    }
    list
}

/// Decodes the list up to the first damaged entry.
pub(crate) fn decode_variants(mut list: &[u8]) -> Vec<Vec<u8>> {
    let mut variants = Vec::new();
    while let Some((length, rest)) = list.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((key, rest)) = rest.split_at_checked(length) else { break };
        variants.push(key.to_vec());
        list = rest;
    }
    variants
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{StatusCode, Version};

    use super::*;
    use crate::rules::group::Groups;
    use crate::rules::validation::TAGS_SENT_MAX;
    use crate::rules::{ForwardReason, Policy};
    use crate::vault::tests::vault_in;
    use crate::vault::{Lookup, Target};

    fn asking(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static("x-a"), value.parse().unwrap())])
    }

    /// Stores a variant that says which one it is.
    async fn put(vault: &Vault, target: &Target, value: &str) {
        let mut headers = asking(value);
        headers.insert(http::header::VARY, "x-a".parse().unwrap());
        let policy = Policy::default();
        let stored = StoredResponse::new(StatusCode::OK, Version::HTTP_11, policy, headers);
        let groups = Groups { home: b"h".to_vec(), others: Vec::new() };
        let epoch = vault.epoch(&target.primary);
        // Longer than what lies on a page with others.
        let body = Bytes::from(vec![7; 100 << 10]);
        let begun = vault.begin(target, epoch, &asking(value), stored, None, &groups).await;
        let mut insertion = begun.unwrap();
        vault.write(&mut insertion, &body, Duration::from_secs(60)).await.unwrap();
        vault.commit(&target.primary, insertion).await.unwrap();
    }

    fn page() -> Target {
        Target {
            primary: b"http://a/".to_vec(),
            scheme: "http",
            host: "a".to_owned(),
            client_host: "a".to_owned(),
            path_and_query: "/".parse().unwrap(),
        }
    }

    #[tokio::test]
    async fn the_variant_that_was_not_used_for_longest_makes_room() {
        let directory = tempfile::tempdir().unwrap();
        let (vault, target, counters) = (vault_in(directory.path()), page(), Counters::default());
        let mut caching = CachingConfig::default();
        caching.variants_max = 3;
        vault.caching.store(std::sync::Arc::new(caching));
        let has = async |value: &str| {
            let looked = vault.lookup(&target.primary, &asking(value), true, &counters).await;
            matches!(looked, Lookup::Found(_))
        };
        let of_marker = async || vault.variants_of(&target.primary).await.len();
        for first in ["a", "b", "c"] {
            put(&vault, &target, first).await;
        }
        assert!(has("a").await);
        put(&vault, &target, "d").await;
        assert_eq!((has("b").await, of_marker().await), (false, 3));
        assert!(has("d").await && has("a").await, "the oldest is asked for");
        // What is stored again is used, too, though its place in the list is the first.
        put(&vault, &target, "c").await;
        put(&vault, &target, "e").await;
        assert!(!has("d").await);
        assert!(has("c").await && has("a").await && has("e").await);
        assert_eq!(of_marker().await, 3);
    }

    #[tokio::test]
    async fn a_request_for_one_more_variant_reads_one_of_those_on_disk() {
        let directory = tempfile::tempdir().unwrap();
        let vault = vault_in(directory.path());
        let target = page();
        for number in 0..TAGS_SENT_MAX {
            put(&vault, &target, &format!("{number}-of-many")).await;
        }
        vault.store.sync().unwrap();
        let counters = Counters::default();
        let found = async || {
            let looked = vault.lookup(&target.primary, &asking("7-of-more"), true, &counters).await;
            let Lookup::Missed { key, reason: ForwardReason::VaryMiss } = looked else {
                panic!("it is another variant")
            };
            let variants = vault.variants(&target.primary, &key, TAGS_SENT_MAX).await;
            let name = |variant: &Variant| variant.response.headers["x-a"].clone();
            variants.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(found().await.len(), TAGS_SENT_MAX, "all that are in memory");
        vault.store.drop_memory();
        let reads = || {
            let stats = vault.store.stats();
            stats.object_reads + stats.page_reads + stats.range_reads
        };
        let before = reads();
        assert_eq!(found().await, ["7-of-many"], "the nearest of those on disk");
        assert!(reads() - before <= 2, "the list, and the variant");
    }
}
