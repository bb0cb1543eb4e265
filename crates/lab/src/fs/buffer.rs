//! The system's buffer cache: recently used blocks, written back late.
//!
//! Owns which blocks are in memory and which of them are dirty. Invariants: the bytes held never
//! exceed the capacity unless one buffer alone does; a dirty buffer leaves only by being written or
//! by its file being removed; a buffer begins at a whole unit of the disk. Threads: one user.

use crate::disk::{Direction, SECTOR_BYTES};
use crate::lru::Lru;
use crate::machine::{Kind, Plan, Step};

/// When what changes a buffer goes to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// At once, and the request waits for it.
    Waited,
    /// When the buffer is cleaned.
    Late,
}

#[derive(Debug, Clone, Copy)]
struct Buffer {
    sectors: u32,
    dirty: bool,
    kind: Kind,
}

/// Buffers by their first unit: fragment or block, so that neighbours lie close in the map's
/// leaves.
#[derive(Debug)]
pub(crate) struct BufferCache {
    buffers: Lru<Buffer>,
    unit_sectors: u64,
    capacity_sectors: u64,
    held_sectors: u64,
    dirty_count: usize,
    disk: u8,
    /// Longest disk request made of adjacent buffers.
    cluster_sectors: u32,
    /// What one read has to add: empty between two.
    missing: Vec<(u64, u32)>,
}

impl BufferCache {
    pub(crate) fn new(
        capacity_bytes: u64,
        unit_bytes: u32,
        cluster_bytes: u32,
        disk: u8,
    ) -> BufferCache {
        let unit_sectors = u64::from(unit_bytes) / SECTOR_BYTES;
        assert!(unit_sectors.is_power_of_two(), "units of {unit_bytes} bytes");
        assert!(capacity_bytes >= SECTOR_BYTES, "a buffer cache holds something");
        BufferCache {
            buffers: Lru::new(),
            unit_sectors,
            capacity_sectors: capacity_bytes / SECTOR_BYTES,
            held_sectors: 0,
            dirty_count: 0,
            disk,
            cluster_sectors: (cluster_bytes / SECTOR_BYTES as u32).max(1),
            missing: Vec::new(),
        }
    }

    #[inline]
    fn unit(&self, sector: u64) -> u64 {
        debug_assert!(sector.is_multiple_of(self.unit_sectors), "buffers begin at units");
        sector >> self.unit_sectors.trailing_zeros()
    }

    #[inline]
    fn touch(&mut self, sector: u64) -> Option<&mut Buffer> {
        let unit = self.unit(sector);
        self.buffers.touch(unit)
    }

    /// True if a buffer is in memory.
    pub(crate) fn holds(&self, sector: u64) -> bool {
        self.buffers.contains(self.unit(sector))
    }

    /// Reads a buffer: from memory, or with a disk read that the request waits for.
    pub(crate) fn read(&mut self, plan: &mut Plan, sector: u64, sectors: u32, kind: Kind) {
        if self.touch(sector).is_some() {
            return;
        }
        let step = self.step(Direction::Read, sector, sectors, kind, true);
        plan.push(step, self.cluster_sectors);
        self.add(plan, sector, Buffer { sectors, dirty: false, kind });
    }

    /// Reads several buffers at once, those of one file or one part of a device. All that is not in
    /// memory is read before anything leaves for it: a write between two neighbours would make two
    /// requests of them, where a system reads ahead.
    pub(crate) fn read_all(
        &mut self,
        plan: &mut Plan,
        kind: Kind,
        buffers: impl Iterator<Item = (u64, u32)>,
    ) {
        let mut missing = std::mem::take(&mut self.missing);
        for (sector, sectors) in buffers {
            if self.touch(sector).is_none() {
                let step = self.step(Direction::Read, sector, sectors, kind, true);
                plan.push(step, self.cluster_sectors);
                missing.push((sector, sectors));
            }
        }
        for (sector, sectors) in missing.drain(..) {
            self.add(plan, sector, Buffer { sectors, dirty: false, kind });
        }
        self.missing = missing;
    }

    /// Changes a buffer that may have to be read first.
    pub(crate) fn update(
        &mut self,
        plan: &mut Plan,
        sector: u64,
        sectors: u32,
        kind: Kind,
        mode: WriteMode,
    ) {
        if self.overwrite_held(plan, sector, sectors, kind, mode) {
            return;
        }
        self.read(plan, sector, sectors, kind);
        self.overwrite_held(plan, sector, sectors, kind, mode);
    }

