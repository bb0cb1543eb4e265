//! Seeded lists of operations. An operation is plain data: operation `i` of a seed is the same in
//! every process and does not depend on the store's answers, so that a parent process knows the
//! operations of a child it killed. The version of a value is the number of the operation that made
//! it.
//!
//! Threads: none.

use std::sync::Arc;

use damelo::GroupId;

use crate::model::Key;

/// One operation on a store. Keys are indices into [`Workload::key`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// `create_with`.
    Create(NewObject),
    /// A writer, filled in pieces of `piece` bytes, and committed.
    Stream {
        /// What to write.
        object: NewObject,
        /// Bytes per `write`.
        piece: u32,
        /// Tell the length beforehand.
        hint: bool,
    },
    /// A writer that is dropped half way.
    Abandon(NewObject),
    /// A writer that is filled now and committed by the next `CommitHeld`.
    Hold(NewObject),
    /// Commits the writer held, if any.
    CommitHeld,
    /// `read`; `hold` keeps the guard for a while.
    Read {
        /// Key.
        key: usize,
        /// Keep the guard.
        hold: bool,
    },
    /// `read_range`, in thousandths of the length.
    ReadRange {
        /// Key.
        key: usize,
        /// Start, in thousandths.
        start: u32,
        /// End, in thousandths; may lie beyond the object.
        end: u32,
    },
    /// `reader` to the end, from a place in thousandths of the length.
    ReadStream {
        /// Key.
        key: usize,
        /// Where to seek to.
        seek: u32,
        /// Keep the reader, and read on from that place while other operations go on.
        hold: bool,
    },
    /// `lookup`, `length` and `may_contain`.
    Lookup(usize),
    /// `set_metadata`.
    SetMetadata {
        /// Key.
        key: usize,
        /// Bytes of metadata.
        length: u32,
    },
    /// `remove`.
    Remove(usize),
    /// `purge_group`.
    PurgeGroup(u64),
    /// `purge_prefix` of the keys whose index has this remainder.
    PurgePrefix(usize),
    /// `purge_all`.
    PurgeAll,
    /// `love`, `hate` or `neutral`.
    Hint(u64, i8),
    /// `prefetch`.
    Prefetch(u64),
    /// `set_flush_period`, in milliseconds.
    SetCheckpoint(u64, u64),
    /// `sync`.
    Sync,
    /// `checkpoint`.
    Checkpoint,
    /// `drop_memory`.
    DropMemory,
    /// `close` and open again.
    Reopen,
    /// Moves the wall clock by this many seconds.
    Jump(i64),
}

/// The object that a creating operation creates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewObject {
    /// Key.
    pub key: usize,
    /// Group.
    pub group: u64,
    /// Bytes of the value.
    pub length: u64,
    /// Bytes of the metadata.
    pub metadata: u32,
    /// Seconds until it expires; may be past.
    pub expires_in: Option<i64>,
}

/// Shape of a workload.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Number of operations.
    pub ops: usize,
    /// Number of keys.
    pub keys: usize,
    /// Number of groups.
    pub groups: u64,
    /// Largest value.
    pub length_max: u64,
    /// One object in this many is larger than a page.
    pub large_one_in: u32,
    /// Total bytes to create; later creates become tiny. For strict runs, where the ring must not
    /// wrap.
    pub bytes_max: u64,
    /// Whether objects expire and the clock jumps.
    pub expiry: bool,
    /// Whether the store is closed cleanly and reopened during the run.
    pub reopen: bool,
    /// Whether writers and guards are held across other operations.
    pub hold: bool,
    /// Percent of operations that read.
    pub read_percent: u32,
    /// Whether keys of up to the longest allowed length are used.
    pub long_keys: bool,
    /// What most of the operations that write are.
    pub favours: Favours,
}

/// What a workload does much more often than the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Favours {
    /// Nothing.
    Nothing,
    /// Streams, of which every other is given up.
    Streams,
    /// New metadata.
    Metadata,
    /// Objects that expire soon, and a clock that goes on.
    Expiry,
    /// Long objects, of which parts are read and the metadata change.
    Parts,
}

impl Profile {
    /// Everything at once, the ring wrapping many times.
    pub fn wild(ops: usize) -> Profile {
        Profile {
            ops,
            keys: 80,
            groups: 9,
            length_max: 1 << 20,
            large_one_in: 24,
            bytes_max: u64::MAX,
            expiry: true,
            reopen: true,
            hold: true,
            read_percent: 40,
            long_keys: true,
            favours: Favours::Nothing,
        }
    }

    /// So few bytes that the cache must not forget any object.
    pub fn modest(ops: usize, bytes_max: u64) -> Profile {
        Profile { keys: 40, length_max: 200_000, bytes_max, ..Profile::wild(ops) }
    }

