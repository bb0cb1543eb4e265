//! Rewrites redirects of an origin that is addressed by its own name, or by other paths than its
//! clients use.
//!
//! A server that gets its own name in `Host` redirects clients to that name: past the proxy, or to
//! an address that only the proxy can reach. Removing the name leaves a relative reference to the
//! same resource as the client sees it (RFC 9110 §10.2.2). Invariants: redirects to other hosts are
//! unchanged, and the result is a path on the client's host, never the name of another host. Pure;
//! no threads.

use std::sync::Arc;

use http::header::{HOST, HeaderName, LOCATION};
use http::{HeaderMap, HeaderValue, Request};

use crate::ruleset::PrefixChange;
use crate::upstream::Origin;

/// The host that the client asked for.
pub(crate) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The origin's own name in its redirects.
#[derive(Debug)]
pub(crate) struct OwnName {
    scheme: String,
    authority: String,
}

/// Translates the paths in a response into the client's, for a request whose path was rewritten.
#[derive(Debug)]
pub(crate) struct Renaming {
    prefix: Arc<PrefixChange>,
    /// The values of `Host` and `X-Forwarded-Host` that the origin got.
    hosts: Vec<HeaderValue>,
}

impl Renaming {
    pub(crate) fn of<B>(request: &Request<B>) -> Option<Renaming> {
        let prefix = request.extensions().get::<Arc<PrefixChange>>()?.clone();
        let named = [HOST, X_FORWARDED_HOST].into_iter();
        let hosts = named.filter_map(|name| request.headers().get(name).cloned()).collect();
        Some(Renaming { prefix, hosts })
    }

    pub(crate) fn rename(&self, headers: &mut HeaderMap) {
        self.prefix.rename(headers, &self.hosts);
    }
}

impl OwnName {
    pub(crate) fn new(origin: &Origin) -> OwnName {
        let (scheme, authority) = origin.name();
        let authority = without_default_port(scheme, authority).to_owned();
        OwnName { scheme: scheme.to_owned(), authority }
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn of_fuzzing() -> OwnName {
        OwnName { scheme: "http".to_owned(), authority: "o:8000".to_owned() }
    }

    /// Removes the origin's own name from `Location`.
    pub(crate) fn take_off(&self, headers: &mut HeaderMap) {
        let path = headers.get(LOCATION).and_then(|to| self.path_of(to.to_str().ok()?));
        if let Some(path) = path.and_then(|path| HeaderValue::try_from(path).ok()) {
            headers.insert(LOCATION, path);
        }
    }

    /// The part of a URL after the origin's own name, as an absolute path; `None` for other names.
    fn path_of(&self, url: &str) -> Option<String> {
        let (scheme, rest) = url.split_once("://")?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let is_own = scheme.eq_ignore_ascii_case(&self.scheme)
            && without_default_port(&self.scheme, authority).eq_ignore_ascii_case(&self.authority);
        // A reference that begins with two slashes names another host. Browsers take backslashes
        // for slashes, and leave tabs out.
        let mut begins = path.chars().filter(|letter| *letter != '\t').take(2);
        let slash = |letter: Option<char>| matches!(letter, Some('/' | '\\'));
        if !is_own || (slash(begins.next()) && slash(begins.next())) {
            return None;
        }
        Some(if path.starts_with('/') { path.to_owned() } else { format!("/{path}") })
    }
}

fn without_default_port<'a>(scheme: &str, authority: &'a str) -> &'a str {
    let port = if scheme == "https" { ":443" } else { ":80" };
    authority.strip_suffix(port).unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_origins_own_name_is_taken_off() {
        let own = |scheme: &str, authority: &str| OwnName {
            scheme: scheme.to_owned(),
            authority: authority.to_owned(),
        };
        let (plain, secure) = (own("http", "10.0.0.5:8000"), own("https", "Origin.example"));
        for (own, url, expected) in [
            (&plain, "http://10.0.0.5:8000/a/?b#c", Some("/a/?b#c")),
            (&plain, "HTTP://10.0.0.5:8000", Some("/")),
            (&plain, "http://10.0.0.5:8000?b", Some("/?b")),
            (&plain, "https://10.0.0.5:8000/a", None),
            (&plain, "http://10.0.0.5/a", None),
            (&plain, "http://10.0.0.5:80000/a", None),
            (&plain, "http://10.0.0.5:8000.example/a", None),
            (&plain, "http://10.0.0.5:8000@example/a", None),
            (&plain, "http://10.0.0.5:8000//example/a", None),
            (&plain, "http://10.0.0.5:8000/\\example/a", None),
            (&plain, "http://10.0.0.5:8000/\t/example/a", None),
            (&plain, "http://www.example/a", None),
            (&plain, "/a", None),
            (&plain, "//10.0.0.5:8000/a", None),
            (&plain, "/a?to=http://10.0.0.5:8000/", None),
            (&secure, "https://origin.example:443/a", Some("/a")),
            (&secure, "https://ORIGIN.example/a", Some("/a")),
            (&secure, "https://origin.example:80/a", None),
        ] {
            assert_eq!(own.path_of(url).as_deref(), expected, "{url}");
        }
    }
}
