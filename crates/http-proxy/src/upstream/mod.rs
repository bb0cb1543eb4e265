//! The side towards origins: choice of site (`sites`, by the rules), endpoint and connection, and
//! the time limits of an exchange.
//!
//! ```text
//! Fetcher::send ─► choose (balance, health) ─► Pool::send_retrying ─► response with its `Hold`
//!                     ▲                             │
//!                     └── another endpoint ◄────────┘ the connection could not be opened, or broke off
//! ```
//!
//! Invariant: a request fails over to another endpoint only if none of its bytes were sent; but one
//! with a safe method and no body, once, if the first broke off before it had answered, or answered
//! with a status of `upstream.retry_statuses`.
//! Threads: one `Fetcher` per worker; load, permits and health of endpoints are shared by all
//! workers.

// What becomes of a request that an origin was asked.
mod after;
// Connections of forward proxies: a pool for each origin.
mod anywhere;
// Which origin gets a request.
mod balance;
// The address of a host that answers first.
mod dial;
// Origins: their URLs, and streams to them.
mod endpoint;
// Whether the origin wants a body.
mod expectation;
// What an answer's head says of its connection.
pub(crate) mod head;
// Whether an origin may be asked.
mod health;
// Bodies as they come in, and the limit on their silence.
mod incoming;
// Time limits of an exchange.
mod limits;
// Connections that are one client's.
mod pinned;
// Connections to one endpoint: opened, asked, kept for as long as they last.
mod pool;
// Redirects to the origin's own name and paths.
pub(crate) mod redirects;
// Bodies of clients on their way to origins.
mod request_body;
// Bodies from origins.
mod response_body;
// Connections of HTTP/2.
mod shared;
// The main site, and those that rules name.
mod sites;
// A byte stream to an origin.
mod stream;
// Bodies of clients' requests as they come in.
mod upload;
// The form of a request in each version of HTTP.
mod version;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::header::HOST;
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use crate::config::ProxyConfig;
use crate::config::transport::{Ejection, OriginChoice};
use crate::error::FetchError;
use crate::forward::{Permit, Route};
use crate::io::transit::Transit;
use crate::log::Notes;
use crate::metrics::Counters;
use crate::ruleset::SiteId;
use crate::say::say;
use crate::upstream::after::{After, Others, Terms, after};
use crate::upstream::anywhere::AnyPools;
use crate::upstream::balance::{Candidate, Open};
use crate::upstream::endpoint::{Endpoint, Origin};
use crate::upstream::limits::TimeLimits;
use crate::upstream::pool::{Again, Leased, Outgoing, Pool, SendError, may_repeat};
use crate::upstream::redirects::{OwnName, Renaming};
use crate::upstream::response_body::Load;

pub(crate) use dial::dial_tcp;
pub(crate) use endpoint::{check_tls_name, check_url};
pub(crate) use health::{Checking, check_all};
pub(crate) use incoming::{Timed, poll_incoming};
pub(crate) use pinned::{Pin, Pinned, are_shown, are_wanted};
pub(crate) use pool::{PoolSettings, UploadUnwanted};
pub(crate) use redirects::X_FORWARDED_HOST;
pub(crate) use request_body::OriginBody;
pub(crate) use response_body::{FetchedBody, Hold};
pub(crate) use sites::Sites;
pub(crate) use upload::ClientUpload;

/// Time between two trials of an origin that is out of reach.
const TRIALS_EVERY: Duration = Duration::from_secs(1);

/// Sends requests to origins.
pub(crate) struct Fetcher {
    /// Pools of each site of a reverse proxy: the proxy's own site first, then the sites of the
    /// rules.
    sites: Vec<SitePools>,
    /// Pools of a forward proxy.
    anywhere: Arc<AnyPools>,
    transit: Arc<Transit>,
    counters: Arc<Counters>,
    choice: OriginChoice,
    ejection: Ejection,
    /// Statuses by which one of several origins has failed.
    retry_statuses: Vec<StatusCode>,
    /// Time between two health checks of an origin; zero without checks.
    check_interval: Duration,
    limits: TimeLimits,
}

/// One worker's connection pools for one site.
struct SitePools {
    pools: Vec<Pool>,
    /// The place of the first backup.
    backups_from: usize,
    /// The name to remove from the origin's redirects; `None` if requests keep the client's `Host`.
    own_name: Option<OwnName>,
}

