//! Parts of resources: cut from what is stored whole, stored as they come, and joined.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};

use damelo_http_proxy::Settings;

use crate::support::{
    Gate, Message, Origin, Proxy, Reply, date, eventually, noise, read_some, reply, send_to,
};

const DIGITS: &str = "0123456789";

fn digits(extra: &'static str) -> Origin {
    Origin::start(move |_| {
        reply(200, &format!("Cache-Control: max-age=60\nContent-Type: a/b\n{extra}"), DIGITS)
    })
}

/// An origin that cuts the ranges out itself, and says so.
fn slicing(extra: &'static str) -> Origin {
    Origin::start(move |request| slice_of(request, DIGITS.as_bytes(), extra))
}

/// Noise of this length, and an origin that has it, and parts of it, in one version.
pub(crate) fn noise_in_parts(seed: u64, length: usize) -> (Vec<u8>, Origin) {
    let all = noise(seed, length);
    let sent = all.clone();
    (all, Origin::start(move |request| slice_of(request, &sent, "ETag: \"v1\"")))
}

pub(crate) fn slice_of(request: &Message, all: &[u8], extra: &str) -> Reply {
    let headers = format!("Cache-Control: max-age=60\nContent-Type: a/b\n{extra}");
    let Some((first, last)) = request.header("range").strip_prefix("bytes=").and_then(|spec| {
        let (first, last) = spec.split_once('-')?;
        let last = last.parse::<usize>().ok()?;
        match first {
            "" => Some((all.len().saturating_sub(last), all.len() - 1)),
            first => Some((first.parse::<usize>().ok()?, last)),
        }
    }) else {
        return reply(200, &headers, all);
    };
    let last = last.min(all.len() - 1);
    let range = format!("{headers}\nContent-Range: bytes {first}-{last}/{}", all.len());
    reply(206, &range, &all[first..=last])
}

#[test]
fn ranges_of_a_stored_whole() {
    let origin = digits("ETag: \"v1\"");
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    for (range, status, body, content_range) in [
        ("bytes=2-5", 206, "2345", "bytes 2-5/10"),
        ("bytes=7-", 206, "789", "bytes 7-9/10"),
        ("bytes=-3", 206, "789", "bytes 7-9/10"),
        ("bytes=0-3, 2-5", 206, "012345", "bytes 0-5/10"),
        ("bytes=5-2", 200, DIGITS, ""),
        ("lines=1-2", 200, DIGITS, ""),
    ] {
        let answer = proxy.get_with("/", &format!("Range: {range}"));
        assert_eq!((answer.status(), answer.text().as_str()), (status, body), "{range}");
        assert_eq!(answer.header("content-range"), content_range, "{range}");
        assert_eq!(answer.header("content-length"), body.len().to_string());
        assert!(answer.cache().contains("; hit") && answer.has("age"), "{}", answer.cache());
    }
    proxy.pass_seconds(5);
    let beyond = proxy.get_with("/", "Range: bytes=10-");
    assert_eq!((beyond.status(), beyond.header("content-range").as_str()), (416, "bytes */10"));
    assert_eq!((beyond.age(), beyond.header("etag").as_str()), (Some(5), "\"v1\""));
    let head = proxy.ask("HEAD", "/", "Range: bytes=2-5");
    assert_eq!((head.status(), head.header("content-length").as_str()), (200, "10"));
    assert_eq!(origin.count(), 1);
}

#[test]
fn several_ranges_come_as_multipart() {
    let origin = digits("");
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    let answer = proxy.get_with("/", "Range: bytes=0-1, 4-5, -1");
    assert_eq!(answer.status(), 206);
    assert!(answer.complete && !answer.has("content-range"));
    let content_type = answer.header("content-type");
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let text = answer.text();
    let parts: Vec<&str> = text.split(&format!("--{boundary}")).collect();
    assert_eq!((parts.len(), parts[0], parts[4]), (5, "", "--\r\n"), "{text}");
    for (part, (range, body)) in parts[1..].iter().zip([("0-1", "01"), ("4-5", "45"), ("9-9", "9")])
    {
        let head = format!("\r\ncontent-type: a/b\r\ncontent-range: bytes {range}/10\r\n\r\n");
        assert_eq!(*part, format!("{head}{body}\r\n"));
    }
}

