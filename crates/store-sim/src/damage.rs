//! Bytes changed at random, for tests of what reads bytes from outside. Pure.

/// A copy of `sample` with one to three changes: cut off, a byte more, a piece twice, a bit
/// changed.
///
/// The same of the same numbers, so that a failure can be replayed.
pub fn damaged(sample: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..=bytes.len());
        match random.u8(..4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.u8(..)),
            2 => bytes.extend_from_within(at..),
            _ if at < bytes.len() => bytes[at] ^= 1 << random.u8(..8),
            _ => {}
        }
    }
    bytes
}
