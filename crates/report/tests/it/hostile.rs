//! Reports on records by strangers: whatever their strings and numbers are, every format stays what
//! it is.

use crate::common::*;
use longreach_report::plot::{Heatmap, LinePlot, Series};
use longreach_report::{Report, ReportError, ReportSpec, report};
use proptest::prelude::*;
use records::Excluded;
use records::record::*;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const PAYLOADS: [&str; 36] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</text></svg></td></table></style><iframe src=//evil>",
    "]]><!--",
    "&lt;b&gt; &#60;",
    "{{ 7 * 7 }} {% raw %}",
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1+1",
    "\r=1+1",
    "rope;=1+1",
    "a,\"=1+1",
    "a;\"=1+1",
    "a\"; \"\" @SUM(A1)",
    "＝1+1",
    "-1.5",
    "\\input{/etc/passwd}",
    "}\\write18{rm}{",
    "%\\end{table}",
    "$\\frac{1}{2}$ ^^M _{x} ~#&",
    "[x](javascript:alert(1))",
    "![x](http://evil/x.png) https://evil www.evil.com",
    "| a | b |\n|---|---|\n# heading\n```\n> quote",
    "`code` **bold** ~~no~~",
    "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m",
    "../../x",
    "..\\..\\x",
    "/etc/passwd",
    "$(rm -rf ~) `rm`",
    "ro\u{200b}pe\u{feff}\u{ad}",
    "\u{202e}gnp.exe\u{2066}\u{61c}",
    "\0nul\u{85}\u{2028}\u{2029}\u{fffe}",
    "con",
];

fn payload() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => proptest::sample::select(&PAYLOADS[..]).prop_map(String::from),
        1 => any::<String>(),
        1 => Just("x".repeat(10_000)),
        1 => proptest::sample::select(&PAYLOADS[..]).prop_map(|p| p.repeat(200)),
        1 => Just(String::new()),
    ]
}

/// A record that says `word` (or the next of the words) wherever a record can say something.
fn speaking(words: &[String], seed: u64, run_id: &str) -> RunRecord {
    let mut at = seed as usize;
    let mut word = || {
        at += 1;
        words[at % words.len()].clone()
    };
    let metric = word();
    let row =
        |variant: String, test_len, status, reason: Option<String>, metrics: &[(&String, f64)]| {
            EvalRow {
                variant,
                test_len,
                status,
                reason,
                metrics: metrics
                    .iter()
                    .map(|(name, value)| {
                        (
                            (*name).clone(),
                            Metric {
                                value: *value,
                                n: 10,
                            },
                        )
                    })
                    .collect(),
                loss_by_position: if metrics.is_empty() {
                    vec![]
                } else {
                    bins(64, 1.0, 0.1, seed)
                },
                loss_by_block: vec![],
                distinct_rows: None,
                from_len: None,
                denominators: None,
            }
        };
    let other = word();
    RunRecord {
        schema: SCHEMA,
        run_id: run_id.into(),
        experiment: word(),
        labels: vec![
            Label {
                key: word(),
                text: word(),
                value: json!(word()),
            },
            Label {
                key: format!("{}.base", word()),
                text: word(),
                value: json!(100 + seed),
            },
        ],
        seed,
        status: RunStatus::Diverged,
        diverged: Some(Divergence {
            step: 3,
            what: word(),
            batch: Some(word()),
        }),
        task: TaskFacts {
            kind: word(),
            train_len: 32,
            unit: word(),
            primary_metric: metric.clone(),
            definitions: BTreeMap::from([(metric.clone(), word()), (other.clone(), word())]),
            chance: BTreeMap::from([(metric.clone(), 0.1)]),
            bytes_per_token: Some(1.0),
            scored: None,
            corpus: Some(CorpusFacts {
                source: word(),
                files: 1,
                train_bytes: 1,
                valid_bytes: 1,
                blake3: word(),
            }),
        },
        model: ModelFacts {
            parameters: 2,
            encoding_parameters: 1,
            weights_blake3: word(),
        },
        encoding_facts: BTreeMap::from([(encoding_fact::LONGEST_WAVELENGTH.into(), 1e300)]),
        train: TrainFacts {
            steps: 1,
            tokens: 1,
            final_loss_nats: Some(1.0),
            loss_curve: curve(seed, 1.0),
            scores: Vec::new(),
            stop_scores: Vec::new(),
        },
        evals: vec![
            row(
                "trained".into(),
                32,
                EvalStatus::Ok,
                None,
                &[(&metric, 0.5), (&other, -0.5)],
            ),
            row("trained".into(), 64, EvalStatus::Skipped, Some(word()), &[]),
            row(
                word() + "!",
                64,
                EvalStatus::Ok,
                Some(word()),
                &[(&metric, 0.4)],
            ),
        ],
        environment: Environment {
            version: word(),
            commit: word(),
            device: word(),
            burn: word(),
            runs_together: None,
        },
        started_from: None,
        evaluation_of: None,
        by_length: BTreeMap::new(),
        half_of: None,
        selected: None,
        seal: None,
        spec: Map::from_iter([
            ("model".into(), json!({ word(): word() })),
            ("train".into(), json!({ word(): { word(): word() } })),
            (word(), Value::Null),
        ]),
    }
}

