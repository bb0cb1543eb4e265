//! What a body that is being filled has in memory, and where its readers are.
//!
//! Invariant: of the tail goes only what the store has or nobody may need any more. Threads: under
//! the lock of the body.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;

use bytes::Bytes;
use http::HeaderMap;

use crate::error::BodyError;
use crate::vault::sections::SECTION_BYTES;

/// A reader at most this far behind the fill is about to catch up with it.
pub(super) const NEAR_BYTES: u64 = SECTION_BYTES;
/// The place of a reader that gets its bytes another way for now.
pub(super) const ELSEWHERE: u64 = u64::MAX;

/// What there is of the body, and who reads it.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Generation of the stored body, and how many of its bytes can be read.
    pub(super) stored: Option<(u64, u64)>,
    /// The bytes behind the stored ones, in pieces as they came, but for the smallest, each with
    /// its offset in the body.
    pub(super) tail: VecDeque<(u64, Bytes)>,
    /// Bytes that readers may read.
    pub(super) shown_bytes: u64,
    /// Nothing more is stored, and this many sections are to be removed in the end.
    pub(super) unstored: Option<u64>,
    /// The trailers, or why the body broke off.
    pub(super) end: Option<Result<Option<Box<HeaderMap>>, BodyError>>,
    pub(super) readers: BTreeMap<u64, Place>,
    /// Number of the next reader.
    next_reader: u64,
    /// How many are about to read, but may have to wait for the store before.
    pub(super) coming: usize,
}

/// Where a reader is.
#[derive(Debug)]
pub(super) struct Place {
    /// The next byte that it wants.
    pub(super) offset: u64,
    /// The fill may wait for it.
    pub(super) is_awaited: bool,
    pub(super) waker: Option<Waker>,
}

/// A reader that the fill waits for, and its offset.
pub(crate) type Pacer = (u64, u64);

impl State {
    /// Adds a reader at this place; returns its number.
    pub(super) fn join(&mut self, offset: u64) -> u64 {
        let number = self.next_reader;
        self.next_reader += 1;
        self.readers.insert(number, Place { offset, is_awaited: true, waker: None });
        number
    }

    /// Drops the part of the tail that the store has and, unless much is in transit, no reader
    /// is about to get; if nothing is stored any more, what those that the fill waits for cannot
    /// need.
    pub(super) fn let_go(&mut self, is_transit_full: bool) {
        let stored_bytes = match (self.unstored, self.stored) {
            (Some(_), _) => self.shown_bytes.saturating_sub(2 * NEAR_BYTES),
            (None, Some((_, stored_bytes))) => stored_bytes,
            (None, None) => return,
        };
        while let Some((start, first)) = self.tail.front() {
            let end = start + first.len() as u64;
            let is_near =
                self.unstored.is_none() && !is_transit_full && end + NEAR_BYTES > self.shown_bytes;
            if end > stored_bytes || (is_near && self.is_wanted(*start, end)) {
                return;
            }
            self.tail.pop_front();
        }
    }

    /// Keeps only the piece that came last, which is on its way to the first client all the same:
    /// if that is too slow for the fill, it becomes a reader there.
    pub(super) fn let_all_but_the_last_go(&mut self) {
        self.tail.drain(..self.tail.len().saturating_sub(1));
    }

    pub(super) fn is_open(&self) -> bool {
        self.unstored.is_none() && !matches!(self.end, Some(Err(_)))
    }

    /// Whether what has come and is neither in the tail nor in the store will yet be in the store.
    pub(super) fn is_being_stored(&self) -> bool {
        self.unstored.is_none() && self.end.is_none()
    }

    /// Whether the tail is for readers only that may come: all that there are get their bytes
    /// elsewhere or, from before `near`, from the store, which will have what is in the tail as
    /// well, or wait for what comes later.
    pub(super) fn is_for_nobody_yet(&self, near: u64) -> bool {
        let is_near = |offset: u64| {
            let is_here = (near..=self.shown_bytes).contains(&offset);
            offset != ELSEWHERE && (is_here || self.unstored.is_some())
        };
        self.stored.is_some() && !self.readers.values().any(|place| is_near(place.offset))
    }

    /// Whether the reader whose request began the fill is there, and gets its bytes another way.
    pub(super) fn first_is_elsewhere(&self) -> bool {
        self.readers.get(&0).is_some_and(|first| first.offset == ELSEWHERE)
    }

    /// Whether a reader is within these bytes.
    pub(super) fn is_wanted(&self, start: u64, end: u64) -> bool {
        self.readers.values().any(|place| (start..end).contains(&place.offset))
    }

    /// The first reader, whose request began the fill; the foremost one if it has left.
    pub(super) fn pacer(&self) -> Option<Pacer> {
        let awaited = |place: &Place| place.is_awaited && place.offset != ELSEWHERE;
        let all = || self.readers.iter().filter(|(_, place)| awaited(place));
        let first = all().next().filter(|(number, _)| **number == 0);
        let pacer = first.or_else(|| all().max_by_key(|(_, place)| place.offset));
        pacer.map(|(number, place)| (*number, place.offset))
    }

    /// Bytes of the tail from `offset` on; `None` if they are only in the store.
    pub(super) fn of_tail(&self, offset: u64) -> Option<Bytes> {
        // Searched, not walked through: a reader asks for each piece, and there may be thousands.
        let behind = self.tail.partition_point(|(start, _)| *start <= offset);
        let (start, piece) = self.tail.get(behind.checked_sub(1)?)?;
        let within = usize::try_from(offset - start).ok()?;
        (within < piece.len()).then(|| piece.slice(within..))
    }
}
