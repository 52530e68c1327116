// Scatters along the last dimension, into rows of few targets: a block for each row, with the state of its targets in
// shared memory. For the parameters see scatter.cu.
#define TARGETS @TARGETS@
#if @MODE@ == 7
extern "C" __global__ void __launch_bounds__(256) row_sums(const __grid_constant__ ScatterParams p) {
    __shared__ u32 tops[TARGETS], low[TARGETS], high[TARGETS];
    const u32 limit = (u32)p.w[1], room = (u32)p.w[14];
    const u64 first = (u64)blockIdx.x * p.w[8], end = first + p.w[8];
    const u64 base = offsets_of(p, (Index)first).out;
    for (u32 t = threadIdx.x; t < limit; t += 256) tops[t] = low[t] = high[t] = 0;
    __syncthreads();
#pragma unroll 4
    for (u64 i = first + threadIdx.x; i < end; i += 256) {
        u64 target;
        if (!target_of(p, (Index)i, true, target)) continue;
        u32* top = tops + (u32)(target - base);
        raise_top(top, *top, top_of(value_of(p, source_of(p, (Index)i))));
    }
    __syncthreads();
    for (u32 t = threadIdx.x; t < limit; t += 256) {
        if (tops[t] == 0) continue;
        const float held = load(p, p.w[7] + (base + t) * SIZE);
        const u32 top = higher(tops[t], top_of(held));
        const u64 sum = (u64)units(held, top, room);
        tops[t] = top;
        low[t] = (u32)sum;
        high[t] = (u32)(sum >> 32);
    }
    __syncthreads();
#pragma unroll 4
    for (u64 i = first + threadIdx.x; i < end; i += 256) {
        u64 target;
        if (!target_of(p, (Index)i, false, target)) continue;
        const u32 t = (u32)(target - base);
        add_words(low + t, high + t, (u64)units(value_of(p, source_of(p, (Index)i)), tops[t], room));
    }
    __syncthreads();
    for (u32 t = threadIdx.x; t < limit; t += 256) {
        if (tops[t] == 0) continue;
        store(p, p.w[7] + (base + t) * SIZE, sum_of((i64)((u64)high[t] << 32 | low[t]), tops[t], room));
    }
}
#else
// The last element for each target: the greatest position in the row, plus one.
extern "C" __global__ void __launch_bounds__(256) row_last(const __grid_constant__ ScatterParams p) {
    __shared__ u32 winners[TARGETS];
    const u32 limit = (u32)p.w[1];
    const u64 first = (u64)blockIdx.x * p.w[8], end = first + p.w[8];
    const u64 base = offsets_of(p, (Index)first).out;
    for (u32 t = threadIdx.x; t < limit; t += 256) winners[t] = 0;
    __syncthreads();
#pragma unroll 4
    for (u64 i = first + threadIdx.x; i < end; i += 256) {
        u64 target;
        if (target_of(p, (Index)i, true, target)) atomicMax(winners + (u32)(target - base), (u32)(i - first) + 1);
    }
    __syncthreads();
#pragma unroll 4
    for (u64 i = first + threadIdx.x; i < end; i += 256) {
        u64 target;
        if (!target_of(p, (Index)i, false, target)) continue;
        if (winners[(u32)(target - base)] == (u32)(i - first) + 1) {
            memory<Bits>(p.w[7])[target] = source_of(p, (Index)i);
        }
    }
}
#endif
