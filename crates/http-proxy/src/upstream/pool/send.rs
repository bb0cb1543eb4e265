//! Sending requests on a pool's connections.
//!
//! Invariants: a request is sent twice to one origin only in three cases. An HTTP/2 origin refused
//! it unprocessed; or its connection came from the pool and broke, and none of its bytes were
//! written or it has a safe method and no body (RFC 9110 §9.2.2); or it has a safe method and no
//! body, and an HTTP/2 origin sent nothing on a new connection within the connect timeout. A method
//! is not safe beside a field that names another. Every wait has a time limit. Threads: the pool's
//! worker.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::TrySendError;
use tokio::task::AbortHandle;
use tokio::time::{Sleep, timeout};

use crate::error::{BodyError, FetchError};
use crate::forward::Permit;
use crate::io::deadline::poll_deadline;
use crate::io::idle::IdleTimer;
use crate::io::locks::lock;
use crate::metrics::Counters;
use crate::rules::invalidation;
use crate::upstream::OriginBody;
use crate::upstream::head::{check_head, kept_for, without_false_length};
use crate::upstream::pinned::{self, Pinned};
use crate::upstream::pool::leased::{Lease, Leased};
use crate::upstream::pool::{Connection, Http1, Need, Pool, rest};
use crate::upstream::shared::{Outcome, Owed, Place, Preface, Stream};
use crate::upstream::version::{as_http1, as_http2};

/// A request on its way. Boxed, because it is large and moves at every step.
pub(crate) type Outgoing = Box<Request<OriginBody>>;

/// Makes the request that was sent once more, with this body. A copy of each request would be made
/// in vain for nearly all.
pub(crate) type Again<'a> = dyn Fn(OriginBody) -> Request<OriginBody> + Sync + 'a;

/// Beside an answer for which the origin wanted none of the request's body, of which none was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UploadUnwanted;

/// The failure of a request, with the request itself if none of its bytes were written, or if it
/// may be sent twice and the HTTP/2 origin sent nothing on a new connection.
pub(crate) struct SendError {
    pub(crate) error: FetchError,
    pub(crate) unsent: Option<Outgoing>,
}

impl Pool {
    /// Sends a request on a pooled connection, or else on a new one.
    pub(crate) async fn send(
        &self,
        request: Outgoing,
        permit: Option<&dyn Permit>,
    ) -> Result<Response<Leased>, SendError> {
        match self.take(permit, Need::of(&request)) {
            Some(pooled) => self.send_on(pooled, request).await,
            None => Box::pin(self.send_anew(request, permit, None)).await,
        }
    }

    /// Like [`send`](Self::send), with one retry if a pooled connection proves closed or an HTTP/2
    /// origin did not process the request. Honours pins. No connection is waited for beyond
    /// `deadline`.
    pub(crate) async fn send_retrying(
        &self,
        request: Outgoing,
        again: &Again<'_>,
        permit: Option<&dyn Permit>,
        deadline: Option<Instant>,
        counters: &Counters,
    ) -> Result<Response<Leased>, SendError> {
        let need = Need::of(&request);
        let pooled = match request.extensions().get::<Pinned>() {
            Some(pinned) => {
                let (pinned, patience) =
                    (pinned.clone(), self.inner.settings.limits.of(&request).connect);
                Box::pin(self.take_own(&pinned, permit, need, patience)).await
            }
            None => self.take(permit, need),
        };
        let was_pooled = pooled.is_some();
        let connection = match pooled {
            Some(pooled) => pooled,
            None => match Box::pin(self.connect_for(&request, permit, deadline)).await {
                Ok(connection) => connection,
                Err(error) => return Err(SendError { error, unsent: Some(request) }),
            },
        };
        let repeatable = was_pooled && may_repeat(&request);
        let refusable = matches!(connection, Connection::Http2(_));
        let spare = (repeatable || refusable).then(|| request.body().again());
        let SendError { error, unsent } = match self.send_on(connection, request).await {
            Ok(response) => return Ok(response),
            // No time is left to connect once more; another origin of the site may be tried.
            Err(failed) if failed.error == FetchError::ConnectTimeout => return Err(failed),
            Err(failed) => failed,
        };
        let spare = spare.filter(|spare| match error {
            FetchError::Refused => spare.is_whole(),
            FetchError::Broken => repeatable,
            _ => false,
        });
        let request = match (unsent.filter(|_| was_pooled), spare) {
            (Some(unsent), _) => unsent,
            (None, Some(body)) => Box::new(again(body)),
            (None, None) => return Err(SendError { error, unsent: None }),
        };
        counters.retries.one();
        Box::pin(self.send_anew(request, permit, deadline)).await
    }

