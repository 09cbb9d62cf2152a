//! The runs of a setting one by one: settings, scores, curves, timings, and the command that trains
//! each again.

use crate::document::{Cell, RunCurve, RunView, Table};
use crate::spec::ReportSpec;
use records::analysis::groups::{Group, Run};
use records::analysis::point::value_at;
use records::analysis::setting::Setting;
use records::metric;
use records::record::RunStatus;
use records::text::{self, thousands};
use records::timings::Timings;
use records::toml_text;

/// Runs of one report that are listed.
const MOST_RUNS: usize = 2000;

/// One view for each run. `runs`: those of the whole report.
pub(crate) fn views(setting: &Setting<'_>, spec: &ReportSpec, runs: usize) -> Vec<RunView> {
    if runs > MOST_RUNS {
        return Vec::new();
    }
    // The curves of many runs would make up most of a page.
    let points = match runs {
        0..=200 => 60,
        201..=600 => 40,
        _ => 24,
    };
    let groups = setting.groups.iter();
    let each = groups.flat_map(|group| group.runs.iter().map(move |run| (group, run)));
    each.map(|(group, run)| view(setting, spec, group, run, points))
        .collect()
}

fn view(
    setting: &Setting<'_>,
    spec: &ReportSpec,
    group: &Group<'_>,
    run: &Run<'_>,
    points: usize,
) -> RunView {
    RunView {
        slug: format!("run-{}", run.run_id),
        name: format!("{}, seed {}", group.named.title, run.seed),
        run: run.run_id.clone(),
        outcome: status(run).unwrap_or_else(|| final_loss(run)),
        facts: facts(spec, run),
        scores: scores(setting, group, run),
        curves: curves(setting, run, points),
        command: command(spec, run),
        link: spec.place(run).link,
    }
}

/// Where it diverged, if it did.
fn status(run: &Run<'_>) -> Option<String> {
    match &run.diverged {
        Some(d) => Some(format!(
            "diverged at step {}: {} not finite",
            d.step, d.what
        )),
        None => (run.status == RunStatus::Diverged).then(|| "diverged".into()),
    }
}

fn final_loss(run: &Run<'_>) -> String {
    let text = |loss| format!("{} nats", metric::number(loss, 4));
    run.train.final_loss_nats.map_or(String::new(), text)
}

fn facts(spec: &ReportSpec, run: &Run<'_>) -> Vec<(String, String)> {
    let labels = run.labels.iter();
    let labels: Vec<String> = labels
        .map(|l| format!("{} = {}", l.key, toml_text::inline(&l.value)))
        .collect();
    let mut facts = vec![
        ("status", status(run).unwrap_or_default()),
        ("run", run.run_id.clone()),
        ("experiment", run.experiment.clone()),
        ("config", text::list(&labels, 16)),
        (
            "parameters",
            format!(
                "{}, {} of the encoding",
                thousands(run.model.parameters),
                thousands(run.model.encoding_parameters)
            ),
        ),
        (
            "training",
            format!(
                "{} steps, {} tokens",
                thousands(run.train.steps),
                thousands(run.train.tokens)
            ),
        ),
        ("final training loss", final_loss(run)),
    ];
    if let Some(timings) = spec.place(run).timings {
        facts.push(("time", cost(&timings)));
    }
    let facts = facts.into_iter().filter(|(_, text)| !text.is_empty());
    facts.map(|(name, text)| (name.to_owned(), text)).collect()
}

/// What a run took: `trained for 12.3 s, 54,000 tokens a second, ...`
fn cost(timings: &Timings) -> String {
    let memory = timings.train_peak_memory_bytes;
    let memory = memory.map_or(String::new(), |bytes| {
        format!(", {} MiB at most", thousands(bytes >> 20))
    });
    let together = match timings.runs_together {
        0 | 1 => String::new(),
        runs => format!(" as one of {runs} runs"),
    };
    let from = match timings.resumed_at_step {
        0 => String::new(),
        step => format!(" from step {step} on"),
    };
    format!(
        "trained for {:.1} s{from}{together}, {} tokens a second{memory}; evaluated for {:.1} s",
        timings.train_secs,
        thousands(timings.train_tokens_per_sec.max(0.0).round() as u64),
        timings.eval_secs
    )
}

