//! The picture of a kind for the catalogue: two figures that show what is particular to it, one
//! drawing for each family. Which family follows from the hooks that a kind declares.

use crate::drawing::{Drawing, LINES, Picture};
use crate::numbers::{Rotary, scores};
use crate::subject::Text;
use posenc::{Encoding, Hooks};
use report::plot::{LinePlot, Series, side_by_side};
use support::exit::Failure;

/// Distances in units of the training length.
const TIMES: usize = 4;

impl Drawing<'_> {
    /// The picture.
    ///
    /// # Errors
    ///
    /// A bug: a hook gave a tensor that cannot be read.
    pub fn catalogue(&self) -> Result<String, Failure> {
        let encoding = self.subject.encoding(self.device)?;
        let hooks = self.subject.facts().hooks;
        let (what, panels) = match &self.numbers.rotary {
            Some(rotary) => self.of_rotation(rotary, &encoding)?,
            None if hooks.embed => self.of_table(&encoding)?,
            None if hooks == Hooks::LOGITS_BIAS => self.of_bias(&encoding)?,
            None => self.of_content(&encoding)?,
        };
        let drawn = self.drawn();
        let note = if drawn.is_empty() {
            String::new()
        } else {
            format!("; {drawn}")
        };
        let command = format!(
            "{}; train_len {}{note}",
            self.command, self.subject.lengths.train_len
        );
        Ok(side_by_side(&self.title(what), &command, panels))
    }

    /// Wavelengths beside the training length; the score by distance under its bound.
    fn of_rotation(
        &self,
        rotary: &Rotary,
        encoding: &Encoding,
    ) -> Result<(&'static str, [String; 2]), Failure> {
        let mut score = self.score(encoding)?;
        let length = score.series.iter().map(|s| s.points.len()).max();
        let of = scores(&rotary.inv_freq, length.unwrap_or(1));
        let curves = [
            ("mean of rotation", of.smooth),
            ("bound of rotation", of.bound),
        ];
        for (name, values) in curves {
            let style = score.series.len();
            let points = values.into_iter().enumerate();
            score.series.push(Series {
                name: name.to_owned(),
                points: points.map(|(d, value)| (d as f64, value)).collect(),
                style,
                ..Series::default()
            });
        }
        let panels = [
            self.spectrum(rotary)
                .panel("tokens that a pair of dimensions takes for one turn"),
            Picture::Lines(score).panel("score of two equal vectors by distance"),
        ];
        Ok(("how fast pairs turn, and what remains of a score", panels))
    }

    /// What is added, and how alike positions are by it.
    fn of_table(&self, encoding: &Encoding) -> Result<(&'static str, [String; 2]), Failure> {
        let positions = self.first_positions();
        let positions = &positions[..positions.len().min(self.subject.lengths.train_len)];
        let rows = self.subject.embedding(encoding, positions, self.device)?;
        let rows = rows.unwrap_or_default();
        let panels = [
            self.table(&rows)
                .panel("the vector that each position adds to its token"),
            self.products(&rows)
                .panel("dot products of the vectors of two positions"),
        ];
        Ok(("what is added, and how alike positions are", panels))
    }

    /// The bias of each head by distance, the distance on a logarithmic scale, and that of a head
    /// for every pair of positions.
    fn of_bias(&self, encoding: &Encoding) -> Result<(&'static str, [String; 2]), Failure> {
        let by_distance = match self.bias_by_distance(encoding)? {
            Picture::Lines(plot) => Picture::Lines(LinePlot {
                log_x: true,
                x_label: "distance in tokens (log scale)".into(),
                ..plot
            }),
            map => map,
        };
        let panels = [
            by_distance.panel("bias by distance, each head"),
            self.bias_of_head(encoding)?
                .panel("bias of head 0 for every pair, before any mask"),
        ];
        Ok(("what is added to the logits", panels))
    }

    /// The score of equal vectors by distance; and an example in which the text changes, less what
    /// its vectors score without the encoding.
    fn of_content(&self, encoding: &Encoding) -> Result<(&'static str, [String; 2]), Failure> {
        let length = self.subject.reach(self.subject.lengths.train_len);
        let heads = self
            .subject
            .logits_of(Text::Turn, encoding, length, self.device)?;
        let head = heads.into_iter().next().unwrap_or_default();
        let rows = head.into_iter().enumerate().map(|(query, row)| {
            let keys = row.into_iter().enumerate();
            keys.map(|(key, change)| if key > query { f64::NAN } else { change })
                .collect()
        });
        let labels = ["key position", "query position", "change"];
        let example = match self.map("", "", labels, rows.collect()) {
            Picture::Map(mut map) => {
                map.reference = Some((length - length / 2, "another token".to_owned()));
                Picture::Map(map)
            }
            lines => lines,
        };
        let panels = [
            Picture::Lines(self.score(encoding)?).panel("score of two equal vectors by distance"),
            example.panel("what it changes in the logits of head 0"),
        ];
        Ok((
            "a score by distance, and a text that changes in the middle",
            panels,
        ))
    }

    /// Logits by distance of equal tokens whose product is 1, one line for all heads where they are
    /// equal.
    fn score(&self, encoding: &Encoding) -> Result<LinePlot, Failure> {
        let train_len = self.subject.lengths.train_len;
        let length = self.subject.reach(TIMES * train_len);
        let heads = self
            .subject
            .logits_of(Text::Unit, encoding, length, self.device)?;
        // The row of the last query, from its own position back.
        let by_distance = |head: &Vec<Vec<f64>>| -> Vec<f64> {
            head.last()
                .map_or(Vec::new(), |row| row.iter().rev().copied().collect())
        };
        let mut lines: Vec<Vec<f64>> = heads.iter().map(by_distance).collect();
        let is_near = |a: &f64, b: &f64| a == b || (a - b).abs() < 1e-3;
        let is_one = |line: &Vec<f64>| line.iter().zip(&lines[0]).all(|(a, b)| is_near(a, b));
        let are_equal = lines.len() > 1 && lines.iter().all(is_one);
        lines.truncate(if are_equal { 1 } else { LINES });
        let series = lines.iter().enumerate().map(|(head, line)| {
            let points = line
                .iter()
                .enumerate()
                .filter(|(_, logit)| logit.is_finite());
            Series {
                name: match are_equal {
                    true => "score, every head".to_owned(),
                    false => format!("head {head}"),
                },
                points: points.map(|(d, logit)| (d as f64, *logit)).collect(),
                style: head,
                ..Series::default()
            }
        });
        Ok(LinePlot {
            x_label: "distance in tokens".into(),
            y_label: "logit; 1 without an encoding".into(),
            series: series.collect(),
            reference_x: (train_len < length)
                .then(|| (train_len as f64, format!("train_len {train_len}"))),
            ..LinePlot::default()
        })
    }
}
