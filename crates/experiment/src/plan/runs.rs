//! From a cell to its runs: of its seeds, with half the steps, and of the sweep of `[select]`.

use super::check::check_lengths;
use super::memory::TaskSizes;
use super::notes::unsupported_notes;
use super::planned::{Method, Plan, PlannedRun, Selection, Tried};
use super::planner::{Planner, Resolved};
use super::sections::{Experiment, SelectSection};
use super::select;
use super::stopping;
use super::warm_start::warm_start;
use crate::spec::{Job, RunSpec, TrainSpec};
use config::axes::{self, Cell};
use config::diagnostic::Diagnostic;
use posenc::EncodingConfig;
use records::record::Label;

impl Planner {
    /// A method under `[select]`: the runs of its sweep, and those of its result under each
    /// combination of values.
    pub(super) fn method(
        &mut self,
        cell: &Cell,
        written: &Experiment,
        select: &SelectSection,
        plan: &mut Plan,
    ) -> Result<(), Diagnostic> {
        let Some(sweep) = self.sweep.clone() else {
            // `select.over` is wrong, which is reported already.
            return Ok(());
        };
        let (source, choices) = sweep.as_ref();
        check_lengths(cell, written)?;
        select.check(cell, choices, &written.seeds, written.eval.rows)?;
        let by = select.metric(cell, self.task(cell, written)?.as_ref())?;
        let mut tried = Vec::new();
        let before = plan.selection.as_ref().map_or(0, |found| found.runs.len());
        let mut swept = Vec::new();
        for (values, candidate) in choices.of(source, cell)? {
            let written: Experiment = candidate.deserialize()?;
            let values: Vec<Label> = values.iter().map(recorded).collect();
            let runs = self.result(&candidate, &written, &values, plan)?;
            let mut short = select.sweep(&candidate, &written)?;
            select::keep_positions(&mut short, &runs);
            let written: Experiment = short.deserialize()?;
            let begin = swept.len();
            swept.extend(self.seeds(&short, &written, &values, plan)?);
            for run in &mut swept[begin..] {
                let is_chosen = |label: &Label| values.iter().any(|value| value.key == label.key);
                run.job.labels.retain(|label| !is_chosen(label));
                run.job.labels.extend(values.iter().cloned());
            }
            tried.push(Tried {
                values,
                sweep: (before + begin..before + swept.len()).collect(),
                runs,
            });
        }
        if let Some(first) = tried.first() {
            plan.runs.extend(first.runs.iter().cloned());
        }
        let selection = plan.selection.get_or_insert_with(|| Selection {
            runs: Vec::new(),
            methods: Vec::new(),
        });
        selection.runs.extend(swept);
        selection.methods.push(Method { by, tried });
        Ok(())
    }

    /// The runs of a result: one for each seed, and those with half the steps behind them.
    pub(super) fn result(
        &mut self,
        cell: &Cell,
        written: &Experiment,
        chosen: &[Label],
        plan: &mut Plan,
    ) -> Result<Vec<PlannedRun>, Diagnostic> {
        let mut runs = self.seeds(cell, written, chosen, plan)?;
        let Some(mut half) = select::halved(cell, written)? else {
            return Ok(runs);
        };
        select::keep_positions(&mut half, &runs);
        let written: Experiment = half.deserialize()?;
        let halves = self.seeds(&half, &written, chosen, plan)?;
        for mut run in halves {
            let whole = runs
                .iter()
                .find(|whole| whole.job.spec.seed == run.job.spec.seed);
            run.job.half_of = whole.map(|whole| whole.job.run_id.clone());
            runs.push(run);
        }
        Ok(runs)
    }

    /// The runs of a configuration, one for each of its seeds.
    fn seeds(
        &mut self,
        cell: &Cell,
        written: &Experiment,
        chosen: &[Label],
        plan: &mut Plan,
    ) -> Result<Vec<PlannedRun>, Diagnostic> {
        check_lengths(cell, written)?;
        // Before resolving, because the resolved encodings are what needs the memory.
        self.count_evaluations(cell, written)?;
        let task = self.task(cell, written)?;
        let resolved = self.resolve(cell, written, task.as_ref(), plan)?;
        let seeds = written.seeds.iter();
        seeds
            .map(|seed| self.run(&resolved, *seed, chosen))
            .collect()
    }

