//! The list of keys is what the reader accepts, and its ranges are those that are checked.

use config::diagnostic::Problem;
use experiment::plan;
use experiment::plan::keys::{KEYS, Kind};
use experiment::plan::planner::Plan;
use longreach::commands::schema::schema;
use std::collections::BTreeSet;

/// A config with every table that has keys, so that each can be asked for the keys it knows.
const WHOLE: &str = r#"
name = "keys"
half_seeds = [0]
task = { kind = "copy" }
report = {}
select = { over = { "train.lr" = [1e-3, 3e-3] } }
[model]
d_model = 16
n_layers = 1
n_heads = 2
pe = { kind = "rope" }
[train]
train_len = 8
steps = 4
length = "staged"
stages = [{ steps = 4, train_len = 8 }]
adamw = {}
stop = { metric = "exact_match", at_least = 1.0, every = 2 }
[eval]
test_lens = [8]
variants = [{ name = "window", add = { kind = "window" } }]
"#;

fn planned(overrides: &[String]) -> Result<Plan, experiment::plan::mistakes::Mistakes> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.toml");
    std::fs::write(&path, WHOLE).unwrap();
    plan(&path, overrides)
}

/// The keys a table says it has when it is given another one.
fn known(table: &str) -> BTreeSet<String> {
    let prefix = if table.is_empty() {
        String::new()
    } else {
        format!("{table}.")
    };
    let error = planned(&[format!("{prefix}zz_probe=1")]).err().unwrap();
    match &error.problem {
        Problem::UnknownKey { name, known, .. } if name == "zz_probe" => {
            let path = |key: &String| format!("{prefix}{key}").replace(".0.", ".N.");
            known.iter().map(path).collect()
        }
        _ => panic!("{error}"),
    }
}

#[test]
fn every_key_is_listed_and_no_other() {
    assert!(planned(&[]).is_ok());
    let tables = [
        "",
        "model",
        "train",
        "train.adamw",
        "train.stop",
        "train.stages.0",
        "eval",
        "eval.variants.0",
        "report",
        "select",
    ];
    let accepted: BTreeSet<String> = tables.iter().flat_map(|table| known(table)).collect();
    // Read before the tables are, and tables whose own keys are listed.
    let before = ["axes", "max_runs"].map(str::to_owned);
    let above = [
        "model",
        "train",
        "train.adamw",
        "train.stop",
        "train.stages",
        "eval",
        "eval.variants",
        "report",
        "select",
    ]
    .map(str::to_owned);
    let expected: BTreeSet<String> = accepted.into_iter().chain(before).collect();
    let listed: BTreeSet<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
    let all: BTreeSet<String> = listed.into_iter().chain(above).collect();
    assert_eq!(all, expected);
}

#[test]
fn the_listed_ranges_are_those_that_are_checked() {
    let refused = |path: &str, value: String| {
        let key = path.replace(".N.", ".0.");
        let error = planned(&[format!("{key}={value}")]).err();
        let error = error.unwrap_or_else(|| panic!("{key} = {value} is accepted"));
        error.to_string()
    };
    let mut tried = 0;
    for key in KEYS.iter() {
        // Ends that depend on another key are lower than those listed.
        let (low, high, is_list) = match key.kind {
            Kind::Whole(low, high) => (low, high, false),
            Kind::Wholes(low, high) | Kind::Lengths(low, high) => (low, high, true),
            Kind::Number(low, high) => {
                for value in [low - 1.0, high * 2.0] {
                    let error = refused(key.path, format!("{value:?}"));
                    let (short, plain) = (
                        schema::allowed(&(low..=high)),
                        format!("a number from {low} to {high}"),
                    );
                    let found = [short, plain]
                        .iter()
                        .any(|text| error.contains(&format!("allowed: {text}")));
                    assert!(found, "{}: {error}", key.path);
                    tried += 1;
                }
                continue;
            }
            _ => continue,
        };
        let written = |value: u64| {
            if is_list {
                format!("[{value}]")
            } else {
                value.to_string()
            }
        };
        if let Some(below) = low.checked_sub(1) {
            refused(key.path, written(below));
            tried += 1;
        }
        if high < u64::MAX >> 1 {
            refused(key.path, written(high + 1));
            tried += 1;
        }
    }
    assert!(tried > 40, "{tried} values");
}

#[test]
fn names_and_examples_can_be_read() {
    let read = |key: &str, value: &str| {
        let key = key.replace(".N.", ".0.");
        match planned(&[format!("{key}={value}")]) {
            Ok(_) => {}
            // A value may not go with the rest of the config; it must not be of another type.
            Err(error) => assert!(
                matches!(error.problem, Problem::Value { .. } | Problem::Other(_)),
                "{key} = {value}: {error}"
            ),
        }
    };
    for key in KEYS.iter() {
        if let Kind::Name(names) = key.kind {
            for name in names {
                read(key.path, &format!("\"{name}\""));
            }
        }
        read(key.path, key.example);
    }
}

#[test]
fn the_schema_names_every_key() {
    let schema = schema();
    for key in KEYS.iter() {
        let pointer = key
            .path
            .split('.')
            .fold(String::new(), |pointer, part| match part {
                "N" => format!("{pointer}/items"),
                part => format!("{pointer}/properties/{part}"),
            });
        let found = schema.pointer(&pointer);
        assert!(found.is_some(), "{pointer}");
        assert!(found.unwrap()["description"].is_string(), "{pointer}");
    }
    assert_eq!(schema["required"].as_array().unwrap().len(), 5);
}
