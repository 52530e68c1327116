// A product of two matrices of halves and an elementwise program that reads it, for compute capability 9.0.
//
// A block computes tiles of TILE_M x TILE_N results, one after the other. Its warps have three roles. One thread copies
// parts of the operands to shared memory (tensor maps, a ring of STAGES parts). Two groups of four warps multiply, 64 rows
// each, and write the rounded product to shared memory. The others read the product by rows, run the program, and store
// its results, while the next tile is multiplied. The blocks of a cluster work on adjacent rows of tiles and share the
// parts of the right operand: each loads some and sends them to all.
//
// Sums are added in steps of 16 terms, from the first term to the last, by one accumulator: as cuBLAS does for these sizes.
//
// p.w: 0 tensor maps of the operands, 32 m, 33 n, 34 steps, 35 rows of cluster tiles, 36 columns of tiles, then the views
// of the program, their distances between rows in bytes, and its numbers.

// Tensor maps begin at multiples of 64 bytes.
struct Params { alignas(64) u64 w[@WORDS@]; };
#define TILE_M 128
#define TILE_N @TILE_N@
// Terms of a part; a line of it has 128 bytes.
#define PART 64
#define STAGES @STAGES@
#define CLUSTER @CLUSTER@
// Groups of warps that run the program.
#define READERS @READERS@
// Columns of an instruction.
#define COLUMNS @COLUMNS@
// Whether columns of the left operand, and rows of the right one, are contiguous.
#define LEFT_TRANSPOSED @LEFT_TRANSPOSED@
#define RIGHT_TRANSPOSED @RIGHT_TRANSPOSED@
// Rows of a tile whose operands a warp loads together.
#define UNROLL @UNROLL@
// Cluster tiles that follow one another in a column, so that the operands stay in the L2 cache.
#define GROUP 8
// Elements of a unit.
#define WIDTH 8
// The padding lets a warp write a column of eight units at once.
#define PITCH (TILE_N * 2 + 16)
#define LEFT_BYTES (TILE_M * PART * 2)
#define RIGHT_BYTES (TILE_N * PART * 2)
#define HALF_BYTES (64 * PITCH)
// A box of a tensor map: 64 x 64 elements.
#define BOX_BYTES 8192

@FUNCTIONS@
// --- Barriers in shared memory ---------------------------------------------------------------------

INLINE void start_barrier(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}
INLINE void expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
INLINE void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
INLINE void arrive_at(u32 barrier, u32 block) {
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier), "r"(block) : "memory");
}
INLINE void wait_for(u32 barrier, u32 parity) {
    u32 is_done;
    do {
        asm volatile("{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, done; }" : "=r"(is_done) : "r"(barrier), "r"(parity) : "memory");
    } while (!is_done);
}
INLINE void wait_for_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// --- Copies and products ---------------------------------------------------------------------------

INLINE void load_box(u32 to, const u64* map, u32 x, u32 y, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
// To the same place of all blocks of the cluster.
INLINE void send_box(u32 to, const u64* map, u32 x, u32 y, u32 barrier) {
#if CLUSTER == 1
    load_box(to, map, x, y, barrier);
#else
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier),
                 "h"((u16)((1 << CLUSTER) - 1)) : "memory");
#endif
}
// A matrix in shared memory, in lines of 128 bytes that are permuted as the tensor maps write them. Groups of eight lines
// lie next to each other; boxes of transposed matrices are BOX_BYTES apart.
INLINE u64 matrix_at(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)(BOX_BYTES >> 4) << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
// Adds the product of 64 rows and COLUMNS columns over 16 terms; the first one replaces what is there.
INLINE void multiply(float* sums, u64 left, u64 right, int adds) {
@MULTIPLY@
}
// Two sums, rounded: the first one is in the lower half.
INLINE u32 rounded(float first, float second) {
    u32 pair;
    asm("cvt.rn.@HALF@x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
INLINE void load_unit(u32 (&w)[4], u32 address) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "r"(address));
}

