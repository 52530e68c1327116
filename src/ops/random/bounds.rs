//! The integers and bounds that a dtype can hold.

use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::ops::error;
use crate::plan::error::does_not_fit;

/// The integers to draw from: `count` of them, starting at `low`.
#[derive(Clone, Copy)]
pub struct Whole {
    pub low: i64,
    /// As the bits of a `u64`.
    pub count: u64,
}

impl Whole {
    /// From `low` up to but excluding `high`; `at` are their arguments. Both ends must fit the dtype. For a float
    /// dtype, the range is narrowed to integers that the dtype holds exactly, so that no result is rounded to a number
    /// outside. Source: `random_from_to` in ATen's `DistributionTemplates.h`.
    pub fn between(name: &str, dtype: Dtype, low: i64, high: i64, at: [usize; 2]) -> Result<Whole> {
        if low >= high {
            let message = format!("there is no whole number from `{low}` to `{high}`, excluding `{high}`");
            return Err(error::bad_value(at[1], message, "make `high` greater than `low`"));
        }
        let last = high - 1;
        if dtype.is_complex() {
            return Err(error::not_for_dtype(name, dtype, &[]));
        }
        let (least, most) = match dtype.is_float() {
            false => ends(dtype),
            true => (-dtype.greatest() as i64, dtype.greatest() as i64),
        };
        for (index, bound) in [(at[0], low), (at[1], last)] {
            if bound < least || bound > most {
                return Err(does_not_fit(index, Scalar::Int(bound), dtype));
            }
        }
        let (first, last) = match dtype.is_float() {
            false => (i128::from(low), i128::from(last)),
            true => (-held_below(-i128::from(low), dtype), held_below(i128::from(last), dtype)),
        };
        if first > last {
            let message =
                format!("{dtype} holds no whole number from `{low}` to `{high}`, excluding `{high}`");
            return Err(error::bad_value(at[1], message, "write a wider dtype, such as `dtype=f64`"));
        }
        Ok(Whole { low: first as i64, count: (last - first + 1) as u64 })
    }

    /// All integers from 0 on that the dtype holds; for floats, up to the first gap.
    pub fn all(name: &str, dtype: Dtype) -> Result<Whole> {
        let count = match dtype {
            dtype if dtype.is_complex() => return Err(error::not_for_dtype(name, dtype, &[])),
            dtype if dtype.is_float() => (1 << dtype.digits()) + 1,
            dtype => ends(dtype).1 as u64 + 1,
        };
        Ok(Whole { low: 0, count })
    }
}

/// The minimum and maximum of an integer dtype or of `bool`.
fn ends(dtype: Dtype) -> (i64, i64) {
    dtype.range().unwrap_or((i64::MIN, i64::MAX))
}

/// The largest integer up to `bound` that a float dtype holds exactly.
fn held_below(bound: i128, dtype: Dtype) -> i128 {
    let gap = bound.unsigned_abs().checked_ilog2().unwrap_or(0).saturating_sub(dtype.digits() - 1);
    bound.div_euclid(1 << gap) * (1 << gap)
}

/// Checks that the dtype can represent `count` distinct numbers, as a permutation needs.
pub fn check_permutation(name: &str, dtype: Dtype, count: usize) -> Result<()> {
    if dtype == Dtype::Bool || dtype.is_complex() {
        return Err(error::not_for_dtype(name, dtype, &[]));
    }
    let held = Whole::all(name, dtype)?.count;
    if count as u64 <= held {
        return Ok(());
    }
    let message = format!("{dtype} cannot hold {count} different whole numbers from 0 on, only {held}");
    Err(error::bad_value(0, message, "write a wider dtype, such as `dtype=i64`"))
}
