//! Matches conditions against messages. Pure, no threads.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, Method, StatusCode};

use super::{Conditions, Glob};
use crate::rules::key;

/// A header that must be present; if a value pattern is given, the value must match it.
#[derive(Debug, Clone)]
pub(crate) struct HeaderMatch {
    pub(crate) name: HeaderName,
    pub(crate) value: Option<Glob>,
}

impl HeaderMatch {
    fn matches(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(&self.name).into_iter();
        match &self.value {
            None => values.next().is_some(),
            Some(glob) => values.any(|value| glob.matches(value.as_bytes())),
        }
    }
}

/// A cookie that the request must have; if a value pattern is given, the value must match it.
#[derive(Debug, Clone)]
pub(crate) struct CookieMatch {
    pub(crate) name: Glob,
    pub(crate) value: Option<Glob>,
}

impl CookieMatch {
    fn matches(&self, headers: &HeaderMap) -> bool {
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
    /// Rules that the request matched before rules edited its headers; `None` if none did.
    pub(crate) met: Option<&'a [bool]>,
}

/// What a request asks for, taken apart once for all rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    /// Without the port and the root's dot: with and without, a client gets the same stored
    /// responses.
    pub(super) host: &'a str,
    pub(super) path: &'a str,
    query: &'a str,
}

impl<'a> RequestView<'a> {
    pub(crate) fn asked(&self) -> Asked<'a> {
        let (path, query) =
            self.path_and_query.split_once('?').unwrap_or((self.path_and_query, ""));
        Asked { host: key::without_root(without_port(self.host)), path, query }
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
    /// Whether any condition needs a response.
    pub(crate) fn is_on_response(&self) -> bool {
        !self.statuses.is_empty()
            || !self.types.is_empty()
            || self.size_min.is_some()
            || self.size_max.is_some()
    }

    /// `asked` is that of the request.
    pub(crate) fn match_request(&self, request: &RequestView<'_>, asked: Asked<'_>) -> bool {
        self.match_url(request.scheme, asked)
            && any_or_empty(&self.cookies, |cookie| cookie.matches(request.headers))
            && any_or_empty(&self.methods, |method| method == request.method)
            && self.headers.iter().all(|header| header.matches(request.headers))
    }

    /// Whether a URL meets the conditions on it.
    pub(super) fn match_url(&self, scheme: &str, asked: Asked<'_>) -> bool {
        let Asked { host, path, query } = asked;
        self.scheme.is_none_or(|wanted| wanted == scheme)
            && any_or_empty(&self.hosts, |glob| glob.matches(host.as_bytes()))
            && any_or_empty(&self.paths, |glob| glob.matches(path.as_bytes()))
            && any_or_empty(&self.prefixes, |prefix| path.starts_with(prefix.as_str()))
            && any_or_empty(&self.queries, |glob| glob.matches(query.as_bytes()))
    }

    pub(crate) fn match_response(&self, response: &ResponseView<'_>) -> bool {
        let status = response.status.as_u16();
        let within = |limit: Option<u64>, holds: fn(u64, u64) -> bool| {
            limit.is_none_or(|limit| response.length_bytes.is_some_and(|len| holds(len, limit)))
        };
        any_or_empty(&self.statuses, |range| range.contains(&status))
            && (self.types.is_empty() || self.match_type(response.headers))
            && within(self.size_min, |length, limit| length >= limit)
            && within(self.size_max, |length, limit| length <= limit)
    }

    #[cfg(test)]
    fn match_view(&self, request: &RequestView<'_>) -> bool {
        self.match_request(request, request.asked())
    }

    fn match_type(&self, headers: &HeaderMap) -> bool {
        let Some(value) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
            return false;
        };
        let media_type = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        self.types.iter().any(|glob| glob.matches(media_type.as_bytes()))
    }
}

fn any_or_empty<T>(list: &[T], holds: impl FnMut(&T) -> bool) -> bool {
    list.is_empty() || list.iter().any(holds)
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
    use crate::ruleset::{Rule, Ruleset, Segments};

    fn glob(text: &str) -> Vec<Glob> {
        vec![Glob::new(text, Segments::BySlash).unwrap()]
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
        RequestView { host, scheme, path_and_query: path, method, headers, met: None }
    }

    #[test]
    fn conditions_on_requests() {
        let none = HeaderMap::new();
        let with = headers(&[("accept", "text/html"), ("x-a", "1")]);
        let header = |name: &'static str, value: Option<&str>| {
            let value = value.map(|text| Glob::new(text, Segments::None).unwrap());
            vec![HeaderMatch { name: HeaderName::from_static(name), value }]
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
            (Conditions { prefixes: vec!["/a".into()], ..all() }, "h", "/ab?q", &none, true),
            (Conditions { prefixes: vec!["/a".into()], ..all() }, "h", "/b", &none, false),
            (Conditions { methods: vec![Method::POST], ..all() }, "h", "/", &none, false),
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
            headers: vec![HeaderMatch { name: name.clone(), value: Some(pattern) }],
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
        let values = |text: &str| vec![Glob::new(text, Segments::None).unwrap()];
        let cookie = |name: &str, value: Option<&str>| {
            let glob = |text: &str| Glob::new(text, Segments::None).unwrap();
            vec![CookieMatch { name: glob(name), value: value.map(glob) }]
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
        ] {
            assert_eq!(when.match_view(&view("h", path, &some)), expected, "{when:?} {path}");
        }
    }

    #[test]
    fn conditions_on_responses() {
        let image = headers(&[("content-type", "Image/PNG; q=1")]);
        let all = Conditions::default;
        for (when, length, expected) in [
            (Conditions { statuses: vec![200..=299], ..all() }, None, true),
            (Conditions { statuses: vec![404..=404], ..all() }, None, false),
            (Conditions { types: glob("image/*"), ..all() }, None, true),
            (Conditions { types: glob("text/*"), ..all() }, None, false),
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
