//! Variants of a resource: the marker that lists them, and their keys.
//!
//! Invariants: a marker that replaces one with other names gets a new generation, so that the
//! former's variants become unreachable; at most `variants_max` are listed. Threads: as the vault.

use bytes::{BufMut, Bytes};
use damelo::{CreateOptions, GroupId};
use http::HeaderMap;
use http::header::HeaderName;

use super::in_time::{Late, in_time};
use super::{Found, Placement, Vault, decode};
use crate::metrics::Counters;
use crate::purge::marks::Standing;
use crate::purge::stamp::Stamp;
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
        request: &HeaderMap,
        group: GroupId,
    ) -> Result<Vec<u8>, NotStoredReason> {
        if self.may_contain(primary) && self.read_marker(primary).await?.is_some() {
            return self.place_variant(primary, Vec::new(), request, group).await;
        }
        Ok(primary.to_vec())
    }

    /// Adds this variant to the marker's list, and returns the variant's key.
    pub(super) async fn place_variant(
        &self,
        primary: &[u8],
        names: Vec<HeaderName>,
        request: &HeaderMap,
        group: GroupId,
    ) -> Result<Vec<u8>, NotStoredReason> {
        let _ordered = self.lock(primary).await;
        let (marker, mut variants) = match self.read_marker(primary).await? {
            // A marker with at least these names serves this response too.
            Some((marker, variants)) if names.iter().all(|n| marker.names.contains(n)) => {
                (marker, variants)
            }
            other => (new_marker(names, other.map(|(marker, _)| marker)), Vec::new()),
        };
        let key = variant_key(primary, &marker, request, &self.caching.load())
            .ok_or(NotStoredReason::HeadersTooLarge)?;
        if variants.contains(&key) {
            return Ok(key);
        }
        variants.push(key.clone());
        while variants.len() > self.caching.load().variants_max.max(1) {
            // The oldest variant is removed; if the removal fails, it is no longer listed.
            let _ = self.store.remove(&variants.remove(0));
        }
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

    /// The stored variants of a resource without their bodies, newest first, at most `max`.
    pub(crate) async fn variants(&self, primary: &[u8], max: usize) -> Vec<Variant> {
        let Ok(Some((_, keys))) = self.read_marker(primary).await else { return Vec::new() };
        let mut variants = Vec::new();
        for key in keys.into_iter().rev().take(max) {
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
