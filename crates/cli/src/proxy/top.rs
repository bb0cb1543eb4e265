//! `damelo top`: a live table of a running proxy's activity.
//!
//! The frame is made as plain lines by a pure function; the terminal only shows it. Invariants:
//! the terminal is left as it was found, whatever happens, SIGINT and SIGTERM included; keys are
//! read also while the proxy does not answer. Threads: the main thread, and while the screen is
//! taken over one that waits for these signals, and one for each look.

use std::io::{self, IsTerminal as _, Write};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use crossterm::event::{Event, KeyCode, KeyModifiers, poll, read};
use crossterm::{cursor, execute, queue, terminal};
use damelo::ByteSize;
use serde_json::Value;

use crate::failure::Failure;
use crate::names::url_text;
use crate::output::{Out, thousands};
use crate::proxy::admin::AdminArgs;
use crate::signals;

const AFTER_HELP: &str = "\
Examples:
  damelo top --admin 127.0.0.1:9100
  damelo top --admin 9100 --once
  damelo top --admin 9100 --json

Hosts and URLs are those of the last ten to thirty seconds, found by a sketch of fixed size: the
busiest are right, the rare ones may be missing. Everything else is since the last look, or since
the start in the first. A proxy that stops answering is asked again until it does. q or Esc ends it.";

/// Watch what a running proxy is busy with.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Top {
    #[command(flatten)]
    admin: AdminArgs,
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Print one frame and end
    #[arg(long)]
    once: bool,
    /// Print the numbers as one JSON object and end
    #[arg(long)]
    json: bool,
}

/// What a look asks the proxy for.
const LOOK: &str = "/top";
/// Longest wait for a key before it is looked whether there is anything else to do.
const KEY_WAIT: Duration = Duration::from_millis(50);

/// Size of a frame that is printed instead of shown on the alternate screen; a line may be longer,
/// since a terminal breaks it and a file has no width.
const PRINTED_ROWS: usize = 40;
const PRINTED_COLUMNS: usize = 100;

/// Prints one frame, or shows frames until the user ends it.
pub(crate) fn run(args: &Top) -> Result<(), Failure> {
    let look = || args.admin.ask(LOOK, None);
    if args.once || args.json {
        let seen = look()?;
        let mut out = Out::new();
        if args.json {
            out.json(&seen)?;
        } else {
            for line in lines(&seen, None, PRINTED_COLUMNS, PRINTED_ROWS) {
                out.line(format_args!("{}", clean(&line, usize::MAX)))?;
            }
        }
        return out.finish();
    }
    // The first query comes before the terminal is taken over, so that an unreachable proxy is
    // reported as an ordinary error.
    let first = look()?;
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        let text = "there is no terminal to watch on: print one frame with --once or --json";
        return Err(Failure::Usage(text.to_owned()));
    }
    let failed = |source| Failure::io("use the terminal", source);
    let _screen = Screen::open().map_err(failed)?;
    watch(args, first, failed)
}

/// What the screen shows.
struct Shown {
    seen: Value,
    /// The look before; none for the first one of a proxy, which counts anew when it starts again.
    before: Option<Value>,
    /// Why the proxy did not answer the last time. What it said before stays on the screen.
    lost: Option<String>,
}

impl Shown {
    fn new(first: Value) -> Shown {
        Shown { seen: first, before: None, lost: None }
    }

    /// Takes the result of a further look. A proxy that is away, perhaps to start again, is waited
    /// for.
    fn take(&mut self, look: Result<Value, Failure>) {
        match look {
            Ok(now) => {
                let last = std::mem::replace(&mut self.seen, now);
                let requests = |look: &Value| look.pointer("/counters/requests").map_or(0, number);
                let goes_on = self.lost.take().is_none() && requests(&self.seen) >= requests(&last);
                self.before = goes_on.then_some(last);
            }
            Err(error) => self.lost = Some(format!("NO ANSWER, asked again: {error}")),
        }
    }

    /// The lines of a screen of this size.
    fn frame(&self, columns: usize, rows: usize) -> Vec<String> {
        let lost = self.lost.iter().map(|why| clean(why, columns));
        let rest = rows.saturating_sub(lost.len());
        lost.chain(frame(&self.seen, self.before.as_ref(), columns, rest)).take(rows).collect()
    }
}

