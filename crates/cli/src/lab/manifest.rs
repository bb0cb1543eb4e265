//! The manifest of a run of the lab, and writing the report that ends with it.

use std::io::{self, Write};
use std::path::Path;

use damelo_lab::NewFile;
use damelo_lab::output::{DriveIdentity, Machine, Manifest, TraceIdentity};

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
        drive: None,
        machine: Machine::this(),
    })
}

/// Which file a drive is of, if it is of one; its digest is read only where the manifest is written down.
pub(super) fn drive_identity(name: &str, is_kept: bool) -> Result<Option<DriveIdentity>, Failure> {
    if !is_kept {
        return Ok(None);
    }
    DriveIdentity::of(name)
        .map_err(|source| Failure::io(format!("read the drive `{name}`"), source))
}

/// A report to be. That it can be written is found out before what may run for long, not after it.
pub(super) struct NewPage<'a> {
    path: &'a Path,
}

impl NewPage<'_> {
    /// Begins the report that `--html` asks for. Until it is written nothing of it is there.
    pub(super) fn begin(path: Option<&Path>) -> Result<Option<NewPage<'_>>, Failure> {
        let Some(path) = path else { return Ok(None) };
        let page = NewPage { path };
        NewFile::check(path).map_err(|source| page.failure(source))?;
        Ok(Some(page))
    }

    /// Writes it.
    pub(super) fn write(self, text: &str) -> Result<(), Failure> {
        let written = NewFile::begin(self.path).and_then(|(mut file, new)| {
            file.write_all(text.as_bytes())?;
            new.keep()
        });
        written.map_err(|source| self.failure(source))
    }

    fn failure(&self, source: io::Error) -> Failure {
        Failure::io(format!("write `{}`", self.path.display()), source)
    }
}
