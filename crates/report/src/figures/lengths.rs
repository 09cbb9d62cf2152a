//! Scores of every method by test length, as coloured cells: an axis of numbers against length, or
//! all methods where there are too many for lines.

use super::shared::{MOST_LINES, past_training};
use crate::captions::slug;
use crate::document::{Drawing, Figure};
use crate::plot::{Grid, Grids};
use crate::spec::ReportSpec;
use records::analysis::setting::Setting;
use records::metric;

/// Fewest values of an axis that are worth a figure beside its table.
const FEWEST: usize = 3;
/// Rows and columns that have room.
const MOST_METHODS: usize = 64;
const MOST_LENGTHS: usize = 24;

/// One figure of the leading metric, or none.
pub(super) fn figures(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Figure> {
    let count = setting.methods.len();
    let is_number = |text: &str| text.parse::<f64>().is_ok();
    let is_axis = count >= FEWEST
        && setting.is_of_one_experiment()
        && setting.methods.iter().all(|m| is_number(&m.plain));
    let fits = count <= MOST_METHODS && (2..=MOST_LENGTHS).contains(&setting.lengths.len());
    let figure = (fits && (is_axis || count > MOST_LINES)).then(|| figure(setting));
    figure.into_iter().collect()
}

fn figure(setting: &Setting<'_>) -> Figure {
    let metric = setting.lead();
    let means: Vec<Vec<f64>> = setting
        .methods
        .iter()
        .map(|method| {
            let lengths = setting.lengths.iter();
            let points = lengths.map(|&len| setting.point(method, metric, len));
            points
                .map(|p| p.estimate.map_or(f64::NAN, |e| e.mean))
                .collect()
        })
        .collect();
    let (mut colours, colours_are) = colours(metric, &means);
    let mut learning = "Grey: no number.";
    if setting.are_all_still_learning() {
        learning = "Grey: no number. All methods are still learning.";
    } else {
        for (row, method) in colours.iter_mut().zip(&setting.methods) {
            if setting.is_still_learning(method) {
                row.fill(f64::NAN);
                learning = "Grey: no number, or still learning.";
            }
        }
    }
    let text = |value: &f64| cell(metric, *value);
    let plot = Grids {
        title: format!("{metric} by {} and test length", axis(setting)),
        subtitle: setting.name.clone(),
        x_label: format!("test length ({})", setting.task.unit),
        y_label: axis(setting).into(),
        columns: setting.headings().collect(),
        rows: setting.methods.iter().map(|m| m.title.clone()).collect(),
        grids: vec![Grid {
            name: String::new(),
            values: colours,
            texts: means
                .iter()
                .map(|row| row.iter().map(text).collect())
                .collect(),
        }],
        reference: past_training(setting),
    };
    Figure {
        slug: slug(setting, &format!("{metric}-by-method-and-length")),
        caption: format!(
            "{metric} by {} and test length, means over seeds; {}. Right of the dashed line: \
             longer than the training length. {colours_are}",
            axis(setting),
            setting.name
        ),
        notes: format!(
            "{learning} A method that has not learned its task in length is drawn like the others."
        ),
        plot: Drawing::Grids(plot),
        metric: None,
    }
}

/// What the rows are values of.
fn axis<'s>(setting: &'s Setting<'_>) -> &'s str {
    match setting.axes.as_str() {
        "" | "pe" => "method",
        axes => axes,
    }
}

/// The colour of each mean, from 0 to 1, and what it says.
fn colours(metric: &str, means: &[Vec<f64>]) -> (Vec<Vec<f64>>, String) {
    if metric::is_share(metric) {
        return (means.to_vec(), "Brighter: higher.".into());
    }
    // Losses have no fixed range: the best and the worst of the figure are the ends, by their
    // logarithms, since the worst may be hundreds of times the best.
    let finite = || {
        means
            .iter()
            .flatten()
            .copied()
            .filter(|v| v.is_finite() && *v > 0.0)
    };
    let low = finite().fold(f64::INFINITY, f64::min).ln();
    let high = finite().fold(0.0, f64::max).ln();
    let share = |value: &f64| {
        if !value.is_finite() || *value <= 0.0 {
            return f64::NAN;
        }
        let share = if high > low {
            (value.ln() - low) / (high - low)
        } else {
            0.0
        };
        if metric::lower_is_better(metric) {
            1.0 - share
        } else {
            share
        }
    };
    let colours = means.iter().map(|row| row.iter().map(share).collect());
    let words = "Brighter: better; the best and the worst of the figure are the ends of the \
                 colours, by their logarithms.";
    (colours.collect(), words.into())
}

/// A number that fits a cell: at most five characters.
fn cell(metric: &str, value: f64) -> String {
    if !value.is_finite() {
        return String::new();
    }
    let decimals = metric::decimals(metric, value).min(2);
    let text = metric::number(value, decimals);
    match text.len() {
        0..=5 => text,
        _ if value.abs() < 99_999.0 => metric::number(value, 0),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_the_brightest_and_gaps_stay() {
        let means = vec![vec![2.0, 8.0], vec![f64::NAN, 4.0]];
        let (colours, _) = colours("perplexity", &means);
        assert_eq!((colours[0][0], colours[0][1]), (1.0, 0.0));
        assert!(colours[1][0].is_nan() && (colours[1][1] - 0.5).abs() < 1e-12);
    }

    #[test]
    fn numbers_fit_their_cells() {
        let values = [0.12345, 4.567, 12.3456, 123.456, 1234.5, 98_765.4, 1.2e9];
        let texts = values.map(|value| cell("perplexity", value));
        assert!(texts.iter().all(|text| text.len() <= 5), "{texts:?}");
        assert_eq!(
            texts,
            ["0.12", "4.57", "12.3", "123.5", "1234", "98765", "1.2e9"]
        );
        assert_eq!(cell("perplexity", f64::NAN), "");
    }
}
