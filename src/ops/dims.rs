//! Dimensions as users write them: counted from 0, or from the end when negative.

use super::error;
use crate::base::Result;
use smallvec::SmallVec;

/// One dimension. `index` is the argument, for errors. A tensor without dimensions accepts 0 and -1.
pub fn one(index: usize, dim: i64, rank: usize) -> Result<usize> {
    let extent = rank.max(1) as i64;
    let from_start = if dim < 0 { dim.checked_add(extent) } else { Some(dim) };
    match from_start.filter(|d| (0..extent).contains(d)) {
        Some(d) => Ok(d as usize),
        None => Err(error::no_such_dim(index, dim, rank)),
    }
}

/// Several distinct dimensions, in ascending order; all dimensions if none are given. Empty for a tensor
/// without dimensions.
pub fn many(index: usize, dims: Option<&[i64]>, rank: usize) -> Result<SmallVec<[usize; 6]>> {
    let Some(dims) = dims.filter(|dims| !dims.is_empty()) else { return Ok((0..rank).collect()) };
    let mut found = SmallVec::new();
    for &dim in dims {
        let dim = one(index, dim, rank)?;
        if found.contains(&dim) {
            return Err(error::dim_twice(index, dim));
        }
        found.push(dim);
    }
    found.sort_unstable();
    if rank == 0 {
        found.clear();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_dimensions_count_from_the_end() {
        assert_eq!(one(0, -1, 3).unwrap(), 2);
        assert_eq!(one(0, 0, 0).unwrap(), 0);
        assert_eq!(one(0, 3, 3).unwrap_err().code().id, "E0405");
        assert!(one(0, i64::MIN, 3).is_err());
        assert_eq!(many(0, Some(&[-1, 0]), 3).unwrap().as_slice(), [0, 2]);
        assert_eq!(many(0, None, 2).unwrap().as_slice(), [0, 1]);
        assert!(many(0, Some(&[1, -1]), 2).is_err());
        assert!(many(0, Some(&[0]), 0).unwrap().is_empty());
    }
}
