//! Rotation by several coordinates.

use super::{input, prepare, rope};
use crate::common::{
    SHAPE, all_configs, build, build_recorded, build_stirred, config, gradients, host,
    largest_difference, logits, noise, random,
};
use burn::tensor::{Device, Tensor, TensorData};
use posenc::{
    Axis, AxisRead, Block, Content, Context, EncodingConfig, Init, ModelShape, PositionalEncoding,
    Positions,
};
use serde_json::{Value, json};
use std::f64::consts::PI;

fn axis(coordinates: &[f64]) -> Axis {
    Axis {
        queries: coordinates.to_vec(),
        keys: coordinates.to_vec(),
    }
}

/// Ten positions with unrelated coordinates on three axes.
fn places(axes: usize) -> Positions {
    let coordinates = |seed: u64| {
        noise(seed, 10)
            .iter()
            .map(|v| (100.0 * v).round())
            .collect::<Vec<f64>>()
    };
    Positions::contiguous(10).with_axes(
        (0..axes)
            .map(|index| axis(&coordinates(index as u64)))
            .collect(),
    )
}

/// Queries `[1, H, 10, width]` as an encoding turns them.
fn turned(value: &Value, shape: &ModelShape, positions: &Positions, q: &Tensor<4>) -> Vec<f64> {
    let encoding = build(&config(value.clone()), shape);
    host(
        prepare(&encoding, positions)
            .transform_qk(0, q.clone(), q.clone(), &input(10))
            .0,
    )
}

#[test]
fn split_heads_are_one_rope_per_axis() {
    for layout in ["half", "interleaved"] {
        for (axes, sections) in [(2, vec![4, 4]), (2, vec![2, 6]), (3, vec![4, 2, 2])] {
            let value = json!({"kind": "axial_rope", "axes": axes, "layout": layout, "sections": sections, "base": 100.0});
            let positions = places(axes);
            let q = random(1, [1, 4, 10, 8]);
            let whole = turned(&value, &SHAPE, &positions, &q);
            let mut from = 0;
            for (index, width) in sections.iter().enumerate() {
                let shape = ModelShape {
                    d_model: 4 * width,
                    head_dim: *width,
                    ..SHAPE
                };
                let block = q.clone().slice_dim(3, from..from + width);
                let (at, _) = positions.axis(index);
                // Coordinates may be negative, positions not: a rope of those 100 back is turned by
                // 100 more.
                let ahead = Positions::same(at.iter().map(|p| p + 100.0).collect());
                let alone = turned(
                    &json!({"kind": "rope", "layout": layout, "base": 100.0}),
                    &shape,
                    &ahead,
                    &block,
                );
                let back = Positions::same(vec![100.0; 10]);
                let of_block: Vec<f64> = whole
                    .chunks(8)
                    .flat_map(|row| row[from..from + width].to_vec())
                    .collect();
                let of_block = crate::common::tensor(of_block, [1, 4, 10, *width]);
                let expected = turned(
                    &json!({"kind": "rope", "layout": layout, "base": 100.0}),
                    &shape,
                    &back,
                    &of_block,
                );
                assert!(
                    largest_difference(&alone, &expected) < 1e-6,
                    "{value}: axis {index}"
                );
                from += width;
            }
        }
    }
}

