//! The configuration of a formula: what it must satisfy, and its numbers in f64.

use crate::ConfigError;
use crate::expression::{Expression, Function};
use crate::facts::ModelShape;
use schema::in_range;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// `kind = "formula"`. A config that is read has at least one formula.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, remote = "Self")]
#[non_exhaustive]
pub struct FormulaConfig {
    /// Formula that is added to the logits: of the distance d, the query's position t, the head h
    /// of H and the layer l of N, both from 1; at most 500 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
    /// Formula for the angle per position of pair i of a head, from 0, of E dimensions; at most 500
    /// characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inv_freq: Option<String>,
    /// Table of numbers that the formulas name, -1e30 to 1e30: one for all heads, or a list with
    /// one for each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Numbers>,
    /// Table of numbers that are trained, one for each head, by the value that they start from,
    /// -1e30 to 1e30.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub train: BTreeMap<String, f64>,
}

impl Serialize for FormulaConfig {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for FormulaConfig {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let read = Self::deserialize(deserializer)?;
        if read.bias.is_none() && read.inv_freq.is_none() {
            return Err(D::Error::custom(
                "needs `bias`, `inv_freq` or both, such as bias = \"-0.1 * d\"",
            ));
        }
        Ok(read)
    }
}

/// A number for all heads, or one for each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "must be a number or a list of numbers")]
pub enum Numbers {
    /// For all heads.
    One(f64),
    /// For each head.
    Each(Vec<f64>),
}

impl Numbers {
    pub(super) fn all(&self) -> &[f64] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Each(values) => values,
        }
    }
}

impl FormulaConfig {
    pub(super) fn bias(&self) -> Result<Option<Expression>, ConfigError> {
        let read = |text: &String| self.read("bias", text, &OF_BIAS);
        self.bias.as_ref().map(read).transpose()
    }

    pub(super) fn inv_freq(&self) -> Result<Option<Expression>, ConfigError> {
        let read = |text: &String| self.read("inv_freq", text, &OF_FREQUENCY);
        self.inv_freq.as_ref().map(read).transpose()
    }

    /// Whether the bias names one of the config's own quantities.
    pub(super) fn bias_reads(&self, name: &str) -> bool {
        let bias = self.bias().ok().flatten();
        bias.is_some_and(|bias| bias.names().contains(name))
    }

    /// The value of a name that the config gives, for a head from 0.
    fn given(&self, name: &str, head: usize) -> f64 {
        let given = self.values.get(name).map(Numbers::all);
        let own = given.and_then(|values| values.get(head).or(values.first()));
        own.or(self.train.get(name)).copied().unwrap_or(f64::NAN)
    }

    /// The numbers of a name in one of the tables, as a config has them.
    fn written(&self, table: &str, name: &str) -> String {
        match (table, self.values.get(name), self.train.get(name)) {
            ("values", Some(Numbers::One(value)), _) | (_, _, Some(value)) => value.to_string(),
            (_, numbers, _) => format!("{:?}", numbers.map_or(&[][..], Numbers::all)),
        }
    }

    /// The bias of a pair in f64, at the values that training starts from; `head` and `layer` from
    /// 0.
    pub(super) fn bias_at(
        &self,
        bias: &Expression,
        shape: &ModelShape,
        [d, t]: [f64; 2],
        [head, layer]: [usize; 2],
    ) -> f64 {
        bias.value(&|x| x, &|name| match name {
            "d" => d,
            "t" => t,
            "h" => head as f64 + 1.0,
            "H" => shape.n_heads as f64,
            "l" => layer as f64 + 1.0,
            "N" => shape.n_layers as f64,
            given => self.given(given, head),
        })
    }

    pub(super) fn frequencies(&self, inv_freq: &Expression, head_dim: usize) -> Vec<f64> {
        let of_pair = |pair: usize| {
            inv_freq.value(&|x| x, &|name| match name {
                "i" => pair as f64,
                "E" => head_dim as f64,
                given => self.given(given, 0),
            })
        };
        (0..head_dim / 2).map(of_pair).collect()
    }
}

/// What a bias may name beside the config's own values.
const OF_BIAS: [&str; 6] = ["d", "t", "h", "H", "l", "N"];
/// What a frequency may name.
const OF_FREQUENCY: [&str; 2] = ["i", "E"];
/// What attention computes with, so that the error can say that no formula reads it.
const CONTENT: [&str; 9] = [
    "q", "k", "v", "x", "query", "key", "value", "hidden", "logits",
];
/// Distances at which a bias must be a number or minus infinity, beside those up to [`NEAR`].
const FAR: [f64; 4] = [128.0, 512.0, 1024.0, 4096.0];
const NEAR: u32 = 64;
/// How far before a distance, or at which position, the query is where its position is read.
const BEFORE: [f64; 3] = [0.0, 1.0, 7.0];

