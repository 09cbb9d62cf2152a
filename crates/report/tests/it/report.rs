//! The report: what it says is what the records say, whatever their order and names.

use crate::board::scored;
use crate::common::*;
use longreach_report::{Format, Report, ReportError, ReportSpec, RunPlace, report};
use proptest::prelude::*;
use records::Excluded;
use records::record::*;
use serde_json::json;
use std::collections::BTreeMap;

pub fn text(report: &Report, name: &str) -> String {
    String::from_utf8(
        report
            .file(name)
            .unwrap_or_else(|| panic!("no {name}"))
            .to_vec(),
    )
    .unwrap()
}

pub fn spec() -> ReportSpec {
    ReportSpec {
        title: "Which encoding lasts?".into(),
        ..Default::default()
    }
}

/// The cells of a Markdown table by its heading, without marks of emphasis.
pub fn cells(markdown: &str, heading: &str) -> Vec<Vec<String>> {
    let after = markdown
        .split(&format!("### {heading}\n"))
        .nth(1)
        .unwrap_or_else(|| panic!("no table {heading}"));
    let lines = after
        .lines()
        .skip_while(|l| !l.starts_with('|'))
        .take_while(|l| l.starts_with('|'));
    let split = |l: &str| {
        l.trim_matches('|')
            .split(" | ")
            .map(|c| c.trim().trim_matches('*').to_string())
            .collect()
    };
    lines
        .enumerate()
        .filter(|(i, _)| *i != 1)
        .map(|(_, l)| split(l))
        .collect()
}

fn everything() -> Vec<RunRecord> {
    let mut all = text_experiment();
    all.extend(copy_experiment(3));
    all.extend(base_experiment());
    all
}

#[test]
fn markdown_of_a_text_experiment() {
    let spec = ReportSpec {
        order: vec!["nope".into(), "rope".into(), "linear".into()],
        ..spec()
    };
    let excluded = [Excluded {
        path: "runs/length-text/0a1b/record.json".into(),
        line: None,
        reason: "schema 2 is newer than this binary's 1".into(),
    }];
    let report = report(&text_experiment(), &excluded, &spec).unwrap();
    insta::assert_snapshot!("text.md", text(&report, "report.md"));
}

#[test]
fn latex_of_a_text_experiment() {
    insta::assert_snapshot!(
        "text.tex",
        text(
            &report(&text_experiment(), &[], &spec()).unwrap(),
            "tables.tex"
        )
    );
}

#[test]
fn terminal_summary() {
    let all = [text_experiment(), copy_experiment(1)].concat();
    insta::assert_snapshot!("summary", report(&all, &[], &spec()).unwrap().summary);
}

#[test]
fn long_csv() {
    let mut runs = copy_experiment(1);
    runs.truncate(1);
    runs.extend(
        text_experiment()
            .into_iter()
            .filter(|r| r.labels[0].text == "fire" && r.seed == 2),
    );
    let mut learned = text_experiment()
        .into_iter()
        .find(|r| r.labels[0].text == "learned")
        .unwrap();
    learned.evals.truncate(2);
    runs.push(learned);
    insta::assert_snapshot!(
        "results.csv",
        text(&report(&runs, &[], &spec()).unwrap(), "results.csv")
    );
}

#[test]
fn markdown_of_a_base_sweep() {
    let spec = ReportSpec {
        baseline: Some("rope, 10000".into()),
        ..spec()
    };
    let report = report(&base_experiment(), &[], &spec).unwrap();
    insta::assert_snapshot!("base.md", text(&report, "report.md"));
    assert!(report.file("base.svg").is_some());
}

#[test]
fn a_training_length_that_is_an_axis_names_the_setting_and_no_method() {
    let mut records = Vec::new();
    for (train_len, of) in [(64, 1), (32, 2)] {
        for mut run in base_experiment() {
            run.run_id = hex(&format!("{of} {}", run.run_id));
            run.task.train_len = train_len;
            run.spec["train"]["train_len"] = json!(train_len);
            let text = train_len.to_string();
            run.labels.push(Label {
                key: "train.train_len".into(),
                text,
                value: json!(train_len),
            });
            let yarn = run.evals.clone();
            run.evals.extend(yarn.into_iter().map(|row| EvalRow {
                variant: "yarn".into(),
                ..row
            }));
            describe(&mut run);
            records.push(run);
        }
    }
    let report = report(&records, &[], &spec()).unwrap();
    let page = text(&report, "report.md");
    assert!(!page.contains(", train_len = "), "{page}");
    page.must_have("10 methods in 2 settings");
    page.must_have("model.pe.base of rope + yarn");
}

/// Seven test lengths with their intervals are wider than a page.
#[test]
fn tables_of_many_lengths_have_intervals_below_means() {
    let is_wide = |records: &[RunRecord]| {
        let spec = ReportSpec {
            formats: [Format::Html].into(),
            ..spec()
        };
        let page = text(&report(records, &[], &spec).unwrap(), "report.html");
        page.contains("<table class=\"sortable methods wide\">")
    };
    let mut records = text_experiment();
    assert!(!is_wide(&records));
    for run in &mut records {
        let longest: Vec<_> = run
            .evals
            .iter()
            .filter(|row| row.test_len == 1024)
            .cloned()
            .collect();
        run.evals.extend(longest.into_iter().map(|row| EvalRow {
            test_len: 2048,
            ..row
        }));
        describe(run);
    }
    assert!(is_wide(&records));
}

#[test]
fn page_is_self_contained_and_balanced() {
    let page = text(&report(&everything(), &[], &spec()).unwrap(), "report.html");
    assert!(page.contains("script-src 'sha256-") && page.contains("default-src 'none'"));
    let page = without_own_script(&page);
    // Addresses in the style sheet are those of the page's own markers.
    let own = page.replace("url(#k_", "").replace("url(#d_", "");
    for outside in ["<script", "src=", "<link", "@import", "url(", "href=\"http"] {
        assert!(!own.contains(outside), "{outside}");
    }
    // Every element opened is closed: no name or number broke the markup.
    for tag in [
        "table",
        "tr",
        "td",
        "figure",
        "figcaption",
        "section",
        "svg",
        "dl",
        "ul",
        "text",
        "main",
        "div",
    ] {
        let open =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(open, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    let ids: Vec<&str> = page
        .split(" id=\"")
        .skip(1)
        .map(|s| s.split('"').next().unwrap())
        .collect();
    let unique: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), unique.len());
    assert!(page.contains("<svg class=\"chart\"") && page.contains("prefers-color-scheme: dark"));
    // Links have targets. Every figure has a description, and no two are equal.
    let linked: Vec<&str> = page
        .split("href=\"#")
        .skip(1)
        .map(|s| s.split('"').next().unwrap())
        .collect();
    assert!(
        linked.len() >= 4 && linked.contains(&"conditions") && linked.contains(&"diverged-runs"),
        "{linked:?}"
    );
    assert!(
        linked.iter().all(|anchor| ids.contains(anchor)),
        "{linked:?} of {ids:?}"
    );
    let printed: std::collections::BTreeSet<&str> = page
        .split("role=\"img\" aria-label=\"")
        .skip(1)
        .map(|s| s.split('"').next().unwrap())
        .collect();
    assert_eq!(
        (printed.len(), printed.contains("")),
        (page.matches("<svg class=\"chart\"").count(), false),
        "{printed:?}"
    );
    let levels: Vec<u32> = page
        .match_indices("<h")
        .filter_map(|(at, _)| page[at + 2..].chars().next()?.to_digit(10))
        .collect();
    assert!(
        levels[0] == 1 && levels.windows(2).all(|l| l[1] > 1 && l[1] <= l[0] + 1),
        "{levels:?}"
    );
}

/// The distribution function of a beta distribution, by the continued fraction of Abramowitz and
/// Stegun 26.5.8 on the convergent side.
fn beta_cdf(x: f64, a: f64, b: f64) -> f64 {
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_cdf(1.0 - x, b, a);
    }
    let ln_gamma = |z: f64| {
        // Stirling's series, after moving the argument up.
        let (mut z, mut shift) = (z, 0.0);
        while z < 20.0 {
            shift -= z.ln();
            z += 1.0;
        }
        shift + (z - 0.5) * z.ln() - z + 0.5 * std::f64::consts::TAU.ln() + 1.0 / (12.0 * z)
            - 1.0 / (360.0 * z.powi(3))
    };
    let front =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let mut fraction = 1.0;
    for m in (0..400).rev() {
        let m = f64::from(m);
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let even = |m: f64| m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        fraction = 1.0 + odd / fraction;
        fraction = if m > 0.0 {
            1.0 + even(m) / fraction
        } else {
            fraction
        };
    }
    front / fraction
}

/// The interval of a share as `docs/evaluation.md` has it.
fn share_interval(mean: f64, sd: f64, seeds: usize, t: f64, rows: f64) -> (f64, f64) {
    let m = seeds as f64;
    let correlation = if mean * (1.0 - mean) > 0.0 {
        sd * sd / (mean * (1.0 - mean))
    } else {
        0.0
    };
    let effective = 1.0
        / ((t / 1.959_964).powi(2) * correlation / m
            + 0.05 * (1.0 - 2.0 * mean).powi(4) / m
            + 1.0 / rows);
    let solve = |a: f64, b: f64, p: f64| {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            if beta_cdf(middle, a, b) < p {
                low = middle
            } else {
                high = middle
            }
        }
        low
    };
    let (right, wrong) = (mean * effective, (1.0 - mean) * effective);
    let low = if right < 0.01 {
        0.0
    } else {
        solve(right, wrong + 1.0, 0.025)
    };
    (
        low,
        if wrong < 0.01 {
            1.0
        } else {
            solve(right + 1.0, wrong, 0.975)
        },
    )
}

