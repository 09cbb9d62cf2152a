//! Runs with half the steps and runs of selection sweeps: what they show, and that they are counted
//! nowhere else.

use crate::common::*;
use longreach_report::{
    ComparisonSpec, Format, Report, ReportError, ReportSpec, ScoreComparison, report,
};
use records::analysis::looks::styles;
use records::claims::{Claims, Verdict};
use records::record::{Label, RunRecord};
use serde_json::json;
use std::collections::BTreeSet;

fn text(report: &Report, name: &str) -> String {
    String::from_utf8(report.file(name).unwrap().to_vec()).unwrap()
}

fn spec(formats: &[Format]) -> ReportSpec {
    ReportSpec {
        title: "Long enough?".into(),
        formats: formats.iter().copied().collect(),
        ..ReportSpec::default()
    }
}

/// The same run with half the steps, its losses higher by `more` nats.
fn half(run: &RunRecord, more: f64) -> RunRecord {
    let mut half = run.clone();
    half.half_of = Some(run.run_id.clone());
    half.run_id = hex(&format!("half of {}", run.run_id));
    half.train.steps /= 2;
    half.spec["train"]["steps"] = 1000.into();
    for row in &mut half.evals {
        for (name, metric) in &mut row.metrics {
            if name == "loss_nats" {
                metric.value += more;
            } else {
                metric.value -= more;
            }
        }
    }
    half
}

/// A run of a selection sweep for a result.
fn selection(run: &RunRecord) -> RunRecord {
    let mut sweep = run.clone();
    sweep.seed += 100;
    sweep.spec["seed"] = sweep.seed.into();
    sweep.run_id = hex(&format!("selection {}", run.run_id));
    sweep.spec["eval"]["rows"] = "selection".into();
    sweep
}

/// Results; with their halves (rope moves by 0.05 nats, alibi by 0.01 and 0.02 by seed, NoPE has no
/// halves) and with runs of a selection sweep.
fn both() -> (Vec<RunRecord>, Vec<RunRecord>) {
    let is_used = |r: &RunRecord| ["rope", "alibi", "nope"].contains(&r.labels[0].text.as_str());
    let results: Vec<RunRecord> = text_experiment().into_iter().filter(is_used).collect();
    let mut all = results.clone();
    for run in &results {
        match run.labels[0].text.as_str() {
            "rope" => all.push(half(run, 0.05)),
            "alibi" if run.seed < 3 => all.push(half(run, 0.01 * run.seed as f64)),
            _ => {}
        }
        all.push(selection(run));
    }
    (results, all)
}

#[test]
fn halves_that_are_scored_on_other_text_are_named() {
    let (_, mut all) = both();
    let page = |all: &[RunRecord]| {
        text(
            &report(all, &[], &spec(&[Format::Md])).unwrap(),
            "report.md",
        )
    };
    assert!(!page(&all).contains("Runs of half the steps are scored"));
    let mut titles = all
        .iter()
        .filter(|r| r.half_of.is_some())
        .map(RunRecord::title);
    assert!(titles.all(|title| title.contains(", half of the steps (")));
    let halves = all.iter_mut().filter(|run| run.half_of.is_some());
    for row in halves.flat_map(|run| &mut run.evals) {
        row.metrics.get_mut("loss_nats").unwrap().n = 5000;
    }
    let said =
        "Runs of half the steps are scored on 5,000 tokens of the text, the others on 4,096.";
    page(&all).must_have(said);
}

#[test]
fn a_score_at_its_floor_is_not_called_learned() {
    let note = |scores: [f64; 4]| {
        let runs = crate::common::scores(&[("a", &[scores; 2])]);
        let halves: Vec<RunRecord> = runs.iter().map(|run| half(run, 0.0)).collect();
        let all: Vec<RunRecord> = runs.into_iter().chain(halves).collect();
        report(&all, &[], &spec(&[])).unwrap().summary
    };
    assert!(!note([0.0; 4]).contains("still learning"));
    assert!(note([1.0; 4]).contains("No method is still learning"));
}

