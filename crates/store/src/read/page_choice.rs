//! Whether to read an object alone or the whole page it lies on. Pure arithmetic on counts.
//!
//! UCFS 2002 §2.4.5 weighs the prefetch hit rate against the cost of a large read. We add what the
//! paper leaves out: in a full memory the neighbours push other objects out, so only the part of the
//! hit rate that beats theirs counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Recent cost of reads of this device, as exponential averages in nanoseconds.
pub(crate) struct ReadCosts {
    object_ns: AtomicU64,
    page_ns: AtomicU64,
}

/// What is assumed before anything was measured: the device of the UCFS paper reads 64 KiB in
/// 7.1 ms and 4 KiB in 6.1 ms; flash is nearer to two to one.
const RATIO_PERCENT_START: u64 = 200;
const RATIO_PERCENT_MAX: u64 = 1600;
/// What flash could transfer in the time that a read as such costs, the device's and the processor's
/// together. The device alone: 12 KiB (86,000 reads of 4 KiB in a second against 17,500 of 64 KiB, on the
/// virtual disk that we develop on); but with 32 KiB a modelled drive is a little less busy, too, with an
/// eighth fewer reads (`docs/decisions/0005`).
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

    /// Cost of reading `page_bytes` in percent of that of `object_bytes`. Times tell it for a disk with
    /// seeks. On flash they tell it only while the queue is short: behind a long one both wait the
    /// same, though the page keeps the device busy for longer.
    pub(crate) fn ratio_percent(
        &self,
        page_bytes: u64,
        object_bytes: u64,
        rotational: bool,
    ) -> u64 {
        let busy = (FLASH_READ_BYTES + page_bytes) * 100
            / (FLASH_READ_BYTES + object_bytes.min(page_bytes));
        if rotational { self.measured_percent() } else { self.measured_percent().max(busy) }
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

/// What the choice is made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    /// Objects that would come along.
    pub(crate) neighbours: u64,
    /// Share of these that are asked for soon, as far as is known.
    pub(crate) wanted_percent: u64,
    /// Share of the objects leaving memory that is asked for again as soon, in percent.
    pub(crate) regret_percent: u64,
    /// Nothing of worth has to leave memory for the page.
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
        // Love says that all of the group will be wanted: fill memory with the fewest reads.
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