#[test]
fn ranges_of_a_large_stored_body() {
    const LENGTH: usize = 3 << 20;
    let body = noise(11, LENGTH);
    let sent = body.clone();
    let origin = Origin::start(move |_| reply(200, "Cache-Control: max-age=60", sent.clone()));
    let proxy = Proxy::start(&origin);
    assert_eq!(proxy.get("/").body.len(), LENGTH);
    eventually("the fill is done", || proxy.get("/").cache().contains("; hit"));
    let asked = origin.count();
    let (from, to) = (1_000_001, 2_500_000);
    let answer = proxy.get_with("/", &format!("Range: bytes={from}-{}", to - 1));
    assert_eq!(answer.status(), 206);
    assert!(answer.complete && answer.body[..] == body[from..to]);
    let answer = proxy.get_with("/", &format!("Range: bytes=5-300000,{from}-{}", to - 1));
    assert!(answer.complete, "the announced length is right");
    let holds = |part: &[u8]| {
        answer.body.windows(64).any(|w| *w == part[..64])
            && answer.body.windows(64).any(|w| *w == part[part.len() - 64..])
    };
    assert!(holds(&body[5..300_001]) && holds(&body[from..to]));
    assert_eq!(origin.count(), asked);
}

/// Puts something else where the sections of large bodies lie, from the second on: they seem to be
/// there until they are read, as when they go just then.
fn take_later_sections(proxy: &Proxy) {
    proxy.store.sync().expect("synced");
    let keys = proxy.store.entries().map(|entry| entry.expect("an entry").key);
    let later: Vec<Vec<u8>> = keys.filter(|key| is_later_section(key)).collect();
    assert!(!later.is_empty(), "there are sections");
    for key in later {
        proxy.store.create(&key, damelo::GroupId::new(1), b"x").wait().expect("stored");
    }
}

fn is_later_section(key: &[u8]) -> bool {
    let Some((before, number)) = key.split_last_chunk::<8>() else { return false };
    before.len() > 9
        && before[before.len() - 9] == 1
        && (1..9).contains(&u64::from_be_bytes(*number))
}

#[test]
fn what_is_gone_when_it_is_begun_with_is_a_miss() {
    const LENGTH: usize = 3 << 20;
    let body = noise(12, LENGTH);
    let sent = body.clone();
    let origin = Origin::start(move |request| match request.header("if-none-match").as_str() {
        "\"v1\"" => reply(304, "ETag: \"v1\"\nCache-Control: max-age=60", ""),
        _ => reply(200, "ETag: \"v1\"\nCache-Control: max-age=60", sent.clone()),
    });
    let proxy = Proxy::start(&origin);
    let from = LENGTH - 100;
    let ask = || proxy.get_with("/", &format!("Range: bytes={from}-{}", LENGTH - 1));
    let fill = || {
        assert_eq!(proxy.get("/").body.len(), LENGTH);
        eventually("the fill is done", || ask().cache().contains("; hit"));
    };
    fill();
    take_later_sections(&proxy);
    let asked = origin.count();
    let answer = ask();
    assert!(answer.complete, "an answer that is begun is given to its end: {answer:?}");
    assert!(answer.cache().contains("fwd="), "{}", answer.cache());
    assert!(answer.body.ends_with(&body[from..]));
    assert!(origin.count() > asked);
    fill();
    take_later_sections(&proxy);
    proxy.pass_seconds(61);
    let asked = origin.count();
    let answer = ask();
    assert!(answer.complete && answer.body.ends_with(&body[from..]), "{answer:?}");
    assert_eq!(origin.count(), asked + 2, "validated, and fetched because it was gone");
}

#[test]
fn if_range_decides_between_part_and_whole() {
    let origin = digits("ETag: \"v1\"");
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    for (value, status) in [("\"v1\"", 206), ("\"v2\"", 200), ("W/\"v1\"", 200), ("junk", 200)] {
        let answer = proxy.get_with("/", &format!("Range: bytes=0-1\nIf-Range: {value}"));
        assert_eq!(answer.status(), status, "{value}");
    }
}

