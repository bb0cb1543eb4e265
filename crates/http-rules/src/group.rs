//! The group of a response, which decides what is stored next to it on disk.
//!
//! The first rule that applies decides: the group that the origin names (`Cache-Groups`, RFC 9875);
//! its first surrogate key; the page, which is the document itself or the `Referer` of the same
//! host; the host and first path segment. Invariants: groups of different rules and hosts coincide
//! only if 64-bit hashes collide, which affects placement, never correctness; surrogate keys decide
//! on nothing but placement, since purges find them in the response's stamp.

use http::HeaderMap;
use http::Uri;
use http::header::{CONTENT_TYPE, HeaderName, REFERER};

use crate::cache_groups::{self, GROUPS_MAX};

/// Field names in use for surrogate keys, in the order they are tried.
static SURROGATE_KEYS: [HeaderName; 3] = [
    HeaderName::from_static("surrogate-key"),
    HeaderName::from_static("xkey"),
    HeaderName::from_static("cache-tag"),
];

/// The rule that chose a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The origin named it in `Cache-Groups`.
    Named,
    /// It is the first surrogate key.
    SurrogateKey,
    /// A page and what it embeds.
    Page,
    /// Resources with the same first path segment.
    HostAndSegment,
}

/// The groups of a response by full names, which differ from those of other hosts and rules. The
/// caller hashes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// The group that the response is stored in.
    pub home: Vec<u8>,
    /// Further groups that the origin named: invalidating one of them invalidates the response.
    /// Each costs every hit a look-up.
    pub others: Vec<Vec<u8>>,
}

impl Groups {
    /// The groups that the origin names, if it names any: without duplicates, at most
    /// [`GROUPS_MAX`]. `host` is the key's.
    pub fn named(host: &str, response: &HeaderMap) -> Option<Groups> {
        let groups = cache_groups::of(response);
        let mut named = unique(groups.iter().map(String::as_bytes)).into_iter();
        let home = full_name(Rule::Named, host, named.next()?);
        let others = named.map(|name| full_name(Rule::Named, host, name)).collect();
        Some(Groups { home, others })
    }

    /// The group of a response by its first surrogate key, if it has any.
    pub fn by_surrogate_key(host: &str, response: &HeaderMap) -> Option<Groups> {
        let mut keys = SURROGATE_KEYS.iter().flat_map(|name| surrogate_keys(response, name));
        let home = full_name(Rule::SurrogateKey, host, keys.next()?);
        Some(Groups { home, others: Vec::new() })
    }

    /// The group of a response that has none by its own fields. `client_host` is the one that the
    /// client requested.
    pub fn by_page(
        host: &str,
        client_host: &str,
        path_and_query: &str,
        request: &HeaderMap,
        response: &HeaderMap,
    ) -> Groups {
        let (rule, name) = unnamed(client_host, path_and_query, request, response);
        Groups { home: full_name(rule, host, name), others: Vec::new() }
    }
}

/// Whether a response has a field by which its origin groups it, or tags it for purges. Few have,
/// and comparing their few names takes less time than looking for each of these.
pub fn is_grouped(response: &HeaderMap) -> bool {
    let groups = |name: &str| {
        matches!(
            name,
            "cache-groups"
                | "surrogate-key"
                | "cache-tag"
                | "xkey"
                | "cache-tags"
                | "x-magento-tags"
        )
    };
    response.keys().any(|name| groups(name.as_str()))
}

/// A name that no other rule or host can produce.
pub fn full_name(rule: Rule, host: &str, name: &[u8]) -> Vec<u8> {
    let mark = match rule {
        Rule::Named => "g",
        Rule::SurrogateKey => "t",
        Rule::Page => "p",
        Rule::HostAndSegment => "s",
    };
    let mut full = Vec::with_capacity(host.len() + name.len() + 4);
    for part in [mark.as_bytes(), host.as_bytes(), name] {
        full.extend_from_slice(part);
        full.push(0);
    }
    full
}

/// The host in a full name.
pub fn host_of(full_name: &[u8]) -> &[u8] {
    full_name.split(|byte| *byte == 0).nth(1).unwrap_or_default()
}

fn unnamed<'a>(
    client_host: &str,
    path_and_query: &'a str,
    request: &'a HeaderMap,
    response: &HeaderMap,
) -> (Rule, &'a [u8]) {
    if is_document(response) {
        return (Rule::Page, path_and_query.as_bytes());
    }
    if let Some(page) = referring_page(client_host, request) {
        return (Rule::Page, page);
    }
    (Rule::HostAndSegment, first_segment(path_and_query).as_bytes())
}

/// The words of a field of surrogate keys.
fn surrogate_keys<'a>(
    response: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a [u8]> {
    let lines = response.get_all(name).into_iter();
    let keys = lines.flat_map(|value| value.as_bytes().split(|b| matches!(b, b' ' | b',' | b'\t')));
    keys.filter(|key| !key.is_empty())
}

