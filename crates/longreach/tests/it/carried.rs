//! The text that the program carries: what it needs, and the runs that are named by it.

use crate::common::{Scratch, exits, longreach, stdout};
use records::RunRecord;
use std::path::Path;

const DEFAULT_TEXT: &str = r#"name = "carried"
seeds = [0]
[task]
kind = "text"
eval_tokens = 64
[model]
d_model = 16
n_layers = 1
n_heads = 2
pe = { kind = "rope" }
[train]
train_len = 8
steps = 2
batch_size = 2
[eval]
test_lens = [8]
"#;

/// The first run of a config of every experiment. Most of them read the default text.
const RECORDED: [(&str, &str); 15] = [
    ("001-quickstart/experiment.toml", "e51f7611ba57d1e1"),
    ("002-catalogue/experiment.toml", "cc8a3f803034d2a7"),
    ("003-theta-base/experiment.toml", "f62745762e5a1af2"),
    ("004-rope-scaling/experiment.toml", "0818e3de51fba2f9"),
    ("005-train-by-test/experiment.toml", "826ea4e51f3e9f5a"),
    ("007-randomized/experiment.toml", "f66f163cc43747c0"),
    ("008-linear-attention/experiment.toml", "2fee8eeb674e0310"),
    ("009-norms/experiment.toml", "ff040244a2485997"),
    ("010-staged-masked/experiment.toml", "0ebae73818d60e4f"),
    ("013-dropping-positions/base.toml", "2bfa87f277023c6d"),
    ("014-dape/experiment.toml", "d032ea9b35c83bdd"),
    ("015-arithmetic/experiment.toml", "f3397ea31b4a5b0e"),
    ("016-far-turns/experiment.toml", "e2d7afc9cdbee69a"),
    ("017-segments/experiment.toml", "d24c6def0d70a9cc"),
    ("018-majority/experiment.toml", "a49193ca7c5201fd"),
];

#[test]
fn ids_of_committed_records_hold_without_cargos_directory() {
    let nowhere = tempfile::tempdir().unwrap();
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    for (config, expected) in RECORDED {
        let mut check = longreach();
        check
            .arg("check")
            .arg(experiments.join(config))
            .arg("--json");
        check.args(["--runs", "none"]).current_dir(nowhere.path());
        check
            .env("HOME", nowhere.path())
            .env("CARGO_HOME", nowhere.path());
        let output = check.output().unwrap();
        exits(&output, 0);
        let plan: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(plan["runs"][0]["run_id"], expected, "{config}");
        let (experiment, _) = config.split_once('/').unwrap();
        let records = experiments.join(experiment).join("results.jsonl");
        let records = std::fs::read_to_string(records).unwrap();
        assert!(records.contains(expected), "{config}: a committed record");
    }
}

#[test]
fn a_program_alone_has_a_text_to_train_on() {
    let nowhere = tempfile::tempdir().unwrap();
    let run = |config: &str| {
        let scratch = Scratch::with(config);
        let mut run = scratch.program("run", &[]);
        run.current_dir(nowhere.path());
        run.env("HOME", nowhere.path())
            .env("CARGO_HOME", nowhere.path());
        exits(&run.output().unwrap(), 0);
        let (_, bytes) = scratch.records().remove(0);
        serde_json::from_slice::<RunRecord>(&bytes).unwrap()
    };
    let record = run(DEFAULT_TEXT);
    let corpus = record.task.corpus.clone().unwrap();
    assert_eq!(
        (corpus.files, corpus.train_bytes, corpus.valid_bytes),
        (728, 8_309_767, 729_314)
    );
    assert_eq!(
        corpus.blake3,
        "a5cc63fd5e03a52c6dec4ab5862b53ca48f7c5c63e9af97a01196cbf365e65c5"
    );
    assert!(
        corpus.source.starts_with("cargo: burn-autodiff 0.22.1, "),
        "{}",
        corpus.source
    );
    let named = run(&DEFAULT_TEXT.replace("\"text\"", "\"text\"\ncorpus = \"rust-2026\""));
    assert_eq!(named, record);
}
