//! What a choice of `[select]` says: the values chosen, the scores behind them, and whether a value
//! is the smallest or largest tried.

use crate::metric;
use crate::record::{Candidate, Label, RunRecord, Selected};
use std::cmp::Ordering;

impl Candidate {
    /// The mean score over its seeds; none if one of its runs has no score. Rounded to 13
    /// digits, so that the same scores in another order have the same mean.
    pub fn mean(&self) -> Option<f64> {
        let all: Option<Vec<f64>> = self.scores.iter().copied().collect();
        let all = all.filter(|all| !all.is_empty())?;
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        format!("{mean:.12e}").parse().ok()
    }

    /// `train.lr = 0.003, train.warmup_steps = 100`.
    pub fn text(&self) -> String {
        let values = self.values.iter();
        let values: Vec<String> = values
            .map(|Label { key, text, .. }| format!("{key} = {text}"))
            .collect();
        values.join(", ")
    }
}

impl Selected {
    /// What was chosen.
    pub fn chosen(&self) -> Option<&Candidate> {
        self.candidates.get(self.chosen)
    }

    /// The best of the others, and those whose scores equal its own: a record does not hold the
    /// losses that would order them.
    pub fn next(&self) -> Vec<&Candidate> {
        let others = self.candidates.iter().enumerate();
        let others = others.filter(|(index, _)| *index != self.chosen);
        let scored = others.filter_map(|(_, other)| Some((other, other.mean()?)));
        let scored: Vec<(&Candidate, f64)> = scored.collect();
        let order = |a: f64, b: f64| metric::better_first(&self.by, a, b);
        let best = scored
            .iter()
            .map(|(_, mean)| *mean)
            .min_by(|a, b| order(*a, *b));
        let is_best = |mean: f64| best.is_some_and(|best| order(mean, best) == Ordering::Equal);
        let best = scored.into_iter().filter(|(_, mean)| is_best(*mean));
        best.map(|(candidate, _)| candidate).collect()
    }

    /// The keys whose chosen value is the smallest or the largest number of those that were tried:
    /// a better one may lie beyond. None where nothing had a score.
    pub fn at_edge(&self) -> Vec<&str> {
        let Some(chosen) = self.chosen().filter(|chosen| chosen.mean().is_some()) else {
            return Vec::new();
        };
        let number = |candidate: &Candidate, at: usize| candidate.values.get(at)?.value.as_f64();
        let is_at_edge = |at: usize, _: &&Label| {
            let tried = self.candidates.iter().map(|other| number(other, at));
            // Other values than numbers are in no order.
            let tried: Option<Vec<f64>> = tried.collect();
            let Some((tried, own)) = tried.zip(number(chosen, at)) else {
                return false;
            };
            let is_inside = |ordering| tried.iter().any(|other| other.total_cmp(&own) == ordering);
            // Of one value there is no edge: the key was not chosen.
            is_inside(Ordering::Less) != is_inside(Ordering::Greater)
        };
        let labels = chosen.values.iter().enumerate();
        let labels = labels.filter(|(at, label)| is_at_edge(*at, label));
        labels.map(|(_, label)| label.key.as_str()).collect()
    }

