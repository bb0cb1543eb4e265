//! Purge orders by method: what target and headers say, in our own words and in those of plugins
//! that were written for other caches.
//!
//! Invariant: an order covers no less than its sender means. What is not understood is an error,
//! never taken for something smaller, such as the one URL that a pattern is sent to. Pure.

use http::{HeaderMap, HeaderName};

use super::purge::{PurgeFailure, What};
use crate::purge::PurgeKind;
use crate::purge::stamp;

const SOFT_PURGE: HeaderName = HeaderName::from_static("soft-purge");
const PURGE_SCOPE: HeaderName = HeaderName::from_static("purge-scope");
/// The name of a group; there may be several lines.
const PURGE_GROUP: HeaderName = HeaderName::from_static("purge-group");
/// What WordPress plugins say of the target: `regex`, or `default`.
const PURGE_METHOD: HeaderName = HeaderName::from_static("x-purge-method");
/// Magento's tags, as an expression for the responses' `X-Magento-Tags`.
const MAGENTO_PATTERN: HeaderName = HeaderName::from_static("x-magento-tags-pattern");
/// Drupal's tags, of which several may be joined by a bar.
const CACHE_TAGS: HeaderName = HeaderName::from_static("cache-tags");

/// Fields by which orders to other caches say what they cover, in expressions of their own.
static PATTERNS: [HeaderName; 10] = [
    HeaderName::from_static("x-purge-regex"),
    HeaderName::from_static("x-purge-tags"),
    HeaderName::from_static("x-ban-url"),
    HeaderName::from_static("x-ban-host"),
    HeaderName::from_static("x-host"),
    HeaderName::from_static("x-url"),
    HeaderName::from_static("x-content-type"),
    HeaderName::from_static("x-cache-tags"),
    HeaderName::from_static("xkey-purge"),
    HeaderName::from_static("xkey-softpurge"),
];

/// What means more than itself in an expression, the dot aside.
const META: &[char] = &['\\', '^', '$', '*', '+', '?', '(', ')', '[', ']', '{', '}', '|'];

/// The order of a PURGE request: its tags and groups if it names any, else its URLs (one for each
/// scheme) in the scope that `Purge-Scope` names, or as the pattern that `X-Purge-Method` says they
/// are.
/// `tag_headers`: the operator's fields with tags.
pub(crate) fn order_of_method(
    urls: &[String],
    headers: &HeaderMap,
    tag_headers: &[HeaderName],
) -> Result<(Vec<What>, PurgeKind), PurgeFailure> {
    let kind = kind_wanted(headers)?;
    let unknown = |name: &&HeaderName| headers.contains_key(*name) && !tag_headers.contains(name);
    if let Some(name) = PATTERNS.iter().find(unknown) {
        return Err(bad(format!(
            "`{name}` is not understood: say Purge-Scope, Surrogate-Key, or `{name}` in \
             `purge.tag_headers` if it has tags"
        )));
    }
    let mut named = tags(headers, tag_headers)?;
    named.extend(groups(headers)?);
    if !named.is_empty() {
        return Ok((named, kind));
    }
    let each = |make: fn(&str) -> What| urls.iter().map(|url| make(url)).collect();
    let what = match word(headers, &PURGE_SCOPE)? {
        Some("url") => each(|url| What::Url(url.to_owned())),
        Some("prefix") => each(|url| What::Prefix(url.to_owned())),
        Some("host") => each(|url| What::Prefix(origin_part(url).to_owned())),
        Some("all") => vec![What::All],
        Some(other) => {
            let text = format!(
                "`{other}` is no scope: write url, prefix, host or all, or Purge-Group: NAME"
            );
            return Err(bad(text));
        }
        None => by_target(urls, headers)?,
    };
    Ok((what, kind))
}

fn bad(text: String) -> PurgeFailure {
    PurgeFailure::BadOrder(text)
}

/// The one value of a field. One that cannot be read is an error, since without it the order would
/// mean something else.
fn word<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, PurgeFailure> {
    let mut lines = headers.get_all(name).into_iter();
    let (Some(line), more) = (lines.next(), lines.next()) else { return Ok(None) };
    match line.to_str() {
        Ok(text) if more.is_none() => Ok(Some(text.trim())),
        _ => Err(bad(format!("`{name}` has one value, of plain letters"))),
    }
}

