//! `longreach eval`: trained runs at other lengths or under other encodings, without retraining.

use crate::config::diagnostic::{describe_value, type_name};
use crate::console;
use crate::device::{self, DeviceName};
use crate::exit::{Exit, Failure};
use crate::plan::memory::MemoryLimit;
use crate::plan::spec::{Decode, EvalSpec, Job, RunSpec, TRAINED, VariantSpec, untrained};
use crate::plan::variants::{
    additions, check_additions, dropped, dropped_note, keeping, read_additions, stacked,
};
use crate::plan::variation::{applies, changed};
use crate::run::evaluate::evaluate;
use crate::run::record::{environment, spec_map, task_facts};
use crate::run::task::build_task;
use crate::run::worker::skipped_fits;
use crate::run_dir::files::{RECORD_FILE, WEIGHTS_FILE};
use crate::run_dir::selection::{self, Run};
use crate::signals;
use crate::units::count;
use posenc::{ConfigError, EncodingConfig, Lengths, PositionsConfig};
use results::record::RunStatus;
use results::store::EVALS_DIR;
use results::{ReportSpec, RunRecord, read_record, report};
use rundir::Weights;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tasks::{Scoring, Task};
use tiny_transformer::AttentionKind;
use toml::{Table, Value};

/// Evaluate trained runs at other lengths or under other encodings, without retraining
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories of trained runs or of experiments; the end of a run's id may be left out:
    /// runs/quickstart/13e1
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Only runs with this value, such as pe=rope, seed=0, model.pe.base=10000 or label=TEXT;
    /// repeat to require several
    #[arg(long = "where", value_name = "KEY=VALUE")]
    filters: Vec<String>,
    /// Test lengths in the task's unit [default: those of the run]
    #[arg(long, value_delimiter = ',', value_name = "N,N,...")]
    lengths: Option<Vec<usize>>,
    /// An encoding to evaluate under, as TOML or the path of a .toml file: keys to change in the
    /// trained encoding, a whole encoding with `kind`, or add = { kind = ... } to stack one on the
    /// trained encoding
    #[arg(long = "variant", value_name = "TOML")]
    variants: Vec<String>,
    /// How answers are decoded, `eval.decode` of a config [default: as in the run]
    #[arg(long, value_name = "WAY")]
    decode: Option<Decode>,
    /// Also report the loss over the last N predictions of each window, `eval.last_tokens`
    /// [default: as in the run]
    #[arg(long, value_name = "N")]
    last_tokens: Option<usize>,
    /// Record the mean attention distance of every head, `eval.attention_distance` [default: as in
    /// the run]
    #[arg(long)]
    attention_distance: bool,
    /// The device
    #[arg(long, default_value = "cpu")]
    device: DeviceName,
    /// As in `run`
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<MemoryLimit>,
    /// Print the record as JSON, or a list of records for several runs
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = r#"Examples:
  longreach eval runs/quickstart/0123456789abcdef --lengths 128,256,32768

  every RoPE run of an experiment:
  longreach eval runs/quickstart --where pe=rope --lengths 4096

  under other scalings, and with a mask added:
  longreach eval runs/quickstart/0123 --variant 'scaling = { kind = "yarn" }'
  longreach eval runs/quickstart/0123 --variant 'scaling = { kind = "ntk", factor = 8 }'
  longreach eval runs/quickstart/0123 --variant 'add = { kind = "window", size = 64, sinks = 4 }'

  token by token where teacher forcing would give other answers:
  longreach eval runs/randomized/0123 --decode auto"#;

impl Args {
    fn memory_limit(&self) -> MemoryLimit {
        self.device.memory_limit(self.memory_limit, 1)
    }
}

