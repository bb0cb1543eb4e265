//! `damelo purge`: drops a group, a prefix or everything, in the same time whatever the number of
//! objects.

use std::ffi::OsString;

use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::names::{GroupName, key_bytes, key_text};
use crate::opening::{self, StoreArgs};
use crate::output::Out;

const AFTER_HELP: &str = "\
Examples:
  damelo purge cache.damelo --group example.org
  damelo purge cache.damelo --prefix http://example.org/news/
  damelo purge cache.damelo --all

What was purged stays purged after a crash. A store that a proxy has open is locked: use the
proxy's own purge.";

/// Drop a group, all keys with a prefix, or everything.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(false))]
pub(crate) struct Purge {
    #[command(flatten)]
    store: StoreArgs,
    /// Every object of this group: its name, or id:NUMBER
    #[arg(long, value_name = "GROUP", group = "what")]
    group: Option<GroupName>,
    /// Every object whose key begins so
    #[arg(long, value_name = "PREFIX", group = "what")]
    prefix: Option<OsString>,
    /// Every object
    #[arg(long, group = "what")]
    all: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Records the purge and says what was purged.
pub(crate) fn run(args: &Purge) -> Result<(), Failure> {
    let store = opening::open(&args.store)?;
    let what = if let Some(group) = args.group {
        store.purge_group(group.0)?;
        format!("group id:{}", group.0)
    } else if let Some(prefix) = &args.prefix {
        store.purge_prefix(key_bytes(prefix))?;
        format!("prefix {}", key_text(key_bytes(prefix)))
    } else {
        store.purge_all()?;
        "everything".to_owned()
    };
    store.close()?;
    let mut out = Out::new();
    if args.json {
        out.json(&json!({ "purged": what }))?;
    } else {
        out.line(format_args!("purged {what}"))?;
    }
    out.finish()
}
