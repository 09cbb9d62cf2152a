//! The numbers that define an encoding beside its rotation and slopes, for a terminal.

use crate::columns::{PAIRS, columns};
use crate::digits::number;
use crate::numbers::Numbers;
use std::fmt::Write as _;

/// Tables of the encoding's own, and the initial values of small parameters.
pub fn defining(out: &mut String, numbers: &Numbers) {
    for table in &numbers.tables {
        let _ = writeln!(out, "\n{}", table.title);
        let step = table.rows.len().div_ceil(PAIRS).max(1);
        let header = table
            .columns
            .iter()
            .map(|name| (*name).to_owned())
            .collect();
        let shown = table.rows.iter().enumerate();
        let shown = shown.filter(|(i, _)| i % step == 0 || i + 1 == table.rows.len());
        let row = |(_, row): (usize, &Vec<f64>)| row.iter().map(|v| number(*v)).collect();
        let rows: Vec<Vec<String>> = [header].into_iter().chain(shown.map(row)).collect();
        columns(out, &rows);
        if step > 1 {
            let count = table.rows.len();
            let _ = writeln!(
                out,
                "(every {step}th of {count} rows and the last; all with --json)"
            );
        }
    }
    let drawn = numbers.initial.iter();
    let drawn = drawn.filter(|(_, values)| values.len() <= PAIRS);
    for (i, (path, values)) in drawn.enumerate() {
        if i == 0 {
            out.push_str("\nat the start of training (seed 0)\n");
        }
        let values: Vec<String> = values.iter().map(|v| number(*v)).collect();
        let _ = writeln!(out, "{path} = {}", values.join(", "));
    }
}
