//! One file per object in two-tier directories `[a-z]/[a-z]`: the baseline of the microbenchmarks.
//! Runs in a child process (`damelo bench micro-files`, hidden), so that a memory cgroup holds
//! exactly its page cache, and its `/proc/self/io` counts exactly its reads. Creates one directory
//! below the given one, and removes it at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::bench::cgroup::{self, MemoryLimit};
use crate::bench::disk::{DiskCounters, device_counters, process_read_bytes};
use crate::bench::report::Measurement;
use crate::bench::stage::{self, Seen, Side};
use crate::bench::workload::{DIRECTORIES, Order, Settings, Stage, Workload};
use crate::failure::Failure;
use crate::leftovers::{Leftover, end_with_parent};
use crate::output::Out;

/// Memory beside the page cache that the child itself needs: stacks, buffers, histograms.
const ALLOWANCE_BYTES: u64 = 16 << 20;

/// The child's job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FilesJob {
    /// Settings of the workload.
    pub(crate) settings: Settings,
    /// Order of its operations.
    pub(crate) order: Order,
    /// Stages, in order.
    pub(crate) stages: Vec<Stage>,
    /// Directory to work in.
    pub(crate) dir: PathBuf,
    /// Cgroup to enter first.
    pub(crate) cgroup: Option<PathBuf>,
}

/// The child's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FilesAnswer {
    /// One for each stage of the job.
    pub(crate) measurements: Vec<Measurement>,
    /// How the page cache was emptied before the reads.
    pub(crate) cache_drop: String,
}

/// The file side of `bench micro`; started by it
#[derive(Debug, Args)]
pub(crate) struct MicroFiles {
    /// The job as JSON
    #[arg(long)]
    job: String,
}

/// Runs the job in a child process, in a memory cgroup if one can be created. The second value
/// describes how memory was limited.
pub(crate) fn run_child(mut job: FilesJob) -> Result<(FilesAnswer, String), Failure> {
    let limit_bytes = job.settings.memory_bytes + ALLOWANCE_BYTES;
    let (limit, said) = match MemoryLimit::new(limit_bytes) {
        Ok(limit) => {
            let size = damelo::ByteSize::new(limit_bytes);
            (Some(limit), format!("limited to {size} by a memory cgroup"))
        }
        Err(error) => (None, format!("NOT limited ({error})")),
    };
    job.cgroup = limit.as_ref().map(|limit| limit.dir().to_owned());
    let program = std::env::current_exe().map_err(|source| Failure::io("find myself", source))?;
    let output = Command::new(program)
        .args(["bench", "micro-files", "--job", &serde_json::to_string(&job)?])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| Failure::io("start the file side", source))?;
    drop(limit);
    if !output.status.success() {
        return Err(Failure::Child(format!("the file side ended with {}", output.status)));
    }
    Ok((serde_json::from_slice(&output.stdout)?, said))
}

/// The child: runs the job and answers on stdout.
pub(crate) fn run(args: &MicroFiles) -> Result<(), Failure> {
    end_with_parent();
    let job: FilesJob = serde_json::from_str(&args.job)?;
    if let Some(dir) = &job.cgroup {
        cgroup::enter(dir)
            .map_err(|error| Failure::Child(format!("cannot limit memory: {error}")))?;
    }
    let work = Workload::new(&job.settings, job.order);
    let side = FilesSide::new(&job.dir, &work)?;
    let mut measurements = Vec::new();
    for &stage in &job.stages {
        measurements.push(stage::run(&work, &side, stage)?);
    }
    let answer = FilesAnswer { measurements, cache_drop: side.cache_drop()?.to_owned() };
    let mut out = Out::new();
    out.json(&answer)?;
    out.finish()
}

/// Files in two-tier directories.
struct FilesSide<'a> {
    root: tempfile::TempDir,
    _leftover: Leftover,
    work: &'a Workload,
}

impl<'a> FilesSide<'a> {
    /// Makes the directories.
    fn new(dir: &Path, work: &'a Workload) -> Result<FilesSide<'a>, Failure> {
        let failed =
            |source| Failure::io(format!("make directories in `{}`", dir.display()), source);
        let root =
            tempfile::Builder::new().prefix("damelo-bench-").tempdir_in(dir).map_err(failed)?;
        let leftover = Leftover::new(root.path());
        for directory in 0..DIRECTORIES {
            fs::create_dir_all(root.path().join(directory_name(directory))).map_err(failed)?;
        }
        Ok(FilesSide { root, _leftover: leftover, work })
    }

    fn path(&self, object: u32) -> PathBuf {
        let directory = directory_name(self.work.directory_of(object));
        self.root.path().join(format!("{directory}/{object:010}"))
    }

    /// Empties the page cache and returns how.
    fn cache_drop(&self) -> Result<&'static str, Failure> {
        if fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
            return Ok("page cache dropped before reads (/proc/sys/vm/drop_caches)");
        }
        for object in 0..self.work.settings().objects {
            match File::open(self.path(object)) {
                Ok(file) => forget_pages(&file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(Failure::io("drop the page cache", source)),
            }
        }
        Ok("pages dropped before reads (posix_fadvise); inodes and directories stay cached, \
            since drop_caches is not permitted")
    }
}

fn directory_name(directory: u64) -> String {
    let letter = |i: u64| char::from(b'a' + (i % 26) as u8);
    format!("{}/{}", letter(directory / 26), letter(directory))
}

fn forget_pages(file: &File) {
    // SAFETY: the descriptor is open; the call only advises about cached pages.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn sync_file_system(dir: &Path) -> io::Result<()> {
    let dir = File::open(dir)?;
    // SAFETY: the descriptor is open; the call touches no memory.
    match unsafe { libc::syncfs(dir.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Side for FilesSide<'_> {
    fn create(&self, object: u32, bytes: &[u8]) -> Result<(), Failure> {
        let write = || -> io::Result<()> {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(self.path(object))?
                .write_all(bytes)
        };
        write().map_err(|source| Failure::io("create a file", source))
    }

    fn read(&self, object: u32, scratch: &mut [u8]) -> Result<Seen, Failure> {
        // One read: the buffer is larger than any file, and regular files are never read short.
        let length = match File::open(self.path(object)).and_then(|mut file| file.read(scratch)) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Seen::Missing),
            Err(source) => return Err(Failure::io("read a file", source)),
        };
        let right = self.work.matches(object, &scratch[..length]);
        Ok(if right { Seen::Right } else { Seen::Wrong })
    }

    fn delete(&self, object: u32) -> Result<Seen, Failure> {
        match fs::remove_file(self.path(object)) {
            Ok(()) => Ok(Seen::Right),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Seen::Missing),
            Err(source) => Err(Failure::io("delete a file", source)),
        }
    }

    fn settle(&self) -> Result<(), Failure> {
        sync_file_system(self.root.path()).map_err(|source| Failure::io("sync files", source))
    }

    fn lost(&self) -> Option<u64> {
        None
    }

    fn forget(&self) -> Result<(), Failure> {
        self.cache_drop().map(|_| ())
    }

    /// Counts are the whole device's. Bytes read are this process's own if the kernel reports them.
    fn counters(&self) -> DiskCounters {
        let device = device_counters(self.root.path());
        DiskCounters { read_bytes: process_read_bytes().or(device.read_bytes), ..device }
    }
}
