//! How commands open an existing store: shared arguments, waiting for recovery, warnings on stderr,
//! and a close that reports errors. Commands see every object on disk, because they start after
//! recovery has ended.

use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::Args;
use damelo::{ByteSize, Config, OpenError, Store, SyncError};

use crate::failure::Failure;
use crate::names::Volumes;
use crate::output::say;
use crate::progress::Progress;

const RECOVERY_POLL: Duration = Duration::from_millis(20);

/// The store a command works on.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The store: a file or block device made by `damelo format` (several volumes: PATH,PATH)
    #[arg(value_name = "PATH")]
    pub(crate) volumes: Volumes,
    /// Memory the command may use for data
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub(crate) memory: ByteSize,
    /// Open it though volumes are missing, all but the first: what they hold is as if not there,
    /// and is given up for good as soon as something is changed (put, rm, purge)
    #[arg(long)]
    pub(crate) without_missing: bool,
}

/// Opens an existing store and waits until all of it is known.
pub(crate) fn open(args: &StoreArgs) -> Result<Store, Failure> {
    let mut config = existing(&args.volumes);
    config.memory = args.memory;
    config.without_missing = args.without_missing;
    let store = open_with(config, &args.volumes).map_err(|failure| match failure {
        Failure::Open { path, source: source @ OpenError::VolumeMissing { .. } } => {
            Failure::OpenWithout { path, source }
        }
        failure => failure,
    })?;
    wait_recovered(&store);
    Ok(store)
}

/// What opens the store on these volumes, if it exists.
pub(crate) fn existing(volumes: &Volumes) -> Config {
    let mut config = Config::existing(volumes.first());
    config.volumes = volumes
        .all()
        .iter()
        .map(|path| damelo::VolumeConfig { path: path.clone(), size: None })
        .collect();
    config
}

/// Opens with this configuration and passes the store's warnings on.
pub(crate) fn open_with(config: Config, volumes: &Volumes) -> Result<Store, Failure> {
    let store = Store::open(config).map_err(|source| not_opened(source, volumes.first()))?;
    for warning in store.info().warnings {
        say(format_args!("damelo: warning: {warning}"));
    }
    Ok(store)
}

/// Closes the store. What a command found out comes before what became of the close, which says
/// nothing about that: of a key that is not there, that it is not there.
pub(crate) fn close<T>(store: Store, found: Result<T, Failure>) -> Result<T, Failure> {
    after(found, store.close())
}

fn after<T>(found: Result<T, Failure>, closed: Result<(), SyncError>) -> Result<T, Failure> {
    let found = found?;
    closed?;
    Ok(found)
}

/// Why a store whose first volume is this could not be opened.
pub(crate) fn not_opened(source: OpenError, first: &Path) -> Failure {
    match source {
        OpenError::NotOurs { path } => Failure::NotOurs { path },
        source => Failure::Open { path: first.to_owned(), source },
    }
}

/// Waits until recovery has ended, with progress.
pub(crate) fn wait_recovered(store: &Store) {
    let mut progress = Progress::count("recovering segments");
    loop {
        let state = store.recovery();
        if state.done {
            return;
        }
        progress.set(state.segments_loaded, state.segments_wanted);
        thread::sleep(RECOVERY_POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_comes_before_what_became_of_the_close() {
        let not_there = || Failure::NotFound { key: "k".to_owned() };
        let failed = || Err(SyncError::Io(std::io::Error::other("on fire")));
        let code = |found, closed| after::<()>(found, closed).err().map(|error| error.exit_code());
        assert_eq!(code(Err(not_there()), failed()), Some(1));
        assert_eq!(code(Err(not_there()), Ok(())), Some(1));
        assert_eq!(code(Ok(()), failed()), Some(4));
        assert_eq!(code(Ok(()), Ok(())), None);
    }
}