    /// Few and mostly long objects on a ring that wraps many times, read in parts again and again
    /// between two of its rounds.
    pub fn parts(ops: usize) -> Profile {
        Profile {
            keys: 16,
            groups: 3,
            large_one_in: 1,
            read_percent: 75,
            favours: Favours::Parts,
            ..Profile::wild(ops)
        }
    }

    /// A few operations for one crash image, mostly writes.
    pub fn crash(ops: usize, bytes_max: u64) -> Profile {
        Profile {
            keys: 14,
            groups: 4,
            length_max: 300_000,
            large_one_in: 12,
            expiry: false,
            reopen: false,
            hold: false,
            read_percent: 10,
            long_keys: false,
            ..Profile::modest(ops, bytes_max)
        }
    }
}

/// Whether the objects of this seed mostly have one length, of which pages of 32 KiB take three and
/// leave an eighth empty: the store then lays its pages closer together.
pub fn is_even(seed: u64) -> bool {
    seed % 7 == 3
}

/// The lengths of half of the objects that are read in parts: few, so that a version often comes to
/// lie where an older one lay.
const PARTS_BYTES: [u64; 2] = [270_000, 450_000];

/// The length of most objects of such a seed.
const EVEN_BYTES: u64 = 8_400;

/// Generator of operations.
#[derive(Debug, Clone)]
pub struct Workload {
    profile: Profile,
    even: bool,
    rng: fastrand::Rng,
    made: usize,
    bytes: u64,
}

const PREFIXES: usize = 4;

impl Workload {
    /// The operations of a seed.
    pub fn new(profile: Profile, seed: u64) -> Workload {
        let rng = fastrand::Rng::with_seed(seed);
        Workload { profile, even: is_even(seed), rng, made: 0, bytes: 0 }
    }

    /// The key of an index.
    pub fn key(index: usize, long_keys: bool) -> Key {
        let mut key = format!("p{}/host{}/object-{index}", index % PREFIXES, index % 7);
        let length = match index % 40 {
            3 => 300,
            19 => 5_000,
            37 if long_keys => 65_536,
            _ => 0,
        };
        while key.len() < length {
            key.push(char::from(b'a' + (key.len() % 26) as u8));
        }
        Arc::from(key.into_bytes())
    }

    /// The key of an index in this workload.
    pub fn key_of(&self, index: usize) -> Key {
        Workload::key(index, self.profile.long_keys)
    }

    /// The prefix of a purge.
    pub fn prefix(rest: usize) -> Vec<u8> {
        format!("p{rest}/").into_bytes()
    }

    /// The group with this number in the workload.
    pub fn group(number: u64) -> GroupId {
        GroupId::of(format!("group {number}"))
    }

    fn any_key(&mut self) -> usize {
        // Half of the operations on a quarter of the keys.
        let keys = self.profile.keys;
        if self.rng.bool() { self.rng.usize(0..keys / 4) } else { self.rng.usize(0..keys) }
    }

    fn any_length(&mut self) -> u64 {
        let rng = &mut self.rng;
        let length = if self.profile.favours == Favours::Parts && rng.bool() {
            PARTS_BYTES[rng.usize(0..2)]
        } else if rng.u32(0..self.profile.large_one_in) == 0 {
            match rng.u8(0..4) {
                0 => rng.u64(8_000..20_000),
                1 => rng.u64(16_000..70_000),
                2 => rng.u64(200_000..300_000),
                _ => rng.u64(100_000..=self.profile.length_max.max(100_000)),
            }
        } else if self.even && rng.u8(0..8) > 0 {
            EVEN_BYTES
        } else {
            match rng.u8(0..8) {
                0 => [0, 1, 7, 8, 63, 64, 65, 448, 512, 4096][rng.usize(0..10)],
                1 => rng.u64(7_900..8_300),
                2..=4 => rng.u64(1..600),
                _ => rng.u64(500..6_000),
            }
        };
        let length = length.min(self.profile.length_max);
        if self.bytes + length > self.profile.bytes_max {
            return length.min(40);
        }
        self.bytes += length + 512;
        length
    }

    fn any_object(&mut self) -> NewObject {
        let key = self.any_key();
        let length = self.any_length();
        let rng = &mut self.rng;
        let expires_in = (self.profile.expiry && rng.u8(0..10) == 0)
            .then(|| [-5, 0, 3, 60, 100_000][rng.usize(0..5)]);
        let home = key as u64 % self.profile.groups;
        NewObject {
            key,
            length,
            expires_in,
            group: if rng.u8(0..4) == 0 { rng.u64(0..self.profile.groups) } else { home },
            metadata: [0, 0, 5, 100, 700][rng.usize(0..5)],
        }
    }

