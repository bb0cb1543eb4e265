//! The bytes of a value to be stored: one piece, or several consecutive ones.
//!
//! Owns nothing: it borrows. Bytes from a network come in pieces, and are joined only in the memory
//! where the object will lie. Threads: any.

/// Borrowed bytes of a value.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Whole(&'a [u8]),
    Pieces(&'a [&'a [u8]]),
}

impl<'a> Value<'a> {
    /// The pieces, in order.
    pub(crate) fn pieces(&self) -> &[&'a [u8]] {
        match self {
            Value::Whole(bytes) => std::slice::from_ref(bytes),
            Value::Pieces(pieces) => pieces,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces().iter().map(|piece| piece.len()).sum()
    }

    /// Copies the value into `room`, which must have the value's length.
    ///
    /// # Panics
    /// If the lengths differ.
    pub(crate) fn copy_to(&self, mut room: &mut [u8]) {
        for piece in self.pieces() {
            let (now, later) = room.split_at_mut(piece.len());
            now.copy_from_slice(piece);
            room = later;
        }
        assert!(room.is_empty(), "room for another length than the value's");
    }

    pub(crate) fn to_vec(self) -> Vec<u8> {
        self.pieces().concat()
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
        assert_eq!(value.to_vec(), b"one and two");
        assert_eq!(Value::from(&b""[..]).len(), 0);
        assert_eq!(Value::Pieces(&[]).to_vec(), b"");
    }
}
