//! Fields that tell the origin about the client, `Via`, `X-Forwarded-*` and `Forwarded` (RFC 7239),
//! and about this cache, `Surrogate-Capability`.
//!
//! Invariants: the last element of each list is ours, whatever the client wrote; the scheme and
//! host told to the origin are those of the key; an untrusted client cannot send a field by which
//! an origin may take the request for another one. Pure.

use std::net::IpAddr;

use http::header::{FORWARDED, HeaderName, HeaderValue, VIA};
use http::{HeaderMap, Version};
use ipnet::IpNet;

use crate::client::Peer;
use crate::config::ProxyConfig;
use crate::config::name::Via;
use crate::config::transport::ForwardedFields;
use crate::request::elements::{self, Hop};
use crate::rules::key::is_plain_authority;
use crate::rules::surrogate;
use crate::upstream::X_FORWARDED_HOST;
use crate::vault::Target;

const SURROGATE_CAPABILITY: HeaderName = HeaderName::from_static("surrogate-capability");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest id of a request that is taken from a proxy.
const REQUEST_ID_BYTES_MAX: usize = 200;
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Programs that get fields as variables take it for `HTTP_PROXY`, the proxy that their own
/// requests go through. No standard has it.
const PROXY: HeaderName = HeaderName::from_static("proxy");

