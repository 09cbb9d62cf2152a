//! One process and its runs: they are trained together, then each is evaluated and recorded. What a
//! sweep spawns, here or in a task of a cluster.

use crate::device;
use crate::plan::memory::{self, Memory, MemoryLimit, TaskSizes};
use crate::plan::together::training_memory;
use crate::run::member::{ReadyRun, Run, TrainingCost, stopped, stopped_after};
use crate::run::protocol::{Event, How, report};
use crate::run::task::Tasks;
use crate::run::train::{Member, Snapshot, Trained, train_together};
use crate::runs_on_disk::files::{check_record, read_own_job, recorded, take};
use crate::runs_on_disk::hold::Hold;
use crate::spec::{Job, RunSpec};
use burn::tensor::Device;
use records::record::{EvalStatus, RunRecord};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use support::exit::Failure;
use support::signals;
use tasks::Task;

/// How long a process may go on computing after a request to stop.
pub const LEAVE_WITHIN: Duration = Duration::from_secs(8);

/// Runs the jobs of some directories together, or what is left of them, and prints events for the
/// sweep. A recorded run is left as it is, unless it skipped lengths that fit now: those are
/// evaluated without training again. A run that fails by itself, such as one that another process
/// holds, does not keep the others from being run.
///
/// # Errors
///
/// With the exit of a signal after saving, if one asked to stop; [`Exit::Busy`] if another process
/// holds a run, [`Exit::Device`], [`Exit::Input`] for a changed corpus, [`Exit::Resources`] if a
/// directory cannot be written or the training does not fit into memory. If several runs fail by
/// themselves, the failure is that of the first. A diverged run is a result, not an error.
///
/// [`Exit::Busy`]: support::exit::Exit::Busy
/// [`Exit::Device`]: support::exit::Exit::Device
/// [`Exit::Input`]: support::exit::Exit::Input
/// [`Exit::Resources`]: support::exit::Exit::Resources
pub fn run(directories: &[PathBuf], how: &How) -> Result<(), Failure> {
    run_reporting(directories, how, &report)
}

/// The same without events.
///
/// # Errors
///
/// As [`run`].
pub fn run_silently(directories: &[PathBuf], how: &How) -> Result<(), Failure> {
    run_reporting(directories, how, &|_, _| ())
}

fn run_reporting(
    directories: &[PathBuf],
    how: &How,
    report: &dyn Fn(usize, &Event),
) -> Result<(), Failure> {
    signals::listen()?;
    signals::leave_within(
        LEAVE_WITHIN,
        "the same command continues from what was saved",
    )?;
    let mut left = FailedRuns {
        is_alone: directories.len() == 1,
        report,
        first: None,
    };
    let (mut all, mut tasks) = (Vec::new(), Tasks::default());
    for (place, directory) in directories.iter().enumerate() {
        match HeldRun::take(place, directory, &mut tasks) {
            // Another sweep may have recorded it since this worker was started.
            Ok(held) if held.is_complete(how) => {}
            Ok(held) => all.push(held),
            Err(failure) => left.add(place, failure),
        }
    }
    if all.is_empty() {
        return left.first();
    }
    let device = device::open(&how.device)?;
    let reports: Vec<_> = all
        .iter()
        .map(|held| move |event: &Event| report(held.place, event))
        .collect();
    let (mut to_train, mut to_evaluate) = (Vec::new(), Vec::new());
    for (held, report) in all.iter().zip(&reports) {
        let run = held.run(&device, how, report);
        match &held.record {
            Some(record) => to_evaluate.push((held.place, run, record)),
            None => to_train.push((held.place, run)),
        }
    }
    // Larger batches are no faster on a CPU, and a run alone has the same bits wherever it is.
    let groups: Vec<Vec<_>> = if how.device.is_cpu() {
        to_train.into_iter().map(|run| vec![run]).collect()
    } else {
        vec![to_train]
    };
    for group in groups {
        if signals::asked().is_some() {
            for (place, _) in group {
                left.add(place, stopped("before training"));
            }
        } else {
            // Runs that are trained one by one fail one by one.
            let alone = group.first().filter(|_| how.device.is_cpu());
            let alone = alone.map(|(place, _)| *place);
            match (train_and_evaluate(group, how, &device, &mut left), alone) {
                (Err(failure), Some(place)) => left.add(place, failure),
                (result, _) => result?,
            }
        }
    }
    for (place, run, record) in to_evaluate {
        if let Err(failure) = run.evaluate_again(record.clone()) {
            left.add(place, failure);
        }
    }
    left.first()
}

