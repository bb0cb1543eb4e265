//! Line charts as SVG: axes with round numbers, logarithmic ones if wanted, a legend, and the
//! points of short lines with their values as tooltips. Pure; the same input gives the same bytes.

use std::fmt::Write as _;

use super::html::escaped;
use super::names::{LINE_STEP, lines};
use super::unit::{Form, Unit};

const WIDTH: f64 = 830.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 220.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 52.0;
const LEGEND_STEP: f64 = 20.0;
/// From the foot of a logarithmic axis, where 0 is, up to the least value above it.
const ZERO_STEP: f64 = 22.0;
/// From the plot to the legend's dash, and to its names.
const LEGEND_DASH: f64 = 12.0;
const LEGEND_NAME: f64 = 40.0;
/// Told apart by people who do not see red and green (after Okabe and Ito); dashes tell the rest.
pub(super) const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"];
const DASHES: [&str; 6] = ["", "6 3", "2 3", "14 4", "10 3 2 3", "2 3 2 9"];
/// Points of a longer line are not marked: marks would hide what it does.
const MARKED_POINTS_MAX: usize = 40;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Points in order of x.
    pub points: Vec<(f64, f64)>,
}

/// A chart of lines.
#[derive(Debug, Clone)]
pub struct LineChart {
    /// What it shows.
    pub title: String,
    /// Name of the x axis, with its unit unless `x_unit` has it.
    pub x_label: String,
    /// What x is of.
    pub x_unit: Unit,
    /// Name of the y axis, with its unit unless `y_unit` has it.
    pub y_label: String,
    /// What y is of.
    pub y_unit: Unit,
    /// Equal distances are equal factors; points with x up to 0 are left out.
    pub log_x: bool,
    /// The same for y, but that 0 has a place of its own at the foot of the axis.
    pub log_y: bool,
    /// Lines.
    pub series: Vec<Series>,
}

/// From values to places on the page.
struct Scale {
    min: f64,
    max: f64,
    log: bool,
    form: Form,
    from: f64,
    to: f64,
    /// Where 0 is, if a logarithmic axis has it.
    zero: Option<f64>,
}

impl Scale {
    fn place(&self, value: f64) -> f64 {
        if let (Some(zero), true) = (self.zero, value <= 0.0) {
            return zero;
        }
        let along = |v: f64| if self.log { v.ln() } else { v };
        let share = (along(value) - along(self.min)) / (along(self.max) - along(self.min));
        self.from + share * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let zero = self.zero.map(|_| 0.0).into_iter();
            zero.chain(self.form.log_ticks(self.min, self.max)).collect()
        } else {
            self.form.ticks(self.min, self.max)
        }
    }
}

/// A value as short as it can be read: `1.5M`, `0.25`.
pub(super) fn short(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (scaled, unit) = units
        .into_iter()
        .find(|(factor, _)| value.abs() >= *factor * 0.9995)
        .map_or((value, ""), |(factor, unit)| (value / factor, unit));
    let digits = format!("{scaled:.4}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{unit}")
}

