// Products with few rows: a large matrix times up to eight vectors. The time is that of reading the matrix, so a thread
// has several loads of it in flight. Sums have an order that only the sizes decide.
//
// A line is the part of the matrix that makes one column of results. `rows`: a line's elements are adjacent, and SPLIT
// warps share LINES lines. `columns`: adjacent lines are adjacent, ACROSS threads of a block take a unit of lines each,
// and the others take other elements of them.
//
// p.w: 0 matrix, 1 vectors, 2 results, 3 lines, 4 elements of a line, 5 distance between the matrix's lines (`rows`) or
// elements (`columns`), 6 vectors, 7 distance between vectors, 8 between their elements, 9 between results of adjacent
// lines, 10 of adjacent vectors, 11 products, 12 distance between matrices, 13 vectors, 14 results of a batch; distances
// in bytes.

struct Params { u64 w[15]; };
typedef @BITS@ Bits;
// Elements of a unit, which is loaded at once.
#define UNIT (16 / (int)sizeof(Bits))
INLINE float load(Bits b) { return load_@DTYPE@(b); }
INLINE void store(u64 address, float sum) { *memory<Bits>(address) = store_@DTYPE@(round_@DTYPE@(sum)); }

// A unit of the matrix, which no other thread reads.
INLINE void load_once(u32 (&w)[4], u64 address) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(address));
}
INLINE float sum_of_lanes(float sum, int least) {
    for (int step = 16; step >= least; step /= 2) sum += __shfl_xor_sync(FULL_WARP, sum, step);
    return sum;
}

template <int VECTORS, int LINES, int AHEAD, int SPLIT, int WARPS> INLINE void rows(const Params& p) {
    __shared__ float parts[WARPS][VECTORS * LINES];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % SPLIT;
    const u32 line = (blockIdx.x * (WARPS / SPLIT) + warp / SPLIT) * LINES, lines = (u32)p.w[3];
    const u32 units = (u32)p.w[4] / UNIT, count = (u32)p.w[6];
    for (u64 b = blockIdx.y; b < p.w[11]; b += gridDim.y) {
        u64 from[LINES], vectors[VECTORS];
#pragma unroll
        for (int l = 0; l < LINES; l++) from[l] = p.w[0] + b * p.w[12] + min(line + l, lines - 1) * p.w[5];
#pragma unroll
        for (int v = 0; v < VECTORS; v++) vectors[v] = p.w[1] + b * p.w[13] + min((u32)v, count - 1) * p.w[7];
        float sums[VECTORS][LINES] = {};
        for (u32 first = lane + 32 * part; first < units; first += 32 * SPLIT * AHEAD) {
            u32 matrix[AHEAD][LINES][4] = {};
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                const u32 unit = first + a * 32 * SPLIT;
                if (unit < units) {
#pragma unroll
                    for (int l = 0; l < LINES; l++) load_once(matrix[a][l], from[l] + (u64)unit * 16);
                }
            }
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                const u32 unit = first + a * 32 * SPLIT;
                if (unit >= units) break;
#pragma unroll
                for (int v = 0; v < VECTORS; v++) {
                    u32 vector[4];
                    load_words(vector, vectors[v] + (u64)unit * 16);
#pragma unroll
                    for (int l = 0; l < LINES; l++) {
#pragma unroll
                        for (int e = 0; e < UNIT; e++) {
                            const float x = load(take<Bits>(matrix[a][l], e)), y = load(take<Bits>(vector, e));
                            sums[v][l] = __fmaf_rn(x, y, sums[v][l]);
                        }
                    }
                }
            }
        }
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
#pragma unroll
            for (int l = 0; l < LINES; l++) {
                const float sum = sum_of_lanes(sums[v][l], 1);
                if (lane == 0) parts[warp][v * LINES + l] = sum;
            }
        }
        __syncthreads();
        const u32 v = lane / LINES, l = line + lane % LINES;
        if (part == 0 && v < min((u32)VECTORS, count) && l < lines) {
            float sum = 0.0f;
            for (int i = 0; i < SPLIT; i++) sum += parts[warp + i][lane];
            store(p.w[2] + b * p.w[14] + l * p.w[9] + v * p.w[10], sum);
        }
        __syncthreads();
    }
}

template <int VECTORS, int ACROSS, int AHEAD, int WARPS> INLINE void columns(const Params& p) {
    __shared__ float parts[WARPS][ACROSS * UNIT];
    const int DOWN = 32 * WARPS / ACROSS;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 unit = blockIdx.x * ACROSS + threadIdx.x % ACROSS, lines = (u32)p.w[3];
    const u32 length = (u32)p.w[4], count = (u32)p.w[6];
    for (u64 b = blockIdx.y; b < p.w[11]; b += gridDim.y) {
        const u64 from = p.w[0] + b * p.w[12] + (u64)unit * 16, vectors = p.w[1] + b * p.w[13];
        float sums[VECTORS][UNIT] = {};
        if (unit < lines / UNIT) {
            for (u32 first = threadIdx.x / ACROSS; first < length; first += DOWN * AHEAD) {
                u32 matrix[AHEAD][4] = {};
#pragma unroll
                for (int a = 0; a < AHEAD; a++) {
                    const u32 at = first + a * DOWN;
                    if (at < length) load_once(matrix[a], from + at * p.w[5]);
                }
#pragma unroll
                for (int a = 0; a < AHEAD; a++) {
                    const u32 at = first + a * DOWN;
                    if (at >= length) break;
#pragma unroll
                    for (int v = 0; v < VECTORS; v++) {
                        const u64 vector = vectors + min((u32)v, count - 1) * p.w[7];
                        const float y = load(*memory<const Bits>(vector + at * p.w[8]));
#pragma unroll
                        for (int e = 0; e < UNIT; e++) {
                            sums[v][e] = __fmaf_rn(load(take<Bits>(matrix[a], e)), y, sums[v][e]);
                        }
                    }
                }
            }
        }
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
#pragma unroll
            for (int e = 0; e < UNIT; e++) {
                const float sum = sum_of_lanes(sums[v][e], ACROSS);
                if (lane < ACROSS) parts[warp][lane * UNIT + e] = sum;
            }
            __syncthreads();
            const u32 line = blockIdx.x * ACROSS * UNIT + threadIdx.x;
            if (threadIdx.x < ACROSS * UNIT && line < lines && v < count) {
                float sum = 0.0f;
                for (int i = 0; i < WARPS; i++) sum += parts[i][threadIdx.x];
                store(p.w[2] + b * p.w[14] + line * p.w[9] + v * p.w[10], sum);
            }
            __syncthreads();
        }
    }
}

@KERNELS@