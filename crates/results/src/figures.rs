//! Which figures a setting gets, and what is drawn in them.

use crate::analysis::{Point, Setting, better_first};
use crate::groups::Run;
use crate::metric;
use crate::plot::{Grid, Grids, LinePlot, PlotError, Series};
use crate::stats::{Estimate, INTERVAL, SHARE_INTERVAL};
use crate::table::{BaseSweep, base_sweeps, base_text, seeds_text};
use std::collections::BTreeMap;

/// Lines beyond this cannot be told apart.
const MOST_LINES: usize = 16;
/// Bands of more lines than this hide each other.
const MOST_BANDS: usize = 8;

pub(crate) struct Figure {
    /// Name of the file, without its extension.
    pub slug: String,
    pub caption: String,
    pub plot: Drawing,
}

/// What is drawn.
pub(crate) enum Drawing {
    Lines(LinePlot),
    Grids(Grids),
}

impl Drawing {
    pub(crate) fn title(&self) -> &str {
        match self {
            Drawing::Lines(plot) => &plot.title,
            Drawing::Grids(plot) => &plot.title,
        }
    }

    pub(crate) fn subtitle(&self) -> &str {
        match self {
            Drawing::Lines(plot) => &plot.subtitle,
            Drawing::Grids(plot) => &plot.subtitle,
        }
    }

    pub(crate) fn to_svg(&self) -> String {
        match self {
            Drawing::Lines(plot) => plot.to_svg(),
            Drawing::Grids(plot) => plot.to_svg(),
        }
    }

    pub(crate) fn to_png(&self) -> Result<Vec<u8>, PlotError> {
        match self {
            Drawing::Lines(plot) => plot.to_png(),
            Drawing::Grids(plot) => plot.to_png(),
        }
    }
}

impl From<LinePlot> for Drawing {
    fn from(plot: LinePlot) -> Self {
        Drawing::Lines(plot)
    }
}

pub(crate) fn figures(setting: &Setting<'_>) -> Vec<Figure> {
    let mut out: Vec<Figure> = setting
        .metrics
        .iter()
        .take(2)
        .map(|m| metric_figure(setting, m))
        .collect();
    out.extend(depth_figure(setting));
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
    if setting.slug.is_empty() {
        name.into()
    } else {
        format!("{}-{name}", setting.slug)
    }
}

/// What the caption says of the seeds; bands that nobody could tell apart are taken away. `what`:
/// from where to where a band goes.
fn bands(setting: &Setting<'_>, series: &mut [Series], what: &str) -> String {
    let seeds = seeds_text(setting);
    if setting.seeds().1 < 2 {
        return " Single seed, no interval.".into();
    }
    if series.len() > MOST_BANDS {
        series.iter_mut().for_each(|line| line.band.clear());
        return format!(
            " Lines: means, {seeds}. Bands of more than {MOST_BANDS} lines would hide each other."
        );
    }
    format!(" Bands: {what}, {seeds}.")
}

/// The means of a method with their intervals, where there are any.
fn line(name: &str, style: usize, points: impl Iterator<Item = (f64, Point)>) -> Series {
    let estimates = points.filter_map(|(x, point)| Some((x, point.estimate?)));
    let (points, band) = estimates.map(|(x, e)| ((x, e.mean), e.interval)).unzip();
    Series {
        name: name.into(),
        points,
        band,
        style,
    }
}

/// Smallest and largest value of the lines, the latter at least 0.
fn range(series: &[Series]) -> (f64, f64) {
    let ys = series.iter().flat_map(|s| &s.points).map(|p| p.1);
    ys.fold((f64::INFINITY, 0.0), |(low, high), y| {
        (low.min(y), high.max(y))
    })
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
        return Chance {
            line: None,
            subtitle: setting.name.clone(),
            sentence: String::new(),
        };
    };
    let text = metric::number(level, metric::decimals(metric, level));
    let is_drawn = level <= 1.5 * highest || !metric::lower_is_better(metric) && level <= 1.0;
    Chance {
        line: is_drawn.then(|| (level, format!("chance: {text}"))),
        subtitle: if is_drawn {
            setting.name.clone()
        } else {
            format!("{}; chance: {text}", setting.name)
        },
        sentence: if is_drawn {
            format!(" Dotted: chance ({text}).")
        } else {
            format!(" Chance ({text}) is off the scale.")
        },
    }
}

