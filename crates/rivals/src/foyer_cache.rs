//! foyer (latest release) as contestant: hybrid cache, block engine on one file with `O_DIRECT`.
//!
//! Configured to its advantage, as far as its public settings go: everything is admitted and
//! written at insertion, nothing is compressed, no statistics, `io_uring`; recovery and the
//! tombstone log are off, so deletes cost it no I/O and would not survive a crash. Its flush
//! buffers (two of the pool's size) come out of the same memory as its cache.
//!
//! Two traps, both of which made foyer look far worse than it is until they were avoided:
//! - Clients must not run on the runtime of foyer's flushers. An insert never yields, so clients
//!   keep every worker and the flushers drop nearly all objects.
//! - `Cache::clear` of 0.22.6 empties a shard without resetting its `usage`; from then on every
//!   insert evicts at once. Memory is emptied key by key instead, and its usage checked.

use std::path::Path;

use foyer::{
    BlockEngineConfig, DeviceBuilder, EvictionConfig, FileDeviceBuilder, HybridCache,
    HybridCacheBuilder, HybridCachePolicy, IoEngineConfig, LfuConfig, LruConfig,
    PsyncIoEngineConfig, RecoverMode, S3FifoConfig, SieveConfig, Spawner, StorageKey,
    UringIoEngineConfig,
};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use crate::contestant::{Contestant, Name, Outcome, judge};
use crate::workload::Workload;

/// foyer's in-memory eviction algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Eviction {
    /// Least recently used.
    Lru,
    /// w-TinyLFU, foyer's default.
    Lfu,
    /// S3-FIFO.
    S3fifo,
    /// SIEVE.
    Sieve,
}

impl Eviction {
    /// As foyer wants it.
    pub fn config(self) -> EvictionConfig {
        match self {
            Eviction::Lru => LruConfig::default().into(),
            Eviction::Lfu => LfuConfig::default().into(),
            Eviction::S3fifo => S3FifoConfig::default().into(),
            Eviction::Sieve => SieveConfig.into(),
        }
    }
}

/// What can be chosen for foyer on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub struct FoyerOptions {
    /// foyer: in-memory eviction.
    #[arg(long = "foyer-eviction", value_enum, default_value = "sieve")]
    pub eviction: Eviction,
    /// foyer: flushers.
    #[arg(long = "foyer-flushers", default_value_t = 2)]
    pub flushers: usize,
    /// foyer: flush buffer pool in MiB; twice this is taken from its memory.
    #[arg(long = "foyer-buffers", default_value_t = 8)]
    pub buffers_mib: usize,
    /// foyer: `pread` and `pwrite` on a pool of threads instead of `io_uring`.
    #[arg(long = "foyer-psync")]
    pub psync: bool,
    /// foyer: threads of its own runtime, and of that of the clients.
    #[arg(long = "foyer-workers", default_value_t = 2)]
    pub workers: usize,
}

/// A foyer hybrid cache.
pub struct Foyer {
    cache: HybridCache<u64, Vec<u8>>,
    /// Runs the clients; foyer has another, which it owns.
    clients: Runtime,
    workload: Workload,
    pace: Option<Pace>,
}

impl Foyer {
    /// Opens a cache on the file `path`.
    ///
    /// # Errors
    /// Whatever foyer reports.
    pub fn open(
        path: &Path,
        memory: usize,
        disk: usize,
        workload: Workload,
        options: FoyerOptions,
        variant: Name,
    ) -> foyer::Result<Foyer> {
        let clients = runtime(options.workers)?;
        let pool = options.buffers_mib << 20;
        let popular = if variant == Name::FoyerLoved { workload.popular() } else { u64::MAX };
        let parts = Parts { path, disk, memory: memory.saturating_sub(2 * pool), pool };
        let cache = hybrid(&clients, parts, options, |_: &u64| 8, move |object| *object < popular)?;
        let pace = (variant != Name::Foyer).then(|| Pace::new(pool));
        Ok(Foyer { cache, clients, workload, pace })
    }
}

/// Where a cache lies, and what it may take.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// Its file.
    pub path: &'a Path,
    /// Bytes of the file.
    pub disk: usize,
    /// Bytes of its memory, flush buffers not included.
    pub memory: usize,
    /// Bytes of the pool of flush buffers.
    pub pool: usize,
}

