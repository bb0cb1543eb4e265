//! Concurrent requests for one missing resource become one request to the origin.
//!
//! The first request to [`Collapse::join`] a key leads; the others wait for its outcome.
//! Invariants: a leader that ends in any manner, panics included, tells its followers by dropping
//! its [`Lead`]; no follower waits without a deadline; a key is in the table only while its `Lead`
//! lives, and until a follower finds that a change has outdated the leader's response, or that the
//! leader waits in vain, or new settings find it waiting: then one who comes after it leads. When a
//! resource turns out to vary, its lead also becomes the lead for the variant. HEADs lead under
//! keys of their own, but follow a GET's lead while there is one. Uncacheable resources are
//! remembered for a while, so that requests for them do not queue.
//!
//! Threads: shared by all workers; the lock is held for one table operation, never across a wait.

mod key_notes;
mod lead;
mod outcome;
mod pauses;
pub(crate) mod rounds;
pub(crate) mod sharing;
mod uncacheable;
pub(crate) mod unsliceable;

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http::StatusCode;

use crate::collapse::pauses::Pauses;
use crate::collapse::uncacheable::Uncacheable;
use crate::collapse::unsliceable::Notes;
use crate::io::locks::lock;
use crate::rules::NotStoredReason;

pub(crate) use lead::{Lead, Leader, News};
pub(crate) use outcome::Outcome;

/// Suffix of the keys under which HEADs lead. No other key ends with it, since header fields cannot
/// contain it.
const OF_HEAD: u8 = 0x04;
/// Suffixes of the keys under which is remembered that what requests with `Authorization`, or with
/// a cookie, bring is their own.
const OF_CREDENTIALS: u8 = 0x05;
const OF_COOKIE: u8 = 0x07;
/// Before the range that is asked for, in the keys under which requests for it lead.
const OF_RANGE: u8 = 0x08;
/// Suffix of the keys under which is remembered what is too long to be fetched for nobody.
const LONG: u8 = 0x06;

type Key = Arc<[u8]>;

/// The requests whose responses may be alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) is_head: bool,
    /// `Authorization`: the response may be private to it.
    pub(crate) with_credentials: bool,
    pub(crate) with_cookie: bool,
}

impl Who {
    /// The key that they lead under, for what is stored under `key`.
    fn key(self, key: &[u8]) -> Cow<'_, [u8]> {
        if self.is_head { [key, &[OF_HEAD]].concat().into() } else { key.into() }
    }

    /// The key under which is remembered that what they bring is their own.
    fn own_key(self, key: &[u8], suffix: u8) -> Vec<u8> {
        [&self.key(key), &[suffix][..]].concat()
    }
}

fn long_key(key: &[u8]) -> Vec<u8> {
    [key, &[LONG]].concat()
}

