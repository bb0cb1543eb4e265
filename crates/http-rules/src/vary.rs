//! Selects the variant of a resource that answers a request (RFC 9111 §4.1).
//!
//! Invariants: two requests get the same secondary key only if every header that `Vary` names is
//! absent from both or equal in both, after joining lines, normalising whitespace around the commas
//! of fields known to be lists (not where a value has quotes or comments) and, for some of them,
//! normalising equivalent values ([`crate::negotiation`]). The same holds for the headers and
//! cookies that the configuration adds to the key. The key is unambiguous, because header values
//! contain no byte below 0x09.

use http::HeaderMap;
use http::header::{
    ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CACHE_CONTROL, FORWARDED, HeaderName,
    HeaderValue, PRAGMA, TE, VARY, VIA,
};

use crate::config::CachingConfig;
use crate::list_members;
use crate::negotiation::Normaliser;

/// Most header names that one `Vary` may list; more count as `*`.
pub const VARY_NAMES_MAX: usize = 16;

/// Fields that are known to be lists, whose whitespace and empty members mean nothing. Of any other
/// field nobody here knows what its commas mean.
const LISTS: [HeaderName; 9] = [
    ACCEPT,
    ACCEPT_CHARSET,
    ACCEPT_ENCODING,
    ACCEPT_LANGUAGE,
    CACHE_CONTROL,
    FORWARDED,
    PRAGMA,
    TE,
    VIA,
];

/// Fields to which a proxy adds the address of its client: the origin sees another value of them
/// than the request that is looked up has.
const OF_CLIENT: [HeaderName; 2] = [FORWARDED, HeaderName::from_static("x-forwarded-for")];

const ABSENT: u8 = 0x01;
const PRESENT: u8 = 0x02;
const NORMAL: u8 = 0x03;
const COOKIE: u8 = 0x04;
const BARE: u8 = 0x05;
const END: u8 = 0x00;

/// The variance of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vary {
    /// Nothing: one response for all.
    Nothing,
    /// These request headers, sorted and without repetition.
    Names(Vec<HeaderName>),
    /// Criteria beyond the request: matches no request.
    Star,
}

impl Vary {
    /// The names that `before` has not; `None` if these are not names.
    pub fn beyond(&self, before: &Vary) -> Option<Vary> {
        let Vary::Names(names) = self else { return None };
        let had: &[HeaderName] = match before {
            Vary::Names(had) => had,
            Vary::Nothing | Vary::Star => &[],
        };
        Some(Vary::Names(names.iter().filter(|name| !had.contains(name)).cloned().collect()))
    }
}

/// Reads `Vary`. An invalid name counts as `*`, and so does a field that says who the client is.
pub fn of(response: &HeaderMap) -> Vary {
    let mut names = Vec::new();
    for member in list_members(response, &VARY) {
        match HeaderName::from_bytes(member) {
            Ok(name) if member != b"*" && !OF_CLIENT.contains(&name) => names.push(name),
            _ => return Vary::Star,
        }
    }
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names.dedup();
    match names.len() {
        0 => Vary::Nothing,
        1..=VARY_NAMES_MAX => Vary::Names(names),
        _ => Vary::Star,
    }
}

/// As [`of`], but a resource whose key has configured headers or cookies always has variants.
pub fn with_configured(response: &HeaderMap, caching: &CachingConfig) -> Vary {
    match of(response) {
        Vary::Nothing if !caching.key.selects_nothing() => Vary::Names(Vec::new()),
        other => other,
    }
}

/// Appends to `key` the request's values of `names` and of the configured headers and cookies.
pub fn secondary_key(
    names: &[HeaderName],
    request: &HeaderMap,
    caching: &CachingConfig,
    key: &mut Vec<u8>,
) {
    for name in names.iter().chain(&caching.key.headers) {
        write_field(name, request, caching, key);
    }
    for cookie in &caching.key.cookies {
        write_cookie(cookie, request, key);
    }
}

fn write_field(name: &HeaderName, request: &HeaderMap, caching: &CachingConfig, key: &mut Vec<u8>) {
    key.extend_from_slice(name.as_str().as_bytes());
    let normaliser = normaliser(name, caching);
    if !request.contains_key(name) {
        // A client that accepts none of the classes is treated like one without the field.
        let reduces = matches!(normaliser, Some(Normaliser::BestOf(_)));
        key.extend_from_slice(if reduces { &[NORMAL, END] } else { &[ABSENT, END] });
        return;
    }
    let mark = key.len();
    key.push(NORMAL);
    let normal =
        normaliser.is_some_and(|normaliser| normaliser.write(list_members(request, name), key));
    if !normal {
        key.truncate(mark);
        key.push(PRESENT);
        write_lines(name, request, key);
    }
    key.push(END);
}

