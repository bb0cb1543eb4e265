//! Concurrent requests for one missing resource become one request to the origin.
//!
//! The first request to [`Collapse::join`] a key leads; the others wait for its outcome.
//! Invariants: a leader that ends in any manner, panics included, tells its followers by dropping
//! its [`Lead`]; no follower waits without a deadline; a key is in the table only while its `Lead`
//! lives, and until a follower finds that a change has outdated the leader's response, or that the
//! leader waits in vain: then one who comes after it leads. When a resource turns out to vary, its
//! lead also becomes the lead for the variant. HEADs lead under keys of their own, but follow a
//! GET's lead while there is one. Uncacheable resources are remembered for a while, so that
//! requests for them do not queue.
//!
//! Threads: shared by all workers; the lock is held for one table operation, never across a wait.

mod pauses;
pub(crate) mod rounds;
pub(crate) mod sharing;
mod uncacheable;
pub(crate) mod unsliceable;
mod words;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::collapse::pauses::Pauses;
use crate::collapse::sharing::{SharedFill, SharedResponse};
use crate::collapse::uncacheable::Uncacheable;
use crate::collapse::unsliceable::Notes;
use crate::error::FetchError;
use crate::io::locks::lock;
use crate::rules::{NotStoredReason, is_passing_failure, is_server_error};

/// Suffix of the keys under which HEADs lead. No other key ends with it, since header fields cannot
/// contain it.
const HEAD: u8 = 0x04;

/// Suffix of the keys under which outcomes of requests with `Authorization` are remembered.
const CREDENTIALS: u8 = 0x05;

/// The same for requests with a cookie.
const COOKIE: u8 = 0x07;

/// Suffix of the keys under which is remembered what is too long to be fetched for nobody.
const LONG: u8 = 0x06;

/// The outcome of a leader's request.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// Not known yet.
    Pending,
    /// Being filled into the store: followers may read along.
    Filling(Arc<SharedFill>),
    /// In the store: look again.
    Stored,
    /// The resource supports slices: look again.
    Sliced,
    /// Headers from a HEAD, which followers may share.
    Head(Arc<SharedResponse>),
    /// The response, of this status, must not be shared, by its own headers: followers and later
    /// requests go alone.
    NotStored(StatusCode),
    /// The response must not be shared, but the next one may be: the current followers go alone.
    NotThisTime,
    /// The origin gave no response; followers need not ask it again.
    Failed(FetchError),
    /// As [`Outcome::Failed`], but the leader's request may be why: followers that may have what is
    /// stored do, of the others one should lead, and who has waited for as many as it may has this
    /// failure, too.
    Broke(FetchError),
    /// It gave an error with this status, and the leader has what is stored instead: so do
    /// followers that may.
    StoodIn(StatusCode),
    /// As [`Outcome::Broke`], with an error that the origin answered with.
    Error(FetchError),
    /// The leader left before any outcome: a follower should lead.
    Abandoned,
}

type Key = Arc<[u8]>;

/// A leader's current outcome, for its followers. Most leaders have none, so this is one
/// allocation, and wakes nobody then.
#[derive(Debug)]
pub(crate) struct News {
    outcome: Mutex<Outcome>,
    changed: Notify,
    began: Instant,
    /// Times that the leader's request had been here before.
    rounds: AtomicUsize,
}

impl News {
    /// When its request began to lead.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        lock(&self.outcome)
    }

    /// Replaces the outcome if `when` holds for it.
    fn replace(&self, outcome: Outcome, when: impl FnOnce(&Outcome) -> bool) {
        let mut place = self.outcome();
        if when(&place) {
            *place = outcome;
            drop(place);
            self.changed.notify_waiters();
        }
    }
}

/// The table of requests in flight.
#[derive(Debug)]
pub(crate) struct Collapse {
    leads: Mutex<HashMap<Key, Arc<News>>>,
    uncacheable: Uncacheable,
    waiting: AtomicU64,
    /// Resources that slices are not requested of.
    pub(crate) unsliceable: Notes,
    /// Resources that are not validated behind answers.
    pub(crate) unvalidated: Pauses,
}