/// Every number of the leading tables, by a loop that shares no code with the crate.
#[test]
fn every_number_can_be_recomputed() {
    let records = everything();
    let markdown = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    // 97.5 % points of Student's t for 1 and 2 degrees of freedom, from a printed table.
    let t = |n: usize| [12.706_204_7, 4.302_652_73][n - 2];
    let mut checked = 0;
    for (heading, experiment) in [
        ("text, trained", vec!["length-text", "theta"]),
        ("copy, trained", vec!["copy"]),
    ] {
        let part = markdown
            .split("\n## ")
            .find(|p| p.starts_with(heading))
            .unwrap();
        for &metric in if heading.starts_with("text") {
            &["perplexity"][..]
        } else {
            &["exact_match", "token_accuracy"]
        } {
            let table = cells(part, &format!("{metric} by test length"));
            let lengths: Vec<usize> = table[0][1..].iter().map(|l| l.parse().unwrap()).collect();
            for row in &table[1..] {
                for (cell, len) in row[1..].iter().zip(&lengths) {
                    let mut values = Vec::new();
                    let mut of = 0;
                    for r in &records {
                        let named = |l: &Label| {
                            if l.key == "model.pe" {
                                l.text.clone()
                            } else {
                                format!("base = {}", l.text)
                            }
                        };
                        let joined: Vec<String> = r.labels.iter().map(named).collect();
                        let joined = if experiment.len() > 1 {
                            format!("{}: {}", r.experiment, joined.join(", "))
                        } else {
                            joined.join(", ")
                        };
                        let (name, variant) =
                            row[0].split_once(" + ").unwrap_or((&row[0], "trained"));
                        if !experiment.contains(&r.experiment.as_str()) || joined != name {
                            continue;
                        }
                        of += 1;
                        for e in &r.evals {
                            if e.variant == variant
                                && e.test_len == *len
                                && e.status == EvalStatus::Ok
                            {
                                values.push(match metric {
                                    "perplexity" => e.metrics["loss_nats"].value.exp(),
                                    other => e.metrics[other].value,
                                });
                            }
                        }
                    }
                    if values.is_empty() {
                        assert!(cell.parse::<f64>().is_err(), "{cell} out of nothing");
                        continue;
                    }
                    let n = values.len();
                    let mean = values.iter().sum::<f64>() / n as f64;
                    let sd = (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>()
                        / (n as f64 - 1.0))
                        .sqrt();
                    let half = t(n) * sd / (n as f64).sqrt();
                    let shown = cell.split(' ').next().unwrap();
                    let d = shown.split_once('.').map_or(0, |(_, frac)| frac.len());
                    let mut expected = format!("{mean:.d$} ± {half:.d$}");
                    if metric == "perplexity" {
                        // In nats, from the losses themselves; the ends rounded outwards.
                        let losses: Vec<f64> = values.iter().map(|v| v.ln()).collect();
                        let mean = losses.iter().sum::<f64>() / n as f64;
                        let squares = losses.iter().map(|v| (v - mean) * (v - mean));
                        let sd = (squares.sum::<f64>() / (n as f64 - 1.0)).sqrt();
                        let half = t(n) * sd / (n as f64).sqrt();
                        let per = 10f64.powi(d as i32);
                        let low = ((mean - half).exp() * per).floor() / per;
                        let high = ((mean + half).exp() * per).ceil() / per;
                        expected = format!("{:.d$} \\[{low:.d$}, {high:.d$}\\]", mean.exp());
                    }
                    if metric.starts_with("exact") || metric.starts_with("token") {
                        let (low, high) = share_interval(mean, sd, n, t(n), 4096.0);
                        let (low, high) =
                            ((low * 100.0).floor() / 100.0, (high * 100.0).ceil() / 100.0);
                        expected = format!("{mean:.d$} \\[{low:.2}, {high:.2}\\]");
                    }
                    if n < of {
                        expected = format!("{expected} ({n}/{of})");
                    }
                    assert_eq!(*cell, expected, "{metric} {} at {len}", row[0]);
                    checked += 1;
                }
            }
        }
    }
    assert_eq!(checked, (6 + 6 + 1 + 5 + 3 * 6) + 5 * 4 + 2 * 3 * 4);
}

#[test]
fn absence_is_visible() {
    let mut records = text_experiment();
    for run in records.iter_mut().filter(|r| r.labels[0].text == "fire") {
        run.status = RunStatus::Diverged;
        run.diverged = Some(Divergence {
            step: 400 + run.seed,
            what: "loss".into(),
            batch: None,
        });
        run.evals.clear();
    }
    let report = report(&records, &[], &spec()).unwrap();
    let markdown = text(&report, "report.md");
    let table = cells(&markdown, "perplexity by test length");
    let row = |name: &str| table.iter().find(|r| r[0] == name).unwrap().clone();
    assert!(row("fire")[1..].iter().all(|c| c == "diverged"));
    assert!(row("learned")[2..].iter().all(|c| c == "unsupported"));
    assert_eq!(row("nope")[6], "skipped");
    assert!(markdown.contains("seed 2") && markdown.contains("step 402, loss not finite"));
    assert!(
        text(&report, "results.csv")
            .lines()
            .filter(|l| l.contains(",diverged,step 40"))
            .count()
            == 3
    );
    assert!(report.summary.contains("diverged") && report.summary.contains("unsupported"));
}

#[test]
fn numbers_that_are_not_finite_never_reach_a_cell() {
    let mut records = copy_experiment(2);
    for row in &mut records[0].evals {
        row.metrics.get_mut("exact_match").unwrap().value = f64::NAN;
    }
    records[1].evals[0]
        .metrics
        .get_mut("exact_match")
        .unwrap()
        .value = f64::INFINITY;
    records[0].train.loss_curve[3].loss_nats = f64::NAN;
    let report = report(&records, &[], &spec()).unwrap();
    for file in &report.files {
        let text = without_own_script(&String::from_utf8_lossy(&file.bytes));
        assert!(
            !text.contains("NaN") && !text.contains(",inf,") && !text.contains(">inf<"),
            "{}",
            file.name
        );
    }
    assert_eq!(
        cells(&text(&report, "report.md"), "exact_match by test length")[3][1],
        "diverged"
    );
}

#[test]
fn a_finite_loss_whose_perplexity_is_too_large_has_not_diverged() {
    let mut run = record("overflow", &[("model.pe", json!("rope"))], 0, text_task(64));
    run.evals.push(ok_row("trained", 64, &[("loss_nats", 2.0)]));
    run.evals
        .push(ok_row("trained", 128, &[("loss_nats", 800.0)]));
    describe(&mut run);
    let report = report(&[run], &[], &spec()).unwrap();
    let table = cells(&text(&report, "report.md"), "perplexity by test length");
    assert_eq!(table[1][2], "too large");
    for name in ["report.md", "report.html", "summaries.csv"] {
        let text = without_own_script(&text(&report, name));
        assert!(
            !text.contains("diverged<") && !text.contains(",diverged"),
            "{name}"
        );
    }
}

#[test]
fn methods_whose_varied_key_is_a_number_are_ordered_by_it() {
    let mut records = Vec::new();
    for scale in [1, 10, 2, 100] {
        let value = json!({ "kind": "alibi", "slope_scale": scale });
        let mut run = record("scales", &[("model.pe", value)], 0, copy_task(8));
        run.labels[0].text = format!("alibi(slope_scale={scale})");
        run.evals
            .push(ok_row("trained", 8, &[("exact_match", 1.0)]));
        describe(&mut run);
        records.push(run);
    }
    let report = report(&records, &[], &spec()).unwrap();
    let table = cells(&text(&report, "report.md"), "exact_match by test length");
    let names: Vec<&str> = table[1..].iter().map(|row| row[0].as_str()).collect();
    let scales = names
        .iter()
        .map(|name| name.trim_end_matches(')').rsplit(['=', ' ']).next());
    let scales: Vec<&str> = scales.flatten().collect();
    assert_eq!(scales, ["1", "2", "10", "100"], "{names:?}");
}

#[test]
fn every_row_names_a_setting_alike() {
    let mut records = Vec::new();
    for (pe, steps) in [("alibi", 400), ("alibi", 800), ("nope", 400), ("rope", 400)] {
        let mut run = record("steps", &[("model.pe", json!(pe))], 0, copy_task(8));
        run.spec["train"]["steps"] = json!(steps);
        run.run_id = hex(&format!("{pe} {steps}"));
        run.evals
            .push(ok_row("trained", 8, &[("exact_match", 1.0)]));
        describe(&mut run);
        records.push(run);
    }
    let report = report(&records, &[], &spec()).unwrap();
    let table = cells(&text(&report, "report.md"), "exact_match by test length");
    let names: Vec<String> = table[1..]
        .iter()
        .map(|row| row[0].replace('\\', ""))
        .collect();
    let named = |name: &String| name.contains(" [train.steps = ");
    assert!(names.len() == 4 && names.iter().all(named), "{names:?}");
}