// The tiles of a block, in order.
struct Tiles {
    u32 at, end, step, columns, rows;
    // The tile's row and column, in tiles of one block.
    u32 row, column;
    INLINE Tiles(const Params& p, u32 rank) {
        rows = (u32)p.w[35];
        columns = (u32)p.w[36];
        end = rows * columns;
        at = blockIdx.x / CLUSTER;
        step = gridDim.x / CLUSTER;
        place(rank);
    }
    INLINE void place(u32 rank) {
        const u32 first = at / (GROUP * columns) * GROUP, rest = at - first * columns;
        const u32 height = min((u32)GROUP, rows - first);
        column = rest / height;
        row = (first + rest - column * height) * CLUSTER + rank;
    }
    INLINE bool has_tile() const { return at < end; }
    INLINE void next(u32 rank) {
        at += step;
        place(rank);
    }
};

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(128 * (3 + READERS), 1)
    wgmma(const __grid_constant__ Params p) {
    extern __shared__ unsigned char shared[];
    const u32 parts = ((u32)__cvta_generic_to_shared(shared) + 1023) & ~1023u;
    const u32 products = parts + STAGES * (LEFT_BYTES + RIGHT_BYTES);
    // Barriers: parts that are full and empty, products that are complete and read.
    const u32 full = products + 2 * HALF_BYTES, empty = full + 8 * STAGES;
    const u32 complete = empty + 8 * STAGES, read = complete + 16;
    const int role = threadIdx.x / 128;
    u32 rank = 0;
#if CLUSTER > 1
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            start_barrier(full + 8 * s, 1);
            start_barrier(empty + 8 * s, 2 * CLUSTER);
        }
        for (int h = 0; h < 2; h++) {
            start_barrier(complete + 8 * h, 128);
            start_barrier(read + 8 * h, 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    wait_for_cluster();
    const u32 steps = (u32)p.w[34];
    if (role == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) {
            const u64* left = p.w;
            const u64* right = p.w + 16;
            u32 s = 0, parity = 1;
            for (Tiles t(p, rank); t.has_tile(); t.next(rank)) {
                const u32 row = t.row * TILE_M, column = t.column * TILE_N;
                for (u32 step = 0; step < steps; step++) {
                    wait_for(empty + 8 * s, parity);
                    const u32 barrier = full + 8 * s, term = step * PART;
                    const u32 a = parts + s * (LEFT_BYTES + RIGHT_BYTES), b = a + LEFT_BYTES;
                    expect(barrier, LEFT_BYTES + RIGHT_BYTES);
#if LEFT_TRANSPOSED
                    for (u32 i = 0; i < TILE_M / 64; i++) load_box(a + i * BOX_BYTES, left, row + i * 64, term, barrier);
#else
                    load_box(a, left, term, row, barrier);
#endif
#if !RIGHT_TRANSPOSED
                    // Each block sends some of the lines of each box.
                    for (u32 i = 0; i < TILE_N / 64; i++)
                        send_box(b + i * BOX_BYTES + rank * (BOX_BYTES / CLUSTER), right, column + i * 64,
                                 term + rank * (PART / CLUSTER), barrier);
#else
                    send_box(b + rank * (RIGHT_BYTES / CLUSTER), right, term, column + rank * (TILE_N / CLUSTER), barrier);
#endif
                    if (++s == STAGES) { s = 0; parity ^= 1; }
                }
            }
        }
    } else if (role <= 2) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(@MULTIPLIER_REGISTERS@));
        const u32 half = role - 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        float sums[TILE_N / 2];
        u32 s = 0, parity = 0, free = 1;
        for (Tiles t(p, rank); t.has_tile(); t.next(rank)) {
            u32 last = 0;
            for (u32 step = 0; step < steps; step++) {
                wait_for(full + 8 * s, parity);
                const u32 a = parts + s * (LEFT_BYTES + RIGHT_BYTES) + half * BOX_BYTES;
                const u32 b = parts + s * (LEFT_BYTES + RIGHT_BYTES) + LEFT_BYTES;
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int i = 0; i < PART / 16; i++) {
#pragma unroll
                    for (int c = 0; c < TILE_N / COLUMNS; c++)
                        multiply(sums + c * (COLUMNS / 2), matrix_at(a + i * (LEFT_TRANSPOSED ? 2048 : 32)),
                                 matrix_at(b + c * COLUMNS * 128 + i * (RIGHT_TRANSPOSED ? 32 : 2048)), step + i > 0);
                }
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                // With few parts, each is released at once; with more, while the next one is multiplied.
                if (STAGES <= 3 || step > 0) {
                    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(STAGES <= 3 ? 0 : 1) : "memory");
                    if (threadIdx.x % 128 < CLUSTER) arrive_at(empty + 8 * (STAGES <= 3 ? s : last), threadIdx.x % 128);
                }
                last = s;
                if (++s == STAGES) { s = 0; parity ^= 1; }
            }
            if (STAGES > 3) {
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                if (threadIdx.x % 128 < CLUSTER) arrive_at(empty + 8 * last, threadIdx.x % 128);
            }
            wait_for(read + 8 * half, free);
            free ^= 1;
            const u32 row = products + half * HALF_BYTES + (warp * 16 + lane % 16) * PITCH + lane / 16 * 16;
#pragma unroll
            for (int j = 0; j < TILE_N / 16; j++) {
                const float* d = sums + 8 * j;
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row + j * 32),
                             "r"(rounded(d[0], d[1])), "r"(rounded(d[2], d[3])), "r"(rounded(d[4], d[5])),
                             "r"(rounded(d[6], d[7])) : "memory");
            }
            arrive(complete + 8 * half);
        }
    } else {
#if READERS == 1
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(@READER_REGISTERS@));
#else
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(@READER_REGISTERS@));
#endif
        const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, m = (u32)p.w[32], n = (u32)p.w[33];
        u32 parity = 0;
@UNIFORM@
        for (Tiles t(p, rank); t.has_tile(); t.next(rank), parity ^= 1) {
            const u32 column = t.column * TILE_N + lane * WIDTH, first = t.row * TILE_M;
            const bool is_inside = lane * WIDTH < TILE_N && column < n;
@COLUMN_REGISTERS@
            if (is_inside) {
@COLUMN_LOADS@
            }
#pragma unroll 1
            for (u32 half = READERS == 2 ? role - 3 : 0; half < (READERS == 2 ? role - 2 : 2); half++) {
#pragma unroll 1
                for (u32 chunk = 0; chunk < 16; chunk += UNROLL) {
@REGISTERS@
#pragma unroll
                    for (int u = 0; u < UNROLL; u++) {
                        const u32 row = first + half * 64 + (chunk + u) * 4 + warp;
                        if (is_inside && row < m) {
@LOADS@
                        }
                    }
                    if (chunk == 0) wait_for(complete + 8 * half, parity);
#pragma unroll
                    for (int u = 0; u < UNROLL; u++) {
                        const u32 line = (chunk + u) * 4 + warp, row = first + half * 64 + line;
                        if (is_inside && row < m) {
                            u32 product[4];
                            load_unit(product, products + half * HALF_BYTES + line * PITCH + lane * 16);
@RESULTS@
#define HEAD
@ELEMENTS@
@STORES@
                        }
                    }
                }
                arrive(read + 8 * half);
            }
        }
    }
    wait_for_cluster();
}
