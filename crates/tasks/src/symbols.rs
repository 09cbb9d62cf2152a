//! Shared by all tasks that ask a question in symbols: layout of a row, training and test sets, and
//! scoring.
//!
//! A row is `BOS question SEP answer EOS`; the inputs are all tokens but the last, the targets all
//! but the first, and the targets that count are the answer and EOS. Length n is the length of the
//! question unless the task says otherwise; all rows of a length have the same number of tokens, so
//! nothing is padded.
//!
//! A row is decided by a list of free choices ([`Rule::choices`]). How training and test rows are
//! kept apart: see [`Apart`].

use crate::error::check_range;
use crate::{Batch, BuildContext, Permutation, Scoring, Stream, Task, TaskError};
use std::collections::BTreeMap;

pub(crate) const BOS: i32 = 0;
pub(crate) const SEP: i32 = 1;
pub(crate) const EOS: i32 = 2;
/// Token id of symbol 0.
pub(crate) const FIRST_SYMBOL: i32 = 3;

/// Permuted part of a row: as many leading choices as have at most this many values.
const MAX_PREFIXES: u64 = 1 << 62;

/// One question in this many belongs to the test sets, where questions are kept apart.
const TEST_SHARE: u64 = 4;

/// How often a row is drawn again to land on its side: a side that holds a quarter of the questions
/// is missed 256 times in a row once in 10^32 rows, so only a side without any question is given
/// up.
const TRIES: usize = 256;

/// How the rows of training and of the test sets are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apart {
    /// Not at all: test rows differ from each other, and training draws from all strings. With k
    /// symbols there are k^n strings, so short test strings are also trained on, and long ones
    /// practically never are (16 symbols, n = 8: 4e9 strings).
    No,
    /// Different choices always make different questions: a fixed quarter of the choices belongs to
    /// the test sets and is never trained on, at every length where a quarter is at least
    /// `test_rows`; test rows differ from each other. At shorter lengths as in [`Apart::No`].
    ByChoices,
    /// Different choices may make the same question: a fixed quarter of the questions, named by
    /// their hash, belongs to the test sets and is never trained on. Only a length with so few
    /// questions that one side has none falls back to all of them. Test rows are drawn one by
    /// one, so they may repeat where there are few.
    ByHash,
}

/// What a row asks and answers, in symbol numbers (0 is the first symbol).
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
        Self {
            question,
            answer,
            scored: None,
        }
    }
}

