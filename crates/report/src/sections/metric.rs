//! One metric: methods by test lengths.

use crate::captions::{definition, direction, seeds_notes, seeds_sentence, slug};
use crate::document::{Cell, Mark, Table};
use crate::spec::ReportSpec;
use records::analysis::point::{Point, difference_point_parts, point_parts};
use records::analysis::setting::Setting;
use records::metric;
use records::stats::Scale;
use records::text::list;

/// Every metric but the leading one, whose table comes first.
pub(super) fn tables(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Table> {
    let others = setting.metrics.iter().skip(1);
    others.map(|metric| table(setting, metric)).collect()
}

/// The table of one metric.
pub(crate) fn table(setting: &Setting<'_>, metric: &str) -> Table {
    let (ranked, rule) = if setting.seeds().1 > 1 {
        let ranked = " Bold: the best; italic: its interval touches that of the best.";
        let rule = " Bold: the best of its column if every method was tested, its interval touching \
                    no other. Italic, where there is no such one and not all intervals touch: the \
                    best mean and those whose interval touches its own, which a wide interval does \
                    more easily than a narrow one.";
        (ranked, rule)
    } else {
        ("", "")
    };
    let is_derived = metric::find(metric).is_some_and(|def| def.derived_from_loss.is_some());
    let derived = match (is_derived, metric::scale(metric)) {
        (false, _) => "",
        (true, Scale::Linear) => " Derived from nats for each run, then averaged.",
        (true, Scale::Log) => " Averaged in nats: exp of the mean loss.",
    };
    let (mut rows, methods) = rows(setting, metric);
    let learning = setting
        .has_halves()
        .then(|| "half to all steps".to_string());
    let learned = match learning {
        Some(_) => learning_note(setting),
        None => String::new(),
    };
    if learning.is_some() {
        mark_learning(setting, &mut rows, &methods);
    }
    Table {
        slug: slug(setting, metric),
        title: format!("{metric} by test length"),
        caption: format!(
            "{metric} ({}) by test length in {}; {}. {}{ranked}",
            direction(metric),
            setting.task.unit,
            setting.name,
            seeds_sentence(setting, metric),
        ),
        notes: format!(
            "{}{derived}{rule}{learned}{}",
            seeds_notes(setting, metric),
            edge_note(setting, metric)
        )
        .trim_start()
        .into(),
        definition: definition(setting, metric),
        columns: std::iter::once("method".to_string())
            .chain(setting.headings())
            .chain(learning)
            .collect(),
        rows,
        metric: Some(metric.into()),
        methods,
        ..Table::default()
    }
}

/// What the mark behind a chosen value is; nothing where no name has one.
fn edge_note(setting: &Setting<'_>, metric: &str) -> &'static str {
    let mut runs = setting.groups.iter().flat_map(|group| group.runs.first());
    let is_at_edge = runs.any(|run| {
        run.selected
            .as_ref()
            .is_some_and(|s| !s.at_edge().is_empty())
    });
    match is_at_edge && metric == setting.lead() {
        true => " Edge: the smallest or the largest value tried.",
        false => "",
    }
}

/// What the column on half the steps is.
fn learning_note(setting: &Setting<'_>) -> String {
    let seeds: Vec<String> = setting.half_seeds().iter().map(u64::to_string).collect();
    let seeds = match &seeds[..] {
        [seed] => format!("seed {seed} only"),
        _ => format!("seeds {}", list(&seeds, 12)),
    };
    format!(
        " Last column: the leading score in length with all steps against that with half of them, \
         paired by seed ({seeds}). Grey, †: still learning, it changes by more than 3 %."
    )
}

/// Adds the column on half the steps, and marks the cells of methods that are still learning.
/// `methods`: those of the rows, none for a row of the method above it.
fn mark_learning(setting: &Setting<'_>, rows: &mut [Vec<Cell>], methods: &[Option<usize>]) {
    let mut last = 0;
    for (row, own) in rows.iter_mut().zip(methods) {
        let is_first = own.is_some();
        last = own.unwrap_or(last);
        let method = &setting.methods[last];
        let is_learning = setting.is_still_learning(method);
        let number = difference_point_parts(setting.lead(), &setting.learning(method));
        row.push(if is_first {
            Cell::number(number)
        } else {
            "".into()
        });
        let (name, cells) = row.split_first_mut().expect("a row has a name");
        for cell in cells.iter_mut().filter(|cell| !cell.text.is_empty()) {
            cell.is_learning = is_learning;
        }
        if is_learning && is_first {
            name.text += " †";
        }
    }
}

/// A row for each method, with marks on the best of each column, and one for the seeds that learned
/// the task of methods of which some did not; and the methods of the rows.
fn rows(setting: &Setting<'_>, metric: &str) -> (Vec<Vec<Cell>>, Vec<Option<usize>>) {
    let (mut rows, mut methods): (Vec<Vec<Cell>>, Vec<Option<usize>>) = Default::default();
    // Where a method's ranked score stands: by length.
    let mut places: Vec<Vec<usize>> = Vec::new();
    let mut columns: Vec<Vec<Point>> = setting.lengths.iter().map(|_| Vec::new()).collect();
    for (index, method) in setting.methods.iter().enumerate() {
        let cells = |name: String, of: &dyn Fn(usize) -> Point| -> Vec<Cell> {
            let points = setting.lengths.iter().map(|&len| of(len));
            let points = points.map(|point| Cell::number(point_parts(metric, &point)));
            std::iter::once(Cell::from(name)).chain(points).collect()
        };
        let own = rows.len();
        let all = |len| setting.point(method, metric, len);
        // Once for each method, in the leading table.
        let training = if metric == setting.lead() {
            method.training.as_str()
        } else {
            ""
        };
        rows.push(cells(method.title.clone() + training, &all));
        methods.push(Some(index));
        let learned = setting.learned(method);
        // One that diverged has no score that the first row would include.
        if learned.is_partial() && learned.has_failed_score() {
            let of_learned = |len| Point {
                // The name of the row says how many.
                failed: 0,
                ..setting.of_learned(method, metric, len)
            };
            let name = format!("{}: the {} that learned", method.title, learned.ratio());
            rows.push(cells(name, &of_learned));
            // Not the row of the line in figures, which is of all seeds.
            methods.push(None);
        }
        let last = rows.len() - 1;
        let mut place = Vec::new();
        for (column, &len) in columns.iter_mut().zip(&setting.lengths) {
            let is_silent = setting.is_extrapolation_of_unconverged(method, len);
            let is_past = len > setting.task.train_len && !is_silent;
            place.push(if is_past { last } else { own });
            column.push(if is_past {
                setting.score(method, metric, len)
            } else {
                all(len)
            });
        }
        places.push(place);
    }
    for (at, (column, &len)) in columns.iter().zip(&setting.lengths).enumerate() {
        let is_ranked =
            |at: usize| !setting.is_extrapolation_of_unconverged(&setting.methods[at], len);
        if let Some(best) = setting.clear_best(column, metric) {
            if is_ranked(best) {
                rows[places[best][at]][at + 1].mark = Mark::Best;
            }
            continue;
        }
        for near in setting.near_best(column, metric) {
            if is_ranked(near) {
                rows[places[near][at]][at + 1].mark = Mark::Near;
            }
        }
    }
    (rows, methods)
}
