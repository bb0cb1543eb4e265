//! The group of a response, which decides what is stored next to it. Pure.

use damelo::GroupId;
use http::HeaderMap;

use crate::config::{Grouping, ProxyConfig};
use crate::request::Ask;
use crate::rules::group::{Groups, Rule, full_name, is_grouped};
use crate::ruleset::ResponseEffects;

impl ResponseEffects<'_> {
    /// The groups of a response. Its home group comes from a rule, or else from the grouping that
    /// is configured, or else, by default, from its own fields and from its page; invalidating any
    /// group that its origin names in `Cache-Groups` invalidates the response.
    pub(crate) fn groups_of(
        &self,
        config: &ProxyConfig,
        ask: &Ask,
        response: &HeaderMap,
    ) -> Groups {
        let target = &ask.target;
        let (host, path) = (&target.host, target.path_and_query.as_str());
        let grouped = is_grouped(response);
        let named = if grouped { Groups::named(host, response) } else { None };
        let home = match self.group {
            Some(name) => Some(named_group("r", "", name.as_bytes())),
            None => by_grouping(&config.groups.by, ask, response),
        };
        if let Some(home) = home {
            let mut others = Vec::new();
            if let Some(named) = named {
                others = named.others;
                others.push(named.home);
            }
            return Groups { home, others };
        }
        let by_key = || if grouped { Groups::by_surrogate_key(host, response) } else { None };
        let by_page = || Groups::by_page(host, ask.host_asked(), path, &ask.headers, response);
        named.or_else(by_key).unwrap_or_else(by_page)
    }
}

/// The group that a rule names. Operators' group names are shared by all hosts, as rules are.
pub(crate) fn rule_group(name: &str) -> GroupId {
    GroupId::of(named_group("r", "", name.as_bytes()))
}

/// The group of a page of this host and what it embeds.
pub(crate) fn page_group(host: &str, path_and_query: &str) -> GroupId {
    GroupId::of(full_name(Rule::Page, host, path_and_query.as_bytes()))
}

/// The group of a host, where responses are grouped so.
pub(crate) fn host_group(host: &str) -> GroupId {
    GroupId::of(named_group("h", host, b""))
}

/// The groups of a host's first path segments: that of the grouping by path, and that of responses
/// whose page is not known.
pub(crate) fn path_groups(host: &str, segments: &str) -> [GroupId; 2] {
    let first = segments.split('/').next().unwrap_or_default();
    [
        named_group("d", host, segments.as_bytes()),
        full_name(Rule::HostAndSegment, host, first.as_bytes()),
    ]
    .map(GroupId::of)
}

/// The group of a host's responses with this value of the header that they are grouped by.
pub(crate) fn header_group(host: &str, value: &str) -> GroupId {
    GroupId::of(named_group("v", host, value.as_bytes()))
}

/// The group by the configured grouping; `None` to group by what the origin names, or else by page.
/// A group's name contains its host, so that groups of different hosts coincide only if 64-bit
/// hashes collide.
fn by_grouping(grouping: &Grouping, ask: &Ask, response: &HeaderMap) -> Option<Vec<u8>> {
    let target = &ask.target;
    let path = target.path_and_query.as_str().split('?').next().unwrap_or_default();
    Some(match grouping {
        Grouping::Named => return None,
        Grouping::Page => {
            let path = target.path_and_query.as_str();
            Groups::by_page(&target.host, ask.host_asked(), path, &ask.headers, response).home
        }
        Grouping::Host => named_group("h", &target.host, b""),
        Grouping::Path(count) => named_group("d", &target.host, first_segments(path, *count)),
        Grouping::Header(name) => match response.get(name) {
            Some(value) => named_group("v", &target.host, value.as_bytes()),
            None => named_group("d", &target.host, first_segments(path, 1)),
        },
        // A unique name per resource: no two share a group.
        Grouping::None => named_group("u", &target.host, target.path_and_query.as_str().as_bytes()),
    })
}

/// `/a/b/c.png` and 2 give `a/b`; the last segment is a file name and never counts.
fn first_segments(path: &str, count: usize) -> &[u8] {
    let path = path.strip_prefix('/').unwrap_or(path);
    let ends = path.match_indices('/').map(|(at, _)| at);
    let end = ends.take(count).last().unwrap_or(0);
    &path.as_bytes()[..end]
}

fn named_group(mark: &str, host: &str, name: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(mark.len() + host.len() + name.len() + 3);
    for part in [mark.as_bytes(), host.as_bytes(), name] {
        full.extend_from_slice(part);
        full.push(0);
    }
    full
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments() {
        assert_eq!(first_segments("/a/b/c.png", 1), b"a");
        assert_eq!(first_segments("/a/b/c.png", 2), b"a/b");
        assert_eq!(first_segments("/a/b/c.png", 9), b"a/b");
        assert_eq!(first_segments("/c.png", 2), b"");
    }
}
