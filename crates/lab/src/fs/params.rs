//! Parameter sets of file systems, each with the source of its figures.
//!
//! Threads: plain data.

use super::WriteMode;
use crate::disk::SECTOR_BYTES;

/// How a file system is laid out and cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FfsParams {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Bytes of a fragment; equal to the block for none.
    pub fragment_bytes: u32,
    /// Bytes of a cylinder group.
    pub group_bytes: u64,
    /// Inodes of a cylinder group.
    pub inodes_per_group: u32,
    /// Bytes of a directory entry, name included.
    pub directory_entry_bytes: u32,
    /// Blocks of one file in a group before the next section goes elsewhere.
    pub blocks_per_section: u32,
    /// Creates and removes wait until inode and directory are on the disk.
    pub sync_metadata: bool,
    /// Reading a file changes its inode.
    pub update_access_time: bool,
    /// A block that is filled is written at once, not after the period.
    pub write_full_blocks_at_once: bool,
    /// What is dirty is written at least this often, in seconds.
    pub sync_period_s: u32,
    /// Longest disk request made of adjacent blocks.
    pub cluster_bytes: u32,
    /// Memory for blocks.
    pub buffer_cache_bytes: u64,
    /// Names whose inodes are kept in memory.
    pub name_cache_entries: u32,
}

impl FfsParams {
    /// UFS of Digital Unix 4.0: blocks of 8 KB, fragments of 1 KB (Maltzahn §4), synchronous
    /// metadata. Group size and cache of names are those usual with 4.4BSD.
    pub fn ufs_8k() -> FfsParams {
        FfsParams {
            block_bytes: 8 << 10,
            fragment_bytes: 1 << 10,
            group_bytes: 16 << 20,
            inodes_per_group: 2_048,
            directory_entry_bytes: 20,
            blocks_per_section: 256,
            sync_metadata: true,
            update_access_time: true,
            write_full_blocks_at_once: true,
            sync_period_s: 30,
            cluster_bytes: 64 << 10,
            buffer_cache_bytes: 128 << 20,
            name_cache_entries: 8_192,
        }
    }

    /// The FFS that UCFS §4.2.1 simulates: blocks of 4 KB, fragments of 1 KB, 256 MB of buffers,
    /// synchronous metadata.
    pub fn bsd_4k() -> FfsParams {
        FfsParams {
            block_bytes: 4 << 10,
            blocks_per_section: 512,
            inodes_per_group: 4_096,
            buffer_cache_bytes: 256 << 20,
            ..FfsParams::ufs_8k()
        }
    }

    /// The same mounted asynchronously.
    pub fn bsd_4k_async() -> FfsParams {
        FfsParams { sync_metadata: false, ..FfsParams::bsd_4k() }
    }

    /// Linux ext2 of 2000: one block size from 1 to 4 KB, no fragments, groups of 8 blocks for each
    /// byte of a block, nothing synchronous; dirty data is old after 30 s.
    pub fn ext2(block_bytes: u32, buffer_cache_bytes: u64) -> FfsParams {
        let group_bytes = u64::from(block_bytes) * u64::from(block_bytes) * 8;
        FfsParams {
            block_bytes,
            fragment_bytes: block_bytes,
            group_bytes,
            inodes_per_group: (group_bytes / 4_096) as u32,
            blocks_per_section: (group_bytes / u64::from(block_bytes) / 2) as u32,
            sync_metadata: false,
            write_full_blocks_at_once: false,
            buffer_cache_bytes,
            name_cache_entries: 32_768,
            ..FfsParams::ufs_8k()
        }
    }

    /// How changes of inodes and directories are written.
    pub(super) fn metadata_mode(&self) -> WriteMode {
        if self.sync_metadata { WriteMode::Waited } else { WriteMode::Late }
    }

    pub(crate) fn fragments_per_block(&self) -> u32 {
        self.block_bytes / self.fragment_bytes
    }

    /// Fragments to sectors.
    pub(crate) fn extent(&self, fragment: u64, fragments: u32) -> (u64, u32) {
        let per_fragment = self.fragment_bytes / SECTOR_BYTES as u32;
        (fragment * u64::from(per_fragment), fragments * per_fragment)
    }

    pub(crate) fn entries_per_block(&self) -> u32 {
        self.block_bytes / self.directory_entry_bytes
    }

    /// Blocks that an indirect one points to.
    pub(crate) fn pointers_per_block(&self) -> u64 {
        u64::from(self.block_bytes / 4)
    }

    /// Asserts that the set makes sense.
    pub(crate) fn check(&self) {
        assert!(self.fragment_bytes.is_multiple_of(512), "fragments are sectors");
        assert!(self.block_bytes.is_multiple_of(self.fragment_bytes), "blocks are fragments");
        assert!(self.group_bytes.is_multiple_of(u64::from(self.block_bytes)), "groups are blocks");
        assert!(self.directory_entry_bytes > 0, "entries have a size");
        assert!(self.blocks_per_section > 0, "sections have blocks");
        assert!(self.name_cache_entries > 0, "the name cache holds something");
    }
}