#[test]
fn a_part_is_stored_and_answers_for_its_bytes() {
    let origin = slicing("ETag: \"v1\"");
    let proxy = sliced_by(&origin, 0);
    let miss = proxy.get_with("/", "Range: bytes=2-6");
    assert_eq!((miss.status(), miss.text().as_str()), (206, "23456"));
    assert_eq!(origin.last().header("range"), "bytes=2-6", "asked for as it is");
    for (range, body) in [("2-6", "23456"), ("3-4", "34"), ("6-6", "6")] {
        let hit = proxy.get_with("/", &format!("Range: bytes={range}"));
        assert!(hit.cache().contains("; hit"), "{range}: {}", hit.cache());
        assert_eq!((hit.status(), hit.text().as_str()), (206, body));
        assert_eq!(hit.header("content-range"), format!("bytes {range}/10"));
    }
    assert_eq!(origin.count(), 1);
    assert_eq!(proxy.get_with("/", "Range: bytes=99-").status(), 416, "the length is known");
    let whole = proxy.get("/");
    assert!(whole.cache().contains("fwd=partial"), "{}", whole.cache());
    assert_eq!((whole.status(), whole.text().as_str()), (200, DIGITS));
    let hit = proxy.get_with("/", "Range: bytes=0-1");
    assert!(hit.cache().contains("; hit"), "the whole has taken its place");
}

#[test]
fn parts_are_joined_until_they_are_whole() {
    let origin = slicing("ETag: \"v1\"");
    let proxy = sliced_by(&origin, 0);
    for range in ["0-3", "3-5", "6-9"] {
        let part = proxy.get_with("/", &format!("Range: bytes={range}"));
        assert!(part.cache().contains("; stored"), "{}", part.cache());
    }
    assert_eq!(origin.count(), 3);
    let hit = proxy.get_with("/", "Range: bytes=1-8");
    assert!(hit.cache().contains("; hit") && hit.text() == "12345678", "{}", hit.cache());
    let whole = proxy.get("/");
    assert!(whole.cache().contains("; hit"), "{}", whole.cache());
    assert_eq!((whole.status(), whole.text().as_str()), (200, DIGITS));
    assert!(!whole.has("content-range"));
    assert_eq!(origin.count(), 3);
}

/// What is joined is written anew with each part: without an end, the bytes written would grow with
/// the square of the length.
#[test]
fn parts_are_joined_only_up_to_what_lies_in_one_piece() {
    const PART: usize = 32 << 10;
    let (body, origin) = noise_in_parts(36, 8 * PART);
    let proxy = Proxy::start_with(&origin, |config| {
        config.caching.slice_bytes = 0;
        config.limits.whole_body_bytes_max = 2 * PART as u64;
    });
    let is_hit = |first: usize, last: usize| {
        let part = proxy.get_with("/", &format!("Range: bytes={first}-{last}"));
        assert!(part.status() == 206 && part.body == body[first..=last], "{}", part.cache());
        part.cache().contains("; hit")
    };
    for first in [0, PART] {
        assert!(!is_hit(first, first + PART - 1));
    }
    assert!(is_hit(0, 2 * PART - 1), "two are joined");
    assert!(!is_hit(2 * PART, 3 * PART - 1));
    assert!(is_hit(2 * PART, 3 * PART - 1), "the newest part is kept");
    assert!(!is_hit(0, 9), "it was not joined with the others");
}

#[test]
fn parts_of_different_versions_are_never_joined() {
    for tags in [["\"v1\"", "\"v2\""], ["W/\"v1\"", "W/\"v1\""]] {
        let origin = Origin::start(move |request| {
            let tag = if request.header("range") == "bytes=0-4" { tags[0] } else { tags[1] };
            slice_of(request, DIGITS.as_bytes(), &format!("ETag: {tag}"))
        });
        let proxy = sliced_by(&origin, 0);
        proxy.get_with("/", "Range: bytes=0-4");
        proxy.get_with("/", "Range: bytes=5-9");
        assert!(proxy.get("/").cache().contains("fwd=partial"), "{tags:?}");
    }
}