/// A request waiting for another one.
pub(crate) struct Waiting<'c>(&'c AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Outcome {
    /// The outcome when the origin answers with an error of its own. What one client has earned, as
    /// a 429, is none: nobody else is told.
    pub(crate) fn of_error(status: StatusCode, headers: &HeaderMap) -> Option<Outcome> {
        let retry_after = || headers.get(RETRY_AFTER).cloned().map(Arc::new);
        let error = || Outcome::Error(FetchError::Status(status, retry_after()));
        is_server_error(status).then(error)
    }

    /// The outcome for followers when a new response is not stored. An error is temporary, and
    /// properties of the leader's request do not apply to the followers'.
    pub(crate) fn of_refusal(reason: NotStoredReason, status: StatusCode) -> Outcome {
        use NotStoredReason as Not;
        match reason {
            Not::Method
            | Not::RequestNoStore
            | Not::Authorization
            | Not::Cookie
            | Not::FirstRequest
            | Not::Invalidated
            | Not::Superseded
            | Not::Truncated
            | Not::ClientGone => Outcome::Abandoned,
            Not::Status | Not::Store => Outcome::NotThisTime,
            _ if is_passing_failure(status) => Outcome::NotThisTime,
            Not::NoStore
            | Not::Private
            | Not::VaryStar
            | Not::Partial
            | Not::SetCookie
            | Not::NotCacheable
            | Not::NeverUseful
            | Not::TooLarge
            | Not::HeadersTooLarge
            | Not::Rule => Outcome::NotStored(status),
        }
    }

    /// The outcome when there is no response. A failure caused by one client's permissions, or by
    /// its own disconnect, does not apply to the followers.
    pub(crate) fn of_failure(error: &FetchError) -> Outcome {
        match error {
            error if error.may_be_ones_own() => Outcome::Broke(error.clone()),
            error if error.is_for_all() => Outcome::Failed(error.clone()),
            _ => Outcome::Abandoned,
        }
    }

    fn is_final(&self) -> bool {
        !matches!(self, Outcome::Pending | Outcome::Filling(_))
    }
}

/// The part that a request plays.
#[derive(Debug)]
pub(crate) enum Role {
    Leader(Lead),
    Follower(Arc<News>),
    /// Known to be uncacheable: no collapsing.
    Alone,
}

impl Role {
    /// The part of a request that was here so many times before. One that was here more often than
    /// its leader's may be the leader's own, come back by way of its origin: it waits for nobody,
    /// or it would wait for itself.
    pub(crate) fn after_rounds(self, rounds: usize) -> Role {
        match self {
            Role::Leader(lead) => {
                lead.news.rounds.store(rounds, Ordering::Relaxed);
                Role::Leader(lead)
            }
            Role::Follower(leader) if rounds > leader.rounds.load(Ordering::Relaxed) => Role::Alone,
            role => role,
        }
    }
}

impl Collapse {
    pub(crate) fn new() -> Arc<Collapse> {
        Arc::new(Collapse {
            leads: Mutex::default(),
            uncacheable: Uncacheable::new(),
            waiting: AtomicU64::new(0),
            unsliceable: Notes::new(),
            unvalidated: Pauses::new(),
        })
    }

