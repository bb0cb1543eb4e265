//! How many small objects a declared memory holds: what finds them, and what they wait in before
//! they are written, must not take more of it than the objects do.

use damelo::{ByteSize, Config, GroupId, Store};

const MEMORY_BYTES: u64 = 32 << 20;
const VALUE: [u8; 100] = [7; 100];
/// More than memory holds.
const OBJECTS: u64 = 160_000;
const OBJECTS_PER_GROUP: u64 = 256;
/// A record takes 192 bytes of a page, its entry in the table 28 to 31; the rest is for what
/// decides which of them stay, and for what waits to be written.
const BYTES_EACH_MAX: u64 = 384;

#[test]
fn an_object_of_a_hundred_bytes_takes_less_than_twice_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(256 << 20));
    config.memory = ByteSize::new(MEMORY_BYTES);
    config.objects_max = Some(OBJECTS * 10 / 9);
    let store = Store::open(config).unwrap();
    for object in 0..OBJECTS {
        let key = format!("{object:016}");
        let group = GroupId::new(object / OBJECTS_PER_GROUP);
        store.create(key.as_bytes(), group, &VALUE).wait().unwrap();
    }
    store.sync().unwrap();
    let resident = store.stats().resident_objects;
    assert!(resident < OBJECTS, "memory is full");
    let each = MEMORY_BYTES / resident;
    assert!(each <= BYTES_EACH_MAX, "{each} bytes of memory for each of {resident} objects");
    store.close().unwrap();
}
