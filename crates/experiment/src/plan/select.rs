//! `[select]` and `half_seeds`: configurations derived from a cell. Under `[select]` every cell is
//! run under each combination of `select.over`, for fewer steps, with seeds that no result has, and
//! scored on rows that no result is scored on. The result is run under the combination that scores
//! best. `half_seeds` are also run for half the steps, to show whether the score still moves.

use super::check::check_seeds;
use super::planner::PlannedRun;
use super::sections::{Experiment, SelectSection};
use crate::spec::test_lens::TestLen;
use config::axes::{Cell, Choices, OVER, SELECT};
use config::diagnostic::Diagnostic;
use config::key_path::{KeyPath, set};
use posenc::PositionsConfig;
use tasks::{Rows, TEACHER_FORCED, Task};
use toml::{Table, Value};

/// How many `select.seeds` are its default.
const DEFAULT_SEEDS: usize = 2;

/// Runs of each cell, before anything is read strictly: of the result, of half the steps, and of
/// the sweep. A mistake counts as nothing and is refused later.
pub(super) fn runs_per_cell(table: &Table, choices: Option<&Choices>) -> usize {
    let count = |value: Option<&Value>| value.and_then(Value::as_array).map(Vec::len);
    let seeds = count(table.get("seeds")).unwrap_or(1);
    let half = count(table.get("half_seeds")).unwrap_or(0);
    let swept = table.get(SELECT).and_then(|select| select.get("seeds"));
    let swept = count(swept).unwrap_or(DEFAULT_SEEDS);
    let tried = choices.map_or(0, |choices| choices.count().saturating_mul(swept));
    seeds.saturating_add(half).saturating_add(tried)
}

impl SelectSection {
    /// Checks all values but those of `over`.
    ///
    /// # Errors
    ///
    /// A sweep of one combination, seeds of the result, a share of the steps outside its range, a
    /// result on selection rows (`rows`).
    pub(super) fn check(
        &self,
        cell: &Cell,
        choices: &Choices,
        seeds: &[u64],
        rows: Rows,
    ) -> Result<(), Diagnostic> {
        if choices.count() < 2 {
            let help = "write [select.over] and below it \"train.lr\" = [1e-3, 3e-3, 1e-2], or \
                        leave [select] out and set the value itself";
            return Err(cell.error(
                &format!("{SELECT}.{OVER}"),
                "holds nothing to choose from",
                "two combinations of values or more",
                help,
            ));
        }
        self.check_ranges(cell)?;
        if rows == Rows::Selection {
            return Err(cell.error(
                "eval.rows",
                "is `selection`: the result would be scored on the rows that it is chosen by",
                "test",
                "remove it: [select] scores its runs on selection rows by itself",
            ));
        }
        check_seeds(cell, "select.seeds", &self.seeds, "[100, 101]")?;
        let both = self.seeds.iter().position(|seed| seeds.contains(seed));
        let Some(index) = both else {
            return Ok(());
        };
        let free: Vec<u64> = (100..)
            .filter(|seed| !seeds.contains(seed))
            .take(2)
            .collect();
        Err(cell.error(
            &format!("select.seeds.{index}"),
            "is a seed of the result too, so the result would be chosen by its own runs",
            "whole numbers that `seeds` does not hold",
            &format!("write seeds = {free:?} in [select]"),
        ))
    }

    /// The metric that chooses: that of the report, unless given.
    ///
    /// # Errors
    ///
    /// One that the task does not have.
    pub(super) fn metric(&self, cell: &Cell, task: &dyn Task) -> Result<String, Diagnostic> {
        let Some(by) = &self.by else {
            return Ok(task.primary_metric().to_owned());
        };
        let known = task.definitions(TEACHER_FORCED);
        if known.contains_key(by) {
            return Ok(by.clone());
        }
        let known: Vec<&str> = known.keys().map(String::as_str).collect();
        let help = format!("the report leads with {}", task.primary_metric());
        Err(cell.error(
            "select.by",
            "is not a metric of this task",
            &known.join(", "),
            &help,
        ))
    }

    /// The configuration of a sweep's runs: the cell for fewer steps, scored at the training length
    /// on selection rows under the trained encoding alone.
    ///
    /// # Errors
    ///
    /// A stage that is left without a step.
    pub(super) fn sweep(&self, cell: &Cell, written: &Experiment) -> Result<Cell, Diagnostic> {
        let steps = (written.train.steps as f64 * self.steps).round() as u64;
        let in_length = TestLen::One(written.train.train_len);
        let mut swept = shortened(cell, written, ("select.steps", steps.max(1)), &in_length)?;
        put(&mut swept.table, "eval.rows", "selection".into());
        put(&mut swept.table, "seeds", seeds(&self.seeds));
        Ok(swept)
    }
}

