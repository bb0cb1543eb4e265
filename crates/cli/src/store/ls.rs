//! `damelo ls`: lists every live object on the disk of a store.

use std::ffi::OsString;

use clap::Args;
use damelo::{Entry, ReadError};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::names::{GroupName, key_bytes, key_text, keyed};
use crate::output::Out;
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

/// Lists what matches, also where segments cannot be read, which it then fails with.
pub(crate) fn run(args: &Ls) -> Result<(), Failure> {
    let store = opening::open(&args.store)?;
    let listed = list(args, store.entries(), store.stats().index_objects);
    opening::close(store, listed)
}

fn list(
    args: &Ls,
    entries: impl Iterator<Item = Result<Entry, ReadError>>,
    objects_total: u64,
) -> Result<(), Failure> {
    let mut progress = Progress::count("listing");
    let mut out = Out::new();
    let mut unlisted = 0;
    for (done, entry) in entries.enumerate() {
        progress.set(done as u64, objects_total);
        match entry {
            Ok(entry) if args.wants(&entry) => print(&mut out, &entry, args.json)?,
            Ok(_) => {}
            Err(_) => unlisted += 1,
        }
    }
    out.finish()?;
    if unlisted > 0 { Err(Failure::Unlisted { places: unlisted }) } else { Ok(()) }
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

#[cfg(test)]
mod tests {
    use damelo::ByteSize;

    use super::*;

    /// A volume that is out of service has as many segments as it is large.
    #[test]
    fn what_cannot_be_read_is_said_once() {
        let volumes = OsString::from("s").into();
        let store = StoreArgs { volumes, memory: ByteSize::new(0), without_missing: false };
        let args = Ls { store, prefix: OsString::new(), group: None, json: false };
        let unread = |places: usize| (0..places).map(|_| Err(ReadError::Gone));
        assert!(list(&args, unread(0), 0).is_ok());
        let failure = list(&args, unread(3), 0).unwrap_err();
        let said = "damelo: 3 places could not be read: what is there is not listed\n";
        assert_eq!((failure.text().as_str(), failure.exit_code()), (said, 4));
    }
}
