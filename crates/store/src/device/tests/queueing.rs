//! What waits for a device: in which order it goes, how much is with the device at once, and when
//! the device has let go of it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A store's files are free once nothing of it is held; `done` may hold the last of it.
#[test]
fn a_settled_device_has_let_go_of_what_done_held() {
    each_io_engine(MIB, |device, _| {
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
    each_io_engine(MIB, |device, _| {
        let (buffer, held) = (Aligned::new(BLOCK), Arc::new(()));
        // The driver's thread goes to sleep.
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

/// Writes may wait for it.
#[test]
fn a_read_that_holds_up_others_goes_before_those_that_are_queued() {
    for engine in [IoEngine::Threads, IoEngine::IoUring] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        let how = OpenOptions { io_engine: engine, queue_depth: 1, ..options(&path, MIB) };
        let Ok(opened) = open(&how) else {
            assert!(engine == IoEngine::IoUring, "the other engine is always there");
            continue;
        };
        let device = opened.device;
        let order = Arc::new(Mutex::new(Vec::new()));
        let io = |name: u32, before: Box<dyn FnOnce() + Send>| {
            let (buffer, order) = (Aligned::new(BLOCK), Arc::clone(&order));
            let bufs = vec![buffer.buf()];
            let done = Box::new(move |result: io::Result<()>| {
                drop(buffer);
                result.unwrap();
                order.lock().unwrap().push(name);
                before();
            });
            Io { op: IoOp::Read, offset: 0, bufs, done }
        };
        let (heard, hears) = mpsc::channel();
        let (go, goes) = mpsc::channel();
        let wait = Box::new(move || {
            heard.send(()).unwrap();
            goes.recv().unwrap();
        });
        device.submit(io(0, wait));
        hears.recv().unwrap();
        for name in 10..20 {
            device.submit(io(name, Box::new(|| ())));
        }
        for name in 1..3 {
            device.submit_first(io(name, Box::new(|| ())));
        }
        go.send(()).unwrap();
        drop(device);
        let expected: Vec<u32> = (0..3).chain(10..20).collect();
        assert_eq!(*order.lock().unwrap(), expected, "{engine:?}");
    }
}

#[test]
fn dropping_the_device_completes_everything() {
    each_io_engine(MIB, |device, _| {
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
    each_io_engine(MIB, |device, path| {
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
    for engine in [IoEngine::Threads, IoEngine::Auto] {
        let path = dir.path().join(format!("{engine:?}"));
        let device =
            open(&OpenOptions { io_engine: engine, queue_depth: 1, ..options(&path, MIB) })
                .unwrap()
                .device;
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
                // The first one occupies the only driver thread until all are queued.
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

/// Submits a write whose `done` occupies the driver's thread until the sender is used or dropped.
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
    if device.info().io_engine != "io_uring" {
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
