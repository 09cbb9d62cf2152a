//! AdamW with one step count for all parameters and state keyed by parameter path.
//!
//! Burn's optimizer keys its state by random ids, silently drops what it cannot match on load, and
//! clips every tensor separately. This one resumes exactly and takes the gradient norm over all
//! parameters, as PyTorch recipes do.

use crate::host::values;
use crate::run::parameters::{ParamPath, follow_path, is_of_encoding, joined_path, own_path};
use crate::spec::AdamWConfig;
use crate::spec::train::Decay;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use kernels::{AdamWStep, AdamWUpdate};
use rundir::{HostTensor, Weights};
use std::collections::{BTreeMap, BTreeSet};

/// Moments of one parameter, flattened.
struct Moments {
    first: Tensor<1>,
    second: Tensor<1>,
}

/// The optimizer and its state, of one run or of several side by side.
pub struct AdamW {
    /// One for each run.
    runs: Vec<Progress>,
    /// By the path of the parameter; where there are several runs, by that of the joined one.
    moments: BTreeMap<String, Moments>,
}

/// How far a run is.
#[derive(Clone)]
struct Progress {
    config: AdamWConfig,
    step: i32,
    /// Steps taken before a later stage added a parameter, by path; absent means 0.
    later: BTreeMap<String, i32>,
}

/// The learning rate of a run's step, and the factor of its gradients.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Learning rate.
    pub lr: f64,
    /// 1, or what clipping scales gradients by.
    pub grad_scale: f64,
}

impl AdamW {
    /// An optimizer without state.
    pub fn new(config: AdamWConfig) -> Self {
        let run = Progress {
            config,
            step: 0,
            later: BTreeMap::new(),
        };
        Self {
            runs: vec![run],
            moments: BTreeMap::new(),
        }
    }

    /// Restores the state after `step` updates from what [`moments`](Self::moments) returned;
    /// `later` has the steps before parameters that were not there from the first. `device` is
    /// without autodiff.
    pub fn resumed(
        config: AdamWConfig,
        step: u64,
        moments: &[Weights; 2],
        later: BTreeMap<String, u64>,
        device: &Device,
    ) -> Self {
        let upload = |tensor: &HostTensor| {
            Tensor::from_data(
                TensorData::new(tensor.values.clone(), [tensor.values.len()]),
                device,
            )
        };
        let [first, second] = moments;
        let pair = |path: &String| Moments {
            first: upload(&first.0[path]),
            second: upload(&second.0[path]),
        };
        let moments = first
            .0
            .keys()
            .map(|path| (path.clone(), pair(path)))
            .collect();
        let run = Progress {
            config,
            // i32 for `powi`; the config allows at most 10^8 steps.
            step: step as i32,
            later: later
                .into_iter()
                .map(|(path, steps)| (path, steps as i32))
                .collect(),
        };
        Self {
            runs: vec![run],
            moments,
        }
    }

