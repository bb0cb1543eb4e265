//! The interface of the Dámelo thesis (2000, §3): groups numbered from 1, names as C strings, and
//! `read` and `release` by name, over one store.
//!
//! Owns the table of pins. Invariant: the memory behind a pointer from `read` stays until as many
//! `release`s of that name and group as there were `read`s. When the object is replaced between two
//! reads, the pins of both versions stay until the last release, because a release does not say
//! which of the two it means.
//!
//! Threads: any number at once; the table is locked for the length of a map operation, never during
//! I/O, and not in a child of `fork`. Closing must be the last use.

use std::collections::HashMap;
use std::ffi::{OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use damelo::{ByteSize, Config, GroupId, Object, Store};

use crate::border::{bytes, give, guard, out, shared, take, text};
use crate::error::Failure;
use crate::options;
use crate::status::Status;

/// Names another volume than the program does.
const ENV_VOLUME: &str = "DAMELO_VOLUME";
/// The size to make a volume that does not exist.
const ENV_VOLUME_SIZE: &str = "DAMELO_VOLUME_SIZE";

/// `damelo_thesis`.
pub struct DameloThesis {
    store: Store,
    group_count: c_int,
    pins: Mutex<HashMap<(Vec<u8>, c_int), Pin>>,
    /// The process that opened it.
    process_id: u32,
}

/// What is pinned under one name and group.
#[derive(Default)]
struct Pin {
    /// Reads not yet released; never 0 in the table.
    reads: u64,
    /// Each version of the object that was read since `reads` was last 0, once.
    versions: Vec<Object>,
}

impl DameloThesis {
    fn group(&self, group: c_int) -> Result<GroupId, Failure> {
        match u64::try_from(group) {
            Ok(number) if number >= 1 && group <= self.group_count => Ok(GroupId::new(number)),
            _ => Err(Failure::new(
                Status::Group,
                format!("group {group} is not between 1 and {}", self.group_count),
            )),
        }
    }

    fn pins(&self) -> MutexGuard<'_, HashMap<(Vec<u8>, c_int), Pin>> {
        // Nothing that may panic runs between two changes of the table.
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pin(&self, name: &[u8], group: c_int, object: Object) {
        let mut pins = self.pins();
        let pin = pins.entry((name.to_vec(), group)).or_default();
        pin.reads += 1;
        // While a version is pinned no other can lie at its address: same place, same version.
        if !pin.versions.iter().any(|version| version.as_ptr_range() == object.as_ptr_range()) {
            pin.versions.push(object);
        }
    }

    fn unpin(&self, name: &[u8], group: c_int) -> Result<(), Failure> {
        if std::process::id() != self.process_id {
            // A thread of the parent may have held the table's lock at the fork.
            let detail = "the store was opened by the parent of this process";
            return Err(Failure::new(Status::Closed, detail));
        }
        let mut pins = self.pins();
        let key = (name.to_vec(), group);
        let Some(pin) = pins.get_mut(&key) else {
            let name = String::from_utf8_lossy(name);
            let detail = format!("`{name}` in group {group} is not being read");
            return Err(Failure::new(Status::NotPinned, detail));
        };
        pin.reads -= 1;
        if pin.reads == 0 {
            let versions = pins.remove(&key);
            drop(pins);
            drop(versions);
        }
        Ok(())
    }

    /// The object's group, if it is one of those this interface can name.
    fn group_of(&self, name: &[u8]) -> Result<c_int, Failure> {
        let info = self.store.lookup(name).wait()?.ok_or_else(Failure::not_found)?;
        c_int::try_from(info.group.get())
            .ok()
            .filter(|group| self.group(*group).is_ok())
            .ok_or_else(Failure::not_found)
    }
}

/// The configuration for the constructor's arguments and what the environment says.
fn thesis_config(
    path: PathBuf,
    volume: Option<OsString>,
    volume_size: Option<OsString>,
) -> Result<Config, Failure> {
    let path = match volume {
        Some(volume) if !volume.is_empty() => PathBuf::from(volume),
        _ => path,
    };
    let size = match volume_size {
        Some(text) if !text.is_empty() => String::from_utf8_lossy(text.as_bytes())
            .parse::<ByteSize>()
            .map_err(|error| Failure::invalid(format!("{ENV_VOLUME_SIZE}: {error}")))?,
        _ => ByteSize::new(0),
    };
    let mut config = options::config(path, size.bytes());
    // A device without a store gets one: the thesis's program has no other way to make it.
    config.must_exist = false;
    Ok(config)
}

/// The memory, in whole MiB, of the constructor.
fn thesis_memory(memory_mb: c_int) -> Result<ByteSize, Failure> {
    match u64::try_from(memory_mb) {
        Ok(mb) if mb > 0 => Ok(ByteSize::new(mb << 20)),
        _ => Err(Failure::invalid(format!("memory cannot be {memory_mb} MiB"))),
    }
}

/// Opens a store for numbered groups.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_thesis_open(
    path: *const c_char,
    group_count: c_int,
    memory_mb: c_int,
    out: *mut *mut DameloThesis,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { self::out("out", out, std::ptr::null_mut()) }?;
        // SAFETY: by the contract of the crate.
        let path = options::path(unsafe { text("path", path) }?)?;
        if group_count < 1 {
            let detail = format!("{group_count} groups: at least one is needed");
            return Err(Failure::new(Status::Group, detail));
        }
        let volume = std::env::var_os(ENV_VOLUME);
        let mut config = thesis_config(path, volume, std::env::var_os(ENV_VOLUME_SIZE))?;
        config.memory = thesis_memory(memory_mb)?;
        let store = Store::open(config)?;
        let process_id = std::process::id();
        *place = give(DameloThesis { store, group_count, pins: Mutex::default(), process_id });
        Ok(())
    })
}