/// Checks `half_seeds` and returns the configuration of their runs.
///
/// # Errors
///
/// Seeds that the result lacks, one step only, no length to compare at.
pub(super) fn halved(cell: &Cell, written: &Experiment) -> Result<Option<Cell>, Diagnostic> {
    if written.half_seeds.is_empty() {
        return Ok(None);
    }
    check_seeds(cell, "half_seeds", &written.half_seeds, "[100, 101]")?;
    let foreign = |seed: &u64| !written.seeds.contains(seed);
    // Where an argument sets only `seeds`, `half_seeds` loses the others.
    let is_argument = |key: &str| cell.origins.find(&KeyPath::new([key])).argument.is_some();
    let is_shortened = is_argument("seeds") && !is_argument("half_seeds");
    let mut half_seeds = written.half_seeds.clone();
    half_seeds.retain(|seed| !is_shortened || !foreign(seed));
    if half_seeds.is_empty() {
        return Ok(None);
    }
    if let Some(index) = half_seeds.iter().position(foreign) {
        return Err(cell.error(
            &format!("half_seeds.{index}"),
            "is not a seed of the result, and a run is compared with its own half",
            "seeds of `seeds`",
            "add it to seeds, or remove it",
        ));
    }
    written.train.check_ranges(cell)?;
    if written.train.steps < 2 {
        let problem = "has no half";
        return Err(cell.error("train.steps", problem, "2 or more", "remove half_seeds"));
    }
    let lens = written.eval.test_lens.written().iter();
    let in_length = lens.filter(|len| len.to() <= written.train.train_len);
    let Some(in_length) = in_length.max_by_key(|len| len.to()) else {
        return Err(cell.error(
            "half_seeds",
            "needs a test length at or below the training length: the score there is compared",
            "",
            "add train.train_len to eval.test_lens",
        ));
    };
    let steps = written.train.steps / 2;
    let mut halved = shortened(cell, written, ("half_seeds", steps), in_length)?;
    put(&mut halved.table, "seeds", seeds(&half_seeds));
    Ok(Some(halved))
}

/// The cell with another number of steps, whose warm-up and stages keep their shares, scored at one
/// length under the trained encoding, at the end alone. `key`: what shortens it.
fn shortened(
    cell: &Cell,
    written: &Experiment,
    (key, steps): (&str, u64),
    test_len: &TestLen,
) -> Result<Cell, Diagnostic> {
    let result = cell;
    let mut cell = cell.clone();
    let all = written.train.steps.max(1);
    let share = |part: u64| (u128::from(part) * u128::from(steps) / u128::from(all)) as u64;
    let table = &mut cell.table;
    for key in [SELECT, "half_seeds"] {
        table.remove(key);
    }
    if let Some(eval) = table.get_mut("eval").and_then(Value::as_table_mut) {
        for key in ["variants", "every", "during", "attention_distance"] {
            eval.remove(key);
        }
    }
    put(table, "train.steps", whole(steps));
    let test_len = match test_len {
        TestLen::One(length) => whole(*length as u64),
        range => range.to_string().into(),
    };
    put(table, "eval.test_lens", vec![test_len].into());
    if let Some(warmup) = written.train.warmup_steps {
        put(table, "train.warmup_steps", whole(share(warmup)));
    }
    if let Some(stop) = &written.train.stop {
        put(table, "train.stop.every", whole(stop.every.min(steps)));
    }
    let mut end = 0;
    for (index, stage) in written.train.stages.iter().enumerate() {
        let begin = end;
        end += stage.steps;
        let own = share(end).saturating_sub(share(begin));
        let path = format!("train.stages.{index}.steps");
        if own == 0 {
            let problem = format!(
                "is too few: none is left when {key} shortens the training to {steps} of {all} steps"
            );
            let help = format!("give the stage more steps, or change {key}");
            return Err(result.error(&path, &problem, "a step in the shorter training", &help));
        }
        put(table, &path, whole(own));
    }
    Ok(cell)
}

/// Gives a shortened cell the positions of the result that it belongs to. Some of their defaults
/// depend on the longest test length, which the shortened cell lacks.
pub(super) fn keep_positions(cell: &mut Cell, result: &[PlannedRun]) {
    let Some(spec) = result.first().map(|run| &run.job.spec) else {
        return;
    };
    let mut keep = |key: &str, positions: &PositionsConfig| {
        if let Ok(positions) = Value::try_from(positions) {
            put(&mut cell.table, key, positions);
        }
    };
    if spec.model.positions != PositionsConfig::default() {
        keep("model.positions", &spec.model.positions);
    }
    for (index, stage) in spec.train.stages.iter().enumerate() {
        if let Some(positions) = &stage.positions {
            keep(&format!("train.stages.{index}.positions"), positions);
        }
    }
}

fn whole(number: u64) -> Value {
    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

fn seeds(seeds: &[u64]) -> Value {
    seeds
        .iter()
        .map(|seed| whole(*seed))
        .collect::<Vec<_>>()
        .into()
}

/// Sets a key of tables that the strict types have read already.
fn put(table: &mut Table, key: &str, value: Value) {
    let path = KeyPath::parse(key).unwrap_or_default();
    let set = set(table, path.parts(), value);
    debug_assert!(set.is_ok(), "{key}");
}
