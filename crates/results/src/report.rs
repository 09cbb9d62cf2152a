//! A report: a pure function of records and a [`ReportSpec`].

use crate::analysis::Setting;
use crate::claims::Claims;
use crate::compare::{disagreement, fuller_first};
use crate::conditions::{self, Config};
use crate::figures::{Figure, figures, sweep_slug};
use crate::identity::{MethodSpecs, canonical_text};
use crate::methods;
use crate::naming::short;
use crate::plot::PlotError;
use crate::record::{RunRecord, RunStatus};
use crate::render;
use crate::store::Excluded;
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
    /// `results.csv`, long form: one row for each number. `summaries.csv`: one for each mean over
    /// seeds of what is made of them.
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
    /// The method others are compared with, seed by seed: its name, or [`FIRST_METHOD`] for the
    /// first of each setting.
    pub baseline: Option<String>,
    /// Claims of a source to hold the records against, with published numbers; none: no such
    /// chapter.
    pub claims: Claims,
    /// Whether to hold the records against what a correct suite must show.
    pub assertions: bool,
    /// Texts of labels and names of variants in the order wanted; what is not named follows in
    /// canonical order.
    pub order: Vec<String>,
    /// Where the page may link to the directory of a run: a relative path by experiment and run
    /// id.
    pub run_links: BTreeMap<(String, String), String>,
    /// Further notes, printed at the end of the report.
    pub notes: Vec<String>,
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
            run_links: BTreeMap::new(),
            notes: Vec::new(),
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
    #[error("the baseline \"{}\" is none of the methods: {}", text::printable(baseline), text::printable(&.known.join(", ")))]
    UnknownBaseline {
        /// As asked for.
        baseline: String,
        /// Names there are.
        known: Vec<String>,
    },
    /// Two records of one run disagree.
    #[error(
        "run {} of {} is recorded twice with different numbers: its records differ in {what}",
        text::printable(run_id),
        text::printable(experiments)
    )]
    Twins {
        /// Their run; both, where two runs of one specification and seed have other ids.
        run_id: String,
        /// The experiments they are part of.
        experiments: String,
        /// What differs, in a few words.
        what: String,
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
        Some(first) => format!(
            "; {} left out, the first: {}",
            excluded.len(),
            text::printable(&format!("{}: {}", place(first), first.reason))
        ),
    }
}

impl Report {
    /// Writes every file into `dir`, creating the directory. Each is replaced as one step, so that
    /// two sweeps that write the same report leave whole files, and a link in the place of a
    /// file is replaced, not written through.
    ///
    /// # Errors
    ///
    /// When the directory or a file cannot be written; the message names it. When a file's name is
    /// not a plain one.
    pub fn write(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let is_plain = |name: &str| {
            Path::new(name)
                .file_name()
                .is_some_and(|plain| plain == name)
        };
        if let Some(file) = self.files.iter().find(|file| !is_plain(&file.name)) {
            let message = format!(
                "{:?} is not a file's name; allowed: one without a directory",
                file.name
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        fs_err::create_dir_all(dir)?;
        let write = |file: &ReportFile| {
            let path = dir.join(&file.name);
            rundir::system()
                .write_whole(&path, &file.bytes)
                .map_err(|refused| io::Error::new(refused.error.kind(), refused.to_string()))?;
            Ok(path)
        };
        self.files.iter().map(write).collect()
    }

    /// A file's content by name.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        self.files
            .iter()
            .find(|f| f.name == name)
            .map(|f| f.bytes.as_slice())
    }
}

/// Everything a renderer needs, formatted but not marked up.
pub(crate) struct Document {
    pub title: String,
    pub findings: Vec<String>,
    pub sections: Vec<Section>,
    pub chapters: Vec<Chapter>,
    pub conditions: Vec<(String, String)>,
    /// The config of each experiment, as far as its records tell.
    pub configs: Vec<Config>,
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

/// Makes the report. The order of `records` and of `excluded` does not matter; a run given twice
/// counts once, a run that is part of several experiments once in each.
///
/// # Errors
///
/// No records, two records of one run with other numbers, or a baseline that is no method.
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
    let canonical = canonical(records)?;
    let mut against = Vec::new();
    if spec.claims != Claims::default() {
        against.push(against::source(&spec.claims, records));
    }
    if spec.assertions {
        against.push(against::assertions(records)?);
    }
    let records = canonical;
    let settings = analysis::settings(&records, &spec.order, &MethodSpecs::new(&records));
    check_baseline(&settings, spec)?;
    let mut files = Vec::new();
    for file in against
        .iter()
        .flat_map(|a| &a.csv)
        .filter(|_| spec.formats.contains(&Format::Csv))
    {
        files.push(ReportFile {
            name: file.name.into(),
            bytes: render::csv_text(file.name, &file.head, &file.rows)?.into_bytes(),
        });
    }
    let chapters = ranking::chapter(&settings)
        .into_iter()
        .chain(against.into_iter().map(|a| a.chapter))
        .collect();
    let document = document(&records, &excluded, &settings, spec, chapters);
    let pictures = pictures(&document, spec)?;
    let svgs: BTreeMap<&str, &str> = pictures.iter().map(|p| (p.slug, p.svg.as_str())).collect();
    for format in &spec.formats {
        let (name, text) = match format {
            Format::Md => ("report.md", render::markdown(&document)),
            Format::Html => ("report.html", render::html(&document, &svgs)?),
            Format::Csv => {
                let summaries = render::summaries_csv(&settings, spec)?;
                files.push(ReportFile {
                    name: "summaries.csv".into(),
                    bytes: summaries.into_bytes(),
                });
                ("results.csv", render::long_csv(&settings)?)
            }
            Format::Tex => ("tables.tex", render::latex(&document)),
        };
        files.push(ReportFile {
            name: name.into(),
            bytes: text.into_bytes(),
        });
    }
    for Picture { slug, svg, png } in pictures {
        files.push(ReportFile {
            name: format!("{slug}.svg"),
            bytes: svg.into_bytes(),
        });
        files.extend(png.map(|bytes| ReportFile {
            name: format!("{slug}.png"),
            bytes,
        }));
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Report {
        files,
        summary: render::terminal(&document),
    })
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
        let png = if spec.png {
            Some(figure.plot.to_png()?)
        } else {
            None
        };
        Ok(Picture {
            slug: &figure.slug,
            svg: figure.plot.to_svg(),
            png,
        })
    };
    figures.par_iter().map(draw).collect()
}