impl SitePools {
    /// Whether one of these endpoints, but the one at `index`, may still be asked, and is not known
    /// to fail.
    fn has_healthy(&self, others: Others, open: &Open, index: usize) -> bool {
        let now = std::time::Instant::now();
        let is_among = others == Others::Any || index >= self.backups_from;
        let end = if is_among { self.pools.len() } else { self.backups_from };
        let mut pools = self.pools[..end].iter().enumerate();
        pools.any(|(other, pool)| {
            other != index && open.has(other) && pool.endpoint().health().is_healthy(now)
        })
    }

    /// Makes redirects lead where the client can go.
    fn lead_back(&self, headers: &mut HeaderMap, renaming: Option<&Renaming>) {
        if let Some(own_name) = &self.own_name {
            own_name.take_off(headers);
        }
        if let Some(renaming) = renaming {
            renaming.rename(headers);
        }
    }
}

impl Fetcher {
    /// With the pools of the `former` one that are as they would be made now: a reload closes no
    /// connection to an origin that it does not concern.
    pub(crate) fn new(
        sites: &Sites,
        config: &ProxyConfig,
        transit: &Arc<Transit>,
        counters: Arc<Counters>,
        former: Option<&Fetcher>,
    ) -> Fetcher {
        let settings = PoolSettings::of(config, transit);
        let mut pools: Vec<Pool> = Vec::new();
        let mut pool = |endpoint: &Arc<_>| {
            if let Some(known) = pools.iter().find(|pool| pool.serves(endpoint, &settings)) {
                return known.clone();
            }
            let former = former.and_then(|former| former.pool_of(endpoint, &settings));
            let made = || Pool::new(Arc::clone(endpoint), settings.clone());
            pools.push(former.unwrap_or_else(made));
            pools[pools.len() - 1].clone()
        };
        let anywhere = former.map(|former| &former.anywhere);
        let anywhere = anywhere.filter(|pools| *pools.settings() == settings).cloned();
        let site = |origin: &Arc<Origin>| SitePools {
            pools: origin.endpoints.iter().map(&mut pool).collect(),
            backups_from: origin.backups_from,
            own_name: (!origin.keeps_host(config.preserve_host)).then(|| OwnName::new(origin)),
        };
        let upstream = &config.upstream;
        Fetcher {
            sites: sites.all().map(site).collect(),
            anywhere: anywhere.unwrap_or_else(|| Arc::new(AnyPools::new(settings.clone()))),
            transit: transit.clone(),
            counters,
            choice: upstream.origin_choice,
            ejection: upstream.ejection,
            retry_statuses: upstream.retry_statuses.clone(),
            check_interval: upstream
                .check
                .as_ref()
                .map_or(Duration::ZERO, |checks| checks.interval),
            limits: TimeLimits::new(&config.timeouts),
        }
    }

