//! One update of AdamW in one launch.

use super::tensors::{Primitive, elements, empty, in_order, run, upload};
use crate::AdamWStep;
use burn::tensor::Shape;
use burn_cubecl::CubeDevice;
use burn_cubecl::cubecl;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Scalars of one part, in the order in which the kernel reads them.
const SCALARS: usize = 9;

/// One unit updates one element. `scalars` holds [`SCALARS`] numbers for each part.
#[cube(launch)]
#[allow(
    clippy::too_many_arguments,
    reason = "a parameter, its gradient and moments, before and after"
)]
fn adamw_kernel(
    theta: &Tensor<f32>,
    grad: &Tensor<f32>,
    first: &Tensor<f32>,
    second: &Tensor<f32>,
    scalars: &Tensor<f32>,
    new_theta: &mut Tensor<f32>,
    new_first: &mut Tensor<f32>,
    new_second: &mut Tensor<f32>,
    part: u32,
    #[comptime] fresh: bool,
) {
    let i = ABSOLUTE_POS;
    if i < new_theta.len() {
        let at = i / part as usize * SCALARS;
        let g = grad[i] * scalars[at];
        // The moments before the first step are 0, and are not read.
        let mut m = g * scalars[at + 3];
        let mut v = g * g * scalars[at + 4];
        if comptime![!fresh] {
            m += first[i] * scalars[at + 1];
            v += second[i] * scalars[at + 2];
        }
        let update = m / (v.sqrt() / scalars[at + 5] + scalars[at + 6]) * scalars[at + 7];
        new_theta[i] = theta[i] * scalars[at + 8] - update;
        new_first[i] = m;
        new_second[i] = v;
    }
}

/// Parameter and moments after one update, of tensors `[N]`.
pub(super) fn adamw(
    theta: Primitive,
    grad: Primitive,
    moments: Option<[Primitive; 2]>,
    steps: &[AdamWStep],
    n: usize,
) -> [Primitive; 3] {
    let fresh = moments.is_none();
    let scalars: Vec<f32> = steps.iter().flat_map(numbers).collect();
    let inputs = [theta, grad]
        .into_iter()
        .chain(moments.into_iter().flatten());
    let shapes = vec![Shape::new([n]); 3];
    let part = (n / steps.len()) as u32;
    let updated = run(inputs.collect(), shapes, move |inputs| {
        let inputs: Vec<CubeTensor> = inputs.into_iter().map(in_order).collect();
        let outputs = [(); 3].map(|()| empty(&inputs[0], [n]));
        let argument = |i: usize| inputs[i].clone().into_tensor_arg();
        let [theta, first, second] = outputs.each_ref().map(|x| x.clone().into_tensor_arg());
        // Without moments any tensors, which are not read.
        let moments = if fresh { [0, 0] } else { [2, 3] };
        let (count, dim) = elements(&inputs[0], n);
        adamw_kernel::launch(
            &inputs[0].client,
            count,
            dim,
            argument(0),
            argument(1),
            argument(moments[0]),
            argument(moments[1]),
            uploaded(&inputs[0], &scalars).into_tensor_arg(),
            theta,
            first,
            second,
            part,
            fresh,
        );
        outputs.into()
    });
    updated.try_into().expect("three outputs")
}

fn numbers(step: &AdamWStep) -> [f32; SCALARS] {
    let AdamWStep {
        grad_scale,
        beta1,
        beta2,
        root,
        eps,
        rate,
        keep,
    } = *step;
    // 1 - beta in f64, rounded once, as in the definition.
    [
        grad_scale,
        beta1,
        beta2,
        1.0 - beta1,
        1.0 - beta2,
        root,
        eps,
        rate,
        keep,
    ]
    .map(|x| x as f32)
}

/// The scalars on the device of `like`. All parameters of a model are updated with the same ones,
/// so the last are kept: one transfer for each step, not one for each parameter.
fn uploaded(like: &CubeTensor, scalars: &[f32]) -> CubeTensor {
    type Kept = Option<(CubeDevice, Vec<f32>, CubeTensor)>;
    static LAST: Mutex<Kept> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((device, kept, on_device)) = &*last
        && *device == like.device
        && kept == scalars
    {
        return on_device.clone();
    }
    let on_device = upload(like, scalars);
    *last = Some((like.device.clone(), scalars.to_vec(), on_device.clone()));
    on_device
}
