//! Invalidation by unsafe requests (RFC 9111 §4.4, RFC 9875 §3).
//!
//! Invariants: only an unsafe or unknown method that did not fail invalidates; URIs of another
//! origin are never invalidated.

use http::header::{CONTENT_LOCATION, HeaderName, LOCATION};
use http::{HeaderMap, Method, StatusCode, Uri};

use crate::key::normal_host;

/// Methods registered as safe that the library does not know as such (RFC 4918 §9.1, RFC 3253 §3.6,
/// RFC 5323 §2): clients of WebDAV send them for whatever they are about to read.
const SAFE_BY_REGISTRY: [&str; 3] = ["PROPFIND", "REPORT", "SEARCH"];

/// Whether a method is known to change nothing.
pub fn is_safe(method: &Method) -> bool {
    method.is_safe() || SAFE_BY_REGISTRY.contains(&method.as_str())
}

/// Whether by this field a client of many frameworks says that they are to take the request for one
/// of another method. With underscores for hyphens some take it, too.
fn names_another_method(name: &HeaderName) -> bool {
    let is = |known: &str| {
        name.as_str().bytes().map(|b| if b == b'_' { b'-' } else { b }).eq(known.bytes())
    };
    // Asked of every field of every request: most have another length.
    match name.as_str().len() {
        13 => is("x-http-method"),
        17 => is("x-method-override"),
        22 => is("x-http-method-override"),
        _ => false,
    }
}

/// Whether an origin may take a request for one of another method than it is: no answer to it is
/// one to a GET.
pub fn overrides_method(request: &HeaderMap) -> bool {
    request.keys().any(names_another_method)
}

/// The method that an origin may take a request for: its own, or an unsafe one that a field names
/// in its place.
pub fn acting_method(method: &Method, request: &HeaderMap) -> Method {
    if !is_safe(method) || !overrides_method(request) {
        return method.clone();
    }
    let named = request.iter().filter(|(name, _)| names_another_method(name)).map(|(_, value)| {
        // What is no method is nothing that is known to be safe.
        Method::from_bytes(&value.as_bytes().to_ascii_uppercase()).unwrap_or(Method::POST)
    });
    named.into_iter().find(|named| !is_safe(named)).unwrap_or_else(|| method.clone())
}

/// Whether a response means that the target has changed.
pub fn invalidates(method: &Method, status: StatusCode) -> bool {
    !is_safe(method) && (status.is_success() || status.is_redirection())
}

/// The URI of a request.
#[derive(Debug, Clone, Copy)]
pub struct Base<'a> {
    /// Schemes and hosts under which clients or the origin know this origin; a host may be empty.
    pub origins: [(&'a str, &'a str); 3],
    /// Path and query.
    pub path_and_query: &'a str,
}

/// Path and query of every URI of the same origin that the response names besides the target.
pub fn named<'a>(base: Base<'a>, response: &'a HeaderMap) -> impl Iterator<Item = String> + 'a {
    let lines = [LOCATION, CONTENT_LOCATION].into_iter();
    lines
        .filter_map(|name| response.get(name))
        .filter_map(move |value| resolve(base, value.to_str().ok()?.trim()))
}

/// Path and query of the URI that a copy or move writes to (RFC 4918 §10.3), if it is of the same
/// origin.
pub fn destination(base: Base<'_>, method: &Method, request: &HeaderMap) -> Option<String> {
    let value = request.get("destination").filter(|_| ["COPY", "MOVE"].contains(&method.as_str()));
    resolve(base, value?.to_str().ok()?.trim())
}

/// True if the response declares that its content represents the target itself (RFC 9110 §8.7).
pub fn represents_target(base: Base<'_>, response: &HeaderMap) -> bool {
    let mut lines = response.get_all(CONTENT_LOCATION).into_iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return false };
    let named = line.to_str().ok().and_then(|text| resolve(base, text.trim()));
    named.as_deref() == Some(base.path_and_query)
}

