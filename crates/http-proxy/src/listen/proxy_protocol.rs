//! The PROXY protocol, versions 1 and 2, by which a proxy before us states a connection's client.
//!
//! The `ppp` crate decodes; this file decides how many bytes to wait for, and extracts the address.
//! Invariant: at most [`HEADER_BYTES_MAX`] are read. No threads.

use std::net::{IpAddr, SocketAddr};

use ppp::{HeaderResult, PartialResult as _, v1, v2};

/// Longest header: that of version 2 with 16 bits of length (version 1 has at most 107 bytes), cut
/// to what real senders use.
pub(crate) const HEADER_BYTES_MAX: usize = 4096;

/// Prefix of version 1.
const V1_PREFIX: &[u8] = b"PROXY ";
/// Longest line of version 1.
const V1_BYTES_MAX: usize = 107;

/// Result of parsing the beginning of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// More bytes are needed.
    Incomplete,
    /// Not the PROXY protocol, or damaged.
    Invalid,
    /// A header of `length` bytes. Without an address the proxy speaks for itself (health checks).
    Header { length: usize, client: Option<SocketAddr> },
}

/// Reads a header from the bytes a connection began with.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let (mut bytes, mut is_whole) = (bytes, false);
    if bytes.starts_with(V1_PREFIX) || V1_PREFIX.starts_with(bytes) {
        // The decoder treats a line cut within its last number as invalid, and may or may not
        // accept a line that ends with a bare newline, depending on the bytes behind it.
        let line = &bytes[..bytes.len().min(V1_BYTES_MAX)];
        match line.iter().position(|byte| *byte == b'\n') {
            Some(end) if line[..end].ends_with(b"\r") => {
                (bytes, is_whole) = (&line[..=end], true);
            }
            None if line.len() < V1_BYTES_MAX => return Parsed::Incomplete,
            _ => return Parsed::Invalid,
        }
    }
    let result = HeaderResult::parse(bytes);
    if result.is_incomplete() {
        // No bytes behind a line make its fields more.
        return if is_whole { Parsed::Invalid } else { Parsed::Incomplete };
    }
    match result {
        HeaderResult::V1(Ok(header)) => {
            Parsed::Header { length: header.header.len(), client: client_v1(&header.addresses) }
        }
        HeaderResult::V2(Ok(header)) => {
            let local = header.command == v2::Command::Local;
            let client = if local { None } else { client_v2(&header.addresses) };
            Parsed::Header { length: header.len(), client }
        }
        HeaderResult::V1(Err(_)) | HeaderResult::V2(Err(_)) => Parsed::Invalid,
    }
}

fn client_v1(addresses: &v1::Addresses) -> Option<SocketAddr> {
    match addresses {
        v1::Addresses::Tcp4(a) => Some((IpAddr::V4(a.source_address), a.source_port).into()),
        v1::Addresses::Tcp6(a) => Some((IpAddr::V6(a.source_address), a.source_port).into()),
        v1::Addresses::Unknown => None,
    }
}

fn client_v2(addresses: &v2::Addresses) -> Option<SocketAddr> {
    match addresses {
        v2::Addresses::IPv4(a) => Some((IpAddr::V4(a.source_address), a.source_port).into()),
        v2::Addresses::IPv6(a) => Some((IpAddr::V6(a.source_address), a.source_port).into()),
        v2::Addresses::Unix(_) | v2::Addresses::Unspecified => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443\r\n";

    fn v2_header() -> Vec<u8> {
        let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        bytes.extend([192, 0, 2, 7, 198, 51, 100, 1]);
        bytes.extend([0x13, 0x88, 1, 0xbb]);
        bytes
    }

    #[test]
    fn both_versions_name_the_client() {
        let client = Some("192.0.2.7:5000".parse().unwrap());
        for header in [V1.to_vec(), v2_header()] {
            let length = header.len();
            let mut bytes = header.clone();
            bytes.extend(b"GET / HTTP/1.1\r\n");
            assert_eq!(parse(&bytes), Parsed::Header { length, client });
            for end in 0..length {
                assert_eq!(parse(&header[..end]), Parsed::Incomplete, "{end} of {length}");
            }
        }
    }

    #[test]
    fn the_proxy_may_speak_for_itself() {
        assert_eq!(parse(b"PROXY UNKNOWN\r\n"), Parsed::Header { length: 15, client: None });
        let mut local = v2_header();
        local[12] = 0x20;
        assert_eq!(parse(&local), Parsed::Header { length: 28, client: None });
    }

    #[test]
    fn anything_else_is_refused() {
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            b"PROXY TCP4 192.0.2.777 198.51.100.1 5000 443\r\n",
            b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 99999\r\n",
            b"PROXY TCP4 192.0.2.7 198.51.100.1 5000 443 \n",
            b"PROXY TCP4 bogus\r\n",
            b"PROXY UNKNOWN x \n",
            b"PROXY UNKNOWN x \n \r\n",
            b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c............",
        ] {
            assert_eq!(parse(bytes), Parsed::Invalid, "{}", bytes.escape_ascii());
        }
    }
}
