//! What the origin is told about the client, `Via`, `X-Forwarded-*` and `Forwarded` (RFC 7239), and
//! about this cache, `Surrogate-Capability`.
//!
//! Invariant: the last element of each list is ours, whatever the client wrote. Pure.

use std::net::IpAddr;

use http::header::{FORWARDED, HeaderName, HeaderValue, VIA};
use http::{HeaderMap, Version};

use crate::client::Peer;
use crate::config::ProxyConfig;
use crate::config::name::Via;
use crate::rules::surrogate;

const SURROGATE_CAPABILITY: HeaderName = HeaderName::from_static("surrogate-capability");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Adds to the headers of a request to the origin. `host`: the one the client asked, in `version`.
pub(crate) fn add(
    headers: &mut HeaderMap,
    (config, via): (&ProxyConfig, &Via),
    peer: &Peer,
    version: Version,
    host: Option<HeaderValue>,
) {
    let options = config.transport.forwarding;
    if options.via {
        headers.append(VIA, via.received(version));
    }
    if config.rules.surrogate {
        headers.append(SURROGATE_CAPABILITY, HeaderValue::from_static(surrogate::CAPABILITY));
    }
    if !options.trust_client {
        for name in [X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, FORWARDED] {
            headers.remove(name);
        }
    }
    if options.forwarded
        && let Ok(element) = HeaderValue::try_from(element(peer, host.as_ref()))
    {
        headers.append(FORWARDED, element);
    }
    if !options.x_forwarded {
        return;
    }
    if let Ok(client) = HeaderValue::try_from(peer.ip.to_string()) {
        headers.append(X_FORWARDED_FOR, client);
    }
    // These two are no lists: the first proxy knows best.
    if let Some(host) = host {
        headers.entry(X_FORWARDED_HOST).or_insert(host);
    }
    headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(scheme(peer)));
}

fn scheme(peer: &Peer) -> &'static str {
    if peer.secure { "https" } else { "http" }
}

/// One hop, values quoted where a token could not hold them (RFC 7239 §4, §6).
fn element(peer: &Peer, host: Option<&HeaderValue>) -> String {
    let client = match peer.ip {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    let mut element = format!("for={client};proto={}", scheme(peer));
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        element.push_str(&format!(";host=\"{}\"", host.replace(['"', '\\'], "")));
    }
    element
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::activity::Activity;

    #[test]
    fn elements_are_quoted_where_they_must_be() {
        let peer = |ip: &str, secure| Peer {
            ip: ip.parse().unwrap(),
            secure,
            activity: Activity::new(None, None),
            interim: None,
            route: None,
        };
        let host = HeaderValue::from_static("a:81");
        let expected = "for=\"[2001:db8::1]\";proto=https;host=\"a:81\"";
        assert_eq!(element(&peer("2001:db8::1", true), Some(&host)), expected);
        assert_eq!(element(&peer("192.0.2.1", false), None), "for=192.0.2.1;proto=http");
    }
}
