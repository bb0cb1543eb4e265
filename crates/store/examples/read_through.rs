//! A program with a cache in front of a slow origin: eight threads ask for pages, what is missing
//! is fetched once, a change purges its group, and after a restart the hits are still there.
//!
//! `cargo run --release -p damelo --example read_through [DIRECTORY]`

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use damelo::{Config, GroupId, ReadThrough, Store};

const THREADS: usize = 8;
const PAGES: usize = 50;
/// Parts of a page, which are fetched and purged with it.
const PARTS: usize = 4;

/// The origin: it takes its time, and knows which version of a page is the newest.
#[derive(Default)]
struct Origin {
    version: AtomicU64,
    asked: AtomicU64,
}

impl Origin {
    fn fetch(&self, key: &str) -> Result<Vec<u8>, io::Error> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let version = self.version.load(Ordering::Relaxed);
        thread::sleep(Duration::from_millis(5));
        Ok(format!("{key}, version {version}\n").repeat(100).into_bytes())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let given = std::env::args_os().nth(1);
    let scratch = tempfile::tempdir()?;
    let path = given.as_deref().map_or(scratch.path(), Path::new).join("pages.store");
    let origin = Origin::default();

    let cache = open(&path)?;
    round("nothing stored", &cache, &origin)?;
    round("all in memory", &cache, &origin)?;

    // A page has changed: all its parts go, in constant time, and no fetch that began before can
    // bring the old ones back.
    origin.version.store(1, Ordering::Relaxed);
    cache.purge_group(group(7))?;
    round("one page purged", &cache, &origin)?;
    println!("{:#?}", cache.stats());

    cache.store().clone().close()?;
    drop(cache);
    round("opened again", &open(&path)?, &origin)
}

fn open(path: &Path) -> Result<ReadThrough<io::Error>, Box<dyn Error>> {
    let mut config = Config::new(path, "64MiB".parse()?);
    config.memory = "16MiB".parse()?;
    Ok(ReadThrough::new(Store::open(config)?))
}

/// The objects of a page lie together on disk, and are purged together.
fn group(page: usize) -> GroupId {
    GroupId::of(format!("example.org/page/{page}"))
}

/// Every thread asks for every part of every page.
fn round(
    name: &str,
    cache: &ReadThrough<io::Error>,
    origin: &Origin,
) -> Result<(), Box<dyn Error>> {
    let (begun, before) = (Instant::now(), origin.asked.load(Ordering::Relaxed));
    let read_all = || {
        for page in 0..PAGES {
            for part in 0..PARTS {
                let key = format!("/page/{page}/part/{part}");
                let served =
                    cache.read_blocking(key.as_bytes(), group(page), || origin.fetch(&key));
                let body = served.expect("this origin always answers");
                assert!(body.starts_with(key.as_bytes()));
            }
        }
    };
    thread::scope(|scope| {
        (0..THREADS).for_each(|_| drop(scope.spawn(read_all)));
    });
    let fetched = origin.asked.load(Ordering::Relaxed) - before;
    let reads = THREADS * PAGES * PARTS;
    println!("{name}: {reads} reads, {fetched} fetches, {} ms", begun.elapsed().as_millis());
    Ok(())
}
