//! `damelo lab rerun REPORT`: repeats the run that a report was made with and says whether the
//! results are the same. The command comes from an untrusted file, so it is parsed first, and only
//! commands that read a trace and print are run: nothing on real disks, and no file is written but
//! a temporary one. The command names the trace, which must be a regular file; no text of the
//! report that could control a terminal is printed. Threads: the main one; the run is a process of
//! its own.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use clap::{Args, Parser};
use damelo_lab::output::{Difference, DriveIdentity, Form, TraceIdentity, Written};
use damelo_lab::shown;
use damelo_lab::trace::{WrittenTrace, file_digest, is_generator, manifest_path, manifested_path};
use tempfile::TempDir;

use super::trace::Product;
use super::{Lab, Which};
use crate::failure::Failure;
use crate::leftovers::{Leftover, ending_with_us};
use crate::output::{Out, say};

/// The longest report that is read.
const REPORT_BYTES_MAX: u64 = 512 << 20;

const AFTER_HELP: &str = "\
Examples:
  damelo lab sim access.log lru,s3-fifo auto --html report.html
  damelo lab rerun report.html

REPORT is what --html of lab sim, designs, paper and trace stat wrote, or what their --json or --csv
printed; or a trace that lab trace convert, sample or filter wrote, which has its
manifest beside it. Compared are all bytes of a page's results and of a table's rows, of JSON all
values, numbers to their last digit, of a trace its length and digest; not the manifest. Run it
where the report's command was run if that names its trace by a relative path. A trace that is no
longer the same is an error; another version of damelo is a warning. Exit code 1: the results
differ.";

/// Run a report's command again and compare the results
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Rerun {
    /// A report of the lab, HTML, JSON or CSV, or a trace that it wrote
    #[arg(value_name = "REPORT")]
    report: PathBuf,
}

/// The rest of a command line behind `damelo`.
#[derive(Debug, Parser)]
#[command(name = "damelo lab")]
struct Line {
    #[command(flatten)]
    lab: Lab,
}

/// Runs and compares.
pub(crate) fn run(args: &Rerun) -> Result<(), Failure> {
    let report = report_of(&args.report);
    let name = report.display().to_string();
    let then = read(&report)?;
    let manifest = &then.manifest;
    let Command { words, trace, drive, product, tells_failures } = Command::of(&manifest.command)?;
    let digest = trace.as_deref().map(|trace| check_trace(trace, &manifest.trace)).transpose()?;
    if let (Some(drive), Some(then)) = (drive, &manifest.drive) {
        check_drive(&drive, then)?;
    }
    let version = env!("CARGO_PKG_VERSION");
    if manifest.version != version {
        say(format_args!(
            "damelo: warning: {name} was made by damelo {}, this is {version}: results may differ for that alone",
            shown(&manifest.version)
        ));
    }
    let now = match product {
        Product::Report => again(&words, then.form, tells_failures)?,
        Product::Trace => written_again(&words)?,
    };
    if let Some(found) = then.difference(&now) {
        let difference = words_of(&found);
        return Err(Failure::NotTheSame { report: name, difference });
    }
    if matches!(product, Product::Trace) {
        check_written(&report)?;
    }
    let trace = match (trace, digest) {
        (Some(trace), Some(digest)) if !digest.is_empty() => format!("{trace}, {digest}"),
        (trace, _) => trace.unwrap_or_else(|| "synthetic requests".to_owned()),
    };
    let how = match then.form {
        Form::Html | Form::Csv => "byte for byte",
        Form::Json => "value for value",
    };
    let mut out = Out::new();
    out.line(format_args!("{name}: the same results, {how} (damelo {version}; {trace})"))?;
    out.finish()
}

/// The manifest beside a trace that the lab wrote, if it is that which is named: it has none in
/// itself.
fn report_of(given: &Path) -> PathBuf {
    let beside = manifest_path(given);
    let is_report = || begins_as_report(given) && read(given).is_ok();
    if beside.is_file() && !is_report() { beside } else { given.to_owned() }
}

