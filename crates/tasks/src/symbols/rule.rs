//! What distinguishes one task in symbols from another.

use super::draw::distinct;
use super::layout::{Row, RowLayout};
use crate::{BuildContext, TaskError};
use schema::{Invalid, in_range};
use std::fmt::Display;

/// How test rows are held out of training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldOut {
    /// Not at all: test rows differ from each other, and training draws from all strings. With k
    /// symbols there are k^n strings, so short test strings are also trained on, and long ones
    /// practically never are (16 symbols, n = 8: 4e9 strings).
    No,
    /// A fixed quarter of the choices, for tasks where different choices always make different
    /// questions. Holds at every length where a quarter is at least `test_rows`; shorter lengths
    /// behave as [`HeldOut::No`]. Test rows differ from each other.
    ByChoices,
    /// A fixed quarter of the questions, named by their hash, for tasks where different choices may
    /// make the same question. Only a length with so few questions that one side has none falls
    /// back to all of them. Test rows are drawn one by one, so they may repeat at such lengths.
    ByHash,
}

/// The scored tokens of a task, in the words of its definitions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// The tokens of a row, as the subject of a sentence, with its verb.
    pub whole: &'static str,
    /// The tokens, with a comma where the phrase needs one.
    pub tokens: &'static str,
    /// Which token is scored first.
    pub first: &'static str,
    /// The tokens where answers are blanks, with a comma.
    pub blanks: &'static str,
}

impl Counted {
    /// The whole answer.
    pub(crate) const ANSWER: Self = Self {
        whole: "answer and EOS are",
        tokens: "answer tokens, EOS included,",
        first: "first scored token is the one after SEP",
        blanks: "answer tokens,",
    };

    /// The same tokens where the answer is blanks.
    pub(crate) fn in_blanks(self) -> Self {
        Self {
            whole: "scored tokens are",
            tokens: self.blanks,
            first: "each is scored at its own blank",
            ..self
        }
    }
}

/// The rule of a task: which free choices make a row, and which row they make.
pub(crate) trait Rule: Send + Sync + 'static {
    /// The tag of the task in a configuration.
    fn kind(&self) -> &'static str;
    /// Number of different symbols, questions and answers together.
    fn symbols(&self) -> u64;
    /// Number of values of each free choice of a row of length `n`, in the order of drawing.
    fn choices(&self, n: usize) -> Vec<u64>;
    /// How many of them, in this order, make the question that is held out. What is drawn beside
    /// them gives the same question another look, so rows of a tested question are not trained on.
    fn held_choices(&self, n: usize) -> usize {
        self.choices(n).len()
    }
    /// The row of these choices.
    fn row(&self, n: usize, choices: &[u64]) -> Row;
    /// Length of the answer to a question of length `n`.
    fn answer_len(&self, n: usize) -> usize;
    /// Share of answer tokens that a uniform guess among the symbols an answer may hold gets right.
    fn guess(&self) -> f64;

    /// Refuses a length that has no rows, or none with room for what the keys ask for.
    fn check_len(&self, n: usize) -> Result<(), Invalid> {
        let _ = n;
        Ok(())
    }
    /// Symbols of a question of length `n`.
    fn question_len(&self, n: usize) -> usize {
        n
    }
    /// What a length counts, plural.
    fn unit(&self) -> &'static str {
        "symbols"
    }
    /// How question and answer become tokens.
    fn layout(&self) -> RowLayout {
        RowLayout::Sequence
    }
    /// How test rows are held out of training.
    fn held_out(&self) -> HeldOut {
        HeldOut::ByChoices
    }
    /// See [`crate::Task::axes`].
    fn axes(&self, n: usize) -> Vec<Vec<f64>> {
        let _ = n;
        Vec::new()
    }
    /// Groups of test rows that are also scored separately, see [`crate::Task::groups`].
    fn groups(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// The group of a row.
    fn group(&self, row: &Row) -> Option<usize> {
        let _ = row;
        None
    }
    /// The metric a report shows first.
    fn primary_metric(&self) -> &'static str {
        "exact_match"
    }
    /// The scored tokens, for definitions.
    fn counted(&self) -> Counted {
        Counted::ANSWER
    }
    /// A sentence for every definition: what the answer is, where the task's name does not say it.
    fn remark(&self) -> Option<String> {
        None
    }
    /// A symbol as text.
    fn name(&self, symbol: i32) -> String {
        symbol.to_string()
    }
}

/// From a string to its answer.
type Answer = Box<dyn Fn(&[i32]) -> Vec<i32> + Send + Sync>;

