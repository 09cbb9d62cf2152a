//! Converts gathered records from specs with a top-level `encoding` to specs with `model.pe`.
//! Usage: `convert_records FILE.jsonl...`; each file is replaced.

use longreach::plan::spec::RunSpec;
use results::RunRecord;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The old spec's values under the new keys, in the order of [`RunSpec`].
fn moved(old: &Map<String, Value>, ids: &BTreeMap<String, String>) -> anyhow::Result<Value> {
    let mut old = old.clone();
    let mut take = |key: &str| old.shift_remove(key);
    let mut new = Map::new();
    for key in ["task", "corpus_blake3"] {
        new.extend(take(key).map(|value| (key.to_owned(), value)));
    }
    let (encoding, positions) = (take("encoding"), take("positions"));
    let (coordinates, start) = (take("coordinates"), take("start"));
    let Some(Value::Object(mut model)) = take("model") else {
        anyhow::bail!("no model");
    };
    for (key, value) in [
        ("positions", positions),
        ("coordinates", coordinates),
        ("pe", encoding),
    ] {
        model.extend(value.map(|value| (key.to_owned(), value)));
    }
    new.insert("model".to_owned(), Value::Object(model));
    let Some(Value::Object(train)) = take("train") else {
        anyhow::bail!("no train");
    };
    let start = start
        .map(|mut start| {
            let table = start.as_object_mut().expect("a table");
            let pe = table.shift_remove("encoding").expect("encoding");
            table.insert("pe".to_owned(), pe);
            let id = table["run_id"].as_str().expect("an id");
            let id = ids
                .get(id)
                .ok_or_else(|| anyhow::anyhow!("unknown start {id}"))?;
            table["run_id"] = Value::String(id.clone());
            anyhow::Ok(start)
        })
        .transpose()?;
    let mut ordered = Map::new();
    for (key, value) in train {
        let before_length = key == "length";
        if let Some(start) = start.as_ref().filter(|_| before_length) {
            ordered.insert("start_from".to_owned(), start.clone());
        }
        ordered.insert(key, value);
    }
    new.insert("train".to_owned(), Value::Object(ordered));
    let mut eval = take("eval").ok_or_else(|| anyhow::anyhow!("no eval"))?;
    for variant in eval["variants"].as_array_mut().expect("variants") {
        let table = std::mem::take(variant.as_object_mut().expect("a variant"));
        let renamed = table.into_iter().map(|(key, value)| {
            (
                if key == "encodings" {
                    "pe".to_owned()
                } else {
                    key
                },
                value,
            )
        });
        *variant = Value::Object(renamed.collect());
    }
    new.insert("eval".to_owned(), eval);
    new.extend(take("seed").map(|value| ("seed".to_owned(), value)));
    anyhow::ensure!(old.is_empty(), "left over: {old:?}");
    Ok(Value::Object(new))
}

fn main() -> anyhow::Result<()> {
    for path in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&path)?;
        let mut records: Vec<RunRecord> = text
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()?;
        let again: Vec<String> = records
            .iter()
            .map(serde_json::to_string)
            .collect::<Result<_, _>>()?;
        let again = again.join("\n") + "\n";
        if again != text {
            let at = again
                .bytes()
                .zip(text.bytes())
                .position(|(a, b)| a != b)
                .unwrap_or(0);
            println!(
                "{path}: byte {at}: {} instead of {}",
                &again[at - 30..at + 30],
                &text[at - 30..at + 30]
            );
        }
        let mut ids = BTreeMap::new();
        for started in [false, true] {
            for record in &mut records {
                if record.spec.contains_key("start") != started
                    || ids.values().any(|id| *id == record.run_id)
                {
                    continue;
                }
                anyhow::ensure!(record.evaluation_of.is_none() && record.started_from.is_none());
                let hash =
                    blake3::hash(&serde_json::to_vec(&record.spec)?).to_hex()[..16].to_owned();
                anyhow::ensure!(
                    hash == record.run_id,
                    "{path}: {} is not {hash}",
                    record.run_id
                );
                let value = moved(&record.spec, &ids)?;
                let spec: RunSpec = serde_json::from_value(value.clone())?;
                anyhow::ensure!(
                    serde_json::to_string(&spec)? == serde_json::to_string(&value)?,
                    "{path}: {}: other bytes",
                    record.run_id
                );
                let id = spec.run_id()?;
                ids.insert(std::mem::replace(&mut record.run_id, id.clone()), id);
                record.encoding_facts = spec.model.derived(spec.train.seq_len);
                record.spec = value.as_object().expect("a table").clone();
            }
        }
        let lines: Vec<String> = records
            .iter()
            .map(serde_json::to_string)
            .collect::<Result<_, _>>()?;
        std::fs::write(&path, lines.join("\n") + "\n")?;
        println!("{path}: {} runs", ids.len());
    }
    Ok(())
}
