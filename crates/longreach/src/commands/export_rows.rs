//! `longreach export-rows`: the rows a task trains or tests on, as JSON lines, so that other
//! programs can check the task or train on the same rows.

use crate::commands::numbers::whole;
use config::diagnostic::{Diagnostic, Location, Problem, TableName, closest, deserialize};
use config::source::Source;
use experiment::plan::hints::of_other_tasks;
use experiment::plan::surroundings::Surroundings;
use experiment::run::step::StepBatch;
use experiment::run::task::{Tasks, build_task};
use experiment::run::test_rows::TestRows;
use experiment::runs_on_disk::files::read_job;
use serde::Serialize;
use std::path::{Path, PathBuf};
use support::console;
use support::exit::{Exit, Failure};
use tasks::{Batch, Rows, Task, TaskConfig, TaskError};
use tiny_transformer::Mask;

/// Largest length.
const MAX_LENGTH: u64 = 1 << 20;
/// Most tokens of one answer.
const MAX_TOKENS: usize = 1 << 24;

/// Print the rows a task trains or tests on, as JSON lines
///
/// The first line says what the rows are, every other line is a row: the token ids that are read
/// (`inputs`), what has to be predicted at each of them (`targets`), and which of these count
/// (`counted`).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, group = clap::ArgGroup::new("set"))]
pub struct Args {
    /// A task of `longreach list tasks`
    #[arg(required_unless_present = "run")]
    kind: Option<String>,
    /// Keys of the task, as in a config: alphabet=4
    #[arg(value_name = "KEY=VALUE")]
    keys: Vec<String>,
    /// A directory with the job.json of a run, instead of a task: the batches that it trains on,
    /// padded, or with --selection the rows that its train.stop decides by
    #[arg(long, value_name = "DIR", conflicts_with_all = OF_A_TASK)]
    run: Option<PathBuf>,
    /// Length of the rows, in the unit of the task
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = whole::<usize>(1..=MAX_LENGTH))]
    length: usize,
    /// Number of rows
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole::<usize>(1..))]
    rows: usize,
    /// Print every row of the set, with --test or --selection
    #[arg(long, conflicts_with = "rows", requires = "set")]
    all: bool,
    /// Training length, which some tasks read [default: the length of the rows]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=MAX_LENGTH))]
    train_len: Option<usize>,
    /// First step whose batch is printed
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "set", value_parser = whole::<u64>(0..))]
    step: u64,
    /// Steps whose batches are printed, one after another
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "set", value_parser = whole::<usize>(1..))]
    steps: usize,
    /// Seed of the run whose batches are printed; the evaluation seed with --test and --selection
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>(0..))]
    seed: u64,
    /// Print the first rows of the test set instead
    #[arg(long, group = "set")]
    test: bool,
    /// Print the first rows that [select] and train.stop decide by instead
    #[arg(long, group = "set")]
    selection: bool,
}

/// What says which rows of a task are printed.
const OF_A_TASK: [&str; 7] = ["kind", "length", "rows", "all", "train_len", "seed", "test"];

const EXAMPLES: &str = "\
Examples:
  longreach export-rows copy --length 8 --rows 2
  longreach export-rows addition --length 10 --seed 1 --step 500 --steps 64
  longreach export-rows text --length 128 --test --all > rows.jsonl
  longreach export-rows --run runs/quickstart/0123456789abcdef --steps 64";

/// The first line.
#[derive(Debug, Serialize)]
struct Head<'a> {
    /// Every key of the task with its value.
    task: &'a TaskConfig,
    split: &'static str,
    length: usize,
    unit: &'a str,
    /// Tokens of a row.
    seq_len: usize,
    vocab_size: usize,
    /// What each token id stands for; absent where ids are bytes or tokens of a text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tokens: Vec<String>,
    train_len: usize,
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
}

/// A batch to print, and the step of the run that it is of.
type Printed = (Option<OfStep>, Batch);

/// The step of a run.
#[derive(Clone, Copy, Debug, Serialize)]
struct OfStep {
    step: u64,
    /// Its tokens in all rows, without padding.
    tokens: u64,
}

/// A row.
#[derive(Debug, Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    of: Option<OfStep>,
    inputs: &'a [i32],
    targets: &'a [i32],
    counted: &'a [bool],
}

