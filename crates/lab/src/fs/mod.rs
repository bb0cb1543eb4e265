//! A model of the Fast File System: cylinder groups, inodes, directories, blocks and fragments,
//! buffer cache, name cache, synchronous or asynchronous metadata.
//!
//! Owns the layout of one file system on one disk. It appends disk requests to a [`Plan`] and keeps
//! no time of its own. Invariants: a file's fragments are its own; what is read was written; space
//! used is what files, directories and indirect blocks hold. Threads: one user.
//!
//! Left out: quotas, rotational placement (drives have hidden it since the 1990s), and the first
//! fragments of a directory (directories grow by whole blocks).

mod buffer;
mod directory_groups;
mod file;
mod groups;
mod names;
mod params;
#[cfg(test)]
mod tests;

pub(crate) use buffer::{BufferCache, WriteMode};
pub use params::FfsParams;

use file::{File, pieces, pointers};
use groups::{Groups, Run};
use names::{directory_name, file_name, file_of};

use crate::lru::Lru;
use crate::machine::{DirId, FileId, Kind, Plan};

/// The file system is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FsFull {
    /// Too little space is free.
    #[error(
        "the modelled file system is full: {wanted_bytes} bytes wanted, {free_bytes} free; use a larger drive or a smaller cache"
    )]
    Space {
        /// Size of what was to be stored.
        wanted_bytes: u64,
        /// Free space.
        free_bytes: u64,
    },
    /// There is space, but no inode for another file or directory.
    #[error(
        "the modelled file system is full: all {inodes} inodes are taken, with {free_bytes} bytes free; use a larger drive or a smaller cache"
    )]
    Inodes {
        /// How many it has.
        inodes: u64,
        /// Free space.
        free_bytes: u64,
    },
}

/// Direct pointers of an inode.
const DIRECT_BLOCKS: u64 = 12;
const INODE_BYTES: u32 = 128;
const SPARE_RUNS_MAX: usize = 1_024;

#[derive(Debug, Clone, Default)]
struct Directory {
    parent: DirId,
    inode: u32,
    /// Its entry in its parent.
    slot: u32,
    blocks: Vec<u64>,
    slots: u32,
    free_slots: Vec<u32>,
}

/// A file system on a disk.
#[derive(Debug)]
pub struct Ffs {
    params: FfsParams,
    groups: Groups,
    buffers: BufferCache,
    /// Names and the inodes behind them that are in memory; the value is "has a newer access time".
    names: Lru<bool>,
    directories: Vec<Directory>,
    files: Vec<File>,
    /// Empty lists of removed files, for new ones.
    spare_runs: Vec<Vec<Run>>,
    next_sync_ns: u64,
    name_lookups: u64,
    name_misses: u64,
}

impl Ffs {
    /// Makes an empty file system over a disk of `disk_bytes`.
    ///
    /// # Panics
    /// If the parameters do not go together, or the disk has no room for a group.
    pub fn new(params: FfsParams, disk_bytes: u64, disk: u8) -> Ffs {
        params.check();
        let blocks_per_group = (params.group_bytes / u64::from(params.block_bytes)) as u32;
        let count = (disk_bytes / params.group_bytes) as u32;
        assert!(count > 0, "a disk of {disk_bytes} bytes holds a group of {}", params.group_bytes);
        let inode_blocks = (params.inodes_per_group * INODE_BYTES).div_ceil(params.block_bytes);
        let groups = Groups::new(
            count,
            blocks_per_group,
            params.block_bytes / params.fragment_bytes,
            params.inodes_per_group,
            2 + inode_blocks,
        );
        let (memory, unit) = (params.buffer_cache_bytes, params.fragment_bytes);
        let buffers = BufferCache::new(memory, unit, params.cluster_bytes, disk);
        let mut ffs = Ffs {
            params,
            groups,
            buffers,
            names: Lru::new(),
            directories: vec![Directory::default()],
            files: Vec::new(),
            spare_runs: Vec::new(),
            next_sync_ns: u64::from(params.sync_period_s) * 1_000_000_000,
            name_lookups: 0,
            name_misses: 0,
        };
        ffs.directories[0].inode = ffs.groups.take_inode(0).unwrap_or(0);
        ffs
    }

