// Rows of few elements: a thread sorts each row in registers, by Batcher's network. Pairs of a key and a position make it
// stable. Blocks read and write rows that follow each other without gaps through shared memory.
//
// p.w: 0 input, 1 values, 2 positions, 3 rows, 4 length, 5 strides along the rows of input, 6 values, 7 positions, 8 a bit for
// each of them whose rows follow each other without gaps, 9 the order of the keys, for `sortable`, then the layout of the rows
// from kernel/kinds.

struct FewParams { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
typedef @KEY@ Key;
// A key and, in its lowest eight bits, a position.
typedef @PAIR@ Pair;
#define ROWS 128

INLINE Key sortable(Key k, u64 order) {
@SORTABLE@
}

template <int N, int WIDTH, int STEP> INLINE void network(Pair (&pairs)[N]) {
#pragma unroll
    for (int i = STEP % WIDTH; i + STEP < N; i++) {
        // Pairs are exchanged within groups of twice the width.
        if ((i - STEP % WIDTH) / STEP % 2 == 0 && i / (2 * WIDTH) == (i + STEP) / (2 * WIDTH)) {
            const Pair a = pairs[i], b = pairs[i + STEP];
            pairs[i] = a < b ? a : b;
            pairs[i + STEP] = a < b ? b : a;
        }
    }
    if constexpr (STEP > 1) network<N, WIDTH, STEP / 2>(pairs);
    else if constexpr (2 * WIDTH < N) network<N, 2 * WIDTH, 2 * WIDTH>(pairs);
}

// Writes the block's rows, which lie in shared memory.
template <int N, class To, class From>
INLINE void write_rows(const FewParams& p, int view, const From* from, Index first, u32 rows, u64 own) {
    const u32 length = (u32)p.w[4];
    To* to = memory<To>(p.w[view]);
    if (p.w[8] >> view & 1) {
        __syncthreads();
        to += (u64)first * length;
        for (u32 i = threadIdx.x; i < rows * length; i += ROWS) to[i] = from[i / length * (N + 1) + i % length];
    } else if (threadIdx.x < rows) {
        to += own;
        // Not copied for several elements: kernels that ship are short.
#pragma unroll 1
        for (u32 i = 0; i < length; i++) to[i * p.w[5 + view]] = from[threadIdx.x * (N + 1) + i];
    }
}

// Rows of up to N elements.
template <int N> INLINE void sort_few(const FewParams& p) {
    __shared__ Key keys[ROWS * (N + 1)];
    __shared__ u8 places[ROWS * (N + 1)];
    const u32 t = threadIdx.x, length = (u32)p.w[4];
    const Index first = (Index)blockIdx.x * ROWS;
    const u32 rows = p.w[3] - first < ROWS ? (u32)(p.w[3] - first) : ROWS;
    const Index row = first + (t < rows ? t : 0);
@COORDINATES@
    Key* own = keys + t * (N + 1);
    const Key* from = memory<const Key>(p.w[0]);
    if (p.w[8] & 1) {
        from += (u64)first * length;
        for (u32 i = t; i < rows * length; i += ROWS) keys[i / length * (N + 1) + i % length] = from[i];
        __syncthreads();
    } else {
        from += @AT_INPUT@;
        Key read[N];
#pragma unroll
        for (int i = 0; i < N; i++) read[i] = i < length ? from[i * p.w[5]] : 0;
#pragma unroll
        for (int i = 0; i < N; i++) own[i] = read[i];
    }
    Pair pairs[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        // What is beyond the row is greater than any element.
        pairs[i] = i < length ? (Pair)sortable(own[i], p.w[9]) << 8 | (Pair)i : ~(Pair)0;
    }
    network<N, 1, 1>(pairs);
    Key moved[N];
#pragma unroll
    for (int i = 0; i < N; i++) moved[i] = i < length ? own[(u32)(pairs[i] & 255)] : (Key)0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        own[i] = moved[i];
        places[t * (N + 1) + i] = (u8)pairs[i];
    }
    write_rows<N, Key>(p, 1, keys, first, rows, @AT_VALUES@);
    write_rows<N, i64>(p, 2, places, first, rows, @AT_POSITIONS@);
}
extern "C" __global__ void __launch_bounds__(ROWS) sort_4(const __grid_constant__ FewParams p) { sort_few<4>(p); }
extern "C" __global__ void __launch_bounds__(ROWS) sort_8(const __grid_constant__ FewParams p) { sort_few<8>(p); }
extern "C" __global__ void __launch_bounds__(ROWS) sort_16(const __grid_constant__ FewParams p) { sort_few<16>(p); }
extern "C" __global__ void __launch_bounds__(ROWS) sort_32(const __grid_constant__ FewParams p) { sort_few<32>(p); }