    /// The pool of this endpoint, if it has these settings.
    fn pool_of(&self, endpoint: &Arc<Endpoint>, settings: &PoolSettings) -> Option<Pool> {
        let mut pools = self.sites.iter().flat_map(|site| &site.pools);
        pools.find(|pool| pool.serves(endpoint, settings)).cloned()
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn sweep(&self) {
        for pool in self.sites.iter().flat_map(|site| &site.pools) {
            pool.sweep();
        }
        self.anywhere.sweep();
    }

    /// Whether health checks report every origin of a site down and no request since has succeeded.
    pub(crate) fn is_known_down(&self, site: SiteId) -> bool {
        are_known_down(&self.site(site).pools)
    }

    /// Whether a site's only origin, which is asked all the same, could not be reached of late.
    pub(crate) fn is_out_of_reach(&self, site: SiteId) -> bool {
        let now = std::time::Instant::now();
        match &self.site(site).pools[..] {
            [only] => only.endpoint().health().is_out_of_reach(now),
            _ => false,
        }
    }

    /// Claims the trial, one in each [`TRIALS_EVERY`], that a validation behind answers makes of an
    /// origin that is out of reach.
    fn take_trial(&self, site: SiteId) -> bool {
        let now = std::time::Instant::now();
        let mut pools = self.site(site).pools.iter();
        pools.any(|pool| pool.endpoint().health().take_try(TRIALS_EVERY, now))
    }

    /// Whether a validation behind answers may go to a site now: not to one that is out of reach
    /// and was tried just now. The trial of one whose checks fail, too, is claimed when it is sent.
    pub(crate) fn may_validate_behind(&self, site: SiteId) -> bool {
        self.is_known_down(site) || !self.is_out_of_reach(site) || self.take_trial(site)
    }

    /// Whether any origin of a site that is known to be down may get its trial request now.
    pub(crate) fn may_try(&self, site: SiteId) -> bool {
        let now = std::time::Instant::now();
        let mut pools = self.site(site).pools.iter();
        pools.any(|pool| pool.endpoint().health().may_try(self.check_interval, now))
    }

    /// The origins of the request's site that may be asked: all, or, if the whole site is known to
    /// be down, only the one whose trial request is due.
    fn open_to(&self, request: &Request<OriginBody>) -> Result<Open, FetchError> {
        if request.extensions().get::<Arc<Route>>().is_some() {
            return Ok(Open::default());
        }
        let pools = &self.site_of(request).pools;
        if !are_known_down(pools) {
            return Ok(Open::default());
        }
        let now = std::time::Instant::now();
        let mut pools_tried = pools.iter().map(Pool::endpoint);
        let tried = pools_tried
            .position(|endpoint| endpoint.health().take_try(self.check_interval, now))
            .ok_or(FetchError::Down)?;
        Ok(Open { only: Some(tried), asked: Vec::new() })
    }

    /// Sends a request and waits for the headers of the final response. `again` makes the same
    /// request once more.
    pub(crate) async fn send(
        &self,
        request: Request<OriginBody>,
        again: &Again<'_>,
    ) -> Result<Response<FetchedBody>, FetchError> {
        let open = self.open_to(&request)?;
        self.counters.forwarded.one();
        let deadline = self.deadline_of(&request);
        let result = self.send_until(Box::new(request), again, open, deadline).await;
        if let Err(error) = &result {
            self.counters.origin_failed(error);
        }
        result
    }

    /// Sends an `Upgrade` request on an HTTP/1.1 connection of its own. The response holds the
    /// request's place at the endpoint.
    pub(crate) async fn send_upgrade(
        &self,
        request: Request<OriginBody>,
    ) -> Result<Response<FetchedBody>, FetchError> {
        self.counters.forwarded.one();
        let deadline = self.deadline_of(&request);
        let sent = match request.extensions().get::<Arc<Route>>().cloned() {
            Some(route) => self.upgrade_anywhere(&request, &route, deadline).await,
            None => self.upgrade_at_site(&request, deadline).await,
        };
        if let Err(error) = &sent {
            self.counters.origin_failed(error);
        }
        sent
    }

    async fn upgrade_anywhere(
        &self,
        request: &Request<OriginBody>,
        route: &Route,
        deadline: Option<Instant>,
    ) -> Result<Response<FetchedBody>, FetchError> {
        let pool = self.anywhere.pool(&route.host, route.port);
        let hold = self.hold(&pool, self.limits.of(request).connect, deadline).await?;
        let notes = Notes::of(request);
        note_asked(notes.as_deref(), &pool);
        let response = self.upgrade_at(&pool, request, Some(route), hold, deadline).await?;
        note_answer(notes.as_deref(), &response);
        Ok(response)
    }

    async fn upgrade_at_site(
        &self,
        request: &Request<OriginBody>,
        deadline: Option<Instant>,
    ) -> Result<Response<FetchedBody>, FetchError> {
        let (site, renaming) = (self.site_of(request), Renaming::of(request));
        let (notes, limits) = (Notes::of(request), self.limits.of(request));
        let (mut open, mut last_error) = (self.open_to(request)?, FetchError::Connect(None));
        // Nothing is switched before an origin has answered so.
        let mut may_resend = may_go_elsewhere(request);
        while let Some(index) = self.choose(site, &open, key_of(request)) {
            let pool = &site.pools[index];
            let hold = self.hold(pool, limits.connect, deadline).await?;
            note_asked(notes.as_deref(), pool);
            let begun = Instant::now();
            let sent = self.upgrade_at(pool, request, None, hold, deadline).await;
            let sent = sent.map_err(|error| (error, Some(())));
            let terms = self.terms(may_resend, deadline);
            let had_time = !terms.is_over || begun.elapsed() >= limits.fair_time();
            self.judge_in_time(pool, site, &sent, had_time);
            match after(sent, terms, |others| site.has_healthy(others, &open, index)) {
                After::Done(mut response) => {
                    note_answer(notes.as_deref(), &response);
                    site.lead_back(response.headers_mut(), renaming.as_ref());
                    return Ok(response);
                }
                After::Next { unsent: (), error } => {
                    last_error = error;
                    self.leave(site, &mut open, index);
                }
                After::Resend(error) => {
                    last_error = error.unwrap_or(last_error);
                    may_resend = false;
                    self.resend(&mut open, index);
                }
                After::Failed(error) => return Err(error),
            }
        }
        Err(last_error)
    }

    async fn upgrade_at(
        &self,
        pool: &Pool,
        request: &Request<OriginBody>,
        permit: Option<&dyn Permit>,
        hold: Hold,
        deadline: Option<Instant>,
    ) -> Result<Response<FetchedBody>, FetchError> {
        let sending = pool.send_upgrade(request, permit);
        let response = match deadline {
            None => sending.await?,
            Some(deadline) => {
                timeout_at(deadline, sending).await.unwrap_or(Err(FetchError::HeaderTimeout))?
            }
        };
        // A tunnel lasts as long as it is used.
        let is_tunnel = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let deadline = deadline.filter(|_| !is_tunnel);
        Ok(response.map(|body| FetchedBody::new(body).holding(hold, deadline)))
    }

    async fn send_until(
        &self,
        request: Outgoing,
        again: &Again<'_>,
        open: Open,
        deadline: Option<Instant>,
    ) -> Result<Response<FetchedBody>, FetchError> {
        match request.extensions().get::<Arc<Route>>().cloned() {
            None => self.send_to_site(request, again, open, deadline).await,
            Some(route) => Box::pin(self.send_anywhere(request, again, &route, deadline)).await,
        }
    }

    async fn send_anywhere(
        &self,
        request: Outgoing,
        again: &Again<'_>,
        route: &Route,
        deadline: Option<Instant>,
    ) -> Result<Response<FetchedBody>, FetchError> {
        let pool = self.anywhere.pool(&route.host, route.port);
        let hold = self.hold(&pool, self.limits.of(&request).connect, deadline).await?;
        let notes = Notes::of(&request);
        note_asked(notes.as_deref(), &pool);
        let sent = match deadline {
            None => pool.send_retrying(request, again, Some(route), None, &self.counters).await,
            Some(deadline) => self.send_by(deadline, &pool, request, again, Some(route)).await,
        };
        let response = sent.map_err(|failed| failed.error)?;
        note_answer(notes.as_deref(), &response);
        Ok(response.map(|body| FetchedBody::new(body).holding(hold, deadline)))
    }

    async fn send_to_site(
        &self,
        mut request: Outgoing,
        again: &Again<'_>,
        mut open: Open,
        deadline: Option<Instant>,
    ) -> Result<Response<FetchedBody>, FetchError> {
        let (key, renaming) = (key_of(&request), Renaming::of(&request));
        let (notes, limits) = (Notes::of(&request), self.limits.of(&request));
        let site = self.site_of(&request);
        let mut last_error = FetchError::Connect(None);
        let mut may_resend = may_go_elsewhere(&request);
        let mut own = held(&site.pools, &request);
        while let Some(index) = own.take().or_else(|| self.choose(site, &open, key)) {
            let pool = &site.pools[index];
            let hold = self.hold(pool, limits.connect, deadline).await?;
            note_asked(notes.as_deref(), pool);
            let begun = Instant::now();
            let sent = match deadline {
                None => pool.send_retrying(request, again, None, None, &self.counters).await,
                Some(deadline) => {
                    Box::pin(self.send_by(deadline, pool, request, again, None)).await
                }
            };
            let sent = sent.map_err(|failed| (failed.error, failed.unsent));
            let terms = self.terms(may_resend, deadline);
            let had_time = !terms.is_over || begun.elapsed() >= limits.fair_time();
            self.judge_in_time(pool, site, &sent, had_time);
            match after(sent, terms, |others| site.has_healthy(others, &open, index)) {
                After::Done(mut response) => {
                    note_answer(notes.as_deref(), &response);
                    site.lead_back(response.headers_mut(), renaming.as_ref());
                    return Ok(response.map(|body| FetchedBody::new(body).holding(hold, deadline)));
                }
                After::Next { unsent, error } => {
                    (request, last_error) = (unsent, error);
                    self.leave(site, &mut open, index);
                }
                After::Resend(error) => {
                    last_error = error.unwrap_or(last_error);
                    (request, may_resend) = (Box::new(again(OriginBody::Empty)), false);
                    self.resend(&mut open, index);
                }
                After::Failed(error) => return Err(error),
            }
        }
        Err(last_error)
    }

    fn terms(&self, may_resend: bool, deadline: Option<Instant>) -> Terms<'_> {
        let (retry_statuses, is_over) = (&self.retry_statuses[..], is_over(deadline));
        Terms { retry_statuses, may_resend, is_over }
    }

