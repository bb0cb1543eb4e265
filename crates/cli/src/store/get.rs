//! `damelo get`: streams an object, or a range of it, out of a store. Never holds the whole object
//! in memory.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use damelo::{ObjectInfo, Reader, Store};
use damelo_lab::NewFile;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::names::{key_bytes, key_text, keyed};
use crate::output::{Out, heard};
use crate::progress::Progress;
use crate::store::opening::{self, StoreArgs};

const AFTER_HELP: &str = "\
Examples:
  damelo get cache.damelo http://example.org/logo.png > logo.png
  damelo get cache.damelo big.iso -o big.iso
  damelo get cache.damelo big.iso --range 0-1023          the first 1024 bytes
  damelo get cache.damelo big.iso --range 1048576-        from there to the end
  damelo get cache.damelo big.iso --range -100            the last 100 bytes
  damelo get cache.damelo logo --json                     only what is known about it

Exit code 1 if the key is not there, with --json also \"found\": false; 4 if that cannot be read.";

const STDOUT: &str = "-";

/// Write an object to standard output or a file.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Get {
    #[command(flatten)]
    store: StoreArgs,
    /// The object's key
    #[arg(value_name = "KEY")]
    key: OsString,
    /// Write to this file; - is standard output, as without it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only these bytes: FIRST-LAST, FIRST- or -COUNT
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    range: Option<RangeSpec>,
    /// Also write the object's metadata to this file
    #[arg(long, value_name = "FILE")]
    meta: Option<PathBuf>,
    /// Print what is known about the object as JSON; its bytes then go only to --output
    #[arg(long)]
    json: bool,
}

/// A range of bytes as HTTP writes it: both ends inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RangeSpec {
    From { first: u64, last: Option<u64> },
    Last { count: u64 },
}

/// A range that could not be understood.
#[derive(Debug, thiserror::Error)]
#[error("write FIRST-LAST, FIRST- or -COUNT, in bytes, such as 0-1023")]
struct ParseRangeError;

impl FromStr for RangeSpec {
    type Err = ParseRangeError;

    fn from_str(text: &str) -> Result<RangeSpec, ParseRangeError> {
        let (first, last) = text.split_once('-').ok_or(ParseRangeError)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| ParseRangeError);
        if first.is_empty() {
            return Ok(RangeSpec::Last { count: number(last)? });
        }
        let first = number(first)?;
        let last = if last.is_empty() { None } else { Some(number(last)?) };
        if last.is_some_and(|last| last < first) {
            return Err(ParseRangeError);
        }
        Ok(RangeSpec::From { first, last })
    }
}

impl RangeSpec {
    /// The bytes meant in an object of this length; empty if it is too short.
    fn resolve(self, length: u64) -> Range<u64> {
        match self {
            RangeSpec::From { first, last } => {
                let end = last.map_or(length, |last| last.saturating_add(1)).min(length);
                first.min(end)..end
            }
            RangeSpec::Last { count } => length.saturating_sub(count)..length,
        }
    }
}

/// Streams the object out.
pub(crate) fn run(args: &Get) -> Result<(), Failure> {
    let is_stdout = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new(STDOUT));
    if is_stdout(&args.meta) || args.json && is_stdout(&args.output) {
        let option = if is_stdout(&args.meta) { "--meta" } else { "--output, with --json," };
        return Err(Failure::Usage(format!(
            "{option} takes a file: standard output is for something else (./- is a file)"
        )));
    }
    for path in [&args.output, &args.meta].into_iter().flatten() {
        if args.store.volumes.all().iter().any(|volume| is_same_file(volume, path)) {
            let shown = path.display();
            return Err(Failure::Usage(format!(
                "`{shown}` is the store itself: name another file"
            )));
        }
    }
    let store = opening::open(&args.store)?;
    let copied = copy_out(args, &store);
    opening::close(store, copied)
}

/// Whether both paths lead to one file; not if there is none.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    id(one).is_some_and(|one| id(other) == Some(one))
}

fn copy_out(args: &Get, store: &Store) -> Result<(), Failure> {
    let Some(mut reader) = store.reader(key_bytes(&args.key)).wait()? else {
        let key = key_text(key_bytes(&args.key));
        // A miss of the store, but not for want of the object.
        if store.stats().misses_io > 0 {
            return Err(Failure::Unread { key });
        }
        if args.json {
            let mut out = Out::new();
            let told = out.json(&keyed(key_bytes(&args.key), json!({ "found": false })));
            heard(told.and_then(|()| out.finish()))?;
        }
        return Err(Failure::NotFound { key });
    };
    let info = reader.info().clone();
    let length = info.length_bytes;
    let range = args.range.map_or(0..length, |spec| spec.resolve(length));
    if let Some(path) = &args.meta {
        fs::write(path, &info.metadata).map_err(|source| cannot_write(path, source))?;
    }
    match args.output.as_deref().filter(|path| *path != Path::new(STDOUT)) {
        Some(path) => to_file(&mut reader, range, path)?,
        None if !args.json => to_stdout(&mut reader, range)?,
        None => {}
    }
    if args.json {
        let mut out = Out::new();
        out.json(&to_json(&args.key, &info))?;
        out.finish()?;
    }
    Ok(())
}

