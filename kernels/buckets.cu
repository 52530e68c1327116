// Sums of many floats into many targets: the elements are first moved to buckets of TARGETS adjacent targets, in any order,
// because the sums do not depend on it. Blocks then sum segments of the moved elements in shared memory, and add their sums
// to those in memory. Appended to kernels/scatter.cu, whose `begin` and `finish` it uses.
//
// p.w, besides that of kernels/scatter.cu: 8 the moved elements (the values, then their targets within the bucket), 9 the first element of each bucket, then the number of all
// moved elements, then the next place in each bucket, 11 the number of buckets.

#define TARGETS 4096
#define MOST_BUCKETS 2048
#define SEGMENT 32768

struct Moved {
    u32 target;
    float value;
};
// In memory, an element takes six bytes instead of eight: each is read twice.
INLINE float* values_of(const ScatterParams& p) { return memory<float>(p.w[8]); }
INLINE u16* targets_of(const ScatterParams& p) { return memory<u16>(p.w[8] + 4 * p.w[0]); }
INLINE u32* first_of(const ScatterParams& p) { return memory<u32>(p.w[9]); }
// Places are in memory sectors of their own, because blocks add to all of them at the same time.
INLINE u32* next_of(const ScatterParams& p, u32 bucket) { return memory<u32>(p.w[9]) + p.w[11] + 1 + bucket * 8; }

