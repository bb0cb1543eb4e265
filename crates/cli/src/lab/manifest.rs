//! The manifest of a lab run, and the writing of the report that contains it. Invariant: a command
//! never overwrites a file that it reads.

use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use damelo_lab::NewFile;
use damelo_lab::output::{DriveIdentity, Machine, Manifest, TraceIdentity};
use damelo_lab::trace::manifest_path;

use crate::failure::Failure;

/// What says how to run it again, where it is written down if `is_kept`: the digest costs reading
/// the file once more.
pub(super) fn manifest(trace: TraceIdentity, is_kept: bool) -> Result<Manifest, Failure> {
    if is_kept { kept_manifest(trace) } else { Ok(without_digest(trace)) }
}

/// What says how to run it again, with the digest of the file.
pub(super) fn kept_manifest(trace: TraceIdentity) -> Result<Manifest, Failure> {
    let name = trace.name.clone();
    let reading = |source| Failure::io(format!("read `{name}`"), source);
    Ok(without_digest(trace.with_digest().map_err(reading)?))
}

fn without_digest(trace: TraceIdentity) -> Manifest {
    // Only where a report goes may be no text, which is not run again.
    let words = std::env::args_os().skip(1);
    let mut command: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    command.insert(0, "damelo".to_owned());
    Manifest {
        command,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        trace,
        drive: None,
        machine: Machine::this(),
    }
}

/// Which file a drive is of, if it is of one; its digest is read only where the manifest is written
/// down.
pub(super) fn drive_identity(name: &str, is_kept: bool) -> Result<Option<DriveIdentity>, Failure> {
    if !is_kept {
        return Ok(None);
    }
    DriveIdentity::of(name)
        .map_err(|source| Failure::io(format!("read the drive `{name}`"), source))
}

/// True if both are there and are one file, by whatever names and links.
pub(super) fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    id(one).is_some_and(|one| id(other) == Some(one))
}

/// What a command reads, as it was given, and what to call it.
#[derive(Clone, Copy)]
pub(super) enum Read<'a> {
    /// A trace, beside which a manifest may lie.
    Trace(&'a str),
    /// A drive, if it is of a file.
    Drive(&'a str),
}

impl Read<'_> {
    /// That what `option` has written does not take its place: it could not be read, nor the report
    /// be made, again.
    pub(super) fn check_is_not(self, option: &str, written: &Path) -> Result<(), Failure> {
        let is = |path: &Path| path.is_file() && is_same_file(written, path);
        let what = match self {
            Read::Trace(name) if is(Path::new(name)) => "trace that is read",
            Read::Trace(name) if is(&manifest_path(Path::new(name))) => {
                "manifest of the trace that is read"
            }
            Read::Drive(name) if is(Path::new(name)) => "drive that is read",
            _ => return Ok(()),
        };
        let written = written.display();
        Err(Failure::Usage(format!(
            "{option} {written}: this is the {what}, and would be lost: write to another file"
        )))
    }
}

/// A report to be. That it can be written is found out before what may run for long, not after it.
pub(super) struct NewPage<'a> {
    path: &'a Path,
}

impl NewPage<'_> {
    /// Begins the report that `--html` asks for, of a command that reads `reads`. Until it is
    /// written nothing of it is there.
    pub(super) fn begin<'p>(
        path: Option<&'p Path>,
        reads: &[Read<'_>],
    ) -> Result<Option<NewPage<'p>>, Failure> {
        let Some(path) = path else { return Ok(None) };
        if path == Path::new("-") {
            let text = "--html takes a file: standard output has the table (./- is a file)";
            return Err(Failure::Usage(text.to_owned()));
        }
        reads.iter().try_for_each(|read| read.check_is_not("--html", path))?;
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
