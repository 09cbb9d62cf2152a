//! Training batches and test sets of a rule, and their metrics.

use super::layout::{Row, RowLayout};
use super::questions::ByLength;
use super::rule::{Counted, HeldOut, Rule};
use crate::{
    Batch, BuildContext, Permutation, Rows, Scoring, Stream, TEACHER_FORCED, Task, TaskError,
};
use schema::in_range;
use std::collections::BTreeMap;

/// The most values that the permuted leading choices of a row may have together.
const MAX_PREFIXES: u64 = 1 << 62;

/// One question in this many is held out for the test sets.
const TEST_SHARE: u64 = 4;

/// How often a row is drawn again to land on its side. A side that holds a quarter of the questions
/// is missed 256 times in a row once in 10^32 rows, so only a side without any question is given
/// up.
pub(super) const TRIES: usize = 256;

/// Answer tokens are predictions that see the question and no answer token.
const ALL_AT_ONCE: &str = "all answer tokens at once";

/// The task of a rule.
pub(crate) struct SymbolTask<R> {
    pub(super) rule: R,
    /// That of the rule, or for a model that reads in both directions.
    layout: RowLayout,
    pub(super) test_rows: u64,
    pub(super) eval_seed: u64,
    pub(super) rows: Rows,
    train_purpose: String,
    pub(super) test_purpose: String,
    split_purpose: String,
    /// Questions of the test rows, for selection rows that must differ from them.
    pub(super) tested: ByLength,
}

/// What all rows of one length share.
pub(super) struct Plan {
    /// Number of values of each choice.
    choices: Vec<u64>,
    /// How many leading choices are permuted.
    leading: usize,
    /// Number of values of the permuted choices together.
    pub(super) values: u64,
    /// The permutation that names the part held out, and the size of the part.
    pub(super) kept: Option<(Permutation, u64)>,
}

