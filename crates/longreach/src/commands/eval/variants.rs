//! `--variant` of `longreach eval`: encodings to evaluate a trained run under.

use crate::config::diagnostic::{describe_value, type_name};
use crate::exit::{Exit, Failure};
use crate::plan::spec::{RunSpec, TRAINED, VariantSpec, untrained};
use crate::plan::variants::{
    additions, check_additions, dropped, dropped_note, keeping, read_additions, stacked,
};
use crate::plan::variation::{applies, changed};
use posenc::{ConfigError, EncodingConfig, Lengths, PositionsConfig};
use std::path::Path;
use tasks::Task;
use toml::{Table, Value};

/// The trained encoding, then each asked for; and notes on those asked for.
///
/// # Errors
///
/// [`Exit::Config`] for a variant that does not fit the run.
pub fn variants(
    spec: &RunSpec,
    task: &dyn Task,
    lengths: &[usize],
    asked: &[String],
) -> Result<(Vec<VariantSpec>, Vec<String>), Failure> {
    let shape = spec.model.transformer.shape();
    let kind = spec.model.pe.kind();
    let mut notes = Vec::new();
    let mut variants = vec![VariantSpec {
        name: TRAINED.to_owned(),
        pe: vec![spec.model.pe.clone(); lengths.len()],
        positions: Vec::new(),
    }];
    for text in asked {
        let fail = |problem: String, help: &str| {
            Failure::new(
                Exit::Config,
                format!("--variant {text}: {problem}\n  = help: {help}"),
            )
        };
        let refuse = |error: ConfigError| {
            let ConfigError {
                key,
                value,
                problem,
                allowed,
                hint,
            } = error;
            let message = format!(
                "--variant {text}: `{key}` {problem}\n  = value: {value}\n  = allowed: \
                 {allowed}\n  = help: {hint}"
            );
            Failure::new(Exit::Config, message)
        };
        let syntax = "write TOML such as 'scaling = { kind = \"yarn\" }', or the path of a .toml \
                      file with it";
        let table = parse_variant(text).map_err(|problem| fail(problem, syntax))?;
        let pe = serde_json::to_value(&spec.model.pe)
            .ok()
            .and_then(|value| without_null(&value))
            .ok_or_else(|| fail("lost the trained encoding".to_owned(), syntax))?;
        if !applies(&table.when, &pe) {
            let name = table.name.clone().unwrap_or_else(|| default_name(&table));
            let when = describe_value(&Value::Table(table.when));
            notes.push(format!(
                "variant `{name}` is left out: it is for when = {when}, and the run was trained \
                 with `{kind}`"
            ));
            continue;
        }
        let base = changed(&pe, &table.set).map_err(|problem| {
            fail(
                format!("does not fit the trained encoding `{kind}`: {problem}"),
                "give keys of the trained encoding, a whole encoding with `kind`, or add = { kind \
                 = ... } to stack one on it",
            )
        })?;
        let added = table
            .add
            .as_ref()
            .map(read_additions)
            .transpose()
            .map_err(|problem| {
                fail(
                    format!("cannot be added to the trained encoding `{kind}`: {problem}"),
                    "write add = { kind = \"window\" }, or a list of such tables",
                )
            })?;
        let encodings = lengths.iter().map(|length| {
            let at = Lengths {
                train_len: spec.train.seq_len,
                test_len: task.seq_len(*length),
            };
            let (mut base, mut added) = (base.clone(), added.clone().unwrap_or_default());
            base.resolve(&at);
            base.check(&shape)
                .map_err(|error| fail(error.to_string(), &error.hint))?;
            if let Some(add) = &table.add {
                added.iter_mut().for_each(|one| one.resolve(&at));
                check_additions(add, &base, &added, &shape).map_err(refuse)?;
            }
            let encoding = stacked(base, &added);
            let facts = encoding.facts(&shape);
            spec.model
                .transformer
                .check_encoding(&facts)
                .map_err(|error| fail(error.to_string(), &error.hint))?;
            if table.add.is_some() && table.positions.is_none() {
                spec.model
                    .positions
                    .check(&facts)
                    .map_err(|error| refuse(error.within("model.positions")))?;
            }
            let missing = untrained(&spec.model.pe, &encoding, &shape)
                .into_iter()
                .next();
            match missing {
                None => Ok(encoding),
                Some((path, shape)) => {
                    let problem = format!(
                        "needs the parameter {path} {shape:?}, which the run was not trained with"
                    );
                    Err(fail(
                        problem,
                        "choose an encoding without parameters of its own, or train with it",
                    ))
                }
            }
        });
        let encodings: Vec<EncodingConfig> = encodings.collect::<Result<_, _>>()?;
        let named = table.name.clone().unwrap_or_else(|| default_name(&table));
        let is_free =
            |name: &str, variants: &[VariantSpec]| variants.iter().all(|other| other.name != name);
        // Two of one kind are told apart by what they say.
        let said = text.trim().replace('\n', ", ");
        let name = if table.name.is_some() || is_free(&named, &variants) {
            named
        } else {
            said
        };
        if !is_free(&name, &variants) {
            let help = "give each variant another name: a line name = \"...\" before the others, \
                        or in its .toml file";
            return Err(fail(
                format!("another variant is named `{name}` already"),
                help,
            ));
        }
        if let Some(encoding) = encodings.first() {
            let kinds = dropped(&table.set, &spec.model.pe, encoding, &shape);
            if !kinds.is_empty() {
                let own = table
                    .add
                    .is_none()
                    .then(|| keeping(&table.set, &spec.model.pe, encoding, &shape))
                    .flatten();
                notes.push(dropped_note(&name, &kinds, own.as_deref()));
            }
        }
        let longest = lengths
            .iter()
            .map(|length| task.seq_len(*length))
            .max()
            .unwrap_or(0);
        let positions = lengths
            .iter()
            .zip(&encodings)
            .filter_map(|(length, encoding)| {
                let mut positions = table.positions.clone()?;
                positions.resolve(
                    &Lengths {
                        train_len: spec.train.seq_len,
                        test_len: task.seq_len(*length),
                    },
                    longest,
                );
                let facts = encoding.facts(&shape);
                Some(
                    positions
                        .check(&facts)
                        .map(|()| positions)
                        .map_err(|error| fail(error.to_string(), &error.hint)),
                )
            });
        let positions = positions.collect::<Result<_, _>>()?;
        variants.push(VariantSpec {
            name,
            pe: encodings,
            positions,
        });
    }
    Ok((variants, notes))
}

