//! How much of its score each method keeps far out, as dots with intervals: for more methods than
//! lines can tell apart.

use super::shared::MOST_LINES;
use crate::captions::{ratio_interval, slug};
use crate::document::{Drawing, Figure};
use crate::plot::{Dot, Dots};
use crate::spec::ReportSpec;
use records::analysis::point::Absent;
use records::analysis::setting::{Method, Setting};
use records::metric;
use records::stats::SHARE_INTERVAL;

/// Methods that have room.
const MOST_METHODS: usize = 64;
/// The multiple of the training length that is shown where it was tested.
const TIMES: usize = 16;

/// One figure of the leading metric, or none.
pub(super) fn figures(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Figure> {
    let has_room = (MOST_LINES + 1..=MOST_METHODS).contains(&setting.methods.len());
    let len = setting.task.train_len.saturating_mul(TIMES);
    let tested = setting.lengths.contains(&len).then_some(len);
    let len = tested.or_else(|| setting.longer().last());
    let figure = len.filter(|_| has_room).map(|len| figure(setting, len));
    figure.into_iter().collect()
}

fn figure(setting: &Setting<'_>, len: usize) -> Figure {
    let (metric, times) = (setting.lead(), setting.times(len));
    let is_ratio = !metric::is_share(metric);
    let mut rows: Vec<Dot> = setting
        .methods
        .iter()
        .map(|m| dot(setting, m, len))
        .collect();
    let is_better = |a: &Dot, b: &Dot| match is_ratio && metric::lower_is_better(metric) {
        true => a.mean.total_cmp(&b.mean),
        false => b.mean.total_cmp(&a.mean),
    };
    // NaN, no number, comes last in both directions.
    rows.sort_by(|a, b| a.mean.is_nan().cmp(&b.mean.is_nan()).then(is_better(a, b)));
    let what = match is_ratio {
        true => format!("{metric} at {times} the training length over that in length"),
        false => format!("{metric} at {times} the training length"),
    };
    Figure {
        slug: slug(setting, &format!("{metric}-at-{times}")),
        caption: format!(
            "{what}; {}. Dots: the mean and, smaller, each seed; lines: {}.",
            setting.name,
            if is_ratio {
                ratio_interval(setting, &[len])
            } else {
                SHARE_INTERVAL
            }
        ),
        notes: format!(
            "{} A line that ends at the edge goes on.",
            match setting.are_all_still_learning() {
                true => "All methods are still learning.",
                false => "Grey: still learning.",
            }
        ),
        plot: Drawing::Dots(Dots {
            title: format!("{metric} at {times} the training length"),
            subtitle: setting.name.clone(),
            x_label: what,
            is_log: is_ratio,
            rows,
            reference: is_ratio.then(|| (1.0, "in length".into())),
        }),
        metric: None,
    }
}

fn dot(setting: &Setting<'_>, method: &Method, len: usize) -> Dot {
    let metric = setting.lead();
    let point = match metric::is_share(metric) {
        true => setting.score(method, metric, len),
        false => setting.ratio(method, metric, len),
    };
    Dot {
        name: method.title.clone(),
        mean: point.estimate.map_or(f64::NAN, |e| e.mean),
        interval: point.estimate.and_then(|e| e.interval),
        seeds: point.values.iter().map(|(_, value)| *value).collect(),
        why: point
            .absent
            .iter()
            .map(|a| why(*a))
            .collect::<Vec<_>>()
            .join(" / "),
        is_muted: setting.is_still_learning(method) && !setting.are_all_still_learning(),
    }
}

/// What stands in the place of a dot.
fn why(absent: Absent) -> &'static str {
    match absent {
        Absent::Unconverged => "not learned in length",
        Absent::Missing => "not tested",
        other => other.name(),
    }
}
