// out[.., index[i], ..] = source[i], one winner per target; or a combination of all of them.
//
// A launch has `outer` dimensions, over which the index varies, and `inner` ones, over which it does not (only
// where sources are combined in sorted order): an element of the index moves a whole row of inner elements.
//
// p.w: 0 outer elements, 1 extent of the axis, 2 out's stride along the axis, 3 fault record, 4 its stamp, 5 source, 6 index,
// 7 out;
// 8 winners (0 if all sources are one element), sorted keys, or the elements of a row (row_scatter.cu);
// 9 sorted positions; or 1 if targets have many sources, and 2 to clear winners; or the logarithm of a block's sums per
//   target;
// 10 the target for dropped elements, or their key; 11 inner elements;
// 12 tops, 13 sums and 14 room of sums.cuh; for extremes 12 their numbers; where a combination has an order 12 partial
//   results, 13 those of this pass, and 14 the logarithm of the number of sorted positions that one is made of;
// 15 size and 16 number of the dtype, if they are known at launch;
// 17 whether extremes are the least, if that is known at launch; where elements are sorted, the step from one key to the next;
// 18 whether an index that was sorted before may have dropped elements;
// then the layout from kernel/kinds. A target is an offset in `out`, in elements, of the first inner element: its key times
// the step.

struct ScatterParams { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
@DTYPES@
#define SIZE @SIZE@
typedef @UNSIGNED@ Unsigned;

struct Offsets { Index source, index, out, number; };
#if @RANK@ > 0
// A loop is short where dimensions and 64-bit divisions are many, and ends where no coordinates are left.
static __device__ __noinline__ Offsets offsets_of(const ScatterParams& p, Index i) {
    Offsets at = {0, 0, 0, 0};
    for (u32 d = @RANK@; i != 0 && d-- > 0;) {
        Index rest = 0;
        if (d > 0) {
            const Index extent = (Index)p.w[@DIVISORS@ + 2 * d - 2];
            rest = i / extent;
            i -= rest * extent;
        }
        const u64* steps = p.w + @STRIDES@ + d;
        at.source += i * (Index)steps[0];
        at.index += i * (Index)steps[@RANK@];
        at.out += i * (Index)steps[2 * @RANK@];
        at.number += i * (Index)steps[3 * @RANK@];
        i = rest;
    }
    return at;
}
#else
INLINE Offsets offsets_of(const ScatterParams& p, Index i) {
@COORDINATES@
    return {(Index)(@AT_SOURCE@), (Index)(@AT_INDEX@), (Index)(@AT_OUT@), (Index)(@AT_NUMBER@)};
}
#endif
@MAPPED@// The target of element i. A bad index is reported once and has no target.
INLINE bool target_of(const ScatterParams& p, Index i, bool report, u64& target) {
    const Offsets offsets = offsets_of(p, i);
    i64 at = memory<const i64>(p.w[6])[offsets.index];
    const i64 extent = (i64)p.w[1];
@CHECKED@    if (at < -extent || at >= extent) {
        if (report) @REPORT@;
        return false;
    }
    at += at < 0 ? extent : 0;
    target = (u64)offsets.out + (u64)at * p.w[2];
    return true;
}
// Reports the bad indices among a thread's elements of a tile. Apart, because a kernel reports in one place.
INLINE void report_tile(const ScatterParams& p, u64 first) {
    #pragma unroll 1
    for (u64 i = first + threadIdx.x; i < first + 1024 && i < p.w[0]; i += 256) {
        u64 target;
        target_of(p, (Index)i, true, target);
    }
}
INLINE Index source_offset(const ScatterParams& p, Index i) { return offsets_of(p, i).source; }

// Elements at an address.
INLINE Bits bits_at(const ScatterParams& p, u64 address) { return @BITS_AT@; }
INLINE Bits source_of(const ScatterParams& p, Index i) {
    return @SOURCE@;
}
#if @MODE@ > 1 && @MODE@ < 8
INLINE @ACC@ value_of(const ScatterParams& p, Bits bits) { return @VALUE@; }
INLINE @ACC@ load(const ScatterParams& p, u64 address) { return value_of(p, bits_at(p, address)); }
INLINE void store(const ScatterParams& p, u64 address, @ACC@ value) { @STORE@; }
#endif

// Shared memory adds 32 bits in one instruction but 64 in a loop, so a sum there is two words.
INLINE void add_words(u32* low, u32* high, u64 part) {
    const u32 before = atomicAdd(low, (u32)part);
    const u32 above = (u32)(part >> 32) + (u32)(before > ~(u32)part);
    if (above != 0) atomicAdd(high, above);
}

#if @FEW@ && (@MODE@ == 1 || @MODE@ == 2)
// A block's sums of few targets. A target has 2^p.w[9] sums, so that few lanes add to one word at the same time.
INLINE u32 own_place(const ScatterParams& p, u32 target, u32 lane) {
    const u32 copies = (u32)p.w[9];
    return target << copies | (lane & ((1u << copies) - 1));
}
INLINE void add_own(const ScatterParams& p, u32* low, u32* high, u32 target, u32 part) {
    atomicAdd(low + own_place(p, target, threadIdx.x), part);
}
INLINE void add_own(const ScatterParams& p, u32* low, u32* high, u32 target, unsigned long long part) {
    const u32 at = own_place(p, target, threadIdx.x);
    add_words(low + at, high + at, part);
}
template <class Sum> INLINE void clear_own(const ScatterParams& p, u32* low, u32* high) {
    for (u32 at = threadIdx.x; at < (u32)p.w[10] << (u32)p.w[9]; at += 256) {
        low[at] = 0;
        if constexpr (sizeof(Sum) == 8) high[at] = 0;
    }
    __syncthreads();
}
template <class Sum> INLINE void flush_own(const ScatterParams& p, const u32* low, const u32* high, Sum* sums) {
    __syncthreads();
    for (u32 t = threadIdx.x; t < (u32)p.w[10]; t += 256) {
        Sum sum = 0;
        #pragma unroll 1
        for (u32 copy = 0; copy >> (u32)p.w[9] == 0; copy++) {
            const u32 at = own_place(p, t, threadIdx.x + copy);
            sum += low[at];
            if constexpr (sizeof(Sum) == 8) sum += (Sum)high[at] << 32;
        }
        if (sum != 0) atomicAdd(sums + t, sum);
    }
}
#endif

#if @MODE@ == 0
// The last element for each target: the greatest position, plus one. The last elements come first, so that where targets have
// many sources, most of them find that they have lost and wait for no other.
extern "C" __global__ void __launch_bounds__(256) claim(const __grid_constant__ ScatterParams p) {
    const Index thread = (Index)blockIdx.x * 256 + threadIdx.x;
    if (thread >= (Index)p.w[0]) return;
    const Index i = (Index)p.w[0] - 1 - thread;
    // Of many targets, only those that have a source are cleared, by a pass before.
    const bool clears = p.w[9] == 2;
    u64 target;
    if (!target_of(p, i, !clears, target)) return;
    Index* winner = &memory<Index>(p.w[8])[target];
    if (clears) {
        *winner = 0;
    } else if (p.w[9] == 0 || *winner < i + 1) {
        atomicMax(winner, (Index)(i + 1));
    }
}
extern "C" __global__ void __launch_bounds__(256) settle(const __grid_constant__ ScatterParams p) {
    const Index i = (Index)blockIdx.x * 256 + threadIdx.x;
    const bool same = p.w[8] == 0;
    u64 target;
    if (i < (Index)p.w[0] && target_of(p, i, same, target)
        && (same || memory<const Index>(p.w[8])[target] == (Index)(i + 1))) {
        memory<Bits>(p.w[7])[target] = source_of(p, i);
    }
}
#elif @MODE@ == 1
// Sums of integers do not depend on their order. Few targets are counted in shared memory first.
extern "C" __global__ void __launch_bounds__(256) add(const __grid_constant__ ScatterParams p) {
    Unsigned* out = memory<Unsigned>(p.w[7]);
#if @FEW@
    __shared__ u32 low[@FEW@], high[sizeof(Unsigned) == 8 ? @FEW@ : 1];
    clear_own<Unsigned>(p, low, high);
    for (u64 first = (u64)blockIdx.x * 1024; first < p.w[0]; first += (u64)gridDim.x * 1024) {
        u64 target[4];
        Unsigned part[4];
        bool bad = false;
        #pragma unroll
        for (int n = 0; n < 4; n++) {
            const u64 i = first + 256 * n + threadIdx.x;
            part[n] = 0;
            if (i >= p.w[0]) continue;
            if (target_of(p, (Index)i, false, target[n])) part[n] = (Unsigned)source_of(p, (Index)i@NOTED@); else bad = true;
        }
        if (bad) report_tile(p, first);
        #pragma unroll
        for (int n = 0; n < 4; n++) {
            if (part[n] != 0) add_own(p, low, high, (u32)target[n], part[n]);
        }
    }
    flush_own(p, low, high, out);
#else
    const Index count = (Index)p.w[0];
    for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < (u64)count; at += (u64)gridDim.x * 256) {
        const Index i = (Index)at;
        u64 target;
        if (target_of(p, i, true, target)) atomicAdd(&out[target], (Unsigned)source_of(p, i));
    }
#endif
}
#elif @MODE@ == 2
// Sums of floats, in four launches: the tops, the values from before, the other numbers, the results. Few targets are
// summed in shared memory first.
extern "C" __global__ void __launch_bounds__(256) tops(const __grid_constant__ ScatterParams p) {
    u32* tops = memory<u32>(p.w[12]);
    u32* into = tops;
#if @FEW@
    __shared__ u32 own[@FEW@];
    into = own;
    for (u32 t = threadIdx.x; t < (u32)p.w[10]; t += 256) own[t] = 0;
    __syncthreads();
#endif
    for (u64 first = (u64)blockIdx.x * 1024; first < p.w[0]; first += (u64)gridDim.x * 1024) {
        u64 target[4];
        u32 held[4], found[4];
        bool bad = false;
        #pragma unroll
        for (int n = 0; n < 4; n++) {
            const u64 i = first + 256 * n + threadIdx.x;
            found[n] = 0;
            if (i >= p.w[0]) continue;
            if (target_of(p, (Index)i, false, target[n])) {
                found[n] = top_of(value_of(p, source_of(p, (Index)i@NOTED@)));
            } else {
                bad = true;
            }
        }
        if (bad) report_tile(p, first);
        #pragma unroll
        for (int n = 0; n < 4; n++) held[n] = found[n] ? into[target[n]] : 0;
        #pragma unroll
        for (int n = 0; n < 4; n++) {
            if (found[n]) raise_top(into + target[n], held[n], found[n]);
        }
    }
#if @FEW@
    __syncthreads();
    for (u32 t = threadIdx.x; t < (u32)p.w[10]; t += 256) raise_top(tops + t, 0, own[t]);
#endif
}
extern "C" __global__ void __launch_bounds__(256) begin(const __grid_constant__ ScatterParams p) {
    const u64 target = (u64)blockIdx.x * 256 + threadIdx.x;
    if (target >= p.w[10]) return;
    u32* tops = memory<u32>(p.w[12]);
    u32 top = tops[target];
    if (top == 0) return;
    const float held = load(p, p.w[7] + target * SIZE);
    top = higher(top, top_of(held));
    tops[target] = top;
    memory<i64>(p.w[13])[target] = units(held, top, (u32)p.w[14]);
}
extern "C" __global__ void __launch_bounds__(256) add(const __grid_constant__ ScatterParams p) {
    const u32* tops = memory<const u32>(p.w[12]);
    unsigned long long* sums = memory<unsigned long long>(p.w[13]);
#if @FEW@
    __shared__ u32 low[@FEW@], high[@FEW@];
    clear_own<unsigned long long>(p, low, high);
#endif
    for (u64 first = (u64)blockIdx.x * 1024; first < p.w[0]; first += (u64)gridDim.x * 1024) {
        u64 target[4];
        float value[4];
        u32 top[4];
        #pragma unroll
        for (int n = 0; n < 4; n++) {
            const u64 i = first + 256 * n + threadIdx.x;
            value[n] = 0;
            if (i < p.w[0] && target_of(p, (Index)i, false, target[n])) {
                value[n] = value_of(p, source_of(p, (Index)i));
            }
        }
        #pragma unroll
        for (int n = 0; n < 4; n++) top[n] = value[n] != 0 ? tops[target[n]] : 0;
        #pragma unroll
        for (int n = 0; n < 4; n++) {
            if (value[n] == 0) continue;
            const i64 part = units(value[n], top[n], (u32)p.w[14]);
            if (part == 0) continue;
#if @FEW@
            add_own(p, low, high, (u32)target[n], (unsigned long long)part);
#else
            atomicAdd(sums + target[n], (unsigned long long)part);
#endif
        }
    }
#if @FEW@
    flush_own(p, low, high, sums);
#endif
}
extern "C" __global__ void __launch_bounds__(256) finish(const __grid_constant__ ScatterParams p) {
    const u64 target = (u64)blockIdx.x * 256 + threadIdx.x;
    if (target >= p.w[10]) return;
    const u32 top = memory<const u32>(p.w[12])[target];
    if (top == 0) return;
    const float sum = sum_of(memory<const i64>(p.w[13])[target], top, (u32)p.w[14]);
    store(p, p.w[7] + target * SIZE, sum);
}
#elif @MODE@ == 3
// Extremes do not depend on the order either: the greatest of unsigned numbers, of which 0 never changes a result. Few
// targets are combined in shared memory first.
typedef @ACC@ Acc;
#define SIGN ((Unsigned)1 << (8 * sizeof(Unsigned) - 1))
#define MOST (~(Unsigned)0)

