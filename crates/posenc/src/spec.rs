//! The interface of a configuration: what an encoding's own file has to say about it.

use crate::facts::{Facts, Lengths, ModelShape};
use crate::hooks::PositionalEncoding;
use crate::init::{Init, ParamSpec, Parameters};
use crate::rotary::Rotary;
use crate::values::refuse_unresolved;
use crate::{ConfigError, EncodingConfig};
use burn::module::Module;
use serde::Serialize;

/// A line of the catalogue, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct About {
    /// One line: what it does to which tensor.
    pub summary: &'static str,
    /// The formula, in plain text.
    pub formula: &'static str,
    /// First author, year and identifier.
    pub source: &'static str,
    /// What differs from the source, or from which of paper and released code where they differ;
    /// `none` where nothing does. Markdown, without a full stop.
    pub deviations: &'static str,
}

impl About {
    /// A line of the catalogue.
    pub const fn new(
        summary: &'static str,
        formula: &'static str,
        source: &'static str,
        deviations: &'static str,
    ) -> Self {
        Self {
            summary,
            formula,
            source,
            deviations,
        }
    }
}

/// Numbers that define an encoding, for people: bucket by distance, frequency by pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NumberTable {
    /// What the rows are.
    pub title: &'static str,
    /// Names of the columns.
    pub columns: Vec<&'static str>,
    /// One number per column.
    pub rows: Vec<Vec<f64>>,
}

impl NumberTable {
    /// A table whose rows have a number per column.
    pub fn new(
        title: &'static str,
        columns: impl Into<Vec<&'static str>>,
        rows: impl IntoIterator<Item = Vec<f64>>,
    ) -> Self {
        Self {
            title,
            columns: columns.into(),
            rows: rows.into_iter().collect(),
        }
    }

    /// A table of `of(x)` for x = 0, 1, 2, 3, 4, 6, 8, 12, ... (powers of two, and three times
    /// powers of two) below `last`, and for `last`.
    pub fn of_function(
        title: &'static str,
        columns: [&'static str; 2],
        last: usize,
        of: impl Fn(f64) -> f64,
    ) -> Self {
        let power = |at: usize| at.is_power_of_two();
        let shown = |at: &usize| *at == 0 || power(*at) || (at.is_multiple_of(3) && power(at / 3));
        let steps = (0..last).filter(shown).chain([last]);
        Self::new(
            title,
            columns,
            steps.map(|at| vec![at as f64, of(at as f64)]),
        )
    }

    /// A table with a row for each frequency: its index, the frequency in radians per token, and
    /// the wavelength in tokens. `unit` heads the first column: `pair` or `dim`.
    pub fn of_frequencies(title: &'static str, unit: &'static str, inv_freq: &[f64]) -> Self {
        let row = |(i, theta): (usize, &f64)| vec![i as f64, *theta, std::f64::consts::TAU / theta];
        let columns = [unit, "inv_freq", "wavelength"];
        Self::new(title, columns, inv_freq.iter().enumerate().map(row))
    }
}

/// An encoding inside another one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Part<'a> {
    /// Key of its table, relative to the outer one: `parts.0`, `part`.
    pub key: String,
    /// Path of its module inside the outer one: `parts.0`, `part.0`.
    pub path: String,
    /// Its configuration.
    pub config: &'a EncodingConfig,
}

impl<'a> Part<'a> {
    /// The encodings of a key `parts`.
    pub(crate) fn listed(parts: &'a [EncodingConfig]) -> Vec<Self> {
        let part = |(i, config)| Self {
            key: format!("parts.{i}"),
            path: format!("parts.{i}"),
            config,
        };
        parts.iter().enumerate().map(part).collect()
    }

    /// The encoding of a key `part`.
    pub(crate) fn only(config: &'a EncodingConfig) -> Self {
        Self {
            key: "part".to_owned(),
            path: "part.0".to_owned(),
            config,
        }
    }
}

/// The configuration of one encoding: what is allowed, what it declares, how it is built.
///
/// Every kind of [`EncodingConfig`] implements it. Implement it for an encoding of your own to get
/// the same checks, parameter paths and initial values.
pub trait EncodingSpec: Sized {
    /// The module built from it.
    type Module: PositionalEncoding + Module;
    /// Its name for people, where papers write it otherwise than `kind` in words: `ALiBi`. Empty
    /// where the names of its parts say all. It may end in ` of {KEY}`, the value of a key.
    const NAME: Option<&'static str> = None;
    /// The catalogue's line.
    const ABOUT: About;

    /// Refuses values that have no meaning for this model.
    ///
    /// # Errors
    ///
    /// The first key that cannot work, with what is allowed.
    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError>;

