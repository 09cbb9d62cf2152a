//! Differences to a baseline, paired by seed.

use crate::captions::{UNCONVERGED, definition, difference, direction, interval_text, slug};
use crate::document::{Cell, Mark, Table};
use crate::spec::{FIRST_METHOD, ReportSpec};
use records::analysis::point::{Absent, Point, difference_point_parts};
use records::analysis::setting::{Method, Setting};
use records::metric::{self, better_first};
use records::stats::{Scale, TEXT_INTERVAL};
use records::text::list;
use std::cmp::Ordering;

/// The method that others are compared with in this setting, if it has that method.
pub(crate) fn baseline<'s>(setting: &'s Setting<'_>, spec: &ReportSpec) -> Option<&'s Method> {
    let asked = spec.baseline.as_deref()?;
    let first = setting.methods.first().filter(|_| asked == FIRST_METHOD);
    setting.method(asked).or(first)
}

/// One table, or none without a baseline.
pub(super) fn tables(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Table> {
    let base = baseline(setting, spec);
    base.map(|base| table(setting, base)).into_iter().collect()
}

#[expect(clippy::too_many_lines, reason = "one table, field by field")]
fn table(setting: &Setting<'_>, base: &Method) -> Table {
    let metric = setting.lead();
    let mut pairs = (usize::MAX, 0);
    let mut rows = Vec::new();
    let mut is_over_text = false;
    for method in setting.methods.iter().filter(|m| m.title != base.title) {
        let mut row: Vec<Cell> = vec![method.title.as_str().into()];
        for &len in &setting.lengths {
            let point = setting.difference(method, base, metric, len);
            is_over_text |= point.estimate.is_some_and(|e| e.apart().is_some());
            pairs = (pairs.0.min(point.runs), pairs.1.max(point.runs));
            let mark = match side(metric, &point) {
                Some(_) => Mark::Best,
                None => Mark::None,
            };
            row.push(Cell {
                mark,
                ..Cell::number(difference_point_parts(metric, &point))
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
        title: format!("{metric}: difference to {}", base.title),
        caption: format!(
            "{}, paired by seed ({}: a negative difference is {}); {n} pairs. Bold: the interval \
             excludes 0.",
            difference(metric, &base.title),
            direction(metric),
            if metric::lower_is_better(metric) {
                "an improvement"
            } else {
                "a loss"
            },
        ),
        notes: format!(
            "{} {}; k/N: only k of N pairs have a number. - : no seed in common. {UNCONVERGED}{}",
            match metric::scale(metric) {
                Scale::Linear => "Mean",
                Scale::Log => "exp of the mean difference in nats, less 1,",
            },
            interval_text(metric),
            if is_over_text {
                format!(
                    " Where the losses of blocks of the text are recorded: {TEXT_INTERVAL}; \
                     summaries.csv has both parts."
                )
            } else {
                String::new()
            }
        ),
        definition: definition(setting, metric),
        columns: std::iter::once("method".to_string())
            .chain(setting.headings())
            .collect(),
        rows,
        ..Table::default()
    }
}

/// `+0.12 ± 0.05`: a difference above 0 has its sign.
pub(super) fn difference_text(metric: &str, difference: &Point) -> String {
    let (mean, interval) = difference_point_parts(metric, difference);
    mean + &interval
}

/// Whether the interval of a difference lies on the better (`Less`) or on the worse side of 0.
pub(super) fn side(metric: &str, difference: &Point) -> Option<Ordering> {
    let (low, high) = difference.estimate?.interval?;
    let excludes_0 = low > 0.0 || high < 0.0;
    // Both ends are on one side of 0, so either one tells which.
    excludes_0.then(|| better_first(metric, low, 0.0))
}

/// Why a baseline is compared with nothing at a length.
fn without_number(setting: &Setting<'_>, base: &Method, len: usize) -> String {
    let absent = setting.score(base, setting.lead(), len).absent;
    match absent.contains(&Absent::Unconverged) {
        true => "has not learned the task in length: no score past it is compared".to_owned(),
        false => format!("has no number at {len}"),
    }
}

/// One sentence on the differences at the longest length that the baseline has a number for.
pub(crate) fn finding(setting: &Setting<'_>, base: &Method) -> Option<String> {
    let metric = setting.lead();
    let has_number = |len: &&usize| setting.score(base, metric, **len).estimate.is_some();
    let longest = setting.lengths.last()?;
    let len = *setting.lengths.iter().rfind(has_number).unwrap_or(longest);
    let mut lists: [(&str, Vec<String>); 6] = [
        "better",
        "worse",
        "no difference shown",
        "one seed: no test",
        "seeds without a number: no test",
        "no number",
    ]
    .map(|name| (name, Vec::new()));
    for method in setting.methods.iter().filter(|m| m.title != base.title) {
        let point = setting.difference(method, base, metric, len);
        // A method that lost seeds there is not better by its others.
        let lost = |of: &Method| {
            let score = setting.score(of, metric, len);
            score.absent.iter().any(|absent| absent.is_lost())
        };
        let at = match (side(metric, &point), &point.estimate) {
            (Some(Ordering::Less), _) if !lost(method) => 0,
            (Some(Ordering::Greater), _) if !lost(base) => 1,
            (Some(_), _) => 4,
            (None, Some(estimate)) if estimate.interval.is_some() => 2,
            (None, Some(_)) => 3,
            (None, None) => 5,
        };
        let text = difference_text(metric, &point);
        lists[at].1.push(match point.values.len() {
            0 if point.absent.iter().all(|a| *a == Absent::Missing) => method.title.clone(),
            0 | 1 => format!("{} ({text})", method.title),
            n => format!("{} ({text}, n = {n})", method.title),
        });
    }
    let parts: Vec<String> = lists
        .iter()
        .filter(|l| !l.1.is_empty())
        .map(|(name, m)| format!("{name}: {}", list(m, 8)))
        .collect();
    let what = format!(
        "Paired by seed, {} at {}",
        difference(metric, &base.title),
        setting.length(len)
    );
    let end = match len == *longest {
        true => String::new(),
        false => format!(
            " {} {}.",
            base.title,
            without_number(setting, base, *longest)
        ),
    };
    (!parts.is_empty()).then(|| format!("{what}: {}.{end}", parts.join("; ")))
}
