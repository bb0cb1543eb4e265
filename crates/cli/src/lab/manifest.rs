//! The manifest of a run of the lab, and writing the report that ends with it.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use damelo_lab::NewFile;
use damelo_lab::output::{Machine, Manifest, TraceIdentity};

use crate::failure::Failure;

/// What says how to run it again. The digest costs reading the file once more: only where the manifest
/// is written down.
pub(super) fn manifest(trace: TraceIdentity, is_kept: bool) -> Result<Manifest, Failure> {
    let name = trace.name.clone();
    let reading = |source| Failure::io(format!("read `{name}`"), source);
    let mut command: Vec<String> = std::env::args().skip(1).collect();
    command.insert(0, "damelo".to_owned());
    Ok(Manifest {
        command,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        trace: if is_kept { trace.with_digest().map_err(reading)? } else { trace },
        machine: Machine::this(),
    })
}

/// A report to be: begun before what may run for long, so that a name at which nothing can be written is known
/// before and not after it.
pub(super) struct NewPage {
    doing: String,
    file: File,
    new: NewFile,
}

impl NewPage {
    /// Begins the report that `--html` asks for.
    pub(super) fn begin(path: Option<&Path>) -> Result<Option<NewPage>, Failure> {
        let Some(path) = path else { return Ok(None) };
        let doing = format!("write `{}`", path.display());
        match NewFile::begin(path) {
            Ok((file, new)) => Ok(Some(NewPage { doing, file, new })),
            Err(source) => Err(Failure::io(doing, source)),
        }
    }

    /// Writes it.
    pub(super) fn write(mut self, page: &str) -> Result<(), Failure> {
        let written = self.file.write_all(page.as_bytes()).and_then(|()| self.new.keep());
        written.map_err(|source| Failure::io(self.doing, source))
    }
}
