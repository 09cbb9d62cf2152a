//! From records to the files of a report.

use super::assemble::document;
use super::canonical::canonical;
use super::chapters::{assertions, claims};
use super::document::{Document, Figure};
use super::error::ReportError;
use super::experiments;
use super::output::{Report, ReportFile};
use super::pages;
use super::render;
use super::spec::{FIRST_METHOD, Format, ReportSpec};
use rayon::prelude::*;
use records::analysis::identity::MethodSpecs;
use records::analysis::roles::Roles;
use records::analysis::setting::{Setting, settings};
use records::claims::{Claims, experiment_settings};
use records::record::RunRecord;
use records::store::Excluded;
use std::collections::BTreeSet;

/// Makes the report. The order of `records` and of `excluded` does not matter. A run given twice
/// counts once; a run of several experiments counts once in each.
///
/// # Errors
///
/// No records, two records of one run with different numbers, or a baseline that is not a method.
pub fn report(
    records: &[RunRecord],
    excluded: &[Excluded],
    spec: &ReportSpec,
) -> Result<Report, ReportError> {
    let mut excluded: Vec<Excluded> = excluded.to_vec();
    excluded.sort();
    excluded.dedup();
    if records.is_empty() {
        return Err(ReportError::Empty { excluded });
    }
    let sorted = canonical(records)?;
    let mut evaluated = Vec::new();
    let places = experiment_settings(records, spec.names);
    if spec.claims != Claims::default() {
        evaluated.push(claims::chapter(&spec.claims, &places));
    }
    if spec.assertions {
        evaluated.push(assertions::chapter(&places)?);
    }
    let roles = Roles::of(sorted.iter().copied());
    if roles.results.is_empty() {
        return Err(ReportError::NoResults {
            records: sorted.len(),
        });
    }
    let specs = MethodSpecs::new(&sorted).named(spec.names);
    let settings = settings(&sorted, &spec.order, &specs);
    check_baseline(&settings, spec)?;
    let mut files = Vec::new();
    if spec.formats.contains(&Format::Csv) {
        for file in evaluated.iter().flat_map(|chapter| &chapter.csv) {
            let text = render::csv_text(file.name, &file.head, &file.rows)?;
            files.push(ReportFile::new(file.name, text));
        }
    }
    let mut notes: Vec<String> = Vec::new();
    for chapter in &mut evaluated {
        notes.append(&mut chapter.notes);
    }
    let evaluated = evaluated.into_iter().map(|chapter| chapter.chapter);
    let pages = experiments::pages(&sorted, &specs, spec);
    let evaluated = evaluated.collect();
    let mut document = document(&roles, &excluded, &settings, spec, evaluated, &pages);
    document.notes.extend(roles.notes());
    document.notes.extend(notes);
    files.extend(rendered(&document, &settings, spec)?);
    let pages = pages.par_iter().map(|page| {
        let text = render::html(&page.document)?;
        Ok(ReportFile::new(page.file.as_str(), text))
    });
    files.extend(pages.collect::<Result<Vec<_>, ReportError>>()?);
    files.extend(pictures(&document));
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Report {
        files,
        summary: render::terminal(&document, spec.width, spec.colors),
    })
}

/// The text files, in every format asked for.
fn rendered(
    document: &Document,
    settings: &[Setting<'_>],
    spec: &ReportSpec,
) -> Result<Vec<ReportFile>, ReportError> {
    let mut files = Vec::new();
    for format in &spec.formats {
        match format {
            Format::Md => {
                let text = render::markdown(document)?;
                files.push(ReportFile::new("report.md", text));
            }
            Format::Html => {
                let text = render::html(document)?;
                files.push(ReportFile::new(pages::ALL, text));
            }
            Format::Tex => {
                let text = render::latex(document)?;
                files.push(ReportFile::new("tables.tex", text));
            }
            Format::Csv => {
                let text = render::summaries_csv(settings, spec)?;
                files.push(ReportFile::new("summaries.csv", text));
                let text = render::results_csv(settings)?;
                files.push(ReportFile::new("results.csv", text));
            }
        }
    }
    Ok(files)
}

/// Every figure, drawn in parallel.
fn pictures(document: &Document) -> Vec<ReportFile> {
    let figures: Vec<&Figure> = document.sections.iter().flat_map(|s| &s.figures).collect();
    let draw = |figure: &&Figure| {
        let name = format!("{}.svg", figure.slug);
        ReportFile::new(name, figure.plot.to_svg())
    };
    // A parallel map over a slice keeps its order, so files do not depend on the threads.
    figures.par_iter().map(draw).collect()
}

/// Whether the baseline is a method of any setting.
fn check_baseline(settings: &[Setting<'_>], spec: &ReportSpec) -> Result<(), ReportError> {
    let Some(baseline) = spec.baseline.as_ref().filter(|name| *name != FIRST_METHOD) else {
        return Ok(());
    };
    if settings.iter().any(|s| s.method(baseline).is_some()) {
        return Ok(());
    }
    let known: BTreeSet<&String> = settings
        .iter()
        .flat_map(|s| &s.methods)
        .map(|m| &m.name)
        .collect();
    Err(ReportError::UnknownBaseline {
        baseline: baseline.clone(),
        known: known.into_iter().cloned().collect(),
    })
}
