//! SquidML: small objects as in SquidM, others as in SquidL (Maltzahn 1999 §2.4.3).
//!
//! Deviations: those of the family, see `squid_family.rs`. Threads: one user.

use super::segments::Segments;
use super::squid_family::{self, DirectoryRule};
use super::{Context, Design};

pub(crate) fn make(context: &Context<'_>) -> Box<dyn Design> {
    squid_family::make(context, DirectoryRule::Host, Some(Segments::contiguous()))
}
