//! Exact answers by the depth of the queried item and by length.

use super::shared::{MOST_LINES, drawn, method_names, past_training};
use crate::captions::slug;
use crate::document::{Drawing, Figure};
use crate::plot::{Grid, Grids};
use crate::spec::ReportSpec;
use records::analysis::setting::Setting;
use records::metric;

/// One figure, or none where scores were not recorded by depth.
pub(super) fn figures(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Figure> {
    figure(setting, spec).into_iter().collect()
}

#[expect(clippy::too_many_lines, reason = "one figure, field by field")]
fn figure(setting: &Setting<'_>, spec: &ReportSpec) -> Option<Figure> {
    let mut depths: Vec<_> = setting
        .all_metrics
        .iter()
        .filter_map(|name| Some((metric::depth(name)?, name.as_str())))
        .collect();
    depths.sort_unstable();
    depths.truncate(MOST_LINES);
    if depths.is_empty() || setting.lengths.len() > MOST_LINES {
        return None;
    }
    let (methods, note) = drawn(setting, spec);
    let (names, shared) = method_names(setting, &methods);
    let mean = |m: usize, metric: &str, len| {
        setting
            .point(&setting.methods[m], metric, len)
            .estimate
            .map_or(f64::NAN, |e| e.mean)
    };
    let grid = |(&m, name): (&usize, String)| Grid {
        name,
        texts: Vec::new(),
        values: depths
            .iter()
            .map(|(_, metric)| {
                setting
                    .lengths
                    .iter()
                    .map(|&len| mean(m, metric, len))
                    .collect()
            })
            .collect(),
    };
    let plot = Grids {
        title: format!("{} by depth and test length", metric::EXACT_MATCH),
        subtitle: setting.name.clone(),
        x_label: format!("test length ({})", setting.task.unit),
        y_label: "depth: share of the text before the queried item".into(),
        columns: setting.headings().collect(),
        rows: depths
            .iter()
            .map(|((from, to), _)| format!("{from} to {to} %"))
            .collect(),
        grids: methods.iter().zip(names).map(grid).collect(),
        reference: past_training(setting),
    };
    let caption = format!(
        "{} by depth and test length, means over seeds; {}. Right of the dashed line: longer than \
         the training length.{note}{shared}",
        metric::EXACT_MATCH,
        setting.name
    );
    let notes = "Grey: no number. A method that has not learned its task in length is drawn like \
                 the others."
        .into();
    Some(Figure {
        slug: slug(setting, "depth-by-length"),
        caption,
        notes,
        plot: Drawing::Grids(plot),
        metric: None,
    })
}
