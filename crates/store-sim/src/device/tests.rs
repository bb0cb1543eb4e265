//! Tests of the simulated device alone: what the harness relies on must itself be right.

use std::sync::atomic::{AtomicUsize, Ordering};

use damelo::device::IoBuf;

use super::*;
use crate::fault::{Effect, Rule, When};

fn device(completion: Completion, faults: FaultPlan) -> SimDevice {
    let options = SimOptions { completion, faults, ..SimOptions::new(7) };
    SimDevice::open("t", &SimDisk::blank(1 << 16), options, Arc::new(Ticks::default()))
}

/// A buffer on a 512-byte boundary.
#[repr(align(4096))]
struct Aligned([u8; 4096]);

fn write_io(
    buf: &mut Aligned,
    offset: u64,
    done: impl FnOnce(io::Result<()>) + Send + 'static,
) -> Io {
    // SAFETY: every caller keeps `buf` alive and untouched until `done` has run.
    let piece = unsafe { IoBuf::new(buf.0.as_mut_ptr(), buf.0.len()) };
    Io { op: IoOp::Write, offset, bufs: vec![piece], done: Box::new(done) }
}

#[test]
fn bytes_written_are_read_back_and_counted() {
    let device = device(Completion::Inline, FaultPlan::none());
    device.write_at(4096, &Aligned([5; 4096]).0).unwrap();
    let mut back = Aligned([0; 4096]);
    device.read_at(4096, &mut back.0).unwrap();
    assert!(back.0.iter().all(|&b| b == 5));
    let stats = device.stats();
    assert_eq!((stats.reads, stats.writes, stats.write_bytes), (1, 1, 4096));
    assert!(stats.device_ns > 0 && device.violations().is_empty());
}

#[test]
fn misuse_is_refused_and_noted() {
    let device = device(Completion::Inline, FaultPlan::none());
    let mut buf = Aligned([0; 4096]);
    assert!(device.read_at(100, &mut buf.0).is_err());
    assert!(device.read_at(0, &mut buf.0[1..513]).is_err());
    assert!(device.write_at(1 << 16, &buf.0).is_err());
    assert_eq!(device.violations().len(), 3);
}

#[test]
fn queued_writes_complete_once_each_and_in_another_order() {
    let device = device(Completion::Manual, FaultPlan::none());
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut bufs: Vec<Box<Aligned>> = (0..12).map(|i| Box::new(Aligned([i; 4096]))).collect();
    for (i, buf) in bufs.iter_mut().enumerate() {
        let order = Arc::clone(&order);
        device.submit(write_io(buf, i as u64 * 4096, move |r| {
            r.unwrap();
            order.lock().unwrap().push(i);
        }));
    }
    assert_eq!(device.pump(100), 12);
    let order = order.lock().unwrap().clone();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..12).collect::<Vec<_>>());
    assert_ne!(order, sorted);
    assert!(device.violations().is_empty());
}

#[test]
fn a_buffer_that_changes_in_flight_and_overlapping_writes_are_noted() {
    let device = device(Completion::Manual, FaultPlan::none());
    let mut first = Box::new(Aligned([1; 4096]));
    let mut second = Box::new(Aligned([2; 4096]));
    device.submit(write_io(&mut first, 0, |_| ()));
    device.submit(write_io(&mut second, 0, |_| ()));
    first.0[17] = 9;
    device.pump(2);
    let text = device.violations().join("; ");
    assert!(text.contains("overlap") && text.contains("changed in flight"), "{text}");
}

#[test]
fn the_pump_thread_and_drop_complete_everything() {
    let count = Arc::new(AtomicUsize::new(0));
    let mut bufs: Vec<Box<Aligned>> = (0..8).map(|i| Box::new(Aligned([i; 4096]))).collect();
    {
        let device = device(Completion::Queued, FaultPlan::none());
        for (i, buf) in bufs.iter_mut().enumerate() {
            let count = Arc::clone(&count);
            device.submit(write_io(buf, i as u64 * 4096, move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            }));
        }
    }
    assert_eq!(count.load(Ordering::SeqCst), 8);
}

#[test]
fn faults_give_their_errors_and_vanishing_is_for_good() {
    let plan = FaultPlan::new(vec![
        Rule::new(&[OpKind::Read], When::Only(0), Effect::Eio),
        Rule::new(&[OpKind::Read], When::Only(1), Effect::Short),
        Rule::new(&[OpKind::Write], When::Only(0), Effect::Enospc),
        Rule::new(&[OpKind::Sync], When::Only(1), Effect::Vanish),
    ]);
    let device = device(Completion::Inline, plan);
    let mut buf = Aligned([0; 4096]);
    let code = |r: io::Result<()>| r.unwrap_err().raw_os_error();
    assert_eq!(code(device.read_at(0, &mut buf.0)), Some(libc::EIO));
    let short = device.read_at(0, &mut buf.0).unwrap_err();
    assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(code(device.write_at(0, &buf.0)), Some(libc::ENOSPC));
    device.sync().unwrap();
    assert_eq!(code(device.sync()), Some(libc::ENXIO));
    assert_eq!(code(device.read_at(0, &mut buf.0)), Some(libc::ENXIO));
    assert_eq!(device.faults_fired(), 4);
}

#[test]
fn the_journal_survives_a_kill_and_after_sync_a_loss_of_power() {
    let device = device(Completion::Inline, FaultPlan::none());
    let area = device.journal(8192, 4096).unwrap();
    area.write(10, b"first").unwrap();
    area.sync().unwrap();
    area.write(1000, b"second").unwrap();
    let now = device.shared.ticks.now();
    for seed in 0..50 {
        let kill = device.crash_at(now, CrashKind::Kill, seed);
        assert_eq!(&kill.bytes()[8202..8207], b"first");
        assert_eq!(&kill.bytes()[9192..9198], b"second");
        let power = device.crash_at(now, CrashKind::Power, seed);
        assert_eq!(&power.bytes()[8202..8207], b"first");
    }
    assert_eq!(&area.read_all().unwrap()[1000..1006], b"second");
    assert!(area.write(4090, b"too long").is_err());
}

#[test]
fn without_history_the_present_still_crashes_right() {
    let options = SimOptions { history: false, ..SimOptions::new(1) };
    let ticks = Arc::new(Ticks::default());
    let device = SimDevice::open("t", &SimDisk::blank(1 << 16), options, Arc::clone(&ticks));
    device.write_at(0, &Aligned([1; 4096]).0).unwrap();
    device.sync().unwrap();
    device.write_at(4096, &Aligned([2; 4096]).0).unwrap();
    for seed in 0..50 {
        let image = device.crash_at(ticks.now(), CrashKind::Power, seed);
        assert!(image.bytes()[..4096].iter().all(|&b| b == 1));
        assert!(image.bytes()[4096..8192].iter().all(|&b| b == 2 || b == 0));
    }
}
