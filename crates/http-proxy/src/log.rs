//! The access log: one line per request on standard output.
//!
//! Line: `time client method target status result bytes milliseconds`. Threads: workers hand lines
//! to one writer thread through a bounded queue; when standard output is too slow, lines are
//! dropped and counted, requests never wait.

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Instant;

use http::{Method, StatusCode};

use crate::metrics::Counters;
use crate::rules::dates;

/// Lines that may wait for standard output.
const LINES_WAITING_MAX: usize = 8192;

/// Handle to the writer thread. Cheap to clone; the thread ends with the last handle.
#[derive(Debug, Clone)]
pub(crate) struct AccessLog {
    lines: SyncSender<String>,
}

impl AccessLog {
    pub(crate) fn to_stdout() -> std::io::Result<AccessLog> {
        let (lines, waiting) = sync_channel(LINES_WAITING_MAX);
        std::thread::Builder::new()
            .name("damelo-log".to_owned())
            .spawn(move || write_lines(&waiting))?;
        Ok(AccessLog { lines })
    }
}

fn write_lines(waiting: &Receiver<String>) {
    let mut out = std::io::BufWriter::new(std::io::stdout());
    while let Ok(first) = waiting.recv() {
        let mut line = Ok(first);
        // Write all that waits, then flush once.
        loop {
            match line {
                Ok(text) if out.write_all(text.as_bytes()).is_err() => return,
                Ok(_) => line = waiting.try_recv(),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        if out.flush().is_err() {
            return;
        }
    }
}

/// One request on its way; the line is written when this is dropped with the end of the body.
#[derive(Debug)]
pub(crate) struct LogRecord {
    pub(crate) log: AccessLog,
    pub(crate) counters: Arc<Counters>,
    pub(crate) start: Instant,
    pub(crate) start_unix_s: u64,
    pub(crate) client: IpAddr,
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) status: StatusCode,
    pub(crate) result: &'static str,
    pub(crate) body_bytes: u64,
}

impl Drop for LogRecord {
    fn drop(&mut self) {
        let line = format!(
            "{} {} {} {} {} {} {} {:.1}\n",
            dates::format(self.start_unix_s).replace(' ', "_"),
            self.client,
            self.method,
            self.target,
            self.status.as_u16(),
            self.result,
            self.body_bytes,
            self.start.elapsed().as_secs_f64() * 1000.0,
        );
        if self.log.lines.try_send(line).is_err() {
            self.counters.log_lines_dropped.one();
        }
    }
}
