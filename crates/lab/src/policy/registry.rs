//! Names of the policies, their parameters, and how each is made. Adding one: a file, and a line in
//! [`POLICIES`] and in `PolicySpec::build`. Pure.

use super::Policy;
use super::arc::Arc;
use super::belady::Belady;
use super::belady_size::BeladySize;
use super::clock::Clock;
use super::fbc::Fbc;
use super::gdsf::Gdsf;
use super::lfu::Lfu;
use super::lfu_aging::LfuAging;
use super::lirs::Lirs;
use super::one_queue::{Fifo, Lru, OneQueue};
use super::s3_fifo::{Parameters, S3Fifo};
use super::sieve::Sieve;
use super::slru::{SEGMENTS_MAX, Slru};
use super::store_disk::StoreDisk;
use super::store_memory::StoreMemory;
use super::two_q::TwoQ;
use super::w_tinylfu::WTinyLfu;
use crate::error::SimError;
use crate::name_hint::there_are;
use damelo::{ByteSize, Config, DiskPolicyKind, ResidencyPolicyKind};

/// No cache is larger: what is in it and what comes in, before something goes, fit 64 bits
/// together.
pub(crate) const CAPACITY_BYTES_MAX: u64 = u64::MAX / 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fifo,
    Lru,
    Clock,
    Lfu,
    LfuAging,
    Fbc,
    Gdsf,
    S3Fifo,
    Sieve,
    WTinyLfu,
    Arc,
    TwoQ,
    Slru,
    Lirs,
    Belady,
    BeladySize,
    StoreDisk(DiskPolicyKind),
    StoreMemory(ResidencyPolicyKind),
}

/// A parameter of a policy.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Parameter {
    name: &'static str,
    default: f64,
    min: f64,
    max: f64,
    is_whole: bool,
}

const fn share(name: &'static str, default: f64) -> Parameter {
    Parameter { name, default, min: 0.0, max: 1.0, is_whole: false }
}

const fn whole(name: &'static str, default: f64, min: f64, max: f64) -> Parameter {
    Parameter { name, default, min, max, is_whole: true }
}

/// Of the capacity, as `share`, but also more than all of it.
const fn times(name: &'static str, default: f64) -> Parameter {
    Parameter { name, default, min: 0.0, max: 1e6, is_whole: false }
}

/// What is known of a policy without making it.
#[derive(Debug)]
pub struct PolicyInfo {
    /// Its name in commands, output and documents.
    pub name: &'static str,
    /// Other names that are understood, libCacheSim's among them.
    pub aliases: &'static [&'static str],
    /// One line on it.
    pub about: &'static str,
    parameters: &'static [Parameter],
    kind: Kind,
}

/// Segments of the ring, and share of a segment that may be kept when it is reused: a store's
/// default.
const RING: &[Parameter] = &[whole("segments", 64.0, 2.0, 1e6), whole("reinsert", 20.0, 0.0, 90.0)];

const FBC_RING: &[Parameter] =
    &[RING[0], RING[1], whole("cmax", 3.0, 1.0, 3.0), whole("amax", 100.0, 1.0, 1e6)];

