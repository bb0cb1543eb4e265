//! Entry points of the fuzz targets: every parser of this crate that reads bytes from outside. No
//! input may panic, and parsed values must be consistent. No threads.
//!
//! Compiled for tests, which try damaged samples, and with the feature `fuzzing`. Not part of the
//! public interface.

use std::str::FromStr;

use bytes::Bytes;
use damelo::ByteSize;
use http::header::{
    CONTENT_LENGTH, COOKIE, HOST, LOCATION, PROXY_AUTHORIZATION, SEC_WEBSOCKET_ACCEPT,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version};
use http_body_util::Full;

use crate::admin::explain::read_written;
use crate::config::tables::Limits;
use crate::config::transport::{Listener, OriginChoice};
use crate::config::{Grouping, OriginTarget};
use crate::forward::access_rule::AccessRule;
use crate::forward::auth::credentials as read_credentials;
use crate::forward::users;
use crate::handler::purge::{What, order_of_json, url_parts};
use crate::handler::purge_method::order_of_method;
use crate::handler::{screen, upgrade};
use crate::listen::proxy_protocol::{Parsed, parse};
use crate::purge::PurgeKind;
use crate::purge::marks::{Marks, Scope, Standing, Subject};
use crate::purge::saved::{Delta, Known, Snapshot};
use crate::purge::stamp::Stamp;
use crate::request::forwarded::{self, ClientGiven};
use crate::rules::key::is_plain_authority;
use crate::ruleset::{Glob, Segments, cookies};
use crate::settings::Settings;
use crate::upstream::head::{check_head, kept_for};
use crate::upstream::redirects::OwnName;
use crate::vault::entry::Entry;
use crate::vault::variants::{decode_variants, encode_variants};

/// The header of the PROXY protocol.
pub fn proxy_header(data: &[u8]) {
    if let Parsed::Header { length, client } = parse(data) {
        assert!(length <= data.len());
        // The bytes behind the header do not influence the result.
        assert_eq!(parse(&data[..length]), Parsed::Header { length, client });
        // Every strict prefix of the header is reported as incomplete.
        for end in 0..length {
            assert_eq!(parse(&data[..end]), Parsed::Incomplete, "{end} of {length}");
        }
    }
}

/// The configuration file.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Settings::parse(text) {
        Ok(settings) => {
            // What is shown reads back as itself.
            let shown = settings.show();
            let again = Settings::parse(&shown.join("\n")).map(|again| again.show());
            assert_eq!(again, Ok(shown));
        }
        Err(mistakes) => assert!(!mistakes.is_empty()),
    }
}

/// `Proxy-Authorization`.
pub fn credentials(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    let headers = HeaderMap::from_iter([(PROXY_AUTHORIZATION, value)]);
    if let Some((name, _)) = read_credentials(&headers) {
        assert!(!name.contains(':'));
    }
}

/// The file of users of the forward proxy.
pub fn users_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (users, wrong) = users::parse(text);
    let lines = text.lines().count();
    assert!(users.len() + wrong.len() <= lines);
    assert!(wrong.iter().all(|line| (1..=lines).contains(line)));
    for (name, hash) in &users {
        assert!(!name.is_empty() && !name.contains(':') && !name.starts_with('#'));
        // What is kept of a line says the same again.
        let (again, wrong) = users::parse(&format!("{name}:{}", hash.text()));
        assert!(again.len() == 1 && wrong.is_empty(), "{name}");
    }
}

/// What a proxy before this one tells of its client, as `name:value` header lines.
pub fn forwarded_fields(data: &[u8]) {
    let headers = fields(data);
    let networks = ["10.0.0.0/8".parse().expect("a network")];
    let (scheme, host) = forwarded::given(&headers, &networks);
    assert!(scheme.is_none_or(|scheme| ["http", "https"].contains(&scheme)));
    assert!(host.is_none_or(|host| !host.is_empty() && is_plain_authority(host.as_bytes())));
    // What the client itself put before what the proxy wrote counts for nothing.
    let named = forwarded::client(&headers, &[]);
    for name in ["x-forwarded-for", "forwarded"] {
        let Some(value) = headers.get(name) else { continue };
        let before: HeaderValue = match name {
            "forwarded" => HeaderValue::from_static("for=192.0.2.9"),
            _ => HeaderValue::from_static("192.0.2.9"),
        };
        let mut forged = headers.clone();
        forged.insert(HeaderName::from_static(name), before);
        forged.append(HeaderName::from_static(name), value.clone());
        headers.get_all(name).iter().skip(1).for_each(|line| {
            forged.append(HeaderName::from_static(name), line.clone());
        });
        let forged = forwarded::client(&forged, &[]);
        // Where the proxy names nobody, who names somebody is not known.
        let is_named = named != ClientGiven::Peer;
        assert_eq!(forged, if is_named { named } else { ClientGiven::Disputed }, "{name}");
    }
    // It is the proxy itself only where nobody is named, whoever is passed over.
    let among = forwarded::client(&headers, &networks);
    assert_eq!(named == ClientGiven::Peer, among == ClientGiven::Peer);
    assert!(named != ClientGiven::Peer || !headers.contains_key("x-forwarded-for"));
    assert!(forwarded::request_id(&headers, true).len() <= 200);
    let mut told = headers;
    forwarded::forget_told(&mut told, false);
    assert_eq!(forwarded::given(&told, &networks), (None, None));
    assert_eq!(forwarded::client(&told, &[]), ClientGiven::Peer);
}