/// The methods drawn and the look of each: all, or the best at the longest length where there are
/// too many.
fn drawn(setting: &Setting<'_>) -> (Vec<usize>, String) {
    let all: Vec<usize> = (0..setting.methods.len()).collect();
    if all.len() <= MOST_LINES {
        return (all, String::new());
    }
    let metric = setting.lead();
    let last = setting.lengths.last().copied().unwrap_or(0);
    let score = |&i: &usize| {
        setting
            .point(&setting.methods[i], metric, last)
            .estimate
            .map(|e| e.mean)
    };
    let mut scored: Vec<(usize, Option<f64>)> = all.iter().map(|i| (*i, score(i))).collect();
    scored.sort_by(|a, b| match (a.1, b.1) {
        (Some(x), Some(y)) => better_first(metric, x, y),
        (x, y) => x.is_none().cmp(&y.is_none()),
    });
    let mut kept: Vec<usize> = scored
        .into_iter()
        .take(MOST_LINES)
        .map(|(i, _)| i)
        .collect();
    kept.sort_unstable();
    let note = format!(
        " Drawn: the {MOST_LINES} of {} methods with the best {metric} at {last}.",
        all.len()
    );
    (kept, note)
}

fn metric_figure(setting: &Setting<'_>, metric: &str) -> Figure {
    let (methods, note) = drawn(setting);
    let of = |(style, m): (usize, &usize)| {
        let method = &setting.methods[*m];
        line(
            &method.name,
            style,
            setting
                .lengths
                .iter()
                .map(|&len| (len as f64, setting.point(method, metric, len))),
        )
    };
    let series = methods.iter().enumerate().map(of).collect();
    let lengths = setting.lengths.iter().map(|&l| l as f64).collect();
    let (plot, about) = scores(setting, metric, series);
    let plot = LinePlot {
        title: format!("{metric} by test length"),
        x_label: format!("test length ({}, log scale)", setting.task.unit),
        x_ticks: lengths,
        reference_x: Some((setting.task.train_len as f64, "train length".into())),
        legend: setting.axes.clone(),
        ..plot
    };
    let caption = format!(
        "{metric} by test length; {}. Dashed: the training length.{about}{note}",
        setting.name
    );
    Figure {
        slug: named(setting, &format!("{metric}-by-length")),
        caption,
        plot: plot.into(),
    }
}

/// What plots of a score share, and what their captions say of chance and seeds.
fn scores(setting: &Setting<'_>, metric: &str, mut series: Vec<Series>) -> (LinePlot, String) {
    let (low, high) = range(&series);
    let is_share = !metric::lower_is_better(metric) && high <= 1.0;
    let chance = chance(setting, metric, high);
    let what = if metric::is_share(metric) {
        SHARE_INTERVAL
    } else {
        INTERVAL
    };
    let bands = bands(setting, &mut series, what);
    let log_y = metric == metric::PERPLEXITY && high > 4.0 * low;
    let direction = if metric::lower_is_better(metric) {
        "lower"
    } else {
        "higher"
    };
    let plot = LinePlot {
        subtitle: chance.subtitle,
        y_label: format!(
            "{metric} ({direction} is better{})",
            if log_y { ", log scale" } else { "" }
        ),
        log_x: true,
        log_y,
        y_range: is_share.then_some((0.0, 1.0)),
        series,
        reference_y: chance.line,
        mark_points: true,
        ..LinePlot::default()
    };
    (plot, format!("{}{bands}", chance.sentence))
}

/// Mean over runs at each x, for runs that have it, with a band made of the values.
fn averaged(
    name: &str,
    style: usize,
    band: Band,
    curves: impl Iterator<Item = Vec<(f64, f64)>>,
) -> Series {
    let mut by_x: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (x, y) in curves
        .flatten()
        .filter(|p| p.0.is_finite() && p.0 >= 0.0 && p.1.is_finite())
    {
        // Bits of a non-negative float order as the float does.
        by_x.entry((x + 0.0).to_bits()).or_default().push(y);
    }
    let estimates = by_x
        .into_iter()
        .filter_map(|(x, ys)| Some((f64::from_bits(x), Estimate::of_mean(&ys)?, ys)));
    let (points, band) = estimates
        .map(|(x, e, ys)| ((x, e.mean), band(&e, &ys)))
        .unzip();
    Series {
        name: name.into(),
        points,
        band,
        style,
    }
}

type Band = fn(&Estimate, &[f64]) -> Option<(f64, f64)>;

/// From the smallest to the largest seed: unlike an interval about the mean it never reaches below
/// what a loss can be.
fn extremes(_: &Estimate, values: &[f64]) -> Option<(f64, f64)> {
    let ends = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(*v), high.max(*v))
        });
    (values.len() > 1).then_some(ends)
}

