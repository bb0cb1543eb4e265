//! The operator's rules: conditions on requests and responses, and their actions.
//!
//! Rules are evaluated in order. Every rule that matches applies; a later one overrides an earlier
//! one's setting of the same kind, and `last` ends the evaluation. A rule with a condition on the
//! response has no effect before there is one; such a rule is refused at parse time if its actions
//! would have to happen earlier. Invariants: pure functions of message and rules; no rule touches
//! headers that frame a message or name its host. Threads: read by all workers.

// Edits of what leaves.
mod answers;
// Cookies taken off requests.
pub(crate) mod cookies;
// Values filled in.
mod filled;
// Patterns.
mod glob;
// Which rules may be for a request.
mod index;
// Time limits and lengths of their own.
mod limits;
// Conditions.
mod matching;
// Another path for the origin.
mod prefix;
// An answer at once.
mod respond;
// A rule: its conditions and actions.
mod rule;
// Another origin.
mod site;
// Terms of a condition's list.
mod term;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use self::index::RuleIndex;
pub(crate) use self::matching::AskedUrl;
use crate::rules::key::QueryRule;
pub(crate) use answers::{AnswerEdits, edited_answer};
pub(crate) use filled::{FieldValue, Told};
pub(crate) use glob::{Glob, Segments};
pub(crate) use limits::OwnLimits;
pub(crate) use matching::{CookieMatch, HeaderMatch, RequestView, ResponseView};
pub(crate) use prefix::PrefixChange;
pub(crate) use respond::{Location, Respond};
pub(crate) use rule::{
    Actions, Admission, Conditions, Hint, Rule, answer_edits_allowed, edits_allowed,
};
pub(crate) use site::{HostHeader, Site};
pub(crate) use term::{Term, split_not};

/// The site that a request is for: the proxy's own, or one whose origins a rule names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SiteId(usize);

impl SiteId {
    /// The site that the proxy was started for.
    pub(crate) const MAIN: SiteId = SiteId(0);

    /// Its index among the sites that rules name.
    pub(crate) fn among_ruled(self) -> Option<usize> {
        self.0.checked_sub(1)
    }
}

/// The index of a rule that answers by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answering(usize);

/// Which parameters of a query keys have, and whether in order; `None`: as configured.
pub(crate) type QueryOfKey<'r> = (Option<&'r QueryRule>, Option<bool>);

/// Parts of a URL, besides the path, by which rules decide on keys.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DecidedBy {
    pub(crate) scheme: bool,
    pub(crate) host: bool,
    pub(crate) query: bool,
}

/// All rules, in order.
#[derive(Debug, Default)]
pub struct Ruleset {
    rules: Vec<Rule>,
    index: RuleIndex,
    /// Of those that do anything before there is a response. Most only say how long responses are
    /// kept, which no hit asks for.
    early: RuleIndex,
    /// Whether any rule sets groups' hints.
    sets_hints: bool,
    extends_keys: bool,
    /// Whether any rule edits answers as they are delivered.
    edits_answers: bool,
    /// Whether any rule sets a field to an id of the request.
    wants_request_ids: bool,
    tells_hosts: bool,
    tells_schemes: bool,
    decided_by: DecidedBy,
    /// Whether any rule has other parts of queries in keys.
    changes_queries: bool,
    /// The origins that rules name; equal lists are stored once.
    sites: Vec<Site>,
    /// That of each rule: `MAIN` if it names none.
    site_of: Vec<SiteId>,
}

