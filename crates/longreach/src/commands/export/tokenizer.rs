//! The tokenizer that was trained for a run on text, in a public format.

use crate::commands::export::{Args, only_run};
use experiment::run::task::build_task;
use support::exit::Failure;

/// Writes the tokenizer of a run, which is trained again from its text; returns a line about it.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) for several runs;
/// [`Exit::Input`](support::exit::Exit::Input) if the run has no tokenizer or its text was changed;
/// [`Exit::Resources`](support::exit::Exit::Resources).
pub fn write(request: &Args) -> Result<String, Failure> {
    let run = only_run(request, "tokenizer")?;
    let job = run.job.clone()?;
    let task = build_task(&job, &job.spec.eval.test_lens)?;
    let Some(tokenizer) = task.tokenizer() else {
        return Err(Failure::input(format!(
            "{}: its task `{}` trains no tokenizer",
            run.directory.display(),
            task.kind()
        ))
        .with_allowed("a run on text with level = \"bpe\"")
        .with_help("name another run"));
    };
    let json = serde_json::to_vec_pretty(&tokenizer).map_err(Failure::bug)?;
    rundir::system().write_named(&request.out, &json)?;
    Ok(format!(
        "wrote {}: {} tokens, the tokenizer of {}",
        request.out.display(),
        task.vocab_size(),
        run.name()
    ))
}
