//! `export --format tables`: what an encoding does, as numbers. python/tests/test_tables.py runs
//! models with them.

use crate::common::{Scratch, TINY, command, exits, says, stderr};
use safetensors::SafeTensors;
use std::path::{Path, PathBuf};
use std::process::Output;

fn trained(encoding: &str, more: &[&str]) -> (Scratch, PathBuf) {
    let scratch = Scratch::with(TINY);
    let axes = format!("axes.\"model.pe\"=[{encoding}]");
    let mut arguments = vec!["seeds=[0]", &axes, "model.n_layers=2"];
    arguments.extend(more);
    scratch.trains(&arguments);
    let run = scratch.first_run();
    (scratch, run)
}

fn export(run: &Path, out: &Path, more: &[&str]) -> Output {
    let tables = ["--format", "tables", "--out", out.to_str().unwrap()];
    command("export", run, &[&tables[..], more].concat())
}

/// The shape and the numbers of a tensor.
fn tensor(file: &[u8], name: &str) -> (Vec<usize>, Vec<f32>) {
    let tensors = SafeTensors::deserialize(file).unwrap();
    let view = tensors.tensor(name).unwrap();
    let numbers = view.data().chunks_exact(4);
    let numbers = numbers.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    (view.shape().to_vec(), numbers.collect())
}

#[test]
fn tables_of_rope_are_its_angles_and_those_of_alibi_its_slopes() {
    let (scratch, run) = trained("{kind=\"rope\"}", &[]);
    let out = scratch.directory.path().join("tables.safetensors");
    exits(&export(&run, &out, &[]), 0);
    let file = std::fs::read(&out).unwrap();
    // Copying 8 symbols takes 2 * 8 + 1 tokens; head_dim is 8, so there are 4 pairs.
    let (shape, cos) = tensor(&file, "trained.8.layers.0.query_cos");
    assert_eq!((shape[0], shape[2]), (1, 4));
    for position in 0..shape[1] {
        for pair in 0..4 {
            let theta = 10_000_f64.powf(-2.0 * pair as f64 / 8.0);
            let right = (position as f64 * theta).cos();
            let found = f64::from(cos[4 * position + pair]);
            assert!((found - right).abs() < 1e-7, "{position} {pair}: {found}");
        }
    }
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&file).unwrap();
    let about = metadata.metadata().as_ref().unwrap()["tables"].clone();
    let about: serde_json::Value = serde_json::from_str(&about).unwrap();
    let layers = &about["layers"]["trained.8"];
    assert_eq!(layers[0]["pairs"], "halves");
    assert_eq!(layers[1]["same_as"], 0);
    // The variant is there too, and the other length.
    for name in ["yarn.8", "trained.4", "yarn.4"] {
        assert!(tensors.tensor(&format!("{name}.layers.0.key_sin")).is_ok());
    }
    // The same bytes again; less of it on request.
    exits(&export(&run, &out, &[]), 0);
    assert_eq!(std::fs::read(&out).unwrap(), file);
    let ended = export(&run, &out, &["--variant", "yarn", "--lengths", "8"]);
    exits(&ended, 0);
    let one = std::fs::read(&out).unwrap();
    let names = SafeTensors::deserialize(&one).unwrap();
    assert!(names.names().iter().all(|name| name.starts_with("yarn.8.")));

    let (_alibi, run) = trained("{kind=\"alibi\"}", &[]);
    exits(&export(&run, &out, &[]), 0);
    let (shape, bias) = tensor(&std::fs::read(&out).unwrap(), "trained.8.layers.0.bias");
    let (heads, length) = (shape[0], shape[1]);
    assert_eq!((heads, shape.len()), (2, 2));
    for head in 0..heads {
        let slope = 2_f32.powi(-4 * (head as i32 + 1));
        for distance in 0..length {
            assert_eq!(bias[head * length + distance], -slope * distance as f32);
        }
    }
}

