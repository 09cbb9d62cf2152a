//! `--variant` of `longreach eval`: encodings to evaluate a trained run under.

use config::diagnostic::{Diagnostic, Location, Problem, TableName};
use config::diagnostic::{describe_value, deserialize_at, table_without_null, type_name};
use config::key_path::KeyPath;
use config::origins::Origins;
use experiment::plan::hints::of_other_encodings;
use experiment::plan::variant_rules::{Refusal, Trained, VariantRequest};
use experiment::plan::variants::{additions, dropped, dropped_note, keeping, read_additions};
use experiment::plan::variation::{applies, changed};
use experiment::spec::{RunSpec, TRAINED, VariantSpec};
use posenc::{ConfigError, PositionsConfig};
use std::collections::BTreeMap;
use std::path::Path;
use support::exit::Failure;
use tasks::Task;
use toml::{Table, Value};

/// The trained encoding, then each asked for; the keys of each that follow the length; and notes on
/// those asked for.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) for a variant that does not fit the run.
pub fn variants(
    spec: &RunSpec,
    task: &dyn Task,
    lengths: &[usize],
    asked: &[String],
) -> Result<(Vec<VariantSpec>, ByLength, Vec<String>), Failure> {
    let trained = Trained {
        model: &spec.model,
        train: &spec.train,
        task,
        test_lens: lengths,
    };
    let (mut notes, mut by_length) = (Vec::new(), ByLength::new());
    let mut variants = vec![VariantSpec {
        name: TRAINED.to_owned(),
        pe: vec![spec.model.pe.clone(); lengths.len()],
        positions: Vec::new(),
    }];
    for text in asked {
        let argument = Argument(text);
        let table = parse_variant(text).map_err(|problem| argument.fail(&problem, SYNTAX))?;
        let Some(asked) = argument.read(&table, spec, &mut notes)? else {
            continue;
        };
        let (pe, positions) = trained
            .resolve(&asked)
            .map_err(|refusal| argument.refused(refusal))?;
        if positions.is_empty() && pe.iter().all(|pe| *pe == spec.model.pe) {
            return Err(argument.fail("changes nothing of the trained encoding", SYNTAX));
        }
        let name = argument.name(&table, &variants)?;
        let keys = Some(trained.by_length(&asked)).filter(|keys| !keys.is_empty());
        by_length.extend(keys.map(|keys| (name.clone(), keys)));
        let shape = spec.model.transformer.shape();
        // Parts of the trained encoding that the variant no longer has are worth a note.
        let kinds = pe.first().map_or(Vec::new(), |encoding| {
            dropped(&table.set, &spec.model.pe, encoding, &shape)
        });
        if let (Some(encoding), false) = (pe.first(), kinds.is_empty()) {
            let keeping = match table.add {
                None => keeping(&table.set, &spec.model.pe, encoding, &shape),
                Some(_) => None,
            };
            notes.push(dropped_note(&name, &kinds, keeping.as_deref()));
        }
        variants.push(VariantSpec {
            name,
            pe,
            positions,
        });
    }
    Ok((variants, by_length, notes))
}

/// Dotted keys of encodings, by variant.
pub type ByLength = BTreeMap<String, Vec<String>>;

const SYNTAX: &str =
    "write TOML such as 'scaling = { kind = \"yarn\" }', or the path of a .toml file with it";

/// The text of one `--variant`.
struct Argument<'a>(&'a str);

