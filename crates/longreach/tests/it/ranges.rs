//! Ranges of test lengths: every row draws its own, and is scored exactly at it.

use crate::common::{Scratch, TINY, command, exits, fails, has, longreach, says, shows, stderr};
use burn::tensor::Device;
use experiment::plan;
use experiment::run::model::{rebuild, upload};
use experiment::run::task::build_task;
use experiment::run::test_rows::TestRows;
use records::RunRecord;
use records::record::EvalStatus;
use rundir::Weights;
use std::collections::BTreeMap;
use std::path::Path;
use tasks::Stream;
use tiny_transformer::Pass;

const RANGED: [&str; 4] = [
    "seeds=[0]",
    "task.test_rows=40",
    "eval.test_lens=[4,\"5..9\"]",
    "eval.batch_tokens=64",
];

/// Rows of each length of a range, drawn as the specification says.
fn drawn(from: usize, to: usize, rows: usize) -> BTreeMap<usize, usize> {
    let mut stream = Stream::new(0, &format!("test-lengths {from}..{to}"), 0);
    let mut counts = BTreeMap::new();
    for _ in 0..rows {
        let length = from + stream.below((to - from + 1) as u64) as usize;
        *counts.entry(length).or_default() += 1;
    }
    counts
}

#[test]
fn a_range_is_the_mean_over_its_rows_each_scored_alone() {
    let more = [
        // Reads the length, so that another length than a row's own would show.
        "axes.\"model.pe\"=[{kind=\"rope\",scaling={kind=\"dynamic_ntk\"}},{kind=\"alibi\"}]",
        "train.steps=60",
        "train.lr=1e-2",
    ];
    let scratch = Scratch::with(TINY);
    scratch.trains(&[&RANGED[..], &more].concat());
    let overrides: Vec<String> = [&RANGED[..], &more]
        .concat()
        .iter()
        .map(ToString::to_string)
        .collect();
    let plan = plan(&scratch.config, &overrides).unwrap();
    for (path, bytes) in scratch.records() {
        let record: RunRecord = serde_json::from_slice(&bytes).unwrap();
        let of = |run: &&experiment::plan::planner::PlannedRun| run.job.run_id == record.run_id;
        let job = &plan.runs.iter().find(of).unwrap().job;
        assert_eq!(
            record.spec["eval"]["test_lens"],
            serde_json::json!([4, "5..9"])
        );
        let row = record
            .evals
            .iter()
            .find(|row| row.variant == "trained" && row.test_len == 9);
        let row = row.unwrap();
        assert_eq!(
            (row.from_len, row.status, row.length()),
            (Some(5), EvalStatus::Ok, "5..9".to_owned())
        );
        let task = build_task(job, &[4, 9]).unwrap();
        let directory = scratch.runs().join(path.parent().unwrap());
        let device = Device::flex();
        let (parameters, hash) = (record.model.parameters, &record.model.weights_blake3);
        let file = directory.join("weights.safetensors");
        let weights = Weights::load(&file, parameters, hash).unwrap();
        let model = rebuild(
            &job.spec,
            &job.spec.eval.variants[0].pe[1],
            &weights,
            &device,
        )
        .unwrap();
        let (mut nll, mut tokens, mut exact) = (0.0, 0_u64, 0);
        for (length, rows) in drawn(5, 9, 40) {
            for row in 0..rows {
                let one = task.test_batch(length, row, 1);
                let (inputs, targets) = upload(&one, &device);
                let positions = job
                    .spec
                    .model
                    .positions
                    .sample_test(one.seq_len, &mut |_| 0);
                let (loss, logits) = model.nll(inputs, targets, &positions, &Pass::default());
                let loss = loss
                    .into_data()
                    .convert::<f64>()
                    .try_to_vec::<f64>()
                    .unwrap();
                let guesses = experiment::run::model::greedy_tokens(logits);
                let counted = (0..one.seq_len).filter(|place| one.counted[*place]);
                nll += counted.clone().map(|place| loss[place]).sum::<f64>();
                tokens += counted.clone().count() as u64;
                let mut right =
                    counted.map(|place| guesses[place] == i64::from(one.targets[place]));
                exact += u64::from(right.all(|right| right));
            }
        }
        let loss = row.metrics["loss_nats"];
        assert_eq!((loss.n, row.metrics["exact_match"].n), (tokens, 40));
        assert!(
            (loss.value - nll / tokens as f64).abs() < 1e-5 * loss.value,
            "{loss:?}"
        );
        assert_eq!(row.metrics["exact_match"].value, exact as f64 / 40.0);
    }
    for more in [&["--reevaluate"][..], &[]] {
        exits(&command("verify", &scratch.runs(), more), 0);
    }
}

