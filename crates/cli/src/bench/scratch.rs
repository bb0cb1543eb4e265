//! The store that a benchmark creates: a file that is removed at the end, or a path that the caller
//! gave. Never overwrites existing data without `--force`.

use std::path::{Path, PathBuf};

use clap::Args;
use damelo::{Config, Store};

use crate::failure::Failure;
use crate::leftovers::Leftover;
use crate::output::say;

/// Where a benchmark's store goes.
#[derive(Debug, Args)]
pub(crate) struct ScratchArgs {
    /// File or block device for the store [default: a temporary file in the current directory]
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// Use --path even if it holds something, which is lost
    #[arg(long, requires = "path")]
    force: bool,
    /// Whether the disk has seeks, an arm that moves: then few I/Os are in flight, in the order of
    /// their places [default: what the system says]
    #[arg(long, value_name = "true|false")]
    pub(crate) seeks: Option<bool>,
}

/// A path for a store, removed on drop if it is a file that was not there before.
pub(crate) struct Scratch {
    path: PathBuf,
    device: bool,
    seeks: Option<bool>,
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
            let seeks = args.seeks;
            return Ok(Scratch {
                path,
                device: false,
                seeks,
                _leftover: leftover,
                _dir: Some(dir),
            });
        };
        if path.exists() && !args.force {
            return Err(Failure::Exists { path: path.clone() });
        }
        let device = path.exists() && !path.is_file();
        let leftover = (!device).then(|| Leftover::new(path));
        let (path, seeks) = (path.clone(), args.seeks);
        Ok(Scratch { path, device, seeks, _leftover: leftover, _dir: None })
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes an empty store here, in place of what an earlier part of the benchmark left, or of
    /// what `--force` gives up.
    pub(crate) fn create(&self, mut config: Config) -> Result<Store, Failure> {
        self.remove();
        config.seeks = self.seeks;
        create(config, &self.path)
    }

    /// Removes what is here, unless it is a device, whose name is not ours to remove.
    pub(crate) fn remove(&self) {
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

/// Makes an empty store at a path that a [`Scratch`] has chosen, whatever is there.
pub(crate) fn create(mut config: Config, path: &Path) -> Result<Store, Failure> {
    config.anew = true;
    open(config, path)
}

/// Opens a store; errors name the path.
pub(crate) fn open(config: Config, path: &Path) -> Result<Store, Failure> {
    let opened = Store::open(config);
    let store = opened.map_err(|source| Failure::Open { path: path.to_owned(), source })?;
    for warning in store.info().warnings {
        say(format_args!("damelo: warning: {warning}"));
    }
    Ok(store)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use damelo::{ByteSize, GroupId};

    use super::*;

    /// A file stands for the device: what is there is made anew, and stays.
    #[test]
    fn a_device_that_holds_a_store_is_emptied_and_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("device");
        let (seeks, device) = (Some(true), true);
        let scratch = Scratch { path: path.clone(), device, seeks, _leftover: None, _dir: None };
        let config = || {
            let mut config = Config::new(&path, ByteSize::new(64 << 20));
            config.memory = ByteSize::new(8 << 20);
            config
        };
        let mut files = Vec::new();
        for objects_max in [1000, 50_000] {
            let mut config = config();
            config.objects_max = Some(objects_max);
            let store = scratch.create(config).unwrap();
            assert!(store.info().created && !store.may_contain(b"k"));
            assert!(store.info().volumes[0].seeks, "as it was said");
            store.create(b"k", GroupId::new(1), b"v").wait().unwrap();
            files.push((std::fs::metadata(&path).unwrap().ino(), store.info().index_bytes));
            store.close().unwrap();
        }
        assert_eq!(files[0].0, files[1].0, "it is the same file");
        assert!(files[0].1 < files[1].1, "with the index that the second asked for");
        drop(scratch);
        assert!(path.exists());
    }
}
