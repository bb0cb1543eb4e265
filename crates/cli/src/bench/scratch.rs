//! The store that a benchmark creates: a file that is removed at the end, or a path that the caller
//! gave. Never overwrites existing data without `--force`.

use std::path::{Path, PathBuf};

use clap::Args;
use damelo::{Config, Store};

use crate::failure::Failure;
use crate::leftovers::Leftover;

/// Where a benchmark's store goes.
#[derive(Debug, Args)]
pub(crate) struct ScratchArgs {
    /// File or block device for the store [default: a temporary file in the current directory]
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// Use --path even if it holds something, which is lost
    #[arg(long, requires = "path")]
    force: bool,
}

/// A path for a store, removed on drop if it is a file that was not there before.
pub(crate) struct Scratch {
    path: PathBuf,
    device: bool,
    _leftover: Option<Leftover>,
    // Held for its drop, which removes the directory of a temporary store.
    _dir: Option<tempfile::TempDir>,
}

impl Scratch {
    /// Chooses the path.
    pub(crate) fn new(args: &ScratchArgs) -> Result<Scratch, Failure> {
        let Some(path) = &args.path else {
            let dir = tempfile::Builder::new()
                .prefix("damelo-bench-")
                .tempdir_in(".")
                .map_err(|source| Failure::io("make a temporary directory here", source))?;
            let path = dir.path().join("bench.damelo");
            let leftover = Some(Leftover::new(dir.path()));
            return Ok(Scratch { path, device: false, _leftover: leftover, _dir: Some(dir) });
        };
        if path.exists() && !args.force {
            return Err(Failure::Exists { path: path.clone() });
        }
        let device = path.exists() && !path.is_file();
        let leftover = (!device).then(|| Leftover::new(path));
        Ok(Scratch { path: path.clone(), device, _leftover: leftover, _dir: None })
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates an empty store here, replacing one that an earlier part of the benchmark left.
    pub(crate) fn create(&self, mut config: Config) -> Result<Store, Failure> {
        self.remove();
        config.force = self.device;
        let store = open(config, &self.path)?;
        if !store.info().created {
            // A device that already holds a store: the benchmark starts from an empty one.
            store.purge_all()?;
        }
        Ok(store)
    }

    fn remove(&self) {
        if !self.device {
            // A missing file is fine; any other error shows when the store is created.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Opens a store; errors name the path.
pub(crate) fn open(config: Config, path: &Path) -> Result<Store, Failure> {
    Store::open(config).map_err(|source| Failure::Open { path: path.to_owned(), source })
}
