//! Requests that bypass the cache: their forwarding, the invalidations that they cause, and the one
//! kind of response to them that may be stored (to a POST).
//!
//! Invariants: resources that a request changed are invalidated before its client gets the
//! response; if the client leaves earlier, the target of an unsafe request is in doubt then. The
//! response to a POST is stored only if nothing else changed the resource meanwhile. Threads: the
//! worker's.

use std::sync::Arc;

use damelo::Clock;
use http::header::{CONNECTION, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use tokio::sync::mpsc;

use crate::answer::{Answer, origin_failed, pass_on};
use crate::error::FetchError;
use crate::fetch::{Conditions, Fetch, Sent};
use crate::metrics::Counters;
use crate::purge::marks::Scope;
use crate::purge::{PurgeKind, url_hash, url_of_key};
use crate::request::{Ask, Written, hooks};
use crate::rules::group::{Rule, full_name};
use crate::rules::{CacheStatus, ForwardReason, cache_groups, invalidation, storing};
use crate::upstream::{ClientUpload, FetchedBody, OriginBody, Timed, UploadUnwanted};
use crate::vault::{Epoch, PRIMARY_KEY_BYTES_MAX, Vault};
use crate::worker::{Shared, Worker};

/// Forwards a request that bypasses the cache, and performs the invalidations that it causes.
pub(crate) async fn pass(
    worker: &Arc<Worker>,
    ask: &Ask,
    body: ClientUpload,
    mut status: CacheStatus,
) -> Answer {
    let limits = &worker.shared.config.limits;
    let bytes_max = ask.upload_bytes_max(&worker.shared.config);
    let second_bytes = limits.upload_second_bytes_min;
    let mut body =
        OriginBody::stream(body, ask.body_idle(&worker.shared.config), second_bytes, bytes_max);
    let patience = worker.shared.config.timeouts.origin_continue;
    if ask.expects_100() && !patience.is_zero() {
        body = body.expecting(patience);
    }
    let sent = Sent::now(worker, &ask.target.primary);
    let request = |body| ask.to_origin_request(&worker.shared, body);
    let sending = worker.fetcher.send(request(body), &request);
    match answered(worker, ask, sending).await {
        Err(error) => origin_failed(worker, error, status),
        Ok((response, unsettled)) if stands_for_get(worker, ask, &response, sent.epoch) => {
            keep_for_get(worker, ask, response, unsettled, sent).await
        }
        Ok((response, unsettled)) => {
            let (mut parts, body) = response.into_parts();
            let length_bytes = hooks::length_bytes(ask, parts.status, &parts.headers, &body);
            hooks::on_response(&worker.shared, ask, parts.status, &mut parts.headers, length_bytes);
            if invalidation::invalidates(&ask.acting_method(), parts.status) {
                let change = Change::of(worker, ask, (parts.status, &parts.headers), sent.epoch);
                invalidate(worker, change, unsettled).await;
            } else {
                unsettled.end();
            }
            status.forward_status = Some(parts.status);
            let is_unwanted = parts.extensions.remove::<UploadUnwanted>().is_some();
            let mut body =
                Timed::of_response(body, ask.body_idle(&worker.shared.config), parts.version);
            if body.begins_broken().await {
                return origin_failed(worker, FetchError::Broken, status);
            }
            let mut response = pass_on(ask, parts, body);
            if is_unwanted {
                // Its client may send the body all the same, or the next request.
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(CONNECTION, close);
            }
            (response, status)
        }
    }
}

/// Asks for an upgrade, and performs the invalidations that the request causes. What an unsafe
/// method does in a tunnel, nobody sees: its target is invalidated as if it had changed.
pub(crate) async fn send_upgrade(
    worker: &Worker,
    ask: &Ask,
    request: Request<OriginBody>,
) -> Result<Response<FetchedBody>, FetchError> {
    let epoch = worker.shared.vault.epoch(&ask.target.primary);
    let sending = worker.fetcher.send_upgrade(request);
    let (mut response, unsettled) = answered(worker, ask, sending).await?;
    let status = response.status();
    let length_bytes = hooks::length_bytes(ask, status, response.headers(), response.body());
    if status != StatusCode::SWITCHING_PROTOCOLS {
        hooks::on_response(&worker.shared, ask, status, response.headers_mut(), length_bytes);
        if invalidation::invalidates(&ask.acting_method(), status) {
            let change = Change::of(worker, ask, (status, response.headers()), epoch);
            invalidate(worker, change, unsettled).await;
            return Ok(response);
        }
    } else if !invalidation::is_safe(&ask.acting_method()) {
        let written = ask.target_written(&worker.shared);
        invalidate_written(&worker.shared, &worker.counters, &written).await;
    }
    unsettled.end();
    Ok(response)
}

/// Waits for the origin's answer. Where nobody knows what an unsafe method has done, what it may
/// have written to is in doubt: after some errors, and if the client leaves before what the answer
/// invalidates is.
async fn answered<'a>(
    worker: &'a Worker,
    ask: &'a Ask,
    sending: impl Future<Output = Result<Response<FetchedBody>, FetchError>>,
) -> Result<(Response<FetchedBody>, Unsettled<'a>), FetchError> {
    let unsettled = Unsettled::new(worker, ask);
    let answered = sending.await.and_then(|response| {
        let is_unasked = response.status() == StatusCode::NOT_MODIFIED && !ask.asks_for_changes();
        if is_unasked { Err(FetchError::Unasked) } else { Ok(response) }
    });
    let error = match answered {
        Ok(response) => return Ok((response, unsettled)),
        Err(error) => error,
    };
    if error.may_have_acted() && !invalidation::is_safe(&ask.acting_method()) {
        for written in written_by(worker, ask) {
            doubt_written(&worker.shared, &worker.counters, &written).await;
        }
    }
    unsettled.end();
    Err(error)
}