fn hostile_report(words: &[String]) -> Report {
    let mut records: Vec<RunRecord> = (0..4)
        .map(|i| speaking(words, i, &hex(&format!("h{i}"))))
        .collect();
    records.extend(copy_experiment(1));
    let excluded = [Excluded {
        path: format!("runs/{}", words[0]).into(),
        line: Some(3),
        reason: words[words.len() - 1].clone(),
    }];
    let spec = ReportSpec {
        title: words[0].clone(),
        order: words.to_vec(),
        ..Default::default()
    };
    report(&records, &excluded, &spec).unwrap()
}

fn text<'r>(report: &'r Report, name: &str) -> &'r str {
    std::str::from_utf8(report.file(name).unwrap()).unwrap()
}

fn check_visible(name: &str, text: &str) {
    let hidden = |c: char| {
        c != '\n' && c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
            || matches!(c, '\u{feff}' | '\u{fffe}')
    };
    assert!(
        !text.contains(hidden),
        "{name}: {:?}",
        text.chars().find(|c| hidden(*c))
    );
}

/// What a section of a document may be called in links.
fn is_slug(slug: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    slug.bytes().all(is_plain)
}

/// The words of a row whose headings lead to sections of the document, `[words](#section)`.
fn without_links(row: &str) -> String {
    let (mut words, mut rest) = (String::new(), row);
    while let Some((before, after)) = rest.split_once("](#") {
        let (slug, left) = after.split_once(')').unwrap();
        assert!(is_slug(slug), "{row}");
        let (start, link) = before.rsplit_once('[').unwrap();
        words += start;
        words += link;
        rest = left;
    }
    words + rest
}

