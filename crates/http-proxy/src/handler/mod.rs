//! x

pub(crate) mod purge;
