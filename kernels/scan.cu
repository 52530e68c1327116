// Running combinations along rows of adjacent elements.
//
// A thread takes ITEMS adjacent elements, a team of TEAM threads (a warp or a block) a tile of TEAM * ITEMS.
// Tiles are processed in order with a carry. Few long rows are split into segments: first their totals are
// combined, then scanned, then each segment starts with its carry. The split depends only on the shape.
//
// Short rows whose elements are apart while the rows are adjacent, the columns of a matrix, are read and written as they
// lie (`scan_columns`): a block takes COLUMNS rows, and shared memory holds their tiles. The order is the same.
//
// p.w: 0 input, 1 output, 2 carries or 0, 3 rows, 4 length, 5 segment, 6 segments, 7 input's row
// stride, 8 output's row stride, 9 size and 10 number of the dtype if it is known at launch. Of columns: 3 groups of
// adjacent rows, 5 rows of a group, 6 their blocks, 7 and 8 strides of groups, 9 and 10 strides along a row.

struct Params { u64 w[11]; };
typedef @ACC@ Acc;
@DTYPES@
#define SIZE @SIZE@
#define INIT @INIT@
#define TEAM @TEAM@
#define ITEMS 4
#define TILE (TEAM * ITEMS)
#define VECTOR @VECTOR@

@QUALIFIER@ Acc combine(Acc a, Acc b) { return @COMBINE@; }

// Combines one value per thread of the team. Returns the exclusive prefix of this thread, and the total.
INLINE Acc team_scan(Acc mine, Acc& total) {
    const int lane = threadIdx.x % 32;
    Acc sum = mine;
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
        const Acc before = __shfl_up_sync(FULL_WARP, sum, delta);
        if (lane >= delta) sum = combine(before, sum);
    }
    Acc before = __shfl_up_sync(FULL_WARP, sum, 1);
    if (lane == 0) before = INIT;
    total = __shfl_sync(FULL_WARP, sum, 31);
#if TEAM > 32
    __shared__ Acc warps[TEAM / 32];
    const int warp = threadIdx.x / 32;
    __syncthreads();
    if (lane == 0) warps[warp] = total;
    __syncthreads();
    Acc front = INIT;
    total = INIT;
#if @HEAVY@
    // A costly function is called by one thread, in the same order.
    __shared__ Acc fronts[TEAM / 32 + 1];
    if (threadIdx.x == 0) {
        for (int i = 0; i < TEAM / 32; i++) {
            fronts[i] = total;
            total = combine(total, warps[i]);
        }
        fronts[TEAM / 32] = total;
    }
    __syncthreads();
    front = fronts[warp];
    total = fronts[TEAM / 32];
#else
#pragma unroll
    for (int i = 0; i < TEAM / 32; i++) {
        if (i == warp) front = total;
        total = combine(total, warps[i]);
    }
#endif
    before = combine(front, before);
#endif
    return before;
}

INLINE void load_items(const Params& p, Acc (&v)[ITEMS], u64 row, u64 at, u64 end) {
#if VECTOR
    if (at < end) {
        u32 words[ITEMS * SIZE / 4];
        load_words(words, row + at * SIZE);
#pragma unroll
        for (int i = 0; i < ITEMS; i++) v[i] = load_@DTYPE@(take<Bits>(words, i));
        return;
    }
#endif
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        v[i] = INIT;
        if (at + i < end) v[i] = @LOAD@;
    }
}

#if !@COLUMNS@
extern "C" __global__ void __launch_bounds__(256) scan_rows(const __grid_constant__ Params p) {
    const u64 slot = (u64)blockIdx.x * (256 / TEAM) + threadIdx.x / TEAM;
    const bool live = slot < p.w[3] * p.w[6];
    const u64 row = live ? slot / p.w[6] : 0, part = live ? slot % p.w[6] : 0;
    const u64 begin = part * p.w[5];
    const u64 left = p.w[4] - begin;
    const u64 end = !live ? 0 : begin + (left < p.w[5] ? left : p.w[5]);
    const u64 in = p.w[0] + row * p.w[7] * SIZE, out = p.w[1] + row * p.w[8] * SIZE;
    const int t = threadIdx.x % TEAM;
    Acc carry = INIT;
    if (live && p.w[2] != 0) carry = memory<const Acc>(p.w[2])[slot];
    // Every thread of a team visits every tile: the team's scan needs all of them. The next tile is loaded
    // while this one is scanned.
    Acc next[ITEMS];
    load_items(p, next, in, begin + (u64)t * ITEMS, end);
    for (u64 tile = begin; tile < end; tile += TILE) {
        const u64 at = tile + (u64)t * ITEMS;
        Acc v[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; i++) v[i] = next[i];
        if (tile + TILE < end) load_items(p, next, in, at + TILE, end);
#pragma unroll
        for (int i = 1; i < ITEMS; i++) v[i] = combine(v[i - 1], v[i]);
        Acc total;
        const Acc before = combine(carry, team_scan(v[ITEMS - 1], total));
        carry = combine(carry, total);
#pragma unroll
        for (int i = 0; i < ITEMS; i++) v[i] = combine(before, v[i]);
#if VECTOR
        if (at < end) {
            u32 words[ITEMS * SIZE / 4] = {};
#pragma unroll
            for (int i = 0; i < ITEMS; i++) put<Bits>(words, i, store_@DTYPE@(round_@DTYPE@(v[i])));
            store_words(words, out + at * SIZE);
        }
#else
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            if (at + i < end) @STORE@;
        }
#endif
    }
}

