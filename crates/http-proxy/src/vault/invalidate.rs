//! Permanent removal: of one response, or of a resource with all its variants and slices. What may
//! have changed or not is made stale instead.
//!
//! Invariant: after a purge or an invalidation has returned, no lookup finds a response of the
//! resource that was fetched before it, or a fresh one after a doubt. Fetches under way notice by
//! their epoch. Commits under way are waited for, since they may become visible before they check
//! the epoch. Threads: as the vault.

use std::hash::BuildHasher as _;

use bytes::Bytes;

use super::in_time::in_time;
use super::slices::slices_group;
use super::{Epoch, Late, Vault};
use crate::metrics::Counters;
use crate::purge::PurgeKind;
use crate::purge::marks::Scope;
use crate::vault::entry::Entry;
use crate::vault::groups::sentinel_key;

impl Vault {
    /// Ends the epoch: no fill of this resource that has already begun will leave anything stored.
    fn end_epoch(&self, primary: &[u8]) {
        let resource = self.hasher.hash_one(primary);
        self.stripe_of(resource).invalidated.add(resource);
    }

    /// Removes a resource and returns how many responses it had.
    pub(crate) async fn purge_url(&self, primary: &[u8]) -> Result<u64, damelo::PurgeError> {
        let variants = match self.read_marker(primary).await {
            Ok(Some((_, variants))) => {
                variants.iter().filter(|key| self.store.may_contain(key)).count() as u64
            }
            Ok(None) | Err(_) => 1,
        };
        self.end_epoch(primary);
        let _ordered = self.lock(primary).await;
        let was_there = self.store.remove(primary)?;
        // All slices together count as one response.
        let had_slices = self.store.remove(&sentinel_key(slices_group(primary)))?;
        Ok(if was_there { variants } else { 0 } + u64::from(had_slices))
    }

    /// Removes one stored response.
    pub(crate) fn forget(&self, key: &[u8]) {
        // A store that cannot remove is closed or broken, and serves nothing either. A body stored
        // apart becomes unreachable, and its space is reclaimed when the ring wraps around.
        let _ = self.store.remove(key);
    }

    /// Removes all slices of a resource.
    pub(crate) fn forget_slices(&self, primary: &[u8]) {
        self.forget(&sentinel_key(slices_group(primary)));
    }

    /// Removes a resource with all its variants and slices, and keeps fetches under way from being
    /// stored.
    pub(crate) async fn invalidate(&self, primary: &[u8]) {
        self.end_epoch(primary);
        self.forget_all_of(primary).await;
    }

    /// As [`Vault::invalidate`], on account of a response fetched since `epoch`. Returns the epoch
    /// in which that response may be stored; `None` if something else has ended `epoch`.
    pub(crate) async fn invalidate_since(&self, primary: &[u8], epoch: Epoch) -> Option<Epoch> {
        let resource = self.hasher.hash_one(primary);
        let count = self.stripe_of(resource).invalidated.add_next(resource, epoch.count);
        self.forget_all_of(primary).await;
        Some(Epoch { count: count?, ..epoch })
    }

    /// What may have changed a resource, or not, has come to no answer: what is stored of it is
    /// used no more without the origin's word, and may stand in where the origin gives none.
    /// Fetches under way are not stored. Slices are removed.
    pub(crate) async fn doubt(&self, primary: &[u8], now_s: u64, counters: &Counters) {
        self.end_epoch(primary);
        let _ordered = self.lock(primary).await;
        let variants = self.variants_of(primary).await;
        for key in variants.iter().map(Vec::as_slice).chain([primary]) {
            if !self.make_stale(key, now_s, counters).await {
                self.forget(key);
            }
        }
        self.forget_slices(primary);
    }

    /// Ends the freshness of what lies under a key; false if that is not possible. Its stamp stays:
    /// purges cover it as before.
    async fn make_stale(&self, key: &[u8], now_s: u64, counters: &Counters) -> bool {
        let info = match self.lying(key).await {
            Ok(Some(info)) => info,
            Ok(None) => return true,
            Err(Late) => return false,
        };
        let blob = Bytes::copy_from_slice(&info.metadata);
        let place = (info.group, info.resident);
        let Some((mut entry, at)) = self.judge(key, &blob, place, counters).await else {
            return false;
        };
        entry.end_freshness(now_s);
        let Entry::Response(mut response) = entry else { return true };
        response.policy.stale_while_revalidate_ms = 0;
        let Some(mut metadata) = response.encode() else { return false };
        at.stamp.append(&mut metadata);
        matches!(in_time(self.store.set_metadata(key, &metadata)).await, Ok(Ok(true)))
    }

