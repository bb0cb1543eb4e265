//! Slices that are stale, and of which the origin says that they have not changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ranges::{slice_of, sliced_by};
use crate::support::{Gate, Home, Nobody, Origin, PATIENCE, Proxy, eventually, noise, reply};

const SLICE: usize = 65536;
const LENGTH: usize = 300_000;

/// An origin of two versions that validates, and counts the bytes that it has sent.
struct Validating {
    origin: Origin,
    versions: [Vec<u8>; 2],
    version: Arc<AtomicUsize>,
    sent_bytes: Arc<AtomicUsize>,
}

fn validating(seed: u64) -> Validating {
    let versions = [noise(seed, LENGTH), noise(seed + 1, LENGTH)];
    let (version, sent_bytes) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (all, now, sent) = (versions.clone(), version.clone(), sent_bytes.clone());
    let origin = Origin::start(move |request| {
        let version = now.load(Ordering::SeqCst);
        let tag = format!("\"v{version}\"");
        if request.header("if-none-match") == tag {
            let cookie = match request.path() {
                "/cookie" => ", private=\"set-cookie\"\nSet-Cookie: visit=1",
                _ => "",
            };
            return reply(304, &format!("ETag: {tag}\nCache-Control: max-age=60{cookie}"), "");
        }
        let slice = slice_of(request, &all[version], &format!("ETag: {tag}"));
        sent.fetch_add(SLICE, Ordering::SeqCst);
        slice
    });
    Validating { origin, versions, version, sent_bytes }
}

impl Validating {
    fn bring_all(&self, proxy: &Proxy, path: &str) {
        let ask = || proxy.get_with(path, "Range: bytes=0-");
        eventually("the slices are stored", || ask().cache().contains("; hit"));
    }

    /// Requests, and bytes sent, so far.
    fn counts(&self) -> (usize, usize) {
        (self.origin.count(), self.sent_bytes.load(Ordering::SeqCst))
    }
}

/// RFC 9111 §4.3.4: a strong tag identifies all that is stored of a version.
#[test]
fn one_answer_confirms_all_slices_of_a_version() {
    let origin = validating(51);
    let proxy = sliced_by(&origin.origin, SLICE as u64);
    origin.bring_all(&proxy, "/");
    for range in [100_000..LENGTH, 0..10] {
        proxy.pass_seconds(61);
        let (asked, sent) = origin.counts();
        let header = format!("Range: bytes={}-{}", range.start, range.end - 1);
        let first = proxy.get_with("/", &header);
        assert!(first.complete && first.body == origin.versions[0][range]);
        let said = first.cache();
        assert!(said.contains("; fwd=stale; fwd-status=304"), "{said}");
        assert_eq!(origin.counts(), (asked + 1, sent), "none of it is sent again");
        // Those that nobody asked for then are fresh, too, and are found to be so afterwards.
        for _ in 0..2 {
            let whole = proxy.get_with("/", "Range: bytes=0-");
            assert!(whole.complete && whole.body == origin.versions[0]);
            assert!(whole.cache().contains("; hit"), "{}", whole.cache());
        }
        assert_eq!(origin.counts(), (asked + 1, sent));
    }
    proxy.pass_seconds(61);
    origin.version.store(1, Ordering::SeqCst);
    let changed = proxy.get_with("/", "Range: bytes=0-");
    assert!(changed.complete && changed.body == origin.versions[1], "{}", changed.cache());
}

#[test]
fn what_is_purged_after_a_slice_was_confirmed_is_asked_about() {
    let origin = validating(53);
    let proxy = Proxy::start_with(&origin.origin, |config| {
        config.caching.slice_bytes = SLICE as u64;
        config.purge.method = true;
    });
    origin.bring_all(&proxy, "/");
    proxy.pass_seconds(61);
    proxy.get_with("/", "Range: bytes=0-9");
    let (asked, sent) = origin.counts();
    let purged = proxy.ask("PURGE", "/", "Soft-Purge: 1");
    assert_eq!(purged.status(), 200);
    let after = proxy.get_with("/", "Range: bytes=100000-100009");
    assert!(after.cache().contains("; fwd-status=304"), "{}", after.cache());
    assert_eq!(origin.counts(), (asked + 1, sent));
    assert!(proxy.get_with("/", "Range: bytes=0-").cache().contains("; hit"));
}

/// A confirmation ends with the news of another version, of which one slice is stored by then.
#[test]
fn what_was_confirmed_is_not_of_a_later_version() {
    let origin = validating(55);
    let proxy = sliced_by(&origin.origin, SLICE as u64);
    origin.bring_all(&proxy, "/");
    proxy.pass_seconds(61);
    let first = || proxy.get_with("/", "Range: bytes=0-9");
    assert!(first().cache().contains("; fwd-status=304"));
    origin.version.store(1, Ordering::SeqCst);
    let reload = "Range: bytes=0-9\nCache-Control: no-cache";
    assert_eq!(proxy.get_with("/", reload).body, origin.versions[1][..10]);
    eventually("it is stored", || {
        let stored = first();
        stored.cache().contains("; hit") && stored.body == origin.versions[1][..10]
    });
    let whole = proxy.get_with("/", "Range: bytes=0-");
    assert!(whole.complete && whole.body == origin.versions[1], "{}", whole.cache());
}