/// Every tag is one of ours with attributes of ours, opened and closed in order; text holds no bare
/// markup, and links lead to a place of the page or to another of the `pages`.
fn check_markup(name: &str, text: &str, pages: &[&str]) {
    const TAGS: &str = " span script button select option label input h4 small polygon title code html head meta title style body header h1 p nav a main section h2 h3 \
                        figure div table thead tr th tbody td strong figcaption dl dt dd ul li \
                        details summary pre svg rect line polyline path circle text g defs marker use noscript ";
    const ATTRIBUTES: &str = " lang charset name content open aria-current http-equiv id class href scope \
                              xmlns width height viewBox role aria-label font-family fill stroke \
                              stroke-width stroke-dasharray stroke-linejoin stroke-linecap \
                              fill-opacity opacity x y x1 y1 x2 y2 cx cy r d points font-size \
                              text-anchor font-weight transform fill-rule xml:space style hidden tabindex \
                              type value placeholder data-metric data-m data-s data-t data-x data-y data-p data-of \
                              data-box data-other data-dots data-c data-r aria-hidden markerUnits markerWidth \
                              markerHeight refX refY ";
    const VOID: &str = " meta input ";
    let is_ours = |link: &str| {
        let page = link.split('#').next().unwrap();
        page.is_empty() && link.len() > 1 || pages.contains(&page)
    };
    let text = without_own_script(text).replace("<data>", "<script class=\"differences\">");
    let text = text.as_str();
    let mut open: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix("!doctype html>") {
            rest = after;
            continue;
        }
        if let Some(closing) = rest.strip_prefix('/') {
            let end = closing.find('>').unwrap();
            assert_eq!(open.pop().as_deref(), Some(&closing[..end]), "{name}");
            rest = &closing[end + 1..];
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap();
        let tag = &rest[..end];
        assert!(TAGS.contains(&format!(" {tag} ")), "{name}: <{tag}");
        rest = &rest[end..];
        let closed = loop {
            rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix("/>") {
                rest = after;
                break true;
            }
            if let Some(after) = rest.strip_prefix('>') {
                rest = after;
                break false;
            }
            let (attribute, after) = rest
                .split_once("=\"")
                .unwrap_or_else(|| panic!("{name}: {}", &rest[..80.min(rest.len())]));
            assert!(
                ATTRIBUTES.contains(&format!(" {attribute} ")),
                "{name}: {attribute:?} in <{tag}"
            );
            let (value, after) = after.split_once('"').unwrap();
            assert!(
                !value.contains(['<', '>']) && (attribute != "href" || is_ours(value)),
                "{name}: {value}"
            );
            rest = after;
        };
        if tag == "style" || tag == "script" {
            rest = &rest[rest.find(&format!("</{tag}>")).unwrap()..];
        }
        if !closed && !VOID.contains(&format!(" {tag} ")) {
            open.push(tag.into());
        }
    }
    assert!(open.is_empty(), "{name}: {open:?}");
    let ids: Vec<&str> = text
        .split(" id=\"")
        .skip(1)
        .map(|s| s.split('"').next().unwrap())
        .collect();
    assert_eq!(
        ids.len(),
        ids.iter().collect::<BTreeSet<_>>().len(),
        "{name}"
    );
    assert!(
        ids.iter().all(|id| id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))),
        "{ids:?}"
    );
}

fn check_markdown(text: &str, figures: usize) {
    let (mut images, mut columns, mut fenced) = (0, None, false);
    for line in text.lines() {
        // A config: nothing in it ends the block, and no tag shows where blocks are not known.
        if line.starts_with("```") {
            assert_eq!(line, if fenced { "```" } else { "```text" });
            fenced = !fenced;
            continue;
        }
        if fenced {
            assert!(!line.contains(['`', '<', '>', '&']), "{line}");
            continue;
        }
        // A fold of ours, which holds no name of a record.
        let folds = [
            "How to read it",
            "Table",
            "Config",
            "More tables, figures and definitions",
        ];
        let is_fold = |name: &str| line == format!("<details><summary>{name}</summary>");
        if line == "</details>" || folds.into_iter().any(is_fold) {
            columns = None;
            continue;
        }
        let anchor = line.strip_prefix("<a id=\"");
        if let Some(slug) = anchor.and_then(|rest| rest.strip_suffix("\"></a>")) {
            assert!(is_slug(slug), "{line}");
            continue;
        }
        let mut bare = String::new();
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            if c == '\\' {
                chars.next();
                bare.push(' ');
            } else {
                bare.push(c);
            }
        }
        if bare.starts_with('|') {
            bare = without_links(&bare);
        }
        let mut printed = bare.as_str();
        if let Some(image) = bare.strip_prefix("![") {
            // Where an image leads is not text: a name that was cut after `www` ends in `www.svg`.
            let (words, file) = image.split_once("](").unwrap();
            assert!(
                file.ends_with(".svg)") && file.bytes().filter(|b| b"[](".contains(b)).count() == 0,
                "{line}"
            );
            images += 1;
            printed = words;
        }
        assert!(
            !printed.contains(['`', '~', '$', '<', '>', '[', ']']),
            "{line}"
        );
        assert!(
            !printed.contains("://") && !printed.to_lowercase().contains("www."),
            "{line}"
        );
        if printed.len() < bare.len() {
            continue;
        }
        let pipes = bare.matches('|').count();
        columns = if pipes == 0 {
            None
        } else {
            columns.or(Some(pipes))
        };
        assert_eq!(columns.unwrap_or(0), pipes, "{line}");
    }
    assert_eq!(images, figures);
}

