//! Small objects in a memory-mapped file of limited or unlimited size: infinite, LRU and
//! frequency-based cyclic replacement (Maltzahn 1999 §3.3 to §3.6).
//!
//! Owns which object lies in which segment. A segment is replaced by an object of the same class
//! only (§3.3). Invariants: no segment ends beyond the file; the sum of counts is that of the
//! objects' counts; counts are at least one. Threads: one user.
//!
//! Deviations: objects larger than 8 KB are refused, as the paper's finite traces leave them out
//! (§4); FBC has a pointer for each class: with one for all, a class that is rare drags it past the
//! others' objects, and the paper's saving over LRU does not come out; until the file is full
//! segments are packed as in SquidMLA; if every object of a class has C_max references after a
//! whole turn, the one the pointer stands on is replaced (the paper does not say).

use super::segments::{CLASSES, SMALL_BYTES_MAX, Segments, class_of, segment_bytes};
use super::spec::{Parameter, Values, number};
use super::{Cache, Design, DesignInputs, Served};
use crate::lru::{Lru, NumberMap};
use crate::machine::Action;
use crate::request::{Catalogue, Request};

pub(super) const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "cmax",
        default: "3",
        values: Values::Range("1", "1000000"),
        about: "references below which an object is replaced",
        set: |o, text| number(text, 1..=1_000_000).map(|n| o.fbc_count_max = n),
    },
    Parameter {
        name: "amax",
        default: "100",
        values: Values::Range("1", "1000000"),
        about: "mean references above which all are halved",
        set: |o, text| number(text, 1..=1_000_000).map(|n| o.fbc_average_max = n),
    },
];

pub(crate) fn make_infinite(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    make(inputs, Replacement::Never)
}

pub(crate) fn make_lru(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    make(inputs, Replacement::Lru(Box::new(std::array::from_fn(|_| Lru::new()))))
}

pub(crate) fn make_fbc(inputs: &DesignInputs<'_>) -> Box<dyn Design> {
    make(
        inputs,
        Replacement::Fbc(Box::new(Cyclic {
            count_max: inputs.options.fbc_count_max,
            average_max: inputs.options.fbc_average_max,
            slots: Default::default(),
            pointers: [0; CLASSES],
            sum: 0,
            count: 0,
        })),
    )
}

fn make(inputs: &DesignInputs<'_>, replacement: Replacement) -> Box<dyn Design> {
    let limit = match replacement {
        Replacement::Never => u64::MAX,
        _ => inputs.options.cache_bytes,
    };
    let cache = MappedCache {
        segments: Segments::packed(),
        limit,
        objects: NumberMap::default(),
        replacement,
        skipped: 0,
    };
    Box::new(Served { cache, rules: inputs.rules(limit) })
}

#[derive(Debug, Clone, Copy)]
struct Stored {
    offset: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    offset: u64,
    key: u64,
    /// References; 0 for a slot without an object.
    count: u32,
}

/// State of FBC.
struct Cyclic {
    count_max: u32,
    average_max: u32,
    /// In file order, for each class.
    slots: [Vec<Slot>; CLASSES],
    pointers: [u64; CLASSES],
    sum: u64,
    count: u64,
}

enum Replacement {
    Never,
    Lru(Box<[Lru<u64>; CLASSES]>),
    Fbc(Box<Cyclic>),
}

impl Cyclic {
    fn slot_mut(&mut self, class: usize, offset: u64) -> Option<&mut Slot> {
        let slots = &mut self.slots[class];
        let index = slots.binary_search_by_key(&offset, |slot| slot.offset).ok()?;
        slots.get_mut(index)
    }

    fn add(&mut self, class: usize, offset: u64, key: u64) {
        let slot = Slot { offset, key, count: 1 };
        match self.slots[class].binary_search_by_key(&offset, |s| s.offset) {
            Ok(index) => self.slots[class][index] = slot,
            Err(index) => self.slots[class].insert(index, slot),
        }
        self.sum += 1;
        self.count += 1;
    }

    fn refer(&mut self, class: usize, offset: u64) {
        if let Some(slot) = self.slot_mut(class, offset) {
            slot.count += 1;
            self.sum += 1;
        }
        if self.count > 0 && self.sum > self.count * u64::from(self.average_max) {
            self.age();
        }
    }

