//! Columns for people.

use std::fmt::Write;

/// Lays rows out under a header, each column as wide as its widest cell.
pub(super) fn text<const COLUMNS: usize>(
    header: [&str; COLUMNS],
    rows: impl Iterator<Item = [String; COLUMNS]>,
) -> String {
    let table: Vec<[String; COLUMNS]> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; COLUMNS];
    for row in &table {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in &table {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing into a string cannot fail.
            write!(line, "{cell:width$}  ").unwrap_or_default();
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}
