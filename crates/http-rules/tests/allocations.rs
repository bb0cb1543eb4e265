//! Deciding about a hit allocates nothing: every allocation of this thread is counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use damelo_http_rules::cache_control::RequestDirectives;
use damelo_http_rules::reuse::{self, Decision, Policy};
use damelo_http_rules::{CachingConfig, preconditions, ranges, vary};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes on to the system's allocator unchanged; the counter is a thread-local
// without destructor and allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations made by `work`.
fn allocations<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = COUNT.with(Cell::get);
    let result = work();
    (COUNT.with(Cell::get) - before, result)
}

#[test]
fn a_hit_is_decided_without_allocation() {
    let mut request = HeaderMap::new();
    for (name, value) in [
        ("cache-control", "max-age=600, min-fresh=\"1\", x=\"y\""),
        ("if-none-match", "\"a\", W/\"b\""),
        ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("accept-encoding", "gzip, deflate;q=0.5, br"),
        ("accept", "text/html, */*"),
    ] {
        request.append(name, HeaderValue::from_static(value));
    }
    let mut stored = HeaderMap::new();
    stored.insert("etag", HeaderValue::from_static("\"c\""));
    let names = ["accept", "accept-encoding"].map(HeaderName::from_static);
    let policy = Policy { lifetime_ms: 60_000, response_time_ms: 1_000_000, ..Policy::default() };
    let caching = CachingConfig::default();
    let mut key = Vec::with_capacity(256);
    let (count, (decision, outcome, answer)) = allocations(|| {
        let wishes = RequestDirectives::of(&request);
        vary::secondary_key(&names, &request, &caching, &mut key);
        let decision = reuse::decide(&wishes, &policy, &caching, 1_010_000);
        let outcome =
            preconditions::evaluate(&Method::GET, &request, StatusCode::OK, &stored, 1000);
        (decision, outcome, ranges::answer(&Method::GET, &request, 100, 4))
    });
    assert_eq!(decision, Decision::Serve);
    assert_eq!(outcome, preconditions::Outcome::Proceed);
    assert_eq!(answer, ranges::Answer::Whole);
    assert!(!key.is_empty());
    assert_eq!(count, 0);
    assert_eq!(allocations(|| vec![0_u8; 10]).0, 1, "the counter counts");
}
