//! A response passed from the origin to a client and into the store at the same time.
//!
//! A fill that does not end at once continues as a task of its own, so that it can outlive its
//! client, and other clients can read along (see `vault::inflight`). Invariants: a client's body
//! ends cleanly only if the origin's did; a truncated body is never committed; clients get the last
//! bytes after the commit, so that a client that has seen the end of a stored response finds it in
//! the store; trailers reach clients only. Back-pressure: at most [`CHUNKS_WAITING_MAX`] chunks
//! wait for the client. A slower client is detached, and continues from the store at its own pace.
//! If that is impossible, the fill waits for it; if the store takes no more, the fill goes on for
//! those who read it, and waits for them (`vault::inflight`); a client that accepts nothing for
//! `timeouts.body_idle` counts as gone, or, if nobody else can have the response, only ends its
//! storing. Threads: the task of a fill runs on the worker that began it; readers on other workers
//! get it from the vault.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, sleep_until};

use crate::answer::body::FillReceiver;
use crate::collapse::{Lead, Outcome};
use crate::config::ProxyConfig;
use crate::error::BodyError;
use crate::metrics::Counters;
use crate::rules::NotStoredReason;
use crate::upstream::Timed;
use crate::vault::Vault;
use crate::vault::inflight::{Chunk, InflightBody};
use crate::vault::insertion::Insertion;
use crate::vault::sections::SECTION_BYTES;
use crate::worker::Worker;

/// Chunks read from the origin ahead of the client; each is at most one read long
/// (`upstream::pool`).
const CHUNKS_WAITING_MAX: usize = 4;

/// Limits of a fill.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FillLimits {
    /// Of what is stored in one piece.
    pub(crate) body_bytes_max: u64,
    /// Of a whole that is stored in slices.
    pub(crate) sliced_bytes_max: u64,
    finish_bytes_max: u64,
    finish_percent_min: u64,
    idle: Duration,
}

impl FillLimits {
    pub(crate) fn of(config: &ProxyConfig, vault: &Vault) -> FillLimits {
        let configured = config.limits.body_bytes_max;
        FillLimits {
            body_bytes_max: vault.body_bytes_max.min(configured.unwrap_or(u64::MAX)),
            sliced_bytes_max: configured.unwrap_or(2 * vault.body_bytes_max),
            finish_bytes_max: config.fill.finish_bytes_max,
            finish_percent_min: u64::from(config.fill.finish_percent_min),
            idle: config.timeouts.body_idle,
        }
    }

    /// Whether a fill that nobody reads continues: little is left, or much is done, or, of unknown
    /// length, what comes may still be short.
    fn worth_finishing(&self, received: u64, expected: Option<u64>) -> bool {
        let Some(expected) = expected else { return received <= self.finish_bytes_max };
        expected.saturating_sub(received) <= self.finish_bytes_max
            || u128::from(received) * 100
                >= u128::from(expected) * u128::from(self.finish_percent_min)
    }
}

/// The storing half of a fill.
pub(crate) struct Storing {
    vault: Arc<Vault>,
    counters: Arc<Counters>,
    primary: Vec<u8>,
    limits: FillLimits,
    insertion: Option<Box<Insertion>>,
    lead: Option<Lead>,
}

impl Storing {
    pub(crate) fn new(
        worker: &Worker,
        primary: Vec<u8>,
        insertion: Box<Insertion>,
        lead: Option<Lead>,
    ) -> Storing {
        Storing {
            vault: worker.shared.vault.clone(),
            counters: worker.counters.clone(),
            primary,
            limits: FillLimits::of(&worker.shared.config, &worker.shared.vault),
            insertion: Some(insertion),
            lead,
        }
    }

    /// Stores a complete body.
    pub(crate) async fn store_whole(mut self, bytes: Bytes) {
        match self.write(&bytes, bytes.len() as u64).await {
            Ok(()) => {
                self.finish().await;
            }
            Err(reason) => self.give_up(reason),
        }
    }

    /// Stores these bytes; `received` is the length so far, including them.
    async fn write(&mut self, bytes: &Bytes, received: u64) -> Result<(), NotStoredReason> {
        let Some(insertion) = &mut self.insertion else { return Ok(()) };
        if received > self.limits.body_bytes_max {
            return Err(NotStoredReason::TooLarge);
        }
        self.vault.write(insertion, bytes, self.limits.idle).await
    }

