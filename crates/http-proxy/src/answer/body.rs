//! Bodies of responses to clients: from memory, from the store, from a fill in progress, or passed
//! through from the origin.
//!
//! Invariants: a body that fits in one piece leaves the store as one `Bytes` without a copy; a
//! larger one holds one chunk at a time; a body that breaks off ends in an error, so that hyper
//! closes the connection and no client takes a part for the whole. Threads: each body lives on one
//! worker.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use crate::answer::reader::Reader;
use crate::error::BodyError;
use crate::io::body::{PolledFrame, body, data_bytes};
use crate::log::LogRecord;
use crate::metrics::{BodySource, BrokenBy};
use crate::upstream::Timed;
use crate::vault::inflight::{Chunk, InflightReader};

type NextChunk = Pin<Box<dyn Future<Output = (Reader, Result<Option<Bytes>, BodyError>)> + Send>>;

/// A piece of a streamed body.
pub(crate) enum Piece {
    Bytes(Bytes),
    /// Bytes of the stored object.
    Stored(Range<u64>),
}

/// A body assembled from pieces, mostly of the store, with one chunk in memory at a time.
pub(crate) struct Streamed {
    pieces: VecDeque<Piece>,
    /// Reads the object; present while no read is under way.
    reader: Option<Reader>,
    reading: Option<NextChunk>,
    /// Bytes left of the current piece.
    piece_left_bytes: u64,
    left_bytes: u64,
}

impl Streamed {
    /// A body of these pieces in order; `reader` supplies the stored ones.
    pub(crate) fn new(reader: Option<Reader>, pieces: Vec<Piece>) -> Streamed {
        let length = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::Stored(range) => range.end.saturating_sub(range.start),
        };
        let left_bytes = pieces.iter().map(length).sum();
        let pieces = pieces.into();
        Streamed { pieces, reader, reading: None, piece_left_bytes: 0, left_bytes }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            if let Some(reading) = &mut self.reading {
                let (reader, chunk) = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                return Poll::Ready(Some(self.took(reader, chunk)));
            }
            match self.pieces.pop_front() {
                None => return Poll::Ready(None),
                Some(Piece::Bytes(bytes)) => {
                    self.left_bytes -= bytes.len() as u64;
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Some(Piece::Stored(range)) if range.is_empty() => {}
                Some(Piece::Stored(range)) => {
                    let Some(mut reader) = self.reader.take() else {
                        return Poll::Ready(Some(Err(BodyError::Store)));
                    };
                    self.piece_left_bytes = range.end - range.start;
                    reader.seek(range);
                    self.reading = Some(next_chunk(reader));
                }
            }
        }
    }

    /// Accounts for a chunk that was read, and starts the next read if its piece continues.
    fn took(
        &mut self,
        reader: Reader,
        chunk: Result<Option<Bytes>, BodyError>,
    ) -> Result<Bytes, BodyError> {
        let mut bytes = chunk?.ok_or(BodyError::Store)?;
        if bytes.is_empty() {
            return Err(BodyError::Store);
        }
        if bytes.len() as u64 > self.piece_left_bytes {
            bytes.truncate(self.piece_left_bytes as usize);
        }
        self.piece_left_bytes -= bytes.len() as u64;
        self.left_bytes -= bytes.len() as u64;
        if self.piece_left_bytes > 0 {
            self.reading = Some(next_chunk(reader));
        } else {
            self.reader = Some(reader);
        }
        Ok(bytes)
    }
}

fn next_chunk(mut reader: Reader) -> NextChunk {
    Box::pin(async move {
        let chunk = reader.next().await;
        (reader, chunk)
    })
}

/// Chunks of a fill in progress.
pub(crate) type FillReceiver = mpsc::Receiver<Result<Chunk, BodyError>>;

/// The body of the response that started this fill.
pub(crate) struct Filling {
    chunks: FillReceiver,
    taken_bytes: u64,
    /// Where to continue once the fill no longer waits for this client.
    inflight: Option<InflightReader>,
    left_behind: bool,
    ended: bool,
}

