//! Purging: the purge orders, who may give them, and how they are carried out.
//!
//! A hard purge of one URL removes it (its variants become unreachable) and reports how many
//! objects were removed; if rules extend keys, or did, it also writes a mark. Every other purge
//! only writes a mark, which covers objects fetched before it. Invariants: the client has shown the
//! token, if one is configured; no purge walks the cache; an answer reports success only when the
//! purge would survive a loss of power. Threads: the worker's and the admin listener's; waiting for
//! the disk blocks and runs on a thread for that.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use damelo::GroupId;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::uri::Authority;
use http::{HeaderMap, Response, StatusCode};
use ipnet::IpNet;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::answer::body::ProxyBody;
use crate::answer::{Answer, own_text};
use crate::config::Grouping;
use crate::handler::purge_method::order_of_method;
use crate::io::blocking;
use crate::purge::ledger::LedgerError;
use crate::purge::marks::{PREFIX_MAX, Scope};
use crate::purge::stamp::TagId;
use crate::purge::{PurgeKind, url_hash};
use crate::request::Ask;
use crate::request::grouping::{header_group, host_group, page_group, path_groups, rule_group};
use crate::request::naming::{self, Naming};
use crate::rules::CacheStatus;
use crate::rules::key::{is_plain_authority, normal_host};
use crate::vault::Late;
use crate::worker::{Shared, Worker};

/// Most purges in one order.
const ORDERS_MAX: usize = 1000;

/// `WWW-Authenticate` of a 401 (RFC 9110 §15.5.2); a challenge has a parameter (RFC 6750 §3).
pub(crate) const TOKEN_WANTED: HeaderValue = HeaderValue::from_static("Bearer realm=\"damelo\"");

/// The target of a purge, as the operator names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Url(String),
    Prefix(String),
    Host(String),
    /// Its bytes, as origins may name it in any.
    Tag(Vec<u8>),
    Group(String),
    All,
}

/// Why nothing was purged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PurgeFailure {
    #[error("{0}")]
    BadOrder(String),
    #[error("purging is not allowed from {0}")]
    Forbidden(IpAddr),
    #[error("the purge needs `Authorization: Bearer TOKEN` with the right token")]
    Unauthorized,
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the store does not answer")]
    Late,
}

impl From<Late> for PurgeFailure {
    fn from(_: Late) -> PurgeFailure {
        PurgeFailure::Late
    }
}

impl PurgeFailure {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            PurgeFailure::BadOrder(_) => StatusCode::BAD_REQUEST,
            PurgeFailure::Forbidden(_) => StatusCode::FORBIDDEN,
            PurgeFailure::Unauthorized => StatusCode::UNAUTHORIZED,
            PurgeFailure::Ledger(LedgerError::Loading) | PurgeFailure::Late => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            PurgeFailure::Ledger(LedgerError::Store(_)) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Whether a request shows the token; true if none is configured.
pub(crate) fn shows_token(headers: &HeaderMap, wanted: Option<&str>) -> bool {
    let Some(wanted) = wanted else { return true };
    let shown = headers.get(AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
    let shown = match shown.split_first_chunk::<7>() {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token,
        _ => b"",
    };
    // Constant time, wherever the first difference is: otherwise a client could find the token byte
    // by byte from response times.
    let differing = shown.iter().zip(wanted.as_bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    shown.len() == wanted.len() && differing == 0
}

/// Whether an address lies in one of these networks. IPv4-mapped IPv6 addresses count as IPv4.
pub(crate) fn is_within(client: IpAddr, networks: &[IpNet]) -> bool {
    let client = client.to_canonical();
    networks.iter().any(|network| network.contains(&client))
}

/// Whether a client may use the method PURGE.
pub(crate) fn authorize(
    client: IpAddr,
    headers: &HeaderMap,
    networks: &[IpNet],
    token: Option<&str>,
) -> Result<(), PurgeFailure> {
    if !is_within(client, networks) {
        return Err(PurgeFailure::Forbidden(client.to_canonical()));
    }
    if shows_token(headers, token) { Ok(()) } else { Err(PurgeFailure::Unauthorized) }
}

/// More names than an order may have.
const MEMBERS_MAX: usize = 16;

/// The members of a JSON object. Of two with one name only the later would be in a [`Value`], and
/// nobody would be told that the other one was not purged.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Members, D::Error> {
        input.deserialize_map(Members(Vec::new()))
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Members, A::Error> {
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            if self.0.len() == MEMBERS_MAX {
                return Err(A::Error::custom(format!("more than {MEMBERS_MAX} names")));
            }
            if self.0.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format!("`{name}` is there twice: write a list")));
            }
            self.0.push((name, value));
        }
        Ok(self)
    }
}

