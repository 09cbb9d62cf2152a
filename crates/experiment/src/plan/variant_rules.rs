//! What every variant of a trained model must satisfy, whether a config or `longreach eval` asks
//! for it. Errors name keys; the caller knows the file or the argument.

use super::coordinates::check_coordinates;
use super::model::{check_positions, lengths, longest_test};
use super::variants::{check_additions, stacked};
use crate::spec::{ModelSpec, TrainSpec, untrained};
use posenc::{ConfigError, EncodingConfig, PositionsConfig};
use records::spec::flatten;
use std::collections::BTreeMap;
use tasks::Task;
use toml::Value;

/// Training lengths of a test by which every setting that follows the length has changed.
const FAR: usize = 64;

/// A trained model and the lengths it is tested at.
pub struct Trained<'a> {
    /// The model.
    pub model: &'a ModelSpec,
    /// Its training.
    pub train: &'a TrainSpec,
    /// Its task.
    pub task: &'a dyn Task,
    /// The test lengths, in the task's unit.
    pub test_lens: &'a [usize],
}

/// What is asked of it. Defaults that depend on lengths are not resolved yet.
#[derive(Clone)]
pub struct VariantRequest {
    /// The trained encoding, changed or replaced.
    pub base: EncodingConfig,
    /// What lengths that are left out of `base` mean, in tokens, where it has them from training;
    /// the training length otherwise.
    pub before: Option<usize>,
    /// What to stack on it, as written.
    pub add: Option<Value>,
    /// The same, read.
    pub added: Vec<EncodingConfig>,
    /// Where tokens stand; as in training unless given.
    pub positions: Option<PositionsConfig>,
}

/// Why a variant is refused.
pub enum Refusal {
    /// The changed encoding cannot be used; keys are those of the encoding.
    Set(ConfigError),
    /// The encodings to add cannot be used; keys are those of the variant.
    Add(ConfigError),
    /// The variant does not fit the model; keys are those of `[model]`.
    Model(ConfigError),
    /// The positions do not fit the variant; keys are those of the positions.
    Positions(ConfigError),
    /// The variant has parameters that were not trained: path and shape of each.
    Untrained(&'static str, Vec<(String, Vec<usize>)>),
}

/// What is wrong with coordinates as an error of the positions of a variant, where the model's own
/// would do.
fn at_positions(error: ConfigError, positions: &PositionsConfig) -> ConfigError {
    ConfigError::new(
        "kind",
        positions.kind(),
        format!("does not fit: model.coordinates {}", error.problem),
        "positions that the encoding can read",
        "leave them out: those of the model fit",
    )
}

impl Trained<'_> {
    /// Encoding and positions at every test length; no positions where they are those of training.
    ///
    /// # Errors
    ///
    /// The first rule broken, at the first length.
    pub fn resolve(
        &self,
        asked: &VariantRequest,
    ) -> Result<(Vec<EncodingConfig>, Vec<PositionsConfig>), Refusal> {
        let mut encodings = Vec::new();
        for test_len in self.test_lens {
            encodings.push(self.encoding(asked.clone(), *test_len)?);
        }
        let mut all_positions = Vec::new();
        for (test_len, encoding) in self.test_lens.iter().zip(&encodings) {
            all_positions.extend(self.positions(asked, encoding, *test_len)?);
        }
        Ok((encodings, all_positions))
    }

    /// The dotted keys of a variant's encoding that are computed for every test length.
    pub fn by_length(&self, asked: &VariantRequest) -> Vec<String> {
        let at = |times: usize| {
            let mut settings = BTreeMap::new();
            let encoding = self.encoding(asked.clone(), times * self.train.train_len);
            let encoding = encoding.ok().and_then(|pe| serde_json::to_value(pe).ok());
            flatten("", &encoding.unwrap_or_default(), &mut settings);
            settings
        };
        let (trained, long) = (at(1), at(FAR));
        let follows = |(key, value): &(&String, &String)| long.get(*key) != Some(*value);
        let keys = trained.iter().filter(follows).map(|(key, _)| key);
        keys.map(|key| key.trim_start_matches('.').to_owned())
            .collect()
    }

    fn encoding(&self, asked: VariantRequest, test_len: usize) -> Result<EncodingConfig, Refusal> {
        let VariantRequest {
            mut base,
            before,
            add,
            mut added,
            positions: given,
        } = asked;
        let ModelSpec {
            transformer,
            positions,
            coordinates,
            coordinate_shift: _,
            pe,
        } = self.model;
        let shape = transformer.shape();
        let trained = self.train.seq_len;
        let lengths = |before: usize| lengths(self.train, self.task, test_len, before);
        base.resolve(&lengths(before.unwrap_or(trained)));
        let lengths = lengths(trained);
        base.check(&shape).map_err(Refusal::Set)?;
        base.check_trained(pe).map_err(Refusal::Set)?;
        if let Some(add) = &add {
            added.iter_mut().for_each(|one| one.resolve(&lengths));
            check_additions(add, &base, &added, &shape).map_err(Refusal::Add)?;
        }
        let encoding = stacked(base, &added);
        let facts = encoding.facts(&shape);
        transformer.check_encoding(&facts).map_err(Refusal::Model)?;
        if given.is_none() {
            // Length 1: a test longer than the positions is recorded as unsupported, not refused.
            check_positions(positions, &facts, transformer, 1).map_err(|error| {
                let hint =
                    "give the variant others: positions = { kind = \"contiguous\" }".to_owned();
                Refusal::Model(ConfigError { hint, ..error }.within("positions"))
            })?;
        }
        let fits = |positions| check_coordinates(*coordinates, positions, &facts, self.task);
        let placed = given.as_ref().unwrap_or(positions);
        fits(placed).map_err(|error| match fits(positions) {
            Ok(()) => Refusal::Positions(at_positions(error, placed)),
            Err(_) => Refusal::Model(error),
        })?;
        let missing = untrained(pe, &encoding, &shape);
        if missing.is_empty() {
            Ok(encoding)
        } else {
            Err(Refusal::Untrained(encoding.kind(), missing))
        }
    }

    fn positions(
        &self,
        asked: &VariantRequest,
        encoding: &EncodingConfig,
        test_len: usize,
    ) -> Result<Option<PositionsConfig>, Refusal> {
        let Some(mut positions) = asked.positions.clone() else {
            return Ok(None);
        };
        let longest = longest_test(self.task, self.test_lens);
        let lengths = lengths(self.train, self.task, test_len, self.train.seq_len);
        positions.resolve(&lengths, longest);
        let transformer = &self.model.transformer;
        let facts = encoding.facts(&transformer.shape());
        // Length 1 for the same reason as in `encoding`.
        check_positions(&positions, &facts, transformer, 1).map_err(Refusal::Positions)?;
        Ok(Some(positions))
    }
}
