//! Row-wise operations against their definitions: values, gradients, threads.

use crate::common::{Input, assert_close, compare, differences, input, same_for_any_threads};
use burn::tensor::{Int, Tensor, TensorData};
use longreach_kernels::reference;

type Op = Box<dyn Fn(&[Tensor<1>]) -> Tensor<1> + Sync>;

fn flat(x: Tensor<2>) -> Tensor<1> {
    let [n, width] = x.dims();
    x.reshape([n * width])
}

/// Fused and defined, over rows `[n, width]`, with their inputs.
fn operations(n: usize, width: usize) -> Vec<(&'static str, Vec<Input>, Op, Op)> {
    let two = move |x: &Tensor<1>| x.clone().reshape([n, width]);
    let rows = |seed| input(&[n, width], seed);
    let targets = move |x: &Tensor<1>| {
        let targets: Vec<i32> = (0..n).map(|i| ((i * 7919 + 3) % width) as i32).collect();
        Tensor::<1, Int>::from_data(TensorData::new(targets, [n]), &x.device())
    };
    let wide = |seed| Input {
        values: rows(seed).values.iter().map(|x| 4.0 * x).collect(),
    };
    vec![
        (
            "nll",
            vec![wide(1)],
            Box::new(move |x| longreach_kernels::nll(two(&x[0]), targets(&x[0]))),
            Box::new(move |x| reference::nll(two(&x[0]), targets(&x[0]))),
        ),
        (
            "layer_norm",
            vec![wide(2), input(&[width], 3), input(&[width], 4)],
            Box::new(move |x| {
                flat(longreach_kernels::layer_norm(
                    two(&x[0]),
                    x[1].clone(),
                    x[2].clone(),
                    1e-5,
                ))
            }),
            Box::new(move |x| {
                flat(reference::layer_norm(
                    two(&x[0]),
                    x[1].clone(),
                    x[2].clone(),
                    1e-5,
                ))
            }),
        ),
        (
            "rms_norm",
            vec![rows(5), input(&[width], 6)],
            Box::new(move |x| flat(longreach_kernels::rms_norm(two(&x[0]), x[1].clone(), 1e-5))),
            Box::new(move |x| flat(reference::rms_norm(two(&x[0]), x[1].clone(), 1e-5))),
        ),
        (
            "gelu",
            vec![wide(7)],
            Box::new(move |x| flat(longreach_kernels::gelu(two(&x[0])))),
            Box::new(move |x| flat(reference::gelu(two(&x[0])))),
        ),
        (
            "swiglu",
            vec![wide(8), rows(9)],
            Box::new(move |x| flat(longreach_kernels::swiglu(two(&x[0]), two(&x[1])))),
            Box::new(move |x| flat(reference::swiglu(two(&x[0]), two(&x[1])))),
        ),
    ]
}

#[test]
fn fused_operations_agree_with_their_definitions() {
    for (n, width) in [
        (1, 2),
        (3, 7),
        (5, 8),
        (33, 16),
        (65, 19),
        (130, 64),
        (70, 257),
    ] {
        for (name, inputs, fused, definition) in operations(n, width) {
            compare(
                1.0,
                &format!("{name} [{n}, {width}]"),
                &inputs,
                &*fused,
                &*definition,
            );
        }
    }
}

