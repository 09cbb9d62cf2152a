//! The command line: its commands, and how every one of them ends.

use crate::commands::{
    check, compare, completions, config_show, eval, export, export_rows, gather, inspect, list,
    logs, new, probe, report, run, status, submit, verify, worker,
};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use experiment::device::failures;
use std::ffi::OsStr;
use std::process::ExitCode;
use support::exit::{Exit, Failure};
use support::{console, limits, signals};

/// Which positional encoding still works past the length a transformer was trained on?
///
/// Longreach trains tiny transformers short, tests them long, and turns the runs into tables and
/// figures.
#[derive(Debug, Parser)]
#[command(name = "longreach", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = r#"Examples:
  longreach new theta --pe rope,alibi                      # a commented config to start from
  longreach run quickstart                                 # train, test long, report
  longreach run configs/copy.toml train.steps=500          # the same with another value
  longreach check configs/theta-base.toml                  # what would run, and at what cost
  longreach inspect rope base=500000 --positions 0,1,4095  # the numbers that define an encoding
  longreach list encodings                                 # what `model.pe` can be

Exit codes:
    0  done
    1  some runs failed
    2  a config or an argument is wrong
    3  an input file is missing or damaged
    4  another process holds the run
    5  every run diverged
    6  not enough disk or memory
    7  the device is missing or failed
   70  a bug; please report it
   75  stopped by USR1; start it again
  130  stopped by INT
  143  stopped by TERM or HUP"#;

/// One variant per command. Each command owns its arguments, its help and its `run`.
#[derive(Debug, Subcommand)]
enum Command {
    New(new::Args),
    Run(run::Args),
    Submit(submit::Args),
    Check(check::Args),
    Config(config_show::Args),
    Eval(eval::args::Args),
    Report(report::Args),
    Gather(gather::Args),
    Compare(compare::Args),
    Export(export::Args),
    Inspect(inspect::Args),
    ExportRows(export_rows::Args),
    Status(status::Args),
    Logs(logs::Args),
    Probe(probe::Args),
    Verify(verify::Args),
    List(list::Args),
    Completions(completions::Args),
    Worker(worker::Args),
}

/// Parses the command line, runs the command, and prints its failure.
pub fn main() -> ExitCode {
    let command = std::env::args_os().nth(1).unwrap_or_default();
    if command != "worker" {
        limits::answer_aborts();
    }
    if let Err(failure) = limits::check_memory() {
        console::error(&failure);
        return ExitCode::from(failure.exit as u8);
    }
    // Ends here if a shell asks for completions.
    clap_complete::CompleteEnv::with_factory(Cli::command)
        .var(completions::VARIABLE)
        .complete();
    if let Err(failure) = listen_early(&command) {
        console::error(&failure);
        return ExitCode::from(failure.exit as u8);
    }
    let cli = parse();
    signals::survive_file_size_limit();
    install_panic_hook();
    let worker = match &cli.command {
        Command::Worker(arguments) => Some(arguments.clone()),
        _ => None,
    };
    let done = std::panic::catch_unwind(|| {
        if computes(&cli.command) {
            limits::check_threads()?;
        }
        dispatch(cli.command)
    });
    let done = done.unwrap_or_else(|_| {
        let failure = failures::failure().or_else(limits::after_panic);
        Err(failure.unwrap_or_else(internal_error))
    });
    let done = done.and_then(|exit| console::lost().map_or(Ok(exit), Err));
    match done {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failure) => {
            match &worker {
                Some(arguments) => arguments.report_failure(&failure),
                None => console::error(&failure),
            }
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// Parses the command line, with negative numbers as values, so that an error of `--jobs -1` names
/// what is allowed.
fn parse() -> Cli {
    let command = Cli::command().mut_subcommands(|command| {
        command.mut_args(|arg| {
            let takes_values = arg.get_action().takes_values();
            arg.allow_negative_numbers(takes_values)
        })
    });
    Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

/// Listens for requests to stop where a command saves: before the arguments are parsed, so that
/// none is lost while a worker starts or many runs are planned.
fn listen_early(command: &OsStr) -> Result<(), Failure> {
    if command == "run" {
        signals::leave_until_work();
    }
    if command == "run" || command == "worker" {
        signals::listen()?;
    }
    Ok(())
}

/// Whether a command computes on several threads.
fn computes(command: &Command) -> bool {
    matches!(
        command,
        Command::Run(_)
            | Command::Worker(_)
            | Command::Eval(_)
            | Command::Verify(_)
            | Command::Report(_)
            | Command::Compare(_)
    )
}

/// Prints a panic as one line, with a backtrace only if one is asked for.
fn install_panic_hook() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let has_memory = limits::panicked();
        let wants_trace = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
        let is_explained = panic.payload_as_str().is_some_and(failures::panicked);
        if is_explained && !wants_trace {
            return;
        }
        console::tell(&format!(
            "longreach {} ({}) {panic}",
            support::build::VERSION,
            support::build::COMMIT
        ));
        if has_memory && wants_trace {
            default_hook(panic);
        }
    }));
}

fn internal_error() -> Failure {
    Failure::new(Exit::Bug, "internal error").with_help(
        "this is a bug of longreach: please report the lines above, the command, and the config or \
         the run's job.json",
    )
}

fn dispatch(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::New(arguments) => new::run(&arguments),
        Command::Config(arguments) => config_show::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Submit(arguments) => submit::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Eval(arguments) => eval::run(&arguments),
        Command::Report(arguments) => report::run(arguments),
        Command::Gather(arguments) => gather::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::ExportRows(arguments) => export_rows::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Logs(arguments) => logs::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::List(arguments) => list::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Worker(arguments) => worker::run(&arguments),
    }
}