/// `Location`, of which the origin's own name is taken off.
pub fn redirects(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    let mut headers = HeaderMap::from_iter([(LOCATION, value.clone())]);
    OwnName::of_fuzzing().take_off(&mut headers);
    let left = &headers[LOCATION];
    if *left == value {
        return;
    }
    // As browsers read it.
    let path: Vec<u8> = left.as_bytes().iter().copied().filter(|byte| *byte != b'\t').collect();
    assert!(path.starts_with(b"/"), "{left:?}");
    assert!(!path.starts_with(b"//") && !path.starts_with(b"/\\"), "{left:?}");
    assert!(value.as_bytes().ends_with(&left.as_bytes()[1..]), "{left:?}");
}

/// Header lines as `name:value`; others are left out.
fn fields(data: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n').take(64) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
        {
            headers.append(name, value);
        }
    }
    headers
}

/// Heads of messages: a line of version, method and target, and header lines, which are also read
/// as those of an answer.
pub fn messages(data: &[u8]) {
    let (line, rest) = data.split_at(data.iter().position(|b| *b == b'\n').unwrap_or(data.len()));
    let headers = fields(rest);
    if let Some(request) = std::str::from_utf8(line).ok().and_then(|line| asked(line, &headers)) {
        screened(request);
    }
    let lines = |name: &HeaderName| headers.get_all(name).iter().count();
    if check_head(&headers, 64 << 10).is_ok() {
        assert!(lines(&CONTENT_LENGTH) + lines(&TRANSFER_ENCODING) <= 1);
    }
    let _ = kept_for(&headers);
    answered(&headers);
    let mut left = headers.clone();
    let names = [Glob::new("_ga*", Segments::None).expect("a pattern")];
    let removed = cookies::remove(&names, &mut left);
    let is_named = |pair: &Vec<u8>| {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        name.trim_ascii().starts_with(b"_ga")
    };
    let mut pairs = cookie_pairs(&headers);
    assert_eq!(removed, pairs.iter().any(is_named));
    if removed {
        pairs.retain(|pair| !pair.is_empty() && !is_named(pair));
    }
    assert_eq!(cookie_pairs(&left), pairs);
}

/// A request by its first line.
fn asked(line: &str, headers: &HeaderMap) -> Option<Request<Full<Bytes>>> {
    let mut words = line.splitn(3, ' ');
    let version = match words.next()? {
        "1.0" => Version::HTTP_10,
        "1.1" => Version::HTTP_11,
        _ => Version::HTTP_2,
    };
    let (method, target) = (words.next()?, words.next()?);
    let request = Request::builder().version(version).method(method).uri(target);
    let mut request = request.body(Full::from("x")).ok()?;
    *request.headers_mut() = headers.clone();
    Some(request)
}

/// What passes means one thing, and passes again.
fn screened(mut request: Request<Full<Bytes>>) {
    let limits = Limits::default();
    if screen::screen(&mut request, &limits).is_err() {
        return;
    }
    let headers = request.headers();
    let lines = |name: HeaderName| headers.get_all(name).iter().count();
    assert!(lines(HOST) <= 1 && lines(TRANSFER_ENCODING) <= 1);
    assert!(request.version() != Version::HTTP_2 || lines(CONTENT_LENGTH) <= 1);
    if let Some(authority) = request.uri().authority()
        && *request.method() != Method::CONNECT
    {
        assert_eq!(headers[HOST], authority.as_str());
    }
    let mut again = request.clone();
    assert!(screen::screen(&mut again, &limits).is_ok());
    assert_eq!(again.headers(), headers);
    screen::join_cookies(again.headers_mut());
    assert!(again.headers().get_all(COOKIE).iter().count() <= 1);
    assert_eq!(cookie_pairs(again.headers()), cookie_pairs(headers));
}