// The number of an element; that of nan is the greatest.
INLINE Unsigned number_of(const ScatterParams& p, Bits element) {
    const Acc a = value_of(p, element);
    if (is_nan(a)) return MOST;
    const Unsigned b = (Unsigned)bits(a);
    const Unsigned number = @FLOAT@ && (b & SIGN) ? ~b : b ^ SIGN;
    return @LEAST@ ? ~number : number;
}
INLINE Acc element_of(const ScatterParams& p, Unsigned number) {
    if (@FLOAT@ && number == MOST) return (Acc)NAN;
    const Unsigned b = @LEAST@ ? ~number : number;
    return @CLASS@_of(@FLOAT@ && !(b & SIGN) ? ~b : b ^ SIGN);
}
extern "C" __global__ void __launch_bounds__(256) extremes(const __grid_constant__ ScatterParams p) {
    Unsigned* numbers = memory<Unsigned>(p.w[12]);
    Unsigned* into = numbers;
#if @FEW@
    __shared__ Unsigned own[@FEW@];
    into = own;
    for (u32 t = threadIdx.x; t < (u32)p.w[10]; t += 256) own[t] = 0;
    __syncthreads();
#endif
    for (u64 first = (u64)blockIdx.x * 1024; first < p.w[0]; first += (u64)gridDim.x * 1024) {
        u64 target[4];
        Unsigned held[4], found[4];
        bool bad = false;
        #pragma unroll
        for (int n = 0; n < 4; n++) {
            const u64 i = first + 256 * n + threadIdx.x;
            found[n] = 0;
            if (i >= p.w[0]) continue;
            if (target_of(p, (Index)i, false, target[n])) found[n] = number_of(p, source_of(p, (Index)i@NOTED@)); else bad = true;
        }
        if (bad) report_tile(p, first);
        #pragma unroll
        for (int n = 0; n < 4; n++) held[n] = found[n] ? into[target[n]] : 0;
        #pragma unroll
        for (int n = 0; n < 4; n++) {
            if (found[n] > held[n]) atomicMax(into + target[n], found[n]);
        }
    }
#if @FEW@
    __syncthreads();
    for (u32 t = threadIdx.x; t < (u32)p.w[10]; t += 256) {
        if (own[t] > numbers[t]) atomicMax(numbers + t, own[t]);
    }
#endif
}
extern "C" __global__ void __launch_bounds__(256) finish(const __grid_constant__ ScatterParams p) {
    const u64 target = (u64)blockIdx.x * 256 + threadIdx.x;
    if (target >= p.w[10]) return;
    const Unsigned number = memory<const Unsigned>(p.w[12])[target];
    const u64 out = p.w[7] + target * SIZE;
    if (number != 0 && number > number_of(p, bits_at(p, out))) store(p, out, element_of(p, number));
}
#elif @MODE@ >= 7
// Rows of few targets: row_scatter.cu.
#else
extern "C" __global__ void __launch_bounds__(256) targets(const __grid_constant__ ScatterParams p) {
    const Index i = (Index)blockIdx.x * 256 + threadIdx.x;
    if (i >= (Index)p.w[0]) return;
    u64 target;
    if (!target_of(p, i, true, target)) {
        target = p.w[10];
    } else if (p.w[17] > 1) {
        target /= p.w[17];
    }
    memory<Key>(p.w[8])[i] = (Key)target;
}
// The bytes from the first target to that of a key.
INLINE u64 bytes_to(const ScatterParams& p, Key key) { return (u64)key * p.w[17] * SIZE; }
// The first of the positions from `low` on whose key is at least this one; `high` if there is none before it.
INLINE u64 first_at(const Key* keys, Key key, u64 low, u64 high) {
    while (low < high) {
        const u64 middle = (low + high) / 2;
        if (keys[middle] < key) low = middle + 1; else high = middle;
    }
    return low;
}
// Reports the first dropped element of an index that was sorted before.
INLINE void report_dropped(const ScatterParams& p) {
    if (p.w[18] == 0 || blockIdx.x != 0 || threadIdx.x != 0) return;
    const Key* keys = memory<const Key>(p.w[8]);
    const Key dropped = (Key)p.w[10];
    if (keys[p.w[0] - 1] != dropped) return;
    const u64 first = first_at(keys, dropped, 0, p.w[0] - 1);
    u64 target;
    target_of(p, (Index)memory<const Count>(p.w[9])[first], true, target);
}
#if @MODE@ == 4 && @FEW@
// After the sort: a warp for each chunk of sorted positions and 32 inner elements; each lane reads a key and a position. A
// chunk sums the runs that begin in it and end in it or in the next. Longer runs are summed by all of their chunks, at the
// place of the first.
#define CHUNK 32

