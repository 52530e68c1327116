//! The functions that compute random numbers from a position, a seed and an offset.

use crate::kernel::host::define::host_map;
use crate::kernel::{CudaText, MapFn, philox};

/// From position `a`, seed `b` and offset `c`: uniform with `d` binary digits.
pub static UNIFORM: MapFn = MapFn {
    name: "random_uniform",
    arity: 4,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "random_uniform(a, b, c, d)" },
    host: host_map!((a: i64, b: i64, c: i64, d: i64) -> f32: philox::uniform(a, b, c, d)),
    complex: None,
};

pub static UNIFORM_WIDE: MapFn = MapFn {
    name: "random_uniform_wide",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "random_uniform_wide(a, b, c)" },
    host: host_map!((a: i64, b: i64, c: i64) -> f64: philox::uniform_wide(a, b, c)),
    complex: None,
};

pub static NORMAL: MapFn = MapFn {
    name: "random_normal",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "random_normal(a, b, c)" },
    host: host_map!((a: i64, b: i64, c: i64) -> f32: philox::normal(a, b, c)),
    complex: None,
};

pub static NORMAL_WIDE: MapFn = MapFn {
    name: "random_normal_wide",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "random_normal_wide(a, b, c)" },
    host: host_map!((a: i64, b: i64, c: i64) -> f64: philox::normal_wide(a, b, c)),
    complex: None,
};

pub static EXPONENTIAL: MapFn = MapFn {
    name: "random_exponential",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "random_exponential(a, b, c)" },
    host: host_map!((a: i64, b: i64, c: i64) -> f32: philox::exponential(a, b, c)),
    complex: None,
};

pub static EXPONENTIAL_WIDE: MapFn = MapFn {
    name: "random_exponential_wide",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "random_exponential_wide(a, b, c)" },
    host: host_map!((a: i64, b: i64, c: i64) -> f64: philox::exponential_wide(a, b, c)),
    complex: None,
};

/// From position `a`, seed `b` and offset `c`: an integer below `d`.
pub static BELOW: MapFn = MapFn {
    name: "random_below",
    arity: 4,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "random_below(a, b, c, d)" },
    host: host_map!((a: i64, b: i64, c: i64, d: i64) -> i64: philox::below(a, b, c, d)),
    complex: None,
};
