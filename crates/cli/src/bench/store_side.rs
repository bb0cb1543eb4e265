//! The store side of the microbenchmarks. Popular groups are hinted as loved and the others as
//! hated, as in the thesis; in sequential and random order all are loved. Keys look like a proxy's.

use damelo::{GroupId, Store};

use crate::bench::disk::{DiskCounters, store_counters};
use crate::bench::stage::{Seen, Side};
use crate::bench::workload::Workload;
use crate::failure::Failure;

/// A store and the workload that runs on it.
pub(crate) struct StoreSide<'a> {
    store: &'a Store,
    work: &'a Workload,
}

impl<'a> StoreSide<'a> {
    /// Sets the groups' hints.
    pub(crate) fn new(store: &'a Store, work: &'a Workload) -> StoreSide<'a> {
        for group in 0..work.settings().groups {
            if work.is_popular_group(group) {
                store.love(group_id(group));
            } else {
                store.hate(group_id(group));
            }
        }
        StoreSide { store, work }
    }
}

/// The group's number in the store, counted from 1 as in the thesis.
fn group_id(group: u32) -> GroupId {
    GroupId::new(u64::from(group) + 1)
}

/// The key of a benchmark's object.
pub(crate) fn key_of(object: u32) -> String {
    format!("http://bench.example/{object:010}")
}

impl Side for StoreSide<'_> {
    fn create(&self, object: u32, bytes: &[u8]) -> Result<(), Failure> {
        let group = group_id(self.work.group_of(object));
        Ok(self.store.create(key_of(object).as_bytes(), group, bytes).wait()?)
    }

    fn read(&self, object: u32, _scratch: &mut [u8]) -> Result<Seen, Failure> {
        Ok(match self.store.read(key_of(object).as_bytes()).wait()? {
            Some(bytes) if self.work.matches(object, &bytes) => Seen::Right,
            Some(_) => Seen::Wrong,
            None => Seen::Missing,
        })
    }

    fn delete(&self, object: u32) -> Result<Seen, Failure> {
        let there = self.store.remove(key_of(object).as_bytes())?;
        Ok(if there { Seen::Right } else { Seen::Missing })
    }

    fn settle(&self) -> Result<(), Failure> {
        Ok(self.store.sync()?)
    }

    fn lost(&self) -> Option<u64> {
        let is_lost = |object: &u32| !self.store.may_contain(key_of(*object).as_bytes());
        Some((0..self.work.settings().objects).filter(is_lost).count() as u64)
    }

    fn forget(&self) -> Result<(), Failure> {
        self.store.drop_memory();
        Ok(())
    }

    fn counters(&self) -> DiskCounters {
        store_counters(self.store)
    }
}
