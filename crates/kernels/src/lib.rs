//! The operations a small transformer spends its time in, fused: one pass over memory each, with
//! hand-written gradients.
//!
//! Every function here is defined by the function of the same name in [`mod@reference`], written
//! with plain tensor operations. The fused version runs for `f32` tensors on the Flex backend, with
//! and without autodiff; on every other backend, and for every other type, the definition itself
//! runs. Results are bitwise the same for any number of threads: work is split over independent
//! outputs, and sums have a fixed order.
#![warn(missing_docs)]

pub mod reference;

#[cfg(feature = "flex")]
mod activation;
#[cfg(feature = "flex")]
mod adamw;
#[cfg(feature = "flex")]
mod amx;
#[cfg(feature = "flex")]
mod attention;
#[cfg(feature = "flex")]
mod flex;
#[cfg(feature = "flex")]
mod half;
#[cfg(feature = "flex")]
mod heads;
#[cfg(feature = "flex")]
mod linear;
#[cfg(feature = "flex")]
mod memory;
#[cfg(feature = "flex")]
mod mlp;
#[cfg(feature = "flex")]
mod nll;
#[cfg(feature = "flex")]
mod norm;
#[cfg(feature = "flex")]
mod product;
#[cfg(feature = "flex")]
mod rotate;
#[cfg(feature = "flex")]
mod simd;
#[cfg(feature = "flex")]
mod split;

#[cfg(feature = "flex")]
use burn::backend::DispatchTensor;
use burn::tensor::{Int, Tensor};
use serde::{Deserialize, Serialize};

/// Runs `f` on one of the threads that fused operations share their work among. Each of them then
/// begins at once; from any other thread it first has to wake one of these, and in the end be woken
/// itself.
pub fn on_threads<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    #[cfg(feature = "flex")]
    return flex::on_threads(f);
    #[cfg(not(feature = "flex"))]
    f()
}

/// Runs the fused version if all inputs are `f32` on Flex, else hands the inputs on to the
/// definition after it.
#[cfg(feature = "flex")]
macro_rules! fused {
    (($($x:ident),+), $op:expr) => {
        let ($($x),+) = match flex::take([$($x.into_dispatch()),+]) {
            Ok((inputs, context)) => return Tensor::from_dispatch(flex::give($op(inputs), context)),
            Err([$($x),+]) => ($(Tensor::from_dispatch($x)),+),
        };
    };
}

/// How the products of linear layers are computed in fused operations; definitions, and with them
/// every other backend and type, know nothing of it.
///
/// Everything else is `f32` in any case: what goes into a product, the sums, and what comes out.
/// The names are those XLA has for the same algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Matmul {
    /// Fused multiply-adds of `f32`.
    #[default]
    #[serde(rename = "f32")]
    F32,
    /// Six products of parts in bfloat16, summed in `f32`: every number in three parts, which hold
    /// all its 24 significant bits. As exact as products of `f32`.
    #[serde(rename = "bf16_x6")]
    Bf16x6,
    /// Three products of parts in bfloat16, summed in `f32`: every number in two parts, which hold
    /// 16 significant bits.
    #[serde(rename = "bf16_x3")]
    Bf16x3,
}

/// Whether this machine has a matrix unit that multiplies parts in bfloat16 (AMX), and lets this
/// process use it. Without one products of parts are the same numbers, computed in plain
/// arithmetic, which takes many times as long as products of `f32`.
pub fn matrix_unit() -> bool {
    #[cfg(feature = "flex")]
    return amx::Unit::open().is_some();
    #[cfg(not(feature = "flex"))]
    false
}

/// The parameters of a norm over rows: a LayerNorm where there is a shift, else an RMSNorm.
pub struct Norm {
    /// Factor of every column.
    pub scale: Tensor<1>,
    /// Added to every column.
    pub shift: Option<Tensor<1>>,
    /// Added to the variance, or to the mean square.
    pub eps: f64,
}

