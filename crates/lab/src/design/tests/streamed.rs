//! A trace that is read again for each design gives what one in memory gives.

use super::*;
use crate::design::{GroupRule, REGISTRY};
use crate::machine::Pace;
use crate::requests::Requests;
use crate::trace::{AllRequests, ReadOptions, Trace, load_or_stream};

fn loaded(kept_max: usize) -> (AllRequests, Catalogue) {
    let options = ReadOptions::default();
    let name = "gen:web?seed=5&requests=6000&hosts=40&pages=300";
    let mut trace = Trace::open(name, &options).expect("a generator");
    let (requests, names, _) =
        load_or_stream(&mut trace, &options, kept_max, |_| ()).expect("made");
    (requests, names)
}

/// Those that look ahead too, as do the oracle's groups.
#[test]
fn every_design_plays_a_streamed_trace_as_one_in_memory() {
    let ((kept, names), (streamed, _)) = (loaded(6_000), loaded(100));
    let run_options =
        RunOptions { clients: 3, pace: Pace::Trace, warmup: 1_000, ..RunOptions::default() };
    for entry in &REGISTRY {
        let grouping = if entry.has_pages { GroupRule::Oracle } else { GroupRule::Host };
        let options = DesignOptions {
            cache_bytes: 32 << 20,
            memory_bytes: 8 << 20,
            grouping,
            ..DesignOptions::default()
        };
        let report = |requests: Requests<'_>| {
            let config = config();
            let inputs = DesignInputs { options: &options, requests, drive: &config.drive };
            let mut design = (entry.make)(&inputs);
            let mut machine = Machine::new(&config);
            run(&mut *design, &mut machine, requests, &names, run_options).expect("runs")
        };
        assert!(report(kept.get()) == report(streamed.get()), "{}", entry.name);
    }
    streamed.check().expect("read to the end each time");
}
