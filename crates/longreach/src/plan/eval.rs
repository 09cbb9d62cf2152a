//! `[eval]`: what is scored and how, and the tokens that it reads.

use super::check::whole;
use super::sections::EvalSection;
use super::spec::{Decode, EvalSpec, VariantSpec, changes_with_length};
use crate::config::axes::Cell;
use crate::config::diagnostic::Diagnostic;
use posenc::{EncodingConfig, Facts, PositionsConfig};
use tasks::{Scoring, Task};
use tiny_transformer::{AttentionKind, TransformerConfig};

/// Most pairs of a run and a test, over the whole experiment: the plan holds an encoding for each.
pub(super) const MAX_EVALUATIONS: usize = 1_000_000;

/// The evaluation under these variants.
pub(super) fn resolve(written: &EvalSection, variants: Vec<VariantSpec>) -> EvalSpec {
    EvalSpec {
        test_lens: written.test_lens.clone(),
        seed: written.seed,
        batch_tokens: written.batch_tokens,
        decode: written.decode,
        last_tokens: written.last_tokens,
        attention_distance: written.attention_distance,
        variants,
    }
}

/// Refuses ways of scoring that the task has no use for.
pub(super) fn check_scores(
    cell: &Cell,
    eval: &EvalSection,
    model: &TransformerConfig,
    task: &dyn Task,
) -> Result<(), Diagnostic> {
    if eval.attention_distance && model.attention == AttentionKind::Linear {
        let help = "remove it, or use model.attention = \"softmax\"";
        return Err(cell
            .error(
                "eval.attention_distance",
                "needs weights, and linear attention has none",
                "false",
                help,
            )
            .with_value(true));
    }
    if eval.decode != Decode::TeacherForced && task.scoring() != Scoring::Answer {
        let problem = format!(
            "has nothing to decode: task `{}` asks for no answers",
            task.kind()
        );
        return Err(cell.error(
            "eval.decode",
            &problem,
            "teacher_forced",
            "remove it, or use a task with answers, such as copy",
        ));
    }
    let Some(last) = eval.last_tokens else {
        return Ok(());
    };
    if task.scoring() != Scoring::LanguageModel {
        let problem = format!(
            "is for text: task `{}` is scored where its answers are",
            task.kind()
        );
        return Err(cell
            .error("eval.last_tokens", &problem, "absent", "remove it")
            .with_value(last));
    }
    let shortest = eval.test_lens.iter().copied().min().unwrap_or(1) as u64;
    whole(
        cell,
        "eval.last_tokens",
        last as u64,
        1,
        shortest,
        "every test window has so many predictions at its end",
    )
}

/// Tokens that an evaluation reads: every one once for its score, once more to watch the weights,
/// and to decode answers once from a cache or, for each counted place, all those before it.
pub(super) fn eval_tokens(
    eval: &EvalSpec,
    task: &dyn Task,
    trained: &PositionsConfig,
    facts: impl Fn(&EncodingConfig) -> Facts,
) -> u64 {
    let lengths = eval.test_lens.iter().map(|length| {
        let read = task.seq_len(*length) as u64;
        let is_decoded = eval.decode != Decode::TeacherForced;
        let row = if is_decoded {
            task.test_batch(*length, 0, 1).counted
        } else {
            Vec::new()
        };
        let prefixes: u64 = row
            .iter()
            .zip(1..)
            .filter(|(counted, _)| **counted)
            .map(|(_, prefix): (_, u64)| prefix)
            .sum();
        (task.test_rows(*length) as u64, read, prefixes)
    });
    let lengths: Vec<(u64, u64, u64)> = lengths.collect();
    let of_variant = |variant: &VariantSpec| -> u64 {
        let tokens = lengths.iter().zip(&variant.pe).enumerate().map(
            |(index, (&(rows, read, prefixes), encoding))| {
                let (facts, positions) = (
                    facts(encoding),
                    variant.positions.get(index).unwrap_or(trained),
                );
                let again = if eval.attention_distance { read } else { 0 };
                let decoded = match eval.decode.is_greedy(&facts, positions) {
                    false => 0,
                    true if changes_with_length(&facts, positions) => prefixes,
                    true => read,
                };
                rows.saturating_mul(read + again + decoded)
            },
        );
        tokens.fold(0, u64::saturating_add)
    };
    eval.variants
        .iter()
        .map(of_variant)
        .fold(0, u64::saturating_add)
}
