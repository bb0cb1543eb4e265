//! The activity of a connection: its requests in flight, and whether its socket takes what is sent.
//!
//! Invariant: `active` counts each request from its headers to the last response byte that hyper
//! took. Threads: one connection's state, shared by the tasks of its worker.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep};

use crate::client::cut::Cut;
use crate::client::limits::Counted;
use crate::client::place::Place;
use crate::client::seats::Seat;
use crate::io::held_bytes::{Delivery, HeldBytes};
use crate::metrics::{BodySource, BrokenBy, Counters};

/// The socket is full.
const BLOCKED: u64 = u64::MAX;
/// The connection was not told to leave, or stayed.
const NOT_TOLD: u64 = u64::MAX;
/// Time for a connection to leave. One that is still there then is in use, and makes no room.
const LEAVE_TIME: Duration = Duration::from_secs(2);
/// Time between two looks at what a socket still holds.
pub(crate) const DELIVERY_LOOK: Duration = Duration::from_millis(20);

/// State of one connection.
#[derive(Debug)]
pub(crate) struct Activity {
    counters: Arc<Counters>,
    opened: Instant,
    active: AtomicUsize,
    /// Of these, tunnels.
    tunnels: AtomicUsize,
    begun: AtomicU64,
    /// Since when the socket takes what is written, or [`BLOCKED`].
    writable_ms: AtomicU64,
    /// When the last request ended.
    idle_ms: AtomicU64,
    /// After the last request no byte of it can still be in flight.
    may_rest: AtomicBool,
    /// The last request may turn the connection into a tunnel.
    may_switch: AtomicBool,
    /// The connection, or a stream of it, has become a tunnel.
    switched: AtomicBool,
    /// Bytes of the last request's body may come after the connection's last answer.
    may_linger: AtomicBool,
    /// The connection has been silent so long that it should free its buffers.
    rests: AtomicBool,
    /// A response broke off, and only the way the connection is closed can tell its client.
    broken_off: AtomicBool,
    /// The last response ends with the connection, whose client takes any normal close for its end.
    ends_by_close: AtomicBool,
    /// How many requests had begun when bytes of the next one came, plus one.
    head_at: AtomicU64,
    /// When the connection was told to end if nobody uses it, or [`NOT_TOLD`].
    told_ms: AtomicU64,
    /// Wakes it for that.
    leave: Notify,
    /// What the connection's socket holds.
    held: OnceLock<HeldBytes>,
    /// What it holds may be lost when the connection ends.
    may_lose_held: AtomicBool,
    /// Its last answer was sent, and what its client still sends is waited for.
    lingers: AtomicBool,
    /// Keep the connection counted, including tunnels made of it.
    counted: OnceLock<Counted>,
    seat: OnceLock<Seat>,
    _place: Option<Place>,
}

impl Activity {
    /// Of a connection that nobody may tell to leave yet.
    pub(crate) fn new(counters: Arc<Counters>, place: Option<Place>) -> Arc<Activity> {
        Arc::new(Activity {
            counters,
            counted: OnceLock::new(),
            seat: OnceLock::new(),
            _place: place,
            head_at: AtomicU64::new(1),
            told_ms: AtomicU64::new(NOT_TOLD),
            leave: Notify::new(),
            opened: Instant::now(),
            active: AtomicUsize::new(0),
            tunnels: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            writable_ms: AtomicU64::new(0),
            idle_ms: AtomicU64::new(0),
            may_rest: AtomicBool::new(true),
            may_switch: AtomicBool::new(false),
            switched: AtomicBool::new(false),
            may_linger: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            broken_off: AtomicBool::new(false),
            ends_by_close: AtomicBool::new(false),
            held: OnceLock::new(),
            may_lose_held: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
        })
    }

    /// Counts the connection among those of its client.
    pub(crate) fn count(&self, counted: Counted) {
        self.counted.get_or_init(|| counted);
    }

    /// Counts it among those that may be told to leave.
    pub(crate) fn sit(&self, seat: Seat) {
        self.seat.get_or_init(|| seat);
    }

    /// From now on the connection waits for the first bytes of its first request.
    pub(crate) fn awaits_head(&self) {
        self.idle_ms.store(self.age_ms(), Relaxed);
        self.head_at.store(0, Relaxed);
    }

    /// Bytes of the next request have come.
    pub(crate) fn begin_head(&self) {
        self.head_at.store(self.begun() + 1, Relaxed);
    }

