//! One update of AdamW of many parameters in one launch.

use super::tensors::{Primitive, empty, in_order, run, upload};
use crate::AdamWStep;
use burn::tensor::Shape;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::calculate_cube_count_elemwise;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// Scalars of one part, in the order in which the kernel reads them.
const SCALARS: usize = 9;

/// The most parameters of one launch: the kernel is compiled for their number, and CUDA takes 4 KiB
/// of arguments, of which each of the seven tensors of a parameter needs 16 bytes.
const MOST_PARAMETERS: usize = 24;

/// Tensors of a parameter: values, gradient and moments, and what the first and the last two are
/// afterwards.
const BINDINGS: usize = 7;

/// A parameter to update, its gradient and its moments, and one step for each of its parts.
pub(super) struct Parameter {
    pub(super) theta: Primitive,
    pub(super) grad: Primitive,
    pub(super) moments: Option<[Primitive; 2]>,
    pub(super) steps: Vec<AdamWStep>,
    pub(super) n: usize,
}

/// Where a launch finds what belongs to a parameter.
#[derive(CubeType, CubeLaunch)]
struct Offsets {
    /// The first cube that works on it.
    cube: u32,
    /// Elements of a part.
    part: u32,
    /// Where the scalars of its parts begin.
    scalars: u32,
}

/// One unit updates one element of one parameter. `scalars` holds [`SCALARS`] numbers for each
/// part.
#[cube(launch)]
#[allow(
    clippy::too_many_arguments,
    reason = "parameters, their gradients and moments, before and after"
)]
fn adamw_kernel(
    theta: &Sequence<Box<[f32]>>,
    grad: &Sequence<Box<[f32]>>,
    first: &Sequence<Box<[f32]>>,
    second: &Sequence<Box<[f32]>>,
    scalars: &[f32],
    new_theta: &mut Sequence<Box<[f32]>>,
    new_first: &mut Sequence<Box<[f32]>>,
    new_second: &mut Sequence<Box<[f32]>>,
    places: &Sequence<Offsets>,
    #[comptime] fresh: bool,
) {
    let (cube, units) = (CUBE_POS, CUBE_DIM as usize);
    #[unroll]
    for index in 0..theta.len() {
        let place = places.index(index);
        if cube >= place.cube as usize {
            // Cubes of later parameters come out past the end.
            let i = (cube - place.cube as usize) * units + UNIT_POS as usize;
            if i < theta.index(index).len() {
                let at = (place.scalars + i as u32 / place.part) as usize * SCALARS;
                let g = grad.index(index)[i] * scalars[at];
                // The moments before the first step are 0, and are not read.
                let mut m = g * scalars[at + 3];
                let mut v = g * g * scalars[at + 4];
                if comptime![!fresh] {
                    m += first.index(index)[i] * scalars[at + 1];
                    v += second.index(index)[i] * scalars[at + 2];
                }
                let update = m / (v.sqrt() / scalars[at + 5] + scalars[at + 6]) * scalars[at + 7];
                new_theta.index_mut(index)[i] = theta.index(index)[i] * scalars[at + 8] - update;
                new_first.index_mut(index)[i] = m;
                new_second.index_mut(index)[i] = v;
            }
        }
    }
}

/// What the kernels need to know of a parameter beside its tensors.
#[derive(Clone)]
struct Plan {
    n: usize,
    fresh: bool,
    /// Elements of a part.
    part: u32,
    /// The index of its first step among those of all.
    step: u32,
}