#[test]
fn pairs_of_the_whole_head_belong_to_axes_by_sections_or_by_turns() {
    let theta = rope(json!({"kind": "rope"}))
        .frequencies(8, 1.0)
        .expect("a resolved scaling")
        .inv_freq;
    for (value, owners) in [
        (
            json!({"kind": "axial_rope", "mode": "sectioned"}),
            [0, 0, 1, 1],
        ),
        (
            json!({"kind": "axial_rope", "mode": "sectioned", "sections": [1, 3]}),
            [0, 1, 1, 1],
        ),
        (
            json!({"kind": "axial_rope", "mode": "sectioned", "axes": 3}),
            [0, 0, 1, 2],
        ),
        (
            json!({"kind": "axial_rope", "mode": "interleaved"}),
            [0, 1, 0, 1],
        ),
        (
            json!({"kind": "axial_rope", "mode": "interleaved", "axes": 3}),
            [0, 1, 2, 0],
        ),
    ] {
        let axes = value["axes"].as_u64().unwrap_or(2) as usize;
        let positions = places(axes);
        let unit = crate::common::tensor(
            vec![[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]; 40].concat(),
            [1, 4, 10, 8],
        );
        let found = turned(&value, &SHAPE, &positions, &unit);
        for (row, found) in found.chunks(8).enumerate() {
            for pair in 0..4 {
                let angle = positions.axis(owners[pair]).0[row % 10] * theta[pair];
                let expected = [angle.cos(), angle.sin()];
                assert!(
                    largest_difference(&[found[pair], found[pair + 4]], &expected) < 1e-6,
                    "{value}: pair {pair}"
                );
            }
        }
    }
}

#[test]
fn a_sequence_without_axes_is_turned_by_its_positions_alone() {
    let positions = Positions::from_offset(1000, 10);
    let q = random(1, [1, 4, 10, 8]);
    for layout in ["half", "interleaved"] {
        let rope = turned(
            &json!({"kind": "rope", "layout": layout}),
            &SHAPE,
            &positions,
            &q,
        );
        for (mode, axes) in [
            ("sectioned", 2),
            ("sectioned", 3),
            ("interleaved", 2),
            ("interleaved", 3),
        ] {
            let value = json!({"kind": "axial_rope", "mode": mode, "axes": axes, "layout": layout});
            assert_eq!(turned(&value, &SHAPE, &positions, &q), rope, "{value}");
            let same = vec![axis(positions.queries()); axes];
            assert_eq!(
                turned(
                    &value,
                    &SHAPE,
                    &Positions::contiguous(10).with_axes(same),
                    &q
                ),
                rope,
                "{value}"
            );
        }
    }
}

#[test]
fn mixed_frequencies_start_in_directions_spread_over_the_heads() {
    let mixed = json!({"kind": "axial_rope", "mode": "mixed", "base": 100.0});
    let theta = posenc::rotary::inv_freq(8, 100.0);
    let (trained, values) = build_recorded(&config(mixed.clone()), &SHAPE);
    let zeros = vec![0.0; 32];
    let start = build(&config(mixed), &SHAPE);
    let positions = places(2);
    let unit = crate::common::tensor(
        vec![[1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]; 40].concat(),
        [1, 4, 10, 8],
    );
    for (encoding, offset) in [(&start, &zeros), (&trained, &values["frequency_offset"])] {
        let found = host(
            prepare(encoding, &positions)
                .transform_qk(0, unit.clone(), unit.clone(), &input(10))
                .0,
        );
        for (row, found) in found.chunks(8).enumerate() {
            let head = row / 10;
            let direction = [
                (PI * head as f64 / 4.0).cos(),
                (PI * head as f64 / 4.0).sin(),
            ];
            for pair in 0..4 {
                let frequency = |axis: usize| {
                    theta[pair] * direction[axis]
                        + offset.get((axis * 4 + head) * 4 + pair).unwrap_or(&0.0)
                };
                let angle: f64 = (0..2)
                    .map(|axis| positions.axis(axis).0[row % 10] * frequency(axis))
                    .sum();
                let expected = [angle.cos(), angle.sin()];
                assert!(
                    largest_difference(&[found[pair], found[pair + 4]], &expected) < 1e-6,
                    "head {head}, pair {pair}"
                );
            }
        }
    }
}

