//! What the encoding of a trained run does at each test length, as tables of numbers.

use crate::commands::export::trained::Trained;
use crate::commands::export::{Args, Tensors, write_tensors};
use inspect::tables::{Angles, Layer, Table, Turn, tables};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use support::exit::Failure;
use tiny_transformer::{AttentionKind, Mask};

/// Key of the metadata that distinguishes such a file.
pub(super) const ABOUT: &str = "tables";

/// Writes the tables of every variant and test length, which docs/interop.md describes; returns a
/// line about the file.
///
/// # Errors
///
/// As [`Trained::open`], [`Exit::Config`](support::exit::Exit::Config) for an encoding that reads
/// content, and [`Exit::Resources`](support::exit::Exit::Resources).
pub fn write(request: &Args) -> Result<String, Failure> {
    let trained = Trained::open(request, "tables")?;
    let transformer = &trained.spec.model.transformer;
    if transformer.attention != AttentionKind::Softmax {
        let problem = "linear attention applies encodings in another way";
        return Err(refused("attention", problem, false));
    }
    let causal = transformer.mask == Mask::Causal;
    let shape = transformer.shape();
    let (mut tensors, mut sets) = (Tensors::new(), BTreeMap::new());
    for set in trained.test_sets(1) {
        let set = set?;
        let (facts, positions) = (set.config.facts(&shape), &set.part.positions);
        let found = tables(
            &set.encoding,
            &facts,
            &shape,
            positions,
            causal,
            &trained.device,
        )?;
        let found = found.map_err(|why| {
            let place = format!("{} under `{}`", set.name, set.config.kind());
            refused(&place, why, trained.spec.eval.variants.len() > 1)
        })?;
        if let Some(embed) = &found.embed {
            put(&mut tensors, format!("{}.embed", set.name), embed);
        }
        let mut layers = Vec::new();
        for (index, layer) in found.layers.iter().enumerate() {
            let mut earlier = found.layers[..index].iter();
            layers.push(match earlier.position(|earlier| earlier == layer) {
                Some(same) => json!({ "same_as": same }),
                None => put_layer(&mut tensors, &format!("{}.layers.{index}", set.name), layer),
            });
        }
        sets.insert(set.name, layers);
    }
    if sets.is_empty() {
        let problem = "its encodings reach none of its test lengths";
        return Err(refused(&trained.run.name(), problem, false));
    }
    let about = json!({ "run_id": trained.run_id, "layers": sets });
    write_tensors(request, &tensors, (ABOUT, about.to_string()))?;
    Ok(format!(
        "wrote {}: tables of {}, {}",
        request.out.display(),
        trained.run.name(),
        sets.keys().cloned().collect::<Vec<_>>().join(", ")
    ))
}

fn put(tensors: &mut Tensors, name: String, table: &Table) {
    let bytes = table.values.iter().flat_map(|x| x.to_le_bytes()).collect();
    tensors.insert(name, (Dtype::F32, table.shape.clone(), bytes));
}

fn put_angles(tensors: &mut Tensors, place: &str, angles: &Angles) {
    let names = ["query_cos", "query_sin", "key_cos", "key_sin"];
    for (name, table) in names.iter().zip(angles) {
        put(tensors, format!("{place}.{name}"), table);
    }
}

/// Puts the tables of a layer, and returns how they are read.
fn put_layer(tensors: &mut Tensors, place: &str, layer: &Layer) -> Value {
    let mut about = json!({ "factor": layer.factor });
    match &layer.turn {
        None => {}
        Some(Turn::Rotation {
            near,
            zones,
            interleaved,
        }) => {
            about["pairs"] = if *interleaved { "neighbours" } else { "halves" }.into();
            put_angles(tensors, place, near);
            if let Some((far, of)) = zones {
                about["zones"] = far.len().into();
                put(tensors, format!("{place}.zone"), of);
                for (index, angles) in far.iter().enumerate() {
                    put_angles(tensors, &format!("{place}.zone{}", index + 1), angles);
                }
            }
        }
        Some(Turn::Polar(angles)) => {
            about["pairs"] = "polar".into();
            put_angles(tensors, place, angles);
        }
        Some(Turn::Matrices(matrices)) => {
            for (name, table) in ["query_matrix", "key_matrix"].iter().zip(matrices.iter()) {
                put(tensors, format!("{place}.{name}"), table);
            }
        }
    }
    if let Some(bias) = &layer.bias {
        put(tensors, format!("{place}.bias"), bias);
    }
    about
}

fn refused(what: &str, why: &str, has_others: bool) -> Failure {
    let other = if has_others {
        "--variant names one of several; "
    } else {
        ""
    };
    Failure::config(format!("--format tables: {what}: {why}"))
        .with_allowed("encodings that read positions only, in softmax attention")
        .with_help(format!(
            "{other}`longreach list encodings` says which hooks an encoding has"
        ))
}