/// Fields that make some origins answer for another host, scheme, path or client than requested, or
/// leave the body to a server before them. They are not part of any key, so untrusted clients may
/// not set them. Some servers take `SCRIPT_NAME` and `PATH_INFO` for the variables of that name.
static TELLING: [HeaderName; 79] = [
    X_FORWARDED_FOR,
    X_FORWARDED_HOST,
    X_FORWARDED_PROTO,
    FORWARDED,
    HeaderName::from_static("$wsis"),
    HeaderName::from_static("$wssc"),
    HeaderName::from_static("$wssn"),
    HeaderName::from_static("$wssp"),
    HeaderName::from_static("cf-connecting-ip"),
    HeaderName::from_static("cf-connecting-ipv6"),
    HeaderName::from_static("cf-visitor"),
    HeaderName::from_static("client-ip"),
    HeaderName::from_static("cloudfront-forwarded-proto"),
    HeaderName::from_static("fastly-client-ip"),
    HeaderName::from_static("fastly-ssl"),
    HeaderName::from_static("forwarded-for"),
    HeaderName::from_static("front-end-https"),
    HeaderName::from_static("path-info"),
    HeaderName::from_static("proxy-client-ip"),
    HeaderName::from_static("script-name"),
    HeaderName::from_static("ssl-offloaded"),
    HeaderName::from_static("true-client-ip"),
    HeaderName::from_static("wl-proxy-client-ip"),
    HeaderName::from_static("wl-proxy-ssl"),
    HeaderName::from_static("x-accel-mapping"),
    HeaderName::from_static("x-arr-ssl"),
    HeaderName::from_static("x-azure-clientip"),
    HeaderName::from_static("x-client-ip"),
    HeaderName::from_static("x-cluster-client-ip"),
    HeaderName::from_static("x-envoy-original-host"),
    HeaderName::from_static("x-envoy-original-path"),
    HeaderName::from_static("x-forwarded"),
    HeaderName::from_static("x-forwarded-context"),
    HeaderName::from_static("x-forwarded-hostname"),
    HeaderName::from_static("x-forwarded-path"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-protocol"),
    HeaderName::from_static("x-forwarded-scheme"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-forwarded-ssl"),
    HeaderName::from_static("x-forwarded-uri"),
    HeaderName::from_static("x-forwarded-url"),
    HeaderName::from_static("x-host"),
    HeaderName::from_static("x-host-override"),
    HeaderName::from_static("x-http-host-override"),
    HeaderName::from_static("x-invoke-path"),
    HeaderName::from_static("x-invoke-query"),
    HeaderName::from_static("x-invoke-status"),
    HeaderName::from_static("x-matched-path"),
    HeaderName::from_static("x-middleware-subrequest"),
    HeaderName::from_static("x-now-route-matches"),
    HeaderName::from_static("x-original-for"),
    HeaderName::from_static("x-original-host"),
    HeaderName::from_static("x-original-path"),
    HeaderName::from_static("x-original-proto"),
    HeaderName::from_static("x-original-uri"),
    HeaderName::from_static("x-original-url"),
    HeaderName::from_static("x-originating-ip"),
    HeaderName::from_static("x-override-url"),
    HeaderName::from_static("x-proto"),
    HeaderName::from_static("x-proxied-https"),
    HeaderName::from_static("x-proxy-host"),
    HeaderName::from_static("x-proxy-url"),
    HeaderName::from_static("x-real-host"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-remote-addr"),
    HeaderName::from_static("x-remote-ip"),
    HeaderName::from_static("x-request-uri"),
    HeaderName::from_static("x-request-url"),
    HeaderName::from_static("x-rewrite-path"),
    HeaderName::from_static("x-rewrite-uri"),
    HeaderName::from_static("x-rewrite-url"),
    HeaderName::from_static("x-scheme"),
    HeaderName::from_static("x-script-name"),
    HeaderName::from_static("x-sendfile-type"),
    HeaderName::from_static("x-url-scheme"),
    HeaderName::from_static("x-vhm-host"),
    HeaderName::from_static("x-vhm-root"),
];

/// Scheme and host that a proxy before this one received, if it states them. Of a list of schemes
/// that counts which the outermost of `proxies` wrote: what is before it may be its client's own.
/// Of a list of hosts the first may be its client's own, and so may be the last: it states none
/// then.
pub(crate) fn given<'h>(
    headers: &'h HeaderMap,
    proxies: &[IpNet],
) -> (Option<&'static str>, Option<&'h str>) {
    let mut hosts = headers.get_all(X_FORWARDED_HOST).into_iter();
    let only = hosts.next().filter(|_| hosts.next().is_none());
    let is_host = |host: &&str| !host.is_empty() && is_plain_authority(host.as_bytes());
    (scheme_given(headers, proxies), only.and_then(text_of).filter(is_host))
}

/// Proxies that write a list add to both: to each address that is passed over belongs a scheme.
fn scheme_given(headers: &HeaderMap, proxies: &[IpNet]) -> Option<&'static str> {
    let lines = headers.get_all(X_FORWARDED_PROTO).into_iter().rev();
    let mut schemes = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    let mut scheme = schemes.next()?;
    let mut rest = schemes.peekable();
    if rest.peek().is_some() {
        let is_proxy =
            |address: &Option<IpAddr>| address.is_some_and(|address| is_within(proxies, address));
        let name = X_FORWARDED_FOR;
        let passed_over = elements::addresses(headers, &name).take_while(is_proxy);
        scheme = passed_over.zip(rest).last().map_or(scheme, |(_, scheme)| scheme);
    }
    let scheme = scheme.trim_ascii();
    ["http", "https"].into_iter().find(|known| known.as_bytes().eq_ignore_ascii_case(scheme))
}

fn is_within(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address.to_canonical()))
}

fn text_of(line: &HeaderValue) -> Option<&str> {
    line.to_str().ok().map(str::trim)
}

/// Whom a request is from, by what the proxy before this one says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ClientGiven {
    /// It says nothing, or is not believed: the peer.
    #[default]
    Peer,
    /// This address.
    Address(IpAddr),
    /// Somebody who is no address, or two things, of which one may be its client's own word: nobody
    /// knows.
    Disputed,
}

impl ClientGiven {
    /// The address, IPv4 as such, unless nobody knows it. It is never the peer's where the peer
    /// speaks of somebody else: that address may be the one that is trusted most.
    pub(crate) fn address(self, peer: IpAddr) -> Option<IpAddr> {
        match self {
            ClientGiven::Peer => Some(peer.to_canonical()),
            ClientGiven::Address(address) => Some(address.to_canonical()),
            ClientGiven::Disputed => None,
        }
    }
}