#[test]
fn the_gradient_of_a_mixed_frequency_is_that_of_its_angle() {
    let mixed = config(json!({"kind": "axial_rope", "mode": "mixed"}));
    let device = Device::flex().autodiff();
    let offset = noise(3, 32);
    let source = |_: &str, _: &[usize], _: posenc::Distribution| offset.clone();
    let encoding = mixed
        .init(&SHAPE, &Init::new(&device, &source))
        .expect("a resolved configuration");
    let tracked =
        |values: Vec<f64>| Tensor::<4>::from_data(TensorData::new(values, [1, 4, 1, 8]), &device);
    let positions = Positions::contiguous(1).with_axes(vec![axis(&[3.0]), axis(&[-5.0])]);
    let (x, weight) = (noise(1, 32), noise(2, 32));
    let (q, _) = encoding
        .prepare(&positions, &Context::new(&device))
        .expect("positions in range")
        .transform_qk(0, tracked(x.clone()), tracked(x.clone()), &input(1));
    let found = gradients(&encoding, &(q * tracked(weight.clone())).sum())
        .remove("frequency_offset")
        .expect("the one parameter");
    let theta = posenc::rotary::inv_freq(8, 10_000.0);
    for (at, found) in found.iter().enumerate() {
        let (axis, head, pair) = (at / 16, at / 4 % 4, at % 4);
        let direction = [
            (PI * head as f64 / 4.0).cos(),
            (PI * head as f64 / 4.0).sin(),
        ];
        let angle: f64 = (0..2)
            .map(|a| {
                [3.0, -5.0][a] * (theta[pair] * direction[a] + offset[(a * 4 + head) * 4 + pair])
            })
            .sum();
        let (sin, cos) = angle.sin_cos();
        let (first, second) = (head * 8 + pair, head * 8 + pair + 4);
        let by_angle = weight[first] * (-x[first] * sin - x[second] * cos)
            + weight[second] * (x[first] * cos - x[second] * sin);
        let expected = [3.0, -5.0][axis] * by_angle;
        assert!(
            (found - expected).abs() < 1e-5,
            "axis {axis}, head {head}, pair {pair}: {found} is not {expected}"
        );
    }
}

#[test]
fn logits_on_a_grid_see_differences_of_coordinates_alone() {
    for (name, config) in all_configs() {
        let EncodingConfig::AxialRope(axial) = &config else {
            continue;
        };
        let encoding = build_stirred(&config, &SHAPE);
        let shifted = |shift: [f64; 3]| {
            let moved = |index: usize| {
                places(3)
                    .axis(index)
                    .0
                    .iter()
                    .map(|p| p + shift[index])
                    .collect::<Vec<f64>>()
            };
            let positions = Positions::contiguous(10)
                .with_axes((0..axial.axes).map(|index| axis(&moved(index))).collect());
            let (q, k) = prepare(&encoding, &positions).transform_qk(
                0,
                random(1, [1, 4, 10, 8]),
                random(2, [1, 4, 10, 8]),
                &input(10),
            );
            host(q.matmul(k.swap_dims(2, 3)))
        };
        let here = shifted([0.0; 3]);
        assert!(
            largest_difference(&here, &shifted([500.0, -20.0, 7.0])) < 1e-5,
            "{name}"
        );
    }
}

#[test]
fn on_axis_reads_its_axis_and_nothing_else() {
    let coordinates = [0.0, 4.0, 5.0, 4.0, 5.0, 1.0, 4.0];
    let positions = Positions::contiguous(7).with_axes(vec![axis(&[9.0; 7]), axis(&coordinates)]);
    let on = |axis: usize| json!({"kind": "on_axis", "axis": axis, "part": {"kind": "rope"}});
    let found = logits(&config(on(1)), &positions);
    let plain = json!({"kind": "rope"});
    let expected = logits(
        &config(plain.clone()),
        &Positions::same(coordinates.to_vec()),
    );
    assert_eq!(found, expected);
    let alike = logits(&config(plain), &Positions::same(vec![9.0; 7]));
    assert_eq!(logits(&config(on(0)), &positions), alike);
    // Tokens at one coordinate get one vector.
    let learned =
        json!({"kind": "on_axis", "axis": 1, "part": {"kind": "learned", "max_position": 8}});
    let encoding = build_stirred(&config(learned), &SHAPE);
    let added = host(prepare(&encoding, &positions).embed(input(7)));
    let row = |at: usize| &added[at * SHAPE.d_model..][..SHAPE.d_model];
    assert!(row(1) == row(3) && row(3) == row(6) && row(2) == row(4) && row(1) != row(2));
}

