//! Variants that add encodings to the trained one, and variants that drop it.

use crate::spec::untrained;
use config::diagnostic::{Diagnostic, describe_value, deserialize_at};
use config::key_path::KeyPath;
use config::origins::Origins;
use posenc::encodings::StackConfig;
use posenc::{ConfigError, EncodingConfig, Lengths, ModelShape};
use toml::{Table, Value};

/// The encodings in `add`, a table or a list of tables, each with its key.
pub fn additions(add: &Value) -> Vec<(String, &Value)> {
    match add {
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(i, one)| (format!("add.{i}"), one))
            .collect(),
        one => vec![("add".to_owned(), one)],
    }
}

/// Reads the encodings in `add`, where no file gives their places.
///
/// # Errors
///
/// The mistake, at its key.
pub fn read_additions(add: &Value) -> Result<Vec<EncodingConfig>, Diagnostic> {
    let table = Table::from_iter([("add".to_owned(), add.clone())]);
    let read = |(key, _): (String, &Value)| {
        let path = KeyPath::parse(&key).unwrap_or_default();
        deserialize_at(&table, &path, &Origins::of_whole("a variant"))
    };
    additions(add).into_iter().map(read).collect()
}

/// A stack of an encoding and those added to it. The parts of a stack stay parts of the one stack.
pub fn stacked(base: EncodingConfig, added: &[EncodingConfig]) -> EncodingConfig {
    if added.is_empty() {
        return base;
    }
    base.stacked_with(added.iter().cloned())
}

/// Refuses additions that do not go with the encoding, or that training gave no parameters.
/// Keys are relative to the variant. All encodings must be resolved.
///
/// # Errors
///
/// The first addition that cannot work.
pub fn check_additions(
    add: &Value,
    base: &EncodingConfig,
    added: &[EncodingConfig],
    shape: &ModelShape,
) -> Result<(), ConfigError> {
    if added.is_empty() {
        let help = "write add = { kind = \"window\" }, or remove it";
        return Err(ConfigError::new(
            "add",
            "[]",
            "adds nothing",
            "one encoding or more",
            help,
        ));
    }
    let parts = base.stacked_parts().map_or(1, <[_]>::len);
    let count = parts + added.len();
    if count > StackConfig::MAX_PARTS {
        let problem = format!("makes a stack of {count} encodings, those of training included");
        let allowed = format!("a stack of at most {}", StackConfig::MAX_PARTS);
        let shown = format!("a list of {}", added.len());
        return Err(ConfigError::new(
            "add",
            shown,
            problem,
            allowed,
            "add fewer",
        ));
    }
    for ((key, written), one) in additions(add).into_iter().zip(added) {
        check_addition(&key, written, base, one, shape)?;
    }
    let stack = stacked(base.clone(), added);
    stack.check(shape).map_err(|error| ConfigError {
        key: "add".to_owned(),
        problem: format!("cannot be stacked: {}", error.problem),
        allowed: "biases on positions only, such as alibi and window".to_owned(),
        hint: "remove it, or choose another encoding".to_owned(),
        ..error
    })
}

/// Refuses one addition that has no effect, rotates twice or needs training.
fn check_addition(
    key: &str,
    written: &Value,
    base: &EncodingConfig,
    one: &EncodingConfig,
    shape: &ModelShape,
) -> Result<(), ConfigError> {
    one.check(shape).map_err(|error| error.within(key))?;
    let (base_facts, facts) = (base.facts(shape), one.facts(shape));
    // An encoding without hooks changes nothing in a stack.
    let (problem, help) = if !has_hooks(&facts) {
        ("adds nothing".to_owned(), "remove it".to_owned())
    } else if base_facts.rotates_qk && facts.rotates_qk {
        (
            format!(
                "rotates queries and keys, which the trained `{}` does already",
                rotating(base, shape)
            ),
            format!(
                "to replace the rotation write set = {}",
                describe_value(written)
            ),
        )
    } else if !facts.parameters.is_empty() {
        let missing: Vec<String> = facts
            .parameters
            .iter()
            .map(|(path, shape)| format!("{path} {shape:?}"))
            .collect();
        (
            format!(
                "needs parameters that the run was not trained with: {}",
                missing.join(", ")
            ),
            "train it: write a `stack` of both in model.pe".to_owned(),
        )
    } else {
        return Ok(());
    };
    let (key, allowed) = (format!("{key}.kind"), additive(&base_facts));
    Err(ConfigError::new(key, one.kind(), problem, allowed, help))
}

