// Elementwise programs. A unit is WIDTH adjacent elements. A thread processes UNROLL units, one block width
// apart, and issues all their loads before it computes.
//
// p.w: 0 units, 1 elements after the last unit, then the layout from kernel/kinds.

struct Params { u64 w[@WORDS@]; };
typedef @INDEX@ Index;
#define BLOCK @BLOCK@
#define WIDTH @WIDTH@
#define UNROLL @UNROLL@

@FUNCTIONS@
extern "C" __global__ void __launch_bounds__(BLOCK) map(const __grid_constant__ Params p) {
    const Index units = (Index)p.w[0];
    const Index first = (Index)blockIdx.x * (BLOCK * UNROLL) + threadIdx.x;
@UNIFORM@
@REGISTERS@
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const Index unit = first + u * BLOCK;
        if (unit < units) {
@LOADS@
        }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const Index unit = first + u * BLOCK;
        if (unit < units) {
@RESULTS@
#define HEAD const i64 position = (i64)(unit * WIDTH + j);
@ELEMENTS@
@STORES@
        }
    }
@TAIL@
}
