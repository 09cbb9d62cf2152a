//! A report: a pure function of records and a [`ReportSpec`].

use crate::analysis::{Setting, short};
use crate::claims::Claims;
use crate::figures::{Figure, figures, sweep_slug};
use crate::plot::PlotError;
use crate::record::{RunRecord, RunStatus};
use crate::render;
use crate::store::{Excluded, replace, sync_directory};
use crate::table::{self, Table};
use crate::text::{self, Slugs};
use crate::{against, analysis, metric, order, ranking};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Figures of one report.
const MOST_FIGURES: usize = 100;
/// Items in each of the lists at the end.
const MOST_LISTED: usize = 200;

/// As [`ReportSpec::baseline`]: the first method of each setting, in the order of its tables.
pub const FIRST_METHOD: &str = "first";

/// A format of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// `report.md`, with the figures as SVG files beside it.
    Md,
    /// `report.html`, one page that needs nothing else.
    Html,
    /// `results.csv`, long form: one row for each number. `summaries.csv`: one for each mean over seeds of what is made of them.
    Csv,
    /// `tables.tex`, booktabs tables to include.
    Tex,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 4] = [Format::Md, Format::Html, Format::Csv, Format::Tex];
}

/// What the report should be.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportSpec {
    /// Its heading.
    pub title: String,
    /// Which files.
    pub formats: BTreeSet<Format>,
    /// Whether figures are also written as PNG.
    pub png: bool,
    /// The method others are compared with, seed by seed: its name, or [`FIRST_METHOD`] for the first of each setting.
    pub baseline: Option<String>,
    /// Claims of a source to hold the records against, with published numbers; none: no such chapter.
    pub claims: Claims,
    /// Whether to hold the records against what a correct suite must show.
    pub assertions: bool,
    /// Texts of labels and names of variants in the order wanted; what is not named follows in canonical order.
    pub order: Vec<String>,
}

impl Default for ReportSpec {
    fn default() -> Self {
        Self {
            title: "Longreach report".into(),
            formats: Format::ALL.into(),
            png: true,
            baseline: None,
            claims: Claims::default(),
            assertions: false,
            order: Vec::new(),
        }
    }
}

/// Files and a text for the terminal.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What to write, by name.
    pub files: Vec<ReportFile>,
    /// The finding and the main table of each setting.
    pub summary: String,
}

/// One file of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportFile {
    /// Name without a directory.
    pub name: String,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Nothing to report on.
    #[error("no records to report on{}", excluded_text(.excluded))]
    Empty {
        /// What was found and left out.
        excluded: Vec<Excluded>,
    },
    /// No method of that name.
    #[error("the baseline \"{}\" is none of the methods: {}", text::shown(baseline), text::shown(&.known.join(", ")))]
    UnknownBaseline {
        /// As asked for.
        baseline: String,
        /// Names there are.
        known: Vec<String>,
    },
    /// A figure failed.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// A file could not be rendered.
    #[error("cannot render {file}: {reason}")]
    Render {
        /// Which.
        file: &'static str,
        /// Why.
        reason: String,
    },
}

fn excluded_text(excluded: &[Excluded]) -> String {
    match excluded.first() {
        None => String::new(),
        Some(first) => format!("; {} left out, the first: {}", excluded.len(), text::shown(&format!("{}: {}", place(first), first.reason))),
    }
}