/// An answer to the wish for WebSocket: without the proof of the key it opens nothing.
fn answered(headers: &HeaderMap) {
    let protocol = HeaderValue::from_static("websocket");
    // That of RFC 6455 §1.3, with its proof.
    let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
    let proof = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
    for status in [101, 103, 200, 404] {
        let status = StatusCode::from_u16(status).expect("a status");
        let told = upgrade::may_be_told((status, headers), &protocol, Some(&key));
        let is_proven = status == 101
            && headers.get(UPGRADE).is_some_and(|value| value.as_bytes().len() == 9)
            && headers.get(SEC_WEBSOCKET_ACCEPT).is_some_and(|value| value == proof);
        assert!(!told || is_proven || status == 404, "{status} {headers:?}");
    }
}

fn cookie_pairs(headers: &HeaderMap) -> Vec<Vec<u8>> {
    let lines = headers.get_all(COOKIE).into_iter().map(HeaderValue::as_bytes);
    let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.map(|pair| pair.trim_ascii().to_vec()).collect()
}

/// Purge orders, and those to explain: the same bytes read as JSON, and as `name:value` header
/// lines of a request.
pub fn purge_order(data: &[u8]) {
    let mut urls = Vec::new();
    if let Ok((what, _)) = order_of_json(data) {
        assert!(!what.is_empty());
        urls.extend(what.into_iter().filter_map(|one| match one {
            What::Url(url) | What::Prefix(url) => Some(url),
            _ => None,
        }));
    }
    if let Ok(written) = read_written(data) {
        assert!(written.client.is_none_or(|client| client == client.to_canonical()));
        urls.push(written.url);
    }
    for url in &urls {
        for has_hosts in [false, true] {
            let Ok(parts) = url_parts(url, has_hosts) else { continue };
            assert!(parts.path_and_query.starts_with('/') && !parts.path_and_query.contains('#'));
            assert!(!has_hosts || is_plain_authority(parts.host.as_bytes()));
        }
    }
    if let Ok((what, _)) = order_of_method(&["http://h/a".to_owned()], &fields(data), &[]) {
        assert!(!what.is_empty());
    }
}

/// Metadata of stored responses, with and without stamp.
pub fn stored_entry(data: &[u8]) {
    let blob = Bytes::copy_from_slice(data);
    let before = match Stamp::split(&blob) {
        Some((length, stamp)) => {
            let mut again = data[..length].to_vec();
            stamp.append(&mut again);
            assert_eq!(again, data);
            blob.slice(..length)
        }
        None => blob,
    };
    let Some(entry) = Entry::decode(&before) else { return };
    let encoded = match &entry {
        Entry::Response(response) => response.encode(),
        Entry::Marker(marker) => Some(marker.encode()),
    };
    // Values of a repeated name decode together, in their order.
    if let Some(encoded) = encoded {
        assert_eq!(Entry::decode(&Bytes::from(encoded)), Some(entry));
    }
}

/// The stored marks of purges, and the list of a resource's variants.
pub fn purge_marks(data: &[u8]) {
    let variants = decode_variants(data);
    assert_eq!(decode_variants(&encode_variants(&variants)), variants);
    assert!(data.starts_with(&encode_variants(&variants)));
    saved_marks(data);
    let Some(mut marks) = Marks::decode(data) else { return };
    assert_eq!(Marks::decode(&marks.encode()).as_ref(), Some(&marks));
    // A purge of everything covers every older response, whatever marks were decoded.
    let stamp = Stamp { moment: marks.now(), tags: Vec::new() };
    let subject = Subject { stamp: &stamp, url: b"http://h/a", url_hash: 1, group: 2 };
    let mut covered = 0;
    marks.covering(&subject, |_, _| covered += 1);
    let _ = marks.judge(&subject);
    let before = marks.now();
    for scope in [Scope::Prefix(b"http://h/".to_vec()), Scope::All] {
        marks.set(scope, PurgeKind::Hard, 7);
        assert_eq!(marks.judge(&subject), Standing::Gone, "{before:?}");
    }
    // A ledger whose generation is close to the limit refuses the next purge.
    if before.generation < 1 << 62 {
        assert_eq!(Marks::decode(&marks.encode()), Some(marks));
    }
}

