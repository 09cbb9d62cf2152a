//! Valid configs to mutate: the files of `configs/`, and small ones that together hold every key
//! there is.

use super::encodings::ENCODINGS;
use super::schema;
use config::diagnostic::Problem;
use experiment::plan;
use experiment::plan::keys::{KEYS, Kind};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// The least a config may say, and what the small ones are built on.
const LEAST: &str = r#"
name = "base"
[task]
kind = "copy"
alphabet = 4
test_rows = 8
[model]
d_model = 16
n_layers = 2
n_heads = 2
pe = { kind = "rope" }
[train]
train_len = 8
steps = 6
[eval]
test_lens = [8, 16]
"#;

/// A file of claims.
const CLAIMS: &str = r#"
[[claim]]
metric = "exact_match"
kind = "order"
methods = ["rope", "alibi"]
lengths = ["2x"]
"#;

/// Everything outside of the tables that have a kind.
const MOST: &str = r#"
name = "most"
title = "Every key at once"
seeds = [0, 7]
max_runs = 100
[task]
kind = "copy"
[model]
d_model = 16
n_layers = 2
n_heads = 2
head_dim = 8
d_ff = 32
norm = "rms_norm"
qk_norm = "layer_norm"
activation = "swiglu"
tied_head = true
dropout = 0.1
embedding_std = 0.02
attention = "linear"
feature_map = "relu"
normalizer = "rotated"
matmul = "tf32"
positions = { kind = "contiguous" }
pe = { kind = "rope" }
[train]
train_len = 8
steps = 60
batch_size = 4
length = "uniform"
min_len = 2
lr = 1e-3
warmup_steps = 3
schedule = "linear"
final_lr = 0.1
grad_clip = 1.0
adamw = { beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1 }
[eval]
test_lens = [8, 16]
seed = 3
batch_tokens = 64
[[eval.variants]]
name = "ntk"
when = { kind = "rope" }
set = { scaling = { kind = "ntk" } }
[[eval.variants]]
name = "offset"
positions = { kind = "random_offset", max_position = 64 }
[report]
claims = "claims.toml"
assertions = true
[axes]
"train.batch_size" = [4, 8]
"model.pe.base" = [100.0, 10000.0]
"#;

