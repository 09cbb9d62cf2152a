//! Stages that change the encoding: what carries over, what is drawn, and what is evaluated.

use crate::common::{Scratch, TINY, cases, command, exits, longreach, says, shows, stdout, words};
use burn::tensor::Device;
use experiment::plan;
use experiment::run::model::drawn_weights;
use experiment::run::task::build_task;
use experiment::run::train::{Trained, TrainingStart, train};
use experiment::spec::Job;
use records::RunRecord;
use records::record::EvalStatus;
use rundir::Weights;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const SEED: &str = "seeds=[0]";
const STAGED: &str = "train.length=\"staged\"";

fn axis(pe: &str) -> String {
    format!("axes.\"model.pe\"=[{pe}]")
}

/// Two stages of three steps.
fn stages(first: &str, second: &str) -> String {
    format!("train.stages=[{{steps=3,train_len=4{first}}},{{steps=3,train_len=4{second}}}]")
}

/// The only run that a config of these arguments plans.
fn planned(arguments: &[&str]) -> Job {
    let scratch = Scratch::with(TINY);
    let arguments: Vec<String> = [SEED, STAGED]
        .iter()
        .chain(arguments)
        .map(|argument| (*argument).to_owned())
        .collect();
    let mut plan = plan(&scratch.config, &arguments).unwrap();
    assert_eq!(plan.runs.len(), 1);
    plan.runs.remove(0).job
}

/// Weights and moments after every step, from `start` or from the beginning.
fn trained(
    job: &Job,
    start: Option<TrainingStart>,
) -> (Vec<(u64, Weights, [Weights; 2])>, Trained) {
    let task = build_task(job, &job.spec.eval.test_lens).unwrap();
    let mut states = Vec::new();
    let trained = train(
        &job.spec,
        task.as_ref(),
        &Device::flex(),
        start,
        &mut |step, snapshot| {
            states.push((step.step, snapshot.weights(), snapshot.moments()));
            Ok(true)
        },
    );
    (states, trained.unwrap())
}

#[test]
fn the_last_encoding_is_the_models_however_it_is_written() {
    let rope = axis("{kind=\"rope\"}");
    let nope = axis("{kind=\"nope\"}");
    let dropped = planned(&[&rope, &stages("", ",pe={kind=\"nope\"}")]);
    let prepended = planned(&[&nope, &stages(",pe={kind=\"rope\"}", "")]);
    assert_eq!(dropped.run_id, prepended.run_id);
    assert_eq!(dropped.spec.model.pe.kind(), "nope");
    let kinds = |job: &Job| [0, 2, 3, 5].map(|step| job.spec.encoding_at(step).kind());
    assert_eq!(kinds(&dropped), ["rope", "rope", "nope", "nope"]);
    // Naming the encoding that there is anyway changes no run.
    let plain = planned(&[&rope, &stages("", "")]);
    let named = planned(&[&rope, &stages(",pe={kind=\"rope\"}", "")]);
    assert_eq!(plain.run_id, named.run_id);
    assert!(
        plain
            .spec
            .train
            .stages
            .iter()
            .all(|stage| stage.pe.is_none())
    );
    // What is evaluated is under the last one, variants too.
    let eval = &dropped.spec.eval.variants;
    assert!(
        eval.iter()
            .flat_map(|variant| &variant.pe)
            .all(|pe| pe.kind() == "nope")
    );
}

#[test]
fn common_parameters_carry_over_and_new_ones_are_drawn_from_the_seed() {
    // Without a learning rate nothing moves but by the change.
    let still = ["train.lr=1e-12", "train.adamw.weight_decay=0.0"];
    let all = [
        &[
            &*axis("{kind=\"kerple\"}"),
            &stages("", ",pe={kind=\"learned\"}"),
        ],
        &still[..],
    ];
    let job = planned(&all.concat());
    let (states, _) = trained(&job, None);
    let table = "encoding.table";
    let drawn = drawn_weights(&job.spec, &job.spec.model.pe, &Device::flex()).unwrap();
    assert!(!states[2].1.0.contains_key(table) && states[2].1.count("encoding.") > 0);
    let after = &states[3].1;
    assert!(after.0.keys().eq(drawn.0.keys()), "{:?}", after.0.keys());
    for (path, tensor) in &drawn.0 {
        let pairs = tensor.values.iter().zip(&after.0[path].values);
        let far = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 1e-6, "{path}: {far}");
    }
}

