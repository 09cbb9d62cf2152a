//! `longreach check`: the runs of a config and their estimated cost.

use crate::commands::completions;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use experiment::device::{DeviceName, matmul_note};
use experiment::plan;
use experiment::plan::cost::{ASSUMED_FLOPS, PlannedEvaluation, evaluations, flops, memory_bytes};
use experiment::plan::memory::{self, Memory, MemoryLimit};
use experiment::plan::planner::{Plan, PlannedRun};
use experiment::run::worker::skipped_fits;
use experiment::runs_on_disk::files::{self, RECORD_FILE, run_dir};
use experiment::runs_on_disk::integrity::{integrity_notes, unsealed_note};
use experiment::runs_on_disk::recorded::origin;
use experiment::runs_on_disk::starts::check_starts;
use experiment::spec::{self, LengthCurriculum, RunSpec};
use records::RunRecord;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::console;
use support::console::{keep_words, table};
use support::exit::{Exit, Failure};
use support::units::{bytes, count, duration, short};

/// Validate a config and print its plan without running anything
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The experiment, a TOML file
    config: PathBuf,
    /// Values that replace those of the file
    #[arg(value_name = "KEY=VALUE", add = ArgValueCompleter::new(completions::overrides))]
    overrides: Vec<String>,
    /// Directory of all runs, to find those already recorded
    #[arg(long, default_value = "runs", value_name = "DIR")]
    runs: PathBuf,
    /// Count the runs of these files as recorded, as `run --recorded` does; give CONFIG and
    /// KEY=VALUE before it
    #[arg(long, value_name = "FILE", num_args = 1..)]
    recorded: Vec<PathBuf>,
    /// Show which trainings would be refused, and which lengths skipped, under this limit per
    /// process: 512MiB, 4GiB
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<MemoryLimit>,
    /// Estimate memory for this device, which need not be present
    #[arg(long, default_value = "cpu", add = ArgValueCandidates::new(completions::devices))]
    device: DeviceName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = r#"Examples:
  longreach check configs/quickstart.toml
  longreach check configs/copy.toml train.steps=20000 --json
  longreach check configs/quickstart.toml --recorded results.jsonl  # what remains to be trained
  longreach check configs/catalogue.toml --device cuda --memory-limit 80GiB"#;

/// Plans a config and prints its runs and their cost.
///
/// # Errors
///
/// Those of planning, and [`Exit::Input`] for weights to start from that are missing or changed.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let plan = plan(&arguments.config, &arguments.overrides)?;
    let recorded = experiment::recorded(&arguments.recorded)?;
    recorded.check(&plan, &arguments.runs)?;
    let by = plan.chosen_by().map(str::to_owned);
    let swept = plan.selection.iter().flat_map(|swept| &swept.runs);
    let swept: Vec<RunRecord> = swept
        .filter_map(|run| {
            let directory = run_dir(&arguments.runs, &run.job);
            let known = recorded.of(run).map(|(_, record)| record.clone());
            files::recorded(&directory, &run.job).or(known)
        })
        .collect();
    let chosen = plan.chosen(&swept);
    let plan = if chosen.undecided == 0 {
        chosen.plan
    } else {
        plan
    };
    let of = arguments.device.memory();
    let limit = limit(arguments.memory_limit, of);
    let is_recorded =
        |run: &PlannedRun| recorded.of(run).is_some() || is_whole(run, &arguments.runs, limit);
    check_starts(plan.runs.iter().filter(|run| !is_recorded(run)))?;
    let mut rows = rows(&plan, of, is_recorded);
    leave_evaluations(&mut rows, &plan, &arguments.runs);
    let mut notes = plan.notes.clone();
    let there = plan
        .runs
        .iter()
        .map(|run| run_dir(&arguments.runs, &run.job));
    let there: Vec<RunRecord> = there
        .filter_map(|directory| records::read_record(&directory.join(RECORD_FILE)).ok())
        .collect();
    let models = plan.all_runs().map(|run| &run.job.spec.model.transformer);
    let matmuls = models.filter_map(|model| matmul_note(&arguments.device, model.matmul));
    notes.extend(matmuls.collect::<BTreeSet<_>>());
    notes.extend(unsealed_note(&there));
    notes.extend(integrity_notes(&there));
    notes.extend(recorded.notes(&plan));
    notes.extend(
        arguments
            .memory_limit
            .iter()
            .flat_map(|limit| beyond(limit.of(of), &rows)),
    );
    if arguments.json {
        let Plan { name, title, .. } = &plan;
        let plan = serde_json::json!({
            "name": name, "title": title, "notes": notes, "chosen_by": by, "runs": rows,
        });
        console::print(&console::json(&plan)?);
    } else {
        console::notes(&notes);
        console::print(&render(&plan, &rows));
    }
    Ok(Exit::Done)
}

