//! Weights carried from one model to the next: from the run that a training starts from, and from
//! stage to stage.

use crate::run::parameters::is_of_encoding;
use rundir::Weights;

/// Replaces drawn parameters by those of `from` with the same name and shape; those of the encoding
/// only if `encoding` says so. What else `from` has is dropped. Returns the paths of the parameters
/// that stay as they were drawn.
pub fn carry(into: &mut Weights, mut from: Weights, encoding: bool) -> Vec<String> {
    let mut drawn = Vec::new();
    for (path, tensor) in &mut into.0 {
        let theirs = match encoding || !is_of_encoding(path) {
            true => from.0.remove(path),
            false => None,
        };
        match theirs.filter(|theirs| theirs.shape == tensor.shape) {
            Some(theirs) => *tensor = theirs,
            None => drawn.push(path.clone()),
        }
    }
    drawn
}
