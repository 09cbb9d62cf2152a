//! Matrix products of `longreach-kernels`, `gemm` and `faer` in turn, one thread, f32, row-major:
//! medians of GFLOP/s over rounds, and the share of a loop of multiply-adds without memory access.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use longreach_kernels::bench;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 15;

/// n, k, m of `[n, k] [k, m]`: linear layers on 128 rows, and attention's products of one head.
const SHAPES: [[usize; 3]; 9] = [
    [128, 128, 384],
    [128, 128, 128],
    [128, 128, 512],
    [128, 512, 128],
    [128, 64, 256],
    [128, 32, 128],
    [128, 128, 32],
    [128, 16, 128],
    [512, 512, 512],
];

fn noise(n: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state as f32 / u32::MAX as f32 - 0.5
    };
    (0..n).map(|_| next()).collect()
}

/// GFLOP/s of `repeats` calls of `work`, `flops` each.
fn speed(repeats: usize, flops: usize, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..repeats {
        work();
    }
    (repeats * flops) as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn with_gemm(a: &[f32], b: &[f32], y: &mut [f32], [n, k, m]: [usize; 3]) {
    assert!(a.len() == n * k && b.len() == k * m && y.len() == n * m);
    // SAFETY: the three matrices are row-major, as long as asserted above, and do not overlap.
    unsafe {
        gemm::gemm(
            n,
            m,
            k,
            y.as_mut_ptr(),
            1,
            m as isize,
            false,
            a.as_ptr(),
            1,
            k as isize,
            b.as_ptr(),
            1,
            m as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

fn with_faer(a: &[f32], b: &[f32], y: &mut [f32], [n, k, m]: [usize; 3]) {
    matmul(
        MatMut::from_row_major_slice_mut(y, n, m),
        Accum::Replace,
        MatRef::from_row_major_slice(a, n, k),
        MatRef::from_row_major_slice(b, k, m),
        1.0,
        Par::Seq,
    );
}

fn main() {
    let mut peaks: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            bench::multiply_adds(4_000_000) as f64 / start.elapsed().as_secs_f64() / 1e9
        })
        .collect();
    let peak = median(&mut peaks);
    println!("multiply-adds without memory access: {peak:.0} GFLOP/s\n");
    println!("| n, k, m | ours | `gemm` | `faer` | ours / best | ours / peak |");
    println!("|---|---|---|---|---|---|");
    for shape @ [n, k, m] in SHAPES {
        let (a, b) = (noise(n * k), noise(k * m));
        let mut panels = vec![0.0; bench::packed_len(k, m)];
        let mut results = [(); 3].map(|()| vec![0.0; n * m]);
        let flops = 2 * n * k * m;
        let repeats = (200_000_000 / flops).max(1);
        let mut speeds = [(); 3].map(|()| Vec::new());
        for _ in 0..ROUNDS {
            let [ours, theirs, faers] = &mut results;
            speeds[0].push(speed(repeats, flops, || {
                bench::gemm(black_box(&a), &b, ours, shape, &mut panels);
            }));
            speeds[1].push(speed(repeats, flops, || {
                with_gemm(black_box(&a), &b, theirs, shape);
            }));
            speeds[2].push(speed(repeats, flops, || {
                with_faer(black_box(&a), &b, faers, shape);
            }));
        }
        let [ours, rest @ ..] = &results;
        for other in rest {
            let close = ours.iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-3);
            assert!(close, "all three compute the same product");
        }
        let [ours, gemm, faer] = speeds.each_mut().map(|values| median(values));
        println!(
            "| {n}, {k}, {m} | {ours:.0} | {gemm:.0} | {faer:.0} | {:.2} | {:.2} |",
            ours / gemm.max(faer),
            ours / peak
        );
    }
}