    /// The optimizers of several runs as one, for the models that
    /// [`Transformer::join`](tiny_transformer::Transformer::join) returns: with one encoding for all
    /// models, or with one for each. Moments that one of them does not have yet are 0.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn join(mut optimizers: Vec<Self>, one_encoding: bool) -> Self {
        let mut moments: BTreeMap<String, Moments> = BTreeMap::new();
        let paths = optimizers.iter().flat_map(|one| one.moments.keys());
        let paths: BTreeSet<String> = paths.cloned().collect();
        for path in paths {
            let each = optimizers.iter_mut().map(|one| one.moments.remove(&path));
            let each: Vec<Option<Moments>> = each.collect();
            if one_encoding || !is_of_encoding(&path) {
                moments.insert(joined_path(&path, None), Moments::join(each));
            } else {
                let own = each.into_iter().enumerate();
                moments
                    .extend(own.filter_map(|(g, own)| Some((joined_path(&path, Some(g)), own?))));
            }
        }
        Self {
            runs: optimizers.into_iter().flat_map(|one| one.runs).collect(),
            moments,
        }
    }

    /// That of run `g`, as it was before it was joined.
    ///
    /// # Panics
    ///
    /// If there are not as many runs.
    pub fn part(&self, g: usize) -> Self {
        let moments = self.moments.iter().filter_map(|(path, moments)| {
            let (path, member) = own_path(path);
            match member {
                None => Some((path, moments.part(g, self.runs.len()))),
                Some(member) => (member == g).then(|| (path, moments.part(0, 1))),
            }
        });
        Self {
            moments: moments.collect(),
            runs: vec![self.runs[g].clone()],
        }
    }

    /// Goes on with other parameters of a single run: those of `model`, of which `drawn` are new.
    /// New ones begin without moments, and with their own count of steps; what is gone loses its
    /// state.
    pub fn change(&mut self, model: &Weights, drawn: &[String]) {
        let stays = |path: &String| model.0.contains_key(path) && !drawn.contains(path);
        self.moments.retain(|path, _| stays(path));
        for run in &mut self.runs {
            run.later.retain(|path, _| stays(path));
            let anew = drawn.iter().map(|path| (path.clone(), run.step));
            run.later.extend(anew);
        }
    }

    /// First and second moments on the host, flattened, by the path of their parameter.
    pub fn moments(&self) -> [Weights; 2] {
        let host = |tensor: &Tensor<1>| {
            let values = values::<f32>(tensor.clone().into_data_dtype(DType::F32));
            HostTensor {
                shape: vec![values.len()],
                values,
            }
        };
        let all = |of: fn(&Moments) -> &Tensor<1>| {
            Weights(
                self.moments
                    .iter()
                    .map(|(path, m)| (path.clone(), host(of(m))))
                    .collect(),
            )
        };
        [all(|m| &m.first), all(|m| &m.second)]
    }

    /// Applies one update to the joined models of all runs, each with its own rate.
    pub fn step<M: Module>(&mut self, module: M, grads: &mut Gradients, rates: &[Rate]) -> M {
        for run in &mut self.runs {
            run.step += 1;
        }
        let mut take = Take {
            path: ParamPath::default(),
            grads,
            rates,
            optimizer: self,
            paths: Vec::new(),
            updates: Vec::new(),
        };
        let module = module.map(&mut take);
        let (paths, updates) = (take.paths, take.updates);
        let mut updated = BTreeMap::new();
        for (path, [theta, first, second]) in paths.into_iter().zip(kernels::adamw_all(updates)) {
            self.moments.insert(path.clone(), Moments { first, second });
            updated.insert(path, theta);
        }
        let path = ParamPath::default();
        module.map(&mut Put { path, updated })
    }
}

impl Progress {
    /// The constants of the update of a parameter, which has `dimensions`.
    fn update(&self, path: &str, dimensions: usize, rate: Rate) -> AdamWStep {
        let AdamWConfig {
            beta1,
            beta2,
            eps,
            weight_decay,
            decay,
        } = self.config;
        let decays = decay == Decay::All || dimensions > 1;
        let Rate { lr, grad_scale } = rate;
        // The steps that the parameter has been there for.
        let step = self.step - self.later.get(path).unwrap_or(&0);
        // theta -= lr m_hat / (sqrt(v_hat) + eps), with both bias corrections in f64 on the host.
        AdamWStep {
            grad_scale,
            beta1,
            beta2,
            root: (1.0 - beta2.powi(step)).sqrt(),
            eps,
            rate: lr / (1.0 - beta1.powi(step)),
            keep: if decays { 1.0 - lr * weight_decay } else { 1.0 },
        }
    }
}

impl Moments {
    /// Those of one parameter of several runs, one after the other; 0 for runs without.
    fn join(each: Vec<Option<Self>>) -> Self {
        let like = each.iter().flatten().next().expect("one has moments");
        let empty = like.first.zeros_like();
        let all = |of: fn(&Self) -> &Tensor<1>| {
            let each = each
                .iter()
                .map(|one| one.as_ref().map_or(&empty, of).clone());
            Tensor::cat(each.collect(), 0)
        };
        Self {
            first: all(|m| &m.first),
            second: all(|m| &m.second),
        }
    }

    /// Those of part `g` of `count`.
    fn part(&self, g: usize, count: usize) -> Self {
        let part = |x: &Tensor<1>| {
            let size = x.dims()[0] / count;
            x.clone().slice_dim(0, g * size..(g + 1) * size)
        };
        Self {
            first: part(&self.first),
            second: part(&self.second),
        }
    }
}

/// Takes parameters out of a module, with their gradients and moments.
///
/// Taken out and put back, so that the kernel owns the buffers and may write in place.
struct Take<'a> {
    path: ParamPath,
    grads: &'a mut Gradients,
    rates: &'a [Rate],
    optimizer: &'a mut AdamW,
    paths: Vec<String>,
    updates: Vec<AdamWUpdate>,
}

