//! Linear layers and the halves of a block against their definitions: values, gradients, threads.
#![allow(missing_docs)]

mod common;

use burn::tensor::Tensor;
use common::{Input, compare, differences, input, same_for_any_threads};
use kernels::{Mlp, Norm, reference};

type Op = Box<dyn Fn(&[Tensor<1>]) -> Tensor<1> + Sync>;

fn flat(x: Tensor<2>) -> Tensor<1> {
    let n = x.dims().iter().product::<usize>();
    x.reshape([n])
}

/// Numbers of about the size weights have.
fn weight(k: usize, m: usize, seed: u64) -> Input {
    let factor = 1.0 / (k as f64).sqrt();
    Input { values: input(&[k, m], seed).values.iter().map(|x| factor * x).collect() }
}

/// Takes scale and shift off the inputs.
fn norm<'a>(inputs: &mut impl Iterator<Item = &'a Tensor<1>>, shift: bool) -> Norm {
    let mut next = || inputs.next().expect("an input").clone();
    Norm { scale: next(), shift: shift.then(&mut next), eps: 1e-5 }
}

/// Fused and defined, over `n` rows, with their inputs.
fn operations(n: usize, d: usize, ff: usize) -> Vec<(String, Vec<Input>, Op, Op)> {
    type Linear = fn(Tensor<2>, Option<Norm>, Tensor<2>) -> Tensor<2>;
    type Half = fn(Tensor<2>, Norm, Mlp) -> Tensor<2>;
    let mut operations: Vec<(String, Vec<Input>, Op, Op)> = Vec::new();
    for norms in 0..3 {
        let mut inputs = vec![input(&[n, d], 1)];
        inputs.extend((0..norms).map(|i| input(&[d], 2 + i)));
        inputs.push(weight(d, ff, 4));
        let op = move |linear: Linear| -> Op {
            Box::new(move |x| {
                let mut inputs = x[1..].iter();
                let norm = (norms > 0).then(|| norm(&mut inputs, norms == 2));
                let w = inputs.next().expect("an input").clone().reshape([d, ff]);
                flat(linear(x[0].clone().reshape([n, d]), norm, w))
            })
        };
        operations.push((format!("linear, {norms} norm parameters"), inputs, op(kernels::linear), op(reference::linear)));
    }
    for (shift, gate) in [(true, false), (false, true), (false, false), (true, true)] {
        let mut inputs = vec![input(&[n, d], 1), input(&[d], 2)];
        inputs.extend(shift.then(|| input(&[d], 3)));
        inputs.extend((0..if gate { 2 } else { 1 }).map(|i| weight(d, ff, 4 + i)));
        inputs.push(weight(ff, d, 6));
        let op = move |mlp: Half| -> Op {
            Box::new(move |x| {
                let mut inputs = x[1..].iter();
                let norm = norm(&mut inputs, shift);
                let mut next = |shape| inputs.next().expect("an input").clone().reshape::<2, _>(shape);
                let weights = Mlp { up: next([d, ff]), gate: gate.then(|| next([d, ff])), down: next([ff, d]) };
                flat(mlp(x[0].clone().reshape([n, d]), norm, weights))
            })
        };
        operations.push((format!("mlp, shift {shift}, gate {gate}"), inputs, op(kernels::mlp), op(reference::mlp)));
    }
    operations
}

#[test]
fn fused_operations_agree_with_their_definitions() {
    for [n, d, ff] in [[1, 2, 3], [3, 7, 5], [130, 16, 48], [5, 40, 96], [300, 19, 70]] {
        for (name, inputs, fused, definition) in operations(n, d, ff) {
            compare(&format!("{name} [{n}, {d}, {ff}]"), &inputs, &*fused, &*definition);
        }
    }
}

#[test]
fn gradients_of_the_definitions_are_those_of_finite_differences() {
    for (name, inputs, _, definition) in operations(3, 4, 5) {
        differences(&name, &inputs, &*definition);
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for (name, inputs, fused, _) in operations(1030, 35, 67) {
        same_for_any_threads(&name, &inputs, &*fused);
    }
}
