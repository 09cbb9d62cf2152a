//! Greedy decoding against teacher forcing: the same answers where they must be, others where the
//! length is read.

use crate::common::{Scratch, TINY, cases, command, exits, fails, has, lacks, says, stdout, words};
use burn::tensor::Device;
use experiment::run::greedy::greedy;
use experiment::run::model::greedy_tokens;
use experiment::run::model::upload;
use experiment::spec::{Decode, changes_with_length};
use posenc::{EncodingConfig, Init, Lengths, Positions, PositionsConfig};
use serde_json::Value;
use tasks::{Batch, BuildContext, TaskConfig};
use tiny_transformer::{Pass, Transformer, TransformerConfig};

fn task(kind: &str) -> Box<dyn tasks::Task> {
    let ctx = BuildContext {
        config_dir: "".into(),
        lock: "",
        cargo_home: None,
        train_len: 16,
        test_lens: vec![16, 32],
        eval_seed: 0,
        rows: tasks::Rows::Test,
        bidirectional: false,
        carried: None,
    };
    toml::from_str::<TaskConfig>(&format!("kind = \"{kind}\""))
        .unwrap()
        .build(&ctx)
        .unwrap()
}

fn encoding(value: Value) -> EncodingConfig {
    let mut encoding: EncodingConfig = serde_json::from_value(value).unwrap();
    encoding.resolve(&Lengths {
        train_len: 8,
        trained_len: 8,
        test_len: 64,
    });
    encoding
}

fn model(encoding: &EncodingConfig, vocab_size: usize) -> Transformer {
    let config: TransformerConfig = serde_json::from_value(serde_json::json!({
        "vocab_size": vocab_size, "d_model": 16, "n_layers": 2, "n_heads": 2, "head_dim": 8, "d_ff": 32, "norm": "layer_norm",
        "activation": "gelu", "tied_head": false, "dropout": 0.0, "embedding_std": 1.0,
    }))
    .unwrap();
    // Logits large enough for attention to look at something.
    let source = |path: &str, shape: &[usize], distribution| {
        let grown = if path.ends_with("qkv") { 6.0 } else { 1.0 };
        experiment::run::parameters::draw(7, path, shape, distribution)
            .into_iter()
            .map(|x| grown * x)
            .collect()
    };
    Transformer::new(&config, encoding, &Init::new(&Device::flex(), &source))
        .expect("a resolved encoding")
}

fn forced(model: &Transformer, batch: &Batch) -> Vec<i64> {
    let (inputs, _) = upload(batch, &Device::flex());
    greedy_tokens(model.forward(
        inputs,
        &Positions::contiguous(batch.seq_len),
        &Pass::default(),
    ))
}

fn decoded(model: &Transformer, batch: &Batch, reads_its_answers: bool, cached: bool) -> Vec<i64> {
    greedy(
        model,
        batch,
        reads_its_answers,
        &mut Positions::contiguous,
        cached,
        &Device::flex(),
    )
    .unwrap()
}

/// The counted places of a row up to the first one that `guesses` gets wrong.
fn until_wrong(batch: &Batch, guesses: &[i64], row: usize) -> Vec<usize> {
    let places = (row * batch.seq_len..(row + 1) * batch.seq_len).filter(|at| batch.counted[*at]);
    let mut up_to = Vec::new();
    for at in places {
        up_to.push(at);
        if guesses[at] != i64::from(batch.targets[at]) {
            break;
        }
    }
    up_to
}

