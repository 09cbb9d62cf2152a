//! `[[eval.variants]]`: the trained weights under changed encodings, at every test length.

use super::check::{check_name, refused};
use super::model::{check_coordinates, check_positions, lengths, longest_test};
use super::notes::Dropped;
use super::sections::VariantSection;
use super::spec::{ModelSpec, TRAINED, TrainSpec, VariantSpec, untrained};
use super::variants::{additions, check_additions, stacked};
use crate::config::axes::Cell;
use crate::config::diagnostic::{Diagnostic, Problem, TableName, deserialize_at, normalise};
use crate::config::key_path::{KeyPath, set};
use crate::config::labels::same;
use posenc::{EncodingConfig, PositionsConfig};
use tasks::Task;
use toml::{Table, Value};

/// Most variants of an experiment.
const MAX_VARIANTS: usize = 100;

/// A training, as far as its variants depend on it.
pub(super) struct Trained<'a> {
    pub(super) cell: &'a Cell,
    pub(super) model: &'a ModelSpec,
    pub(super) train: &'a TrainSpec,
    pub(super) task: &'a dyn Task,
    pub(super) test_lens: &'a [usize],
}

/// One variant and its key, `eval.variants.N`.
struct Variant<'a> {
    key: String,
    section: &'a VariantSection,
}

