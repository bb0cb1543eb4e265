//! Reading a record where it lies in memory, without decoding its header each time.
//!
//! Invariant: the header was decoded or encoded by this process before, so its fields are within
//! their limits; a view checks nothing again. Threads: none.

use super::{CHUNK_BYTES, CRC_BYTES, FLAG_CHUNKED, RECORD_HEADER_BYTES, RecordKind, at};
use crate::format::UNIT_BYTES;
use crate::types::{GroupId, KeyHash, Sequence};

/// The header of a record in memory.
#[derive(Clone, Copy)]
pub(crate) struct RecordView<'a>(&'a [u8; RECORD_HEADER_BYTES]);

impl<'a> RecordView<'a> {
    /// The view of a record that starts with these bytes; `None` if they are too few.
    #[inline]
    pub(crate) fn of(bytes: &'a [u8]) -> Option<RecordView<'a>> {
        bytes.first_chunk().map(RecordView)
    }

    /// True for a whole object; false for what only says where an object is.
    #[inline]
    pub(crate) fn is_object(self) -> bool {
        at::KIND.get(self.0) == RecordKind::Object.as_u8()
    }

    /// True if it has checksums of chunks.
    pub(crate) fn is_chunked(self) -> bool {
        at::FLAGS.get(self.0) & FLAG_CHUNKED != 0
    }

    #[inline]
    pub(crate) fn key_len(self) -> u32 {
        u32::from(at::KEY_LEN_LESS_ONE.get(self.0)) + 1
    }

    #[inline]
    pub(crate) fn meta_len(self) -> u32 {
        at::META_LEN.get(self.0)
    }

    #[inline]
    pub(crate) fn value_len(self) -> u64 {
        at::VALUE_LEN.get(self.0)
    }

    #[inline]
    pub(crate) fn key_hash(self) -> KeyHash {
        KeyHash::from_raw(at::HASH.get(self.0))
    }

    #[inline]
    pub(crate) fn sequence(self) -> Sequence {
        Sequence::from_raw(at::SEQ.get(self.0))
    }

    #[inline]
    pub(crate) fn group(self) -> GroupId {
        GroupId::new(at::GROUP.get(self.0))
    }

    #[inline]
    pub(crate) fn expires_s(self) -> u32 {
        at::EXPIRES_S.get(self.0)
    }

    /// Where the key starts, relative to the record's start.
    #[inline]
    pub(crate) fn key_start(self) -> usize {
        match at::FLAGS.get(self.0) & FLAG_CHUNKED {
            0 => RECORD_HEADER_BYTES,
            _ => {
                let table = self.value_len().div_ceil(CHUNK_BYTES) * CRC_BYTES;
                RECORD_HEADER_BYTES + table as usize
            }
        }
    }

    /// Bytes that the record takes, the zeros behind it included: a multiple of 64.
    #[inline]
    pub(crate) fn stored_bytes(self) -> usize {
        let head = self.key_start() + self.key_len() as usize + self.meta_len() as usize;
        (head + self.value_len() as usize).next_multiple_of(UNIT_BYTES as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{RecordFields, StoreNonce};

    #[test]
    fn a_view_says_what_the_decoded_header_says() {
        for (kind, chunked, key, meta, value) in [
            (RecordKind::Object, false, 1, 0, 0),
            (RecordKind::Object, false, 16, 3, 100),
            (RecordKind::Object, true, 16, 3, 100),
            (RecordKind::Object, true, 65_536, 1 << 20, 3 * CHUNK_BYTES + 1),
            (RecordKind::Part, true, 7, 0, CHUNK_BYTES),
        ] {
            let (hash, seq, group, expires_s) = (u64::MAX, 2, 3, value as u32);
            let nonce = StoreNonce(1);
            let fields = RecordFields { nonce, kind, chunked, hash, seq, group, expires_s };
            let header = fields.header(key, meta, value).unwrap();
            let bytes = header.encode();
            let view = RecordView::of(&bytes).unwrap();
            assert_eq!(view.is_object(), kind == RecordKind::Object);
            assert_eq!((view.key_len(), view.meta_len()), (header.key_len, header.meta_len));
            assert_eq!((view.value_len(), view.key_hash()), (value, header.key_hash()));
            assert_eq!((view.sequence(), view.group()), (header.sequence(), header.group()));
            assert_eq!(view.expires_s(), expires_s);
            assert_eq!(view.key_start(), header.key_range().start);
            assert_eq!(view.stored_bytes() as u64, header.stored_bytes());
        }
        assert!(RecordView::of(&[0; RECORD_HEADER_BYTES - 1]).is_none());
    }
}
