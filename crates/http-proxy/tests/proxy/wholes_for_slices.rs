//! Origins that send the whole in place of a slice, once an answer has begun with slices.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ranges::{slice_of, sliced_by};
use crate::support::{Message, Origin, Proxy, Reply, eventually, noise, reply};

const SLICE: u64 = 65536;
const LENGTH: usize = 300_000;

/// An origin that sends so many slices of its first version, and then the whole whatever range is
/// asked for, with this tag.
fn tiring(body: Vec<u8>, slices: usize, tag: &'static str) -> Origin {
    let asked = AtomicUsize::new(0);
    Origin::start(move |request: &Message| -> Reply {
        if asked.fetch_add(1, Ordering::SeqCst) < slices {
            return slice_of(request, &body, "ETag: \"v1\"");
        }
        reply(200, &format!("Cache-Control: max-age=60\nETag: {tag}"), body.clone())
    })
}

fn from(proxy: &Proxy, first: usize) -> Message {
    proxy.get_with("/", &format!("Range: bytes={first}-"))
}

#[test]
fn a_whole_of_the_same_version_is_cut_to_what_is_left() {
    let body = noise(71, LENGTH);
    for (slices, first) in [(1, 10), (2, 10), (3, 70_000), (1, 200_000)] {
        let origin = tiring(body.clone(), slices, "\"v1\"");
        let proxy = sliced_by(&origin, SLICE);
        let answer = from(&proxy, first);
        assert!(answer.complete && answer.body == body[first..], "{slices} {first}");
        assert_eq!(answer.status(), 206, "{slices} {first}");
        assert_eq!(origin.count(), slices + 1, "the whole is asked for once");
        // It is stored, and answers everybody.
        eventually("it is a hit", || from(&proxy, 0).cache().contains("; hit"));
        let asked = origin.count();
        let whole = proxy.get("/");
        assert!(whole.cache().contains("; hit") && whole.body == body, "{}", whole.cache());
        assert_eq!(origin.count(), asked, "{slices} {first}");
    }
}

#[test]
fn a_whole_of_another_version_breaks_the_answer_off() {
    for tag in ["\"v2\"", "W/\"v1\""] {
        let origin = tiring(noise(72, LENGTH), 1, tag);
        let proxy = sliced_by(&origin, SLICE);
        assert!(!from(&proxy, 10).complete, "{tag}");
    }
}
