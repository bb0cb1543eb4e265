//! `damelo lab rerun REPORT`: runs what a report was made with once more and says whether the results
//! are the same. The command comes from a file that somebody else may have written, so it is parsed
//! first and only what reads a trace and prints is run: nothing on real disks, and no file is written
//! but a temporary one. Threads: the main one; the run is a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, Parser};
use damelo_lab::output::{Form, TraceIdentity, Written};

use super::{Lab, Which};
use crate::failure::Failure;
use crate::output::{Out, say};

const AFTER_HELP: &str = "\
Examples:
  damelo lab sim access.log lru,s3-fifo auto --html report.html
  damelo lab rerun report.html

REPORT is what --html of lab sim, designs and paper wrote, or what `lab sim --json` printed. Run it where the
report's command was run if that names its trace by a relative path. A trace that is no longer the same is an
error; another version of damelo is a warning. Exit code 1: the results differ.";

/// Run a report's command again and compare the results
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Rerun {
    /// A report of the lab, HTML or JSON
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
    let name = args.report.display().to_string();
    let then = read(&args.report)?;
    let manifest = &then.manifest;
    let words = command(&manifest.command)?;
    check_trace(&manifest.trace)?;
    let version = env!("CARGO_PKG_VERSION");
    if manifest.version != version {
        say(format_args!(
            "damelo: warning: {name} was made by damelo {}, this is {version}: results may differ for that alone",
            manifest.version
        ));
    }
    let now = again(&words, then.form)?;
    if let Some((line, before, after)) = then.difference(&now) {
        let difference = format!("line {line} was `{}`, is `{}`", cut(before), cut(after));
        return Err(Failure::NotTheSame { report: name, difference });
    }
    let trace = match manifest.trace.synthetic {
        true => "synthetic requests".to_owned(),
        false => format!("{}, {}", manifest.trace.name, manifest.trace.digest),
    };
    let mut out = Out::new();
    out.line(format_args!("{name}: the same results, bit for bit (damelo {version}; {trace})"))?;
    out.finish()
}

fn read(path: &Path) -> Result<Written, Failure> {
    let doing = || format!("read `{}`", path.display());
    let bytes = std::fs::read(path).map_err(|source| Failure::io(doing(), source))?;
    Written::parse(&String::from_utf8_lossy(&bytes))
        .map_err(|source| Failure::Report { path: path.to_owned(), source })
}

/// The words behind `damelo`, without `--html`; only of commands that may be run.
fn command(recorded: &[String]) -> Result<Vec<String>, Failure> {
    let refused = |why: &str| {
        Failure::Usage(format!("the report's command is not run: {why}: {}", recorded.join(" ")))
    };
    let [program, lab, rest @ ..] = recorded else { return Err(refused("it is too short")) };
    if program != "damelo" || lab != "lab" {
        return Err(refused("it is none of the lab"));
    }
    let words = without_html(rest);
    let line =
        Line::try_parse_from(std::iter::once("damelo lab").chain(words.iter().map(String::as_str)))
            .map_err(|_| refused("this version does not understand it"))?;
    let (html, real) = match &line.lab.which {
        Which::Sim(args) => (&args.html, &None),
        Which::Designs(args) => (&args.html, &args.real),
        Which::Paper(args) => (&args.html, &args.real),
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
    Ok(std::iter::once("lab".to_owned()).chain(words).collect())
}

/// Where the report went says nothing of what is in it, and must not be overwritten.
fn without_html(words: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--html" {
            words.next();
        } else if !word.starts_with("--html=") {
            kept.push(word.clone());
        }
    }
    kept
}

/// That the trace is what it was.
fn check_trace(then: &TraceIdentity) -> Result<(), Failure> {
    let reading = |source| {
        Failure::io(
            format!("read the trace `{}`, as the report's command names it", then.name),
            source,
        )
    };
    let now = then.clone().with_digest().map_err(reading)?;
    if now.digest == then.digest {
        return Ok(());
    }
    Err(Failure::TraceChanged {
        name: then.name.clone(),
        before: then.digest.clone(),
        after: now.digest,
    })
}

/// Runs the command in a process of its own and takes its report.
fn again(words: &[String], form: Form) -> Result<Written, Failure> {
    let program = std::env::current_exe().map_err(|source| Failure::io("find myself", source))?;
    let dir =
        tempfile::tempdir().map_err(|source| Failure::io("make a temporary directory", source))?;
    let page = dir.path().join("again.html");
    let mut child = Command::new(program);
    child.args(words).stdin(Stdio::null()).stderr(Stdio::inherit());
    if form == Form::Html {
        child.arg("--html").arg(&page);
    }
    let ended = child.output().map_err(|source| Failure::io("run the report's command", source))?;
    if !ended.status.success() {
        return Err(Failure::RunFailed { status: ended.status });
    }
    match form {
        Form::Html => read(&page),
        Form::Json => Written::parse(&String::from_utf8_lossy(&ended.stdout))
            .map_err(|source| Failure::Report { path: "standard output".into(), source }),
    }
}

/// Enough of a line to see what it is about: a chart is one line.
const SHOWN_CHARS: usize = 160;

fn cut(line: &str) -> String {
    let shown: String = line.chars().take(SHOWN_CHARS).collect();
    if shown.len() < line.len() { format!("{shown}...") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        command(&words).map(|words| words.join(" ")).map_err(|failure| failure.to_string())
    }

    #[test]
    fn only_commands_that_read_and_print_are_run() {
        let sim = "lab sim gen:web lru auto --json";
        assert_eq!(parsed(&format!("damelo {sim} --html a.html")).as_deref(), Ok(sim));
        assert_eq!(parsed(&format!("damelo {sim} --html=a.html")).as_deref(), Ok(sim));
        for (line, why) in [
            ("damelo lab", "does not understand"),
            ("damelo format cache --force", "none of the lab"),
            ("rm lab -r", "none of the lab"),
            ("damelo", "too short"),
            ("damelo lab trace convert a b.csv", "writes no report"),
            ("damelo lab rerun r.html", "writes no report"),
            ("damelo lab sim gen:web lru auto --new-option", "does not understand"),
            ("damelo lab designs gen:web store --real /dev/sda", "could be lost"),
            ("damelo lab paper cfs --real=/dev/sda --html a", "could be lost"),
        ] {
            let said = parsed(line).expect_err(line);
            assert!(said.contains(why) && said.contains(line), "{line}: {said}");
        }
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"ä".repeat(200)), format!("{}...", "ä".repeat(160)));
    }
}
