//! The training loop, of one run or of several that are trained together. Step `s` of a run depends
//! only on its weights, its optimizer's state and (spec, s).

use crate::run::optimizer::{Rate, SquaredNorms};
use crate::run::side_by_side::{Alone, Together};
use crate::run::step::{StepBatch, first_not_finite, identity, losses, to_host};
use crate::run::step_scores::TrainingScores;
use crate::spec::RunSpec;
use burn::tensor::Device;
use records::record::{CurvePoint, Divergence};
use records::stats::mean;
use rundir::Weights;
use rundir::steplog::Step;
use support::exit::Failure;
use tasks::{Batch, Task};
use tiny_transformer::Transformer;

pub use crate::run::side_by_side::TrainingStart;
pub use crate::run::step::{row_lengths, tokens};

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
    pub scores: TrainingScores,
    /// Mean loss over the last tenth of the steps.
    pub final_loss_nats: Option<f64>,
    /// Set if training stopped early, with the batch it stopped at.
    pub diverged: Option<(Divergence, Batch)>,
    /// Whether it ended before the last step of its spec: its watch said so, or `train.stop`.
    pub stopped: bool,
}

/// The model and the optimizer of a run after a step.
pub struct Snapshot<'a> {
    together: &'a Together,
    g: usize,
}

impl Snapshot<'_> {
    /// The model's parameters.
    pub fn weights(&self) -> Weights {
        self.together.part(self.g).weights()
    }

    /// The optimizer's moments.
    pub fn moments(&self) -> [Weights; 2] {
        self.together.part(self.g).moments()
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
    pub start: Option<TrainingStart>,
    /// Called after each of its steps.
    pub watch: Box<Watch<'a>>,
}

/// Trains one run; see [`train_together`].
///
/// # Errors
///
/// As [`train_together`].
pub fn train(
    spec: &RunSpec,
    task: &dyn Task,
    device: &Device,
    start: Option<TrainingStart>,
    watch: &mut Watch<'_>,
) -> Result<Trained, Failure> {
    let member = Member {
        spec,
        task,
        start,
        watch: Box::new(watch),
    };
    let mut trained = train_together(vec![member], device)?;
    Ok(trained.remove(0))
}

/// Trains runs of one shape as one model, each to its last step, to its first number that is not
/// finite, or until its watch returns false; results are in the order of `members`. Which runs have
/// one shape: [`plan::together`](crate::plan::together). Starting from a checkpoint gives the same
/// bits as training without a break.
///
/// Every run has its own batches, learning rate, clipping and step count, and ends by itself: the
/// others go on without it. A step that would not be finite is not applied: the model returned is
/// the last good one.
///
/// # Errors
///
/// The first error of any watch, which ends all of them; [`Exit::Bug`](support::exit::Exit::Bug) if
/// an encoding, which was checked, cannot be made.
pub fn train_together(members: Vec<Member<'_>>, device: &Device) -> Result<Vec<Trained>, Failure> {
    let count = members.len();
    let mut ended: Vec<Option<Trained>> = std::iter::repeat_with(|| None).take(count).collect();
    let mut runs = Vec::new();
    for (place, member) in members.into_iter().enumerate() {
        let state = Alone::new(member.spec, member.start.as_ref(), device)?;
        runs.push((Running::new(place, member), state));
    }
    while !runs.is_empty() {
        // Until one of them ends or changes its encoding.
        let stretch = train_stretch(&mut runs, device)?;
        for (g, end) in stretch.into_iter().rev() {
            let (run, state) = runs.remove(g);
            let place = run.place;
            ended[place] = Some(run.trained(state, end));
        }
    }
    let all = ended.into_iter().collect::<Option<Vec<_>>>();
    all.ok_or_else(|| Failure::bug("a run was trained without an end"))
}

/// A run in training.
struct Running<'a> {
    /// Its place among the members.
    place: usize,
    spec: &'a RunSpec,
    task: &'a dyn Task,
    watch: Box<Watch<'a>>,
    /// Steps applied.
    step: u64,
    /// Whether it starts where `train.stop` ended it.
    learned: bool,
    /// The loss of every step so far.
    losses: Vec<f64>,
    tokens: u64,
}

