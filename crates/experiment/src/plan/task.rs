//! What is wrong with a task, by the key of the config that names it.

use crate::spec::test_lens::MOST_OF_RANGE;
use config::axes::Cell;
use config::diagnostic::Diagnostic;
use config::key_path::KeyPath;
use support::exit::Exit;
use tasks::{Task, TaskError};
use toml::Value;

/// Refuses the shortest of drawn lengths where the task has no rows of one of them.
pub(super) fn check_drawn(
    cell: &Cell,
    key: &str,
    shortest: usize,
    longest: usize,
    task: &dyn Task,
) -> Result<(), Diagnostic> {
    let mut drawn = (shortest..longest).take(MOST_OF_RANGE);
    let Some(missing) = drawn.find(|length| !task.has_rows(*length)) else {
        return Ok(());
    };
    let longer = (missing..longest).rev();
    let least = longer.take_while(|length| task.has_rows(*length)).last();
    let least = least.unwrap_or(longest);
    let problem = format!(
        "draws rows of length {missing}, and task `{}` has none under its keys and files",
        task.kind()
    );
    let allowed = if least == longest {
        least.to_string()
    } else {
        format!("a whole number from {least} to {longest}")
    };
    let error = cell.error(key, &problem, &allowed, &format!("set {key} = {least}"));
    Err(error.with_value(shortest))
}

pub(super) fn task_refused(cell: &Cell, error: &TaskError) -> Diagnostic {
    match error {
        TaskError::Config(error) => {
            let key = format!("task.{}", error.key);
            let (problem, allowed) = (&error.problem, &error.allowed);
            cell.error(&key, problem, allowed, &error.hint)
                .with_value(&error.value)
        }
        TaskError::Input {
            path,
            problem,
            hint,
        } => {
            // The key that names files, where one does; the corpus of the task itself otherwise.
            let written = |key: &&&str| {
                KeyPath::parse(key).is_ok_and(|path| path.find(&cell.table).is_some())
            };
            let mut keys = [
                "task.tokenizer",
                "task.files",
                "task.split.valid",
                "task.crates",
                "task.text.tokenizer",
                "task.text.files",
                "task.text.split.valid",
                "task.text.crates",
                "task.train",
                "task.test",
                "task.select",
                "task",
            ]
            .iter()
            .filter(written);
            let named = path
                .as_ref()
                .and_then(|path| path.file_name())
                .map(|name| name.to_string_lossy().into_owned());
            let names_it = |key: &&&str| {
                named
                    .as_ref()
                    .is_some_and(|name| list_names(cell, key, name))
            };
            let key = keys
                .clone()
                .find(names_it)
                .or_else(|| keys.find(|key| !key.ends_with(".tokenizer")))
                .unwrap_or(&"task");
            let path = path
                .as_ref()
                .map_or_else(String::new, |path| format!("{}: ", path.display()));
            cell.error(key, &format!("{path}{problem}"), "", hint)
                .with_exit(Exit::Input)
        }
    }
}

/// Whether the text at `key`, or one of the list there, ends in `name`.
fn list_names(cell: &Cell, key: &str, name: &str) -> bool {
    let path = KeyPath::parse(key).unwrap_or_default();
    let written = match path.find(&cell.table) {
        Some(Value::Array(list)) => list.clone(),
        Some(one) => vec![one.clone()],
        None => Vec::new(),
    };
    let mut texts = written.iter().filter_map(Value::as_str);
    texts.any(|text| text.ends_with(name))
}