/// A place with a text, and the task on it.
fn with_text() -> (Scratch, &'static str) {
    let scratch = Scratch::with(TINY);
    let text = "the cat sat on the mat. ".repeat(400);
    scratch.write("text.txt", text);
    let task = "task={kind=\"text\",files=[\"text.txt\"],eval_tokens=256}";
    (scratch, task)
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story: every step builds on the one before"
)]
fn both_agree_up_to_the_first_mistake_where_no_length_is_read() {
    for kind in [
        "copy",
        "addition",
        "flip_flop",
        "stack_manipulation",
        "mqar",
        "summation",
    ] {
        let task = task(kind);
        for pe in [
            serde_json::json!({"kind": "nope"}),
            serde_json::json!({"kind": "learned", "max_position": 256}),
            serde_json::json!({"kind": "rope"}),
            serde_json::json!({"kind": "rope", "scaling": {"kind": "yarn"}}),
            serde_json::json!({"kind": "alibi"}),
            serde_json::json!({"kind": "t5"}),
            serde_json::json!({"kind": "fire"}),
            serde_json::json!({"kind": "shaw"}),
            serde_json::json!({"kind": "fox"}),
        ] {
            let encoding = encoding(pe);
            let model = model(&encoding, task.vocab_size());
            assert!(
                !changes_with_length(&encoding.facts(&model_shape()), &PositionsConfig::default()),
                "{}",
                encoding.kind()
            );
            let batch = task.test_batch(16, 0, 12);
            let (with, without) = [true, false]
                .map(|cached| decoded(&model, &batch, task.reads_its_answers(), cached))
                .into();
            assert_eq!(
                with,
                without,
                "{kind}, {}: a cache changes nothing",
                encoding.kind()
            );
            let forced = forced(&model, &batch);
            for row in 0..batch.rows {
                for at in until_wrong(&batch, &forced, row) {
                    assert_eq!(
                        with[at],
                        forced[at],
                        "{kind}, {}: row {row}, place {}",
                        encoding.kind(),
                        at % batch.seq_len
                    );
                }
                assert_eq!(
                    until_wrong(&batch, &forced, row),
                    until_wrong(&batch, &with, row),
                    "whole answers are right or wrong alike"
                );
            }
            // After a mistake a decoder reads itself, unless nothing of an answer is read.
            let reads = task.reads_its_answers();
            assert!(
                reads || (0..forced.len()).all(|at| !batch.counted[at] || with[at] == forced[at]),
                "{kind}"
            );
        }
    }
}

fn model_shape() -> posenc::ModelShape {
    posenc::ModelShape {
        d_model: 16,
        n_layers: 2,
        n_heads: 2,
        head_dim: 8,
    }
}

#[test]
fn decoding_may_differ_if_length_is_read() {
    let task = task("copy");
    let batch = task.test_batch(40, 0, 64);
    // Answers that are not read again: every place has the same tokens before it, but, decoded, no
    // others around it.
    let differ = |pe| {
        let encoding = encoding(pe);
        let reads =
            changes_with_length(&encoding.facts(&model_shape()), &PositionsConfig::default());
        let model = model(&encoding, task.vocab_size());
        let (forced, decoded) = (
            forced(&model, &batch),
            decoded(&model, &batch, false, false),
        );
        (
            reads,
            (0..forced.len())
                .filter(|at| batch.counted[*at] && forced[*at] != decoded[*at])
                .count(),
        )
    };
    assert_eq!(differ(serde_json::json!({"kind": "rope"})), (false, 0));
    for scaling in ["dynamic_ntk", "dynamic_yarn"] {
        let (reads, places) =
            differ(serde_json::json!({"kind": "rope", "scaling": {"kind": scaling}}));
        assert!(
            reads && places > 0,
            "{scaling}: {places} of {} places differ",
            batch.counted.iter().filter(|c| **c).count()
        );
    }
}

#[test]
fn auto_decodes_exactly_where_it_matters() {
    let facts = |pe| encoding(pe).facts(&model_shape());
    let positions = |value: Value| -> PositionsConfig { serde_json::from_value(value).unwrap() };
    let (rope, dynamic) = (
        facts(serde_json::json!({"kind": "rope"})),
        facts(serde_json::json!({"kind": "rope", "scaling": {"kind": "dynamic_yarn"}})),
    );
    let contiguous = PositionsConfig::default();
    for (kind, drawn) in [
        ("contiguous", false),
        ("interpolated", false),
        ("random_offset", true),
        ("randomized", true),
    ] {
        let positions = positions(serde_json::json!({ "kind": kind }));
        assert_eq!(Decode::Auto.is_greedy(&rope, &positions), drawn, "{kind}");
        assert!(
            Decode::Auto.is_greedy(&dynamic, &positions)
                && Decode::Greedy.is_greedy(&rope, &positions)
        );
        assert!(!Decode::TeacherForced.is_greedy(&dynamic, &positions));
    }
    assert!(!Decode::Auto.is_greedy(&rope, &contiguous));
}