/// How a run ends.
enum End {
    /// After its last step, or because its watch said so.
    Left,
    Diverged(Box<(Divergence, Batch)>),
}

impl<'a> Running<'a> {
    fn new(place: usize, member: Member<'a>) -> Self {
        let start = member.start.unwrap_or_default();
        Self {
            place,
            spec: member.spec,
            task: member.task,
            watch: member.watch,
            step: start.step,
            learned: start.learned,
            losses: start.losses,
            tokens: start.tokens,
        }
    }

    fn is_at_its_end(&self) -> bool {
        self.learned || self.step == self.spec.train.steps
    }

    /// Whether the next step has another encoding than the last.
    fn changes_encoding(&self) -> bool {
        self.spec.encoding_after(self.step) != self.spec.encoding_at(self.step)
    }

    /// The learning rate of the next step, and the factor of its gradients.
    fn rate(&self, norm: f64) -> Rate {
        Rate {
            lr: self.spec.train.lr_at(self.step),
            grad_scale: clip_factor(norm, self.spec.train.grad_clip),
        }
    }

    /// Counts a step that was applied; whether the run goes on.
    fn applied(
        &mut self,
        tokens: u64,
        (loss, norm): (f64, f64),
        snapshot: &Snapshot<'_>,
    ) -> Result<bool, Failure> {
        let lr = self.spec.train.lr_at(self.step);
        self.step += 1;
        self.tokens += tokens;
        self.losses.push(loss);
        let done = Step {
            step: self.step,
            loss_nats: loss,
            lr,
            grad_norm: norm,
            tokens: self.tokens,
        };
        (self.watch)(done, snapshot)
    }

    fn trained(self, state: Alone, end: End) -> Trained {
        let stopped = matches!(end, End::Left) && self.step < self.spec.train.steps;
        let diverged = match end {
            End::Left => None,
            End::Diverged(diverged) => Some(*diverged),
        };
        let final_loss_nats = diverged.is_none().then(|| final_loss(&self.losses));
        Trained {
            model: state.into_model(),
            steps: self.losses.len() as u64,
            tokens: self.tokens,
            curve: thin(&self.losses),
            scores: TrainingScores::default(),
            final_loss_nats,
            diverged,
            stopped,
        }
    }
}

