//! Strips as SVG: for each thing compared a row of cells, the darker the more of its sum lies
//! there. Pure; the same input gives the same bytes.

use std::fmt::Write as _;

use super::bars::{more_lines, name_left_of};
use super::chart::COLOURS;
use super::html::escaped;
use super::unit::Unit;

const WIDTH: f64 = 790.0;
const LEFT: f64 = 220.0;
const RIGHT: f64 = 70.0;
const ROW: f64 = 16.0;
const STEP: f64 = 20.0;
const TOP: f64 = 30.0;

/// A chart of strips.
#[derive(Debug, Clone, PartialEq)]
pub struct StripChart {
    /// What it shows.
    pub title: String,
    /// What values are of.
    pub unit: Unit,
    /// Name of each row, and its cells, which are not negative.
    pub rows: Vec<(String, Vec<f64>)>,
}

impl StripChart {
    /// The chart as an `<svg>` element.
    #[must_use]
    pub fn svg(&self) -> String {
        let step = |name: &str| STEP + more_lines(name, LEFT);
        let height = TOP + self.rows.iter().map(|row| step(&row.0)).sum::<f64>() + 6.0;
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\
             <text x=\"8\" y=\"18\" font-weight=\"bold\">{title}</text>\n",
            title = escaped(&self.title)
        );
        let mut y = TOP;
        for (name, cells) in &self.rows {
            self.row(&mut svg, y, name, cells);
            y += step(name);
        }
        svg.push_str("</svg>");
        svg
    }

    fn row(&self, svg: &mut String, y: f64, name: &str, cells: &[f64]) {
        let (sum, most) = (cells.iter().sum::<f64>(), cells.iter().copied().fold(0.0, f64::max));
        let form = self.unit.up_to(sum);
        let (inner, text_y) = (WIDTH - LEFT - RIGHT, y + 13.0);
        name_left_of(svg, LEFT, text_y, name);
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{inner}\" height=\"{ROW}\" fill=\"#8882\"/>\
             <text x=\"{}\" y=\"{text_y}\">{}</text>",
            WIDTH - RIGHT + 5.0,
            form.text(sum)
        );
        let width = inner / cells.len().max(1) as f64;
        for (n, value) in cells.iter().enumerate().filter(|(_, value)| **value > 0.0) {
            // By the root, so that cells with a hundredth of the most are still seen.
            let shade = (value / most).sqrt();
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{y}\" width=\"{width:.2}\" height=\"{ROW}\" fill=\"{}\" \
                 opacity=\"{shade:.2}\"><title>{}</title></rect>",
                LEFT + n as f64 * width,
                COLOURS[0],
                form.text(*value)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_shaded_by_their_share_of_the_fullest() {
        let rows = vec![
            ("a<b".to_owned(), vec![0.0, 4194304.0, 1048576.0, 0.0]),
            ("none".to_owned(), vec![0.0; 4]),
        ];
        let svg = StripChart { title: "t".to_owned(), unit: Unit::Bytes, rows }.svg();
        // Each of four cells has a quarter of 500; the second is full, the third has the root of a
        // quarter.
        assert_eq!(svg.matches("width=\"125.00\"").count(), 2, "{svg}");
        assert!(svg.contains("x=\"345.0\"") && svg.contains("opacity=\"1.00\""));
        assert!(svg.contains("x=\"470.0\"") && svg.contains("opacity=\"0.50\""));
        assert!(svg.contains("a&lt;b") && svg.contains(">5MiB<") && !svg.contains("NaN"));
    }

    #[test]
    fn a_name_wider_than_its_room_has_several_lines() {
        let name = "store:disk=lru:reinsert=15:admission=second-hit";
        let rows = vec![(name.to_owned(), vec![1.0]), ("b".to_owned(), vec![1.0])];
        let svg = StripChart { title: "t".to_owned(), unit: Unit::Number, rows }.svg();
        assert!(svg.contains(">:admission=second-hit<"), "{svg}");
        assert!(svg.contains("y=\"64\" width=\"500.00\""), "{svg}");
    }
}