#[test]
fn a_narrow_terminal_gets_the_means_without_their_intervals() {
    let (results, _) = both();
    let of = |width| {
        let spec = ReportSpec { width, ..spec(&[]) };
        report(&results, &[], &spec).unwrap().summary
    };
    let whole = of(None);
    let table = |summary: &str| -> Vec<String> {
        let lines = summary.lines().skip_while(|line| !line.starts_with('─'));
        lines
            .take_while(|line| line.starts_with(['─', ' ']))
            .map(String::from)
            .collect()
    };
    let widest = table(&whole)
        .iter()
        .map(|line| line.chars().count())
        .max()
        .unwrap();
    assert_eq!(of(Some(widest)), whole);
    let narrow = of(Some(widest - 1));
    let rows = table(&narrow);
    assert_eq!(rows.len(), table(&whole).len());
    assert!(
        rows.iter()
            .all(|row| !row.contains('[') && row.chars().count() < widest)
    );
    narrow.must_have("intervals do not fit");
    // The means themselves stay.
    for (row, all) in rows.iter().zip(table(&whole)) {
        assert!(
            row.split_whitespace()
                .all(|word| word.starts_with('─') || all.contains(word))
        );
    }
}

#[test]
fn a_method_whose_score_moves_is_still_learning() {
    let (_, all) = both();
    let report = report(&all, &[], &spec(&[Format::Md, Format::Csv])).unwrap();
    insta::assert_snapshot!("learning.md", text(&report, "report.md"));
    insta::assert_snapshot!("summary", report.summary);
    // exp(-0.05) - 1 and exp(-0.015) - 1, from the losses alone.
    let summaries = text(&report, "summaries.csv");
    // What it is, and mean, half-width, low, high, n, runs and status.
    let row = |method: &str| -> Vec<String> {
        let lines = summaries
            .lines()
            .filter(|l| l.contains("still_learning") || l.contains("half_to"));
        let mut lines = lines.filter(|l| l.split(',').any(|cell| cell == method));
        let cells: Vec<String> = lines
            .next()
            .unwrap()
            .rsplitn(13, ',')
            .map(String::from)
            .collect();
        cells.into_iter().rev().collect()
    };
    let number = |text: &String| text.parse::<f64>().unwrap();
    let rope = row("rope");
    assert!(rope[0].ends_with("still_learning,"), "{rope:?}");
    assert!(
        (number(&rope[1]) - (-0.05f64).exp_m1()).abs() < 1e-12,
        "{rope:?}"
    );
    assert_eq!(rope[5..8], ["3", "3", "ok"]);
    let alibi = row("alibi");
    assert!(alibi[0].ends_with("half_to_all_steps,"), "{alibi:?}");
    assert!(
        (number(&alibi[1]) - (-0.015f64).exp_m1()).abs() < 1e-12,
        "{alibi:?}"
    );
    // t(0.975; 1) = 12.706, and the standard deviation of the two differences is 0.01 / sqrt(2).
    let half = 12.706_204_7 * 0.01 / 2f64.sqrt() / 2f64.sqrt();
    assert!(
        (number(&alibi[3]) - (-0.015 - half).exp_m1()).abs() < 1e-8,
        "{alibi:?}"
    );
    assert!(
        (number(&alibi[4]) - (-0.015 + half).exp_m1()).abs() < 1e-8,
        "{alibi:?}"
    );
    // The third run was not trained with half its steps, and does not count as missing.
    assert_eq!(alibi[5..8], ["2", "2", "ok"]);
}

#[test]
fn shares_move_by_a_difference() {
    let results = copy_experiment(2);
    let mut all = results.clone();
    all.extend(results.iter().map(|run| {
        half(
            run,
            if run.labels[0].text == "rope" {
                0.04
            } else {
                0.02
            },
        )
    }));
    let markdown = text(
        &report(&all, &[], &spec(&[Format::Md])).unwrap(),
        "report.md",
    );
    let wanted = "1 of 3 methods is still learning: from half the steps to all, exact_match at 16 \
                  moves by more than 0.03 for rope (+0.04";
    markdown.must_have(wanted);
}

/// A rate at the end of those tried is marked in its row, and the table says what the mark is.
#[test]
fn a_chosen_value_at_the_end_of_its_list_is_explained() {
    let of = |chosen: usize| {
        let mut records = text_experiment();
        let candidate = |rate: f64| {
            json!({ "values": [{ "key": "train.lr", "text": rate.to_string(), "value": rate }],
                    "runs": ["a"], "scores": [1.0] })
        };
        let candidates = [1e-4, 1e-3, 1e-2].map(candidate);
        let selected = json!({ "by": "loss_nats", "test_len": 64, "steps": 10, "seeds": [100],
                               "candidates": candidates, "chosen": chosen });
        for run in &mut records {
            run.selected = Some(serde_json::from_value(selected.clone()).unwrap());
        }
        text(
            &report(&records, &[], &spec(&[Format::Md])).unwrap(),
            "report.md",
        )
    };
    let note = "Edge: the smallest or the largest value tried.";
    let (inside, edge) = (of(1), of(2));
    assert!(!inside.contains(note), "{inside}");
    inside.must_have("rope \\[lr = 0.001\\]");
    edge.must_have(note);
    edge.must_have("rope \\[lr = 0.001, edge\\]");
}

