//! `longreach completions`: completion scripts for shells. A script asks the program itself, which
//! knows encodings, tasks, devices and the keys of a config; runs complete as paths.

use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::Shells;
use config::shipped::SHIPPED;
use experiment::device;
use experiment::plan::keys::{KEYS, Kind};
use posenc::{EncodingConfig, PositionsConfig};
use std::ffi::OsStr;
use support::console;
use support::exit::{Exit, Failure};
use tasks::TaskConfig;

/// The variable by which a script asks; it holds the name of the shell.
pub const VARIABLE: &str = "LONGREACH_COMPLETE";

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  mkdir -p ~/.local/share/bash-completion/completions
  longreach completions bash > ~/.local/share/bash-completion/completions/longreach

The script asks `longreach` for kinds of encodings and tasks, devices, and keys of a config.")]
pub struct Args {
    /// bash, zsh, fish, elvish or powershell
    shell: clap_complete::Shell,
}

/// Prints the script.
///
/// # Errors
///
/// [`Exit::Bug`] for a shell without one.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let shell = arguments.shell.to_string();
    let shells = Shells::builtins();
    let completer = shells
        .completer(&shell)
        .ok_or_else(|| Failure::bug(format!("no completions for {shell}")))?;
    let mut script = Vec::new();
    let name = "longreach";
    completer
        .write_registration(VARIABLE, name, name, name, &mut script)
        .map_err(Failure::bug)?;
    console::print(String::from_utf8_lossy(&script).trim_end());
    Ok(Exit::Done)
}

/// Every kind of encoding, with what it does.
pub fn encodings() -> Vec<CompletionCandidate> {
    let candidate = |kind: &&str| {
        let about = EncodingConfig::example(kind).map(|config| config.about().summary);
        CompletionCandidate::new(*kind).help(about.map(Into::into))
    };
    EncodingConfig::KINDS.iter().map(candidate).collect()
}

/// Every device of `--device`.
pub fn devices() -> Vec<CompletionCandidate> {
    device::names().map(CompletionCandidate::new).collect()
}

/// Files, and the configs that come with the program.
pub fn configs(written: &OsStr) -> Vec<CompletionCandidate> {
    let start = written.to_str().unwrap_or_default();
    let shipped = SHIPPED
        .iter()
        .filter(|config| config.name.starts_with(start));
    let candidate = |config: &config::shipped::Shipped| {
        CompletionCandidate::new(config.name).help(Some(config.title().into()))
    };
    let mut found: Vec<_> = shipped.map(candidate).collect();
    found.extend(PathCompleter::file().complete(written));
    found
}

/// `KEY=VALUE` of a config: keys up to `=`, then the names that may stand there.
pub fn overrides(written: &OsStr) -> Vec<CompletionCandidate> {
    let Some(written) = written.to_str() else {
        return Vec::new();
    };
    let Some((key, value)) = written.split_once('=') else {
        let keys = KEYS.iter().filter(|key| {
            key.path.starts_with(written) && !key.path.contains(".N.") && key.kind != Kind::Axes
        });
        let inner = ["model.pe.kind", "task.kind", "model.positions.kind"].into_iter();
        let inner =
            inner.filter(|key| key.starts_with(written) && written.matches('.').count() > 0);
        let meaning = |key: &str| {
            KEYS.iter()
                .find(|known| known.path == key)
                .map(|key| key.meaning)
        };
        return keys
            .map(|key| key.path)
            .chain(inner)
            .map(|key| {
                CompletionCandidate::new(format!("{key}=")).help(meaning(key).map(Into::into))
            })
            .collect();
    };
    let names: &[&str] = match key {
        "model.pe.kind" | "model.pe" => EncodingConfig::KINDS,
        "task.kind" | "task" => TaskConfig::KINDS,
        "model.positions.kind" | "model.positions" => PositionsConfig::KINDS,
        _ => match KEYS
            .iter()
            .find(|known| known.path == key)
            .map(|key| key.kind)
        {
            Some(Kind::Name(names)) => names,
            Some(Kind::Truth) => &["true", "false"],
            _ => &[],
        },
    };
    let is_table = matches!(key, "model.pe" | "task" | "model.positions");
    let written = |name: &&str| match is_table {
        true => format!("{key}={{kind=\"{name}\"}}"),
        false => format!("{key}={name}"),
    };
    let fitting = names.iter().filter(|name| name.starts_with(value));
    fitting
        .map(|name| CompletionCandidate::new(written(name)))
        .collect()
}