    /// Since when nobody has used the connection; `None` while a request is under way, has come in
    /// part, or was answered and not taken yet, or while its last client is still heard out.
    pub(crate) fn unused_since(&self) -> Option<Instant> {
        let is_head_here = self.head_at.load(Relaxed) == self.begun() + 1;
        let writable = self.writable_since()?;
        let is_unused = self.is_idle() && !is_head_here && !self.lingers.load(Relaxed);
        is_unused.then(|| writable.max(self.idle_since()))
    }

    /// Whether its client has not got yet what it would lose if the connection ended now. Asks the
    /// system.
    pub(crate) fn is_delivering(&self) -> bool {
        self.may_lose_held.load(Relaxed) && self.held_bytes().is_some_and(|bytes| bytes > 0)
    }

    /// Records that the last answer was sent, and what its client still sends is waited for.
    pub(crate) fn linger(&self) {
        self.lingers.store(true, Relaxed);
    }

    /// Tells the connection to end if nobody uses it.
    pub(crate) fn tell_to_leave(&self, now: Instant) {
        self.told_ms.store(self.ms_at(now), Relaxed);
        self.leave.notify_one();
    }

    fn told(&self) -> Option<Instant> {
        let told_ms = self.told_ms.load(Relaxed);
        (told_ms != NOT_TOLD).then(|| self.opened + Duration::from_millis(told_ms))
    }

    /// Whether it was told to leave, and may just be doing so.
    pub(crate) fn is_leaving(&self, now: Instant) -> bool {
        self.told().is_some_and(|told| now < told + LEAVE_TIME)
    }

    /// Ready once the connection was told to leave and nobody uses it.
    pub(crate) async fn told_to_leave(&self) {
        loop {
            self.leave.notified().await;
            let unused = self.unused_since().zip(self.told());
            if unused.is_some_and(|(since, told)| since <= told) && !self.is_delivering() {
                self.counters.connections_made_room.one();
                return;
            }
            // Used since: it is told again when its turn comes.
            self.told_ms.store(NOT_TOLD, Relaxed);
        }
    }

