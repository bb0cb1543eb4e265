//! Arguments of `damelo lab designs` for the modelled system: drive, order, file system, mapping,
//! memory.

use clap::Args;
use damelo::ByteSize;
use damelo_lab::design::{DesignSpec, parse_choice};
use damelo_lab::disk::{Drive, Scheduler, drive_names};
use damelo_lab::fs::FfsParams;
use damelo_lab::machine::MachineConfig;
use damelo_lab::system::{file_system_names, parse_files, parse_mapped};
use damelo_lab::vm::VmParams;

use crate::failure::Failure;

/// A block of any file system, and some to spare.
const MEMORY_BYTES_MIN: u64 = 256 << 10;

/// What the designs run on.
#[derive(Debug, Args)]
pub(crate) struct SystemArgs {
    #[arg(long, value_name = "NAME|FILE", default_value = "atlas-10k-tripled", help = drive_help())]
    pub(super) drive: String,
    /// Order in which a disk serves waiting requests: fcfs, one-way or two-way elevator
    #[arg(long, value_name = "ORDER", default_value = "one-way", value_parser = scheduler)]
    scheduler: Scheduler,
    #[arg(long, value_name = "NAME", default_value = "ufs-8k", value_parser = files, help = files_help())]
    files: Files,
    /// How the system maps files: page=8KiB:period=30 (seconds between writes of dirty pages)
    #[arg(long, value_name = "PARAMETERS", default_value = "page=8KiB:period=30", value_parser = mapped)]
    mapped: Mapped,
    /// Memory of each of the system's caches: blocks of files, mapped pages, blocks of a device
    /// [default: 128MiB, 24MiB and 128MiB]
    #[arg(long, value_name = "SIZE")]
    system_memory: Option<ByteSize>,
}

const SCHEDULERS: [(&str, Scheduler); 3] = [
    ("fcfs", Scheduler::Fcfs),
    ("one-way", Scheduler::OneWayElevator),
    ("two-way", Scheduler::TwoWayElevator),
];

fn scheduler(given: &str) -> Result<Scheduler, String> {
    parse_choice(given, &SCHEDULERS)
}

fn drive_help() -> String {
    let names = drive_names().collect::<Vec<_>>().join(", ");
    format!("Drive: {names}, or a .json file of parameters as in crates/lab/drives")
}

fn files_help() -> String {
    let names = file_system_names().collect::<Vec<_>>().join(", ");
    format!(
        "File system of the designs that keep files: {names}; with :metadata=sync or async, :names=N in the name cache, \
         :period=S between writes of what is dirty, :access-time=yes or no"
    )
}

/// A file system, and how it was asked for.
#[derive(Debug, Clone)]
struct Files(String, FfsParams);

fn files(given: &str) -> Result<Files, String> {
    parse_files(given).map(|params| Files(given.to_owned(), params))
}

/// How files are mapped, and how that was asked for.
#[derive(Debug, Clone)]
struct Mapped(String, VmParams);

fn mapped(given: &str) -> Result<Mapped, String> {
    parse_mapped(given).map(|params| Mapped(given.to_owned(), params))
}

impl SystemArgs {
    /// The modelled machine with its drive.
    pub(super) fn machine(&self, drive: Drive) -> MachineConfig {
        let config = MachineConfig {
            scheduler: self.scheduler,
            files: self.files.1,
            mapped: self.mapped.1,
            ..MachineConfig::new(drive)
        };
        match self.system_memory {
            Some(size) => config.with_system_memory(size.bytes()),
            None => config,
        }
    }

    /// Refuses what would change nothing: the designs have neither files nor mapped ones, or the
    /// system keeps nothing for them.
    pub(super) fn check(&self, specs: &[DesignSpec]) -> Result<(), Failure> {
        let defaults = MachineConfig::new(Drive::open(&self.drive)?);
        let on_blocks = specs.iter().all(|spec| spec.entry.on_blocks);
        let is_other = self.files.1 != defaults.files || self.mapped.1 != defaults.mapped;
        let no = |what: &str| {
            Err(Failure::Usage(format!("{what} changes nothing for these designs: leave it out")))
        };
        if on_blocks && is_other {
            return no("--files or --mapped");
        }
        if self.system_memory.is_some_and(|size| size.bytes() < MEMORY_BYTES_MIN) {
            let least = ByteSize::new(MEMORY_BYTES_MIN);
            return Err(Failure::Usage(format!("--system-memory: write at least {least}")));
        }
        // What has memory of its own goes past the system's.
        let has_buffers = specs.iter().any(|spec| !spec.entry.has_pages);
        if self.system_memory.is_some() && !has_buffers {
            return no("--system-memory");
        }
        Ok(())
    }

    pub(super) fn scheduler(&self) -> &'static str {
        let named = SCHEDULERS.iter().find(|(_, order)| *order == self.scheduler);
        named.map_or("", |(name, _)| name)
    }

    /// The file system, as it was asked for.
    pub(super) fn files(&self) -> &str {
        &self.files.0
    }

    /// How files are mapped, as it was asked for.
    pub(super) fn mapped(&self) -> &str {
        &self.mapped.0
    }

    pub(super) fn memory_bytes(&self) -> Option<u64> {
        self.system_memory.map(|size| size.bytes())
    }
}