/// Leaves the evaluation of runs that are recorded and are to do: `run` scores their weights once
/// more, and trains nothing.
fn leave_evaluations(rows: &mut [PlanRow], plan: &Plan, runs: &Path) {
    let swept = plan.selection.iter().flat_map(|swept| &swept.runs);
    for (row, run) in rows.iter_mut().zip(swept.chain(&plan.runs)) {
        if !row.recorded && files::recorded(&run_dir(runs, &run.job), &run.job).is_some() {
            row.leave_evaluation(run);
        }
    }
}

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// To choose values by.
    Selection,
    /// For the result.
    Result,
    /// To compare a run of the result with.
    HalfSteps,
}

impl Part {
    /// As a table shows it.
    fn note(self) -> &'static str {
        match self {
            Self::Selection => "selection",
            Self::Result => "",
            Self::HalfSteps => "half steps",
        }
    }
}

/// A run of the plan.
#[derive(Debug, Serialize)]
pub struct PlanRow {
    /// Hash of the resolved spec.
    pub run_id: String,
    /// Values on the axes.
    pub labels: Vec<String>,
    /// The same in words, for people.
    #[serde(skip)]
    pub method: String,
    /// Seed.
    pub seed: u64,
    /// What it is for.
    pub part: Part,
    /// Whether a record is there already.
    pub recorded: bool,
    /// Whether a record is there that skipped a length which fits now: only the evaluation is left.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub is_trained: bool,
    /// Trainable numbers.
    pub parameters: u64,
    /// Tokens trained on.
    pub train_tokens: u64,
    /// Whether `train.stop` may end the training before: tokens and time are those of all steps.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub may_end_early: bool,
    /// Whether rows may be shorter than `train.seq_len`: the tokens trained on are at most these.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub may_be_shorter: bool,
    /// Tokens read in evaluation.
    pub eval_tokens: u64,
    /// Variants evaluated, `trained` first.
    pub variants: Vec<String>,
    /// Estimated peak memory.
    pub memory_bytes: u64,
    /// Estimated peak memory of the training.
    pub train_memory_bytes: u64,
    /// The same of each evaluation.
    pub evaluations: Vec<PlannedEvaluation>,
    /// Estimated seconds on one CPU process.
    pub estimated_secs: f64,
}

impl PlanRow {
    /// Leaves the evaluation of the run, as its training is recorded.
    fn leave_evaluation(&mut self, run: &PlannedRun) {
        let mut evaluation = run.clone();
        (evaluation.train_tokens, evaluation.job.spec.train.steps) = (0, 0);
        let memory = self.evaluations.iter().map(|one| one.memory_bytes).max();
        self.is_trained = true;
        self.train_tokens = 0;
        (self.may_end_early, self.may_be_shorter) = (false, false);
        self.memory_bytes = memory.unwrap_or(0);
        self.estimated_secs = flops(&evaluation) / ASSUMED_FLOPS;
    }

