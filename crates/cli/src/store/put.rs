//! `damelo put`: streams a file or standard input into a store. A failed input leaves nothing
//! behind.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use damelo::{GroupId, Store, WriterOptions};
use serde_json::json;

use crate::failure::Failure;
use crate::names::{GroupName, key_bytes, keyed};
use crate::output::Out;
use crate::progress::Progress;
use crate::store::opening::{self, StoreArgs};

/// Bytes read from the input at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// Metadata that is read; no store takes more, and a path to a device would never end.
const METADATA_BYTES_MAX: u64 = 1 << 20;

const AFTER_HELP: &str = "\
Examples:
  damelo put cache.damelo logo logo.png
  tar c photos | damelo put cache.damelo photos.tar - --group photos
  damelo put cache.damelo page page.html --meta headers.txt --expires 3600

A key is 1 to 65536 bytes, metadata up to 1MiB, less on small segments or with little --memory, and
an object up to what `damelo stat` says: at most about half of the store. An object that exists
under the key is replaced once the new one is complete. Objects of one group lie together on disk
and are purged together.";

/// Put a file, or standard input, into a store.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Put {
    #[command(flatten)]
    store: StoreArgs,
    /// The object's key
    #[arg(value_name = "KEY")]
    key: OsString,
    /// File to read; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Group it belongs to: a name, or id:NUMBER
    #[arg(long, value_name = "GROUP", default_value = "default")]
    group: GroupName,
    /// File whose bytes become the object's metadata
    #[arg(long, value_name = "FILE")]
    meta: Option<PathBuf>,
    /// Seconds until the object expires (in February 2106 at the latest)
    #[arg(long, value_name = "SECONDS")]
    expires: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Streams the input into the store and brings it to disk.
pub(crate) fn run(args: &Put) -> Result<(), Failure> {
    let (mut input, length) = open_input(&args.file)?;
    let options =
        WriterOptions { metadata: metadata(args)?, expires_unix_s: expires(args), length };
    let store = opening::open(&args.store)?;
    let put = copy_in(&store, key_bytes(&args.key), args.group.0, options, &mut *input);
    print(args, opening::close(store, put)?)
}

type Input = Box<dyn Read>;

fn open_input(path: &Path) -> Result<(Input, Option<u64>), Failure> {
    if path.as_os_str() == "-" {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let open = || -> io::Result<(File, Option<u64>)> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok((file, meta.is_file().then_some(meta.len())))
    };
    let (file, length) = open().map_err(|source| cannot_read(path, source))?;
    Ok((Box::new(file), length))
}

fn metadata(args: &Put) -> Result<Vec<u8>, Failure> {
    let Some(path) = args.meta.as_deref() else { return Ok(Vec::new()) };
    let read = || {
        let mut metadata = Vec::new();
        let most = METADATA_BYTES_MAX + 1;
        if File::open(path)?.take(most).read_to_end(&mut metadata)? as u64 == most {
            return Err(io::Error::other("it is too long for metadata: more than 1MiB"));
        }
        Ok(metadata)
    };
    read().map_err(|source| cannot_read(path, source))
}

fn expires(args: &Put) -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    args.expires.map(|seconds| now.as_secs().saturating_add(seconds))
}

fn cannot_read(path: &Path, source: io::Error) -> Failure {
    Failure::io(format!("read `{}`", path.display()), source)
}

fn copy_in(
    store: &Store,
    key: &[u8],
    group: GroupId,
    options: WriterOptions,
    input: &mut dyn Read,
) -> Result<u64, Failure> {
    let total = options.length.unwrap_or(0);
    let mut writer = store.writer(key, group, options)?;
    let mut progress = Progress::bytes("writing");
    let mut chunk = vec![0_u8; CHUNK_BYTES];
    let mut done = 0_u64;
    loop {
        let n = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(Failure::io("read the input", source)),
        };
        writer.write(&chunk[..n]).wait()?;
        done += n as u64;
        progress.set(done, total);
    }
    writer.commit().wait()?;
    Ok(done)
}

fn print(args: &Put, length: u64) -> Result<(), Failure> {
    if !args.json {
        return Ok(());
    }
    let mut out = Out::new();
    let about = json!({ "group": args.group.0.get(), "length_bytes": length });
    out.json(&keyed(key_bytes(&args.key), about))?;
    out.finish()
}
