//! `explain` and `top`: the state of one URL in the cache, and the cache's busiest URLs and hosts.
//!
//! Reads metadata and counters only, and changes nothing in the cache. Threads: the admin
//! listener's.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::DATE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use crate::handler::purge::{self, PurgeFailure};
use crate::io::locks::lock;
use crate::metrics::heavy_hitters::{Row, merged};
use crate::metrics::histogram::Snapshot;
use crate::metrics::not_stored::NotStored;
use crate::metrics::{self, Counters};
use crate::purge::marks::{Cover, Marks, Standing, Subject};
use crate::purge::{url_hash, url_of_key};
use crate::request::hooks;
use crate::rules::freshness::{Lifetime, LifetimeSource};
use crate::rules::key::{KeyRules, normal_host};
use crate::rules::parts::Slices;
use crate::rules::{ResponseDirectives, dates};
use crate::ruleset::{self, Answering, RequestView, Told};
use crate::slices::{LOOKED_FOR_MAX, SLICE_BYTES_MAX};
use crate::vault::entry::{Entry, StoredResponse};
use crate::vault::{self, Late, Placement};
use crate::worker::Shared;

/// Rows of each kind in `top`.
const ROWS_MAX: usize = 50;

/// A stored object and its key.
struct StoredObject {
    key: Vec<u8>,
    entry: Entry,
    placement: Placement,
    length_bytes: u64,
    /// Whether none of its groups was invalidated.
    groups_stand: bool,
}

/// Explains a URL. The order is
/// `{"url": ..., "headers": ["Name: value", ...], "client": "10.0.0.1"}`, the last two not needed.
pub(crate) async fn explain(
    shared: &Arc<Shared>,
    counters: &[Arc<Counters>],
    order: &[u8],
) -> Result<Value, PurgeFailure> {
    let order = read_order(shared, order)?;
    if order.scheme == "https" && shared.forward.is_some() {
        let text = "https goes through a forward proxy in tunnels: nothing of it is ever stored";
        return Err(PurgeFailure::BadOrder(text.to_owned()));
    }
    let effects = shared.config.ruleset.on_request_named(&order.as_request());
    let mut key = order.url.clone();
    let mut headers = order.headers.clone();
    let trusts = shared.config.forwarded.trust_client;
    hooks::edit_request(&effects, &mut headers, trusts, &order.told());
    effects.extend_key(&headers, &mut key);
    let asked_for = effects.prefix.and_then(|prefix| prefix.to_origin(&order.path_and_query));
    let responds = effects.answering.map(|answering| answer_of_rule(shared, answering, &order));
    let mut stored = Vec::new();
    let mut vary = Value::Null;
    if let Some(lying) = look(shared, &key).await? {
        if let Entry::Marker(marker) = &lying.entry {
            let keys = shared.vault.variants_of(&key).await;
            vary = varies_by(&marker.names, &shared.config.caching.key, keys.len());
            for variant in keys {
                stored.extend(look(shared, &variant).await?);
            }
        } else {
            stored.push(lying);
        }
    }
    let slices = slices_of(shared, &key, &mut stored).await?;
    let ledger = shared.vault.ledger();
    let stored: Vec<Value> =
        stored.iter().map(|one| ledger.with_marks(|m| told(shared, one, &order, m))).collect();
    Ok(json!({
        "url": String::from_utf8_lossy(&order.url),
        "key": shown(&key),
        "passes": effects.pass,
        "responds": responds,
        "origin_path": asked_for,
        "rules": effects.names().collect::<Vec<_>>(),
        "vary": vary,
        "stored": stored,
        "slices": slices,
        "not_stored": lately_not_stored(counters, &order.url),
        "purges": purges_of(shared, &order.url),
        "purges_known": ledger.is_loaded(),
    }))
}

/// What a rule answers by itself.
fn answer_of_rule(shared: &Shared, answering: Answering, order: &Order) -> Value {
    let respond = shared.config.ruleset.answer(answering);
    let location = respond.location.as_ref();
    let location = location.and_then(|to| to.of(&order.host, &order.path_and_query));
    json!({
        "status": respond.status.map(|status| status.as_u16()),
        "location": location.map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned()),
    })
}

/// What selects among the variants: `Vary`, and what the settings put into every key.
fn varies_by(vary: &[HeaderName], rules: &KeyRules, variants: usize) -> Value {
    let configured = rules.headers.iter().filter(|name| !vary.contains(name));
    let headers: Vec<&str> = vary.iter().chain(configured).map(HeaderName::as_str).collect();
    json!({ "headers": headers, "cookies": rules.cookies, "variants": variants })
}

