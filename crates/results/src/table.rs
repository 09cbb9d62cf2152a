//! The tables of a report, before any markup: what is in each cell and what the caption says.

use crate::analysis::{Absent, InLength, Method, Point, Setting, better_first, times};
use crate::groups::TRAINED;
use crate::identity::{MethodSpec, canonical_text};
use crate::metric;
use crate::record::{RunRecord, RunStatus};
use crate::report::{FIRST_METHOD, ReportSpec};
use crate::stats::{Estimate, INTERVAL, SHARE_INTERVAL};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::f64::consts::TAU;

/// A cell, already formatted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Plain text; renderers escape it.
    pub text: String,
    /// Marks the best of a column.
    pub bold: bool,
    /// The text in parts with the relative address each leads to, where there are any; the whole
    /// is `text`.
    pub links: Vec<(String, Option<String>)>,
}

impl Cell {
    /// Parts with links, joined by commas.
    pub fn linked(parts: Vec<(String, Option<String>)>) -> Self {
        let text = parts
            .iter()
            .map(|(text, _)| text.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let links = if parts.iter().any(|(_, link)| link.is_some()) {
            parts
        } else {
            Vec::new()
        };
        Self {
            text,
            bold: false,
            links,
        }
    }
}

/// A table ready for any renderer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Anchor and label.
    pub slug: String,
    /// What it shows, in a few words.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// Column headings.
    pub columns: Vec<String>,
    /// Rows, as wide as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// Whether the cells hold sentences: set as text then, not as numbers.
    pub prose: bool,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self {
            text,
            bold: false,
            links: Vec::new(),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_string().into()
    }
}

/// A mean with its interval: `4.63 ± 0.05`, `0.667 [0.09, 0.99]` for shares, or `4.63` for one
/// seed.
pub fn estimate_text(metric: &str, estimate: &Estimate) -> String {
    let decimals = metric::decimals(metric, estimate.mean);
    let mean = metric::number(estimate.mean, decimals);
    match (estimate.half_width, estimate.interval) {
        (Some(half), _) => format!("{mean} ± {}", metric::number(half, decimals)),
        (None, Some((low, high))) => {
            // Rounded outwards, so that what is printed holds the mean and all of the interval.
            let (low, high) = ((low * 100.0).floor() / 100.0, (high * 100.0).ceil() / 100.0);
            format!(
                "{mean} [{}, {}]",
                metric::number(low, 2),
                metric::number(high, 2)
            )
        }
        (None, None) => mean,
    }
}

pub(crate) fn point_text(metric: &str, point: &Point) -> String {
    match &point.estimate {
        Some(estimate) if point.is_whole() => estimate_text(metric, estimate),
        Some(estimate) => format!(
            "{} ({}/{})",
            estimate_text(metric, estimate),
            point.values.len(),
            point.runs
        ),
        None => absent_text(&point.absent),
    }
}

fn absent_text(absent: &BTreeSet<Absent>) -> String {
    let named: Vec<&str> = absent
        .iter()
        .filter(|a| **a != Absent::Missing)
        .map(|a| a.name())
        .collect();
    if named.is_empty() {
        Absent::Missing.name().into()
    } else {
        named.join(" / ")
    }
}

fn sentence(setting: &Setting<'_>, metric: &str) -> String {
    match setting.seeds() {
        (1, 1) => "Single seed: no interval, no ranking.".into(),
        _ => format!(
            "Mean {}, {}; k/N: only k of N seeds gave a number.",
            interval_text(metric),
            seeds_text(setting)
        ),
    }
}

/// How the interval of a metric is written, and what it is.
fn interval_text(metric: &str) -> String {
    if metric::is_share(metric) {
        format!("[{SHARE_INTERVAL}]")
    } else {
        format!("± {INTERVAL}")
    }
}

/// `n = 3`
pub(crate) fn seeds_text(setting: &Setting<'_>) -> String {
    match setting.seeds() {
        (a, b) if a == b => format!("n = {a}"),
        (a, b) => format!("n = {a} to {b}"),
    }
}

/// What a metric is and what guessing scores, for the caption of its table.
fn meaning(setting: &Setting<'_>, metric: &str) -> String {
    let definition = setting.definition(metric);
    let chance = metric::chance(setting.task, metric);
    let chance = chance.map_or(String::new(), |c| {
        format!(
            " Chance: {}.",
            metric::number(c, metric::decimals(metric, c))
        )
    });
    format!(" Definition: {}.{chance}", definition.trim_end_matches('.'))
}

