//! One rule: its conditions, its actions, and which of them do not go together.
//!
//! Plain data, no threads.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, HOST, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderName, HeaderValue, Method};
use ipnet::IpNet;

use super::{
    CookieMatch, FieldValue, Glob, HeaderMatch, HostHeader, OwnLimits, PrefixChange, Respond, Term,
};
use crate::rules::key::QueryRule;

/// The hint that a rule sets for a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    Love,
    Hate,
    Neutral,
}

/// At which request for a resource its response is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    Always,
    SecondHit,
}

/// Conditions of a rule; without any, the rule always matches. Each of them must be met, a list as
/// `term` has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    /// `http` or `https`.
    pub(crate) scheme: Option<&'static str>,
    /// The client is in one of these networks.
    pub(crate) clients: Vec<Term<IpNet>>,
    pub(crate) hosts: Vec<Term<Glob>>,
    pub(crate) paths: Vec<Term<Glob>>,
    pub(crate) prefixes: Vec<Term<String>>,
    pub(crate) queries: Vec<Term<Glob>>,
    pub(crate) cookies: Vec<Term<CookieMatch>>,
    pub(crate) methods: Vec<Term<Method>>,
    /// All of these must be met.
    pub(crate) headers: Vec<Term<HeaderMatch>>,
    pub(crate) statuses: Vec<Term<RangeInclusive<u16>>>,
    pub(crate) types: Vec<Term<Glob>>,
    pub(crate) size_min: Option<u64>,
    pub(crate) size_max: Option<u64>,
}

/// Actions of a rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct Actions {
    pub(crate) pass: Option<bool>,
    /// URLs of the site's equivalent origins.
    pub(crate) to: Vec<String>,
    /// Origins beside these for when none of them answers.
    pub(crate) backup: Vec<String>,
    /// What these are asked with, if not as the proxy's own origin is.
    pub(crate) host_header: Option<HostHeader>,
    pub(crate) respond: Respond,
    pub(crate) prefix: Option<Arc<PrefixChange>>,
    pub(crate) key_headers: Vec<HeaderName>,
    pub(crate) key_cookies: Vec<String>,
    pub(crate) key_query: Option<QueryRule>,
    pub(crate) key_sort_query: Option<bool>,
    pub(crate) request_set: Vec<(HeaderName, FieldValue)>,
    pub(crate) request_remove: Vec<HeaderName>,
    /// Names of cookies that are taken off requests.
    pub(crate) cookies_remove: Vec<Glob>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) stale_while_revalidate: Option<Duration>,
    pub(crate) stale_if_error: Option<Duration>,
    pub(crate) store: Option<bool>,
    pub(crate) admission: Option<Admission>,
    pub(crate) group: Option<String>,
    pub(crate) hint: Option<Hint>,
    pub(crate) response_set: Vec<(HeaderName, HeaderValue)>,
    pub(crate) response_remove: Vec<HeaderName>,
    pub(crate) answer_set: Vec<(HeaderName, FieldValue)>,
    pub(crate) answer_remove: Vec<HeaderName>,
    /// Limits of requests in place of the configuration's.
    pub(crate) limits: Option<Arc<OwnLimits>>,
    /// Whether requests have lines in the log.
    pub(crate) log: Option<bool>,
}

impl Actions {
    pub(super) fn changes_queries(&self) -> bool {
        self.key_query.is_some() || self.key_sort_query.is_some()
    }

    /// Whether a field that the origin gets has what a client asked for, by this.
    pub(super) fn tells(&self, has: fn(&FieldValue) -> bool) -> bool {
        self.request_set.iter().any(|(_, value)| has(value))
    }

    pub(super) fn has_request_id(&self) -> bool {
        let mut set = self.request_set.iter().chain(&self.answer_set);
        set.any(|(_, value)| value.has_request_id())
    }

    /// Whether they edit answers as they are delivered.
    pub(super) fn edits_answers(&self) -> bool {
        !self.answer_set.is_empty() || !self.answer_remove.is_empty()
    }

    /// Whether they add to cache keys.
    pub(super) fn extends_keys(&self) -> bool {
        !self.key_headers.is_empty()
            || !self.key_cookies.is_empty()
            || !self.to.is_empty()
            || self.prefix.is_some()
    }

