//! What each method costs, beside its score: parameters, speed, memory and time.

use super::runs::sizes;
use crate::captions::{definition, methods, seeds_sentence, slug};
use crate::document::{Cell, Table};
use crate::spec::ReportSpec;
use records::analysis::groups::Group;
use records::analysis::point::point_parts;
use records::analysis::setting::{Method, Setting};
use records::stats;
use records::text::thousands;
use std::collections::BTreeSet;

/// One table, or none where nothing was measured: parameters alone are with the runs.
pub(super) fn tables(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Table> {
    let mut runs = setting.groups.iter().flat_map(|group| &group.runs);
    let is_shown = setting.methods.len() > 1 && runs.any(|run| spec.place(run).timings.is_some());
    let table = is_shown.then(|| table(setting, spec));
    table.into_iter().collect()
}

fn table(setting: &Setting<'_>, spec: &ReportSpec) -> Table {
    let metric = setting.lead();
    let ends: BTreeSet<usize> = setting
        .in_length
        .into_iter()
        .chain(longest(setting))
        .collect();
    let mut columns = vec!["method".to_owned()];
    columns.extend(ends.iter().map(|len| format!("{metric} at {len}")));
    columns.extend(["parameters", "of the encoding"].map(String::from));
    columns.extend(TIMED.map(String::from));
    let row = |method: &Method| {
        let group = &setting.groups[method.group];
        let name = Cell::from(method.title.as_str());
        let scores = ends.iter().map(|&len| {
            let point = setting.score(method, metric, len);
            Cell::number(point_parts(metric, &point))
        });
        let all = std::iter::once(name).chain(scores).chain(sizes(group));
        all.chain(timed(group, spec)).collect()
    };
    let mut notes = "Speed, memory and time are those of training, means over the runs that were \
                     measured; they depend on the machine. A training that is tested under several \
                     variants has one cost. -: not measured."
        .to_owned();
    let mut runs = setting.groups.iter().flat_map(|group| &group.runs);
    if runs.any(|run| spec.place(run).timings.is_some_and(|t| t.runs_together > 1)) {
        notes += " Of runs that were trained together each has the speed, memory and time of all.";
    }
    Table {
        slug: slug(setting, "cost"),
        title: "Score and cost".into(),
        is_for_page: true,
        caption: format!(
            "{metric} in length and at the longest length, and what each method costs; {}. {}",
            setting.name,
            seeds_sentence(setting, metric),
        ),
        notes,
        definition: definition(setting, metric),
        columns,
        rows: setting.methods.iter().map(row).collect(),
        methods: methods(setting),
        ..Table::default()
    }
}

/// The longest length that most methods have a number for: beyond it few rows say anything.
fn longest(setting: &Setting<'_>) -> Option<usize> {
    let metric = setting.lead();
    let has = |method: &&Method, len: usize| setting.point(method, metric, len).estimate.is_some();
    let is_common = |len: &&usize| {
        let having = setting.methods.iter().filter(|m| has(m, **len)).count();
        2 * having > setting.methods.len()
    };
    setting.lengths.iter().rev().find(is_common).copied()
}

/// Columns of what was measured.
const TIMED: [&str; 3] = ["tokens a second", "memory (MiB)", "training (s)"];

fn timed(group: &Group<'_>, spec: &ReportSpec) -> Vec<Cell> {
    let timings = || group.runs.iter().filter_map(|run| spec.place(run).timings);
    let mean = |values: Vec<f64>| {
        let mean = stats::mean(&values).filter(|mean| mean.is_finite() && *mean >= 0.0);
        mean.map_or_else(|| "-".to_owned(), |mean| thousands(mean.round() as u64))
    };
    let memory = timings().filter_map(|t| t.train_peak_memory_bytes);
    let memory = memory.map(|bytes| (bytes >> 20) as f64).collect();
    let speed = timings().map(|t| t.train_tokens_per_sec).collect();
    // Of a run that was stopped and resumed, the time before is not known.
    let whole = timings().filter(|t| t.resumed_at_step == 0);
    let secs = whole.map(|t| t.train_secs).collect();
    [speed, memory, secs]
        .map(|values| mean(values).into())
        .into()
}