/// The client that a request is from, as `fields` says whom to believe.
pub(crate) fn client_given(
    fields: &ForwardedFields,
    peer: IpAddr,
    headers: &HeaderMap,
) -> ClientGiven {
    match fields.trusts(peer) {
        true => client(headers, &fields.trust_networks),
        false => ClientGiven::Peer,
    }
}

/// The client that a proxy before this one received the request from: the last list element, which
/// that proxy wrote itself, or, where that is one of `proxies`, the last one before that is none.
/// Elements before it are untrusted. Whom it names by no address nobody knows, and it is not the
/// proxy. Which of the two fields that proxy wrote cannot be told: where they differ, one of them
/// may be its client's own.
pub(crate) fn client(headers: &HeaderMap, proxies: &[IpNet]) -> ClientGiven {
    let list = outermost(elements::addresses(headers, &X_FORWARDED_FOR), proxies);
    let mut standard = elements::hops(headers, &FORWARDED).peekable();
    let says_no_client = standard.peek() == Some(&Hop::WithoutClient);
    let standard = match says_no_client {
        true if list != ClientGiven::Peer || standard.all(|hop| hop == Hop::WithoutClient) => {
            ClientGiven::Peer
        }
        // Only its client says for whom.
        true => ClientGiven::Disputed,
        false => outermost(standard.map(Hop::client), proxies),
    };
    match (list, standard) {
        (ClientGiven::Peer, one) | (one, ClientGiven::Peer) => one,
        (ClientGiven::Address(a), ClientGiven::Address(b))
            if a.to_canonical() == b.to_canonical() =>
        {
            list
        }
        _ => ClientGiven::Disputed,
    }
}

/// The first of these addresses that is not of a proxy, or the last one; the peer if there is no
/// element at all.
fn outermost(addresses: impl Iterator<Item = Option<IpAddr>>, proxies: &[IpNet]) -> ClientGiven {
    let mut found = ClientGiven::Peer;
    for address in addresses {
        let Some(address) = address else { return ClientGiven::Disputed };
        found = ClientGiven::Address(address);
        if !is_within(proxies, address) {
            break;
        }
    }
    found
}

/// The id of a request: that which a trusted proxy gives it, or a new one by chance.
pub(crate) fn request_id(headers: &HeaderMap, trusts: bool) -> Box<str> {
    let mut lines = headers.get_all(X_REQUEST_ID).into_iter().filter(|_| trusts);
    let given = match (lines.next(), lines.next()) {
        (Some(line), None) => line.to_str().ok(),
        _ => None,
    };
    let is_id = |id: &&str| {
        (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic())
    };
    let made = || format!("{:032x}", fastrand::u128(..)).into_boxed_str();
    given.filter(is_id).map_or_else(made, Box::from)
}

/// Removes what untrusted clients state about scheme, host and path. With underscores for hyphens
/// nobody states it who may: to origins that make variables of fields both are the same. Nor does
/// anybody state their proxy.
pub(crate) fn forget_told(headers: &mut HeaderMap, trusts: bool) {
    // Hardly any request has such a field.
    if headers.keys().any(|name| is_forgotten(name, trusts)) {
        let told = headers.keys().filter(|name| is_forgotten(name, trusts));
        let names: Vec<_> = told.cloned().collect();
        names.iter().for_each(|name| drop(headers.remove(name)));
    }
}

/// Whether [`forget_told`] removes this field.
pub(crate) fn is_forgotten(name: &HeaderName, trusts: bool) -> bool {
    is_disguised(name) || *name == PROXY || (!trusts && is_telling(name))
}

/// Whether a proxy that is believed says something of its client, or of the request, by this field.
pub(crate) fn is_told(name: &HeaderName) -> bool {
    *name == X_REQUEST_ID || is_telling(name)
}

/// Asked of every field of a request: most are told by their first letter.
fn is_telling(name: &HeaderName) -> bool {
    may_tell(name.as_str().as_bytes()) && TELLING.contains(name)
}

/// Whether a name is that of a telling field but for underscores.
fn is_disguised(name: &HeaderName) -> bool {
    let name = name.as_str().as_bytes();
    let hyphen = |byte: &u8| if *byte == b'_' { b'-' } else { *byte };
    let is = |telling: &HeaderName| telling.as_str().bytes().eq(name.iter().map(hyphen));
    may_tell(name) && name.contains(&b'_') && TELLING.iter().any(is)
}

