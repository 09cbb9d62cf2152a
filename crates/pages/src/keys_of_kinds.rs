//! Tables of the keys that each kind of task, encoding, scaling and positions has: names and
//! meanings from the doc comments of the structs, defaults from their values.

use crate::markdown::{quoted, table};
use crate::sources::{Key, Kind, Sources, Table, bug};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use support::exit::Failure;
use syn::Expr;
use tasks::{Split, Windows};

/// The keys of one list of kinds.
pub struct KeysOfKinds<'a> {
    sources: &'a Sources,
    list: &'static str,
}

/// A key of a kind.
pub struct Row {
    /// Its name, dotted within a table.
    pub key: String,
    /// Its default as Markdown.
    pub default: String,
    /// What it means, with the names that it takes.
    pub meaning: String,
    /// The names that it takes, if it takes names.
    pub names: Vec<String>,
}

impl<'a> KeysOfKinds<'a> {
    /// The keys of the kinds in `list`, such as `TaskConfig`.
    pub fn new(sources: &'a Sources, list: &'static str) -> Self {
        Self { sources, list }
    }

    /// What the doc comment of a kind's struct says.
    ///
    /// # Errors
    ///
    /// [`Exit::Bug`](support::exit::Exit::Bug) if the kind has no struct, or a field no doc
    /// comment.
    pub fn doc(&self, kind: &str) -> Result<String, Failure> {
        Ok(self.table_of(kind)?.doc)
    }

    /// The keys of a kind as a Markdown table, with the defaults that `config` has.
    ///
    /// # Errors
    ///
    /// As [`Self::doc`].
    pub fn markdown<T: Serialize + Debug>(
        &self,
        kind: &str,
        config: Option<&T>,
    ) -> Result<String, Failure> {
        Ok(markdown(self.rows(kind, config)?))
    }

    /// The keys of a kind.
    ///
    /// # Errors
    ///
    /// As [`Self::doc`].
    pub fn rows<T: Serialize + Debug>(
        &self,
        kind: &str,
        config: Option<&T>,
    ) -> Result<Vec<Row>, Failure> {
        let defaults = Defaults::of(config)?;
        self.rows_of(&self.table_of(kind)?, &defaults)
    }

    /// The documentation of the module of a kind, by paragraphs.
    ///
    /// # Errors
    ///
    /// As [`Self::doc`].
    pub fn module(&self, kind: &str) -> Result<Vec<String>, Failure> {
        Ok(self.table_of(kind)?.module)
    }

    /// Whether a kind has a key without a default.
    ///
    /// # Errors
    ///
    /// As [`Self::doc`].
    pub fn requires_some(&self, kind: &str) -> Result<bool, Failure> {
        Ok(self.table_of(kind)?.keys.iter().any(|key| !key.has_default))
    }

    /// A configuration of a kind with its defaults, where a list without one may be empty.
    ///
    /// # Errors
    ///
    /// As [`Self::doc`].
    pub fn example<T: DeserializeOwned>(&self, kind: &str) -> Result<Option<T>, Failure> {
        let table = self.table_of(kind)?;
        let required = table.keys.iter().filter(|key| !key.has_default);
        let mut example = serde_json::Map::new();
        example.insert("kind".to_owned(), kind.into());
        for key in required.filter(|key| key.is_list) {
            example.insert(key.name.clone(), serde_json::Value::Array(Vec::new()));
        }
        Ok(serde_json::from_value(example.into()).ok())
    }

    fn table_of(&self, kind: &str) -> Result<Table, Failure> {
        let kinds = self.sources.kinds(self.list);
        let mut kinds = kinds.into_iter().flat_map(|list| &list.kinds);
        let listed = kinds.find(|listed| listed.name == kind);
        let table = listed.map(|listed| self.sources.table(&listed.table));
        let table = table.transpose()?.flatten();
        table.ok_or_else(|| bug(format!("`{}` has no struct for `{kind}`", self.list)))
    }

