// Interprets an elementwise program, or one that ends in a reduction, instruction by instruction. It runs while
// the program's own kernel compiles, and gives the same bits: the same texts, rounded after every instruction.
// kernel/cuda/interpret.rs encodes programs and generates the cases below.
//
// A thread computes units of four adjacent elements. A register is one slot (f32) or two (f64, i64) of 16 bytes
// per thread in shared memory; a number is one slot per block. A phase is a range of instructions:
//   main   for each unit; first, element of the shape; count, its elements that exist
//   init   before a reduction's first unit
//   tree   combines lanes with those `count` lanes away, which are `step` threads apart for each four
//   final  once per segment; first, the segment's number
// A reduction follows the order of reduce.cu: lane l of a segment is element l % 4 of the segment's thread l / 4. Adjacent
// threads take adjacent lanes, or, where adjacent results are adjacent in memory, the same lane of adjacent results.
//
// p.w: see `Word` in interpret.rs.

struct Params { u64 w[@WORDS@]; };
#define MOST_THREADS @MOST_THREADS@
#define FIRST_MOVE @FIRST_MOVE@
#define NUMBER 0x200u

extern __shared__ uint4 slots[];

struct Unit {
    u64 first;
    u64 within;  // `first`, counted from the beginning of its result's elements.
    u32 count, step;  // Without padding, on which NVRTC 13.0 does not terminate.
};

INLINE u32 half_of(u64 word, int at) { return (u32)(word >> (16 * at)) & 0xffffu; }

// A register or number: the place of its first slot, and the distance to its second one.
struct Place {
    u32 at, step;
};
INLINE Place place(u32 operand, u32 numbers) {
    const u32 index = operand & (NUMBER - 1);
    return operand & NUMBER ? Place{numbers + index, 0} : Place{index * blockDim.x + threadIdx.x, blockDim.x};
}

INLINE float element_of(const Place& a, int j, float) { return ((const float*)&slots[a.at])[j]; }
template <class T> INLINE T element_of(const Place& a, int j, T) {
    return ((const T*)&slots[a.at + (j >> 1) * a.step])[j & 1];
}
INLINE void set_element(const Place& d, int j, float x) { ((float*)&slots[d.at])[j] = x; }
template <class T> INLINE void set_element(const Place& d, int j, T x) {
    ((T*)&slots[d.at + (j >> 1) * d.step])[j & 1] = x;
}
INLINE void get(float (&x)[4], const Place& a) {
    const uint4 v = slots[a.at];
    x[0] = __uint_as_float(v.x); x[1] = __uint_as_float(v.y);
    x[2] = __uint_as_float(v.z); x[3] = __uint_as_float(v.w);
}
INLINE void get(u64 (&x)[4], const Place& a) {
    const uint4 v = slots[a.at], w = slots[a.at + a.step];
    x[0] = v.x | (u64)v.y << 32; x[1] = v.z | (u64)v.w << 32;
    x[2] = w.x | (u64)w.y << 32; x[3] = w.z | (u64)w.w << 32;
}
INLINE void get(double (&x)[4], const Place& a) {
    u64 w[4];
    get(w, a);
    for (int j = 0; j < 4; j++) x[j] = f64_of(w[j]);
}
INLINE void get(i64 (&x)[4], const Place& a) {
    u64 w[4];
    get(w, a);
    for (int j = 0; j < 4; j++) x[j] = (i64)w[j];
}
INLINE void set(const Place& d, const float (&x)[4]) {
    slots[d.at] = uint4{bits(x[0]), bits(x[1]), bits(x[2]), bits(x[3])};
}
template <class T> INLINE void set(const Place& d, const T (&x)[4]) {
    const u64 a = bits(x[0]), b = bits(x[1]), c = bits(x[2]), e = bits(x[3]);
    slots[d.at] = uint4{(u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32)};
    slots[d.at + d.step] = uint4{(u32)c, (u32)(c >> 32), (u32)e, (u32)(e >> 32)};
}

// Whether the second pair replaces the first one in an indexed reduction; see reduce.cu.
INLINE i64 wins(bool x_nan, bool y_nan, bool better, bool equal, bool earlier) {
    const bool wins = better | (equal & earlier);
    return y_nan ? !x_nan | earlier : !x_nan & wins;
}

// --- Views ---------------------------------------------------------------------------------------

// The dimensions of a phase: words of a divisor each.
struct Space {
    u32 word, rank;
    u32 wide;
};