/// Closes and frees it; null is fine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_thesis_close(thesis: *mut DameloThesis) -> c_int {
    guard(|| {
        if thesis.is_null() {
            return Ok(());
        }
        // SAFETY: by the contract of the crate.
        let thesis = *unsafe { take("thesis", thesis) }?;
        drop(thesis.pins);
        Ok(thesis.store.close()?)
    })
}

/// Stores an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_thesis_create(
    thesis: *mut DameloThesis,
    name: *const c_char,
    group: c_int,
    data: *const c_char,
    length: c_int,
) -> c_int {
    guard(|| {
        let length = usize::try_from(length)
            .map_err(|_| Failure::invalid(format!("length cannot be {length}")))?;
        // SAFETY: by the contract of the crate.
        let (thesis, name, data) = unsafe {
            (shared("thesis", thesis)?, text("name", name)?, bytes("data", data.cast(), length)?)
        };
        Ok(thesis.store.create(name, thesis.group(group)?, data).wait()?)
    })
}

/// Finds an object's group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_thesis_lookup(
    thesis: *mut DameloThesis,
    name: *const c_char,
    group: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let place = unsafe { out("group", group, 0) }?;
        // SAFETY: by the contract of the crate.
        let (thesis, name) = unsafe { (shared("thesis", thesis)?, text("name", name)?) };
        *place = thesis.group_of(name)?;
        Ok(())
    })
}

/// Pins an object and gives its place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_thesis_read(
    thesis: *mut DameloThesis,
    name: *const c_char,
    group: c_int,
    data: *mut *mut c_char,
    length: *mut c_int,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate. Both are set before either is complained about.
        let (data, length) =
            unsafe { (out("data", data, std::ptr::null_mut()), out("length", length, 0)) };
        let (data, length) = (data?, length?);
        // SAFETY: by the contract of the crate.
        let (thesis, name) = unsafe { (shared("thesis", thesis)?, text("name", name)?) };
        let group_id = thesis.group(group)?;
        let object = thesis.store.read(name).wait()?.ok_or_else(Failure::not_found)?;
        if object.group() != group_id {
            return Err(Failure::not_found());
        }
        let object_bytes = object.len();
        let Ok(object_length) = c_int::try_from(object_bytes) else {
            let detail = format!("{object_bytes} bytes do not fit into an int");
            return Err(Failure::new(Status::TooLarge, detail));
        };
        *data = object.as_ptr().cast_mut().cast();
        *length = object_length;
        thesis.pin(name, group, object);
        Ok(())
    })
}

/// Ends one read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_thesis_release(
    thesis: *mut DameloThesis,
    name: *const c_char,
    group: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let (thesis, name) = unsafe { (shared("thesis", thesis)?, text("name", name)?) };
        thesis.group(group)?;
        thesis.unpin(name, group)
    })
}

/// Deletes an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_thesis_remove(
    thesis: *mut DameloThesis,
    name: *const c_char,
    group: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let (thesis, name) = unsafe { (shared("thesis", thesis)?, text("name", name)?) };
        thesis.group(group)?;
        if thesis.group_of(name)? == group && thesis.store.remove(name)? {
            Ok(())
        } else {
            Err(Failure::not_found())
        }
    })
}

/// Keep this group's objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_thesis_love(thesis: *mut DameloThesis, group: c_int) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let thesis = unsafe { shared("thesis", thesis) }?;
        thesis.store.love(thesis.group(group)?);
        Ok(())
    })
}

/// Let this group's objects go first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_thesis_hate(thesis: *mut DameloThesis, group: c_int) -> c_int {
    guard(|| {
        // SAFETY: by the contract of the crate.
        let thesis = unsafe { shared("thesis", thesis) }?;
        thesis.store.hate(thesis.group(group)?);
        Ok(())
    })
}

/// Sets how long this group's objects may stay only in memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn damelo_thesis_set_checkpoint(
    thesis: *mut DameloThesis,
    group: c_int,
    seconds: c_int,
) -> c_int {
    guard(|| {
        let seconds = u64::try_from(seconds)
            .map_err(|_| Failure::invalid(format!("a period cannot be {seconds} s")))?;
        // SAFETY: by the contract of the crate.
        let thesis = unsafe { shared("thesis", thesis) }?;
        thesis.store.set_flush_period(thesis.group(group)?, Duration::from_secs(seconds));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_volume_and_size() {
        let plain = thesis_config("/raw/raw4".into(), None, None).unwrap();
        assert_eq!(plain.volumes[0].path, PathBuf::from("/raw/raw4"));
        assert_eq!(plain.volumes[0].size, None);
        assert!(!plain.must_exist);

        let other = thesis_config("/raw/raw4".into(), Some("/v".into()), Some("64MiB".into()));
        let other = other.unwrap();
        assert_eq!(other.volumes[0].path, PathBuf::from("/v"));
        assert_eq!(other.volumes[0].size, Some(ByteSize::new(64 << 20)));

        assert!(thesis_config("/v".into(), None, Some("plenty".into())).is_err());
        assert!(thesis_memory(0).is_err());
        assert!(thesis_memory(-1).is_err());
        assert_eq!(thesis_memory(c_int::MAX).unwrap().bytes(), (1 << 51) - (1 << 20));
    }
}