/// Evaluates the runs and prints the table, or the records as JSON.
///
/// # Errors
///
/// [`Exit::Input`] if a run does not exist; if it is the only one, also if it is not finished,
/// diverged, or its weights are damaged. [`Exit::Config`] for a filter that selects nothing, or for
/// lengths or variants that cannot work for any run; [`Exit::Device`]. Nothing has been evaluated
/// then.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let outcome = evaluate_all(arguments, console::tell)?;
    match (arguments.json, outcome.evaluated.as_slice()) {
        (true, [(record, _)]) if outcome.selected == 1 => console::print(&console::json(record)?),
        (true, evaluated) => {
            let records: Vec<_> = evaluated.iter().map(|(record, _)| record).collect();
            console::print(&console::json(&records)?);
        }
        (false, []) => {}
        (false, _) => console::print(&outcome.table()?),
    }
    for (name, directory, failure) in &outcome.failed {
        console::failed(name, directory, failure);
    }
    let runs = count(outcome.selected, "run");
    if !outcome.failed.is_empty() {
        console::tell(&format!(
            "\n{} of {runs} failed; the same command tries them again",
            outcome.failed.len()
        ));
    }
    if outcome.stopped.is_some() {
        console::tell(&format!(
            "\nstopped: {} of {runs} evaluated; the same command continues",
            outcome.evaluated.len()
        ));
    }
    Ok(outcome.exit())
}

/// What became of the evaluations.
struct Outcome {
    /// Runs that were asked for.
    selected: usize,
    /// The records of the evaluations and where they are, those that were there before included.
    evaluated: Vec<(RunRecord, PathBuf)>,
    /// Runs that failed: name, directory, and why.
    failed: Vec<(String, PathBuf, Failure)>,
    /// Set if a signal ended the work.
    stopped: Option<Exit>,
}

impl Outcome {
    /// The table over all evaluated runs, and where the records are.
    ///
    /// # Errors
    ///
    /// [`Exit::Input`] if there is nothing to make a table of.
    fn table(&self) -> Result<String, Failure> {
        let records: Vec<RunRecord> = self
            .evaluated
            .iter()
            .map(|(record, _)| record.clone())
            .collect();
        let spec = ReportSpec {
            formats: [].into(),
            png: false,
            ..ReportSpec::default()
        };
        let summary = report(&records, &[], &spec)
            .map_err(Failure::input)?
            .summary;
        let summary = summary.trim_end();
        if let [(_, path)] = self.evaluated.as_slice() {
            return Ok(format!("{summary}\n\nrecord: {}", path.display()));
        }
        let experiments: BTreeSet<&Path> = self
            .evaluated
            .iter()
            .filter_map(|(_, path)| path.parent()?.parent()?.parent())
            .collect();
        let places: Vec<String> = experiments
            .iter()
            .map(|place| place.join("RUN_ID").join(EVALS_DIR).display().to_string())
            .collect();
        let experiments: Vec<String> = experiments
            .iter()
            .map(|place| place.display().to_string())
            .collect();
        Ok(format!(
            "{summary}\n\n{}: {} (`longreach report {}` shows them)",
            count(self.evaluated.len(), "record"),
            places.join(", "),
            experiments.join(" ")
        ))
    }

    /// What the process ends with.
    fn exit(&self) -> Exit {
        match (self.stopped, self.failed.as_slice()) {
            (Some(exit), _) => exit,
            (None, []) if self.evaluated.is_empty() => Exit::Diverged,
            (None, []) => Exit::Done,
            (None, _) => Exit::SomeFailed,
        }
    }
}

/// A run that is ready to be evaluated.
struct Prepared {
    job: Job,
    /// The run's own record.
    record: RunRecord,
    /// The run's spec with the evaluation that was asked for.
    spec: RunSpec,
    /// The hash of `spec`: the evaluation's id.
    id: String,
    task: Rc<dyn Task>,
}

/// Tasks that are built already: the runs of an experiment share their corpora.
type Tasks = HashMap<String, Rc<dyn Task>>;

