//! Matches conditions against messages. Pure, no threads.

use std::net::IpAddr;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use ipnet::IpNet;

use super::term::{all_met, any_met};
use super::{Conditions, Glob};
use crate::rules::key;

/// A header; if a value pattern is given, one with a value that matches it.
#[derive(Debug, Clone)]
pub(crate) struct HeaderMatch {
    pub(crate) name: HeaderName,
    pub(crate) value: Option<Glob>,
}

impl HeaderMatch {
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(&self.name).into_iter();
        match &self.value {
            None => values.next().is_some(),
            Some(glob) => values.any(|value| glob.matches(value.as_bytes())),
        }
    }
}

/// A cookie; if a value pattern is given, one with a value that matches it.
#[derive(Debug, Clone)]
pub(crate) struct CookieMatch {
    pub(crate) name: Glob,
    pub(crate) value: Option<Glob>,
}

impl CookieMatch {
    fn is_in(&self, headers: &HeaderMap) -> bool {
        key::cookies(headers).any(|(name, value)| {
            let value = value.unwrap_or_default();
            self.name.matches(name) && self.value.as_ref().is_none_or(|glob| glob.matches(value))
        })
    }
}

/// A request as conditions see it.
#[derive(Debug)]
pub(crate) struct RequestView<'a> {
    /// Host that the client requested, lower case, with the port if it sent one.
    pub(crate) host: &'a str,
    /// Scheme of the client's request: `http` or `https`.
    pub(crate) scheme: &'a str,
    pub(crate) path_and_query: &'a str,
    pub(crate) method: &'a Method,
    pub(crate) headers: &'a HeaderMap,
    /// The client's address, IPv4 as such; `None` if there is no client, or it is not known.
    pub(crate) client: Option<IpAddr>,
    /// Rules that the request matched before rules edited its headers; `None` if none did.
    pub(crate) met: Option<&'a [bool]>,
}

/// What a request asks for, taken apart once for all rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedUrl<'a> {
    /// Without the port and the root's dot: with and without, a client gets the same stored
    /// responses.
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    query: &'a str,
}

impl<'a> RequestView<'a> {
    fn is_in(&self, network: &IpNet) -> bool {
        self.client.is_some_and(|client| network.contains(&client))
    }

    pub(crate) fn asked(&self) -> AskedUrl<'a> {
        AskedUrl::of(self.host, self.path_and_query)
    }
}

impl<'a> AskedUrl<'a> {
    /// `host` is in lower case, with or without its port.
    pub(crate) fn of(host: &'a str, path_and_query: &'a str) -> AskedUrl<'a> {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        AskedUrl { host: key::without_root(without_port(host)), path, query }
    }
}

/// A response as conditions see it.
#[derive(Debug)]
pub(crate) struct ResponseView<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) length_bytes: Option<u64>,
}

impl Conditions {
    /// Whether they name statuses, besides ruling some out.
    pub(crate) fn names_status(&self) -> bool {
        self.statuses.iter().any(|term| !term.negated)
    }

    /// Whether any condition needs a response.
    pub(crate) fn is_on_response(&self) -> bool {
        !self.statuses.is_empty()
            || !self.types.is_empty()
            || self.size_min.is_some()
            || self.size_max.is_some()
    }

    /// Whether all of them are on the URL.
    pub(super) fn are_on_url(&self) -> bool {
        let on_request = self.clients.is_empty() && self.cookies.is_empty();
        on_request && self.methods.is_empty() && self.headers.is_empty() && !self.is_on_response()
    }

    /// `asked` is that of the request.
    pub(crate) fn match_request(&self, request: &RequestView<'_>, asked: AskedUrl<'_>) -> bool {
        self.match_url(request.scheme, asked)
            && any_met(&self.clients, |network| request.is_in(network))
            && any_met(&self.cookies, |cookie| cookie.is_in(request.headers))
            && any_met(&self.methods, |method| method == request.method)
            && all_met(&self.headers, |header| header.is_in(request.headers))
    }