    /// The endpoint at `index` had nothing of the request: it goes to another one, if there is one,
    /// which is counted.
    fn leave(&self, site: &SitePools, open: &mut Open, index: usize) {
        open.asked.push(index);
        if open.has_any(site.pools.len()) {
            self.counters.origin_failovers.one();
        }
    }

    /// What the endpoint at `index` has failed goes to another one, which is counted.
    fn resend(&self, open: &mut Open, index: usize) {
        open.asked.push(index);
        self.counters.origin_resends.one();
    }

    /// Whether one of several origins has failed by this answer.
    fn is_to_be_retried(&self, status: StatusCode) -> bool {
        self.retry_statuses.contains(&status)
    }

    /// Sends a request to one endpoint, which fails it if it has not answered by the deadline,
    /// unless that waits for the client then.
    async fn send_by(
        &self,
        deadline: Instant,
        pool: &Pool,
        request: Outgoing,
        again: &Again<'_>,
        permit: Option<&dyn Permit>,
    ) -> Result<Response<Leased>, SendError> {
        let upload = request.body().idle();
        let due = Some(deadline.into_std());
        let sending = pool.send_retrying(request, again, permit, due, &self.counters);
        timeout_at(deadline, sending).await.unwrap_or_else(|_| {
            let error = match upload.is_some_and(|upload| upload.is_paused()) {
                true => FetchError::ClientTimeout,
                false => FetchError::HeaderTimeout,
            };
            Err(SendError { error, unsent: None })
        })
    }