    /// Commits; returns the generation and the length of a body stored apart.
    async fn finish(&mut self) -> Option<(u64, u64)> {
        let insertion = self.insertion.take()?;
        let apart = insertion.apart().map(|apart| (apart.generation, apart.length_bytes));
        match self.vault.commit(&self.primary, insertion).await {
            Ok(()) => {
                self.counters.stored.one();
                if let Some(lead) = self.lead.take() {
                    lead.end(Outcome::Stored);
                }
                apart
            }
            Err(reason) => {
                self.not_stored(reason);
                None
            }
        }
    }

    fn give_up(&mut self, reason: NotStoredReason) {
        if let Some(insertion) = self.insertion.take() {
            insertion.discard(self.vault.store());
            self.not_stored(reason);
        }
    }

    fn not_stored(&mut self, reason: NotStoredReason) {
        self.counters.not_stored(reason, &self.primary);
        let Some(lead) = self.lead.take() else { return };
        if reason == NotStoredReason::Truncated {
            lead.pause_validations();
        }
        lead.end(Outcome::of_refusal(reason, StatusCode::OK));
    }
}

/// A fill in progress.
pub(crate) struct Fill {
    storing: Storing,
    body: Timed,
    /// The body as concurrent readers see it.
    inflight: Option<Arc<InflightBody>>,
    client: Client,
    received: u64,
    expected: Option<u64>,
    /// Since when nobody reads it.
    unread_since: Option<Instant>,
    /// Trailers: passed on, not stored.
    trailers: Option<Box<HeaderMap>>,
}

/// The client that gets the bytes besides the store.
enum Client {
    /// Reads along.
    There(mpsc::Sender<Result<Chunk, BodyError>>),
    /// Nobody: the fill is for its own sake.
    NotNeeded,
    /// It was answered with 304 or 412, without any of the body; the fill is for others.
    Answered,
    /// It was detached or left; only concurrent readers remain.
    Gone,
}

/// Why a fill stopped before its end.
enum Stop {
    Origin(BodyError),
    NobodyLeft,
}

impl Fill {
    /// A fill whose client, if `with_client`, reads from the returned receiver.
    pub(crate) fn new(
        storing: Storing,
        body: Timed,
        inflight: Option<Arc<InflightBody>>,
        with_client: bool,
    ) -> (Fill, FillReceiver) {
        let (sender, receiver) = mpsc::channel(CHUNKS_WAITING_MAX);
        let expected = body.size_hint().exact();
        let client = if with_client { Client::There(sender) } else { Client::NotNeeded };
        let fill = Fill {
            storing,
            body,
            inflight,
            client,
            received: 0,
            expected,
            unread_since: None,
            trailers: None,
        };
        (fill, receiver)
    }

    /// A fill that continues even if nobody reads along.
    pub(crate) fn without_client(
        storing: Storing,
        body: Timed,
        inflight: Arc<InflightBody>,
    ) -> Fill {
        Fill::new(storing, body, Some(inflight), false).0
    }

    /// A fill whose client is one of the concurrent readers.
    pub(crate) fn for_readers(storing: Storing, body: Timed, inflight: Arc<InflightBody>) -> Fill {
        let mut fill = Fill::without_client(storing, body, inflight);
        fill.client = Client::Gone;
        fill
    }

    /// Its client wants nothing of the body.
    pub(crate) fn for_others(mut self) -> Fill {
        self.client = Client::Answered;
        self
    }

    /// Runs until the fill has succeeded or failed.
    pub(crate) async fn run(mut self) {
        let stopped = self.pump().await;
        match stopped {
            Ok(last) => {
                let stored = self.storing.finish().await;
                if let (Some(inflight), Some((generation, length_bytes))) = (&self.inflight, stored)
                {
                    inflight.stored(generation, length_bytes);
                }
                if !last.is_empty() {
                    self.show(&last);
                    self.pass_to_client(last).await;
                }
                self.wait_for_trailers().await;
                let trailers = self.trailers.take();
                self.end_along(Ok(trailers.clone()));
                let _ = self.send(Ok(Chunk::End(trailers))).await;
            }
            Err(Stop::Origin(error)) => {
                // Before what is stored is removed: readers would take it for lost by the store.
                self.end_along(Err(error));
                self.storing.give_up(NotStoredReason::Truncated);
                let _ = self.send(Err(error)).await;
            }
            Err(Stop::NobodyLeft) => {
                // Not the origin's doing: who still wants the rest may ask for it. Before the lead
                // ends, so that nobody joins who would get no more than a beginning.
                self.end_along(Err(BodyError::Store));
                if matches!(self.client, Client::Answered)
                    && let Some(lead) = &self.storing.lead
                {
                    lead.remember_long();
                }
                self.storing.give_up(NotStoredReason::ClientGone);
            }
        }
    }