/// Starts a proxy that fetches ranges in slices of so many bytes; as they are asked for, if 0.
pub(crate) fn sliced_by(origin: &Origin, slice_bytes: u64) -> Proxy {
    Proxy::start_with(origin, |config| {
        let mut caching = damelo_http_proxy::CachingConfig::default();
        caching.slice_bytes = slice_bytes;
        config.caching = caching;
    })
}

fn sliced(origin: &Origin) -> Proxy {
    sliced_by(origin, 4)
}

/// An origin of all digits that can send ranges.
fn clipping(tag: impl Fn() -> String + Send + Sync + 'static) -> Origin {
    Origin::start(move |request| slice_of(request, DIGITS.as_bytes(), &format!("ETag: {}", tag())))
}

#[test]
fn only_the_slices_that_are_needed_are_fetched() {
    let origin = clipping(|| "\"v1\"".to_owned());
    let proxy = sliced(&origin);
    let ask = |range: &str| proxy.get_with("/", &format!("Range: bytes={range}"));
    let miss = ask("5-6");
    assert_eq!((miss.status(), miss.text().as_str()), (206, "56"));
    assert_eq!(miss.header("content-range"), "bytes 5-6/10");
    assert!(miss.cache().contains("fwd=uri-miss; fwd-status=206; stored"), "{}", miss.cache());
    assert_eq!(origin.last().header("range"), "bytes=4-7");
    for (range, body, asked) in [
        ("4-7", "4567", 1),
        ("7-9", "789", 2),
        ("6-8", "678", 2),
        ("8-99", "89", 2),
        ("1-9", "123456789", 3),
        ("0-0", "0", 3),
    ] {
        let answer = ask(range);
        assert_eq!((answer.status(), answer.text().as_str()), (206, body), "{range}");
        assert_eq!(origin.count(), asked, "{range}");
    }
    assert!(ask("0-9").cache().contains("; hit"));
    assert_eq!(ask("0-1\nIf-None-Match: \"v1\"").status(), 304);
    proxy.ask_with_body("POST", "/", "", b"x");
    assert!(ask("0-1").cache().contains("uri-miss"), "a change reaches every slice");
    let whole = proxy.get("/");
    assert_eq!((whole.status(), whole.text().as_str()), (200, DIGITS));
    assert!(ask("2-7").cache().contains("; hit"), "cut from the whole");
}

/// File servers, as they come, say when a file was changed, and not for how long it is fresh.
#[test]
fn slices_are_fresh_for_as_long_as_their_whole_would_be() {
    let modified = format!("ETag: \"v1\"\nLast-Modified: {}", date(-86_400));
    let origin = Origin::start(move |_| {
        reply(206, &format!("{modified}\nContent-Range: bytes 4-7/10"), "4567")
    });
    for (slice_bytes, range) in [(4, "5-6"), (0, "4-7")] {
        let proxy = sliced_by(&origin, slice_bytes);
        let ask = || proxy.get_with("/", &format!("Range: bytes={range}"));
        assert!(ask().cache().contains("fwd-status=206; stored"), "{slice_bytes}");
        assert!(ask().cache().contains("; hit"), "{slice_bytes}");
    }
}

/// What a rule says for large resources holds for a little of one.
#[test]
fn a_part_is_as_long_as_its_whole_where_rules_look_at_sizes() {
    let rules = "[[rule]]\nsize_max = 9\nresponse_set = [\"X-Size: small\"]\n\
                 [[rule]]\nsize_min = 10\nresponse_set = [\"X-Size: large\"]\n\
                 [[rule]]\nprefix = \"/passed\"\npass = true\n";
    for slice_bytes in [4, 0] {
        let origin = clipping(|| "\"v1\"".to_owned());
        let proxy = Proxy::start_with(&origin, |config| {
            config.ruleset = Settings::parse(rules).expect("good settings").proxy.ruleset;
            config.caching.slice_bytes = slice_bytes;
        });
        for path in ["/passed", "/"] {
            let answer = proxy.get_with(path, "Range: bytes=4-7");
            assert_eq!((answer.status(), answer.text().as_str()), (206, "4567"), "{path}");
            assert_eq!(answer.header("x-size"), "large", "{path} by slices of {slice_bytes}");
        }
        let validated = proxy.get_with("/", "Range: bytes=4-7\nCache-Control: no-cache");
        assert_eq!(validated.header("x-size"), "large", "{}", validated.cache());
    }
}

