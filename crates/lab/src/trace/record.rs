//! One request as a trace says it, before ids: borrowed text, raw numbers.
//!
//! Parsers return offsets into the line ([`Parsed`]), so that a reader can hand out borrows of its
//! buffer after it has moved on. Pure.

use super::operation::operation;
use crate::request::Op;

/// How a trace names an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectName<'a> {
    /// By text, mostly a URL.
    Text(&'a [u8]),
    /// By number.
    Id(u64),
}

/// One request, borrowed from its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Microseconds since whatever the trace counts from; 0 if it has no times.
    pub time_us: u64,
    /// Who asked; empty if the trace does not say.
    pub client: &'a [u8],
    /// HTTP method; empty if the trace does not say.
    pub method: &'a [u8],
    /// HTTP status; 0 if the trace does not say.
    pub status: u16,
    /// What the cache in front of which the trace was taken did, as Squid names it
    /// (`TCP_MISS`); empty if the trace does not say.
    pub cache_result: &'a [u8],
    /// Size of object or reply. 1 for traces that have no sizes.
    pub size_bytes: u64,
    /// What was asked for.
    pub object: ObjectName<'a>,
}

const OF_NEIGHBOURS: &str = "questions of neighbour caches (ICP, HTCP)";
const NOT_UNDERSTOOD: &str = "requests that the proxy did not understand (NONE, error:)";

impl Record<'_> {
    /// What the method does to the object: PUT writes, DELETE and PURGE delete, all else of HTTP
    /// reads; what memcached and CacheLib call their commands does what it says there, whatever its
    /// case. A delete that was refused is a change that changed nothing: a write without a body.
    #[must_use]
    pub fn op(&self) -> Op {
        match self.method {
            b"" | b"GET" => Op::Read,
            _ if self.is_refused_delete() => Op::Write,
            method => operation(method).unwrap_or_default(),
        }
    }

    /// True of DELETE, PURGE and `delete` of caches in memory, whatever came of it.
    pub(crate) fn asks_to_delete(&self) -> bool {
        !matches!(self.method, b"" | b"GET") && operation(self.method) == Some(Op::Delete)
    }

    /// True of one that was answered with an error, after which caches keep what they have (RFC
    /// 9111 §4.4). That PURGE finds nothing is none: the cache that wrote the log did not have the
    /// object, but another one might.
    #[must_use]
    pub fn is_refused_delete(&self) -> bool {
        let finds_nothing = self.method == b"PURGE" && self.status == 404;
        self.status >= 400 && self.asks_to_delete() && !finds_nothing
    }

    /// True if the answer is an object of the size logged, all of it. 1xx, 204, 205 and 304 (Not
    /// Modified) and the answer to HEAD have no body, whatever size is logged: Squid counts their
    /// headers. A part (206, 416) and what was broken off say nothing of the whole. What a refused
    /// delete is answered with is no version of its object.
    #[must_use]
    #[inline]
    pub fn has_body(&self) -> bool {
        let is_asked = matches!(self.method, b"" | b"GET");
        if is_asked && matches!(self.status, 0 | 200) && self.cache_result.is_empty() {
            return self.size_bytes > 0;
        }
        let is_none = matches!(self.status, 100..=199 | 204 | 205 | 206 | 304 | 416)
            || self.method == b"HEAD"
            || self.is_broken_off()
            || self.is_refused_delete();
        self.size_bytes > 0 && !is_none
    }

    /// True if the client or the origin went before the end: nginx's 499, and what Squid says in
    /// its result, or by no status at all (000).
    fn is_broken_off(&self) -> bool {
        self.status == 499 || self.is_broken_off_by_result()
    }

    fn is_broken_off_by_result(&self) -> bool {
        let has_words = || {
            let finds = |word| memchr::memmem::find(self.cache_result, word).is_some();
            finds(b"_ABORTED") || finds(b"_TIMEDOUT")
        };
        !self.cache_result.is_empty() && (self.status == 0 || has_words())
    }

    /// The size as our own form has it, which has no place for the result: 0 if that alone says
    /// that the answer was broken off.
    pub(crate) fn size_without_result(&self) -> u64 {
        if self.is_broken_off_by_result() { 0 } else { self.size_bytes }
    }

    /// Size of the object that is the answer; 0 if it is none.
    #[must_use]
    pub fn body_bytes(&self) -> u64 {
        if self.has_body() { self.size_bytes } else { 0 }
    }

    /// What it is if it asks for no object of a cache, as proxies log other things, too: `None` of
    /// a request.
    pub(crate) fn no_request(&self) -> Option<&'static str> {
        let url = match self.object {
            ObjectName::Text(url) => url,
            ObjectName::Id(_) => b"",
        };
        match (self.method, self.cache_result) {
            (b"CONNECT", _) | (_, b"TCP_TUNNEL") => Some("tunnels (CONNECT)"),
            (b"ICP_QUERY", _) => Some(OF_NEIGHBOURS),
            (method, _) if method.starts_with(b"HTCP_") => Some(OF_NEIGHBOURS),
            (_, result) if result.starts_with(b"UDP_") => Some(OF_NEIGHBOURS),
            (_, result) if result.starts_with(b"TCP_DENIED") => Some("denied by the proxy"),
            (b"NONE", _) => Some(NOT_UNDERSTOOD),
            (_, [_, ..]) if url.starts_with(b"error:") => Some(NOT_UNDERSTOOD),
            _ => None,
        }
    }

    /// Host of the object's URL; empty if it has none.
    #[must_use]
    pub fn host(&self) -> &[u8] {
        match self.object {
            ObjectName::Text(url) => host_of(url),
            ObjectName::Id(_) => b"",
        }
    }
}

