//! Standard output: buffered, with failures instead of panics, so that `damelo ls | head` ends
//! quietly. One [`Out`] per command; it holds the lock on its stream while it lives.

use std::fmt;
use std::io::{self, BufWriter, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Says something on standard error; that nobody listens is no reason to fail.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Buffered standard output. Call [`Out::finish`] at the end; a drop loses nothing but errors.
pub(crate) struct Out {
    inner: BufWriter<Box<dyn Write>>,
    /// A failure is told by [`Out::finish`] only.
    is_late: bool,
    failure: Option<io::Error>,
}

impl Out {
    /// Locks standard output.
    pub(crate) fn new() -> Out {
        Out::on(io::stdout().lock())
    }

    /// Standard error instead, where standard output is for something else.
    pub(crate) fn on_stderr() -> Out {
        Out::on(io::stderr().lock())
    }

    fn on(stream: impl Write + 'static) -> Out {
        let inner = BufWriter::with_capacity(64 << 10, Box::new(stream) as Box<dyn Write>);
        Out { inner, is_late: false, failure: None }
    }

    /// For a command that has more to make than what it prints, if so: that printing fails is said
    /// at the end, and nothing more is printed until then.
    pub(crate) fn failing_late(self, is_late: bool) -> Out {
        Out { is_late, ..self }
    }

    fn done(&mut self, written: io::Result<()>) -> Result<(), Failure> {
        match written {
            Err(source) if self.is_late => {
                self.inner = BufWriter::new(Box::new(io::sink()));
                self.failure.get_or_insert(source);
                Ok(())
            }
            written => written.map_err(failed),
        }
    }

    /// Writes raw bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.inner.write_all(bytes);
        self.done(written)
    }

    /// Writes one line.
    pub(crate) fn line(&mut self, text: fmt::Arguments<'_>) -> Result<(), Failure> {
        let written = writeln!(self.inner, "{text}");
        self.done(written)
    }

    /// Writes one value as one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value)?;
        self.line(format_args!("{text}"))
    }

    /// Sends on what is buffered, for output that somebody watches grow.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.inner.flush();
        self.done(flushed)
    }

    /// Sends on what is buffered and reports what went wrong with it.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()?;
        self.failure.map_or(Ok(()), |source| Err(failed(source)))
    }
}

/// What was told, of a command that has more to say by its exit code: that a reader went away
/// (`| head`) ends the telling, and changes nothing about what was found.
pub(crate) fn heard(told: Result<(), Failure>) -> Result<(), Failure> {
    match told {
        Err(failure) if failure.is_unread() => Ok(()),
        told => told,
    }
}

/// The failure of a write to standard output.
pub(crate) fn failed(source: io::Error) -> Failure {
    Failure::io("write to standard output", source)
}

/// A count for people: `1,234,567`.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
