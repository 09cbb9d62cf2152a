//! Scores by test length.

use super::shared::{drawn, line, scores};
use crate::analysis::setting::Setting;
use crate::plot::LinePlot;
use crate::report::captions::slug;
use crate::report::document::Figure;

/// Metrics with a figure.
const MOST_METRICS: usize = 2;

/// A figure for each of the first metrics.
pub(super) fn figures(setting: &Setting<'_>) -> Vec<Figure> {
    let metrics = setting.metrics.iter().take(MOST_METRICS);
    metrics.map(|metric| figure(setting, metric)).collect()
}

fn figure(setting: &Setting<'_>, metric: &str) -> Figure {
    let (methods, note) = drawn(setting);
    let of = |(style, m): (usize, &usize)| {
        let method = &setting.methods[*m];
        line(
            &method.name,
            style,
            setting
                .lengths
                .iter()
                .map(|&len| (len as f64, setting.point(method, metric, len))),
        )
    };
    let series = methods.iter().enumerate().map(of).collect();
    let lengths = setting.lengths.iter().map(|&l| l as f64).collect();
    let (plot, about) = scores(setting, metric, series);
    let plot = LinePlot {
        title: format!("{metric} by test length"),
        x_label: format!("test length ({}, log scale)", setting.task.unit),
        x_ticks: lengths,
        reference_x: Some((setting.task.train_len as f64, "train length".into())),
        legend: setting.axes.clone(),
        ..plot
    };
    let caption = format!(
        "{metric} by test length; {}. Dashed: the training length.{about}{note}",
        setting.name
    );
    Figure {
        slug: slug(setting, &format!("{metric}-by-length")),
        caption,
        notes: String::new(),
        plot: plot.into(),
    }
}