/// Scheme of a URL that begins with one and `://` (RFC 3986 §3.1). A path or a query may hold
/// another URL (`/go?to=http://...`), whose scheme and host are none of its own.
pub(crate) fn scheme_of(url: &[u8]) -> Option<&[u8]> {
    let scheme = &url[..memchr::memmem::find(url, b"://")?];
    let may_be = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let begins = scheme.first().is_some_and(u8::is_ascii_alphabetic);
    (begins && scheme.iter().all(may_be)).then_some(scheme)
}

/// Host of a URL as RFC 3986 §3.2 divides it: after `//`, without user, port and what follows. Case
/// is left as it is; hosts are compared without it (§6.2.2.1).
#[must_use]
pub fn host_of(url: &[u8]) -> &[u8] {
    let Some(scheme) = scheme_of(url) else { return b"" };
    let rest = &url[scheme.len() + 3..];
    let end = memchr::memchr3(b'/', b'?', b'#', rest).unwrap_or(rest.len());
    let authority = &rest[..end];
    let host = memchr::memrchr(b'@', authority).map_or(authority, |at| &authority[at + 1..]);
    if host.first() == Some(&b'[') {
        let end = memchr::memchr(b']', host).map_or(host.len(), |at| at + 1);
        return &host[..end];
    }
    let name = &host[..memchr::memchr(b':', host).unwrap_or(host.len())];
    // A name may end with the dot of the root (RFC 3986 section 3.2.2), and is the same one
    // without.
    name.strip_suffix(b".").unwrap_or(name)
}

/// A part of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Where `part`, which must be a part of `line`, lies in it.
    pub(crate) fn of(line: &[u8], part: &[u8]) -> Span {
        let start = part.as_ptr() as usize - line.as_ptr() as usize;
        debug_assert!(start + part.len() <= line.len());
        Span { start: start as u32, end: (start + part.len()) as u32 }
    }

    pub(crate) fn in_line(self, line: &[u8]) -> &[u8] {
        &line[self.start as usize..self.end as usize]
    }
}

/// Name of an object in a parsed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParsedName {
    Text(Span),
    /// Text in which two quotes stand for one.
    Doubled(Span),
    /// Text of a web server's log with escapes in it.
    Escaped(Span),
    /// A path, which may have escapes, and the site in front of the line with its port.
    OnSite {
        site: Span,
        path: Span,
    },
    Id(u64),
}

/// A parsed line: numbers, and where the text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) time_us: u64,
    pub(crate) client: Span,
    pub(crate) method: Span,
    pub(crate) status: u16,
    pub(crate) cache_result: Span,
    pub(crate) size_bytes: u64,
    pub(crate) object: ParsedName,
}