/// Parses an order of the admin API: an object with `url`, `prefix`, `host`, `tag`, `group` (each a
/// string or a list of strings) or `all`, and `soft`.
pub(crate) fn order_of_json(body: &[u8]) -> Result<(Vec<What>, PurgeKind), PurgeFailure> {
    let bad = |text: String| PurgeFailure::BadOrder(text);
    let Members(order) = serde_json::from_slice(body).map_err(|e| bad(format!("bad JSON: {e}")))?;
    let (mut what, mut kind) = (Vec::new(), PurgeKind::Hard);
    for (name, value) in order {
        let make: fn(String) -> What = match name.as_str() {
            "url" => What::Url,
            "prefix" => What::Prefix,
            "host" => What::Host,
            "tag" => |text| What::Tag(text.into_bytes()),
            "group" => What::Group,
            "all" | "soft" => {
                let Value::Bool(flag) = value else {
                    return Err(bad(format!("`{name}` is true or false")));
                };
                match name.as_str() {
                    "soft" if flag => kind = PurgeKind::Soft,
                    "soft" => kind = PurgeKind::Hard,
                    _ if flag => what.push(What::All),
                    _ => {}
                }
                continue;
            }
            _ => {
                let known = "url, prefix, host, tag, group, all and soft";
                return Err(bad(format!("`{name}` is not known: write {known}")));
            }
        };
        let texts = match value {
            Value::String(text) => vec![Value::String(text)],
            Value::Array(texts) => texts,
            _ => return Err(bad(format!("`{name}` is a text or a list of texts"))),
        };
        for text in texts {
            match text {
                Value::String(text) if !text.is_empty() => what.push(make(text)),
                _ => return Err(bad(format!("`{name}` is a text or a list of texts"))),
            }
        }
    }
    if what.is_empty() || what.len() > ORDERS_MAX {
        return Err(bad(format!("say 1 to {ORDERS_MAX} things to purge")));
    }
    Ok((what, kind))
}

/// The URLs that a PURGE request is for, as clients ask for them: by http and by https, unless it
/// names one of them by a whole URL. Who gives the order often does so in clear text, next to the
/// proxy, whatever clients use.
fn urls_of(shared: &Shared, ask: &Ask) -> Vec<String> {
    let (target, written) = (&ask.target, ask.scheme_written);
    // Rules see the host that was asked for, also where keys have another.
    let host = match ask.host_asked() {
        "" => target.host.clone(),
        // The default port of the order's own scheme is not the default of the other scheme.
        asked => normal_host(asked, ask.scheme_asked()),
    };
    let schemes = ["http", "https"].into_iter().filter(|s| written.is_none_or(|w| w == *s));
    let url = |scheme| format!("{scheme}://{host}{}", target.path_and_query);
    let mut urls: Vec<String> = schemes.map(url).collect();
    // If keys do not depend on the scheme, both are the same.
    urls.dedup_by_key(|url| key_of_url(shared, url));
    urls
}

/// Answers a PURGE request, which purges the URLs under which a GET for it would be stored.
pub(super) async fn answer(worker: &Worker, ask: &Ask) -> Answer {
    let shared = &worker.shared;
    let config = &shared.config.purge;
    let (networks, token) = (&config.networks, config.token.as_deref());
    let ordered = authorize(ask.peer().ip, &ask.headers, networks, token)
        .and_then(|()| order_of_method(&urls_of(shared, ask), &ask.headers, &config.tag_headers));
    let done = match ordered {
        Ok((what, kind)) => carry_out(shared, what, kind).await,
        Err(failure) => Err(failure),
    };
    match done {
        Ok(done) => {
            worker.counters.purges.one();
            let mut response = Response::new(ProxyBody::whole(format!("{done}\n").into()));
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, json);
            (response, CacheStatus::own("purge"))
        }
        Err(failure) => {
            let status = CacheStatus::own("purge-refused");
            let (mut response, status) =
                own_text(worker, failure.status(), status, &failure.to_string());
            if failure == PurgeFailure::Unauthorized {
                response.headers_mut().insert(WWW_AUTHENTICATE, TOKEN_WANTED);
            }
            (response, status)
        }
    }
}

