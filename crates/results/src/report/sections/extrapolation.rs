//! How far, and how much of, the in-length score is kept, seed by seed.

use crate::analysis::point::{Point, point_parts};
use crate::analysis::setting::{Method, Setting};
use crate::metric;
use crate::report::captions::{
    UNCONVERGED, definition, kept, keys, seeds_notes, seeds_sentence, slug, variants_note,
};
use crate::report::document::{Cell, Table};
use crate::report::spec::ReportSpec;
use crate::text::times;

/// One table, or none where no length beyond the training length was tested.
pub(super) fn tables(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Table> {
    let lengths = setting.in_length.zip(setting.longer().last());
    let table = lengths.map(|(in_length, longest)| table(setting, in_length, longest));
    table.into_iter().collect()
}

fn table(setting: &Setting<'_>, in_length: usize, longest: usize) -> Table {
    let metric = setting.lead();
    let row = |method: &Method| -> Vec<Cell> {
        let (kept_to, area) = (setting.kept_to(method), setting.kept_area(method));
        vec![
            method.name.as_str().into(),
            Cell::number(point_parts(metric::KEPT_TO, &kept_to)),
            times_text(setting, &kept_to, longest).into(),
            Cell::number(point_parts(metric::KEPT_AREA, &area)),
            format!("{}/{}", kept_to.values.len(), kept_to.runs).into(),
        ]
    };
    let share = if metric::lower_is_better(metric) {
        format!("{metric} at {in_length} over {metric} there")
    } else {
        format!("{metric} there over {metric} at {in_length}")
    };
    Table {
        slug: slug(setting, "extrapolation"),
        title: "Extrapolation".into(),
        caption: format!(
            "How far, and how much of, the in-length {metric} each seed keeps. {}",
            seeds_sentence(setting, metric::KEPT_TO),
        ),
        notes: format!(
            "Kept to: the longest test length, of those from {in_length} to {longest} {}, at \
             which a seed keeps {}, even if it did not at a shorter one; mean over seeds, also as a multiple of the training length (≥: all seeds at the \
             longest one). Area: the share of the in-length score ({share}), averaged over log2 \
             of the length from {in_length} to {longest} by the trapezoid rule for each seed; 1 \
             keeps all of it. Seeds: with an in-length score, of all. {UNCONVERGED}{}{}",
            setting.task.unit,
            kept(metric, "its"),
            variants_note(setting),
            seeds_notes(setting, metric::KEPT_TO),
        ),
        definition: definition(setting, metric),
        is_folded: true,
        columns: vec![
            "method".into(),
            format!("kept to ({})", setting.task.unit),
            "of training".into(),
            "area".into(),
            "seeds".into(),
        ],
        rows: setting.methods.iter().map(row).collect(),
        keys: keys(setting),
        ..Table::default()
    }
}

/// The mean length as a multiple of the training length.
fn times_text(setting: &Setting<'_>, kept_to: &Point, longest: usize) -> String {
    let Some(estimate) = kept_to.estimate.filter(|_| !kept_to.values.is_empty()) else {
        return "-".into();
    };
    let is_longest = kept_to.values.iter().all(|v| v.1 == longest as f64);
    let sign = if kept_to.is_whole() && is_longest {
        "≥ "
    } else {
        ""
    };
    let train_len = setting.task.train_len.max(1) as f64;
    format!("{sign}{}", times(estimate.mean / train_len))
}
