//! A report that lies on disk, an HTML page or what `--json` or `--csv` printed: its manifest apart
//! from its results, so that the results of two runs can be compared when command line or machine
//! differ. Pure.
//!
//! Invariant: what a page or a CSV file shows is compared byte by byte. Of JSON the values are,
//! numbers with a point to their last digit; layout and order of members say nothing.

use serde_json::Value;

use super::html::{MANIFEST_META, MANIFEST_SECTION, unescaped};
use super::manifest::{CSV_MANIFEST, Manifest};

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A page.
    Html,
    /// What `--json` prints: one object, or one in each line.
    Json,
    /// What `--csv` prints.
    Csv,
}

/// A report that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// What it says of its run.
    pub manifest: Manifest,
    /// How it is written.
    pub form: Form,
    results: Results,
}

/// Everything but the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Results {
    Text(Text),
    /// As they come, without their manifests.
    Objects(Vec<Value>),
}

/// Lines of a file, some left out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Text {
    lines: String,
    /// Lines before those of the manifest.
    gap_at: usize,
    gap_lines: usize,
}

/// Where another run differs, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// A line of the file, or the way to a value of JSON.
    pub place: String,
    /// What is there; `None` if nothing is.
    pub before: Option<String>,
    /// What is there in the other one.
    pub after: Option<String>,
}

/// Why a file is no report that can be run again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// It has none.
    #[error(
        "it has no manifest; --html, --json and --csv of lab sim, designs and paper write one, --json of lab trace stat, and \
         lab trace convert, sample and filter beside the trace"
    )]
    NoManifest,
    /// It has one that this version does not understand.
    #[error("its manifest cannot be read")]
    Manifest(#[source] serde_json::Error),
    /// A manifest and nothing else.
    #[error("it has a manifest, but no results to compare with")]
    NoResults,
}

impl Written {
    /// Reads a report.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Written, ReportError> {
        if let Some(rest) = text.strip_prefix(CSV_MANIFEST) {
            return Written::of_csv(rest);
        }
        match text.trim_start().starts_with('{') {
            true => Written::of_json(text),
            false => Written::of_page(text),
        }
    }

    /// `text`: what comes behind the mark of the first line.
    fn of_csv(text: &str) -> Result<Written, ReportError> {
        let (json, results) = text.split_once('\n').unwrap_or((text, ""));
        let manifest = serde_json::from_str(json).map_err(ReportError::Manifest)?;
        if results.is_empty() {
            return Err(ReportError::NoResults);
        }
        let lines = results.to_owned();
        let results = Results::Text(Text { lines, gap_at: 0, gap_lines: 1 });
        Ok(Written { manifest, form: Form::Csv, results })
    }

    fn of_json(text: &str) -> Result<Written, ReportError> {
        let mut first = None;
        let mut results = Vec::new();
        for object in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
            let mut all = object.map_err(|_| ReportError::NoManifest)?;
            let members = all.as_object_mut().ok_or(ReportError::NoManifest)?;
            let manifest = members.remove("manifest").ok_or(ReportError::NoManifest)?;
            if members.is_empty() {
                return Err(ReportError::NoResults);
            }
            first.get_or_insert(manifest);
            results.push(all);
        }
        let manifest = first.ok_or(ReportError::NoManifest)?;
        let manifest = serde_json::from_value(manifest).map_err(ReportError::Manifest)?;
        Ok(Written { manifest, form: Form::Json, results: Results::Objects(results) })
    }

    fn of_page(text: &str) -> Result<Written, ReportError> {
        let (head, rest) = text.split_once(MANIFEST_META).ok_or(ReportError::NoManifest)?;
        let (json, body) = rest.split_once("\">\n").ok_or(ReportError::NoManifest)?;
        let manifest = serde_json::from_str(&unescaped(json)).map_err(ReportError::Manifest)?;
        // Titles are escaped, so that nothing before can be taken for it.
        let (body, _) = body.split_once(MANIFEST_SECTION).ok_or(ReportError::NoResults)?;
        let lines = format!("{head}{body}");
        let (gap_at, gap_lines) = (head.matches('\n').count(), json.matches('\n').count() + 1);
        let results = Results::Text(Text { lines, gap_at, gap_lines });
        Ok(Written { manifest, form: Form::Html, results })
    }

    /// The first of the results in which another run differs.
    #[must_use]
    pub fn difference(&self, other: &Written) -> Option<Difference> {
        match (&self.results, &other.results) {
            (Results::Objects(ours), Results::Objects(theirs)) => of_objects(ours, theirs),
            (Results::Text(ours), Results::Text(theirs)) => ours.difference(theirs),
            _ => Some(Difference { place: "its form".to_owned(), before: None, after: None }),
        }
    }
}

