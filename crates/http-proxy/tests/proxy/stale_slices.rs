//! Slices that are stale, and of which the origin says that they have not changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ranges::{slice_of, sliced_by};
use crate::support::{Origin, Proxy, eventually, noise, reply};

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