/// Runs `op` on any number of tensors if all are `f32` on Flex; else gives them back.
#[cfg(feature = "flex")]
fn fused<const N: usize>(
    tensors: Vec<DispatchTensor>,
    op: impl FnOnce([flex::Input; N]) -> flex::Input,
) -> Result<DispatchTensor, Vec<DispatchTensor>> {
    let tensors: [DispatchTensor; N] = tensors
        .try_into()
        .expect("as many tensors as the operation has inputs");
    flex::take(tensors)
        .map(|(inputs, context)| flex::give(op(inputs), context))
        .map_err(Vec::from)
}

/// `norm(x) w`, `[N, M]`, of `x`, `[N, K]`, and `w`, `[K, M]`; without a norm `x w`.
pub fn linear(x: Tensor<2>, norm: Option<Norm>, w: Tensor<2>, matmul: Matmul) -> Tensor<2> {
    assert_eq!(x.dims()[1], w.dims()[0], "one row of weights per column");
    #[cfg(feature = "flex")]
    let (x, norm, w) = {
        let eps = norm.as_ref().map_or(0.0, |norm| norm.eps);
        let shift = norm.as_ref().is_some_and(|norm| norm.shift.is_some());
        let mut tensors = vec![x.into_dispatch()];
        tensors.extend(norm.into_iter().flat_map(Norm::into_dispatch));
        tensors.push(w.into_dispatch());
        let result = match tensors.len() {
            2 => fused(tensors, |inputs: [_; 2]| {
                linear::linear(inputs, eps, matmul)
            }),
            3 => fused(tensors, |inputs: [_; 3]| {
                linear::linear(inputs, eps, matmul)
            }),
            _ => fused(tensors, |inputs: [_; 4]| {
                linear::linear(inputs, eps, matmul)
            }),
        };
        match result {
            Ok(y) => return Tensor::from_dispatch(y),
            Err(tensors) => {
                let normed = tensors.len() > 2;
                let mut tensors = tensors.into_iter();
                let x = next(&mut tensors);
                (
                    x,
                    normed.then(|| Norm::from_dispatch(&mut tensors, shift, eps)),
                    next(&mut tensors),
                )
            }
        }
    };
    reference::linear(x, norm, w)
}

/// The weights of a feed-forward half.
pub struct Mlp {
    /// `[D, F]`.
    pub up: Tensor<2>,
    /// `[D, F]`, for SwiGLU.
    pub gate: Option<Tensor<2>>,
    /// `[F, D]`.
    pub down: Tensor<2>,
    /// How they are multiplied by.
    pub matmul: Matmul,
}

/// `x + gelu(norm(x) up) down`, `[N, D]`; with a gate `x + swiglu(norm(x) gate, norm(x) up) down`.
pub fn mlp(x: Tensor<2>, norm: Norm, weights: Mlp) -> Tensor<2> {
    let [d, ff] = weights.up.dims();
    assert_eq!(
        (x.dims()[1], weights.down.dims()),
        (d, [ff, d]),
        "weights fit"
    );
    assert!(
        weights
            .gate
            .as_ref()
            .is_none_or(|gate| gate.dims() == [d, ff]),
        "gate and up have one shape"
    );
    #[cfg(feature = "flex")]
    let (x, norm, weights) = {
        let (eps, shift, gate, matmul) = (
            norm.eps,
            norm.shift.is_some(),
            weights.gate.is_some(),
            weights.matmul,
        );
        let mut tensors = vec![x.into_dispatch()];
        tensors.extend(norm.into_dispatch());
        tensors.push(weights.up.into_dispatch());
        tensors.extend(weights.gate.map(Tensor::into_dispatch));
        tensors.push(weights.down.into_dispatch());
        let result = match tensors.len() {
            4 => fused(tensors, |inputs: [_; 4]| {
                mlp::mlp(inputs, eps, shift, gate, matmul)
            }),
            5 => fused(tensors, |inputs: [_; 5]| {
                mlp::mlp(inputs, eps, shift, gate, matmul)
            }),
            _ => fused(tensors, |inputs: [_; 6]| {
                mlp::mlp(inputs, eps, shift, gate, matmul)
            }),
        };
        match result {
            Ok(y) => return Tensor::from_dispatch(y),
            Err(tensors) => {
                let mut tensors = tensors.into_iter();
                let x = next(&mut tensors);
                let norm = Norm::from_dispatch(&mut tensors, shift, eps);
                (
                    x,
                    norm,
                    Mlp {
                        up: next(&mut tensors),
                        gate: gate.then(|| next(&mut tensors)),
                        down: next(&mut tensors),
                        matmul,
                    },
                )
            }
        }
    };
    reference::mlp(x, norm, weights)
}