/// A variant from the command line.
struct Variant {
    name: Option<String>,
    when: Table,
    set: Table,
    add: Option<Value>,
    positions: Option<PositionsConfig>,
}

fn parse_variant(text: &str) -> Result<Variant, String> {
    let path = Path::new(text);
    let is_file = path
        .extension()
        .is_some_and(|extension| extension == "toml");
    let text = if is_file {
        fs_err::read_to_string(path).map_err(|error| error.to_string())?
    } else {
        text.to_owned()
    };
    let mut table: Table = text
        .parse()
        .map_err(|error: toml::de::Error| error.message().to_owned())?;
    let name = match table.remove("name") {
        None => None,
        Some(Value::String(name)) => Some(name),
        Some(_) => return Err("`name` must be a text".to_owned()),
    };
    let positions = match table.remove("positions") {
        None => None,
        Some(value) => {
            let mut value = Table::from_iter([("positions".to_owned(), value)]);
            crate::config::diagnostic::normalise(&mut value);
            let positions = value.remove("positions").expect("was put in").try_into();
            Some(
                positions
                    .map_err(|error: toml::de::Error| format!("positions: {}", error.message()))?,
            )
        }
    };
    let add = table.remove("add");
    // A file may hold the same table as [[eval.variants]].
    let mut inner = |key: &str| match table.remove(key) {
        None => Ok(None),
        Some(Value::Table(inner)) => Ok(Some(inner)),
        Some(other) => Err(format!(
            "`{key}` must be a table, not {}",
            type_name(&other)
        )),
    };
    let (when, set) = (inner("when")?.unwrap_or_default(), inner("set")?);
    let set = match set {
        Some(_) if !table.is_empty() => {
            let keys = table
                .keys()
                .map(|key| format!("`{key}`"))
                .collect::<Vec<_>>()
                .join(", ");
            return Err(format!(
                "{keys} beside `set`: beside it only name, when, add and positions are allowed"
            ));
        }
        Some(set) => set,
        None => table,
    };
    Ok(Variant {
        name,
        when,
        set,
        add,
        positions,
    })
}

/// The kinds that a variant sets and adds, or else what it sets; or the kind of its positions.
fn default_name(variant: &Variant) -> String {
    let kind = |table: &Value| table.get("kind").and_then(Value::as_str).map(str::to_owned);
    let mut names = Vec::new();
    if !variant.set.is_empty() {
        names.push(compact(&variant.set));
    }
    names.extend(
        variant
            .add
            .iter()
            .flat_map(additions)
            .filter_map(|(_, one)| kind(one)),
    );
    match &variant.positions {
        Some(positions) if names.is_empty() => positions.kind().to_owned(),
        _ => names.join("+"),
    }
}

fn compact(set: &Table) -> String {
    match set
        .get("scaling")
        .and_then(|scaling| scaling.get("kind"))
        .or(set.get("kind"))
        .and_then(Value::as_str)
    {
        Some(kind) => kind.to_owned(),
        None => set.to_string().trim().replace('\n', ", "),
    }
}

/// A JSON object as a TOML table; absent keys instead of null.
fn without_null(value: &serde_json::Value) -> Option<Table> {
    fn convert(value: &serde_json::Value) -> Option<Value> {
        Some(match value {
            serde_json::Value::Null => return None,
            serde_json::Value::Object(map) => Value::Table(
                map.iter()
                    .filter_map(|(key, value)| Some((key.clone(), convert(value)?)))
                    .collect(),
            ),
            serde_json::Value::Array(items) => {
                Value::Array(items.iter().filter_map(convert).collect())
            }
            other => Value::try_from(other).ok()?,
        })
    }
    convert(value)?.as_table().cloned()
}
