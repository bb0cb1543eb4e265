//! Targeted cache control, such as `CDN-Cache-Control` (RFC 9213).
//!
//! The field is a structured Dictionary: if it does not parse as one, or is empty, it is ignored as
//! a whole, and the next target is tried. Invariants: a restricting directive counts whatever its
//! value; a lifetime that is not an Integer is zero; a permitting directive counts only as Boolean
//! true.

use http::HeaderMap;
use http::header::HeaderName;
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use crate::cache_control::ResponseDirectives;
use crate::directive::{DELTA_SECONDS_MAX, field_names};

/// Directives of the first usable field among `targets`.
pub(crate) fn read(headers: &HeaderMap, targets: &[HeaderName]) -> Option<ResponseDirectives> {
    targets.iter().find_map(|name| of_field(headers, name))
}

fn of_field(headers: &HeaderMap, name: &HeaderName) -> Option<ResponseDirectives> {
    if !headers.contains_key(name) {
        return None;
    }
    let dictionary: Dictionary = Parser::new(&crate::joined(headers, name)).parse().ok()?;
    if dictionary.is_empty() {
        return None;
    }
    let mut parsed = ResponseDirectives { targeted: true, ..ResponseDirectives::default() };
    for (key, member) in &dictionary {
        apply(&mut parsed, key.as_str(), member);
    }
    Some(parsed)
}

fn apply(parsed: &mut ResponseDirectives, key: &str, member: &ListEntry) {
    match key {
        "no-store" => parsed.no_store = true,
        "no-cache" => parsed.no_cache |= qualify(member, &mut parsed.no_cache_fields),
        "private" => parsed.private |= qualify(member, &mut parsed.private_fields),
        "must-revalidate" => {
            parsed.must_revalidate = true;
            parsed.shareable |= is_true(member);
        }
        "proxy-revalidate" => parsed.proxy_revalidate = true,
        "public" => {
            parsed.public = is_true(member);
            parsed.shareable |= parsed.public;
        }
        "must-understand" => parsed.must_understand = is_true(member),
        "immutable" => parsed.immutable = is_true(member),
        "max-age" => parsed.max_age = Some(seconds_or_none(member)),
        "s-maxage" => {
            parsed.s_maxage = Some(seconds_or_none(member));
            parsed.shareable |= seconds(member).is_some();
        }
        "stale-while-revalidate" => {
            parsed.stale_while_revalidate_s = Some(seconds_or_none(member));
        }
        "stale-if-error" => parsed.stale_if_error_s = Some(seconds_or_none(member)),
        _ => {}
    }
}

fn bare(member: &ListEntry) -> Option<&BareItem> {
    match member {
        ListEntry::Item(item) => Some(&item.bare_item),
        ListEntry::InnerList(_) => None,
    }
}

fn is_true(member: &ListEntry) -> bool {
    matches!(bare(member), Some(BareItem::Boolean(true)))
}

/// The seconds of a directive in its defined form.
fn seconds(member: &ListEntry) -> Option<u64> {
    match bare(member) {
        Some(BareItem::Integer(value)) => {
            let seconds = u64::try_from(i64::from(*value)).ok()?;
            Some(seconds.min(DELTA_SECONDS_MAX))
        }
        _ => None,
    }
}

/// In another form a directive is as strict as it can be.
fn seconds_or_none(member: &ListEntry) -> u64 {
    seconds(member).unwrap_or(0)
}

