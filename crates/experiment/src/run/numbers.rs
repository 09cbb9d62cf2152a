//! Whether the numbers of a record are those that its spec asks for.
//!
//! That is: which rows, which metrics, over how many items, and what follows from the spec alone.

use crate::run::record::task_facts;
use crate::run::step_scores::check_stop_scores;
use crate::run::task::build_task;
use crate::run::test_rows::TestRows;
use crate::spec::blocks::Blocks;
use crate::spec::scores::{metric_names, unsupported};
use crate::spec::{Job, RunSpec};
use records::RunRecord;
use records::metric::{self, EXACT_MATCH};
use records::record::{EvalRow, EvalStatus, RunStatus};
use rundir::Weights;
use schema::text::one_line;
use support::exit::Failure;
use tasks::Task;

/// What is wrong with numbers, and what is worth a note.
#[derive(Debug, Default)]
pub struct Numbers {
    /// What is wrong.
    pub wrong: Vec<String>,
    /// What may be.
    pub notes: Vec<String>,
}

/// Whether this build made a record: only then must texts and last digits be the same.
pub fn is_of_this_build(record: &RunRecord) -> bool {
    let environment = &record.environment;
    environment.commit == support::build::COMMIT && environment.version == support::build::VERSION
}

/// Checks the record of a run against the spec of its job, and its weights if they are there.
pub fn check(
    record: &RunRecord,
    spec: &RunSpec,
    task: &dyn Task,
    weights: Option<&Weights>,
) -> Numbers {
    let mut found = Numbers {
        wrong: rows(&record.evals, spec, task),
        notes: Vec::new(),
    };
    found.wrong.extend(steps(record, spec));
    found.wrong.extend(while_training(record, spec, task));
    // A training that diverged may have ended under the encoding of an earlier stage.
    let last = spec.encoding_at(record.train.steps.min(spec.train.steps.saturating_sub(1)));
    let facts = last.facts(&spec.model.transformer.shape());
    let expected = spec.model.transformer.num_params(&facts);
    let own = weights.map_or(record.model.encoding_parameters, |weights| {
        weights.count("encoding.")
    });
    if record.model.parameters != expected || record.model.encoding_parameters != own {
        found.wrong.push(format!(
            "the record counts {} parameters, {} of them the encoding's; the spec gives {expected} \
             and {own}",
            record.model.parameters, record.model.encoding_parameters
        ));
    }
    let diverged = record.status == RunStatus::Diverged;
    let is_diverged = |row: &EvalRow| row.status == EvalStatus::Diverged;
    if diverged && !record.evals.iter().all(is_diverged) {
        let problem = "the training diverged, and the record has scores";
        found.wrong.push(problem.to_owned());
    }
    if diverged != record.diverged.is_some()
        || record
            .diverged
            .as_ref()
            .is_some_and(|diverged| diverged.step != record.train.steps)
    {
        let problem = "the record does not say at which of its steps the training diverged";
        found.wrong.push(problem.to_owned());
    }
    let mut must = |holds: bool, problem: &str| {
        if !holds && is_of_this_build(record) {
            found.wrong.push(problem.to_owned());
        } else if !holds {
            found
                .notes
                .push(format!("{problem}; another commit recorded it"));
        }
    };
    must(
        record.task == task_facts(spec, task),
        "what the record says of its task is not what the task says",
    );
    must(
        record.encoding_facts == spec.model.derived(spec.train.seq_len),
        "what the record says of its encoding is not what the encoding says",
    );
    found
}

/// Checks that the training has the steps that were planned, or ended once it had learned.
fn steps(record: &RunRecord, spec: &RunSpec) -> Vec<String> {
    let (train, planned) = (&record.train, spec.train.steps);
    let last = train.stop_scores.last();
    let last = last.filter(|at| at.step == train.steps);
    let stop = spec.train.stop.as_ref().zip(last);
    let learned = stop.is_some_and(|(stop, last)| stop.is_met(last.value));
    let has_all = train.steps == planned || learned || record.status == RunStatus::Diverged;
    let curve = train.loss_curve.last().map_or(0, |point| point.step);
    let problems = [
        check_stop_scores(spec, &train.stop_scores, train.steps)
            .err()
            .map(|problem| problem.to_string()),
        (!has_all).then(|| {
            let held = train.steps;
            format!("the record holds {held} steps, its spec asks for {planned}")
        }),
        (curve != train.steps).then(|| {
            let held = train.steps;
            format!("the loss curve of the record ends at step {curve}, its training at {held}")
        }),
    ];
    problems.into_iter().flatten().collect()
}

/// The first problem of a record as that of a job, without its weights.
///
/// # Errors
///
/// If the task of the job cannot be built.
pub fn problem_of(job: &Job, record: &RunRecord) -> Result<Option<String>, Failure> {
    let task = build_task(job, &job.spec.eval.test_lens)?;
    let found = check(record, &job.spec, task.as_ref(), None);
    Ok(found.wrong.into_iter().next())
}

/// Checks the scores while training: their steps, and their rows as those of an evaluation.
fn while_training(record: &RunRecord, spec: &RunSpec, task: &dyn Task) -> Option<String> {
    let scores = &record.train.scores;
    let Some(every) = spec.eval.every else {
        let problem = "the record has scores while training, which were not asked for";
        return (!scores.is_empty()).then(|| problem.to_owned());
    };
    let last = record.train.steps;
    let diverged = record.status == RunStatus::Diverged;
    // The last step has the scores of the evaluation, whether or not it is a multiple.
    let planned = (1..=last).filter(|step| step.is_multiple_of(every) || *step == last);
    let steps = scores.iter().map(|at| at.step);
    if !diverged && !steps.eq(planned) {
        return Some("the scores while training are of other steps than planned".to_owned());
    }
    scores.iter().find_map(|at| {
        let spec = spec.after(at.step);
        let spec = RunSpec {
            eval: spec.eval.while_training()?,
            ..spec.into_owned()
        };
        let problem = rows(&at.rows, &spec, task).into_iter().next()?;
        Some(format!("scores after step {}: {problem}", at.step))
    })
}

