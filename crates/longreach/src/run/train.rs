//! The training loop. Step `s` depends only on the weights, the optimizer's state and (spec, s).

use crate::exit::Failure;
use crate::plan::spec::{LengthCurriculum, RunSpec};
use crate::run::carry::carry;
use crate::run::model::{drawn_weights, initial_model, rebuild, upload};
use crate::run::optimizer::{AdamW, squared_norms};
use crate::run::parameters;
use burn::tensor::{Device, Tensor, TensorData};
use posenc::Positions;
use results::record::{CurvePoint, Divergence, StepScores};
use rundir::Weights;
use rundir::steplog::Step;
use tasks::{Batch, Stream, Task};
use tiny_transformer::{Observe, Pass, Transformer};

/// Most points of a stored loss curve.
const CURVE_POINTS: u64 = 200;

/// A trained model and the record of its training.
pub struct Trained {
    /// On the device without autodiff.
    pub model: Transformer,
    /// Steps applied.
    pub steps: u64,
    /// Tokens seen.
    pub tokens: u64,
    /// Loss curve.
    pub curve: Vec<CurvePoint>,
    /// Scores that the watcher took.
    pub scores: Vec<StepScores>,
    /// Mean loss over the last tenth of the steps.
    pub final_loss_nats: Option<f64>,
    /// Set if training stopped early, with the batch it stopped at.
    pub diverged: Option<(Divergence, Batch)>,
    /// Whether the watcher stopped it before its last step.
    pub stopped: bool,
}

/// The state that training starts from: a checkpoint, or the weights of another run.
#[derive(Default)]
pub struct Start {
    /// Steps applied.
    pub step: u64,
    /// Tokens seen.
    pub tokens: u64,
    /// The loss of each of those steps.
    pub losses: Vec<f64>,
    /// The model's parameters.
    pub weights: Weights,
    /// The optimizer's moments.
    pub moments: [Weights; 2],
}

/// The model and the optimizer after a step.
pub struct Snapshot<'a> {
    model: &'a Transformer,
    optimizer: &'a AdamW,
}

impl Snapshot<'_> {
    /// The model's parameters.
    pub fn weights(&self) -> Weights {
        parameters::of(self.model)
    }

    /// The optimizer's moments.
    pub fn moments(&self) -> [Weights; 2] {
        self.optimizer.moments()
    }
}

/// Called after every step; stops the training by returning false.
pub type Watch<'a> = dyn FnMut(Step, &Snapshot<'_>) -> Result<bool, Failure> + 'a;

/// A run to train, maybe beside others of its shape.
pub struct Member<'a> {
    /// What to train.
    pub spec: &'a RunSpec,
    /// Its task.
    pub task: &'a dyn Task,
    /// Where it starts; `None` draws its weights from its seed.
    pub start: Option<Start>,
    /// Called after each of its steps.
    pub watch: Box<Watch<'a>>,
}

/// Trains runs of one shape, each to its last step or to its first number that is not finite;
/// results are in the order of `members`. Which runs have one shape: `plan::together`.
///
/// # Errors
///
/// The first error of any watch, which ends all of them; else as [`train`].
pub fn train_together(members: Vec<Member<'_>>, device: &Device) -> Result<Vec<Trained>, Failure> {
    let one = |mut member: Member<'_>| {
        let Member {
            spec, task, start, ..
        } = member;
        train(spec, task, device, start, &mut *member.watch)
    };
    members.into_iter().map(one).collect()
}

/// Length of the batch of a step, in the task's unit.
pub fn batch_length(spec: &RunSpec, step: u64) -> usize {
    let train = &spec.train;
    match train.length {
        LengthCurriculum::Fixed => train.train_len,
        LengthCurriculum::Uniform => {
            let span = (train.train_len - train.min_len + 1) as u64;
            train.min_len + Stream::new(spec.seed, "train-length", step).below(span) as usize
        }
        LengthCurriculum::Staged => train
            .stage(step)
            .map_or(train.train_len, |stage| stage.train_len),
    }
}

/// The state that a step changes.
struct State {
    model: Transformer,
    optimizer: AdamW,
    /// The loss of every step so far.
    losses: Vec<f64>,
    tokens: u64,
}

impl State {
    /// Drawn from the seed, or restored from `start`.
    fn new(
        spec: &RunSpec,
        start: Option<Start>,
        autodiff: &Device,
        device: &Device,
    ) -> Result<Self, Failure> {
        let adamw = spec.train.adamw.clone();
        let Some(start) = start else {
            return Ok(Self {
                model: initial_model(spec, autodiff)?,
                optimizer: AdamW::new(adamw),
                losses: Vec::new(),
                tokens: 0,
            });
        };
        let model = rebuild(
            spec,
            spec.encoding_after(start.step),
            &start.weights,
            autodiff,
        );
        let later = spec.drawn_later(start.step);
        Ok(Self {
            model: model.map_err(bug)?,
            optimizer: AdamW::resumed(adamw, start.step, &start.moments, later, device),
            losses: start.losses,
            tokens: start.tokens,
        })
    }

