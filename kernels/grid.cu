// Elementwise programs over rows of x and columns of y, element by element. A thread computes STEPS elements of a
// row, 32 apart: the lanes of a load are adjacent, and its steps are a constant distance apart. The warps of a block
// compute neighbouring rows, so that what views of the same memory share stays in the cache of the multiprocessor.
//
// p.w: 0 extent of x, 1 extent of y, 2 rows of a warp, then the layout from kernel/kinds.

struct Params { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
typedef @SIGNED@ Offset;
#define WARPS 8
#define STEPS @STEPS@

@FUNCTIONS@
extern "C" __global__ void __launch_bounds__(32 * WARPS) grid(const __grid_constant__ Params p) {
    const Index end_x = (Index)p.w[0], end_y = (Index)p.w[1];
    const u32 rows = (u32)p.w[2];
    const Index left = (Index)blockIdx.x * (32 * STEPS), right = left + 32 * STEPS;
    const Index first = left + (threadIdx.x & 31);
    const Index outer = blockIdx.z;
@OUTER@
    // No view wraps between the elements of a thread or is cut along x, and all of the elements exist.
    const bool plain = right <= end_x@PLAIN@;
#pragma unroll 1
    for (u32 row = 0; row < rows; row++) {
        const Index y = ((Index)blockIdx.y * rows + row) * WARPS + (threadIdx.x >> 5);
        if (y >= end_y) return;
@ADDRESSES@
@REGISTERS@
        const bool clear = plain@WHOLE@;
        if (clear) {
#pragma unroll
            for (int u = 0; u < STEPS; u++) {
@LOADS@
            }
        } else {
#pragma unroll
            for (int u = 0; u < STEPS; u++) {
                const Index x = first + 32 * u;
                if (x < end_x) {
@WRAPPED_LOADS@
                }
            }
        }
#pragma unroll
        for (int u = 0; u < STEPS; u++) {
            const Index x = first + 32 * u;
            if (plain || x < end_x) {
                const i64 position = (i64)(((u64)outer * end_y + y) * end_x + x);
@ELEMENT@
            }
        }
    }
}