    async fn send_anew(
        &self,
        request: Outgoing,
        permit: Option<&dyn Permit>,
        deadline: Option<Instant>,
    ) -> Result<Response<Leased>, SendError> {
        match self.connect_for(&request, permit, deadline).await {
            Ok(connection) => self.send_on(connection, request).await,
            Err(error) => Err(SendError { error, unsent: Some(request) }),
        }
    }

    /// Sends a request on a connection of its own, which may switch to another protocol.
    pub(crate) async fn send_upgrade(
        &self,
        request: &Request<OriginBody>,
        permit: Option<&dyn Permit>,
    ) -> Result<Response<Incoming>, FetchError> {
        let settings = &self.inner.settings;
        let mut sender = self.connect_for_upgrade(request, permit).await?;
        let sending = sender.send_request(*spare_copy(request));
        let response = timeout(settings.limits.of(request).origin_header, sending).await;
        let response = response.map_err(|_| FetchError::HeaderTimeout)?;
        let response = response.map_err(|error| FetchError::of(&error))?;
        check_head(response.headers(), settings.header_bytes_max)?;
        Ok(without_false_length(response))
    }

    async fn send_on(
        &self,
        connection: Connection,
        request: Outgoing,
    ) -> Result<Response<Leased>, SendError> {
        match connection {
            Connection::Http1(connection) => self.send_http1(connection, request).await,
            Connection::Http2(place) => self.send_http2(place, request).await,
        }
    }

    async fn send_http1(
        &self,
        mut connection: Http1,
        request: Outgoing,
    ) -> Result<Response<Leased>, SendError> {
        let idle = request.body().idle();
        let limit = self.inner.settings.limits.of(&*request).origin_header;
        let timer = idle.is_none().then_some(&mut connection.timer);
        let pinned = request.extensions().get::<Pinned>().cloned();
        let method = request.method().clone();
        let expectation = request.body().expectation();
        if connection.lengths_only
            && let Some(expectation) = &expectation
        {
            // HTTP/1.0 has no 100.
            expectation.met();
        }
        let sending = connection.sender.try_send_request(as_http1(*request));
        let asked = AskedConnection(Some(connection.task.clone()));
        let sent = match timer {
            Some(timer) => head_within(limit, timer, sending).await?,
            None => head_of(limit, sending, idle.clone()).await?,
        };
        let response = sent.map_err(SendError::of)?;
        asked.answered();
        let bytes_max = self.inner.settings.header_bytes_max;
        let checked = check_head(response.headers(), bytes_max);
        // Requests sent here never ask for an upgrade, so a 101 is an error.
        let error = if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            Some(FetchError::Unasked)
        } else {
            checked.err()
        };
        if let Some(error) = error {
            return Err(SendError { error, unsent: None });
        }
        connection.keeps = kept_for(response.headers());
        connection.lengths_only = response.version() < Version::HTTP_11;
        connection.needs_rest = rest::is_wanted(&method, response.headers());
        // The origin asks for connection-based credentials, so it may already have tied this
        // connection to this client: the pool must not get it back.
        let wanted = || pinned::are_wanted(response.headers()).then_some(Pinned(None));
        let pinned = pinned.or_else(wanted);
        let is_unwanted = expectation.is_some_and(|expectation| expectation.answered());
        let lease = Lease { pool: self.clone(), connection, pinned, is_unwanted };
        let mut response = without_false_length(response);
        if is_unwanted {
            response.extensions_mut().insert(UploadUnwanted);
        }
        Ok(response.map(|incoming| Leased::new(incoming, Some(lease), None, idle)))
    }

    async fn send_http2(
        &self,
        mut place: Place,
        request: Outgoing,
    ) -> Result<Response<Leased>, SendError> {
        match place.awaited.take() {
            None => self.send_at(place, request).await,
            Some(preface) => Box::pin(self.send_first(preface, place, request)).await,
        }
    }

    /// Sends a request on a connection on which the origin has not sent anything yet. The
    /// connection counts as not opened if the origin's SETTINGS do not arrive within the connect
    /// timeout. Only a request that must not be sent twice waits for them, because waiting costs a
    /// round trip.
    async fn send_first(
        &self,
        mut preface: Preface,
        place: Place,
        request: Outgoing,
    ) -> Result<Response<Leased>, SendError> {
        let overdue =
            |request| SendError { error: FetchError::ConnectTimeout, unsent: Some(request) };
        if !may_repeat(&request) {
            return match preface.outcome().await {
                Outcome::Overdue => Err(overdue(request)),
                Outcome::Arrived | Outcome::Ended => self.send_at(place, request).await,
            };
        }
        let spare = spare_copy(&request);
        let mut sending = pin!(self.send_at(place, request));
        let outcome = tokio::select! {
            biased;
            sent = &mut sending => return sent,
            outcome = preface.outcome() => outcome,
        };
        match outcome {
            Outcome::Overdue => Err(overdue(spare)),
            Outcome::Arrived | Outcome::Ended => sending.await,
        }
    }

    async fn send_at(
        &self,
        Place { mut sender, stream, .. }: Place,
        request: Outgoing,
    ) -> Result<Response<Leased>, SendError> {
        let (idle, upload) = (request.body().idle(), request.body().watch());
        let settings = &self.inner.settings;
        let limits = settings.limits.of(&*request);
        let (limit, silence_max) = (limits.origin_header, limits.connect.min(limits.origin_header));
        let sending = sender.try_send_request(as_http2(*request, self.inner.endpoint.scheme()));
        let owed = Owed::on(stream, idle.clone(), silence_max);
        let sent = head_of(limit, sending, idle.clone()).await?;
        let stream = owed.paid();
        let response = sent.map_err(|error| {
            let failed = self.failed_on(stream.as_ref(), error);
            failed.unless_cut_short(upload.and_then(|upload| upload.failure()))
        })?;
        let response = without_false_length(response);
        Ok(response.map(|incoming| Leased::new(incoming, None, stream, idle)))
    }

    /// Why a request failed on an HTTP/2 connection. A connection that refuses requests gets no
    /// more.
    fn failed_on(
        &self,
        stream: Option<&Stream>,
        error: TrySendError<Request<OriginBody>>,
    ) -> SendError {
        let failed = SendError::of(error);
        if let Some(stream) = stream
            && failed.error == FetchError::Refused
        {
            let mut shared = lock(&self.inner.shared);
            shared.leave_out(stream);
        }
        failed
    }
}