#[test]
fn gradients_of_the_definitions_are_those_of_finite_differences() {
    for (name, inputs, _, definition) in operations(3, 5) {
        differences(name, &inputs, &*definition);
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for (name, inputs, fused, _) in operations(1030, 67) {
        same_for_any_threads(name, &inputs, &*fused);
    }
}

#[test]
fn strided_inputs_are_read_where_they_lie() {
    let inputs = [input(&[12, 10], 1)];
    let view = |x: &Tensor<1>| {
        x.clone()
            .reshape([12, 10])
            .slice([2..11, 3..10])
            .transpose()
    };
    compare(
        1.0,
        "gelu of a view",
        &inputs,
        &|x| flat(longreach_kernels::gelu(view(&x[0]))),
        &|x| flat(reference::gelu(view(&x[0]))),
    );
}

#[test]
fn a_hidden_class_has_no_probability() {
    let mut logits = input(&[4, 21], 1);
    for i in [0, 20, 25, 83] {
        logits.values[i] = f64::NEG_INFINITY;
    }
    let targets = |x: &Tensor<1>| Tensor::<1, Int>::from_data([5, 6, 7, 8], &x.device());
    let rows = |x: &Tensor<1>| x.clone().reshape([4, 21]);
    compare(
        1.0,
        "nll",
        &[logits],
        &|x| longreach_kernels::nll(rows(&x[0]), targets(&x[0])),
        &|x| reference::nll(rows(&x[0]), targets(&x[0])),
    );
}

#[test]
fn nan_propagates() {
    for (name, mut inputs, fused, _) in operations(4, 19) {
        inputs[0].values[23] = f64::NAN;
        let (output, _) = crate::common::run(&inputs, burn::tensor::DType::F32, &*fused);
        assert!(output.iter().any(|x| x.is_nan()), "{name}");
    }
}

#[test]
#[should_panic(expected = "every target is one of 3 classes")]
fn a_target_outside_the_vocabulary_is_refused() {
    let device = burn::tensor::Device::flex();
    longreach_kernels::nll(
        Tensor::zeros([2, 3], &device),
        Tensor::from_data([0, 3], &device),
    );
}

#[test]
fn the_comparison_can_fail() {
    let inputs = [input(&[2, 9], 1)];
    let rows = |x: &Tensor<1>| x.clone().reshape([2, 9]);
    let wrong = std::panic::catch_unwind(|| {
        compare(
            1.0,
            "gelu",
            &inputs,
            &|x| flat(longreach_kernels::gelu(rows(&x[0])) * 1.0001),
            &|x| flat(reference::gelu(rows(&x[0]))),
        );
    });
    assert!(wrong.is_err());
    assert!(std::panic::catch_unwind(|| assert_close("x", &[1.0], &[1.1], 1e-3, 0.0)).is_err());
}

#[test]
fn an_update_is_bit_for_bit_the_defined_one() {
    let device = burn::tensor::Device::flex();
    let step = longreach_kernels::AdamWStep {
        grad_scale: 0.7,
        beta1: 0.9,
        beta2: 0.999,
        root: 0.3,
        eps: 1e-8,
        rate: 3e-3,
        keep: 0.999,
    };
    for n in [1, 19, 64, 40_001] {
        for dtype in [burn::tensor::DType::F32, burn::tensor::DType::F64] {
            let x = |seed| {
                Tensor::<1>::from_data(
                    TensorData::new(input(&[n], seed).values, [n]),
                    (&device, dtype),
                )
            };
            for moments in [None, Some([x(3), x(4).square()])] {
                let fused = longreach_kernels::adamw(x(1), x(2), moments.clone(), &[step])
                    .map(crate::common::to_f64);
                assert_eq!(
                    fused,
                    reference::adamw(x(1), x(2), moments, &[step]).map(crate::common::to_f64),
                    "{n} {dtype:?}"
                );
            }
        }
    }
}

#[test]
fn parts_of_a_parameter_are_updated_as_if_alone() {
    let device = burn::tensor::Device::flex();
    let step = |i: usize| longreach_kernels::AdamWStep {
        grad_scale: 0.7 / (i + 1) as f64,
        beta1: 0.9,
        beta2: 0.999,
        root: 0.3 + 0.1 * i as f64,
        eps: 1e-8,
        rate: 3e-3 * (i + 1) as f64,
        keep: 0.999 - 0.01 * i as f64,
    };
    for (parts, n) in [(2, 1), (3, 19), (2, 20_001)] {
        let x = |seed| {
            let values = input(&[parts * n], seed).values;
            Tensor::<1>::from_data(
                TensorData::new(values, [parts * n]),
                (&device, burn::tensor::DType::F32),
            )
        };
        let steps: Vec<_> = (0..parts).map(step).collect();
        for moments in [None, Some([x(3), x(4).square()])] {
            let all = longreach_kernels::adamw(x(1), x(2), moments.clone(), &steps);
            let defined = reference::adamw(x(1), x(2), moments.clone(), &steps);
            assert_eq!(
                all.clone().map(crate::common::to_f64),
                defined.map(crate::common::to_f64)
            );
            for (i, step) in steps.iter().enumerate() {
                let part = |x: &Tensor<1>| x.clone().slice_dim(0, i * n..(i + 1) * n);
                let moments = moments.as_ref().map(|pair| pair.each_ref().map(part));
                let alone = longreach_kernels::adamw(part(&x(1)), part(&x(2)), moments, &[*step]);
                assert_eq!(
                    all.each_ref().map(part).map(crate::common::to_f64),
                    alone.map(crate::common::to_f64),
                    "part {i} of {parts}"
                );
            }
        }
    }
}

#[test]
#[should_panic(expected = "parts of the same length")]
fn unequal_parts_are_refused() {
    let device = burn::tensor::Device::flex();
    let step = longreach_kernels::AdamWStep {
        grad_scale: 1.0,
        beta1: 0.9,
        beta2: 0.999,
        root: 1.0,
        eps: 1e-8,
        rate: 1e-3,
        keep: 1.0,
    };
    let x = || Tensor::<1>::ones([3], &device);
    longreach_kernels::adamw(x(), x(), None, &[step, step]);
}
