//! Variants add encodings to the trained one, and dropping it is noted.

use crate::common::{Scratch, TINY, cases, command, exits, has, lacks, says, stderr, stdout};
use experiment::plan;
use experiment::plan::planner::Plan;
use serde_json::Value;
use std::path::{Path, PathBuf};

const ROPE: &str = "{ kind = \"rope\" }";

/// TINY with other variants, and one encoding unless an axis gives others.
fn config(variants: &str, encodings: &str) -> String {
    let start = TINY.split("[[eval.variants]]").next().unwrap();
    format!("{start}\n{variants}\n[axes]\n\"model.pe\" = [{encodings}]\n")
}

fn variant(name: &str, keys: &str) -> String {
    format!("[[eval.variants]]\nname = \"{name}\"\n{keys}\n")
}

fn planned(variants: &str, encodings: &str) -> Plan {
    let scratch = Scratch::with(&config(variants, encodings));
    plan(&scratch.config, &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn ids(plan: &Plan) -> Vec<&str> {
    plan.runs
        .iter()
        .map(|run| run.job.run_id.as_str())
        .collect()
}

/// The metrics of a record's variant at a length.
fn metrics(record: &Value, variant: &str, test_len: u64) -> Value {
    let rows = record["evals"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["variant"] == variant && row["test_len"] == test_len);
    row.unwrap_or_else(|| panic!("no {variant} at {test_len}"))["metrics"].clone()
}

fn loss(record: &Value, variant: &str, test_len: u64) -> f64 {
    metrics(record, variant, test_len)["loss_nats"]["value"]
        .as_f64()
        .unwrap()
}

/// Records by label, with the directories of their runs.
fn records(scratch: &Scratch) -> Vec<(String, PathBuf, Value)> {
    let record = |(path, bytes): (PathBuf, Vec<u8>)| {
        let record: Value = serde_json::from_slice(&bytes).unwrap();
        let label = record["labels"][0]["text"].as_str().unwrap().to_owned();
        (label, scratch.runs().join(path.parent().unwrap()), record)
    };
    scratch.records().into_iter().map(record).collect()
}

/// Runs `longreach eval RUN ARGUMENTS --json`: the record, and what was said.
fn eval(run: &Path, arguments: &[&str]) -> (Value, String) {
    let output = command("eval", run, &[arguments, &["--json"]].concat());
    exits(&output, 0);
    (
        serde_json::from_str(&stdout(&output)).unwrap(),
        stderr(&output),
    )
}

#[test]
fn an_addition_is_the_same_run_as_the_stack_written_out() {
    for (trained, short, long) in [
        (
            ROPE,
            "add = { kind = \"window\", size = 3, sinks = 1 }",
            "{ kind = \"rope\" }, { kind = \"window\", size = 3, sinks = 1 }",
        ),
        (
            ROPE,
            "add = { sinks = 1, kind = \"window\" }",
            "{ kind = \"rope\" }, { kind = \"window\", sinks = 1 }",
        ),
        (
            "{ kind = \"kerple\" }",
            "add = { kind = \"log_scaling\" }",
            "{ kind = \"kerple\" }, { kind = \"log_scaling\" }",
        ),
        (
            "{ kind = \"t5\", num_buckets = 8, max_distance = 5 }",
            "add = [{ kind = \"alibi\" }, { kind = \"window\" }]",
            "{ kind = \"t5\", num_buckets = 8, max_distance = 5 }, { kind = \"alibi\" }, { kind = \"window\" }",
        ),
        (
            "{ kind = \"stack\", parts = [{ kind = \"rope\" }, { kind = \"kerple\" }] }",
            "add = { kind = \"window\" }",
            "{ kind = \"rope\" }, { kind = \"kerple\" }, { kind = \"window\" }",
        ),
        (
            "{ kind = \"rope\", base = 100.0 }",
            "set = { scaling = { kind = \"yarn\" } }\nadd = { kind = \"window\" }",
            "{ kind = \"rope\", base = 100.0, scaling = { kind = \"yarn\" } }, { kind = \
             \"window\" }",
        ),
    ] {
        let short = planned(&variant("v", short), trained);
        let long = planned(
            &variant(
                "v",
                &format!("set = {{ kind = \"stack\", parts = [{long}] }}"),
            ),
            trained,
        );
        assert_eq!(ids(&short), ids(&long), "{trained}");
        assert_eq!(short.notes, Vec::<String>::new(), "{trained}");
    }
}

/// A factor that follows from lengths stays that of the trained encoding.
#[test]
fn an_addition_leaves_the_trained_encoding_as_it_is() {
    let trained = "{ kind = \"rope\", scaling = { kind = \"linear\" } }";
    let plan = planned(&variant("v", "add = { kind = \"window\" }"), trained);
    let spec = serde_json::to_value(&plan.runs[0].job.spec).unwrap();
    for encoding in spec["eval"]["variants"][1]["pe"].as_array().unwrap() {
        assert_eq!(encoding["parts"][0], spec["model"]["pe"]);
    }
}

/// Pose jumps in training alone, so that its tests reach no further than their length.
#[test]
fn a_variant_at_positions_of_pose_has_a_value_up_to_its_length() {
    let pose = variant("v", "positions = { kind = \"pose\" }");
    let plan = planned(&pose, "{ kind = \"learned\", max_position = 20 }");
    let notes = plan.notes.join("\n");
    lacks(&notes, "unsupported");
}

const TRAINED: &str = "{ kind = \"rope\" }, { kind = \"alibi\" }, { kind = \"kerple\" }, { kind = \
                       \"t5\", num_buckets = 8, init_std = 1.0 }, { kind = \"learned\", \
                       max_position = 64 }, { kind = \"sinusoidal\", learnable_scale = true }, { \
                       kind = \"shaw\" }, { kind = \"nope_layers\", every = 2, part = { kind = \
                       \"kerple\" } }, { kind = \"stack\", parts = [{ kind = \"rope\" }, { kind = \
                       \"kerple\" }] }";

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story: every step builds on the one before"
)]
fn an_addition_is_evaluated_with_the_trained_weights() {
    let variants = variant("wide", "add = { kind = \"window\", size = 1000 }")
        + &variant("narrow", "add = { kind = \"window\", size = 3, sinks = 1 }")
        + &variant("alone", "set = { kind = \"window\", size = 3, sinks = 1 }");
    let scratch = Scratch::with(&config(&variants, TRAINED));
    scratch.trains(&[
        "seeds=[0]",
        "train.steps=30",
        "train.lr=3e-2",
        "model.n_layers=2",
    ]);
    let records = records(&scratch);
    assert_eq!(records.len(), 9);
    for (label, run, record) in &records {
        let [trained, wide, narrow, alone] =
            ["trained", "wide", "narrow", "alone"].map(|name| loss(record, name, 8));
        assert!(
            (trained - wide).abs() < 1e-5,
            "{label}: {trained} under a window without effect is {wide}"
        );
        assert!(
            (trained - narrow).abs() > 1e-4,
            "{label}: {trained} under a narrow window is {narrow}"
        );
        // What `set` alone evaluates is another thing.
        assert!(
            (narrow - alone).abs() > 1e-4,
            "{label}: {narrow} and {alone}"
        );
        let trained: Value = record["spec"]["model"]["pe"].clone();
        let (again, said) = eval(
            run,
            &[
                "--variant",
                "add = { kind = \"window\", size = 3, sinks = 1 }",
            ],
        );
        assert_eq!(again["spec"]["model"]["pe"], trained);
        for length in [4, 8] {
            assert_eq!(
                metrics(&again, "window", length),
                metrics(record, "narrow", length),
                "{label} at {length}"
            );
        }
        lacks(&said, "without the trained");
    }
    let (_, run, record) = records.iter().find(|(label, ..)| label == "rope").unwrap();
    // The stack written out has the very numbers, from a file too, which may be restricted.
    let file = scratch.directory.path().join("v.toml");
    let text = "name = \"filed\"\nwhen = { kind = \"rope\" }\nset = { base = 10000.0 }\nadd = [{ \
                kind = \"window\", size = 3, sinks = 1 }]\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let explicit = "name = \"explicit\"\nkind = \"stack\"\nparts = [{ kind = \"rope\" }, { kind = \
                    \"window\", size = 3, sinks = 1 }]";
    let narrow = "add = { kind = \"window\", size = 3, sinks = 1 }";
    let (again, _) = eval(
        run,
        &[
            "--variant",
            explicit,
            "--variant",
            file,
            "--variant",
            narrow,
            "--variant",
            "add={kind=\"window\",size=2}",
            "--variant",
            "base=10000.0\npositions={kind=\"interpolated\"}\nadd={kind=\"window\",size=3,sinks=1}",
        ],
    );
    // Names say all that a variant changes.
    let name = "base = 10000.0+window+interpolated";
    assert!(loss(&again, name, 8).is_finite());
    for name in ["explicit", "filed", "window"] {
        assert_eq!(
            metrics(&again, name, 8),
            metrics(record, "narrow", 8),
            "{name}"
        );
    }
    // A second variant of the same kind is named by what it says.
    assert!(loss(&again, "add={kind=\"window\",size=2}", 8).is_finite());
    let (_, alibi, _) = records.iter().find(|(label, ..)| label == "alibi").unwrap();
    let (again, said) = eval(alibi, &["--variant", file, "--variant", "kind=\"window\""]);
    assert_eq!(
        again["evals"].as_array().unwrap().len(),
        4,
        "`filed` is not for alibi"
    );
    has(&said, "`filed` is left out");
    has(&said, "alibi");
    let dropped = "variant `window` evaluates without the trained `alibi`: `set` with `kind` \
                   replaces it; write add = { kind = \"window\" }";
    has(&said, dropped);
}

