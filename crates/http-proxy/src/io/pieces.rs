//! Pieces of a body that are kept as they come. Owns nothing. Threads: any.

use bytes::Bytes;

/// Longest piece that smaller ones are joined to.
const JOINED_BYTES_MAX: usize = 1024;

/// Appends a piece to the one before it if both are small; false if they stay apart. An origin may
/// send its bytes one by one: each piece would take forty times its length, and hold the buffer
/// that it was read into. Costs a copy of both.
pub(crate) fn join_small(last: &mut Bytes, next: &[u8]) -> bool {
    let is_small = last.len() + next.len() <= JOINED_BYTES_MAX;
    if is_small {
        *last = [last, next].concat().into();
    }
    is_small
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pieces_are_joined_and_others_stay_as_they_are() {
        let mut last = Bytes::from_static(b"one");
        assert!(join_small(&mut last, b", two"));
        assert_eq!(&last[..], b"one, two");
        assert!(!join_small(&mut last, &[1; JOINED_BYTES_MAX]));
        assert_eq!(&last[..], b"one, two");
    }
}