impl Trained<'_> {
    /// The trained encoding, then every variant that applies to it. The names of all variants are
    /// added to `names`.
    pub(super) fn variants(
        &self,
        sections: &[VariantSection],
        names: &mut Vec<String>,
        dropped: &mut Dropped,
    ) -> Result<Vec<VariantSpec>, Diagnostic> {
        let pe = self
            .cell
            .table
            .get("model")
            .and_then(|model| model.get("pe"));
        let pe = pe.and_then(Value::as_table).cloned().unwrap_or_default();
        let mut variants = vec![VariantSpec {
            name: TRAINED.to_owned(),
            pe: vec![self.model.pe.clone(); self.test_lens.len()],
            positions: Vec::new(),
        }];
        let count = sections.len();
        if count > MAX_VARIANTS {
            let allowed = format!("at most {MAX_VARIANTS} variants");
            let help = "put encodings to train on an axis";
            let problem = format!("has {count} of them");
            return Err(self.cell.error("eval.variants", &problem, &allowed, help));
        }
        for (index, section) in sections.iter().enumerate() {
            let key = format!("eval.variants.{index}");
            let variant = Variant { key, section };
            self.check_name(&variant, &sections[..index])?;
            if !names.contains(&section.name) {
                names.push(section.name.clone());
            }
            if applies(&section.when, &pe) {
                let spec = self.variant(&variant, &pe)?;
                dropped.note(
                    section,
                    &self.model.pe,
                    &spec.pe[0],
                    &self.model.transformer.shape(),
                );
                variants.push(spec);
            }
        }
        Ok(variants)
    }

    fn check_name(
        &self,
        variant: &Variant<'_>,
        before: &[VariantSection],
    ) -> Result<(), Diagnostic> {
        let (key, name) = (format!("{}.name", variant.key), &variant.section.name);
        check_name(self.cell, &key, name)?;
        check_when(
            self.cell,
            &format!("{}.when", variant.key),
            &variant.section.when,
        )?;
        if name != TRAINED && before.iter().all(|other| other.name != *name) {
            return Ok(());
        }
        let help = format!(
            "`{TRAINED}` is the encoding as trained; every other variant needs another name"
        );
        let error = self.cell.error(
            &key,
            "is used twice",
            "a name that no other variant has",
            &help,
        );
        Err(error)
    }

    /// One variant, resolved at every test length.
    fn variant(&self, variant: &Variant<'_>, pe: &Table) -> Result<VariantSpec, Diagnostic> {
        let Variant { key, section } = variant;
        if section.set.is_empty() && section.add.is_none() && section.positions.is_none() {
            let help = "write set = { scaling = { kind = \"yarn\" } }, add = { kind = \"window\" } \
                        or positions = { kind = \"interpolated\" }";
            let problem = format!(
                "changes nothing: it has neither `{key}.set` nor `{key}.add` nor `{key}.positions`"
            );
            let allowed = "`set`, `add`, `positions` or several of them";
            return Err(self.cell.error(key, &problem, allowed, help));
        }
        let base = if section.add.is_some() && section.set.is_empty() {
            // Defaults that depend on lengths keep the values of training.
            self.model.pe.clone()
        } else {
            changed(pe, &section.set).map_err(|problem| {
                let kind = self.model.pe.kind();
                set_refused(
                    self.cell,
                    &format!("{key}.set"),
                    section,
                    pe,
                    kind,
                    &problem,
                )
            })?
        };
        let added = additions_of(self.cell, key, section)?;
        let lengths = self.test_lens.iter();
        let encodings = lengths
            .map(|test_len| self.encoding(variant, *test_len, base.clone(), added.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(VariantSpec {
            name: section.name.clone(),
            positions: self.positions(variant, &encodings)?,
            pe: encodings,
        })
    }

    /// A variant's encoding at one test length.
    fn encoding(
        &self,
        variant: &Variant<'_>,
        test_len: usize,
        mut base: EncodingConfig,
        mut added: Vec<EncodingConfig>,
    ) -> Result<EncodingConfig, Diagnostic> {
        let (cell, Variant { key, section }) = (self.cell, variant);
        let ModelSpec {
            transformer,
            positions,
            coordinates,
            pe: trained,
        } = self.model;
        let in_variant = |error: Diagnostic| {
            let (name, kind) = (&section.name, trained.kind());
            error.with_note(format!(
                "in variant `{name}` of the trained encoding `{kind}`"
            ))
        };
        let shape = transformer.shape();
        let lengths = lengths(self.train, self.task, test_len);
        base.resolve(&lengths);
        base.check(&shape)
            .map_err(|error| refused(cell, &format!("{key}.set"), &error))?;
        if let Some(add) = &section.add {
            added.iter_mut().for_each(|one| one.resolve(&lengths));
            check_additions(add, &base, &added, &shape)
                .map_err(|error| in_variant(refused(cell, key, &error)))?;
        }
        let encoding = stacked(base, &added);
        let facts = encoding.facts(&shape);
        transformer
            .check_encoding(&facts)
            .map_err(|error| in_variant(refused(cell, "model", &error)))?;
        if section.add.is_some() && section.positions.is_none() {
            check_positions(cell, "model.positions", positions, &facts, transformer, 1)
                .map_err(in_variant)?;
        }
        check_coordinates(cell, *coordinates, positions, &facts, self.task)?;
        let missing = untrained(trained, &encoding, &shape);
        if missing.is_empty() {
            return Ok(encoding);
        }
        let missing: Vec<String> = missing
            .iter()
            .map(|(path, shape)| format!("{path} {shape:?}"))
            .collect();
        let problem = format!(
            "needs parameters that `{}` was not trained with: {}",
            encoding.kind(),
            missing.join(", ")
        );
        let help = "evaluate a trained model only under encodings that add no parameters, or put \
                    the encoding on [axes] and train it";
        let allowed = "an encoding with the trained parameters, or with none";
        Err(cell.error(&format!("{key}.set"), &problem, allowed, help))
    }

    /// A variant's positions at every test length; none if they are those of the training.
    fn positions(
        &self,
        variant: &Variant<'_>,
        encodings: &[EncodingConfig],
    ) -> Result<Vec<PositionsConfig>, Diagnostic> {
        let Some(written) = &variant.section.positions else {
            return Ok(Vec::new());
        };
        let transformer = &self.model.transformer;
        let longest = longest_test(self.task, self.test_lens);
        let key = format!("{}.positions", variant.key);
        let at = |(test_len, encoding): (&usize, &EncodingConfig)| {
            let mut positions = written.clone();
            positions.resolve(&lengths(self.train, self.task, *test_len), longest);
            let facts = encoding.facts(&transformer.shape());
            check_positions(self.cell, &key, &positions, &facts, transformer, 1)?;
            Ok(positions)
        };
        self.test_lens.iter().zip(encodings).map(at).collect()
    }
}

/// Whether the trained encoding's table has every key and value of a filter.
pub fn applies(when: &Table, pe: &Table) -> bool {
    when.iter()
        .all(|(key, value)| pe.get(key).is_some_and(|own| same(own, value)))
}

/// The trained encoding's table with `set` in it; a `set` with `kind` stands alone.
///
/// # Errors
///
/// Serde's message, with the path of the key.
pub fn changed(pe: &Table, set: &Table) -> Result<EncodingConfig, String> {
    let mut table = if set.contains_key("kind") {
        Table::new()
    } else {
        pe.clone()
    };
    table.extend(set.clone());
    normalise(&mut table);
    serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
        let (path, message) = (error.path().to_string(), error.inner().message().to_owned());
        if path == "." {
            message
        } else {
            format!("{path}: {message}")
        }
    })
}

