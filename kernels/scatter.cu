// out[.., index[i], ..] = source[i], one winner per target; or a combination of all of them.
//
// p.w: 0 elements, 1 extent of the axis, 2 out's stride along the axis, 3 fault record, 4 its stamp, 5
// source, 6 index, 7 out, 8 winners or sorted targets, 9 sorted positions, 10 the target for dropped
// elements, then the layout from kernel/cuda/scatter.rs. A target is an offset in `out`, in elements.

struct ScatterParams { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
typedef @BITS@ Bits;

// The target of element i. A bad index is reported once and has no target.
INLINE bool target_of(const ScatterParams& p, Index i, bool report, u64& target) {
@COORDINATES@
    i64 at = memory<const i64>(p.w[6])[@AT_INDEX@];
    const i64 extent = (i64)p.w[1];
    if (at < -extent || at >= extent) {
        if (report) report_fault(p.w[3], p.w[4], (u64)i, at);
        return false;
    }
    at += at < 0 ? extent : 0;
    target = (u64)(@AT_OUT@) + (u64)at * p.w[2];
    return true;
}
INLINE Bits source_of(const ScatterParams& p, Index i) {
@COORDINATES@
    return memory<const Bits>(p.w[5])[@AT_SOURCE@];
}

#if !@COMBINES@
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
#else
extern "C" __global__ void __launch_bounds__(256) targets(const __grid_constant__ ScatterParams p) {
    const Index i = (Index)blockIdx.x * 256 + threadIdx.x;
    if (i >= (Index)p.w[0]) return;
    u64 target;
    if (!target_of(p, i, true, target)) target = p.w[10];
    memory<Key>(p.w[8])[i] = (Key)target;
}
// After the sort: the first element of each run combines the run, in ascending order of position.
typedef @ACC@ Acc;
INLINE Acc combine(Acc a, Acc b) { return @COMBINE@; }
extern "C" __global__ void __launch_bounds__(256) combine_runs(const __grid_constant__ ScatterParams p) {
    const Index i = (Index)blockIdx.x * 256 + threadIdx.x;
    const Index count = (Index)p.w[0];
    if (i >= count) return;
    const Key* keys = memory<const Key>(p.w[8]);
    const Count* positions = memory<const Count>(p.w[9]);
    const Key target = keys[i];
    if ((u64)target == p.w[10] || (i > 0 && keys[i - 1] == target)) return;
    Bits* out = memory<Bits>(p.w[7]) + target;
    Acc sum = load_@DTYPE@(*out);
    for (Index j = i; j < count && keys[j] == target; j++) {
        sum = combine(sum, load_@DTYPE@(source_of(p, (Index)positions[j])));
    }
    *out = store_@DTYPE@(round_@DTYPE@(sum));
}
#endif
