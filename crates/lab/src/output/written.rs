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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// What it says of its run.
    pub manifest: Manifest,
    /// How it is written.
    pub form: Form,
    /// Everything else, in lines.
    results: String,
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
        Ok(Written { manifest, form: Form::Csv, results: results.to_owned() })
    }

    fn of_json(text: &str) -> Result<Written, ReportError> {
        let mut first = None;
        let mut results = String::new();
        for object in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
            let mut all = object.map_err(|_| ReportError::NoManifest)?;
            let members = all.as_object_mut().ok_or(ReportError::NoManifest)?;
            let manifest = members.remove("manifest").ok_or(ReportError::NoManifest)?;
            if members.is_empty() {
                return Err(ReportError::NoResults);
            }
            first.get_or_insert(manifest);
            results.push_str(&format!("{all:#}\n"));
        }
        let manifest = first.ok_or(ReportError::NoManifest)?;
        let manifest = serde_json::from_value(manifest).map_err(ReportError::Manifest)?;
        Ok(Written { manifest, form: Form::Json, results })
    }

    fn of_page(text: &str) -> Result<Written, ReportError> {
        let (head, rest) = text.split_once(MANIFEST_META).ok_or(ReportError::NoManifest)?;
        let (json, body) = rest.split_once("\">\n").ok_or(ReportError::NoManifest)?;
        let manifest = serde_json::from_str(&unescaped(json)).map_err(ReportError::Manifest)?;
        // Titles are escaped, so that nothing before can be taken for it.
        let (body, _) = body.split_once(MANIFEST_SECTION).ok_or(ReportError::NoResults)?;
        Ok(Written { manifest, form: Form::Html, results: format!("{head}{body}") })
    }

    /// The first line of results in which another run differs: its number, ours, theirs.
    #[must_use]
    pub fn difference<'a>(&'a self, other: &'a Written) -> Option<(usize, &'a str, &'a str)> {
        let (mut ours, mut theirs) = (self.results.split('\n'), other.results.split('\n'));
        let mut number = 0;
        loop {
            number += 1;
            match (ours.next(), theirs.next()) {
                (None, None) => return None,
                (a, b) if a == b => {}
                (a, b) => return Some((number, a.unwrap_or_default(), b.unwrap_or_default())),
            }
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
        let (_, ours, theirs) = one.difference(&other).expect("another title");
        assert!(ours.contains("<title>t") && theirs.contains("<title>u"), "{ours} {theirs}");
        // Its length is part of it.
        let longer = Written { results: format!("{}\n", one.results), ..one.clone() };
        assert!(one.difference(&longer).is_some() && longer.difference(&one).is_some());
    }

    #[test]
    fn json_gives_back_its_manifest_and_differs_by_values() {
        let json = |misses: u32| {
            let manifest = serde_json::to_string(&manifest("x")).expect("JSON");
            format!("{{\"manifest\":{manifest},\"a\":1,\"misses\":{misses}}}")
        };
        let one = Written::parse(&json(3)).expect("a report");
        assert_eq!((&one.manifest, one.form), (&manifest("x"), Form::Json));
        let spaced = json(3).replace("\"a\":1,", "\n \"a\" : 1 ,");
        assert_eq!(one.difference(&Written::parse(&spaced).expect("a report")), None);
        let other = Written::parse(&json(4)).expect("a report");
        let (_, ours, theirs) = one.difference(&other).expect("other misses");
        assert!(ours.contains('3') && theirs.contains('4'), "{ours} {theirs}");
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
        assert!(one.difference(&read(&lines("31.24527019143944"))).is_some());
        assert!(one.difference(&read(lines("1").lines().next().expect("a line"))).is_some());
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
        assert_eq!(one.difference(&other), Some((2, "lru,1", "lru,2")));
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