/// A snapshot and a delta, which continues whatever snapshot it names.
fn saved_marks(data: &[u8]) {
    if let Some(Snapshot { number: Some(number), marks }) = Snapshot::decode(data) {
        let again = Snapshot::encode(number, &marks, data.len());
        assert_eq!(Snapshot::decode(&again), Some(Snapshot { number: Some(number), marks }));
    }
    let Some(delta) = Delta::decode(data) else { return };
    assert_eq!(Delta::encode(delta.snapshot, &delta.changes, data.len()), data);
    let known = Known::new(Marks::new(1));
    let snapshot = Snapshot { number: Some(delta.snapshot), marks: known.marks };
    let continued = snapshot.continued(&delta);
    assert_eq!(continued.is_some(), delta.changes.since() == 0);
}

/// Values of settings and of the command line: a value that can be shown reads back as itself. The
/// second input line is the text that the first line, as a pattern, is matched against.
pub fn proxy_values(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(listener) = Listener::from_str(text) {
        assert_eq!(Listener::from_str(&listener.to_string()), Ok(listener));
    }
    if let Ok(grouping) = Grouping::from_str(text) {
        assert_eq!(Grouping::from_str(&grouping.to_string()), Ok(grouping));
    }
    if let Ok(rule) = AccessRule::from_str(text) {
        assert_eq!(text.split_whitespace().next(), Some(if rule.allow { "allow" } else { "deny" }));
        assert!(rule.ports.iter().all(|ports| !ports.is_empty()));
        assert_eq!(AccessRule::from_str(&rule.to_string()), Ok(rule));
    }
    let _ = OriginChoice::from_str(text);
    let Ok(target) = OriginTarget::from_str(text);
    assert_eq!(target == OriginTarget::Demo, text == "demo");
    if let Ok(size) = ByteSize::from_str(text) {
        let exact = format!("{}B", size.bytes());
        assert_eq!(ByteSize::from_str(&exact), Ok(size));
        assert!(ByteSize::from_str(&size.to_string()).is_ok());
    }
    let (pattern, path) = text.split_once('\n').unwrap_or((text, "/a/b"));
    for segments in [Segments::BySlash, Segments::None] {
        if let Ok(glob) = Glob::new(pattern, segments) {
            let _ = glob.matches(path.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use damelo_store_sim::damaged;

    use super::*;
    use crate::documents::{hold_seed, seeds};
    use crate::purge::stamp::TagId;

    /// Runs the parser on the target's seeds, intact and damaged: bytes changed, cut out,
    /// duplicated.
    fn try_damaged(target: &str, parser: fn(&[u8])) {
        let mut random = fastrand::Rng::with_seed(7);
        let seeds = seeds(target);
        assert!(!seeds.is_empty());
        for seed in &seeds {
            parser(seed);
            for _ in 0..500 {
                parser(&damaged(seed, &mut random));
            }
        }
    }

    #[test]
    fn no_input_is_too_odd() {
        for header in seeds("proxy_header") {
            assert!(matches!(parse(&header), Parsed::Header { .. }));
        }
        try_damaged("proxy_header", proxy_header);
        try_damaged("credentials", credentials);
        try_damaged("purge_order", purge_order);
        try_damaged("messages", messages);
        try_damaged("configuration", configuration);
        try_damaged("stored_entry", stored_entry);
        try_damaged("purge_marks", purge_marks);
        try_damaged("proxy_values", proxy_values);
        try_damaged("users_file", users_file);
        try_damaged("forwarded_fields", forwarded_fields);
        try_damaged("redirects", redirects);
    }

    /// The checked-in seeds equal what the code writes, and the fuzzing configuration contains
    /// every key.
    #[test]
    fn the_seeds_are_what_the_code_writes() {
        let mut marks = Marks::new(1);
        marks.set(Scope::Url(7), PurgeKind::Soft, 5);
        // The order in which hashed marks are written is undefined, so the seed has only one.
        marks.set(Scope::Prefix(b"http://h/".to_vec()), PurgeKind::Hard, 6);
        hold_seed("purge_marks", "marks", &marks.encode());
        let mut known = Known::new(Marks::new(1));
        known.set(Scope::Tag(TagId(7)), PurgeKind::Soft, 5);
        known.set(Scope::Prefix(b"http://h/".to_vec()), PurgeKind::Hard, 6);
        hold_seed("purge_marks", "snapshot", &Snapshot::encode(3, &known.marks, 0));
        hold_seed("purge_marks", "delta", &Delta::encode(3, &known.changes, 80));
        hold_seed("purge_marks", "variants", &encode_variants(&[b"a".to_vec(), Vec::new()]));
        let mut settings = Settings::default();
        for argument in ["cache=store:1GiB", "workers=2"] {
            settings.set(argument).expect("a value");
        }
        hold_seed("configuration", "defaults", settings.show().join("\n").as_bytes());
    }
}
