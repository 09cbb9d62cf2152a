//! Golden numbers at far positions, made by `scripts/golden_positions.py` in 50-digit arithmetic
//! without a look at this crate's code; the module above says how they are compared.

use super::support::*;
use burn::tensor::{Device, Tensor};
use posenc::encodings::DebertaConfig;
use posenc::spec::EncodingSpec;
use posenc::{Axis, Context, EncodingConfig, PositionalEncoding, Positions};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const TEXT: &str = include_str!("../../golden/positions.json");

const POSITIONS: [f64; 8] = [0.0, 1.0, 2.0, 127.0, 1023.0, 4095.0, 65535.0, 1e6];

/// Cases of each kind; a kind without a test has no place here.
const KINDS: [(&str, usize); 14] = [
    ("rope", 33),
    ("axial", 14),
    ("sinusoidal", 9),
    ("xpos", 3),
    ("pope", 2),
    ("rerope", 3),
    ("self_extend", 3),
    ("log_scaling", 6),
    ("alibi", 4),
    ("t5", 6),
    ("deberta", 5),
    ("kerple", 5),
    ("sandwich", 3),
    ("fire", 4),
];

fn of_kind(kind: &str) -> impl Iterator<Item = Case> {
    assert!(
        KINDS.iter().any(|(known, _)| *known == kind),
        "{kind} has no count"
    );
    cases(TEXT, 100)
        .into_iter()
        .filter(move |case| case.kind == kind)
}

#[test]
fn every_far_case_is_of_a_kind_that_is_tested() {
    let file: Value = serde_json::from_str(TEXT).expect("golden files are JSON");
    assert_eq!(numbers(&file["positions"]), POSITIONS);
    let mut counts = BTreeMap::new();
    cases(TEXT, 100)
        .into_iter()
        .for_each(|case| *counts.entry(case.kind).or_insert(0) += 1);
    assert_eq!(
        counts,
        KINDS
            .into_iter()
            .map(|(kind, count)| (kind.to_owned(), count))
            .collect()
    );
}

/// The configuration of `kind` with these keys taken from the case.
fn options(case: &Case, kind: &str, keys: &[&str]) -> EncodingConfig {
    let mut options = json!({"kind": kind});
    keys.iter()
        .for_each(|key| options[*key] = case.inputs[*key].clone());
    config(options)
}

/// Of a table `[rows, dim]` the first or the second of every pair.
fn side(table: &[f64], dim: usize, layout: &str, second: bool) -> Vec<f64> {
    let is_second = |i: usize| {
        if layout == "half" {
            i >= dim / 2
        } else {
            i % 2 == 1
        }
    };
    (0..table.len())
        .filter(|i| is_second(i % dim) == second)
        .map(|i| table[i])
        .collect()
}

/// The first of each pair 1 and the second 0: what comes out of a rotation is the tables
/// themselves.
fn units(dim: usize, layout: &str) -> Vec<f64> {
    (0..dim)
        .map(|i| {
            f64::from(if layout == "half" {
                i < dim / 2
            } else {
                i % 2 == 0
            })
        })
        .collect()
}

#[test]
fn rope() {
    for case in of_kind("rope") {
        let (name, dim) = (&case.name, case.size("dim"));
        let [base, scaling] = ["base", "scaling"].map(|key| &case.inputs[key]);
        for layout in ["half", "interleaved"] {
            let rope =
                config(json!({"kind": "rope", "layout": layout, "base": base, "scaling": scaling}));
            let EncodingConfig::Rope(of_length) = &rope else {
                panic!("{rope:?}")
            };
            let frequencies = of_length
                .frequencies(dim, 1_000_001.0)
                .expect("a resolved scaling");
            exact(
                name,
                &frequencies.inv_freq,
                &numbers(&case.expected["inv_freq"]),
            );
            exact(
                name,
                &[frequencies.attention_factor],
                &numbers(&case.expected["attention_factor"]),
            );
            let table = turned(&rope, &units(dim, layout), &POSITIONS);
            one_ulp(
                name,
                &side(&table, dim, layout, false),
                &numbers(&case.expected["cos"]),
            );
            one_ulp(
                name,
                &side(&table, dim, layout, true),
                &numbers(&case.expected["sin"]),
            );
        }
    }
}

