//! The parts of a record beside its numbers: spec, task and environment.

use crate::device::DeviceName;
use crate::spec::RunSpec;
use records::metric;
use records::record::{CorpusFacts, Environment, ScoredText, TaskFacts};
use std::collections::BTreeMap;
use support::exit::{Exit, Failure};
use tasks::Task;

/// The resolved spec as a record holds it.
///
/// # Errors
///
/// Never for a spec that passed validation.
pub fn spec_map(spec: &RunSpec) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
    match serde_json::to_value(spec) {
        Ok(serde_json::Value::Object(map)) => Ok(map),
        other => Err(Failure::new(
            Exit::Bug,
            format!("a spec is not a JSON object: {other:?}"),
        )),
    }
}

/// The task's definitions of its metrics, and those of what the evaluation adds to them.
fn definitions(spec: &RunSpec, task: &dyn Task) -> BTreeMap<String, String> {
    let mut definitions = task.definitions(spec.eval.decode.in_words());
    if let Some(exact) = definitions.get(metric::EXACT_MATCH).cloned() {
        let group = |(name, what): (String, String)| {
            (
                format!("{}_{name}", metric::EXACT_MATCH),
                format!("over the {what}: {exact}"),
            )
        };
        definitions.extend(task.groups().into_iter().map(group));
    }
    let loss = definitions.get(metric::LOSS_NATS);
    if let Some((last, loss)) = spec.eval.last_tokens.zip(loss) {
        let last = format!(
            "over the last {last} predictions of every window, of those that are scored: {loss}"
        );
        definitions.insert(metric::LAST_LOSS_NATS.to_owned(), last);
    }
    if spec.eval.attention_distance {
        let of_heads = metric::OF_HEADS
            .iter()
            .filter_map(|name| metric::find(name));
        definitions.extend(of_heads.map(|def| (def.name.into(), format!("{}.", def.definition))));
    }
    definitions
}

/// The task as a record holds it, with the definitions of its metrics in this evaluation.
pub fn task_facts(spec: &RunSpec, task: &dyn Task) -> TaskFacts {
    let corpus = task.corpus().map(|corpus| CorpusFacts {
        source: corpus.source.clone(),
        files: corpus.files,
        train_bytes: corpus.train_bytes,
        valid_bytes: corpus.valid_bytes,
        blake3: corpus.blake3.clone(),
    });
    TaskFacts {
        kind: task.kind().to_owned(),
        train_len: spec.train.train_len,
        unit: task.unit().to_owned(),
        primary_metric: task.primary_metric().to_owned(),
        definitions: definitions(spec, task),
        chance: task.chance(),
        bytes_per_token: task.bytes_per_token(),
        scored: task.scored_text().map(|text| ScoredText {
            tokens: text.tokens,
            bytes: text.bytes,
        }),
        corpus,
    }
}

/// Program and device of a record.
pub fn environment(name: &DeviceName) -> Environment {
    Environment {
        version: support::build::VERSION.to_owned(),
        commit: support::build::COMMIT.to_owned(),
        device: name.kind.to_owned(),
        burn: support::build::BURN.to_owned(),
        runs_together: None,
    }
}