fn check_latex(text: &str) {
    const COMMANDS: &str = " usepackage begin centering small caption label toprule midrule \
                            bottomrule end par medskip parbox linewidth footnotesize \
                            multicolumn bfseries itshape textbackslash textasciitilde textasciicircum textless \
                            textgreater textbar boldmath textbf textit pm geq pi surd \
                            times ";
    let mut depth = 0;
    for line in text.lines() {
        if line.starts_with('%') {
            continue;
        }
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\\' if chars.peek().is_some_and(|c| c.is_ascii_alphabetic()) => {
                    let mut command = String::new();
                    while let Some(c) = chars.next_if(|c| c.is_ascii_alphabetic()) {
                        command.push(c);
                    }
                    assert!(COMMANDS.contains(&format!(" {command} ")), "{line}");
                }
                '\\' => assert!(
                    chars.next().is_some_and(|c| "\\&%$#_{},".contains(c)),
                    "{line}"
                ),
                '{' => depth += 1,
                '}' => depth -= 1,
                '$' => {
                    // Mathematics of ours is one sign long.
                    let inside: String = chars.by_ref().take_while(|c| *c != '$').collect();
                    assert!(
                        ["\\pm", "\\geq", "\\pi", "\\surd", "\\times"].contains(&inside.as_str()),
                        "{line}"
                    );
                }
                '%' | '#' | '^' | '~' | '_' | '"' => panic!("{line}"),
                _ => {}
            }
            assert!(depth >= 0, "{line}");
        }
        if let Some((_, label)) = line.split_once("\\label{") {
            assert!(
                label
                    .trim_end_matches('}')
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-:".contains(&b)),
                "{line}"
            );
        }
    }
    assert_eq!(depth, 0);
}

/// No cell is a formula, whichever separator a spreadsheet takes, and negative numbers are numbers.
fn check_csv(text: &str, is_results: bool) {
    let is_number = |cell: &str| cell.parse::<f64>().is_ok_and(f64::is_finite);
    let is_formula = |cell: &str| {
        let start = cell.trim_start_matches(|c: char| c == '"' || c.is_whitespace());
        !is_number(cell) && start.starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠'])
    };
    for (separator, is_ours) in [(b',', true), (b';', false), (b'\t', false)] {
        let mut numbers = 0;
        for row in csv::ReaderBuilder::new()
            .delimiter(separator)
            .flexible(!is_ours)
            .from_reader(text.as_bytes())
            .records()
        {
            for cell in &row.unwrap() {
                numbers += usize::from(is_number(cell) && cell.starts_with('-'));
                // Where a comma separates nothing, a row may begin with one of our numbers.
                let own = cell.split(',').next().unwrap();
                let start = if is_ours { cell } else { own };
                for piece in std::iter::once(start).chain(cell.split([';', '\t']).skip(1)) {
                    assert!(!is_formula(piece), "separator {separator}: {cell}");
                }
            }
        }
        let has_negative = numbers > 0 || !is_ours || !is_results;
        assert!(has_negative, "negative numbers stay numbers");
    }
}

fn check(report: &Report) {
    let mut names = BTreeSet::new();
    let pages = report.files.iter().map(|f| f.name.as_str());
    let pages: Vec<&str> = pages.filter(|name| name.ends_with(".html")).collect();
    for file in &report.files {
        let (stem, extension) = file.name.rsplit_once('.').unwrap();
        assert!(
            ["md", "html", "csv", "tex", "svg"].contains(&extension),
            "{}",
            file.name
        );
        assert!(
            stem.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && stem.len() < 110,
            "{}",
            file.name
        );
        assert!(names.insert(&file.name), "{} is there twice", file.name);
        let text = std::str::from_utf8(&file.bytes).unwrap();
        check_visible(&file.name, text);
        match extension {
            "html" | "svg" => check_markup(&file.name, text, &pages),
            _ => {}
        }
    }
    let figures = report
        .files
        .iter()
        .filter(|f| f.name.ends_with(".svg"))
        .count();
    check_markdown(text(report, "report.md"), figures);
    check_latex(text(report, "tables.tex"));
    check_csv(text(report, "results.csv"), true);
    check_csv(text(report, "summaries.csv"), false);
    check_visible("summary", &report.summary);
    // The run that means no harm is there all the same.
    text(report, "report.md").must_have("copy, trained at 16 symbols");
    report.summary.must_have("alibi");
}