    /// Changes the encoding where the stage of this step has another one than the step before.
    fn enter(&mut self, spec: &RunSpec, step: u64, device: &Device) -> Result<(), Failure> {
        let (before, now) = (spec.encoding_after(step), spec.encoding_at(step));
        if before == now {
            return Ok(());
        }
        let mut weights = drawn_weights(spec, now, device).map_err(bug)?;
        let trained = parameters::of(&self.model);
        let drawn = carry(&mut weights, trained, before.kind() == now.kind());
        self.model = rebuild(spec, now, &weights, device).map_err(bug)?;
        self.optimizer.change(&weights, &drawn);
        Ok(())
    }
}

fn bug(error: anyhow::Error) -> Failure {
    Failure::bug(format!("{error:#}"))
}

/// Trains to the last step, to the first number that is not finite, or until `watch` returns false.
/// Starting from a checkpoint gives the same bits as training without a break.
///
/// A step that would not be finite is not applied: the model returned is the last good one.
///
/// # Errors
///
/// The errors of `watch`; [`Exit::Bug`](crate::exit::Exit::Bug) if a stage's encoding, which was
/// checked, cannot be made.
#[expect(clippy::too_many_lines, reason = "the loop of training in its order")]
pub fn train(
    spec: &RunSpec,
    task: &dyn Task,
    device: &Device,
    start: Option<Start>,
    watch: &mut Watch<'_>,
) -> Result<Trained, Failure> {
    let autodiff = device.clone().autodiff();
    let first = start.as_ref().map_or(0, |start| start.step);
    let mut state = State::new(spec, start, &autodiff, device)?;
    let (mut diverged, mut stopped) = (None, false);
    for step in first..spec.train.steps {
        state.enter(spec, step, &autodiff)?;
        let (batch, positions) = batch_of_step(spec, task, step);
        // A pass can be repeated with the same bits: batch, positions and dropout depend on the
        // step alone.
        let step_loss = |observe: Option<&Observe<'_>>| {
            batch_loss(
                spec,
                &state.model,
                &batch,
                (step, &positions),
                &autodiff,
                observe,
            )
        };
        let loss = step_loss(None);
        let mut grads = loss.backward();
        // Norms stay on the device until `to_host`: one transfer for each step, not one per
        // parameter.
        let norms = squared_norms(&state.model, &grads);
        let (loss, squares) = to_host(loss, &norms);
        // Before the update, so that the model and the moments stay finite.
        if !(loss.is_finite() && squares.iter().all(|square| square.is_finite())) {
            // If the loss is not finite, a second forward pass, now observed, finds where it began.
            let what = first_not_finite(loss, &norms, &squares, |observe| {
                step_loss(Some(observe));
            });
            diverged = Some((divergence(step, what, &batch), batch));
            break;
        }
        // One norm over all parameters, summed in f64 on the host.
        let norm = squares.iter().sum::<f64>().sqrt();
        let lr = spec.train.lr_at(step);
        let scale = clip_factor(norm, spec.train.grad_clip);
        state.model = state.optimizer.step(state.model, &mut grads, lr, scale);
        state.tokens += (batch.rows * batch.seq_len) as u64;
        state.losses.push(loss);
        let done = Step {
            step: step + 1,
            loss_nats: loss,
            lr,
            grad_norm: norm,
            tokens: state.tokens,
        };
        let snapshot = Snapshot {
            model: &state.model,
            optimizer: &state.optimizer,
        };
        if !watch(done, &snapshot)? {
            stopped = step + 1 < spec.train.steps;
            break;
        }
    }
    let final_loss_nats = diverged
        .is_none()
        .then(|| final_loss(&state.losses, spec.train.steps));
    Ok(Trained {
        // Without autodiff, for the evaluation.
        model: burn::module::Module::valid(&state.model),
        steps: state.losses.len() as u64,
        tokens: state.tokens,
        curve: thin(&state.losses),
        scores: Vec::new(),
        final_loss_nats,
        diverged,
        stopped,
    })
}

fn divergence(step: u64, what: String, batch: &Batch) -> Divergence {
    Divergence {
        step,
        what,
        batch: Some(identity(batch)),
    }
}

/// The batch of a step and its positions: a function of the spec and the step.
fn batch_of_step(spec: &RunSpec, task: &dyn Task, step: u64) -> (Batch, Positions) {
    let length = batch_length(spec, step);
    let stage = spec.train.stage(step);
    let rows = stage.map_or(spec.train.batch_size, |stage| stage.batch_size);
    let batch = task.train_batch(length, rows, spec.seed, step);
    let positions = spec.train_coordinates(task, length, &batch, step);
    (batch, positions)
}

