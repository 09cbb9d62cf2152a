//! Segments of a text, such as sentences and lines: coordinates for encodings that read them.
//!
//! A segment ends with a token that is named as an end, and the next token starts another one. A
//! window starts a segment, wherever it is cut. Axis 0 is the place of a token in its segment, axis
//! 1 the number of the segment in the window, both from 0. Source: BiPE, He et al. 2024 (arXiv
//! 2401.16421); the authors' code ends segments at the full stop and at the end of a line.

use crate::task::AxisFacts;
use schema::Invalid;
use std::collections::BTreeMap;

/// Which tokens end a segment, and what follows for windows.
pub(super) struct Segments {
    /// By id.
    ends: Vec<bool>,
    /// By length, for the lengths that are asked for often: finding them reads all tokens.
    facts: BTreeMap<usize, Vec<AxisFacts>>,
}

/// Ends of segments as they are written in the table.
#[derive(Clone, Copy)]
pub(super) struct Written<'a> {
    pub texts: &'a [String],
    pub ids: &'a [u32],
}

impl Segments {
    /// The tokens whose text ends with one of the texts that are written, or whose id is; `None`
    /// if nothing is written. `token` is the text of an id, where texts are known.
    pub fn new(
        written: Written<'_>,
        vocab_size: usize,
        token: impl Fn(usize) -> Vec<u8>,
    ) -> Result<Option<Self>, Invalid> {
        if written.texts.is_empty() && written.ids.is_empty() {
            return Ok(None);
        }
        let mut ends = vec![false; vocab_size];
        for (index, id) in written.ids.iter().enumerate() {
            let Some(end) = ends.get_mut(*id as usize) else {
                let key = format!("segment_end_ids.{index}");
                let problem = "is not a token";
                let allowed = schema::allowed(&(0..=vocab_size - 1));
                let hint = "ids count from 0 and end before `vocab`";
                return Err(Invalid::new(&key, id, problem, allowed, hint));
            };
            *end = true;
        }
        let tokens: Vec<Vec<u8>> = match written.texts {
            [] => Vec::new(),
            _ => (0..vocab_size).map(token).collect(),
        };
        for (index, text) in written.texts.iter().enumerate() {
            let matching = |token: &Vec<u8>| token.ends_with(text.as_bytes());
            let found = tokens.iter().enumerate();
            let found: Vec<usize> = found
                .filter(|(_, token)| matching(token))
                .map(|(id, _)| id)
                .collect();
            if found.is_empty() || text.is_empty() {
                let key = format!("segment_ends.{index}");
                let problem = "ends no token";
                let allowed = "the end of a token: a byte, or with level = \"chars\" a character \
                               of the training split";
                let hint = "write \".\" and \"\\n\" for sentences and lines";
                return Err(Invalid::new(
                    &key,
                    format!("{text:?}"),
                    problem,
                    allowed,
                    hint,
                ));
            }
            found.into_iter().for_each(|id| ends[id] = true);
        }
        let facts = BTreeMap::new();
        Ok(Some(Self { ends, facts }))
    }

    /// The same with what is known of windows of these lengths.
    pub fn measured<T: Copy + Into<i32>>(mut self, lengths: &[usize], splits: &[&[T]]) -> Self {
        let facts = lengths.iter();
        self.facts = facts
            .map(|length| (*length, self.measure(*length, splits)))
            .collect();
        self
    }

    /// Coordinates of the tokens of a row on both axes.
    pub fn axes(&self, row: &[i32]) -> Vec<Vec<f64>> {
        let (mut place, mut number) = (0.0, 0.0);
        let coordinates = row.iter().map(|id| {
            let here = (place, number);
            if self.ends[*id as usize] {
                (place, number) = (0.0, number + 1.0);
            } else {
                place += 1.0;
            }
            here
        });
        let (places, numbers) = coordinates.unzip();
        vec![places, numbers]
    }

    /// What is known of both axes in windows of this length over the tokens of `splits`.
    pub fn facts<T: Copy + Into<i32>>(&self, length: usize, splits: &[&[T]]) -> Vec<AxisFacts> {
        let known = self.facts.get(&length).cloned();
        known.unwrap_or_else(|| self.measure(length, splits))
    }

