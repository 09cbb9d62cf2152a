//! Damaged and hostile checkpoints: a small share of what the example `mutate_checkpoints` tries.

use crate::common::mutants::{Outcome, Target};
use std::collections::BTreeMap;

#[test]
fn no_mutant_of_a_checkpoint_panics_or_is_loaded_in_silence() {
    let target = Target::new();
    let mut outcomes = BTreeMap::new();
    for number in 0..2000 {
        let (name, outcome) = target.attempt(number);
        assert!(
            matches!(outcome, Outcome::Refused | Outcome::Same),
            "mutant {number} ({name}): {outcome:?}"
        );
        *outcomes.entry(outcome).or_insert(0) += 1;
    }
    assert!(outcomes[&Outcome::Refused] > 1900, "{outcomes:?}");
}
