//! SquidL: a file for each object in a directory chosen by its host (Maltzahn 1999 §2.4.1).
//!
//! Deviations: those of the family, see `squid_family.rs`. Threads: one user.

use super::squid_family::{self, DirectoryRule};
use super::{Design, DesignInputs};

pub(crate) fn make(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    squid_family::make(inputs, DirectoryRule::Host, None)
}
