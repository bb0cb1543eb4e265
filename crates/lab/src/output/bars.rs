//! Horizontal bars of several parts as SVG: one bar for each thing compared, one colour for each
//! part, lengths to one scale, and every part with its value as a tooltip. Pure; the same input
//! gives the same bytes.

use std::fmt::Write as _;

use super::chart::{COLOURS, short};
use super::html::escaped;
use super::names::{LINE_STEP, lines};
use super::unit::Unit;

const WIDTH: f64 = 790.0;
const LEFT: f64 = 220.0;
const RIGHT: f64 = 70.0;
const BAR: f64 = 16.0;
const STEP: f64 = 22.0;
const TOP: f64 = 56.0;
const LEGEND_STEP: f64 = 110.0;
/// Between a name and what it names, and before it.
const NAME_GAP: f64 = 7.0;

/// A chart of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct BarChart {
    /// What it shows, with its unit unless `unit` has it.
    pub title: String,
    /// What lengths are of.
    pub unit: Unit,
    /// Names of the parts.
    pub parts: Vec<String>,
    /// Name of each bar, and the lengths of its parts, which are not negative.
    pub bars: Vec<(String, Vec<f64>)>,
}

impl BarChart {
    /// The chart as an `<svg>` element.
    #[must_use]
    pub fn svg(&self) -> String {
        let sum = |bar: &(String, Vec<f64>)| bar.1.iter().sum::<f64>();
        let longest = self.bars.iter().map(sum).fold(0.0, f64::max);
        let scale = if longest > 0.0 { (WIDTH - LEFT - RIGHT) / longest } else { 0.0 };
        let height = TOP + self.bars.iter().map(|bar| step(&bar.0)).sum::<f64>() + 6.0;
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\
             <text x=\"8\" y=\"18\" font-weight=\"bold\">{title}</text>\n",
            title = escaped(&self.title)
        );
        // Writing to a String cannot fail, here and below.
        for (n, part) in self.parts.iter().enumerate() {
            let (x, colour) = (8.0 + n as f64 * LEGEND_STEP, COLOURS[n % COLOURS.len()]);
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"30\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
                 <text x=\"{}\" y=\"41\">{}</text>",
                x + 17.0,
                escaped(part)
            );
        }
        let mut y = TOP;
        for bar in &self.bars {
            self.bar(&mut svg, y, scale, bar, sum(bar));
            y += step(&bar.0);
        }
        svg.push_str("</svg>");
        svg
    }

    fn bar(&self, svg: &mut String, y: f64, scale: f64, bar: &(String, Vec<f64>), sum: f64) {
        let name = escaped(&bar.0);
        let text_y = y + 13.0;
        name_left_of(svg, LEFT, text_y, &bar.0);
        svg.push('\n');
        let mut x = LEFT;
        for (n, value) in bar.1.iter().enumerate().filter(|(_, value)| **value > 0.0) {
            let (length, colour) = (value * scale, COLOURS[n % COLOURS.len()]);
            let part = self.parts.get(n).map_or(String::new(), |part| escaped(part));
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{length:.1}\" height=\"{BAR}\" fill=\"{colour}\">\
                 <title>{name}, {part}: {}</title></rect>",
                self.unit.up_to(sum).text(*value)
            );
            x += length;
        }
        let text = match self.unit {
            Unit::Number => rounded(sum),
            unit => unit.up_to(sum).text(sum),
        };
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{text_y}\">{text}</text>", x + 5.0);
    }
}

/// From a bar of that name to the next.
fn step(name: &str) -> f64 {
    STEP + more_lines(name, LEFT)
}

/// What the lines of a name but the first add to the height of a bar or a strip.
pub(super) fn more_lines(name: &str, left: f64) -> f64 {
    LINE_STEP * (lines(name, left - 2.0 * NAME_GAP).len() - 1) as f64
}

/// The name of a bar or a strip that begins at `left`; `y` is of its first line.
pub(super) fn name_left_of(svg: &mut String, left: f64, y: f64, name: &str) {
    for (n, line) in lines(name, left - 2.0 * NAME_GAP).iter().enumerate() {
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            left - NAME_GAP,
            y + LINE_STEP * n as f64,
            escaped(line)
        );
    }
}

/// Three digits, which is what a bar can show.
fn rounded(value: f64) -> String {
    let digits = if value >= 1.0 { value.log10().floor() as i32 } else { 0 };
    let unit = 10f64.powi(digits - 2);
    short((value / unit).round() * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_to_scale_and_names_are_escaped() {
        let chart = BarChart {
            title: "t".to_owned(),
            unit: Unit::Number,
            parts: vec!["p".to_owned(), "q".to_owned()],
            bars: vec![("a<b".to_owned(), vec![3.0, 1.0]), ("c".to_owned(), vec![0.0, 2.0])],
        };
        let svg = chart.svg();
        // The longest bar has 500 of 4: three quarters, one quarter; the other has a half.
        assert!(svg.contains("width=\"375.0\"") && svg.contains("width=\"125.0\""), "{svg}");
        assert!(svg.contains("width=\"250.0\"") && svg.contains("a&lt;b, p: 3"), "{svg}");
        assert_eq!([rounded(45_948.0), rounded(7.0), rounded(999_999.0)], ["45.9k", "7", "1M"]);
        let nothing = BarChart { bars: vec![("d".to_owned(), vec![0.0])], ..chart };
        assert!(!nothing.svg().contains("NaN"));
    }

    #[test]
    fn a_name_wider_than_its_room_has_several_lines() {
        let name = "store:disk=lru:reinsert=15:admission=second-hit";
        let bars = vec![(name.to_owned(), vec![1.0]), ("b".to_owned(), vec![1.0])];
        let parts = vec!["p".to_owned()];
        let svg = BarChart { title: "t".to_owned(), unit: Unit::Number, parts, bars }.svg();
        assert!(svg.contains(">store:disk=lru:reinsert=15<"), "{svg}");
        assert!(svg.contains(">:admission=second-hit<"), "{svg}");
        // The next bar makes room for the second line, and so does the whole.
        assert!(svg.contains("y=\"92\" width=\"500.0\""), "{svg}");
        assert!(svg.starts_with("<svg viewBox=\"0 0 790 120\""), "{svg}");
    }
}
