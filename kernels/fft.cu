// Fourier transforms where cuFFT is missing, of lines of elements that lie apart. `pass` transforms lines that fit shared
// memory, or is one of several steps of longer lines (Stockham's algorithm: the order of elements needs no step of its own).
// The others turn a transform of any length into a convolution (Bluestein's algorithm). All compute forward; a backward
// transform is one of numbers with their parts swapped.
//
// pass, p.w: 0 input, 1 out, 2 length of a line, 3 lines, 4 lines per tile, 5 distance between elements of a line in the
// input, which is also the number of lines per signal, 6 that in the out, 7 elements that lie together (those of later
// dimensions), 8 radices, a byte each, 9 flags, 10 length of the signal.
// spread, filter, gather, scale: 0 input, 1 out, 2 length of a signal, 3 length of the convolution, 4 signals here, 5 the
// first of them, 6 filter, 7 elements that lie together, 9 flags, 10 length of the signal.

struct Params { u64 w[11]; };
typedef @REAL@ Real;
typedef complex<Real> Complex;
// The elements of a tile.
#define MOST @MOST@

#define BACKWARD 1
// The input: real numbers, or the first half of a spectrum.
#define FROM_REAL 2
#define FROM_HALF 4
// The out likewise.
#define TO_REAL 8
#define TO_HALF 16
// Adjacent threads take adjacent lines, in loads and stores; signals of a convolution lie element by element.
#define LOADS_ACROSS 32
#define STORES_ACROSS 64
#define ACROSS 128

INLINE void sine_and_cosine(float half_turns, float* sine, float* cosine) { sincospif(half_turns, sine, cosine); }
INLINE void sine_and_cosine(double half_turns, double* sine, double* cosine) { sincospi(half_turns, sine, cosine); }
INLINE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
INLINE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
INLINE Complex times(Complex a, Complex b) {
    return Complex{fused(a.re, b.re, -(a.im * b.im)), fused(a.re, b.im, a.im * b.re)};
}

// a / b and a % b; most numbers have 32 bits.
__device__ __noinline__ u64 divided(u64 a, u64 b) { return (a | b) >> 32 ? a / b : (u64)((u32)a / (u32)b); }
INLINE u64 rest(u64 a, u64 b) { return a - divided(a, b) * b; }

// a / b for numbers below 2^20: half a unit more than the quotient's error keeps it from the next whole number.
INLINE u32 quotient(u32 a, u32 b) { return (u32)(((float)a + 0.5f) * (1.0f / (float)b)); }

// e^(-2 pi i j / n), for j < n. The angle is reduced in whole numbers to an eighth of a turn, where it has full precision.
__device__ __noinline__ Complex root(u64 j, u64 n) {
    u64 a = 8 * j;
    const bool half = a >= 4 * n;
    a = half ? a - 4 * n : a;
    const bool quarter = a >= 2 * n;
    a = quarter ? a - 2 * n : a;
    const bool mirrored = a > n;
    a = mirrored ? 2 * n - a : a;
    Real sine, cosine;
    sine_and_cosine((Real)a / (Real)(4 * n), &sine, &cosine);
    const Real re = mirrored ? sine : cosine, im = mirrored ? -cosine : -sine;
    const Complex turned = quarter ? Complex{im, -re} : Complex{re, im};
    return half ? Complex{-turned.re, -turned.im} : turned;
}

// Element `at` of signal `signal`, which holds `size` elements, `length` of them along the dimension.
INLINE Complex load(u64 flags, u64 from, u64 signal, u64 at, u64 size, u64 length) {
    Complex value;
    if (flags & FROM_REAL) {
        value = Complex{memory<const Real>(from)[signal * size + at], (Real)0};
    } else {
        const u64 held = length / 2 + 1;
        const bool mirrored = flags & FROM_HALF && at >= held;
        const u64 place = flags & FROM_HALF ? signal * held + (mirrored ? length - at : at) : signal * size + at;
        value = load_@DTYPE@(memory<const @BITS@>(from)[place]);
        // The spectrum of real numbers has no imaginary part here.
        const bool real = flags & FROM_HALF && (at == 0 || 2 * at == length);
        value.im = real ? (Real)0 : mirrored ? -value.im : value.im;
    }
    return flags & BACKWARD ? Complex{value.im, value.re} : value;
}
INLINE void store(u64 flags, u64 to, u64 signal, u64 at, u64 size, u64 length, Complex value) {
    value = flags & BACKWARD ? Complex{value.im, value.re} : value;
    if (flags & TO_REAL) {
        memory<Real>(to)[signal * size + at] = value.re;
    } else {
        const u64 held = flags & TO_HALF ? length / 2 + 1 : size;
        if (at < held) memory<@BITS@>(to)[signal * held + at] = store_@DTYPE@(value);
    }
}

