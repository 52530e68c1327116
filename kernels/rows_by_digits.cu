// Rows that fit one block, sorted by eight bits at a time in shared memory. The parameters are those of sort.cu.

struct SortParams { u64 w[9]; };
// Elements of a thread.
#define ITEMS @ITEMS@
#define SIZE (256 * ITEMS)

INLINE u32 digit_of(Key k, u64 order, u32 shift) { return (u32)(sortable(k, order) >> shift) & 255u; }

extern "C" __global__ void __launch_bounds__(256) sort_rows(const __grid_constant__ SortParams p) {
    __shared__ u16 in_warp[8][256], in_row[256];
    __shared__ Key staged[SIZE];
    __shared__ u16 staged_places[SIZE];
    const u64 row = blockIdx.x, order = p.w[7];
    const u32 length = (u32)p.w[3];
    const Key* in = memory<const Key>(p.w[0]) + row * p.w[4];
    const u32 t = threadIdx.x, lane = t % 32, warp = t / 32, first = warp * (32 * ITEMS) + lane;
    const u32 lanes_below = (1u << lane) - 1;
    Key key[ITEMS];
    u16 place[ITEMS];
    const Key one = in[0];
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        const u32 at = first + 32 * i;
        key[i] = at < length ? in[at] : one;
        place[i] = (u16)at;
    }
#pragma unroll 1
    for (u32 shift = 0; shift < 8 * sizeof(Key); shift += 8) {
        // Nothing moves by a digit that all elements share.
        u32 digit[ITEMS];
        bool differs = false;
#pragma unroll
        for (u32 i = 0; i < ITEMS; i++) {
            digit[i] = digit_of(key[i], order, shift);
            differs |= first + 32 * i < length && digit[i] != digit_of(one, order, shift);
        }
        if (!__syncthreads_or(differs)) continue;
#pragma unroll
        for (u32 w = 0; w < 8; w++) in_warp[w][t] = 0;
        __syncthreads();
        u32 rank[ITEMS];
#pragma unroll
        for (u32 i = 0; i < ITEMS; i++) {
            // Elements beyond the row stay behind it.
            if (first + 32 * i >= length) digit[i] = 255;
            rank[i] = rank_in_warp(digit[i], in_warp[warp], lane, lanes_below);
            __syncwarp();
        }
        __syncthreads();
        u32 sum = 0, all;
#pragma unroll
        for (u32 w = 0; w < 8; w++) {
            const u32 count = in_warp[w][t];
            in_warp[w][t] = (u16)sum;
            sum += count;
        }
        in_row[t] = (u16)before_in_block(sum, all);
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < ITEMS; i++) {
            const u32 to = rank[i] + in_row[digit[i]] + in_warp[warp][digit[i]];
            staged[to] = key[i];
            staged_places[to] = place[i];
        }
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < ITEMS; i++) {
            key[i] = staged[first + 32 * i];
            place[i] = staged_places[first + 32 * i];
        }
    }
    // Values may be sorted in place: all have been read.
    __syncthreads();
    Key* values = memory<Key>(p.w[1]) + row * p.w[5];
    i64* positions = memory<i64>(p.w[2]) + row * p.w[6];
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) {
        const u32 at = first + 32 * i;
        if (at < length) {
            values[at] = key[i];
            positions[at] = place[i];
        }
    }
}
