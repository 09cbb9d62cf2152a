//! Pictures of an encoding, each as SVG and PNG.

use crate::commands::inspect::numbers::{self, Decay, Numbers, Rotary, Side, Subject, dot};
use crate::commands::inspect::text::number;
use crate::exit::{Exit, Failure};
use burn::tensor::Device;
use posenc::{Encoding, Lengths};
use results::plot::{Heatmap, LinePlot, PlotError, Series};
use std::path::Path;

/// Side of a heat map: as many cells as are drawn without averaging.
const CELLS: usize = 128;
/// Points of a line.
const POINTS: usize = 512;
/// Longest sequence a bias is drawn for.
const LONGEST: usize = 1 << 24;
/// Most lines of one figure.
const LINES: usize = 12;

enum Picture {
    Lines(LinePlot),
    Map(Heatmap),
}

impl Picture {
    fn svg(&self) -> String {
        match self {
            Self::Lines(plot) => plot.to_svg(),
            Self::Map(map) => map.to_svg(),
        }
    }

    fn png(&self) -> Result<Vec<u8>, PlotError> {
        match self {
            Self::Lines(plot) => plot.to_png(),
            Self::Map(map) => map.to_png(),
        }
    }
}

/// Draws everything there is to see into `directory`; `command` is the second line of every figure.
/// Returns the files written.
///
/// # Errors
///
/// [`Exit::Resources`] if the directory cannot be made or written.
pub fn write(
    subject: &Subject,
    numbers: &Numbers,
    command: &str,
    directory: &Path,
    device: &Device,
) -> Result<Vec<String>, Failure> {
    let mut pictures = Vec::new();
    Drawing {
        subject,
        numbers,
        command,
        name: numbers.kind.to_owned(),
        device,
    }
    .all(&mut pictures)?;
    let mut files = Vec::new();
    for (name, picture) in &pictures {
        let png = picture
            .png()
            .map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
        files.push((format!("{name}.svg"), picture.svg().into_bytes()));
        files.push((format!("{name}.png"), png));
    }
    let help = "give --out a directory that can be written";
    fs_err::create_dir_all(directory)
        .map_err(|error| Failure::resources(format!("{error}\n  = help: {help}")))?;
    let write = |(name, bytes): (String, Vec<u8>)| {
        let path = directory.join(name);
        rundir::system()
            .write_whole(&path, &bytes)
            .map_err(|error| Failure::resources(format!("{error}\n  = help: {help}")))?;
        Ok(path.display().to_string())
    };
    files.into_iter().map(write).collect()
}

/// One picture alone; see [`Numbers::response`].
pub fn response_svg(
    subject: &Subject,
    numbers: &Numbers,
    command: &str,
    device: &Device,
) -> String {
    Drawing {
        subject,
        numbers,
        command,
        name: numbers.kind.to_owned(),
        device,
    }
    .response()
    .svg()
}

struct Drawing<'a> {
    subject: &'a Subject,
    numbers: &'a Numbers,
    command: &'a str,
    name: String,
    device: &'a Device,
}