fn direction(metric: &str) -> &'static str {
    if metric::lower_is_better(metric) {
        "lower is better"
    } else {
        "higher is better"
    }
}

fn slug(setting: &Setting<'_>, name: &str) -> String {
    if setting.slug.is_empty() {
        name.into()
    } else {
        format!("{}-{name}", setting.slug)
    }
}

/// One metric: methods by test lengths.
pub(crate) fn metric_table(setting: &Setting<'_>, metric: &str) -> Table {
    let points: Vec<Vec<Point>> = setting
        .methods
        .iter()
        .map(|m| {
            setting
                .lengths
                .iter()
                .map(|&len| setting.point(m, metric, len))
                .collect()
        })
        .collect();
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for (method, points) in setting.methods.iter().zip(&points) {
        let mut row: Vec<Cell> = vec![method.name.as_str().into()];
        row.extend(points.iter().map(|p| Cell::from(point_text(metric, p))));
        rows.push(row);
    }
    // By column: the best is marked only where no other interval touches its own.
    let mut columns: Vec<Vec<Point>> = setting.lengths.iter().map(|_| Vec::new()).collect();
    for row in points {
        for (column, point) in columns.iter_mut().zip(row) {
            column.push(point);
        }
    }
    for (at, column) in columns.iter().enumerate() {
        if let Some(best) = setting.clear_best(column, metric) {
            rows[best][at + 1].bold = !setting
                .is_extrapolation_of_unconverged(&setting.methods[best], setting.lengths[at]);
        }
    }
    let ranked = if setting.seeds().1 > 1 {
        " Bold: best of its column, its interval touching no other."
    } else {
        ""
    };
    let derived = if matches!(metric, metric::PERPLEXITY | metric::BITS_PER_BYTE) {
        " Derived from nats for each run, then averaged."
    } else {
        ""
    };
    Table {
        slug: slug(setting, metric),
        title: format!("{metric} by test length"),
        caption: format!(
            "{metric} ({}) by test length in {}; {}. {}{derived}{ranked}{}",
            direction(metric),
            setting.task.unit,
            setting.name,
            sentence(setting, metric),
            meaning(setting, metric)
        ),
        columns: std::iter::once("method".to_string())
            .chain(setting.lengths.iter().map(|l| l.to_string()))
            .collect(),
        rows,
        prose: false,
    }
}

/// How far each head looks, in length and at the longest length tested. Empty where it was not
/// recorded.
pub(crate) fn attention_tables(setting: &Setting<'_>) -> Vec<Table> {
    let heads = setting.heads();
    let mut lengths: Vec<usize> = setting
        .in_length
        .into_iter()
        .chain(setting.lengths.last().copied())
        .collect();
    lengths.dedup();
    if heads.is_empty() {
        return Vec::new();
    }
    let table = |len: usize| {
        let row = |method: &Method| -> Vec<Cell> {
            let points = heads.iter().map(|(_, metric)| {
                Cell::from(point_text(metric, &setting.point(method, metric, len)))
            });
            std::iter::once(Cell::from(method.name.as_str()))
                .chain(points)
                .collect()
        };
        Table {
            slug: slug(setting, &format!("{}-{len}", metric::ATTENTION_DISTANCE)),
            title: format!("mean attention distance by head at {len}"),
            caption: format!(
                "Mean attention distance in tokens by layer.head, counted from 1, at {} {}; {}. \
                 {} Definition: {}.",
                len,
                setting.task.unit,
                setting.name,
                sentence(setting, metric::ATTENTION_DISTANCE),
                setting
                    .definition(metric::ATTENTION_DISTANCE)
                    .trim_end_matches('.')
            ),
            columns: std::iter::once("method".to_string())
                .chain(
                    heads
                        .iter()
                        .map(|((layer, head), _)| format!("{layer}.{head}")),
                )
                .collect(),
            rows: setting.methods.iter().map(row).collect(),
            prose: false,
        }
    };
    lengths.into_iter().map(table).collect()
}

