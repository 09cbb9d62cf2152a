//! A report before any markup: sections and chapters of tables and figures.

use crate::plot::{Dots, Grids, LinePlot, PageFigure};

/// Everything that a report shows.
pub(crate) struct Document {
    pub title: String,
    /// The page over all experiments and those of each, for pages; empty where there is one page.
    pub pages: Vec<PageLink>,
    pub sections: Vec<Section>,
    pub chapters: Vec<Chapter>,
    pub conditions: Vec<(String, String)>,
    /// The config of each experiment.
    pub configs: Vec<Config>,
    pub diverged: Vec<String>,
    pub unconverged: Vec<String>,
    pub excluded: Vec<String>,
    pub notes: Vec<String>,
}

/// A page of a report, or the place of a setting there.
pub(crate) struct PageLink {
    pub name: String,
    /// None on that page itself.
    pub href: Option<String>,
}

impl Document {
    /// Whether an experiment is described on another page.
    pub(crate) fn is_elsewhere(&self, experiment: &str) -> bool {
        let is_all = self.pages.first().is_some_and(|all| all.href.is_none());
        is_all && self.pages.iter().any(|page| page.name == experiment)
    }

    /// Anchor, name and items of the lists at the end that have any.
    pub(crate) fn lists(&self) -> Vec<(&'static str, &'static str, &[String])> {
        let lists = [
            ("diverged-runs", "Diverged runs", &self.diverged[..]),
            ("not-converged", "Not converged", &self.unconverged),
            ("left-out", "Left out", &self.excluded),
            ("notes", "Notes", &self.notes),
        ];
        let lists = lists.into_iter().filter(|(.., items)| !items.is_empty());
        lists.collect()
    }
}

/// A part of the report about all settings.
pub(crate) struct Chapter {
    pub name: String,
    pub slug: String,
    /// One sentence; may be empty.
    pub summary: String,
    pub tables: Vec<Table>,
    /// Whether it comes before the settings.
    pub is_first: bool,
}

/// A part of the report about one setting.
pub(crate) struct Section {
    pub name: String,
    pub slug: String,
    /// Where pages of its experiments show it with its runs; empty where this page does.
    pub pages: Vec<PageLink>,
    /// What the numbers say, in at most three sentences.
    pub finding: String,
    /// What else is to be known, a sentence each.
    pub caveats: Vec<String>,
    pub lead: Table,
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
    pub definitions: Vec<(String, String)>,
    /// The scores as differences to other methods, for pages.
    pub differences: Vec<Differences>,
    /// The runs one by one, for pages.
    pub runs: Vec<RunView>,
}

/// The scores of one metric as differences to one method.
pub(crate) struct Differences {
    pub metric: String,
    /// Key and name of the method.
    pub baseline: (String, String),
    /// By the key of each other method, by test length; whether the interval excludes 0.
    pub rows: Vec<(String, Vec<(String, bool)>)>,
}

/// One run.
pub(crate) struct RunView {
    /// Anchor.
    pub slug: String,
    /// Method and seed.
    pub name: String,
    /// Its id.
    pub run: String,
    /// Where it diverged, or its final training loss; may be empty.
    pub outcome: String,
    /// What is known of it.
    pub facts: Vec<(String, String)>,
    /// Scores by variant and test length.
    pub scores: Option<Table>,
    pub curves: Vec<RunCurve>,
    /// A command that trains it again, in pieces that runs of one method share.
    pub command: Vec<String>,
    /// Relative path of its directory.
    pub link: Option<String>,
}

/// A small curve of one run.
pub(crate) struct RunCurve {
    pub name: String,
    pub x: String,
    pub points: Vec<(f64, f64)>,
}

/// The config of one experiment.
pub(crate) struct Config {
    pub experiment: String,
    /// Relative paths of the configs that plan its runs, where they are known; for pages.
    pub files: Vec<String>,
    /// What the TOML is.
    pub about: String,
    /// The resolved spec of one run.
    pub toml: String,
}

/// A cell, already formatted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cell {
    /// Plain text; renderers escape it.
    pub text: String,
    /// Where in the text its interval begins, in bytes; none for text without one.
    pub interval_at: Option<usize>,
    /// Where it stands in its column.
    pub mark: Mark,
    /// Whether it is of a method that is still learning, and therefore grey.
    pub is_learning: bool,
    /// Colour of the cell, from 0 (worst) to 1 (best).
    pub heat: Option<f64>,
    /// What a sign says.
    pub tone: Option<Tone>,
    /// Relative link to a page about it, in pages.
    pub page: Option<String>,
    /// The text in parts with their relative links, if there are any links; together the parts are
    /// `text`.
    pub links: Vec<(String, Option<String>)>,
}

