// A recurrent layer with few weights, f32: a block computes its rows for all steps, so that a step passes nothing to another
// block. Thread c has column c of the matrix, the first HELD elements in registers; the others are in the first cache after
// the first step. Sums are in ascending order by fused multiply-add, as in tiny.cu.
//
// p.w: 0 the matrix, contiguous, 1 steps, 2 rows, 3 one if the last step comes first, then the numbers, then for each view of
// the launch from the second on: address, and the bytes from one step, row and unit to the next.

struct Params { u64 w[@WORDS@]; };
#define ROWS @ROWS@
#define INNER @INNER@
#define COLUMNS @COLUMNS@
#define WIDTH @WIDTH@
#define HELD @HELD@
// Elements of the results per thread.
#define EACH ((ROWS * WIDTH + COLUMNS - 1) / COLUMNS)
// Whether a thread loads its operands before the product of the step.
#define AHEAD @AHEAD@

@ADD_PRODUCT@
@FUNCTIONS@
INLINE u64 address(const Params& p, int word, i64 step, u32 row, u32 unit) {
    return p.w[word] + (u64)step * p.w[word + 1] + row * p.w[word + 2] + unit * p.w[word + 3];
}

extern "C" __global__ void __launch_bounds__(COLUMNS) recurrent(const __grid_constant__ Params p) {
    __shared__ __align__(16) float left[ROWS][(INNER + 3) / 4 * 4];
    __shared__ float product[ROWS][COLUMNS];
    const u32 column = threadIdx.x, first = blockIdx.x * ROWS, rows = (u32)p.w[2];
    const float* matrix = memory<const float>(p.w[0]);
    float held[HELD];
#pragma unroll
    for (int i = 0; i < HELD; i++) held[i] = matrix[i * COLUMNS + column];
    for (u32 at = column; at < ROWS * INNER; at += COLUMNS) {
        const u32 r = at / INNER, i = at % INNER;
        left[r][i] = first + r < rows ? *memory<const float>(address(p, @LEFT@, 0, first + r, i)) : 0.0f;
    }
    const u64 steps = p.w[1];
    const bool reverse = p.w[3] != 0;
#pragma unroll 1
    for (u64 number = 0; number < steps; number++) {
        const i64 now = reverse ? steps - 1 - number : number, before = reverse ? now + 1 : now - 1;
        const bool is_first = number == 0;
#if AHEAD
        const u32 r = column / WIDTH, unit = column % WIDTH, row = first + r;
        const bool is_there = r < ROWS && row < rows;
@DECLARED@
        if (is_there) {
@LOADED@
        }
#endif
        __syncthreads();
        float sum[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) sum[r] = 0.0f;
#pragma unroll
        for (int i = 0; i < HELD; i++) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) sum[r] = add_product(left[r][i], held[i], sum[r]);
        }
#pragma unroll 8
        for (int i = HELD; i < INNER; i++) {
            const float weight = matrix[i * COLUMNS + column];
#pragma unroll
            for (int r = 0; r < ROWS; r++) sum[r] = add_product(left[r][i], weight, sum[r]);
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) product[r][column] = sum[r];
        __syncthreads();
#if AHEAD
        if (is_there) {
@CODE@
        }
#else
#pragma unroll 1
        for (u32 at = column; at < ROWS * WIDTH; at += COLUMNS) {
            const u32 r = at / WIDTH, unit = at % WIDTH, row = first + r;
            if (row >= rows) break;
@DECLARED@
@LOADED@
@CODE@
        }
#endif
    }
}