impl LineChart {
    /// The chart as an `<svg>` element.
    #[must_use]
    pub fn svg(&self) -> String {
        let names: f64 = self.series.iter().map(|series| legend_height(&series.name)).sum();
        let height = HEIGHT.max(TOP + 20.0 + names);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\
             <text x=\"{LEFT}\" y=\"18\" font-weight=\"bold\">{title}</text>\n",
            title = escaped(&self.title)
        );
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let fits_x = |x: f64| x.is_finite() && (!self.log_x || x > 0.0);
        let fits_y = |y: f64| y.is_finite() && (!self.log_y || y >= 0.0);
        let drawable = |(x, y): &(f64, f64)| fits_x(*x) && fits_y(*y);
        if points().filter(drawable).count() == 0 {
            svg.push_str("<text x=\"64\" y=\"60\">nothing to draw</text></svg>");
            return svg;
        }
        let (x, y) = self.scales(&points().filter(drawable).collect::<Vec<_>>());
        self.axes(&mut svg, &x, &y);
        let mut legend_at = TOP + 8.0;
        for (n, series) in self.series.iter().enumerate() {
            let drawn: Vec<(f64, f64)> = series.points.iter().copied().filter(drawable).collect();
            line(&mut svg, n, &series.name, &drawn, &x, &y);
            legend(&mut svg, n, &series.name, legend_at);
            legend_at += legend_height(&series.name);
        }
        svg.push_str("</svg>");
        svg
    }

    fn scales(&self, points: &[(f64, f64)]) -> (Scale, Scale) {
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)))
        };
        let (mut x_min, mut x_max) = range(&mut points.iter().map(|point| point.0));
        let above_zero = |y: &f64| !self.log_y || *y > 0.0;
        let (y_min, y_max) = range(&mut points.iter().map(|point| point.1).filter(above_zero));
        let has_zero = self.log_y && points.iter().any(|point| point.1 == 0.0);
        // Where there is nothing but zeros the axis has some range all the same.
        let (y_min, y_max) = if y_min > y_max { (1.0, 1.0) } else { (y_min, y_max) };
        if x_min == x_max {
            (x_min, x_max) =
                if self.log_x { (x_min / 2.0, x_max * 2.0) } else { (x_min - 1.0, x_max + 1.0) };
        }
        let (y_min, y_max) = match (self.log_y, y_max > 0.0) {
            // At least half a decade, so that there is a tick.
            (true, _) => (y_min.min(y_max / 3.2), y_max * 1.1),
            (false, true) => (0.0, y_max * 1.04),
            (false, false) => (0.0, 1.0),
        };
        let (x_form, y_form) = (self.x_unit.up_to(x_max), self.y_unit.up_to(y_max));
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let scale =
            |(min, max), log, form, (from, to), zero| Scale { min, max, log, form, from, to, zero };
        let (foot, zero) =
            if has_zero { (bottom - ZERO_STEP, Some(bottom)) } else { (bottom, None) };
        (
            scale((x_min, x_max), self.log_x, x_form, (LEFT, right), None),
            scale((y_min, y_max), self.log_y, y_form, (foot, TOP), zero),
        )
    }

    fn axes(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        // Writing to a String cannot fail, here and below.
        for tick in x.ticks() {
            let at = x.place(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#8884\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 17.0,
                x.form.text(tick)
            );
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#8884\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 7.0,
                at + 4.0,
                y.form.text(tick)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(16 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 12.0,
            escaped(&self.x_label),
            (TOP + bottom) / 2.0,
            escaped(&self.y_label)
        );
    }
}

fn stroke(n: usize) -> String {
    let colour = COLOURS[n % COLOURS.len()];
    let dash = DASHES[n / COLOURS.len() % DASHES.len()];
    format!("stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\" fill=\"none\"")
}

fn line(svg: &mut String, n: usize, name: &str, points: &[(f64, f64)], x: &Scale, y: &Scale) {
    let colour = COLOURS[n % COLOURS.len()];
    let path: Vec<String> =
        points.iter().map(|(px, py)| format!("{:.1},{:.1}", x.place(*px), y.place(*py))).collect();
    let name = escaped(name);
    let _ = writeln!(svg, "<polyline points=\"{}\" {}/>", path.join(" "), stroke(n));
    let marked = if points.len() <= MARKED_POINTS_MAX { points } else { &[] };
    for (px, py) in marked {
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"><title>{name}: {} at {}</title></circle>",
            x.place(*px),
            y.place(*py),
            y.form.text(*py),
            x.form.text(*px)
        );
    }
}

/// The lines of a name in the legend.
fn legend_lines(name: &str) -> Vec<String> {
    lines(name, RIGHT - LEGEND_NAME)
}

fn legend_height(name: &str) -> f64 {
    LEGEND_STEP + LINE_STEP * (legend_lines(name).len() - 1) as f64
}

