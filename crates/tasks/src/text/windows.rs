//! Which tokens of the validation split each test window reads and scores: arithmetic only.
//!
//! The first token that a plan reads is never scored: it has no context. The scored span is the
//! `span` tokens after it.
//!
//! Without `eval_tokens` the span is the same at every length, whatever the other lengths are:
//! windows of one length lie one after the other, and the last one is moved back to end with the
//! span and scores what is left. With `eval_tokens` the span is cut to a common multiple of the
//! lengths, which windows that do not overlap divide.
//!
//! Sliding windows score their last `stride` tokens, the first window all its tokens. Where the
//! stride does not divide the rest of the span, their last window is moved back too.

use super::config::Windows;
use crate::ScoredText;

/// The consecutive, equally long blocks whose losses are recorded.
const BLOCKS: usize = 64;

/// A span shorter than this many tokens has no blocks.
const LEAST_WITH_BLOCKS: usize = 64 * BLOCKS;

/// How the scored span is divided at each length.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    windows: Windows,
    /// The first token that is read.
    start: usize,
    span: usize,
    layout: Layout,
}

/// How windows that do not overlap fill the span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Every test length divides the span.
    Common,
    /// At each length its largest multiple within the span.
    Own,
    /// The last window of each length is moved back.
    Whole,
}

impl Plan {
    /// Cuts `limit` scorable tokens to a multiple of the lcm of all `lengths`. Where that lcm
    /// exceeds `limit` there is no common multiple: sliding windows need none, and
    /// non-overlapping ones then score the largest multiple of each length.
    pub(crate) fn cut(windows: Windows, limit: usize, lengths: &[usize]) -> Self {
        let multiple = lengths.iter().try_fold(1usize, |all, &length| {
            lcm(all, length).filter(|&m| m <= limit)
        });
        let layout = match (multiple, windows) {
            (None, Windows::NonOverlapping(_)) => Layout::Own,
            _ => Layout::Common,
        };
        Self {
            windows,
            start: 0,
            span: multiple.map_or(limit, |m| limit / m * m),
            layout,
        }
    }

    /// All `limit` scorable tokens after token `start`: cut to whole blocks if there are enough of
    /// them for blocks.
    pub(crate) fn whole(windows: Windows, start: usize, limit: usize) -> Self {
        let span = match limit {
            LEAST_WITH_BLOCKS.. => limit / BLOCKS * BLOCKS,
            _ => limit,
        };
        Self {
            windows,
            start,
            span,
            layout: Layout::Whole,
        }
    }

    /// Tokens of a block, where blocks are equally long and the same at every length.
    fn block(&self) -> Option<usize> {
        let has_blocks = self.layout == Layout::Whole && self.span >= LEAST_WITH_BLOCKS;
        has_blocks.then_some(self.span / BLOCKS)
    }

    /// The span where it is all that can be scored; `bytes` of each token, on average over the
    /// span, where they are known.
    pub(crate) fn scored_text(&self, bytes: Option<f64>) -> Option<ScoredText> {
        (self.layout == Layout::Whole).then(|| ScoredText {
            tokens: self.span as u64,
            bytes: bytes.map(|bytes| (bytes * self.span as f64).round() as u64),
            block: self.block(),
        })
    }

    /// The first token that is read.
    pub(crate) fn first(&self) -> usize {
        self.start
    }

    /// How many tokens are scored at a length.
    pub(crate) fn scored_at(&self, length: usize) -> usize {
        match self.layout {
            Layout::Common | Layout::Whole => self.span,
            Layout::Own => self.span / length * length,
        }
    }

    /// The tokens that are scored, where each is predicted from those before it.
    pub(crate) fn scored(&self) -> std::ops::Range<usize> {
        self.start + 1..self.start + 1 + self.span
    }

    /// Tokens from one window to the next.
    fn stride(&self, length: usize) -> usize {
        match self.windows {
            Windows::NonOverlapping(_) => length,
            // A length below the stride, which no test length is, must leave no gap either.
            Windows::Sliding(sliding) => sliding.stride.min(length),
        }
    }

    /// Whether the last window may be moved back.
    fn fills(&self) -> bool {
        self.layout == Layout::Whole || matches!(self.windows, Windows::Sliding(_))
    }