/// Whether a name begins as those of [`TELLING`] do.
fn may_tell(name: &[u8]) -> bool {
    match name {
        [b'f' | b'x' | b'$', ..] => true,
        [first, second, ..] => {
            matches!([*first, *second], [b'p', b'a' | b'r'] | [b's', b'c' | b's'])
                || matches!([*first, *second], [b'c', b'f' | b'l'] | [b't', b'r'] | [b'w', b'l'])
        }
        _ => false,
    }
}

/// How a request arrived, as told to its origin.
pub(crate) struct Received<'r> {
    pub(crate) peer: &'r Peer,
    pub(crate) version: Version,
    pub(crate) target: &'r Target,
    /// The host that the client requested, as in the key.
    pub(crate) host: Option<HeaderValue>,
}

/// Adds the fields to a request for the origin; [`forget_told`] has removed untrusted ones.
pub(crate) fn add(
    headers: &mut HeaderMap,
    config: &ProxyConfig,
    via: &Via,
    received: Received<'_>,
) {
    let Received { peer, version, target, host } = received;
    let options = &config.forwarded;
    if options.via {
        headers.append(VIA, via.received(version));
    }
    if config.caching.surrogate {
        headers.append(SURROGATE_CAPABILITY, HeaderValue::from_static(surrogate::CAPABILITY));
    }
    if options.forwarded
        && let Ok(element) = HeaderValue::try_from(element(peer, target.scheme, host.as_ref()))
    {
        headers.append(FORWARDED, element);
    }
    if options.x_forwarded
        && let Some(client) = address_value(peer.ip)
    {
        headers.append(X_FORWARDED_FOR, client);
    }
    // These two fields are no lists for us: what is told must match the key.
    if options.x_forwarded || headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(target.scheme));
    }
    if options.x_forwarded || headers.contains_key(X_FORWARDED_HOST) {
        match host {
            Some(host) => drop(headers.insert(X_FORWARDED_HOST, host)),
            None => drop(headers.remove(X_FORWARDED_HOST)),
        }
    }
}

/// An address as a field value. Every request to an origin has one, so the common case avoids the
/// formatting machinery.
fn address_value(address: IpAddr) -> Option<HeaderValue> {
    let IpAddr::V4(address) = address else {
        return HeaderValue::try_from(address.to_string()).ok();
    };
    let (mut text, mut length) = ([b'.'; "255.255.255.255".len()], 0);
    for octet in address.octets() {
        for (unit, digits) in [(100, 3), (10, 2), (1, 1)] {
            if octet >= unit || digits == 1 {
                text[length] = b'0' + octet / unit % 10;
                length += 1;
            }
        }
        // The dot that follows is there already.
        length += 1;
    }
    HeaderValue::from_bytes(&text[..length - 1]).ok()
}

