//! Bytes of a trace file: opened, decompressed as its first bytes say (gzip, zstd or neither), read
//! in large pieces. Lines and records are borrowed from the buffer. What was read before reading
//! failed is handed out first, and then the failure. One thread at a time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Of a frame that zstd skips, but for the low half of the first byte: `pzstd` begins with one.
const ZSTD_SKIPPED: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];
const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
/// Before the size of its blocks, a digit. Letters, as a trace's first name may have them: what
/// tells is that a block comes behind the digit, or the end of a file that has none.
const BZIP2_BEGIN: &[u8] = b"BZh";
const BZIP2_BLOCK: [u8; 6] = [0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
const BZIP2_END: [u8; 6] = [0x17, 0x72, 0x45, 0x38, 0x50, 0x90];
/// Bytes of a file that say how it is compressed: as many as bzip2 needs.
const MAGIC_BYTES_MAX: u64 = 10;
/// Large reads: the cost of a system call or of a call into the decompressor is spread over a
/// thousand requests, and the buffer fits the processor's second-level cache. It is what every run
/// takes, however few objects its trace has.
const BUFFER_BYTES: usize = 64 << 10;
/// Longest line. URLs of real logs stay below 64 KiB; what is longer is no log line.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 20;
/// Bytes that are looked at to tell a format.
pub(crate) const HEAD_BYTES: usize = BUFFER_BYTES;

fn is_skipped_by_zstd(magic: &[u8]) -> bool {
    magic.first().is_some_and(|byte| byte & 0xf0 == ZSTD_SKIPPED[0])
        && magic[1..].starts_with(&ZSTD_SKIPPED[1..])
}

/// The name of a compression that is not read.
fn not_read(magic: &[u8]) -> Option<&'static str> {
    let is_bzip2 = match magic.strip_prefix(BZIP2_BEGIN) {
        Some([b'1'..=b'9', next @ ..]) => {
            next.starts_with(&BZIP2_BLOCK) || next.starts_with(&BZIP2_END)
        }
        _ => false,
    };
    if is_bzip2 { Some("bzip2") } else { magic.starts_with(&XZ_MAGIC).then_some("xz") }
}

/// How far a trace is read, in bytes of its file; shared with whoever shows progress.
#[derive(Debug, Clone, Default)]
pub struct ReadPosition {
    done: Arc<AtomicU64>,
}

impl ReadPosition {
    /// Bytes of the file that were read so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

struct Counted {
    file: File,
    position: ReadPosition,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read(buffer)?;
        self.position.done.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

/// A gzip file: members one after another. Zeros behind a member are padding, as of tapes and block
/// devices, and for gzip itself.
struct GzipMembers<R> {
    /// None at the end.
    member: Option<flate2::bufread::GzDecoder<R>>,
}

impl<R: BufRead> GzipMembers<R> {
    fn new(source: R) -> GzipMembers<R> {
        GzipMembers { member: Some(flate2::bufread::GzDecoder::new(source)) }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.member else { return Ok(0) };
            let bytes = member.read(buffer)?;
            if bytes > 0 || buffer.is_empty() {
                return Ok(bytes);
            }
            let Some(ended) = self.member.take() else { return Ok(0) };
            let mut source = ended.into_inner();
            if skip_zeros(&mut source)? {
                self.member = Some(flate2::bufread::GzDecoder::new(source));
            }
        }
    }
}

/// True if something else comes behind them.
fn skip_zeros(source: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = match source.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        if zeros < bytes.len() || zeros == 0 {
            let comes_more = !bytes.is_empty();
            source.consume(zeros);
            return Ok(comes_more);
        }
        source.consume(zeros);
    }
}

/// Decompressed bytes with the buffer that lines are borrowed from.
pub(crate) struct Input {
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    eof: bool,
    /// Why nothing comes after what is in the buffer, if not because it ends.
    failure: Option<io::Error>,
}

/// What the next line is.
pub(crate) enum Line {
    /// Its bytes lie in `Input::bytes(range)`, without the line end.
    Whole(std::ops::Range<usize>),
    /// It has no end within [`LINE_BYTES_MAX`]; it has been skipped.
    TooLong,
    /// There is none.
    End,
}