/// Whether the first bytes can be those of a report: a page, JSON or CSV with its manifest. Traces
/// mostly begin with something else, and need not be read to be told apart.
fn begins_as_report(path: &Path) -> bool {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| file.take(64).read_to_end(&mut first));
    read.is_ok() && matches!(first.trim_ascii_start().first(), Some(b'<' | b'{' | b'[' | b'#'))
}

/// Reads no more than a report may have: what is named may be a trace, or a device without an end.
fn read(path: &Path) -> Result<Written, Failure> {
    let doing = || format!("read `{}`", path.display());
    let read = || {
        let mut bytes = Vec::new();
        let most = REPORT_BYTES_MAX + 1;
        if File::open(path)?.take(most).read_to_end(&mut bytes)? as u64 == most {
            return Err(io::Error::other("it is too long for a report: more than 512MiB"));
        }
        Ok(bytes)
    };
    let bytes = read().map_err(|source| Failure::io(doing(), source))?;
    Written::parse(&String::from_utf8_lossy(&bytes))
        .map_err(|source| Failure::Report { path: path.to_owned(), source })
}

/// A command that may be run.
struct Command {
    /// The words behind `damelo`, without `--html`: `lab`, the subcommand, its arguments.
    words: Vec<String>,
    /// The trace that it reads; none for a paper with its own requests.
    trace: Option<String>,
    /// The drive of a command that takes one.
    drive: Option<String>,
    product: Product,
    /// Its report is whole, and tells why, where some of its runs failed.
    tells_failures: bool,
}

impl Command {
    fn of(recorded: &[String]) -> Result<Command, Failure> {
        let refused = |why: &str| {
            let line = shown(&recorded.join(" "));
            Failure::Usage(format!("the report's command is not run: {why}: {line}"))
        };
        let [program, lab, rest @ ..] = recorded else { return Err(refused("it is too short")) };
        if program != "damelo" || lab != "lab" {
            return Err(refused("it is none of the lab"));
        }
        if recorded.iter().any(|word| word.contains(char::is_control)) {
            return Err(refused("it has control characters"));
        }
        let words = without_html(rest);
        let names = std::iter::once("damelo lab").chain(words.iter().map(String::as_str));
        let line = Line::try_parse_from(names)
            .map_err(|_| refused("this version does not understand it"))?;
        let tells_failures = matches!(line.lab.which, Which::Designs(_));
        let mut product = Product::Report;
        let mut drive = None;
        let (trace, html, real) = match line.lab.which {
            Which::Sim(args) => (Some(args.trace), args.html, None),
            Which::Designs(args) => {
                let args = *args;
                drive = Some(args.system.drive);
                (Some(args.trace), args.html, args.real)
            }
            Which::Paper(args) => (args.trace, args.html, args.real),
            Which::Trace(args) => {
                let trace;
                (trace, product) = args.product().map_err(refused)?;
                (Some(trace), None, None)
            }
            Which::Bench(_) => return Err(refused("it measures times, which are never the same")),
            _ => return Err(refused("it writes no report")),
        };
        if real.is_some() {
            return Err(refused(
                "real disks never give the same times twice, and what they hold could be lost",
            ));
        }
        if html.is_some() {
            return Err(refused("it would overwrite a report"));
        }
        let words = std::iter::once("lab".to_owned()).chain(words).collect();
        Ok(Command { words, trace, drive, product, tells_failures })
    }
}

/// Where the report went says nothing of what is in it, and must not be overwritten.
fn without_html(words: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            // Options end here.
            kept.push(word.clone());
            kept.extend(words.cloned());
            break;
        }
        if word == "--html" {
            words.next();
        } else if !word.starts_with("--html=") {
            kept.push(word.clone());
        }
    }
    kept
}

/// That the trace which the command names is what it was; its digest, empty for a generator.
fn check_trace(name: &str, then: &TraceIdentity) -> Result<String, Failure> {
    if is_generator(name) {
        return Ok(String::new());
    }
    let doing = || format!("read the trace `{name}`, as the report's command names it");
    let identity = TraceIdentity { name: name.to_owned(), ..TraceIdentity::default() };
    let now = identity.with_digest().map_err(|source| Failure::io(doing(), source))?;
    if now.digest == then.digest {
        return Ok(now.digest);
    }
    let (name, before) = (name.to_owned(), shown(&then.digest));
    Err(Failure::Changed { what: "trace", name, before, after: now.digest })
}

