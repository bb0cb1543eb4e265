//! Fields of parts: those that are true of one message only, and those that came with an earlier
//! part of the same version.

use crate::ranges::{slice_of, sliced_by};
use crate::support::{Message, Origin};

const DIGITS: &[u8] = b"0123456789";

/// An origin whose every message has a digest of what it holds, here simply that.
fn digesting() -> Origin {
    Origin::start(|request| {
        let mut answer = slice_of(request, DIGITS, "ETag: \"v1\"\nRepr-Digest: of all");
        let content = String::from_utf8_lossy(&answer.body).into_owned();
        for name in ["Content-Digest", "Content-MD5"] {
            answer.headers.push((name.to_owned(), content.clone()));
        }
        answer
    })
}

/// A digest is of the message that it is in, or there is none.
fn is_true(answer: &Message) -> bool {
    ["content-digest", "content-md5"]
        .iter()
        .all(|name| !answer.has(name) || answer.header(name) == answer.text())
}

/// RFC 9530 §2.
#[test]
fn digests_of_one_message_are_not_in_another() {
    for slice_bytes in [0, 4] {
        let origin = digesting();
        let proxy = sliced_by(&origin, slice_bytes);
        let whole = proxy.get("/whole");
        assert_eq!(whole.header("content-digest"), whole.text());
        assert_eq!(proxy.get("/whole").header("content-digest"), whole.text(), "a hit");
        for path in ["/whole", "/parts"] {
            for range in ["0-3", "1-2", "4-9", "2-7", "0-1,4-5", "0-9"] {
                let part = proxy.get_with(path, &format!("Range: bytes={range}"));
                // Of several ranges the origin sends the whole.
                let is_part = part.status() == 206 || range.contains(',');
                assert!(is_part && is_true(&part), "{path} {range}: {part:?}");
                assert_eq!(part.header("repr-digest"), "of all", "{path} {range}");
            }
            let whole = proxy.get(path);
            assert!(whole.status() == 200 && is_true(&whole), "{path}: {whole:?}");
        }
    }
}

/// An origin that repeats no field of the representation to whoever has a part of it.
fn sparing() -> Origin {
    Origin::start(|request| {
        let mut answer = slice_of(request, DIGITS, "ETag: \"v1\"\nCache-Groups: \"g\"");
        if request.has("if-range") {
            answer.headers.retain(|(name, _)| name != "Content-Type" && name != "Cache-Groups");
        }
        answer
    })
}

/// RFC 9111 §3.4, RFC 9110 §15.3.7.
#[test]
fn parts_that_are_joined_keep_the_fields_of_the_first() {
    let origin = sparing();
    let proxy = sliced_by(&origin, 0);
    proxy.get_with("/", "Range: bytes=0-3");
    proxy.get_with("/", "Range: bytes=4-9\nIf-Range: \"v1\"");
    let whole = proxy.get("/");
    assert!(whole.cache().contains("; hit"), "{}", whole.cache());
    assert_eq!((whole.status(), whole.body.as_slice()), (200, DIGITS));
    assert_eq!(whole.header("content-type"), "a/b");
    assert_eq!(whole.header("cache-groups"), "\"g\"");
    assert_eq!(origin.count(), 2);
}

/// RFC 9110 §15.3.7.
#[test]
fn a_part_without_the_fields_that_its_client_has_is_not_stored() {
    let origin = sparing();
    let proxy = sliced_by(&origin, 0);
    let rest = proxy.get_with("/", "Range: bytes=4-9\nIf-Range: \"v1\"");
    assert!(rest.status() == 206 && rest.cache().contains("detail=partial"), "{}", rest.cache());
    let part = proxy.get_with("/", "Range: bytes=4-9");
    assert_eq!(part.header("content-type"), "a/b");
    assert!(part.cache().contains("; stored"), "{}", part.cache());
}

/// RFC 9110 §15.3.7: nor do they come with a part that is all there is.
#[test]
fn a_part_that_is_all_has_its_fields_of_one_that_is_stored() {
    let origin = sparing();
    let proxy = sliced_by(&origin, 0);
    let all = "Range: bytes=0-9\nIf-Range: \"v1\"";
    let cold = proxy.get_with("/", all);
    assert!(cold.status() == 206 && cold.cache().contains("detail=partial"), "{}", cold.cache());
    proxy.get_with("/", "Range: bytes=0-3");
    let rest = proxy.get_with("/", all);
    assert!(rest.status() == 206 && rest.cache().contains("; stored"), "{}", rest.cache());
    let whole = proxy.get("/");
    assert!(whole.cache().contains("; hit"), "{}", whole.cache());
    assert_eq!((whole.status(), whole.body.as_slice()), (200, DIGITS));
    assert_eq!(whole.header("content-type"), "a/b");
    assert_eq!(whole.header("cache-groups"), "\"g\"");
    assert_eq!(origin.count(), 3);
}
