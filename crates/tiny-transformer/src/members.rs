//! The encodings of models side by side.

use burn::module::Module;
use posenc::{Context, PositionalEncoding, Positions, PrepareError, Prepared, side_by_side};

/// The encodings of models side by side: one for all, or one for each.
#[derive(Module, Debug)]
pub struct Members<E: Module> {
    members: Vec<E>,
}

impl<E: Module> Members<E> {
    /// One encoding for all models, or one for each.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn new(members: Vec<E>) -> Self {
        assert!(!members.is_empty(), "an encoding");
        Self { members }
    }

    /// That of model `g`.
    pub fn of(&self, g: usize) -> &E {
        match &self.members[..] {
            [one] => one,
            members => &members[g],
        }
    }
}

impl<E: Module + PositionalEncoding> Members<E> {
    /// Prepares the encodings of `groups` models for positions that all share, or for those of
    /// each.
    pub(crate) fn prepare(
        &self,
        positions: &[Positions],
        groups: usize,
        context: &Context,
    ) -> Result<Box<dyn Prepared + '_>, PrepareError> {
        if let ([one], [positions]) = (&self.members[..], positions) {
            return one.prepare(positions, context);
        }
        let positions_of = |g: usize| positions.get(g).unwrap_or(&positions[0]);
        let models = (0..groups).map(|g| self.of(g).prepare(positions_of(g), context));
        Ok(side_by_side(models.collect::<Result<_, _>>()?))
    }
}