#[test]
fn each_payload_in_every_place() {
    for payload in PAYLOADS {
        check(&hostile_report(&[payload.into()]));
    }
    check(&hostile_report(&["a".repeat(100_000)]));
    check(&hostile_report(&["\u{202e}".repeat(100_000)]));
    // Found by chance: cut where a file's name ends in `www`.
    let twice = "![x](http://evil/x.png) https://evil www.evil.com".repeat(60);
    check(&hostile_report(&[
        twice,
        "<script>alert(1)</script>".into(),
    ]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() })]

    #[test]
    fn payloads_anywhere(words in proptest::collection::vec(payload(), 1..8)) {
        check(&hostile_report(&words));
    }

    #[test]
    fn numbers_at_the_ends_of_their_range(
        values in proptest::collection::vec(number(), 24),
        lens in proptest::collection::vec(length(), 6),
    ) {
        let mut records = [copy_experiment(2), text_experiment()].concat();
        let mut value = values.iter().cycle().copied();
        let mut len = lens.iter().cycle().copied();
        for run in &mut records {
            run.task.train_len = len.next().unwrap();
            run.train.final_loss_nats = value.next();
            run.train.loss_curve.iter_mut().for_each(|p| p.loss_nats = value.next().unwrap());
            run.task.chance.values_mut().for_each(|v| *v = value.next().unwrap());
            run.task.bytes_per_token = value.next();
            for row in &mut run.evals {
                row.test_len = len.next().unwrap();
                row.metrics.values_mut().for_each(|m| m.value = value.next().unwrap());
                row.loss_by_position.iter_mut().for_each(|b| b.loss_nats = value.next().unwrap());
                if let Some(bin) = row.loss_by_position.last_mut() {
                    (bin.from, bin.to) = (usize::MAX - 1, usize::MAX);
                }
            }
        }
        let report = report(&records, &[], &ReportSpec::default()).unwrap();
        for file in &report.files {
            let text = without_own_script(std::str::from_utf8(&file.bytes).unwrap());
            let bad = ["NaN", ">inf", "\"inf", "| inf", "-inf", ",inf"].iter().find_map(|bad| text.find(bad));
            prop_assert!(bad.is_none(), "{}: {:?}", file.name, bad.map(|at| &text[at.saturating_sub(200)..at + 5]));
        }
    }
}

const EXTREMES: [f64; 14] = [
    0.0,
    -0.0,
    5e-324,
    1e-320,
    1e-300,
    1e16,
    1e16 + 2.0,
    1e150,
    1e151,
    f64::MAX,
    f64::MIN,
    -1e-5,
    1.0,
    1.0 + f64::EPSILON,
];

#[test]
fn pictures_of_extreme_numbers_are_drawn() {
    for at in 0..EXTREMES.len() {
        let values: Vec<(f64, f64)> = (0..4)
            .map(|i| {
                (
                    10f64.powi(i),
                    EXTREMES[(at + i as usize * 3) % EXTREMES.len()],
                )
            })
            .collect();
        let line = |style| Series {
            name: "x".into(),
            band: values.iter().map(|v| Some((v.1, v.1 * 2.0))).collect(),
            points: values.clone(),
            style,
            ..Series::default()
        };
        for (log_x, log_y) in [(false, false), (true, true)] {
            let series = vec![line(0), line(8), line(16)];
            let plot = LinePlot {
                log_x,
                log_y,
                series,
                reference_y: Some((values[0].1, "y".into())),
                ..Default::default()
            };
            check_markup("lines", &plot.to_svg(), &[]);
        }
        let map = Heatmap {
            values: vec![values.iter().map(|v| v.1).collect()],
            ..Default::default()
        };
        check_markup("map", &map.to_svg(), &[]);
    }
}

