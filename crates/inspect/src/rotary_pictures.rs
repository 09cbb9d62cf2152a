//! Pictures of rotary encodings: frequencies, scaling, decay and dot products.

use crate::digits::number;
use crate::drawing::{Drawing, POINTS, Picture};
use crate::numbers::{self, Rotary};
use crate::subject::{Side, dot};
use posenc::{Encoding, Lengths};
use report::plot::{LinePlot, Series};
use support::exit::Failure;

impl Drawing<'_> {
    pub fn spectrum(&self, rotary: &Rotary) -> Picture {
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

    pub fn scaling(&self, rotary: &Rotary) -> Picture {
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
            ..
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
                ..Series::default()
            }],
            reference_y,
            mark_points: rotary.inv_freq.len() <= 64,
            ..Default::default()
        })
    }

    pub fn decay(&self, rotary: &Rotary) -> Picture {
        let Lengths {
            train_len,
            test_len: seq_len,
            ..
        } = self.subject.lengths;
        let length = seq_len.max(256);
        let every = length.div_ceil(POINTS / 2);
        let is_scaled = rotary.inv_freq != rotary.plain_inv_freq;
        let names = self.both(rotary, Vec::new(), Vec::new());
        let mut series = Vec::new();
        for (of, line) in [&rotary.plain_inv_freq, &rotary.inv_freq].iter().zip(names) {
            let numbers::Scores {
                score,
                smooth,
                bound,
            } = numbers::scores(of, length);
            let curves = [("score", score), ("mean score", smooth), ("bound", bound)];
            for (what, values) in curves {
                let windows = windows(&values, every);
                let ends = windows.iter().map(|w| Some(w.2));
                series.push(Series {
                    name: match is_scaled {
                        true => format!("{what}, {}", line.name),
                        false => what.to_owned(),
                    },
                    points: windows.iter().map(|w| (w.0, w.1)).collect(),
                    band: if every > 1 {
                        ends.collect()
                    } else {
                        Vec::new()
                    },
                    style: series.len(),
                    ..Series::default()
                });
            }
        }
        let more = match every {
            1 => String::new(),
            every => format!("mean and range of every {every} tokens"),
        };
        Picture::Lines(LinePlot {
            title: self.title("score of two equal vectors, its mean and its bound"),
            subtitle: self.subtitle(&more),
            x_label: "distance in tokens".into(),
            y_label: "score; 1 at distance 0".into(),
            y_range: Some((0.0, 1.0)),
            series,
            reference_x: (train_len < length)
                .then(|| (train_len as f64, format!("train_len {train_len}"))),
            ..Default::default()
        })
    }

    /// Dot products of one vector turned to every pair of positions, by the hooks.
    pub fn turned(&self, encoding: &Encoding) -> Result<Picture, Failure> {
        let head_dim = self.subject.shape.head_dim;
        let positions = self.first_positions();
        // A vector of length 1, the same at every position.
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
}

/// Distance, mean, and smallest and largest value of each window of a curve.
type Window = (f64, f64, (f64, f64));

fn windows(values: &[f64], size: usize) -> Vec<Window> {
    let each = values.chunks(size).enumerate().map(|(at, values)| {
        let count = values.len() as f64;
        let ends = values
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
                (low.min(*v), high.max(*v))
            });
        let middle = (at * size) as f64 + (count - 1.0) / 2.0;
        (middle, values.iter().sum::<f64>() / count, ends)
    });
    each.collect()
}
