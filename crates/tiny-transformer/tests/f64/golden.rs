//! Rotated features against golden numbers.

use crate::DEVICE;
use crate::common::{host, largest_difference};
use crate::linear_attention::{build, tensor, weights_of};
use burn::tensor::Tensor;
use posenc::{Context, ModelShape, PositionalEncoding, Positions};
use serde_json::{Value, json};
use tiny_transformer::{FeatureMap, Normalizer, feature_map, linear_attention};

#[test]
fn golden_numbers_of_rotated_features() {
    let golden: Value = serde_json::from_str(include_str!("../golden/rope_linear_attention.json"))
        .expect("golden numbers");
    let cases: Vec<&Value> = golden["cases"]
        .as_array()
        .expect("cases")
        .iter()
        .filter(|case| case["kind"] == "causal")
        .collect();
    assert_eq!(cases.len(), 1);
    for case in cases {
        let flat = |value: &Value| -> Vec<f64> {
            let rows = value.as_array().expect("rows");
            rows.iter()
                .flat_map(|row| {
                    row.as_array()
                        .map_or_else(|| vec![row.clone()], Clone::clone)
                })
                .map(|x| x.as_f64().expect("a number"))
                .collect()
        };
        let (inputs, expected) = (&case["inputs"], &case["expected"]);
        assert_eq!(inputs["feature_map"], "elu+1");
        let [q, k, v] = ["q", "k", "v"].map(|name| {
            let length = inputs[name].as_array().expect("rows").len();
            let values = flat(&inputs[name]);
            let width = values.len() / length;
            tensor(values, [1, 1, length, width])
        });
        let [_, _, length, head_dim] = q.dims();
        let shape = ModelShape {
            d_model: head_dim,
            n_layers: 1,
            n_heads: 1,
            head_dim,
        };
        let rope = build(
            json!({"kind": "rope", "layout": inputs["layout"], "base": inputs["base"]}),
            &shape,
        );
        let prepared = rope
            .prepare(&Positions::contiguous(length), &Context::new(&DEVICE))
            .expect("positions in range");
        let numerators = flat(&expected["numerator_weights"]);
        for (normalizer, outputs, denominators) in [
            (
                Normalizer::Unrotated,
                "out_roformer_unrotated_denominator",
                "denom_unrotated",
            ),
            (
                Normalizer::Rotated,
                "out_rotated_denominator",
                "denom_rotated",
            ),
        ] {
            let [q, k] = [&q, &k].map(|x| feature_map(x.clone(), FeatureMap::Elu, normalizer));
            let out = host(linear_attention(
                [q, k, v.clone()],
                &Tensor::zeros([1, 1, 1], &*DEVICE),
                0,
                prepared.as_ref(),
                normalizer,
                0,
                None,
            ));
            assert!(
                largest_difference(&out, &flat(&expected[outputs])) < 1e-12,
                "{outputs}"
            );
            let denominators = flat(&expected[denominators]);
            let weights: Vec<f64> = numerators
                .iter()
                .enumerate()
                .map(|(at, weight)| weight / denominators[at / length])
                .collect();
            let [q, k] =
                ["q", "k"].map(|name| tensor(flat(&inputs[name]), [1, 1, length, head_dim]));
            let got = weights_of(q, k, &rope, FeatureMap::Elu, normalizer);
            assert!(
                largest_difference(&got, &weights) < 1e-12,
                "{denominators:?}"
            );
        }
    }
}