/// Evaluates the runs one after the other; `progress` receives a line per result. A run that fails
/// does not stop the others, unless it is the only one.
fn evaluate_all(request: &Args, mut progress: impl FnMut(&str)) -> Result<Outcome, Failure> {
    signals::listen();
    signals::leave_within(crate::run::worker::LEAVE_WITHIN);
    request
        .lengths
        .iter()
        .try_for_each(|lengths| check_lengths(lengths))?;
    let selected = selection::select(&request.paths, &request.filters, &mut progress)?;
    let mut tasks = Tasks::new();
    let mut prepared: Vec<Result<Option<Prepared>, Failure>> = Vec::new();
    let mut notes = BTreeSet::new();
    for run in &selected {
        prepared.push(prepare(run, request, &mut tasks, &mut notes));
        if let Some(exit) = signals::asked() {
            return Err(Failure::new(
                exit,
                "stopped before any evaluation; nothing was written",
            ));
        }
    }
    let total = selected.len();
    // What cannot work for any run is refused before the first.
    let refused = |run: &Result<Option<Prepared>, Failure>| match run {
        Err(failure) => failure.exit == Exit::Config || total == 1,
        Ok(run) => run.is_none(),
    };
    if prepared.iter().all(refused)
        && let Some(Err(failure)) = prepared.iter().find(|run| run.is_err())
    {
        return Err(failure.clone());
    }
    notes
        .iter()
        .for_each(|note| progress(&format!("note: {note}")));
    let mut device = None;
    let mut outcome = Outcome {
        selected: total,
        evaluated: Vec::new(),
        failed: Vec::new(),
        stopped: None,
    };
    for (index, (run, prepared)) in selected.iter().zip(prepared).enumerate() {
        outcome.stopped = signals::asked();
        if outcome.stopped.is_some() {
            break;
        }
        let name = run.name_among(&selected);
        let prefix = if total > 1 {
            format!("[run {}/{total}] {name}: ", index + 1)
        } else {
            String::new()
        };
        let mut say = |line: &str| progress(&format!("{prefix}{line}"));
        let done = match prepared {
            Err(failure) => Err(failure),
            Ok(None) if total == 1 => {
                let directory = run.directory.display();
                return Err(Failure::input(format!(
                    "{directory} diverged in training: there is nothing to evaluate"
                )));
            }
            Ok(None) => {
                say("diverged in training, skipped");
                continue;
            }
            Ok(Some(prepared)) => match there(&run.directory, &prepared, request.memory_limit()) {
                Some((record, path)) => {
                    say(&format!("evaluated already, in {}", path.display()));
                    Ok((record, path))
                }
                None => {
                    let device = match &device {
                        Some(device) => device,
                        None => &*device.insert(device::open(&request.device)?),
                    };
                    evaluate_one(&run.directory, &prepared, request, device, &mut say)
                }
            },
        };
        match done {
            Ok(done) => outcome.evaluated.push(done),
            Err(failure) if total == 1 => return Err(failure),
            Err(failure) if failure.exit.on_request() => {
                outcome.stopped = Some(failure.exit);
                break;
            }
            // No other run would fare better without a disk or a device.
            Err(failure) if matches!(failure.exit, Exit::Resources | Exit::Device) => {
                return Err(failure);
            }
            Err(failure) => {
                say(&format!(
                    "FAILED\n  {}",
                    console::indented(&failure.message)
                ));
                outcome.failed.push((name, run.directory.clone(), failure));
            }
        }
    }
    Ok(outcome)
}

/// Everything that can be found to be wrong before a run is evaluated; nothing for a run that
/// diverged.
fn prepare(
    run: &Run,
    request: &Args,
    tasks: &mut Tasks,
    notes: &mut BTreeSet<String>,
) -> Result<Option<Prepared>, Failure> {
    let job = run.job.clone()?;
    let unfinished = |error| {
        Failure::input(format!(
            "{error}\n  = help: finish the run first: `longreach run` with its config"
        ))
    };
    let record = read_record(&run.directory.join(RECORD_FILE)).map_err(unfinished)?;
    if record.status == RunStatus::Diverged {
        return Ok(None);
    }
    let lengths = request
        .lengths
        .clone()
        .unwrap_or_else(|| job.spec.eval.test_lens.clone());
    let task = task(&job, &lengths, tasks)?;
    let mut spec = job.spec.clone();
    check_scores(request, &spec, task.as_ref(), &lengths)?;
    let (variants, variant_notes) =
        variants(&job.spec, task.as_ref(), &lengths, &request.variants)?;
    notes.extend(variant_notes);
    spec.eval = EvalSpec {
        variants,
        test_lens: lengths,
        decode: request.decode.unwrap_or(spec.eval.decode),
        last_tokens: request.last_tokens.or(spec.eval.last_tokens),
        attention_distance: request.attention_distance || spec.eval.attention_distance,
        ..spec.eval
    };
    let id = spec
        .run_id()
        .map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
    Ok(Some(Prepared {
        job,
        record,
        spec,
        id,
        task,
    }))
}