/// Also where the value is part of the name, because methods differ in it.
#[test]
fn a_chosen_value_at_the_end_of_its_list_is_marked_in_names() {
    let mut records = Vec::new();
    let methods = text_experiment().into_iter();
    for run in methods.filter(|run| run.labels[0].text == "rope") {
        for (rate, chosen) in [(1e-3, 0), (1e-2, 1)] {
            let mut one = run.clone();
            one.run_id = hex(&format!("{} {rate}", run.run_id));
            one.spec["train"]["lr"] = json!(rate);
            let candidate = |rate: f64| {
                json!({ "values": [{ "key": "train.lr", "text": rate.to_string(), "value": rate }],
                        "runs": ["a"], "scores": [1.0] })
            };
            let candidates = [1e-3, 1e-2].map(candidate);
            let selected = json!({ "by": "loss_nats", "test_len": 64, "steps": 10,
                                   "seeds": [100], "candidates": candidates, "chosen": chosen });
            one.selected = Some(serde_json::from_value(selected).unwrap());
            records.push(one);
        }
    }
    let page = report(&records, &[], &spec(&[Format::Md])).unwrap();
    let page = text(&page, "report.md");
    for rate in ["0.001", "0.01"] {
        let name = format!("\\[train.lr = {rate}\\] \\[train.lr: edge\\]");
        assert!(page.contains(&name), "{name} is missing:\n{page}");
    }
}

/// Also where a range of test lengths ends at it.
#[test]
fn the_first_sentence_names_the_training_length() {
    let mut records = text_experiment();
    let rows = records.iter_mut().flat_map(|run| &mut run.evals);
    for row in rows.filter(|row| row.test_len == 64) {
        row.from_len = Some(33);
    }
    let page = report(&records, &[], &spec(&[Format::Md])).unwrap();
    let page = text(&page, "report.md");
    page.must_have("Trained at 64 bytes, ");
    assert!(!page.contains("Trained at 33"), "{page}");
}

#[test]
fn choices_made_in_other_ways_have_tables_of_their_own() {
    let mut records = text_experiment();
    for run in &mut records {
        let candidate = json!({ "values": [{ "key": "train.lr", "text": "0.01", "value": 0.01 }],
                                "runs": ["a"], "scores": [1.0] });
        let (seed, steps) = match run.labels[0].text.as_str() {
            "rope" => (100, 10),
            _ => (7, 200),
        };
        let selected = json!({ "by": "loss_nats", "test_len": 64, "steps": steps,
                               "seeds": [seed], "candidates": [candidate], "chosen": 0 });
        run.selected = Some(serde_json::from_value(selected).unwrap());
    }
    let page = report(&records, &[], &spec(&[Format::Md])).unwrap();
    let page = text(&page, "report.md");
    for (way, method, other) in [
        ("seeds 100, 10 steps", "rope", "alibi"),
        ("seeds 7, 200 steps", "alibi", "rope"),
    ] {
        let caption = page.find(way).unwrap_or_else(|| panic!("{way}: {page}"));
        let table = page[..caption].rfind("Chosen values").unwrap();
        let rest = &page[table..];
        let rows = rest.lines().skip_while(|line| !line.starts_with('|'));
        let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
        let has = |name: &str| rows.iter().any(|row| row.contains(&format!("| {name} ")));
        assert!(has(method) && !has(other), "{way}: {rows:?}");
    }
}

/// A view of runs at work.
#[test]
fn runs_of_a_sweep_look_as_the_method_that_they_decide() {
    let (_, mut all) = both();
    let label = |value: f64| Label {
        key: "train.lr".into(),
        text: value.to_string(),
        value: value.into(),
    };
    let is_of_sweep = |run: &&mut RunRecord| run.is_of_sweep();
    for run in all.iter_mut().filter(is_of_sweep) {
        run.labels.push(label(0.01));
    }
    let styles = styles(&all, &[]);
    let of_method = |name: &str| {
        let own = all.iter().filter(|run| run.labels[0].text == name);
        own.map(|run| styles[&run.run_id]).collect::<BTreeSet<_>>()
    };
    let found: Vec<BTreeSet<usize>> = ["alibi", "nope", "rope"].map(of_method).into();
    assert!(found.iter().all(|styles| styles.len() == 1), "{found:?}");
    assert_eq!(
        found.into_iter().flatten().collect::<BTreeSet<_>>().len(),
        3
    );
}

