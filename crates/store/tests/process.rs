//! The process around a store: children that are forked off, and signals.
//!
//! Threads: a store's own, and one for each test; a child has one.

#![cfg(target_os = "linux")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use damelo::device::DeviceOpenError;
use damelo::{
    ByteSize, Config, CreateError, GroupId, IoEngine, OpenError, PurgeError, ReadError,
    ReadThrough, Store, SyncError, WriterOptions,
};

const GROUP: GroupId = GroupId::new(1);

fn config(dir: &tempfile::TempDir, engine: IoEngine) -> Config {
    let mut config = Config::new(dir.path().join("store"), ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.io_engine = engine;
    config
}

/// Runs it in a child, which gives a number; one that hangs is killed.
fn in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child does what programs in C do, and leaves without unwinding into the test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: these take and touch nothing.
        unsafe {
            libc::alarm(60);
            libc::_exit(work());
        }
    }
    let mut status = 0;
    // SAFETY: the place for the status is ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child was killed: it hung, or crashed ({status})");
    libc::WEXITSTATUS(status)
}

/// The thread that fetches it is not in the child.
#[test]
fn in_a_child_a_read_through_fetches_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(config(&dir, IoEngine::Threads)).unwrap();
    let reads: ReadThrough<()> = ReadThrough::new(store);
    let (begun, beginning) = std::sync::mpsc::channel();
    let (end, ending) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|threads| {
        let reads = &reads;
        threads.spawn(move || {
            let fetched = reads.read_blocking(b"key", GROUP, || {
                begun.send(()).unwrap();
                ending.recv().unwrap();
                Ok(b"parent".to_vec())
            });
            assert_eq!(&*fetched.unwrap(), b"parent");
        });
        beginning.recv().unwrap();
        let wrong = in_child(|| {
            let fetched = reads.read_blocking(b"key", GROUP, || Ok(b"child".to_vec()));
            let is_closed = matches!(reads.remove(b"key"), Err(PurgeError::Closed));
            i32::from(!(is_closed && fetched.is_ok_and(|served| *served == *b"child")))
        });
        assert_eq!(wrong, 0);
        end.send(()).unwrap();
    });
}

#[test]
fn in_a_child_the_store_is_closed_and_the_parent_s_goes_on() {
    for engine in [IoEngine::Auto, IoEngine::Threads] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(config(&dir, engine)).unwrap();
        for key in 0..200_u32 {
            store.create(&key.to_le_bytes(), GROUP, &[1; 5000]).wait().unwrap();
        }
        let key = 7_u32.to_le_bytes();
        let theirs = std::mem::ManuallyDrop::new(store);
        let closed = in_child(|| {
            // SAFETY: the child has a copy of the handle, and drops its own only.
            let store = unsafe { std::ptr::read(&*theirs) };
            let all = [
                store.create(&key, GROUP, b"child").wait() == Err(CreateError::Closed),
                matches!(store.read(&key).wait(), Err(ReadError::Closed)),
                matches!(store.length(&key).wait(), Err(ReadError::Closed)),
                store.set_metadata(&key, b"child").wait() == Err(CreateError::Closed.into()),
                matches!(store.remove(&key), Err(PurgeError::Closed)),
                matches!(store.purge_all(), Err(PurgeError::Closed)),
                matches!(store.sync(), Err(SyncError::Closed)),
                matches!(store.checkpoint(), Err(SyncError::Closed)),
                matches!(store.clone().close(), Err(SyncError::Closed)),
            ];
            drop(store);
            all.iter().filter(|is_closed| !**is_closed).count() as i32
        });
        assert_eq!(closed, 0, "so many operations were done in the child");
        let store = std::mem::ManuallyDrop::into_inner(theirs);
        store.create(b"later", GROUP, b"value").wait().unwrap();
        store.close().unwrap();
        let store = Store::open(config(&dir, engine)).unwrap();
        store.wait_recovered();
        for key in 0..200_u32 {
            let object = store.read(&key.to_le_bytes()).wait().unwrap();
            assert_eq!(&*object.unwrap(), [1; 5000], "{key}");
        }
    }
}

