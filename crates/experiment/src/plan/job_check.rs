//! The checks of a configuration on a job. A job is a file like any other: its run id fits whatever
//! somebody wrote into it, so what no configuration can ask for is refused before it is run.

use super::check::{check_lengths, check_names, check_tables};
use super::eval::check_count;
use super::resolve::{Described, describe};
use super::sections::Experiment;
use super::variant_rules::{Refusal, Trained, VariantRequest};
use crate::spec::JOB_FILE;
use crate::spec::differences::{differences, shown};
use crate::spec::{EvalSpec, Job, RunSpec, TRAINED, TrainSpec, VariantSpec};
use config::axes::Cell;
use config::diagnostic::{Diagnostic, table_without_null};
use config::origins::Origins;
use serde_json::{Value, json};
use tasks::Task;

/// A job as the configuration that it was planned from.
pub struct JobConfig {
    cell: Cell,
    experiment: Experiment,
}

impl JobConfig {
    /// Reads and checks everything that can be checked without the task.
    ///
    /// # Errors
    ///
    /// The first value that no configuration can have.
    pub fn of(job: &Job) -> Result<Self, Diagnostic> {
        let config = config(job);
        let cell = Cell {
            table: table_without_null(&config).unwrap_or_default(),
            labels: Vec::new(),
            origins: Origins::of_whole(JOB_FILE),
        };
        check_tables(&cell)?;
        let experiment: Experiment = cell.deserialize()?;
        check_names(&cell, &experiment)?;
        check_lengths(&cell, &experiment)?;
        Ok(Self { cell, experiment })
    }

    /// Checks the rest, and that the job is what its own values resolve to.
    ///
    /// # Errors
    ///
    /// The first value that no configuration can have or give.
    pub fn check(&self, job: &Job, task: &dyn Task) -> Result<(), Diagnostic> {
        let (cell, written) = (&self.cell, &self.experiment);
        let Described { train, model, .. } = describe(cell, written, task, None)?;
        let spec = RunSpec {
            model,
            train: TrainSpec {
                // The weights are checked against their hash when they are read.
                start_from: job.spec.train.start_from.clone(),
                ..train
            },
            ..job.spec.clone()
        };
        self.check_same(&job.spec, &spec)?;
        self.check_variants(&spec, task)
    }

    /// Refuses values that differ from those the others give, such as a number of tokens.
    fn check_same(&self, job: &RunSpec, resolved: &RunSpec) -> Result<(), Diagnostic> {
        if job == resolved {
            return Ok(());
        }
        let [theirs, ours] =
            [job, resolved].map(|spec| serde_json::to_value(spec).unwrap_or_default());
        let (key, problem) = match differences(&theirs, &ours).first() {
            Some((key, theirs, ours)) => (
                key.clone(),
                format!(
                    "is {}, and the other values give {}",
                    shown(*theirs),
                    shown(*ours)
                ),
            ),
            None => (String::new(), "does not resolve to itself".to_owned()),
        };
        Err(self.cell.error(&key, &problem, "", ""))
    }

    #[expect(clippy::too_many_lines, reason = "one check after the other")]
    fn check_variants(&self, spec: &RunSpec, task: &dyn Task) -> Result<(), Diagnostic> {
        let EvalSpec {
            test_lens,
            variants,
            ..
        } = &spec.eval;
        check_count(&self.cell, &spec.eval, &spec.model, task, spec.train.steps)?;
        let refuse = |name: &str, problem: &str| {
            let problem = format!("has a variant `{name}` that {problem}");
            Err(self.cell.error("eval", &problem, "", ""))
        };
        let is_trained = |variant: &VariantSpec| {
            variant.name == TRAINED && variant.pe.iter().all(|pe| *pe == spec.model.pe)
        };
        if !variants.first().is_some_and(is_trained) {
            return refuse(TRAINED, "is missing, or is not the trained encoding");
        }
        for (index, variant) in variants.iter().enumerate() {
            let name = &variant.name;
            if variants[..index].iter().any(|other| other.name == *name) {
                return refuse(name, "is there twice");
            }
            let positions = variant.positions.len();
            if variant.pe.len() != test_lens.len() || ![0, test_lens.len()].contains(&positions) {
                return refuse(name, "has not one encoding for each length");
            }
            for (index, (test_len, encoding)) in test_lens.iter().zip(&variant.pe).enumerate() {
                let trained = Trained {
                    model: &spec.model,
                    train: &spec.train,
                    task,
                    test_lens: std::slice::from_ref(test_len),
                };
                let asked = VariantRequest {
                    base: encoding.clone(),
                    before: None,
                    add: None,
                    added: Vec::new(),
                    positions: variant.positions.get(index).cloned(),
                };
                match trained.resolve(&asked) {
                    Ok((resolved, _)) if resolved.first() == Some(encoding) => {}
                    Ok(_) => return refuse(name, "is not resolved"),
                    Err(Refusal::Untrained(..)) => {
                        return refuse(name, "has parameters that were not trained");
                    }
                    Err(
                        Refusal::Set(error)
                        | Refusal::Add(error)
                        | Refusal::Model(error)
                        | Refusal::Positions(error),
                    ) => {
                        let problem = format!(
                            "cannot be: {} = {} {}",
                            error.key, error.value, error.problem
                        );
                        return refuse(name, &problem);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The configuration that a job was planned from, without variants: they are resolved for each
/// length, which no key can express.
fn config(job: &Job) -> Value {
    let RunSpec {
        task,
        model,
        train,
        eval,
        seed,
        ..
    } = &job.spec;
    let without = |value: Value, keys: &[&str]| match value {
        Value::Object(mut map) => {
            map.retain(|key, _| !keys.contains(&key.as_str()));
            Value::Object(map)
        }
        other => other,
    };
    let mut train = without(json!(train), &["seq_len", "start_from"]);
    if let Some(stages) = train.get_mut("stages").and_then(Value::as_array_mut) {
        for stage in stages {
            *stage = without(stage.take(), &["seq_len"]);
        }
    }
    json!({
        "name": job.experiment,
        "seeds": [seed],
        "task": task,
        "model": without(json!(model), &["vocab_size"]),
        "train": train,
        "eval": without(json!(eval), &["variants"]),
    })
}