#[test]
fn check_and_run_note_a_variant_that_drops_the_trained_encoding() {
    let window = variant("window", "set = { kind = \"window\", size = 3 }");
    let note = "variant `window` evaluates without the trained `rope`, `alibi`: `set` with `kind` \
                replaces it; write add = { kind = \"window\", size = 3 } to keep it";
    let scratch = Scratch::with(&config(
        &window,
        "{ kind = \"rope\" }, { kind = \"alibi\" }, { kind = \"nope\" }",
    ));
    let text = scratch.longreach("check", &[]);
    exits(&text, 0);
    says(&text, &format!("note: {note}\n"));
    let json = scratch.longreach("check", &["--json"]);
    let json: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(json["notes"], serde_json::json!([note]));
    says(&scratch.trains(&["seeds=[0]"]), &format!("note: {note}\n"));
    // The parts of a stack are looked at one by one; what keeps them is not always one addition.
    let of = |keys: &str, trained: &str| planned(&variant("v", keys), trained).notes;
    let stack = "{ kind = \"stack\", parts = [{ kind = \"rope\" }, { kind = \"alibi\" }] }";
    let notes = of("set = { kind = \"rope\" }", stack);
    assert_eq!(
        notes,
        ["variant `v` evaluates without the trained `alibi`: `set` with `kind` replaces it"]
    );
    assert_eq!(
        of("set = { kind = \"nope\" }", ROPE),
        ["variant `v` evaluates without the trained `rope`: `set` with `kind` replaces it"]
    );
    assert_eq!(
        of(
            "set = { kind = \"window\" }\nadd = { kind = \"alibi\" }",
            ROPE
        )
        .len(),
        1
    );
    for (keys, trained) in [
        ("set = { kind = \"rerope\" }", ROPE),
        ("set = { kind = \"self_extend\" }", ROPE),
        ("set = { kind = \"rope\", base = 5.0 }", ROPE),
        (
            "set = { kind = \"stack\", parts = [{ kind = \"rope\" }, { kind = \"window\" }] }",
            ROPE,
        ),
        (
            "set = { kind = \"nope_layers\", every = 2, part = { kind = \"rope\" } }",
            ROPE,
        ),
        ("set = { kind = \"log_scaling\" }", "{ kind = \"nope\" }"),
        ("set = { base = 5.0 }", ROPE),
        ("positions = { kind = \"interpolated\" }", ROPE),
        (
            "set = { kind = \"rope\" }\nadd = { kind = \"alibi\" }",
            stack,
        ),
    ] {
        // It adds back what `set` took from the stack.
        let expected: &[&str] = match keys.contains("add") && trained == stack {
            true => &["variant `v` changes nothing of the trained encoding"],
            false => &[],
        };
        assert_eq!(of(keys, trained), expected, "{keys} on {trained}");
    }
}