impl Cell {
    /// A number and its interval, which may be empty.
    pub(crate) fn number((mean, interval): (String, String)) -> Self {
        let at = Some(mean.len()).filter(|_| !interval.is_empty());
        Self {
            interval_at: at,
            ..Self::from(mean + &interval)
        }
    }

    /// Marked as that of a method that is still learning.
    pub(crate) fn still_learning(self) -> Self {
        Self {
            text: self.text + " †",
            is_learning: true,
            ..self
        }
    }

    /// Parts with links, joined by commas.
    pub(crate) fn linked(parts: Vec<(String, Option<String>)>) -> Self {
        let text = parts
            .iter()
            .map(|(text, _)| text.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let links = if parts.iter().any(|(_, link)| link.is_some()) {
            parts
        } else {
            Vec::new()
        };
        Self {
            text,
            links,
            ..Self::default()
        }
    }
}

/// Where a number stands among those of its column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nothing is said of it.
    #[default]
    None,
    /// The best one: its interval touches no other.
    Best,
    /// The best mean where its interval touches others, and those others.
    Near,
}

/// What a sign says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    /// Neither.
    Open,
}

/// How the cells of a table are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A name and numbers, aligned right.
    #[default]
    Numbers,
    /// Sentences, aligned left.
    Prose,
    /// A sentence, a summary, and signs in narrow columns.
    Matrix,
    /// A name and numbers on coloured ground in narrow columns.
    Heat,
    /// Sentences too long for a column of a printed page.
    Glossary,
}

/// A table ready for any renderer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    /// Anchor and label.
    pub slug: String,
    /// What it shows, in a few words.
    pub title: String,
    /// What the numbers are, in a sentence or two.
    pub caption: String,
    /// What the letters behind names of methods mean, as the caption says it too.
    pub remarks: Vec<String>,
    /// How to read it; folded away where the markup can. May be empty.
    pub notes: String,
    /// Definition and chance level of its metric, for a table that stands alone. May be empty.
    pub definition: String,
    /// Whether the table itself is folded away where the markup can.
    pub is_folded: bool,
    /// Whether an overview of several settings shows what it says.
    pub is_in_overview: bool,
    /// Whether only the page shows it: what was measured differs where the records are the same,
    /// and the other files are the same then.
    pub is_for_page: bool,
    /// Column headings.
    pub columns: Vec<String>,
    /// Rows, as wide as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// How its cells are set.
    pub layout: Layout,
    /// The metric whose scores it holds, one row for each method; none for other tables.
    pub metric: Option<String>,
    /// Indices of the rows' methods, none where another row is that of the method; as long as
    /// `rows`, or empty.
    pub methods: Vec<Option<usize>>,
    /// Links of the headings within a page; as long as `columns`, or empty.
    pub column_links: Vec<Option<String>>,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_string().into()
    }
}

/// A figure and its caption.
pub(crate) struct Figure {
    /// Name of the file, without its extension.
    pub slug: String,
    /// What it shows, in a sentence or two.
    pub caption: String,
    /// How to read it; folded away where the markup can. May be empty.
    pub notes: String,
    pub plot: Drawing,
    /// The metric whose scores by length it draws; none for other figures.
    pub metric: Option<String>,
}

/// What is drawn.
pub(crate) enum Drawing {
    Lines(LinePlot),
    Grids(Grids),
    Dots(Dots),
}

impl Drawing {
    pub(crate) fn title(&self) -> &str {
        match self {
            Drawing::Lines(plot) => &plot.title,
            Drawing::Grids(plot) => &plot.title,
            Drawing::Dots(plot) => &plot.title,
        }
    }

    pub(crate) fn subtitle(&self) -> &str {
        match self {
            Drawing::Lines(plot) => &plot.subtitle,
            Drawing::Grids(plot) => &plot.subtitle,
            Drawing::Dots(plot) => &plot.subtitle,
        }
    }

    pub(crate) fn to_svg(&self) -> String {
        match self {
            Drawing::Lines(plot) => plot.to_svg(),
            Drawing::Grids(plot) => plot.to_svg(),
            Drawing::Dots(plot) => plot.to_svg(),
        }
    }

    /// Whether it has lines of seeds.
    pub(crate) fn has_seeds(&self) -> bool {
        match self {
            Drawing::Lines(plot) => plot.series.iter().any(|s| !s.seeds.is_empty()),
            Drawing::Grids(_) | Drawing::Dots(_) => false,
        }
    }

    /// The figure for a page, `is_small` as in [`LinePlot::to_page`].
    pub(crate) fn to_page(&self, is_small: bool) -> PageFigure {
        match self {
            Drawing::Lines(plot) => plot.to_page(is_small),
            Drawing::Grids(plot) => plot.to_page(),
            Drawing::Dots(plot) => plot.to_page(),
        }
    }
}

impl From<LinePlot> for Drawing {
    fn from(plot: LinePlot) -> Self {
        Drawing::Lines(plot)
    }
}