/// The combined effect of the rules on a request.
#[derive(Debug, Default)]
pub(crate) struct RequestEffects<'r> {
    pub(crate) pass: bool,
    pub(crate) site: SiteId,
    /// The rule that answers, if one does.
    pub(crate) answering: Option<Answering>,
    /// The change of the path towards the origin, if the path begins with the rule's prefix.
    pub(crate) prefix: Option<&'r Arc<PrefixChange>>,
    /// The origins of `site`, if a rule named them.
    to: &'r [String],
    /// What they are asked with, if the same rule says so.
    host_header: Option<&'r HostHeader>,
    /// Whether it has a line in the log, if rules say.
    pub(crate) log: Option<bool>,
    /// Edits of the answer as it is delivered, if there may be any.
    pub(crate) answer_edits: Option<AnswerEdits>,
    /// A matching rule sets a field to an id of the request.
    pub(crate) wants_request_id: bool,
    /// Limits in place of the configuration's, if rules have some.
    pub(crate) limits: Option<Arc<OwnLimits>>,
    rules: Vec<&'r Rule>,
}

/// The combined effect of the rules on a response.
#[derive(Debug, Default)]
pub(crate) struct ResponseEffects<'r> {
    pub(crate) ttl: Option<Duration>,
    /// The rule that `ttl` is from names the statuses that it is for.
    pub(crate) names_status: bool,
    pub(crate) stale_while_revalidate: Option<Duration>,
    pub(crate) stale_if_error: Option<Duration>,
    pub(crate) store: Option<bool>,
    /// The name of the rule that `store` is from.
    pub(crate) store_by: Option<&'r str>,
    pub(crate) admission: Option<Admission>,
    pub(crate) group: Option<&'r str>,
    pub(crate) hint: Option<Hint>,
    rules: Vec<&'r Rule>,
}

impl Ruleset {
    pub(crate) fn new(rules: Vec<Rule>) -> Ruleset {
        let extends_keys = rules.iter().any(|rule| rule.then.extends_keys());
        let edits_answers = rules.iter().any(|rule| rule.then.edits_answers());
        let by_client = Some(HostHeader::Client);
        let tells_hosts = rules.iter().any(|rule| {
            rule.then.host_header == by_client || rule.then.tells(FieldValue::has_host)
        });
        let tells_schemes = rules.iter().any(|rule| rule.then.tells(FieldValue::has_scheme));
        let changes_queries = rules.iter().any(|rule| rule.then.changes_queries());
        let wants_request_ids = rules.iter().any(|rule| rule.then.has_request_id());
        let decides = |on: fn(&Conditions) -> bool| {
            rules.iter().any(|rule| rule.decides_on_keys() && on(&rule.when))
        };
        let decided_by = DecidedBy {
            scheme: decides(|when| when.scheme.is_some()),
            host: decides(|when| !when.hosts.is_empty()),
            query: decides(|when| !when.queries.is_empty()),
        };
        let (mut sites, mut known) = (Vec::new(), HashMap::new());
        let site = |rule: &Rule| match rule.then.to.as_slice() {
            [] => SiteId::MAIN,
            to => {
                let host_header = rule.then.host_header.clone();
                let backup = rule.then.backup.clone();
                let site = Site { to: to.to_vec(), backup, host_header };
                *known.entry(site.clone()).or_insert_with(|| {
                    sites.push(site);
                    SiteId(sites.len())
                })
            }
        };
        let site_of = rules.iter().map(site).collect();
        let index = RuleIndex::of(&rules, |_| true);
        let early = RuleIndex::of(&rules, Rule::counts_for_requests);
        let sets_hints = rules.iter().any(|rule| rule.then.hint.is_some());
        Ruleset {
            rules,
            index,
            early,
            sets_hints,
            extends_keys,
            edits_answers,
            wants_request_ids,
            tells_hosts,
            tells_schemes,
            decided_by,
            changes_queries,
            sites,
            site_of,
        }
    }

    /// The sites that rules name.
    pub(crate) fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Whether an origin is told the client's host, as `Host` or in a field that a rule sets.
    pub(crate) fn tells_hosts(&self) -> bool {
        self.tells_hosts
    }

    /// Whether an origin is told the client's scheme in a field that a rule sets.
    pub(crate) fn tells_schemes(&self) -> bool {
        self.tells_schemes
    }