/// One hop, values quoted where a token could not hold them (RFC 7239 §4, §6).
fn element(peer: &Peer, scheme: &str, host: Option<&HeaderValue>) -> String {
    let client = match peer.ip {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    let mut element = format!("for={client};proto={scheme}");
    // Of a host that passes there is nothing to escape.
    let host = host.filter(|host| is_plain_authority(host.as_bytes()));
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        element.push_str(&format!(";host=\"{host}\""));
    }
    element
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::activity::Activity;

    /// The peer, somebody unknown, or this address.
    fn given_by(text: &str) -> ClientGiven {
        match text {
            "peer" => ClientGiven::Peer,
            "unknown" => ClientGiven::Disputed,
            address => ClientGiven::Address(address.parse().unwrap()),
        }
    }

    fn with_lines(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, line) in lines {
            // Latin-1, so that a test can write any byte.
            let line: Vec<u8> = line.chars().map(|c| u8::try_from(c).unwrap()).collect();
            headers.append(*name, HeaderValue::from_bytes(&line).unwrap());
        }
        headers
    }

    #[test]
    fn the_client_is_the_last_that_is_named() {
        for (name, lines, expected) in [
            ("x-forwarded-for", &["192.0.2.1"][..], "192.0.2.1"),
            ("x-forwarded-for", &["10.0.0.1, 192.0.2.1"], "192.0.2.1"),
            ("x-forwarded-for", &["10.0.0.1", "10.0.0.2, 2001:db8::1"], "2001:db8::1"),
            ("x-forwarded-for", &["192.0.2.1:4711"], "192.0.2.1"),
            ("x-forwarded-for", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("x-forwarded-for", &["[2001:db8::1]"], "2001:db8::1"),
            // What the client wrote before hides nothing.
            ("x-forwarded-for", &["\u{e9}, 192.0.2.1"], "192.0.2.1"),
            ("x-forwarded-for", &["\u{ff}", "192.0.2.1"], "192.0.2.1"),
            ("forwarded", &["for=\u{ff}, for=192.0.2.1"], "192.0.2.1"),
            ("forwarded", &["for=10.0.0.1;proto=http, For=\"[2001:db8::1]\""], "2001:db8::1"),
            ("forwarded", &["proto=http;for=192.0.2.1;host=\"a:81\""], "192.0.2.1"),
            // Who is named by no address is not the proxy.
            ("x-forwarded-for", &["192.0.2.1, unknown"], "unknown"),
            ("x-forwarded-for", &["192.0.2.1, \u{e9}"], "unknown"),
            ("x-forwarded-for", &["192.0.2.1\u{a0}"], "unknown"),
            ("x-forwarded-for", &["192.0.2.1,"], "unknown"),
            ("x-forwarded-for", &["192.0.2.1", ""], "unknown"),
            ("x-forwarded-for", &[""], "unknown"),
            ("x-forwarded-for", &["fe80::1%eth0"], "unknown"),
            ("x-forwarded-for", &["[fe80::1%1]:80"], "unknown"),
            ("x-forwarded-for", &["\"192.0.2.1\""], "unknown"),
            ("forwarded", &["for=_hidden"], "unknown"),
            ("forwarded", &["for=unknown;proto=http"], "unknown"),
            ("forwarded", &["for=192.0.2.1, for=\u{e9}"], "unknown"),
            ("forwarded", &["for=192.0.2.1,"], "unknown"),
            ("forwarded", &["for=192.0.2.1, proto=http"], "unknown"),
            // A comma in quotes separates nothing, nor does a semicolon.
            ("forwarded", &["host=\"a, for=10.0.0.1\";for=192.0.2.1"], "192.0.2.1"),
            ("forwarded", &["for=192.0.2.1;host=\"a;for=10.0.0.1\""], "192.0.2.1"),
            ("forwarded", &["for=192.0.2.1;host=\"a, for=10.0.0.1\""], "192.0.2.1"),
            // Nobody is named.
            ("forwarded", &["proto=http;host=a", "proto=https"], "peer"),
            ("x-other", &["192.0.2.1"], "peer"),
        ] {
            let lines: Vec<_> = lines.iter().map(|line| (name, *line)).collect();
            let given = client(&with_lines(&lines), &[]);
            assert_eq!(given, given_by(expected), "{lines:?}");
        }
    }

    #[test]
    fn of_two_fields_that_differ_neither_names_the_client() {
        // Nor is it the proxy itself.
        let peer: IpAddr = "10.0.0.9".parse().unwrap();
        for (list, standard, expected) in [
            ("192.0.2.1", "for=192.0.2.1", "192.0.2.1"),
            ("10.0.0.1, 192.0.2.1", "for=\"[::ffff:192.0.2.1]\"", "192.0.2.1"),
            ("192.0.2.1", "for=198.51.100.1, proto=https", "192.0.2.1"),
            ("10.0.0.1", "for=192.0.2.1", "unknown"),
            ("10.0.0.1", "for=_hidden", "unknown"),
            ("10.0.0.1", "for=\u{e9}", "unknown"),
            ("unknown", "for=192.0.2.1", "unknown"),
            ("\u{e9}", "for=192.0.2.1", "unknown"),
            ("", "for=192.0.2.1", "unknown"),
            ("unknown", "proto=https", "unknown"),
            ("unknown", "for=unknown", "unknown"),
        ] {
            let client =
                client(&with_lines(&[("x-forwarded-for", list), ("forwarded", standard)]), &[]);
            let expected = given_by(expected);
            assert_eq!(client.address(peer), expected.address(peer), "{list} {standard}");
            assert!(client.address(peer) != Some(peer), "{list} {standard}");
        }
    }

    #[test]
    fn proxies_that_are_known_are_passed_over_from_the_end() {
        let proxies = ["10.0.0.0/8", "2001:db8::/32"].map(|text| text.parse().unwrap());
        let list = "x-forwarded-for";
        for (name, lines, expected) in [
            (list, &["198.51.100.1, 192.0.2.1, 10.0.0.1"][..], "192.0.2.1"),
            (list, &["198.51.100.1, 192.0.2.1", "10.0.0.1, 10.0.0.2"], "192.0.2.1"),
            (list, &["192.0.2.1, ::ffff:10.0.0.1, [2001:db8::1]:81"], "192.0.2.1"),
            (list, &["192.0.2.1"], "192.0.2.1"),
            (list, &["10.0.0.3, 10.0.0.1"], "10.0.0.3"),
            (list, &["\u{e9}, 192.0.2.1, 10.0.0.1"], "192.0.2.1"),
            // The client of a proxy that does not know it is not that proxy.
            (list, &["192.0.2.1, unknown, 10.0.0.1"], "unknown"),
            (list, &["192.0.2.1, \u{e9}, 10.0.0.1"], "unknown"),
            (list, &["192.0.2.1, unknown"], "unknown"),
            ("forwarded", &["for=192.0.2.1, for=10.0.0.1;proto=http"], "192.0.2.1"),
            ("forwarded", &["for=192.0.2.1, proto=http, for=10.0.0.1"], "unknown"),
        ] {
            let lines: Vec<_> = lines.iter().map(|line| (name, *line)).collect();
            let given = client(&with_lines(&lines), &proxies);
            assert_eq!(given, given_by(expected), "{lines:?}");
        }
        let fields = ForwardedFields {
            trust_client: true,
            trust_networks: proxies.to_vec(),
            ..ForwardedFields::default()
        };
        let headers = with_lines(&[(list, "192.0.2.1")]);
        for (peer, expected) in [
            ("10.0.0.9", "192.0.2.1"),
            ("::ffff:10.0.0.9", "192.0.2.1"),
            ("192.0.2.9", "peer"),
            ("::ffff:192.0.2.9", "peer"),
        ] {
            let client = client_given(&fields, peer.parse().unwrap(), &headers);
            assert_eq!(client, given_by(expected), "{peer}");
        }
    }

    #[test]
    fn of_schemes_that_counts_which_the_outermost_proxy_wrote() {
        let proxies = ["10.0.0.0/8".parse().unwrap()];
        for (addresses, schemes, expected) in [
            ("192.0.2.1", &["https"][..], Some("https")),
            ("192.0.2.1", &["HTTPS "], Some("https")),
            ("192.0.2.1", &["gopher"], None),
            ("192.0.2.1", &["https, gopher"], None),
            // The client wrote the first one.
            ("192.0.2.1", &["https, http"], Some("http")),
            ("192.0.2.1", &["https", "http"], Some("http")),
            ("198.51.100.1, 192.0.2.1", &["http, https"], Some("https")),
            ("192.0.2.1, 10.0.0.1", &["https, http"], Some("https")),
            ("192.0.2.1, 10.0.0.1", &["http, https, http"], Some("https")),
            ("192.0.2.1, 10.0.0.1, 10.0.0.2", &["https", "http, http"], Some("https")),
            ("192.0.2.1, 10.0.0.1, 10.0.0.2", &["https, http"], Some("https")),
            // Nobody else is named.
            ("10.0.0.1", &["https, http"], Some("https")),
            ("unknown", &["https, http"], Some("http")),
        ] {
            let mut lines = vec![("x-forwarded-for", addresses)];
            lines.extend(schemes.iter().map(|scheme| ("x-forwarded-proto", *scheme)));
            assert_eq!(given(&with_lines(&lines), &proxies).0, expected, "{lines:?}");
        }
        let lines = [("x-forwarded-for", "10.0.0.1"), ("x-forwarded-proto", "https, http")];
        assert_eq!(given(&with_lines(&lines), &[]).0, Some("http"), "who is a proxy is not known");
    }

    #[test]
    fn an_id_is_taken_of_who_is_trusted_or_made() {
        let long = "x".repeat(REQUEST_ID_BYTES_MAX + 1);
        for (lines, trusts, taken) in [
            (&["a-1"][..], true, true),
            (&["a-1"], false, false),
            (&["a 1"], true, false),
            (&[""], true, false),
            (&[long.as_str()], true, false),
            (&["a", "b"], true, false),
            (&[], true, false),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(X_REQUEST_ID, HeaderValue::from_str(line).unwrap());
            }
            let id = request_id(&headers, trusts);
            assert_eq!(lines.first() == Some(&&*id), taken, "{lines:?} {id}");
            let is_made = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert_eq!(is_made, !taken, "{lines:?} {id}");
            assert_eq!(request_id(&headers, trusts) == id, taken, "each its own");
        }
    }

    #[test]
    fn what_tells_is_forgotten_however_it_is_written() {
        for name in &TELLING {
            for (name, trusted) in [
                (name.as_str().to_owned(), true),
                (name.as_str().replacen('-', "_", 1), false),
                (name.as_str().replace('-', "_"), false),
            ] {
                // A name without a hyphen is no disguise.
                let stays = trusted || !name.contains('_');
                let mut headers = HeaderMap::new();
                headers.insert("accept", HeaderValue::from_static("a"));
                headers.insert("x-other_field", HeaderValue::from_static("b"));
                let name = HeaderName::try_from(name).unwrap();
                headers.insert(&name, HeaderValue::from_static("c"));
                let mut of_trusted = headers.clone();
                forget_told(&mut headers, false);
                forget_told(&mut of_trusted, true);
                assert!(!headers.contains_key(&name), "{name}");
                assert_eq!((headers.len(), of_trusted.contains_key(&name)), (2, stays), "{name}");
            }
        }
    }

    #[test]
    fn nobody_tells_an_origin_its_proxy() {
        for trusts in [false, true] {
            let mut headers =
                with_lines(&[("proxy", "http://evil.test"), ("proxy-status", "a"), ("x-a", "b")]);
            forget_told(&mut headers, trusts);
            assert_eq!((headers.len(), headers.contains_key(PROXY)), (2, false), "{trusts}");
        }
    }

    #[test]
    fn addresses_are_written_as_everywhere() {
        let texts = ["0.0.0.0", "9.10.99.100", "101.110.199.200", "255.255.255.255", "1.20.3.40"];
        for text in texts.into_iter().chain(["2001:db8::1", "::ffff:192.0.2.1"]) {
            assert_eq!(address_value(text.parse().unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn elements_are_quoted_where_they_must_be() {
        let peer = |ip: &str| Peer {
            ip: ip.parse().unwrap(),
            secure: false,
            tls_version: None,
            activity: Activity::new(std::sync::Arc::default(), None),
            interim: None,
            route: None,
            pin: None,
            notes: None,
        };
        let host = HeaderValue::from_static("a:81");
        let expected = "for=\"[2001:db8::1]\";proto=https;host=\"a:81\"";
        assert_eq!(element(&peer("2001:db8::1"), "https", Some(&host)), expected);
        assert_eq!(element(&peer("192.0.2.1"), "http", None), "for=192.0.2.1;proto=http");
        // Nothing that another reader might take for the end of the element.
        for odd in ["a\", for=10.0.0.1", "a\\", "a b", "a/b"] {
            let host = HeaderValue::from_static(odd);
            let written = element(&peer("192.0.2.1"), "http", Some(&host));
            assert_eq!(written, "for=192.0.2.1;proto=http", "{odd}");
        }
    }
}