/// What distinguishes one task from another.
pub(crate) trait Rule: Send + Sync + 'static {
    fn kind(&self) -> &'static str;
    /// What a length counts, plural.
    fn unit(&self) -> &'static str {
        "symbols"
    }
    /// Number of different symbols, questions and answers together.
    fn symbols(&self) -> u64;
    /// How many values each free choice of a row of length `n` has, in the order in which they are
    /// drawn.
    fn choices(&self, n: usize) -> Vec<u64>;
    fn apart(&self) -> Apart {
        Apart::ByChoices
    }
    fn question_len(&self, n: usize) -> usize {
        n
    }
    fn answer_len(&self, n: usize) -> usize;
    /// The row of these choices.
    fn row(&self, n: usize, choices: &[u64]) -> Row;
    /// Share of answer tokens that a uniform guess among the symbols an answer may hold gets right.
    fn guess(&self) -> f64;
    /// Number of token ids.
    fn vocab_size(&self) -> usize {
        self.symbols() as usize + FIRST_SYMBOL as usize
    }
    /// Tokens that the model sees.
    fn seq_len(&self, n: usize) -> usize {
        self.question_len(n) + self.answer_len(n) + 2
    }
    /// Appends a row as tokens.
    fn push(&self, batch: &mut Batch, row: &Row) {
        let mut tokens = Vec::with_capacity(batch.seq_len + 1);
        tokens.push(BOS);
        tokens.extend(row.question.iter().map(|symbol| FIRST_SYMBOL + symbol));
        tokens.push(SEP);
        tokens.extend(row.answer.iter().map(|symbol| FIRST_SYMBOL + symbol));
        tokens.push(EOS);
        assert_eq!(
            tokens.len(),
            batch.seq_len + 1,
            "the lengths of {} disagree with its rows",
            self.kind()
        );
        batch.inputs.extend_from_slice(&tokens[..batch.seq_len]);
        batch.targets.extend_from_slice(&tokens[1..]);
        let first = row.question.len() + 1;
        let end = row.scored.map_or(batch.seq_len, |scored| first + scored);
        batch
            .counted
            .extend((0..batch.seq_len).map(|i| (first..end).contains(&i)));
    }
    /// Whether an answer token is the next one read.
    fn reads_its_answers(&self) -> bool {
        true
    }
    /// See [`Task::axes`].
    fn axes(&self, n: usize) -> Vec<Vec<f64>> {
        let _ = n;
        Vec::new()
    }
    /// Groups of test rows that are also scored on their own, see [`Task::groups`].
    fn groups(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// The group of a row.
    fn group(&self, row: &Row) -> Option<usize> {
        let _ = row;
        None
    }
    fn primary_metric(&self) -> &'static str {
        "exact_match"
    }
    /// What counts, and from where on.
    fn counted(&self) -> (&'static str, &'static str) {
        (
            "answer tokens, EOS included,",
            "first scored token is the one after SEP",
        )
    }
    /// A sentence for every definition: what the answer is, where that is not clear from the task's
    /// name.
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

/// A rule for strings: `n` symbols in any order are the question, and a function of them is the
/// answer.
pub(crate) struct StringRule {
    pub kind: &'static str,
    /// Number of different symbols in a question.
    pub alphabet: u64,
    /// Number of different symbols in an answer: symbols 0, 1, ... too.
    pub answers: u64,
    pub answer: Answer,
    /// Length of the answer to a string of this length.
    pub answer_len: fn(usize) -> usize,
    pub apart: Apart,
}

impl Rule for StringRule {
    fn kind(&self) -> &'static str {
        self.kind
    }
    fn symbols(&self) -> u64 {
        self.alphabet.max(self.answers)
    }
    fn choices(&self, n: usize) -> Vec<u64> {
        vec![self.alphabet; n]
    }
    fn apart(&self) -> Apart {
        self.apart
    }
    fn answer_len(&self, n: usize) -> usize {
        (self.answer_len)(n)
    }
    fn row(&self, _: usize, choices: &[u64]) -> Row {
        let question: Vec<i32> = choices.iter().map(|&choice| choice as i32).collect();
        let answer = (self.answer)(&question);
        Row::new(question, answer)
    }
    fn guess(&self) -> f64 {
        1.0 / self.answers as f64
    }
}

/// Refuses a number of different symbols that no task takes.
pub(crate) fn check_alphabet(alphabet: u64) -> Result<(), TaskError> {
    check_range(
        "alphabet",
        alphabet,
        2,
        4096,
        "the number of different symbols in a string",
    )
}

/// Refuses a value that needs longer rows than the shortest length asked for. Lengths below
/// `train_len` that only training meets are not known here: tasks say what they do there.
pub(crate) fn check_fits(
    key: &str,
    value: u64,
    least: usize,
    ctx: &BuildContext<'_>,
    hint: &str,
) -> Result<(), TaskError> {
    let shortest = ctx
        .test_lens
        .iter()
        .copied()
        .chain([ctx.train_len])
        .min()
        .unwrap_or(least);
    if shortest >= least {
        return Ok(());
    }
    let problem = format!("needs lengths of at least {least}, and {shortest} is asked for");
    Err(TaskError::config(
        key,
        value,
        problem,
        format!("what fits into length {shortest}"),
        hint,
    ))
}