#[test]
fn a_slice_that_many_want_at_once_is_fetched_once() {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::start(move |request| {
        let mut answer = slice_of(request, DIGITS.as_bytes(), "ETag: \"v1\"");
        answer.hold = Some((0, held.clone()));
        answer
    });
    let proxy = sliced(&origin);
    let proxy = &proxy;
    std::thread::scope(|scope| {
        // Different ranges of the one slice from 4 to 7.
        let asking = ["4-4", "5-6", "4-7", "7-7"].map(|range| {
            (range, scope.spawn(move || proxy.get_with("/", &format!("Range: bytes={range}"))))
        });
        eventually("all but one read along", || proxy.metric("damelo_proxy_collapsed_total") == 3);
        gate.open();
        let mut collapsed = 0;
        for (range, answer) in asking {
            let answer = answer.join().expect("an answer");
            let (first, last) = range.split_once('-').expect("a range");
            let (first, last): (usize, usize) =
                (first.parse().expect("a number"), last.parse().expect("a number"));
            assert_eq!((answer.status(), &*answer.text()), (206, &DIGITS[first..=last]));
            collapsed += usize::from(answer.cache().contains("; collapsed"));
        }
        assert_eq!((origin.count(), collapsed), (1, 3));
    });
}

#[test]
fn slices_of_different_versions_are_never_joined() {
    let version = std::sync::atomic::AtomicUsize::new(0);
    let next = move || version.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    let origin = clipping(move || format!("\"v{}\"", next()));
    let proxy = sliced(&origin);
    proxy.get_with("/", "Range: bytes=0-1");
    let both = proxy.get_with("/", "Range: bytes=2-5");
    assert_eq!((both.status(), both.text().as_str()), (206, "2345"));
    assert_eq!(origin.last().header("range"), "bytes=2-5", "asked for as it is");
    proxy.get_with("/", "Range: bytes=0-1");
    assert_eq!(origin.last().header("range"), "bytes=0-3", "the old slices are gone");
}

#[test]
fn what_cannot_be_sliced_is_asked_for_as_it_is() {
    let origin = slicing("Vary: Accept");
    let proxy = sliced(&origin);
    for range in ["bytes=0-1", "bytes=5-8"] {
        let answer = proxy.get_with("/", &format!("Range: {range}"));
        assert_eq!((answer.status(), origin.last().header("range").as_str()), (206, range));
    }
    assert_eq!(origin.count(), 3, "it was asked for a slice once");
}

#[test]
fn a_range_of_a_version_that_was_longer_brings_the_whole() {
    // RFC 9110 §13.1.5: if the version is another one, there is no range.
    let origin = Origin::start(|request| {
        let headers = "Cache-Control: max-age=60\nETag: \"v2\"";
        match (&*request.header("range"), &*request.header("if-range")) {
            ("", _) | (_, "\"v1\"") => reply(200, headers, DIGITS),
            _ => reply(416, &format!("{headers}\nContent-Range: bytes */10"), ""),
        }
    });
    let proxy = sliced(&origin);
    for (path, conditions, status, asked) in [
        ("/new", "If-Range: \"v2\"", 416, 2),
        ("/old", "If-Range: \"v1\"", 200, 4),
        ("/any", "X: y", 416, 5),
    ] {
        let answer = proxy.get_with(path, &format!("Range: bytes=70000-\n{conditions}"));
        let body = if status == 200 { DIGITS } else { "" };
        assert_eq!((answer.status(), &*answer.text()), (status, body), "{conditions}");
        assert_eq!(origin.count(), asked, "{conditions}");
    }
}

/// Several pieces of an origin's answer.
const LONG: usize = 300_000;