/// The relative angle of a pair of dimensions in the zone of a query and a key.
#[test]
fn zones_turn_each_pair_by_its_own_distance() {
    let encoding = "{kind=\"dual_chunk\", chunk_size=6, local_window=2}";
    let (scratch, run) = trained(encoding, &["eval.variants=[]"]);
    let out = scratch.directory.path().join("tables.safetensors");
    exits(&export(&run, &out, &["--lengths", "8"]), 0);
    let file = std::fs::read(&out).unwrap();
    let (shape, zones) = tensor(&file, "trained.8.layers.0.zone");
    let length = shape[1];
    assert_eq!(shape, [1, length, length]);
    let of_zone = |zone: usize, name: &str| {
        let place = match zone {
            0 => String::new(),
            zone => format!("zone{zone}."),
        };
        tensor(&file, &format!("trained.8.layers.0.{place}{name}")).1
    };
    let angles = [0, 1, 2].map(|zone| {
        ["query_cos", "query_sin", "key_cos", "key_sin"].map(|name| of_zone(zone, name))
    });
    // Chunks of 4 tokens; the pair that turns fastest has a radian for each token.
    let mut seen = [0; 3];
    for query in 0..length {
        for key in 0..=query {
            let (inside, own) = ((query % 4) as f64, (key % 4) as f64);
            let (zone, distance) = match query / 4 - key / 4 {
                0 => (0, inside - own),
                1 => (1, (inside + 4.0).min(6.0) - own),
                _ => (2, 6.0 - own),
            };
            assert_eq!(zones[query * length + key], zone as f32);
            seen[zone] += 1;
            let [q_cos, q_sin, k_cos, k_sin] = &angles[zone];
            let (q, k) = (4 * query, 4 * key);
            let cos = q_cos[q] * k_cos[k] + q_sin[q] * k_sin[k];
            let far = (f64::from(cos) - distance.cos()).abs();
            assert!(far < 1e-6, "{query} {key}: {cos}");
        }
    }
    assert!(seen.iter().all(|pairs| *pairs > 0), "{seen:?}");
}

#[test]
fn what_has_no_tables_is_refused() {
    let linear = ["model.attention=\"linear\"", "eval.variants=[]"];
    let (scratch, rope) = trained("{kind=\"rope\"}", &[]);
    let (_cope, cope) = trained("{kind=\"cope\"}", &[]);
    let (_turns, turns) = trained("{kind=\"selective_rope\"}", &[]);
    let (_linear, linear) = trained("{kind=\"rope\"}", &linear);
    let out = scratch.directory.path().join("tables.safetensors");
    // Their biases are sums of gates that every token sets, which attention fuses.
    let gates = [
        "{kind=\"fox\"}",
        "{kind=\"cable\"}",
        "{kind=\"stack\",parts=[{kind=\"rope\"},{kind=\"fox\"}]}",
        "{kind=\"by_head\",parts=[{kind=\"fox\"},{kind=\"nope\"}]}",
        "{kind=\"by_layer\",pattern=[0,1],parts=[{kind=\"rope\"},{kind=\"fox\"}]}",
    ];
    for encoding in gates {
        let (_gates, run) = trained(encoding, &["eval.variants=[]"]);
        let output = export(&run, &out, &[]);
        exits(&output, 2);
        let printed = stderr(&output);
        assert!(
            printed.contains("reads the content"),
            "{encoding}: {printed}"
        );
        assert!(!out.exists(), "{encoding}");
    }
    let cases: [(&Path, &[&str], &[&str]); 5] = [
        (
            &cope,
            &[],
            &[
                "trained.4 under `cope`",
                "reads the content",
                "positions only",
            ],
        ),
        (&turns, &[], &["depends on the content"]),
        (&linear, &[], &["linear attention"]),
        (
            &rope,
            &["--variant", "ntk"],
            &["--variant ntk", "trained, yarn"],
        ),
        (&rope, &["--lengths", "4,5"], &["--lengths 5", "4, 8"]),
    ];
    for (run, options, parts) in cases {
        let output = export(run, &out, options);
        exits(&output, 2);
        for part in parts {
            says(&output, part);
        }
        assert!(!out.exists());
    }
}

#[test]
fn only_exported_files_are_replaced() {
    let (_scratch, run) = trained("{kind=\"rope\"}", &[]);
    let weights = run.join("weights.safetensors");
    let before = std::fs::read(&weights).unwrap();
    let refused = export(&run, &weights, &[]);
    exits(&refused, 2);
    let part = "weights.safetensors already exists, and holds something other";
    says(&refused, part);
    assert!(std::fs::read(&weights).unwrap() == before);
    let out = run.join("tables.safetensors");
    exits(&export(&run, &out, &[]), 0);
    exits(&export(&run, &out, &["--lengths", "8"]), 0);
    let arguments = ["--format", "logits", "--out", out.to_str().unwrap()];
    exits(&command("export", &run, &arguments), 2);
}
