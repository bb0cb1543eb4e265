//! `--restart`: our own proxy is killed with SIGKILL after the warm-up and restarted on the same
//! cache. Measures the times from exec until it reports that it serves, until the first response,
//! and until the first hit; then the workload second by second.

use std::time::Duration;

use serde_json::json;

use super::load::Until;
use super::target::{OwnProxy, Running};
use super::{Bench, Target, fail_if_wrong, report};
use crate::failure::Failure;
use crate::output::Out;

/// Requests without a hit after which the cache counts as lost.
const PROBES_MAX: u32 = 10_000;
/// Idle time before the proxy is killed, in which writes in flight reach the disk.
const SETTLE: Duration = Duration::from_secs(1);

struct Times {
    serving: Duration,
    answer: Duration,
    hit: Option<Duration>,
    probes: u32,
}

/// Warms up, kills and restarts the proxy, measures, and prints.
pub(crate) fn run(bench: &Bench<'_>, proxy: &OwnProxy) -> Result<(), Failure> {
    let demand = bench.demand(0)?;
    let first = proxy.start()?;
    bench.warm(&bench.own_target(&first), &demand, true)?;
    std::thread::sleep(SETTLE);
    first.kill()?;
    let again = proxy.start()?;
    let serving = again.started.elapsed();
    let target = bench.own_target(&again);
    let times = until_hit(bench, &again, serving)?;
    let mut out = Out::new();
    print_times(&mut out, &times, bench.args.json)?;
    let mut wrong = 0;
    for second in 1..=bench.args.length_s() {
        let until = Until::Elapsed(Duration::from_secs(1));
        let m = bench.measure(&target, &demand, until, second)?;
        if bench.args.json {
            out.json(&m)?
        } else {
            m.print(&mut out)?
        }
        wrong += m.wrong;
    }
    out.finish()?;
    fail_if_wrong(wrong)
}

/// Sends the workload's requests one by one on one connection until the first hit.
fn until_hit(bench: &Bench<'_>, own: &Running, serving: Duration) -> Result<Times, Failure> {
    let Target { mut clients, .. } = bench.own_target(own);
    (clients.threads, clients.connections) = (1, 1);
    let demand = bench.demand(0)?;
    let mut times = Times { serving, answer: Duration::ZERO, hit: None, probes: 0 };
    while times.hit.is_none() && times.probes < PROBES_MAX {
        let seen = clients.run(&demand, Until::RequestsPerThread(1), u64::from(times.probes))?;
        times.probes += 1;
        let now = own.started.elapsed();
        if times.answer.is_zero() && seen.requests > 0 {
            times.answer = now;
        }
        times.hit = (seen.hits > 0).then_some(now);
    }
    Ok(times)
}

fn print_times(out: &mut Out, times: &Times, as_json: bool) -> Result<(), Failure> {
    let hit_seconds = times.hit.map(|hit| hit.as_secs_f64());
    if as_json {
        return out.json(&json!({
            "restart": "damelo",
            "serving_seconds": times.serving.as_secs_f64(),
            "first_answer_seconds": times.answer.as_secs_f64(),
            "first_hit_seconds": hit_seconds,
            "requests_until_hit": times.probes,
        }));
    }
    let hit = hit_seconds.map_or("never".to_owned(), |seconds| format!("{seconds:.3} s"));
    out.line(format_args!(
        "after kill -9, from exec: serving {:.3} s, first answer {:.3} s, first hit {hit} (request {})\nround is the second after that:",
        times.serving.as_secs_f64(),
        times.answer.as_secs_f64(),
        times.probes,
    ))?;
    report::print_header(out)
}