/// Numbers that f32 holds with room for what formulas do to them.
const FINITE: RangeInclusive<f64> = -1e30..=1e30;

impl FormulaConfig {
    /// The formula of `key`, whose names are known.
    fn read(&self, key: &str, text: &str, own: &[&str]) -> Result<Expression, ConfigError> {
        let refuse = |problem: String, allowed: String, hint: &str| {
            let text = format!("{text:?}");
            Err(ConfigError::new(key, text, problem, allowed, hint))
        };
        let read = match Expression::read(text) {
            Ok(read) => read,
            Err(misread) => {
                let problem = format!("{}, at character {}", misread.problem, misread.at);
                let functions: Vec<&str> = Function::names().collect();
                let allowed = format!("numbers, names, + - * / ^ ( ), {}", functions.join(", "));
                return refuse(problem, allowed, "an example: -m * log(1 + d)");
            }
        };
        let given = self.values.keys().chain(self.train.keys());
        let given = given.map(String::as_str);
        let given = given.filter(|name| !own.contains(name));
        let known: Vec<&str> = own.iter().copied().chain(given).collect();
        let Some(unknown) = read.names().into_iter().find(|name| !known.contains(name)) else {
            return Ok(read);
        };
        let hint = if CONTENT.contains(&unknown) {
            "formulas read positions only: an encoding that reads content is written in PyTorch \
             for longreach.bench, or in Rust"
        } else if key == "inv_freq" {
            "give it a number in `values`"
        } else {
            "give it a number in `values`, or in `train` one to start from"
        };
        let problem = format!("reads `{unknown}`, which has no value");
        refuse(problem, known.join(", "), hint)
    }

    pub(super) fn check_names(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        self.check_taken()?;
        // Names are not looked up yet: unused ones are reported before unknown ones.
        let read = |text: &Option<String>| Expression::read(text.as_deref()?).ok();
        let [bias, inv_freq] = [read(&self.bias), read(&self.inv_freq)];
        let reads = |formula: &Option<Expression>, name: &str| {
            let read = formula.as_ref();
            read.is_some_and(|read| read.names().contains(name))
        };
        let keys = self.values.keys().map(|name| ("values", name));
        for (table, name) in keys.chain(self.train.keys().map(|name| ("train", name))) {
            let key = format!("{table}.{name}");
            let refuse = |problem: &str, allowed: &str, hint: &str| {
                let given = self.written(table, name);
                Err(ConfigError::new(&key, given, problem, allowed, hint))
            };
            if table == "values" && self.train.contains_key(name) {
                let hint = "keep one of the two: what is trained stays in `train`";
                return refuse("is in `train` too", "a name in one table", hint);
            }
            let are_read = [(&self.bias, &bias), (&self.inv_freq, &inv_freq)];
            let are_read = are_read
                .iter()
                .all(|(text, read)| text.is_some() == read.is_some());
            if are_read && !reads(&bias, name) && !reads(&inv_freq, name) {
                let hint = "remove it, or use it in a formula";
                return refuse("is read by no formula", "names that a formula reads", hint);
            }
            if reads(&inv_freq, name)
                && (table == "train" || matches!(self.values.get(name), Some(Numbers::Each(_))))
            {
                let hint = "frequencies are the same for all heads, and are not trained";
                let problem = "is read by inv_freq, which takes one number";
                return refuse(problem, "one number in `values`", hint);
            }
        }
        self.bias()?;
        self.inv_freq()?;
        for (name, start) in &self.train {
            in_range(&format!("train.{name}"), *start, FINITE, "an example: 0.5")?;
        }
        for (name, numbers) in &self.values {
            for (head, value) in numbers.all().iter().enumerate() {
                let head = matches!(numbers, Numbers::Each(_)).then(|| format!(".{head}"));
                let key = format!("values.{name}{}", head.unwrap_or_default());
                in_range(&key, *value, FINITE, "an example: 0.5")?;
            }
            if matches!(numbers, Numbers::Each(values) if values.len() != shape.n_heads) {
                return Err(ConfigError::new(
                    format!("values.{name}"),
                    format!("{:?}", numbers.all()),
                    format!(
                        "has {} numbers for {} heads",
                        numbers.all().len(),
                        shape.n_heads
                    ),
                    format!("a number, or {} numbers", shape.n_heads),
                    "give one number per head",
                ));
            }
        }
        Ok(())
    }

