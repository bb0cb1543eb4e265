//! Declares every key of a `[[rule]]` once. Pure, no threads.

use std::net::Ipv6Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};

use super::kinds::{Flag, Kind, Query, Size, Text, Time, Value, network};
use super::ranges::{self, Span, is_token};
use crate::rules::key::without_root;
use crate::ruleset::{
    Admission, CookieMatch, FieldValue, Glob, HeaderMatch, Hint, HostHeader, Location, OwnLimits,
    PrefixChange, Respond, Rule, Segments, Term, answer_edits_allowed, edits_allowed, split_not,
};
use crate::upstream::check_url;

/// One key of a rule.
pub(crate) struct RuleKey {
    pub(crate) name: &'static str,
    pub(crate) written: &'static str,
    pub(crate) help: &'static str,
    pub(crate) set: fn(&mut Rule, &Value) -> Result<(), String>,
}

macro_rules! rule_keys {
    ($($name:literal $written:literal $help:literal $set:expr;)*) => {
        /// Conditions first, then actions.
        pub(crate) const RULE_KEYS: &[RuleKey] =
            &[$(RuleKey { name: $name, written: $written, help: $help, set: $set },)*];
    };
}

rule_keys! {
    "name" "text" "Its name in `damelo explain`."
        |rule, value| put(&mut rule.name, Text::read(value));
    "client" "network or list" "Matches the client's address: `\"10.0.0.0/8\"`; where `forwarded.trust_client` is on what the proxy before this one says of it."
        |rule, value| put(&mut rule.when.clients, each(value, term(network)));
    "host" "pattern or list" "Matches the host the client asked for, without port, where `forwarded.trust_client` is on what `X-Forwarded-Host` says of it (of a list nothing counts); one of the patterns must match."
        |rule, value| put(&mut rule.when.hosts, each(value, term(host_glob)));
    "scheme" "http or https" "Matches how the client asked: by TLS or without; where `forwarded.trust_client` is on, what `X-Forwarded-Proto` says of it."
        |rule, value| put(&mut rule.when.scheme, scheme(value).map(Some));
    "path" "pattern or list" "Matches the path, without query. `*` stands for anything within a segment, `**` for anything."
        |rule, value| put(&mut rule.when.paths, each(value, term(path_glob)));
    "prefix" "text or list" "Matches paths that begin so."
        |rule, value| put(&mut rule.when.prefixes, each(value, term(prefix)));
    "query" "pattern or list" "Matches the query, without its `?`; it is empty where there is none."
        |rule, value| put(&mut rule.when.queries, each(value, term(value_glob)));
    "cookie" "`name` or `name=pattern`, or list" "Matches if the request has one of these cookies, with a value that matches; with `!` before it, if it has none such. The name is a pattern, too."
        |rule, value| put(&mut rule.when.cookies, each(value, cookie_match));
    "method" "method or list" "Matches the method."
        |rule, value| put(&mut rule.when.methods, each(value, term(method)));
    "header" "`Name` or `Name: pattern`, or list" "Matches if the request has the header, with a value that matches; with `!` before it, if no line is so. All of a list must match."
        |rule, value| put(&mut rule.when.headers, each(value, header_match));
    "status" "`200`, `\"500-599\"` or list" "Matches the status of the origin's response."
        |rule, value| put(&mut rule.when.statuses, each(value, term(status_range)));
    "type" "pattern or list" "Matches the media type of the response, such as `image/*`."
        |rule, value| put(&mut rule.when.types, each(value, term(type_glob)));
    "size_min" "a size such as 512MiB" "Matches responses of known length, this or larger."
        |rule, value| put(&mut rule.when.size_min, u64::read_some::<Size>(value));
    "size_max" "a size such as 512MiB" "Matches responses of known length, this or smaller."
        |rule, value| put(&mut rule.when.size_max, u64::read_some::<Size>(value));
    "pass" "true or false" "Neither look it up nor store it."
        |rule, value| put(&mut rule.then.pass, Flag::read(value).map(Some));
    "to" "URL or list" "Sends it to this origin instead of the proxy's own `to`, or to one of several that are alike; the host of the first is the one they are asked with, unless `preserve_host` or `host_header` say otherwise. Not for forward proxies."
        |rule, value| put(&mut rule.then.to, each(value, origin));
    "backup" "URL or list" "Origins of the same site as `to` in this rule that are asked only while none of those is healthy, or once none of them could be reached for a request."
        |rule, value| put(&mut rule.then.backup, each(value, origin));
    "host_header" "client, origin or a host such as app.example" "The `Host` that the origins of `to` in this rule are asked with: the client's, that of the first of them, or this one; without it as `preserve_host` has it."
        |rule, value| put(&mut rule.then.host_header, Text::read(value).and_then(|text: String| HostHeader::read(&text)).map(Some));
    "respond" "a status such as 301 or 503" "Answers by itself, with this status; neither cache nor origin is asked. Beside it only `location`, `body`, `body_type`, `log`, and headers set or removed of its answer."
        |rule, value| put(&mut rule.then.respond.status, one(value).and_then(|text| Respond::status(&text)).map(Some));
    "location" "URL or path" "`Location` of that answer; `{host}` stands for the host that the client asked for, without port, `{target}` for path and query as it sent them: `https://{host}{target}`."
        |rule, value| put(&mut rule.then.respond.location, Text::read(value).and_then(|text: String| Location::read(&text)).map(Some));
    "body" "text" "Its body, at most 64 KiB; without it the status in words."
        |rule, value| put(&mut rule.then.respond.body, Text::read(value).and_then(|text: String| Respond::body(&text)).map(Some));
    "body_type" "media type" "The body's `Content-Type`, such as `text/html; charset=utf-8`; without it plain text."
        |rule, value| put(&mut rule.then.respond.body_type, Text::read(value).and_then(|text: String| media_type(&text)).map(Some));
    "strip_prefix" "a path such as /app" "Takes this off the path that the origin is asked for, where the path begins with it: `/app/a` becomes `/a`. Not for forward proxies."
        |rule, value| put(&mut prefix_change(rule).strip, Text::read(value).and_then(|text: String| PrefixChange::read(&text)));
    "add_prefix" "a path such as /v2" "Puts this before the path that the origin is asked for, or before what `strip_prefix` in the same rule leaves. Not for forward proxies."
        |rule, value| put(&mut prefix_change(rule).add, Text::read(value).and_then(|text: String| PrefixChange::read(&text)));
    "key_headers" "list of names" "Adds these request headers to the cache key."
        |rule, value| put(&mut rule.then.key_headers, each(value, header_name));
    "key_cookies" "list of names" "Adds these cookies to the cache key."
        |rule, value| put(&mut rule.then.key_cookies, each(value, cookie_name));
    "key_query" "all, none, except:NAME,... or only:NAME,..." "Which parameters of the query count in keys, for URLs that it matches: goes before the table's `key.query`."
        |rule, value| put(&mut rule.then.key_query, Query::read(value).map(Some));
    "key_sort_query" "true or false" "The same for `key.sort_query`."
        |rule, value| put(&mut rule.then.key_sort_query, Flag::read(value).map(Some));
    "request_set" "list of `Name: value`" "Sets headers of the request, before it is looked up and forwarded; `X-Forwarded-Prefix` and its like, too, which clients that are not trusted cannot."
        |rule, value| put(&mut rule.then.request_set, each(value, request_line));
    "request_remove" "list of names" "Removes headers of the request."
        |rule, value| put(&mut rule.then.request_remove, each(value, edited_name));
    "cookies_remove" "pattern or list" "Removes the cookies of these names from the request, before it is looked up and forwarded: `[\"_ga*\", \"utm_*\"]`."
        |rule, value| put(&mut rule.then.cookies_remove, each(value, value_glob));
    "timeout_connect" "a time such as 2s" "Goes before `timeouts.connect` for these requests."
        |rule, value| put(&mut limits(rule).connect, Duration::read_some::<Span>(value));
    "timeout_origin_header" "a time such as 5m" "Goes before `timeouts.origin_header`."
        |rule, value| put(&mut limits(rule).origin_header, Duration::read_some::<Span>(value));
    "timeout_body_idle" "a time such as 5m" "Goes before `timeouts.body_idle`."
        |rule, value| put(&mut limits(rule).body_idle, Duration::read_some::<Span>(value));
    "timeout_total" "a time such as 30s, or none" "Goes before `timeouts.total`."
        |rule, value| put(&mut limits(rule).total, Span::read(value).map(Some));
    "upload_bytes_max" "a size such as 512MiB, or none" "Goes before `limits.upload_bytes_max`."
        |rule, value| put(&mut limits(rule).upload_bytes_max, Size::read(value).map(Some));
    "ttl" "a time such as 10m" "Fresh for so long from its arrival, whatever the response says; stored even if nothing in it makes it cacheable, unless it sets a cookie that no rule removes; for errors see below."
        |rule, value| put(&mut rule.then.ttl, Time::read(value).map(Some));
    "stale_while_revalidate" "a time such as 10m" "Goes before what the response says of it, and `caching.stale_while_revalidate`; where the response forbids stale answers it stays forbidden."
        |rule, value| put(&mut rule.then.stale_while_revalidate, Time::read(value).map(Some));
    "stale_if_error" "a time such as 10m" "The same for `stale-if-error`."
        |rule, value| put(&mut rule.then.stale_if_error, Time::read(value).map(Some));
    "store" "true or false" "`false`: never store it. `true`: store it even if it says `no-store` or has no freshness; what is `private`, has `Vary: *` or answers `Authorization` is still not stored."
        |rule, value| put(&mut rule.then.store, Flag::read(value).map(Some));
    "admission" "always or second-hit" "`second-hit`: store it when it is asked for the second time, as far as 65,536 resources are remembered; for what is mostly asked for once. A stored response is renewed in any case."
        |rule, value| put(&mut rule.then.admission, admission(value).map(Some));
    "group" "text" "The group it lies in."
        |rule, value| put(&mut rule.then.group, Text::read(value).map(Some));
    "hint" "love, hate or neutral" "Keep its group in memory and on disk while anything else can go, or let it go first."
        |rule, value| put(&mut rule.then.hint, hint(value).map(Some));
    "response_set" "list of `Name: value`" "Sets headers of the response, before it is stored and sent: everybody who gets what is stored gets them, see `answer_set`."
        |rule, value| put(&mut rule.then.response_set, each(value, header_line));
    "response_remove" "list of names" "Removes headers of the response, before anything is decided by them."
        |rule, value| put(&mut rule.then.response_remove, each(value, edited_name));
    "answer_set" "list of `Name: value`" "Sets headers of every answer as it is delivered: the origin's, stored ones, 304s, those of `respond` and the proxy's own errors. Nothing of it is stored."
        |rule, value| put(&mut rule.then.answer_set, each(value, answer_line));
    "answer_remove" "list of names" "Removes headers of every answer as it is delivered."
        |rule, value| put(&mut rule.then.answer_remove, each(value, answer_name));
    "log" "true or false" "`false`: it has no line in the access log, as for health probes; it is counted all the same."
        |rule, value| put(&mut rule.then.log, Flag::read(value).map(Some));
    "last" "true or false" "If it matches, the rules after it are not looked at."
        |rule, value| put(&mut rule.last, Flag::read(value));
}

