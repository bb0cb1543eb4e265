//! Permanent removal: of one response, or of a resource with all its variants and slices.
//!
//! Invariant: after a purge or an invalidation has returned, no lookup finds a response of the
//! resource that was fetched before it. Fetches under way notice by their epoch. Commits under way
//! are waited for, since they may become visible before they check the epoch. Threads: as the
//! vault.

use std::hash::BuildHasher as _;

use super::Vault;
use super::slices::slices_group;
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
            Some((_, variants)) => {
                variants.iter().filter(|key| self.store.may_contain(key)).count() as u64
            }
            None => 1,
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

    use damelo::{ByteSize, Config, Store};

    use super::*;
    use crate::config::{ProxyConfig, Target};
    use crate::purge::ledger::Ledger;

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
        let size = ByteSize::new(64 << 20);
        let mut config = Config::new(directory.path().join("store"), size);
        config.memory = ByteSize::new(8 << 20);
        let store = Store::open(config).unwrap();
        store.wait_recovered();
        let ledger = Ledger::open(store.clone()).unwrap();
        let config = ProxyConfig::new("127.0.0.1:0".parse().unwrap(), Target::Demo);
        let vault = Vault::new(store, ledger, &config);
        waits(&vault, vault.purge_url(KEY)).await;
        waits(&vault, vault.invalidate(KEY)).await;
    }
}
