//! Scores by test length.

use super::shared::{Named, drawn, heading, line, method_names, scores};
use crate::captions::slug;
use crate::document::Figure;
use crate::plot::LinePlot;
use crate::spec::ReportSpec;
use records::analysis::setting::Setting;

/// Metrics with a figure.
const MOST_METRICS: usize = 2;

/// A figure for each of the first metrics.
pub(super) fn figures(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Figure> {
    let metrics = setting.metrics.iter().take(MOST_METRICS);
    metrics
        .map(|metric| figure(setting, spec, metric))
        .collect()
}

fn figure(setting: &Setting<'_>, spec: &ReportSpec, metric: &str) -> Figure {
    let (methods, note) = drawn(setting, spec);
    let (names, shared) = method_names(setting, &methods);
    let of = |(style, m): (usize, &usize)| {
        let method = &setting.methods[*m];
        let points = setting.lengths.iter().map(|&len| {
            let place = setting.unit_count(len);
            (len as f64, place, setting.point(method, metric, len))
        });
        let named = Named::method(&names[style], *m, style);
        line(&named, metric, points)
    };
    let series = methods.iter().enumerate().map(of).collect();
    let (plot, about) = scores(setting, metric, series);
    let points = || plot.series.iter().flat_map(|line| &line.points);
    let lengths = setting.lengths.iter().map(|&len| len as f64);
    let lengths = lengths
        .filter(|len| points().any(|p| p.0 == *len))
        .collect();
    let plot = LinePlot {
        title: format!("{metric} by test length"),
        x_label: format!("test length ({}, log scale)", setting.task.unit),
        x_ticks: lengths,
        reference_x: Some((setting.task.train_len as f64, "train length".into())),
        legend: heading(setting),
        ..plot
    };
    let caption = format!(
        "{metric} by test length; {}. Dashed: the training length.{about}{note}{shared}",
        setting.name
    );
    Figure {
        slug: slug(setting, &format!("{metric}-by-length")),
        caption,
        notes: String::new(),
        plot: plot.into(),
        metric: Some(metric.into()),
    }
}