/// Carries out the purges and reports them as JSON.
pub(crate) async fn carry_out(
    shared: &Arc<Shared>,
    what: Vec<What>,
    kind: PurgeKind,
) -> Result<Value, PurgeFailure> {
    let (mut scopes, mut removed, mut urls) = (Vec::new(), 0, 0);
    for one in &what {
        if let What::Url(url) = one
            && kind == PurgeKind::Hard
        {
            let url = key_of_url(shared, url)?;
            let (vault, now_s) = (&shared.vault, shared.config.clock.unix_seconds());
            let gone = vault.purge_url(&url).await;
            removed += gone.map_err(|e| LedgerError::Store(e.to_string()))?;
            vault.urls_purged.remember(url_hash(&url), now_s);
            urls += 1;
            if !shared.vault.has_extended_keys() {
                continue;
            }
        }
        scopes.extend(scopes_of(shared, one)?);
    }
    let mut done = json!({ "soft": kind == PurgeKind::Soft });
    if urls > 0 {
        let vault = shared.vault.clone();
        let sync = move || vault.store().sync_removes();
        on_a_thread(move || sync().map_err(|e| LedgerError::Store(e.to_string()))).await?;
        done["urls"] = urls.into();
        done["removed"] = removed.into();
    }
    if !scopes.is_empty() {
        done["marks"] = scopes.len().into();
        let (vault, now) = (shared.vault.clone(), shared.config.clock.unix_seconds());
        let purge = move || vault.ledger().purge(scopes, kind, now);
        done["generation"] = on_a_thread(purge).await?.into();
    }
    Ok(done)
}

/// Waits for a disk on a thread that may.
async fn on_a_thread<T: Send + 'static>(
    task: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, PurgeFailure> {
    let (done, outcome) = oneshot::channel();
    blocking::run(move || {
        let _ = done.send(task());
    });
    let died = || LedgerError::Store("the task for it died".to_owned());
    Ok(outcome.await.map_err(|_| died())??)
}

/// A URL that the operator wrote, in the parts that clients ask for.
pub(crate) struct AskedUrl<'a> {
    pub(crate) scheme: &'static str,
    /// As it was written; empty where a path alone is enough.
    pub(crate) host: &'a str,
    pub(crate) path_and_query: String,
}

pub(crate) fn asked_url<'a>(shared: &Shared, text: &'a str) -> Result<AskedUrl<'a>, PurgeFailure> {
    url_parts(text, Naming::of(shared).has_hosts())
}

/// The parts of a URL that the operator wrote; `has_hosts`: there is a host in keys.
pub(crate) fn url_parts(text: &str, has_hosts: bool) -> Result<AskedUrl<'_>, PurgeFailure> {
    let text = text.split('#').next().unwrap_or_default();
    let lower = text.get(..8).unwrap_or(text).to_ascii_lowercase();
    let scheme = ["http", "https"]
        .into_iter()
        .find(|scheme| lower.strip_prefix(scheme).is_some_and(|rest| rest.starts_with("://")));
    let (scheme, rest) = match scheme {
        Some(scheme) => (scheme, &text[scheme.len() + 3..]),
        // A path is enough if keys do not depend on the host.
        None if text.starts_with('/') && !has_hosts => ("http", text),
        None => {
            let or_path = if has_hosts { "as clients ask for it" } else { "or /PATH" };
            let text = format!("`{text}` is not a URL: write http://HOST/PATH, {or_path}");
            return Err(PurgeFailure::BadOrder(text));
        }
    };
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    // No client can ask for such a URL, so the order would find nothing and say nothing of it.
    if !is_plain_authority(host.as_bytes()) {
        let text =
            format!("`{host}` in `{text}` is not a host: write HOST or HOST:PORT, no user name");
        return Err(PurgeFailure::BadOrder(text));
    }
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(AskedUrl { scheme, host, path_and_query: format!("{slash}{path}") })
}

/// Scheme and host as they appear in keys, and path with query, of a URL that the operator wrote.
fn named(shared: &Shared, text: &str) -> Result<(&'static str, String, String), PurgeFailure> {
    let asked = asked_url(shared, text)?;
    let (scheme, host) = Naming::of(shared).of_url(asked.scheme, asked.host);
    Ok((scheme, host, asked.path_and_query))
}

