//! The store of this repository as contestant, through its blocking calls.

use std::path::Path;

use damelo::{ByteSize, Config, GroupId, OpenError, Store};

use crate::contestant::{Contestant, Outcome, judge};
use crate::workload::Workload;

/// A store on one preallocated file.
pub struct Damelo {
    store: Store,
    workload: Workload,
}

impl Damelo {
    /// Makes a store on the file `path` and loves the popular groups.
    ///
    /// # Errors
    /// Whatever the store reports.
    pub fn open(
        path: &Path,
        memory: u64,
        disk: u64,
        workload: Workload,
    ) -> Result<Damelo, OpenError> {
        let damelo = Damelo::open_unloved(path, memory, disk, workload)?;
        for group in 0..workload.loved_groups() {
            damelo.store.love(GroupId::new(group));
        }
        Ok(damelo)
    }

    /// Makes a store on the file `path` and leaves all groups neutral.
    ///
    /// # Errors
    /// Whatever the store reports.
    pub fn open_unloved(
        path: &Path,
        memory: u64,
        disk: u64,
        workload: Workload,
    ) -> Result<Damelo, OpenError> {
        let mut config = Config::new(path, ByteSize::new(disk));
        config.memory = ByteSize::new(memory);
        config.seed = Some(workload.seed);
        Ok(Damelo { store: Store::open(config)?, workload })
    }

    /// Reads through the asynchronous call; tells as well whether it came from memory.
    pub async fn read_async(&self, object: u64) -> (Outcome, bool) {
        match self.store.read(&object.to_be_bytes()).await {
            Ok(found) => {
                let from_memory = found.as_ref().is_some_and(|object| object.from_memory());
                (judge(&self.workload, object, found.as_deref()), from_memory)
            }
            Err(_) => (Outcome::Failed, false),
        }
    }

    /// The store itself, for benchmarks that need more than the fifteen do.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl Contestant for Damelo {
    async fn create(&self, object: u64, value: &[u8]) -> Outcome {
        let group = GroupId::new(self.workload.group(object));
        match self.store.create(&object.to_be_bytes(), group, value).wait() {
            Ok(()) => Outcome::Done,
            Err(_) => Outcome::Failed,
        }
    }

    async fn read(&self, object: u64) -> Outcome {
        match self.store.read(&object.to_be_bytes()).wait() {
            Ok(found) => judge(&self.workload, object, found.as_deref()),
            Err(_) => Outcome::Failed,
        }
    }

    async fn delete(&self, object: u64) -> Outcome {
        match self.store.remove(&object.to_be_bytes()) {
            Ok(true) => Outcome::Done,
            Ok(false) => Outcome::Missing,
            Err(_) => Outcome::Failed,
        }
    }

    fn settle(&self) {
        if let Err(e) = self.store.sync() {
            eprintln!("damelo: sync: {e}");
        }
    }

    fn forget_memory(&self) {
        self.store.drop_memory();
    }
}