/// Rows of each evaluation by method and length, from the records of a sweep.
fn evals(scratch: &Scratch) -> Vec<(String, Value)> {
    let records = scratch.records();
    let all = records.iter().flat_map(|(_, bytes)| {
        let record: Value = serde_json::from_slice(bytes).unwrap();
        let label = record["labels"][0]["text"].as_str().unwrap().to_owned();
        let rows = record["evals"].as_array().unwrap().clone();
        rows.into_iter()
            .map(move |row| {
                (
                    format!("{label} {} {}", row["variant"], row["test_len"]),
                    row["metrics"].clone(),
                )
            })
            .collect::<Vec<_>>()
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// The axis names how the training decoded, and the evaluation decodes otherwise.
#[test]
fn an_evaluation_is_named_by_its_own_decoding() {
    let scratch = Scratch::with(TINY);
    let axes = "axes={\"eval.decode\"=[\"teacher_forced\",\"auto\"]}";
    let pe = "model.pe={kind=\"rope\"}";
    let run = ["seeds=[0]", "eval.variants=[]", pe, axes];
    scratch.trains(&run);
    let place = scratch.runs().join("tiny");
    let on = |arguments: &[&str]| {
        let output = command(arguments[0], &place, &arguments[1..]);
        exits(&output, 0);
        stdout(&output)
    };
    on(&["eval", "--decode", "greedy"]);
    let shown = on(&["report"]);
    for name in [
        " decode = teacher_forced ",
        " decode = auto ",
        " decode = greedy ",
    ] {
        has(&shown, name);
    }
    lacks(&shown, "[eval.decode");
    on(&["verify"]);
}

#[test]
fn runs_are_decoded_as_the_config_says_and_the_report_says_how() {
    let sweep = |decode: &str| {
        let scratch = Scratch::with(&TINY.replace("kind = \"yarn\"", "kind = \"dynamic_ntk\""));
        let decode = format!("eval.decode=\"{decode}\"");
        let overrides = [
            "seeds=[0]",
            "task.test_rows=64",
            "train.steps=40",
            "train.lr=4e-3",
            "train.batch_size=16",
            &decode,
        ];
        scratch.trains(&overrides);
        let report = std::fs::read_to_string(scratch.runs().join("tiny/report/report.md")).unwrap();
        (evals(&scratch), report, scratch)
    };
    let (forced, said, _forced) = sweep("teacher_forced");
    has(&said, "teacher-forced");
    lacks(&said, "greedily");
    let (greedy, said, scratch) = sweep("greedy");
    let part = "decoded greedily, every token given the model's own before it";
    has(&said, part);
    let (auto, said, _auto) = sweep("auto");
    has(&said, "teacher-forced, but decoded greedily");
    let mut partly = false;
    for (((name, forced), (_, greedy)), (_, auto)) in forced.iter().zip(&greedy).zip(&auto) {
        assert_eq!(
            forced["loss_nats"], greedy["loss_nats"],
            "{name}: the loss is teacher-forced always"
        );
        if name.contains("trained") {
            assert_eq!(forced, auto, "{name}");
            assert_eq!(forced["exact_match"], greedy["exact_match"], "{name}");
            partly |= forced["exact_match"]["value"]
                .as_f64()
                .is_some_and(|share| share > 0.0 && share < 1.0);
        } else {
            assert_eq!(greedy, auto, "{name} reads the length");
        }
    }
    assert!(partly, "nothing was learned, or all of it: {forced:?}");
    // An evaluation of a recorded run decodes as the run did.
    let run = scratch.first_run();
    exits(&command("eval", &run, &["--lengths", "4,6"]), 0);
}

#[test]
fn randomized_positions_are_drawn_anew_for_every_token() {
    let sweep = |decode: &str| {
        let scratch = Scratch::with(TINY);
        let decode = format!("eval.decode=\"{decode}\"");
        let positions = "model.positions={kind=\"randomized\"}";
        scratch.trains(&[
            "seeds=[0]",
            "train.steps=40",
            "train.lr=1e-2",
            "axes.\"model.pe\"=[{kind=\"rope\"}]",
            positions,
            &decode,
        ]);
        evals(&scratch)
    };
    let (auto, greedy, forced) = (sweep("auto"), sweep("greedy"), sweep("teacher_forced"));
    assert_eq!(auto, greedy);
    assert!(
        auto.iter()
            .zip(&forced)
            .any(|((_, a), (_, b))| a["token_accuracy"] != b["token_accuracy"])
    );
    assert!(
        auto.iter()
            .zip(&forced)
            .all(|((_, a), (_, b))| a["loss_nats"] == b["loss_nats"])
    );
}

#[test]
fn the_last_tokens_of_text_and_the_depths_of_a_passkey_are_scored_on_their_own() {
    let (scratch, text) = with_text();
    scratch.trains(&[
        "seeds=[0]",
        "eval.variants=[]",
        text,
        "eval.test_lens=[4,16]",
        "eval.last_tokens=2",
    ]);
    for (name, metrics) in evals(&scratch) {
        let n = |metric: &str| metrics[metric]["n"].as_u64().unwrap();
        if !name.contains("learned") || name.ends_with(" 4") {
            let windows = n("loss_nats") / if name.ends_with(" 4") { 4 } else { 16 };
            assert_eq!(n("last_loss_nats"), 2 * windows, "{name}");
            assert_ne!(
                metrics["last_loss_nats"]["value"],
                metrics["loss_nats"]["value"]
            );
        }
    }
    let report = std::fs::read_to_string(scratch.runs().join("tiny/report/report.md")).unwrap();
    has(&report, "last_loss_nats");
    has(&report, "over the last 2 predictions of every window");
    let scratch = Scratch::with(TINY);
    let task = "task={kind=\"passkey\",digits=1,filler=2,test_rows=64}";
    scratch.trains(&[
        "seeds=[0]",
        "eval.variants=[]",
        task,
        "axes.\"model.pe\"=[{kind=\"rope\"}]",
        "eval.test_lens=[4,10]",
    ]);
    for (name, metrics) in evals(&scratch) {
        let groups: Vec<&Value> = (0..5)
            .map(|i| &metrics[format!("exact_match_depth_{}_{}", 20 * i, 20 * (i + 1))])
            .collect();
        let rows: u64 = groups
            .iter()
            .map(|group| group["n"].as_u64().unwrap_or(0))
            .sum();
        assert_eq!(
            rows,
            metrics["exact_match"]["n"].as_u64().unwrap(),
            "{name}"
        );
        let exact: f64 = groups
            .iter()
            .filter_map(|group| Some(group["value"].as_f64()? * group["n"].as_f64()?))
            .sum();
        let whole = metrics["exact_match"]["value"].as_f64().unwrap()
            * metrics["exact_match"]["n"].as_f64().unwrap();
        assert!((exact - whole).abs() < 1e-9, "{name}");
    }
    let report = std::fs::read_to_string(scratch.runs().join("tiny/report/report.md")).unwrap();
    has(&report, "](depth-by-length.svg)");
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story: every step builds on the one before"
)]
fn attention_distances_of_every_head_are_recorded_and_drawn() {
    let scratch = Scratch::with(TINY);
    let axis = "axes.\"model.pe\"=[{kind=\"nope\"},{kind=\"hard_alibi\",masked_heads=1},{kind=\"shaw\"},{kind=\"rope\"}]";
    let plain = [
        "seeds=[0]",
        "eval.variants=[]",
        axis,
        "eval.test_lens=[4,40]",
        "model.n_layers=2",
    ];
    scratch.trains(&[&plain[..], &["eval.attention_distance=true"]].concat());
    let with = evals(&scratch);
    for (name, metrics) in &with {
        let distance = |layer: usize, head: usize| {
            metrics[format!("attention_distance_{layer}_{head}")]["value"]
                .as_f64()
                .unwrap()
        };
        let tokens = if name.ends_with(" 4") {
            2 * 4 + 2
        } else {
            2 * 40 + 2
        };
        for (layer, head) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            // The farthest a causal mean can be is half the sequence.
            assert!(
                (0.0..=f64::from(tokens) / 2.0).contains(&distance(layer, head)),
                "{name}"
            );
        }
        assert!(metrics.get("attention_distance_3_1").is_none());
        if name.starts_with("hard_alibi") {
            assert_eq!(
                distance(1, 1),
                0.0,
                "the first head sees a token itself alone"
            );
            let (tokens, blind) = (f64::from(tokens), &metrics["blind_1_1"]["value"]);
            let before = (tokens - 1.0) / (tokens + 1.0);
            assert!((blind.as_f64().unwrap() - before).abs() < 1e-12, "{blind}");
        }
        if name.starts_with("nope") {
            // Barely trained weights are near even: half of what there is before a token.
            let even = f64::from(tokens - 1) / 4.0;
            assert!(
                (distance(1, 1) - even).abs() < 0.25 * even,
                "{name}: {} for {even}",
                distance(1, 1)
            );
        }
    }
    let report = std::fs::read_to_string(scratch.runs().join("tiny/report/report.md")).unwrap();
    for part in [
        "mean attention distance by test length",
        "mean attention distance by head at 40",
        "attention-distance.svg",
        "each key weighed by its attention weight",
        "share of pairs without weight by head at 40",
        "semantic score by head at 40",
        "positional score by head at 40",
        "| 1.1 | 1.2 | 2.1 | 2.2 |",
    ] {
        has(&report, part);
    }
    let scratch = Scratch::with(TINY);
    scratch.trains(&plain);
    for ((name, with), (_, without)) in with.iter().zip(evals(&scratch)) {
        for metric in ["loss_nats", "exact_match", "token_accuracy"] {
            assert_eq!(
                with[metric], without[metric],
                "{name}: watching changes nothing"
            );
        }
    }
    let output = scratch.longreach(
        "check",
        &[
            "axes.\"model.pe\"=[{kind=\"nope\"}]",
            "eval.variants=[]",
            "model.attention=\"linear\"",
            "eval.attention_distance=true",
        ],
    );
    fails(&output, 2, "eval.attention_distance");
    says(&output, "linear attention has none");
}

#[test]
fn a_grid_tells_encodings_of_two_axes_where_its_tokens_stand() {
    let grid = [
        "seeds=[0]",
        "eval.variants=[]",
        "task={kind=\"grid\",alphabet=3,test_rows=32}",
        "train.train_len=3",
        "eval.test_lens=[2,3,4]",
        "train.steps=20",
        "axes.\"model.pe\"=[{kind=\"axial_rope\"},{kind=\"rope\"}]",
    ];
    let sweep = |more: &[&str]| {
        let scratch = Scratch::with(TINY);
        scratch.trains(&[&grid[..], more].concat());
        (evals(&scratch), scratch)
    };
    let ((line, _a), (placed, scratch)) = (sweep(&[]), sweep(&["model.coordinates=\"task\""]));
    for ((name, line), (_, placed)) in line.iter().zip(&placed) {
        assert_eq!(
            line == placed,
            name.starts_with("rope"),
            "{name}: an encoding of one axis reads the position alone"
        );
    }
    // Greedy decoding sees the same coordinates: whole answers are right or wrong alike, and the
    // loss is the same.
    let (greedy, _b) = sweep(&["model.coordinates=\"task\"", "eval.decode=\"greedy\""]);
    for ((name, forced), (_, greedy)) in placed.iter().zip(&greedy) {
        assert_eq!(
            (&forced["exact_match"], &forced["loss_nats"]),
            (&greedy["exact_match"], &greedy["loss_nats"]),
            "{name}"
        );
    }
    exits(&command("verify", &scratch.first_run(), &["--retrain"]), 0);
    for (more, said) in [
        (
            "model.positions={kind=\"grid\",sizes=[3]}",
            "from positions of kind `grid` too",
        ),
        (
            "eval.variants=[{name=\"v\",positions={kind=\"grid\",sizes=[3]}}]",
            "from positions of kind `grid` too",
        ),
        (
            "axes.\"model.pe\"=[{kind=\"axial_rope\",axes=3}]",
            "the encoding reads 3",
        ),
    ] {
        let arguments = [&grid[..6], &[more, "model.coordinates=\"task\""]].concat();
        let output = scratch.longreach("check", &arguments);
        fails(&output, 2, "model.coordinates");
        says(&output, said);
    }
}

/// Arguments, with `TEXT` for a task of text, and what the message says.
const USELESS: &str = r#"
TEXT eval.decode="greedy" -> eval.decode | nothing to decode | teacher_forced
eval.decode="sampled" -> eval.decode | sampled | greedy | auto
eval.last_tokens=2 -> eval.last_tokens | is for text
TEXT eval.last_tokens=0 -> eval.last_tokens | 1 to 4
TEXT eval.last_tokens=5 -> eval.last_tokens | 1 to 4 | value: 5
"#;

#[test]
fn what_no_task_has_a_use_for_is_refused() {
    let (scratch, text) = with_text();
    for (arguments, parts) in cases(USELESS) {
        let arguments = arguments.replace("TEXT", text);
        let output = scratch.longreach("check", &words(&arguments));
        exits(&output, 2);
        parts.iter().for_each(|part| says(&output, part));
    }
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story: every step builds on the one before"
)]
fn an_evaluation_of_a_recorded_run_may_score_in_other_ways() {
    let scratch = Scratch::with(&TINY.replace("kind = \"yarn\"", "kind = \"dynamic_ntk\""));
    let rope = "axes.\"model.pe\"=[{kind=\"rope\"}]";
    scratch.trains(&[
        "seeds=[0]",
        rope,
        "train.steps=40",
        "train.lr=1e-2",
        "task.test_rows=64",
    ]);
    let recorded: Value = serde_json::from_slice(&scratch.records()[0].1).unwrap();
    let run = scratch.first_run();
    let eval = |flags: &[&str]| command("eval", &run, &[&["--json"], flags].concat());
    let record = |flags: &[&str]| -> Value {
        let output = eval(flags);
        exits(&output, 0);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let variant = [
        "--lengths",
        "8",
        "--variant",
        "scaling = { kind = \"dynamic_ntk\" }",
    ];
    let scores = |record: &Value| {
        record["evals"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["metrics"].clone())
            .collect::<Vec<_>>()
    };
    let (forced, greedy) = (
        record(&variant),
        record(&[&variant[..], &["--decode", "greedy"]].concat()),
    );
    let definition = |record: &Value| {
        record["task"]["definitions"]["exact_match"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(definition(&forced), definition(&recorded));
    has(&definition(&greedy), "decoded greedily");
    assert_eq!(
        scores(&forced)[0]["exact_match"],
        scores(&greedy)[0]["exact_match"]
    );
    assert_ne!(
        scores(&forced)[1]["token_accuracy"],
        scores(&greedy)[1]["token_accuracy"],
        "it reads the length"
    );
    assert_eq!(forced["run_id"].as_str().map(str::len), Some(16));
    assert_ne!(forced["run_id"], greedy["run_id"]);
    let watched = record(&["--attention-distance"]);
    assert!(
        watched["evals"][0]["metrics"]
            .get("attention_distance_1_2")
            .is_some(),
        "{watched}"
    );
    // A refusal names the flag and the values that work.
    for (flags, parts) in [
        (
            &["--last-tokens", "2"][..],
            &["--last-tokens 2", "task `copy`", "allowed: absent"][..],
        ),
        (
            &["--decode", "gready"],
            &["--decode", "teacher_forced, greedy, auto"],
        ),
    ] {
        let output = eval(flags);
        exits(&output, 2);
        parts.iter().for_each(|part| says(&output, part));
    }
    let (scratch, text) = with_text();
    scratch.trains(&["seeds=[0]", "eval.variants=[]", text, rope]);
    let run = scratch.first_run();
    let eval = |flags: &[&str]| command("eval", &run, &[&["--json"], flags].concat());
    let output = eval(&["--last-tokens", "2"]);
    exits(&output, 0);
    let last: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        last["evals"][0]["metrics"]["last_loss_nats"]["n"], 128,
        "2 of every 4"
    );
    for (flags, part) in [
        (["--last-tokens", "5"], "a whole number from 1 to 4"),
        (
            ["--decode", "greedy"],
            "--decode greedy: has nothing to decode",
        ),
    ] {
        fails(&eval(&flags), 2, part);
    }
}

#[test]
fn a_plan_counts_what_decoding_reads() {
    let scratch = Scratch::with(&TINY.replace("kind = \"yarn\"", "kind = \"dynamic_ntk\""));
    let tokens = |more: &[&str]| -> u64 {
        let overrides = [
            "seeds=[0]",
            "axes.\"model.pe\"=[{kind=\"rope\"}]",
            "eval.test_lens=[4]",
            "--json",
        ];
        let output = scratch.longreach("check", &[&overrides[..], more].concat());
        exits(&output, 0);
        let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
        plan["runs"][0]["eval_tokens"].as_u64().unwrap()
    };
    // 8 rows of 10 tokens under two encodings; 5 of the 10 are answers.
    let (once, prefixes) = (8 * 10, 8 * (6 + 7 + 8 + 9 + 10));
    assert_eq!(tokens(&[]), 2 * once);
    assert_eq!(tokens(&["eval.attention_distance=true"]), 4 * once);
    assert_eq!(
        tokens(&["eval.decode=\"auto\""]),
        2 * once + prefixes,
        "one of them reads the length"
    );
    assert_eq!(
        tokens(&["eval.decode=\"greedy\""]),
        2 * once + once + prefixes,
        "the other has a cache"
    );
}