#[test]
fn a_later_evaluation_that_scored_other_bytes_has_its_own_definition() {
    let mut run = record("later", &[("model.pe", json!("rope"))], 0, text_task(64));
    let define = |run: &mut RunRecord, text: &str| {
        run.task.definitions.insert("loss_nats".into(), text.into());
        run.task
            .definitions
            .insert("perplexity".into(), text.into());
    };
    define(&mut run, "over 30720 bytes");
    run.evals.push(ok_row("trained", 64, &[("loss_nats", 2.0)]));
    run.evals
        .push(ok_row("trained", 128, &[("loss_nats", 2.5)]));
    describe(&mut run);
    let mut later = run.clone();
    later.evaluation_of = Some(run.run_id.clone());
    later.run_id = hex("later");
    define(&mut later, "over 32768 bytes");
    later.evals = vec![ok_row("trained", 256, &[("loss_nats", 3.0)])];
    describe(&mut later);
    let markdown = |records: &[RunRecord]| {
        let made = report(records, &[], &spec()).unwrap();
        text(&made, "report.md")
    };
    let both = markdown(&[run.clone(), later.clone()]);
    let said = "for rope at 64, 128: over 30720 bytes; for rope at 256, evaluated later: over \
                32768 bytes";
    both.must_have(said);
    // One that scored the same bytes says nothing more.
    define(&mut later, "over 30720 bytes");
    let both = markdown(&[run, later.clone()]);
    both.must_have("over 30720 bytes");
    assert!(!both.contains("evaluated later"), "{both}");
    // By itself it knows nothing of what its run was tested at.
    let alone = markdown(&[later]);
    alone.must_have("Trained at 64 bytes, which this evaluation leaves out");
    assert!(!alone.contains("not tested there"), "{alone}");
}

#[test]
fn one_seed_has_no_interval_and_no_ranking() {
    let report = report(&copy_experiment(1), &[], &spec()).unwrap();
    let markdown = text(&report, "report.md");
    let table = cells(&markdown, "exact_match by test length");
    assert!(table[1..].iter().flatten().all(|c| !c.contains('±')));
    assert!(!markdown.contains("| **"));
    markdown.must_have("Single seed: no interval, no ranking.");
    assert!(!text(&report, "tables.tex").contains("textbf"));
    assert!(report.summary.contains("one seed: no ranking"));
}

#[test]
fn the_best_is_marked_only_outside_the_noise() {
    let run = |pe: &str, seed: u64, score: f64| {
        let mut r = record("noise", &[("model.pe", json!(pe))], seed, copy_task(16));
        r.evals
            .push(ok_row("trained", 16, &[("exact_match", score)]));
        r
    };
    let marked = |records: &[RunRecord]| {
        text(&report(records, &[], &spec()).unwrap(), "report.md").contains("| **")
    };
    let a: Vec<RunRecord> = [(1, 0.90), (2, 0.91), (3, 0.92)]
        .map(|(s, v)| run("a", s, v))
        .into();
    let near: Vec<RunRecord> = [(1, 0.88), (2, 0.90), (3, 0.89)]
        .map(|(s, v)| run("b", s, v))
        .into();
    let far: Vec<RunRecord> = [(1, 0.58), (2, 0.60), (3, 0.59)]
        .map(|(s, v)| run("b", s, v))
        .into();
    let wide: Vec<RunRecord> = [(1, 0.10), (2, 0.90), (3, 0.50)]
        .map(|(s, v)| run("c", s, v))
        .into();
    assert!(marked(&[a.clone(), far.clone()].concat()));
    assert!(!marked(&[a.clone(), near].concat()));
    // The second mean is far below; the third's interval is not.
    assert!(!marked(&[a, far, wide].concat()));
}

#[test]
fn nothing_to_report_is_an_error_that_says_so() {
    let excluded = [Excluded {
        path: "a/b/c/record.json".into(),
        line: None,
        reason: "not a record".into(),
    }];
    let error = report(&[], &excluded, &spec()).unwrap_err();
    assert!(matches!(error, ReportError::Empty { .. }));
    assert_eq!(
        error.to_string(),
        "no records to report on; 1 left out, the first: b/c/record.json: not a record"
    );
    assert_eq!(
        report(&[], &[], &spec()).unwrap_err().to_string(),
        "no records to report on"
    );
}

#[test]
fn an_unknown_baseline_is_an_error_that_names_the_methods() {
    let spec = ReportSpec {
        baseline: Some("ropr".into()),
        ..spec()
    };
    let error = report(&copy_experiment(1), &[], &spec)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the baseline \"ropr\" is none of the methods: \"alibi\", \"nope\", \"rope\""
    );
}

#[test]
fn formats_are_as_asked() {
    let spec = ReportSpec {
        formats: [Format::Csv].into(),
        ..spec()
    };
    let report = report(&copy_experiment(1), &[], &spec).unwrap();
    let names: Vec<&str> = report.files.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "exact-match-by-length.svg",
            "results.csv",
            "summaries.csv",
            "token-accuracy-by-length.svg",
            "training-loss.svg"
        ]
    );
    let dir = tempfile::tempdir().unwrap();
    let paths = report.write(&dir.path().join("new/dir")).unwrap();
    assert_eq!(paths.len(), names.len());
    assert_eq!(
        std::fs::read(&paths[1]).unwrap(),
        report.file("results.csv").unwrap()
    );
}

#[test]
fn every_link_of_the_markdown_leads_somewhere() {
    let report = report(&everything(), &[], &spec()).unwrap();
    let markdown = text(&report, "report.md");
    let links: Vec<&str> = markdown
        .split("](")
        .skip(1)
        .map(|s| s.split(')').next().unwrap())
        .collect();
    let (sections, figures): (Vec<&str>, Vec<&str>) =
        links.iter().partition(|link| link.starts_with('#'));
    assert!(figures.len() >= 6 && !sections.is_empty());
    for figure in figures {
        assert!(report.file(figure).is_some(), "{figure}");
    }
    for section in sections {
        let anchor = format!("<a id=\"{}\"></a>", &section[1..]);
        assert!(markdown.contains(&anchor), "{section}");
    }
}

#[test]
fn a_page_links_to_configs_and_other_files_do_not_depend_on_them() {
    let all = text_experiment();
    let with = |runs: &[RunRecord]| {
        let place = RunPlace {
            config: Some("../configs/a b.toml".to_owned()),
            ..RunPlace::default()
        };
        let id = |run: &RunRecord| (run.experiment.clone(), run.run_id.clone());
        let runs = runs.iter().map(|run| (id(run), place.clone())).collect();
        let spec = ReportSpec { runs, ..spec() };
        longreach_report::report(&all, &[], &spec).unwrap()
    };
    let (known, unknown) = (with(&all), with(&[]));
    for (with, without) in known.files.iter().zip(&unknown.files) {
        assert_eq!(with == without, with.name != "report.html", "{}", with.name);
    }
    let page = text(&known, "report.html");
    assert!(page.contains("<a href=\"..&#x2f;configs&#x2f;a%20b.toml\">"));
    // Each run has a command where its config is known.
    assert!(page.contains("longreach run '../configs/a b.toml'"));
    assert!(!text(&unknown, "report.html").contains("longreach run"));
    for name in ["report.md", "report.html"] {
        let text = text(&unknown, name);
        assert!(text.contains("The resolved spec of run "), "{name}");
    }
}

/// Tables of Markdown outside of folds, and all.
fn open_tables(markdown: &str) -> (usize, usize) {
    let (mut folds, mut open, mut all) = (0, 0, 0);
    for line in markdown.lines() {
        folds += usize::from(line.starts_with("<details>"));
        folds -= usize::from(line == "</details>");
        if line.starts_with("| :---") {
            all += 1;
            open += usize::from(folds == 0);
        }
    }
    (open, all)
}

#[test]
fn a_reader_meets_at_most_twelve_tables_and_each_explanation_once() {
    let of = |settings: usize| -> String {
        let one = |at: usize| {
            let mut records = copy_experiment(2);
            for run in &mut records {
                run.run_id = hex(&format!("{at} {}", run.run_id));
                run.task.kind = format!("copy{at}");
                run.spec["task"]["kind"] = json!(run.task.kind);
            }
            records
        };
        let records: Vec<RunRecord> = (0..settings).flat_map(one).collect();
        text(&report(&records, &[], &spec()).unwrap(), "report.md")
    };
    // Scores and reach; the other metric and the methods are folded away.
    assert_eq!(open_tables(&of(1)), (2, 4));
    // The board says how far methods reach.
    assert_eq!(open_tables(&of(3)).0, 3 + 1);
    let many = of(20);
    assert_eq!(open_tables(&many).0, 12);
    assert_eq!(many.matches("How to read it").count(), 2);
    assert_eq!(many.matches("### Reach").count(), 20);
}

/// Links of a page to places on other pages.
fn links_elsewhere(page: &str) -> Vec<&str> {
    let links = page.split("href=\"").skip(1);
    let links = links.map(|rest| rest.split('"').next().unwrap());
    links.filter(|link| !link.starts_with('#')).collect()
}