/// Sorted; each run once in each experiment that it is part of, and each of its later evaluations.
fn canonical(records: &[RunRecord]) -> Result<Vec<&RunRecord>, ReportError> {
    let mut sorted: Vec<&RunRecord> = records.iter().collect();
    sorted.sort_by(|a, b| order::canonical(a, b).then_with(|| fuller_first(a, b)));
    let specs = MethodSpecs::new(&sorted);
    // One run has one id, and one specification under one seed is one run.
    let (mut by_id, mut by_spec) = (BTreeMap::new(), BTreeMap::new());
    for record in &sorted {
        let of = record.evaluation_of.as_deref();
        let spec = (canonical_text(&specs.of(record)), record.seed, of);
        let by_id = by_id.entry((&record.run_id, of)).or_insert(*record);
        // Records of other versions, and made-up ones, may hold no specification at all.
        let by_spec = if record.spec.is_empty() {
            *by_id
        } else {
            *by_spec.entry(spec).or_insert(*record)
        };
        for other in [*by_id, by_spec] {
            if let Some(what) = disagreement(other, record) {
                let both = |a: &str, b: &str| {
                    if a == b {
                        a.to_owned()
                    } else {
                        format!("{a} and {b}")
                    }
                };
                let (run_id, experiments) = (
                    both(&other.run_id, &record.run_id),
                    both(&other.experiment, &record.experiment),
                );
                return Err(ReportError::Twins {
                    run_id,
                    experiments,
                    what,
                });
            }
        }
    }
    let mut seen = BTreeSet::new();
    sorted.retain(|r| seen.insert((&r.experiment, &r.run_id, &r.evaluation_of)));
    Ok(sorted)
}

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