    /// The first action that is done before there is a response, `respond` aside.
    fn early(&self) -> Option<&'static str> {
        let prefix = self.prefix.as_deref();
        first(&[
            ("pass", self.pass.is_some()),
            ("to", !self.to.is_empty()),
            ("backup", !self.backup.is_empty()),
            ("host_header", self.host_header.is_some()),
            ("strip_prefix", prefix.is_some_and(|prefix| !prefix.strip.is_empty())),
            ("add_prefix", prefix.is_some_and(|prefix| !prefix.add.is_empty())),
            ("key_headers", !self.key_headers.is_empty()),
            ("key_cookies", !self.key_cookies.is_empty()),
            ("key_query", self.key_query.is_some()),
            ("key_sort_query", self.key_sort_query.is_some()),
            ("request_set", !self.request_set.is_empty()),
            ("request_remove", !self.request_remove.is_empty()),
            ("cookies_remove", !self.cookies_remove.is_empty()),
        ])
        .or(self.limits.as_ref().and_then(|limits| limits.first_key()))
    }

    /// The first action that is done once there is one, edits of its headers aside.
    fn late(&self) -> Option<&'static str> {
        first(&[
            ("ttl", self.ttl.is_some()),
            ("stale_while_revalidate", self.stale_while_revalidate.is_some()),
            ("stale_if_error", self.stale_if_error.is_some()),
            ("store", self.store.is_some()),
            ("admission", self.admission.is_some()),
            ("group", self.group.is_some()),
            ("hint", self.hint.is_some()),
        ])
    }
}

/// The first action of these that is used.
fn first(actions: &[(&'static str, bool)]) -> Option<&'static str> {
    actions.iter().find(|(_, used)| *used).map(|(name, _)| *name)
}

/// One rule.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) when: Conditions,
    pub(crate) then: Actions,
    pub(crate) last: bool,
}

/// Headers that frame a message or belong to the connection: rules may not edit them.
pub(crate) fn edits_allowed(name: &HeaderName) -> bool {
    ![CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA].contains(name)
}

/// The same of answers as they are delivered: what says how their bytes are to be read is settled.
pub(crate) fn answer_edits_allowed(name: &HeaderName) -> bool {
    edits_allowed(name) && ![CONTENT_ENCODING, CONTENT_RANGE].contains(name)
}

impl Rule {
    /// Whether it adds to keys, or keeps later rules from that.
    pub(super) fn decides_on_keys(&self) -> bool {
        self.then.extends_keys() || self.then.changes_queries() || self.last
    }

    /// Whether it does anything before there is a response, or keeps later rules from that.
    pub(super) fn counts_for_requests(&self) -> bool {
        let then = &self.then;
        let acts = then.early().is_some() || then.respond.answers() || then.log.is_some();
        acts || then.edits_answers() || self.last
    }

    /// A rule that matches everything and does nothing.
    pub(crate) fn named(name: String) -> Rule {
        let (when, then) = (Conditions::default(), Actions::default());
        Rule { name, when, then, last: false }
    }

    /// Finds contradictions between conditions and actions.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.problem().map_err(|problem| format!("{}{problem}", self.name))
    }

    fn problem(&self) -> Result<(), String> {
        let (when, then) = (&self.when, &self.then);
        let (early, late) = (then.early(), then.late());
        then.respond.check().map_err(|problem| format!(": {problem}"))?;
        if let (true, Some(name)) = (then.respond.answers(), early.or(late)) {
            return Err(format!(
                ": `{name}` means nothing beside `respond`, which asks neither cache nor origin"
            ));
        }
        if then.changes_queries() && !when.are_on_url() {
            let text = ": `key_query` and `key_sort_query` are about URLs, by which purges find what \
                        is stored: they can only depend on host, scheme, path, prefix and query";
            return Err(text.to_owned());
        }
        if then.host_header.is_some() && then.to.is_empty() {
            let text = ": `host_header` says what the origins of `to` are asked with: add `to`";
            return Err(text.to_owned());
        }
        if !then.backup.is_empty() && then.to.is_empty() {
            return Err(": `backup` is for when no origin of `to` answers: add `to`".to_owned());
        }
        let early = if then.respond.answers() { Some("respond") } else { early };
        let early = early.or(then.log.map(|_| "log"));
        if let (Some(name), true) = (early, when.is_on_response()) {
            return Err(format!(
                ": `{name}` is done before there is a response, so that it cannot depend on its \
                 status, type or size"
            ));
        }
        if let (Some(min), Some(max)) = (when.size_min, when.size_max)
            && min > max
        {
            return Err(": `size_min` is larger than `size_max`".to_owned());
        }
        let edits = !then.response_set.is_empty()
            || !then.response_remove.is_empty()
            || then.edits_answers();
        if early.is_none() && late.is_none() && !edits && !self.last {
            return Err(" does nothing: add `ttl`, `pass` or another action".to_owned());
        }
        Ok(())
    }
}