impl Drawing<'_> {
    fn all(&self, out: &mut Vec<(String, Picture)>) -> Result<(), Failure> {
        let encoding = self.subject.encoding(self.device)?;
        let mut add = |name: &str, picture| out.push((format!("{}-{name}", self.name), picture));
        if let Some(rotary) = &self.numbers.rotary {
            add("spectrum", self.spectrum(rotary));
            if rotary.inv_freq != rotary.plain_inv_freq {
                add("scaling", self.scaling(rotary));
            }
            add("decay", self.decay(rotary));
        }
        if self.subject.only_rotates() {
            add("similarity", self.turned(&encoding)?);
        }
        add("response", self.response());
        add("logits", self.logits(&encoding)?);
        // The sum of one part is that part's own picture.
        let sums = |of: fn(&Numbers) -> bool| {
            of(self.numbers) && self.numbers.parts.iter().filter(|part| of(part)).count() != 1
        };
        if sums(|numbers| numbers.logits_bias.is_some()) {
            add("bias", self.bias_by_distance(&encoding)?);
            add("bias-head0", self.bias_of_head(&encoding)?);
        }
        if sums(|numbers| numbers.embedding.is_some()) {
            let rows = self
                .subject
                .embedding(&encoding, &self.first_positions(), self.device)?
                .unwrap_or_default();
            add("table", self.table(&rows));
            add("similarity", self.products(&rows));
        }
        for (index, (subject, numbers)) in self
            .subject
            .parts()
            .iter()
            .zip(&self.numbers.parts)
            .enumerate()
        {
            let name = format!("{}-{index}-{}", self.name, numbers.kind);
            Drawing {
                subject,
                numbers,
                command: self.command,
                name,
                device: self.device,
            }
            .all(out)?;
        }
        Ok(())
    }

    fn title(&self, what: &str) -> String {
        format!("{}: {what}", self.numbers.kind)
    }

    fn subtitle(&self, more: &str) -> String {
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
    fn map(&self, title: &str, note: &str, labels: [&str; 3], values: Vec<Vec<f64>>) -> Picture {
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
            ..Default::default()
        })
    }

    /// The line without scaling, and the one with it where they differ.
    fn both(
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
        };
        if rotary.inv_freq == rotary.plain_inv_freq {
            return vec![line(format!("base {}", self.base()), plain, 0)];
        }
        vec![
            line(format!("base {}, plain", self.base()), plain, 0),
            line(self.scaling_name(), scaled, 1),
        ]
    }

    fn base(&self) -> String {
        self.numbers
            .config
            .get("base")
            .and_then(serde_json::Value::as_f64)
            .map_or_else(String::new, number)
    }

    fn scaling_factor(&self) -> Option<f64> {
        self.numbers.config.get("scaling")?.get("factor")?.as_f64()
    }

    fn scaling_name(&self) -> String {
        let kind = self
            .numbers
            .config
            .get("scaling")
            .and_then(|scaling| scaling.get("kind"))
            .and_then(serde_json::Value::as_str);
        let factor = self
            .scaling_factor()
            .map_or_else(String::new, |factor| format!(", factor {}", number(factor)));
        format!("{}{factor}", kind.unwrap_or("scaled"))
    }

    fn spectrum(&self, rotary: &Rotary) -> Picture {
        let points = |inv_freq: &[f64]| {
            inv_freq
                .iter()
                .enumerate()
                .map(|(i, f)| (i as f64, std::f64::consts::TAU / f))
                .collect()
        };
        let train_len = self.subject.lengths.train_len;
        Picture::Lines(LinePlot {
            title: self.title("wavelength of each pair"),
            subtitle: self.subtitle(""),
            x_label: "pair of dimensions, fastest first".into(),
            y_label: "tokens per turn".into(),
            log_y: true,
            series: self.both(
                rotary,
                points(&rotary.plain_inv_freq),
                points(&rotary.inv_freq),
            ),
            reference_y: Some((train_len as f64, format!("train_len {train_len}"))),
            mark_points: rotary.inv_freq.len() <= 64,
            ..Default::default()
        })
    }

    fn scaling(&self, rotary: &Rotary) -> Picture {
        let ratios = rotary
            .inv_freq
            .iter()
            .zip(&rotary.plain_inv_freq)
            .enumerate()
            .map(|(i, (scaled, plain))| (i as f64, scaled / plain));
        let reference_y = self
            .scaling_factor()
            .filter(|s| *s > 1.0)
            .map(|s| (1.0 / s, String::new()));
        let dotted = reference_y.as_ref().map_or_else(String::new, |(at, _)| {
            format!("; dotted: 1/factor = {}", number(*at))
        });
        let Lengths {
            train_len,
            test_len,
        } = self.subject.lengths;
        Picture::Lines(LinePlot {
            title: self.title("what the scaling does to each pair"),
            subtitle: format!(
                "train_len {train_len}, seq_len {test_len}; attention factor {}{dotted}",
                number(rotary.attention_factor)
            ),
            x_label: "pair of dimensions, fastest first".into(),
            y_label: "scaled frequency / plain frequency".into(),
            y_range: Some((0.0, 1.0)),
            series: vec![Series {
                name: self.scaling_name(),
                points: ratios.collect(),
                band: Vec::new(),
                style: 1,
            }],
            reference_y,
            mark_points: rotary.inv_freq.len() <= 64,
            ..Default::default()
        })
    }

    fn decay(&self, rotary: &Rotary) -> Picture {
        let Lengths {
            train_len,
            test_len: seq_len,
        } = self.subject.lengths;
        let curves = [&rotary.plain_inv_freq, &rotary.inv_freq]
            .map(|inv_freq| numbers::decay(inv_freq, seq_len));
        let window = |decay: &Decay| {
            if decay.distance.len() > POINTS {
                decay.distance.len().div_ceil(POINTS / 2)
            } else {
                1
            }
        };
        let points = |decay: &Decay| {
            windows(decay, window(decay))
                .map(|(x, y, _)| (x, y))
                .collect()
        };
        let [plain, scaled] = &curves;
        let mut series = self.both(rotary, points(plain), points(scaled));
        let last = curves.len() - series.len();
        if window(plain) > 1 {
            for (line, decay) in series.iter_mut().zip(&curves[last.min(1)..]) {
                line.band = windows(decay, window(decay))
                    .map(|(.., band)| Some(band))
                    .collect();
            }
        }
        let tokens = plain.distance.get(window(plain)).copied().unwrap_or(1);
        let more = if window(plain) > 1 {
            format!("mean and range of every {tokens} tokens")
        } else {
            String::new()
        };
        Picture::Lines(LinePlot {
            title: self.title("long-range decay of the bound on q.k"),
            subtitle: self.subtitle(&more),
            x_label: "distance in tokens".into(),
            y_label: "mean over j of |sum over i < j of exp(i distance theta_i)|".into(),
            // No sum of j unit vectors is longer than j: the mean starts at the top.
            y_range: Some((0.0, (rotary.inv_freq.len() + 1) as f64 / 2.0)),
            series,
            reference_x: (train_len < seq_len)
                .then(|| (train_len as f64, format!("train_len {train_len}"))),
            ..Default::default()
        })
    }

    /// Dot products of one vector turned to every pair of positions, by the hooks.
    fn turned(&self, encoding: &Encoding) -> Result<Picture, Failure> {
        let head_dim = self.subject.shape.head_dim;
        let positions = self.first_positions();
        let ones = vec![(1.0 / head_dim as f64).sqrt() as f32; positions.len() * head_dim];
        let top = (self.subject.lengths.test_len as f64 - 1.0)
            .max(positions.last().copied().unwrap_or(0.0));
        let q = self
            .subject
            .turn(encoding, Side::Query, &ones, &positions, top, self.device)?;
        let k = self
            .subject
            .turn(encoding, Side::Key, &ones, &positions, top, self.device)?;
        let values = q
            .chunks(head_dim)
            .map(|q| k.chunks(head_dim).map(|k| dot(q, k)).collect())
            .collect();
        let labels = ["key position", "query position", "q.k"];
        Ok(self.map(
            "dot products of one vector at two positions",
            "q = k = (1, ..., 1)/sqrt(head_dim)",
            labels,
            values,
        ))
    }

    /// Logits by distance of equal tokens: what attention makes of the encoding.
    pub fn response(&self) -> Picture {
        let response = &self.numbers.response;
        let step = response.logits.len().div_ceil(LINES).max(1);
        let line = |(h, logits): (usize, &Vec<Option<f64>>)| Series {
            name: format!("head {h}"),
            points: response
                .distance
                .iter()
                .zip(logits)
                .filter_map(|(d, logit)| Some((*d as f64, (*logit)?)))
                .collect(),
            band: Vec::new(),
            style: h / step,
        };
        let train_len = self.subject.lengths.train_len;
        Picture::Lines(LinePlot {
            title: self.title("logits of equal tokens by distance"),
            subtitle: self.subtitle(self.drawn()),
            x_label: "distance in tokens".into(),
            y_label: "logit, mean over random inputs".into(),
            series: response
                .logits
                .iter()
                .enumerate()
                .step_by(step)
                .map(line)
                .collect(),
            reference_x: (train_len < response.distance.len())
                .then(|| (train_len as f64, format!("train_len {train_len}"))),
            ..Default::default()
        })
    }

    fn logits(&self, encoding: &Encoding) -> Result<Picture, Failure> {
        let heads = self
            .subject
            .logits(encoding, self.subject.reach(CELLS), self.device)?;
        let head = heads.into_iter().next().unwrap_or_default();
        let (values, note) = shown(head);
        let labels = ["key position", "query position", "logit"];
        Ok(self.map(
            "logits of equal tokens, head 0",
            &format!("before any mask{note}"),
            labels,
            values,
        ))
    }

    /// Whole positions from 0, of those that the encoding has.
    fn first_positions(&self) -> Vec<f64> {
        let count = self
            .subject
            .facts()
            .max_position
            .unwrap_or(CELLS)
            .clamp(1, CELLS);
        (0..count).map(|p| p as f64).collect()
    }

    fn bias_by_distance(&self, encoding: &Encoding) -> Result<Picture, Failure> {
        let lengths = &self.subject.lengths;
        let length = lengths
            .test_len
            .max(256)
            .min(self.subject.facts().max_position.unwrap_or(LONGEST))
            .clamp(1, LONGEST);
        let distances: Vec<f64> = (0..length)
            .step_by(length.div_ceil(POINTS))
            .map(|d| d as f64)
            .collect();
        let query = length as f64 - 1.0;
        let keys: Vec<f64> = distances.iter().map(|distance| query - distance).collect();
        let heads = self
            .subject
            .bias(encoding, &[query], &keys, self.device)?
            .unwrap_or_default();
        let step = heads.len().div_ceil(LINES).max(1);
        let name = |h: usize| match self
            .numbers
            .slopes
            .as_ref()
            .and_then(|slopes| slopes.get(h))
        {
            Some(slope) => format!("head {h}, slope {}", number(*slope)),
            None => format!("head {h}"),
        };
        let line = |(h, rows): (usize, &Vec<Vec<f32>>)| Series {
            name: name(h),
            points: distances
                .iter()
                .copied()
                .zip(rows.iter().flatten().map(|v| f64::from(*v)))
                .filter(|(_, bias)| bias.is_finite())
                .collect(),
            band: Vec::new(),
            style: h / step,
        };
        let some = if step > 1 {
            format!("every {step}th of {} heads", heads.len())
        } else {
            String::new()
        };
        let train_len = lengths.train_len;
        Ok(Picture::Lines(LinePlot {
            title: self.title("bias on the logits by distance"),
            subtitle: self.subtitle(&some),
            x_label: "distance in tokens".into(),
            y_label: "bias".into(),
            series: heads.iter().enumerate().step_by(step).map(line).collect(),
            reference_x: (train_len < length)
                .then(|| (train_len as f64, format!("train_len {train_len}"))),
            ..Default::default()
        }))
    }

    fn bias_of_head(&self, encoding: &Encoding) -> Result<Picture, Failure> {
        let positions = self.first_positions();
        let heads = self
            .subject
            .bias(encoding, &positions, &positions, self.device)?
            .unwrap_or_default();
        let head = heads.into_iter().next().unwrap_or_default();
        let (values, note) = shown(
            head.iter()
                .map(|row| row.iter().map(|v| f64::from(*v)).collect())
                .collect(),
        );
        let labels = ["key position", "query position", "bias"];
        Ok(self.map(
            "bias on the logits of head 0",
            &format!("before any mask{note}"),
            labels,
            values,
        ))
    }

    fn table(&self, rows: &[Vec<f32>]) -> Picture {
        let d_model = self.subject.shape.d_model;
        // Averaging sines with cosines would show what the table does not hold.
        let shown = if d_model > CELLS {
            format!("dimension, the first {CELLS} of {d_model}")
        } else {
            "dimension".into()
        };
        // A narrow table in full height would be a thread.
        let rows = rows.iter().take(4 * d_model.max(8));
        let values = rows
            .map(|row| row.iter().take(CELLS).map(|v| f64::from(*v)).collect())
            .collect();
        self.map(
            "what is added to the input",
            self.drawn(),
            [&shown, "position", "value"],
            values,
        )
    }

    fn products(&self, rows: &[Vec<f32>]) -> Picture {
        let values = rows
            .iter()
            .map(|a| rows.iter().map(|b| dot(a, b)).collect())
            .collect();
        let labels = ["position", "position", "dot product"];
        self.map(
            "dot products of the vectors of two positions",
            self.drawn(),
            labels,
            values,
        )
    }

    fn drawn(&self) -> &'static str {
        if self.numbers.facts.parameters.is_empty() {
            ""
        } else {
            "initial draw of seed 0"
        }
    }
}

