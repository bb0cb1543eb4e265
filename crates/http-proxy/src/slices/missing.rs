//! Which of the slices of an answer the origin will have to be asked for, before it begins.
//!
//! Invariant: the origin is not asked here, nor the disk read for what can be found out later.
//! Threads: the worker's.

use crate::request::Ask;
use crate::rules::ForwardReason;
use crate::rules::parts::{self, Slices};
use crate::slices::got::{Begun, Got};
use crate::slices::verdict::may_be_for_sender;
use crate::slices::{LOOKED_FOR_MAX, may_be_for_one, slice, stale};
use crate::vault::KnownSlice;
use crate::vault::entry::StoredResponse;
use crate::worker::Worker;

/// Of these, how many are looked into before it counts as a hit, unless all must be there.
const LOOKED_INTO_MAX: u64 = 256;

/// Whether the answer may only be promised if all slices of it are there: none can be asked for, or
/// it could not be kept.
pub(super) fn must_be_there(worker: &Worker, ask: &Ask, first: &StoredResponse) -> bool {
    ask.wishes.only_if_cached || may_be_for_one(ask) || may_be_for_sender(worker, ask, first)
}

/// The first of these slices for which the origin will be asked by an answer that begins with
/// `first`, and why: it is missing, or may not be served without validation, or is of another
/// version. Where that stands in for a failure, what may do so as well is not missing. `None`: as
/// far as can be known, there is none. Whether a slice on disk may be served is only looked for if
/// all must `surely` be there, as the answer would break off otherwise: for a hit, the disk would
/// be read twice.
pub(super) async fn missing(
    worker: &Worker,
    ask: &Ask,
    (slices, mut indices): (Slices, std::ops::Range<u64>),
    first: &Got,
    surely: bool,
) -> Option<(u64, ForwardReason)> {
    indices.end = indices.end.min(indices.start.saturating_add(LOOKED_FOR_MAX));
    let (vault, primary) = (&worker.shared.vault, &ask.target.primary);
    let Some(generation) = vault.slices_generation(primary).await else {
        return Some((indices.start, ForwardReason::Partial));
    };
    let there = |index: u64| vault.may_have_slice(primary, slices, generation, index);
    if let Some(index) = indices.clone().find(|index| !there(*index)) {
        return Some((index, ForwardReason::Partial));
    }
    let begun = Begun { failed: first.how.failed(), ..Begun::at(worker.now_ms()) };
    let first = &first.response;
    if !surely {
        indices.end = indices.end.min(indices.start.saturating_add(LOOKED_INTO_MAX));
    }
    let is_usable = |other: &StoredResponse| {
        let stands_in = |failed| stale::may_stand_in(worker, ask, other, begun, failed);
        slice::is_usable(worker, ask, &other.policy, begun.at_ms)
            || begun.failed.is_some_and(stands_in)
    };
    let is_of_version = |other: &StoredResponse| {
        let came_s = first.policy.response_time_s();
        parts::may_combine(&first.headers, &other.headers, came_s)
    };
    let is_confirmed = !surely
        && vault
            .confirmed(primary)
            .is_some_and(|one| is_usable(&one.response) && is_of_version(&one.response));
    for index in indices {
        match vault.known_slice(primary, slices, generation, index, surely).await {
            KnownSlice::Missing => return Some((index, ForwardReason::Partial)),
            // What would follow is of the version of the first, or the answer would break off.
            KnownSlice::Known(slice)
                if !is_of_version(&slice) || (!is_confirmed && !is_usable(&slice)) =>
            {
                return Some((index, ForwardReason::Stale));
            }
            KnownSlice::Known(_) | KnownSlice::OnDisk => {}
        }
    }
    None
}
