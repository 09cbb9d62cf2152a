//! Trainings in stages, and trainings that start from another run's weights.

use crate::common::{Scratch, TINY, cases, command, exits, fails, has, lacks, says, shows, stderr};
use std::path::{Path, PathBuf};

const ONE: &str = "axes.\"model.pe\"=[{kind=\"rope\"}]";

fn steps(run: &Path) -> Vec<serde_json::Value> {
    std::fs::read_to_string(run.join("steps.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_linear_schedule_falls_by_the_same_amount_every_step() {
    let scratch = Scratch::with(TINY);
    let spec = |overrides: &[&str]| {
        let fixed = ["train.lr=0.5", "train.steps=12", "train.warmup_steps=2"];
        let all = fixed.iter().chain(overrides);
        let all: Vec<String> = all.map(ToString::to_string).collect();
        let plan = experiment::plan(&scratch.config, &all).unwrap();
        plan.runs[0].job.spec.clone()
    };
    let linear = spec(&["train.schedule=\"linear\"", "train.final_lr=0.2"]).train;
    // Warm-up in two steps to 0.5, then ten steps that end at 0.1 after the last.
    let rates: Vec<f64> = (0..12).map(|step| linear.lr_at(step)).collect();
    let expected = [0.25, 0.5]
        .into_iter()
        .chain((0..10).map(|step| 0.5 - 0.04 * f64::from(step)));
    for (step, (found, expected)) in rates.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 1e-12, "step {step}: {found}");
    }
    // Half way down both schedules meet; before the cosine is above, after it below.
    let cosine = spec(&["train.final_lr=0.2"]).train;
    let middle = (cosine.lr_at(7) - linear.lr_at(7)).abs();
    assert!(middle < 1e-12, "half way they meet: {middle}");
    assert!(cosine.lr_at(4) > linear.lr_at(4) && cosine.lr_at(10) < linear.lr_at(10));
    scratch.trains(&[
        "seeds=[0]",
        ONE,
        "train.schedule=\"linear\"",
        "train.final_lr=0",
    ]);
    let logged: Vec<f64> = steps(&scratch.first_run())
        .iter()
        .map(|step| step["lr"].as_f64().unwrap())
        .collect();
    let expected: Vec<f64> = (0..6)
        .map(|step| 1e-3 * (1.0 - f64::from(step) / 6.0))
        .collect();
    assert_eq!(logged.len(), 6);
    for (found, expected) in logged.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-15, "{logged:?}");
    }
}

#[test]
fn stages_have_their_own_lengths_and_batches() {
    let scratch = Scratch::with(TINY);
    let stages = "train.stages=[{steps=2,train_len=2,batch_size=8},{steps=1,train_len=4},{steps=3,\
                  train_len=3,batch_size=1}]";
    let staged = ["seeds=[0]", ONE, "train.length=\"staged\"", stages];
    scratch.trains(&staged);
    let run = scratch.first_run();
    // How many tokens a row of a length has is the task's affair: a plain run of one row tells.
    let per_row = |length: u64| {
        let plain = Scratch::with(TINY);
        plain.trains(&[
            "seeds=[0]",
            ONE,
            "train.steps=1",
            "train.batch_size=1",
            &format!("train.train_len={length}"),
        ]);
        steps(&plain.first_run())[0]["tokens"].as_u64().unwrap()
    };
    let [two, three, four] = [2, 3, 4].map(per_row);
    let expected = [
        8 * two,
        16 * two,
        16 * two + 4 * four,
        16 * two + 4 * four + three,
        16 * two + 4 * four + 2 * three,
    ];
    let tokens: Vec<u64> = steps(&run)
        .iter()
        .map(|step| step["tokens"].as_u64().unwrap())
        .collect();
    assert_eq!(tokens[..5], expected);
    assert_eq!(tokens.len(), 6);
    exits(&command("verify", &run, &["--retrain"]), 0);
}

#[test]
fn stages_have_their_own_positions() {
    let train = |positions: &str| {
        let scratch = Scratch::with(TINY);
        let stages =
            format!("train.stages=[{{steps=3,train_len=4}},{{steps=3,train_len=4{positions}}}]");
        let learned = "axes.\"model.pe\"=[{kind=\"learned\",max_position=64}]";
        let staged = ["seeds=[0]", learned, "train.length=\"staged\"", &stages];
        scratch.trains(&staged);
        let run = scratch.first_run();
        let losses: Vec<f64> = steps(&run)
            .iter()
            .map(|step| step["loss_nats"].as_f64().unwrap())
            .collect();
        let job = std::fs::read_to_string(run.join("job.json")).unwrap();
        (losses, job)
    };
    let (plain, plain_job) = train("");
    let (same, _) = train(",positions={kind=\"contiguous\"}");
    let (moved, job) = train(",positions={kind=\"randomized\"}");
    assert_eq!(plain, same);
    assert_eq!(plain[..3], moved[..3], "the first stage is the same");
    assert_ne!(plain[3], moved[3], "the second has other positions");
    // Four times the training length in tokens, or the longest test.
    has(&job, "\"randomized\"");
    has(&job, "\"max_position\"");
    lacks(&plain_job, "randomized");
}

