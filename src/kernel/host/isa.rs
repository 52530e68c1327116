//! The instruction set that the host loops run with.
//!
//! Loops of [`host_map`](super::define) and the executors are compiled three times: for the baseline, AVX2 and AVX-512; a few
//! of them without AVX-512. Invariant: all versions give the same bits, since contraction is never enabled and no loop
//! reorders float arithmetic by vector width.

use std::sync::atomic::{AtomicU8, Ordering};

/// A level of the x86-64 instruction set. Other machines have only the baseline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Isa {
    /// Available on every machine of the target.
    Baseline = 1,
    /// AVX2, F16C, and FMA for code that uses `mul_add`.
    Avx2 = 2,
    /// AVX-512 F, BW, CD, DQ, VL.
    Avx512 = 3,
}

static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The highest level of this machine, detected once.
#[inline]
pub fn isa() -> Isa {
    match LEVEL.load(Ordering::Relaxed) {
        1 => Isa::Baseline,
        2 => Isa::Avx2,
        3 => Isa::Avx512,
        _ => detect(),
    }
}

#[cold]
fn detect() -> Isa {
    let level = machine();
    LEVEL.store(level as u8, Ordering::Relaxed);
    level
}

#[cfg(target_arch = "x86_64")]
fn machine() -> Isa {
    let avx2 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("fma");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (avx2, avx512) {
        (true, true) => Isa::Avx512,
        (true, false) => Isa::Avx2,
        _ => Isa::Baseline,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn machine() -> Isa {
    Isa::Baseline
}

/// Runs `f` once per level of this machine, lowest first. The level is global, but this does not affect
/// concurrent tests, since all levels give the same bits.
#[cfg(test)]
pub(crate) fn at_every_level(mut f: impl FnMut(Isa)) {
    for level in [Isa::Baseline, Isa::Avx2, Isa::Avx512] {
        if level <= machine() {
            LEVEL.store(level as u8, Ordering::Relaxed);
            f(level);
        }
    }
}

/// Compiles an `#[inline(always)]` function for every level and calls the one for this machine. Arguments are
/// written as `name: type = value`; generics come first.
///
/// ```text
/// multiversion!([T: Lane] fill_row(row: &mut [T] = row, value: T = value))
/// ```
macro_rules! multiversion {
    ($f:ident($($a:ident: $t:ty = $v:expr),* $(,)?) $(-> $r:ty)?) => {
        $crate::kernel::host::isa::multiversion!([] $f($($a: $t = $v),*) $(-> $r)?)
    };
    ([$($g:ident: $bound:path),*] $f:ident($($a:ident: $t:ty = $v:expr),* $(,)?) $(-> $r:ty)?) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
            fn avx2<$($g: $bound),*>($($a: $t),*) $(-> $r)? {
                $f::<$($g),*>($($a),*)
            }
            #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,fma,bmi1,bmi2,lzcnt,popcnt")]
            fn avx512<$($g: $bound),*>($($a: $t),*) $(-> $r)? {
                $f::<$($g),*>($($a),*)
            }
            match $crate::kernel::host::isa::isa() {
                // SAFETY: `isa` detected these features on this machine.
                $crate::kernel::host::isa::Isa::Avx512 => unsafe { avx512::<$($g),*>($($v),*) },
                // SAFETY: as above.
                $crate::kernel::host::isa::Isa::Avx2 => unsafe { avx2::<$($g),*>($($v),*) },
                $crate::kernel::host::isa::Isa::Baseline => $f::<$($g),*>($($v),*),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            $f::<$($g),*>($($v),*)
        }
    }};
}

/// [`multiversion`] without AVX-512, for loops that AVX-512 does not make faster. Processors without AVX2 run the second
/// function.
macro_rules! avx2_version {
    ($f:ident or $plain:ident($($a:ident: $t:ty = $v:expr),* $(,)?) $(-> $r:ty)?) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,f16c")]
            fn avx2($($a: $t),*) $(-> $r)? {
                $f($($a),*)
            }
            match $crate::kernel::host::isa::isa() {
                $crate::kernel::host::isa::Isa::Baseline => $plain($($v),*),
                // SAFETY: `isa` detected these features on this machine.
                _ => unsafe { avx2($($v),*) },
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            $f($($v),*)
        }
    }};
}

pub(crate) use {avx2_version, multiversion};