    /// Whether any rule changes the paths that origins receive.
    pub(crate) fn changes_prefixes(&self) -> bool {
        self.rules.iter().any(|rule| rule.then.prefix.is_some())
    }

    /// The answer of an answering rule.
    pub(crate) fn answer(&self, answering: Answering) -> &Respond {
        &self.rules[answering.0].then.respond
    }

    /// All of them, in order.
    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether any rule adds to cache keys, so that one URL may have several.
    pub(crate) fn extends_keys(&self) -> bool {
        self.extends_keys
    }

    /// Whether any rule sets the hint of a group.
    pub(crate) fn sets_hints(&self) -> bool {
        self.sets_hints
    }

    /// The parts of a URL that rules which decide on keys have conditions on, besides the path.
    pub(crate) fn decided_by(&self) -> DecidedBy {
        self.decided_by
    }

    /// The rules that decide on keys, as text: other texts may be other keys.
    pub(crate) fn of_keys(&self) -> String {
        let text = |rule: &Rule| {
            let Actions { to, host_header, prefix, key_headers, key_cookies, .. } = &rule.then;
            let site = (to, host_header);
            let query = (&rule.then.key_query, rule.then.key_sort_query);
            format!("{:?}", (&rule.when, site, prefix, key_headers, key_cookies, query, rule.last))
        };
        self.rules.iter().filter(|rule| rule.decides_on_keys()).map(text).collect()
    }

