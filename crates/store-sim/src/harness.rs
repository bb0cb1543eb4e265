//! Services for seeded tests: the number of seeds, a watchdog, detection of panics, a replay line.
//!
//! Owns one process-wide count of panics on any thread. Threads: each watched run has its own.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError, mpsc};
use std::time::{Duration, Instant};

use damelo::Store;

/// Longest time for one seed: far more than any seed needs, so that only a hang exceeds it.
pub const SEED_TIME_MAX: Duration = Duration::from_secs(90);

/// Environment variable for the number of seeds of a sweep, in place of a test's own.
const SEEDS_VARIABLE: &str = "DAMELO_SIM_SEEDS";
/// Environment variable for the number of seeds behind those that a test has of its own.
const MORE_SEEDS_VARIABLE: &str = "DAMELO_SIM_MORE_SEEDS";
/// Environment variable that selects a single seed.
const SEED_VARIABLE: &str = "DAMELO_SIM_SEED";

static PANICS: AtomicU64 = AtomicU64::new(0);
static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

thread_local! {
    /// Set while a test fails on purpose, so that the panic is not attributed to the store.
    static FAILING: Cell<bool> = const { Cell::new(false) };
}

/// Fails the test, without concurrent tests taking it for a panic of the store.
pub fn fail(message: &str) -> ! {
    FAILING.set(true);
    panic!("{message}");
}

fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let earlier = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if FAILING.get() {
                return earlier(info);
            }
            PANICS.fetch_add(1, Ordering::SeqCst);
            *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
            earlier(info);
        }));
    });
}

/// The seeds to run: the one in `DAMELO_SIM_SEED`, else `DAMELO_SIM_MORE_SEEDS` many behind the
/// `default` ones, else `DAMELO_SIM_SEEDS` or `default` many.
pub fn seeds(default: u64) -> Vec<u64> {
    seeds_by(default, |name| std::env::var(name).ok())
}

fn seeds_by(default: u64, variable: impl Fn(&str) -> Option<String>) -> Vec<u64> {
    let number = |name| variable(name).and_then(|v| v.parse::<u64>().ok());
    match (number(SEED_VARIABLE), number(MORE_SEEDS_VARIABLE)) {
        (Some(seed), _) => vec![seed],
        (None, Some(more)) => (default + 1..=default.saturating_add(more)).collect(),
        (None, None) => (1..=number(SEEDS_VARIABLE).unwrap_or(default)).collect(),
    }
}

/// Runs `f` on its own thread; a panic on any thread and a time-out are failures too.
///
/// # Errors
/// The error of `f`, a panic, or a hang (whose thread is left behind).
pub fn guarded<T: Send + 'static>(
    limit: Duration,
    f: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    watch_panics();
    let panics = PANICS.load(Ordering::SeqCst);
    let (sender, receiver) = mpsc::channel();
    let started = Instant::now();
    let thread = std::thread::spawn(move || {
        // The receiver is gone only after a time-out.
        let _ = sender.send(f());
    });
    let result = receiver.recv_timeout(limit);
    if result.is_err() && started.elapsed() >= limit {
        return Err(format!("HANG: not finished after {} s", limit.as_secs()));
    }
    let _ = thread.join();
    if PANICS.load(Ordering::SeqCst) > panics {
        let text = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone();
        return Err(format!("PANIC: {text}"));
    }
    result.map_err(|_| "the run ended without a result".to_owned())?
}

/// Runs a scenario for every seed; stops the test at the first that fails, with its replay line.
pub fn sweep(test: &str, name: &str, default: u64, scenario: fn(u64) -> Result<(), String>) {
    for seed in seeds(default) {
        if let Err(error) = guarded(SEED_TIME_MAX, move || scenario(seed)) {
            fail(&format!("{name}, seed {seed}: {error}\nreplay: {}", replay(test, name, seed)));
        }
    }
}

/// The command that runs one seed of one test again.
pub fn replay(test: &str, name: &str, seed: u64) -> String {
    format!(
        "{SEED_VARIABLE}={seed} cargo test -p damelo-store-sim --test {test} -- --exact {name} --nocapture"
    )
}

/// Sum of all counters that report faults: errors, damage, drops.
pub fn fault_counters(store: &Store) -> f64 {
    const WORDS: [&str; 9] =
        ["error", "damage", "corrupt", "checksum", "torn", "drop", "fail", "out_of_service", "bad"];
    let text = store.stats().to_openmetrics();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let counts = lines.filter(|line| WORDS.iter().any(|word| line.contains(word)));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Resident memory of this process in bytes, by `/proc`.
pub fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_seeds_repeat_none_of_the_default_ones() {
        let by = |set: &'static [(&str, &str)]| {
            seeds_by(80, move |name| {
                set.iter().find(|(variable, _)| *variable == name).map(|(_, v)| (*v).to_owned())
            })
        };
        assert_eq!(by(&[]), (1..=80).collect::<Vec<_>>());
        assert_eq!(by(&[("DAMELO_SIM_SEEDS", "3")]), [1, 2, 3]);
        let more = by(&[("DAMELO_SIM_MORE_SEEDS", "2"), ("DAMELO_SIM_SEEDS", "3")]);
        assert_eq!(more, [81, 82]);
        assert_eq!(by(&[("DAMELO_SIM_MORE_SEEDS", "2"), ("DAMELO_SIM_SEED", "42")]), [42]);
    }
}