#[test]
fn axial_rope() {
    for case in of_kind("axial") {
        let (name, dim, mode) = (
            &case.name,
            case.size("dim"),
            case.inputs["mode"].as_str().expect("a name"),
        );
        let (heads, length) = (
            case.inputs["n_heads"].as_u64().unwrap_or(1) as usize,
            POSITIONS.len(),
        );
        // The positions, backwards, and shifted by three places.
        let axes = [
            POSITIONS.to_vec(),
            POSITIONS.iter().rev().copied().collect(),
            [&POSITIONS[3..], &POSITIONS[..3]].concat(),
        ];
        let axes = axes
            .into_iter()
            .take(case.size("axes"))
            .map(|at| Axis {
                queries: at.clone(),
                keys: at,
            })
            .collect();
        let at = Positions::contiguous(length).with_axes(axes);
        // In `split`, halves are halves of a block.
        for layout in if mode == "split" {
            vec!["interleaved"]
        } else {
            vec!["half", "interleaved"]
        } {
            let mut axial = json!({"kind": "axial_rope", "layout": layout});
            ["mode", "axes", "base", "sections"]
                .into_iter()
                .for_each(|key| axial[key] = case.inputs[key].clone());
            let offset = case
                .inputs
                .get("frequency_offset")
                .map(|offset| ("frequency_offset", numbers(offset)));
            let parameters: Vec<(&str, Vec<f64>)> = offset.into_iter().collect();
            let encoding = build(&config(axial), &shape(heads * dim, heads, dim), &parameters);
            let rows = || {
                tensor(
                    units(dim, layout).repeat(heads * length),
                    [1, heads, length, dim],
                )
            };
            let (q, k) = transformed(&encoding, &at, rows(), rows());
            assert_eq!(q, k, "queries and keys turn alike");
            one_ulp(
                name,
                &side(&q, dim, layout, false),
                &numbers(&case.expected["cos"]),
            );
            one_ulp(
                name,
                &side(&q, dim, layout, true),
                &numbers(&case.expected["sin"]),
            );
        }
    }
}

#[test]
fn sinusoidal() {
    for case in of_kind("sinusoidal") {
        let width = case.size("d_model");
        let encoding = build(
            &options(&case, "sinusoidal", &["order", "base"]),
            &shape(width, 1, width),
            &[],
        );
        let prepared = encoding
            .prepare(
                &Positions::same(POSITIONS.to_vec()),
                &Context::new(&Device::flex()),
            )
            .expect("positions in range");
        let zeros = Tensor::zeros([1, POSITIONS.len(), width], &Device::flex());
        one_ulp(&case.name, &host(prepared.embed(zeros)), &case.wanted());
    }
}

#[test]
fn xpos() {
    for case in of_kind("xpos") {
        let (q, k) = (case.list("q"), case.list("k"));
        let xpos = config(
            json!({"kind": "xpos", "layout": "interleaved", "scale_base": case.inputs["scale_base"]}),
        );
        let encoding = build(&xpos, &shape(q.len(), 1, q.len()), &[]);
        close_products(
            &case.name,
            &scores(&encoding, &case),
            &case.wanted(),
            &q,
            &k,
            1e-6,
        );
    }
}

#[test]
fn pope() {
    for case in of_kind("pope") {
        let (q, k) = (case.list("q"), case.list("k"));
        let encoding = build(
            &options(&case, "pope", &["base"]),
            &shape(q.len(), 1, q.len()),
            &[("delta", case.list("delta"))],
        );
        close_products(
            &case.name,
            &scores(&encoding, &case),
            &case.wanted(),
            &q,
            &k,
            1e-6,
        );
    }
}

/// Distances as the configuration tells them, and scores of a whole pass at the far positions.
fn two_zones(case: &Case, zones: &EncodingConfig, distance: impl Fn(f64, f64) -> f64) {
    let (q, k) = (case.list("q"), case.list("k"));
    let (dim, length) = (q.len(), POSITIONS.len());
    let distances: Vec<f64> = case
        .pairs()
        .into_iter()
        .map(|[m, n]| distance(m, n))
        .collect();
    exact(
        &case.name,
        &distances,
        &numbers(&case.expected["distances"]),
    );
    let encoding = build(zones, &shape(dim, 1, dim), &[]);
    let pass = Inputs::rows(q.repeat(length), k.repeat(length), dim)
        .pass(&encoding, &Positions::same(POSITIONS.to_vec()));
    let scores: Vec<f64> = visible(&pass.logits(), length)
        .iter()
        .map(|logit| logit * (dim as f64).sqrt())
        .collect();
    close_products(
        &case.name,
        &scores,
        &numbers(&case.expected["scores"]),
        &q,
        &k,
        1e-6,
    );
}