/// The projections of an attention half.
pub struct Attention {
    /// `[D, 3 H E]`: queries, then keys, then values.
    pub qkv: Tensor<2>,
    /// `[H E, D]`.
    pub output: Tensor<2>,
    /// H.
    pub heads: usize,
    /// How they are multiplied by.
    pub matmul: Matmul,
}

/// Cos and sin of the angles by which pairs of dimensions turn, `[1, 1, L, R]`; see [`rotate`].
#[derive(Clone)]
pub struct Rotation {
    /// Cos and sin for queries.
    pub queries: [Tensor<4>; 2],
    /// Cos and sin for keys.
    pub keys: [Tensor<4>; 2],
    /// Whether pair i is `(2i, 2i + 1)`.
    pub interleaved: bool,
}

/// What is added to the logits of attention.
#[derive(Clone)]
pub enum Bias {
    /// For every query and key, `[1 or B, 1 or H, Q, K]`.
    Cells(Tensor<4>),
    /// For every distance from query back to key, counted in indices, from 0 on: `[1 or H, n]`, n
    /// at least the number of keys.
    Distances(Tensor<2>),
}

/// `x + attention(norm(x))` for `x`, `[B, L, D]`: each sequence attends to itself, causally, as
/// [`attention`] defines it, with queries and keys turned by `rotation` and products times `scale`.
pub fn attention_half(
    x: Tensor<3>,
    norm: Norm,
    weights: Attention,
    rotation: Option<Rotation>,
    bias: Option<Bias>,
    scale: f64,
) -> Tensor<3> {
    let [batch, length, d] = x.dims();
    let inner = weights.output.dims()[0];
    let shape = [batch, weights.heads, length, inner / weights.heads];
    assert_eq!(
        (
            weights.qkv.dims(),
            weights.output.dims(),
            inner % weights.heads
        ),
        ([d, 3 * inner], [inner, d], 0),
        "weights fit"
    );
    if let Some(rotation) = &rotation {
        let tables = rotation
            .queries
            .iter()
            .chain(&rotation.keys)
            .map(Tensor::dims);
        let pairs = rotation.keys[0].dims()[3];
        assert!(
            tables.into_iter().all(|dims| dims == [1, 1, length, pairs]) && 2 * pairs <= shape[3],
            "one angle per position and pair"
        );
    }
    match &bias {
        None => {}
        Some(Bias::Cells(bias)) => {
            let [b, h, rows, columns] = bias.dims();
            assert!(
                (b == 1 || b == batch)
                    && (h == 1 || h == shape[1])
                    && [rows, columns] == [length; 2],
                "bias fits logits"
            );
        }
        Some(Bias::Distances(bias)) => {
            let [h, count] = bias.dims();
            assert!(
                (h == 1 || h == shape[1]) && count >= length,
                "bias fits logits"
            );
        }
    }
    #[cfg(feature = "flex")]
    let (x, norm, weights, bias) = 'defined: {
        let tables = |tables: &[Tensor<4>; 2]| {
            let [cos, sin] = tables
                .each_ref()
                .map(|table| flex::constant(&table.clone().into_dispatch()));
            Some([cos?, sin?])
        };
        let turned = rotation.as_ref().map(|rotation| {
            let (pairs, interleaved) = (rotation.keys[0].dims()[3], rotation.interleaved);
            Some(heads::Rotation {
                queries: tables(&rotation.queries)?,
                keys: tables(&rotation.keys)?,
                pairs,
                interleaved,
            })
        });
        if matches!(turned, Some(None)) {
            break 'defined (x, norm, weights, bias);
        }
        let (eps, shift, heads, matmul) = (
            norm.eps,
            norm.shift.is_some(),
            weights.heads,
            weights.matmul,
        );
        let by_distance = bias.as_ref().map(|bias| matches!(bias, Bias::Distances(_)));
        let settings = half::Settings {
            shape,
            eps,
            shift,
            bias: by_distance,
            rotation: turned.flatten(),
            scale,
            matmul,
        };
        let mut tensors = vec![x.reshape([batch * length, d]).into_dispatch()];
        tensors.extend(norm.into_dispatch());
        tensors.extend([weights.qkv.into_dispatch(), weights.output.into_dispatch()]);
        tensors.extend(bias.map(|bias| match bias {
            Bias::Cells(bias) => bias.into_dispatch(),
            Bias::Distances(bias) => bias.into_dispatch(),
        }));
        let result = match tensors.len() {
            4 => fused(tensors, |inputs: [_; 4]| {
                half::attention_half(inputs, settings)
            }),
            5 => fused(tensors, |inputs: [_; 5]| {
                half::attention_half(inputs, settings)
            }),
            _ => fused(tensors, |inputs: [_; 6]| {
                half::attention_half(inputs, settings)
            }),
        };
        match result {
            Ok(y) => return Tensor::<2>::from_dispatch(y).reshape([batch, length, d]),
            Err(tensors) => {
                let mut tensors = tensors.into_iter();
                let x = next::<2>(&mut tensors).reshape([batch, length, d]);
                let norm = Norm::from_dispatch(&mut tensors, shift, eps);
                let weights = Attention {
                    qkv: next(&mut tensors),
                    output: next(&mut tensors),
                    heads,
                    matmul,
                };
                let bias = by_distance.map(|by_distance| match by_distance {
                    true => Bias::Distances(next(&mut tensors)),
                    false => Bias::Cells(next(&mut tensors)),
                });
                (x, norm, weights, bias)
            }
        }
    };
    reference::attention_half(x, norm, weights, rotation, bias, scale)
}

