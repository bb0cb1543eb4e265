//! The contestants of `rivals loads` behind one interface, as an embedder would call them.
//!
//! foyer has neither expiry nor groups: the value says when it expires and whoever reads it looks,
//! and a group is purged by removing its objects. Which of its reads memory answered is asked
//! beforehand for one read of sixteen, since an entry keeps saying that it once came from disk.

use std::error::Error;
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use damelo::{ByteSize, Config, CreateOptions, GroupId, Store};
use foyer::HybridCache;
use tokio::runtime::Runtime;

use super::value;
use crate::foyer_cache::{FoyerOptions, Pace, Parts, hybrid};
use crate::workload::mix;

/// One read of so many is asked about beforehand.
const SAMPLE: u64 = 16;

/// What a read came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Missing,
    /// The value, as far as is known not from memory.
    Somewhere,
    /// The value, from memory; counts for so many reads.
    Memory(u64),
    /// Refused or failed.
    Failed,
}

/// What is written, beside its key.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    /// The value.
    pub value: &'a [u8],
    /// Its group.
    pub group: u64,
    /// When it expires, in seconds since 1970; 0: never.
    pub expires_s: u32,
}

/// A cache under test. Operations may be called from any thread.
pub trait Cache: Send + Sync + 'static {
    /// Reads; what is there is shown to `look`.
    fn read(
        &self,
        key: &[u8],
        look: impl FnMut(&[u8]) + Send,
    ) -> impl Future<Output = Found> + Send;
    /// Creates; false if it was refused.
    fn create(&self, key: &[u8], new: New<'_>) -> impl Future<Output = bool> + Send;
    /// Removes.
    fn remove(&self, key: &[u8]) -> impl Future<Output = bool> + Send;
    /// Purges a group; false if it cannot, and its objects are to be removed one by one.
    fn purge(&self, group: u64) -> impl Future<Output = bool> + Send;
    /// Waits until what was created is on disk.
    fn settle(&self) -> impl Future<Output = ()> + Send;
    /// What it counts itself.
    fn facts(&self) -> Vec<(String, f64)> {
        Vec::new()
    }
}

/// The store of this repository.
pub struct Damelo {
    store: Store,
    /// Its calls are waited for on the thread that makes them, not awaited.
    blocking: bool,
}

impl Damelo {
    /// Makes a store on the file `path`, everything by default.
    ///
    /// # Errors
    /// Whatever the store reports.
    pub fn open(
        path: &Path,
        memory: u64,
        disk: u64,
        seed: u64,
        blocking: bool,
    ) -> Result<Damelo, Box<dyn Error>> {
        let mut config = Config::new(path, ByteSize::new(disk));
        config.memory = ByteSize::new(memory);
        config.seed = Some(seed);
        Ok(Damelo { store: Store::open(config)?, blocking })
    }
}

impl Cache for Damelo {
    async fn read(&self, key: &[u8], mut look: impl FnMut(&[u8]) + Send) -> Found {
        let read = self.store.read(key);
        match if self.blocking { read.wait() } else { read.await } {
            Ok(None) => Found::Missing,
            Ok(Some(object)) => {
                look(&object);
                if object.from_memory() { Found::Memory(1) } else { Found::Somewhere }
            }
            Err(_) => Found::Failed,
        }
    }

    async fn create(&self, key: &[u8], new: New<'_>) -> bool {
        let expires_unix_s = (new.expires_s > 0).then_some(u64::from(new.expires_s));
        let options = CreateOptions { expires_unix_s, ..CreateOptions::default() };
        let create = self.store.create_with(key, GroupId::new(new.group), new.value, options);
        if self.blocking { create.wait() } else { create.await }.is_ok()
    }

    async fn remove(&self, key: &[u8]) -> bool {
        self.store.remove(key).is_ok()
    }

    async fn purge(&self, group: u64) -> bool {
        self.store.purge_group(GroupId::new(group)).is_ok()
    }

    async fn settle(&self) {
        if let Err(e) = self.store.sync() {
            eprintln!("damelo: sync: {e}");
        }
    }

    fn facts(&self) -> Vec<(String, f64)> {
        let metrics = self.store.stats().metrics();
        let named = |metric: damelo::Metric| {
            let labels: Vec<&str> = metric.labels.iter().map(|(_, value)| value.as_str()).collect();
            ([&[metric.name], &labels[..]].concat().join(" "), metric.value)
        };
        metrics.into_iter().map(named).filter(|(_, value)| *value != 0.0).collect()
    }
}

/// A foyer hybrid cache whose keys are bytes.
pub struct Foyer {
    cache: HybridCache<Vec<u8>, Vec<u8>>,
    reads: AtomicU64,
    pace: Option<Pace>,
}

impl Foyer {
    /// Makes a cache on the file `path`; a paced one waits for its flushers before it would overrun
    /// them.
    ///
    /// # Errors
    /// Whatever foyer reports.
    pub fn open(
        path: &Path,
        memory: u64,
        disk: u64,
        (options, paced): (FoyerOptions, bool),
        clients: &Runtime,
    ) -> Result<Foyer, Box<dyn Error>> {
        // Of a small memory its buffers would leave nothing.
        let pool = (options.buffers_mib << 20).min(memory as usize / 8);
        let (disk, memory) = (disk as usize, memory as usize - 2 * pool);
        let parts = Parts { path, disk, memory, pool };
        let cache = hybrid(clients, parts, options, |key: &Vec<u8>| key.len(), |_| true)?;
        Ok(Foyer { cache, reads: AtomicU64::new(0), pace: paced.then(|| Pace::new(pool)) })
    }
}

impl Cache for Foyer {
    async fn read(&self, key: &[u8], mut look: impl FnMut(&[u8]) + Send) -> Found {
        let key = key.to_vec();
        // Not every sixteenth: which object is asked for may depend on whose turn it is.
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        let sampled = mix(number).is_multiple_of(SAMPLE);
        let in_memory = sampled && self.cache.memory().contains(&key);
        match self.cache.get(&key).await {
            Ok(None) => Found::Missing,
            Ok(Some(entry)) if value::is_expired(entry.value()) => {
                self.cache.remove(&key);
                Found::Missing
            }
            Ok(Some(entry)) => {
                look(entry.value());
                if in_memory { Found::Memory(SAMPLE) } else { Found::Somewhere }
            }
            Err(_) => Found::Failed,
        }
    }

    async fn create(&self, key: &[u8], new: New<'_>) -> bool {
        if let Some(pace) = &self.pace {
            pace.wait(&self.cache, key.len() + new.value.len()).await;
        }
        drop(self.cache.insert(key.to_vec(), new.value.to_vec()));
        true
    }

    async fn remove(&self, key: &[u8]) -> bool {
        self.cache.remove(&key.to_vec());
        true
    }

    async fn purge(&self, _: u64) -> bool {
        false
    }

    async fn settle(&self) {
        self.cache.storage().wait().await;
    }
}
