//! `damelo ls`: lists every live object on the disk of a store.

use std::ffi::OsString;

use clap::Args;
use damelo::{Entry, ReadError, Store};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::names::{GroupName, key_bytes, key_text, keyed};
use crate::output::{Out, say};
use crate::progress::Progress;
use crate::store::opening::{self, StoreArgs};

const AFTER_HELP: &str = "\
Examples:
  damelo ls cache.damelo
  damelo ls cache.damelo --prefix http://example.org/
  damelo ls cache.damelo --group example.org
  damelo ls cache.damelo --json | jq -s 'map(.length_bytes) | add'

Each line is: length in bytes, group, key. Groups are printed as id:NUMBER, which every command
takes wherever it takes a group's name (names themselves are not stored). Bytes of a key that do
not print are written \\xNN, a backslash \\\\; with --json, keys that are no text are in `key_hex`.";

/// List the objects of a store.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Ls {
    #[command(flatten)]
    store: StoreArgs,
    /// Only keys that begin so
    #[arg(long, value_name = "PREFIX", default_value = "")]
    prefix: OsString,
    /// Only this group: its name, or id:NUMBER
    #[arg(long, value_name = "GROUP")]
    group: Option<GroupName>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

impl Ls {
    fn wants(&self, entry: &Entry) -> bool {
        entry.key.starts_with(key_bytes(&self.prefix))
            && self.group.is_none_or(|group| group.0 == entry.group)
    }
}

/// Lists what matches. Damaged entries are reported on stderr and the rest goes on.
pub(crate) fn run(args: &Ls) -> Result<(), Failure> {
    let store = opening::open(&args.store)?;
    let listed = list(args, &store);
    store.close()?;
    listed
}

fn list(args: &Ls, store: &Store) -> Result<(), Failure> {
    let objects_total = store.stats().index_objects;
    let mut progress = Progress::count("listing");
    let mut out = Out::new();
    let mut failed: Option<ReadError> = None;
    for (done, entry) in store.entries().enumerate() {
        progress.set(done as u64, objects_total);
        match entry {
            Ok(entry) if args.wants(&entry) => print(&mut out, &entry, args.json)?,
            Ok(_) => {}
            Err(error) => {
                say(format_args!("damelo: warning: a segment cannot be listed: {error}"));
                failed = Some(error);
            }
        }
    }
    out.finish()?;
    failed.map_or(Ok(()), |error| Err(Failure::Read(error)))
}

fn print(out: &mut Out, entry: &Entry, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return out.json(&to_json(entry));
    }
    let group = format!("id:{}", entry.group);
    out.line(format_args!("{:>12} {:<24} {}", entry.length_bytes, group, key_text(&entry.key)))
}

fn to_json(entry: &Entry) -> Value {
    let about = json!({
        "group": entry.group.get(),
        "length_bytes": entry.length_bytes,
        "metadata_bytes": entry.metadata_bytes,
        "expires_unix_s": entry.expires_unix_s,
        "segment": entry.segment,
    });
    keyed(&entry.key, about)
}
