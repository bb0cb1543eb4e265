//! Tests of the real devices: the same suite over every engine, and opening, locking and journals.
//!
//! Owns: temporary files only. Engines that this machine denies (io_uring in some containers) are
//! left out with a note. Threads: each test starts its own.

#![expect(clippy::disallowed_macros, reason = "a panic for want of a reader is right here")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use super::file::{Core, FileDevice};
use super::journal::FileJournal;
use super::*;

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Zeroed memory, aligned for direct I/O.
struct Aligned {
    ptr: *mut u8,
    layout: Layout,
}

// SAFETY: plain owned memory.
unsafe impl Send for Aligned {}
// SAFETY: shared access only reads.
unsafe impl Sync for Aligned {}

impl Aligned {
    fn new(len: usize) -> Aligned {
        let layout = Layout::from_size_align(len.max(1), BLOCK).unwrap();
        // SAFETY: the size is not zero.
        let ptr = unsafe { alloc_zeroed(layout) };
        assert!(!ptr.is_null());
        Aligned { ptr, layout }
    }

    fn filled(rng: &mut fastrand::Rng, len: usize) -> Aligned {
        let mut a = Aligned::new(len);
        rng.fill(&mut a);
        a
    }

    fn buf(&self) -> IoBuf {
        // SAFETY: all users below keep `self` until the I/O is done.
        unsafe { IoBuf::new(self.ptr, self.layout.size()) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.ptr, self.layout) }
    }
}

impl Deref for Aligned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: owned and initialised.
        unsafe { std::slice::from_raw_parts(self.ptr, self.layout.size()) }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: owned, initialised, exclusively borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.layout.size()) }
    }
}

/// Submits and gives the buffers back when done.
fn submit_bufs(
    device: &dyn Device,
    op: IoOp,
    offset: u64,
    bufs: Vec<Aligned>,
) -> mpsc::Receiver<(io::Result<()>, Vec<Aligned>)> {
    let (send, receive) = mpsc::channel();
    let pieces = bufs.iter().map(Aligned::buf).collect();
    let done = Box::new(move |result| send.send((result, bufs)).unwrap());
    device.submit(Io { op, offset, bufs: pieces, done });
    receive
}

fn run(device: &dyn Device, op: IoOp, offset: u64, bufs: Vec<Aligned>) -> io::Result<Vec<Aligned>> {
    let (result, bufs) = submit_bufs(device, op, offset, bufs).recv_timeout(PATIENCE).unwrap();
    result.map(|()| bufs)
}

fn options(path: &Path, bytes: u64) -> OpenOptions {
    OpenOptions { create_bytes: Some(bytes), rotational: Some(false), ..OpenOptions::new(path) }
}

