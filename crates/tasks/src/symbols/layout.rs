//! How the question and the answer of a row become tokens.

use crate::Batch;

pub(crate) const BOS: i32 = 0;
pub(crate) const SEP: i32 = 1;
pub(crate) const EOS: i32 = 2;
/// Token id of symbol 0 in [`RowLayout::Sequence`].
pub(crate) const FIRST_SYMBOL: i32 = 3;
/// A label of [`RowLayout::InPlace`] and [`RowLayout::Within`] that does not count.
pub(crate) const UNSCORED: i32 = -1;

/// The question and the answer of a row, in symbol numbers (0 is the first symbol).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub question: Vec<i32>,
    pub answer: Vec<i32>,
    /// Number of leading answer tokens that count; `None` for all of them and EOS.
    pub scored: Option<usize>,
}

impl Row {
    /// A row whose whole answer and EOS count.
    pub(crate) fn new(question: Vec<i32>, answer: Vec<i32>) -> Self {
        let scored = None;
        Self {
            question,
            answer,
            scored,
        }
    }
}

/// Which tokens a row has, and which of them are predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowLayout {
    /// `BOS question SEP answer EOS`, predicted one token ahead; the answer and EOS count.
    Sequence,
    /// The question alone, with one label per token predicted at the token itself; labels other
    /// than [`UNSCORED`] count. Symbols are token ids.
    InPlace,
    /// As `InPlace`, and a label that counts is also the next token of the question.
    Within,
    /// `question BLANK ... BLANK`, a blank for every answer token, which is predicted at its blank.
    /// Symbols are token ids, and the blank is the id after them.
    Blanks,
}

impl RowLayout {
    /// The layout of the same rows for a model that reads them in both directions.
    pub(crate) fn both_ways(self) -> Self {
        match self {
            Self::Sequence => Self::Blanks,
            Self::InPlace | Self::Within | Self::Blanks => self,
        }
    }

    /// Whether no counted target is read at its place or after it.
    pub(crate) fn hides_answers(self) -> bool {
        matches!(self, Self::InPlace | Self::Blanks)
    }

    /// Coordinates of the tokens of [`RowLayout::Sequence`], as those of this layout's tokens.
    pub(crate) fn coordinates(self, mut axis: Vec<f64>, question_len: usize) -> Vec<f64> {
        if self == Self::Blanks {
            // Without SEP, then without BOS.
            axis.remove(question_len + 1);
            axis.remove(0);
        }
        axis
    }

    /// Number of token ids for this number of symbols.
    pub(crate) fn vocab_size(self, symbols: u64) -> usize {
        match self {
            Self::Sequence => symbols as usize + FIRST_SYMBOL as usize,
            Self::InPlace | Self::Within => symbols as usize,
            Self::Blanks => symbols as usize + 1,
        }
    }

    /// The names of all token ids from those of the symbols.
    pub(crate) fn tokens(self, symbols: impl Iterator<Item = String>) -> Vec<String> {
        let [before, after]: [&[&str]; 2] = match self {
            Self::Sequence => [&["BOS", "SEP", "EOS"], &[]],
            Self::InPlace | Self::Within => [&[], &[]],
            Self::Blanks => [&[], &["BLANK"]],
        };
        let own = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        own(before)
            .into_iter()
            .chain(symbols)
            .chain(own(after))
            .collect()
    }

    /// Tokens that the model reads.
    pub(crate) fn seq_len(self, question_len: usize, answer_len: usize) -> usize {
        match self {
            Self::Sequence => question_len + answer_len + 2,
            Self::InPlace | Self::Within => question_len,
            Self::Blanks => question_len + answer_len,
        }
    }

    /// Whether a counted target is also the next token read.
    pub(crate) fn reads_its_answers(self) -> bool {
        matches!(self, Self::Sequence | Self::Within)
    }

    /// Appends a row of a task with `symbols` symbols to a batch.
    ///
    /// # Panics
    /// If the row has another number of tokens than the batch's rows.
    pub(crate) fn push(self, batch: &mut Batch, row: &Row, symbols: u64) {
        let seq_len = batch.seq_len;
        assert_eq!(
            self.seq_len(row.question.len(), row.answer.len()),
            seq_len,
            "a rule's question_len or answer_len disagrees with its rows"
        );
        match self {
            Self::Sequence => {
                let mut tokens = Vec::with_capacity(seq_len + 1);
                tokens.push(BOS);
                tokens.extend(row.question.iter().map(|symbol| FIRST_SYMBOL + symbol));
                tokens.push(SEP);
                tokens.extend(row.answer.iter().map(|symbol| FIRST_SYMBOL + symbol));
                tokens.push(EOS);
                batch.inputs.extend_from_slice(&tokens[..seq_len]);
                batch.targets.extend_from_slice(&tokens[1..]);
                // Target i is token i + 1, so the first answer token is the target at SEP.
                let first = row.question.len() + 1;
                let end = row.scored.map_or(seq_len, |scored| first + scored);
                let counted = (0..seq_len).map(|i| (first..end).contains(&i));
                batch.counted.extend(counted);
            }
            Self::Blanks => {
                let (question, answer) = (row.question.len(), row.answer.len());
                batch.inputs.extend(&row.question);
                batch
                    .inputs
                    .resize(batch.inputs.len() + answer, symbols as i32);
                // Nothing counts in the question.
                batch.targets.resize(batch.targets.len() + question, 0);
                batch.targets.extend(&row.answer);
                let scored = row.scored.unwrap_or(answer);
                let counted =
                    (0..question + answer).map(|i| (question..question + scored).contains(&i));
                batch.counted.extend(counted);
            }
            Self::InPlace | Self::Within => {
                batch.inputs.extend(&row.question);
                batch
                    .targets
                    // UNSCORED is not a token id; id 0 stands where nothing counts.
                    .extend(row.answer.iter().map(|&label| label.max(0)));
                batch
                    .counted
                    .extend(row.answer.iter().map(|&label| label != UNSCORED));
            }
        }
    }
}