    /// Writes all of a buffer that is in memory; false if it is not.
    #[inline]
    fn overwrite_held(
        &mut self,
        plan: &mut Plan,
        sector: u64,
        sectors: u32,
        kind: Kind,
        mode: WriteMode,
    ) -> bool {
        let Some(buffer) = self.touch(sector) else { return false };
        let is_dirty = mode == WriteMode::Late;
        let was_dirty = std::mem::replace(&mut buffer.dirty, is_dirty);
        self.dirty_count += usize::from(is_dirty && !was_dirty);
        self.dirty_count -= usize::from(!is_dirty && was_dirty);
        if !is_dirty {
            let step = self.step(Direction::Write, sector, sectors, kind, true);
            plan.push(step, self.cluster_sectors);
        }
        true
    }

    /// Writes all of a buffer.
    pub(crate) fn overwrite(
        &mut self,
        plan: &mut Plan,
        sector: u64,
        sectors: u32,
        kind: Kind,
        mode: WriteMode,
    ) {
        if self.overwrite_held(plan, sector, sectors, kind, mode) {
            return;
        }
        let dirty = mode == WriteMode::Late;
        if !dirty {
            let step = self.step(Direction::Write, sector, sectors, kind, true);
            plan.push(step, self.cluster_sectors);
        }
        self.dirty_count += usize::from(dirty);
        self.add(plan, sector, Buffer { sectors, dirty, kind });
    }

    /// Starts the disk at once with all of a buffer, without waiting; [`BufferCache::keep`] is to
    /// follow once its neighbours went out, too.
    pub(crate) fn write_through(&mut self, plan: &mut Plan, sector: u64, sectors: u32, kind: Kind) {
        let step = self.step(Direction::Write, sector, sectors, kind, false);
        plan.push(step, self.cluster_sectors);
    }

    /// Has a buffer in memory that was written.
    pub(crate) fn keep(&mut self, plan: &mut Plan, sector: u64, sectors: u32, kind: Kind) {
        if let Some(buffer) = self.touch(sector) {
            let was_dirty = std::mem::replace(&mut buffer.dirty, false);
            self.dirty_count -= usize::from(was_dirty);
        } else {
            self.add(plan, sector, Buffer { sectors, dirty: false, kind });
        }
    }

    /// Forgets a buffer whose block is free now; what was dirty need not be written.
    pub(crate) fn forget(&mut self, sector: u64) {
        if let Some(buffer) = self.buffers.remove(self.unit(sector)) {
            self.held_sectors -= u64::from(buffer.sectors);
            self.dirty_count -= usize::from(buffer.dirty);
        }
    }

    /// Starts writing everything that is dirty, in disk order, adjacent buffers together.
    pub(crate) fn flush(&mut self, plan: &mut Plan) {
        if self.dirty_count == 0 {
            return;
        }
        let mut dirty: Vec<(u64, Buffer)> = Vec::with_capacity(self.dirty_count);
        for (unit, buffer) in self.buffers.iter_any_order_mut() {
            if std::mem::replace(&mut buffer.dirty, false) {
                dirty.push((unit * self.unit_sectors, *buffer));
            }
        }
        dirty.sort_unstable_by_key(|(sector, _)| *sector);
        for (sector, buffer) in dirty {
            let step = self.step(Direction::Write, sector, buffer.sectors, buffer.kind, false);
            plan.push(step, self.cluster_sectors);
        }
        self.dirty_count = 0;
    }

    /// Forgets everything clean or dirty: what a test does between two measurements.
    pub(crate) fn drop_all(&mut self) {
        self.buffers = Lru::new();
        self.held_sectors = 0;
        self.dirty_count = 0;
    }

    fn step(
        &self,
        direction: Direction,
        sector: u64,
        sectors: u32,
        kind: Kind,
        wait: bool,
    ) -> Step {
        Step { disk: self.disk, direction, kind, wait, sector, sectors }
    }

    fn add(&mut self, plan: &mut Plan, sector: u64, buffer: Buffer) {
        self.buffers.insert(self.unit(sector), buffer);
        self.held_sectors += u64::from(buffer.sectors);
        while self.held_sectors > self.capacity_sectors && self.buffers.len() > 1 {
            let Some((unit, buffer)) = self.buffers.pop_oldest() else { return };
            let victim = unit * self.unit_sectors;
            self.held_sectors -= u64::from(buffer.sectors);
            if buffer.dirty {
                self.dirty_count -= 1;
                let step = self.step(Direction::Write, victim, buffer.sectors, buffer.kind, false);
                plan.push(step, self.cluster_sectors);
            }
        }
    }
}
