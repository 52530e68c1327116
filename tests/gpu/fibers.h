// CUDA C on the CPU: what kernels use of CUDA's definitions. Blocks run one after the other. The threads of a block are
// fibers that take turns, and switch where one waits for others.

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __grid_constant__
#define __restrict__
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };
static dim3 threadIdx, blockIdx, blockDim, gridDim;
using std::max;
using std::min;

// By Newton's method from below, where it converges from any start.
static float erfinvf(float a) {
    const double x = std::fabs((double)a);
    if (!(x < 1.0)) return x == 1.0 ? std::copysign(INFINITY, a) : NAN;
    double y = 0.0;
    for (int i = 0; i < 60; i++) y += (x - std::erf(y)) * 0.88622692545275801 * std::exp(y * y);
    return std::copysign((float)y, a);
}

enum Wait { NOTHING, WARP, BLOCK, EVER };
struct Fiber {
    jmp_buf place;
    Wait waits = NOTHING;
    bool begun = false;
    // What the thread shows to the others of its warp.
    uint64_t shown[2];
};
static std::vector<Fiber> fibers;
static std::vector<char*> stacks;
static jmp_buf scheduler;
static unsigned own;
static void (*kernel)();

// A kernel's parameter. Each thread has a copy.
static unsigned long long words[512];
template <class P> void call(void (*entry)(P)) {
    P p;
    memcpy(&p, words, sizeof p);
    entry(p);
}
template <class P> bool takes(void (*)(P), unsigned long long count) { return sizeof(P) == 8 * count; }

static void wait(Wait what) {
    Fiber& fiber = fibers[own];
    fiber.waits = what;
    if (!_setjmp(fiber.place)) _longjmp(scheduler, 1);
}
// A fiber runs the kernel again for each block: a new one takes two calls of the system.
static void begin() {
    for (;;) {
        kernel();
        wait(EVER);
    }
}
static void proceed(unsigned fiber) {
    own = threadIdx.x = fiber;
    if (_setjmp(scheduler)) return;
    if (fibers[fiber].begun) _longjmp(fibers[fiber].place, 1);
    fibers[fiber].begun = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks[fiber];
    context.uc_stack.ss_size = 1 << 17;
    context.uc_link = nullptr;
    makecontext(&context, begin, 0);
    setcontext(&context);
}
// Ends the wait of these threads, if each of them waits for this or has ended.
static bool release(unsigned from, unsigned to, Wait what) {
    bool any = false;
    for (unsigned i = from; i < to; i++) {
        if (fibers[i].waits != what && fibers[i].waits != EVER) return false;
        any |= fibers[i].waits == what;
    }
    for (unsigned i = from; i < to; i++) {
        if (fibers[i].waits == what) fibers[i].waits = NOTHING;
    }
    return any;
}
static void run_block(unsigned threads) {
    while (stacks.size() < threads) {
        stacks.push_back((char*)malloc(1 << 17));
        fibers.emplace_back();
    }
    for (unsigned i = 0; i < threads; i++) {
        fibers[i].waits = NOTHING;
        fibers[i].shown[0] = fibers[i].shown[1] = 0;
    }
    for (bool more = true; more;) {
        more = false;
        for (unsigned i = 0; i < threads; i++) {
            if (fibers[i].waits == NOTHING) proceed(i);
        }
        for (unsigned warp = 0; warp < threads; warp += 32) more |= release(warp, min(warp + 32, threads), WARP);
        more |= release(0, threads, BLOCK);
    }
    for (unsigned i = 0; i < threads; i++) {
        if (fibers[i].waits != EVER) abort();
    }
}

static void run_blocks(const unsigned* grid, unsigned block, const unsigned long long* from, unsigned long long count) {
    memcpy(words, from, 8 * count);
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block, 1, 1};
    for (unsigned z = 0; z < grid[2]; z++) {
        for (unsigned y = 0; y < grid[1]; y++) {
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                run_block(block);
            }
        }
    }
}

inline void __syncthreads() { wait(BLOCK); }
inline void __syncwarp(unsigned = ~0u) { wait(WARP); }
// What another thread passes: the one at `place` in the group of `width` threads; its own value if there is none.
template <class T> T of_lane(T value, unsigned place, unsigned width) {
    static_assert(sizeof value <= 16, "");
    memcpy(fibers[own].shown, &value, sizeof value);
    wait(WARP);
    const unsigned other = (own & ~(width - 1)) + place;
    if (place < width && other < blockDim.x) memcpy(&value, fibers[other].shown, sizeof value);
    wait(WARP);
    return value;
}
#define LANE (own & (width - 1))
template <class T> T __shfl_sync(unsigned, T value, int lane, int width = 32) {
    return of_lane(value, lane & (width - 1), width);
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask, int width = 32) {
    return of_lane(value, LANE ^ mask, width);
}
template <class T> T __shfl_down_sync(unsigned, T value, unsigned by, int width = 32) {
    return of_lane(value, LANE + by, width);
}
template <class T> T __shfl_up_sync(unsigned, T value, unsigned by, int width = 32) {
    return of_lane(value, LANE - by, width);
}
inline unsigned __ballot_sync(unsigned, bool set) {
    fibers[own].shown[0] = set;
    wait(WARP);
    unsigned votes = 0;
    for (unsigned i = 0, from = own & ~31u; i < 32 && from + i < blockDim.x; i++) {
        votes |= (unsigned)(fibers[from + i].waits != EVER && fibers[from + i].shown[0]) << i;
    }
    wait(WARP);
    return votes;
}

