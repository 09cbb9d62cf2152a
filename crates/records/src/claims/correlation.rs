//! Rank correlation of published numbers with ours.

use super::claim::{Claims, Published};
use super::experiment_setting::{ExperimentSetting, find_method};
use crate::record::TestLength;
use crate::stats::{Correlation, spearman};
use std::collections::{BTreeMap, BTreeSet};

/// Rank correlation over methods of one column of a published table with ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Where it is published.
    pub source: String,
    /// The experiment, and the setting where it has several.
    pub place: String,
    /// The metric.
    pub metric: String,
    /// The published length and ours.
    pub lengths: (TestLength, TestLength),
    /// Methods in both, with the published number and our mean over seeds.
    pub methods: Vec<(String, f64, f64)>,
    /// Their names for people.
    pub titles: Vec<String>,
    /// Of those; none where one side is constant.
    pub correlation: Option<Correlation>,
}

impl Claims {
    /// Spearman's rank correlation over methods of each published column (one length of one table)
    /// with ours, in every experiment and setting with at least three of its methods. Methods that
    /// have not converged are left out beyond the training length.
    pub fn correlate(&self, settings: &[ExperimentSetting<'_>]) -> Vec<Column> {
        let mut out = Vec::new();
        for table in &self.published {
            let lengths: BTreeSet<TestLength> = table.numbers.iter().map(|n| n.length).collect();
            for place in settings.iter().filter(|place| table.is_compared(place)) {
                let columns = lengths
                    .iter()
                    .filter_map(|&length| column(table, length, place, &self.aliases));
                out.extend(columns);
            }
        }
        out
    }
}

/// Fewest common methods: two are in one order or the other, whatever their numbers are.
const FEWEST: usize = 3;

/// One published column beside ours; none for fewer than [`FEWEST`] common methods.
fn column(
    table: &Published,
    length: TestLength,
    place: &ExperimentSetting<'_>,
    aliases: &BTreeMap<String, Vec<String>>,
) -> Option<Column> {
    let setting = &place.setting;
    let ours = table.our_length(length, setting.task.train_len);
    if !setting.is_tested_at(ours) {
        return None;
    }
    let numbers = table.numbers.iter();
    let numbers = numbers.filter(|n| n.length == length && n.value.is_finite());
    let both = numbers.filter_map(|number| {
        let method = find_method(setting, &number.method, aliases)?;
        let mean = setting.score(method, &table.metric, ours.to).estimate?.mean;
        let compared = (method.name.clone(), number.value, mean);
        Some((compared, method.title.clone()))
    });
    let (methods, titles): (Vec<(String, f64, f64)>, Vec<String>) = both.unzip();
    if methods.len() < FEWEST {
        return None;
    }
    let sides: (Vec<f64>, Vec<f64>) = methods.iter().map(|m| (m.1, m.2)).unzip();
    Some(Column {
        source: table.source.clone(),
        place: place.name.clone(),
        metric: table.metric.clone(),
        lengths: (length, ours),
        correlation: spearman(&sides.0, &sides.1),
        methods,
        titles,
    })
}