/// The loss and the squared norm of every gradient, in one transfer from the device.
fn to_host(loss: Tensor<1>, norms: &[(String, Tensor<1>)]) -> (f64, Vec<f64>) {
    // Detached: nothing here is differentiated.
    let scalars = std::iter::once(loss.inner()).chain(norms.iter().map(|(_, norm)| norm.clone()));
    let mut scalars = Tensor::cat(scalars.collect(), 0)
        .into_data()
        .convert::<f64>()
        .try_to_vec::<f64>()
        .expect("data was just converted to f64");
    let squares = scalars.split_off(1);
    (scalars[0], squares)
}

/// The factor that brings a gradient of this norm down to `clip`; 0 switches clipping off.
fn clip_factor(norm: f64, clip: f64) -> f64 {
    if clip > 0.0 && norm > clip {
        clip / norm
    } else {
        1.0
    }
}

/// Mean loss over the counted targets of a batch, one element on the device.
fn batch_loss(
    spec: &RunSpec,
    model: &Transformer,
    batch: &Batch,
    (step, positions): (u64, &Positions),
    device: &Device,
    observe: Option<&Observe<'_>>,
) -> Tensor<1> {
    let shape = [batch.rows, batch.seq_len];
    let keep = 1.0 - spec.model.transformer.dropout;
    let factors = |site: usize, count: usize| {
        // A stream for each place of dropout: adding one does not change the draws of the others.
        let mut stream = Stream::new(spec.seed, &format!("dropout {site}"), step);
        (0..count)
            .map(|_| {
                if stream.bernoulli(keep) {
                    // Inverted dropout: the expectation is unchanged, and evaluation needs no
                    // factor.
                    (1.0 / keep) as f32
                } else {
                    0.0
                }
            })
            .collect()
    };
    let dropout: Option<&dyn Fn(usize, usize) -> Vec<f32>> = if spec.model.transformer.dropout > 0.0
    {
        Some(&factors)
    } else {
        None
    };
    let (inputs, targets) = upload(batch, device);
    let pass = Pass {
        // Without a limit the fused attention block also takes a materialised bias.
        max_logits: usize::MAX,
        dropout,
        observe,
        ..Pass::default()
    };
    let nll = model.nll(inputs, targets, positions, &pass).0;
    let counted = batch.counted.iter().filter(|counted| **counted).count();
    // All targets count, as in text: no mask is needed.
    let nll = if counted == batch.counted.len() {
        nll
    } else {
        let mask: Vec<f32> = batch
            .counted
            .iter()
            .map(|counted| f32::from(u8::from(*counted)))
            .collect();
        nll * Tensor::<2>::from_data(TensorData::new(mask, shape), device)
    };
    // Over one dimension, as in `squared_norms`: reproducible for any number of threads.
    nll.reshape([batch.rows * batch.seq_len]).sum_dim(0) / counted as f64
}

/// The first tensor of a step that is not finite, in the order they are computed: forward, then
/// backward.
fn first_not_finite(
    loss: f64,
    norms: &[(String, Tensor<1>)],
    squares: &[f64],
    forward: impl FnOnce(&Observe<'_>),
) -> String {
    if loss.is_finite() {
        // The backward pass goes from the head to the embedding, against the order of the
        // parameters.
        let last = squares
            .iter()
            .rposition(|square| !square.is_finite())
            .unwrap_or(0);
        return format!("gradient of {}", norms[last].0);
    }
    let first = std::cell::RefCell::new(None);
    let observe = |name: &str, x: &Tensor<3>| {
        let values = x
            .clone()
            .into_data()
            .convert::<f32>()
            .try_to_vec::<f32>()
            .expect("data was just converted to f32");
        // Only the first: everything after it is not finite either.
        if first.borrow().is_none() && values.iter().any(|value| !value.is_finite()) {
            *first.borrow_mut() = Some(format!("output of {name}"));
        }
    };
    forward(&observe);
    first.into_inner().unwrap_or_else(|| "loss".to_owned())
}

/// BLAKE3 hash of a batch.
fn identity(batch: &Batch) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher
        // The shape first: batches of the same tokens in other rows differ.
        .update(&(batch.rows as u64).to_le_bytes())
        .update(&(batch.seq_len as u64).to_le_bytes());
    for ids in [&batch.inputs, &batch.targets] {
        ids.iter().for_each(|id| {
            hasher.update(&id.to_le_bytes());
        });
    }
    hasher.finalize().to_hex().to_string()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Mean loss over the last tenth of a training of `steps` steps, given the losses so far.
pub fn final_loss(losses: &[f64], steps: u64) -> f64 {
    let tail = (steps / 10).max(1) as usize;
    mean(&losses[losses.len().saturating_sub(tail)..])
}

/// Means over equal intervals of steps, at most `CURVE_POINTS` of them.
pub fn thin(losses: &[f64]) -> Vec<CurvePoint> {
    // Rounded up, so that there are never more points.
    let stretch = (losses.len() as u64).div_ceil(CURVE_POINTS).max(1) as usize;
    let points = losses.chunks(stretch).scan(0, |step, chunk| {
        *step += chunk.len() as u64;
        Some(CurvePoint {
            step: *step,
            loss_nats: mean(chunk),
        })
    });
    points.collect()
}
