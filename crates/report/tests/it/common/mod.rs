//! Synthetic records: small, exact, and shaped like those of a real experiment.

use records::claims::{Claims, Outcome, experiment_settings};
use records::names::Names;
use records::record::*;
use records::store::{RECORD_FILE, record_text};
use records::{Found, StoreError, find_records, gather_found};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::TAU;
use std::path::{Path, PathBuf};

/// An array of tuples, `a, b; c, d;`. rustfmt leaves macros alone, so that a tuple stays on one line.
macro_rules! cases {
    ($($($cell:expr),+;)*) => { [$(($($cell),+)),*] };
}
pub(crate) use cases;

/// Writes a record as `record.json` into a run's directory, creating it.
pub fn write_record(run_dir: &Path, record: &RunRecord) -> Result<PathBuf, StoreError> {
    let path = run_dir.join(RECORD_FILE);
    let text = record_text(&path, record)?;
    std::fs::create_dir_all(run_dir)?;
    std::fs::write(&path, text)?;
    Ok(path)
}

/// A record without evaluations.
pub fn record(experiment: &str, labels: &[(&str, Value)], seed: u64, task: TaskFacts) -> RunRecord {
    let labels: Vec<Label> = labels
        .iter()
        .map(|(key, value)| Label {
            key: (*key).into(),
            text: value
                .as_str()
                .map_or_else(|| value.to_string(), String::from),
            value: value.clone(),
        })
        .collect();
    let mut encoding = Map::new();
    for label in &labels {
        match label.key.as_str() {
            "model.pe" => encoding.insert("kind".into(), label.value.clone()),
            key => encoding.insert(key.rsplit('.').next().unwrap().into(), label.value.clone()),
        };
    }
    // The shape of a real record's spec.
    let corpus = task.corpus.as_ref().map(|corpus| corpus.blake3.clone());
    let spec = json!({
        "task": { "kind": task.kind },
        "corpus_blake3": corpus,
        "model": { "vocab_size": 256, "d_model": 64, "n_layers": 2, "n_heads": 4, "head_dim": 16, "d_ff": 256, "pe": encoding },
        "train": {
            "train_len": task.train_len, "seq_len": task.train_len, "steps": 2000, "batch_size": 32, "lr": 1e-3,
            "adamw": { "beta1": 0.9, "beta2": 0.999 },
        },
        "eval": { "test_lens": [], "seed": 0, "batch_tokens": 4096, "variants": [] },
        "seed": seed,
    });
    let name: Vec<&str> = labels.iter().map(|l| l.text.as_str()).collect();
    let id = format!(
        "{experiment}/{}/{seed}/{}{}",
        name.join("/"),
        task.kind,
        task.train_len
    );
    RunRecord {
        schema: SCHEMA,
        run_id: hex(&id),
        experiment: experiment.into(),
        labels,
        seed,
        status: RunStatus::Ok,
        diverged: None,
        task,
        model: ModelFacts {
            parameters: 214_528,
            encoding_parameters: 0,
            weights_blake3: hex(&format!("w{id}")),
        },
        encoding_facts: BTreeMap::new(),
        train: TrainFacts {
            steps: 2000,
            tokens: 4_096_000,
            final_loss_nats: Some(1.5 + seed as f64 * 0.01),
            loss_curve: vec![],
            scores: Vec::new(),
            stop_scores: Vec::new(),
        },
        evals: vec![],
        environment: Environment {
            version: "0.1.0".into(),
            commit: "0123abc".into(),
            device: "cpu".into(),
            burn: "0.22.1".into(),
            runs_together: None,
        },
        spec: spec.as_object().unwrap().clone(),
        started_from: None,
        evaluation_of: None,
        by_length: BTreeMap::new(),
        half_of: None,
        selected: None,
        seal: None,
    }
}