/// A child has none of the threads that held locks when it was made.
#[test]
fn nothing_waits_in_a_child_for_threads_that_it_does_not_have() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    config.segment = Some(ByteSize::new(1 << 20));
    let store = Store::open(config).unwrap();
    store.create(b"large", GROUP, &vec![1; 3 << 20]).wait().unwrap();
    store.sync().unwrap();
    store.drop_memory();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for thread in 0..3_u32 {
            let (store, is_done) = (&store, &is_done);
            threads.spawn(move || {
                for round in 0_u32.. {
                    if is_done.load(Ordering::Relaxed) {
                        return;
                    }
                    let key = [thread.to_le_bytes(), (round % 100).to_le_bytes()].concat();
                    let group = GroupId::new(u64::from(round % 50));
                    let _ = store.create(&key, group, &[1; 3000]).wait();
                    let _ = store.read(&key).wait();
                    store.love(group);
                    store.drop_memory();
                    let _ = store.stats();
                }
            });
        }
        for _ in 0..40 {
            let mut reader = store.reader(b"large").wait().unwrap().unwrap();
            let mut writer = store.writer(b"new", GROUP, WriterOptions::default()).unwrap();
            let wrong = in_child(|| {
                store.love(GROUP);
                store.hate(GROUP);
                store.neutral(GROUP);
                store.set_flush_period(GROUP, Duration::from_secs(1));
                store.drop_memory();
                store.wait_recovered();
                let all = [
                    store.stats() == damelo::Stats::default(),
                    store.group_stats(GROUP).is_none(),
                    matches!(reader.next().wait(), Err(ReadError::Closed)),
                    writer.write(&[1; 3 << 20]).wait() == Err(CreateError::Closed),
                    (0..100_u32).all(|n| !store.may_contain(&n.to_le_bytes())),
                    matches!(store.entries().next(), Some(Err(ReadError::Closed))),
                ];
                all.iter().position(|is_closed| !*is_closed).map_or(0, |at| at as i32 + 1)
            });
            assert_eq!(wrong, 0);
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

/// Its parts are still to be written when the child commits it.
#[test]
fn a_long_value_is_not_committed_in_a_child() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Threads);
    config.segment = Some(ByteSize::new(1 << 20));
    let store = Store::open(config).unwrap();
    let mut writer = store.writer(b"long", GROUP, WriterOptions::default()).unwrap();
    writer.write(&[1; 1_500_000]).wait().unwrap();
    let wrong = in_child(|| i32::from(writer.commit().wait() != Err(CreateError::Closed)));
    assert_eq!(wrong, 0);
}

/// What a thread blocks, as a bit for each signal from 1 on.
fn blocked(thread: &std::path::Path) -> Option<(String, u64)> {
    let status = std::fs::read_to_string(thread.join("status")).ok()?;
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some((field("Name:")?.to_owned(), u64::from_str_radix(field("SigBlk:")?, 16).ok()?))
}

/// What is wrong with the signals that a thread of the store blocks.
fn wrongly(name: &str, blocked: u64) -> Option<String> {
    let blocks = |signal: i32| blocked & 1 << (signal - 1) != 0;
    let programs = [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGCHLD];
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
    let taken = programs.into_iter().find(|signal| !blocks(*signal));
    let missed = faults.into_iter().find(|signal| blocks(*signal));
    let taken = taken.map(|signal| format!("{name} takes signal {signal}"));
    taken.or_else(|| missed.map(|signal| format!("{name} blocks signal {signal}")))
}