#[test]
fn an_origin_without_ranges_is_asked_once() {
    let (body, gate) = (noise(13, LONG), Gate::default());
    let (sent, held) = (body.clone(), gate.clone());
    let origin = Origin::start(move |_| Reply {
        hold: Some((131_072, held.clone())),
        ..reply(200, "Cache-Control: max-age=60", sent.clone())
    });
    let proxy = &sliced_by(&origin, 65536);
    std::thread::scope(|scope| {
        let ends = [LONG - 100, 200_000, 70_000, 0, LONG - 1];
        let asking = ends.map(|from| {
            let range = format!("Range: bytes={from}-");
            (from, scope.spawn(move || proxy.get_with("/", &range)))
        });
        eventually("all but one read along", || proxy.metric("damelo_proxy_collapsed_total") == 4);
        gate.open();
        for (from, answer) in asking {
            let answer = answer.join().expect("an answer");
            assert_eq!(answer.status(), 206);
            assert!(answer.complete && answer.body == body[from..], "from {from}");
            let expected = format!("bytes {from}-{}/{LONG}", LONG - 1);
            assert_eq!(answer.header("content-range"), expected);
        }
    });
    assert_eq!(origin.count(), 1);
    eventually("it is stored", || proxy.get("/").cache().contains("; hit"));
    assert_eq!(origin.count(), 1, "as a whole");
}

#[test]
fn a_slice_is_sent_as_it_comes() {
    let (body, gate) = (noise(14, LONG), Gate::default());
    let (sent, held) = (body.clone(), gate.clone());
    let origin = Origin::start(move |request| Reply {
        hold: Some((65536, held.clone())),
        ..slice_of(request, &sent, "ETag: \"v1\"")
    });
    let proxy = sliced_by(&origin, 131_072);
    let mut stream = send_to(proxy.info.address, "GET", "/", "Range: bytes=1000-", b"");
    let (head, mut got) = read_some(&mut stream, 60_000);
    assert_eq!(head.header("content-length"), (LONG - 1000).to_string());
    gate.open();
    stream.read_to_end(&mut got).expect("the rest");
    assert!(got == body[1000..], "byte for byte");
    let hit = proxy.get_with("/", "Range: bytes=1000-");
    assert!(hit.cache().contains("; hit") && hit.body == body[1000..], "{}", hit.cache());
    assert_eq!(origin.count(), 3, "in slices");
}

#[test]
fn a_change_between_slices_breaks_the_answer_off() {
    let versions = [noise(15, LONG), noise(16, LONG)];
    let (sent, changed) = (versions.clone(), std::sync::Arc::new(AtomicBool::new(false)));
    let change = changed.clone();
    let origin = Origin::start(move |request| {
        let late = request.header("range").contains("=196608-");
        let version = usize::from(late || change.load(Ordering::SeqCst));
        change.fetch_or(late, Ordering::SeqCst);
        slice_of(request, &sent[version], &format!("ETag: \"v{version}\""))
    });
    let proxy = sliced_by(&origin, 65536);
    let broken = proxy.get_with("/", "Range: bytes=0-");
    assert!(!broken.complete && versions[0].starts_with(&broken.body), "no byte of another");
    let whole = proxy.get_with("/", "Range: bytes=0-");
    assert!(whole.complete && whole.body == versions[1], "all slices were forgotten");
    assert!(changed.load(Ordering::SeqCst));
}

#[test]
fn a_whole_is_put_together_where_half_of_it_is_there() {
    // The last bytes are asked for as they are, and stored beside the slices.
    for stored_before in [None, Some("Range: bytes=-100")] {
        let (body, origin) = noise_in_parts(17, LONG);
        let proxy = sliced_by(&origin, 65536);
        if let Some(range) = stored_before {
            proxy.get_with("/", range);
            eventually("it is stored", || proxy.get_with("/", range).cache().contains("; hit"));
        }
        proxy.get_with("/", "Range: bytes=0-140000");
        eventually("the slices are stored", || {
            proxy.get_with("/", "Range: bytes=0-140000").cache().contains("; hit")
        });
        let asked = origin.count();
        let whole = proxy.get("/");
        assert_eq!((whole.status(), whole.header("content-length")), (200, LONG.to_string()));
        assert!(whole.complete && whole.body == body && !whole.has("content-range"));
        assert!(whole.cache().contains("fwd=partial"), "{}", whole.cache());
        let news: Vec<_> = origin.asked()[asked..].iter().map(|m| m.header("range")).collect();
        assert_eq!(news, ["bytes=196608-262143", "bytes=262144-327679"]);
        assert!(proxy.get("/").cache().contains("; hit"));
        proxy.ask_with_body("POST", "/", "", b"x");
        proxy.get_with("/", "Range: bytes=0-100");
        proxy.get("/");
        assert!(!origin.last().has("range"), "one of five slices is not worth it");
    }
}