/// Stages, and what the message says of them.
const MISFITS: &str = r#"
[{steps=2,train_len=2},{steps=3,train_len=4}] -> train.stages | a hole of 1
[{steps=4,train_len=2},{steps=3,train_len=4}] -> train.stages | an overlap of 1
[{steps=6,train_len=2}] -> train.train_len | longer than every stage
[{steps=6,train_len=5}] -> train.stages.0.train_len | a whole number from 1 to 4
[{steps=0,train_len=4}] -> train.stages.0.steps | out of range
[{steps=6,train_len=4,batch_size=0}] -> train.stages.0.batch_size | out of range
[{steps=6,len=4}] -> train.stages | len
[] -> train.length | needs train.stages
[{steps=6,train_len=4,positions={kind="pose",max_position=3}}]
    -> train.stages.0.positions.max_position | leaves no room
[{steps=6,train_len=4,positions={kind="randomised"}}] -> train.stages | randomised
"#;

#[test]
fn stages_that_do_not_fit_are_refused_by_name() {
    let scratch = Scratch::with(TINY);
    for (stages, parts) in cases(MISFITS) {
        let stages = format!("train.stages={stages}");
        let output = scratch.longreach("check", &["train.length=\"staged\"", &stages]);
        exits(&output, 2);
        parts.iter().for_each(|part| says(&output, part));
    }
    let output = scratch.longreach("check", &["train.stages=[{steps=6,train_len=4}]"]);
    fails(&output, 2, "length = \"staged\"");
}

