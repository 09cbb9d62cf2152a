//! Runs trained as one model, in this process: weights, moments and losses are those of each alone.

use crate::common::{Scratch, TINY};
use burn::tensor::Device;
use experiment::plan;
use experiment::plan::together::shape;
use experiment::run::task::build_task;
use experiment::run::train::{Member, Trained, TrainingStart, Watch, train_together};
use experiment::spec::Job;
use rundir::Weights;
use std::cell::RefCell;
use std::rc::Rc;
use tasks::Task;

/// What is seen of a run after a step.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    step: u64,
    loss: f64,
    lr: f64,
    grad_norm: f64,
    tokens: u64,
    weights: Weights,
    moments: [Weights; 2],
}

/// The jobs of a config of these overrides.
fn jobs(overrides: &[&str]) -> Vec<Job> {
    let scratch = Scratch::with(TINY);
    let overrides: Vec<String> = overrides.iter().map(|one| (*one).to_owned()).collect();
    let plan = plan(&scratch.config, &overrides).unwrap();
    plan.runs.into_iter().map(|run| run.job).collect()
}

/// Where a run starts, and the step after which its watch ends it.
#[derive(Default)]
struct Way {
    start: Option<TrainingStart>,
    leaves_after: Option<u64>,
}

/// Trains runs together; returns what was seen of each, and how it ended.
fn train(jobs: &[Job], ways: Vec<Way>) -> Vec<(Vec<Seen>, Trained)> {
    let tasks: Vec<Rc<dyn Task>> = jobs
        .iter()
        .map(|job| build_task(job, &job.spec.eval.test_lens).unwrap())
        .collect();
    let seen: Vec<RefCell<Vec<Seen>>> = jobs.iter().map(|_| RefCell::default()).collect();
    let parts = jobs.iter().zip(&tasks).zip(&seen).zip(ways);
    let members = parts.map(|(((job, task), seen), way)| {
        let watch: Box<Watch<'_>> = Box::new(move |step, snapshot| {
            let leaves = way.leaves_after == Some(step.step);
            seen.borrow_mut().push(Seen {
                step: step.step,
                loss: step.loss_nats,
                lr: step.lr,
                grad_norm: step.grad_norm,
                tokens: step.tokens,
                weights: snapshot.weights(),
                moments: snapshot.moments(),
            });
            Ok(!leaves)
        });
        Member {
            spec: &job.spec,
            task: task.as_ref(),
            start: way.start,
            watch,
        }
    });
    let trained = train_together(members.collect(), &Device::flex()).unwrap();
    let seen: Vec<Vec<Seen>> = seen.into_iter().map(RefCell::into_inner).collect();
    seen.into_iter().zip(trained).collect()
}

fn alone(job: &Job, way: Way) -> (Vec<Seen>, Trained) {
    train(std::slice::from_ref(job), vec![way]).remove(0)
}

fn ways(jobs: &[Job]) -> Vec<Way> {
    jobs.iter().map(|_| Way::default()).collect()
}

/// Trains the runs of a config together and each alone.
fn compare(overrides: &[&str], count: usize) {
    let jobs = jobs(overrides);
    assert_eq!(jobs.len(), count, "{overrides:?}");
    let first = shape(&jobs[0].spec);
    assert!(first.is_some(), "{overrides:?}");
    for job in &jobs {
        assert_eq!(shape(&job.spec), first, "{overrides:?}");
    }
    let together = train(&jobs, ways(&jobs));
    for (job, (seen, trained)) in jobs.iter().zip(together) {
        let (expected, expected_end) = alone(job, Way::default());
        let steps = job.spec.train.steps as usize;
        assert_eq!(seen.len(), steps);
        for (seen, expected) in seen.iter().zip(&expected) {
            assert_eq!(seen, expected, "{overrides:?}, {}", job.name());
        }
        assert_eq!(trained.final_loss_nats, expected_end.final_loss_nats);
        assert_eq!((trained.steps, trained.stopped), (steps as u64, false));
    }
}

const ROPE: &str = "axes.\"model.pe\"=[{kind=\"rope\"}]";

#[test]
fn seeds_train_as_they_do_alone() {
    compare(&["seeds=[0,1,2]", ROPE], 3);
    compare(
        &["seeds=[3,1]", "axes.\"model.pe\"=[{kind=\"learned\"}]"],
        2,
    );
    let stack = "{kind=\"stack\",parts=[{kind=\"t5\"},{kind=\"sinusoidal\",learnable_scale=true}]}";
    compare(&["seeds=[0,1]", &format!("axes.\"model.pe\"=[{stack}]")], 2);
}

#[test]
fn every_run_has_its_own_rate_and_clipping() {
    let rates = "axes.\"train.lr\"=[1e-2,1e-3]";
    compare(&["seeds=[0,1]", ROPE, rates], 4);
    // The first never clips, the last always does.
    let clips = "axes.\"train.grad_clip\"=[0.0,0.9,0.01]";
    compare(&["seeds=[0]", ROPE, clips], 3);
    let optimizers = "axes.\"train.adamw.weight_decay\"=[0.0,0.5]";
    compare(&["seeds=[0]", ROPE, optimizers], 2);
    let warm_ups = "axes.\"train.warmup_steps\"=[0,3]";
    compare(&["seeds=[0]", ROPE, warm_ups], 2);
}