    /// Purges what these scopes cover under all keys that may hold it, on account of a response
    /// fetched since `epoch`. Returns the epoch in which that response may be stored; `None` if
    /// anything else was purged since. The marks become durable with the ledger's next write.
    pub(crate) fn mark_urls_since(
        &self,
        urls: Vec<Scope>,
        now_s: u64,
        epoch: Epoch,
    ) -> Option<Epoch> {
        let moment = self.ledger.set_since(urls, PurgeKind::Hard, now_s, epoch.moment)?;
        Some(Epoch { moment: Some(moment), ..epoch })
    }

    async fn forget_all_of(&self, primary: &[u8]) {
        let _ordered = self.lock(primary).await;
        self.forget(primary);
        self.forget_slices(primary);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use damelo::GroupId;

    use super::*;
    use crate::rules::group::{Rule, full_name};
    use crate::vault::tests::vault_in;

    /// Checks that `forgetting` waits while a commit under `KEY` is under way, and changes nothing
    /// before.
    async fn waits(vault: &Vault, forgetting: impl Future) {
        vault.store.create(KEY, damelo::GroupId::new(1), b"x").await.unwrap();
        let begun = vault.epoch(KEY);
        let committing = vault.lock(KEY).await;
        let mut forgetting = pin!(forgetting);
        let polled = forgetting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "it does not wait");
        assert!(!vault.is_current(begun), "what was begun before must know already");
        // The last step of a commit, after its epoch check.
        vault.store.create(KEY, damelo::GroupId::new(1), b"y").await.unwrap();
        drop(committing);
        forgetting.await;
        assert!(!vault.may_contain(KEY), "nothing is left when it returns");
    }

    const KEY: &[u8] = b"http://a/";

    #[tokio::test]
    async fn what_is_being_committed_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let vault = vault_in(directory.path());
        waits(&vault, vault.purge_url(KEY)).await;
        waits(&vault, vault.invalidate(KEY)).await;
        waits(&vault, vault.invalidate_since(KEY, vault.epoch(KEY))).await;
    }

    /// Two responses to POSTs, the later of which invalidates while the earlier still waits for a
    /// commit: what the earlier brought is older than the later one's change.
    #[tokio::test]
    async fn an_invalidation_during_ones_own_counts() {
        let directory = tempfile::tempdir().unwrap();
        let vault = vault_in(directory.path());
        let (earlier, later) = (vault.epoch(KEY), vault.epoch(KEY));
        let committing = vault.lock(KEY).await;
        let mut first = pin!(vault.invalidate_since(KEY, earlier));
        let mut second = pin!(vault.invalidate_since(KEY, later));
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(committing);
        let kept = first.await.expect("its own");
        assert!(!vault.is_current(kept), "the second came after it");
        assert_eq!(second.await, None, "the first came between");
        let groups = [b"g".to_vec()];
        let kept = vault.invalidate_since(KEY, vault.epoch(KEY)).await.expect("its own");
        vault.invalidate_groups_since(&groups, kept);
        assert_eq!(vault.invalidate_groups_since(&groups, kept), None, "another's came between");
        let kept = vault.invalidate_groups_since(&groups, vault.epoch(KEY)).expect("its own");
        assert!(vault.is_current(kept));
    }

    /// An origin that names very many groups takes no marks that others need, and keeps nothing of
    /// theirs from being stored.
    #[tokio::test]
    async fn very_many_groups_are_all_of_their_host() {
        let directory = tempfile::tempdir().unwrap();
        let vault = vault_in(directory.path());
        let names = |count: usize| -> Vec<Vec<u8>> {
            let name = |n| full_name(Rule::Named, "a", format!("g{n}").as_bytes());
            (0..count).map(name).collect()
        };
        let others = vault.epoch(b"http://b/");
        vault.invalidate_groups_since(&names(100), vault.epoch(KEY)).expect("its own");
        assert_eq!(vault.store.stats().purge_marks, 100);
        assert_eq!(vault.ledger.with_marks(|marks| marks.len()), 0);
        let kept = vault.invalidate_groups_since(&names(10_000), vault.epoch(KEY));
        assert!(vault.is_current(kept.expect("its own")));
        assert_eq!(vault.store.stats().purge_marks, 100, "one for each would empty the cache");
        assert_eq!(vault.ledger.with_marks(|marks| marks.len()), 2);
        let groups = [GroupId::of("b")];
        assert!(
            !groups.iter().any(|group| vault.invalidated_groups.has(group.get(), others.groups))
        );
    }

    #[tokio::test]
    async fn a_purge_before_ones_own_marks_counts() {
        let directory = tempfile::tempdir().unwrap();
        let vault = vault_in(directory.path());
        let (earlier, later) = (vault.epoch(KEY), vault.epoch(KEY));
        let kept = vault.mark_urls_since(vec![Scope::Url(1)], 0, earlier).expect("its own");
        assert_eq!(kept.moment, vault.epoch(KEY).moment);
        assert_eq!(vault.mark_urls_since(vec![Scope::Url(1)], 0, later), None);
    }
}
