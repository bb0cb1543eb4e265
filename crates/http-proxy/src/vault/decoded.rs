//! Entries that this thread decoded lately, and copies for those who ask again.
//!
//! To decode a blob costs several hundred instructions for each header; to copy the decoded entry,
//! a tenth of that. So an entry that is asked for a second time is kept beside a copy of its blob,
//! and a later lookup that reads the same bytes gets a copy of the entry. Invariants: decoding is a
//! pure function of the blob, so that what is kept can be neither stale nor wrong: the blob that
//! was read is compared with the one that was decoded, byte by byte; that no purge covers an entry
//! holds for the key, group and stamp that it was found for, until the next purge; nothing here
//! shares memory with the store; a thread keeps at most [`PLACES`] entries, each of a blob of at
//! most [`BLOB_BYTES_MAX`]. Threads: each has a table of its own, so that hits on several do not
//! share reference counts.

use std::cell::RefCell;

use bytes::Bytes;
use damelo::GroupId;
use twox_hash::XxHash3_64;

use super::entry::Entry;
use super::{Placement, decode};
use crate::purge::stamp::{Moment, Stamp};

/// Entries that a thread keeps: about 2 KiB each with a dozen headers.
const PLACES: usize = 512;
/// Longer blobs are rare, and decoded each time.
const BLOB_BYTES_MAX: usize = 2048;

thread_local! {
    static TABLE: RefCell<Table> = RefCell::default();
}

/// What [`decode_again`] gives.
#[derive(Debug, PartialEq)]
pub(super) struct Lately {
    pub(super) entry: Entry,
    pub(super) stamp: Stamp,
    /// The group in which no purge covered it, and the moment of the newest mark then.
    pub(super) untouched: Option<(GroupId, Moment)>,
}

/// As [`decode`], of the blob that was read under this key.
pub(super) fn decode_again(key: &[u8], blob: &Bytes) -> Option<Lately> {
    TABLE.with_borrow_mut(|table| table.decode(key, blob))
}

/// Notes that no purge up to `newest` covers what lies under this key with this placement.
pub(super) fn note_untouched(key: &[u8], placement: &Placement, newest: Moment) {
    TABLE.with_borrow_mut(|table| table.note_untouched(key, placement, newest));
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
    key: Box<[u8]>,
    blob: Bytes,
    entry: Entry,
    stamp: Stamp,
    untouched: Option<(GroupId, Moment)>,
}

impl Kept {
    fn is_of(&self, key: &[u8], blob: &Bytes) -> bool {
        *self.key == *key && self.blob == *blob
    }

    fn copy(&self) -> Lately {
        let Kept { entry, stamp, untouched, .. } = self;
        Lately { entry: entry.clone(), stamp: stamp.clone(), untouched: *untouched }
    }
}

fn decoded(blob: &Bytes) -> Option<Lately> {
    let (entry, stamp) = decode(blob)?;
    Some(Lately { entry, stamp, untouched: None })
}

impl Table {
    fn decode(&mut self, key: &[u8], blob: &Bytes) -> Option<Lately> {
        if blob.len() > BLOB_BYTES_MAX {
            return decoded(blob);
        }
        if self.places.is_empty() {
            self.places = (0..PLACES).map(|_| Place::default()).collect();
        }
        let hash = XxHash3_64::oneshot(key);
        let place = &mut self.places[hash as usize % PLACES];
        if let Some(kept) = place.kept.as_deref().filter(|kept| kept.is_of(key, blob)) {
            place.wanted = 0;
            return Some(kept.copy());
        }
        if std::mem::replace(&mut place.wanted, hash) != hash {
            return decoded(blob);
        }
        // A copy, since what was read would keep memory of the store.
        let blob = Bytes::copy_from_slice(blob);
        let (entry, stamp) = decode(&blob)?;
        let kept = Kept { key: key.into(), blob, entry, stamp, untouched: None };
        Some(place.kept.insert(Box::new(kept)).copy())
    }

    fn note_untouched(&mut self, key: &[u8], placement: &Placement, newest: Moment) {
        let hash = XxHash3_64::oneshot(key);
        let kept =
            self.places.get_mut(hash as usize % PLACES).and_then(|it| it.kept.as_deref_mut());
        // What was decoded last need not be what is kept.
        if let Some(kept) = kept.filter(|it| *it.key == *key && it.stamp == placement.stamp) {
            kept.untouched = Some((placement.group, newest));
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, StatusCode, Version};

    use super::*;
    use crate::purge::stamp::TagId;
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
            assert_eq!(table.decode(&key, blob), decoded(blob), "seed {seed}");
        }
        assert!(kept(&table) > 0);
    }

    #[test]
    fn what_is_untouched_is_so_under_its_key_with_its_stamp() {
        let (mut table, blob) = (Table::default(), blob("one"));
        let stamp = decoded(&blob).unwrap().stamp;
        let newest = Moment { ledger: 1, generation: 7 };
        let group = GroupId::of(b"group");
        let placement = Placement { group, in_memory: true, stamp };
        let known = |table: &mut Table, key: &[u8]| table.decode(key, &blob).unwrap().untouched;
        table.note_untouched(b"key", &placement, newest);
        assert_eq!([(); 2].map(|()| known(&mut table, b"key")), [None, None], "none is kept yet");
        let mut tagged = placement.clone();
        tagged.stamp.tags = vec![TagId::of(b"tag")];
        table.note_untouched(b"key", &tagged, newest);
        table.note_untouched(b"other", &placement, newest);
        assert_eq!(known(&mut table, b"key"), None, "another stamp, another key");
        table.note_untouched(b"key", &placement, newest);
        assert_eq!(known(&mut table, b"key"), Some((group, newest)));
        assert_eq!([(); 3].map(|()| known(&mut table, b"other")), [None; 3]);
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