/// Whether the response to a POST may answer later GETs (RFC 9110 §9.3.3). It may not if the
/// resource was invalidated while the POST was in flight.
fn stands_for_get<B>(worker: &Worker, ask: &Ask, response: &Response<B>, epoch: Epoch) -> bool {
    let (headers, caching) = (response.headers(), &worker.shared.config.caching);
    let (status, now_s) = (response.status(), worker.now_s());
    storing::post_stands_for_get(&ask.method, status, headers, caching, now_s)
        && invalidation::represents_target(
            ask.base(worker.shared.sites.get(ask.site).name()),
            headers,
        )
        && !ask.pass
        && !ask.is_pinned()
        && ask.target.primary.len() <= PRIMARY_KEY_BYTES_MAX
        && worker.shared.vault.is_current(epoch)
}

/// Passes on the response to a POST, and stores it as if it answered a GET.
async fn keep_for_get(
    worker: &Arc<Worker>,
    ask: &Ask,
    response: Response<FetchedBody>,
    unsettled: Unsettled<'_>,
    sent: Sent,
) -> Answer {
    let change = Change::of(worker, ask, (response.status(), response.headers()), sent.epoch);
    let own = invalidate(worker, change, unsettled).await;
    let as_get = ask.as_get(&worker.shared.config.ruleset);
    let key = ask.target.primary.clone();
    // If something else changed the resource, that epoch has ended, and nothing is stored.
    let epoch = own.unwrap_or(sent.epoch);
    let fetching = Fetch {
        // The origin has evaluated the POST's conditions; they do not restrict storing.
        conditions: Conditions::Clients,
        sent: Sent { epoch, response_time_ms: worker.now_ms(), ..sent },
        ..Fetch::new(worker, &as_get, None, key, ForwardReason::Method)
    };
    fetching.received(response).await
}

/// RFC 9111 §4.4, RFC 9875 §3: a successful request with an unsafe method invalidates its target,
/// and the resources and groups that it or its response names.
struct Change {
    primary: Vec<u8>,
    target: Written,
    named: Vec<Written>,
    /// What is reached only by a mark.
    marked: Vec<Scope>,
    groups: Vec<Vec<u8>>,
    clock: Arc<dyn Clock>,
    /// The response was fetched since.
    epoch: Epoch,
}

impl Change {
    fn of(
        worker: &Worker,
        ask: &Ask,
        (status, response): (StatusCode, &HeaderMap),
        epoch: Epoch,
    ) -> Change {
        let shared = &worker.shared;
        let (target, named) = (ask.target_written(shared), ask.named_written(shared, response));
        let all = [&target].into_iter().chain(&named);
        let marked = all.filter(|one| wants_mark(shared, one)).map(url_of).collect();
        let groups = cache_groups::invalidated(&ask.acting_method(), status, response);
        let full = |name: &String| full_name(Rule::Named, &ask.target.host, name.as_bytes());
        let groups = groups.iter().map(full).collect();
        let (primary, clock) = (ask.target.primary.to_vec(), shared.config.clock.clone());
        Change { primary, target, named, marked, groups, clock, epoch }
    }

    /// Returns the epoch in which the response may be stored: `None` if something else changed the
    /// resource since.
    async fn invalidate(self, vault: &Vault, counters: &Counters) -> Option<Epoch> {
        let Change { primary, target, named, marked, groups, clock, epoch } = self;
        for named in &named {
            counters.invalidations.one();
            vault.invalidate(named.key.as_ref().unwrap_or(&named.url)).await;
        }
        if let Some(key) = target.key.as_ref().filter(|key| **key != primary) {
            vault.invalidate(key).await;
        }
        counters.invalidations.one();
        let mut own = vault.invalidate_since(&primary, epoch).await;
        if !marked.is_empty() {
            let now_s = clock.unix_seconds();
            let marked = vault.mark_urls_since(marked, now_s, own.unwrap_or(epoch));
            own = marked.filter(|_| own.is_some());
        }
        counters.group_invalidations.add(groups.len() as u64);
        vault.invalidate_groups_since(&groups, own.unwrap_or(epoch)).filter(|_| own.is_some())
    }