/// Makes a cache with a runtime of its own; `clients` is another's. `key_bytes`: what a key counts
/// in memory, `admits`: which stay there.
///
/// # Errors
/// Whatever foyer reports.
pub fn hybrid<K: StorageKey>(
    clients: &Runtime,
    parts: Parts<'_>,
    options: FoyerOptions,
    key_bytes: impl Fn(&K) -> usize + Send + Sync + 'static,
    admits: impl Fn(&K) -> bool + Send + Sync + 'static,
) -> foyer::Result<HybridCache<K, Vec<u8>>> {
    let spawner = Spawner::from(runtime(options.workers)?);
    let io: Box<dyn IoEngineConfig> = match options.psync {
        true => Box::new(PsyncIoEngineConfig::new()),
        false => Box::new(UringIoEngineConfig::new()),
    };
    clients.block_on(async {
        let device = FileDeviceBuilder::new(parts.path)
            .with_capacity(parts.disk)
            .with_direct(true)
            .build()?;
        let engine = BlockEngineConfig::new(device)
            .with_flushers(options.flushers)
            .with_buffer_pool_size(parts.pool)
            .with_submit_queue_size_threshold(2 * parts.pool);
        HybridCacheBuilder::new()
            .with_policy(HybridCachePolicy::WriteOnInsertion)
            .with_flush_on_close(false)
            .memory(parts.memory)
            .with_shards(8)
            .with_eviction_config(options.eviction.config())
            .with_weighter(move |key: &K, value: &Vec<u8>| key_bytes(key) + value.len())
            .with_filter(move |key: &K, _: &Vec<u8>| admits(key))
            .storage()
            .with_io_engine_config(io)
            .with_engine_config(engine)
            .with_recover_mode(RecoverMode::None)
            .with_spawner(spawner)
            .build()
            .await
    })
}

/// Lets no more be created between two waits for the flushers than half their buffers hold.
#[derive(Debug)]
pub struct Pace {
    /// Bytes created since the flushers were last waited for.
    unflushed: Mutex<u64>,
    bound: u64,
}

impl Pace {
    /// For a pool of so many bytes.
    #[must_use]
    pub fn new(pool: usize) -> Pace {
        Pace { unflushed: Mutex::new(0), bound: (pool / 2) as u64 }
    }

    /// To be waited for before so many bytes are created. Everybody waits together: the lock is
    /// held meanwhile.
    pub async fn wait<K: StorageKey>(&self, cache: &HybridCache<K, Vec<u8>>, bytes: usize) {
        let mut unflushed = self.unflushed.lock().await;
        *unflushed += bytes as u64;
        if *unflushed >= self.bound {
            cache.storage().wait().await;
            *unflushed = bytes as u64;
        }
    }
}

/// A runtime with so many threads.
///
/// # Errors
/// Whatever the system reports.
pub fn runtime(workers: usize) -> foyer::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(workers).enable_all().build().map_err(foyer::Error::io_error)
}

impl Contestant for Foyer {
    async fn create(&self, object: u64, value: &[u8]) -> Outcome {
        if let Some(pace) = &self.pace {
            pace.wait(&self.cache, value.len()).await;
        }
        drop(self.cache.insert(object, value.to_vec()));
        Outcome::Done
    }

    async fn read(&self, object: u64) -> Outcome {
        match self.cache.get(&object).await {
            Ok(entry) => {
                judge(&self.workload, object, entry.as_ref().map(|e| e.value().as_slice()))
            }
            Err(_) => Outcome::Failed,
        }
    }

    async fn delete(&self, object: u64) -> Outcome {
        self.cache.remove(&object);
        Outcome::Done
    }

    fn settle(&self) {
        self.clients.block_on(self.cache.storage().wait());
        crate::drive::sync_file_systems();
    }

    fn forget_memory(&self) {
        for object in 0..self.workload.objects {
            drop(self.cache.memory().remove(&object));
        }
        let left = self.cache.memory().usage();
        assert_eq!(left, 0, "foyer still counts {left} bytes in memory after all were removed");
    }

    fn runtime(&self) -> Option<&Runtime> {
        Some(&self.clients)
    }
}