    /// Refuses another start of a number that was trained: a variant has the trained one.
    pub(super) fn check_starts(&self, trained: &Self) -> Result<(), ConfigError> {
        let known = |name: &String| trained.train.get(name).copied();
        let mut starts = self.train.iter();
        match starts.find(|(name, start)| known(name).is_some_and(|known| known != **start)) {
            None => Ok(()),
            Some((name, start)) => Err(ConfigError::new(
                format!("train.{name}"),
                start,
                "is a start value for training, but a variant keeps the trained value",
                format!("the start of the training, {}", trained.train[name]),
                "another encoding in its place may have another number: set = { kind = \
                 \"formula\", ... }",
            )),
        }
    }

    /// Refuses names that formulas have already.
    fn check_taken(&self) -> Result<(), ConfigError> {
        let keys = self.values.keys().map(|name| ("values", name));
        for (table, name) in keys.chain(self.train.keys().map(|name| ("train", name))) {
            let own = OF_BIAS.into_iter().chain(OF_FREQUENCY);
            if own.chain(Function::names()).any(|taken| taken == name) {
                return Err(ConfigError::new(
                    format!("{table}.{name}"),
                    self.written(table, name),
                    "has a meaning already",
                    "any other name",
                    "choose another name",
                ));
            }
        }
        Ok(())
    }

    /// Refuses a bias that is not a number at some pair, or hides all pairs of a head.
    pub(super) fn check_bias(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        let (Some(bias), Some(text)) = (self.bias()?, &self.bias) else {
            return Ok(());
        };
        let names = bias.names();
        let layers = if names.contains("l") {
            shape.n_layers
        } else {
            1
        };
        let before = if names.contains("t") {
            &BEFORE[..]
        } else {
            &BEFORE[..1]
        };
        let refuse = |problem: String, allowed: &str, hint: &str| {
            let text = format!("{text:?}");
            Err(ConfigError::new("bias", text, problem, allowed, hint))
        };
        let places =
            (0..layers).flat_map(|layer| (0..shape.n_heads).map(move |head| [head, layer]));
        for [head, layer] in places {
            let mut hides_all = true;
            let distances = (0..=NEAR).map(f64::from).chain(FAR);
            for [d, t] in distances.flat_map(|d| before.iter().map(move |more| [d, d + more])) {
                let value = self.bias_at(&bias, shape, [d, t], [head, layer]);
                // Near distances in f32, as the model computes them. Far ones in f64: a test that
                // overflows f32 is recorded as diverged, and shorter tests may still run.
                let value = if d <= f64::from(NEAR) {
                    f64::from(value as f32)
                } else {
                    value
                };
                hides_all &= value == f64::NEG_INFINITY;
                if value.is_nan() || value == f64::INFINITY {
                    let (head, layer) = (head + 1, layer + 1);
                    return refuse(
                        format!("is {value} at d = {d}, t = {t} in head {head} of layer {layer}"),
                        "a number, or -inf for a pair that is hidden",
                        if d == 0.0 {
                            "log(1 + d) is defined at d = 0, 1 / d is not"
                        } else {
                            "min(x, 1e9) and max(x, 0) keep a value inside what is defined"
                        },
                    );
                }
            }
            if hides_all {
                let problem = format!(
                    "hides every pair in head {} of layer {}",
                    head + 1,
                    layer + 1
                );
                return refuse(
                    problem,
                    "a number at some distance",
                    "an example: -log(1 + d)",
                );
            }
        }
        Ok(())
    }

    pub(super) fn check_frequencies(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        if let (Some(inv_freq), Some(text)) = (self.inv_freq()?, &self.inv_freq) {
            if shape.head_dim % 2 == 1 {
                return Err(ConfigError::new(
                    "inv_freq",
                    format!("{text:?}"),
                    format!("turns pairs, and head_dim is {}", shape.head_dim),
                    "an even head_dim",
                    "change model.head_dim, or use a bias",
                ));
            }
            let angles = self.frequencies(&inv_freq, shape.head_dim);
            if let Some(pair) = angles.iter().position(|angle| !angle.is_finite()) {
                return Err(ConfigError::new(
                    "inv_freq",
                    format!("{text:?}"),
                    format!("is {} at i = {pair}", angles[pair]),
                    "a number for each pair",
                    "RoPE's is base^(-2*i/E) with values = { base = 10000 }",
                ));
            }
        }
        Ok(())
    }
}