/// The URL as stored names contain it, for a URL that the operator wrote.
pub(crate) fn full_url(shared: &Shared, text: &str) -> Result<Vec<u8>, PurgeFailure> {
    let (scheme, host, path) = named(shared, text)?;
    Ok(format!("{scheme}://{host}{path}").into_bytes())
}

/// The primary key of a URL, by the configured key rules.
pub(crate) fn key_of_url(shared: &Shared, text: &str) -> Result<Vec<u8>, PurgeFailure> {
    let asked = asked_url(shared, text)?;
    let (scheme, host, path) = named(shared, text)?;
    let asked = (asked.scheme, normal_host(asked.host, asked.scheme));
    let (asked, name) = ((asked.0, asked.1.as_str()), (scheme, host.as_str()));
    Ok(naming::primary_key(&shared.config, asked, name, &path))
}

/// What the keys of URLs that begin so begin with. Where queries are changed for the key, all of a
/// path's are covered: which of its URLs begin so cannot be told from their keys.
fn prefix_of_keys(shared: &Shared, prefix: &str) -> Result<Vec<u8>, PurgeFailure> {
    let mut url = full_url(shared, prefix)?;
    if !naming::keeps_queries(&shared.config) {
        let path = url.iter().position(|byte| *byte == b'?').unwrap_or(url.len());
        url.truncate(path);
    }
    Ok(url)
}

fn scopes_of(shared: &Shared, what: &What) -> Result<Vec<Scope>, PurgeFailure> {
    Ok(match what {
        What::All => vec![Scope::All],
        What::Url(url) => vec![Scope::Url(url_hash(&key_of_url(shared, url)?))],
        What::Tag(name) => vec![Scope::Tag(TagId::of(name))],
        What::Prefix(prefix) => vec![prefix_scope(prefix_of_keys(shared, prefix)?)?],
        What::Host(host) => host_scopes(&Naming::of(shared), host)?,
        What::Group(name) => group_scopes(shared, name)?,
    })
}

/// What a name of a group covers: that of its kind, if it says one, or else a tag, the group of a
/// rule, and a page or host where it can be nothing more.
fn group_scopes(shared: &Shared, name: &str) -> Result<Vec<Scope>, PurgeFailure> {
    let bad = |text: String| Err(PurgeFailure::BadOrder(text));
    let naming = Naming::of(shared);
    let of_path = |text: &str, groups: &dyn Fn(&str, &str) -> Vec<GroupId>| {
        let (host, rest) = text.split_once('/').unwrap_or((text, ""));
        let hosts = hosts_in_keys(&naming, host)?;
        let groups = hosts.iter().flat_map(|host| groups(host, rest));
        Ok(groups.map(|group| Scope::Group(group.get())).collect::<Vec<_>>())
    };
    match name.split_once(':') {
        Some(("id", number)) => match number.parse() {
            Ok(number) => Ok(vec![Scope::Group(number)]),
            Err(_) => bad(format!("`{number}` is not a group's number")),
        },
        Some(("page", url)) => Ok(page_scopes(shared, url)?.into()),
        Some(("host", host)) if host.contains('/') => {
            bad(format!("`{host}` is not a host: write HOST or HOST:PORT"))
        }
        Some(("host", host)) => of_path(host, &|host, _| vec![host_group(host)]),
        Some(("path", text)) => of_path(text, &|host, path| {
            path_groups(host, path.strip_suffix('/').unwrap_or(path)).to_vec()
        }),
        Some(("header", text)) => of_path(text, &|host, value| vec![header_group(host, value)]),
        _ => {
            let mut scopes = vec![Scope::Tag(TagId::of(name.as_bytes()))];
            scopes.push(Scope::Group(rule_group(name).get()));
            // Where keys have the origin's host alone, any name would be that one's; and what has
            // a path is no host.
            let may_be_host = shared.config.groups.by == Grouping::Host
                && naming.has_hosts()
                && !name.contains('/');
            if name.starts_with("http://") || name.starts_with("https://") {
                scopes.extend(page_scopes(shared, name)?);
            } else if may_be_host
                && let Ok(groups) = of_path(name, &|host, _| vec![host_group(host)])
            {
                scopes.extend(groups);
            }
            Ok(scopes)
        }
    }
}

/// A page, by its key as well: its group is named as the client that brought it asked for it.
fn page_scopes(shared: &Shared, url: &str) -> Result<[Scope; 2], PurgeFailure> {
    let (_, host, path) = named(shared, url)?;
    let own = Scope::Url(url_hash(&key_of_url(shared, url)?));
    Ok([own, Scope::Group(page_group(&host, &path).get())])
}

