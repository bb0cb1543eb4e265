//! The access log: one line per request, to standard output or a file.
//!
//! Threads: workers hand finished lines to one writer thread through a bounded queue. When the
//! disk or the reader of standard output is too slow, lines are dropped and counted; requests
//! never wait. Invariants: files are only appended to, and a reopen happens between two lines, so
//! a rotated file ends with a whole line and the reopen loses none. If a file cannot be opened
//! again, the old one stays in use.

mod format;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use http::{HeaderValue, Method, StatusCode, Version};

use crate::config::{LogFormat, LogTarget};
use crate::metrics::{BrokenBy, Counter, Counters};
use crate::say::say;

/// Capacity of the writer's queue, in messages.
const LINES_WAITING_MAX: usize = 8192;

enum Message {
    Line(String),
    Reopen,
}

/// Handle to the writer thread. Cheap to clone; the thread ends with the last handle.
#[derive(Debug, Clone)]
pub(crate) struct AccessLog {
    messages: SyncSender<Message>,
    /// Lines that reached the writer but could not be written.
    pub(crate) write_errors: Arc<Counter>,
}

impl AccessLog {
    /// Starts the writer; `None` if there is no target. The caller joins the returned thread at the
    /// end, so that the last lines are written.
    pub(crate) fn start(target: &LogTarget) -> io::Result<Option<(AccessLog, JoinHandle<()>)>> {
        let sink = match target {
            LogTarget::None => return Ok(None),
            LogTarget::Stdout => Sink::Stdout(BufWriter::new(io::stdout())),
            LogTarget::File(path) => Sink::File(BufWriter::new(open(path)?), path.clone()),
        };
        let (messages, waiting) = sync_channel(LINES_WAITING_MAX);
        let write_errors = Arc::new(Counter::default());
        let errors = write_errors.clone();
        let thread = std::thread::Builder::new()
            .name("damelo-log".to_owned())
            .spawn(move || write_lines(sink, &waiting, &errors))?;
        Ok(Some((AccessLog { messages, write_errors }, thread)))
    }

    /// Closes the file and opens its path again, after the lines that are already queued.
    pub(crate) fn reopen(&self) {
        // Waits for room in the queue, because this message must not be lost. Fails only when the
        // writer has ended.
        let _ = self.messages.send(Message::Reopen);
    }
}

/// Checks that a log can be opened. A FIFO is not opened: its reader would take the close of this
/// check for the end of the log.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    if is_fifo(path) {
        return Ok(());
    }
    open(path).map(drop)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    // Opening a FIFO blocks until it has a reader. The non-blocking open fails with ENXIO instead.
    let looked = is_fifo(path).then(|| options.clone().custom_flags(libc::O_NONBLOCK).open(path));
    match looked.transpose() {
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
            Err(io::Error::other("nobody reads this FIFO: start its reader first"))
        }
        Err(error) => Err(error),
        Ok(_reader_is_there) => options.open(path),
    }
}

fn is_fifo(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo())
}

enum Sink {
    Stdout(BufWriter<io::Stdout>),
    File(BufWriter<File>, PathBuf),
}

impl Sink {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Sink::Stdout(out) => out,
            Sink::File(out, _) => out,
        }
    }

    fn reopen(&mut self) {
        let Sink::File(out, path) = self else { return };
        match open(path) {
            // The old writer was flushed, so dropping it loses nothing.
            Ok(file) => *out = BufWriter::new(file),
            Err(error) => {
                say(format_args!(
                    "damelo: cannot open the access log {} again: {error}",
                    path.display()
                ));
            }
        }
    }
}

fn write_lines(mut sink: Sink, waiting: &Receiver<Message>, errors: &Counter) {
    while let Ok(first) = waiting.recv() {
        let mut next = Ok(first);
        let mut unflushed = 0;
        let mut reopen = false;
        // All queued lines are written before one flush.
        loop {
            match next {
                Ok(Message::Line(text)) => {
                    if sink.writer().write_all(text.as_bytes()).is_err() {
                        errors.one();
                    } else {
                        unflushed += 1;
                    }
                    next = waiting.try_recv();
                }
                Ok(Message::Reopen) => {
                    reopen = true;
                    break;
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        if sink.writer().flush().is_err() {
            errors.add(unflushed);
        }
        if reopen {
            sink.reopen();
        }
    }
}

/// The record of one request. Dropping it queues its line: at the end of the response body, or of
/// the tunnel that the connection becomes.
#[derive(Debug)]
pub(crate) struct LogRecord {
    pub(crate) log: AccessLog,
    pub(crate) format: LogFormat,
    pub(crate) counters: Arc<Counters>,
    pub(crate) start: Instant,
    pub(crate) start_unix_ms: u64,
    pub(crate) client: IpAddr,
    /// The user as whom the client authenticated to a forward proxy.
    pub(crate) user: Option<String>,
    pub(crate) method: Method,
    pub(crate) version: Version,
    /// `http` or `https`, of the client's request.
    pub(crate) scheme: &'static str,
    /// Host and port of the client's request, from `Host` or `:authority`.
    pub(crate) host: Option<String>,
    /// Path and query; for a forward proxy, the URL as the client sent it.
    pub(crate) target: String,
    pub(crate) referer: Option<HeaderValue>,
    pub(crate) user_agent: Option<HeaderValue>,
    /// `None`: the client left before there was a response.
    pub(crate) status: Option<StatusCode>,
    pub(crate) media_type: Option<HeaderValue>,
    /// Host and port of the origin.
    pub(crate) origin: String,
    pub(crate) result: &'static str,
    pub(crate) body_bytes: u64,
    /// The cause that cut the response short.
    pub(crate) broken_by: Option<BrokenBy>,
}

impl LogRecord {
    /// The status to log; without a response 499, which nginx logs when the client closed.
    fn status_code(&self) -> u16 {
        self.status.map_or(499, |status| status.as_u16())
    }
}

impl Drop for LogRecord {
    fn drop(&mut self) {
        self.broken_by = self.broken_by.map(|by| self.counters.blamed(by));
        let mut line = format::line(self, self.start.elapsed());
        line.push('\n');
        if self.log.messages.try_send(Message::Line(line)).is_err() {
            self.counters.log_lines_dropped.one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotated_file_gets_no_more_lines_and_the_new_one_all_after() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let (log, thread) = AccessLog::start(&LogTarget::File(path.clone())).unwrap().unwrap();
        let line = |text: &str| log.messages.send(Message::Line(format!("{text}\n"))).unwrap();
        line("one");
        line("two");
        let rotated = directory.path().join("access.log.1");
        while std::fs::read_to_string(&path).unwrap() != "one\ntwo\n" {
            std::thread::yield_now();
        }
        std::fs::rename(&path, &rotated).unwrap();
        line("three");
        log.reopen();
        line("four");
        drop(log);
        thread.join().unwrap();
        assert_eq!(std::fs::read_to_string(&rotated).unwrap(), "one\ntwo\nthree\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "four\n");
    }

    #[test]
    fn a_full_disk_is_counted_and_does_not_end_the_writer() {
        let path = Path::new("/dev/full");
        if !path.exists() {
            return;
        }
        let (log, thread) = AccessLog::start(&LogTarget::File(path.into())).unwrap().unwrap();
        let errors = log.write_errors.clone();
        log.messages.send(Message::Line("lost\n".to_owned())).unwrap();
        drop(log);
        thread.join().unwrap();
        assert_eq!(errors.get(), 1);
    }
}