fn document(
    records: &[&RunRecord],
    excluded: &[Excluded],
    settings: &[Setting<'_>],
    spec: &ReportSpec,
    mut chapters: Vec<Chapter>,
) -> Document {
    let mut notes: Vec<String> = settings
        .iter()
        .flat_map(|s| s.notes.iter().cloned())
        .collect();
    notes.extend(spec.notes.iter().cloned());
    notes.extend(shared_note(records));
    let known = |text: &str| {
        records.iter().any(|r| {
            r.labels.iter().any(|l| l.text == text) || r.evals.iter().any(|e| e.variant == text)
        })
    };
    let unknown: Vec<&str> = spec
        .order
        .iter()
        .map(String::as_str)
        .filter(|o| !known(o))
        .collect();
    if !unknown.is_empty() {
        notes.push(format!(
            "Named in the order asked for, but in no record: {}.",
            unknown.join(", ")
        ));
    }
    let differ =
        |of: &dyn Fn(&RunRecord) -> String| records.iter().any(|r| of(r) != of(records[0]));
    if differ(&|r| r.environment.commit.clone()) || differ(&|r| r.environment.version.clone()) {
        notes.push("The runs were made by more than one build; see the conditions.".into());
    }
    if differ(&|r| r.environment.device.clone()) {
        notes
            .push("The runs were made on more than one kind of device; see the conditions.".into());
    }
    let diverged = records
        .iter()
        .filter(|r| r.status == RunStatus::Diverged)
        .map(|r| {
            let labels: Vec<String> = r
                .labels
                .iter()
                .take(32)
                .map(|l| text::name(&l.text, 80))
                .collect();
            let what = r.diverged.as_ref().map_or("no step recorded".into(), |d| {
                format!("step {}, {} not finite", d.step, d.what)
            });
            format!(
                "{} [{}] seed {} ({}): {what}",
                text::name(&r.experiment, 60),
                labels.join(", "),
                r.seed,
                short(&r.run_id)
            )
        });
    let mut sections: Vec<Section> = settings.iter().map(|s| section(s, spec)).collect();
    limit_figures(&mut sections, &mut notes);
    name_files(&mut sections, &mut chapters);
    Document {
        title: spec.title.clone(),
        findings: settings.iter().map(|s| finding(s, spec)).collect(),
        sections,
        chapters,
        conditions: conditions::facts(records, settings),
        configs: conditions::configs(records),
        diverged: listed(diverged.collect()),
        unconverged: listed(settings.iter().flat_map(table::unconverged).collect()),
        excluded: listed(
            excluded
                .iter()
                .map(|e| format!("{}: {}", place(e), e.reason))
                .collect(),
        ),
        notes: listed(notes),
    }
}

/// Which runs are part of several experiments.
fn shared_note(records: &[&RunRecord]) -> Option<String> {
    let mut by_id: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for record in records.iter().filter(|r| r.evaluation_of.is_none()) {
        by_id
            .entry(&record.run_id)
            .or_default()
            .insert(&record.experiment);
    }
    let shared: Vec<(&str, BTreeSet<&str>)> =
        by_id.into_iter().filter(|(_, all)| all.len() > 1).collect();
    let experiments: BTreeSet<String> = shared
        .iter()
        .flat_map(|(_, all)| all)
        .map(|name| text::name(name, 60))
        .collect();
    let experiments: Vec<String> = experiments.into_iter().collect();
    let count = if shared.len() == 1 {
        "1 run is".to_owned()
    } else {
        format!("{} runs are", shared.len())
    };
    (!shared.is_empty()).then(|| {
        format!(
            "{count} part of several experiments and shown in each: {}.",
            table::list(&experiments, 8)
        )
    })
}

/// What the numbers say and, where there is a baseline, how others differ from it.
fn finding(setting: &Setting<'_>, spec: &ReportSpec) -> String {
    let difference =
        table::baseline(setting, spec).and_then(|base| table::baseline_finding(setting, base));
    std::iter::once(table::finding(setting))
        .chain(difference)
        .collect::<Vec<_>>()
        .join(" ")
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
        notes.push(format!(
            "{all} figures would be too many: the first {MOST_FIGURES} are drawn. Report on fewer \
             settings at once."
        ));
    }
}

/// Names of files and anchors: made of names in records, so made harmless, and each given once.
fn name_files(sections: &mut [Section], chapters: &mut [Chapter]) {
    let (mut files, mut anchors) = (Slugs::default(), Slugs::default());
    for fixed in [
        "conditions",
        "diverged-runs",
        "not-converged",
        "left-out",
        "notes",
    ] {
        anchors.take(fixed);
    }
    for chapter in &mut *chapters {
        chapter.slug = anchors.take(&chapter.slug);
        chapter
            .tables
            .iter_mut()
            .for_each(|table| table.slug = anchors.take(&table.slug));
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
    for table in sections
        .iter_mut()
        .flat_map(|s| std::iter::once(&mut s.lead).chain(&mut s.tables))
    {
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
    let mut tables: Vec<Table> = setting
        .metrics
        .iter()
        .skip(1)
        .map(|m| table::metric_table(setting, m))
        .collect();
    tables.splice(
        0..0,
        table::reach_table(setting)
            .into_iter()
            .chain(table::extrapolation_table(setting)),
    );
    let base = table::baseline(setting, spec);
    tables.extend(base.map(|base| table::baseline_table(setting, base)));
    let sweeps = table::base_sweeps(setting);
    for (i, sweep) in sweeps.iter().enumerate() {
        tables.push(table::base_table(
            setting,
            sweep,
            &sweep_slug(i, sweeps.len()),
        ));
    }
    tables.extend(table::attention_tables(setting));
    tables.push(methods::table(setting, &spec.run_links));
    tables.push(table::facts_table(setting));
    // What is derived from the loss is only as clear as the loss.
    let loss =
        (setting.task.primary_metric == metric::LOSS_NATS).then(|| metric::LOSS_NATS.to_string());
    let shown = loss.iter().chain(&setting.metrics);
    let definitions = shown.map(|m| (m.clone(), setting.definition(m)));
    Section {
        name: setting.name.clone(),
        slug: if setting.slug.is_empty() {
            "results".into()
        } else {
            setting.slug.clone()
        },
        lead: table::metric_table(setting, setting.lead()),
        tables,
        figures: figures(setting),
        definitions: definitions.collect(),
    }
}

/// The end of the path is enough to find a file, and says nothing of the machine.
fn place(excluded: &Excluded) -> String {
    let parts: Vec<_> = excluded
        .path
        .components()
        .map(|c| c.as_os_str().to_string_lossy())
        .collect();
    let tail = parts[parts.len().saturating_sub(3)..].join("/");
    match excluded.line {
        Some(line) => format!("{tail}:{line}"),
        None => tail,
    }
}
