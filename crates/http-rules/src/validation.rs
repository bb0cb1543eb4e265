//! Validates stored responses with the origin, and applies its answers (RFC 9111 §3.2, §4.3).
//!
//! Invariants: only validators of stored responses are sent; a 304 never changes fields that
//! describe the stored bytes, and updates only responses that its validators identify; a HEAD
//! updates only a response that it agrees with, and says so.

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, COOKIE, ETAG,
    HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, SET_COOKIE, VARY,
};
use http::{HeaderMap, StatusCode};

use crate::cache_control::ResponseDirectives;
use crate::config::CachingConfig;
use crate::freshness::Lifetime;
use crate::preconditions::{entity_tag, is_strong, strongly, weakly};
use crate::{list_members, storing};

/// Most entity tags sent in one request on behalf of stored variants.
pub const TAGS_SENT_MAX: usize = 16;

/// Replaces the client's conditions by those that validate `stored` (§4.3.1). False: the stored
/// response has no validator, and the request is unconditional.
pub fn make_conditional(request: &mut HeaderMap, stored: &HeaderMap) -> bool {
    remove_conditions(request);
    let pairs = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];
    for (validator, condition) in pairs {
        if let Some(value) = stored.get(&validator).filter(|value| !value.is_empty()) {
            request.insert(condition, value.clone());
        }
    }
    request.contains_key(IF_NONE_MATCH) || request.contains_key(IF_MODIFIED_SINCE)
}

