//! Volumes that a store is opened without: which errors mean that one is missing, and what is known
//! of it all the same.
//!
//! Invariants: the first volume, which has journal and checkpoints, is never left out, nor is one
//! that holds something else than its part of the store; what a missing volume holds is not
//! believed by a later open, since the segments of it have a life here that no record has. Threads:
//! the one that opens the store.

use std::io;

use super::RawVolume;
use crate::config::Config;
use crate::device::DeviceOpenError;
use crate::error::OpenError;
use crate::format::{BLOCK_BYTES, CheckpointHeader, Superblock};
use crate::memory::mapped::AlignedBuf;

/// Whether a store of this configuration may be opened without some of its volumes. Who is about to
/// overwrite what the volumes hold means all of them.
pub(super) fn may_be_left_out(config: &Config) -> bool {
    config.without_missing && !config.anew && !config.force
}

/// Whether this error, of opening a volume or of reading its superblock, means that the volume is
/// gone. Not if somebody else uses it, or this user may not: then it is there.
pub(super) fn is_gone(error: &OpenError) -> bool {
    match error {
        OpenError::VolumeMissing { .. } | OpenError::Io { .. } => true,
        OpenError::Device(error) => match error {
            DeviceOpenError::NotFound { .. }
            | DeviceOpenError::NoDevice { .. }
            | DeviceOpenError::ParentMissing { .. }
            // As file systems become when their disk fails.
            | DeviceOpenError::ReadOnly { .. } => true,
            DeviceOpenError::Io { source, .. } => is_dead(source),
            _ => false,
        },
        _ => false,
    }
}

/// Whether the system says by this that a device, or what a file system lies on, is dead.
fn is_dead(error: &io::Error) -> bool {
    const DEAD: [i32; 6] =
        [libc::EIO, libc::ENXIO, libc::ENODEV, libc::ETIMEDOUT, libc::ESTALE, libc::ENOTCONN];
    error.raw_os_error().is_some_and(|number| DEAD.contains(&number))
}

/// The superblocks of all volumes, of which the first is there and is `first`. Of the others nobody
/// reads more than which segments they have: those that lie between their neighbours'. Several in a
/// row share them as if the first had all. Behind the last that is there, where neither checkpoint
/// tells, they have none: then no checkpoint written here is taken once they are back, which the
/// journal asks for, and all is forgotten.
pub(super) fn completed(
    volumes: &[RawVolume],
    first: &Superblock,
    found: &[Option<Superblock>],
) -> Vec<Superblock> {
    let mut all: Vec<Superblock> = Vec::with_capacity(found.len());
    for (at, there) in found.iter().enumerate() {
        if let Some(superblock) = there {
            all.push(*superblock);
            continue;
        }
        let first_segment = all.last().map_or(0, |s| s.first_segment + s.segment_count);
        let next = found[at..].iter().flatten().next().map(|next| next.first_segment);
        let end = next.or_else(|| segments_by_checkpoint(&volumes[0], first));
        let segment_count = end.map_or(0, |end| end.saturating_sub(first_segment));
        let bytes = u64::from(segment_count) * first.segment_bytes;
        all.push(Superblock {
            volume_index: at as u16,
            first_segment,
            segment_count,
            volume_bytes: first.segments_offset + bytes,
            journal_bytes: 0,
            checkpoint_bytes: 0,
            ..*first
        });
    }
    all
}

/// How many segments the store has, by either of its checkpoints.
fn segments_by_checkpoint(volume: &RawVolume, first: &Superblock) -> Option<u32> {
    let layout = first.layout();
    (0..2).find_map(|slot| {
        let mut block = AlignedBuf::zeroed(BLOCK_BYTES as usize);
        volume.device.read_at(layout.checkpoint_slot(slot), &mut block).ok()?;
        let header = CheckpointHeader::decode(&block, first.nonce(), layout.checkpoint_bytes);
        header.ok().map(|header| header.segment_count)
    })
}