#[test]
fn several_experiments_have_a_page_each() {
    let all = everything();
    let report = report(&all, &[], &spec()).unwrap();
    let pages: Vec<&str> = report
        .files
        .iter()
        .map(|file| file.name.as_str())
        .filter(|name| name.ends_with(".html"))
        .collect();
    let experiments: std::collections::BTreeSet<&str> =
        all.iter().map(|run| run.experiment.as_str()).collect();
    assert_eq!(pages.len(), 1 + experiments.len(), "{pages:?}");
    // Every link leads to a page, and to a place on it.
    for name in &pages {
        let page = text(&report, name);
        let links = links_elsewhere(&page);
        for other in pages.iter().filter(|other| *other != name) {
            assert!(links.contains(other), "{name} does not lead to {other}");
        }
        for link in links {
            let (file, place) = link.split_once('#').unwrap_or((link, "report"));
            let target = text(&report, file);
            assert!(target.contains(&format!(" id=\"{place}\"")), "{link}");
        }
    }
    // The matrix leads to each; runs and configs are on the pages alone.
    let page = text(&report, "report.html");
    let matrix = page.split("id=\"overview-reach\"").nth(1).unwrap();
    let matrix = matrix.split("</table>").next().unwrap();
    let cells = links_elsewhere(matrix);
    for name in pages.iter().filter(|name| **name != "report.html") {
        let start = format!("{name}#");
        assert!(cells.iter().any(|link| link.starts_with(&start)), "{name}");
        let own = text(&report, name);
        assert!(own.contains("Runs one by one") && own.contains("Config of "));
    }
    assert!(!page.contains("Runs one by one") && !page.contains("Config of "));
    for run in &all {
        let own = text(&report, &format!("experiment-{}.html", run.experiment));
        assert!(own.contains(&run.run_id), "{}", run.run_id);
    }
    // One experiment needs no other page, and pages are not part of other formats.
    let names = |records: &[RunRecord], formats: &[Format]| -> Vec<String> {
        let formats = formats.iter().copied().collect();
        let spec = ReportSpec { formats, ..spec() };
        let report = longreach_report::report(records, &[], &spec).unwrap();
        let names = report.files.into_iter().map(|file| file.name);
        names.filter(|name| name.ends_with(".html")).collect()
    };
    assert_eq!(names(&text_experiment(), &[Format::Html]), ["report.html"]);
    assert!(names(&all, &[Format::Md, Format::Csv]).is_empty());
}

#[test]
fn an_overview_with_a_row_for_each_setting_leads_to_them() {
    let mut all = Vec::new();
    for train_len in 16..25 {
        for mut run in copy_experiment(1) {
            run.run_id = hex(&format!("{} {train_len}", run.run_id));
            run.task.train_len = train_len;
            all.push(run);
        }
    }
    let page = text(&report(&all, &[], &spec()).unwrap(), "report.md");
    for train_len in 16..25 {
        let link = format!("[copy, trained at {train_len} symbols](#copy-{train_len})");
        assert!(page.contains(&link), "{link}: {page}");
    }
    assert!(!page.contains("(%23"));
}

