//! Vector arithmetic on `f32` for the instruction set of this machine: short names, and exp,
//! sigmoid and the normal distribution function.

use pulp::{Arch, Simd, WithSimd};
use std::sync::LazyLock;

/// Runs `op` compiled for the best instruction set of this machine.
///
/// `LONGREACH_VECTOR_BITS=256` keeps to AVX2 where there is AVX-512, so that one machine can test
/// and measure what others run.
///
/// # Panics
///
/// If [`vector_problem`] has one.
pub(crate) fn dispatch<Op: WithSimd>(op: Op) -> Op::Output {
    static ARCH: LazyLock<Arch> = LazyLock::new(|| match chosen() {
        Ok(arch) => arch,
        Err(problem) => panic!("{problem}"),
    });
    ARCH.dispatch(op)
}

/// Why the width of vectors that the environment asks for cannot be had.
pub(crate) fn vector_problem() -> Option<String> {
    chosen().err()
}

fn chosen() -> Result<Arch, String> {
    let Some(bits) = std::env::var_os("LONGREACH_VECTOR_BITS") else {
        return Ok(Arch::new());
    };
    if bits != "256" {
        let bits = bits.display();
        return Err(format!(
            "LONGREACH_VECTOR_BITS is `{bits}`, and may only be 256"
        ));
    }
    narrow().ok_or_else(|| "LONGREACH_VECTOR_BITS is 256, and this machine has no AVX2".to_owned())
}

/// Vectors of 256 bits, if this machine has them.
fn narrow() -> Option<Arch> {
    #[cfg(target_arch = "x86_64")]
    return pulp::x86::V3::try_new().map(Arch::V3);
    #[cfg(not(target_arch = "x86_64"))]
    return None;
}

/// Numbers of a lane group, over which sums of rows run: as wide as the widest vectors, so that
/// they have the same bits on every instruction set.
pub(crate) const LANE_GROUP: usize = 16;

/// The whole lane groups of a row as vectors, and the rest.
#[inline(always)]
pub(crate) fn lane_groups<S: Simd>(row: &[f32]) -> (&[S::f32s], &[f32]) {
    let (whole, rest) = row.split_at(row.len() / LANE_GROUP * LANE_GROUP);
    (S::as_simd_f32s(whole).0, rest)
}

/// The whole lane groups of a row as vectors, and the rest, to be written.
#[inline(always)]
pub(crate) fn lane_groups_mut<S: Simd>(row: &mut [f32]) -> (&mut [S::f32s], &mut [f32]) {
    let (whole, rest) = row.split_at_mut(row.len() / LANE_GROUP * LANE_GROUP);
    (S::as_mut_simd_f32s(whole).0, rest)
}

/// Sum over `i` in `0..n` of a vector expression in `i`, then over its lanes, where n vectors are
/// whole [lane groups](LANE_GROUP): in a fixed order of four partial sums of a lane group each,
/// whatever the width of vectors.
///
/// A macro, because a closure may be compiled without the instruction set of its caller.
macro_rules! sum_over {
    ($s:ident, $n:expr, |$i:ident| $value:expr) => {
        match $crate::flex::simd::LaneGroupSums::vectors_per_lane_group($s) {
            1 => sum_over!(@by 1, $s, $n, |$i| $value),
            2 => sum_over!(@by 2, $s, $n, |$i| $value),
            4 => sum_over!(@by 4, $s, $n, |$i| $value),
            _ => sum_over!(@by 16, $s, $n, |$i| $value),
        }
    };
    (@by $vectors:literal, $s:ident, $n:expr, |$i:ident| $value:expr) => {{
        let groups = $n / $vectors;
        let mut sums = [[$s.zero(); $vectors]; 4];
        for block in 0..groups / 4 {
            for at in 0..4 {
                for j in 0..$vectors {
                    let $i = (4 * block + at) * $vectors + j;
                    sums[at][j] = $s.add(sums[at][j], $value);
                }
            }
        }
        for group in groups / 4 * 4..groups {
            for j in 0..$vectors {
                let $i = group * $vectors + j;
                sums[0][j] = $s.add(sums[0][j], $value);
            }
        }
        let mut total = sums[0];
        for j in 0..$vectors {
            let pairs = [$s.add(sums[0][j], sums[1][j]), $s.add(sums[2][j], sums[3][j])];
            total[j] = $s.add(pairs[0], pairs[1]);
        }
        $crate::flex::simd::LaneGroupSums::sum_lane_group($s, &total)
    }};
}
pub(crate) use sum_over;

/// Below this, exp returns 0: its results would soon leave the normal range of `f32`.
const EXP_FLOOR: f32 = -87.3;

