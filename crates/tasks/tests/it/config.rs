//! Task tables: strict keys, exact paths in every error, defaults, and round trips.

use crate::common;
use longreach_tasks::{BuildContext, CorpusKind, Split, TaskConfig, TextConfig, Windows};
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

/// Documents in lines, `; ` for a line break, and below each the path of its error and part of the
/// message.
const WRONG_TABLES: &str = r#"
[task]; alphabet = 4; kind = "copy"
    task: missing field `kind`
[task]
    task: missing field `kind`
task = 3
    task: invalid type: integer `3`, expected a table with `kind`
[task]; kind = 3
    task.kind: invalid type: integer `3`, expected one of `copy`, `duplicate`, `reverse`, `sort`
[task]; kind = "cpoy"
    task.kind: unknown variant `cpoy`, expected one of `copy`, `duplicate`, `reverse`, `sort`
[task]; kind = "copy"; alphabte = 4
    task.alphabte: unknown field `alphabte`, expected one of `alphabet`, `distinct`, `test_rows`
[task]; kind = "copy"; alphabet = "4"
    task.alphabet: invalid type: string "4", expected u64
[task]; kind = "reverse"; test_rows = -1
    task.test_rows: invalid value: integer `-1`, expected u64
[task]; kind = "copy"; alphabet = 2.5
    task.alphabet: invalid type: floating point `2.5`, expected u64
[task]; kind = "parity"; alphabet = 2
    task.alphabet: unknown field `alphabet`, expected `draw` or `test_rows`
[task]; kind = "addition"; digits = "lsb"
    task.digits: unknown variant `lsb`, expected `msd_first` or `lsd_first`
[task]; kind = "text"; files = ["a", 2]
    task.files[1]: invalid type: integer `2`, expected a string
[task]; kind = "text"; corpus = "wiki"
    task.corpus: unknown variant `wiki`, expected one of `cargo`, `files`, `rust-2026`
[task]; kind = "text"; stride = 3
    task.stride: unknown field `stride`
[task]; kind = "text"; split = { by = "line" }
    task.split.by: unknown variant `line`, expected one of `file`, `range`, `files`
[task]; kind = "text"; split = { every = 3, by = "file" }
    task.split: missing field `by`
[task]; kind = "text"; split = { by = "file", every = 1.5 }
    task.split.every: invalid type: floating point `1.5`
[task]; kind = "text"; split = { by = "file", evry = 3 }
    task.split.evry: unknown field `evry`, expected `every`
[task]; kind = "text"; split = { by = "files", valid = [1] }
    task.split.valid[0]: invalid type: integer `1`
[task]; kind = "text"; split = { by = "files" }
    task.split: missing field `valid`
[task]; kind = "text"; [task.windows]; kind = "sliding"; stride = -4
    task.windows.stride: invalid value: integer `-4`
[task]; kind = "text"; windows = { kind = "non_overlapping", stride = 4 }
    task.windows.stride: unknown field `stride`
[task]; kind = "text"; windows = "sliding"
    task.windows: expected a table with `kind`
"#;

#[test]
fn every_error_has_its_exact_path() {
    let lines: Vec<&str> = common::lines(WRONG_TABLES).collect();
    for pair in lines.chunks(2) {
        let text = common::by_lines(pair[0]);
        let error = pair[1].strip_prefix("    ").expect("the error of a table");
        let (path, message) = error.split_once(": ").expect(error);
        let (found_path, found) = parse(&text).expect_err(&text);
        assert_eq!(found_path, path, "{text}\n{found}");
        assert!(found.contains(message), "{text}\n{found}");
    }
}

/// What is allowed, and below it task tables, `; ` for a line break, the key at fault, its value.
const WRONG_VALUES: &str = r#"
a whole number from 2 to 4096
    kind = "copy"; alphabet = 1 | alphabet | 1
    kind = "copy"; alphabet = 4097 | alphabet | 4097
    kind = "copy"; alphabet = 9223372036854775807 | alphabet | 9223372036854775807
    kind = "sort"; alphabet = 1 | alphabet | 1
    kind = "cycle_navigation"; cycle = 1 | cycle | 1
    kind = "summation"; modulus = 0 | modulus | 0
    kind = "modular_arithmetic"; modulus = 1 | modulus | 1
    kind = "addition"; base = 1 | base | 1
    kind = "grid"; alphabet = 1 | alphabet | 1
a whole number from 3 to 4096
    kind = "induction"; alphabet = 2 | alphabet | 2
a whole number from 1 to 1000000
    kind = "reverse"; test_rows = 0 | test_rows | 0
    kind = "parity"; test_rows = 1000001 | test_rows | 1000001
a whole number from 1 to 65536
    kind = "selective_copy"; data = 0 | data | 0
1 to 64, or lengths of at least 65
    kind = "selective_copy"; data = 65 | data | 65
1 to 16, or lengths of at least 68
    kind = "mqar"; pairs = 17 | pairs | 17
a whole number from 1 to 64
    kind = "passkey"; digits = 0 | digits | 0
    kind = "text"; windows = { kind = "sliding", stride = 65 } | windows.stride | 65
    kind = "text"; windows = { kind = "sliding", stride = 0 } | windows.stride | 0
a whole number from 1 to 4096
    kind = "passkey"; filler = 0 | filler | 0
a whole number from 8 to 65536
    kind = "mqar"; vocab = 7 | vocab | 7
a whole number from 1 to 7
    kind = "mqar"; vocab = 16; pairs = 8 | pairs | 8
a number from 0 to 1
    kind = "mqar"; power = nan | power | NaN
a whole number from 2 to 1000000
    kind = "text"; split = { by = "file", every = 1 } | split.every | 1
a number above 0 and below 1
    kind = "text"; split = { by = "range", valid_fraction = nan } | split.valid_fraction | NaN
    kind = "text"; split = { by = "range", valid_fraction = 1.0 } | split.valid_fraction | 1
at least one path or glob
    kind = "text"; split = { by = "files", valid = [] } | split.valid | []
    kind = "text"; corpus = "files" | files | []
a whole number from 128 to 2147483647
    kind = "text"; eval_tokens = 127 | eval_tokens | 127
a whole number from 1 to 4294967296
    kind = "text"; max_bytes = 0 | max_bytes | 0
absent
    kind = "text"; corpus = "cargo"; files = ["a"] | files | ["a"]
    kind = "text"; files = ["a"]; crates = ["b"] | crates | ["b"]
at least one registry package
    kind = "text"; crates = [] | crates | []
a path or a glob with `*`, `?`, `[...]` or `**`
    kind = "text"; files = [""] | files.0 | ""
    kind = "text"; files = ["a["] | files.0 | "a["
"#;

#[test]
fn values_out_of_range_name_key_value_and_range() {
    let mut allowed = "";
    for line in common::lines(WRONG_VALUES) {
        let Some(case) = line.strip_prefix("    ") else {
            assert!(!line.contains(" | "), "a case without its indent: {line}");
            allowed = line;
            continue;
        };
        let [text, key, value] = common::cells(case);
        let config = parse(&format!("[task]\n{}", common::by_lines(text))).expect(text);
        let error = common::invalid(text, config.build(&ctx()));
        let found = [&error.key, &error.value, &error.allowed];
        assert_eq!(found, [key, value, allowed], "{text}");
        assert!(!error.problem.is_empty() && !error.hint.is_empty());
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
