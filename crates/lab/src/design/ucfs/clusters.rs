//! The disk side of UCFS: clusters, which files are on them, how they are used and replaced.
//!
//! A unit is what is read and written together: one cluster, or several that hold one large file
//! and others. Invariants: a cluster belongs to one unit or is free; units in the order of use are
//! those that are valid. Threads: one user.

use std::collections::BTreeSet;

use crate::lru::Lru;

fn all_free(count: u32) -> Vec<u64> {
    let mut words = vec![u64::MAX; count.div_ceil(64) as usize];
    if let (Some(last), 1..) = (words.last_mut(), count % 64) {
        *last = (1 << (count % 64)) - 1;
    }
    words
}

/// A unit, by number; numbers are used again.
pub(super) type UnitId = u32;

/// The part of the disk kept for tables on shutdown: a hundredth, and a cluster.
fn tables_bytes(cluster_bytes: u32, disk_bytes: u64) -> u64 {
    disk_bytes / 100 + u64::from(cluster_bytes)
}

/// A disk with room for its tables, the memory that is saved, and some clusters.
pub(super) fn disk_bytes_min(cluster_bytes: u32, saved_bytes: u64) -> u64 {
    let needed = saved_bytes.saturating_add(4 * u64::from(cluster_bytes));
    // Tables are a hundredth of the whole disk.
    needed.saturating_add(needed / 99 + 1)
}

#[derive(Debug, Clone, Default)]
struct Unit {
    clusters: Vec<u32>,
    files: Vec<u64>,
    references: u32,
    /// Number of its last use, in the order of all uses.
    use_number: u64,
}

/// All clusters.
#[derive(Debug)]
pub(super) struct Clusters {
    cluster_bytes: u32,
    count: u32,
    /// Behind the clusters and the memory that is saved.
    tables_bytes: u64,
    /// A bit for each free cluster.
    free: Vec<u64>,
    free_count: u32,
    /// Where the head is: the cluster after the last transfer (§2.4.9, CDP).
    head: u32,
    units: Vec<Unit>,
    spare: Vec<UnitId>,
    /// By last use; the value is the time.
    order: Lru<u64>,
    /// By count, for LFU; among equals by last use, so that old clusters go (§2.4.9).
    by_references: BTreeSet<(u32, u64, UnitId)>,
    references_sum: u64,
    uses: u64,
}

/// Mean references above which all are halved.
const REFERENCES_MEAN_MAX: u64 = 100;

