//! The metadata blob stored beside a body: status, headers and policy of an HTTP response.
//!
//! Layout, little-endian: version (1 byte), kind (1 byte). A response continues with status u16,
//! flags u8; then, each as u64 in milliseconds, lifetime, initial age, response time (since 1970),
//! and the windows of stale-while-revalidate and stale-if-error. If the body is stored apart, its
//! generation and length follow (u64 each); if it is a part, its start, end and the length of the
//! whole (u64 each). Then group count u8, and per group its number and generation (u64 each);
//! header count u16, and per header name length u16, name, value length u32, value. A vary marker
//! continues with generation u64, name count u8, and per name length u16, name.
//!
//! Invariants: the decoder trusts no field and never panics. It returns `None`, which the caller
//! treats as a miss, for an unknown version or kind and for a blob that is too short or too long.
//! Header values share the blob's memory. No threads.

use bytes::{BufMut, Bytes};
use damelo::GroupId;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode, Version};

use crate::rules::Policy;
use crate::rules::cache_groups::GROUPS_MAX;
use crate::rules::parts::Part;

/// Version of the layout. Entries of another version are misses.
const VERSION: u8 = 3;
const KIND_RESPONSE: u8 = 1;
const KIND_VARY_MARKER: u8 = 2;
const FLAG_NO_CACHE: u8 = 1;
const FLAG_NEVER_STALE: u8 = 2;
const FLAG_APART: u8 = 4;
const FLAG_IMMUTABLE: u8 = 8;
const FLAG_PART: u8 = 16;
/// Received over HTTP/2, or in HTTP/1.0; without either, in HTTP/1.1.
const FLAG_HTTP2: u8 = 32;
const FLAG_HTTP1_0: u8 = 64;
const FLAG_PERSONAL: u8 = 128;
// A response has at most as many groups besides its home group as the rules read: in one byte.
const _: () = assert!(GROUPS_MAX <= u8::MAX as usize);

/// Largest blob written: well below the store's limit for metadata.
pub(crate) const METADATA_BYTES_MAX: usize = 32 * 1024;

/// A large body is stored under a key of its own, so that a lookup does not read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Apart {
    /// Random for each body; part of the body's key.
    pub(crate) generation: u64,
    pub(crate) length_bytes: u64,
}

/// Membership of a response in a group other than its home group. The response is valid only while
/// the group's sentinel has this generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) group: GroupId,
    pub(crate) generation: u64,
}

/// A decoded entry.
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
    /// HTTP version in which the response was received; versions that the flags do not distinguish
    /// count as HTTP/1.1.
    pub(crate) version: Version,
    /// Freshness data that a hit needs, computed when the response was stored.
    pub(crate) policy: Policy,
    /// Where the body is, if it is stored apart.
    pub(crate) apart: Option<Apart>,
    /// The byte range of the whole that the body holds, if not all of it.
    pub(crate) part: Option<Part>,
    pub(crate) groups: Vec<Membership>,
    pub(crate) headers: HeaderMap,
}

/// Lists the headers that a resource varies on. A new generation makes all variants of the old one
/// unreachable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct VaryMarker {
    pub(crate) generation: u64,
    pub(crate) names: Vec<HeaderName>,
}

/// Whether metadata are those of a marker.
pub(crate) fn is_marker(metadata: &[u8]) -> bool {
    metadata.starts_with(&[VERSION, KIND_VARY_MARKER])
}

impl StoredResponse {
    /// Length of the whole body, given that of the value that lies beside these metadata.
    pub(crate) fn complete_bytes(&self, value_bytes: u64) -> u64 {
        let apart = self.apart.map(|apart| apart.length_bytes);
        self.part.map(|part| part.complete_bytes).or(apart).unwrap_or(value_bytes)
    }

    /// A complete response whose body is stored beside it.
    pub(crate) fn new(
        status: StatusCode,
        version: Version,
        policy: Policy,
        headers: HeaderMap,
    ) -> StoredResponse {
        let groups = Vec::new();
        StoredResponse { status, version, policy, apart: None, part: None, groups, headers }
    }

    /// All groups that it is in if it lies in `home`.
    pub(crate) fn groups_with(&self, home: GroupId) -> impl Iterator<Item = GroupId> {
        self.groups.iter().map(|member| member.group).chain([home])
    }

