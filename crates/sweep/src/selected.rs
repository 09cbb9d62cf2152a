//! A sweep with a choice: the runs of `[select]` first, then those of the result under the values
//! that each method chose.

use super::options::Options;
use super::{Outcome, check_retry, run};
use experiment::plan::planned::Method;
use experiment::plan::planner::Plan;
use experiment::runs_on_disk::kept_configs;
use experiment::spec;
use records::metric;
use records::record::Selected;
use records::store::{SELECTION_FILE, gather_found};
use records::{Found, RunRecord};
use std::collections::BTreeSet;
use std::path::Path;
use support::console::tell;
use support::exit::{Exit, Failure};
use support::signals;
use support::units::count;

/// Bins of the loss by position that records of a sweep keep there.
const BINS: usize = 16;

/// Runs the sweep of a plan and chooses. Returns the plan of the result, which lacks methods whose
/// sweep failed or has no score, and the outcome of the sweep. Without `[select]`, the plan itself
/// and `None`.
///
/// # Errors
///
/// Those of [`run`], and of writing the records of the sweep.
pub fn choose(plan: &Plan, options: &Options) -> Result<(Plan, Option<Outcome>), Failure> {
    let Some(sweep) = plan.sweep() else {
        return Ok((plan.clone(), None));
    };
    signals::listen()?;
    let mut outcome = if sweep.runs.iter().any(|run| options.is_to_do(run)) {
        let runs = count(sweep.runs.len(), "run");
        tell(&format!("{}: the selection comes first, {runs}", plan.name));
        run(&sweep, options)?
    } else {
        Outcome::of(super::records(&sweep, options))
    };
    refuse_changed(&outcome.records, &options.runs.join(&plan.name))?;
    let chosen = plan.chosen(&outcome.records);
    let is_idle = |plan: &Plan| !plan.runs.iter().any(|run| options.is_to_do(run));
    if is_idle(&sweep) && is_idle(&chosen.plan) {
        check_retry(&sweep, options)?;
    }
    if chosen.undecided == 0 {
        write(&outcome.records, plan, options)?;
    }
    choices(&chosen.plan).iter().for_each(|choice| tell(choice));
    tell_unscored(&chosen.unscored);
    let tried = chosen.unscored.iter().flat_map(|method| &method.tried);
    let tried: BTreeSet<&str> = tried
        .flat_map(|tried| &tried.sweep)
        .map(|run| sweep.runs[*run].job.run_id.as_str())
        .collect();
    let records = outcome.records.iter();
    let unscored = records.filter(|record| tried.contains(record.run_id.as_str()));
    outcome.unscored = unscored.cloned().collect();
    Ok((chosen.plan, Some(outcome)))
}

/// Refuses to choose by records that were changed after they were written. `place`: where they are.
///
/// # Errors
///
/// [`Exit::Input`], with the first such record.
pub fn refuse_changed(records: &[RunRecord], place: &Path) -> Result<(), Failure> {
    let changed = |record: &&RunRecord| record.seal_holds() == Some(false);
    let Some(record) = records.iter().find(changed) else {
        return Ok(());
    };
    Err(Failure::input(format!(
        "the record of selection run {} in {} does not match its seal: it was changed after it was \
         written",
        record.run_id,
        place.display()
    ))
    .with_help("remove it, and the run is trained again"))
}

/// Keeps the records that the choice is a function of. The same records give the same bytes.
fn write(records: &[RunRecord], plan: &Plan, options: &Options) -> Result<(), Failure> {
    kept_configs::write(rundir::system(), &options.runs.join(&plan.name), plan)?;
    let path = options.runs.join(&plan.name).join(SELECTION_FILE);
    // Nobody asked for this file by name: it is not a pipe that somebody reads.
    if path.exists() && !path.is_file() {
        let problem = format!("cannot write {}: only files are replaced", path.display());
        return Err(Failure::new(Exit::Resources, problem));
    }
    let found = Found {
        records: records.to_vec(),
        ..Found::default()
    };
    gather_found(found, &path, Some(BINS)).map_err(Failure::resources)?;
    Ok(())
}

/// Says which methods are not trained, as none of their combinations has a score.
pub fn tell_unscored(methods: &[Method]) {
    for method in methods {
        let run = method.tried.first().and_then(|tried| tried.runs.first());
        tell(&format!(
            "{}: none of {} has a score in {}: its result is not trained",
            run.map_or_else(String::new, |run| spec::method(&run.job.labels)),
            count(method.tried.len(), "combination"),
            method.by
        ));
    }
}

/// A line for each method: what it chose, and by how much the next best is worse.
fn choices(plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for run in &plan.runs {
        let Some(selected) = &run.job.selected else {
            continue;
        };
        let line = format!("{}: {}", spec::method(&run.job.labels), choice(selected));
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn choice(selected: &Selected) -> String {
    let Some(chosen) = selected.chosen() else {
        return String::new();
    };
    let by = &selected.by;
    let Some(score) = chosen.mean() else {
        return chosen.text();
    };
    let next = selected.next();
    let texts: Vec<String> = next.iter().map(|next| next.text()).collect();
    let second = next.first().and_then(|next| next.mean());
    let texts = texts.join(" or ");
    let next = match second {
        None => String::new(),
        Some(same) if same == score && by != metric::LOSS_NATS => {
            format!(", as at {texts}: the lower loss decided")
        }
        Some(score) => format!(", then {score:.4} at {texts}"),
    };
    let edge = match selected.at_edge()[..] {
        [] => String::new(),
        ref keys => format!("; at the edge of values tried: {}", keys.join(", ")),
    };
    format!("{} ({by} {score:.4}{next}{edge})", chosen.text())
}