/// A rule for strings: the question is `n` symbols in any order, the answer a function of them.
pub(crate) struct StringRule {
    pub kind: &'static str,
    /// Number of different symbols in a question.
    pub alphabet: u64,
    /// Number of different symbols in an answer, numbered from 0 too.
    pub answers: u64,
    pub answer: Answer,
    /// Length of the answer to a string of this length.
    pub answer_len: fn(usize) -> usize,
    pub held_out: HeldOut,
    /// Whether no symbol occurs twice in a question. Lengths are then at most the alphabet:
    /// [`check_distinct`].
    pub distinct: bool,
}

impl StringRule {
    /// An answer as long as the string, of the same symbols.
    pub(crate) fn new(
        kind: &'static str,
        alphabet: u64,
        answer: impl Fn(&[i32]) -> Vec<i32> + Send + Sync + 'static,
    ) -> Self {
        Self {
            kind,
            alphabet,
            answers: alphabet,
            answer: Box::new(answer),
            answer_len: |n| n,
            held_out: HeldOut::ByChoices,
            distinct: false,
        }
    }
}

impl Rule for StringRule {
    fn kind(&self) -> &'static str {
        self.kind
    }
    fn symbols(&self) -> u64 {
        self.alphabet.max(self.answers)
    }
    fn choices(&self, n: usize) -> Vec<u64> {
        if self.distinct {
            // Without replacement: every choice is among one fewer.
            return (0..n as u64).map(|taken| self.alphabet - taken).collect();
        }
        vec![self.alphabet; n]
    }
    fn held_out(&self) -> HeldOut {
        self.held_out
    }
    fn answer_len(&self, n: usize) -> usize {
        (self.answer_len)(n)
    }
    fn row(&self, _: usize, choices: &[u64]) -> Row {
        let symbols = if self.distinct {
            distinct(choices)
        } else {
            choices.to_vec()
        };
        let question: Vec<i32> = symbols.iter().map(|&symbol| symbol as i32).collect();
        let answer = (self.answer)(&question);
        Row::new(question, answer)
    }
    fn remark(&self) -> Option<String> {
        let remark = "no symbol stands twice in a string";
        self.distinct.then(|| remark.to_owned())
    }
    fn guess(&self) -> f64 {
        1.0 / self.answers as f64
    }
}

/// Checks the number of different symbols of a string.
pub(crate) fn check_alphabet(alphabet: u64) -> Result<(), Invalid> {
    let hint = "the number of different symbols in a string";
    in_range("alphabet", alphabet, 2..=4096, hint)
}

/// Checks that there are as many different symbols as the longest string has.
pub(crate) fn check_distinct(alphabet: u64, ctx: &BuildContext<'_>) -> Result<(), TaskError> {
    let lengths = ctx.test_lens.iter().copied().chain([ctx.train_len]);
    let longest = lengths.max().unwrap_or(0);
    if longest as u64 <= alphabet {
        return Ok(());
    }
    let problem = format!("has too few symbols for strings of {longest} distinct ones");
    let allowed = format!("{longest} or more");
    let hint = "train.train_len and eval.test_lens are at most the alphabet with distinct = true";
    Err(Invalid::new("alphabet", alphabet, problem, allowed, hint).into())
}

/// Checks that rows of length `n` have room for `value` items, each `each` long.
pub(crate) fn check_fits(key: &str, value: usize, each: usize, n: usize) -> Result<(), Invalid> {
    let least = value * each;
    let allowed = match n / each {
        0 => format!("lengths of at least {least}"),
        1 => format!("1, or lengths of at least {least}"),
        most => format!("1 to {most}, or lengths of at least {least}"),
    };
    check_least(key, &value, least, allowed, n)
}

/// Checks that length `n` is not below `least`, the shortest row of a kind of task.
pub(crate) fn check_shortest(kind: &str, least: usize, n: usize) -> Result<(), Invalid> {
    check_least(
        "kind",
        &kind,
        least,
        format!("lengths of at least {least}"),
        n,
    )
}

fn check_least(
    key: &str,
    value: &dyn Display,
    least: usize,
    allowed: String,
    n: usize,
) -> Result<(), Invalid> {
    if n >= least {
        return Ok(());
    }
    let problem = format!("needs lengths of at least {least}, and {n} is asked for");
    Err(Invalid::new(
        key,
        value,
        problem,
        allowed,
        "use longer lengths",
    ))
}

/// A row as text: what is read, a bar, what counts.
pub(crate) fn show(rule: &impl Rule, row: &Row) -> String {
    let words = |symbols: &[i32]| {
        let names: Vec<_> = symbols.iter().map(|&symbol| rule.name(symbol)).collect();
        names.join(" ")
    };
    format!(
        "BOS {} SEP | {} EOS",
        words(&row.question),
        words(&row.answer)
    )
}

/// The row of one string as text. Symbols are written as their numbers.
pub(crate) fn example(rule: &StringRule, string: &[i32]) -> String {
    show(rule, &Row::new(string.to_vec(), (rule.answer)(string)))
}
