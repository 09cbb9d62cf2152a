//! Which figures a setting gets, and what is drawn in them.

use crate::analysis::{Run, Setting, better_first};
use crate::metric;
use crate::plot::{LinePlot, Series};
use crate::stats::{Estimate, INTERVAL};
use crate::table::{BaseSweep, base_sweeps, base_text, seeds_text};
use std::collections::BTreeMap;

/// Lines beyond this cannot be told apart.
const MOST_LINES: usize = 16;

pub(crate) struct Figure {
    /// Name of the file, without its extension.
    pub slug: String,
    pub caption: String,
    pub plot: LinePlot,
}

pub(crate) fn figures(setting: &Setting<'_>) -> Vec<Figure> {
    let mut out: Vec<Figure> = setting.metrics.iter().take(2).map(|m| metric_figure(setting, m)).collect();
    out.extend(position_figure(setting));
    out.extend(attention_figure(setting));
    out.extend(training_figure(setting));
    let sweeps = base_sweeps(setting);
    for (i, sweep) in sweeps.iter().enumerate() {
        out.push(base_figure(setting, sweep, i, sweeps.len()));
    }
    out
}

/// Not yet a file's name: the report makes it one, and one of its own.
fn named(setting: &Setting<'_>, name: &str) -> String {
    if setting.slug.is_empty() { name.into() } else { format!("{}-{name}", setting.slug) }
}

fn intervals(setting: &Setting<'_>) -> String {
    if setting.seeds().1 > 1 { format!(" Bands: {INTERVAL}, {}.", seeds_text(setting)) } else { " Single seed, no interval.".into() }
}

/// How a figure shows the level of guessing.
struct Chance {
    /// A line of the plot, where it would not rule the axis.
    line: Option<(f64, String)>,
    /// The plot's second line, which names a level that is not drawn.
    subtitle: String,
    /// For the caption.
    sentence: String,
}

/// `highest`: the largest mean drawn; a level far above it is named, not drawn.
fn chance(setting: &Setting<'_>, metric: &str, highest: f64) -> Chance {
    let Some(level) = metric::chance(setting.task, metric) else {
        return Chance { line: None, subtitle: setting.name.clone(), sentence: String::new() };
    };
    let text = metric::number(level, metric::decimals(metric, level));
    let is_drawn = level <= 1.5 * highest || !metric::lower_is_better(metric) && level <= 1.0;
    Chance {
        line: is_drawn.then(|| (level, "chance".into())),
        subtitle: if is_drawn { setting.name.clone() } else { format!("{}; chance: {text}", setting.name) },
        sentence: if is_drawn { format!(" Dotted: chance ({text}).") } else { format!(" Chance ({text}) is off the scale.") },
    }
}

fn highest(series: &[Series]) -> f64 {
    series.iter().flat_map(|s| &s.points).map(|p| p.1).fold(0.0, f64::max)
}

/// The methods drawn and the look of each: all, or the best at the longest length where there are too many.
fn drawn(setting: &Setting<'_>) -> (Vec<usize>, String) {
    let all: Vec<usize> = (0..setting.methods.len()).collect();
    if all.len() <= MOST_LINES {
        return (all, String::new());
    }
    let metric = setting.lead();
    let last = setting.lengths.last().copied().unwrap_or(0);
    let score = |&i: &usize| setting.point(&setting.methods[i], metric, last).estimate.map(|e| e.mean);
    let mut scored: Vec<(usize, Option<f64>)> = all.iter().map(|i| (*i, score(i))).collect();
    scored.sort_by(|a, b| match (a.1, b.1) {
        (Some(x), Some(y)) => better_first(metric, x, y),
        (x, y) => x.is_none().cmp(&y.is_none()),
    });
    let mut kept: Vec<usize> = scored.into_iter().take(MOST_LINES).map(|(i, _)| i).collect();
    kept.sort_unstable();
    let note = format!(" Drawn: the {MOST_LINES} of {} methods with the best {metric} at {last}.", all.len());
    (kept, note)
}