/// An order that names no scope: its URLs, or those that its target is a pattern for.
fn by_target(urls: &[String], headers: &HeaderMap) -> Result<Vec<What>, PurgeFailure> {
    match word(headers, &PURGE_METHOD)? {
        Some("regex") => urls.iter().map(|url| Ok(What::Prefix(prefix_of_pattern(url)?))).collect(),
        None | Some("default" | "exact") if urls.iter().any(|url| url.ends_with(".*")) => {
            let text = "the target is a pattern: say X-Purge-Method: regex, or Purge-Scope: prefix \
                        with what it begins with, or Purge-Scope: url";
            Err(bad(text.to_owned()))
        }
        None | Some("default" | "exact") => {
            Ok(urls.iter().map(|url| What::Url(url.clone())).collect())
        }
        Some(other) => {
            Err(bad(format!("`X-Purge-Method: {other}` is not understood: say regex or default")))
        }
    }
}

/// What all URLs begin with that a URL stands for as an expression. A dot in it is any character,
/// though plugins mean a dot: what begins as the part before it is covered.
fn prefix_of_pattern(url: &str) -> Result<String, PurgeFailure> {
    let (origin, path) = url.split_at(origin_part(url).len());
    let path = path.strip_suffix('$').unwrap_or(path);
    let path = path.strip_suffix(".*").unwrap_or(path);
    if path.contains(META) {
        let text = format!(
            "`/{path}` is an expression that is not understood: a path, and .* at its end, are"
        );
        return Err(bad(text));
    }
    let path = path.split('.').next().unwrap_or_default();
    Ok(format!("{origin}{path}"))
}

/// The tags that an order names, or everything, if that is what its pattern of tags says.
fn tags(headers: &HeaderMap, more: &[HeaderName]) -> Result<Vec<What>, PurgeFailure> {
    let mut found = Vec::new();
    for line in headers.get_all(&MAGENTO_PATTERN) {
        let pattern = line.to_str().ok().and_then(magento_tags);
        let text = "`X-Magento-Tags-Pattern` is not understood: ((^|,)TAG(,|$)), several of them \
                    joined by |, and .* are";
        found.extend(pattern.ok_or_else(|| bad(text.to_owned()))?);
    }
    let joined = headers.get_all(&CACHE_TAGS).into_iter().any(|v| v.as_bytes().contains(&b'|'));
    for name in stamp::tag_names(headers, more) {
        let parts = name.split(|byte| *byte == b'|' && joined).filter(|part| !part.is_empty());
        found.extend(parts.map(|part| What::Tag(part.to_vec())));
    }
    if headers.contains_key(&CACHE_TAGS) {
        let has_meta = |tag: &[u8]| tag.iter().any(|byte| META.contains(&char::from(*byte)));
        let is_pattern = |what: &What| matches!(what, What::Tag(tag) if has_meta(tag));
        if found.iter().any(is_pattern) {
            return Err(bad("`Cache-Tags` is a list of tags, and no expression".to_owned()));
        }
    }
    Ok(found)
}

/// The groups that an order names.
fn groups(headers: &HeaderMap) -> Result<Vec<What>, PurgeFailure> {
    if !headers.contains_key(&PURGE_GROUP) {
        return Ok(Vec::new());
    }
    if headers.contains_key(&PURGE_SCOPE) {
        return Err(bad("say Purge-Scope or Purge-Group, not both".to_owned()));
    }
    let lines = headers.get_all(&PURGE_GROUP).into_iter();
    let names = lines.map(|line| line.to_str().ok().map(str::trim).filter(|name| !name.is_empty()));
    let groups = names.map(|name| name.map(|name| What::Group(name.to_owned())));
    let wanted = || bad("`Purge-Group` is the name of a group, of plain letters".to_owned());
    groups.collect::<Option<_>>().ok_or_else(wanted)
}

