//! The manifest that lies beside a trace which the lab wrote, `TRACE.manifest.json`: how it was
//! made, and whether anybody ever made its requests. It lies beside and not within, since no other
//! program that reads these forms expects a comment there, and two of the forms have none.
//!
//! Invariant: a trace is synthetic, or a sample, if what it was made of is, however often it was
//! written anew. A manifest counts only for a file of the length that it names. Threads: plain
//! functions.

use std::ffi::OsString;
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::sample::SampleOf;
use super::write::Lost;

const READ_BYTES: usize = 1 << 20;
/// Longer ones are none of ours.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
const MANIFEST_END: &str = ".manifest.json";

/// A trace that was written, as its manifest has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WrittenTrace {
    /// Its name, without directories.
    pub file: String,
    /// The form it was written in.
    pub format: String,
    /// Requests in it.
    pub requests: u64,
    /// Requests of the trace that it was made of.
    pub requests_read: u64,
    /// What the form could not say, if anything.
    #[serde(default, skip_serializing_if = "Lost::is_nothing")]
    pub lost: Lost,
    /// Seed of what was drawn at random, if anything was.
    pub seed: Option<u64>,
    /// True if nobody ever made these requests.
    pub synthetic: bool,
    /// Of what it is a share, from the first sample on; none if it is a whole trace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<SampleOf>,
    /// Its length on disk.
    pub file_bytes: u64,
    /// Its digest, as [`file_digest`] gives it.
    pub digest: String,
}

/// The part of the manifest that says what was written; how is the other.
#[derive(Deserialize)]
struct Beside {
    written: WrittenTrace,
}

impl WrittenTrace {
    /// What a manifest of a trace says of it; `None` of any other text.
    #[must_use]
    pub fn of_manifest(text: &str) -> Option<WrittenTrace> {
        serde_json::from_str::<Beside>(text).ok().map(|beside| beside.written)
    }
}

/// Where the manifest of a trace lies.
#[must_use]
pub fn manifest_path(trace: &Path) -> PathBuf {
    let mut name = OsString::from(trace);
    name.push(MANIFEST_END);
    name.into()
}

/// The trace that a manifest lies beside, by its name.
#[must_use]
pub fn manifested_path(manifest: &Path) -> Option<PathBuf> {
    let name = manifest.file_name()?.to_str()?.strip_suffix(MANIFEST_END)?;
    Some(manifest.with_file_name(name))
}

/// XXH3-64 of a file as it lies on disk, in hexadecimal.
///
/// # Errors
/// When it cannot be read, or has no end.
pub fn file_digest(path: &Path) -> io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut file = File::open(path)?;
    let mut hash = XxHash3_64::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(format!("xxh3:{:016x}", hash.finish())),
            bytes => hash.write(&buffer[..bytes]),
        }
    }
}

/// What the manifest beside this trace says of it, if there is one that is about these bytes.
pub(super) fn declared(trace: &Path, file_bytes: u64) -> Option<WrittenTrace> {
    let path = manifest_path(trace);
    let is_ours = |meta: &std::fs::Metadata| meta.is_file() && meta.len() <= MANIFEST_BYTES_MAX;
    if !path.metadata().is_ok_and(|meta| is_ours(&meta)) {
        return None;
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    WrittenTrace::of_manifest(&text).filter(|written| written.file_bytes == file_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_same_digest_whenever_it_is_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("t");
        std::fs::write(&path, b"12\n").expect("written");
        let expected = format!("xxh3:{:016x}", XxHash3_64::oneshot(b"12\n"));
        assert_eq!(file_digest(&path).expect("read"), expected);
        assert!(file_digest(dir.path()).is_err());
    }

    #[test]
    fn a_manifest_lies_beside_its_trace() {
        let manifest = manifest_path(Path::new("d/t.csv.zst"));
        assert_eq!(manifest, Path::new("d/t.csv.zst.manifest.json"));
        assert_eq!(manifested_path(&manifest).as_deref(), Some(Path::new("d/t.csv.zst")));
        assert_eq!(manifested_path(Path::new("d/r.json")), None);
    }

    fn is_declared_synthetic(trace: &Path, file_bytes: u64) -> bool {
        declared(trace, file_bytes).is_some_and(|written| written.synthetic)
    }

    #[test]
    fn a_trace_is_synthetic_if_the_manifest_of_these_bytes_says_so() {
        let dir = tempfile::tempdir().expect("a directory");
        let trace = dir.path().join("t");
        let beside = |text: &str| std::fs::write(manifest_path(&trace), text).expect("written");
        let says = |synthetic: bool| {
            beside(&format!(
                "{{\"manifest\":{{}},\"written\":{{\"file\":\"t\",\"format\":\"txt\",\"requests\":1,\
                 \"requests_read\":1,\"seed\":null,\"synthetic\":{synthetic},\"file_bytes\":3,\"digest\":\"\"}}}}"
            ));
        };
        assert!(!is_declared_synthetic(&trace, 3), "no manifest");
        says(true);
        assert!(is_declared_synthetic(&trace, 3) && !is_declared_synthetic(&trace, 4));
        says(false);
        assert!(!is_declared_synthetic(&trace, 3));
        // By a version that counted less of what is lost.
        beside(
            "{\"written\":{\"file\":\"t\",\"format\":\"txt\",\"requests\":1,\"requests_read\":2,\
             \"lost\":{\"deletes\":1},\"seed\":null,\"synthetic\":true,\"file_bytes\":3,\"digest\":\"\"}}",
        );
        assert!(is_declared_synthetic(&trace, 3));
        beside("{\"synthetic\":true}");
        assert!(!is_declared_synthetic(&trace, 3), "something else");
    }
}
