//! What the names of methods stand for, and the runs behind them.

use super::runs;
use crate::captions::{seeds_sentence, slug};
use crate::document::{Cell, Layout, Table};
use crate::spec::ReportSpec;
use records::analysis::groups::{Group, TRAINED, Variant};
use records::analysis::setting::{Method, Setting};
use records::metric;
use records::names::Names;
use records::record::RunStatus;
use records::spec::{flatten, trained_encoding, warm_start};
use records::text::{self, short_hash};
use records::toml_text;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Runs listed for one method.
const MOST_RUNS: usize = 32;
/// Longest description of an encoding, in characters.
const LONGEST: usize = 600;

/// One table: every method in words, its size, training and runs, and its encoding and positions as
/// a config has them.
pub(super) fn tables(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Table> {
    vec![table(setting, spec)]
}

fn table(setting: &Setting<'_>, spec: &ReportSpec) -> Table {
    let starts = setting
        .groups
        .iter()
        .any(|group| warm_start(&group.spec).is_some());
    let stop = runs::stop_in_words(setting);
    let mut columns = vec!["method", "in words"];
    columns.extend(runs::COLUMNS);
    columns.extend(stop.is_some().then_some("steps"));
    columns.push("runs by seed");
    columns.extend(starts.then_some("training starts from"));
    columns.extend(["encoding in a config", "positions", "name in results.csv"]);
    let row = |method: &Method| -> Vec<Cell> {
        let group = &setting.groups[method.group];
        let mut row: Vec<Cell> = vec![method.title.as_str().into()];
        row.push(in_words(group, &method.variant, spec.names).into());
        let mut of_runs = runs::row(group);
        of_runs.extend(stop.is_some().then(|| runs::steps(group).into()));
        of_runs.push(by_seed(group, spec));
        of_runs.extend(starts.then(|| Cell::from(start(group))));
        if method.variant != TRAINED {
            of_runs.fill("as above".into());
        }
        row.extend(of_runs);
        row.push(encoding(group, &method.variant).into());
        row.push(positions(group, &method.variant).into());
        row.push(method.name.as_str().into());
        row
    };
    Table {
        slug: slug(setting, "methods"),
        title: "Methods".into(),
        caption: format!(
            "What the names stand for, and the runs behind them; {}. {}",
            setting.name,
            seeds_sentence(setting, metric::LOSS_NATS)
        ),
        notes: format!(
            "A line with + is the trained model evaluated under a changed encoding: the settings \
             that change, at each test length where the value depends on it. {}",
            runs::notes(setting, stop.as_deref())
        ),
        columns: columns.into_iter().map(String::from).collect(),
        rows: setting.methods.iter().map(row).collect(),
        layout: Layout::Glossary,
        ..Table::default()
    }
}

fn bounded(text: String) -> String {
    schema::text::shorten(&text, LONGEST)
}

fn trained(group: &Group<'_>) -> Value {
    trained_encoding(&group.spec)
        .cloned()
        .unwrap_or(Value::Null)
}

/// The encoding in words: `RoPE, base 10000, layout half`. For a variant, that of the longest test
/// length.
fn in_words(group: &Group<'_>, variant: &str, names: Names) -> String {
    let found = group.variants.iter().find(|v| v.name == variant);
    let last = found.and_then(|found| Some(found.by_len.last_key_value()?.1.encoding));
    match last {
        Some(last) if variant != TRAINED => bounded(format!("tested under {}", names.whole(last))),
        _ => bounded(names.whole(&trained(group))),
    }
}

/// The trained encoding, or what a variant changes in it.
pub(crate) fn encoding(group: &Group<'_>, variant: &str) -> String {
    let trained = trained(group);
    let found = group.variants.iter().find(|v| v.name == variant);
    match found {
        Some(found) if variant != TRAINED => {
            let when = if found.is_later {
                " (evaluated after the training)"
            } else {
                ""
            };
            bounded(changes(&trained, found)) + when
        }
        _ if trained.is_null() => "not recorded".into(),
        _ => bounded(toml_text::inline(&trained)),
    }
}

/// Where tokens stand: as recorded, contiguous from 0 unless the spec says otherwise.
pub(crate) fn positions(group: &Group<'_>, variant: &str) -> String {
    let contiguous = json!({ "kind": "contiguous" });
    let model = |key: &str| group.spec.get("model").and_then(|model| model.get(key));
    let mut out = toml_text::inline(model("positions").unwrap_or(&contiguous));
    if let Some(source) = model("coordinates").and_then(Value::as_str) {
        out.push_str(&format!(", coordinates from the {source}"));
    }
    let found = group
        .variants
        .iter()
        .find(|v| v.name == variant && v.name != TRAINED);
    let own: BTreeMap<usize, &Value> = found
        .iter()
        .flat_map(|v| &v.by_len)
        .filter_map(|(len, d)| Some((*len, d.positions?)))
        .collect();
    bounded(if own.is_empty() {
        out
    } else {
        by_length(own.iter().map(|(len, v)| (*len, toml_text::inline(v))))
    })
}

/// The method that a training started from.
fn start(group: &Group<'_>) -> String {
    let Some(start) = warm_start(&group.spec) else {
        return "drawn weights".into();
    };
    let Some(Value::Object(from)) = start.get("from") else {
        return "weights of another run".into();
    };
    let encoding = trained_encoding(from).map_or_else(|| "not recorded".into(), toml_text::inline);
    let number = |key: &str| {
        from.get("train")
            .and_then(|train| train.get(key))
            .map_or("?".into(), Value::to_string)
    };
    bounded(format!(
        "{encoding}, {} steps at {}",
        number("steps"),
        number("train_len")
    ))
}

fn by_seed(group: &Group<'_>, spec: &ReportSpec) -> Cell {
    let mut parts: Vec<(String, Option<String>)> = Vec::new();
    for run in group.runs.iter().take(MOST_RUNS) {
        let diverged = match run.status {
            RunStatus::Ok => "",
            RunStatus::Diverged => " (diverged)",
        };
        let id = text::name(short_hash(&run.run_id), 8);
        parts.push((
            format!("{}: {id}{diverged}", run.seed),
            spec.place(run).link,
        ));
    }
    if group.runs.len() > MOST_RUNS {
        parts.push((format!("{} more", group.runs.len() - MOST_RUNS), None));
    }
    Cell::linked(parts)
}

/// `scaling.kind = yarn, scaling.factor = 2 at 128, 4 at 256`, or the whole encoding where another
/// kind takes the place of the trained one.
#[expect(clippy::too_many_lines, reason = "one case per shape of a change")]
fn changes(trained: &Value, variant: &Variant<'_>) -> String {
    if variant.by_len.is_empty() {
        return "not recorded".into();
    }
    let encodings: BTreeMap<usize, &Value> = variant
        .by_len
        .iter()
        .map(|(len, d)| (*len, d.encoding))
        .collect();
    let kind = |value: &Value| value.get("kind").cloned();
    if encodings.values().any(|e| kind(e) != kind(trained)) {
        let whole = by_length(
            encodings
                .iter()
                .map(|(len, e)| (*len, toml_text::inline(e))),
        );
        let holds = |e: &&Value| {
            e.get("parts")
                .and_then(Value::as_array)
                .is_some_and(|parts| parts.contains(trained))
        };
        let verb = if encodings.values().all(holds) {
            "adds to the encoding"
        } else {
            "replaces the encoding"
        };
        return format!("{verb}: {whole}");
    }
    let leaves = |value: &Value| {
        let mut out = BTreeMap::new();
        flatten("", value, &mut out);
        out
    };
    let own = leaves(trained);
    let theirs: BTreeMap<usize, BTreeMap<String, String>> =
        encodings.iter().map(|(len, e)| (*len, leaves(e))).collect();
    let keys: BTreeSet<&String> = own
        .keys()
        .chain(theirs.values().flat_map(BTreeMap::keys))
        .collect();
    // A kind comes before its keys.
    let mut keys: Vec<&String> = keys.into_iter().collect();
    keys.sort_by_key(|key| key.replace(".kind", ".\0"));
    let mut parts = Vec::new();
    for key in keys {
        let values: Vec<(usize, Option<&String>)> =
            theirs.iter().map(|(len, l)| (*len, l.get(key))).collect();
        if values.iter().all(|(_, value)| *value == own.get(key)) {
            continue;
        }
        let shown = values
            .iter()
            .map(|(len, value)| (*len, value.map_or("none".into(), |v| v.to_string())));
        parts.push(format!(
            "{} = {}",
            key.trim_start_matches('.'),
            by_length(shown)
        ));
    }
    if parts.is_empty() {
        "as trained".into()
    } else {
        parts.join(", ")
    }
}

/// `2 at 128, 4 at 256`; once where it is the same at every length.
fn by_length(values: impl Iterator<Item = (usize, String)>) -> String {
    let mut runs: Vec<(String, Vec<usize>)> = Vec::new();
    for (len, value) in values {
        match runs.iter_mut().find(|(known, _)| *known == value) {
            Some((_, lens)) => lens.push(len),
            None => runs.push((value, vec![len])),
        }
    }
    if let [(value, _)] = runs.as_slice() {
        return value.clone();
    }
    let each = |(value, lens): &(String, Vec<usize>)| {
        let lens: Vec<String> = lens.iter().map(ToString::to_string).collect();
        format!("{value} at {}", lens.join(" and "))
    };
    runs.iter().map(each).collect::<Vec<_>>().join(", ")
}