impl Report {
    /// Writes every file into `dir`, creating the directory. Each is replaced as one step, so that two sweeps that write the same
    /// report leave whole files, and a link in the place of a file is replaced, not written through.
    ///
    /// # Errors
    ///
    /// When the directory or a file cannot be written; the message names it. When a file's name is not a plain one.
    pub fn write(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let is_plain = |name: &str| Path::new(name).file_name().is_some_and(|plain| plain == name);
        if let Some(file) = self.files.iter().find(|file| !is_plain(&file.name)) {
            let message = format!("{:?} is not a file's name; allowed: one without a directory", file.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        fs_err::create_dir_all(dir)?;
        let paths: io::Result<Vec<PathBuf>> = self
            .files
            .par_iter()
            .map(|file| {
                let path = dir.join(&file.name);
                replace(&path, &file.bytes).map(|()| path)
            })
            .collect();
        sync_directory(dir)?;
        paths
    }

    /// A file's content by name.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        self.files.iter().find(|f| f.name == name).map(|f| f.bytes.as_slice())
    }
}

/// Everything a renderer needs, formatted but not marked up.
pub(crate) struct Document {
    pub title: String,
    pub findings: Vec<String>,
    pub sections: Vec<Section>,
    pub chapters: Vec<Chapter>,
    pub conditions: Vec<(String, String)>,
    pub diverged: Vec<String>,
    pub unconverged: Vec<String>,
    pub excluded: Vec<String>,
    pub notes: Vec<String>,
}

/// What the report as a whole is held against.
pub(crate) struct Chapter {
    pub name: String,
    pub slug: String,
    /// One sentence; may be empty.
    pub summary: String,
    pub tables: Vec<Table>,
}

pub(crate) struct Section {
    pub name: String,
    pub slug: String,
    pub lead: Table,
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
    pub definitions: Vec<(String, String)>,
}

/// Makes the report. The order of `records` and of `excluded` does not matter; a run given twice counts once.
///
/// # Errors
///
/// No records, or a baseline that is no method.
pub fn report(records: &[RunRecord], excluded: &[Excluded], spec: &ReportSpec) -> Result<Report, ReportError> {
    let mut excluded: Vec<Excluded> = excluded.to_vec();
    excluded.sort();
    excluded.dedup();
    if records.is_empty() {
        return Err(ReportError::Empty { excluded });
    }
    let mut against = Vec::new();
    if spec.claims != Claims::default() {
        against.push(against::source(&spec.claims, records));
    }
    if spec.assertions {
        against.push(against::assertions(records)?);
    }
    let records = canonical(records);
    let settings = analysis::settings(&records, spec);
    check_baseline(&settings, spec)?;
    let mut files = Vec::new();
    for file in against.iter().flat_map(|a| &a.csv).filter(|_| spec.formats.contains(&Format::Csv)) {
        files.push(ReportFile { name: file.name.into(), bytes: render::csv_text(file.name, &file.head, &file.rows)?.into_bytes() });
    }
    let chapters = ranking::chapter(&settings).into_iter().chain(against.into_iter().map(|a| a.chapter)).collect();
    let document = document(&records, &excluded, &settings, spec, chapters);
    let pictures = pictures(&document, spec)?;
    let svgs: BTreeMap<&str, &str> = pictures.iter().map(|p| (p.slug, p.svg.as_str())).collect();
    for format in &spec.formats {
        let (name, text) = match format {
            Format::Md => ("report.md", render::markdown(&document)),
            Format::Html => ("report.html", render::html(&document, &svgs)?),
            Format::Csv => {
                let summaries = render::summaries_csv(&settings, spec)?;
                files.push(ReportFile { name: "summaries.csv".into(), bytes: summaries.into_bytes() });
                ("results.csv", render::long_csv(&settings)?)
            }
            Format::Tex => ("tables.tex", render::latex(&document)),
        };
        files.push(ReportFile { name: name.into(), bytes: text.into_bytes() });
    }
    for Picture { slug, svg, png } in pictures {
        files.push(ReportFile { name: format!("{slug}.svg"), bytes: svg.into_bytes() });
        files.extend(png.map(|bytes| ReportFile { name: format!("{slug}.png"), bytes }));
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Report { files, summary: render::terminal(&document) })
}

/// A figure, drawn.
struct Picture<'d> {
    slug: &'d str,
    svg: String,
    /// Where asked for.
    png: Option<Vec<u8>>,
}

/// Every figure. Drawn side by side: most of a report's time goes into compressing the images.
fn pictures<'d>(document: &'d Document, spec: &ReportSpec) -> Result<Vec<Picture<'d>>, PlotError> {
    let figures: Vec<&'d Figure> = document.sections.iter().flat_map(|s| &s.figures).collect();
    let draw = |figure: &&'d Figure| {
        let png = if spec.png { Some(figure.plot.to_png()?) } else { None };
        Ok(Picture { slug: &figure.slug, svg: figure.plot.to_svg(), png })
    };
    figures.par_iter().map(draw).collect()
}

/// Sorted, each run id once. Of two records of one run id the same one is taken whatever their order.
fn canonical(records: &[RunRecord]) -> Vec<&RunRecord> {
    let mut sorted: Vec<&RunRecord> = records.iter().collect();
    let text = |r: &RunRecord| serde_json::to_string(r).unwrap_or_default();
    sorted.sort_by(|a, b| order::canonical(a, b).then_with(|| if a == b { std::cmp::Ordering::Equal } else { text(a).cmp(&text(b)) }));
    let mut seen = BTreeSet::new();
    sorted.retain(|r| seen.insert(&r.run_id));
    sorted
}