    /// Refuses values that have no effect on a model that was trained under `trained`.
    ///
    /// # Errors
    ///
    /// The first key whose value is not the trained one.
    fn check_trained(&self, trained: &Self) -> Result<(), ConfigError> {
        let _ = trained;
        Ok(())
    }

    /// Replaces defaults that depend on lengths by their values.
    fn resolve(&mut self, lengths: &Lengths) {
        let _ = lengths;
    }

    /// The first key whose value still depends on lengths, until [`resolve`](Self::resolve).
    fn unresolved(&self) -> Option<String> {
        let mut parts = self.parts().into_iter();
        parts.find_map(|part| Some(format!("{}.{}", part.key, part.config.unresolved()?)))
    }

    /// Every parameter in the order of the module's fields; those of its parts, unless it declares
    /// others. The one declaration of paths, shapes and initial distributions; tables of an
    /// unresolved size are left out.
    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let of = |(i, part): (usize, Part<'_>)| {
            let declared = part.config.parameters(&self.part_shape(i, shape));
            let within = |spec: ParamSpec| spec.within(&part.path);
            declared.into_iter().map(within).collect::<Vec<_>>()
        };
        self.parts().into_iter().enumerate().flat_map(of).collect()
    }

    /// What it declares, without the parameters; meaningful once `check` passed.
    fn properties(&self, shape: &ModelShape) -> Facts;

    /// Builds the module from the declared parameters; called by [`init`](Self::init).
    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> Self::Module;

    /// The rotation it is built on, if queries and keys are rotated by one set of frequencies.
    fn rotary(&self, shape: &ModelShape) -> Option<Rotary> {
        let _ = shape;
        None
    }

    /// Slopes of a linear penalty on distance, one per head, if that is what it is and they do not
    /// depend on lengths any more.
    fn slopes(&self, shape: &ModelShape) -> Option<Vec<f64>> {
        let _ = shape;
        None
    }

    /// Further numbers that define it, for sequences of `lengths.test_len` tokens; meaningful once
    /// it is resolved. What a rotation or slopes say is not repeated.
    fn numbers(&self, shape: &ModelShape, lengths: &Lengths) -> Vec<NumberTable> {
        let _ = (shape, lengths);
        Vec::new()
    }

    /// The encodings of the catalogue that it is made of.
    fn parts(&self) -> Vec<Part<'_>> {
        Vec::new()
    }

    /// What is of no effect in a model of so few layers, one sentence each.
    fn idle(&self, n_layers: usize) -> Vec<String> {
        let parts = self.parts();
        let parts = parts.iter().flat_map(|part| part.config.idle(n_layers));
        parts.collect()
    }

    /// Which trained numbers tests of `test_len` tokens read although training on at most
    /// `train_len` tokens never reaches them, or hardly, and how to avoid it: a sentence without
    /// its subject. `None` if there are none; parts answer for themselves.
    fn untrained(&self, train_len: usize, test_len: usize) -> Option<String> {
        let _ = (train_len, test_len);
        None
    }

    /// What a part is built for in a model of this shape: fewer heads, or the same.
    fn part_shape(&self, part: usize, shape: &ModelShape) -> ModelShape {
        let _ = part;
        *shape
    }

    /// Checks every part for the shape that it is built for.
    ///
    /// # Errors
    ///
    /// That of the first part that has one, with the part's key.
    fn check_parts(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        let mut parts = self.parts().into_iter().enumerate();
        parts.try_for_each(|(i, part)| {
            let checked = part.config.check(&self.part_shape(i, shape));
            checked.map_err(|error| error.within(&part.key))
        })
    }

    /// A small configuration, for kinds with a key that has no default.
    fn example() -> Option<Self> {
        None
    }

    /// This configuration with some fields changed:
    /// `RopeConfig::default().with(|rope| rope.base = 500_000.0)`.
    #[must_use]
    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// What it declares, parameters included.
    fn facts(&self, shape: &ModelShape) -> Facts {
        let parameters = self.parameters(shape).into_iter();
        Facts {
            parameters: parameters.map(|spec| (spec.path, spec.shape)).collect(),
            ..self.properties(shape)
        }
    }

    /// Builds the module.
    ///
    /// # Errors
    ///
    /// If `check` fails, or a key is [unresolved](Self::unresolved).
    fn init(&self, shape: &ModelShape, init: &Init<'_>) -> Result<Self::Module, ConfigError> {
        self.check(shape)?;
        refuse_unresolved(self.unresolved())?;
        Ok(self.build(shape, &mut init.draw(self.parameters(shape))))
    }
}