/// Finds the key of this name.
pub(crate) fn find(name: &str) -> Option<&'static RuleKey> {
    RULE_KEYS.iter().find(|key| key.name == name)
}

fn put<T>(place: &mut T, read: Result<T, String>) -> Result<(), String> {
    *place = read?;
    Ok(())
}

/// Parses a value of a kind into an option.
trait ReadSome: Sized {
    fn read_some<K: Kind<Self>>(value: &Value) -> Result<Option<Self>, String>;
}

impl<T> ReadSome for T {
    fn read_some<K: Kind<T>>(value: &Value) -> Result<Option<T>, String> {
        K::read(value).map(Some)
    }
}

fn each<T>(value: &Value, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    match value {
        Value::Text(text) | Value::Integer(text) => Ok(vec![read(text)?]),
        Value::List(list) if !list.is_empty() => list.iter().map(|text| read(text)).collect(),
        Value::List(_) => Err("the list is empty: leave the key out".to_owned()),
        Value::Flag(_) => Err("text or a list of texts is expected".to_owned()),
    }
}

/// Reads what may have a `!` before it.
fn term<T>(read: impl Fn(&str) -> Result<T, String>) -> impl Fn(&str) -> Result<Term<T>, String> {
    move |text| Term::read(text.trim_start(), &read)
}

