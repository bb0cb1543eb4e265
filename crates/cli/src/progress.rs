//! Progress on stderr for whatever takes over a second, and only when somebody is at a terminal
//! to see it. Never touches stdout, so output can be piped.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const PATIENCE: Duration = Duration::from_secs(1);
const BYTES_STYLE: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
const COUNT_STYLE: &str = "{msg} {wide_bar} {pos}/{len} {per_sec} {eta}";

/// A bar that appears once the work has taken a second. Cleared on drop.
pub(crate) struct Progress {
    label: &'static str,
    style: &'static str,
    start: Instant,
    terminal: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Progress counted in bytes.
    pub(crate) fn bytes(label: &'static str) -> Progress {
        Progress::new(label, BYTES_STYLE)
    }

    /// Progress counted in things.
    pub(crate) fn count(label: &'static str) -> Progress {
        Progress::new(label, COUNT_STYLE)
    }

    fn new(label: &'static str, style: &'static str) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress { label, style, start: Instant::now(), terminal, bar: None }
    }

    /// Says how far the work is. `total` 0 means unknown.
    pub(crate) fn set(&mut self, done: u64, total: u64) {
        if !self.terminal || (self.bar.is_none() && self.start.elapsed() < PATIENCE) {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| visible_bar(self.label, self.style, self.start));
        bar.set_length(total.max(done));
        bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn visible_bar(label: &'static str, style: &str, start: Instant) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(5));
    // The templates are constants checked by a test; the default style serves if one were wrong.
    let style =
        ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar.set_message(label);
    bar.with_elapsed(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_parse() {
        assert!(ProgressStyle::with_template(BYTES_STYLE).is_ok());
        assert!(ProgressStyle::with_template(COUNT_STYLE).is_ok());
    }
}