/// As that of a 206, and as that of a 304 about a response in one piece.
#[test]
fn the_cookie_of_a_304_about_a_slice_is_for_who_asked() {
    let origin = validating(57);
    let proxy = sliced_by(&origin.origin, SLICE as u64);
    origin.bring_all(&proxy, "/cookie");
    proxy.pass_seconds(61);
    let ask = || proxy.get_with("/cookie", "Range: bytes=0-9");
    let asked = ask();
    assert!(asked.cache().contains("; fwd-status=304"), "{}", asked.cache());
    assert_eq!(asked.status(), 206);
    assert_eq!(asked.header("set-cookie"), "visit=1");
    assert_eq!(asked.header("content-range"), format!("bytes 0-9/{LENGTH}"));
    assert_eq!(asked.body, origin.versions[0][..10]);
    let next = ask();
    assert!(next.cache().contains("; hit") && !next.has("set-cookie"), "{}", next.cache());
}

/// A proxy that serves what is stale for so many seconds while it is validated, and where the
/// origin fails.
fn lenient(origin: &Origin, while_validated_s: u64, on_error_s: u64) -> Proxy {
    Proxy::start_with(origin, |config| {
        config.caching.slice_bytes = SLICE as u64;
        config.caching.stale_while_revalidate_s = while_validated_s;
        config.caching.stale_if_error_s = on_error_s;
        config.caching.disconnected_stale_max_s = 0;
    })
}

/// RFC 5861 §3.
#[test]
fn stale_slices_are_served_while_one_of_them_is_validated() {
    let (body, gate) = (noise(61, LENGTH), Gate::default());
    let (sent, held) = (body.clone(), gate.clone());
    let origin = Origin::start(move |request| match request.has("if-none-match") {
        true => {
            held.wait();
            reply(304, "ETag: \"v1\"\nCache-Control: max-age=60", "")
        }
        false => slice_of(request, &sent, "ETag: \"v1\""),
    });
    let proxy = lenient(&origin, 100, 0);
    let ask = || {
        let answer = proxy.get_with("/", "Range: bytes=0-");
        assert!(answer.complete && answer.body == body, "{}", answer.cache());
        answer.cache()
    };
    eventually("the slices are stored", || ask().contains("; hit"));
    let asked = origin.count();
    proxy.pass_seconds(61);
    for _ in 0..3 {
        let said = ask();
        assert!(said.contains("; hit; ttl=-1"), "{said}");
    }
    eventually("one is being validated", || origin.count() == asked + 1);
    let reload = proxy.get_with("/", "Range: bytes=100000-100009\nCache-Control: max-stale=9");
    assert!(reload.cache().contains("; hit"), "{}", reload.cache());
    gate.open();
    eventually("all are fresh", || ask().contains("; hit; ttl=60"));
    assert_eq!(origin.count(), asked + 1);
    assert_eq!(proxy.metric("damelo_proxy_validated_behind_total"), 1);
    // Beyond the window it is asked first.
    proxy.pass_seconds(161);
    let said = ask();
    assert!(said.contains("; fwd=stale; fwd-status=304"), "{said}");
    assert_eq!(origin.count(), asked + 2);
}

/// Nobody gets slices of both versions, and the new one in the end.
#[test]
fn a_change_that_a_validation_behind_finds_reaches_all_slices() {
    let origin = validating(63);
    let proxy = lenient(&origin.origin, 1000, 0);
    origin.bring_all(&proxy, "/");
    proxy.pass_seconds(61);
    origin.version.store(1, Ordering::SeqCst);
    let middle = proxy.get_with("/", "Range: bytes=150000-150009");
    assert!(
        middle.body == origin.versions[0][150_000..150_010] && middle.cache().contains("; hit")
    );
    let mut last = Vec::new();
    eventually("the new version is served", || {
        last = proxy.get_with("/", "Range: bytes=150000-150009").body;
        last == origin.versions[1][150_000..150_010]
    });
    // The others of the old one are not served for their windows any more.
    let whole = proxy.get_with("/", "Range: bytes=0-");
    assert!(whole.complete && whole.body == origin.versions[1], "{}", whole.cache());
}

/// RFC 5861 §4.
#[test]
fn stale_slices_stand_in_for_errors() {
    let (body, fails) = (noise(65, LENGTH), Arc::<AtomicUsize>::default());
    let (sent, failing) = (body.clone(), fails.clone());
    let origin = Origin::start(move |request| match failing.load(Ordering::SeqCst) {
        0 => slice_of(request, &sent, "ETag: \"v1\""),
        status => reply(status as u16, "", "an error"),
    });
    let proxy = lenient(&origin, 0, 100);
    let ask = |headers: &str| proxy.get_with("/", &format!("Range: bytes=0-\n{headers}"));
    eventually("the slices are stored", || ask("").cache().contains("; hit"));
    proxy.pass_seconds(61);
    fails.store(503, Ordering::SeqCst);
    let asked = origin.count();
    let stale = ask("");
    assert!(stale.status() == 206 && stale.complete && stale.body == body);
    let said = stale.cache();
    assert!(said.contains("; fwd=stale; fwd-status=503"), "{said}");
    assert!(said.contains("detail=stale-if-error"), "{said}");
    assert_eq!(origin.count(), asked + 1, "an answer that has begun so goes on so");
    assert_eq!(proxy.metric("damelo_proxy_stale_on_error_total"), 1);
    assert_eq!(ask("Cache-Control: no-cache").status(), 503, "its client does not want it");
    fails.store(404, Ordering::SeqCst);
    assert_eq!(ask("").status(), 404, "that is an answer");
    fails.store(503, Ordering::SeqCst);
    proxy.pass_seconds(100);
    assert_eq!(ask("").status(), 503, "the window is over");
}

