//! What caches in memory and disks call what is done to an object: memcached's commands,
//! CacheLib's, and plain words, whatever their case. Pure.

use crate::request::Op;

const READS: [&[u8]; 6] = [b"get", b"gets", b"get_lease", b"lease_get", b"read", b"r"];
const WRITES: [&[u8]; 13] = [
    b"set",
    b"add",
    b"replace",
    b"cas",
    b"append",
    b"prepend",
    b"incr",
    b"decr",
    b"set_lease",
    b"lease_set",
    b"put",
    b"write",
    b"w",
];
const DELETES: [&[u8]; 4] = [b"delete", b"del", b"remove", b"purge"];

/// What the name means, if it is one of these.
pub(crate) fn operation(name: &[u8]) -> Option<Op> {
    let is_in = |names: &[&[u8]]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if is_in(&READS) {
        Some(Op::Read)
    } else if is_in(&WRITES) {
        Some(Op::Write)
    } else {
        is_in(&DELETES).then_some(Op::Delete)
    }
}

/// Bytes of an object that is a key and its value. A read with a value of no bytes missed when it
/// was traced, so that nobody knows how many there are: it has no body.
pub(crate) fn key_and_value_bytes(operation: Op, key_bytes: u64, value_bytes: u64) -> u64 {
    match (operation, value_bytes) {
        (Op::Read, 0) => 0,
        _ => key_bytes.saturating_add(value_bytes),
    }
}
