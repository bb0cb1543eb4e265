//! Groups of stored responses that are members of more than one group.
//!
//! A response is stored in one group of the store, its home. Every further group that its origin
//! names has a *sentinel*: a small object in that group with a random generation, which the
//! response records. Purging the group removes the sentinel and so invalidates, in constant time,
//! every response that recorded it. If the store evicts a sentinel, the responses become misses;
//! none is served wrongly.
//!
//! Invariants: a response is valid only while every group it joined has the sentinel it joined by;
//! a response whose fetch overlaps an invalidation of a group that it is in is not stored. Threads:
//! shared by all workers.

use damelo::GroupId;

use crate::purge::marks::{PREFIX_MAX, Scope};
use crate::rules::NotStoredReason;
use crate::rules::group;
use crate::vault::entry::Membership;
use crate::vault::in_time::{Late, in_time};
use crate::vault::{Epoch, Vault};

/// Prefix of sentinel keys; no resource's key begins with it.
const SENTINEL: &[u8] = b"\x02group";

/// Most groups of one answer that are purged one by one. Each takes a mark of the store, of which
/// there are few enough for one origin to use up, so that what all others have stored would be
/// forgotten; and a write to the journal, for which a worker waits.
const INVALIDATED_MAX: usize = 128;

type SentinelKey = [u8; SENTINEL.len() + size_of::<u64>()];

impl Vault {
    /// True if none of the groups was purged since the response was stored.
    pub(crate) async fn all_groups_stand(&self, groups: &[Membership]) -> bool {
        for member in groups {
            if self.generation_of(member.group).await != Ok(Some(member.generation)) {
                return false;
            }
        }
        true
    }

    pub(super) async fn generation_of(&self, group: GroupId) -> Result<Option<u64>, Late> {
        let object = in_time(self.store.read(&sentinel_key(group))).await?.ok().flatten();
        Ok(object.and_then(|object| Some(u64::from_le_bytes(object.get(..)?.try_into().ok()?))))
    }

    /// Makes a response a member of these groups, by recording their sentinels.
    pub(crate) async fn join_groups(
        &self,
        names: &[Vec<u8>],
    ) -> Result<Vec<Membership>, NotStoredReason> {
        let mut joined = Vec::with_capacity(names.len());
        for name in names {
            joined.push(self.join_group(GroupId::of(name)).await?);
        }
        Ok(joined)
    }

    /// Makes a response a member of this group.
    pub(crate) async fn join_group(&self, group: GroupId) -> Result<Membership, NotStoredReason> {
        let key = sentinel_key(group);
        let _ordered = self.lock(&key).await;
        if let Some(generation) = self.generation_of(group).await? {
            return Ok(Membership { group, generation });
        }
        let generation = fastrand::u64(..);
        let made = self.store.create(&key, group, &generation.to_le_bytes()).await;
        made.map_err(|_| NotStoredReason::Store)?;
        Ok(Membership { group, generation })
    }

    /// Removes all responses in these groups of one host, including those being fetched, on account
    /// of a response fetched since `epoch`; where there are too many groups, all of that host.
    /// Returns the epoch in which that response may be stored; `None` if other groups were
    /// invalidated since.
    pub(crate) fn invalidate_groups_since(&self, names: &[Vec<u8>], epoch: Epoch) -> Option<Epoch> {
        let Some(first) = names.first() else { return Some(epoch) };
        if names.len() > INVALIDATED_MAX {
            // The time is of interest to soft purges only.
            return self.mark_urls_since(urls_of_host(group::host_of(first)), 0, epoch);
        }
        let groups = || names.iter().map(GroupId::of);
        let next = self.invalidated_groups.add_all_next(groups().map(GroupId::get), epoch.groups);
        for group in groups() {
            // The purge takes effect even if the journal could not be written.
            let _ = self.store.purge_group(group);
        }
        Some(Epoch { groups: next?, ..epoch })
    }
}

/// All URLs of a host, of both schemes.
fn urls_of_host(host: &[u8]) -> Vec<Scope> {
    let prefix = |scheme: &str| {
        let mut prefix = [scheme.as_bytes(), b"://", host, b"/"].concat();
        // Covers more, never less.
        prefix.truncate(PREFIX_MAX);
        Scope::Prefix(prefix)
    };
    ["http", "https"].map(prefix).into()
}

/// True for the key of a group's sentinel.
pub(super) fn is_sentinel(key: &[u8]) -> bool {
    key.starts_with(SENTINEL)
}

/// The key of a group's sentinel.
pub(crate) fn sentinel_key(group: GroupId) -> SentinelKey {
    let mut key = [0; size_of::<SentinelKey>()];
    let (prefix, number) = key.split_at_mut(SENTINEL.len());
    prefix.copy_from_slice(SENTINEL);
    number.copy_from_slice(&group.get().to_be_bytes());
    key
}