fn task(job: &Job, lengths: &[usize], tasks: &mut Tasks) -> Result<Rc<dyn Task>, Failure> {
    let RunSpec {
        task,
        corpus_blake3,
        train,
        eval,
        ..
    } = &job.spec;
    let key = format!(
        "{task:?} {corpus_blake3:?} {} {lengths:?} {} {:?}",
        train.train_len, eval.seed, job.config_dir
    );
    if let Some(task) = tasks.get(&key) {
        return Ok(task.clone());
    }
    let task: Rc<dyn Task> = build_task(job, lengths)?.into();
    tasks.insert(key, task.clone());
    Ok(task)
}

/// The record of this evaluation and its place, if it is there, readable, of these weights, and
/// complete.
fn there(
    directory: &Path,
    prepared: &Prepared,
    limit: MemoryLimit,
) -> Option<(RunRecord, PathBuf)> {
    let Prepared {
        record: own,
        spec,
        id,
        task,
        ..
    } = prepared;
    if *id == own.run_id {
        return Some((own.clone(), directory.join(RECORD_FILE)));
    }
    let path = evaluation_path(directory, id);
    let record = read_record(&path).ok()?;
    let seq_lens: Vec<usize> = spec
        .eval
        .test_lens
        .iter()
        .map(|length| task.seq_len(*length))
        .collect();
    let same = record.run_id == *id && record.model == own.model;
    (same && !skipped_fits(&record, spec, &seq_lens, limit)).then_some((record, path))
}

fn evaluation_path(directory: &Path, id: &str) -> PathBuf {
    directory.join(EVALS_DIR).join(format!("{id}.json"))
}

fn evaluate_one(
    directory: &Path,
    prepared: &Prepared,
    request: &Args,
    device: &burn::tensor::Device,
    say: &mut dyn FnMut(&str),
) -> Result<(RunRecord, PathBuf), Failure> {
    let Prepared {
        job,
        record: own,
        spec,
        id,
        task,
    } = prepared;
    let mut record = own.clone();
    let weights = Weights::load(
        &directory.join(WEIGHTS_FILE),
        record.model.parameters,
        &record.model.weights_blake3,
    )
    .map_err(|error| Failure::input(format!("{error:#}")))?;
    if let Some(note) = device::matmul_note(&request.device, spec.model.transformer.matmul) {
        say(&format!("note: {note}"));
    }
    let total = spec.eval.variants.len() * spec.eval.test_lens.len();
    let mut done = 0;
    record.evals = evaluate(
        &job.spec,
        &spec.eval,
        task.as_ref(),
        &weights,
        device,
        request.memory_limit(),
        |row, cost| {
            done += 1;
            let loss = row.metrics.get("loss_nats").map_or_else(
                || row.reason.clone().unwrap_or_default(),
                |loss| format!("loss {:.4} nats", loss.value),
            );
            say(&format!(
                "[{done}/{total}] {} at {}: {loss} ({:.1} s)",
                row.variant, row.test_len, cost.secs
            ));
        },
    )
    .map_err(|error| Failure::new(Exit::Bug, format!("{error:#}")))?
    .ok_or_else(|| {
        Failure::new(
            signals::asked().unwrap_or(Exit::Interrupted),
            "stopped; nothing was written of the run that was being evaluated",
        )
    })?;
    record.run_id.clone_from(id);
    record.evaluation_of = Some(own.run_id.clone());
    record.task = task_facts(spec, task.as_ref());
    record.environment = environment(&request.device);
    record.spec = spec_map(spec)?;
    let path = evaluation_path(directory, id);
    let disk = rundir::system();
    disk.create_dirs(&directory.join(EVALS_DIR))
        .map_err(Failure::resources)?;
    let text = results::store::record_text(&path, &record)
        .map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
    disk.write_whole(&path, text.as_bytes())
        .map_err(Failure::resources)?;
    Ok((record, path))
}

