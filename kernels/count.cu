// How often each of few numbers occurs: out[x[i]]++ for numbers from 0 to below the number of counts, which is at most WORDS.
// A block counts in shared memory. It has 2^p.w[4] counts of each number, up to one for each lane, so that lanes do not wait
// for each other where numbers are equal.
//
// p.w: 0 input, 1 counts (0 before), 2 elements, 3 the number of counts, 4 the logarithm above, 5 the input's stride, 6 the sign bit of
// an element, 0 if its dtype has none.

struct CountParams { u64 w[7]; };
typedef @BITS@ Bits;
#define WORDS @WORDS@
#define THREADS 256
// Elements that a thread reads at a time.
#define UNIT (16 / sizeof(Bits))

INLINE void add(const CountParams& p, u32* own, Bits element) {
    const Bits sign = (Bits)p.w[6];
    // Negative numbers are the greatest of a wider type.
    typedef decltype((Bits)0 + 0u) Wide;
    const Wide number = (Wide)(Bits)(element ^ sign) - (Wide)sign, counts = (Wide)p.w[3];
    // The last place is for other numbers: no branches.
    const u32 copies = (u32)p.w[4], place = number < counts ? (u32)number : (u32)counts;
    atomicAdd(own + (place << copies | (threadIdx.x & ((1u << copies) - 1))), 1u);
}

extern "C" __global__ void __launch_bounds__(THREADS) count_few(const __grid_constant__ CountParams p) {
    __shared__ u32 own[WORDS + 32];
    const u32 counts = (u32)p.w[3], copies = (u32)p.w[4];
    for (u32 at = threadIdx.x; at < counts << copies; at += THREADS) own[at] = 0;
    __syncthreads();
    const Bits* in = memory<const Bits>(p.w[0]);
    const u64 first = (u64)blockIdx.x * THREADS + threadIdx.x, step = (u64)gridDim.x * THREADS;
    const u64 units = p.w[5] == 1 && p.w[0] % 16 == 0 ? p.w[2] / UNIT : 0;
    if (first < units) {
        u32 next[4];
        load_words(next, p.w[0] + first * 16);
        #pragma unroll 1
        for (u64 at = first; at < units; at += step) {
            // The next elements are on their way while these are counted.
            const u32 words[4] = {next[0], next[1], next[2], next[3]};
            if (at + step < units) load_words(next, p.w[0] + (at + step) * 16);
            #pragma unroll
            for (int n = 0; n < UNIT; n++) add(p, own, take<Bits>(words, n));
        }
    }
    #pragma unroll 1
    for (u64 i = units * UNIT + first; i < p.w[2]; i += step) add(p, own, in[i * p.w[5]]);
    __syncthreads();
    for (u32 number = threadIdx.x; number < counts; number += THREADS) {
        u32 sum = 0;
        // Lanes begin at different copies, which lie in different banks.
        #pragma unroll 1
        for (u32 copy = 0; copy >> copies == 0; copy++) {
            sum += own[number << copies | ((threadIdx.x + copy) & ((1u << copies) - 1))];
        }
        if (sum != 0) atomicAdd(memory<unsigned long long>(p.w[1]) + number, (unsigned long long)sum);
    }
}