#[cfg(feature = "flex")]
fn next<const D: usize>(tensors: &mut impl Iterator<Item = DispatchTensor>) -> Tensor<D> {
    Tensor::from_dispatch(tensors.next().expect("as many tensors as were given"))
}

#[cfg(feature = "flex")]
impl Norm {
    fn into_dispatch(self) -> Vec<DispatchTensor> {
        std::iter::once(self.scale)
            .chain(self.shift)
            .map(Tensor::into_dispatch)
            .collect()
    }

    fn from_dispatch(
        tensors: &mut impl Iterator<Item = DispatchTensor>,
        shift: bool,
        eps: f64,
    ) -> Self {
        Self {
            scale: next(tensors),
            shift: shift.then(|| next(tensors)),
            eps,
        }
    }
}

/// Negative log-likelihood in nats, `[N]`, of `targets`, `[N]`, under the softmax of `logits`, `[N,
/// V]`.
///
/// # Panics
///
/// If a target is not in `0..V`.
pub fn nll(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    assert_eq!(logits.dims()[0], targets.dims()[0], "one target per row");
    #[cfg(feature = "flex")]
    let (logits, targets) = {
        let targets = targets.into_dispatch();
        let logits = match flex::indices(&targets) {
            None => logits,
            Some(indices) => match flex::take([logits.into_dispatch()]) {
                Ok((inputs, context)) => {
                    return Tensor::from_dispatch(flex::give(nll::nll(inputs, indices), context));
                }
                Err([logits]) => Tensor::from_dispatch(logits),
            },
        };
        (logits, Tensor::from_dispatch(targets))
    };
    reference::nll(logits, targets)
}

