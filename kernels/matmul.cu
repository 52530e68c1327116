// Integer matrix products: accumulate in i64 and wrap. Any strides.
//
// p.w: 0 left, 1 right, 2 out, 3 m, 4 n, 5 k, 6 left's row stride, 7 column stride, 8 right's row
// stride, 9 column stride.

struct Params { u64 w[10]; };
typedef @BITS@ Bits;
#define EDGE 16

extern "C" __global__ void __launch_bounds__(EDGE * EDGE) matmul(const __grid_constant__ Params p) {
    __shared__ i64 left[EDGE][EDGE + 1], right[EDGE][EDGE + 1];
    const u32 x = threadIdx.x % EDGE, y = threadIdx.x / EDGE;
    const u64 tiles = (p.w[4] + EDGE - 1) / EDGE;
    const u64 row = blockIdx.x / tiles * EDGE + y, column = blockIdx.x % tiles * EDGE + x;
    const Bits* a = memory<const Bits>(p.w[0]);
    const Bits* b = memory<const Bits>(p.w[1]);
    i64 sum = 0;
    for (u64 k = 0; k < p.w[5]; k += EDGE) {
        const bool in_a = row < p.w[3] && k + x < p.w[5], in_b = column < p.w[4] && k + y < p.w[5];
        left[y][x] = in_a ? load_@DTYPE@(a[row * p.w[6] + (k + x) * p.w[7]]) : 0;
        right[y][x] = in_b ? load_@DTYPE@(b[(k + y) * p.w[8] + column * p.w[9]]) : 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < EDGE; i++) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    if (row < p.w[3] && column < p.w[4]) {
        memory<Bits>(p.w[2])[row * p.w[4] + column] = store_@DTYPE@(round_@DTYPE@(sum));
    }
}
