//! What figures share: lines over seeds, bands, chance levels, and which methods are drawn.

use crate::captions::{direction, key, seeds_text};
use crate::plot::{LEGEND_CHARS, LinePlot, Series};
use crate::sections::baseline::baseline;
use crate::spec::ReportSpec;
use records::analysis::point::{Point, point_text};
use records::analysis::setting::Setting;
use records::metric::{self, better_first};
use records::stats::{Estimate, INTERVAL, LOG_INTERVAL, SHARE_INTERVAL, Scale};
use records::text::{self, short_hash};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

pub(super) use records::analysis::looks::MOST_LINES;
/// Longest list of what all lines share, in characters.
const MOST_SHARED: usize = 200;
/// Bands of more lines than this hide each other.
const MOST_BANDS: usize = 8;

/// What the names of lines are values of; empty where they are encodings, which they say.
pub(super) fn heading(setting: &Setting<'_>) -> String {
    match setting.axes.as_str() {
        "pe" => String::new(),
        axes => axes.to_owned(),
    }
}

/// The caption's sentence on seeds. Lines without numbers are removed, and bands where there are too
/// many. `what`: from where to where a band goes.
pub(super) fn bands(setting: &Setting<'_>, series: &mut Vec<Series>, what: &str) -> String {
    series.retain(|line| !line.points.is_empty());
    let seeds = seeds_text(setting);
    if setting.seeds().1 < 2 {
        return " Single seed, no interval.".into();
    }
    if series.len() > MOST_BANDS {
        series.iter_mut().for_each(|line| line.band.clear());
        return format!(
            " Lines: means, {seeds}; no bands, because those of more than {MOST_BANDS} lines hide \
             each other."
        );
    }
    format!(" Bands: {what}, {seeds}.")
}

/// How a line is named and looks.
pub(super) struct Named<'n> {
    pub name: &'n str,
    /// As in [`Series::key`].
    pub key: String,
    pub style: usize,
}

impl<'n> Named<'n> {
    /// A method of the setting: one key in all figures.
    pub(super) fn method(name: &'n str, method: usize, style: usize) -> Self {
        let key = key(method);
        Self { name, key, style }
    }
}

/// [`names`] of methods.
pub(super) fn method_names(setting: &Setting<'_>, methods: &[usize]) -> (Vec<String>, String) {
    let methods = methods.iter().map(|&at| &setting.methods[at]);
    let lines: Vec<(usize, &str)> = methods.map(|m| (m.group, m.title.as_str())).collect();
    names(setting, &lines)
}

/// The names of lines in a legend, all different, and the caption's sentence on what they leave
/// out: where a title is too long for a legend, the settings that all of the lines share.
/// `lines`: group and title of each.
pub(super) fn names(setting: &Setting<'_>, lines: &[(usize, &str)]) -> (Vec<String>, String) {
    let is_short = |title: &str| title.chars().count() <= LEGEND_CHARS;
    if lines.iter().all(|(_, title)| is_short(title)) {
        let titles = lines.iter().map(|(_, title)| (*title).to_owned());
        return (titles.collect(), String::new());
    }
    let named = |group: usize| &setting.groups[group].named;
    let parts = named(lines[0].0).parts.iter();
    let is_one = lines.iter().all(|(group, _)| *group == lines[0].0);
    let in_all = |part: &&String| lines.iter().all(|(of, _)| named(*of).parts.contains(part));
    let shared: Vec<String> = parts
        .filter(|part| !is_one && in_all(part))
        .cloned()
        .collect();
    let own = |group: usize| {
        let parts = named(group).parts.iter();
        let own: Vec<&str> = parts
            .filter(|part| !shared.contains(part))
            .map(String::as_str)
            .collect();
        own.join(", ")
    };
    let run = |group: usize| {
        let run = setting.groups[group].runs.first();
        run.map_or(String::new(), |run| short_hash(&run.run_id).to_owned())
    };
    // Each way of naming a line tells more apart than the one before it.
    let ways: [&dyn Fn(usize) -> String; 3] = [
        &|group| own(group),
        &|group| own(group) + &named(group).apart,
        &|group| format!("{} [run {}]", text::name(&own(group), 24), run(group)),
    ];
    let ways = ways.iter().map(|way| {
        let line = |&(group, title): &(usize, &str)| {
            let variant = title.strip_prefix(named(group).title.as_str());
            let name = way(group) + variant.unwrap_or_default();
            text::name(name.trim_start(), LEGEND_CHARS)
        };
        lines.iter().map(line).collect::<Vec<String>>()
    });
    let is_told = |names: &Vec<String>| {
        let all: BTreeSet<&String> = names.iter().filter(|name| !name.is_empty()).collect();
        all.len() == names.len()
    };
    let titles = || lines.iter().map(|(_, title)| (*title).to_owned()).collect();
    match ways.into_iter().find(is_told) {
        Some(names) if !shared.is_empty() => {
            let shared = text::name(&text::list(&shared, shared.len()), MOST_SHARED);
            (names, format!(" All lines: {shared}."))
        }
        names => (names.unwrap_or_else(titles), String::new()),
    }
}

