// The insertion position of each value in one ascending row that fits shared memory; as search.cu, with the same steps.
// Values and positions are adjacent. A block copies the row once and searches for many values, EACH at a time per
// thread, so that their loads overlap.
//
// p.w: as in search.cu up to 8, then 9 values per block.

struct Params { u64 w[10]; };
typedef @KEY@ Key;
#define SLOTS @SLOTS@
#define THREADS 512
#define EACH 4

INLINE Key sortable(Key k, u64 order) {
@SORTABLE@
}
// Narrow elements occupy the highest bits.
INLINE Key key_at(const Params& p, u64 address) {
    Key k;
#if @WIDE@
    k = *memory<const u64>(address);
#else
    switch (p.w[7]) {
    case 1: k = (Key)*memory<const u8>(address) << 24; break;
    case 2: k = (Key)*memory<const u16>(address) << 16; break;
    default: k = *memory<const u32>(address); break;
    }
#endif
    k = sortable(k, p.w[6]);
    // If equal elements precede the value, all keys are inverted, and so is the comparison.
    return p.w[8] != 0 ? (Key)~k : k;
}

// The place of a key in shared memory. The first steps of searches read keys at distances that are often powers of two,
// so there is a gap after each group of keys that occupies all banks.
INLINE u32 place(u32 i) { return i + i / (128 / sizeof(Key)); }

extern "C" __global__ void __launch_bounds__(THREADS) search_row(const __grid_constant__ Params p) {
    // A search that has ended may read the key after the last.
    __shared__ Key row[SLOTS];
    const u32 length = (u32)p.w[1];
    const bool right = p.w[8] != 0;
    for (u32 i = threadIdx.x; i <= length; i += THREADS)
        row[place(i)] = i < length ? key_at(p, p.w[3] + i * p.w[2] * p.w[7]) : (Key)0;
    __syncthreads();
    const u64 begin = (u64)blockIdx.x * p.w[9];
    const u64 end = p.w[0] - begin < p.w[9] ? p.w[0] : begin + p.w[9];
    for (u64 first = begin + threadIdx.x; first < end; first += EACH * THREADS) {
        Key value[EACH];
        u32 low[EACH], left[EACH];
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const u64 at = first + e * THREADS;
            value[e] = at < end ? key_at(p, p.w[4] + at * p.w[7]) : (Key)0;
            low[e] = 0;
            left[e] = length;
        }
        for (u32 most = length; most > 0; most /= 2) {
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                const u32 half = left[e] / 2, middle = low[e] + half;
                const bool further = (row[place(middle)] < value[e]) != right && left[e] != 0;
                low[e] = further ? middle + 1 : low[e];
                left[e] = further ? left[e] - half - 1 : half;
            }
        }
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const u64 at = first + e * THREADS;
            if (at < end) memory<i64>(p.w[5])[at] = (i64)low[e];
        }
    }
}
