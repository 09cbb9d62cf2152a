//! Columns of a table for a terminal.

/// Rows of the tables of pairs and of an encoding's own numbers.
pub const PAIRS: usize = 32;

/// Right-aligned columns; the first row is the header.
pub fn columns(out: &mut String, rows: &[Vec<String>]) {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|i| {
            rows.iter()
                .filter_map(|row| row.get(i))
                .map(String::len)
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        out.push_str(&cells.join("  "));
        out.push('\n');
    }
}
