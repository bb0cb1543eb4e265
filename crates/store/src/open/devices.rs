//! Opens the files and devices that a configuration names, and makes files for a new store.
//!
//! Invariant: no file is made for a volume that is missing from a store whose others are there, be
//! it opened without that one or not.
//! Threads: the one that opens the store.

use std::io;
use std::path::{Path, PathBuf};

use super::contents::{VolumeContents, inspect};
use super::missing::{is_gone, may_be_left_out};
use super::{Allocated, RawVolume, check_anew};
use crate::config::Config;
use crate::device::{OpenOptions, no_device};
use crate::error::OpenError;
use crate::types::ByteSize;

/// The devices that a configuration names, warnings about them, and the memory for a store that is
/// to be made in place of what they hold.
pub(crate) struct OpenDevices {
    pub(crate) volumes: Vec<RawVolume>,
    pub(crate) warnings: Vec<String>,
    pub(crate) allocated: Option<Allocated>,
}

/// Opens the devices that the configuration names.
pub(crate) fn open_devices(config: &Config) -> Result<OpenDevices, OpenError> {
    let paths: Vec<&Path> = config.volumes.iter().map(|v| v.path.as_path()).collect();
    let lets_go = may_be_left_out(config);
    // Without the first there is nothing to open.
    check_paths(&paths, config.must_exist && !(lets_go && holds_something(paths[0])))?;
    let allocated = config.anew.then(|| check_anew(config)).transpose()?;
    // Those that hold something first: where they are of a store, none is made for one that is
    // missing, as on a mount point without its disk, for which there may not even be room.
    let mut order: Vec<usize> = (0..paths.len()).collect();
    order.sort_by_key(|index| !holds_something(paths[*index]));
    let mut warnings = Vec::new();
    let mut volumes: Vec<(usize, RawVolume)> = Vec::new();
    for index in order {
        let volume = match open_one(config, index, &volumes, &mut warnings) {
            // Whether there is a store to be opened without it is found out later.
            Err(error) if lets_go && index > 0 && is_gone(&error) => {
                RawVolume::missing(&config.volumes[index], error)
            }
            volume => volume?,
        };
        volumes.push((index, volume));
    }
    volumes.sort_by_key(|(index, _)| *index);
    let volumes = volumes.into_iter().map(|(_, volume)| volume).collect();
    Ok(OpenDevices { volumes, warnings, allocated })
}

/// Opens one that holds something, or that none of those `there` belong with.
fn open_one(
    config: &Config,
    index: usize,
    there: &[(usize, RawVolume)],
    warnings: &mut Vec<String>,
) -> Result<RawVolume, OpenError> {
    let path = &config.volumes[index].path;
    if !config.anew && !holds_something(path) {
        check_none_missing(path, config.volumes.len(), there)?;
    }
    open_device(config, index, warnings)
}

/// Checks that no volume that is there is of a store of so many, which this one is missing from.
fn check_none_missing(
    path: &Path,
    named: usize,
    there: &[(usize, RawVolume)],
) -> Result<(), OpenError> {
    for (_, volume) in there.iter().filter(|(_, volume)| volume.missing.is_none()) {
        if let VolumeContents::Ours(superblock, _) = inspect(volume)?
            && usize::from(superblock.volume_count) == named
        {
            return Err(OpenError::VolumeMissing { path: path.into() });
        }
    }
    Ok(())
}

fn open_device(
    config: &Config,
    index: usize,
    warnings: &mut Vec<String>,
) -> Result<RawVolume, OpenError> {
    let volume = &config.volumes[index];
    let mut options = OpenOptions::new(&volume.path);
    options.create_bytes = if config.must_exist { None } else { volume.size.map(ByteSize::bytes) };
    options.force = config.force;
    options.anew = config.anew;
    options.direct = config.direct;
    options.seeks = config.seeks;
    options.queue_depth = config.queue_depth;
    options.io_engine = config.io_engine;
    let (opened, undo) = crate::device::open_undoable(&options)?;
    warnings.extend(opened.warnings.iter().map(|w| format!("{}: {w}", volume.path.display())));
    let (path, fresh) = (volume.path.clone(), opened.created);
    let declared_bytes = volume.size.map(ByteSize::bytes);
    Ok(RawVolume { path, device: opened.device, fresh, declared_bytes, undo, missing: None })
}

/// Checks that no volume is named twice and, if they must exist, that all do.
pub(crate) fn check_paths(paths: &[&Path], must_exist: bool) -> Result<(), OpenError> {
    let real: Vec<PathBuf> =
        paths.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.into())).collect();
    for (index, path) in paths.iter().enumerate() {
        if real[..index].contains(&real[index]) {
            return Err(OpenError::NamedTwice { path: path.into() });
        }
        if must_exist && !holds_something(path) {
            if paths.iter().any(|path| holds_something(path)) {
                return Err(OpenError::VolumeMissing { path: path.to_path_buf() });
            }
            no_device(path)?;
            return Err(OpenError::Missing { path: path.to_path_buf() });
        }
    }
    Ok(())
}

/// False for a file that is empty, or not there. What cannot be looked at may hold something: to
/// open it says what is in the way, such as a directory that this user may not search.
fn holds_something(path: &Path) -> bool {
    match path.metadata() {
        Ok(meta) => !meta.is_file() || meta.len() > 0,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}
