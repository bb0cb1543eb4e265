//! Which requests of a log a study looks at: the papers' rules, by name, and simple ones of our
//! own. Pure.

use super::record::{ObjectName, Record, scheme_of};

/// A rule that lets requests through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// Maltzahn 1999 §4: HTTP only; status 200 only; no `?` and no `cgi-bin` in the URL. Where a
    /// log has no status (0), or names objects without scheme, that part of the rule cannot be
    /// applied and lets through.
    SquidDiskIo,
    /// As before, and then only objects of at most 8 KiB, for the finite caches of memory-mapped
    /// files.
    SquidDiskIoSmall,
    /// UCFS 2002 §4.3.2: what HTTP/1.1 allows to cache; no CGI; of Squid's results only TCP_HIT,
    /// TCP_MEM_HIT, TCP_MISS, TCP_REFRESH_HIT, TCP_REFRESH_MISS, TCP_REF_FAIL_HIT, TCP_IMS_HIT and
    /// TCP_IMS_MISS. What RFC 2068 §13.4 and §13.9 let a cache keep without being told: GET and
    /// HEAD, status 200, 203, 206, 300, 301, 410, and 304 for a validated one; no `?`.
    Ucfs,
    /// GET only; what has no method counts as one, as it is written in our own form.
    Get,
    /// Requests with a size above zero.
    Sized,
}

/// Names of all filters with one line on each, for help texts.
pub const FILTERS: [(&str, Filter, &str); 5] = [
    (
        "squid-disk-io-1999",
        Filter::SquidDiskIo,
        "HTTP, status 200, no `?`, no `cgi-bin` (Maltzahn §4)",
    ),
    ("squid-disk-io-1999-small", Filter::SquidDiskIoSmall, "the same, and at most 8 KiB"),
    (
        "ucfs-2002",
        Filter::Ucfs,
        "cacheable by HTTP/1.1, no CGI, eight results of Squid (UCFS §4.3.2)",
    ),
    ("get", Filter::Get, "method GET, or none logged"),
    (
        "sized",
        Filter::Sized,
        "size above zero, and a whole body: no 304, no HEAD, no 206, nothing broken off",
    ),
];

/// Results that UCFS kept.
const UCFS_RESULTS: [&[u8]; 8] = [
    b"TCP_HIT",
    b"TCP_MEM_HIT",
    b"TCP_MISS",
    b"TCP_REFRESH_HIT",
    b"TCP_REFRESH_MISS",
    b"TCP_REF_FAIL_HIT",
    b"TCP_IMS_HIT",
    b"TCP_IMS_MISS",
];
const CACHEABLE_STATUS: [u16; 8] = [0, 200, 203, 206, 300, 301, 304, 410];
/// What a proxy logs as methods and is no HTTP to it: tunnels, and what its neighbours ask.
const NOT_HTTP: [&[u8]; 4] = [b"CONNECT", b"ICP_QUERY", b"HTCP_TST", b"NONE"];
/// Page size of the Alpha of the paper.
const SMALL_BYTES_MAX: u64 = 8 << 10;

impl Filter {
    /// A filter by its name.
    #[must_use]
    pub fn by_name(given: &str) -> Option<Filter> {
        FILTERS.iter().find(|(name, ..)| *name == given).map(|(_, filter, _)| *filter)
    }

    /// The filter's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        FILTERS.iter().find(|(_, filter, _)| *filter == self).map_or("", |(name, ..)| *name)
    }

    /// True if the request stays.
    #[must_use]
    pub fn keeps(self, record: &Record<'_>) -> bool {
        let url = match record.object {
            ObjectName::Text(url) => url,
            ObjectName::Id(_) => b"",
        };
        match self {
            Filter::SquidDiskIo => {
                let http = !has_other_scheme(url) && !NOT_HTTP.contains(&record.method);
                http && matches!(record.status, 0 | 200) && !is_dynamic(url)
            }
            Filter::SquidDiskIoSmall => {
                Filter::SquidDiskIo.keeps(record) && record.size_bytes <= SMALL_BYTES_MAX
            }
            Filter::Ucfs => {
                matches!(record.method, b"" | b"GET" | b"HEAD")
                    && CACHEABLE_STATUS.contains(&record.status)
                    && !is_dynamic(url)
                    && (record.cache_result.is_empty()
                        || UCFS_RESULTS.contains(&record.cache_result))
            }
            Filter::Get => matches!(record.method, b"" | b"GET"),
            Filter::Sized => record.has_body(),
        }
    }
}

