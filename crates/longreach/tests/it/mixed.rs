//! `train.length = "mixed"`: the loss of a padded batch is the mean over the counted tokens of its
//! rows, each computed alone.

use crate::common::{Scratch, TINY, command, exits, says};
use burn::tensor::Device;
use experiment::plan;
use experiment::plan::together::shape;
use experiment::run::model::{initial_model, rebuild, upload};
use experiment::run::step::{StepBatch, row_lengths};
use experiment::run::task::build_task;
use experiment::run::train::train;
use experiment::spec::Job;
use std::collections::BTreeSet;
use tasks::{Stream, Task};
use tiny_transformer::{Pass, Transformer};

const MIXED: [&str; 6] = [
    "seeds=[3]",
    "train.length=mixed",
    "train.train_len=6",
    "train.min_len=2",
    "train.batch_size=5",
    "train.steps=3",
];

fn planned(more: &[&str]) -> Job {
    let scratch = Scratch::with(TINY);
    let overrides = MIXED.iter().chain(more).map(|text| (*text).to_owned());
    let overrides: Vec<String> = overrides.collect();
    let plan = plan(&scratch.config, &overrides);
    plan.unwrap_or_else(|error| panic!("{more:?}: {error}"))
        .runs
        .remove(0)
        .job
}

/// The lengths of the rows of a step, drawn as the specification says.
fn lengths(job: &Job, step: u64) -> Vec<usize> {
    let mut stream = Stream::new(job.spec.seed, "train-row-lengths", step);
    (0..job.spec.train.batch_size)
        .map(|_| 2 + stream.below(5) as usize)
        .collect()
}

/// The mean over the counted tokens of the rows of a step, each row alone in its own length.
fn slow_loss(job: &Job, task: &dyn Task, model: &Transformer, step: u64) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    let mut stream = Stream::new(job.spec.seed, "positions", step);
    for (place, length) in lengths(job, step).into_iter().enumerate() {
        let row = task.train_batch(length, 1, job.spec.seed, step * 5 + place as u64);
        assert_eq!((row.rows, row.seq_len), (1, task.seq_len(length)));
        let sampler = &job.spec.model.positions;
        let positions = sampler.sample(row.seq_len, &mut |bound| stream.below(bound));
        let positions = job.spec.model.coordinates.of(task, length, &row, positions);
        let (inputs, targets) = upload(&row, &Device::flex());
        let (nll, _) = model.nll(inputs, targets, &positions, &Pass::default());
        let nll = nll
            .into_data()
            .convert::<f64>()
            .try_to_vec::<f64>()
            .unwrap();
        for (nll, _) in nll
            .iter()
            .zip(&row.counted)
            .filter(|(_, counted)| **counted)
        {
            sum += nll;
            count += 1;
        }
    }
    sum / f64::from(count)
}

#[test]
fn the_loss_of_a_mixed_batch_is_that_of_its_rows_alone() {
    let digits = "task={kind=\"addition\",operands=\"equal\",test_rows=8}";
    let coupled = "{kind=\"on_axis\",axis=1,part={kind=\"learned\",max_position=64}}";
    let one = |pe: &str| vec![format!("axes.\"model.pe\"=[{pe}]")];
    let mut all: Vec<Vec<String>> = [
        "{kind=\"nope\"}",
        "{kind=\"rope\"}",
        "{kind=\"learned\",max_position=40}",
        "{kind=\"alibi\"}",
        "{kind=\"t5\"}",
        "{kind=\"fire\"}",
        "{kind=\"cope\"}",
        "{kind=\"fox\"}",
        "{kind=\"path\"}",
        "{kind=\"stick_breaking\"}",
        "{kind=\"shaw\"}",
    ]
    .map(one)
    .into();
    let drawn = [
        (
            "{kind=\"learned\",max_position=40}",
            "{kind=\"random_offset\",max_position=40}",
        ),
        (
            "{kind=\"rope\"}",
            "{kind=\"random_offset\",max_position=40}",
        ),
        (
            "{kind=\"learned\",max_position=40}",
            "{kind=\"randomized\",max_position=40}",
        ),
        ("{kind=\"rope\"}", "{kind=\"randomized\",max_position=40}"),
        ("{kind=\"nope\"}", "{kind=\"randomized\",max_position=40}"),
        (
            "{kind=\"sinusoidal\"}",
            "{kind=\"randomized\",max_position=40}",
        ),
        (
            "{kind=\"alibi\"}",
            "{kind=\"randomized_distances\",max_distance=40}",
        ),
        ("{kind=\"rope\"}", "{kind=\"pose\",max_position=40}"),
    ];
    let drawn = drawn.map(|(pe, positions)| {
        let positions = format!("model.positions={positions}");
        [one(pe), vec![positions]].concat()
    });
    all.extend(drawn);
    let more = [digits, "model.coordinates=task"].map(str::to_owned);
    all.push([one(coupled), more.to_vec()].concat());
    let linear = "model.attention=linear".to_owned();
    all.push([one("{kind=\"rope\"}"), vec![linear]].concat());
    for case in all {
        let case: Vec<&str> = case.iter().map(String::as_str).collect();
        let job = planned(&case);
        let task = build_task(&job, &job.spec.eval.test_lens).unwrap();
        let device = Device::flex();
        let mut model = initial_model(&job.spec, &device).unwrap();
        let mut tokens = 0;
        train(
            &job.spec,
            task.as_ref(),
            &device,
            None,
            &mut |done, snapshot| {
                let step = done.step - 1;
                let expected = slow_loss(&job, task.as_ref(), &model, step);
                assert!(
                    (done.loss_nats - expected).abs() < 2e-5 * expected.max(1.0),
                    "{case:?}, step {step}: {} and {expected}",
                    done.loss_nats
                );
                // Padding is not a token.
                let read = lengths(&job, step).into_iter();
                tokens += read.map(|length| task.seq_len(length) as u64).sum::<u64>();
                assert_eq!(done.tokens, tokens);
                model =
                    rebuild(&job.spec, &job.spec.model.pe, &snapshot.weights(), &device).unwrap();
                Ok(true)
            },
        )
        .unwrap();
    }
}

