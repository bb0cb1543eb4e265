//! Bytes of objects as a function of key, version and length, so that every byte can be checked.
//!
//! Value: the version as eight little-endian bytes, then noise seeded by key, version and length;
//! values under eight bytes are noise only. Metadata: noise seeded likewise in another domain.
//! Pure functions, no threads.

/// Length of the version that a value starts with.
const VERSION_BYTES: usize = 8;
const DOMAIN_VALUE: u64 = 0x76;
const DOMAIN_METADATA: u64 = 0x6d;

fn mix(mut x: u64) -> u64 {
    // The finaliser of splitmix64.
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn seed_of(domain: u64, key: &[u8], version: u64, length: u64) -> u64 {
    let key = key.iter().fold(domain, |h, &b| mix(h ^ u64::from(b)));
    mix(key ^ mix(version) ^ length.rotate_left(32))
}

/// Word `index` of the noise.
fn word(seed: u64, index: u64) -> [u8; 8] {
    mix(seed ^ index.wrapping_mul(0xd6e8_feb8_6659_fd93)).to_le_bytes()
}

fn fill(seed: u64, offset: u64, out: &mut [u8]) {
    let mut done = 0;
    while done < out.len() {
        let at = offset + done as u64;
        let skip = (at % 8) as usize;
        let count = (8 - skip).min(out.len() - done);
        out[done..done + count].copy_from_slice(&word(seed, at / 8)[skip..skip + count]);
        done += count;
    }
}

/// Bytes `offset..offset + out.len()` of a value.
pub fn fill_value(key: &[u8], version: u64, length: u64, offset: u64, out: &mut [u8]) {
    fill(seed_of(DOMAIN_VALUE, key, version, length), offset, out);
    if length >= VERSION_BYTES as u64 {
        let head = version.to_le_bytes();
        let start = offset.min(VERSION_BYTES as u64) as usize;
        let count = (VERSION_BYTES - start).min(out.len());
        out[..count].copy_from_slice(&head[start..start + count]);
    }
}

/// A whole value.
pub fn value(key: &[u8], version: u64, length: u64) -> Vec<u8> {
    let mut out = vec![0; length as usize];
    fill_value(key, version, length, 0, &mut out);
    out
}

/// Whether `bytes` are those of the value at `offset`.
pub fn value_matches(key: &[u8], version: u64, length: u64, offset: u64, bytes: &[u8]) -> bool {
    let mut expected = vec![0; bytes.len()];
    fill_value(key, version, length, offset, &mut expected);
    expected == bytes
}

/// Metadata of a version.
pub fn metadata(key: &[u8], version: u64, length: u32) -> Vec<u8> {
    let mut out = vec![0; length as usize];
    fill(seed_of(DOMAIN_METADATA, key, version, u64::from(length)), 0, &mut out);
    out
}

/// The version of `key` that a whole value is, if the value is genuine and names its version.
pub fn identify(key: &[u8], bytes: &[u8]) -> Option<u64> {
    let head: [u8; VERSION_BYTES] = bytes.get(..VERSION_BYTES)?.try_into().ok()?;
    let version = u64::from_le_bytes(head);
    value_matches(key, version, bytes.len() as u64, 0, bytes).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_agree_with_the_whole_and_versions_differ() {
        for length in [0_u64, 1, 7, 8, 9, 1000] {
            let whole = value(b"k", 3, length);
            for start in 0..length.min(20) {
                let piece = &whole[start as usize..];
                assert!(value_matches(b"k", 3, length, start, piece));
            }
            // Of exactly eight bytes there is only the version.
            if length > 8 {
                assert_eq!(identify(b"k", &whole), Some(3));
                assert_eq!(identify(b"other", &whole), None);
                assert!(!value_matches(b"k", 4, length, 0, &whole));
            }
        }
    }
}
