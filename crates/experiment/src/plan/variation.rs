//! `[[eval.variants]]`: the trained weights under changed encodings, at every test length.

use super::check::check_name;
use super::notes::DroppedEncodings;
use super::ranges::refused;
use super::sections::VariantSection;
use super::stages::last_encoding_key;
use super::variant_rules::{Refusal, Trained, VariantRequest};
use super::variants::additions;
use crate::spec::{TRAINED, VariantSpec};
use config::axes::Cell;
use config::diagnostic::{Diagnostic, Problem, TableName, deserialize, deserialize_at};
use config::key_path::{KeyPath, set};
use config::labels::same;
use config::origins::Origins;
use posenc::EncodingConfig;
use toml::{Table, Value};

/// Most variants of an experiment.
const MAX_VARIANTS: usize = 100;

/// The variants of a cell's runs.
pub(super) struct Variants<'a> {
    pub(super) cell: &'a Cell,
    /// The length trained on before the trained encoding came in, in tokens.
    pub(super) before: usize,
    pub(super) trained: Trained<'a>,
}

/// One variant and its key, `eval.variants.N`.
struct Variant<'a> {
    key: String,
    section: &'a VariantSection,
}

impl Variants<'_> {
    /// The trained encoding, then every variant that applies to it. The names of all variants are
    /// added to `names`.
    pub(super) fn resolve(
        &self,
        sections: &[VariantSection],
        names: &mut Vec<String>,
        dropped: &mut DroppedEncodings,
    ) -> Result<Vec<VariantSpec>, Diagnostic> {
        let pe = last_encoding_key(&self.cell.table).find(&self.cell.table);
        let pe = pe.and_then(Value::as_table).cloned().unwrap_or_default();
        let mut variants = vec![VariantSpec {
            name: TRAINED.to_owned(),
            pe: vec![self.trained.model.pe.clone(); self.trained.test_lens.len()],
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
                    &self.trained.model.pe,
                    // Kinds do not change with the length, and at the longest every scaling acts.
                    &spec.pe[spec.pe.len() - 1],
                    &self.trained.model.transformer.shape(),
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
        let trained = &self.trained.model.pe;
        let base = if section.add.is_some() && section.set.is_empty() {
            // Defaults that depend on lengths keep the values of training.
            trained.clone()
        } else {
            changed(pe, &section.set).map_err(|error| {
                let (key, kind) = (format!("{key}.set"), trained.kind());
                set_refused(
                    self.cell,
                    &key,
                    section,
                    pe,
                    kind,
                    &error.problem.to_string(),
                )
            })?
        };
        // What is left out of a new scaling means all that was trained on.
        let is_new = ["kind", "scaling"]
            .iter()
            .any(|key| section.set.contains_key(*key));
        let asked = VariantRequest {
            base,
            before: (!is_new).then_some(self.before),
            add: section.add.clone(),
            added: additions_of(self.cell, key, section)?,
            positions: section.positions.clone(),
        };
        let resolved = self.trained.resolve(&asked);
        let (pe, positions) = resolved.map_err(|refusal| self.refused(variant, refusal))?;
        Ok(VariantSpec {
            name: section.name.clone(),
            pe,
            positions,
        })
    }

    fn refused(&self, variant: &Variant<'_>, refusal: Refusal) -> Diagnostic {
        let (cell, Variant { key, section }) = (self.cell, variant);
        let in_variant = |error: Diagnostic| {
            let (name, kind) = (&section.name, self.trained.model.pe.kind());
            error.with_note(format!(
                "in variant `{name}` of the trained encoding `{kind}`"
            ))
        };
        match refusal {
            Refusal::Set(error) => refused(cell, &format!("{key}.set"), &error),
            Refusal::Add(error) => in_variant(refused(cell, key, &error)),
            Refusal::Model(error) => in_variant(refused(cell, "model", &error)),
            Refusal::Positions(error) => refused(cell, &format!("{key}.positions"), &error),
            Refusal::Untrained(kind, missing) => {
                let missing: Vec<String> = missing
                    .iter()
                    .map(|(path, shape)| format!("{path} {shape:?}"))
                    .collect();
                let problem = format!(
                    "makes it `{kind}`, which needs parameters that `{}` was not trained with: {}",
                    self.trained.model.pe.kind(),
                    missing.join(", ")
                );
                let allowed = "an encoding with the trained parameters, or with none";
                let help = "evaluate a trained model only under encodings that add no parameters, \
                            or put the encoding on [axes] and train it";
                cell.error(&format!("{key}.set"), &problem, allowed, help)
            }
        }
    }
}

/// Whether the trained encoding's table has every key and value of a filter.
pub fn applies(when: &Table, pe: &Table) -> bool {
    when.iter()
        .all(|(key, value)| pe.get(key).is_some_and(|own| same(own, value)))
}

/// The trained encoding's table with `set` in it; a `set` with `kind` replaces it.
///
/// # Errors
///
/// The mistake, at a key of the encoding.
pub fn changed(pe: &Table, set: &Table) -> Result<EncodingConfig, Diagnostic> {
    deserialize(&with_set(pe, set), &Origins::of_whole("a variant"))
}

fn with_set(pe: &Table, set: &Table) -> Table {
    // Keys of one kind mean nothing to another, so none is kept.
    let mut table = if set.contains_key("kind") {
        Table::new()
    } else {
        pe.clone()
    };
    table.extend(set.clone());
    table
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
    let table = with_set(pe, &variant.set);
    let path = KeyPath::parse(key).unwrap_or_default();
    // Read once more at its place in the file, so that the error names the line.
    let mut whole = cell.table.clone();
    let placed = set(&mut whole, path.parts(), Value::Table(table)).is_ok();
    let refused = deserialize_at::<EncodingConfig>(&whole, &path, &cell.origins)
        .err()
        .filter(|_| placed);
    let error =
        refused.unwrap_or_else(|| cell.error(key, &format!("cannot be read: {problem}"), "", ""));
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
    let left_out = |error: &Diagnostic| match &error.problem {
        Problem::MissingKey { table, .. } => *table == here,
        _ => false,
    };
    let read = |table: &Table| match deserialize_at::<EncodingConfig>(table, &path, &cell.origins) {
        Err(error) if !left_out(&error) => Err(error),
        _ => Ok(()),
    };
    if when.contains_key("kind") {
        return read(&cell.table);
    }
    // Without `kind` some kind must have all the keys.
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
