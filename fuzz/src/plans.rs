//! Bytes as a configuration or as overrides: a plan or a refusal that helps, never a panic.

use config::diagnostic::{Diagnostic, Location};
use config::source::Source;
use experiment::plan;
use experiment::plan::planner::Plan;
use experiment::spec::Job;
use std::collections::HashSet;
use std::path::PathBuf;
use support::exit::Exit;
use toml::Value;

/// Longest input. Real configurations have a few KiB, and planning is paid for by length.
const MAX_LEN: usize = 8 << 10;

/// Most runs an input may ask for by `max_runs`: who asks for more waits for more, which is no
/// finding.
const MAX_RUNS: u64 = 1000;

/// What overrides are applied to: axes, variants, tables and lists, each at least once.
const BASE: &str = r#"name = "base"
seeds = [0, 1]

[task]
kind = "copy"
alphabet = 8

[model]
d_model = 16
n_layers = 1
n_heads = 2
pe = { kind = "rope" }

[train]
train_len = 6
steps = 30
lr = 3e-3

[eval]
test_lens = [6, 12]

[[eval.variants]]
name = "yarn"
when = { kind = "rope" }
set = { scaling = { kind = "yarn" } }

[axes]
"model.pe" = [{ kind = "nope" }, { kind = "rope" }, { kind = "stack", parts = [{ kind = "rope" }, { kind = "alibi" }] }]
"train.lr" = [1e-3, 3e-4]
"#;

/// The lock file that names the versions of the default text corpus.
const LOCK: &str = include_str!("../../Cargo.lock");

/// A directory with a few small files for text tasks, and room for the configuration.
pub struct Ground(PathBuf);

impl Ground {
    /// A directory of this process's own below the system's temporary directory; in memory is best.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new(name: &str) -> Self {
        let ground = Self(
            std::env::temp_dir().join(format!("longreach-fuzz-{name}-{}", std::process::id())),
        );
        for file in ["a.txt", "b.txt", "sub/c.txt"] {
            ground.write(file, 300);
        }
        ground
    }

    /// A made-up Cargo home that holds a little of every crate of the default text corpus: reading
    /// the real one takes too long.
    pub fn cargo_home(&self) -> PathBuf {
        for package in LOCK.split("[[package]]") {
            let value = |key: &str| {
                package.lines().find_map(|line| {
                    line.strip_prefix(key)?
                        .strip_prefix(" = \"")?
                        .strip_suffix('"')
                })
            };
            let (Some(name), Some(version)) = (value("name"), value("version")) else {
                continue;
            };
            if tasks::DEFAULT_CRATES.contains(&name) {
                self.write(
                    &format!("cargo/registry/src/index/{name}-{version}/src/lib.rs"),
                    2000,
                );
            }
        }
        self.0.join("cargo")
    }

    fn write(&self, file: &str, lines: usize) {
        let path = self.0.join(file);
        std::fs::create_dir_all(path.parent().expect("a file lies in a directory"))
            .expect("scratch directories can be made");
        std::fs::write(path, "0123\n".repeat(lines)).expect("scratch files can be written");
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The input is a configuration file. Returns whether it was of use.
///
/// # Panics
/// If a promise is broken.
pub fn config(data: &[u8], ground: &Ground) -> bool {
    data.len() <= MAX_LEN && check(data, &[], ground)
}

/// Every line of the input is an argument `key=value`. Returns whether the input was of use.
///
/// # Panics
/// If a promise is broken.
pub fn overrides(data: &[u8], ground: &Ground) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let lines = text
        .split('\n')
        .take(4)
        .map(str::to_owned)
        .collect::<Vec<_>>();
    // Arguments hold no NUL. Paths out of the ground, and escapes that could write one, are left
    // out: the machine is not a seed.
    let strange = |line: &String| {
        line.contains(['/', '\0'])
            || line.contains("..")
            || (line.contains('\\') && line.contains(['u', 'U', 'x']))
    };
    data.len() <= MAX_LEN && !lines.iter().any(strange) && check(BASE.as_bytes(), &lines, ground)
}

fn check(file: &[u8], overrides: &[String], ground: &Ground) -> bool {
    let mut max_runs = MAX_RUNS;
    if let Ok(mut source) = Source::parse("x.toml", file)
        && overrides
            .iter()
            .all(|text| source.apply_override(text).is_ok())
    {
        if source.table().values().any(leaves) {
            return false;
        }
        match source.get("max_runs").and_then(Value::as_integer) {
            Some(wanted) if wanted.unsigned_abs() > MAX_RUNS => return false,
            Some(wanted) => max_runs = wanted.unsigned_abs(),
            None => {}
        }
    }
    let path = ground.0.join("x.toml");
    std::fs::write(&path, file).expect("scratch files can be written");
    match plan(&path, overrides) {
        Ok(plan) => planned(&plan, max_runs),
        Err(error) => refused(&error, file),
    }
    true
}

/// Whether a text names a file outside the configuration's directory, which would make an input
/// slow or different elsewhere.
fn leaves(value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with('/') || text.contains(".."),
        Value::Array(array) => array.iter().any(leaves),
        Value::Table(table) => table.values().any(leaves),
        _ => false,
    }
}

/// A refusal has the exit code of a mistake of the user's, names the problem, and cannot break a
/// terminal's lines.
fn refused(error: &Diagnostic, file: &[u8]) {
    assert!(
        matches!(error.exit, Exit::Config | Exit::Input),
        "exit {:?}: {error}",
        error.exit
    );
    assert!(
        !error.problem.to_string().trim().is_empty(),
        "no problem: {error:?}"
    );
    if let Location::Line {
        line, text, column, ..
    } = &error.place
    {
        let lines = file.iter().filter(|byte| **byte == b'\n').count() + 1;
        assert!(
            (1..=lines).contains(line),
            "line {line} of {lines}: {error}"
        );
        assert!(
            *column >= 1 && *column <= text.chars().count() + 1,
            "column {column}: {error}"
        );
    }
    let shown = error.to_string();
    assert!(
        !shown.chars().any(|c| c.is_control() && c != '\n'),
        "a control character in {shown:?}"
    );
    assert!(shown.len() < 64 << 10, "{} bytes of message", shown.len());
}

/// Runs have different ids, can be handed to workers as JSON, and can be shown.
fn planned(plan: &Plan, max_runs: u64) {
    assert!(
        !plan.runs.is_empty() && plan.runs.len() as u64 <= max_runs,
        "{} runs of at most {max_runs}",
        plan.runs.len()
    );
    let ids: HashSet<_> = plan.runs.iter().map(|run| &run.job.run_id).collect();
    assert_eq!(ids.len(), plan.runs.len(), "two runs with one identity");
    for run in plan.runs.first().into_iter().chain(plan.runs.last()) {
        let text = serde_json::to_string(&run.job).expect("a job can be written as JSON");
        let read: Job = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("a job cannot be read: {error}\n{text}"));
        assert_eq!(read, run.job);
        assert_eq!(
            read.spec.run_id().expect("a spec has an identity"),
            run.job.run_id
        );
    }
    let rows =
        longreach::commands::check::rows(plan, experiment::plan::memory::Memory::Host, |_| false);
    if rows.len() <= 16 {
        assert!(!longreach::commands::check::render(plan, &rows).is_empty());
    }
}
