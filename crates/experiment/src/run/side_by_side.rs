//! Joins the models and optimizers of several runs into one, and splits them again.

use crate::run::carry::carry;
use crate::run::model::{drawn_weights, initial_model, rebuild};
use crate::run::optimizer::{AdamW, Rate};
use crate::run::parameters;
use crate::spec::RunSpec;
use burn::module::Module;
use burn::tensor::{Device, Gradients};
use posenc::Encoding;
use rundir::Weights;
use support::exit::Failure;
use tiny_transformer::{Members, Transformer};

/// The models of runs of one shape, as one.
pub type Models = Transformer<Members<Encoding>>;

/// The state that training starts from: a checkpoint, or the weights of another run.
#[derive(Default)]
pub struct TrainingStart {
    /// Steps applied.
    pub step: u64,
    /// Whether `train.stop` ended the training there.
    pub learned: bool,
    /// Tokens seen.
    pub tokens: u64,
    /// The loss of each of those steps.
    pub losses: Vec<f64>,
    /// The model's parameters.
    pub weights: Weights,
    /// The optimizer's moments.
    pub moments: [Weights; 2],
}

/// The state of one run that a step changes.
pub struct Alone {
    model: Transformer,
    optimizer: AdamW,
}

impl Alone {
    /// Drawn from the seed, or restored from `start`; on the device with autodiff.
    ///
    /// # Errors
    ///
    /// [`Exit::Bug`](support::exit::Exit::Bug) if the encoding, which was checked, cannot be made.
    pub fn new(
        spec: &RunSpec,
        start: Option<&TrainingStart>,
        device: &Device,
    ) -> Result<Self, Failure> {
        let adamw = spec.train.adamw.clone();
        let autodiff = device.clone().autodiff();
        let Some(start) = start else {
            return Ok(Self {
                model: initial_model(spec, &autodiff)?,
                optimizer: AdamW::new(adamw),
            });
        };
        let encoding = spec.encoding_after(start.step);
        let model = rebuild(spec, encoding, &start.weights, &autodiff).map_err(bug)?;
        let later = spec.drawn_later(start.step);
        let optimizer = AdamW::resumed(adamw, start.step, &start.moments, later, device);
        Ok(Self { model, optimizer })
    }

    /// Changes the encoding where the stage of this step has another one than the step before.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn enter(&mut self, spec: &RunSpec, step: u64, device: &Device) -> Result<(), Failure> {
        let (before, now) = (spec.encoding_after(step), spec.encoding_at(step));
        let device = &device.clone().autodiff();
        let mut weights = drawn_weights(spec, now, device).map_err(bug)?;
        let trained = parameters::of(&self.model);
        let drawn = carry(&mut weights, trained, before.kind() == now.kind());
        self.model = rebuild(spec, now, &weights, device).map_err(bug)?;
        self.optimizer.change(&weights, &drawn);
        Ok(())
    }

    /// The model without autodiff, for the evaluation.
    pub fn into_model(self) -> Transformer {
        self.model.valid()
    }

    /// The model's parameters.
    pub fn weights(&self) -> Weights {
        parameters::of(&self.model)
    }

    /// The optimizer's moments.
    pub fn moments(&self) -> [Weights; 2] {
        self.optimizer.moments()
    }
}

fn bug(error: anyhow::Error) -> Failure {
    Failure::bug(format!("{error:#}"))
}

/// The state of runs of one shape: one model and one optimizer that hold those of all.
pub struct Together {
    /// Their models.
    pub models: Models,
    /// Their optimizers.
    pub optimizer: AdamW,
}

impl Together {
    /// Joins the states of runs, whose encodings may be equal except for their parameters.
    pub fn join(runs: Vec<Alone>, equal_encodings: bool) -> Self {
        let (models, optimizers): (Vec<_>, Vec<_>) = runs
            .into_iter()
            .map(|run| (run.model, run.optimizer))
            .unzip();
        let models = Transformer::join(&models, equal_encodings);
        let optimizer = AdamW::join(optimizers, models.encoding().is_joined());
        Self { models, optimizer }
    }

    /// Applies one update, each run with its own rate.
    #[must_use]
    pub fn step(mut self, grads: &mut Gradients, rates: &[Rate]) -> Self {
        // By value, so that tensors nobody else holds are updated in place.
        let models = self.optimizer.step(self.models, grads, rates);
        Self { models, ..self }
    }

    /// The state of run `g`.
    pub fn part(&self, g: usize) -> Alone {
        Alone {
            model: self.models.part(g),
            optimizer: self.optimizer.part(g),
        }
    }
}
