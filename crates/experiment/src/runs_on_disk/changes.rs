//! Notes on runs that another config or another build wrote, key by key. Such runs are neither
//! overwritten nor reused: a run's id is the hash of everything that determines its numbers.

use crate::plan::planner::Plan;
use crate::runs_on_disk::files::{RECORD_FILE, read_job};
use crate::runs_on_disk::integrity::{directory_notes, renamed};
use crate::runs_on_disk::walk::directories_with;
use crate::spec::differences::{differences, shown};
use crate::spec::{JOB_FILE, RunSpec, TRAINED, TestLen, VariantSpec};
use records::RunRecord;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use support::units::{count, first_of, quoted};

/// Runs of other configs that are read.
const MAX_OTHERS: usize = 50;
/// Keys in a note.
const MAX_KEYS: usize = 8;

/// A note on recorded runs whose directories have other names: they count for no config.
pub fn renamed_runs(experiment: &Path) -> Option<String> {
    let mut found = directories_with(experiment, RECORD_FILE);
    found.retain(|run| is_renamed(run));
    directory_notes(found.into_iter())
}

fn is_renamed(run: &Path) -> bool {
    read_job(run).is_ok_and(|job| renamed(run, &job.run_id).is_some())
}

/// A note on runs of the same experiment that belong to another config, and the keys in which the
/// nearest differs.
pub fn other_runs(experiment: &Path, plan: &Plan) -> Option<String> {
    let ours: BTreeSet<&str> = plan.all_runs().map(|run| run.job.run_id.as_str()).collect();
    let mut others = directories_with(experiment, JOB_FILE);
    others.retain(|run| {
        let name = run.file_name().unwrap_or_default().to_string_lossy();
        !ours.contains(name.as_ref()) && !is_renamed(run)
    });
    let unfinished = others
        .iter()
        .filter(|run| !run.join(RECORD_FILE).exists())
        .count();
    let specs: Vec<(&RunSpec, Value)> = plan
        .runs
        .iter()
        .take(MAX_OTHERS)
        .filter_map(|run| compared(&run.job.spec))
        .collect();
    let jobs: Vec<_> = others
        .iter()
        .take(MAX_OTHERS)
        .filter_map(|run| read_job(run).ok())
        .collect();
    let theirs: Vec<(&str, (&RunSpec, Value))> = jobs
        .iter()
        .filter_map(|job| Some((job.run_id.as_str(), compared(&job.spec)?)))
        .collect();
    // Every pair is compared in full, which is why both lists are bounded.
    let pairs = theirs
        .iter()
        .flat_map(|theirs| specs.iter().map(move |ours| (theirs, ours)));
    let ((id, (their_spec, theirs)), (our_spec, ours)) =
        pairs.min_by_key(|((_, (_, theirs)), (_, ours))| differences(theirs, ours).len())?;
    let found = differences(theirs, ours);
    let keys: Vec<&str> = found.iter().map(|(key, ..)| key.as_str()).collect();
    let variants = changed_variants(their_spec, our_spec);
    let help = match (&keys[..], &variants[..]) {
        (["eval.test_lens"], []) => lengths_help(experiment, their_spec, our_spec),
        _ => String::new(),
    };
    let differ = found
        .iter()
        .map(|(key, theirs, ours)| format!("{key} = {} (here {})", shown(*theirs), shown(*ours)));
    let differ: Vec<String> = differ.chain(variants).collect();
    let unfinished = if unfinished > 0 {
        format!(", {unfinished} of them unfinished")
    } else {
        String::new()
    };
    Some(format!(
        "{} also holds {} of another config{unfinished}; they stay as they are. The nearest, \
         {id}, differs in {}{help}",
        experiment.display(),
        count(others.len(), "run"),
        first_of(&differ, MAX_KEYS)
    ))
}

/// A spec, and its keys except for the variants: those follow from other keys at every test length.
fn compared(spec: &RunSpec) -> Option<(&RunSpec, Value)> {
    let mut keys = serde_json::to_value(spec).ok()?;
    keys.get_mut("eval")?.as_object_mut()?.remove("variants")?;
    Some((spec, keys))
}

/// Variants that only one of two runs has, and those with another encoding or other positions at a
/// length that both are tested at.
fn changed_variants(theirs: &RunSpec, ours: &RunSpec) -> Vec<String> {
    let both = [theirs, ours];
    let names = both.iter().flat_map(|spec| &spec.eval.variants);
    let names: BTreeSet<&str> = names.map(|variant| variant.name.as_str()).collect();
    let encodings = |spec: &RunSpec, name: &str| {
        let mut variants = spec.eval.variants.iter();
        let VariantSpec { pe, positions, .. } = variants.find(|variant| variant.name == name)?;
        let lengths = spec.eval.test_lens.iter().copied().enumerate();
        let at = |(at, length)| (length, (pe.get(at).cloned(), positions.get(at).cloned()));
        Some(lengths.map(at).collect::<BTreeMap<_, _>>())
    };
    let changed = |name: &&str| match both.map(|spec| encodings(spec, name)) {
        [Some(theirs), Some(ours)] => {
            let differs = |(length, ours)| theirs.get(length).is_some_and(|its| its != ours);
            // That of the training follows from `model.pe`.
            (*name != TRAINED && ours.iter().any(differs)).then(|| format!("variant `{name}`"))
        }
        [Some(_), None] => Some(format!("variant `{name}` (not here)")),
        _ => Some(format!("variant `{name}` (only here)")),
    };
    names.iter().filter_map(changed).collect()
}

/// How the trained runs are tested at lengths that they lack.
fn lengths_help(experiment: &Path, theirs: &RunSpec, ours: &RunSpec) -> String {
    let tested = theirs.eval.test_lens.written();
    let more = ours.eval.test_lens.written().iter();
    let more: Vec<String> = more
        .filter(|length| !tested.contains(length))
        .map(TestLen::to_string)
        .collect();
    if more.is_empty() {
        return String::new();
    }
    format!(
        "; `longreach eval {} --lengths {}` tests the trained runs there, without training again",
        quoted(&experiment.to_string_lossy()),
        more.join(",")
    )
}

/// A note on records that another commit wrote, if there are any.
pub fn other_programs(records: &[RunRecord]) -> Option<String> {
    let ours = support::build::COMMIT;
    let others: Vec<&str> = records
        .iter()
        .map(|record| record.environment.commit.as_str())
        .filter(|commit| *commit != ours)
        .collect();
    let commits: BTreeSet<&str> = others.iter().copied().collect();
    (!others.is_empty()).then(|| {
        let commits: Vec<&str> = commits.into_iter().take(MAX_KEYS).collect();
        format!(
            "{} recorded by another commit ({}); this build is of {ours}",
            count(others.len(), "run"),
            commits.join(", ")
        )
    })
}
