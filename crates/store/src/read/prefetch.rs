//! Prefetches a whole group into memory, one read for each page. Threads: any.

use std::sync::Arc;

use super::flight::Joined;
use crate::deferred::{Caller, Deferred};
use crate::engine::Engine;
use crate::error::ReadError;
use crate::space::PageAt;
use crate::stats::add;
use crate::types::GroupId;
use crate::workers::Lane;

/// Result of a prefetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PrefetchReport {
    /// Pages read.
    pub pages: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Objects that came into memory.
    pub objects: u64,
    /// Pages that were not read since all of their objects were known to be in memory.
    pub pages_in_memory: u64,
}

impl Engine {
    /// Reads a group's pages on a thread that is there for that, as long as the caller is there.
    pub(crate) fn prefetch_operation(
        self: &Arc<Engine>,
        group: GroupId,
    ) -> Deferred<Result<PrefetchReport, ReadError>> {
        let this = Arc::clone(self);
        self.reading_in(Lane::Ahead, move |caller| this.prefetch_blocking(group, caller))
    }

    /// Reads the pages known to hold objects of a group, but not those in memory: as many, with
    /// these, as fit in memory without evicting loved objects. More would evict the first ones.
    /// Ends at the next page once the caller is gone.
    fn prefetch_blocking(
        self: &Arc<Engine>,
        group: GroupId,
        caller: &Caller,
    ) -> Result<PrefetchReport, ReadError> {
        let mut report = PrefetchReport::default();
        let Some(state) = self.groups.get(group) else { return Ok(report) };
        let current = |segment, life| self.ring.life(segment) == life;
        let most = self.cache.pool.frames() as u64 * 3 / 4;
        for run in state.pages(current) {
            for page in run.first_page..run.first_page + run.pages {
                if report.pages + report.pages_in_memory >= most || caller.is_gone() {
                    return Ok(report);
                }
                // It may take minutes, and a close waits for it.
                if self.is_closed() {
                    return Err(ReadError::Closed);
                }
                let stride = self.ring.page_stride(run.segment);
                let page = PageAt { segment: run.segment, number: u64::from(page), stride };
                self.prefetch_page(page, &mut report)?;
            }
        }
        Ok(report)
    }

    fn prefetch_page(
        self: &Arc<Engine>,
        page: PageAt,
        report: &mut PrefetchReport,
    ) -> Result<(), ReadError> {
        if !self.space.holds_page(page) {
            return Ok(());
        }
        if self.is_page_in_memory(page) {
            report.pages_in_memory += 1;
            return Ok(());
        }
        if self.may_ask(page.segment).is_err() {
            return Ok(());
        }
        // First: whoever follows does not wait for memory, too.
        let run = self.take_for_read(1)?;
        let lead = match self.reads.flights.join(self.page_place(page)) {
            Joined::Leader(lead) => lead,
            // Another read brings it.
            Joined::Follower(flight) => {
                drop(run);
                add(&self.counters.shared_reads, 1);
                flight.wait();
                report.pages_in_memory += u64::from(self.is_page_in_memory(page));
                return Ok(());
            }
        };
        // Not before: who follows another read asks the device for nothing.
        let Ok(_turn) = self.ask(page.segment) else { return Ok(()) };
        // SAFETY: the run is fresh and known to this thread only.
        let buf = unsafe { run.bytes_mut(0, page.stride as usize) };
        if self.space.read(page.segment, page.start(), buf).is_err() {
            return Ok(());
        }
        self.count_read(&self.counters.page_reads, page.stride);
        report.objects += self.admit_page(page, run);
        drop(lead);
        report.pages += 1;
        report.bytes += page.stride;
        Ok(())
    }
}
