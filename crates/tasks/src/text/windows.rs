//! Which bytes of the validation split each test window reads and scores: arithmetic only.
//!
//! Byte 0 is never scored, it has no context. The scored span is bytes `1..=span`, and at every
//! length each of them is scored once: non-overlapping windows score all they predict, sliding ones
//! score their last `stride` bytes, the first window all its bytes. Where the stride does not
//! divide the rest of the span, the last sliding window is moved back to end with the span and
//! scores what is left.

use super::config::Windows;

/// How the scored span is divided at each length.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    windows: Windows,
    span: usize,
    /// Whether the same bytes are scored at every test length.
    common: bool,
}

impl Plan {
    /// Cuts `limit` scorable bytes to a multiple of the lcm of all `lengths`. Where that lcm
    /// exceeds `limit` there is no common multiple: sliding windows need none, and
    /// non-overlapping ones then score the largest multiple of each length.
    pub(crate) fn new(windows: Windows, limit: usize, lengths: &[usize]) -> Self {
        let multiple = lengths.iter().try_fold(1usize, |all, &length| {
            lcm(all, length).filter(|&m| m <= limit)
        });
        let span = multiple.map_or(limit, |m| limit / m * m);
        Self {
            windows,
            span,
            common: multiple.is_some() || matches!(windows, Windows::Sliding(_)),
        }
    }

    /// Bytes `1..=span` are scored, at lengths that divide it.
    pub(crate) fn span(&self) -> usize {
        self.span
    }

    pub(crate) fn rows(&self, length: usize) -> usize {
        match self.windows {
            _ if length > self.span => 0,
            Windows::NonOverlapping(_) => self.span / length,
            Windows::Sliding(sliding) => {
                1 + (self.span - length).div_ceil(sliding.stride.min(length))
            }
        }
    }

    /// First byte read by window `row`, and the first of its `length` predictions that is scored.
    pub(crate) fn row(&self, length: usize, row: usize) -> (usize, usize) {
        match self.windows {
            Windows::NonOverlapping(_) => (row * length, 0),
            Windows::Sliding(_) if row == 0 => (0, 0),
            Windows::Sliding(sliding) => {
                // A length below the stride, which no test length is, must leave no gap either.
                let stride = sliding.stride.min(length);
                let scored_before = length + (row - 1) * stride;
                let end = (scored_before + stride).min(self.span);
                (end - length, scored_before - (end - length))
            }
        }
    }

    /// The same for tasks that answer in the places they read: byte 0 counts like any other, and
    /// the byte after the span is never read.
    pub(crate) fn read_in_words(&self) -> String {
        let bytes = if self.common {
            "the same"
        } else {
            "the largest multiple of the length within"
        };
        format!(
            "non-overlapping windows over {bytes} {} bytes from the start of the validation split",
            self.span
        )
    }

    pub(crate) fn describe(&self, one: &str) -> String {
        let span = self.span;
        let windows = match self.windows {
            Windows::NonOverlapping(_) if self.common => {
                format!(
                    "non-overlapping windows, stride = window, over the same {span} {one}s at \
                     every test length; each scores all its predictions"
                )
            }
            Windows::NonOverlapping(_) => format!(
                "non-overlapping windows, stride = window, over the largest multiple of the \
                 length within {span} {one}s (the test lengths have no common multiple there); \
                 each scores all its predictions"
            ),
            Windows::Sliding(sliding) => format!(
                "sliding windows of stride {0} over the same {span} {one}s at every test length; \
                 the first scores all its predictions, every later one its last {0}, so each {one} \
                 is scored once",
                sliding.stride
            ),
        };
        format!("{windows}; the first scored {one} is the second of the validation split")
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
            let plan = Plan::new(Windows::Sliding(Sliding { stride }), limit, &lengths);
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
            let plan = Plan::new(Windows::NonOverlapping(NonOverlapping {}), limit, &lengths);
            prop_assert!(plan.span <= limit && (!plan.common || lengths.iter().all(|l| plan.span.is_multiple_of(*l))));
            for &length in &lengths {
                let last = plan.span / length * length;
                prop_assert!(!plan.common || last == plan.span);
                let counts = scored(&plan, length, limit + 1);
                prop_assert!(counts.iter().enumerate().all(|(byte, &n)| n == u32::from((1..=last).contains(&byte))));
            }
        }
    }

    #[test]
    fn worked_examples() {
        let whole = Plan::new(
            Windows::NonOverlapping(NonOverlapping {}),
            65_536,
            &[64, 128, 4096],
        );
        assert_eq!(
            (whole.span, whole.common, whole.rows(128), whole.row(128, 3)),
            (65_536, true, 512, (384, 0))
        );
        assert_eq!((whole.rows(65_536), whole.rows(65_537)), (1, 0));
        let cut = Plan::new(Windows::NonOverlapping(NonOverlapping {}), 100, &[8, 12]);
        assert_eq!((cut.span, cut.rows(8), cut.rows(12)), (96, 12, 8));
        let apart = Plan::new(Windows::NonOverlapping(NonOverlapping {}), 100, &[13, 17]);
        assert_eq!(
            (apart.common, apart.rows(13), apart.rows(17)),
            (false, 7, 5)
        );
        let sliding = Plan::new(Windows::Sliding(Sliding { stride: 4 }), 21, &[10, 21]);
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