#[test]
fn rows_with_their_own_positions_are_encoded_alone() {
    let rows = [
        Positions::from_offset(2, 5),
        Positions::from_offset(9, 3).padded(5),
    ];
    assert_eq!(rows[1].keys(), [9.0, 10.0, 11.0, 11.0, 11.0]);
    let both = Positions::of_rows(rows.to_vec());
    assert_eq!(
        both.by_row().expect("rows differ").collect::<Vec<_>>(),
        rows
    );
    assert_eq!((both.queries().len(), both.rows()), (5, 12));
    assert_eq!(
        both.last(2).by_row().expect("rows").last(),
        Some(rows[1].last(2))
    );
    for part in [
        json!({"kind": "learned", "max_position": 16, "init_std": 0.5}),
        json!({"kind": "sinusoidal"}),
    ] {
        let encoding = build_stirred(&config(part), &SHAPE);
        let hidden = Tensor::cat(vec![input(5), input(5) * 0.5], 0);
        let found = host(prepare(&encoding, &both).embed(hidden.clone()));
        let alone = rows.iter().enumerate().flat_map(|(at, row)| {
            let own = hidden.clone().slice_dim(0, at..at + 1);
            host(prepare(&encoding, row).embed(own))
        });
        assert_eq!(found, alone.collect::<Vec<_>>());
    }
    // Coordinates on axes are those of each row beside its positions.
    let axes = [[1.0; 5], [4.0; 5]].map(|row| vec![axis(&row)]);
    let with_axes = both.with_axes_by_row(axes.to_vec());
    let rows = rows.into_iter().zip(axes);
    let expected: Vec<_> = rows.map(|(row, axes)| row.with_axes(axes)).collect();
    assert_eq!(
        with_axes.by_row().expect("rows").collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn rows_with_their_own_coordinates_are_encoded_alone() {
    let rows = [[0.0, 1.0, 2.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0, 3.0]];
    let [first, second] = rows.map(|row| vec![axis(&[7.0; 5]), axis(&row)]);
    let contiguous = || Positions::contiguous(5);
    let both = contiguous().with_axes_by_row(vec![first.clone(), second.clone()]);
    let alone = [first, second].map(|axes| contiguous().with_axes(axes));
    assert_eq!(
        both.by_row().expect("rows differ").collect::<Vec<_>>(),
        alone
    );
    assert!(alone[0].by_row().is_none());
    let [q, k] = [1, 2].map(|seed| random(seed, [2, 4, 5, 8]));
    let hidden = Tensor::cat(vec![input(5), input(5) * 0.5], 0);
    for part in [
        json!({"kind": "rope"}),
        json!({"kind": "learned", "max_position": 8, "init_std": 0.5}),
        json!({"kind": "alibi"}),
        json!({"kind": "shaw", "max_distance": 2}),
    ] {
        let on = config(json!({"kind": "on_axis", "axis": 1, "part": part}));
        let encoding = build_stirred(&on, &SHAPE);
        // Every hook, of a batch and of its rows.
        let hooks = |positions: &Positions, from: usize, to: usize| {
            let prepared = prepare(&encoding, positions);
            let cut = |x: &Tensor<4>| x.clone().slice_dim(0, from..to);
            let (q, k, hidden) = (cut(&q), cut(&k), hidden.clone().slice_dim(0, from..to));
            let turned = prepared.transform_qk(0, q.clone(), k.clone(), &hidden);
            let raw = || (q.clone(), k.clone());
            let block = Block {
                queries: 1..4,
                keys: 0..4,
                first_query: 1,
            };
            let (queries, keys) = (turned.0.clone().slice_dim(2, 1..4), turned.1.clone());
            let keys = keys.slice_dim(2, 0..4);
            let content = Content::new([&queries, &keys], &raw, &hidden, block, 0.5);
            let weights = || random(3, [2, 4, 3, 4]).slice_dim(0, from..to);
            let found = [
                Some(turned.0),
                Some(turned.1),
                Some(prepared.embed(hidden.clone()).unsqueeze_dim(1)),
                prepared.logits_bias(0).map(|bias| bias.block(1..4, 0..4)),
                prepared.content_bias(0, &content),
                prepared.output_bias(0, &content, &weights),
            ];
            found.map(|found| found.map_or_else(Vec::new, host))
        };
        let whole = hooks(&both, 0, 2);
        let (mut rows, second) = (hooks(&alone[0], 0, 1), hooks(&alone[1], 1, 2));
        rows.iter_mut()
            .zip(second)
            .for_each(|(rows, second)| rows.extend(second));
        for (at, (whole, rows)) in whole.iter().zip(&rows).enumerate() {
            assert!(largest_difference(whole, rows) < 1e-6, "{part}, hook {at}");
        }
    }
}

#[test]
fn on_axis_refuses_what_reads_no_positions() {
    for kind in ["nope", "fox", "cope"] {
        let on = json!({"kind": "on_axis", "part": {"kind": kind}});
        let mut config = config(on);
        config.resolve(&crate::common::LENGTHS);
        let error = config.check(&SHAPE).expect_err(kind);
        assert_eq!(
            (error.key.as_str(), error.value.as_str()),
            ("part.kind", kind)
        );
    }
}

#[test]
fn on_axis_refuses_what_reads_axes_itself() {
    let inner = json!({"kind": "on_axis", "axis": 1, "part": {"kind": "rope"}});
    let in_stack = json!({"kind": "stack", "parts": [{"kind": "alibi"}, inner]});
    for part in [inner.clone(), in_stack, json!({"kind": "axial_rope"})] {
        let on = config(json!({"kind": "on_axis", "axis": 0, "part": part}));
        let error = on.check(&SHAPE).expect_err("two readings of axes");
        assert_eq!(error.key, "part.kind", "{error}");
        assert!(error.to_string().contains("axes itself"), "{error}");
    }
    let beside = json!({"kind": "stack", "parts": [
        {"kind": "on_axis", "axis": 0, "part": {"kind": "rope"}},
        {"kind": "on_axis", "axis": 1, "part": {"kind": "alibi"}},
    ]});
    config(beside)
        .check(&SHAPE)
        .expect("each reads its own axis");
}

#[test]
fn on_axis_says_what_it_needs_of_its_axis() {
    let reads = |part: Value| {
        let on = json!({"kind": "on_axis", "axis": 2, "part": part});
        let facts = config(on).facts(&SHAPE);
        assert_eq!((facts.max_position, facts.axes), (None, 3));
        facts.axis_reads
    };
    let rows = |clamp: bool| json!({"kind": "learned", "max_position": 7, "clamp": clamp});
    assert_eq!(reads(rows(false)), [AxisRead::new(2, Some(7), false)]);
    assert_eq!(reads(rows(true)), [AxisRead::new(2, None, false)]);
    assert_eq!(
        reads(json!({"kind": "rope"})),
        [AxisRead::new(2, None, false)]
    );
    assert_eq!(
        reads(json!({"kind": "alibi"})),
        [AxisRead::new(2, None, true)]
    );
}

#[test]
fn a_clamped_table_ends_with_its_last_row() {
    let learned = |clamp: bool| {
        config(json!({"kind": "learned", "max_position": 4, "init_std": 0.5, "clamp": clamp}))
    };
    let (plain, clamped) = (learned(false), learned(true));
    assert_eq!(clamped.facts(&SHAPE).max_position, None);
    let added = |config: &EncodingConfig, positions: &[f64]| {
        let positions = Positions::same(positions.to_vec());
        let encoding = build(config, &SHAPE);
        host(prepare(&encoding, &positions).embed(input(positions.queries().len())))
    };
    let far = added(&clamped, &[0.0, 1.0, 3.0, 4.0, 90.0, 2.0]);
    assert_eq!(far, added(&plain, &[0.0, 1.0, 3.0, 3.0, 3.0, 2.0]));
    let both = json!({"kind": "learned", "clamp": true, "interpolate": true});
    let error = config(both)
        .check(&SHAPE)
        .expect_err("two ways past the table");
    assert_eq!(error.key, "clamp");
}