/// Reach: how far each method keeps its in-length score. None where nothing longer than training
/// was tested.
pub(crate) fn reach_table(setting: &Setting<'_>) -> Option<Table> {
    let longest = setting.longer().last()?;
    let in_length = setting.in_length?;
    let metric = setting.lead();
    let row = |method: &Method| -> Vec<Cell> {
        let reach = setting.reach(method);
        let reach_text = match &reach {
            None if matches!(setting.converged(method), InLength::Unconverged(_)) => {
                Absent::Unconverged.name().into()
            }
            None => "-".into(),
            Some(r) => match r.test_len {
                None => "none".into(),
                Some(len) if r.is_longest => format!("≥ {} ({len})", setting.times(len)),
                Some(len) => format!("{} ({len})", setting.times(len)),
            },
        };
        vec![
            method.name.as_str().into(),
            point_text(metric, &setting.point(method, metric, in_length)).into(),
            reach_text.into(),
            point_text(metric, &setting.point(method, metric, longest)).into(),
            point_text(metric::RATIO, &setting.ratio(method, metric, longest)).into(),
        ]
    };
    let rule = if metric::lower_is_better(metric) {
        format!("at most the in-length mean / {}", metric::KEPT)
    } else {
        format!("at least {} of the in-length mean", metric::KEPT)
    };
    Some(Table {
        slug: slug(setting, "reach"),
        title: "Reach".into(),
        caption: format!(
            "Reach: the longest test length up to which every tested length keeps the mean \
             {metric} {rule}, as a multiple of the training length ({}). ≥: nothing longer was \
             tested; none: lost at the first longer length; -: no in-length score. {UNCONVERGED} \
             Ratio: {metric} at {longest} over {metric} at {in_length}, averaged over runs{}. {}{}",
            setting.unit_count(setting.task.train_len),
            if metric::is_share(metric) && setting.seeds().1 > 1 {
                format!(" (± {INTERVAL})")
            } else {
                String::new()
            },
            sentence(setting, metric),
            meaning(setting, metric)
        ),
        columns: vec![
            "method".into(),
            format!("{metric} at {in_length}"),
            "reach".into(),
            format!("{metric} at {longest}"),
            format!("ratio {longest}/{in_length}"),
        ],
        rows: setting.methods.iter().map(row).collect(),
        prose: false,
    })
}

/// What `not converged` in a cell means.
const UNCONVERGED: &str =
    "Not converged: the task was not learned in length, so nothing is said about longer lengths.";

/// How far, and how much of, the in-length score is kept, seed by seed. None where nothing longer
/// than training was tested.
pub(crate) fn extrapolation_table(setting: &Setting<'_>) -> Option<Table> {
    let longest = setting.longer().last()?;
    let in_length = setting.in_length?;
    let metric = setting.lead();
    let row = |method: &Method| -> Vec<Cell> {
        let (kept_to, area) = (setting.kept_to(method), setting.kept_area(method));
        let in_times = |point: &Point| {
            let estimate = point.estimate.filter(|_| !point.values.is_empty())?;
            let all_the_way =
                point.is_whole() && point.values.iter().all(|v| v.1 == longest as f64);
            Some(format!(
                "{}{}",
                if all_the_way { "≥ " } else { "" },
                times(estimate.mean / setting.task.train_len.max(1) as f64)
            ))
        };
        vec![
            method.name.as_str().into(),
            point_text(metric::KEPT_TO, &kept_to).into(),
            in_times(&kept_to).unwrap_or_else(|| "-".into()).into(),
            point_text(metric::KEPT_AREA, &area).into(),
            format!("{}/{}", kept_to.values.len(), kept_to.runs).into(),
        ]
    };
    let share = if metric::lower_is_better(metric) {
        format!("{metric} at {in_length} over {metric} there")
    } else {
        format!("{metric} there over {metric} at {in_length}")
    };
    Some(Table {
        slug: slug(setting, "extrapolation"),
        title: "Extrapolation".into(),
        caption: format!(
            "Kept to: the longest test length, of those from {in_length} to {longest} {}, at \
             which a seed has at least {} of its in-length score, even if a shorter one had less; \
             mean over seeds, also as a multiple of the training length (≥: all seeds at the \
             longest one). Area: the share of the in-length score ({share}), averaged over log2 \
             of the length from {in_length} to {longest} by the trapezoid rule for each seed; 1 \
             keeps all of it. Seeds: with an in-length score, of all. {UNCONVERGED} {}{}",
            setting.task.unit,
            metric::KEPT,
            sentence(setting, metric::KEPT_TO),
            meaning(setting, metric)
        ),
        columns: vec![
            "method".into(),
            format!("kept to ({})", setting.task.unit),
            "of training".into(),
            "area".into(),
            "seeds".into(),
        ],
        rows: setting.methods.iter().map(row).collect(),
        prose: false,
    })
}

/// The method that others are compared with in this setting, if it is there.
pub(crate) fn baseline<'s>(setting: &'s Setting<'_>, spec: &ReportSpec) -> Option<&'s Method> {
    let asked = spec.baseline.as_deref()?;
    setting
        .method(asked)
        .or_else(|| setting.methods.first().filter(|_| asked == FIRST_METHOD))
}

