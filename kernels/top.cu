// The first elements of rows in sort order. A block takes a part of a row: it collects the elements that come before the
// last one that it would keep, and sorts and cuts what it collected when that is many. Equal elements are in the order
// of their positions, so the order in which they are collected does not matter.
//
// p.w: 0 input, 1 positions of its elements (0: their places in the row), 2 values, 3 positions, 4 elements of a row, 5 parts of
// a row, 6 how many elements to keep, 7 row stride of input, 8 strides between parts of values, 9 positions, 10 the order of the
// keys, for `sortable`.

struct TopParams { u64 w[11]; };
typedef @KEY@ Key;
#define THREADS 256
// Elements read at a time by a thread, and by a block.
#define READ 4
#define TILE (THREADS * READ)
// Room for what is collected: what is kept and a tile.
#define ROOM 2048

INLINE Key sortable(Key k, u64 order) {
@SORTABLE@
}

struct Found {
    Key keys[ROOM];
    u32 places[ROOM];
    u32 count;
};
// A bitonic sort of what was found; keeps as many.
INLINE void cut(Found& found, u32 kept) {
    const u32 count = found.count;
    u32 size = 2;
    while (size < count) size *= 2;
#pragma unroll 1
    for (u32 i = count + threadIdx.x; i < size; i += THREADS) {
        found.keys[i] = (Key)~(Key)0;
        found.places[i] = ~0u;
    }
    __syncthreads();
    for (u32 run = 2; run <= size; run *= 2) {
        for (u32 step = run / 2; step > 0; step /= 2) {
            for (u32 i = threadIdx.x; i < size / 2; i += THREADS) {
                const u32 low = 2 * i - (i & (step - 1)), high = low + step;
                const Key a = found.keys[low], b = found.keys[high];
                const u32 x = found.places[low], y = found.places[high];
                const bool after = a > b || (a == b && x > y);
                if (after == ((low & run) == 0)) {
                    found.keys[low] = b; found.keys[high] = a;
                    found.places[low] = y; found.places[high] = x;
                }
            }
            __syncthreads();
        }
    }
    if (threadIdx.x == 0) found.count = count < kept ? count : kept;
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(THREADS) top(const __grid_constant__ TopParams p) {
    __shared__ Found found;
    const u32 t = threadIdx.x, kept = (u32)p.w[6];
    const u64 row = blockIdx.x / p.w[5], part = blockIdx.x % p.w[5];
    const u64 first = p.w[4] * part / p.w[5];
    const u32 length = (u32)(p.w[4] * (part + 1) / p.w[5] - first);
    const Key* in = memory<const Key>(p.w[0]) + row * p.w[7] + first;
    if (t == 0) found.count = 0;
    // Elements with a key from the bound on are not kept.
    bool is_full = false;
    Key bound = 0;
    // A bound to begin with: of the first elements of all threads in sort order, the last one to keep.
    bool begins = kept <= THREADS / 2 && length > TILE;
    if (begins) {
        Key least = (Key)~(Key)0;
#pragma unroll 1
        for (u32 i = t; i < length; i += READ * THREADS) {
#pragma unroll
            for (u32 n = 0; n < READ; n++) {
                const u32 at = i + n * THREADS;
                const Key key = at < length ? sortable(in[at], p.w[10]) : (Key)~(Key)0;
                least = key < least ? key : least;
            }
        }
        found.keys[t] = least;
        found.places[t] = t;
        if (t == 0) found.count = THREADS;
    }
    for (u64 tile = 0;;) {
        const bool ends = !begins && tile >= length;
        Key read[READ];
#pragma unroll
        for (u32 n = 0; n < READ; n++) {
            const u64 i = tile + n * THREADS + t;
            read[n] = i < length ? in[i] : (Key)0;
        }
        __syncthreads();
        const bool is_long = begins || ends || found.count > ROOM - TILE;
        __syncthreads();
        // The only call, because its code is long.
        if (is_long) {
            cut(found, kept);
            if (ends) break;
            is_full = true;
            bound = found.keys[kept - 1];
            if (begins) {
                // Equal elements may be kept.
                is_full = bound != (Key)~(Key)0;
                bound += is_full;
                begins = false;
                __syncthreads();
                if (t == 0) found.count = 0;
                __syncthreads();
            }
        }
#pragma unroll
        for (u32 n = 0; n < READ; n++) {
            const u64 i = tile + n * THREADS + t;
            const Key key = sortable(read[n], p.w[10]);
            if (i < length && (!is_full || key < bound)) {
                const u32 at = atomicAdd(&found.count, 1u);
                found.keys[at] = key;
                found.places[at] = (u32)i;
            }
        }
        tile += TILE;
    }
    Key* values = memory<Key>(p.w[2]) + blockIdx.x * p.w[8];
    i64* positions = memory<i64>(p.w[3]) + blockIdx.x * p.w[9];
    // Loops of few rounds are not copied: kernels that ship are short.
#pragma unroll 1
    for (u32 i = t; i < kept; i += THREADS) {
        const u32 at = found.places[i];
        values[i] = in[at];
        positions[i] = p.w[1] ? memory<const i64>(p.w[1])[row * p.w[7] + first + at] : (i64)(first + at);
    }
}
