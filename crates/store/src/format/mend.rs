//! Puts right a single bit that has turned over under a checksum.
//!
//! Invariant: only the bit changes that alone explains the difference of the checksums; it is
//! unique in anything shorter than 2^31 bits. Threads: none; pure.

/// The polynomial of CRC-32C, least significant bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Turns over the one bit by which `bytes` differ from what had this CRC-32C. False if there is no
/// such bit: then nothing has changed. Takes a nanosecond or two for each bit.
#[must_use]
pub fn mend_bit(bytes: &mut [u8], crc: u32) -> bool {
    // The checksum is linear: a bit with n bits behind it changes it by what a register holds that
    // was shifted n times since.
    let wanted = crc32c::crc32c(bytes) ^ crc;
    let mut register = POLYNOMIAL;
    for byte in bytes.iter_mut().rev() {
        for bit in (0..8).rev() {
            if register == wanted {
                *byte ^= 1 << bit;
                return true;
            }
            register = (register >> 1) ^ (POLYNOMIAL & (register & 1).wrapping_neg());
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_is_found_and_two_are_not_taken_for_one() {
        let whole: Vec<u8> = (0..200_u32).map(|n| (n * 37) as u8).collect();
        let crc = crc32c::crc32c(&whole);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(mend_bit(&mut bytes, crc), "bit {bit}");
            assert_eq!(bytes, whole, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes[(bit / 8 + 77) % 200] ^= 1;
            let damaged = bytes.clone();
            assert!(!mend_bit(&mut bytes, crc), "bit {bit} and another");
            assert_eq!(bytes, damaged, "left as it is");
        }
        assert!(!mend_bit(&mut whole.clone(), crc), "nothing is wrong");
        assert!(!mend_bit(&mut [], 1));
    }
}