#[test]
fn check_notes_parts_that_no_layer_has() {
    let said = |layers: u32| {
        let encodings = "{ kind = \"by_layer\", parts = [{ kind = \"rope\" }, { kind = \"alibi\" }, \
                         { kind = \"nope\" }], pattern = [0, 1, 0, 2] }, \
                         { kind = \"stack\", parts = [{ kind = \"nope_layers\", every = 3, part = \
                         { kind = \"alibi\" } }, { kind = \"window\", size = 4 }] }";
        let scratch = Scratch::with(&config("", encodings));
        plan(&scratch.config, &[format!("model.n_layers={layers}")])
            .unwrap_or_else(|error| panic!("{error}"))
            .notes
    };
    let part = |part: &str, layers: u32| {
        format!(
            "`by_layer`: no layer has {part}, because pattern = [0, 1, 0, 2] is longer than the \
             model, which has n_layers = {layers}"
        )
    };
    let every = |layers: u32| {
        format!(
            "`nope_layers`: every layer has the encoding, because every = 3 is more than n_layers \
             = {layers}"
        )
    };
    let (alibi, nope) = ("parts.1 (`alibi`)", "parts.2 (`nope`)");
    assert_eq!(said(1), [part(alibi, 1), part(nope, 1), every(1)]);
    assert_eq!(said(2), [part(nope, 2), every(2)]);
    assert_eq!(said(3), [part(nope, 3)]);
    assert_eq!(said(4), [""; 0]);
}

