//! The runs of a setting as data that the script of a page draws when a run is opened.
//!
//! ```text
//! { "texts": ["...", ...],                    what occurs more than once
//!   "runs": [{ "id": anchor, "name": text, "facts": [[name, text], ...],
//!              "scores": [[heading, ...], [variant, score, ...], ...],
//!              "curves": [[name, name of x, low x, high x, low y, high y, points], ...],
//!              "command": [text, ...], "link": address }, ...] }
//! ```
//!
//! An anchor `run-ID` stands for the fact `run`. A text is a string, or the index of one in `texts`. Points are letters of [`LEVELS`]: the heights
//! of points at equal distances.

use super::escape;
use crate::document::{RunCurve, RunView};
use records::metric;
use records::text::printable;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// From the bottom of a curve to its top. A curve is 70 pixels high, so a letter is about one.
const LEVELS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Texts up to this long are as short as an index.
const SHORT: usize = 3;

/// The data, or none without runs.
pub(super) fn data(views: &[RunView]) -> Option<String> {
    if views.is_empty() {
        return None;
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for view in views {
        each_text(view, &mut |text| *counts.entry(text).or_default() += 1);
    }
    counts.retain(|text, count| *count > 1 && text.len() > SHORT);
    let texts: Vec<String> = counts.into_keys().collect();
    let index: BTreeMap<&str, usize> = texts.iter().map(String::as_str).zip(0..).collect();
    let text = |text: &str| -> Value {
        let text = printable(text);
        match index.get(text.as_str()) {
            Some(at) => json!(at),
            None => json!(text),
        }
    };
    let runs: Vec<Value> = views.iter().map(|view| run(view, &text)).collect();
    Some(escape::script_text(
        &json!({ "texts": texts, "runs": runs }),
    ))
}

/// Every text of a run that others may have too.
fn each_text(view: &RunView, take: &mut dyn FnMut(String)) {
    let mut take = |text: &str| take(printable(text));
    for (name, text) in &view.facts {
        take(name);
        take(text);
    }
    let scores = view.scores.iter();
    let cells = scores.flat_map(|table| table.rows.iter().flatten());
    cells.for_each(|cell| take(&cell.text));
    let columns = view.scores.iter().flat_map(|table| &table.columns);
    columns.for_each(|text| take(text));
    for curve in &view.curves {
        take(&curve.name);
        take(&curve.x);
    }
    view.command.iter().for_each(|text| take(text));
}

fn run(view: &RunView, text: &dyn Fn(&str) -> Value) -> Value {
    // An anchor that is the run's id says it.
    let is_said = |name: &str, text: &str| name == "run" && view.slug == format!("run-{text}");
    let facts = view.facts.iter().filter(|(n, t)| !is_said(n, t));
    let facts: Vec<Value> = facts.map(|(n, t)| json!([text(n), text(t)])).collect();
    let mut out = Map::new();
    out.insert("id".into(), json!(view.slug));
    out.insert("name".into(), json!(printable(&view.name)));
    out.insert("facts".into(), json!(facts));
    if let Some(scores) = &view.scores {
        let head: Vec<Value> = scores.columns.iter().map(|c| text(c)).collect();
        let rows = scores.rows.iter();
        let rows = rows.map(|row| row.iter().map(|cell| text(&cell.text)).collect());
        let all: Vec<Vec<Value>> = std::iter::once(head).chain(rows).collect();
        out.insert("scores".into(), json!(all));
    }
    let curves: Vec<Value> = view.curves.iter().map(|c| curve(c, text)).collect();
    if !curves.is_empty() {
        out.insert("curves".into(), json!(curves));
    }
    if !view.command.is_empty() {
        let command: Vec<Value> = view.command.iter().map(|part| text(part)).collect();
        out.insert("command".into(), json!(command));
    }
    if let Some(link) = &view.link {
        out.insert("link".into(), json!(escape::address(link)));
    }
    Value::Object(out)
}

/// A curve as letters. `curve`: its points are finite and at least two, by ascending x.
fn curve(curve: &RunCurve, text: &dyn Fn(&str) -> Value) -> Value {
    let range = |of: fn(&(f64, f64)) -> f64| {
        let ends = (f64::INFINITY, f64::NEG_INFINITY);
        let values = curve.points.iter().map(of);
        values.fold(ends, |(low, high), v| (low.min(v), high.max(v)))
    };
    let ((first, last), (low, high)) = (range(|p| p.0), range(|p| p.1));
    let count = curve.points.len();
    let heights = (0..count).map(|at| {
        let x = first + (last - first) * at as f64 / (count - 1).max(1) as f64;
        let share = match height(&curve.points, x) - low {
            above if high > low => above / (high - low),
            _ => 0.5,
        };
        let level = (share * (LEVELS.len() - 1) as f64).round();
        // Within the range whatever rounding does; a share is never below 0.
        char::from(LEVELS[(level as usize).min(LEVELS.len() - 1)])
    });
    let count_text = |v: f64| metric::number(v, usize::from(v.fract() != 0.0));
    let value_text = |v: f64| metric::number(v, metric::significant(v));
    json!([
        text(&curve.name),
        text(&curve.x),
        count_text(first),
        count_text(last),
        value_text(low),
        value_text(high),
        heights.collect::<String>(),
    ])
}

/// The height of a line at a place between its ends.
fn height(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|p| p.0 < x);
    let (Some(to), Some(from)) = (points.get(after), points.get(after.max(1) - 1)) else {
        return points.last().map_or(0.0, |p| p.1);
    };
    if to.0 > from.0 {
        from.1 + (to.1 - from.1) * (x - from.0) / (to.0 - from.0)
    } else {
        to.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(seed: u64) -> RunView {
        RunView {
            slug: format!("run-{seed}"),
            name: format!("rope, seed {seed}"),
            run: seed.to_string(),
            outcome: String::new(),
            facts: vec![("config".into(), "pe = <rope>".into())],
            scores: None,
            curves: vec![RunCurve {
                name: "training loss".into(),
                x: "step".into(),
                points: vec![(1.0, 3.0), (2.0, 1.0), (5.0, 1.0)],
            }],
            command: vec!["longreach run a.toml 'seeds=[".into(), seed.to_string()],
            link: None,
        }
    }

    #[test]
    fn what_runs_share_is_written_once() {
        let text = data(&[view(0), view(1)]).unwrap();
        assert_eq!(text.matches("longreach run").count(), 1);
        assert!(!text.contains('<') && text.contains("\\u003crope>"));
        let json: Value = serde_json::from_str(&text).unwrap();
        let at = |value: &Value| json["texts"][value.as_u64().unwrap() as usize].clone();
        let run = &json["runs"][1];
        assert_eq!(at(&run["facts"][0][1]), "pe = <rope>");
        assert_eq!(at(&run["command"][0]), "longreach run a.toml 'seeds=[");
        assert_eq!(run["command"][1], "1");
        assert!(data(&[]).is_none());
    }

    #[test]
    fn a_curve_is_sampled_at_equal_distances() {
        let json = curve(&view(0).curves[0], &|text| json!(text));
        // At 1, 3 and 5: 3 at the top, then 1 at the bottom.
        assert_eq!(
            json,
            json!(["training loss", "step", "1", "5", "1.00", "3.00", "_AA"])
        );
    }

    #[test]
    fn a_level_curve_lies_in_the_middle() {
        let mut level = view(0).curves.remove(0);
        level.points = vec![(1.0, 2.0), (9.0, 2.0)];
        assert_eq!(curve(&level, &|text| json!(text))[6], "gg");
    }
}