/// Path and query of a reference resolved against `base` (RFC 3986 §5.2); `None` if it is of
/// another origin, or not a reference.
pub fn resolve(base: Base<'_>, reference: &str) -> Option<String> {
    let reference = reference.split('#').next().unwrap_or_default();
    if reference.bytes().any(|b| b <= b' ' || b == 0x7f) {
        return None;
    }
    let (base_path, base_query) = split(base.path_and_query);
    let rest = match strip_scheme(reference) {
        Some((scheme, rest)) => {
            // An absolute reference without authority names no HTTP resource.
            return rest
                .strip_prefix("//")
                .and_then(|rest| same_authority(base, Some(scheme), rest));
        }
        None => reference,
    };
    if let Some(rest) = rest.strip_prefix("//") {
        return same_authority(base, None, rest);
    }
    let (path, query) = split(rest);
    let (path, query) = match (path, query) {
        ("", "") => (base_path.to_owned(), base_query),
        ("", query) => (base_path.to_owned(), query),
        (path, query) if path.starts_with('/') => (without_dots(path), query),
        (path, query) => {
            let folder = &base_path[..base_path.rfind('/').map_or(0, |slash| slash + 1)];
            (without_dots(&format!("{folder}{path}")), query)
        }
    };
    Some(path + query)
}

fn same_authority(base: Base<'_>, scheme: Option<&str>, rest: &str) -> Option<String> {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let authority = &rest[..end];
    // An authority that hyper rejects, or with user information, is not this origin's.
    let plain = !authority.contains('@') && authority.parse::<http::uri::Authority>().is_ok();
    let ours = base.origins.iter().any(|(ours, host)| {
        !host.is_empty()
            && scheme.is_none_or(|named| named.eq_ignore_ascii_case(ours))
            && normal_host(host, ours) == normal_host(authority, ours)
    });
    if !plain || !ours {
        return None;
    }
    let (path, query) = split(&rest[end..]);
    let path = if path.is_empty() { "/".to_owned() } else { without_dots(path) };
    Some(path + query)
}

/// `scheme` and the rest behind its colon, if the reference begins with one.
fn strip_scheme(reference: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = reference.split_once(':')?;
    let valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    valid.then_some((scheme, rest))
}

/// Path, and query with its question mark.
fn split(path_and_query: &str) -> (&str, &str) {
    let end = path_and_query.find('?').unwrap_or(path_and_query.len());
    path_and_query.split_at(end)
}

/// Removes `.` and `..` (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." => {}
            ".." => {
                kept.pop();
            }
            other => {
                kept.push(other);
                continue;
            }
        }
        if last {
            kept.push("");
        }
    }
    format!("/{}", kept.join("/"))
}

