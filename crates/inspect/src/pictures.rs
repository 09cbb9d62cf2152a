//! Pictures of an encoding, as SVG.

use crate::digits::number;
use crate::drawing::{CELLS, Drawing, LINES, LONGEST, POINTS, Picture};
use crate::numbers::Numbers;
use crate::subject::{Subject, dot};
use burn::tensor::Device;
use posenc::Encoding;
use report::plot::{LinePlot, Series};
use std::path::Path;
use support::exit::Failure;

/// Draws everything there is to see into `directory`; `command` is the second line of every figure.
/// Returns the files written.
///
/// # Errors
///
/// [`Exit::Resources`](support::exit::Exit::Resources) if the directory cannot be made or written.
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
    let svg = |(name, picture): (String, Picture)| (format!("{name}.svg"), picture.svg());
    let files: Vec<(String, String)> = pictures.into_iter().map(svg).collect();
    // All pictures are drawn by now: one that cannot be drawn leaves no files.
    let disk = rundir::system();
    disk.create_dirs(directory)?;
    // Scratch files of dead runs.
    disk.remove_abandoned(directory);
    let write = |(name, svg): (String, String)| {
        let path = directory.join(name);
        disk.write_whole(&path, svg.as_bytes())?;
        Ok(path.display().to_string())
    };
    files.into_iter().map(write).collect()
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

    /// Logits by distance of equal tokens: what attention makes of the encoding.
    fn response(&self) -> Picture {
        let response = &self.numbers.response;
        // Every `step`th head is drawn: more than LINES lines cannot be distinguished.
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
            ..Series::default()
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
        let values = heads.into_iter().next().unwrap_or_default();
        let labels = ["key position", "query position", "logit"];
        Ok(self.map(
            "logits of equal tokens, head 0",
            "before any mask",
            labels,
            values,
        ))
    }

    pub fn bias_by_distance(&self, encoding: &Encoding) -> Result<Picture, Failure> {
        let lengths = &self.subject.lengths;
        let length = lengths
            .test_len
            .max(256)
            .min(
                self.subject
                    .facts()
                    .max_position_without_axes()
                    .unwrap_or(LONGEST),
            )
            .clamp(1, LONGEST);
        let distances: Vec<f64> = (0..length)
            .step_by(length.div_ceil(POINTS))
            .map(|d| d as f64)
            .collect();
        // One query at the end and keys backwards from it: each distance has one key.
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
            ..Series::default()
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

    pub fn bias_of_head(&self, encoding: &Encoding) -> Result<Picture, Failure> {
        let positions = self.first_positions();
        let heads = self
            .subject
            .bias(encoding, &positions, &positions, self.device)?
            .unwrap_or_default();
        let head = heads.into_iter().next().unwrap_or_default();
        let values = head
            .iter()
            .map(|row| row.iter().map(|v| f64::from(*v)).collect())
            .collect();
        let labels = ["key position", "query position", "bias"];
        Ok(self.map(
            "bias on the logits of head 0",
            "before any mask",
            labels,
            values,
        ))
    }

    pub fn table(&self, rows: &[Vec<f32>]) -> Picture {
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

    pub fn products(&self, rows: &[Vec<f32>]) -> Picture {
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
}
