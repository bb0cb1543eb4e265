//! SquidMLA: SquidML with small objects packed so that none crosses a page (Maltzahn 1999 §2.4.4).
//!
//! Deviations: those of the family, see `squid_family.rs`. Threads: one user.

use super::segments::Segments;
use super::squid_family::{self, DirectoryRule};
use super::{Design, DesignInputs};

pub(crate) fn make(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    squid_family::make(inputs, DirectoryRule::Host, Some(Segments::packed()))
}
