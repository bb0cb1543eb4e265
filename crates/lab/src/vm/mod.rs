//! A memory-mapped file: page faults, LRU, periodic cleaning (Maltzahn 1999 §3.1).
//!
//! Owns which pages are in memory and which of them are dirty. Invariants: never more pages than
//! frames; a page that was never written costs no read. Threads: one user.

use crate::disk::{Direction, SECTOR_BYTES};
use crate::lru::Lru;
use crate::machine::{Kind, Plan, Step};

/// How the system maps files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmParams {
    /// Size of a page.
    pub page_bytes: u32,
    /// Memory for pages of the file.
    pub memory_bytes: u64,
    /// Dirty pages are written at least this often, in seconds ("typically every 30 seconds").
    pub clean_period_s: u32,
    /// Longest disk request made of adjacent dirty pages.
    pub cluster_bytes: u32,
}

impl Default for VmParams {
    /// Digital Unix as the paper ran it: 8 KB pages, and 24 MB of memory (§4).
    fn default() -> VmParams {
        VmParams {
            page_bytes: 8 << 10,
            memory_bytes: 24 << 20,
            clean_period_s: 30,
            cluster_bytes: 64 << 10,
        }
    }
}

/// One mapped file, on a part of a disk.
#[derive(Debug)]
pub struct Mapped {
    params: VmParams,
    disk: u8,
    /// Where it begins there.
    begins_sector: u64,
    /// Resident pages; the value is "dirty".
    resident: Lru<bool>,
    written: Vec<bool>,
    /// Pages that became dirty since the last cleaning, some of which may have gone since.
    dirtied: Vec<u64>,
    next_clean_ns: u64,
    faults: u64,
}

impl Mapped {
    /// Maps a file that lies on `disk` from a sector on.
    ///
    /// # Panics
    /// If a page is shorter than 512 bytes, or memory than a page.
    pub fn new(params: VmParams, disk: u8, begins_sector: u64) -> Mapped {
        assert!(params.page_bytes >= 512, "pages hold sectors");
        assert!(params.memory_bytes >= u64::from(params.page_bytes), "one page fits in memory");
        Mapped {
            params,
            disk,
            begins_sector,
            resident: Lru::new(),
            written: Vec::new(),
            dirtied: Vec::new(),
            next_clean_ns: u64::from(params.clean_period_s) * 1_000_000_000,
            faults: 0,
        }
    }

    /// Faults that had to wait for the disk.
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// Where the page ends in which bytes that end there lie.
    pub(crate) fn page_end(&self, end_bytes: u64) -> u64 {
        end_bytes.next_multiple_of(u64::from(self.params.page_bytes))
    }

    /// Where on its disk it begins.
    pub(crate) fn begins_bytes(&self) -> u64 {
        self.begins_sector * SECTOR_BYTES
    }

    /// Touches bytes for reading.
    pub fn read(&mut self, plan: &mut Plan, offset: u64, bytes: u32) {
        let page_bytes = u64::from(self.params.page_bytes);
        for page in offset / page_bytes..=(offset + u64::from(bytes) - 1) / page_bytes {
            self.fault(plan, page, true);
        }
    }

    /// Touches bytes for writing. A page that is wholly overwritten is not read first (§3.3).
    pub fn write(&mut self, plan: &mut Plan, offset: u64, bytes: u32) {
        let page_bytes = u64::from(self.params.page_bytes);
        let end = offset + u64::from(bytes);
        for page in offset / page_bytes..=(end - 1) / page_bytes {
            let whole = offset <= page * page_bytes && (page + 1) * page_bytes <= end;
            self.fault(plan, page, !whole);
            if let Some(dirty) = self.resident.peek_mut(page)
                && !std::mem::replace(dirty, true)
            {
                self.dirtied.push(page);
            }
            let index = page as usize;
            if self.written.len() <= index {
                self.written.resize(index + 1, false);
            }
            self.written[index] = true;
        }
    }

    /// Cleans if it is time to.
    pub fn tick(&mut self, plan: &mut Plan, now_ns: u64) {
        if now_ns >= self.next_clean_ns {
            self.clean(plan);
            self.next_clean_ns = now_ns + u64::from(self.params.clean_period_s) * 1_000_000_000;
        }
    }