    pub(crate) fn rows(&self, length: usize) -> usize {
        if length > self.span {
            return 0;
        }
        let more = self.span - length;
        let stride = self.stride(length);
        1 + match self.fills() {
            true => more.div_ceil(stride),
            false => more / stride,
        }
    }

    /// [`row`](Self::row) of some rows.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub(crate) fn part(
        &self,
        length: usize,
        first_row: usize,
        rows: usize,
    ) -> impl Iterator<Item = (usize, usize)> {
        let (end, all) = (first_row + rows, self.rows(length));
        assert!(end <= all, "test rows {first_row}..{end} of {all}");
        (first_row..end).map(move |row| self.row(length, row))
    }

    /// First token read by window `row`, and the first of its `length` predictions that is scored.
    pub(crate) fn row(&self, length: usize, row: usize) -> (usize, usize) {
        if row == 0 {
            return (self.start, 0);
        }
        let stride = self.stride(length);
        let scored_before = length + (row - 1) * stride;
        let end = (scored_before + stride).min(self.span);
        let first = end - length;
        (self.start + first, scored_before - first)
    }

    /// The same for tasks that answer in the places they read: the first token counts like any
    /// other, and the token after the span is never read.
    pub(crate) fn read_in_words(&self) -> String {
        let bytes = match self.layout {
            Layout::Own => "the largest multiple of the length within",
            Layout::Common | Layout::Whole => "the same",
        };
        let moved = match self.layout {
            Layout::Whole => ", the last one moved back to end with them,",
            Layout::Common | Layout::Own => "",
        };
        format!(
            "non-overlapping windows{moved} over {bytes} {} bytes from {}",
            self.span,
            match self.start {
                0 => "the start of the validation split".to_owned(),
                first => format!("byte {first} of the validation split on"),
            }
        )
    }

    pub(crate) fn describe(&self, one: &str) -> String {
        let span = self.span;
        let windows = match (self.windows, self.layout) {
            (Windows::NonOverlapping(_), Layout::Common) => format!(
                "non-overlapping windows, stride = window, over the same {span} {one}s at every \
                 test length; each scores all its predictions"
            ),
            (Windows::NonOverlapping(_), Layout::Own) => format!(
                "non-overlapping windows, stride = window, over the largest multiple of the \
                 length within {span} {one}s (the test lengths have no common multiple there); \
                 each scores all its predictions"
            ),
            (Windows::NonOverlapping(_), Layout::Whole) => format!(
                "non-overlapping windows, stride = window, over the same {span} {one}s at every \
                 test length; the last window is moved back to end with them and scores what is \
                 left, every other all its predictions, so each {one} is scored once"
            ),
            (Windows::Sliding(sliding), _) => format!(
                "sliding windows of stride {0} over the same {span} {one}s at every test length; \
                 the first scores all its predictions, every later one its last {0}, so each {one} \
                 is scored once",
                sliding.stride
            ),
        };
        let first = match self.start {
            0 => "the second".to_owned(),
            // Counted from 1, after the one that only gives context.
            first => format!("number {}", first + 2),
        };
        format!("{windows}; the first scored {one} is {first} of the validation split")
    }
}

