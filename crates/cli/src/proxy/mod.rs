//! Commands for the caching proxies. `reverse` (`damelo proxy`) and `forward` run one, using shared
//! parts (`serving`, `serve_args`, `transport_args`, `supervisor`, `room`); `check_config` reads
//! their settings; `purge`, `explain` and `top` query a running one, which `admin` finds.

mod admin;
pub(crate) mod check_config;
pub(crate) mod explain;
#[cfg(test)]
mod flag_names_tests;
pub(crate) mod forward;
pub(crate) mod purge;
pub(crate) mod reverse;
mod room;
mod serve_args;
mod serving;
mod supervisor;
pub(crate) mod top;
mod transport_args;
