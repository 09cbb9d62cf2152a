//! AdamW with one step count for all parameters and state keyed by parameter path.
//!
//! Burn's optimizer keys its state by random ids, silently drops what it cannot match on load, and
//! clips every tensor separately. This one resumes exactly and takes the gradient norm over all
//! parameters, as PyTorch recipes do.

use crate::run::parameters::ParamPath;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use kernels::AdamWStep;
use rundir::{HostTensor, Weights};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Loshchilov and Hutter 2017 (arXiv 1711.05101), with PyTorch's defaults. As in PyTorch, the
/// decay applies to every parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdamWConfig {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the square root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, times the learning rate of the step.
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.01,
        }
    }
}

/// Moments of one parameter, flattened.
struct Moments {
    first: Tensor<1>,
    second: Tensor<1>,
}

/// The optimizer and its state.
pub struct AdamW {
    config: AdamWConfig,
    step: i32,
    /// The steps before parameters that a later stage brought, by path; 0 for all others.
    later: BTreeMap<String, i32>,
    moments: BTreeMap<String, Moments>,
}

impl AdamW {
    /// An optimizer without state.
    pub fn new(config: AdamWConfig) -> Self {
        Self {
            config,
            step: 0,
            later: BTreeMap::new(),
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
        Self {
            config,
            // i32 for `powi`; the config allows at most 10^8 steps.
            step: step as i32,
            later: later
                .into_iter()
                .map(|(path, steps)| (path, steps as i32))
                .collect(),
            moments,
        }
    }

    /// Goes on with other parameters: those of `model`, of which `drawn` are new. New ones begin
    /// without moments, and with their own count of steps; what is gone loses its state.
    pub fn change(&mut self, model: &Weights, drawn: &[String]) {
        let stays = |path: &String| model.0.contains_key(path) && !drawn.contains(path);
        self.moments.retain(|path, _| stays(path));
        self.later.retain(|path, _| stays(path));
        let anew = drawn.iter().map(|path| (path.clone(), self.step));
        self.later.extend(anew);
    }

    /// First and second moments on the host, flattened, by the path of their parameter.
    pub fn moments(&self) -> [Weights; 2] {
        let host = |tensor: &Tensor<1>| {
            let values = tensor
                .clone()
                .into_data_dtype(DType::F32)
                .try_to_vec::<f32>()
                .expect("data was just converted to f32");
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

    /// Applies one update with gradients multiplied by `grad_scale`.
    pub fn step<M: Module>(
        &mut self,
        module: M,
        grads: &mut Gradients,
        lr: f64,
        grad_scale: f64,
    ) -> M {
        self.step += 1;
        let mut update = Update {
            path: ParamPath::default(),
            grads,
            step: self.update(self.step, lr, grad_scale),
            lr,
            optimizer: self,
        };
        module.map(&mut update)
    }

    /// The constants of the update of a parameter that has been there for `step` steps.
    fn update(&self, step: i32, lr: f64, grad_scale: f64) -> AdamWStep {
        let AdamWConfig {
            beta1,
            beta2,
            eps,
            weight_decay,
        } = self.config;
        // theta -= lr m_hat / (sqrt(v_hat) + eps), with both bias corrections in f64 on the host.
        AdamWStep {
            grad_scale,
            beta1,
            beta2,
            root: (1.0 - beta2.powi(step)).sqrt(),
            eps,
            rate: lr / (1.0 - beta1.powi(step)),
            keep: 1.0 - lr * weight_decay,
        }
    }
}

struct Update<'a> {
    path: ParamPath,
    grads: &'a mut Gradients,
    /// The update of parameters that were there from the first step.
    step: AdamWStep,
    lr: f64,
    optimizer: &'a mut AdamW,
}

impl ModuleMapper for Update<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

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
            // Taken out and put back, so that the kernel owns the buffers and may write in place.
            let moments = self
                .optimizer
                .moments
                .remove(&path)
                .map(|Moments { first, second }| [first, second]);
            let own = self.optimizer.later.get(&path).map(|before| {
                let (step, scale) = (self.optimizer.step - before, self.step.grad_scale);
                self.optimizer.update(step, self.lr, scale)
            });
            let step = own.as_ref().unwrap_or(&self.step);
            // The update itself is not differentiated.
            let theta = tensor.inner().reshape([count]);
            let [updated, first, second] =
                kernels::adamw(theta, grad.reshape([count]), moments, step);
            self.optimizer
                .moments
                .insert(path, Moments { first, second });
            // A leaf of the next step's graph.
            Tensor::from_inner(updated.reshape(shape)).require_grad()
        })
    }
}

/// Squared norm of every gradient by path, each as a tensor of one element still on the device.
pub fn squared_norms<M: Module>(module: &M, grads: &Gradients) -> Vec<(String, Tensor<1>)> {
    struct Norms<'a> {
        path: ParamPath,
        grads: &'a Gradients,
        found: Vec<(String, Tensor<1>)>,
    }
    impl ModuleVisitor for Norms<'_> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }
        fn exit_module(&mut self, _name: &str, _container: &str) {
            self.path.exit();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(grad) = param.val().grad(self.grads) {
                let count: usize = grad.dims().iter().product();
                // A sum over one dimension is reproducible for any number of threads; a full
                // `sum()` of a large tensor is not.
                self.found.push((
                    self.path.dotted(),
                    grad.reshape([count]).square().sum_dim(0),
                ));
            }
        }
    }
    let mut visitor = Norms {
        path: ParamPath::default(),
        grads,
        found: Vec::new(),
    };
    module.visit(&mut visitor);
    visitor.found
}