    /// The run of one seed.
    fn run(
        &mut self,
        resolved: &Resolved<'_>,
        seed: u64,
        chosen: &[Label],
    ) -> Result<PlannedRun, Diagnostic> {
        let Resolved {
            cell,
            written,
            task,
            model,
            eval,
            ..
        } = resolved;
        let stage = resolved.train.stages.first();
        let first = stage.and_then(|stage| stage.pe.as_ref());
        let first = first.unwrap_or(&model.pe);
        let place = (self.directory.as_path(), self.runs);
        let found = warm_start(cell, written, place, model, first, seed)?;
        let (start_from, rest) = found
            .map(|found| (found.start, (found.place, found.method)))
            .unzip();
        let (start_dir, started_from) = rest.unzip();
        let started_from = started_from.flatten();
        let spec = RunSpec {
            task: written.task.clone(),
            corpus_blake3: task.corpus().map(|corpus| corpus.blake3.clone()),
            model: model.clone(),
            train: TrainSpec {
                // The seeds of a cell start from different weights.
                start_from,
                ..resolved.train.clone()
            },
            eval: eval.clone(),
            seed,
        };
        let stop_task = self.stop_task(cell, written)?;
        let stop_tokens = stop_task
            .as_ref()
            .map_or(0, |task| stopping::tokens(&spec, task.as_ref()));
        let labels = labels(cell, &model.pe);
        let run_id = self.new_id(cell, &spec, &labels, chosen)?;
        self.note(unsupported_notes(&spec, *task));
        Ok(PlannedRun {
            parameters: resolved.parameters,
            // No overflow: at most 10^8 steps of 2^24 tokens.
            train_tokens: spec.train.tokens(),
            eval_tokens: resolved.eval_tokens.saturating_add(stop_tokens),
            sizes: TaskSizes::of(*task, &eval.test_lens).beside(stop_task.as_deref()),
            job: Job {
                run_id,
                experiment: written.name.clone(),
                labels,
                config_dir: self.directory.clone(),
                start_dir,
                started_from,
                half_of: None,
                selected: None,
                spec,
            },
        })
    }

    /// The identity of a run, which no other run of the experiment may have.
    fn new_id(
        &mut self,
        cell: &Cell,
        spec: &RunSpec,
        labels: &[Label],
        chosen: &[Label],
    ) -> Result<String, Diagnostic> {
        let run_id = spec.run_id().map_err(|error| {
            cell.error("", &format!("cannot be written as JSON: {error}"), "", "")
        })?;
        let all: Vec<Label> = labels.iter().chain(chosen).cloned().collect();
        let Some(other) = self.ids.insert(run_id.clone(), all.clone()) else {
            return Ok(run_id);
        };
        let shown = |all: &[Label]| {
            let each = all.iter().map(|l| format!("{} = {}", l.key, l.text));
            each.collect::<Vec<_>>().join(", ")
        };
        let problem = format!(
            "two runs are the same once defaults are filled in: {} and {}",
            shown(&other),
            shown(&all)
        );
        // The label that is written in two ways, or `seeds`.
        let written = if cell.labels.is_empty() {
            chosen
        } else {
            &all[..]
        };
        let differing = written.iter().find(|label| !other.contains(label));
        let label = differing.or(written.first());
        let key = label.map_or("seeds", |label| label.key.as_str());
        Err(cell.error(key, &problem, "values that differ", "remove one of the two"))
    }
}

/// The cell's values on the axes; without axes, the kind of encoding.
fn labels(cell: &Cell, encoding: &EncodingConfig) -> Vec<Label> {
    if cell.labels.is_empty() {
        let kind = encoding.kind();
        return vec![Label {
            key: "model.pe".to_owned(),
            text: kind.to_owned(),
            value: kind.into(),
        }];
    }
    cell.labels.iter().map(recorded).collect()
}

/// A label as records hold it.
fn recorded(label: &axes::Label) -> Label {
    Label {
        key: label.key.clone(),
        text: label.text.clone(),
        value: serde_json::to_value(&label.value).unwrap_or_default(),
    }
}
