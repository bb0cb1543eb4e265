//! The access log: one line per request, to standard output or a file.
//!
//! Threads: workers hand finished lines to one writer thread through a bounded queue, which it
//! empties at most once in [`GATHERING`]: it is not woken for every line. When the disk or the
//! reader of standard output is too slow, lines are dropped and counted; neither requests nor
//! signals ever wait, and the end of the proxy waits at most [`LAST_LINES_MAX`]. Invariants: files
//! are only appended to, and a reopen happens between two lines, so a rotated file ends with a
//! whole line and the reopen loses none. If a file cannot be opened again, the old one stays in
//! use.

mod format;
mod notes;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{HeaderValue, Method, StatusCode, Version};

use crate::config::{LogFormat, LogTarget};
use crate::io::locks::lock;
use crate::metrics::{BrokenBy, Counter, Counters};
use crate::say::say;

pub(crate) use notes::Notes;

/// Capacity of the writer's queue, in messages: some seconds' worth, as long as a disk may be busy
/// with something else.
const LINES_WAITING_MAX: usize = 64 << 10;
/// The same in bytes of lines: what a client writes into a request is in them.
const BYTES_WAITING_MAX: usize = 16 << 20;
/// How long the writer lets lines gather after it has written some. To wake it costs the worker and
/// the writer more than a hit in memory does; a line that finds it idle is written at once.
const GATHERING: Duration = Duration::from_millis(10);
/// Bytes of lines that are written at once.
const WRITE_BYTES_MAX: usize = 64 << 10;
/// How long the end waits for the last lines to be written: a pipe may have a reader that reads
/// nothing, and the store has yet to be closed.
const LAST_LINES_MAX: Duration = Duration::from_secs(5);

enum Message {
    Line(String),
    Reopen,
    /// Of several the one with the highest number counts.
    To(u64, Sink),
    End,
}

/// What the queue cannot tell: how much is in it, and messages that found no place there.
#[derive(Debug, Default)]
struct Beside {
    bytes_waiting: AtomicUsize,
    reopen: AtomicBool,
    /// Moves to another target so far: one in the queue may be older than the one here.
    moves: AtomicU64,
    /// Where lines go from now on.
    to: Mutex<Option<(u64, Sink)>>,
    end: AtomicBool,
}

/// Handle to the writer thread. Cheap to clone; the thread ends with the last handle, or when it is
/// told to.
#[derive(Debug, Clone)]
pub(crate) struct AccessLog {
    messages: SyncSender<Message>,
    beside: Arc<Beside>,
    /// Lines that reached the writer but could not be written.
    pub(crate) write_errors: Arc<Counter>,
}

/// Tells when the writer thread has written the last line.
pub(crate) struct LogEnd(Receiver<Never>);

/// Nothing is sent: the channel closes when the writer ends.
enum Never {}

impl LogEnd {
    /// Waits until the last line is written, but no longer than [`LAST_LINES_MAX`].
    pub(crate) fn wait(self) {
        if let Err(RecvTimeoutError::Timeout) = self.0.recv_timeout(LAST_LINES_MAX) {
            say(format_args!(
                "damelo: the access log takes nothing: its last lines are lost after {} s",
                LAST_LINES_MAX.as_secs()
            ));
        }
    }
}

impl AccessLog {
    /// Starts the writer, also if there is no target yet: a reload may bring one. The caller waits
    /// for the returned end once it has told the log to end, or dropped its handles, so that the
    /// last lines are written.
    pub(crate) fn start(target: &LogTarget) -> io::Result<(AccessLog, LogEnd)> {
        let sink = Sink::open(target)?;
        let (messages, waiting) = sync_channel(LINES_WAITING_MAX);
        let (ends, end) = sync_channel(0);
        let log = AccessLog { messages, beside: Arc::default(), write_errors: Arc::default() };
        let (beside, errors) = (log.beside.clone(), log.write_errors.clone());
        std::thread::Builder::new().name("damelo-log".to_owned()).spawn(move || {
            let _ends: SyncSender<Never> = ends;
            let gather = || std::thread::sleep(GATHERING);
            write_lines(sink, &waiting, &beside, &errors, gather);
        })?;
        Ok((log, LogEnd(end)))
    }

