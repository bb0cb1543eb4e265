//! The entry points as C calls them, on a device in memory: what they give outlives what it should,
//! and what no C program may pass is refused.
//!
//! Threads: each test's own, and those of the store.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::slice::from_raw_parts;

use damelo::{ByteSize, Config, Store};

use crate::border::give;
use crate::groups::{damelo_group_of, damelo_purge_group};
use crate::info::DameloInfo;
use crate::object::*;
use crate::range::*;
use crate::reader::*;
use crate::status::Status;
use crate::store::{DameloStore, damelo_close, damelo_drop_memory, damelo_sync};
use crate::writer::*;

#[path = "../../store/tests/in_memory/mod.rs"]
mod in_memory;
use in_memory::{Memory, State, Stopped};

const DEVICE_BYTES: usize = 6 << 20;
const OK: c_int = Status::Ok as c_int;
const INVALID: c_int = Status::Invalid as c_int;
const NOT_FOUND: c_int = Status::NotFound as c_int;
const LENGTH_UNKNOWN: u64 = u64::MAX;

/// As `damelo_open`, which wants a file.
fn open() -> *mut DameloStore {
    let mut config = Config::new("memory", ByteSize::new(DEVICE_BYTES as u64));
    config.memory = ByteSize::new(4 << 20);
    config.page = Some(ByteSize::new(16 << 10));
    config.segment = Some(ByteSize::new(256 << 10));
    config.objects_max = Some(1024);
    config.seed = Some(1);
    let device = Memory::device(&State::new(DEVICE_BYTES, false));
    let store = Store::open_on(config, vec![device], std::sync::Arc::new(Stopped)).unwrap();
    give(DameloStore { store })
}

fn start(bytes: &[u8]) -> *const c_void {
    bytes.as_ptr().cast()
}

/// What lies where C is told.
///
/// # Safety
/// It does.
unsafe fn told<'a>(data: *const c_void, length: usize) -> &'a [u8] {
    assert!(!data.is_null());
    // SAFETY: by the caller.
    unsafe { from_raw_parts(data.cast(), length) }
}

#[test]
fn a_pin_stays_where_it_is_whatever_becomes_of_the_object_and_the_store() {
    let (key, value, meta) = (b"key", [7_u8; 3_000], b"text/plain");
    // SAFETY: by the contract of the crate: what is passed lives, and each handle is freed once.
    unsafe {
        let store = open();
        let group = damelo_group_of(start(b"site"), 4);
        let (data, about) = (start(&value), start(meta));
        let made = damelo_create_with(
            store,
            start(key),
            3,
            group,
            data,
            value.len(),
            about,
            meta.len(),
            0,
        );
        assert_eq!(made, OK);
        let mut pin = null_mut();
        assert_eq!(damelo_read(store, start(key), 3, &raw mut pin), OK);
        let other = damelo_object_clone(pin);
        damelo_object_release(pin);
        assert_eq!(damelo_create(store, start(key), 3, group, start(b"new"), 3), OK);
        assert_eq!(damelo_sync(store), OK);
        assert_eq!(damelo_drop_memory(store), OK);
        assert_eq!(damelo_remove(store, start(key), 3), OK);
        assert_eq!(damelo_remove(store, start(key), 3), NOT_FOUND);
        let mut gone = other;
        assert_eq!(damelo_read(store, start(key), 3, &raw mut gone), NOT_FOUND);
        assert!(gone.is_null(), "nothing is left there to be freed by mistake");
        assert_eq!(damelo_close(store), OK);
        let (mut key_bytes, mut meta_bytes) = (0, 0);
        let told_key = damelo_object_key(other, &raw mut key_bytes);
        let told_meta = damelo_object_metadata(other, &raw mut meta_bytes);
        assert_eq!(told(told_key, key_bytes), key);
        assert_eq!(told(told_meta, meta_bytes), meta);
        assert_eq!(told(damelo_object_data(other), damelo_object_length(other)), value);
        assert_eq!(damelo_object_group(other), group);
        damelo_object_release(other);
        damelo_object_release(null_mut());
    }
}

