//! Coordinates that differ from row to row: a batch gives what its rows give alone.

use crate::common::{
    config, gradients, host, ints, largest_difference, linear, model, noise, small, tokens,
};
use burn::tensor::{Device, Tensor, TensorData};
use posenc::{Axis, EncodingConfig, Positions};
use serde_json::{Value, json};
use tiny_transformer::{Activation, Cache, FeatureMap, NormKind, Normalizer, Pass, Transformer};

const LENGTH: usize = 9;
/// Ends of segments in each row: none, one, three in a row, and the first and last token.
const ENDS: [&[usize]; 4] = [&[], &[4], &[2, 3, 4], &[0, 8]];

fn device() -> Device {
    Device::flex()
}

/// Encodings that read coordinates through every hook.
fn encodings() -> Vec<EncodingConfig> {
    let on = |axis: usize, part: Value| json!({"kind": "on_axis", "axis": axis, "part": part});
    let place = on(
        0,
        json!({"kind": "learned", "max_position": 4, "clamp": true}),
    );
    let number = on(1, json!({"kind": "rope"}));
    let alibi = on(1, json!({"kind": "alibi", "slope_scale": 9.0}));
    [
        json!({"kind": "stack", "parts": [place, number]}),
        json!({"kind": "stack", "parts": [place, alibi]}),
        json!({"kind": "stack", "parts": [alibi, {"kind": "alibi"}, {"kind": "fox"}]}),
        json!({"kind": "dape", "part": alibi}),
        json!({"kind": "axial_rope", "axes": 2}),
        place,
        on(0, json!({"kind": "shaw", "max_distance": 3})),
        on(
            1,
            json!({"kind": "t5", "num_buckets": 8, "max_distance": 16}),
        ),
        on(1, json!({"kind": "rerope", "window": 1})),
        on(1, json!({"kind": "sinusoidal"})),
    ]
    .map(config)
    .into()
}

/// Places in segments and numbers of segments of a row.
fn axes(ends: &[usize]) -> Vec<Axis> {
    let (mut place, mut number) = (0.0, 0.0);
    let mut coordinates = [Vec::new(), Vec::new()];
    for at in 0..LENGTH {
        coordinates[0].push(place);
        coordinates[1].push(number);
        (place, number) = match ends.contains(&at) {
            true => (0.0, number + 1.0),
            false => (place + 1.0, number),
        };
    }
    let axis = |coordinates: Vec<f64>| Axis {
        queries: coordinates.clone(),
        keys: coordinates,
    };
    coordinates.map(axis).into()
}

fn contiguous() -> Positions {
    Positions::contiguous(LENGTH)
}

fn models(encoding: &EncodingConfig, device: &Device) -> Vec<Transformer> {
    let softmax = small(NormKind::RmsNorm, Activation::Swiglu, true);
    let mut configs = vec![softmax.clone()];
    if encoding.facts(&softmax.shape()).linear {
        configs.push(linear(softmax, FeatureMap::Elu, Normalizer::Unrotated));
    }
    let built = configs.iter().map(|config| model(config, encoding, device));
    built.collect()
}

#[test]
fn a_batch_gives_what_its_rows_give_alone() {
    let by_row = contiguous().with_axes_by_row(ENDS.map(axes).into());
    let ids = tokens(3, ENDS.len(), LENGTH, 11);
    let passes = [usize::MAX, 70].map(|max_logits| Pass {
        max_logits,
        ..Pass::default()
    });
    for encoding in encodings() {
        for (model, pass) in models(&encoding, &device())
            .iter()
            .flat_map(|model| passes.iter().map(move |pass| (model, pass)))
        {
            let batch = ints(&ids, ENDS.len(), &device());
            let whole = host(model.forward(batch, &by_row, pass));
            let alone = ENDS.iter().zip(ids.chunks(LENGTH)).flat_map(|(ends, row)| {
                let positions = contiguous().with_axes(axes(ends));
                host(model.forward(ints(row, 1, &device()), &positions, pass))
            });
            let alone: Vec<f64> = alone.collect();
            let difference = largest_difference(&whole, &alone);
            assert!(difference < 2e-5, "{encoding:?}: {difference}");
            // The rows of a batch do have different coordinates.
            let shared = contiguous().with_axes(axes(ENDS[0]));
            let batch = ints(&ids, ENDS.len(), &device());
            let other = host(model.forward(batch, &shared, pass));
            assert!(largest_difference(&whole, &other) > 1e-3, "{encoding:?}");
        }
    }
}