/// Writes into the spec what the record's rows were evaluated under.
pub fn describe(run: &mut RunRecord) {
    let lens: Vec<usize> = run
        .evals
        .iter()
        .map(|row| row.test_len)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let names: BTreeSet<&str> = run
        .evals
        .iter()
        .map(|row| row.variant.as_str())
        .chain(["trained"])
        .collect();
    let encoding = |name: &str, len: usize| {
        let mut encoding = run.spec["model"]["pe"].clone();
        if name != "trained" {
            encoding["scaling"] =
                json!({ "kind": name, "factor": len as f64 / run.task.train_len as f64 });
        }
        encoding
    };
    let variants = names.iter().map(|name| {
        let encodings: Vec<Value> = lens.iter().map(|len| encoding(name, *len)).collect();
        json!({ "name": name, "pe": encodings })
    });
    let variants: Vec<Value> = variants.collect();
    run.spec["eval"]["test_lens"] = json!(lens);
    run.spec["eval"]["variants"] = json!(variants);
}

/// A page without its own script and without the marks of its data, which are not script: what is
/// left of `<script` is not ours.
pub fn without_own_script(page: &str) -> String {
    let script = include_str!("../../../src/render/page/page.js");
    let own = format!("<script>{script}</script>");
    let data = "<script type=\"application/json\" class=\"differences\">";
    let runs = "<script type=\"application/json\" class=\"data\">";
    page.replacen(&own, "", 1)
        .replace(data, "<data>")
        .replace(runs, "<data>")
}

/// FNV-1a, spelled out: a stand-in for the run's hash.
pub fn hex(text: &str) -> String {
    let hash = |salt: u64| {
        text.bytes()
            .fold(0xcbf2_9ce4_8422_2325 ^ salt, |h: u64, b| {
                (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)
            })
    };
    format!("{:016x}{:016x}", hash(0), hash(1))
}

pub fn text_task(train_len: usize) -> TaskFacts {
    TaskFacts {
        kind: "text".into(),
        train_len,
        unit: "bytes".into(),
        primary_metric: "loss_nats".into(),
        definitions: BTreeMap::from([(
            "loss_nats".into(),
            "mean cross-entropy of the next byte, in nats, over the last half of the window".into(),
        )]),
        chance: BTreeMap::from([("loss_nats".into(), 256f64.ln())]),
        bytes_per_token: Some(1.0),
        scored: None,
        corpus: Some(CorpusFacts {
            source: "cargo".into(),
            files: 812,
            train_bytes: 9_000_000,
            valid_bytes: 1_000_000,
            blake3: hex("corpus"),
        }),
    }
}

pub fn copy_task(train_len: usize) -> TaskFacts {
    TaskFacts {
        kind: "copy".into(),
        train_len,
        unit: "symbols".into(),
        primary_metric: "exact_match".into(),
        definitions: BTreeMap::from([
            (
                "exact_match".into(),
                "share of sequences with every answer token right".into(),
            ),
            (
                "token_accuracy".into(),
                "share of answer tokens that are right".into(),
            ),
        ]),
        chance: BTreeMap::from([("token_accuracy".into(), 0.125)]),
        bytes_per_token: None,
        scored: None,
        corpus: None,
    }
}

pub fn ok_row(variant: &str, test_len: usize, metrics: &[(&str, f64)]) -> EvalRow {
    EvalRow {
        variant: variant.into(),
        test_len,
        status: EvalStatus::Ok,
        reason: None,
        metrics: metrics
            .iter()
            .map(|(name, value)| {
                (
                    (*name).into(),
                    Metric {
                        value: *value,
                        n: 4096,
                    },
                )
            })
            .collect(),
        loss_by_position: vec![],
        loss_by_block: Vec::new(),
        distinct_rows: None,
        from_len: None,
        denominators: None,
    }
}

pub fn absent_row(variant: &str, test_len: usize, status: EvalStatus, reason: &str) -> EvalRow {
    EvalRow {
        variant: variant.into(),
        test_len,
        status,
        reason: Some(reason.into()),
        metrics: BTreeMap::new(),
        loss_by_position: vec![],
        loss_by_block: Vec::new(),
        distinct_rows: None,
        from_len: None,
        denominators: None,
    }
}