/// The slices of a resource, of which the first that is there is added to what is `stored`: all of
/// them are of one version.
async fn slices_of(
    shared: &Shared,
    key: &[u8],
    stored: &mut Vec<StoredObject>,
) -> Result<Value, Late> {
    let slice_bytes = shared.config.caching.slice_bytes.min(SLICE_BYTES_MAX);
    if slice_bytes == 0 {
        return Ok(Value::Null);
    }
    let keys = shared.vault.keys_of_slices(key, Slices { slice_bytes }, LOOKED_FOR_MAX).await;
    for key in &keys {
        if let Some(lying) = look(shared, key).await? {
            stored.push(lying);
            return Ok(json!({ "slice_bytes": slice_bytes, "stored": keys.len() }));
        }
    }
    Ok(Value::Null)
}

/// What is to be explained: a GET of a client.
struct Order {
    /// The URL in the key.
    url: Vec<u8>,
    scheme: &'static str,
    host: String,
    path_and_query: String,
    headers: HeaderMap,
    /// As whom rules take the client; without one only terms with `!` are met of those on clients.
    client: Option<IpAddr>,
}

impl Order {
    /// What rules look at: what the client asks for, of which the key may have less.
    fn as_request(&self) -> RequestView<'_> {
        RequestView {
            host: &self.host,
            scheme: self.scheme,
            path_and_query: &self.path_and_query,
            method: &Method::GET,
            headers: &self.headers,
            client: self.client,
            met: None,
        }
    }

    /// What rules fill into fields; ids are each request's own.
    fn told(&self) -> Told<'_> {
        Told {
            client: self.client,
            host: &self.host,
            scheme: self.scheme,
            path_and_query: &self.path_and_query,
            request_id: None,
        }
    }
}

fn read_order(shared: &Shared, order: &[u8]) -> Result<Order, PurgeFailure> {
    let Written { url, headers, client } = read_written(order)?;
    let asked = purge::asked_url(shared, &url)?;
    Ok(Order {
        url: purge::key_of_url(shared, &url)?,
        scheme: asked.scheme,
        host: normal_host(asked.host, asked.scheme),
        path_and_query: asked.path_and_query,
        headers,
        client,
    })
}

/// An order as it was written.
pub(crate) struct Written {
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    pub(crate) client: Option<IpAddr>,
}

/// Parses an order: an object with `url`, and perhaps `headers` and `client`.
pub(crate) fn read_written(order: &[u8]) -> Result<Written, PurgeFailure> {
    let bad = |text: &str| PurgeFailure::BadOrder(text.to_owned());
    let order: Value =
        serde_json::from_slice(order).map_err(|_| bad("an object with `url` is expected"))?;
    let url = order["url"].as_str().ok_or_else(|| bad("`url` is missing"))?;
    let mut headers = HeaderMap::new();
    for line in order["headers"].as_array().into_iter().flatten() {
        let pair = line.as_str().and_then(|line| line.split_once(':'));
        let (name, value) = pair.ok_or_else(|| bad("`headers` is a list of \"Name: value\""))?;
        let name: HeaderName = name.trim().parse().map_err(|_| bad("a header's name is wrong"))?;
        let value = HeaderValue::from_str(value.trim());
        headers.append(name, value.map_err(|_| bad("a header's value is wrong"))?);
    }
    let client = match &order["client"] {
        Value::Null => None,
        client => {
            let client = client.as_str().and_then(|text| text.parse::<IpAddr>().ok());
            Some(client.ok_or_else(|| bad("`client` is an address"))?.to_canonical())
        }
    };
    Ok(Written { url: url.to_owned(), headers, client })
}

async fn look(shared: &Shared, key: &[u8]) -> Result<Option<StoredObject>, Late> {
    let Some(info) = shared.vault.lying(key).await? else { return Ok(None) };
    let blob = Bytes::copy_from_slice(&info.metadata);
    let Some((entry, stamp)) = vault::decode(&blob) else { return Ok(None) };
    let placement = Placement { group: info.group, in_memory: info.resident, stamp };
    let groups_stand = match &entry {
        Entry::Response(response) => shared.vault.all_groups_stand(&response.groups).await,
        Entry::Marker(_) => true,
    };
    let (key, length_bytes) = (key.to_vec(), info.length_bytes);
    Ok(Some(StoredObject { key, entry, placement, length_bytes, groups_stand }))
}

