//! Checks of a rotary encoding, measured on its hooks in f32: rotations preserve norms, compose by
//! adding positions, and leave dot products to the difference of positions.

use crate::subject::{SEED, Side, Subject, dot};
use burn::tensor::Device;
use posenc::Encoding;
use serde::Serialize;
use support::exit::Failure;
use tasks::Stream;

/// Largest relative error of a check: about a hundred roundings of f32.
const ALLOWED: f64 = 1e-5;

/// A law of rotations, measured on the hooks in f32.
#[derive(Debug, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub worst_relative_error: f64,
    pub allowed: f64,
    pub ok: bool,
}

/// Vectors that are rotated.
const VECTORS: usize = 4;
/// Positions of queries and keys, and the shifts they are moved by.
const FIRST: [f64; 5] = [0.0, 1.0, 7.0, 100.0, 511.0];
const SHIFTS: [f64; 6] = [0.0, 1.0, 37.0, 1000.0, 65_025.0, 65_536.0];
/// Positions of two rotations, one after the other.
const OUTER: [f64; 5] = [1.0, 7.0, 511.0, 4096.0, 65_536.0];
const INNER: [f64; 5] = [2.0, 100.0, 1023.0, 65_000.0, 511.0];

/// Rotates random vectors by the hooks of an encoding.
struct Rotator<'a> {
    subject: &'a Subject,
    encoding: &'a Encoding,
    device: &'a Device,
    /// Leading dimensions of a head that are rotated.
    rotated: usize,
    /// The attention factor, which rotations multiply by.
    factor: f64,
    /// One length for all rotations: scalings that read it use the same frequencies everywhere.
    top: f64,
}

/// Measures all three properties.
///
/// # Errors
///
/// [`Exit::Bug`](support::exit::Exit::Bug): a hook returned a tensor that cannot be read.
pub fn checks(
    subject: &Subject,
    encoding: &Encoding,
    rotated: usize,
    factor: f64,
    device: &Device,
) -> Result<Vec<Check>, Failure> {
    let positions = shifted_positions();
    let last = subject.lengths.test_len as f64 - 1.0;
    let rotator = Rotator {
        subject,
        encoding,
        device,
        rotated,
        factor,
        top: positions.iter().copied().chain(sums()).fold(last, f64::max),
    };
    let mut stream = Stream::new(SEED, "inspect", 0);
    let mut draw = || -> Vec<f32> {
        (0..VECTORS * subject.shape.head_dim)
            .map(|_| stream.normal() as f32)
            .collect()
    };
    let (q, k) = (draw(), draw());
    let (relative, norm) = rotator.relative_and_norm(&q, &k, &positions)?;
    let check = |name, worst: f64| Check {
        name,
        worst_relative_error: worst,
        allowed: ALLOWED,
        ok: worst <= ALLOWED,
    };
    Ok(vec![
        check("relative-position identity", relative),
        check("norm preservation", norm),
        check("group property R_m R_n = R_(m+n)", rotator.group(&q)?),
    ])
}

/// Every first position under every shift, shift by shift.
fn shifted_positions() -> Vec<f64> {
    let shifted = |shift: &f64| FIRST.map(|first| first + shift);
    SHIFTS.iter().flat_map(shifted).collect()
}

fn sums() -> Vec<f64> {
    OUTER.iter().zip(INNER).map(|(m, n)| m + n).collect()
}

impl Rotator<'_> {
    fn rotate(&self, side: Side, x: &[f32], positions: &[f64]) -> Result<Vec<f32>, Failure> {
        self.subject
            .turn(self.encoding, side, x, positions, self.top, self.device)
    }

    /// Every vector `count` times.
    fn repeated(&self, vectors: &[f32], count: usize) -> Vec<f32> {
        let vectors = vectors.chunks(self.subject.shape.head_dim);
        vectors.flat_map(|vector| vector.repeat(count)).collect()
    }

    /// Worst relative errors of dot products under a common shift, and of norms.
    fn relative_and_norm(
        &self,
        q: &[f32],
        k: &[f32],
        positions: &[f64],
    ) -> Result<(f64, f64), Failure> {
        let (head_dim, count) = (self.subject.shape.head_dim, positions.len());
        let rotated_q = self.rotate(Side::Query, &self.repeated(q, count), positions)?;
        let rotated_k = self.rotate(Side::Key, &self.repeated(k, count), positions)?;
        // `all` is [vectors, positions, head_dim], row-major.
        let rows = |all: &[f32], vector: usize| -> Vec<Vec<f32>> {
            all[vector * count * head_dim..][..count * head_dim]
                .chunks(head_dim)
                .map(<[f32]>::to_vec)
                .collect()
        };
        let (mut relative, mut norm) = (0f64, 0f64);
        for vector in 0..VECTORS {
            let (q_rows, k_rows) = (rows(&rotated_q, vector), rows(&rotated_k, vector));
            // Errors are relative to |q| |k|: a dot product itself may be close to 0.
            let scale = dot(&q_rows[0], &q_rows[0]).sqrt() * dot(&k_rows[0], &k_rows[0]).sqrt();
            for (i, j) in (0..FIRST.len()).flat_map(|i| (0..FIRST.len()).map(move |j| (i, j))) {
                let at = |shift: usize| {
                    // Rows lie shift by shift, as in `shifted_positions`.
                    let start = shift * FIRST.len();
                    dot(&q_rows[start + i], &k_rows[start + j])
                };
                relative = (1..SHIFTS.len())
                    .map(|shift| (at(shift) - at(0)).abs() / scale)
                    .fold(relative, f64::max);
            }
            for (rows, vectors) in [(&q_rows, q), (&k_rows, k)] {
                // Only the rotated dimensions are multiplied by the attention factor.
                let before = &vectors[vector * head_dim..][..self.rotated];
                let length = dot(before, before).sqrt() * self.factor;
                let norm_of = |row: &Vec<f32>| {
                    let row = &row[..self.rotated];
                    dot(row, row).sqrt()
                };
                norm = rows
                    .iter()
                    .map(|row| (norm_of(row) / length - 1.0).abs())
                    .fold(norm, f64::max);
            }
        }
        Ok((relative, norm))
    }

    /// Worst relative error of two rotations against one by the sum of their positions.
    fn group(&self, q: &[f32]) -> Result<f64, Failure> {
        let (head_dim, factor) = (self.subject.shape.head_dim, self.factor);
        let start = self.repeated(q, INNER.len());
        let inner = self.rotate(Side::Query, &start, &INNER)?;
        let twice = self.rotate(Side::Query, &inner, &OUTER)?;
        let once = self.rotate(Side::Query, &start, &sums())?;
        let mut group = 0f64;
        for ((twice, once), start) in twice
            .chunks(head_dim)
            .zip(once.chunks(head_dim))
            .zip(start.chunks(head_dim))
        {
            // Each rotation multiplies by the attention factor: two of them by its square.
            let apart = twice[..self.rotated]
                .iter()
                .zip(&once[..self.rotated])
                .map(|(a, b)| f64::from(*a) / (factor * factor) - f64::from(*b) / factor);
            let apart = apart.map(|d| d * d).sum::<f64>().sqrt();
            let start = &start[..self.rotated];
            group = group.max(apart / dot(start, start).sqrt());
        }
        Ok(group)
    }
}
