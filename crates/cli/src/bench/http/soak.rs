//! `--kill-every`: a verified soak of our own proxy. It is loaded continuously, killed with SIGKILL
//! at random moments and restarted at once on the same cache, and every byte of every body is
//! checked across all restarts. A response cut off by a kill is no failure; a wrong byte is, and so
//! is a cache that restarts without a single hit.
//!
//! Threads: the load's, and the main thread, which kills the proxy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::json;

use super::demand::Demand;
use super::load::{Seen, Until};
use super::target::OwnProxy;
use super::{Bench, fail_if_wrong};
use crate::failure::Failure;
use crate::output::{Out, thousands};
use crate::progress::Progress;

/// Shortest time between a start and a kill.
pub(crate) const LIFE_MIN: Duration = Duration::from_millis(100);
/// Upper limit of a load, which normally ends with the kill.
const LOAD_MAX: Duration = Duration::from_secs(86_400);

/// Totals over all lives of the proxy.
struct Soaked {
    kills: u64,
    /// Lives on a cache left by an earlier life, and those of them that had no hit from it.
    inherited: u64,
    barren: u64,
    seen: Seen,
}

/// Loads, kills and restarts the proxy until the time is over, then prints. Fails if an answer was
/// wrong.
pub(crate) fn run(bench: &Bench<'_>, proxy: &OwnProxy, every: Duration) -> Result<(), Failure> {
    let demand = bench.demand(0)?;
    let mut rng = Rng::with_seed(bench.args.seed);
    let end = Instant::now() + bench.args.length();
    let start = Instant::now();
    let mut progress = Progress::count("soak, seconds");
    let mut soaked = Soaked { kills: 0, inherited: 0, barren: 0, seen: Seen::new() };
    loop {
        progress.set(start.elapsed().as_secs(), bench.args.length_s().into());
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let life = LIFE_MIN + every.mul_f64(2.0 * rng.f64()).min(left);
        let seen = live(bench, proxy, &demand, (life, soaked.kills))?;
        if soaked.kills > 0 {
            soaked.inherited += 1;
            soaked.barren += u64::from(seen.hits == 0 && seen.requests > 0);
        }
        soaked.kills += 1;
        soaked.seen.merge(seen);
        // One wrong answer fails the soak: the rest would add nothing.
        if soaked.seen.wrong > 0 {
            break;
        }
    }
    drop(progress);
    print(&soaked, bench.args.json)?;
    if soaked.seen.requests == 0 {
        let why = soaked.seen.why.as_deref().unwrap_or("nothing was asked for");
        return Err(Failure::Child(format!("not one answer came to be checked: {why}")));
    }
    if soaked.inherited > 0 && soaked.barren == soaked.inherited {
        return Err(Failure::Child("no life of the proxy had a hit".to_owned()));
    }
    fail_if_wrong(soaked.seen.wrong)
}

/// One life: from start to kill under load.
fn live(
    bench: &Bench<'_>,
    proxy: &OwnProxy,
    demand: &Arc<Demand>,
    (life, number): (Duration, u64),
) -> Result<Seen, Failure> {
    let running = proxy.start()?;
    let mut clients = bench.own_target(&running).clients;
    clients.to.verify = true;
    clients.mortal = true;
    let seed = bench.args.seed.wrapping_add(number << 40);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| clients.run(demand, Until::Elapsed(LOAD_MAX), seed));
        std::thread::sleep(life);
        // Killed even after an error: otherwise the load would not end.
        let killed = running.kill();
        let panicked = |_| Err(Failure::Child("the load generator panicked".to_owned()));
        let seen = load.join().unwrap_or_else(panicked)?;
        killed.map(|()| seen)
    })
}

fn print(soaked: &Soaked, as_json: bool) -> Result<(), Failure> {
    let mut out = Out::new();
    let Soaked { kills, inherited, barren, seen } = soaked;
    if as_json {
        out.json(&json!({
            "soak": "damelo",
            "kills": kills,
            "lives_with_a_cache": inherited,
            "lives_without_hits": barren,
            "requests": seen.requests,
            "body_bytes": seen.body_bytes,
            "hits": seen.hits,
            "cut_off": seen.failed,
            "wrong": seen.wrong,
        }))?;
    } else {
        out.line(format_args!(
            "{kills} kills; {} answers checked ({:.1} GB), {} of them hits, {} WRONG; {} requests cut off; \
             {barren} of {inherited} lives after a kill without a hit",
            thousands(seen.requests),
            seen.body_bytes as f64 / 1e9,
            thousands(seen.hits),
            seen.wrong,
            thousands(seen.failed),
        ))?;
    }
    out.finish()
}
