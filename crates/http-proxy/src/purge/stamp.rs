//! The stamp that every stored response carries, so that a hit can be checked against purges: the
//! ledger it was stored under, the number of purges when it was fetched, and its tags.
//!
//! The stamp is appended to the metadata blob: tags (u64 each), their count u16, generation u64,
//! ledger u64, version u8; little-endian. It is read from the end, so that the blob before it needs
//! no length. Invariants: the decoder trusts no field; an unreadable stamp is `None`, a miss. No
//! threads.

use bytes::BufMut;
use damelo::GroupId;
use http::{HeaderMap, HeaderName};

use crate::rules::cache_groups::CACHE_GROUPS;
use crate::rules::group::is_grouped;

const VERSION: u8 = 0xd1;
const TAIL_BYTES: usize = 2 + 8 + 8 + 1;
/// Maximum number of tags of a response. A response with more is not stored, since not all its tags
/// could be purged.
pub(crate) const TAGS_MAX: usize = 512;

/// A point in the history of purges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Number of the ledger.
    pub(crate) ledger: u64,
    /// Number of purges before this moment.
    pub(crate) generation: u64,
}

/// The stamp of one stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) moment: Moment,
    pub(crate) tags: Vec<TagId>,
}

/// A tag, identified by the hash of its name. Tags whose hashes collide are purged together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TagId(pub(crate) u64);

impl TagId {
    pub(crate) fn of(name: &[u8]) -> TagId {
        TagId(GroupId::of(name).get())
    }
}

impl Stamp {
    /// Appends the stamp to a blob.
    pub(crate) fn append(&self, blob: &mut Vec<u8>) {
        for tag in &self.tags {
            blob.put_u64_le(tag.0);
        }
        // `tags_of` returns at most TAGS_MAX.
        blob.put_u16_le(self.tags.len() as u16);
        blob.put_u64_le(self.moment.generation);
        blob.put_u64_le(self.moment.ledger);
        blob.put_u8(VERSION);
    }

    /// Splits a blob into its length without the stamp, and the stamp.
    pub(crate) fn split(blob: &[u8]) -> Option<(usize, Stamp)> {
        let tail = blob.len().checked_sub(TAIL_BYTES)?;
        let (before, tail) = blob.split_at(tail);
        let (count, tail) = tail.split_first_chunk::<2>()?;
        let (generation, tail) = tail.split_first_chunk::<8>()?;
        let (ledger, version) = tail.split_first_chunk::<8>()?;
        if version != [VERSION] {
            return None;
        }
        let count = usize::from(u16::from_le_bytes(*count));
        let length = before.len().checked_sub(count * 8)?;
        let tags = before[length..]
            .chunks_exact(8)
            .filter_map(|bytes| bytes.try_into().ok())
            .map(|bytes| TagId(u64::from_le_bytes(bytes)))
            .collect();
        let moment = Moment {
            ledger: u64::from_le_bytes(*ledger),
            generation: u64::from_le_bytes(*generation),
        };
        Some((length, Stamp { moment, tags }))
    }
}

const TAG_HEADERS: [HeaderName; 5] = [
    HeaderName::from_static("surrogate-key"),
    HeaderName::from_static("cache-tag"),
    HeaderName::from_static("xkey"),
    // Drupal's, and Magento's.
    HeaderName::from_static("cache-tags"),
    HeaderName::from_static("x-magento-tags"),
];

/// Whether a message may have tags: it has one of the fields of [`tag_names`].
pub(crate) fn is_tagged(headers: &HeaderMap, more: &[HeaderName]) -> bool {
    is_grouped(headers) || more.iter().any(|name| headers.contains_key(name))
}

/// The tag names of a message: strings of `Cache-Groups` (RFC 9875), and the words, separated by
/// blanks and commas, of `Surrogate-Key`, `Cache-Tag`, `xkey`, `Cache-Tags`, `X-Magento-Tags` and
/// the operator's own fields, `more`.
pub(crate) fn tag_names(headers: &HeaderMap, more: &[HeaderName]) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    for line in headers.get_all(CACHE_GROUPS) {
        quoted_strings(line.as_bytes(), &mut names);
    }
    for header in TAG_HEADERS.iter().chain(more) {
        for line in headers.get_all(header) {
            let words = line.as_bytes().split(|b| matches!(b, b' ' | b',' | b'\t'));
            names.extend(words.filter(|word| !word.is_empty()).map(<[u8]>::to_vec));
        }
    }
    names
}