/// All policies.
pub const POLICIES: [PolicyInfo; 24] = [
    info("fifo", &[], "first in, first out", &[], Kind::Fifo),
    info("lru", &[], "least recently used goes first", &[], Kind::Lru),
    info(
        "clock",
        &["fifo-reinsertion", "second-chance"],
        "FIFO with a second chance for what was hit",
        &[whole("bits", 1.0, 1.0, 16.0)],
        Kind::Clock,
    ),
    info("lfu", &[], "least often used since it came goes first", &[], Kind::Lfu),
    info(
        "lfu-aging",
        &["lfuaging"],
        "least often used goes first, counts are halved when their mean passes amax",
        &[whole("amax", 10.0, 1.0, 1e6)],
        Kind::LfuAging,
    ),
    info(
        "fbc",
        &[],
        "cyclic, skips what was used cmax times (Maltzahn 1999)",
        &[whole("cmax", 3.0, 1.0, 1e6), whole("amax", 100.0, 1.0, 1e6)],
        Kind::Fbc,
    ),
    info("gdsf", &[], "smallest use per byte goes first (Cherkasova 1998)", &[], Kind::Gdsf),
    info(
        "s3-fifo",
        &["s3fifo"],
        "small, main and ghost queue (Yang 2023)",
        &[share("small", 0.1), share("ghost", 0.9), whole("threshold", 2.0, 1.0, 1e6)],
        Kind::S3Fifo,
    ),
    info("sieve", &[], "a hand that spares what was hit (Zhang 2024)", &[], Kind::Sieve),
    info(
        "w-tinylfu",
        &["wtinylfu", "tinylfu"],
        "LRU window, then what is asked for more often; counts age by bytes or by objects (Einziger 2017)",
        &[share("window", 0.01), whole("by-objects", 0.0, 0.0, 1.0)],
        Kind::WTinyLfu,
    ),
    info(
        "arc",
        &[],
        "two LRU queues, how long each is learnt from ghosts (Megiddo 2003)",
        &[whole("by-size", 0.0, 0.0, 1.0)],
        Kind::Arc,
    ),
    info(
        "2q",
        &["twoq", "two-q"],
        "FIFO for what is new, LRU for what is asked for after it (Johnson 1994)",
        &[share("kin", 0.25), share("kout", 0.5)],
        Kind::TwoQ,
    ),
    info(
        "slru",
        &["segmented-lru"],
        "LRU in segments, a hit moves up by one (Karedla 1994)",
        &[whole("segments", 4.0, 1.0, SEGMENTS_MAX as f64)],
        Kind::Slru,
    ),
    info(
        "lirs",
        &[],
        "what was asked for again soonest stays, by its last two requests (Jiang 2002)",
        &[share("hir", 0.01), times("history", 1.0)],
        Kind::Lirs,
    ),
    info(
        "belady",
        &["min", "opt"],
        "knows the future: the bound for objects of one size, all of which come in",
        &[],
        Kind::Belady,
    ),
    info(
        "belady-size",
        &["beladysize"],
        "knows the future: greatest size times requests until the next use goes first",
        &[],
        Kind::BeladySize,
    ),
    info(
        "store-disk-fbc",
        &["store-fbc"],
        "the store's own, on a ring: keeps what was used, counts fade",
        FBC_RING,
        Kind::StoreDisk(DiskPolicyKind::Fbc),
    ),
    info(
        "store-disk-lfu-aging",
        &["store-lfu-aging"],
        "the store's own, on a ring: keeps what was used more than the mean",
        RING,
        Kind::StoreDisk(DiskPolicyKind::LfuAging),
    ),
    info(
        "store-disk-lru",
        &[],
        "the store's own, on a ring: keeps what was used in this turn",
        RING,
        Kind::StoreDisk(DiskPolicyKind::Lru),
    ),
    info(
        "store-disk-fifo",
        &[],
        "the store's own, on a ring: keeps nothing",
        RING,
        Kind::StoreDisk(DiskPolicyKind::Fifo),
    ),
    info(
        "store-memory-hit-density",
        &["store-hit-density"],
        "the store's own for memory: asked for most often for its bytes",
        &[],
        Kind::StoreMemory(ResidencyPolicyKind::HitDensity),
    ),
    info(
        "store-memory-s3-fifo",
        &["store-s3-fifo"],
        "the store's own for memory: probation and protected queue",
        &[],
        Kind::StoreMemory(ResidencyPolicyKind::S3Fifo),
    ),
    info(
        "store-memory-lru",
        &[],
        "the store's own for memory: what was hit goes back",
        &[],
        Kind::StoreMemory(ResidencyPolicyKind::Lru),
    ),
    info(
        "store-memory-clock",
        &[],
        "the store's own for memory: what was hit is copied on",
        &[],
        Kind::StoreMemory(ResidencyPolicyKind::Clock),
    ),
];

const fn info(
    name: &'static str,
    aliases: &'static [&'static str],
    about: &'static str,
    parameters: &'static [Parameter],
    kind: Kind,
) -> PolicyInfo {
    PolicyInfo { name, aliases, about, parameters, kind }
}

impl PolicyInfo {
    /// Its parameters with their defaults, as they are written behind its name.
    #[must_use]
    pub fn parameters_text(&self) -> String {
        let texts = self.parameters.iter().map(|p| format!(":{}={}", p.name, p.default));
        texts.collect()
    }
}

/// A policy with its parameters, from which caches of any size can be made.
#[derive(Debug, Clone)]
pub struct PolicySpec {
    info: &'static PolicyInfo,
    values: Vec<f64>,
    label: String,
}

