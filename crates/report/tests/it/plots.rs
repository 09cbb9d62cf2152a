//! Figures of lines: legends, and names and numbers of any origin.

use longreach_report::plot::{LinePlot, Series};

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
    assert!(
        plot.to_svg().contains("chance: 7.000"),
        "the axis holds its reference"
    );
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
    assert!(
        !svg.contains("<script>")
            && svg.contains("&lt;script&gt;$x$ &amp;")
            && !svg.contains('\u{1}')
    );
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
    assert!(LinePlot::default().to_svg().contains("no numbers"));
}