#[test]
fn rows_of_a_range_draw_their_lengths_evenly() {
    let scratch = Scratch::with(TINY);
    let overrides = ["task.test_rows=5000", "task.alphabet=9"].map(str::to_owned);
    let plan = plan(&scratch.config, &overrides).unwrap();
    let task = build_task(&plan.runs[0].job, &[9]).unwrap();
    let rows = TestRows::new(task.as_ref(), (Some(5), 9), 0);
    assert_eq!((rows.count(), rows.by_length()), (5000, &drawn(5, 9, 5000)));
    for (length, count) in rows.by_length() {
        // Five standard deviations are 141.
        assert!(
            (5..=9).contains(length) && (860..=1140).contains(count),
            "{rows:?}"
        );
    }
    let mut made: BTreeMap<usize, Vec<i32>> = BTreeMap::new();
    for (length, _, _, batch) in rows.clone().batches(task.as_ref(), 4096) {
        assert!(batch.rows * batch.seq_len <= 4096 && batch.seq_len == task.seq_len(length));
        made.entry(length).or_default().extend(&batch.inputs);
    }
    for (length, count) in rows.by_length() {
        assert!(made[length] == task.test_batch(*length, 0, *count).inputs);
    }
    // Strings of one or two bits are few: their rows come again, and are counted once.
    let few = TestRows::new(task.as_ref(), (Some(1), 9), 0);
    let short = few.by_length()[&1];
    assert!(short > 100 && task.test_rows(1) == 9);
    let distinct = few.distinct(task.as_ref()).unwrap();
    assert!(distinct < 5000 - 100, "{distinct}");
}

#[test]
fn ranges_are_scored_while_training_and_evaluated_later() {
    let scratch = Scratch::with(TINY);
    let during = [
        "eval.every=3",
        "eval.during=[\"5..9\"]",
        "axes.\"model.pe\"=[{kind=\"rope\"}]",
    ];
    scratch.trains(&[&RANGED[..], &during].concat());
    let record: RunRecord = serde_json::from_slice(&scratch.records()[0].1).unwrap();
    for at in &record.train.scores {
        assert_eq!((at.rows.len(), at.rows[0].from_len), (1, Some(5)));
    }
    let place = scratch.runs().join("tiny");
    let eval = |lengths: &str| command("eval", &place, &["--lengths", lengths, "--json"]);
    exits(&eval("10..12,16"), 0);
    let out = scratch.directory.path().join("out");
    let arguments = ["--out", out.to_str().unwrap()];
    exits(&command("report", &scratch.runs(), &arguments), 0);
    let page = std::fs::read_to_string(out.join("report.md")).unwrap();
    for heading in ["| 5..9 |", "| 10..12 |"] {
        has(&page, heading);
    }
    for (lengths, said) in [
        (
            "9",
            "--lengths 9: the run was tested at another length or range that ends at 9",
        ),
        (
            "6..9",
            "--lengths 6..9: the run was tested at another length",
        ),
        ("12..10", "ends below its beginning"),
    ] {
        fails(&eval(lengths), 2, said);
    }
    exits(&command("verify", &scratch.runs(), &[]), 0);
}

#[test]
fn every_length_of_a_range_is_checked() {
    let scratch = Scratch::with(TINY);
    // Words of odd length are not in (ab)*, and 12 and 40 are even.
    let language = "task={kind=\"automaton\",language=\"ab_star\",test_rows=8}";
    let check = |lens: &str| {
        let lens = format!("eval.test_lens={lens}");
        scratch.longreach("check", &[language, "train.train_len=10", &lens])
    };
    let odd = check("[\"2..10\",\"12..40\"]");
    fails(&odd, 2, "asks nothing at length 3");
    exits(&check("[10,12]"), 0);
    // A later evaluation is checked at the lower end too.
    let data = "task={kind=\"selective_copy\",data=4,test_rows=8}";
    let more = [
        "seeds=[0]",
        "train.train_len=6",
        "eval.test_lens=[6]",
        "axes.\"model.pe\"=[{kind=\"alibi\"}]",
    ];
    scratch.trains(&[&[data], &more[..]].concat());
    let place = scratch.runs().join("tiny");
    let eval = |lengths: &str| command("eval", &place, &["--lengths", lengths]);
    fails(&eval("2..9"), 2, "--lengths 2..9: ");
    exits(&eval("5..9"), 0);
}

