//! Slices of a resource in the store: aligned parts, each stored as an object, removed together.
//!
//! Invariant: every slice records the sentinel of its resource's slices, so that removing the
//! sentinel invalidates all of them. Threads: as the vault.

use bytes::{BufMut, Bytes};
use damelo::GroupId;

use super::part_reads::cost_of_part;
use super::{Epoch, FoundBody, Placement, Probed, Target, Vault};
use crate::metrics::Counters;
use crate::rules::group::Groups;
use crate::rules::parts::Slices;
use crate::rules::{NotStoredReason, Policy};
use crate::vault::entry::{Entry, StoredResponse};
use crate::vault::groups::sentinel_key;
use crate::vault::insertion::Insertion;

/// A slice of a resource, and the requested range within it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) slices: Slices,
    pub(crate) index: u64,
    /// Start of the range within the slice.
    start: u64,
    /// End (exclusive) of the range, at most the slice's length.
    end: u64,
}

impl Stretch {
    /// The range within a slice that bytes `first` to `end` (exclusive) of the resource cover.
    pub(crate) fn of(slices: Slices, index: u64, first: u64, end: u64) -> Stretch {
        let before = slices.bounds(index).0;
        let within = |offset: u64| offset.saturating_sub(before).min(slices.slice_bytes);
        Stretch { slices, index, start: within(first), end: within(end) }
    }

    pub(crate) fn whole(slices: Slices, index: u64) -> Stretch {
        Stretch { slices, index, start: 0, end: slices.slice_bytes }
    }

    /// True if the range may be read without the rest of its slice; the slice does not stay in
    /// memory then.
    pub(crate) fn is_small(&self) -> bool {
        cost_of_part(self.start, self.end, self.slices.slice_bytes).is_some()
    }
}

/// What is known of a slice without its bytes.
pub(crate) enum SlicePolicy {
    Missing,
    /// It is on disk, which was not to be read.
    OnDisk,
    Known(Policy),
}

/// A stored slice, or the stretch of it that its response's part states.
pub(crate) struct Slice {
    pub(crate) response: StoredResponse,
    pub(crate) bytes: Bytes,
    pub(crate) placement: Placement,
}

impl Vault {
    /// Reads a slice of a resource, or at least the requested range of it, if it is stored.
    pub(crate) async fn slice(
        &self,
        primary: &[u8],
        stretch: Stretch,
        counters: &Counters,
    ) -> Option<Slice> {
        let generation = self.slices_generation(primary).await?;
        let key = key_in(primary, stretch.slices, generation, stretch.index);
        let read = self.store.read(&key);
        let wanted = stretch.start..stretch.end;
        let whole_bytes = stretch.slices.slice_bytes;
        if !read.is_ready() && self.whole_reads.parts.suffices(&key, wanted, whole_bytes) {
            return self.part_of_slice(&key, stretch, counters).await;
        }
        let Probed {
            entry: Entry::Response(response),
            body: FoundBody::Whole(bytes),
            placement,
            ..
        } = self.probe_by(read, &key, true, counters).await?
        else {
            return None;
        };
        Some(Slice { response, bytes, placement })
    }

    async fn part_of_slice(
        &self,
        key: &[u8],
        stretch: Stretch,
        counters: &Counters,
    ) -> Option<Slice> {
        let range = match self.store.read_range(key, stretch.start..stretch.end).await {
            Ok(range) => range?,
            Err(_) => {
                counters.store_errors.one();
                return None;
            }
        };
        let blob = Bytes::copy_from_slice(range.metadata());
        let (entry, placement) = self.judge(key, &blob, (range.group(), false), counters).await?;
        let Entry::Response(mut response) = entry else { return None };
        let part = response.part.as_mut()?;
        part.start += range.offset();
        part.end = part.start + range.len() as u64;
        Some(Slice { response, bytes: range.into(), placement })
    }

    /// True if slices of a resource were stored and not removed since; each may have been evicted.
    /// Costs no I/O.
    pub(crate) fn has_slices(&self, primary: &[u8]) -> bool {
        self.may_contain(&sentinel_key(slices_group(primary)))
    }

    /// The generation of a resource's slices: a component of their keys until they are removed.
    pub(crate) async fn slices_generation(&self, primary: &[u8]) -> Option<u64> {
        self.has_slices(primary).then_some(())?;
        self.generation_of(slices_group(primary)).await
    }

    /// False if this slice is certainly not stored. Costs no I/O.
    pub(crate) fn may_have_slice(
        &self,
        primary: &[u8],
        slices: Slices,
        generation: u64,
        index: u64,
    ) -> bool {
        self.may_contain(&key_in(primary, slices, generation, index))
    }

    /// The caching properties of a slice, from disk only if `from_disk`.
    pub(crate) async fn slice_policy(
        &self,
        primary: &[u8],
        slices: Slices,
        generation: u64,
        index: u64,
        from_disk: bool,
    ) -> SlicePolicy {
        let key = key_in(primary, slices, generation, index);
        let looking = self.store.lookup(&key);
        if !from_disk && self.may_contain(&key) && !looking.is_ready() {
            return SlicePolicy::OnDisk;
        }
        let info = looking.await.ok().flatten();
        match info.and_then(|info| self.standing_of(&key, info)) {
            Some((_, response)) if self.all_groups_stand(&response.groups).await => {
                SlicePolicy::Known(response.policy)
            }
            _ => SlicePolicy::Missing,
        }
    }

    /// Keys of the resource's slices that are stored, of the first `most`; a few may not be. Costs
    /// a look-up in memory each, and at most one read.
    pub(crate) async fn keys_of_slices(
        &self,
        primary: &[u8],
        slices: Slices,
        most: u64,
    ) -> Vec<Vec<u8>> {
        let Some(generation) = self.slices_generation(primary).await else { return Vec::new() };
        let keys = (0..most).map(|index| key_in(primary, slices, generation, index));
        keys.filter(|key| self.may_contain(key)).collect()
    }

    /// Begins to store a slice fetched since `epoch`.
    pub(crate) async fn begin_slice(
        &self,
        target: &Target,
        epoch: Epoch,
        slices: Slices,
        index: u64,
        mut response: StoredResponse,
        groups: &Groups,
    ) -> Result<Box<Insertion>, NotStoredReason> {
        let primary = &target.primary;
        response.groups = self.join_groups(&groups.others).await?;
        let together = self.join_group(slices_group(primary)).await?;
        response.groups.push(together);
        let encoded = response.encode().ok_or(NotStoredReason::HeadersTooLarge)?;
        let stamp = epoch.stamp(&response)?;
        let key = key_in(primary, slices, together.generation, index);
        let group = GroupId::of(&groups.home);
        // No length limit here: a slice is one object.
        let mut insertion = Insertion::new(key, epoch, group, response, stamp, u64::MAX);
        insertion.encoded = Some(encoded);
        Ok(insertion)
    }
}

/// Group of the sentinel that all slices of a resource record, so that they are removed together.
pub(super) fn slices_group(primary: &[u8]) -> GroupId {
    GroupId::of([b"slices\0", primary].concat())
}

/// The key of a slice, given the generation of the slices' sentinel.
fn key_in(primary: &[u8], slices: Slices, generation: u64, index: u64) -> Vec<u8> {
    let mut key = slice_key(primary, slices, index);
    key.put_u64(generation);
    key
}

/// A key that identifies a slice independently of the sentinel's generation.
pub(crate) fn slice_key(primary: &[u8], slices: Slices, index: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(primary.len() + 25);
    key.extend_from_slice(primary);
    key.push(3);
    key.put_u64(slices.slice_bytes);
    key.put_u64(index);
    key
}