impl Text {
    fn difference(&self, other: &Text) -> Option<Difference> {
        let (mut ours, mut theirs) = (self.lines.split('\n'), other.lines.split('\n'));
        for at in 0.. {
            let (ours, theirs) = (ours.next(), theirs.next());
            if ours.is_none() && theirs.is_none() {
                return None;
            }
            if ours != theirs {
                let left_out = if at >= self.gap_at { self.gap_lines } else { 0 };
                let place = format!("line {}", at + left_out + 1);
                let [before, after] = [ours, theirs].map(|line| line.map(str::to_owned));
                return Some(Difference { place, before, after });
            }
        }
        None
    }
}

fn of_objects(ours: &[Value], theirs: &[Value]) -> Option<Difference> {
    let count = ours.len().max(theirs.len());
    for at in 0..count {
        let mut path = String::new();
        if let Some((before, after)) = of_values(ours.get(at), theirs.get(at), &mut path) {
            let object = if count > 1 { format!("object {}", at + 1) } else { String::new() };
            let between = if object.is_empty() || path.is_empty() { "" } else { ", " };
            let place = format!("{object}{between}{path}");
            return Some(Difference { place, before, after });
        }
    }
    None
}

/// What a value was and is; `path` then names it as jq does: `.caches[2].misses`. Numbers are the
/// same if they are written the same.
fn of_values(
    ours: Option<&Value>,
    theirs: Option<&Value>,
    path: &mut String,
) -> Option<(Option<String>, Option<String>)> {
    let whole = path.len();
    let mut inside = |name: String, ours: Option<&Value>, theirs: Option<&Value>| {
        path.push_str(&name);
        let found = of_values(ours, theirs, path);
        if found.is_none() {
            path.truncate(whole);
        }
        found
    };
    match (ours, theirs) {
        (Some(Value::Object(ours)), Some(Value::Object(theirs))) => {
            let more = theirs.keys().filter(|name| !ours.contains_key(*name));
            ours.keys()
                .chain(more)
                .find_map(|name| inside(format!(".{name}"), ours.get(name), theirs.get(name)))
        }
        (Some(Value::Array(ours)), Some(Value::Array(theirs))) => (0..ours.len().max(theirs.len()))
            .find_map(|at| inside(format!("[{at}]"), ours.get(at), theirs.get(at))),
        (ours, theirs) => {
            let [before, after] = [ours, theirs].map(|value| value.map(Value::to_string));
            (before != after).then_some((before, after))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Report, TraceIdentity};

    fn manifest(path: &str) -> Manifest {
        Manifest {
            command: ["damelo", "lab", "sim", path].map(str::to_owned).to_vec(),
            version: "1".to_owned(),
            trace: TraceIdentity { name: "a \"b\" & <c>".to_owned(), ..TraceIdentity::default() },
            ..Manifest::default()
        }
    }

    fn page(title: &str, path: &str) -> Written {
        let mut report = Report::new(title, false);
        report.section("How to run it again");
        report.paragraph("two");
        Written::parse(&report.finish(&manifest(path))).expect("a page of ours")
    }

    #[test]
    fn a_page_gives_back_its_manifest_and_differs_by_its_results_alone() {
        let one = page("t", "x");
        assert_eq!((&one.manifest, one.form), (&manifest("x"), Form::Html));
        assert_eq!(one.difference(&page("t", "y")), None, "another command");
        let other = page("u", "x");
        let found = one.difference(&other).expect("another title");
        // Behind the line of the manifest.
        let line = |title: &str| Some(format!("<title>{title}</title>"));
        assert_eq!((found.place.as_str(), found.before), ("line 7", line("t")));
        assert_eq!(found.after, line("u"));
        // Its length is part of it.
        let Results::Text(text) = &one.results else { panic!("a page has lines") };
        let text = Text { lines: format!("{}\n", text.lines), ..*text };
        let longer = Written { results: Results::Text(text), ..one.clone() };
        assert!(one.difference(&longer).is_some() && longer.difference(&one).is_some());
    }

    #[test]
    fn json_gives_back_its_manifest_and_differs_by_values() {
        let json = |misses: u32| {
            let manifest = serde_json::to_string(&manifest("x")).expect("JSON");
            format!("{{\"manifest\":{manifest},\"a\":1,\"caches\":[0,{{\"misses\":{misses}}}]}}")
        };
        let one = Written::parse(&json(3)).expect("a report");
        assert_eq!((&one.manifest, one.form), (&manifest("x"), Form::Json));
        let spaced = json(3).replace("\"a\":1,", "\n \"a\" : 1 ,");
        assert_eq!(one.difference(&Written::parse(&spaced).expect("a report")), None);
        let other = Written::parse(&json(4)).expect("a report");
        let misses = difference(".caches[1].misses", Some("3"), Some("4"));
        assert_eq!(one.difference(&other), Some(misses));
        let shorter = json(3).replace(",{\"misses\":3}", "");
        let shorter = Written::parse(&shorter).expect("a report");
        let missing = difference(".caches[1]", Some("{\"misses\":3}"), None);
        assert_eq!(one.difference(&shorter), Some(missing));
        let more = Written::parse(&json(3).replace("\"a\":1", "\"a\":1,\"b\":null"));
        let added = difference(".b", None, Some("null"));
        assert_eq!(one.difference(&more.expect("a report")), Some(added));
    }

    fn difference(place: &str, before: Option<&str>, after: Option<&str>) -> Difference {
        let [before, after] = [before, after].map(|text| text.map(str::to_owned));
        Difference { place: place.to_owned(), before, after }
    }

    /// The last digit of a number counts; one object in each line is a report as one object is.
    #[test]
    fn json_of_lines_differs_by_the_last_digit() {
        let manifest = manifest("x").json();
        let lines = |ms: &str| {
            format!(
                "{{\"manifest\":{manifest},\"a\":1}}\n{{\"manifest\":{manifest},\"ms\":{ms}}}\n"
            )
        };
        let read = |text: &str| Written::parse(text).expect("a report");
        let one = read(&lines("31.245270191439438"));
        assert_eq!(one.difference(&read(&lines("31.245270191439438"))), None);
        let (before, after) = ("31.245270191439438", "31.24527019143944");
        let second = difference("object 2, .ms", Some(before), Some(after));
        assert_eq!(one.difference(&read(&lines(after))), Some(second));
        let alone = one.difference(&read(lines("1").lines().next().expect("a line")));
        assert_eq!(alone.expect("one is missing").place, "object 2");
    }

    #[test]
    fn csv_gives_back_its_manifest_and_differs_by_its_rows() {
        // A word of the command with a line end in it must not end the comment.
        let csv = |path: &str, rows: &str| {
            let text = format!("{}policy,size\n{rows}", manifest(path).csv_comment());
            Written::parse(&text).expect("a table of ours")
        };
        let one = csv("a\nb", "lru,1\n");
        assert_eq!((&one.manifest, one.form), (&manifest("a\nb"), Form::Csv));
        assert_eq!(one.difference(&csv("y", "lru,1\n")), None, "another command");
        let other = csv("a\nb", "lru,2\n");
        let third = difference("line 3", Some("lru,1"), Some("lru,2"));
        assert_eq!(one.difference(&other), Some(third), "as the file is numbered");
    }

    #[test]
    fn what_is_no_report_says_why() {
        let why = |text: &str| Written::parse(text).map(|_| ()).unwrap_err().to_string();
        for none in ["", "{", "{\"requests\":1}", "<!doctype html>", "time_s,client\n"] {
            assert!(why(none).contains("no manifest"), "{none}");
        }
        assert!(why("{\"a\":1,\"manifest\":{\"command\":7}}").contains("cannot be read"));
        let bare = format!("{{\"manifest\":{}}}", manifest("x").json());
        assert!(why(&bare).contains("no results"));
        assert!(why(&manifest("x").csv_comment()).contains("no results"));
        assert!(why("# manifest {\nlru,1\n").contains("cannot be read"));
        let cut = format!("{MANIFEST_META}{}\">\n<p>", super::super::html::escaped("{\"a\":1}"));
        assert!(why(&cut).contains("cannot be read"));
    }
}
