//! The bytes of a value to be stored: one piece, or several consecutive ones.
//!
//! Owns nothing: it borrows. Bytes from a network come in pieces, and are joined only in the memory
//! where the object will lie. Threads: any.

use bytes::Bytes;

/// Borrowed bytes of a value.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Whole(&'a [u8]),
    Pieces(&'a [&'a [u8]]),
    /// Pieces that can be kept without a copy.
    Shared(&'a [Bytes]),
}

impl<'a> Value<'a> {
    /// The pieces, in order.
    pub(crate) fn pieces(self) -> impl Iterator<Item = &'a [u8]> {
        let count = match self {
            Value::Whole(_) => 1,
            Value::Pieces(pieces) => pieces.len(),
            Value::Shared(pieces) => pieces.len(),
        };
        (0..count).map(move |at| match self {
            Value::Whole(bytes) => bytes,
            Value::Pieces(pieces) => pieces[at],
            Value::Shared(pieces) => &pieces[at][..],
        })
    }

    pub(crate) fn len(self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }

    /// Copies the value into `room`, which must have the value's length.
    ///
    /// # Panics
    /// If the lengths differ.
    pub(crate) fn copy_to(self, mut room: &mut [u8]) {
        for piece in self.pieces() {
            let (now, later) = room.split_at_mut(piece.len());
            now.copy_from_slice(piece);
            room = later;
        }
        assert!(room.is_empty(), "room for another length than the value's");
    }

    /// The same bytes for who needs them after the call: a copy, unless they can be shared.
    pub(crate) fn kept(self) -> Vec<Bytes> {
        match self {
            Value::Whole(bytes) => vec![Bytes::copy_from_slice(bytes)],
            Value::Pieces(pieces) => vec![pieces.concat().into()],
            Value::Shared(pieces) => pieces.to_vec(),
        }
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Value<'a> {
        Value::Whole(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_same_as_what_they_make_up() {
        let pieces: [&[u8]; 4] = [b"one", b"", b" and", b" two"];
        let value = Value::Pieces(&pieces);
        let mut room = [0; 11];
        value.copy_to(&mut room);
        assert_eq!((value.len(), &room[..]), (11, &b"one and two"[..]));
        assert_eq!(value.kept().concat(), b"one and two");
        assert_eq!(Value::from(&b""[..]).len(), 0);
        assert_eq!(Value::Pieces(&[]).kept().concat(), b"");
        let shared = pieces.map(Bytes::from_static);
        let value = Value::Shared(&shared);
        room.fill(0);
        value.copy_to(&mut room);
        assert_eq!((value.len(), &room[..]), (11, &b"one and two"[..]));
        let same =
            value.kept().iter().zip(&shared).all(|(one, other)| one.as_ptr() == other.as_ptr());
        assert!(same, "they are not copied");
    }
}
