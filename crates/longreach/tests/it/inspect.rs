//! `longreach inspect` against published facts, its JSON, its errors, and its text.

use crate::common::{cases, exits, has, longreach, stderr, words};
use serde_json::Value;
use std::process::{Command, Output};

fn inspect(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longreach"))
        .arg("inspect")
        .args(arguments)
        .output()
        .expect("the binary starts")
}

fn text(arguments: &[&str]) -> String {
    let output = inspect(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(arguments: &[&str]) -> Value {
    let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&text(&arguments)).expect("JSON")
}

fn refused(arguments: &[&str]) -> String {
    let output = inspect(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("UTF-8")
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(|v| v.as_f64().expect("a number"))
        .collect()
}

fn shape(mut value: &Value) -> Vec<usize> {
    let mut shape = Vec::new();
    while let Some(list) = value.as_array() {
        shape.push(list.len());
        let Some(first) = list.first() else { break };
        value = first;
    }
    shape
}

#[track_caller]
fn close(a: f64, b: f64, relative: f64) {
    assert!(
        (a - b).abs() <= relative * b.abs().max(1e-300),
        "{a} is not {b}"
    );
}

#[test]
fn alibi_slopes_are_those_of_the_authors() {
    let of = |heads: &str| numbers(&json(&["alibi", heads])["slopes"]);
    assert_eq!(
        of("n_heads=8"),
        [
            0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625
        ]
    );
    assert_eq!(
        of("n_heads=6"),
        [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    );
    let twelve = of("n_heads=12");
    close(twelve[8], 2f64.powf(-0.5), 1e-15);
    close(twelve[11], 2f64.powf(-3.5), 1e-15);
}

#[test]
fn alibi_bias_is_head_by_query_by_key() {
    let answer = json(&["alibi", "n_heads=8", "--positions", "0,1.5,10"]);
    assert_eq!(shape(&answer["logits_bias"]), [8, 3, 3]);
    let head = &answer["logits_bias"][0];
    assert_eq!(numbers(&head[2]), [-5.0, -4.25, 0.0]);
    // Later keys are shown as they are: the mask is the model's.
    assert_eq!(numbers(&head[0]), [0.0, -0.75, -5.0]);
}

#[test]
fn ntk_stretches_the_base() {
    for (d_model, base) in [
        ("d_model=64", 41_829.365_93),
        ("d_model=16", 48_760.546_168),
    ] {
        let answer = json(&[
            "rope",
            d_model,
            "n_heads=1",
            "scaling={kind=\"ntk\",factor=4}",
        ]);
        let inv_freq = numbers(&answer["inv_freq"]);
        let dim = 2.0 * inv_freq.len() as f64;
        close(inv_freq[1].powf(-dim / 2.0), base, 1e-9);
        // The slowest pair is interpolated in full, the fastest not at all.
        let plain = numbers(&answer["plain_inv_freq"]);
        assert_eq!(inv_freq[0], 1.0);
        close(
            inv_freq[inv_freq.len() - 1],
            plain[plain.len() - 1] / 4.0,
            1e-12,
        );
    }
}

#[test]
fn dynamic_ntk_reads_the_sequence_length() {
    let scaling = "scaling={kind=\"dynamic_ntk\",factor=2}";
    let long = json(&[
        "rope",
        "d_model=64",
        "n_heads=1",
        scaling,
        "--seq-len",
        "2048",
    ]);
    close(
        numbers(&long["inv_freq"])[1].powf(-32.0),
        74_534.830_32,
        1e-9,
    );
    // The largest position rules where it is past the training length.
    let given = json(&[
        "rope",
        "d_model=64",
        "n_heads=1",
        scaling,
        "--positions",
        "0,2047",
    ]);
    assert_eq!(given["seq_len"], 2048);
    assert_eq!(given["inv_freq"], long["inv_freq"]);
    assert_eq!(given["facts"]["reads_length"], true);
}

#[test]
fn yarn_is_that_of_hugging_face() {
    let line = "rope d_model=64 n_heads=1 scaling.kind=yarn scaling.factor=4";
    let answer = json(&words(line));
    let inv_freq = numbers(&answer["inv_freq"]);
    close(inv_freq[4], 0.297_983_856, 1e-8);
    close(inv_freq[15], 0.004_103_143, 1e-7);
    close(
        answer["attention_factor"].as_f64().unwrap(),
        1.138_629_436,
        1e-9,
    );
    assert_eq!(
        answer["config"]["scaling"]["original_max_position_embeddings"],
        512
    );
    // cos and sin carry the factor.
    close(answer["cos"][0][0].as_f64().unwrap(), 1.138_629_436, 1e-9);
}

#[test]
fn factor_auto_is_test_length_over_training_length() {
    let line = "rope scaling.kind=linear --train-len 128 --seq-len 1024";
    let answer = json(&words(line));
    assert_eq!(answer["config"]["scaling"]["factor"], 8.0);
    assert_eq!(numbers(&answer["inv_freq"])[0], 0.125);
}

#[test]
fn rope_tables_are_exact_in_f64() {
    let answer = json(&["rope", "d_model=256", "--positions", "0,1,100000.5"]);
    assert_eq!(
        answer["positions"],
        serde_json::json!([0.0, 1.0, 100_000.5])
    );
    assert_eq!(shape(&answer["cos"]), [3, 32]);
    assert_eq!(shape(&answer["sin"]), [3, 32]);
    for (row, position) in [0.0, 1.0, 100_000.5].into_iter().enumerate() {
        for pair in 0..32 {
            let angle = position * 10_000f64.powf(-(pair as f64) / 32.0);
            assert!((answer["cos"][row][pair].as_f64().unwrap() - angle.cos()).abs() < 1e-10);
            assert!((answer["sin"][row][pair].as_f64().unwrap() - angle.sin()).abs() < 1e-10);
        }
    }
}

#[test]
fn rope_bounds_are_those_of_the_arithmetic() {
    let bounds = |keys: &[&str]| {
        json(&[&["rope", "d_model=64", "n_heads=1"], keys].concat())["bounds"].clone()
    };
    let usual = bounds(&[]);
    close(
        usual["longest_wavelength"].as_f64().unwrap(),
        47_117.24,
        1e-6,
    );
    assert_eq!(usual["pairs_beyond_train_len"], 16);
    assert_eq!(usual["critical_dimension"], 32);
    let small = bounds(&["base=100"]);
    close(small["longest_wavelength"].as_f64().unwrap(), 544.10, 1e-4);
    assert_eq!(small["pairs_beyond_train_len"], 1);
    // The smallest base is the one whose longest wavelength is the training length.
    let base = usual["smallest_base"].as_f64().unwrap();
    close(std::f64::consts::TAU * base.powf(62.0 / 64.0), 512.0, 1e-12);
    assert_eq!(
        json(&["rope", "head_dim=2"])["bounds"]["smallest_base"],
        Value::Null
    );
}

#[test]
fn rope_decay_starts_at_the_mean_of_the_partial_sums() {
    let decay = json(&["rope", "head_dim=128", "n_heads=1", "--train-len", "64"])["decay"].clone();
    assert_eq!(decay["distance"].as_array().unwrap().len(), 256);
    // |S_j| = j at distance 0.
    assert_eq!(decay["value"][0], 32.5);
    let value = numbers(&decay["value"]);
    assert!(value[50..].iter().all(|v| *v < value[0] / 2.0));
}

#[test]
fn laws_of_rotations_hold_for_the_hooks() {
    let half = "layout=half";
    for keys in [
        vec![half],
        vec!["layout=interleaved", "rotary_dim=8"],
        vec![half, "head_dim=2"],
        vec!["scaling={kind=\"yarn\",factor=16}", "rotary_dim=4"],
        vec!["scaling={kind=\"dynamic_ntk\",factor=4}", "d_model=256"],
    ] {
        let answer = json(&[vec!["rope"], keys.clone()].concat());
        let checks = answer["checks"].as_array().unwrap();
        assert_eq!(checks.len(), 3);
        for check in checks {
            assert_eq!(check["ok"], true, "{keys:?}: {check}");
            // Measured, not assumed: f32 is never exact.
            let worst = check["worst_relative_error"].as_f64().unwrap();
            assert!(
                worst > 1e-9 && worst <= check["allowed"].as_f64().unwrap(),
                "{keys:?}: {check}"
            );
        }
    }
}

#[test]
fn sinusoidal_rows_are_the_papers() {
    let rows = |order: &str| {
        json(&["sinusoidal", "d_model=8", order, "--positions", "0,3,70000"])["embedding"].clone()
    };
    let expected =
        |position: f64, exponent: &dyn Fn(usize) -> f64, interleaved: bool| -> Vec<f64> {
            let angles: Vec<f64> = (0..4)
                .map(|i| position * 10_000f64.powf(-exponent(i)))
                .collect();
            if interleaved {
                angles.iter().flat_map(|a| [a.sin(), a.cos()]).collect()
            } else {
                angles
                    .iter()
                    .map(|a| a.sin())
                    .chain(angles.iter().map(|a| a.cos()))
                    .collect()
            }
        };
    for (order, steps, interleaved) in [
        ("order=interleaved", 4.0, true),
        ("order=half", 4.0, false),
        ("order=tensor2tensor", 3.0, false),
    ] {
        let found = rows(order);
        for (row, position) in [0.0, 3.0, 70_000.0].into_iter().enumerate() {
            let wanted = expected(position, &|i| i as f64 / steps, interleaved);
            for (a, b) in numbers(&found[row]).iter().zip(&wanted) {
                assert!(
                    (a - b).abs() < 1e-7,
                    "{order} at {position}: {a} is not {b}"
                );
            }
        }
    }
}

#[test]
fn learned_rows_are_what_training_starts_from() {
    let answer = json(&words("learned d_model=4 max_position=16 --positions 15,0"));
    let table = experiment::run::parameters::draw(
        0,
        "encoding.table",
        &[16, 4],
        posenc::Distribution::Normal(0.02),
    );
    let wanted: Vec<f32> = [&table[60..], &table[..4]]
        .concat()
        .iter()
        .map(|v| *v as f32)
        .collect();
    let found: Vec<f32> = answer["embedding"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(numbers)
        .map(|v| v as f32)
        .collect();
    assert_eq!(found, wanted);
    assert_eq!(
        answer["facts"]["parameters"],
        serde_json::json!([["table", [16, 4]]])
    );
    has(&text(&["learned"]), "initial draw of seed 0");
}

#[test]
fn json_names_the_model() {
    let line = "rope d_model=128 model.n_heads=2 model.n_layers=3 model.pe.base=500000";
    let answer = json(&words(line));
    assert_eq!(answer["kind"], "rope");
    assert_eq!(answer["config"]["base"], 500_000.0);
    assert_eq!(
        answer["model"],
        serde_json::json!({ "d_model": 128, "n_heads": 2, "head_dim": 64, "n_layers": 3 })
    );
    assert_eq!(
        (&answer["train_len"], &answer["seq_len"]),
        (&Value::from(512), &Value::from(512))
    );
    assert_eq!(numbers(&answer["positions"]), [0.0, 1.0, 2.0, 3.0]);
    assert_eq!(answer["facts"]["hooks"]["transform_qk"], true);
    for absent in ["slopes", "logits_bias", "embedding", "parts", "files"] {
        assert!(answer.get(absent).is_none(), "{absent}");
    }
    let nothing = json(&["nope"]);
    for absent in [
        "inv_freq",
        "attention_factor",
        "cos",
        "checks",
        "logits_bias",
        "embedding",
    ] {
        assert!(nothing.get(absent).is_none(), "{absent}");
    }
}

#[test]
fn model_sizes_follow_each_other() {
    let model = |keys: &[&str]| {
        let model = json(&[&["nope"], keys].concat())["model"].clone();
        ["d_model", "n_heads", "head_dim", "n_layers"].map(|key| model[key].as_u64().unwrap())
    };
    assert_eq!(model(&[]), [64, 4, 16, 2]);
    assert_eq!(model(&["n_heads=8"]), [64, 8, 8, 2]);
    assert_eq!(model(&["n_heads=12"]), [192, 12, 16, 2]);
    assert_eq!(model(&["head_dim=128", "n_heads=1"]), [128, 1, 128, 2]);
    assert_eq!(model(&["d_model=100", "head_dim=8"]), [100, 4, 8, 2]);
}

#[test]
fn a_stack_shows_its_parts_and_their_sum() {
    let parts =
        "parts=[{kind=\"alibi\"},{kind=\"rope\",base=100},{kind=\"alibi\"},{kind=\"sinusoidal\"}]";
    let answer = json(&["stack", parts, "parts.1.base=500", "n_heads=2", "d_model=8"]);
    let kinds: Vec<&str> = answer["parts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|part| part["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["alibi", "rope", "alibi", "sinusoidal"]);
    assert_eq!(answer["parts"][1]["config"]["base"], 500.0);
    assert_eq!(shape(&answer["parts"][1]["cos"]), [4, 2]);
    assert!(answer.get("cos").is_none());
    assert_eq!(answer["embedding"], answer["parts"][3]["embedding"]);
    let alone = numbers(&answer["parts"][0]["logits_bias"][1][3]);
    let sum = numbers(&answer["logits_bias"][1][3]);
    assert_eq!(sum, alone.iter().map(|v| 2.0 * v).collect::<Vec<_>>());
    has(&text(&["stack", parts]), "\nparts.1: rope: ");
}

/// What is asked for, and what the message says.
const MISTAKES: &str = r#"
rop -> unknown encoding `rop` | allowed: nope, sinusoidal | did you mean `rope`?
rope bse=5
    -> unknown key `bse` of encoding `rope` | allowed: base, layout | did you mean `base`?
    | command line: bse=5
rope rope_theta=5 -> `rope_theta` is `base` here
alibi heads=5 -> of the model: d_model | `heads` is `model.n_heads` here
rope base -> needs `=` | base=500000
rope base=0 -> `base` is out of range | value: 0 | the paper uses 10000
rope base=ten -> `base` must be a number
rope kind=alibi -> `kind` is set twice
rope head_dim=15 -> head_dim = 15 is odd | set rotary_dim to an even number
rope scaling.kind=yarm -> unknown kind `yarm` in `scaling` | did you mean `yarn`?
rope scaling={kind="ntk"} head_dim=2 -> scaling.kind | 2 rotated dimensions
rope d_model=0 -> key: d_model | from 1 to 65536
rope n_heads=0 -> key: n_heads | from 1 to 1024
rope head_dim=0 -> key: head_dim | value: 0
formula -> such as bias = "-0.1 * d"
rope d_model=1000000000000 -> key: d_model | from 1 to 65536
rope n_heads=99999999999 head_dim=99999999999 -> key: d_model
rope d_model=64 n_heads=5 -> `n_heads` must divide d_model = 64 | set n_heads=4
stack -> missing key `parts` of encoding `stack` | inspect stack
stack parts=[] -> key: parts
stack parts=[{kind="rope",base=0.5}] -> `parts.0.base` is out of range
learned --positions 0,512
    -> position 512 is past the table: max_position = 512 | set max_position=513
learned --positions 0.5 -> position 0.5 has no row | max_position = 512
learned max_position=16777216 d_model=65536 -> too large to show
stack parts=[{kind="learned"},{kind="rope",scaling={kind="dynamic_ntk"}}] --seq-len 600
    -> --seq-len 600
rope --positions '' -> no positions to show | write --positions 0,1,4095
rope --positions 0,-1 -> position -1 is out of range
rope --positions -1 -> position -1 is out of range
rope --positions 0,nan -> position nan is out of range
rope --positions 1e99 -> position 1e99 is out of range
rope --positions 0,,1 -> missing between two commas
rope --positions 0,x -> `x` is not a number
rope --seq-len 2 --positions 0,10
    -> --seq-len 2 | position 10 is past the end of the sequence | at least 11 | write --seq-len 11
"#;

#[test]
fn mistakes_name_the_key_the_value_and_the_fix() {
    for (arguments, wanted) in cases(MISTAKES) {
        let message = refused(&words(&arguments));
        for wanted in wanted {
            assert!(
                message.contains(&wanted),
                "{arguments:?} should say {wanted:?}:\n{message}"
            );
        }
        assert!(
            message.contains("--> ") && !message.contains("a bug"),
            "{arguments:?}:\n{message}"
        );
    }
    let many = (0..5000)
        .map(|p| p.to_string())
        .collect::<Vec<_>>()
        .join(",");
    has(&refused(&["rope", "--positions", &many]), "5000 positions");
    let square = (0..4096)
        .map(|p| p.to_string())
        .collect::<Vec<_>>()
        .join(",");
    let message = refused(&["alibi", "--positions", &square]);
    has(&message, "67108864 numbers");
}

#[test]
#[cfg(target_os = "linux")]
fn an_encoding_that_does_not_fit_is_refused_before_it_is_built() {
    let mut program = Command::new("sh");
    program.args(["-c", "ulimit -v 400000; exec \"$@\"", "sh"]);
    program.arg(longreach().get_program());
    let output = program.args(["inspect", "learned", "d_model=65536"]);
    let output = output.output().unwrap();
    exits(&output, 6);
    let said = stderr(&output);
    has(&said, "inspect learned d_model=65536: needs about");
    assert!(said.lines().count() == 2, "{said}");
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story: every step builds on the one before"
)]
fn pictures_are_written_and_listed() {
    let directory = tempfile::tempdir().unwrap();
    let files = |arguments: &[&str], out: &str| -> Vec<String> {
        let out = directory.path().join(out);
        let arguments: Vec<&str> = arguments
            .iter()
            .copied()
            .chain(["--out", out.to_str().unwrap()])
            .collect();
        let listed = json(&arguments)["files"].clone();
        let names: Vec<String> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|f| f.as_str().unwrap().to_owned())
            .collect();
        for name in &names {
            let bytes = std::fs::read(name).unwrap();
            assert!(
                name.ends_with(".svg") && bytes.starts_with(b"<svg"),
                "{name}"
            );
        }
        assert_eq!(
            std::fs::read_dir(out).map_or(0, Iterator::count),
            names.len()
        );
        names
            .iter()
            .map(|name| {
                name.rsplit(['/', '\\'])
                    .next()
                    .unwrap()
                    .trim_end_matches(".svg")
                    .to_owned()
            })
            .collect()
    };
    let long = ["--seq-len", "4096"];
    assert_eq!(
        files(&["rope"], "a"),
        [
            "rope-spectrum",
            "rope-decay",
            "rope-similarity",
            "rope-response",
            "rope-logits"
        ]
    );
    let scaled = files(&["rope", "scaling.kind=yarn", long[0], long[1]], "b/c");
    assert_eq!(
        scaled,
        [
            "rope-spectrum",
            "rope-scaling",
            "rope-decay",
            "rope-similarity",
            "rope-response",
            "rope-logits"
        ]
    );
    assert_eq!(
        files(&["alibi", "n_heads=40"], "d"),
        [
            "alibi-response",
            "alibi-logits",
            "alibi-bias",
            "alibi-bias-head0"
        ]
    );
    let learned = [
        "learned-response",
        "learned-logits",
        "learned-table",
        "learned-similarity",
    ];
    assert_eq!(
        files(&["learned", "max_position=1", "--positions", "0"], "e"),
        learned
    );
    assert_eq!(files(&["nope"], "f"), ["nope-response", "nope-logits"]);
    let stack = "parts=[{kind=\"alibi\"},{kind=\"alibi\"},{kind=\"learned\"}]";
    let names = files(&["stack", stack], "g");
    assert_eq!(names[..3], ["stack-response", "stack-logits", "stack-bias"]);
    assert_eq!(
        names[names.len() - 2..],
        ["stack-2-learned-table", "stack-2-learned-similarity"]
    );

    let taken = directory.path().join("taken");
    std::fs::write(&taken, "").unwrap();
    let output = inspect(&["rope", "--out", taken.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("taken"));
}

/// Logits of equal tokens are products in f32, whose last digits depend on the machine's
/// instructions.
fn without_response(text: &str) -> String {
    let lines = text.lines().filter(|line| {
        !(line.starts_with("  head ") || line.starts_with("distance") && line.contains("  255"))
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn every_kind_shows_what_attention_makes_of_it() {
    let list = Command::new(env!("CARGO_BIN_EXE_longreach"))
        .args(["list", "encodings", "--json"])
        .output()
        .unwrap();
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let kinds: Vec<String> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["kind"].as_str().unwrap().to_owned())
        .collect();
    assert!(kinds.len() >= 25);
    for kind in &kinds {
        let keys = match kind.as_str() {
            "stack" => vec!["parts=[{kind=\"rope\"},{kind=\"alibi\"}]"],
            "nope_layers" | "dape" | "on_axis" => vec!["part={kind=\"rope\"}"],
            "formula" => vec!["bias=\"-log(1 + d)\""],
            "by_head" => vec!["parts=[{kind=\"rope\"},{kind=\"alibi\"}]"],
            "by_layer" => vec!["parts=[{kind=\"rope\"},{kind=\"alibi\"}]", "pattern=[0,1]"],
            _ => vec![],
        };
        let shown = json(&[&[kind.as_str()][..], &keys, &["--train-len", "64"]].concat());
        let logits = shown["response"]["logits"].as_array().unwrap();
        assert_eq!(logits.len(), 4, "{kind}");
        let length = shown["response"]["distance"].as_array().unwrap().len();
        assert_eq!(
            length,
            if shown["facts"]["max_position"] == 64 {
                64
            } else {
                256
            },
            "{kind}"
        );
        // A query sees itself, whatever the encoding.
        assert!(
            logits
                .iter()
                .all(|head| head.as_array().unwrap().len() == length && head[0].is_f64()),
            "{kind}"
        );
    }
}

#[test]
fn the_response_is_that_of_the_formula() {
    let head = |shown: &Value, head: usize| {
        shown["response"]["logits"][head]
            .as_array()
            .unwrap()
            .clone()
    };
    let (nope, alibi) = (json(&["nope"]), json(&["alibi"]));
    for (h, slope) in [0.25, 0.0625, 0.015_625, 0.003_906_25]
        .into_iter()
        .enumerate()
    {
        for (distance, (without, with)) in head(&nope, h).iter().zip(head(&alibi, h)).enumerate() {
            let penalty = without.as_f64().unwrap() - with.as_f64().unwrap();
            assert!(
                (penalty - slope * distance as f64).abs() < 1e-4,
                "head {h} at {distance}: {penalty}"
            );
        }
    }
    let window = json(&["window", "size=3", "sinks=1"]);
    let hidden: Vec<bool> = head(&window, 0).iter().map(Value::is_null).collect();
    assert_eq!(
        (hidden[2], hidden[3], hidden[254], hidden[255]),
        (false, true, true, false)
    );
}

#[test]
fn text_of_rope() {
    let shown = without_response(&text(&["rope", "head_dim=8"]));
    // How far f32 is off depends on the machine's instructions.
    let lines = shown
        .lines()
        .map(|line| match line.split_once("worst relative error ") {
            Some((start, end)) => format!(
                "{start}worst relative error ? {}",
                &end[end.find('(').unwrap()..]
            ),
            None => line.to_owned(),
        });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r#"
    rope: rotation of queries and keys by their position
      formula     pair i rotates by p theta_i, theta_i = base^(-2i/r)
      source      Su et al. 2021, arXiv 2104.09864
      config      base = 10000, layout = "half"
      model       d_model = 32, n_heads = 4, head_dim = 8, n_layers = 2
      lengths     train_len = 512, seq_len = 512
      hooks       transform_qk
      parameters  none
      limit       none
      logits      depend on key - query alone; sequence length not read

    pair  inv_freq  wavelength  turns in 512
       0         1     6.28319       81.4873
       1       0.1     62.8319       8.14873
       2      0.01     628.319      0.814873
       3     0.001     6283.19     0.0814873
    attention factor 1 (on cos and sin; logits carry its square)
    longest wavelength 6283.19 tokens; longer than train_len 512: 2 of 4 pairs
    critical dimension 4 of 8: those before it complete a turn in training
    smallest base whose longest wavelength covers 512 tokens: 353.281

    cos
    position     pair 0    pair 1   pair 2    pair 3
           0          1         1        1         1
           1   0.540302  0.995004  0.99995         1
           2  -0.416147  0.980067   0.9998  0.999998
           3  -0.989992  0.955336  0.99955  0.999996

    sin
    position    pair 0     pair 1      pair 2  pair 3
           0         0          0           0       0
           1  0.841471  0.0998334  0.00999983   0.001
           2  0.909297   0.198669   0.0199987   0.002
           3   0.14112    0.29552   0.0299955   0.003

    long-range decay, mean over j of |sum over i < j of exp(i distance theta_i)|
      distance    0      1      2      4     16     64     256    511
    mean |S_j|  2.5  2.293  1.743  1.263  1.106  2.267  0.7622  1.358

    check relative-position identity: worst relative error ? (allowed 1e-5) ok
    check norm preservation: worst relative error ? (allowed 1e-5) ok
    check group property R_m R_n = R_(m+n): worst relative error ? (allowed 1e-5) ok

    response: logits of the last of 256 equal tokens by distance, all hooks, layer 0, mean over random inputs
    "#);
}

#[test]
fn text_of_alibi() {
    insta::assert_snapshot!(without_response(&text(&["alibi", "n_heads=6", "--positions", "0,1,100"])), @r"
    alibi: a penalty on the logits linear in distance, one fixed slope per head
      formula     logits - slope_h |query - key|, slope_h = 2^(-8h/H) where H is a power of two
      source      Press et al. 2021, arXiv 2108.12409
      config      nothing to set
      model       d_model = 96, n_heads = 6, head_dim = 16, n_layers = 2
      lengths     train_len = 512, seq_len = 512
      hooks       logits_bias
      parameters  none
      limit       none
      logits      depend on key - query alone; sequence length not read

    head       slope  = 2^  weight halves every
       0        0.25    -2         2.773 tokens
       1      0.0625    -4         11.09 tokens
       2    0.015625    -6         44.36 tokens
       3  0.00390625    -8         177.4 tokens
       4         0.5    -1         1.386 tokens
       5       0.125    -3         5.545 tokens

    head 4 (of 0 to 5) gives exactly 0 to pairs more than 205 tokens apart where content is alike; at 512 tokens at least 7 % of all pairs have weight 0

    logits_bias of head 0, query by key (keys after the query as the encoding has them; a causal mask hides them)
    query  key 0   key 1  key 100
        0      0   -0.25      -25
        1  -0.25       0   -24.75
      100    -25  -24.75        0

    response: logits of the last of 256 equal tokens by distance, all hooks, layer 0, mean over random inputs
    ");
}