    /// What is left of it, and what it is for, where a table has to say so.
    fn note(&self) -> String {
        let state = match (self.recorded, self.is_trained) {
            (true, _) => "recorded",
            (false, true) => "evaluation",
            (false, false) => "",
        };
        let parts = [self.part.note(), state].into_iter();
        let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
        parts.join(", ")
    }
}

/// The limit on memory that a sweep would have.
fn limit(asked: Option<MemoryLimit>, of: Memory) -> MemoryLimit {
    match (asked, of) {
        (Some(limit), _) => limit.of(of),
        (None, Memory::Host) => MemoryLimit::of_machine(1, 0),
        // The device is not asked here.
        (None, Memory::Device) => MemoryLimit::host(0),
    }
}

/// Whether a run has a record, as `run` counts: a damaged one is trained again, and one that
/// skipped a length that fits now is evaluated there.
fn is_whole(run: &PlannedRun, runs: &Path, limit: MemoryLimit) -> bool {
    let directory = run_dir(runs, &run.job);
    files::recorded(&directory, &run.job).is_some_and(|record| {
        !skipped_fits(&record, &run.job.spec, &run.sizes, limit) || origin(&directory).is_some()
    })
}

/// What a limit on memory leaves out, in words; runs that differ in nothing but the seed once.
pub fn beyond(limit: MemoryLimit, rows: &[PlanRow]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let mut note = |text: String| {
        if !notes.contains(&text) {
            notes.push(text);
        }
    };
    for row in rows {
        let method = &row.method;
        if let Some(excess) = limit.excess(row.train_memory_bytes) {
            note(format!("{method}: would not train: it {excess}"));
            continue;
        }
        for variant in &row.variants {
            let skipped = row.evaluations.iter().filter(|evaluation| {
                evaluation.variant == *variant && limit.excess(evaluation.memory_bytes).is_some()
            });
            let lengths: Vec<String> = skipped
                .map(|skipped| skipped.test_len.to_string())
                .collect();
            if !lengths.is_empty() {
                let lengths = lengths.join(", ");
                note(format!(
                    "{method}, {variant}: would be skipped at {lengths}: more than {} of {}",
                    bytes(limit.bytes as f64),
                    limit.memory.words()
                ));
            }
        }
    }
    notes
}

/// Whether training rows have lengths of their own.
fn may_be_shorter(spec: &RunSpec) -> bool {
    let length = spec.train.length;
    matches!(length, LengthCurriculum::Uniform | LengthCurriculum::Mixed)
        || spec.task.kind() == "jsonl"
}

/// The rows of a plan; `is_recorded` returns whether a run is done.
pub fn rows(plan: &Plan, of: Memory, is_recorded: impl Fn(&PlannedRun) -> bool) -> Vec<PlanRow> {
    let row = |part: Part, run: &PlannedRun| PlanRow {
        part,
        run_id: run.job.run_id.clone(),
        labels: run
            .job
            .labels
            .iter()
            .map(|label| label.text.clone())
            .collect(),
        method: spec::method(&run.job.labels),
        seed: run.job.spec.seed,
        recorded: is_recorded(run),
        is_trained: false,
        parameters: run.parameters,
        train_tokens: run.train_tokens,
        may_end_early: run.job.spec.train.stop.is_some(),
        may_be_shorter: may_be_shorter(&run.job.spec),
        eval_tokens: run.eval_tokens,
        variants: run
            .job
            .spec
            .eval
            .variants
            .iter()
            .map(|variant| variant.name.clone())
            .collect(),
        memory_bytes: memory_bytes(of, run),
        train_memory_bytes: memory::training(of, &run.job.spec, run.parameters, &run.sizes),
        evaluations: evaluations(of, run),
        estimated_secs: flops(run) / ASSUMED_FLOPS,
    };
    let part = |run: &PlannedRun| match run.job.half_of {
        Some(_) => Part::HalfSteps,
        None => Part::Result,
    };
    let swept = plan.selection.iter().flat_map(|swept| &swept.runs);
    let swept = swept.map(|run| row(Part::Selection, run));
    let result = plan.runs.iter().map(|run| row(part(run), run));
    swept.chain(result).collect()
}

