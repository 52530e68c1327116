// Rows that stay in registers: each is THREADS threads' of a block. A thread holds UNITS units of
// WIDTH neighbouring elements; unit u begins at element (u * THREADS + t) * WIDTH.
//
// Combining follows reduce.cu to the bit, for results of one segment: lanes of LANES elements apart,
// ascending, then lanes by halves. GROUPS units are one round of lanes; the first FULL units of all threads
// lie within the row.
//
// p.w: 0 rows, 1 elements of a row, then what codegen/rows.rs lays out.

struct Params { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
#define THREADS @THREADS@
#define WIDTH @WIDTH@
#define UNITS @UNITS@
#define GROUPS @GROUPS@
#define FULL @FULL@

// One result of a row's lanes, for all its threads. The lower lane stands first everywhere.
template <class Acc, class Combine> INLINE Acc across(Acc (&lane)[GROUPS * WIDTH], Acc* shared, int t, Combine combine) {
#pragma unroll
    for (int half = GROUPS / 2; half > 0; half /= 2) {
#pragma unroll
        for (int i = 0; i < half * WIDTH; i++) lane[i] = combine(lane[i], lane[i + half * WIDTH]);
    }
#if THREADS > 32
    constexpr int WARPS = THREADS / 32;
#pragma unroll
    for (int j = 0; j < WIDTH; j++) shared[j * 256 + threadIdx.x] = lane[j];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        Acc all[WARPS];
#pragma unroll
        for (int i = 0; i < WARPS; i++) all[i] = shared[j * 256 + (threadIdx.x - t) + i * 32 + t % 32];
#pragma unroll
        for (int half = WARPS / 2; half > 0; half /= 2) {
#pragma unroll
            for (int i = 0; i < half; i++) all[i] = combine(all[i], all[i + half]);
        }
        lane[j] = all[0];
    }
#endif
#pragma unroll
    for (int delta = (THREADS > 32 ? 32 : THREADS) / 2; delta > 0; delta /= 2) {
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
            const Acc other = __shfl_xor_sync(FULL_WARP, lane[j], delta);
            const bool upper = t & delta;
            lane[j] = combine(upper ? other : lane[j], upper ? lane[j] : other);
        }
    }
#pragma unroll
    for (int half = WIDTH / 2; half > 0; half /= 2) {
#pragma unroll
        for (int j = 0; j < half; j++) lane[j] = combine(lane[j], lane[j + half]);
    }
    return lane[0];
}

@COMBINES@
extern "C" __global__ void __launch_bounds__(256) rows(const __grid_constant__ Params p) {
    const u64 row = (u64)blockIdx.x * (256 / THREADS) + threadIdx.x / THREADS;
    const bool live = row < p.w[0];
    const int t = threadIdx.x % THREADS;
    const Index length = (Index)p.w[1];
    const Index k = live ? (Index)row : 0;
#if THREADS > 32
    // Folds take turns, so that nobody writes what somebody else still reads.
    __shared__ u64 shared[2][256 * WIDTH];
#else
    u64 (*const shared)[1] = nullptr;
#endif
@OFFSETS@
@BODY@
}