/// Different numbers from choices of one fewer each: the i-th choice picks among the numbers that
/// the earlier ones left, in order.
pub(crate) fn distinct(choices: &[u64]) -> Vec<u64> {
    let (mut taken, mut picked) = (
        Vec::with_capacity(choices.len()),
        Vec::with_capacity(choices.len()),
    );
    for &choice in choices {
        let mut number = choice;
        let place = taken
            .iter()
            .take_while(|&&t| {
                t <= number && {
                    number += 1;
                    true
                }
            })
            .count();
        taken.insert(place, number);
        picked.push(number);
    }
    picked
}

/// The task of a rule.
pub(crate) struct SymbolTask<R> {
    rule: R,
    test_rows: u64,
    eval_seed: u64,
    train_purpose: String,
    test_purpose: String,
    split_purpose: String,
}

/// What all rows of one length share: the choices, how many of them are permuted, how many values
/// those have, and how many of these values are kept for the test sets.
struct Plan {
    choices: Vec<u64>,
    leading: usize,
    values: u64,
    /// The permutation that names the part, and the size of the part.
    kept: Option<(Permutation, u64)>,
}

impl<R: Rule> SymbolTask<R> {
    pub(crate) fn new(rule: R, test_rows: u64, ctx: &BuildContext<'_>) -> Result<Self, TaskError> {
        check_range(
            "test_rows",
            test_rows,
            1,
            1_000_000,
            "the number of test strings at each length",
        )?;
        let purpose = |what: &str| format!("{what}/{}", rule.kind());
        let (train_purpose, test_purpose, split_purpose) = (
            purpose("train-data"),
            purpose("test-data"),
            purpose("split"),
        );
        Ok(Self {
            rule,
            test_rows,
            eval_seed: ctx.eval_seed,
            train_purpose,
            test_purpose,
            split_purpose,
        })
    }

    fn plan(&self, length: usize) -> Plan {
        let choices = self.rule.choices(length);
        let (mut leading, mut values) = (0, 1u64);
        while leading < choices.len() && values <= MAX_PREFIXES / choices[leading] {
            values *= choices[leading];
            leading += 1;
        }
        let part = values / TEST_SHARE;
        // The split is the same for every evaluation seed, so that training depends on its own seed
        // alone.
        let kept = (self.rule.apart() == Apart::ByChoices && part >= self.test_rows).then(|| {
            (
                Permutation::new(0, &self.split_purpose, length as u64, values),
                part,
            )
        });
        Plan {
            choices,
            leading,
            values,
            kept,
        }
    }

    /// Whether a question belongs to the test sets, where questions are kept apart by their hash.
    fn is_tested(&self, question: &[i32]) -> bool {
        let mut hasher = blake3::Hasher::new();
        hasher
            .update(b"longreach split v1")
            .update(self.split_purpose.as_bytes());
        question.iter().for_each(|symbol| {
            hasher.update(&symbol.to_le_bytes());
        });
        u64::from(hasher.finalize().as_bytes()[0]).is_multiple_of(TEST_SHARE)
    }

    /// A row with these leading choices, the others drawn.
    fn complete(
        &self,
        length: usize,
        plan: &Plan,
        leading: Option<u64>,
        stream: &mut Stream,
    ) -> Row {
        let mut choices = Vec::with_capacity(plan.choices.len());
        if let Some(mut number) = leading {
            for size in &plan.choices[..plan.leading] {
                choices.push(number % size);
                number /= size;
            }
        }
        choices.extend(
            plan.choices[choices.len()..]
                .iter()
                .map(|size| stream.below(*size)),
        );
        self.rule.row(length, &choices)
    }

    /// A row on one side of the split by hash.
    fn sided(&self, length: usize, plan: &Plan, tested: bool, stream: &mut Stream) -> Row {
        let mut row = self.complete(length, plan, None, stream);
        for _ in 0..TRIES {
            if self.is_tested(&row.question) == tested {
                break;
            }
            row = self.complete(length, plan, None, stream);
        }
        row
    }