/// The runs of each part, where there are several: `: 18 of the selection, 9 of the result`.
fn parts(plan: &Plan, rows: &[PlanRow]) -> String {
    let of = |part: Part| rows.iter().filter(move |row| row.part == part);
    let text = |(part, name): (Part, &str)| {
        let secs: f64 = of(part).map(|row| row.estimated_secs).sum();
        let runs = of(part).count();
        (runs > 0).then(|| format!("{runs} {name} ({})", duration(secs)))
    };
    let parts = [
        (Part::Selection, "of the selection"),
        (Part::Result, "of the result"),
        (Part::HalfSteps, "of half the steps"),
    ];
    let parts: Vec<String> = parts.into_iter().filter_map(text).collect();
    if parts.len() < 2 {
        return String::new();
    }
    let is_open = plan
        .selection
        .as_ref()
        .is_some_and(|swept| !swept.methods.is_empty());
    let first = if is_open {
        "; the result is shown with the first values until the sweep chooses"
    } else {
        ""
    };
    format!(": {}{first}", parts.join(", "))
}

/// The variants beside the encoding as trained: ` (with YaRN)`.
fn beside(variants: &[String]) -> String {
    match variants {
        [] | [_] => String::new(),
        [_, beside @ ..] => {
            let beside: Vec<String> = beside
                .iter()
                .map(|name| spec::NAMES.variant(name))
                .collect();
            format!(" (with {})", beside.join(", "))
        }
    }
}

/// The plan as a table with totals, for a terminal.
#[expect(clippy::too_many_lines, reason = "one table with its totals")]
pub fn render(plan: &Plan, rows: &[PlanRow]) -> String {
    let mut table = table([
        "run",
        "method",
        "seed",
        "parameters",
        "train tokens",
        "eval tokens",
        "memory",
        "time",
        "",
    ]);
    let most = |text: String, early: bool| match early {
        true => format!("up to {text}"),
        false => text,
    };
    for row in rows {
        table.add_row([
            row.run_id[..8].to_owned(),
            row.method.clone(),
            row.seed.to_string(),
            short(row.parameters as f64),
            most(
                short(row.train_tokens as f64),
                row.may_end_early || row.may_be_shorter,
            ),
            most(short(row.eval_tokens as f64), row.may_end_early) + &beside(&row.variants),
            bytes(row.memory_bytes as f64),
            most(duration(row.estimated_secs), row.may_end_early),
            row.note(),
        ]);
    }
    keep_words(&mut table, 0);
    let left: Vec<&PlanRow> = rows.iter().filter(|row| !row.recorded).collect();
    // An empty sum of floats is -0.
    let seconds = left
        .iter()
        .map(|row| row.estimated_secs)
        .fold(0.0, |sum, secs| sum + secs);
    let tokens = left
        .iter()
        .map(|row| row.train_tokens)
        .fold(0, u64::saturating_add);
    let largest = left.iter().map(|row| row.memory_bytes).max();
    let memory = largest.map_or_else(String::new, |largest| {
        format!(", {} of memory per process", bytes(largest as f64))
    });
    let recorded = rows.len() - left.len();
    let early = left.iter().any(|row| row.may_end_early);
    let shorter = left.iter().any(|row| row.may_be_shorter);
    format!(
        "{}: {} ({} recorded){}\n{table}\nto do: {}, {} trained on, {} {} of CPU time in one \
         process{memory}\n(time assumes {:.0} GFLOP/s; memory is an estimate; \
         every run writes what it took to timings.json)",
        plan.name,
        count(rows.len(), "run"),
        recorded,
        parts(plan, rows),
        count(left.len(), "run"),
        most(short(tokens as f64) + " tokens", early || shorter),
        if early { "at most about" } else { "about" },
        duration(seconds),
        ASSUMED_FLOPS / 1e9,
    )
}
