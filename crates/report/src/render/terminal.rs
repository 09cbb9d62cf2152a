//! The report on a terminal: the finding and the leading table of each setting.

use crate::captions::key;
use crate::document::{Document, Drawing, Mark, Section, Table};
use records::palette::marker;
use records::text::{printable, ruled_table};
use std::fmt::Write as _;

/// The finding and the leading table of each setting. Tables wider than `width` columns leave their
/// intervals out and say so. `colors`: rows begin with the marker of their line in the figure, in
/// its colour.
pub(crate) fn terminal(document: &Document, width: Option<usize>, colors: bool) -> String {
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
        let styles = if colors { styles(section) } else { Vec::new() };
        let whole = table(&section.lead, true, &styles);
        let is_wide = |width| whole.lines().any(|line| line.chars().count() > width);
        if width.is_some_and(is_wide) {
            let _ = writeln!(out, "{}", table(&section.lead, false, &styles));
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
        let said = std::iter::once(&section.finding).chain(&section.caveats);
        for said in said {
            let _ = writeln!(out, "{}", printable(said));
        }
    }
    for chapter in document.chapters.iter().filter(|c| !c.summary.is_empty()) {
        let _ = write!(out, "\n{}\n", printable(&chapter.summary));
    }
    out
}

/// The style of each row's line in the figure of the leading table; empty where there is none.
fn styles(section: &Section) -> Vec<Option<usize>> {
    let figures = section.figures.iter();
    let figure = figures
        .filter(|f| f.metric == section.lead.metric)
        .find_map(|f| match &f.plot {
            Drawing::Lines(plot) => Some(plot),
            Drawing::Grids(_) | Drawing::Dots(_) => None,
        });
    let Some(plot) = figure else {
        return Vec::new();
    };
    let of = |method: &Option<usize>| {
        let key = method.map(key)?;
        plot.series.iter().find(|s| s.key == key).map(|s| s.style)
    };
    section.lead.methods.iter().map(of).collect()
}

/// The leading table of a section, its best cells starred, with or without intervals. `styles`: as
/// [`styles`] gives them.
fn table(lead: &Table, intervals: bool, styles: &[Option<usize>]) -> String {
    // One column wide, and in no text of a record: those are printable.
    const PLACE: char = '\u{e000}';
    let mut table = ruled_table();
    table.force_no_tty();
    table.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
    table.set_header(lead.columns.iter().map(|c| printable(c)));
    for (at, row) in lead.rows.iter().enumerate() {
        table.add_row(row.iter().enumerate().map(|(column, c)| {
            let best = if c.mark == Mark::Best { " *" } else { "" };
            let end = c.interval_at.filter(|_| !intervals).unwrap_or(c.text.len());
            let text = format!("{}{best}", printable(c.text[..end].trim_end()));
            match (column, styles.get(at)) {
                (0, Some(Some(_))) => format!("{PLACE} {text}"),
                (0, Some(None)) => format!("  {text}"),
                _ => text,
            }
        }));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    let marks = styles.iter().flatten();
    marks.fold(table.trim_fmt(), |text, style| {
        text.replacen(PLACE, &marker(*style), 1)
    })
}
