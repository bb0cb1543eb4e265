//! The value of a patch record: which record its metadata replaces the metadata of.
//!
//! Owns a 16-byte codec. A patch record has the key of its object, the new metadata as its meta,
//! and this as its value. Invariant: `base_seq` must be the sequence number of the record found at
//! `base_units`, else the place has been reused and the patch means nothing.
//!
//! Threads: none; pure functions.

use super::fields::{Field, Slot, table};
use super::{FormatError, ensure, first};

/// Bytes of the value of a patch record.
pub const PATCH_BYTES: usize = 16;

pub(crate) mod at {
    use super::{Field, PATCH_BYTES, Slot, table};
    table! { PATCH_BYTES;
        BASE_UNITS: u64, 0, "base_units",
            "location of the patched record in 64-byte units, store-wide";
        BASE_SEQ: u64, 8, "base_seq",
            "sequence number the patched record has; another one there is another life";
    }
}

/// The record that a patch applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Location of the patched record in units.
    pub base_units: u64,
    /// Sequence number of the patched record.
    pub base_seq: u64,
}

impl Patch {
    /// The value of the patch record.
    #[must_use]
    pub fn encode(&self) -> [u8; PATCH_BYTES] {
        let mut bytes = [0; PATCH_BYTES];
        at::BASE_UNITS.put(&mut bytes, self.base_units);
        at::BASE_SEQ.put(&mut bytes, self.base_seq);
        bytes
    }

    /// Decodes the value of a patch record (whose body checksum has been verified).
    ///
    /// # Errors
    /// Another length than 16 bytes.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let bytes = first::<PATCH_BYTES>(value)?;
        ensure(value.len() == PATCH_BYTES, "length of a patch")?;
        Ok(Self { base_units: at::BASE_UNITS.get(bytes), base_seq: at::BASE_SEQ.get(bytes) })
    }
}