#[test]
fn what_is_written_in_pieces_is_read_in_pieces_and_ranges() {
    let value: Vec<u8> = (0..20_000_u32).map(|at| at as u8).collect();
    // SAFETY: as above.
    unsafe {
        let store = open();
        let mut writer = null_mut();
        let (none, unknown) = (null(), LENGTH_UNKNOWN);
        let begun =
            damelo_writer_open(store, start(b"k"), 1, 1, none, 0, 0, unknown, &raw mut writer);
        assert_eq!(begun, OK);
        for piece in value.chunks(6_000) {
            assert_eq!(damelo_writer_write(writer, start(piece), piece.len()), OK);
        }
        assert_eq!(damelo_writer_set_metadata(writer, start(b"about"), 5), OK);
        assert_eq!(damelo_writer_commit(writer), OK);
        assert_eq!(damelo_sync(store), OK);
        assert_eq!(damelo_drop_memory(store), OK);

        let mut reader = null_mut();
        assert_eq!(damelo_reader_open(store, start(b"k"), 1, &raw mut reader), OK);
        let mut info = DameloInfo::default();
        assert_eq!(damelo_reader_info(reader, &raw mut info), OK);
        assert_eq!((info.length_bytes, info.metadata_bytes), (20_000, 5));
        let (mut all, mut data, mut length) = (Vec::new(), null(), 0);
        assert_eq!(damelo_reader_seek(reader, 5), OK);
        while damelo_reader_next(reader, &raw mut data, &raw mut length) == OK && !data.is_null() {
            all.extend_from_slice(told(data, length));
        }
        assert_eq!(all, value[5..]);
        damelo_reader_close(reader);

        let mut range = null_mut();
        assert_eq!(damelo_read_range(store, start(b"k"), 1, 100, 50, &raw mut range), OK);
        let found = told(damelo_range_data(range), damelo_range_length(range));
        assert_eq!((found, damelo_range_offset(range)), (&value[100..150], 100));
        assert_eq!(damelo_range_object_length(range), 20_000);
        assert_eq!(damelo_close(store), OK);
        assert_eq!(found, &value[100..150], "it outlives the store");
        damelo_range_release(range);
    }
}

#[test]
fn what_no_c_program_may_pass_is_refused_and_changes_nothing() {
    // SAFETY: as above; what cannot be is refused before it is read.
    unsafe {
        let store = open();
        assert_eq!(damelo_create(store, start(b"k"), 1, 1, start(b"v"), 1), OK);
        assert_eq!(damelo_create(null_mut(), start(b"k"), 1, 1, start(b"w"), 1), INVALID);
        assert_eq!(damelo_create(store, null(), 1, 1, start(b"w"), 1), INVALID);
        assert_eq!(damelo_create(store, start(b"k"), 1, 1, start(b"w"), usize::MAX), INVALID);
        assert_eq!(damelo_read(store, start(b"k"), 1, null_mut()), INVALID);
        let (crooked, mut place) = (std::ptr::without_provenance_mut(1), null_mut());
        assert_eq!(damelo_read(crooked, start(b"k"), 1, &raw mut place), INVALID);
        let mut writer = null_mut();
        let begun = damelo_writer_open(store, start(b"k"), 1, 1, null(), 0, 0, 9, &raw mut writer);
        assert_eq!(begun, OK);
        assert_eq!(damelo_writer_write(writer, null(), 3), INVALID);
        assert_ne!(damelo_writer_commit(writer), OK, "it lacks what was refused");
        let mut pin = null_mut();
        assert_eq!(damelo_read(store, start(b"k"), 1, &raw mut pin), OK);
        assert_eq!(told(damelo_object_data(pin), 1), b"v");
        damelo_object_release(pin);
        assert_eq!(damelo_purge_group(store, 1), OK);
        assert_eq!(damelo_read(store, start(b"k"), 1, &raw mut pin), NOT_FOUND);
        assert_eq!(damelo_close(store), OK);
    }
}
