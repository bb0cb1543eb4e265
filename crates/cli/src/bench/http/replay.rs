//! A recorded trace as a workload: the object that each request asks for, the length of its body,
//! and the page it belongs to, sent as `Referer`. Read once, then immutable; shared by all threads.
//!
//! A page is the client's latest request on the same host that looks like a document. Paths keep
//! the trace's host, directories and names, since caches place and group objects by them.

use std::collections::HashMap;
use std::fmt::Write as _;

use damelo_lab::{Catalogue as Names, Op, Request};

use crate::failure::Failure;
use crate::lab::{Loaded, ReadArgs, load};
use crate::output::say;

/// Longest part of a URL that is requested; servers refuse targets of several kilobytes.
const NAME_BYTES_MAX: usize = 1500;
/// Marks a request without a document.
const NONE: u32 = u32::MAX;

/// One request of the trace.
#[derive(Debug, Clone, Copy)]
struct Asked {
    number: u32,
    document: u32,
}

/// A trace prepared for replay.
pub(crate) struct Replay {
    requests: Vec<Asked>,
    lengths: Vec<u64>,
    names: Names,
}

impl Replay {
    /// Reads a whole trace. Writes and deletes (PUT, DELETE, PURGE) are left out, which is printed;
    /// every other request becomes a GET.
    pub(crate) fn read(trace: &str, args: &ReadArgs) -> Result<Replay, Failure> {
        let Loaded { requests, names, .. } = load(trace, args)?;
        let replay = Replay::new(&requests, names);
        let left_out = requests.len() - replay.requests.len();
        if left_out > 0 {
            say(format_args!("damelo: {trace}: {left_out} PUT, DELETE or PURGE left out"));
        }
        if replay.objects() >= u64::from(NONE) {
            let text = format!(
                "`{trace}` has {} objects; at most 2^32 - 2 can be told apart",
                replay.objects()
            );
            return Err(Failure::Usage(text));
        }
        if replay.requests.is_empty() {
            return Err(Failure::Usage(format!("`{trace}` has no request to ask again")));
        }
        Ok(replay)
    }

    fn new(requests: &[Request], names: Names) -> Replay {
        let reads = || requests.iter().filter(|request| request.op == Op::Read);
        let objects = requests.iter().map(|request| request.key + 1).max().unwrap_or(0);
        let mut lengths = vec![0; usize::try_from(objects).unwrap_or(usize::MAX)];
        let mut last_pages: HashMap<(u32, u32), u32> = HashMap::new();
        let mut asked = Vec::with_capacity(requests.len());
        for request in reads() {
            let length = &mut lengths[request.key as usize];
            // An object keeps its first non-zero length: 0 is an answer without a body.
            if *length == 0 {
                *length = request.size_bytes;
            }
            let number = u32::try_from(request.key).unwrap_or(NONE);
            let page = (request.client, request.host);
            let document = if is_document(names.url(request.key)) {
                last_pages.insert(page, number);
                NONE
            } else {
                last_pages.get(&page).copied().unwrap_or(NONE)
            };
            asked.push(Asked { number, document });
        }
        Replay { requests: asked, lengths, names }
    }

    /// The object of a request, and the document that embeds it; `None` after the last.
    pub(crate) fn request(&self, index: u64) -> Option<(u64, Option<u64>)> {
        let asked = self.requests.get(usize::try_from(index).ok()?)?;
        let document = (asked.document != NONE).then_some(u64::from(asked.document));
        Some((u64::from(asked.number), document))
    }

    /// Length of an object's body; 0 for an object that is not in the trace.
    pub(crate) fn length_bytes(&self, number: u64) -> u64 {
        usize::try_from(number).ok().and_then(|at| self.lengths.get(at)).copied().unwrap_or(0)
    }

    /// Number of objects in the trace.
    pub(crate) fn objects(&self) -> u64 {
        self.lengths.len() as u64
    }

    /// Whether an object is a page that embeds others.
    pub(crate) fn is_document(&self, number: u64) -> bool {
        is_document(self.names.url(number))
    }

    /// Appends an object's name from the first slash: `/host/directory/name`.
    pub(crate) fn push_name(&self, number: u64, text: &mut String) {
        let url = self.names.url(number);
        let after_scheme = url.windows(3).position(|part| part == b"://").map_or(0, |at| at + 3);
        let name = &url[after_scheme..];
        let name = name.strip_prefix(b"/").unwrap_or(name);
        text.push('/');
        for &byte in &name[..name.len().min(NAME_BYTES_MAX)] {
            // Characters that RFC 3986 allows in path and query, and `%`, are kept.
            if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte) {
                text.push(byte.into());
            } else {
                // Writing to a String cannot fail.
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
}

/// Whether a URL looks like a document's.
fn is_document(url: &[u8]) -> bool {
    let path = url.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
    path.ends_with(b"/") || path.ends_with(b".html") || path.ends_with(b".htm")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay(requests: &[(u32, &str, u64, Op)]) -> Replay {
        let (mut names, mut keys, mut hosts) = (Names::new(), HashMap::new(), HashMap::new());
        let made: Vec<Request> = requests
            .iter()
            .map(|&(client, url, size_bytes, op)| {
                let key = *keys.entry(url).or_insert_with(|| names.push_url(url.as_bytes()));
                let host = url.split('/').nth(2).unwrap_or_default();
                let next = hosts.len() as u32;
                let host = *hosts.entry(host).or_insert(next);
                Request { client, key, size_bytes, host, op, ..Request::default() }
            })
            .collect();
        Replay::new(&made, names)
    }

    #[test]
    fn embedded_objects_belong_to_the_last_page_of_their_client_and_host() {
        let read = Op::Read;
        let replay = replay(&[
            (1, "http://a/", 10, read),
            (2, "http://a/x.html", 10, read),
            (1, "http://a/i.gif", 10, read),
            (2, "http://a/i.gif", 10, read),
            (1, "http://b/i.gif", 10, read),
        ]);
        let all: Vec<_> = (0..6).map(|index| replay.request(index)).collect();
        let expected = [(0, None), (1, None), (2, Some(0)), (2, Some(1)), (3, None)];
        assert_eq!(all[..5], expected.map(Some));
        assert_eq!((all[5], replay.objects()), (None, 4));
        assert!(replay.is_document(0) && replay.is_document(1) && !replay.is_document(2));
    }

    #[test]
    fn an_object_has_its_first_length_and_what_writes_does_not_count() {
        let (read, write) = (Op::Read, Op::Write);
        let replay = replay(&[
            (1, "http://a/f", 7, write),
            (1, "http://a/f", 0, read),
            (1, "http://a/f", 5, read),
            (1, "http://a/f", 6, read),
        ]);
        assert_eq!(
            (replay.requests.len(), replay.length_bytes(0), replay.length_bytes(9)),
            (3, 5, 0)
        );
    }

    #[test]
    fn names_are_paths_whatever_the_url_holds() {
        let read = Op::Read;
        let replay = replay(&[
            (1, "http://a.org/d/f.gif?x=1", 1, read),
            (1, "/only/path name", 1, read),
            (1, "key\u{e9}", 1, read),
        ]);
        let name = |number| {
            let mut text = String::new();
            replay.push_name(number, &mut text);
            text
        };
        assert_eq!(name(0), "/a.org/d/f.gif?x=1");
        assert_eq!((name(1).as_str(), name(2).as_str()), ("/only/path%20name", "/key%C3%A9"));
    }
}