fn unique<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<&'a [u8]> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for name in names.take(GROUPS_MAX) {
        if !kept.contains(&name) {
            kept.push(name);
        }
    }
    kept
}

/// Whether a response is a page that embeds others.
pub fn is_document(response: &HeaderMap) -> bool {
    let media_type = response.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let media_type = media_type.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    media_type.eq_ignore_ascii_case(b"text/html")
        || media_type.eq_ignore_ascii_case(b"application/xhtml+xml")
}

/// Path and query of the `Referer` if it is of the same host.
fn referring_page<'a>(client_host: &str, request: &'a HeaderMap) -> Option<&'a [u8]> {
    let text = request.get(REFERER)?.to_str().ok()?;
    let uri: Uri = text.parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?.as_str());
    if !authority.eq_ignore_ascii_case(client_host) {
        return None;
    }
    let path = text.get(scheme.len() + "://".len() + authority.len()..)?.as_bytes();
    let path = path.split(|byte| *byte == b'#').next().unwrap_or_default();
    Some(if path.is_empty() { b"/" } else { path })
}

/// `/a/b/c` gives `a`; a file in the root gives the root.
fn first_segment(path_and_query: &str) -> &str {
    let path = path_and_query.split('?').next().unwrap_or_default();
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split_once('/').map_or("", |(segment, _)| segment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_headers as headers;

    fn groups(request: &[(&str, &str)], response: &[(&str, &str)]) -> Groups {
        let (request, response) = (headers(request), headers(response));
        let by_page = || Groups::by_page("h", "h:80", "/a/b?q", &request, &response);
        let named = Groups::named("h", &response);
        named.or_else(|| Groups::by_surrogate_key("h", &response)).unwrap_or_else(by_page)
    }

    /// RFC 9875 §2 for the first rule.
    #[test]
    fn rules_in_order() {
        use Rule::{HostAndSegment, Named, Page, SurrogateKey};
        let html = ("content-type", "text/HTML; charset=utf-8");
        let page = &[("referer", "http://h:80/page?x=1#top")][..];
        for (request, response, expected) in [
            (page, &[html, ("cache-groups", "\"news\", \"b\"")][..], (Named, "news")),
            (page, &[("surrogate-key", " k1 k2")], (SurrogateKey, "k1")),
            (page, &[("cache-tag", "t1,t2")], (SurrogateKey, "t1")),
            (page, &[("surrogate-key", " "), ("xkey", "x1")], (SurrogateKey, "x1")),
            (page, &[html], (Page, "/a/b?q")),
            (page, &[], (Page, "/page?x=1")),
            (&[("referer", "http://H:80")], &[], (Page, "/")),
            (&[("referer", "http://other/page")], &[], (HostAndSegment, "a")),
            (&[("referer", "HTTPS://h:80#top")], &[], (Page, "/")),
            (&[("referer", "http://h:80?x#top")], &[], (Page, "?x")),
            (&[("referer", "h:80")], &[], (HostAndSegment, "a")),
            (&[("referer", "::")], &[], (HostAndSegment, "a")),
            (&[], &[("cache-groups", "junk")], (HostAndSegment, "a")),
        ] {
            let expected = full_name(expected.0, "h", expected.1.as_bytes());
            assert_eq!(groups(request, response).home, expected, "{response:?}");
        }
        let xhtml = headers(&[("content-type", "Application/XHTML+xml;charset=x")]);
        assert!(is_document(&xhtml) && !is_document(&headers(&[("content-type", "text/htmlx")])));
        assert_eq!(first_segment("/x.png"), "");
        assert_eq!(first_segment("/x.png?a/b"), "");
        assert_eq!(first_segment("/img/x.png?a/b"), "img");
    }

    #[test]
    fn a_response_has_every_group_that_is_named() {
        let both = groups(&[], &[("cache-groups", "\"a\", \"b\", \"a\""), ("xkey", "x y")]);
        assert_eq!(both.others, [full_name(Rule::Named, "h", b"b")]);
        let keys = groups(&[], &[("xkey", "x y"), ("xkey", "z"), ("cache-tag", "t")]);
        assert!(keys.others.is_empty(), "they are purged by tag");
        let many: Vec<String> = (0..GROUPS_MAX + 9).map(|n| format!("\"k{n}\"")).collect();
        let named = groups(&[], &[("cache-groups", &many.join(","))]);
        assert_eq!(named.others.len(), GROUPS_MAX - 1);
    }

    #[test]
    fn a_page_and_its_images_share_a_group() {
        let document = Groups::by_page(
            "h",
            "h",
            "/p",
            &headers(&[]),
            &headers(&[("content-type", "text/html")]),
        );
        let referer = headers(&[("referer", "http://h/p")]);
        let image = headers(&[("content-type", "image/png")]);
        assert_eq!(document, Groups::by_page("h", "h", "/i/1.png", &referer, &image));
        assert_ne!(document, Groups::by_page("g", "h", "/i/1.png", &referer, &image));
    }
}