    /// The effects on a key that every GET of a URL has, whatever its fields are; `None` if they
    /// count. Of the request only the URL is looked at.
    pub(crate) fn on_get_of(&self, request: &RequestView<'_>) -> Option<RequestEffects<'_>> {
        let mut effects = RequestEffects::default();
        let asked = request.asked();
        for place in self.index.candidates(asked) {
            let rule = &self.rules[place];
            let Rule { when, then, last, .. } = rule;
            let is_for_get = term::any_met(&when.methods, |method| *method == Method::GET);
            if !rule.decides_on_keys()
                || !is_for_get
                || when.is_on_response()
                || !when.match_url(request.scheme, asked)
            {
                continue;
            }
            let fields_count =
                !when.cookies.is_empty() || !when.headers.is_empty() || !when.clients.is_empty();
            if fields_count || !then.key_headers.is_empty() || !then.key_cookies.is_empty() {
                return None;
            }
            if !then.to.is_empty() {
                (effects.to, effects.host_header) = (&then.to, then.host_header.as_ref());
            }
            effects.prefix = then.prefix.as_ref().or(effects.prefix);
            if *last {
                break;
            }
        }
        effects.prefix =
            effects.prefix.filter(|prefix| prefix.to_origin(request.path_and_query).is_some());
        Some(effects)
    }

    /// Whether any rule has other parts of queries in keys than the configuration.
    pub(crate) fn changes_queries(&self) -> bool {
        self.changes_queries
    }

    /// What keys have of the query of a URL, where a rule says so. Of the conditions only those on
    /// URLs count, also of a rule with `last`: the URL alone decides, whoever asks for it.
    pub(crate) fn query_of(&self, scheme: &str, asked: AskedUrl<'_>) -> QueryOfKey<'_> {
        let (mut query, mut sort_query) = (None, None);
        if !self.changes_queries {
            return (query, sort_query);
        }
        for place in self.index.candidates(asked) {
            let Rule { when, then, last, .. } = &self.rules[place];
            if !when.are_on_url() || !when.match_url(scheme, asked) {
                continue;
            }
            query = then.key_query.as_ref().or(query);
            sort_query = then.key_sort_query.or(sort_query);
            if *last {
                break;
            }
        }
        (query, sort_query)
    }

    /// Evaluates for a request the rules that do anything for it.
    pub(crate) fn on_request(&self, request: &RequestView<'_>) -> RequestEffects<'_> {
        self.effects(&self.early, request)
    }

    /// The same effects, with the names of all rules that match.
    pub(crate) fn on_request_named(&self, request: &RequestView<'_>) -> RequestEffects<'_> {
        self.effects(&self.index, request)
    }

    fn effects(&self, index: &RuleIndex, request: &RequestView<'_>) -> RequestEffects<'_> {
        let (mut effects, mut delivering) = (RequestEffects::default(), Vec::new());
        let asked = request.asked();
        for place in index.candidates(asked) {
            let rule = &self.rules[place];
            let waits = rule.when.is_on_response();
            let delivers = self.edits_answers && (rule.then.edits_answers() || rule.last);
            if waits && !delivers || !rule.when.match_request(request, asked) {
                continue;
            }
            effects.wants_request_id |= self.wants_request_ids && rule.then.has_request_id();
            if delivers {
                delivering.push(place);
            }
            if waits {
                continue;
            }
            effects.pass = rule.then.pass.unwrap_or(effects.pass);
            effects.log = rule.then.log.or(effects.log);
            OwnLimits::add(&mut effects.limits, rule.then.limits.as_ref());
            if !rule.then.to.is_empty() {
                (effects.to, effects.site) = (&rule.then.to, self.site_of[place]);
                effects.host_header = rule.then.host_header.as_ref();
            }
            if rule.then.respond.answers() {
                effects.answering = Some(Answering(place));
            }
            effects.prefix = rule.then.prefix.as_ref().or(effects.prefix);
            effects.rules.push(rule);
            if rule.last {
                break;
            }
        }
        effects.prefix =
            effects.prefix.filter(|prefix| prefix.to_origin(request.path_and_query).is_some());
        effects.answer_edits = self.answer_edits(delivering);
        effects
    }

    /// For each rule, whether a request meets its request conditions.
    pub(crate) fn met(&self, request: &RequestView<'_>) -> Box<[bool]> {
        let asked = request.asked();
        let mut met = vec![false; self.rules.len()];
        for place in self.index.candidates(asked) {
            met[place] = self.rules[place].when.match_request(request, asked);
        }
        met.into()
    }

    /// The admission of any response to a request; `None` if no rule says one, or if that depends
    /// on the response.
    pub(crate) fn admission_of_any(&self, request: &RequestView<'_>) -> Option<Admission> {
        let (mut admission, asked) = (None, request.asked());
        for place in self.index.candidates(asked) {
            let Rule { when, then, last, .. } = &self.rules[place];
            let met = request.met.and_then(|met| met.get(place)).copied();
            if !met.unwrap_or_else(|| when.match_request(request, asked)) {
                continue;
            }
            if when.is_on_response() && (then.admission.is_some() || *last) {
                return None;
            }
            admission = then.admission.or(admission);
            if *last {
                break;
            }
        }
        admission
    }

    /// Evaluates the rules for the response to a request.
    pub(crate) fn on_response(
        &self,
        request: &RequestView<'_>,
        response: &ResponseView<'_>,
    ) -> ResponseEffects<'_> {
        let mut effects = ResponseEffects::default();
        let asked = request.asked();
        // A header that a rule removed from the request still counts for conditions on the
        // response.
        let met = |index: usize, rule: &Rule| match request.met.and_then(|met| met.get(index)) {
            Some(met) => *met,
            None => rule.when.match_request(request, asked),
        };
        for place in self.index.candidates(asked) {
            let rule = &self.rules[place];
            if !met(place, rule) || !rule.when.match_response(response) {
                continue;
            }
            if rule.then.ttl.is_some() {
                effects.ttl = rule.then.ttl;
                effects.names_status = rule.when.names_status();
            }
            effects.stale_while_revalidate =
                rule.then.stale_while_revalidate.or(effects.stale_while_revalidate);
            effects.stale_if_error = rule.then.stale_if_error.or(effects.stale_if_error);
            if rule.then.store.is_some() {
                (effects.store, effects.store_by) = (rule.then.store, Some(rule.name.as_str()));
            }
            effects.admission = rule.then.admission.or(effects.admission);
            effects.hint = rule.then.hint.or(effects.hint);
            effects.group = rule.then.group.as_deref().or(effects.group);
            effects.rules.push(rule);
            if rule.last {
                break;
            }
        }
        effects
    }
}

impl<'r> RequestEffects<'r> {
    /// Names of the rules that matched.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'r str> {
        self.rules.iter().map(|rule| rule.name.as_str())
    }

    /// Whether any matching rule edits headers.
    pub(crate) fn edits(&self) -> bool {
        let edits = |rule: &&Rule| {
            !rule.then.request_remove.is_empty()
                || !rule.then.request_set.is_empty()
                || !rule.then.cookies_remove.is_empty()
        };
        self.rules.iter().any(edits)
    }

    /// Edits the headers. True if anything may have changed.
    pub(crate) fn edit(&self, headers: &mut HeaderMap, told: &Told<'_>) -> bool {
        let mut changed = false;
        for Actions { request_remove, request_set, cookies_remove, .. } in
            self.rules.iter().map(|rule| &rule.then)
        {
            if !cookies_remove.is_empty() {
                changed |= cookies::remove(cookies_remove, headers);
            }
            let edits = [(request_remove, request_set)].into_iter();
            changed |= edit(headers, edits, |_, _, value| value.of(told));
        }
        changed
    }

    /// Appends what the rules add to the key, if anything. Another site or another origin path may
    /// give another response to the same URL, so both are part of the key.
    pub(crate) fn extend_key(&self, headers: &HeaderMap, key: &mut Vec<u8>) {
        if let Some(first) = self.to.first() {
            matching::append_site(first, key);
        }
        if let Some(host_header) = self.host_header {
            matching::append_host_header(host_header.in_key(), key);
        }
        if let Some(prefix) = self.prefix {
            matching::append_prefix(&prefix.strip, &prefix.add, key);
        }
        for rule in &self.rules {
            for name in &rule.then.key_headers {
                matching::append_header(name, headers, key);
            }
            for name in &rule.then.key_cookies {
                matching::append_cookie(name, headers, key);
            }
        }
    }
}

impl<'r> ResponseEffects<'r> {
    /// Names of the rules that matched.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'r str> {
        self.rules.iter().map(|rule| rule.name.as_str())
    }

    /// Edits the headers. True if anything may have changed.
    pub(crate) fn edit(&self, headers: &mut HeaderMap) -> bool {
        let edits = self.rules.iter().map(|r| (&r.then.response_remove, &r.then.response_set));
        edit(headers, edits, |_, _, value: &HeaderValue| Some(value.clone()))
    }
}

type Removed = Vec<HeaderName>;
type Lines<V> = Vec<(HeaderName, V)>;

/// Edits headers. A field without a value is taken off: it is not left to what a client wrote.
fn edit<'r, V: 'r>(
    headers: &mut HeaderMap,
    edits: impl Iterator<Item = (&'r Removed, &'r Lines<V>)>,
    value_of: impl Fn(&HeaderMap, &HeaderName, &V) -> Option<HeaderValue>,
) -> bool {
    let mut changed = false;
    for (removed, set) in edits {
        for name in removed {
            changed |= headers.remove(name).is_some();
        }
        for (name, value) in set {
            match value_of(headers, name, value) {
                Some(value) => drop(headers.insert(name.clone(), value)),
                None => drop(headers.remove(name)),
            }
            changed = true;
        }
    }
    changed
}

/// A response as conditions see it, from its parts.
pub(crate) fn response_view<'a>(
    status: StatusCode,
    headers: &'a HeaderMap,
    length_bytes: Option<u64>,
) -> ResponseView<'a> {
    ResponseView { status, headers, length_bytes }
}
