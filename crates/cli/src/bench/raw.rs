//! Raw random reads of a file: the device's own rate at a queue depth, printed beside the store's.
//! Uses `io_uring` where permitted, else one thread with `pread` per read in flight. Bypasses the
//! page cache where the file system supports it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use io_uring::{IoUring, opcode, types};

use crate::failure::Failure;

/// Alignment that suits every device.
const BLOCK_BYTES: u64 = 4096;

/// The measured rate, and the interface used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRate {
    /// Reads per second.
    pub(crate) per_second: f64,
    /// The interface.
    pub(crate) how: &'static str,
}

/// Measures random reads of `size` bytes (rounded up to blocks) at offsets below `span`.
pub(crate) fn random_reads(
    path: &Path,
    size: u64,
    span: u64,
    depth: u32,
    period: Duration,
) -> Result<RawRate, Failure> {
    let failed = |source| Failure::io(format!("read `{}` directly", path.display()), source);
    let (file, direct) = open(path).map_err(failed)?;
    let reads = Reads { size: size.next_multiple_of(BLOCK_BYTES), span, depth, period };
    if span < reads.size {
        return Err(Failure::Usage("the store is too small for reads of this size".to_owned()));
    }
    let (done, how) = match IoUring::new(depth.next_power_of_two()) {
        Ok(ring) => (by_ring(ring, &file, &reads), ["io_uring", "io_uring, buffered"]),
        Err(_) => (by_threads(&file, &reads), ["pread threads", "pread threads, buffered"]),
    };
    let (count, took) = done.map_err(failed)?;
    let how = how[usize::from(!direct)];
    Ok(RawRate { per_second: count as f64 / took.as_secs_f64(), how })
}

struct Reads {
    size: u64,
    span: u64,
    depth: u32,
    period: Duration,
}

impl Reads {
    fn offset(&self, rng: &mut Rng) -> u64 {
        rng.u64(..=(self.span - self.size) / BLOCK_BYTES) * BLOCK_BYTES
    }
}

fn open(path: &Path) -> io::Result<(File, bool)> {
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    match direct {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((File::open(path)?, false)),
        Err(error) => Err(error),
    }
}

/// Block-aligned buffers, one for each read in flight.
struct Buffers {
    memory: Vec<u8>,
    start: usize,
    stride: usize,
}

impl Buffers {
    fn new(count: u32, size: u64) -> Buffers {
        let stride = size as usize;
        let memory = vec![0; stride * count as usize + BLOCK_BYTES as usize];
        let start = memory.as_ptr().align_offset(BLOCK_BYTES as usize);
        Buffers { memory, start, stride }
    }

    fn slot(&mut self, slot: usize) -> &mut [u8] {
        let start = self.start + slot * self.stride;
        &mut self.memory[start..start + self.stride]
    }
}

fn by_ring(mut ring: IoUring, file: &File, reads: &Reads) -> io::Result<(u64, Duration)> {
    let mut buffers = Buffers::new(reads.depth, reads.size);
    let looped = ring_loop(&mut ring, &mut buffers, file, reads);
    if looped.is_err() {
        // Leaked: reads into this memory may still be in flight.
        std::mem::forget(buffers);
    }
    looped
}

fn ring_loop(
    ring: &mut IoUring,
    buffers: &mut Buffers,
    file: &File,
    reads: &Reads,
) -> io::Result<(u64, Duration)> {
    let mut rng = Rng::with_seed(1);
    let start = Instant::now();
    let (mut count, mut under_way) = (0, 0_u32);
    let mut free: Vec<u64> = (0..u64::from(reads.depth)).collect();
    loop {
        if start.elapsed() < reads.period {
            for slot in free.drain(..) {
                push(ring, file, buffers, slot, reads.offset(&mut rng))?;
                under_way += 1;
            }
        }
        if under_way == 0 {
            return Ok((count, start.elapsed()));
        }
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for completion in ring.completion() {
            under_way -= 1;
            count += 1;
            free.push(completion.user_data());
            if completion.result() < 0 {
                return Err(io::Error::from_raw_os_error(-completion.result()));
            }
        }
    }
}

fn push(
    ring: &mut IoUring,
    file: &File,
    buffers: &mut Buffers,
    slot: u64,
    offset: u64,
) -> io::Result<()> {
    let buffer = buffers.slot(slot as usize);
    let entry =
        opcode::Read::new(types::Fd(file.as_raw_fd()), buffer.as_mut_ptr(), buffer.len() as u32)
            .offset(offset)
            .build()
            .user_data(slot);
    // SAFETY: the slot's memory takes part in no other read until this one has completed, and
    // lives until then: on every early return `by_ring` leaks it.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)
}

fn by_threads(file: &File, reads: &Reads) -> io::Result<(u64, Duration)> {
    let count = AtomicU64::new(0);
    let start = Instant::now();
    let results: Vec<io::Result<()>> = thread::scope(|scope| {
        let handles: Vec<_> = (0..reads.depth)
            .map(|thread| {
                let count = &count;
                scope.spawn(move || {
                    let (mut rng, mut buffers) =
                        (Rng::with_seed(u64::from(thread)), Buffers::new(1, reads.size));
                    while start.elapsed() < reads.period {
                        file.read_exact_at(buffers.slot(0), reads.offset(&mut rng))?;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        let join = |handle: thread::ScopedJoinHandle<'_, io::Result<()>>| handle.join();
        handles
            .into_iter()
            .map(|handle| join(handle).unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    results.into_iter().collect::<io::Result<()>>()?;
    Ok((count.into_inner(), start.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_read() {
        // Beside the program: what lies in memory may refuse direct reads.
        let program = std::env::current_exe().unwrap();
        let mut file = tempfile::NamedTempFile::new_in(program.parent().unwrap()).unwrap();
        io::Write::write_all(&mut file, &vec![1; 1 << 20]).unwrap();
        let period = Duration::from_millis(20);
        let rate = random_reads(file.path(), 8000, 1 << 20, 4, period).unwrap();
        assert!(rate.per_second > 0.0, "{rate:?}");
        let reads = Reads { size: 8192, span: 1 << 20, depth: 2, period };
        assert!(by_threads(file.as_file(), &reads).unwrap().0 > 0);
    }
}