fn check_baseline(settings: &[Setting<'_>], spec: &ReportSpec) -> Result<(), ReportError> {
    let Some(baseline) = spec.baseline.as_ref().filter(|name| *name != FIRST_METHOD) else { return Ok(()) };
    let known: BTreeSet<&String> = settings.iter().flat_map(|s| &s.methods).map(|m| &m.name).collect();
    if known.contains(baseline) {
        return Ok(());
    }
    Err(ReportError::UnknownBaseline { baseline: baseline.clone(), known: known.into_iter().cloned().collect() })
}

fn document(
    records: &[&RunRecord],
    excluded: &[Excluded],
    settings: &[Setting<'_>],
    spec: &ReportSpec,
    mut chapters: Vec<Chapter>,
) -> Document {
    let mut notes: Vec<String> = settings.iter().flat_map(|s| s.notes.iter().cloned()).collect();
    let known = |text: &str| records.iter().any(|r| r.labels.iter().any(|l| l.text == text) || r.evals.iter().any(|e| e.variant == text));
    let unknown: Vec<&str> = spec.order.iter().map(String::as_str).filter(|o| !known(o)).collect();
    if !unknown.is_empty() {
        notes.push(format!("Named in the order asked for, but in no record: {}.", unknown.join(", ")));
    }
    let differ = |of: &dyn Fn(&RunRecord) -> String| records.iter().any(|r| of(r) != of(records[0]));
    if differ(&|r| r.environment.commit.clone()) || differ(&|r| r.environment.version.clone()) {
        notes.push("The runs were made by more than one build; see the conditions.".into());
    }
    if differ(&|r| r.environment.device.clone()) {
        notes.push("The runs were made on more than one kind of device; see the conditions.".into());
    }
    let diverged = records.iter().filter(|r| r.status == RunStatus::Diverged).map(|r| {
        let labels: Vec<String> = r.labels.iter().take(32).map(|l| text::name(&l.text, 80)).collect();
        let what = r.diverged.as_ref().map_or("no step recorded".into(), |d| format!("step {}, {} not finite", d.step, d.what));
        format!("{} [{}] seed {} ({}): {what}", text::name(&r.experiment, 60), labels.join(", "), r.seed, short(&r.run_id))
    });
    let mut sections: Vec<Section> = settings.iter().map(|s| section(s, spec)).collect();
    limit_figures(&mut sections, &mut notes);
    name_files(&mut sections, &mut chapters);
    Document {
        title: spec.title.clone(),
        findings: settings.iter().map(|s| finding(s, spec)).collect(),
        sections,
        chapters,
        conditions: conditions(records, settings),
        diverged: listed(diverged.collect()),
        unconverged: listed(settings.iter().flat_map(table::unconverged).collect()),
        excluded: listed(excluded.iter().map(|e| format!("{}: {}", place(e), e.reason)).collect()),
        notes: listed(notes),
    }
}

/// What the numbers say and, where there is a baseline, how others differ from it.
fn finding(setting: &Setting<'_>, spec: &ReportSpec) -> String {
    let difference = table::baseline(setting, spec).and_then(|base| table::baseline_finding(setting, base));
    std::iter::once(table::finding(setting)).chain(difference).collect::<Vec<_>>().join(" ")
}

/// Every further figure costs a file or two; a heap of unrelated records must not cost thousands.
fn limit_figures(sections: &mut [Section], notes: &mut Vec<String>) {
    let all: usize = sections.iter().map(|s| s.figures.len()).sum();
    let mut left = MOST_FIGURES;
    for section in sections {
        section.figures.truncate(left);
        left -= section.figures.len();
    }
    if all > MOST_FIGURES {
        notes.push(format!("{all} figures would be too many: the first {MOST_FIGURES} are drawn. Report on fewer settings at once."));
    }
}

/// Names of files and anchors: made of names in records, so made harmless, and each given once.
fn name_files(sections: &mut [Section], chapters: &mut [Chapter]) {
    let (mut files, mut anchors) = (Slugs::default(), Slugs::default());
    for fixed in ["conditions", "diverged-runs", "not-converged", "left-out", "notes"] {
        anchors.take(fixed);
    }
    for chapter in &mut *chapters {
        chapter.slug = anchors.take(&chapter.slug);
        chapter.tables.iter_mut().for_each(|table| table.slug = anchors.take(&table.slug));
    }
    for section in &mut *sections {
        section.slug = anchors.take(&section.slug);
    }
    for section in &mut *sections {
        for figure in &mut section.figures {
            figure.slug = files.take(&figure.slug);
            anchors.take(&format!("plot-{}", figure.slug));
        }
    }
    for table in sections.iter_mut().flat_map(|s| std::iter::once(&mut s.lead).chain(&mut s.tables)) {
        table.slug = anchors.take(&table.slug);
    }
}

/// A list that somebody might read to its end.
fn listed(mut items: Vec<String>) -> Vec<String> {
    if items.len() > MOST_LISTED {
        let more = items.len() - MOST_LISTED;
        items.truncate(MOST_LISTED);
        items.push(format!("... and {more} more"));
    }
    items
}

fn section(setting: &Setting<'_>, spec: &ReportSpec) -> Section {
    let mut tables: Vec<Table> = setting.metrics.iter().skip(1).map(|m| table::metric_table(setting, m)).collect();
    tables.splice(0..0, table::reach_table(setting).into_iter().chain(table::extrapolation_table(setting)));
    let base = table::baseline(setting, spec);
    tables.extend(base.map(|base| table::baseline_table(setting, base)));
    let sweeps = table::base_sweeps(setting);
    for (i, sweep) in sweeps.iter().enumerate() {
        tables.push(table::base_table(setting, sweep, &sweep_slug(i, sweeps.len())));
    }
    tables.extend(table::attention_tables(setting));
    tables.push(table::facts_table(setting));
    // What is derived from the loss is only as clear as the loss.
    let loss = (setting.task.primary_metric == metric::LOSS_NATS).then(|| metric::LOSS_NATS.to_string());
    let shown = loss.iter().chain(&setting.metrics);
    let definitions = shown.map(|m| (m.clone(), setting.definition(m)));
    Section {
        name: setting.name.clone(),
        slug: if setting.slug.is_empty() { "results".into() } else { setting.slug.clone() },
        lead: table::metric_table(setting, setting.lead()),
        tables,
        figures: figures(setting),
        definitions: definitions.collect(),
    }
}

/// What the numbers depend on, each thing once.
fn conditions(records: &[&RunRecord], settings: &[Setting<'_>]) -> Vec<(String, String)> {
    let each = |value: &dyn Fn(&RunRecord) -> Option<String>| -> String {
        let mut seen: Vec<String> = Vec::new();
        for text in records.iter().filter_map(|r| value(r)) {
            if !seen.contains(&text) {
                seen.push(text);
            }
        }
        table::list(&seen, 6)
    };
    let span = |value: &dyn Fn(&RunRecord) -> u64| -> String {
        let (low, high) = records.iter().map(|r| value(r)).fold((u64::MAX, 0), |(a, b), v| (a.min(v), b.max(v)));
        if low == high { table::thousands(low) } else { format!("{} to {}", table::thousands(low), table::thousands(high)) }
    };
    let mut seeds: Vec<u64> = records.iter().map(|r| r.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let methods: usize = settings.iter().map(|s| s.methods.len()).sum();
    let runs = records.len();
    let diverged = records.iter().filter(|r| r.status == RunStatus::Diverged).count();
    let corpus = each(&|r| {
        let c = r.task.corpus.as_ref()?;
        Some(format!(
            "{}: {} files, {} bytes to train on, {} to test on, blake3 {}",
            c.source,
            table::thousands(c.files as u64),
            table::thousands(c.train_bytes),
            table::thousands(c.valid_bytes),
            c.blake3
        ))
    });
    let rows = [
        ("experiments", each(&|r| Some(r.experiment.clone()))),
        ("runs", format!("{runs} ({diverged} diverged), {methods} methods")),
        ("seeds", table::list(&seeds, 12)),
        ("steps", span(&|r| r.train.steps)),
        ("tokens trained on", span(&|r| r.train.tokens)),
        ("parameters", span(&|r| r.model.parameters)),
        ("corpus", corpus),
        ("device", each(&|r| Some(r.environment.device.clone()))),
        ("commit", each(&|r| Some(r.environment.commit.clone()))),
        ("version", each(&|r| Some(format!("longreach {}, burn {}", r.environment.version, r.environment.burn)))),
    ];
    rows.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name.into(), text)).collect()
}

/// The end of the path is enough to find a file, and says nothing of the machine.
fn place(excluded: &Excluded) -> String {
    let parts: Vec<_> = excluded.path.components().map(|c| c.as_os_str().to_string_lossy()).collect();
    let tail = parts[parts.len().saturating_sub(3)..].join("/");
    match excluded.line {
        Some(line) => format!("{tail}:{line}"),
        None => tail,
    }
}