#endif

#if @COLUMNS@
#define COLUMNS 32
#define WARPS 8
// A row of a tile: the first items of all lanes, then the second ones. It has one element more, so that a warp's lanes
// access different banks.
#define PITCH (TILE + 1)

extern "C" __global__ void __launch_bounds__(256) scan_columns(const __grid_constant__ Params p) {
    __shared__ Acc tile[COLUMNS * PITCH];
    const u64 group = blockIdx.x / p.w[6], first = blockIdx.x % p.w[6] * COLUMNS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool live = first + lane < p.w[5];
    const u64 in = group * p.w[7] + first + lane, out = group * p.w[8] + first + lane;
    Acc carry[COLUMNS / WARPS];
#pragma unroll
    for (int c = 0; c < COLUMNS / WARPS; c++) carry[c] = INIT;
    for (u64 begin = 0; begin < p.w[4]; begin += TILE) {
        // A warp accesses an element of each row at a time.
        Acc held[TILE / WARPS];
#pragma unroll
        for (int i = 0; i < TILE / WARPS; i++) {
            const u64 at = begin + i * WARPS + warp;
            held[i] = INIT;
            if (live && at < p.w[4]) held[i] = load_@DTYPE@(memory<const Bits>(p.w[0])[in + at * p.w[9]]);
        }
#pragma unroll
        for (int i = 0; i < TILE / WARPS; i++) {
            const int at = i * WARPS + warp;
            tile[lane * PITCH + at % ITEMS * 32 + at / ITEMS] = held[i];
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < COLUMNS / WARPS; c++) {
            Acc* const row = tile + (warp * (COLUMNS / WARPS) + c) * PITCH + lane;
            Acc v[ITEMS];
#pragma unroll
            for (int i = 0; i < ITEMS; i++) v[i] = row[i * 32];
#pragma unroll
            for (int i = 1; i < ITEMS; i++) v[i] = combine(v[i - 1], v[i]);
            Acc total;
            const Acc before = combine(carry[c], team_scan(v[ITEMS - 1], total));
            carry[c] = combine(carry[c], total);
#pragma unroll
            for (int i = 0; i < ITEMS; i++) row[i * 32] = combine(before, v[i]);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE / WARPS; i++) {
            const int own = i * WARPS + warp;
            const u64 at = begin + own;
            if (live && at < p.w[4]) {
                const Acc sum = tile[lane * PITCH + own % ITEMS * 32 + own / ITEMS];
                memory<Bits>(p.w[1])[out + at * p.w[10]] = store_@DTYPE@(round_@DTYPE@(sum));
            }
        }
        __syncthreads();
    }
}
#endif

#if TEAM > 32
// One block per segment: the segment's total.
extern "C" __global__ void __launch_bounds__(256) scan_totals(const __grid_constant__ Params p) {
    const u64 row = blockIdx.x / p.w[6], part = blockIdx.x % p.w[6];
    const u64 begin = part * p.w[5];
    const u64 left = p.w[4] - begin;
    const u64 end = begin + (left < p.w[5] ? left : p.w[5]);
    const u64 in = p.w[0] + row * p.w[7] * SIZE;
    // A thread combines its items of each tile; then the tiles' totals are combined in order.
    Acc sum = INIT;
    for (u64 tile = begin; tile < end; tile += TILE) {
        Acc v[ITEMS];
        load_items(p, v, in, tile + (u64)threadIdx.x * ITEMS, end);
#pragma unroll
        for (int i = 1; i < ITEMS; i++) v[i] = combine(v[i - 1], v[i]);
        sum = combine(sum, v[ITEMS - 1]);
    }
    Acc total;
    team_scan(sum, total);
    if (threadIdx.x == 0) memory<Acc>(p.w[2])[blockIdx.x] = total;
}

// One block per row: replaces the segments' totals by their exclusive prefixes.
extern "C" __global__ void __launch_bounds__(256) scan_carries(const __grid_constant__ Params p) {
    Acc* row = memory<Acc>(p.w[2]) + (u64)blockIdx.x * p.w[6];
    Acc carry = INIT;
    for (u64 base = 0; base < p.w[6]; base += TILE) {
        const u64 at = base + (u64)threadIdx.x * ITEMS;
        Acc v[ITEMS];
#pragma unroll
        for (int i = 0; i < ITEMS; i++) v[i] = at + i < p.w[6] ? row[at + i] : INIT;
        Acc sum = v[0];
#pragma unroll
        for (int i = 1; i < ITEMS; i++) sum = combine(sum, v[i]);
        Acc total;
        Acc before = combine(carry, team_scan(sum, total));
        carry = combine(carry, total);
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            if (at + i < p.w[6]) row[at + i] = before;
            before = combine(before, v[i]);
        }
    }
}
#endif
