// Sums of single elements after the sort: a block for each tile of sorted positions, and consecutive ones for each of its
// threads. A run of equal keys that lies in one thread is summed there; one that lies in several threads, at the place
// (in shared memory) of the thread in which it begins. Runs that lie in several tiles are summed by two more launches,
// at the place (in memory) of the tile in which they begin. For the parameters see scatter.cu.
#define EACH 8
#define THREADS 256
#define TILE (THREADS * EACH)
// The place of the run that an earlier tile began.
#define BEFORE THREADS

INLINE Key key_at(const ScatterParams& p, u64 at) {
    return at < p.w[0] ? memory<const Key>(p.w[8])[at] : (Key)p.w[10];
}
INLINE float value_at(const ScatterParams& p, Index position) {
    const Index j = 0;
@INNER@
    const @BASE@ source = @FIRST@;
    return @LOAD@position@LOADED@;
}
INLINE u64 out_at(const ScatterParams& p, Key key) { return p.w[7] + bytes_to(p, key); }

extern "C" __global__ void __launch_bounds__(THREADS) sum_runs(const __grid_constant__ ScatterParams p) {
    report_dropped(p);
    // One element of room after those of each thread, so that threads use different banks.
    __shared__ Key keys[TILE + THREADS];
    __shared__ float values[TILE + THREADS];
    __shared__ u32 tops[THREADS + 1], low[THREADS + 1], high[THREADS + 1], last_start[THREADS / 32];
    const Count* positions = memory<const Count>(p.w[9]);
    const Key dropped = (Key)p.w[10];
    const u32 t = threadIdx.x, room = (u32)p.w[14];
    const u64 begin = (u64)blockIdx.x * TILE;
#pragma unroll
    for (u32 n = 0; n < EACH; n++) {
        const u32 at = n * THREADS + t;
        const Key key = key_at(p, begin + at);
        keys[at + at / EACH] = key;
        values[at + at / EACH] = key == dropped ? 0.0f : value_at(p, (Index)positions[begin + at]);
    }
    for (u32 place = t; place <= THREADS; place += THREADS) tops[place] = low[place] = high[place] = 0;
    const Key before_tile = begin == 0 ? 0 : key_at(p, begin - 1), after_tile = key_at(p, begin + TILE);
    __syncthreads();

    Key key[EACH];
    float value[EACH], held[EACH];
    // Whether a run begins at an element, and behind the last one.
    bool starts[EACH + 1];
    bool has_start = false;
    Key earlier = t > 0 ? keys[t * (EACH + 1) - 2] : before_tile;
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
        key[e] = keys[t * (EACH + 1) + e];
        value[e] = values[t * (EACH + 1) + e];
        starts[e] = key[e] != earlier || begin + t + e == 0;
        has_start |= starts[e];
        held[e] = starts[e] && key[e] != dropped ? load(p, out_at(p, key[e])) : 0.0f;
        earlier = key[e];
    }
    // The last run of this thread goes on in the next one.
    const Key after = t + 1 < THREADS ? keys[(t + 1) * (EACH + 1)] : after_tile;
    const bool goes_on = after == key[EACH - 1];
    starts[EACH] = !goes_on;
    // The place of the run at this thread's first element: that of the nearest thread before in which a run begins.
    const u32 having = __ballot_sync(~0u, has_start), lane = t % 32, warp = t / 32;
    if (lane == 0) last_start[warp] = having == 0 ? BEFORE : warp * 32 + 31 - __clz(having);
    __syncthreads();
    const u32 below = having & ((1u << lane) - 1);
    u32 from = below != 0 ? warp * 32 + 31 - __clz(below) : BEFORE;
    for (u32 w = warp; from == BEFORE && w-- > 0;) from = last_start[w];
    // The place of the tile's last run, which may go on in the next tile.
    u32 last = BEFORE;
    for (u32 w = THREADS / 32; last == BEFORE && w-- > 0;) last = last_start[w];
    const bool leaves = after_tile == keys[TILE + THREADS - 2];

    // Tops: up to each element, then those of whole runs, where these lie in this thread.
    u32 top[EACH], so_far = 0;
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
        const bool is_dropped = key[e] == dropped;
        if (starts[e]) so_far = is_dropped ? 0 : top_of(held[e]);
        so_far = higher(so_far, is_dropped ? 0 : top_of(value[e]));
        top[e] = so_far;
    }