#[test]
fn a_training_starts_from_another_runs_weights_under_another_encoding() {
    let base = Scratch::with(TINY);
    base.trains(&[
        "seeds=[0,1]",
        // A run with half the steps is there too, and is not the one that is meant.
        "half_seeds=[0]",
        "axes.\"model.pe\"=[{kind=\"sinusoidal\"}]",
    ]);
    let from = format!("train.start_from={:?}", base.runs().display().to_string());
    let scratch = Scratch::with(TINY);
    let warm = [
        "seeds=[0,1]",
        ONE,
        &from,
        "train.lr=1e-12",
        "train.warmup_steps=0",
        "train.adamw.weight_decay=0.0",
    ];
    scratch.trains(&warm);
    // With next to no learning rate the weights stay what they were: those of the run of the same
    // seed.
    for (path, _) in scratch.records() {
        let ours = scratch.runs().join(path.parent().unwrap());
        let job: serde_json::Value =
            serde_json::from_slice(&std::fs::read(ours.join("job.json")).unwrap()).unwrap();
        let theirs = PathBuf::from(job["start_dir"].as_str().unwrap());
        let their_job: serde_json::Value =
            serde_json::from_slice(&std::fs::read(theirs.join("job.json")).unwrap()).unwrap();
        assert_eq!(job["spec"]["seed"], their_job["spec"]["seed"]);
        assert!(their_job["half_of"].is_null());
        assert_eq!(
            job["spec"]["train"]["start_from"]["run_id"],
            their_job["run_id"]
        );
        let [ours, theirs] = [&ours, &theirs].map(|run| {
            rundir::Weights::from_bytes(&std::fs::read(run.join("weights.safetensors")).unwrap())
                .unwrap()
        });
        assert_eq!(
            ours.0.keys().collect::<Vec<_>>(),
            theirs.0.keys().collect::<Vec<_>>()
        );
        for (path, tensor) in &ours.0 {
            let far = tensor
                .values
                .iter()
                .zip(&theirs.0[path].values)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f32::max);
            assert!(far < 1e-6, "{path}: {far}");
        }
    }
    let verified = command("verify", &scratch.runs(), &["--retrain"]);
    exits(&verified, 0);
    shows(&verified, "2 runs verified: nothing wrong");
    // An experiment may start from its own runs, again and again.
    let own = format!("train.start_from={:?}", scratch.runs().join("own"));
    let first = ["name=\"own\"", "seeds=[0]", ONE];
    scratch.trains(&first);
    let second = [&first[..], &[&own]].concat();
    scratch.trains(&second);
    let again = scratch.longreach("check", &second);
    exits(&again, 0);
    shows(&again, "to do: 0 runs");
    // Another start is another run.
    says(&scratch.longreach("run", &["seeds=[0,1]", ONE]), "2 to do");
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one story: every step builds on the one before"
)]
fn starts_that_cannot_work_are_refused_by_name() {
    let base = Scratch::with(TINY);
    base.trains(&["seeds=[0]"]);
    let scratch = Scratch::with(TINY);
    let from = format!("train.start_from={:?}", base.runs().display().to_string());
    let one_of_two = format!(
        "train.start_from={:?}",
        base.runs()
            .join(&base.records()[0].0)
            .parent()
            .unwrap()
            .display()
            .to_string()
    );
    let gone = Scratch::with(TINY);
    let far = ["seeds=[0]", "train.lr=1e9", "train.steps=30", ONE];
    exits(&gone.longreach("run", &far), 5);
    let diverged = format!("train.start_from={:?}", gone.runs().display().to_string());
    for (arguments, said) in [
        (
            vec!["seeds=[0]", from.as_str()],
            "holds 2 recorded runs of seed 0",
        ),
        (
            vec!["seeds=[1]", &one_of_two],
            "holds 0 recorded runs of seed 1",
        ),
        (
            vec!["seeds=[0]", &one_of_two, "model.d_model=32"],
            "d_model is 16 there and 32 here",
        ),
        (
            vec!["seeds=[0]", &one_of_two, "model.n_layers=2"],
            "n_layers is 1 there and 2 here",
        ),
        (
            vec!["seeds=[0]", &one_of_two, "task.alphabet=5"],
            "vocab_size",
        ),
        (
            vec!["seeds=[0]", &one_of_two, "model.norm=\"rms_norm\""],
            "norm is different there",
        ),
        (
            vec!["seeds=[0]", "train.start_from=\"nowhere\""],
            "gives no weights: failed to read directory",
        ),
        (vec!["seeds=[0]", &diverged], "of seed 0, diverged at step"),
    ] {
        let output = scratch.longreach("check", &arguments);
        let unusable = stderr(&output).contains("gives no weights");
        exits(&output, if unusable { 3 } else { 2 });
        assert!(
            stderr(&output).contains("train.start_from") && stderr(&output).contains(said),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
    // Weights that were changed since are found before the first step.
    let arguments = ["seeds=[0]", ONE, one_of_two.as_str()];
    let weights = base
        .runs()
        .join(&base.records()[0].0)
        .with_file_name("weights.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    for command in ["check", "run"] {
        let output = scratch.longreach(command, &arguments);
        fails(&output, 3, "does not hold the weights of its record");
        says(&output, "train.start_from");
    }
    assert!(scratch.records().is_empty());
}

#[test]
fn decay_of_matrices_leaves_vectors_alone() {
    let scratch = Scratch::with(TINY);
    let trained = |adamw: &str| {
        let adamw = format!("train.adamw={adamw}");
        let fixed = [
            "seeds=[0]",
            ONE,
            "train.steps=1",
            "train.warmup_steps=0",
            "train.lr=0.01",
        ];
        let overrides: Vec<String> = fixed
            .iter()
            .map(ToString::to_string)
            .chain([adamw])
            .collect();
        let plan = experiment::plan(&scratch.config, &overrides).unwrap();
        let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
        scratch.trains(&overrides);
        let run = scratch.runs().join("tiny").join(&plan.runs[0].job.run_id);
        let bytes = std::fs::read(run.join("weights.safetensors")).unwrap();
        rundir::Weights::from_bytes(&bytes).unwrap()
    };
    let [none, all, matrices] = [
        "{weight_decay=0.0}",
        "{weight_decay=10.0}",
        "{weight_decay=10.0,decay=\"matrices\"}",
    ]
    .map(trained);
    let mut vectors = 0;
    for (path, tensor) in &matrices.0 {
        let is_vector = tensor.shape.len() == 1;
        let same = if is_vector { &none } else { &all };
        assert_eq!(tensor.values, same.0[path].values, "{path}");
        // A norm's shift starts at 0, and 0 decays to 0.
        let differs = none.0[path].values != all.0[path].values;
        assert!(differs || is_vector, "{path}");
        vectors += usize::from(is_vector && differs);
    }
    assert!(vectors > 0, "norms decay under `all`");
}