    /// Halves all counts, upwards (§3.6).
    fn age(&mut self) {
        self.sum = 0;
        for slot in self.slots.iter_mut().flatten() {
            slot.count = slot.count.div_ceil(2);
            self.sum += u64::from(slot.count);
        }
    }

    fn drop_object(&mut self, class: usize, offset: u64) {
        if let Some(slot) = self.slot_mut(class, offset) {
            let count = std::mem::take(&mut slot.count);
            self.sum -= u64::from(count);
            self.count -= 1;
        }
    }

    /// The next object of a class with few references, from the pointer on, and how many were
    /// passed over.
    fn target(&mut self, class: usize) -> Option<(u64, u64, u64)> {
        let slots = &self.slots[class];
        if slots.is_empty() {
            return None;
        }
        let start = slots.partition_point(|slot| slot.offset < self.pointers[class]) % slots.len();
        let counts = |i: usize| slots[(start + i) % slots.len()].count;
        let eligible = |i: &usize| counts(*i) > 0 && counts(*i) < self.count_max;
        let passed = (0..slots.len())
            .find(eligible)
            .or_else(|| (0..slots.len()).find(|i| counts(*i) > 0))?;
        let slot = slots[(start + passed) % slots.len()];
        self.pointers[class] = slot.offset + segment_bytes(class);
        Some((slot.offset, slot.key, passed as u64))
    }
}

struct MappedCache {
    segments: Segments,
    limit: u64,
    objects: NumberMap<u64, Stored>,
    replacement: Replacement,
    skipped: u64,
}

impl MappedCache {
    /// Room for an object of a class; what lay there is forgotten.
    fn make_room(&mut self, class: usize) -> Option<u64> {
        let (offset, key) = match &mut self.replacement {
            Replacement::Never => return None,
            Replacement::Lru(classes) => {
                let (key, offset) = classes[class].pop_oldest()?;
                (offset, key)
            }
            Replacement::Fbc(cyclic) => {
                let (offset, key, passed) = cyclic.target(class)?;
                cyclic.drop_object(class, offset);
                self.skipped += passed;
                (offset, key)
            }
        };
        self.objects.remove(&key);
        Some(offset)
    }
}

impl Cache for MappedCache {
    fn size_of(&self, key: u64) -> Option<u64> {
        self.objects.get(&key).map(|stored| stored.bytes)
    }

    fn fetch(&mut self, request: &Request, out: &mut Vec<Action>) {
        let Some(&Stored { offset, bytes }) = self.objects.get(&request.key) else { return };
        match &mut self.replacement {
            Replacement::Never => {}
            Replacement::Lru(classes) => {
                classes[class_of(bytes)].touch(request.key);
            }
            Replacement::Fbc(cyclic) => cyclic.refer(class_of(bytes), offset),
        }
        out.push(Action::ReadMapped { offset, bytes: bytes as u32 });
    }

    fn store(&mut self, request: &Request, _names: &Catalogue, out: &mut Vec<Action>) -> bool {
        let bytes = request.size_bytes;
        if bytes > SMALL_BYTES_MAX {
            return false;
        }
        let class = class_of(bytes);
        let free = self.segments.take(class, self.limit);
        let Some(offset) = free.or_else(|| self.make_room(class)) else { return false };
        match &mut self.replacement {
            Replacement::Never => {}
            Replacement::Lru(classes) => classes[class].insert(request.key, offset),
            Replacement::Fbc(cyclic) => cyclic.add(class, offset, request.key),
        }
        self.objects.insert(request.key, Stored { offset, bytes });
        out.push(Action::WriteMapped { offset, bytes: segment_bytes(class) as u32 });
        true
    }

    fn discard(&mut self, key: u64, _out: &mut Vec<Action>) {
        let Some(Stored { offset, bytes }) = self.objects.remove(&key) else { return };
        let class = class_of(bytes);
        match &mut self.replacement {
            Replacement::Never => {}
            Replacement::Lru(classes) => {
                classes[class].remove(key);
            }
            Replacement::Fbc(cyclic) => cyclic.drop_object(class, offset),
        }
        self.segments.release(offset, bytes);
    }

    fn facts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("objects", self.objects.len() as u64),
            ("mapped_bytes", self.segments.end_bytes()),
            ("skipped", self.skipped),
        ]
    }
}
