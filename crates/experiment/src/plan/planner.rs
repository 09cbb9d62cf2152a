//! From a configuration to its resolved runs: every cell of the axes is read into strict types,
//! checked and resolved, one section after the other.

use super::check::{check_names, check_tables};
use super::eval::{self, MAX_EVALUATIONS, during_tokens, eval_tokens};
use super::hints::with_hint;
use super::keys::with_range;
use super::mistakes::{Collection, Mistakes};
use super::notes::{
    DroppedEncodings, blind_notes, idle_min_len, idle_notes, linear_factor_note, selection_note,
    unscaled_logits_note, unscaled_note, unseen_positions_notes, unstopped_note, untrained_notes,
};
use super::resolve::{Described, describe};
use super::sections::{Experiment, ReportSection};
use super::select;
use super::surroundings::Surroundings;
use super::task::task_refused;
use super::variant_rules::Trained;
use super::variation::Variants;
use super::warm_start::{self, RunsOfSeed};
use crate::spec::test_lens::draws_lengths;
use crate::spec::{EvalSpec, ModelSpec, TestLen, TestLens, TrainSpec};
use config::axes::{Cell, Choices, expand};
use config::claims;
use config::diagnostic::{Diagnostic, Location};
use config::source::Source;
use posenc::EncodingConfig;
use records::record::Label;
use rundir::directory_of;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tasks::{Rows, Task};
use toml::Value;

pub use super::planned::{Plan, PlannedRun};

/// Refuses a config whose path is not text: its runs keep the path, and JSON holds text only.
fn check_path(path: &Path) -> Result<(), Diagnostic> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if whole.to_str().is_some() {
        return Ok(());
    }
    let file = path.display().to_string();
    let problem = "the path of the file is not UTF-8, and the runs of a config keep its path";
    let help = "rename or move it: every directory above it needs a UTF-8 name too";
    Err(Diagnostic::new(Location::File { file }, problem).with_help(help))
}

/// Reads, expands, checks and resolves a config. Nothing is written and nothing trained. `runs`
/// finds what `train.start_from` names.
///
/// # Errors
///
/// Its mistakes, each with its place: all that do not follow from others.
pub fn plan(path: &Path, overrides: &[String], runs: RunsOfSeed) -> Result<Plan, Mistakes> {
    check_path(path)?;
    let mut source = Source::read(path)?;
    let mut mistakes = Collection::default();
    for text in overrides {
        if let Err(mistake) = source.apply_override(text) {
            mistakes.add(mistake);
        }
    }
    // An override that was not applied may be what the rest of the file waits for.
    if let Some(mistakes) = std::mem::take(&mut mistakes).finish() {
        return Err(mistakes);
    }
    let asked = source.table().clone();
    let choices = Choices::read(&source).unwrap_or_else(|mistake| {
        mistakes.add(mistake);
        None
    });
    let runs_per_cell = select::runs_per_cell(&asked, choices.as_ref());
    let cells = cells(&mut source, runs_per_cell, &mut mistakes);
    let directory = directory_of(path);
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let mut plan = Plan {
        path: path.to_owned(),
        directory: directory.clone(),
        table: asked,
        ..Plan::default()
    };
    let sweep = choices.map(|choices| Rc::new((source, choices)));
    let mut planner = Planner::new(directory, sweep, runs);
    for cell in &cells {
        let Err(first) = planner.cell(cell, &mut plan) else {
            continue;
        };
        let hinted = |mistake| with_hint(mistake, &cell.table);
        mistakes.add_cell(cell, hinted(first), |cell| {
            let mut again = planner.again();
            again.cell(cell, &mut Plan::default()).map_err(hinted)
        });
        if mistakes.is_full() {
            break;
        }
    }
    if let Some(mistakes) = mistakes.finish() {
        return Err(mistakes);
    }
    plan.notes = planner.notes(&plan);
    Ok(plan)
}

/// The combinations of the axes. An axis that cannot be is a mistake, and left out.
fn cells(source: &mut Source, runs: usize, mistakes: &mut Collection) -> Vec<Cell> {
    loop {
        match expand(source, runs) {
            Ok(cells) => return cells,
            Err(mistake) => {
                let axis = mistake.key.as_deref().and_then(|key| source.drop_axis(key));
                mistakes.add(mistake);
                let Some(axis) = axis else {
                    return Vec::new();
                };
                axis.into_iter().for_each(|key| mistakes.without_axis(key));
            }
        }
    }
}

/// The order of lines and rows that a config asks for: texts of labels and names of variants as in
/// its [`Plan`]. Nothing but the file is read.
///
/// # Errors
///
/// If it is no TOML, or its axes cannot be expanded.
pub fn order(path: &Path) -> Result<Vec<String>, Diagnostic> {
    let source = Source::read(path)?;
    let cells = expand(&source, 1)?;
    let labels = cells
        .iter()
        .flat_map(|cell| &cell.labels)
        .map(|label| label.text.as_str());
    let variants = source
        .get("eval.variants")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let names = variants.filter_map(|variant| variant.get("name")?.as_str());
    let mut seen = HashSet::new();
    Ok(labels
        .chain(names)
        .filter(|text| seen.insert(*text))
        .map(str::to_owned)
        .collect())
}

