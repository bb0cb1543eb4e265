//! Tables for validation.

use super::*;
use crate::test_headers as headers;

/// RFC 9111 §4.3.1.
#[test]
fn origin_conditions_replace_those_of_the_client() {
    let mut request = headers(&[
        ("if-none-match", "\"client\""),
        ("if-match", "\"x\""),
        ("range", "bytes=0-1"),
        ("if-range", "\"x\""),
    ]);
    assert!(make_conditional(&mut request, &headers(&[("etag", "\"ours\"")])));
    assert_eq!(request[IF_NONE_MATCH], "\"ours\"");
    assert_eq!(request.len(), 1);
    assert!(!make_conditional(&mut request, &headers(&[])));
    assert!(request.is_empty());
    let dated = headers(&[("etag", "W/\"a\""), ("last-modified", "then")]);
    assert!(make_conditional(&mut request, &dated));
    assert_eq!(request[IF_MODIFIED_SINCE], "then");
    // Beside an `If-None-Match`, even an empty one, an origin ignores the date.
    let empty = headers(&[("etag", ""), ("last-modified", "then")]);
    assert!(make_conditional(&mut request, &empty));
    assert_eq!(request.keys().collect::<Vec<_>>(), [IF_MODIFIED_SINCE]);
    assert!(!make_conditional(&mut request, &headers(&[("etag", "")])));
}

/// RFC 9110 §13.1, §14.2: an origin that knows none of them answers with the whole.
#[test]
fn no_condition_is_left() {
    let conditions = [
        "if-none-match",
        "if-modified-since",
        "if-match",
        "if-unmodified-since",
        "if-range",
        "range",
    ];
    let mut request = headers(&conditions.map(|name| (name, "x")));
    request.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    remove_conditions(&mut request);
    assert_eq!(request.keys().collect::<Vec<_>>(), ["accept-encoding"]);
}

/// RFC 9111 §4.3.1.
#[test]
fn several_variants_are_asked_about_at_once() {
    let tags = [&[("etag", "\"1\"")][..], &[], &[("etag", "W/\"2\"")], &[("etag", " ")]];
    let variants = tags.map(headers);
    let mut request = headers(&[("if-none-match", "\"client\"")]);
    assert!(make_conditional_on_any(&mut request, variants.iter()));
    assert_eq!(request[IF_NONE_MATCH], "\"1\", W/\"2\"");
    assert!(!make_conditional_on_any(&mut request, variants[1..2].iter()));
    let tags = |n: usize| headers(&[("etag", &format!("\"{n}\""))]);
    let many: Vec<_> = (0..TAGS_SENT_MAX + 5).map(tags).collect();
    assert!(make_conditional_on_any(&mut request, many.iter()));
    let sent = request[IF_NONE_MATCH].to_str().unwrap();
    assert_eq!(sent.split(", ").count(), TAGS_SENT_MAX);
    let alike = [tags(1), tags(2), tags(1)];
    assert!(make_conditional_on_any(&mut request, alike.iter()));
    assert_eq!(request[IF_NONE_MATCH], "\"1\", \"2\"", "each once");
}

/// RFC 9111 §3.2: what [`merge`] would leave as it is.
#[test]
fn a_304_that_repeats_what_is_stored_changes_nothing() {
    let stored = [("date", "now"), ("etag", "\"1\""), ("x", "1"), ("x", "2")];
    let kept = headers(&stored);
    for (news, expected) in [
        (&[][..], true),
        (&[("x", "1"), ("x", "2"), ("etag", "\"1\""), ("date", "now")], true),
        (&[("connection", "keep-alive"), ("keep-alive", "timeout=5")], true),
        (&[("content-length", "0"), ("content-encoding", "br")], true),
        (&[("date", "later")], false),
        (&[("x", "1")], false),
        (&[("x", "2"), ("x", "1")], false),
        (&[("age", "0")], false),
        (&[("etag", "W/\"1\"")], false),
        (&[("set-cookie", "a=b")], false),
        (&[("y", "1")], false),
    ] {
        let response = headers(news);
        assert_eq!(repeats(&kept, &response), expected, "{news:?}");
        if expected {
            assert_eq!(merge(&kept, &response, &CachingConfig::default(), 0).len(), kept.len());
        }
    }
    let with_cookie = headers(&[("set-cookie", "a=b")]);
    assert!(!repeats(&with_cookie, &headers(&[])), "the cookie was for the earlier client");
}

