//! No input brings the reader down: random mutations, bombs, absurd sizes.

use super::toy::{GOOD, axes, read};
use crate::common::has;
use config::diagnostic::Location;
use config::source::MAX_BYTES;
use experiment::plan;
use experiment::plan::mistakes::Mistakes;
use support::exit::Exit;

/// Deterministic numbers for the test below.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

const TOKENS: &[&str] = &[
    "=",
    ".",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "\"\"\"",
    "\n",
    "\r",
    "\t",
    ",",
    "#",
    "nan",
    "-inf",
    "1e400",
    "-1",
    "0",
    "99999999999999999999",
    "true",
    "[axes]\n",
    "[[",
    "]]",
    "kind",
    "\"model.pe\" = [",
    "\u{FEFF}",
    "\u{0}",
    "\u{202E}",
    "é",
    "漢",
    "\u{1F600}",
    "\\u0000",
    "2026-01-01",
    "seeds",
    "axes.",
    ".0.",
    "max_runs = 3\n",
    "model.pe",
    "{kind=\"rope\"}",
    "[model]\n",
    "x",
    "[1,2]",
];

fn mutate(random: &mut Random, text: &mut Vec<u8>) {
    let (from, to) = (random.below(text.len() + 1), random.below(text.len() + 1));
    let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 12));
    match random.below(5) {
        0 => drop(text.drain(from..to)),
        1 => drop(text.splice(to..to, text[from..to].to_vec())),
        2 if from < text.len() => text[from] = random.below(256) as u8,
        _ => drop(text.splice(from..from, TOKENS[random.below(TOKENS.len())].bytes())),
    }
}

/// Mutates the file and the overrides; whatever comes of it is an answer or a diagnostic with the
/// right exit code.
fn storm(seed: u64, rounds: usize) -> usize {
    let full = axes(
        "\"model.pe\" = [{ kind = \"rope\", base = 1 }, { kind = \"alibi\" }]\n\"train.lr\" = \
         [1e-3, 3e-4]\n\"train.steps\" = [1, 2]",
    );
    let given = [
        "model.pe.base=5",
        "axes.train.lr=[1,2]",
        "model.pe={kind=\"nope\"}",
        "eval.0.test_len=[3]",
        "train.steps=7",
    ];
    let mut random = Random(seed);
    let mut refused = 0;
    for _ in 0..rounds {
        let mut text = full.clone().into_bytes();
        let mut arguments = Vec::new();
        for _ in 0..random.below(3) {
            let mut argument = given[random.below(given.len())].as_bytes().to_vec();
            (0..random.below(4)).for_each(|_| mutate(&mut random, &mut argument));
            arguments.push(String::from_utf8_lossy(&argument).into_owned());
        }
        (0..random.below(4)).for_each(|_| mutate(&mut random, &mut text));
        let arguments = arguments.iter().map(String::as_str).collect::<Vec<_>>();
        if let Err(error) = read(&text, &arguments) {
            refused += 1;
            let shown = error.to_string();
            assert!(!shown.is_empty() && error.exit == Exit::Config, "{shown}");
            assert!(
                !shown.contains('\r') && !shown.contains('\u{202E}') && !shown.contains('\0'),
                "{shown:?}"
            );
        }
    }
    refused
}

#[test]
fn no_mutation_brings_the_reader_down() {
    let refused = storm(7, 3000);
    assert!((1000..3000).contains(&refused), "{refused} of 3000 refused");
    for end in 0..GOOD.len() {
        let _ = read(&GOOD.as_bytes()[..end], &[]);
    }
}

#[test]
fn bombs_are_refused_quickly() {
    let lines = |n: usize, line: fn(usize) -> String| (0..n).map(line).collect::<String>();
    let key = vec!["k"; 79].join(".");
    let bombs = [
        "[".repeat(MAX_BYTES),
        format!("a = {}", "{a=".repeat(300_000)),
        format!("{} = 1", vec!["a"; 400_000].join(".")),
        lines(100_000, |i| format!("k{i}=1\n")),
        lines(60_000, |i| format!("[t{i}]\n")),
        lines(6_000, |i| format!("t{i}.{}=1\n", vec!["a"; 78].join("."))),
        "a=[],".repeat(200_000),
        format!("a = [{}]", "1,".repeat(500_000)),
        lines(630, |i| format!("t{i}.{}=1\n", vec!["a"; 78].join("."))),
        format!("[{key}]\n{key} = {}1{}", "{k=".repeat(70), "}".repeat(70)),
        format!(
            "max_runs = 100000\na = [{}]\n[axes]\nx = [{}]",
            "1,".repeat(100_000),
            lines(60_000, |i| format!("{i},"))
        ),
        format!(
            "max_runs = 100000\n[axes]\n{}",
            lines(500, |i| format!("\"{}k{i}\" = [0]\n", "k.".repeat(60)))
        ),
        format!("name = \"{}\"", "x".repeat(1_000_000)),
        format!("{} = 1", "x".repeat(1_000_000)),
    ];
    let start = std::time::Instant::now();
    for bomb in bombs {
        let error = read(bomb.as_bytes(), &["a.b.c=1"]).expect_err("not a valid experiment");
        assert!(error.to_string().len() < 4000);
    }
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// Why a config is refused.
fn refusal(text: &str) -> Mistakes {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("x.toml");
    std::fs::write(&path, text).expect("a scratch file");
    plan(&path, &[]).err().expect("a refusal")
}

/// Found by fuzzing: every key was in its range, and their product was not.
#[test]
fn batches_of_absurd_sizes_are_refused() {
    let seed = include_str!("../../../../../fuzz/seeds/config/huge-products.toml");
    let error = refusal(seed);
    assert_eq!(
        (error.exit, error.key.as_deref()),
        (Exit::Config, Some("train.batch_size"))
    );
}

/// Found beside fuzzing: the line was lost, and the value called a default.
#[test]
fn an_element_of_a_task_s_list_keeps_its_line() {
    let seed = include_str!("../../../../../fuzz/seeds/config/text-bad-glob.toml");
    let error = refusal(seed);
    assert_eq!(
        (error.key.as_deref(), error.value.as_deref()),
        (Some("task.files.0"), Some("\"[\""))
    );
    assert!(
        matches!(error.place, Location::Line { line: 4, .. }),
        "{error}"
    );
}

/// Found beside fuzzing: five kilobytes of text asked for 26 million encodings, which took 4.6 GB.
#[test]
fn more_evaluations_than_memory_are_refused() {
    let list = |numbers: std::ops::Range<u32>| {
        numbers
            .map(|n| n.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut text = include_str!("../../../../../fuzz/seeds/config/least.toml")
        // Less than one record can hold, 26 variants each.
        .replace("[6, 12]", &format!("[{}]", list(1..385)));
    for base in 2..27 {
        text += &format!("[[eval.variants]]\nname = \"v{base}\"\nset = {{ base = {base}.0 }}\n");
    }
    text += &format!("[axes]\n\"train.steps\" = [{}]\n", list(1..1001));
    let error = refusal(&text);
    assert_eq!(
        (error.key.as_deref(), error.exit),
        (Some("eval.test_lens"), Exit::Config),
        "{error}"
    );
    has(&error.problem.to_string(), "1000000 evaluations");
}
