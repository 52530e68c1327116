// out[i] = source[.., index[i], ..]. A unit is WIDTH adjacent elements with one index.
//
// p.w: 0 units, 1 extent of the axis, 2 source's stride along the axis, 3 fault record, 4 its stamp, 5
// source, 6 index, 7 out, then the layout from kernel/kinds.

struct Params { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
typedef @BITS@ Bits;
#define WIDTH @WIDTH@
#define UNROLL @UNROLL@

extern "C" __global__ void __launch_bounds__(256) gather(const __grid_constant__ Params p) {
    const Index units = (Index)p.w[0];
    const Index first = (Index)blockIdx.x * (256 * UNROLL) + threadIdx.x;
    i64 index[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const Index unit = first + u * 256;
        if (unit < units) {
@COORDINATES@
            index[u] = memory<const i64>(p.w[6])[@AT_INDEX@];
        }
    }
#if WIDTH > 1
    u32 x[UNROLL][WIDTH * sizeof(Bits) / 4];
#else
    Bits x[UNROLL];
#endif
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const Index unit = first + u * 256;
        if (unit < units) {
            i64 at = index[u];
            const i64 extent = (i64)p.w[1];
            if (at < -extent || at >= extent) {
                report_fault(p.w[3], p.w[4], (u64)unit * WIDTH, at);
                at = 0;
            }
            at += at < 0 ? extent : 0;
@COORDINATES@
            const u64 from = p.w[5] + ((u64)(@AT_SOURCE@) + (u64)at * p.w[2]) * sizeof(Bits);
#if WIDTH > 1
            load_words(x[u], from);
#else
            // Nothing to read on an axis without elements.
            x[u] = extent > 0 ? *memory<const Bits>(from) : Bits{};
#endif
        }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const Index unit = first + u * 256;
        if (unit < units) {
@COORDINATES@
            const u64 to = p.w[7] + (u64)(@AT_OUT@) * sizeof(Bits);
#if WIDTH > 1
            store_words(x[u], to);
#else
            *memory<Bits>(to) = x[u];
#endif
        }
    }
}