    /// Whether the pin holds a connection to an endpoint of this route, or else of this site.
    pub(crate) fn is_held(&self, pin: &Pin, site: SiteId, route: Option<&Route>) -> bool {
        if pin.is_empty() {
            return false;
        }
        match route {
            Some(route) => pin.is_of(&self.anywhere.pool(&route.host, route.port)),
            None => self.site(site).pools.iter().any(|pool| pin.is_of(pool)),
        }
    }

    /// The site that the request is for. Its `SiteId` comes from the rules that this `Fetcher` was
    /// made with.
    fn site_of(&self, request: &Request<OriginBody>) -> &SitePools {
        self.site(request.extensions().get::<SiteId>().copied().unwrap_or(SiteId::MAIN))
    }

    fn site(&self, site: SiteId) -> &SitePools {
        &self.sites[site.among_ruled().map_or(0, |place| place + 1)]
    }

    fn choose(&self, site: &SitePools, open: &Open, key: u64) -> Option<usize> {
        let pools = &site.pools;
        if pools.len() == 1 {
            return open.has(0).then_some(0);
        }
        let now = std::time::Instant::now();
        let candidate = |(index, pool): (usize, &Pool)| {
            let endpoint = pool.endpoint();
            Candidate {
                name_hash: endpoint.name_hash,
                load: endpoint.load(),
                healthy: endpoint.health().is_healthy(now),
                is_backup: index >= site.backups_from,
                tried: !open.has(index),
            }
        };
        let candidates: Vec<_> = pools.iter().enumerate().map(candidate).collect();
        balance::choose(&candidates, self.choice, key)
    }

    /// Records the outcome of a request, unless it was cut off before the endpoint `had_time` to
    /// answer.
    fn judge_in_time<B, U>(
        &self,
        pool: &Pool,
        site: &SitePools,
        sent: &Result<Response<B>, (FetchError, Option<U>)>,
        had_time: bool,
    ) {
        if sent.is_ok() || had_time {
            let outcome = sent.as_ref().map(Response::status).map_err(|(error, _)| error);
            self.judge(pool, site.pools.len(), outcome);
        }
    }

    /// Records the outcome of a request at an endpoint of a site with `of` endpoints, where one
    /// that answers by a status to be retried has failed. The ejection of a site's only endpoint is
    /// neither counted nor reported, because it is asked all the same, if only where nothing stale
    /// will do; its failures are reported.
    fn judge(&self, pool: &Pool, of: usize, outcome: Result<StatusCode, &FetchError>) {
        match outcome {
            Ok(status) if of > 1 && self.is_to_be_retried(status) => {
                self.has_failed(pool, of, false, &format_args!("it answered {status}"));
            }
            Ok(status) => self.has_answered(pool, status),
            Err(error) if error.is_origins_fault() => {
                self.has_failed(pool, of, error.is_unreachable(), error);
            }
            Err(_) => {}
        }
    }