fn watch(args: &Top, first: Value, failed: impl Fn(io::Error) -> Failure) -> Result<(), Failure> {
    let mut shown = Shown::new(first);
    loop {
        show(&shown).map_err(&failed)?;
        let next = Instant::now() + Duration::from_secs(args.every);
        if ended_by_user(&shown, || Instant::now() >= next).map_err(&failed)? {
            return Ok(());
        }
        // Apart, because a proxy that hangs is waited for longer than a user who wants to leave.
        let admin = args.admin.clone();
        let look = thread::Builder::new().spawn(move || admin.ask(LOOK, None)).map_err(&failed)?;
        if ended_by_user(&shown, || look.is_finished()).map_err(&failed)? {
            return Ok(());
        }
        shown.take(look.join().expect("a look does not panic"));
    }
}

/// Reads keys, and keeps the frame to the size of the terminal, until it is `over`. Returns whether
/// the user wants to leave, or is gone.
fn ended_by_user(shown: &Shown, over: impl Fn() -> bool) -> io::Result<bool> {
    while !over() {
        // Before `poll`, which reads a closed terminal without end.
        if hangs_up_within(KEY_WAIT) {
            return Ok(true);
        }
        while poll(Duration::ZERO)? {
            match read()? {
                Event::Key(key) => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                        return Ok(true);
                    }
                    _ => {}
                },
                Event::Resize(..) => show(shown)?,
                _ => {}
            }
        }
    }
    Ok(false)
}

/// Waits for input, and returns whether the terminal is closed instead. SIGHUP does not tell whom
/// `nohup` started, nor whose controlling terminal it was not.
fn hangs_up_within(limit: Duration) -> bool {
    let mut stdin = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
    let limit_ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one struct that lives through the call. A signal, as of a new size, only ends it
    // early.
    unsafe { libc::poll(&raw mut stdin, 1, limit_ms) };
    stdin.revents & libc::POLLHUP != 0
}

/// Guard for the terminal in raw mode; drop restores it.
struct Screen;

impl Screen {
    fn open() -> io::Result<Screen> {
        let ends = signals::block()?;
        let wait = move || {
            let signal = signals::wait(&ends);
            // Held until the process has ended: no frame comes after this.
            let mut out = io::stdout().lock();
            restore(&mut out);
            signals::end_by(signal);
        };
        thread::Builder::new().name("damelo-signals".to_owned()).spawn(wait)?;
        terminal::enable_raw_mode()?;
        // From here on, dropping the guard restores the terminal.
        let screen = Screen;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore(&mut io::stdout().lock());
    }
}

fn restore(out: &mut impl Write) {
    // A failure here cannot be handled.
    let _ = execute!(out, cursor::Show, terminal::LeaveAlternateScreen);
    let _ = terminal::disable_raw_mode();
}

fn show(shown: &Shown) -> io::Result<()> {
    let (columns, rows) = terminal::size()?;
    let mut out = io::stdout().lock();
    for (row, line) in shown.frame(usize::from(columns), usize::from(rows)).iter().enumerate() {
        let row = u16::try_from(row).unwrap_or(u16::MAX);
        queue!(out, cursor::MoveTo(0, row), terminal::Clear(terminal::ClearType::CurrentLine))?;
        out.write_all(line.as_bytes())?;
    }
    queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
    out.flush()
}

/// One frame: at most `rows` lines of at most `columns` characters.
fn frame(seen: &Value, before: Option<&Value>, columns: usize, rows: usize) -> Vec<String> {
    lines(seen, before, columns, rows).iter().map(|line| clean(line, columns)).collect()
}

/// At most `rows` lines that are made for so many columns. Text from the network is in them as it
/// came.
fn lines(seen: &Value, before: Option<&Value>, columns: usize, rows: usize) -> Vec<String> {
    let mut lines = totals(seen, before);
    lines.push(String::new());
    lines.extend(latency(seen, before, columns));
    let hosts = table("host", &seen["hosts"], seen);
    let urls = table("url", &seen["urls"], seen);
    let room = rows.saturating_sub(lines.len() + 2);
    let hosts_shown = hosts.len().min((room / 3).max(2));
    lines.push(String::new());
    lines.extend(hosts.into_iter().take(hosts_shown));
    lines.push(String::new());
    let room = rows.saturating_sub(lines.len());
    lines.extend(urls.into_iter().take(room));
    lines.truncate(rows);
    lines
}

