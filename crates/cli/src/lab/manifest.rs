//! The manifest of a run of the lab, and writing the report that ends with it.

use std::path::Path;

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

/// Writes a finished report.
pub(super) fn write_page(path: &Path, page: String) -> Result<(), Failure> {
    std::fs::write(path, page)
        .map_err(|source| Failure::io(format!("write `{}`", path.display()), source))
}
