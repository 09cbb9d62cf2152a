//! Golden numbers at far positions, made by `scripts/golden_positions.py` in 50-digit arithmetic without a look at this crate's code;
//! `golden.rs` says how they are compared.

mod golden_common;

use burn::tensor::{Device, Tensor};
use golden_common::*;
use posenc::{Axis, DebertaConfig, EncodingConfig, PositionalEncoding, Positions};
use serde_json::{Value, json};

const TEXT: &str = include_str!("golden/positions.json");

/// Of a table `[rows, dim]` the first or the second of every pair.
fn side(table: &[f64], dim: usize, layout: &str, second: bool) -> Vec<f64> {
    let is_second = |i: usize| if layout == "half" { i >= dim / 2 } else { i % 2 == 1 };
    (0..table.len()).filter(|i| is_second(i % dim) == second).map(|i| table[i]).collect()
}

/// The first of each pair 1 and the second 0: what comes out of a rotation is the tables themselves.
fn units(dim: usize, layout: &str) -> Vec<f64> {
    (0..dim).map(|i| f64::from(if layout == "half" { i < dim / 2 } else { i % 2 == 0 })).collect()
}

#[test]
fn far_positions() {
    let file: Value = serde_json::from_str(TEXT).expect("golden files are JSON");
    let positions = numbers(&file["positions"]);
    let length = positions.len();
    assert_eq!(positions, [0.0, 1.0, 2.0, 127.0, 1023.0, 4095.0, 65535.0, 1e6]);
    for case in cases(TEXT, 100) {
        let (name, inputs) = (&case.name, &case.inputs);
        let options = |kind: &str, keys: &[&str]| {
            let mut options = json!({"kind": kind});
            keys.iter().for_each(|key| options[*key] = inputs[*key].clone());
            config(options)
        };
        match case.kind.as_str() {
            "rope" => {
                let dim = case.size("dim");
                for layout in ["half", "interleaved"] {
                    let rope = config(json!({"kind": "rope", "layout": layout, "base": inputs["base"], "scaling": inputs["scaling"]}));
                    let EncodingConfig::Rope(of_length) = &rope else { panic!("{rope:?}") };
                    let frequencies = of_length.frequencies(dim, 1_000_001.0);
                    exact(name, &frequencies.inv_freq, &numbers(&case.expected["inv_freq"]));
                    exact(name, &[frequencies.attention_factor], &numbers(&case.expected["attention_factor"]));
                    let table = turned(&rope, &units(dim, layout), &positions);
                    one_ulp(name, &side(&table, dim, layout, false), &numbers(&case.expected["cos"]));
                    one_ulp(name, &side(&table, dim, layout, true), &numbers(&case.expected["sin"]));
                }
            }
            "axial" => {
                let (dim, mode) = (case.size("dim"), inputs["mode"].as_str().expect("a name"));
                let heads = inputs["n_heads"].as_u64().unwrap_or(1) as usize;
                // The positions, backwards, and shifted by three places.
                let backwards = positions.iter().rev().copied().collect();
                let shifted = [&positions[3..], &positions[..3]].concat();
                let axes = [positions.clone(), backwards, shifted].into_iter().take(case.size("axes"));
                let axes = axes.map(|at| Axis { queries: at.clone(), keys: at }).collect();
                let at = Positions::contiguous(length).with_axes(axes);
                // In `split`, halves are halves of a block.
                for layout in if mode == "split" { vec!["interleaved"] } else { vec!["half", "interleaved"] } {
                    let mut axial = json!({"kind": "axial_rope", "layout": layout, "mode": mode, "axes": inputs["axes"]});
                    axial["base"] = inputs["base"].clone();
                    axial["sections"] = inputs["sections"].clone();
                    let offset = inputs.get("frequency_offset").map(|offset| ("frequency_offset", numbers(offset)));
                    let parameters: Vec<(&str, Vec<f64>)> = offset.into_iter().collect();
                    let encoding = build(&config(axial), &shape(heads * dim, heads, dim), &parameters);
                    let rows = || tensor(units(dim, layout).repeat(heads * length), [1, heads, length, dim]);
                    let (q, k) = transformed(&encoding, &at, rows(), rows());
                    assert_eq!(q, k, "queries and keys turn alike");
                    one_ulp(name, &side(&q, dim, layout, false), &numbers(&case.expected["cos"]));
                    one_ulp(name, &side(&q, dim, layout, true), &numbers(&case.expected["sin"]));
                }
            }
            "sinusoidal" => {
                let width = case.size("d_model");
                let encoding = build(&options("sinusoidal", &["order", "base"]), &shape(width, 1, width), &[]);
                let prepared = encoding.prepare(&Positions::same(positions.clone()), &Device::flex());
                one_ulp(name, &host(prepared.embed(Tensor::zeros([1, length, width], &Device::flex()))), &case.wanted());
            }
            "xpos" | "pope" => {
                let (q, k) = (case.list("q"), case.list("k"));
                let (width, both) = (q.len(), json!("interleaved"));
                let (scored, parameters) = match case.kind.as_str() {
                    "xpos" => (config(json!({"kind": "xpos", "layout": both, "scale_base": inputs["scale_base"]})), vec![]),
                    _ => (options("pope", &["base"]), vec![("delta", case.list("delta"))]),
                };
                let encoding = build(&scored, &shape(width, 1, width), &parameters);
                close_products(name, &scores(&encoding, &case), &case.wanted(), &q, &k, 1e-6);
            }
            "rerope" | "self_extend" => {
                let (q, k) = (case.list("q"), case.list("k"));
                let dim = q.len();
                let zones =
                    options(&case.kind, if case.kind == "rerope" { &["window", "leak", "layout"] } else { &["window", "group", "layout"] });
                let distance = |[m, n]: [f64; 2]| match &zones {
                    EncodingConfig::Rerope(rerope) => rerope.distance(m - n),
                    EncodingConfig::SelfExtend(extended) => extended.distance(m, n),
                    other => panic!("{other:?}"),
                };
                let distances: Vec<f64> = case.pairs().into_iter().map(distance).collect();
                exact(name, &distances, &numbers(&case.expected["distances"]));
                let encoding = build(&zones, &shape(dim, 1, dim), &[]);
                let pass = Inputs::rows(q.repeat(length), k.repeat(length), dim).pass(&encoding, &Positions::same(positions.clone()));
                let scores: Vec<f64> = visible(&pass.logits(), length).iter().map(|logit| logit * (dim as f64).sqrt()).collect();
                close_products(name, &scores, &numbers(&case.expected["scores"]), &q, &k, 1e-6);
            }
            "log_scaling" => {
                let mut scaling = options("log_scaling", &["form", "original_max_position_embeddings"]);
                if let EncodingConfig::LogScaling(scaling) = &mut scaling {
                    scaling.strength = inputs["strength"].as_f64().unwrap_or(scaling.strength);
                }
                let encoding = build(&scaling, &shape(1, 1, 1), &[]);
                let ones = || Tensor::ones([1, 1, length, 1], &Device::flex());
                let (q, k) = transformed(&encoding, &Positions::same(positions.clone()), ones(), ones());
                one_ulp(name, &q, &case.wanted());
                assert_eq!(k, vec![1.0; length], "keys stay");
            }
            "alibi" => {
                let encoding = build(&options("alibi", &[]), &shape(8, case.size("n_heads"), 8), &[]);
                close(name, &position_bias(&encoding, vec![case.number("query")], positions.clone()), &case.wanted(), 1e-6);
            }
            "t5" => {
                let t5 = options("t5", &["num_buckets", "max_distance", "bidirectional"]);
                let encoding = build(&t5, &shape(8, 1, 8), &[("table", count(case.size("num_buckets")))]);
                let keys = case.list("relative").iter().map(|relative| 1e6 + relative).collect();
                let got = position_bias(&encoding, vec![1e6], keys);
                for ((relative, got), expected) in case.list("relative").iter().zip(got).zip(case.wanted()) {
                    assert_eq!(got, expected, "{name}: bucket of {relative}");
                }
            }
            "deberta" => {
                let sizes = ["buckets", "max_distance"].map(|key| Some(case.size(key)));
                let deberta = DebertaConfig { buckets: sizes[0], max_distance: sizes[1], ..Default::default() };
                for (distance, expected) in case.list("distances").iter().zip(case.wanted()) {
                    assert_eq!(deberta.bucket(*distance), expected, "{name}: bucket of {distance}");
                }
            }
            "kerple" => {
                let parameters = [("r1", case.list("r1")), ("r2", case.list("r2"))];
                let encoding = build(&options("kerple", &["form"]), &shape(8, 1, 8), &parameters);
                close(name, &position_bias(&encoding, vec![case.number("query")], positions.clone()), &case.wanted(), 1e-6);
            }
            "sandwich" => {
                let encoding = build(&options("sandwich", &["width"]), &shape(8, case.size("n_heads"), 8), &[]);
                one_ulp(name, &position_bias(&encoding, vec![case.number("query")], positions.clone()), &case.wanted());
            }
            "fire" => {
                let layers = ["c", "multiplier", "w1", "b1", "w2", "b2"];
                let paths = layers.map(|layer| format!("functions.0.{layer}"));
                let parameters: Vec<(&str, Vec<f64>)> =
                    paths.iter().zip(layers).map(|(path, layer)| (path.as_str(), case.list(layer))).collect();
                let fire = config(json!({"kind": "fire", "hidden": case.list("w1").len(), "threshold": inputs["threshold"]}));
                let encoding = build(&fire, &shape(8, case.list("b2").len(), 8), &parameters);
                let bias = position_bias(&encoding, positions.clone(), positions.clone());
                close(name, &visible(&bias, length), &case.wanted(), 1e-6);
            }
            _ => case.other_kind(),
        }
    }
}