#[test]
fn which_variants_may_stand_for_another() {
    let gzip = ("content-encoding", "gzip");
    let coded = ("vary", "cookie, Accept-Encoding");
    for (request, variant, expected) in [
        (&[][..], &[("etag", "\"1\"")][..], true),
        (&[], &[("etag", "W/\"1\"")], false),
        (&[], &[], false),
        (&[], &[("etag", "")], false),
        (&[], &[("etag", "\"1\""), gzip], false),
        (&[("accept-encoding", "br, GZIP")], &[("etag", "\"1\""), gzip], true),
        (&[("accept-encoding", "gzip;q=0")], &[("etag", "\"1\""), gzip], false),
        // What was not compressed for one client is not asked about for one that takes it so.
        (&[("accept-encoding", "gzip, br")], &[("etag", "\"1\""), coded], false),
        (&[("accept-encoding", "gzip")], &[("etag", "\"1\""), ("vary", "cookie")], true),
        (&[("accept-encoding", "identity")], &[("etag", "\"1\""), coded], true),
        (&[], &[("etag", "\"1\""), coded], true),
        (&[("accept-encoding", "gzip")], &[("etag", "\"1\""), coded, gzip], true),
    ] {
        let got = may_stand_for_another(&headers(request), &headers(variant));
        assert_eq!(got, expected, "{request:?} {variant:?}");
    }
}

/// RFC 9111 §4.3.4.
#[test]
fn which_stored_responses_a_304_means() {
    let one = [&[("etag", "\"1\"")][..]];
    let several = [
        &[("etag", "\"1\"")][..],
        &[("etag", "\"2\"")],
        &[("etag", "W/\"3\""), ("last-modified", "then")],
        &[("etag", "W/\"3\"")],
        &[("etag", "\"2\"")],
        &[("last-modified", "then")],
    ];
    for (response, candidates, expected) in [
        (&[("etag", "\"2\"")][..], &several[..], &[1, 4][..]),
        (&[("etag", "\"9\"")], &several, &[]),
        (&[("etag", "W/\"3\"")], &several, &[2]),
        (&[("etag", "W/\"1\"")], &several, &[0]),
        (&[("last-modified", "then")], &several, &[2]),
        (&[("last-modified", "now")], &several, &[]),
        (&[], &several, &[]),
        (&[], &one, &[0]),
        (&[("etag", "\"2\"")], &one, &[]),
        (&[("last-modified", "now")], &one, &[]),
        (&[("etag", "\"3\"")], &several[2..3], &[0]),
        (&[("etag", "\"3\"")], &several, &[]),
        (&[("etag", ""), ("last-modified", "then")], &several, &[2]),
        (&[("etag", "")], &[&[("etag", "")], &[("etag", "")]], &[]),
    ] {
        let maps: Vec<HeaderMap> = candidates.iter().map(|lines| headers(lines)).collect();
        let refs: Vec<&HeaderMap> = maps.iter().collect();
        assert_eq!(updated_by_304(&headers(response), &refs), expected, "{response:?}");
    }
}

/// RFC 9111 §3.2, §4.3.4.
#[test]
fn merging() {
    let stored = headers(&[
        ("etag", "\"1\""),
        ("content-type", "text/css"),
        ("content-encoding", "br"),
        ("x-old", "kept"),
        ("x-two", "a"),
        ("x-two", "b"),
        ("cache-control", "max-age=1"),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    ]);
    let response = headers(&[
        ("etag", "\"1\""),
        ("content-type", "text/plain"),
        ("content-length", "0"),
        ("content-encoding", "gzip"),
        ("content-range", "bytes 0-1/2"),
        ("x-two", "c"),
        ("x-new", "d"),
        ("set-cookie", "e=f"),
        ("cache-control", "max-age=9"),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("age", "4"),
    ]);
    let merged = merge(&stored, &response, &CachingConfig::default(), 784_111_999);
    let all: Vec<_> = merged.get_all("x-two").iter().collect();
    assert_eq!(all, ["c"]);
    for (name, value) in [
        ("content-type", "text/plain"),
        ("content-encoding", "br"),
        ("x-old", "kept"),
        ("x-new", "d"),
        ("set-cookie", "e=f"),
        ("cache-control", "max-age=9"),
        ("date", "Sun, 06 Nov 1994 08:53:19 GMT"),
    ] {
        assert_eq!(merged[name], value);
    }
    for name in ["age", "x-hop", "content-length", "content-range"] {
        assert!(!merged.contains_key(name), "{name}");
    }
}