    fn flags(&self) -> u8 {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        flag(self.policy.no_cache, FLAG_NO_CACHE)
            | flag(self.policy.never_stale, FLAG_NEVER_STALE)
            | flag(self.policy.immutable, FLAG_IMMUTABLE)
            | flag(self.policy.is_personal, FLAG_PERSONAL)
            | flag(self.apart.is_some(), FLAG_APART)
            | flag(self.part.is_some(), FLAG_PART)
            | flag(self.version == Version::HTTP_2, FLAG_HTTP2)
            | flag(self.version == Version::HTTP_10, FLAG_HTTP1_0)
    }

    /// Encodes the blob; `None` if it would be larger than [`METADATA_BYTES_MAX`].
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut blob = Vec::with_capacity(1024);
        blob.put_slice(&[VERSION, KIND_RESPONSE]);
        blob.put_u16_le(self.status.as_u16());
        blob.put_u8(self.flags());
        let policy = &self.policy;
        blob.put_u64_le(policy.lifetime_ms);
        blob.put_u64_le(policy.initial_age_ms);
        blob.put_u64_le(policy.response_time_ms);
        blob.put_u64_le(policy.stale_while_revalidate_ms);
        blob.put_u64_le(policy.stale_if_error_ms);
        if let Some(apart) = self.apart {
            blob.put_u64_le(apart.generation);
            blob.put_u64_le(apart.length_bytes);
        }
        if let Some(part) = self.part {
            blob.put_u64_le(part.start);
            blob.put_u64_le(part.end);
            blob.put_u64_le(part.complete_bytes);
        }
        if self.groups.len() > GROUPS_MAX {
            return None;
        }
        blob.put_u8(self.groups.len() as u8);
        for member in &self.groups {
            blob.put_u64_le(member.group.get());
            blob.put_u64_le(member.generation);
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
    /// Encodes the blob.
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
    /// Marks a response as stale since this second. It came before, also where the clock that says
    /// so was set back.
    pub(crate) fn end_freshness(&mut self, unix_s: u64) {
        if let Entry::Response(response) = self {
            let came_ms = response.policy.response_time_ms;
            let age_ms = response.policy.age_ms(unix_s.saturating_mul(1000).max(came_ms));
            response.policy.lifetime_ms = response.policy.lifetime_ms.min(age_ms);
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
    let version = match (flags & FLAG_HTTP2 != 0, flags & FLAG_HTTP1_0 != 0) {
        (false, false) => Version::HTTP_11,
        (true, false) => Version::HTTP_2,
        (false, true) => Version::HTTP_10,
        (true, true) => return None,
    };
    let policy = Policy {
        lifetime_ms: cursor.u64()?,
        initial_age_ms: cursor.u64()?,
        response_time_ms: cursor.u64()?,
        stale_while_revalidate_ms: cursor.u64()?,
        stale_if_error_ms: cursor.u64()?,
        no_cache: flags & FLAG_NO_CACHE != 0,
        never_stale: flags & FLAG_NEVER_STALE != 0,
        immutable: flags & FLAG_IMMUTABLE != 0,
        is_personal: flags & FLAG_PERSONAL != 0,
    };
    let apart = if flags & FLAG_APART == 0 {
        None
    } else {
        Some(Apart { generation: cursor.u64()?, length_bytes: cursor.u64()? })
    };
    let part = if flags & FLAG_PART == 0 { None } else { Some(decode_part(cursor)?) };
    let groups = decode_groups(cursor)?;
    let count = usize::from(cursor.u16()?);
    // `count` comes from outside, so it does not decide the allocation. Room for four more:
    // delivery adds headers.
    let mut headers = HeaderMap::with_capacity(count.min(64) + 4);
    for _ in 0..count {
        let name_length = usize::from(cursor.u16()?);
        let name = HeaderName::from_bytes(cursor.take(name_length)?).ok()?;
        let value_length = usize::try_from(cursor.u32()?).ok()?;
        let value = HeaderValue::from_maybe_shared(cursor.take_shared(value_length)?).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(StoredResponse { status, version, policy, apart, part, groups, headers })
}

fn decode_part(cursor: &mut Cursor<'_>) -> Option<Part> {
    let part = Part { start: cursor.u64()?, end: cursor.u64()?, complete_bytes: cursor.u64()? };
    (part.start < part.end && part.end <= part.complete_bytes).then_some(part)
}

fn decode_groups(cursor: &mut Cursor<'_>) -> Option<Vec<Membership>> {
    let count = usize::from(cursor.u8()?);
    if count > GROUPS_MAX {
        return None;
    }
    let member = |_| {
        let group = GroupId::new(cursor.u64()?);
        Some(Membership { group, generation: cursor.u64()? })
    };
    (0..count).map(member).collect()
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

/// Reads forward through a blob; a read past the end returns `None`.
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
        let policy = Policy {
            lifetime_ms: 9000,
            initial_age_ms: 2,
            response_time_ms: 1_002_003,
            stale_while_revalidate_ms: 30_000,
            stale_if_error_ms: 60_000,
            no_cache: true,
            never_stale: true,
            immutable: false,
            is_personal: false,
        };
        StoredResponse::new(StatusCode::OK, Version::HTTP_11, policy, headers)
    }

    /// A response with every optional field set.
    fn rich() -> StoredResponse {
        let mut rich = response();
        rich.version = Version::HTTP_2;
        rich.apart = Some(Apart { generation: 7, length_bytes: 1 << 40 });
        rich.part = Some(Part { start: 5, end: 9, complete_bytes: 10 });
        rich.policy.immutable = true;
        rich.groups = vec![Membership { group: GroupId::new(3), generation: 4 }; 2];
        rich
    }

    fn marker() -> VaryMarker {
        let names = vec!["accept".parse().unwrap(), "x-custom".parse().unwrap()];
        VaryMarker { generation: 0x0123_4567_89ab_cdef, names }
    }

    #[test]
    fn round_trip() {
        let decoded = Entry::decode(&response().encode().unwrap().into());
        assert_eq!(decoded, Some(Entry::Response(response())));
        let decoded = Entry::decode(&rich().encode().unwrap().into());
        assert_eq!(decoded, Some(Entry::Response(rich())));
        let mut older = StoredResponse { version: Version::HTTP_10, ..response() };
        older.policy.is_personal = true;
        let decoded = Entry::decode(&older.encode().unwrap().into());
        assert_eq!(decoded, Some(Entry::Response(older)));
        let decoded = Entry::decode(&marker().encode().into());
        assert_eq!(decoded, Some(Entry::Marker(marker())));
    }

    #[test]
    fn the_fuzz_target_starts_from_these() {
        let hold = |name, bytes: &[u8]| crate::documents::hold_seed("stored_entry", name, bytes);
        let mut stamped = response().encode().unwrap();
        hold("plain", &stamped);
        hold("rich", &rich().encode().unwrap());
        hold("marker", &marker().encode());
        let moment = crate::purge::stamp::Moment { ledger: 1, generation: 2 };
        let tags = vec![crate::purge::stamp::TagId(7); 2];
        crate::purge::stamp::Stamp { moment, tags }.append(&mut stamped);
        hold("stamped", &stamped);
    }

    #[test]
    fn golden_bytes() {
        let marker = marker().encode();
        assert_eq!(&marker[..11], [3, 2, 0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01, 2]);
        assert_eq!(&marker[11..19], [6, 0, b'a', b'c', b'c', b'e', b'p', b't']);
        let blob = response().encode().unwrap();
        assert_eq!(&blob[..13], [3, 1, 200, 0, 3, 0x28, 0x23, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&blob[13..29], [2, 0, 0, 0, 0, 0, 0, 0, 0x13, 0x4a, 0x0f, 0, 0, 0, 0, 0]);
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
        let two = [response().encode().unwrap(), rich().encode().unwrap()];
        for blob in two.into_iter().chain([marker().encode()]) {
            let blob = Bytes::from(blob);
            for length in 0..blob.len() {
                assert_eq!(Entry::decode(&blob.slice(..length)), None, "{length}");
            }
            let longer: Vec<u8> = blob.iter().copied().chain([0]).collect();
            assert_eq!(Entry::decode(&longer.into()), None);
        }
    }

    #[test]
    fn what_is_stale_stays_so_once_the_clock_is_right() {
        let policy =
            Policy { lifetime_ms: 600_000, response_time_ms: 9_000_500, ..Policy::default() };
        for (ended_s, lasts_ms) in [(9_060, 59_500), (9_000, 0), (8_999, 0), (5_000, 0), (0, 0)] {
            let mut entry = Entry::Response(StoredResponse { policy, ..response() });
            entry.end_freshness(ended_s);
            let Entry::Response(ended) = entry else { panic!("it is a response") };
            assert_eq!(ended.policy.lifetime_ms, lasts_ms, "ended at {ended_s}");
        }
    }

    #[test]
    fn mutations_never_panic() {
        let originals = [response().encode().unwrap(), rich().encode().unwrap(), marker().encode()];
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
            // Any blob that still decodes must encode again.
            if let Some(Entry::Response(decoded)) = Entry::decode(&blob.into()) {
                assert!(decoded.encode().is_some(), "seed {seed}");
            }
        }
    }
}
