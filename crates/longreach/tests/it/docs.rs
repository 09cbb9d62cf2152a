//! The generated pages of `docs/` are what the program generates. `UPDATE_DOCS=1` writes them.

use longreach::cli::Cli;
use longreach::commands::docs::{cli_page, tasks_page};
use std::path::Path;

#[track_caller]
fn compare(name: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let hint = format!("run `longreach docs docs` and read the changes of docs/{name}");
    for (line, (generated, committed)) in generated.lines().zip(committed.lines()).enumerate() {
        assert_eq!(generated, committed, "docs/{name}:{}: {hint}", line + 1);
    }
    assert!(
        generated == committed,
        "docs/{name} has another length: {hint}"
    );
}

#[test]
fn the_page_of_commands_is_the_help_of_the_program() {
    compare("cli.md", &cli_page::<Cli>());
}

#[test]
fn the_page_of_tasks_is_the_list_of_tasks() {
    compare("tasks.md", &tasks_page());
}
