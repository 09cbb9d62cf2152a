//! What the factors of a product are rounded to.

use crate::Matmul;

/// Bfloat16 parts per number, if products go through parts.
pub(super) fn parts_of(matmul: Matmul) -> Option<usize> {
    match matmul {
        Matmul::F32 | Matmul::Tf32 => None,
        Matmul::Bf16 => Some(1),
        Matmul::Bf16x6 => Some(3),
        Matmul::Bf16x3 => Some(2),
    }
}

/// Whether products go through bfloat16 parts.
pub(crate) fn goes_through_parts(matmul: Matmul) -> bool {
    parts_of(matmul).is_some()
}

/// The nearest number with the 11 significant bits of TF32, halves away from zero. Infinities and
/// NaN stay.
pub(super) fn tf32(x: f32) -> f32 {
    if x.is_finite() {
        f32::from_bits((x.to_bits() + 0x1000) & 0xffff_e000)
    } else {
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tf32_keeps_11_bits_and_rounds_halves_away_from_zero() {
        let unit = 2f32.powi(-10);
        for (x, expected) in [
            (1.0, 1.0),
            (1.0 + unit, 1.0 + unit),
            (1.0 + unit / 2.0, 1.0 + unit),
            (-1.0 - unit / 2.0, -1.0 - unit),
            (1.0 + unit * 0.499, 1.0),
            (3.0e-39, 3.0e-39f32),
            (f32::INFINITY, f32::INFINITY),
        ] {
            let rounded = tf32(x);
            // Subnormal numbers keep bits, not significant ones.
            let off = (rounded - expected).abs();
            assert!(rounded == expected || off < 1e-41, "{x}: {rounded}");
        }
        assert!(tf32(f32::NAN).is_nan());
    }
}
