// Rows that fit one block: a bitonic sort of (key, position) pairs; the positions make it stable.
//
// p.w: 0 input, 1 values, 2 positions, 3 length, 4 row strides of input, 5 values, 6 positions, 7 the order of the keys, for
// `sortable`, 8 the power of two that is sorted.

struct SortParams { u64 w[9]; };
#define MOST_SIZE @MOST_SIZE@
#define MOST_THREADS @MOST_THREADS@
// The same, or known at launch.
#define SIZE @SIZE@
#define SORT_THREADS @THREADS@
// Elements of a thread, for every size.
#define MOVED ((MOST_SIZE + MOST_THREADS - 1) / MOST_THREADS)

extern "C" __global__ void __launch_bounds__(MOST_THREADS) sort_rows(const __grid_constant__ SortParams p) {
    __shared__ Key keys[MOST_SIZE];
    __shared__ u16 places[MOST_SIZE];
    const u64 row = blockIdx.x;
    const u32 length = (u32)p.w[3];
    const Key* in = memory<const Key>(p.w[0]) + row * p.w[4];
    for (u32 i = threadIdx.x; i < SIZE; i += SORT_THREADS) {
        // Padding is greater than any element: the greatest key with a later position.
        keys[i] = i < length ? sortable(in[i], p.w[7]) : (Key)~(Key)0;
        places[i] = (u16)i;
    }
    __syncthreads();
    for (u32 run = 2; run <= SIZE; run *= 2) {
        for (u32 step = run / 2; step > 0; step /= 2) {
            for (u32 i = threadIdx.x; i < SIZE / 2; i += SORT_THREADS) {
                const u32 low = 2 * i - (i & (step - 1)), high = low + step;
                const bool up = (low & run) == 0;
                const Key a = keys[low], b = keys[high];
                const u16 x = places[low], y = places[high];
                const bool after = a > b || (a == b && x > y);
                if (after == up) {
                    keys[low] = b; keys[high] = a;
                    places[low] = y; places[high] = x;
                }
            }
            __syncthreads();
        }
    }
    Key* values = memory<Key>(p.w[1]) + row * p.w[5];
    i64* positions = memory<i64>(p.w[2]) + row * p.w[6];
    // Values may be sorted in place: read everything before writing.
    Key moved[MOVED];
#pragma unroll
    for (u32 n = 0; n < MOVED; n++) {
        const u32 i = threadIdx.x + n * SORT_THREADS;
        if (i < length) moved[n] = in[places[i]];
    }
    __syncthreads();
#pragma unroll
    for (u32 n = 0; n < MOVED; n++) {
        const u32 i = threadIdx.x + n * SORT_THREADS;
        if (i < length) {
            values[i] = moved[n];
            positions[i] = places[i];
        }
    }
}