    fn train_row(&self, length: usize, plan: &Plan, stream: &mut Stream) -> Row {
        if self.rule.apart() == Apart::ByHash {
            return self.sided(length, plan, false, stream);
        }
        let leading = plan
            .kept
            .as_ref()
            .map(|(split, part)| split.get(part + stream.below(plan.values - part)));
        self.complete(length, plan, leading, stream)
    }

    /// Test row `row`: leading choices from a permutation, so that no two rows are equal, then
    /// choices from the row's own stream.
    fn test_row(&self, length: usize, plan: &Plan, row: u64) -> Row {
        let mut stream = Stream::new(
            self.eval_seed,
            &format!("{}/{length}", self.test_purpose),
            row,
        );
        if self.rule.apart() == Apart::ByHash {
            return self.sided(length, plan, true, &mut stream);
        }
        let among = plan.kept.as_ref().map_or(plan.values, |(_, part)| *part);
        let number =
            Permutation::new(self.eval_seed, &self.test_purpose, length as u64, among).get(row);
        let number = plan
            .kept
            .as_ref()
            .map_or(number, |(split, _)| split.get(number));
        self.complete(length, plan, Some(number), &mut stream)
    }

    /// What the definitions say about the test rows.
    fn test_rows_in_words(&self) -> String {
        let at_most = self.test_rows;
        match self.rule.apart() {
            Apart::No => format!(
                "{at_most} distinct test strings per length (all strings where there are fewer), \
                 not kept out of training, so short ones repeat there"
            ),
            Apart::ByChoices => format!(
                "{at_most} distinct test rows per length (all rows where there are fewer), kept \
                 out of training at every length with at least {} different rows",
                at_most * TEST_SHARE
            ),
            Apart::ByHash => format!(
                "{at_most} test rows per length, which may repeat where there are few different \
                 ones, kept out of training by the hash of their question"
            ),
        }
    }
}

impl<R: Rule> Task for SymbolTask<R> {
    fn kind(&self) -> &'static str {
        self.rule.kind()
    }
    fn vocab_size(&self) -> usize {
        self.rule.vocab_size()
    }
    fn unit(&self) -> &'static str {
        self.rule.unit()
    }
    fn seq_len(&self, length: usize) -> usize {
        self.rule.seq_len(length)
    }
    fn train_batch(&self, length: usize, rows: usize, seed: u64, step: u64) -> Batch {
        let plan = self.plan(length);
        let mut stream = Stream::new(seed, &self.train_purpose, step);
        let mut batch = Batch::with_capacity(rows, self.seq_len(length));
        for _ in 0..rows {
            self.rule
                .push(&mut batch, &self.train_row(length, &plan, &mut stream));
        }
        batch
    }
    /// `test_rows` of the table, or every row of this length where there are fewer and they can be
    /// told apart.
    fn test_rows(&self, length: usize) -> usize {
        match self.rule.apart() {
            Apart::ByHash => self.test_rows as usize,
            Apart::No | Apart::ByChoices => self.test_rows.min(self.plan(length).values) as usize,
        }
    }
    fn test_batch(&self, length: usize, first_row: usize, rows: usize) -> Batch {
        let end = first_row + rows;
        assert!(
            end <= self.test_rows(length),
            "test rows {first_row}..{end} of {}",
            self.test_rows(length)
        );
        let plan = self.plan(length);
        let mut batch = Batch::with_capacity(rows, self.seq_len(length));
        for row in first_row..end {
            self.rule
                .push(&mut batch, &self.test_row(length, &plan, row as u64));
        }
        batch
    }
    fn reads_its_answers(&self) -> bool {
        self.rule.reads_its_answers()
    }
    fn axes(&self, length: usize) -> Vec<Vec<f64>> {
        self.rule.axes(length)
    }
    fn groups(&self) -> Vec<(String, String)> {
        self.rule.groups()
    }
    fn group(&self, length: usize, row: usize) -> Option<usize> {
        if self.rule.groups().is_empty() {
            None
        } else {
            self.rule
                .group(&self.test_row(length, &self.plan(length), row as u64))
        }
    }
    fn scoring(&self) -> Scoring {
        Scoring::Answer
    }
    fn primary_metric(&self) -> &'static str {
        self.rule.primary_metric()
    }
    fn definitions(&self) -> BTreeMap<String, String> {
        let (what, first) = self.rule.counted();
        let whole = if what.contains("EOS included") {
            "answer and EOS are"
        } else {
            "scored tokens are"
        };
        let remark = self
            .rule
            .remark()
            .map_or_else(String::new, |remark| format!("; {remark}"));
        let rows = self.test_rows_in_words();
        [
            (
                "exact_match",
                format!("share of test rows whose {whole} all predicted right"),
            ),
            (
                "token_accuracy",
                format!(
                    "share of {what} predicted right, every token of every row weighing the same"
                ),
            ),
            (
                "loss_nats",
                format!(
                    "mean negative log-likelihood in nats of the {what} every token weighing the \
                     same"
                ),
            ),
        ]
        .map(|(metric, meaning)| {
            (
                metric.to_string(),
                format!("{meaning}; teacher-forced, {first}; {rows}{remark}."),
            )
        })
        .into()
    }
    /// `token_accuracy`: a uniform guess among the symbols that an answer may hold, EOS not
    /// considered. `loss_nats`: a uniform guess over the vocabulary. `exact_match`, only where
    /// every answer is one symbol: the same guess, EOS taken as known; elsewhere it falls with
    /// the length and has no single level.
    fn chance(&self) -> BTreeMap<String, f64> {
        let guess = self.rule.guess();
        let mut chance: BTreeMap<_, _> = [
            ("token_accuracy".to_string(), guess),
            ("loss_nats".to_string(), libm::log(self.vocab_size() as f64)),
        ]
        .into();
        if [1, 2, 1000].iter().all(|&n| self.rule.answer_len(n) == 1) {
            chance.insert("exact_match".to_string(), guess);
        }
        chance
    }
}