/// A method, in upper case: written otherwise it would match no request. `forward.rules` reads its
/// methods likewise.
fn method(text: &str) -> Result<Method, String> {
    Method::from_bytes(text.to_ascii_uppercase().as_bytes())
        .map_err(|_| format!("\"{text}\" is not a method"))
}

/// The beginning of a path.
fn prefix(text: &str) -> Result<String, String> {
    match text.starts_with('/') {
        true if text.contains(['?', '#']) => {
            Err(format!("\"{text}\" matches no path: paths end before `?`, see `query`"))
        }
        true => Ok(text.to_owned()),
        false if text.is_empty() => Err("it is empty".to_owned()),
        false => Err(no_path(text)),
    }
}

fn path_glob(text: &str) -> Result<Glob, String> {
    let glob = Glob::new(text, Segments::BySlash)?;
    match glob.begins_with_other_than('/') {
        true if text.starts_with('*') => {
            Err(format!("{}, for which `**` can stand, but not `*`", no_path(text)))
        }
        true => Err(no_path(text)),
        false => Ok(glob),
    }
}

fn no_path(text: &str) -> String {
    format!("\"{text}\" matches no path: paths begin with `/`")
}

fn host_glob(text: &str) -> Result<Glob, String> {
    if text.contains('/') {
        return Err(format!("\"{text}\" matches no host: write it without scheme and path"));
    }
    if !text.is_ascii() {
        return Err(format!("\"{text}\" matches no host: clients send the form of DNS, xn--..."));
    }
    let port = text.rsplit_once(':').map_or("", |(_, port)| port);
    if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("\"{text}\" matches no host: hosts are compared without port"));
    }
    // As in `forward.rules`, a trailing dot makes no difference; requests are compared without it.
    let lower = without_root(text).to_ascii_lowercase();
    // Its brackets make no class: no host is a single character of an address.
    let pattern = match lower.strip_prefix('[') {
        Some(rest) if is_address_in_brackets(rest) => format!("\\[{rest}"),
        _ => lower,
    };
    Glob::new(&pattern, Segments::BySlash)
}

