//! `damelo rm`: deletes objects by key.

use std::ffi::OsString;

use clap::Args;
use damelo::Store;
use serde_json::json;

use crate::failure::Failure;
use crate::names::{key_bytes, key_text, keyed};
use crate::output::{Out, heard, say};
use crate::store::opening::{self, StoreArgs};

const AFTER_HELP: &str = "\
Examples:
  damelo rm cache.damelo http://example.org/old.html
  damelo ls cache.damelo --json --prefix tmp/ | jq -r .key > keys
  xargs -d '\\n' -a keys damelo rm cache.damelo --

The keys go to a file first, as a store is open in one process at a time. `--` is for keys that
begin with `-`.
A deletion that was reported done survives a crash. Exit code 1 if a key was not there; the others
are deleted nevertheless. To drop many at once, `damelo purge` costs the same for one as for
millions.";

/// Delete objects by key.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Rm {
    #[command(flatten)]
    store: StoreArgs,
    /// Keys to delete
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
    /// Say nothing about keys that are not there, and exit with 0
    #[arg(short, long)]
    force: bool,
    /// Print one JSON object a key
    #[arg(long)]
    json: bool,
}

/// Deletes what is there and names what is not.
pub(crate) fn run(args: &Rm) -> Result<(), Failure> {
    let store = opening::open(&args.store)?;
    let removed = remove(args, &store);
    let missing = opening::close(store, removed)?;
    if missing > 0 && !args.force {
        return Err(Failure::SomeNotFound { missing, asked: args.keys.len() });
    }
    Ok(())
}

fn remove(args: &Rm, store: &Store) -> Result<usize, Failure> {
    let (mut out, mut told) = (Out::new(), Ok(()));
    let mut missing = 0;
    for key in &args.keys {
        let key = key_bytes(key);
        let there = store.remove(key)?;
        // Nobody may read on, but what was asked for is done.
        if args.json && told.is_ok() {
            told = out.json(&keyed(key, json!({ "removed": there })));
        }
        if !there {
            missing += 1;
            if !args.force {
                say(format_args!("damelo: `{}` is not in the store", key_text(key)));
            }
        }
    }
    heard(told.and_then(|()| out.finish()))?;
    Ok(missing)
}
