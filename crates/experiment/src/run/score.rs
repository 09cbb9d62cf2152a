//! Scores one variant at one length: the test set, its sums in host f64, and the metrics.

use crate::host::values;
use crate::run::greedy::greedy;
use crate::run::model::{greedy_tokens, upload};
use crate::run::test_rows::TestRows;
use crate::spec::blocks::Blocks;
use crate::spec::scores::{bin_width, empty_row};
use crate::spec::{Coordinates, EvalSpec, MAX_LOGITS};
use burn::tensor::Device;
use posenc::{Positions, PositionsConfig};
use records::metric::{EXACT_MATCH, LAST_LOSS_NATS, LOSS_NATS, TOKEN_ACCURACY};
use records::record::{Denominators, EvalRow, EvalStatus, Metric, PositionBin};
use std::collections::BTreeMap;
use support::signals;
use tasks::{Batch, Scoring, Stream, Task};
use tiny_transformer::{Pass, Transformer};

/// One variant at one length.
pub struct Test<'a> {
    /// Name of the variant.
    pub variant: &'a str,
    /// Length in the task's unit.
    pub test_len: usize,
    /// The lower end of a range of lengths that ends there.
    pub from_len: Option<usize>,
    /// Options of all evaluations of the run.
    pub eval: &'a EvalSpec,
    /// Positions that tokens get.
    pub positions: &'a PositionsConfig,
    /// Seed of sampled positions.
    pub seed: u64,
    /// Source of coordinates.
    pub coordinates: Coordinates,
    /// Whether the denominators of linear attention are counted.
    pub denominators: bool,
    /// Whether answers are decoded token by token.
    pub greedy: bool,
    /// Whether decoding may cache keys and values: true if later tokens do not change them.
    pub cached: bool,
}

/// A batch of a test set: rows of one length.
pub struct Part {
    /// Their length, in the task's unit.
    pub length: usize,
    /// The number of the batch among those of this length.
    pub index: u64,
    /// The first of its rows in the task's test set of this length.
    pub first_row: usize,
    /// The rows.
    pub batch: Batch,
    /// Where their tokens stand.
    pub positions: Positions,
}

impl Test<'_> {
    /// The test set, length by length, with its positions.
    pub fn parts(&self, task: &dyn Task) -> impl Iterator<Item = Part> {
        let rows = TestRows::new(task, (self.from_len, self.test_len), self.eval.seed);
        let batches = rows.batches(task, self.eval.batch_tokens);
        batches.map(|(length, index, first_row, batch)| {
            // Sampled positions are drawn anew for every batch, from a stream of this length alone.
            let mut stream = Stream::new(self.seed, &format!("test-positions {length}"), index);
            let positions = self
                .positions
                .sample_test(batch.seq_len, &mut |bound| stream.below(bound));
            let positions = self.coordinates.of(task, length, &batch, positions);
            Part {
                length,
                index,
                first_row,
                batch,
                positions,
            }
        })
    }

    /// The answers to a batch, decoded token by token; `None` if a signal asked to stop.
    fn decode(
        &self,
        part: &Part,
        task: &dyn Task,
        model: &Transformer,
        device: &Device,
    ) -> Option<Vec<i64>> {
        // A decoder does not know the final length, so sampled positions are drawn anew for every
        // token.
        let name = format!("decode-positions {}", part.length);
        let mut stream = Stream::new(self.seed, &name, part.index);
        let mut positions = |seq_len: usize| {
            let sampled = self
                .positions
                .sample_test(seq_len, &mut |bound| stream.below(bound));
            self.coordinates.of(task, part.length, &part.batch, sampled)
        };
        let reads_its_answers = task.reads_its_answers();
        greedy(
            model,
            &part.batch,
            reads_its_answers,
            &mut positions,
            self.cached,
            device,
        )
    }
}

/// Scores a model on a test set; `None` if a signal asked to stop.
pub fn score(
    test: &Test<'_>,
    task: &dyn Task,
    model: &Transformer,
    device: &Device,
) -> Option<EvalRow> {
    let seq_len = task.seq_len(test.test_len);
    let scoring = task.scoring();
    let mut sums = Sums::new(seq_len, task.groups().len());
    sums.denominators = test.denominators.then(Default::default);
    sums.blocks = Blocks::of(task);
    for part in test.parts(task) {
        if signals::asked().is_some() {
            return None;
        }
        let decoded = if test.greedy {
            Some(test.decode(&part, task, model, device)?)
        } else {
            None
        };
        sums.add_part(&part, task, model, device, decoded);
    }
    let metrics = sums.metrics(task, test.eval.last_tokens);
    // JSON has no NaN: such a row has a status instead of numbers.
    if !metrics[LOSS_NATS].value.is_finite() {
        let reason = format!("the loss at length {} is not finite", test.test_len);
        return Some(EvalRow {
            from_len: test.from_len,
            ..empty_row(test.variant, test.test_len, EvalStatus::Diverged, reason)
        });
    }
    let loss_by_position = if scoring == Scoring::Answer {
        Vec::new()
    } else {
        sums.by_position()
    };
    Some(EvalRow {
        variant: test.variant.to_owned(),
        test_len: test.test_len,
        status: EvalStatus::Ok,
        reason: None,
        metrics,
        loss_by_position,
        loss_by_block: sums.blocks.as_ref().map_or_else(Vec::new, Blocks::means),
        distinct_rows: TestRows::new(task, (test.from_len, test.test_len), test.eval.seed)
            .distinct(task),
        from_len: test.from_len,
        denominators: sums.denominators.as_ref().map(|counted| Denominators {
            count: counted.count(),
            negative: counted.negative(),
            clamped: counted.clamped(),
        }),
    })
}