/// Whether this, behind its `[`, is an IPv6 address as hosts have it.
fn is_address_in_brackets(rest: &str) -> bool {
    rest.strip_suffix(']').is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

fn type_glob(text: &str) -> Result<Glob, String> {
    if text.contains(';') {
        return Err(format!("\"{text}\" matches no type: types are compared without parameters"));
    }
    let glob = Glob::new(&text.to_ascii_lowercase(), Segments::BySlash)?;
    match glob.lacks('/') {
        true => Err(format!("\"{text}\" matches no type: each has a `/`, as in image/*")),
        false => Ok(glob),
    }
}

fn origin(text: &str) -> Result<String, String> {
    check_url(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// A pattern for text without segments.
fn value_glob(text: &str) -> Result<Glob, String> {
    Glob::new(text, Segments::None)
}

fn cookie_match(text: &str) -> Result<Term<CookieMatch>, String> {
    let (negated, name, value) = named(text, '=')?;
    Ok(Term::new(negated, CookieMatch { name: value_glob(name)?, value }))
}

/// A name, and the pattern of a value behind it. A `!` before either means the same: nothing of
/// this name has such a value.
fn named(text: &str, separator: char) -> Result<(bool, &str, Option<Glob>), String> {
    let (name, value) = match text.split_once(separator) {
        Some((name, value)) => (name, Some(value.trim())),
        None => (text, None),
    };
    let (negated, name) = split_not(name.trim());
    let (value_negated, value) = value.map(split_not).unzip();
    let value_negated = value_negated.unwrap_or(false);
    if negated && value_negated {
        return Err(format!(
            "\"{text}\" has two `!`, each of which rules out all of it: write one"
        ));
    }
    Ok((negated || value_negated, name.trim(), value.map(value_glob).transpose()?))
}

fn cookie_name(text: &str) -> Result<String, String> {
    ranges::cookie_name(text.trim()).map(str::to_owned)
}

fn header_name(text: &str) -> Result<HeaderName, String> {
    text.trim().parse().map_err(|_| format!("\"{text}\" is not a header's name"))
}

fn edited_name(text: &str) -> Result<HeaderName, String> {
    let name = header_name(text)?;
    if edits_allowed(&name) {
        Ok(name)
    } else {
        Err(format!("`{name}` is the proxy's own business and cannot be edited"))
    }
}

fn answer_name(text: &str) -> Result<HeaderName, String> {
    let name = edited_name(text)?;
    if answer_edits_allowed(&name) {
        Ok(name)
    } else {
        Err(format!("`{name}` says how the bytes of an answer are to be read and cannot be edited"))
    }
}

fn answer_line(text: &str) -> Result<(HeaderName, FieldValue), String> {
    let line = filled_line(text)?;
    answer_name(line.0.as_str())?;
    Ok(line)
}

fn header_line(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) =
        text.split_once(':').ok_or_else(|| format!("\"{text}\" is not `Name: value`"))?;
    let value = HeaderValue::from_str(value.trim())
        .map_err(|_| format!("\"{text}\" has characters that a header cannot have"))?;
    Ok((edited_name(name)?, value))
}

/// A header with a value in which `{client}` and its like may stand.
fn filled_line(text: &str) -> Result<(HeaderName, FieldValue), String> {
    let (name, value) =
        text.split_once(':').ok_or_else(|| format!("\"{text}\" is not `Name: value`"))?;
    Ok((edited_name(name)?, FieldValue::read(value.trim())?))
}

fn request_line(text: &str) -> Result<(HeaderName, FieldValue), String> {
    let line = filled_line(text)?;
    match line.1.has_cache() {
        true => {
            Err(format!("\"{text}\": {{cache}} is known once there is an answer: `answer_set`"))
        }
        false => Ok(line),
    }
}

fn header_match(text: &str) -> Result<Term<HeaderMatch>, String> {
    let (negated, name, value) = named(text, ':')?;
    Ok(Term::new(negated, HeaderMatch { name: header_name(name)?, value }))
}

pub(super) fn status_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let wrong = || format!("\"{text}\" is not a status such as 404 or 500-599");
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first: u16 = first.trim().parse().map_err(|_| wrong())?;
    let last: u16 = last.trim().parse().map_err(|_| wrong())?;
    if (200..=999).contains(&first) && first <= last && last <= 999 {
        Ok(first..=last)
    } else {
        Err(wrong())
    }
}

/// A text, or a number as text.
fn one(value: &Value) -> Result<String, String> {
    match value {
        Value::Text(text) | Value::Integer(text) => Ok(text.clone()),
        Value::List(_) | Value::Flag(_) => Err("one status is expected".to_owned()),
    }
}

fn scheme(value: &Value) -> Result<&'static str, String> {
    match <Text as Kind<String>>::read(value)?.as_str() {
        "http" => Ok("http"),
        "https" => Ok("https"),
        other => Err(format!("\"{other}\" is not http or https")),
    }
}