    /// Counts a waiting request until the returned value is dropped.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.waiting)
    }

    /// Number of waiting requests.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Leads or follows for `key`.
    pub(crate) fn join(self: &Arc<Collapse>, key: &[u8]) -> Role {
        if self.is_uncacheable(key) { Role::Alone } else { self.lead_or_follow(key) }
    }

    /// As [`Collapse::join`], for a request with `Authorization`, whose response may be private to
    /// it.
    pub(crate) fn join_with_credentials(self: &Arc<Collapse>, key: &[u8]) -> Role {
        if self.is_uncacheable(&credentials_key(key)) { Role::Alone } else { self.join(key) }
    }

    /// As [`Collapse::join`], for the validation of a stored response: since that was cacheable,
    /// remembered uncacheability is ignored.
    pub(crate) fn lead_or_follow(self: &Arc<Collapse>, key: &[u8]) -> Role {
        let mut leads = lock(&self.leads);
        match leads.entry(Key::from(key)) {
            Entry::Occupied(lead) => Role::Follower(lead.get().clone()),
            Entry::Vacant(place) => {
                let key = place.key().clone();
                let outcome = Mutex::new(Outcome::Pending);
                let (changed, began) = (Notify::new(), Instant::now());
                let news = Arc::new(News { outcome, changed, began, rounds: AtomicUsize::new(0) });
                place.insert(news.clone());
                Role::Leader(Lead {
                    collapse: self.clone(),
                    key,
                    variant: None,
                    outcome: None,
                    news,
                })
            }
        }
    }

    /// As [`Collapse::join`], for headers only: a GET in flight brings them, too.
    pub(crate) fn join_for_head(self: &Arc<Collapse>, key: &[u8], with_credentials: bool) -> Role {
        let leads = lock(&self.leads);
        let lead = leads.get(key).cloned();
        drop(leads);
        match lead {
            Some(lead) => Role::Follower(lead),
            None if with_credentials => self.join_with_credentials(&head_key(key)),
            None => self.join(&head_key(key)),
        }
    }

    /// The response that this lead brings is outdated, or may never come: nobody else follows it
    /// under `key`.
    pub(crate) fn outdate(&self, key: &[u8], lead: &Arc<News>) {
        take_out(&mut lock(&self.leads), key, lead);
    }

    /// As [`Collapse::outdate`], for a lead that a HEAD follows: a GET's or a HEAD's.
    pub(crate) fn outdate_for_head(&self, key: &[u8], lead: &Arc<News>) {
        self.outdate(key, lead);
        self.outdate(&head_key(key), lead);
    }

    /// Remembers that headers of the resource under `key` can be shared, also those for requests
    /// like this one.
    pub(crate) fn remember_head(&self, key: &[u8], with_credentials: bool, with_cookie: bool) {
        let key = head_key(key);
        self.remember_cacheable(&key);
        if with_credentials {
            self.remember_cacheable_with_credentials(&key);
        }
        if with_cookie {
            self.remember_cacheable_with_cookie(&key);
        }
    }

    /// Remembers that headers for requests with `Authorization` cannot be shared, as those of this
    /// status.
    pub(crate) fn remember_own_head_with_credentials(&self, key: &[u8], status: StatusCode) {
        self.remember_uncacheable_with_credentials(&head_key(key), status);
    }

    /// Remembers that responses to requests with `Authorization` cannot be shared, as one with this
    /// status.
    pub(crate) fn remember_uncacheable_with_credentials(&self, key: &[u8], status: StatusCode) {
        self.uncacheable.note(&credentials_key(key), status);
    }

    /// Remembers that responses to requests with `Authorization` can be shared.
    pub(crate) fn remember_cacheable_with_credentials(&self, key: &[u8]) {
        self.remember_cacheable(&credentials_key(key));
    }

    /// Remembers that responses to requests with a cookie, or headers of them, cannot be shared, as
    /// one with this status.
    pub(crate) fn remember_own_with_cookie(&self, key: &[u8], is_head: bool, status: StatusCode) {
        self.uncacheable.note(&cookie_key(key, is_head), status);
    }

    /// Whether that is remembered.
    pub(crate) fn is_own_with_cookie(&self, key: &[u8], is_head: bool) -> bool {
        self.is_uncacheable(&cookie_key(key, is_head))
    }

    /// Remembers that responses to requests with a cookie can be shared.
    pub(crate) fn remember_cacheable_with_cookie(&self, key: &[u8]) {
        self.remember_cacheable(&cookie_key(key, false));
    }

    /// Who asks whether what is under `key` has changed is one of many again.
    pub(crate) fn forget_long(&self, key: &[u8]) {
        self.uncacheable.forget(&long_key(key));
    }

    /// Whether what is under `key` was too long to be fetched for a client that has it already: the
    /// next one that asks whether it has changed asks the origin that.
    pub(crate) fn is_long(&self, key: &[u8]) -> bool {
        self.uncacheable.has(&long_key(key))
    }

    /// True if responses under `key` are remembered as uncacheable.
    pub(crate) fn is_uncacheable(&self, key: &[u8]) -> bool {
        self.uncacheable.has(key)
    }

    /// Remembers that responses under `key` can be shared.
    pub(crate) fn remember_cacheable(&self, key: &[u8]) {
        self.uncacheable.forget(key);
    }
}

