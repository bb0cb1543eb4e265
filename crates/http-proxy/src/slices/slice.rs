//! One slice of a resource: from the store, from another request's fetch, or from the origin.
//!
//! Invariants: of concurrent requests that miss a slice, or find it stale, one asks for it, and all
//! read it as it arrives, as they do the whole where the origin sends that instead; what is stale
//! is served within its windows alone. Threads: the worker's.

use std::sync::Arc;

use http::StatusCode;
use hyper::body::Body as _;
use tokio::time::{Instant, timeout_at};

use crate::collapse::rounds::Rounds;
use crate::collapse::unsliceable::Unsliceable;
use crate::collapse::{Lead, Leader, News, Outcome, Role, Who};
use crate::error::FetchError;
use crate::request::Ask;
use crate::rules::parts::Slices;
use crate::rules::reuse::{self, Decision};
use crate::rules::{ForwardReason, Policy, is_passing_failure};
use crate::slices::arrival::{SliceResponse, begin};
use crate::slices::got::{Begun, Failed, Got, How, Lack};
use crate::slices::stale::{self, Said};
use crate::slices::verdict::Version;
use crate::vault::{Found, Lookup, Slice, Stretch, slice_key};
use crate::worker::Worker;

/// Gets at least this stretch of a slice: what is stored and may be served, or what the origin
/// sends, or, where it fails, what is stale, if that may stand in.
pub(crate) async fn get(
    worker: &Arc<Worker>,
    ask: &Ask,
    stretch: Stretch,
    begun: Begun<'_>,
) -> Result<Got, Lack> {
    let reason = match at_hand(worker, ask, stretch, begun).await {
        AtHand::Got(got) => return Ok(*got),
        AtHand::Stale(reason) => Some(reason),
        AtHand::Nothing => None,
    };
    if ask.wishes.only_if_cached {
        return Err(Lack::NotStored);
    }
    let lack = match brought(worker, ask, stretch, begun).await {
        Ok(got) => return Ok(got),
        Err(lack) => lack,
    };
    let Some(reason) = reason else { return Err(lack) };
    let Some((failed, followed)) = lack.failed() else { return Err(lack) };
    let standing_in = stand_in(worker, ask, stretch, begun, failed, followed).await;
    standing_in.ok_or_else(|| lack.beside_stale(reason))
}

/// At least this stretch of a slice from the store, if that may be served without asking the
/// origin: as it is, or as the origin is known to fail.
pub(crate) async fn without_asking(
    worker: &Arc<Worker>,
    ask: &Ask,
    stretch: Stretch,
    begun: Begun<'_>,
) -> Option<Got> {
    match at_hand(worker, ask, stretch, begun).await {
        AtHand::Got(got) => Some(*got),
        AtHand::Stale(_) | AtHand::Nothing => None,
    }
}

/// What there is of a slice without asking the origin.
enum AtHand {
    Got(Box<Got>),
    /// The origin has to be asked for this reason.
    Stale(ForwardReason),
    Nothing,
}

async fn at_hand(worker: &Arc<Worker>, ask: &Ask, stretch: Stretch, begun: Begun<'_>) -> AtHand {
    let (slice, reason) = match held(worker, ask, stretch, How::Stored, begun).await {
        Held::Usable(got) => return AtHand::Got(got),
        Held::Stale(slice, reason) => (slice, reason),
        Held::Nothing => return AtHand::Nothing,
    };
    if ask.wishes.only_if_cached {
        return AtHand::Stale(reason);
    }
    let known = || stale::known_failure(worker, ask).map(|error| Failed::by(&error));
    let Some(failed) = begun.failed.or_else(known) else { return AtHand::Stale(reason) };
    if !stale::may_stand_in(worker, ask, &slice.response, begun, failed) {
        return AtHand::Stale(reason);
    }
    if begun.failed.is_none() {
        stale::try_behind(worker, ask, stretch, &slice.response);
    }
    let how = How::StoodIn { reason, failed, followed: false };
    AtHand::Got(Box::new(Got::stored(*slice, how)))
}

/// What is stored, and may stand in for a failure of the origin now that it has failed this
/// request, or one that it `followed`.
async fn stand_in(
    worker: &Arc<Worker>,
    ask: &Ask,
    stretch: Stretch,
    begun: Begun<'_>,
    failed: Failed,
    followed: bool,
) -> Option<Got> {
    match held(worker, ask, stretch, How::Followed, begun).await {
        Held::Usable(got) => Some(*got),
        Held::Stale(slice, reason) => {
            let may = stale::may_stand_in(worker, ask, &slice.response, begun, failed);
            may.then(|| Got::stored(*slice, How::StoodIn { reason, failed, followed }))
        }
        Held::Nothing => None,
    }
}

