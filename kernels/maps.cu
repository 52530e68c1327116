// One elementwise program over several segments. Segments take adjacent blocks. A unit is WIDTH adjacent elements;
// a thread processes ROUNDS units, one block width apart, one after the other.
//
// p.w: 0 segments; then the numbers; then for each segment its number of elements and (high half) its first block,
// and the addresses of its views.

struct Params { u64 w[@WORDS@]; };
#define BLOCK @BLOCK@
#define WIDTH @WIDTH@
#define ROUNDS @ROUNDS@

@FUNCTIONS@
extern "C" __global__ void __launch_bounds__(BLOCK) maps(const __grid_constant__ Params p) {
    // The last segment that begins at or before this block.
    const u32 segments = (u32)p.w[0];
    u32 segment = 0;
#pragma unroll
    for (u32 step = @HALF@; step > 0; step >>= 1) {
        const u32 next = segment + step;
        if (next < segments && (u32)(p.w[@TABLE@ + next * @STEP@] >> 32) <= blockIdx.x) segment = next;
    }
    const u32 at = @TABLE@ + segment * @STEP@;
    const u32 size = (u32)p.w[at];
    const u32 block = blockIdx.x - (u32)(p.w[at] >> 32);
    const u32 units = size / WIDTH;
    const u32 first = block * (BLOCK * ROUNDS) + threadIdx.x;
@UNIFORM@
#pragma unroll 1
    for (u32 round = 0; round < ROUNDS; round++) {
        const u32 unit = first + round * BLOCK;
        if (unit >= units) break;
@LOADS@
@RESULTS@
#pragma unroll
        for (int j = 0; j < WIDTH; j++) {
@ELEMENT@
        }
@STORES@
    }
    if (WIDTH > 1 && block == 0 && threadIdx.x < size % WIDTH) {
        const u64 place = (u64)units * WIDTH + threadIdx.x;
@TAIL@
    }
}