fn legend(svg: &mut String, n: usize, name: &str, at: f64) {
    let left = WIDTH - RIGHT + LEGEND_DASH;
    let _ = write!(
        svg,
        "<line x1=\"{left}\" y1=\"{at}\" x2=\"{}\" y2=\"{at}\" {}/>",
        left + 22.0,
        stroke(n)
    );
    for (n, line) in legend_lines(name).iter().enumerate() {
        let (x, y) = (WIDTH - RIGHT + LEGEND_NAME, at + 4.0 + LINE_STEP * n as f64);
        let _ = write!(svg, "<text x=\"{x}\" y=\"{y}\">{}</text>", escaped(line));
    }
    svg.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(log_x: bool, points: Vec<(f64, f64)>) -> LineChart {
        LineChart {
            title: "t".to_owned(),
            x_label: "x".to_owned(),
            x_unit: Unit::Number,
            y_label: "y".to_owned(),
            y_unit: Unit::Number,
            log_x,
            log_y: false,
            series: vec![Series { name: "a<b".to_owned(), points }],
        }
    }

    #[test]
    fn points_lie_between_the_axes() {
        let svg = chart(true, vec![(1.0, 0.5), (1000.0, 0.25)]).svg();
        assert!(svg.contains("cx=\"64.0\"") && svg.contains("cx=\"610.0\""), "{svg}");
        assert!(svg.contains("a&lt;b: 0.25 at 1k"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
        let mut many = chart(false, vec![(1.0, 1.0)]);
        many.series = vec![many.series[0].clone(); 40];
        assert!(many.svg().starts_with("<svg viewBox=\"0 0 830 854\""), "room for the legend");
    }

    /// As many as there are policies, and more: `sim` draws a line for each.
    #[test]
    fn lines_look_different_from_each_other() {
        let strokes: std::collections::HashSet<String> = (0..42).map(stroke).collect();
        assert_eq!(strokes.len(), 42);
        assert!(crate::policy::POLICIES.len() <= strokes.len());
    }

    #[test]
    fn a_name_wider_than_the_legend_has_several_lines() {
        let mut long = chart(false, vec![(1.0, 1.0)]);
        long.series = vec![long.series[0].clone(); 2];
        long.series[0].name = "store-disk-fbc:segments=64:reinsert=20:cmax=3:amax=50".to_owned();
        let svg = long.svg();
        for part in [">store-disk-fbc<", ">:segments=64:reinsert=20<", ">:cmax=3:amax=50<"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        // Three lines above the second name.
        assert!(svg.contains("<text x=\"650\" y=\"94\">a&lt;b<"), "{svg}");
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        assert!(chart(true, vec![(0.0, 1.0), (f64::NAN, 1.0)]).svg().contains("nothing to draw"));
        assert!(!chart(false, vec![(5.0, 0.0)]).svg().contains("NaN"));
    }

    #[test]
    fn equal_factors_are_equally_far_on_a_logarithmic_axis() {
        let log_y =
            LineChart { log_y: true, ..chart(false, vec![(0.0, 1.0), (1.0, 10.0), (2.0, 100.0)]) };
        let svg = log_y.svg();
        let places: Vec<f64> = svg
            .split("cy=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().and_then(|y| y.parse().ok()).expect("a place"))
            .collect();
        assert!(((places[0] - places[1]) - (places[1] - places[2])).abs() < 0.2, "{places:?}");
    }

    /// Intervals in which all came from memory are not those of which nothing is known.
    #[test]
    fn zero_lies_at_the_foot_of_a_logarithmic_axis() {
        let of = |points| LineChart { log_y: true, ..chart(false, points) }.svg();
        let svg = of(vec![(0.0, 1.0), (1.0, 0.0), (2.0, 100.0)]);
        // The axis ends at 368; the least value above 0 is a step higher.
        for part in ["cx=\"64.0\" cy=\"346.0\"", "cx=\"337.0\" cy=\"368.0\"", "a&lt;b: 0 at 1<"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let label = "text-anchor=\"end\">0</text>";
        assert!(svg.contains(label), "{svg}");
        let all = of(vec![(0.0, 0.0)]);
        assert!(all.contains("cy=\"368.0\"") && !all.contains("NaN"), "{all}");
        let without = of(vec![(0.0, 1.0), (1.0, 100.0)]);
        assert!(without.contains("cy=\"368.0\"") && !without.contains(label), "{without}");
    }

    #[test]
    fn long_lines_are_drawn_without_marks() {
        let long = (0..=MARKED_POINTS_MAX).map(|n| (n as f64, 1.0)).collect();
        assert!(!chart(false, long).svg().contains("<circle"));
    }

    /// Axis and marks in the words of the tables.
    #[test]
    fn axes_and_marks_have_the_units_of_their_values() {
        let units = LineChart {
            x_unit: Unit::Bytes,
            y_unit: Unit::Seconds,
            ..chart(true, vec![(11_669_700.0, 7_200.0), (116_697_000.0, 3_600.0)])
        };
        let svg = units.svg();
        for part in [">16MiB<", ">64MiB<", ">50 min<", "120 min at 11.1MiB", "60 min at 111.3MiB"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn values_are_written_short() {
        assert_eq!(
            [short(0.25), short(1500.0), short(1e6), short(3.0)],
            ["0.25", "1.5k", "1M", "3"]
        );
    }
}
