//! Traces of binary records, in whatever form: how long a record is, and what it says. Pure.

use super::lcs;
use super::oracle_general::{self, OracleRecord};
use super::vscsi;
use crate::error::BadRecord;
use crate::request::Op;

/// What is read of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BinaryRecord {
    /// In seconds, if nobody says that the trace counts something else.
    pub(crate) time: u32,
    pub(crate) object: u64,
    pub(crate) size_bytes: u64,
    pub(crate) op: Op,
}

impl BinaryRecord {
    /// The method that stands for the operation, as `Record::op` reads it; none for a read.
    pub(crate) fn method(&self) -> &'static [u8] {
        match self.op {
            Op::Read => b"",
            Op::Write => b"PUT",
            Op::Delete => b"DELETE",
        }
    }
}

/// A form of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    OracleGeneral,
    Lcs(lcs::Version),
    Vscsi(vscsi::Version),
}

impl Layout {
    /// Bytes before the first record.
    pub(crate) fn header_bytes(self) -> usize {
        match self {
            Layout::OracleGeneral | Layout::Vscsi(_) => 0,
            Layout::Lcs(_) => lcs::HEADER_BYTES,
        }
    }

    pub(crate) fn record_bytes(self) -> usize {
        match self {
            Layout::OracleGeneral => oracle_general::RECORD_BYTES,
            Layout::Lcs(version) => version.record_bytes(),
            Layout::Vscsi(version) => version.record_bytes(),
        }
    }

    /// The record that these bytes begin with, if they are enough for one.
    #[inline]
    pub(crate) fn decode(self, bytes: &[u8]) -> Result<BinaryRecord, BadRecord> {
        let expected = self.record_bytes();
        let Some(bytes) = bytes.get(..expected) else {
            return Err(BadRecord::Truncated { found: bytes.len(), expected });
        };
        match self {
            Layout::OracleGeneral => {
                let bytes = bytes.first_chunk().expect("its length");
                Ok(OracleRecord::decode(bytes).into())
            }
            Layout::Lcs(version) => version.decode(bytes),
            Layout::Vscsi(version) => version.decode(bytes),
        }
    }
}

impl From<OracleRecord> for BinaryRecord {
    #[inline]
    fn from(record: OracleRecord) -> BinaryRecord {
        let OracleRecord { time_s, object, size_bytes, next_access: _ } = record;
        BinaryRecord { time: time_s, object, size_bytes: size_bytes.into(), op: Op::Read }
    }
}