fn lcm(a: usize, b: usize) -> Option<usize> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    // Divided first, so that only an lcm that is too large overflows.
    (a / x).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use super::super::config::{NonOverlapping, Sliding};
    use super::*;
    use proptest::prelude::*;

    /// How often each byte is scored at this length.
    fn scored(plan: &Plan, length: usize, bytes: usize) -> Vec<u32> {
        let mut counts = vec![0; bytes];
        for row in 0..plan.rows(length) {
            let (start, first) = plan.row(length, row);
            (start + 1 + first..=start + length).for_each(|byte| counts[byte] += 1);
        }
        counts
    }

    proptest! {
        #[test]
        fn sliding_scores_each_byte_once(lengths in prop::collection::vec(1usize..60, 1..4), stride in 1usize..60, limit in 60usize..400) {
            let plan = Plan::cut(Windows::Sliding(Sliding { stride }), limit, &lengths);
            for &length in &lengths {
                let counts = scored(&plan, length, limit + 1);
                prop_assert!(counts.iter().enumerate().all(|(byte, &n)| n == u32::from((1..=plan.span).contains(&byte))), "{:?}", counts);
                for row in 1..plan.rows(length) {
                    prop_assert!(length - plan.row(length, row).1 <= stride);
                }
            }
        }

        #[test]
        fn non_overlapping_scores_each_byte_once(lengths in prop::collection::vec(1usize..60, 1..4), limit in 60usize..400) {
            let plan = Plan::cut(Windows::NonOverlapping(NonOverlapping {}), limit, &lengths);
            prop_assert!(plan.span <= limit && (!(plan.layout == Layout::Common) || lengths.iter().all(|l| plan.span.is_multiple_of(*l))));
            for &length in &lengths {
                let last = plan.span / length * length;
                prop_assert!(!(plan.layout == Layout::Common) || last == plan.span);
                let counts = scored(&plan, length, limit + 1);
                prop_assert!(counts.iter().enumerate().all(|(byte, &n)| n == u32::from((1..=last).contains(&byte))));
            }
        }
    }

    proptest! {
        #[test]
        fn the_whole_span_is_scored_once_at_every_length_whatever_the_others_are(length in 1usize..90, start in 0usize..50, limit in 90usize..400, stride in 1usize..60, slides: bool) {
            let windows = match slides {
                true => Windows::Sliding(Sliding { stride }),
                false => Windows::NonOverlapping(NonOverlapping {}),
            };
            let plan = Plan::whole(windows, start, limit);
            let counts = scored(&plan, length, start + limit + 1);
            prop_assert!(counts.iter().enumerate().all(|(byte, &n)| n == u32::from(byte > start)), "{:?}", counts);
            for row in 0..plan.rows(length) {
                let (first, _) = plan.row(length, row);
                prop_assert!(first >= start && first + length <= start + limit, "reads inside");
            }
            prop_assert_eq!((plan.block(), plan.scored()), (None, start + 1..start + limit + 1));
        }
    }

    #[test]
    fn spans_that_have_blocks_are_cut_to_whole_ones() {
        let windows = Windows::NonOverlapping(NonOverlapping {});
        let spans = [4095, 4096, 4159, 4160, 638_149].map(|limit| {
            let plan = Plan::whole(windows, 3, limit);
            (plan.span, plan.block())
        });
        let expected = [
            (4095, None),
            (4096, Some(64)),
            (4096, Some(64)),
            (4160, Some(65)),
            (638_144, Some(9971)),
        ];
        assert_eq!(spans, expected);
        assert_eq!(Plan::cut(windows, 8192, &[64]).block(), None);
    }

    #[test]
    fn worked_examples() {
        let whole = Plan::cut(
            Windows::NonOverlapping(NonOverlapping {}),
            65_536,
            &[64, 128, 4096],
        );
        assert_eq!(
            (
                whole.span,
                whole.layout == Layout::Common,
                whole.rows(128),
                whole.row(128, 3)
            ),
            (65_536, true, 512, (384, 0))
        );
        assert_eq!((whole.rows(65_536), whole.rows(65_537)), (1, 0));
        let cut = Plan::cut(Windows::NonOverlapping(NonOverlapping {}), 100, &[8, 12]);
        assert_eq!((cut.span, cut.rows(8), cut.rows(12)), (96, 12, 8));
        let apart = Plan::cut(Windows::NonOverlapping(NonOverlapping {}), 100, &[13, 17]);
        assert_eq!(
            (
                apart.layout == Layout::Common,
                apart.rows(13),
                apart.rows(17)
            ),
            (false, 7, 5)
        );
        let sliding = Plan::cut(Windows::Sliding(Sliding { stride: 4 }), 21, &[10, 21]);
        // Spans 1..=10, then 11..=14, 15..=18, and the last three from a window moved back by one.
        assert_eq!(
            (0..sliding.rows(10))
                .map(|row| sliding.row(10, row))
                .collect::<Vec<_>>(),
            [(0, 0), (4, 6), (8, 6), (11, 7)]
        );
        assert_eq!((sliding.rows(21), sliding.row(21, 0)), (1, (0, 0)));
        assert_eq!(lcm(usize::MAX, 2), None);
    }
}