/// Takes this lead out of the table. By now another one may have its place, and keeps it.
fn take_out(leads: &mut HashMap<Key, Arc<News>>, key: &[u8], lead: &Arc<News>) {
    // Hashes the key once where it is still the lead's, as mostly.
    if let Some((key, there)) = leads.remove_entry(key)
        && !Arc::ptr_eq(&there, lead)
    {
        leads.insert(key, there);
    }
}

fn head_key(key: &[u8]) -> Vec<u8> {
    [key, &[HEAD]].concat()
}

fn credentials_key(key: &[u8]) -> Vec<u8> {
    [key, &[CREDENTIALS]].concat()
}

fn cookie_key(key: &[u8], is_head: bool) -> Vec<u8> {
    let suffix: &[u8] = if is_head { &[HEAD, COOKIE] } else { &[COOKIE] };
    [key, suffix].concat()
}

fn long_key(key: &[u8]) -> Vec<u8> {
    [key, &[LONG]].concat()
}

/// The right to fetch on behalf of all followers. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct Lead {
    collapse: Arc<Collapse>,
    key: Key,
    /// Key of the variant, once known, if not `key`.
    variant: Option<Key>,
    news: Arc<News>,
    /// The outcome, once known.
    outcome: Option<Outcome>,
}

impl Lead {
    /// Also leads for this key, unless another request does.
    pub(crate) fn leads_also(&mut self, key: &[u8]) {
        if key == &*self.key {
            return;
        }
        let mut leads = lock(&self.collapse.leads);
        if let Entry::Vacant(place) = leads.entry(Key::from(key)) {
            self.variant = Some(place.key().clone());
            place.insert(self.news.clone());
        }
    }

    /// A handle to tell the followers about the fill while the lead is held elsewhere.
    pub(crate) fn herald(&self) -> Herald {
        Herald(self.news.clone())
    }

    /// There was no sound answer: what is stored is not validated behind answers again at once.
    pub(crate) fn pause_validations(&self) {
        self.collapse.unvalidated.of(&self.key).begin();
    }

    /// Its client has the response already, which is too long to be fetched for nobody.
    pub(crate) fn remember_long(&self) {
        self.collapse.uncacheable.note(&long_key(&self.key), StatusCode::OK);
    }

    /// Publishes the outcome and gives up the lead.
    pub(crate) fn end(mut self, outcome: Outcome) {
        match outcome {
            Outcome::NotStored(status) => self.collapse.uncacheable.note(&self.key, status),
            Outcome::Stored => self.collapse.remember_cacheable(&self.key),
            _ => {}
        }
        self.outcome = Some(outcome);
    }
}

/// The lead is given up before the followers are told: a follower that joins again must not find
/// the ended lead.
impl Drop for Lead {
    fn drop(&mut self) {
        let mut leads = lock(&self.collapse.leads);
        for key in [Some(&self.key), self.variant.as_ref()].into_iter().flatten() {
            take_out(&mut leads, key, &self.news);
        }
        drop(leads);
        match self.outcome.take() {
            Some(outcome) => self.news.replace(outcome, |_| true),
            None => self.news.replace(Outcome::Abandoned, |known| !known.is_final()),
        }
    }
}

/// Sends news to the followers of a lead.
pub(crate) struct Herald(Arc<News>);

impl Herald {
    pub(crate) fn filling(&self, fill: SharedFill) {
        let filling = Outcome::Filling(Arc::new(fill));
        self.0.replace(filling, |known| matches!(known, Outcome::Pending));
    }
}

/// Waits for the first news of the leader's request, without a deadline: the caller sets one.
pub(crate) async fn news(lead: &News) -> Outcome {
    wait_for(lead, |outcome| !matches!(outcome, Outcome::Pending)).await
}

/// As [`news`], but waits for the final outcome.
pub(crate) async fn outcome(lead: &News) -> Outcome {
    wait_for(lead, Outcome::is_final).await
}

