//! The content of an index slot, and its packing in 64 bits. Plain values, no threads.
//!
//! From the highest bit: tag (15), freq (2), length class (9), location (38). The tag is never
//! zero, so a slot in use is never zero, and zero means empty. The high location bits that a
//! store's locations never use extend the tag ([`KeyBits`]). Index checkpoints store this packing
//! and the length classes on disk: changing either is a format change.

use std::fmt;

const LOCATION_BITS: u32 = 38;
const CLASS_BITS: u32 = 9;
const FREQ_BITS: u32 = 2;
pub(super) const TAG_BITS: u32 = 15;

const CLASS_SHIFT: u32 = LOCATION_BITS;
const FREQ_SHIFT: u32 = CLASS_SHIFT + CLASS_BITS;
const TAG_SHIFT: u32 = FREQ_SHIFT + FREQ_BITS;

const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;
const CLASS_MASK: u64 = (1 << CLASS_BITS) - 1;
const FREQ_MASK: u64 = (1 << FREQ_BITS) - 1;
const TAG_MASK: u64 = TAGS << TAG_SHIFT;

/// Bytes in one unit of [`Location`] and [`LengthClass`].
pub const UNIT_BYTES: u64 = 64;

/// The highest use count a slot can hold.
pub const FREQ_MAX: u8 = FREQ_MASK as u8;

/// Number of different tags: 1 to this number.
pub(super) const TAGS: u64 = (1 << TAG_BITS) - 1;

/// An empty slot.
pub(super) const EMPTY: u64 = 0;

const _: () = assert!(LOCATION_BITS + CLASS_BITS + FREQ_BITS + TAG_BITS == u64::BITS);
const _: () = assert!(TAG_SHIFT + TAG_BITS == u64::BITS);
const _: () = {
    let lowest =
        SlotFields { tag: 1, location: Location(0), length_class: LengthClass(0), freq: 0 };
    assert!(lowest.pack() != EMPTY);
    let highest = SlotFields {
        tag: TAGS as u16,
        location: Location::MAX,
        length_class: LengthClass::LARGE,
        freq: FREQ_MAX,
    };
    assert!(highest.pack() == u64::MAX);
};

/// Where a record starts, in units of 64 bytes. The segments of all volumes form one address space.
/// 38 bits address 16 TiB in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Location(u64);

impl Location {
    /// The highest location.
    pub const MAX: Location = Location(LOCATION_MASK);

    /// A location at this number of 64-byte units from the start of the first segment.
    ///
    /// # Panics
    /// When `units` does not fit in 38 bits; the size of all volumes is checked when they are made.
    pub const fn new(units: u64) -> Location {
        assert!(units <= LOCATION_MASK, "location beyond 38 bits");
        Location(units)
    }

    /// As [`Location::new`], or `None` when `units` does not fit.
    pub const fn try_new(units: u64) -> Option<Location> {
        if units <= LOCATION_MASK { Some(Location(units)) } else { None }
    }

    /// The number of 64-byte units from the start of the first segment.
    pub const fn units(self) -> u64 {
        self.0
    }

    /// The number of bytes from the start of the first segment.
    pub const fn bytes(self) -> u64 {
        self.0 * UNIT_BYTES
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

/// A record's length, rounded up to one of 511 lengths; or "large" for longer records.
///
/// Exact up to 49 units (3 KiB), then at most 2 % too high. The class [`LengthClass::LARGE`] covers
/// every length above 43 MiB: read the record's header first to learn its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct LengthClass(u16);

const CLASSES: usize = CLASS_MASK as usize;

/// The longest length in each class, at most 2 % above the shortest one.
const CLASS_UNITS: [u32; CLASSES] = {
    let mut table = [0u32; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let shortest = table[class - 1] as u64 + 1;
        table[class] = (shortest + shortest / LengthClass::INEXACT_PART) as u32;
        class += 1;
    }
    table
};

impl LengthClass {
    /// The class of records too long for any other.
    pub const LARGE: LengthClass = LengthClass(CLASS_MASK as u16);

    /// A class is too high by one part in this many of the length at most.
    pub const INEXACT_PART: u64 = 50;

    /// The longest length, in 64-byte units, with a class of its own.
    pub const LONGEST_UNITS: u64 = CLASS_UNITS[CLASSES - 1] as u64;

    /// The class for a record of `units` 64-byte units: the shortest that covers it.
    pub fn from_units(units: u64) -> LengthClass {
        let class = CLASS_UNITS.partition_point(|&covered| u64::from(covered) < units);
        LengthClass(class as u16) // one past the table is LARGE
    }

    /// The longest length of this class, in 64-byte units. For [`LengthClass::LARGE`] that is the
    /// size of all volumes: check [`LengthClass::is_large`] before reading that much.
    pub const fn units(self) -> u64 {
        if self.is_large() { LOCATION_MASK } else { CLASS_UNITS[self.0 as usize] as u64 }
    }

    /// Whether the length is unknown and the record's header must be read first.
    pub const fn is_large(self) -> bool {
        self.0 == LengthClass::LARGE.0
    }

    /// The class's number, as stored in slots.
    pub const fn code(self) -> u16 {
        self.0
    }
}

/// A slot's content, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotFields {
    /// Part of the key's hash, 1 to 32,767.
    pub tag: u16,
    /// Where the record starts.
    pub location: Location,
    /// The record's length, rounded up.
    pub length_class: LengthClass,
    /// The record's use count, 0 to [`FREQ_MAX`].
    pub freq: u8,
}

impl SlotFields {
    /// Packs the fields into a slot's value, which is never zero. A freq above [`FREQ_MAX`] is
    /// packed as [`FREQ_MAX`].
    pub const fn pack(self) -> u64 {
        debug_assert!(self.tag != 0 && self.tag as u64 <= TAGS);
        let freq = if self.freq > FREQ_MAX { FREQ_MAX } else { self.freq };
        self.location.0
            | (self.length_class.0 as u64) << CLASS_SHIFT
            | (freq as u64) << FREQ_SHIFT
            | (self.tag as u64) << TAG_SHIFT
    }