/// Parameters and their moments after one update, in as few launches as the device allows.
pub(super) fn adamw(parameters: Vec<Parameter>) -> Vec<[Primitive; 3]> {
    let mut steps: Vec<[f32; SCALARS]> = Vec::new();
    let (mut inputs, mut plans, mut shapes) = (Vec::new(), Vec::new(), Vec::new());
    for parameter in parameters {
        let own: Vec<[f32; SCALARS]> = parameter.steps.iter().map(AdamWStep::scalars).collect();
        // Most parameters of a model are updated with the same scalars.
        let known = steps.windows(own.len()).position(|some| some == own);
        let step = known.unwrap_or(steps.len());
        if known.is_none() {
            steps.extend(&own);
        }
        plans.push(Plan {
            n: parameter.n,
            fresh: parameter.moments.is_none(),
            part: (parameter.n / own.len()) as u32,
            step: step as u32,
        });
        shapes.extend(vec![Shape::new([parameter.n]); 3]);
        inputs.extend([parameter.theta, parameter.grad]);
        inputs.extend(parameter.moments.into_iter().flatten());
    }
    let scalars = steps.concat();
    let updated = run(inputs, shapes, move |inputs| {
        let scalars = upload(&inputs[0], &scalars);
        let mut inputs = inputs.into_iter().map(in_order);
        let mut of = |plan: &Plan| -> Vec<CubeTensor> {
            let count = if plan.fresh { 2 } else { 4 };
            inputs.by_ref().take(count).collect()
        };
        let inputs: Vec<Vec<CubeTensor>> = plans.iter().map(&mut of).collect();
        launch_all(&plans, &inputs, &scalars)
    });
    let mut updated = updated.into_iter();
    std::iter::from_fn(|| Some([updated.next()?, updated.next()?, updated.next()?])).collect()
}

/// Launches the kernel for as many parameters at a time as it can take.
fn launch_all(plans: &[Plan], inputs: &[Vec<CubeTensor>], scalars: &CubeTensor) -> Vec<CubeTensor> {
    let hardware = &scalars.client.properties().hardware;
    // Less the scalars, and what the runtime tells the kernel of all these.
    let bindings = (hardware.max_bindings as usize).saturating_sub(2);
    let most = (bindings / BINDINGS).clamp(1, MOST_PARAMETERS);
    let (mut outputs, mut inputs) = (Vec::new(), inputs);
    for alike in plans.chunk_by(|a, b| a.fresh == b.fresh) {
        for some in alike.chunks(most) {
            let (own, rest) = inputs.split_at(some.len());
            outputs.extend(launch(some, own, scalars));
            inputs = rest;
        }
    }
    outputs
}

/// One launch for parameters that all have moments, or that all have none.
fn launch(plans: &[Plan], inputs: &[Vec<CubeTensor>], scalars: &CubeTensor) -> Vec<CubeTensor> {
    let empty = |plan: &Plan| [(); 3].map(|()| empty(scalars, [plan.n]));
    let outputs: Vec<[CubeTensor; 3]> = plans.iter().map(empty).collect();
    let largest = plans.iter().map(|plan| plan.n).max().unwrap_or_default();
    let dim = CubeDim::new(&scalars.client, largest);
    let units = dim.num_elems() as usize;
    let mut cubes = 0;
    let places = plans.iter().map(|plan| {
        let first = cubes;
        cubes += plan.n.div_ceil(units);
        OffsetsLaunch::new(first as u32, plan.part, plan.step)
    });
    let places = places.collect();
    // Those before the first step have no moments.
    let input = |i: usize| {
        let some = inputs.iter().filter_map(|own| own.get(i));
        some.map(|x| x.clone().into_buffer_arg()).collect()
    };
    let output = |i: usize| {
        let some = outputs.iter().map(|own| own[i].clone());
        some.map(CubeTensor::into_buffer_arg).collect()
    };
    adamw_kernel::launch(
        &scalars.client,
        calculate_cube_count_elemwise(&scalars.client, cubes * units, dim),
        dim,
        input(0),
        input(1),
        input(2),
        input(3),
        scalars.clone().into_buffer_arg(),
        output(0),
        output(1),
        output(2),
        places,
        plans[0].fresh,
    );
    outputs.into_iter().flatten().collect()
}