#[test]
fn every_run_has_its_own_steps_draws_and_numbers_of_its_encoding() {
    compare(&["seeds=[0]", ROPE, "axes.\"train.steps\"=[2,6,4]"], 3);
    let bases = "axes.\"model.pe\"=[{kind=\"rope\",base=100.0},{kind=\"rope\",base=1e6}]";
    compare(&["seeds=[0,1]", bases], 4);
    compare(&["seeds=[0,1]", ROPE, "model.dropout=0.2"], 2);
    let drawn = "model.positions={kind=\"randomized\",max_position=64}";
    compare(&["seeds=[0,1]", ROPE, drawn], 2);
    compare(
        &[
            "seeds=[0,1]",
            ROPE,
            "model.tied_head=true",
            "model.norm=\"rms_norm\"",
        ],
        2,
    );
    compare(
        &[
            "seeds=[0,1]",
            ROPE,
            "model.activation=\"swiglu\"",
            "model.n_layers=2",
        ],
        2,
    );
    compare(&["seeds=[0,1]", ROPE, "model.biases=true"], 2);
}

#[test]
fn runs_may_begin_at_different_steps() {
    let jobs = jobs(&["seeds=[0,1,2]", ROPE]);
    let whole: Vec<_> = jobs
        .iter()
        .map(|job| alone(job, Way::default()).0)
        .collect();
    // After three steps, at the end, and at the beginning.
    let starts = [Some(3), Some(6), None];
    let start = |(seen, step): (&Vec<Seen>, Option<usize>)| Way {
        start: step.map(|step| TrainingStart {
            step: step as u64,
            learned: false,
            tokens: seen[step - 1].tokens,
            losses: seen[..step].iter().map(|seen| seen.loss).collect(),
            weights: seen[step - 1].weights.clone(),
            moments: seen[step - 1].moments.clone(),
        }),
        leaves_after: None,
    };
    let resumed = train(&jobs, whole.iter().zip(starts).map(start).collect());
    for ((seen, trained), (whole, step)) in resumed.iter().zip(whole.iter().zip(starts)) {
        assert_eq!(seen[..], whole[step.unwrap_or(0)..]);
        assert_eq!((trained.steps, trained.stopped), (6, false));
    }
}

#[test]
fn a_run_that_has_learned_takes_no_step_and_the_others_go_on() {
    let jobs = jobs(&["seeds=[0,1]", ROPE]);
    let whole: Vec<_> = jobs
        .iter()
        .map(|job| alone(job, Way::default()).0)
        .collect();
    let at = &whole[0][2];
    let start = TrainingStart {
        step: 3,
        learned: true,
        tokens: at.tokens,
        losses: whole[0][..3].iter().map(|seen| seen.loss).collect(),
        weights: at.weights.clone(),
        moments: at.moments.clone(),
    };
    let learned = Way {
        start: Some(start),
        leaves_after: None,
    };
    let trained = train(&jobs, vec![learned, Way::default()]);
    let [(first, ended), (second, _)] = &trained[..] else {
        panic!("two runs");
    };
    assert!(first.is_empty() && *second == whole[1]);
    assert_eq!((ended.steps, ended.tokens), (3, at.tokens));
}

#[test]
fn a_run_that_leaves_or_diverges_changes_nothing_for_the_others() {
    let rates = "axes.\"train.lr\"=[1e-3,1e9,1e-2,3e-3]";
    let jobs = jobs(&["seeds=[0]", ROPE, rates, "train.steps=12"]);
    assert_eq!(jobs.len(), 4);
    let way = |i: usize| Way {
        leaves_after: (i == 2).then_some(2),
        ..Way::default()
    };
    let together = train(&jobs, (0..4).map(way).collect());
    for (i, (job, (seen, trained))) in jobs.iter().zip(&together).enumerate() {
        let (expected, end) = alone(job, way(i));
        assert_eq!(*seen, expected, "{}", job.name());
        let ends = |trained: &Trained| {
            let diverged = trained.diverged.as_ref();
            let diverged = diverged.map(|(diverged, batch)| (diverged.clone(), batch.clone()));
            (trained.steps, trained.stopped, diverged)
        };
        assert_eq!(ends(trained), ends(&end), "{}", job.name());
        let weights = |trained: &Trained| experiment::run::parameters::of(&trained.model);
        assert_eq!(weights(trained), weights(&end), "{}", job.name());
    }
    let stopped: Vec<bool> = together.iter().map(|(_, end)| end.stopped).collect();
    assert_eq!(stopped, [false, false, true, false]);
    let diverged = together.iter().map(|(_, end)| end.diverged.is_some());
    assert_eq!(diverged.collect::<Vec<_>>(), [false, true, false, false]);
}

#[test]
fn an_error_of_one_watch_ends_all() {
    let jobs = jobs(&["seeds=[0,1]", ROPE]);
    let task = build_task(&jobs[0], &[4]).unwrap();
    let steps = RefCell::new(0);
    let member = |job, fails: bool| {
        let steps = &steps;
        let watch: Box<Watch<'_>> = Box::new(move |_, _| {
            *steps.borrow_mut() += 1;
            if fails {
                return Err(support::exit::Failure::resources("the disk is full"));
            }
            Ok(true)
        });
        Member {
            spec: job,
            task: task.as_ref(),
            start: None,
            watch,
        }
    };
    let members = vec![member(&jobs[0].spec, false), member(&jobs[1].spec, true)];
    let Err(failure) = train_together(members, &Device::flex()) else {
        panic!("a full disk is not a success");
    };
    assert_eq!(failure.message, "the disk is full");
    assert_eq!(*steps.borrow(), 2);
}