/// Adds field names; true if the directive is unqualified.
fn qualify(member: &ListEntry, fields: &mut Vec<HeaderName>) -> bool {
    match bare(member) {
        Some(BareItem::String(text)) => field_names(text.as_str().as_bytes(), fields),
        Some(BareItem::Token(token)) => field_names(token.as_str().as_bytes(), fields),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CachingConfig;
    use crate::test_headers as headers;

    fn directives(lines: &[(&str, &str)]) -> ResponseDirectives {
        ResponseDirectives::of(&headers(lines), &CachingConfig::default())
    }

    /// RFC 9213 §2.1, §2.2.
    #[test]
    fn targeted_fields_go_first_if_they_are_usable() {
        let cdn = "cdn-cache-control";
        for (value, max_age, targeted) in [
            ("max-age=60", Some(60), true),
            ("max-age=60;x=1", Some(60), true),
            ("foo, max-age=60", Some(60), true),
            ("max-age=1, max-age=60", Some(60), true),
            ("max-age=99999999999", Some(DELTA_SECONDS_MAX), true),
            ("max-age=-5", Some(0), true),
            ("max-age=1.5", Some(0), true),
            ("max-age=\"60\"", Some(0), true),
            ("max-age", Some(0), true),
            ("foo", None, true),
            ("", Some(5), false),
            ("max-age=60,", Some(5), false),
            ("max-age= 60", Some(5), false),
            ("max-age =60", Some(5), false),
            ("MAX-AGE=60", Some(5), false),
            ("max-age=60, foo=&", Some(5), false),
        ] {
            let cc = directives(&[(cdn, value), ("cache-control", "max-age=5, no-store")]);
            assert_eq!((cc.max_age, cc.targeted), (max_age, targeted), "{value}");
            assert_eq!(cc.no_store, !targeted, "{value}");
        }
        let two = directives(&[(cdn, "max-age=1"), (cdn, "private=\"x\", no-cache")]);
        assert!(two.no_cache && !two.private, "lines are one dictionary");
        assert_eq!(two.private_fields, ["x"]);
    }

    /// RFC 9213 §2.1, RFC 9111 §5.2.2: what restricts counts whatever its value, what permits only
    /// as true.
    #[test]
    fn each_directive_by_its_type() {
        let of = |value| directives(&[("cdn-cache-control", value)]);
        let none = ResponseDirectives { targeted: true, ..ResponseDirectives::default() };
        for (value, expected) in [
            ("no-store=?0", ResponseDirectives { no_store: true, ..none.clone() }),
            ("no-cache=?0", ResponseDirectives { no_cache: true, ..none.clone() }),
            ("private=(x)", ResponseDirectives { private: true, ..none.clone() }),
            ("must-revalidate=0", ResponseDirectives { must_revalidate: true, ..none.clone() }),
            ("proxy-revalidate", ResponseDirectives { proxy_revalidate: true, ..none.clone() }),
            ("must-understand", ResponseDirectives { must_understand: true, ..none.clone() }),
            ("must-understand=1", none.clone()),
            ("immutable", ResponseDirectives { immutable: true, ..none.clone() }),
            ("immutable=?0", none.clone()),
            ("public=?0", none.clone()),
            ("public=\"\"", none.clone()),
            ("public", ResponseDirectives { public: true, shareable: true, ..none.clone() }),
            (
                "s-maxage=7",
                ResponseDirectives { s_maxage: Some(7), shareable: true, ..none.clone() },
            ),
            ("s-maxage", ResponseDirectives { s_maxage: Some(0), ..none.clone() }),
            (
                "stale-while-revalidate=5, stale-if-error=6",
                ResponseDirectives {
                    stale_while_revalidate_s: Some(5),
                    stale_if_error_s: Some(6),
                    ..none.clone()
                },
            ),
            (
                "stale-while-revalidate, stale-if-error=soon",
                ResponseDirectives {
                    stale_while_revalidate_s: Some(0),
                    stale_if_error_s: Some(0),
                    ..none.clone()
                },
            ),
            (
                "private=set-cookie, no-cache=\"x, y\"",
                ResponseDirectives {
                    private_fields: vec![http::header::SET_COOKIE],
                    no_cache_fields: ["x", "y"].map(HeaderName::from_static).to_vec(),
                    ..none.clone()
                },
            ),
        ] {
            assert_eq!(of(value), expected, "{value}");
        }
    }

    #[test]
    fn the_list_of_targets_is_configurable() {
        let lines = &[("cdn-cache-control", "max-age=1"), ("our-cache-control", "max-age=2")];
        let mut caching = CachingConfig::default();
        caching.targeted.insert(0, HeaderName::from_static("our-cache-control"));
        assert_eq!(ResponseDirectives::of(&headers(lines), &caching).max_age, Some(2));
        caching.targeted.clear();
        assert_eq!(ResponseDirectives::of(&headers(lines), &caching).max_age, None);
    }
}
