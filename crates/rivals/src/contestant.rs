//! What every contestant can do. One implementation a file: `files`, `foyer_cache`,
//! `damelo_store`.

use std::future::Future;

use serde::{Deserialize, Serialize};

use crate::workload::Workload;

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Name {
    /// The store of this repository.
    Damelo,
    /// foyer's hybrid cache, block engine on one preallocated file.
    Foyer,
    /// foyer, with creates that wait for its flushers before they would overrun its buffers.
    FoyerPaced,
    /// foyer paced, with a memory filter that admits popular objects only: its nearest to `love`.
    FoyerLoved,
    /// One file per object in `[a-z]/[a-z]`.
    Files,
}

impl Name {
    /// The name used in tables and directories.
    pub fn name(self) -> &'static str {
        match self {
            Name::Damelo => "damelo",
            Name::Foyer => "foyer",
            Name::FoyerPaced => "foyer-paced",
            Name::FoyerLoved => "foyer-loved",
            Name::Files => "files",
        }
    }
}

/// How one operation went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done; a read's contents were right.
    Done,
    /// A read found nothing.
    Missing,
    /// A read returned another length or other bytes than were created.
    Wrong,
    /// Refused or failed.
    Failed,
}

/// Turns what a read returned into an outcome.
pub fn judge(workload: &Workload, object: u64, value: Option<&[u8]>) -> Outcome {
    match value {
        None => Outcome::Missing,
        Some(bytes) if workload.verify(object, bytes) => Outcome::Done,
        Some(_) => Outcome::Wrong,
    }
}

/// A store of objects under test. Operations may be called from any thread.
pub trait Contestant: Send + Sync + 'static {
    /// Stores a new object.
    fn create(&self, object: u64, value: &[u8]) -> impl Future<Output = Outcome> + Send;

    /// Reads an object whole and checks what came.
    fn read(&self, object: u64) -> impl Future<Output = Outcome> + Send;

    /// Deletes an object.
    fn delete(&self, object: u64) -> impl Future<Output = Outcome> + Send;

    /// Blocks until what was created is on disk.
    fn settle(&self);

    /// Forgets everything held in memory that is also on disk.
    fn forget_memory(&self);

    /// The runtime whose tasks stand for threads; `None` for operating-system threads on which
    /// operations block.
    fn runtime(&self) -> Option<&tokio::runtime::Runtime> {
        None
    }
}
