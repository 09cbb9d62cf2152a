//! Which runs of one task and training length share a table.
//!
//! Experiments that trained for different budgets are apart, because a longer training is not a
//! better method. The runs of one experiment stay together: where it varies its own budget, that is
//! its question. Experiments of one budget with more methods than a reader can compare are apart
//! too.

use crate::record::RunRecord;
use crate::text::{self, thousands};
use serde_json::Value;
use std::collections::BTreeSet;

/// Methods of several experiments that share a table.
const MOST_METHODS: usize = 32;

/// Runs that are compared with each other.
pub(super) struct Part<'a> {
    /// What tells it from the other parts: `600 steps`, `experiment catalogue`; empty for the only
    /// one.
    pub label: String,
    pub runs: Vec<&'a RunRecord>,
}

/// Steps and rows of a batch.
type Budget = (u64, u64);

fn budget(run: &RunRecord) -> Budget {
    let train = run.spec.get("train");
    let number = |key: &str| train?.get(key).and_then(Value::as_u64);
    // A diverged run has fewer steps than it was given.
    (
        number("steps").unwrap_or(run.train.steps),
        number("batch_size").unwrap_or(0),
    )
}

/// The parts of runs, by budget and experiment. `runs`: in canonical order, not empty.
pub(super) fn comparable<'a>(runs: &[&'a RunRecord]) -> Vec<Part<'a>> {
    let mut pools: Vec<(BTreeSet<Budget>, BTreeSet<&'a str>)> = Vec::new();
    for run in runs {
        let mut own = (
            BTreeSet::from([budget(run)]),
            BTreeSet::from([run.experiment.as_str()]),
        );
        // An experiment with several budgets joins the pools of each.
        let (joined, rest): (Vec<_>, Vec<_>) = pools
            .into_iter()
            .partition(|pool| !pool.0.is_disjoint(&own.0) || !pool.1.is_disjoint(&own.1));
        for (budgets, experiments) in joined {
            own.0.extend(budgets);
            own.1.extend(experiments);
        }
        pools = rest;
        pools.push(own);
    }
    pools.sort();
    let names = names(&pools);
    let mut out = Vec::new();
    for ((_, experiments), name) in pools.iter().zip(names) {
        let own = runs
            .iter()
            .filter(|run| experiments.contains(run.experiment.as_str()));
        let own: Vec<&'a RunRecord> = own.copied().collect();
        if experiments.len() < 2 || methods(&own) <= MOST_METHODS {
            out.push(Part {
                label: name,
                runs: own,
            });
            continue;
        }
        for experiment in experiments {
            let of = own.iter().filter(|run| run.experiment == *experiment);
            out.push(Part {
                label: format!("experiment {}", text::name(experiment, 40)),
                runs: of.copied().collect(),
            });
        }
    }
    out
}

/// What tells pools apart: steps, and rows of a batch where steps are equal.
fn names(pools: &[(BTreeSet<Budget>, BTreeSet<&str>)]) -> Vec<String> {
    if pools.len() < 2 {
        return vec![String::new(); pools.len()];
    }
    let listed = |budgets: &BTreeSet<Budget>, of: fn(&Budget) -> u64| {
        let values: BTreeSet<u64> = budgets.iter().map(of).collect();
        let values: Vec<String> = values.into_iter().map(thousands).collect();
        text::list(&values, 4)
    };
    let steps = |budgets: &BTreeSet<Budget>| format!("{} steps", listed(budgets, |b| b.0));
    let name = |(budgets, _): &(BTreeSet<Budget>, BTreeSet<&str>)| {
        let own = steps(budgets);
        let alike = pools.iter().filter(|(other, _)| steps(other) == own);
        if alike.count() > 1 {
            format!("{own} of {} rows", listed(budgets, |b| b.1))
        } else {
            own
        }
    };
    pools.iter().map(name).collect()
}

/// Methods by their labels, the variants of one training counted once.
fn methods(runs: &[&RunRecord]) -> usize {
    let label = |run: &&RunRecord| {
        let labels = run.labels.iter().map(|l| l.text.clone());
        (run.experiment.clone(), labels.collect::<Vec<_>>())
    };
    runs.iter().map(label).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pools(all: &[(Budget, &'static str)]) -> Vec<String> {
        let all = all
            .iter()
            .map(|(b, e)| (BTreeSet::from([*b]), BTreeSet::from([*e])));
        names(&all.collect::<Vec<_>>())
    }

    #[test]
    fn budgets_are_named_by_what_differs() {
        assert_eq!(pools(&[((600, 32), "a")]), [""]);
        assert_eq!(
            pools(&[((600, 32), "a"), ((1500, 32), "b")]),
            ["600 steps", "1,500 steps"]
        );
        let rows = pools(&[((600, 16), "a"), ((600, 32), "b")]);
        assert_eq!(rows, ["600 steps of 16 rows", "600 steps of 32 rows"]);
    }
}
