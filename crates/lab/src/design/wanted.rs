//! What a request wants of a cache, by what is stored of its object. Every design asks here, so that all of them hit, miss
//! and leave out the same requests for the same reasons.
//!
//! A request whose answer has no body of its own (see [`Request::has_body`]) says nothing of its object's size. If the
//! object is stored it is a hit like any other; if not there is nothing that could be stored, and the request is left
//! out, as `lab sim` leaves it out. Pure.

use super::Changes;
use crate::request::{Op, Request};

/// See [`Changes::wanted`].
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
}

impl Changes {
    /// What a request wants of a cache that has so many bytes of its object; `None` if it has nothing of it. What is
    /// stored counts for reads only.
    pub(crate) fn wanted(self, request: &Request, stored_bytes: Option<u64>) -> Wanted {
        let is_current = |bytes: u64| {
            self == Changes::Ignore || bytes == request.size_bytes || !request.has_body()
        };
        match request.op {
            Op::Delete => Wanted::Removal,
            Op::Read if stored_bytes.is_some_and(is_current) => Wanted::Reading,
            Op::Read | Op::Write if !request.has_body() => Wanted::LeftOut,
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
            all.map(|stored| changes.wanted(&request, stored))
        };
        use Wanted::{LeftOut, Reading, Removal, Storing};
        let (replace, ignore) = (Changes::Replace, Changes::Ignore);
        assert_eq!(of(replace, Op::Read, 7), [Storing, Reading, Storing]);
        assert_eq!(of(ignore, Op::Read, 7), [Storing, Reading, Reading]);
        assert_eq!(of(replace, Op::Read, 0), [LeftOut, Reading, Reading]);
        assert_eq!(of(ignore, Op::Read, 0), [LeftOut, Reading, Reading]);
        assert_eq!(of(replace, Op::Write, 7), [Storing; 3]);
        assert_eq!(of(replace, Op::Write, 0), [LeftOut; 3]);
        assert_eq!(of(replace, Op::Delete, 0), [Removal; 3]);
    }
}
