//! Small objects in a memory-mapped file, placed by a table made from the whole trace: a bound for
//! what placement can do ("future-looking", Maltzahn 1999 §3.4).
//!
//! The table: objects asked for more than once, most popular first, packed until the file is full;
//! each further one takes the place of a placed object of its class whose lifetime in the trace
//! (first to last reference) does not overlap. Invariant: two objects share a segment only if
//! their lifetimes are disjoint. Threads: one user.
//!
//! Deviations: an object whose size changes, of which the paper says nothing, has a segment for the
//! largest of its sizes up to 8 KB, and those above it are refused as in the other mapped designs;
//! the third step looks for the most popular object that can be replaced among the 64 most popular
//! segments of the class, not among all, since most popular objects live as long as the trace and
//! looking through all of them takes hours.

use super::segments::{CLASSES, SMALL_BYTES_MAX, Segments, class_of, segment_bytes};
use super::{Cache, Design, DesignInputs, Served};
use crate::lru::NumberMap;
use crate::machine::Action;
use crate::request::{Catalogue, Op, Request};
use crate::requests::Requests;

const CANDIDATES: usize = 64;

#[derive(Debug, Clone, Copy, Default)]
struct Life {
    references: u64,
    /// Largest size that is kept.
    bytes: u64,
    first: usize,
    last: usize,
}

#[derive(Debug, Clone, Copy)]
struct Placed {
    offset: u64,
    /// Of the segment.
    class: usize,
    /// Of the object that lies there.
    bytes: u64,
    present: bool,
}

/// A segment and the lifetimes of the objects that share it.
struct Shared {
    offset: u64,
    spans: Vec<(usize, usize)>,
}

struct Future {
    table: NumberMap<u64, Placed>,
    /// Which key lies in a shared segment now.
    holders: NumberMap<u64, u64>,
    mapped_bytes: u64,
}

pub(crate) fn make(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    let (table, mapped_bytes) = place_all(inputs.requests, inputs.options.cache_bytes);
    let cache = Future { table, holders: NumberMap::default(), mapped_bytes };
    Box::new(Served { cache, rules: inputs.rules(inputs.options.cache_bytes) })
}

fn lives(requests: Requests<'_>) -> Vec<(u64, Life)> {
    let mut lives: NumberMap<u64, Life> = NumberMap::default();
    for (at, request) in requests.iter().enumerate() {
        let bytes = request.size_bytes;
        // What says no size is asked of what was stored before.
        let asks_of_stored = request.op == Op::Read && lives.contains_key(&request.key);
        let is_known = request.has_body() || asks_of_stored;
        if bytes > SMALL_BYTES_MAX || request.op == Op::Delete || !is_known {
            continue;
        }
        let life = lives.entry(request.key).or_insert(Life { first: at, ..Life::default() });
        life.references += 1;
        life.bytes = life.bytes.max(bytes);
        life.last = at;
    }
    let again = |(_, life): &(u64, Life)| life.references > 1;
    let mut lives: Vec<(u64, Life)> = lives.into_iter().filter(again).collect();
    lives.sort_unstable_by(|a, b| b.1.references.cmp(&a.1.references).then(a.0.cmp(&b.0)));
    lives
}

fn place_all(requests: Requests<'_>, limit: u64) -> (NumberMap<u64, Placed>, u64) {
    let mut segments = Segments::packed();
    let mut table = NumberMap::default();
    // For each class the segments by popularity of their first object, with the lives they hold.
    let mut shared: [Vec<Shared>; CLASSES] = Default::default();
    for (key, life) in lives(requests) {
        let class = class_of(life.bytes);
        let span = (life.first, life.last);
        let offset = match segments.take(class, limit) {
            Some(offset) => {
                shared[class].push(Shared { offset, spans: vec![span] });
                Some(offset)
            }
            None => shared[class].iter_mut().take(CANDIDATES).find_map(|shared| {
                let disjoint = shared.spans.iter().all(|s| span.1 < s.0 || s.1 < span.0);
                disjoint.then(|| {
                    shared.spans.push(span);
                    shared.offset
                })
            }),
        };
        if let Some(offset) = offset {
            table.insert(key, Placed { offset, class, bytes: life.bytes, present: false });
        }
    }
    (table, segments.end_bytes())
}

impl Cache for Future {
    fn size_of(&self, key: u64) -> Option<u64> {
        self.table.get(&key).filter(|placed| placed.present).map(|placed| placed.bytes)
    }

    fn fetch(&mut self, request: &Request, out: &mut Vec<Action>) {
        if let Some(placed) = self.table.get(&request.key) {
            out.push(Action::ReadMapped { offset: placed.offset, bytes: placed.bytes as u32 });
        }
    }

    fn store(&mut self, request: &Request, _names: &Catalogue, out: &mut Vec<Action>) -> bool {
        let Some(placed) = self.table.get_mut(&request.key) else { return false };
        let bytes = request.size_bytes;
        if bytes > SMALL_BYTES_MAX || class_of(bytes) > placed.class {
            return false;
        }
        placed.present = true;
        placed.bytes = bytes;
        let offset = placed.offset;
        if let Some(before) = self.holders.insert(offset, request.key)
            && before != request.key
            && let Some(old) = self.table.get_mut(&before)
        {
            old.present = false;
        }
        out.push(Action::WriteMapped { offset, bytes: segment_bytes(class_of(bytes)) as u32 });
        true
    }

    fn discard(&mut self, key: u64, _out: &mut Vec<Action>) {
        if let Some(placed) = self.table.get_mut(&key) {
            placed.present = false;
        }
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        vec![("placed", self.table.len() as u64), ("mapped_bytes", self.mapped_bytes)]
    }
}
