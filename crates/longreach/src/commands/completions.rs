//! `longreach completions`: completion scripts for shells.

use crate::console;
use crate::exit::{Exit, Failure};
use clap::CommandFactory;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  longreach completions bash > ~/.local/share/bash-completion/completions/longreach")]
pub struct Args {
    /// bash, zsh, fish, elvish or powershell
    shell: clap_complete::Shell,
}

/// Prints the script for the commands of `C`.
///
/// # Errors
///
/// None.
pub fn run<C: CommandFactory>(arguments: &Args) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut C::command(), "longreach", &mut script);
    console::print(String::from_utf8_lossy(&script).trim_end());
    Ok(Exit::Done)
}
