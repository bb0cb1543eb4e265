//! Whether a response may be for the one user whose cookie came with the request.
//!
//! Origins that tell their users apart by cookies and say nothing of caches are many: the defaults
//! of most frameworks are a tag, or the time of a change, and no `Cache-Control`. What caches may
//! guess about such a response (RFC 9111 §4.2.2, §4.2.4) would show one user's page to others.
//!
//! Invariant: whatever the origin says of sharing counts. Nothing here allocates.

use http::HeaderMap;
use http::header::{CONTENT_TYPE, COOKIE, VARY};

use crate::cache_control::ResponseDirectives;
use crate::config::CachingConfig;
use crate::freshness::{Lifetime, LifetimeSource};
use crate::list_members;

/// The lifetime of a response as far as it may be shared, and whether it may be for one user: its
/// request had a cookie, and neither a lifetime nor a stale window, nor `public`, `Vary: Cookie` or
/// its kind says that it is for others, too. It is then fresh for nobody, never served unless the
/// origin confirms it for who asks, and that by its entity tag.
pub(crate) fn judged(
    with_cookie: bool,
    response: &HeaderMap,
    directives: &ResponseDirectives,
    caching: &CachingConfig,
    lifetime: Lifetime,
) -> (Lifetime, bool) {
    let windows = [directives.stale_while_revalidate_s, directives.stale_if_error_s];
    let lasts = lifetime.source == LifetimeSource::Explicit && lifetime.seconds > 0;
    let is_personal = with_cookie
        && !lasts
        && !directives.public
        && !windows.into_iter().flatten().any(|window_s| window_s > 0)
        && !has_variants_by_cookie(response, caching)
        && !is_asset(response);
    match lifetime.source {
        LifetimeSource::Heuristic if is_personal => {
            (Lifetime { seconds: 0, source: LifetimeSource::None }, true)
        }
        _ => (lifetime, is_personal),
    }
}

fn has_variants_by_cookie(response: &HeaderMap, caching: &CachingConfig) -> bool {
    let is_cookie = |name: &[u8]| name.eq_ignore_ascii_case(COOKIE.as_str().as_bytes());
    caching.key.headers.contains(&COOKIE) || list_members(response, &VARY).any(is_cookie)
}

/// What pages are made of, and what is downloaded to be unpacked or installed. Data and documents
/// of users are not among it.
const ASSETS: [&[u8]; 25] = [
    b"text/css",
    b"text/ecmascript",
    b"text/javascript",
    b"application/ecmascript",
    b"application/javascript",
    b"application/x-javascript",
    b"application/wasm",
    b"application/font-sfnt",
    b"application/font-woff",
    b"application/font-woff2",
    b"application/x-font-ttf",
    b"application/x-font-woff",
    b"application/vnd.ms-fontobject",
    b"application/gzip",
    b"application/java-archive",
    b"application/vnd.android.package-archive",
    b"application/vnd.debian.binary-package",
    b"application/x-7z-compressed",
    b"application/x-bzip2",
    b"application/x-gzip",
    b"application/x-iso9660-image",
    b"application/x-rpm",
    b"application/x-tar",
    b"application/x-xz",
    b"application/zip",
];

/// Whether it is of a type that hardly ever is for one user.
fn is_asset(response: &HeaderMap) -> bool {
    let media_type = response.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let media_type = media_type.split(|b| *b == b';').next().unwrap_or_default().trim_ascii();
    let of = |class: &[u8]| {
        media_type.get(..class.len()).is_some_and(|start| start.eq_ignore_ascii_case(class))
    };
    [&b"image/"[..], b"font/", b"audio/", b"video/"].into_iter().any(of)
        || ASSETS.iter().any(|asset| media_type.eq_ignore_ascii_case(asset))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::test_headers as headers;

    const NOW: u64 = 784_111_777;
    const MODIFIED: (&str, &str) = ("last-modified", "Sat, 05 Nov 1994 08:49:37 GMT");

    fn judge(with_cookie: bool, lines: &[(&str, &str)], caching: &CachingConfig) -> (u64, bool) {
        let map = headers(lines);
        let directives = ResponseDirectives::of(&map, caching);
        let own = Lifetime::of(StatusCode::OK, &map, &directives, caching, NOW);
        let (lifetime, is_personal) = judged(with_cookie, &map, &directives, caching, own);
        (lifetime.seconds, is_personal)
    }

    #[test]
    fn what_the_origin_says_of_sharing_counts() {
        let caching = CachingConfig::default();
        for (says, personal) in [
            ("", true),
            ("no-cache", true),
            ("must-revalidate", true),
            ("max-age=0", true),
            ("max-age=0, must-revalidate", true),
            ("s-maxage=0, max-age=9", true),
            ("max-age=0, stale-if-error=0", true),
            ("max-age=0, stale-if-error=9", false),
            ("stale-while-revalidate=9", false),
            ("max-age=9", false),
            ("s-maxage=9", false),
            ("public", false),
            ("public, max-age=0", false),
        ] {
            let lines = [("cache-control", says), ("content-type", "text/html")];
            assert_eq!(judge(true, &lines, &caching).1, personal, "{says}");
            assert!(!judge(false, &lines, &caching).1, "{says} without a cookie");
        }
        for vary in ["Cookie", "Accept-Encoding, cookie"] {
            assert!(!judge(true, &[("vary", vary)], &caching).1, "{vary}");
        }
        assert!(judge(true, &[("vary", "Accept-Encoding")], &caching).1);
        assert!(!judge(true, &[("expires", "Sun, 06 Nov 1994 08:59:37 GMT")], &caching).1);
        assert!(judge(true, &[("expires", "0")], &caching).1);
        let mut by_cookie = CachingConfig::default();
        by_cookie.key.headers.push(COOKIE);
        assert!(!judge(true, &[], &by_cookie).1, "the operator has each cookie get its own");
    }

    #[test]
    fn only_assets_are_guessed_about() {
        let caching = CachingConfig::default();
        for (media_type, personal) in [
            ("text/html; charset=utf-8", true),
            ("application/json", true),
            ("application/xml", true),
            ("text/csv", true),
            ("application/pdf", true),
            ("application/octet-stream", true),
            ("", true),
            ("image/png", false),
            ("Image/SVG+xml", false),
            ("font/woff2", false),
            ("text/css; charset=utf-8", false),
            ("text/javascript", false),
            ("video/mp4", false),
            ("application/zip", false),
        ] {
            let lines = [("content-type", media_type), MODIFIED];
            let fresh_s = if personal { 0 } else { 8640 };
            assert_eq!(judge(true, &lines, &caching), (fresh_s, personal), "{media_type}");
            assert_eq!(judge(false, &lines, &caching), (8640, false), "{media_type}, no cookie");
        }
    }
}
