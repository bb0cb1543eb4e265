//! How full the pages of a store get where objects come slowly, each of a group of its own: most of
//! them are written because their time is over (`flush_period`), not because a page is full.
//!
//! `cargo run --release -p damelo --example paced [OBJECTS_PER_SECOND] [BYTES] [SECONDS]`

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use damelo::{Config, GroupId, Store};

/// The store's page where nothing else is said.
const PAGE_BYTES: u64 = 64 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut given = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let mut next = |default| given.next().unwrap_or(Ok(default));
    let (rate, bytes, seconds) = (next(200)?.max(1), next(2048)?, next(30)?);
    let directory = tempfile::tempdir()?;
    let mut config = Config::new(directory.path().join("paced.store"), "1GiB".parse()?);
    config.memory = "64MiB".parse()?;
    let store = Store::open(config)?;
    let value = vec![7; usize::try_from(bytes)?];
    let begun = Instant::now();
    for n in 0..rate * seconds {
        let due = Duration::from_nanos(n * 1_000_000_000 / rate);
        thread::sleep(due.saturating_sub(begun.elapsed()));
        let key = format!("/object/{n}");
        store.create(key.as_bytes(), GroupId::of(&key), &value).wait()?;
    }
    let stats = store.stats();
    let (pages, objects) = (stats.pages_written, stats.written_object_bytes);
    let disk = pages * PAGE_BYTES;
    println!("{} objects of {bytes} bytes, {rate} a second", stats.creates);
    println!("{objects} bytes of them written on {pages} pages of 64 KiB");
    println!(
        "{:.1} bytes of the disk for each byte of objects",
        disk as f64 / objects.max(1) as f64
    );
    store.close()?;
    Ok(())
}
