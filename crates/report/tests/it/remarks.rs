//! Remarks on methods in the leading table: seals, programs, and scalings that were replaced.

use crate::common::{MustHave, describe, ok_row, record, text_task};
use longreach_report::{ReportSpec, report};
use records::RunRecord;
use serde_json::{Value, json};

/// Two methods over three seeds, sealed.
fn sealed() -> Vec<RunRecord> {
    let mut out = Vec::new();
    for (pe, loss) in [("alibi", 1.4), ("rope", 1.5)] {
        for seed in 0..3 {
            let mut run = record("marked", &[("model.pe", json!(pe))], seed, text_task(32));
            let loss = loss + 0.01 * seed as f64;
            let lengths = [32, 64].into_iter();
            run.evals = lengths
                .map(|len| ok_row("trained", len, &[("loss_nats", loss)]))
                .collect();
            describe(&mut run);
            run.set_seal(format!("{seed:064x}"));
            out.push(run);
        }
    }
    out
}

/// The names in the leading table, its caption, and the whole report.
fn shown(records: &[RunRecord]) -> (Vec<String>, String, String) {
    let spec = ReportSpec {
        ..ReportSpec::default()
    };
    let report = report(records, &[], &spec).unwrap();
    let markdown = String::from_utf8(report.file("report.md").unwrap().to_vec()).unwrap();
    let rows = markdown
        .lines()
        .skip_while(|line| !line.starts_with("| method"));
    let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
    let name = |row: &str| {
        row.trim_matches('|')
            .split(" | ")
            .next()
            .unwrap()
            .trim()
            .to_owned()
    };
    let names = rows.map(name).collect();
    // What a caption says, the terminal says too.
    (names, report.summary, markdown.replace('\\', ""))
}

#[test]
fn records_alike_have_no_remark() {
    let (names, summary, markdown) = shown(&sealed());
    assert_eq!(names, ["alibi", "rope"]);
    assert!(
        !summary.contains("[a]") && !markdown.contains("[a]"),
        "{summary}"
    );
    assert!(!markdown.contains("seals"), "{markdown}");
}

#[test]
fn a_seal_that_is_missing_or_broken_is_said_in_the_row() {
    // The loss of one seed is halved, and its seal removed.
    let mut records = sealed();
    records[4].evals[1]
        .metrics
        .get_mut("loss_nats")
        .unwrap()
        .value /= 2.0;
    let mut removed = records.clone();
    removed[4].seal = None;
    let (names, summary, markdown) = shown(&removed);
    assert_eq!(names[0], "alibi");
    assert!(
        names[1].starts_with("rope ") && names[1].contains("[a"),
        "{names:?}"
    );
    let said = "[a] 1 of 3 records without a seal, so that an edit would not show.";
    summary.must_have(said);
    markdown.must_have(said);
    markdown.must_have("1 of 6 records have none");
    // The seal that was left in place does not fit.
    let (names, summary, _) = shown(&records);
    assert!(names[1].contains("[a"), "{names:?}");
    summary.must_have("[a] 1 of 3 records changed after it was written: its seal does not fit.");
}

#[test]
fn where_no_record_has_a_seal_the_conditions_say_it_once() {
    let mut records = sealed();
    records.iter_mut().for_each(|record| record.seal = None);
    let (names, summary, markdown) = shown(&records);
    assert_eq!(names, ["alibi", "rope"]);
    assert!(!summary.contains("[a]"), "{summary}");
    markdown.must_have("6 of 6 records have none");
}

#[test]
fn records_of_another_program_are_said_in_the_row() {
    let with = |of: std::ops::Range<usize>, change: fn(&mut RunRecord)| {
        let mut records = sealed();
        records[of]
            .iter_mut()
            .for_each(|record| record.change(change));
        shown(&records)
    };
    let (names, summary, _) = with(3..4, |record| {
        record.environment.commit = "fedcba9876543210".into();
    });
    assert!(names[1].contains("[a"), "{names:?}");
    assert_eq!(names[0], "alibi");
    summary.must_have("[a] has runs recorded by commit fedcba987, most others by commit 0123abc.");
    let (_, summary, _) = with(0..2, |record| {
        record.environment.device = "cuda".into();
        record.environment.burn = "0.23.0".into();
    });
    summary.must_have("[a] has runs recorded by Burn 0.23.0, cuda, most others by 0.22.1, cpu.");
    let (_, summary, _) = with(3..4, |record| {
        record.environment.burn = "none: pytorch 2.10.0+cu132".into();
    });
    summary.must_have("[a] has runs recorded by pytorch 2.10.0+cu132, most others by Burn 0.22.1.");
}

#[test]
fn a_variant_that_replaces_a_trained_scaling_is_said_in_its_row() {
    let mut records = sealed();
    let yarn = json!({ "kind": "yarn", "factor": 4.0 });
    for record in &mut records[3..] {
        record.change(|record| {
            let extra: Vec<_> = record.evals.clone();
            record.evals.extend(extra.into_iter().map(|mut row| {
                row.variant = "ntk".into();
                row
            }));
            record.spec["model"]["pe"]["scaling"] = yarn.clone();
            describe(record);
        });
    }
    let (names, summary, _) = shown(&records);
    assert_eq!(names[..2], ["alibi".to_owned(), "rope".to_owned()]);
    assert!(names[2].starts_with("rope + ntk "), "{names:?}");
    summary.must_have("[a] trained under the scaling yarn, evaluated under ntk.");
    // Without a trained scaling a variant replaces none.
    for record in &mut records[3..] {
        record.change(|record| {
            record.spec["model"]["pe"]["scaling"] = Value::Null;
            describe(record);
        });
    }
    assert!(!shown(&records).1.contains("[a]"));
}
