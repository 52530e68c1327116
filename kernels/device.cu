// Small utility kernels.

struct Params { u64 w[4]; };

// w: address, pattern, count.
extern "C" __global__ void __launch_bounds__(256) fill64(const __grid_constant__ Params p) {
    u64* out = memory<u64>(p.w[0]);
    const u64 step = (u64)gridDim.x * 256;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < p.w[2]; i += step) out[i] = p.w[1];
}

// w: cycles.
extern "C" __global__ void pause(const __grid_constant__ Params p) {
    const i64 start = clock64();
    while ((u64)(clock64() - start) < p.w[0]) {}
}