inline int __syncthreads_or(int set);
inline int __syncthreads_and(int set) { return !__syncthreads_or(!set); }
inline int __syncthreads_or(int set) {
    fibers[own].shown[0] = set != 0;
    wait(BLOCK);
    int any = 0;
    for (unsigned i = 0; i < blockDim.x; i++) any |= fibers[i].waits != EVER && fibers[i].shown[0];
    wait(BLOCK);
    return any;
}
inline bool __any_sync(unsigned mask, bool set) { return __ballot_sync(mask, set) != 0; }
inline bool __all_sync(unsigned mask, bool set) { return __ballot_sync(mask, !set) == 0; }

template <class T, class F> T change(T* at, F f) { T old = *at; *at = f(old); return old; }
template <class T> T atomicAdd(T* at, T b) { return change(at, [&](T a) { return (T)(a + b); }); }
template <class T> T atomicMax(T* at, T b) { return change(at, [&](T a) { return max(a, b); }); }
template <class T> T atomicOr(T* at, T b) { return change(at, [&](T a) { return (T)(a | b); }); }
template <class T> T atomicExch(T* at, T b) { return change(at, [&](T) { return b; }); }
template <class T> T atomicCAS(T* at, T from, T to) { return change(at, [&](T a) { return a == from ? to : a; }); }
inline void __threadfence() {}
inline void __threadfence_system() {}

template <class To, class From> To same_bits(From from) { To to; memcpy(&to, &from, sizeof to); return to; }
inline unsigned __float_as_uint(float a) { return same_bits<unsigned>(a); }
inline float __uint_as_float(unsigned a) { return same_bits<float>(a); }
inline float __int_as_float(int a) { return same_bits<float>(a); }
inline long long __double_as_longlong(double a) { return same_bits<long long>(a); }
inline double __longlong_as_double(long long a) { return same_bits<double>(a); }
// Toward zero, saturating.
inline long long __double2ll_rz(double a) {
    return a >= 0x1p63 ? INT64_MAX : a < -0x1p63 ? INT64_MIN : (long long)a;
}
inline long long __double2ll_rn(double a) { return __double2ll_rz(nearbyint(a)); }
inline long long __float2ll_rz(float a) { return __double2ll_rz(a); }
inline float __double2float_rn(double a) { return (float)a; }
inline float __ll2float_rn(long long a) { return (float)a; }
inline double __ll2double_rn(long long a) { return (double)a; }
inline float __uint2float_rn(unsigned a) { return (float)a; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
// For angles of at most a quarter of a half turn.
inline void sincospif(float a, float* sine, float* cosine) {
    *sine = (float)sin(a * 3.14159265358979323846);
    *cosine = (float)cos(a * 3.14159265358979323846);
}
inline void sincospi(double a, double* sine, double* cosine) {
    *sine = (double)sinl(a * 3.14159265358979323846264338L);
    *cosine = (double)cosl(a * 3.14159265358979323846264338L);
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __clz(int a) { return a ? __builtin_clz((unsigned)a) : 32; }
inline int __ffsll(long long a) { return __builtin_ffsll(a); }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline void* __cvta_global_to_generic(size_t address) { return (void*)address; }

// Instructions: the test writes `asm("cvt.f32.f16 ..." : "=f"(a) : "h"(b))` as `cvt_f32_f16(a, b)`.
#define cvt_f32_f16(to, from) (to = (float)same_bits<_Float16>(from))
#define cvt_rn_f16_f32(to, from) (to = same_bits<unsigned short>((_Float16)from))
#define mov_u32(lanes_below) (lanes_below = (1u << (own & 31)) - 1)
#define st_global_v4_u32(address, a, b, c, d) (*(uint4*)(address) = uint4{a, b, c, d})
#define st_global_v2_u32(address, a, b) (*(uint2*)(address) = uint2{a, b})
#define ld_global_nc_L1__no_allocate_v4_u32(a, b, c, d, address) \
    (a = ((uint4*)(address))->x, b = ((uint4*)(address))->y, c = ((uint4*)(address))->z, d = ((uint4*)(address))->w)