/// Tags of a response; `None` if there are more than [`TAGS_MAX`].
pub(crate) fn tags_of(headers: &HeaderMap, more: &[HeaderName]) -> Option<Vec<TagId>> {
    let names = tag_names(headers, more);
    let mut tags: Vec<TagId> = names.iter().map(|name| TagId::of(name)).collect();
    tags.sort_unstable_by_key(|tag| tag.0);
    tags.dedup();
    (tags.len() <= TAGS_MAX).then_some(tags)
}

/// The strings of a structured list (RFC 8941 §3.3.3); parameters and items of other types are
/// ignored.
fn quoted_strings(line: &[u8], names: &mut Vec<Vec<u8>>) {
    let mut bytes = line.iter().copied();
    while bytes.by_ref().any(|byte| byte == b'"') {
        let mut name = Vec::new();
        loop {
            match bytes.next() {
                None => return,
                Some(b'"') => break,
                Some(b'\\') => name.extend(bytes.next()),
                Some(byte) => name.push(byte),
            }
        }
        if !name.is_empty() {
            names.push(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn stamp(tags: &[u64]) -> Stamp {
        let moment = Moment { ledger: 7, generation: 9 };
        Stamp { moment, tags: tags.iter().map(|tag| TagId(*tag)).collect() }
    }

    #[test]
    fn what_is_appended_is_split_off_again() {
        for (before, tags) in [(&b""[..], &[][..]), (b"blob", &[1, u64::MAX]), (b"x", &[3])] {
            let mut blob = before.to_vec();
            stamp(tags).append(&mut blob);
            assert_eq!(Stamp::split(&blob), Some((before.len(), stamp(tags))));
        }
    }

    #[test]
    fn golden_bytes() {
        let mut blob = Vec::new();
        stamp(&[1]).append(&mut blob);
        let expected =
            [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0xd1];
        assert_eq!(blob, expected);
    }

    #[test]
    fn damage_never_panics() {
        let mut blob = b"blob".to_vec();
        stamp(&[1, 2, 3]).append(&mut blob);
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut damaged = blob.clone();
            let at = random.usize(..damaged.len());
            match random.u8(..3) {
                0 => damaged[at] = random.u8(..),
                1 => damaged.truncate(at),
                _ => drop(damaged.drain(..at)),
            }
            if let Some((length, _)) = Stamp::split(&damaged) {
                assert!(length <= damaged.len(), "seed {seed}");
            }
        }
        assert_eq!(Stamp::split(b"short"), None);
    }

    #[test]
    fn tags_of_all_headers() {
        let own = [HeaderName::from_static("x-own")];
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("cache-groups", "\"a b\", \"c\\\"d\";x=1, token"),
            ("surrogate-key", "k1  k2"),
            ("cache-tag", "t1,t2"),
            ("xkey", "k1"),
            ("cache-tags", "node:1 node_list"),
            ("x-magento-tags", "cat_p_1,store"),
            ("x-own", "o1"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        for (name, value) in &headers {
            let one = HeaderMap::from_iter([(name.clone(), value.clone())]);
            assert!(is_tagged(&one, &own) && !tag_names(&one, &own).is_empty(), "{name}");
        }
        let untold = HeaderMap::from_iter([(own[0].clone(), HeaderValue::from_static("o1"))]);
        assert!(!is_tagged(&untold, &[]) && tag_names(&untold, &[]).is_empty());
        let names: Vec<_> =
            tag_names(&headers, &own).into_iter().map(|n| String::from_utf8(n).unwrap()).collect();
        let drupal_and_magento = ["node:1", "node_list", "cat_p_1", "store"];
        assert_eq!(names[..7], ["a b", "c\"d", "k1", "k2", "t1", "t2", "k1"]);
        assert_eq!(names[7..11], drupal_and_magento);
        assert_eq!(names[11..], ["o1"]);
        assert_eq!(tags_of(&headers, &own).unwrap().len(), 11, "each once");
        let many: Vec<String> = (0..=TAGS_MAX).map(|n| n.to_string()).collect();
        headers.insert("xkey", many.join(" ").parse().unwrap());
        assert_eq!(tags_of(&headers, &[]), None);
    }
}
