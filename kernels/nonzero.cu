// The positions of non-zero elements, ascending: count per tile, prefix sum, write.
//
// p.w: 0 input, 1 positions, 2 count, 3 elements, 4 tiles, 5 counts of the tiles, 6 and 7 the bits of an element that
// say whether it is zero.

struct Params { u64 w[8]; };
typedef @BITS@ Bits;
#define ITEMS 16
#define TILE (256 * ITEMS)

INLINE bool is_set(const Params& p, u64 at) {
    const Bits mask = sizeof(Bits) == 16 ? (Bits)((u128)p.w[7] << 64 | p.w[6]) : (Bits)p.w[6];
    return at < p.w[3] && (memory<const Bits>(p.w[0])[at] & mask) != 0;
}

// Within a tile, element i of thread t is 32 * ITEMS * (t / 32) + 32 * i + t % 32, so that a warp's ballots
// come in ascending order.
INLINE u64 element_of(int i) {
    return (u64)blockIdx.x * TILE + (threadIdx.x / 32) * (32 * ITEMS) + i * 32 + threadIdx.x % 32;
}

extern "C" __global__ void __launch_bounds__(256) tile_counts(const __grid_constant__ Params p) {
    u64 mine = 0, total;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) mine += is_set(p, element_of(i));
    before_in_block(mine, total);
    if (threadIdx.x == 0) memory<u64>(p.w[5])[blockIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(256) tile_offsets(const __grid_constant__ Params p) {
    u64* counts = memory<u64>(p.w[5]);
    u64 carry = 0;
    for (u64 base = 0; base < p.w[4]; base += 256 * 8) {
        const u64 at = base + threadIdx.x * 8;
        u64 v[8], sum = 0, total;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = at + i < p.w[4] ? counts[at + i] : 0;
            sum += v[i];
        }
        u64 before = carry + before_in_block(sum, total);
        carry += total;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (at + i < p.w[4]) counts[at + i] = before;
            before += v[i];
        }
    }
    if (threadIdx.x == 0) *memory<u64>(p.w[2]) = carry;
}

extern "C" __global__ void __launch_bounds__(256) write_positions(const __grid_constant__ Params p) {
    u32 set = 0, ballots[ITEMS];
    u64 total, in_warp = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const bool is = is_set(p, element_of(i));
        ballots[i] = __ballot_sync(FULL_WARP, is);
        set |= (u32)is << i;
        in_warp += __popc(ballots[i]);
    }
    // One thread per warp contributes the warp's count.
    u64 at = before_in_block(threadIdx.x % 32 == 0 ? in_warp : 0, total);
    at = __shfl_sync(FULL_WARP, at, 0) + memory<const u64>(p.w[5])[blockIdx.x];
    u32 lanes_below;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lanes_below));
    i64* out = memory<i64>(p.w[1]);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        if (set >> i & 1) out[at + __popc(ballots[i] & lanes_below)] = (i64)element_of(i);
        at += __popc(ballots[i]);
    }
}
