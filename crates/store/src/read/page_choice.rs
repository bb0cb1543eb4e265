//! Decides whether to read an object alone or the whole page it lies on. Pure arithmetic on counts.
//!
//! UCFS 2002 §2.4.5 weighs the prefetch hit rate against the cost of a large read. This adds the
//! cost of evictions: in a full memory the neighbours evict other objects, so only the part of
//! their hit rate that exceeds those objects' counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Recent costs of this device's reads, as exponential averages in nanoseconds.
pub(crate) struct ReadCosts {
    object_ns: AtomicU64,
    page_ns: AtomicU64,
}

/// The cost ratio assumed before any measurement. The device of the UCFS paper reads 64 KiB in 7.1
/// ms and 4 KiB in 6.1 ms; on flash the ratio is nearer to two to one.
const RATIO_PERCENT_START: u64 = 200;
const RATIO_PERCENT_MAX: u64 = 1600;
/// Bytes that flash could transfer in the fixed cost of a read, device and processor together. For
/// the device alone it is 12 KiB (86,000 reads of 4 KiB per second against 17,500 of 64 KiB, on the
/// virtual disk used for development). With 32 KiB, a modelled drive is also slightly less busy,
/// and there are an eighth fewer reads (`docs/decisions/0005`).
const FLASH_READ_BYTES: u64 = 32 << 10;

impl ReadCosts {
    pub(crate) fn new() -> ReadCosts {
        ReadCosts { object_ns: AtomicU64::new(0), page_ns: AtomicU64::new(0) }
    }

    pub(crate) fn note(&self, page: bool, time: Duration) {
        let cost = if page { &self.page_ns } else { &self.object_ns };
        let now = time.as_nanos() as u64;
        let old = cost.load(Ordering::Relaxed);
        let new = if old == 0 { now } else { old - old / 16 + now / 16 };
        cost.store(new.max(1), Ordering::Relaxed);
    }

    /// Cost of reading `page_bytes` in percent of the cost of `object_bytes`. For a disk with seeks
    /// the measured times give it. On flash they do so only while the queue is short: behind a long
    /// queue both reads wait equally long, although the page keeps the device busy for longer.
    pub(crate) fn ratio_percent(&self, page_bytes: u64, object_bytes: u64, seeks: bool) -> u64 {
        let busy = (FLASH_READ_BYTES + page_bytes) * 100
            / (FLASH_READ_BYTES + object_bytes.min(page_bytes));
        if seeks { self.measured_percent() } else { self.measured_percent().max(busy) }
    }

    fn measured_percent(&self) -> u64 {
        let object = self.object_ns.load(Ordering::Relaxed);
        let page = self.page_ns.load(Ordering::Relaxed);
        if object == 0 || page == 0 {
            return RATIO_PERCENT_START;
        }
        (page * 100 / object).clamp(100, RATIO_PERCENT_MAX)
    }
}

/// Inputs of the choice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    /// Objects that would come with the page.
    pub(crate) neighbours: u64,
    /// Estimated percentage of these that are requested soon.
    pub(crate) wanted_percent: u64,
    /// Percentage of evicted objects that are requested again as soon.
    pub(crate) regret_percent: u64,
    /// The page needs no eviction of valuable objects.
    pub(crate) memory_free: bool,
    pub(crate) loved: bool,
    pub(crate) cost_ratio_percent: u64,
}

/// True if the page should be read.
pub(crate) fn page_pays(q: &Question) -> bool {
    if q.neighbours == 0 {
        return false;
    }
    if q.loved && q.memory_free {
        // The hint says that all of the group will be requested: fill memory with the fewest reads.
        return true;
    }
    let regret = if q.memory_free { 0 } else { q.regret_percent };
    let gain = q.neighbours * q.wanted_percent.saturating_sub(regret);
    gain > q.cost_ratio_percent.saturating_sub(100)
}

#[cfg(test)]
mod tests {
    use super::*;

    const Q: Question = Question {
        neighbours: 7,
        wanted_percent: 50,
        regret_percent: 0,
        memory_free: false,
        loved: false,
        cost_ratio_percent: 200,
    };

    #[test]
    fn neighbours_that_are_used_pay_for_the_page() {
        assert!(page_pays(&Q), "nothing known: half are assumed wanted");
        assert!(page_pays(&Question { wanted_percent: 97, ..Q }));
        assert!(!page_pays(&Question { wanted_percent: 3, ..Q }));
        assert!(!page_pays(&Question { neighbours: 0, ..Q }));
    }

    #[test]
    fn behind_a_long_queue_a_page_of_flash_is_not_cheap() {
        let costs = ReadCosts::new();
        costs.note(false, Duration::from_micros(600));
        costs.note(true, Duration::from_micros(650));
        assert!((200..230).contains(&costs.ratio_percent(64 << 10, 12 << 10, false)));
        assert_eq!(costs.ratio_percent(64 << 10, 12 << 10, true), 108);
    }

    #[test]
    fn a_full_memory_of_better_objects_refuses_the_page() {
        let q = Question { regret_percent: 40, ..Q };
        assert!(!page_pays(&q));
        assert!(page_pays(&Question { memory_free: true, ..q }));
    }

    #[test]
    fn a_seeking_disk_takes_pages_for_little() {
        let q = Question { wanted_percent: 15, ..Q };
        assert!(page_pays(&Question { cost_ratio_percent: 116, ..q }), "UCFS: 7.1 ms for 6.1 ms");
        assert!(!page_pays(&Question { cost_ratio_percent: 500, ..q }));
    }
}