/// The runs of a worker that have ended without a record.
struct FailedRuns<'a> {
    /// Whether there is one run: its failure is that of the worker.
    is_alone: bool,
    report: &'a dyn Fn(usize, &Event),
    first: Option<Failure>,
}

impl FailedRuns<'_> {
    fn add(&mut self, place: usize, failure: Failure) {
        if !self.is_alone {
            let event = Event::Left {
                exit: failure.exit as u8,
                message: failure.message.clone(),
            };
            (self.report)(place, &event);
        }
        self.first.get_or_insert(failure);
    }

    fn first(self) -> Result<(), Failure> {
        self.first.map_or(Ok(()), Err)
    }
}

/// A run that this process holds.
struct HeldRun<'a> {
    /// Its place among the directories.
    place: usize,
    directory: &'a Path,
    _hold: Hold,
    job: Job,
    task: Rc<dyn Task>,
    /// The task of `train.stop`.
    stop_task: Option<Rc<dyn Task>>,
    record: Option<RunRecord>,
}

impl<'a> HeldRun<'a> {
    fn take(place: usize, directory: &'a Path, tasks: &mut Tasks) -> Result<Self, Failure> {
        let job = read_own_job(directory)?;
        let hold = take(rundir::system(), directory)?;
        check_record(directory)?;
        Ok(Self {
            place,
            directory,
            _hold: hold,
            record: recorded(directory, &job),
            task: tasks.task(&job, &job.spec.eval.test_lens)?,
            stop_task: tasks.stop_task(&job)?,
            job,
        })
    }

    fn is_complete(&self, how: &How) -> bool {
        let spec = &self.job.spec;
        let sizes = TaskSizes::of(self.task.as_ref(), &spec.eval.test_lens);
        let sizes = sizes.beside(self.stop_task.as_deref());
        let record = self.record.as_ref();
        record.is_some_and(|record| !skipped_fits(record, spec, &sizes, how.memory_limit))
    }

    fn run<'b>(&'b self, device: &'b Device, how: &'b How, report: &'b dyn Fn(&Event)) -> Run<'b> {
        Run {
            disk: rundir::system(),
            directory: self.directory,
            job: &self.job,
            task: self.task.as_ref(),
            stop_task: self.stop_task.as_deref(),
            device,
            how,
            report,
        }
    }
}