impl<R: Rule> SymbolTask<R> {
    /// The task of a kind that is this rule.
    pub(crate) fn boxed(
        rule: R,
        test_rows: u64,
        ctx: &BuildContext<'_>,
    ) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(Self::new(rule, test_rows, ctx)?))
    }

    pub(crate) fn new(rule: R, test_rows: u64, ctx: &BuildContext<'_>) -> Result<Self, TaskError> {
        let hint = "the number of test strings at each length";
        in_range("test_rows", test_rows, 1..=1_000_000, hint)?;
        let mut lengths = [&ctx.test_lens[..], &[ctx.train_len]].concat();
        lengths.sort_unstable();
        lengths.iter().try_for_each(|&n| rule.check_len(n))?;
        let purpose = |what: &str| format!("{what}/{}", rule.kind());
        let train_purpose = purpose("train-data");
        let test_purpose = purpose("test-data");
        let split_purpose = purpose("split");
        let layout = if ctx.bidirectional {
            rule.layout().both_ways()
        } else {
            rule.layout()
        };
        Ok(Self {
            rule,
            layout,
            test_rows,
            eval_seed: ctx.eval_seed,
            rows: ctx.rows,
            train_purpose,
            test_purpose,
            split_purpose,
            tested: ByLength::default(),
        })
    }

    pub(super) fn plan(&self, length: usize) -> Plan {
        let choices = self.rule.choices(length);
        let (mut leading, mut values) = (0, 1u64);
        let held = self.rule.held_choices(length);
        while leading < held && values <= MAX_PREFIXES / choices[leading] {
            values *= choices[leading];
            leading += 1;
        }
        let part = values / TEST_SHARE;
        // The split uses seed 0 for every evaluation seed, so that training depends on its own
        // seed only.
        let kept =
            (self.rule.held_out() == HeldOut::ByChoices && part >= self.test_rows).then(|| {
                let split = Permutation::new(0, &self.split_purpose, length as u64, values);
                (split, part)
            });
        Plan {
            choices,
            leading,
            values,
            kept,
        }
    }

    /// Whether a question is held out by its hash.
    fn is_tested(&self, question: &[i32]) -> bool {
        let mut hasher = blake3::Hasher::new();
        hasher
            .update(b"longreach split v1")
            .update(self.split_purpose.as_bytes());
        for symbol in question {
            hasher.update(&symbol.to_le_bytes());
        }
        // One byte is enough: TEST_SHARE divides its 256 values.
        u64::from(hasher.finalize().as_bytes()[0]).is_multiple_of(TEST_SHARE)
    }

    /// A row with these leading choices and the others drawn.
    pub(super) fn complete(
        &self,
        length: usize,
        plan: &Plan,
        leading: Option<u64>,
        stream: &mut Stream,
    ) -> Row {
        let mut choices = Vec::with_capacity(plan.choices.len());
        if let Some(mut number) = leading {
            // `number` in mixed radix, the first choice as its lowest digit.
            for size in &plan.choices[..plan.leading] {
                choices.push(number % size);
                number /= size;
            }
        }
        let drawn = plan.choices[choices.len()..].iter();
        choices.extend(drawn.map(|size| stream.below(*size)));
        self.rule.row(length, &choices)
    }

    /// A row on one side of the split by hash.
    pub(super) fn row_on_side(
        &self,
        length: usize,
        plan: &Plan,
        tested: bool,
        stream: &mut Stream,
    ) -> Row {
        let mut row = self.complete(length, plan, None, stream);
        for _ in 0..TRIES {
            if self.is_tested(&row.question) == tested {
                break;
            }
            row = self.complete(length, plan, None, stream);
        }
        row
    }

    pub(super) fn train_row(&self, length: usize, plan: &Plan, stream: &mut Stream) -> Row {
        if self.rule.held_out() == HeldOut::ByHash {
            return self.row_on_side(length, plan, false, stream);
        }
        let kept = plan.kept.as_ref();
        // The permutation's first values are the test's; training draws from the others.
        let leading = kept.map(|(split, part)| {
            let first = part + self.borrowed(*part);
            split.get(first + stream.below(plan.values - first))
        });
        self.complete(length, plan, leading, stream)
    }

    /// Test row `row`: leading choices from a permutation, so that no two rows are equal, then
    /// choices from the row's own stream.
    pub(super) fn test_row(&self, length: usize, plan: &Plan, row: u64) -> Row {
        let purpose = format!("{}/{length}", self.test_purpose);
        let mut stream = Stream::new(self.eval_seed, &purpose, row);
        if self.rule.held_out() == HeldOut::ByHash {
            return self.row_on_side(length, plan, true, &mut stream);
        }
        let kept = plan.kept.as_ref();
        // Where nothing is held out, test rows come from all questions.
        let among = kept.map_or(plan.values, |(_, part)| *part);
        let order = Permutation::new(self.eval_seed, &self.test_purpose, length as u64, among);
        let number = order.get(row);
        let number = kept.map_or(number, |(split, _)| split.get(number));
        self.complete(length, plan, Some(number), &mut stream)
    }

    /// Appends a row to a batch.
    pub(super) fn push(&self, batch: &mut Batch, row: &Row) {
        self.layout.push(batch, row, self.rule.symbols());
    }

    /// Row `row` of the set that is tested on: test rows, or rows for selection.
    pub(super) fn asked_row(&self, length: usize, plan: &Plan, row: u64) -> Row {
        match self.rows {
            Rows::Test => self.test_row(length, plan, row),
            Rows::Selection => self.selection_row(length, plan, row),
        }
    }

    /// The test rows, for definitions.
    fn test_rows_in_words(&self) -> String {
        if self.rows == Rows::Selection {
            return self.selection_rows_in_words();
        }
        let at_most = self.test_rows;
        match self.rule.held_out() {
            HeldOut::No => format!(
                "{at_most} distinct test strings per length (all strings where there are fewer), \
                 not kept out of training, so short ones repeat there"
            ),
            HeldOut::ByChoices => format!(
                "{at_most} distinct test rows per length (all rows where there are fewer), kept \
                 out of training at every length with at least {} different rows",
                at_most * TEST_SHARE
            ),
            HeldOut::ByHash => format!(
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
        self.layout.vocab_size(self.rule.symbols())
    }
    fn tokens(&self) -> Vec<String> {
        let symbols = (0..self.rule.symbols() as i32).map(|symbol| self.rule.name(symbol));
        self.layout.tokens(symbols)
    }
    fn unit(&self) -> &'static str {
        self.rule.unit()
    }
    fn seq_len(&self, length: usize) -> usize {
        let (question, answer) = (self.rule.question_len(length), self.rule.answer_len(length));
        self.layout.seq_len(question, answer)
    }
    fn has_rows(&self, length: usize) -> bool {
        self.rule.check_len(length).is_ok()
    }
    fn train_batch(&self, length: usize, rows: usize, seed: u64, step: u64) -> Batch {
        let plan = self.plan(length);
        let mut stream = Stream::new(seed, &self.train_purpose, step);
        let mut batch = Batch::with_capacity(rows, self.seq_len(length));
        for _ in 0..rows {
            let row = self.train_row(length, &plan, &mut stream);
            self.push(&mut batch, &row);
        }
        batch
    }
    /// `test_rows` of the table, or every row of this length where there are fewer and they can be
    /// enumerated.
    fn test_rows(&self, length: usize) -> usize {
        match (self.rule.held_out(), self.rows) {
            (HeldOut::ByHash, _) => self.test_rows as usize,
            (_, Rows::Test) => self.test_rows.min(self.plan(length).values) as usize,
            (_, Rows::Selection) => self.selection_rows(&self.plan(length)) as usize,
        }
    }
    fn test_batch(&self, length: usize, first_row: usize, rows: usize) -> Batch {
        let (end, all) = (first_row + rows, self.test_rows(length));
        assert!(end <= all, "test rows {first_row}..{end} of {all}");
        let plan = self.plan(length);
        let mut batch = Batch::with_capacity(rows, self.seq_len(length));
        for row in first_row..end {
            let row = self.asked_row(length, &plan, row as u64);
            self.push(&mut batch, &row);
        }
        batch
    }
    fn reads_its_answers(&self) -> bool {
        self.layout.reads_its_answers()
    }
    fn hides_answers(&self) -> bool {
        self.layout.hides_answers()
    }
    fn axes(&self, length: usize) -> Vec<Vec<f64>> {
        let question_len = self.rule.question_len(length);
        let axes = self.rule.axes(length).into_iter();
        axes.map(|axis| self.layout.coordinates(axis, question_len))
            .collect()
    }
    fn groups(&self) -> Vec<(String, String)> {
        self.rule.groups()
    }
    fn group(&self, length: usize, row: usize) -> Option<usize> {
        if self.rule.groups().is_empty() {
            return None;
        }
        self.rule
            .group(&self.asked_row(length, &self.plan(length), row as u64))
    }
    fn scoring(&self) -> Scoring {
        Scoring::Answer
    }
    fn primary_metric(&self) -> &'static str {
        self.rule.primary_metric()
    }
    fn definitions(&self, answers: &str) -> BTreeMap<String, String> {
        let blanks = self.layout == RowLayout::Blanks;
        let counted = self.rule.counted();
        let Counted {
            whole,
            tokens,
            first,
            ..
        } = if blanks { counted.in_blanks() } else { counted };
        let modes = if blanks {
            [ALL_AT_ONCE; 2]
        } else {
            [answers, TEACHER_FORCED]
        };
        let remark = self
            .rule
            .remark()
            .map_or_else(String::new, |remark| format!("; {remark}"));
        let rows = self.test_rows_in_words();
        [
            (
                "exact_match",
                modes[0],
                format!("share of test rows whose {whole} all predicted right"),
            ),
            (
                "token_accuracy",
                modes[0],
                format!(
                    "share of {tokens} predicted right, every token of every row weighing the same"
                ),
            ),
            (
                "loss_nats",
                modes[1],
                format!(
                    "mean negative log-likelihood in nats of the {tokens} every token weighing the \
                     same"
                ),
            ),
        ]
        .map(|(metric, mode, meaning)| {
            (
                metric.to_string(),
                format!("{meaning}; {mode}, {first}; {rows}{remark}."),
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
