//! Which runs of one task and training length share a table.
//!
//! Experiments that trained for different budgets are apart, because a longer training is not a
//! better method. The runs of one experiment stay together: where it varies its own budget, that is
//! its question. Experiments whose tasks have different settings, such as alphabets or hints, are
//! apart, and so are those of one budget with more methods than a reader can compare.

use crate::record::RunRecord;
use crate::spec::flatten;
use crate::text::{self, thousands};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

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

/// Keys of a task that change neither its rows nor what is scored of each: how many are tested,
/// coordinates beside the tokens, and files, which their hashes stand for.
const BESIDE: [&str; 8] = [
    "test_rows",
    "eval_tokens",
    "segment_ends",
    "segment_end_ids",
    "max_bytes",
    "files",
    "tokenizer",
    "valid",
];

/// The other settings of a task, by key.
type Task = BTreeMap<String, String>;

fn task(run: &RunRecord) -> Task {
    let mut all = Task::new();
    for (key, value) in run
        .spec
        .get("task")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        flatten(key, value, &mut all);
    }
    let is_beside = |key: &str| key.split('.').any(|part| BESIDE.contains(&part));
    all.retain(|key, _| !is_beside(key));
    all
}

/// Budgets, experiments and tasks of runs.
type Pool<'a> = (BTreeSet<Budget>, BTreeSet<&'a str>, BTreeSet<Task>);

/// The parts of runs, by budget, task and experiment. `runs`: in canonical order, not empty.
pub(super) fn comparable<'a>(runs: &[&'a RunRecord]) -> Vec<Part<'a>> {
    let mut pools: Vec<Pool<'a>> = Vec::new();
    for run in runs {
        let mut own = (
            BTreeSet::from([budget(run)]),
            BTreeSet::from([run.experiment.as_str()]),
            BTreeSet::from([task(run)]),
        );
        // An experiment with several budgets or tasks joins the pools of each.
        let (joined, rest): (Vec<_>, Vec<_>) = pools.into_iter().partition(|pool| {
            !pool.1.is_disjoint(&own.1)
                || !pool.0.is_disjoint(&own.0) && !pool.2.is_disjoint(&own.2)
        });
        for (budgets, experiments, tasks) in joined {
            own.0.extend(budgets);
            own.1.extend(experiments);
            own.2.extend(tasks);
        }
        pools = rest;
        pools.push(own);
    }
    pools.sort();
    let names = names(&pools);
    let mut out = Vec::new();
    for ((_, experiments, _), name) in pools.iter().zip(names) {
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

/// What tells pools apart: steps, rows of a batch where steps are equal, and where both are, the
/// only experiment or the settings of the task of several. A pool whose task sets nothing of its
/// own needs no name.
fn names(pools: &[Pool<'_>]) -> Vec<String> {
    if pools.len() < 2 {
        return vec![String::new(); pools.len()];
    }
    let listed = |budgets: &BTreeSet<Budget>, of: fn(&Budget) -> u64| {
        let values: BTreeSet<u64> = budgets.iter().map(of).collect();
        let values: Vec<String> = values.into_iter().map(thousands).collect();
        text::list(&values, 4)
    };
    let steps = |budgets: &BTreeSet<Budget>| format!("{} steps", listed(budgets, |b| b.0));
    let of_budget = |(budgets, ..): &Pool<'_>| {
        let own = steps(budgets);
        let rest = pools.iter().filter(|(other, ..)| other != budgets);
        match rest.clone().count() {
            0 => String::new(),
            _ if rest.clone().any(|(other, ..)| steps(other) == own) => {
                format!("{own} of {} rows", listed(budgets, |b| b.1))
            }
            _ => own,
        }
    };
    let of_task = |pool: &Pool<'_>, alike: &[&Pool<'_>]| match (own_settings(pool, alike), &pool.1)
    {
        (own, _) if own.is_empty() => String::new(),
        (_, experiments) if experiments.len() == 1 => {
            let experiment = experiments.first().copied().unwrap_or_default();
            format!("experiment {}", text::name(experiment, 40))
        }
        (own, _) => own.join(", "),
    };
    let name = |pool: &Pool<'_>| {
        let alike = pools.iter().filter(|other| other.0 == pool.0);
        let alike: Vec<&Pool<'_>> = alike.collect();
        let task = (alike.len() > 1).then(|| of_task(pool, &alike));
        let parts = [Some(of_budget(pool)), task].into_iter().flatten();
        let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
        parts.join(", ")
    };
    pools.iter().map(name).collect()
}

/// What the tasks of a pool set, and those of another one otherwise: `alphabet = 50`.
fn own_settings(pool: &Pool<'_>, alike: &[&Pool<'_>]) -> Vec<String> {
    fn values<'p>(pool: &'p Pool<'_>, key: &str) -> BTreeSet<Option<&'p str>> {
        let values = pool.2.iter().map(|task| task.get(key));
        values.map(|value| value.map(String::as_str)).collect()
    }
    let keys: BTreeSet<&String> = pool.2.iter().flat_map(BTreeMap::keys).collect();
    let differs = |key: &&String| {
        let own = values(pool, key);
        alike.iter().any(|other| values(other, key) != own)
    };
    let shown = |key: &String| {
        let values = values(pool, key).into_iter().flatten();
        let values: Vec<String> = values.map(|value| text::name(value, 40)).collect();
        format!("{key} = {}", text::list(&values, 4))
    };
    keys.into_iter().filter(differs).map(shown).collect()
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
        let all = all.iter();
        let all = all.map(|(b, e)| {
            (
                BTreeSet::from([*b]),
                BTreeSet::from([*e]),
                BTreeSet::from([Task::new()]),
            )
        });
        names(&all.collect::<Vec<_>>())
    }

    #[test]
    fn tasks_of_one_budget_are_named_by_experiment_or_settings() {
        let pool = |experiments: &[&'static str], settings: &[(&str, &str)]| {
            let experiments = experiments.iter().copied().collect();
            let settings = settings.iter().map(|(k, v)| (k.to_string(), v.to_string()));
            let task = settings.chain([("kind".to_owned(), "copy".to_owned())]);
            (
                BTreeSet::from([(600, 32)]),
                experiments,
                BTreeSet::from([task.collect()]),
            )
        };
        let all = [
            pool(&["a"], &[]),
            pool(&["b"], &[("alphabet", "26")]),
            pool(&["c", "d"], &[("alphabet", "50"), ("hints", "24")]),
        ];
        let named = ["", "experiment b", "alphabet = 50, hints = 24"];
        assert_eq!(names(&all), named);
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
