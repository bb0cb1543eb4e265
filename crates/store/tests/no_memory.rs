//! A store that is to be made in place of another, and for which there is no memory, leaves that
//! one. The only test here, since it limits what memory its process may have.

#![cfg(target_os = "linux")]

use damelo::{ByteSize, Config, GroupId, OpenError, Store};

/// Less than is asked for, and more than the checks before take.
const ADDRESSES_MAX: u64 = 8 << 30;
const TOO_MUCH: u64 = 16 << 30;

#[test]
fn a_store_is_not_given_up_for_one_that_memory_does_not_suffice_for() {
    let limit = libc::rlimit { rlim_cur: ADDRESSES_MAX, rlim_max: ADDRESSES_MAX };
    // SAFETY: reads the limit only.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    let dir = tempfile::tempdir().unwrap();
    let config = |memory: u64, anew| {
        let mut config = Config::new(dir.path().join("store"), ByteSize::new(16 << 20));
        (config.memory, config.anew) = (ByteSize::new(memory), anew);
        config
    };
    let store = Store::open(config(8 << 20, false)).unwrap();
    store.create(b"key", GroupId::new(1), b"value").wait().unwrap();
    store.close().unwrap();
    let refused = Store::open(config(TOO_MUCH, true)).unwrap_err();
    assert!(matches!(refused, OpenError::System(_)), "{refused}");
    let store = Store::open(config(8 << 20, false)).unwrap();
    assert_eq!(&*store.read(b"key").wait().unwrap().unwrap(), b"value");
    store.close().unwrap();
    let store = Store::open(config(8 << 20, true)).unwrap();
    assert!(store.info().created && store.read(b"key").wait().unwrap().is_none());
    store.close().unwrap();
}
