//! The loads of `rivals loads`, one line or two each, and what one operation of a load is. Pure:
//! the same seed gives the same operations, whoever runs them and on however many threads.

use crate::workload::mix;

/// Lengths of values.
#[derive(Debug, Clone, Copy)]
pub enum Sizes {
    /// All alike.
    Fixed(usize),
    /// From one byte to this.
    UpTo(usize),
    /// So many of a thousand have the second length, the others the first.
    Two(usize, usize, u64),
    /// Log-normal: median, standard deviation of the logarithm, longest.
    LogNormal(f64, f64, usize),
}

/// Which object an operation is about.
#[derive(Debug, Clone, Copy)]
pub enum Choice {
    /// Rank r in proportion to `1 / r^alpha`; ranks have nothing to do with groups.
    Zipf(f64),
    /// All alike.
    Uniform,
    /// One after the other, round and round.
    Cycle,
    /// Nine of ten are about a tenth of the objects, which is another one after so many operations.
    Drift(u64),
    /// Every other one is about the first so many objects, the rest go once through all others.
    Scanned(u64),
    /// Of writes nine of ten are about the first tenth of the objects; reads are about all alike.
    HotWrites,
}

/// In which group an object lies.
#[derive(Debug, Clone, Copy)]
pub enum Groups {
    /// In one of its own.
    Own,
    /// All in one.
    One,
    /// So many, in runs of neighbours.
    Runs(u64),
    /// So many, dealt in turn.
    Dealt(u64),
}

/// How long objects last.
#[derive(Debug, Clone, Copy)]
pub enum Lasting {
    /// As long as there is room.
    Always,
    /// So many seconds at most, at least one; one object of so many always (0: none).
    Seconds(u32, u64),
}

/// Of a hundred operations; the others read, and create what they miss if `aside`.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    /// Creates of what may be there already.
    pub puts: u64,
    /// Removes.
    pub removes: u64,
    /// Purges of a whole group, of a thousand.
    pub purges_per_mille: u64,
    /// Who misses creates.
    pub aside: bool,
}

/// How many clients there are at once, and what each of them is.
#[derive(Debug, Clone, Copy)]
pub enum Clients {
    /// A thread of its own, on which operations block.
    Threads(usize),
    /// A task that awaits operations, on the few threads of a runtime.
    Tasks(usize),
}

/// One load.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// As on the command line.
    pub name: &'static str,
    /// In a few words.
    pub about: &'static str,
    /// Memory and disk, in MiB.
    pub mib: (u64, u64),
    /// How many objects there are.
    pub objects: u64,
    /// Their lengths.
    pub sizes: Sizes,
    /// Length of a key.
    pub key_bytes: usize,
    /// Their groups.
    pub groups: Groups,
    /// Which of them is next.
    pub choice: Choice,
    /// What is done with it.
    pub mix: Mix,
    /// How long it lasts.
    pub lasting: Lasting,
    /// Who asks.
    pub clients: Clients,
    /// Whether every object is created once, in order, before anything else.
    pub filled: bool,
    /// Operations before it is measured, and that are measured.
    pub operations: (u64, u64),
}

const ASIDE: Mix = Mix { puts: 0, removes: 0, purges_per_mille: 0, aside: true };
const READS: Mix = Mix { aside: false, ..ASIDE };

/// What most loads have in common: 8 KiB on the average, look-aside, twice the disk, four threads.
const USUAL: Load = Load {
    name: "",
    about: "",
    mib: (64, 1024),
    objects: 262_144,
    sizes: Sizes::UpTo(16 << 10),
    key_bytes: 16,
    groups: Groups::Runs(4096),
    choice: Choice::Zipf(0.9),
    mix: ASIDE,
    lasting: Lasting::Always,
    clients: Clients::Threads(4),
    filled: false,
    operations: (400_000, 400_000),
};

/// All of them.
pub fn all() -> Vec<Load> {
    let mut all = shapes();
    all.extend(writes());
    all.extend(lengths());
    all.extend(groups());
    all
}