/// The outcome of `sending`, unless it takes longer than `limit`. For a request with a body, the
/// time limit restarts whenever the origin takes some of the body.
async fn head_of<T>(
    limit: Duration,
    sending: impl Future<Output = T>,
    idle: Option<Arc<IdleTimer>>,
) -> Result<T, SendError> {
    let late = SendError { error: FetchError::HeaderTimeout, unsent: None };
    let Some(idle) = idle else { return timeout(limit, sending).await.map_err(|_| late) };
    idle.touch();
    tokio::select! {
        biased;
        sent = sending => Ok(sent),
        () = idle.expired(limit) => Err(late),
    }
}

/// As [`head_of`], for a request without a body, with the timer of its connection.
async fn head_within<T>(
    limit: Duration,
    timer: &mut Option<Pin<Box<Sleep>>>,
    sending: impl Future<Output = T>,
) -> Result<T, SendError> {
    let deadline = tokio::time::Instant::now() + limit;
    let mut sending = pin!(sending);
    poll_fn(|cx| match sending.as_mut().poll(cx) {
        Poll::Ready(sent) => Poll::Ready(Ok(sent)),
        Poll::Pending => poll_deadline(timer, deadline, cx)
            .map(|()| Err(SendError { error: FetchError::HeaderTimeout, unsent: None })),
    })
    .await
}

/// A connection of HTTP/1.1 that was asked. It ends if nobody waits for its answer any more: its
/// task may be writing a body that the origin takes nothing of, and would do so for as long as that
/// likes.
struct AskedConnection(Option<AbortHandle>);

impl AskedConnection {
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for AskedConnection {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl SendError {
    fn of(mut error: TrySendError<Request<OriginBody>>) -> SendError {
        let unsent = error.take_message().map(Box::new);
        SendError { error: FetchError::of(error.error()), unsent }
    }

    /// Over HTTP/2 a request whose body fails ends in a reset by this side, and the library says
    /// nothing of why.
    fn unless_cut_short(self, failure: Option<BodyError>) -> SendError {
        match failure {
            Some(failure) if matches!(self.error, FetchError::Reset | FetchError::Broken) => {
                SendError { error: FetchError::of_upload(failure), unsent: None }
            }
            _ => self,
        }
    }
}

/// Whether a request can be repeated without harm, even if the origin processed it: it has a safe
/// method, no body, and no field by which the origin may have taken it for one of another method.
pub(crate) fn may_repeat(request: &Request<OriginBody>) -> bool {
    let safe = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    safe && request.body().is_end_stream() && !invalidation::overrides_method(request.headers())
}

fn spare_copy(request: &Request<OriginBody>) -> Outgoing {
    let mut copy = Box::new(Request::new(request.body().again()));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    // The pin, and who gets the interim responses.
    *copy.extensions_mut() = request.extensions().clone();
    copy
}