/// Trains runs until at least one ends or changes its encoding at the next step. Returns those that
/// end, in their order.
fn train_stretch(
    runs: &mut Vec<(Running<'_>, Alone)>,
    device: &Device,
) -> Result<Vec<(usize, End)>, Failure> {
    let at_end = runs
        .iter()
        .enumerate()
        .filter(|(_, run)| run.0.is_at_its_end());
    let at_end: Vec<(usize, End)> = at_end.map(|(g, _)| (g, End::Left)).collect();
    if !at_end.is_empty() {
        return Ok(at_end);
    }
    for (run, state) in runs.iter_mut().filter(|(run, _)| run.changes_encoding()) {
        state.enter(run.spec, run.step, device)?;
    }
    let (mut running, states): (Vec<_>, Vec<_>) = runs.drain(..).unzip();
    let mut together = Together::join(states, equal_encodings(&running));
    let mut ends: Vec<Ended> = Vec::new();
    loop {
        let ended;
        (together, ended) = train_step(&mut running, together, device)?;
        ends.extend(ended);
        let ending = |run: &Running<'_>| run.is_at_its_end() || run.changes_encoding();
        if !ends.is_empty() || running.iter().any(ending) {
            break;
        }
    }
    let parts = (0..running.len()).map(|g| together.part(g));
    let mut states: Vec<Alone> = parts.collect();
    for (g, _, last_good) in &mut ends {
        if let Some(state) = last_good.take() {
            states[*g] = state;
        }
    }
    runs.extend(running.into_iter().zip(states));
    Ok(ends.into_iter().map(|(g, end, _)| (g, end)).collect())
}

/// Whether the encodings of runs have one configuration.
fn equal_encodings(runs: &[Running<'_>]) -> bool {
    let encoding = |run: &Running<'_>| run.spec.encoding_at(run.step).clone();
    let first = encoding(&runs[0]);
    runs.iter().all(|run| encoding(run) == first)
}

/// A run that ends with a step: which, how, and its state before the step, if that was not finite.
type Ended = (usize, End, Option<Alone>);

/// One step of every run.
fn train_step(
    runs: &mut [Running<'_>],
    together: Together,
    device: &Device,
) -> Result<(Together, Vec<Ended>), Failure> {
    let autodiff = device.clone().autodiff();
    let batches = runs
        .iter()
        .map(|run| StepBatch::new(run.spec, run.task, run.step));
    let batches: Vec<StepBatch<'_>> = batches.collect();
    let shape = batches[0].shape();
    if batches.iter().any(|batch| batch.shape() != shape) {
        return Err(Failure::bug(
            "runs that are trained together have batches of one shape",
        ));
    }
    let loss = losses(&together.models, &batches, &autodiff, None);
    // Each parameter is read by one of the losses.
    let sum = match runs.len() {
        1 => loss.clone(),
        _ => loss.clone().sum_dim(0),
    };
    let mut grads = sum.backward();
    // Norms stay on the device until `to_host`: one transfer for each step, not one per parameter.
    let norms = SquaredNorms::new(&together.models, &grads, runs.len());
    let found = to_host(&loss, &norms);
    let mut ended: Vec<Ended> = Vec::new();
    // Before the update, so that the model and the moments stay finite.
    for (g, found) in found.iter().enumerate() {
        if found.0.is_finite() && found.1.iter().all(|square| square.is_finite()) {
            continue;
        }
        // If the loss is not finite, a second forward pass, now observed, finds where it began: a
        // pass can be repeated with the same bits.
        let what = first_not_finite((g, runs.len()), found, &norms, |observe| {
            losses(&together.models, &batches, &autodiff, Some(observe));
        });
        let batch = &batches[g].batch;
        let divergence = Divergence {
            step: runs[g].step,
            what,
            batch: Some(identity(batch)),
        };
        let end = End::Diverged(Box::new((divergence, batch.clone())));
        ended.push((g, end, Some(together.part(g))));
    }
    if ended.len() == runs.len() {
        return Ok((together, ended));
    }
    // One norm over all parameters, summed in f64 on the host.
    let norms = found
        .iter()
        .map(|(_, squares)| squares.iter().sum::<f64>().sqrt());
    let norms: Vec<f64> = norms.collect();
    let rates = runs.iter().zip(&norms).map(|(run, norm)| run.rate(*norm));
    let rates: Vec<Rate> = rates.collect();
    // Diverged models are updated as well; their state before the step was kept above.
    let together = together.step(&mut grads, &rates);
    for (g, run) in runs.iter_mut().enumerate() {
        if ended.iter().any(|(diverged, ..)| *diverged == g) {
            continue;
        }
        let snapshot = Snapshot {
            together: &together,
            g,
        };
        if !run.applied(batches[g].tokens, (found[g].0, norms[g]), &snapshot)? {
            ended.push((g, End::Left, None));
        }
    }
    ended.sort_by_key(|(g, ..)| *g);
    Ok((together, ended))
}

/// The factor that brings a gradient of this norm down to `clip`; 0 switches clipping off.
fn clip_factor(norm: f64, clip: f64) -> f64 {
    if clip > 0.0 && norm > clip {
        clip / norm
    } else {
        1.0
    }
}

/// Mean loss over the last tenth of the steps of a training.
pub fn final_loss(losses: &[f64]) -> f64 {
    let tail = (losses.len() / 10).max(1);
    mean(&losses[losses.len().saturating_sub(tail)..]).unwrap_or_default()
}

/// Means over equal intervals of steps, at most `CURVE_POINTS` of them.
pub fn thin(losses: &[f64]) -> Vec<CurvePoint> {
    // Rounded up, so that there are never more points.
    let stretch = (losses.len() as u64).div_ceil(CURVE_POINTS).max(1) as usize;
    let points = losses.chunks(stretch).scan(0, |step, chunk| {
        *step += chunk.len() as u64;
        Some(CurvePoint {
            step: *step,
            loss_nats: mean(chunk).unwrap_or_default(),
        })
    });
    points.collect()
}
