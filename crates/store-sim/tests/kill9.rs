//! A real process that is killed with `SIGKILL` again and again while it writes, and checked after.
//!
//! The test starts itself as the child (`DAMELO_KILL9_DIR` set). The child tells by a pipe before
//! and after every operation; operation `i` of a seed is known to the parent without the child. Of
//! an operation begun and not acknowledged either outcome is right. Ticks are lines of the pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use damelo::{Config, Durability};
use damelo_store_sim::driver::{Driver, Place, change_of};
use damelo_store_sim::harness::{fail, guarded, replay, seeds};
use damelo_store_sim::model::{Demand, Event, Model, Outcome};
use damelo_store_sim::scenario::tiny_config;
use damelo_store_sim::workload::{Profile, Workload};
use damelo_store_sim::{CrashKind, Ticks};

const DIRECTORY: &str = "DAMELO_KILL9_DIR";
const LIFE: &str = "DAMELO_KILL9_LIFE";
const STRICT: &str = "DAMELO_KILL9_STRICT";
/// Times a child is started and killed for one seed.
const LIVES: u64 = 5;
/// Versions of one life start this far after those of the one before.
const LIFE_VERSIONS: u64 = 1 << 32;

fn config(directory: &Path, strict: bool) -> Config {
    let mut config = tiny_config(7);
    let size = if strict { 256 << 20 } else { 8 << 20 };
    config.volumes[0].path = directory.join("volume");
    config.volumes[0].size = Some(damelo::ByteSize::new(size));
    config.durability = Durability::Flushed;
    config.flush_period = Duration::from_millis(20);
    config.checkpoint_period = Duration::from_millis(50);
    config
}

fn workload(life: u64, strict: bool) -> Workload {
    let bytes = if strict { 4 << 20 } else { u64::MAX };
    // The model compares each version of a key with all before it, metadata too: not too many.
    let ops = if strict { 400 } else { 1_500 };
    Workload::new(Profile { keys: 40, ..Profile::crash(ops, bytes) }, life)
}

/// Not a test of its own: the body of the child.
#[test]
fn child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let life: u64 = std::env::var(LIFE).unwrap().parse().unwrap();
    let strict = std::env::var(STRICT).is_ok();
    let config = config(Path::new(&directory), strict);
    let model = Model::new(Demand::Genuine, config.durability);
    let mut driver = Driver::new(config, Place::Files, Arc::new(Ticks::default()), model);
    // Of earlier lives this process knows nothing: it may not judge what it reads, only errors.
    driver.tolerant = true;
    driver.open().unwrap();
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nopen").unwrap();
    for (number, op) in workload(life, strict) {
        let version = life * LIFE_VERSIONS + number;
        if change_of(version, &op, false).is_none() && is_read(&op) {
            continue;
        }
        writeln!(out, "begin {number}").unwrap();
        out.flush().unwrap();
        driver.apply(version, &op).unwrap();
        assert_eq!(driver.errors(), 0, "operation {version} {op:?} failed");
        writeln!(out, "ack {number}").unwrap();
        out.flush().unwrap();
    }
    writeln!(out, "idle").unwrap();
    out.flush().unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

fn is_read(op: &damelo_store_sim::workload::Op) -> bool {
    use damelo_store_sim::workload::Op;
    matches!(op, Op::Read { .. } | Op::ReadRange { .. } | Op::ReadStream { .. } | Op::Lookup(_))
}

/// The child process; it never outlives the parent's interest in it.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        // It may be dead already; either way it is reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(directory: &Path, life: u64, strict: bool) -> std::io::Result<Victim> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "child", "--nocapture"]).env(DIRECTORY, directory);
    if strict {
        command.env(STRICT, "1");
    }
    command.env(LIFE, life.to_string()).stdout(Stdio::piped()).spawn().map(Victim)
}

/// Reads what the child said until it was killed; returns events for the model.
fn listen(out: ChildStdout, life: u64, strict: bool) -> Result<Vec<Event>, String> {
    let mut operations = workload(life, strict);
    let (mut tick, mut begun, mut events) = (0_u64, None, Vec::new());
    for line in BufReader::new(out).lines() {
        let Ok(line) = line else { break };
        tick += 1;
        let (word, number) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "begin" => begun = Some((tick, number.parse::<u64>().map_err(|e| e.to_string())?)),
            "ack" => {
                let (begin, number) = begun.take().ok_or("an ack without a begin")?;
                events.extend(event(&mut operations, life, number, begin, tick + 1));
            }
            _ => {}
        }
    }
    if let Some((begin, number)) = begun {
        events.extend(event(&mut operations, life, number, begin, u64::MAX));
    }
    Ok(events)
}

fn event(operations: &mut Workload, life: u64, number: u64, begin: u64, ack: u64) -> Option<Event> {
    let (_, op) = operations.find(|(made, _)| *made == number)?;
    let change = change_of(life * LIFE_VERSIONS + number, &op, false)?;
    Some(Event { begin, ack, change, outcome: Outcome::Done })
}

/// Kills the child after a while, checks everything it left.
fn one_life(
    directory: &Path,
    model: Model,
    life: u64,
    strict: bool,
    run: Duration,
) -> Result<(Model, usize), String> {
    let mut victim = start(directory, life, strict).map_err(|e| e.to_string())?;
    let out = victim.0.stdout.take().ok_or("no pipe")?;
    let listener = std::thread::spawn(move || listen(out, life, strict));
    std::thread::sleep(run);
    let ended = victim.0.try_wait().map_err(|e| e.to_string())?;
    drop(victim);
    let events = listener.join().map_err(|_| "the listener panicked")??;
    if let Some(status) = ended {
        return Err(format!("the child ended by itself: {status}; see its output above"));
    }
    let mut model = model;
    let count = events.len();
    events.into_iter().for_each(|event| model.record(event));
    let model = model.after_crash(u64::MAX - 1, CrashKind::Kill);
    let place = Place::Files;
    let mut driver =
        Driver::new(config(directory, strict), place, Arc::new(Ticks::default()), model);
    driver.open()?;
    driver.verify_recovered()?;
    let model = driver.model.clone();
    // Half of the lives end cleanly, half again like a crash.
    if life.is_multiple_of(2) {
        driver.close()?;
    }
    Ok((model, count))
}

fn lives(seed: u64, strict: bool) -> Result<usize, String> {
    let rng = &mut fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
    let demand = if strict { Demand::Strict } else { Demand::Fresh };
    let mut model = Model::new(demand, Durability::Flushed);
    let mut total = 0;
    for life in 1..=LIVES {
        let life = seed * LIVES + life;
        let run = Duration::from_millis(rng.u64(20..600));
        let started = Instant::now();
        let (next, count) = one_life(directory.path(), model, life, strict, run)
            .map_err(|e| format!("life {life}, killed after {:?}: {e}", started.elapsed()))?;
        model = next;
        total += count;
    }
    Ok(total)
}

fn loops(name: &str, strict: bool) {
    let mut total = 0;
    for seed in seeds(2) {
        match guarded(Duration::from_secs(120), move || lives(seed, strict)) {
            Ok(count) => total += count,
            Err(error) => {
                fail(&format!("seed {seed}: {error}\nreplay: {}", replay("kill9", name, seed)))
            }
        }
    }
    assert!(total > 0, "the children did something before they were killed");
}

#[test]
fn killed_while_the_ring_wraps() {
    loops("killed_while_the_ring_wraps", false);
}

#[test]
fn killed_with_room_for_everything() {
    loops("killed_with_room_for_everything", true);
}
