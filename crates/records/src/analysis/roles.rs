//! What a record is for: a result, the same run with half its steps, or a run of a selection sweep.

use crate::record::RunRecord;

/// Records by what they are for.
#[derive(Default)]
pub struct Roles<'a> {
    /// Those that reports are about.
    pub results: Vec<&'a RunRecord>,
    /// Results again with half the steps ([`RunRecord::half_of`]): they show whether a score still
    /// moves, and nothing else. Without their later evaluations.
    pub halves: Vec<&'a RunRecord>,
    /// Runs that were scored on selection rows, to choose values of results.
    pub selection: Vec<&'a RunRecord>,
}

impl<'a> Roles<'a> {
    /// In the order of `records`.
    pub fn of(records: impl IntoIterator<Item = &'a RunRecord>) -> Self {
        let mut roles = Self::default();
        for record in records {
            let of = if record.is_of_sweep() {
                &mut roles.selection
            } else if record.half_of.is_some() {
                if record.evaluation_of.is_some() {
                    continue;
                }
                &mut roles.halves
            } else {
                &mut roles.results
            };
            of.push(record);
        }
        roles
    }

    /// Notes on the records that are no results.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.selection.is_empty() {
            notes.push(format!(
                "{} scored on selection rows (eval.rows = \"selection\"), to choose values, and left \
                 out.",
                were(self.selection.len())
            ));
        }
        if !self.halves.is_empty() {
            notes.push(format!(
                "{} trained with half the steps, to show whether scores still move; no table has \
                 them.",
                were(self.halves.len())
            ));
        }
        notes
    }
}

/// `1 run was`, `2 runs were`
fn were(count: usize) -> String {
    match count {
        1 => "1 run was".into(),
        n => format!("{n} runs were"),
    }
}