    /// As [`Change::invalidate`], all of it even if nobody waits for it any more.
    fn invalidate_all(
        self,
        vault: Arc<Vault>,
        counters: Arc<Counters>,
        alive: mpsc::Sender<()>,
    ) -> impl Future<Output = Option<Epoch>> {
        let invalidating = tokio::spawn(async move {
            let own = self.invalidate(&vault, &counters).await;
            drop(alive);
            own
        });
        // One that was given up, or has panicked, may have missed something.
        async { invalidating.await.unwrap_or(None) }
    }
}

/// Invalidates what a request changed. Its client may leave meanwhile: what the response names is
/// known to nobody else.
async fn invalidate(worker: &Worker, change: Change, unsettled: Unsettled<'_>) -> Option<Epoch> {
    let (vault, counters) = (worker.shared.vault.clone(), worker.counters.clone());
    let invalidating = change.invalidate_all(vault, counters, worker.alive.clone());
    unsettled.end();
    invalidating.await
}

/// What an unsafe request may have changed, by its own words.
fn written_by(worker: &Worker, ask: &Ask) -> Vec<Written> {
    let shared = &worker.shared;
    let destination = ask.destination_written(shared);
    [ask.target_written(shared)].into_iter().chain(destination).collect()
}

/// Invalidates what a request may have changed; the cache cannot see what it did.
async fn invalidate_written(shared: &Shared, counters: &Counters, written: &Written) {
    counters.invalidations.one();
    shared.vault.invalidate(key_of(written)).await;
    mark(shared, written, PurgeKind::Hard);
}

/// The same where nobody knows whether the request did anything. An origin that fails answers none,
/// and anybody can send one: what is stored may still stand in for it.
async fn doubt_written(shared: &Shared, counters: &Counters, written: &Written) {
    counters.invalidations.one();
    let now_s = shared.config.clock.unix_seconds();
    shared.vault.doubt(key_of(written), now_s, counters).await;
    mark(shared, written, PurgeKind::Soft);
}

fn key_of(written: &Written) -> &[u8] {
    written.key.as_ref().unwrap_or(&written.url)
}

/// Marks what is reached only so. The mark becomes durable with the ledger's next write.
fn mark(shared: &Shared, written: &Written, kind: PurgeKind) {
    if wants_mark(shared, written) {
        let now_s = shared.config.clock.unix_seconds();
        shared.vault.ledger().set(vec![url_of(written)], kind, now_s);
    }
}

/// Whether what is stored of a URL is reached only by a mark of it: more than the URL decides on
/// its key, or other rules did before.
fn wants_mark(shared: &Shared, written: &Written) -> bool {
    let vault = &shared.vault;
    vault.has_extended_keys() && (written.key.is_none() || vault.has_other_keys())
}

fn url_of(written: &Written) -> Scope {
    Scope::Url(url_hash(url_of_key(&written.url)))
}

/// Guards a request from when it is sent to the origin until what it changed is invalidated. If the
/// client leaves before, dropping the guard invalidates what an unsafe method may have written to.
struct Unsettled<'a> {
    worker: &'a Worker,
    ask: Option<&'a Ask>,
}

impl<'a> Unsettled<'a> {
    fn new(worker: &'a Worker, ask: &'a Ask) -> Unsettled<'a> {
        Unsettled {
            worker,
            ask: Some(ask).filter(|ask| !invalidation::is_safe(&ask.acting_method())),
        }
    }

    /// What the answer changes is invalidated, or nothing is.
    fn end(mut self) {
        self.ask = None;
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        let Some(ask) = self.ask else { return };
        // During shutdown requests are dropped outside the event loops, where nothing can be
        // spawned.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (shared, counters) = (Arc::clone(&self.worker.shared), self.worker.counters.clone());
        let written = written_by(self.worker, ask);
        self.worker.spawn(async move {
            for written in written {
                doubt_written(&shared, &counters, &written).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use damelo::GroupId;

    use super::*;
    use crate::vault::tests::vault_in;

    #[tokio::test]
    async fn all_is_invalidated_though_the_client_leaves_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let vault = Arc::new(vault_in(directory.path()));
        let written = |url: &str| Written { url: url.as_bytes().to_vec(), key: None };
        let (target, named) = (written("http://a/"), ["http://a/1", "http://a/2"].map(written));
        let keys = [target.url.clone(), named[0].url.clone(), named[1].url.clone()];
        for key in &keys {
            vault.store().create(key, GroupId::new(1), b"x").await.unwrap();
        }
        let change = Change {
            primary: target.url.clone(),
            target,
            named: named.to_vec(),
            marked: Vec::new(),
            groups: Vec::new(),
            clock: Arc::new(damelo::SystemClock::new()),
            epoch: vault.epoch(&keys[0]),
        };
        let committing = vault.lock(&keys[1]).await;
        let (alive, mut ends) = mpsc::channel(1);
        {
            let mut waiting = pin!(change.invalidate_all(vault.clone(), Arc::default(), alive));
            let polled = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "the first one is being committed");
        }
        drop(committing);
        assert_eq!(ends.recv().await, None, "it has ended");
        assert!(keys.iter().all(|key| !vault.may_contain(key)));
    }
}
