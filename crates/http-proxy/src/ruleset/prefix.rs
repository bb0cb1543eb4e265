//! Path prefixes that differ between clients and origin: one prefix removed, another added.
//!
//! Invariants: every resulting path begins with a slash; prefixes match whole segments, so that
//! `/app` is not a prefix of `/application`; the query is unchanged. Pure, no threads.

use http::header::{CONTENT_LOCATION, LOCATION};
use http::{HeaderMap, HeaderValue, Uri};

/// A rule's change to the beginning of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PrefixChange {
    /// The prefix to remove, without a trailing slash; empty for none.
    pub(crate) strip: String,
    /// The prefix to add, likewise.
    pub(crate) add: String,
}

impl PrefixChange {
    /// Parses a prefix.
    pub(crate) fn read(text: &str) -> Result<String, String> {
        let prefix = text.trim_end_matches('/');
        let whole = text.starts_with('/') && !prefix.is_empty() && !prefix.starts_with("//");
        let plain = !text.contains(['?', '#', '*']) && text.parse::<Uri>().is_ok();
        if whole && plain {
            Ok(prefix.to_owned())
        } else {
            Err(format!("\"{text}\" is not the beginning of a path such as /app"))
        }
    }

    /// The origin's path; `None` if the client's path does not begin with the prefix.
    pub(crate) fn to_origin(&self, path_and_query: &str) -> Option<String> {
        let end = path_and_query.find('?').unwrap_or(path_and_query.len());
        let (path, query) = path_and_query.split_at(end);
        let rest = after(path, &self.strip).filter(|_| path.starts_with('/'))?;
        let slash = if rest.is_empty() && self.add.is_empty() { "/" } else { "" };
        Some([&self.add, slash, rest, query].concat())
    }

    /// Translates the paths that a response names into the client's. `hosts`: the names under which
    /// the origin was addressed; only URLs of these hosts are translated.
    pub(crate) fn rename(&self, headers: &mut HeaderMap, hosts: &[HeaderValue]) {
        for name in [LOCATION, CONTENT_LOCATION] {
            let named = headers.get(&name).and_then(|value| value.to_str().ok());
            let renamed = named.and_then(|url| self.of_url(url, hosts));
            if let Some(value) = renamed.and_then(|url| HeaderValue::try_from(url).ok()) {
                headers.insert(name, value);
            }
        }
    }

    fn of_url(&self, url: &str, hosts: &[HeaderValue]) -> Option<String> {
        let (before, path) = match url.split_once("://") {
            Some((scheme, rest)) if is_http(scheme) => {
                let (host, _) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
                let own =
                    |known: &HeaderValue| known.as_bytes().eq_ignore_ascii_case(host.as_bytes());
                if !hosts.iter().any(own) {
                    return None;
                }
                url.split_at(scheme.len() + "://".len() + host.len())
            }
            _ => ("", url),
        };
        self.to_client(path).map(|path| format!("{before}{path}"))
    }

    /// The client's path for a path of the origin; `None` if it is not below the added prefix, or
    /// is the client's already.
    fn to_client(&self, path: &str) -> Option<String> {
        // Two slashes introduce the name of another host.
        if !path.starts_with('/') || path.starts_with("//") {
            return None;
        }
        let named = !self.strip.is_empty() && after(path, &self.strip).is_some();
        let rest = after(path, &self.add).filter(|_| !named)?;
        let slash = if rest.starts_with('/') || !self.strip.is_empty() { "" } else { "/" };
        let renamed = [&self.strip, slash, rest].concat();
        (!renamed.starts_with("//")).then_some(renamed)
    }
}

fn is_http(scheme: &str) -> bool {
    ["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme))
}

/// The rest behind a prefix that ends at a segment boundary.
fn after<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest.starts_with(['/', '?', '#'])).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(strip: &str, add: &str) -> PrefixChange {
        PrefixChange { strip: strip.to_owned(), add: add.to_owned() }
    }

    #[test]
    fn what_the_origin_is_asked_for() {
        for (strip, add, target, expected) in [
            ("/app", "", "/app/a?b=/app", Some("/a?b=/app")),
            ("/app", "", "/app/", Some("/")),
            ("/app", "", "/app", Some("/")),
            ("/app", "", "/app?b", Some("/?b")),
            ("/app", "", "/application", None),
            ("/app", "", "/other", None),
            ("/app", "", "/", None),
            ("/app", "", "*", None),
            ("/app", "/v2", "/app/a", Some("/v2/a")),
            ("/app", "/v2", "/app", Some("/v2")),
            ("/app", "/v2", "/app?b", Some("/v2?b")),
            ("", "/v2", "/a?b", Some("/v2/a?b")),
            ("", "/v2", "/", Some("/v2/")),
            ("", "/v2", "*", None),
        ] {
            let got = change(strip, add).to_origin(target);
            assert_eq!(got.as_deref(), expected, "{strip} {add} {target}");
        }
    }

    #[test]
    fn what_clients_call_it() {
        let hosts = [HeaderValue::from_static("o.test:81"), HeaderValue::from_static("www.test")];
        for (strip, add, url, expected) in [
            ("/app", "", "/a?b#c", Some("/app/a?b#c")),
            ("/app", "", "/", Some("/app/")),
            ("/app", "", "/app/a", None),
            ("/app", "", "/application", Some("/app/application")),
            ("/app", "", "//b.test/a", None),
            ("/app", "", "a", None),
            ("/app", "", "", None),
            ("/app", "/v2", "/v2/a", Some("/app/a")),
            ("/app", "/v2", "/v2", Some("/app")),
            ("/app", "/v2", "/v20", None),
            ("/app", "/v2", "/a", None),
            ("", "/v2", "/v2/a", Some("/a")),
            ("", "/v2", "/v2", Some("/")),
            ("", "/v2", "/v2?a", Some("/?a")),
            ("", "/v2", "/v2//b.test/a", None),
            ("/app", "", "http://O.test:81/a", Some("http://O.test:81/app/a")),
            ("/app", "", "https://www.test/a", Some("https://www.test/app/a")),
            ("/app", "", "https://www.test", None),
            ("/app", "", "https://b.test/a", None),
            ("/app", "", "ftp://www.test/a", None),
        ] {
            let got = change(strip, add).of_url(url, &hosts);
            assert_eq!(got.as_deref(), expected, "{strip} {add} {url}");
        }
    }

    #[test]
    fn prefixes_begin_with_a_slash_and_end_without() {
        for (text, expected) in [("/app", "/app"), ("/a/b/", "/a/b"), ("/%61", "/%61")] {
            assert_eq!(PrefixChange::read(text).unwrap(), expected);
        }
        for text in ["", "/", "//", "//app", "app", "/a?b", "/a#b", "/a b", "http://a/b", "/app/*"]
        {
            assert!(PrefixChange::read(text).is_err(), "{text}");
        }
    }
}
