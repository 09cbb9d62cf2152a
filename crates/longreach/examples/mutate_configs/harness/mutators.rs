//! What is done to a key, and whether the result has to be refused.

use super::schema::{self, Parent};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// What kind of value a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Whole,
    Number,
    /// A number, or `"auto"`.
    Factor,
    Truth,
    Text,
    List,
    Table,
}

impl Type {
    /// As the table of valid mutations calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "<whole>",
            Self::Number => "<number>",
            Self::Factor => "<factor>",
            Self::Truth => "<truth>",
            Self::Text => "<text>",
            Self::List => "<list>",
            Self::Table => "<table>",
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Whole | Self::Number | Self::Factor)
    }

    /// The type of a value, if nothing better is known.
    pub fn of(id: &str, value: &Value) -> Self {
        match value {
            _ if id.ends_with(".factor") && id != "scaling:dynamic_ntk.factor" => Self::Factor,
            Value::Integer(_) => Self::Whole,
            Value::Float(_) => Self::Number,
            Value::Boolean(_) => Self::Truth,
            Value::String(_) | Value::Datetime(_) => Self::Text,
            Value::Array(_) => Self::List,
            Value::Table(_) => Self::Table,
        }
    }
}

/// A key of a base, about to be mutated.
pub struct Target<'a> {
    pub table: &'a Table,
    pub path: &'a [String],
    pub value: &'a Value,
    pub id: &'a str,
    pub kind: Type,
    /// Chooses the letters that a misspelling hits.
    pub seed: u64,
}

/// How a mutant is given to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In the file.
    File,
    /// As `key=value` on the command line, over the file as it was.
    Argument,
}

/// A mutated config.
pub struct Mutant {
    pub text: String,
    pub overrides: Vec<String>,
    /// Dotted paths of which a refusal has to name one.
    pub named: Vec<String>,
    /// Whether the refusal may point at the file although an argument was mutated: at what no
    /// longer fits it.
    pub elsewhere: bool,
}

/// What a mutator does.
pub enum Change {
    /// Puts this text in the place of the value.
    Raw(String),
    /// The key under another name.
    Rename(String),
    /// A key beside this one.
    Sibling(String),
    /// A key below this one, which holds no table.
    Below(String),
    Duplicate,
    Delete,
}

