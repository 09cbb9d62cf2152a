//! Task tables: strict keys, exact paths in every error, defaults, and round trips.

use crate::common;
use longreach_tasks::{
    BuildContext, CorpusKind, Split, TaskConfig, TaskError, TextConfig, Windows,
};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
    task: TaskConfig,
}

fn parse(text: &str) -> Result<TaskConfig, (String, String)> {
    let deserializer = toml::Deserializer::parse(text).expect("valid TOML");
    serde_path_to_error::deserialize::<_, Experiment>(deserializer)
        .map(|e| e.task)
        .map_err(|e| (e.path().to_string(), e.inner().message().to_string()))
}

fn ctx() -> BuildContext<'static> {
    common::ctx("", 64, &[64, 128], 0)
}

/// Table, path of the error, part of its message.
const WRONG_TABLES: &[(&str, &str, &str)] = &[
    (
        "[task]\nalphabet = 4\nkind = \"copy\"",
        "task",
        "missing field `kind`",
    ),
    ("[task]", "task", "missing field `kind`"),
    (
        "task = 3",
        "task",
        "invalid type: integer `3`, expected a table with `kind`",
    ),
    (
        "[task]\nkind = 3",
        "task.kind",
        "invalid type: integer `3`, expected one of `copy`, `duplicate`, `reverse`, ",
    ),
    (
        "[task]\nkind = \"cpoy\"",
        "task.kind",
        "unknown variant `cpoy`, expected one of `copy`, `duplicate`, `reverse`, ",
    ),
    (
        "[task]\nkind = \"copy\"\nalphabte = 4",
        "task.alphabte",
        "unknown field `alphabte`, expected one of `alphabet`, `distinct`, `test_rows`",
    ),
    (
        "[task]\nkind = \"copy\"\nalphabet = \"4\"",
        "task.alphabet",
        "invalid type: string \"4\", expected u64",
    ),
    (
        "[task]\nkind = \"reverse\"\ntest_rows = -1",
        "task.test_rows",
        "invalid value: integer `-1`, expected u64",
    ),
    (
        "[task]\nkind = \"copy\"\nalphabet = 2.5",
        "task.alphabet",
        "invalid type: floating point `2.5`, expected u64",
    ),
    (
        "[task]\nkind = \"parity\"\nalphabet = 2",
        "task.alphabet",
        "unknown field `alphabet`, expected `draw` or `test_rows`",
    ),
    (
        "[task]\nkind = \"addition\"\ndigits = \"lsb\"",
        "task.digits",
        "unknown variant `lsb`, expected `msd_first` or `lsd_first`",
    ),
    (
        "[task]\nkind = \"text\"\nfiles = [\"a\", 2]",
        "task.files[1]",
        "invalid type: integer `2`, expected a string",
    ),
    (
        "[task]\nkind = \"text\"\ncorpus = \"wiki\"",
        "task.corpus",
        "unknown variant `wiki`, expected one of `cargo`, `files`, `rust-2026`",
    ),
    (
        "[task]\nkind = \"text\"\nstride = 3",
        "task.stride",
        "unknown field `stride`",
    ),
    (
        "[task]\nkind = \"text\"\nsplit = { by = \"line\" }",
        "task.split.by",
        "unknown variant `line`, expected one of `file`, `range`, `files`",
    ),
    (
        "[task]\nkind = \"text\"\nsplit = { every = 3, by = \"file\" }",
        "task.split",
        "missing field `by`",
    ),
    (
        "[task]\nkind = \"text\"\nsplit = { by = \"file\", every = 1.5 }",
        "task.split.every",
        "invalid type: floating point `1.5`",
    ),
    (
        "[task]\nkind = \"text\"\nsplit = { by = \"file\", evry = 3 }",
        "task.split.evry",
        "unknown field `evry`, expected `every`",
    ),
    (
        "[task]\nkind = \"text\"\nsplit = { by = \"files\", valid = [1] }",
        "task.split.valid[0]",
        "invalid type: integer `1`",
    ),
    (
        "[task]\nkind = \"text\"\nsplit = { by = \"files\" }",
        "task.split",
        "missing field `valid`",
    ),
    (
        "[task]\nkind = \"text\"\n[task.windows]\nkind = \"sliding\"\nstride = -4",
        "task.windows.stride",
        "invalid value: integer `-4`",
    ),
    (
        "[task]\nkind = \"text\"\nwindows = { kind = \"non_overlapping\", stride = 4 }",
        "task.windows.stride",
        "unknown field `stride`",
    ),
    (
        "[task]\nkind = \"text\"\nwindows = \"sliding\"",
        "task.windows",
        "expected a table with `kind`",
    ),
];

