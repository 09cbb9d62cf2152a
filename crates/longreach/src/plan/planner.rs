//! What a configuration may say, and how a cell of the experiment becomes resolved runs.

use super::variants::{
    additions, check_additions, dropped, dropped_note, keeping, leaves, stacked,
};
use crate::config::axes::{Cell, expand};
use crate::config::claims;
use crate::config::diagnostic::{Diagnostic, Problem, TableName, deserialize_at};
use crate::config::key_path::{KeyPath, set};
use crate::config::labels::same;
use crate::config::source::Source;
use crate::exit::Exit;
use crate::plan::spec::{
    Coordinates, Decode, EvalSpec, Job, LengthCurriculum, ModelSpec, RunSpec, Stage, TRAINED,
    TrainSpec, VariantSpec, WarmStart, changes_with_length, untrained,
};
use crate::run::evaluate::unsupported;
use crate::run::optimizer::AdamWConfig;
use crate::run_dir::files::{jobs, read_job, recorded};
use posenc::{ConfigError, EncodingConfig, Facts, Lengths, ModelShape, PositionsConfig};
use results::record::RunStatus;
use results::{Claims, RunRecord};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tasks::{BuildContext, Scoring, Task, TaskConfig, TaskError};
use tiny_transformer::{
    Activation, AttentionKind, FeatureMap, Mask, Matmul, NormKind, Normalizer, QkNorm,
    TransformerConfig,
};
use toml::{Table, Value};

/// The lock file this binary was built with: it names the default text corpus.
const LOCK: &str = include_str!("../../../../Cargo.lock");

/// Longest sequence: positions are exact in f32 up to here.
const MAX_LENGTH: usize = 1 << 24;

/// Most tokens of a batch, in training and in evaluation.
const MAX_BATCH_TOKENS: usize = 1 << 24;

/// Most trainable numbers: with gradients and the optimizer's moments 16 GiB.
const MAX_PARAMETERS: u64 = 1 << 30;

/// Most variants of an experiment.
const MAX_VARIANTS: usize = 100;

/// Most pairs of a run and a test, over the whole experiment: the plan holds an encoding for each.
const MAX_EVALUATIONS: usize = 1_000_000;

/// Tables that are read as lists of their values if they are written as lists.
const TABLES: [&str; 5] = ["model", "train", "train.adamw", "eval", "report"];

/// One cell of an experiment as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
    name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default = "one_seed")]
    seeds: Vec<u64>,
    task: TaskConfig,
    model: ModelSection,
    train: TrainSection,
    eval: EvalSection,
    #[serde(default)]
    report: ReportSection,
}

/// `[report]`: what the report holds the records against. No part of a run's identity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportSection {
    #[serde(default)]
    claims: Option<PathBuf>,
    #[serde(default)]
    assertions: bool,
}

fn one_seed() -> Vec<u64> {
    vec![0]
}

/// `[model]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelSection {
    d_model: usize,
    n_layers: usize,
    n_heads: usize,
    #[serde(default)]
    head_dim: Option<usize>,
    #[serde(default)]
    d_ff: Option<usize>,
    #[serde(default)]
    norm: NormKind,
    #[serde(default)]
    activation: Activation,
    #[serde(default)]
    tied_head: bool,
    #[serde(default)]
    dropout: f64,
    #[serde(default = "default_embedding_std")]
    embedding_std: f64,
    #[serde(default)]
    qk_norm: QkNorm,
    #[serde(default)]
    attention: AttentionKind,
    #[serde(default)]
    mask: Mask,
    #[serde(default)]
    feature_map: FeatureMap,
    #[serde(default)]
    normalizer: Normalizer,
    #[serde(default)]
    matmul: Matmul,
    #[serde(default)]
    positions: PositionsConfig,
    #[serde(default)]
    coordinates: Coordinates,
    pe: EncodingConfig,
}

fn default_embedding_std() -> f64 {
    0.02
}

/// `[train]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrainSection {
    train_len: usize,
    steps: u64,
    #[serde(default = "default_batch_size")]
    batch_size: usize,
    #[serde(default)]
    length: LengthCurriculum,
    #[serde(default = "default_min_len")]
    min_len: usize,
    #[serde(default)]
    stages: Vec<StageSection>,
    #[serde(default)]
    start_from: Option<PathBuf>,
    #[serde(default = "default_lr")]
    lr: f64,
    #[serde(default)]
    warmup_steps: Option<u64>,
    #[serde(default = "default_final_lr")]
    final_lr: f64,
    #[serde(default = "default_grad_clip")]
    grad_clip: f64,
    #[serde(default)]
    adamw: AdamWConfig,
}

/// An element of `train.stages`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StageSection {
    steps: u64,
    train_len: usize,
    #[serde(default)]
    batch_size: Option<usize>,
}

fn default_batch_size() -> usize {
    32
}
fn default_min_len() -> usize {
    1
}
fn default_lr() -> f64 {
    1e-3
}
fn default_final_lr() -> f64 {
    0.1
}
fn default_grad_clip() -> f64 {
    1.0
}

/// `[eval]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EvalSection {
    test_lens: Vec<usize>,
    #[serde(default)]
    seed: u64,
    #[serde(default = "default_batch_tokens")]
    batch_tokens: usize,
    #[serde(default)]
    decode: Decode,
    #[serde(default)]
    last_tokens: Option<usize>,
    #[serde(default)]
    attention_distance: bool,
    #[serde(default)]
    variants: Vec<VariantSection>,
}

fn default_batch_tokens() -> usize {
    4096
}

/// `[[eval.variants]]`: the trained weights under a changed encoding.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantSection {
    /// Name in tables and plots.
    pub name: String,
    /// Keys and values the trained encoding must have for the variant to apply; all encodings
    /// unless given.
    #[serde(default)]
    pub when: Table,
    /// Keys to change in the trained encoding's table; with `kind`, a whole new encoding.
    #[serde(default)]
    pub set: Table,
    /// What to stack on the trained encoding, after `set`: an encoding's table, or a list of them.
    #[serde(default)]
    pub add: Option<Value>,
    /// Where tokens stand; as in training unless given.
    #[serde(default)]
    pub positions: Option<PositionsConfig>,
}

/// A run, resolved and checked.
pub struct PlannedRun {
    /// What a worker is given.
    pub job: Job,
    /// Trainable numbers.
    pub parameters: u64,
    /// Tokens trained on.
    pub train_tokens: u64,
    /// Tokens read in evaluation, over all variants and lengths: scored, read again to decode
    /// answers, and to watch the weights.
    pub eval_tokens: u64,
    /// The test lengths in tokens.
    pub test_seq_lens: Vec<usize>,
}