pub(super) struct Planner {
    /// What `[select]` tries, and the file it is read from.
    pub(super) sweep: Option<Rc<(Source, Choices)>>,
    surroundings: Surroundings,
    pub(super) directory: PathBuf,
    /// Finds the runs that trainings start from.
    pub(super) runs: RunsOfSeed,
    /// Corpora are read once, not once per cell.
    tasks: Rc<RefCell<HashMap<String, Rc<dyn Task>>>>,
    pub(super) ids: HashMap<String, Vec<Label>>,
    /// Labels that are in the plan's order already.
    order: HashSet<String>,
    /// Pairs of a run and a test so far.
    evaluations: usize,
    /// Trained kinds that variants evaluate without.
    dropped: DroppedEncodings,
    /// What lengths that are left out mean, and where runs have no value; each note once.
    pub(super) unsupported: Vec<String>,
}

/// What the runs of a cell share: all but the seed and the weights they start from.
pub(super) struct Resolved<'a> {
    pub(super) cell: &'a Cell,
    pub(super) written: &'a Experiment,
    pub(super) task: &'a dyn Task,
    pub(super) model: ModelSpec,
    pub(super) train: TrainSpec,
    pub(super) eval: EvalSpec,
    pub(super) parameters: u64,
    pub(super) eval_tokens: u64,
}

impl Planner {
    fn new(directory: PathBuf, sweep: Option<Rc<(Source, Choices)>>, runs: RunsOfSeed) -> Self {
        Self {
            sweep,
            runs,
            surroundings: Surroundings::of(&directory),
            directory,
            tasks: Rc::default(),
            ids: HashMap::new(),
            order: HashSet::new(),
            evaluations: 0,
            dropped: DroppedEncodings::default(),
            unsupported: Vec::new(),
        }
    }

    /// A planner of the same files that has planned nothing yet.
    fn again(&self) -> Self {
        Self {
            tasks: Rc::clone(&self.tasks),
            ..Self::new(self.directory.clone(), self.sweep.clone(), self.runs)
        }
    }

    /// Keeps notes, each once.
    pub(super) fn note(&mut self, notes: Vec<String>) {
        for note in notes {
            if !self.unsupported.contains(&note) {
                self.unsupported.push(note);
            }
        }
    }

    fn cell(&mut self, cell: &Cell, plan: &mut Plan) -> Result<(), Diagnostic> {
        // Before reading, because serde takes a list for the values of a table in order.
        check_tables(cell)?;
        let written: Experiment = cell.deserialize().map_err(with_range)?;
        check_names(cell, &written)?;
        self.note(idle_min_len(&written.train).into_iter().collect());
        for label in &cell.labels {
            if self.order.insert(label.text.clone()) {
                plan.order.push(label.text.clone());
            }
        }
        self.report(cell, &written.report, plan)?;
        let title = written.title.as_ref().unwrap_or(&written.name);
        plan.title.clone_from(title);
        plan.name.clone_from(&written.name);
        match &written.select {
            None => {
                let runs = self.result(cell, &written, &[], plan)?;
                plan.runs.extend(runs);
            }
            Some(select) => self.method(cell, &written, select, plan)?,
        }
        Ok(())
    }