/// Describes one stored response in full.
fn told(shared: &Shared, one: &StoredObject, order: &Order, marks: &Marks) -> Value {
    let Entry::Response(response) = &one.entry else { return Value::Null };
    let url = url_of_key(&one.key);
    let (stamp, group) = (&one.placement.stamp, one.placement.group);
    let subject = Subject { stamp, url, url_hash: url_hash(url), group: group.get() };
    let mut purges = Vec::new();
    marks.covering(&subject, |cover, mark| {
        purges.push(json!({
            "by": cover_name(cover),
            "hard_generation": mark.hard,
            "soft_generation": mark.soft,
            "applies": mark.hard.max(mark.soft) > stamp.moment.generation,
        }));
    });
    let standing = match marks.judge(&subject) {
        Standing::Untouched | Standing::Stale { .. } if !one.groups_stand => {
            "gone with one of its groups"
        }
        Standing::Untouched => "untouched",
        Standing::Stale { .. } => "stale by a soft purge",
        Standing::Gone => "gone by a purge",
    };
    let in_group = shared.vault.store().group_stats(group);
    let length_bytes = Some(response.complete_bytes(one.length_bytes));
    let view = ruleset::response_view(response.status, &response.headers, length_bytes);
    let effects = shared.config.ruleset.on_response(&order.as_request(), &view);
    let mut fresh = freshness(response, shared.config.clock.unix_millis());
    fresh["lifetime_from"] =
        lifetime_from(shared, response, effects.ttl_for(response.status)).into();
    json!({
        "key": shown(&one.key),
        "status": response.status.as_u16(),
        "body_bytes": response.apart.map_or(one.length_bytes, |apart| apart.length_bytes),
        "body_apart": response.apart.is_some(),
        "part": response.part.map(|part| format!("{}-{}/{}", part.start, part.end - 1, part.complete_bytes)),
        "lies": if one.placement.in_memory { "memory" } else { "disk" },
        "group": group.to_string(),
        "group_state": in_group.map(|group| json!({
            "objects_created": group.objects_created,
            "pages_known": group.pages_known,
            "prefetched": group.prefetched,
            "prefetch_hits": group.prefetch_hits,
            "hint": format!("{:?}", group.hint).to_lowercase(),
        })),
        "freshness": fresh,
        "rules": effects.names().collect::<Vec<_>>(),
        "purged": standing,
        "generation": stamp.moment.generation,
        "tags": stamp.tags.len(),
        "purges": purges,
        "headers": lines(&response.headers),
    })
}

/// The freshness calculation of RFC 9111 §4.2 with its numbers.
fn freshness(response: &StoredResponse, now_ms: u64) -> Value {
    let policy = &response.policy;
    let (age_ms, lifetime_ms) = (policy.age_ms(now_ms), policy.lifetime_ms);
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    json!({
        "response_time": seconds(policy.response_time_ms),
        "now": seconds(now_ms),
        "age_when_it_came_s": seconds(policy.initial_age_ms),
        "date": dates::header(&response.headers, &DATE, policy.response_time_s()),
        "time_here_s": seconds(now_ms.saturating_sub(policy.response_time_ms)),
        "age_s": seconds(age_ms),
        "lifetime_s": seconds(lifetime_ms),
        "fresh_for_s": signed(lifetime_ms).saturating_sub(signed(age_ms)) as f64 / 1000.0,
        "validate_always": policy.no_cache,
        "never_stale": policy.never_stale,
        "stale_while_revalidate_s": seconds(policy.stale_while_revalidate_ms),
        "stale_if_error_s": seconds(policy.stale_if_error_ms),
    })
}

/// Where the lifetime of what is stored comes from; `None` if it is none of what would give it one
/// now, as after a change of the rules.
fn lifetime_from(
    shared: &Shared,
    response: &StoredResponse,
    ttl: Option<Duration>,
) -> Option<&'static str> {
    let (policy, caching) = (&response.policy, &shared.config.caching);
    let by_rule = ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    if let Some(ttl_ms) = by_rule {
        let is_by_rule = policy.lifetime_ms == policy.initial_age_ms.saturating_add(ttl_ms);
        return is_by_rule.then_some("a rule's ttl");
    }
    let directives = ResponseDirectives::of(&response.headers, caching);
    let (status, came_s) = (response.status, policy.response_time_s());
    let own = Lifetime::of(status, &response.headers, &directives, caching, came_s);
    if policy.lifetime_ms != own.seconds.saturating_mul(1000) {
        return None;
    }
    Some(match own.source {
        LifetimeSource::Explicit if directives.s_maxage.is_some() => "s-maxage",
        LifetimeSource::Explicit if directives.max_age.is_some() => "max-age",
        LifetimeSource::Explicit => "Expires",
        LifetimeSource::Heuristic => "Last-Modified",
        LifetimeSource::None => "nothing",
    })
}