/// `(x - mean) / sqrt(variance + eps) * scale + shift` over the rows of `x`, `[N, W]`; `scale` and
/// `shift` are `[W]`.
pub fn layer_norm(x: Tensor<2>, scale: Tensor<1>, shift: Tensor<1>, eps: f64) -> Tensor<2> {
    let width = x.dims()[1];
    assert_eq!(
        [scale.dims()[0], shift.dims()[0]],
        [width; 2],
        "one scale and shift per column"
    );
    #[cfg(feature = "flex")]
    fused!((x, scale, shift), |inputs| norm::layer_norm(inputs, eps));
    reference::layer_norm(x, scale, shift, eps)
}

/// `x / sqrt(mean(x^2) + eps) * scale` over the rows of `x`, `[N, W]`; `scale` is `[W]`.
pub fn rms_norm(x: Tensor<2>, scale: Tensor<1>, eps: f64) -> Tensor<2> {
    assert_eq!(scale.dims()[0], x.dims()[1], "one scale per column");
    #[cfg(feature = "flex")]
    fused!((x, scale), |inputs| norm::rms_norm(inputs, eps));
    reference::rms_norm(x, scale, eps)
}

/// `x Phi(x)`, `Phi` the normal distribution function: the exact GELU, not its tanh approximation.
pub fn gelu(x: Tensor<2>) -> Tensor<2> {
    #[cfg(feature = "flex")]
    let [x] = match flex::take([x.into_dispatch()]) {
        Ok((inputs, context)) => {
            return Tensor::from_dispatch(flex::give(activation::gelu(inputs), context));
        }
        Err(x) => x.map(Tensor::from_dispatch),
    };
    reference::gelu(x)
}

/// `gate sigmoid(gate) up`; both of one shape.
pub fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    assert_eq!(gate.dims(), up.dims(), "gate and up have one shape");
    #[cfg(feature = "flex")]
    fused!((gate, up), activation::swiglu);
    reference::swiglu(gate, up)
}

/// Causal attention: `softmax(scale q k^T + bias) v`, `[B, H, Q, E]`.
///
/// `q` is `[B, H, Q, E]`, `k` and `v` are `[B, H, K, E]`; query row i, of absolute index
/// `first_query + i`, sees the keys `0..=first_query + i`, as far as there are any, and what lies
/// beyond is never looked at: with a `first_query` of `K` every query sees every key, and attention
/// is bidirectional. `bias`, `[1 or B, 1 or H, Q, K]`, is added to the logits; it may be -inf, and
/// a row that then sees nothing gives 0 and takes no gradient. Inputs may be strided views; the
/// result is laid out as `[B, Q, H, E]`, so that joining the heads again moves nothing.
///
/// # Panics
///
/// If shapes do not fit together, or there is no key.
pub fn attention(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    bias: Option<Tensor<4>>,
    scale: f64,
    first_query: usize,
) -> Tensor<4> {
    let [batch, heads, queries, head_dim] = q.dims();
    let keys = k.dims()[2];
    assert_eq!(k.dims(), [batch, heads, keys, head_dim], "keys fit queries");
    assert_eq!(v.dims(), k.dims(), "values fit keys");
    assert!(keys > 0, "a key to attend to");
    if let Some(bias) = &bias {
        let [b, h, rows, columns] = bias.dims();
        assert!(
            (b == 1 || b == batch) && (h == 1 || h == heads) && [rows, columns] == [queries, keys],
            "bias fits logits"
        );
    }
    #[cfg(feature = "flex")]
    {
        match bias {
            None => {
                fused!((q, k, v), |inputs| attention::attention(
                    inputs,
                    scale,
                    first_query
                ));
                reference::attention(q, k, v, None, scale, first_query)
            }
            Some(bias) => {
                fused!((q, k, v, bias), |inputs| attention::attention_biased(
                    inputs,
                    scale,
                    first_query,
                    false
                ));
                reference::attention(q, k, v, Some(bias), scale, first_query)
            }
        }
    }
    #[cfg(not(feature = "flex"))]
    reference::attention(q, k, v, bias, scale, first_query)
}

