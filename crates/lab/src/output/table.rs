//! A table with a head, as aligned text, CSV or HTML. Pure.

use std::fmt::Write as _;

use super::html::escaped;

/// Rows of text; columns that hold only numbers are aligned at the right.
#[derive(Debug, Clone, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(head: &[&str]) -> Table {
        Table { head: head.iter().map(|&cell| cell.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not as many cells as the head.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    /// Adds a column behind the others, empty in all rows so far.
    pub fn column(&mut self, head: &str) {
        self.head.push(head.to_owned());
        self.rows.iter_mut().for_each(|row| row.push(String::new()));
    }

    /// Adds a row of which only the first cells and the last are filled.
    ///
    /// # Panics
    /// If these are more than the head has.
    pub fn row_of_ends(&mut self, first: Vec<String>, last: String) {
        assert!(first.len() < self.head.len(), "a row has a cell for each column");
        let mut cells = first;
        cells.resize(self.head.len() - 1, String::new());
        cells.push(last);
        self.rows.push(cells);
    }

    /// Which columns hold only numbers. Looks at every cell: to be asked once for a table, which
    /// may have a row for each minute of months.
    fn numeric_columns(&self) -> Vec<bool> {
        (0..self.head.len()).map(|column| self.is_numeric(column)).collect()
    }

    fn is_numeric(&self, column: usize) -> bool {
        let number = |cell: &String| {
            cell.is_empty()
                || (cell.starts_with(|c: char| c.is_ascii_digit() || c == '-')
                    && !cell.contains(':'))
        };
        self.rows.iter().all(|row| number(&row[column]))
    }

    /// Lines of aligned text, each with a line end.
    #[must_use]
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| &row[column]).chain([&self.head[column]]);
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let numeric = self.numeric_columns();
        let mut text = String::new();
        for row in std::iter::once(&self.head).chain(&self.rows) {
            let cells: Vec<String> = row
                .iter()
                .enumerate()
                .map(|(column, cell)| match numeric[column] {
                    true => format!("{cell:>width$}", width = widths[column]),
                    false => format!("{cell:<width$}", width = widths[column]),
                })
                .collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    /// CSV after RFC 4180, with the head as first line and `\n` line ends; a `#` is within quotes.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = String::new();
        for row in std::iter::once(&self.head).chain(&self.rows) {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        }
        text
    }

    /// A `<table>`.
    #[must_use]
    pub fn html(&self) -> String {
        let numeric = self.numeric_columns();
        let mut text = String::from("<table><thead><tr>");
        html_cells(&mut text, "th", &self.head, &numeric);
        text.push_str("</tr></thead><tbody>\n");
        for row in &self.rows {
            text.push_str("<tr>");
            html_cells(&mut text, "td", row, &numeric);
            text.push_str("</tr>\n");
        }
        text.push_str("</tbody></table>\n");
        text
    }
}

/// Cells of a row, those of columns of numbers with the class `n`, which aligns them at the right.
fn html_cells(text: &mut String, element: &str, row: &[String], numeric: &[bool]) {
    for (cell, is_numeric) in row.iter().zip(numeric) {
        let class = if *is_numeric { " class=\"n\"" } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(text, "<{element}{class}>{}</{element}>", escaped(cell));
    }
}

fn quoted(cell: &str) -> String {
    // Unquoted, a `#` would begin a comment, of which a file of ours has one.
    if cell.contains([',', '"', '\n', '\r', '#']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_text_csv_and_html() {
        let mut table = Table::new(&["policy", "size"]);
        table.row(vec!["lru".to_owned(), "1,024".to_owned()]);
        table.row(vec!["a<b".to_owned(), "7".to_owned()]);
        assert_eq!(table.text(), "policy   size\nlru     1,024\na<b         7\n");
        assert_eq!(table.csv(), "policy,size\nlru,\"1,024\"\na<b,7\n");
        let mut table_of_hash = Table::new(&["trace"]);
        table_of_hash.row(vec!["a#b".to_owned()]);
        assert_eq!(table_of_hash.csv(), "trace\n\"a#b\"\n", "no comment begins there");
        assert!(table.html().contains("<td>a&lt;b</td><td class=\"n\">7</td>"));
        assert!(
            table.html().contains("<th>policy</th><th class=\"n\">size</th>"),
            "as in the text"
        );
    }
}