impl Filling {
    pub(crate) fn new(chunks: FillReceiver, inflight: Option<InflightReader>) -> Filling {
        Filling { chunks, taken_bytes: 0, inflight, left_behind: false, ended: false }
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Chunk, BodyError>> {
        if self.ended {
            return Poll::Ready(Ok(Chunk::End(None)));
        }
        if !self.left_behind {
            match ready!(self.chunks.poll_recv(cx)) {
                Some(chunk) => {
                    match &chunk {
                        Ok(Chunk::Bytes(bytes)) => self.taken_bytes += bytes.len() as u64,
                        Ok(Chunk::End(_)) => self.ended = true,
                        Err(_) => {}
                    }
                    return Poll::Ready(chunk);
                }
                None => self.left_behind = true,
            }
            if let Some(inflight) = &mut self.inflight {
                inflight.skip(self.taken_bytes);
            }
        }
        match &mut self.inflight {
            Some(inflight) => inflight.poll_chunk(cx),
            // The fill ended without saying how: not a clean end.
            None => Poll::Ready(Err(BodyError::Broken)),
        }
    }
}

/// Converts a polled chunk to hyper's frame.
fn as_frame(polled: Poll<Result<Chunk, BodyError>>) -> PolledFrame {
    polled.map(|chunk| chunk.map(Chunk::into_frame).transpose())
}

enum Kind {
    Empty,
    Whole(Option<Bytes>),
    Streamed(Box<Streamed>),
    Filling(Box<Filling>),
    Inflight(Box<InflightReader>),
    Passing(Box<Timed>),
}

/// Body of a response to a client.
pub(crate) struct ProxyBody {
    kind: Kind,
    /// A frame that was read to see whether the body begins.
    ahead: Option<Box<Frame<Bytes>>>,
    /// Longest piece in which the body is given away, if that matters, and what is left of a frame.
    piece_bytes_max: Option<usize>,
    rest: Bytes,
    /// Why the body broke off, which the next poll tells: with the error hyper discards what it has
    /// not written yet, the headers even, so it has to be asked to write first.
    failed: Option<BodyError>,
    source: BodySource,
    /// Bytes that the connection accepted.
    sent_bytes: u64,
    /// The announced length: after that many bytes hyper does not poll for the end.
    length_bytes: Option<u64>,
    /// How the body ended, if it has.
    ended: Option<Result<(), BrokenBy>>,
    /// Access log record, written when the body is dropped.
    record: Option<Box<LogRecord>>,
}

impl ProxyBody {
    fn new(kind: Kind) -> ProxyBody {
        ProxyBody {
            kind,
            ahead: None,
            piece_bytes_max: None,
            rest: Bytes::new(),
            failed: None,
            source: BodySource::Own,
            sent_bytes: 0,
            length_bytes: None,
            ended: None,
            record: None,
        }
    }

    pub(crate) fn empty() -> ProxyBody {
        ProxyBody::new(Kind::Empty)
    }

    pub(crate) fn whole(bytes: Bytes) -> ProxyBody {
        ProxyBody::new(Kind::Whole((!bytes.is_empty()).then_some(bytes)))
    }

    pub(crate) fn streamed(reader: Option<Reader>, pieces: Vec<Piece>) -> ProxyBody {
        ProxyBody::new(Kind::Streamed(Box::new(Streamed::new(reader, pieces))))
    }

    pub(crate) fn filling(filling: Filling) -> ProxyBody {
        ProxyBody::new(Kind::Filling(Box::new(filling)))
    }

    pub(crate) fn inflight(reader: InflightReader) -> ProxyBody {
        ProxyBody::new(Kind::Inflight(Box::new(reader)))
    }

    /// A body passed through.
    pub(crate) fn timed(body: Timed) -> ProxyBody {
        ProxyBody::new(Kind::Passing(Box::new(body)))
    }

