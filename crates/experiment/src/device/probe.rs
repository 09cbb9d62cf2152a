//! A small computation that shows whether a device works.

use crate::host::values;
use burn::tensor::{Device, Tensor};

/// Compares operations that training needs with the host. Returns the first wrong result.
pub fn computes_wrongly(device: &Device) -> Option<String> {
    let sum: f32 = (Tensor::<1>::from_floats([1.0, 2.0, 4.0], device) * 3.0)
        .sum_dim(0)
        .into_scalar();
    if sum != 21.0 {
        return Some(format!("computed 3 (1 + 2 + 4) = {sum}"));
    }
    // Some devices take these functions from a separate library. The values are where f32 is
    // accurate.
    const AT: [f32; 4] = [0.3, 0.7, 1.5, 2.5];
    let x = || Tensor::<1>::from_floats(AT, device);
    let wrong = |name: &str, computed: Tensor<1>, host: fn(f64) -> f64| {
        let computed = values::<f32>(computed.into_data());
        differs(name, &AT, &computed, host)
    };
    wrong("sin", x().sin(), f64::sin)
        .or_else(|| wrong("exp", x().exp(), f64::exp))
        .or_else(|| wrong("log", x().log(), f64::ln))
}

/// The first value that differs from the host's by more than 1e-5 of it.
fn differs(name: &str, at: &[f32], computed: &[f32], host: fn(f64) -> f64) -> Option<String> {
    at.iter().zip(computed).find_map(|(x, computed)| {
        let expected = host(f64::from(*x));
        let near = (f64::from(*computed) - expected).abs() <= 1e-5 * expected.abs();
        (!near).then(|| format!("computed {name}({x}) = {computed} instead of {expected:.6}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_function_is_named_with_its_value() {
        let at = [0.3_f32, 2.5];
        let right: Vec<f32> = at.iter().map(|x| x.sin()).collect();
        assert_eq!(differs("sin", &at, &right, f64::sin), None);
        assert_eq!(
            differs("sin", &at, &[right[0], 0.5], f64::sin).as_deref(),
            Some("computed sin(2.5) = 0.5 instead of 0.598472")
        );
        assert!(differs("sin", &at, &[f32::NAN, right[1]], f64::sin).is_some());
        assert!(differs("exp", &at, &at.map(|x| x.exp() * 1.001), f64::exp).is_some());
    }
}
