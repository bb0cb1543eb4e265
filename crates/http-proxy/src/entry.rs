//! The metadata blob beside a stored body: what an HTTP response is besides its bytes.
//!
//! Layout, little-endian: version (1 byte), kind (1 byte), then for a response: status u16, flags
//! u8, lifetime, initial age, request time, response time (u64 each), if the body lies apart its
//! generation and length (u64 each), header count u16, and per header name length u16, name, value
//! length u32, value. For a vary marker: generation u64, name
//! count u8, and per name length u16, name.
//!
//! Invariants: the decoder trusts nothing and never panics; an unknown version, a kind it does not
//! know, a short or an overlong blob is `None`, which the caller takes for a miss. Header values
//! share the blob's memory. No threads.

use bytes::{BufMut, Bytes};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::rules::cache_control::CacheControl;
use crate::rules::freshness;
use crate::rules::request::Policy;

/// Version of the layout. Entries of another version are misses.
const VERSION: u8 = 1;
const KIND_RESPONSE: u8 = 1;
const KIND_VARY_MARKER: u8 = 2;
const FLAG_NO_CACHE: u8 = 1;
const FLAG_NEVER_STALE: u8 = 2;
const FLAG_APART: u8 = 4;

/// Largest blob written: well below what a store takes beside an object.
pub(crate) const METADATA_BYTES_MAX: usize = 32 * 1024;

/// A large body lies under a key of its own, so that a lookup never reads it by accident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Apart {
    /// Drawn at random for each body: part of its key.
    pub(crate) generation: u64,
    pub(crate) length_bytes: u64,
}

/// What is stored under a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entry {
    /// A response; its body is the object's value.
    Response(StoredResponse),
    /// The names of the headers that choose among variants stored under longer keys.
    Marker(VaryMarker),
}

/// A stored response without its body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredResponse {
    pub(crate) status: StatusCode,
    pub(crate) policy: Policy,
    /// Age when it arrived (RFC 9111 §4.2.3).
    pub(crate) initial_age_s: u64,
    pub(crate) request_time_s: u64,
    pub(crate) response_time_s: u64,
    /// Where the body is, if not beside this.
    pub(crate) apart: Option<Apart>,
    pub(crate) headers: HeaderMap,
}

/// Says on what a resource varies. A new generation makes all variants of the old unreachable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VaryMarker {
    pub(crate) generation: u64,
    pub(crate) names: Vec<HeaderName>,
}

impl StoredResponse {
    /// A response as it arrived; `stored` are the headers to keep, `received` all of them.
    pub(crate) fn new(
        status: StatusCode,
        stored: HeaderMap,
        received: &HeaderMap,
        request_time_s: u64,
        response_time_s: u64,
    ) -> StoredResponse {
        let cache_control = CacheControl::of(&stored);
        let (lifetime_s, _) = freshness::lifetime(status, &stored, &cache_control, response_time_s);
        StoredResponse {
            status,
            policy: Policy::new(lifetime_s, &cache_control),
            initial_age_s: freshness::initial_age(received, request_time_s, response_time_s),
            request_time_s,
            response_time_s,
            apart: None,
            headers: stored,
        }
    }

    /// Current age.
    pub(crate) fn age_s(&self, now_s: u64) -> u64 {
        freshness::current_age(self.initial_age_s, self.response_time_s, now_s)
    }

