//! Byte tables: the offset, size and purpose of each field of each structure.
//!
//! Owns the [`table!`] macro, which turns one declaration into typed slots (that the codecs read
//! and write through) and a `FIELDS` list (that a test compares with `docs/format.md`). An offset
//! is therefore written exactly once.
//!
//! Invariants, checked at compile time: the fields of a structure are adjacent, in order, without
//! gaps or overlaps, and fill it exactly. Access outside a buffer reads zeros and writes nothing
//! (decoders check lengths first; this merely makes a panic impossible).
//!
//! Threads: none; pure functions.

use std::marker::PhantomData;

/// One field of a structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) offset: usize,
    pub(crate) size: usize,
    pub(crate) why: &'static str,
}

/// A value with a fixed little-endian encoding.
pub(crate) trait Wire: Copy {
    /// Encoded bytes.
    const SIZE: usize;
    /// Decodes from exactly `SIZE` bytes; missing ones count as zero.
    fn read(bytes: &[u8]) -> Self;
    /// Encodes into exactly `SIZE` bytes.
    fn write(self, bytes: &mut [u8]);
}

macro_rules! wire_int {
    ($($int:ty),*) => { $(
        impl Wire for $int {
            const SIZE: usize = size_of::<$int>();
            fn read(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(0, |chunk| Self::from_le_bytes(*chunk))
            }
            fn write(self, bytes: &mut [u8]) {
                if let Some(chunk) = bytes.first_chunk_mut() {
                    *chunk = self.to_le_bytes();
                }
            }
        }
    )* };
}
wire_int!(u8, u16, u32, u64);

impl<const N: usize> Wire for [u8; N] {
    const SIZE: usize = N;
    fn read(bytes: &[u8]) -> Self {
        bytes.first_chunk().copied().unwrap_or([0; N])
    }
    fn write(self, bytes: &mut [u8]) {
        if let Some(chunk) = bytes.first_chunk_mut() {
            *chunk = self;
        }
    }
}

/// A field together with the type it is stored as.
pub(crate) struct Slot<T> {
    pub(crate) field: Field,
    stored_as: PhantomData<T>,
}

impl<T: Wire> Slot<T> {
    /// Declares a field; use [`table!`].
    pub(crate) const fn at(offset: usize, name: &'static str, why: &'static str) -> Self {
        Self { field: Field { name, offset, size: T::SIZE, why }, stored_as: PhantomData }
    }

    /// Reads the field.
    #[inline]
    pub(crate) fn get(&self, bytes: &[u8]) -> T {
        let Field { offset, size, .. } = self.field;
        T::read(bytes.get(offset..offset.saturating_add(size)).unwrap_or(&[]))
    }

    /// Writes the field.
    #[inline]
    pub(crate) fn put(&self, bytes: &mut [u8], value: T) {
        let Field { offset, size, .. } = self.field;
        if let Some(place) = bytes.get_mut(offset..offset.saturating_add(size)) {
            value.write(place);
        }
    }
}

impl<const N: usize> Slot<[u8; N]> {
    /// Whether a reserved field is zero as it must be.
    #[inline]
    pub(crate) fn is_zero(&self, bytes: &[u8]) -> bool {
        self.get(bytes) == [0; N]
    }
}

impl Slot<u32> {
    /// Stores the checksum of everything before this field.
    pub(crate) fn seal(&self, bytes: &mut [u8]) {
        let crc = crc32c::crc32c(bytes.get(..self.field.offset).unwrap_or(&[]));
        self.put(bytes, crc);
    }

    /// Whether this field is the checksum of everything before it.
    #[inline]
    pub(crate) fn sealed(&self, bytes: &[u8]) -> bool {
        bytes.get(..self.field.offset).is_some_and(|head| crc32c::crc32c(head) == self.get(bytes))
    }
}

/// Whether the fields fill `total` bytes in order, with no gap and no overlap.
pub(crate) const fn adjacent(fields: &[Field], total: usize) -> bool {
    let (mut next, mut index) = (0, 0);
    while index < fields.len() {
        let field = &fields[index];
        if field.offset != next || field.name.is_empty() || field.why.is_empty() {
            return false;
        }
        next += field.size;
        index += 1;
    }
    next == total
}

/// Declares the slots of a structure and its `FIELDS`, and asserts that they fill it.
macro_rules! table {
    ($total:expr; $($slot:ident: $ty:ty, $offset:expr, $name:literal, $why:literal;)*) => {
        $(pub(super) const $slot: Slot<$ty> = Slot::at($offset, $name, $why);)*
        pub(crate) const FIELDS: &[Field] = &[$($slot.field),*];
        const _: () = assert!(crate::format::fields::adjacent(FIELDS, $total));
    };
}
pub(crate) use table;
