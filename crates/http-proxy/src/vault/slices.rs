//! Slices of a resource in the store: aligned parts that lie by themselves and go together.
//!
//! Invariant: every slice remembers the sentinel of its resource's slices, so that removing that
//! one forgets them all. Threads: as the vault.

use bytes::{BufMut, Bytes};
use damelo::{CreateOptions, GroupId};

use super::{Epoch, FoundBody, Lies, Probed, Target, Vault};
use crate::entry::{Entry, StoredResponse};
use crate::metrics::Counters;
use crate::rules::NotStoredReason;
use crate::rules::group::Groups;
use crate::rules::parts::Slices;

/// A slice of a resource.
pub(crate) struct Slice {
    pub(crate) response: StoredResponse,
    pub(crate) bytes: Bytes,
    pub(crate) lies: Lies,
}

impl Vault {
    /// A slice of a resource, if it is stored.
    pub(crate) async fn slice(
        &self,
        primary: &[u8],
        slices: Slices,
        index: u64,
        counters: &Counters,
    ) -> Option<Slice> {
        let key = slice_key(primary, slices, index);
        let Probed {
            entry: Entry::Response(response), body: FoundBody::Whole(bytes), lies, ..
        } = self.probe(&key, true, counters).await?
        else {
            return None;
        };
        Some(Slice { response, bytes, lies })
    }

    /// Stores a slice fetched since `epoch`.
    pub(crate) async fn store_slice(
        &self,
        target: &Target,
        epoch: Epoch,
        slice: (Slices, u64),
        mut response: StoredResponse,
        groups: &Groups,
        bytes: &Bytes,
    ) -> Result<(), NotStoredReason> {
        let primary = &target.primary;
        response.groups = self.join_groups(&groups.others).await?;
        response.groups.push(self.join_group(slices_group(primary)).await?);
        let mut metadata = response.encode().ok_or(NotStoredReason::HeadersTooLarge)?;
        let stamp = epoch.stamp(&response).ok_or(NotStoredReason::HeadersTooLarge)?;
        stamp.append(&mut metadata);
        let options = CreateOptions { metadata: &metadata, ..CreateOptions::default() };
        let key = slice_key(primary, slice.0, slice.1);
        let _ordered = self.lock(primary).await;
        if !self.is_current(epoch) {
            return Err(NotStoredReason::Invalidated);
        }
        let group = GroupId::of(&groups.home);
        let made = self.store.create_with(&key, group, bytes, options).await;
        made.map_err(|_| NotStoredReason::Store)
    }
}

/// Group of a sentinel that all slices of a resource remember, so that they go together.
pub(super) fn slices_group(primary: &[u8]) -> GroupId {
    GroupId::of([b"slices\0", primary].concat())
}

/// Where a slice lies.
pub(crate) fn slice_key(primary: &[u8], slices: Slices, index: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(primary.len() + 17);
    key.extend_from_slice(primary);
    key.push(3);
    key.put_u64(slices.slice_bytes);
    key.put_u64(index);
    key
}