    /// Free space in bytes.
    pub fn free_bytes(&self) -> u64 {
        self.groups.free_fragments() * u64::from(self.params.fragment_bytes)
    }

    /// Lookups in the name cache, and those it could not answer.
    pub fn name_cache_counts(&self) -> (u64, u64) {
        (self.name_lookups, self.name_misses)
    }

    /// Writes what is dirty if the period is over.
    pub fn tick(&mut self, plan: &mut Plan, now_ns: u64) {
        if now_ns >= self.next_sync_ns {
            self.sync(plan);
            self.next_sync_ns = now_ns + u64::from(self.params.sync_period_s) * 1_000_000_000;
        }
    }

    /// Starts writing all that is dirty.
    pub fn sync(&mut self, plan: &mut Plan) {
        self.buffers.flush(plan);
    }

    /// Empties the caches, as unmounting does.
    pub fn drop_caches(&mut self, plan: &mut Plan) {
        self.buffers.flush(plan);
        self.buffers.drop_all();
        self.names = Lru::new();
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`FsFull`] without a free inode or block.
    ///
    /// # Panics
    /// If directories are not numbered in the order in which they are made.
    pub fn make_dir(&mut self, plan: &mut Plan, dir: DirId, parent: DirId) -> Result<(), FsFull> {
        assert_eq!(dir as usize, self.directories.len(), "directories are numbered in order");
        self.resolve_directory(plan, parent);
        let group = self.groups.group_for_directory();
        self.groups.count_directory(group);
        let inode = self.take_inode(group)?;
        self.touch_group_map(plan, self.groups.group_of_inode(inode));
        self.update_inode(plan, inode, self.params.metadata_mode());
        let slot = self.add_entry(plan, parent)?;
        self.directories.push(Directory { parent, inode, slot, ..Directory::default() });
        self.remember(plan, directory_name(dir));
        Ok(())
    }

    /// Looks for a name that is not there: the whole directory is read.
    pub fn look_missing(&mut self, plan: &mut Plan, dir: DirId) {
        self.resolve_directory(plan, dir);
        self.scan(plan, dir, u32::MAX);
    }

    /// Makes a file and writes all of it.
    ///
    /// # Errors
    /// [`FsFull`] without a free inode or enough blocks; what was done until then stays.
    ///
    /// # Panics
    /// If the file exists.
    pub fn create(
        &mut self,
        plan: &mut Plan,
        dir: DirId,
        file: FileId,
        bytes: u64,
    ) -> Result<(), FsFull> {
        let index = file as usize;
        if self.files.len() <= index {
            self.files.resize_with(index + 1, File::default);
        }
        assert!(!self.files[index].exists, "file {file} is new");
        if self.free_bytes() < bytes + 2 * u64::from(self.params.block_bytes) {
            return Err(self.full(bytes));
        }
        self.resolve_directory(plan, dir);
        self.scan(plan, dir, u32::MAX);
        let near = self.groups.group_of_inode(self.directories[dir as usize].inode);
        let inode = self.take_inode(near)?;
        let group = self.groups.group_of_inode(inode);
        self.touch_group_map(plan, group);
        self.update_inode(plan, inode, self.params.metadata_mode());
        let slot = self.add_entry(plan, dir)?;
        let (runs, indirect) = self.allocate(plan, group, bytes)?;
        self.files[index] = File { exists: true, dir, slot, inode, bytes, runs, indirect };
        self.write_data(plan, file, 0, bytes);
        self.write_pointers(plan, file);
        self.update_inode(plan, inode, WriteMode::Late);
        self.remember(plan, file_name(file));
        Ok(())
    }