#[test]
fn every_error_has_its_exact_path() {
    for &(text, path, message) in WRONG_TABLES {
        let (found_path, found) = parse(text).expect_err(text);
        assert_eq!(found_path, path, "{text}\n{found}");
        assert!(found.contains(message), "{text}\n{found}");
    }
}

/// Task table, key at fault, its value, what is allowed.
const WRONG_VALUES: &[(&str, &str, &str, &str)] = &[
    (
        "kind = \"copy\"\nalphabet = 1",
        "alphabet",
        "1",
        "a whole number from 2 to 4096",
    ),
    (
        "kind = \"copy\"\nalphabet = 4097",
        "alphabet",
        "4097",
        "a whole number from 2 to 4096",
    ),
    (
        "kind = \"copy\"\nalphabet = 9223372036854775807",
        "alphabet",
        "9223372036854775807",
        "a whole number from 2 to 4096",
    ),
    (
        "kind = \"reverse\"\ntest_rows = 0",
        "test_rows",
        "0",
        "a whole number from 1 to 1000000",
    ),
    (
        "kind = \"sort\"\nalphabet = 1",
        "alphabet",
        "1",
        "a whole number from 2 to 4096",
    ),
    (
        "kind = \"parity\"\ntest_rows = 1000001",
        "test_rows",
        "1000001",
        "a whole number from 1 to 1000000",
    ),
    (
        "kind = \"cycle_navigation\"\ncycle = 1",
        "cycle",
        "1",
        "a whole number from 2 to 4096",
    ),
    (
        "kind = \"summation\"\nmodulus = 0",
        "modulus",
        "0",
        "a whole number from 2 to 4096",
    ),
    (
        "kind = \"modular_arithmetic\"\nmodulus = 1",
        "modulus",
        "1",
        "a whole number from 2 to 4096",
    ),
    (
        "kind = \"addition\"\nbase = 1",
        "base",
        "1",
        "a whole number from 2 to 4096",
    ),
    (
        "kind = \"induction\"\nalphabet = 0",
        "alphabet",
        "0",
        "a whole number from 2 to 4096",
    ),
    (
        "kind = \"grid\"\nalphabet = 1",
        "alphabet",
        "1",
        "a whole number from 2 to 4096",
    ),
    (
        "kind = \"selective_copy\"\ndata = 0",
        "data",
        "0",
        "a whole number from 1 to 65536",
    ),
    (
        "kind = \"selective_copy\"\ndata = 65",
        "data",
        "65",
        "what fits into length 64",
    ),
    (
        "kind = \"passkey\"\ndigits = 0",
        "digits",
        "0",
        "a whole number from 1 to 64",
    ),
    (
        "kind = \"passkey\"\nfiller = 0",
        "filler",
        "0",
        "a whole number from 1 to 4096",
    ),
    (
        "kind = \"mqar\"\nvocab = 7",
        "vocab",
        "7",
        "a whole number from 8 to 65536",
    ),
    (
        "kind = \"mqar\"\nvocab = 16\npairs = 8",
        "pairs",
        "8",
        "a whole number from 1 to 7",
    ),
    (
        "kind = \"mqar\"\npairs = 17",
        "pairs",
        "17",
        "what fits into length 64",
    ),
    (
        "kind = \"mqar\"\npower = nan",
        "power",
        "NaN",
        "a number from 0 to 1",
    ),
    (
        "kind = \"text\"\nsplit = { by = \"file\", every = 1 }",
        "split.every",
        "1",
        "a whole number from 2 to 1000000",
    ),
    (
        "kind = \"text\"\nsplit = { by = \"range\", valid_fraction = nan }",
        "split.valid_fraction",
        "NaN",
        "a number above 0 and below 1",
    ),
    (
        "kind = \"text\"\nsplit = { by = \"range\", valid_fraction = 1.0 }",
        "split.valid_fraction",
        "1",
        "a number above 0 and below 1",
    ),
    (
        "kind = \"text\"\nsplit = { by = \"files\", valid = [] }",
        "split.valid",
        "[]",
        "at least one path or glob",
    ),
    (
        "kind = \"text\"\neval_tokens = 127",
        "eval_tokens",
        "127",
        "a whole number from 128 to 2147483647",
    ),
    (
        "kind = \"text\"\nmax_bytes = 0",
        "max_bytes",
        "0",
        "a whole number from 1 to 4294967296",
    ),
    (
        "kind = \"text\"\nwindows = { kind = \"sliding\", stride = 65 }",
        "windows.stride",
        "65",
        "a whole number from 1 to 64",
    ),
    (
        "kind = \"text\"\nwindows = { kind = \"sliding\", stride = 0 }",
        "windows.stride",
        "0",
        "a whole number from 1 to 64",
    ),
    (
        "kind = \"text\"\ncorpus = \"cargo\"\nfiles = [\"a\"]",
        "files",
        "[\"a\"]",
        "absent",
    ),
    (
        "kind = \"text\"\ncorpus = \"files\"",
        "files",
        "[]",
        "at least one path or glob",
    ),
    (
        "kind = \"text\"\ncrates = []",
        "crates",
        "[]",
        "at least one registry package",
    ),
    (
        "kind = \"text\"\nfiles = [\"a\"]\ncrates = [\"b\"]",
        "crates",
        "[\"b\"]",
        "absent",
    ),
    (
        "kind = \"text\"\nfiles = [\"\"]",
        "files.0",
        "\"\"",
        "a path or a glob with `*`, `?`, `[...]` or `**`",
    ),
    (
        "kind = \"text\"\nfiles = [\"a[\"]",
        "files.0",
        "\"a[\"",
        "a path or a glob with `*`, `?`, `[...]` or `**`",
    ),
];