/// The table of requests in flight.
#[derive(Debug)]
pub(crate) struct Collapse {
    leads: Mutex<HashMap<Key, Arc<Leader>>>,
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

/// The part that a request plays.
#[derive(Debug)]
pub(crate) enum Role {
    Leader(Lead),
    Follower(Arc<Leader>),
    /// Known to be uncacheable: no collapsing.
    Alone,
}

impl Role {
    /// The part of a request that was here so many times before. One that was here more often than
    /// its leader's may be the leader's own, come back by way of its origin: it waits for nobody,
    /// or it would wait for itself.
    pub(crate) fn after_repeats(self, via_repeats: usize) -> Role {
        match self {
            Role::Leader(lead) => {
                lead.set_via_repeats(via_repeats);
                Role::Leader(lead)
            }
            Role::Follower(leader) if via_repeats > leader.via_repeats() => Role::Alone,
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

    /// Leads or follows for `key`. A HEAD follows a GET in flight, which brings headers, too.
    pub(crate) fn join(self: &Arc<Collapse>, key: &[u8], who: Who) -> Role {
        if self.is_own_by_cookie(key, who) {
            return Role::Alone;
        }
        if who.is_head
            && let Some(get) = lock(&self.leads).get(key)
        {
            return Role::Follower(get.clone());
        }
        let led = who.key(key);
        if self.is_own_by_credentials(key, who) || self.is_uncacheable(&led) {
            return Role::Alone;
        }
        self.lead_or_follow(&led)
    }

    fn is_own_by_cookie(&self, key: &[u8], who: Who) -> bool {
        who.with_cookie && self.is_uncacheable(&who.own_key(key, OF_COOKIE))
    }

    fn is_own_by_credentials(&self, key: &[u8], who: Who) -> bool {
        who.with_credentials && self.is_uncacheable(&who.own_key(key, OF_CREDENTIALS))
    }

    /// As [`Collapse::join`], for a range that is asked for as it is, also beside others for other
    /// ranges of the same; follows who leads for the whole, if `along`. Also the key led under.
    pub(crate) fn join_range(
        self: &Arc<Collapse>,
        (key, range): (&[u8], &[u8]),
        who: Who,
        along: bool,
    ) -> (Role, Vec<u8>) {
        let led = [key, &[OF_RANGE], range].concat();
        if self.is_own_by_cookie(key, who)
            || self.is_own_by_credentials(key, who)
            || self.is_uncacheable(key)
            || self.is_uncacheable(&led)
        {
            return (Role::Alone, led);
        }
        let whole = lock(&self.leads).get(key).filter(|_| along).cloned();
        match whole {
            Some(leader) => (Role::Follower(leader), key.to_vec()),
            None => (self.lead_or_follow(&led), led),
        }
    }

    /// As [`Collapse::join`], for the validation of a stored response: since that was cacheable,
    /// remembered uncacheability is ignored.
    pub(crate) fn lead_or_follow(self: &Arc<Collapse>, key: &[u8]) -> Role {
        match lock(&self.leads).entry(Key::from(key)) {
            Entry::Occupied(leader) => Role::Follower(leader.get().clone()),
            Entry::Vacant(place) => {
                let (lead, leader) = Lead::begin(self, place.key().clone());
                place.insert(leader);
                Role::Leader(lead)
            }
        }
    }

    /// The response that this leader brings is outdated, or may never come: nobody else follows it
    /// for `key`, be it a GET's or a HEAD's.
    pub(crate) fn outdate(&self, key: &[u8], leader: &Arc<Leader>) {
        let (mut leads, head) = (lock(&self.leads), Who { is_head: true, ..Who::default() });
        take_out(&mut leads, key, leader);
        take_out(&mut leads, &head.key(key), leader);
    }

    /// Nobody else follows a leader that has brought nothing yet: the settings have changed.
    pub(crate) fn outdate_silent(&self) {
        lock(&self.leads).retain(|_, leader| leader.has_news());
    }

    /// Remembers that these requests, and those without credentials or a cookie, can share the
    /// responses under `key`.
    pub(crate) fn remember_shared(&self, key: &[u8], who: Who) {
        self.uncacheable.forget(&who.key(key));
        if who.with_credentials {
            self.uncacheable.forget(&who.own_key(key, OF_CREDENTIALS));
        }
        if who.with_cookie {
            self.uncacheable.forget(&who.own_key(key, OF_COOKIE));
        }
    }

    /// Whether what a GET with a cookie brings is remembered as its own.
    pub(crate) fn is_own_with_cookie(&self, key: &[u8]) -> bool {
        self.is_uncacheable(&Who::default().own_key(key, OF_COOKIE))
    }

    /// Remembers that responses under `key` cannot be shared, as one with this status, if the
    /// credentials or the cookie of its request were why.
    pub(crate) fn remember_own(
        &self,
        key: &[u8],
        who: Who,
        reason: NotStoredReason,
        status: StatusCode,
    ) {
        let suffix = match reason {
            NotStoredReason::Authorization => OF_CREDENTIALS,
            NotStoredReason::Cookie => OF_COOKIE,
            _ => return,
        };
        self.uncacheable.note(&who.own_key(key, suffix), status);
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
}

/// Takes this leader out of the table. By now another one may have its place, and keeps it.
fn take_out(leads: &mut HashMap<Key, Arc<Leader>>, key: &[u8], leader: &Arc<Leader>) {
    // Hashes the key once where it is still the leader's, as mostly.
    if let Some((key, there)) = leads.remove_entry(key)
        && !Arc::ptr_eq(&there, leader)
    {
        leads.insert(key, there);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;

    const ANYBODY: Who = Who { is_head: false, with_credentials: false, with_cookie: false };
    const WITH_CREDENTIALS: Who = Who { with_credentials: true, ..ANYBODY };
    const WITH_COOKIE: Who = Who { with_cookie: true, ..ANYBODY };
    const HEAD: Who = Who { is_head: true, ..ANYBODY };
    const HEAD_WITH_CREDENTIALS: Who = Who { with_credentials: true, ..HEAD };
    const HEAD_WITH_COOKIE: Who = Who { with_cookie: true, ..HEAD };

    /// The outcome that a leader's followers know of.
    fn told(leader: &Leader) -> Option<Outcome> {
        let mut waiting = pin!(leader.outcome());
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_leads_until_it_ends() {
        let collapse = Collapse::new();
        let Role::Leader(lead) = collapse.join(b"k", ANYBODY) else { panic!("first must lead") };
        let Role::Follower(follower) = collapse.join(b"k", ANYBODY) else {
            panic!("second must follow")
        };
        assert!(matches!(collapse.join(b"other", ANYBODY), Role::Leader(_)));
        lead.end(Outcome::Stored);
        assert!(matches!(told(&follower), Some(Outcome::Stored)));
        let Role::Leader(mut lead) = collapse.join(b"k", ANYBODY) else {
            panic!("the key is free again")
        };
        lead.leads_also(b"k variant");
        assert!(matches!(collapse.join(b"k variant", ANYBODY), Role::Follower(_)));
        let Role::Follower(follower) = collapse.join(b"k", ANYBODY) else {
            panic!("second must follow")
        };
        drop(lead);
        assert!(matches!(collapse.join(b"k variant", ANYBODY), Role::Leader(_)));
        assert!(matches!(told(&follower), Some(Outcome::Abandoned)));
    }

    #[test]
    fn who_asks_for_a_range_follows_the_whole_or_who_asks_for_the_same() {
        let collapse = Collapse::new();
        let join =
            |range: &'static [u8], along| collapse.join_range((b"k", range), ANYBODY, along).0;
        let Role::Leader(lead) = join(b"bytes=-5", true) else { panic!("first must lead") };
        assert!(matches!(join(b"bytes=-5", true), Role::Follower(_)));
        assert!(matches!(join(b"bytes=-6", true), Role::Leader(_)), "another range");
        let Role::Leader(whole) = collapse.join(b"k", ANYBODY) else { panic!("it is the first") };
        let follower = collapse.join_range((b"k", b"bytes=-6"), ANYBODY, true);
        assert!(matches!(follower, (Role::Follower(_), key) if key == b"k"));
        assert!(matches!(join(b"bytes=-6", false), Role::Leader(_)), "the whole comes too late");
        lead.end(Outcome::NotStored(StatusCode::PARTIAL_CONTENT));
        assert!(matches!(join(b"bytes=-5", false), Role::Alone));
        assert!(matches!(join(b"bytes=-7", false), Role::Leader(_)));
        whole.end(Outcome::NotStored(StatusCode::OK));
        assert!(matches!(join(b"bytes=-7", true), Role::Alone));
    }

    #[test]
    fn one_leads_anew_what_a_change_has_outdated() {
        let collapse = Collapse::new();
        let Role::Leader(mut old) = collapse.join(b"k", ANYBODY) else { panic!("first must lead") };
        old.leads_also(b"k variant");
        let Role::Follower(followed) = collapse.join(b"k", ANYBODY) else {
            panic!("second must follow")
        };
        collapse.outdate(b"k", &followed);
        let Role::Leader(new) = collapse.join(b"k", ANYBODY) else { panic!("one leads anew") };
        collapse.outdate(b"k", &followed);
        assert!(
            matches!(collapse.join(b"k", ANYBODY), Role::Follower(_)),
            "the others follow that one"
        );
        drop(old);
        assert!(matches!(collapse.join(b"k variant", ANYBODY), Role::Leader(_)));
        assert!(
            matches!(collapse.join(b"k", ANYBODY), Role::Follower(_)),
            "it is not the old one's to end"
        );
        new.end(Outcome::Stored);
        assert!(matches!(collapse.join(b"k", ANYBODY), Role::Leader(_)));
    }

    /// Joins the key again as soon as it is told.
    struct AskAgain {
        collapse: Arc<Collapse>,
        role: Mutex<Option<Role>>,
    }

    impl Wake for AskAgain {
        fn wake(self: Arc<Self>) {
            *self.role.lock().unwrap() = Some(self.collapse.join(b"k", ANYBODY));
        }
    }

    #[test]
    fn nobody_follows_a_lead_that_has_ended() {
        let collapse = Collapse::new();
        let Role::Leader(lead) = collapse.join(b"k", ANYBODY) else { panic!("the key is free") };
        let Role::Follower(follower) = collapse.join(b"k", ANYBODY) else {
            panic!("second follows")
        };
        let again = Arc::new(AskAgain { collapse: Arc::clone(&collapse), role: Mutex::new(None) });
        let waker = Waker::from(Arc::clone(&again));
        let mut waiting = pin!(follower.outcome());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        lead.end(Outcome::Abandoned);
        let role = again.role.lock().unwrap().take();
        assert!(matches!(role, Some(Role::Leader(_))), "{role:?}");
    }

    #[test]
    fn heads_follow_a_get_and_lead_only_each_other() {
        let collapse = Collapse::new();
        let Role::Leader(head) = collapse.join(b"k", HEAD) else { panic!("nobody leads") };
        let Role::Leader(get) = collapse.join(b"k", ANYBODY) else {
            panic!("a GET follows no HEAD")
        };
        let Role::Follower(follower) = collapse.join(b"k", HEAD) else { panic!("a GET leads") };
        get.end(Outcome::Stored);
        assert!(matches!(told(&follower), Some(Outcome::Stored)));
        let Role::Follower(silent) = collapse.join(b"k", HEAD) else { panic!("a HEAD leads") };
        collapse.outdate(b"k", &silent);
        let Role::Leader(anew) = collapse.join(b"k", HEAD) else { panic!("one leads anew") };
        assert!(matches!(collapse.join(b"k", HEAD), Role::Follower(_)));
        drop(anew);
        head.end(Outcome::NotStored(StatusCode::OK));
        assert!(matches!(collapse.join(b"k", HEAD), Role::Alone));
        assert!(matches!(collapse.join(b"k", HEAD_WITH_CREDENTIALS), Role::Alone));
        collapse.remember_shared(b"k", HEAD);
        collapse.remember_own(b"k", HEAD, NotStoredReason::Authorization, StatusCode::OK);
        assert!(matches!(collapse.join(b"k", HEAD_WITH_CREDENTIALS), Role::Alone));
        assert!(matches!(collapse.join(b"k", HEAD), Role::Leader(_)));
        collapse.remember_own(b"k", HEAD, NotStoredReason::Cookie, StatusCode::OK);
        assert!(matches!(collapse.join(b"k", HEAD_WITH_COOKIE), Role::Alone));
        let all = Who { with_cookie: true, ..HEAD_WITH_CREDENTIALS };
        collapse.remember_shared(b"k", all);
        assert!(matches!(collapse.join(b"k", HEAD_WITH_CREDENTIALS), Role::Leader(_)));
        assert!(matches!(collapse.join(b"k", all), Role::Leader(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_missing_is_not_taken_for_uncacheable_for_long() {
        let collapse = Collapse::new();
        for (status, seconds) in [(404, 5), (200, 120)] {
            let status = StatusCode::from_u16(status).unwrap();
            let Role::Leader(lead) = collapse.join(b"k", ANYBODY) else {
                panic!("{status}: one leads")
            };
            lead.end(Outcome::of_refusal(NotStoredReason::NeverUseful, status));
            assert!(matches!(collapse.join(b"k", ANYBODY), Role::Alone), "{status}");
            tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
        }
        let Role::Leader(_lead) = collapse.join(b"k", ANYBODY) else {
            panic!("it is found out anew")
        };
        assert!(matches!(collapse.join(b"k", ANYBODY), Role::Follower(_)));
    }

    #[test]
    fn uncacheable_is_remembered_until_it_is_stored() {
        let collapse = Collapse::new();
        let Role::Leader(lead) = collapse.join(b"k", ANYBODY) else { panic!("first must lead") };
        lead.end(Outcome::NotStored(StatusCode::OK));
        assert!(matches!(collapse.join(b"k", ANYBODY), Role::Alone));
        collapse.remember_shared(b"k", ANYBODY);
        assert!(matches!(collapse.join(b"k", ANYBODY), Role::Leader(_)));
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
            let Role::Leader(lead) = collapse.join(b"k", ANYBODY) else {
                panic!("first must lead")
            };
            lead.end(Outcome::of_refusal(reason, StatusCode::from_u16(status).unwrap()));
            assert_eq!(collapse.is_uncacheable(b"k"), remembered, "{reason:?} {status}");
            assert!(matches!(collapse.lead_or_follow(b"k"), Role::Leader(_)));
        }
    }

    #[test]
    fn what_credentials_or_a_cookie_bring_is_remembered_apart() {
        use NotStoredReason as Not;
        for (who, reason) in [(WITH_CREDENTIALS, Not::Authorization), (WITH_COOKIE, Not::Cookie)] {
            let collapse = Collapse::new();
            collapse.remember_own(b"k", who, Not::NoStore, StatusCode::OK);
            assert!(matches!(collapse.join(b"k", who), Role::Leader(_)), "{reason:?}");
            collapse.remember_own(b"k", who, reason, StatusCode::OK);
            assert!(matches!(collapse.join(b"k", who), Role::Alone), "{reason:?}");
            assert!(matches!(collapse.join(b"k", ANYBODY), Role::Leader(_)), "{reason:?}");
            let head = Who { is_head: true, ..who };
            assert!(matches!(collapse.join(b"k", head), Role::Leader(_)), "{reason:?}");
            collapse.remember_shared(b"k", who);
            assert!(matches!(collapse.join(b"k", who), Role::Leader(_)), "{reason:?}");
        }
    }

    #[test]
    fn who_waits_learns_how_it_ended() {
        let collapse = Collapse::new();
        let Role::Leader(lead) = collapse.join(b"k", ANYBODY) else { panic!("first must lead") };
        let Role::Follower(follower) = collapse.join(b"k", ANYBODY) else {
            panic!("second must follow")
        };
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(follower.news());
        let mut last = pin!(follower.outcome());
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(last.as_mut().poll(&mut context).is_pending());
        lead.end(Outcome::Stored);
        assert!(matches!(
            first.as_mut().poll(&mut context),
            Poll::Ready(News::Ended(Outcome::Stored))
        ));
        assert!(matches!(last.as_mut().poll(&mut context), Poll::Ready(Outcome::Stored)));
    }
}