#[test]
fn the_configs_of_the_repository_drop_no_trained_encoding() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    let directories = std::fs::read_dir(root.join("experiments"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for directory in directories
        .chain([root.join("configs")])
        .filter(|path| path.is_dir())
    {
        for file in std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            let is_config =
                file.extension().is_some_and(|end| end == "toml") && !file.ends_with("claims.toml");
            // One config starts from runs that are not kept here.
            let Some(plan) = is_config.then(|| plan(&file, &[]).ok()).flatten() else {
                continue;
            };
            seen += 1;
            let dropped: Vec<_> = plan
                .notes
                .iter()
                .filter(|note| note.contains("without the trained"))
                .collect();
            assert!(dropped.is_empty(), "{}: {dropped:?}", file.display());
        }
    }
    assert!(seen > 20, "{seen} configs");
}

/// The keys of a variant, after `@` the trained encoding where it is not rope, and what the message
/// must name. A `; ` is the end of a line.
const REFUSED: &str = r#"
add = {} -> eval.variants.0.add | missing key `kind`
add = [] -> eval.variants.0.add | adds nothing | one encoding or more
add = 3 -> eval.variants.0.add | must be a table
add = "window" -> eval.variants.0.add | write add = { kind = "window" }
add = [{ kind = "window" }, "alibi"] -> eval.variants.0.add.1 | { kind = "alibi" }
add = { kind = "windw" } -> eval.variants.0.add.kind | windw | did you mean `window`?
add = { kind = "window", sink = 4 } -> eval.variants.0.add.sink | size, sinks
add = { kind = "window", size = 0 } -> eval.variants.0.add.size | = value: 0 | from 1 to
add = [{ kind = "alibi" }, { kind = "window", size = 0 }] -> eval.variants.0.add.1.size
add = { kind = "nope" } -> eval.variants.0.add.kind | adds nothing | alibi
add = { kind = "kerple" }
    -> eval.variants.0.add.kind | was not trained with: r1 [2] | alibi | window
    | `stack` of both in model.pe