fn number() -> impl Strategy<Value = f64> {
    use proptest::num::f64::{NORMAL, SUBNORMAL, ZERO};
    prop_oneof![3 => proptest::sample::select(EXTREMES.to_vec()), 1 => NORMAL | SUBNORMAL | ZERO]
}

fn length() -> impl Strategy<Value = usize> {
    proptest::sample::select(vec![1, 2, 64, 1 << 20, usize::MAX / 2, usize::MAX])
}

#[test]
fn a_name_of_any_length_makes_a_picture_of_bounded_size() {
    let mut records = copy_experiment(1);
    for run in &mut records {
        run.task.unit = "w".repeat(100_000);
        run.task.kind = "m".repeat(100_000);
        run.labels[0].text = "W".repeat(100_000);
    }
    let report = report(&records, &[], &ReportSpec::default()).unwrap();
    for file in report.files.iter().filter(|f| f.name.ends_with(".svg")) {
        let svg = std::str::from_utf8(&file.bytes).unwrap();
        let side = |name: &str| -> f64 {
            let value = svg.split(&format!(" {name}=\"")).nth(1).unwrap();
            value.split('"').next().unwrap().parse().unwrap()
        };
        let sides = (side("width"), side("height"));
        assert!(sides.0 < 3000.0 && sides.1 < 1500.0, "{sides:?}");
    }
    let bytes: usize = report.files.iter().map(|f| f.bytes.len()).sum();
    assert!(bytes < 2_000_000, "{bytes}");
}

#[test]
fn metrics_that_share_a_file_name_do_not_share_a_file() {
    let mut records = copy_experiment(1);
    for run in &mut records {
        for name in [
            "exact-match",
            "EXACT match",
            "runs",
            "reach",
            "../../../tmp/x",
        ] {
            run.task
                .definitions
                .insert(name.into(), "one of many".into());
            run.evals[0]
                .metrics
                .insert(name.into(), Metric { value: 0.5, n: 1 });
        }
        run.task.primary_metric = "exact-match".into();
    }
    let report = report(
        &records,
        &[],
        &ReportSpec {
            ..Default::default()
        },
    )
    .unwrap();
    let names: Vec<&str> = report.files.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(
        names[..2],
        ["exact-match-by-length-2.svg", "exact-match-by-length.svg"]
    );
    check_markup("report.html", text(&report, "report.html"), &[]);
}

#[test]
fn methods_keep_names_of_their_own() {
    let long = |end: &str| format!("{}{}{end}", "a".repeat(500), "b".repeat(500));
    let mut records = Vec::new();
    for (i, name) in [
        long("x"),
        long("y"),
        "a".repeat(500) + "c" + &"b".repeat(500),
        "p\nq".into(),
        "p q".into(),
    ]
    .iter()
    .enumerate()
    {
        let mut run = record(
            "names",
            &[("model.pe", json!(name))],
            i as u64,
            copy_task(16),
        );
        run.evals
            .push(ok_row("trained", 32, &[("exact_match", 0.5)]));
        records.push(run);
    }
    let report = report(
        &records,
        &[],
        &ReportSpec {
            ..Default::default()
        },
    )
    .unwrap();
    let table = text(&report, "report.md")
        .split("### exact")
        .nth(1)
        .unwrap();
    let rows: BTreeSet<&str> = table
        .lines()
        .filter(|l| l.starts_with("| ") && l.contains("0.500"))
        .map(|l| l.split(" | ").next().unwrap())
        .collect();
    assert_eq!(rows.len(), 5, "{rows:?}");
}

#[test]
fn errors_steer_no_terminal() {
    let evil = "\u{1b}[2Jx\u{202e}";
    let excluded = [Excluded {
        path: evil.into(),
        line: None,
        reason: evil.into(),
    }];
    check_visible(
        "empty",
        &report(&[], &excluded, &ReportSpec::default())
            .unwrap_err()
            .to_string(),
    );
    let mut records = copy_experiment(1);
    records[0].labels[0].text = evil.into();
    let spec = ReportSpec {
        baseline: Some(evil.into()),
        ..Default::default()
    };
    let error = report(&records, &[], &spec).unwrap_err();
    assert!(matches!(error, ReportError::UnknownBaseline { .. }));
    check_visible("baseline", &error.to_string());
}

