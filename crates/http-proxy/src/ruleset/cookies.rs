//! Cookies that rules take off requests.
//!
//! Invariant: the cookies that stay are as they were sent, in their order; no line is left empty.
//! Pure, no threads.

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};

use super::Glob;

/// Removes the cookies of these names. True if there were any.
pub(crate) fn remove(names: &[Glob], headers: &mut HeaderMap) -> bool {
    let is_removed = |pair: &&[u8]| {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        names.iter().any(|glob| glob.matches(name.trim_ascii()))
    };
    let pairs = |line: &'_ HeaderValue| {
        let pairs = line.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        pairs.map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let lines: Vec<_> = headers.get_all(COOKIE).iter().map(pairs).collect();
    if !lines.iter().flatten().any(|pair| is_removed(&pair.as_slice())) {
        return false;
    }
    headers.remove(COOKIE);
    for line in lines {
        let stays = |pair: &&[u8]| !pair.is_empty() && !is_removed(pair);
        let kept: Vec<&[u8]> = line.iter().map(Vec::as_slice).filter(stays).collect();
        // What was part of a value is a value.
        if let (false, Ok(value)) =
            (kept.is_empty(), HeaderValue::from_bytes(&kept.join(&b"; "[..])))
        {
            headers.append(COOKIE, value);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ruleset::Segments;

    #[test]
    fn cookies_of_these_names_are_gone_and_no_others() {
        let names: Vec<Glob> =
            ["_ga*", "utm"].iter().map(|name| Glob::new(name, Segments::None).unwrap()).collect();
        for (sent, left) in [
            (&["a=1; b=2"][..], &["a=1; b=2"][..]),
            (&["_ga=1; a=x=y;_ga_7=2; utm"], &["a=x=y"]),
            (&["a=\"q\"; utm =1;; b"], &["a=\"q\"; b"]),
            (&["_ga=1", "_gat=2; UTM=3"], &["UTM=3"]),
            (&["_ga=1; utm=2"], &[]),
            (&["x_ga=1;"], &["x_ga=1;"]),
            (&["a=\u{e9}; utm=\u{e9}"], &["a=\u{e9}"]),
            (&[], &[]),
        ] {
            let mut headers = HeaderMap::new();
            for line in sent {
                headers.append(COOKIE, HeaderValue::from_bytes(line.as_bytes()).unwrap());
            }
            assert_eq!(remove(&names, &mut headers), sent != left, "{sent:?}");
            let lines = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
            assert!(lines.eq(left.iter().map(|line| line.as_bytes())), "{sent:?} {headers:?}");
        }
    }
}
