//! Looks of runs: which line of a report's figures is theirs, so that a view of runs at work has
//! the colours of those figures.

use super::identity::MethodSpecs;
use super::setting::settings;
use crate::order;
use crate::record::RunRecord;
use std::collections::HashMap;

/// Lines of a figure beyond this cannot be distinguished.
pub const MOST_LINES: usize = 16;

/// The style of each run by its id: that of its method's first line, for
/// [`marker`](crate::palette::marker). `runs`: of one experiment, with or without results; `order`:
/// labels and variants as the report orders them. A run of `[select]` has the style of the method
/// that it decides. None has one where a report draws the best methods alone.
pub fn styles(runs: &[RunRecord], order: &[String]) -> HashMap<String, usize> {
    let mut sorted: Vec<&RunRecord> = runs.iter().collect();
    sorted.sort_by(|a, b| order::canonical(a, b));
    let mut styles = HashMap::new();
    for setting in settings(&sorted, order, &MethodSpecs::new(&sorted)) {
        let is_drawn = setting.methods.len() <= MOST_LINES;
        // Of a method's lines the first counts, which is inserted last.
        let methods = setting.methods.iter().enumerate().rev();
        for (style, method) in methods.filter(|_| is_drawn) {
            let runs = setting.groups[method.group].runs.iter();
            let ids = runs.flat_map(|run| std::iter::once(&**run).chain(run.half));
            styles.extend(ids.map(|run| (run.run_id.clone(), style)));
        }
    }
    let (swept, results): (Vec<&RunRecord>, Vec<_>) =
        sorted.into_iter().partition(|run| run.is_of_sweep());
    for run in swept {
        // Of the results whose labels the run's begin with, the first.
        let decided = (0..=run.labels.len()).find_map(|count| {
            let labels = &run.labels[..count];
            let is_before = |result: &&RunRecord| order::labels(&result.labels, labels).is_lt();
            let first = results.get(results.partition_point(is_before));
            first.filter(|result| result.labels == labels)
        });
        let style = decided.and_then(|result| styles.get(&result.run_id));
        let style = style.copied();
        styles.extend(style.map(|style| (run.run_id.clone(), style)));
    }
    styles
}