struct Chunk {
    u64 number, begin, column;
    // The keys of this lane in the chunk and the next; those beyond the end mean no target.
    Key key, next;
    // Bit i is set if a run begins at position i of the two chunks.
    u64 starts;
};
INLINE Key key_at(const ScatterParams& p, u64 i) { return i < p.w[0] ? memory<const Key>(p.w[8])[i] : (Key)p.w[10]; }
INLINE bool chunk_of(const ScatterParams& p, Chunk& c) {
    const u32 lane = threadIdx.x % 32;
    const Index warp = (Index)blockIdx.x * 8 + threadIdx.x / 32, across = (Index)((p.w[11] + 31) / 32);
    const Index number = warp / across;
    c.number = number;
    c.begin = c.number * CHUNK;
    c.column = (warp - number * across) * 32 + lane;
    if (c.begin >= p.w[0]) return false;
    const u64 at = c.begin + lane;
    c.key = key_at(p, at);
    c.next = key_at(p, at + CHUNK);
    const u32 own = __ballot_sync(~0u, at == 0 || key_at(p, at - 1) != c.key);
    const u32 next = __ballot_sync(~0u, key_at(p, at + CHUNK - 1) != c.next);
    c.starts = (u64)next << 32 | own;
    return true;
}
INLINE Key target_at(const Chunk& c, u32 i) { return __shfl_sync(~0u, c.key, i); }
// The end of the run at position i of a chunk, up to that of the next chunk.
INLINE u32 end_of(const Chunk& c, u32 i) {
    const u64 later = c.starts & ~(((u64)2 << i) - 1);
    return later != 0 ? __ffsll((long long)later) - 1 : 2 * CHUNK;
}
// True for a run that this chunk does not sum alone, and neither does the one before.
INLINE bool is_long(const ScatterParams& p, const Chunk& c, u32 i, u32 end, Key target) {
    if (i == 0 && !(c.starts & 1)) return end > CHUNK || (c.begin > CHUNK && key_at(p, c.begin - CHUNK - 1) == target);
    return end == 2 * CHUNK && key_at(p, c.begin + 2 * CHUNK) == target;
}
struct Sources {
    // The first inner element, and the offsets of this lane's positions in the chunk and the next.
    @BASE@ base;
    @PLACE@ own, next;
};
INLINE Sources sources_of(const ScatterParams& p, const Chunk& c, @BASE@ base) {
    const Count* positions = memory<const Count>(p.w[9]);
    const u64 at = c.begin + threadIdx.x % 32;
    Sources s = {base, 0, 0};
    if (at < p.w[0]) s.own = @PLACED@(p, (Index)positions[at]);
    if (at + CHUNK < p.w[0]) s.next = @PLACED@(p, (Index)positions[at + CHUNK]);
    return s;
}
// Calls `take` with the numbers of a run.
template <class Take> INLINE void each(const ScatterParams& p, const Sources& s, u32 begin, u32 end, Take take) {
    const u32 middle = end < CHUNK ? end : CHUNK;
    #pragma unroll 4
    for (u32 k = begin; k < middle; k++) take(@TAKE@s.own, k@TAKEN@);
    #pragma unroll 4
    for (u32 k = CHUNK; k < end; k++) take(@TAKE@s.next, k - CHUNK@TAKEN@);
}
// The top of a run and of `held`.
INLINE u32 top_of_run(const ScatterParams& p, const Sources& s, u32 begin, u32 end, float held) {
    // Magnitudes have the order of their bits. Numbers that are not finite are rare.
    u32 most = __float_as_uint(held) & 0x7fffffff;
    each(p, s, begin, end, [&](float a) { most = max(most, __float_as_uint(a) & 0x7fffffff); });
    u32 top = max(most >> 23, 1u);
    if (__any_sync(~0u, most >= 0x7f800000)) {
        top = top_of(held);
        each(p, s, begin, end, [&](float a) { top = higher(top, top_of(a)); });
    }
    return top;
}
template <bool LONG> INLINE void sum_chunk(const ScatterParams& p) {
    Chunk c;
    if (!chunk_of(p, c)) return;
    const u32 room = (u32)p.w[14], own = (u32)c.starts;
    const bool has_column = c.column < p.w[11], goes_on = !(own & 1);
    // Only the run that goes on from before and the last one may be long.
    u32 i = goes_on ? 0 : CHUNK;
    if (!goes_on || !is_long(p, c, 0, end_of(c, 0), target_at(c, 0))) {
        i = own == 0 ? CHUNK : LONG ? 31 - __clz(own) : __ffs(own) - 1;
    }
    if (i == CHUNK) return;
    // Lanes without a column read the last one.
    const Index j = (Index)(has_column ? c.column : p.w[11] - 1);
@INNER@
    const u64 out = p.w[7] + (u64)(@INNER_OUT@) * SIZE;
    const Sources s = sources_of(p, c, @FIRST@);
    for (u32 end; i < CHUNK; i = end) {
        const Key target = target_at(c, i);
        if ((u64)target == p.w[10]) return;
        end = end_of(c, i);
        const bool begins = own >> i & 1, is_part = is_long(p, c, i, end, target);
        if (LONG && !is_part) {
            // Between the run that goes on from before and the last one.
            if (end < CHUNK) end = 31 - __clz(own);
            continue;
        }
        const u64 place = out + bytes_to(p, target);
        const float held = begins ? load(p, place) : 0.0f;
        const u32 last = is_part && end > CHUNK ? CHUNK : end;
        u64 at = 0;
        if (is_part) {
            const u64 first = begins ? c.number : first_at(memory<const Key>(p.w[8]), target, 0, c.begin) / CHUNK;
            at = first * p.w[11] + j;
        }
        u32* tops = memory<u32>(p.w[12]) + at;
        const u32 top = LONG ? *tops : top_of_run(p, s, i, last, held);
        if (!LONG && is_part) {
            if (has_column) raise_top(tops, 0, top);
            continue;
        }
        i64 sum = units(held, top, room);
        each(p, s, i, last, [&](float a) { sum += units(a, top, room); });
        if (!has_column) continue;
        if (LONG) {
            atomicAdd(memory<unsigned long long>(p.w[13]) + at, (unsigned long long)sum);
        } else {
            store(p, place, sum_of(sum, top, room));
        }
    }
}
extern "C" __global__ void __launch_bounds__(256) sum_runs(const __grid_constant__ ScatterParams p) {
    report_dropped(p);
    sum_chunk<false>(p);
}
extern "C" __global__ void __launch_bounds__(256) add_long(const __grid_constant__ ScatterParams p) {
    sum_chunk<true>(p);
}
// The results of the long runs that begin in a chunk.
extern "C" __global__ void __launch_bounds__(256) finish(const __grid_constant__ ScatterParams p) {
    Chunk c;
    if (!chunk_of(p, c) || (u32)c.starts == 0) return;
    const u32 i = 31 - __clz((u32)c.starts);
    const Key target = target_at(c, i);
    if ((u64)target == p.w[10] || c.column >= p.w[11] || !is_long(p, c, i, end_of(c, i), target)) return;
    const Index j = (Index)c.column;
@INNER@
    const u64 at = c.number * p.w[11] + j;
    const float sum = sum_of(memory<const i64>(p.w[13])[at], memory<const u32>(p.w[12])[at], (u32)p.w[14]);
    store(p, p.w[7] + (u64)(@INNER_OUT@) * SIZE + bytes_to(p, target), sum);
}
#elif @MODE@ == 4 && @SINGLE@
// After the sort, single elements: sorted.cu.
#elif @MODE@ == 4
// After the sort: a thread for each inner element of each chunk of sorted positions. It sums the runs that lie in the
// chunk; those that lie in several chunks are summed by all of them, at the place of the first.
#define CHUNK 32