/// Prints the rows.
///
/// # Errors
///
/// [`Exit::Config`] for an unknown task, a key or a number that cannot work; [`Exit::Input`] for a
/// corpus that cannot be used.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    if let Some(directory) = &arguments.run {
        console::print(of_run(arguments, directory)?.trim_end());
        return Ok(Exit::Done);
    }
    let source = arguments.source()?;
    let task: TaskConfig =
        deserialize(source.table(), source.origins()).map_err(|error| arguments.adapt(error))?;
    let train_len = arguments.train_len.unwrap_or(arguments.length);
    let (length, seed, first) = (arguments.length, arguments.seed, arguments.step);
    let (asked, split) = match (arguments.test, arguments.selection) {
        (true, _) => (Rows::Test, "test"),
        (_, true) => (Rows::Selection, "selection"),
        _ => (Rows::Test, "train"),
    };
    let is_train = split == "train";
    // Rows to train on may have lengths that are not tested.
    let tested: &[usize] = if is_train { &[] } else { &[length] };
    let built = Surroundings::of(Path::new("."))
        .build(&task, train_len, tested, seed, asked, Mask::Causal)
        .map_err(|error| arguments.refused(&source, error))?;
    let rows = arguments.count(&*built, is_train)?;
    let batches: Vec<Printed> = if is_train {
        let steps = (0..arguments.steps as u64).map(|at| first.saturating_add(at));
        let batch = |step| (None, built.train_batch(length, rows, seed, step));
        steps.map(batch).collect()
    } else {
        vec![(None, built.test_batch(length, 0, rows))]
    };
    let head = Head {
        task: &task,
        split,
        length,
        unit: built.unit(),
        seq_len: built.seq_len(length),
        vocab_size: built.vocab_size(),
        tokens: built.tokens(),
        train_len,
        seed,
        step: is_train.then_some(first),
    };
    console::print(lines(&head, &batches)?.trim_end());
    Ok(Exit::Done)
}

/// The rows of a run, which may differ in length.
fn of_run(arguments: &Args, directory: &Path) -> Result<String, Failure> {
    let job = read_job(directory)?;
    let task = build_task(&job, &job.spec.eval.test_lens)?;
    let (spec, train) = (&job.spec, &job.spec.train);
    let batches: Vec<Printed> = if arguments.selection {
        let stop = Tasks::default().stop_task(&job)?.ok_or_else(|| {
            let problem = format!("{} has no train.stop", directory.display());
            Failure::config(problem).with_help("leave out --selection")
        })?;
        let from = train.stop.as_ref().and_then(|stop| stop.min_len);
        let rows = TestRows::new(stop.as_ref(), (from, train.train_len), spec.eval.seed);
        let batches = rows.batches(stop.as_ref(), spec.eval.batch_tokens);
        batches.map(|(.., batch)| (None, batch)).collect()
    } else {
        let rows = train.stages.iter().map(|stage| stage.batch_size);
        let rows = rows.max().unwrap_or(0).max(train.batch_size);
        let most = (MAX_TOKENS / rows / train.seq_len).max(1);
        arguments.in_range("--steps", arguments.steps, most)?;
        if arguments.step >= train.steps {
            let (first, last) = (arguments.step.to_string(), train.steps - 1);
            let problem = format!("{} has no such step", directory.display());
            let error = arguments.error("--step", &first, problem, format!("0 to {last}"));
            return Err(error.with_help(format!("write --step {last}")).into());
        }
        let steps = (arguments.step..train.steps).take(arguments.steps);
        let batch = |step| {
            let StepBatch { batch, tokens, .. } = StepBatch::new(spec, task.as_ref(), step);
            (Some(OfStep { step, tokens }), batch)
        };
        steps.map(batch).collect()
    };
    let split = if arguments.selection {
        "selection"
    } else {
        "train"
    };
    let head = Head {
        task: &spec.task,
        split,
        length: train.train_len,
        unit: task.unit(),
        seq_len: train.seq_len,
        vocab_size: task.vocab_size(),
        tokens: task.tokens(),
        train_len: train.train_len,
        seed: spec.seed,
        step: (split == "train").then_some(arguments.step),
    };
    lines(&head, &batches)
}

