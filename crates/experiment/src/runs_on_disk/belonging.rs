//! Which of the configs kept in an experiment's directory its records belong to, and which of a
//! config's runs are recorded.

use crate::runs_on_disk::kept_configs::{CONFIGS_DIR, Config, MAX_LISTED, read, run_of};
use crate::spec::differences::{differences, shown};
use records::RunRecord;
use schema::text::excerpt;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use support::units::{count, first_of};

/// Keys that are listed where two configs differ.
const MAX_KEYS: usize = 8;

impl Config {
    /// Whether two configs have the same report, given the same records.
    fn reports_like(&self, other: &Self, records: &[RunRecord]) -> bool {
        let labels = |config: &Self| {
            // In the order of the records, so that the two lists compare record by record.
            let runs = records.iter().map(run_of);
            let halves = |run: &str| config.halves.as_ref()?.get(run).cloned();
            runs.map(|run| (config.runs.get(run).cloned(), halves(run)))
                .collect::<Vec<_>>()
        };
        self.reads() == other.reads() && labels(self) == labels(other)
    }

    /// Its runs that values were chosen by.
    fn swept(&self) -> BTreeSet<&str> {
        let chosen = self.selected.iter().flatten().map(|(_, chosen)| chosen);
        let runs = chosen.flat_map(|chosen| &chosen.candidates);
        let runs = runs.flat_map(|tried| &tried.runs).map(String::as_str);
        runs.filter(|run| self.runs.contains_key(*run)).collect()
    }

    /// How many of its runs are recorded and how many there are, where not all are.
    pub fn missing(&self, records: &[RunRecord]) -> Option<String> {
        let (recorded, runs, _) = self.counted(&records.iter().map(run_of).collect());
        (recorded < runs).then(|| {
            let runs = count(runs, "run");
            format!("runs are missing: {recorded} of {runs} recorded; scores are of these")
        })
    }

    /// How many of its runs are among those with records, how many there are, and how many of its
    /// sweep are in another directory: a submitted result was chosen by a sweep there.
    fn counted(&self, there: &BTreeSet<&str>) -> (usize, usize, usize) {
        let swept = self.swept();
        let elsewhere = match swept.iter().any(|run| there.contains(run)) {
            true => 0,
            false => swept.len(),
        };
        let runs = self.runs.len().saturating_sub(self.surplus + elsewhere);
        let is_own = |run: &&&str| self.runs.contains_key(**run);
        (there.iter().filter(is_own).count(), runs, elsewhere)
    }
}

/// Which configs the records of an experiment belong to.
pub struct Belonging {
    /// The config that all of them belong to; none if there are several, or some belong to none.
    pub config: Option<Config>,
    /// How many configs all of them belong to.
    pub covering: usize,
    /// One line for each config that has some of the records: how many, and how it differs from the
    /// first.
    pub lines: Vec<String>,
}

/// Finds which of the configs kept in an experiment's directory the records belong to. A config
/// that has all of them is chosen over those that have a part; of several that have all, each must
/// have the same report.
pub fn belonging(experiment: &Path, records: &[RunRecord]) -> Belonging {
    let (configs, unusable) = read(experiment);
    let runs: BTreeSet<&str> = records.iter().map(run_of).collect();
    let mut found: Vec<(usize, &Config)> = configs
        .iter()
        .map(|config| (config.counted(&runs).0, config))
        .filter(|(n, _)| *n > 0)
        .collect();
    // Most records first; ids break ties, so that reports are reproducible.
    found.sort_by(|(a, first), (b, second)| b.cmp(a).then_with(|| first.id.cmp(&second.id)));
    let complete = found.iter().filter(|(n, _)| *n == runs.len());
    let covering: Vec<&Config> = complete.map(|(_, config)| *config).collect();
    // Neighbours are enough: to have the same report is transitive.
    let mut same_report = covering
        .windows(2)
        .map(|pair| pair[0].reports_like(pair[1], records));
    let config = if same_report.all(|same| same) {
        covering.first().map(|config| (*config).clone())
    } else {
        None
    };
    let mut lines: Vec<String> = found
        .iter()
        .take(MAX_LISTED)
        .map(|(_, config)| line(config, found[0].1, &runs))
        .collect();
    if found.len() > MAX_LISTED {
        lines.push(format!("{} more configs", found.len() - MAX_LISTED));
    }
    let has = |run: &str| found.iter().any(|(_, of)| of.runs.contains_key(run));
    let unknown = runs.iter().filter(|run| !has(run)).count();
    if unknown > 0 {
        let place = experiment.join(CONFIGS_DIR);
        lines.push(format!(
            "{} of no config in {}",
            count(unknown, "run"),
            place.display()
        ));
    }
    lines.extend(unusable);
    Belonging {
        config,
        covering: covering.len(),
        lines,
    }
}

/// `config 1a2b3c4d (x.toml): 3 of 4 runs recorded`, and how it differs from the first. `there`:
/// the runs with records.
fn line(config: &Config, first: &Config, there: &BTreeSet<&str>) -> String {
    let (recorded, runs, elsewhere) = config.counted(there);
    let runs = count(runs, "run");
    let mut line = format!("config {}: {recorded} of {runs} recorded", config.name());
    if elsewhere > 0 {
        let _ = write!(line, ", chosen by {} elsewhere", count(elsewhere, "run"));
    }
    if config.id == first.id {
        line
    } else {
        format!("{line}; {}", differing(first, config))
    }
}

/// In which keys a config differs from the first.
fn differing(first: &Config, other: &Config) -> String {
    let listed: Vec<String> = differences(&first.table, &other.table)
        .into_iter()
        .map(|(key, theirs, ours)| {
            let (key, ours) = (excerpt(&key), shown(ours));
            format!("{key} = {ours} (there {})", shown(theirs))
        })
        .collect();
    let id = &first.id;
    if !listed.is_empty() {
        format!("differs from {id} in {}", first_of(&listed, MAX_KEYS))
    } else if other.runs.keys().eq(first.runs.keys()) {
        format!("the same keys and values as {id}, read from another directory")
    } else {
        format!("the same keys and values as {id}, of other contents of the files that it names")
    }
}
