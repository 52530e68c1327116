// Stable radix sort of rows of keys with their positions, eight bits per pass.
//
// A pass counts the digits of each tile, turns the counts into offsets, and moves every key to its place:
// first within the tile in shared memory, then to global memory in runs. Keys move unchanged; `sortable`
// computes the integer that orders them.
//
// p.w: 0 keys in, 1 positions in (0: the identity), 2 keys out, 3 positions out, 4 counts, 5 totals, 6
// length, 7 tiles per row, 8 shift, 9 row stride of keys in, 10 of keys out, 11 of positions out, 12 whether
// positions are written as i64, 13 the order of the keys, for `sortable`, 14 whether a thread adds the counts of a row's tiles.

struct RadixParams { u64 w[15]; };
typedef @KEY@ Key;
typedef @COUNT@ Count;
#define RADIX_ITEMS 16
#define RADIX_TILE (256 * RADIX_ITEMS)

INLINE Key sortable(Key k, u64 order) {
@SORTABLE@
}
INLINE u32 digit_of(const RadixParams& p, Key k, u32 shift) { return (u32)(sortable(k, p.w[13]) >> shift) & 255u; }

extern "C" __global__ void __launch_bounds__(256) digit_counts(const __grid_constant__ RadixParams p) {
    __shared__ u32 counts[256];
    const u64 tile = blockIdx.x % p.w[7], row = blockIdx.x / p.w[7];
    const Key* keys = memory<const Key>(p.w[0]) + row * p.w[9];
    counts[threadIdx.x] = 0;
    __syncthreads();
    const u64 address = p.w[0] + (row * p.w[9] + tile * RADIX_TILE) * sizeof(Key);
    if ((tile + 1) * RADIX_TILE <= p.w[6] && address % 16 == 0) {
        u32 words[RADIX_ITEMS * sizeof(Key) / 16][4];
#pragma unroll
        for (int i = 0; i < RADIX_ITEMS * sizeof(Key) / 16; i++) {
            load_words(words[i], address + (i * 256 + threadIdx.x) * 16);
        }
#pragma unroll
        for (int i = 0; i < RADIX_ITEMS * sizeof(Key) / 16; i++) {
#pragma unroll
            for (int j = 0; j < 16 / sizeof(Key); j++) {
                atomicAdd(&counts[digit_of(p, take<Key>(words[i], j), (u32)p.w[8])], 1u);
            }
        }
    } else {
        for (int i = 0; i < RADIX_ITEMS; i++) {
            const u64 at = tile * RADIX_TILE + i * 256 + threadIdx.x;
            if (at < p.w[6]) atomicAdd(&counts[digit_of(p, keys[at], (u32)p.w[8])], 1u);
        }
    }
    __syncthreads();
    memory<Count>(p.w[4])[(row * 256 + threadIdx.x) * p.w[7] + tile] = counts[threadIdx.x];
}

// Replaces the tiles' counts of each row and digit by their exclusive prefix sums: in one thread for many rows of few
// tiles, otherwise in one block.
extern "C" __global__ void __launch_bounds__(256) digit_offsets(const __grid_constant__ RadixParams p) {
    if (p.w[14]) {
        const u64 line = (u64)blockIdx.x * 256 + threadIdx.x;
        Count* counts = memory<Count>(p.w[4]) + line * p.w[7];
        Count sum = 0;
        for (u64 tile = 0; tile < p.w[7]; tile++) {
            const Count count = counts[tile];
            counts[tile] = sum;
            sum += count;
        }
        memory<Count>(p.w[5])[line] = sum;
        return;
    }
    Count* counts = memory<Count>(p.w[4]) + (u64)blockIdx.x * p.w[7];
    Count carry = 0;
    for (u64 base = 0; base < p.w[7]; base += 256 * 8) {
        const u64 at = base + threadIdx.x * 8;
        Count v[8], sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] = at + i < p.w[7] ? counts[at + i] : 0;
            sum += v[i];
        }
        Count total;
        Count before = carry + before_in_block(sum, total);
        carry += total;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (at + i < p.w[7]) counts[at + i] = before;
            before += v[i];
        }
    }
    if (threadIdx.x == 0) memory<Count>(p.w[5])[blockIdx.x] = carry;
}

INLINE Count position_in(const RadixParams& p, u64 row, u64 from) {
    return p.w[1] == 0 ? (Count)from : memory<const Count>(p.w[1])[row * p.w[6] + from];
}
INLINE void position_out(const RadixParams& p, u64 to, Count position) {
    if (p.w[12]) memory<i64>(p.w[3])[to] = (i64)position;
    else memory<Count>(p.w[3])[to] = position;
}