/// RFC 9111 §3.2, RFC 9530 §3: what equals the stored response weakly may consist of other bytes.
#[test]
fn a_304_does_not_describe_other_bytes() {
    for name in ["content-md5", "content-digest", "repr-digest", "digest"] {
        let with = |value| headers(&[("etag", "W/\"1\""), (name, value)]);
        let merged = merge(&with("old"), &with("new"), &CachingConfig::default(), 0);
        assert_eq!(merged[name], "old");
        let merged = merge(&headers(&[]), &with("new"), &CachingConfig::default(), 0);
        assert!(!merged.contains_key(name), "{name}");
    }
}

/// Servers that compress as they send have a weak tag for that, and a strong one in their 304.
#[test]
fn a_304_does_not_make_a_weak_tag_strong() {
    for (old, new, expected) in [
        ("W/\"1\"", "\"1\"", "W/\"1\""),
        ("W/\"1\"", "W/\"1\"", "W/\"1\""),
        ("\"1\"", "W/\"1\"", "W/\"1\""),
        ("\"1\"", "\"1\"", "\"1\""),
        ("W/\"1\"", "\"2\"", "\"2\""),
    ] {
        let merged = merge(
            &headers(&[("etag", old)]),
            &headers(&[("etag", new)]),
            &CachingConfig::default(),
            0,
        );
        assert_eq!(merged["etag"], expected, "{old} and {new}");
    }
}

#[test]
fn a_304_can_newly_forbid_a_field() {
    let stored = headers(&[("x-user", "me"), ("cache-control", "max-age=1")]);
    let response = headers(&[("cache-control", "max-age=9, private=\"x-user\"")]);
    assert!(!merge(&stored, &response, &CachingConfig::default(), 0).contains_key("x-user"));
}

/// RFC 9111 §4.3.5.
#[test]
fn what_a_head_shows() {
    use HeadEffect::{None as Nothing, Stale, Update};
    let stored = headers(&[("etag", "\"1\""), ("last-modified", "then")]);
    let dated = headers(&[("last-modified", "then")]);
    let none = headers(&[]);
    // What it shows if the HEAD asked about what is stored, and if it did not.
    for (status, lines, stored, asked, unasked) in [
        (200, &[("etag", "\"1\"")][..], &stored, Update, Update),
        (200, &[("etag", "\"1\""), ("content-length", "7")], &stored, Update, Update),
        (200, &[("etag", "\"1\""), ("content-length", "8")], &stored, Stale, Stale),
        (200, &[("etag", "\"1\""), ("content-length", "junk")], &stored, Stale, Stale),
        (200, &[("etag", "\"2\"")], &stored, Stale, Stale),
        (200, &[("etag", "\"1\""), ("last-modified", "now")], &stored, Stale, Stale),
        (200, &[("last-modified", "now")], &stored, Stale, Stale),
        // To the tag that was asked about the origin has said no.
        (200, &[("last-modified", "then")], &stored, Stale, Update),
        (200, &[("last-modified", "then")], &dated, Update, Update),
        (200, &[("content-length", "7")], &stored, Stale, Update),
        (200, &[("content-length", "7")], &none, Stale, Update),
        // They count where they are received.
        (200, &[], &stored, Stale, Update),
        (200, &[], &none, Stale, Update),
        (200, &[("etag", "\"1\"")], &none, Stale, Stale),
        // Says something of this request: of who asked, and how.
        (206, &[("etag", "\"2\"")], &stored, Nothing, Nothing),
        (401, &[], &stored, Nothing, Nothing),
        (404, &[], &stored, Nothing, Nothing),
        (410, &[], &stored, Nothing, Nothing),
        (503, &[], &stored, Nothing, Nothing),
        (304, &[], &stored, Nothing, Nothing),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        for (was_asked_about, expected) in [(true, asked), (false, unasked)] {
            let stored = Compared { was_asked_about, ..compared(stored) };
            let got = head_effect(stored, status, &headers(lines));
            assert_eq!(got, expected, "{status} {lines:?}, asked: {was_asked_about}");
        }
    }
    for (status, expected) in [(200, Stale), (404, Nothing), (410, Nothing)] {
        let status = StatusCode::from_u16(status).unwrap();
        let stored = Compared { status: StatusCode::NOT_FOUND, ..compared(&none) };
        assert_eq!(head_effect(stored, status, &none), expected, "{status} after a stored 404");
    }
}