struct Place {
    u64 chunk, begin, end, at;
};
INLINE bool place_of(const ScatterParams& p, Place& place) {
    const u64 thread = (u64)blockIdx.x * 256 + threadIdx.x;
    place.chunk = thread / p.w[11];
    place.begin = place.chunk * CHUNK;
    place.end = place.begin + CHUNK < p.w[0] ? place.begin + CHUNK : p.w[0];
    place.at = thread - place.chunk * p.w[11];
    return place.begin < p.w[0];
}
template <bool LONG> INLINE void sum_chunk(const ScatterParams& p) {
    Place place;
    if (!place_of(p, place)) return;
    const Key* keys = memory<const Key>(p.w[8]);
    const Count* positions = memory<const Count>(p.w[9]);
    const u32 room = (u32)p.w[14];
    const Index j = (Index)place.at;
@INNER@
    const @BASE@ source = @FIRST@@AND@out = p.w[7] + (u64)(@INNER_OUT@) * SIZE;
    u64 last;
    for (u64 k = place.begin; k < place.end; k = last) {
        const Key target = keys[k];
        if ((u64)target == p.w[10]) return;
        for (last = k + 1; last < place.end && keys[last] == target; last++) {}
        const bool begins = k == 0 || keys[k - 1] != target;
        const bool is_whole = begins && (last == p.w[0] || keys[last] != target);
        if (LONG && is_whole) continue;
        const float held = begins ? load(p, out + bytes_to(p, target)) : 0.0f;
        u64 at = 0;
        if (!is_whole) at = (begins ? place.chunk : first_at(keys, target, 0, place.begin) / CHUNK) * p.w[11] + place.at;
        u32* tops = memory<u32>(p.w[12]) + at;
        u32 top;
        if (LONG) {
            top = *tops;
        } else {
            top = top_of(held);
            #pragma unroll @UNROLL@
            for (u64 i = k; i < last; i++) {
                top = higher(top, top_of(@LOAD@positions[i]@LOADED@));
            }
            if (!is_whole) {
                raise_top(tops, 0, top);
                continue;
            }
        }
        i64 sum = units(held, top, room);
        #pragma unroll @UNROLL@
        for (u64 i = k; i < last; i++) {
            sum += units(@LOAD@positions[i]@LOADED@, top, room);
        }
        if (LONG) {
            atomicAdd(memory<unsigned long long>(p.w[13]) + at, (unsigned long long)sum);
        } else {
            store(p, out + bytes_to(p, target), sum_of(sum, top, room));
        }
    }
}
extern "C" __global__ void __launch_bounds__(256) sum_runs(const __grid_constant__ ScatterParams p) {
    report_dropped(p);
    sum_chunk<false>(p);
}
extern "C" __global__ void __launch_bounds__(256) add_long(const __grid_constant__ ScatterParams p) {
    sum_chunk<true>(p);
}
// The results of the runs that begin in a chunk and end in another.
extern "C" __global__ void __launch_bounds__(256) finish(const __grid_constant__ ScatterParams p) {
    Place place;
    if (!place_of(p, place) || place.end == p.w[0]) return;
    const Key* keys = memory<const Key>(p.w[8]);
    const Key target = keys[place.end - 1];
    const bool goes_on = (u64)target != p.w[10] && keys[place.end] == target;
    if (!goes_on || (place.begin > 0 && keys[place.begin - 1] == target)) return;
    const Index j = (Index)place.at;
@INNER@
    const u64 at = place.chunk * p.w[11] + place.at;
    const float sum = sum_of(memory<const i64>(p.w[13])[at], memory<const u32>(p.w[12])[at], (u32)p.w[14]);
    store(p, p.w[7] + (u64)(@INNER_OUT@) * SIZE + bytes_to(p, target), sum);
}
#else
// After the sort: the note in kernel/kinds/scatter/ordered.rs. A run is the sources of a target. It is cut into chunks of parts
// from its own first element: of elements in the first pass, then of partial results, each made of the same number of sorted
// positions. A thread combines the chunks that begin among as many positions as a part has, for one inner element.
#define CHUNK_LOG @CHUNK_LOG@
#define CHUNK (1 << CHUNK_LOG)
typedef @ACC@ Acc;
typedef @PARTIAL@ Partial;
INLINE Acc combination(Acc a, Acc b) { return @COMBINE@; }
// Rounded to the dtype after every step, as on the host.
INLINE Acc combine(const ScatterParams& p, Acc a, Acc b) {
    const Acc combined = combination(a, b);
    return @ROUNDED@;
}
INLINE Partial combined(const ScatterParams& p, Partial a, Acc b) { return @KEEP@(combine(p, @KEPT@(a), b)); }
// A run and the one before it may both have a chunk that begins among the same positions.
INLINE u64 place_of(const ScatterParams& p, u64 number, bool begins, Index j) {
    return (2 * number + begins) * p.w[11] + (u64)j;
}
extern "C" __global__ void __launch_bounds__(256) combine_runs(const __grid_constant__ ScatterParams p) {
    const Index thread = (Index)blockIdx.x * 256 + threadIdx.x;
    if (p.w[14] == 0) report_dropped(p);
    const Index inner = (Index)p.w[11];
    const u64 window = thread / inner;
    const Index j = thread - (Index)window * inner;
    const u32 shift = (u32)p.w[14];
    const u64 count = p.w[0], unit = (u64)1 << shift, begin = window << shift;
    if (begin >= count) return;
    const Key* keys = memory<const Key>(p.w[8]);
    const Count* positions = memory<const Count>(p.w[9]);
    const Partial* partial = memory<const Partial>(p.w[12]);
@INNER@
    const @BASE@ source = @FIRST@;
    const u64 out = p.w[7] + (u64)(@INNER_OUT@) * SIZE;
    // The run that goes on here; then the last one that begins here, which is the only one of more than one part.
    #pragma unroll 1
    for (int begins = 0; begins < 2; begins++) {
        const u64 at = begins == 0 ? begin : (begin + unit < count ? begin + unit : count) - 1;
        const Key target = keys[at];
        if ((u64)target == p.w[10]) continue;
        const bool goes_on = begin > 0 && keys[begin - 1] == target;
        if (goes_on != (begins == 0)) continue;
        // Most runs are shorter than a chunk.
        if (begins == 0 && (begin < CHUNK || keys[begin - CHUNK] != target)) continue;
        const u64 start = shift == 0 && begins == 1 ? at : first_at(keys, target, 0, at);
        u64 item = window - (start >> shift), k = start + (item << shift);
        if (item % CHUNK != 0 || k >= count || keys[k] != target) continue;
        const u64 number = (start >> shift >> CHUNK_LOG) + (item >> CHUNK_LOG), last = item + CHUNK;
        // Bits, because NVRTC 12.0 does not terminate on a struct that a loop changes.
        Partial sum;
        if (shift == 0) {
            sum = @KEEP@(@HELD_OR_LOAD@);
            k += begins == 0;
            const u64 end = start + last < count ? start + last : count;
#if @BATCH@
            // Loads do not depend on the sums, so that many are in flight.
            for (; k + 8 <= end && keys[k + 7] == target; k += 8) {
                Acc values[8];
                #pragma unroll
                for (int n = 0; n < 8; n++) values[n] = @LOAD@positions[k + n]@LOADED@;
                #pragma unroll
                for (int n = 0; n < 8; n++) sum = combined(p, sum, values[n]);
            }
#endif
            #pragma unroll 1
            for (; k < end && keys[k] == target; k++) {
                sum = combined(p, sum, @LOAD@positions[k]@LOADED@);
            }
        } else {
            // A run of one part is complete.
            k += unit;
            if (begins == 1 && (k >= count || keys[k] != target)) continue;
            const u64 first = start >> shift;
            sum = partial[place_of(p, first + item, begins, j)];
            #pragma unroll 1
            for (item++; item < last && k < count && keys[k] == target; item++, k += unit) {
                sum = combined(p, sum, @KEPT@(partial[place_of(p, first + item, false, j)]));
            }
        }
        if (begins == 1 && (k >= count || keys[k] != target)) {
            store(p, out + bytes_to(p, target), @KEPT@(sum));
        } else {
            memory<Partial>(p.w[13])[place_of(p, number, begins, j)] = sum;
        }
    }
}
#endif
#endif
