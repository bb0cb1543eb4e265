//! The operator's rules: conditions on requests and responses, and their actions.
//!
//! Rules are evaluated in order. Every rule that matches applies; a later one overrides an earlier
//! one's setting of the same kind, and `last` ends the evaluation. A rule with a condition on the
//! response has no effect before there is one; such a rule is refused at parse time if its actions
//! would have to happen earlier. Invariants: pure functions of message and rules; no rule touches
//! headers that frame a message or name its host. Threads: read by all workers.

mod glob;
mod index;
mod matching;
mod prefix;
mod respond;
mod term;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use self::index::RuleIndex;
use self::matching::Asked;
pub(crate) use glob::{Glob, Segments};
pub(crate) use matching::{CookieMatch, HeaderMatch, RequestView, ResponseView};
pub(crate) use prefix::PrefixChange;
pub(crate) use respond::{Location, Respond};
pub(crate) use term::{Term, split_not};

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

/// Conditions of a rule; without any, the rule always matches. Each of them must be met, a list as
/// `term` has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    /// `http` or `https`.
    pub(crate) scheme: Option<&'static str>,
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
    pub(crate) respond: Respond,
    pub(crate) prefix: Option<Arc<PrefixChange>>,
    pub(crate) key_headers: Vec<HeaderName>,
    pub(crate) key_cookies: Vec<String>,
    pub(crate) request_set: Vec<(HeaderName, HeaderValue)>,
    pub(crate) request_remove: Vec<HeaderName>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) stale_while_revalidate: Option<Duration>,
    pub(crate) stale_if_error: Option<Duration>,
    pub(crate) store: Option<bool>,
    pub(crate) admission: Option<Admission>,
    pub(crate) group: Option<String>,
    pub(crate) hint: Option<Hint>,
    pub(crate) response_set: Vec<(HeaderName, HeaderValue)>,
    pub(crate) response_remove: Vec<HeaderName>,
}

/// Parts of a URL, besides the path, by which rules decide on keys.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DecidedBy {
    pub(crate) scheme: bool,
    pub(crate) host: bool,
    pub(crate) query: bool,
}

impl Actions {
    /// Whether they add to cache keys.
    fn extends_keys(&self) -> bool {
        !self.key_headers.is_empty()
            || !self.key_cookies.is_empty()
            || !self.to.is_empty()
            || self.prefix.is_some()
    }
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

impl Rule {
    /// Whether it adds to keys, or keeps later rules from that.
    fn decides_on_keys(&self) -> bool {
        self.then.extends_keys() || self.last
    }

    /// A rule that matches everything and does nothing.
    pub(crate) fn named(name: String) -> Rule {
        let (when, then) = (Conditions::default(), Actions::default());
        Rule { name, when, then, last: false }
    }

    /// Finds contradictions between conditions and actions.
    pub(crate) fn check(&self) -> Result<(), String> {
        let then = &self.then;
        let early = [
            ("respond", then.respond.answers()),
            ("pass", then.pass.is_some()),
            ("to", !then.to.is_empty()),
            ("strip_prefix", then.prefix.as_ref().is_some_and(|p| !p.strip.is_empty())),
            ("add_prefix", then.prefix.as_ref().is_some_and(|p| !p.add.is_empty())),
            ("key_headers", !then.key_headers.is_empty()),
            ("key_cookies", !then.key_cookies.is_empty()),
            ("request_set", !then.request_set.is_empty()),
            ("request_remove", !then.request_remove.is_empty()),
        ];
        let late = [
            ("ttl", then.ttl.is_some()),
            ("stale_while_revalidate", then.stale_while_revalidate.is_some()),
            ("stale_if_error", then.stale_if_error.is_some()),
            ("store", then.store.is_some()),
            ("admission", then.admission.is_some()),
            ("group", then.group.is_some()),
            ("hint", then.hint.is_some()),
        ];
        let first = |actions: &[(&'static str, bool)]| {
            actions.iter().find(|(_, used)| *used).map(|(name, _)| *name)
        };
        then.respond.check().map_err(|problem| format!("{}: {problem}", self.name))?;
        let beside = first(&early[1..]).or(first(&late));
        if let (true, Some(name)) = (then.respond.answers(), beside) {
            return Err(format!(
                "{}: `{name}` means nothing beside `respond`, which asks neither cache nor origin",
                self.name
            ));
        }
        let early = first(&early);
        let edits = !then.response_set.is_empty() || !then.response_remove.is_empty();
        let late = first(&late).is_some() || edits;
        if let (Some(name), true) = (early, self.when.is_on_response()) {
            return Err(format!(
                "{}: `{name}` is done before there is a response, so that it cannot depend on \
                 its status, type or size",
                self.name
            ));
        }
        if let (Some(min), Some(max)) = (self.when.size_min, self.when.size_max)
            && min > max
        {
            return Err(format!("{}: `size_min` is larger than `size_max`", self.name));
        }
        if early.is_none() && !late && !self.last {
            return Err(format!("{} does nothing: add `ttl`, `pass` or another action", self.name));
        }
        Ok(())
    }
}

/// All rules, in order.
#[derive(Debug, Default)]
pub struct Ruleset {
    rules: Vec<Rule>,
    index: RuleIndex,
    extends_keys: bool,
    decided_by: DecidedBy,
    /// The origins that rules name; equal lists are stored once.
    sites: Vec<Vec<String>>,
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
            to => *known.entry(to.to_vec()).or_insert_with(|| {
                sites.push(to.to_vec());
                SiteId(sites.len())
            }),
        };
        let site_of = rules.iter().map(site).collect();
        let index = RuleIndex::of(&rules);
        Ruleset { rules, index, extends_keys, decided_by, sites, site_of }
    }

