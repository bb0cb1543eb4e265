//! The key of a resource: scheme, host, path and query (RFC 9111 §2), with the configured
//! modifications.
//!
//! Invariants: path and query are used as sent, except for query parameters that the configuration
//! drops or sorts, by their names as origins read them; hosts are compared in lower case and
//! without the scheme's default port (RFC 9110 §4.2.3). A key contains no byte below 0x21, so that
//! suffixes can be told from it.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use http::HeaderMap;
use http::header::{COOKIE, HeaderName};

/// Which query parameters are part of the key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum QueryRule {
    /// All, as they were sent.
    #[default]
    All,
    /// None: the query is not part of the key.
    None,
    /// All but these. A `*` at the end of a name stands for any rest.
    Except(Vec<String>),
    /// Only these. A `*` at the end of a name stands for any rest.
    Only(Vec<String>),
}

/// Components of a key besides scheme, host and path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyRules {
    /// Query parameters in the key.
    pub query: QueryRule,
    /// Sort parameters by name; those of one name keep their order.
    pub sort_query: bool,
    /// Request headers that select among variants, whatever `Vary` says.
    pub headers: Vec<HeaderName>,
    /// Cookies that select among variants.
    pub cookies: Vec<String>,
}

impl KeyRules {
    /// True if nothing but the URI is in the key.
    pub fn selects_nothing(&self) -> bool {
        self.headers.is_empty() && self.cookies.is_empty()
    }

    /// True if keys have queries as they were sent.
    pub fn keeps_queries(&self) -> bool {
        self.query == QueryRule::All && !self.sort_query
    }

    /// The key of a resource.
    pub fn primary(&self, scheme: &str, host: &str, path_and_query: &str) -> Vec<u8> {
        self.primary_by((None, None), scheme, host, path_and_query)
    }

    /// The key of a resource for which, where there is one, another rule counts for its query, or
    /// for the order of that.
    pub fn primary_by(
        &self,
        (query, sort_query): (Option<&QueryRule>, Option<bool>),
        scheme: &str,
        host: &str,
        path_and_query: &str,
    ) -> Vec<u8> {
        let (query, sort_query) =
            (query.unwrap_or(&self.query), sort_query.unwrap_or(self.sort_query));
        let tail = query.of_key(sort_query, path_and_query);
        let mut key = Vec::with_capacity(scheme.len() + 3 + host.len() + tail.len());
        for part in [scheme, "://", host, &tail] {
            key.extend_from_slice(part.as_bytes());
        }
        key
    }

    /// Path and query as they enter the key. Borrowed if unchanged.
    pub fn path_and_query<'a>(&self, sent: &'a str) -> Cow<'a, str> {
        self.query.of_key(self.sort_query, sent)
    }
}

impl QueryRule {
    fn of_key<'a>(&self, sort_query: bool, sent: &'a str) -> Cow<'a, str> {
        if *self == QueryRule::All && !sort_query {
            return Cow::Borrowed(sent);
        }
        let Some((path, query)) = sent.split_once('?') else { return Cow::Borrowed(sent) };
        let mut kept: Vec<&str> =
            query.split('&').filter(|pair| !pair.is_empty() && self.counts(pair)).collect();
        // Where `;` separates, another order of the pairs is another order of what they contain.
        if sort_query && !kept.iter().any(|pair| pair.contains(';')) {
            kept.sort_by_key(|pair| name_of(pair));
        }
        if kept.is_empty() {
            return Cow::Borrowed(path);
        }
        Cow::Owned(format!("{path}?{}", kept.join("&")))
    }

    /// Whether what stands between two `&` is in the key. Some origins separate parameters by `;`,
    /// too: any one that counts keeps it.
    fn counts(&self, pair: &str) -> bool {
        pair.split(';').filter(|parameter| !parameter.is_empty()).any(|one| self.is_in_key(one))
    }

    fn is_in_key(&self, parameter: &str) -> bool {
        let listed = |names: &[String]| {
            let sent = name_of(parameter);
            names.iter().any(|name| match name.strip_suffix('*') {
                Some(start) => sent.starts_with(start.as_bytes()),
                None => *sent == *name.as_bytes(),
            })
        };
        match self {
            QueryRule::All => true,
            QueryRule::None => false,
            QueryRule::Except(names) => !listed(names),
            QueryRule::Only(names) => listed(names),
        }
    }
}

