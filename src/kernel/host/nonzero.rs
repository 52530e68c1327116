//! The positions of non-zero elements: first counts per block, then writes.

use super::element::Element;
use super::gather::element;
use super::map::PARALLEL;
use super::tasks::{self, Until};
use crate::array::{Dtype, dispatch};
use crate::kernel::Launch;
use rayon::prelude::*;

/// Elements per block.
const BLOCK: usize = 16 << 10;

/// Finds the positions.
///
/// # Safety
/// The launch upholds its invariant, and nothing else writes the memory it reads during the call.
pub(in crate::kernel) unsafe fn run(dtype: Dtype, launch: &Launch) {
    // SAFETY: guaranteed by the caller.
    dispatch!(dtype, M => unsafe { typed::<M>(launch) });
}

unsafe fn typed<M: Element>(launch: &Launch)
where
    M::Lane: PartialEq,
{
    let count: usize = launch.shape.iter().product();
    let is_set = |i: usize| {
        // SAFETY: the element lies in the input.
        let value = unsafe { element::<M>(&launch.views[0]).wrapping_add(i).read_unaligned() };
        value.widen() != M::Lane::default()
    };
    let block = |number: usize| number * BLOCK..((number + 1) * BLOCK).min(count);
    let write = |mut place: usize, number: usize| {
        for i in block(number).filter(|&i| is_set(i)) {
            // SAFETY: the output has as many elements as the input.
            unsafe { element::<i64>(&launch.views[1]).wrapping_add(place).write_unaligned(i as i64) };
            place += 1;
        }
        place
    };
    let blocks = count.div_ceil(BLOCK);
    let until = Until::now();
    let total = if count < PARALLEL {
        (0..blocks).fold(0, write)
    } else {
        let count_of = |number: usize| match until.ended() {
            true => 0,
            false => block(number).filter(|&i| is_set(i)).count(),
        };
        let counts: Vec<usize> = (0..blocks).into_par_iter().map(count_of).collect();
        if until.ended() {
            return;
        }
        let starts: Vec<usize> = counts
            .iter()
            .scan(0, |sum, &n| {
                let start = *sum;
                *sum += n;
                Some(start)
            })
            .collect();
        tasks::each(blocks, true, |number| {
            write(starts[number], number);
        });
        counts.iter().sum()
    };
    // SAFETY: the view of the count has one element.
    unsafe { element::<i64>(&launch.views[2]).write_unaligned(total as i64) };
}