fn shapes() -> Vec<Load> {
    let zipf = |alpha| Load { choice: Choice::Zipf(alpha), ..USUAL };
    let reads = |threads| Load { clients: Clients::Threads(threads), ..USUAL };
    let tasks = |tasks| Load { clients: Clients::Tasks(tasks), ..USUAL };
    vec![
        Load { name: "aside-0.8", about: "look-aside, zipf 0.8", ..zipf(0.8) },
        Load { name: "aside-1.0", about: "look-aside, zipf 1.0", ..zipf(1.0) },
        Load { name: "aside-1.2", about: "look-aside, zipf 1.2", ..zipf(1.2) },
        Load { name: "threads-16", about: "look-aside, 16 threads", ..reads(16) },
        Load { name: "threads-64", about: "look-aside, 64 threads", ..reads(64) },
        Load { name: "tasks-16", about: "look-aside, 16 tasks that await", ..tasks(16) },
        Load { name: "tasks-64", about: "look-aside, 64 tasks that await", ..tasks(64) },
        Load { name: "tasks-1000", about: "look-aside, 1,000 tasks that await", ..tasks(1000) },
        Load {
            name: "cycle",
            about: "a cyclic scan of 1.5 times the disk",
            objects: 196_608,
            choice: Choice::Cycle,
            operations: (196_608, 393_216),
            ..USUAL
        },
        Load {
            name: "scanned",
            about: "a hot set of 3/4 of memory, beside one pass through twice the disk",
            choice: Choice::Scanned(6144),
            operations: (100_000, 500_000),
            ..USUAL
        },
        Load {
            name: "drift",
            about: "nine of ten on a tenth that changes every 100,000",
            choice: Choice::Drift(100_000),
            operations: (200_000, 600_000),
            ..USUAL
        },
        Load {
            name: "small-memory",
            about: "16 MiB of memory, 2 GiB of disk",
            mib: (16, 2048),
            ..zipf(0.9)
        },
        Load {
            name: "small-disk",
            about: "128 MiB of memory, 160 MiB of disk",
            mib: (128, 160),
            objects: 65_536,
            ..zipf(0.9)
        },
    ]
}

fn writes() -> Vec<Load> {
    let fits = Load { objects: 65_536, filled: true, ..USUAL };
    let ttl = Load { operations: (600_000, 600_000), ..USUAL };
    vec![
        Load {
            name: "read-mostly",
            about: "99 reads, 1 create",
            mix: Mix { puts: 1, ..ASIDE },
            ..USUAL
        },
        Load {
            name: "write-mostly",
            about: "1 read, 99 creates",
            mix: Mix { puts: 99, ..ASIDE },
            ..USUAL
        },
        Load {
            name: "ttl",
            about: "everything lasts 1 to 5 seconds",
            lasting: Lasting::Seconds(5, 0),
            ..ttl
        },
        Load {
            name: "ttl-lasting",
            about: "1 to 3 seconds, one of ten for ever",
            lasting: Lasting::Seconds(3, 10),
            choice: Choice::Uniform,
            ..ttl
        },
        Load {
            name: "churn",
            about: "half removes, 3/8 creates, 1/8 reads, uniform",
            choice: Choice::Uniform,
            mix: Mix { puts: 37, removes: 50, ..READS },
            operations: (400_000, 800_000),
            ..USUAL
        },
        Load {
            name: "remove-lookaside",
            about: "half removes, half look-aside reads, half the disk",
            choice: Choice::Zipf(0.8),
            mix: Mix { removes: 50, ..ASIDE },
            operations: (400_000, 800_000),
            ..fits
        },
        Load {
            name: "hot-writes",
            about: "half the disk, a tenth gets 9/10 of the creates (half of all)",
            choice: Choice::HotWrites,
            mix: Mix { puts: 50, ..READS },
            operations: (300_000, 600_000),
            ..fits
        },
        Load {
            name: "burst",
            about: "creates of 3/4 of the disk as fast as they are taken, then reads",
            objects: 98_304,
            filled: true,
            choice: Choice::Uniform,
            mix: READS,
            operations: (0, 100_000),
            ..USUAL
        },
    ]
}