    /// Queues a line; false if there is no room for it.
    fn queue(&self, line: String) -> bool {
        let (waiting, bytes) = (&self.beside.bytes_waiting, line.len());
        // Counted before it is sent, and so before the writer takes it off again.
        let fits = waiting.fetch_add(bytes, Ordering::Relaxed) + bytes <= BYTES_WAITING_MAX;
        let queued = fits && self.messages.try_send(Message::Line(line)).is_ok();
        if !queued {
            waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        queued
    }

    /// Closes the file and opens its path again, after the lines that are already queued. If the
    /// queue is full, after the line that is being written: who calls this must not wait, since the
    /// next signal may be the one that ends the proxy.
    pub(crate) fn reopen(&self) {
        if let Err(TrySendError::Full(_)) = self.messages.try_send(Message::Reopen) {
            self.beside.reopen.store(true, Ordering::Relaxed);
        }
    }

    /// Writes to another target, after the lines that are already queued, or as [`Self::reopen`].
    pub(crate) fn write_to(&self, sink: Sink) {
        let number = self.beside.moves.fetch_add(1, Ordering::Relaxed) + 1;
        if let Err(TrySendError::Full(Message::To(_, sink))) =
            self.messages.try_send(Message::To(number, sink))
        {
            *lock(&self.beside.to) = Some((number, sink));
        }
    }

    /// Ends the writer after the lines that are queued, whoever holds handles: later lines are
    /// dropped, and counted.
    pub(crate) fn end(&self) {
        if let Err(TrySendError::Full(_)) = self.messages.try_send(Message::End) {
            self.beside.end.store(true, Ordering::Relaxed);
        }
    }
}

/// Checks that a log can be opened. A FIFO is returned, to be closed once the log has opened it,
/// too: its reader would take the close of this check for the end of the log.
pub(crate) fn check(path: &Path) -> io::Result<Option<File>> {
    let opened = open(path)?;
    Ok(is_fifo(path).then_some(opened))
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

/// Where lines go, opened.
#[derive(Debug)]
pub(crate) enum Sink {
    None(io::Sink),
    Stdout(BufWriter<io::Stdout>),
    File(BufWriter<File>, PathBuf),
}

impl Sink {
    pub(crate) fn open(target: &LogTarget) -> io::Result<Sink> {
        Ok(match target {
            LogTarget::None => Sink::None(io::sink()),
            LogTarget::Stdout => Sink::Stdout(buffered(io::stdout())),
            LogTarget::File(path) => Sink::File(buffered(open(path)?), path.clone()),
        })
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            // Lines of requests that began before the log was switched off.
            Sink::None(nothing) => nothing,
            Sink::Stdout(out) => out,
            Sink::File(out, _) => out,
        }
    }

    fn reopen(&mut self) {
        let Sink::File(out, path) = self else { return };
        match open(path) {
            // The old writer was flushed, so dropping it loses nothing.
            Ok(file) => *out = buffered(file),
            Err(error) => {
                say(format_args!(
                    "damelo: cannot open the access log {} again: {error}",
                    path.display()
                ));
            }
        }
    }
}

fn buffered<W: Write>(to: W) -> BufWriter<W> {
    BufWriter::with_capacity(WRITE_BYTES_MAX, to)
}

/// Writes lines until it is told to end, or every handle is dropped; `gather` waits for more of
/// them after each batch.
fn write_lines(
    mut sink: Sink,
    waiting: &Receiver<Message>,
    beside: &Beside,
    errors: &Counter,
    mut gather: impl FnMut(),
) {
    let mut moved = 0;
    while let Ok(first) = waiting.recv() {
        match write_batch(&mut sink, first, waiting, beside, errors) {
            After::More => {}
            After::Reopen => sink.reopen(),
            After::To(number, new) if number > moved => (moved, sink) = (number, new),
            After::To(..) => {}
            After::End => return,
        }
        gather();
    }
}

/// What is to be done after some lines.
enum After {
    More,
    Reopen,
    To(u64, Sink),
    End,
}

/// Writes all queued lines before one flush.
fn write_batch(
    sink: &mut Sink,
    first: Message,
    waiting: &Receiver<Message>,
    beside: &Beside,
    errors: &Counter,
) -> After {
    let (mut next, mut unflushed) = (Ok(first), 0);
    let after = loop {
        match next {
            Ok(Message::Line(text)) => {
                match sink.writer().write_all(text.as_bytes()) {
                    Ok(()) => unflushed += 1,
                    Err(_) => errors.one(),
                }
                beside.bytes_waiting.fetch_sub(text.len(), Ordering::Relaxed);
            }
            Ok(Message::Reopen) => break After::Reopen,
            Ok(Message::To(number, new)) => break After::To(number, new),
            Ok(Message::End) => break After::End,
            Err(_) if beside.end.load(Ordering::Relaxed) => break After::End,
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => break After::More,
        }
        if beside.reopen.swap(false, Ordering::Relaxed) {
            break After::Reopen;
        }
        if let Some((number, new)) = lock(&beside.to).take() {
            break After::To(number, new);
        }
        next = waiting.try_recv();
    };
    if sink.writer().flush().is_err() {
        errors.add(unflushed);
    }
    after
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
    /// `None`: a proxy that is believed names nobody who is known.
    pub(crate) client: Option<IpAddr>,
    /// The user as whom the client authenticated to a forward proxy.
    pub(crate) user: Option<String>,
    pub(crate) method: Method,
    pub(crate) version: Version,
    /// `http` or `https`, of the client's request.
    pub(crate) scheme: &'static str,
    /// A forward proxy was asked, which has no origin of its own.
    pub(crate) is_forward: bool,
    /// Host and port of the client's request, from `Host` or `:authority`.
    pub(crate) host: Option<String>,
    /// Path and query; for a forward proxy, the URL as the client sent it.
    pub(crate) target: String,
    pub(crate) referer: Option<HeaderValue>,
    pub(crate) user_agent: Option<HeaderValue>,
    /// `None`: the client left before there was a response.
    pub(crate) status: Option<StatusCode>,
    pub(crate) media_type: Option<HeaderValue>,
    /// Host and port of the site's first origin, for what was got without asking one; for a forward
    /// proxy the host alone, as Squid has it.
    pub(crate) origin: String,
    /// What was learned of it on its way.
    pub(crate) notes: Arc<Notes>,
    /// Time until the answer's headers were there.
    pub(crate) first_byte: Option<Duration>,
    /// As in `Cache-Status`.
    pub(crate) detail: Option<&'static str>,
    /// Of the client's connection, if it uses TLS.
    pub(crate) tls_version: Option<&'static str>,
    pub(crate) result: &'static str,
    pub(crate) body_bytes: u64,
    /// The cause that cut the response short.
    pub(crate) broken_by: Option<BrokenBy>,
    /// If rules made or took one.
    pub(crate) request_id: Option<Box<str>>,
}

impl LogRecord {
    /// The status to log. Without a response nginx's numbers: 499 when the client closed, 444 when
    /// the proxy did.
    fn status_code(&self) -> u16 {
        match (self.status, self.broken_by) {
            (Some(status), _) => status.as_u16(),
            (None, Some(BrokenBy::Timeout)) => 444,
            (None, _) => 499,
        }
    }
}

impl Drop for LogRecord {
    fn drop(&mut self) {
        if self.notes.is_left_out() {
            return;
        }
        self.broken_by = self.broken_by.map(|by| self.counters.blamed(by));
        let mut line = format::line(self, self.start.elapsed());
        line.push('\n');
        if !self.log.queue(line) {
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
        let (log, end) = AccessLog::start(&LogTarget::File(path.clone())).unwrap();
        let line = |text: &str| assert!(log.queue(format!("{text}\n")));
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
        end.wait();
        assert_eq!(std::fs::read_to_string(&rotated).unwrap(), "one\ntwo\nthree\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "four\n");
    }

    #[test]
    fn a_log_that_moves_loses_no_line() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["one", "two"].map(|name| directory.path().join(name));
        let (log, end) = AccessLog::start(&LogTarget::None).unwrap();
        let line = |text: &str| assert!(log.queue(format!("{text}\n")));
        line("of nothing");
        for path in &paths {
            log.write_to(Sink::open(&LogTarget::File(path.clone())).unwrap());
            line("first");
            line("second");
        }
        log.write_to(Sink::open(&LogTarget::None).unwrap());
        line("of nothing");
        log.end();
        end.wait();
        for path in paths {
            assert_eq!(std::fs::read_to_string(path).unwrap(), "first\nsecond\n");
        }
        let nowhere = LogTarget::File(directory.path().join("no/directory"));
        assert!(Sink::open(&nowhere).is_err());
    }

    /// The queue is full, and nobody takes what waits.
    #[test]
    fn a_log_moves_though_its_queue_is_full() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["one", "two"].map(|name| directory.path().join(name));
        let sink = |path: &PathBuf| Sink::open(&LogTarget::File(path.clone())).unwrap();
        let (messages, waiting) = sync_channel(2);
        let log = AccessLog { messages, beside: Arc::default(), write_errors: Arc::default() };
        assert!(log.queue("a\n".to_owned()) && log.queue("b\n".to_owned()));
        assert!(!log.queue("no room\n".to_owned()));
        log.write_to(sink(&paths[1]));
        let (beside, errors) = (log.beside.clone(), Counter::default());
        drop(log);
        write_lines(sink(&paths[0]), &waiting, &beside, &errors, || {});
        assert_eq!(std::fs::read_to_string(&paths[0]).unwrap(), "a\n");
        assert_eq!(std::fs::read_to_string(&paths[1]).unwrap(), "b\n");
    }

