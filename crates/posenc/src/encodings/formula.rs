//! `formula`: a bias, or the frequencies of a rotation, from a formula in the config.
//!
//! - Formula: `bias` is added to the logits of each pair of query and key, `inv_freq` is the angle
//!   by which pair i of dimensions turns from one position to the next, as `rope` turns it.
//! - Source: none; the config defines it.
//! - Parameters: those that `train` names, `[H]` each, shared by layers, from the numbers given.
//! - Limits: none by construction.

use crate::ConfigError;
use crate::distances::Distances;
use crate::expression::{Expression, Function};
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{
    Bias, BiasBlocks, Context, FusedQk, PositionalEncoding, PrepareError, Prepared,
};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::named::Named;
use crate::positions::Positions;
use crate::rotary::{Frequencies, RotaryLayout};
use crate::rotary_tables::RotaryTables;
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::tensors::upload;
use burn::module::Module;
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

/// Configuration of [`Formula`]. A config that is read has at least one formula.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, remote = "Self")]
#[non_exhaustive]
pub struct FormulaConfig {
    /// Added to the logits: of the distance d, the query's position t, the head h of H and the
    /// layer l of N, both from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bias: Option<String>,
    /// Angle per position of pair i of a head, from 0, of E dimensions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inv_freq: Option<String>,
    /// Numbers that the formulas name: one for all heads, or one for each.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Numbers>,
    /// Numbers that are trained, one for each head, by the value that they start from.
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
            return Err(D::Error::custom("needs `bias`, `inv_freq` or both"));
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
    fn all(&self) -> &[f64] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Each(values) => values,
        }
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
/// How far before a distance, or at which position, the query stands where its position is read.
const BEFORE: [f64; 3] = [0.0, 1.0, 7.0];

/// Numbers that f32 holds with room for what formulas do to them.
const FINITE: RangeInclusive<f64> = -1e30..=1e30;

