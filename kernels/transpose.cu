// Elementwise programs with views that are contiguous along another dimension than the innermost one (`y` and
// `x` here). Such views go through shared memory in tiles of TILE x TILE elements, so that every access to
// device memory is coalesced.
//
// p.w: 0 extent of x, 1 extent of y, 2 tiles along x, 3 tiles along y, then the layout from kernel/kinds.

struct Params { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
#define TILE @TILE@
#define ROWS (256 / TILE)
#define STEPS (TILE / ROWS)

@FUNCTIONS@
extern "C" __global__ void __launch_bounds__(256) transpose(const __grid_constant__ Params p) {
@SHARED@
    const u32 lane = threadIdx.x % TILE, row = threadIdx.x / TILE;
    const u32 across = blockIdx.x % (u32)p.w[2], down = blockIdx.x / (u32)p.w[2];
    const Index outer = down / (u32)p.w[3];
    const Index first_x = (Index)across * TILE, first_y = (Index)(down % (u32)p.w[3]) * TILE;
    const Index end_x = (Index)p.w[0], end_y = (Index)p.w[1];
@OUTER@
    {
        const Index y = first_y + lane;
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            const u32 line = row + i * ROWS;
            const Index x = first_x + line;
            if (x < end_x && y < end_y) {
@TRANSPOSED_LOADS@
            }
        }
    }
    __syncthreads();
    {
        const Index x = first_x + lane;
@REGISTERS@
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            const Index y = first_y + row + i * ROWS;
            if (x < end_x && y < end_y) {
@LOADS@
            }
        }
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            const u32 line = row + i * ROWS;
            const Index y = first_y + line;
            if (x < end_x && y < end_y) {
@ELEMENT@
            }
        }
    }
#if @STORES_TRANSPOSED@
    __syncthreads();
    const Index y = first_y + lane;
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        const u32 line = row + i * ROWS;
        const Index x = first_x + line;
        if (x < end_x && y < end_y) {
@TRANSPOSED_STORES@
        }
    }
#endif
}