    /// Unpacks a slot's value; `None` if the slot is empty, or if its tag is zero, which `pack`
    /// never produces.
    pub const fn unpack(slot: u64) -> Option<SlotFields> {
        if tag(slot) == 0 { None } else { Some(fields(slot)) }
    }
}

/// Unpacks a slot known to be in use.
pub(super) const fn fields(slot: u64) -> SlotFields {
    SlotFields {
        tag: tag(slot),
        location: location(slot),
        length_class: LengthClass((slot >> CLASS_SHIFT & CLASS_MASK) as u16),
        freq: freq(slot),
    }
}

pub(super) const fn tag(slot: u64) -> u16 {
    (slot >> TAG_SHIFT) as u16
}

pub(super) const fn location(slot: u64) -> Location {
    Location(slot & LOCATION_MASK)
}

pub(super) const fn freq(slot: u64) -> u8 {
    (slot >> FREQ_SHIFT & FREQ_MASK) as u8
}

/// The same entry with another freq (at most [`FREQ_MAX`]).
pub(super) const fn with_freq(slot: u64, freq: u8) -> u64 {
    let freq = if freq > FREQ_MAX { FREQ_MAX } else { freq };
    slot & !(FREQ_MASK << FREQ_SHIFT) | (freq as u64) << FREQ_SHIFT
}

/// The bits of a slot that tell keys apart: the tag, and the high location bits that are zero in
/// all locations of a store. Each such bit halves the probability that two keys look alike; a store
/// of 1 TiB leaves four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyBits {
    spare: u64,
}

impl KeyBits {
    /// For a store whose locations are all below `units`, which may be any number.
    pub(super) fn for_locations_below(units: u64) -> KeyBits {
        let highest = units.saturating_sub(1).min(LOCATION_MASK);
        let needed = (u64::BITS - highest.leading_zeros()).max(1);
        KeyBits { spare: LOCATION_MASK & !((1 << needed) - 1) }
    }

    /// Number of bits that locations need.
    pub(super) const fn location_bits(self) -> u8 {
        (LOCATION_BITS - self.spare.count_ones()) as u8
    }

    const fn mask(self) -> u64 {
        TAG_MASK | self.spare
    }

    /// The value of these bits for a key's hash. They are independent of the bits that choose shard
    /// and bucket, unless the index has more than a billion slots.
    pub(super) fn of_hash(self, tag: u16, hash: u64) -> u64 {
        u64::from(tag) << TAG_SHIFT | (hash >> 32) << self.location_bits() & self.spare
    }

    /// The value of these bits in a slot.
    pub(super) const fn of_slot(self, slot: u64) -> u64 {
        slot & self.mask()
    }

    /// Whether a slot's bits have the value `key`.
    #[inline]
    pub(super) const fn match_slot(self, slot: u64, key: u64) -> bool {
        (slot ^ key) & self.mask() == 0
    }

    /// The entry without key bits in its location, as [`fields`] expects.
    pub(super) const fn entry(self, slot: u64) -> u64 {
        slot & !self.spare
    }

    pub(super) const fn location(self, slot: u64) -> Location {
        location(self.entry(slot))
    }

    /// A slot with this entry and these key bits. A location beyond the store's is truncated; no
    /// record of the key lies there anyway.
    pub(super) const fn pack(self, fields: SlotFields, key: u64) -> u64 {
        self.entry(fields.pack()) | key & self.spare
    }
}

/// Whether two slots hold the same entry, whatever their freq.
pub(super) const fn same_entry(a: u64, b: u64) -> bool {
    with_freq(a, 0) == with_freq(b, 0)
}
