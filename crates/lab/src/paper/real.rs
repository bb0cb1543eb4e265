//! A paper's designs on real disks: wall time and what the system counted, beside the model's.
//!
//! Drives and file systems of the papers' time are gone, so nothing published is beside these
//! numbers. Threads: one user.

use std::path::Path;

use super::workload::{made_by, requests as workload};
use super::{Exhibit, Paper, PaperError, PaperOptions, Published, Trace, in_what};
use crate::design::{DesignInputs, DesignOptions, Entry, GroupRule, find};
use crate::disk::Drive;
use crate::lru::NumberMap;
use crate::machine::{
    Machine, MachineConfig, RealConfig, RealMachine, RealPlace, RealReport, RunOptions,
    run as play, run_real,
};
use crate::request::Request;

const REQUESTS: usize = 4_000;
/// What Hades is about, its smallest files, each read twice: 4,000 requests.
const FILES: &str = "gen:files?size=100KB&passes=2";
const SPACE_BYTES: u64 = 1 << 30;

fn designs(paper: Paper) -> &'static [&'static str] {
    match paper {
        Paper::Cfs => &["cfs", "squid", "store"],
        Paper::Squid => &["cern", "squid", "squidl", "squidm", "squidml", "squidmla", "store"],
        Paper::Damelo => &["damelo", "squid", "store"],
        Paper::Ucfs => &["ucfs", "squid", "squidml", "store"],
        Paper::Hades => &["hades", "afs", "store"],
    }
}

fn measure(
    entry: &Entry,
    place: RealPlace,
    trace: &Trace<'_>,
    requests: &[Request],
    flush: bool,
) -> Result<(RealReport, f64), PaperError> {
    // By host, but UCFS as its paper has it.
    let grouping = if entry.name == "ucfs" { GroupRule::HostPath } else { GroupRule::Host };
    let options = DesignOptions {
        grouping,
        cache_bytes: SPACE_BYTES / 2,
        memory_bytes: 8 << 20,
        real: true,
        ..DesignOptions::default().without_fetching()
    };
    let drive = Drive::named("sata-7200-2009").expect("a drive of the registry");
    let inputs = DesignInputs { options: &options, requests, drive: &drive };
    let config = RealConfig { place, size_bytes: SPACE_BYTES, flush };
    let real = RealMachine::new(config).and_then(|mut machine| {
        let mut design = machine.design(entry, &inputs)?;
        run_real(&mut *design, &mut machine, requests, trace.names)
    })?;
    let mut machine = Machine::new(&MachineConfig::new(drive.clone()));
    let options = DesignOptions { real: false, ..options.clone() };
    let mut design = (entry.make)(&DesignInputs { options: &options, ..inputs });
    let model = play(&mut *design, &mut machine, requests, trace.names, RunOptions::default())
        .map_err(in_what("the model beside real disks"))?;
    Ok((real, model.drained_ns as f64 / 1e9))
}

/// About so many requests, for half as many objects, as often as each is read.
fn read_again(requests: &[Request], count: usize) -> Vec<Request> {
    let mut keys: NumberMap<u64, ()> = NumberMap::default();
    for request in requests {
        if keys.len() == count / 2 {
            break;
        }
        keys.insert(request.key, ());
    }
    requests.iter().filter(|request| keys.contains_key(&request.key)).copied().collect()
}

/// The table of a paper's designs.
pub(super) fn run(
    paper: Paper,
    options: &PaperOptions<'_>,
    path: &Path,
) -> Result<Exhibit, PaperError> {
    let count = (REQUESTS / options.scale_down as usize).max(50);
    let mut made = None;
    let trace = match (paper, options.trace) {
        (Paper::Hades, None) => made_by(format!("{FILES}&seed={}", options.seed), &mut made)?,
        _ => workload(options, REQUESTS, &mut made)?,
    };
    let requests = match (paper, options.trace) {
        (Paper::Hades, None) => read_again(trace.requests, count),
        _ => trace.requests.iter().take(count).copied().collect(),
    };
    let mut table = Exhibit::new(
        "real disks",
        "The paper's designs on the disks of this machine",
        "The first requests of the trace; without one of gen:web, for Hades of gen:files (100 KB, read twice). In a directory all designs; on a file or device those that need no files. Wall time until everything is on the disk, one request after the other, and the bytes that the system says \
         it sent to its disks; the model's time is that of the drive sata-7200-2009. The system's caches are as large \
         as they are, so that little is read. The store is the shipped one with its own threads and I/O; what \
         it sends past the page cache counts as written when it is sent, as do its io_uring requests, which are no \
         system calls that read or write.",
    );
    // At less than full size nobody wants to wait for other people's dirty pages.
    let flush = options.scale_down == 1;
    let place = RealPlace::of(path)?;
    for name in designs(paper) {
        let entry = find(name).expect("a design of the registry");
        if place.check(entry).is_err() {
            continue;
        }
        let (real, model_s) = measure(entry, place.clone(), &trace, &requests, flush)?;
        table.row(format!("{name}, time"), "s", Published::Ours, real.elapsed_ns as f64 / 1e9);
        table.row(format!("{name}, time in the model"), "s", Published::Ours, model_s);
        let megabytes = real.system.write_bytes as f64 / 1e6;
        table.row(format!("{name}, written"), "MB", Published::Ours, megabytes);
        let calls = (real.system.read_calls + real.system.write_calls) as f64;
        table.row(format!("{name}, reads and writes"), "calls", Published::Ours, calls);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At a quarter of the requests every file is still read twice, which is what Hades is about.
    #[test]
    fn scaled_down_files_are_read_again_too() {
        let mut made = None;
        let trace = made_by(FILES.to_owned(), &mut made).expect("a generator");
        for count in [REQUESTS, REQUESTS / 4, 50] {
            let requests = read_again(trace.requests, count);
            let mut times: NumberMap<u64, u32> = NumberMap::default();
            requests.iter().for_each(|request| *times.entry(request.key).or_insert(0) += 1);
            assert_eq!(requests.len(), count);
            assert!(times.values().all(|times| *times == 2), "{count}");
        }
    }
}
