//! What a live view shows: every run below a directory, looked at again and again.

use crate::live::losses::Losses;
use experiment::runs_on_disk::files::{read_job, runs_below, trained_in_pytorch};
use experiment::runs_on_disk::kept_configs;
use experiment::runs_on_disk::selection::distinct;
use experiment::runs_on_disk::state::{RunState, of_record, state};
use experiment::spec::Job;
use records::RunRecord;
use records::analysis::looks::styles;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use support::exit::Failure;

/// All runs below a directory, as they were at the last look.
pub struct Board {
    directory: PathBuf,
    runs: BTreeMap<PathBuf, BoardRun>,
    /// The look of each run's method, by the run's directory.
    styles: BTreeMap<PathBuf, usize>,
    /// When the first look was, and the share of all work that was done then.
    first: Option<(Instant, f64)>,
}

/// A run on the board.
struct BoardRun {
    /// None where the job cannot be read.
    job: Option<Job>,
    losses: Losses,
    view: RunView,
    /// When the run was first seen running, and its step then.
    since: Option<(Instant, u64)>,
}

/// A run as a screen shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunView {
    /// `RoPE, seed 0`; with the experiment where there are several, with the run id where several
    /// runs have one name.
    pub name: String,
    /// Its state.
    pub state: RunState,
    /// Steps done.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// The last loss, nats per counted token.
    pub loss: Option<f64>,
    /// Losses by step, thinned.
    pub losses: Vec<f32>,
    /// Seconds that its training still takes, if it can be said.
    pub secs_left: Option<f64>,
    /// Why it failed or diverged.
    pub note: Option<String>,
    /// The look of its method in the report's figures.
    pub style: Option<usize>,
    /// Its share of all work, in any unit.
    pub work: f64,
}

impl RunView {
    /// Whether nothing more will happen to it by itself.
    pub fn has_ended(&self) -> bool {
        self.state.has_ended()
    }

    /// The share of its training that is done.
    pub fn fraction(&self) -> f64 {
        match self.has_ended() {
            true => 1.0,
            false => self.step as f64 / self.steps.max(1) as f64,
        }
    }
}

impl Board {
    /// A board that nobody has looked at yet.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            runs: BTreeMap::new(),
            styles: BTreeMap::new(),
            first: None,
        }
    }

    /// Looks at every run that has not ended yet, and at runs that are new.
    ///
    /// # Errors
    ///
    /// [`Exit::Input`](support::exit::Exit::Input) if the directory cannot be read.
    pub fn look(&mut self, now: Instant) -> Result<(), Failure> {
        let found = runs_below(&self.directory)?;
        self.runs.retain(|run, _| found.runs.contains(run));
        let is_known = found.runs.iter().all(|run| self.runs.contains_key(run));
        for run in found.runs {
            let watched = self
                .runs
                .entry(run.clone())
                .or_insert_with(|| BoardRun::new(&run));
            // A run that is recorded stays so; one that failed may be started again.
            if !matches!(watched.view.state, RunState::Done | RunState::Diverged) {
                watched.look(&run, now);
            }
        }
        for (run, why) in found.unreadable {
            let unreadable = BoardRun::unreadable(&run, why);
            self.runs.insert(run, unreadable);
        }
        if !is_known {
            self.styles = self.looks();
        }
        let done = self.fraction();
        self.first.get_or_insert((now, done));
        Ok(())
    }

    /// The runs: running ones first, then those that need a look, then the others.
    pub fn views(&self) -> Vec<RunView> {
        use RunState::{Diverged, Done, Failed, Planned, Running, Stale, Stopped, Unreadable};
        let experiments: Vec<&str> = self
            .runs
            .values()
            .filter_map(BoardRun::experiment)
            .collect();
        let several = experiments.iter().any(|name| *name != experiments[0]);
        let name = |run: &BoardRun| {
            let own = &run.view.name;
            let experiment = run.experiment().filter(|_| several);
            experiment.map_or(own.clone(), |experiment| format!("{experiment}: {own}"))
        };
        let names = self
            .runs
            .iter()
            .map(|(place, run)| (place.as_path(), name(run)));
        let view = |((place, run), name): ((&PathBuf, &BoardRun), String)| RunView {
            name,
            style: self.styles.get(place).copied(),
            ..run.view.clone()
        };
        let names = distinct(names.collect());
        let mut views: Vec<RunView> = self.runs.iter().zip(names).map(view).collect();
        let order = [
            Running, Failed, Unreadable, Diverged, Stale, Stopped, Done, Planned,
        ];
        let rank = |view: &RunView| order.iter().position(|state| *state == view.state);
        views.sort_by(|a, b| (rank(a), &a.name).cmp(&(rank(b), &b.name)));
        views
    }

    /// The looks of the methods of each experiment.
    fn looks(&self) -> BTreeMap<PathBuf, usize> {
        let mut experiments: BTreeMap<&Path, Vec<RunRecord>> = BTreeMap::new();
        for (place, run) in &self.runs {
            let (Some(job), Some(experiment)) = (&run.job, place.parent()) else {
                continue;
            };
            let known = experiments.entry(experiment).or_default();
            known.push(job.unscored());
        }
        let mut looks = BTreeMap::new();
        for (place, runs) in experiments {
            let styles = styles(&runs, &kept_configs::order(place));
            looks.extend(
                styles
                    .into_iter()
                    .map(|(id, style)| (place.join(id), style)),
            );
        }
        looks
    }

    /// The share of all work that is done.
    pub fn fraction(&self) -> f64 {
        let views = || self.runs.values().map(|run| &run.view);
        let all: f64 = views().map(|view| view.work).sum();
        let done: f64 = views().map(|view| view.work * view.fraction()).sum();
        if all > 0.0 { done / all } else { 0.0 }
    }

    /// Seconds until all runs have ended at the pace since the first look, if it can be said.
    pub fn secs_left(&self, now: Instant) -> Option<f64> {
        let (started, before) = self.first?;
        let (elapsed, done) = (now.duration_since(started).as_secs_f64(), self.fraction());
        // Too early to extrapolate.
        let gained = done - before;
        (gained > 0.002 && elapsed > 2.0).then(|| elapsed / gained * (1.0 - done))
    }
}