pub const LENGTHS: [usize; 6] = [64, 96, 128, 256, 512, 1024];

/// Loss that grows past the training length by `slope` nats per doubling.
pub fn loss(base: f64, slope: f64, len: usize, seed: u64) -> f64 {
    let wobble = [0.0, 0.013, -0.009, 0.004, -0.011][seed as usize % 5];
    base + wobble + slope * (len as f64 / 64.0).log2().max(0.0) + wobble * slope * 2.0
}

pub fn curve(seed: u64, end: f64) -> Vec<CurvePoint> {
    (1..=120)
        .map(|i| {
            let noise = ((i * 37 + seed * 11) % 17) as f64 / 17.0 - 0.5;
            CurvePoint {
                step: i * 2000 / 120,
                loss_nats: (end + 4.0 * (-(i as f64) / 12.0).exp() + 0.05 * noise).max(0.0),
            }
        })
        .collect()
}

pub fn bins(len: usize, base: f64, slope: f64, seed: u64) -> Vec<PositionBin> {
    let width = len / 32;
    (0..32)
        .map(|i| {
            let from = i * width;
            let past = ((from as f64 + 1.0) / 64.0).log2().max(0.0);
            let early = 0.8 * (-(from as f64) / 24.0).exp();
            PositionBin {
                from,
                to: from + width,
                loss_nats: base + early + slope * past + 0.01 * seed as f64,
            }
        })
        .collect()
}

/// Five methods on text over three seeds, with everything that can happen to a cell.
pub fn text_experiment() -> Vec<RunRecord> {
    let mut out = Vec::new();
    for (pe, base, slope) in [
        ("nope", 1.62, 0.09),
        ("rope", 1.50, 0.62),
        ("alibi", 1.53, -0.01),
        ("learned", 1.58, 0.0),
        ("fire", 1.52, 0.05),
    ] {
        for seed in 1..=3 {
            let mut run = record(
                "length-text",
                &[("model.pe", json!(pe))],
                seed,
                text_task(64),
            );
            run.train.loss_curve = curve(seed, base);
            if pe == "fire" {
                run.model.encoding_parameters = 132;
            }
            if pe == "fire" && seed == 2 {
                run.status = RunStatus::Diverged;
                run.diverged = Some(Divergence {
                    step: 412,
                    what: "loss".into(),
                    batch: None,
                });
                run.train.final_loss_nats = None;
                run.train.loss_curve.truncate(24);
                out.push(run);
                continue;
            }
            let variants: &[(&str, f64)] = if pe == "rope" {
                &[("trained", 1.0), ("yarn", 0.15), ("linear", 0.4)]
            } else {
                &[("trained", 1.0)]
            };
            for (variant, factor) in variants {
                for len in LENGTHS {
                    if pe == "learned" && len > 64 {
                        run.evals.push(absent_row(
                            variant,
                            len,
                            EvalStatus::Unsupported,
                            "table of 64 positions",
                        ));
                        continue;
                    }
                    if pe == "nope" && len == 1024 {
                        run.evals.push(absent_row(
                            variant,
                            len,
                            EvalStatus::Skipped,
                            "eval.max_tokens",
                        ));
                        continue;
                    }
                    let mut row = ok_row(
                        variant,
                        len,
                        &[("loss_nats", loss(base, slope * factor, len, seed))],
                    );
                    row.loss_by_position = bins(len, base, slope * factor, seed);
                    run.evals.push(row);
                }
            }
            describe(&mut run);
            out.push(run);
        }
    }
    // A diverged run was asked for the same evaluations as the other seeds.
    let fire: Vec<usize> = (0..out.len())
        .filter(|&i| out[i].labels[0].text == "fire")
        .collect();
    let eval = out[fire[0]].spec["eval"].clone();
    fire.into_iter()
        .for_each(|i| out[i].spec["eval"] = eval.clone());
    out
}

