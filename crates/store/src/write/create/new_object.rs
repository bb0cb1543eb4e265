//! What is to be stored, and in whose place.
//!
//! Owns nothing. Threads: whoever creates.

use crate::deferred::Caller;
use crate::engine::Engine;
use crate::format::{RecordHeader, RecordKind};
use crate::index::Location;
use crate::memory::pool::Run;
use crate::types::GroupId;
use crate::write::in_place::InPlaceValue;
use crate::write::value::Value;
use crate::write::version::Version;

/// An object to be stored.
#[derive(Clone, Copy)]
pub(crate) struct NewObject<'a> {
    pub(crate) kind: RecordKind,
    pub(crate) key: &'a [u8],
    pub(crate) group: GroupId,
    pub(crate) metadata: &'a [u8],
    pub(crate) value: Value<'a>,
    /// Bytes of the whole value, for the counters: of an object in parts, `value` only lists them.
    pub(crate) value_bytes: u64,
    pub(crate) expires_s: u32,
    /// Kept from a reused segment, or rewritten by the store itself: skips admission and the
    /// counters.
    pub(crate) internal: bool,
    pub(crate) replaces: Replaces<'a>,
    /// Initial frequency in the index.
    pub(crate) freq: u8,
    /// For a record that stands for an object elsewhere: the object in one piece, which lacks only
    /// its number. Readers get it until the record is written.
    pub(crate) whole: Option<&'a Whole>,
    /// The value, if it already lies in the pool.
    pub(crate) in_place: Option<&'a InPlaceValue>,
    /// The caller that waits for the create, if the caller can abandon it.
    pub(crate) caller: Option<&'a Caller>,
}

/// An object in one piece, in a run that is not published: a header that only memory has, the key,
/// the metadata and the value.
pub(crate) struct Whole {
    pub(crate) run: Run,
    pub(crate) header: RecordHeader,
}

/// The version that a create replaces.
#[derive(Clone, Copy)]
pub(crate) enum Replaces<'a> {
    /// Any version.
    Anything,
    /// The object itself, at this location in the index: its record, or that of its metadata, moves
    /// from a segment about to be reused. The object does not change, so no older version becomes
    /// stale.
    Itself(Location),
    /// This version, if it is still the one that readers get.
    Version(&'a Version),
    /// As `Version`, for a version that may come back after a crash, since it is an older state of
    /// the same object: it stays on disk and in the index until the new one is written, and nothing
    /// is journalled.
    OlderState(&'a Version),
}

impl<'a> NewObject<'a> {
    /// A whole object without metadata or expiry, in place of any version.
    pub(crate) fn of(key: &'a [u8], group: GroupId, value: Value<'a>) -> NewObject<'a> {
        NewObject {
            kind: RecordKind::Object,
            key,
            group,
            metadata: &[],
            value_bytes: value.len() as u64,
            value,
            expires_s: 0,
            internal: false,
            replaces: Replaces::Anything,
            freq: 0,
            whole: None,
            in_place: None,
            caller: None,
        }
    }
}

impl NewObject<'_> {
    pub(super) fn is_moved(&self) -> bool {
        matches!(self.replaces, Replaces::Itself(_))
    }

    /// Whether the journal need not tell what this replaces. While recovery runs it must: the older
    /// version may not be found yet.
    pub(super) fn is_unjournalled(&self, engine: &Engine) -> bool {
        match self.replaces {
            Replaces::Itself(_) => true,
            Replaces::OlderState(_) => engine.recovery.is_done(),
            Replaces::Anything | Replaces::Version(_) => false,
        }
    }

    /// Bytes in this record that the admission policy knows of: those of the value, which a list of
    /// parts has elsewhere.
    pub(super) fn admitted_bytes(&self) -> u64 {
        if self.kind == RecordKind::Object { self.value_bytes } else { 0 }
    }

    /// Whether no purge may come between the look at the marks and the new number. A caller that
    /// moves an object sees to that itself.
    pub(super) fn keeps_purges_out(&self) -> bool {
        matches!(self.replaces, Replaces::Version(_) | Replaces::OlderState(_))
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.caller.is_some_and(Caller::is_gone)
    }
}
