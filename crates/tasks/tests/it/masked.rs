//! Masked text against its definition: what is hidden, how, and that it is the same for everyone.

use crate::common;
use longreach_tasks::{Batch, Scoring, TEACHER_FORCED, Task, TaskConfig};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tempfile::TempDir;

const MASK: i32 = 256;

struct Source {
    dir: TempDir,
    text: Vec<u8>,
}

impl Source {
    /// Bytes 0 to 9 only, so that a random byte differs from every byte that is kept.
    fn new(len: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut stream = longreach_tasks::Stream::new(0, "text", 0);
        let text: Vec<u8> = (0..len).map(|_| stream.below(10) as u8).collect();
        std::fs::write(dir.path().join("x"), &text).unwrap();
        Self { dir, text }
    }

    fn build(&self, keys: &str, test_lens: &[usize], eval_seed: u64) -> Box<dyn Task> {
        let ctx = common::ctx(self.dir.path(), 64, test_lens, eval_seed);
        let table = format!(
            "kind = \"masked_text\"\nfiles = [\"x\"]\nsplit = {{ by = \"range\", valid_fraction = \
             0.5 }}\n{keys}"
        );
        toml::from_str::<TaskConfig>(&table)
            .unwrap()
            .build(&ctx)
            .unwrap()
    }
}

/// How often a counted byte is read as the mask, as another byte, as itself.
fn read_as(batch: &Batch) -> [usize; 3] {
    let mut counts = [0; 3];
    for ((&read, &target), &counted) in batch.inputs.iter().zip(&batch.targets).zip(&batch.counted)
    {
        match read {
            _ if !counted => assert_eq!(read, target, "what is not chosen is read as it is"),
            MASK => counts[0] += 1,
            _ if read != target => counts[1] += 1,
            _ => counts[2] += 1,
        }
    }
    counts
}

#[test]
fn chosen_bytes_are_masked_replaced_or_kept_in_berts_shares() {
    let source = Source::new(200_000);
    let task = source.build("eval_tokens = 65536", &[64, 128], 0);
    assert_eq!(
        (
            task.vocab_size(),
            task.scoring(),
            task.unit(),
            task.seq_len(64)
        ),
        (257, Scoring::Masked, "bytes", 64)
    );
    let train = read_as(&task.train_batch(64, 1000, 1, 2));
    let test = read_as(&task.test_batch(64, 0, task.test_rows(64)));
    // round(0.15 * 64) of every training window, and about 15 % of the test's bytes.
    assert_eq!(train.iter().sum::<usize>(), 10 * 1000);
    let chosen = test.iter().sum::<usize>() as f64;
    assert!(
        (chosen - 0.15 * 65_536.0).abs() < 5.0 * (0.15f64 * 0.85 * 65_536.0).sqrt(),
        "{chosen}"
    );
    for counts in [train, test] {
        let n: f64 = counts.iter().sum::<usize>() as f64;
        // One random byte in 256 is the byte itself.
        for (count, share) in counts
            .into_iter()
            .zip([0.8, 0.1 * 255.0 / 256.0, 0.1 + 0.1 / 256.0])
        {
            assert!(
                (count as f64 - share * n).abs() < 5.0 * (share * (1.0 - share) * n).sqrt(),
                "{counts:?}"
            );
        }
    }
    // Every place of a window is as likely as any other.
    let batch = task.train_batch(64, 2000, 1, 3);
    let mut by_place = [0usize; 64];
    batch
        .counted
        .iter()
        .enumerate()
        .filter(|(_, counted)| **counted)
        .for_each(|(at, _)| by_place[at % 64] += 1);
    let (expected, sd) = (
        2000.0 * 10.0 / 64.0,
        (2000.0f64 * 10.0 / 64.0 * 54.0 / 64.0).sqrt(),
    );
    assert!(
        by_place
            .iter()
            .all(|n| (*n as f64 - expected).abs() < 5.0 * sd),
        "{by_place:?}"
    );
}

#[test]
fn the_same_bytes_are_hidden_in_the_same_way_at_every_length_and_in_any_grouping() {
    let source = Source::new(20_000);
    let task = source.build("eval_tokens = 4096", &[16, 64, 256], 3);
    // Place in the validation split to what is read there.
    let hidden = |task: &dyn Task, length: usize, group: usize| -> BTreeMap<usize, (i32, i32)> {
        let mut found = BTreeMap::new();
        for first in (0..task.test_rows(length)).step_by(group) {
            let batch = task.test_batch(length, first, group.min(task.test_rows(length) - first));
            let start = first * length;
            let bytes: Vec<i32> = source.text[10_000 + start..][..batch.targets.len()]
                .iter()
                .map(|b| i32::from(*b))
                .collect();
            assert_eq!(
                batch.targets, bytes,
                "a window reads the split from its own start on"
            );
            let counted = batch
                .counted
                .iter()
                .enumerate()
                .filter(|(_, counted)| **counted);
            found
                .extend(counted.map(|(at, _)| (start + at, (batch.inputs[at], batch.targets[at]))));
        }
        found
    };
    let all = hidden(&*task, 16, 1);
    assert!(!all.is_empty());
    for (length, group) in [(16, 7), (64, 1), (64, 1000), (256, 3)] {
        assert_eq!(hidden(&*task, length, group), all);
    }
    assert_ne!(
        hidden(
            &*source.build("eval_tokens = 4096", &[16, 64, 256], 4),
            16,
            9
        ),
        all,
        "the evaluation seed names the test"
    );
}

proptest! {
    #[test]
    fn training_windows_hide_what_is_asked_at_any_length(length in 1usize..200, rate in 0.01f64..=1.0, seed in 0u64..9, step in 0u64..99) {
        let source = Source::new(2_000);
        let task = source.build(&format!("rate = {rate:?}\nmask = 1.0\nrandom = 0.0"), &[500], 0);
        let batch = task.train_batch(length, 5, seed, step);
        prop_assert_eq!((batch.rows, batch.seq_len, batch.inputs.len()), (5, length, 5 * length));
        let chosen = ((rate * length as f64).round() as usize).clamp(1, length);
        for row in 0..5 {
            let cells = row * length..(row + 1) * length;
            prop_assert_eq!(batch.counted[cells.clone()].iter().filter(|c| **c).count(), chosen);
            let targets: Vec<u8> = batch.targets[cells.clone()].iter().map(|t| *t as u8).collect();
            prop_assert!(source.text[..1000].windows(length).any(|window| window == targets), "a window of the training split");
            for at in cells {
                prop_assert_eq!(batch.inputs[at], if batch.counted[at] { MASK } else { batch.targets[at] });
            }
        }
        prop_assert_eq!(&task.train_batch(length, 7, seed, step).inputs[..5 * length], &batch.inputs[..], "a larger batch appends rows");
    }
}

#[test]
fn says_what_it_measures() {
    let task = Source::new(2_000).build("", &[64, 128], 0);
    let definitions = task.definitions(TEACHER_FORCED);
    assert_eq!(
        definitions.keys().collect::<Vec<_>>(),
        ["bits_per_byte", "loss_nats", "perplexity", "token_accuracy"]
    );
    assert!(
        definitions
            .values()
            .all(|text| text.contains("chosen") && text.ends_with('.') && !text.contains(".."))
    );
    assert_eq!(task.primary_metric(), "loss_nats");
    assert!(task.corpus().is_some() && task.chance().len() == 4);
}