    /// Transfers all but the last chunk of a body of known length; returns that chunk.
    async fn pump(&mut self) -> Result<Bytes, Stop> {
        while let Some(frame) = self.body.frame().await {
            let Some(bytes) = self.data_of(frame.map_err(Stop::Origin)?) else { continue };
            if bytes.is_empty() {
                continue;
            }
            self.received += bytes.len() as u64;
            self.store(&bytes).await;
            if self.expected == Some(self.received) {
                return Ok(bytes);
            }
            self.show(&bytes);
            self.pass_to_client(bytes).await;
            self.wait_for_readers().await;
            if !self.goes_on() {
                return Err(Stop::NobodyLeft);
            }
        }
        match self.expected {
            Some(expected) if expected != self.received => Err(Stop::Origin(BodyError::Broken)),
            _ => Ok(Bytes::new()),
        }
    }

    /// The bytes of a frame; trailers are set aside.
    fn data_of(&mut self, frame: Frame<Bytes>) -> Option<Bytes> {
        let not_data = match frame.into_data() {
            Ok(bytes) => return Some(bytes),
            Err(not_data) => not_data,
        };
        if let Ok(fields) = not_data.into_trailers() {
            self.trailers = (!fields.is_empty()).then(|| Box::new(fields));
        }
        None
    }

    /// Waits for trailers behind a body of known length, which is complete without them.
    async fn wait_for_trailers(&mut self) {
        while self.is_read() && !self.body.is_end_stream() {
            let Some(Ok(frame)) = self.body.frame().await else { return };
            self.data_of(frame);
        }
    }

    /// Whether any client, or the store, still benefits.
    fn goes_on(&mut self) -> bool {
        match self.client {
            Client::There(_) => true,
            _ if self.storing.insertion.is_none() => {
                self.inflight.as_ref().is_some_and(|inflight| inflight.has_pacer())
            }
            Client::NotNeeded => true,
            Client::Answered | Client::Gone if self.is_read_along() => {
                self.unread_since = None;
                true
            }
            Client::Answered | Client::Gone => self.goes_on_unread(Instant::now()),
        }
    }

    /// Whether it goes on for the store alone. What has no length may have no end, either.
    fn goes_on_unread(&mut self, now: Instant) -> bool {
        let (limits, since) = (&self.storing.limits, *self.unread_since.get_or_insert(now));
        let has_time = self.expected.is_some() || now - since <= limits.idle;
        has_time && limits.worth_finishing(self.received, self.expected)
    }

    fn is_read(&self) -> bool {
        matches!(self.client, Client::There(_)) || self.is_read_along()
    }

    fn is_read_along(&self) -> bool {
        self.inflight.as_ref().is_some_and(|inflight| inflight.readers() > 0)
    }

    /// Makes these bytes readable for concurrent readers.
    fn show(&self, bytes: &Bytes) {
        let Some(inflight) = &self.inflight else { return };
        let insertion = self.storing.insertion.as_ref();
        if let Some((generation, stored_bytes)) =
            insertion.and_then(|insertion| insertion.readable())
        {
            inflight.stored(generation, stored_bytes);
        }
        inflight.push(bytes.clone());
    }

    fn end_along(&self, end: Result<Option<Box<HeaderMap>>, BodyError>) {
        if let Some(inflight) = &self.inflight {
            inflight.end(end);
        }
    }

    async fn store(&mut self, bytes: &Bytes) {
        if let Err(reason) = self.storing.write(bytes, self.received).await {
            self.go_on_unstored(reason);
        }
    }

    /// The fill is only for those who read it from now on.
    fn go_on_unstored(&mut self, reason: NotStoredReason) {
        let Some(insertion) = self.storing.insertion.take() else { return };
        match &self.inflight {
            Some(inflight) => {
                let (generation, stored_bytes) = insertion.readable().unwrap_or_default();
                inflight.give_up_storing(generation, stored_bytes / SECTION_BYTES);
            }
            None => insertion.discard(self.storing.vault.store()),
        }
        self.storing.not_stored(reason);
    }

