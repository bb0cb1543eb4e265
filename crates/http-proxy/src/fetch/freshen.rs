//! Applies a validation to the one response that was validated: merges a 304's fields into it, or
//! compares it with the response to a HEAD.
//!
//! Invariants: metadata changes only beside the body that it was made from, and only if the
//! resource was not invalidated since the request; a cookie is set only for the client whose
//! exchange set it, and for those that get the stored response to that exchange. Threads: the
//! worker's.

use bytes::Bytes;
use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use crate::answer::{self, Answer, reused};
use crate::collapse::Who;
use crate::fetch::{Audience, Fetch};
use crate::request::hooks;
use crate::rules::group::Groups;
use crate::rules::storing::{Exchange, varies_by_user};
use crate::rules::validation::{self, Compared, HeadEffect};
use crate::rules::{NotStoredReason, ResponseDirectives, vary};
use crate::ruleset::ResponseEffects;
use crate::upstream::FetchedBody;
use crate::vault::entry::StoredResponse;
use crate::vault::{Found, Older};

/// Replaces the cookies of a response, which may include some that must not be stored.
pub(super) fn with_cookies(mut answer: Answer, cookies: Vec<HeaderValue>) -> Answer {
    if !cookies.is_empty() {
        replace_cookies(answer.0.headers_mut(), cookies);
    }
    answer
}

fn replace_cookies(headers: &mut HeaderMap, cookies: Vec<HeaderValue>) {
    headers.remove(SET_COOKIE);
    for cookie in cookies {
        headers.append(SET_COOKIE, cookie);
    }
}

/// The cookies that a 304 sets, as edited by the rules. They are for the client of this exchange,
/// even where they are not stored.
pub(super) fn cookies_of(effects: &ResponseEffects<'_>, news: &HeaderMap) -> Vec<HeaderValue> {
    if !news.contains_key(SET_COOKIE) {
        return Vec::new();
    }
    let mut edited = news.clone();
    effects.edit(&mut edited);
    edited.get_all(SET_COOKIE).iter().cloned().collect()
}

/// Within this time of the last validation, one that says the same is not written: dates have whole
/// seconds, so that nothing would become newer by more than that.
const REPEATED_MS: u64 = 1000;

/// A stored response as a validation has made it, and what the rules say of it.
pub(crate) struct Freshened<'r> {
    pub(crate) response: StoredResponse,
    pub(super) effects: ResponseEffects<'r>,
}

impl Freshened<'_> {
    /// Its fields for the client of the exchange, if the 304 sets cookies.
    pub(crate) fn with_own_cookies(&self, news: &HeaderMap) -> Option<HeaderMap> {
        let cookies = cookies_of(&self.effects, news);
        let mut headers = (!cookies.is_empty()).then(|| self.response.headers.clone())?;
        replace_cookies(&mut headers, cookies);
        Some(headers)
    }
}

/// A stored response whose metadata are to change.
pub(crate) struct Stored<'a> {
    pub(crate) key: &'a [u8],
    /// Its metadata as read.
    pub(crate) blob: &'a Bytes,
    pub(crate) response: &'a StoredResponse,
    /// Length of the whole body, if known.
    pub(crate) length_bytes: Option<u64>,
}

impl<'a> Fetch<'a> {
    /// Whether a 304 says that what one user's cookie brought is everybody's.
    fn shows_for_all(&self, stored: &StoredResponse, news: &HeaderMap) -> bool {
        stored.policy.is_personal
            && validation::shows_for_all(&self.ask.headers, &stored.headers, news)
    }

    /// Whether a 304 changes nothing about a response that every request asks about, of which there
    /// may be many a second. Never where this request alone may keep it from being stored, nor
    /// after a purge, or a HEAD: what these made stale becomes fresh by being stored anew.
    fn is_repeated(&self, found: &Found, news: &HeaderMap) -> bool {
        let (stored, key) = (&found.response, found.key(&self.ask.target.primary));
        let since_ms = self.sent.response_time_ms.checked_sub(stored.policy.response_time_ms);
        stored.policy.is_always_validated()
            && since_ms.is_some_and(|since_ms| since_ms < REPEATED_MS)
            && !self.ask.wishes.no_store
            && !self.ask.has_credentials()
            && !self.shows_for_all(stored, news)
            && validation::repeats(&stored.headers, news)
            && self.worker.shared.vault.is_untouched(key, &found.placement)
            && (stored.policy.no_cache
                || stored.policy.is_personal
                || !self.would_last(found, news))
    }

    /// Whether the response would be fresh for a time if it was stored anew: by its own words, to
    /// which a HEAD has put an end.
    fn would_last(&self, found: &Found, news: &HeaderMap) -> bool {
        !self.merged(&self.stored_of(found), news).response.policy.is_always_validated()
    }

