//! Every key of a configuration: type, range, default, example and meaning. Checks read their
//! ranges here, `docs/config.md` and the JSON schema are written from here, and a test compares the
//! list with what the reader accepts.

pub use super::key::{Key, Kind};

mod eval;
mod model;
mod train;

use super::key::key;
use Kind::{Number, Text, Whole, Wholes};

/// The range of a key of whole numbers.
///
/// # Panics
///
/// If there is no such key, which a test rules out for every key that is checked.
pub(super) fn whole(path: &str) -> (u64, u64) {
    match find(path).map(|key| key.kind) {
        Some(Kind::Whole(low, high) | Kind::Wholes(low, high) | Kind::Lengths(low, high)) => {
            (low, high)
        }
        _ => panic!("{path} is no key with a range of whole numbers"),
    }
}

/// The range of a key of numbers.
///
/// # Panics
///
/// As [`whole`].
pub(super) fn number(path: &str) -> (f64, f64) {
    match find(path).map(|key| key.kind) {
        Some(Kind::Number(low, high)) => (low, high),
        _ => panic!("{path} is no key with a range of numbers"),
    }
}

fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// Longest length that may be asked for, in the task's unit: a row of a task has at most four
/// tokens for each, and positions are exact in f32 up to 2^24.
const LONGEST: u64 = 1 << 22;

/// The keys in the order of a file, by section.
const SECTIONS: [&[Key]; 4] = [EXPERIMENT, model::KEYS, train::KEYS, eval::KEYS];

/// Every key, in the order of a file.
pub const KEYS: &[Key] = &joined::<{ count() }>();

const fn count() -> usize {
    let (mut section, mut count) = (0, 0);
    while section < SECTIONS.len() {
        count += SECTIONS[section].len();
        section += 1;
    }
    count
}

const fn joined<const COUNT: usize>() -> [Key; COUNT] {
    let mut keys = [EXPERIMENT[0]; COUNT];
    let (mut section, mut filled) = (0, 0);
    while section < SECTIONS.len() {
        let mut place = 0;
        while place < SECTIONS[section].len() {
            keys[filled] = SECTIONS[section][place];
            filled += 1;
            place += 1;
        }
        section += 1;
    }
    keys
}

/// Keys outside of all tables, and `task`.
const EXPERIMENT: &[Key] = &[
    key(
        "name",
        Text,
        None,
        r#""theta-base""#,
        "Names the experiment: its directory below `runs/`. 1 to 100 of `a-z`, `0-9`, `.`, `_`, `-`.",
    ),
    key(
        "title",
        Text,
        Some("the name"),
        r#""RoPE by base""#,
        "Headline of the report, at most 200 characters.",
    ),
    key(
        "seeds",
        Wholes(0, u64::MAX >> 1),
        Some("[0]"),
        "[0, 1, 2]",
        "Seeds of weights, batches, lengths, positions and dropout; each is a run.",
    ),
    key(
        "half_seeds",
        Wholes(0, u64::MAX >> 1),
        Some("[]"),
        "[0, 1, 2]",
        "Seeds that are also run for half the steps, to mark scores that still move.",
    ),
    key(
        "select.over",
        Kind::Axes,
        None,
        r#"{ "train.lr" = [1e-3, 3e-3, 1e-2] }"#,
        "What is tried for each method: lists of values by quoted dotted key.",
    ),
    key(
        "select.by",
        Text,
        Some("the task's first metric"),
        r#""loss_nats""#,
        "The metric that chooses, at the training length on rows that no result is scored on.",
    ),
    key(
        "select.seeds",
        Wholes(0, u64::MAX >> 1),
        Some("[100, 101]"),
        "[100, 101, 102]",
        "Seeds of the sweep, none of them in `seeds`.",
    ),
    key(
        "select.steps",
        Number(1e-3, 1.0),
        Some("0.3333333333333333"),
        "0.5",
        "Share of train.steps that a run of the sweep has.",
    ),
    key(
        "max_runs",
        Whole(1, 100_000),
        Some("1000"),
        "5000",
        "Most runs that `[axes]` and `seeds` may make together.",
    ),
    key(
        "axes",
        Kind::Axes,
        Some("none"),
        r#"{ "train.lr" = [1e-3, 3e-4] }"#,
        "Lists of values by quoted dotted key; every combination is a run for each seed.",
    ),
    key(
        "task",
        Kind::Task,
        None,
        r#"{ kind = "copy" }"#,
        "What the model learns; the keys of every kind are in [tasks](tasks.md).",
    ),
];