/// Differences to a baseline, paired by seed.
pub(crate) fn baseline_table(setting: &Setting<'_>, base: &Method) -> Table {
    let metric = setting.lead();
    let others: Vec<&Method> = setting
        .methods
        .iter()
        .filter(|m| m.name != base.name)
        .collect();
    let mut pairs = (usize::MAX, 0);
    let mut rows = Vec::new();
    for method in others {
        let mut row: Vec<Cell> = vec![method.name.as_str().into()];
        for &len in &setting.lengths {
            let point = setting.difference(method, base, metric, len);
            pairs = (pairs.0.min(point.runs), pairs.1.max(point.runs));
            row.push(Cell {
                bold: side(metric, &point).is_some(),
                ..Cell::from(difference_text(metric, &point))
            });
        }
        rows.push(row);
    }
    let n = match pairs {
        (low, high) if low >= high => format!("n = {high}"),
        (low, high) => format!("n = {low} to {high}"),
    };
    Table {
        slug: slug(setting, "difference"),
        title: format!("{metric}: difference to {}", base.name),
        caption: format!(
            "{metric} minus that of {}, paired by seed ({}: a negative difference is {}). Mean \
             {}, {n} pairs; k/N: only k of N pairs gave a number. Bold: the interval excludes 0. \
             - : no seed in common. {UNCONVERGED}{}",
            base.name,
            direction(metric),
            if metric::lower_is_better(metric) {
                "an improvement"
            } else {
                "a loss"
            },
            interval_text(metric),
            meaning(setting, metric)
        ),
        columns: std::iter::once("method".to_string())
            .chain(setting.lengths.iter().map(|l| l.to_string()))
            .collect(),
        rows,
        prose: false,
    }
}

/// `+0.12 ± 0.05`: a difference above 0 has its sign.
fn difference_text(metric: &str, difference: &Point) -> String {
    let plain = point_text(metric, difference);
    // What rounds to zero has no sign.
    let is_zero = plain
        .split(' ')
        .next()
        .is_some_and(|m| m.parse() == Ok(0.0));
    let is_more = difference.estimate.is_some_and(|e| e.mean > 0.0) && !is_zero;
    if is_more { format!("+{plain}") } else { plain }
}

/// Whether the interval of a difference lies on the better (`Less`) or on the worse side of 0.
fn side(metric: &str, difference: &Point) -> Option<Ordering> {
    let (low, high) = difference.estimate?.interval?;
    let excludes_0 = low > 0.0 || high < 0.0;
    excludes_0.then(|| better_first(metric, low, 0.0))
}

/// One sentence on the differences at the longest length.
pub(crate) fn baseline_finding(setting: &Setting<'_>, base: &Method) -> Option<String> {
    let metric = setting.lead();
    let len = *setting.lengths.last()?;
    let mut lists: [(&str, Vec<String>); 5] = [
        "better",
        "worse",
        "no difference shown",
        "one seed: no test",
        "no number",
    ]
    .map(|name| (name, Vec::new()));
    for method in setting.methods.iter().filter(|m| m.name != base.name) {
        let point = setting.difference(method, base, metric, len);
        let at = match (side(metric, &point), &point.estimate) {
            (Some(Ordering::Less), _) => 0,
            (Some(_), _) => 1,
            (None, Some(estimate)) if estimate.interval.is_some() => 2,
            (None, Some(_)) => 3,
            (None, None) => 4,
        };
        let text = difference_text(metric, &point);
        lists[at].1.push(match point.values.len() {
            0 if text == Absent::Missing.name() => method.name.clone(),
            0 | 1 => format!("{} ({text})", method.name),
            n => format!("{} ({text}, n = {n})", method.name),
        });
    }
    let parts: Vec<String> = lists
        .iter()
        .filter(|l| !l.1.is_empty())
        .map(|(name, m)| format!("{name}: {}", list(m, 8)))
        .collect();
    let what = format!(
        "Paired by seed, {metric} minus that of {} at {len}",
        base.name
    );
    (!parts.is_empty()).then(|| format!("{what}: {}.", parts.join("; ")))
}