/// Sums over a test set, by position and by row.
struct Sums {
    nll: Vec<f64>,
    counted: Vec<u64>,
    right: u64,
    exact_rows: u64,
    rows: u64,
    /// Whether each row of the batch just added is exact.
    exact: Vec<bool>,
    /// Exact rows and rows of each group.
    groups: Vec<(u64, u64)>,
    /// Of the passes that give the losses; `None` where they are not counted.
    denominators: Option<tiny_transformer::Denominators>,
    /// Of the scored text, where it has blocks.
    blocks: Option<Blocks>,
    /// Place in the scored text of the first target of each row of the batch to be added.
    places: Vec<usize>,
}

impl Sums {
    fn new(seq_len: usize, groups: usize) -> Self {
        Self {
            nll: vec![0.0; seq_len],
            counted: vec![0; seq_len],
            right: 0,
            exact_rows: 0,
            rows: 0,
            exact: Vec::new(),
            groups: vec![(0, 0); groups],
            denominators: None,
            blocks: None,
            places: Vec::new(),
        }
    }

    /// The metrics of a whole test set.
    fn metrics(&self, task: &dyn Task, last_tokens: Option<usize>) -> BTreeMap<String, Metric> {
        let mean = |sum: f64, n: u64| Metric {
            value: sum / n as f64,
            n,
        };
        let tokens: u64 = self.counted.iter().sum();
        let loss = mean(self.nll.iter().sum(), tokens);
        let mut metrics = BTreeMap::from([(LOSS_NATS.to_owned(), loss)]);
        if task.scoring() != Scoring::LanguageModel {
            let accuracy = mean(self.right as f64, tokens);
            metrics.insert(TOKEN_ACCURACY.to_owned(), accuracy);
        }
        if task.scoring() == Scoring::Answer {
            let exact = mean(self.exact_rows as f64, self.rows);
            metrics.insert(EXACT_MATCH.to_owned(), exact);
        }
        let groups = task.groups().into_iter().zip(&self.groups);
        for ((name, _), (exact, rows)) in groups.filter(|(_, (_, rows))| *rows > 0) {
            metrics.insert(format!("{EXACT_MATCH}_{name}"), mean(*exact as f64, *rows));
        }
        if let Some(last) = last_tokens {
            let end = self.nll.len().saturating_sub(last)..;
            let n = self.counted[end.clone()].iter().sum();
            let loss = mean(self.nll[end].iter().sum(), n);
            metrics.insert(LAST_LOSS_NATS.to_owned(), loss);
        }
        metrics
    }

    /// Adds a batch of the test set, with the places of its rows in the text and their groups.
    fn add_part(
        &mut self,
        part: &Part,
        task: &dyn Task,
        model: &Transformer,
        device: &Device,
        decoded: Option<Vec<i64>>,
    ) {
        let rows = part.first_row..part.first_row + part.batch.rows;
        self.places = rows
            .map(|row| task.scored_place(part.length, row))
            .collect();
        self.add(
            &part.batch,
            &part.positions,
            model,
            device,
            task.scoring(),
            decoded,
        );
        // Groups go by the row's number in the whole test set, not in the batch.
        for (row, exact) in std::mem::take(&mut self.exact).into_iter().enumerate() {
            if let Some(group) = task.group(part.length, part.first_row + row) {
                self.groups[group].0 += u64::from(exact);
                self.groups[group].1 += 1;
            }
        }
    }

    /// Adds a batch. `decoded` holds the answers unless teacher forcing gives them.
    fn add(
        &mut self,
        batch: &Batch,
        positions: &Positions,
        model: &Transformer,
        device: &Device,
        scoring: Scoring,
        decoded: Option<Vec<i64>>,
    ) {
        // Batch by batch to f64 on the host: a sum of a whole test set in f32 would lose digits.
        let (inputs, targets) = upload(batch, device);
        let (nll, logits) = model.nll(
            inputs,
            targets,
            positions,
            &Pass {
                max_logits: MAX_LOGITS,
                denominators: self.denominators.as_ref(),
                ..Pass::default()
            },
        );
        let nll = values::<f64>(nll.into_data());
        // The logits of text are not read back: it is scored by its loss alone.
        let guesses =
            decoded.or_else(|| (scoring != Scoring::LanguageModel).then(|| greedy_tokens(logits)));
        for row in 0..batch.rows {
            // A row is exact if all its counted tokens are right.
            let mut exact = true;
            for position in 0..batch.seq_len {
                let at = row * batch.seq_len + position;
                if !batch.counted[at] {
                    continue;
                }
                self.nll[position] += nll[at];
                self.counted[position] += 1;
                if let Some(blocks) = &mut self.blocks {
                    blocks.add(self.places[row] + position, nll[at]);
                }
                if let Some(guesses) = &guesses {
                    let right = guesses[at] == i64::from(batch.targets[at]);
                    self.right += u64::from(right);
                    exact &= right;
                }
            }
            self.exact_rows += u64::from(exact);
            self.exact.push(exact);
            self.rows += 1;
        }
    }

    /// Means over bins of equal width; bins without counted targets are left out.
    fn by_position(&self) -> Vec<PositionBin> {
        let width = bin_width(self.nll.len());
        let bins = (0..self.nll.len()).step_by(width).filter_map(|from| {
            let to = (from + width).min(self.nll.len());
            let counted: u64 = self.counted[from..to].iter().sum();
            let loss_nats = self.nll[from..to].iter().sum::<f64>() / counted as f64;
            // Without a counted target the mean is 0 / 0.
            (counted > 0).then_some(PositionBin {
                from,
                to,
                loss_nats,
            })
        });
        bins.collect()
    }
}
