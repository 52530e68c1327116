//! Reductions shared by several operations.

use super::arith::{ADD, DIV, MAXIMUM};
use super::logic::AND;
use crate::array::Class;
use crate::kernel::host::define::host_combine;
use crate::kernel::{CudaText, ReduceFn, Unrolled};

/// The sum; integers wrap.
pub static SUM: ReduceFn = ReduceFn {
    name: "sum",
    indexed: false,
    init: |_| 0,
    cuda: CudaText { f32: "a + b", f64: "a + b", i64: "(i64)((u64)a + (u64)b)" },
    host: host_combine!(float: |a, b| a + b, i64: |a, b| a.wrapping_add(b)),
    mean: false,
    unrolled: Some(Unrolled::Combined { f: &ADD, divide: None }),
};

/// The sum, divided by the number of elements.
pub static MEAN: ReduceFn = ReduceFn {
    name: "mean",
    mean: true,
    unrolled: Some(Unrolled::Combined { f: &ADD, divide: Some(&DIV) }),
    ..SUM
};

/// The maximum; nan if any element is nan.
pub static MAX: ReduceFn = ReduceFn {
    name: "max",
    indexed: false,
    init: |class| match class {
        Class::F32 => u64::from(f32::NEG_INFINITY.to_bits()),
        Class::I64 => i64::MIN as u64,
        _ => f64::NEG_INFINITY.to_bits(),
    },
    cuda: CudaText {
        f32: "(a != a || a > b ? a : b)",
        f64: "(a != a || a > b ? a : b)",
        i64: "(a > b ? a : b)",
    },
    host: host_combine!(float: |a, b| if a.is_nan() || a > b { a } else { b }, i64: |a, b| a.max(b)),
    mean: false,
    unrolled: Some(Unrolled::Combined { f: &MAXIMUM, divide: None }),
};

/// The maximum in any order: nan is greater than every number, and 0 is greater than -0. Scatters combine
/// with it.
pub static AMAX: ReduceFn = ReduceFn {
    name: "amax",
    cuda: CudaText {
        f32: "(a != a ? a : b != b ? NAN : a > b || (a == b && bits(a) < bits(b)) ? a : b)",
        f64: "(a != a ? a : b != b ? NAN : a > b || (a == b && bits(a) < bits(b)) ? a : b)",
        ..MAX.cuda
    },
    host: host_combine!(
        float: |a, b| match b.is_nan() {
            true => if a.is_nan() { a } else { b.abs() },
            false => if a.is_nan() || a.total_cmp(&b).is_gt() { a } else { b },
        },
        i64: |a, b| a.max(b),
    )
    .without_blocks(),
    unrolled: None,
    ..MAX
};

/// True if all elements are true; over `bool`.
pub static ALL: ReduceFn = ReduceFn {
    name: "all",
    indexed: false,
    init: |_| 1,
    cuda: CudaText { f32: "", f64: "", i64: "(a & b)" },
    host: host_combine!(i64: |a, b| a & b),
    mean: false,
    unrolled: Some(Unrolled::Combined { f: &AND, divide: None }),
};
