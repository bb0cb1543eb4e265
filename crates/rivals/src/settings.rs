//! What the commands share: who runs, how much of what, where.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::contestant::Name;
use crate::foyer_cache::FoyerOptions;
use crate::workload::{Ordering, Workload};

/// Room beside the data for a program's own memory in its cgroup.
const PROGRAM_BYTES: u64 = 8 << 20;

/// Options of `rivals micro` and `rivals throttled`. Defaults are those of the thesis, §5.2.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Settings {
    /// Who takes part.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "damelo,foyer,foyer-paced,files"
    )]
    pub contestants: Vec<Name>,
    /// Object orderings; all five if none are named.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub orderings: Vec<Ordering>,
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16")]
    pub threads: Vec<usize>,
    /// Rounds; every figure is the median over them.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Objects, of 1 byte to 16 KiB each unless `--object-bytes` says otherwise.
    #[arg(long, default_value_t = 131_072)]
    pub objects: u64,
    /// Bytes of every object, instead of 1 byte to 16 KiB.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub object_bytes: Option<u32>,
    /// Groups that they are dealt to.
    #[arg(long, default_value_t = 16)]
    pub groups: u64,
    /// Memory for data.
    #[arg(long, default_value = "128MiB", value_parser = size)]
    pub memory: u64,
    /// Disk for data.
    #[arg(long, default_value = "1.5GiB", value_parser = size)]
    pub disk: u64,
    /// Divides objects, memory and disk alike: a smaller run of the same shape.
    #[arg(long, default_value_t = 1)]
    pub scale: u64,
    /// Seed of sizes and orders.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where to put stores and files while running: a directory on the disk to measure.
    #[arg(long, default_value = "/var/tmp/damelo-rivals")]
    pub dir: PathBuf,
    /// Run without memory cgroups. Files then have the machine's whole memory.
    #[arg(long)]
    pub no_limit: bool,
    /// Skip the delete stage.
    #[arg(long)]
    pub skip_delete: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Also write command, versions, machine, raw data and table to a new directory DATE-HOST
    /// below this one.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// foyer: clients are tasks on a runtime of their own, instead of threads that block.
    #[arg(long = "foyer-tasks")]
    pub foyer_tasks: bool,
    /// Choices for foyer.
    #[command(flatten)]
    pub foyer: FoyerOptions,
}

impl Settings {
    /// The orderings to run.
    pub fn orderings(&self) -> &[Ordering] {
        if self.orderings.is_empty() { &Ordering::ALL } else { &self.orderings }
    }

    /// Objects and their order.
    pub fn workload(&self, ordering: Ordering) -> Workload {
        Workload {
            objects: self.objects / self.scale,
            groups: self.groups,
            ordering,
            seed: self.seed,
            fixed_bytes: self.object_bytes.map(|bytes| bytes as usize),
            cache: None,
        }
    }

    /// Memory for data, scaled.
    pub fn memory(&self) -> u64 {
        self.memory / self.scale
    }

    /// Disk for data, scaled.
    pub fn disk(&self) -> u64 {
        self.disk / self.scale
    }

    /// A cgroup's limit: the data's memory, a quarter of it for tables and indexes (for files:
    /// the kernel's inodes and directory entries), and the program. foyer gets twice as much,
    /// since it would be killed: its process outgrows what it is configured to hold. That gives
    /// it no more cache, for it reads past the page cache and its capacity stays the same.
    pub fn memory_limit(&self, contestant: Name) -> u64 {
        let limit = self.memory() * 5 / 4 + PROGRAM_BYTES;
        match contestant {
            Name::Damelo | Name::Files => limit,
            Name::Foyer | Name::FoyerPaced | Name::FoyerLoved => 2 * limit,
        }
    }
}

/// Reads a size as people write it: `128MiB`, `1.5GiB`, `64k`.
///
/// # Errors
/// A text that says what a size looks like.
pub fn size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = match text[split..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => return Err("write a number and a unit, such as 128MiB or 1.5GiB".to_owned()),
    };
    let number: f64 = text[..split].parse().map_err(|e| format!("{e}"))?;
    Ok((number * f64::from(1_u32 << unit)) as u64)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(size("128MiB").unwrap(), 128 << 20);
        assert_eq!(size("1.5GiB").unwrap(), 3 << 29);
        assert_eq!(size("64k").unwrap(), 65_536);
        assert!(size("12 parsecs").is_err());
    }
}