async fn wait_for(lead: &News, wanted: impl Fn(&Outcome) -> bool) -> Outcome {
    loop {
        // Registers before checking, so that no change is missed.
        let mut changed = pin!(lead.changed.notified());
        changed.as_mut().enable();
        let known = lead.outcome().clone();
        if wanted(&known) {
            return known;
        }
        changed.await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;

    #[test]
    fn one_leads_until_it_ends() {
        let collapse = Collapse::new();
        let Role::Leader(lead) = collapse.join(b"k") else { panic!("first must lead") };
        let Role::Follower(follower) = collapse.join(b"k") else { panic!("second must follow") };
        assert!(matches!(collapse.join(b"other"), Role::Leader(_)));
        lead.end(Outcome::Stored);
        assert!(matches!(*follower.outcome(), Outcome::Stored));
        let Role::Leader(mut lead) = collapse.join(b"k") else { panic!("the key is free again") };
        lead.leads_also(b"k variant");
        assert!(matches!(collapse.join(b"k variant"), Role::Follower(_)));
        let Role::Follower(follower) = collapse.join(b"k") else { panic!("second must follow") };
        drop(lead);
        assert!(matches!(collapse.join(b"k variant"), Role::Leader(_)));
        assert!(matches!(*follower.outcome(), Outcome::Abandoned));
    }

    #[test]
    fn one_leads_anew_what_a_change_has_outdated() {
        let collapse = Collapse::new();
        let Role::Leader(mut old) = collapse.join(b"k") else { panic!("first must lead") };
        old.leads_also(b"k variant");
        let Role::Follower(followed) = collapse.join(b"k") else { panic!("second must follow") };
        collapse.outdate(b"k", &followed);
        let Role::Leader(new) = collapse.join(b"k") else { panic!("one leads anew") };
        collapse.outdate(b"k", &followed);
        assert!(matches!(collapse.join(b"k"), Role::Follower(_)), "the others follow that one");
        drop(old);
        assert!(matches!(collapse.join(b"k variant"), Role::Leader(_)));
        assert!(matches!(collapse.join(b"k"), Role::Follower(_)), "it is not the old one's to end");
        new.end(Outcome::Stored);
        assert!(matches!(collapse.join(b"k"), Role::Leader(_)));
    }

    /// Joins the key again as soon as it is told.
    struct AskAgain {
        collapse: Arc<Collapse>,
        role: Mutex<Option<Role>>,
    }

    impl Wake for AskAgain {
        fn wake(self: Arc<Self>) {
            *self.role.lock().unwrap() = Some(self.collapse.join(b"k"));
        }
    }

    #[test]
    fn nobody_follows_a_lead_that_has_ended() {
        let collapse = Collapse::new();
        let Role::Leader(lead) = collapse.join(b"k") else { panic!("the key is free") };
        let Role::Follower(follower) = collapse.join(b"k") else { panic!("second follows") };
        let again = Arc::new(AskAgain { collapse: Arc::clone(&collapse), role: Mutex::new(None) });
        let waker = Waker::from(Arc::clone(&again));
        let mut waiting = pin!(outcome(&follower));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        lead.end(Outcome::Abandoned);
        let role = again.role.lock().unwrap().take();
        assert!(matches!(role, Some(Role::Leader(_))), "{role:?}");
    }

    #[test]
    fn heads_follow_a_get_and_lead_only_each_other() {
        let collapse = Collapse::new();
        let Role::Leader(head) = collapse.join_for_head(b"k", false) else {
            panic!("nobody leads")
        };
        let Role::Leader(get) = collapse.join(b"k") else { panic!("a GET follows no HEAD") };
        let Role::Follower(follower) = collapse.join_for_head(b"k", false) else {
            panic!("a GET leads")
        };
        get.end(Outcome::Stored);
        assert!(matches!(*follower.outcome(), Outcome::Stored));
        let Role::Follower(silent) = collapse.join_for_head(b"k", false) else {
            panic!("a HEAD leads")
        };
        collapse.outdate_for_head(b"k", &silent);
        let Role::Leader(anew) = collapse.join_for_head(b"k", false) else {
            panic!("one leads anew")
        };
        assert!(matches!(collapse.join_for_head(b"k", false), Role::Follower(_)));
        drop(anew);
        head.end(Outcome::NotStored(StatusCode::OK));
        assert!(matches!(collapse.join_for_head(b"k", false), Role::Alone));
        assert!(matches!(collapse.join_for_head(b"k", true), Role::Alone));
        collapse.remember_head(b"k", false, false);
        collapse.remember_own_head_with_credentials(b"k", StatusCode::OK);
        assert!(matches!(collapse.join_for_head(b"k", true), Role::Alone));
        assert!(matches!(collapse.join_for_head(b"k", false), Role::Leader(_)));
        collapse.remember_own_with_cookie(b"k", true, StatusCode::OK);
        collapse.remember_head(b"k", true, true);
        assert!(matches!(collapse.join_for_head(b"k", true), Role::Leader(_)));
        assert!(!collapse.is_own_with_cookie(b"k", true));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_missing_is_not_taken_for_uncacheable_for_long() {
        let collapse = Collapse::new();
        for (status, seconds) in [(404, 5), (200, 120)] {
            let status = StatusCode::from_u16(status).unwrap();
            let Role::Leader(lead) = collapse.join(b"k") else { panic!("{status}: one leads") };
            lead.end(Outcome::of_refusal(NotStoredReason::NeverUseful, status));
            assert!(matches!(collapse.join(b"k"), Role::Alone), "{status}");
            tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
        }
        let Role::Leader(_lead) = collapse.join(b"k") else { panic!("it is found out anew") };
        assert!(matches!(collapse.join(b"k"), Role::Follower(_)));
    }

    #[test]
    fn uncacheable_is_remembered_until_it_is_stored() {
        let collapse = Collapse::new();
        let Role::Leader(lead) = collapse.join(b"k") else { panic!("first must lead") };
        lead.end(Outcome::NotStored(StatusCode::OK));
        assert!(matches!(collapse.join(b"k"), Role::Alone));
        collapse.remember_cacheable(b"k");
        assert!(matches!(collapse.join(b"k"), Role::Leader(_)));
    }

    #[test]
    fn only_what_a_response_says_is_remembered() {
        use NotStoredReason as Not;
        for (reason, status, remembered) in [
            (Not::NoStore, 200, true),
            (Not::NotCacheable, 404, true),
            (Not::NotCacheable, 503, false),
            (Not::NotCacheable, 429, false),
            (Not::NoStore, 503, false),
            (Not::Authorization, 200, false),
            (Not::Cookie, 200, false),
            (Not::RequestNoStore, 200, false),
            (Not::Truncated, 200, false),
            (Not::Store, 200, false),
        ] {
            let collapse = Collapse::new();
            let Role::Leader(lead) = collapse.join(b"k") else { panic!("first must lead") };
            lead.end(Outcome::of_refusal(reason, StatusCode::from_u16(status).unwrap()));
            assert_eq!(collapse.is_uncacheable(b"k"), remembered, "{reason:?} {status}");
            assert!(matches!(collapse.lead_or_follow(b"k"), Role::Leader(_)));
        }
    }

    #[test]
    fn what_credentials_bring_is_remembered_apart() {
        let collapse = Collapse::new();
        collapse.remember_uncacheable_with_credentials(b"k", StatusCode::OK);
        assert!(matches!(collapse.join_with_credentials(b"k"), Role::Alone));
        assert!(matches!(collapse.join(b"k"), Role::Leader(_)));
        collapse.remember_cacheable_with_credentials(b"k");
        assert!(matches!(collapse.join_with_credentials(b"k"), Role::Leader(_)));
    }

    #[test]
    fn what_a_cookie_brings_is_remembered_apart() {
        let collapse = Collapse::new();
        collapse.remember_own_with_cookie(b"k", false, StatusCode::OK);
        assert!(collapse.is_own_with_cookie(b"k", false));
        assert!(!collapse.is_own_with_cookie(b"k", true));
        assert!(matches!(collapse.join(b"k"), Role::Leader(_)));
        collapse.remember_cacheable_with_cookie(b"k");
        assert!(!collapse.is_own_with_cookie(b"k", false));
    }

    #[test]
    fn who_waits_learns_how_it_ended() {
        let collapse = Collapse::new();
        let Role::Leader(lead) = collapse.join(b"k") else { panic!("first must lead") };
        let Role::Follower(follower) = collapse.join(b"k") else { panic!("second must follow") };
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(news(&follower));
        let mut last = pin!(outcome(&follower));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(last.as_mut().poll(&mut context).is_pending());
        lead.end(Outcome::Stored);
        assert!(matches!(first.as_mut().poll(&mut context), Poll::Ready(Outcome::Stored)));
        assert!(matches!(last.as_mut().poll(&mut context), Poll::Ready(Outcome::Stored)));
    }
}
