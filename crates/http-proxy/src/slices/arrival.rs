//! A slice on its way from the origin into the store, and to those who read it meanwhile.
//!
//! Invariants: a fetched slice goes into the store even if its clients leave, the whole in place of
//! one as any other; what is the whole resource is stored as the complete response. Threads: the
//! worker's; a fill is a task of its worker.

use http::header::{ETAG, HeaderValue, IF_NONE_MATCH, LAST_MODIFIED, RANGE};
use http::{Response, StatusCode};
use hyper::body::Body as _;

use crate::collapse::Lead;
use crate::collapse::sharing::{SharedFill, SharedResponse};
use crate::collapse::unsliceable::Unsliceable;
use crate::error::FetchError;
use crate::fetch::Sent;
use crate::fetch::fill::{Fill, Storing};
use crate::request::{Ask, hooks};
use crate::rules::group::Groups;
use crate::rules::parts::{self, Slices};
use crate::rules::{NotStoredReason, validation};
use crate::slices::LOOKED_FOR_MAX;
use crate::slices::got::{Got, How};
use crate::slices::verdict::{Judged, Verdict, Version, judge};
use crate::upstream::{FetchedBody, OriginBody, Timed};
use crate::vault::entry::StoredResponse;
use crate::vault::insertion::Insertion;
use crate::vault::{FoundBody, KnownSlice};
use crate::worker::Worker;

/// Of the slices that may be stored, how many are looked up for what version is.
const LOOKED_UP_MAX: usize = 4;

/// The origin's response to a request for a slice.
pub(crate) struct SliceResponse {
    pub(crate) slices: Slices,
    pub(crate) index: u64,
    pub(crate) sent: Sent,
    pub(crate) response: Response<FetchedBody>,
}

/// Asks the origin for a slice, or, if it is one with this tag, whether it still has it.
pub(crate) async fn ask_origin(
    worker: &Worker,
    ask: &Ask,
    slices: Slices,
    index: u64,
    tag: Option<&HeaderValue>,
) -> Result<SliceResponse, FetchError> {
    let sent = Sent::now(worker, &ask.target.primary);
    let (first, last) = slices.bounds(index);
    let ranged = |body| {
        let mut request = ask.to_origin_request(&worker.shared, body);
        validation::remove_conditions(request.headers_mut());
        if let Ok(range) = HeaderValue::try_from(format!("bytes={first}-{last}")) {
            request.headers_mut().insert(RANGE, range);
        }
        // It is looked at before the range (RFC 9110 §13.2.2).
        if let Some(tag) = tag {
            request.headers_mut().insert(IF_NONE_MATCH, tag.clone());
        }
        request
    };
    let response = worker.fetcher.send(ranged(OriginBody::Empty), &ranged).await?;
    if response.status() == StatusCode::NOT_MODIFIED && tag.is_none() {
        return Err(FetchError::Unasked);
    }
    let sent = Sent { response_time_ms: worker.now_ms(), ..sent };
    Ok(SliceResponse { slices, index, sent, response })
}