/// A host that the operator wrote, as it is in keys: by http and by https.
fn hosts_in_keys(naming: &Naming<'_>, host: &str) -> Result<Vec<String>, PurgeFailure> {
    if host.is_empty() || !is_plain_authority(host.as_bytes()) {
        let text = format!("`{host}` is not a host: write HOST or HOST:PORT");
        return Err(PurgeFailure::BadOrder(text));
    }
    let mut hosts: Vec<_> = ["http", "https"].map(|scheme| naming.of_url(scheme, host).1).into();
    hosts.dedup();
    Ok(hosts)
}

/// The prefixes of a host's URLs, for both schemes. An order without a port covers every port, as
/// hosts in rules do.
fn host_scopes(naming: &Naming<'_>, text: &str) -> Result<Vec<Scope>, PurgeFailure> {
    let authority: Option<Authority> =
        if is_plain_authority(text.as_bytes()) { text.parse().ok() } else { None };
    let Some(authority) = authority else {
        let text = format!("`{text}` is not a host: write HOST or HOST:PORT");
        return Err(PurgeFailure::BadOrder(text));
    };
    // If keys do not depend on the client's host, they contain the origin's host with its port.
    let every_port = authority.port().is_none() && naming.has_hosts();
    let mut scopes = Vec::new();
    for end in if every_port { &["/", ":"][..] } else { &["/"] } {
        for asked in ["http", "https"] {
            let (scheme, host) = naming.of_url(asked, text);
            scopes.push(prefix_scope(format!("{scheme}://{host}{end}").into_bytes())?);
        }
    }
    // If keys do not depend on the scheme, adjacent scopes are equal.
    scopes.dedup();
    Ok(scopes)
}

fn prefix_scope(prefix: Vec<u8>) -> Result<Scope, PurgeFailure> {
    if prefix.len() > PREFIX_MAX {
        let text = format!("a prefix of {} bytes: at most {PREFIX_MAX}", prefix.len());
        return Err(PurgeFailure::BadOrder(text));
    }
    Ok(Scope::Prefix(prefix))
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(n, v)| (HeaderName::from_static(n), v.parse().unwrap())).collect()
    }

    #[test]
    fn who_may_purge() {
        let networks: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap()];
        let inside: IpAddr = [10, 1, 2, 3].into();
        let mapped: IpAddr = "::ffff:10.1.2.3".parse().unwrap();
        let none = headers(&[]);
        let right = headers(&[("authorization", "Bearer secret")]);
        let wrong = headers(&[("authorization", "Bearer secreT")]);
        let basic = headers(&[("authorization", "Basic secret")]);
        assert_eq!(authorize(inside, &none, &networks, None), Ok(()));
        assert_eq!(authorize(mapped, &none, &networks, None), Ok(()));
        assert_eq!(authorize(inside, &right, &networks, Some("secret")), Ok(()));
        for bad in [&none, &wrong, &basic] {
            let answer = authorize(inside, bad, &networks, Some("secret"));
            assert_eq!(answer, Err(PurgeFailure::Unauthorized));
        }
        let outside = [11, 1, 2, 3].into();
        let answer = authorize(outside, &right, &networks, Some("secret"));
        assert_eq!(answer, Err(PurgeFailure::Forbidden(outside)));
        assert!(authorize(inside, &right, &[], None).is_err());
    }

    #[test]
    fn orders_in_json() {
        let order = |text: &str| order_of_json(text.as_bytes());
        let tag = |name: &str| What::Tag(name.as_bytes().to_vec());
        assert_eq!(
            order("{\"tag\":[\"a\",\"b\"],\"soft\":true}"),
            Ok((vec![tag("a"), tag("b")], PurgeKind::Soft))
        );
        assert_eq!(order("{\"all\":true}"), Ok((vec![What::All], PurgeKind::Hard)));
        for bad in
            ["", "[]", "{}", "{\"all\":false}", "{\"tga\":\"a\"}", "{\"tag\":7}", "{\"tag\":\"\"}"]
                .into_iter()
                .chain(["{\"tag\":\"a\",\"tag\":\"b\"}", "{\"all\":true} {}"])
        {
            assert!(matches!(order(bad), Err(PurgeFailure::BadOrder(_))), "{bad}");
        }
    }
}