#pragma unroll
    for (u32 e = EACH - 1; e-- > 0;) {
        if (!starts[e + 1]) top[e] = top[e + 1];
    }
    if (!starts[0]) raise_top(tops + from, 0, top[0]);
    if (goes_on && has_start) raise_top(tops + t, 0, top[EACH - 1]);
    __syncthreads();
    const u32 top_before = tops[from], top_after = tops[has_start ? t : from];
    bool is_first = !starts[0];
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
        is_first &= !starts[e];
        if (is_first) top[e] = top_before;
    }
    bool is_last = goes_on && has_start;
#pragma unroll
    for (u32 e = EACH; e-- > 0;) {
        if (is_last) top[e] = top_after;
        is_last &= !starts[e];
    }

    // Sums. Those of runs that lie in several tiles need the tops of all tiles.
    i64 sum = 0;
    // Whether the run of an element begins in this thread.
    bool is_own = false;
#pragma unroll
    for (u32 e = 0; e < EACH; e++) {
        is_own |= starts[e];
        if (starts[e]) sum = units(held[e], top[e], room);
        sum += units(value[e], top[e], room);
        if (key[e] == dropped || (e + 1 < EACH && !starts[e + 1])) continue;
        if (is_own && starts[e + 1]) {
            store(p, out_at(p, key[e]), sum_of(sum, top[e], room));
            continue;
        }
        const u32 place = is_own ? t : from;
        if (place != BEFORE && !(place == last && leaves)) add_words(low + place, high + place, (u64)sum);
    }
    __syncthreads();
    if (goes_on && has_start && key[EACH - 1] != dropped && !(t == last && leaves)) {
        store(p, out_at(p, key[EACH - 1]), sum_of((i64)((u64)high[t] << 32 | low[t]), tops[t], room));
    }
    if (t == 0) {
        u32* all = memory<u32>(p.w[12]);
        const Key first = keys[0];
        if (begin > 0 && first == before_tile && first != dropped) {
            raise_top(all + first_at(memory<const Key>(p.w[8]), first, 0, begin) / TILE, 0, tops[BEFORE]);
        }
        if (leaves && last != BEFORE && after_tile != dropped) raise_top(all + blockIdx.x, 0, tops[last]);
    }
}

// Adds the elements from `low` to `high` to the sum of a tile.
INLINE void add_part(const ScatterParams& p, u64 low, u64 high, u64 tile, float held) {
    const u32 top = memory<const u32>(p.w[12])[tile], room = (u32)p.w[14];
    const Count* positions = memory<const Count>(p.w[9]);
    i64 sum = threadIdx.x == 0 ? units(held, top, room) : 0;
    for (u64 at = low + threadIdx.x; at < high; at += THREADS) {
        sum += units(value_at(p, (Index)positions[at]), top, room);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0 && sum != 0) {
        atomicAdd(memory<unsigned long long>(p.w[13]) + tile, (unsigned long long)sum);
    }
}
// The parts of a tile that belong to runs of several tiles.
extern "C" __global__ void __launch_bounds__(THREADS) add_long(const __grid_constant__ ScatterParams p) {
    const Key* keys = memory<const Key>(p.w[8]);
    const Key dropped = (Key)p.w[10];
    const u64 begin = (u64)blockIdx.x * TILE, count = p.w[0];
    const u64 end = begin + TILE < count ? begin + TILE : count;
    const Key first = keys[begin], last = keys[end - 1];
    const bool enters = begin > 0 && first != dropped && keys[begin - 1] == first;
    if (enters) {
        const u64 tile = first_at(keys, first, 0, begin) / TILE;
        add_part(p, begin, first_at(keys, (Key)(first + 1), begin, end), tile, 0.0f);
    }
    if (end < count && last != dropped && keys[end] == last && !(enters && first == last)) {
        add_part(p, first_at(keys, last, begin, end), end, blockIdx.x, load(p, out_at(p, last)));
    }
}
// The results of the runs that begin in a tile and end in another.
extern "C" __global__ void __launch_bounds__(256) finish(const __grid_constant__ ScatterParams p) {
    const Key* keys = memory<const Key>(p.w[8]);
    const u64 tile = (u64)blockIdx.x * 256 + threadIdx.x, begin = tile * TILE, end = begin + TILE;
    if (end >= p.w[0]) return;
    const Key last = keys[end - 1];
    if ((u64)last == p.w[10] || keys[end] != last || (begin > 0 && keys[begin - 1] == last)) return;
    const float sum = sum_of(memory<const i64>(p.w[13])[tile], memory<const u32>(p.w[12])[tile], (u32)p.w[14]);
    store(p, out_at(p, last), sum);
}
