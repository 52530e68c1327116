// Integer matrix products: accumulate in i64 and wrap. Any strides.
//
// p.w: 0 left, 1 right, 2 out, 3 m, 4 n, 5 k, 6 left's row stride, 7 column stride, 8 right's row
// stride, 9 column stride, all in bytes, 10 bytes of an element, 11 number of the dtype.

struct Params { u64 w[12]; };
#define EDGE 16

@DTYPES@

extern "C" __global__ void __launch_bounds__(EDGE * EDGE) matmul(const __grid_constant__ Params p) {
    __shared__ i64 left[EDGE][EDGE + 1], right[EDGE][EDGE + 1];
    const u32 x = threadIdx.x % EDGE, y = threadIdx.x / EDGE;
    const u64 tiles = (p.w[4] + EDGE - 1) / EDGE;
    const u64 row = blockIdx.x / tiles * EDGE + y, column = blockIdx.x % tiles * EDGE + x;
    const u32 dtype = (u32)p.w[11];
    i64 sum = 0;
    for (u64 k = 0; k < p.w[5]; k += EDGE) {
        const bool in_a = row < p.w[3] && k + x < p.w[5], in_b = column < p.w[4] && k + y < p.w[5];
        left[y][x] = in_a ? load_any(p.w[0] + row * p.w[6] + (k + x) * p.w[7], dtype) : 0;
        right[y][x] = in_b ? load_any(p.w[1] + (k + y) * p.w[8] + column * p.w[9], dtype) : 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < EDGE; i++) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    if (row < p.w[3] && column < p.w[4]) {
        store_any(p.w[2] + (row * p.w[4] + column) * p.w[10], dtype, sum);
    }
}