#[test]
fn values_out_of_range_name_key_value_and_range() {
    for &(text, key, value, allowed) in WRONG_VALUES {
        let config = parse(&format!("[task]\n{text}")).expect(text);
        match config.build(&ctx()).err() {
            Some(TaskError::Config(error)) => {
                let found = [&error.key, &error.value, &error.allowed];
                assert_eq!(found, [key, value, allowed], "{text}");
                assert!(!error.problem.is_empty() && !error.hint.is_empty());
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn defaults_and_their_resolved_form() {
    let TaskConfig::Text(text) = parse("task = { kind = \"text\" }").unwrap() else {
        panic!("text")
    };
    assert_eq!(text, TextConfig::default());
    assert_eq!(
        (
            text.corpus,
            text.crates.len(),
            text.eval_tokens,
            text.max_bytes
        ),
        (CorpusKind::Cargo, 12, None, 64 << 20)
    );
    assert!(matches!(text.split, Split::File(by) if by.every == 10));
    assert!(matches!(text.windows, Windows::NonOverlapping(_)));
    let TaskConfig::Text(text) = parse("task = { kind = \"text\", files = [\"a.txt\"] }").unwrap()
    else {
        panic!("text")
    };
    assert_eq!((text.corpus, text.crates.len()), (CorpusKind::Files, 0));
    let copy = parse("task = { kind = \"copy\" }").unwrap();
    assert_eq!(
        serde_json::to_string(&copy).unwrap(),
        r#"{"kind":"copy","alphabet":16,"test_rows":256}"#
    );
}

#[test]
fn written_tables_can_be_read_again() {
    let mut all: Vec<TaskConfig> = TaskConfig::KINDS
        .iter()
        .map(|kind| TaskConfig::default_of(kind).unwrap())
        .collect();
    for split in [
        "{ by = \"range\", valid_fraction = 0.25 }",
        "{ by = \"files\", valid = [\"v*\"] }",
        "{ by = \"file\", every = 3 }",
    ] {
        let windows = "{ kind = \"sliding\", stride = 7 }";
        all.push(
            parse(&format!(
                "task = {{ kind = \"text\", files = [\"a\"], split = {split}, windows = {windows} \
                 }}"
            ))
            .unwrap(),
        );
    }
    for config in all {
        let json = serde_json::to_string(&config).unwrap();
        assert!(
            json.starts_with(&format!("{{\"kind\":\"{}\"", config.kind())),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<TaskConfig>(&json).unwrap(), config);
        let toml = toml::to_string(&config).unwrap();
        assert_eq!(
            toml::from_str::<TaskConfig>(&toml).unwrap(),
            config,
            "{toml}"
        );
        // The way a table takes that was expanded as a value first.
        assert_eq!(
            toml::from_str::<toml::Table>(&toml)
                .unwrap()
                .try_into::<TaskConfig>()
                .unwrap(),
            config
        );
    }
    assert_eq!(TaskConfig::default_of("srot"), None);
}

#[test]
fn every_kind_is_described() {
    let kinds = TaskConfig::kinds();
    assert_eq!(
        kinds.iter().map(|k| k.kind).collect::<Vec<_>>(),
        TaskConfig::KINDS
    );
    assert!(kinds.iter().all(|k| !k.summary.contains('\n')
        && !k.examples.is_empty()
        && k.examples.iter().all(|e| e.contains('|'))));
}