/// Asks about several stored variants at once by their entity tags (§4.3.1). False: none has one.
pub fn make_conditional_on_any<'a>(
    request: &mut HeaderMap,
    variants: impl Iterator<Item = &'a HeaderMap>,
) -> bool {
    remove_conditions(request);
    // Variants may well have the same representation.
    let mut tags: Vec<&[u8]> = Vec::new();
    for tag in variants.filter_map(entity_tag) {
        if tags.len() < TAGS_SENT_MAX && !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    match HeaderValue::try_from(tags.join(&b", "[..])) {
        Ok(value) if !value.is_empty() => {
            request.insert(IF_NONE_MATCH, value);
            true
        }
        _ => false,
    }
}

/// Whether a stored variant may be validated for a request that it was not stored for. Only by a
/// strong tag, which identifies exactly one representation; and only in a coding that the client
/// accepts, since some origins give all codings the same tag. A variant without coding does not
/// qualify if the client accepts codings and the resource has them: servers that compress on the
/// fly compare with the tag of the uncompressed form and answer 304, and the client would get the
/// uncompressed body, perhaps ten times as long.
pub fn may_stand_for_another(request: &HeaderMap, variant: &HeaderMap) -> bool {
    let strong = entity_tag(variant).is_some_and(is_strong);
    let accepted = |coding: &[u8]| {
        list_members(request, &ACCEPT_ENCODING).any(|member| {
            // With a weight it may be a refusal, which is not analysed here.
            member.eq_ignore_ascii_case(coding)
        })
    };
    let coded = list_members(variant, &CONTENT_ENCODING).next().is_some();
    let could_be_coded = || {
        let varies =
            list_members(variant, &VARY).any(|name| name.eq_ignore_ascii_case(b"accept-encoding"));
        let takes_more = list_members(request, &ACCEPT_ENCODING)
            .any(|member| !member.eq_ignore_ascii_case(b"identity"));
        varies && takes_more
    };
    strong && list_members(variant, &CONTENT_ENCODING).all(accepted) && (coded || !could_be_coded())
}

/// Whether a 304 to this request shows that what one user's cookie brought is everybody's: who
/// names no user is told that the very same bytes are the answer.
pub fn shows_for_all(request: &HeaderMap, stored: &HeaderMap, news: &HeaderMap) -> bool {
    let names_user = request.contains_key(COOKIE) || request.contains_key(AUTHORIZATION);
    // By the 304's own tag: which one was asked about says nothing, since that is compared weakly.
    let tags = (entity_tag(stored), entity_tag(news));
    !names_user && matches!(tags, (Some(stored), Some(named)) if strongly(stored, named))
}

/// Removes all conditions and ranges, so that the origin answers with a complete, storable
/// response. The client's own conditions are evaluated on that afterwards.
pub fn remove_conditions(request: &mut HeaderMap) {
    let conditions =
        [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_MATCH, IF_UNMODIFIED_SINCE, IF_RANGE, RANGE];
    // Most requests have none.
    if request.keys().any(|name| conditions.contains(name)) {
        conditions.iter().for_each(|name| drop(request.remove(name)));
    }
}

/// Selects the stored responses that a 304 updates (§4.3.4), among those that could be chosen for
/// the request. `candidates` are their fields, newest first; returns indices.
pub fn updated_by_304(response: &HeaderMap, candidates: &[&HeaderMap]) -> Vec<usize> {
    let matching = |name: &HeaderName, same: fn(&[u8], &[u8]) -> bool| -> Vec<usize> {
        let Some(new) = response.get(name) else { return Vec::new() };
        let has = |headers: &&HeaderMap| {
            headers.get(name).is_some_and(|old| same(old.as_bytes(), new.as_bytes()))
        };
        (0..candidates.len()).filter(|index| has(&candidates[*index])).collect()
    };
    match entity_tag(response) {
        // A strong validator identifies all responses that have it.
        Some(tag) if is_strong(tag) => {
            let strong = matching(&ETAG, |old, new| old == new);
            if strong.is_empty() && candidates.len() == 1 {
                // Some compressing servers weaken the tag of a response on its way here.
                return matching(&ETAG, weakly);
            }
            strong
        }
        Some(_) => matching(&ETAG, weakly).into_iter().take(1).collect(),
        None if response.contains_key(LAST_MODIFIED) => {
            matching(&LAST_MODIFIED, |old, new| old == new).into_iter().take(1).collect()
        }
        // Without a validator the 304 can only mean a sole candidate.
        None if candidates.len() == 1 => vec![0],
        None => Vec::new(),
    }
}

/// Fields that describe the stored bytes and so stay unchanged: `Content-Length` by name, the
/// others as fields that the stored response depends upon (§3.2). After a weak comparison the
/// origin's bytes, and their digests (RFC 9530, RFC 3230), may differ from those stored.
const UNCHANGED: [HeaderName; 7] = [
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    CONTENT_RANGE,
    HeaderName::from_static("content-md5"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
];

/// Merges the fields of a newer response into the stored ones (§3.2).
pub fn merge(
    stored: &HeaderMap,
    response: &HeaderMap,
    caching: &CachingConfig,
    response_time_s: u64,
) -> HeaderMap {
    let said = ResponseDirectives::of(response, caching);
    let news = storing::stored_headers(response, &said, caching, response_time_s);
    let mut merged = stored.clone();
    let stays = |name: &HeaderName| {
        UNCHANGED.contains(name) || (*name == ETAG && strengthens(stored, response))
    };
    for name in news.keys().filter(|name| !stays(name)) {
        merged.remove(name);
        for value in news.get_all(name) {
            merged.append(name.clone(), value.clone());
        }
    }
    // The merged Cache-Control may name further fields that must not be stored.
    let says = ResponseDirectives::of(&merged, caching);
    if news.contains_key(SET_COOKIE) {
        // A cookie of a 304 about a heuristically fresh response is for that 304's client only.
        let lifetime = Lifetime::of(StatusCode::OK, &merged, &says, caching, response_time_s);
        if !storing::lets_share_cookies(lifetime, &says) {
            merged.remove(SET_COOKIE);
        }
    }
    storing::stored_headers(&merged, &says, caching, response_time_s)
}

/// Whether a 304 says nothing but what is stored, so that merging it would change no field. An
/// `Age` is news, and so is a cookie, or that there is none any more.
pub fn repeats(stored: &HeaderMap, response: &HeaderMap) -> bool {
    let same = |name| response.get_all(name).iter().eq(stored.get_all(name));
    let left_out = |name| storing::is_hop_by_hop(name) || UNCHANGED.contains(name);
    let cookies = stored.contains_key(SET_COOKIE) || response.contains_key(SET_COOKIE);
    !cookies && response.keys().all(|name| left_out(name) || same(name))
}

/// Whether a 304 would make a weak tag strong. Servers that compress on the fly weaken the tag of
/// compressed responses, but not that of a 304. Taking the latter would give compressed and plain
/// bytes the same strong tag, and a client could combine ranges of both.
fn strengthens(stored: &HeaderMap, response: &HeaderMap) -> bool {
    match (stored.get(ETAG), response.get(ETAG)) {
        (Some(old), Some(new)) => {
            let (old, new) = (old.as_bytes(), new.as_bytes());
            !is_strong(old) && is_strong(new) && weakly(old, new)
        }
        _ => false,
    }
}

/// The effect of a HEAD's response on a stored GET response (§4.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadEffect {
    /// Nothing: the answer was not 200, or one for its sender with nothing to compare.
    None,
    /// Unchanged: merge the fields.
    Update,
    /// Changed: the stored response is stale from now on.
    Stale,
}

/// A stored GET response as it is compared with the response to a HEAD.
#[derive(Debug, Clone, Copy)]
pub struct Compared<'a> {
    /// Status code; 200 where a part is stored.
    pub status: StatusCode,
    /// Its fields.
    pub headers: &'a HeaderMap,
    /// Length of the whole body; `None` if it is unknown.
    pub length_bytes: Option<u64>,
    /// It may be for one user ([`crate::Policy::is_personal`]).
    pub is_personal: bool,
    /// The HEAD asked whether it has changed, by [`make_conditional`] or its like.
    pub was_asked_about: bool,
    /// The response to the HEAD may be for who sent it, so that it agrees only by what it says.
    pub is_for_sender: bool,
}