impl Clusters {
    /// `saved_bytes` of memory have to fit behind the clusters on shutdown.
    pub(super) fn new(cluster_bytes: u32, disk_bytes: u64, saved_bytes: u64) -> Clusters {
        let reserved = tables_bytes(cluster_bytes, disk_bytes) + saved_bytes;
        let usable = disk_bytes.saturating_sub(reserved);
        let count = (usable / u64::from(cluster_bytes)) as u32;
        assert!(count > 0, "the disk holds a cluster");
        let clusters_bytes = u64::from(count) * u64::from(cluster_bytes);
        Clusters {
            cluster_bytes,
            count,
            tables_bytes: disk_bytes - clusters_bytes - saved_bytes,
            free: all_free(count),
            free_count: count,
            head: 0,
            units: Vec::new(),
            spare: Vec::new(),
            order: Lru::new(),
            by_references: BTreeSet::new(),
            references_sum: 0,
            uses: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        u64::from(self.count)
    }

    pub(super) fn used_count(&self) -> u64 {
        u64::from(self.count - self.free_count)
    }

    /// Room for tables, however much of memory is saved.
    pub(super) fn tables_bytes(&self) -> u64 {
        self.tables_bytes
    }

    pub(super) fn reserved_offset(&self) -> u64 {
        u64::from(self.count) * u64::from(self.cluster_bytes)
    }

    pub(super) fn files(&self, unit: UnitId) -> &[u64] {
        &self.units[unit as usize].files
    }

    /// Parts of the disk that a unit takes, contiguous clusters together.
    pub(super) fn extents(&mut self, unit: UnitId) -> Vec<(u64, u32)> {
        let clusters = &self.units[unit as usize].clusters;
        let mut extents: Vec<(u64, u32)> = Vec::with_capacity(1);
        for &cluster in clusters {
            let offset = u64::from(cluster) * u64::from(self.cluster_bytes);
            match extents.last_mut() {
                Some((start, bytes)) if *start + u64::from(*bytes) == offset => {
                    *bytes += self.cluster_bytes;
                }
                _ => extents.push((offset, self.cluster_bytes)),
            }
        }
        self.head = clusters.last().map_or(self.head, |&c| (c + 1) % self.count);
        extents
    }

    /// Puts files on free clusters next to the head; `None` if too few are free.
    pub(super) fn write(&mut self, files: &[u64], bytes: u64, now_us: u64) -> Option<UnitId> {
        let wanted = bytes.div_ceil(u64::from(self.cluster_bytes)).max(1) as u32;
        if self.free_count < wanted {
            return None;
        }
        let mut clusters = Vec::with_capacity(wanted as usize);
        let mut at = self.head;
        while clusters.len() < wanted as usize {
            at = self.next_free(at);
            self.free[at as usize / 64] ^= 1 << (at % 64);
            clusters.push(at);
        }
        self.free_count -= wanted;
        self.uses += 1;
        let use_number = self.uses;
        let unit = Unit { clusters, files: files.to_vec(), references: 1, use_number };
        let id = match self.spare.pop() {
            Some(id) => {
                self.units[id as usize] = unit;
                id
            }
            None => {
                self.units.push(unit);
                (self.units.len() - 1) as UnitId
            }
        };
        self.order.insert(u64::from(id), now_us);
        self.by_references.insert((1, use_number, id));
        self.references_sum += 1;
        Some(id)
    }

    /// The first free cluster from `at` on, around the end; there is one.
    fn next_free(&self, at: u32) -> u32 {
        let (words, first) = (self.free.len(), at as usize / 64);
        let mut word = self.free[first] & (u64::MAX << (at % 64));
        let mut index = first;
        while word == 0 {
            index = (index + 1) % words;
            word = self.free[index];
        }
        index as u32 * 64 + word.trailing_zeros()
    }

    /// Counts a use.
    pub(super) fn used(&mut self, unit: UnitId, now_us: u64) {
        if let Some(time_us) = self.order.touch(u64::from(unit)) {
            *time_us = now_us;
        }
        let entry = &mut self.units[unit as usize];
        self.by_references.remove(&(entry.references, entry.use_number, unit));
        self.uses += 1;
        (entry.references, entry.use_number) = (entry.references + 1, self.uses);
        self.by_references.insert((entry.references, entry.use_number, unit));
        self.references_sum += 1;
        if self.references_sum > self.order.len() as u64 * REFERENCES_MEAN_MAX {
            self.age();
        }
    }

    fn age(&mut self) {
        let units = std::mem::take(&mut self.by_references);
        self.references_sum = 0;
        for (references, use_number, unit) in units {
            let references = references.div_ceil(2);
            self.units[unit as usize].references = references;
            self.by_references.insert((references, use_number, unit));
            self.references_sum += u64::from(references);
        }
    }

    /// The unit used least, of equals the one that was used longest ago, for a full disk.
    pub(super) fn least_used(&self) -> Option<UnitId> {
        self.by_references.first().map(|(_, _, unit)| *unit)
    }

    /// A unit that nobody used since a time.
    pub(super) fn unused_since(&self, time_us: u64) -> Option<UnitId> {
        let (unit, used_us) = self.order.iter().next()?;
        (*used_us < time_us).then_some(unit as UnitId)
    }

    /// Frees a unit's clusters; returns what was on it.
    pub(super) fn invalidate(&mut self, unit: UnitId) -> Vec<u64> {
        let entry = std::mem::take(&mut self.units[unit as usize]);
        assert!(!entry.clusters.is_empty(), "unit {unit} is valid");
        self.order.remove(u64::from(unit));
        self.by_references.remove(&(entry.references, entry.use_number, unit));
        self.references_sum -= u64::from(entry.references);
        self.free_count += entry.clusters.len() as u32;
        for cluster in entry.clusters {
            self.free[cluster as usize / 64] |= 1 << (cluster % 64);
        }
        self.spare.push(unit);
        entry.files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER_BYTES: u32 = 16 << 10;

    fn three_units() -> (Clusters, [UnitId; 3]) {
        let mut clusters = Clusters::new(CLUSTER_BYTES, 1 << 20, 0);
        let units = [1, 2, 3].map(|key| clusters.write(&[key], 100, 0).expect("there is room"));
        (clusters, units)
    }

    fn references(clusters: &Clusters, units: [UnitId; 3]) -> [u32; 3] {
        units.map(|unit| clusters.units[unit as usize].references)
    }

    /// Written and used once each: of equals the one that was used longest ago.
    #[test]
    fn the_least_used_is_the_oldest_of_equals() {
        let (mut clusters, [a, b, c]) = three_units();
        assert_eq!(clusters.least_used(), Some(a));
        clusters.used(a, 0);
        assert_eq!(clusters.least_used(), Some(b));
        clusters.used(c, 0);
        clusters.used(b, 0);
        // Two uses each, in the order a, c, b.
        for expected in [a, c, b] {
            assert_eq!(clusters.least_used(), Some(expected));
            clusters.invalidate(expected);
        }
        assert_eq!(clusters.least_used(), None);
    }

    /// A number that is used again does not make a unit old.
    #[test]
    fn a_number_used_again_is_that_of_the_newest() {
        let (mut clusters, [a, b, c]) = three_units();
        clusters.invalidate(a);
        assert_eq!(clusters.write(&[4], 100, 0), Some(a));
        for expected in [b, c, a] {
            assert_eq!(clusters.least_used(), Some(expected));
            clusters.invalidate(expected);
        }
    }

    /// Two uses of each of three units: 6, and 294 more of b are 100 each. One more, and all are
    /// halved, upwards: 1, 149 (of 297), 1; a was used before c.
    #[test]
    fn references_are_halved_above_a_mean_of_100() {
        let (mut clusters, units) = three_units();
        let [a, b, c] = units;
        units.iter().for_each(|unit| clusters.used(*unit, 0));
        (0..294).for_each(|_| clusters.used(b, 0));
        assert_eq!(references(&clusters, units), [2, 296, 2]);
        clusters.used(b, 0);
        assert_eq!(references(&clusters, units), [1, 149, 1]);
        assert_eq!(clusters.references_sum, 151);
        clusters.used(a, 0);
        assert_eq!(clusters.least_used(), Some(c));
    }
}