    /// The blob; `None` if it would be larger than [`METADATA_BYTES_MAX`].
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut blob = Vec::with_capacity(1024);
        blob.put_slice(&[VERSION, KIND_RESPONSE]);
        blob.put_u16_le(self.status.as_u16());
        let mut flags = 0;
        if self.policy.no_cache {
            flags |= FLAG_NO_CACHE;
        }
        if self.policy.never_stale {
            flags |= FLAG_NEVER_STALE;
        }
        if self.apart.is_some() {
            flags |= FLAG_APART;
        }
        blob.put_u8(flags);
        blob.put_u64_le(self.policy.lifetime_s);
        blob.put_u64_le(self.initial_age_s);
        blob.put_u64_le(self.request_time_s);
        blob.put_u64_le(self.response_time_s);
        if let Some(apart) = self.apart {
            blob.put_u64_le(apart.generation);
            blob.put_u64_le(apart.length_bytes);
        }
        blob.put_u16_le(u16::try_from(self.headers.len()).ok()?);
        for (name, value) in &self.headers {
            blob.put_u16_le(u16::try_from(name.as_str().len()).ok()?);
            blob.put_slice(name.as_str().as_bytes());
            blob.put_u32_le(u32::try_from(value.len()).ok()?);
            blob.put_slice(value.as_bytes());
        }
        (blob.len() <= METADATA_BYTES_MAX).then_some(blob)
    }
}

impl VaryMarker {
    /// The blob.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut blob = vec![VERSION, KIND_VARY_MARKER];
        blob.put_u64_le(self.generation);
        // `vary::of` lets through at most VARY_NAMES_MAX names, each bounded by the header limit.
        blob.put_u8(self.names.len().min(255) as u8);
        for name in self.names.iter().take(255) {
            let text = &name.as_str().as_bytes()[..name.as_str().len().min(usize::from(u16::MAX))];
            blob.put_u16_le(text.len() as u16);
            blob.put_slice(text);
        }
        blob
    }
}

impl Entry {
    /// Makes a response stale as if its freshness had ended at this second.
    pub(crate) fn end_freshness(&mut self, unix_s: u64) {
        if let Entry::Response(response) = self {
            let age_s = response.age_s(unix_s);
            response.policy.lifetime_s = response.policy.lifetime_s.min(age_s);
        }
    }

    /// Reads a blob.
    pub(crate) fn decode(blob: &Bytes) -> Option<Entry> {
        let mut cursor = Cursor { blob, at: 0 };
        if cursor.u8()? != VERSION {
            return None;
        }
        let entry = match cursor.u8()? {
            KIND_RESPONSE => Entry::Response(decode_response(&mut cursor)?),
            KIND_VARY_MARKER => Entry::Marker(decode_marker(&mut cursor)?),
            _ => return None,
        };
        (cursor.at == blob.len()).then_some(entry)
    }
}

