//! Runs all scenarios with ever new seeds until the time is up, and stops at the first failure with
//! the command that replays it.
//!
//! `soak --minutes 10 [--seed FIRST] [--only SCENARIO] [--once]`. Threads: two runs at a time would
//! confuse whose panic it was, so one.

#![expect(clippy::disallowed_macros, reason = "a panic for want of a reader is right here")]

use std::time::{Duration, Instant};

use damelo::IoEngine;
use damelo_store_sim::harness::{SEED_TIME_MAX, guarded};
use damelo_store_sim::{Effect, FaultPlan, OpKind, Rule, When, scenario};

type Scenario = (&'static str, fn(u64) -> Result<(), String>);

const SCENARIOS: &[Scenario] = &[
    ("crash", scenario::crash),
    ("crash_wrapped", scenario::crash_wrapped),
    ("crash_reopened", scenario::crash_reopened),
    ("crash_often", scenario::crash_often),
    ("model_strict", scenario::model_strict),
    ("bit_flips", scenario::bit_flips),
    ("model_wild", scenario::model_wild),
    ("model_parts", scenario::model_parts),
    ("model_odd", scenario::model_odd),
    ("crash_odd", scenario::crash_odd),
    ("journal_rounds", scenario::journal_rounds),
    ("crash_in_format", scenario::crash_in_format),
    ("faulty", faulty),
    ("fault_in_open", |seed| scenario::fault_in_open(seed).map(drop)),
    ("one_of_several", |seed| scenario::one_of_several(seed).map(drop)),
    ("one_away", scenario::one_away),
    ("unread", scenario::unread),
    ("crash_everywhere", scenario::crash_everywhere),
    ("model_threads", |seed| scenario::model_file(seed, IoEngine::Threads)),
    ("model_auto", |seed| scenario::model_file(seed, IoEngine::Auto)),
];

fn faulty(seed: u64) -> Result<(), String> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let chance = When::Chance([0.001, 0.02, 0.3][rng.usize(0..3)]);
    let effect = [Effect::Eio, Effect::Short, Effect::Enospc][rng.usize(0..3)];
    let ops = [OpKind::READS, OpKind::WRITES, OpKind::ALL][rng.usize(0..3)];
    scenario::faulty(seed, &FaultPlan::new(vec![Rule::new(ops, chance, effect)]), rng.bool())
        .map(|_| ())
}

struct Arguments {
    minutes: f64,
    seed: u64,
    only: Option<String>,
    once: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed =
        Arguments { minutes: 10.0, seed: fastrand::u64(1..1 << 40), only: None, once: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--minutes" => parsed.minutes = number(&value()?)?,
            "--seed" => parsed.seed = number(&value()?)?,
            "--only" => parsed.only = Some(value()?),
            "--once" => parsed.once = true,
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(parsed)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

fn run(arguments: &Arguments) -> Result<u64, String> {
    let end = Instant::now() + Duration::from_secs_f64(arguments.minutes * 60.0);
    let chosen = |name: &str| arguments.only.as_ref().is_none_or(|only| only == name);
    let scenarios: Vec<&Scenario> = SCENARIOS.iter().filter(|(name, _)| chosen(name)).collect();
    if scenarios.is_empty() {
        let names: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
        return Err(format!("no such scenario; there are {}", names.join(", ")));
    }
    let (mut seed, mut runs, mut said) = (arguments.seed, 0, Instant::now());
    loop {
        for &&(name, scenario) in &scenarios {
            guarded(SEED_TIME_MAX, move || scenario(seed)).map_err(|error| {
                format!(
                    "{name}, seed {seed}: {error}\nreplay: cargo run --release -p \
                     damelo-store-sim --bin soak -- --seed {seed} --only {name} --once"
                )
            })?;
            runs += 1;
        }
        seed = seed.wrapping_add(1);
        if said.elapsed() > Duration::from_secs(30) {
            println!("{runs} runs, next seed {seed}");
            said = Instant::now();
        }
        if arguments.once || Instant::now() >= end {
            return Ok(runs);
        }
    }
}

fn main() -> std::process::ExitCode {
    let result = arguments().and_then(|arguments| {
        println!("soak: {} minutes from seed {}", arguments.minutes, arguments.seed);
        run(&arguments)
    });
    match result {
        Ok(runs) => {
            println!("{runs} runs, nothing wrong");
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