impl Input {
    /// Opens a file; also says how large it is, compressed or not.
    pub(crate) fn open(path: &Path, position: ReadPosition) -> io::Result<(Input, u64)> {
        const NOT_A_FILE: &str =
            "it is not a regular file, and a trace is read more than once: save it to a file first";
        let not_a_file = || io::Error::new(io::ErrorKind::InvalidInput, NOT_A_FILE);
        if path.as_os_str() == "-" {
            return Err(not_a_file());
        }
        // Looked at first: to open a pipe would wait for its writer.
        let metadata = std::fs::metadata(path)?;
        if !metadata.is_file() {
            return Err(not_a_file());
        }
        let mut file = File::open(path)?;
        let bytes = metadata.len();
        let mut magic = Vec::new();
        file.by_ref().take(MAGIC_BYTES_MAX).read_to_end(&mut magic)?;
        file.rewind()?;
        if let Some(name) = not_read(&magic) {
            let words = format!("it is compressed by {name}, which is not read: gzip and zstd are");
            return Err(io::Error::new(io::ErrorKind::Unsupported, words));
        }
        let raw = Counted { file, position };
        let buffered = |raw| BufReader::with_capacity(BUFFER_BYTES, raw);
        let source: Box<dyn Read + Send> = if magic.starts_with(&GZIP_MAGIC) {
            Box::new(GzipMembers::new(buffered(raw)))
        } else if magic.starts_with(&ZSTD_MAGIC) || is_skipped_by_zstd(&magic) {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered(raw))?;
            // Traces are published with windows of up to 2 GiB (`zstd --long=31`).
            decoder.window_log_max(31)?;
            Box::new(decoder)
        } else {
            Box::new(raw)
        };
        Ok((Input::new(source), bytes))
    }

    pub(crate) fn new(source: Box<dyn Read + Send>) -> Input {
        Input { source, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, eof: false, failure: None }
    }

    /// The first bytes of what has not been read yet, at least [`HEAD_BYTES`] unless the trace
    /// ends.
    pub(crate) fn head(&mut self) -> io::Result<&[u8]> {
        while self.end - self.start < HEAD_BYTES && !self.eof {
            self.fill();
        }
        if self.start == self.end {
            self.failed()?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Leaves out some of the first bytes that [`Input::head`] has shown.
    pub(crate) fn skip(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start);
        self.start += bytes;
    }

    /// Bytes of a range that was handed out by the call before.
    pub(crate) fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Takes the next line, without `\n` or `\r\n`.
    pub(crate) fn line(&mut self) -> io::Result<Line> {
        let mut searched = 0;
        let mut too_long = false;
        loop {
            let unread = &self.buffer[self.start + searched..self.end];
            if let Some(at) = memchr::memchr(b'\n', unread) {
                let line = self.start..self.start + searched + at;
                self.start = line.end + 1;
                too_long |= line.len() > LINE_BYTES_MAX;
                return Ok(if too_long { Line::TooLong } else { Line::Whole(self.trimmed(line)) });
            }
            searched = self.end - self.start;
            if searched > LINE_BYTES_MAX {
                too_long = true;
                self.start = self.end;
                searched = 0;
            }
            if self.eof {
                let line = self.start..self.end;
                self.start = self.end;
                // How much of the last line is missing nobody knows.
                self.failed()?;
                too_long |= line.len() > LINE_BYTES_MAX;
                return Ok(match (too_long, line.is_empty()) {
                    (true, _) => Line::TooLong,
                    (false, true) => Line::End,
                    (false, false) => Line::Whole(self.trimmed(line)),
                });
            }
            self.fill();
        }
    }

    fn trimmed(&self, line: std::ops::Range<usize>) -> std::ops::Range<usize> {
        if self.buffer[line.clone()].ends_with(b"\r") { line.start..line.end - 1 } else { line }
    }

    /// As many whole records of `record_bytes` as are at hand, at least one unless the trace ends;
    /// the rest is shorter than a record only there.
    /// They lie in `Input::bytes(range)`.
    pub(crate) fn records(&mut self, record_bytes: usize) -> io::Result<std::ops::Range<usize>> {
        while self.end - self.start < record_bytes && !self.eof {
            self.fill();
        }
        let whole = (self.end - self.start) / record_bytes * record_bytes;
        if whole == 0 {
            self.failed()?;
        }
        let bytes = if whole == 0 { self.end - self.start } else { whole };
        let start = self.start;
        self.start += bytes;
        Ok(start..start + bytes)
    }

    /// The failure that ended the trace, once.
    fn failed(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Moves what is unread to the front and reads more behind it; a failure ends the trace.
    fn fill(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.eof = true,
                Ok(bytes) => self.end += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => (self.failure, self.eof) = (Some(error), true),
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut input = Input::new(Box::new(Cursor::new(bytes.to_vec())));
        let mut found = Vec::new();
        loop {
            match input.line().expect("memory does not fail") {
                Line::Whole(range) => {
                    found.push(String::from_utf8_lossy(input.bytes(range)).into_owned());
                }
                Line::TooLong => found.push("too long".to_owned()),
                Line::End => return found,
            }
        }
    }

    #[test]
    fn lines_end_with_newline_or_the_trace() {
        assert_eq!(lines(b"a\r\nb\n\nc"), ["a", "b", "", "c"]);
        assert_eq!(lines(b""), Vec::<String>::new());
    }

    /// `pzstd` begins with a frame that is to be skipped.
    #[test]
    fn compression_is_told_from_the_first_bytes() {
        let packed = zstd::encode_all(&b"a\nb\n"[..], 1).expect("memory does not fail");
        let skipped = [&[0x5a, 0x2a, 0x4d, 0x18, 4, 0, 0, 0][..], b"size", &packed].concat();
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("trace");
        for bytes in [&packed, &skipped] {
            std::fs::write(&path, bytes).expect("it is written");
            let (mut input, _) = Input::open(&path, ReadPosition::default()).expect("it is read");
            assert_eq!(input.head().expect("it is whole"), b"a\nb\n");
        }
        for other in [&b"BZh91AY&SY"[..], b"BZh1\x17\x72\x45\x38\x50\x90", b"\xfd7zXZ\0"] {
            std::fs::write(&path, other).expect("it is written");
            let refused = Input::open(&path, ReadPosition::default()).err().expect("not read");
            assert!(refused.to_string().contains("gzip and zstd are"), "{refused}");
        }
    }

    /// What comes behind them tells that nobody compressed anything.
    #[test]
    fn names_may_begin_as_a_compressed_file_does() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("trace");
        for text in [
            &b"BZh\n"[..],
            b"BZhou/index.html\n",
            b"BZh9\nBZh91AY\n",
            b"BZh01AY&SY\n",
            b"\xfd7zX\n",
        ] {
            std::fs::write(&path, text).expect("it is written");
            let (mut input, _) = Input::open(&path, ReadPosition::default()).expect("it is read");
            assert_eq!(input.head().expect("it is whole"), text);
        }
    }

    #[test]
    fn a_line_beyond_the_limit_is_skipped_and_the_next_one_read() {
        let mut bytes = vec![b'x'; LINE_BYTES_MAX + 10 * BUFFER_BYTES];
        bytes.extend_from_slice(b"\nnext\n");
        assert_eq!(lines(&bytes), ["too long", "next"]);
        for end in [&b""[..], b"\n"] {
            let longest = [vec![b'y'; LINE_BYTES_MAX], end.to_vec()].concat();
            assert_eq!(lines(&longest)[0].len(), LINE_BYTES_MAX);
            let longer = [vec![b'y'; LINE_BYTES_MAX + 1], end.to_vec()].concat();
            assert_eq!(lines(&longer), ["too long"]);
        }
    }

    #[test]
    fn gzip_has_members_and_zeros_behind_them() {
        let member = |text: &str| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            io::Write::write_all(&mut gzip, text.as_bytes()).expect("memory");
            gzip.finish().expect("memory")
        };
        let zeros = |count: usize| vec![0; count];
        let read = |bytes: Vec<u8>| {
            // A few bytes at a time: a member, and zeros, may end anywhere.
            let mut source = GzipMembers::new(BufReader::with_capacity(7, Cursor::new(bytes)));
            let mut text = String::new();
            source.read_to_string(&mut text).map(|_| text).map_err(|error| error.to_string())
        };
        let (a, b, none) = (member("a\n"), member("b\n"), member(""));
        for padding in [0, 1, 7, 512] {
            let padded = [a.clone(), none.clone(), b.clone(), zeros(padding)].concat();
            assert_eq!(read(padded).as_deref(), Ok("a\nb\n"), "{padding}");
            let between = [a.clone(), zeros(padding), b.clone()].concat();
            assert_eq!(read(between).as_deref(), Ok("a\nb\n"), "{padding}");
        }
        assert!(read([a.clone(), zeros(3), b"x".to_vec()].concat()).is_err());
        assert!(read([a, b[..b.len() - 1].to_vec()].concat()).is_err(), "cut off");
    }

    #[test]
    fn records_are_whole_until_the_last() {
        let mut input = Input::new(Box::new(Cursor::new(vec![7u8; 24 * 3 + 5])));
        assert_eq!(input.records(24).expect("memory").len(), 72);
        assert_eq!(input.records(24).expect("memory").len(), 5);
        assert_eq!(input.records(24).expect("memory").len(), 0);
    }
}
