//! `[eval]`: what is scored and how, and the tokens that it reads.

use super::record_size::{largest_row, pretty_bytes};
use super::sections::EvalSection;
use crate::spec::{
    Decode, EvalSpec, ModelSpec, TestLen, TestLens, VariantSpec, changes_with_length,
};
use config::axes::Cell;
use config::diagnostic::Diagnostic;
use posenc::{ConfigError, EncodingConfig, Facts, PositionsConfig};
use records::record::{MOST_EVALS, MOST_METRICS, MOST_SCORES};
use records::store::MAX_RECORD_BYTES;
use schema::in_range;
use std::collections::BTreeSet;
use support::units::bytes as bytes_in_words;
use tasks::{Scoring, Task};
use tiny_transformer::{AttentionKind, Mask, TransformerConfig};

/// Most pairs of a run and a test, over the whole experiment: the plan holds an encoding for each.
pub(super) const MAX_EVALUATIONS: usize = 1_000_000;

impl EvalSection {
    /// How it asks for answers to be scored.
    pub(super) fn scores(&self) -> Scores<'_> {
        Scores {
            decode: self.decode,
            last_tokens: self.last_tokens,
            attention_distance: self.attention_distance,
            test_lens: &self.test_lens,
        }
    }

    /// Refuses scores while training that cannot be taken in a training of this many steps. Keys
    /// are those of `[eval]`.
    pub(super) fn check_during(&self, steps: u64) -> Result<(), ConfigError> {
        let listed = self.during.as_ref().map(TestLens::written);
        let Some(every) = self.every else {
            let Some(listed) = listed else {
                return Ok(());
            };
            let problem = "names lengths to score while training, but not how often";
            let help = format!("add eval.every = {}, or remove it", (steps / 20).max(1));
            return Err(refused_during("during", listed, problem, "absent", help));
        };
        let help = "the steps of the training from one scoring to the next";
        in_range("every", every, 1..=steps, help)?;
        let test_lens = shown(self.test_lens.written());
        if listed.is_some_and(<[TestLen]>::is_empty) {
            let problem = "names no length to score";
            let help = "leave it out for all test lengths, or remove eval.every";
            return Err(refused_during("during", &[], problem, test_lens, help));
        }
        let mut seen = BTreeSet::new();
        for (index, length) in listed.unwrap_or_default().iter().enumerate() {
            let (problem, allowed, help) = if !self.test_lens.written().contains(length) {
                let help = "add it to eval.test_lens, or remove it here";
                ("is not a test length", &*test_lens, help)
            } else if !seen.insert(length.to()) {
                let help = "remove one of the two";
                ("is listed twice", "different lengths", help)
            } else {
                continue;
            };
            let key = format!("during.{index}");
            return Err(ConfigError::new(key, length, problem, allowed, help));
        }
        let lengths = listed.unwrap_or(self.test_lens.written()).len() as u64;
        let scores = (steps / every).saturating_mul(lengths);
        if scores <= MOST_SCORES as u64 {
            return Ok(());
        }
        // Rounded up, so that the answer is enough.
        let least = steps.saturating_mul(lengths).div_ceil(MOST_SCORES as u64);
        let problem = format!("makes {scores} scores of {lengths} lengths in {steps} steps");
        let allowed = format!("at most {MOST_SCORES} scores");
        let help = format!("set eval.every to {least} or more, or shorten eval.during");
        Err(ConfigError::new("every", every, problem, allowed, help))
    }

    /// The lengths scored while training, in the order of a file.
    fn during(&self) -> TestLens {
        match (self.every, &self.during) {
            (None, _) => TestLens::default(),
            (Some(_), Some(lengths)) => lengths.clone(),
            (Some(_), None) => self.test_lens.clone(),
        }
    }
}

fn refused_during(
    key: &str,
    value: &[TestLen],
    problem: &str,
    allowed: impl Into<String>,
    help: impl Into<String>,
) -> ConfigError {
    ConfigError::new(key, shown(value), problem, allowed, help)
}

/// Lengths as a list of a config.
fn shown(lengths: &[TestLen]) -> String {
    let each = lengths.iter().map(|length| match length {
        TestLen::Range(..) => format!("\"{length}\""),
        other => other.to_string(),
    });
    format!("[{}]", each.collect::<Vec<_>>().join(", "))
}

