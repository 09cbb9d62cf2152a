//! Losses of the blocks of a text: consecutive stretches of as many tokens each, the same at every
//! length and for every method.

use tasks::Task;

/// Sums over the blocks of the scored text.
pub struct Blocks {
    /// Tokens of a block, each of which is scored once.
    tokens: usize,
    nll: Vec<f64>,
}

impl Blocks {
    /// The blocks of a task's text, where it has any.
    pub fn of(task: &dyn Task) -> Option<Self> {
        let text = task.scored_text()?;
        let tokens = text.block?;
        Some(Self {
            tokens,
            nll: vec![0.0; text.tokens as usize / tokens],
        })
    }

    /// Adds the loss of the target at a place of the scored text, in nats.
    pub fn add(&mut self, place: usize, nll: f64) {
        self.nll[place / self.tokens] += nll;
    }

    /// Number of blocks.
    pub fn count(&self) -> usize {
        self.nll.len()
    }

    /// Mean loss of each block in nats, in the order of the text.
    pub fn means(&self) -> Vec<f64> {
        let tokens = self.tokens as f64;
        self.nll.iter().map(|sum| sum / tokens).collect()
    }
}
