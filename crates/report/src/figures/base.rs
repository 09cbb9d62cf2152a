//! The ablation of the rotary base.

use super::shared::{MOST_LINES, Named, line, scores};
use crate::captions::{numbered, slug};
use crate::document::Figure;
use crate::plot::LinePlot;
use crate::spec::ReportSpec;
use records::analysis::base_sweep::{BaseSweep, base_sweeps, base_text};
use records::analysis::setting::Setting;

/// A figure for each sweep over the base.
pub(super) fn figures(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Figure> {
    let sweeps = base_sweeps(setting);
    let slugs = (0..sweeps.len()).map(|i| numbered("base", i, sweeps.len()));
    let both = sweeps.iter().zip(slugs);
    both.map(|(sweep, slug)| figure(setting, sweep, &slug))
        .collect()
}

fn figure(setting: &Setting<'_>, sweep: &BaseSweep<'_>, name: &str) -> Figure {
    let metric = setting.lead();
    let line_of = |(style, &len): (usize, &usize)| {
        let points = sweep.rows.iter().map(|row| {
            let place = format!("base {}", base_text(row.base));
            (row.base, place, setting.point(row.method, metric, len))
        });
        let named = Named {
            name: &setting.unit_count(len),
            key: format!("l{len}"),
            style,
        };
        line(&named, metric, points)
    };
    let series = setting
        .lengths
        .iter()
        .take(MOST_LINES)
        .enumerate()
        .map(line_of)
        .collect();
    let (key, of) = (&sweep.key, sweep.of());
    let (plot, about) = scores(setting, metric, series);
    let plot = LinePlot {
        title: format!("{metric} by base{of}"),
        x_label: format!("{key} (log scale)"),
        x_ticks: sweep.rows.iter().map(|row| row.base).collect(),
        legend: "test length".into(),
        ..plot
    };
    let bases: Vec<String> = sweep.rows.iter().map(|row| base_text(row.base)).collect();
    let caption = format!(
        "{metric} by {key}{of} ({}), one line for each test length; {}.{about}",
        bases.join(", "),
        setting.name,
    );
    Figure {
        slug: slug(setting, name),
        caption,
        notes: String::new(),
        plot: plot.into(),
        metric: None,
    }
}