    /// The client, if it is still there, gets what comes from this offset on as a reader.
    fn leave_client_at(&self, offset: u64) {
        if let Some(inflight) = &self.inflight {
            inflight.leave_first_at(offset);
        }
    }

    /// Passes what came last to the client, which may be left behind then.
    async fn pass_to_client(&mut self, bytes: Bytes) {
        let sent = self.received - bytes.len() as u64;
        if self.send(Ok(Chunk::Bytes(bytes))).await.is_err() {
            self.client = Client::Gone;
            self.leave_client_at(sent);
        }
    }

    /// Waits, once nothing is stored any more, until the readers have got what would else be lost
    /// to them. The client itself holds the fill up in [`Fill::send`].
    async fn wait_for_readers(&mut self) {
        let Some(inflight) = &self.inflight else { return };
        if self.storing.insertion.is_some() || matches!(self.client, Client::There(_)) {
            return;
        }
        let idle = self.storing.limits.idle;
        while let Some(pacer) = inflight.awaited() {
            if tokio::time::timeout(idle, inflight.moved(pacer)).await.is_err() {
                inflight.wait_no_longer_for(pacer);
            }
        }
    }

    /// Whether a client slower than the fill can continue from the store: all of the body will be
    /// stored, unless the store gives it up. A body of unknown length may turn out to be too long
    /// for that, which breaks off detached clients, so it is risked only for the sake of other
    /// readers.
    fn may_leave_behind(&self) -> bool {
        let Some(inflight) = &self.inflight else { return false };
        let (readers, limit_bytes) = (inflight.readers(), self.storing.limits.body_bytes_max);
        let will_do = match self.expected {
            Some(expected) => expected <= limit_bytes && readers > 0,
            // The client to be detached is one of the readers.
            None => self.received <= limit_bytes && readers > 1,
        };
        will_do && self.storing.insertion.is_some()
    }

    /// Passes a chunk to the client, if there is one; an error if it left or was detached.
    async fn send(&mut self, chunk: Result<Chunk, BodyError>) -> Result<(), ()> {
        let Client::There(client) = &self.client else { return Ok(()) };
        // Places that must be free. While much is in transit one chunk waits at a time.
        let is_full = self.inflight.as_ref().is_some_and(|inflight| inflight.is_transit_full());
        let free_min = if is_full { CHUNKS_WAITING_MAX } else { 1 };
        match client.try_reserve_many(free_min) {
            Ok(mut places) => {
                places.next().ok_or(())?.send(chunk);
                return Ok(());
            }
            Err(TrySendError::Closed(())) => return Err(()),
            Err(TrySendError::Full(())) => {}
        }
        let (client, gone_at) = (client.clone(), Instant::now() + self.storing.limits.idle);
        while !self.may_leave_behind() {
            // A client that alone can have the response is waited for: `timeouts.client_write` has
            // an eye on it. Only what is stored does not stay open for so long.
            let has_limit = self.inflight.is_some() || self.storing.insertion.is_some();
            tokio::select! {
                biased;
                places = client.reserve_many(free_min) => {
                    places.map_err(|_| ())?.next().ok_or(())?.send(chunk);
                    return Ok(());
                }
                () = joined(self.inflight.as_deref()) => {}
                () = sleep_until(gone_at), if has_limit => match self.inflight {
                    Some(_) => return Err(()),
                    None => self.go_on_unstored(NotStoredReason::ClientGone),
                },
            }
        }
        Err(())
    }
}

/// Waits until another reader joins.
async fn joined(inflight: Option<&InflightBody>) {
    match inflight {
        Some(inflight) => inflight.joined().await,
        None => std::future::pending().await,
    }
}

impl Drop for Fill {
    /// The task may have been cancelled: readers must not wait for more.
    fn drop(&mut self) {
        self.end_along(Err(BodyError::Broken));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_fill_outlives_its_client() {
        let limits = FillLimits {
            body_bytes_max: u64::MAX,
            sliced_bytes_max: u64::MAX,
            finish_bytes_max: 100,
            finish_percent_min: 50,
            idle: Duration::ZERO,
        };
        for (received, expected, goes_on) in [
            (0, Some(100), true),
            (0, Some(101), false),
            (499, Some(1000), false),
            (500, Some(1000), true),
            (100, None, true),
            (101, None, false),
            (u64::MAX, Some(u64::MAX), true),
        ] {
            assert_eq!(limits.worth_finishing(received, expected), goes_on, "{received}");
        }
    }
}
