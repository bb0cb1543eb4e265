//! What is in a value: whose it is, which version, when it expires. Values below 16 bytes say
//! nothing.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::workload::mix;

/// Bytes that say so.
pub const HEAD_BYTES: usize = 16;

/// Seconds since 1970.
pub fn now_s() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() as u32
}

/// Writes the head of a value.
pub fn write(value: &mut [u8], object: u64, version: u32, expires_s: u32) {
    if value.len() >= HEAD_BYTES {
        value[..8].copy_from_slice(&mix(object + 1).to_le_bytes());
        value[8..12].copy_from_slice(&version.to_le_bytes());
        value[12..16].copy_from_slice(&expires_s.to_le_bytes());
    }
}

fn word(value: &[u8], at: usize) -> u32 {
    let bytes = value.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

/// Whether a value says that it has expired.
pub fn is_expired(value: &[u8]) -> bool {
    let expires_s = word(value, 12);
    value.len() >= HEAD_BYTES && expires_s > 0 && expires_s <= now_s()
}

/// Whether a value is that object's, not older than the version, and has not expired for a second
/// and more.
pub fn is_right(value: &[u8], object: u64, length: usize, version: u32) -> bool {
    if value.len() != length {
        return false;
    }
    let expires_s = word(value, 12);
    length < HEAD_BYTES
        || (value[..8] == mix(object + 1).to_le_bytes()
            && word(value, 8) >= version
            && (expires_s == 0 || now_s() <= expires_s + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_tell_other_objects_older_versions_and_the_expired() {
        let mut value = [0; 20];
        write(&mut value, 3, 7, 0);
        assert!(is_right(&value, 3, 20, 7) && !is_right(&value, 3, 20, 8));
        assert!(!is_right(&value, 4, 20, 7) && !is_right(&value, 3, 19, 7) && !is_expired(&value));
        write(&mut value, 3, 7, now_s() - 10);
        assert!(!is_right(&value, 3, 20, 7) && is_expired(&value));
    }
}
