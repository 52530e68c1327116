// The insertion position of each value in an ascending row: the number of elements that precede it. nan is
// greatest.
//
// p.w: 0 number of values, 1 elements per row, 2 stride within a row, 3 rows, 4 values, 5 out, then the
// layout from kernel/kinds.

struct Params { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
typedef @ACC@ Acc;
typedef @BITS@ Bits;

INLINE bool stands_before(Acc a, Acc b) { return !is_nan(a) && (is_nan(b) || a < b); }

extern "C" __global__ void __launch_bounds__(256) search(const __grid_constant__ Params p) {
    const Index unit = (Index)blockIdx.x * 256 + threadIdx.x;
    if (unit >= (Index)p.w[0]) return;
@COORDINATES@
    const Acc value = load_@DTYPE@(memory<const Bits>(p.w[4])[@AT_VALUE@]);
    const u64 row = p.w[3] + (u64)(@AT_ROW@) * sizeof(Bits);
    const u64 step = p.w[2] * sizeof(Bits);
    u64 low = 0, high = p.w[1];
    while (low < high) {
        const u64 middle = low + (high - low) / 2;
        const Acc held = load_@DTYPE@(*memory<const Bits>(row + middle * step));
#if @RIGHT@
        const bool further = !stands_before(value, held);
#else
        const bool further = stands_before(held, value);
#endif
        if (further) low = middle + 1; else high = middle;
    }
    memory<i64>(p.w[5])[@AT_OUT@] = (i64)low;
}