/// Begins to store and read an arriving slice, or the whole in its place, if that is of the
/// `version` that an answer has begun with. Returns the response itself if it is neither, and
/// remembers if it says something about the resource. `lead_for` supplies the lead for the slice,
/// and is told whether what is stored is the whole resource.
pub(crate) async fn begin(
    worker: &Worker,
    ask: &Ask,
    asked: SliceResponse,
    version: Option<&Version>,
    lead_for: impl FnOnce(bool) -> Option<Lead>,
) -> Result<Got, SliceResponse> {
    let note = |what| {
        let unsliced = &worker.shared.collapse.unsliceable;
        unsliced.note(&ask.target.primary, what, worker.now_s());
    };
    let Judged { stored, own, groups, hint } = match judge(worker, ask, &asked, version) {
        Verdict::Slice(judged) => *judged,
        Verdict::Unsliceable(what) => {
            note(what);
            return Err(asked);
        }
        Verdict::NotAboutSlices => return Err(asked),
    };
    let is_in_place = asked.response.status() == StatusCode::OK;
    if is_in_place {
        note(Unsliceable::NoRanges);
    }
    worker.shared.vault.forget_confirmed_but(&ask.target.primary, &stored.headers);
    forget_others(worker, ask, &asked, &stored, version).await;
    let Ok(insertion) = insert(worker, ask, &asked, stored.clone(), &groups).await else {
        return Err(asked);
    };
    hooks::on_store(worker, insertion.group, hint);
    let placement = insertion.placement();
    let length_bytes = asked.response.body().size_hint().exact();
    let inflight = worker.inflight(insertion.key.clone(), length_bytes);
    let is_whole = stored.part.is_none();
    let mut lead = lead_for(is_whole);
    if let Some(lead) = lead.as_mut().filter(|_| is_whole) {
        lead.leads_also(&insertion.key);
    }
    if let Some(lead) = &lead {
        let shared = SharedResponse::of(&insertion, length_bytes, &ask.headers);
        lead.herald().filling(SharedFill { shared, body: inflight.clone() });
    }
    let version = asked.response.version();
    let timed = Timed::of_response(
        asked.response.into_body(),
        ask.body_idle(&worker.shared.config),
        version,
    );
    let storing = Storing::new(worker, ask.target.primary.clone(), insertion, lead);
    // Until its reader is there.
    let coming = is_in_place.then(|| inflight.await_reader());
    let fill = match is_in_place {
        true => Fill::for_readers(storing, timed, inflight.clone()),
        false => Fill::without_client(storing, timed, inflight.clone()),
    };
    worker.spawn(fill.run());
    let body = FoundBody::Inflight(inflight, None);
    let (how, own) = (How::Fetched, Some(own));
    Ok(Got { response: stored, body, placement, how, own, coming })
}

/// Removes what is stored of another version than what has come, which would else be served in its
/// stale windows. What an answer has begun with its reader compares itself.
async fn forget_others(
    worker: &Worker,
    ask: &Ask,
    asked: &SliceResponse,
    came: &StoredResponse,
    version: Option<&Version>,
) {
    let (vault, primary, slices) = (&worker.shared.vault, &ask.target.primary, asked.slices);
    let Some(part) = came.part else { return };
    let Some(generation) = vault.slices_generation(primary).await else { return };
    let count = match version {
        None => part.complete_bytes.div_ceil(slices.slice_bytes).min(LOOKED_FOR_MAX),
        Some(_) => 0,
    };
    let there = |index: &u64| vault.may_have_slice(primary, slices, generation, *index);
    let indices = std::iter::once(asked.index).chain(0..count).filter(there);
    for index in indices.take(LOOKED_UP_MAX) {
        let known = vault.known_slice(primary, slices, generation, index, true).await;
        if let KnownSlice::Known(stored) = known {
            if is_other_version(&stored, came) {
                vault.forget_slices(primary);
            }
            return;
        }
    }
}

/// Whether slices are certainly of two versions, rather than such as cannot be compared.
fn is_other_version(stored: &StoredResponse, came: &StoredResponse) -> bool {
    let complete_bytes = |response: &StoredResponse| response.part.map(|it| it.complete_bytes);
    let (one, other) = (&stored.headers, &came.headers);
    let differ = || [ETAG, LAST_MODIFIED].iter().any(|name| one.get(name) != other.get(name));
    complete_bytes(stored) != complete_bytes(came)
        || (!parts::may_combine(one, other, came.policy.response_time_s()) && differ())
}

async fn insert(
    worker: &Worker,
    ask: &Ask,
    asked: &SliceResponse,
    stored: StoredResponse,
    groups: &Groups,
) -> Result<Box<Insertion>, NotStoredReason> {
    let (vault, target, epoch) = (&worker.shared.vault, &ask.target, asked.sent.epoch);
    let length_bytes = asked.response.body().size_hint().exact();
    let mut insertion = match stored.part {
        Some(_) => {
            vault.begin_slice(target, epoch, asked.slices, asked.index, stored, groups).await?
        }
        None => vault.begin(target, epoch, &ask.headers, stored, length_bytes, groups).await?,
    };
    insertion.expect(length_bytes);
    Ok(insertion)
}