/// A table has one column for both.
#[test]
fn an_evaluation_over_another_range_with_the_same_end_is_refused() {
    let scratch = Scratch::with(TINY);
    let two = [
        "seeds=[0]",
        "eval.variants=[]",
        "axes={\"train.train_len\"=[4,5]}",
    ];
    scratch.trains(&two);
    let experiment = scratch.runs().join("tiny");
    let eval = |place: &Path, arguments: &[&str]| {
        let mut program = longreach();
        program.arg("eval").args(arguments).current_dir(place);
        program.output().unwrap()
    };
    let short = [".", "--where", "train.train_len=4", "--lengths"];
    let over = eval(&experiment, &[&short[..], &["7..9"]].concat());
    exits(&over, 0);
    says(&over, "length 7..9");
    let records = scratch.records();
    let runs = records.iter().map(|(path, bytes)| {
        let record: RunRecord = serde_json::from_slice(bytes).unwrap();
        (path, record)
    });
    let is_first =
        |(_, record): &(_, RunRecord)| record.task.train_len == 4 && record.evaluation_of.is_none();
    let (_, run) = runs.into_iter().find(is_first).unwrap();
    let id = &run.run_id;
    for (place, arguments) in [
        (experiment.join(id), vec![".", "--lengths", "9"]),
        (experiment.clone(), vec![id, "--lengths", "9"]),
        (experiment.clone(), [&short[..], &["9"]].concat()),
    ] {
        let refused = eval(&place, &arguments);
        fails(&refused, 2, "--lengths 9: ");
        says(&refused, "was over 7..9");
    }
    // The same again, and another training length, which is in another table.
    exits(&eval(&experiment, &[&short[..], &["7..9"]].concat()), 0);
    let other = [".", "--where", "train.train_len=5", "--lengths", "9"];
    exits(&eval(&experiment, &other), 0);
}

#[test]
fn mistakes_in_ranges() {
    let scratch = Scratch::with(TINY);
    let text = "the quick brown fox jumps over the lazy dog; ".repeat(9);
    scratch.write("a.txt", text);
    let printed = |arguments: &[&str]| {
        let output = scratch.longreach("check", arguments);
        exits(&output, 2);
        format!("# {}\n{}", arguments.join(" "), stderr(&output))
    };
    let text = "task={kind=\"text\",files=[\"a.txt\"],split={by=\"range\",valid_fraction=0.5}}";
    let all = [
        printed(&["eval.test_lens=[4,\"100..51\"]"]),
        printed(&["eval.test_lens=[100,\"51..100\"]"]),
        printed(&["eval.test_lens=[\"51..100\",\"51..100\"]"]),
        printed(&["eval.test_lens=[\"0..100\"]"]),
        printed(&["eval.test_lens=[\"7..7\"]"]),
        printed(&["eval.test_lens=[\"64\"]"]),
        printed(&["eval.test_lens=[\"1..9000000\"]"]),
        printed(&["eval.test_lens=[1.5]"]),
        printed(&["eval.test_lens=[[\"4..8\"]]"]),
        printed(&[
            "eval.test_lens=[4,\"5..9\"]",
            "eval.every=2",
            "eval.during=[9]",
        ]),
        printed(&[text, "eval.test_lens=[4,\"5..8\"]"]),
        // The help fits a number that is too large as well.
        printed(&["train.steps=9223372036854775807"]),
    ];
    insta::assert_snapshot!(all.join("\n"));
    let shown = scratch.longreach("check", &["eval.test_lens=[4,\"5..9\"]", "--json"]);
    exits(&shown, 0);
    shows(&shown, "\"test_len\": 9");
}