/// The name of a parameter as origins read it: `%61` is `a`. By any other, a client could have what
/// an origin makes of a listed parameter stored under a key without it.
fn name_of(parameter: &str) -> Cow<'_, [u8]> {
    let name = parameter.split_once('=').map_or(parameter, |(name, _)| name).as_bytes();
    if !name.contains(&b'%') && !name.contains(&b'+') {
        return Cow::Borrowed(name);
    }
    let (mut read, mut rest) = (Vec::with_capacity(name.len()), name);
    while let Some((&first, behind)) = rest.split_first() {
        let (byte, left) = match (first, escaped(behind)) {
            (b'%', Some(byte)) => (byte, &behind[2..]),
            (b'+', _) => (b' ', behind),
            _ => (first, behind),
        };
        read.push(byte);
        rest = left;
    }
    Cow::Owned(read)
}

/// The byte that two hexadecimal digits stand for.
fn escaped(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| digits.get(at).and_then(|d| char::from(*d).to_digit(16));
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

/// A normalised host: lower case, without the scheme's default port, without the trailing dot of a
/// fully qualified name, an IPv6 address in its shortest form (RFC 5952).
pub fn normal_host(authority: &str, scheme: &str) -> String {
    // One allocation: this is done for every request.
    let mut host = authority.to_ascii_lowercase();
    let own_port = if scheme == "https" { ":443" } else { ":80" };
    let kept = host.strip_suffix(own_port).or_else(|| host.strip_suffix(':')).map(str::len);
    host.truncate(kept.unwrap_or(host.len()));
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => &host,
    };
    if let Some(address) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        let length = name.len();
        if let Ok(address) = address.parse::<Ipv6Addr>() {
            host.replace_range(..length, &format!("[{address}]"));
        }
        return host;
    }
    let kept = without_root(name).len();
    if kept < name.len() {
        host.remove(kept);
    }
    host
}

/// A host without port, without the root's trailing dot. A name with several trailing dots is
/// invalid and stays as it is, so that it remains a different host.
pub fn without_root(name: &str) -> &str {
    name.strip_suffix('.').filter(|rest| !rest.ends_with('.')).unwrap_or(name)
}

/// The bytes of a registered name (RFC 3986 §3.2.2) but its `sub-delims`, which no name that can be
/// looked up has: at a `,`, `;` or `=` others end the host, in a field such as `Forwarded`, in a
/// log or in a cookie's domain. A table: every request is checked.
const IN_NAMES: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let (others, mut at) = (b".-_%~", 0);
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
};

/// Whether bytes are a host with an optional port (RFC 3986 §3.2.2, §3.2.3), without user
/// information and without `!$&'()*+,;=`.
pub fn is_plain_authority(bytes: &[u8]) -> bool {
    let colon = bytes.iter().rposition(|byte| *byte == b':');
    let (host, port) = match colon.and_then(|colon| bytes.split_at_checked(colon)) {
        // A colon before a bracket is one of an IPv6 address.
        Some((host, port)) if !port.contains(&b']') => (host, &port[1..]),
        _ => (bytes, &b""[..]),
    };
    let digits = std::str::from_utf8(port).ok().filter(|_| port.iter().all(u8::is_ascii_digit));
    let number = digits.and_then(|digits| digits.parse::<u16>().ok());
    if !port.is_empty() && number.is_none_or(|port| port == 0) {
        return false;
    }
    let may = |byte: &u8| IN_NAMES[usize::from(*byte)];
    match host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")) {
        Some(address) => address.iter().all(|byte| may(byte) || *byte == b':'),
        None => host.iter().all(may),
    }
}