#[test]
fn settings_of_one_task_and_training_length_are_linked_each_to_its_place() {
    let mut all = copy_experiment(2);
    let first = all[0].labels[0].text.clone();
    for run in all.iter_mut().filter(|run| run.labels[0].text == first) {
        let rows = run.evals.iter_mut().filter(|row| row.test_len == 32);
        rows.for_each(|row| row.from_len = Some(17));
    }
    let file = format!("experiment-{}.html", all[0].experiment);
    all.extend(text_experiment());
    let page = text(&report(&all, &[], &spec()).unwrap(), "report.html");
    let links = links_elsewhere(&page).into_iter();
    let places = links.filter_map(|link| link.strip_prefix(&file)?.strip_prefix("#copy-16-"));
    let places: std::collections::BTreeSet<&str> = places.collect();
    let expected = ["tested-at-17-32", "tested-at-32"];
    assert_eq!(places.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_thousand_records_are_reported() {
    let mut records = Vec::new();
    for method in 0..340 {
        for seed in 1..=3 {
            let mut r = record(
                "many",
                &[("model.pe", json!(format!("pe{method}")))],
                seed,
                text_task(64),
            );
            r.train.loss_curve = curve(seed, 1.5);
            for len in LENGTHS {
                let mut row = ok_row(
                    "trained",
                    len,
                    &[("loss_nats", loss(1.5, 0.002 * f64::from(method), len, seed))],
                );
                row.loss_by_position = bins(len, 1.5, 0.002 * f64::from(method), seed);
                r.evals.push(row);
            }
            records.push(r);
        }
    }
    let start = std::time::Instant::now();
    let report = report(&records, &[], &ReportSpec::default()).unwrap();
    eprintln!("{} records: {:?}", records.len(), start.elapsed());
    assert!(text(&report, "report.md").contains("16 of 340 methods"));
}

#[test]
fn nothing_is_said_of_the_extrapolation_of_what_was_not_learned() {
    // The second is best at every longer length, but its mean in length is 0.94.
    let low: &[[f64; 4]] = &[
        [1.0, 0.88, 0.9, 0.9],
        [1.0, 0.89, 0.9, 0.9],
        [1.0, 0.87, 0.9, 0.9],
    ];
    let records = scores(&[
        (
            "a",
            &[
                [1.0, 1.0, 0.5, 0.0],
                [1.0, 1.0, 0.5, 0.0],
                [1.0, 0.9, 0.5, 0.0],
            ],
        ),
        ("low", low),
    ]);
    let spec = ReportSpec {
        baseline: Some("a".into()),
        ..spec()
    };
    let report = report(&records, &[], &spec).unwrap();
    let markdown = text(&report, "report.md");
    let rows = cells(&markdown, "Reach");
    let row = rows.iter().find(|r| r[0] == "low").unwrap();
    // Reach, ratio and area.
    let absent = row.iter().filter(|cell| *cell == "not converged");
    assert_eq!(absent.count(), 3, "{row:?}");
    assert_eq!(
        cells(&markdown, "exact_match: difference to a")[1][3..],
        ["not converged"; 2]
    );
    assert!(
        !markdown.contains("| **"),
        "the best of a longer column is marked although it did not converge"
    );
    markdown.must_have(
        "## Not converged\n\n- copy, trained at 16 symbols: low: 0 of 3 seeds learned: exact_match",
    );
    markdown.must_have("At 64 a has 0.000");
    markdown.must_have("; no other method has learned the task in length.");
    assert!(text(&report, "report.html").contains("<h2>Not converged (1)</h2>"));
    assert!(
        text(&report, "summaries.csv")
            .lines()
            .any(|l| l.contains(",low,") && l.ends_with(",,,,,0,3,not converged,,,,,"))
    );
}

/// Differences between methods on one text depend on the text: its part is that of the blocks, of
/// both methods on the same ones.
#[test]
fn differences_cover_the_text() {
    let blocks = |seed: u64, size: f64| -> Vec<f64> {
        let wave = |at: u64| ((at * 37 + seed) as f64 / 9.0).sin();
        (0..64).map(|at| 2.0 + size * wave(at)).collect()
    };
    let of = |size: f64, lengths: [usize; 2]| {
        let mut records = text_experiment();
        for run in &mut records {
            let (name, seed) = (run.labels[0].text.clone(), run.seed);
            for row in &mut run.evals {
                match name.as_str() {
                    "rope" => row.loss_by_block = blocks(seed, 0.5)[..lengths[0]].to_vec(),
                    "alibi" => row.loss_by_block = blocks(seed, 0.5 + size)[..lengths[1]].to_vec(),
                    _ => {}
                }
            }
        }
        let spec = ReportSpec {
            baseline: Some("rope".into()),
            ..spec()
        };
        let found = report(&records, &[], &spec).unwrap();
        let summaries = text(&found, "summaries.csv");
        let is_it = |l: &&str| l.contains(",alibi,rope,perplexity difference,64,");
        let line = summaries.lines().find(is_it).unwrap().to_owned();
        let cells: Vec<Option<f64>> = line.rsplitn(14, ',').map(|c| c.parse().ok()).collect();
        (
            cells.into_iter().rev().collect::<Vec<_>>(),
            text(&found, "report.md"),
        )
    };
    let (wide, markdown) = of(0.2, [64, 64]);
    let (narrow, _) = of(0.2, [64, 63]);
    // Mean, low, high, then over seeds alone and over the text alone, in nats.
    let nats = |cells: &[Option<f64>], at: usize| cells[at].unwrap().ln_1p();
    let mean = nats(&wide, 2);
    // By hand: the mean over seeds of the differences of blocks, in runs of four, over 15.
    let by_block: Vec<f64> = (0..64)
        .map(|at| {
            (1..=3)
                .map(|s| blocks(s, 0.7)[at] - blocks(s, 0.5)[at])
                .sum::<f64>()
                / 3.0
        })
        .collect();
    let centre = by_block.iter().sum::<f64>() / 64.0;
    let run = |start: usize| (0..4).map(|i| by_block[(start + i) % 64]).sum::<f64>() / 4.0;
    let variance = (0..64).map(|s| (run(s) - centre).powi(2)).sum::<f64>() / 64.0 / 15.0;
    // t(0.975; 15) = 2.13145.
    let over_text = 2.131_449_5 * variance.sqrt();
    assert!(
        (nats(&wide, 12) - mean - over_text).abs() < 1e-6,
        "{wide:?}"
    );
    assert!(
        (nats(&wide, 11) - mean + over_text).abs() < 1e-6,
        "{wide:?}"
    );
    let over_seeds = nats(&wide, 10) - mean;
    let both = over_seeds.hypot(over_text);
    assert!(
        (nats(&wide, 5) - mean - both).abs() < 1e-6 && (nats(&wide, 4) - mean + both).abs() < 1e-6
    );
    // Without blocks of both, or with others, seeds are all there is.
    assert!((nats(&narrow, 5) - mean - over_seeds).abs() < 1e-9 && narrow[9..] == [None; 5]);
    assert!(markdown.contains("95 % CI over seeds and text"));
    // What both methods have in common, block by block, is not part of a difference.
    let (same, _) = of(0.0, [64, 64]);
    assert!((nats(&same, 5) - nats(&narrow, 5)).abs() < 1e-9, "{same:?}");
}

/// A row that is tested twice says no more than once: the interval is that of as many distinct rows.
#[test]
fn intervals_count_distinct_rows() {
    let of = |distinct: Option<u64>, rows: u64| {
        let mut records = copy_experiment(3);
        for row in records.iter_mut().flat_map(|r| &mut r.evals) {
            row.distinct_rows = distinct;
            row.metrics.values_mut().for_each(|m| m.n = rows);
        }
        let markdown = text(&report(&records, &[], &spec()).unwrap(), "report.md");
        ["exact_match", "token_accuracy"].map(|m| cells(&markdown, &format!("{m} by test length")))
    };
    assert_eq!(of(Some(24), 4096), of(None, 24));
    assert_ne!(of(Some(24), 4096), of(None, 4096));
    // A count above the rows of a group of them is no more rows.
    assert_eq!(of(Some(4096), 24), of(None, 24));
}

/// One seed of five fails: the other four are no less a result.
#[test]
fn a_method_is_said_to_be_better_everywhere_by_the_seeds_that_learned() {
    let (learned, failed) = ([1.0, 1.0, 0.95, 0.95], [0.9, 0.1, 0.0, 0.0]);
    let records = scores(&[
        ("a", &[learned, learned, learned, failed, failed]),
        ("b", &[[1.0, 1.0, 0.9, 0.9]; 5]),
    ]);
    let summary = report(&records, &[], &spec()).unwrap().summary;
    // By the means over all seeds b would be better at every length.
    summary.must_have("both hold up to 64");
    assert!(!summary.contains("at every tested length"), "{summary}");
}

#[test]
fn seeds_that_learned_count_past_the_training_length() {
    let learned = [1.0, 0.98, 0.5, 0.25];
    let failed = [0.9, 0.1, 0.0, 0.0];
    let better = [1.0, 1.0, 1.0, 0.75];
    let records = scores(&[
        ("a", &[learned, learned, failed, learned, learned]),
        ("b", &[better; 5]),
        ("c", &[failed, failed, failed, better, better]),
    ]);
    let spec = ReportSpec {
        baseline: Some("a".into()),
        ..spec()
    };
    let found = report(&records, &[], &spec).unwrap();
    let markdown = text(&found, "report.md");
    let table = cells(&markdown, "exact_match by test length");
    let names: Vec<&str> = table[1..].iter().map(|row| row[0].as_str()).collect();
    let of = ["a: the 4 of 5 that learned", "c: the 2 of 5 that learned"];
    assert_eq!(names, ["a", of[0], "b", "c", of[1]]);
    let mean = |row: &[String], at: usize| row[at].split(' ').next().unwrap().replace('*', "");
    // Means over all seeds, and over those that learned: by hand.
    assert_eq!(mean(&table[1], 2), "0.80");
    assert_eq!(mean(&table[1], 3), "0.40");
    assert_eq!(
        (mean(&table[2], 2), mean(&table[2], 3)),
        ("0.980".into(), "0.500".into())
    );
    assert_eq!(mean(&table[4], 3), "0.40");
    assert_eq!(mean(&table[5], 3), "1.000");
    // Most of c failed: nothing is said of it past the training length.
    let reach = cells(&markdown, "Reach");
    let row = |name: &str| reach.iter().find(|r| r[0] == name).unwrap().clone();
    assert_eq!(
        (row("a")[1].as_str(), row("b")[1].as_str()),
        ("1x", "2x (32)")
    );
    assert_eq!(row("c")[1], "not converged");
    // Ratio of a over the four seeds: 0.25 / 0.98.
    assert!(
        row("a")[2].starts_with("0.26") && row("a")[2].ends_with("(4/5)"),
        "{reach:?}"
    );
    let differences = cells(&markdown, "exact_match: difference to a");
    let b = differences.iter().find(|r| r[0] == "b").unwrap();
    // In length all seeds count: (0.02 x 4 + 0.9) / 5; past it the four pairs that learned.
    assert!(b[2].starts_with("+0.20 ") && !b[2].contains('/'), "{b:?}");
    assert!(b[3].contains("+0.50") && b[3].contains("(4/5)"), "{b:?}");
    markdown.must_have(
        "a: 4 of 5 seeds learned: exact_match 0.500 (seed 2) in length (mean over tested lengths \
         up to 16), 0.95 needed; past the training length the seeds that learned count",
    );
    assert!(markdown.contains("c: 2 of 5 seeds learned") && markdown.contains("b holds up to"));
    let summaries = text(&found, "summaries.csv");
    for (name, row) in [("a", "0.8,,,,4,5"), ("b", "1,,,,5,5"), ("c", "0.4,,,,2,5")] {
        let line = format!(",{name},,seeds_learned,,{row},");
        assert!(summaries.contains(&line), "{line}\n{summaries}");
    }
    let results = text(&found, "results.csv");
    let failed =
        |line: &&str| line.contains(",a,") && line.contains(",2,") && line.ends_with(",no");
    assert_eq!(results.lines().filter(failed).count(), 4);
    assert_eq!(
        results.lines().filter(|l| l.ends_with(",yes")).count(),
        4 * (4 + 5 + 2)
    );
}

#[test]
fn a_loss_no_better_than_guessing_has_not_converged() {
    let mut records = text_experiment();
    for row in records
        .iter_mut()
        .filter(|r| r.labels[0].text == "nope")
        .flat_map(|r| &mut r.evals)
    {
        row.metrics.values_mut().for_each(|m| m.value = 5.6);
    }
    let markdown = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    markdown.must_have(
        "nope: 0 of 3 seeds learned: perplexity 270.4 (seed 1), 270.4 (seed 2), 270.4 (seed 3) \
         at 64, no better than guessing (256.0)",
    );
}

#[test]
fn guessing_is_that_of_each_method() {
    // Sums modulo 2 and 16: the second is far from the guessing of the first, near its own.
    let mut records = scores(&[
        ("a", &[[1.0, 1.0, 0.6, 0.5]; 3]),
        ("b", &[[1.0, 1.0, 0.2, 0.14]; 3]),
    ]);
    for run in &mut records {
        let chance = if run.labels[0].text == "a" {
            0.5
        } else {
            0.0625
        };
        run.task.chance.insert("exact_match".into(), chance);
    }
    let claim = json!({
        "source": "-", "text": "Both guess.", "metric": "exact_match", "kind": "near_chance",
        "methods": ["a", "b"], "lengths": [64], "value": 0.4,
    });
    let spec = ReportSpec {
        claims: serde_json::from_value(json!({ "claim": [claim] })).unwrap(),
        ..spec()
    };
    let csv = text(&report(&records, &[], &spec).unwrap(), "claims.csv");
    csv.must_have("of a at 64 to chance (0.500)");
    csv.must_have("of b at 64 to chance (0.062");
}

#[test]
fn the_score_in_length_is_at_a_length_that_every_method_has() {
    let mut records = scores(&[
        ("a", &[[1.0, 1.0, 0.5, 0.5]; 2]),
        ("b", &[[1.0, 1.0, 1.0, 1.0]; 2]),
    ]);
    let before = summary(&records);
    before.must_have("b holds up to 64");
    // Only a was tested at the training length, 16.
    for run in records.iter_mut().filter(|run| run.labels[0].text == "b") {
        run.evals.retain(|row| row.test_len != 16);
    }
    let after = summary(&records);
    after.must_have("b holds up to 64");
}

#[test]
fn tokens_of_different_sizes_are_told() {
    let mut records = text_experiment();
    for run in &mut records {
        let size = if run.labels[0].text == "nope" {
            1.5
        } else {
            2.0
        };
        run.task.bytes_per_token = Some(size);
    }
    let markdown = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    let note = "methods read tokens of 1.500 to 2.000 bytes. Losses and perplexities are per token";
    assert!(markdown.replace('\\', "").contains(note), "{markdown}");
}

#[test]
fn texts_of_different_sizes_are_told() {
    let mut records = text_experiment();
    let markdown =
        |records: &[RunRecord]| text(&report(records, &[], &spec()).unwrap(), "report.md");
    let note = "which are not the same text";
    assert!(!markdown(&records).contains(note));
    let mut rows = records[0].evals.iter_mut();
    let loss = rows.find_map(|row| row.metrics.get_mut("loss_nats"));
    loss.unwrap().n /= 2;
    let told = markdown(&records);
    told.must_have(note);
}

/// Looks of a figure's lines: colour and dash.
fn looks(svg: &str) -> Vec<(String, String)> {
    let attribute = |line: &str, name: &str| {
        let value = line
            .split(&format!(" {name}=\""))
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        value.unwrap_or_default().to_string()
    };
    let is_line =
        |line: &&str| line.starts_with("polyline ") && attribute(line, "stroke-width") == "2";
    let lines = svg.split('<').filter(is_line);
    let look = |line: &str| {
        (
            attribute(line, "stroke"),
            attribute(line, "stroke-dasharray"),
        )
    };
    lines.map(look).collect()
}

#[test]
fn many_methods_have_a_look_each_and_no_bands() {
    let mut records = Vec::new();
    for method in 0..17 {
        for seed in 1..=3 {
            let mut r = record(
                "many",
                &[("model.pe", json!(format!("pe{method:02}")))],
                seed,
                text_task(64),
            );
            r.train.loss_curve = curve(seed, 1.5);
            // The first is the worst at the longest length, and the one that is not drawn.
            let rise = if method == 0 {
                1.0
            } else {
                0.1 + 0.01 * f64::from(method)
            };
            r.evals = LENGTHS
                .map(|len| ok_row("trained", len, &[("loss_nats", loss(1.5, rise, len, seed))]))
                .into();
            records.push(r);
        }
    }
    let band = "opacity=\"0.14\"";
    let many = report(&records, &[], &spec()).unwrap();
    for name in ["perplexity-by-length.svg", "training-loss.svg"] {
        let svg = text(&many, name);
        let looks = looks(&svg);
        assert_eq!(looks.len(), 16, "{name}");
        assert_eq!(
            looks
                .iter()
                .collect::<std::collections::BTreeSet<_>>()
                .len(),
            looks.len(),
            "{name}"
        );
        assert!(!svg.contains(band) && !svg.contains(">pe00<"), "{name}");
    }
    assert!(text(&many, "report.md").contains("Drawn: the 16 of 17 with a line above."));
    // Where all are equal at the longest length, the next shorter one decides.
    let mut tied = records.clone();
    for row in tied.iter_mut().filter_map(|run| run.evals.last_mut()) {
        row.metrics.get_mut("loss_nats").unwrap().value = 2.0;
    }
    let tied = report(&tied, &[], &spec()).unwrap();
    assert!(!text(&tied, "perplexity-by-length.svg").contains(">pe00<"));
    let few = report(&records[..9], &[], &spec()).unwrap();
    assert_eq!(
        text(&few, "perplexity-by-length.svg").matches(band).count(),
        3
    );
    text(&few, "training-loss.svg").must_have(band);
    assert!(!text(&few, "training-loss.svg").contains(">pe<"));
}

#[test]
fn bands_of_shares_are_over_seeds_and_test_rows() {
    let records = scores(&[(
        "a",
        &[
            [1.0, 1.0, 1.0, 0.0],
            [1.0, 1.0, 0.2, 0.0],
            [0.9, 1.0, 0.9, 0.1],
        ],
    )]);
    let markdown = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    markdown.must_have("Bands: 95 % CI over seeds and test rows, n = 3.");
}

#[test]
fn what_was_not_tested_is_not_called_unlearned() {
    let mut records = text_experiment();
    records.retain(|r| r.status == RunStatus::Ok);
    for row in records.iter_mut().flat_map(|r| &mut r.evals) {
        (row.status, row.reason) = (EvalStatus::Skipped, Some("needs more memory".into()));
        row.metrics.clear();
    }
    let summary = report(&records, &[], &spec()).unwrap().summary;
    summary.must_have(
        "no method has a score in length (skipped), so there is no extrapolation to report",
    );
    assert!(!summary.contains("learned the task"), "{summary}");
}

#[test]
fn reach_and_area_by_hand() {
    // The mean of a is 0.7 at 32, so it is lost there, although one seed keeps it and the other has
    // it back at 64. Area over [16, 64] by seed: (1 + 0.9) / 2 and (0.9 + 0) / 2 over two doublings
    // = 0.7; (1 + 0.5) / 2 and (0.5 + 1) / 2 = 0.75. Student's t for two seeds: 12.706 * 0.025.
    let records = scores(&[
        ("a", &[[1.0, 1.0, 0.9, 0.0], [1.0, 1.0, 0.5, 1.0]]),
        ("b", &[[1.0; 4], [1.0; 4]]),
    ]);
    let report = report(&records, &[], &spec()).unwrap();
    let table = cells(&text(&report, "report.md"), "Reach");
    let shown = |row: &[String]| [&row[0], &row[1], &row[3]].map(Clone::clone);
    assert_eq!(shown(&table[0]), ["method", "reach", "area"]);
    assert_eq!(shown(&table[1]), ["a", "1x", "0.72 ± 0.32"]);
    assert_eq!(shown(&table[2]), ["b", "≥ 4x (64)", "1.000 ± 0.000"]);
    let csv = text(&report, "summaries.csv");
    assert!(csv.contains("a,,reach,,16,") && csv.contains("b,,reach,,64,"));
    csv.must_have("b,,kept_area,,1,0,1,1,2,2,ok");
}

#[test]
fn reach_leaves_out_lengths_that_were_not_tested() {
    let without = |method: &str, len: usize, mut records: Vec<RunRecord>| {
        let of = |run: &&mut RunRecord| run.labels[0].text == method;
        let runs = records.iter_mut().filter(of);
        runs.for_each(|run| run.evals.retain(|row| row.test_len != len));
        records
    };
    let shown = |records: &[RunRecord]| {
        let report = report(records, &[], &spec()).unwrap();
        let table = cells(&text(&report, "report.md"), "Reach");
        ([table[1][1].clone(), table[2][1].clone()], report.summary)
    };
    let all = |b: [f64; 4]| scores(&[("a", &[[1.0, 1.0, 0.5, 0.5]; 2]), ("b", &[b; 2])]);
    // b was not tested at 32 and keeps its score at 64.
    let (reach, summary) = shown(&without("b", 32, all([1.0; 4])));
    assert_eq!(reach, ["1x", "≥ 4x (64)"]);
    summary.must_have("b holds up to 64");
    // Both are lost at the first length past training at which they were tested.
    let (reach, summary) = shown(&without("b", 32, all([1.0, 1.0, 1.0, 0.5])));
    assert_eq!(reach, ["1x", "1x"]);
    summary.must_have("no method holds at the next length at which it was tested");
    // Nothing longer was tested of b: nothing is said of it.
    let (reach, summary) = shown(&without("b", 32, without("b", 64, all([1.0; 4]))));
    assert_eq!(reach, ["1x", "≥ 1x"]);
    summary.must_have("no method holds at the next tested length, 32");
}

#[test]
fn a_score_that_a_method_does_not_have_is_not_called_low() {
    let summary = |ends: &[&str]| {
        let mut records = scores(&[
            ("a", &[[1.0, 1.0, 0.5, 0.5]; 2]),
            ("b", &[[1.0, 1.0, 0.5, 0.5]; 2]),
        ]);
        for run in &mut records {
            let is_cut = ends.contains(&run.labels[0].text.as_str());
            for row in run
                .evals
                .iter_mut()
                .filter(|row| is_cut && row.test_len > 16)
            {
                let len = row.test_len;
                *row = absent_row("trained", len, EvalStatus::Unsupported, "the table ends");
            }
        }
        report(&records, &[], &spec()).unwrap().summary
    };
    let low = "its exact match there is less than 90 % of that at 16";
    let (none, one, both) = (summary(&[]), summary(&["a"]), summary(&["a", "b"]));
    assert!(
        none.contains(&format!("{low}.")) || none.contains(&format!("{low};")),
        "{none}"
    );
    one.must_have(&format!("{low}, or it has none there"));
    both.must_have("at the next tested length, 32 symbols: none has a score there");
}

#[test]
fn another_evaluation_is_no_other_training() {
    let one = scores(&[("a", &[[1.0; 4]; 2])]);
    let mut greedy = one.clone();
    for run in &mut greedy {
        run.spec["eval"]["decode"] = "greedy".into();
        run.run_id = hex(&format!("greedy {}", run.run_id));
    }
    let both: Vec<RunRecord> = one.iter().chain(&greedy).cloned().collect();
    let notes = |records: &[RunRecord]| text(&report(records, &[], &spec()).unwrap(), "report.md");
    assert!(!notes(&both).contains("trainings each"));
    for run in &mut greedy {
        run.spec["train"]["steps"] = 7.into();
    }
    let both: Vec<RunRecord> = one.into_iter().chain(greedy).collect();
    assert!(notes(&both).contains("1 model is here with up to 2 trainings each"));
}

#[test]
fn differences_are_paired_by_seed() {
    // The scores of seeds differ by far more than the methods do; the differences are 0.1, 0.1 and
    // 0.1 at 32.
    let a: &[[f64; 4]] = &[
        [1.0, 1.0, 0.9, 0.2],
        [1.0, 1.0, 0.5, 0.1],
        [1.0, 1.0, 0.2, 0.9],
    ];
    let b: &[[f64; 4]] = &[
        [1.0, 1.0, 0.8, 0.1],
        [1.0, 1.0, 0.4, 0.9],
        [1.0, 1.0, 0.1, 0.1],
    ];
    let mut records = scores(&[("a", a), ("b", b)]);
    // A seed of one method alone is in no pair.
    let mut alone = records[0].clone();
    (alone.seed, alone.run_id) = (9, hex("alone"));
    records.push(alone);
    for baseline in ["b", "first"] {
        let spec = ReportSpec {
            baseline: Some(baseline.into()),
            ..spec()
        };
        let report = report(&records, &[], &spec).unwrap();
        let markdown = text(&report, "report.md");
        let other = if baseline == "b" { "a" } else { "b" };
        let name = if baseline == "b" { "b" } else { "a" };
        let row = cells(&markdown, &format!("exact_match: difference to {name}"))[1].clone();
        // The three seeds agree, which leaves the 4,096 test rows, and at a share of 1 the added
        // spread between seeds.
        let differ = if baseline == "b" {
            "+0.100 \\[0.07, 0.13\\]"
        } else {
            "-0.100 \\[-0.13, -0.07\\]"
        };
        assert_eq!(
            row[..4],
            [
                other,
                "0.000 \\[-0.07, 0.07\\]",
                "0.000 \\[-0.07, 0.07\\]",
                differ
            ]
        );
        assert!(markdown.contains("n = 3 pairs"));
        report.summary.must_have(&format!(
            "Paired by seed, exact_match minus that of {name} at 64: no difference shown: "
        ));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..Default::default() })]

    #[test]
    fn order_of_the_records_does_not_matter(keys in proptest::collection::vec(any::<u64>(), 64)) {
        let all = everything();
        let mut shuffled = all.clone();
        let by_id: BTreeMap<&str, u64> = all.iter().enumerate().map(|(i, r)| (r.run_id.as_str(), keys[i % 64].rotate_left(i as u32))).collect();
        shuffled.sort_by_key(|r| by_id[r.run_id.as_str()]);
        shuffled.extend(all.iter().take(5).cloned());
        prop_assert_eq!(report(&all, &[], &spec()).unwrap(), report(&shuffled, &[], &spec()).unwrap());
    }
}

