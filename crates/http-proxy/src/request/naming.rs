//! By which scheme and host a resource goes: in its key, in orders to purge and explain, in what an
//! answer names.
//!
//! Invariant: what the origin is told of scheme and host, and so may answer by, is in the key. Told nothing
//! of one, it answers alike whatever the client asked, and its own stands in the key. Pure.

use http::HeaderMap;

use crate::client::Peer;
use crate::request::forwarded;
use crate::rules::key::normal_host;
use crate::worker::Shared;

/// The configured part of it: what stands in every key, because the origin is told nothing of it.
pub(crate) struct Naming<'a> {
    scheme: Option<&'static str>,
    host: Option<&'a str>,
    /// Where a client names none.
    otherwise: &'a str,
    /// Fields of clients about what they were asked count.
    trusts: bool,
}

impl Naming<'_> {
    pub(crate) fn of(shared: &Shared) -> Naming<'_> {
        let (config, origin) = (&shared.config, shared.sites.main());
        let fields = config.transport.forwarded;
        let tells = fields.x_forwarded || fields.forwarded || fields.trust_client;
        // A forward proxy is asked for URLs of `http`, however it is reached.
        let is_forward = shared.forward.is_some();
        let host_counts = is_forward || tells || config.preserve_host;
        Naming {
            scheme: (is_forward || !tells).then_some(origin.scheme),
            host: (!host_counts).then_some(&origin.authority),
            otherwise: &origin.authority,
            trusts: fields.trust_client && !is_forward,
        }
    }

    /// True if what is stored has the host that clients ask in its name.
    pub(crate) fn has_hosts(&self) -> bool {
        self.host.is_none()
    }

    /// Of a resource that a person names.
    pub(crate) fn of_url(&self, scheme: &str, host: &str) -> (&'static str, String) {
        let asked = if scheme == "https" { "https" } else { "http" };
        let kept = self.scheme.unwrap_or(asked);
        // The port that the URL's own scheme means is none of the other's.
        let host = normal_host(host, asked);
        (kept, normal_host(self.host.unwrap_or(&host), kept))
    }

    /// The scheme by which a client asks, or asked who is believed.
    pub(crate) fn scheme_asked(&self, peer: &Peer, headers: &HeaderMap) -> &'static str {
        let given = self.trusts.then(|| forwarded::given(headers).0).flatten();
        given.unwrap_or(if peer.secure { "https" } else { "http" })
    }

    /// Of a resource that a client asks for, by this host.
    pub(crate) fn of_request(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        client_host: &str,
    ) -> (&'static str, String) {
        let host = self.trusts.then(|| forwarded::given(headers).1).flatten();
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
