//! A file as the file system knows it, and which buffers hold a part of it or point to it.
//!
//! Invariant: what is handed out lies within the file's own runs, in order. Threads: plain data.

use super::DIRECT_BLOCKS;
use super::groups::Run;
use super::params::FfsParams;
use crate::machine::DirId;

#[derive(Debug, Clone, Default)]
pub(super) struct File {
    pub(super) exists: bool,
    pub(super) dir: DirId,
    pub(super) slot: u32,
    pub(super) inode: u32,
    pub(super) bytes: u64,
    pub(super) runs: Vec<Run>,
    pub(super) indirect: Vec<u64>,
}

/// The buffers of a part of a file: first fragment, fragments, and whether all of the buffer is
/// covered.
pub(super) fn pieces(
    params: FfsParams,
    file: &File,
    offset: u64,
    bytes: u64,
) -> impl Iterator<Item = (u64, u32, bool)> + '_ {
    let (per_block, fragment_bytes) =
        (params.fragments_per_block(), u64::from(params.fragment_bytes));
    let end = offset + bytes;
    let to_its_end = end == file.bytes;
    let mut runs = file.runs.iter();
    let mut rest = Run { fragment: 0, fragments: 0 };
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < end {
            if rest.fragments == 0 {
                rest = *runs.next()?;
                let run_bytes = u64::from(rest.fragments) * fragment_bytes;
                if at + run_bytes <= offset {
                    at += run_bytes;
                    rest.fragments = 0;
                    continue;
                }
            }
            let (from, fragment, here) = (at, rest.fragment, per_block.min(rest.fragments));
            at += u64::from(here) * fragment_bytes;
            rest = Run { fragment: fragment + u64::from(here), fragments: rest.fragments - here };
            if at > offset {
                let whole = offset <= from && (at <= end || to_its_end);
                return Some((fragment, here, whole));
            }
        }
        None
    })
}

/// The indirect blocks that point to a part of a file.
pub(super) fn pointers(params: FfsParams, file: &File, offset: u64, bytes: u64) -> &[u64] {
    let end = (offset + bytes).div_ceil(u64::from(params.block_bytes));
    let first = offset / u64::from(params.block_bytes);
    let per_block = params.pointers_per_block();
    let from = first.saturating_sub(DIRECT_BLOCKS) / per_block;
    let to = end.saturating_sub(DIRECT_BLOCKS).div_ceil(per_block);
    file.indirect.get(from as usize..to as usize).unwrap_or_default()
}