    /// Gives the body away in pieces of at most so many bytes.
    pub(crate) fn in_pieces(mut self, piece_bytes_max: usize) -> ProxyBody {
        self.piece_bytes_max = Some(piece_bytes_max);
        self
    }

    /// Sets the body's source, for the metrics.
    pub(crate) fn with_source(mut self, source: BodySource) -> ProxyBody {
        self.source = source;
        self
    }

    pub(crate) fn source(&self) -> BodySource {
        self.source
    }

    /// Sets the length that the headers announce.
    pub(crate) fn with_length(mut self, headers: &HeaderMap) -> ProxyBody {
        let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        self.length_bytes = length.and_then(|text| text.parse().ok());
        self
    }

    /// The party that ended the body early; the client, if the body did not end by itself.
    pub(crate) fn broken_by(&self) -> Option<BrokenBy> {
        match self.ended {
            Some(Ok(())) => None,
            Some(Err(by)) => Some(by),
            None if self.has_ended() || self.length_bytes == Some(self.sent_bytes) => None,
            None => Some(BrokenBy::Client),
        }
    }

    /// Notes that the client did not take the end of what it was given.
    pub(crate) fn not_taken(&mut self) {
        self.ended = Some(Err(BrokenBy::Client));
    }

    /// Sets the record that learns how the body ended and is written when the body is dropped.
    pub(crate) fn with_record(mut self, record: Box<LogRecord>) -> ProxyBody {
        self.record = Some(record);
        self
    }

    /// Why the body breaks off before its first byte, if it does. Looks without waiting; what there
    /// is can still be read.
    pub(crate) async fn begins_broken(&mut self) -> Option<BodyError> {
        // What is passed through was looked at before.
        if !matches!(self.kind, Kind::Streamed(_) | Kind::Filling(_) | Kind::Inflight(_)) {
            return None;
        }
        let first = poll_fn(|cx| match self.poll_kind(cx) {
            Poll::Ready(first) => Poll::Ready(Some(first)),
            Poll::Pending => Poll::Ready(None),
        });
        match first.await? {
            Some(Ok(frame)) => self.ahead = Some(Box::new(frame)),
            Some(Err(error)) => return Some(error),
            None => self.kind = Kind::Empty,
        }
        None
    }

    pub(crate) fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let frame = match (self.rest.is_empty(), self.failed.take()) {
            (false, _) => Some(Ok(self.next_piece())),
            (true, Some(error)) => Some(Err(error)),
            (true, None) => match ready!(self.poll_kind(cx)) {
                Some(Err(error)) => {
                    self.failed = Some(error);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                other => other.map(|frame| frame.map(|frame| self.cut(frame))),
            },
        };
        match &frame {
            // Nothing follows trailers: hyper does not poll for the end either.
            Some(Ok(frame)) if frame.is_trailers() => self.ended = Some(Ok(())),
            Some(Ok(frame)) => self.sent_bytes += data_bytes(frame),
            Some(Err(error)) => self.ended = Some(Err(BrokenBy::of(*error))),
            None => self.ended = Some(Ok(())),
        }
        Poll::Ready(frame)
    }

