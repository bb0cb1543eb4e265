//! Which variant of a resource answers a request (RFC 9111 §4.1).
//!
//! Invariants: two requests get the same secondary key only if every header that `Vary` names is
//! absent from both or equal in both after joining lines and normalising whitespace around
//! commas. The key is unambiguous because header values contain no byte below 0x09.

use http::HeaderMap;
use http::header::{HeaderName, VARY};

use super::list_members;

/// Most header names that one `Vary` may list; more count as `*`.
pub(crate) const VARY_NAMES_MAX: usize = 16;

const ABSENT: u8 = 0x01;
const PRESENT: u8 = 0x02;
const END: u8 = 0x00;

/// What a response says it varies on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Vary {
    /// Nothing: one response for all.
    Nothing,
    /// These request headers, sorted and without repetition.
    Names(Vec<HeaderName>),
    /// Something beyond the request: matches nothing.
    Star,
}

/// Reads `Vary`. A name that is not one counts as `*`.
pub(crate) fn of(response: &HeaderMap) -> Vary {
    let mut names = Vec::new();
    for member in list_members(response, &VARY) {
        match HeaderName::from_bytes(member) {
            Ok(name) if member != b"*" => names.push(name),
            _ => return Vary::Star,
        }
    }
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names.dedup();
    match names.len() {
        0 => Vary::Nothing,
        1..=VARY_NAMES_MAX => Vary::Names(names),
        _ => Vary::Star,
    }
}

/// Appends to `key` the values this request has for `names`.
pub(crate) fn secondary_key(names: &[HeaderName], request: &HeaderMap, key: &mut Vec<u8>) {
    for name in names {
        key.extend_from_slice(name.as_str().as_bytes());
        if !request.contains_key(name) {
            key.extend_from_slice(&[ABSENT, END]);
            continue;
        }
        key.push(PRESENT);
        let start = key.len();
        for member in list_members(request, name) {
            if key.len() > start {
                key.push(b',');
            }
            key.extend_from_slice(member);
        }
        key.push(END);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn names_are_sorted_and_star_wins() {
        let names = |text: &[(&str, &str)]| of(&headers(text));
        assert_eq!(names(&[]), Vary::Nothing);
        assert_eq!(names(&[("vary", " , ")]), Vary::Nothing);
        assert_eq!(names(&[("vary", "a, *")]), Vary::Star);
        assert_eq!(names(&[("vary", "b c")]), Vary::Star);
        let expected = Vary::Names(vec!["a".parse().unwrap(), "b".parse().unwrap()]);
        assert_eq!(names(&[("vary", "B, a"), ("vary", "A")]), expected);
        let many: Vec<String> = (0..=VARY_NAMES_MAX).map(|n| format!("h{n}")).collect();
        assert_eq!(names(&[("vary", &many.join(","))]), Vary::Star);
    }

    #[test]
    fn which_requests_match() {
        let names: Vec<HeaderName> = vec!["accept".parse().unwrap(), "x".parse().unwrap()];
        let key = |lines: &[(&str, &str)]| {
            let mut key = Vec::new();
            secondary_key(&names, &headers(lines), &mut key);
            key
        };
        for (a, b, same) in [
            (vec![("accept", "a,b")], vec![("accept", " a , b ")], true),
            (vec![("accept", "a"), ("accept", "b")], vec![("accept", "a, b")], true),
            (vec![("accept", "a")], vec![("accept", "A")], false),
            (vec![("accept", "a,b")], vec![("accept", "b,a")], false),
            (vec![("accept", "")], vec![], false),
            (vec![("accept", "x")], vec![("x", "x")], false),
            (vec![("other", "1")], vec![("other", "2")], true),
        ] {
            assert_eq!(key(&a) == key(&b), same, "{a:?} {b:?}");
        }
    }
}