fn decode_response(cursor: &mut Cursor<'_>) -> Option<StoredResponse> {
    let status = StatusCode::from_u16(cursor.u16()?).ok()?;
    let flags = cursor.u8()?;
    if flags & !(FLAG_NO_CACHE | FLAG_NEVER_STALE | FLAG_APART) != 0 {
        return None;
    }
    let policy = Policy {
        lifetime_s: cursor.u64()?,
        no_cache: flags & FLAG_NO_CACHE != 0,
        never_stale: flags & FLAG_NEVER_STALE != 0,
    };
    let (initial_age_s, request_time_s) = (cursor.u64()?, cursor.u64()?);
    let response_time_s = cursor.u64()?;
    let apart = if flags & FLAG_APART == 0 {
        None
    } else {
        Some(Apart { generation: cursor.u64()?, length_bytes: cursor.u64()? })
    };
    let count = usize::from(cursor.u16()?);
    // The count is not trusted with memory; three more headers are added on the way out.
    let mut headers = HeaderMap::with_capacity(count.min(64) + 4);
    for _ in 0..count {
        let name_length = usize::from(cursor.u16()?);
        let name = HeaderName::from_bytes(cursor.take(name_length)?).ok()?;
        let value_length = usize::try_from(cursor.u32()?).ok()?;
        let value = HeaderValue::from_maybe_shared(cursor.take_shared(value_length)?).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(StoredResponse {
        status,
        policy,
        initial_age_s,
        request_time_s,
        response_time_s,
        apart,
        headers,
    })
}

fn decode_marker(cursor: &mut Cursor<'_>) -> Option<VaryMarker> {
    let generation = cursor.u64()?;
    let count = usize::from(cursor.u8()?);
    let mut names = Vec::with_capacity(count);
    for _ in 0..count {
        let length = usize::from(cursor.u16()?);
        names.push(HeaderName::from_bytes(cursor.take(length)?).ok()?);
    }
    Some(VaryMarker { generation, names })
}

/// Reads forward through a blob; every read past the end is `None`.
struct Cursor<'a> {
    blob: &'a Bytes,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn range(&mut self, length: usize) -> Option<std::ops::Range<usize>> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.blob.len())?;
        let range = self.at..end;
        self.at = end;
        Some(range)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let range = self.range(length)?;
        self.blob.get(range)
    }

    fn take_shared(&mut self, length: usize) -> Option<Bytes> {
        let range = self.range(length)?;
        Some(self.blob.slice(range))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response() -> StoredResponse {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("text/html"));
        headers.append("set-cookie", HeaderValue::from_static("a=b"));
        headers.append("set-cookie", HeaderValue::from_static("c=d"));
        headers.insert("x-odd", HeaderValue::from_bytes(b"\xfc\t ").unwrap());
        headers.insert("cache-control", HeaderValue::from_static("no-cache, s-maxage=9"));
        StoredResponse::new(StatusCode::OK, headers.clone(), &headers, 1000, 1002)
    }

    fn marker() -> VaryMarker {
        let names = vec!["accept".parse().unwrap(), "x-custom".parse().unwrap()];
        VaryMarker { generation: 0x0123_4567_89ab_cdef, names }
    }

    #[test]
    fn round_trip() {
        let decoded = Entry::decode(&response().encode().unwrap().into());
        assert_eq!(decoded, Some(Entry::Response(response())));
        let mut large = response();
        large.apart = Some(Apart { generation: 7, length_bytes: 1 << 40 });
        let decoded = Entry::decode(&large.encode().unwrap().into());
        assert_eq!(decoded, Some(Entry::Response(large)));
        assert!(response().policy.no_cache && response().policy.never_stale);
        assert_eq!(response().initial_age_s, 2);
        let decoded = Entry::decode(&marker().encode().into());
        assert_eq!(decoded, Some(Entry::Marker(marker())));
    }

    #[test]
    fn golden_bytes() {
        let marker = marker().encode();
        assert_eq!(&marker[..11], [1, 2, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 2]);
        assert_eq!(&marker[11..19], [6, 0, b'a', b'c', b'c', b'e', b'p', b't']);
        let blob = response().encode().unwrap();
        assert_eq!(&blob[..6], [1, 1, 200, 0, 3, 9]);
    }

    #[test]
    fn too_large_is_refused() {
        let mut big = response();
        let value = HeaderValue::try_from("x".repeat(METADATA_BYTES_MAX)).unwrap();
        big.headers.insert("x-big", value);
        assert_eq!(big.encode(), None);
    }

    #[test]
    fn every_cut_is_refused() {
        for blob in [response().encode().unwrap(), marker().encode()] {
            let blob = Bytes::from(blob);
            for length in 0..blob.len() {
                assert_eq!(Entry::decode(&blob.slice(..length)), None, "{length}");
            }
            let longer: Vec<u8> = blob.iter().copied().chain([0]).collect();
            assert_eq!(Entry::decode(&longer.into()), None);
        }
    }

    #[test]
    fn mutations_never_panic() {
        let mut large = response();
        large.apart = Some(Apart { generation: 7, length_bytes: 1 << 40 });
        let originals = [response().encode().unwrap(), large.encode().unwrap(), marker().encode()];
        for seed in 0..50_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut blob = originals[random.usize(..3)].clone();
            for _ in 0..random.usize(1..6) {
                let index = random.usize(..blob.len());
                match random.u8(..3) {
                    0 => blob[index] = random.u8(..),
                    1 => blob[index] ^= 1 << random.u8(..8),
                    _ => blob.truncate(index.max(1)),
                }
            }
            // Whatever still decodes must encode again.
            if let Some(Entry::Response(decoded)) = Entry::decode(&blob.into()) {
                assert!(decoded.encode().is_some(), "seed {seed}");
            }
        }
    }
}