    /// The origins of each site that rules name.
    pub(crate) fn sites(&self) -> &[Vec<String>] {
        &self.sites
    }

    /// Whether any rule changes the paths that origins receive.
    pub(crate) fn changes_prefixes(&self) -> bool {
        self.rules.iter().any(|rule| rule.then.prefix.is_some())
    }

    /// The answer of an answering rule.
    pub(crate) fn answer(&self, answering: Answering) -> &Respond {
        &self.rules[answering.0].then.respond
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

    /// The parts of a URL that rules which decide on keys have conditions on, besides the path.
    pub(crate) fn decided_by(&self) -> DecidedBy {
        self.decided_by
    }

    /// The rules that decide on keys, as text: other texts may be other keys.
    pub(crate) fn of_keys(&self) -> String {
        let text = |rule: &Rule| {
            let Actions { to, prefix, key_headers, key_cookies, .. } = &rule.then;
            format!("{:?}", (&rule.when, to, prefix, key_headers, key_cookies, rule.last))
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
            let fields_count = !when.cookies.is_empty() || !when.headers.is_empty();
            if fields_count || !then.key_headers.is_empty() || !then.key_cookies.is_empty() {
                return None;
            }
            if !then.to.is_empty() {
                effects.to = &then.to;
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

    /// Evaluates the rules for a request.
    pub(crate) fn on_request(&self, request: &RequestView<'_>) -> RequestEffects<'_> {
        let mut effects = RequestEffects::default();
        let asked = request.asked();
        for place in self.index.candidates(asked) {
            let rule = &self.rules[place];
            if rule.when.is_on_response() || !rule.when.match_request(request, asked) {
                continue;
            }
            effects.pass = rule.then.pass.unwrap_or(effects.pass);
            if !rule.then.to.is_empty() {
                (effects.to, effects.site) = (&rule.then.to, self.site_of[place]);
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
                effects.names_status = rule.when.statuses.iter().any(|term| !term.negated);
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
            !rule.then.request_remove.is_empty() || !rule.then.request_set.is_empty()
        };
        self.rules.iter().any(edits)
    }

    /// Edits the headers. True if anything may have changed.
    pub(crate) fn edit(&self, headers: &mut HeaderMap) -> bool {
        let edits = self.rules.iter().map(|r| (&r.then.request_remove, &r.then.request_set));
        edit(headers, edits)
    }

    /// Appends what the rules add to the key, if anything. Another site or another origin path may
    /// give another response to the same URL, so both are part of the key.
    pub(crate) fn extend_key(&self, headers: &HeaderMap, key: &mut Vec<u8>) {
        if let Some(first) = self.to.first() {
            matching::append_site(first, key);
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
        edit(headers, edits)
    }
}

type Removed = Vec<HeaderName>;
type Lines = Vec<(HeaderName, HeaderValue)>;

fn edit<'r>(
    headers: &mut HeaderMap,
    edits: impl Iterator<Item = (&'r Removed, &'r Lines)>,
) -> bool {
    let mut changed = false;
    for (removed, set) in edits {
        for name in removed {
            changed |= headers.remove(name).is_some();
        }
        for (name, value) in set {
            headers.insert(name.clone(), value.clone());
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