#[test]
fn rows_draw_their_lengths_evenly_and_are_padded_at_their_end() {
    let job = planned(&[]);
    let task = build_task(&job, &job.spec.eval.test_lens).unwrap();
    let mut counts = [0_u32; 7];
    let mut rows = BTreeSet::new();
    for step in 0..2000 {
        let drawn = row_lengths(&job.spec, step);
        assert_eq!(drawn, lengths(&job, step));
        drawn.iter().for_each(|length| counts[*length] += 1);
        if step >= 100 {
            continue;
        }
        let made = StepBatch::new(&job.spec, task.as_ref(), step);
        // BOS, the string, SEP and the string again: the longest has 14 tokens.
        assert_eq!(made.shape(), [5, 14]);
        let batch = &made.batch;
        for (row, length) in drawn.iter().enumerate() {
            let end = 2 * length + 2;
            let (inputs, counted) = (&batch.inputs[row * 14..], &batch.counted[row * 14..]);
            assert!(inputs[end..14].iter().all(|id| *id == 0));
            // The answer and EOS.
            let answers = (0..14).map(|place| (length + 1..end).contains(&place));
            assert!(answers.eq(counted[..14].iter().copied()), "{length}");
            rows.insert((step, inputs[..14].to_vec()));
        }
    }
    assert_eq!(counts[..2], [0, 0]);
    for count in &counts[2..] {
        // 2000 expected; five standard deviations are 200.
        assert!((1800..=2200).contains(count), "{counts:?}");
    }
    // Rows of a step are drawn independently of each other: few are equal.
    assert!(rows.len() > 450, "{}", rows.len());
}

#[test]
fn a_short_row_begins_anywhere_that_it_fits() {
    let positions = "model.positions={kind=\"random_offset\",max_position=20}";
    // A relative encoding that reads the length sees where a row begins too.
    for pe in [
        "{kind=\"learned\",max_position=40}",
        "{kind=\"rope\",scaling={kind=\"dynamic_ntk\"}}",
    ] {
        let job = planned(&[positions, &format!("axes.\"model.pe\"=[{pe}]")]);
        begins_anywhere(&job);
    }
}

fn begins_anywhere(job: &Job) {
    let starts = |of: usize| -> BTreeSet<u64> {
        let steps = (0..400).flat_map(|step| {
            let lengths: Vec<usize> = lengths(job, step).iter().map(|n| 2 * n + 2).collect();
            let positions = job.spec.padded_positions(&lengths, 14, step);
            let rows: Vec<_> = positions.by_row().unwrap().collect();
            let starts = lengths.iter().zip(rows).filter(|(n, _)| **n == of);
            starts
                .map(|(n, row)| {
                    let places = row.keys();
                    assert!(places[..*n].windows(2).all(|pair| pair[1] == pair[0] + 1.0));
                    // What pads a row has the place of its end.
                    assert!(places[*n..].iter().all(|place| *place == places[n - 1]));
                    places[0] as u64
                })
                .collect::<Vec<_>>()
        });
        steps.collect()
    };
    assert_eq!(starts(6), (0..=14).collect());
    assert_eq!(starts(14), (0..=6).collect());
}

#[test]
fn a_mixed_run_is_verified_and_may_be_trained_beside_others() {
    let job = planned(&[]);
    assert!(shape(&job.spec).is_some());
    let scratch = Scratch::with(TINY);
    let arguments = [&MIXED[1..], &["seeds=[0,1]"]].concat();
    scratch.trains(&arguments);
    exits(&command("verify", &scratch.runs(), &["--retrain"]), 0);
}

#[test]
fn padding_is_refused_where_tokens_would_see_it() {
    let scratch = Scratch::with(TINY);
    let text = "the quick brown fox jumps over the lazy dog; ".repeat(9);
    scratch.write("a.txt", text);
    let output = scratch.longreach(
        "check",
        &[
            "task={kind=\"masked_text\",files=[\"a.txt\"],split={by=\"range\",valid_fraction=0.5}}",
            "model.mask=bidirectional",
            "axes.\"model.pe\"=[{kind=\"rope\"}]",
            "train.length=mixed",
        ],
    );
    exits(&output, 2);
    for part in [
        "train.length",
        "pads rows at their end",
        "allowed: fixed, uniform, staged",
    ] {
        says(&output, part);
    }
}
