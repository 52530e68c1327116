// out[.., index[i], ..] = source[i], one winner per target; or a combination of all of them.
//
// A launch has `outer` dimensions, over which the index varies, and `inner` ones, over which it does not (only
// where sources are combined): an element of the index moves a whole row of inner elements.
//
// p.w: 0 outer elements, 1 extent of the axis, 2 out's stride along the axis, 3 fault record, 4 its stamp, 5
// source, 6 index, 7 out, 8 winners or sorted targets, 9 sorted positions, 10 the target for dropped
// elements, 11 inner elements, then the layout from kernel/kinds. A target is an offset in `out`, in
// elements, of the first inner element.

struct ScatterParams { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
typedef @BITS@ Bits;
typedef @UNSIGNED@ Unsigned;

// The target of element i. A bad index is reported once and has no target.
INLINE bool target_of(const ScatterParams& p, Index i, bool report, u64& target) {
@COORDINATES@
    i64 at = memory<const i64>(p.w[6])[@AT_INDEX@];
    const i64 extent = (i64)p.w[1];
    if (at < -extent || at >= extent) {
        if (report) report_fault(p.w[3], p.w[4], (u64)(@AT_NUMBER@), at);
        return false;
    }
    at += at < 0 ? extent : 0;
    target = (u64)(@AT_OUT@) + (u64)at * p.w[2];
    return true;
}
INLINE Index source_offset(const ScatterParams& p, Index i) {
@COORDINATES@
    return (Index)(@AT_SOURCE@);
}
INLINE Bits source_of(const ScatterParams& p, Index i) {
    return memory<const Bits>(p.w[5])[source_offset(p, i)];
}

#if @MODE@ == 0
// The last element for each target: the greatest position, plus one.
extern "C" __global__ void __launch_bounds__(256) claim(const __grid_constant__ ScatterParams p) {
    const Index i = (Index)blockIdx.x * 256 + threadIdx.x;
    u64 target;
    if (i < (Index)p.w[0] && target_of(p, i, true, target)) {
        atomicMax(&memory<Index>(p.w[8])[target], (Index)(i + 1));
    }
}
extern "C" __global__ void __launch_bounds__(256) settle(const __grid_constant__ ScatterParams p) {
    const Index i = (Index)blockIdx.x * 256 + threadIdx.x;
    u64 target;
    if (i < (Index)p.w[0] && target_of(p, i, false, target)
        && memory<const Index>(p.w[8])[target] == (Index)(i + 1)) {
        memory<Bits>(p.w[7])[target] = source_of(p, i);
    }
}
#elif @MODE@ == 1
// Sums of integers do not depend on their order. Few targets are counted in shared memory first.
extern "C" __global__ void __launch_bounds__(256) add(const __grid_constant__ ScatterParams p) {
    const Index count = (Index)p.w[0];
    Unsigned* out = memory<Unsigned>(p.w[7]);
#if @FEW@
    __shared__ Unsigned sums[@FEW@];
    for (u32 t = threadIdx.x; t < (u32)p.w[10]; t += 256) sums[t] = 0;
    __syncthreads();
#endif
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < (u64)count; at += (u64)gridDim.x * 256) {
        const Index i = (Index)at;
        u64 target;
        if (!target_of(p, i, true, target)) continue;
#if @FEW@
        atomicAdd(&sums[target], (Unsigned)source_of(p, i));
#else
        atomicAdd(&out[target], (Unsigned)source_of(p, i));
#endif
    }
#if @FEW@
    __syncthreads();
    for (u32 t = threadIdx.x; t < (u32)p.w[10]; t += 256) {
        if (sums[t] != 0) atomicAdd(&out[t], sums[t]);
    }
#endif
}
#else
extern "C" __global__ void __launch_bounds__(256) targets(const __grid_constant__ ScatterParams p) {
    const Index i = (Index)blockIdx.x * 256 + threadIdx.x;
    if (i >= (Index)p.w[0]) return;
    u64 target;
    if (!target_of(p, i, true, target)) target = p.w[10];
    memory<Key>(p.w[8])[i] = (Key)target;
}
// After the sort: a thread for each inner element of the first element of each run combines the run, in ascending
// order of position. Loads do not depend on the sums, so that many are in flight.
typedef @ACC@ Acc;
INLINE Acc combine(Acc a, Acc b) { return @COMBINE@; }
extern "C" __global__ void __launch_bounds__(256) combine_runs(const __grid_constant__ ScatterParams p) {
    const Index thread = (Index)blockIdx.x * 256 + threadIdx.x;
    const Index count = (Index)p.w[0];
    const Index inner = (Index)p.w[11];
    const Index i = thread / inner;
    if (i >= count) return;
    const Key* keys = memory<const Key>(p.w[8]);
    const Count* positions = memory<const Count>(p.w[9]);
    const Key target = keys[i];
    if ((u64)target == p.w[10] || (i > 0 && keys[i - 1] == target)) return;
    const Index j = thread - i * inner;
@INNER@
    const Bits* source = memory<const Bits>(p.w[5]) + (@INNER_SOURCE@);
    Bits* out = memory<Bits>(p.w[7]) + target + (@INNER_OUT@);
    Acc sum = load_@DTYPE@(*out);
    Index k = i;
    for (; k + 8 <= count && keys[k + 7] == target; k += 8) {
        Bits values[8];
        #pragma unroll
        for (int n = 0; n < 8; n++) values[n] = source[source_offset(p, (Index)positions[k + n])];
        #pragma unroll
        for (int n = 0; n < 8; n++) sum = combine(sum, load_@DTYPE@(values[n]));
    }
    for (; k < count && keys[k] == target; k++) {
        sum = combine(sum, load_@DTYPE@(source[source_offset(p, (Index)positions[k])]));
    }
    *out = store_@DTYPE@(round_@DTYPE@(sum));
}
#endif