#[test]
fn moments_carry_over_and_new_parameters_count_their_own_steps() {
    let plain = [
        "train.lr=1e-2",
        "train.final_lr=1.0",
        "train.warmup_steps=0",
        "train.adamw.weight_decay=0.0",
        "train.grad_clip=0.0",
    ];
    let all = [
        &[
            &*axis("{kind=\"kerple\"}"),
            &stages("", ",pe={kind=\"learned\"}"),
        ],
        &plain[..],
    ];
    let job = planned(&all.concat());
    let (states, _) = trained(&job, None);
    let ((_, _, before), (_, weights, after)) = (&states[2], &states[3]);
    assert!(before[0].0.keys().any(|path| path.starts_with("encoding.")));
    assert!(after[0].0.keys().eq(weights.0.keys()));
    // Second moments of what stays decay by beta2 at most; they would be far smaller anew.
    for (path, second) in &before[1].0 {
        let Some(now) = after[1].0.get(path) else {
            assert!(path.starts_with("encoding."), "{path} is gone");
            continue;
        };
        let pairs = second.values.iter().zip(&now.values);
        for (old, new) in pairs {
            assert!(*new >= 0.998 * old, "{path}: {old} became {new}");
        }
    }
    // The first step of Adam is the learning rate, whatever the gradient.
    let table = "encoding.table";
    let drawn = drawn_weights(&job.spec, &job.spec.model.pe, &Device::flex()).unwrap();
    let pairs = drawn.0[table].values.iter().zip(&weights.0[table].values);
    let moved: Vec<f32> = pairs
        .map(|(a, b)| (a - b).abs())
        .filter(|by| *by > 0.0)
        .collect();
    assert!(moved.len() > 64, "{}", moved.len());
    let largest = moved.iter().copied().fold(0.0, f32::max);
    assert!((0.009..0.0101).contains(&largest), "{largest}");
}

#[test]
fn a_training_that_is_cut_anywhere_ends_in_the_same_bits() {
    let changes = "train.stages=[{steps=2,train_len=4,pe={kind=\"learned\"}},{steps=2,train_len=4,\
                   pe={kind=\"kerple\"}},{steps=2,train_len=4,pe={kind=\"learned\"}}]";
    let job = planned(&[&axis("{kind=\"rope\"}"), changes]);
    let (states, whole) = trained(&job, None);
    let last = &states[5];
    for (step, weights, moments) in &states[..5] {
        let losses = whole.curve[..*step as usize]
            .iter()
            .map(|point| point.loss_nats);
        let start = TrainingStart {
            step: *step,
            learned: false,
            tokens: 0,
            losses: losses.collect(),
            weights: weights.clone(),
            moments: moments.clone(),
        };
        let (rest, _) = trained(&job, Some(start));
        let end = rest.last().unwrap();
        assert!(end.1 == last.1 && end.2 == last.2, "cut after step {step}");
    }
}

fn record(scratch: &Scratch) -> RunRecord {
    serde_json::from_slice(&scratch.records()[0].1).unwrap()
}

fn verified(run: &Path) {
    let output = command("verify", run, &["--retrain"]);
    exits(&output, 0);
    shows(&output, "nothing wrong");
}