/// Sizes, training and what became of the runs.
pub(crate) fn facts_table(setting: &Setting<'_>) -> Table {
    let one = |values: BTreeSet<u64>| {
        let texts: Vec<String> = values.iter().map(|v| thousands(*v)).collect();
        texts.join(" / ")
    };
    let rows = setting
        .groups
        .iter()
        .map(|group| {
            let runs = &group.runs;
            let losses: Vec<f64> = runs
                .iter()
                .filter_map(|r| r.train.final_loss_nats)
                .filter(|l| l.is_finite())
                .collect();
            let loss = Estimate::of_mean(&losses)
                .map_or("-".into(), |e| estimate_text(metric::LOSS_NATS, &e));
            let ok = runs.iter().filter(|r| r.status == RunStatus::Ok).count();
            let mut status = format!("{ok} ok");
            if ok < runs.len() {
                status = format!("{status}, {} diverged", runs.len() - ok);
            }
            let seeds: Vec<String> = runs.iter().map(|r| r.seed.to_string()).collect();
            vec![
                group.name.as_str().into(),
                one(runs.iter().map(|r| r.model.parameters).collect()).into(),
                one(runs.iter().map(|r| r.model.encoding_parameters).collect()).into(),
                loss.into(),
                list(&seeds, 8).into(),
                status.into(),
            ]
        })
        .collect();
    Table {
        slug: slug(setting, "runs"),
        title: "Runs".into(),
        caption: format!(
            "Runs behind the tables; {}. Final training loss: nats per counted token over the \
             last tenth of the steps. {}{}",
            setting.name,
            sentence(setting, metric::LOSS_NATS),
            metric::chance(setting.task, metric::LOSS_NATS)
                .map_or(String::new(), |c| format!(" Chance: {c:.3}.")),
        ),
        columns: [
            "method",
            "parameters",
            "of the encoding",
            "final training loss",
            "seeds",
            "runs",
        ]
        .map(String::from)
        .to_vec(),
        rows,
        prose: false,
    }
}

/// Methods that have not learned their task in length, and how that shows.
pub(crate) fn unconverged(setting: &Setting<'_>) -> Vec<String> {
    let each = setting
        .methods
        .iter()
        .filter_map(|method| match setting.converged(method) {
            InLength::Unconverged(why) => Some(format!("{}: {}: {why}", setting.name, method.name)),
            InLength::Converged | InLength::Untested => None,
        });
    each.collect()
}

/// `1, 2, 3` up to a limit, then a count.
pub(crate) fn list(items: &[String], most: usize) -> String {
    if items.len() <= most {
        return items.join(", ");
    }
    format!("{}, ... ({} in all)", items[..most].join(", "), items.len())
}

pub(crate) fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Methods that differ in the base of the rotary angles alone.
pub(crate) struct BaseSweep<'s> {
    /// The other labels and the variant; empty where there are none.
    pub name: String,
    /// Base and method, ascending.
    pub rows: Vec<(f64, &'s Method)>,
    pub geometry: Vec<Option<Geometry>>,
}

/// Wavelengths of the rotary pairs, before any scaling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Geometry {
    pub longest_wavelength: f64,
    pub pairs_beyond: usize,
    pub pairs: usize,
}

impl Geometry {
    /// Pair i of d/2 turns once every 2 pi base^(2i/d) tokens.
    pub(crate) fn new(base: f64, dim: usize, train_tokens: f64) -> Option<Self> {
        if dim < 2 || !dim.is_multiple_of(2) || !base.is_finite() || base <= 0.0 {
            return None;
        }
        let wavelength = |pair: usize| TAU * base.powf(2.0 * pair as f64 / dim as f64);
        let pairs = dim / 2;
        Some(Self {
            longest_wavelength: wavelength(pairs - 1),
            pairs_beyond: (0..pairs).filter(|&i| wavelength(i) > train_tokens).count(),
            pairs,
        })
    }
}

/// One text for specs that agree in all but the base. Variants hold the base again, so only their
/// names count.
fn without_base(spec: &MethodSpec, key: &str) -> String {
    let mut spec = Value::Object(spec.clone());
    if let Some(Value::Object(eval)) = spec.get_mut("eval") {
        eval.shift_remove("variants");
    }
    let (parents, last) = key.rsplit_once('.').unwrap_or(("", key));
    let parent = parents
        .split('.')
        .filter(|part| !part.is_empty())
        .try_fold(&mut spec, |value, part| value.get_mut(part));
    if let Some(Value::Object(parent)) = parent {
        parent.shift_remove(last);
    }
    spec.as_object().map(canonical_text).unwrap_or_default()
}

fn base_label(run: &RunRecord) -> Option<(&str, f64)> {
    run.labels
        .iter()
        .filter(|l| l.key.ends_with(".base"))
        .find_map(|l| {
            Some((
                l.key.as_str(),
                l.value.as_f64().or_else(|| l.text.parse().ok())?,
            ))
        })
}

