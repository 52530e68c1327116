//! The kernels that scatters queue.

#![cfg(test)]

use super::*;
use crate::kernel::{Program, View};
use crate::ops::folds::{AMAX, SUM};
use crate::ops::reduce::PROD;
use smallvec::smallvec;
use std::sync::Arc;

/// The unit of a scatter of rows of 512 elements, from an address, with these steps.
fn unit(dtype: Dtype, f: Option<&'static ReduceFn>, ptr: u64, index: [isize; 2], out: [isize; 2]) -> usize {
    let kind = Scatter { dtype, f };
    let view = |ptr, dtype, steps: [isize; 2]| View::new(ptr, dtype, steps.as_slice().into());
    let views = [view(ptr, dtype, [512, 1]), view(0, Dtype::I64, index), view(0, dtype, out)];
    let launch = Launch {
        limit: 900,
        ..Launch::new(Arc::new(Program::new(&kind)), smallvec![300, 512], views.into_iter().collect())
    };
    let [.., own, _] = kind.signature(&launch).fields(FIELDS);
    let [.., general, _] = kind.general(&launch).unwrap().fields(FIELDS);
    assert_eq!(own, general);
    let units = in_units(&launch, 1 << own);
    assert_eq!(targets(&units, &[0, 1]) << own, targets(&launch, &[0, 1]).next_multiple_of(1 << own));
    1 << own
}

#[test]
fn rows_are_claimed_in_units_of_16_bytes() {
    let rows = [[1, 0], [512, 1]];
    let of = |dtype, f| unit(dtype, f, 0, rows[0], rows[1]);
    assert_eq!([Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::I64].map(|d| of(d, None)), [16, 8, 4, 2]);
    // Other layouts and addresses use single elements.
    assert_eq!(unit(Dtype::BF16, None, 8, rows[0], rows[1]), 1);
    assert_eq!(unit(Dtype::BF16, None, 16, rows[0], rows[1]), 8);
    assert_eq!(unit(Dtype::BF16, None, 0, [512, 1], rows[1]), 1);
    assert_eq!(unit(Dtype::BF16, None, 0, rows[0], [516, 1]), 1);
    assert_eq!(unit(Dtype::BF16, None, 0, rows[0], [1024, 2]), 1);
}

/// A queue that records its kernels.
#[derive(Default)]
struct Noted {
    /// The entry and the threads of each kernel.
    runs: Vec<(usize, u64)>,
    cleared: u64,
    scratch: u64,
}

impl Queue for Noted {
    fn run_grid(&mut self, entry: usize, grid: (u32, u32, u32), block: u32, _: &[u64]) -> Result<()> {
        self.runs.push((entry, u64::from(grid.0) * u64::from(block)));
        Ok(())
    }
    fn interpret(&mut self, _: &crate::kernel::cuda::interpret::Encoded) -> Result<bool> {
        Ok(false)
    }
    fn launch(&mut self, _: &Launch) -> Result<()> {
        Ok(())
    }
    fn multiply(&mut self, _: &crate::kernel::cuda::Product) -> Result<()> {
        Ok(())
    }
    fn run_tiles(&mut self, _: &crate::kernel::cuda::Tiles, _: &[u64]) -> Result<()> {
        Ok(())
    }
    fn transform(&mut self, _: &crate::kernel::cuda::Planned<'_>) -> Result<()> {
        Ok(())
    }
    fn clear(&mut self, _: u64, bytes: u64) -> Result<()> {
        self.cleared += bytes;
        Ok(())
    }
    fn scratch(&mut self, bytes: u64) -> Result<u64> {
        self.scratch += bytes;
        Ok(1 << 40)
    }
    fn fault_record(&self) -> u64 {
        0
    }
    fn fault_stamp(&self, _: u32) -> u64 {
        0
    }
}

/// The kernels of a scatter of a vector, by its own kernel and by the general one.
fn asked(dtype: Dtype, f: Option<&'static ReduceFn>, count: usize, limit: usize, step: isize) -> [Noted; 2] {
    let kind = Scatter { dtype, f };
    let view = |dtype, step| View::new(1 << 20, dtype, smallvec![step]);
    let launch = Launch {
        limit,
        ..Launch::new(
            Arc::new(Program::new(&kind)),
            smallvec![count],
            smallvec![view(dtype, step), view(Dtype::I64, 1), view(dtype, 1)],
        )
    };
    [kind.signature(&launch), kind.general(&launch).unwrap()].map(|signature| {
        let mut noted = Noted::default();
        kind.enqueue(&launch, signature, &mut noted).unwrap();
        noted
    })
}

#[test]
fn few_sources_of_many_targets_are_all_that_is_visited() {
    for f in [None, Some(&SUM), Some(&PROD), Some(&AMAX)] {
        for dtype in [Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::I64, Dtype::U8] {
            for noted in asked(dtype, f, 1000, 4 << 20, 1) {
                assert!(noted.cleared <= 1 << 14, "{dtype} clears {}", noted.cleared);
                let most = noted.runs.iter().map(|run| run.1).max();
                // The sort has a block for each digit.
                assert!(most <= Some(1 << 16), "{dtype} {most:?}");
            }
        }
    }
    // One number for all targets needs no claims.
    for noted in asked(Dtype::F32, None, 1 << 20, 1000, 0) {
        assert_eq!((noted.runs.len(), noted.scratch), (1, 0));
    }
}

/// For any number of targets.
#[test]
fn combinations_in_order_have_many_threads() {
    for (dtype, f) in [(Dtype::F64, &SUM), (Dtype::F32, &PROD), (Dtype::BF16, &PROD), (Dtype::C64, &PROD)] {
        let count = 4 << 20;
        for (noted, first) in asked(dtype, Some(f), count, 1, 1).into_iter().zip([4, 1]) {
            let passes: Vec<u64> = noted.runs.iter().filter(|run| run.0 >= first).map(|run| run.1).collect();
            let chunk = u64::from(ordered::CHUNK);
            assert_eq!(passes.len(), 4, "{dtype} {passes:?}");
            assert!(passes[0] >= count as u64 && passes[1] >= count as u64 / chunk, "{passes:?}");
            assert!(passes[2] >= count as u64 / chunk / chunk, "{passes:?}");
        }
    }
}