fn check_lengths(lengths: &[usize]) -> Result<(), Failure> {
    let distinct: std::collections::BTreeSet<&usize> = lengths.iter().collect();
    if lengths.is_empty()
        || lengths.contains(&0)
        || lengths.iter().any(|length| *length > 1 << 22)
        || distinct.len() < lengths.len()
    {
        let shown = lengths
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",");
        let message = format!(
            "--lengths {shown}: cannot be\n  = allowed: different whole numbers from 1 to {}\n  = \
             help: write --lengths 128,256,512",
            1 << 22
        );
        return Err(Failure::new(Exit::Config, message));
    }
    Ok(())
}

/// What a config may not ask of this task and model, the command line may not either.
fn check_scores(
    request: &Args,
    spec: &RunSpec,
    task: &dyn Task,
    lengths: &[usize],
) -> Result<(), Failure> {
    let refuse = |flag: String, problem: &str, allowed: &str, help: &str| {
        Err(Failure::new(
            Exit::Config,
            format!("{flag}: {problem}\n  = allowed: {allowed}\n  = help: {help}"),
        ))
    };
    let kind = task.kind();
    if let Some(decode) = request
        .decode
        .filter(|decode| *decode != Decode::TeacherForced && task.scoring() != Scoring::Answer)
    {
        let flag = clap::ValueEnum::to_possible_value(&decode).map_or(String::new(), |value| {
            format!("--decode {}", value.get_name())
        });
        let problem = format!("has nothing to decode: task `{kind}` asks for no answers");
        return refuse(
            flag,
            &problem,
            "teacher_forced",
            "leave it out, or evaluate a run on a task with answers, such as copy",
        );
    }
    if request.attention_distance && spec.model.transformer.attention == AttentionKind::Linear {
        let problem = "needs weights, and linear attention has none";
        return refuse(
            "--attention-distance".to_owned(),
            problem,
            "absent",
            "leave it out, or evaluate a run with softmax attention",
        );
    }
    let Some(last) = request.last_tokens.or(spec.eval.last_tokens) else {
        return Ok(());
    };
    let flag = format!("--last-tokens {last}");
    if task.scoring() != Scoring::LanguageModel {
        let problem = format!("is for text: task `{kind}` is scored where its answers are");
        return refuse(flag, &problem, "absent", "leave it out");
    }
    let shortest = lengths.iter().copied().min().unwrap_or(1);
    if !(1..=shortest).contains(&last) {
        let problem = "every test window has so many predictions at its end";
        return refuse(
            flag,
            problem,
            &format!("a whole number from 1 to {shortest}"),
            "give fewer, or longer --lengths",
        );
    }
    Ok(())
}