    /// Opens a file by name and reads a part of it.
    ///
    /// # Panics
    /// If there is no such file, or it ends before what is read.
    pub fn read(&mut self, plan: &mut Plan, file: FileId, offset: u64, bytes: u64) {
        self.resolve_file(plan, file);
        let entry = &self.files[file as usize];
        assert!(offset + bytes <= entry.bytes, "file {file} has what is read");
        let params = self.params;
        for block in pointers(params, entry, offset, bytes) {
            let (sector, sectors) = params.extent(*block, params.fragments_per_block());
            self.buffers.read(plan, sector, sectors, Kind::Allocation);
        }
        let pieces = pieces(params, entry, offset, bytes)
            .map(|(fragment, fragments, _)| params.extent(fragment, fragments));
        self.buffers.read_all(plan, Kind::Data, pieces);
        if self.params.update_access_time {
            self.note_access(plan, file);
        }
    }

    /// Opens a file by name and writes a part of it in place: what points there is read and stays
    /// as it is.
    ///
    /// # Panics
    /// If there is no such file, or it ends before what is written.
    pub fn write(&mut self, plan: &mut Plan, file: FileId, offset: u64, bytes: u64) {
        self.resolve_file(plan, file);
        let entry = &self.files[file as usize];
        assert!(offset + bytes <= entry.bytes, "file {file} does not grow");
        let (inode, params) = (entry.inode, self.params);
        for block in pointers(params, entry, offset, bytes) {
            let (sector, sectors) = params.extent(*block, params.fragments_per_block());
            self.buffers.read(plan, sector, sectors, Kind::Allocation);
        }
        self.write_data(plan, file, offset, bytes);
        self.update_inode(plan, inode, WriteMode::Late);
    }

    /// Removes a file by name.
    pub fn remove(&mut self, plan: &mut Plan, file: FileId) {
        self.resolve_file(plan, file);
        let params = self.params;
        let mut entry = std::mem::take(&mut self.files[file as usize]);
        for (fragment, _, _) in pieces(params, &entry, 0, entry.bytes) {
            let (sector, _) = params.extent(fragment, 1);
            self.buffers.forget(sector);
        }
        let directory = &mut self.directories[entry.dir as usize];
        directory.free_slots.push(entry.slot);
        let block = directory.blocks[(entry.slot / self.params.entries_per_block()) as usize];
        let (sector, sectors) = self.extent(block, self.fragments_per_block());
        let mode = self.params.metadata_mode();
        self.buffers.update(plan, sector, sectors, Kind::Directory, mode);
        self.update_inode(plan, entry.inode, mode);
        let group = self.groups.group_of_inode(entry.inode);
        self.touch_group_map(plan, group);
        for block in entry.indirect {
            let (sector, _) = self.extent(block, 1);
            self.buffers.forget(sector);
            self.groups.free(Run { fragment: block, fragments: self.fragments_per_block() });
        }
        for run in entry.runs.drain(..) {
            self.groups.free(run);
        }
        if self.spare_runs.len() < SPARE_RUNS_MAX {
            self.spare_runs.push(entry.runs);
        }
        self.groups.free_inode(entry.inode);
        self.names.remove(file_name(file));
    }

    fn full(&self, wanted_bytes: u64) -> FsFull {
        FsFull::Space { wanted_bytes, free_bytes: self.free_bytes() }
    }

    fn take_inode(&mut self, near: u32) -> Result<u32, FsFull> {
        let taken = self.groups.take_inode(near);
        let (inodes, free_bytes) = (self.groups.inodes(), self.free_bytes());
        taken.ok_or(FsFull::Inodes { inodes, free_bytes })
    }

    fn fragments_per_block(&self) -> u32 {
        self.params.fragments_per_block()
    }

    fn extent(&self, fragment: u64, fragments: u32) -> (u64, u32) {
        self.params.extent(fragment, fragments)
    }

    /// What is written at once goes out as one, before anything leaves memory for it.
    fn write_data(&mut self, plan: &mut Plan, file: FileId, offset: u64, bytes: u64) {
        let params = self.params;
        let per_block = params.fragments_per_block();
        let entry = &self.files[file as usize];
        let goes_at_once = |fragments: u32, whole: bool| {
            whole && fragments == per_block && params.write_full_blocks_at_once
        };
        for (fragment, fragments, whole) in pieces(params, entry, offset, bytes) {
            if goes_at_once(fragments, whole) {
                let (sector, sectors) = params.extent(fragment, fragments);
                self.buffers.write_through(plan, sector, sectors, Kind::Data);
            }
        }
        for (fragment, fragments, whole) in pieces(params, entry, offset, bytes) {
            let (sector, sectors) = params.extent(fragment, fragments);
            if goes_at_once(fragments, whole) {
                self.buffers.keep(plan, sector, sectors, Kind::Data);
            } else if !whole {
                self.buffers.update(plan, sector, sectors, Kind::Data, WriteMode::Late);
            } else {
                self.buffers.overwrite(plan, sector, sectors, Kind::Data, WriteMode::Late);
            }
        }
    }

