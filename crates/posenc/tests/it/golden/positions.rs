//! Golden numbers of what is added to the input, of distances and of samplers of positions.

use super::support::*;
use burn::tensor::{Device, Tensor};
use posenc::encodings::ReropeConfig;
use posenc::spec::EncodingSpec;
use posenc::{Context, EncodingConfig, Lengths, PositionalEncoding, Positions, PositionsConfig};
use serde_json::json;

#[test]
fn sinusoidal() {
    for case in cases(include_str!("../../golden/sinusoidal.json"), 8) {
        let d_model = case.size("d_model");
        let sinusoidal =
            config(json!({"kind": "sinusoidal", "order": case.kind, "base": case.number("base")}));
        let encoding = build(&sinusoidal, &shape(d_model, 1, d_model), &[]);
        let positions = case.list("positions");
        let length = positions.len();
        let prepared = encoding
            .prepare(&Positions::same(positions), &Context::new(&Device::flex()))
            .expect("positions in range");
        let added = host(prepared.embed(Tensor::zeros([1, length, d_model], &Device::flex())));
        one_ulp(&case.name, &added, &case.wanted());
    }
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a case for each kind of its golden file"
)]
fn position_maps() {
    for case in cases(include_str!("../../golden/position_maps.json"), 4) {
        let (name, expected) = (&case.name, case.wanted());
        match case.kind.as_str() {
            "rerope" => {
                let (window, leak, length) = (
                    case.size("window"),
                    &case.inputs["leak"],
                    case.size("length"),
                );
                let rerope = ReropeConfig::default().with(|config| {
                    config.window = Some(window);
                    config.leak = leak.as_f64();
                });
                let distances: Vec<f64> = (0..length)
                    .flat_map(|m| (0..=m).map(move |n| (m - n) as f64))
                    .collect();
                close(
                    name,
                    &distances
                        .iter()
                        .map(|d| rerope.distance(*d))
                        .collect::<Vec<f64>>(),
                    &expected,
                    1e-12,
                );
                // Logits are those of rotary attention at the distances of the reference.
                let (q, k) = ([0.5, -1.25, 0.75, 1.0], [1.0, 0.25, -0.5, 1.5]);
                let encoding = build(&EncodingConfig::Rerope(rerope), &shape(4, 1, 4), &[]);
                let inputs = Inputs::rows(q.repeat(length), k.repeat(length), 4);
                let logits = inputs
                    .pass(&encoding, &Positions::contiguous(length))
                    .logits();
                let plain = config(json!({"kind": "rope"}));
                let at = |d: &f64| {
                    turned(&plain, &q, &[*d])
                        .iter()
                        .zip(k)
                        .map(|(a, b)| a * b / 2.0)
                        .sum::<f64>()
                };
                close(
                    name,
                    &visible(&logits, length),
                    &expected.iter().map(at).collect::<Vec<f64>>(),
                    1e-6,
                );
            }
            "log_scaling" => {
                let original = &case.inputs["original_max_position_embeddings"];
                let log_n = config(
                    json!({"kind": "log_scaling", "original_max_position_embeddings": original}),
                );
                let encoding = build(&log_n, &shape(1, 1, 1), &[]);
                let positions = case.list("positions");
                let length = positions.len();
                let ones = || Tensor::ones([1, 1, length, 1], &Device::flex());
                let (q, k) = transformed(&encoding, &Positions::same(positions), ones(), ones());
                one_ulp(name, &q, &expected);
                assert_eq!(k, vec![1.0; length], "keys stay");
            }
            "interpolated" => {
                let (train_len, test_len) = (case.size("train_len"), case.size("test_len"));
                let mut interpolated: PositionsConfig =
                    serde_json::from_value(json!({"kind": "interpolated"})).expect("a sampler");
                interpolated.resolve(
                    &Lengths {
                        train_len,
                        trained_len: train_len,
                        test_len,
                    },
                    test_len,
                );
                let positions = interpolated.sample(test_len, &mut |_| panic!("nothing is drawn"));
                let at = |token: &f64| positions.queries()[*token as usize];
                exact(
                    name,
                    &case.list("tokens").iter().map(at).collect::<Vec<f64>>(),
                    &expected,
                );
                assert_eq!(positions.queries(), positions.keys());
            }
            _ => case.other_kind(),
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one draw, looked at from all sides")]
fn randomized_positions() {
    const DRAWS: u32 = 4000;
    for case in cases(include_str!("../../golden/randomized_positions.json"), 3) {
        let (name, bound, length) = (&case.name, case.size("max_position"), case.size("length"));
        assert_eq!(case.kind, "randomized");
        let sampler: PositionsConfig =
            serde_json::from_value(json!({"kind": "randomized", "max_position": bound}))
                .expect("a sampler of positions");
        let mut state = 1u64;
        let mut below = |n: u64| {
            // Numbers of splitmix64; what modulo adds to small ones is far below what 4000 draws
            // show.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % n
        };
        let mut sums = vec![0.0; length];
        for _ in 0..DRAWS {
            let positions = sampler.sample(length, &mut below);
            let drawn = positions.queries();
            assert_eq!(
                drawn,
                positions.keys(),
                "{name}: one draw for queries and keys"
            );
            assert_eq!(drawn.len(), length);
            assert!(
                drawn.is_sorted_by(|a, b| a < b)
                    && drawn
                        .iter()
                        .all(|p| (0.0..bound as f64).contains(p) && p.fract() == 0.0)
            );
            sums.iter_mut().zip(drawn).for_each(|(sum, p)| *sum += p);
        }
        let (n, l) = (length as f64, bound as f64);
        for (i, (sum, mean)) in sums
            .iter()
            .zip(numbers(&case.expected["means"]))
            .enumerate()
        {
            // Variance of the (i + 1)-th of n out of l.
            let variance = (i + 1) as f64 * (n - i as f64) * (l + 1.0) * (l - n)
                / ((n + 1.0).powi(2) * (n + 2.0));
            let error = (sum / f64::from(DRAWS) - mean) / (variance / f64::from(DRAWS)).sqrt();
            assert!(
                error.abs() < 5.0,
                "{name}[{i}]: {error} standard errors away from {mean}"
            );
        }
        assert_eq!(sampler.max_seq_len(), Some(bound));
        assert_eq!(
            PositionsConfig::sample(&sampler, bound.min(64), &mut below)
                .queries()
                .len(),
            bound.min(64)
        );
    }
    let full: PositionsConfig =
        serde_json::from_value(json!({"kind": "randomized", "max_position": 16}))
            .expect("a sampler");
    assert_eq!(
        full.sample(16, &mut |n| n - 1).queries(),
        count(16),
        "as many as there are leave no choice"
    );
}