fn metric_figure(setting: &Setting<'_>, metric: &str) -> Figure {
    let (methods, note) = drawn(setting);
    let mut series = Vec::new();
    let mut range = (f64::INFINITY, 0.0f64);
    for (style, &m) in methods.iter().enumerate() {
        let method = &setting.methods[m];
        let mut line = Series { name: method.name.clone(), style, ..Series::default() };
        for &len in &setting.lengths {
            if let Some(e) = setting.point(method, metric, len).estimate {
                line.points.push((len as f64, e.mean));
                line.band.push(e.interval());
                range = (range.0.min(e.mean), range.1.max(e.mean));
            }
        }
        series.push(line);
    }
    let is_share = !metric::lower_is_better(metric) && range.1 <= 1.0;
    let chance = chance(setting, metric, range.1);
    let plot = LinePlot {
        title: format!("{metric} by test length"),
        subtitle: chance.subtitle,
        x_label: format!("test length ({})", setting.task.unit),
        y_label: axis_name(metric),
        log_x: true,
        log_y: metric == metric::PERPLEXITY && range.1 > 4.0 * range.0,
        x_ticks: setting.lengths.iter().map(|&l| l as f64).collect(),
        y_range: is_share.then_some((0.0, 1.0)),
        series,
        reference_x: Some((setting.task.train_len as f64, "train length".into())),
        reference_y: chance.line,
        mark_points: true,
    };
    let caption =
        format!("{metric} by test length; {}. Dashed: the training length.{}{}{note}", setting.name, chance.sentence, intervals(setting));
    Figure { slug: named(setting, &format!("{metric}-by-length")), caption, plot }
}

fn axis_name(metric: &str) -> String {
    format!("{metric} ({} is better)", if metric::lower_is_better(metric) { "lower" } else { "higher" })
}

/// Mean over runs at each x, for runs that have it.
fn averaged(name: &str, style: usize, curves: impl Iterator<Item = Vec<(f64, f64)>>) -> Series {
    let mut by_x: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (x, y) in curves.flatten().filter(|p| p.0.is_finite() && p.0 >= 0.0 && p.1.is_finite()) {
        // Bits of a non-negative float order as the float does.
        by_x.entry((x + 0.0).to_bits()).or_default().push(y);
    }
    let estimates = by_x.into_iter().filter_map(|(x, ys)| Some((f64::from_bits(x), Estimate::of(&ys)?)));
    let (points, band) = estimates.map(|(x, e)| ((x, e.mean), e.interval())).unzip();
    Series { name: name.into(), points, band, style }
}

fn position_figure(setting: &Setting<'_>) -> Option<Figure> {
    let has = |len: &&usize| {
        let rows = setting.groups.iter().flat_map(|g| &g.runs).flat_map(|r| &r.evals);
        rows.filter(|row| row.test_len == **len).any(|row| !row.loss_by_position.is_empty())
    };
    let len = *setting.lengths.iter().rev().find(has)?;
    let (methods, note) = drawn(setting);
    let mut series = Vec::new();
    for (style, &m) in methods.iter().enumerate() {
        let method = &setting.methods[m];
        let curves = setting.groups[method.group].runs.iter().map(|run| {
            let bins = run.row(&method.variant, len).map_or(&[][..], |row| &row.loss_by_position);
            bins.iter().map(|bin| ((bin.from as f64 + bin.to as f64) / 2.0, bin.loss_nats)).collect()
        });
        series.push(averaged(&method.name, style, curves));
    }
    let chance = chance(setting, metric::LOSS_NATS, highest(&series));
    let plot = LinePlot {
        title: format!("loss by position in windows of {len}"),
        subtitle: chance.subtitle,
        reference_y: chance.line,
        x_label: format!("position in the window ({})", setting.task.unit),
        y_label: "loss (nats per counted token)".into(),
        series,
        reference_x: Some((setting.task.train_len as f64, "train length".into())),
        ..LinePlot::default()
    };
    let caption = format!(
        "Mean loss by position in windows of {len} {}, bins of equal width; {}. Past the dashed line no position was trained on.{}{}{note}",
        setting.task.unit,
        setting.name,
        chance.sentence,
        intervals(setting)
    );
    Some(Figure { slug: named(setting, "loss-by-position"), caption, plot })
}

/// How far each head looks at the longest length, in units of it.
fn attention_figure(setting: &Setting<'_>) -> Option<Figure> {
    let (heads, len) = (setting.heads(), *setting.lengths.last()?);
    let ((_, per_layer), _) = *heads.last()?;
    let (methods, note) = drawn(setting);
    let mut series = Vec::new();
    for (style, &m) in methods.iter().enumerate() {
        let method = &setting.methods[m];
        let mut line = Series { name: method.name.clone(), style, ..Series::default() };
        for (x, (_, metric)) in heads.iter().enumerate() {
            if let Some(e) = setting.point(method, metric, len).estimate {
                line.points.push((x as f64 + 1.0, e.mean));
                line.band.push(e.interval());
            }
        }
        series.push(line);
    }
    let plot = LinePlot {
        title: format!("mean attention distance at {len}"),
        subtitle: setting.name.clone(),
        x_label: format!("head, {per_layer} to a layer, first layer first"),
        y_label: "mean attention distance (tokens)".into(),
        x_ticks: (1..=heads.len()).map(|x| x as f64).collect(),
        series,
        mark_points: true,
        ..LinePlot::default()
    };
    let caption = format!(
        "Mean attention distance of every head at {len} {}, {per_layer} heads to a layer, first layer first; {}.{}{note}",
        setting.task.unit,
        setting.name,
        intervals(setting)
    );
    Some(Figure { slug: named(setting, "attention-distance"), caption, plot })
}

