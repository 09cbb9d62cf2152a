//! The config of each experiment: one resolved spec, and the files that are known to plan its runs.
//! Files depend on where a report is made, so only a page links to them.

use super::document::Config;
use super::spec::ReportSpec;
use records::order;
use records::record::RunRecord;
use records::spec::Spec;
use records::text::{self, list, short_hash};
use records::toml_text;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// One for every experiment, of its first run. `records`: results, in canonical order.
pub(crate) fn configs(records: &[&RunRecord], spec: &ReportSpec) -> Vec<Config> {
    let mut by_experiment: BTreeMap<&str, Vec<&RunRecord>> = BTreeMap::new();
    for run in records.iter().filter(|run| run.evaluation_of.is_none()) {
        by_experiment.entry(&run.experiment).or_default().push(run);
    }
    let one = |(name, runs): (&str, Vec<&RunRecord>)| {
        let files = runs.iter().filter_map(|run| spec.place(run).config);
        let files: BTreeSet<String> = files.collect();
        Config {
            experiment: text::name(name, 60),
            files: files.into_iter().collect(),
            about: about(runs[0]),
            toml: toml(&runs[0].method_spec()),
        }
    };
    let mut by_experiment: Vec<_> = by_experiment.into_iter().collect();
    by_experiment.sort_by(|a, b| order::names(a.0, b.0));
    by_experiment.into_iter().map(one).collect()
}

/// Which spec is shown, and what it leaves out.
fn about(run: &RunRecord) -> String {
    let labels = run.labels.iter().map(|label| text::name(&label.text, 60));
    let chosen = run.selected.as_ref().map_or("", |_| "chosen values, ");
    format!(
        "The resolved spec of run {} [{}]. Methods, {chosen}variants and seeds are in the tables.",
        short_hash(&run.run_id),
        list(&labels.collect::<Vec<_>>(), 8)
    )
}

/// A resolved spec as TOML: values, then one table for each section.
fn toml(spec: &Spec) -> String {
    let is_table = |(_, value): &(&String, &Value)| value.is_object();
    let (sections, values): (Vec<_>, Vec<_>) = spec.iter().partition(is_table);
    let mut out = entries(values);
    for (name, section) in sections {
        let section = section.as_object().into_iter().flatten();
        let section = section.filter(|(key, _)| *key != "variants");
        let _ = write!(out, "\n[{}]\n{}", toml_text::key(name), entries(section));
    }
    out.trim_start().to_owned()
}

fn entries<'v>(values: impl IntoIterator<Item = (&'v String, &'v Value)>) -> String {
    let possible = values
        .into_iter()
        .filter(|(_, v)| toml_text::is_possible(v));
    let lines =
        possible.map(|(k, v)| format!("{} = {}\n", toml_text::key(k), toml_text::inline(v)));
    lines.collect()
}
