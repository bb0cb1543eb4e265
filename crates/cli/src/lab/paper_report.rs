//! The output of `damelo lab paper --html`: every table and figure of a paper, ours beside the
//! published. Pure.

use damelo_lab::output::{LineChart, Report as Page, Unit};
use damelo_lab::paper::Exhibit;

/// Factor between the least and the greatest x from which an axis is logarithmic.
const LOG_FACTOR: f64 = 100.0;

/// The page of several papers.
pub(super) fn page(papers: &[(&str, &[Exhibit])], requests: &[String], synthetic: bool) -> Page {
    let names: Vec<&str> = papers.iter().map(|(name, _)| *name).collect();
    let mut page = Page::new(&format!("Measured again: {}", names.join(", ")), synthetic);
    requests.iter().for_each(|words| page.paragraph(words));
    page.paragraph(
        "\"Picture only\" is a number that the paper has in a picture and does not state; rows without \
         a published number are ours alone. \"Over\" and \"about\" are the paper's words, or what its \
         words (\"similar\", \"on par\") come to.",
    );
    for (name, exhibits) in papers {
        for exhibit in *exhibits {
            page.section(&format!("{name}, {}: {}", exhibit.what, exhibit.title));
            page.table(&exhibit.table());
            if !exhibit.series.is_empty() {
                page.chart(&chart(exhibit));
            }
            exhibit.reasons().iter().for_each(|reason| page.paragraph(reason));
            page.paragraph(exhibit.why);
        }
    }
    page
}

fn chart(exhibit: &Exhibit) -> LineChart {
    let xs = || exhibit.series.iter().flat_map(|series| series.points.iter().map(|point| point.0));
    let (least, most) = xs().fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
    LineChart {
        title: exhibit.what.clone(),
        x_label: exhibit.x_label.to_owned(),
        x_unit: exhibit.x_unit,
        y_label: exhibit.y_label.to_owned(),
        y_unit: Unit::Number,
        log_x: least > 0.0 && most / least >= LOG_FACTOR,
        log_y: false,
        series: exhibit.series.clone(),
    }
}
