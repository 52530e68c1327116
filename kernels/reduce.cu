// Reductions over the last dimensions.
//
// Each result has `reduced` elements, in row-major order, split into segments of `segment` elements. In a
// segment element i belongs to lane i mod LANES. A lane combines its elements in ascending order, starting
// with INIT. Then the lanes combine by halving: lane l with lane l + LANES/2, then LANES/4, ... A second
// launch combines the segments by the same rule. This order depends only on the shape; `rows` and `columns`
// follow it over different memory layouts.
// Several reductions of the same elements hold one value each (Note [Several reductions] in plan/several.rs).
//
// p.w: 0 kept, 1 reduced, 2 segment, 3 segments, 4 values of partials, 5 their positions, 6 elements per
// result, then the layout from kernel/kinds. The text is included once per launch of a reduction.

namespace @NAME@ {
struct Params { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
typedef @ACC@ Acc;
#undef WIDTH
#undef LANES
#undef THREADS_PER_SEGMENT
#undef KEPT_THREADS
#undef INIT
#undef INDEXED
#undef GROUPS
#undef STEPS
#undef LANE_THREADS
#undef FULL_ROUNDS
#undef HEAD
#undef SHUFFLE_WIDTH
#undef EACH
#define WIDTH @WIDTH@
#define LANES @LANES@
#define THREADS_PER_SEGMENT @THREADS@
#define KEPT_THREADS @KEPT_THREADS@
#define INIT @INIT@
#define INDEXED @INDEXED@
#define FULL_ROUNDS @FULL_ROUNDS@
#define SHUFFLE_WIDTH (THREADS_PER_SEGMENT > 32 ? 32 : THREADS_PER_SEGMENT)

#if INDEXED
// A value and its position. nan wins, then the better value, then the lower position, so the order of combination does
// not matter. The position is the first field, and as wide as the value where it fits: with padding between the two,
// NVRTC 13.0 does not terminate for some shapes.
template <bool SHORT> struct Position { typedef i64 Type; static const Type NONE = I64_MAX; };
template <> struct Position<true> { typedef i32 Type; static const Type NONE = 0x7fffffff; };
typedef Position<sizeof(Acc) == 4 && sizeof(Index) == 4> Where;
typedef Where::Type At;
struct Held { At at; Acc v; };
INLINE Held start() { return Held{Where::NONE, INIT}; }
INLINE bool better(Acc a, Acc b) { return @COMBINE@; }
INLINE Held combine(Held x, Held y) {
    const bool x_nan = is_nan(x.v), y_nan = is_nan(y.v), earlier = y.at < x.at;
    const bool wins = better(x.v, y.v) | ((x.v == y.v) & earlier);
    const bool y_wins = y_nan ? !x_nan | earlier : !x_nan & wins;
    return Held{y_wins ? y.at : x.at, y_wins ? y.v : x.v};
}
// The same for a position of y that is higher.
INLINE Held append(Held x, Held y) {
    const bool y_wins = x.at == Where::NONE | (!is_nan(x.v) & (is_nan(y.v) | better(x.v, y.v)));
    return Held{y_wins ? y.at : x.at, y_wins ? y.v : x.v};
}
INLINE Held from_lane(Held x, int delta) {
    return Held{__shfl_down_sync(FULL_WARP, x.at, delta, SHUFFLE_WIDTH),
                __shfl_down_sync(FULL_WARP, x.v, delta, SHUFFLE_WIDTH)};
}
#else
@HELD@
#endif

INLINE void finish(const Params& p, Held held, u64 kept, u64 part) {
@FINISH@
}

#if THREADS_PER_SEGMENT
// Adjacent threads take adjacent elements of one segment.
#define GROUPS (LANES / (THREADS_PER_SEGMENT * WIDTH))
#define STEPS @STEPS@
extern "C" __global__ void __launch_bounds__(256) @NAME@_kernel(const __grid_constant__ Params p) {
    const u64 reduced = p.w[1], length = p.w[2], parts = @PARTS@;
    const Index slot = (Index)blockIdx.x * (256 / THREADS_PER_SEGMENT) + threadIdx.x / THREADS_PER_SEGMENT;
    const bool live = slot < p.w[0] * parts;
    const Index kept = live ? slot / (Index)parts : 0, part = live ? slot % (Index)parts : 0;
    const int t = threadIdx.x % THREADS_PER_SEGMENT;
    const u64 begin = (u64)part * length;
    const u64 left = reduced - begin;
    const u64 count = !live ? 0 : left < length ? left : length;
@KEPT_OFFSETS@
    Held lanes[GROUPS * WIDTH];
#pragma unroll
    for (int i = 0; i < GROUPS * WIDTH; i++) lanes[i] = start();
    u64 base = (u64)t * WIDTH;
// What precedes the code of element `j` of group `g`.
#define HEAD \
    Held& lane = lanes[g * WIDTH + j]; \
    const i64 within = (i64)(r + j); \
    const i64 position = (i64)kept * (i64)reduced + within;
#if FULL_ROUNDS
    // Full rounds, several at a time so that many loads are in flight.
    for (; base + (STEPS - 1) * LANES + (GROUPS - 1) * THREADS_PER_SEGMENT * WIDTH < count; base += STEPS * LANES) {
@REGISTERS@
#pragma unroll
        for (int u = 0; u < STEPS * GROUPS; u++) {
            const Index r = (Index)(begin + base + u * (THREADS_PER_SEGMENT * WIDTH));
@LOADS@
        }
#pragma unroll
        for (int u = 0; u < STEPS * GROUPS; u++) {
            const Index r = (Index)(begin + base + u * (THREADS_PER_SEGMENT * WIDTH));
@RESULTS@
            const int g = u % GROUPS;
@ELEMENTS@
@STORES@
        }
    }
#endif
    for (; base < count; base += LANES) {
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            constexpr int u = 0;
            const u64 at = base + g * (THREADS_PER_SEGMENT * WIDTH);
            if (at < count) {
                const Index r = (Index)(begin + at);
@REGISTERS_ONE@
@LOADS@
@RESULTS@
@ELEMENTS@
@STORES@
            }
        }
    }
#pragma unroll
    for (int half = GROUPS / 2; half > 0; half /= 2) {
#pragma unroll
        for (int i = 0; i < half * WIDTH; i++) lanes[i] = combine(lanes[i], lanes[i + half * WIDTH]);
    }
#if INDEXED
    // One pair per thread is left to pass on.
#define EACH 1
#pragma unroll
    for (int half = WIDTH / 2; half > 0; half /= 2) {
#pragma unroll
        for (int j = 0; j < half; j++) lanes[j] = combine(lanes[j], lanes[j + half]);
    }
#else
#define EACH WIDTH
#endif
#if THREADS_PER_SEGMENT > 32
    // One segment per block: combine halves of the block, then the first warp.
    __shared__ Held shared[EACH][THREADS_PER_SEGMENT];
#pragma unroll
    for (int half = THREADS_PER_SEGMENT / 2; half >= 32; half /= 2) {
        if (t >= half && t < 2 * half) {
#pragma unroll
            for (int j = 0; j < EACH; j++) shared[j][t] = lanes[j];
        }
        __syncthreads();
        if (t < half) {
#pragma unroll
            for (int j = 0; j < EACH; j++) lanes[j] = combine(lanes[j], shared[j][t + half]);
        }
    }
#endif
#pragma unroll
    for (int delta = (THREADS_PER_SEGMENT > 32 ? 32 : THREADS_PER_SEGMENT) / 2; delta > 0; delta /= 2) {
#pragma unroll
        for (int j = 0; j < EACH; j++) lanes[j] = combine(lanes[j], from_lane(lanes[j], delta));
    }
#pragma unroll
    for (int half = EACH / 2; half > 0; half /= 2) {
#pragma unroll
        for (int j = 0; j < half; j++) lanes[j] = combine(lanes[j], lanes[j + half]);
    }
    if (live && t == 0) finish(p, lanes[0], kept, part);
}
#else
// Adjacent threads take adjacent results; threadIdx / KEPT_THREADS is the first lane.
#define LANE_THREADS (256 / KEPT_THREADS)
#define GROUPS (LANES / LANE_THREADS)
#define STEPS 1
extern "C" __global__ void __launch_bounds__(256) @NAME@_kernel(const __grid_constant__ Params p) {
    const u64 reduced = p.w[1], length = p.w[2];
    const int x = threadIdx.x % KEPT_THREADS, y = threadIdx.x / KEPT_THREADS;
    const u64 kept = ((u64)blockIdx.x * KEPT_THREADS + x) * WIDTH;
    const u64 part = blockIdx.y;
    const bool live = kept < p.w[0];
    const u64 begin = part * length;
    const u64 left = reduced - begin;
    const u64 count = !live ? 0 : left < length ? left : length;
@KEPT_OFFSETS@
    Held sums[GROUPS][WIDTH];
#pragma unroll
    for (int u = 0; u < GROUPS; u++) {
#pragma unroll
        for (int j = 0; j < WIDTH; j++) sums[u][j] = start();
    }
    u64 base = y;
// What precedes the code of element `j` of group `g`.
#define HEAD \
    Held& lane = sums[g][j]; \
    const i64 within = (i64)r; \
    const i64 position = (i64)(kept + j) * (i64)reduced + within;
#if FULL_ROUNDS
    for (; base + (GROUPS - 1) * LANE_THREADS < count; base += LANES) {
@REGISTERS@
#pragma unroll
        for (int u = 0; u < GROUPS; u++) {
            const Index r = (Index)(begin + base + u * LANE_THREADS);
@LOADS@
        }
#pragma unroll
        for (int u = 0; u < GROUPS; u++) {
            const Index r = (Index)(begin + base + u * LANE_THREADS);
@RESULTS@
            const int g = u;
@ELEMENTS@
@STORES@
        }
    }
#endif
    for (; base < count; base += LANES) {
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            constexpr int u = 0;
            const u64 at = base + g * LANE_THREADS;
            if (at < count) {
                const Index r = (Index)(begin + at);
@REGISTERS_ONE@
@LOADS@
@RESULTS@
@ELEMENTS@
@STORES@
            }
        }
    }
#pragma unroll
    for (int half = GROUPS / 2; half > 0; half /= 2) {
#pragma unroll
        for (int g = 0; g < half; g++) {
#pragma unroll
            for (int j = 0; j < WIDTH; j++) sums[g][j] = combine(sums[g][j], sums[g + half][j]);
        }
    }
    __shared__ Held shared[WIDTH][256];
#pragma unroll
    for (int half = LANE_THREADS / 2; half > 0; half /= 2) {
        if (y >= half && y < 2 * half) {
#pragma unroll
            for (int j = 0; j < WIDTH; j++) shared[j][threadIdx.x] = sums[0][j];
        }
        __syncthreads();
        if (y < half) {
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                sums[0][j] = combine(sums[0][j], shared[j][threadIdx.x + half * KEPT_THREADS]);
            }
        }
        __syncthreads();
    }
    if (live && y == 0) {
#pragma unroll
        for (int j = 0; j < WIDTH; j++) finish(p, sums[0][j], kept + j, part);
    }
}
#endif
}  // namespace @NAME@