#[test]
fn the_store_s_threads_take_no_signals_but_their_own_faults() {
    let mine = || blocked(std::path::Path::new("/proc/thread-self")).unwrap().1;
    let before = mine();
    for engine in [IoEngine::Auto, IoEngine::Threads] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(config(&dir, engine)).unwrap();
        let mut length = store.length(b"absent");
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        // For which a worker is started.
        let _ = std::future::Future::poll(std::pin::Pin::new(&mut length), &mut cx);
        // A thread that begins or ends blocks everything for a moment, and one that begins has the
        // name of its parent. The recovery thread ends by itself.
        let begun = Instant::now();
        loop {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            let threads = tasks.filter_map(|task| blocked(&task.ok()?.path()));
            let is_ours = |name: &str| name.starts_with("damelo-") && name != "damelo-recovery";
            let ours: Vec<_> = threads.filter(|(name, _)| is_ours(name)).collect();
            let wrong = ours.iter().find_map(|(name, blocked)| wrongly(name, *blocked));
            if ours.len() >= 3 && wrong.is_none() {
                break;
            }
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(60), "{ours:?}: {wrong:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(mine(), before, "the caller takes what it took");
}

/// Set in the process that may start no threads.
const WITHOUT_THREADS: &str = "DAMELO_TEST_WITHOUT_THREADS";

/// The kernel's own threads for a ring count as the program's, where these are limited: for a user,
/// or in a container.
#[test]
fn where_no_thread_can_be_started_what_is_written_and_read_is_not_lost() {
    if std::env::var_os(WITHOUT_THREADS).is_none() {
        let name = "where_no_thread_can_be_started_what_is_written_and_read_is_not_lost";
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(WITHOUT_THREADS, "1")
            .status();
        assert!(status.unwrap().success(), "see above");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&dir, IoEngine::Auto);
    // Writes to the page cache always take a thread of the kernel.
    config.direct = false;
    let store = Store::open(config).unwrap();
    if !no_more_threads() {
        println!("skipped: threads can be started all the same");
        return;
    }
    let value = |key: u8| vec![key; 2_000_000];
    for key in 0..12 {
        assert_eq!(store.create(&[key], GROUP, &value(key)).wait(), Ok(()), "{key}");
    }
    store.sync().unwrap();
    for key in 0..12 {
        store.drop_memory();
        let mut reader = store.reader(&[key]).wait().unwrap().expect("it was synced");
        let mut read = Vec::new();
        while let Some(piece) = reader.next().wait().unwrap() {
            read.extend_from_slice(&piece);
        }
        assert!(read == value(key), "{key}");
    }
    store.close().unwrap();
}

/// Set in the process that may start few threads.
const WITH_FEW_THREADS: &str = "DAMELO_TEST_WITH_FEW_THREADS";

/// Whichever of its threads is the first that cannot be started: those before it end, and with them
/// the hold on the file.
#[test]
fn an_open_that_cannot_start_its_threads_leaves_nothing_behind() {
    let Some(dir) = std::env::var_os(WITH_FEW_THREADS) else {
        let name = "an_open_that_cannot_start_its_threads_leaves_nothing_behind";
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(WITH_FEW_THREADS, dir.path())
            .status();
        assert!(status.unwrap().success(), "see above");
        return;
    };
    let has_user = leave_root();
    let own = threads();
    // A thread that was joined counts until the system has done with it.
    let settle = || {
        let begun = Instant::now();
        while threads() > own {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} threads stay", threads() - own);
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let config = |name| {
        let mut config = Config::new(Path::new(&dir).join(name), ByteSize::new(8 << 20));
        config.memory = ByteSize::new(4 << 20);
        config.io_engine = IoEngine::Threads;
        config
    };
    let store = Store::open(config("there")).unwrap();
    store.create(b"key", GROUP, b"value").wait().unwrap();
    store.close().unwrap();
    let starts = || std::thread::Builder::new().spawn(|| ()).is_ok_and(|one| one.join().is_ok());
    let is_enough = |most: &u64| {
        settle();
        limit_threads(*most);
        starts()
    };
    let first = (1..200_000).find(is_enough).unwrap();
    if first == 1 {
        println!("skipped: threads can be started all the same");
        return;
    }
    let mut refused = 0;
    for most in first.. {
        settle();
        limit_threads(most);
        let fresh = config("fresh");
        if let Err(error) = Store::open(fresh.clone()) {
            assert!(!fresh.volumes[0].path.exists(), "{error}");
        }
        settle();
        match Store::open(config("there")) {
            Ok(store) => {
                store.wait_recovered();
                assert_eq!(&*store.read(b"key").wait().unwrap().unwrap(), b"value");
                break;
            }
            Err(OpenError::System(_)) => refused += 1,
            Err(OpenError::Device(DeviceOpenError::IoEngine { .. })) => (),
            Err(error) => panic!("with room for {} more: {error}", most - first),
        }
    }
    // That of recovery may have ended, and left its place, before the next one is started.
    assert!(refused >= 2 || !has_user, "not those of the device alone: {refused}");
}

/// True if this process can start no threads from now on.
fn no_more_threads() -> bool {
    leave_root();
    limit_threads(1);
    std::thread::Builder::new().spawn(|| ()).is_err()
}

/// Root has no limit of threads, and those of others count for the same user: this process has one
/// of its own from now on. False if it was not root.
fn leave_root() -> bool {
    let user = 10_000 + std::process::id() % 50_000;
    // SAFETY: no pointers.
    unsafe { libc::geteuid() == 0 && libc::setresuid(user, user, user) == 0 }
}

/// Of this process, as the system counts them.
fn threads() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    line.expect("a line of it").trim().parse().expect("a number")
}

/// From now on the user may have so many threads.
fn limit_threads(most: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: no pointer but that to the limit.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit);
        limit.rlim_cur = most.min(limit.rlim_max);
        libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit);
    }
}
