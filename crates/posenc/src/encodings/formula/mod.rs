//! `formula`: a bias, or the frequencies of a rotation, from a formula in the config.
//!
//! - Formula: `bias` is added to the logits of each pair of query and key, `inv_freq` is the angle
//!   by which pair i of dimensions turns from one position to the next, as `rope` turns it.
//! - Source: none; the config defines it.
//! - Parameters: those that `train` names, `[H]` each, shared by layers, from the numbers given.
//! - Limits: none by construction.

mod config;

pub use self::config::{FormulaConfig, Numbers};
use crate::ConfigError;
use crate::distances::Distances;
use crate::expression::Expression;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{
    Bias, BiasBlocks, Context, FusedQk, PositionalEncoding, PrepareResult, Prepared, Qk,
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
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

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
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
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
    fn transform_qk(&self, _: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
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

    fn check_trained(&self, trained: &Self) -> Result<(), ConfigError> {
        self.check_starts(trained)
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
            bias_by_distance: by_distance,
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
