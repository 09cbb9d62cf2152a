//! Asks the program about a mutant, and decides whether its answer is right.

use super::mutators::{Form, Mutant};
use experiment::plan;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;
use support::exit::{Exit, Failure};

/// Longest that a refusal may take, in seconds of processor time: how long it takes by the clock
/// depends on what else the machine does.
pub const LONGEST: f64 = 1.0;
/// What each run of a valid plan may take beside it: the largest base, of 938 runs, takes 0.8 s.
const PER_RUN: f64 = 0.001;

/// What the program says.
pub struct Outcome {
    /// The number of runs, a refusal, or the text of a panic.
    pub said: Result<Result<usize, Failure>, String>,
    /// Processor time of this thread, which does all of the work.
    pub secs: f64,
}

impl Outcome {
    /// Whether the answer took longer than it may.
    fn is_slow(&self) -> bool {
        let runs = match &self.said {
            Ok(Ok(runs)) => *runs,
            _ => 0,
        };
        self.secs > LONGEST + PER_RUN * runs as f64
    }
}

/// Whether that is right.
pub enum Verdict {
    Refused,
    Accepted,
    Wrong(String),
}

/// `longreach check` on these bytes and overrides, without a new process.
pub fn answer(file: &Path, bytes: &[u8], overrides: &[String]) -> Outcome {
    std::fs::write(file, bytes).expect("a scratch directory");
    let ask = || {
        let planned = plan(file, overrides).map_err(Failure::from)?;
        let rows = longreach::commands::check::rows(
            &planned,
            experiment::plan::memory::Memory::Host,
            |_| false,
        );
        assert!(!longreach::commands::check::render(&planned, &rows).is_empty());
        Ok(rows.len())
    };
    let timed = || {
        let start = now();
        let said = catch_unwind(AssertUnwindSafe(ask)).map_err(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            text.unwrap_or_default()
        });
        Outcome {
            said,
            secs: (now() - start).as_secs_f64(),
        }
    };
    // A busy machine makes a core slower too: what is slow three times is slow.
    let mut outcome = timed();
    for _ in 0..2 {
        if outcome.is_slow() {
            outcome = timed();
        }
    }
    outcome
}

#[cfg(unix)]
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(unix))]
fn now() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> =
        std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

/// What every refusal must be: code 2, or 3 for a file that was named; a problem; no control
/// characters but line ends.
pub fn well_formed(failure: &Failure) -> Result<(), String> {
    let text = failure.to_string();
    let wrong = |why: &str| Err(format!("{why}\n{text}"));
    if !matches!(failure.exit, Exit::Config | Exit::Input) {
        return wrong(&format!("exit code {}", failure.exit as u8));
    }
    let first = text.lines().next().unwrap_or("");
    if first.is_empty() || first.starts_with("error") || text.len() > 6000 {
        return wrong("not a message of the usual form");
    }
    if text
        .chars()
        .any(|c| c.is_control() && c != '\n' || ('\u{202A}'..='\u{202E}').contains(&c))
    {
        return wrong("a control character in the message");
    }
    Ok(())
}

/// Holds an answer against what was decided: valid for a `reason`, or to be refused.
pub fn judge(outcome: &Outcome, reason: Option<&str>, mutant: &Mutant, form: Form) -> Verdict {
    if outcome.is_slow() {
        return Verdict::Wrong(format!("took {:.1} s", outcome.secs));
    }
    match (&outcome.said, reason) {
        (Err(panic), _) => Verdict::Wrong(format!("panicked: {panic}")),
        (Ok(Ok(_)), Some(_)) => Verdict::Accepted,
        (Ok(Ok(runs)), None) => Verdict::Wrong(format!(
            "accepted, {runs} runs; given {:?}",
            shortened(mutant, form)
        )),
        (Ok(Err(failure)), Some(reason)) => {
            Verdict::Wrong(format!("refused, although {reason}\n{failure}"))
        }
        (Ok(Err(failure)), None) => match refusal(failure, mutant, form) {
            Ok(()) => Verdict::Refused,
            Err(why) => Verdict::Wrong(why),
        },
    }
}

fn refusal(failure: &Failure, mutant: &Mutant, form: Form) -> Result<(), String> {
    well_formed(failure)?;
    let text = failure.to_string();
    if failure.exit == Exit::Input && !mutant.named.iter().any(|key| key.contains("task")) {
        return Err(format!("exit code 3 without a file\n{text}"));
    }
    if !mutant.named.iter().any(|key| text.contains(key)) {
        return Err(format!("names none of {:?}\n{text}", mutant.named));
    }
    let place = match form {
        Form::File => "--> ",
        Form::Argument if mutant.elsewhere => "--> ",
        Form::Argument => "--> command line: ",
    };
    if !text.contains(place) {
        return Err(format!("no place\n{text}"));
    }
    Ok(())
}

fn shortened(mutant: &Mutant, form: Form) -> String {
    let text = match form {
        Form::File => String::new(),
        Form::Argument => mutant.overrides.join(" "),
    };
    text.chars().take(200).collect()
}