// The transform of R values. Roots of one of `n`, which R divides, are in `roots`.
template <int R> struct Radix {
    static INLINE void run(Complex* v, const Complex* roots, u32 n) {
        Complex sums[R / 2], differences[R / 2], y[R];
        y[0] = v[0];
#pragma unroll
        for (int j = 1; j <= R / 2; j++) {
            sums[j - 1] = complex_add(v[j], v[R - j]);
            differences[j - 1] = complex_sub(v[j], v[R - j]);
            y[0] = complex_add(y[0], sums[j - 1]);
        }
#pragma unroll
        for (int k = 1; k <= R / 2; k++) {
            Complex even = v[0], odd = Complex{(Real)0, (Real)0};
#pragma unroll
            for (int j = 1; j <= R / 2; j++) {
                const Complex w = roots[j * k % R * (n / R)];
                even.re = fused(sums[j - 1].re, w.re, even.re);
                even.im = fused(sums[j - 1].im, w.re, even.im);
                odd.re = fused(differences[j - 1].re, -w.im, odd.re);
                odd.im = fused(differences[j - 1].im, -w.im, odd.im);
            }
            y[k] = Complex{even.re + odd.im, even.im - odd.re};
            y[R - k] = Complex{even.re - odd.im, even.im + odd.re};
        }
#pragma unroll
        for (int k = 0; k < R; k++) v[k] = y[k];
    }
};
template <> struct Radix<2> {
    static INLINE void run(Complex* v, const Complex*, u32) {
        const Complex a = v[0], b = v[1];
        v[0] = complex_add(a, b);
        v[1] = complex_sub(a, b);
    }
};
template <> struct Radix<4> {
    static INLINE void run(Complex* v, const Complex*, u32) {
        const Complex a = complex_add(v[0], v[2]), b = complex_sub(v[0], v[2]);
        const Complex c = complex_add(v[1], v[3]), d = complex_sub(v[1], v[3]), turned = Complex{d.im, -d.re};
        v[0] = complex_add(a, c);
        v[1] = complex_add(b, turned);
        v[2] = complex_sub(a, c);
        v[3] = complex_sub(b, turned);
    }
};
template <> struct Radix<8> {
    static INLINE void run(Complex* v, const Complex* roots, u32 n) {
        Complex even[4] = {v[0], v[2], v[4], v[6]}, odd[4] = {v[1], v[3], v[5], v[7]};
        Radix<4>::run(even, roots, n);
        Radix<4>::run(odd, roots, n);
        const Real r = (Real)0.70710678118654752440;
        odd[1] = Complex{(odd[1].re + odd[1].im) * r, (odd[1].im - odd[1].re) * r};
        odd[2] = Complex{odd[2].im, -odd[2].re};
        odd[3] = Complex{(odd[3].im - odd[3].re) * r, -(odd[3].re + odd[3].im) * r};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            v[k] = complex_add(even[k], odd[k]);
            v[k + 4] = complex_sub(even[k], odd[k]);
        }
    }
};

// Where the tile holds element `at` of a line.
struct Tile {
    u32 lines, length, line_step, step;
    bool across;
    INLINE u32 place(u32 line, u32 at) const { return line * line_step + at * step; }
    // A line, and one of `each` things per line, for thread number `e`.
    INLINE u32 line(u32 e, u32 each) const { return across ? e - quotient(e, lines) * lines : quotient(e, each); }
    INLINE u32 thing(u32 e, u32 each) const { return across ? quotient(e, lines) : e - quotient(e, each) * each; }
};

// A position in rows of `size`, a few elements behind the one in row `row` at `at`.
struct Moved {
    u64 row, at;
};
INLINE Moved moved(u64 row, u64 at, u64 size, u32 by) {
    const u64 sum = at + by;
    const u64 rows = sum < size ? 0 : size >> 11 ? 1 : quotient((u32)sum, (u32)size);
    return Moved{row + rows, sum - rows * size};
}