/// The leading metric by variant and test length.
fn scores(setting: &Setting<'_>, group: &Group<'_>, run: &Run<'_>) -> Option<Table> {
    let metric = setting.lead();
    let lengths = setting.lengths.iter();
    let lengths: Vec<usize> = lengths
        .copied()
        .filter(|len| {
            group
                .variants
                .iter()
                .any(|v| run.row(&v.name, *len).is_some())
        })
        .collect();
    let cell = |variant: &str, len: usize| -> Cell {
        match value_at(run, variant, metric, len) {
            Ok(value) => metric::number(value, metric::decimals(metric, value)).into(),
            Err(absent) => absent.name().into(),
        }
    };
    let row = |variant: &str| {
        let cells = lengths.iter().map(|len| cell(variant, *len));
        std::iter::once(Cell::from(variant)).chain(cells).collect()
    };
    let lengths_text = lengths.iter().map(|len| setting.length(*len));
    (!lengths.is_empty()).then(|| Table {
        columns: std::iter::once(metric.to_owned())
            .chain(lengths_text)
            .collect(),
        rows: group.variants.iter().map(|v| row(&v.name)).collect(),
        ..Table::default()
    })
}

/// Training loss, loss by position at the longest length that has it, and attention distance by
/// test length.
fn curves(setting: &Setting<'_>, run: &Run<'_>, most: usize) -> Vec<RunCurve> {
    let training = run.train.loss_curve.iter();
    let training = training.map(|p| (p.step as f64, p.loss_nats)).collect();
    let rows = || run.rows().into_iter().filter(|(v, _)| *v == super::TRAINED);
    let longest = rows()
        .filter(|(_, row)| !row.loss_by_position.is_empty())
        .max_by_key(|(_, row)| row.test_len);
    let positions = longest.map(|(_, row)| {
        let middle = |from: usize, to: usize| (from as f64 + to as f64) / 2.0;
        let bins = row.loss_by_position.iter();
        let points = bins.map(|bin| (middle(bin.from, bin.to), bin.loss_nats));
        RunCurve {
            name: format!("loss by position at {}", setting.unit_count(row.test_len)),
            x: "position".into(),
            points: points.collect(),
        }
    });
    let distances = rows().filter_map(|(_, row)| {
        let (distance, _) = metric::value(&run.task, row, metric::ATTENTION_DISTANCE)?;
        Some((row.test_len as f64, distance))
    });
    let mut distances: Vec<(f64, f64)> = distances.collect();
    distances.sort_by(|a, b| a.0.total_cmp(&b.0));
    let distances = (!distances.is_empty()).then(|| RunCurve {
        name: "mean attention distance".into(),
        x: "test length".into(),
        points: distances,
    });
    let training = RunCurve {
        name: "training loss".into(),
        x: "step".into(),
        points: training,
    };
    let all = [Some(training), positions, distances].into_iter().flatten();
    let drawable = all.map(|mut curve| {
        // Differences of larger numbers are not finite.
        curve
            .points
            .retain(|(x, y)| x.abs() <= 1e150 && y.abs() <= 1e150);
        let every = curve.points.len().div_ceil(most).max(1);
        curve.points = curve.points.into_iter().step_by(every).collect();
        curve
    });
    drawable.filter(|curve| curve.points.len() > 1).collect()
}

/// A shell command that trains this run alone from its experiment's config into a new directory,
/// in pieces: what differs between the seeds of a method is one. It runs in the directory of the
/// page; there is none for a run whose config is not known.
fn command(spec: &ReportSpec, run: &Run<'_>) -> Vec<String> {
    let is_word = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    if run.evaluation_of.is_some() || !is_word(&run.experiment) || run.experiment.starts_with('-') {
        return Vec::new();
    }
    // Without axes a run is labelled by the kind of its encoding, which the config has.
    let axes = run
        .labels
        .iter()
        .filter(|l| !(l.key == "model.pe" && l.value.is_string()));
    let mut arguments = String::new();
    for label in axes {
        if !label.key.split('.').all(is_word) || !toml_text::is_possible(&label.value) {
            return Vec::new();
        }
        let value = format!("{}={}", label.key, toml_text::inline(&label.value));
        arguments.push(' ');
        arguments.push_str(&quoted(&value));
    }
    let Some(path) = spec.place(run).config else {
        return Vec::new();
    };
    let is_plain = path.split('/').all(|part| part.is_empty() || is_word(part));
    let config = if is_plain { path } else { quoted(&path) };
    vec![
        format!("longreach run {config} 'seeds=["),
        run.seed.to_string(),
        format!("]'{arguments} --runs \"$(mktemp -d)\""),
    ]
}

/// A word of a shell's command line.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