#[test]
fn many_settings_are_the_rows_of_the_overview() {
    let kinds: Vec<String> = (0..9).map(|at| format!("task{at}")).collect();
    let mut records: Vec<RunRecord> = Vec::new();
    for kind in &kinds {
        records.extend(scored(kind, "alibi", &[(1.0, 0.95)]));
        records.extend(scored(kind, "rope", &[(1.0, 0.5)]));
    }
    // A method of one setting, and a setting of one method.
    records.extend(scored("task0", "nope", &[(1.0, 0.5)]));
    records.extend(scored("alone", "rope", &[(1.0, 0.5)]));
    let markdown = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    let rows = cells(&markdown, "How far each method keeps its score");
    assert_eq!(rows[0], ["setting", "rope", "alibi"]);
    assert_eq!(rows.len(), 1 + kinds.len());
    for (row, kind) in rows[1..].iter().zip(&kinds) {
        row[0].must_have(&format!("{kind}, trained at 16 symbols"));
        assert_eq!(row[1..], ["1x", "1.5x"]);
    }
    markdown.must_have("Methods of few settings, 1, are in their tables only.");
}

#[test]
fn a_metric_defined_in_two_ways_is_shown_in_both() {
    let mut records = scored("copy", "alibi", &[(1.0, 0.9)]);
    records.extend(scored("copy", "rope", &[(1.0, 0.9)]));
    records[1]
        .task
        .definitions
        .insert("exact_match".into(), "decoded greedily.".into());
    let markdown = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    let both =
        "for alibi: share of sequences with every answer token right; for rope: decoded greedily.";
    markdown.must_have(&format!("- exact_match: {both}"));
}

