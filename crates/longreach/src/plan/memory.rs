//! How much memory a run needs, how much it took, and how much there is.

use crate::plan::spec::RunSpec;
use crate::run::MAX_LOGITS;
use crate::units::bytes;
use posenc::{EncodingConfig, Facts, PositionsConfig};
use std::fmt;
use std::str::FromStr;
use tiny_transformer::AttentionKind;

/// The most memory a process may be expected to need. Nothing enforces it: what is expected to need
/// more is left out, and recorded as left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit(pub u64);

impl MemoryLimit {
    /// No limit.
    pub const NONE: Self = Self(u64::MAX);

    /// Why something that needs this many bytes is skipped, if it is.
    pub fn excess(self, needed: u64) -> Option<String> {
        (needed > self.0).then(|| {
            format!(
                "needs about {} of memory, more than the limit of {}",
                bytes(needed as f64),
                bytes(self.0 as f64)
            )
        })
    }

    /// What is left of the limit beside something that needs this many bytes.
    pub fn beside(self, needed: u64) -> Self {
        if self == Self::NONE {
            return self;
        }
        Self(self.0.saturating_sub(needed))
    }

    /// The memory of this machine, or of this process's control group, divided by the number of
    /// processes; no limit on systems that do not report it.
    pub fn of_machine(processes: usize) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let total = read("/proc/meminfo").lines().find_map(|line| {
            let kib = line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?;
            kib.trim().parse::<u64>().ok().map(|kib| kib * 1024)
        });
        // Version 2 and 1 of control groups. `max` is no number, so it sets no limit.
        let groups = [
            "/sys/fs/cgroup/memory.max",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ]
        .map(|path| read(path).trim().parse().ok());
        let least = total.into_iter().chain(groups.into_iter().flatten()).min();
        least.map_or(Self::NONE, |least| Self(least / processes.max(1) as u64))
    }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            f.write_str("none")
        } else {
            write!(f, "{}", self.0)
        }
    }
}

impl FromStr for MemoryLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        let wrong = || {
            format!(
                "`{text}` is no amount of memory; write 512MiB, 2GiB, 2G, a number of bytes, or \
                 none"
            )
        };
        let digits = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = match unit
            .trim()
            .to_ascii_lowercase()
            .trim_end_matches("ib")
            .trim_end_matches('b')
        {
            "" => 1_u64,
            "k" => 1 << 10,
            "m" => 1 << 20,
            "g" => 1 << 30,
            "t" => 1 << 40,
            _ => return Err(wrong()),
        };
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let total = number * unit as f64;
        // Also refuses what is not finite, and less than one byte.
        if (1.0..1e18).contains(&total) {
            Ok(Self(total as u64))
        } else {
            Err(wrong())
        }
    }
}

/// Peak of resident memory since the last [`forget_peak`], from Linux's process table.
pub fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