/// Magento asks for tags by `((^|,)cat_p_1(,|$))|((^|,)cat_p(,|$))`, and for everything by `.*`:
/// of all hosts, as it gives its orders to the cache by the cache's own name.
fn magento_tags(pattern: &str) -> Option<Vec<What>> {
    let mut rest = pattern.trim();
    if rest == ".*" {
        return Some(vec![What::All]);
    }
    let mut found = Vec::new();
    loop {
        let (tag, behind) = rest.strip_prefix("((^|,)")?.split_once("(,|$))")?;
        if tag.is_empty() || tag.contains(META) || tag.contains(',') {
            return None;
        }
        found.push(What::Tag(tag.as_bytes().to_vec()));
        if behind.is_empty() {
            return Some(found);
        }
        rest = behind.strip_prefix('|')?;
    }
}

/// The kind of purge that `Soft-Purge` asks for. An unknown value is an error, not the default: the
/// default is a hard purge.
fn kind_wanted(headers: &HeaderMap) -> Result<PurgeKind, PurgeFailure> {
    let mut lines = headers.get_all(SOFT_PURGE).into_iter();
    let Some(line) = lines.next() else { return Ok(PurgeKind::Hard) };
    let is = |words: &[&str]| {
        words.iter().any(|word| line.as_bytes().eq_ignore_ascii_case(word.as_bytes()))
    };
    let (yes, no) = (is(&["1", "true", "yes"]), is(&["0", "false", "no"]));
    if lines.next().is_some() || !(yes || no) {
        let text = "`Soft-Purge` is 1, true or yes, or 0, false or no".to_owned();
        return Err(PurgeFailure::BadOrder(text));
    }
    Ok(if yes { PurgeKind::Soft } else { PurgeKind::Hard })
}