type Make = fn(&Target<'_>) -> Option<Change>;

/// The mutators by name.
pub const MUTATORS: &[(&str, Make)] = &[
    ("misspelt", |t| {
        Some(Change::Rename(misspell(t.path.last()?, t.seed)?))
    }),
    ("in capitals", |t| {
        Some(Change::Rename(key(t)?.to_uppercase()))
    }),
    ("with a control character in the key", |t| {
        Some(Change::Rename(format!("{}\u{1}", key(t)?)))
    }),
    ("unknown key beside it", |t| {
        Some(Change::Sibling(key(t).map(|_| "zz_unknown".to_owned())?))
    }),
    ("unknown key below it", |t| {
        (t.kind != Type::Table && key(t).is_some()).then(|| Change::Below("zz_unknown".to_owned()))
    }),
    ("given twice", |t| key(t).map(|_| Change::Duplicate)),
    ("deleted", |_| Some(Change::Delete)),
    ("a text", |_| raw("\"many\"")),
    ("a word without quotes", |_| raw("many")),
    ("a number in quotes", |t| {
        t.kind
            .is_number()
            .then(|| Change::Raw(format!("\"{}\"", inline(t.value))))
    }),
    ("true", |_| raw("true")),
    ("True", |_| raw("True")),
    ("a list", |_| raw("[true]")),
    ("a list of lists", |_| raw("[[1, 2], [3]]")),
    ("an empty list", |_| raw("[]")),
    ("the value in a list", |t| {
        (t.kind != Type::List).then(|| Change::Raw(format!("[{}]", inline(t.value))))
    }),
    ("a table", |_| raw("{ zz_unknown = 1 }")),
    ("an empty table", |_| raw("{}")),
    ("the value in a table", |t| {
        Some(Change::Raw(format!(
            "{{ zz_unknown = {} }}",
            inline(t.value)
        )))
    }),
    ("a date", |_| raw("2026-01-01")),
    ("a time", |_| raw("07:32:00")),
    ("a decimal", |t| {
        (t.kind == Type::Whole).then(|| Change::Raw(format!("{}.0", inline(t.value))))
    }),
    ("a fraction", |t| {
        (t.kind != Type::Number && t.kind != Type::Factor).then(|| Change::Raw("1.5".to_owned()))
    }),
    ("negated", |t| match t.value {
        Value::Integer(n) if *n != 0 => Some(Change::Raw(n.saturating_neg().to_string())),
        Value::Float(x) if *x != 0.0 => Some(Change::Raw(format!("{:?}", -x))),
        _ => None,
    }),
    ("-1", |_| raw("-1")),
    ("zero", |_| raw("0")),
    ("2^40", |_| raw("1099511627776")),
    ("largest whole number", |_| raw("9223372036854775807")),
    ("least whole number", |_| raw("-9223372036854775808")),
    ("beyond whole numbers", |_| raw("99999999999999999999")),
    ("1e308", |_| raw("1e308")),
    ("1e-320", |_| raw("1e-320")),
    ("1e400", |_| raw("1e400")),
    ("nan", |_| raw("nan")),
    ("inf", |_| raw("inf")),
    ("-inf", |_| raw("-inf")),
    ("an empty text", |_| raw("\"\"")),
    ("a blank text", |_| raw("\"  \"")),
    ("a text with NUL", |_| raw("\"a\\u0000b\"")),
    ("a text with escapes", |_| raw("\"a\\u001b[31mb\\n\"")),
    ("a text that turns around", |_| raw("\"a\\u202Eb\"")),
    ("a text of 100 kB", |_| {
        Some(Change::Raw(format!("\"{}\"", "x".repeat(100_000))))
    }),
    ("../..", |_| raw("\"../../x\"")),
    ("an absolute path", |_| raw("\"/etc/longreach\"")),
    ("a name of a device", |_| raw("\"con\"")),
    ("a name that ends in a dot", |_| raw("\"a.\"")),
    ("a value in capitals", |t| {
        t.value
            .as_str()
            .map(|text| Change::Raw(format!("{:?}", text.to_uppercase())))
            .filter(|_| t.kind == Type::Text)
    }),
    ("lists 100 deep", |_| {
        Some(Change::Raw(format!(
            "{}1{}",
            "[".repeat(100),
            "]".repeat(100)
        )))
    }),
    ("tables 100 deep", |_| {
        Some(Change::Raw(format!(
            "{}1{}",
            "{ a = ".repeat(100),
            " }".repeat(100)
        )))
    }),
    ("tables 60 deep", |_| {
        Some(Change::Raw(format!(
            "{}1{}",
            "{ part = ".repeat(60),
            " }".repeat(60)
        )))
    }),
    ("1001 values", |_| {
        Some(Change::Raw(format!(
            "[{}]",
            (1..=1001)
                .map(|i| i.to_string())
                .collect::<Vec<_>>()
                .join(", ")
        )))
    }),
    ("a value twice", |t| match t.value {
        Value::Array(array) => array
            .first()
            .map(|first| Change::Raw(format!("[{0}, {0}]", inline(first)))),
        _ => None,
    }),
    ("an open quote", |_| raw("\"abc")),
    ("two values", |_| raw("1 2")),
];

fn raw(text: &str) -> Option<Change> {
    Some(Change::Raw(text.to_owned()))
}

/// The key, unless it is the number of an element.
fn key<'a>(target: &Target<'a>) -> Option<&'a str> {
    target
        .path
        .last()
        .map(String::as_str)
        .filter(|key| key.parse::<usize>().is_err())
}

/// One letter dropped, doubled, swapped with the next, or replaced.
fn misspell(word: &str, seed: u64) -> Option<String> {
    if word.parse::<usize>().is_ok() {
        return None;
    }
    let mut letters: Vec<char> = word.chars().collect();
    let at = (seed / 4) as usize % letters.len().max(1);
    match seed % 4 {
        0 if letters.len() > 2 => drop(letters.remove(at)),
        1 if at + 1 < letters.len() && letters.get(at) != letters.get(at + 1) => {
            letters.swap(at, at + 1)
        }
        2 => letters.insert(at, 'q'),
        _ => letters.insert(at, *letters.get(at)?),
    }
    Some(letters.into_iter().collect())
}

