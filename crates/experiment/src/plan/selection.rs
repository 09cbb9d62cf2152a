//! The sweep of `[select]` as runs, and the choice by their records.
//!
//! A run belongs to the sweep or to the result, never to both: they differ in seeds and in the rows
//! that are scored. The choice is a function of the records, so a sweep that was interrupted
//! chooses the same.

use super::planned::{Method, Plan, Selection};
use records::RunRecord;
use records::metric::{self, LOSS_NATS};
use records::record::{Candidate, EvalStatus, RunStatus, Selected};
use std::cmp::Ordering;
use std::collections::HashMap;

/// What was chosen, if anything was.
type Choice = Option<Selected>;

/// What every method of a plan has chosen.
pub struct Chosen {
    /// The plan with the runs of the result of every method that has.
    pub plan: Plan,
    /// How many methods lack records of their sweep.
    pub undecided: usize,
    /// Methods none of whose combinations has a score: there is nothing to train.
    pub unscored: Vec<Method>,
}

/// A candidate's rank: its metric, then its loss where that is equal.
#[derive(Clone, Copy)]
struct Rank {
    score: f64,
    loss: f64,
}

impl Selection {
    /// What a method chose, once all its runs of the sweep are recorded; nothing where none of them
    /// has a score.
    fn choose(&self, method: &Method, records: &HashMap<&str, &RunRecord>) -> Option<Choice> {
        let mut candidates = Vec::new();
        let mut best: Option<(usize, Rank)> = None;
        for (index, tried) in method.tried.iter().enumerate() {
            let runs = || tried.sweep.iter().map(|run| &self.runs[*run].job);
            let found: Option<Vec<&RunRecord>> = runs()
                .map(|job| records.get(job.run_id.as_str()).copied())
                .collect();
            let found = found?;
            let score = |by: &str| -> Vec<Option<f64>> {
                found.iter().map(|record| score(record, by)).collect()
            };
            let candidate = |by: &str| Candidate {
                values: tried.values.clone(),
                runs: runs().map(|job| job.run_id.clone()).collect(),
                scores: score(by),
            };
            let of_loss = candidate(LOSS_NATS).mean();
            let candidate = candidate(&method.by);
            let rank = candidate.mean().map(|score| Rank {
                score,
                loss: of_loss.unwrap_or(f64::INFINITY),
            });
            if let Some(rank) = rank
                && best.is_none_or(|(_, best)| is_better(&method.by, rank, best))
            {
                best = Some((index, rank));
            }
            candidates.push(candidate);
        }
        let first = &self.runs[*method.tried.first()?.sweep.first()?].job.spec;
        let chosen = best.map(|(chosen, _)| Selected {
            by: method.by.clone(),
            test_len: first.train.train_len,
            steps: first.train.steps,
            seeds: self.seeds(method),
            candidates,
            chosen,
        });
        Some(chosen)
    }

    fn seeds(&self, method: &Method) -> Vec<u64> {
        let sweep = method.tried.first().map_or(&[][..], |tried| &tried.sweep);
        sweep
            .iter()
            .map(|run| self.runs[*run].job.spec.seed)
            .collect()
    }
}

/// The score of the trained encoding; none after divergence.
fn score(record: &RunRecord, by: &str) -> Option<f64> {
    let row = record.evals.first()?;
    let is_ok = record.status == RunStatus::Ok && row.status == EvalStatus::Ok;
    let (value, _) = metric::value(&record.task, row, by).filter(|_| is_ok)?;
    Some(value)
}

/// Whether a candidate comes before another that was tried earlier.
fn is_better(by: &str, candidate: Rank, other: Rank) -> bool {
    let order = metric::better_first(by, candidate.score, other.score);
    order.then(candidate.loss.total_cmp(&other.loss)) == Ordering::Less
}

impl Plan {
    /// The plan of the sweep alone; `None` without `[select]`.
    pub fn sweep(&self) -> Option<Self> {
        let selection = self.selection.as_ref()?;
        Some(Self {
            runs: selection.runs.clone(),
            ..self.clone()
        })
    }

    /// The metric that `[select]` chooses by.
    pub fn chosen_by(&self) -> Option<&str> {
        let mut methods = self.selection.iter().flat_map(|swept| &swept.methods);
        methods.next().map(|method| method.by.as_str())
    }

    /// What every method chooses by these records. Without `[select]`, the plan itself.
    pub fn chosen(&self, records: &[RunRecord]) -> Chosen {
        let (mut undecided, mut unscored) = (0, Vec::new());
        let Some(selection) = &self.selection else {
            return Chosen {
                plan: self.clone(),
                undecided,
                unscored,
            };
        };
        let records: HashMap<&str, &RunRecord> = records
            .iter()
            .map(|record| (record.run_id.as_str(), record))
            .collect();
        let mut plan = Self {
            runs: Vec::new(),
            selection: Some(Selection {
                runs: selection.runs.clone(),
                methods: Vec::new(),
            }),
            ..self.clone()
        };
        for method in &selection.methods {
            let selected = match selection.choose(method, &records) {
                Some(Some(selected)) => selected,
                Some(None) => {
                    unscored.push(method.clone());
                    continue;
                }
                None => {
                    undecided += 1;
                    continue;
                }
            };
            let runs = method.tried[selected.chosen].runs.iter().cloned();
            plan.runs.extend(runs.map(|mut run| {
                run.job.selected = Some(selected.clone());
                run
            }));
        }
        Chosen {
            plan,
            undecided,
            unscored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_scores_the_lower_loss_comes_first_and_then_the_earlier() {
        let rank = |score, loss| Rank { score, loss };
        assert!(is_better("exact_match", rank(0.9, 2.0), rank(0.8, 1.0)));
        assert!(!is_better("loss_nats", rank(0.9, 2.0), rank(0.8, 1.0)));
        assert!(is_better("exact_match", rank(1.0, 0.1), rank(1.0, 0.2)));
        assert!(!is_better("exact_match", rank(1.0, 0.1), rank(1.0, 0.1)));
    }
}