impl Parsed {
    /// As [`Record::no_request`]; what most lines are is known at once.
    #[inline]
    pub(crate) fn no_request(&self, line: &[u8]) -> Option<&'static str> {
        let has_result = self.cache_result.start < self.cache_result.end;
        if !has_result && matches!(self.method.in_line(line), b"" | b"GET") {
            return None;
        }
        self.record(line).no_request()
    }

    /// The request in the line it was parsed from, its name as it stands there.
    pub(crate) fn record<'a>(&self, line: &'a [u8]) -> Record<'a> {
        Record {
            time_us: self.time_us,
            client: self.client.in_line(line),
            method: self.method.in_line(line),
            status: self.status,
            cache_result: self.cache_result.in_line(line),
            size_bytes: self.size_bytes,
            object: match self.object {
                ParsedName::Text(span)
                | ParsedName::Doubled(span)
                | ParsedName::Escaped(span)
                | ParsedName::OnSite { path: span, .. } => ObjectName::Text(span.in_line(line)),
                ParsedName::Id(id) => ObjectName::Id(id),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_ask_write_or_delete() {
        for (method, op) in [
            ("", Op::Read),
            ("GET", Op::Read),
            ("POST", Op::Read),
            ("PUT", Op::Write),
            ("DELETE", Op::Delete),
            ("PURGE", Op::Delete),
        ] {
            let record = Record {
                time_us: 0,
                client: b"",
                method: method.as_bytes(),
                status: 0,
                cache_result: b"",
                size_bytes: 1,
                object: ObjectName::Id(1),
            };
            assert_eq!(record.op(), op, "{method}");
        }
    }

    #[test]
    fn a_delete_that_was_refused_deletes_nothing() {
        for (method, status, op) in [
            ("DELETE", 0, Op::Delete),
            ("DELETE", 204, Op::Delete),
            ("DELETE", 303, Op::Delete),
            ("DELETE", 404, Op::Write),
            ("PURGE", 200, Op::Delete),
            ("PURGE", 404, Op::Delete),
            ("PURGE", 403, Op::Write),
            ("DELETE", 503, Op::Write),
        ] {
            let record = Record {
                time_us: 0,
                client: b"",
                method: method.as_bytes(),
                status,
                cache_result: b"",
                size_bytes: 300,
                object: ObjectName::Id(1),
            };
            assert_eq!(record.op(), op, "{method} {status}");
            let has_body = op == Op::Delete && status != 204;
            assert_eq!(record.has_body(), has_body, "{method} {status}");
        }
    }

    #[test]
    fn what_asks_no_cache_for_an_object_is_no_request() {
        for (method, cache_result, url, what) in [
            ("GET", "TCP_MISS", "http://a/", None),
            ("", "", "error:a", None),
            ("GET", "", "http://a/?error:", None),
            ("CONNECT", "", "a:443", Some("tunnels (CONNECT)")),
            ("CONNECT", "TCP_DENIED", "a:443", Some("tunnels (CONNECT)")),
            ("GET", "TCP_DENIED", "http://a/", Some("denied by the proxy")),
            ("GET", "TCP_DENIED_REPLY", "http://a/", Some("denied by the proxy")),
            ("ICP_QUERY", "UDP_MISS", "http://a/", Some(OF_NEIGHBOURS)),
            ("HTCP_TST", "UDP_HIT", "http://a/", Some(OF_NEIGHBOURS)),
            ("GET", "UDP_HIT", "http://a/", Some(OF_NEIGHBOURS)),
            ("NONE", "NONE", "error:invalid-request", Some(NOT_UNDERSTOOD)),
            ("-", "NONE_NONE", "error:transaction-end-before-headers", Some(NOT_UNDERSTOOD)),
        ] {
            let record = Record {
                time_us: 0,
                client: b"",
                method: method.as_bytes(),
                status: 200,
                cache_result: cache_result.as_bytes(),
                size_bytes: 300,
                object: ObjectName::Text(url.as_bytes()),
            };
            assert_eq!(record.no_request(), what, "{method} {cache_result} {url}");
        }
    }

    /// Of neither anybody knows the whole.
    #[test]
    fn parts_and_what_was_broken_off_have_no_size() {
        for (status, cache_result, has_body) in [
            (200, "", true),
            (200, "TCP_MISS", true),
            (0, "", true),
            (203, "", true),
            (404, "TCP_MISS", true),
            (206, "", false),
            (206, "TCP_HIT", false),
            (416, "", false),
            (499, "", false),
            (0, "TCP_MISS", false),
            (200, "TCP_MISS_ABORTED", false),
            (200, "TCP_REFRESH_MODIFIED_TIMEDOUT", false),
            (204, "TCP_MISS", false),
            (101, "TCP_MISS", false),
        ] {
            let record = Record {
                time_us: 0,
                client: b"",
                method: b"GET",
                status,
                cache_result: cache_result.as_bytes(),
                size_bytes: 300,
                object: ObjectName::Id(1),
            };
            assert_eq!(record.has_body(), has_body, "{cache_result}/{status}");
            assert_eq!(record.body_bytes(), if has_body { 300 } else { 0 });
        }
    }

    #[test]
    fn hosts_are_cut_out_of_urls() {
        for (url, host) in [
            ("http://a.example/x?y", "a.example"),
            ("http://a.example:8080/", "a.example"),
            ("http://a.example.:80/", "a.example"),
            ("ftp://user:pw@b.example/", "b.example"),
            ("http://c.example", "c.example"),
            ("http://c.example?q", "c.example"),
            ("http://[::1]:80/x", "[::1]"),
            ("/path/only", ""),
            ("/go?to=http://e.example/", ""),
            ("bucket/s3://f.example/x", ""),
            ("svn+ssh://g.example/x", "g.example"),
            ("d.example:443", ""),
            ("", ""),
        ] {
            assert_eq!(host_of(url.as_bytes()), host.as_bytes(), "{url}");
        }
    }
}