impl PolicySpec {
    /// Understands `name` or `name:parameter=value:parameter=value`, without case.
    ///
    /// # Errors
    /// An unknown policy or parameter, or a value out of range; each with what would be right.
    pub fn parse(given: &str) -> Result<PolicySpec, SimError> {
        let mut parts = given.trim().split(':');
        let name = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let known = || there_are(&name, POLICIES.iter().map(|info| info.name));
        let info = POLICIES
            .iter()
            .find(|info| info.name == name || info.aliases.contains(&name.as_str()))
            .ok_or_else(|| SimError::Policy { given: given.to_owned(), known: known() })?;
        let mut values: Vec<f64> = info.parameters.iter().map(|p| p.default).collect();
        let mut label = info.name.to_owned();
        let mut given_already = Vec::new();
        for part in parts {
            let (at, value) = parse_parameter(info, part)?;
            if given_already.contains(&at) {
                let reason = "it is given twice".to_owned();
                let given = part.to_owned();
                return Err(SimError::Parameter { policy: info.name, given, reason });
            }
            given_already.push(at);
            values[at] = value;
            label.push(':');
            label.push_str(&part.trim().to_ascii_lowercase());
        }
        Ok(PolicySpec { info, values, label })
    }

    /// Understands several, separated by commas.
    ///
    /// # Errors
    /// As [`PolicySpec::parse`].
    pub fn parse_list(given: &str) -> Result<Vec<PolicySpec>, SimError> {
        given.split(',').filter(|part| !part.trim().is_empty()).map(PolicySpec::parse).collect()
    }

    /// Name, with the parameters that were given.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// True if it must be told the next use of every object.
    #[must_use]
    pub fn knows_future(&self) -> bool {
        matches!(self.info.kind, Kind::Belady | Kind::BeladySize)
    }

    /// True if it keeps so much of each object that the names beside it should take little.
    pub(crate) fn keeps_much(&self) -> bool {
        matches!(self.info.kind, Kind::Gdsf | Kind::StoreMemory(ResidencyPolicyKind::HitDensity))
    }

    /// The store's defaults with what the parameters say; `amax` is in hundredths, as there.
    fn store_config(&self, kind: DiskPolicyKind) -> Config {
        let mut config = Config::new("", ByteSize::new(0));
        config.disk_policy = kind;
        config.reinsert_percent_max = self.values[1] as u8;
        if let [_, _, count_max, average_max_percent] = self.values[..] {
            config.fbc_count_max = count_max as u8;
            config.fbc_average_max_percent = average_max_percent as u32;
        }
        config
    }

    /// A cache of that many objects, for steps in which each has one byte.
    #[must_use]
    pub fn build_for_objects(&self, capacity: u64) -> Box<dyn Policy> {
        match self.info.kind {
            Kind::StoreMemory(kind) => Box::new(StoreMemory::of_objects(capacity, kind)),
            Kind::StoreDisk(kind) => {
                let segments = self.values[0] as u64;
                Box::new(StoreDisk::of_objects(capacity, &self.store_config(kind), segments))
            }
            _ => self.build(capacity),
        }
    }

    /// A cache of that many bytes.
    #[must_use]
    pub fn build(&self, capacity_bytes: u64) -> Box<dyn Policy> {
        let capacity_bytes = capacity_bytes.min(CAPACITY_BYTES_MAX);
        let value = |at: usize| self.values[at];
        match self.info.kind {
            Kind::Fifo => Box::new(OneQueue::new(capacity_bytes, Fifo)),
            Kind::Lru => Box::new(OneQueue::new(capacity_bytes, Lru)),
            Kind::Clock => Box::new(OneQueue::new(capacity_bytes, Clock::new(value(0) as u32))),
            Kind::Lfu => Box::new(Lfu::new(capacity_bytes)),
            Kind::LfuAging => Box::new(LfuAging::new(capacity_bytes, value(0) as u64)),
            Kind::Fbc => {
                let rule = Fbc::new(value(0) as u32, value(1) as u64);
                Box::new(OneQueue::new(capacity_bytes, rule))
            }
            Kind::Gdsf => Box::new(Gdsf::new(capacity_bytes)),
            Kind::S3Fifo => Box::new(S3Fifo::new(
                capacity_bytes,
                Parameters { small: value(0), ghost: value(1), threshold: value(2) as u32 },
            )),
            Kind::Sieve => Box::new(OneQueue::new(capacity_bytes, Sieve::new())),
            Kind::WTinyLfu => Box::new(WTinyLfu::new(capacity_bytes, value(0), value(1) > 0.0)),
            Kind::Arc => Box::new(Arc::new(capacity_bytes, value(0) > 0.0)),
            Kind::TwoQ => Box::new(TwoQ::new(capacity_bytes, value(0), value(1))),
            Kind::Slru => Box::new(Slru::new(capacity_bytes, value(0) as u8)),
            Kind::Lirs => Box::new(Lirs::new(capacity_bytes, value(0), value(1))),
            Kind::Belady => Box::new(Belady::new(capacity_bytes)),
            Kind::BeladySize => Box::new(BeladySize::new(capacity_bytes)),
            Kind::StoreDisk(kind) => {
                Box::new(StoreDisk::new(capacity_bytes, &self.store_config(kind), value(0) as u64))
            }
            Kind::StoreMemory(kind) => Box::new(StoreMemory::new(capacity_bytes, kind)),
        }
    }
}

