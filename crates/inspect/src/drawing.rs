//! What the pictures of an encoding share: titles, heat maps, and lines with and without scaling.

use crate::digits::number;
use crate::numbers::{Numbers, Rotary};
use crate::subject::Subject;
use burn::tensor::Device;
use report::plot::{Heatmap, LinePlot, PANEL, Series};

/// Side of a heat map: as many cells as are drawn without averaging.
pub const CELLS: usize = 128;

/// Points of a line.
pub const POINTS: usize = 512;

/// Longest sequence a bias is drawn for.
pub const LONGEST: usize = 1 << 24;

/// Most lines of one figure.
pub const LINES: usize = 12;

pub enum Picture {
    Lines(LinePlot),
    Map(Heatmap),
}

/// Width and height of every picture: on a slide their letters are of one size.
const SIZE: (f64, f64) = (760.0, 480.0);

impl Picture {
    pub fn svg(self) -> String {
        match self {
            Self::Lines(plot) => LinePlot {
                size: Some(SIZE),
                ..plot
            }
            .to_svg(),
            Self::Map(map) => Heatmap {
                size: Some(SIZE),
                ..map
            }
            .to_svg(),
        }
    }

    /// One of two figures of one canvas: its title becomes the small line above the axes.
    pub fn panel(self, title: &str) -> String {
        let (size, title, subtitle) = (Some(PANEL), String::new(), title.to_owned());
        match self {
            Self::Lines(plot) => LinePlot {
                size,
                title,
                subtitle,
                ..plot
            }
            .to_svg(),
            Self::Map(map) => Heatmap {
                size,
                title,
                subtitle,
                ..map
            }
            .to_svg(),
        }
    }
}

pub struct Drawing<'a> {
    pub subject: &'a Subject,
    pub numbers: &'a Numbers,
    pub command: &'a str,
    pub name: String,
    pub device: &'a Device,
}

/// Shortens `text` to at most `most` characters by dropping whole words at its end.
fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let cut: String = text.chars().take(most - 4).collect();
    let whole = cut.rsplit_once(' ').map_or("", |(whole, _)| whole);
    format!("{} ...", whole.trim_end_matches([',', ';', '=', '{', ' ']))
}

impl Drawing<'_> {
    pub fn title(&self, what: &str) -> String {
        let name = experiment::spec::NAMES.kind(self.numbers.kind);
        let name = if name.is_empty() {
            self.numbers.kind
        } else {
            &name
        };
        format!("{name}: {what}")
    }

    pub fn subtitle(&self, more: &str) -> String {
        let (command, lengths) = (
            short(self.command, if more.is_empty() { 60 } else { 36 }),
            &self.subject.lengths,
        );
        let more = if more.is_empty() {
            String::new()
        } else {
            format!("; {more}")
        };
        format!(
            "{command}; train_len {}, seq_len {}{more}",
            lengths.train_len, lengths.test_len
        )
    }

    /// A heat map, whose width is that of its title at least: what is too long for a second line is
    /// cut off there.
    pub fn map(
        &self,
        title: &str,
        note: &str,
        labels: [&str; 3],
        values: Vec<Vec<f64>>,
    ) -> Picture {
        let title = self.title(title);
        let subtitle = if note.is_empty() {
            self.command.to_owned()
        } else {
            format!("{note}; {}", self.command)
        };
        let [x_label, y_label, value_label] = labels.map(str::to_owned);
        let subtitle = short(&subtitle, title.chars().count() * 5 / 4);
        Picture::Map(Heatmap {
            title,
            subtitle,
            x_label,
            y_label,
            value_label,
            values,
            gap_label: "hidden".to_owned(),
            ..Default::default()
        })
    }

    /// The line without scaling, and the one with it where they differ.
    pub fn both(
        &self,
        rotary: &Rotary,
        plain: Vec<(f64, f64)>,
        scaled: Vec<(f64, f64)>,
    ) -> Vec<Series> {
        let line = |name: String, points, style| Series {
            name,
            points,
            band: Vec::new(),
            style,
            ..Series::default()
        };
        if rotary.inv_freq == rotary.plain_inv_freq {
            return vec![line(format!("base {}", self.base()), plain, 0)];
        }
        vec![
            line(format!("base {}, plain", self.base()), plain, 0),
            line(self.scaling_name(), scaled, 1),
        ]
    }

    pub fn base(&self) -> String {
        self.numbers
            .config
            .get("base")
            .and_then(serde_json::Value::as_f64)
            .map_or_else(String::new, number)
    }

    pub fn scaling_factor(&self) -> Option<f64> {
        self.numbers.config.get("scaling")?.get("factor")?.as_f64()
    }

    pub fn scaling_name(&self) -> String {
        let kind = self
            .numbers
            .config
            .get("scaling")
            .and_then(|scaling| scaling.get("kind"))
            .and_then(serde_json::Value::as_str);
        let factor = self
            .scaling_factor()
            .map_or_else(String::new, |factor| format!(", factor {}", number(factor)));
        let kind = kind.map_or("scaled".to_owned(), |kind| {
            experiment::spec::NAMES.kind(kind)
        });
        format!("{kind}{factor}")
    }

    pub fn drawn(&self) -> &'static str {
        if self.numbers.facts.parameters.is_empty() {
            ""
        } else {
            "initial draw of seed 0"
        }
    }

    /// Whole positions from 0, of those that the encoding has.
    pub fn first_positions(&self) -> Vec<f64> {
        let count = self
            .subject
            .facts()
            .max_position_without_axes()
            .unwrap_or(CELLS)
            .clamp(1, CELLS);
        (0..count).map(|p| p as f64).collect()
    }
}
