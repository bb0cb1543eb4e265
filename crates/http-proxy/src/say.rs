//! Messages for the operator, on standard error.
//!
//! Threads: any, including event loops and holders of locks. So no message may panic, fail or
//! block, although standard error may be a full disk, a closed terminal, or a pipe that nobody
//! reads. A message that cannot be written at once is dropped; the next message written reports how
//! many were.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::{Mutex, PoisonError};

/// Messages dropped since the last one written. Holding this lock makes the check for room and the
/// write atomic. The lock of `io::stderr` cannot serve for this: a thread blocked on a full pipe
/// holds it.
static LEFT_OUT: Mutex<u64> = Mutex::new(0);

/// Writes a line to standard error, or drops it if the write fails or would block.
pub fn say(text: fmt::Arguments<'_>) {
    let mut left_out = LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the descriptor stays open: no code closes standard error, and `ManuallyDrop` keeps
    // this `File` from doing so.
    let mut stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDERR_FILENO) });
    let line = match *left_out {
        0 => format!("{text}\n"),
        n => format!("damelo: {n} messages before this one could not be written\n{text}\n"),
    };
    match write_at_once(&mut *stderr, line.as_bytes()) {
        Ok(()) => *left_out = 0,
        Err(_) => *left_out += 1,
    }
}

fn write_at_once(to: &mut (impl Write + AsRawFd), bytes: &[u8]) -> io::Result<()> {
    // A pipe that polls as writable has room for at least `PIPE_BUF` bytes.
    for part in bytes.chunks(libc::PIPE_BUF) {
        if !has_room(to) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        to.write_all(part)?;
    }
    Ok(())
}

/// Whether a write would return at once, successfully or not.
fn has_room(to: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd { fd: to.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid pollfd, alive for the call.
    unsafe { libc::poll(&raw mut asked, 1, 0) > 0 }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

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
    fn nobody_waits_for_who_writes_and_waits() {
        let _held = io::stderr().lock();
        let (said, heard) = mpsc::channel();
        thread::spawn(move || {
            say(format_args!("a message of a test"));
            said.send(()).unwrap();
        });
        heard.recv_timeout(Duration::from_secs(60)).expect("it waits for the lock");
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