/// Where every method is still learning, or none is, a sentence needs no list.
#[test]
fn all_and_none_are_said_in_short() {
    let results = text_experiment();
    let note = |more: &dyn Fn(&str) -> f64| {
        let halves = results
            .iter()
            .map(|run| half(run, more(&run.labels[0].text)));
        let all: Vec<RunRecord> = results.iter().cloned().chain(halves).collect();
        text(
            &report(&all, &[], &spec(&[Format::Md])).unwrap(),
            "report.md",
        )
    };
    let moves = |name: &str| {
        if name == "rope" {
            0.05
        } else if name == "nope" {
            0.2
        } else {
            0.1
        }
    };
    let wanted = "All 5 methods are still learning: from half the steps to all, perplexity at 64 moves \
                  by -18.1 % (nope) to -4.9 % (rope).";
    let found = note(&moves);
    found.must_have(wanted);
    let found = note(&|_| 0.01);
    let wanted = "No method is still learning: from half the steps to all, perplexity at 64 moves by \
                  at most 3 %.";
    found.must_have(wanted);
}

/// What is not a result changes no number: the tables are those of the results, but for the last
/// column and the dagger.
#[test]
fn halves_and_selection_are_counted_nowhere() {
    let (results, all) = both();
    let of = |records: &[RunRecord], file: &str| {
        text(
            &report(records, &[], &spec(&[Format::Md, Format::Csv])).unwrap(),
            file,
        )
    };
    assert_eq!(of(&results, "results.csv"), of(&all, "results.csv"));
    let (with, without) = (of(&all, "report.md"), of(&results, "report.md"));
    let rows = |text: &str| -> Vec<Vec<String>> {
        let rows = text.lines().filter(|l| l.starts_with("| "));
        let cells = |l: &str| {
            l.trim_matches('|')
                .split(" | ")
                .map(|c| c.replace('†', "").trim().to_owned())
                .collect()
        };
        rows.map(cells).collect()
    };
    let (a, b) = (rows(&with), rows(&without));
    assert_eq!(a.len(), b.len());
    for (with, without) in a.iter().zip(&b) {
        assert_eq!(with[..without.len()], without[..]);
    }
    let section = |text: &str| {
        text.split("## Conditions")
            .nth(1)
            .unwrap()
            .split("## Notes")
            .next()
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(section(&with), section(&without));
    with.must_have("9 runs were scored on selection rows");
    with.must_have("5 runs were trained with half the steps");
    assert!(!without.contains("half to all") && !without.contains('†'));
    // Claims and comparisons of two sets see the results alone.
    let claims: Claims = serde_json::from_value(json!({ "claim": [{
        "metric": "loss_nats", "kind": "order", "methods": ["alibi", "nope"], "lengths": [512],
    }] }))
    .unwrap();
    let (a, b) = (
        claims.evaluate_records(&all),
        claims.evaluate_records(&results),
    );
    assert_eq!((a.len(), a[0].verdict), (1, Verdict::Agrees));
    assert_eq!(a, b);
    let sides = |first: &[RunRecord], second: &[RunRecord]| {
        ScoreComparison::of(("a", first), ("b", second), &ComparisonSpec::default()).unwrap()
    };
    let sides = sides(&results, &all);
    assert_eq!((sides.first.runs, sides.second.runs), (9, 9));
    assert_eq!(sides.second.seeds, [1, 2, 3]);
    // Nothing but such runs is nothing to report on.
    let rest: Vec<RunRecord> = all[results.len()..].to_vec();
    let error = report(&rest, &[], &spec(&[Format::Md])).unwrap_err();
    assert!(
        matches!(error, ReportError::NoResults { records: 14 }),
        "{error}"
    );
}

#[test]
fn pages_show_it_in_grey() {
    let (_, all) = both();
    let page = text(
        &report(&all, &[], &spec(&[Format::Html])).unwrap(),
        "report.html",
    );
    // Six lengths and the change of rope and its two variants.
    let grey = page.matches("<td class=\"learning\">").count();
    assert_eq!(grey + page.matches(" learning\">").count(), 3 * 7, "{grey}");
}
