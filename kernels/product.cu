// Products of floats and complex numbers where the library that multiplies is missing. A block computes TILE x TILE
// elements of the result, a thread 4 x 4 of them; sums are in ascending order, by fused multiply-add.
//
// p.w: 0 left, 1 right, 2 out, 3 m, 4 n, 5 k, 6 left's row stride, 7 column stride, 8 right's row stride, 9 column
// stride, 10 out's row stride, 11 products, 12 distance between left matrices, 13 right ones, 14 results; strides and
// distances in bytes; 15 number of the operands' dtype, 16 of the result's, 17 bytes of an element of the result.

struct Params { u64 w[18]; };
typedef @ACC@ Acc;
#define TILE 64
#define STEP 16

@DTYPES@
INLINE Acc load(const Params& p, u64 address) { return @LOAD@; }
INLINE void store(const Params& p, u64 address, Acc value) { @STORE@; }

@ADD_PRODUCT@
extern "C" __global__ void __launch_bounds__(256) product(const __grid_constant__ Params p) {
    __shared__ Acc left[STEP][TILE + 1], right[STEP][TILE + 1];
    const u32 x = threadIdx.x % 16, y = threadIdx.x / 16;
    const u64 across = (p.w[4] + TILE - 1) / TILE;
    const u64 row = blockIdx.x / across * TILE, column = blockIdx.x % across * TILE;
    // Adjacent threads load adjacent elements.
    const bool left_rows = p.w[6] < p.w[7], right_columns = p.w[9] < p.w[8];
    for (u64 b = blockIdx.y; b < p.w[11]; b += gridDim.y) {
        const u64 from_left = p.w[0] + b * p.w[12], from_right = p.w[1] + b * p.w[13];
        Acc sums[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) sums[i][j] = Acc{};
        }
        for (u64 k = 0; k < p.w[5]; k += STEP) {
#pragma unroll
            for (int i = 0; i < TILE * STEP / 256; i++) {
                const u32 e = threadIdx.x + i * 256;
                const u32 r = left_rows ? e % TILE : e / STEP, s = left_rows ? e / TILE : e % STEP;
                Acc value = Acc{};
                if (row + r < p.w[3] && k + s < p.w[5]) {
                    value = load(p, from_left + (row + r) * p.w[6] + (k + s) * p.w[7]);
                }
                left[s][r] = value;
            }
#pragma unroll
            for (int i = 0; i < TILE * STEP / 256; i++) {
                const u32 e = threadIdx.x + i * 256;
                const u32 c = right_columns ? e % TILE : e / STEP, s = right_columns ? e / TILE : e % STEP;
                Acc value = Acc{};
                if (column + c < p.w[4] && k + s < p.w[5]) {
                    value = load(p, from_right + (k + s) * p.w[8] + (column + c) * p.w[9]);
                }
                right[s][c] = value;
            }
            __syncthreads();
#pragma unroll
            for (int s = 0; s < STEP; s++) {
                Acc l[4], r[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    l[i] = left[s][y + 16 * i];
                    r[i] = right[s][x + 16 * i];
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) sums[i][j] = add_product(l[i], r[j], sums[i][j]);
                }
            }
            __syncthreads();
        }
        const u64 to = p.w[2] + b * p.w[14];
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const u64 at_row = row + y + 16 * i, at_column = column + x + 16 * j;
                if (at_row < p.w[3] && at_column < p.w[4]) {
                    store(p, to + at_row * p.w[10] + at_column * @SIZE@, sums[i][j]);
                }
            }
        }
    }
}