/// Sweeps over an axis `*.base` with at least two values: methods that differ in nothing else.
pub(crate) fn base_sweeps<'s>(setting: &'s Setting<'_>) -> Vec<BaseSweep<'s>> {
    let mut sweeps: Vec<((String, &str), BaseSweep<'s>)> = Vec::new();
    for method in &setting.methods {
        let group = &setting.groups[method.group];
        let run: &RunRecord = &group.runs[0];
        let Some((key, base)) = base_label(run) else {
            continue;
        };
        let identity = (without_base(&group.spec, key), method.variant.as_str());
        let at = sweeps
            .iter()
            .position(|(id, sweep)| *id == identity && sweep.rows.iter().all(|(b, _)| *b != base));
        let at = at.unwrap_or_else(|| {
            let others = run
                .labels
                .iter()
                .filter(|l| l.key != key)
                .map(|l| l.text.as_str());
            let others = others.collect::<Vec<_>>().join(", ");
            let variant = (method.variant != TRAINED).then(|| method.variant.clone());
            let name = Some(others)
                .filter(|text| !text.is_empty())
                .into_iter()
                .chain(variant)
                .collect::<Vec<_>>()
                .join(" + ");
            sweeps.push((
                identity,
                BaseSweep {
                    name,
                    rows: Vec::new(),
                    geometry: Vec::new(),
                },
            ));
            sweeps.len() - 1
        });
        sweeps[at].1.rows.push((base, method));
    }
    let mut out: Vec<BaseSweep<'s>> = sweeps
        .into_iter()
        .map(|(_, sweep)| sweep)
        .filter(|s| s.rows.len() > 1)
        .collect();
    for sweep in &mut out {
        sweep.rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        sweep.geometry = sweep
            .rows
            .iter()
            .map(|(base, method)| geometry(&setting.groups[method.group].runs[0], *base))
            .collect();
    }
    out
}

fn geometry(run: &RunRecord, base: f64) -> Option<Geometry> {
    let (key, _) = base_label(run)?;
    let number = |path: &str| {
        let mut value = run.spec.get(path.split('.').next()?)?;
        for part in path.split('.').skip(1) {
            value = value.get(part)?;
        }
        Value::as_u64(value)
    };
    let parent = key.strip_suffix(".base")?;
    let dim = number(&format!("{parent}.rotary_dim"))
        .or_else(|| number("model.pe.rotary_dim"))
        .or_else(|| number("model.head_dim"))?;
    let tokens = number("train.seq_len").unwrap_or(run.task.train_len as u64);
    Geometry::new(base, usize::try_from(dim).ok()?, tokens as f64)
}

/// The ablation of the base: one row per base.
pub(crate) fn base_table(setting: &Setting<'_>, sweep: &BaseSweep<'_>, slug_name: &str) -> Table {
    let metric = setting.lead();
    let rows =
        sweep
            .rows
            .iter()
            .zip(&sweep.geometry)
            .map(|((base, method), geometry)| {
                let mut row: Vec<Cell> = vec![base_text(*base).into()];
                row.push(
                    geometry
                        .map_or("-".into(), |g| {
                            thousands(g.longest_wavelength.round() as u64)
                        })
                        .into(),
                );
                row.push(
                    geometry
                        .map_or("-".into(), |g| format!("{} of {}", g.pairs_beyond, g.pairs))
                        .into(),
                );
                row.extend(setting.lengths.iter().map(|&len| {
                    Cell::from(point_text(metric, &setting.point(method, metric, len)))
                }));
                row
            });
    let of = if sweep.name.is_empty() {
        String::new()
    } else {
        format!(" of {}", sweep.name)
    };
    let mut columns: Vec<String> = ["base", "longest wavelength", "pairs beyond training"]
        .map(String::from)
        .to_vec();
    columns.extend(setting.lengths.iter().map(|l| l.to_string()));
    Table {
        slug: slug(setting, slug_name),
        title: format!("theta_base{of}"),
        caption: format!(
            "{metric} ({}) by theta_base and test length{of}. Longest wavelength: 2π \
             base^((d-2)/d) tokens for d rotated dimensions, before any scaling; pairs beyond \
             training: rotary pairs whose wavelength exceeds the training length in tokens. {}{}",
            direction(metric),
            sentence(setting, metric),
            meaning(setting, metric)
        ),
        columns,
        rows: rows.collect(),
        prose: false,
    }
}

pub(crate) fn base_text(base: f64) -> String {
    if base.fract() == 0.0 && base.abs() < 1e15 {
        format!("{base:.0}")
    } else {
        base.to_string()
    }
}

/// One sentence on what the numbers of a setting say.
pub(crate) fn finding(setting: &Setting<'_>) -> String {
    let metric = setting.lead();
    let Some(longest) = setting.longer().last() else {
        return format!(
            "{}: no test length exceeds the training length, so there is no extrapolation to \
             report.",
            setting.name
        );
    };
    let train = setting.task.train_len.max(1) as f64;
    let mut reached: Vec<(String, usize)> = Vec::new();
    for method in &setting.methods {
        if let Some(reach) = setting.reach(method) {
            let name = match reach.seeds {
                (k, n) if k < n => format!("{} ({k} of {n} seeds)", method.name),
                _ => method.name.clone(),
            };
            reached.push((name, reach.test_len.unwrap_or(0)));
        }
    }
    reached.sort_by_key(|r| std::cmp::Reverse(r.1));
    let kept = |whose: &str| match metric::lower_is_better(metric) {
        true => format!(
            "{whose} {metric} at most {:.0} % above the in-length value",
            100.0 / metric::KEPT - 100.0
        ),
        false => format!(
            "at least {:.0} % of {whose} in-length {metric}",
            100.0 * metric::KEPT
        ),
    };
    let first = match reached.first() {
        None if !setting.lengths.contains(&setting.task.train_len) => {
            format!("the training length itself was not tested, so no {metric} is known to be kept")
        }
        None => match untested(setting) {
            Some(why) => format!(
                "no method has a score in length ({why}), so there is no extrapolation to report"
            ),
            None => "no method has learned the task in length, so there is no extrapolation to \
                     report"
                .into(),
        },
        Some((_, 0)) => format!("no method keeps {} past the training length", kept("its")),
        Some((_, best)) => {
            let best = *best;
            let leaders: Vec<String> = reached
                .iter()
                .filter(|r| r.1 == best)
                .map(|r| r.0.clone())
                .collect();
            let next = reached.iter().find(|r| r.1 < best);
            let to = if best == longest {
                format!(
                    "up to the longest tested length, {} ({} the training length)",
                    setting.unit_count(best),
                    times(best as f64 / train)
                )
            } else {
                format!(
                    "up to {} ({} the training length)",
                    setting.unit_count(best),
                    times(best as f64 / train)
                )
            };
            let tail = match next {
                None => String::new(),
                Some((_, 0)) => "; no other method does past the training length".into(),
                Some((m, len)) => {
                    format!("; the next, {}, up to {}", m, times(*len as f64 / train))
                }
            };
            let (verb, whose) = match leaders.len() {
                1 => ("keeps", "its"),
                n if n == setting.methods.len() => ("all keep", "their"),
                _ => ("each keep", "their"),
            };
            format!("{} {verb} {} {to}{tail}", and(&leaders), kept(whose))
        }
    };
    format!(
        "{}: {first}{}{}.",
        setting.name,
        best(setting, longest),
        another_metric(setting)
    )
}

/// Which method is best at a length past training, and how sure that is. None is called best where
/// there is nothing to choose from, where all are at chance, and where the first ones print the
/// same mean.
fn best(setting: &Setting<'_>, len: usize) -> String {
    let metric = setting.lead();
    // Nothing is said of methods that have not converged, so they are no rivals either.
    let point = |m: &Method| setting.score(m, metric, len);
    let points: Vec<Point> = setting.methods.iter().map(point).collect();
    let mut rows: Vec<(usize, Estimate)> = points
        .iter()
        .enumerate()
        .filter_map(|(i, p)| Some((i, p.estimate?)))
        .collect();
    rows.sort_by(|a, b| better_first(metric, a.1.mean, b.1.mean));
    let name = |at: usize| setting.methods[at].name.clone();
    let text = |at: usize| point_text(metric, &points[at]);
    let mean = |e: &Estimate| metric::number(e.mean, metric::decimals(metric, e.mean));
    match rows[..] {
        _ if setting.methods.len() < 2 => return String::new(),
        [] => return String::new(),
        [(only, _)] => {
            return format!(
                "; at {len} there is no other method to compare with {} ({})",
                name(only),
                text(only)
            );
        }
        _ => {}
    }
    if rows.iter().all(|(_, e)| setting.is_at_chance(metric, e)) {
        return match metric::chance(setting.task, metric) {
            None => format!(
                "; at {len} every {metric} is {}",
                metric::number(0.0, metric::decimals(metric, 0.0))
            ),
            Some(c) => format!(
                "; at {len} no method is shown to have a better {metric} than chance ({})",
                metric::number(c, metric::decimals(metric, c))
            ),
        };
    }
    let (first, estimate) = rows[0];
    let extreme = if metric::lower_is_better(metric) {
        "lowest"
    } else {
        "highest"
    };
    let tied: Vec<String> = rows
        .iter()
        .take_while(|(_, e)| mean(e) == mean(&estimate))
        .map(|(at, _)| name(*at))
        .collect();
    if tied.len() > 1 {
        return format!(
            "; at {len} the {extreme} {metric}, {}, is that of {}",
            mean(&estimate),
            and(&tied)
        );
    }
    let rivals: Vec<&(usize, Estimate)> = rows[1..]
        .iter()
        .filter(|(_, e)| !estimate.is_separated_from(e))
        .collect();
    let (sign, why) = if estimate.interval.is_none() {
        (extreme, "one seed: no ranking".into())
    } else if !points[first].is_whole() {
        (
            extreme,
            "not all of its seeds gave a number: no ranking".into(),
        )
    } else if setting.is_at_chance(metric, &estimate) {
        (extreme, "its interval holds chance".into())
    } else if let Some((rival, _)) = rivals.iter().find(|(_, e)| e.interval.is_none()) {
        (
            extreme,
            format!("{} has one seed: no ranking", name(*rival)),
        )
    } else if rivals.is_empty() {
        ("best", "its interval touches no other".into())
    } else {
        let names: Vec<String> = rivals.iter().map(|(at, _)| name(*at)).collect();
        (
            extreme,
            format!(
                "its interval touches {} of {}",
                if names.len() > 1 { "those" } else { "that" },
                and(&names)
            ),
        )
    };
    format!(
        "; at {len} the {sign} {metric} is that of {} ({}; {why})",
        name(first),
        text(first)
    )
}

/// Where no method does better than chance in length by the leading metric: another share that
/// tells the methods apart there.
fn another_metric(setting: &Setting<'_>) -> String {
    let (lead, Some(len)) = (setting.lead(), setting.in_length) else {
        return String::new();
    };
    let points = |metric: &str| -> Vec<(&str, Estimate)> {
        let methods = setting.methods.iter();
        methods
            .filter_map(|m| Some((m.name.as_str(), setting.point(m, metric, len).estimate?)))
            .collect()
    };
    let leading = points(lead);
    if leading.len() < 2 || !leading.iter().all(|(_, e)| setting.is_at_chance(lead, e)) {
        return String::new();
    }
    for metric in setting
        .metrics
        .iter()
        .filter(|m| *m != lead && metric::is_share(m))
    {
        let mut rows = points(metric);
        rows.sort_by(|a, b| better_first(metric, a.1.mean, b.1.mean));
        let ([first, .., last], text) = (&rows[..], |row: &(&str, Estimate)| {
            format!("{} ({})", row.0, estimate_text(metric, &row.1))
        }) else {
            continue;
        };
        let is_one_seed = first.1.interval.is_none() && first.1.mean > last.1.mean;
        if is_one_seed || first.1.is_separated_from(&last.1) {
            let how = if is_one_seed {
                " (one seed: no test)"
            } else {
                ""
            };
            return format!(
                "; {lead} at {len} tells no methods apart, {metric} there does{how}: from {} down \
                 to {}",
                text(first),
                text(last)
            );
        }
    }
    String::new()
}

/// Why no method has a score in length; none where one has.
fn untested(setting: &Setting<'_>) -> Option<String> {
    if setting
        .methods
        .iter()
        .any(|m| setting.converged(m) != InLength::Untested)
    {
        return None;
    }
    let len = setting.in_length?;
    Some(absent_text(
        &setting
            .methods
            .iter()
            .flat_map(|m| setting.point(m, setting.lead(), len).absent)
            .collect(),
    ))
}

fn and(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        _ if names.len() > 6 => format!("{} and {} others", names[..5].join(", "), names.len() - 5),
        [front @ .., last] => format!("{} and {last}", front.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wavelengths() {
        let g = Geometry::new(10_000.0, 16, 64.0).unwrap();
        // 2 pi 10000^(14/16) = 19869.18; pairs 0..8 at 6.28, 19.9, 62.8, 198.7, ...: five exceed
        // 64.
        assert!((g.longest_wavelength - 19_869.18).abs() < 0.01);
        assert_eq!((g.pairs_beyond, g.pairs), (5, 8));
        assert_eq!(Geometry::new(10_000.0, 0, 64.0), None);
        assert_eq!(Geometry::new(-1.0, 16, 64.0), None);
    }

    #[test]
    fn grouping_digits() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }
}
