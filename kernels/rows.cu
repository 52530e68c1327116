// Rows held in registers. THREADS threads of a block share a row. A thread holds UNITS units of WIDTH
// adjacent elements; unit u starts at element (u * THREADS + t) * WIDTH.
//
// Combines in the same order as reduce.cu, to the bit, for results of one segment: lanes of elements LANES
// apart, ascending, then lanes by halving. GROUPS units form one round of lanes. The first FULL units of all
// threads lie within the row.
//
// p.w: 0 rows, 1 elements per row, then the layout from kernel/kinds.

struct Params { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
#define THREADS @THREADS@
#define WIDTH @WIDTH@
#define UNITS @UNITS@
#define GROUPS @GROUPS@
#define FULL @FULL@

// Combines N values of each of T adjacent threads into one, which all threads get: first across threads by
// halving, then across values by halving. While a thread has several values, it keeps half of them and passes
// the others to its partner, so that no two threads do the same work. The last shuffles distribute the
// result.
template <int N, int T, class Acc, class Combine> INLINE Acc together(Acc (&lane)[N], int t, Combine combine) {
    const auto with = [&](Acc mine, Acc theirs, int delta) {
        const bool upper = t & delta;
        return combine(upper ? theirs : mine, upper ? mine : theirs);
    };
#pragma unroll
    for (int delta = T / 2, held = N; delta > 0; delta /= 2, held = held > 1 ? held / 2 : 1) {
        const bool upper = t & delta;
        if (held == 1) {
            lane[0] = with(lane[0], __shfl_xor_sync(FULL_WARP, lane[0], delta), delta);
        }
#pragma unroll
        for (int j = 0; j < held / 2; j++) {
            const Acc theirs = __shfl_xor_sync(FULL_WARP, upper ? lane[j] : lane[j + held / 2], delta);
            lane[j] = with(upper ? lane[j + held / 2] : lane[j], theirs, delta);
        }
    }
    constexpr int LEFT = N > T ? N / T : 1;
#pragma unroll
    for (int delta = T / 2; delta >= (N > T ? 1 : T / N); delta /= 2) {
#pragma unroll
        for (int j = 0; j < LEFT; j++) {
            lane[j] = with(lane[j], __shfl_xor_sync(FULL_WARP, lane[j], delta), delta);
        }
    }
#pragma unroll
    for (int half = LEFT / 2; half > 0; half /= 2) {
#pragma unroll
        for (int j = 0; j < half; j++) lane[j] = combine(lane[j], lane[j + half]);
    }
    return lane[0];
}

// Combines a row's lanes into one result for all its threads. The lower lane is always the left operand.
template <class Acc, class Combine> INLINE Acc across(Acc (&lane)[GROUPS * WIDTH], Acc* shared, int t, Combine combine) {
#pragma unroll
    for (int half = GROUPS / 2; half > 0; half /= 2) {
#pragma unroll
        for (int i = 0; i < half * WIDTH; i++) lane[i] = combine(lane[i], lane[i + half * WIDTH]);
    }
#if THREADS > 32
    // Across warps first: the adjacent values of a thread are divided among the warps.
    constexpr int WARPS = THREADS / 32;
    constexpr int EACH = WIDTH > WARPS ? WIDTH / WARPS : 1;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) shared[j * 256 + threadIdx.x] = lane[j];
    __syncthreads();
    const int first = t / 32 * EACH % WIDTH;
    Acc column[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        Acc all[WARPS];
#pragma unroll
        for (int i = 0; i < WARPS; i++) all[i] = shared[(first + j) * 256 + (threadIdx.x - t) + i * 32 + t % 32];
#pragma unroll
        for (int half = WARPS / 2; half > 0; half /= 2) {
#pragma unroll
            for (int i = 0; i < half; i++) all[i] = combine(all[i], all[i + half]);
        }
        column[j] = all[0];
    }
    Acc* const totals = shared + 256 * WIDTH + threadIdx.x / THREADS * WIDTH;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        Acc one[1] = {column[j]};
        const Acc total = together<1, 32>(one, t, combine);
        if (t % 32 == 0) totals[first + j] = total;
    }
    __syncthreads();
    Acc all[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) all[j] = totals[j];
#pragma unroll
    for (int half = WIDTH / 2; half > 0; half /= 2) {
#pragma unroll
        for (int j = 0; j < half; j++) all[j] = combine(all[j], all[j + half]);
    }
    return all[0];
#else
    Acc own[WIDTH];
#pragma unroll
    for (int j = 0; j < WIDTH; j++) own[j] = lane[j];
    return together<WIDTH, THREADS>(own, t, combine);
#endif
}

#if @STAGED@
// Stores the rows of a warp. Rows that follow each other without gaps pass through shared memory, so that a store of the warp
// writes whole memory sectors.
template <class Bits> INLINE void store_rows(const Bits (&own)[UNITS], u64 base, Index offset, bool live, int t, Index length) {
    __shared__ Bits staged[256 * UNITS];
    const int lane = threadIdx.x % 32;
    Bits* const rows = staged + (threadIdx.x - lane) * UNITS;
    const Index first = __shfl_sync(FULL_WARP, offset, 0);
    const bool adjacent = __all_sync(FULL_WARP, !live || offset == first + (Index)(lane / THREADS) * length);
    const int held = __popc(__ballot_sync(FULL_WARP, live)) / THREADS;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const Index at = (Index)(u * THREADS + t);
        if (!live || !(u < FULL || at < length)) continue;
        if (adjacent) rows[lane / THREADS * (int)length + (int)at] = own[u];
        else memory<Bits>(base)[offset + at] = own[u];
    }
    if (!adjacent) return;
    __syncwarp();
    for (int i = lane; i < held * (int)length; i += 32) memory<Bits>(base)[first + i] = rows[i];
    __syncwarp();
}
#endif
@COMBINES@
extern "C" __global__ void __launch_bounds__(256) rows(const __grid_constant__ Params p) {
    const u64 row = (u64)blockIdx.x * (256 / THREADS) + threadIdx.x / THREADS;
    const bool live = row < p.w[0];
    const int t = threadIdx.x % THREADS;
    const Index length = (Index)p.w[1];
    const Index k = live ? (Index)row : 0;
#if THREADS > 32
    // Folds alternate between two buffers, so that no thread overwrites values that another still reads.
    __shared__ u64 shared[2][256 * WIDTH + 256 / THREADS * WIDTH];
#else
    u64 (*const shared)[1] = nullptr;
#endif
@OFFSETS@
@BODY@
}
