//! What the tests of the binary share: a scratch directory, a config in it, and the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A config that trains four tiny runs in a second.
pub const TINY: &str = r#"name = "tiny"
seeds = [0, 1]

[task]
kind = "copy"
alphabet = 4
test_rows = 8

[model]
d_model = 16
n_layers = 1
n_heads = 2
pe = { kind = "rope" }

[train]
train_len = 4
steps = 6
batch_size = 4
lr = 1e-3

[eval]
test_lens = [4, 8]

[[eval.variants]]
name = "yarn"
when = { kind = "rope" }
set = { scaling = { kind = "yarn" } }

[axes]
"model.pe" = [{ kind = "rope" }, { kind = "learned" }]
"#;

/// Overrides that leave one run of [`TINY`].
pub const ONE: [&str; 2] = ["seeds=[0]", "axes.\"model.pe\"=[{kind=\"rope\"}]"];

/// A recorded run of [`TINY`], and its directory.
pub fn one() -> (Scratch, PathBuf) {
    let scratch = Scratch::with(TINY);
    scratch.trains(&ONE);
    let run = scratch.first_run();
    (scratch, run)
}

/// Runs `longreach NAME PLACE ARGUMENTS`.
pub fn command(name: &str, place: &Path, arguments: &[&str]) -> Output {
    let mut program = longreach();
    program.arg(name).arg(place);
    program.args(arguments).output().unwrap()
}

pub fn read_json(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A scratch directory with a config in it.
pub struct Scratch {
    pub directory: TempDir,
    pub config: PathBuf,
}

impl Scratch {
    pub fn with(config: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("x.toml");
        std::fs::write(&path, config).unwrap();
        Self {
            directory,
            config: path,
        }
    }

    /// Writes a file beside the config.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.directory.path().join(name), content).unwrap();
    }

    /// `longreach COMMAND CONFIG ARGUMENTS` with its runs in the scratch directory.
    pub fn program(&self, command: &str, arguments: &[&str]) -> Command {
        let mut program = longreach();
        program.arg(command).arg(&self.config).args(arguments);
        program.arg("--runs").arg(self.runs());
        program
    }

    /// Runs it.
    pub fn longreach(&self, command: &str, arguments: &[&str]) -> Output {
        self.program(command, arguments).output().unwrap()
    }

    /// Runs `longreach run CONFIG ARGUMENTS`, which must end well.
    #[track_caller]
    pub fn trains(&self, arguments: &[&str]) -> Output {
        let output = self.longreach("run", arguments);
        exits(&output, 0);
        output
    }

    pub fn runs(&self) -> PathBuf {
        self.directory.path().join("runs")
    }

    /// The directory of the first recorded run, which is the only one of most tests.
    #[track_caller]
    pub fn first_run(&self) -> PathBuf {
        self.runs().join(self.records()[0].0.parent().unwrap())
    }

    /// Every record file, by path below the runs directory.
    pub fn records(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        collect(&self.runs(), &mut found);
        found.sort();
        found
            .into_iter()
            .map(|path| {
                (
                    path.strip_prefix(self.runs()).unwrap().to_owned(),
                    std::fs::read(&path).unwrap(),
                )
            })
            .collect()
    }
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.file_name().is_some_and(|name| name == "record.json") {
            found.push(path);
        }
    }
}

/// The path of the program: the one that was built with the tests, or another one that
/// `LONGREACH_PROGRAM` names, such as an older one (`scripts/old-defects`).
pub fn program() -> PathBuf {
    std::env::var_os("LONGREACH_PROGRAM").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_longreach")),
        PathBuf::from,
    )
}

/// The program.
pub fn longreach() -> Command {
    let mut command = Command::new(program());
    command.env_remove("RAYON_NUM_THREADS");
    command
}

/// Waits for a state, however long a machine with other work takes to reach it. Only a defect keeps
/// it from being reached within minutes.
#[track_caller]
pub fn wait_for(state: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(
            started.elapsed() < Duration::from_secs(300),
            "never: {state}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether the programs that a test starts ignore HUP, because this process does: under `nohup`.
#[cfg(unix)]
pub fn hangup_is_ignored() -> bool {
    let shell = Command::new("sh").args(["-c", "kill -HUP $$"]).status();
    let ignored = shell.is_ok_and(|status| status.success());
    if ignored {
        println!("skipped: HUP is ignored here");
    }
    ignored
}

/// Whether an encoding has no meaning without coordinates, which only some tasks give.
pub fn needs_axes(kind: &str) -> bool {
    let mut config = posenc::EncodingConfig::example(kind).expect("a kind of the list");
    config.resolve(&posenc::Lengths {
        train_len: 16,
        trained_len: 16,
        test_len: 16,
    });
    let shape = posenc::ModelShape {
        d_model: 64,
        n_layers: 2,
        n_heads: 4,
        head_dim: 16,
    };
    config.facts(&shape).needs_axes()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asserts an exit code, showing what was said otherwise.
#[track_caller]
pub fn exits(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "stdout: {}\nstderr: {}",
        stdout(output),
        stderr(output)
    );
}

/// The cases of a table, `CASE -> PART | PART` each. A line that begins with four spaces continues
/// the case before it, without a blank between them, and one that begins with `#` is a comment.
#[track_caller]
pub fn cases(table: &str) -> Vec<(String, Vec<String>)> {
    let mut lines: Vec<String> = Vec::new();
    let is_read = |line: &&str| !line.is_empty() && !line.starts_with('#');
    for line in table.lines().filter(is_read) {
        match line.strip_prefix("    ") {
            Some(more) => lines.last_mut().expect("a case to continue").push_str(more),
            None => lines.push(line.to_owned()),
        }
    }
    let case = |line: &String| {
        let parts = line.split_once("->");
        let (case, parts) = parts.unwrap_or_else(|| panic!("no `->` in {line}"));
        let parts: Vec<String> = parts
            .split('|')
            .map(|part| part.trim().to_owned())
            .collect();
        // Every text has an empty part.
        assert!(
            !parts.iter().any(String::is_empty),
            "an empty part in {line}"
        );
        (case.trim().to_owned(), parts)
    };
    assert!(!lines.is_empty(), "a table without cases");
    lines.iter().map(case).collect()
}

/// The words of a command line: between blanks, or in '...'.
#[track_caller]
pub fn words(line: &str) -> Vec<&str> {
    assert!(
        line.matches('\'').count().is_multiple_of(2),
        "a quote is open in {line}"
    );
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(index, part)| match index % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    words.collect()
}

/// Asserts that a text has a part.
#[track_caller]
pub fn has(text: &str, part: &str) {
    // Every text has an empty part.
    assert!(
        !part.is_empty() && text.contains(part),
        "`{part}` is missing:\n{text}"
    );
}

/// Asserts that a text does not have a part.
#[track_caller]
pub fn lacks(text: &str, part: &str) {
    assert!(!text.contains(part), "`{part}` is there:\n{text}");
}

/// Asserts what a program said on standard error.
#[track_caller]
pub fn says(output: &Output, part: &str) {
    has(&stderr(output), part);
}

/// Asserts an exit code, and what a program said on standard error.
#[track_caller]
pub fn fails(output: &Output, code: i32, part: &str) {
    exits(output, code);
    says(output, part);
}

/// Asserts what a program printed on standard output.
#[track_caller]
pub fn shows(output: &Output, part: &str) {
    has(&stdout(output), part);
}