/// The trained encoding, then each asked for; and notes on those asked for.
fn variants(
    spec: &RunSpec,
    task: &dyn Task,
    lengths: &[usize],
    asked: &[String],
) -> Result<(Vec<VariantSpec>, Vec<String>), Failure> {
    let shape = spec.model.transformer.shape();
    let kind = spec.model.pe.kind();
    let mut notes = Vec::new();
    let mut variants = vec![VariantSpec {
        name: TRAINED.to_owned(),
        pe: vec![spec.model.pe.clone(); lengths.len()],
        positions: Vec::new(),
    }];
    for text in asked {
        let fail = |problem: String, help: &str| {
            Failure::new(
                Exit::Config,
                format!("--variant {text}: {problem}\n  = help: {help}"),
            )
        };
        let refuse = |error: ConfigError| {
            let ConfigError {
                key,
                value,
                problem,
                allowed,
                hint,
            } = error;
            let message = format!(
                "--variant {text}: `{key}` {problem}\n  = value: {value}\n  = allowed: \
                 {allowed}\n  = help: {hint}"
            );
            Failure::new(Exit::Config, message)
        };
        let syntax = "write TOML such as 'scaling = { kind = \"yarn\" }', or the path of a .toml \
                      file with it";
        let table = parse_variant(text).map_err(|problem| fail(problem, syntax))?;
        let pe = serde_json::to_value(&spec.model.pe)
            .ok()
            .and_then(|value| without_null(&value))
            .ok_or_else(|| fail("lost the trained encoding".to_owned(), syntax))?;
        if !applies(&table.when, &pe) {
            let name = table.name.clone().unwrap_or_else(|| default_name(&table));
            let when = describe_value(&Value::Table(table.when));
            notes.push(format!(
                "variant `{name}` is left out: it is for when = {when}, and the run was trained \
                 with `{kind}`"
            ));
            continue;
        }
        let base = changed(&pe, &table.set).map_err(|problem| {
            fail(
                format!("does not fit the trained encoding `{kind}`: {problem}"),
                "give keys of the trained encoding, a whole encoding with `kind`, or add = { kind \
                 = ... } to stack one on it",
            )
        })?;
        let added = table
            .add
            .as_ref()
            .map(read_additions)
            .transpose()
            .map_err(|problem| {
                fail(
                    format!("cannot be added to the trained encoding `{kind}`: {problem}"),
                    "write add = { kind = \"window\" }, or a list of such tables",
                )
            })?;
        let encodings = lengths.iter().map(|length| {
            let at = Lengths {
                train_len: spec.train.seq_len,
                test_len: task.seq_len(*length),
            };
            let (mut base, mut added) = (base.clone(), added.clone().unwrap_or_default());
            base.resolve(&at);
            base.check(&shape)
                .map_err(|error| fail(error.to_string(), &error.hint))?;
            if let Some(add) = &table.add {
                added.iter_mut().for_each(|one| one.resolve(&at));
                check_additions(add, &base, &added, &shape).map_err(refuse)?;
            }
            let encoding = stacked(base, &added);
            let facts = encoding.facts(&shape);
            spec.model
                .transformer
                .check_encoding(&facts)
                .map_err(|error| fail(error.to_string(), &error.hint))?;
            if table.add.is_some() && table.positions.is_none() {
                spec.model
                    .positions
                    .check(&facts)
                    .map_err(|error| refuse(error.within("model.positions")))?;
            }
            let missing = untrained(&spec.model.pe, &encoding, &shape)
                .into_iter()
                .next();
            match missing {
                None => Ok(encoding),
                Some((path, shape)) => {
                    let problem = format!(
                        "needs the parameter {path} {shape:?}, which the run was not trained with"
                    );
                    Err(fail(
                        problem,
                        "choose an encoding without parameters of its own, or train with it",
                    ))
                }
            }
        });
        let encodings: Vec<EncodingConfig> = encodings.collect::<Result<_, _>>()?;
        let named = table.name.clone().unwrap_or_else(|| default_name(&table));
        let is_free =
            |name: &str, variants: &[VariantSpec]| variants.iter().all(|other| other.name != name);
        // Two of one kind are told apart by what they say.
        let said = text.trim().replace('\n', ", ");
        let name = if table.name.is_some() || is_free(&named, &variants) {
            named
        } else {
            said
        };
        if !is_free(&name, &variants) {
            let help = "give each variant another name: a line name = \"...\" before the others, \
                        or in its .toml file";
            return Err(fail(
                format!("another variant is named `{name}` already"),
                help,
            ));
        }
        if let Some(encoding) = encodings.first() {
            let kinds = dropped(&table.set, &spec.model.pe, encoding, &shape);
            if !kinds.is_empty() {
                let own = table
                    .add
                    .is_none()
                    .then(|| keeping(&table.set, &spec.model.pe, encoding, &shape))
                    .flatten();
                notes.push(dropped_note(&name, &kinds, own.as_deref()));
            }
        }
        let longest = lengths
            .iter()
            .map(|length| task.seq_len(*length))
            .max()
            .unwrap_or(0);
        let positions = lengths
            .iter()
            .zip(&encodings)
            .filter_map(|(length, encoding)| {
                let mut positions = table.positions.clone()?;
                positions.resolve(
                    &Lengths {
                        train_len: spec.train.seq_len,
                        test_len: task.seq_len(*length),
                    },
                    longest,
                );
                let facts = encoding.facts(&shape);
                Some(
                    positions
                        .check(&facts)
                        .map(|()| positions)
                        .map_err(|error| fail(error.to_string(), &error.hint)),
                )
            });
        let positions = positions.collect::<Result<_, _>>()?;
        variants.push(VariantSpec {
            name,
            pe: encodings,
            positions,
        });
    }
    Ok((variants, notes))
}

