//! `damelo format`: creates a store. Destroys nothing without `--force`.

use std::fs;
use std::path::Path;

use clap::Args;
use damelo::{ByteSize, Config, Store, StoreInfo, VolumeConfig, VolumeInfo};
use serde_json::json;

use crate::failure::Failure;
use crate::names::{Volumes, hex};
use crate::output::{Out, thousands};
use crate::store::opening::open_with;

const AFTER_HELP: &str = "\
Examples:
  damelo format cache.damelo --size 20GiB
  damelo format /dev/nvme1n1 --size 400GiB --objects 100000000
  damelo format /disk1/c.damelo,/disk2/c.damelo --size 100GiB      each volume gets 100GiB

The whole size is taken at once and never exceeded. --page and --segment are fixed for the life of
the store: small pages suit objects that are asked for alone, large pages suit groups that are
read as a whole and disks with seeks.";

/// Make a store in a file or on a block device.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Format {
    /// File or block device to make the store on (several volumes: PATH,PATH)
    #[arg(value_name = "PATH")]
    volumes: Volumes,
    /// Size of each volume, such as 20GiB; of a device no more than this is used
    #[arg(long, value_name = "SIZE")]
    size: ByteSize,
    /// Page size, a power of two from 16KiB to 1MiB [default: 64KiB]
    #[arg(long, value_name = "SIZE")]
    page: Option<ByteSize>,
    /// Segment size, a power of two from 256KiB to 64MiB [default: 16MiB, less on small stores]
    #[arg(long, value_name = "SIZE")]
    segment: Option<ByteSize>,
    /// Objects the index has room for, 8 bytes of memory each, 64 at least
    /// [default: one for each 4KiB of disk; below 4GiB one for each KiB, up to a million]
    #[arg(long, value_name = "COUNT")]
    objects: Option<u64>,
    /// Overwrite whatever the path holds now
    #[arg(long)]
    force: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Makes the store and says what was made.
pub(crate) fn run(args: &Format) -> Result<(), Failure> {
    let store = make(args)?;
    let info = store.info();
    store.close()?;
    print(&info, args.json)
}

fn make(args: &Format) -> Result<Store, Failure> {
    for path in args.volumes.all() {
        if !args.force && holds_something(path) {
            return Err(Failure::Exists { path: path.clone() });
        }
    }
    let store = open_with(config(args), &args.volumes)?;
    if !store.info().created {
        // A device with a store on it.
        return Err(Failure::Exists { path: args.volumes.first().to_owned() });
    }
    Ok(store)
}

fn config(args: &Format) -> Config {
    let mut config = Config::new(args.volumes.first(), args.size);
    config.volumes = args
        .volumes
        .all()
        .iter()
        .map(|path| VolumeConfig { path: path.clone(), size: Some(args.size) })
        .collect();
    config.page = args.page;
    config.segment = args.segment;
    config.objects_max = args.objects;
    config.anew = args.force;
    config
}

/// True for a file with bytes in it; what a block device holds only the store can tell.
fn holds_something(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 0)
}

fn print(info: &StoreInfo, as_json: bool) -> Result<(), Failure> {
    let size_bytes: u64 = info.volumes.iter().map(|volume| volume.size_bytes).sum();
    let mut out = Out::new();
    if as_json {
        // As text: a path need not be UTF-8, and JSON must be.
        let path = |volume: &VolumeInfo| volume.path.display().to_string();
        let paths: Vec<String> = info.volumes.iter().map(path).collect();
        out.json(&json!({
            "store_id": hex(&info.store_id),
            "volumes": paths,
            "size_bytes": size_bytes,
            "page_bytes": info.page_bytes,
            "segment_bytes": info.segment_bytes,
            "segments": info.segments,
            "objects_max": info.objects_max,
            "index_bytes": info.index_bytes,
        }))?;
    } else {
        out.line(format_args!(
            "made a store of {}: {} segments of {}, pages of {}, room for {} objects ({} of index in memory)",
            ByteSize::new(size_bytes),
            info.segments,
            ByteSize::new(info.segment_bytes),
            ByteSize::new(info.page_bytes),
            thousands(info.objects_max),
            ByteSize::new(info.index_bytes),
        ))?;
    }
    out.finish()
}
