//! Progress on stderr for operations of more than a second, shown only on a terminal. Never touches
//! stdout, so output can be piped.
//!
//! Invariant: rate and remaining time cover all work since the start, including the second before
//! the bar appears. Threads: one per bar: the working thread, or one that observes it (`watched`).

use std::borrow::Cow;
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{
    HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState,
    ProgressStyle,
};

const PATIENCE: Duration = Duration::from_secs(1);
const DRAWS_PER_S: u8 = 5;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Things,
}

impl Unit {
    /// The line to show; of what has no known end there is no bar and no time left.
    fn template(self, has_end: bool) -> &'static str {
        match (self, has_end) {
            (Unit::Bytes, true) => "{msg} {wide_bar} {bytes}/{total_bytes} {rate} {left}",
            (Unit::Bytes, false) => "{msg} {bytes} {rate}",
            (Unit::Things, true) => "{msg} {wide_bar} {human_pos}/{human_len} {rate} {left}",
            (Unit::Things, false) => "{msg} {human_pos} {rate}",
        }
    }

    fn style(self, has_end: bool) -> ProgressStyle {
        // The templates are constants checked by a test; the default style serves if one were
        // wrong.
        let style = ProgressStyle::with_template(self.template(has_end))
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        // Writing into a string never fails.
        let rate = move |state: &ProgressState, text: &mut dyn Write| {
            let per_second = rate(state.pos(), state.elapsed()) as u64;
            let _ = match self {
                Unit::Bytes => write!(text, "{}/s", HumanBytes(per_second)),
                Unit::Things => write!(text, "{}/s", HumanCount(per_second)),
            };
        };
        let left = |state: &ProgressState, text: &mut dyn Write| {
            let left = left(state.pos(), state.len().unwrap_or(0), state.elapsed());
            let _ = write!(text, "{:#}", HumanDuration(left));
        };
        style.with_key("rate", rate).with_key("left", left)
    }
}

/// How much was done in a second; nothing of no time.
fn rate(done: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { done as f64 / elapsed.as_secs_f64() }
}

/// How long the rest takes at the rate so far; nothing if there is no rate yet.
fn left(done: u64, total: u64, elapsed: Duration) -> Duration {
    let seconds = total.saturating_sub(done) as f64 / rate(done, elapsed);
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// A bar that appears once the work has taken a second. Cleared on drop.
pub(crate) struct Progress {
    label: Cow<'static, str>,
    unit: Unit,
    start: Instant,
    patience: Duration,
    /// Where the bar will be; taken when it appears, and nowhere without a terminal.
    target: Option<ProgressDrawTarget>,
    bar: Option<ProgressBar>,
    has_end: bool,
}

impl Progress {
    /// Progress counted in bytes.
    pub(crate) fn bytes(label: &'static str) -> Progress {
        Progress::new(label.into(), Unit::Bytes)
    }

    /// Progress counted in things.
    pub(crate) fn count(label: impl Into<Cow<'static, str>>) -> Progress {
        Progress::new(label.into(), Unit::Things)
    }

    fn new(label: Cow<'static, str>, unit: Unit) -> Progress {
        let target = is_shown().then(|| ProgressDrawTarget::stderr_with_hz(DRAWS_PER_S));
        Progress::on(target, label, unit, PATIENCE)
    }

    fn on(
        target: Option<ProgressDrawTarget>,
        label: Cow<'static, str>,
        unit: Unit,
        patience: Duration,
    ) -> Progress {
        let start = Instant::now();
        Progress { label, unit, start, patience, target, bar: None, has_end: false }
    }

    /// For work that began before anything could be said of it.
    pub(crate) fn since(mut self, start: Instant) -> Progress {
        self.start = start;
        self
    }

    /// Says how far the work is. `total` 0 means unknown.
    pub(crate) fn set(&mut self, done: u64, total: u64) {
        let has_end = total > 0;
        let length = total.max(done);
        if let Some(bar) = &self.bar {
            if has_end != self.has_end {
                bar.set_style(self.unit.style(has_end));
                self.has_end = has_end;
            }
            // Each of the two may draw, so the length comes first and only if it is another.
            if bar.length() != Some(length) {
                bar.set_length(length);
            }
            bar.set_position(done);
        } else if self.start.elapsed() >= self.patience
            && let Some(target) = self.target.take()
        {
            // Nothing is drawn before all is known that the line says.
            let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden())
                .with_style(self.unit.style(has_end))
                .with_message(self.label.clone())
                .with_position(done)
                .with_elapsed(self.start.elapsed());
            bar.set_draw_target(target);
            bar.tick();
            self.has_end = has_end;
            self.bar = Some(bar);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Time between two looks at work that does not tell how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Whether anybody sees progress; what only serves to tell it need not be found out otherwise.
pub(crate) fn is_shown() -> bool {
    std::io::stderr().is_terminal()
}

/// Does the work; while somebody is at a terminal, a thread asks now and then how much of how much
/// is done (0: unknown), and shows it. For work whose threads should not stop to tell.
pub(crate) fn watched<T>(
    label: impl Into<Cow<'static, str>>,
    how_far: impl Fn() -> (u64, u64) + Sync,
    work: impl FnOnce() -> T,
) -> T {
    watched_by(Progress::count(label), LOOK_EVERY, how_far, work)
}

/// Does work that takes as long as it is given, and shows the seconds.
pub(crate) fn timed<T>(
    label: impl Into<Cow<'static, str>>,
    time: Duration,
    work: impl FnOnce() -> T,
) -> T {
    let start = Instant::now();
    watched(label, || (start.elapsed().as_secs().min(time.as_secs()), time.as_secs()), work)
}

fn watched_by<T>(
    mut progress: Progress,
    look_every: Duration,
    how_far: impl Fn() -> (u64, u64) + Sync,
    work: impl FnOnce() -> T,
) -> T {
    if progress.target.is_none() {
        return work();
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                let (done, total) = how_far();
                progress.set(done, total);
                thread::park_timeout(look_every);
            }
            // Gone from the screen before whoever works prints anything else.
            drop(progress);
        });
        // When the work panics, too: the scope waits for the thread.
        let _end = End { over: &over, watcher: watcher.thread().clone() };
        work()
    })
}