/// A value as TOML on one line.
pub fn inline(value: &Value) -> String {
    match value {
        Value::Array(array) => format!(
            "[{}]",
            array.iter().map(inline).collect::<Vec<_>>().join(", ")
        ),
        Value::Table(table) if table.is_empty() => "{}".to_owned(),
        Value::Table(table) => {
            let entries = table.iter().map(|(key, value)| {
                format!(
                    "{} = {}",
                    schema::dotted(std::slice::from_ref(key)),
                    inline(value)
                )
            });
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => config::diagnostic::quoted(text),
        Value::Float(number) => format!("{number:?}"),
        other => other.to_string(),
    }
}

/// The mutant, or `None` where the mutator does not fit the key or the form.
#[expect(clippy::too_many_lines, reason = "one arm per mutator")]
pub fn mutate(base: &str, target: &Target<'_>, make: Make, form: Form) -> Option<Mutant> {
    let change = make(target)?;
    let path = target.path;
    let beside = |name: &String| {
        path.split_last().map(|(_, above)| {
            above
                .iter()
                .cloned()
                .chain([name.clone()])
                .collect::<Vec<_>>()
        })
    };
    let moved = match &change {
        Change::Rename(name) | Change::Sibling(name) => beside(name)?,
        Change::Below(name) => path.iter().cloned().chain([name.clone()]).collect(),
        _ => path.to_vec(),
    };
    let mut named: Vec<String> = vec![
        schema::dotted(&moved),
        schema::dotted(&schema::live(&moved)),
    ];
    // A renamed key is also a missing one.
    if matches!(change, Change::Rename(_)) {
        named.extend([schema::dotted(path), schema::dotted(&schema::live(path))]);
    }
    // An element may be named by its list: the place has its column.
    if path
        .last()
        .is_some_and(|part| part.parse::<usize>().is_ok())
    {
        named.extend(
            path.split_last()
                .map(|(_, list)| schema::dotted(&schema::live(list))),
        );
        named.extend(path.split_last().map(|(_, list)| schema::dotted(list)));
    }
    let gone =
        matches!(&change, Change::Delete) || matches!(&change, Change::Raw(value) if value == "{}");
    let number = matches!(&change, Change::Raw(value) if value.parse::<f64>().is_ok());
    // The error for a missing required key of a variant names the variant.
    if let [eval, variants, number, ..] = path
        && gone
        && variants == "variants"
    {
        named.push(format!("{eval}.{variants}.{number}"));
    }
    // An error about two keys may name the other one.
    let related: &[&str] = match target.id {
        "seeds[]" if number && target.table.contains_key("half_seeds") => &["half_seeds"],
        // A stop needs one of the two, and neither is named as the missing one.
        "train.stop.at_least" | "train.stop.at_most" if gone => &["train.stop"],
        // More runs than are allowed.
        "axis" => &["axes"],
        "model.attention" if gone => &["model.feature_map", "model.normalizer"],
        "scaling:yarn.mscale_all_dim" if gone => &["model.pe.scaling.mscale"],
        "pe:log_scaling.form" if gone => &["model.pe.init_scale", "model.pe.strength"],
        // Only tau = "auto" has a length: with a number in its place the length is one too many.
        "scaling:evq_cosh.tau" if gone || number => {
            &["model.pe.scaling.original_max_position_embeddings"]
        }
        // Names that other keys of the automaton have.
        "task:automaton.symbols"
        | "task:automaton.symbols[]"
        | "task:automaton.states"
        | "task:automaton.states[]" => &["task.transitions", "task.start", "task.accepting"],
        "task:automaton.language" => &["task.symbols"],
        // Words of the answer's lengths that are all rejected.
        "task:automaton.accepting" | "task:automaton.accepting[]" => &["task.answer"],
        // The words asked for must stand more often than the others.
        "task:frequent_words.words" | "task:frequent_words.alpha" => &["task.top"],
        // Numbers that no formula reads, and the formula that reads a name without a number.
        "pe:formula.bias" => &["model.pe.values.s", "model.pe.train.m"],
        "pe:formula.values" | "pe:formula.train" if gone => &["model.pe.bias"],
        "pe:by_head.parts" | "pe:by_head.parts[]" => &["model.pe.heads"],
        "pe:by_layer.parts[]" if gone => &["model.pe.pattern", "model.pe.pattern.1"],
        "positions:randomized.max_position" if gone => &["train.stages.0.pe.max_position"],
        // A file with the default name is missing, and the error names the list that is written.
        "task:jsonl.train" if gone => &["task.test"],
        "task:jsonl.test" if gone => &["task.train"],
        // Without stages, what asks for them.
        "train.stages" => &["train.length"],
        // Coordinates of segments without ends.
        "task:text.segment_ends" => &["model.coordinates"],
        "task:text.files" if gone => &["task.split.valid"],
        // A fraction so small that the split is empty: the error names the files.
        "split:range.valid_fraction" => &["task.files", "task.text.files"],
        // The error names the file whose line lacks this key.
        "task:jsonl.prompt" | "task:jsonl.answer" | "task:jsonl.length" => {
            &["task.train", "task.test"]
        }
        _ => &[],
    };
    named.extend(related.iter().map(|key| (*key).to_owned()));
    named.dedup();
    if form == Form::Argument {
        let argument = |path: &[String], value: &str| format!("{}={value}", schema::dotted(path));
        let given = match &change {
            Change::Raw(value) => argument(path, value),
            Change::Rename(_) | Change::Sibling(_) | Change::Below(_) => {
                argument(&moved, &inline(target.value))
            }
            Change::Duplicate | Change::Delete => return None,
        };
        // One argument of a command line is at most 128 KiB.
        return (given.len() < 128 << 10).then(|| Mutant {
            text: base.to_owned(),
            overrides: vec![given],
            named,
            elsewhere: gone || !related.is_empty(),
        });
    }
    const MARK: &str = "@@MARK@@";
    let mut table = target.table.clone();
    let before = |table: &Table| toml::to_string(table).ok();
    let text = match change {
        Change::Raw(value) => {
            schema::set(&mut table, path, Value::String(MARK.to_owned()));
            before(&table)?.replacen(&format!("\"{MARK}\""), &value, 1)
        }
        Change::Rename(name) => {
            if let Parent::Table(parent) = schema::parent(&mut table, path)? {
                let last = path.last()?;
                let entries = std::mem::take(parent)
                    .into_iter()
                    .map(|(key, value)| (if key == *last { name.clone() } else { key }, value));
                *parent = entries.collect();
            }
            before(&table)?
        }
        Change::Sibling(_) => {
            schema::set(&mut table, &moved, Value::Integer(1));
            before(&table)?
        }
        Change::Delete => {
            match schema::parent(&mut table, path)? {
                Parent::Table(parent) => drop(parent.remove(path.last()?)),
                Parent::Array(array) => drop(array.remove(path.last()?.parse().ok()?)),
            }
            before(&table)?
        }
        Change::Duplicate | Change::Below(_) => {
            schema::set(&mut table, path, Value::String(MARK.to_owned()));
            let text = before(&table)?;
            let (head, tail) = text.split_once(&format!("\"{MARK}\""))?;
            let start = head
                .trim_end_matches(" = ")
                .rfind(['\n', ' ', '{', ','])
                .map_or(0, |at| at + 1);
            let (key, value) = (
                head.get(start..)?.trim_end_matches(" = "),
                inline(target.value),
            );
            let separator = if head.lines().last()?.contains('{') {
                ", "
            } else {
                "\n"
            };
            let again = if matches!(change, Change::Duplicate) {
                key.to_owned()
            } else {
                format!("{key}.zz_unknown")
            };
            format!("{head}{value}{separator}{again} = {value}{tail}")
        }
    };
    Some(Mutant {
        text,
        overrides: Vec::new(),
        named,
        elsewhere: false,
    })
}

/// Types of keys by their place in the schema, from the bases that write decimals as decimals.
pub fn types(bases: &[super::bases::Base]) -> BTreeMap<String, Type> {
    let mut out = BTreeMap::new();
    for base in bases {
        for path in &base.keys {
            let id = schema::id(&base.table, path);
            if let Some(value) = schema::find(&base.table, path) {
                let kind = Type::of(&id, value);
                out.entry(id).or_insert(kind);
            }
        }
    }
    out
}