#[test]
fn exact_matches_by_depth_are_drawn_for_every_method() {
    let mut records = [
        scored("passkey", "alibi", &[(1.0, 0.9)]),
        scored("passkey", "rope", &[(1.0, 0.9)]),
    ]
    .concat();
    for row in records.iter_mut().flat_map(|run| &mut run.evals) {
        for (depth, share) in [("0_50", 0.25), ("50_100", 0.75)] {
            row.metrics.insert(
                format!("exact_match_depth_{depth}"),
                Metric {
                    value: share,
                    n: 16,
                },
            );
        }
    }
    for run in &mut records {
        run.task.definitions.extend(
            ["0_50", "50_100"]
                .map(|depth| (format!("exact_match_depth_{depth}"), "by depth".to_string())),
        );
    }
    let report = report(&records, &[], &spec()).unwrap();
    let svg = text(&report, "depth-by-length.svg");
    assert_eq!(
        [">0.25<", ">0.75<"].map(|share| svg.matches(share).count()),
        [6, 6],
        "two methods at three lengths"
    );
    assert!(svg.contains("50 to 100 %") && svg.contains("train length"));
    assert!(text(&report, "report.md").contains("](depth-by-length.svg)"));
}

fn summary(records: &[RunRecord]) -> String {
    report(
        records,
        &[],
        &ReportSpec {
            baseline: Some("first".into()),
            ..spec()
        },
    )
    .unwrap()
    .summary
}

#[test]
fn none_is_best_at_zero_or_among_equals() {
    let learned = |far: [f64; 3]| far.map(|v| [1.0, 1.0, v, v]);
    // All at 0 past the training length.
    let zero = summary(&scores(&[
        ("a", &learned([0.0; 3])),
        ("b", &learned([0.0; 3])),
    ]));
    zero.must_have("no method holds at the next tested length");
    zero.must_have(". At 64 every exact match is 0.000.");
    assert!(!zero.contains("best exact match"), "{zero}");
    // Equal means, in other orders of the seeds.
    let tied = summary(&scores(&[
        ("a", &learned([0.5, 0.6, 0.7])),
        ("b", &learned([0.7, 0.5, 0.6])),
        ("c", &learned([0.1; 3])),
    ]));
    tied.must_have("At 64 the highest exact match, 0.600, is that of a and b.");
    // Above another, not beyond its interval: no best, and the reason.
    let near = summary(&scores(&[
        ("a", &learned([0.5, 0.6, 0.7])),
        ("b", &learned([0.5, 0.6, 0.6])),
        ("c", &learned([0.0; 3])),
    ]));
    near.must_have("the highest exact match is that of a (0.60 [");
    near.must_have("its 95 % interval touches that of b)");
    let clear = summary(&scores(&[
        ("a", &learned([0.9; 3])),
        ("b", &learned([0.1; 3])),
    ]));
    clear.must_have("the best exact match is that of a (0.900 [");
    clear.must_have("its 95 % interval touches no other)");
}

#[test]
fn none_is_best_at_chance() {
    let mut records = scores(&[
        ("a", &[[1.0, 1.0, 0.5, 0.51]; 3]),
        ("b", &[[1.0, 1.0, 0.5, 0.40]; 3]),
    ]);
    for run in &mut records {
        run.task.chance.insert("exact_match".into(), 0.5);
    }
    let text = summary(&records);
    text.must_have("At 64 no method is shown to have a better exact match than chance (0.500)");
    // Clear of the other, and not clear of chance.
    for row in records
        .iter_mut()
        .filter(|run| run.labels[0].text == "b")
        .flat_map(|run| &mut run.evals)
        .filter(|row| row.test_len > 16)
    {
        row.metrics.get_mut("exact_match").unwrap().value = 0.0;
    }
    let report = report(&records, &[], &spec()).unwrap();
    report
        .summary
        .must_have("no method is shown to have a better exact match than chance");
    assert!(!report.summary.contains(" *"));
}

#[test]
fn the_reason_is_the_one_that_applies() {
    // One of three seeds of the best method gave no number at the longest length.
    let mut records = scores(&[
        ("a", &[[1.0, 1.0, 0.9, 0.9]; 3]),
        ("b", &[[1.0, 1.0, 0.1, 0.1]; 3]),
    ]);
    let row = records[0].evals.last_mut().unwrap();
    (row.status, row.reason) = (EvalStatus::Skipped, Some("memory".into()));
    row.metrics.clear();
    let text = summary(&records);
    text.must_have("highest exact match is that of a (0.900 [");
    text.must_have("(2/3); not all of its seeds gave a number");
    // The other has one seed.
    let all = scores(&[
        ("a", &[[1.0, 1.0, 0.9, 0.9]; 3]),
        ("b", &[[1.0, 1.0, 0.1, 0.1]]),
    ]);
    let text = summary(&all);
    text.must_have("b has one seed: no ranking");
    text.must_have("minus that of a at 64: one seed: no test: b (-0.800).");
    // Nothing to compare with is not the absence of a difference.
    let mut records = scores(&[
        ("a", &[[1.0, 1.0, 0.9, 0.9]; 3]),
        ("b", &[[1.0, 1.0, 0.1, 0.1]; 3]),
    ]);
    for run in records.iter_mut().filter(|run| run.labels[0].text == "b") {
        *run.evals.last_mut().unwrap() =
            absent_row("trained", 64, EvalStatus::Unsupported, "the table ends");
    }
    summary(&records).must_have("at 64: no number: b (unsupported).");
    // A baseline that ends there is compared where it has its last number.
    let of_b = ReportSpec {
        baseline: Some("b".into()),
        ..spec()
    };
    let text = report(&records, &[], &of_b).unwrap().summary;
    text.must_have("minus that of b at 32: better: a (");
    text.must_have(". b has no number at 64.");
}

#[test]
fn another_metric_is_named_where_the_leading_one_tells_nothing_apart() {
    let with = |tokens: [f64; 2], seeds: usize| -> Vec<RunRecord> {
        let mut records = scores(&[("a", &vec![[0.0; 4]; seeds]), ("b", &vec![[0.0; 4]; seeds])]);
        for run in &mut records {
            let value = if run.labels[0].text == "a" {
                tokens[0]
            } else {
                tokens[1]
            };
            for row in &mut run.evals {
                row.metrics
                    .insert("token_accuracy".into(), Metric { value, n: 4096 });
            }
        }
        records
    };
    let text = summary(&with([0.2, 0.7], 3));
    text.must_have(
        "exact match at 16 does not distinguish the methods, token accuracy does: from b (0.700 [",
    );
    for (tokens, seeds) in [([0.2, 0.22], 3), ([0.2, 0.7], 1)] {
        assert!(
            !summary(&with(tokens, seeds)).contains("distinguish"),
            "nothing is said where that metric does not either, or one seed tests nothing"
        );
    }
}