    fn measure<T: Copy + Into<i32>>(&self, length: usize, splits: &[&[T]]) -> Vec<AxisFacts> {
        let (mut longest, mut most) = (0, 0);
        for split in splits {
            let is_end = |token: &T| self.ends[(*token).into() as usize];
            let (mut place, mut number) = (0, 0);
            for (at, token) in split.iter().enumerate() {
                longest = longest.max(place);
                place = if is_end(token) { 0 } else { place + 1 };
                // The segment that the last token of a window belongs to started after the ends
                // among the tokens before it.
                most = most.max(number);
                number += usize::from(is_end(token));
                if at + 1 >= length {
                    number -= usize::from(is_end(&split[at + 1 - length]));
                }
            }
        }
        let of = |largest: usize, rises: bool| AxisFacts {
            largest: largest as f64,
            rises,
        };
        vec![
            of(longest.min(length.saturating_sub(1)), false),
            of(most, true),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Written<'static> = Written {
        texts: &[],
        ids: &[],
    };

    fn by_ids(ids: &[u32]) -> Segments {
        let written = Written { ids, ..NONE };
        Segments::new(written, 10, |_| Vec::new())
            .expect("ids of tokens")
            .expect("ids are given")
    }

    #[test]
    fn an_end_belongs_to_the_segment_that_it_ends() {
        let segments = by_ids(&[9, 8]);
        let axes = segments.axes(&[1, 2, 9, 3, 8, 9, 4]);
        assert_eq!(axes[0], [0.0, 1.0, 2.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(axes[1], [0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0]);
    }

    /// Numbers of the authors' function, which the file names.
    #[test]
    fn coordinates_are_those_of_the_authors() {
        #[derive(serde::Deserialize)]
        struct Golden {
            ends: Vec<u32>,
            rows: Vec<Vec<i32>>,
            places: Vec<Vec<f64>>,
            numbers: Vec<Vec<f64>>,
        }
        let text = include_str!("../../tests/golden/segments.json");
        let golden: Golden = serde_json::from_str(text).expect("golden numbers");
        let written = Written {
            ids: &golden.ends,
            ..NONE
        };
        let segments = Segments::new(written, 1000, |_| Vec::new());
        let segments = segments.expect("ids of tokens").expect("ids are given");
        assert_eq!(golden.rows.len(), 10);
        let expected = golden.places.iter().zip(&golden.numbers);
        for (row, (places, numbers)) in golden.rows.iter().zip(expected) {
            assert_eq!(segments.axes(row), [places.clone(), numbers.clone()]);
        }
    }

    #[test]
    fn largest_coordinates_are_those_of_all_windows() {
        let segments = by_ids(&[9]);
        let train = [1, 9, 2, 3, 4, 5, 9, 9, 9, 1, 2, 9, 4];
        let valid = [9, 9, 1, 9, 9];
        for length in 1..=6 {
            let windows = train.windows(length).chain(valid.windows(length));
            let mut expected = [0.0_f64; 2];
            for axes in windows.map(|window| segments.axes(window)) {
                for (largest, axis) in expected.iter_mut().zip(axes) {
                    *largest = axis.into_iter().fold(*largest, f64::max);
                }
            }
            let facts = segments.facts(length, &[&train, &valid]);
            assert_eq!(facts[0].largest, expected[0], "place at length {length}");
            assert_eq!(facts[1].largest, expected[1], "number at length {length}");
            assert!(!facts[0].rises && facts[1].rises);
        }
    }

    #[test]
    fn texts_name_every_token_that_ends_with_them() {
        let tokens = ["a", ".", "b.", "\n", ".a"];
        let texts = [".".to_owned(), "\n".to_owned()];
        let written = Written {
            texts: &texts,
            ..NONE
        };
        let segments = Segments::new(written, 5, |id| tokens[id].as_bytes().to_vec());
        let segments = segments.expect("ends of tokens").expect("texts are given");
        assert_eq!(segments.ends, [false, true, true, true, false]);
        assert!(
            Segments::new(NONE, 5, |_| Vec::new())
                .expect("nothing")
                .is_none()
        );
    }
}