    /// All indirect blocks of a new file.
    fn write_pointers(&mut self, plan: &mut Plan, file: FileId) {
        let params = self.params;
        for block in &self.files[file as usize].indirect {
            let (sector, sectors) = params.extent(*block, params.fragments_per_block());
            self.buffers.overwrite(plan, sector, sectors, Kind::Allocation, WriteMode::Late);
        }
    }

    /// Blocks and fragments for a new file, in or near `group`, in sections.
    fn allocate(
        &mut self,
        plan: &mut Plan,
        group: u32,
        bytes: u64,
    ) -> Result<(Vec<Run>, Vec<u64>), FsFull> {
        let per_block = self.fragments_per_block();
        let fragments = bytes.div_ceil(u64::from(self.params.fragment_bytes));
        let blocks = fragments / u64::from(per_block);
        let mut tail = (fragments % u64::from(per_block)) as u32;
        let (mut runs, mut near) = (self.spare_runs.pop().unwrap_or_default(), group);
        // Only files that fit the direct pointers have fragments (original §3.2).
        let whole_blocks = if tail > 0 && blocks >= DIRECT_BLOCKS {
            tail = 0;
            blocks + 1
        } else {
            blocks
        };
        for index in 0..whole_blocks {
            let section = u64::from(self.params.blocks_per_section);
            if index > 0 && index % section == 0 {
                near = self.groups.group_for_section(near);
            }
            let next = runs.last().map(|r| r.fragment + u64::from(r.fragments));
            let wanted = next.filter(|_| index % section != 0);
            let taken = self.groups.take_block(near, wanted).ok_or_else(|| self.full(bytes))?;
            match runs.last_mut() {
                Some(run) if run.fragment + u64::from(run.fragments) == taken => {
                    run.fragments += per_block;
                }
                _ => runs.push(Run { fragment: taken, fragments: per_block }),
            }
        }
        if tail > 0 {
            let taken = self.groups.take_fragments(near, tail).ok_or_else(|| self.full(bytes))?;
            runs.push(Run { fragment: taken, fragments: tail });
        }
        let per_indirect = self.params.pointers_per_block();
        let count = whole_blocks.saturating_sub(DIRECT_BLOCKS).div_ceil(per_indirect);
        let mut indirect = Vec::new();
        for _ in 0..count {
            indirect.push(self.groups.take_block(near, None).ok_or_else(|| self.full(bytes))?);
        }
        if near != group {
            self.touch_group_map(plan, near);
        }
        Ok((runs, indirect))
    }

    /// Reads directory blocks up to the one that holds `slot`, or all.
    fn scan(&mut self, plan: &mut Plan, dir: DirId, slot: u32) {
        let params = self.params;
        let blocks = &self.directories[dir as usize].blocks;
        let last = (slot / params.entries_per_block()) as usize;
        for block in blocks.iter().take(last.saturating_add(1)) {
            let (sector, sectors) = params.extent(*block, params.fragments_per_block());
            self.buffers.read(plan, sector, sectors, Kind::Directory);
        }
    }

