//! Squid: a file for each object, its directory by a running number, so that no locality of the
//! requests is kept (Maltzahn 1999 §2.3.2).
//!
//! Deviations: those of the family, see `squid_family.rs`. Threads: one user.

use super::squid_family::{self, DirectoryRule};
use super::{Design, DesignInputs};

pub(crate) fn make(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    squid_family::make(inputs, DirectoryRule::Number, None)
}