/// Resets [`peak`], where the system allows it.
pub fn forget_peak() {
    // 5 resets the peak to the present size, see proc(5).
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// What a training is expected to need, in bytes. It is the sum of
///
/// - the program, with a corpus where there is one,
/// - per block and token `6 d_model + d_ff` numbers saved for the backward pass, and the weights of
///   attention where they are saved,
/// - per token `8 d_model + 3 vocab_size` numbers of working memory,
/// - sums of the gradients of one block's weights over groups of rows,
/// - a bias that is materialised, and
/// - fourteen copies of the parameters: gradients, moments, updates, packed panels, and a
///   checkpoint being written.
///
/// The constants were fitted to measurements, which `scripts/memory` repeats.
pub fn training(spec: &RunSpec, parameters: u64) -> u64 {
    let (model, train) = (&spec.model.transformer, &spec.train);
    let (rows, seq_len) = train.largest_batch();
    let tokens = (rows * seq_len) as f64;
    let (d_model, d_ff, vocab) = (
        model.d_model as f64,
        model.d_ff as f64,
        model.vocab_size as f64,
    );
    let pairs = (model.n_heads * seq_len) as f64 * seq_len as f64;
    // Fused attention keeps no weights; with a bias that sees content, or in linear attention, they
    // are kept.
    let facts = spec.model.pe.facts(&model.shape());
    let kept = match model.attention {
        AttentionKind::Linear => 4.0,
        _ if facts.hooks.content_bias => 8.0,
        _ => 0.0,
    } * rows as f64
        * pairs;
    let bias = if materialised(spec, &facts) {
        facts.bias_workspace * pairs
    } else {
        0.0
    };
    let block = tokens * (6.0 * d_model + d_ff) + kept;
    let groups = (tokens / 128.0).ceil().min(8.0);
    let sums = groups * (4.0 * d_model * d_model + 2.0 * d_model * d_ff);
    let step = model.n_layers as f64 * block + tokens * (8.0 * d_model + 3.0 * vocab) + sums + bias;
    // 4 bytes for each f32.
    (mib(program(spec)) + 4.0 * (step + 14.0 * parameters as f64)) as u64
}

/// What an evaluation is expected to need, in bytes: a batch of rows of `seq_len` tokens on its way
/// through one layer, a block of logits, and a few copies of the parameters.
pub fn evaluation(
    spec: &RunSpec,
    encoding: &EncodingConfig,
    parameters: u64,
    batch_tokens: usize,
    seq_len: usize,
) -> u64 {
    let model = &spec.model.transformer;
    // A sequence longer than the batch is a batch by itself.
    let rows = (batch_tokens / seq_len).max(1);
    let tokens = (rows * seq_len) as f64;
    let (d_model, vocab) = (model.d_model as f64, model.vocab_size as f64);
    let pairs = (model.n_heads * seq_len) as f64 * seq_len as f64;
    // Long sequences go block by block over queries.
    let block = (rows as f64 * pairs).min(MAX_LOGITS as f64);
    let facts = encoding.facts(&model.shape());
    // A bias by position is made once for all rows of a batch; one by distance only is a row for
    // each head.
    let bias = match facts.hooks {
        hooks if hooks.content_bias || hooks.output_bias => block,
        _ if materialised(spec, &facts) => block / rows as f64,
        _ => 0.0,
    };
    let watched = if spec.eval.attention_distance {
        6.0 * block
    } else {
        0.0
    };
    let numbers = watched
        + tokens * (5.0 * d_model + 3.0 * vocab)
        + facts.bias_workspace * bias
        + 3.0 * parameters as f64;
    (mib(78.0) + 4.0 * numbers) as u64
}

/// Memory of the process before the model is built, in MiB.
fn program(spec: &RunSpec) -> f64 {
    if spec.corpus_blake3.is_some() {
        62.0
    } else {
        40.0
    }
}

/// Whether a bias by position is held for every query and key.
fn materialised(spec: &RunSpec, facts: &Facts) -> bool {
    facts.hooks.logits_bias
        && !(facts.by_distance && spec.model.positions == PositionsConfig::default())
}

fn mib(n: f64) -> f64 {
    n * f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        for (text, amount) in [
            ("512MiB", 512 << 20),
            ("2GiB", 2 << 30),
            ("2G", 2 << 30),
            ("1.5g", 3 << 29),
            ("4096", 4096),
            ("1 KB", 1024),
        ] {
            assert_eq!(text.parse(), Ok(MemoryLimit(amount)), "{text}");
        }
        assert_eq!("none".parse(), Ok(MemoryLimit::NONE));
        for text in ["", "0", "-1", "lots", "1X", "1e99", "nan", "1.2.3G", "GiB"] {
            assert!(
                text.parse::<MemoryLimit>()
                    .is_err_and(|error| error.contains("512MiB")),
                "{text}"
            );
        }
        for limit in [MemoryLimit::NONE, MemoryLimit(12345)] {
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
        assert!(MemoryLimit::of_machine(2).0 <= MemoryLimit::of_machine(1).0);
    }
}