#[test]
fn the_rows_of_a_share_of_tokens_are_those_of_the_exact_match() {
    // 4,096 rows of 8 tokens: the tokens of a row are not independent, so both shares have the same
    // interval.
    let mut records = scores(&[("a", &[[1.0, 1.0, 0.5, 0.5]; 3])]);
    for row in records.iter_mut().flat_map(|run| &mut run.evals) {
        let value = row.metrics["exact_match"].value;
        row.metrics.get_mut("exact_match").unwrap().n = 100;
        row.metrics
            .insert("token_accuracy".into(), Metric { value, n: 800 });
    }
    let markdown = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    let row = |heading: &str| cells(&markdown, heading)[1].clone();
    assert_eq!(
        row("exact_match by test length"),
        row("token_accuracy by test length")
    );
    assert_eq!(
        row("exact_match by test length")[3],
        "0.50 \\[0.39, 0.61\\]"
    );
}

#[test]
fn scores_while_training_have_a_figure_for_each_length() {
    let mut all = copy_experiment(2);
    for (i, record) in all.iter_mut().enumerate() {
        let end = record.train.steps;
        let at = |step: u64| {
            let rows = record.evals.iter().filter(|row| row.variant == "trained");
            let row = |row: &EvalRow| {
                let mut row = row.clone();
                if let Some(exact) = row.metrics.get_mut("exact_match") {
                    exact.value *= step as f64 / end as f64;
                }
                row
            };
            StepScores {
                step,
                rows: rows.map(row).collect(),
            }
        };
        let scores = [end / 4, end / 2, end].map(at).into();
        // One run was trained without them.
        record.train.scores = if i == 0 { Vec::new() } else { scores };
    }
    let with = report(&all, &[], &spec()).unwrap();
    let names = |report: &Report| -> Vec<String> {
        let names = report.files.iter().map(|file| file.name.clone());
        names.filter(|name| name.contains("by-step-at")).collect()
    };
    let lengths: std::collections::BTreeSet<usize> =
        all[1].evals.iter().map(|row| row.test_len).collect();
    assert_eq!(
        names(&with).len(),
        lengths.len().min(4),
        "{:?}",
        names(&with)
    );
    let markdown = text(&with, "report.md");
    markdown.must_have("exact_match at");
    assert!(markdown.contains("by training step, under the encoding as trained"));
    // Where nothing is solved, the axis is that of a share all the same.
    let rows = |record: &mut RunRecord| {
        let scores = record.train.scores.iter_mut();
        let metrics = scores.flat_map(|at| &mut at.rows);
        for metric in metrics.flat_map(|row| row.metrics.values_mut()) {
            metric.value = 0.0;
        }
    };
    all.iter_mut().for_each(rows);
    let none = report(&all, &[], &spec()).unwrap();
    for name in names(&none).iter().filter(|name| name.ends_with(".svg")) {
        let svg = text(&none, name);
        assert!(svg.contains(">0.8<") && !svg.contains(">-0."), "{name}");
    }
    for record in &mut all {
        record.train.scores.clear();
    }
    assert!(names(&report(&all, &[], &spec()).unwrap()).is_empty());
}

/// One seed takes all steps; the other has a loss of 3 from the first to its last step. Where it
/// ends early, with points at other steps, the figure is the same as where it goes on with 3.
#[test]
fn a_training_that_ended_counts_with_its_last_loss() {
    let figure = |every: u64, steps: u64| {
        let run = |seed: u64, every: u64, steps: u64| {
            let mut run = record("x", &[("model.pe", json!("rope"))], seed, copy_task(16));
            run.train.steps = steps;
            let loss = |step: u64| match seed {
                0 => 4.0 - step as f64 / 1000.0,
                _ => 3.0,
            };
            let at = (1..=steps / every).map(|at| at * every);
            let point = |step| CurvePoint {
                step,
                loss_nats: loss(step),
            };
            run.train.loss_curve = at.map(point).collect();
            run.evals
                .push(ok_row("trained", 16, &[("exact_match", 1.0)]));
            run
        };
        let records = [run(0, 100, 2000), run(1, every, steps)];
        let report = report(&records, &[], &spec()).unwrap();
        let says = text(&report, "report.md").contains("counts with its last value");
        (text(&report, "training-loss.svg"), says)
    };
    let (whole, says) = figure(100, 2000);
    assert!(!says);
    assert_eq!(figure(50, 1000), (whole, true));
}

#[test]
fn runs_that_were_trained_together_say_so() {
    let mut records = copy_experiment(2);
    let text_of = |records: &[RunRecord]| {
        let report = report(records, &[], &spec()).unwrap();
        text(&report, "report.md")
    };
    assert!(!text_of(&records).contains("trained together"));
    let environment = serde_json::to_value(&records[0].environment).unwrap();
    assert!(environment.get("runs_together").is_none());
    for record in &mut records {
        record.environment.device = "cuda".into();
        record.environment.runs_together = Some(8);
    }
    let all = text_of(&records);
    all.must_have("trained together");
    all.must_have("8 runs");
    assert!(!all.contains("others alone"), "{all}");
    records[0].environment.runs_together = None;
    assert!(text_of(&records).contains("others alone"));
}

#[test]
fn the_steps_of_runs_that_may_end_early_are_told() {
    let mut records = copy_experiment(3);
    let page = |records: &[RunRecord]| text(&report(records, &[], &spec()).unwrap(), "report.md");
    assert!(!page(&records).contains("a training ended once"));
    for (record, steps) in records
        .iter_mut()
        .zip([500, 2000, 1000, 2000, 2000, 2000, 700, 900])
    {
        record.train.steps = steps;
    }
    for record in &mut records {
        let stop = json!({ "metric": "exact_match", "at_least": 1.0, "every": 500 });
        record.spec["train"]["stop"] = stop;
        describe(record);
    }
    let page = page(&records);
    // Seeds in order: the median, the least and the most.
    for steps in ["1,000 (500 to 2,000)", "| 2,000 |", "900 (700 to 2,000)"] {
        assert!(page.contains(steps), "{steps}: {page}");
    }
    let told = "a training ended once exact_match was at least 1 on selection rows at the training \
                length, measured every 500 steps, or after all its steps";
    page.must_have(told);
}

#[test]
fn test_rows_that_repeat_are_told_in_the_definition() {
    let mut records = copy_experiment(2);
    let page = |records: &[RunRecord]| text(&report(records, &[], &spec()).unwrap(), "report.md");
    assert!(!page(&records).contains("Distinct among"));
    for record in &mut records {
        for row in record.evals.iter_mut().filter(|row| row.test_len <= 16) {
            let rows = row.metrics["exact_match"].n;
            row.distinct_rows = Some(rows - row.test_len as u64);
        }
    }
    let rows = records[0].evals[0].metrics["exact_match"].n;
    let told = format!(
        "Distinct among the test rows: {} of {rows} at 8 symbols, {} of {rows} at 16 symbols.",
        rows - 8,
        rows - 16
    );
    let page = page(&records);
    assert!(page.contains(&told), "{told}: {page}");
}

/// The records of an experiment whose test at 32 is a range.
fn ranged() -> Vec<RunRecord> {
    let mut records = copy_experiment(2);
    for record in &mut records {
        for row in record.evals.iter_mut().filter(|row| row.test_len == 32) {
            row.from_len = Some(17);
        }
    }
    records
}

#[test]
fn a_range_is_a_column_named_by_its_ends() {
    let plain = copy_experiment(2);
    let (before, after) = (
        report(&plain, &[], &spec()).unwrap(),
        report(&ranged(), &[], &spec()).unwrap(),
    );
    let page = text(&after, "report.md");
    page.must_have("| 17..32 |");
    // The numbers are those of the rows, and all else is as without a range.
    assert_eq!(page.replace("17..32", "32"), text(&before, "report.md"));
    let (before, after) = (text(&before, "results.csv"), text(&after, "results.csv"));
    assert!(!before.contains("from_len"));
    let mut with = csv::Reader::from_reader(after.as_bytes());
    let heads = with.headers().unwrap().clone();
    let at = |name: &str| heads.iter().position(|head| head == name).unwrap();
    for row in with.records().map(Result::unwrap) {
        let expected = if &row[at("test_len")] == "32" {
            "17"
        } else {
            ""
        };
        assert_eq!(&row[at("from_len")], expected);
    }
}

#[test]
fn runs_tested_over_other_ranges_at_the_last_of_many_lengths_are_apart() {
    let lengths = [8, 16, 32, 64, 128];
    let records: Vec<RunRecord> = [0, 4, 5]
        .into_iter()
        .flat_map(|ranges| {
            let of = move |mut run: RunRecord| {
                run.experiment = format!("with {ranges} ranges");
                run.run_id = hex(&format!("{} {ranges}", run.run_id));
                let row = |(at, len)| EvalRow {
                    from_len: (at < ranges).then_some(len - 3),
                    ..ok_row("trained", len, &[("exact_match", 0.5)])
                };
                run.evals = lengths.into_iter().enumerate().map(row).collect();
                run
            };
            copy_experiment(1).into_iter().map(of)
        })
        .collect();
    let page = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    for last in ["128", "125..128"] {
        let name = format!("tested at 5..8, 13..16, 29..32, 61..64, {last}");
        assert!(page.contains(&name), "{name}: {page}");
    }
}

#[test]
fn runs_tested_at_a_length_and_over_a_range_that_ends_there_are_apart() {
    let mut records = copy_experiment(2);
    let mut others = ranged();
    for record in &mut others {
        record.run_id = hex(&format!("ranged {}", record.run_id));
        record.experiment = "ranged".into();
    }
    records.extend(others);
    let page = text(&report(&records, &[], &spec()).unwrap(), "report.md");
    page.must_have("tested at 17..32");
    page.must_have("tested at 32");
}
