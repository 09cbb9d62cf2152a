//! Hints that need the list of all keys: a key of another table, a scaling or positions where an
//! encoding is asked for, a number of seeds, and what to write for a key that is missing.

use super::keys::{KEYS, Kind, key_at};
use config::axes::MAX_RUNS;
use config::diagnostic::{Diagnostic, Problem, TableName, closest, known_keys};
use config::key_path::{AXES, KeyPath};
use posenc::{EncodingConfig, PositionsConfig, RopeScaling};
use tasks::{Split, TaskConfig};
use toml::Table;

/// The mistake with the best hint there is. `table` is the configuration it is in.
pub(super) fn with_hint(mut mistake: Diagnostic, table: &Table) -> Diagnostic {
    let value = mistake.value.clone();
    let hint = match &mut mistake.problem {
        Problem::UnknownKey {
            name,
            table: TableName::Document,
            known,
        } => {
            // These two are read before the strict types are.
            known.extend([AXES, MAX_RUNS].map(str::to_owned));
            let (name, known) = (name.clone(), known.clone());
            mistake.allowed = Some(known.join(", "));
            let near = closest(&name, &known).map(|meant| format!("did you mean `{meant}`?"));
            elsewhere(&name, &KeyPath::default(), table)
                .or(near)
                .or_else(|| meant_elsewhere(&name))
        }
        Problem::UnknownKey {
            name,
            table: TableName::Key(above),
            known,
        } => elsewhere(name, above, table)
            .or_else(|| number_of_formula(name, known))
            .or_else(|| match closest(name, known) {
                Some(_) => None,
                None => {
                    limited_variant(above, table).or_else(|| of_other_kinds(name, above, table))
                }
            }),
        Problem::UnknownKind { name, table: above } => other_kind(name, above),
        Problem::MissingKey { name, table: above } => match kinds(name, above, table) {
            Some((kinds, example)) => {
                let key = format!("{name} = \"{example}\"");
                let hint = format!("add `{key}`, or another of them, to {above}");
                mistake.allowed = Some(kinds.join(", "));
                Some(hint)
            }
            None => missing(name, above),
        },
        Problem::WrongType {
            key: TableName::Key(key),
            ..
        } => value.and_then(|value| match key.to_string().as_str() {
            "seeds" => number_of_seeds(&value),
            // A string in the place of a table with `kind`.
            path if path.ends_with("pe") => other_kind(value.trim_matches('"'), key),
            _ => None,
        }),
        _ => None,
    };
    if !mistake.is_help_exact
        && let Some(hint) = hint
    {
        mistake.help = Some(hint);
    }
    mistake
}

/// How a variant leaves out the trained encodings that lack a key of its `set`.
fn limited_variant(above: &KeyPath, table: &Table) -> Option<String> {
    let path = above.to_string();
    let index = path.strip_prefix("eval.variants.")?.strip_suffix(".set")?;
    let index: usize = index.parse().ok()?;
    let variant = table.get("eval")?.get("variants")?.get(index)?;
    variant.get("when").is_none().then(|| {
        "`when = { kind = \"rope\" }`, for example, limits a variant to the encodings that have its \
         keys"
            .to_owned()
    })
}

/// Which kinds have a key that the kind of a table lacks.
fn of_other_kinds(name: &str, above: &KeyPath, table: &Table) -> Option<String> {
    let of = above.to_string();
    let kind = above.child("kind").find(table)?.as_str()?;
    let (kinds, keys): (_, fn(&str) -> Vec<String>) = match of.as_str() {
        "task" => (TaskConfig::KINDS, known_keys::<TaskConfig>),
        of if of.ends_with("positions") => (PositionsConfig::KINDS, known_keys::<PositionsConfig>),
        of if of.ends_with("scaling") => (RopeScaling::KINDS, known_keys::<RopeScaling>),
        of if ["model.pe", "train.stages.", "eval.variants."]
            .iter()
            .any(|start| of.starts_with(start)) =>
        {
            (EncodingConfig::KINDS, known_keys::<EncodingConfig>)
        }
        _ => return None,
    };
    of_kinds(name, kind, kinds, keys)
}

/// Which tasks have a key that the task `kind` lacks.
pub fn of_other_tasks(name: &str, kind: &str) -> Option<String> {
    of_kinds(name, kind, TaskConfig::KINDS, known_keys::<TaskConfig>)
}

/// Which encodings have a key that the encoding `kind` lacks.
pub fn of_other_encodings(name: &str, kind: &str) -> Option<String> {
    of_kinds(
        name,
        kind,
        EncodingConfig::KINDS,
        known_keys::<EncodingConfig>,
    )
}

fn of_kinds(
    name: &str,
    kind: &str,
    kinds: &[&str],
    keys: impl Fn(&str) -> Vec<String>,
) -> Option<String> {
    let has = |kind: &&&str| keys(kind).iter().any(|key| key == name);
    let kinds: Vec<&str> = kinds.iter().filter(has).copied().collect();
    (!kinds.is_empty()).then(|| {
        let kinds = kinds.join(", ");
        format!("`{name}` is a key of {kinds}, not of {kind}")
    })
}

/// Where the number of a formula is written, beside the formula.
fn number_of_formula(name: &str, known: &[String]) -> Option<String> {
    let has = |key: &str| known.iter().any(|known| known == key);
    (has("values") && has("inv_freq")).then(|| {
        format!("write `values = {{ {name} = .. }}`, or under `train` if it is to be trained")
    })
}

