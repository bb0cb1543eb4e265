//! Tests of the real devices: the same suite over every engine here, what lies beside it in the
//! modules below.
//!
//! Owns: temporary files only. Engines that this machine denies (io_uring in some containers) are
//! left out with a note. Threads: each test starts its own.

#![expect(clippy::disallowed_macros, reason = "a panic for want of a reader is right here")]

mod journals;
mod opening;
mod queueing;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::file::FileDevice;
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
    OpenOptions { create_bytes: Some(bytes), seeks: Some(false), ..OpenOptions::new(path) }
}

/// Runs a test over engines, with seeks or not, direct or not.
fn each_io_engine(bytes: u64, test: impl Fn(Arc<dyn Device>, &Path)) {
    for engine in [IoEngine::Threads, IoEngine::IoUring] {
        for (seeks, direct, queue_depth) in
            [(false, true, 64), (true, true, 64), (false, false, 3), (false, true, 1)]
        {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("device");
            let how = OpenOptions {
                io_engine: engine,
                seeks: Some(seeks),
                direct,
                queue_depth,
                ..options(&path, bytes)
            };
            match open(&how) {
                Ok(opened) => {
                    assert!(opened.created);
                    let expected =
                        ["threads", "io_uring"][usize::from(engine != IoEngine::Threads)];
                    assert_eq!(opened.device.info().io_engine, expected);
                    assert_eq!(opened.device.info().seeks, seeks);
                    test(opened.device, &path);
                }
                Err(DeviceOpenError::IoEngine { source, .. }) if engine == IoEngine::IoUring => {
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
    each_io_engine(2 * MIB, |device, _| {
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
    each_io_engine(8 * MIB, |device, _| {
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
        if device.info().seeks {
            assert!(stats.depth_max <= 8, "{}", stats.depth_max);
        }
    });
}

#[test]
fn more_pieces_than_one_system_call_takes() {
    each_io_engine(8 * MIB, |device, _| {
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
    each_io_engine(MIB, |device, path| {
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
    for engine in [IoEngine::Threads, IoEngine::Auto] {
        let info = DeviceInfo {
            name: "read-only".into(),
            size_bytes: BLOCK as u64,
            block_bytes: 1,
            direct: false,
            seeks: false,
            io_engine: "",
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