/// Asks the origin for a slice, or waits for another request that does.
async fn brought(
    worker: &Arc<Worker>,
    ask: &Ask,
    stretch: Stretch,
    begun: Begun<'_>,
) -> Result<Got, Lack> {
    let collapse = &worker.shared.collapse;
    let of_slice = slice_key(&ask.target.primary, stretch.slices, stretch.index);
    let mut broke = None;
    let mut rounds = Rounds::new(ask.origin_header(&worker.shared.config));
    while rounds.is_one_left() {
        if is_unsliceable(worker, ask, begun) {
            return Err(Lack::NoSlice);
        }
        // The whole is brought once for all of them, wherever they are.
        let instead = begun.version.filter(|_| has_no_ranges(worker, ask));
        if let Some(got) = whole_at_hand(worker, ask, begun, instead).await {
            return Ok(got);
        }
        let (key, who) = match instead {
            Some(_) => (&ask.target.primary, ask.who()),
            None => (&of_slice, Who::default()),
        };
        let leader = match collapse.join(key, who).after_repeats(ask.via_repeats) {
            Role::Leader(lead) => {
                if let Some(got) = whole_at_hand(worker, ask, begun, instead).await {
                    lead.end(Outcome::Stored);
                    return Ok(got);
                }
                return fetch_as_leader(worker, ask, stretch, begun, lead).await;
            }
            Role::Follower(leader) => leader,
            Role::Alone => {
                broke = None;
                break;
            }
        };
        let followed = follow(worker, ask, stretch, &leader, begun).await;
        if let Some(failed) = followed.failed()
            && let Some(got) = stand_in(worker, ask, stretch, begun, failed, true).await
        {
            return Ok(got);
        }
        if matches!(followed, Followed::Outdated | Followed::Silent) {
            collapse.outdate(key, &leader);
        }
        rounds.end_one(matches!(followed, Followed::Silent));
        broke = match followed {
            Followed::Got(got) => return Ok(*got),
            Followed::Gone(lack) => return Err(lack),
            Followed::Again(error) => error,
            Followed::Outdated | Followed::StoodIn(_) => None,
            Followed::Silent => Some(FetchError::HeaderTimeout),
            Followed::TooSlow => {
                broke = None;
                break;
            }
        };
    }
    if let Some(error) = broke {
        return Err(Lack::of_failure(error, true));
    }
    fetch(worker, ask, (stretch.slices, stretch.index), begun.version, None, None).await
}

/// Whether slices of it are not to be asked for. Where the origin sends the whole in place of one,
/// an answer that has begun can go on with that.
fn is_unsliceable(worker: &Worker, ask: &Ask, begun: Begun<'_>) -> bool {
    let noted = &worker.shared.collapse.unsliceable;
    match noted.of(&ask.target.primary, ask.has_cookie(), worker.now_s()) {
        Some(Unsliceable::NoRanges) => begun.version.is_none(),
        noted => noted.is_some(),
    }
}

/// Whether its origin is known to send the whole in place of slices.
fn has_no_ranges(worker: &Worker, ask: &Ask) -> bool {
    let noted = &worker.shared.collapse.unsliceable;
    let noted = noted.of(&ask.target.primary, ask.has_cookie(), worker.now_s());
    noted == Some(Unsliceable::NoRanges)
}

/// The whole of this version, if one is wanted and it is stored, and may be served.
async fn whole_at_hand(
    worker: &Arc<Worker>,
    ask: &Ask,
    begun: Begun<'_>,
    version: Option<&Version>,
) -> Option<Got> {
    let (vault, version) = (&worker.shared.vault, version?);
    let looked = vault.lookup(&ask.target.primary, &ask.headers, true, &worker.counters).await;
    let Lookup::Found(found) = looked else { return None };
    let Found { response, body, placement, .. } = *found;
    let suits = response.part.is_none()
        && response.status == StatusCode::OK
        && version.is_of(&response.headers, body.length_bytes())
        && reuse::suits_credentials(response.status, &ask.headers)
        && is_usable(worker, ask, &response.policy, begun.at_ms);
    let how = How::Followed;
    suits.then_some(Got { response, body, placement, how, own: None, coming: None })
}

async fn fetch_as_leader(
    worker: &Arc<Worker>,
    ask: &Ask,
    stretch: Stretch,
    begun: Begun<'_>,
    lead: Lead,
) -> Result<Got, Lack> {
    // Another leader may have finished between this request's lookup and its lead.
    let stale = match held(worker, ask, stretch, How::Followed, begun).await {
        Held::Usable(got) => {
            lead.end(Outcome::Stored);
            return Ok(*got);
        }
        Held::Stale(slice, _) => Some(slice),
        Held::Nothing => None,
    };
    let (slice, version) = ((stretch.slices, stretch.index), begun.version);
    fetch(worker, ask, slice, version, Some(lead), stale.as_deref()).await
}