fn media_type(text: &str) -> Result<HeaderValue, String> {
    let wrong = || format!("\"{text}\" is not a media type such as text/html; charset=utf-8");
    let (kind, subtype) =
        text.split(';').next().and_then(|t| t.split_once('/')).ok_or_else(wrong)?;
    if !is_token(kind) || !is_token(subtype.trim_end()) {
        return Err(wrong());
    }
    HeaderValue::from_str(text).map_err(|_| wrong())
}

fn limits(rule: &mut Rule) -> &mut OwnLimits {
    Arc::make_mut(rule.then.limits.get_or_insert_default())
}

fn prefix_change(rule: &mut Rule) -> &mut PrefixChange {
    Arc::make_mut(rule.then.prefix.get_or_insert_default())
}

fn admission(value: &Value) -> Result<Admission, String> {
    match <Text as Kind<String>>::read(value)?.as_str() {
        "always" => Ok(Admission::Always),
        "second-hit" => Ok(Admission::SecondHit),
        other => Err(format!("\"{other}\" is not always or second-hit")),
    }
}

fn hint(value: &Value) -> Result<Hint, String> {
    match <Text as Kind<String>>::read(value)?.as_str() {
        "love" => Ok(Hint::Love),
        "hate" => Ok(Hint::Hate),
        "neutral" => Ok(Hint::Neutral),
        other => Err(format!("\"{other}\" is not love, hate or neutral")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_may_be_written_in_lower_case() {
        let mut rule = Rule::named("rule 1".to_owned());
        let methods = Value::List(vec!["post".to_owned(), "PUT".to_owned()]);
        let key = find("method").expect("the key");
        assert_eq!((key.set)(&mut rule, &methods), Ok(()));
        assert_eq!(rule.when.methods, [Method::POST, Method::PUT].map(Term::is));
    }

    #[test]
    fn what_the_cache_did_is_said_of_answers_alone() {
        let line = Value::List(vec!["X-Cache: {cache}".to_owned()]);
        for (key, good) in [("answer_set", true), ("request_set", false)] {
            let (key, mut rule) = (find(key).expect("the key"), Rule::named("rule 1".to_owned()));
            assert_eq!((key.set)(&mut rule, &line).is_ok(), good);
        }
    }

    #[test]
    fn one_exclamation_mark_rules_out_all_of_a_term() {
        let read = |key: &str, text: &str| {
            let (key, mut rule) = (find(key).expect("the key"), Rule::named("rule 1".to_owned()));
            (key.set)(&mut rule, &Value::Text(text.to_owned())).map(|()| format!("{:?}", rule.when))
        };
        for (key, one, same) in [
            ("cookie", "!lang=de*", "lang=!de*"),
            ("cookie", "!!lang=de*", "lang=de*"),
            ("header", "!Accept: text/*", "Accept: !text/*"),
            ("header", " ! Accept", "!accept"),
            ("method", "!get", "!GET"),
            ("host", "![::1]", "!\\[::1]"),
        ] {
            assert_eq!(read(key, one).expect(one), read(key, same).expect(same), "{one}");
            let positive = same.replace('!', "");
            let is_same = read(key, same) == read(key, &positive);
            assert_eq!(is_same, !same.contains('!'), "{same}");
        }
        for (key, wrong) in [
            ("cookie", "!lang=!de*"),
            ("header", "!Accept: !text/*"),
            ("cookie", "!"),
            ("header", "!"),
            ("prefix", "!img"),
            ("status", "!99"),
        ] {
            assert!(read(key, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_says_how_an_answer_is_read_is_not_edited() {
        let allows = |key: &str, text: &str| {
            let key = find(key).expect("the key");
            let value = Value::List(vec![text.to_owned()]);
            (key.set)(&mut Rule::named("rule 1".to_owned()), &value).is_ok()
        };
        for (name, in_store, in_answers) in [
            ("Content-Type", true, true),
            ("Content-Range", true, false),
            ("Content-Encoding", true, false),
            ("Content-Length", false, false),
        ] {
            let line = format!("{name}: a");
            assert_eq!(allows("response_set", &line), in_store, "{name}");
            assert_eq!(allows("answer_set", &line), in_answers, "{name}");
            assert_eq!(allows("response_remove", name), in_store, "{name}");
            assert_eq!(allows("answer_remove", name), in_answers, "{name}");
        }
    }

    /// A rule that never applies, `pass` say, is taken for one that does.
    #[test]
    fn a_condition_that_nothing_can_meet_is_refused() {
        let read = |key: &str, text: &str| {
            let key = find(key).expect("the key");
            (key.set)(&mut Rule::named("rule 1".to_owned()), &Value::Text(text.to_owned()))
        };
        for (key, wrong, why) in [
            ("path", "img/**", "begin with `/`"),
            ("path", "!img/**", "begin with `/`"),
            ("path", "{img,/pictures}/*", "begin with `/`"),
            ("path", "*.png", "`**` can stand"),
            ("path", "!*", "`**` can stand"),
            ("path", "{*img/x,/x}", "begin with `/`"),
            ("prefix", "img/", "begin with `/`"),
            ("prefix", "/a?b", "see `query`"),
            ("prefix", "/a#b", "see `query`"),
            ("host", "example.org:8080", "without port"),
            ("host", "http://example.org", "without scheme and path"),
            ("host", "example.org/", "without scheme and path"),
            ("host", "*.müller.example", "xn--"),
            ("type", "image", "`/`"),
            ("type", "text/html; charset=utf-8", "without parameters"),
        ] {
            let error = read(key, wrong).expect_err(wrong);
            let named = format!("{:?}", wrong.trim_start_matches('!'));
            assert!(error.contains(&named) && error.contains(why), "{error}");
        }
        for (key, right) in [
            ("path", "/img/**"),
            ("path", "**.png"),
            ("path", "**/img/*"),
            ("path", "*/img/*"),
            ("path", "!/img/**"),
            ("path", "[/]x"),
            ("path", "\\/x"),
            ("path", "{/a,/b}/*"),
            ("path", "?"),
            ("host", "[[]::1]"),
            ("host", "[::1]"),
            ("host", "*.example.org"),
            ("host", "!{a,b}.test"),
            ("host", "example.org."),
            ("type", "image/*"),
            ("type", "**"),
            ("type", "{text,image}/*"),
            ("type", "**[+]json"),
        ] {
            assert_eq!(read(key, right), Ok(()), "{key} {right}");
        }
    }

    /// As a class of characters it would match no host at all.
    #[test]
    fn an_ipv6_address_in_brackets_is_a_host() {
        for (pattern, host, expected) in [
            ("[::1]", "[::1]", true),
            ("[::1]", ":", false),
            ("[2001:DB8::F]", "[2001:db8::f]", true),
            ("[2001:db8::f]", "[2001:db8::e]", false),
            ("[[]2001:db8::*]", "[2001:db8::7]", true),
            ("[a-c].example", "b.example", true),
            ("*.example.org.", "a.example.org", true),
        ] {
            let glob = host_glob(pattern).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(glob.matches(host.as_bytes()), expected, "{pattern} {host}");
        }
    }

    #[test]
    fn a_cookie_that_cannot_exist_is_in_no_key() {
        let read = |names: &[&str]| {
            let mut rule = Rule::named("rule 1".to_owned());
            let names = Value::List(names.iter().map(|name| (*name).to_owned()).collect());
            let key = find("key_cookies").expect("the key");
            (key.set)(&mut rule, &names).map(|()| rule.then.key_cookies)
        };
        assert_eq!(
            read(&["user[lang]", " __Host-x "]),
            Ok(vec!["user[lang]".to_owned(), "__Host-x".to_owned()])
        );
        for wrong in ["lang=de", "a b", "", "a\u{7f}b", "a;b", "a,b"] {
            let error = read(&["lang", wrong]).unwrap_err();
            assert!(error.contains(&format!("{wrong:?} is no name")), "{error}");
        }
    }
}
