//! CSV files: every number, and every summary over seeds.

use crate::error::ReportError;
use crate::sections::{baseline, methods};
use crate::spec::ReportSpec;
use records::analysis::groups::{Group, Run};
use records::analysis::learned::{InLength, Learned};
use records::analysis::point::{Absent, Point};
use records::analysis::setting::{Method, Setting};
use records::metric;
use records::record::{EvalRow, RunStatus};
use records::stats::Estimate;
use records::text::printable;
use std::collections::{BTreeMap, BTreeSet};

/// Columns of `results.csv`.
const HEAD: [&str; 18] = [
    "experiment",
    "task",
    "unit",
    "train_len",
    "method",
    "labels",
    "variant",
    "seed",
    "run_id",
    "test_len",
    "metric",
    "value",
    "n",
    "status",
    "reason",
    "encoding",
    "positions",
    "learned",
];

/// What a row says of one number, or of its absence.
#[derive(Default)]
struct Number {
    test_len: String,
    from_len: String,
    metric: String,
    value: String,
    n: String,
    status: &'static str,
    reason: String,
}

/// One row for each method, seed, variant, test length and metric, in the units of the records.
pub(crate) fn results_csv(settings: &[Setting<'_>]) -> Result<String, ReportError> {
    let mut rows = Vec::new();
    for setting in settings {
        for group in &setting.groups {
            let learned = learned_by_seed(setting, group);
            for run in &group.runs {
                rows.extend(run_rows(
                    setting,
                    group,
                    run,
                    &learned,
                    has_ranges(settings),
                ));
            }
        }
    }
    let mut head = HEAD.to_vec();
    if has_ranges(settings) {
        head.push("from_len");
    }
    csv_text("results.csv", &head, &rows)
}

/// Whether some rows were tested over a range of lengths, whose lower ends are then a column.
fn has_ranges(settings: &[Setting<'_>]) -> bool {
    settings.iter().any(|setting| !setting.ranges.is_empty())
}

/// Whether the seeds learned the task in length, by variant and seed; without those that have no
/// score there.
fn learned_by_seed<'s>(
    setting: &'s Setting<'_>,
    group: &Group<'_>,
) -> BTreeMap<(&'s str, u64), &'static str> {
    let is_own = |m: &&Method| std::ptr::eq(&setting.groups[m.group], group);
    let of = |method: &'s Method| {
        let seeds = setting.learned(method).seeds.into_iter();
        let text = |learned| if learned { "yes" } else { "no" };
        seeds.map(move |(seed, _, learned)| ((method.variant.as_str(), seed), text(learned)))
    };
    setting.methods.iter().filter(is_own).flat_map(of).collect()
}

fn run_rows(
    setting: &Setting<'_>,
    group: &Group<'_>,
    run: &Run<'_>,
    learned: &BTreeMap<(&str, u64), &str>,
    has_ranges: bool,
) -> Vec<Vec<String>> {
    let labels = run.labels.iter();
    let labels: Vec<String> = labels.map(|l| format!("{}={}", l.key, l.text)).collect();
    let labels = labels.join("; ");
    let row = |variant: &str, number: Number| {
        let mut row = vec![
            run.experiment.clone(),
            setting.task.kind.clone(),
            setting.task.unit.clone(),
            setting.task.train_len.to_string(),
            group.named.name.clone(),
            labels.clone(),
            variant.to_owned(),
            run.seed.to_string(),
            run.run_id.clone(),
            number.test_len,
            number.metric,
            number.value,
            number.n,
            number.status.to_owned(),
            number.reason,
            methods::encoding(group, variant),
            methods::positions(group, variant),
            (*learned.get(&(variant, run.seed)).unwrap_or(&"")).to_owned(),
        ];
        row.extend(has_ranges.then_some(number.from_len));
        row
    };
    let stopped = run.diverged.as_ref();
    let stopped = stopped.map_or(String::new(), |d| {
        format!("step {}: {} not finite", d.step, d.what)
    });
    let evals = run.rows();
    if evals.is_empty() {
        let status = match run.status {
            RunStatus::Diverged => "diverged",
            RunStatus::Ok => "missing",
        };
        let number = Number {
            status,
            reason: stopped,
            ..Number::default()
        };
        return vec![row("", number)];
    }
    let mut out = Vec::new();
    for (variant, eval) in evals {
        let numbers = numbers(setting, run, eval, &stopped).into_iter();
        out.extend(numbers.map(|number| row(variant, number)));
    }
    out
}

/// The numbers of one evaluation, or the reason for having none. `stopped`: where the run diverged.
fn numbers(setting: &Setting<'_>, run: &Run<'_>, eval: &EvalRow, stopped: &str) -> Vec<Number> {
    let test_len = eval.test_len.to_string();
    let from_len = eval.from_len.map_or(String::new(), |from| from.to_string());
    let reason = eval.reason.clone().unwrap_or_default();
    if let Some(absent) = Absent::of(eval.status) {
        let is_unexplained = reason.is_empty() && absent == Absent::Diverged;
        return vec![Number {
            test_len,
            from_len,
            metric: setting.lead().to_owned(),
            status: absent.name(),
            reason: if is_unexplained {
                stopped.to_owned()
            } else {
                reason
            },
            ..Number::default()
        }];
    }
    let number = |name: &String| {
        let (value, n) = metric::value(&run.task, eval, name)?;
        let is_finite = value.is_finite();
        Some(Number {
            test_len: test_len.clone(),
            from_len: from_len.clone(),
            metric: name.clone(),
            value: if is_finite {
                value.to_string()
            } else {
                String::new()
            },
            n: n.to_string(),
            status: if is_finite {
                "ok"
            } else {
                Absent::of_infinite(eval).name()
            },
            reason: if is_finite {
                reason.clone()
            } else {
                "not finite".into()
            },
        })
    };
    setting.all_metrics.iter().filter_map(number).collect()
}

/// One row for each summary over seeds: how many learned the task, how far and how much of the in-length score is kept, and
/// the differences to the baseline.
#[expect(clippy::too_many_lines, reason = "one block per kind of row")]
pub(crate) fn summaries_csv(
    settings: &[Setting<'_>],
    spec: &ReportSpec,
) -> Result<String, ReportError> {
    let head = [
        "setting",
        "method",
        "baseline",
        "quantity",
        "test_len",
        "mean",
        "half_width_95",
        "low_95",
        "high_95",
        "n",
        "runs",
        "status",
        "seeds_low_95",
        "seeds_high_95",
        "text_low_95",
        "text_high_95",
        "bound",
    ];
    let mut rows = Vec::new();
    for setting in settings {
        let base = baseline::baseline(setting, spec);
        for method in &setting.methods {
            // A reach of a method that was tested at no longer length is a lower bound.
            let reach = setting.reach(method);
            let is_bound = reach.is_some_and(|reach| reach.is_longest);
            let mut row = |baseline: &str, quantity: &str, len: String, point: &Point| {
                let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
                // Where an interval covers seeds and the text: over each alone.
                let apart = point.estimate.and_then(|e| e.apart());
                let apart = apart.map(|[seeds, text]| [seeds.0, seeds.1, text.0, text.1]);
                let part = |at: usize| number(apart.map(|ends| ends[at]));
                let absent = point.absent.iter().map(|absent| match absent {
                    Absent::Missing => "missing",
                    other => other.name(),
                });
                let absent: Vec<&str> = absent.collect();
                rows.push(vec![
                    setting.name.clone(),
                    method.name.clone(),
                    baseline.into(),
                    quantity.into(),
                    len,
                    number(point.estimate.map(|e| e.mean)),
                    number(point.estimate.and_then(|e| e.half_width)),
                    number(point.estimate.and_then(|e| e.interval).map(|i| i.0)),
                    number(point.estimate.and_then(|e| e.interval).map(|i| i.1)),
                    point.values.len().to_string(),
                    (point.runs + point.failed).to_string(),
                    if point.is_whole() || point.estimate.is_some() && absent.is_empty() {
                        "ok".into()
                    } else {
                        absent.join(" / ")
                    },
                    part(0),
                    part(1),
                    part(2),
                    part(3),
                    if quantity == "reach" && is_bound {
                        "at least"
                    } else {
                        ""
                    }
                    .into(),
                ]);
            };
            let learned = learned_share(&setting.learned(method));
            row("", "seeds_learned", String::new(), &learned);
            if setting.has_halves() {
                let quantity = if setting.is_still_learning(method) {
                    "still_learning"
                } else {
                    "half_to_all_steps"
                };
                row("", quantity, String::new(), &setting.learning(method));
            }
            if setting.in_length.is_some() && setting.longer().next().is_some() {
                row("", "reach", String::new(), &reach_point(setting, method));
                row(
                    "",
                    metric::KEPT_AREA,
                    String::new(),
                    &setting.kept_area(method),
                );
            }
            for base in base.iter().filter(|base| base.name != method.name) {
                for &len in &setting.lengths {
                    let point = setting.difference(method, base, setting.lead(), len);
                    row(
                        &base.name,
                        &format!("{} difference", setting.lead()),
                        len.to_string(),
                        &point,
                    );
                }
            }
        }
    }
    csv_text("summaries.csv", &head, &rows)
}

/// The share of the seeds with a score in length, or that diverged, that have learned the task.
fn learned_share(learned: &Learned) -> Point {
    let seeds = learned.seeds.iter();
    let values: Vec<(u64, f64)> = seeds.filter(|s| s.2).map(|s| (s.0, s.1)).collect();
    let share = values.len() as f64 / learned.seeds.len() as f64;
    let absent = match learned.seeds.len() {
        0 => Some(Absent::Missing),
        all => (2 * values.len() < all).then_some(Absent::Unconverged),
    };
    Point {
        values,
        estimate: Estimate::of_mean(&[share]),
        runs: learned.seeds.len(),
        absent: absent.into_iter().collect(),
        ..Point::default()
    }
}

/// The longest length up to which the mean score is kept: the training length where it is lost at
/// the first longer one, 0 where a variant has lost it there.
fn reach_point(setting: &Setting<'_>, method: &Method) -> Point {
    let Some(reach) = setting.reach(method) else {
        return Point {
            runs: setting.groups[method.group].runs.len(),
            absent: BTreeSet::from([match setting.converged(method) {
                InLength::Unconverged(_) => Absent::Unconverged,
                InLength::Converged | InLength::Untested => Absent::Missing,
            }]),
            ..Point::default()
        };
    };
    let kept = setting.in_length.filter(|_| reach.in_length);
    let len = reach.test_len.or(kept).unwrap_or(0) as f64;
    let (learned, all) = reach.seeds;
    Point {
        values: vec![(0, len); learned],
        estimate: Estimate::of_mean(&[len]),
        runs: learned,
        failed: all - learned,
        ..Point::default()
    }
}

/// A table as CSV, its cells safe in a spreadsheet.
pub(crate) fn csv_text(
    file: &'static str,
    head: &[&str],
    rows: &[Vec<String>],
) -> Result<String, ReportError> {
    let failed = |e: &dyn std::fmt::Display| ReportError::Render {
        file,
        reason: e.to_string(),
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(head).map_err(|e| failed(&e))?;
    for row in rows {
        writer
            .write_record(row.iter().map(safe_cell))
            .map_err(|e| failed(&e))?;
    }
    let bytes = writer.into_inner().map_err(|e| failed(&e))?;
    String::from_utf8(bytes).map_err(|e| failed(&e))
}

/// A cell that no spreadsheet runs as a formula: a quote before its start makes it text. Numbers
/// stay numbers. Text after `;` counts as a start, with what quotes stand between: where `;`
/// separates cells, a quote after a comma does not quote. Text after `,` does not: the cell is
/// quoted, so that an encoding such as `{ kind = "formula", bias = "-d" }` stays what it is.
fn safe_cell(text: impl AsRef<str>) -> String {
    let text = printable(text.as_ref());
    // A negative number begins with a sign and is not a formula.
    if text.parse::<f64>().is_ok_and(f64::is_finite) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 1);
    let mut at_start = true;
    for c in text.chars() {
        // The full-width forms count as well in some locales.
        if at_start && matches!(c, '=' | '+' | '-' | '@' | '＝' | '＋' | '－' | '＠') {
            out.push('\'');
        }
        at_start = c == ';' || at_start && (c == '"' || c.is_whitespace());
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formula_cells_are_text_and_numbers_are_numbers() {
        for text in [
            "=1+1", "+x", "-x", "@a", "-1+cmd", "-inf", "+nan", "＝1", "-",
        ] {
            assert_eq!(safe_cell(text), format!("'{text}"));
        }
        for text in [
            "-1.5",
            "+3",
            "rope",
            "1e-9",
            "",
            "model.pe=rope; task.x=-1",
            "a - b",
            "{ kind = \"formula\", bias = \"max(-d, -3)\" }",
            "a,=1",
        ] {
            assert_eq!(safe_cell(text), text);
        }
        assert_eq!(safe_cell("\t=cmd"), " '=cmd");
        assert_eq!(safe_cell("rope;=cmd|x, +1"), "rope;'=cmd|x, +1");
        assert_eq!(safe_cell("rope; \"\"=cmd"), "rope; \"\"'=cmd");
        assert_eq!(safe_cell("\u{feff}=1"), "\\u{feff}=1");
    }
}