fn lengths() -> Vec<Load> {
    let of = |objects, sizes| Load { objects, sizes, ..USUAL };
    let few = |load: Load| Load { operations: (60_000, 60_000), ..load };
    vec![
        few(Load {
            name: "log-normal",
            about: "median 4 KiB, sigma 2, up to 64 MiB",
            ..of(80_000, Sizes::LogNormal(4096.0, 2.0, 64 << 20))
        }),
        few(Load {
            name: "two-sizes",
            about: "100 bytes, and 5 in a thousand 1 MiB",
            ..of(400_000, Sizes::Two(100, 1 << 20, 5))
        }),
        few(Load { name: "above-page", about: "all 65 KiB", ..of(32_768, Sizes::Fixed(65 << 10)) }),
        few(Load { name: "half-page", about: "all 33 KiB", ..of(65_536, Sizes::Fixed(33 << 10)) }),
        Load { name: "third-page", about: "all 22 KiB", ..of(98_304, Sizes::Fixed(22 << 10)) },
        Load { name: "quarter-page", about: "all 16 KiB", ..of(131_072, Sizes::Fixed(16 << 10)) },
        Load {
            name: "tiny",
            about: "all 100 bytes, 5 million, 256 MiB of disk, 16 of memory",
            mib: (16, 256),
            operations: (3_000_000, 2_000_000),
            ..of(5_000_000, Sizes::Fixed(100))
        },
        Load {
            name: "empty",
            about: "values of no bytes",
            mib: (16, 256),
            operations: (1_000_000, 1_000_000),
            ..of(2_000_000, Sizes::Fixed(0))
        },
        Load { name: "long-keys", about: "keys of 1 KiB", key_bytes: 1024, ..USUAL },
    ]
}

fn groups() -> Vec<Load> {
    let purges = Mix { purges_per_mille: 50, ..ASIDE };
    vec![
        Load {
            name: "groups-own",
            about: "each object in a group of its own",
            groups: Groups::Own,
            ..USUAL
        },
        Load { name: "group-one", about: "all in one group", groups: Groups::One, ..USUAL },
        Load {
            name: "groups-dealt",
            about: "1,000 groups dealt in turn",
            groups: Groups::Dealt(1000),
            ..USUAL
        },
        Load {
            name: "purges",
            about: "5% purges of groups of 4, look-aside, half the disk",
            groups: Groups::Runs(16_384),
            objects: 65_536,
            filled: true,
            mix: purges,
            operations: (800_000, 1_600_000),
            ..USUAL
        },
    ]
}

/// What is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Read; create if it is not there and the load says so.
    Read(u64),
    /// Create.
    Put(u64),
    /// Remove.
    Remove(u64),
    /// Purge a group.
    Purge(u64),
}

/// A load and what drawing from it needs.
pub struct Source {
    /// What it draws from.
    pub load: Load,
    seed: u64,
    /// For Zipf's law: sums up to each rank.
    up_to: Vec<f64>,
    by_rank: Vec<u32>,
}

/// A fraction from 0 to below 1.
fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

impl Source {
    /// Draws by that seed.
    pub fn new(load: Load, seed: u64) -> Source {
        let mut source = Source { load, seed, up_to: Vec::new(), by_rank: Vec::new() };
        if let Choice::Zipf(alpha) = load.choice {
            let mut sum = 0.0;
            source.up_to = (1..=load.objects)
                .map(|rank| {
                    sum += (rank as f64).powf(-alpha);
                    sum
                })
                .collect();
            source.by_rank = (0..load.objects as u32).collect();
            fastrand::Rng::with_seed(seed).shuffle(&mut source.by_rank);
        }
        source
    }