/// `scheme://host/` of a URL.
fn origin_part(url: &str) -> &str {
    url.match_indices('/').nth(2).map_or(url, |(at, _)| &url[..=at])
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    type Lines<'a> = &'a [(&'static str, &'static str)];

    fn headers(lines: Lines<'_>) -> HeaderMap {
        lines.iter().map(|(n, v)| (HeaderName::from_static(n), v.parse().unwrap())).collect()
    }

    fn order_at(url: &str, lines: Lines<'_>) -> Result<(Vec<What>, PurgeKind), PurgeFailure> {
        order_of_method(&[url.to_owned()], &headers(lines), &[])
    }

    fn tags(names: &[&str]) -> Vec<What> {
        names.iter().map(|name| What::Tag(name.as_bytes().to_vec())).collect()
    }

    #[test]
    fn orders_by_method() {
        let order = |lines: Lines<'_>| order_at("http://h/a/b", lines);
        assert_eq!(order(&[]), Ok((vec![What::Url("http://h/a/b".into())], PurgeKind::Hard)));
        let soft = order(&[("soft-purge", "1"), ("purge-scope", "prefix")]);
        assert_eq!(soft, Ok((vec![What::Prefix("http://h/a/b".into())], PurgeKind::Soft)));
        let host = order(&[("purge-scope", "host")]);
        assert_eq!(host, Ok((vec![What::Prefix("http://h/".into())], PurgeKind::Hard)));
        assert_eq!(order(&[("surrogate-key", "x y")]), Ok((tags(&["x", "y"]), PurgeKind::Hard)));
        let mut latin = HeaderMap::new();
        latin.insert("surrogate-key", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        let tag = What::Tag(b"caf\xe9".to_vec());
        assert_eq!(order_of_method(&[], &latin, &[]), Ok((vec![tag], PurgeKind::Hard)));
        let group = |name: &str| What::Group(name.to_owned());
        let two = order(&[("purge-group", "shop"), ("purge-group", "page:http://h/a")]);
        assert_eq!(two, Ok((vec![group("shop"), group("page:http://h/a")], PurgeKind::Hard)));
        let both = order(&[("purge-group", "shop"), ("surrogate-key", "x"), ("soft-purge", "1")]);
        assert_eq!(both, Ok((vec![What::Tag(b"x".to_vec()), group("shop")], PurgeKind::Soft)));
        assert!(order(&[("purge-group", "shop"), ("purge-scope", "all")]).is_err());
        assert!(order(&[("purge-group", " ")]).is_err());
        assert!(order(&[("purge-scope", "group")]).is_err());
        assert!(order(&[("purge-scope", "world")]).is_err());
        assert!(order(&[("purge-scope", "url"), ("purge-scope", "all")]).is_err());
        let how = |word| order(&[("soft-purge", word)]).map(|(_, kind)| kind);
        let (soft, hard) = (PurgeKind::Soft, PurgeKind::Hard);
        for (word, kind) in [("true", soft), ("Yes", soft), ("0", hard), ("FALSE", hard)] {
            assert_eq!(how(word), Ok(kind), "{word}");
        }
        for word in ["", "2", "soft", "1, 1"] {
            assert!(matches!(how(word), Err(PurgeFailure::BadOrder(_))), "{word}");
        }
    }

    #[test]
    fn targets_that_are_patterns() {
        for (path, prefix) in [
            ("/.*", "/"),
            ("/a/b/.*", "/a/b/"),
            ("/a/b/.*$", "/a/b/"),
            ("/a", "/a"),
            ("/a/x.jpg.*", "/a/x"),
        ] {
            let order = order_at(&format!("http://h{path}"), &[("x-purge-method", "regex")]);
            let prefix = What::Prefix(format!("http://h{prefix}"));
            assert_eq!(order, Ok((vec![prefix], PurgeKind::Hard)), "{path}");
        }
        for path in ["/(a|b)", "/a.*b.*", "/a/[0-9]+", "/a?b=.*", "/a\\.b"] {
            let order = order_at(&format!("http://h{path}"), &[("x-purge-method", "regex")]);
            assert!(matches!(order, Err(PurgeFailure::BadOrder(_))), "{path}");
        }
        let url = |lines: Lines<'_>| order_at("http://h/a", lines).unwrap().0;
        for lines in [&[][..], &[("x-purge-method", "default")], &[("x-purge-method", "exact")]] {
            assert_eq!(url(lines), [What::Url("http://h/a".into())]);
            assert!(
                order_at("http://h/a.*", lines).is_err(),
                "a pattern that is not said to be one"
            );
        }
        assert!(order_at("http://h/a", &[("x-purge-method", "wild")]).is_err());
        let plain = order_at("http://h/a.*", &[("purge-scope", "url")]).unwrap().0;
        assert_eq!(plain, [What::Url("http://h/a.*".into())]);
    }

    #[test]
    fn tags_as_plugins_name_them() {
        let order = |lines: Lines<'_>| order_at("http://h/", lines).map(|(what, _)| what);
        let magento = |pattern| order(&[("x-magento-tags-pattern", pattern)]);
        assert_eq!(magento("((^|,)cat_p_1(,|$))"), Ok(tags(&["cat_p_1"])));
        assert_eq!(magento("((^|,)a(,|$))|((^|,)b(,|$))"), Ok(tags(&["a", "b"])));
        assert_eq!(magento(".*"), Ok(vec![What::All]));
        for bad in ["", "a", "a.*", "((^|,)(,|$))", "((^|,)a|b(,|$))", "((^|,)a(,|$))|", "(a)"] {
            assert!(matches!(magento(bad), Err(PurgeFailure::BadOrder(_))), "{bad}");
        }
        assert_eq!(order(&[("cache-tags", "node:1 node:2")]), Ok(tags(&["node:1", "node:2"])));
        assert_eq!(order(&[("cache-tags", "node:1|node:2")]), Ok(tags(&["node:1", "node:2"])));
        assert!(order(&[("cache-tags", "(node:1)(,.+)?$")]).is_err());
        assert_eq!(order(&[("surrogate-key", "a|b")]), Ok(tags(&["a|b"])), "one tag");
        assert!(order(&[("x-cache-tags", "a")]).is_err(), "unless it is said to have tags");
        let own = [HeaderName::from_static("x-cache-tags")];
        let own = order_of_method(&[], &headers(&[("x-cache-tags", "a,b")]), &own);
        assert_eq!(own.unwrap().0, tags(&["a", "b"]));
        assert!(order(&[("x-url", "/a/.*"), ("x-host", "h")]).is_err());
    }
}