/// Replaces control characters, so that text from the network cannot control the terminal. Names
/// that clients chose come in ASCII ([`url_text`]), so that a character is a column.
fn clean(line: &str, columns: usize) -> String {
    line.chars().take(columns).map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// Growth of a counter since the previous sample.
fn growth(seen: &Value, before: Option<&Value>, path: &str) -> u64 {
    let of = |value: &Value| value.pointer(path).map_or(0, number);
    of(seen).saturating_sub(before.map_or(0, of))
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn totals(seen: &Value, before: Option<&Value>) -> Vec<String> {
    let grown = |path: &str| growth(seen, before, path);
    let (requests, hits) = (grown("/counters/requests"), grown("/counters/hits"));
    let (memory, disk) = (&seen["memory"], &seen["disk"]);
    let used = number(&disk["segments"]).saturating_sub(number(&disk["segments_free"]));
    let size = |value: u64| ByteSize::new(value);
    let reads = grown("/memory/hits") + grown("/disk/hits");
    let mut lines = vec![
        format!(
            "requests {}  hits {:.1}%  revalidated {}  collapsed {}  forwarded {}  errors {}",
            thousands(requests),
            percent(hits, requests),
            thousands(grown("/counters/revalidated")),
            thousands(grown("/counters/collapsed")),
            thousands(grown("/counters/forwarded")),
            thousands(grown("/counters/origin_errors")),
        ),
        format!(
            "memory   {} of {} used, {} objects; {:.1}% of the store's hits from memory",
            size(number(&memory["used_bytes"])),
            size(number(&memory["bytes"])),
            thousands(number(&memory["objects"])),
            percent(grown("/memory/hits"), reads),
        ),
        format!(
            "disk     {} of {} segments of {} used, {} of at most {} objects",
            used,
            number(&disk["segments"]),
            size(number(&disk["segment_bytes"])),
            thousands(number(&disk["objects"])),
            thousands(number(&disk["objects_max"])),
        ),
        format!(
            "         {} reads, {} read, {} written",
            thousands(grown("/disk/reads")),
            size(grown("/disk/read_bytes")),
            size(grown("/disk/written_bytes")),
        ),
    ];
    if number(&disk["volumes_out"]) > 0 {
        lines.push(format!("VOLUMES OUT OF SERVICE: {}", number(&disk["volumes_out"])));
    }
    lines
}

/// Latency histogram of hits and misses: one line for each power of two that occurs.
fn latency(seen: &Value, before: Option<&Value>, columns: usize) -> Vec<String> {
    let bars = |kind: &str| grown_bars(seen, before, kind);
    let (hits, misses) = (bars("hit"), bars("miss"));
    let times = |kind: &str| {
        let of = |name: &str| match seen["latency_us"][kind][name].as_u64() {
            Some(us) => microseconds(us),
            None => "-".to_owned(),
        };
        format!("p50 < {}, p90 < {}, p99 < {}", of("p50"), of("p90"), of("p99"))
    };
    let mut lines = vec![
        format!("hits     {} since the start", times("hit")),
        format!("misses   {} since the start", times("miss")),
    ];
    let largest = hits.iter().chain(&misses).map(|(_, count)| *count).max().unwrap_or(0);
    let mut ends: Vec<u32> = hits.iter().chain(&misses).map(|(octave, _)| *octave).collect();
    ends.sort_unstable();
    ends.dedup();
    let width = columns.saturating_sub(24) / 2;
    for octave in ends {
        let count = |bars: &[(u32, u64)]| {
            bars.iter().filter(|(o, _)| *o == octave).map(|(_, count)| count).sum::<u64>()
        };
        let bar = |count: u64| {
            let length = (count as f64 * width as f64 / largest.max(1) as f64).ceil() as usize;
            "#".repeat(length)
        };
        let (hit, miss) = (bar(count(&hits)), bar(count(&misses)));
        let end = microseconds(1 << octave);
        lines.push(format!("  < {end:>8}  hit {hit:<width$}  miss {miss}"));
    }
    lines
}

/// Counts by power of two since the previous sample.
fn grown_bars(seen: &Value, before: Option<&Value>, kind: &str) -> Vec<(u32, u64)> {
    let of = |value: &Value| -> std::collections::BTreeMap<u32, u64> {
        let mut sums = std::collections::BTreeMap::new();
        for bar in value["latency_us"][kind]["bars"].as_array().into_iter().flatten() {
            let octave = number(&bar[0]).max(1).next_power_of_two().ilog2();
            *sums.entry(octave).or_default() += number(&bar[1]);
        }
        sums
    };
    let earlier = before.map(of).unwrap_or_default();
    let grown = of(seen).into_iter().map(|(octave, count)| {
        (octave, count.saturating_sub(earlier.get(&octave).copied().unwrap_or(0)))
    });
    grown.filter(|(_, count)| *count > 0).collect()
}

fn microseconds(us: u64) -> String {
    match us {
        0..1000 => format!("{us} us"),
        1000..1_000_000 => format!("{:.1} ms", us as f64 / 1000.0),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

fn table(what: &str, rows: &Value, seen: &Value) -> Vec<String> {
    // The window begins with the first request: 8 ms after that, one is not 125 a second.
    let window = seen["window_seconds"].as_f64().unwrap_or(0.0).max(1.0);
    let mut lines = vec![format!("{:>10} {:>6} {:>10}  {what}", "requests/s", "hits", "mean")];
    for row in rows.as_array().into_iter().flatten() {
        let (requests, hits) = (number(&row["requests"]), number(&row["hits"]));
        lines.push(format!(
            "{:>10.1} {:>5.1}% {:>10}  {}",
            requests as f64 / window,
            percent(hits, requests),
            microseconds(number(&row["mean_us"])),
            url_text(row["name"].as_str().unwrap_or("?")),
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(requests: u64, hits: u64) -> Value {
        json!({
            "window_seconds": 10.0,
            "counters": { "requests": requests, "hits": hits },
            "hosts": [{ "name": "h", "requests": 20, "hits": 15, "mean_us": 100 }],
            "urls": [{ "name": "http://h/\u{1b}[2J", "requests": 20, "hits": 15, "mean_us": 2500 }],
            "latency_us": {
                "hit": { "p50": 96, "bars": [[96, hits], [128, 1]] },
                "miss": { "bars": [[65536, 4]] },
            },
            "memory": { "used_bytes": 1 << 20, "bytes": 1 << 21, "objects": 1234 },
            "disk": { "segments": 8, "segments_free": 3, "segment_bytes": 1 << 24 },
        })
    }

    #[test]
    fn a_frame_has_all_parts_and_obeys_the_terminal_s_size() {
        let lines = frame(&seen(100, 75), None, 80, 24);
        let text = lines.join("\n");
        for part in ["hits 75.0%", "1,234 objects", "5 of 8 segments", "2.0  75.0%", "<   128 us"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "what a client asked for reaches the terminal");
        for (columns, rows) in [(0, 0), (1, 1), (20, 5), (300, 100)] {
            let lines = frame(&seen(100, 75), None, columns, rows);
            assert!(lines.len() <= rows);
            assert!(lines.iter().all(|line| line.chars().count() <= columns));
        }
        frame(&json!({}), None, 80, 24);
    }

    #[test]
    fn there_are_no_more_requests_a_second_than_there_were() {
        let mut seen = seen(20, 15);
        seen["window_seconds"] = json!(0.008);
        let text = frame(&seen, None, 80, 24).join("\n");
        assert!(text.contains("      20.0  75.0%"), "{text}");
    }

    /// `\u{202e}` turns the rest of its line round, and ideographs are two columns wide.
    #[test]
    fn urls_of_clients_are_shown_in_ascii() {
        let mut seen = seen(100, 75);
        seen["hosts"][0]["name"] = json!("h\u{202e}\u{200b}");
        seen["urls"][0]["name"] = json!("http://h/\u{6f22}\u{9b}31m/it's");
        let text = frame(&seen, None, 80, 24).join("\n");
        assert!(text.is_ascii(), "{text}");
        for part in ["  h\\xe2\\x80\\xae\\xe2\\x80\\x8b", "/\\xe6\\xbc\\xa2\\xc2\\x9b31m/it's"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn later_frames_show_what_has_come_since() {
        let text = frame(&seen(150, 80), Some(&seen(100, 75)), 80, 24).join("\n");
        assert!(text.contains("requests 50  hits 10.0%"), "{text}");
    }
    #[test]
    fn a_proxy_that_starts_again_is_waited_for() {
        let mut shown = Shown::new(seen(100, 75));
        shown.take(Ok(seen(150, 80)));
        assert!(shown.frame(80, 24)[0].starts_with("requests 50 "));
        shown.take(Err(Failure::Usage("refused".to_owned())));
        let lines = shown.frame(80, 24);
        assert!(lines[0].contains("NO ANSWER") && lines[0].contains("refused"), "{lines:?}");
        assert!(lines[1].starts_with("requests 50 "), "what it said last: {lines:?}");
        assert!(shown.frame(10, 1).len() == 1 && shown.frame(0, 0).is_empty());
        shown.take(Ok(seen(7, 1)));
        assert!(shown.frame(80, 24)[0].starts_with("requests 7 "), "since its start");
        // Between two looks.
        shown.take(Ok(seen(3, 1)));
        assert!(shown.frame(80, 24)[0].starts_with("requests 3 "));
    }
}