/// That the file of the drive which the command names is what it was. Reports of before have no
/// digest of it.
fn check_drive(name: &str, then: &DriveIdentity) -> Result<(), Failure> {
    let doing = || format!("read the drive `{name}`, as the report's command names it");
    let now = DriveIdentity::of(name).map_err(|source| Failure::io(doing(), source))?;
    match now.map(|now| now.digest) {
        Some(after) if after != then.digest => {
            let (name, before) = (name.to_owned(), shown(&then.digest));
            Err(Failure::Changed { what: "drive", name, before, after })
        }
        _ => Ok(()),
    }
}

/// Removed when it is dropped, or on Ctrl-C.
struct Temporary {
    dir: TempDir,
    _leftover: Leftover,
}

impl Temporary {
    fn new() -> Result<Temporary, Failure> {
        let failed = |source| Failure::io("make a temporary directory", source);
        let dir = tempfile::tempdir().map_err(failed)?;
        Ok(Temporary { _leftover: Leftover::new(dir.path()), dir })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Runs the command in a process of its own and takes its report, which may tell of runs that
/// failed if the command's does.
fn again(words: &[String], form: Form, tells_failures: bool) -> Result<Written, Failure> {
    let dir = Temporary::new()?;
    let page = dir.path().join("again.html");
    let html: &[&OsStr] = match form {
        Form::Html => &["--html".as_ref(), page.as_ref()],
        Form::Json | Form::Csv => &[],
    };
    let subcommand_words = if words.get(1).is_some_and(|word| word == "trace") { 3 } else { 2 };
    let Output { status, stdout, .. } = printed_again(words, subcommand_words, html)?;
    let report = match form {
        Form::Html => read(&page),
        Form::Json | Form::Csv => Written::parse(&String::from_utf8_lossy(&stdout))
            .map_err(|source| Failure::Report { path: "standard output".into(), source }),
    };
    let some_failed = Failure::SomeDesigns { failed: 1, asked: 2 }.exit_code();
    let may_end_so = tells_failures && status.code() == Some(i32::from(some_failed));
    match status.success() || may_end_so && report.is_ok() {
        true => report,
        false => Err(Failure::RunFailed { status }),
    }
}

/// Runs the command once more, the trace that it writes in a temporary directory, and takes the
/// manifest that then lies beside that.
fn written_again(words: &[String]) -> Result<Written, Failure> {
    let dir = Temporary::new()?;
    let instead = ["--instead-in".as_ref(), dir.path().as_ref()];
    let Output { status, .. } = printed_again(words, 3, &instead)?;
    if !status.success() {
        return Err(Failure::RunFailed { status });
    }
    let doing = || format!("read `{}`", dir.path().display());
    let entries = std::fs::read_dir(dir.path()).map_err(|source| Failure::io(doing(), source))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let manifest = paths.find(|path| manifested_path(path).is_some_and(|trace| trace.is_file()));
    let none = || Failure::io(doing(), std::io::ErrorKind::NotFound.into());
    read(&manifest.ok_or_else(none)?)
}

/// How the command ends, and what it prints, with options put in behind its subcommand, which has
/// so many words: the rest may end with what is no option any more.
fn printed_again(words: &[String], behind: usize, options: &[&OsStr]) -> Result<Output, Failure> {
    let program = std::env::current_exe().map_err(|source| Failure::io("find myself", source))?;
    let (subcommand, arguments) = words.split_at(words.len().min(behind));
    let mut child = std::process::Command::new(program);
    child.args(subcommand).args(options).args(arguments);
    child.stdin(Stdio::null()).stderr(Stdio::inherit());
    ending_with_us(&mut child)
        .output()
        .map_err(|source| Failure::io("run the report's command", source))
}

/// That the trace beside its manifest, if it is still there, is what was written then.
fn check_written(manifest: &Path) -> Result<(), Failure> {
    let Some(trace) = manifested_path(manifest).filter(|trace| trace.is_file()) else {
        return Ok(());
    };
    let doing = |path: &Path| format!("read `{}`", path.display());
    let text =
        std::fs::read_to_string(manifest).map_err(|source| Failure::io(doing(manifest), source))?;
    let now = file_digest(&trace).map_err(|source| Failure::io(doing(&trace), source))?;
    match WrittenTrace::of_manifest(&text) {
        Some(written) if written.digest != now => Err(Failure::NotTheSame {
            report: trace.display().to_string(),
            difference: format!("its digest was {}, is {now}", shown(&written.digest)),
        }),
        _ => Ok(()),
    }
}

fn words_of(found: &Difference) -> String {
    let quoted = |text: &Option<String>| match text {
        Some(text) => format!("`{}`", cut(text)),
        None => "nothing".to_owned(),
    };
    let (before, after) = (quoted(&found.before), quoted(&found.after));
    format!("{} was {before}, is {after}", cut(&found.place))
}

/// Enough of a line to see what it is about: a chart is one line.
const SHOWN_CHARS: usize = 160;

fn cut(line: &str) -> String {
    let begin: String = line.chars().take(SHOWN_CHARS).collect();
    let end = if begin.len() < line.len() { "..." } else { "" };
    format!("{}{end}", shown(&begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let command = Command::of(&words).map_err(|failure| failure.to_string())?;
        Ok(format!("{}|{}", command.words.join(" "), command.trace.unwrap_or_default()))
    }

    #[test]
    fn only_commands_that_read_and_print_are_run() {
        for (line, kept) in [
            ("sim gen:web lru auto --json --html a.html", "sim gen:web lru auto --json|gen:web"),
            ("sim --html=a.html a.csv csv lru auto", "sim a.csv csv lru auto|a.csv"),
            ("designs --html a.html -- t store", "designs -- t store|t"),
            ("sim -- --html lru auto", "sim -- --html lru auto|--html"),
            ("paper cfs --trace t", "paper cfs --trace t|t"),
            ("paper cfs", "paper cfs|"),
            ("trace stat t --json", "trace stat t --json|t"),
            ("trace stat t --html a.html", "trace stat t|t"),
            ("trace sample t s.csv --share 0.1", "trace sample t s.csv --share 0.1|t"),
        ] {
            let expected = Ok(format!("lab {kept}"));
            assert_eq!(parsed(&format!("damelo lab {line}")), expected, "{line}");
        }
        for (line, why) in [
            ("damelo lab", "does not understand"),
            ("damelo format cache --force", "none of the lab"),
            ("rm lab -r", "none of the lab"),
            ("damelo", "too short"),
            ("damelo lab trace convert a -", "writes no report"),
            ("damelo lab trace convert a b.csv --instead-in /etc", "of its own choice"),
            ("damelo lab trace print a", "writes no report"),
            ("damelo lab rerun r.html", "writes no report"),
            ("damelo lab trace stat --json -- t --html", "does not understand"),
            ("damelo lab bench --json", "never the same"),
            ("damelo lab sim gen:web lru auto --new-option", "does not understand"),
            ("damelo lab designs gen:web store --real /dev/sda", "could be lost"),
            ("damelo lab paper cfs --real=/dev/sda --html a", "could be lost"),
        ] {
            let said = parsed(line).expect_err(line);
            assert!(said.contains(why) && said.contains(line), "{line}: {said}");
        }
    }

    #[test]
    fn nothing_of_a_report_steers_a_terminal() {
        let said = parsed("damelo lab sim \u{1b}[2J lru auto").expect_err("an escape");
        assert!(said.contains("control characters: damelo lab sim \\u{1b}[2J"), "{said}");
        assert_eq!(cut("a\rb\u{9b}ä"), "a\\rb\\u{9b}ä");
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"ä".repeat(200)), format!("{}...", "ä".repeat(160)));
    }
}