/// What the store has of a stretch of a slice.
enum Held {
    Usable(Box<Got>),
    /// The origin has to be asked for this reason before it is served.
    Stale(Box<Slice>, ForwardReason),
    Nothing,
}

async fn held(
    worker: &Arc<Worker>,
    ask: &Ask,
    stretch: Stretch,
    how: How,
    begun: Begun<'_>,
) -> Held {
    let vault = &worker.shared.vault;
    let Some(mut slice) = vault.slice(&ask.target.primary, stretch, &worker.counters).await else {
        return Held::Nothing;
    };
    let decide = |policy: &Policy| decision(worker, ask, policy, begun.at_ms);
    let mut decided = decide(&slice.response.policy);
    if !matches!(decided, Decision::Serve | Decision::ServeStale)
        && let Some(response) = stale::as_confirmed(worker, ask, &slice, begun.at_ms).await
    {
        decided = decide(&response.policy);
        slice.response = response;
    }
    match decided {
        Decision::Serve | Decision::ServeStale => {}
        Decision::Validate(reason) => return Held::Stale(Box::new(slice), reason),
        Decision::ServeAndRevalidate => {
            if !begun.suits(&slice.response) || stale::is_superseded(worker, ask, &slice.response) {
                return Held::Stale(Box::new(slice), ForwardReason::Stale);
            }
            stale::validate_behind(worker, ask, stretch, &slice.response);
        }
    }
    Held::Usable(Box::new(Got::stored(slice, how)))
}

/// At least this stretch of a slice from the store, if it may be served without validation.
async fn stored(
    worker: &Arc<Worker>,
    ask: &Ask,
    stretch: Stretch,
    how: How,
    begun: Begun<'_>,
) -> Option<Got> {
    match held(worker, ask, stretch, how, begun).await {
        Held::Usable(got) => Some(*got),
        Held::Stale(..) | Held::Nothing => None,
    }
}

/// What is done with a stored slice for an answer that began at `begun_ms`: as with a body in one
/// piece, what could be served then still can while it is sent.
fn decision(worker: &Worker, ask: &Ask, policy: &Policy, begun_ms: u64) -> Decision {
    let caching = &worker.shared.config.caching;
    let at = |now_ms| reuse::decide(&ask.wishes, policy, caching, now_ms);
    match (at(begun_ms), at(worker.now_ms())) {
        (Decision::Validate(_) | Decision::ServeAndRevalidate, Decision::Serve) => Decision::Serve,
        (Decision::Validate(_), now) => now,
        (then, _) => then,
    }
}

/// Whether a stored slice may be part of an answer that began at `begun_ms`, if perhaps while it is
/// validated.
pub(super) fn is_usable(worker: &Worker, ask: &Ask, policy: &Policy, begun_ms: u64) -> bool {
    !matches!(decision(worker, ask, policy, begun_ms), Decision::Validate(_))
}

/// The result of waiting for another request's fetch of a slice.
enum Followed {
    Got(Box<Got>),
    /// The slice is not to be had.
    Gone(Lack),
    /// With how the other failed, if its request may be why.
    Again(Option<FetchError>),
    /// A change has outdated what the other one fetches.
    Outdated,
    /// The origin answered by an error of this status, and the other one has what is stale.
    StoodIn(StatusCode),
    /// The other one has got nothing from the origin for so long that it may never.
    Silent,
    TooSlow,
}

impl Followed {
    /// How the origin has failed the other one, if it has.
    fn failed(&self) -> Option<Failed> {
        match self {
            Followed::Again(error) => error.as_ref().map(Failed::by),
            Followed::StoodIn(status) => Some(Failed::by_answer(*status)),
            Followed::Silent => Some(Failed::by(&FetchError::HeaderTimeout)),
            Followed::Got(_) | Followed::Gone(_) | Followed::Outdated | Followed::TooSlow => None,
        }
    }
}

