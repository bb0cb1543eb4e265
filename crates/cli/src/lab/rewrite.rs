//! Makes a trace from another one: converted, sampled or filtered, with a manifest that says how.
//! The file appears when it is complete; its manifest follows, since it contains the file's digest.
//! Threads: the main one.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use damelo_lab::output::TraceIdentity;
use damelo_lab::trace::{
    Filter, Lost, Record, RecordSource, SampleBy, SampleOf, Sampler, Trace as Requests,
    TraceWriter, WriteFormat, WrittenTrace, file_digest, manifest_path,
};
use damelo_lab::{NewFile, TraceError};
use serde_json::json;

use super::manifest::{is_same_file, kept_manifest};
use super::reading::{ReadArgs, Reading, remarks};
use crate::failure::Failure;
use crate::output::{say, thousands};

const STDOUT: &str = "-";

/// Where a trace goes.
#[derive(Debug, Args)]
pub(super) struct Output {
    /// File to write, compressed if it ends in .gz or .zst; - for standard output
    output: String,
    /// Form to write: damelo, oracleGeneral, csv (time,obj_id,obj_size) or txt; by the file's name
    /// if not given: .csv is damelo, .txt is txt, oracleGeneral anywhere in it is that
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,
    /// Write into this directory what else would replace the file: `lab rerun` compares the two
    #[arg(long, value_name = "DIR", hide = true)]
    pub(super) instead_in: Option<PathBuf>,
    /// For somebody to look at, who asked for no more than this form has.
    #[arg(skip)]
    is_shown: bool,
}

impl Output {
    /// Our own form on standard output.
    pub(super) fn shown() -> Output {
        let (output, to) = (STDOUT.to_owned(), Some("damelo".to_owned()));
        Output { output, to, instead_in: None, is_shown: true }
    }

    pub(super) fn is_stdout(&self) -> bool {
        self.output == STDOUT
    }

    /// What to call it.
    fn shown_name(&self) -> &str {
        if self.is_stdout() { "standard output" } else { &self.output }
    }

    /// The failure, if it is one of writing, with standard output by its name.
    fn named(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Trace(TraceError::Write { source, .. }) if self.is_stdout() => {
                Failure::io("write to standard output", source)
            }
            failure => failure,
        }
    }

    /// The file's name without directories.
    fn file(&self) -> String {
        let name = Path::new(&self.output).file_name();
        name.map_or_else(|| self.output.clone(), |name| name.to_string_lossy().into_owned())
    }

    fn path(&self) -> PathBuf {
        match &self.instead_in {
            Some(dir) => dir.join(self.file()),
            None => PathBuf::from(&self.output),
        }
    }

    fn format(&self) -> Result<WriteFormat, Failure> {
        match &self.to {
            Some(name) => WriteFormat::by_name(name).ok_or_else(|| {
                Failure::Usage(format!("--to {name}: write damelo, oracleGeneral, csv or txt"))
            }),
            None if self.is_stdout() => Ok(WriteFormat::Damelo),
            None => WriteFormat::of_file(&self.output).ok_or_else(|| {
                Failure::Usage(format!(
                    "the name {} does not say in which form to write: add --to FORMAT",
                    self.output
                ))
            }),
        }
    }

    fn writer(&self, format: WriteFormat) -> Result<TraceWriter, Failure> {
        Ok(if self.is_stdout() {
            TraceWriter::to(STDOUT, Box::new(std::io::stdout()), format)?
        } else {
            TraceWriter::create(&self.path().to_string_lossy(), format)?
        })
    }

    /// That no trace is lost by being written over with a part of itself: whatever is left of it
    /// cannot be made again then.
    fn check_is_not(&self, trace: &str) -> Result<(), Failure> {
        if self.is_stdout() || !is_same_file(&self.path(), Path::new(trace)) {
            return Ok(());
        }
        let output = &self.output;
        Err(Failure::Usage(format!(
            "{output} is the trace that is read, and would be lost: write to another file"
        )))
    }
}

/// Which requests are written.
pub(super) enum Choice<'a> {
    All,
    /// What all of them let through.
    Rules(&'a [Filter]),
    Share(Sampler),
}

impl Choice<'_> {
    fn keeps(&mut self, record: &Record<'_>) -> bool {
        match self {
            Choice::All => true,
            Choice::Rules(rules) => rules.iter().all(|rule| rule.keeps(record)),
            Choice::Share(sampler) => sampler.keeps(record),
        }
    }

    /// What it leaves, if that is a share.
    fn sample_of(&self) -> Option<SampleOf> {
        match self {
            Choice::All | Choice::Rules(_) => None,
            Choice::Share(sampler) => Some(sampler.sample_of()),
        }
    }

    /// That there was something to choose by, in so many requests. Says how many were without it.
    fn check(&self, name: &str, requests: u64) -> Result<(), Failure> {
        let Choice::Share(sampler) = self else { return Ok(()) };
        let what = match sampler.by() {
            SampleBy::Client => "client",
            SampleBy::Host => "host",
            SampleBy::Object | SampleBy::Request => return Ok(()),
        };
        let unnamed = sampler.unnamed();
        if unnamed == requests && requests > 0 {
            return Err(Failure::Usage(format!(
                "no request of {name} names a {what}: sample --by object, or --by request"
            )));
        }
        if unnamed > 0 {
            say(format_args!(
                "damelo: {name}: {} of {} requests name no {what}, and were kept or left out as one",
                thousands(unnamed),
                thousands(requests)
            ));
        }
        Ok(())
    }
}