#[test]
fn stale_slices_stand_in_for_an_origin_that_is_out_of_reach() {
    let (home, origin, nobody) = (Home::new(), validating(67), Nobody::new());
    let start = |url: String, stale_max_s: u64| {
        Proxy::start_to(&home, url, |config| {
            config.caching.slice_bytes = SLICE as u64;
            config.caching.disconnected_stale_max_s = stale_max_s;
            config.upstream.ejection.failures = 2;
            config.upstream.ejection.period = PATIENCE * 2;
        })
    };
    let body = origin.versions[0].clone();
    let proxy = start(format!("http://{}", origin.origin.address), 0);
    origin.bring_all(&proxy, "/");
    proxy.stop();
    let proxy = start(nobody.url(), 0);
    let ask = |proxy: &Proxy| proxy.get_with("/", "Range: bytes=0-");
    assert!(ask(&proxy).cache().contains("; hit"));
    proxy.pass_seconds(61);
    let failed = ask(&proxy);
    assert_eq!(failed.status(), 502);
    assert!(failed.cache().contains("; fwd=stale; detail=connect-failed"), "{}", failed.cache());
    proxy.stop();
    let proxy = start(nobody.url(), 1000);
    proxy.pass_seconds(61);
    // After two it is not asked any more, and the whole is put together, too.
    for _ in 0..3 {
        let stale = ask(&proxy);
        assert!(stale.status() == 206 && stale.complete && stale.body == body);
        let said = stale.cache();
        assert!(said.contains("; fwd=stale") && said.contains("detail=connect-failed"), "{said}");
    }
    let whole = proxy.get("/");
    assert!(whole.status() == 200 && whole.complete && whole.body == body, "{}", whole.cache());
    assert!(whole.cache().contains("detail=connect-failed"), "{}", whole.cache());
    let own = proxy.get_with("/", "Range: bytes=0-\nAuthorization: Basic eDp5");
    assert!(own.status() == 206 && own.complete && own.body == body, "{}", own.cache());
    proxy.pass_seconds(1000);
    assert_eq!(ask(&proxy).status(), 502);
}

/// What came of it later is the answer from then on, though nothing stale was asked about.
#[test]
fn a_later_version_ends_the_windows_of_what_is_stored() {
    let origin = validating(71);
    let proxy = lenient(&origin.origin, 1000, 1000);
    let range = |range: &str| proxy.get_with("/", &format!("Range: bytes={range}"));
    eventually("all but the last are stored", || range("0-200000").cache().contains("; hit"));
    proxy.pass_seconds(61);
    origin.version.store(1, Ordering::SeqCst);
    assert!(range("299000-299009").body == origin.versions[1][299_000..299_010]);
    let first = range("0-9");
    assert!(first.body == origin.versions[1][..10], "{}", first.cache());
}

#[test]
fn slices_that_cannot_be_compared_stay_beside_each_other() {
    let body = noise(73, LENGTH);
    let origin = Origin::start(move |request| slice_of(request, &body, ""));
    let proxy = sliced_by(&origin, SLICE as u64);
    let range = |range: &str| proxy.get_with("/", &format!("Range: bytes={range}"));
    for one in ["0-9", "299000-299009"] {
        eventually("it is stored", || range(one).cache().contains("; hit"));
    }
    assert!(range("0-9").cache().contains("; hit"));
}

#[test]
fn slices_that_are_missing_are_not_promised_while_the_origin_fails() {
    let (body, fails) = (noise(75, LENGTH), Arc::<AtomicUsize>::default());
    let (sent, failing) = (body.clone(), fails.clone());
    let origin = Origin::start(move |request| match failing.load(Ordering::SeqCst) {
        0 => slice_of(request, &sent, "ETag: \"v1\""),
        status => reply(status as u16, "", "an error"),
    });
    let proxy = lenient(&origin, 0, 1000);
    let range = |range: &str| proxy.get_with("/", &format!("Range: bytes={range}"));
    eventually("the first two are stored", || range("0-100000").cache().contains("; hit"));
    proxy.pass_seconds(61);
    fails.store(503, Ordering::SeqCst);
    for _ in 0..2 {
        assert_eq!(range("0-").status(), 503);
        let stored = range("0-100000");
        assert!(stored.status() == 206 && stored.complete, "{}", stored.cache());
        assert!(stored.body == body[..=100_000]);
    }
}
