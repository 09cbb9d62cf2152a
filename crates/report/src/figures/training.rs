//! Training loss by step.

use super::shared::{
    MOST_LINES, Named, averaged, bands, chance, drawn, extremes, heading, names, range,
};
use crate::captions::{key, slug};
use crate::document::Figure;
use crate::plot::{LinePlot, Series};
use crate::spec::ReportSpec;
use records::analysis::groups::Run;
use records::analysis::setting::Setting;
use records::metric;
use records::record::RunStatus;
use std::collections::BTreeSet;

/// One figure, or none without loss curves.
pub(super) fn figures(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Figure> {
    figure(setting, spec).into_iter().collect()
}

fn figure(setting: &Setting<'_>, spec: &ReportSpec) -> Option<Figure> {
    let (methods, _) = drawn(setting, spec);
    let (looks, note) = training_looks(setting, &methods);
    let curve = |run: &Run<'_>| -> Curve {
        let points = run.train.loss_curve.iter();
        points.map(|p| (p.step as f64, p.loss_nats)).collect()
    };
    let (mut series, shared) = series_by_step(setting, looks, metric::LOSS_NATS, curve);
    if series.iter().all(|s| s.points.is_empty()) {
        return None;
    }
    let (low, high) = range(&series);
    let chance = chance(setting, metric::LOSS_NATS, high);
    let bands = bands(
        setting,
        &mut series,
        "from the smallest to the largest seed",
    );
    let log_y = low > 0.0 && high > 20.0 * low;
    let plot = LinePlot {
        title: "training loss".into(),
        subtitle: chance.subtitle,
        reference_y: chance.line,
        x_label: "step".into(),
        y_label: "loss".into(),
        y_note: "nats per counted token".into(),
        log_y,
        series,
        legend: heading(setting),
        ..LinePlot::default()
    };
    let caption = format!(
        "Training loss by step; {}.{}{bands}{note}{shared}",
        setting.name, chance.sentence,
    );
    Some(Figure {
        slug: slug(setting, "training-loss"),
        caption,
        notes: format!(
            "Each point is the mean since the one before. A diverged run is drawn up to its last \
             finite point.{}",
            ended(setting)
        ),
        plot: plot.into(),
        metric: None,
    })
}

/// Values by step.
pub(super) type Curve = Vec<(f64, f64)>;

/// The mean over runs at the steps of the longest one. Runs that ended earlier have points at other
/// steps: between two of them a run has the value on the line, and after its end the last one, but
/// for a run that diverged. Without that the mean would be over other runs at each step.
fn averaged_by_step(
    named: &Named<'_>,
    metric: &str,
    runs: &[Run<'_>],
    curve: impl Fn(&Run<'_>) -> Curve,
) -> Series {
    let curves: Vec<Curve> = runs.iter().map(curve).collect();
    let end = |curve: &Curve| curve.last().map_or(0.0, |point| point.0);
    let longest = curves
        .iter()
        .max_by(|a, b| end(a).total_cmp(&end(b)))
        .cloned()
        .unwrap_or_default();
    let on_grid = runs.iter().zip(&curves).map(|(run, curve)| {
        let last = match run.status {
            RunStatus::Ok => f64::INFINITY,
            _ => end(curve),
        };
        let steps = longest.iter().map(|point| point.0);
        let steps = steps.take_while(|&step| step <= last);
        let points = steps.filter_map(|step| Some((step, value_at(curve, step)?)));
        (run.seed, points.collect())
    });
    let mut series = averaged(named, metric, extremes, on_grid);
    for ((_, drawn), own) in series.seeds.iter_mut().zip(curves) {
        *drawn = own;
    }
    series
}

/// A curve's value at a step, on the line between its points; none for a curve without points.
fn value_at(curve: &Curve, step: f64) -> Option<f64> {
    let after = curve.partition_point(|point| point.0 < step);
    let Some(&(x, y)) = curve.get(after) else {
        return curve.last().map(|point| point.1);
    };
    match after.checked_sub(1).map(|before| curve[before]) {
        Some((x_before, y_before)) if x > step => {
            Some(y_before + (y - y_before) * (step - x_before) / (x - x_before))
        }
        _ => Some(y),
    }
}

/// What is said of means over runs that ended at different steps.
pub(super) fn ended(setting: &Setting<'_>) -> &'static str {
    let differ = setting.groups.iter().any(|group| {
        let steps = group.runs.iter().map(|run| run.train.steps);
        let steps: BTreeSet<u64> = steps.collect();
        steps.len() > 1
    });
    match differ {
        true => {
            " Means are at the steps of a method's longest training; a training that ended earlier \
             counts with its last value from then on."
        }
        false => "",
    }
}

/// The groups whose training is drawn and the style of each: that of its first method in the other
/// figures, or a free one.
pub(super) fn training_looks(
    setting: &Setting<'_>,
    methods: &[usize],
) -> (Vec<(usize, usize)>, String) {
    let count = setting.groups.len();
    let look = |group: usize| {
        methods
            .iter()
            .position(|&m| setting.methods[m].group == group)
    };
    let of_drawn = |group: &usize| count <= MOST_LINES || look(*group).is_some();
    let groups: Vec<usize> = (0..count).filter(of_drawn).collect();
    let taken: Vec<usize> = groups.iter().filter_map(|&group| look(group)).collect();
    let mut free = (0..).filter(|style| !taken.contains(style));
    let note = if groups.len() < count {
        format!(" Drawn: the {} of {count} with a line above.", groups.len())
    } else {
        String::new()
    };
    let looks = groups
        .into_iter()
        .map(|group| (group, look(group).or_else(|| free.next()).unwrap_or(group)))
        .collect();
    (looks, note)
}

/// The curves of the groups that are drawn, each the mean over its runs, and what their names leave
/// out.
pub(super) fn series_by_step(
    setting: &Setting<'_>,
    looks: Vec<(usize, usize)>,
    metric: &str,
    curve: impl Fn(&Run<'_>) -> Curve,
) -> (Vec<Series>, String) {
    let title = |at: usize| setting.groups[at].named.title.as_str();
    let lines: Vec<(usize, &str)> = looks.iter().map(|(at, _)| (*at, title(*at))).collect();
    let (names, shared) = names(setting, &lines);
    let of = |((at, style), name): ((usize, usize), &String)| {
        // The key of the group's first method: it hides the training with the scores.
        let method = setting.methods.iter().position(|m| m.group == at);
        let named = Named {
            name,
            key: method.map_or_else(String::new, key),
            style,
        };
        averaged_by_step(&named, metric, &setting.groups[at].runs, &curve)
    };
    let series = looks.into_iter().zip(&names).map(of).collect();
    (series, shared)
}
