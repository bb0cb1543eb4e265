//! Bodies on their way through: to clients from the store or the origin, to the origin from clients.
//!
//! Invariants: a body that fits in one piece leaves the store as one `Bytes` without copy; a larger
//! one holds one chunk at a time; a body that breaks off ends in an error, so that hyper closes the
//! connection and no client takes a part for the whole. Threads: each body lives on one worker.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use crate::along::AlongReader;
use crate::error::BodyError;
use crate::io::body::{PolledFrame, body};
use crate::io::deadline::poll_deadline;
use crate::io::idle::IdleTimer;
use crate::log::LogRecord;
use crate::reader::Reader;
use crate::rules::trailers;
use crate::upstream::FetchedBody;

/// A body that comes in, from either side.
#[derive(Debug)]
pub(crate) enum Source {
    Client(Incoming),
    Origin(FetchedBody),
}

impl From<Incoming> for Source {
    fn from(body: Incoming) -> Source {
        Source::Client(body)
    }
}

impl From<FetchedBody> for Source {
    fn from(body: FetchedBody) -> Source {
        Source::Origin(body)
    }
}

/// The next frame of a body that hyper reads; of trailers what may be passed on.
pub(crate) fn poll_incoming(body: &mut Incoming, cx: &mut Context<'_>) -> PolledFrame {
    let mut frame = ready!(Pin::new(body).poll_frame(cx));
    if let Some(Ok(frame)) = &mut frame
        && let Some(fields) = frame.trailers_mut()
    {
        trailers::sift(fields);
    }
    Poll::Ready(frame.map(|frame| frame.map_err(|_| BodyError::Broken)))
}

fn data_bytes(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, |data| data.len() as u64)
}

impl Source {
    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        match self {
            Source::Client(body) => poll_incoming(body, cx),
            Source::Origin(body) => body.next_frame(cx),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Source::Client(body) => body.is_end_stream(),
            Source::Origin(body) => body.has_ended(),
        }
    }

    fn length(&self) -> SizeHint {
        match self {
            Source::Client(body) => body.size_hint(),
            Source::Origin(body) => body.length(),
        }
    }
}

/// A body that fails when its sender is silent for too long.
#[derive(Debug)]
pub(crate) struct Timed {
    body: Source,
    limit: Duration,
    /// Since when the sender is waited for; `None` while it is not.
    waiting_since: Option<Instant>,
    silence: Option<Pin<Box<Sleep>>>,
    /// Taken from `body`, but not yet read here.
    ahead: Option<Result<Frame<Bytes>, BodyError>>,
}

impl Timed {
    pub(crate) fn new(body: impl Into<Source>, limit: Duration) -> Timed {
        Timed { body: body.into(), limit, waiting_since: None, silence: None, ahead: None }
    }

    /// All of a body of this length, if it came together with its headers; else nothing is lost.
    pub(crate) async fn take_whole(&mut self, length_bytes: u64) -> Option<Bytes> {
        if length_bytes == 0 {
            return self.body.has_ended().then(Bytes::new);
        }
        let first = poll_fn(|cx| match self.body.next_frame(cx) {
            Poll::Ready(first) => Poll::Ready(first),
            Poll::Pending => Poll::Ready(None),
        });
        // An end comes again when it is asked for again.
        let first = first.await?;
        // Over HTTP/2 trailers may follow.
        let whole = |frame: &Frame<Bytes>| data_bytes(frame) == length_bytes;
        if !first.as_ref().is_ok_and(whole) || !self.body.has_ended() {
            self.ahead = Some(first);
            return None;
        }
        first.ok()?.into_data().ok()
    }

    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if let Some(frame) = self.ahead.take() {
            return Poll::Ready(Some(frame));
        }
        if let Poll::Ready(frame) = self.body.next_frame(cx) {
            self.waiting_since = None;
            return Poll::Ready(frame);
        }
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        ready!(poll_deadline(&mut self.silence, since + self.limit, cx));
        Poll::Ready(Some(Err(BodyError::Idle)))
    }

    fn has_ended(&self) -> bool {
        self.ahead.is_none() && self.body.has_ended()
    }

    fn length(&self) -> SizeHint {
        let mut hint = self.body.length();
        if let Some(Ok(frame)) = &self.ahead {
            let ahead_bytes = data_bytes(frame);
            if let Some(upper) = hint.upper() {
                hint.set_upper(upper + ahead_bytes);
            }
            hint.set_lower(hint.lower() + ahead_bytes);
        }
        hint
    }
}

body!(Timed);

/// Body of a request to the origin.
#[derive(Debug)]
pub(crate) enum OriginBody {
    Empty,
    Stream(Box<Upload>),
}

/// A body on its way to the origin.
#[derive(Debug)]
pub(crate) struct Upload {
    body: Timed,
    /// When the origin's connection took something of it last.
    idle: Arc<IdleTimer>,
}

impl Upload {
    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let polled = self.body.next_frame(cx);
        match polled {
            Poll::Ready(_) => self.idle.touch(),
            // The client is waited for, which is the limit of `Timed`.
            Poll::Pending => self.idle.pause(),
        }
        polled
    }
}

impl OriginBody {
    /// Streams `body`, silence in which may last as long as `limit`.
    pub(crate) fn stream(body: Incoming, limit: Duration) -> OriginBody {
        if body.is_end_stream() {
            OriginBody::Empty
        } else {
            let (body, idle) = (Timed::new(body, limit), Arc::new(IdleTimer::new()));
            OriginBody::Stream(Box::new(Upload { body, idle }))
        }
    }

    /// What says how long nothing of it has moved.
    pub(crate) fn idle(&self) -> Option<Arc<IdleTimer>> {
        match self {
            OriginBody::Empty => None,
            OriginBody::Stream(upload) => Some(upload.idle.clone()),
        }
    }

    fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        match self {
            OriginBody::Empty => Poll::Ready(None),
            OriginBody::Stream(upload) => upload.next_frame(cx),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            OriginBody::Empty => true,
            OriginBody::Stream(upload) => upload.body.has_ended(),
        }
    }

    fn length(&self) -> SizeHint {
        match self {
            OriginBody::Empty => SizeHint::with_exact(0),
            OriginBody::Stream(upload) => upload.body.length(),
        }
    }
}

body!(OriginBody);

type NextChunk = Pin<Box<dyn Future<Output = (Reader, Result<Option<Bytes>, BodyError>)> + Send>>;

/// What a streamed body consists of, in order.
pub(crate) enum Piece {
    Bytes(Bytes),
    /// Bytes of the stored object.
    Stored(Range<u64>),
}

/// A body put together from pieces, of the store above all, one chunk in memory at a time.
pub(crate) struct Streamed {
    pieces: VecDeque<Piece>,
    /// Reads the object; here while it is not reading.
    reader: Option<Reader>,
    reading: Option<NextChunk>,
    /// Of the piece being read.
    piece_left_bytes: u64,
    left_bytes: u64,
}

impl Streamed {
    /// The pieces one after the other; those of the store from `reader`.
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

    /// Accounts for a chunk that was read, and reads on if its piece goes on.
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

/// What comes of a body that many may read. Trailers are rare, and large beside a chunk.
#[derive(Debug)]
pub(crate) enum Chunk {
    Bytes(Bytes),
    /// It is complete; with what followed it.
    End(Option<Box<HeaderMap>>),
}

impl Chunk {
    /// As hyper wants it.
    fn into_frame(self) -> Option<Frame<Bytes>> {
        match self {
            Chunk::Bytes(bytes) => Some(Frame::data(bytes)),
            Chunk::End(trailers) => trailers.map(|fields| Frame::trailers(*fields)),
        }
    }
}

/// Chunks of a fill that is under way.
pub(crate) type FillReceiver = mpsc::Receiver<Result<Chunk, BodyError>>;

/// The body of the answer whose fill this is.
pub(crate) struct Filling {
    chunks: FillReceiver,
    taken_bytes: u64,
    /// Where to go on if the fill does not wait for this client any more.
    along: Option<AlongReader>,
    left_behind: bool,
    ended: bool,
}

impl Filling {
    pub(crate) fn new(chunks: FillReceiver, along: Option<AlongReader>) -> Filling {
        Filling { chunks, taken_bytes: 0, along, left_behind: false, ended: false }
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
            if let Some(along) = &mut self.along {
                along.skip(self.taken_bytes);
            }
        }
        match &mut self.along {
            Some(along) => along.poll_chunk(cx),
            // The fill died without a word: this is not a clean end.
            None => Poll::Ready(Err(BodyError::Broken)),
        }
    }
}

/// A polled chunk as hyper wants it.
fn as_frame(polled: Poll<Result<Chunk, BodyError>>) -> PolledFrame {
    polled.map(|chunk| chunk.map(Chunk::into_frame).transpose())
}

enum Kind {
    Empty,
    Whole(Option<Bytes>),
    Streamed(Box<Streamed>),
    Filling(Box<Filling>),
    Along(Box<AlongReader>),
    Passing(Box<Timed>),
}

/// Body of an answer to a client.
pub(crate) struct ProxyBody {
    kind: Kind,
    /// Written when the body is dropped.
    record: Option<Box<LogRecord>>,
}

impl ProxyBody {
    fn new(kind: Kind) -> ProxyBody {
        ProxyBody { kind, record: None }
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

    pub(crate) fn along(reader: AlongReader) -> ProxyBody {
        ProxyBody::new(Kind::Along(Box::new(reader)))
    }

    pub(crate) fn passing(body: FetchedBody, limit: Duration) -> ProxyBody {
        ProxyBody::timed(Timed::new(body, limit))
    }

    pub(crate) fn timed(body: Timed) -> ProxyBody {
        ProxyBody::new(Kind::Passing(Box::new(body)))
    }

    /// Counts the bytes into `record`, which is written when the body is done with.
    pub(crate) fn with_record(mut self, record: LogRecord) -> ProxyBody {
        self.record = Some(Box::new(record));
        self
    }

    pub(crate) fn next_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let frame = match &mut self.kind {
            Kind::Empty => None,
            Kind::Whole(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            Kind::Streamed(body) => ready!(body.poll_chunk(cx)).map(|c| c.map(Frame::data)),
            Kind::Filling(body) => ready!(as_frame(body.poll_chunk(cx))),
            Kind::Along(body) => ready!(as_frame(body.poll_chunk(cx))),
            Kind::Passing(body) => ready!(body.next_frame(cx)),
        };
        if let (Some(record), Some(Ok(frame))) = (&mut self.record, &frame) {
            record.body_bytes += data_bytes(frame);
        }
        Poll::Ready(frame)
    }

    pub(crate) fn has_ended(&self) -> bool {
        match &self.kind {
            Kind::Empty | Kind::Whole(None) => true,
            Kind::Passing(body) => body.has_ended(),
            Kind::Whole(Some(_)) | Kind::Streamed(_) | Kind::Filling(_) | Kind::Along(_) => false,
        }
    }

    pub(crate) fn length(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty | Kind::Whole(None) => SizeHint::with_exact(0),
            Kind::Whole(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Streamed(body) => SizeHint::with_exact(body.left_bytes),
            Kind::Passing(body) => body.length(),
            Kind::Filling(_) | Kind::Along(_) => SizeHint::default(),
        }
    }
}

body!(ProxyBody);