#[test]
fn heaps_of_unrelated_records_have_a_bound() {
    let mut records = Vec::new();
    for i in 0..300 {
        let mut run = copy_experiment(1).remove(0);
        run.run_id = hex(&i.to_string());
        run.task.train_len = 16 + i;
        run.status = RunStatus::Diverged;
        records.push(run);
    }
    let excluded: Vec<Excluded> = (0..5000)
        .map(|i| Excluded {
            path: format!("{i}").into(),
            line: None,
            reason: "bad".into(),
        })
        .collect();
    let report = report(
        &records,
        &excluded,
        &ReportSpec {
            ..Default::default()
        },
    )
    .unwrap();
    let markdown = text(&report, "report.md");
    assert_eq!(
        report
            .files
            .iter()
            .filter(|f| f.name.ends_with(".svg"))
            .count(),
        100
    );
    markdown.must_have("900 figures would be too many");
    markdown.must_have("... and 4800 more");
    assert_eq!(markdown.matches("\n## copy").count(), 300);
}

#[cfg(unix)]
#[test]
fn only_files_are_replaced_and_what_links_point_at_is_left_alone() {
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    let (out, secret) = (dir.path().join("out"), dir.path().join("secret"));
    fs::write(&secret, "mine").unwrap();
    fs::create_dir(&out).unwrap();
    let nowhere = dir.path().join("not-there-yet");
    for (name, target) in [("report.md", &secret), ("results.csv", &nowhere)] {
        symlink(target, out.join(name)).unwrap();
        let error = hostile_report(&["x".into()])
            .write(&out)
            .unwrap_err()
            .to_string();
        error.must_have(name);
        error.must_have("it is a link, and only files are replaced");
        assert_eq!(fs::read_link(out.join(name)).unwrap(), *target);
        fs::remove_file(out.join(name)).unwrap();
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "mine");
    assert!(!nowhere.exists());

    // A directory where a file belongs is an error that names it.
    let _ = fs::remove_file(out.join("results.csv"));
    fs::create_dir(out.join("results.csv")).unwrap();
    let error = hostile_report(&["x".into()])
        .write(&out)
        .unwrap_err()
        .to_string();
    error.must_have("results.csv");
    assert!(
        fs::read_dir(&out).unwrap().all(|e| !e
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with('.')),
        "scratch is left"
    );
}

#[test]
fn names_with_a_directory_are_never_written() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["../x", "a/b", "/tmp/x", "..", ".", "", "a/"] {
        let file = longreach_report::ReportFile {
            name: name.into(),
            bytes: vec![],
        };
        let report = Report {
            files: vec![file],
            summary: String::new(),
        };
        let error = report
            .write(&dir.path().join("out"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("without a directory"), "{name}: {error}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn writers_at_once_leave_whole_files() {
    let dir = tempfile::tempdir().unwrap();
    let spec = |title: &str| ReportSpec {
        title: title.into(),
        ..Default::default()
    };
    let reports = ["one", "another, longer"]
        .map(|title| report(&text_experiment(), &[], &spec(title)).unwrap());
    let whole: Vec<&[u8]> = reports
        .iter()
        .map(|r| r.file("report.html").unwrap())
        .collect();
    let page = dir.path().join("report.html");
    reports[0].write(dir.path()).unwrap();
    std::thread::scope(|scope| {
        let writers: Vec<_> = reports
            .iter()
            .map(|r| scope.spawn(|| (0..6).for_each(|_| drop(r.write(dir.path()).unwrap()))))
            .collect();
        while writers.iter().any(|w| !w.is_finished()) {
            let seen = fs::read(&page).unwrap();
            assert!(whole.contains(&seen.as_slice()), "{} bytes", seen.len());
        }
    });
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        reports[0].files.len()
    );
}