impl Argument<'_> {
    fn fail(&self, problem: &str, help: &str) -> Failure {
        let text = self.0;
        Failure::config(format!("--variant {text}: {problem}")).with_help(help)
    }

    /// What is wrong with an encoding as it is written, as a config would have it.
    fn misread(&self, mut error: Diagnostic, trained: &str, help: &str) -> Failure {
        error.place = Location::argument(format!("--variant {}", self.0));
        let mut of_others = None;
        if let Problem::UnknownKey { name, table, .. } = &mut error.problem
            && *table == TableName::Document
        {
            *table = TableName::Named(format!("the trained encoding `{trained}`"));
            of_others = of_other_encodings(name, trained)
                .map(|which| format!("{which} (`--where pe=NAME` evaluates runs of one); "));
        }
        let own = error.help.take().filter(|_| of_others.is_none());
        let help = of_others.unwrap_or_default() + own.as_deref().unwrap_or(help);
        error.with_help(help).into()
    }

    fn invalid(&self, error: ConfigError) -> Failure {
        let ConfigError {
            key,
            value,
            problem,
            allowed,
            hint,
        } = error;
        let text = self.0;
        Failure::config(format!(
            "--variant {text}: `{key}` {problem}\n  = value: {value}"
        ))
        .with_allowed(allowed)
        .with_help(hint)
    }

    /// What is asked for; `None` with a note if the variant is for other encodings.
    fn read(
        &self,
        table: &Variant,
        spec: &RunSpec,
        notes: &mut Vec<String>,
    ) -> Result<Option<VariantRequest>, Failure> {
        let kind = spec.model.pe.kind();
        let pe = serde_json::to_value(&spec.model.pe)
            .ok()
            .and_then(|value| table_without_null(&value))
            .ok_or_else(|| self.fail("the trained encoding is not a table", SYNTAX))?;
        if !applies(&table.when, &pe) {
            let name = table.name.clone().unwrap_or_else(|| default_name(table));
            let when = describe_value(&Value::Table(table.when.clone()));
            notes.push(format!(
                "variant `{name}` is left out: it is for when = {when}, and the run was trained \
                 with `{kind}`"
            ));
            return Ok(None);
        }
        let base = changed(&pe, &table.set).map_err(|error| {
            let help = "give keys of the trained encoding, a whole encoding with `kind`, or add = \
                        { kind = ... } to stack one on it";
            self.misread(error, kind, help)
        })?;
        let added = table.add.as_ref().map(read_additions).transpose();
        let added = added.map_err(|error| {
            let help = "write add = { kind = \"window\" }, or a list of such tables";
            self.misread(error, kind, help)
        })?;
        Ok(Some(VariantRequest {
            base,
            before: None,
            add: table.add.clone(),
            added: added.unwrap_or_default(),
            positions: table.positions.clone(),
        }))
    }

    /// The error of a variant that breaks a rule.
    fn refused(&self, refusal: Refusal) -> Failure {
        match refusal {
            Refusal::Set(error) | Refusal::Positions(error) => {
                self.fail(&error.to_string(), &error.hint)
            }
            Refusal::Add(error) => self.invalid(error),
            Refusal::Model(error) => self.invalid(error.within("model")),
            Refusal::Untrained(_, missing) => {
                let missing: Vec<String> = missing
                    .iter()
                    .map(|(path, shape)| format!("{path} {shape:?}"))
                    .collect();
                let problem = format!(
                    "needs the parameter {}, which the run was not trained with",
                    missing.join(", ")
                );
                let help = "choose an encoding that adds no parameters, or train with it";
                self.fail(&problem, help)
            }
        }
    }

    /// The variant's name: as given, else its kind, else the whole text.
    fn name(&self, table: &Variant, variants: &[VariantSpec]) -> Result<String, Failure> {
        let is_free = |name: &str| variants.iter().all(|other| other.name != name);
        let named = table.name.clone().unwrap_or_else(|| default_name(table));
        let name = if table.name.is_some() || is_free(&named) {
            named
        } else {
            self.0.trim().replace('\n', ", ")
        };
        if is_free(&name) {
            return Ok(name);
        }
        let help = "give each variant another name: a line name = \"...\" before the others, or in \
                    its .toml file";
        Err(self.fail(&format!("another variant is named `{name}` already"), help))
    }
}

/// A variant from the command line.
struct Variant {
    name: Option<String>,
    when: Table,
    set: Table,
    add: Option<Value>,
    positions: Option<PositionsConfig>,
}

/// The TOML of a variant: that of a file if it is named, else the argument itself.
fn variant_text(argument: &str) -> Result<String, String> {
    let path = Path::new(argument);
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Ok(argument.to_owned());
    }
    // Opening a pipe would wait for its other end.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        return Err(format!("{} is not a regular file", path.display()));
    }
    fs_err::read_to_string(path).map_err(|error| error.to_string())
}

fn parse_variant(text: &str) -> Result<Variant, String> {
    let mut table: Table = variant_text(text)?
        .parse()
        .map_err(|error: toml::de::Error| error.message().to_owned())?;
    // Keys of the variant are taken out first; what is left are keys of the encoding.
    let name = match table.remove("name") {
        None => None,
        Some(Value::String(name)) if !name.trim().is_empty() => Some(name),
        Some(_) => return Err("`name` must be a text that is not empty".to_owned()),
    };
    let positions = match table.remove("positions") {
        None => None,
        Some(value) => {
            let value = Table::from_iter([("positions".to_owned(), value)]);
            let (path, origins) = (KeyPath::new(["positions"]), Origins::of_whole("a variant"));
            let read = deserialize_at(&value, &path, &origins);
            Some(read.map_err(|error: Diagnostic| match &error.help {
                Some(help) => format!("{}; {help}", error.problem),
                None => error.problem.to_string(),
            })?)
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

/// The kinds of what a variant sets, of its additions and of its positions.
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
    names.extend(variant.positions.as_ref().map(|p| p.kind().to_owned()));
    names.join("+")
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
