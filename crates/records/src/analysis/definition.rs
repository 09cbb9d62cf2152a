//! What a metric is in a setting: the definitions of its runs, and of later evaluations that scored
//! something else.

use super::groups::Run;
use super::setting::Setting;
use crate::metric;
use crate::record::{EvalRow, RunRecord};
use crate::text::list;
use std::collections::BTreeSet;

/// Names and lengths that a sentence has room for.
const MOST_NAMED: usize = 6;

/// A definition, and what it is of.
struct Defined {
    text: String,
    is_later: bool,
    methods: Vec<String>,
    lengths: BTreeSet<usize>,
}

impl Setting<'_> {
    /// What a metric is; where runs of the setting define it differently, such as by how answers
    /// were decoded, each of them and for whom; and the same of later evaluations that scored
    /// something else than their runs, such as other bytes.
    pub fn definition(&self, metric: &str) -> String {
        format!("{}{}", self.defined(metric), self.distinct_rows())
    }

    /// Which lengths have fewer distinct test rows than rows, as sentences after a definition.
    fn distinct_rows(&self) -> String {
        let runs = self.groups.iter().flat_map(|group| &group.runs);
        let rows = runs.flat_map(|run| &run.evals).filter_map(|row| {
            let all = row.metrics.get(metric::EXACT_MATCH)?.n;
            Some((row.test_len, row.distinct_rows?, all))
        });
        let counts: BTreeSet<(usize, u64, u64)> = rows.collect();
        let counts = counts.into_iter().map(|(length, distinct, all)| {
            format!("{distinct} of {all} at {}", self.unit_count(length))
        });
        match counts.collect::<Vec<_>>() {
            counts if counts.is_empty() => String::new(),
            counts => format!(" Distinct among the test rows: {}.", list(&counts, 12)),
        }
    }

    fn defined(&self, metric: &str) -> String {
        let mut all: Vec<Defined> = Vec::new();
        for group in &self.groups {
            for run in &group.runs {
                for (is_later, record, lengths) in sources(run) {
                    add(
                        &mut all,
                        metric,
                        (is_later, record),
                        &group.named.title,
                        lengths,
                    );
                }
            }
        }
        let has_later = all.iter().any(|one| one.is_later);
        let each = all.iter().map(|one| {
            let names = list(&one.methods, MOST_NAMED);
            let of = match (has_later, one.is_later) {
                (false, _) => format!("for {names}"),
                (true, false) => format!("for {names} at {}", self.listed(&one.lengths)),
                (true, true) => {
                    let lengths = self.listed(&one.lengths);
                    format!("for {names} at {lengths}, evaluated later")
                }
            };
            format!("{of}: {}", one.text.trim_end_matches('.'))
        });
        match &all[..] {
            [] => metric::definition(self.task, metric),
            [one] => one.text.clone(),
            _ => each.collect::<Vec<_>>().join("; ") + ".",
        }
    }

    fn listed(&self, lengths: &BTreeSet<usize>) -> String {
        let lengths: Vec<String> = lengths.iter().map(|len| self.length(*len)).collect();
        list(&lengths, 2 * MOST_NAMED)
    }
}

/// The record of a run, and those of its later evaluations that define a metric otherwise, each
/// with the lengths of its rows.
fn sources<'r>(run: &'r Run<'_>) -> Vec<(bool, &'r RunRecord, BTreeSet<usize>)> {
    let rows = run.rows();
    let own: &RunRecord = run;
    let later = run.later.iter().map(|later| (true, *later));
    let lengths = |of: &RunRecord| -> BTreeSet<usize> {
        let is_of = |row: &&EvalRow| of.evals.as_ptr_range().contains(&std::ptr::from_ref(*row));
        let rows = rows.iter().map(|(_, row)| *row).filter(is_of);
        rows.map(|row| row.test_len).collect()
    };
    std::iter::once((false, own))
        .chain(later)
        .map(|(is_later, of)| (is_later, of, lengths(of)))
        .collect()
}

/// Adds the definition of a record.
fn add(
    all: &mut Vec<Defined>,
    metric: &str,
    (is_later, record): (bool, &RunRecord),
    method: &String,
    lengths: BTreeSet<usize>,
) {
    let task = &record.task;
    if !task.definitions.contains_key(metric) || is_later && lengths.is_empty() {
        return;
    }
    let text = metric::definition(task, metric);
    match all.iter_mut().find(|one| one.text == text) {
        Some(one) => {
            one.lengths.extend(lengths);
            if !one.methods.contains(method) {
                one.methods.push(method.clone());
            }
        }
        None => all.push(Defined {
            text,
            is_later,
            methods: vec![method.clone()],
            lengths,
        }),
    }
}
