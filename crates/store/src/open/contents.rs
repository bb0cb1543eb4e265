//! What a volume holds: a store of ours, nothing, or something else that is not to be lost.
//!
//! Invariant: nothing is changed. Threads: the one that opens the store.

use std::io;

use super::{RawVolume, SUPERBLOCKS_BYTES};
use crate::device::Device;
use crate::durable::superblocks::WrongCopies;
use crate::error::OpenError;
use crate::format::{BLOCK_BYTES, FormatError, SUPERBLOCK_BYTES, Superblock};
use crate::memory::mapped::AlignedBuf;

/// How much of the beginning of a volume must be zero for it to be blank, and of its end as well as
/// in one read.
const BLANK_HEAD: u64 = 4 << 20;
const BLANK_PIECE: u64 = 1 << 20;

/// The contents of a volume, by its superblock.
pub(super) enum VolumeContents {
    /// And what is wrong with each of its copies.
    Ours(Box<Superblock>, WrongCopies),
    Nothing,
    Other,
    Version(u32),
    Damaged(String),
}

pub(super) fn inspect(volume: &RawVolume) -> Result<VolumeContents, OpenError> {
    if volume.fresh {
        return Ok(VolumeContents::Nothing);
    }
    let size = volume.device.info().size_bytes;
    if size < SUPERBLOCKS_BYTES as u64 {
        return Ok(if size == 0 { VolumeContents::Nothing } else { VolumeContents::Other });
    }
    let (head, errors) = read_superblocks(volume.device.as_ref());
    let why_none = match Superblock::decode_either(&head) {
        Ok(superblock) => {
            let wrong = wrong_copies(&head, &errors, &superblock);
            return Ok(VolumeContents::Ours(Box::new(superblock), wrong));
        }
        Err(error) => error,
    };
    if let Some(source) = errors.into_iter().flatten().next() {
        let (path, doing) = (volume.path.clone(), "reading the superblock");
        return Err(OpenError::Io { path, doing, source });
    }
    if is_zero(&head) {
        return Ok(if is_blank(volume)? { VolumeContents::Nothing } else { VolumeContents::Other });
    }
    Ok(match why_none {
        FormatError::OtherVersion { found, .. } => VolumeContents::Version(found),
        FormatError::NotOurs => VolumeContents::Other,
        error => VolumeContents::Damaged(error.to_string()),
    })
}

/// What is wrong with each copy of a superblock of which one is right.
fn wrong_copies(both: &[u8], unread: &[Option<io::Error>; 2], right: &Superblock) -> WrongCopies {
    [0, 1].map(|number| match &unread[number] {
        Some(error) => Some(error.to_string()),
        None => match Superblock::decode(&both[number * SUPERBLOCK_BYTES..]) {
            Ok(copy) if copy == *right => None,
            Ok(_) => Some("it is another than the first".to_owned()),
            Err(error) => Some(error.to_string()),
        },
    })
}

/// Both copies of a superblock. Each is read by itself, since one is enough; one that cannot be
/// read is zeros, and the error says why.
pub(crate) fn read_superblocks(device: &dyn Device) -> (AlignedBuf, [Option<io::Error>; 2]) {
    let mut both = AlignedBuf::zeroed(SUPERBLOCKS_BYTES);
    let errors = [0, SUPERBLOCK_BYTES].map(|at| {
        let copy = &mut both[at..at + SUPERBLOCK_BYTES];
        let error = device.read_at(at as u64, copy).err()?;
        copy.fill(0);
        Some(error)
    });
    (both, errors)
}

/// True if all bytes are zeros.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// True if a volume holds nothing, neither where file systems and the like have their signatures
/// nor at its end, where mirrors have theirs. Some leave the place of a superblock of ours zero:
/// btrfs, ZFS, images of discs.
fn is_blank(volume: &RawVolume) -> Result<bool, OpenError> {
    let size = volume.device.info().size_bytes;
    let mut piece = AlignedBuf::zeroed(BLANK_PIECE as usize);
    let first = (0..BLANK_HEAD.min(size)).step_by(BLANK_PIECE as usize);
    // Direct I/O begins at a block, and devices end at one.
    let last = size.saturating_sub(BLANK_PIECE).next_multiple_of(BLOCK_BYTES);
    for at in first.chain([last]) {
        let bytes = &mut piece[..BLANK_PIECE.min(size - at) as usize];
        volume.device.read_at(at, bytes).map_err(|source| OpenError::Io {
            path: volume.path.clone(),
            doing: "reading whether it holds something",
            source,
        })?;
        if !is_zero(bytes) {
            return Ok(false);
        }
    }
    Ok(true)
}