INLINE i64 offset_of(const Params& p, const Space& space, u64 position, u32 strides) {
    i64 offset = 0;
#pragma unroll 1
    for (u32 d = space.rank; d-- > 0;) {
        const u64 extent = p.w[space.word + 2 * d], magic = p.w[space.word + 2 * d + 1];
        const u64 rest = space.wide ? position / extent : (u64)quotient((u32)position, extent, magic);
        offset += (i64)(position - rest * extent) * (i64)p.w[strides + d];
        position = rest;
    }
    return offset;
}

struct Addresses {
    u64 at[4];
    u64 whole;  // All four are adjacent and aligned.
};

// The view at word v: 0 address, 1 mode, then strides. Elements that do not exist have the first one's address.
INLINE Addresses addresses(const Params& p, const Space& space, u32 v, u32 shift, const Unit& unit) {
    const u64 base = p.w[v];
    const u32 mode = (u32)p.w[v + 1];
    const u64 first = unit.count ? unit.first : 0;
    Addresses a;
    a.whole = (mode & 4) && unit.count == 4 && (first & 3) == 0;
    i64 start = 0, step = 0;
    if ((mode & 3) == 0) {
        start = (i64)first;
        step = 1;
    } else if ((mode & 3) == 2) {
        start = offset_of(p, space, first, v + 2);
        step = (i64)p.w[v + 1 + space.rank];
        if (!(mode & 8) || (first & 3)) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const i64 at = (u32)j < unit.count ? offset_of(p, space, first + j, v + 2) : start;
                a.at[j] = base + ((u64)at << shift);
            }
            return a;
        }
    }
#pragma unroll
    for (int j = 0; j < 4; j++) a.at[j] = base + ((u64)(start + ((u32)j < unit.count ? j * step : 0)) << shift);
    return a;
}

template <class B> INLINE void read(B (&b)[4], const Addresses& a) {
    if (a.whole) {
        u32 w[sizeof(B)];
        load_words(w, a.at[0]);
#pragma unroll
        for (int j = 0; j < 4; j++) b[j] = take<B>(w, j);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) b[j] = *memory<const B>(a.at[j]);
    }
}
template <class B> INLINE void write(const B (&b)[4], const Addresses& a, u32 count) {
    if (a.whole) {
        u32 w[sizeof(B)] = {};
#pragma unroll
        for (int j = 0; j < 4; j++) put<B>(w, j, b[j]);
        store_words(w, a.at[0]);
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if ((u32)j < count) *memory<B>(a.at[j]) = b[j];
        }
    }
}

// --- Instructions ----------------------------------------------------------------------------------

@FUNCTIONS@

INLINE void execute(const Params& p, u32 from, u32 to, const Space& space, const Unit& unit, u32 numbers) {
#pragma unroll 1
    for (u32 pc = from; pc < to; pc++) {
        const u64 word = p.w[pc];
        const u32 op = (u32)word & 0x3fffu;
        const Place pd = place((u32)(word >> 14) & 0x3ffu, numbers);
        if (op >= FIRST_MOVE) {
            const u32 v = (u32)(word >> 24) & 0x3ffu, shift = (u32)(word >> 34) & 7u;
            const Addresses place = addresses(p, space, v, shift, unit);
            switch (op) {
@MOVES@
            }
            continue;
        }
        const Place pa = place((u32)(word >> 24) & 0x3ffu, numbers);
        const Place pb = place((u32)(word >> 34) & 0x3ffu, numbers);
        const Place pk = place((u32)(word >> 44) & 0x3ffu, numbers);
        const Place pe = place((u32)(word >> 54), numbers);
        switch (op) {
        case 0: {  // The position of each element.
            i64 x[4];
#pragma unroll
            for (int j = 0; j < 4; j++) x[j] = (i64)(unit.first + j);
            set(pd, x);
        } break;
        case 1: {  // One slot of a, b by its number in c: elements that exist come from b.
            const float none = 0.0f;
#pragma unroll
            for (int j = 0; j < 4; j++) set_element(pd, j, element_of((u32)j < unit.count ? pb : pa, j, none));
        } break;
        case 2: {  // The same for two slots.
            const i64 none = 0;
#pragma unroll
            for (int j = 0; j < 4; j++) set_element(pd, j, element_of((u32)j < unit.count ? pb : pa, j, none));
        } break;
        case 3: {  // Lanes `count` away, one slot.
            if (unit.count >= 4) {
                slots[pd.at] = slots[pa.at + unit.count / 4 * unit.step];
            } else {
                float x[4];
                const float none = 0.0f;
#pragma unroll
                for (int j = 0; j < 4; j++) x[j] = element_of(pa, (j + unit.count) & 3, none);
                set(pd, x);
            }
        } break;
        case 4: {  // The same for two slots.
            if (unit.count >= 4) {
                slots[pd.at] = slots[pa.at + unit.count / 4 * unit.step];
                slots[pd.at + pd.step] = slots[pa.at + pa.step + unit.count / 4 * unit.step];
            } else {
                i64 x[4];
                const i64 none = 0;
#pragma unroll
                for (int j = 0; j < 4; j++) x[j] = element_of(pa, (j + unit.count) & 3, none);
                set(pd, x);
            }
        } break;
        case 7: {  // The position within the result's elements.
            i64 x[4];
#pragma unroll
            for (int j = 0; j < 4; j++) x[j] = (i64)(unit.within + j);
            set(pd, x);
        } break;
        case 5: slots[pd.at] = slots[pa.at]; break;
        case 6: {
            slots[pd.at] = slots[pa.at];
            slots[pd.at + pd.step] = slots[pa.at + pa.step];
        } break;
@CASES@
        }
    }
}