impl ModuleMapper for Take<'_> {
    follow_path!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.dotted();
        param.map(|tensor| {
            let Some(grad) = tensor.grad_remove(self.grads) else {
                // A parameter that the loss does not depend on has no gradient and stays as it is.
                // Nor does it decay, as in PyTorch.
                return tensor;
            };
            let shape = tensor.dims();
            let count: usize = shape.iter().product();
            let moments = self.optimizer.moments.remove(&path);
            let (own, member) = own_path(&path);
            let runs = self.optimizer.runs.iter().zip(self.rates).enumerate();
            let runs = runs.filter(|(g, _)| member.is_none_or(|member| member == *g));
            let steps = runs.map(|(_, (run, rate))| run.update(&own, D, *rate));
            let steps = steps.collect();
            // The shape of what is put back, and no values.
            let nothing = Tensor::<D>::empty([1; D], &tensor.device()).expand(shape);
            self.updates.push(AdamWUpdate {
                // The update itself is not differentiated.
                theta: tensor.inner().reshape([count]),
                grad: grad.reshape([count]),
                moments: moments.map(|Moments { first, second }| [first, second]),
                steps,
            });
            self.paths.push(path);
            nothing
        })
    }
}

/// Puts updated parameters back.
struct Put {
    path: ParamPath,
    updated: BTreeMap<String, Tensor<1>>,
}

impl ModuleMapper for Put {
    follow_path!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match self.updated.remove(&self.path.dotted()) {
            None => param,
            Some(theta) => param.map(|nothing| {
                // A leaf of the next step's graph.
                Tensor::from_inner(theta.reshape(nothing.dims())).require_grad()
            }),
        }
    }
}

/// The squared norm of every gradient of every run, still on the device.
pub struct SquaredNorms {
    /// Paths of the parameters in the order of the module, and whose they are; see [`own_path`].
    parameters: Vec<(String, Option<usize>)>,
    /// Of parameters of all runs, run by run for each parameter; then of those of one run.
    sums: Vec<Tensor<1>>,
    runs: usize,
}

impl SquaredNorms {
    /// Squared gradient norms of the joined models, one for each of `runs` runs.
    pub fn new<M: Module>(models: &M, grads: &Gradients, runs: usize) -> Self {
        let mut found = FoundGradient {
            path: ParamPath::default(),
            grads,
            parameters: Vec::new(),
            of_all: Vec::new(),
            of_one: Vec::new(),
        };
        models.visit(&mut found);
        let sums = [(found.of_all, runs), (found.of_one, 1)].into_iter();
        let sums = sums.filter(|(vectors, _)| !vectors.is_empty());
        Self {
            parameters: found.parameters,
            sums: sums
                .map(|(vectors, parts)| kernels::square_sums(vectors, parts))
                .collect(),
            runs,
        }
    }

    /// The tensors, to be brought to the host.
    pub fn sums(&self) -> impl Iterator<Item = Tensor<1>> {
        self.sums.iter().cloned()
    }

    /// The squared norms of run `g` among the numbers of all [`sums`](Self::sums).
    pub fn of(&self, g: usize, numbers: &[f64]) -> Vec<f64> {
        let shared = |(_, member): &&(String, Option<usize>)| member.is_none();
        let (mut at, mut own_at) = (0, self.runs * self.parameters.iter().filter(shared).count());
        let mut own = Vec::new();
        for (_, member) in &self.parameters {
            match member {
                None => {
                    own.push(numbers[at + g]);
                    at += self.runs;
                }
                Some(member) => {
                    if *member == g {
                        own.push(numbers[own_at]);
                    }
                    own_at += 1;
                }
            }
        }
        own
    }

    /// The paths of the parameters of run `g`, in the order of [`of`](Self::of).
    pub fn names(&self, g: usize) -> Vec<&str> {
        let own = |member: &Option<usize>| member.is_none_or(|member| member == g);
        let names = self.parameters.iter().filter(|(_, member)| own(member));
        names.map(|(name, _)| name.as_str()).collect()
    }
}

struct FoundGradient<'a> {
    path: ParamPath,
    grads: &'a Gradients,
    parameters: Vec<(String, Option<usize>)>,
    of_all: Vec<Tensor<1>>,
    of_one: Vec<Tensor<1>>,
}

impl ModuleVisitor for FoundGradient<'_> {
    follow_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(grad) = param.val().grad(self.grads) {
            let count: usize = grad.dims().iter().product();
            let (path, member) = own_path(&self.path.dotted());
            let vectors = match member {
                None => &mut self.of_all,
                Some(_) => &mut self.of_one,
            };
            vectors.push(grad.reshape([count]));
            self.parameters.push((path, member));
        }
    }
}