    fn poll_kind(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if let Some(frame) = self.ahead.take() {
            return Poll::Ready(Some(Ok(*frame)));
        }
        Poll::Ready(match &mut self.kind {
            Kind::Empty => None,
            Kind::Whole(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            Kind::Streamed(body) => ready!(body.poll_chunk(cx)).map(|c| c.map(Frame::data)),
            Kind::Filling(body) => ready!(as_frame(body.poll_chunk(cx))),
            Kind::Inflight(body) => ready!(as_frame(body.poll_chunk(cx))),
            Kind::Passing(body) => ready!(body.next_frame(cx)),
        })
    }

    /// The first piece of a frame; what is left of it comes next.
    fn cut(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let (Some(bytes_max), Some(bytes)) = (self.piece_bytes_max, frame.data_ref()) else {
            return frame;
        };
        let end = self.sent_bytes + bytes.len() as u64;
        let ends_more = self.sent_bytes > 0 && self.length_bytes == Some(end) && !bytes.is_empty();
        if bytes.len() <= bytes_max && !ends_more {
            return frame;
        }
        self.rest = bytes.clone();
        self.next_piece()
    }

    /// The next piece of what is left of a frame. Its last byte goes alone: hyper sends that only
    /// once the client has room for it, so a long body does not end before there is room for all.
    fn next_piece(&mut self) -> Frame<Bytes> {
        let but_last = self.rest.len().saturating_sub(1).max(1);
        let length = but_last.min(self.piece_bytes_max.unwrap_or(but_last)).min(self.rest.len());
        Frame::data(self.rest.split_to(length))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.rest.is_empty() && self.ahead.is_none() && self.kind_has_ended()
    }

    fn kind_has_ended(&self) -> bool {
        match &self.kind {
            Kind::Empty | Kind::Whole(None) => true,
            Kind::Passing(body) => body.has_ended(),
            Kind::Whole(Some(_)) | Kind::Streamed(_) | Kind::Filling(_) | Kind::Inflight(_) => {
                false
            }
        }
    }

    pub(crate) fn length(&self) -> SizeHint {
        let hint = self.kind_length();
        let ahead_bytes = self.ahead.as_deref().map_or(0, data_bytes);
        let more_bytes = self.rest.len() as u64 + ahead_bytes;
        let exact = hint.exact().map(|length| SizeHint::with_exact(length + more_bytes));
        exact.unwrap_or(hint)
    }

    fn kind_length(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty | Kind::Whole(None) => SizeHint::with_exact(0),
            Kind::Whole(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Streamed(body) => SizeHint::with_exact(body.left_bytes),
            Kind::Passing(body) => body.length(),
            Kind::Filling(_) | Kind::Inflight(_) => SizeHint::default(),
        }
    }
}

impl Drop for ProxyBody {
    fn drop(&mut self) {
        let broken_by = self.broken_by();
        if let Some(record) = &mut self.record {
            (record.body_bytes, record.broken_by) = (self.sent_bytes, broken_by);
        }
    }
}

body!(ProxyBody);

#[cfg(test)]
mod tests {
    use super::*;

    /// The frames of a body that is there at once.
    fn frames(body: &mut ProxyBody) -> Vec<Result<usize, BodyError>> {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut frames = Vec::new();
        loop {
            let frame = match body.next_frame(&mut cx) {
                Poll::Ready(Some(frame)) => frame,
                Poll::Ready(None) => break,
                // What comes before an error is written first.
                Poll::Pending if body.failed.is_some() => continue,
                Poll::Pending => break,
            };
            frames.push(frame.map(|frame| data_bytes(&frame) as usize));
            if frames.last().is_some_and(Result::is_err) {
                break;
            }
        }
        frames
    }

    #[tokio::test]
    async fn a_body_is_looked_at_without_a_loss() {
        let bytes = || Piece::Bytes(Bytes::from_static(b"head"));
        // There is nothing that it could be read from.
        let mut broken = ProxyBody::streamed(None, vec![Piece::Stored(0..9), bytes()]);
        assert_eq!(broken.begins_broken().await, Some(BodyError::Store));
        let mut late = ProxyBody::streamed(None, vec![bytes(), Piece::Stored(0..9)]);
        assert_eq!(late.begins_broken().await, None);
        assert_eq!(late.length().exact(), Some(13), "what was looked at is yet to come");
        assert_eq!(frames(&mut late), [Ok(4), Err(BodyError::Store)]);
        let mut empty = ProxyBody::streamed(None, Vec::new());
        assert_eq!(empty.begins_broken().await, None);
        assert!(empty.has_ended() && frames(&mut empty).is_empty());
    }
}