fn is_dynamic(url: &[u8]) -> bool {
    memchr::memchr(b'?', url).is_some() || memchr::memmem::find(url, b"cgi-bin").is_some()
}

/// A scheme that is not HTTP's.
fn has_other_scheme(url: &[u8]) -> bool {
    scheme_of(url).is_some_and(|scheme| !scheme.eq_ignore_ascii_case(b"http"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(url: &'static str, status: u16, result: &'static str) -> Record<'static> {
        Record {
            time_us: 0,
            client: b"",
            method: b"GET",
            status,
            cache_result: result.as_bytes(),
            size_bytes: 9000,
            object: ObjectName::Text(url.as_bytes()),
        }
    }

    #[test]
    fn the_rules_of_the_papers_hold() {
        for (url, status, result, squid, ucfs) in [
            ("http://a/x.gif", 200, "TCP_MISS", true, true),
            ("http://a/x.gif", 0, "", true, true),
            ("ftp://a/x", 200, "TCP_MISS", false, true),
            ("/mirror/ftp://a/x", 200, "TCP_MISS", true, true),
            ("http://a/x?y", 200, "TCP_MISS", false, false),
            ("http://a/cgi-bin/x", 200, "TCP_HIT", false, false),
            ("http://a/x", 404, "TCP_MISS", false, false),
            ("http://a/x", 304, "TCP_IMS_HIT", false, true),
            ("http://a/x", 200, "TCP_DENIED", true, false),
            ("http://a/x", 200, "TCP_CLIENT_REFRESH_MISS", true, false),
            ("http://a/x", 200, "TCP_SWAPFAIL_MISS", true, false),
            ("http://a/x", 200, "TCP_REF_FAIL_HIT", true, true),
        ] {
            let record = record(url, status, result);
            assert_eq!(Filter::SquidDiskIo.keeps(&record), squid, "{url} {status} {result}");
            assert_eq!(Filter::Ucfs.keeps(&record), ucfs, "{url} {status} {result}");
            assert!(!Filter::SquidDiskIoSmall.keeps(&record), "9000 bytes are more than a page");
        }
    }

    #[test]
    fn methods_and_sizes_are_looked_at() {
        let post = Record { method: b"POST", size_bytes: 0, ..record("http://a/", 200, "") };
        assert!(!Filter::Ucfs.keeps(&post) && !Filter::Get.keeps(&post));
        assert!(!Filter::Sized.keeps(&post) && Filter::SquidDiskIo.keeps(&post));
        // What is logged of these two is the size of headers.
        let head = Record { method: b"HEAD", ..record("http://a/", 200, "") };
        assert!(!Filter::Sized.keeps(&head));
        assert!(!Filter::Sized.keeps(&record("http://a/", 304, "")));
        assert!(Filter::Sized.keeps(&record("http://a/", 200, "")));
        let unlogged = Record { method: b"", ..post };
        assert!(Filter::Get.keeps(&unlogged) && Filter::Ucfs.keeps(&unlogged));
        // A tunnel has no scheme in Squid's log, but that is not for want of logging.
        let tunnel = Record { method: b"CONNECT", ..record("a.example:443", 200, "TCP_TUNNEL") };
        assert!(!Filter::SquidDiskIo.keeps(&tunnel));
    }

    #[test]
    fn names_find_their_filters() {
        for (name, filter, _) in FILTERS {
            assert_eq!(Filter::by_name(name), Some(filter));
            assert_eq!(filter.name(), name);
        }
        assert_eq!(Filter::by_name("no"), None);
    }
}
