//! Fills a store in a child process (`damelo bench fill`, hidden), for benchmarks that measure a
//! process's memory or kill it. The child answers with one line of JSON; a child that is to be
//! killed keeps creating objects until then.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::Args;
use damelo::{ByteSize, Config, GroupId, Store};
use serde::{Deserialize, Serialize};

use crate::bench::disk::resident_bytes;
use crate::bench::scratch;
use crate::bench::store_side::key_of;
use crate::failure::Failure;
use crate::leftovers::end_with_parent;
use crate::output::Out;
use crate::progress;

/// Threads that fill.
const THREADS: u32 = 2;
/// Objects between two progress updates of a thread.
const TELL_EVERY: u32 = 256;
/// Objects of one group have consecutive numbers.
const OBJECTS_PER_GROUP: u32 = 256;

/// The store to create and the objects to fill it with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FillJob {
    /// Path of the store.
    pub(crate) path: PathBuf,
    /// Its size.
    pub(crate) disk_bytes: u64,
    /// Memory for data.
    pub(crate) memory_bytes: u64,
    /// Room in the index.
    pub(crate) objects_max: u64,
    /// Objects to create.
    pub(crate) objects: u32,
    /// Size of each.
    pub(crate) size: usize,
    /// In place of whatever is at that path: a [`Scratch`](scratch::Scratch) has chosen it.
    #[serde(default)]
    pub(crate) anew: bool,
    /// Whether the disk has seeks, if that was said.
    #[serde(default)]
    pub(crate) seeks: Option<bool>,
    /// Continues to create objects after the answer, until killed; otherwise closes the store
    /// cleanly before the answer.
    pub(crate) to_be_killed: bool,
}

impl FillJob {
    /// A job with an index filled to 90% and a volume with room for everything.
    pub(crate) fn new(path: &Path, objects: u32, size: usize, memory: ByteSize) -> FillJob {
        /// Upper estimate for key, record header and metadata of an object.
        const OVERHEAD_BYTES: u64 = 128;
        const SECTOR_BYTES: u64 = 512;
        let each = (size as u64 + OVERHEAD_BYTES).next_multiple_of(SECTOR_BYTES);
        FillJob {
            path: path.to_owned(),
            disk_bytes: each * u64::from(objects) * 5 / 4 + (128 << 20),
            memory_bytes: memory.bytes(),
            objects_max: u64::from(objects) * 10 / 9 + 1024,
            objects,
            size,
            anew: true,
            seeks: None,
            to_be_killed: false,
        }
    }
}

/// The child's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FillAnswer {
    /// Resident memory of the process after everything was written to disk, with the store open.
    pub(crate) resident_bytes: u64,
    /// Memory of the index, as the store reports it.
    pub(crate) index_bytes: u64,
    /// Created objects that the store no longer has.
    pub(crate) lost: u64,
}

/// Fills a store for other benchmarks; started by them
#[derive(Debug, Args)]
pub(crate) struct Fill {
    /// The job as JSON
    #[arg(long)]
    job: String,
}

/// A child that fills. Killed on drop.
pub(crate) struct Filler {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Filler {
    /// Starts the child.
    pub(crate) fn start(job: &FillJob) -> Result<Filler, Failure> {
        let failed = |source| Failure::io("start a child process", source);
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .args(["bench", "fill", "--job", &serde_json::to_string(job)?])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::Child("no output".to_owned()))?;
        Ok(Filler { child, stdout: BufReader::new(stdout) })
    }

    /// Waits until the store is filled.
    pub(crate) fn answer(&mut self) -> Result<FillAnswer, Failure> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).map_err(|source| Failure::io("hear the child", source))?;
        if line.is_empty() {
            return Err(Failure::Child("it ended without an answer".to_owned()));
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// Waits for a clean end.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        let status =
            self.child.wait().map_err(|source| Failure::io("wait for the child", source))?;
        if status.success() { Ok(()) } else { Err(Failure::Child(status.to_string())) }
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        // SIGKILL; fails only for a child that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child.
pub(crate) fn run(args: &Fill) -> Result<(), Failure> {
    end_with_parent();
    let job: FillJob = serde_json::from_str(&args.job)?;
    let mut config = Config::new(&job.path, ByteSize::new(job.disk_bytes));
    config.memory = ByteSize::new(job.memory_bytes);
    config.objects_max = Some(job.objects_max);
    config.seeks = job.seeks;
    let store = match job.anew {
        true => scratch::create(config, &job.path)?,
        false => scratch::open(config, &job.path)?,
    };
    let done = AtomicU64::new(0);
    let how_far = || (done.load(Ordering::Relaxed), u64::from(job.objects));
    progress::watched("filling", how_far, || {
        fill(&store, &job, &done)?;
        Ok::<(), Failure>(store.sync()?)
    })?;
    let lost = (0..job.objects).filter(|&n| !store.may_contain(key_of(n).as_bytes())).count();
    let answer = FillAnswer {
        resident_bytes: resident_bytes().unwrap_or(0),
        index_bytes: store.info().index_bytes,
        lost: lost as u64,
    };
    if !job.to_be_killed {
        store.close()?;
        return print(&answer);
    }
    print(&answer)?;
    let bytes = vec![0x5a; job.size];
    for object in job.objects.. {
        create(&store, object, &bytes)?;
    }
    Ok(())
}

fn print(answer: &FillAnswer) -> Result<(), Failure> {
    let mut out = Out::new();
    out.json(answer)?;
    out.finish()
}

fn fill(store: &Store, job: &FillJob, done: &AtomicU64) -> Result<(), Failure> {
    let at = |thread: u32| (u64::from(job.objects) * u64::from(thread) / u64::from(THREADS)) as u32;
    let results: Vec<Result<(), Failure>> = thread::scope(|scope| {
        let handles: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let bytes = vec![0x5a; job.size];
                    (at(thread)..at(thread + 1)).try_for_each(|n| {
                        if n % TELL_EVERY == 0 {
                            done.fetch_add(u64::from(TELL_EVERY), Ordering::Relaxed);
                        }
                        create(store, n, &bytes)
                    })
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    results.into_iter().collect()
}

fn create(store: &Store, object: u32, bytes: &[u8]) -> Result<(), Failure> {
    let group = GroupId::new(u64::from(object / OBJECTS_PER_GROUP));
    Ok(store.create(key_of(object).as_bytes(), group, bytes).wait()?)
}
