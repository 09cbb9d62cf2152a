//! Reach: how far each method keeps its in-length score, and how much of it.

use crate::captions::{
    UNCONVERGED, definition, kept, methods, ratio_interval, seeds_notes, seeds_sentence, slug,
    variants_note,
};
use crate::document::{Cell, Table};
use crate::spec::ReportSpec;
use records::analysis::point::point_parts;
use records::analysis::setting::{Method, Setting};
use records::metric;
use records::stats::{INTERVAL, Scale, TEXT_INTERVAL};

/// One table, or none where no length beyond the training length was tested.
pub(super) fn tables(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Table> {
    let lengths = setting.in_length.zip(setting.longer().last());
    let table = lengths.map(|(in_length, longest)| table(setting, in_length, longest));
    table.into_iter().collect()
}

fn table(setting: &Setting<'_>, in_length: usize, longest: usize) -> Table {
    let metric = setting.lead();
    let row = |method: &Method| -> Vec<Cell> {
        vec![
            method.title.as_str().into(),
            reach_text(setting, method).into(),
            Cell::number(point_parts(
                metric::RATIO,
                &setting.ratio(method, metric, longest),
            )),
            Cell::number(point_parts(metric::KEPT_AREA, &setting.kept_area(method))),
        ]
    };
    Table {
        slug: slug(setting, "reach"),
        title: "Reach".into(),
        caption: format!(
            "How far each method keeps {}, as a multiple of the training length ({}). {}",
            kept(metric, "its"),
            setting.trained_at(),
            seeds_sentence(setting, metric),
        ),
        notes: notes(setting, in_length, longest),
        definition: definition(setting, metric),
        is_in_overview: true,
        columns: vec![
            "method".into(),
            "reach".into(),
            format!("ratio {longest}/{in_length}"),
            "area".into(),
        ],
        rows: setting.methods.iter().map(row).collect(),
        methods: methods(setting),
        ..Table::default()
    }
}

/// How to read the columns.
fn notes(setting: &Setting<'_>, in_length: usize, longest: usize) -> String {
    let metric = setting.lead();
    let ratio_interval = ratio_interval(setting, &[longest]);
    let interval = match (setting.seeds().1, metric::is_share(metric)) {
        (0..=1, _) => String::new(),
        (_, true) => format!(" ([{ratio_interval}])"),
        (_, false) if ratio_interval == TEXT_INTERVAL => format!(" ([{ratio_interval}])"),
        (_, false) => String::new(),
    };
    let area = match (setting.seeds().1, metric::is_share(metric)) {
        (2.., true) => format!(" (± {INTERVAL})"),
        _ => String::new(),
    };
    let share = if metric::lower_is_better(metric) {
        format!("{metric} at {in_length} over {metric} there")
    } else {
        format!("{metric} there over {metric} at {in_length}")
    };
    format!(
        "Reach: the longest test length such that the mean at every tested length up to it \
         keeps the score. ≥: tested at no longer length; 1x: lost at the first longer length{}; -: no score \
         in length or at {longest}. {UNCONVERGED} Ratio: {metric} at {longest} over {metric} at {in_length}, \
         averaged over runs{}{interval}. Area{area}: the share of the in-length score ({share}), \
         averaged over log2 of the length from {in_length} to {longest} by the trapezoid rule \
         for each seed; 1 keeps all of it.{}{}",
        if setting.has_variants() {
            "; none: a variant that has lost it in length"
        } else {
            ""
        },
        match metric::scale(metric) {
            Scale::Linear => "",
            Scale::Log => " in nats",
        },
        variants_note(setting),
        seeds_notes(setting, metric),
    )
}

/// `4x (256)`, `≥ 16x (1024)`, `1x`, `none`, `not converged`, `-`.
fn reach_text(setting: &Setting<'_>, method: &Method) -> String {
    let times = setting.reach_text(method);
    match setting.reach(method).and_then(|reach| reach.test_len) {
        Some(len) => format!("{times} ({})", setting.length(len)),
        None => times,
    }
}