    /// Whether a URL meets the conditions on it.
    pub(super) fn match_url(&self, scheme: &str, asked: AskedUrl<'_>) -> bool {
        let AskedUrl { host, path, query } = asked;
        self.scheme.is_none_or(|wanted| wanted == scheme)
            && any_met(&self.hosts, |glob| glob.matches(host.as_bytes()))
            && any_met(&self.paths, |glob| glob.matches(path.as_bytes()))
            && any_met(&self.prefixes, |prefix| path.starts_with(prefix.as_str()))
            && any_met(&self.queries, |glob| glob.matches(query.as_bytes()))
    }

    pub(crate) fn match_response(&self, response: &ResponseView<'_>) -> bool {
        let status = response.status.as_u16();
        let within = |limit: Option<u64>, holds: fn(u64, u64) -> bool| {
            limit.is_none_or(|limit| response.length_bytes.is_some_and(|len| holds(len, limit)))
        };
        any_met(&self.statuses, |range| range.contains(&status))
            && (self.types.is_empty() || self.match_type(response.headers))
            && within(self.size_min, |length, limit| length >= limit)
            && within(self.size_max, |length, limit| length <= limit)
    }

    #[cfg(test)]
    fn match_view(&self, request: &RequestView<'_>) -> bool {
        self.match_request(request, request.asked())
    }

    fn match_type(&self, headers: &HeaderMap) -> bool {
        let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type =
            |value: &str| value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let media_type = value.map(media_type);
        any_met(&self.types, |glob| {
            media_type.as_ref().is_some_and(|media_type| glob.matches(media_type.as_bytes()))
        })
    }
}

pub(super) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Marker before each part that a rule adds to a key. No URL that parses contains this byte.
pub(crate) const KEY_PART: u8 = 2;

/// Appends a header with all its values, each preceded by its length, so that different lists yield
/// different keys.
pub(crate) fn append_header(name: &HeaderName, headers: &HeaderMap, key: &mut Vec<u8>) {
    key.push(KEY_PART);
    key.extend_from_slice(name.as_str().as_bytes());
    for value in headers.get_all(name) {
        append_value(value.as_bytes(), key);
    }
}

/// Appends the first of the site's origins.
pub(crate) fn append_site(url: &str, key: &mut Vec<u8>) {
    key.push(KEY_PART);
    key.push(b'>');
    append_value(url.as_bytes(), key);
}

/// Appends what the site's origins are asked with.
pub(crate) fn append_host_header(host_header: &[u8], key: &mut Vec<u8>) {
    key.push(KEY_PART);
    key.push(b'@');
    append_value(host_header, key);
}

/// Appends the prefix change between the client's path and the origin's.
pub(crate) fn append_prefix(strip: &str, add: &str, key: &mut Vec<u8>) {
    key.push(KEY_PART);
    key.push(b'/');
    append_value(strip.as_bytes(), key);
    append_value(add.as_bytes(), key);
}

/// Appends the values of a cookie, if the request has it.
pub(crate) fn append_cookie(name: &str, headers: &HeaderMap, key: &mut Vec<u8>) {
    key.push(KEY_PART);
    key.push(b';');
    key.extend_from_slice(name.as_bytes());
    for value in key::cookie_values(headers, name) {
        match value {
            Some(value) => append_value(value, key),
            None => key.push(b';'),
        }
    }
}