fn compared(headers: &HeaderMap) -> Compared<'_> {
    let (status, length_bytes) = (StatusCode::OK, Some(7));
    let (is_personal, was_asked_about, is_for_sender) = (false, false, false);
    Compared { status, headers, length_bytes, is_personal, was_asked_about, is_for_sender }
}

/// A page for one user may lack the validators of the one for all.
#[test]
fn what_is_for_its_sender_shows_nothing_by_silence() {
    let stored = headers(&[("etag", "\"1\"")]);
    for (lines, expected) in [
        (&[][..], HeadEffect::None),
        (&[("etag", "\"1\"")], HeadEffect::Update),
        (&[("content-length", "7")], HeadEffect::Update),
        (&[("content-length", "8")], HeadEffect::Stale),
    ] {
        let stored = Compared { is_for_sender: true, ..compared(&stored) };
        assert_eq!(head_effect(stored, StatusCode::OK, &headers(lines)), expected, "{lines:?}");
    }
}

/// Pages of all users may be of one date and one length.
#[test]
fn only_its_tag_shows_that_a_page_for_one_is_the_same() {
    let stored = headers(&[("etag", "\"1\""), ("last-modified", "then")]);
    for (lines, expected) in [
        (&[("etag", "\"1\"")][..], HeadEffect::Update),
        (&[("last-modified", "then"), ("content-length", "7")], HeadEffect::Stale),
        (&[], HeadEffect::Stale),
    ] {
        for was_asked_about in [true, false] {
            let stored = Compared { is_personal: true, was_asked_about, ..compared(&stored) };
            let got = head_effect(stored, StatusCode::OK, &headers(lines));
            assert_eq!(got, expected, "{lines:?}, asked: {was_asked_about}");
        }
    }
}

/// RFC 9110 §15.4.5.
#[test]
fn a_304_does_not_describe_a_body() {
    let mut map = headers(&[("content-type", "a/b"), ("content-length", "1"), ("etag", "\"1\"")]);
    for name in ["content-encoding", "content-range", "content-language"] {
        map.insert(name, HeaderValue::from_static("x"));
    }
    headers_for_304(&mut map);
    assert_eq!(map.keys().collect::<Vec<_>>(), ["etag"]);
}

/// A 304 sets the cookie of who asked; what is stored gets it only where the origin lets it be
/// shared.
#[test]
fn a_304_sets_no_cookie_for_others() {
    use crate::config::SetCookie;
    let old = ("last-modified", "Sun, 06 Nov 1994 08:00:00 GMT");
    let news = headers(&[old, ("set-cookie", "session=2")]);
    for (set_cookie, stored, expected) in [
        (SetCookie::Store, headers(&[old]), false),
        (SetCookie::Store, headers(&[old, ("cache-control", "max-age=9")]), true),
        (SetCookie::Strip, headers(&[old, ("cache-control", "max-age=9")]), false),
    ] {
        let caching = CachingConfig { set_cookie, ..CachingConfig::default() };
        let merged = merge(&stored, &news, &caching, 784_111_777);
        assert_eq!(merged.contains_key(SET_COOKIE), expected, "{set_cookie:?} {stored:?}");
    }
}
