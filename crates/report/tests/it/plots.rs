//! Figures of lines: legends, bands, and names and numbers of any origin.

use crate::common::{MustHave, copy_task, ok_row, record};
use crate::report::{spec, text};
use longreach_report::plot::{LinePlot, Series};
use longreach_report::report;
use serde_json::json;

#[test]
fn the_legend_names_what_varies_and_the_reference() {
    let series = ["100", "1000"].map(|name| Series {
        name: name.into(),
        points: vec![(1.0, 0.2), (2.0, 0.9)],
        ..Default::default()
    });
    let mut plot = LinePlot {
        legend: "base".into(),
        reference_y: Some((0.5, "chance: 0.500".into())),
        series: series.into(),
        ..Default::default()
    };
    let svg = plot.to_svg();
    let place = |text: &str| {
        svg.find(&format!(">{text}<"))
            .unwrap_or_else(|| panic!("{text} is missing"))
    };
    assert!(place("base") < place("100") && place("1000") < place("chance: 0.500"));
    plot.reference_y = Some((7.0, "chance: 7.000".into()));
    plot.y_range = Some((0.0, 1.0));
    // The axis holds its reference.
    plot.to_svg().must_have("chance: 7.000");
}

#[test]
fn hostile_names_and_numbers_are_harmless() {
    let series = Series {
        name: "<script>$x$ & \u{1}".into(),
        points: vec![(1.0, f64::NAN), (0.0, 2.0), (2.0, 3.0)],
        ..Default::default()
    };
    let plot = LinePlot {
        title: "a \"<b>".into(),
        log_x: true,
        log_y: true,
        series: vec![series],
        ..Default::default()
    };
    let svg = plot.to_svg();
    svg.must_have("&lt;script&gt;$x$ &amp;");
    assert!(!svg.contains("<script>") && !svg.contains('\u{1}'));
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    assert!(LinePlot::default().to_svg().contains("no numbers"));
}

#[test]
fn a_band_that_the_axis_cuts_is_lighter_and_the_figure_says_so() {
    let plot = |high: f64, points: usize| LinePlot {
        y_label: "loss".into(),
        y_note: "lower is better".into(),
        series: vec![Series {
            points: vec![(1.0, 1.0), (2.0, 1.1)][..points].to_vec(),
            band: vec![Some((0.999, high)); points],
            ..Default::default()
        }],
        ..Default::default()
    };
    let (whole, cut) = (plot(1.12, 2).to_svg(), plot(9.0, 2).to_svg());
    assert!(whole.contains("opacity=\"0.14\"") && whole.contains(">loss (lower is better)<"));
    assert!(cut.contains("opacity=\"0.08\"") && !cut.contains("opacity=\"0.14\""));
    assert!(cut.contains(">loss (lower is better, lighter bands are cut)<"));
    // The bar of a single point.
    let is_thin = |high| plot(high, 1).to_svg().contains("stroke-width=\"0.5\"");
    assert!(is_thin(9.0) && !is_thin(1.0));
}

#[test]
fn a_band_wider_than_the_axis_is_left_out_and_the_figure_says_so() {
    let line = |base: f64| Series {
        points: vec![(1.0, base), (2.0, base + 0.1), (3.0, base + 0.2)],
        band: vec![
            Some((base - 0.01, base + 0.01)),
            Some((base, base + 0.2)),
            Some((-9.0, 99.0)),
        ],
        ..Default::default()
    };
    let plot = LinePlot {
        y_label: "loss".into(),
        y_note: "lower is better".into(),
        series: vec![line(1.0), line(2.0)],
        ..Default::default()
    };
    let svg = plot.to_svg();
    // Two points of each line keep theirs, at full strength.
    assert_eq!(svg.matches(" opacity=\"0.14\"").count(), 2, "{svg}");
    assert!(svg.contains(">loss (lower is better, bands wider than the axis are left out)<"));
    assert!(!svg.contains(" opacity=\"0.08\"") && !svg.contains("are cut"));
}

/// The names of a file's legend, their lines joined: a name begins with its sample.
fn legend(svg: &str) -> Vec<String> {
    let mut rows: Vec<(f64, f64, String)> = Vec::new();
    for text in svg.split("<text ").skip(1) {
        let number = |name: &str| -> f64 {
            let after = text.split_once(&format!("{name}=\"")).unwrap().1;
            after.split_once('"').unwrap().0.parse().unwrap()
        };
        let words = text.split_once('>').unwrap().1;
        let words = words.split_once('<').unwrap().0.to_owned();
        let (x, y) = (number("x"), number("y"));
        match rows.last_mut() {
            Some((left, last, name)) if *left == x && y - *last < 15.0 => {
                *last = y;
                *name += &format!(" {words}");
            }
            _ => rows.push((x, y, words)),
        }
    }
    rows.into_iter().map(|(.., name)| name).collect()
}