    /// A stored response with newer fields. Stored cookies are removed: they were for the earlier
    /// client.
    pub(crate) fn merged(&self, stored: &Stored<'_>, news: &HeaderMap) -> Freshened<'a> {
        self.merged_as(stored, news, stored.response.policy.is_personal)
    }

    /// The same, where it is known whether what is stored may be for one user.
    fn merged_as(&self, stored: &Stored<'_>, news: &HeaderMap, is_for_one: bool) -> Freshened<'a> {
        let (length_bytes, stored) = (stored.length_bytes, stored.response);
        let caching = self.caching();
        let mut headers = validation::merge(&stored.headers, news, caching, self.response_time_s());
        if !news.contains_key(SET_COOKIE) {
            headers.remove(SET_COOKIE);
        }
        let effects = hooks::on_response(
            &self.worker.shared,
            self.ask,
            stored.status,
            &mut headers,
            length_bytes,
        );
        let directives = ResponseDirectives::of(&headers, caching);
        let mut arrived = self.arrived(&directives, stored.status, &headers, news);
        // What the body was fetched with counts: a 304 says that it is for this client, too. A
        // cookie that came with what is never served without validation is as much of a sign.
        let is_never_fresh = stored.policy.lifetime_ms <= stored.policy.initial_age_ms;
        arrived.with_cookie = is_for_one
            || (is_never_fresh
                && stored.policy.never_stale
                && stored.headers.contains_key(SET_COOKIE));
        let mut policy = effects.policy(arrived, caching);
        // A 304 without the cookie does not make a page for one user one for all, unless it gives
        // it a lifetime. A rule's lifetime of nothing begins with the age on arrival.
        let was_fresh = policy.lifetime_ms > policy.initial_age_ms;
        policy.never_stale |= stored.policy.never_stale && !was_fresh;
        Freshened { response: StoredResponse { policy, headers, ..stored.clone() }, effects }
    }

    /// After a 304 that was asked for: the stored body with the merged headers, or with those that
    /// it has.
    pub(super) async fn validated(mut self, response: &Response<FetchedBody>) -> Answer {
        let (worker, ask, news) = (self.worker, self.ask, response.headers());
        let Some(mut found) = self.found.take() else { return self.adopt(response).await };
        if validation::updated_by_304(news, &[&found.response.headers]).is_empty() {
            // It is about another one.
            self.found = Some(found);
            return self.fetch_again().await;
        }
        if !worker.shared.vault.still_stands(&ask.target.primary, &found, self.sent.epoch) {
            // What is there under its key by now is another's, and newer.
            return self.fetch_again().await;
        }
        if self.audience == Audience::Client && !answer::begin(worker, ask, &mut found).await {
            self.found = Some(found);
            return self.fetch_anew().await;
        }
        worker.counters.revalidated.one();
        self.status.forward_status = Some(StatusCode::NOT_MODIFIED);
        self.status.validated = true;
        if self.is_repeated(&found, news) {
            self.settle(Ok(()));
            return reused(worker, ask, found, self.status);
        }
        let stored = self.stored_of(&found);
        let was_for_one = stored.response.policy.is_personal;
        let is_for_one = was_for_one && !self.shows_for_all(stored.response, news);
        let freshened = self.merged_as(&stored, news, is_for_one);
        let kept = self.keep_freshened(stored, &freshened).await;
        if was_for_one && !freshened.response.policy.is_personal && kept.is_ok() {
            let with_cookie = Who { with_cookie: true, ..Who::default() };
            worker.shared.collapse.remember_shared(&self.key, with_cookie);
        }
        self.settle(kept);
        let cookies = cookies_of(&freshened.effects, news);
        self.note_age(&freshened.response, news, &freshened.effects);
        found.response = freshened.response;
        with_cookies(reused(worker, ask, found, self.status), cookies)
    }

    pub(super) fn stored_of<'f>(&'f self, found: &'f Found) -> Stored<'f> {
        let key = found.key(&self.ask.target.primary);
        let (blob, response) = (&found.blob, &found.response);
        Stored { key, blob, response, length_bytes: found.complete_bytes() }
    }

    /// Updates what is stored, provided that it may still be stored with its new fields, and where
    /// it is; otherwise it is forgotten, unless it is fresh and the 304 may be for who sent this
    /// request.
    pub(crate) async fn keep_freshened(
        &self,
        stored: Stored<'_>,
        freshened: &Freshened<'_>,
    ) -> Result<(), NotStoredReason> {
        let Freshened { response: merged, effects } = freshened;
        let worker = self.worker;
        let vault = &worker.shared.vault;
        let caching = self.caching();
        let exchange = Exchange {
            // A HEAD's 304 freshens the stored GET response (RFC 9111 §4.3.5).
            method: &Method::GET,
            request: &self.ask.headers,
            wishes: &self.ask.wishes,
            // A stored part stays a part.
            status: if merged.part.is_some() { StatusCode::OK } else { merged.status },
            response: &merged.headers,
            directives: &ResponseDirectives::of(&merged.headers, caching),
            response_time_s: self.response_time_s(),
            // What brought it was judged then, and a 304 takes no entity tag away.
            with_cookie: false,
            selective: false,
        };
        let is_fresh = stored.response.policy.staleness_ms(worker.now_ms()).is_none();
        effects.admit(exchange, caching).inspect_err(|reason| {
            // A refusal caused by this request alone does not affect the stored response.
            let keeps = reason.is_of_request() || is_fresh && self.may_be_for_sender(*reason);
            if !keeps {
                vault.forget(stored.key);
            }
        })?;
        let (varies, varied) = (vary::of(&merged.headers), vary::of(&stored.response.headers));
        if varies != varied {
            let beyond = varies.beyond(&varied);
            let by_sender = beyond.and_then(|by| varies_by_user(&by, &self.ask.headers));
            if let Some(reason) = by_sender.filter(|_| is_fresh) {
                return Err(reason);
            }
            // It is not under the key where requests that it varies on would look.
            vault.forget(stored.key);
            return Err(NotStoredReason::Invalidated);
        }
        let regrouped = self.regrouped(stored.response, merged).await?;
        let updated = regrouped.as_ref().unwrap_or(merged);
        let older = match &regrouped {
            None => vault.older(stored.response, merged),
            // It would not go with the groups that it is in now.
            Some(_) => Older::IsWrong,
        };
        let primary = &self.ask.target.primary;
        vault.update(primary, stored.key, stored.blob, updated, older, self.sent.epoch).await
    }

    /// The updated response as a member of the groups that it names now, if these have changed: it
    /// stays where it lies, but goes when one of them is invalidated (RFC 9875 §2).
    async fn regrouped(
        &self,
        stored: &StoredResponse,
        merged: &StoredResponse,
    ) -> Result<Option<StoredResponse>, NotStoredReason> {
        let host = &self.ask.target.host;
        let named = Groups::named(host, &merged.headers);
        if named == Groups::named(host, &stored.headers) {
            return Ok(None);
        }
        let names = named.map(|groups| [vec![groups.home], groups.others].concat());
        let groups = self.worker.shared.vault.join_groups(&names.unwrap_or_default()).await?;
        Ok(Some(StoredResponse { groups, ..merged.clone() }))
    }

    /// Compares a HEAD's response with the stored GET response (RFC 9111 §4.3.5); `was_asked_about`
    /// if the HEAD had conditions of ours.
    pub(crate) async fn learn_from_head(
        &mut self,
        response: &Response<FetchedBody>,
        was_asked_about: bool,
    ) {
        let Some(found) = &self.found else { return };
        let stored = &found.response;
        let compared = Compared {
            status: if stored.part.is_some() { StatusCode::OK } else { stored.status },
            headers: &stored.headers,
            length_bytes: found.complete_bytes(),
            is_personal: stored.policy.is_personal,
            was_asked_about,
            is_for_sender: self.is_for_sender(response),
        };
        let primary = &self.ask.target.primary;
        let updated = match validation::head_effect(compared, response.status(), response.headers())
        {
            HeadEffect::None => return,
            HeadEffect::Update => {
                let freshened = self.merged(&self.stored_of(found), response.headers());
                let kept = self.keep_freshened(self.stored_of(found), &freshened).await;
                self.status.stored = kept.is_ok();
                return;
            }
            HeadEffect::Stale if compared.is_for_sender && self.found_for_all() => return,
            HeadEffect::Stale => {
                StoredResponse { policy: stored.policy.made_stale(), ..stored.clone() }
            }
        };
        let vault = &self.worker.shared.vault;
        // A concurrent change is more recent than this.
        let (key, older) = (found.key(primary), Older::IsWrong);
        let _ = vault.update(primary, key, &found.blob, &updated, older, self.sent.epoch).await;
    }

    /// Whether a GET's response with these fields would be for who sent this request, by its
    /// credentials or its cookie, so that it says nothing of what others get.
    fn is_for_sender(&self, response: &Response<FetchedBody>) -> bool {
        let sender = self.ask;
        if !sender.has_cookie() && !sender.has_credentials() && !sender.wishes.no_store {
            return false;
        }
        let (ask, status, caching) = (self.ask, response.status(), self.caching());
        let mut headers = response.headers().clone();
        let length_bytes = hooks::announced_length(&headers);
        let shared = &self.worker.shared;
        let effects = hooks::on_response(shared, ask, status, &mut headers, length_bytes);
        let directives = ResponseDirectives::of(&headers, caching);
        let exchange = Exchange {
            method: &Method::GET,
            request: &ask.headers,
            wishes: &ask.wishes,
            status,
            response: &headers,
            directives: &directives,
            response_time_s: self.response_time_s(),
            with_cookie: ask.has_cookie(),
            selective: false,
        };
        let arrived = self.arrived(&directives, status, &headers, response.headers());
        effects.admit(exchange, caching).is_err_and(|reason| self.may_be_for_sender(reason))
            || effects.policy(arrived, caching).is_personal
    }
}