/// Copying, one seed.
pub fn copy_experiment(seeds: u64) -> Vec<RunRecord> {
    let mut out = Vec::new();
    for (pe, decay) in [("rope", 0.9), ("nope", 0.35), ("alibi", 0.6)] {
        for seed in 1..=seeds {
            let mut run = record("copy", &[("model.pe", json!(pe))], seed, copy_task(16));
            run.train.loss_curve = curve(seed, 0.02);
            for len in [8, 16, 32, 64] {
                let past = (len as f64 / 16.0).log2().max(0.0);
                let score = (0.995 - 0.002 * seed as f64) * (1.0 - decay * past).max(0.0);
                run.evals.push(ok_row(
                    "trained",
                    len,
                    &[
                        ("exact_match", score),
                        ("token_accuracy", 0.5 + score / 2.0),
                        ("loss_nats", 0.1),
                    ],
                ));
            }
            out.push(run);
        }
    }
    out
}

/// A sweep over the base of RoPE.
pub fn base_experiment() -> Vec<RunRecord> {
    let mut out = Vec::new();
    for base in [100.0f64, 1000.0, 10_000.0, 100_000.0, 1_000_000.0] {
        for seed in 1..=3 {
            let labels = [
                ("model.pe", json!("rope")),
                ("model.pe.base", json!(base as u64)),
            ];
            let mut run = record("theta", &labels, seed, text_task(64));
            // Head dimension 16: 8 pairs, the slowest at 2 pi base^(14/16) tokens.
            let wavelengths = (0..8).map(|pair| TAU * base.powf(f64::from(pair) / 8.0));
            run.encoding_facts = BTreeMap::from([
                (
                    encoding_fact::LONGEST_WAVELENGTH.into(),
                    wavelengths.clone().fold(0.0, f64::max),
                ),
                (encoding_fact::ROTARY_PAIRS.into(), 8.0),
                (
                    encoding_fact::PAIRS_BEYOND_TRAINING.into(),
                    wavelengths.filter(|w| *w > 64.0).count() as f64,
                ),
            ]);
            for len in [64, 128, 256, 512] {
                let slope = 0.9 - 0.12 * base.log10();
                run.evals.push(ok_row(
                    "trained",
                    len,
                    &[("loss_nats", loss(1.5, slope, len, seed))],
                ));
            }
            out.push(run);
        }
    }
    out
}

/// Runs of copying: by method, the share of exact answers by length, one list for each seed.
pub fn scores(methods: &[(&str, &[[f64; 4]])]) -> Vec<RunRecord> {
    let mut out = Vec::new();
    for (pe, seeds) in methods {
        for (seed, values) in seeds.iter().enumerate() {
            let mut run = record(
                "copy",
                &[("model.pe", json!(pe))],
                seed as u64,
                copy_task(16),
            );
            for (len, value) in [8, 16, 32, 64].into_iter().zip(values) {
                run.evals
                    .push(ok_row("trained", len, &[("exact_match", *value)]));
            }
            out.push(run);
        }
    }
    out
}

/// What a text must say.
pub trait MustHave {
    /// Fails with the whole text where `part` is not in it.
    fn must_have(&self, part: &str);
}

impl MustHave for str {
    #[track_caller]
    fn must_have(&self, part: &str) {
        // Every text has an empty part.
        assert!(
            !part.is_empty() && self.contains(part),
            "`{part}` is missing:\n{self}"
        );
    }
}

/// Claims and assertions of records, in the settings that these have.
pub trait EvaluateRecords {
    /// As `evaluate`.
    fn evaluate_records(&self, records: &[RunRecord]) -> Vec<Outcome>;
}

impl EvaluateRecords for Claims {
    fn evaluate_records(&self, records: &[RunRecord]) -> Vec<Outcome> {
        self.evaluate(&experiment_settings(records, Names::default()))
    }
}

/// Gathers the records under some roots into a file.
pub fn gather_records(
    roots: &[PathBuf],
    path: &Path,
    most_bins: Option<usize>,
) -> Result<Found, StoreError> {
    gather_found(find_records(roots)?, path, most_bins)
}
