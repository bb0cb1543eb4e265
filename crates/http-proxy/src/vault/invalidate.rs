//! Forgetting: one response, or a resource with all that belongs to it, for good.
//!
//! Invariant: when a purge or an invalidation has returned, nothing of the resource that was fetched
//! before it is found any more. What is being fetched learns of it by the epoch; what is just being
//! committed is waited for, since it may be visible before it learns. Threads: as the vault.

use std::hash::BuildHasher as _;

use super::Vault;
use super::slices::slices_group;
use crate::vault::groups::sentinel_key;

impl Vault {
    /// From now on no fill of this resource that has begun leaves anything behind.
    fn end_epoch(&self, primary: &[u8]) {
        let resource = self.hasher.hash_one(primary);
        self.stripe_of(resource).invalidated.add(resource);
    }

    /// Forgets a resource for good, and says how many responses it had.
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
        // All slices together count as one.
        let had_slices = self.store.remove(&sentinel_key(slices_group(primary)))?;
        Ok(if was_there { variants } else { 0 } + u64::from(had_slices))
    }

    /// Forgets one stored response.
    pub(crate) fn forget(&self, key: &[u8]) {
        // A store that cannot remove is closed or broken, and serves nothing either. A body that
        // lay apart is unreachable now, and goes when the ring comes round.
        let _ = self.store.remove(key);
    }

    /// Forgets all slices of a resource.
    pub(crate) fn forget_slices(&self, primary: &[u8]) {
        self.forget(&sentinel_key(slices_group(primary)));
    }

    /// Forgets a resource with all its variants and slices, and whatever is being fetched for it now.
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

    /// Whether this waits while something of `KEY` is being committed, and changes nothing before.
    async fn waits(vault: &Vault, forgetting: impl Future) {
        vault.store.create(KEY, damelo::GroupId::new(1), b"x").await.unwrap();
        let begun = vault.epoch(KEY);
        let committing = vault.lock(KEY).await;
        let mut forgetting = pin!(forgetting);
        let polled = forgetting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "it does not wait");
        assert!(!vault.is_current(begun), "what was begun before must know already");
        // What a commit does last, too late to be asked for its epoch before.
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