/// What to write for a kind that is not one of an encoding but of something else.
pub fn other_kind(name: &str, table: &KeyPath) -> Option<String> {
    let of = table.to_string();
    if of == "task" || of.ends_with("positions") {
        return None;
    }
    if RopeScaling::KINDS.contains(&name) && !of.ends_with("scaling") {
        return Some(format!(
            "`{name}` is a scaling of rope: {{ kind = \"rope\", scaling = {{ kind = \"{name}\" }} }}"
        ));
    }
    if PositionsConfig::KINDS.contains(&name) {
        return Some(format!(
            "`{name}` is a kind of positions: model.positions = {{ kind = \"{name}\" }}"
        ));
    }
    None
}

/// Where a key that a table does not have belongs.
fn elsewhere(name: &str, above: &KeyPath, table: &Table) -> Option<String> {
    // `seed` for `seeds`, before a key of that name in another table.
    let of_list = format!("{name}s");
    if KEYS.iter().any(|key| key.path == of_list) {
        return Some(format!(
            "`{of_list}`, a list, stands at the top level: {of_list} = [..]"
        ));
    }
    // Keys of variants and stages are named by a number that the reader would have to know.
    let mut places: Vec<&str> = KEYS
        .iter()
        .map(|key| key.path)
        .filter(|path| !path.contains(".N.") && path.rsplit('.').next() == Some(name))
        .collect();
    // The nearest first: a key of a table inside this one. Every experiment trains, not all select.
    let inside = format!("{above}.");
    let is_far = |path: &&str| !path.starts_with(&inside);
    let is_rare = |path: &&str| path.starts_with("select.");
    places.sort_by_key(|path| (is_far(path), path.matches('.').count(), is_rare(path)));
    if let Some(path) = places.first() {
        return Some(match path.rsplit_once('.') {
            Some((of, _)) => format!("`{name}` is a key of `{of}`: {path} = ..."),
            None => format!("`{name}` stands at the top level, above the first table"),
        });
    }
    let kind = |of: &str| {
        let kind = KeyPath::parse(&format!("{of}.kind")).ok()?;
        kind.find(table)?.as_str().map(str::to_owned)
    };
    let of_kind = |of: &str, keys: &dyn Fn(&str) -> Vec<String>| {
        let kind = kind(of).filter(|_| above.to_string() != of)?;
        let has = keys(&kind).iter().any(|key| key == name && key != "kind");
        has.then(|| format!("`{name}` is a key of `{of}`: {of}.{name} = ..."))
    };
    of_kind("model.pe", &known_keys::<EncodingConfig>)
        .or_else(|| of_kind("task", &known_keys::<TaskConfig>))
        .or_else(|| of_kind("model.positions", &known_keys::<PositionsConfig>))
}

/// The key of some table that a name at the top level was probably meant for.
fn meant_elsewhere(name: &str) -> Option<String> {
    let last = |path: &'static str| path.rsplit('.').next().unwrap_or(path);
    let paths = KEYS.iter().map(|key| key.path);
    let paths: Vec<&str> = paths.filter(|path| !path.contains(".N.")).collect();
    let names: Vec<String> = paths.iter().map(|path| last(path).to_owned()).collect();
    let meant = closest(name, &names)?;
    let path = paths.into_iter().find(|path| last(path) == meant)?;
    Some(format!("did you mean `{path}`?"))
}

/// The kinds of a table whose kind is missing, and one of them that its other keys fit.
fn kinds(
    name: &str,
    above: &TableName,
    document: &Table,
) -> Option<(&'static [&'static str], &'static str)> {
    let TableName::Key(path) = above else {
        return None;
    };
    let has = |key: &str| path.child(key).find(document).is_some();
    let table = path.to_string();
    match name {
        "by" if table == "task.split" && has("valid_fraction") => Some((Split::KINDS, "range")),
        "by" if table == "task.split" && has("valid") => Some((Split::KINDS, "files")),
        "by" if table == "task.split" => Some((Split::KINDS, "file")),
        "kind" if table == "task" => Some((TaskConfig::KINDS, "copy")),
        "kind" if table.ends_with("positions") => Some((PositionsConfig::KINDS, "randomized")),
        "kind" if table.ends_with("scaling") => Some((RopeScaling::KINDS, "yarn")),
        "kind" if table.starts_with("model.pe") => Some((EncodingConfig::KINDS, "rope")),
        _ => None,
    }
}

/// What to write for a missing key, with an example.
fn missing(name: &str, table: &TableName) -> Option<String> {
    match table {
        TableName::Document => {
            if let Some(key) = key_at(&KeyPath::new([name])).filter(|key| key.kind != Kind::Task) {
                return Some(format!(
                    "add `{name} = {}` above the first table",
                    key.example
                ));
            }
            if name == "task" {
                return Some("add a table [task] with kind = \"copy\", or another".to_owned());
            }
            let inside = format!("{name}.");
            let keys: Vec<String> = KEYS
                .iter()
                .filter(|key| key.default.is_none() && !key.path.contains(".N."))
                .filter_map(|key| {
                    let own = key.path.strip_prefix(&inside)?;
                    Some(format!("{own} = {}", key.example))
                })
                .collect();
            let list = keys.join(", ");
            (!keys.is_empty()).then(|| format!("add a table [{name}] with {list}"))
        }
        TableName::Key(above) => {
            let key = key_at(&above.child(name))?;
            Some(format!("add `{name} = {}` to `{above}`", key.example))
        }
        TableName::Named(_) => None,
    }
}

/// How to write `seeds` that are given as a number.
fn number_of_seeds(value: &str) -> Option<String> {
    let count = value.parse::<u64>().ok().filter(|count| *count <= 20)?;
    let seeds: Vec<String> = (0..count.max(1)).map(|seed| seed.to_string()).collect();
    let list = seeds.join(", ");
    Some(match count {
        0 | 1 => format!("write seeds = [{count}]"),
        _ => {
            format!("write seeds = [{list}] for {count} runs, or [{count}] for seed {count} alone")
        }
    })
}