extern "C" __global__ void __launch_bounds__(256, 4) digit_move(const __grid_constant__ RadixParams p) {
    __shared__ u32 in_warp[8][256];
    __shared__ u32 in_tile[256];
    __shared__ Count in_row[256];
    // Keys and positions are staged together if both fit 48 KiB, otherwise one after the other.
    constexpr bool TOGETHER = sizeof(Key) + sizeof(Count) <= 8;
    constexpr int WIDER = sizeof(Key) > sizeof(Count) ? sizeof(Key) : sizeof(Count);
    __shared__ u64 stage[RADIX_TILE * (TOGETHER ? sizeof(Key) + sizeof(Count) : WIDER) / 8];
    const u64 tile = blockIdx.x % p.w[7], row = blockIdx.x / p.w[7];
    const u64 first = tile * RADIX_TILE;
    const u64 left = p.w[6] - first;
    const u32 valid = left < RADIX_TILE ? (u32)left : RADIX_TILE;
    const u32 shift = (u32)p.w[8];
    const Key* keys_in = memory<const Key>(p.w[0]) + row * p.w[9] + first;
    const u32 t = threadIdx.x, lane = t % 32, warp = t / 32;
    u32 lanes_below;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lanes_below));

#pragma unroll
    for (int w = 0; w < 8; w++) in_warp[w][t] = 0;
    Key key[RADIX_ITEMS];
#pragma unroll
    for (int i = 0; i < RADIX_ITEMS; i++) {
        const u32 at = warp * (32 * RADIX_ITEMS) + i * 32 + lane;
        key[i] = at < valid ? keys_in[at] : (Key)0;
    }
    __syncthreads();
    // Ranks within the warp, in order. Elements beyond the row count as the greatest digit, so they come last
    // in their tile; they are not written.
    u32 place[RADIX_ITEMS];
#pragma unroll
    for (int i = 0; i < RADIX_ITEMS; i++) {
        const u32 at = warp * (32 * RADIX_ITEMS) + i * 32 + lane;
        const u32 digit = at < valid ? digit_of(p, key[i], shift) : 255u;
        place[i] = rank_in_warp(digit, in_warp[warp], lane, lanes_below);
        __syncwarp();
    }
    __syncthreads();
    u32 sum = 0;
#pragma unroll
    for (int w = 0; w < 8; w++) {
        const u32 count = in_warp[w][t];
        in_warp[w][t] = sum;
        sum += count;
    }
    u32 all;
    in_tile[t] = before_in_block(sum, all);
    Count total;
    const Count digit_start = before_in_block(memory<const Count>(p.w[5])[row * 256 + t], total);
    in_row[t] = digit_start + memory<const Count>(p.w[4])[(row * 256 + t) * p.w[7] + tile];
    __syncthreads();

    Count* staged = reinterpret_cast<Count*>(stage);
    Key* staged_keys = reinterpret_cast<Key*>(stage + (TOGETHER ? RADIX_TILE * sizeof(Count) / 8 : 0));
    Key* keys_out = memory<Key>(p.w[2]) + row * p.w[10];
    const u64 positions_row = row * p.w[11];
#pragma unroll
    for (int i = 0; i < RADIX_ITEMS; i++) {
        const u32 at = warp * (32 * RADIX_ITEMS) + i * 32 + lane;
        const u32 digit = at < valid ? digit_of(p, key[i], shift) : 255u;
        place[i] += in_tile[digit] + in_warp[warp][digit];
        staged_keys[place[i]] = key[i];
        if (TOGETHER && at < valid) staged[place[i]] = position_in(p, row, first + at);
    }
    __syncthreads();
    if constexpr (TOGETHER) {
#pragma unroll
        for (int i = 0; i < RADIX_ITEMS; i++) {
            const u32 at = i * 256 + t;
            if (at < valid) {
                const Key k = staged_keys[at];
                const u32 digit = digit_of(p, k, shift);
                const Count target = in_row[digit] + (at - in_tile[digit]);
                keys_out[target] = k;
                position_out(p, positions_row + target, staged[at]);
            }
        }
    } else {
        Count target[RADIX_ITEMS];
#pragma unroll
        for (int i = 0; i < RADIX_ITEMS; i++) {
            const u32 at = i * 256 + t;
            if (at < valid) {
                const Key k = staged_keys[at];
                const u32 digit = digit_of(p, k, shift);
                target[i] = in_row[digit] + (at - in_tile[digit]);
                keys_out[target[i]] = k;
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < RADIX_ITEMS; i++) {
            const u32 at = warp * (32 * RADIX_ITEMS) + i * 32 + lane;
            if (at < valid) staged[place[i]] = position_in(p, row, first + at);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < RADIX_ITEMS; i++) {
            const u32 at = i * 256 + t;
            if (at < valid) position_out(p, positions_row + target[i], staged[at]);
        }
    }
}
