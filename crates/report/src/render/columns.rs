//! Columns of LaTeX tables: numbers stand under each other at their decimal points (siunitx), each
//! followed by its interval; everything else stands in braces or across both.

use super::escape;
use crate::document::{Cell, Layout, Mark, Table};
use minijinja::Value;
use std::fmt::Write as _;

/// What a column holds.
enum Column {
    /// Names and words.
    Text,
    /// Numbers, by the most digits before and after the decimal point.
    Numbers {
        whole: usize,
        decimals: usize,
        has_sign: bool,
        has_interval: bool,
    },
}

/// The columns of a table whose numbers are aligned; none for tables of sentences.
pub(super) struct Columns(Vec<Column>);

impl Columns {
    pub(super) fn of(table: &Table) -> Option<Self> {
        let is_numbers = matches!(table.layout, Layout::Numbers | Layout::Heat);
        let columns = (0..table.columns.len()).map(|at| {
            let cells = table.rows.iter().filter_map(|row| row.get(at));
            if at == 0 { Column::Text } else { column(cells) }
        });
        is_numbers.then(|| Self(columns.collect()))
    }

    /// The argument of `tabular`.
    pub(super) fn spec(&self) -> Value {
        let mut spec = String::new();
        for (at, column) in self.0.iter().enumerate() {
            let _ = match column {
                Column::Text if at == 0 => write!(spec, "l"),
                Column::Text => write!(spec, "r"),
                Column::Numbers {
                    whole,
                    decimals,
                    has_sign,
                    has_interval,
                } => {
                    let sign = if *has_sign { "+" } else { "" };
                    let rest = if *has_interval { "@{\\,}l" } else { "" };
                    write!(spec, "S[table-format={sign}{whole}.{decimals}]{rest}")
                }
            };
        }
        Value::from_safe_string(spec)
    }

    /// A heading as wide as its column.
    pub(super) fn heading(&self, at: usize, text: &str) -> Value {
        let text = escape::latex(text);
        Value::from_safe_string(match self.0.get(at) {
            Some(Column::Numbers {
                has_interval: true, ..
            }) => format!("\\multicolumn{{2}}{{c}}{{{text}}}"),
            Some(Column::Numbers { .. }) => format!("{{{text}}}"),
            Some(Column::Text) | None => text,
        })
    }

    /// A cell of a column.
    pub(super) fn cell(&self, at: usize, cell: &Cell) -> Value {
        let Some(Column::Numbers { has_interval, .. }) = self.0.get(at) else {
            return Value::from_safe_string(marked(cell.mark, &escape::latex(&cell.text)));
        };
        let text = match (number(cell), has_interval) {
            (Some((number, rest)), _) => {
                let series = match cell.mark {
                    Mark::Best => "\\bfseries ",
                    Mark::Near => "\\itshape ",
                    Mark::None => "",
                };
                let rest = match (has_interval, rest.trim()) {
                    (false, _) => String::new(),
                    (true, "") => " &".into(),
                    (true, rest) => format!(" & {}", marked(cell.mark, &escape::latex(rest))),
                };
                format!("{series}{number}{rest}")
            }
            (None, true) => {
                let text = marked(cell.mark, &escape::latex(&cell.text));
                format!("\\multicolumn{{2}}{{c}}{{{text}}}")
            }
            (None, false) => format!("{{{}}}", marked(cell.mark, &escape::latex(&cell.text))),
        };
        Value::from_safe_string(text)
    }
}

/// Bold reaches the sign between mean and interval; braces keep a leading bracket from being read as
/// an option.
fn marked(mark: Mark, text: &str) -> String {
    match mark {
        Mark::Best => format!("{{\\boldmath\\textbf{{{text}}}}}"),
        Mark::Near => format!("\\textit{{{text}}}"),
        Mark::None if text.starts_with('[') => format!("{{}}{text}"),
        Mark::None => text.into(),
    }
}

/// The number that a cell begins with, as siunitx reads it, and its interval.
fn number(cell: &Cell) -> Option<(&str, &str)> {
    let at = cell.interval_at.unwrap_or(cell.text.len());
    let (number, rest) = cell.text.split_at_checked(at)?;
    let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_digits = |text: &str| {
        !text.is_empty() && text.len() < 20 && text.bytes().all(|b| b.is_ascii_digit())
    };
    (is_digits(whole) && is_digits(decimals)).then_some((number, rest))
}

fn column<'c>(cells: impl Iterator<Item = &'c Cell>) -> Column {
    let (mut most, mut any) = ([1_usize, 0], false);
    let (mut has_sign, mut has_interval) = (false, false);
    for (number, rest) in cells.filter_map(number) {
        any = true;
        has_sign |= number.starts_with(['+', '-']);
        has_interval |= !rest.trim().is_empty();
        let digits = number.trim_start_matches(['+', '-']);
        let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
        most = [most[0].max(whole.len()), most[1].max(decimals.len())];
    }
    if !any {
        return Column::Text;
    }
    Column::Numbers {
        whole: most[0],
        decimals: most[1],
        has_sign,
        has_interval,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cells: &[Cell]) -> Table {
        Table {
            columns: vec!["method".into(), "64".into()],
            rows: cells.iter().map(|c| vec!["a".into(), c.clone()]).collect(),
            ..Table::default()
        }
    }

    #[test]
    fn numbers_are_aligned_and_words_are_not() {
        let best = Cell {
            mark: Mark::Best,
            ..Cell::number(("3.90".into(), " ± 0.07".into()))
        };
        let cells = [
            best,
            Cell::number(("112.5".into(), String::new())),
            "-".into(),
        ];
        let columns = Columns::of(&table(&cells)).unwrap();
        assert_eq!(columns.spec().to_string(), "lS[table-format=3.2]@{\\,}l");
        assert_eq!(
            columns.heading(1, "64").to_string(),
            "\\multicolumn{2}{c}{64}"
        );
        let cell = |at: usize| columns.cell(1, &cells[at]).to_string();
        assert_eq!(
            cell(0),
            "\\bfseries 3.90 & {\\boldmath\\textbf{$\\pm$ 0.07}}"
        );
        assert_eq!(cell(1), "112.5 &");
        assert_eq!(cell(2), "\\multicolumn{2}{c}{-}");
    }

    #[test]
    fn what_is_no_number_is_text() {
        for text in [
            "100,736",
            "k/N",
            "1e5",
            "",
            "\\input{x}",
            "1.2.3",
            "inf",
            "≥ 4x",
        ] {
            assert!(number(&text.into()).is_none(), "{text}");
        }
        let columns = Columns::of(&table(&["≥ 4x".into()])).unwrap();
        assert_eq!(columns.spec().to_string(), "lr");
    }
}
