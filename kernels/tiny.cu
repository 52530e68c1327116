// Many products of tiny matrices of any dtype. A thread computes TILE x TILE elements of one result. Neighbouring threads
// compute neighbouring elements, so the first cache serves what several of them read. A sum is in ascending order, by
// fused multiply-add, in every kernel.
//
// p.w: 0 left, 1 right, 2 out, 3 tiles, 4 m, 5 n, 6 k, 7 left's row stride, 8 column stride, 9 right's row stride, 10 column
// stride, 11 tiles across a result and 12 the divisor's multiplier, 13 tiles down and 14 the multiplier, 15 batch
// dimensions besides the outermost, 16 number of the dtype, 17 bytes of an element; from 18 on for each batch dimension,
// the innermost first: extent, multiplier, distance between left matrices, between right ones; strides and distances in
// bytes.

struct Params { u64 w[34]; };
#define DIMENSIONS 18

@ADD_PRODUCT@INLINE i64 add_product(i64 a, i64 b, i64 sum) { return (i64)((u64)sum + (u64)a * (u64)b); }

// How elements are loaded and stored. Bits are held until all loads are on their way.
#define ELEMENTS(NAME, REGISTER, BITS)                                                                                \
    struct of_##NAME {                                                                                                \
        typedef REGISTER Register;                                                                                    \
        typedef BITS Held;                                                                                            \
        static INLINE BITS load(u64 address, u32) { return *memory<const BITS>(address); }                            \
        static INLINE REGISTER value(BITS held) { return load_##NAME(held); }                                         \
        static INLINE void store(REGISTER a, u64 address, u32) { *memory<BITS>(address) = store_##NAME(round_##NAME(a)); } \
    };
ELEMENTS(f32, float, u32)
ELEMENTS(bf16, float, u16)
ELEMENTS(f16, float, u16)
ELEMENTS(f64, double, u64)
ELEMENTS(c64, c64, u64)
ELEMENTS(c128, c128, u128)

@INTEGERS@
struct of_integers {
    typedef i64 Register;
    typedef i64 Held;
    static INLINE i64 load(u64 address, u32 dtype) { return load_any(address, dtype); }
    static INLINE i64 value(i64 held) { return held; }
    static INLINE void store(i64 a, u64 address, u32 dtype) { store_any(address, dtype, a); }
};

// A thread's tile. Its rows and columns are apart, so that neighbours write neighbouring elements.
template <int TILE> struct Place {
    u64 left[TILE], right[TILE];
    u32 product, row, column;
};
template <int TILE> INLINE bool find(const Params& p, Place<TILE>& to) {
    const u32 tile = blockIdx.x * 256 + threadIdx.x;
    if (tile >= (u32)p.w[3]) return false;
    const u32 across = (u32)p.w[11], down = (u32)p.w[13];
    const u32 line = quotient(tile, p.w[11], p.w[12]);
    to.product = quotient(line, p.w[13], p.w[14]);
    to.row = line - to.product * down;
    to.column = tile - line * across;

    u64 left = p.w[0], right = p.w[1];
    u32 rest = to.product, d = DIMENSIONS;
#pragma unroll 1
    for (; d < DIMENSIONS + 4 * (u32)p.w[15]; d += 4) {
        const u32 outer = quotient(rest, p.w[d], p.w[d + 1]), at = rest - outer * (u32)p.w[d];
        left += at * p.w[d + 2];
        right += at * p.w[d + 3];
        rest = outer;
    }
    left += rest * p.w[d + 2];
    right += rest * p.w[d + 3];
    // Beyond the matrix, the last row and column are read again.
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        to.left[t] = left + min(to.row + t * down, (u32)p.w[4] - 1) * p.w[7];
        to.right[t] = right + min(to.column + t * across, (u32)p.w[5] - 1) * p.w[10];
    }
    return true;
}

// AHEAD factors of a sum are loaded at once.
template <class E, int AHEAD, int TILE> INLINE void multiply(const Params& p, Place<TILE> at) {
    const u32 k = (u32)p.w[6], dtype = (u32)p.w[16];
    typename E::Register sums[TILE][TILE] = {};
#pragma unroll 1
    for (u32 s = 0; s < k; s += AHEAD) {
        typename E::Held a[AHEAD][TILE], b[AHEAD][TILE];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (s + u < k) {
#pragma unroll
                for (int t = 0; t < TILE; t++) {
                    a[u][t] = E::load(at.left[t], dtype);
                    b[u][t] = E::load(at.right[t], dtype);
                    at.left[t] += p.w[8];
                    at.right[t] += p.w[9];
                }
            }
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            if (s + u < k) {
#pragma unroll
                for (int i = 0; i < TILE; i++) {
#pragma unroll
                    for (int j = 0; j < TILE; j++) {
                        sums[i][j] = add_product(E::value(a[u][i]), E::value(b[u][j]), sums[i][j]);
                    }
                }
            }
        }
    }
    const u32 m = (u32)p.w[4], n = (u32)p.w[5];
#pragma unroll
    for (int i = 0; i < TILE; i++) {
#pragma unroll
        for (int j = 0; j < TILE; j++) {
            const u32 row = at.row + i * (u32)p.w[13], column = at.column + j * (u32)p.w[11];
            if (TILE == 1 || (row < m && column < n)) {
                const u32 element = (at.product * m + row) * n + column;
                E::store(sums[i][j], p.w[2] + element * p.w[17], dtype);
            }
        }
    }
}

// Dtypes whose kernels need about as many registers share one.
extern "C" __global__ void __launch_bounds__(256) tiny(const __grid_constant__ Params p) {
    Place<1> at;
    if (!find(p, at)) return;
    switch ((u32)p.w[16]) {
        case @F32@: multiply<of_f32, 4>(p, at); break;
        case @BF16@: multiply<of_bf16, 4>(p, at); break;
        case @F16@: multiply<of_f16, 4>(p, at); break;
        default: multiply<of_integers, 1>(p, at);
    }
}
extern "C" __global__ void __launch_bounds__(256) tiny_wide(const __grid_constant__ Params p) {
    Place<1> at;
    if (!find(p, at)) return;
    switch ((u32)p.w[16]) {
        case @F64@: multiply<of_f64, 4>(p, at); break;
        case @C64@: multiply<of_c64, 4>(p, at); break;
        default: multiply<of_c128, 2>(p, at);
    }
}
extern "C" __global__ void __launch_bounds__(256) tiny_tiles(const __grid_constant__ Params p) {
    Place<2> at;
    if (!find(p, at)) return;
    switch ((u32)p.w[16]) {
        case @F32@: multiply<of_f32, 4>(p, at); break;
        case @BF16@: multiply<of_bf16, 4>(p, at); break;
        default: multiply<of_f16, 4>(p, at);
    }
}