extern "C" __global__ void __launch_bounds__(256) count_buckets(const __grid_constant__ ScatterParams p) {
    __shared__ u32 own[MOST_BUCKETS];
    const u32 buckets = (u32)p.w[11];
    for (u32 b = threadIdx.x; b < buckets; b += 256) own[b] = 0;
    __syncthreads();
    for (u64 first = (u64)blockIdx.x * 1024; first < p.w[0]; first += (u64)gridDim.x * 1024) {
        u64 target[4];
        bool found[4], bad = false;
        #pragma unroll
        for (int n = 0; n < 4; n++) {
            const u64 i = first + 256 * n + threadIdx.x;
            found[n] = i < p.w[0] && target_of(p, (Index)i, false, target[n]);
            bad |= i < p.w[0] && !found[n];
        }
        if (bad) report_tile(p, first);
        #pragma unroll
        for (int n = 0; n < 4; n++) {
            if (found[n]) atomicAdd(own + target[n] / TARGETS, 1u);
        }
    }
    __syncthreads();
    for (u32 b = threadIdx.x; b < buckets; b += 256) {
        if (own[b] != 0) atomicAdd(first_of(p) + b, own[b]);
    }
}
// The sum of the counts of the threads before this one, of 512. The first 16 of `sums` become the sums of warps.
constexpr u32 EACH = MOST_BUCKETS / 512;
INLINE u32 sum_before(const u32 (&counts)[EACH], u32* sums, u32& all) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 own = 0;
    #pragma unroll
    for (u32 n = 0; n < EACH; n++) own += counts[n];
    u32 sum = own;
    #pragma unroll
    for (u32 delta = 1; delta < 32; delta *= 2) {
        const u32 before = __shfl_up_sync(~0u, sum, delta);
        if (lane >= delta) sum += before;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    sum -= own;
    all = 0;
    #pragma unroll
    for (u32 w = 0; w < 16; w++) {
        sum += w < warp ? sums[w] : 0;
        all += sums[w];
    }
    __syncthreads();
    return sum;
}
// One block: counts become places.
extern "C" __global__ void __launch_bounds__(512) place_buckets(const __grid_constant__ ScatterParams p) {
    __shared__ u32 sums[16];
    u32 all;
    const u32 buckets = (u32)p.w[11];
    u32 counts[EACH];
    #pragma unroll
    for (u32 n = 0; n < EACH; n++) {
        const u32 b = threadIdx.x * EACH + n;
        counts[n] = b < buckets ? first_of(p)[b] : 0;
    }
    u32 place = sum_before(counts, sums, all);
    #pragma unroll
    for (u32 n = 0; n < EACH; n++) {
        const u32 b = threadIdx.x * EACH + n;
        if (b < buckets) first_of(p)[b] = *next_of(p, b) = place;
        place += counts[n];
    }
    if (threadIdx.x == 0) first_of(p)[buckets] = all;
}
// A block orders its elements by bucket in shared memory, so that it writes adjacent elements together.
extern "C" __global__ void __launch_bounds__(512, 3) move_to_buckets(const __grid_constant__ ScatterParams p) {
    constexpr u32 HELD = 8;
    __shared__ Moved staged[512 * HELD];
    // The place of a bucket's first element among those of the block, and its distance from the place in memory.
    __shared__ u32 own[MOST_BUCKETS], away[MOST_BUCKETS];
    for (u32 b = threadIdx.x; b < MOST_BUCKETS; b += 512) own[b] = 0;
    __syncthreads();
    u32 target[HELD], rank[HELD];
    float value[HELD];
@NOTES@    #pragma unroll
    for (u32 n = 0; n < HELD; n++) {
        const u64 i = (u64)blockIdx.x * (512 * HELD) + 512 * n + threadIdx.x;
        u64 at;
        target[n] = ~0u;
        if (i < p.w[0] && target_of(p, (Index)i, false, at)) {
            target[n] = (u32)at;
            value[n] = value_of(p, source_of(p, (Index)i@NOTED@));
        }
    }
@NOTED_HELD@    #pragma unroll
    for (u32 n = 0; n < HELD; n++) {
        if (target[n] != ~0u) rank[n] = atomicAdd(own + target[n] / TARGETS, 1u);
    }
    __syncthreads();
    u32 counts[EACH];
    #pragma unroll
    for (u32 n = 0; n < EACH; n++) counts[n] = own[threadIdx.x * EACH + n];
    u32 total, place = sum_before(counts, (u32*)staged, total);
    #pragma unroll
    for (u32 n = 0; n < EACH; n++) {
        const u32 b = threadIdx.x * EACH + n;
        own[b] = place;
        if (counts[n] != 0) away[b] = atomicAdd(next_of(p, b), counts[n]) - place;
        place += counts[n];
    }
    __syncthreads();
    #pragma unroll
    for (u32 n = 0; n < HELD; n++) {
        if (target[n] != ~0u) staged[own[target[n] / TARGETS] + rank[n]] = {target[n], value[n]};
    }
    __syncthreads();
    for (u32 k = threadIdx.x; k < total; k += 512) {
        const Moved one = staged[k];
        const u32 to = away[one.target / TARGETS] + k;
        values_of(p)[to] = one.value;
        targets_of(p)[to] = (u16)(one.target % TARGETS);
    }
}
// Calls `sum(bucket, begin, end)` with the parts of buckets in a block's segment.
template <class Sum> INLINE void each_part(const ScatterParams& p, Sum sum) {
    const u32* firsts = first_of(p);
    const u32 buckets = (u32)p.w[11], total = firsts[buckets];
    u32 from = blockIdx.x * SEGMENT;
    if (from >= total) return;
    const u32 to = total - from < SEGMENT ? total : from + SEGMENT;
    // The last bucket that begins at or before the segment.
    u32 low = 0, high = buckets;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (firsts[middle] <= from) low = middle; else high = middle;
    }
    for (u32 b = low; from < to; b++) {
        const u32 next = firsts[b + 1], end = next < to ? next : to;
        if (from < end) sum(b, from, end);
        from = end;
    }
}
extern "C" __global__ void __launch_bounds__(512) bucket_tops(const __grid_constant__ ScatterParams p) {
    __shared__ u32 own[TARGETS];
    const float* values = values_of(p);
    const u16* targets = targets_of(p);
    each_part(p, [&](u32 bucket, u32 begin, u32 end) {
        for (u32 t = threadIdx.x; t < TARGETS; t += 512) own[t] = 0;
        __syncthreads();
        #pragma unroll 4
        for (u32 i = begin + threadIdx.x; i < end; i += 512) {
            const u32 t = targets[i];
            raise_top(own + t, own[t], top_of(values[i]));
        }
        __syncthreads();
        u32* tops = memory<u32>(p.w[12]) + (u64)bucket * TARGETS;
        for (u32 t = threadIdx.x; t < TARGETS; t += 512) {
            if (own[t] != 0) raise_top(tops + t, 0, own[t]);
        }
        __syncthreads();
    });
}
extern "C" __global__ void __launch_bounds__(512) bucket_sums(const __grid_constant__ ScatterParams p) {
    __shared__ u32 tops[TARGETS], low[TARGETS], high[TARGETS];
    const float* values = values_of(p);
    const u16* targets = targets_of(p);
    each_part(p, [&](u32 bucket, u32 begin, u32 end) {
        const u64 first = (u64)bucket * TARGETS;
        for (u32 t = threadIdx.x; t < TARGETS; t += 512) {
            tops[t] = first + t < p.w[10] ? memory<const u32>(p.w[12])[first + t] : 0;
            low[t] = high[t] = 0;
        }
        __syncthreads();
        #pragma unroll 4
        for (u32 i = begin + threadIdx.x; i < end; i += 512) {
            const u32 t = targets[i];
            const unsigned long long part = (unsigned long long)units(values[i], tops[t], (u32)p.w[14]);
            if (part == 0) continue;
            add_words(low + t, high + t, part);
        }
        __syncthreads();
        unsigned long long* sums = memory<unsigned long long>(p.w[13]) + first;
        for (u32 t = threadIdx.x; t < TARGETS; t += 512) {
            const unsigned long long sum = ((unsigned long long)high[t] << 32) + low[t];
            if (sum != 0) atomicAdd(sums + t, sum);
        }
        __syncthreads();
    });
}