async fn follow(
    worker: &Arc<Worker>,
    ask: &Ask,
    stretch: Stretch,
    leader: &Leader,
    begun: Begun<'_>,
) -> Followed {
    let shared = &worker.shared;
    let _waiting = shared.collapse.wait();
    let until = Instant::now() + ask.origin_header(&shared.config);
    let outcome = match timeout_at(until, leader.news()).await {
        Err(_) => return Followed::Silent,
        Ok(News::Ended(outcome)) => outcome,
        Ok(News::Filling(fill)) => {
            // Its client may leave meanwhile.
            let coming = Some(fill.body.await_reader());
            let part = fill.shared.response.part;
            let is_right = part.is_none_or(|it| stretch.slices.is_slice(stretch.index, &it));
            let (vault, caching) = (&shared.vault, &shared.config.caching);
            let found = fill.shared.stands_for(
                (&ask.headers, &ask.wishes),
                vault,
                caching,
                worker.now_ms(),
            );
            return match (found && is_right).then(|| fill.found()) {
                Some(found) => Followed::Got(Box::new(Got {
                    response: found.response,
                    body: found.body,
                    placement: found.placement,
                    how: How::Followed,
                    own: None,
                    coming,
                })),
                None if !fill.shared.is_current(vault) => Followed::Outdated,
                None => Followed::TooSlow,
            };
        }
    };
    match outcome {
        Outcome::Stored => match stored(worker, ask, stretch, How::Followed, begun).await {
            Some(got) => Followed::Got(Box::new(got)),
            None => Followed::Again(None),
        },
        Outcome::Abandoned | Outcome::Sliced => Followed::Again(None),
        Outcome::Broke(error) | Outcome::Error(error) => Followed::Again(Some(error)),
        Outcome::StoodIn(status) => Followed::StoodIn(status),
        Outcome::Failed(error) => Followed::Gone(Lack::of_failure(error, true)),
        _ => Followed::Gone(Lack::NoSlice),
    }
}

/// Fetches a slice, or has a stale one validated, for an answer that has begun with this version,
/// if it has.
pub(super) async fn fetch(
    worker: &Arc<Worker>,
    ask: &Ask,
    (slices, index): (Slices, u64),
    version: Option<&Version>,
    mut lead: Option<Lead>,
    stale: Option<&Slice>,
) -> Result<Got, Lack> {
    let asked = match stale::ask_about(worker, ask, slices, index, stale).await {
        Ok(Said::Confirmed(got)) => {
            if let Some(lead) = lead {
                lead.end(Outcome::Stored);
            }
            return Ok(*got);
        }
        Ok(Said::Else(asked)) => *asked,
        Err(error) => {
            if let Some(lead) = lead {
                lead.end(Outcome::of_failure(&error));
            }
            return Err(Lack::of_failure(error, false));
        }
    };
    let epoch = asked.sent.epoch;
    let lead_for = |is_whole: bool| {
        let lead = lead.take()?;
        if !is_whole && lead.is_for(&ask.target.primary) {
            lead.end(Outcome::Sliced);
            return None;
        }
        Some(lead)
    };
    match begin(worker, ask, asked, version, lead_for).await {
        Ok(got) => {
            if let Some(stale) = stale {
                stale::note_successor(worker, ask, &stale.response, &got.response, epoch);
            }
            Ok(got)
        }
        Err(asked) => {
            if let Some(version) = version.filter(|_| asked.response.status() == StatusCode::OK) {
                refuse_whole(worker, ask, &asked, version, lead.take());
            }
            Err(lack_of(worker, ask, &asked, lead))
        }
    }
}

/// The whole that came is not what an answer can go on with: nor could those that wait for it,
/// which would each ask for the whole, and answers to come begin with slices of an earlier version.
fn refuse_whole(
    worker: &Worker,
    ask: &Ask,
    asked: &SliceResponse,
    version: &Version,
    lead: Option<Lead>,
) {
    let length_bytes = asked.response.body().size_hint().exact();
    let length_bytes = length_bytes.unwrap_or(version.complete_bytes);
    // It may be for who asked alone.
    let is_for_all = !ask.has_credentials() && !ask.has_cookie();
    if is_for_all && !version.is_of(asked.response.headers(), length_bytes) {
        worker.shared.vault.forget_slices(&ask.target.primary);
    }
    if let Some(lead) = lead {
        lead.end(Outcome::NotThisTime);
    }
}

/// Why what came is no slice.
fn lack_of(worker: &Worker, ask: &Ask, asked: &SliceResponse, lead: Option<Lead>) -> Lack {
    let (primary, status) = (&ask.target.primary, asked.response.status());
    if let Some(lead) = lead
        && let Some(error) = Outcome::of_error(status, asked.response.headers())
    {
        lead.end(error);
    }
    if is_passing_failure(status) {
        return Lack::Refused(status);
    }
    let noted = worker.shared.collapse.unsliceable.of(primary, ask.has_cookie(), worker.now_s());
    match status == StatusCode::PARTIAL_CONTENT && noted.is_none() {
        true => Lack::NotStored,
        false => Lack::NoSlice,
    }
}
