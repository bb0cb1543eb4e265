//! The scheme and host that name a resource: in its key, in orders to purge and explain, and in
//! URIs that responses name.
//!
//! Invariant: the scheme and host told to the origin are in the key, since the response may depend
//! on them, also where a rule tells them; a `Host` that is not in the key, beside what a trusted
//! proxy states, is told to nobody. A scheme or host that the origin is not told cannot influence
//! its response; then the key has the configured value. Pure.

use http::HeaderMap;

use crate::client::Peer;
use crate::config::ProxyConfig;
use crate::config::transport::ForwardedFields;
use crate::request::forwarded;
use crate::rules::key::normal_host;
use crate::ruleset::{AskedUrl, QueryOfKey};
use crate::worker::Shared;

/// The primary key of a resource. What rules look at, the scheme and host that were asked for, may
/// be others than those of its name.
pub(crate) fn primary_key(
    config: &ProxyConfig,
    asked: (&str, &str),
    name: (&str, &str),
    path_and_query: &str,
) -> Vec<u8> {
    let (scheme, host) = asked;
    let rules = &config.ruleset;
    let query = match rules.changes_queries() {
        true => rules.query_of(scheme, AskedUrl::of(host, path_and_query)),
        false => QueryOfKey::default(),
    };
    config.caching.key.primary_by(query, name.0, name.1, path_and_query)
}

/// Whether keys have queries as they were sent.
pub(crate) fn keeps_queries(config: &ProxyConfig) -> bool {
    config.caching.key.keeps_queries() && !config.ruleset.changes_queries()
}

/// The configured part of the name: constant in every key, because the origin is not told
/// otherwise.
pub(crate) struct Naming<'a> {
    scheme: Option<&'static str>,
    host: Option<&'a str>,
    /// Used where a client names none.
    otherwise: &'a str,
    /// Says whose statements about the requested scheme and host are trusted; nobody's of a forward
    /// proxy.
    trust: Option<&'a ForwardedFields>,
}

impl Naming<'_> {
    pub(crate) fn of(shared: &Shared) -> Naming<'_> {
        let (config, origin) = (&shared.config, shared.sites.main());
        let fields = &config.forwarded;
        let tells = fields.x_forwarded || fields.forwarded || fields.trust_client;
        // A forward proxy receives URLs of `http`, whatever its own listener speaks.
        let is_forward = shared.forward.is_some();
        let tells_hosts = config.preserve_host || config.ruleset.tells_hosts();
        let tells_schemes = tells || config.ruleset.tells_schemes();
        let host_counts = is_forward || tells || tells_hosts;
        Naming {
            scheme: (is_forward || !tells_schemes).then_some(origin.scheme),
            host: (!host_counts).then_some(&origin.authority),
            otherwise: &origin.authority,
            trust: Some(fields).filter(|_| !is_forward),
        }
    }

    /// True if the names of stored resources contain the host that clients request.
    pub(crate) fn has_hosts(&self) -> bool {
        self.host.is_none()
    }

    /// The same for the scheme.
    pub(crate) fn has_schemes(&self) -> bool {
        self.scheme.is_none()
    }

    /// The name of a resource that an operator gives as a URL.
    pub(crate) fn of_url(&self, scheme: &str, host: &str) -> (&'static str, String) {
        let asked = if scheme == "https" { "https" } else { "http" };
        let kept = self.scheme.unwrap_or(asked);
        // The default port of the URL's own scheme is not the default of the other scheme.
        let host = normal_host(host, asked);
        (kept, normal_host(self.host.unwrap_or(&host), kept))
    }

    /// The scheme that the client used, or that a trusted proxy received.
    pub(crate) fn scheme_asked(&self, peer: &Peer, headers: &HeaderMap) -> &'static str {
        let fields = self.trust.filter(|fields| fields.trusts(peer.ip));
        let given = fields.and_then(|fields| forwarded::given(headers, &fields.trust_networks).0);
        given.unwrap_or(if peer.secure { "https" } else { "http" })
    }

    /// The host that a trusted proxy received, if it states one.
    pub(crate) fn host_given<'h>(&self, peer: &Peer, headers: &'h HeaderMap) -> Option<&'h str> {
        let fields = self.trust.filter(|fields| fields.trusts(peer.ip))?;
        forwarded::given(headers, &fields.trust_networks).1
    }

    /// The name of a resource that a client requests from this host.
    pub(crate) fn of_request(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        client_host: &str,
    ) -> (&'static str, String) {
        let host = self.host_given(peer, headers);
        let scheme = self.scheme.unwrap_or_else(|| self.scheme_asked(peer, headers));
        let host = match (self.host, host) {
            (Some(fixed), _) => fixed,
            (None, Some(given)) => given,
            (None, None) if client_host.is_empty() => self.otherwise,
            (None, None) => client_host,
        };
        (scheme, normal_host(host, scheme))
    }
}