/// The kinds that can be added without a key: they have no parameters, and do not rotate twice.
fn additive(base: &posenc::Facts) -> String {
    // Whether a kind has parameters does not depend on the model's sizes.
    let shape = ModelShape {
        d_model: 64,
        n_layers: 1,
        n_heads: 4,
        head_dim: 16,
    };
    let lengths = Lengths {
        train_len: 64,
        trained_len: 64,
        test_len: 64,
    };
    let fits = |kind: &&str| {
        EncodingConfig::default_of(kind)
            .map(|mut one| {
                one.resolve(&lengths);
                one.facts(&shape)
            })
            .is_some_and(|facts| {
                let rotates_twice = base.rotates_qk && facts.rotates_qk;
                let excluded =
                    facts.exclusive_in_stack && (base.rotates_qk || base.reads_transformed_qk);
                facts.parameters.is_empty() && has_hooks(&facts) && !rotates_twice && !excluded
            })
    };
    EncodingConfig::KINDS
        .iter()
        .copied()
        .filter(|kind| fits(kind))
        .collect::<Vec<_>>()
        .join(", ")
}

fn has_hooks(facts: &posenc::Facts) -> bool {
    facts.hooks != posenc::Hooks::default()
}

/// The kind of the part that rotates.
fn rotating(encoding: &EncodingConfig, shape: &ModelShape) -> &'static str {
    let rotates = |part: &&EncodingConfig| part.facts(shape).rotates_qk;
    leaves(encoding)
        .into_iter()
        .find(rotates)
        .map_or(encoding.kind(), EncodingConfig::kind)
}

/// The encodings inside stacks and schedules of layers.
pub fn leaves(encoding: &EncodingConfig) -> Vec<&EncodingConfig> {
    let parts = encoding.parts();
    if parts.is_empty() {
        return vec![encoding];
    }
    parts.iter().flat_map(|part| leaves(part.config)).collect()
}

/// The kinds of the trained encodings that a variant evaluates without. A rotation that replaces a
/// rotation drops nothing, and neither does a `set` without `kind`.
pub fn dropped(
    set: &Table,
    trained: &EncodingConfig,
    variant: &EncodingConfig,
    shape: &ModelShape,
) -> Vec<&'static str> {
    if !set.contains_key("kind") {
        return Vec::new();
    }
    let left = leaves(variant);
    let replaces = |part: &EncodingConfig, other: &EncodingConfig| {
        part.kind() == other.kind() || part.facts(shape).rotates_qk && other.facts(shape).rotates_qk
    };
    let mut kinds: Vec<&str> = leaves(trained)
        .into_iter()
        // Nothing is lost with a part that did nothing.
        .filter(|part| has_hooks(&part.facts(shape)))
        .filter(|part| !left.iter().any(|other| replaces(part, other)))
        .map(EncodingConfig::kind)
        .collect();
    kinds.dedup();
    kinds
}

/// How to keep what a `set` with `kind` drops, if the two can be stacked.
pub fn keeping(
    set: &Table,
    trained: &EncodingConfig,
    variant: &EncodingConfig,
    shape: &ModelShape,
) -> Option<String> {
    let add = Value::Table(set.clone());
    let fits = check_additions(&add, trained, std::slice::from_ref(variant), shape).is_ok()
        && untrained(
            trained,
            &stacked(trained.clone(), std::slice::from_ref(variant)),
            shape,
        )
        .is_empty();
    let written = describe_value(&add);
    // A long table is shortened in messages.
    let whole = if written.contains("...") {
        "`add` for `set`".to_owned()
    } else {
        format!("add = {written}")
    };
    fits.then_some(whole)
}

/// The note printed for a variant that drops trained encodings.
pub fn dropped_note(name: &str, kinds: &[&str], keeping: Option<&str>) -> String {
    let kinds = kinds
        .iter()
        .map(|kind| format!("`{kind}`"))
        .collect::<Vec<_>>()
        .join(", ");
    let help = keeping.map_or(String::new(), |add| format!("; write {add} to keep it"));
    format!(
        "variant `{name}` evaluates without the trained {kinds}: `set` with `kind` replaces \
         it{help}"
    )
}