add = { kind = "rerope" } -> eval.variants.0.add.kind | trained `rope` | set = { kind = "rerope" }
add = { kind = "self_extend", window = 2 }
    @ { kind = "stack", parts = [{ kind = "alibi" }, { kind = "rope" }] }
    -> trained `rope` | set = { kind = "self_extend", window = 2 }
add = { kind = "xpos" } @ { kind = "shaw" }
    -> eval.variants.0.add | shaw and xpos | cannot be combined with another transform
set = { base = 1.0 }; add = { kind = "window" } -> eval.variants.0.set.base | above 1
set = { kind = "kerple" }; add = { kind = "window" } -> eval.variants.0.set | parts.0.r1
append = { kind = "window" } -> eval.variants.0.append | `append` is `add` here
plus = { kind = "window" } -> eval.variants.0.plus | `plus` is `add` here
with = { kind = "window" } -> eval.variants.0.with | `with` is `add` here
-> eval.variants.0 | changes nothing | add = { kind = "window" }
"#;

#[test]
fn an_addition_that_cannot_work_is_refused_with_its_place() {
    let refused = |scratch: &Scratch, parts: &[&str]| {
        let output = scratch.longreach("check", &[]);
        exits(&output, 2);
        for part in parts.iter().chain(&["x.toml:", " = key: "]) {
            says(&output, part);
        }
    };
    for (case, parts) in cases(REFUSED) {
        let (keys, trained) = case.split_once('@').unwrap_or((case.as_str(), ROPE));
        let scratch = Scratch::with(&config(&variant("v", &keys.replace("; ", "\n")), trained));
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        refused(&scratch, &parts);
    }
    let many = format!("add = [{}]", vec!["{ kind = \"alibi\" }"; 16].join(", "));
    refused(
        &Scratch::with(&config(&variant("v", &many), ROPE)),
        &["eval.variants.0.add", "17", "at most 16"],
    );
    // What keys of the model make impossible.
    let window = "add = { kind = \"window\" }";
    for (keys, trained, key, parts) in [
        (
            window,
            ROPE,
            "attention = \"linear\"",
            ["model.attention", "cannot host", "in variant `v`"],
        ),
        (
            window,
            "{ kind = \"t5\" }",
            "positions = { kind = \"randomized_distances\" }",
            ["model.positions.kind", "distances only", "in variant `v`"],
        ),
        (
            "set = { kind = \"rope\" }",
            "{ kind = \"alibi\" }",
            "positions = { kind = \"randomized_distances\" }",
            [
                "model.positions.kind",
                "in variant `v`",
                "give the variant others",
            ],
        ),
        (
            "positions = { kind = \"contiguous\" }",
            "{ kind = \"on_axis\", axis = 1, part = { kind = \"learned\", max_position = 8 } }",
            "positions = { kind = \"grid\", sizes = [8] }",
            [
                "eval.variants.0.positions.kind",
                "without coordinates",
                "those of the model fit",
            ],
        ),
    ] {
        let config = config(&variant("v", keys), trained);
        let config = config.replace("[train]", &format!("{key}\n[train]"));
        refused(&Scratch::with(&config), &parts);
    }
}

/// Variants of an evaluation, and what the message must name.
const REFUSED_LATER: &str = r#"
add = [] -> `add` | adds nothing | help
add = 3 -> `add` must be a table with `kind`, not a whole
add = [{ kind = "window", sink = 1 }] -> add.0.sink | allowed: size, sinks
add = { kind = "window", size = 0 } -> `add.size` | value: 0 | allowed: a whole number from 1
add = { kind = "rerope" } -> `add.kind` | trained `rope` | set = { kind = "rerope" }
add = { kind = "t5" } -> `add.kind` | was not trained with | alibi
set = 3 -> `set` must be a table, not a whole number
base = 5; set = { base = 6 } -> `base` beside `set`
name = "trained"; add = { kind = "window" } -> another variant is named `trained` | name = "..."
"#;