    /// Random bits of operation `at`, other ones for each `salt`.
    fn bits(&self, at: u64, salt: u64) -> u64 {
        mix(mix(at ^ self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(salt << 56) ^ salt)
    }

    /// The operation with that number.
    pub fn op(&self, at: u64) -> Op {
        let mix = self.load.mix;
        let draw = self.bits(at, 1) % 1000;
        let (removes, puts) = (mix.removes * 10, mix.puts * 10);
        if draw < mix.purges_per_mille {
            return Op::Purge(self.group(self.bits(at, 2) % self.load.objects));
        }
        let draw = draw - mix.purges_per_mille;
        let is_put = (removes..removes + puts).contains(&draw);
        let object = self.object(at, is_put);
        match draw {
            _ if draw < removes => Op::Remove(object),
            _ if is_put => Op::Put(object),
            _ => Op::Read(object),
        }
    }

    fn object(&self, at: u64, is_put: bool) -> u64 {
        let objects = self.load.objects;
        let draw = self.bits(at, 3);
        let hot = |from: u64, many: u64, of_ten: u64| match draw % 10 < of_ten {
            true => (from + draw / 10 % many) % objects,
            false => draw / 10 % objects,
        };
        match self.load.choice {
            Choice::Zipf(_) => {
                let sum = self.up_to.last().copied().unwrap_or(0.0) * fraction(draw);
                let rank = self.up_to.partition_point(|up_to| *up_to <= sum);
                u64::from(self.by_rank[rank.min(self.by_rank.len() - 1)])
            }
            Choice::Uniform => draw % objects,
            Choice::Cycle => at % objects,
            Choice::Drift(every) => hot(at / every * (objects / 10), objects / 10, 9),
            Choice::Scanned(first) if at.is_multiple_of(2) => draw % first,
            Choice::Scanned(first) => first + at / 2 % (objects - first),
            Choice::HotWrites if is_put => hot(0, objects / 10, 9),
            Choice::HotWrites => draw % objects,
        }
    }

    /// Bytes of an object's value.
    pub fn length(&self, object: u64) -> usize {
        let bits = mix(object ^ 0x5eed);
        match self.load.sizes {
            Sizes::Fixed(bytes) => bytes,
            Sizes::UpTo(most) => 1 + (bits % most as u64) as usize,
            Sizes::Two(_, large, of_thousand) if bits % 1000 < of_thousand => large,
            Sizes::Two(small, ..) => small,
            Sizes::LogNormal(median, sigma, most) => {
                let (u, v) = (1.0 - fraction(bits), fraction(mix(bits)));
                let normal = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
                ((median * (sigma * normal).exp()) as usize).clamp(1, most)
            }
        }
    }

    /// Longest value there is.
    pub fn length_max(&self) -> usize {
        (0..self.load.objects).map(|object| self.length(object)).max().unwrap_or(0)
    }

    /// An object's group.
    pub fn group(&self, object: u64) -> u64 {
        match self.load.groups {
            Groups::Own => object,
            Groups::One => 0,
            Groups::Runs(groups) => object * groups / self.load.objects,
            Groups::Dealt(groups) => object % groups,
        }
    }

    /// The objects of a group, for who must remove them one by one.
    pub fn members(&self, group: u64) -> Vec<u64> {
        let objects = self.load.objects;
        match self.load.groups {
            Groups::Own => vec![group],
            Groups::One => (0..objects).collect(),
            Groups::Runs(groups) => {
                let first = |group: u64| (group * objects).div_ceil(groups);
                (first(group)..first(group + 1)).collect()
            }
            Groups::Dealt(groups) => (group..objects).step_by(groups as usize).collect(),
        }
    }

    /// For how many seconds an object that is created now lasts; 0: always.
    pub fn lasts_s(&self, object: u64) -> u32 {
        match self.load.lasting {
            Lasting::Always => 0,
            Lasting::Seconds(_, one_of) if one_of > 0 && mix(object).is_multiple_of(one_of) => 0,
            Lasting::Seconds(most, _) => 1 + (mix(object ^ 1) % u64::from(most)) as u32,
        }
    }

    /// Writes an object's key into `key`.
    pub fn key(&self, object: u64, key: &mut Vec<u8>) {
        key.clear();
        key.resize(self.load.key_bytes, b'k');
        key[..8].copy_from_slice(&object.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_draws_objects_it_has_and_keeps_its_mix() {
        for load in all() {
            let source = Source::new(load, 7);
            let (mut puts, mut removes) = (0, 0);
            for at in 0..10_000 {
                match source.op(at) {
                    Op::Read(object) => assert!(object < load.objects, "{}", load.name),
                    Op::Put(_) => puts += 1,
                    Op::Remove(_) => removes += 1,
                    Op::Purge(group) => assert!(!source.members(group).is_empty()),
                }
            }
            assert!((puts as i64 - load.mix.puts as i64 * 100).abs() < 300, "{}", load.name);
            assert!((removes as i64 - load.mix.removes as i64 * 100).abs() < 300, "{}", load.name);
        }
    }

    #[test]
    fn members_of_groups_are_those_whose_group_it_is() {
        for groups in [Groups::Own, Groups::One, Groups::Runs(7), Groups::Dealt(7)] {
            let load = Load { objects: 100, groups, choice: Choice::Uniform, ..all()[0] };
            let source = Source::new(load, 1);
            for object in 0..100 {
                assert!(source.members(source.group(object)).contains(&object), "{groups:?}");
            }
        }
    }

    #[test]
    fn the_log_normal_has_its_median() {
        let load = all().into_iter().find(|load| load.name == "log-normal").unwrap();
        let source = Source::new(load, 1);
        let mut lengths: Vec<usize> = (0..20_001).map(|object| source.length(object)).collect();
        lengths.sort_unstable();
        assert!((3800..4400).contains(&lengths[10_000]), "{}", lengths[10_000]);
    }
}