/// Every run of an experiment.
#[derive(Default)]
pub struct Plan {
    /// The experiment's name.
    pub name: String,
    /// Headline of the report.
    pub title: String,
    /// Label texts of every axis, in the order of the file: the order of lines and rows.
    pub order: Vec<String>,
    /// Names of the variants, in the order of the file.
    pub variants: Vec<String>,
    /// Claims of a source to hold the records against.
    pub claims: Claims,
    /// Whether to hold them against what a correct suite must show.
    pub assertions: bool,
    /// The runs, seed varying fastest.
    pub runs: Vec<PlannedRun>,
    /// What its author may not expect, a sentence each.
    pub notes: Vec<String>,
    /// The config file as it was named.
    pub path: PathBuf,
    /// The directory that relative paths of the config start from.
    pub directory: PathBuf,
    /// The config with the overrides applied, axes kept.
    pub table: Table,
}

/// Where corpora and relative paths come from.
pub struct Surroundings {
    config_dir: PathBuf,
    cargo_home: Option<PathBuf>,
}

impl Surroundings {
    /// Paths in a config are relative to the config's directory.
    pub fn of(config_dir: &Path) -> Self {
        let home = || std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"));
        let cargo_home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(home()?).join(".cargo")));
        Self {
            config_dir: config_dir.to_owned(),
            cargo_home,
        }
    }

    /// Builds a task for these lengths.
    ///
    /// # Errors
    ///
    /// If a key cannot work or a corpus cannot be used.
    pub fn build(
        &self,
        task: &TaskConfig,
        train_len: usize,
        test_lens: &[usize],
        eval_seed: u64,
    ) -> Result<Box<dyn Task>, TaskError> {
        task.build(&BuildContext {
            config_dir: self.config_dir.clone(),
            lock: LOCK,
            cargo_home: self.cargo_home.clone(),
            train_len,
            test_lens: test_lens.to_vec(),
            eval_seed,
        })
    }
}