    /// The first move has the last place of the queue, the second none.
    #[test]
    fn of_two_moves_the_later_counts() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["none", "one", "two"].map(|name| directory.path().join(name));
        let sink = |path: &PathBuf| Sink::open(&LogTarget::File(path.clone())).unwrap();
        let (messages, waiting) = sync_channel(2);
        let log = AccessLog { messages, beside: Arc::default(), write_errors: Arc::default() };
        assert!(log.queue("a\n".to_owned()));
        log.write_to(sink(&paths[1]));
        log.write_to(sink(&paths[2]));
        let (beside, errors) = (log.beside.clone(), Counter::default());
        let (mut log, mut batches) = (Some(log), 0);
        write_lines(sink(&paths[0]), &waiting, &beside, &errors, || {
            batches += 1;
            if let Some(log) = log.take_if(|_| batches == 2) {
                assert!(log.queue("b\n".to_owned()));
            }
        });
        let text = paths.map(|path| std::fs::read_to_string(path).unwrap());
        assert_eq!(text, ["a\n", "", "b\n"]);
    }

    #[test]
    fn lines_that_gather_are_written_together() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let sink = Sink::File(buffered(open(&path).unwrap()), path.clone());
        let (messages, waiting) = sync_channel(LINES_WAITING_MAX);
        let beside = Beside::default();
        let line = |text: &str| {
            beside.bytes_waiting.fetch_add(text.len() + 1, Ordering::Relaxed);
            Message::Line(format!("{text}\n"))
        };
        messages.send(line("one")).unwrap();
        let (mut messages, mut seen) = (Some(messages), Vec::new());
        write_lines(sink, &waiting, &beside, &Counter::default(), || {
            seen.push(std::fs::read_to_string(&path).unwrap());
            let Some(messages) = messages.take_if(|_| seen.len() > 1) else {
                for text in ["two", "three"] {
                    messages.as_ref().unwrap().send(line(text)).unwrap();
                }
                return;
            };
            drop(messages);
        });
        assert_eq!(seen, ["one\n", "one\ntwo\nthree\n"]);
        assert_eq!(beside.bytes_waiting.load(Ordering::Relaxed), 0);
    }

    /// As of a writer that is stuck: nobody takes what waits.
    #[test]
    fn lines_wait_in_so_many_bytes_however_few_they_are() {
        let (messages, waiting) = sync_channel(LINES_WAITING_MAX);
        let log = AccessLog { messages, beside: Arc::default(), write_errors: Arc::default() };
        let line = || "x".repeat(256 << 10);
        let queued = (0..LINES_WAITING_MAX).take_while(|_| log.queue(line())).count();
        assert_eq!(queued, BYTES_WAITING_MAX / line().len());
        assert!(!log.queue("x".to_owned()), "not one byte more");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let mut sink = Sink::File(buffered(open(&path).unwrap()), path);
        let (first, errors) = (waiting.recv().unwrap(), Counter::default());
        write_batch(&mut sink, first, &waiting, &log.beside, &errors);
        assert!(log.queue(line()), "there is room once they are written");
    }

    #[test]
    fn what_was_logged_before_the_end_is_written_while_somebody_holds_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let (log, end) = AccessLog::start(&LogTarget::File(path.clone())).unwrap();
        for number in 0..5 {
            assert!(log.queue(format!("{number}\n")));
        }
        log.end();
        end.wait();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n1\n2\n3\n4\n");
    }

    /// The reader of a FIFO reads nothing, until the queue is full and stays so.
    #[test]
    fn a_reopen_does_not_wait_for_a_writer_that_is_stuck() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the name is a string that ends in a zero and lives through the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        // Opened for both, it waits for no writer; nor does a read, if the last bytes are taken.
        let mut both = OpenOptions::new();
        both.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let mut reader = both.open(&path).unwrap();
        let (log, end) = AccessLog::start(&LogTarget::File(path.clone())).unwrap();
        let mut moved = Instant::now();
        while moved.elapsed() < Duration::from_millis(200) {
            match log.queue("x".repeat(64)) {
                true => moved = Instant::now(),
                false => std::thread::yield_now(),
            }
        }
        std::fs::rename(&path, directory.path().join("log.1")).unwrap();
        log.reopen();
        while !path.exists() {
            match io::Read::read(&mut reader, &mut [0; 4096]) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => panic!("{error}"),
                _ => std::thread::yield_now(),
            }
        }
        drop(log);
        end.wait();
        assert!(std::fs::metadata(&path).unwrap().len() > 0, "the rest of the lines");
    }

    #[test]
    fn a_full_disk_is_counted_and_does_not_end_the_writer() {
        let path = Path::new("/dev/full");
        if !path.exists() {
            return;
        }
        let (log, end) = AccessLog::start(&LogTarget::File(path.into())).unwrap();
        let errors = log.write_errors.clone();
        assert!(log.queue("lost\n".to_owned()));
        drop(log);
        end.wait();
        assert_eq!(errors.get(), 1);
    }
}