/// Ends a watcher.
struct End<'a> {
    over: &'a AtomicBool,
    watcher: thread::Thread,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.watcher.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    #[test]
    fn templates_parse() {
        for unit in [Unit::Bytes, Unit::Things] {
            for has_end in [true, false] {
                assert!(ProgressStyle::with_template(unit.template(has_end)).is_ok());
            }
        }
    }

    #[test]
    fn what_is_left_takes_as_long_as_what_was_done() {
        let second = Duration::from_secs(1);
        assert_eq!(rate(3_000_000, 2 * second), 1_500_000.0);
        assert_eq!(left(3_000_000, 12_000_000, 2 * second), 6 * second);
        assert_eq!(left(12, 12, second), Duration::ZERO);
        assert_eq!(left(13, 12, second), Duration::ZERO, "more than was expected");
        for nothing in [left(0, 12, second), left(0, 0, Duration::ZERO)] {
            assert_eq!(nothing, Duration::ZERO);
        }
        assert_eq!(rate(1, Duration::ZERO), 0.0);
    }

    /// A terminal that keeps what is written to it.
    #[derive(Debug, Clone, Default)]
    struct Paper(Arc<Mutex<Vec<String>>>);

    impl Paper {
        fn lines(&self) -> Vec<String> {
            let written = self.0.lock().expect("nobody panics with it");
            let lines = written.iter().map(|line| line.trim().to_owned());
            lines.filter(|line| !line.is_empty()).collect()
        }
    }

    impl TermLike for Paper {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("nobody panics with it").push(text.to_owned());
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is drawn while 10,000 things a second are done, for 400 ms.
    fn drawn(total: u64) -> Vec<String> {
        let paper = Paper::default();
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(paper.clone()), 50);
        let patience = Duration::from_millis(100);
        let mut progress = Progress::on(Some(target), "requests".into(), Unit::Things, patience);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(400) {
            progress.set((start.elapsed().as_secs_f64() * 10_000.0) as u64, total);
            if start.elapsed() < patience / 2 {
                assert_eq!(paper.lines(), [""; 0], "too soon to bother anybody");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        paper.lines()
    }

    /// From the first line on: 10,000 a second, of 500,000, take 50 s; the whole numbers are read
    /// back.
    #[test]
    fn rate_and_time_left_are_right_from_the_first_line_on() {
        let lines = drawn(500_000);
        assert!(lines.len() > 2, "{lines:?}");
        for line in &lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [first, .., counts, rate, left] = words[..] else { panic!("{line}") };
            assert!(first == "requests" && counts.ends_with("/500,000"), "{line}");
            let whole = rate.strip_suffix("/s").map(|rate| rate.replace(',', ""));
            let rate: u64 = whole.and_then(|rate| rate.parse().ok()).expect(line);
            assert!((5_000..=20_000).contains(&rate), "{line}");
            let left: u64 = left.strip_suffix('s').and_then(|left| left.parse().ok()).expect(line);
            assert!((25..=100).contains(&left), "{line}");
        }
    }

    fn on(paper: &Paper) -> Progress {
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(paper.clone()), 50);
        Progress::on(Some(target), "requests".into(), Unit::Things, Duration::from_millis(50))
    }

    #[test]
    fn work_that_says_nothing_is_watched_until_it_ends() {
        let paper = Paper::default();
        let start = Instant::now();
        let how_far = || ((start.elapsed().as_millis() as u64).min(300), 300);
        let work = || thread::sleep(Duration::from_millis(300));
        watched_by(on(&paper), Duration::from_millis(5), how_far, work);
        let lines = paper.lines();
        assert!(lines.len() > 2 && lines.iter().all(|line| line.contains("/300")), "{lines:?}");
        thread::sleep(Duration::from_millis(50));
        assert_eq!(paper.lines().len(), lines.len(), "nothing is drawn afterwards");
    }

    #[test]
    fn work_that_is_short_or_panics_ends_its_watcher() {
        let paper = Paper::default();
        let minute = Duration::from_secs(60);
        assert_eq!(watched_by(on(&paper), minute, || (0, 1), || 7), 7);
        assert_eq!(paper.lines(), [""; 0]);
        let panics = std::panic::catch_unwind(|| {
            watched_by(on(&paper), minute, || (0, 1), || panic!("the work"));
        });
        assert!(panics.is_err());
    }

    #[test]
    fn of_what_has_no_known_end_only_the_rate_is_said() {
        for line in drawn(0) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [first, done, rate] = words[..] else { panic!("{line}") };
            assert!(first == "requests" && rate.ends_with("/s") && done != "0", "{line}");
        }
    }
}
