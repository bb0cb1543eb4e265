//! Every parser of this crate that reads what came from outside, as the fuzz targets drive them: no
//! input panics, and what is read is consistent. No threads.
//!
//! Compiled for tests, which try damaged samples, and with the feature `fuzzing`; part of no
//! interface.

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::forward::auth::credentials as read_credentials;
use crate::handler::purge::{order_of_json, order_of_method};
use crate::listen::proxy_protocol::{Parsed, parse};
use crate::purge::stamp::Stamp;
use crate::settings::Settings;
use crate::vault::entry::Entry;

/// The header of the PROXY protocol.
pub fn proxy_header(data: &[u8]) {
    if let Parsed::Header { length, client } = parse(data) {
        assert!(length <= data.len());
        // What follows it is not looked at.
        assert_eq!(parse(&data[..length]), Parsed::Header { length, client });
    }
}

/// The configuration file.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Settings::parse(text) {
        Ok(settings) => assert!(!settings.show().is_empty()),
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

/// Orders to purge: the same bytes as JSON, and as lines `name:value` of a request.
pub fn purge_order(data: &[u8]) {
    if let Ok((what, _)) = order_of_json(data) {
        assert!(!what.is_empty());
    }
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
    if let Ok((what, _)) = order_of_method("http://h/a", &headers) {
        assert!(!what.is_empty());
    }
}

/// Metadata of what is stored, with its stamp and without.
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
    // Repeated names come back together, in their order.
    if let Some(encoded) = encoded {
        assert_eq!(Entry::decode(&Bytes::from(encoded)), Some(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples, whole and damaged: bytes changed, cut out, doubled.
    fn try_damaged(samples: &[&[u8]], parser: fn(&[u8])) {
        let mut random = fastrand::Rng::with_seed(7);
        for sample in samples {
            parser(sample);
            for _ in 0..2000 {
                let mut bytes = sample.to_vec();
                for _ in 0..random.usize(1..4) {
                    let at = random.usize(..=bytes.len());
                    match random.u8(..4) {
                        0 => bytes.truncate(at),
                        1 => bytes.insert(at, random.u8(..)),
                        2 => bytes.extend_from_within(at..),
                        _ if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
                        _ => {}
                    }
                }
                parser(&bytes);
            }
        }
    }

    #[test]
    fn no_input_is_too_odd() {
        let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x02\x12\x34\0\x50";
        let v1 = b"PROXY TCP6 2001:db8::1 2001:db8::2 1000 80\r\nGET";
        assert!([&v1[..], v2].iter().all(|it| matches!(parse(it), Parsed::Header { .. })));
        try_damaged(&[v1, v2], proxy_header);
        try_damaged(&[b"Basic YWxpY2U6c2VjcmV0", b"basic Og==", b"Bearer x"], credentials);
        let json = br#"{"url":["http://a/b?c"],"tag":"x","soft":true,"all":false}"#;
        let lines =
            b"soft-purge: yes\nsurrogate-key:a b\ncache-groups:\"c\", \"d\"\npurge-scope:host";
        try_damaged(&[json, lines], purge_order);
        // Addresses are left out, as names among them would be resolved.
        let file =
            b"memory = \"512MiB\"\n[limits]\nconnections_max = 7\n[[rule]]\nhost = [\"a.test\"]\n\
            path = \"/x/*\"\nttl = \"5m\"\n";
        assert!(Settings::parse(&String::from_utf8_lossy(file)).is_ok());
        try_damaged(&[file], configuration);
        let mut marker = b"\x02\x02\x01\0\0\0\0\0\0\0\x01\x06\0accept".to_vec();
        assert!(Entry::decode(&Bytes::from(marker.clone())).is_some());
        try_damaged(&[&marker], stored_entry);
        Stamp {
            moment: crate::purge::stamp::Moment { ledger: 1, generation: 2 },
            tags: Vec::new(),
        }
        .append(&mut marker);
        try_damaged(&[&marker], stored_entry);
    }
}
