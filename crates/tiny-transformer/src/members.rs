//! The encodings of models side by side.

use crate::join::{join, part, view};
use burn::module::Module;
use posenc::{
    Context, PositionalEncoding, Positions, PrepareError, Prepared, acts_for_all, side_by_side,
};

/// The encodings of models side by side: one for all, or one for each.
#[derive(Module, Debug)]
pub struct Members<E: Module> {
    /// One with the parameters of all.
    joined: Option<E>,
    members: Vec<E>,
}

impl<E: Module + PositionalEncoding> Members<E> {
    /// The encodings of all models. If they are `equal` except for their parameters, one of them
    /// acts for all if it can.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn new(encodings: Vec<E>, equal: bool) -> Self {
        if equal && acts_for_all(&encodings[0]) {
            return Self {
                joined: Some(join(&encodings)),
                members: Vec::new(),
            };
        }
        Self {
            joined: None,
            members: encodings,
        }
    }

    /// Whether one encoding acts for all models.
    pub fn is_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// Returns the encoding of model `g`, detached from the others; there are `groups` models.
    pub(crate) fn part(&self, g: usize, groups: usize) -> E {
        match &self.joined {
            Some(joined) => part(joined, g, groups),
            None => self.members[g].clone(),
        }
    }

    /// Separate encodings for the models, whose gradients flow into the joined one. `None` if the
    /// joined encoding can act itself, which it cannot where models, or the sequences of a batch,
    /// have different positions.
    pub(crate) fn apart(&self, positions: &[Positions], groups: usize) -> Option<Self> {
        let joined = self.joined.as_ref().filter(|_| groups > 1)?;
        let shared = positions.len() == 1 && positions[0].by_row().is_none();
        (!shared).then(|| Self {
            joined: None,
            members: (0..groups).map(|g| view(joined, g, groups)).collect(),
        })
    }

    /// Prepares the encodings for positions that all models share, or for those of each.
    pub(crate) fn prepare(
        &self,
        positions: &[Positions],
        groups: usize,
        context: &Context,
    ) -> Result<Box<dyn Prepared + '_>, PrepareError> {
        if let Some(joined) = &self.joined {
            let context = context.clone().with_groups(groups);
            return joined.prepare(&positions[0], &context);
        }
        let positions_of = |g: usize| positions.get(g).unwrap_or(&positions[0]);
        let models = self.members.iter().enumerate();
        let models = models.map(|(g, encoding)| encoding.prepare(positions_of(g), context));
        let mut models: Vec<_> = models.collect::<Result<_, _>>()?;
        if models.len() == 1 {
            return Ok(models.remove(0));
        }
        Ok(side_by_side(models))
    }
}
