//! Streamed reads: objects of any size, piece by piece, in bounded memory.
//!
//! Threads: a reader is used by one thread at a time.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::disk::Source;
use crate::deferred::Deferred;
use crate::engine::Engine;
use crate::error::ReadError;
use crate::object::{ObjectInfo, ObjectRange};

/// Bytes of one piece.
const PIECE_BYTES: u64 = 256 << 10;

/// Reads one object sequentially, from its start or any offset, to its end or that of a range.
pub struct Reader {
    engine: Arc<Engine>,
    source: Source,
    info: ObjectInfo,
    offset: u64,
    /// End of the range to read, at most the object's length.
    end: u64,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("info", &self.info)
            .field("offset", &self.offset)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl Reader {
    pub(crate) fn open(engine: &Arc<Engine>, key: &[u8]) -> Result<Option<Reader>, ReadError> {
        let source = engine.resolve_and_count(key)?;
        Ok(source.map(|source| Reader::of(engine, source)))
    }

    pub(crate) fn of(engine: &Arc<Engine>, source: Source) -> Reader {
        let info = match &source {
            Source::Memory(object) => ObjectInfo::of(object),
            Source::Disk(large) => large.info.clone(),
        };
        let (engine, end) = (Arc::clone(engine), info.length_bytes);
        Reader { engine, source, info, offset: 0, end }
    }

    /// Information about the object.
    pub fn info(&self) -> &ObjectInfo {
        &self.info
    }

    /// Continues at `offset` bytes into the object, to its end.
    pub fn seek(&mut self, offset: u64) {
        self.select(offset..u64::MAX);
    }

    /// Continues with these bytes of the object, and ends with them: of an object on disk no more
    /// is read than they need.
    pub fn select(&mut self, range: Range<u64>) {
        let length = self.info.length_bytes;
        (self.offset, self.end) = (range.start.min(length), range.end.min(length));
    }

    /// The next piece, or `None` at the end. Pieces are at most 256 KiB, except that an object in
    /// memory comes as one. If it is dropped before it is done, nothing is passed over: the next
    /// call gives the same piece.
    #[expect(clippy::should_implement_trait, reason = "it is awaited, an Iterator cannot be")]
    pub fn next(&mut self) -> NextChunk<'_> {
        NextChunk { reader: self, waiting: None }
    }

    /// What is in memory can be read from a closed store, too.
    fn check_open(&self) -> Result<(), ReadError> {
        let on_disk = matches!(self.source, Source::Disk(_));
        if on_disk && self.engine.is_closed() { Err(ReadError::Closed) } else { Ok(()) }
    }

    /// The piece at the current offset: at once if no I/O is needed, otherwise as deferred work.
    fn piece(&self) -> Result<Bytes, Deferred<Result<Bytes, ReadError>>> {
        match &self.source {
            Source::Memory(object) => {
                let range = self.offset..self.end;
                Ok(ObjectRange::of_object(object.clone(), &range).into())
            }
            Source::Disk(large) => {
                let end = large.piece_end(self.offset, PIECE_BYTES).min(self.end);
                Err(self.engine.piece_operation(large, self.offset..end))
            }
        }
    }

    fn advance(&mut self, piece: &Bytes) {
        self.offset += piece.len() as u64;
    }

    fn at_end(&self) -> bool {
        self.offset >= self.end
    }
}

/// The next piece of a streamed read; see [`Reader::next`].
#[must_use = "await it, or call wait()"]
pub struct NextChunk<'a> {
    reader: &'a mut Reader,
    waiting: Option<Deferred<Result<Bytes, ReadError>>>,
}

impl fmt::Debug for NextChunk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextChunk").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl NextChunk<'_> {
    /// Reads on this thread.
    ///
    /// # Errors
    /// The object was evicted or damaged meanwhile, no memory came free, or the store is closed.
    pub fn wait(self) -> Result<Option<Bytes>, ReadError> {
        if self.reader.at_end() {
            return Ok(None);
        }
        self.reader.check_open()?;
        let piece = match self.reader.piece() {
            Ok(piece) => piece,
            Err(work) => work.wait()?,
        };
        self.reader.advance(&piece);
        Ok(Some(piece))
    }
}

impl Future for NextChunk<'_> {
    type Output = Result<Option<Bytes>, ReadError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.reader.at_end() {
            return Poll::Ready(Ok(None));
        }
        this.reader.check_open()?;
        let mut work = match this.waiting.take() {
            Some(work) => work,
            None => match this.reader.piece() {
                Ok(piece) => {
                    this.reader.advance(&piece);
                    return Poll::Ready(Ok(Some(piece)));
                }
                Err(work) => work,
            },
        };
        match work.poll(cx) {
            Poll::Pending => {
                this.waiting = Some(work);
                Poll::Pending
            }
            Poll::Ready(Ok(piece)) => {
                this.reader.advance(&piece);
                Poll::Ready(Ok(Some(piece)))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        }
    }
}
