//! Models side by side: each has the losses and gradients that it has alone.

use crate::DEVICE;
use crate::common::side_by_side::{compare_encodings, compare_mixes};

/// Rounding, relative to the largest number of a gradient.
const OFF: f64 = 1e-11;

#[test]
fn every_encoding_acts_on_its_own_model() {
    compare_encodings(&DEVICE, OFF);
}

#[test]
fn models_may_have_encodings_of_other_numbers_or_another_kind() {
    compare_mixes(&DEVICE, OFF);
}