extern "C" __global__ void __launch_bounds__(MOST_THREADS) interpret(const __grid_constant__ Params p) {
    const u32 t = threadIdx.x;
    const u32 numbers = half_of(p.w[1], 2) * blockDim.x;
    for (u32 i = t; i < half_of(p.w[1], 1); i += blockDim.x) {
        const u64 number = p.w[half_of(p.w[1], 0) + i];
        slots[numbers + i] = uint4{(u32)number, (u32)(number >> 32), (u32)number, (u32)(number >> 32)};
    }
    __syncthreads();
    const u32 wide = p.w[10] & 1;
    const Space space{half_of(p.w[2], 2), half_of(p.w[2], 3), wide};
    const u32 lanes = (u32)p.w[6];
    u32 from = half_of(p.w[2], 0), to = half_of(p.w[2], 1);
    Unit unit;

    // A map is one phase over units; a reduction goes through all phases for each segment of this thread.
    const u32 threads = lanes > 4 ? lanes / 4 : 1, segments = blockDim.x / threads, columns = p.w[10] >> 1 & 1;
    const u32 lane = (columns ? t / segments : t % threads) * 4;
    const u64 reduced = p.w[7], parts = p.w[9];
    u64 segment = (u64)blockIdx.x * segments + (columns ? t % segments : t / threads);
    u64 row = 0, left = 0, begin = 0;
    u32 phase = 0, half = 0;
    u64 round = 0;
    if (lanes == 0) {
        unit.first = ((u64)blockIdx.x * blockDim.x + t) * 4;
    } else {
        phase = 1;
        if (segment < p.w[0]) {
            // Columns are numbered part by part.
            const u64 kept = p.w[0] / parts;
            if (columns) segment = segment % kept * parts + segment / kept;
            begin = segment % parts * p.w[8];
            left = reduced - begin < p.w[8] ? reduced - begin : p.w[8];
            row = segment / parts * reduced + begin;
        }
        from = half_of(p.w[3], 0);
        to = half_of(p.w[3], 1);
        unit = Unit{0, 0, 0, columns ? segments : 1};
    }
#pragma unroll 1
    while (true) {
        if (lanes == 0) {
            if (unit.first >= p.w[0]) return;
            unit.count = p.w[0] - unit.first < 4 ? (u32)(p.w[0] - unit.first) : 4;
        } else if (phase == 2) {
            // All threads of a block take as many rounds as its longest segment.
            const u64 at = round + lane;
            unit.first = row + at;
            unit.within = begin + at;
            unit.count = at < left ? left - at < 4 ? (u32)(left - at) : 4 : 0;
        } else if (phase == 3) {
            __syncthreads();
            unit.count = half;
        } else if (phase == 4) {
            unit.first = segment;
            unit.count = lane == 0 && segment < p.w[0];
        }
        const bool active = phase != 3 || half < 4 || lane < half;
        if (active) {
            const Space last{half_of(p.w[5], 2), half_of(p.w[5], 3), wide};
            execute(p, from, to, phase == 4 ? last : space, unit, numbers);
        }
        if (lanes == 0) {
            unit.first += (u64)gridDim.x * blockDim.x * 4;
            continue;
        }
        switch (phase) {
        case 1: phase = 2; round = 0; break;
        case 2: round += lanes; break;
        case 3: half /= 2; break;
        default: return;
        }
        if (phase == 2) {
            from = half_of(p.w[2], 0);
            to = half_of(p.w[2], 1);
            if (round >= p.w[8] || round >= reduced) {
                phase = 3;
                half = lanes / 2;
                from = half_of(p.w[4], 0);
                to = half_of(p.w[4], 1);
            }
        }
        if (phase == 3 && half == 0) {
            phase = 4;
            from = half_of(p.w[5], 0);
            to = half_of(p.w[5], 1);
        }
    }
}
