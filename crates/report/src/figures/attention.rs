//! How far each head attends at the longest length where that is recorded.

use super::shared::{Named, bands, drawn, heading, line, method_names};
use crate::captions::slug;
use crate::document::Figure;
use crate::plot::{LinePlot, Series};
use crate::spec::ReportSpec;
use records::analysis::setting::Setting;
use records::metric::ATTENTION_DISTANCE;
use records::stats::INTERVAL;

/// One figure, or none where attention distances were not recorded.
pub(super) fn figures(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Figure> {
    figure(setting, spec).into_iter().collect()
}

fn figure(setting: &Setting<'_>, spec: &ReportSpec) -> Option<Figure> {
    let heads = setting.heads(ATTENTION_DISTANCE);
    let len = *setting.lengths_of_heads(ATTENTION_DISTANCE).last()?;
    let ((_, per_layer), _) = *heads.last()?;
    let (methods, note) = drawn(setting, spec);
    let (names, shared) = method_names(setting, &methods);
    let of = |(style, m): (usize, &usize)| {
        let method = &setting.methods[*m];
        let points = heads
            .iter()
            .enumerate()
            .map(|(x, ((layer, head), metric))| {
                let place = format!("head {layer}.{head}");
                (x as f64 + 1.0, place, setting.point(method, metric, len))
            });
        let named = Named::method(&names[style], *m, style);
        line(&named, ATTENTION_DISTANCE, points)
    };
    let mut series: Vec<Series> = methods.iter().enumerate().map(of).collect();
    let bands = bands(setting, &mut series, INTERVAL);
    let plot = LinePlot {
        title: format!("mean attention distance at {len}"),
        subtitle: setting.name.clone(),
        x_label: format!("head, {per_layer} to a layer, first layer first"),
        y_label: "mean attention distance (tokens)".into(),
        x_ticks: (1..=heads.len()).map(|x| x as f64).collect(),
        series,
        mark_points: true,
        legend: heading(setting),
        ..LinePlot::default()
    };
    let caption = format!(
        "Mean attention distance of every head at {len} {}, {per_layer} heads to a layer, first \
         layer first; {}.{bands}{note}{shared}",
        setting.task.unit, setting.name,
    );
    Some(Figure {
        slug: slug(setting, "attention-distance"),
        caption,
        notes: String::new(),
        plot: plot.into(),
        metric: None,
    })
}
