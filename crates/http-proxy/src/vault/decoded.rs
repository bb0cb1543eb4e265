//! Entries that this thread decoded lately, and copies for those who ask again.
//!
//! To decode a blob costs several hundred instructions for each header; to copy the decoded entry,
//! a tenth of that. So an entry that is asked for a second time is kept beside a copy of its blob,
//! and a later lookup that reads the same bytes gets a copy of the entry. Invariants: decoding is a
//! pure function of the blob, so that what is kept can be neither stale nor wrong: the blob that
//! was read is compared with the one that was decoded, byte by byte; nothing here shares memory
//! with the store; a thread keeps at most [`PLACES`] entries, each of a blob of at most
//! [`BLOB_BYTES_MAX`]. Threads: each has a table of its own, so that hits on several do not share
//! reference counts.

use std::cell::RefCell;

use bytes::Bytes;
use twox_hash::XxHash3_64;

use super::decode;
use super::entry::Entry;
use crate::purge::stamp::Stamp;

/// Entries that a thread keeps: about 2 KiB each with a dozen headers.
const PLACES: usize = 512;
/// Longer blobs are rare, and decoded each time.
const BLOB_BYTES_MAX: usize = 2048;

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
}

/// As [`decode`], of the blob that was read under this key.
pub(super) fn decode_again(key: &[u8], blob: &Bytes) -> Option<(Entry, Stamp)> {
    TABLE.with_borrow_mut(|table| table.decode(key, blob))
}

/// Made when its thread decodes for the first time.
#[derive(Default)]
struct Table {
    places: Box<[Place]>,
}

#[derive(Default)]
struct Place {
    kept: Option<Box<Kept>>,
    /// Hash of the key that was last asked for here in vain. It is kept when it comes twice in a
    /// row, so that what is asked for once takes no place.
    wanted: u64,
}

struct Kept {
    blob: Bytes,
    entry: Entry,
    stamp: Stamp,
}

impl Table {
    fn decode(&mut self, key: &[u8], blob: &Bytes) -> Option<(Entry, Stamp)> {
        if blob.len() > BLOB_BYTES_MAX {
            return decode(blob);
        }
        if self.places.is_empty() {
            self.places = (0..PLACES).map(|_| Place::default()).collect();
        }
        let hash = XxHash3_64::oneshot(key);
        let place = &mut self.places[hash as usize % PLACES];
        if let Some(kept) = place.kept.as_deref().filter(|kept| kept.blob == *blob) {
            place.wanted = 0;
            return Some((kept.entry.clone(), kept.stamp.clone()));
        }
        if std::mem::replace(&mut place.wanted, hash) != hash {
            return decode(blob);
        }
        // A copy, since what was read would keep memory of the store.
        let blob = Bytes::copy_from_slice(blob);
        let (entry, stamp) = decode(&blob)?;
        let decoded = (entry.clone(), stamp.clone());
        place.kept = Some(Box::new(Kept { blob, entry, stamp }));
        Some(decoded)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, StatusCode, Version};

    use super::*;
    use crate::purge::stamp::Moment;
    use crate::rules::Policy;
    use crate::vault::entry::StoredResponse;

    /// The metadata of a response with this header.
    fn blob(header: &str) -> Bytes {
        let mut headers = HeaderMap::new();
        headers.insert("x-of", HeaderValue::try_from(header).unwrap());
        let policy = Policy {
            lifetime_ms: 9000,
            initial_age_ms: 0,
            response_time_ms: 1_000_000,
            stale_while_revalidate_ms: 0,
            stale_if_error_ms: 0,
            no_cache: false,
            never_stale: false,
            immutable: false,
            is_personal: false,
        };
        let response = StoredResponse::new(StatusCode::OK, Version::HTTP_11, policy, headers);
        let mut blob = response.encode().unwrap();
        let stamp = Stamp { moment: Moment { ledger: 1, generation: 2 }, tags: Vec::new() };
        stamp.append(&mut blob);
        blob.into()
    }

    fn kept(table: &Table) -> usize {
        table.places.iter().filter(|place| place.kept.is_some()).count()
    }

    #[test]
    fn it_is_what_decoding_gives_however_often_and_whatever_was_there_before() {
        let mut table = Table::default();
        let blobs = [blob("one"), blob("two"), Bytes::from_static(b"damaged")];
        for seed in 0..2000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let key = [random.u8(..8)];
            let blob = random.choice(&blobs).unwrap();
            assert_eq!(table.decode(&key, blob), decode(blob), "seed {seed}");
        }
        assert!(kept(&table) > 0);
    }

    #[test]
    fn what_is_asked_for_once_takes_no_place() {
        let mut table = Table::default();
        for number in 0..PLACES as u64 {
            table.decode(&number.to_le_bytes(), &blob("once"));
        }
        assert_eq!(kept(&table), 0);
        for _ in 0..2 {
            table.decode(b"twice", &blob("twice"));
        }
        assert_eq!(kept(&table), 1);
    }

    #[test]
    fn nothing_that_was_read_is_held_on_to() {
        let (mut table, read) = (Table::default(), blob("read"));
        for _ in 0..3 {
            drop(table.decode(b"key", &read));
        }
        assert!(read.is_unique(), "the store's memory would stay occupied");
        let long = blob(&"x".repeat(BLOB_BYTES_MAX));
        for _ in 0..3 {
            table.decode(b"long", &long).unwrap();
        }
        assert_eq!(kept(&table), 1, "a long one is not kept");
    }
}