/// Trains runs together; then evaluates and records one after the other.
fn train_and_evaluate(
    runs: Vec<(usize, Run<'_>)>,
    how: &How,
    device: &Device,
    left: &mut FailedRuns<'_>,
) -> Result<(), Failure> {
    if runs.is_empty() {
        return Ok(());
    }
    let memory_bytes = admitted(&runs, how)?;
    let mut begun = Vec::new();
    for (place, run) in runs {
        match run.begin(memory_bytes) {
            Ok(run) => begun.push((place, run)),
            Err(failure) => left.add(place, failure),
        }
    }
    let of = how.memory_limit.memory;
    let (trained, taken) = train(&mut begun, (of, device), left)?;
    for ((place, run), (trained, log_blake3)) in begun.into_iter().zip(trained) {
        let ended = if trained.stopped && !run.watcher.scorer.has_learned() {
            Err(stopped_after(trained.steps, &run.run.job.spec))
        } else {
            run.finish(trained, log_blake3, &taken)
        };
        if let Err(failure) = ended {
            left.add(place, failure);
        }
    }
    Ok(())
}

/// Bytes that the training of runs needs together, if they fit into the memory.
fn admitted(runs: &[(usize, Run<'_>)], how: &How) -> Result<u64, Failure> {
    let sized = runs.iter().map(|(_, run)| {
        let spec = &run.job.spec;
        // Counts, draws nothing: what does not fit is never allocated.
        let facts = spec.model.pe.facts(&spec.model.transformer.shape());
        let parameters = spec.model.transformer.num_params(&facts);
        let sizes = TaskSizes::of(run.task, &spec.eval.test_lens).beside(run.stop_task);
        (spec, parameters, sizes)
    });
    let sized: Vec<_> = sized.collect();
    let trainings = sized
        .iter()
        .map(|(spec, parameters, sizes)| (*spec, *parameters, sizes));
    let memory_bytes = training_memory(how.memory_limit.memory, trainings);
    let Some(excess) = how.memory_limit.excess(memory_bytes) else {
        return Ok(memory_bytes);
    };
    let (what, less) = match runs.len() {
        1 => ("training", "smaller batch_size"),
        _ => (
            "training these runs together",
            "smaller --runs-per-worker, batch_size",
        ),
    };
    Err(
        Failure::resources(format!("{what} {excess}")).with_help(format!(
            "a {less}, train_len or d_model needs less; --memory-limit sets the limit"
        )),
    )
}

/// Trains what has begun, each from its newest checkpoint, and writes checkpoints and step logs on
/// the way. Returns the hash of each log too. A run that a signal keeps from starting is taken out
/// of `begun`.
fn train(
    begun: &mut Vec<(usize, ReadyRun<'_>)>,
    (of, device): (Memory, &Device),
    left: &mut FailedRuns<'_>,
) -> Result<(Vec<(Trained, String)>, TrainingCost), Failure> {
    memory::forget_peak(of, device);
    let started = Instant::now();
    let mut ready = Vec::new();
    for (place, mut run) in std::mem::take(begun) {
        // A signal may have come between the step and its scores.
        if run.score_start()? {
            ready.push((place, run));
        } else {
            left.add(place, stopped_after(run.first, &run.run.job.spec));
        }
    }
    *begun = ready;
    // Of processes before this one.
    let starts = begun.iter().filter_map(|(_, run)| run.start.as_ref());
    let before: u64 = starts.map(|start| start.tokens).sum();
    let members = begun.iter_mut().map(|(_, run)| {
        let watcher = &mut run.watcher;
        Member {
            spec: &run.run.job.spec,
            task: run.run.task,
            start: run.start.take(),
            watch: Box::new(|step, snapshot: &Snapshot<'_>| watcher.step(step, snapshot)),
        }
    });
    let trained = match members.len() {
        0 => Vec::new(),
        _ => train_together(members.collect(), device)?,
    };
    if trained.len() != begun.len() {
        return Err(Failure::bug("a training of runs without a result for each"));
    }
    let tokens = trained.iter().map(|run| run.tokens).sum::<u64>() - before;
    let logged = trained.into_iter().zip(begun.iter_mut());
    // A training that diverged ends between two checkpoints.
    let logged = logged.map(|(trained, (_, run))| Ok((trained, run.watcher.sync()?)));
    let logged = logged.collect::<Result<Vec<_>, Failure>>()?;
    let scorers = begun.iter().map(|(_, run)| &run.watcher.scorer);
    let scored: Duration = scorers.clone().map(|scorer| scorer.spent).sum();
    let peak = scorers.map(|scorer| scorer.peak).max().flatten();
    let taken = TrainingCost {
        runs: logged.len(),
        secs: started.elapsed().as_secs_f64() - scored.as_secs_f64(),
        tokens,
        peak: peak.max(memory::peak(of, device)),
    };
    Ok((logged, taken))
}

/// Whether a record skipped a length that fits into `limit`.
pub fn skipped_fits(
    record: &RunRecord,
    spec: &RunSpec,
    sizes: &TaskSizes,
    limit: MemoryLimit,
) -> bool {
    let fits = |variant: &str, test_len: usize| {
        let variant = spec
            .eval
            .variants
            .iter()
            .find(|known| known.name == variant)?;
        let index = spec
            .eval
            .test_lens
            .iter()
            .position(|known| *known == test_len)?;
        let parameters = record.model.parameters;
        let of = limit.memory;
        let needed = memory::evaluation(of, spec, &spec.eval, variant, index, parameters, sizes);
        Some(limit.excess(needed).is_none())
    };
    record.evals.iter().any(|row| {
        row.status == EvalStatus::Skipped && fits(&row.variant, row.test_len) == Some(true)
    })
}
