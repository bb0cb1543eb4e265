//! Messages for the operator, on standard error.
//!
//! Threads: any, event loops and holders of locks among them, so that no message may panic, fail or
//! wait: standard error may be a full disk, a terminal that is gone, or a pipe that nobody reads. A
//! message that cannot be written at once is left out, and counted in the next one that can.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// Messages left out since one was written.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Writes a line to standard error, or leaves it out if that fails or would wait.
pub fn say(text: fmt::Arguments<'_>) {
    // The lock makes one of looking for room and using it.
    let mut stderr = io::stderr().lock();
    let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
    let line = match left_out {
        0 => format!("{text}\n"),
        n => format!("damelo: {n} messages before this one could not be written\n{text}\n"),
    };
    if write_at_once(&mut stderr, line.as_bytes()).is_err() {
        LEFT_OUT.fetch_add(left_out + 1, Ordering::Relaxed);
    }
}

fn write_at_once(to: &mut (impl Write + AsRawFd), bytes: &[u8]) -> io::Result<()> {
    // A pipe that has room has room for as much as this.
    for part in bytes.chunks(libc::PIPE_BUF) {
        if !has_room(to) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        to.write_all(part)?;
    }
    Ok(())
}

/// Whether a write would return at once, with success or not.
fn has_room(to: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd { fd: to.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid pollfd, alive for the call.
    unsafe { libc::poll(&raw mut asked, 1, 0) > 0 }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, pipe};

    use super::*;

    #[test]
    fn nothing_waits_for_a_pipe_that_nobody_reads() {
        let (mut reader, mut writer) = pipe().unwrap();
        let line = [b'x'; 3000];
        let mut written = 0;
        while write_at_once(&mut writer, &line).is_ok() {
            written += line.len();
            assert!(written < 1 << 30, "a pipe has an end");
        }
        let mut some = vec![0; written];
        reader.read_exact(&mut some).unwrap();
        write_at_once(&mut writer, &line).unwrap();
    }

    #[test]
    fn a_full_disk_and_a_reader_that_left_are_errors() {
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        assert!(write_at_once(&mut full, b"x").is_err());
        let (reader, mut writer) = pipe().unwrap();
        drop(reader);
        assert!(write_at_once(&mut writer, b"x").is_err());
    }
}