// One step: `done` is the product of the radices before.
template <int R> INLINE void butterflies(Tile tile, const Complex* from, Complex* to, const Complex* roots, u32 done) {
    const u32 each = tile.length / R, scale = each / done;
#pragma unroll 1
    for (u32 e = threadIdx.x; e < tile.lines * each; e += blockDim.x) {
        const u32 line = tile.line(e, each), i = tile.thing(e, each), low = i - quotient(i, done) * done;
        Complex v[R];
#pragma unroll
        for (int r = 0; r < R; r++) {
            const Complex value = from[tile.place(line, i + each * r)];
            v[r] = r == 0 ? value : times(value, roots[low * r * scale]);
        }
        Radix<R>::run(v, roots, tile.length);
        const u32 begin = low + (i - low) * R;
#pragma unroll
        for (int k = 0; k < R; k++) to[tile.place(line, begin + done * k)] = v[k];
    }
}
// The same for any prime radix: each result is a sum.
INLINE void sums(Tile tile, const Complex* from, Complex* to, const Complex* roots, u32 done, u32 radix) {
    const u32 each = tile.length / radix, scale = each / done;
#pragma unroll 1
    for (u32 e = threadIdx.x; e < tile.lines * tile.length; e += blockDim.x) {
        const u32 line = tile.line(e, tile.length), at = tile.thing(e, tile.length);
        const u32 high = quotient(at, done * radix), turn = (at - high * done * radix) * scale;
        const u32 low = at - quotient(at, done) * done;
        Complex sum = Complex{(Real)0, (Real)0};
        u32 angle = 0;
#pragma unroll 1
        for (u32 r = 0; r < radix; r++) {
            const Complex value = from[tile.place(line, low + done * high + each * r)], w = roots[angle];
            sum.re = fused(value.re, w.re, fused(-value.im, w.im, sum.re));
            sum.im = fused(value.re, w.im, fused(value.im, w.re, sum.im));
            angle += turn;
            angle = angle >= tile.length ? angle - tile.length : angle;
        }
        to[tile.place(line, at)] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(256) pass(const __grid_constant__ Params p) {
    __shared__ Complex tiles[2][MOST], roots[MOST];
    const u32 length = (u32)p.w[2];
    const u64 apart = p.w[5], together = p.w[6], flags = p.w[9], size = length * apart;
#pragma unroll 1
    for (u32 j = threadIdx.x; j < length; j += blockDim.x) roots[j] = root(j, length);
    const u64 turns = divided(together, p.w[7]), order = turns * length;
    for (u64 begin = (u64)blockIdx.x * p.w[4]; begin < p.w[3]; begin += (u64)gridDim.x * p.w[4]) {
        const u32 lines = (u32)(p.w[3] - begin < p.w[4] ? p.w[3] - begin : p.w[4]);
        // The signal of the first line, and where in it; there, the row of the out.
        const u64 first = divided(begin, apart), ahead = begin - first * apart;
        const u64 block = divided(ahead, together), beside = ahead - block * together;
        Tile tile = flags & LOADS_ACROSS ? Tile{lines, length, 1, (u32)p.w[4], true} : Tile{lines, length, length, 1, false};
#pragma unroll 1
        for (u32 e = threadIdx.x; e < lines * length; e += blockDim.x) {
            const u32 line = tile.line(e, length), at = tile.thing(e, length);
            const Moved own = moved(first, ahead, apart, line);
            Complex value = load(flags, p.w[0], own.row, own.at + apart * at, size, p.w[10]);
            if (turns > 1) {
                const u64 low = moved(block, beside, together, line).at;
                value = times(value, root(divided(low, p.w[7]) * at, order));
            }
            tiles[0][tile.place(line, at)] = value;
        }
        __syncthreads();
        u32 done = 1, now = 0;
        for (u64 radices = p.w[8]; radices; radices >>= 8) {
            const u32 radix = (u32)(radices & 255);
            const Complex* from = tiles[now];
            Complex* to = tiles[1 - now];
            switch (radix) {
            case 2: butterflies<2>(tile, from, to, roots, done); break;
            case 3: butterflies<3>(tile, from, to, roots, done); break;
            case 4: butterflies<4>(tile, from, to, roots, done); break;
            case 5: butterflies<5>(tile, from, to, roots, done); break;
            case 7: butterflies<7>(tile, from, to, roots, done); break;
            case 8: butterflies<8>(tile, from, to, roots, done); break;
            default: sums(tile, from, to, roots, done, radix); break;
            }
            done *= radix;
            now = 1 - now;
            __syncthreads();
        }
        tile.across = flags & STORES_ACROSS;
#pragma unroll 1
        for (u32 e = threadIdx.x; e < lines * length; e += blockDim.x) {
            const u32 line = tile.line(e, length), at = tile.thing(e, length);
            const Moved own = moved(first, ahead, apart, line);
            const u64 low = moved(block, beside, together, line).at;
            const u64 place = low + together * at + (own.at - low) * length;
            store(flags, p.w[1], own.row, place, size, p.w[10], tiles[now][tile.place(line, at)]);
        }
        __syncthreads();
    }
}

// e^(-pi i k^2 / n).
INLINE Complex chirp(u64 k, u64 n) { return root(rest(k * k, 2 * n), 2 * n); }

// The element of a convolution that a thread takes: of which signal, and where in it.
struct Place {
    u64 signal, at;
};
INLINE Place place_of(const Params& p, u64 e) {
    const u64 by = p.w[9] & ACROSS ? p.w[4] : p.w[3], major = divided(e, by), minor = rest(e, by);
    return p.w[9] & ACROSS ? Place{minor, major} : Place{major, minor};
}

#define EACH(e, count) \
    _Pragma("unroll 1") \
    for (u64 e = (u64)blockIdx.x * blockDim.x + threadIdx.x, n = (count); e < n; e += (u64)gridDim.x * blockDim.x)

// Signals times the chirp, and zeros up to the length of the convolution.
extern "C" __global__ void __launch_bounds__(256) spread(const __grid_constant__ Params p) {
    EACH(e, p.w[3] * p.w[4]) {
        const Place own = place_of(p, e);
        // No branch around the value: NVRTC does not terminate on one.
        const bool inside = own.at < p.w[2];
        const u64 k = inside ? own.at : 0, line = p.w[5] + own.signal, signal = divided(line, p.w[7]);
        const u64 at = k * p.w[7] + rest(line, p.w[7]);
        Complex value = times(load(p.w[9], p.w[0], signal, at, p.w[2] * p.w[7], p.w[10]), chirp(k, p.w[2]));
        value.re = inside ? value.re : (Real)0;
        value.im = inside ? value.im : (Real)0;
        memory<@BITS@>(p.w[1])[e] = store_@DTYPE@(value);
    }
}

// What signals are convolved with: the chirp of the other sign, for positive and negative distances.
extern "C" __global__ void __launch_bounds__(256) filter(const __grid_constant__ Params p) {
    EACH(e, p.w[3]) {
        const u64 distance = e < p.w[2] ? e : p.w[3] - e;
        const bool inside = distance < p.w[2];
        Complex value = chirp(inside ? distance : 0, p.w[2]);
        value.re = inside ? value.re : (Real)0;
        value.im = inside ? -value.im : (Real)0;
        memory<@BITS@>(p.w[1])[e] = store_@DTYPE@(value);
    }
}

// Spectra times that of the filter, in place.
extern "C" __global__ void __launch_bounds__(256) scale(const __grid_constant__ Params p) {
    EACH(e, p.w[3] * p.w[4]) {
        const Complex factor = load_@DTYPE@(memory<const @BITS@>(p.w[6])[place_of(p, e).at]);
        const Complex value = load_@DTYPE@(memory<const @BITS@>(p.w[1])[e]);
        memory<@BITS@>(p.w[1])[e] = store_@DTYPE@(times(value, factor));
    }
}

// Convolutions times the chirp.
extern "C" __global__ void __launch_bounds__(256) gather(const __grid_constant__ Params p) {
    const Real part = (Real)1 / (Real)p.w[3];
    EACH(e, p.w[3] * p.w[4]) {
        const Place own = place_of(p, e);
        if (own.at < p.w[2]) {
            const u64 line = p.w[5] + own.signal, signal = divided(line, p.w[7]);
            const u64 at = own.at * p.w[7] + rest(line, p.w[7]);
            const Complex value = times(load_@DTYPE@(memory<const @BITS@>(p.w[0])[e]), chirp(own.at, p.w[2]));
            store(p.w[9], p.w[1], signal, at, p.w[2] * p.w[7], p.w[10], Complex{value.re * part, value.im * part});
        }
    }
}