    pub(super) fn resolve<'a>(
        &mut self,
        cell: &'a Cell,
        written: &'a Experiment,
        task: &'a dyn Task,
        plan: &mut Plan,
    ) -> Result<Resolved<'a>, Diagnostic> {
        let start = warm_start::start(cell, written, (&self.directory, self.runs))?;
        let Described {
            train,
            model,
            parameters,
            before,
            notes,
        } = describe(cell, written, task, start.as_ref())?;
        self.note(notes);
        let test_lens = &written.eval.test_lens;
        let variants = Variants {
            cell,
            before,
            trained: Trained {
                model: &model,
                train: &train,
                task,
                test_lens,
            },
        };
        let sections = &written.eval.variants;
        let variants = variants.resolve(sections, &mut plan.variants, &mut self.dropped)?;
        let eval = eval::resolve(&written.eval, variants);
        eval::check_count(cell, &eval, &model, task, train.steps)?;
        let shape = model.transformer.shape();
        let facts = |pe: &EncodingConfig| pe.facts(&shape);
        let during = during_tokens(&eval, train.steps, task, &model.positions, facts);
        let eval_tokens = eval_tokens(&eval, task, &model.positions, facts).saturating_add(during);
        Ok(Resolved {
            cell,
            written,
            task,
            model,
            train,
            eval,
            parameters,
            eval_tokens,
        })
    }

    /// Variants that drop trained encodings, then lengths that have no value.
    fn notes(&self, plan: &Plan) -> Vec<String> {
        let mut notes = self.dropped.texts();
        let stops = plan.runs.iter().filter_map(unstopped_note);
        let scalings = plan.runs.iter().filter_map(unscaled_note);
        let logits = plan.runs.iter().filter_map(unscaled_logits_note);
        let models = plan.runs.iter().map(|run| &run.job.spec.model);
        let layers = models.flat_map(|model| model.pe.idle(model.transformer.shape().n_layers));
        let untrained = plan.runs.iter().flat_map(untrained_notes);
        let linear = plan.runs.iter().filter_map(linear_factor_note);
        let unseen = unseen_positions_notes(&plan.runs);
        let all = stops.chain(scalings).chain(logits).chain(linear);
        for note in all.chain(layers).chain(unseen).chain(untrained) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes.extend(self.unsupported.clone());
        notes.extend(blind_notes(&plan.runs));
        notes.extend(idle_notes(&plan.variants, &plan.runs));
        notes
    }

    /// The report is the whole experiment's, so no axis may vary what is in it; one reading of the
    /// file of claims serves all cells.
    fn report(
        &self,
        cell: &Cell,
        written: &ReportSection,
        plan: &mut Plan,
    ) -> Result<(), Diagnostic> {
        plan.assertions = written.assertions;
        if let (Some(path), true) = (&written.claims, plan.runs.is_empty()) {
            let path = self.directory.join(path);
            if !path.is_file() {
                let problem = format!("names no file: there is no {}", path.display());
                return Err(cell.error(
                    "report.claims",
                    &problem,
                    "a file of claims, relative to the config",
                    "correct the path or remove the key",
                ));
            }
            plan.claims =
                claims::read(&path).map_err(|error| error.with_note("named by report.claims"))?;
        }
        Ok(())
    }

    /// Every run holds an encoding for each of its evaluations, so a short file could ask for more
    /// than there is memory.
    pub(super) fn count_evaluations(
        &mut self,
        cell: &Cell,
        written: &Experiment,
    ) -> Result<(), Diagnostic> {
        let (variants, lengths) = (
            // The trained encoding is a variant too.
            written.eval.variants.len() + 1,
            written.eval.test_lens.len(),
        );
        let asked = variants
            .saturating_mul(lengths)
            .saturating_mul(written.seeds.len());
        self.evaluations = self.evaluations.saturating_add(asked);
        if self.evaluations <= MAX_EVALUATIONS {
            return Ok(());
        }
        let problem = format!(
            "asks for more than {MAX_EVALUATIONS} evaluations, counting runs, variants and lengths"
        );
        let help = format!(
            "each run has {variants} variants at {lengths} lengths: shorten a list, or split the \
             experiment"
        );
        Err(cell.error(
            "eval.test_lens",
            &problem,
            &format!("at most {MAX_EVALUATIONS} in all runs"),
            &help,
        ))
    }

    pub(super) fn task(
        &mut self,
        cell: &Cell,
        written: &Experiment,
    ) -> Result<Rc<dyn Task>, Diagnostic> {
        let eval = &written.eval;
        self.built(cell, written, (&eval.test_lens.of_rows(), eval.rows))
    }

    /// The task of `train.stop`, if it is given.
    pub(super) fn stop_task(
        &mut self,
        cell: &Cell,
        written: &Experiment,
    ) -> Result<Option<Rc<dyn Task>>, Diagnostic> {
        let Some(stop) = &written.train.stop else {
            return Ok(None);
        };
        let train_len = written.train.train_len;
        let length = match stop.min_len {
            Some(from) => TestLen::Range(from, train_len),
            None => TestLen::One(train_len),
        };
        let lengths: TestLens = vec![length].into();
        self.built(cell, written, (&lengths.of_rows(), Rows::Selection))
            .map(Some)
    }

    fn built(
        &mut self,
        cell: &Cell,
        written: &Experiment,
        (test_lens, rows): (&[usize], Rows),
    ) -> Result<Rc<dyn Task>, Diagnostic> {
        let (train_len, seed) = (written.train.train_len, written.eval.seed);
        let mask = written.model.mask;
        // Everything that `build` is given, so equal keys mean equal tasks.
        let key = format!(
            "{:?} {train_len} {test_lens:?} {seed} {rows:?} {mask:?}",
            written.task
        );
        if let Some(task) = self.tasks.borrow().get(&key) {
            return Ok(task.clone());
        }
        let built = self
            .surroundings
            .build(&written.task, train_len, test_lens, seed, rows, mask);
        let task: Rc<dyn Task> = built.map_err(|error| task_refused(cell, &error))?.into();
        let notes = task.corpus().map(|corpus| corpus.notes.clone());
        self.note(notes.unwrap_or_default());
        if rows == Rows::Selection && test_lens == [train_len] && draws_lengths(&*task) {
            let build = &self.surroundings;
            let tested = build.build(&written.task, train_len, test_lens, seed, Rows::Test, mask);
            let note = tested.map(|tested| selection_note(&*task, &*tested, train_len));
            self.note(note.ok().flatten().into_iter().collect());
        }
        self.tasks.borrow_mut().insert(key, task.clone());
        Ok(task)
    }
}