fn to_stdout(reader: &mut Reader, range: Range<u64>) -> Result<(), Failure> {
    let mut out = Out::new();
    stream(reader, range, &mut |bytes| out.bytes(bytes))?;
    out.finish()
}

/// The file appears when it is whole; until then, and if it cannot be, what lay there stays.
fn to_file(reader: &mut Reader, range: Range<u64>, path: &Path) -> Result<(), Failure> {
    let failed = |source| cannot_write(path, source);
    let (mut file, new) = NewFile::begin(path).map_err(failed)?;
    stream(reader, range, &mut |bytes| file.write_all(bytes).map_err(failed))?;
    new.keep().map_err(failed)
}

fn cannot_write(path: &Path, source: std::io::Error) -> Failure {
    Failure::io(format!("write `{}`", path.display()), source)
}

type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Failure>;

/// Hands the bytes of `range` to `sink`, piece by piece.
fn stream(reader: &mut Reader, range: Range<u64>, sink: Sink<'_>) -> Result<(), Failure> {
    let mut progress = Progress::bytes("reading");
    let total = range.end - range.start;
    let mut left = total;
    reader.select(range);
    while left > 0 {
        let Some(chunk) = reader.next().wait()? else {
            // The store knew the length; an early end means that the rest was lost meanwhile.
            let source = std::io::ErrorKind::UnexpectedEof.into();
            return Err(Failure::io("read the whole object: it ended early", source));
        };
        let take = (chunk.len() as u64).min(left);
        sink(&chunk[..take as usize])?;
        left -= take;
        progress.set(total - left, total);
    }
    Ok(())
}

fn to_json(key: &OsString, info: &ObjectInfo) -> Value {
    let about = json!({
        "found": true,
        "group": info.group.get(),
        "length_bytes": info.length_bytes,
        "metadata_bytes": info.metadata.len(),
        "expires_unix_s": info.expires_unix_s,
        "resident": info.resident,
    });
    keyed(key_bytes(key), about)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use damelo::{ByteSize, Config, GroupId};

    use super::*;

    #[test]
    fn ranges_read_as_http_writes_them() {
        for (text, length, expected) in [
            ("0-9", 100, 0..10),
            ("5-5", 100, 5..6),
            ("90-", 100, 90..100),
            ("-10", 100, 90..100),
            ("-1000", 100, 0..100),
            ("50-500", 100, 50..100),
            ("200-300", 100, 100..100),
            ("0-18446744073709551615", 3, 0..3),
        ] {
            assert_eq!(text.parse::<RangeSpec>().unwrap().resolve(length), expected, "{text}");
        }
        for text in ["", "-", "5", "9-5", "a-b", "1-2-3"] {
            assert!(text.parse::<RangeSpec>().is_err(), "{text}");
        }
    }

    /// A store that lost its second half after it was opened, as if that could not be read.
    #[test]
    fn what_cannot_be_read_is_not_said_to_be_missing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let store = Store::open(Config::new(&path, ByteSize::new(64 << 20))).expect("a store");
        let value = vec![7; 700 << 10];
        for n in 0..44 {
            store.create(format!("{n}").as_bytes(), GroupId::new(1), &value).wait().expect("made");
        }
        store.sync().expect("written");
        store.drop_memory();
        let file = File::options().write(true).open(&path).expect("the store");
        file.set_len(32 << 20).expect("cut");
        let code = |key: &str| {
            let store_args = StoreArgs {
                volumes: path.as_path().into(),
                memory: ByteSize::new(0),
                without_missing: false,
            };
            let output = Some(dir.path().join("out"));
            let (range, meta, json) = (None, None, false);
            let args = Get { store: store_args, key: key.into(), output, range, meta, json };
            copy_out(&args, &store).map_err(|failure| failure.exit_code())
        };
        assert_eq!(code("nothing"), Err(1));
        assert_eq!(code("0"), Ok(()));
        assert_eq!(code("43"), Err(4));
    }

    /// Of a store that lost its end after it was opened half an object can be read.
    #[test]
    fn a_file_is_whole_or_what_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, out) = (dir.path().join("s"), dir.path().join("out"));
        let store = Store::open(Config::new(&path, ByteSize::new(64 << 20))).expect("a store");
        store.create(b"k", GroupId::new(1), &vec![7; 24 << 20]).wait().expect("made");
        store.sync().expect("written");
        store.drop_memory();
        let args = Get {
            store: StoreArgs {
                volumes: path.as_path().into(),
                memory: ByteSize::new(0),
                without_missing: false,
            },
            key: "k".into(),
            output: Some(out.clone()),
            range: None,
            meta: None,
            json: false,
        };
        copy_out(&args, &store).expect("whole");
        assert_eq!(fs::metadata(&out).expect("a file").len(), 24 << 20);
        fs::write(&out, "what was there").expect("written");
        store.drop_memory();
        let file = File::options().write(true).open(&path).expect("the store");
        file.set_len(16 << 20).expect("cut");
        assert!(copy_out(&args, &store).is_err());
        assert_eq!(fs::read(&out).expect("a file"), b"what was there");
        assert_eq!(fs::read_dir(dir.path()).expect("a directory").count(), 2, "and nothing else");
    }
}
