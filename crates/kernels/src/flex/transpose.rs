//! Transposing squares of 16 x 16 elements in registers.

/// Rows and columns of the squares that [`transpose`] works on.
pub(crate) const SQUARE: usize = 16;

/// Transposes squares of 32-bit elements in place. They start at a cache line.
pub(crate) fn transpose(squares: &mut [[u32; SQUARE * SQUARE]]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V4::try_new() {
        return simd.vectorize(Transpose { simd, squares });
    }
    for square in squares {
        let before = *square;
        for (at, x) in square.iter_mut().enumerate() {
            *x = before[at % SQUARE * SQUARE + at / SQUARE];
        }
    }
}

/// The same with AVX-512: pairs of rows are interleaved, then pairs of pairs, and so on.
#[cfg(target_arch = "x86_64")]
struct Transpose<'a> {
    simd: pulp::x86::V4,
    squares: &'a mut [[u32; SQUARE * SQUARE]],
}

#[cfg(target_arch = "x86_64")]
impl pulp::NullaryFnOnce for Transpose<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let simd = self.simd.avx512f;
        for square in self.squares {
            let rows: &mut [std::arch::x86_64::__m512i] = bytemuck::cast_slice_mut(square);
            let mut x: [_; SQUARE] = std::array::from_fn(|i| rows[i]);
            for i in (0..SQUARE).step_by(2) {
                (x[i], x[i + 1]) = (
                    simd._mm512_unpacklo_epi32(x[i], x[i + 1]),
                    simd._mm512_unpackhi_epi32(x[i], x[i + 1]),
                );
            }
            for i in (0..SQUARE).step_by(4) {
                let [a, b, c, d] = [x[i], x[i + 1], x[i + 2], x[i + 3]];
                x[i] = simd._mm512_unpacklo_epi64(a, c);
                x[i + 1] = simd._mm512_unpackhi_epi64(a, c);
                x[i + 2] = simd._mm512_unpacklo_epi64(b, d);
                x[i + 3] = simd._mm512_unpackhi_epi64(b, d);
            }
            // In every four rows, quarter q of row i now holds column 4 q + i of those rows.
            for i in 0..4 {
                let [a, b, c, d] = [x[i], x[4 + i], x[8 + i], x[12 + i]];
                let [even_low, odd_low] = [
                    simd._mm512_shuffle_i32x4::<0x88>(a, b),
                    simd._mm512_shuffle_i32x4::<0xdd>(a, b),
                ];
                let [even_high, odd_high] = [
                    simd._mm512_shuffle_i32x4::<0x88>(c, d),
                    simd._mm512_shuffle_i32x4::<0xdd>(c, d),
                ];
                rows[i] = simd._mm512_shuffle_i32x4::<0x88>(even_low, even_high);
                rows[4 + i] = simd._mm512_shuffle_i32x4::<0x88>(odd_low, odd_high);
                rows[8 + i] = simd._mm512_shuffle_i32x4::<0xdd>(even_low, even_high);
                rows[12 + i] = simd._mm512_shuffle_i32x4::<0xdd>(odd_low, odd_high);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flex::buffer_pool::Buffer;

    #[test]
    fn squares_are_transposed() {
        let mut buffer = Buffer::new(2 * SQUARE * SQUARE);
        buffer
            .iter_mut()
            .enumerate()
            .for_each(|(i, x)| *x = i as f32);
        let before = buffer.to_vec();
        transpose(
            bytemuck::cast_slice_mut::<f32, u32>(&mut buffer)
                .as_chunks_mut()
                .0,
        );
        for (square, before) in buffer
            .chunks(SQUARE * SQUARE)
            .zip(before.chunks(SQUARE * SQUARE))
        {
            assert!(
                (0..SQUARE * SQUARE)
                    .all(|at| square[at] == before[at % SQUARE * SQUARE + at / SQUARE])
            );
        }
    }
}