impl BoardRun {
    fn new(run: &Path) -> Self {
        let (job, note) = match read_job(run) {
            Ok(job) => (Some(job), None),
            Err(failure) => (None, Some(failure.message)),
        };
        // Of such a run only the record tells.
        let foreign = trained_in_pytorch(run).map(|record| of_record(&record));
        let id = run.file_name().unwrap_or_default().to_string_lossy();
        let name = job.as_ref().map_or_else(|| id.into_owned(), Job::name);
        let spec = job.as_ref().map(|job| &job.spec);
        let work = spec.map_or(0.0, |spec| {
            let model = &spec.model.transformer;
            let tokens =
                spec.train.steps as f64 * (spec.train.batch_size * spec.train.seq_len) as f64;
            tokens * (model.n_layers * model.d_model * model.d_model) as f64
        });
        let view = RunView {
            name,
            state: match (&job, &foreign) {
                (Some(_), _) => RunState::Planned,
                (None, Some((state, ..))) => *state,
                (None, None) => RunState::Stale,
            },
            step: 0,
            steps: spec.map_or(0, |spec| spec.train.steps),
            loss: None,
            losses: Vec::new(),
            secs_left: None,
            note: note.filter(|_| foreign.is_none()),
            style: None,
            work,
        };
        Self {
            job,
            losses: Losses::default(),
            view,
            since: None,
        }
    }

    /// A run whose directory cannot be read, and why.
    fn unreadable(run: &Path, why: String) -> Self {
        let mut unreadable = Self::new(run);
        unreadable.view.state = RunState::Unreadable;
        unreadable.view.note = Some(why);
        unreadable
    }

    fn experiment(&self) -> Option<&str> {
        self.job.as_ref().map(|job| job.experiment.as_str())
    }

    fn look(&mut self, run: &Path, now: Instant) {
        let Some(job) = &self.job else {
            return;
        };
        let (state, step, note) = state(run, job);
        self.losses.look(run);
        let last = self.losses.last();
        let view = &mut self.view;
        (view.state, view.step, view.note) =
            (state, step, note.filter(|_| state != RunState::Running));
        view.loss = last.map(|last| last.loss_nats);
        view.losses = self.losses.points().to_vec();
        if state != RunState::Running {
            (self.since, view.secs_left) = (None, None);
            return;
        }
        let (started, from) = *self.since.get_or_insert((now, step));
        let (elapsed, steps) = (
            now.duration_since(started).as_secs_f64(),
            step.saturating_sub(from),
        );
        let left = view.steps.saturating_sub(step) as f64;
        view.secs_left = (steps > 0 && elapsed > 0.0).then(|| elapsed / steps as f64 * left);
    }
}
