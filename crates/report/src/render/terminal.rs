//! The report on a terminal: the finding and the leading table of each setting.

use crate::document::{Document, Mark, Table};
use records::text::{printable, ruled_table};
use std::fmt::Write as _;

/// The finding and the leading table of each setting. Tables wider than `width` columns leave their
/// intervals out and say so.
pub(crate) fn terminal(document: &Document, width: Option<usize>) -> String {
    let mut out = String::new();
    for section in &document.sections {
        if !out.is_empty() {
            out.push('\n');
        }
        let _ = writeln!(
            out,
            "{}, {}",
            printable(&section.lead.title),
            printable(&section.name)
        );
        let whole = table(&section.lead, true);
        let is_wide = |width| whole.lines().any(|line| line.chars().count() > width);
        if width.is_some_and(is_wide) {
            let _ = writeln!(out, "{}", table(&section.lead, false));
            out.push_str("the 95 % intervals do not fit here: the report has them\n");
        } else {
            let _ = writeln!(out, "{whole}");
        }
        for remark in &section.lead.remarks {
            let _ = writeln!(out, "{}", printable(remark));
        }
        if section
            .lead
            .rows
            .iter()
            .flatten()
            .any(|c| c.mark == Mark::Best)
        {
            out.push_str(
                "* best of its column: better than chance, its 95 % interval touches no other\n",
            );
        }
        if section.lead.rows.iter().flatten().any(|c| c.is_learning) {
            out.push_str("† still learning: see the last column\n");
        }
        let _ = writeln!(out, "{}", printable(&section.finding));
    }
    for chapter in document.chapters.iter().filter(|c| !c.summary.is_empty()) {
        let _ = write!(out, "\n{}\n", printable(&chapter.summary));
    }
    out
}

/// The leading table of a section, its best cells starred, with or without intervals.
fn table(lead: &Table, intervals: bool) -> String {
    let mut table = ruled_table();
    table.force_no_tty();
    table.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
    table.set_header(lead.columns.iter().map(|c| printable(c)));
    for row in &lead.rows {
        table.add_row(row.iter().map(|c| {
            let best = if c.mark == Mark::Best { " *" } else { "" };
            let end = c.interval_at.filter(|_| !intervals).unwrap_or(c.text.len());
            format!("{}{best}", printable(c.text[..end].trim_end()))
        }));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    table.trim_fmt()
}