fn append_value(value: &[u8], key: &mut Vec<u8>) {
    key.push(b'=');
    key.extend_from_slice(&(value.len() as u32).to_le_bytes());
    key.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::{Rule, Ruleset, Segments, Term, split_not};

    fn globs(texts: &[&str], segments: Segments) -> Vec<Term<Glob>> {
        let term = |text: &&str| Term::read(text, |text| Glob::new(text, segments)).unwrap();
        texts.iter().map(term).collect()
    }

    fn glob(text: &str) -> Vec<Term<Glob>> {
        globs(&[text], Segments::BySlash)
    }

    fn networks(texts: &[&str]) -> Vec<Term<IpNet>> {
        let term = |text: &&str| Term::read(text, |text| Ok(text.parse().unwrap())).unwrap();
        texts.iter().map(term).collect()
    }

    fn is(method: Method) -> Term<Method> {
        Term::is(method)
    }

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn view<'a>(host: &'a str, path: &'a str, headers: &'a HeaderMap) -> RequestView<'a> {
        let (scheme, method) = ("http", &Method::GET);
        RequestView {
            host,
            scheme,
            path_and_query: path,
            method,
            headers,
            client: Some([10, 1, 2, 3].into()),
            met: None,
        }
    }

    #[test]
    fn conditions_on_requests() {
        let none = HeaderMap::new();
        let with = headers(&[("accept", "text/html"), ("x-a", "1")]);
        let header = |name: &'static str, value: Option<&str>| {
            let value = value.map(|text| Glob::new(text, Segments::None).unwrap());
            vec![Term::is(HeaderMatch { name: HeaderName::from_static(name), value })]
        };
        let all = Conditions::default;
        for (when, host, path, request, expected) in [
            (all(), "h", "/x", &none, true),
            (Conditions { scheme: Some("http"), ..all() }, "h", "/x", &none, true),
            (Conditions { scheme: Some("https"), ..all() }, "h", "/x", &none, false),
            (
                Conditions { hosts: glob("*.b.example"), ..all() },
                "a.b.example:80",
                "/",
                &none,
                true,
            ),
            (Conditions { hosts: glob("*.b.example"), ..all() }, "b.example", "/", &none, false),
            (Conditions { hosts: glob("b.example"), ..all() }, "b.example.", "/", &none, true),
            (Conditions { hosts: glob("b.example"), ..all() }, "b.example.:80", "/", &none, true),
            (Conditions { hosts: glob("b.example"), ..all() }, "b.example..", "/", &none, false),
            (Conditions { paths: glob("/img/*"), ..all() }, "h", "/img/a.png?x=/y", &none, true),
            (Conditions { paths: glob("/img/*"), ..all() }, "h", "/img/a/b.png", &none, false),
            (Conditions { paths: glob("/img/**"), ..all() }, "h", "/img/a/b.png", &none, true),
            (Conditions { paths: glob("**/*.{css,js}"), ..all() }, "h", "/a/b.js", &none, true),
            (
                Conditions { prefixes: vec![Term::is("/a".into())], ..all() },
                "h",
                "/ab?q",
                &none,
                true,
            ),
            (
                Conditions { prefixes: vec![Term::is("/a".into())], ..all() },
                "h",
                "/b",
                &none,
                false,
            ),
            (Conditions { methods: vec![is(Method::POST)], ..all() }, "h", "/", &none, false),
            (Conditions { headers: header("x-a", None), ..all() }, "h", "/", &with, true),
            (Conditions { headers: header("x-b", None), ..all() }, "h", "/", &with, false),
            (
                Conditions { headers: header("accept", Some("text/*")), ..all() },
                "h",
                "/",
                &with,
                true,
            ),
            (
                Conditions { headers: header("accept", Some("image/*")), ..all() },
                "h",
                "/",
                &with,
                false,
            ),
        ] {
            assert_eq!(when.match_view(&view(host, path, request)), expected, "{when:?} {path}");
        }
    }

    /// A rule that bypasses the cache for logged-in users must match whatever other bytes the line
    /// has.
    #[test]
    fn values_match_whatever_bytes_they_have() {
        let pattern = Glob::new("*session=*", Segments::None).unwrap();
        let name = http::header::COOKIE;
        let when = Conditions {
            headers: vec![Term::new(
                false,
                HeaderMatch { name: name.clone(), value: Some(pattern) },
            )],
            ..Conditions::default()
        };
        for (line, expected) in [
            (&b"last=/shop/1; session=a/b=="[..], true),
            (b"name=Jos\xc3\xa9; session=1", true),
            (b"name=\xff; session=1", true),
            (b"name=\xff", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name.clone(), http::HeaderValue::from_bytes(line).unwrap());
            let view = view("h", "/", &headers);
            assert_eq!(when.match_view(&view), expected, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn conditions_on_queries_and_cookies() {
        let values = |text: &str| globs(&[text], Segments::None);
        let cookie = |name: &str, value: Option<&str>| {
            let glob = |text: &str| Glob::new(text, Segments::None).unwrap();
            let (negated, name) = split_not(name);
            vec![Term::new(negated, CookieMatch { name: glob(name), value: value.map(glob) })]
        };
        let some = headers(&[
            ("cookie", "a=1; wp_user_7=x%2Fy/z=="),
            ("cookie", "bare;theme=dark; spaced =1"),
        ]);
        let all = Conditions::default;
        for (when, path, expected) in [
            (Conditions { queries: values("*preview=*"), ..all() }, "/a?b=/c&preview=1", true),
            (Conditions { queries: values("*preview=*"), ..all() }, "/preview=1", false),
            (Conditions { queries: values("?*"), ..all() }, "/a?", false),
            (Conditions { queries: values("!?*"), ..all() }, "/a", true),
            (Conditions { queries: values("a?b"), ..all() }, "/?a?b", true),
            (Conditions { cookies: cookie("wp_user_*", None), ..all() }, "/", true),
            (Conditions { cookies: cookie("wp_user_*", Some("*/z==")), ..all() }, "/", true),
            (Conditions { cookies: cookie("user", None), ..all() }, "/", false),
            (Conditions { cookies: cookie("bare", None), ..all() }, "/", true),
            (Conditions { cookies: cookie("spaced", Some("1")), ..all() }, "/", true),
            (Conditions { cookies: cookie("theme", Some("light")), ..all() }, "/", false),
            (Conditions { cookies: cookie("theme", Some("d*")), ..all() }, "/", true),
            // Other cookies do not make up for the one that is ruled out.
            (Conditions { cookies: cookie("!theme", None), ..all() }, "/", false),
            (Conditions { cookies: cookie("!theme", Some("d*")), ..all() }, "/", false),
            (Conditions { cookies: cookie("!theme", Some("l*")), ..all() }, "/", true),
            (Conditions { cookies: cookie("!session*", None), ..all() }, "/", true),
            (
                Conditions { paths: globs(&["!/a/**", "!/b/**"], Segments::BySlash), ..all() },
                "/a/x",
                false,
            ),
            (
                Conditions { paths: globs(&["!/a/**", "!/b/**"], Segments::BySlash), ..all() },
                "/c/x",
                true,
            ),
            (
                Conditions { paths: globs(&["/a/**", "!**.gif"], Segments::BySlash), ..all() },
                "/a/x.gif",
                false,
            ),
            (
                Conditions { paths: globs(&["/a/**", "!**.gif"], Segments::BySlash), ..all() },
                "/a/x",
                true,
            ),
            (Conditions { methods: vec![Term::is_not(Method::GET)], ..all() }, "/", false),
            (Conditions { methods: vec![Term::is_not(Method::PUT)], ..all() }, "/", true),
            (Conditions { prefixes: vec![Term::is_not("/a".into())], ..all() }, "/ab", false),
            (Conditions { prefixes: vec![Term::is_not("/a".into())], ..all() }, "/b", true),
            (Conditions { clients: networks(&["10.0.0.0/8"]), ..all() }, "/", true),
            (
                Conditions { clients: networks(&["10.0.0.0/8", "!10.1.0.0/16"]), ..all() },
                "/",
                false,
            ),
            (Conditions { clients: networks(&["192.0.2.0/24", "::/0"]), ..all() }, "/", false),
            (Conditions { clients: networks(&["!192.0.2.0/24"]), ..all() }, "/", true),
        ] {
            assert_eq!(when.match_view(&view("h", path, &some)), expected, "{when:?} {path}");
        }
    }

    /// Of lines and cookies that nobody sent none matches, and of two each counts.
    #[test]
    fn what_is_ruled_out_may_be_absent_and_is_found_on_every_line() {
        let name = http::header::COOKIE;
        let line = |negated: bool, value: Option<&str>| Conditions {
            headers: vec![Term::new(
                negated,
                HeaderMatch {
                    name: name.clone(),
                    value: value.map(|text| Glob::new(text, Segments::None).unwrap()),
                },
            )],
            ..Conditions::default()
        };
        let none = HeaderMap::new();
        let other = headers(&[("cookie", "theme=dark")]);
        let second = headers(&[("cookie", "theme=dark"), ("cookie", "session=1")]);
        for (value, expected) in
            [(Some("*session=*"), [true, true, false]), (None, [true, false, false])]
        {
            for (headers, expected) in [&none, &other, &second].into_iter().zip(expected) {
                let view = view("h", "/", headers);
                assert_eq!(line(true, value).match_view(&view), expected, "{value:?} {headers:?}");
                assert_eq!(line(false, value).match_view(&view), !expected, "{value:?}");
            }
        }
        let untyped = Conditions { types: glob("!text/html"), ..Conditions::default() };
        let view = ResponseView { status: StatusCode::OK, headers: &none, length_bytes: None };
        assert!(untyped.match_response(&view));
    }

    #[test]
    fn conditions_on_responses() {
        let image = headers(&[("content-type", "Image/PNG; q=1")]);
        let all = Conditions::default;
        for (when, length, expected) in [
            (Conditions { statuses: vec![Term::is(200..=299)], ..all() }, None, true),
            (Conditions { statuses: vec![Term::is(404..=404)], ..all() }, None, false),
            (Conditions { types: glob("image/*"), ..all() }, None, true),
            (Conditions { types: glob("text/*"), ..all() }, None, false),
            (Conditions { types: glob("!text/*"), ..all() }, None, true),
            (Conditions { types: glob("!image/*"), ..all() }, None, false),
            (Conditions { statuses: vec![Term::is_not(404..=404)], ..all() }, None, true),
            (Conditions { statuses: vec![Term::is_not(200..=299)], ..all() }, None, false),
            (Conditions { size_min: Some(10), ..all() }, Some(10), true),
            (Conditions { size_min: Some(10), ..all() }, Some(9), false),
            (Conditions { size_max: Some(10), ..all() }, None, false),
        ] {
            let view =
                ResponseView { status: StatusCode::OK, headers: &image, length_bytes: length };
            assert_eq!(when.match_response(&view), expected, "{when:?}");
        }
    }

    #[test]
    fn later_rules_override_and_last_ends() {
        let ttl = |seconds| Some(std::time::Duration::from_secs(seconds));
        let mut rules: Vec<Rule> = (1..=3).map(|n| Rule::named(format!("r{n}"))).collect();
        rules[0].then.ttl = ttl(1);
        rules[0].then.store = Some(false);
        rules[1].then.ttl = ttl(2);
        rules[1].last = true;
        rules[2].then.ttl = ttl(3);
        let ruleset = Ruleset::new(rules);
        let none = HeaderMap::new();
        let response = ResponseView { status: StatusCode::OK, headers: &none, length_bytes: None };
        let effects = ruleset.on_response(&view("h", "/", &none), &response);
        assert_eq!((effects.ttl, effects.store), (ttl(2), Some(false)));
    }

    #[test]
    fn key_parts_never_look_alike() {
        let key = |lines: &[(&'static str, &'static str)]| {
            let (headers, mut key) = (headers(lines), Vec::new());
            append_header(&HeaderName::from_static("x"), &headers, &mut key);
            append_cookie("c", &headers, &mut key);
            key
        };
        let keys = [
            key(&[]),
            key(&[("x", "")]),
            key(&[("x", "a"), ("x", "b")]),
            key(&[("x", "a=b")]),
            key(&[("cookie", "d=1; c=2")]),
            key(&[("cookie", "c=3; d=1")]),
            key(&[("cookie", "cc=3")]),
            key(&[("cookie", "c")]),
            key(&[("cookie", "c =5")]),
        ];
        for (i, a) in keys.iter().enumerate() {
            for (j, b) in keys.iter().enumerate() {
                // A cookie of another name adds nothing to the key, like no cookie at all.
                assert_eq!(a == b, i == j || (i, j) == (0, 6) || (i, j) == (6, 0), "{i} {j}");
            }
        }
    }
}
