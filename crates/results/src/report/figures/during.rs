//! Scores while training, by step: one figure for each length of `eval.during`, so that late
//! learning and late collapse are seen.

use super::shared::{Named, drawn, line, scores};
use crate::analysis::groups::{Run, TRAINED};
use crate::analysis::point::Point;
use crate::analysis::setting::Setting;
use crate::metric;
use crate::plot::LinePlot;
use crate::record::{EvalRow, EvalStatus};
use crate::report::captions::slug;
use crate::report::document::Figure;
use crate::report::spec::ReportSpec;
use crate::stats::Estimate;
use std::collections::{BTreeMap, BTreeSet};

/// Lengths with a figure: the shortest ones and the longest.
const MOST_LENGTHS: usize = 4;

/// The figures, or none where no score was recorded while training.
pub(super) fn figures(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Figure> {
    let runs = setting.groups.iter().flat_map(|group| &group.runs);
    let rows = runs.flat_map(|run| run.train.scores.iter().flat_map(|at| &at.rows));
    let lengths: BTreeSet<usize> = rows.map(|row| row.test_len).collect();
    let mut lengths: Vec<usize> = lengths.into_iter().collect();
    if let Some(longest) = lengths.last().copied() {
        lengths.truncate(MOST_LENGTHS - 1);
        lengths.push(longest);
        lengths.dedup();
    }
    lengths
        .into_iter()
        .map(|len| figure(setting, spec, len))
        .collect()
}

fn figure(setting: &Setting<'_>, spec: &ReportSpec, len: usize) -> Figure {
    let metric = setting.lead();
    let (methods, note) = drawn(setting, spec);
    let trained = methods
        .iter()
        .enumerate()
        .filter(|(_, m)| setting.methods[**m].variant == TRAINED);
    let of = |(style, m): (usize, &usize)| {
        let method = &setting.methods[*m];
        let points = points(setting, &setting.groups[method.group].runs, len);
        line(&Named::method(setting, *m, style), metric, points)
    };
    let (plot, about) = scores(setting, metric, trained.map(of).collect());
    let plot = LinePlot {
        title: format!("{metric} at {} while training", setting.unit_count(len)),
        x_label: "step".into(),
        log_x: false,
        legend: setting.axes.clone(),
        ..plot
    };
    let caption = format!(
        "{metric} at {} by step of training; {}.{about}{note}",
        setting.unit_count(len),
        setting.name
    );
    Figure {
        slug: slug(setting, &format!("{metric}-at-{len}-by-step")),
        caption,
        notes: "Each point is the mean over the seeds that have a score at the step.".into(),
        plot: plot.into(),
        metric: None,
    }
}

/// The leading metric over the runs at each step that has scores at this length.
fn points(
    setting: &Setting<'_>,
    runs: &[Run<'_>],
    len: usize,
) -> impl Iterator<Item = (f64, String, Point)> {
    let metric = setting.lead();
    let mut by_step: BTreeMap<u64, (Vec<(u64, f64)>, u64)> = BTreeMap::new();
    for run in runs {
        for at in &run.train.scores {
            let is_own = |row: &&EvalRow| row.test_len == len && row.status == EvalStatus::Ok;
            let row = at.rows.iter().find(is_own);
            let value = row.and_then(|row| Some((row, metric::value(&run.task, row, metric)?.0)));
            if let Some((row, value)) = value.filter(|(_, value)| value.is_finite()) {
                let (values, rows) = by_step.entry(at.step).or_insert((Vec::new(), u64::MAX));
                values.push((run.seed, value));
                *rows = (*rows).min(metric::rows(row, metric).unwrap_or(1));
            }
        }
    }
    let (is_share, runs) = (metric::is_share(metric), runs.len());
    by_step.into_iter().map(move |(step, (values, rows))| {
        let only: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
        let estimate = if is_share {
            Estimate::of_share(&only, rows)
        } else {
            Estimate::of_mean(&only)
        };
        let point = Point {
            values,
            estimate,
            runs,
            absent: BTreeSet::new(),
        };
        (step as f64, format!("step {step}"), point)
    })
}