/// Compares a HEAD's response with the stored GET response. A validator that is not in it agrees
/// with nothing where it was asked about: the origin had a 304 for that. Where nothing was asked,
/// what it does not say contradicts nothing: validators and length count where they were received.
pub fn head_effect(stored: Compared<'_>, status: StatusCode, response: &HeaderMap) -> HeadEffect {
    if status != StatusCode::OK {
        return HeadEffect::None;
    }
    if stored.status != StatusCode::OK {
        return HeadEffect::Stale;
    }
    // True: it is the same; false: another one, or one that is not stored.
    let same = |name: &HeaderName| {
        response.get(name).map(|new| stored.headers.get(name).is_some_and(|old| old == new))
    };
    let length = response.get(CONTENT_LENGTH).map(|length| length.as_bytes().trim_ascii());
    let same_length = length.map(|text| {
        let length_bytes = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        length_bytes.is_some() && length_bytes == stored.length_bytes
    });
    let compared = [same(&ETAG), same(&LAST_MODIFIED), same_length];
    if compared.contains(&Some(false)) {
        return HeadEffect::Stale;
    }
    let by_tag = stored.is_personal || stored.headers.contains_key(ETAG);
    let identifies = same(if by_tag { &ETAG } else { &LAST_MODIFIED }) == Some(true);
    if identifies {
        HeadEffect::Update
    } else if stored.is_personal || stored.was_asked_about {
        HeadEffect::Stale
    } else if compared.contains(&Some(true)) || !stored.is_for_sender {
        HeadEffect::Update
    } else {
        HeadEffect::None
    }
}

/// Removes fields that describe a body, for a 304 to the client (RFC 9110 §15.4.5).
pub fn headers_for_304(headers: &mut HeaderMap) {
    use http::header::{CONTENT_LANGUAGE, CONTENT_TYPE};
    let describes_body =
        [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_TYPE, CONTENT_RANGE, CONTENT_LANGUAGE];
    for name in describes_body {
        headers.remove(name);
    }
}

#[cfg(test)]
#[path = "validation_tests.rs"]
mod tests;
