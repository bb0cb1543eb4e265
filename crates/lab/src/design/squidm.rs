//! SquidM: objects of up to 8 KB in a mapped file in the order of their misses, others as in Squid
//! (Maltzahn 1999 §2.4.2).
//!
//! Deviations: those of the family, see `squid_family.rs`. Threads: one user.

use super::segments::Segments;
use super::squid_family::{self, DirectoryRule};
use super::{Design, DesignInputs};

pub(crate) fn make(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    squid_family::make(inputs, DirectoryRule::Number, Some(Segments::contiguous()))
}
