// Concatenates parts of memory as bytes; each part starts at a multiple of 16.
//
// p.w: 0 result, 1 number of parts, then their addresses, then the end of each part in the result.

#define PARTS @PARTS@
#define TILE 4096
struct Params { u64 w[2 + 2 * PARTS]; };
struct __align__(16) Unit { u64 low, high; };

extern "C" __global__ void __launch_bounds__(256) pack(const __grid_constant__ Params p) {
    const u64* ends = p.w + 2 + PARTS;
    const u64 low = (u64)blockIdx.x * TILE, high = low + TILE;
    // The first part that ends after the tile's start.
    u64 part = 0, last = p.w[1];
    while (part < last) {
        const u64 middle = (part + last) / 2;
        if (ends[middle] <= low) part = middle + 1;
        else last = middle;
    }
    for (; part < p.w[1]; part++) {
        const u64 begin = part == 0 ? 0 : (ends[part - 1] + 15) / 16 * 16;
        if (begin >= high) break;
        const u64 from = begin > low ? begin : low;
        const u64 to = ends[part] < high ? ends[part] : high;
        if (from >= to) continue;
        const u64 source = p.w[2 + part] + (from - begin), target = p.w[0] + from, bytes = to - from;
        u64 done = 0;
        if ((source | target) % 16 == 0) {
            for (u64 i = threadIdx.x; i < bytes / 16; i += 256) memory<Unit>(target)[i] = memory<const Unit>(source)[i];
            done = bytes / 16 * 16;
        }
        for (u64 i = done + threadIdx.x; i < bytes; i += 256) memory<u8>(target)[i] = memory<const u8>(source)[i];
    }
}
