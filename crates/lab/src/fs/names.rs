//! Numbers of names in the name cache: files and directories take turns, so that both are dense and
//! lie in the array of the map that keeps them. Pure.

use crate::machine::{DirId, FileId};

pub(super) fn directory_name(dir: DirId) -> u64 {
    u64::from(dir) * 2 + 1
}

pub(super) fn file_name(file: FileId) -> u64 {
    u64::from(file) * 2
}

/// The file of a name that is one's.
pub(super) fn file_of(name: u64) -> usize {
    (name / 2) as usize
}