/// Appends the lines of a field as one, without the whitespace and the empty members that lists may
/// have. A value with quotes or comments, where commas and spaces may be content, and fields that
/// are not known to be lists are taken as they are.
fn write_lines(name: &HeaderName, request: &HeaderMap, key: &mut Vec<u8>) {
    let lines = || request.get_all(name).into_iter().map(HeaderValue::as_bytes);
    let is_content = |byte: &u8| matches!(byte, b'"' | b'(' | b'\\');
    if !LISTS.contains(name) || lines().any(|line| line.iter().any(is_content)) {
        for (index, line) in lines().enumerate() {
            if index > 0 {
                key.extend_from_slice(b", ");
            }
            key.extend_from_slice(line);
        }
        return;
    }
    for (index, member) in list_members(request, name).enumerate() {
        if index > 0 {
            key.push(b',');
        }
        key.extend_from_slice(member);
    }
}

fn normaliser<'r>(name: &HeaderName, caching: &'r CachingConfig) -> Option<&'r Normaliser> {
    match *name {
        ACCEPT_ENCODING => Some(&caching.accept_encoding),
        ACCEPT_LANGUAGE => Some(&caching.accept_language),
        _ => None,
    }
}

fn write_cookie(cookie: &str, request: &HeaderMap, key: &mut Vec<u8>) {
    key.push(COOKIE);
    key.extend_from_slice(cookie.as_bytes());
    let mark = key.len();
    for value in crate::key::cookie_values(request, cookie) {
        match value {
            None => key.push(BARE),
            Some(value) => {
                key.push(PRESENT);
                key.extend_from_slice(value);
            }
        }
    }
    if key.len() == mark {
        key.push(ABSENT);
    }
    key.push(END);
}

