//! What a request wants of a cache, by what is stored of its object. Every design asks here, so
//! that all of them hit, miss, refuse and leave out the same requests for the same reasons.
//!
//! A request whose answer has no body of its own (see [`Request::has_body`]) says nothing of its
//! object's size. If the object is stored it is a hit like any other; if not there is nothing that
//! could be stored, and the request is left out, as `lab sim` leaves it out. An object that there
//! is no room for, whatever else goes, is refused here: no design computes with sizes that are
//! larger than its space (a trace may well have -1 as a size of 64 bits). Pure.

use super::Changes;
use crate::request::{Op, Request};

/// By what a cache decides what is wanted of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) changes: Changes,
    /// Largest object that there is room for.
    pub(crate) object_bytes_max: u64,
}

/// See [`Rules::wanted`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Nothing: it says nothing of what could be done.
    LeftOut,
    /// What is stored goes, if anything is.
    Removal,
    /// What is stored is read.
    Reading,
    /// The object is stored, in place of another version of it if one is there.
    Storing,
    /// What is stored goes, and nothing takes its place.
    Refusal,
}

impl Rules {
    /// True if what is stored and has so many bytes is what is asked for, and not stale.
    pub(crate) fn keeps(self, request: &Request, stored_bytes: u64) -> bool {
        let ignores = self.changes == Changes::Ignore;
        ignores || stored_bytes == request.size_bytes || !request.has_body()
    }

    /// What a request wants of a cache that has so many bytes of its object; `None` if it has
    /// nothing of it. What is stored counts for reads only.
    pub(crate) fn wanted(self, request: &Request, stored_bytes: Option<u64>) -> Wanted {
        let is_current = |bytes| self.keeps(request, bytes);
        match request.op {
            Op::Delete => Wanted::Removal,
            Op::Read if stored_bytes.is_some_and(is_current) => Wanted::Reading,
            Op::Read | Op::Write if !request.has_body() => Wanted::LeftOut,
            Op::Read | Op::Write if request.size_bytes > self.object_bytes_max => Wanted::Refusal,
            Op::Read | Op::Write => Wanted::Storing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_follows_from_what_is_asked_and_stored() {
        let all = [None, Some(7), Some(8)];
        let of = |changes: Changes, op, size_bytes| {
            let request = Request { op, size_bytes, ..Request::default() };
            let rules = Rules { changes, object_bytes_max: 8 };
            all.map(|stored| rules.wanted(&request, stored))
        };
        use Wanted::{LeftOut, Reading, Refusal, Removal, Storing};
        let (replace, ignore) = (Changes::Replace, Changes::Ignore);
        assert_eq!(of(replace, Op::Read, 7), [Storing, Reading, Storing]);
        assert_eq!(of(ignore, Op::Read, 7), [Storing, Reading, Reading]);
        assert_eq!(of(replace, Op::Read, 0), [LeftOut, Reading, Reading]);
        assert_eq!(of(ignore, Op::Read, 0), [LeftOut, Reading, Reading]);
        assert_eq!(of(replace, Op::Write, 7), [Storing; 3]);
        assert_eq!(of(replace, Op::Write, 0), [LeftOut; 3]);
        assert_eq!(of(replace, Op::Delete, 0), [Removal; 3]);
        assert_eq!(of(replace, Op::Read, 8), [Storing, Storing, Reading]);
        assert_eq!(of(replace, Op::Read, 9), [Refusal; 3]);
        assert_eq!(of(ignore, Op::Read, u64::MAX), [Refusal, Reading, Reading]);
        assert_eq!(of(replace, Op::Write, u64::MAX), [Refusal; 3]);
    }
}