    /// Begins a request, which ends when the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Activity>) -> Active {
        self.active.fetch_add(1, Relaxed);
        self.begun.fetch_add(1, Relaxed);
        self.counters.under_way.up();
        Active { activity: self.clone() }
    }

    /// Begins a tunnel on this connection or on a stream of it.
    pub(crate) fn begin_tunnel(self: &Arc<Activity>) -> ActiveTunnel {
        let active = self.begin();
        self.tunnels.fetch_add(1, Relaxed);
        ActiveTunnel { active }
    }

    /// Whether nothing is in flight that a stopping proxy waits for.
    pub(crate) fn has_only_tunnels(&self) -> bool {
        self.active.load(Relaxed) == self.tunnels.load(Relaxed)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.active.load(Relaxed) == 0
    }

    /// When the last request ended; meaningful only if none is in flight.
    pub(crate) fn idle_since(&self) -> Instant {
        self.opened + Duration::from_millis(self.idle_ms.load(Relaxed))
    }

    /// Requests so far.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Relaxed)
    }

    /// Records input that was answered with this status before it became a request.
    pub(crate) fn refused(&self, status: StatusCode) {
        self.counters.refused(status);
    }

    /// Sets whether the connection may rest after the request that has just begun.
    pub(crate) fn set_may_rest(&self, may_rest: bool) {
        self.may_rest.store(may_rest, Relaxed);
    }

    /// Sets whether the request that has just begun may turn the connection into a tunnel.
    pub(crate) fn set_may_switch(&self, may_switch: bool) {
        self.may_switch.store(may_switch, Relaxed);
    }

    /// Sets whether the client may still be sending when the connection's last answer is sent.
    pub(crate) fn set_may_linger(&self, may_linger: bool) {
        self.may_linger.store(may_linger, Relaxed);
    }

    /// Whether what comes after the connection's last answer is waited for.
    pub(crate) fn may_linger(&self) -> bool {
        self.may_linger.load(Relaxed)
    }

    /// Whether the connection may be, or become, a tunnel.
    pub(crate) fn may_switch(&self) -> bool {
        self.may_switch.load(Relaxed)
    }

    /// Whether a tunnel goes through the connection: of HTTP/1, nothing else does from then on.
    pub(crate) fn has_switched(&self) -> bool {
        self.switched.load(Relaxed)
    }

    /// Whether no request is in flight, and nothing remains of the last one.
    pub(crate) fn may_rest(&self) -> bool {
        self.is_idle() && self.may_rest.load(Relaxed)
    }

    /// Asks the connection to rest.
    pub(crate) fn rest(&self) {
        self.rests.store(true, Relaxed);
    }

    /// Whether the connection was asked to rest; resets the flag.
    pub(crate) fn take_rest(&self) -> bool {
        self.rests.load(Relaxed) && self.rests.swap(false, Relaxed)
    }

    /// Records that the socket has become full, or writable again.
    pub(crate) fn set_blocked(&self, blocked: bool) {
        self.writable_ms.store(if blocked { BLOCKED } else { self.age_ms() }, Relaxed);
    }

    /// Since when the socket takes what is written; `None` while it is full.
    pub(crate) fn writable_since(&self) -> Option<Instant> {
        let writable_ms = self.writable_ms.load(Relaxed);
        (writable_ms != BLOCKED).then(|| self.opened + Duration::from_millis(writable_ms))
    }

    /// Whether the connection must not close normally.
    pub(crate) fn has_broken_off(&self) -> bool {
        self.broken_off.load(Relaxed)
    }

    /// Whether a normal close is the end of the last response.
    pub(crate) fn ends_by_close(&self) -> bool {
        self.ends_by_close.load(Relaxed)
    }

    /// Sets whose bytes [`Activity::held_bytes`] tells, and whether the end of the connection may
    /// lose them, since its client sends something for all that it gets.
    pub(crate) fn set_held(&self, held: HeldBytes, may_be_lost: bool) {
        self.held.get_or_init(|| held);
        self.may_lose_held.store(may_be_lost, Relaxed);
    }

    /// Bytes that the client has not acknowledged, where the system tells. Means nothing once the
    /// connection is closed.
    pub(crate) fn held_bytes(&self) -> Option<u64> {
        self.held.get()?.now()
    }

    /// Ready once the client has acknowledged all that was sent, or nothing of it for `patience`.
    async fn delivered(&self, patience: Duration) {
        let mut delivery = Delivery::begin(Instant::now(), patience);
        while !delivery.is_over(self.held_bytes(), Instant::now()) {
            sleep(DELIVERY_LOOK).await;
        }
    }

    fn age_ms(&self) -> u64 {
        self.ms_at(Instant::now())
    }

    fn ms_at(&self, now: Instant) -> u64 {
        u64::try_from((now - self.opened).as_millis()).unwrap_or(u64::MAX)
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Active {
    activity: Arc<Activity>,
}

impl Active {
    /// Records bytes of the response's body that the connection accepted.
    pub(crate) fn sent(&self, from: BodySource, bytes: u64) {
        self.activity.counters.sent(from, bytes);
    }

    /// Records that the client did not get the complete response.
    pub(crate) fn broken(&self, by: BrokenBy) {
        self.activity.counters.broke_off(by);
    }

    /// Records that the response ends with the connection.
    pub(crate) fn ends_by_close(&self) {
        self.activity.ends_by_close.store(true, Relaxed);
    }

    /// Records that the response broke off where its client would otherwise take it as complete.
    pub(crate) fn broke_off(&self) {
        self.activity.broken_off.store(true, Relaxed);
    }
}

/// A tunnel, which counts as a request in flight.
#[derive(Debug)]
pub(crate) struct ActiveTunnel {
    active: Active,
}

impl ActiveTunnel {
    /// Records that its client has the answer that opens it, and bytes of the tunnel follow.
    pub(crate) fn joins(&self) {
        self.active.activity.switched.store(true, Relaxed);
    }

    /// Called before the streams of a tunnel are dropped that was broken off, with the cut of one
    /// on a stream of HTTP/2: otherwise its client would take that for an end, and a part for the
    /// whole. What the origin sent before is delivered first, since a reset throws away what the
    /// socket holds.
    pub(crate) async fn break_off(&self, by: BrokenBy, cut: Option<Cut>, patience: Duration) {
        if let Some(cut) = cut {
            return cut.make();
        }
        if matches!(by, BrokenBy::Origin | BrokenBy::Timeout) {
            self.active.activity.delivered(patience).await;
        }
        self.active.broke_off();
    }
}

impl Drop for ActiveTunnel {
    fn drop(&mut self) {
        self.active.activity.tunnels.fetch_sub(1, Relaxed);
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        self.activity.idle_ms.store(self.activity.age_ms(), Relaxed);
        self.activity.active.fetch_sub(1, Relaxed);
        self.activity.counters.under_way.down();
    }
}