/// Writes what is chosen; `seed` is that of what is drawn.
pub(super) fn rewrite(
    name: &str,
    read: &ReadArgs,
    output: &Output,
    seed: Option<u64>,
    mut choice: Choice<'_>,
) -> Result<(), Failure> {
    output.check_is_not(name)?;
    let mut trace = Requests::open(name, &read.options(None)?)?;
    let format = output.format()?;
    let mut writer = output.writer(format)?;
    let requests_read = copy(&mut trace, &mut writer, &mut choice).map_err(|e| output.named(e))?;
    choice.check(name, requests_read)?;
    let lost = writer.lost();
    let requests = writer.finish().map_err(|e| output.named(e.into()))?;
    remarks(&trace);
    if !output.is_shown {
        say_lost(name, output, format, lost);
    }
    let path = output.path();
    // Pipes and devices keep nothing that a manifest could lie beside.
    if output.is_stdout() || !path.is_file() {
        return Ok(());
    }
    let written = WrittenTrace {
        file: output.file(),
        format: format.name().to_owned(),
        requests,
        requests_read,
        lost,
        seed,
        synthetic: trace.is_synthetic(),
        samples: trace.samples().iter().cloned().chain(choice.sample_of()).collect(),
        ..WrittenTrace::default()
    };
    write_manifest(&path, &trace, &written)?;
    if output.instead_in.is_none() {
        say(format_args!(
            "damelo: {} of {} requests written to {}; {} says how",
            thousands(requests),
            thousands(requests_read),
            output.output,
            manifest_path(&path).display()
        ));
    }
    Ok(())
}

/// Writes what is chosen of a trace; returns how many requests there were.
fn copy(
    trace: &mut Requests,
    writer: &mut TraceWriter,
    choice: &mut Choice<'_>,
) -> Result<u64, Failure> {
    let mut reading = Reading::of(trace);
    let mut requests_read = 0u64;
    while trace.advance()? {
        let record = trace.record();
        requests_read += 1;
        if choice.keeps(&record) {
            writer.write(&record)?;
        }
        if requests_read.is_multiple_of(1 << 16) {
            reading.set(requests_read);
        }
    }
    Ok(requests_read)
}

/// Says what is not in the trace that was written, or not with all that the other one has.
fn say_lost(name: &str, output: &Output, format: WriteFormat, lost: Lost) {
    let form = format.name();
    if lost.deletes > 0 {
        say(format_args!(
            "damelo: {name}: {} requests with DELETE or PURGE left out, which {form} cannot say",
            thousands(lost.deletes)
        ));
    }
    if lost.empty > 0 {
        say(format_args!(
            "damelo: {name}: {} requests without a body left out: in {form} every request has one",
            thousands(lost.empty)
        ));
    }
    let what_of_times = match format {
        WriteFormat::OracleGeneral => "fractions of a second",
        WriteFormat::Damelo | WriteFormat::Csv | WriteFormat::Txt => "times",
    };
    for (what, count) in [
        (what_of_times, lost.times),
        ("sizes", lost.sizes),
        ("clients, methods and statuses", lost.fields),
    ] {
        if count > 0 {
            say(format_args!(
                "damelo: {name}: {what} are not in {}: {form} has no place for them (requests that had them: {})",
                output.shown_name(),
                thousands(count)
            ));
        }
    }
    if lost.results > 0 {
        say(format_args!(
            "damelo: {name}: Squid's results are not in {}: there the rule ucfs-2002 lets through whatever they are",
            output.shown_name()
        ));
    }
}

/// Adds to what is known of the trace at `path` its length and digest, and writes that beside it.
fn write_manifest(path: &Path, trace: &Requests, written: &WrittenTrace) -> Result<(), Failure> {
    let reading = |source| Failure::io(format!("read `{}`", path.display()), source);
    let file_bytes = path.metadata().map_err(reading)?.len();
    let digest = file_digest(path).map_err(reading)?;
    let written = WrittenTrace { file_bytes, digest, ..written.clone() };
    let manifest = kept_manifest(TraceIdentity::of(trace))?;
    let text = serde_json::to_string_pretty(&json!({ "manifest": manifest, "written": written }))?;
    let path = manifest_path(path);
    let writing = |source| Failure::io(format!("write `{}`", path.display()), source);
    let (mut file, new) = NewFile::begin(&path).map_err(writing)?;
    writeln!(file, "{text}").map_err(writing)?;
    new.keep().map_err(writing)
}
