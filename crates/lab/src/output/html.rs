//! One self-contained HTML page: no script, no font, no picture from elsewhere, so that it can be
//! kept beside the data and opened in ten years. Pure.

use std::fmt::Write as _;

use super::bars::BarChart;
use super::chart::LineChart;
use super::manifest::Manifest;
use super::strips::StripChart;
use super::table::Table;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff;overflow-wrap:anywhere}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;font-size:.9rem}th,td{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left}
th,td{white-space:nowrap}.wide,figure{overflow-x:auto}
.n{text-align:right;font-variant-numeric:tabular-nums}
.synthetic{border:2px solid #b45309;padding:.4rem .8rem;color:#7c3205}
figure{margin:1rem 0}svg{width:100%;min-width:46rem;height:auto}
svg text{font-family:system-ui,sans-serif;font-size:12px;fill:#222}
code,pre{font:13px/1.4 ui-monospace,monospace;overflow-wrap:anywhere;white-space:pre-wrap}
@media print{svg{min-width:0}}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th,td{border-color:#444}svg text{fill:#ddd}
.synthetic{color:#fbbf77}}";

/// Begins the line of a page that has its manifest as JSON, for programs.
pub(super) const MANIFEST_META: &str = "<meta name=\"damelo-manifest\" content=\"";
/// Begins what a page says of its manifest to people, which is its last section.
pub(super) const MANIFEST_SECTION: &str = "<h2>How to run it again</h2>";

/// A report that grows by sections.
#[derive(Debug)]
pub struct Report {
    title: String,
    synthetic: bool,
    body: String,
}

impl Report {
    /// An empty report; a run on synthetic requests says so at its top.
    #[must_use]
    pub fn new(title: &str, synthetic: bool) -> Report {
        Report { title: title.to_owned(), synthetic, body: String::new() }
    }

    /// Starts a section.
    pub fn section(&mut self, title: &str) {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(self.body, "<h2>{}</h2>", escaped(title));
    }

    /// A paragraph of plain text.
    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escaped(text));
    }

    /// A table.
    pub fn table(&mut self, table: &Table) {
        let _ = writeln!(self.body, "<div class=\"wide\">{}</div>", table.html());
    }

    /// A chart.
    pub fn chart(&mut self, chart: &LineChart) {
        let _ = writeln!(self.body, "<figure>{}</figure>", chart.svg());
    }

    /// Bars.
    pub fn bars(&mut self, chart: &BarChart) {
        let _ = writeln!(self.body, "<figure>{}</figure>", chart.svg());
    }

    /// Strips.
    pub fn strips(&mut self, chart: &StripChart) {
        let _ = writeln!(self.body, "<figure>{}</figure>", chart.svg());
    }

    /// The whole page, with the manifest as its last section.
    #[must_use]
    pub fn finish(self, manifest: &Manifest) -> String {
        let title = escaped(&self.title);
        let warning = match self.synthetic {
            true => "<p class=\"synthetic\">Synthetic requests: no one ever made them.</p>\n",
            false => "",
        };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n{MANIFEST_META}{json}\">\n\
             <title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{warning}{body}\
             {MANIFEST_SECTION}\n<pre>{manifest}</pre>\n</body>\n</html>\n",
            body = self.body,
            json = escaped(&manifest.json()),
            manifest = escaped(&manifest.text()),
        )
    }
}

/// Text as HTML or SVG content or attribute.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            _ => safe.push(c),
        }
    }
    safe
}

/// The text that was [`escaped`].
pub(super) fn unescaped(text: &str) -> String {
    // The ampersand last, or `&amp;lt;` would become a sign that was never there.
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_escaped_comes_back() {
        for text in ["", "a & b", "<\"&lt;\">", "&amp;amp;quot;"] {
            assert_eq!(unescaped(&escaped(text)), text);
        }
    }

    #[test]
    fn a_report_is_whole_and_escapes_what_it_is_given() {
        let mut report = Report::new("a & b", true);
        report.section("<s>");
        report.paragraph("\"p\"");
        let page = report.finish(&Manifest::default());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(page.contains("<title>a &amp; b</title>"));
        assert!(page.contains("<h2>&lt;s&gt;</h2>") && page.contains("<p>&quot;p&quot;</p>"));
        assert!(page.contains("Synthetic requests"));
        for outside in ["src=", "href=", "<script", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(!Report::new("t", false).finish(&Manifest::default()).contains("Synthetic"));
    }

    /// A chart of a screen's width would have letters of four pixels on a telephone.
    #[test]
    fn charts_keep_a_width_at_which_they_can_be_read_and_are_scrolled() {
        let page = Report::new("t", false).finish(&Manifest::default());
        for rule in ["figure{overflow-x:auto}", "svg{width:100%;min-width:46rem;"] {
            assert!(page.contains(rule), "{rule}");
        }
    }
}