fn parse_parameter(info: &'static PolicyInfo, part: &str) -> Result<(usize, f64), SimError> {
    let bad =
        |reason: String| SimError::Parameter { policy: info.name, given: part.to_owned(), reason };
    let (name, text) = part.split_once('=').ok_or_else(|| bad("write name=value".to_owned()))?;
    let name = name.trim().to_ascii_lowercase();
    let Some(at) = info.parameters.iter().position(|parameter| parameter.name == name) else {
        let names: Vec<&str> = info.parameters.iter().map(|parameter| parameter.name).collect();
        return Err(bad(match names.is_empty() {
            true => "it has no parameters".to_owned(),
            false => there_are(&name, names),
        }));
    };
    let parameter = &info.parameters[at];
    let value: f64 = text.trim().parse().map_err(|_| bad("write a number".to_owned()))?;
    let in_range = value >= parameter.min && value <= parameter.max;
    if !in_range || (parameter.is_whole && value.fract() != 0.0) {
        let kind = if parameter.is_whole { "a whole number" } else { "a number" };
        return Err(bad(format!("write {kind} from {} to {}", parameter.min, parameter.max)));
    }
    Ok((at, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_found_by_name_alias_and_parameters() {
        for (given, label) in [
            ("LRU", "lru"),
            ("s3fifo", "s3-fifo"),
            ("WTinyLFU", "w-tinylfu"),
            ("LFU", "lfu"),
            ("TwoQ:KIN=0.2", "2q:kin=0.2"),
            ("second-chance", "clock"),
            ("fbc:cmax=5:AMAX=20", "fbc:cmax=5:amax=20"),
        ] {
            assert_eq!(PolicySpec::parse(given).expect(given).label(), label);
        }
        assert_eq!(PolicySpec::parse_list("lru, fifo,").expect("two").len(), 2);
    }

    #[test]
    fn every_policy_of_the_store_is_here() {
        let kind_of = |name: String| PolicySpec::parse(&name).expect(&name).info.kind;
        for &kind in DiskPolicyKind::ALL {
            let name = format!("store-disk-{}", kind.name());
            assert_eq!(kind_of(name), Kind::StoreDisk(kind));
        }
        for &kind in ResidencyPolicyKind::ALL {
            let name = format!("store-memory-{}", kind.name());
            assert_eq!(kind_of(name), Kind::StoreMemory(kind));
        }
    }

    #[test]
    fn errors_say_what_would_be_right() {
        for (given, reason) in [
            ("best", "there is no policy `best`; there are fifo, lru,"),
            ("lru:x=1", "policy `lru`: parameter `x=1`: it has no parameters"),
            ("fbc:cmax", "policy `fbc`: parameter `cmax`: write name=value"),
            ("fbc:c=1", "policy `fbc`: parameter `c=1`: there are cmax, amax"),
            ("fbc:cmax=0", "write a whole number from 1 to 1000000"),
            ("fbc:cmax=1.5", "write a whole number from 1 to 1000000"),
            ("s3-fifo:small=2", "write a number from 0 to 1"),
            ("s3-fifo:small=NaN", "write a number from 0 to 1"),
            ("fbc:cmax=4:CMAX=5", "policy `fbc`: parameter `CMAX=5`: it is given twice"),
        ] {
            let error = PolicySpec::parse(given).expect_err(given).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