    fn add_entry(&mut self, plan: &mut Plan, dir: DirId) -> Result<u32, FsFull> {
        let per_block = self.params.entries_per_block();
        let directory = &mut self.directories[dir as usize];
        let slot = directory.free_slots.pop().unwrap_or(directory.slots);
        directory.slots = directory.slots.max(slot + 1);
        let (inode, index) = (directory.inode, (slot / per_block) as usize);
        let mode = self.params.metadata_mode();
        if index == self.directories[dir as usize].blocks.len() {
            let group = self.groups.group_of_inode(inode);
            let block = self.groups.take_block(group, None);
            let block = block.ok_or_else(|| self.full(u64::from(self.params.block_bytes)))?;
            self.directories[dir as usize].blocks.push(block);
            let (sector, sectors) = self.extent(block, self.fragments_per_block());
            self.buffers.overwrite(plan, sector, sectors, Kind::Directory, mode);
        } else {
            let block = self.directories[dir as usize].blocks[index];
            let (sector, sectors) = self.extent(block, self.fragments_per_block());
            self.buffers.update(plan, sector, sectors, Kind::Directory, mode);
        }
        // Its time and size changed.
        self.update_inode(plan, inode, WriteMode::Late);
        Ok(slot)
    }

    fn inode_extent(&self, inode: u32) -> (u64, u32) {
        let group = u64::from(self.groups.group_of_inode(inode));
        let within = inode % self.params.inodes_per_group;
        let blocks_per_group = self.params.group_bytes / u64::from(self.params.block_bytes);
        let block = group * blocks_per_group
            + 2
            + u64::from(within * INODE_BYTES / self.params.block_bytes);
        self.extent(block * u64::from(self.fragments_per_block()), self.fragments_per_block())
    }

    fn read_inode(&mut self, plan: &mut Plan, inode: u32) {
        let (sector, sectors) = self.inode_extent(inode);
        self.buffers.read(plan, sector, sectors, Kind::Inode);
    }

    fn update_inode(&mut self, plan: &mut Plan, inode: u32, mode: WriteMode) {
        let (sector, sectors) = self.inode_extent(inode);
        self.buffers.update(plan, sector, sectors, Kind::Inode, mode);
    }

    fn touch_group_map(&mut self, plan: &mut Plan, group: u32) {
        let blocks_per_group = self.params.group_bytes / u64::from(self.params.block_bytes);
        let block = u64::from(group) * blocks_per_group + 1;
        let per_block = self.fragments_per_block();
        let (sector, sectors) = self.extent(block * u64::from(per_block), per_block);
        self.buffers.update(plan, sector, sectors, Kind::Allocation, WriteMode::Late);
    }

    /// An access time goes to the inode's buffer if that is in memory, else it waits with the
    /// inode.
    fn note_access(&mut self, plan: &mut Plan, file: FileId) {
        let (sector, sectors) = self.inode_extent(self.files[file as usize].inode);
        if self.buffers.holds(sector) {
            self.buffers.overwrite(plan, sector, sectors, Kind::Inode, WriteMode::Late);
        } else if let Some(newer) = self.names.peek_mut(file_name(file)) {
            *newer = true;
        }
    }

    fn resolve_directory(&mut self, plan: &mut Plan, dir: DirId) {
        if dir == 0 {
            return;
        }
        self.name_lookups += 1;
        let name = directory_name(dir);
        if self.names.touch(name).is_some() {
            return;
        }
        self.name_misses += 1;
        let Directory { parent, slot, inode, .. } = self.directories[dir as usize];
        self.resolve_directory(plan, parent);
        self.scan(plan, parent, slot);
        self.read_inode(plan, inode);
        self.remember(plan, name);
    }

    fn resolve_file(&mut self, plan: &mut Plan, file: FileId) {
        let File { exists, dir, slot, inode, .. } = self.files[file as usize];
        assert!(exists, "file {file} is there");
        self.resolve_directory(plan, dir);
        self.name_lookups += 1;
        if self.names.touch(file_name(file)).is_some() {
            return;
        }
        self.name_misses += 1;
        self.scan(plan, dir, slot);
        self.read_inode(plan, inode);
        self.remember(plan, file_name(file));
    }

    /// Puts a name in the name cache; an inode that leaves it with a newer access time is written
    /// late.
    fn remember(&mut self, plan: &mut Plan, name: u64) {
        if self.names.contains(name) {
            return;
        }
        self.names.insert(name, false);
        if self.names.len() > self.params.name_cache_entries as usize
            && let Some((old, newer_access)) = self.names.pop_oldest()
            && newer_access
        {
            let inode = self.files[file_of(old)].inode;
            self.update_inode(plan, inode, WriteMode::Late);
        }
    }
}
