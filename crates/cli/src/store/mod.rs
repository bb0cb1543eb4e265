//! Commands on a store: `format`, `stat`, `check`, `ls`, `get`, `put`, `rm`; and `opening`, through
//! which they and the proxies open one.

pub(crate) mod check;
pub(crate) mod format;
pub(crate) mod get;
pub(crate) mod ls;
pub(crate) mod opening;
pub(crate) mod put;
pub(crate) mod rm;
pub(crate) mod stat;