/// Runs a test over engines, rotational or not, direct or not.
fn each_engine(bytes: u64, test: impl Fn(Arc<dyn Device>, &Path)) {
    for engine in [EngineChoice::Threads, EngineChoice::IoUring] {
        for (rotational, direct, queue_depth) in
            [(false, true, 64), (true, true, 64), (false, false, 3), (false, true, 1)]
        {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("device");
            let how = OpenOptions {
                engine,
                rotational: Some(rotational),
                direct,
                queue_depth,
                ..options(&path, bytes)
            };
            match open(&how) {
                Ok(opened) => {
                    assert!(opened.created);
                    let expected =
                        ["threads", "io_uring"][usize::from(engine != EngineChoice::Threads)];
                    assert_eq!(opened.device.info().engine, expected);
                    assert_eq!(opened.device.info().rotational, rotational);
                    test(opened.device, &path);
                }
                Err(DeviceOpenError::Engine { source, .. }) if engine == EngineChoice::IoUring => {
                    assert!(!path.exists(), "a failed creation leaves nothing");
                    eprintln!("not tested: io_uring: {source}");
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
}

#[test]
fn agrees_with_a_model_in_memory() {
    each_engine(2 * MIB, |device, _| {
        let mut rng = fastrand::Rng::with_seed(1);
        let blocks = 2 * MIB as usize / BLOCK;
        let mut model = vec![0u8; 2 * MIB as usize];
        for _ in 0..400 {
            let lens: Vec<usize> = (0..rng.usize(1..6)).map(|_| rng.usize(1..5) * BLOCK).collect();
            let total: usize = lens.iter().sum();
            let at = rng.usize(0..=blocks - total / BLOCK) * BLOCK;
            let blocking = rng.u8(0..4) == 0;
            if rng.bool() {
                let bufs: Vec<_> = lens.iter().map(|n| Aligned::filled(&mut rng, *n)).collect();
                let flat: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
                model[at..at + total].copy_from_slice(&flat);
                if blocking {
                    let mut at = at as u64;
                    for b in &bufs {
                        device.write_at(at, b).unwrap();
                        at += b.len() as u64;
                    }
                } else {
                    run(&*device, IoOp::Write, at as u64, bufs).unwrap();
                }
            } else if blocking {
                let mut b = Aligned::new(total);
                device.read_at(at as u64, &mut b).unwrap();
                assert!(b[..] == model[at..at + total]);
            } else {
                let bufs = lens.iter().map(|n| Aligned::new(*n)).collect();
                let bufs = run(&*device, IoOp::Read, at as u64, bufs).unwrap();
                let flat: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
                assert!(flat[..] == model[at..at + total]);
            }
        }
        device.sync().unwrap();
    });
}

#[test]
fn many_threads_with_many_in_flight() {
    each_engine(8 * MIB, |device, _| {
        std::thread::scope(|scope| {
            for t in 0..8u64 {
                let device = &device;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(t);
                    for _ in 0..6 {
                        let at = |n: u64| t * MIB + n * 2 * BLOCK as u64;
                        let data: Vec<_> =
                            (0..20).map(|_| Aligned::filled(&mut rng, 2 * BLOCK)).collect();
                        let copies: Vec<_> = data.iter().map(|d| d.to_vec()).collect();
                        let writes: Vec<_> = (0..)
                            .zip(data)
                            .map(|(n, d)| submit_bufs(&**device, IoOp::Write, at(n), vec![d]))
                            .collect();
                        for w in writes {
                            w.recv_timeout(PATIENCE).unwrap().0.unwrap();
                        }
                        let reads: Vec<_> = (0..20)
                            .map(|n| {
                                let b = vec![Aligned::new(2 * BLOCK)];
                                submit_bufs(&**device, IoOp::Read, at(n), b)
                            })
                            .collect();
                        for (r, copy) in reads.into_iter().zip(copies) {
                            let (result, bufs) = r.recv_timeout(PATIENCE).unwrap();
                            result.unwrap();
                            assert!(bufs[0][..] == copy[..]);
                        }
                    }
                });
            }
        });
        let stats = device.stats();
        assert_eq!((stats.reads, stats.writes), (960, 960));
        assert_eq!(stats.read_bytes, 960 * 2 * BLOCK as u64);
        assert_eq!(stats.write_bytes, stats.read_bytes);
        assert_eq!((stats.read_errors, stats.write_errors), (0, 0));
        assert!(stats.device_ns > 0 && stats.depth_max >= 1 && stats.depth_max <= 64);
        if device.info().rotational {
            assert!(stats.depth_max <= 8, "{}", stats.depth_max);
        }
    });
}

#[test]
fn more_pieces_than_one_system_call_takes() {
    each_engine(8 * MIB, |device, _| {
        let mut rng = fastrand::Rng::with_seed(3);
        let bufs: Vec<_> = (0..1500).map(|_| Aligned::filled(&mut rng, BLOCK)).collect();
        let written = run(&*device, IoOp::Write, BLOCK as u64, bufs).unwrap();
        let bufs = (0..1500).map(|_| Aligned::new(BLOCK)).collect();
        let read = run(&*device, IoOp::Read, BLOCK as u64, bufs).unwrap();
        assert!(written.iter().zip(&read).all(|(a, b)| a[..] == b[..]));
    });
}

#[test]
fn what_cannot_work_is_refused() {
    each_engine(MIB, |device, path| {
        let size = device.info().size_bytes;
        assert_eq!(size, MIB);
        let mut two = Aligned::new(2 * BLOCK);
        for at in [size - BLOCK as u64, size, 1 << 40, u64::MAX - (BLOCK as u64 - 1)] {
            assert_eq!(device.read_at(at, &mut two).unwrap_err().kind(), ErrorKind::UnexpectedEof);
            assert_eq!(device.write_at(at, &two).unwrap_err().kind(), ErrorKind::WriteZero);
            let e = run(&*device, IoOp::Read, at, vec![Aligned::new(2 * BLOCK)]).err().unwrap();
            assert_eq!(e.kind(), ErrorKind::UnexpectedEof);
            let e = run(&*device, IoOp::Write, at, vec![Aligned::new(2 * BLOCK)]).err().unwrap();
            assert_eq!(e.kind(), ErrorKind::WriteZero);
        }
        if device.info().direct {
            for (at, range) in [(1, 0..BLOCK), (0, 1..BLOCK + 1), (0, 0..BLOCK - 1)] {
                let e = device.read_at(at, &mut two[range.clone()]).unwrap_err();
                assert_eq!(e.kind(), ErrorKind::InvalidInput, "{e}");
                let e = device.write_at(at, &two[range]).unwrap_err();
                assert_eq!(e.kind(), ErrorKind::InvalidInput, "{e}");
            }
        }
        run(&*device, IoOp::Read, 0, vec![]).unwrap();
        device.read_at(0, &mut []).unwrap();
        assert_eq!(fs::metadata(path).unwrap().len(), MIB, "nothing grew it");
        assert!(device.stats().read_errors >= 8 && device.stats().write_errors >= 8);

        // Cut short behind our back: an error, never silence.
        File::options().write(true).open(path).unwrap().set_len(MIB / 2 + 512).unwrap();
        for at in [MIB / 2 - BLOCK as u64, MIB / 2, MIB / 2 + BLOCK as u64] {
            let bufs = vec![Aligned::new(BLOCK), Aligned::new(BLOCK)];
            let e = run(&*device, IoOp::Read, at, bufs).err().unwrap();
            assert_eq!(e.kind(), ErrorKind::UnexpectedEof);
            assert_eq!(device.read_at(at, &mut two).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    });
}

#[test]
fn writing_through_a_read_only_descriptor_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    fs::write(&path, vec![7; BLOCK]).unwrap();
    for engine in [EngineChoice::Threads, EngineChoice::Auto] {
        let info = DeviceInfo {
            name: "read-only".into(),
            size_bytes: BLOCK as u64,
            block_bytes: 1,
            direct: false,
            rotational: false,
            engine: "",
        };
        let file = File::open(&path).unwrap();
        let (device, _) = FileDevice::start(file, path.clone(), info, engine, 4).unwrap();
        run(&device, IoOp::Write, 0, vec![Aligned::new(BLOCK)]).err().unwrap();
        device.write_at(0, &[1]).unwrap_err();
        let mut byte = [0];
        device.read_at(5, &mut byte).unwrap();
        assert_eq!(byte, [7]);
        let stats = device.stats();
        assert_eq!((stats.writes, stats.write_errors, stats.reads), (0, 2, 1));
    }
}

/// A store's files are free once nothing of it is held; `done` may hold the last of it.
#[test]
fn a_settled_device_has_let_go_of_what_done_held() {
    each_engine(MIB, |device, _| {
        let (buffer, held) = (Aligned::new(BLOCK), Arc::new(()));
        let (heard, hears) = mpsc::channel();
        let (go, goes) = mpsc::channel();
        let in_done = Arc::clone(&held);
        let done = Box::new(move |result: io::Result<()>| {
            heard.send(result.is_ok()).unwrap();
            goes.recv().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            drop(in_done);
        });
        device.submit(Io { op: IoOp::Read, offset: 0, bufs: vec![buffer.buf()], done });
        submit_deferred();
        assert_eq!(hears.recv(), Ok(true));
        assert_eq!(Arc::strong_count(&held), 2, "the caller hears of it earlier");
        go.send(()).unwrap();
        device.settle(PATIENCE);
        assert_eq!(Arc::strong_count(&held), 1);
    });
}

/// Its thread may be waiting for the one that closes the store.
#[test]
fn a_device_settles_though_another_thread_deferred_a_read() {
    each_engine(MIB, |device, _| {
        let (buffer, held) = (Aligned::new(BLOCK), Arc::new(()));
        // The engine's thread goes to sleep.
        std::thread::sleep(Duration::from_millis(20));
        std::thread::scope(|scope| {
            let (submitted, is_submitted) = mpsc::channel();
            let (settled, is_settled) = mpsc::channel::<()>();
            let (there, bufs, in_done) = (&device, vec![buffer.buf()], Arc::clone(&held));
            scope.spawn(move || {
                let _deferral = Deferral::begin(|| {});
                let done = Box::new(move |_: io::Result<()>| drop(in_done));
                there.submit(Io { op: IoOp::Read, offset: 0, bufs, done });
                submitted.send(()).unwrap();
                let _ = is_settled.recv();
            });
            assert_eq!(is_submitted.recv(), Ok(()));
            device.settle(Duration::from_secs(2));
            assert_eq!(Arc::strong_count(&held), 1);
            drop(settled);
        });
    });
}

#[test]
fn dropping_the_device_completes_everything() {
    each_engine(MIB, |device, _| {
        let count = Arc::new(AtomicU32::new(0));
        for n in 0..300u64 {
            let buf = Aligned::new(BLOCK);
            let (op, count) = ([IoOp::Read, IoOp::Write][n as usize % 2], Arc::clone(&count));
            let bufs = vec![buf.buf()];
            let done = Box::new(move |result: io::Result<()>| {
                drop(buf);
                result.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            });
            device.submit(Io { op, offset: n % 256 * BLOCK as u64, bufs, done });
        }
        drop(device);
        assert_eq!(count.load(Ordering::Relaxed), 300);
    });
}

fn read_chain(device: Arc<dyn Device>, left: u32, end: mpsc::Sender<()>) {
    let buf = Aligned::new(BLOCK);
    let bufs = vec![buf.buf()];
    let next = Arc::clone(&device);
    let done = Box::new(move |result: io::Result<()>| {
        result.unwrap();
        let mut buf = buf;
        // A blocking read in a closure must not wait for the thread it is on.
        next.read_at(0, &mut buf).unwrap();
        if left > 0 {
            read_chain(next, left - 1, end);
        } else {
            drop(next);
            end.send(()).unwrap();
        }
    });
    device.submit(Io { op: IoOp::Read, offset: 0, bufs, done });
}

#[test]
fn closures_may_submit_read_and_drop_the_last_reference() {
    each_engine(MIB, |device, path| {
        let (end, ended) = mpsc::channel();
        read_chain(device, 500, end);
        ended.recv_timeout(PATIENCE).unwrap();
        // The engine ends on its own, and then the lock is free.
        let mut tries = 0;
        while let Err(e) = open(&options(path, MIB)) {
            assert!(matches!(e, DeviceOpenError::Locked { .. }) && tries < 1000, "{e}");
            tries += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn reads_overtake_queued_writes() {
    let dir = tempfile::tempdir().unwrap();
    for engine in [EngineChoice::Threads, EngineChoice::Auto] {
        let path = dir.path().join(format!("{engine:?}"));
        let device =
            open(&OpenOptions { engine, queue_depth: 1, ..options(&path, MIB) }).unwrap().device;
        let order = Arc::new(Mutex::new(Vec::new()));
        let (hold, held) = mpsc::channel::<()>();
        let mut held = Some(held);
        let (entered, is_entered) = mpsc::channel();
        let mut waits = Vec::new();
        for (n, op) in [IoOp::Write, IoOp::Write, IoOp::Write, IoOp::Read].into_iter().enumerate() {
            let buf = Aligned::new(BLOCK);
            let (bufs, order, held) = (vec![buf.buf()], Arc::clone(&order), held.take());
            let (send, receive) = mpsc::channel();
            waits.push(receive);
            let entered = entered.clone();
            let done = Box::new(move |result: io::Result<()>| {
                drop(buf);
                result.unwrap();
                // The first one occupies the only engine thread until all are queued.
                if let Some(held) = held {
                    entered.send(()).unwrap();
                    held.recv().unwrap();
                }
                order.lock().unwrap().push(n);
                send.send(()).unwrap();
            });
            device.submit(Io { op, offset: 0, bufs, done });
            if n == 0 {
                is_entered.recv_timeout(PATIENCE).unwrap();
            }
        }
        hold.send(()).unwrap();
        waits.iter().for_each(|w| w.recv_timeout(PATIENCE).unwrap());
        assert_eq!(*order.lock().unwrap(), [0, 3, 1, 2]);
    }
}

/// Submits a write whose `done` occupies the engine's thread until the sender is used or dropped.
fn occupy(device: &dyn Device) -> mpsc::Sender<()> {
    let (hold, held) = mpsc::channel::<()>();
    let (entered, is_entered) = mpsc::channel();
    let buf = Aligned::new(BLOCK);
    let bufs = vec![buf.buf()];
    let done = Box::new(move |result: io::Result<()>| {
        drop(buf);
        result.unwrap();
        entered.send(()).unwrap();
        let _ = held.recv();
    });
    device.submit(Io { op: IoOp::Write, offset: 0, bufs, done });
    is_entered.recv_timeout(PATIENCE).unwrap();
    hold
}

#[test]
fn a_slot_that_is_free_is_used_before_done_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    let device = open(&OpenOptions { queue_depth: 1, ..options(&path, MIB) }).unwrap().device;
    if device.info().engine != "io_uring" {
        return println!("no io_uring here: left out");
    }
    let hold = occupy(&*device);
    let (bytes, written) = (vec![7; BLOCK], Arc::new(AtomicU32::new(0)));
    let mut waits = Vec::new();
    for block in 1..=2_u64 {
        let mut buf = Aligned::new(BLOCK);
        buf.copy_from_slice(&bytes);
        let bufs = vec![buf.buf()];
        let (send, receive) = mpsc::channel();
        waits.push(receive);
        let (path, bytes, written) = (path.clone(), bytes.clone(), Arc::clone(&written));
        let done = Box::new(move |result: io::Result<()>| {
            drop(buf);
            result.unwrap();
            // The first waits for the bytes of the second, which has no other slot than its.
            let (file, begun) = (File::open(path).unwrap(), std::time::Instant::now());
            let mut seen = vec![0; BLOCK];
            while seen != bytes && begun.elapsed() < PATIENCE {
                file.read_exact_at(&mut seen, 2 * BLOCK as u64).unwrap();
            }
            written.fetch_add(u32::from(seen == bytes), Ordering::Relaxed);
            send.send(()).unwrap();
        });
        device.submit(Io { op: IoOp::Write, offset: block * BLOCK as u64, bufs, done });
    }
    drop(hold);
    waits.iter().for_each(|wait| wait.recv_timeout(2 * PATIENCE).unwrap());
    assert_eq!(written.load(Ordering::Relaxed), 2);
}

#[test]
fn few_of_many_writes_are_with_the_device_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    let device = open(&options(&path, MIB)).unwrap().device;
    let hold = occupy(&*device);
    let write = |block| {
        let bufs = vec![Aligned::new(BLOCK)];
        submit_bufs(&*device, IoOp::Write, block * BLOCK as u64, bufs)
    };
    let waits: Vec<_> = (0..64).map(write).collect();
    drop(hold);
    waits.iter().for_each(|wait| wait.recv_timeout(PATIENCE).unwrap().0.unwrap());
    let stats = device.stats();
    assert_eq!(stats.writes, 65);
    assert!(stats.depth_max <= 8, "{stats:?}");
}

#[test]
fn the_lock_keeps_others_out_until_the_last_user_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    let first = open(&options(&path, MIB)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let journal = first.device.journal(0, 4096).unwrap();
    for _ in 0..2 {
        match open(&options(&path, MIB)).unwrap_err() {
            DeviceOpenError::Locked { pid, .. } => {
                assert!(pid.is_none_or(|p| p == std::process::id()), "{pid:?}");
            }
            e => panic!("{e}"),
        }
    }
    drop(first);
    open(&options(&path, MIB)).unwrap_err();
    drop(journal);
    let second = open(&options(&path, 2 * MIB)).unwrap();
    assert!(!second.created);
    assert_eq!(second.device.info().size_bytes, MIB, "a file with content keeps its size");
}

#[test]
fn errors_of_opening_say_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    let fails = |how: &OpenOptions| {
        let e = open(how).unwrap_err();
        assert!(e.to_string().contains(&*how.path.to_string_lossy()), "{e}");
        eprintln!("{e}");
        e
    };
    let absurd = fails(&options(&path, 1 << 60));
    match absurd {
        DeviceOpenError::NoRoom { needed, available, .. } => {
            assert!(needed == 1 << 60 && available < needed);
        }
        // If there is a limit on the size of files.
        e => assert!(matches!(e, DeviceOpenError::TooLarge { .. }), "{e}"),
    }
    assert!(matches!(fails(&options(&path, u64::MAX)), DeviceOpenError::TooLarge { .. }));
    assert!(matches!(fails(&options(&path, 0)), DeviceOpenError::SizeZero { .. }));
    assert!(matches!(fails(&OpenOptions::new(&path)), DeviceOpenError::NotFound { .. }));
    assert!(!path.exists(), "no failure leaves a file");
    assert!(matches!(fails(&options(dir.path(), MIB)), DeviceOpenError::IsDirectory { .. }));
    let orphan = path.join("below").join("it");
    assert!(matches!(fails(&options(&orphan, MIB)), DeviceOpenError::ParentMissing { .. }));
    let null = Path::new("/dev/null");
    assert!(matches!(fails(&options(null, MIB)), DeviceOpenError::NotStorage { .. }));
    std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
    assert!(matches!(fails(&options(&dir.path().join("link"), MIB)), DeviceOpenError::Io { .. }));

    File::create(&path).unwrap();
    fails(&options(&path, 1 << 60));
    assert!(matches!(fails(&OpenOptions::new(&path)), DeviceOpenError::SizeZero { .. }));
    assert_eq!(fs::metadata(&path).unwrap().len(), 0, "an empty file stays as it was");
    assert!(matches!(fails(&options(&path.join("x"), MIB)), DeviceOpenError::ParentMissing { .. }));
    let filled = open(&options(&path, MIB + 1)).unwrap();
    assert!(filled.created);
    assert_eq!(filled.device.info().size_bytes, MIB + 4096);
}

/// A child of `fork` keeps the lock of a process that was killed.
#[test]
#[cfg(target_os = "linux")]
fn a_lock_of_a_process_that_has_ended_is_said_to_be_a_child_s() {
    let mut process = std::process::Command::new("true").spawn().unwrap();
    process.wait().unwrap();
    let said = |pid| DeviceOpenError::Locked { path: "x".into(), pid: Some(pid) }.to_string();
    assert!(said(process.id()).contains("a child that process"), "{}", said(process.id()));
    assert!(!said(1).contains("child"), "{}", said(1));
}

/// A file there would lie in memory, and be gone with the next start of the system.
#[test]
fn no_file_is_made_in_place_of_a_device() {
    use std::os::unix::fs::MetadataExt;
    let on = |path: &str| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    if on("/dev") == on("/") {
        eprintln!("SKIPPED: /dev is no file system of its own");
        return;
    }
    let missing = Path::new("/dev/damelo-test-no-such-device");
    let refusal = open(&options(missing, MIB)).map(drop).unwrap_err();
    assert!(matches!(refusal, DeviceOpenError::NoDevice { .. }), "{refusal}");
    assert!(!missing.exists());
}

#[test]
fn contents_stay_and_a_sparse_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    let file = File::create(&path).unwrap();
    file.write_all_at(&[9; BLOCK], 0).unwrap();
    file.set_len(MIB).unwrap();
    let opened = open(&options(&path, MIB)).unwrap();
    assert!(!opened.created);
    assert!(opened.warnings.iter().any(|w| w.starts_with("is sparse")), "{:?}", opened.warnings);
    let mut block = Aligned::new(BLOCK);
    opened.device.read_at(0, &mut block).unwrap();
    assert!(block.iter().all(|b| *b == 9));
    let before = file.metadata().unwrap().blocks();
    let journal = opened.device.journal(MIB / 2, MIB / 4).unwrap();
    assert!(file.metadata().unwrap().blocks() >= before + MIB / 4 / 512, "allocated");
    assert!(journal.read_all().unwrap().iter().all(|b| *b == 0));
}

#[test]
fn a_journal_survives_reopening_and_leaves_its_neighbours_alone() {
    each_engine(MIB, |device, path| {
        let mut rng = fastrand::Rng::with_seed(4);
        let (at, len) = (8 * BLOCK as u64, 16 * BLOCK as u64);
        let around = [Aligned::filled(&mut rng, BLOCK), Aligned::filled(&mut rng, BLOCK)];
        let places = [at - BLOCK as u64, at + len];
        let mut model = vec![0; len as usize];
        let journal = device.journal(at, len).unwrap();
        for n in 0..200 {
            let offset = rng.usize(0..model.len() - 100);
            let bytes: Vec<u8> = (0..rng.usize(0..100)).map(|_| rng.u8(..)).collect();
            journal.write(offset as u64, &bytes).unwrap();
            model[offset..offset + bytes.len()].copy_from_slice(&bytes);
            if n % 50 == 0 {
                journal.sync().unwrap();
                device.write_at(places[0], &around[0]).unwrap();
                device.write_at(places[1], &around[1]).unwrap();
            }
        }
        assert!(journal.read_all().unwrap() == model);
        for (offset, n) in [(len, 1), (len - 1, 2), (u64::MAX, 1)] {
            let e = journal.write(offset, &vec![0; n]).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidInput);
        }
        drop((journal, device));
        let device = open(&options(path, MIB)).unwrap().device;
        assert!(device.journal(at, len).unwrap().read_all().unwrap() == model);
        for (place, expected) in places.iter().zip(&around) {
            let mut block = Aligned::new(BLOCK);
            device.read_at(*place, &mut block).unwrap();
            assert!(block[..] == expected[..]);
        }
        for (at, len) in [(0, 0), (512, 4096), (0, 100), (MIB, 4096), (MIB - 4096, 8192)] {
            assert!(device.journal(at, len).is_err(), "{at} {len}");
        }
    });
}

#[test]
fn a_journal_without_mapping_reads_what_one_with_mapping_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    File::create(&path).unwrap().set_len(MIB).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let core = Arc::new(Core::new(file, path, 1));
    let mut journal = FileJournal::open(&core, true, MIB, 4096, 8192).unwrap();
    eprintln!("journal is mapped: {}", journal.is_mapped());
    journal.write(10, b"mapped").unwrap();
    journal.unmap();
    assert!(!journal.is_mapped());
    journal.write(20, b"plain").unwrap();
    journal.sync().unwrap();
    let all = journal.read_all().unwrap();
    assert_eq!((&all[10..16], &all[20..25], all.len()), (&b"mapped"[..], &b"plain"[..], 8192));
}

const CHILD: &str = "DAMELO_TEST_JOURNAL_CHILD";

#[test]
fn a_journal_survives_the_death_of_the_process() {
    if let Some(path) = std::env::var_os(CHILD) {
        let device = open(&options(Path::new(&path), MIB)).unwrap().device;
        let journal = device.journal(0, 65536).unwrap();
        journal.write(12345, b"acknowledged").unwrap();
        // SAFETY: sends a signal to this process, which ends it on the spot.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        unreachable!();
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("device");
    let thread = std::thread::current();
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", thread.name().unwrap()])
        .env(CHILD, &path)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    let device = open(&options(&path, MIB)).unwrap().device;
    let all = device.journal(0, 65536).unwrap().read_all().unwrap();
    assert_eq!(&all[12345..12357], b"acknowledged");
}