fn lines(head: &Head<'_>, batches: &[Printed]) -> Result<String, Failure> {
    let broken = |error: serde_json::Error| Failure::bug(error);
    let mut out = serde_json::to_string(head).map_err(broken)? + "\n";
    for (of, batch) in batches {
        let width = batch.seq_len.max(1);
        let read = batch.inputs.chunks(width).zip(batch.targets.chunks(width));
        for ((inputs, targets), counted) in read.zip(batch.counted.chunks(width)) {
            let row = Row {
                of: *of,
                inputs,
                targets,
                counted,
            };
            out += &serde_json::to_string(&row).map_err(broken)?;
            out.push('\n');
        }
    }
    Ok(out)
}

impl Args {
    /// The command as it was typed.
    fn shown(&self) -> String {
        let words = self.kind.iter().chain(&self.keys);
        words.fold("export-rows".to_owned(), |line, word| line + " " + word)
    }

    fn error(&self, key: &str, value: &str, problem: String, allowed: String) -> Diagnostic {
        let place = Location::argument(self.shown());
        Diagnostic::new(place, problem)
            .with_key(key)
            .with_value(value)
            .with_allowed(allowed)
    }

    /// The keys as a table of this kind.
    fn source(&self) -> Result<Source, Failure> {
        let kind = self.kind.as_deref().unwrap_or_default();
        let infos = TaskConfig::kinds();
        let kinds: Vec<String> = infos.iter().map(|info| info.kind.to_owned()).collect();
        if !kinds.iter().any(|known| known == kind) {
            let meant = closest(kind, &kinds).map(|meant| format!("did you mean `{meant}`?"));
            let help = meant.unwrap_or_else(|| "`longreach list tasks` describes them".to_owned());
            let problem = format!("unknown task `{kind}`");
            let error = self.error("kind", kind, problem, kinds.join(", "));
            return Err(error.with_help(help).into());
        }
        let mut source = Source::parse("export-rows", format!("kind = \"{kind}\"\n").as_bytes())?;
        for text in &self.keys {
            // Keys may be written as in a config.
            let bare = text.strip_prefix("task.").unwrap_or(text);
            source.apply_override_such_as(bare, "alphabet=4")?;
        }
        Ok(source)
    }

    /// Turns an error of the config reader into one of this command line.
    fn adapt(&self, mut diagnostic: Diagnostic) -> Failure {
        if !matches!(diagnostic.place, Location::CommandLine { .. }) {
            diagnostic.place = Location::argument(self.shown());
        }
        if let Problem::UnknownKey { name, table, .. } = &mut diagnostic.problem
            && *table == TableName::Document
        {
            let kind = self.kind.as_deref().unwrap_or_default();
            *table = TableName::Named(format!("task `{kind}`"));
            let of_others = of_other_tasks(name, kind);
            diagnostic.help = of_others.or(diagnostic.help.take());
        }
        diagnostic.into()
    }

    fn refused(&self, source: &Source, error: TaskError) -> Failure {
        match error {
            TaskError::Config(error) => self.adapt(
                source
                    .error(&error.key, &error.problem, &error.allowed, &error.hint)
                    .with_value(&error.value),
            ),
            TaskError::Input { .. } => Failure::input(error.to_string()),
        }
    }

    /// Refuses a number of an option that is 0 or too large.
    fn in_range(&self, name: &str, value: usize, most: usize) -> Result<(), Failure> {
        if (1..=most).contains(&value) {
            return Ok(());
        }
        let allowed = format!("a whole number from 1 to {most}");
        let problem = format!("{name} is out of range");
        let error = self.error(name, &value.to_string(), problem, allowed);
        let help = format!("write {name} {}", most.min(64));
        Err(error.with_help(help).into())
    }

    /// The rows of a batch to print: as many as were asked for, if there are.
    fn count(&self, task: &dyn Task, is_train: bool) -> Result<usize, Failure> {
        let width = task.seq_len(self.length).max(1);
        let most = (MAX_TOKENS / width).max(1);
        if is_train {
            self.in_range("--rows", self.rows, most)?;
            self.in_range("--steps", self.steps, most / self.rows)?;
            return Ok(self.rows);
        }
        let there = task.test_rows(self.length);
        let rows = if self.all { there } else { self.rows };
        self.in_range("--rows", rows, most.min(there))?;
        Ok(rows)
    }
}