#[test]
fn long_names_leave_out_what_all_lines_share_and_stay_different() {
    let axes = [
        ("model.qk_norm", ["layer_norm", "none"]),
        ("model.norm", ["layer_norm", "rms_norm"]),
        ("model.activation", ["gelu", "swiglu"]),
        ("model.tied_head", ["true", "false"]),
        ("model.biases", ["true", "false"]),
        ("train.adamw.weight_decay", ["0.01", "0.02"]),
        ("train.grad_clip", ["0.5", "1.0"]),
    ];
    let mut records = Vec::new();
    for place in 0..128_usize {
        let value = |at: usize| axes[at].1[place >> (6 - at) & 1];
        let labels: Vec<(&str, serde_json::Value)> = (0..axes.len())
            .map(|at| (axes[at].0, json!(value(at))))
            .collect();
        let mut run = record("axes", &labels, 0, copy_task(64));
        // The first sixteen are the best: they share the first three settings.
        let score = if place < 16 { 1.0 } else { 0.5 };
        run.evals = [64, 128]
            .map(|len| ok_row("trained", len, &[("exact_match", score)]))
            .into();
        run.train.loss_curve = crate::common::curve(0, score);
        records.push(run);
    }
    let report = report(&records, &[], &spec()).unwrap();
    for file in ["exact-match-by-length.svg", "training-loss.svg"] {
        let legend = legend(&text(&report, file));
        for place in 0..16_usize {
            let value = |at: usize| axes[at].1[place >> (6 - at) & 1];
            let name = format!(
                "tied_head = {}, biases = {}, weight_decay = {}, grad_clip = {}",
                value(3),
                value(4),
                value(5),
                value(6)
            );
            let count = legend.iter().filter(|line| **line == name).count();
            assert_eq!(count, 1, "{file}: {name}: {legend:#?}");
        }
    }
    let shared = "All lines: qk_norm = layer_norm, norm = layer_norm, activation = gelu.";
    let markdown = text(&report, "report.md");
    assert_eq!(markdown.matches(shared).count(), 2, "{markdown}");
}

#[test]
fn a_mark_behind_a_cut_name_has_the_value_of_its_axis() {
    let long = "x".repeat(76);
    let mut records = Vec::new();
    for biases in [true, false] {
        let labels = [
            ("model.first", json!(long)),
            ("model.biases", json!(biases)),
            ("model.last", json!(long)),
        ];
        let mut run = record("marks", &labels, 0, copy_task(64));
        // A spec leaves the default out.
        let pe = run.spec["model"]["pe"].as_object_mut().unwrap();
        pe.remove("biases");
        if biases {
            run.spec["model"]["biases"] = json!(true);
        }
        run.evals = [64, 128]
            .map(|len| ok_row("trained", len, &[("exact_match", 1.0)]))
            .into();
        records.push(run);
    }
    let table = text(&report(&records, &[], &spec()).unwrap(), "results.csv");
    for said in ["[model.biases = true]", "[model.biases = false]"] {
        assert!(table.contains(said), "{said}: {table}");
    }
}

#[test]
fn a_row_without_a_dot_says_why() {
    let mut records = Vec::new();
    for method in 0..20 {
        let pe = format!("pe{method:02}");
        let mut run = record("many", &[("model.pe", json!(pe))], 0, copy_task(16));
        let learned = if method < 15 { 1.0 } else { 0.2 };
        run.evals = [16, 64]
            .map(|len| ok_row("trained", len, &[("exact_match", learned)]))
            .into();
        if method == 3 {
            run.evals.truncate(1);
        }
        records.push(run);
    }
    let svg = text(
        &report(&records, &[], &spec()).unwrap(),
        "exact-match-at-4x.svg",
    );
    let count = |words: &str| svg.matches(words).count();
    let counts = ["not learned in length", "not tested", "no number"].map(count);
    assert_eq!(counts, [5, 1, 0]);
}

#[test]
fn a_figure_has_the_lengths_and_methods_with_numbers_only() {
    let mut records = Vec::new();
    for (pe, has_both) in [("alibi", true), ("nope", false), ("rope", true)] {
        let mut run = record("few", &[("model.pe", json!(pe))], 0, copy_task(64));
        run.evals = [64, 128, 256]
            .map(|len| match has_both && len == 64 {
                true => ok_row(
                    "trained",
                    len,
                    &[("exact_match", 1.0), ("token_accuracy", 1.0)],
                ),
                false => ok_row("trained", len, &[("exact_match", 1.0)]),
            })
            .into();
        records.push(run);
    }
    let report = report(&records, &[], &spec()).unwrap();
    let names = |svg: &str| ["alibi", "nope", "rope"].map(|m| svg.contains(&format!(">{m}<")));
    let lengths = |svg: &str| ["64", "128", "256"].map(|l| svg.contains(&format!(">{l}<")));
    let all = text(&report, "exact-match-by-length.svg");
    assert_eq!((names(&all), lengths(&all)), ([true; 3], [true; 3]));
    let some = text(&report, "token-accuracy-by-length.svg");
    assert_eq!(names(&some), [true, false, true]);
    assert_eq!(lengths(&some), [true, false, false]);
}