impl FormulaConfig {
    /// The formula of `key`, whose names are known.
    fn read(&self, key: &str, text: &str, own: &[&str]) -> Result<Expression, ConfigError> {
        let refuse = |problem: String, allowed: String, hint: &str| {
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

    fn bias(&self) -> Result<Option<Expression>, ConfigError> {
        let read = |text: &String| self.read("bias", text, &OF_BIAS);
        self.bias.as_ref().map(read).transpose()
    }

    fn inv_freq(&self) -> Result<Option<Expression>, ConfigError> {
        let read = |text: &String| self.read("inv_freq", text, &OF_FREQUENCY);
        self.inv_freq.as_ref().map(read).transpose()
    }

    /// Whether the bias names one of the config's own quantities.
    fn bias_reads(&self, name: &str) -> bool {
        let bias = self.bias().ok().flatten();
        bias.is_some_and(|bias| bias.names().contains(name))
    }

    /// The value of a name that the config gives, for a head from 0.
    fn given(&self, name: &str, head: usize) -> f64 {
        let given = self.values.get(name).map(Numbers::all);
        let own = given.and_then(|values| values.get(head).or(values.first()));
        own.or(self.train.get(name)).copied().unwrap_or(f64::NAN)
    }

    /// The bias of a pair in f64, at the values that training starts from; `head` and `layer` from
    /// 0.
    fn bias_at(
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

    fn frequencies(&self, inv_freq: &Expression, head_dim: usize) -> Vec<f64> {
        let of_pair = |pair: usize| {
            inv_freq.value(&|x| x, &|name| match name {
                "i" => pair as f64,
                "E" => head_dim as f64,
                given => self.given(given, 0),
            })
        };
        (0..head_dim / 2).map(of_pair).collect()
    }

    fn check_names(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        self.check_taken()?;
        let [bias, inv_freq] = [self.bias()?, self.inv_freq()?];
        let reads = |formula: &Option<Expression>, name: &str| {
            formula
                .as_ref()
                .is_some_and(|read| read.names().contains(name))
        };
        let keys = self.values.keys().map(|name| ("values", name));
        for (table, name) in keys.chain(self.train.keys().map(|name| ("train", name))) {
            let key = format!("{table}.{name}");
            let refuse = |problem: &str, allowed: &str, hint: &str| {
                Err(ConfigError::new(&key, name, problem, allowed, hint))
            };
            if table == "train" && self.values.contains_key(name) {
                let hint = "keep one of the two: what is trained stays in `train`";
                return refuse("is in `values` too", "a name in one table", hint);
            }
            if !reads(&bias, name) && !reads(&inv_freq, name) {
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

    /// Refuses names that formulas have already.
    fn check_taken(&self) -> Result<(), ConfigError> {
        let keys = self.values.keys().map(|name| ("values", name));
        for (table, name) in keys.chain(self.train.keys().map(|name| ("train", name))) {
            let own = OF_BIAS.into_iter().chain(OF_FREQUENCY);
            if own.chain(Function::names()).any(|taken| taken == name) {
                return Err(ConfigError::new(
                    format!("{table}.{name}"),
                    name,
                    "has a meaning already",
                    "any other name",
                    "choose another name",
                ));
            }
        }
        Ok(())
    }

    /// Refuses a bias that is no number at some pair, or hides all pairs of a head.
    fn check_bias(&self, shape: &ModelShape) -> Result<(), ConfigError> {
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
            Err(ConfigError::new("bias", text, problem, allowed, hint))
        };
        let places =
            (0..layers).flat_map(|layer| (0..shape.n_heads).map(move |head| [head, layer]));
        for [head, layer] in places {
            let mut hides_all = true;
            let distances = (0..=NEAR).map(f64::from).chain(FAR);
            for [d, t] in distances.flat_map(|d| before.iter().map(move |more| [d, d + more])) {
                // As the model computes it.
                let value = self.bias_at(&bias, shape, [d, t], [head, layer]) as f32;
                hides_all &= value == f32::NEG_INFINITY;
                if value.is_nan() || value == f32::INFINITY {
                    let (head, layer) = (head + 1, layer + 1);
                    return refuse(
                        format!("is {value} at d = {d}, t = {t} in head {head} of layer {layer}"),
                        "a number, or -inf for a pair that is hidden",
                        if d == 0.0 {
                            "log(1 + d) is defined at d = 0, log(d) and 1 / d are not"
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

    fn check_frequencies(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        if let (Some(inv_freq), Some(text)) = (self.inv_freq()?, &self.inv_freq) {
            if shape.head_dim % 2 == 1 {
                return Err(ConfigError::new(
                    "inv_freq",
                    text,
                    format!("turns pairs, and head_dim is {}", shape.head_dim),
                    "an even head_dim",
                    "change model.head_dim, or use a bias",
                ));
            }
            let angles = self.frequencies(&inv_freq, shape.head_dim);
            if let Some(pair) = angles.iter().position(|angle| !angle.is_finite()) {
                return Err(ConfigError::new(
                    "inv_freq",
                    text,
                    format!("is {} at i = {pair}", angles[pair]),
                    "a number for each pair",
                    "RoPE's is base^(-2*i/E) with values = { base = 10000 }",
                ));
            }
        }
        Ok(())
    }
}

/// A bias, or a rotation, from formulas.
#[derive(Module, Debug)]
pub struct Formula {
    trained: Named,
    #[module(skip)]
    config: FormulaConfig,
    #[module(skip)]
    bias: Option<Expression>,
    #[module(skip)]
    frequencies: Option<Vec<f64>>,
    n_heads: usize,
    n_layers: usize,
}

struct PreparedFormula<'a> {
    bias: Option<BiasFormula<'a>>,
    rotation: Option<[RotaryTables; 2]>,
}

/// The bias of a pass. Named values are `[G or 1, H or 1, 1, 1]`.
#[derive(Clone)]
struct BiasFormula<'a> {
    formula: &'a Expression,
    named: BTreeMap<&'a str, Tensor<4>>,
    distances: Rc<Distances>,
    queries: Option<Tensor<4>>,
}

impl PositionalEncoding for Formula {
    fn prepare<'a>(
        &'a self,
        positions: &Positions,
        context: &Context,
    ) -> Result<Box<dyn Prepared + 'a>, PrepareError> {
        let (config, n_heads, device) = (&self.config, self.n_heads, &context.device);
        let bias = self.bias.as_ref().map(|formula| {
            let one = |value: f64| upload(vec![value], [1, 1, 1, 1], device);
            let heads = |values: Vec<f64>| upload(values, [1, n_heads, 1, 1], device);
            let mut named = BTreeMap::from([
                ("h", heads((1..=n_heads).map(|h| h as f64).collect())),
                ("H", one(n_heads as f64)),
                ("N", one(self.n_layers as f64)),
            ]);
            for (name, numbers) in &config.values {
                named.insert(
                    name,
                    match numbers {
                        Numbers::One(value) => one(*value),
                        Numbers::Each(values) => heads(values.clone()),
                    },
                );
            }
            for (name, parameter) in self.trained.iter() {
                let shape = [context.groups, n_heads, 1, 1];
                named.insert(name, parameter.val().reshape(shape));
            }
            let rows = positions.queries().to_vec();
            let plain = Positions::new(rows.clone(), positions.keys().to_vec());
            let reads_rows = formula.names().contains("t");
            // Distances are replaced where nothing else says where a query is.
            let reads_more = reads_rows || config.inv_freq.is_some();
            let positions = if reads_more { &plain } else { positions };
            let shape = [1, 1, rows.len(), 1];
            BiasFormula {
                queries: reads_rows.then(|| upload(rows, shape, device)),
                named,
                distances: Rc::new(Distances::new(positions, device)),
                formula,
            }
        });
        let rotation = self.frequencies.as_ref().map(|frequencies| {
            let frequencies = Frequencies::new(frequencies.clone());
            [positions.queries(), positions.keys()]
                .map(|positions| RotaryTables::new(positions, &frequencies, context))
        });
        Ok(Box::new(PreparedFormula { bias, rotation }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedFormula<'_> {
    fn transform_qk(
        &self,
        _layer: usize,
        q: Tensor<4>,
        k: Tensor<4>,
        _hidden: &Tensor<3>,
    ) -> (Tensor<4>, Tensor<4>) {
        match &self.rotation {
            None => (q, k),
            Some([queries, keys]) => (
                queries.apply(q, RotaryLayout::Half),
                keys.apply(k, RotaryLayout::Half),
            ),
        }
    }

    fn fused_qk(&self, _layer: usize) -> Option<FusedQk> {
        match &self.rotation {
            None => Some(FusedQk::default()),
            Some([queries, keys]) => RotaryTables::fused_qk(queries, keys, RotaryLayout::Half),
        }
    }

    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        let mut bias = self.bias.clone()?;
        let like = &bias.named["N"];
        let layer = like.zeros_like() + (layer + 1) as f64;
        bias.named.insert("l", layer);
        Some(Bias::new(bias))
    }

    fn bias_layer(&self, layer: usize) -> usize {
        let bias = self.bias.as_ref();
        let reads_layer = bias.is_some_and(|bias| bias.formula.names().contains("l"));
        if reads_layer { layer } else { 0 }
    }
}

impl BiasBlocks for BiasFormula<'_> {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let distance = self.distances.block(queries.clone(), keys.clone()).abs();
        let number = |value: f64| self.named["N"].zeros_like() + value;
        let value = self
            .formula
            .value(&number, &|name| match (name, &self.queries) {
                ("d", _) => distance.clone(),
                ("t", Some(rows)) => rows.clone().slice_dim(2, queries.clone()),
                (name, _) => self.named[name].clone(),
            });
        // A formula that reads no distance is the same for all pairs.
        let [groups, heads, ..] = value.dims();
        value.expand([groups, heads, queries.len(), keys.len()])
    }

    fn by_distance(&self) -> bool {
        self.queries.is_none() && self.distances.by_index()
    }
}

impl EncodingSpec for FormulaConfig {
    type Module = Formula;
    const ABOUT: About = About {
        summary: "a bias on the logits, or a rotation of queries and keys, from a formula in the \
                  config",
        formula: "logits + bias(d, t, h, H, l, N), pair i rotates by p inv_freq(i, E)",
        source: "the config",
        deviations: "none",
    };

    fn example() -> Option<Self> {
        Some(Self {
            bias: Some("-m * log(1 + d)".to_owned()),
            train: BTreeMap::from([("m".to_owned(), 0.5)]),
            ..Self::default()
        })
    }

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        self.check_names(shape)?;
        self.check_bias(shape)?;
        self.check_frequencies(shape)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let spec = |(name, start): (&String, &f64)| {
            let start = Distribution::Constant(*start);
            ParamSpec::new(format!("trained.{name}"), [shape.n_heads], start)
        };
        self.train.iter().map(spec).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        let hooks = Hooks::LOGITS_BIAS.when(self.bias.is_some())
            | Hooks::TRANSFORM_QK.when(self.inv_freq.is_some());
        let by_distance = !self.bias_reads("t");
        let depth = self.bias().ok().flatten().map_or(0, |bias| bias.depth());
        Facts {
            relative: by_distance,
            by_distance: by_distance && self.inv_freq.is_none(),
            linear: self.bias.is_none(),
            rotates_qk: self.inv_freq.is_some(),
            bias_workspace: if self.bias.is_some() {
                1.5 + depth as f64
            } else {
                0.0
            },
            ..Facts::new(hooks)
        }
    }

    fn numbers(&self, shape: &ModelShape, lengths: &crate::Lengths) -> Vec<NumberTable> {
        let bias = self.bias().ok().flatten().map(|bias| {
            let last = lengths.test_len.max(2) - 1;
            let of = |d: f64| self.bias_at(&bias, shape, [d, d], [0, 0]);
            NumberTable::of_function(
                "bias of the first head, at the start",
                ["d", "bias"],
                last,
                of,
            )
        });
        let inv_freq = self.inv_freq().ok().flatten().map(|formula| {
            let angles = self.frequencies(&formula, shape.head_dim);
            NumberTable::of_frequencies("frequencies", "pair", &angles)
        });
        bias.into_iter().chain(inv_freq).collect()
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> Formula {
        // `init` refuses a formula that cannot be read.
        let inv_freq = self.inv_freq().ok().flatten();
        Formula {
            trained: Named::take("trained", self.train.keys(), parameters),
            config: self.clone(),
            bias: self.bias().ok().flatten(),
            frequencies: inv_freq.map(|read| self.frequencies(&read, shape.head_dim)),
            n_heads: shape.n_heads,
            n_layers: shape.n_layers,
        }
    }
}