/// The numbers of one update of AdamW.
#[derive(Clone, Copy, Debug)]
pub struct AdamWStep {
    /// The gradient is multiplied by this first.
    pub grad_scale: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// The root of the second moment is divided by this.
    pub root: f64,
    /// Then this is added.
    pub eps: f64,
    /// The quotient of first moment and root is multiplied by this.
    pub rate: f64,
    /// The parameter is multiplied by this before that is subtracted.
    pub keep: f64,
}

/// A parameter and its two moments after one update of AdamW with `grad`, all `[N]` and outside
/// autodiff; `moments` are 0 at first.
///
/// Bit for bit what the definition gives.
pub fn adamw(
    theta: Tensor<1>,
    grad: Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    step: &AdamWStep,
) -> [Tensor<1>; 3] {
    #[cfg(feature = "flex")]
    let (theta, grad, moments) = {
        let give =
            |x| Tensor::from_dispatch(flex::give(flex::Input::Plain(x), flex::Context::Disabled));
        let zeros =
            || [(); 2].map(|()| Tensor::zeros(theta.dims(), (&theta.device(), theta.dtype())));
        let [first, second] = moments.unwrap_or_else(zeros);
        match flex::take([theta, grad, first, second].map(Tensor::into_dispatch)) {
            Ok((
                [
                    flex::Input::Plain(theta),
                    flex::Input::Plain(grad),
                    flex::Input::Plain(first),
                    flex::Input::Plain(second),
                ],
                _,
            )) => {
                return adamw::adamw(theta, grad, [first, second], step).map(give);
            }
            Ok((inputs, context)) => {
                let [theta, grad, first, second] =
                    inputs.map(|x| Tensor::from_dispatch(flex::give(x, context)));
                (theta, grad, Some([first, second]))
            }
            Err(tensors) => {
                let [theta, grad, first, second] = tensors.map(Tensor::from_dispatch);
                (theta, grad, Some([first, second]))
            }
        }
    };
    reference::adamw(theta, grad, moments, step)
}

/// Turns the pairs of the first `2 R` dimensions of `x`, `[B, H, L, E]`, by the angles whose `cos`
/// and `sin` are `[1, 1, L, R]`; the other dimensions pass through. Pair i is `(2i, 2i + 1)` if
/// `interleaved`, else `(i, i + R)`.
///
/// `cos` and `sin` take no gradient from the fused version; if they are tracked, the definition
/// runs.
pub fn rotate(x: Tensor<4>, cos: Tensor<4>, sin: Tensor<4>, interleaved: bool) -> Tensor<4> {
    let [_, _, length, head_dim] = x.dims();
    let pairs = cos.dims()[3];
    assert_eq!(
        cos.dims(),
        [1, 1, length, pairs],
        "one angle per position and pair"
    );
    assert_eq!(sin.dims(), cos.dims(), "cos and sin of the same angles");
    assert!(
        2 * pairs <= head_dim,
        "{pairs} pairs in a head of {head_dim}"
    );
    #[cfg(feature = "flex")]
    let (x, cos, sin) = {
        let (cos, sin) = (cos.into_dispatch(), sin.into_dispatch());
        let constant = !flex::is_tracked(&cos) && !flex::is_tracked(&sin);
        let (cos, sin) = (Tensor::from_dispatch(cos), Tensor::from_dispatch(sin));
        if constant {
            fused!((x, cos, sin), |inputs| rotate::rotate(inputs, interleaved));
            (x, cos, sin)
        } else {
            (x, cos, sin)
        }
    };
    reference::rotate(x, cos, sin, interleaved)
}