/// A matrix that can be drawn, and what to say of it: hidden cells, which are -infinity, as a
/// colour below every other.
fn shown(mut rows: Vec<Vec<f64>>) -> (Vec<Vec<f64>>, &'static str) {
    let (low, high) = rows
        .iter()
        .flatten()
        .filter(|v| v.is_finite())
        .fold((f64::MAX, f64::MIN), |(low, high), v| {
            (low.min(*v), high.max(*v))
        });
    let mut hidden = false;
    for cell in rows.iter_mut().flatten().filter(|v| !v.is_finite()) {
        *cell = low - (high - low).max(1.0);
        hidden = true;
    }
    (rows, if hidden { "; darkest: hidden" } else { "" })
}

/// Distance, mean, and smallest and largest value of each window of the curve.
fn windows(decay: &Decay, size: usize) -> impl Iterator<Item = (f64, f64, (f64, f64))> {
    decay
        .distance
        .chunks(size)
        .zip(decay.value.chunks(size))
        .map(|(distances, values)| {
            let mean = |sum: f64| sum / values.len() as f64;
            let ends = values
                .iter()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
                    (low.min(*v), high.max(*v))
                });
            (
                mean(distances.iter().map(|d| *d as f64).sum()),
                mean(values.iter().sum()),
                ends,
            )
        })
}

fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        text.to_owned()
    } else {
        text.chars().take(most - 3).chain("...".chars()).collect()
    }
}
