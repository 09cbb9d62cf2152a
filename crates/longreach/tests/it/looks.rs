//! Runs at work have the colours of their lines in the report.

use crate::common::{Scratch, TINY, has, lacks, stdout};
use experiment::plan;
use records::RunRecord;
use records::analysis::looks::styles;
use records::palette::palette;
use std::collections::BTreeMap;

#[test]
fn runs_at_work_look_as_their_lines_in_the_report() {
    let scratch = Scratch::with(&format!("half_seeds = [0]\n{TINY}"));
    let planned = plan(&scratch.config, &[]).unwrap_or_else(|error| panic!("{error}"));
    scratch.trains(&[]);
    let of = |(_, bytes): &(_, Vec<u8>)| serde_json::from_slice(bytes).unwrap();
    let records: Vec<RunRecord> = scratch.records().iter().map(of).collect();
    let order = [planned.order.clone(), planned.variants.clone()].concat();
    let runs = planned.runs.iter().map(|run| run.job.unscored());
    let at_work = styles(&runs.collect::<Vec<_>>(), &order);
    assert_eq!(at_work, styles(&records, &order));
    let of_run = |run: &RunRecord| (run.labels[0].text.clone(), at_work[&run.run_id]);
    let by_method: BTreeMap<String, usize> = records.iter().map(of_run).collect();
    // The line between them is that of RoPE with YaRN.
    assert_eq!(
        by_method,
        BTreeMap::from([("rope".into(), 0), ("learned".into(), 2)])
    );
    let figure = scratch.runs().join("tiny/report/exact-match-by-length.svg");
    let figure = std::fs::read_to_string(figure).unwrap();
    let drawn = palette()
        .light
        .iter()
        .map(|color| figure.contains(color.as_str()));
    assert_eq!(drawn.collect::<Vec<_>>()[..4], [true, true, true, false]);
}

#[test]
fn lists_of_runs_name_methods_in_words() {
    let hybrid = "{ kind = \"by_layer\", parts = [{ kind = \"stack\", parts = [{ kind = \"rope\" }, \
                  { kind = \"window\", size = 4 }] }, { kind = \"nope\" }], pattern = [0, 0, 0, 1] }";
    let scratch = Scratch::with(&TINY.replace("{ kind = \"learned\" }", hybrid));
    let checked = stdout(&scratch.longreach("check", &["train.steps=5"]));
    for part in ["3 layers RoPE with", "window of 4, 1", "layer NoPE"] {
        has(&checked, part);
    }
    lacks(&checked, "by_layer");
    // Programs read the text of the label.
    let json = stdout(&scratch.longreach("check", &["--json"]));
    has(&json, "by_layer");
    lacks(&json, "3 layers");
}