/// Reduces the origin's request to the classes in its key, where the configuration reduces a field
/// to classes.
pub fn reduce_request(request: &mut HeaderMap, caching: &CachingConfig) {
    let fields =
        [(ACCEPT_ENCODING, &caching.accept_encoding), (ACCEPT_LANGUAGE, &caching.accept_language)];
    for (name, normaliser) in fields {
        let Some(reduced) = normaliser.replacement(list_members(request, &name)) else { continue };
        match HeaderValue::try_from(reduced) {
            Ok(value) if !value.is_empty() => {
                request.insert(name, value);
            }
            _ => {
                request.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyRules;
    use crate::test_headers as headers;

    /// RFC 9110 §12.5.5, RFC 9111 §4.1.
    #[test]
    fn names_are_sorted_and_star_wins() {
        let names = |text: &[(&str, &str)]| of(&headers(text));
        assert_eq!(names(&[]), Vary::Nothing);
        assert_eq!(names(&[("vary", " , ")]), Vary::Nothing);
        for star in [
            "x-forwarded-for",
            "a, Forwarded",
            "*",
            "a, *",
            "*, a",
            ", *",
            "*, *",
            "b c",
            "a, *, b",
            "\"a\"",
        ] {
            assert_eq!(names(&[("vary", star)]), Vary::Star, "{star}");
        }
        assert_eq!(names(&[("vary", "a"), ("vary", "*")]), Vary::Star);
        assert_eq!(names(&[("vary", ""), ("vary", "*")]), Vary::Star);
        let expected = Vary::Names(vec!["a".parse().unwrap(), "b".parse().unwrap()]);
        assert_eq!(names(&[("vary", "B, a"), ("vary", "A")]), expected);
        let many: Vec<String> = (0..=VARY_NAMES_MAX).map(|n| format!("h{n}")).collect();
        assert_eq!(names(&[("vary", &many.join(","))]), Vary::Star);
    }

    /// RFC 9111 §4.1.
    #[test]
    fn which_requests_match() {
        let names: Vec<HeaderName> = ["accept", "accept-encoding", "accept-language", "x"]
            .iter()
            .map(|n| n.parse().unwrap())
            .collect();
        let key = |lines: &[(&str, &str)]| {
            let mut key = Vec::new();
            secondary_key(&names, &headers(lines), &CachingConfig::default(), &mut key);
            key
        };
        for (a, b, same) in [
            (vec![("accept", "a,b")], vec![("accept", " a , b ")], true),
            (vec![("accept", "a"), ("accept", "b")], vec![("accept", "a, b")], true),
            (vec![("accept", "a")], vec![("accept", "A")], false),
            (vec![("accept", "a,b")], vec![("accept", "b,a")], false),
            (vec![("accept", "")], vec![], false),
            (vec![("accept", "x")], vec![("x", "x")], false),
            (vec![("other", "1")], vec![("other", "2")], true),
            (vec![("accept-encoding", "gzip, BR")], vec![("accept-encoding", "br,gzip")], true),
            (vec![("accept-encoding", "gzip")], vec![("accept-encoding", "br")], false),
            (vec![("accept-encoding", "")], vec![], false),
            (
                vec![("accept-language", "EN;q=0.5,de")],
                vec![("accept-language", "de, en;q=.5")],
                false,
            ),
            (
                vec![("accept-language", "EN;q=0.5,de")],
                vec![("accept-language", "de, en;q=0.50")],
                true,
            ),
            (vec![("accept-encoding", "a b")], vec![("accept-encoding", "a b")], true),
            // Within quotes and comments spaces and commas are content (RFC 9110 §5.6.4, §5.6.5).
            (vec![("x", "n=\"S, J\"")], vec![("x", "n=\"S,J\"")], false),
            (vec![("x", "n=\"a,,b\"")], vec![("x", "n=\"a,b\"")], false),
            (vec![("x", "Foo (a, b)")], vec![("x", "Foo (a,b)")], false),
            (vec![("x", "\"a\""), ("x", "b")], vec![("x", "\"a\", b")], true),
            // So they are in fields that are known to be lists.
            (vec![("accept", "a;n=\"S, J\"")], vec![("accept", "a;n=\"S,J\"")], false),
            (vec![("accept", "a (b, c)")], vec![("accept", "a (b,c)")], false),
            (vec![("accept", "a\\, b")], vec![("accept", "a\\,b")], false),
            (vec![("accept", "a, b"), ("accept", "\"c")], vec![("accept", "a,b, \"c")], false),
        ] {
            assert_eq!(key(&a) == key(&b), same, "{a:?} {b:?}");
        }
    }

    /// RFC 9111 §4.1: only what is known to mean the same matches. RFC 6265 §4.2.1 and RFC 9110
    /// §10.1.5: the first two are no lists.
    #[test]
    fn fields_that_are_not_known_to_be_lists_are_compared_as_they_are() {
        let names = ["cookie", "user-agent", "x-filter"].map(HeaderName::from_static);
        let key = |name, value| {
            let mut key = Vec::new();
            secondary_key(&names, &headers(&[(name, value)]), &CachingConfig::default(), &mut key);
            key
        };
        for name in ["cookie", "user-agent", "x-filter"] {
            assert_ne!(key(name, "q=a,,b"), key(name, "q=a,b"));
            assert_ne!(key(name, "q=a, b"), key(name, "q=a,b"));
        }
    }

    #[test]
    fn configured_headers_and_cookies_select() {
        let caching = CachingConfig {
            key: KeyRules {
                headers: vec!["x-device".parse().unwrap()],
                cookies: vec!["lang".to_owned()],
                ..KeyRules::default()
            },
            ..CachingConfig::default()
        };
        assert_eq!(with_configured(&headers(&[]), &caching), Vary::Names(vec![]));
        assert_eq!(with_configured(&headers(&[]), &CachingConfig::default()), Vary::Nothing);
        let key = |lines: &[(&str, &str)]| {
            let mut key = Vec::new();
            secondary_key(&[], &headers(lines), &caching, &mut key);
            key
        };
        assert_eq!(key(&[("cookie", "a=1; lang=de")]), key(&[("cookie", "lang=de; b=2")]));
        assert_ne!(key(&[("cookie", "lang=de")]), key(&[("cookie", "lang=en")]));
        // Which of them counts is the origin's to say.
        let differ = ["lang=de; lang=en", "lang=de", "lang=en; lang=de", "lang=", "lang", "a=1"];
        for (index, one) in differ.iter().enumerate() {
            for other in &differ[..index] {
                assert_ne!(key(&[("cookie", one)]), key(&[("cookie", other)]), "{one}, {other}");
            }
        }
        let mut renamed = caching.clone();
        renamed.key.cookies = vec!["b".to_owned()];
        let mut other = Vec::new();
        secondary_key(&[], &headers(&[("cookie", "b=de")]), &renamed, &mut other);
        assert_ne!(other, key(&[("cookie", "lang=de")]), "the configuration is reloaded");
        assert_eq!(key(&[("cookie", "lang =de")]), key(&[("cookie", "lang=de")]));
        assert_eq!(key(&[("cookie", "a=1")]), key(&[]));
        assert_ne!(key(&[("x-device", "phone")]), key(&[("x-device", "desk")]));
    }

    #[test]
    fn reduced_fields_are_asked_for_as_they_are_keyed() {
        let best = Normaliser::BestOf(vec!["br".to_owned(), "gzip".to_owned()]);
        let caching = CachingConfig { accept_encoding: best, ..CachingConfig::default() };
        let mut request = headers(&[("accept-encoding", "gzip, deflate")]);
        reduce_request(&mut request, &caching);
        assert_eq!(request["accept-encoding"], "gzip");
        let mut request = headers(&[("accept-encoding", "deflate")]);
        reduce_request(&mut request, &caching);
        assert!(request.is_empty());
        let names = [ACCEPT_ENCODING];
        let (mut none, mut silent) = (Vec::new(), Vec::new());
        secondary_key(&names, &headers(&[("accept-encoding", "x")]), &caching, &mut none);
        secondary_key(&names, &headers(&[]), &caching, &mut silent);
        assert_eq!(none, silent);
    }
}
