//! What tests of the trained encoding keep of the training length: values that depend on the length
//! are resolved once, for training, and only variants resolve them for each test.

use super::variants::leaves;
use crate::spec::ModelSpec;
use crate::spec::differences::{differences, shown};
use posenc::{EncodingConfig, Lengths, PositionsConfig};
use serde::Serialize;
use serde_json::Value;

/// A model as it is written.
pub(super) struct Frozen<'a> {
    pub(super) pe: &'a EncodingConfig,
    pub(super) positions: &'a PositionsConfig,
    /// Those of training, and of the longest test.
    pub(super) lengths: Lengths,
}

impl Frozen<'_> {
    /// A note for each encoding, and for the positions, with another value at the longest test than
    /// in the model that is trained.
    pub(super) fn notes(&self, trained: &ModelSpec) -> Vec<String> {
        let mut pe = self.pe.clone();
        pe.resolve(&self.lengths);
        let mut positions = self.positions.clone();
        positions.resolve(&self.lengths, self.lengths.test_len);
        let parts = leaves(&trained.pe).into_iter().zip(leaves(&pe));
        let notes = parts.map(|(trained, longest)| self.note(trained.kind(), trained, longest));
        let positions = self.note(positions.kind(), &trained.positions, &positions);
        notes.chain([positions]).flatten().collect()
    }

    fn note(
        &self,
        kind: &str,
        trained: &impl Serialize,
        longest: &impl Serialize,
    ) -> Option<String> {
        let [trained, longest] = [serde_json::to_value(trained), serde_json::to_value(longest)];
        let (trained, longest) = (trained.ok()?, longest.ok()?);
        // `unscaled_note` covers a scaling by 1.
        let is_noted = |key: &str, ours: Option<&Value>| {
            key == "scaling.factor" && ours.and_then(Value::as_f64) == Some(1.0)
        };
        let mut kept = differences(&trained, &longest).into_iter();
        let (key, _, meant) = kept.find(|(key, ours, _)| !is_noted(key, *ours))?;
        let Lengths {
            train_len,
            test_len,
            ..
        } = self.lengths;
        Some(format!(
            "`{kind}`: tests keep the {key} of training, for {train_len} tokens; only in variants \
             it follows the test length, to {} at {test_len} tokens",
            shown(meant)
        ))
    }
}
