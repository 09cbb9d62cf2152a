//! Scores by training step, for each length that was scored while training.

use super::shared::{bands, chance, heading, range};
use super::training::{Curve, ended, series_by_step, training_looks};
use crate::captions::{direction, slug};
use crate::document::Figure;
use crate::plot::LinePlot;
use crate::spec::ReportSpec;
use records::analysis::groups::Run;
use records::analysis::setting::Setting;
use records::metric;
use std::collections::BTreeSet;

/// Most lengths with a figure: the shortest, the longest, and those between at equal distances.
const MOST_LENGTHS: usize = 4;

/// A figure of the leading metric for each length, or none without scores while training.
pub(super) fn figures(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Figure> {
    let runs = setting.groups.iter().flat_map(|group| &group.runs);
    let rows = runs.flat_map(|run| run.train.scores.iter().flat_map(|at| &at.rows));
    let lengths: BTreeSet<usize> = rows.map(|row| row.test_len).collect();
    let lengths: Vec<usize> = lengths.into_iter().collect();
    let figures = chosen(&lengths)
        .into_iter()
        .map(|len| figure(setting, spec, len));
    figures.flatten().collect()
}

fn chosen(lengths: &[usize]) -> Vec<usize> {
    if lengths.len() <= MOST_LENGTHS {
        return lengths.to_vec();
    }
    let last = lengths.len() - 1;
    let places = (0..MOST_LENGTHS).map(|i| i * last / (MOST_LENGTHS - 1));
    places.map(|at| lengths[at]).collect()
}

fn figure(setting: &Setting<'_>, spec: &ReportSpec, len: usize) -> Option<Figure> {
    let lead = setting.lead();
    let methods = super::shared::drawn(setting, spec).0;
    let (looks, note) = training_looks(setting, &methods);
    let curve = |run: &Run<'_>| -> Curve {
        let scores = run.train.scores.iter().flat_map(|at| {
            let rows = at.rows.iter().filter(|row| row.test_len == len);
            rows.map(move |row| (at.step, row))
        });
        let points = scores.filter_map(|(step, row)| {
            let (value, _) = metric::value(&run.task, row, lead)?;
            Some((step as f64, value))
        });
        points.collect()
    };
    let (mut series, shared) = series_by_step(setting, looks, lead, curve);
    series.retain(|line| !line.points.is_empty());
    if series.is_empty() {
        return None;
    }
    let (low, high) = range(&series);
    let chance = chance(setting, lead, high);
    let bands = bands(
        setting,
        &mut series,
        "from the smallest to the largest seed",
    );
    let log_y = metric::lower_is_better(lead) && low > 0.0 && high > 20.0 * low;
    let at = setting.unit_count(len);
    let plot = LinePlot {
        title: format!("{lead} at {at} by step"),
        subtitle: chance.subtitle,
        reference_y: chance.line,
        x_label: "step".into(),
        y_label: lead.into(),
        y_note: direction(lead).into(),
        log_y,
        // Shares that are all equal have no range of their own, and none is below 0 or above 1.
        y_range: (metric::is_share(lead) && low >= high).then_some((0.0, 1.0)),
        series,
        legend: heading(setting),
        ..LinePlot::default()
    };
    let caption = format!(
        "{lead} at {at} by training step, under the encoding as trained; {}.{}{bands}{note}{shared}",
        setting.name, chance.sentence,
    );
    Some(Figure {
        slug: slug(setting, &format!("{lead}-by-step-at-{len}")),
        caption,
        notes: ended(setting).trim_start().into(),
        plot: plot.into(),
        metric: None,
    })
}
