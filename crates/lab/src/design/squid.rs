//! Squid: a file for each object, its directory by a running number, so that no locality of the
//! requests is kept (Maltzahn 1999 §2.3.2).
//!
//! Deviations: those of the family, see `squid_family.rs`. Threads: one user.

use super::squid_family::{self, DirectoryRule};
use super::{Context, Design};

pub(crate) fn make(context: &Context<'_>) -> Box<dyn Design> {
    squid_family::make(context, DirectoryRule::Number, None)
}
