//! Filler: the tokens around the needles of a question.

use crate::symbols::{HeldOut, Rule, SymbolTask};
use crate::text::Haystack;
use crate::{Batch, BuildContext, CorpusFacts, Scoring, Task, TaskError};
use schema::{Invalid, in_range};
use std::collections::BTreeMap;

/// The default of `filler`.
pub(super) const FILLER: u64 = 5;

/// Where filler tokens come from.
#[derive(Clone)]
pub(super) enum Filler {
    /// This many tokens, all of them in turn again and again.
    InTurn(u64),
    /// This many tokens, each drawn.
    Drawn(u64),
    /// Consecutive bytes of a text; those of the digits are symbols 0 to 9, which numbers have too.
    Text(Vec<u8>),
}

/// The keys of a table that say what the filler is.
pub(super) struct FillerKeys<'a> {
    pub filler: u64,
    pub random_filler: bool,
    pub text: Option<&'a Haystack>,
}

impl FillerKeys<'_> {
    /// Filler that is not text.
    pub fn plain(&self) -> Filler {
        match self.random_filler {
            true => Filler::Drawn(self.filler),
            false => Filler::InTurn(self.filler),
        }
    }

    /// The task whose rule is `rule(filler)`.
    pub fn task<R: Rule>(
        &self,
        rule: impl Fn(Filler) -> R,
        test_rows: u64,
        ctx: &BuildContext<'_>,
    ) -> Result<Box<dyn Task>, TaskError> {
        let hint = "the number of different filler tokens";
        in_range("filler", self.filler, 1..=4096, hint)?;
        let Some(text) = self.text else {
            let task = SymbolTask::new(rule(self.plain()), test_rows, ctx)?;
            return Ok(Box::new(task));
        };
        let problem = "belongs to filler tokens, and `text` is given, which is the filler";
        if self.random_filler {
            let hint = "remove random_filler, or text";
            return Err(Invalid::new("random_filler", true, problem, "false", hint).into());
        }
        if self.filler != FILLER {
            let hint = "remove filler, or text";
            return Err(Invalid::new("filler", self.filler, problem, "absent", hint).into());
        }
        let text = text.read(ctx)?;
        let task = |bytes| SymbolTask::new(rule(Filler::Text(bytes)), test_rows, ctx);
        Ok(Box::new(InText {
            trained: task(text.train)?,
            tested: task(text.tested)?,
            facts: text.facts,
        }))
    }
}

impl Filler {
    /// Number of different tokens.
    pub fn symbols(&self) -> u64 {
        match self {
            Self::InTurn(filler) | Self::Drawn(filler) => *filler,
            Self::Text(_) => 256,
        }
    }

    /// What lengths count, plural.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::InTurn(_) | Self::Drawn(_) => "filler tokens",
            Self::Text(_) => "bytes of text",
        }
    }

    /// The free choices of `n` tokens.
    pub fn choices(&self, n: usize) -> Vec<u64> {
        match self {
            Self::InTurn(_) => vec![],
            Self::Drawn(filler) => vec![*filler; n],
            // The first byte. A text holds the lengths that the task was built for.
            Self::Text(text) => vec![(text.len() + 1).saturating_sub(n).max(1) as u64],
        }
    }

    /// The `n` tokens of these choices; symbols from `first` on are those of filler alone.
    ///
    /// # Panics
    /// If the text has fewer bytes; building the task checked its lengths.
    pub fn tokens(&self, n: usize, drawn: &[u64], first: i32) -> Vec<i32> {
        match self {
            Self::InTurn(filler) => (0..n as u64).map(|i| first + (i % filler) as i32).collect(),
            Self::Drawn(_) => drawn.iter().map(|&filler| first + filler as i32).collect(),
            Self::Text(text) => {
                let start = drawn[0] as usize;
                let symbol = |&byte: &u8| match byte {
                    b'0'..=b'9' => i32::from(byte - b'0'),
                    _ => first + i32::from(byte),
                };
                text[start..start + n].iter().map(symbol).collect()
            }
        }
    }

    /// How test rows are held out: passages may occur in both splits.
    pub fn held_out(&self, plain: HeldOut) -> HeldOut {
        match self {
            Self::InTurn(_) | Self::Drawn(_) => plain,
            Self::Text(_) => HeldOut::ByHash,
        }
    }

    /// A sentence for every definition.
    pub fn remark(&self) -> Option<String> {
        let text = "the filler is consecutive bytes of a text, in tests of its validation split";
        matches!(self, Self::Text(_)).then(|| text.to_owned())
    }

    /// A symbol of filler alone, as text.
    pub fn name(&self, filler: i32) -> String {
        match self {
            Self::InTurn(_) | Self::Drawn(_) => format!("f{filler}"),
            Self::Text(_) => match filler as u8 {
                b' ' => "_".to_owned(),
                b'_' => "\\_".to_owned(),
                // Digits are symbols of their own.
                byte @ b'0'..=b'9' => format!("byte {byte}"),
                byte => byte.escape_ascii().to_string(),
            },
        }
    }
}

/// A task whose training rows and test rows read two parts of a text.
struct InText<R> {
    trained: SymbolTask<R>,
    tested: SymbolTask<R>,
    facts: CorpusFacts,
}

impl<R: Rule> Task for InText<R> {
    fn kind(&self) -> &'static str {
        self.tested.kind()
    }
    fn vocab_size(&self) -> usize {
        self.tested.vocab_size()
    }
    fn tokens(&self) -> Vec<String> {
        self.tested.tokens()
    }
    fn unit(&self) -> &str {
        self.tested.unit()
    }
    fn seq_len(&self, length: usize) -> usize {
        self.tested.seq_len(length)
    }
    fn train_batch(&self, length: usize, rows: usize, seed: u64, step: u64) -> Batch {
        self.trained.train_batch(length, rows, seed, step)
    }
    fn has_rows(&self, length: usize) -> bool {
        self.tested.has_rows(length)
    }
    fn test_rows(&self, length: usize) -> usize {
        self.tested.test_rows(length)
    }
    fn test_batch(&self, length: usize, first_row: usize, rows: usize) -> Batch {
        self.tested.test_batch(length, first_row, rows)
    }
    fn reads_its_answers(&self) -> bool {
        self.tested.reads_its_answers()
    }
    fn hides_answers(&self) -> bool {
        self.tested.hides_answers()
    }
    fn groups(&self) -> Vec<(String, String)> {
        self.tested.groups()
    }
    fn group(&self, length: usize, row: usize) -> Option<usize> {
        self.tested.group(length, row)
    }
    fn scoring(&self) -> Scoring {
        self.tested.scoring()
    }
    fn primary_metric(&self) -> &'static str {
        self.tested.primary_metric()
    }
    fn definitions(&self, answers: &str) -> BTreeMap<String, String> {
        self.tested.definitions(answers)
    }
    fn chance(&self) -> BTreeMap<String, f64> {
        self.tested.chance()
    }
    fn memory_bytes(&self) -> u64 {
        self.facts.train_bytes + self.facts.valid_bytes
    }
    fn corpus(&self) -> Option<&CorpusFacts> {
        Some(&self.facts)
    }
}
