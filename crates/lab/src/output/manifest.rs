//! What one needs to run a run again and get the same: command, versions, trace with its digest.
//! The machine is told too, though no result but times depends on it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::disk::Drive;
use crate::trace::{RecordSource, SampleOf, Skipped, file_digest};

/// What a CSV file with a manifest begins with. What reads CSV knows `#` as the mark of a comment,
/// or can be told.
pub(super) const CSV_MANIFEST: &str = "# manifest ";

/// Which trace it was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceIdentity {
    /// Path or `gen:` name, as given.
    pub name: String,
    /// Its format.
    pub format: String,
    /// True if nobody made its requests: of a generator, whose name then says everything, the seed
    /// among it, and of a file that was written from one.
    pub synthetic: bool,
    /// Size of the file, as it lies on disk.
    pub file_bytes: u64,
    /// XXH3-64 of the file as it lies on disk, in hexadecimal; empty for a generator.
    pub digest: String,
    /// Seed of what was drawn at random, by a generator or by a paper's own workload.
    #[serde(default)]
    pub seed: Option<u64>,
    /// What must be known of how it was read, if anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Of what it is a share, if it is a sample: nothing is scaled to the whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<SampleOf>,
    /// Lines that are no requests and were left out, by what they are, if any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<String, u64>,
}

impl TraceIdentity {
    /// Which trace it is, without digest, and what was left out of what was read of it so far.
    #[must_use]
    pub fn of(trace: &crate::trace::Trace) -> TraceIdentity {
        TraceIdentity {
            name: trace.name().to_owned(),
            format: trace.form().to_owned(),
            synthetic: trace.is_synthetic(),
            file_bytes: trace.file_bytes(),
            digest: String::new(),
            seed: trace.seed(),
            notes: trace.notes().to_vec(),
            samples: trace.samples().to_vec(),
            ..TraceIdentity::default().without(&trace.skipped())
        }
    }

    /// The same with what was left out.
    #[must_use]
    pub fn without(mut self, skipped: &Skipped) -> TraceIdentity {
        let left_out = skipped.left_out.iter();
        self.left_out = left_out.map(|(what, count)| ((*what).to_owned(), *count)).collect();
        self
    }

    /// Lines that are no requests, in words; none if there are none.
    pub fn words_of_left_out(&self) -> impl Iterator<Item = String> {
        self.left_out.iter().map(|(what, count)| format!("{count} lines left out: {what}"))
    }

    /// True if there is no file: a generator, or a paper's own workload.
    fn is_made(&self) -> bool {
        self.synthetic && self.file_bytes == 0
    }

    /// Reads the trace's file once more for its digest.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn with_digest(mut self) -> io::Result<TraceIdentity> {
        if !self.is_made() {
            self.digest = file_digest(Path::new(&self.name))?;
        }
        Ok(self)
    }
}

/// Which file a drive was of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveIdentity {
    /// Path, as given.
    pub name: String,
    /// XXH3-64 of the file, in hexadecimal.
    pub digest: String,
}

impl DriveIdentity {
    /// Reads the file of a drive for its digest; `None` of a drive that the lab brings.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(name: &str) -> io::Result<Option<DriveIdentity>> {
        if Drive::named(name).is_some() {
            return Ok(None);
        }
        let digest = file_digest(Path::new(name))?;
        Ok(Some(DriveIdentity { name: name.to_owned(), digest }))
    }
}

/// The machine of a run, as far as the system tells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Processors that may be used.
    pub processors: usize,
    /// Memory.
    pub memory_bytes: u64,
    /// Operating system and version.
    pub system: String,
}

impl Machine {
    /// Asks the system; what it does not tell is empty.
    #[must_use]
    pub fn this() -> Machine {
        let value = |file: &str, key: &str| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let kib = value("/proc/meminfo", "MemTotal");
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            processor: value("/proc/cpuinfo", "model name"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kib.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10,
            system: format!("{} {}", std::env::consts::OS, release.trim()).trim().to_owned(),
        }
    }
}

/// Everything about a run but its results.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Version of damelo.
    pub version: String,
    /// The trace.
    pub trace: TraceIdentity,
    /// The drive, if it was one of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drive: Option<DriveIdentity>,
    /// The machine.
    pub machine: Machine,
}

impl Manifest {
    /// The manifest as lines.
    #[must_use]
    pub fn text(&self) -> String {
        let command: Vec<String> = self.command.iter().map(|word| shell_word(word)).collect();
        let trace = &self.trace;
        let mut digest = match trace.is_made() {
            true => "synthetic, made anew from its name".to_owned(),
            false => format!("{}, {} bytes, {}", trace.format, trace.file_bytes, trace.digest),
        };
        if trace.synthetic && !trace.is_made() {
            digest.push_str(", synthetic");
        }
        if let Some(seed) = trace.seed {
            digest.push_str(&format!(", seed {seed}"));
        }
        let machine = &self.machine;
        let drive = match &self.drive {
            Some(drive) => format!("drive    {} ({})\n", drive.name, drive.digest),
            None => String::new(),
        };
        let notes: String = trace
            .words_of_left_out()
            .chain(trace.notes.iter().cloned())
            .map(|note| format!("note     {note}\n"))
            .collect();
        format!(
            "command  {}\nversion  damelo {}\ntrace    {} ({digest})\n{notes}{drive}machine  {}, {} processors, {} bytes of memory, {}\n",
            command.join(" "),
            self.version,
            trace.name,
            machine.processor,
            machine.processors,
            machine.memory_bytes,
            machine.system,
        )
    }
}

impl Manifest {
    /// The manifest as the first line of a CSV file: a comment for those who read it, JSON for
    /// those who run it again.
    #[must_use]
    pub fn csv_comment(&self) -> String {
        format!("{CSV_MANIFEST}{}\n", self.json())
    }

    /// The manifest in one line, for programs.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("text and numbers can always be written as JSON")
    }
}

/// A word as a shell takes it.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,%+@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_word("lru,s3-fifo"), "lru,s3-fifo");
        assert_eq!(shell_word("gen:web?seed=1&n=2"), "'gen:web?seed=1&n=2'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