    fn any_read(&mut self) -> Op {
        let key = self.any_key();
        let (a, b) = (self.rng.u32(0..1000), self.rng.u32(0..1200));
        let in_parts = self.profile.favours == Favours::Parts && self.rng.u8(0..4) > 0;
        match if in_parts { self.rng.u8(0..4) } else { self.rng.u8(0..10) } {
            0 | 1 if in_parts => Op::ReadRange { key, start: a, end: a + b / 20 },
            0 | 1 => Op::ReadRange { key, start: a.min(b), end: a.max(b) },
            2 => {
                let hold = self.profile.hold && b < 600;
                Op::ReadStream { key, seek: if a < 500 { 0 } else { a }, hold }
            }
            3 => Op::Lookup(key),
            _ => Op::Read { key, hold: self.profile.hold && a < 100 },
        }
    }

    fn favoured(&mut self) -> Op {
        match self.profile.favours {
            Favours::Streams if self.rng.bool() => Op::Abandon(self.any_object()),
            Favours::Nothing | Favours::Streams => Op::Stream {
                object: self.any_object(),
                piece: [1_000, 16_384, 100_000][self.rng.usize(0..3)],
                hint: self.rng.bool(),
            },
            Favours::Metadata => {
                let length = [0, 30, 900, 20_000][self.rng.usize(0..4)];
                Op::SetMetadata { key: self.any_key(), length }
            }
            Favours::Parts if self.rng.u8(0..3) == 0 => {
                Op::SetMetadata { key: self.any_key(), length: [0, 30, 900][self.rng.usize(0..3)] }
            }
            Favours::Parts => Op::Stream {
                object: self.any_object(),
                piece: [16_384, 100_000][self.rng.usize(0..2)],
                hint: self.rng.bool(),
            },
            Favours::Expiry if self.rng.u8(0..8) == 0 => Op::Jump(self.rng.i64(1..20)),
            Favours::Expiry => {
                let expires_in = Some(self.rng.i64(0..40));
                Op::Create(NewObject { expires_in, ..self.any_object() })
            }
        }
    }

    fn any_write(&mut self) -> Op {
        if self.profile.favours != Favours::Nothing && self.rng.u8(0..4) > 0 {
            return self.favoured();
        }
        let hold = self.profile.hold;
        match self.rng.u8(0..100) {
            0..70 => Op::Create(self.any_object()),
            70..82 => Op::Stream {
                object: self.any_object(),
                piece: [1_000, 16_384, 100_000][self.rng.usize(0..3)],
                hint: self.rng.bool(),
            },
            82..85 => Op::Abandon(self.any_object()),
            85..87 if hold => Op::Hold(self.any_object()),
            85..90 if hold => Op::CommitHeld,
            85..93 => Op::Remove(self.any_key()),
            _ => {
                Op::SetMetadata { key: self.any_key(), length: [0, 30, 900][self.rng.usize(0..3)] }
            }
        }
    }

    fn any_control(&mut self) -> Op {
        let rng = &mut self.rng;
        let group = rng.u64(0..self.profile.groups);
        match rng.u8(0..100) {
            0..12 => Op::PurgeGroup(group),
            12..18 => Op::PurgePrefix(rng.usize(0..PREFIXES)),
            18..21 => Op::PurgeAll,
            21..30 => Op::Hint(group, rng.i8(-1..=1)),
            30..38 => Op::Prefetch(group),
            38..42 => Op::SetCheckpoint(group, [0, 1, 1000][rng.usize(0..3)]),
            42..64 => Op::Sync,
            64..74 => Op::Checkpoint,
            74..84 => Op::DropMemory,
            84..90 if self.profile.reopen => Op::Reopen,
            90..100 if self.profile.expiry => {
                Op::Jump([-100_000, -10, 1, 30, 3_600][rng.usize(0..5)])
            }
            _ => Op::Sync,
        }
    }
}

impl Iterator for Workload {
    type Item = (u64, Op);

    /// The next operation and its number, which is the version of what it creates.
    fn next(&mut self) -> Option<(u64, Op)> {
        if self.made == self.profile.ops {
            return None;
        }
        self.made += 1;
        let op = match self.rng.u32(0..100) {
            x if x < self.profile.read_percent => self.any_read(),
            x if x < 90 => self.any_write(),
            _ => self.any_control(),
        };
        Some((self.made as u64, op))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_gives_the_same_operations() {
        let all = |seed| Workload::new(Profile::wild(500), seed).collect::<Vec<_>>();
        assert_eq!(all(4), all(4));
        assert_ne!(all(4), all(5));
        assert_eq!(all(4).len(), 500);
    }

    #[test]
    fn bytes_stay_within_the_budget() {
        let total: u64 = Workload::new(Profile::modest(2000, 1 << 20), 9)
            .map(|(_, op)| match op {
                Op::Create(o) | Op::Stream { object: o, .. } | Op::Hold(o) => o.length,
                _ => 0,
            })
            .sum();
        assert!(total < (1 << 20) + 2000 * 40, "{total}");
    }
}
