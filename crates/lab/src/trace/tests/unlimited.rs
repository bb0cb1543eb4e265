//! What `trace stat` says that an unlimited cache hits, against caches with room for all: a
//! design's and a simulated one, on random traces. One thread.

use crate::design::{DesignInputs, DesignOptions, find};
use crate::disk::Drive;
use crate::error::TraceError;
use crate::machine::{Machine, MachineConfig, RunOptions, run};
use crate::policy::PolicySpec;
use crate::request::{Catalogue, Request};
use crate::sim::{SimOptions, SizeSpec, Warmup, simulate};
use crate::trace::{ReadOptions, Trace, load, trace_stat};

/// Requests for forty objects of one size each, as lines of our own form. What has no body comes
/// for `any` object, with sizes of headers too, or only for those that are not there.
fn random_lines(seed: u64, any: bool) -> String {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut is_there = [false; 40];
    let mut text = String::from("time_s,client,method,status,size_bytes,url\n");
    for second in 0..2_000 {
        let object = rng.usize(..is_there.len());
        let without = if any { rng.u8(..3) } else { 0 };
        let (method, status, bytes) = match rng.u8(..10) {
            0 => ("DELETE", 204, 0),
            1..4 if any || !is_there[object] => {
                [("GET", 200, 0), ("GET", 304, 250), ("HEAD", 200, 260)][usize::from(without)]
            }
            _ => ("GET", 200, 1000 + 10 * object),
        };
        match method {
            "DELETE" => is_there[object] = false,
            _ => is_there[object] |= bytes >= 1000,
        }
        text += &format!("{second},u,{method},{status},{bytes},http://h/{object}\n");
    }
    text
}

/// `lab sim` leaves out what has no bytes, also where its object is there, so it is asked only
/// about traces in which that does not happen.
#[test]
fn an_unlimited_cache_hits_what_designs_and_sim_hit_with_room_for_all() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let name = file.path().to_str().expect("a name");
    let open = || Trace::open(name, &ReadOptions::default());
    for (seed, any) in (0..8).zip([false, true].into_iter().cycle()) {
        std::fs::write(file.path(), random_lines(seed, any)).expect("written");
        let stat = trace_stat(&mut open().expect("our own form"), |_| {}).expect("it is read");
        let of_stat = (stat.hit_ratio_max, stat.byte_hit_ratio_max);
        let (requests, names) = load(&mut open().expect("it"), |_| {}).expect("it is read");
        assert_eq!(of_stat, ratios_of_a_design(&requests, &names), "seed {seed}");
        if !any {
            assert_eq!(of_stat, ratios_of_sim(&open), "seed {seed}");
        }
    }
}

fn ratios_of_a_design(requests: &[Request], names: &Catalogue) -> (f64, f64) {
    let config = MachineConfig::new(Drive::named("atlas-10k").expect("known"));
    let options = DesignOptions::default();
    let inputs =
        DesignInputs { options: &options, requests: requests.into(), drive: &config.drive };
    let mut design = (find("squid").expect("registered").make)(&inputs);
    let mut machine = Machine::new(&config);
    let report = run(&mut *design, &mut machine, requests, names, RunOptions::default());
    let report = report.expect("there is room");
    let ratio = |part: u64, whole: u64| part as f64 / whole as f64;
    (ratio(report.hits, report.reads), ratio(report.hit_bytes, report.read_bytes))
}

fn ratios_of_sim(open: &dyn Fn() -> Result<Trace, TraceError>) -> (f64, f64) {
    let options = SimOptions {
        policies: PolicySpec::parse_list("lru").expect("known"),
        sizes: SizeSpec::parse_list("1GiB").expect("a size"),
        ignores_sizes: false,
        warmup: Warmup::None,
        interval_s: None,
        threads: 1,
    };
    let report = simulate(open, &options, &mut |_, _, _| {}).expect("it is read");
    let tally = report.caches[0].tally;
    let ratio = |missed: u64, whole: u64| (whole - missed) as f64 / whole as f64;
    (ratio(tally.misses, tally.requests), ratio(tally.miss_bytes, tally.bytes))
}