#[test]
fn a_killed_worker_goes_on_from_the_encoding_of_its_checkpoint() {
    // The checkpoints that are left are of the first stage, or of the second.
    for boundary in [20, 1480] {
        let scratch = Scratch::with(TINY);
        let rest = 1500 - boundary;
        let stages = format!(
            "train.stages=[{{steps={boundary},train_len=4,pe={{kind=\"kerple\"}}}},{{steps={rest},\
             train_len=4}}]"
        );
        let learned = axis("{kind=\"learned\"}");
        let arguments = [SEED, STAGED, "train.steps=1500", &*learned, &*stages];
        scratch.trains(&arguments);
        let calm = scratch.first_run();
        let copy = scratch.directory.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        std::fs::copy(calm.join("job.json"), copy.join("job.json")).unwrap();
        let worker = || {
            let mut worker = longreach();
            worker
                .arg("worker")
                .arg(&copy)
                .args(["--checkpoint-every", "20"]);
            worker
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            worker
        };
        let mut child = worker().spawn().unwrap();
        let started = Instant::now();
        while std::fs::read_dir(copy.join("checkpoints")).map_or(0, Iterator::count) < 2 {
            assert!(
                child.try_wait().unwrap().is_none(),
                "it ended before it could be met"
            );
            assert!(started.elapsed() < Duration::from_secs(60), "no checkpoint");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(worker().status().unwrap().success());
        for file in ["record.json", "weights.safetensors", "steps.jsonl"] {
            let [a, b] = [&calm, &copy].map(|run| std::fs::read(run.join(file)).unwrap());
            assert!(a == b, "{file} differs, boundary {boundary}");
        }
    }
}

#[test]
fn scores_while_training_are_those_of_the_stage() {
    let scratch = Scratch::with(TINY);
    let rope = axis("{kind=\"rope\"}");
    // The table ends between the two test lengths.
    let short = stages(",pe={kind=\"learned\",max_position=12}", "");
    let arguments = [SEED, STAGED, "eval.every=3", &*rope, &*short];
    scratch.trains(&arguments);
    let record = record(&scratch);
    let at = |step: u64, test_len: usize| {
        let scores = record
            .train
            .scores
            .iter()
            .find(|at| at.step == step)
            .unwrap();
        let row = scores
            .rows
            .iter()
            .find(|row| row.test_len == test_len)
            .unwrap();
        row.status
    };
    assert_eq!(at(3, 4), EvalStatus::Ok);
    assert_eq!(at(3, 8), EvalStatus::Unsupported);
    assert_eq!(at(6, 8), EvalStatus::Ok);
    assert_eq!(record.model.encoding_parameters, 0);
    verified(&scratch.first_run());
}

#[test]
fn a_staged_training_starts_from_another_run_under_its_first_encoding() {
    let base = Scratch::with(TINY);
    let learned = axis("{kind=\"learned\",max_position=64}");
    base.trains(&[SEED, &*learned]);
    let from = format!("train.start_from={:?}", base.runs().display().to_string());
    let scratch = Scratch::with(TINY);
    let nope = axis("{kind=\"nope\"}");
    let begins = stages(",pe={kind=\"learned\",max_position=64}", "");
    scratch.trains(&[SEED, STAGED, &*nope, &*begins, &*from]);
    let job = std::fs::read_to_string(scratch.first_run().join("job.json")).unwrap();
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    assert_eq!(job["spec"]["train"]["start_from"]["pe"], true);
    verified(&scratch.first_run());
}

#[test]
fn the_largest_stage_decides_the_memory() {
    let scratch = Scratch::with(TINY);
    let memory = |stages: &str| {
        let rope = axis("{kind=\"rope\"}");
        let rows = stages.replace("train_len=4", "train_len=4,batch_size=512");
        let arguments = [SEED, STAGED, &*rope, &*rows, "--json"];
        let output = scratch.longreach("check", &arguments);
        exits(&output, 0);
        let said: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        said["runs"][0]["train_memory_bytes"].as_u64().unwrap()
    };
    let plain = memory(&stages("", ""));
    let first = memory(&stages(",pe={kind=\"dape\",part={kind=\"alibi\"}}", ""));
    let second = memory(&stages("", ",pe={kind=\"dape\",part={kind=\"alibi\"}}"));
    assert!(first > plain, "{first} {plain}");
    assert_eq!(first, second);
    assert_eq!(memory(&stages(",pe={kind=\"nope\"}", "")), plain);
}

#[test]
fn what_a_stage_changes_is_shown_with_its_place() {
    let scratch = Scratch::with(TINY);
    let table = std::fs::read_to_string(&scratch.config).unwrap();
    let table = table.split("[[eval.variants]]").next().unwrap();
    let written = table.replace(
        "batch_size = 4",
        "batch_size = 4\nlength = \"staged\"\nstages = [\n{ steps = 3, train_len = 4 },\n\
         { steps = 3, train_len = 4, pe = { kind = \"alibi\" } },\n]",
    );
    std::fs::write(&scratch.config, &written).unwrap();
    let mut show = longreach();
    show.args(["config", "show"]).arg(&scratch.config);
    let output = show.output().unwrap();
    exits(&output, 0);
    let line = 1 + written
        .lines()
        .position(|line| line.contains("alibi"))
        .unwrap();
    let said = stdout(&output);
    let shown = said
        .lines()
        .find(|text| text.starts_with("kind = \"alibi\""))
        .unwrap();
    assert!(shown.ends_with(&format!("x.toml:{line}")), "{shown}");
    // What is printed is a config of the same run.
    let [a, b] = [&written, &said].map(|config| {
        let scratch = Scratch::with(config);
        plan(&scratch.config, &[SEED.to_owned()]).unwrap().runs[0]
            .job
            .run_id
            .clone()
    });
    assert_eq!(a, b);
}

/// What the first stage says more, the second, and an argument; and what the message says.
const MISFITS: &str = r#"
,pe={kind="rop"} -> train.stages.0.pe.kind | did you mean `rope`
'' ,pe={kind="rope",base=-1} -> train.stages.1.pe.base | out of range
,pe={kind="rope",base=-1} -> train.stages.0.pe.base | out of range
,pe={kind="learned",max_position=4}
    -> train.stages.0.pe.max_position | set train.stages.0.pe.max_position to at least 10
,pe={kind="t5"} '' model.attention="linear"
    -> model.attention | the encoding is that of train.stages.0.pe
,pe={kind="on_axis",axis=0,part={kind="rope"}}
    -> model.coordinates | the encoding is that of train.stages.0.pe
,pe={kind="t5"} ,positions={kind="randomized_distances"}
    -> train.stages.1.positions.kind | the encoding is that of model.pe
,positions={kind="grid",sizes=[8]},pe={kind="on_axis",axis=1,part={kind="rope"}} '' eval.every=2
    -> model.coordinates | train.stages.0.pe, and eval.every scores it at model.positions
"#;

#[test]
fn encodings_that_do_not_fit_are_refused_at_their_stage() {
    let scratch = Scratch::with(TINY);
    for (case, parts) in cases(MISFITS) {
        let mut case = words(&case).into_iter();
        let [first, second] = [(); 2].map(|()| case.next().unwrap_or_default());
        let (pe, stages) = (axis("{kind=\"rope\"}"), stages(first, second));
        let mut arguments = vec![STAGED, &*pe, &*stages];
        arguments.extend(case);
        let output = scratch.longreach("check", &arguments);
        exits(&output, 2);
        parts.iter().for_each(|part| says(&output, part));
    }
}