fn training_figure(setting: &Setting<'_>) -> Option<Figure> {
    let mut series = Vec::new();
    let groups: Vec<_> = setting.groups.iter().take(MOST_LINES).collect();
    let (methods, _) = drawn(setting);
    for (index, group) in groups.iter().enumerate() {
        // A method looks the same in every figure; its variants share the training of the first.
        let style = methods.iter().position(|&m| setting.methods[m].group == index).unwrap_or(index);
        let curve = |run: &Run<'_>| run.train.loss_curve.iter().map(|p| (p.step as f64, p.loss_nats)).collect();
        series.push(averaged(&group.name, style, group.runs.iter().map(curve)));
    }
    if series.iter().all(|s| s.points.is_empty()) {
        return None;
    }
    let ys = || series.iter().flat_map(|s| &s.points).map(|p| p.1);
    let (low, high) = ys().fold((f64::INFINITY, 0.0f64), |(a, b), y| (a.min(y), b.max(y)));
    let chance = chance(setting, metric::LOSS_NATS, high);
    let plot = LinePlot {
        title: "training loss".into(),
        subtitle: chance.subtitle,
        reference_y: chance.line,
        x_label: "step".into(),
        y_label: "loss (nats per counted token)".into(),
        log_y: low > 0.0 && high > 20.0 * low,
        series,
        ..LinePlot::default()
    };
    let note = if setting.groups.len() > MOST_LINES {
        format!(" Drawn: the first {MOST_LINES} of {}.", setting.groups.len())
    } else {
        String::new()
    };
    let caption = format!(
        "Training loss, each point the mean since the one before; {}. A diverged run is drawn up to its last finite point.{}{}{note}",
        setting.name,
        chance.sentence,
        intervals(setting)
    );
    Some(Figure { slug: named(setting, "training-loss"), caption, plot })
}

fn base_figure(setting: &Setting<'_>, sweep: &BaseSweep<'_>, index: usize, count: usize) -> Figure {
    let metric = setting.lead();
    let mut series = Vec::new();
    let mut range = (f64::INFINITY, 0.0f64);
    for (style, &len) in setting.lengths.iter().take(MOST_LINES).enumerate() {
        let mut line = Series { name: setting.unit_count(len), style, ..Series::default() };
        for (base, method) in &sweep.rows {
            if let Some(e) = setting.point(method, metric, len).estimate {
                line.points.push((*base, e.mean));
                line.band.push(e.interval());
                range = (range.0.min(e.mean), range.1.max(e.mean));
            }
        }
        series.push(line);
    }
    let of = if sweep.name.is_empty() { String::new() } else { format!(" of {}", sweep.name) };
    let is_share = !metric::lower_is_better(metric) && range.1 <= 1.0;
    let chance = chance(setting, metric, range.1);
    let plot = LinePlot {
        title: format!("{metric} by theta_base{of}"),
        subtitle: chance.subtitle,
        reference_y: chance.line,
        x_label: "theta_base".into(),
        y_label: axis_name(metric),
        log_x: true,
        log_y: metric == metric::PERPLEXITY && range.1 > 4.0 * range.0,
        x_ticks: sweep.rows.iter().map(|(base, _)| *base).collect(),
        y_range: is_share.then_some((0.0, 1.0)),
        series,
        mark_points: true,
        ..LinePlot::default()
    };
    let bases: Vec<String> = sweep.rows.iter().map(|(base, _)| base_text(*base)).collect();
    let caption = format!(
        "{metric} by theta_base{of} ({}), one line for each test length; {}.{}{}",
        bases.join(", "),
        setting.name,
        chance.sentence,
        intervals(setting)
    );
    Figure { slug: named(setting, &sweep_slug(index, count)), caption, plot }
}

/// `theta-base`, numbered where there are several.
pub(crate) fn sweep_slug(index: usize, count: usize) -> String {
    if count == 1 { "theta-base".into() } else { format!("theta-base-{}", index + 1) }
}