fn position_figure(setting: &Setting<'_>) -> Option<Figure> {
    let has = |len: &&usize| {
        let rows = setting
            .groups
            .iter()
            .flat_map(|g| &g.runs)
            .flat_map(Run::rows);
        rows.filter(|(_, row)| row.test_len == **len)
            .any(|(_, row)| !row.loss_by_position.is_empty())
    };
    let len = *setting.lengths.iter().rev().find(has)?;
    let (methods, note) = drawn(setting);
    let mut series = Vec::new();
    for (style, &m) in methods.iter().enumerate() {
        let method = &setting.methods[m];
        let curves = setting.groups[method.group].runs.iter().map(|run| {
            let bins = run
                .row(&method.variant, len)
                .map_or(&[][..], |row| &row.loss_by_position);
            bins.iter()
                .map(|bin| ((bin.from as f64 + bin.to as f64) / 2.0, bin.loss_nats))
                .collect()
        });
        series.push(averaged(
            &method.name,
            style,
            |estimate, _| estimate.interval,
            curves,
        ));
    }
    let chance = chance(setting, metric::LOSS_NATS, range(&series).1);
    let bands = bands(setting, &mut series, INTERVAL);
    let plot = LinePlot {
        title: format!("loss by position in windows of {len}"),
        subtitle: chance.subtitle,
        reference_y: chance.line,
        x_label: format!("position in the window ({})", setting.task.unit),
        y_label: "loss (nats per counted token)".into(),
        series,
        reference_x: Some((setting.task.train_len as f64, "train length".into())),
        legend: setting.axes.clone(),
        ..LinePlot::default()
    };
    let caption = format!(
        "Mean loss by position in windows of {len} {}, bins of equal width; {}. Past the dashed \
         line no position was trained on.{}{bands}{note}",
        setting.task.unit, setting.name, chance.sentence,
    );
    Some(Figure {
        slug: named(setting, "loss-by-position"),
        caption,
        plot: plot.into(),
    })
}

/// Exact answers by the depth of what is asked for and by length, where they are recorded by depth.
fn depth_figure(setting: &Setting<'_>) -> Option<Figure> {
    let mut depths: Vec<_> = setting
        .all_metrics
        .iter()
        .filter_map(|name| Some((metric::depth(name)?, name.as_str())))
        .collect();
    depths.sort_unstable();
    depths.truncate(MOST_LINES);
    if depths.is_empty() || setting.lengths.len() > MOST_LINES {
        return None;
    }
    let (methods, note) = drawn(setting);
    let mean = |m: usize, metric: &str, len| {
        setting
            .point(&setting.methods[m], metric, len)
            .estimate
            .map_or(f64::NAN, |e| e.mean)
    };
    let grid = |&m: &usize| Grid {
        name: setting.methods[m].name.clone(),
        values: depths
            .iter()
            .map(|(_, metric)| {
                setting
                    .lengths
                    .iter()
                    .map(|&len| mean(m, metric, len))
                    .collect()
            })
            .collect(),
    };
    let plot = Grids {
        title: format!("{} by depth and test length", metric::EXACT_MATCH),
        subtitle: setting.name.clone(),
        x_label: format!("test length ({})", setting.task.unit),
        y_label: "depth: the share of the text that stands before what is asked for".into(),
        columns: setting.lengths.iter().map(ToString::to_string).collect(),
        rows: depths
            .iter()
            .map(|((from, to), _)| format!("{from} to {to} %"))
            .collect(),
        grids: methods.iter().map(grid).collect(),
        reference: setting.longer().next().and_then(|longer| {
            let at = setting.lengths.iter().position(|&len| len == longer)?;
            (at > 0).then(|| (at, "train length".into()))
        }),
    };
    let caption = format!(
        "{} by depth and test length, means over seeds; {}. Columns to the right of the dashed \
         line are longer than the training length. Grey: no number. A method that has not learned \
         its task in length is drawn like the others.{note}",
        metric::EXACT_MATCH,
        setting.name
    );
    Some(Figure {
        slug: named(setting, "depth-by-length"),
        caption,
        plot: Drawing::Grids(plot),
    })
}

