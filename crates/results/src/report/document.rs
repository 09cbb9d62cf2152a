//! A report before any markup: sections and chapters of tables and figures.

use crate::plot::{Grids, LinePlot, PlotError};

/// Everything that a report shows.
pub(crate) struct Document {
    pub title: String,
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

/// A part of the report about all settings.
pub(crate) struct Chapter {
    pub name: String,
    pub slug: String,
    /// One sentence; may be empty.
    pub summary: String,
    pub tables: Vec<Table>,
}

/// A part of the report about one setting.
pub(crate) struct Section {
    pub name: String,
    pub slug: String,
    /// What the numbers say, in a sentence or two.
    pub finding: String,
    pub lead: Table,
    pub tables: Vec<Table>,
    pub figures: Vec<Figure>,
    pub definitions: Vec<(String, String)>,
}

/// The config of one experiment.
pub(crate) struct Config {
    pub experiment: String,
    /// TOML, with comments on what it leaves out at its top.
    pub toml: String,
    /// Whether it leaves out nothing.
    pub is_whole: bool,
}

impl Config {
    /// What the TOML is, in a sentence or two.
    pub(crate) fn about(&self) -> String {
        let rest = if self.is_whole {
            "longreach run accepts it and plans the same runs."
        } else {
            "Its first lines say what it leaves out."
        };
        format!("Put together from the records, every default filled in. {rest}")
    }
}

/// A cell, already formatted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    /// Plain text; renderers escape it.
    pub text: String,
    /// Where it stands in its column.
    pub mark: Mark,
    /// Colour of the cell, from 0 (worst) to 1 (best).
    pub heat: Option<f64>,
    /// What a sign says.
    pub tone: Option<Tone>,
    /// The text in parts with their relative links, if there are any links; together the parts are
    /// `text`.
    pub links: Vec<(String, Option<String>)>,
}

impl Cell {
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
            mark: Mark::None,
            heat: None,
            tone: None,
            links,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A name and numbers, aligned right.
    Numbers,
    /// Sentences, aligned left.
    Prose,
    /// A sentence, a summary, and signs in narrow columns.
    Matrix,
    /// Sentences too long for a column of a printed page.
    Glossary,
}

/// A table ready for any renderer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// Anchor and label.
    pub slug: String,
    /// What it shows, in a few words.
    pub title: String,
    /// What the numbers are, in a sentence or two.
    pub caption: String,
    /// How to read it; folded away where the markup can. May be empty.
    pub notes: String,
    /// Definition and chance level of its metric, for a table that stands alone. May be empty.
    pub definition: String,
    /// Whether the table itself is folded away where the markup can.
    pub is_folded: bool,
    /// Column headings.
    pub columns: Vec<String>,
    /// Rows, as wide as `columns`.
    pub rows: Vec<Vec<Cell>>,
    /// How its cells are set.
    pub layout: Layout,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self {
            text,
            mark: Mark::None,
            heat: None,
            tone: None,
            links: Vec::new(),
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
}

/// What is drawn.
pub(crate) enum Drawing {
    Lines(LinePlot),
    Grids(Grids),
}

impl Drawing {
    pub(crate) fn title(&self) -> &str {
        match self {
            Drawing::Lines(plot) => &plot.title,
            Drawing::Grids(plot) => &plot.title,
        }
    }

    pub(crate) fn subtitle(&self) -> &str {
        match self {
            Drawing::Lines(plot) => &plot.subtitle,
            Drawing::Grids(plot) => &plot.subtitle,
        }
    }

    pub(crate) fn to_svg(&self) -> String {
        match self {
            Drawing::Lines(plot) => plot.to_svg(),
            Drawing::Grids(plot) => plot.to_svg(),
        }
    }

    pub(crate) fn to_png(&self) -> Result<Vec<u8>, PlotError> {
        match self {
            Drawing::Lines(plot) => plot.to_png(),
            Drawing::Grids(plot) => plot.to_png(),
        }
    }
}

impl From<LinePlot> for Drawing {
    fn from(plot: LinePlot) -> Self {
        Drawing::Lines(plot)
    }
}