/// Checks that rows are those of a spec, each with numbers that its test can give.
pub fn rows(rows: &[EvalRow], spec: &RunSpec, task: &dyn Task) -> Vec<String> {
    let eval = &spec.eval;
    let planned: Vec<(&str, usize)> = eval
        .variants
        .iter()
        .flat_map(|variant| {
            let lengths = eval.test_lens.iter();
            lengths.map(|test_len| (variant.name.as_str(), *test_len))
        })
        .collect();
    let held: Vec<(&str, usize)> = rows
        .iter()
        .map(|row| (row.variant.as_str(), row.test_len))
        .collect();
    let mut wrong = Vec::new();
    for (what, of, other) in [
        ("is not in the record", &planned, &held),
        ("is in the record and was not asked for", &held, &planned),
    ] {
        let odd: Vec<_> = of.iter().filter(|row| !other.contains(row)).collect();
        if let Some((variant, test_len)) = odd.first() {
            let more = match odd.len() {
                1 => String::new(),
                n => format!(", and {} more", n - 1),
            };
            let variant = one_line(variant, 60);
            wrong.push(format!("the row of {variant} at {test_len} {what}{more}"));
        }
    }
    if wrong.is_empty() && planned != held {
        wrong.push("the rows of the record are in another order".to_owned());
    }
    let problems = rows.iter().filter_map(|row| {
        let variant = one_line(&row.variant, 60);
        Some(format!(
            "{variant} at {}: {}",
            row.test_len,
            problem(row, spec, task)?
        ))
    });
    wrong.extend(problems.take(5));
    wrong
}

/// What is wrong with one row.
#[expect(clippy::too_many_lines, reason = "one rule after the other")]
fn problem(row: &EvalRow, spec: &RunSpec, task: &dyn Task) -> Option<String> {
    let eval = &spec.eval;
    let variant = eval
        .variants
        .iter()
        .find(|known| known.name == row.variant)?;
    let index = eval
        .test_lens
        .iter()
        .position(|known| *known == row.test_len)?;
    let encoding = variant.pe.get(index)?;
    let positions = variant.positions.get(index);
    let positions = positions.unwrap_or(&spec.model.positions);
    let seq_len = task.seq_len(row.test_len);
    let largest = spec
        .model
        .coordinates
        .largest(task, row.test_len, positions);
    let has_no_value = unsupported(spec, encoding, positions, seq_len, &largest).is_some();
    match row.status {
        EvalStatus::Ok if has_no_value => {
            return Some("has numbers where the encoding has no value".to_owned());
        }
        EvalStatus::Unsupported if !has_no_value => {
            return Some("is unsupported where the encoding has a value".to_owned());
        }
        EvalStatus::Ok => {}
        _ => return None,
    }
    let known = metric_names(task, eval.last_tokens);
    let is_group = |name: &str| name != EXACT_MATCH && name.starts_with(EXACT_MATCH);
    let missing = known
        .iter()
        .find(|name| !is_group(name) && !row.metrics.contains_key(*name));
    if let Some(name) = missing {
        return Some(format!("has no {name}"));
    }
    if row.from_len != eval.test_lens.from(index) {
        return Some("is over another range of lengths".to_owned());
    }
    let tested = TestRows::new(task, (row.from_len, row.test_len), eval.seed);
    let rows = tested.count() as u64;
    let tokens = rows.saturating_mul(seq_len as u64);
    for (name, found) in &row.metrics {
        let is_of_head = eval.attention_distance && metric::head(name).is_some();
        let most = match name.as_str() {
            _ if is_of_head => tokens,
            EXACT_MATCH if found.n != rows => {
                return Some(format!(
                    "{name} is over {} rows, the test has {rows}",
                    found.n
                ));
            }
            name if !known.iter().any(|known| known == name) => {
                return Some(format!(
                    "has {}, which is not scored here",
                    one_line(name, 60)
                ));
            }
            name if is_group(name) => rows,
            _ => tokens,
        };
        if found.n > most {
            let n = found.n;
            return Some(format!(
                "{name} is over {n} items, the test has at most {most}"
            ));
        }
    }
    // A record of a version before they were counted has no number.
    if row.distinct_rows.is_some() && row.distinct_rows != tested.distinct(task) {
        return Some("counts other distinct rows than its test has".to_owned());
    }
    let transformer = &spec.model.transformer;
    let heads = (transformer.n_layers * transformer.n_heads) as u64;
    let counted = row.denominators.map(|counted| counted.count);
    // Rows of a range have each their own length.
    let read = tested.by_length().iter();
    let read = read.map(|(length, rows)| (rows * task.seq_len(*length)) as u64);
    let read = read.sum::<u64>().saturating_mul(heads);
    let counts = transformer.may_divide_by_zero().then_some(read);
    // A record of a version before they were counted has none.
    if counted.is_some() && counted != counts {
        return Some("has counts of denominators that its attention does not have".to_owned());
    }
    let beyond = row.loss_by_position.iter().any(|bin| bin.to > seq_len);
    if beyond {
        return Some(format!(
            "has a loss at positions beyond its {seq_len} tokens"
        ));
    }
    let (blocks, known) = (row.loss_by_block.len(), Blocks::of(task));
    let known = known.map_or(0, |known| known.count());
    // Scores while training have none.
    let is_wrong = blocks != 0 && blocks != known;
    is_wrong.then(|| format!("has losses of {blocks} blocks, and its text has {known}"))
}