#[test]
fn an_addition_that_cannot_work_is_refused_on_the_command_line() {
    let scratch = Scratch::with(&config("", ROPE));
    scratch.trains(&["seeds=[0]"]);
    let run = &records(&scratch)[0].1;
    for (text, parts) in cases(REFUSED_LATER) {
        let text = text.replace("; ", "\n");
        let output = command("eval", run, &["--variant", &text]);
        exits(&output, 2);
        let said = stderr(&output);
        for part in parts
            .iter()
            .map(String::as_str)
            .chain(["--variant", "= help"])
        {
            assert!(said.contains(part), "{text}: {part:?} is missing:\n{said}");
        }
    }
    assert!(
        !run.join("evals").exists(),
        "nothing is written before all variants are read"
    );
}

#[test]
fn check_notes_lengths_without_a_value_and_counts_nothing_as_zero() {
    let learned = "{ kind = \"learned\", max_position = 20 }, { kind = \"rope\" }";
    let scratch = Scratch::with(&config(
        &variant(
            "between",
            "when = { kind = \"learned\" }\nset = { interpolate = true }",
        ),
        learned,
    ));
    let lengths = "eval.test_lens=[4,8,16,32,64]";
    let said = stderr(&scratch.longreach("check", &[lengths]));
    // A length of the task is 2 n + 2 tokens.
    assert_eq!(said.matches("note: ").count(), 1, "{said}");
    let note = "note: `learned` has no value at 16, 32, 64 symbols: recorded as unsupported \
                (max_position = 20 tokens)";
    has(&said, note);
    // The printed lengths are the recorded ones.
    scratch.trains(&[lengths]);
    for (label, _, record) in records(&scratch) {
        for row in record["evals"].as_array().unwrap() {
            let expected = label == "learned"
                && row["variant"] == "trained"
                && row["test_len"].as_u64() > Some(8);
            assert_eq!(row["status"] == "unsupported", expected, "{label}: {row}");
        }
    }
    let done = stdout(&scratch.longreach("check", &[lengths]));
    let part = "to do: 0 runs, 0 tokens trained on, about 0 s of CPU time";
    has(&done, part);
}

#[test]
fn a_variant_of_a_formula_has_the_numbers_that_were_trained() {
    let formula = "{ kind = \"formula\", bias = \"-m * d\", train = { m = 0.5 } }";
    let refused = |set: &str| {
        let scratch = Scratch::with(&config(&variant("v", set), formula));
        match plan(&scratch.config, &[]) {
            Ok(_) => panic!("{set} is accepted"),
            Err(error) => error.to_string(),
        }
    };
    let error = refused("set = { train = { m = 3.0 } }");
    has(&error, "eval.variants.0.set.train.m");
    has(&error, "the start of the training, 0.5");
    let error = refused("set = { values = { m = 2 } }");
    has(&error, "eval.variants.0.set.values.m");
    has(&error, "is in `train` too");
    let error = refused("set = { bias = \"-x * d * m\", values = { x = 1, m = 2 } }");
    lacks(&error, "default value");
    let error = refused("set = { bias = \"-x * d\", train = { x = 3.0 } }");
    has(&error, "was not trained with: trained.x");
    let kept = |set: &str| planned(&variant("v", set), formula).runs.len();
    for set in [
        "set = { bias = \"-m * d * d\" }",
        "set = { kind = \"formula\", bias = \"-3 * d\" }",
    ] {
        assert!(kept(set) > 0, "{set}");
    }
}

#[test]
fn a_scaling_that_reads_the_length_is_not_said_to_be_tested_as_plain_rope() {
    let scratch = Scratch::with(TINY);
    for (kind, is_plain) in [("linear", true), ("dynamic_ntk", false)] {
        let axis = format!("axes.\"model.pe\"=[{{kind=\"rope\",scaling={{kind=\"{kind}\"}}}}]");
        let checked = scratch.longreach("check", &[&axis, "eval.variants=[]"]);
        exits(&checked, 0);
        let said = stderr(&checked);
        has(&said, "trains the weights of plain `rope`");
        assert_eq!(
            said.contains("is tested as plain `rope`"),
            is_plain,
            "{said}"
        );
    }
}
