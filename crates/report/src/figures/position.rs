//! Loss by position in the longest windows.

use super::shared::{Named, averaged, bands, chance, drawn, heading, method_names, range};
use crate::captions::slug;
use crate::document::Figure;
use crate::plot::LinePlot;
use crate::spec::ReportSpec;
use records::analysis::groups::Run;
use records::analysis::setting::Setting;
use records::metric;
use records::stats::INTERVAL;

/// One figure, or none where no loss by position was recorded.
pub(super) fn figures(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Figure> {
    figure(setting, spec).into_iter().collect()
}

/// The longest length that has more than half as many losses by position as any: a figure of fewer
/// would leave out most seeds or methods.
fn length(setting: &Setting<'_>) -> Option<usize> {
    let runs = || setting.groups.iter().flat_map(|group| &group.runs);
    let count = |len: &usize| {
        let here = runs()
            .flat_map(Run::rows)
            .filter(|(_, row)| row.test_len == *len);
        here.filter(|(_, row)| !row.loss_by_position.is_empty())
            .count()
    };
    let lengths = || setting.lengths.iter();
    let most = lengths().map(count).max()?;
    lengths().rfind(|len| 2 * count(len) > most).copied()
}

fn figure(setting: &Setting<'_>, spec: &ReportSpec) -> Option<Figure> {
    let len = length(setting)?;
    let (methods, note) = drawn(setting, spec);
    let (names, shared) = method_names(setting, &methods);
    let mut series = Vec::new();
    for (style, &m) in methods.iter().enumerate() {
        let method = &setting.methods[m];
        let curves = setting.groups[method.group].runs.iter().map(|run| {
            let bins = run
                .row(&method.variant, len)
                .map_or(&[][..], |row| &row.loss_by_position);
            let points = bins
                .iter()
                .map(|bin| ((bin.from as f64 + bin.to as f64) / 2.0, bin.loss_nats));
            (run.seed, points.collect())
        });
        series.push(averaged(
            &Named::method(&names[style], m, style),
            metric::LOSS_NATS,
            |estimate, _| estimate.interval,
            curves,
        ));
    }
    let chance = chance(setting, metric::LOSS_NATS, range(&series).1);
    let bands = bands(setting, &mut series, INTERVAL);
    let plot = LinePlot {
        title: format!("loss by position in windows of {len}"),
        subtitle: chance.subtitle,
        reference_y: chance.line,
        x_label: format!("position in the window ({})", setting.task.unit),
        y_label: "loss".into(),
        y_note: "nats per counted token".into(),
        series,
        reference_x: Some((setting.task.train_len as f64, "train length".into())),
        legend: heading(setting),
        ..LinePlot::default()
    };
    let caption = format!(
        "Mean loss by position in windows of {len} {}; {}. Past the dashed line no position was \
         trained on.{}{bands}{note}{shared}",
        setting.task.unit, setting.name, chance.sentence,
    );
    Some(Figure {
        slug: slug(setting, "loss-by-position"),
        caption,
        notes: "Positions are averaged in bins of equal width.".into(),
        plot: plot.into(),
        metric: None,
    })
}