    fn rows_of(&self, table: &Table, defaults: &Defaults) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        for key in &table.keys {
            // What another kind explains is not repeated.
            let is_elsewhere = key.doc.starts_with("As in");
            let mut row = Row {
                key: key.name.clone(),
                default: self.default(key, defaults),
                meaning: key.doc.clone(),
                names: Vec::new(),
            };
            let names = self.sources.names(&key.holds).unwrap_or_default();
            row.names = names.iter().map(|name| name.written.clone()).collect();
            for name in names.iter().filter(|_| !is_elsewhere) {
                row.meaning += &format!(" `\"{}\"`: {}", name.written, name.doc);
            }
            let inner = if is_elsewhere {
                Vec::new()
            } else {
                self.tables_in(key, &mut row.meaning)?
            };
            rows.push(row);
            rows.extend(inner);
        }
        Ok(rows)
    }

    /// Rows for the keys of a table that is the value of a key, or a sentence that says where they
    /// are.
    fn tables_in(&self, key: &Key, meaning: &mut String) -> Result<Vec<Row>, Failure> {
        let of_text = self.sources.table(&key.holds)?;
        if let Some(table) = of_text.filter(|table| !table.keys.is_empty()) {
            let names: Vec<&str> = table.keys.iter().map(|key| key.name.as_str()).collect();
            *meaning += &format!(" Its keys: {}.", quoted(&names));
        }
        match key.holds.as_str() {
            "EncodingConfig" if key.is_list => *meaning += " A list of tables as `pe`.",
            "EncodingConfig" => *meaning += " A table as `pe`.",
            "RopeScaling" => *meaning += " A table with `kind`: [scalings](#scalings-of-rope).",
            _ => {}
        }
        let Some(list) = self.sources.kinds(&key.holds) else {
            return Ok(Vec::new());
        };
        let of = |kind: &str| match key.holds.as_str() {
            "Split" => Some(Defaults::of(Split::default_of(kind).as_ref())),
            "Windows" => Some(Defaults::of(Windows::default_of(kind).as_ref())),
            _ => None,
        };
        let mut rows = Vec::new();
        let each = list
            .kinds
            .iter()
            .map(|kind| format!("`\"{}\"`: {}", kind.name, kind.doc));
        let kinds: Vec<String> = each.collect();
        for kind in &list.kinds {
            let Some(defaults) = of(&kind.name) else {
                return Ok(Vec::new());
            };
            rows.extend(self.rows_within(key, &list.tag, kind, &defaults?)?);
        }
        let tag = Row {
            key: format!("{}.{}", key.name, list.tag),
            default: REQUIRED.to_owned(),
            meaning: kinds.join(" "),
            names: Vec::new(),
        };
        rows.insert(0, tag);
        Ok(rows)
    }

    /// The keys of one kind of a table that is the value of a key.
    fn rows_within(
        &self,
        key: &Key,
        tag: &str,
        kind: &Kind,
        defaults: &Defaults,
    ) -> Result<Vec<Row>, Failure> {
        let table = self.sources.table(&kind.table)?;
        let table = table.ok_or_else(|| bug(format!("`{}` has no struct", kind.name)))?;
        let rows = self.rows_of(&table, defaults)?.into_iter();
        let within = rows.map(|row| Row {
            key: format!("{}.{}", key.name, row.key),
            meaning: format!("With `{tag} = \"{}\"`: {}", kind.name, row.meaning),
            ..row
        });
        Ok(within.collect())
    }

    fn default(&self, key: &Key, defaults: &Defaults) -> String {
        if !key.has_default {
            return REQUIRED.to_owned();
        }
        let written = defaults.written.get(&key.name).filter(|_| !key.is_open);
        let text = match (written, defaults.all.get(&key.name)) {
            (Some(value), _) => Some(value.to_string()),
            (None, Some(value)) if !key.is_open => self.toml(key, value),
            _ => None,
        };
        text.map_or_else(|| NOT_SET.to_owned(), |text| format!("`{text}`"))
    }

    /// A value as TOML, from what `Debug` writes; none if it has no such form.
    fn toml(&self, key: &Key, value: &Expr) -> Option<String> {
        match value {
            Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Int(number) => Some(number.to_string()),
                syn::Lit::Float(number) => Some(number.to_string()),
                syn::Lit::Bool(truth) => Some(truth.value.to_string()),
                _ => None,
            },
            Expr::Unary(minus) => Some(format!("-{}", self.toml(key, &minus.expr)?)),
            // A number that may be a word.
            Expr::Call(call) => self.toml(key, call.args.first()?),
            Expr::Path(path) => {
                let variant = path.path.get_ident()?.to_string();
                let mut names = self.sources.names(&key.holds)?.iter();
                let name = names.find(|name| name.variant == variant)?;
                Some(format!("\"{}\"", name.written))
            }
            _ => None,
        }
    }
}

impl Row {
    /// Its cells.
    pub fn cells(self) -> Vec<String> {
        vec![format!("`{}`", self.key), self.default, self.meaning]
    }
}

/// Keys as a Markdown table.
pub fn markdown(rows: Vec<Row>) -> String {
    if rows.is_empty() {
        return "No keys.\n".to_owned();
    }
    let cells: Vec<Vec<String>> = rows.into_iter().map(Row::cells).collect();
    table(&["key", "default", "meaning"], &cells)
}

/// The default of a key that has none.
const REQUIRED: &str = "required";
/// The default of a key that may be absent.
pub const NOT_SET: &str = "not set";

/// The values of a configuration.
#[derive(Default)]
struct Defaults {
    /// Those that are written into a config.
    written: toml::Table,
    /// All of them, as Rust: what equals its default is often not written.
    all: BTreeMap<String, Expr>,
}

impl Defaults {
    fn of<T: Serialize + Debug>(config: Option<&T>) -> Result<Self, Failure> {
        let Some(config) = config else {
            return Ok(Self::default());
        };
        let written = toml::Table::try_from(config).map_err(Failure::bug)?;
        let parsed = syn::parse_str::<Expr>(&format!("{config:?}")).map_err(Failure::bug)?;
        // `Copy(CopyConfig { alphabet: 16, .. })`.
        let inner = match parsed {
            Expr::Call(call) => call.args.into_iter().next(),
            other => Some(other),
        };
        let mut all = BTreeMap::new();
        if let Some(Expr::Struct(fields)) = inner {
            for field in fields.fields {
                if let syn::Member::Named(name) = field.member {
                    all.insert(name.to_string(), field.expr);
                }
            }
        }
        Ok(Self { written, all })
    }
}
