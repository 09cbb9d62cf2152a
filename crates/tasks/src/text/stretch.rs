//! Which stretch of the validation split is scored. Its end is kept for selection: values are
//! chosen on it, and results are scored on the rest.

use super::config::TextConfig;
use super::windows::Plan;
use crate::{BuildContext, Rows, TaskError};
use schema::Invalid;
use std::path::Path;

/// One token in this many of a validation split is kept for selection.
const SHARE: usize = 8;

/// Most tokens that are kept: more do not help to choose between values.
const MOST: usize = 256 << 10;

/// A validation split as tokens.
pub(super) struct ValidSplit<'a> {
    /// Number of its tokens.
    pub tokens: usize,
    /// What they are, plural.
    pub unit: &'a str,
    /// Tokens that are read and not scored before the first that is: 1 where a token is predicted
    /// from those before it.
    pub context: usize,
    /// Whether the corpus has a split for selection, so that none of this one is kept for it.
    pub is_apart: bool,
    /// The first file of the corpus, for messages.
    pub first: &'a Path,
}

impl ValidSplit<'_> {
    /// Tokens at the end that no result is scored on.
    fn kept(&self) -> usize {
        if self.is_apart {
            return 0;
        }
        (self.tokens / SHARE).min(MOST)
    }

    /// The windows over the rows that are asked for.
    ///
    /// # Errors
    /// If `eval_tokens` reaches into what is kept for selection, and if the stretch has no window
    /// of the longest test length.
    pub fn plan(&self, text: &TextConfig, ctx: &BuildContext<'_>) -> Result<Plan, TaskError> {
        let (kept, windows) = (self.kept(), text.windows);
        let free = self.tokens - kept;
        match (ctx.rows, text.eval_tokens) {
            (Rows::Test, Some(most)) => Ok(Plan::cut(
                windows,
                most.min(self.tokens - 1),
                &ctx.test_lens,
            )),
            (Rows::Test, None) => {
                self.check(free, "that results are scored on", ctx)?;
                Ok(Plan::whole(windows, 0, free - self.context))
            }
            (Rows::Selection, Some(most)) if !self.is_apart && most >= free => {
                let unit = self.unit;
                let problem = format!(
                    "reaches into the last {kept} of the {} {unit} of the validation split, which \
                     selection needs apart from what results are scored on",
                    self.tokens
                );
                let allowed = schema::allowed(&(1..=free.saturating_sub(1)));
                let hint = "lower it, or remove it: results are then scored on all the rest";
                Err(Invalid::new("eval_tokens", most, problem, allowed, hint).into())
            }
            (Rows::Selection, _) if self.is_apart => {
                self.check(self.tokens, "that values are chosen on", ctx)?;
                Ok(Plan::whole(windows, 0, self.tokens - self.context))
            }
            (Rows::Selection, _) => {
                self.check(kept, "that values are chosen on, its last eighth,", ctx)?;
                Ok(Plan::whole(windows, free, kept - self.context))
            }
        }
    }

    /// Refuses a stretch without a window of the longest test length.
    fn check(&self, have: usize, what: &str, ctx: &BuildContext<'_>) -> Result<(), TaskError> {
        let longest = ctx.test_lens.iter().copied().max().unwrap_or(1);
        let needed = longest.saturating_add(self.context);
        if have >= needed {
            return Ok(());
        }
        let (unit, all) = (self.unit, self.tokens);
        let problem = format!(
            "the part of the validation split {what} has {have} of {all} {unit}, and one window of \
             length {longest} needs {needed}"
        );
        let hint = "add files, hold out more with `split`, or use shorter lengths";
        Err(TaskError::input(self.first, problem, hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_is_kept_and_never_more_than_256_kib() {
        let kept = |tokens, is_apart| {
            let split = ValidSplit {
                tokens,
                unit: "bytes",
                context: 1,
                is_apart,
                first: Path::new("x"),
            };
            split.kept()
        };
        assert_eq!(
            [0, 7, 8, 729_314, 2_097_152, 5_000_000].map(|tokens| kept(tokens, false)),
            [0, 0, 1, 91_164, 262_144, 262_144]
        );
        assert_eq!(kept(5_000_000, true), 0);
    }
}
