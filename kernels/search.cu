// The insertion position of each value in an ascending row: the number of elements that precede it. nan is
// greatest. Elements are compared as unsigned numbers.
//
// p.w: 0 number of values, 1 elements per row, 2 stride within a row, 3 rows, 4 values, 5 out, 6 the order of the
// elements, for `sortable`, 7 bytes of an element, 8 whether equal elements precede the value, then the layout from
// kernel/kinds. Strides are in elements.

struct Params { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
typedef u64 Key;

INLINE Key sortable(Key k, u64 order) {
@SORTABLE@
}
INLINE Key key_at(const Params& p, u64 address) {
    Key k;
    switch (p.w[7]) {
    case 1: k = (Key)*memory<const u8>(address) << 56; break;
    case 2: k = (Key)*memory<const u16>(address) << 48; break;
    case 4: k = (Key)*memory<const u32>(address) << 32; break;
    default: k = *memory<const u64>(address); break;
    }
    return sortable(k, p.w[6]);
}

extern "C" __global__ void __launch_bounds__(256) search(const __grid_constant__ Params p) {
    const Index unit = (Index)blockIdx.x * 256 + threadIdx.x;
    if (unit >= (Index)p.w[0]) return;
@COORDINATES@
    const Key value = key_at(p, p.w[4] + (u64)(@AT_VALUE@) * p.w[7]);
    const u64 row = p.w[3] + (u64)(@AT_ROW@) * p.w[7];
    const u64 step = p.w[2] * p.w[7];
    u64 low = 0, high = p.w[1];
    while (low < high) {
        const u64 middle = low + (high - low) / 2;
        const Key held = key_at(p, row + middle * step);
        const bool further = held < value || (held == value && p.w[8] != 0);
        if (further) low = middle + 1; else high = middle;
    }
    memory<i64>(p.w[5])[@AT_OUT@] = (i64)low;
}
