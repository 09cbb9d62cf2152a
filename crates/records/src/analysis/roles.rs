//! What a record is for: a result, the same run with half its steps, or a run of a selection sweep.

use crate::record::{EvalStatus, RunRecord};
use std::collections::{BTreeMap, BTreeSet};

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

    /// Notes on the records that are not results.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.selection.is_empty() {
            notes.push(format!(
                "{} scored on selection rows (eval.rows = \"selection\"), to choose values, and left \
                 out.",
                were(self.selection.len())
            ));
        }
        notes.extend(self.unscored().into_iter().map(|method| {
            format!(
                "{method}: no value that [select] tried has a score, so its result was not trained."
            )
        }));
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

impl Roles<'_> {
    /// Methods of a sweep beside the results of others, without a score of any run.
    fn unscored(&self) -> Vec<String> {
        let chosen = self.results.iter().filter_map(|run| run.selected.as_ref());
        let tried: Vec<_> = chosen.flat_map(|chosen| &chosen.candidates).collect();
        let keys = tried.iter().flat_map(|tried| &tried.values);
        let keys: BTreeSet<&str> = keys.map(|value| value.key.as_str()).collect();
        let runs: BTreeSet<&String> = tried.iter().flat_map(|tried| &tried.runs).collect();
        let mut methods: BTreeMap<String, bool> = BTreeMap::new();
        let others = self.selection.iter();
        for run in others.filter(|run| !keys.is_empty() && !runs.contains(&run.run_id)) {
            let labels = run.labels.iter().filter(|l| !keys.contains(l.key.as_str()));
            let labels: Vec<&str> = labels.map(|label| label.text.as_str()).collect();
            let has_score = run.evals.iter().any(|row| row.status == EvalStatus::Ok);
            *methods.entry(labels.join(", ")).or_default() |= has_score;
        }
        let unscored = methods.into_iter().filter(|(_, has_score)| !has_score);
        unscored.map(|(method, _)| method).collect()
    }
}

/// `1 run was`, `2 runs were`
fn were(count: usize) -> String {
    match count {
        1 => "1 run was".into(),
        n => format!("{n} runs were"),
    }
}
