//! Pictures of rotary encodings: frequencies, scaling, decay and dot products.

use crate::digits::number;
use crate::drawing::{Drawing, POINTS, Picture};
use crate::numbers::{self, Decay, Rotary};
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
