//! The matrix unit (AMX) of newer x86 server processors: products of tiles of bfloat16 pairs,
//! summed in `f32`.
//!
//! The only `unsafe` code of this project: these instructions have no safe form. `bf16_product`
//! calls them, and `emulated` gives the same bits in `f32` arithmetic.
#![cfg_attr(
    all(target_arch = "x86_64", target_os = "linux"),
    expect(unsafe_code, reason = "AMX instructions have no safe form")
)]

/// Rows of a tile; pairs per row of a left-hand tile; columns of a right-hand tile.
pub(crate) const SIDE: usize = 16;
/// Pairs in a tile.
pub(crate) const TILE: usize = SIDE * SIDE;

/// Where the sums of a pair of column strips lie: index of the first number of each, row strides.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub(crate) starts: [usize; 2],
    pub(crate) strides: [usize; 2],
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use linux::Unit;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) use nowhere::Unit;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod linux {
    use super::{Places, SIDE, TILE};
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    use std::cell::Cell;
    use std::marker::PhantomData;
    use std::sync::LazyLock;

    /// The unit, configured for this thread until it is dropped. Not `Send`.
    pub(crate) struct Unit(PhantomData<*mut ()>);

    thread_local! {
        /// Units that this thread has open: the last one that is dropped releases the tiles.
        static OPEN: Cell<usize> = const { Cell::new(0) };
    }

    /// What `ldtilecfg` reads: eight tiles of 16 rows of 64 bytes.
    #[repr(C, align(64))]
    struct Layout {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        bytes: [u16; 16],
        rows: [u8; 16],
    }

    static LAYOUT: Layout = {
        let (mut bytes, mut rows) = ([0; 16], [0; 16]);
        let mut tile = 0;
        while tile < 8 {
            bytes[tile] = 4 * SIDE as u16;
            rows[tile] = SIDE as u8;
            tile += 1;
        }
        Layout {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            bytes,
            rows,
        }
    };

    /// Whether the processor has the unit and the operating system permits its use.
    static USABLE: LazyLock<bool> = LazyLock::new(|| {
        const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
        if __cpuid(0).eax < 7 || __cpuid_count(7, 0).edx & BF16_AND_TILES != BF16_AND_TILES {
            return false;
        }
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        // SAFETY: this system call takes two integers and only permits the threads of this process
        // to use tile state. Unknown to the kernel, or without the unit, it returns an error.
        unsafe {
            libc::syscall(
                libc::SYS_arch_prctl,
                ARCH_REQ_XCOMP_PERM,
                XFEATURE_XTILEDATA,
            ) == 0
        }
    });

    impl Unit {
        /// The unit, if this machine has one.
        pub(crate) fn open() -> Option<Self> {
            if !*USABLE {
                return None;
            }
            OPEN.with(|open| open.set(open.get() + 1));
            // SAFETY: the unit exists and is permitted, and the configuration is valid by the
            // manual. It is the same for all units of a thread, none of which leaves data in the
            // tiles between calls, so that opening a second one changes nothing for the first.
            unsafe {
                asm!("ldtilecfg [{}]", in(reg) &raw const LAYOUT, options(nostack, readonly, preserves_flags))
            };
            Some(Self(PhantomData))
        }

        /// Adds `a b` to 32 x 32 sums at `places` in `c`, which start from 0 if `fresh`.
        ///
        /// `a` and `b` hold the same number of blocks of summed indices, `P` x 2 tiles each.
        ///
        /// # Panics
        ///
        /// If `a` and `b` are no such blocks, or `places` reach past `c`.
        #[expect(
            clippy::too_many_lines,
            reason = "one assembly block, and the macros that write it"
        )]
        pub(crate) fn sum<const P: usize>(
            &self,
            a: &[u32],
            b: &[u32],
            c: &mut [f32],
            places: Places,
            fresh: bool,
        ) {
            let block = 2 * P * TILE;
            let blocks = a.len() / block;
            assert!(
                blocks > 0 && a.len() == blocks * block && a.len() == b.len(),
                "as many blocks of tiles on both sides"
            );
            for (start, stride) in places.starts.into_iter().zip(places.strides) {
                let rows = stride.checked_mul(2 * SIDE - 1);
                let end = rows.and_then(|rows| rows.checked_add(start)?.checked_add(SIDE));
                assert!(
                    end.is_some_and(|end| end <= c.len()),
                    "a place for every sum"
                );
            }
            // Both pointers from one borrow: a second borrow would invalidate the first.
            let base = c.as_mut_ptr();
            let [first, second] = places.starts.map(|start| base.wrapping_add(start));
            let [first_stride, second_stride] = places.strides.map(|stride| 4 * stride);
            let lower = |start: *mut f32, stride: usize| start.wrapping_byte_add(SIDE * stride);
            macro_rules! run {
                ($block:literal, $($line:expr),+) => {
                    // SAFETY: tiles are configured, because `self` exists, cannot leave its thread,
                    // and the last unit of a thread releases them. Loads of `a` and `b` stay inside
                    // `blocks` blocks of `2 P` KiB. Sums are read and written in 32 rows of 16
                    // numbers from each start, inside `c` as asserted above, which is borrowed
                    // mutably. Nothing else is written.
                    unsafe {
                        asm!(
                            "test {fresh:e}, {fresh:e}",
                            "jz 2f",
                            "tilezero tmm0",
                            "tilezero tmm1",
                            "tilezero tmm2",
                            "tilezero tmm3",
                            "jmp 3f",
                            "2:",
                            "tileloadd tmm0, [{c0} + {s0}]",
                            "tileloadd tmm1, [{c1} + {s1}]",
                            "tileloadd tmm2, [{d0} + {s0}]",
                            "tileloadd tmm3, [{d1} + {s1}]",
                            "3:",
                            $($line,)+
                            concat!("add {a}, ", $block),
                            concat!("add {b}, ", $block),
                            "dec {count}",
                            "jnz 3b",
                            "tilestored [{c0} + {s0}], tmm0",
                            "tilestored [{c1} + {s1}], tmm1",
                            "tilestored [{d0} + {s0}], tmm2",
                            "tilestored [{d1} + {s1}], tmm3",
                            fresh = in(reg) u32::from(fresh),
                            c0 = in(reg) first,
                            c1 = in(reg) second,
                            d0 = in(reg) lower(first, first_stride),
                            d1 = in(reg) lower(second, second_stride),
                            s0 = in(reg) first_stride,
                            s1 = in(reg) second_stride,
                            a = inout(reg) a.as_ptr() => _,
                            b = inout(reg) b.as_ptr() => _,
                            line = in(reg) 4 * SIDE,
                            count = inout(reg) blocks => _,
                            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                            options(nostack),
                        )
                    }
                };
            }
            // Tiles 0 to 3 are the sums, 4 and 5 the upper and lower rows of a part of `a`, 6 and 7
            // the two strips of a part of `b`. The products follow `bf16_product::part_pairs`;
            // tiles that the next product shares are not loaded again.
            macro_rules! left {
                ($part:literal) => {
                    concat!(
                        "tileloadd tmm4, [{a} + {line} + 2048 * ",
                        $part,
                        "]\ntileloadd tmm5, [{a} + {line} + 2048 * ",
                        $part,
                        " + 1024]"
                    )
                };
            }
            macro_rules! right {
                ($part:literal) => {
                    concat!(
                        "tileloadd tmm6, [{b} + {line} + 2048 * ",
                        $part,
                        "]\ntileloadd tmm7, [{b} + {line} + 2048 * ",
                        $part,
                        " + 1024]"
                    )
                };
            }
            macro_rules! add {
                () => {
                    "tdpbf16ps tmm0, tmm4, tmm6\ntdpbf16ps tmm1, tmm4, tmm7\ntdpbf16ps tmm2, tmm5, \
                     tmm6\ntdpbf16ps tmm3, tmm5, tmm7"
                };
            }
            match P {
                1 => run!("2048", left!(0), right!(0), add!()),
                2 => run!(
                    "4096",
                    left!(0),
                    right!(1),
                    add!(),
                    right!(0),
                    add!(),
                    left!(1),
                    add!()
                ),
                3 => run!(
                    "6144",
                    left!(0),
                    right!(2),
                    add!(),
                    right!(1),
                    add!(),
                    left!(1),
                    add!(),
                    right!(0),
                    add!(),
                    left!(2),
                    add!(),
                    left!(0),
                    add!()
                ),
                _ => unreachable!("one to three parts"),
            }
        }
    }

    impl Drop for Unit {
        fn drop(&mut self) {
            let others = OPEN.with(|open| open.replace(open.get() - 1) - 1);
            if others > 0 {
                return;
            }
            // SAFETY: releases the configuration of `open`, which no unit of this thread needs any
            // more; no call leaves data in the tiles.
            unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod nowhere {
    use super::Places;

    /// No machine of this kind has the unit, or no system here lets programs use it.
    pub(crate) enum Unit {}

    impl Unit {
        pub(crate) fn open() -> Option<Self> {
            None
        }

        pub(crate) fn sum<const P: usize>(
            &self,
            _: &[u32],
            _: &[u32],
            _: &mut [f32],
            _: Places,
            _: bool,
        ) {
            match *self {}
        }
    }
}
