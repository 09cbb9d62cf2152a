//! Writes the pages of `docs/` that follow from the program, and makes that of the commands.

use crate::markdown::GENERATED;
use crate::{config_page, tasks_page};
use clap::CommandFactory;
use longreach::cli::Cli;
use std::fmt::Write as _;
use std::path::Path;
use support::console;
use support::exit::Failure;

/// Writes the pages into a directory.
///
/// # Errors
///
/// [`Exit::Resources`](support::exit::Exit::Resources) if the directory cannot be written; any
/// other if a page cannot be made.
pub fn write(out: &Path) -> Result<(), Failure> {
    for (name, text) in [
        ("cli.md", cli_page()),
        ("config.md", config_page::page()?),
        ("tasks.md", tasks_page::page()?),
    ] {
        let path = out.join(name);
        let disk = rundir::system();
        disk.write_whole(&path, text.as_bytes())
            .map_err(Failure::resources)?;
        console::print(&format!("wrote {}", path.display()));
    }
    Ok(())
}

/// Writes a man page for every command into a directory.
///
/// # Errors
///
/// [`Exit::Resources`](support::exit::Exit::Resources) if it cannot be written.
pub fn write_man(out: &Path) -> Result<(), Failure> {
    rundir::system()
        .create_dirs(out)
        .map_err(Failure::resources)?;
    clap_mangen::generate_to(Cli::command(), out).map_err(Failure::resources)
}

/// The part of docs/cli.md that is written by hand.
const CLI_INTRO: &str = include_str!("cli_page.md");

/// A table of tasks and the help of every command, as the terminal shows it.
pub fn cli_page() -> String {
    // A fixed width: the page must not depend on the terminal.
    let mut program = Cli::command().term_width(100);
    program.build();
    let mut page = format!("# Commands\n\n{GENERATED}\n\n{CLI_INTRO}\n");
    let _ = writeln!(page, "```text\n{}\n```", help(&mut program));
    let commands: Vec<String> = visible(&program);
    for name in commands {
        let Some(command) = program.find_subcommand_mut(&name) else {
            continue;
        };
        let _ = writeln!(
            page,
            "\n## longreach {name}\n\n```text\n{}\n```",
            help(command)
        );
        for inner in visible(command) {
            if let Some(command) = command.find_subcommand_mut(&inner) {
                let text = help(command);
                let _ = writeln!(
                    page,
                    "\n### longreach {name} {inner}\n\n```text\n{text}\n```"
                );
            }
        }
    }
    page
}

fn visible(command: &clap::Command) -> Vec<String> {
    let commands = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let names = commands.map(|command| command.get_name().to_owned());
    names.filter(|name| name != "help").collect()
}

fn help(command: &mut clap::Command) -> String {
    command.render_help().to_string().trim_end().to_owned()
}