/// Every cookie of a request (RFC 6265 §5.4): its name, and its value, which is `None` without `=`.
pub fn cookies(request: &HeaderMap) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    let lines = request.get_all(COOKIE).into_iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|b| *b == b';'));
    pairs.map(<[u8]>::trim_ascii).map(|pair| {
        let equals = pair.iter().position(|b| *b == b'=');
        equals.map_or((pair, None), |at| (pair[..at].trim_ascii_end(), Some(&pair[at + 1..])))
    })
}

/// The values of the cookies of one name. Origins differ in which of several counts, whether a
/// space ends the name, and what a name alone means: by any rule that ignores one of them, a client
/// could have what an origin makes of it stored under a key without it.
pub fn cookie_values<'a>(
    request: &'a HeaderMap,
    name: &str,
) -> impl Iterator<Item = Option<&'a [u8]>> {
    cookies(request).filter(move |(of, _)| *of == name.as_bytes()).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_headers as headers;

    /// RFC 9111 §2.
    #[test]
    fn queries_by_configuration() {
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let except = QueryRule::Except(names(&["utm_*", "id"]));
        let only = QueryRule::Only(names(&["a", "b*"]));
        for (query, sort_query, sent, expected) in [
            (QueryRule::All, false, "/p?b=1&a=2&b=0", "/p?b=1&a=2&b=0"),
            (QueryRule::All, true, "/p?b=1&a=2&b=0", "/p?a=2&b=1&b=0"),
            (QueryRule::All, false, "/p?", "/p?"),
            (QueryRule::None, false, "/p?b=1", "/p"),
            (except.clone(), false, "/p?utm_x=1&z=2&id=3&idx=4", "/p?z=2&idx=4"),
            (except, false, "/p?id", "/p"),
            (only.clone(), false, "/p?c=1&b2=2&a", "/p?b2=2&a"),
            (only, true, "/p", "/p"),
        ] {
            let rules = KeyRules { query, sort_query, ..KeyRules::default() };
            assert_eq!(rules.path_and_query(sent), expected, "{sent} by {rules:?}");
        }
        let key = KeyRules::default().primary("https", "h", "/p?q");
        assert_eq!(key, b"https://h/p?q");
    }

    /// An origin reads `%61=2` as `a=2`; what it answers then is not what it has without `a`.
    #[test]
    fn names_of_parameters_are_what_origins_read() {
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let only = QueryRule::Only(names(&["a", "b b", "c*", "%"]));
        let except = QueryRule::Except(names(&["utm_*"]));
        for (query, sort_query, sent, expected) in [
            (only.clone(), false, "/p?%61=2", "/p?%61=2"),
            (only.clone(), false, "/p?b+b=1&b%20b=2&b=3", "/p?b+b=1&b%20b=2"),
            (only.clone(), false, "/p?%63x&%43x", "/p?%63x"),
            (only, false, "/p?%=1&%2&%2561=1&%zz=1&%6", "/p?%=1"),
            (except, false, "/p?utm%5Fx=1&%75tm_y&z", "/p?z"),
            // Which of two counts is the origin's to say, so that they keep their order.
            (QueryRule::All, true, "/p?b&a=1&%61=2", "/p?a=1&%61=2&b"),
            (QueryRule::All, true, "/p?b&%61=2&a=1", "/p?%61=2&a=1&b"),
        ] {
            let rules = KeyRules { query, sort_query, ..KeyRules::default() };
            assert_eq!(rules.path_and_query(sent), expected, "{sent} by {rules:?}");
        }
    }

    /// An origin that separates by `;`, too, reads two parameters in `utm_x=1;a=2`.
    #[test]
    fn parameters_behind_semicolons_count() {
        let names = |list: &[&str]| list.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let except = QueryRule::Except(names(&["utm_*"]));
        let only = QueryRule::Only(names(&["a"]));
        for (query, sort_query, sent, expected) in [
            (except.clone(), false, "/p?utm_x=1;a=2&b", "/p?utm_x=1;a=2&b"),
            (except.clone(), false, "/p?utm_x=1;utm_y=2;&b", "/p?b"),
            (only.clone(), false, "/p?b=1;%61=2&b=3;c", "/p?b=1;%61=2"),
            (only, false, "/p?;&a;&b;", "/p?a;"),
            (QueryRule::None, false, "/p?a;b", "/p"),
            (QueryRule::All, true, "/p?b=1&a=1;b=2", "/p?b=1&a=1;b=2"),
            (QueryRule::All, true, "/p?a=1;b=2&b=1", "/p?a=1;b=2&b=1"),
            (except, true, "/p?b&a&utm_x;utm_y", "/p?a&b"),
        ] {
            let rules = KeyRules { query, sort_query, ..KeyRules::default() };
            assert_eq!(rules.path_and_query(sent), expected, "{sent} by {rules:?}");
        }
    }

    /// RFC 9110 §4.2.3.
    #[test]
    fn hosts_that_are_the_same() {
        for (authority, scheme, expected) in [
            ("EXAMPLE.org", "http", "example.org"),
            ("example.org:80", "http", "example.org"),
            ("example.org:443", "https", "example.org"),
            ("example.org:80", "https", "example.org:80"),
            ("example.org:8080", "http", "example.org:8080"),
            ("example.org:", "http", "example.org"),
            ("example.org.", "http", "example.org"),
            ("example.org.:8080", "http", "example.org:8080"),
            ("example.org..", "http", "example.org.."),
            ("[::1]..:8080", "http", "[::1]..:8080"),
            ("[::1]:80", "http", "[::1]"),
            ("[::1]", "http", "[::1]"),
            ("[0:0::0:1]:80", "http", "[::1]"),
            ("[2001:DB8:0::00a]:8080", "http", "[2001:db8::a]:8080"),
            ("[::127.0.0.1.]", "http", "[::127.0.0.1.]"),
        ] {
            assert_eq!(normal_host(authority, scheme), expected);
        }
    }

    /// RFC 3986 §3.2.2, §3.2.3.
    #[test]
    fn hosts_that_are_plain() {
        for plain in ["a", "a.test:80", "a:", "", ":80", "[::1]", "[::1]:8080", "a_b%20", "a:65535"]
        {
            assert!(is_plain_authority(plain.as_bytes()), "{plain}");
        }
        for odd in [
            "a:80:80", "a:b", "a:0", "a:65536", "a:+80", "::1", "[::1", "::1]", "[::1]a", "a[::1]",
            "u@a", "a/b", "a b", "[[::1]]", "\u{e9}",
        ] {
            assert!(!is_plain_authority(odd.as_bytes()), "{odd}");
        }
        for delimiter in "!$&'()*+,;=".chars() {
            for odd in [format!("a.test{delimiter}x"), format!("[v1.{delimiter}]:80")] {
                assert!(!is_plain_authority(odd.as_bytes()), "{odd}");
            }
        }
    }

    #[test]
    fn cookies_are_found_whole() {
        let lines =
            [("cookie", "xa=0; a=1;b=2"), ("cookie", "c=3; a=4; a; a =x=y"), ("cookie", "=a")];
        let request = headers(&lines);
        let values = |name| cookie_values(&request, name).collect::<Vec<_>>();
        assert_eq!(values("a"), [Some(&b"1"[..]), Some(b"4"), None, Some(b"x=y")]);
        assert_eq!(values("c"), [Some(&b"3"[..])]);
        assert_eq!(values("x"), []);
    }
}
