//! How far heads attend, by test length.

use super::shared::{Named, bands, drawn, heading, left_out, line, method_names, range};
use crate::captions::slug;
use crate::document::Figure;
use crate::plot::{LinePlot, Series};
use crate::spec::ReportSpec;
use records::analysis::setting::Setting;
use records::metric::ATTENTION_DISTANCE;
use records::stats::INTERVAL;
use std::collections::BTreeSet;

/// One figure, or none where attention distances were not recorded at two lengths.
pub(super) fn figures(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Figure> {
    let lengths = setting.lengths_of_heads(ATTENTION_DISTANCE);
    let figure = (lengths.len() > 1).then(|| figure(setting, spec, lengths));
    figure.into_iter().collect()
}

fn figure(setting: &Setting<'_>, spec: &ReportSpec, lengths: BTreeSet<usize>) -> Figure {
    let (methods, note) = drawn(setting, spec);
    let (names, shared) = method_names(setting, &methods);
    let of = |(style, m): (usize, &usize)| {
        let method = &setting.methods[*m];
        let points = lengths.iter().map(|&len| {
            let point = setting.point(method, ATTENTION_DISTANCE, len);
            (len as f64, setting.unit_count(len), point)
        });
        let named = Named::method(&names[style], *m, style);
        line(&named, ATTENTION_DISTANCE, points)
    };
    let mut series: Vec<Series> = methods.iter().enumerate().map(of).collect();
    let bands = bands(setting, &mut series, INTERVAL);
    // Heads that see nothing but a token itself have a distance of 0.
    let log_y = range(&series).0 > 0.0;
    let scale = if log_y { ", log scale" } else { "" };
    let plot = LinePlot {
        title: "mean attention distance by test length".into(),
        subtitle: setting.name.clone(),
        x_label: format!("test length ({}, log scale)", setting.task.unit),
        y_label: format!("mean attention distance (tokens{scale})"),
        x_ticks: lengths.iter().map(|&len| len as f64).collect(),
        log_x: true,
        log_y,
        reference_x: Some((setting.task.train_len as f64, "train length".into())),
        series,
        mark_points: true,
        legend: heading(setting),
        ..LinePlot::default()
    };
    let caption = format!(
        "Mean attention distance by test length, mean over all heads; {}. Dashed: the training \
         length.{bands}{}{note}{shared}",
        setting.name,
        left_out(setting, ATTENTION_DISTANCE),
    );
    Figure {
        slug: slug(setting, "attention-distance"),
        caption,
        notes: String::new(),
        plot: plot.into(),
        metric: None,
    }
}