/// Below this, backward takes a weight of a softmax for 0. A row of weights sums to 1, beside which
/// 1.6e-28 is lost in `f32`. The product of a smaller weight and a gradient may be denormal, and
/// then takes some hundred cycles: at 2,048 tokens backward took twice the time under a steep bias.
const WEIGHT_FLOOR: f32 = -64.0;

/// Arithmetic on one vector, or on [two in lockstep](Twice).
///
/// Comparisons with NaN are false, so that `where_less(x, limit, ..)` propagates NaN.
pub(crate) trait Lanes: Copy {
    /// The numbers of one operation.
    type V: Copy;

    fn splat(self, x: f32) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a b + c`, rounded once where the machine can.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn abs(self, x: Self::V) -> Self::V;
    /// `yes` where `a < b`, otherwise `no`.
    fn where_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// The bits of `x`, moved up by 23: the lowest become an exponent.
    fn low_bits_to_exponent(self, x: Self::V) -> Self::V;

    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }
    /// `a` where `a > b`, otherwise `b`.
    #[inline(always)]
    fn larger(self, a: Self::V, b: Self::V) -> Self::V {
        self.where_less(b, a, a, b)
    }

    /// `e^x` for x up to about 1, within 2 units in the last place; exactly 1 at 0, exactly 0 at
    /// -inf.
    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        self.exp_or_zero(x, EXP_FLOOR)
    }

    /// `e^x` as a weight of a softmax in backward: 0 below [`WEIGHT_FLOOR`].
    #[inline(always)]
    fn softmax_weight(self, x: Self::V) -> Self::V {
        self.exp_or_zero(x, WEIGHT_FLOOR)
    }

    /// `e^x`, 0 below a floor of at least [`EXP_FLOOR`].
    #[inline(always)]
    fn exp_or_zero(self, x: Self::V, floor: f32) -> Self::V {
        // Adding this moves the rounded exponent, biased by 127, into the lowest mantissa bits.
        const SHIFT: f32 = 12_582_912.0 + 127.0;
        let floor = self.splat(floor);
        let y = self.where_less(x, floor, floor, x);
        let shifted = self.fma(y, self.splat(std::f32::consts::LOG2_E), self.splat(SHIFT));
        let exponent = self.sub(shifted, self.splat(SHIFT));
        // ln 2 in two parts. The first has few enough bits that its product with the exponent is
        // exact.
        let r = self.fma(exponent, self.splat(-355.0 / 512.0), y);
        let r = self.fma(exponent, self.splat(2.121_944_4e-4), r);
        let p = self.polynomial(
            r,
            &[
                1.383_682_3e-3,
                8.374_816e-3,
                4.166_822_6e-2,
                1.666_642e-1,
                4.999_999e-1,
                1.0,
                1.0,
            ],
        );
        // The low bits of `shifted` are the biased exponent. Moved up by 23, they are 2^n.
        let power = self.low_bits_to_exponent(shifted);
        self.where_less(x, floor, self.zero(), self.mul(p, power))
    }

    /// A polynomial by Horner's rule, coefficient of the highest power first.
    #[inline(always)]
    fn polynomial(self, x: Self::V, coefficients: &[f32]) -> Self::V {
        let mut sum = self.splat(coefficients[0]);
        for c in &coefficients[1..] {
            sum = self.fma(sum, x, self.splat(*c));
        }
        sum
    }

    /// The normal distribution function at `x`, and `e^(-x^2 / 2)`.
    ///
    /// The tail beyond |x| is the exponential times a polynomial in 1 / (1 + 0.3 |x|), fitted for
    /// least relative error: small results keep their relative accuracy.
    #[inline(always)]
    fn normal(self, x: Self::V) -> (Self::V, Self::V) {
        let (one, half) = (self.splat(1.0), self.splat(0.5));
        // Past 15 the result is 0 or 1; the square must stay finite.
        let (u, limit) = (self.abs(x), self.splat(15.0));
        let u = self.where_less(limit, u, limit, u);
        let square = self.mul(u, u);
        // What rounding took from u^2. At large u it would show in the exponential, so `e` is
        // corrected to first order.
        let rounding = self.fma(u, u, self.sub(self.zero(), square));
        let e = self.exp(self.mul(square, self.splat(-0.5)));
        let e = self.sub(e, self.mul(e, self.mul(half, rounding)));
        let t = self.div(one, self.fma(u, self.splat(0.3), one));
        let tail = self.polynomial(
            t,
            &[
                -0.020_612_877,
                0.112_376_03,
                -0.228_068_08,
                0.191_582_42,
                -0.079_247_914,
                0.096_058_12,
                0.078_425_49,
                0.110_227_34,
                0.119_572_84,
                0.119_686_63,
            ],
        );
        let tail = self.mul(e, self.mul(t, tail));
        // By symmetry: the tail itself below 0, its complement above.
        let below = self.where_less(x, self.zero(), tail, self.sub(one, tail));
        (below, e)
    }

    /// `ln(1 + e^x)`.
    #[inline(always)]
    fn softplus(self, x: Self::V) -> Self::V {
        // max(x, 0) + ln(1 + t) with t = e^-|x|, which cannot overflow. ln(1 + t) is twice the
        // inverse hyperbolic tangent of u = t / (2 + t), at most 1/3: the series ends where terms
        // are below 2e-8 of the sum.
        let t = self.exp(self.sub(self.zero(), self.abs(x)));
        let u = self.div(t, self.add(t, self.splat(2.0)));
        let square = self.mul(u, u);
        let series = [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0].map(|n: f32| 2.0 / n);
        let log = self.mul(u, self.polynomial(square, &series));
        self.add(self.larger(self.zero(), x), log)
    }

    /// `1 / (1 + e^-x)`.
    #[inline(always)]
    fn sigmoid(self, x: Self::V) -> Self::V {
        // e^-|x| cannot overflow. Below 0 the result is e^x / (1 + e^x).
        let e = self.exp(self.sub(self.zero(), self.abs(x)));
        let one = self.splat(1.0);
        self.div(self.where_less(x, self.zero(), e, one), self.add(one, e))
    }
}

impl<S: Simd> Lanes for S {
    type V = S::f32s;

    #[inline(always)]
    fn splat(self, x: f32) -> S::f32s {
        self.splat_f32s(x)
    }
    #[inline(always)]
    fn add(self, a: S::f32s, b: S::f32s) -> S::f32s {
        self.add_f32s(a, b)
    }
    #[inline(always)]
    fn sub(self, a: S::f32s, b: S::f32s) -> S::f32s {
        self.sub_f32s(a, b)
    }
    #[inline(always)]
    fn mul(self, a: S::f32s, b: S::f32s) -> S::f32s {
        self.mul_f32s(a, b)
    }
    #[inline(always)]
    fn div(self, a: S::f32s, b: S::f32s) -> S::f32s {
        self.div_f32s(a, b)
    }
    #[inline(always)]
    fn fma(self, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
        self.mul_add_e_f32s(a, b, c)
    }
    #[inline(always)]
    fn abs(self, x: S::f32s) -> S::f32s {
        self.abs_f32s(x)
    }
    #[inline(always)]
    fn where_less(self, a: S::f32s, b: S::f32s, yes: S::f32s, no: S::f32s) -> S::f32s {
        self.select_f32s(self.less_than_f32s(a, b), yes, no)
    }
    #[inline(always)]
    fn low_bits_to_exponent(self, x: S::f32s) -> S::f32s {
        let bits = self.transmute_u32s_f32s(x);
        self.transmute_f32s_u32s(self.wrapping_dyn_shl_u32s(bits, self.splat_u32s(23)))
    }
}

/// Sums of whole [lane groups](LANE_GROUP).
pub(crate) trait LaneGroupSums: Simd {
    /// Vectors that hold a [`LANE_GROUP`].
    #[inline(always)]
    fn vectors_per_lane_group(self) -> usize {
        LANE_GROUP / Self::F32_LANES
    }
    /// The sum of a lane group: of its halves, of the halves of that, and so on.
    #[inline(always)]
    fn sum_lane_group(self, group: &[Self::f32s]) -> f32 {
        // What `reduce_sum_f32s` does with vectors of 8 and 16 lanes on x86.
        match (group, cfg!(target_arch = "x86_64")) {
            ([all], true) => self.reduce_sum_f32s(*all),
            ([low, high], true) => self.reduce_sum_f32s(self.add_f32s(*low, *high)),
            _ => {
                let mut lanes = [0.0; LANE_GROUP];
                lanes.copy_from_slice(bytemuck::cast_slice(group));
                for half in [8, 4, 2, 1] {
                    for i in 0..half {
                        lanes[i] += lanes[i + half];
                    }
                }
                lanes[0]
            }
        }
    }
}

impl<S: Simd> LaneGroupSums for S {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies `exp` (0), `normal` (1), `sigmoid` (2), `softmax_weight` (3) or `softplus` (4) to
    /// every element.
    struct Apply<'a>(&'a [f32], u8);

    impl WithSimd for Apply<'_> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn with_simd<S: Simd>(self, s: S) -> Vec<f32> {
            let mut output = vec![0.0; self.0.len()];
            for (x, y) in self.0.iter().zip(&mut output) {
                let x = s.splat(*x);
                let value = match self.1 {
                    0 => s.exp(x),
                    1 => s.normal(x).0,
                    2 => s.sigmoid(x),
                    3 => s.softmax_weight(x),
                    _ => s.softplus(x),
                };
                *y = s.reduce_max_f32s(value);
            }
            output
        }
    }

    /// Largest relative error with the instructions of this machine, and with portable ones.
    fn worst(inputs: &[f32], which: u8, exact: impl Fn(f64) -> f64) -> [f64; 2] {
        let error = |(x, y): (&f32, &f32)| {
            let exact = exact(f64::from(*x));
            ((f64::from(*y) - exact) / exact).abs()
        };
        [
            dispatch(Apply(inputs, which)),
            Apply(inputs, which).with_simd(pulp::Scalar::new()),
        ]
        .map(|output| inputs.iter().zip(&output).map(error).fold(0.0, f64::max))
    }

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        let inputs: Vec<f32> = (0..=880_000).map(|i| -87.2 + i as f32 * 1e-4).collect();
        let worst = worst(&inputs, 0, f64::exp);
        assert!(worst.iter().all(|x| *x < 1.5e-7), "{worst:?}");
        let edges = dispatch(Apply(
            &[0.0, -0.0, f32::NEG_INFINITY, -1e9, -87.4, f32::NAN],
            0,
        ));
        assert_eq!(edges[..5], [1.0, 1.0, 0.0, 0.0, 0.0]);
        assert!(edges[5].is_nan());
    }

    #[test]
    fn softmax_weight_is_exp_above_the_floor_and_0_below() {
        let inputs: Vec<f32> = (0..=900).map(|i| -90.0 + i as f32 * 0.1).collect();
        let [exp, weight] = [0, 3].map(|which| dispatch(Apply(&inputs, which)));
        for ((x, exp), weight) in inputs.iter().zip(exp).zip(weight) {
            assert_eq!(weight, if *x < -64.0 { 0.0 } else { exp }, "at {x}");
        }
        let edges = dispatch(Apply(&[f32::NEG_INFINITY, f32::NAN], 3));
        assert_eq!(edges[0], 0.0);
        assert!(edges[1].is_nan());
    }

    #[test]
    fn normal_keeps_its_relative_accuracy_in_the_tail() {
        // Tail values from the continued fraction for x >= 3, by Simpson's rule below.
        let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let exact = |x: f64| {
            let u = x.abs();
            let tail = if u >= 3.0 {
                density(u) / (1..400).rev().fold(u, |f, k| u + f64::from(k) / f)
            } else {
                let n = 2000;
                let h = u / f64::from(n);
                let weight = |i: i32| {
                    if i == 0 || i == n {
                        1.0
                    } else if i % 2 == 1 {
                        4.0
                    } else {
                        2.0
                    }
                };
                0.5 - (0..=n)
                    .map(|i| weight(i) * density(f64::from(i) * h))
                    .sum::<f64>()
                    * h
                    / 3.0
            };
            if x < 0.0 { tail } else { 1.0 - tail }
        };
        let inputs: Vec<f32> = (0..2000).map(|i| -12.0 + i as f32 * 0.012).collect();
        let worst = worst(&inputs, 1, exact);
        // Without a fused multiplication the square in the exponent is rounded: 6e-8 x^2 / 2.
        assert!(
            worst[0] < 5e-7 || !cfg!(target_arch = "x86_64"),
            "{worst:?}"
        );
        assert!(worst[1] < 5e-6, "{worst:?}");
    }

    #[test]
    fn sigmoid_is_accurate_on_both_sides() {
        let inputs: Vec<f32> = (0..100_000).map(|i| -80.0 + i as f32 * 1.6e-3).collect();
        let worst = worst(&inputs, 2, |x| 1.0 / (1.0 + (-x).exp()));
        assert!(worst.iter().all(|x| *x < 4e-7), "{worst:?}");
    }

    #[test]
    fn softplus_keeps_its_relative_accuracy_below_zero() {
        let inputs: Vec<f32> = (0..100_000).map(|i| -80.0 + i as f32 * 1.6e-3).collect();
        let worst = worst(&inputs, 4, |x| x.max(0.0) + (-x.abs()).exp().ln_1p());
        assert!(worst.iter().all(|x| *x < 4e-7), "{worst:?}");
        let edges = dispatch(Apply(&[f32::NEG_INFINITY, f32::INFINITY, f32::NAN], 4));
        assert_eq!(edges[..2], [0.0, f32::INFINITY]);
        assert!(edges[2].is_nan());
    }
}
