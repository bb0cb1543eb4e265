//! Which group a response belongs to, and so what it lies next to on disk (DESIGN §4).
//!
//! The first rule that applies decides: the group the origin names (`Cache-Groups`, RFC 9875, then
//! surrogate keys); the page, which is the document itself or the `Referer` of the same host; the
//! host and first path segment. Invariants: names of different rules and hosts never meet in one
//! group other than by a collision of 64-bit hashes, which costs placement, never correctness.

use damelo::GroupId;
use http::HeaderMap;
use http::Uri;
use http::header::{CONTENT_TYPE, HeaderName, REFERER};

const CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");
/// Names in use for the same idea, in the order they are tried.
const SURROGATE_KEYS: [HeaderName; 3] = [
    HeaderName::from_static("surrogate-key"),
    HeaderName::from_static("xkey"),
    HeaderName::from_static("cache-tag"),
];

/// The rule that chose the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Named,
    Page,
    HostAndSegment,
}

/// The group of a response. `host` is that of the key, `client_host` the one the client asked.
pub(crate) fn of(
    host: &str,
    client_host: &str,
    path_and_query: &str,
    request: &HeaderMap,
    response: &HeaderMap,
) -> GroupId {
    let (rule, name) = choose(client_host, path_and_query, request, response);
    let mark = match rule {
        Rule::Named => "g",
        Rule::Page => "p",
        Rule::HostAndSegment => "s",
    };
    let mut full = Vec::with_capacity(host.len() + name.len() + 4);
    for part in [mark.as_bytes(), host.as_bytes(), name] {
        full.extend_from_slice(part);
        full.push(0);
    }
    GroupId::of(full)
}

fn choose<'a>(
    client_host: &str,
    path_and_query: &'a str,
    request: &'a HeaderMap,
    response: &'a HeaderMap,
) -> (Rule, &'a [u8]) {
    if let Some(name) = named(response) {
        return (Rule::Named, name);
    }
    if is_document(response) {
        return (Rule::Page, path_and_query.as_bytes());
    }
    if let Some(page) = referring_page(client_host, request) {
        return (Rule::Page, page);
    }
    (Rule::HostAndSegment, first_segment(path_and_query).as_bytes())
}

/// Whether the origin names a group.
pub(crate) fn is_named(response: &HeaderMap) -> bool {
    named(response).is_some()
}

/// The first group the origin names.
fn named(response: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = response.get(CACHE_GROUPS) {
        // A list of strings; the first one is enough, and its escapes need no undoing to compare.
        let start = value.as_bytes().trim_ascii().strip_prefix(b"\"")?;
        let end = start.iter().position(|b| *b == b'"')?;
        return (end > 0).then(|| &start[..end]);
    }
    SURROGATE_KEYS
        .iter()
        .filter_map(|name| response.get(name))
        .flat_map(|value| value.as_bytes().split(|b| matches!(b, b' ' | b',' | b'\t')))
        .find(|key| !key.is_empty())
}

/// Whether a response is a page that embeds others.
pub(crate) fn is_document(response: &HeaderMap) -> bool {
    let media_type = response.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let media_type = media_type.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    media_type.eq_ignore_ascii_case(b"text/html")
        || media_type.eq_ignore_ascii_case(b"application/xhtml+xml")
}

/// Path and query of the `Referer` if it is of the same host.
fn referring_page<'a>(client_host: &str, request: &'a HeaderMap) -> Option<&'a [u8]> {
    let text = request.get(REFERER)?.to_str().ok()?;
    let uri: Uri = text.parse().ok()?;
    if !uri.authority()?.as_str().eq_ignore_ascii_case(client_host) {
        return None;
    }
    let after_scheme = text.split_once("://")?.1;
    let path_start = after_scheme.find(['/', '?', '#']).unwrap_or(after_scheme.len());
    let path = after_scheme[path_start..].split('#').next().unwrap_or_default();
    Some(if path.is_empty() { b"/" } else { path.as_bytes() })
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
    use http::HeaderValue;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(n, v)| (n.parse::<HeaderName>().unwrap(), HeaderValue::from_str(v).unwrap()))
            .collect()
    }

    #[test]
    fn rules_in_order() {
        let html = ("content-type", "text/HTML; charset=utf-8");
        let page = &[("referer", "http://h:80/page?x=1#top")][..];
        for (request, response, expected) in [
            (page, vec![html, ("cache-groups", "\"news\", \"b\"")], (Rule::Named, "news")),
            (page, vec![("surrogate-key", " k1 k2")], (Rule::Named, "k1")),
            (page, vec![("cache-tag", "t1,t2")], (Rule::Named, "t1")),
            (page, vec![html], (Rule::Page, "/a/b?q")),
            (page, vec![], (Rule::Page, "/page?x=1")),
            (&[("referer", "http://H:80")], vec![], (Rule::Page, "/")),
            (&[("referer", "http://other/page")], vec![], (Rule::HostAndSegment, "a")),
            (&[("referer", "::")], vec![], (Rule::HostAndSegment, "a")),
            (&[], vec![("cache-groups", "junk")], (Rule::HostAndSegment, "a")),
        ] {
            let (request, response) = (headers(request), headers(&response));
            let (rule, name) = choose("h:80", "/a/b?q", &request, &response);
            assert_eq!((rule, name), (expected.0, expected.1.as_bytes()), "{response:?}");
        }
        assert_eq!(first_segment("/x.png"), "");
        assert_eq!(first_segment("/img/x.png?a/b"), "img");
    }

    #[test]
    fn a_page_and_its_images_share_a_group() {
        let document =
            of("h", "h", "/p", &headers(&[]), &headers(&[("content-type", "text/html")]));
        let referer = headers(&[("referer", "http://h/p")]);
        let image = of("h", "h", "/i/1.png", &referer, &headers(&[("content-type", "image/png")]));
        assert_eq!(document, image);
        assert_ne!(document, of("g", "h", "/i/1.png", &referer, &headers(&[])));
    }
}