    /// The candidates from best to worst; those without a score last, in the order of the config.
    pub fn ranked(&self) -> Vec<&Candidate> {
        let mut ranked: Vec<&Candidate> = self.candidates.iter().collect();
        ranked.sort_by(|a, b| match (a.mean(), b.mean()) {
            (Some(a), Some(b)) => metric::better_first(&self.by, a, b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        });
        ranked
    }

    /// Checks what the types do not.
    pub fn check(&self) -> Result<(), String> {
        let fits = |candidate: &Candidate| {
            candidate.scores.len() == self.seeds.len() && candidate.runs.len() == self.seeds.len()
        };
        if self.chosen >= self.candidates.len() {
            return Err("selected: the chosen candidate is not there".to_owned());
        }
        if !self.candidates.iter().all(fits) {
            return Err("selected: a candidate has not one run and score for each seed".to_owned());
        }
        Ok(())
    }
}

impl RunRecord {
    /// Whether this is a run of a sweep that values are chosen by: it is scored on rows that no
    /// result is scored on.
    pub fn is_of_sweep(&self) -> bool {
        let rows = self.spec.get("eval").and_then(|eval| eval.get("rows"));
        rows.is_some_and(|rows| rows == "selection")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(by: &str, scores: &[&[Option<f64>]], chosen: usize) -> Selected {
        let candidate = |(at, scores): (usize, &&[Option<f64>])| Candidate {
            values: vec![Label {
                key: "train.lr".into(),
                text: at.to_string(),
                value: at.into(),
            }],
            runs: vec!["ab".into(); scores.len()],
            scores: scores.to_vec(),
        };
        Selected {
            by: by.into(),
            test_len: 8,
            steps: 10,
            seeds: vec![100, 101],
            candidates: scores.iter().enumerate().map(candidate).collect(),
            chosen,
        }
    }

    #[test]
    fn the_next_best_has_scores_of_all_seeds() {
        let scores: [&[Option<f64>]; 4] = [
            &[Some(2.0), Some(2.2)],
            &[Some(1.0), Some(1.2)],
            &[Some(1.1), None],
            &[Some(1.5), Some(1.5)],
        ];
        let losses = selected("loss_nats", &scores, 1);
        let texts = |candidates: &[&Candidate]| -> Vec<String> {
            candidates
                .iter()
                .map(|candidate| candidate.text())
                .collect()
        };
        assert_eq!(texts(&losses.next()), ["train.lr = 3"]);
        let tied = [
            &[Some(0.5), Some(0.5)],
            &[Some(0.0), Some(0.0)],
            &[Some(0.0), Some(0.0)],
        ];
        let tied = tied.map(|scores| &scores[..]);
        let tied = selected("exact_match", &tied, 0);
        assert_eq!(texts(&tied.next()), ["train.lr = 1", "train.lr = 2"]);
        let ranked = [
            "train.lr = 1",
            "train.lr = 3",
            "train.lr = 0",
            "train.lr = 2",
        ];
        assert_eq!(texts(&losses.ranked()), ranked);
        let shares = selected("exact_match", &scores[..2], 0);
        assert_eq!(texts(&shares.ranked()), ["train.lr = 0", "train.lr = 1"]);
    }

    #[test]
    fn the_smallest_and_the_largest_number_are_edges() {
        let scores: [&[Option<f64>]; 3] = [&[Some(1.0), Some(1.0)]; 3];
        let edge = |chosen| selected("loss_nats", &scores, chosen).at_edge().len();
        assert_eq!([edge(0), edge(1), edge(2)], [1, 0, 1]);
        // Whatever their order in the list is.
        let edge = |values: [serde_json::Value; 3], chosen| {
            let mut all = selected("loss_nats", &scores, chosen);
            for (candidate, value) in all.candidates.iter_mut().zip(values) {
                candidate.values[0].value = value;
            }
            all.at_edge().len()
        };
        let rates = || [1e-4, 3e-2, 1e-3].map(serde_json::Value::from);
        assert_eq!([0, 1, 2].map(|chosen| edge(rates(), chosen)), [1, 1, 0]);
        let words = || ["a", "b", "c"].map(serde_json::Value::from);
        assert_eq!([0, 1, 2].map(|chosen| edge(words(), chosen)), [0; 3]);
        let same = || [1, 1, 1].map(serde_json::Value::from);
        assert_eq!(edge(same(), 0), 0);
        // Nothing was chosen by a score.
        let none: [&[Option<f64>]; 2] = [&[None, None]; 2];
        assert!(selected("loss_nats", &none, 0).at_edge().is_empty());
        assert!(selected("loss_nats", &scores, 3).check().is_err());
        assert!(selected("loss_nats", &scores, 2).check().is_ok());
    }
    #[test]
    fn the_order_of_seeds_does_not_change_a_mean() {
        let mean = |scores: [f64; 3]| {
            let scores = scores.map(Some);
            selected("exact_match", &[&scores], 0).candidates[0].mean()
        };
        assert_eq!(mean([0.1, 0.2, 0.3]), mean([0.3, 0.2, 0.1]));
        assert_eq!(mean([0.1, 0.2, 0.3]), Some(0.2));
    }
}