/// Reads what a variant adds.
fn additions_of(
    cell: &Cell,
    key: &str,
    variant: &VariantSection,
) -> Result<Vec<EncodingConfig>, Diagnostic> {
    let keys = variant
        .add
        .iter()
        .flat_map(additions)
        .map(|(below, _)| format!("{key}.{below}"));
    let read = |key: String| {
        let path = KeyPath::parse(&key).unwrap_or_default();
        deserialize_at::<EncodingConfig>(&cell.table, &path, &cell.origins)
    };
    let note = || {
        format!(
            "in variant `{}`, which adds to the trained encoding",
            variant.name
        )
    };
    keys.map(|key| read(key).map_err(|error| error.with_note(note())))
        .collect()
}

/// The error of a `set` that the trained encoding's table could not be read with.
fn set_refused(
    cell: &Cell,
    key: &str,
    variant: &VariantSection,
    pe: &Table,
    trained: &str,
    problem: &str,
) -> Diagnostic {
    let mut table = if variant.set.contains_key("kind") {
        Table::new()
    } else {
        pe.clone()
    };
    table.extend(variant.set.clone());
    let path = KeyPath::parse(key).unwrap_or_default();
    let mut whole = cell.table.clone();
    let placed = set(&mut whole, path.parts(), Value::Table(table)).is_ok();
    let told = deserialize_at::<EncodingConfig>(&whole, &path, &cell.origins)
        .err()
        .filter(|_| placed);
    let error =
        told.unwrap_or_else(|| cell.error(key, &format!("cannot be read: {problem}"), "", ""));
    let help = error.help.clone().unwrap_or_else(|| {
        "restrict the variant with `when = { kind = \"...\" }`, or correct `set`".to_owned()
    });
    error
        .with_note(format!(
            "in variant `{}`, which changes the trained encoding `{trained}`",
            variant.name
        ))
        .with_help(help)
}

/// Refuses a filter that no encoding could pass: an unknown kind, or a key or a type that its kind
/// does not have.
fn check_when(cell: &Cell, key: &str, when: &Table) -> Result<(), Diagnostic> {
    if when.is_empty() {
        return Ok(());
    }
    let path = KeyPath::parse(key).unwrap_or_default();
    // Keys that a kind cannot do without may be left out of a filter.
    let here = TableName::from(&path);
    let left_out = |error: &Diagnostic| matches!(&error.problem, Problem::MissingKey { table, .. } if *table == here);
    let read = |table: &Table| match deserialize_at::<EncodingConfig>(table, &path, &cell.origins) {
        Err(error) if !left_out(&error) => Err(error),
        _ => Ok(()),
    };
    if when.contains_key("kind") {
        return read(&cell.table);
    }
    let of_kind = |kind: &&str| {
        let mut table = cell.table.clone();
        let kind = Value::String((*kind).to_owned());
        set(&mut table, path.child("kind").parts(), kind).is_ok() && read(&table).is_ok()
    };
    if EncodingConfig::KINDS.iter().any(of_kind) {
        return Ok(());
    }
    let first = when.keys().next().map_or("", String::as_str);
    let problem = "matches no encoding";
    Err(cell.error(
        &path.child(first).to_string(),
        problem,
        "keys of one encoding, with values of their types",
        "add `kind` to see which",
    ))
}