#[test]
fn a_head_of_what_is_there_in_slices_is_a_hit() {
    let (_, origin) = noise_in_parts(18, LONG);
    let proxy = sliced_by(&origin, 65536);
    let (most, all) = ("Range: bytes=0-200000", format!("Range: bytes=0-{}", LONG - 1));
    for (range, there) in [(most, false), (&*all, true)] {
        proxy.get_with("/", range);
        eventually("they are stored", || proxy.get_with("/", range).cache().contains("; hit"));
        let asked = origin.count();
        let head = proxy.ask("HEAD", "/", "");
        assert_eq!((head.status(), head.header("content-length")), (200, LONG.to_string()));
        assert!(!head.has("content-range") && head.header("etag") == "\"v1\"", "{head:?}");
        assert_eq!(head.cache().contains("; hit"), there, "{}", head.cache());
        // One slice that is missing is no reason to fetch it.
        assert_eq!(origin.count(), asked + usize::from(!there));
    }
    let unchanged = proxy.ask("HEAD", "/", "If-None-Match: \"v1\"");
    assert_eq!(unchanged.status(), 304);
    proxy.pass_seconds(61);
    let cached = proxy.ask("HEAD", "/", "Cache-Control: only-if-cached");
    assert_eq!(cached.status(), 504, "they are stale");
}

#[test]
fn a_range_of_what_is_small_brings_all_of_it() {
    let origin = clipping(|| "\"v1\"".to_owned());
    let proxy = Proxy::start(&origin);
    let part = proxy.get_with("/", "Range: bytes=3-4");
    assert_eq!((part.status(), &*part.text()), (206, "34"));
    assert_eq!(part.header("content-range"), "bytes 3-4/10");
    eventually("it is stored", || proxy.get("/").cache().contains("; hit"));
    assert_eq!((proxy.get("/").text().as_str(), origin.count()), (DIGITS, 1));
}

#[test]
fn a_part_of_another_length_than_it_says_is_not_stored() {
    let origin = Origin::start(|_| Reply {
        chunked: true,
        ..reply(206, "Cache-Control: max-age=60\nETag: \"a\"\nContent-Range: bytes 0-4/10", "012")
    });
    let proxy = Proxy::start(&origin);
    for _ in 0..2 {
        let answer = proxy.get_with("/", "Range: bytes=0-4");
        assert!(!answer.cache().contains("; hit"), "{}", answer.cache());
    }
    assert_eq!(origin.count(), 2);
}

#[test]
fn what_only_a_range_brought_about_is_not_stored() {
    let origin = Origin::start(|request| {
        if request.has("range") {
            reply(416, "Cache-Control: max-age=60\nContent-Range: bytes */10", "")
        } else {
            reply(200, "Cache-Control: max-age=60", DIGITS)
        }
    });
    let proxy = Proxy::start(&origin);
    let refused = proxy.get_with("/", "Range: bytes=99-");
    assert_eq!(refused.status(), 416);
    assert!(refused.cache().ends_with("detail=status"), "{}", refused.cache());
    assert_eq!(proxy.get("/").text(), DIGITS);
}

#[test]
fn a_stale_whole_is_validated_before_it_is_cut() {
    let origin = Origin::start(|request| {
        if request.header("if-none-match") == "\"v1\"" {
            return reply(304, "ETag: \"v1\"\nCache-Control: max-age=60", "");
        }
        reply(200, "ETag: \"v1\"\nCache-Control: max-age=10", DIGITS)
    });
    let proxy = Proxy::start(&origin);
    proxy.get("/");
    proxy.pass_seconds(20);
    let answer = proxy.get_with("/", "Range: bytes=4-5");
    assert_eq!((answer.status(), answer.text().as_str()), (206, "45"));
    assert!(answer.cache().contains("fwd-status=304"), "{}", answer.cache());
    assert!(!origin.last().has("range"));
}