/// The hard purges of a URL, which leave no mark.
fn purges_of(shared: &Shared, url: &[u8]) -> Vec<Value> {
    let now_s = shared.config.clock.unix_seconds();
    let purges = shared.vault.urls_purged.of(url_hash(url)).into_iter();
    let told = |when_s| json!({ "by": "its URL", "seconds_ago": now_s.saturating_sub(when_s) });
    purges.map(told).collect()
}

fn cover_name(cover: Cover<'_>) -> String {
    match cover {
        Cover::All => "everything".to_owned(),
        Cover::Url => "its URL".to_owned(),
        Cover::Tag => "a tag".to_owned(),
        Cover::Group => "its group".to_owned(),
        Cover::Prefix(prefix) => format!("the prefix {}", shown(prefix)),
        Cover::Folded => "an old mark that was made coarser".to_owned(),
    }
}

/// A key on one line: bytes that occur in no URL as `\xNN`.
fn shown(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

fn lines(headers: &HeaderMap) -> Vec<String> {
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
    };
    headers.iter().map(line).collect()
}

fn lately_not_stored(counters: &[Arc<Counters>], url: &[u8]) -> Vec<Value> {
    let of_url = |one: &Arc<Counters>| lock(&one.not_stored_lately).of(url_hash(url)).cloned();
    let mut all: Vec<NotStored> = counters.iter().filter_map(of_url).collect();
    all.sort_unstable_by_key(|one| Reverse(one.when));
    let told = |one: &NotStored| {
        json!({
            "seconds_ago": one.when.elapsed().as_secs(),
            "reason": one.reason.name(),
            "rule": one.rule,
        })
    };
    all.iter().map(told).collect()
}

/// The busiest URLs and hosts, and current activity.
pub(crate) fn top(shared: &Shared, counters: &[Arc<Counters>]) -> Value {
    let now = Instant::now();
    let mut all: Vec<_> = counters.iter().map(|one| lock(&one.hot).busiest(now)).collect();
    let window = all.iter().map(|one| one.window).max().unwrap_or_default();
    let urls = merged(all.iter_mut().map(|one| std::mem::take(&mut one.urls)), ROWS_MAX);
    let hosts = merged(all.iter_mut().map(|one| std::mem::take(&mut one.hosts)), ROWS_MAX);
    let (hits, misses) = metrics::latencies(counters);
    let stats = shared.vault.store().stats();
    json!({
        "window_seconds": window.as_secs_f64(),
        "urls": rows(&urls),
        "hosts": rows(&hosts),
        "counters": metrics::values(counters),
        "latency_us": { "hit": times(&hits), "miss": times(&misses) },
        "memory": {
            "used_bytes": stats.memory_used_bytes,
            "bytes": stats.memory_bytes,
            "objects": stats.resident_objects,
            "hits": stats.hits_memory,
        },
        "disk": {
            "segments": stats.segments,
            "segments_free": stats.segments_free,
            "segment_bytes": shared.vault.store().info().segment_bytes,
            "objects": stats.index_objects,
            "objects_max": stats.index_slots,
            "hits": stats.hits_disk,
            "reads": stats.object_reads + stats.page_reads + stats.range_reads,
            "read_bytes": stats.disk_read_bytes,
            "written_bytes": stats.written_bytes,
            "volumes_out": stats.volumes_out,
        },
    })
}

fn rows(rows: &[Row]) -> Vec<Value> {
    let row = |row: &Row| {
        json!({
            "name": row.name,
            "requests": row.requests,
            "hits": row.hits,
            "mean_us": row.took_us / row.requests.max(1),
        })
    };
    rows.iter().map(row).collect()
}

fn times(snapshot: &Snapshot) -> Value {
    json!({
        "count": snapshot.count(),
        "p50": snapshot.quantile_us(0.5),
        "p90": snapshot.quantile_us(0.9),
        "p99": snapshot.quantile_us(0.99),
        "bars": snapshot.bars().collect::<Vec<_>>(),
    })
}