    /// Starts writing all dirty pages, in file order, adjacent ones together.
    pub fn clean(&mut self, plan: &mut Plan) {
        let mut dirtied = std::mem::take(&mut self.dirtied);
        dirtied.sort_unstable();
        for page in dirtied {
            if let Some(dirty) = self.resident.peek_mut(page)
                && std::mem::replace(dirty, false)
            {
                self.push(plan, Direction::Write, page, false);
            }
        }
    }

    /// Forgets every page, all of which are clean.
    pub(crate) fn drop_all(&mut self) {
        debug_assert!(self.dirtied.is_empty(), "cleaned before");
        self.resident = Lru::new();
    }

    fn fault(&mut self, plan: &mut Plan, page: u64, fill: bool) {
        if self.resident.touch(page).is_some() {
            return;
        }
        let frames = self.params.memory_bytes / u64::from(self.params.page_bytes);
        while self.resident.len() as u64 >= frames {
            let Some((victim, dirty)) = self.resident.pop_oldest() else { break };
            if dirty {
                // The frame is needed now: the fault waits for its cleaning (§3.1).
                self.push(plan, Direction::Write, victim, true);
            }
        }
        if fill && self.written.get(page as usize).copied().unwrap_or(false) {
            self.faults += 1;
            self.push(plan, Direction::Read, page, true);
        }
        self.resident.insert(page, false);
    }

    fn push(&self, plan: &mut Plan, direction: Direction, page: u64, wait: bool) {
        let sectors = self.params.page_bytes / SECTOR_BYTES as u32;
        let sector = self.begins_sector + page * u64::from(sectors);
        let step = Step { disk: self.disk, direction, kind: Kind::Page, wait, sector, sectors };
        plan.push(step, self.params.cluster_bytes / SECTOR_BYTES as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(plan: &Plan) -> Vec<(Direction, u64, u32, bool)> {
        plan.steps.iter().map(|s| (s.direction, s.sector / 16, s.sectors / 16, s.wait)).collect()
    }

    /// Two frames. Writes to new pages 0 and 1 cost nothing; page 2 puts 0 out, which is dirty and
    /// waited for; reading page 0 again puts 1 out and reads 0. Cleaning then writes 2 only (0 is
    /// clean).
    #[test]
    fn faults_write_out_and_read_in() {
        let params = VmParams { memory_bytes: 16 << 10, ..VmParams::default() };
        let mut mapped = Mapped::new(params, 0, 0);
        let mut plan = Plan::default();
        mapped.write(&mut plan, 0, 512);
        mapped.write(&mut plan, 8192, 512);
        assert_eq!(shape(&plan), []);
        mapped.write(&mut plan, 16384, 8192);
        assert_eq!(shape(&plan), [(Direction::Write, 0, 1, true)]);
        plan.clear();
        mapped.read(&mut plan, 100, 10);
        assert_eq!(shape(&plan), [(Direction::Write, 1, 1, true), (Direction::Read, 0, 1, true)]);
        plan.clear();
        mapped.clean(&mut plan);
        assert_eq!(shape(&plan), [(Direction::Write, 2, 1, false)]);
        assert_eq!(mapped.faults(), 1);
    }

    /// Pages 3, 5, 4 are dirty: one request of three pages. 20 pages are cut at 64 KB.
    #[test]
    fn cleaning_joins_adjacent_pages() {
        let mut mapped = Mapped::new(VmParams::default(), 0, 0);
        let mut plan = Plan::default();
        for page in [3, 5, 4] {
            mapped.write(&mut plan, page * 8192, 8192);
        }
        mapped.tick(&mut plan, 30_000_000_000);
        assert_eq!(shape(&plan), [(Direction::Write, 3, 3, false)]);
        plan.clear();
        mapped.tick(&mut plan, 59_999_999_999);
        for page in 0..20 {
            mapped.write(&mut plan, page * 8192, 8192);
        }
        assert_eq!(shape(&plan), []);
        mapped.tick(&mut plan, 60_000_000_000);
        let lengths: Vec<u32> = shape(&plan).iter().map(|s| s.2).collect();
        assert_eq!(lengths, [8, 8, 4]);
    }
}
