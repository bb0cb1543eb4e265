//! Which objects belong together: the rules a proxy could use to choose a group.
//!
//! Owns what a rule remembers of the past. Invariant: the same requests give the same groups.
//! Threads: one user.

use crate::lru::{NumberMap, mix};
use crate::request::{Catalogue, Request};
use crate::requests::Requests;
use crate::trace::scheme_of;

/// A rule for choosing groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupRule {
    /// The host (thesis §3: "hash domain names to the same group").
    #[default]
    Host,
    /// The host's number is the group: the caller has chosen.
    Given,
    /// Host and the directory of the path (UCFS §2.6.2); of an object that has no path, the host.
    HostPath,
    /// What one client asks for without a pause: a page with what is embedded in it.
    Page,
    /// Objects of similar size.
    SizeClass,
    /// All in one.
    None,
    /// Objects of similar popularity over the whole trace, known in advance: a bound.
    Oracle,
}

/// Rules by their names on the command line; `Given` is for workloads that name groups themselves.
pub const GROUP_RULES: [(&str, GroupRule); 6] = [
    ("host", GroupRule::Host),
    ("host-path", GroupRule::HostPath),
    ("page", GroupRule::Page),
    ("size-class", GroupRule::SizeClass),
    ("none", GroupRule::None),
    ("oracle", GroupRule::Oracle),
];

/// A client that pauses longer begins another page, in microseconds.
const PAGE_PAUSE_US: u64 = 3_000_000;

/// Applies a rule.
#[derive(Debug, Clone)]
pub struct Grouper {
    rule: GroupRule,
    /// Page rule: when each client asked last, and the group it is in.
    sessions: NumberMap<u32, (u64, u64)>,
    /// Oracle: the class of each key.
    classes: NumberMap<u64, u64>,
}

/// Names before the last slash, without the scheme. `None` of what is no URL and no path: a number
/// or a key of a cache, which says nothing of what it lies beside.
pub(crate) fn directory_of(url: &str) -> Option<&str> {
    let scheme = scheme_of(url.as_bytes());
    let rest = scheme.map_or(url, |scheme| &url[scheme.len() + 3..]);
    rest.rsplit_once('/').map(|(dir, _)| dir).or(scheme.map(|_| rest))
}

/// FNV-1a, for names that may come in parts: so the hashes of all directories above a file cost one
/// look at its path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameHash(u64);

impl Default for NameHash {
    fn default() -> NameHash {
        NameHash(0xcbf2_9ce4_8422_2325)
    }
}

impl NameHash {
    pub(crate) fn add(&mut self, part: &str) {
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.0 = part.bytes().fold(self.0, fold);
    }

    /// Of all that was added so far.
    pub(crate) fn finish(self) -> u64 {
        mix(self.0)
    }
}

pub(crate) fn hash_name(name: &str) -> u64 {
    let mut hash = NameHash::default();
    hash.add(name);
    hash.finish()
}

impl Grouper {
    /// A rule, with the trace for the oracle.
    pub fn new(rule: GroupRule, requests: Requests<'_>) -> Grouper {
        let classes =
            if rule == GroupRule::Oracle { popularity(requests) } else { NumberMap::default() };
        Grouper { rule, sessions: NumberMap::default(), classes }
    }

    /// The group of a request's object, over 64 bits.
    pub fn group(&mut self, request: &Request, names: &Catalogue) -> u64 {
        match self.rule {
            GroupRule::Host => mix(u64::from(request.host) + 1),
            GroupRule::Given => u64::from(request.host),
            GroupRule::HostPath => match names.url_text(request.key).and_then(directory_of) {
                Some(directory) => hash_name(directory),
                None => mix(u64::from(request.host) + 1),
            },
            GroupRule::Page => self.page(request),
            GroupRule::SizeClass => u64::from(64 - request.size_bytes.leading_zeros()),
            GroupRule::None => 0,
            GroupRule::Oracle => self.classes.get(&request.key).copied().unwrap_or(0),
        }
    }

    fn page(&mut self, request: &Request) -> u64 {
        let fresh = mix(u64::from(request.client) << 40 ^ request.time_us);
        let session = self.sessions.entry(request.client).or_insert((request.time_us, fresh));
        if request.time_us.saturating_sub(session.0) > PAGE_PAUSE_US {
            session.1 = fresh;
        }
        session.0 = request.time_us;
        session.1
    }
}

/// Keys by how often they are asked for, 0 for the most popular sixteenth of the requests.
fn popularity(requests: Requests<'_>) -> NumberMap<u64, u64> {
    let mut counts: NumberMap<u64, u64> = NumberMap::default();
    for request in requests.iter() {
        *counts.entry(request.key).or_default() += 1;
    }
    let mut order: Vec<(u64, u64)> = counts.into_iter().map(|(key, n)| (n, key)).collect();
    order.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let total = requests.len().max(1) as u64;
    let mut before = 0;
    let mut classes = NumberMap::default();
    for (count, key) in order {
        classes.insert(key, before * 16 / total);
        before += count;
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_that_of_the_url_itself() {
        for (url, directory) in [
            ("http://a/x/y.gif", Some("a/x")),
            ("http://a/x/", Some("a/x")),
            ("http://a", Some("a")),
            ("/x/y.gif", Some("/x")),
            ("/x", Some("")),
            ("/mirror/http://a/x.gif", Some("/mirror/http://a")),
            ("12345", None),
            ("user:12345", None),
        ] {
            assert_eq!(directory_of(url), directory, "{url}");
        }
    }
}
