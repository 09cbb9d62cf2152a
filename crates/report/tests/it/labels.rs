//! Labels of figures: none over another and none cut off, for 1 to 40 methods with long names, in
//! every kind of figure.

use longreach_report::plot::{Grid, Grids, LinePlot, Series};

/// Largest number of methods that is tried.
const MOST: usize = 40;

/// A text of a figure with its box, in the widths of the widest font that it may be set in.
struct Label {
    text: String,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

fn attribute<'t>(tag: &'t str, name: &str) -> Option<&'t str> {
    let after = tag.split_once(&format!(" {name}=\""))?.1;
    Some(after.split_once('"')?.0)
}

/// Widths of DejaVu Sans, in parts of its size, a little larger than they are.
fn width(text: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.34,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' | 'I' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 1.0,
        c if c.is_ascii_digit() => 0.64,
        c if c.is_ascii_uppercase() => 0.75,
        _ => 0.64,
    };
    text.chars().map(em).sum::<f64>() * size
}

fn labels(svg: &str) -> Vec<Label> {
    let texts = svg.split("<text").skip(1);
    let label = |rest: &str| {
        let (tag, rest) = rest.split_once('>').unwrap();
        let text = rest.split_once("</text>").unwrap().0;
        let text = text.replace("&lt;", "<").replace("&amp;", "&");
        let number = |name: &str| attribute(tag, name).and_then(|text| text.parse::<f64>().ok());
        let (x, y) = (number("x").unwrap(), number("y").unwrap());
        let size = number("font-size").unwrap_or(12.0);
        let width = width(&text, size);
        let left = match attribute(tag, "text-anchor") {
            Some("middle") => x - width / 2.0,
            Some("end") => x - width,
            _ => x,
        };
        Label {
            left,
            right: left + width,
            // Capitals and what hangs below the line.
            top: y - 0.76 * size,
            bottom: y + 0.24 * size,
            text,
        }
    };
    texts.map(label).collect()
}

/// Fails where two labels share more than a pixel, or one leaves the figure.
fn check(what: &str, svg: &str) {
    let tag = &svg[..svg.find('>').unwrap()];
    let side = |name: &str| attribute(tag, name).unwrap().parse::<f64>().unwrap();
    let (width, height) = (side("width"), side("height"));
    let labels = labels(svg);
    assert!(!labels.is_empty(), "{what}: no labels");
    for (at, a) in labels.iter().enumerate() {
        let inside = a.left >= -1.0 && a.right <= width + 1.0;
        let inside = inside && a.top >= -1.0 && a.bottom <= height + 1.0;
        assert!(inside, "{what}: cut off: {}", a.text);
        for b in &labels[at + 1..] {
            let x = a.right.min(b.right) - a.left.max(b.left);
            let y = a.bottom.min(b.bottom) - a.top.max(b.top);
            assert!(x <= 1.0 || y <= 1.0, "{what}: {} over {}", a.text, b.text);
        }
    }
}

/// Names as long as those of methods that differ in several keys, some with nowhere to break.
fn name(at: usize) -> String {
    match at % 4 {
        0 => format!("rope(scaling=yarn(factor=4, original_max_position_embeddings={at}))"),
        1 => format!("randomized, pe = t5(num_buckets={at}, max_distance=128) + window"),
        2 => format!("a_name_without_any_place_to_break_it_that_goes_on_and_on_{at}"),
        _ => format!("alibi {at}"),
    }
}

fn lines(count: usize, log: bool, lengths: &[f64]) -> LinePlot {
    let series = (0..count).map(|at| Series {
        name: name(at),
        points: lengths
            .iter()
            .map(|x| (*x, 1.0 + at as f64 + x / 10.0))
            .collect(),
        style: at,
        ..Series::default()
    });
    LinePlot {
        title: "perplexity by test length".into(),
        subtitle: "text, trained at 64 bytes, 1,500 steps of 48 rows, experiment rope".into(),
        x_label: "test length (bytes, log scale)".into(),
        y_label: "perplexity".into(),
        y_note: "lower is better".into(),
        log_x: log,
        log_y: log,
        x_ticks: lengths.to_vec(),
        series: series.collect(),
        reference_x: Some((lengths[lengths.len() / 2], "train length".into())),
        reference_y: Some((256.0, "chance: 256.0".into())),
        legend: "positions, pe".into(),
        mark_points: true,
        ..LinePlot::default()
    }
}

#[test]
fn lines_of_1_to_40_methods() {
    let doubled = [16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
    let close: Vec<f64> = (4..30).map(f64::from).collect();
    let long = [64.0, 65.0, 1e6, 1_048_577.0];
    for count in 1..=MOST {
        for lengths in [&doubled[..], &close, &long] {
            for log in [false, true] {
                let what = format!("{count} lines at {} lengths, log: {log}", lengths.len());
                check(&what, &lines(count, log, lengths).to_svg());
            }
        }
    }
}

/// Matrices of some rows and columns, each under its name.
fn grids(grids: usize, rows: usize, columns: &[usize]) -> Grids {
    let grid = |at: usize| Grid {
        name: if grids == 1 { String::new() } else { name(at) },
        values: vec![vec![0.25; columns.len()]; rows],
        texts: vec![vec!["12345".to_owned(); columns.len()]; rows],
    };
    Grids {
        title: "exact_match by depth and test length".into(),
        subtitle: "passkey, trained at 32 filler tokens".into(),
        x_label: "test length (filler tokens)".into(),
        y_label: "depth: share of the text before the queried item".into(),
        columns: columns.iter().map(ToString::to_string).collect(),
        rows: (0..rows).map(name).collect(),
        grids: (0..grids).map(grid).collect(),
        reference: Some((1, "train length".into())),
    }
}

#[test]
fn matrices_of_1_to_40_methods() {
    for count in 1..=MOST {
        for columns in [
            &[8, 16][..],
            &[8, 16, 32, 64, 128, 256],
            &[1_048_576, 2_097_152],
        ] {
            let lengths = columns.len();
            let side_by_side = grids(count, 4, columns).to_svg();
            check(
                &format!("{count} matrices of {lengths} lengths"),
                &side_by_side,
            );
            let one = grids(1, count, columns).to_svg();
            check(&format!("{count} rows of {lengths} lengths"), &one);
        }
    }
}
