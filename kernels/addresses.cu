// The addresses of the matrices of a batch, for the library that multiplies: left ones, right ones, results.
//
// p.w: 0 products, 1 addresses, 2 left, 3 right, 4 results; then for each dimension of the batch, the innermost first, its
// extent and the steps of left, right and results in bytes. Dimensions that a batch does not have have extent 1.

#define DIMS @DIMS@
struct Params { u64 w[5 + 4 * DIMS]; };

extern "C" __global__ void __launch_bounds__(256) addresses(const __grid_constant__ Params p) {
    const u32 count = (u32)p.w[0], i = blockIdx.x * 256 + threadIdx.x;
    if (i >= count) return;
    u64 at[3] = {p.w[2], p.w[3], p.w[4]};
    u32 rest = i;
#pragma unroll
    for (int d = 0; d < DIMS; d++) {
        const u32 extent = (u32)p.w[5 + 4 * d], k = rest % extent;
        rest /= extent;
#pragma unroll
        for (int n = 0; n < 3; n++) at[n] += k * p.w[6 + 4 * d + n];
    }
#pragma unroll
    for (int n = 0; n < 3; n++) memory<u64>(p.w[1])[(u64)n * count + i] = at[n];
}