/// The caption's sentence on the points that [`line`] leaves out.
pub(super) fn left_out(setting: &Setting<'_>, metric: &str) -> &'static str {
    let points = setting.methods.iter().flat_map(|method| {
        let lengths = setting.lengths.iter();
        lengths.map(move |&len| setting.point(method, metric, len))
    });
    let mut partly = points.filter(|p| p.estimate.is_some() && is_partly_tested(p));
    match partly.next() {
        Some(_) => " Not drawn: points for which some seeds of a method were not tested.",
        None => "",
    }
}

fn is_partly_tested(point: &Point) -> bool {
    point.absent.iter().any(|absent| absent.is_untested())
}

/// The means of a method with their intervals, where there are any, and the values of its seeds.
/// Means over some of its seeds are left out where the others were not tested: the line would show
/// other seeds, not other scores. `points`: where, in words, and what.
pub(super) fn line(
    named: &Named<'_>,
    metric: &str,
    points: impl Iterator<Item = (f64, String, Point)>,
) -> Series {
    let mut line = Series {
        name: named.name.into(),
        style: named.style,
        key: named.key.clone(),
        ..Series::default()
    };
    let mut by_seed: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for (x, place, point) in points {
        let Some(estimate) = point.estimate.filter(|_| !is_partly_tested(&point)) else {
            continue;
        };
        let n = point.values.len();
        let n = if n > 1 {
            format!(", n = {n}")
        } else {
            String::new()
        };
        let value = point_text(metric, &point);
        line.points.push((x, estimate.mean));
        line.band.push(estimate.interval);
        line.tips.push((place, format!("{value}{n}")));
        for (seed, value) in point.values {
            by_seed.entry(seed).or_default().push((x, value));
        }
    }
    if by_seed.len() > 1 {
        let seed = |(seed, points)| (format!("seed {seed}"), points);
        line.seeds = by_seed.into_iter().map(seed).collect();
    }
    line
}

/// Smallest and largest value of the lines, the latter at least 0.
pub(super) fn range(series: &[Series]) -> (f64, f64) {
    let ys = series.iter().flat_map(|s| &s.points).map(|p| p.1);
    ys.fold((f64::INFINITY, 0.0), |(low, high), y| {
        (low.min(y), high.max(y))
    })
}

/// How a figure shows the score of guessing.
pub(super) struct Chance {
    /// A line of the plot, unless it would compress the axis.
    pub line: Option<(f64, String)>,
    /// The plot's second line, which names a level that is not drawn.
    pub subtitle: String,
    /// For the caption.
    pub sentence: String,
}

/// `highest`: the largest mean drawn. A level far above it is named in the subtitle, not drawn.
pub(super) fn chance(setting: &Setting<'_>, metric: &str, highest: f64) -> Chance {
    let Some(level) = setting.chance(metric) else {
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

/// The methods drawn: all, or where there are too many the baseline and the best at the longest
/// length that most of them have a number for; equal ones by the next shorter length.
pub(super) fn drawn(setting: &Setting<'_>, spec: &ReportSpec) -> (Vec<usize>, String) {
    let all: Vec<usize> = (0..setting.methods.len()).collect();
    if all.len() <= MOST_LINES {
        return (all, String::new());
    }
    let metric = setting.lead();
    let score = |i: usize, len: usize| {
        let point = setting.point(&setting.methods[i], metric, len);
        point.estimate.map(|e| e.mean)
    };
    let is_common = |len: &&usize| {
        let having = all.iter().filter(|i| score(**i, **len).is_some()).count();
        2 * having > all.len()
    };
    let lengths = setting.lengths.iter();
    let last = lengths.rev().find(is_common).or(setting.lengths.last());
    let last = last.copied().unwrap_or(0);
    let shorter = || setting.lengths.iter().rev().filter(|len| **len <= last);
    let by_score = |a: usize, b: usize, len: usize| match (score(a, len), score(b, len)) {
        (Some(x), Some(y)) => better_first(metric, x, y),
        (x, y) => x.is_none().cmp(&y.is_none()),
    };
    let mut best = all.clone();
    best.sort_by(|a, b| {
        let orders = shorter().map(|len| by_score(*a, *b, *len));
        orders.fold(Ordering::Equal, Ordering::then)
    });
    let base = baseline(setting, spec);
    let base = base.and_then(|base| setting.methods.iter().position(|m| m.name == base.name));
    let mut kept: Vec<usize> = base.into_iter().collect();
    kept.extend(best.into_iter().filter(|i| Some(*i) != base));
    kept.truncate(MOST_LINES);
    kept.sort_unstable();
    let besides = base.map_or("", |_| "the baseline and ");
    let note = format!(
        " Drawn: {MOST_LINES} of {} methods, {besides}those with the best {metric} at {last}, the \
         longest length that most have a number for (equal ones: at the next shorter length).",
        all.len()
    );
    (kept, note)
}

/// The common part of plots of a score, and the sentences of their captions on chance and seeds.
pub(super) fn scores(
    setting: &Setting<'_>,
    metric: &str,
    mut series: Vec<Series>,
) -> (LinePlot, String) {
    let (low, high) = range(&series);
    let is_share = !metric::lower_is_better(metric) && high <= 1.0;
    let chance = chance(setting, metric, high);
    let what = match (metric::is_share(metric), metric::scale(metric)) {
        (true, _) => SHARE_INTERVAL,
        (false, Scale::Linear) => INTERVAL,
        (false, Scale::Log) => LOG_INTERVAL,
    };
    let bands = bands(setting, &mut series, what);
    let log_y = metric == metric::PERPLEXITY && high > 4.0 * low;
    let plot = LinePlot {
        subtitle: chance.subtitle,
        y_label: metric.into(),
        y_note: direction(metric).into(),
        log_x: true,
        log_y,
        y_range: is_share.then_some((0.0, 1.0)),
        series,
        reference_y: chance.line,
        mark_points: true,
        ..LinePlot::default()
    };
    let left_out = left_out(setting, metric);
    (plot, format!("{}{bands}{left_out}", chance.sentence))
}

/// The mean over runs at each x, over the runs that have it, with a band made of their values.
pub(super) fn averaged(
    named: &Named<'_>,
    metric: &str,
    band: Band,
    curves: impl Iterator<Item = (u64, Vec<(f64, f64)>)>,
) -> Series {
    let mut by_x: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    let mut seeds = Vec::new();
    for (seed, mut curve) in curves {
        curve.retain(|p| p.0.is_finite() && p.0 >= 0.0 && p.1.is_finite());
        for (x, y) in &curve {
            // The bits of non-negative floats have the order of the floats.
            // Adding 0 turns -0, which has other bits, into 0.
            by_x.entry((x + 0.0).to_bits()).or_default().push(*y);
        }
        seeds.push((format!("seed {seed}"), curve));
    }
    if seeds.len() < 2 {
        seeds.clear();
    }
    let estimates = by_x.into_iter().filter_map(|(x, ys)| {
        Some((
            f64::from_bits(x),
            Estimate::of(metric::scale(metric), &ys)?,
            ys,
        ))
    });
    let (points, band) = estimates
        .map(|(x, e, ys)| ((x, e.mean), band(&e, &ys)))
        .unzip();
    Series {
        name: named.name.into(),
        points,
        band,
        style: named.style,
        seeds,
        key: named.key.clone(),
        ..Series::default()
    }
}

/// The first column past the training length, where a line separates it, unless it is the first of
/// all.
pub(super) fn past_training(setting: &Setting<'_>) -> Option<(usize, String)> {
    let longer = setting.longer().next()?;
    let at = setting.lengths.iter().position(|&len| len == longer)?;
    (at > 0).then(|| (at, "train length".into()))
}

pub(super) type Band = fn(&Estimate, &[f64]) -> Option<(f64, f64)>;

/// From the smallest to the largest seed: unlike an interval about the mean it never reaches below
/// what a loss can be.
pub(super) fn extremes(_: &Estimate, values: &[f64]) -> Option<(f64, f64)> {
    let ends = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
            (low.min(*v), high.max(*v))
        });
    (values.len() > 1).then_some(ends)
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