/// A table with a kind, with every key that the kind has; [`ENCODINGS`] has those of `model.pe`.
const TABLES: &[(&str, &str)] = &[
    ("model.positions", r#"{ kind = "contiguous" }"#),
    (
        "model.positions",
        r#"{ kind = "random_offset", max_position = 64 }"#,
    ),
    (
        "model.positions",
        r#"{ kind = "randomized", max_position = 64 }"#,
    ),
    (
        "model.positions",
        r#"{ kind = "interpolated", factor = 2.0 }"#,
    ),
    ("model.positions", r#"{ kind = "grid", sizes = [4] }"#),
    ("model.positions", r#"{ kind = "pose", max_position = 64 }"#),
    (
        "task",
        r#"{ kind = "multiplication", base = 4, digits = "lsd_first", scratchpad = true, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "needles", names = 8, keys = 2, values = 2, queries = 1, digits = 2, filler = 5,
            random_filler = false, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "variable_tracking", variables = 8, chains = 2, hops = 2, digits = 2, filler = 5,
            random_filler = false, test_rows = 8 }"#,
    ),
    ("task", r#"{ kind = "copy", alphabet = 4, test_rows = 8 }"#),
    (
        "task",
        r#"{ kind = "duplicate", alphabet = 4, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "reverse", alphabet = 4, test_rows = 8 }"#,
    ),
    ("task", r#"{ kind = "sort", alphabet = 4, test_rows = 8 }"#),
    (
        "task",
        r#"{ kind = "bucket_sort", alphabet = 4, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "odds_first", alphabet = 4, test_rows = 8 }"#,
    ),
    ("task", r#"{ kind = "missing_duplicate", test_rows = 8 }"#),
    (
        "task",
        r#"{ kind = "parity", draw = "balanced", test_rows = 8 }"#,
    ),
    ("task", r#"{ kind = "even_pairs", test_rows = 8 }"#),
    (
        "task",
        r#"{ kind = "copy", alphabet = 16, distinct = true, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "sort", alphabet = 16, distinct = true, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "majority", alphabet = 4, draw = "uniform", interleaved = 2, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "majority", draw = "balanced", test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "flip_flop", ignore = 0.8, answer = "last", test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "solve_equation", modulus = 5, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "automaton", language = "tomita_6", answer = "states", test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "automaton", language = "own", answer = "accept", test_rows = 8,
            symbols = ["a", "b"], states = ["even", "odd"], start = "even", accepting = ["even"],
            transitions = { even = { a = "odd", b = "even" }, odd = { a = "even", b = "odd" } } }"#,
    ),
    ("task", r#"{ kind = "compute_sqrt", test_rows = 8 }"#),
    ("model.mlp", r#""none""#),
    ("model.mask", r#""bidirectional""#),
    (
        "task",
        r#"{ kind = "cycle_navigation", cycle = 5, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "summation", modulus = 10, answer = "running", test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "modular_arithmetic", modulus = 5, brackets = false, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "addition", base = 10, digits = "lsd_first", test_rows = 8 }"#,
    ),
    ("task", r#"{ kind = "stack_manipulation", test_rows = 8 }"#),
    (
        "task",
        r#"{ kind = "induction", alphabet = 4, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "mqar", vocab = 64, pairs = 2, power = 0.5, random_filler = false, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "dup_key_recall", keys = 8, values = 4, occurrences = 2, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "fixed_offset", alphabet = 4, max_offset = 6, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "frequent_words", words = 8, alpha = 1.8, top = 1, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "selective_copy", alphabet = 4, data = 4, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "passkey", digits = 2, filler = 5, random_filler = false, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "passkey", digits = 2, test_rows = 8, text = { corpus = "cargo",
            crates = ["clap_builder"], split = { by = "file", every = 4 }, max_bytes = 20000000 } }"#,
    ),
    (
        "task",
        r#"{ kind = "needles", names = 8, keys = 2, digits = 2, test_rows = 8,
            text = { files = ["a.txt"], split = { by = "range", valid_fraction = 0.5 } } }"#,
    ),
    (
        "task",
        r#"{ kind = "variable_tracking", variables = 8, hops = 2, digits = 2, test_rows = 8,
            text = { files = ["a.txt"], split = { by = "range", valid_fraction = 0.5 } } }"#,
    ),
    (
        "task",
        r#"{ kind = "grid", alphabet = 4, answer = "cell", test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "text", corpus = "cargo", crates = ["clap_builder"], split = { by = "file", every = 4 }, eval_tokens = 64,
            windows = { kind = "sliding", stride = 4 }, max_bytes = 20000000 }"#,
    ),
    (
        "task",
        r#"{ kind = "text", files = ["a.txt"], split = { by = "range", valid_fraction = 0.5 }, windows = { kind = "non_overlapping" } }"#,
    ),
    (
        "task",
        r#"{ kind = "addition", base = 4, digits = "lsd_first", operands = "equal", hints = 40, test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "addition", base = 4, digits = "lsd_first", operands = "equal", scratchpad = true,
            test_rows = 8 }"#,
    ),
    (
        "task",
        r#"{ kind = "text", level = "chars", files = ["a.txt"], split = { by = "range", valid_fraction = 0.5 } }"#,
    ),
    (
        "task",
        r#"{ kind = "masked_text", corpus = "cargo", crates = ["clap_builder"], split = { by = "file", every = 4 }, eval_tokens = 256,
            max_bytes = 20000000, rate = 0.2, mask = 0.7, random = 0.1 }"#,
    ),
    (
        "task",
        r#"{ kind = "masked_text", files = ["a.txt"], split = { by = "range", valid_fraction = 0.5 } }"#,
    ),
    (
        "task",
        r#"{ kind = "jsonl", train = ["a.jsonl"], test = ["b.jsonl"], select = ["c.jsonl"], tokens = "words", prompt = "q", answer = "a", bucket = 40,
            overlap = "drop", max_bytes = 20000000 }"#,
    ),
    (
        "task",
        r#"{ kind = "text", files = ["*.txt"], split = { by = "files", valid = ["b.txt"] } }"#,
    ),
];

/// A valid config.
pub struct Base {
    /// What the report calls it.
    pub name: String,
    /// Its values.
    pub table: Table,
    /// Its bytes, as they are in a file.
    pub text: String,
    /// Keys to mutate, from the root down; elements of lists by their number.
    pub keys: Vec<Vec<String>>,
}

/// Every base. `directory` gets the files that the small ones read.
#[expect(clippy::too_many_lines, reason = "one table per configuration")]
pub fn all(directory: &Path) -> Vec<Base> {
    for name in ["a.txt", "b.txt"] {
        std::fs::write(
            directory.join(name),
            "the quick brown fox jumps over the lazy dog; ".repeat(9),
        )
        .expect("a scratch directory");
    }
    for (name, from) in [("a.jsonl", 'a'), ("b.jsonl", 'n'), ("c.jsonl", 'x')] {
        // Prompts of 1 to 40 words, each word a letter.
        let line = |n: usize| {
            format!(
                "{{\"q\": \"{}\", \"a\": \"{from} b\", \"n\": {n}}}\n",
                format!("{from} ").repeat(n)
            )
        };
        std::fs::write(directory.join(name), (1..=40).map(line).collect::<String>())
            .expect("a scratch directory");
    }
    // Ids of 0, which every vocabulary has.
    std::fs::write(directory.join("a.bin"), [0u8; 512]).expect("a scratch directory");
    std::fs::write(directory.join("claims.toml"), CLAIMS).expect("a scratch directory");
    let mut bases = Vec::new();
    let most: Table = MOST.parse().expect("TOML");
    bases.push(base("most", most, &[]));
    let mut staged: Table = LEAST.parse().expect("TOML");
    put(&mut staged, "train.length", r#""staged""#);
    put(
        &mut staged,
        "train.stages",
        "[{ steps = 4, train_len = 4, batch_size = 2, positions = { kind = \"randomized\", max_position = 64 },
              pe = { kind = \"learned\", max_position = 64 } },
            { steps = 2, train_len = 8 }]",
    );
    bases.push(base("stages", staged, &["train", "stages"]));
    for (name, stop) in [
        (
            "a stop",
            r#"{ metric = "exact_match", min_len = 1, at_least = 1.0, every = 2 }"#,
        ),
        (
            "a stop by loss",
            r#"{ metric = "loss_nats", at_most = 0.5, every = 3 }"#,
        ),
    ] {
        let mut stopped: Table = LEAST.parse().expect("TOML");
        put(&mut stopped, "train.stop", stop);
        bases.push(base(name, stopped, &["train", "stop"]));
    }
    let mut mixed: Table = LEAST.parse().expect("TOML");
    put(&mut mixed, "train.length", r#""mixed""#);
    put(&mut mixed, "train.min_len", "2");
    bases.push(base("rows of several lengths", mixed, &["train"]));
    let mut distances: Table = LEAST.parse().expect("TOML");
    put(&mut distances, "model.pe", r#"{ kind = "t5" }"#);
    put(
        &mut distances,
        "model.positions",
        r#"{ kind = "randomized_distances", max_distance = 64 }"#,
    );
    bases.push(base("positions of t5", distances, &["model", "positions"]));
    let mut additions: Table = LEAST.parse().expect("TOML");
    let variants = r#"[{ name = "one", add = { kind = "window", size = 8, sinks = 2 } },
        { name = "two", add = [{ kind = "alibi", factor = 2.0 }, { kind = "log_scaling" }] }]"#;
    put(&mut additions, "eval.variants", variants);
    bases.push(base("additions", additions, &["eval", "variants"]));
    let mut answers: Table = LEAST.parse().expect("TOML");
    put(&mut answers, "eval.decode", r#""auto""#);
    put(&mut answers, "eval.attention_distance", "true");
    bases.push(base("scores of answers", answers, &["eval"]));
    let mut chosen: Table = LEAST.parse().expect("TOML");
    put(
        &mut chosen,
        "select",
        r#"{ over = { "train.lr" = [1e-3, 1e-2] }, by = "loss_nats", seeds = [9], steps = 0.5 }"#,
    );
    bases.push(base("choices", chosen, &["select"]));
    let mut halved: Table = LEAST.parse().expect("TOML");
    put(&mut halved, "half_seeds", "[0]");
    bases.push(base("half steps", halved, &["half_seeds"]));
    let mut held: Table = LEAST.parse().expect("TOML");
    put(&mut held, "eval.rows", r#""selection""#);
    bases.push(base("selection rows", held, &["eval", "rows"]));
    let mut text: Table = LEAST.parse().expect("TOML");
    put(&mut text, "task", r#"{ kind = "text", files = ["a.txt"] }"#);
    put(&mut text, "eval.last_tokens", "4");
    bases.push(base("scores of text", text, &["eval", "last_tokens"]));
    let mut placed: Table = LEAST.parse().expect("TOML");
    put(&mut placed, "task", r#"{ kind = "grid", test_rows = 8 }"#);
    put(&mut placed, "model.pe", r#"{ kind = "axial_rope" }"#);
    put(&mut placed, "model.coordinates", r#""task""#);
    bases.push(base(
        "coordinates of a grid",
        placed,
        &["model", "coordinates"],
    ));
    let mut digits: Table = LEAST.parse().expect("TOML");
    put(
        &mut digits,
        "task",
        r#"{ kind = "addition", operands = "equal", test_rows = 8 }"#,
    );
    let part = r#"{ kind = "on_axis", axis = 1, part = { kind = "learned", max_position = 256 } }"#;
    put(&mut digits, "model.pe", part);
    put(&mut digits, "model.coordinates", r#""task""#);
    put(&mut digits, "model.coordinate_shift", "9");
    for key in ["pe", "coordinate_shift"] {
        let name = format!("{key} of digits");
        bases.push(base(&name, digits.clone(), &["model", key]));
    }
    let mut ids: Table = LEAST.parse().expect("TOML");
    let ids_of = r#"{ kind = "text", level = "u16", vocab = 512, bytes_per_token = 4.0,
        files = ["a.bin"], split = { by = "range", valid_fraction = 0.5 } }"#;
    put(&mut ids, "task", ids_of);
    for key in ["vocab", "bytes_per_token"] {
        let name = format!("{key} of files of ids");
        bases.push(base(&name, ids.clone(), &["task", key]));
    }
    bases.extend(segments(ids));
    let mut pairs: Table = LEAST.parse().expect("TOML");
    let pairs_of = r#"{ kind = "text", level = "bpe", vocab = 258, words = "unicode", files = ["a.txt"],
        split = { by = "range", valid_fraction = 0.5 } }"#;
    put(&mut pairs, "task", pairs_of);
    for key in ["vocab", "words"] {
        let name = format!("{key} of byte pairs");
        bases.push(base(&name, pairs.clone(), &["task", key]));
    }
    let mut grouped: Table = LEAST.parse().expect("TOML");
    let grouped_by = r#"{ kind = "jsonl", train = ["a.jsonl"], test = ["b.jsonl"], tokens = "words", prompt = "q", answer = "a",
        length = "n" }"#;
    put(&mut grouped, "task", grouped_by);
    bases.push(base("rows by a field", grouped, &["task", "length"]));
    let encodings = ENCODINGS.iter().map(|value| ("model.pe", *value));
    for (key, value) in encodings.chain(TABLES.iter().copied()) {
        let mut table: Table = LEAST.parse().expect("TOML");
        put(&mut table, key, value);
        let kind = value.split('"').nth(1).unwrap_or("");
        bases.push(base(
            &format!("{key} {kind}"),
            table,
            &key.split('.').collect::<Vec<_>>(),
        ));
    }
    for path in files() {
        let text = std::fs::read_to_string(&path).expect("a config");
        let name = format!(
            "configs/{}",
            path.file_name().unwrap_or_default().to_string_lossy()
        );
        bases.push(Base {
            text: text.clone(),
            ..base(&name, text.parse().expect("TOML"), &[])
        });
    }
    let declared = declared(&bases);
    bases.extend(declared);
    bases
}

/// A base for each declared key that no other base holds: the least config with its example.
fn declared(bases: &[Base]) -> Vec<Base> {
    let ids = |base: &Base| -> Vec<String> {
        let ids = base.keys.iter().map(|key| schema::id(&base.table, key));
        ids.collect()
    };
    let held: BTreeSet<String> = bases.iter().flat_map(ids).collect();
    let is_scalar = |kind| {
        matches!(
            kind,
            Kind::Name(_) | Kind::Number(..) | Kind::Whole(..) | Kind::Truth
        )
    };
    let keys = KEYS
        .iter()
        .filter(|key| is_scalar(key.kind) && !key.path.contains(".N."));
    keys.filter(|key| !held.contains(key.path))
        .map(|key| {
            let mut table: Table = LEAST.parse().expect("TOML");
            put(&mut table, key.path, key.example);
            base(key.path, table, &key.path.split('.').collect::<Vec<_>>())
        })
        .collect()
}

/// The files of `configs/`.
pub fn files() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .expect("configs/")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file())
        .collect();
    paths.sort();
    paths
}

fn put(table: &mut Table, key: &str, value: &str) {
    let mut slot = table;
    let parts = key.split('.').collect::<Vec<_>>();
    let Some((last, above)) = parts.split_last() else {
        return;
    };
    for part in above {
        slot = slot
            .entry(*part)
            .or_insert_with(|| Value::Table(Table::new()))
            .as_table_mut()
            .expect("a table");
    }
    let read: Table = format!("x = {}", value.replace('\n', " "))
        .parse()
        .expect("TOML");
    slot.insert((*last).to_owned(), read["x"].clone());
}

fn base(name: &str, table: Table, focus: &[&str]) -> Base {
    let mut keys = Vec::new();
    let root = Value::Table(table.clone());
    walk(&root, &mut Vec::new(), &mut keys);
    // What stands below the key of an axis is replaced before it is read.
    let over = table.get("select").and_then(|select| select.get("over"));
    let axes: Vec<Vec<String>> = [table.get("axes"), over]
        .into_iter()
        .flatten()
        .filter_map(Value::as_table)
        .flat_map(Table::keys)
        .map(|key| schema::split(key))
        .collect();
    keys.retain(|key| {
        key.iter()
            .map(String::as_str)
            .zip(focus.iter().copied())
            .all(|(a, b)| a == b)
            && key.len() >= focus.len()
    });
    keys.retain(|key| !axes.iter().any(|axis| key.starts_with(axis)));
    let text = toml::to_string(&table).expect("a table can be written");
    Base {
        name: name.to_owned(),
        table,
        text,
        keys,
    }
}

fn walk(value: &Value, path: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Table(table) => table
            .iter()
            .map(|(key, value)| (key.clone(), value))
            .collect(),
        // The first two elements stand for the others.
        Value::Array(array) => array
            .iter()
            .take(2)
            .enumerate()
            .map(|(i, value)| (i.to_string(), value))
            .collect(),
        _ => return,
    };
    for (key, value) in children {
        path.push(key);
        out.push(path.clone());
        walk(value, path, out);
        path.pop();
    }
}

/// Keys that no base holds: `train.start_from` leads to a recorded run, and `tests/it/schedules.rs`
/// tries its mistakes; `tokenizer` leads to a file of another program, and `tasks/tests/it/bpe.rs`
/// does.
pub const ELSEWHERE: [&str; 2] = ["train.start_from", "task:text.tokenizer"];

/// Every key that the strict types know, as they list them when they meet an unknown one, and every
/// key that some base holds.
pub fn known_and_held(bases: &[Base], scratch: &Path) -> (BTreeSet<String>, BTreeSet<String>) {
    const PROBE: &str = "zz_probe";
    let (mut known, mut held) = (BTreeSet::new(), BTreeSet::new());
    for base in bases {
        held.extend(base.keys.iter().map(|key| schema::id(&base.table, key)));
        let tables = base
            .keys
            .iter()
            .filter(|key| schema::find(&base.table, key).is_some_and(Value::is_table));
        for key in tables.chain([&Vec::new()]) {
            let mut table = base.table.clone();
            let probe: Vec<String> = key.iter().cloned().chain([PROBE.to_owned()]).collect();
            schema::set(&mut table, &probe, Value::Integer(1));
            let path = scratch.join("probe.toml");
            std::fs::write(
                &path,
                toml::to_string(&table).expect("a table can be written"),
            )
            .expect("a scratch directory");
            let Err(error) = plan(&path, &[]) else {
                continue;
            };
            let Problem::UnknownKey {
                name, known: keys, ..
            } = &error.problem
            else {
                continue;
            };
            if name != PROBE {
                continue;
            }
            let place = schema::id(&base.table, &probe);
            // The keys of a filter are those of the encodings.
            if !place.starts_with("when.") {
                known.extend(keys.iter().map(|name| place.replace(PROBE, name)));
            }
        }
    }
    (known, held)
}

/// Segments of a text, by texts and in files of `ids`.
fn segments(mut ids: Table) -> Vec<Base> {
    let pe = r#"{ kind = "stack", parts = [
        { kind = "on_axis", part = { kind = "learned", max_position = 8, clamp = true } },
        { kind = "on_axis", axis = 1, part = { kind = "rope" } }] }"#;
    let mut text: Table = LEAST.parse().expect("TOML");
    let text_of = r#"{ kind = "text", files = ["a.txt"], segment_ends = ["e", "t"] }"#;
    put(&mut text, "task", text_of);
    put(&mut ids, "task.segment_end_ids", "[1, 2]");
    for table in [&mut text, &mut ids] {
        put(table, "model.pe", pe);
        put(table, "model.coordinates", r#""task""#);
    }
    vec![
        base("ends of segments", text.clone(), &["task", "segment_ends"]),
        base("ids of segments", ids, &["task", "segment_end_ids"]),
        base("encoding of segments", text, &["model", "pe"]),
    ]
}