#[test]
fn rerope() {
    for case in of_kind("rerope") {
        let zones = options(&case, "rerope", &["window", "leak", "layout"]);
        let EncodingConfig::Rerope(rerope) = &zones else {
            panic!("{zones:?}")
        };
        two_zones(&case, &zones, |m, n| rerope.distance(m - n));
    }
}

#[test]
fn self_extend() {
    for case in of_kind("self_extend") {
        let zones = options(&case, "self_extend", &["window", "group", "layout"]);
        let EncodingConfig::SelfExtend(extended) = &zones else {
            panic!("{zones:?}")
        };
        two_zones(&case, &zones, |m, n| extended.distance(m, n));
    }
}

#[test]
fn log_scaling() {
    for case in of_kind("log_scaling") {
        let keys = ["form", "original_max_position_embeddings", "strength"];
        let given: Vec<&str> = keys
            .into_iter()
            .filter(|key| case.inputs.get(key).is_some())
            .collect();
        let encoding = build(&options(&case, "log_scaling", &given), &shape(1, 1, 1), &[]);
        let ones = || Tensor::ones([1, 1, POSITIONS.len(), 1], &Device::flex());
        let (q, k) = transformed(
            &encoding,
            &Positions::same(POSITIONS.to_vec()),
            ones(),
            ones(),
        );
        one_ulp(&case.name, &q, &case.wanted());
        assert_eq!(k, [1.0; POSITIONS.len()], "keys stay");
    }
}

/// Bias of one query against the far positions.
fn against_all(
    case: &Case,
    config: &EncodingConfig,
    heads: usize,
    parameters: &[(&str, Vec<f64>)],
) -> Vec<f64> {
    position_bias(
        &build(config, &shape(8, heads, 8), parameters),
        vec![case.number("query")],
        POSITIONS.to_vec(),
    )
}

#[test]
fn alibi() {
    for case in of_kind("alibi") {
        let bias = against_all(
            &case,
            &options(&case, "alibi", &[]),
            case.size("n_heads"),
            &[],
        );
        close(&case.name, &bias, &case.wanted(), 1e-6);
    }
}

#[test]
fn kerple() {
    for case in of_kind("kerple") {
        let parameters = [("r1", case.list("r1")), ("r2", case.list("r2"))];
        close(
            &case.name,
            &against_all(&case, &options(&case, "kerple", &["form"]), 1, &parameters),
            &case.wanted(),
            1e-6,
        );
    }
}

#[test]
fn sandwich() {
    for case in of_kind("sandwich") {
        let bias = against_all(
            &case,
            &options(&case, "sandwich", &["width"]),
            case.size("n_heads"),
            &[],
        );
        one_ulp(&case.name, &bias, &case.wanted());
    }
}

#[test]
fn fire() {
    for case in of_kind("fire") {
        let bias = position_bias(&fire_of(&case), POSITIONS.to_vec(), POSITIONS.to_vec());
        close(
            &case.name,
            &visible(&bias, POSITIONS.len()),
            &case.wanted(),
            1e-6,
        );
    }
}

#[test]
fn t5_buckets() {
    for case in of_kind("t5") {
        let t5 = options(
            &case,
            "t5",
            &["num_buckets", "max_distance", "bidirectional"],
        );
        // A table whose row r holds r.
        let encoding = build(
            &t5,
            &shape(8, 1, 8),
            &[("table", count(case.size("num_buckets")))],
        );
        let keys = case
            .list("relative")
            .iter()
            .map(|relative| 1e6 + relative)
            .collect();
        close(
            &case.name,
            &position_bias(&encoding, vec![1e6], keys),
            &case.wanted(),
            0.0,
        );
    }
}

#[test]
fn deberta_buckets() {
    for case in of_kind("deberta") {
        let [buckets, max_distance] = ["buckets", "max_distance"].map(|key| Some(case.size(key)));
        let deberta = DebertaConfig::default().with(|config| {
            config.buckets = buckets;
            config.max_distance = max_distance;
        });
        let buckets: Vec<f64> = case
            .list("distances")
            .iter()
            .map(|distance| deberta.bucket(*distance))
            .collect();
        close(&case.name, &buckets, &case.wanted(), 0.0);
    }
}
