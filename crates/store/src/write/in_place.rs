//! A value assembled, while it comes in, in the memory where it will stay.
//!
//! Owns the run and the checksums so far. Room for the record's head lies before the value: if the
//! head has the expected length, nothing is copied again. Invariants: until the record is
//! published, only this value has access to the run; `crcs` covers the bytes pushed. Threads: one
//! at a time.

use crate::format::{BLOCK_BYTES, ChunkCrcs, RecordFields, RecordHeader, encode_head_into};
use crate::memory::pool::{Pool, Run};

pub(crate) struct InPlaceValue {
    run: Run,
    value_at: usize,
    filled: usize,
    room: usize,
    crcs: ChunkCrcs,
}

impl InPlaceValue {
    /// Length of the run that the record of this header needs, in bytes.
    pub(crate) fn run_bytes(expected: &RecordHeader) -> usize {
        expected.stored_bytes().next_multiple_of(BLOCK_BYTES) as usize
    }

    /// An empty value in a run of [`InPlaceValue::run_bytes`] that is not shared.
    pub(crate) fn new(run: Run, expected: &RecordHeader) -> InPlaceValue {
        let value = expected.value_range();
        InPlaceValue {
            run,
            value_at: value.start,
            filled: 0,
            room: value.len(),
            crcs: ChunkCrcs::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.filled
    }

    /// Bytes of memory that its run takes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.run.len_bytes() as u64
    }

    pub(crate) fn is_full(&self) -> bool {
        self.filled == self.room
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.run.bytes(self.value_at, self.filled)
    }

    /// Takes as many bytes as there is room for; returns their number.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.room - self.filled);
        // SAFETY: by the invariant no other thread reads or writes the run, and no slice of it is
        // out.
        unsafe { self.run.bytes_mut(self.value_at + self.filled, n) }.copy_from_slice(&bytes[..n]);
        // Computed from the source, which is in the processor's cache.
        self.crcs.update(&bytes[..n]);
        self.filled += n;
        n
    }

    /// The run, if the record with this header can be finished in it without moving a byte and
    /// fills it.
    pub(crate) fn run_for(&self, header: &RecordHeader, pool: &Pool) -> Option<Run> {
        let fits = header.chunked
            && header.value_range() == (self.value_at..self.value_at + self.filled)
            && pool.run_bytes_for(InPlaceValue::run_bytes(header)) == self.run.len_bytes();
        fits.then(|| self.run.clone())
    }

    /// Writes the record's head before the value and its padding after it.
    ///
    /// # Panics
    /// If the head is not as long as the room before the value, or a length is beyond the format's
    /// limits.
    pub(crate) fn finish(&self, fields: &RecordFields, key: &[u8], metadata: &[u8]) {
        let end = self.value_at + self.filled;
        let gap = end.next_multiple_of(BLOCK_BYTES as usize) - end;
        // SAFETY: the ranges lie before and behind the value; readers have been given at most the
        // value.
        let (head, gap) =
            unsafe { (self.run.bytes_mut(0, self.value_at), self.run.bytes_mut(end, gap)) };
        let crcs = self.crcs.clone().finish();
        let written = encode_head_into(head, fields, key, metadata, self.filled as u64, &crcs)
            .expect("lengths were checked, and the head has the room that was left for it");
        assert_eq!(written, self.value_at, "the head ends where the value begins");
        gap.fill(0);
    }

    /// Moves the value to its place in the record with this header.
    pub(crate) fn move_to(&mut self, header: &RecordHeader) {
        let to = header.value_range().start;
        if to == self.value_at {
            return;
        }
        let all = self.value_at.max(to) + self.filled;
        // SAFETY: as for `push`.
        let bytes = unsafe { self.run.bytes_mut(0, all) };
        bytes.copy_within(self.value_at..self.value_at + self.filled, to);
        self.value_at = to;
    }

    pub(crate) fn into_run(self) -> Run {
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{RecordKind, StoreNonce, verify_body};

    fn fields(seq: u64) -> RecordFields {
        RecordFields {
            nonce: StoreNonce(1),
            kind: RecordKind::Object,
            chunked: true,
            hash: 2,
            seq,
            group: 3,
            expires_s: 0,
        }
    }

    /// A value of 100,000 bytes, pushed in pieces into room for `expected` bytes.
    fn value(
        pool: &std::sync::Arc<Pool>,
        expected: u64,
        metadata: usize,
    ) -> (InPlaceValue, Vec<u8>) {
        let header = fields(0).header(3, metadata, expected).unwrap();
        let mut value =
            InPlaceValue::new(pool.try_take(InPlaceValue::run_bytes(&header)).unwrap(), &header);
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        for piece in bytes.chunks(9_999) {
            value.push(piece);
        }
        (value, bytes)
    }

    #[test]
    fn what_is_as_long_as_was_expected_is_finished_where_it_lies() {
        let pool = Pool::new(16, 64 << 10).unwrap();
        let (value, bytes) = value(&pool, 100_000, 4);
        let header = fields(9).header(3, 4, 100_000).unwrap();
        let run = value.run_for(&header, &pool).expect("it fits");
        assert!(value.is_full() && value.value() == bytes);
        value.finish(&fields(9), b"key", b"meta");
        let record = run.bytes(0, header.stored_bytes() as usize);
        let header = RecordHeader::decode(record, StoreNonce(1)).unwrap();
        assert!(verify_body(&header, record) && header.seq == 9);
        assert_eq!(&record[header.value_range()], bytes);
        assert_eq!(&record[header.meta_range()], b"meta");
        let end = header.value_range().end;
        assert!(
            run.bytes(end, InPlaceValue::run_bytes(&header) - end).iter().all(|&byte| byte == 0)
        );
    }

    #[test]
    fn another_length_is_moved_or_copied() {
        let pool = Pool::new(32, 64 << 10).unwrap();
        let header = fields(9).header(3, 0, 100_000).unwrap();
        for (expected, metadata) in [(100_000, 4), (400_000, 0)] {
            let (mut value, bytes) = value(&pool, expected, metadata);
            assert!(value.run_for(&header, &pool).is_none(), "{expected} {metadata}");
            value.move_to(&header);
            value.finish(&fields(9), b"key", b"");
            let run = value.into_run();
            let record = run.bytes(0, header.stored_bytes() as usize);
            let header = RecordHeader::decode(record, StoreNonce(1)).unwrap();
            assert!(verify_body(&header, record));
            assert_eq!(&record[header.value_range()], bytes);
        }
    }
}
