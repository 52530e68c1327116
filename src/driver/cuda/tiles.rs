//! Tensor maps: descriptions of matrices from which kernels copy boxes to shared memory.

use super::context::check;
use crate::base::Result;
use crate::kernel::cuda::Operand;
use cudarc::driver::sys::{self, CUtensorMapDataType};

/// Bytes of an element.
const HALF: u64 = 2;

/// The tensor map of a matrix of halves, `[rows, columns]`, for boxes of `lines` by `elements` of a line. A line has 128
/// bytes, permuted so that reads of a column of lines have no bank conflicts. Elements outside of the matrix are 0.
pub(super) fn tensor_map(
    operand: &Operand,
    [rows, columns]: [usize; 2],
    [lines, elements]: [usize; 2],
) -> Result<[u64; 16]> {
    let (inner, outer) = if operand.transposed { (rows, columns) } else { (columns, rows) };
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    let (extents, distance) = ([inner as u64, outer as u64], [operand.leading as u64 * HALF]);
    let (lines, steps) = ([elements as u32, lines as u32], [1, 1]);
    // SAFETY: the arrays have as many elements as the rank requires. The driver checks addresses, extents and distances.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            // Boxes are copied, so any type of this size will do.
            CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
            2,
            operand.ptr as *mut _,
            extents.as_ptr(),
            distance.as_ptr(),
            lines.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    check(result, "cuTensorMapEncodeTiled").map(|()| map.opaque)
}