#[test]
fn a_cache_changes_nothing() {
    let ids = tokens(4, ENDS.len(), LENGTH, 11);
    let cut = |from: usize, to: usize| {
        let rows = ids.chunks(LENGTH).flat_map(|row| row[from..to].to_vec());
        ints(&rows.collect::<Vec<_>>(), ENDS.len(), &device())
    };
    let of = |length: usize| {
        let first = |axis: Axis| Axis {
            queries: axis.queries[..length].to_vec(),
            keys: axis.keys[..length].to_vec(),
        };
        let rows = ENDS.map(|ends| axes(ends).into_iter().map(first).collect());
        Positions::contiguous(length).with_axes_by_row(rows.into())
    };
    for encoding in encodings() {
        for model in models(&encoding, &device()) {
            let pass = Pass::default();
            let whole = model.forward(cut(0, LENGTH), &of(LENGTH), &pass);
            let mut cache = Cache::default();
            for to in [4, 5, LENGTH] {
                let from = cache.len();
                let found = model.extend(cut(from, to), &of(to), &mut cache, &pass);
                let expected = host(whole.clone().slice_dim(1, from..to));
                let difference = largest_difference(&host(found), &expected);
                assert!(
                    difference < 2e-5,
                    "{encoding:?}, {from}..{to}: {difference}"
                );
            }
        }
    }
}

#[test]
fn gradients_of_a_batch_are_the_sums_of_those_of_its_rows() {
    let device = device().autodiff();
    let ids = tokens(5, ENDS.len(), LENGTH, 11);
    let weights = noise(6, ENDS.len() * LENGTH * 11);
    let by_row = contiguous().with_axes_by_row(ENDS.map(axes).into());
    for encoding in encodings() {
        for model in models(&encoding, &device) {
            let of = |rows: std::ops::Range<usize>, positions: &Positions| {
                let count = rows.len();
                let ids = ints(&ids[rows.start * LENGTH..rows.end * LENGTH], count, &device);
                let logits = model.forward(ids, positions, &Pass::default());
                let from = weights[rows.start * LENGTH * 11..rows.end * LENGTH * 11].to_vec();
                let data = TensorData::new(from, [count, LENGTH, 11]);
                let loss = (logits * Tensor::<3>::from_data(data, &device)).sum();
                gradients(&model, &loss)
            };
            let whole = of(0..ENDS.len(), &by_row);
            let mut sums = std::collections::BTreeMap::<String, Vec<f64>>::new();
            for (row, ends) in ENDS.iter().enumerate() {
                for (path, (_, values)) in of(row..row + 1, &contiguous().with_axes(axes(ends))) {
                    let sum = sums.entry(path).or_insert_with(|| vec![0.0; values.len()]);
                    sum.iter_mut()
                        .zip(values)
                        .for_each(|(sum, value)| *sum += value);
                }
            }
            assert!(whole.keys().eq(sums.keys()), "{encoding:?}");
            for (path, (_, values)) in &whole {
                let scale = values
                    .iter()
                    .fold(1.0_f64, |most, value| most.max(value.abs()));
                let difference = largest_difference(values, &sums[path]) / scale;
                assert!(difference < 2e-5, "{encoding:?}, {path}: {difference}");
            }
        }
    }
}