/// How far each head looks at the longest length, in units of it.
fn attention_figure(setting: &Setting<'_>) -> Option<Figure> {
    let (heads, len) = (setting.heads(), *setting.lengths.last()?);
    let ((_, per_layer), _) = *heads.last()?;
    let (methods, note) = drawn(setting);
    let of = |(style, m): (usize, &usize)| {
        let method = &setting.methods[*m];
        let points = heads
            .iter()
            .enumerate()
            .map(|(x, (_, metric))| (x as f64 + 1.0, setting.point(method, metric, len)));
        line(&method.name, style, points)
    };
    let mut series: Vec<Series> = methods.iter().enumerate().map(of).collect();
    let bands = bands(setting, &mut series, INTERVAL);
    let plot = LinePlot {
        title: format!("mean attention distance at {len}"),
        subtitle: setting.name.clone(),
        x_label: format!("head, {per_layer} to a layer, first layer first"),
        y_label: "mean attention distance (tokens)".into(),
        x_ticks: (1..=heads.len()).map(|x| x as f64).collect(),
        series,
        mark_points: true,
        legend: setting.axes.clone(),
        ..LinePlot::default()
    };
    let caption = format!(
        "Mean attention distance of every head at {len} {}, {per_layer} heads to a layer, first \
         layer first; {}.{bands}{note}",
        setting.task.unit, setting.name,
    );
    Some(Figure {
        slug: named(setting, "attention-distance"),
        caption,
        plot: plot.into(),
    })
}

fn training_figure(setting: &Setting<'_>) -> Option<Figure> {
    let (methods, _) = drawn(setting);
    let (looks, note) = training_looks(setting, &methods);
    let curve = |run: &Run<'_>| {
        run.train
            .loss_curve
            .iter()
            .map(|p| (p.step as f64, p.loss_nats))
            .collect()
    };
    let of = |(group, style): (usize, usize)| {
        let group = &setting.groups[group];
        averaged(&group.name, style, extremes, group.runs.iter().map(curve))
    };
    let mut series: Vec<Series> = looks.into_iter().map(of).collect();
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
        y_label: format!(
            "loss (nats per counted token{})",
            if log_y { ", log scale" } else { "" }
        ),
        log_y,
        series,
        legend: setting.axes.clone(),
        ..LinePlot::default()
    };
    let caption = format!(
        "Training loss, each point the mean since the one before; {}. A diverged run is drawn up \
         to its last finite point.{}{bands}{note}",
        setting.name, chance.sentence,
    );
    Some(Figure {
        slug: named(setting, "training-loss"),
        caption,
        plot: plot.into(),
    })
}

/// The groups whose training is drawn, each with a look of its own: that of its first method in the
/// other figures, where it has one.
fn training_looks(setting: &Setting<'_>, methods: &[usize]) -> (Vec<(usize, usize)>, String) {
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

fn base_figure(setting: &Setting<'_>, sweep: &BaseSweep<'_>, index: usize, count: usize) -> Figure {
    let metric = setting.lead();
    let of = |(style, &len): (usize, &usize)| {
        let points = sweep
            .rows
            .iter()
            .map(|(base, method)| (*base, setting.point(method, metric, len)));
        line(&setting.unit_count(len), style, points)
    };
    let series = setting
        .lengths
        .iter()
        .take(MOST_LINES)
        .enumerate()
        .map(of)
        .collect();
    let sweep_of = if sweep.name.is_empty() {
        String::new()
    } else {
        format!(" of {}", sweep.name)
    };
    let (plot, about) = scores(setting, metric, series);
    let plot = LinePlot {
        title: format!("{metric} by theta_base{sweep_of}"),
        x_label: "theta_base (log scale)".into(),
        x_ticks: sweep.rows.iter().map(|(base, _)| *base).collect(),
        legend: "test length".into(),
        ..plot
    };
    let bases: Vec<String> = sweep
        .rows
        .iter()
        .map(|(base, _)| base_text(*base))
        .collect();
    let caption = format!(
        "{metric} by theta_base{sweep_of} ({}), one line for each test length; {}.{about}",
        bases.join(", "),
        setting.name,
    );
    Figure {
        slug: named(setting, &sweep_slug(index, count)),
        caption,
        plot: plot.into(),
    }
}

/// `theta-base`, numbered where there are several.
pub(crate) fn sweep_slug(index: usize, count: usize) -> String {
    if count == 1 {
        "theta-base".into()
    } else {
        format!("theta-base-{}", index + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_of_losses_never_reaches_below_them() {
        // The interval about the mean does: a logarithmic axis cannot show it.
        let values = [0.001, 0.002, 1.0];
        let estimate = Estimate::of_mean(&values).unwrap();
        assert!(estimate.interval.unwrap().0 < 0.0);
        assert_eq!(extremes(&estimate, &values), Some((0.001, 1.0)));
        assert_eq!(extremes(&Estimate::of_mean(&[1.0]).unwrap(), &[1.0]), None);
    }
}