/// A variant from the command line.
struct Variant {
    name: Option<String>,
    when: Table,
    set: Table,
    add: Option<Value>,
    positions: Option<PositionsConfig>,
}

fn parse_variant(text: &str) -> Result<Variant, String> {
    let path = Path::new(text);
    let is_file = path
        .extension()
        .is_some_and(|extension| extension == "toml");
    let text = if is_file {
        fs_err::read_to_string(path).map_err(|error| error.to_string())?
    } else {
        text.to_owned()
    };
    let mut table: Table = text
        .parse()
        .map_err(|error: toml::de::Error| error.message().to_owned())?;
    let name = match table.remove("name") {
        None => None,
        Some(Value::String(name)) => Some(name),
        Some(_) => return Err("`name` must be a text".to_owned()),
    };
    let positions = match table.remove("positions") {
        None => None,
        Some(value) => {
            let mut value = Table::from_iter([("positions".to_owned(), value)]);
            crate::config::diagnostic::normalise(&mut value);
            let positions = value.remove("positions").expect("was put in").try_into();
            Some(
                positions
                    .map_err(|error: toml::de::Error| format!("positions: {}", error.message()))?,
            )
        }
    };
    let add = table.remove("add");
    // A file may hold the same table as [[eval.variants]].
    let mut inner = |key: &str| match table.remove(key) {
        None => Ok(None),
        Some(Value::Table(inner)) => Ok(Some(inner)),
        Some(other) => Err(format!(
            "`{key}` must be a table, not {}",
            type_name(&other)
        )),
    };
    let (when, set) = (inner("when")?.unwrap_or_default(), inner("set")?);
    let set = match set {
        Some(_) if !table.is_empty() => {
            let keys = table
                .keys()
                .map(|key| format!("`{key}`"))
                .collect::<Vec<_>>()
                .join(", ");
            return Err(format!(
                "{keys} beside `set`: beside it only name, when, add and positions are allowed"
            ));
        }
        Some(set) => set,
        None => table,
    };
    Ok(Variant {
        name,
        when,
        set,
        add,
        positions,
    })
}

/// The kinds that a variant sets and adds, or else what it sets; or the kind of its positions.
fn default_name(variant: &Variant) -> String {
    let kind = |table: &Value| table.get("kind").and_then(Value::as_str).map(str::to_owned);
    let mut names = Vec::new();
    if !variant.set.is_empty() {
        names.push(compact(&variant.set));
    }
    names.extend(
        variant
            .add
            .iter()
            .flat_map(additions)
            .filter_map(|(_, one)| kind(one)),
    );
    match &variant.positions {
        Some(positions) if names.is_empty() => positions.kind().to_owned(),
        _ => names.join("+"),
    }
}

fn compact(set: &Table) -> String {
    match set
        .get("scaling")
        .and_then(|scaling| scaling.get("kind"))
        .or(set.get("kind"))
        .and_then(Value::as_str)
    {
        Some(kind) => kind.to_owned(),
        None => set.to_string().trim().replace('\n', ", "),
    }
}

/// A JSON object as a TOML table; absent keys instead of null.
fn without_null(value: &serde_json::Value) -> Option<Table> {
    fn convert(value: &serde_json::Value) -> Option<Value> {
        Some(match value {
            serde_json::Value::Null => return None,
            serde_json::Value::Object(map) => Value::Table(
                map.iter()
                    .filter_map(|(key, value)| Some((key.clone(), convert(value)?)))
                    .collect(),
            ),
            serde_json::Value::Array(items) => {
                Value::Array(items.iter().filter_map(convert).collect())
            }
            other => Value::try_from(other).ok()?,
        })
    }
    convert(value)?.as_table().cloned()
}