    fn has_answered(&self, pool: &Pool, status: StatusCode) {
        let (endpoint, now) = (pool.endpoint(), std::time::Instant::now());
        let mut health = endpoint.health();
        health.answered(status);
        if health.is_healthy(now) && health.is_news(false) {
            drop(health);
            say(format_args!("damelo: the origin {} answers again", endpoint.url()));
        }
    }

    fn has_failed(&self, pool: &Pool, of: usize, unreached: bool, why: &dyn Display) {
        let (endpoint, now) = (pool.endpoint(), std::time::Instant::now());
        let mut health = endpoint.health();
        let is_ejected = health.failed(unreached, &self.ejection, now);
        if of == 1 || self.ejection.failures == 0 {
            if health.failure_is_news(now) {
                drop(health);
                let url = endpoint.url();
                say(format_args!("damelo: a request to the origin {url} failed: {why}"));
            }
        } else if is_ejected {
            self.counters.origin_ejections.one();
            if health.is_news(true) {
                drop(health);
                say(format_args!("damelo: the origin {} is left alone: {why}", endpoint.url()));
            }
        }
    }

    /// Says once of a site's origin that what it sends is this old when it comes, by its `Date`,
    /// and so never fresh.
    pub(crate) fn tell_of_clock(&self, site: SiteId, age_s: u64) {
        let first = self.site(site).pools.first();
        if let Some(endpoint) = first.map(Pool::endpoint)
            && !endpoint.told_of_clock.swap(true, Ordering::Relaxed)
        {
            say(format_args!(
                "damelo: what the origin {} sends is stale when it comes, and never a hit: its Date \
                 is {age_s} s ago. Its clock is slow, or a cache before it sends no Age",
                endpoint.url()
            ));
        }
    }

    /// When the exchange must be over, if ever.
    fn deadline_of(&self, request: &Request<OriginBody>) -> Option<Instant> {
        self.limits.of(request).total.map(|limit| Instant::now() + limit)
    }

    /// A place at an endpoint, waited for no longer than for a connection (`patience`), nor beyond
    /// `deadline`, for which the endpoint, which had nothing of the request, is not to blame.
    async fn hold(
        &self,
        pool: &Pool,
        patience: Duration,
        deadline: Option<Instant>,
    ) -> Result<Hold, FetchError> {
        let endpoint = pool.endpoint();
        let place = match &endpoint.places {
            None => None,
            Some(places) => {
                let due = Instant::now() + patience;
                let (due, late) = match deadline {
                    Some(deadline) if deadline <= due => (deadline, FetchError::HeaderTimeout),
                    _ => (due, FetchError::Busy),
                };
                let waiting = timeout_at(due, places.clone().acquire_owned());
                let place: Option<OwnedSemaphorePermit> =
                    waiting.await.ok().and_then(|place| place.ok());
                Some(place.ok_or(late)?)
            }
        };
        let load: Arc<AtomicUsize> = endpoint.load.clone();
        Ok(Hold::new(self.counters.clone(), self.transit.clone(), Load::new(load), place))
    }
}

fn is_over(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| deadline <= Instant::now())
}

fn note_asked(notes: Option<&Notes>, pool: &Pool) {
    if let Some(notes) = notes {
        notes.asks(&pool.endpoint().authority);
    }
}

fn note_answer<B>(notes: Option<&Notes>, response: &Response<B>) {
    if let Some(notes) = notes {
        notes.answered(response.status());
    }
}

/// Whether a request can be sent to another endpoint though one may have got it. A login counts for
/// a connection to one of them.
fn may_go_elsewhere(request: &Request<OriginBody>) -> bool {
    request.extensions().get::<Pinned>().is_none() && may_repeat(request)
}

/// Index of the pool that the client's pinned connection belongs to.
fn held(pools: &[Pool], request: &Request<OriginBody>) -> Option<usize> {
    let pin = request.extensions().get::<Pinned>()?.0.as_ref()?;
    pools.iter().position(|pool| pin.is_of(pool))
}

fn are_known_down(pools: &[Pool]) -> bool {
    pools.iter().all(|pool| pool.endpoint().health().is_known_down())
}

/// Hash of a request's host, path and query, by which the choice of an origin is consistent.
fn key_of(request: &Request<OriginBody>) -> u64 {
    let host = request.headers().get(HOST).map_or(&b""[..], |host| host.as_bytes());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    balance::key_hash(host, path)
}