/// Host of an absolute URI, for comparison with another; `None` if it is not one.
pub fn host_of(uri: &str) -> Option<String> {
    let uri: Uri = uri.parse().ok()?;
    Some(normal_host(uri.authority()?.as_str(), uri.scheme_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_headers as headers;

    /// RFC 9110 §8.7, §9.3.3.
    #[test]
    fn content_that_represents_the_target() {
        let base =
            Base { origins: [("http", "h"), ("http", ""), ("", "")], path_and_query: "/a/b?c" };
        for (lines, expected) in [
            (vec![("content-location", "/a/b?c")], true),
            (vec![("content-location", "b?c")], true),
            (vec![("content-location", "http://h/a/b?c")], true),
            (vec![("content-location", "")], true),
            (vec![("content-location", "/a/b")], false),
            (vec![("content-location", "/a/b?d")], false),
            (vec![("content-location", "http://other/a/b?c")], false),
            (vec![("content-location", "http://:80/a/b?c")], false),
            (vec![("content-location", "///a/b?c")], false),
            (vec![("content-location", "/a/b?c"), ("content-location", "/a/b?c")], false),
            (vec![("location", "/a/b?c")], false),
            (vec![], false),
        ] {
            assert_eq!(represents_target(base, &headers(&lines)), expected, "{lines:?}");
        }
    }

    const BASE: Base<'static> = Base {
        origins: [("http", "h:8080"), ("http", "example.org"), ("https", "www.example.org")],
        path_and_query: "/a/b/c?q=1",
    };

    /// RFC 9111 §4.4.
    #[test]
    fn which_exchanges_invalidate() {
        for (method, status, expected) in [
            ("POST", 200, true),
            ("PUT", 201, true),
            ("DELETE", 204, true),
            ("PATCH", 303, true),
            ("M-SEARCH", 200, true),
            ("post", 200, true),
            ("POST", 400, false),
            ("POST", 500, false),
            ("POST", 103, false),
            ("GET", 200, false),
            ("HEAD", 200, false),
            ("OPTIONS", 200, false),
            ("TRACE", 200, false),
            ("PROPFIND", 207, false),
            ("REPORT", 200, false),
            ("SEARCH", 207, false),
            ("propfind", 207, true),
            ("PROPPATCH", 207, true),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let method: Method = method.parse().unwrap();
            assert_eq!(invalidates(&method, status), expected, "{method} {status}");
        }
    }

    #[test]
    fn a_request_may_act_as_one_of_another_method() {
        for (method, field, acting) in [
            ("GET", ("x-http-method-override", "PUT"), "PUT"),
            ("HEAD", ("x-http-method", "delete"), "DELETE"),
            ("GET", ("x_method_override", "brew it"), "POST"),
            ("PROPFIND", ("x-method-override", "PROPPATCH"), "PROPPATCH"),
            ("GET", ("x-http-method-override", "head"), "GET"),
            ("POST", ("x-http-method-override", "GET"), "POST"),
            ("GET", ("x-http-methods", "PUT"), "GET"),
        ] {
            let (method, request) = (method.parse::<Method>().unwrap(), headers(&[field]));
            assert_eq!(acting_method(&method, &request).as_str(), acting, "{method} {field:?}");
            assert_eq!(overrides_method(&request), field.0 != "x-http-methods", "{field:?}");
        }
    }

    /// RFC 3986 §5.2, §5.4; RFC 9111 §4.4.
    #[test]
    fn references_of_the_same_origin() {
        for (reference, expected) in [
            ("/x?y", Some("/x?y")),
            ("/x#f", Some("/x")),
            ("x", Some("/a/b/x")),
            ("./x", Some("/a/b/x")),
            ("../x", Some("/a/x")),
            ("../../../x", Some("/x")),
            ("..", Some("/a/")),
            (".", Some("/a/b/")),
            ("?z", Some("/a/b/c?z")),
            ("", Some("/a/b/c?q=1")),
            ("#f", Some("/a/b/c?q=1")),
            ("/x/./y/../z", Some("/x/z")),
            ("/a//b", Some("/a//b")),
            ("http://h:8080/x", Some("/x")),
            ("HTTP://H:8080/x", Some("/x")),
            ("http://example.org:80", Some("/")),
            ("http://example.org?q", Some("/?q")),
            ("//example.org/x", Some("/x")),
            ("https://example.org/x", None),
            ("https://WWW.example.org:443/x", Some("/x")),
            ("http://www.example.org/x", None),
            ("http://example.org:81/x", None),
            ("http://elsewhere/x", None),
            ("//elsewhere/x", None),
            ("http://u@example.org/x", None),
            ("mailto:a@b", None),
            ("http:x", None),
            ("/a b", None),
            ("/a\u{7f}", None),
            ("/a\tb", None),
            ("//example.org:http/x", None),
        ] {
            assert_eq!(resolve(BASE, reference).as_deref(), expected, "{reference}");
        }
    }

    #[test]
    fn both_fields_are_followed() {
        let response = headers(&[("location", "/new"), ("content-location", "http://h:8080/too")]);
        assert_eq!(named(BASE, &response).collect::<Vec<_>>(), ["/new", "/too"]);
    }

    /// RFC 4918 §9.8, §9.9, §10.3.
    #[test]
    fn where_a_copy_or_move_goes() {
        for (method, said, expected) in [
            ("MOVE", "http://h:8080/x", Some("/x")),
            ("COPY", "/x/", Some("/x/")),
            ("COPY", "http://elsewhere/x", None),
            ("PUT", "/x", None),
            ("move", "/x", None),
        ] {
            let method: Method = method.parse().unwrap();
            let found = destination(BASE, &method, &headers(&[("destination", said)]));
            assert_eq!(found.as_deref(), expected, "{method} {said}");
        }
        assert_eq!(destination(BASE, &"MOVE".parse().unwrap(), &headers(&[])), None);
    }

    #[test]
    fn hosts_of_uris() {
        assert_eq!(host_of("http://H:80/x").as_deref(), Some("h"));
        assert_eq!(host_of("/x"), None);
        assert_eq!(host_of("::"), None);
    }
}
