//! Comparison of two sets of records: what is equal, what differs, and by how much.

use crate::common::*;
use records::RunRecord;
use records::compare::{Closeness, Comparison, disagreement};

fn pair() -> (Vec<RunRecord>, Vec<RunRecord>) {
    (text_experiment(), text_experiment())
}

#[test]
fn a_repetition_by_another_build_is_identical_in_any_order() {
    let (a, mut b) = pair();
    b.reverse();
    for record in &mut b {
        record.environment.commit = "another".into();
        record
            .evals
            .iter_mut()
            .for_each(|row| row.thin_positions(1));
    }
    let compared = Comparison::of(&a, &b);
    assert!(compared.is_identical(), "{compared}");
    assert_eq!(
        compared.to_string(),
        format!("{0} of {0} runs in both are identical", a.len())
    );
}

#[test]
fn every_difference_is_named_with_its_size() {
    let (a, mut b) = pair();
    b[0].model.weights_blake3 = hex("others");
    let loss = b[0].evals[0].metrics.get_mut("loss_nats").unwrap();
    let before = loss.value;
    loss.value += 0.25;
    b[1].train.final_loss_nats = Some(9.0);
    let gone = b.pop().unwrap();
    let compared = Comparison::of(&a, &b);
    assert!(!compared.is_identical());
    assert_eq!(
        (compared.identical, compared.different.len()),
        (a.len() - 3, 2)
    );
    assert_eq!(compared.largest["loss_nats"], [before, before + 0.25]);
    let said = compared.to_string();
    for part in [
        "weights, 1 scores",
        "training loss",
        "only in the first",
        &gone.run_id,
        "largest change of loss_nats",
    ] {
        said.must_have(part);
    }
    let back = Comparison::of(&b, &a);
    assert_eq!((back.only_first.len(), back.only_second.len()), (0, 1));
    // A later evaluation is named by its id and the run whose weights it scored.
    let mut later = a[0].clone();
    let id = hex("later")[..16].to_owned();
    later.run_id.clone_from(&id);
    later.evaluation_of = Some(a[0].run_id.clone());
    let more = [a.clone(), vec![later]].concat();
    let said = Comparison::of(&a, &more).to_string();
    said.must_have(&format!("({id}, later evaluation of {})", a[0].run_id));
    // And it is no run.
    let n = a.len();
    let both = format!("{n} of {n} runs and 1 of 1 later evaluations in both are identical");
    assert_eq!(Comparison::of(&more, &more).to_string(), both);
    let said = Closeness::of(&more, &more, 0.0).to_string();
    said.must_have(&format!(
        "of {n} runs and 1 later evaluations, {} without",
        n + 1
    ));
}

#[test]
fn what_is_recorded_beside_the_scores_is_compared() {
    let block = |losses: &[f64]| {
        let mut records = text_experiment();
        records[0].evals[0].loss_by_block = losses.to_vec();
        records
    };
    let first = block(&[1.0, 2.0]);
    type Edit = fn(&mut RunRecord);
    let edits: [(Edit, &str); 4] = [
        (|run| run.evals[0].loss_by_block.swap(0, 1), "by block"),
        (
            |run| run.evals[0].loss_by_position[0].loss_nats += 1.0,
            "position",
        ),
        (
            |run| {
                run.evals[0]
                    .metrics
                    .values_mut()
                    .for_each(|metric| metric.n += 1)
            },
            "counts",
        ),
        (|run| run.train.steps += 500, "training loss"),
    ];
    for (edit, said) in edits {
        let mut second = first.clone();
        edit(&mut second[0]);
        let compared = Comparison::of(&first, &second);
        assert!(!compared.is_identical());
        compared.different[0].what.join(" ").must_have(said);
        assert!(disagreement(&first[0], &second[0]).is_some(), "{said}");
    }
    // Records of versions without blocks agree with those that have them.
    assert!(Comparison::of(&first, &block(&[])).is_identical());
    let far = |edit: Edit| {
        let mut second = first.clone();
        edit(&mut second[0]);
        Closeness::of(&first, &second, 1e-3).is_within()
    };
    assert!(far(|_| ()));
    assert!(!far(|run| run.train.steps += 500));
    assert!(!far(|run| run.train.final_loss_nats = Some(9.0)));
    assert!(!far(|run| run.model.parameters *= 2));
    assert!(!far(|run| run.evals[0].loss_by_block[0] = 9.0));
}

#[test]
fn nan_is_within_no_tolerance_in_whichever_run_it_is() {
    let (a, _) = pair();
    assert!(Closeness::of(&a, &a, 0.0).is_within());
    for run in 0..a.len() {
        let (_, mut b) = pair();
        b[run].train.loss_curve[0].loss_nats = f64::NAN;
        let compared = Closeness::of(&a, &b, f64::INFINITY);
        assert!(compared.largest().is_nan());
        assert!(!compared.is_within(), "NaN in run {run} passes");
    }
}

#[test]
fn a_seed_that_differs_is_named() {
    let first = text_experiment();
    let mut second = first.clone();
    second[0].seed = 77;
    let compared = Comparison::of(&first, &second);
    assert!(!compared.is_identical());
    assert_eq!(compared.different[0].what, ["seed"]);
}

#[test]
fn within_a_tolerance_only_runs_that_differ_are_listed() {
    let (a, mut b) = pair();
    b[1].train.loss_curve[3].loss_nats += 1e-6;
    let said = Closeness::of(&a, &b, 1e-3).to_string();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with(&a[1].title()), "{said}");
    let others = format!("of {} runs, {} without a difference;", a.len(), a.len() - 1);
    assert!(lines.len() == 2 && lines[1].contains(&others), "{said}");
}