/// A row as text: what is read, a bar, what counts.
pub(crate) fn show(rule: &impl Rule, row: &Row) -> String {
    let words = |symbols: &[i32]| {
        symbols
            .iter()
            .map(|&symbol| rule.name(symbol))
            .collect::<Vec<_>>()
            .join(" ")
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

/// `number` as `len` decimal digits, most significant first.
pub(crate) fn digits(number: usize, len: usize) -> Vec<i32> {
    let mut rest = number;
    let mut digits: Vec<i32> = (0..len)
        .map(|_| {
            let digit = rest % 10;
            rest /= 10;
            digit as i32
        })
        .collect();
    assert_eq!(rest, 0, "{number} has more than {len} digits");
    digits.reverse();
    digits
}

/// How many decimal digits `number` has.
pub(crate) fn digits_len(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn task(alphabet: u64, test_rows: u64, apart: Apart) -> SymbolTask<StringRule> {
        let ctx = BuildContext {
            config_dir: "".into(),
            lock: "",
            cargo_home: None,
            train_len: 4,
            test_lens: vec![4],
            eval_seed: 1,
        };
        let copy = StringRule {
            kind: "copy",
            alphabet,
            answers: alphabet,
            answer: Box::new(<[i32]>::to_vec),
            answer_len: |n| n,
            apart,
        };
        SymbolTask::new(copy, test_rows, &ctx).unwrap()
    }

    fn questions(task: &SymbolTask<StringRule>, length: usize, rows: u64) -> Vec<Vec<i32>> {
        let plan = task.plan(length);
        (0..rows)
            .map(|row| task.test_row(length, &plan, row).question)
            .collect()
    }

    #[test]
    fn test_strings_are_distinct_also_where_the_permuted_prefix_is_shorter() {
        for apart in [Apart::No, Apart::ByChoices] {
            for (alphabet, length) in [
                (2, 3),
                (2, 8),
                (2, 61),
                (2, 62),
                (2, 63),
                (3, 50),
                (16, 15),
                (16, 16),
                (16, 40),
                (4096, 1),
                (4096, 6),
            ] {
                let task = task(alphabet, 300, apart);
                let rows = task.test_rows(length);
                assert_eq!(
                    rows as u64,
                    300.min(alphabet.saturating_pow(length as u32)),
                    "{alphabet}^{length}"
                );
                let strings: BTreeSet<_> =
                    questions(&task, length, rows as u64).into_iter().collect();
                assert_eq!(strings.len(), rows);
                assert!(strings.iter().all(
                    |s| s.len() == length && s.iter().all(|t| (0..alphabet as i32).contains(t))
                ));
            }
        }
    }

    #[test]
    fn test_strings_use_all_symbols_everywhere() {
        for apart in [Apart::No, Apart::ByChoices, Apart::ByHash] {
            let strings = questions(&task(16, 4000, apart), 21, 4000);
            for position in [0, 7, 14, 15, 20] {
                let mut counts = [0u32; 16];
                strings
                    .iter()
                    .for_each(|string| counts[string[position] as usize] += 1);
                let chi2: f64 = counts
                    .iter()
                    .map(|&c| (f64::from(c) - 250.0).powi(2) / 250.0)
                    .sum();
                assert!(chi2 < 42.0, "{apart:?}, position {position}: {chi2}");
            }
        }
    }

    #[test]
    fn training_never_meets_the_test_part() {
        for apart in [Apart::ByChoices, Apart::ByHash] {
            // 2^10 strings, of which every one is seen in 40 batches of 1000 rows; both sides of
            // the split together are all strings.
            let task = task(2, 256, apart);
            let trained: BTreeSet<Vec<i32>> = (0..40)
                .flat_map(|step| {
                    task.train_batch(10, 1000, 0, step)
                        .inputs
                        .chunks(22)
                        .map(|r| r[1..11].to_vec())
                        .collect::<Vec<_>>()
                })
                .collect();
            let tested: BTreeSet<Vec<i32>> = task
                .test_batch(10, 0, 256)
                .inputs
                .chunks(22)
                .map(|r| r[1..11].to_vec())
                .collect();
            assert!(trained.is_disjoint(&tested), "{apart:?}");
            if apart == Apart::ByChoices {
                assert_eq!((trained.len(), tested.len()), (768, 256));
            } else {
                assert!(
                    trained.len() > 700 && tested.len() > 120,
                    "{} {}",
                    trained.len(),
                    tested.len()
                );
            }
        }
    }

    #[test]
    fn lengths_with_few_questions_still_have_rows() {
        for apart in [Apart::No, Apart::ByChoices, Apart::ByHash] {
            let task = task(2, 256, apart);
            assert_eq!(task.train_batch(1, 50, 0, 0).rows, 50);
            assert_eq!(
                task.test_rows(1),
                if apart == Apart::ByHash { 256 } else { 2 }
            );
            assert_eq!(task.test_batch(1, 0, task.test_rows(1)).seq_len, 4);
        }
    }

    #[test]
    fn distinct_numbers_are_every_arrangement_once() {
        let mut seen = BTreeSet::new();
        for number in 0..5 * 4 * 3 {
            let picked = distinct(&[number % 5, number / 5 % 4, number / 20]);
            assert_eq!(picked.iter().collect::<BTreeSet<_>>().len(), 3);
            assert!(picked.iter().all(|p| *p < 5) && seen.insert(picked));
        }
    }

    #[test]
    fn digits_are_decimal() {
        assert_eq!(
            (digits(7, 1), digits(907, 5), digits(0, 2)),
            (vec![7], vec![0, 0, 9, 0, 7], vec![0, 0])
        );
        assert_eq!([0, 9, 10, 999, 1000].map(digits_len), [1, 1, 2, 3, 4]);
    }
}