/// Refuses an evaluation whose record could not be read again: too many rows, too many metrics in a
/// row, or too many bytes.
pub(super) fn check_count(
    cell: &Cell,
    eval: &EvalSpec,
    model: &ModelSpec,
    task: &dyn Task,
    steps: u64,
) -> Result<(), Diagnostic> {
    let (variants, lengths) = (eval.variants.len(), eval.test_lens.len());
    let rows = variants.saturating_mul(lengths);
    let help = format!(
        "each run has {variants} variants at {lengths} lengths: shorten a list, or split the \
         experiment"
    );
    let refuse = |problem: &str, allowed: &str, help: &str| {
        let error = cell.error("eval.test_lens", problem, allowed, help);
        Err(error.with_value(format!("{lengths} lengths")))
    };
    if rows > MOST_EVALS {
        let problem = format!("asks for {rows} evaluations of each run");
        let allowed = format!("at most {MOST_EVALS} in a run");
        return refuse(&problem, &allowed, &help);
    }
    let row = largest_row(eval, model, task);
    if row.metrics > MOST_METRICS {
        let help = "one for each head is too much here; remove it, or use fewer layers or heads";
        let problem = format!("asks for {} metrics of each evaluation", row.metrics);
        let allowed = format!("at most {MOST_METRICS}");
        return Err(cell.error("eval.attention_distance", &problem, &allowed, help));
    }
    // Scores while training have no losses by position.
    let taken = eval.every.map_or(0, |every| steps / every + 1);
    let scores = taken.saturating_mul(eval.during.len() as u64);
    // The resolved spec is in the record too, and in the job.
    let bytes = row.bytes * rows as u64
        + scores.saturating_mul(row.bytes_without_bins)
        + pretty_bytes(eval, 2)
        + SURROUNDING_BYTES;
    if bytes > MAX_RECORD_BYTES {
        let mib = |n: u64| bytes_in_words(n as f64);
        let problem = format!("asks for a record of about {}", mib(bytes));
        let allowed = format!("at most {}", mib(MAX_RECORD_BYTES));
        return refuse(&problem, &allowed, &help);
    }
    Ok(())
}

/// Bytes of a record besides its rows and its evaluation: the loss curve, definitions, labels.
const SURROUNDING_BYTES: u64 = 64 << 10;

/// The evaluation under these variants.
pub(super) fn resolve(written: &EvalSection, variants: Vec<VariantSpec>) -> EvalSpec {
    EvalSpec {
        every: written.every,
        during: written.during(),
        test_lens: written.test_lens.clone(),
        seed: written.seed,
        rows: written.rows,
        batch_tokens: written.batch_tokens,
        decode: written.decode,
        last_tokens: written.last_tokens,
        attention_distance: written.attention_distance,
        variants,
    }
}

/// How answers are scored.
pub struct Scores<'a> {
    /// How answers are read off the model.
    pub decode: Decode,
    /// Predictions at the end of every window of text that are also scored separately.
    pub last_tokens: Option<usize>,
    /// Whether the mean attention distance of every head is recorded, with what goes with it.
    pub attention_distance: bool,
    /// Test lengths, in the task's unit.
    pub test_lens: &'a [usize],
}

impl Scores<'_> {
    /// Refuses ways of scoring that the model or the task has no use for. Keys are those of
    /// `[eval]`.
    ///
    /// # Errors
    ///
    /// The first that cannot be.
    pub fn check(&self, model: &TransformerConfig, task: &dyn Task) -> Result<(), ConfigError> {
        if self.attention_distance && model.attention == AttentionKind::Linear {
            let problem = "needs weights, and linear attention has none";
            let help = "remove it, or use model.attention = \"softmax\"";
            let key = "attention_distance";
            return Err(ConfigError::new(key, true, problem, "false", help));
        }
        let kind = task.kind();
        let nothing_to_decode = if task.scoring() != Scoring::Answer {
            let problem = format!("has nothing to decode: task `{kind}` asks for no answers");
            Some((
                problem,
                "remove it, or use a task with answers, such as copy",
            ))
        } else if model.mask == Mask::Bidirectional {
            let problem = "has nothing to decode: a bidirectional model gives all answers at once";
            Some((
                problem.to_owned(),
                "remove it, or use model.mask = \"causal\"",
            ))
        } else {
            None
        };
        let value = match self.decode {
            Decode::TeacherForced => None,
            Decode::Greedy => Some("\"greedy\""),
            Decode::Auto => Some("\"auto\""),
        };
        if let (Some((problem, help)), Some(value)) = (nothing_to_decode, value) {
            let allowed = "teacher_forced";
            return Err(ConfigError::new("decode", value, problem, allowed, help));
        }
        let Some(last) = self.last_tokens else {
            return Ok(());
        };
        let key = "last_tokens";
        if task.scoring() != Scoring::LanguageModel {
            let problem = format!("is for text: task `{kind}` is scored where its answers are");
            return Err(ConfigError::new(key, last, problem, "absent", "remove it"));
        }
        let shortest = self.test_lens.iter().copied().min().unwrap_or(1);
        let help = "every test window has that many predictions at its end";
        if (1..=shortest).contains(&last) {
            return Ok(());
        }
        let allowed = schema::allowed(&(1..=shortest));
        Err(ConfigError::new(
            key,
            last,
            "is out of range",
            allowed,
            help,
        ))
    }
}

/// Tokens that all scores while training read; those of the last step are the final evaluation's.
pub(super) fn during_tokens(
    eval: &EvalSpec,
    steps: u64,
    task: &dyn Task,
    trained: &PositionsConfig,
    facts: impl Fn(&EncodingConfig) -> Facts,
) -> u64 {
    let once = eval
        .while_training()
        .map_or(0, |eval| eval_tokens(&eval, task, trained, facts));
    let times = eval.every.map_or(0, |every| (steps - 1) / every);
    once.saturating_mul(times)
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
        // One row stands for all rows of a length.
        let row = if is_decoded {
            task.test_batch(*length, 0, 1).counted
        } else {
            Vec::new()
        };
        let prefixes: u64 = row
            .iter()
            // The answer at place i takes a pass over the i + 1 tokens up to it.
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