/// Reads, expands, checks and resolves a config. Nothing is written and nothing trained.
///
/// # Errors
///
/// The first mistake, with its place.
pub fn plan(path: &Path, overrides: &[String]) -> Result<Plan, Diagnostic> {
    let mut source = Source::read(path)?;
    for text in overrides {
        source.apply_override(text)?;
    }
    let seeds = source
        .get("seeds")
        .and_then(Value::as_array)
        .map_or(1, Vec::len);
    let cells = expand(&source, seeds)?;
    let directory = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let surroundings = Surroundings::of(&directory);
    let (tasks, ids, order) = (HashMap::new(), HashMap::new(), HashSet::new());
    let dropped = BTreeMap::new();
    let mut plan = Plan {
        path: path.to_owned(),
        directory: directory.clone(),
        table: source.table().clone(),
        ..Plan::default()
    };
    let mut planner = Planner {
        surroundings,
        directory,
        tasks,
        ids,
        order,
        evaluations: 0,
        dropped,
    };
    for cell in &cells {
        planner.cell(cell, &mut plan)?;
    }
    plan.notes = planner.notes(&plan);
    Ok(plan)
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

struct Planner {
    surroundings: Surroundings,
    directory: PathBuf,
    /// Corpora are read once, not once per cell.
    tasks: HashMap<String, Rc<dyn Task>>,
    ids: HashMap<String, String>,
    /// Labels that are in the plan's order already.
    order: HashSet<String>,
    /// Pairs of a run and a test so far.
    evaluations: usize,
    /// By variant and how to keep them, the trained kinds that the variant evaluates without.
    dropped: BTreeMap<(String, Option<String>), Vec<&'static str>>,
}

impl Planner {
    fn cell(&mut self, cell: &Cell, plan: &mut Plan) -> Result<(), Diagnostic> {
        check_tables(cell)?;
        let written: Experiment = cell.deserialize()?;
        check_name(cell, "name", &written.name)?;
        check_title(cell, written.title.as_deref())?;
        check_seeds(cell, &written.seeds)?;
        check_lengths(cell, &written)?;
        self.count_evaluations(cell, &written)?;
        let task = self.task(cell, &written)?;
        let model = model(cell, &written.model, task.vocab_size())?;
        check_sees_no_answer(cell, &model, task.as_ref())?;
        check_scores(cell, &written.eval, &model, task.as_ref())?;
        let train = train(cell, &written, task.as_ref())?;
        let lengths = |test_len| Lengths {
            train_len: train.seq_len,
            test_len: task.seq_len(test_len),
        };
        let mut encoding = written.model.pe.clone();
        encoding.resolve(&lengths(train.train_len));
        let shape = model.shape();
        encoding
            .check(&shape)
            .map_err(|error| refused(cell, "model.pe", &error))?;
        let facts = encoding.facts(&shape);
        model
            .check_encoding(&facts)
            .map_err(|error| refused(cell, "model", &error))?;
        let test_lens = written.eval.test_lens.clone();
        let longest = test_lens
            .iter()
            .map(|length| task.seq_len(*length))
            .max()
            .unwrap_or(0);
        let mut positions = written.model.positions.clone();
        positions.resolve(&lengths(train.train_len), longest);
        check_positions(
            cell,
            "model.positions",
            &positions,
            &facts,
            &model,
            train.seq_len,
        )?;
        check_coordinates(cell, &written.model, &positions, &facts, task.as_ref())?;
        let rows = positions.rows(train.seq_len);
        if let Some(limit) = facts.max_position.filter(|limit| *limit < rows) {
            let reach = if rows == train.seq_len {
                String::new()
            } else {
                format!(" at positions up to {}", rows - 1)
            };
            let problem = format!(
                "is shorter than the training sequences of {} tokens{reach}",
                train.seq_len
            );
            let help = format!("set model.pe.max_position to at least {rows}");
            return Err(cell
                .error(
                    "model.pe.max_position",
                    &problem,
                    &format!("{rows} or more"),
                    &help,
                )
                .with_value(limit));
        }
        let trained = VariantSpec {
            name: TRAINED.to_owned(),
            pe: vec![encoding.clone(); test_lens.len()],
            positions: Vec::new(),
        };
        let mut variants = vec![trained];
        let count = written.eval.variants.len();
        if count > MAX_VARIANTS {
            let allowed = format!("at most {MAX_VARIANTS} variants");
            return Err(cell.error(
                "eval.variants",
                &format!("has {count} of them"),
                &allowed,
                "put encodings to train on an axis",
            ));
        }
        for (index, variant) in written.eval.variants.iter().enumerate() {
            let key = format!("eval.variants.{index}");
            check_name(cell, &format!("{key}.name"), &variant.name)?;
            check_when(cell, &format!("{key}.when"), &variant.when)?;
            if variants.iter().any(|other| other.name == variant.name)
                || written.eval.variants[..index]
                    .iter()
                    .any(|other| other.name == variant.name)
            {
                let help = format!(
                    "`{TRAINED}` is the encoding as trained; every other variant needs a name of \
                     its own"
                );
                return Err(cell.error(
                    &format!("{key}.name"),
                    "is used twice",
                    "a name of its own",
                    &help,
                ));
            }
            if !plan.variants.contains(&variant.name) {
                plan.variants.push(variant.name.clone());
            }
            let pe = cell
                .table
                .get("model")
                .and_then(|model| model.get("pe"))
                .and_then(Value::as_table);
            let pe = pe.cloned().unwrap_or_default();
            if !applies(&variant.when, &pe) {
                continue;
            }
            if variant.set.is_empty() && variant.add.is_none() && variant.positions.is_none() {
                let help = "write set = { scaling = { kind = \"yarn\" } }, add = { kind = \
                            \"window\" } or positions = { kind = \"interpolated\" }";
                let problem = format!(
                    "changes nothing: it has neither `{key}.set` nor `{key}.add` nor \
                     `{key}.positions`"
                );
                return Err(cell.error(
                    &key,
                    &problem,
                    "`set`, `add`, `positions` or several of them",
                    help,
                ));
            }
            let (trained, trained_encoding) = (written.model.pe.kind(), &encoding);
            let base = if variant.add.is_some() && variant.set.is_empty() {
                // Defaults that depend on lengths keep the values of training.
                encoding.clone()
            } else {
                changed(&pe, &variant.set).map_err(|problem| {
                    set_refused(cell, &format!("{key}.set"), variant, &pe, trained, &problem)
                })?
            };
            let added = additions_of(cell, &key, variant)?;
            let in_variant = |error: Diagnostic| {
                error.with_note(format!(
                    "in variant `{}` of the trained encoding `{trained}`",
                    variant.name
                ))
            };
            let encodings = test_lens.iter().map(|test_len| {
                let (mut base, mut added) = (base.clone(), added.clone());
                base.resolve(&lengths(*test_len));
                base.check(&shape)
                    .map_err(|error| refused(cell, &format!("{key}.set"), &error))?;
                if let Some(add) = &variant.add {
                    added
                        .iter_mut()
                        .for_each(|one| one.resolve(&lengths(*test_len)));
                    check_additions(add, &base, &added, &shape)
                        .map_err(|error| in_variant(refused(cell, &key, &error)))?;
                }
                let encoding = stacked(base, &added);
                model
                    .check_encoding(&encoding.facts(&shape))
                    .map_err(|error| in_variant(refused(cell, "model", &error)))?;
                if variant.add.is_some() && variant.positions.is_none() {
                    check_positions(
                        cell,
                        "model.positions",
                        &positions,
                        &encoding.facts(&shape),
                        &model,
                        1,
                    )
                    .map_err(in_variant)?;
                }
                check_coordinates(
                    cell,
                    &written.model,
                    &positions,
                    &encoding.facts(&shape),
                    task.as_ref(),
                )?;
                let missing = untrained(trained_encoding, &encoding, &shape);
                if !missing.is_empty() {
                    let missing = missing
                        .iter()
                        .map(|(path, shape)| format!("{path} {shape:?}"))
                        .collect::<Vec<_>>()
                        .join(", ");
                    let problem = format!(
                        "needs parameters that `{}` was not trained with: {missing}",
                        encoding.kind()
                    );
                    let help = "evaluate a trained model only under encodings without parameters \
                                of their own, or add it to [axes] and train it";
                    return Err(cell.error(
                        &format!("{key}.set"),
                        &problem,
                        "an encoding with the trained parameters, or with none",
                        help,
                    ));
                }
                Ok(encoding)
            });
            let encodings = encodings.collect::<Result<Vec<EncodingConfig>, Diagnostic>>()?;
            self.note_dropped(variant, &encoding, &encodings[0], &shape);
            let positions = test_lens
                .iter()
                .zip(&encodings)
                .filter_map(|(test_len, encoding)| {
                    let mut positions = variant.positions.clone()?;
                    positions.resolve(&lengths(*test_len), longest);
                    let checked = check_positions(
                        cell,
                        &format!("{key}.positions"),
                        &positions,
                        &encoding.facts(&shape),
                        &model,
                        1,
                    );
                    Some(checked.map(|()| positions))
                });
            let positions = positions.collect::<Result<_, Diagnostic>>()?;
            variants.push(VariantSpec {
                name: variant.name.clone(),
                pe: encodings,
                positions,
            });
        }
        let parameters = model.num_params(&facts);
        if parameters > MAX_PARAMETERS {
            let allowed = format!("at most {MAX_PARAMETERS} of them");
            let help = "lower d_model, d_ff, n_layers, head_dim or the size of a table of model.pe";
            return Err(cell
                .error("model", "has too many parameters", &allowed, help)
                .with_value(format!("{parameters} parameters")));
        }
        let EvalSection {
            seed,
            batch_tokens,
            decode,
            last_tokens,
            attention_distance,
            ..
        } = written.eval;
        let eval = EvalSpec {
            test_lens,
            seed,
            batch_tokens,
            decode,
            last_tokens,
            attention_distance,
            variants,
        };
        let eval_tokens = eval_tokens(&eval, task.as_ref(), &positions, |encoding| {
            encoding.facts(&shape)
        });
        for label in &cell.labels {
            if self.order.insert(label.text.clone()) {
                plan.order.push(label.text.clone());
            }
        }
        self.report(cell, &written.report, plan)?;
        plan.title = written
            .title
            .clone()
            .unwrap_or_else(|| written.name.clone());
        plan.name.clone_from(&written.name);
        for seed in &written.seeds {
            let found = warm_start(cell, &written, &self.directory, &model, &encoding, *seed)?;
            let start = found.as_ref().map(|found| found.start.clone());
            let (start_dir, started_from) =
                found.map(|found| (found.directory, found.method)).unzip();
            let spec = RunSpec {
                task: written.task.clone(),
                corpus_blake3: task.corpus().map(|corpus| corpus.blake3.clone()),
                model: ModelSpec {
                    transformer: model.clone(),
                    positions: positions.clone(),
                    coordinates: written.model.coordinates,
                    pe: encoding.clone(),
                },
                train: TrainSpec {
                    start_from: start,
                    ..train.clone()
                },
                eval: eval.clone(),
                seed: *seed,
            };
            let labels = labels(cell, &encoding);
            let shown = labels
                .iter()
                .map(|label| format!("{} = {}", label.key, label.text))
                .collect::<Vec<_>>()
                .join(", ");
            let run_id = spec.run_id().map_err(|error| {
                cell.error("", &format!("cannot be written as JSON: {error}"), "", "")
            })?;
            if let Some(other) = self.ids.insert(run_id.clone(), shown.clone()) {
                let problem = format!(
                    "two runs are the same once defaults are filled in: {other} and {shown}"
                );
                return Err(cell.error(
                    cell.labels
                        .first()
                        .map_or("seeds", |label| label.key.as_str()),
                    &problem,
                    "values that differ",
                    "remove one of the two",
                ));
            }
            // No overflow: at most 10^8 steps of 2^24 tokens.
            let train_tokens = spec.train.tokens();
            let job = Job {
                run_id,
                experiment: written.name.clone(),
                labels,
                config_dir: self.directory.clone(),
                start_dir,
                started_from,
                spec,
            };
            let test_seq_lens = job
                .spec
                .eval
                .test_lens
                .iter()
                .map(|length| task.seq_len(*length))
                .collect();
            plan.runs.push(PlannedRun {
                job,
                parameters,
                train_tokens,
                eval_tokens,
                test_seq_lens,
            });
        }
        Ok(())
    }

    fn note_dropped(
        &mut self,
        variant: &VariantSection,
        trained: &EncodingConfig,
        encoding: &EncodingConfig,
        shape: &ModelShape,
    ) {
        let kinds = dropped(&variant.set, trained, encoding, shape);
        if kinds.is_empty() {
            return;
        }
        let own = variant
            .add
            .is_none()
            .then(|| keeping(&variant.set, trained, encoding, shape));
        let noted = self
            .dropped
            .entry((variant.name.clone(), own.flatten()))
            .or_default();
        noted.extend(kinds);
        let mut seen = HashSet::new();
        noted.retain(|kind| seen.insert(*kind));
    }

    /// Variants that drop trained encodings, then lengths that have no value.
    fn notes(&self, plan: &Plan) -> Vec<String> {
        let dropped = self.dropped.iter();
        let mut notes: Vec<String> = dropped
            .map(|((name, keeping), kinds)| dropped_note(name, kinds, keeping.as_deref()))
            .collect();
        for run in &plan.runs {
            for note in unsupported_notes(run) {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
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
        if let Some(label) = cell
            .labels
            .iter()
            .find(|label| label.key == "report" || label.key.starts_with("report."))
        {
            let key = &label.key;
            return Err(cell.error(
                key,
                "cannot be an axis: there is one report",
                "a single value",
                "take it out of [axes]",
            ));
        }
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
    fn count_evaluations(&mut self, cell: &Cell, written: &Experiment) -> Result<(), Diagnostic> {
        let (variants, lengths) = (
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

    fn task(&mut self, cell: &Cell, written: &Experiment) -> Result<Rc<dyn Task>, Diagnostic> {
        let (train, eval) = (&written.train, &written.eval);
        let key = format!(
            "{:?} {} {:?} {}",
            written.task, train.train_len, eval.test_lens, eval.seed
        );
        if let Some(task) = self.tasks.get(&key) {
            return Ok(task.clone());
        }
        let built =
            self.surroundings
                .build(&written.task, train.train_len, &eval.test_lens, eval.seed);
        let task: Rc<dyn Task> = built.map_err(|error| task_refused(cell, &error))?.into();
        self.tasks.insert(key, task.clone());
        Ok(task)
    }
}

/// The cell's values on the axes; without axes, the kind of encoding.
fn labels(cell: &Cell, encoding: &EncodingConfig) -> Vec<results::record::Label> {
    if cell.labels.is_empty() {
        let kind = encoding.kind();
        return vec![results::record::Label {
            key: "model.pe".to_owned(),
            text: kind.to_owned(),
            value: kind.into(),
        }];
    }
    let label = |label: &crate::config::axes::Label| {
        let value = serde_json::to_value(&label.value).unwrap_or_default();
        results::record::Label {
            key: label.key.clone(),
            text: label.text.clone(),
            value,
        }
    };
    cell.labels.iter().map(label).collect()
}

/// Whether the trained encoding's table has every key and value of a filter.
pub fn applies(when: &Table, pe: &Table) -> bool {
    when.iter()
        .all(|(key, value)| pe.get(key).is_some_and(|own| same(own, value)))
}

/// The trained encoding's table with `set` in it; a `set` with `kind` stands alone.
///
/// # Errors
///
/// Serde's message, with the path of the key.
pub fn changed(pe: &Table, set: &Table) -> Result<EncodingConfig, String> {
    let mut table = if set.contains_key("kind") {
        Table::new()
    } else {
        pe.clone()
    };
    table.extend(set.clone());
    crate::config::diagnostic::normalise(&mut table);
    serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
        let (path, message) = (error.path().to_string(), error.inner().message().to_owned());
        if path == "." {
            message
        } else {
            format!("{path}: {message}")
        }
    })
}

/// Reads what a variant adds.
fn additions_of(
    cell: &Cell,
    key: &str,
    variant: &VariantSection,
) -> Result<Vec<EncodingConfig>, Diagnostic> {
    let keys = variant
        .add
        .iter()
        .flat_map(additions)
        .map(|(below, _)| format!("{key}.{below}"));
    let read = |key: String| {
        let path = KeyPath::parse(&key).unwrap_or_default();
        deserialize_at::<EncodingConfig>(&cell.table, &path, &cell.origins)
    };
    let note = || {
        format!(
            "in variant `{}`, which adds to the trained encoding",
            variant.name
        )
    };
    keys.map(|key| read(key).map_err(|error| error.with_note(note())))
        .collect()
}

/// Tells at which lengths a run has no value, for the trained encoding and for variants that
/// differ.
fn unsupported_notes(run: &PlannedRun) -> Vec<String> {
    const SHOWN: usize = 8;
    let spec = &run.job.spec;
    let shape = spec.model.transformer.shape();
    let mut notes = Vec::new();
    let mut told = Vec::new();
    for variant in &spec.eval.variants {
        let at = |index: usize| {
            let positions = variant
                .positions
                .get(index)
                .unwrap_or(&spec.model.positions);
            let (encoding, seq_len) = (&variant.pe[index], run.test_seq_lens[index]);
            unsupported(spec, encoding, positions, seq_len)?;
            let drawn_out_of = positions.max_seq_len().filter(|longest| seq_len > *longest);
            let ends = |part: &&EncodingConfig| part.facts(&shape).max_position;
            let part = leaves(encoding)
                .into_iter()
                .filter(|part| ends(part).is_some())
                .min_by_key(ends);
            Some(match (drawn_out_of, part) {
                (Some(longest), _) => (
                    positions.kind(),
                    format!("positions are drawn out of {longest}"),
                ),
                (None, Some(part)) => (
                    part.kind(),
                    format!("max_position = {}", ends(&part).unwrap_or(0)),
                ),
                (None, None) => (encoding.kind(), "it has no value there".to_owned()),
            })
        };
        let mut by_reason: BTreeMap<(&str, String), Vec<usize>> = BTreeMap::new();
        for (index, test_len) in spec.eval.test_lens.iter().enumerate() {
            if let Some(reason) = at(index) {
                by_reason.entry(reason).or_default().push(*test_len);
            }
        }
        for ((kind, reason), mut lengths) in by_reason {
            lengths.sort_unstable();
            let mut shown: Vec<String> = lengths
                .iter()
                .take(SHOWN)
                .map(ToString::to_string)
                .collect();
            if lengths.len() > SHOWN {
                shown.push(format!("{} more", lengths.len() - SHOWN));
            }
            let text = format!(
                "`{kind}` has no value at {}: recorded as unsupported ({reason})",
                shown.join(", ")
            );
            if !told.contains(&text) {
                let whose = if variant.name == TRAINED {
                    String::new()
                } else {
                    format!("variant `{}`: ", variant.name)
                };
                notes.push(format!("{whose}{text}"));
                told.push(text);
            }
        }
    }
    notes
}

/// Tells what is wrong with `set`, whose change of the trained encoding's table could not be read.
fn set_refused(
    cell: &Cell,
    key: &str,
    variant: &VariantSection,
    pe: &Table,
    trained: &str,
    problem: &str,
) -> Diagnostic {
    let mut table = if variant.set.contains_key("kind") {
        Table::new()
    } else {
        pe.clone()
    };
    table.extend(variant.set.clone());
    let path = KeyPath::parse(key).unwrap_or_default();
    let mut whole = cell.table.clone();
    let placed = set(&mut whole, path.parts(), Value::Table(table)).is_ok();
    let told = deserialize_at::<EncodingConfig>(&whole, &path, &cell.origins)
        .err()
        .filter(|_| placed);
    let error =
        told.unwrap_or_else(|| cell.error(key, &format!("cannot be read: {problem}"), "", ""));
    let help = error.help.clone().unwrap_or_else(|| {
        "restrict the variant with `when = { kind = \"...\" }`, or correct `set`".to_owned()
    });
    error
        .with_note(format!(
            "in variant `{}`, which changes the trained encoding `{trained}`",
            variant.name
        ))
        .with_help(help)
}

/// Refuses a filter that no encoding could pass: an unknown kind, or a key or a type that its kind
/// does not have.
fn check_when(cell: &Cell, key: &str, when: &Table) -> Result<(), Diagnostic> {
    if when.is_empty() {
        return Ok(());
    }
    let path = KeyPath::parse(key).unwrap_or_default();
    // Keys that a kind cannot do without may be left out of a filter.
    let here = TableName::from(&path);
    let left_out = |error: &Diagnostic| matches!(&error.problem, Problem::MissingKey { table, .. } if *table == here);
    let read = |table: &Table| match deserialize_at::<EncodingConfig>(table, &path, &cell.origins) {
        Err(error) if !left_out(&error) => Err(error),
        _ => Ok(()),
    };
    if when.contains_key("kind") {
        return read(&cell.table);
    }
    let of_kind = |kind: &&str| {
        let mut table = cell.table.clone();
        let kind = Value::String((*kind).to_owned());
        set(&mut table, path.child("kind").parts(), kind).is_ok() && read(&table).is_ok()
    };
    if EncodingConfig::KINDS.iter().any(of_kind) {
        return Ok(());
    }
    let first = when.keys().next().map_or("", String::as_str);
    let problem = "asks for what no encoding has";
    Err(cell.error(
        &path.child(first).to_string(),
        problem,
        "keys of one encoding, with values of their types",
        "add `kind` to see which",
    ))
}

/// Refuses a list where a table belongs: it would be read as the table's values in their order.
fn check_tables(cell: &Cell) -> Result<(), Diagnostic> {
    let variants = KeyPath::new(["eval", "variants"]);
    let count = variants
        .find(&cell.table)
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    let elements = (0..count).map(|index| variants.child(index.to_string()));
    let tables = TABLES
        .iter()
        .map(|key| KeyPath::parse(key).unwrap_or_default());
    match tables
        .chain(elements)
        .find(|path| path.find(&cell.table).is_some_and(Value::is_array))
    {
        Some(path) => Err(cell.error(
            &path.to_string(),
            "must be a table, not a list",
            "a table",
            "write { key = value, ... }",
        )),
        None => Ok(()),
    }
}

fn refused(cell: &Cell, table: &str, error: &ConfigError) -> Diagnostic {
    cell.error(
        &format!("{table}.{}", error.key),
        &error.problem,
        &error.allowed,
        &error.hint,
    )
    .with_value(&error.value)
}

/// Refuses positions that the encoding cannot see, or that training cannot be given.
fn check_positions(
    cell: &Cell,
    table: &str,
    positions: &PositionsConfig,
    facts: &posenc::Facts,
    model: &TransformerConfig,
    seq_len: usize,
) -> Result<(), Diagnostic> {
    positions
        .check(facts)
        .map_err(|error| refused(cell, table, &error))?;
    let replaced = matches!(positions, PositionsConfig::RandomizedDistances(_));
    if replaced && facts.hooks.logits_bias && model.attention == AttentionKind::Linear {
        let problem = "makes the bias no decay any more, and linear attention carries decays alone";
        let help = "use kind = \"randomized\", or attention = \"softmax\"";
        return Err(cell
            .error(&format!("{table}.kind"), problem, "other positions", help)
            .with_value(positions.kind()));
    }
    match positions.max_seq_len().filter(|longest| *longest < seq_len) {
        None => Ok(()),
        Some(longest) => {
            let key = if replaced {
                "max_distance"
            } else {
                "max_position"
            };
            let problem = format!("leaves no room for the training sequences of {seq_len} tokens");
            let help = "leave it out for four times the training length";
            Err(cell
                .error(
                    &format!("{table}.{key}"),
                    &problem,
                    &format!("{seq_len} or more"),
                    help,
                )
                .with_value(longest))
        }
    }
}

/// Refuses the task's coordinates where it has none, where nothing reads them, or where positions
/// bring their own.
fn check_coordinates(
    cell: &Cell,
    model: &ModelSection,
    positions: &PositionsConfig,
    facts: &posenc::Facts,
    task: &dyn Task,
) -> Result<(), Diagnostic> {
    if model.coordinates == Coordinates::Positions {
        return Ok(());
    }
    let axes = task.axes(1).len();
    let (problem, allowed, help) = if axes == 0 {
        (
            format!("come from the task, and `{}` has none", task.kind()),
            "positions",
            "remove it, or use task.kind = \"grid\"",
        )
    } else if matches!(positions, PositionsConfig::Grid(_)) {
        (
            "come from the task, and from model.positions too".to_owned(),
            "one of the two",
            "remove model.positions",
        )
    } else if facts.axes > axes {
        (
            format!(
                "have {axes} axes in task `{}`, and the encoding reads {}",
                task.kind(),
                facts.axes
            ),
            "positions",
            "set model.pe.axes = 2",
        )
    } else {
        return Ok(());
    };
    Err(cell
        .error("model.coordinates", &problem, allowed, help)
        .with_value("task"))
}

fn task_refused(cell: &Cell, error: &TaskError) -> Diagnostic {
    match error {
        TaskError::Config(error) => {
            let key = format!("task.{}", error.key);
            let (problem, allowed) = (&error.problem, &error.allowed);
            cell.error(&key, problem, allowed, &error.hint)
                .with_value(&error.value)
        }
        TaskError::Input {
            path,
            problem,
            hint,
        } => {
            // The key that names files, where one does; the corpus of the task itself otherwise.
            let written = |key: &&&str| {
                KeyPath::parse(key).is_ok_and(|path| path.find(&cell.table).is_some())
            };
            let mut keys = ["task.files", "task.split.valid", "task.crates", "task"]
                .iter()
                .filter(written);
            let named = path
                .as_ref()
                .and_then(|path| path.file_name())
                .map(|name| name.to_string_lossy().into_owned());
            let names_it = |key: &&&str| {
                named
                    .as_ref()
                    .is_some_and(|name| list_names(cell, key, name))
            };
            let key = keys
                .clone()
                .find(names_it)
                .or_else(|| keys.next())
                .unwrap_or(&"task");
            let path = path
                .as_ref()
                .map_or_else(String::new, |path| format!("{}: ", path.display()));
            cell.error(key, &format!("{path}{problem}"), "", hint)
                .with_exit(Exit::Input)
        }
    }
}

/// Whether a text of the list at `key` ends in `name`.
fn list_names(cell: &Cell, key: &str, name: &str) -> bool {
    let list = KeyPath::parse(key)
        .ok()
        .and_then(|path| path.find(&cell.table)?.as_array().cloned())
        .unwrap_or_default();
    list.iter()
        .filter_map(Value::as_str)
        .any(|text| text.ends_with(name))
}

/// Names become directories and file names on every system.
fn check_name(cell: &Cell, key: &str, name: &str) -> Result<(), Diagnostic> {
    let first = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let rest = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b));
    // Windows has devices under these names, with any ending, and drops a dot at the end.
    let stem = name.split('.').next().unwrap_or("");
    let numbered = stem
        .strip_prefix("com")
        .or_else(|| stem.strip_prefix("lpt"));
    let device = matches!(stem, "con" | "prn" | "aux" | "nul")
        || numbered.is_some_and(|n| n.len() == 1 && n.bytes().all(|b| b.is_ascii_digit()));
    if first && rest && name.len() <= 100 && !name.contains("..") && !name.ends_with('.') && !device
    {
        return Ok(());
    }
    let allowed = "1 to 100 of a-z, 0-9, `.`, `_` and `-`, beginning with a letter or a digit, \
                   not ending in a dot, no name of a device";
    Err(cell.error(
        key,
        "is used for directories and files and cannot be",
        allowed,
        "choose a short lower-case name such as \"theta-base\"",
    ))
}

fn check_title(cell: &Cell, title: Option<&str>) -> Result<(), Diagnostic> {
    const LONGEST: usize = 200;
    match title {
        Some(title) if title.trim().is_empty() || title.chars().count() > LONGEST => {
            let allowed = format!("a text of 1 to {LONGEST} characters");
            Err(cell.error(
                "title",
                "heads the report and cannot be",
                &allowed,
                "leave it out for the name",
            ))
        }
        _ => Ok(()),
    }
}

fn check_seeds(cell: &Cell, seeds: &[u64]) -> Result<(), Diagnostic> {
    if seeds.is_empty() {
        return Err(cell.error(
            "seeds",
            "is empty, so there is nothing to run",
            "one whole number or more",
            "write seeds = [0, 1, 2]",
        ));
    }
    let mut seen = BTreeSet::new();
    match seeds.iter().position(|seed| !seen.insert(*seed)) {
        Some(index) => Err(cell.error(
            &format!("seeds.{index}"),
            "is there twice",
            "different seeds",
            "remove one of the two",
        )),
        None => Ok(()),
    }
}

/// Refuses a whole number outside `low..=high`.
fn whole(
    cell: &Cell,
    key: &str,
    value: u64,
    low: u64,
    high: u64,
    help: &str,
) -> Result<(), Diagnostic> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    let allowed = format!("a whole number from {low} to {high}");
    Err(cell
        .error(key, "is out of range", &allowed, help)
        .with_value(value))
}

fn number(
    cell: &Cell,
    key: &str,
    value: f64,
    low: f64,
    high: f64,
    help: &str,
) -> Result<(), Diagnostic> {
    if value.is_finite() && (low..=high).contains(&value) {
        return Ok(());
    }
    Err(cell
        .error(
            key,
            "is out of range",
            &format!("a number from {low} to {high}"),
            help,
        )
        .with_value(value))
}

fn check_lengths(cell: &Cell, written: &Experiment) -> Result<(), Diagnostic> {
    let high = (MAX_LENGTH / 4) as u64;
    whole(
        cell,
        "train.train_len",
        written.train.train_len as u64,
        1,
        high,
        "the longest length to train on, in the task's unit",
    )?;
    let test_lens = &written.eval.test_lens;
    if test_lens.is_empty() || test_lens.len() > 1000 {
        let help = "write eval.test_lens = [64, 128, 256]";
        return Err(cell.error(
            "eval.test_lens",
            "must name the lengths to test at",
            "1 to 1000 lengths",
            help,
        ));
    }
    let mut seen = BTreeSet::new();
    for (index, test_len) in test_lens.iter().enumerate() {
        let key = format!("eval.test_lens.{index}");
        whole(
            cell,
            &key,
            *test_len as u64,
            1,
            high,
            "a length to test at, in the task's unit",
        )?;
        if !seen.insert(*test_len) {
            return Err(cell.error(
                &key,
                "is there twice",
                "different lengths",
                "remove one of the two",
            ));
        }
    }
    whole(
        cell,
        "eval.batch_tokens",
        written.eval.batch_tokens as u64,
        1,
        MAX_BATCH_TOKENS as u64,
        "the default is 4096",
    )?;
    whole(
        cell,
        "train.min_len",
        written.train.min_len as u64,
        1,
        written.train.train_len as u64,
        "it is the shortest length of `length = \"uniform\"`",
    )
}

fn model(
    cell: &Cell,
    written: &ModelSection,
    vocab_size: usize,
) -> Result<TransformerConfig, Diagnostic> {
    whole(
        cell,
        "model.n_heads",
        written.n_heads as u64,
        1,
        1024,
        "set it to at least 1",
    )?;
    whole(
        cell,
        "model.d_model",
        written.d_model as u64,
        1,
        1 << 16,
        "this suite is for small models",
    )?;
    let head_dim = match written.head_dim {
        Some(head_dim) => head_dim,
        None if written.d_model.is_multiple_of(written.n_heads) => {
            written.d_model / written.n_heads
        }
        None => {
            let divisors: Vec<usize> = (1..=written.d_model.min(1024))
                .filter(|n| written.d_model.is_multiple_of(*n))
                .collect();
            let nearest = divisors
                .iter()
                .min_by_key(|n| n.abs_diff(written.n_heads))
                .copied()
                .unwrap_or(1);
            let allowed = divisors
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ");
            let problem = format!("must divide d_model = {}", written.d_model);
            let help = format!("set model.n_heads to {nearest}, or give model.head_dim");
            return Err(cell
                .error("model.n_heads", &problem, &allowed, &help)
                .with_value(written.n_heads));
        }
    };
    let config = TransformerConfig {
        vocab_size,
        d_model: written.d_model,
        n_layers: written.n_layers,
        n_heads: written.n_heads,
        head_dim,
        d_ff: written.d_ff.unwrap_or(4 * written.d_model),
        norm: written.norm,
        activation: written.activation,
        tied_head: written.tied_head,
        dropout: written.dropout,
        embedding_std: written.embedding_std,
        attention: written.attention,
        mask: written.mask,
        feature_map: written.feature_map,
        normalizer: written.normalizer,
        qk_norm: written.qk_norm,
        matmul: written.matmul,
    };
    config
        .check()
        .map_err(|error| refused(cell, "model", &error))?;
    Ok(config)
}

/// Refuses a model that sees what comes after a token with a task whose answers stand there.
fn check_sees_no_answer(
    cell: &Cell,
    model: &TransformerConfig,
    task: &dyn Task,
) -> Result<(), Diagnostic> {
    if model.mask == Mask::Causal || task.scoring() == Scoring::Masked {
        return Ok(());
    }
    let problem = format!(
        "lets the model read the answers of task `{}`, each of which is the next token",
        task.kind()
    );
    let help = "remove it, or use task.kind = \"masked_text\", whose answers are hidden";
    Err(cell
        .error("model.mask", &problem, "causal", help)
        .with_value("bidirectional"))
}

/// Refuses ways of scoring that the task has no use for.
fn check_scores(
    cell: &Cell,
    eval: &EvalSection,
    model: &TransformerConfig,
    task: &dyn Task,
) -> Result<(), Diagnostic> {
    if eval.attention_distance && model.attention == AttentionKind::Linear {
        let help = "remove it, or use model.attention = \"softmax\"";
        return Err(cell
            .error(
                "eval.attention_distance",
                "needs weights, and linear attention has none",
                "false",
                help,
            )
            .with_value(true));
    }
    if eval.decode != Decode::TeacherForced && task.scoring() != Scoring::Answer {
        let problem = format!(
            "has nothing to decode: task `{}` asks for no answers",
            task.kind()
        );
        return Err(cell.error(
            "eval.decode",
            &problem,
            "teacher_forced",
            "remove it, or use a task with answers, such as copy",
        ));
    }
    let Some(last) = eval.last_tokens else {
        return Ok(());
    };
    if task.scoring() != Scoring::LanguageModel {
        let problem = format!(
            "is for text: task `{}` is scored where its answers are",
            task.kind()
        );
        return Err(cell
            .error("eval.last_tokens", &problem, "absent", "remove it")
            .with_value(last));
    }
    let shortest = eval.test_lens.iter().copied().min().unwrap_or(1) as u64;
    whole(
        cell,
        "eval.last_tokens",
        last as u64,
        1,
        shortest,
        "every test window has so many predictions at its end",
    )
}

/// Tokens that an evaluation reads: every one once for its score, once more to watch the weights,
/// and to decode answers once from a cache or, for each counted place, all those before it.
fn eval_tokens(
    eval: &EvalSpec,
    task: &dyn Task,
    trained: &PositionsConfig,
    facts: impl Fn(&EncodingConfig) -> Facts,
) -> u64 {
    let lengths = eval.test_lens.iter().map(|length| {
        let read = task.seq_len(*length) as u64;
        let is_decoded = eval.decode != Decode::TeacherForced;
        let row = if is_decoded {
            task.test_batch(*length, 0, 1).counted
        } else {
            Vec::new()
        };
        let prefixes: u64 = row
            .iter()
            .zip(1..)
            .filter(|(counted, _)| **counted)
            .map(|(_, prefix): (_, u64)| prefix)
            .sum();
        (task.test_rows(*length) as u64, read, prefixes)
    });
    let lengths: Vec<(u64, u64, u64)> = lengths.collect();
    let of_variant = |variant: &VariantSpec| -> u64 {
        let tokens = lengths.iter().zip(&variant.pe).enumerate().map(
            |(index, (&(rows, read, prefixes), encoding))| {
                let (facts, positions) = (
                    facts(encoding),
                    variant.positions.get(index).unwrap_or(trained),
                );
                let again = if eval.attention_distance { read } else { 0 };
                let decoded = match eval.decode.is_greedy(&facts, positions) {
                    false => 0,
                    true if changes_with_length(&facts, positions) => prefixes,
                    true => read,
                };
                rows.saturating_mul(read + again + decoded)
            },
        );
        tokens.fold(0, u64::saturating_add)
    };
    eval.variants
        .iter()
        .map(of_variant)
        .fold(0, u64::saturating_add)
}

fn train(cell: &Cell, written: &Experiment, task: &dyn Task) -> Result<TrainSpec, Diagnostic> {
    let train = &written.train;
    whole(
        cell,
        "train.steps",
        train.steps,
        1,
        100_000_000,
        "at least one step is needed to train",
    )?;
    whole(
        cell,
        "train.batch_size",
        train.batch_size as u64,
        1,
        1 << 16,
        "the default is 32",
    )?;
    number(
        cell,
        "train.lr",
        train.lr,
        1e-12,
        1e9,
        "the default is 0.001",
    )?;
    number(
        cell,
        "train.final_lr",
        train.final_lr,
        0.0,
        1.0,
        "it is a fraction of train.lr; the default is 0.1",
    )?;
    number(
        cell,
        "train.grad_clip",
        train.grad_clip,
        0.0,
        1e9,
        "the default is 1; 0 turns clipping off",
    )?;
    let AdamWConfig {
        beta1,
        beta2,
        eps,
        weight_decay,
    } = train.adamw;
    number(
        cell,
        "train.adamw.beta1",
        beta1,
        0.0,
        0.999_999,
        "PyTorch's default is 0.9",
    )?;
    number(
        cell,
        "train.adamw.beta2",
        beta2,
        0.0,
        0.999_999_9,
        "PyTorch's default is 0.999",
    )?;
    number(
        cell,
        "train.adamw.eps",
        eps,
        1e-16,
        1.0,
        "PyTorch's default is 1e-8",
    )?;
    number(
        cell,
        "train.adamw.weight_decay",
        weight_decay,
        0.0,
        1e3,
        "PyTorch's default is 0.01",
    )?;
    // A twentieth of the steps, as most recipes for small models have it.
    let warmup_steps = train.warmup_steps.unwrap_or(train.steps / 20);
    whole(
        cell,
        "train.warmup_steps",
        warmup_steps,
        0,
        train.steps,
        "warm-up ends before the training does",
    )?;
    let tests = written
        .eval
        .test_lens
        .iter()
        .enumerate()
        .map(|(index, length)| (format!("eval.test_lens.{index}"), *length));
    for (key, length) in tests.chain([("train.train_len".to_owned(), train.train_len)]) {
        let tokens = task.seq_len(length);
        if tokens > MAX_LENGTH {
            let allowed = format!("lengths of at most {MAX_LENGTH} tokens");
            let problem = format!("asks for a sequence of {tokens} tokens");
            return Err(cell.error(
                &key,
                &problem,
                &allowed,
                "positions beyond are not exact in f32",
            ));
        }
    }
    let seq_len = task.seq_len(train.train_len);
    if train.batch_size.saturating_mul(seq_len) > MAX_BATCH_TOKENS {
        let problem = format!("rows of {seq_len} tokens are more than {MAX_BATCH_TOKENS} tokens");
        let high = MAX_BATCH_TOKENS / seq_len.max(1);
        let error = cell.error(
            "train.batch_size",
            &problem,
            &format!("a whole number from 1 to {high}"),
            "or lower train.train_len",
        );
        return Err(error.with_value(train.batch_size));
    }
    Ok(TrainSpec {
        train_len: train.train_len,
        seq_len,
        steps: train.steps,
        batch_size: train.batch_size,
        start_from: None,
        length: train.length,
        min_len: train.min_len,
        stages: stages(cell, train, task)?,
        lr: train.lr,
        warmup_steps,
        final_lr: train.final_lr,
        grad_clip: train.grad_clip,
        adamw: train.adamw.clone(),
    })
}

/// The stages of a training, which must fill its steps and come to its longest length.
fn stages(cell: &Cell, train: &TrainSection, task: &dyn Task) -> Result<Vec<Stage>, Diagnostic> {
    let staged = train.length == LengthCurriculum::Staged;
    if staged == train.stages.is_empty() {
        let (key, problem) = if staged {
            ("train.length", "needs the stages")
        } else {
            ("train.stages", "are for another kind of lengths")
        };
        let help = "write length = \"staged\" and stages = [{ steps = 900, train_len = 32 }, { \
                    steps = 100, train_len = 64, batch_size = 8 }]";
        return Err(cell.error(key, problem, "both, or neither", help));
    }
    let mut total = 0_u64;
    let mut stages = Vec::new();
    for (index, written) in train.stages.iter().enumerate() {
        let key = |name: &str| format!("train.stages.{index}.{name}");
        let batch_size = written.batch_size.unwrap_or(train.batch_size);
        whole(
            cell,
            &key("steps"),
            written.steps,
            1,
            train.steps,
            "a stage has at least one step, and no more than the training",
        )?;
        whole(
            cell,
            &key("train_len"),
            written.train_len as u64,
            1,
            train.train_len as u64,
            "train.train_len is the longest length",
        )?;
        let seq_len = task.seq_len(written.train_len);
        let most = (MAX_BATCH_TOKENS / seq_len.max(1)).min(1 << 16) as u64;
        whole(
            cell,
            &key("batch_size"),
            batch_size as u64,
            1,
            most,
            "train.batch_size unless given",
        )?;
        total = total.saturating_add(written.steps);
        stages.push(Stage {
            steps: written.steps,
            train_len: written.train_len,
            seq_len,
            batch_size,
        });
    }
    if staged && total != train.steps {
        let (what, by) = if total < train.steps {
            ("a hole", train.steps - total)
        } else {
            ("an overlap", total - train.steps)
        };
        let problem = format!(
            "have {total} steps together, and the training {}: {what} of {by}",
            train.steps
        );
        let help = format!("set train.steps to {total}, or change the steps of a stage");
        return Err(cell.error(
            "train.stages",
            &problem,
            &format!("stages of {} steps together", train.steps),
            &help,
        ));
    }
    if staged
        && !stages
            .iter()
            .any(|stage| stage.train_len == train.train_len)
    {
        let longest = stages
            .iter()
            .map(|stage| stage.train_len)
            .max()
            .unwrap_or(0);
        let problem = format!("is longer than every stage: the longest has {longest}");
        return Err(cell
            .error(
                "train.train_len",
                &problem,
                &longest.to_string(),
                "results are compared with this length",
            )
            .with_value(train.train_len));
    }
    Ok(stages)
}

/// A run to start from.
struct FoundStart {
    start: WarmStart,
    directory: PathBuf,
    /// The method it is a seed of, for the record.
    method: serde_json::Map<String, serde_json::Value>,
}

/// The run to start from: the one below a directory that was trained with this seed and a model of
/// the same shape.
fn warm_start(
    cell: &Cell,
    written: &Experiment,
    directory: &Path,
    model: &TransformerConfig,
    encoding: &EncodingConfig,
    seed: u64,
) -> Result<Option<FoundStart>, Diagnostic> {
    let key = "train.start_from";
    let Some(place) = &written.train.start_from else {
        return Ok(None);
    };
    let place = directory.join(place);
    let refuse =
        |problem: &str, allowed: &str, help: &str| Err(cell.error(key, problem, allowed, help));
    let runs = match jobs(&place) {
        Ok(runs) => runs,
        Err(failure) => {
            return refuse(
                &format!("cannot be read: {}", failure.message),
                "a directory of runs",
                "it is relative to the config",
            );
        }
    };
    let recorded: Vec<(PathBuf, Job, RunRecord)> = runs
        .into_iter()
        .filter_map(|run| {
            let job = read_job(&run).ok()?;
            let record = recorded(&run, &job).filter(|record| record.status == RunStatus::Ok)?;
            (job.spec.seed == seed).then_some((run, job, record))
        })
        .collect();
    let [(run, job, record)] = recorded.as_slice() else {
        let names: Vec<String> = recorded
            .iter()
            .take(5)
            .map(|(run, ..)| run.display().to_string())
            .collect();
        let problem = format!(
            "holds {} recorded runs of seed {seed}: {}",
            recorded.len(),
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            }
        );
        return refuse(
            &problem,
            "one run of each seed",
            "name a directory with one, such as runs/EXPERIMENT/RUN_ID",
        );
    };
    let theirs = &job.spec.model.transformer;
    let shape = |model: &TransformerConfig| {
        let TransformerConfig {
            d_model,
            n_layers,
            n_heads,
            head_dim,
            d_ff,
            vocab_size,
            ..
        } = *model;
        [
            ("d_model", d_model),
            ("n_layers", n_layers),
            ("n_heads", n_heads),
            ("head_dim", head_dim),
            ("d_ff", d_ff),
            ("vocab_size", vocab_size),
        ]
    };
    for ((name, theirs), (_, ours)) in shape(theirs).into_iter().zip(shape(model)) {
        if theirs != ours {
            let problem = format!(
                "leads to weights of another model: {name} is {theirs} there and {ours} here"
            );
            return refuse(
                &problem,
                &format!("a run with {name} = {ours}"),
                &format!("set model.{name}, or name another run"),
            );
        }
    }
    for (name, same) in [
        ("norm", theirs.norm == model.norm),
        ("qk_norm", theirs.qk_norm == model.qk_norm),
        ("activation", theirs.activation == model.activation),
        ("tied_head", theirs.tied_head == model.tied_head),
    ] {
        if !same {
            let problem = format!("leads to weights of another model: {name} is different there");
            return refuse(
                &problem,
                &format!("a run with the same model.{name}"),
                &format!("set model.{name}, or name another run"),
            );
        }
    }
    let same_shapes = job.spec.model.pe.kind() == encoding.kind()
        && job.spec.model.pe.facts(&theirs.shape()).parameters
            == encoding.facts(&model.shape()).parameters;
    let start = WarmStart {
        run_id: record.run_id.clone(),
        weights_blake3: record.model.weights_blake3.clone(),
        parameters: record.model.parameters,
        pe: same_shapes,
    };
    Ok(Some(FoundStart {
        start,
        directory: run.clone(),
        method: record.method_spec(),
    }))
}
