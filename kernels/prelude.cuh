// The prelude of every kernel: types, conversions between memory and registers, index arithmetic, random
// bits. Compiled without any header.
//
// Registers are float, double or i64; memory holds bits (u8, u16, u32, u64,
// u128). Complex registers and their dtypes are in complex.cuh. For each dtype D:
//   load_D(bits)   -> register
//   store_D(value) -> bits          (the register is already rounded)
//   round_D(value) -> register      (exactly as if stored and loaded)

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
// Sixteen bytes as a scalar: NVRTC 13.0 does not terminate on a struct stored from a loop.
typedef unsigned __int128 u128;

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fc00000)
#endif
#define I64_MAX 0x7fffffffffffffffLL
#define FULL_WARP 0xffffffffu
#define INLINE __device__ __forceinline__

// Device memory at an address. Addresses are passed as numbers; the cast tells the compiler the address
// space.
template <class T> INLINE T* memory(u64 address) {
    return static_cast<T*>(__cvta_global_to_generic((size_t)address));
}

// --- Bits ------------------------------------------------------------------------------------

INLINE u32 bits(float a) { return __float_as_uint(a); }
INLINE u64 bits(double a) { return (u64)__double_as_longlong(a); }
INLINE u64 bits(i64 a) { return (u64)a; }
INLINE float f32_of(u64 w) { return __uint_as_float((u32)w); }
INLINE double f64_of(u64 w) { return __longlong_as_double((i64)w); }
INLINE i64 i64_of(u64 w) { return (i64)w; }

// --- Halves ----------------------------------------------------------------------------------

// The conversion instructions give every nan one pattern without a sign. The sign bit is put back, as the host keeps it.
INLINE float load_f16(u16 b) {
    float a;
    asm("cvt.f32.f16 %0, %1;" : "=f"(a) : "h"(b));
    return __uint_as_float(__float_as_uint(a) | ((u32)b & 0x8000u) << 16);
}
INLINE u16 store_f16(float a) {
    u16 b;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(a));
    return (u16)(b | (__float_as_uint(a) >> 16 & 0x8000u));
}
INLINE float load_bf16(u16 b) { return __uint_as_float((u32)b << 16); }
INLINE u16 store_bf16(float a) { return (u16)(__float_as_uint(a) >> 16); }
INLINE float round_bf16(float a) {
    const u32 x = __float_as_uint(a);
#if __CUDA_ARCH__ >= 800
    // Rounds into the upper half: no shift. The sign is put back for nan.
    u32 b;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(b) : "f"(a), "f"(0.0f));
    return __uint_as_float(b | (x & 0x80000000u));
#else
    // Round to nearest, ties to even. Like the instruction, drops the payload of a nan, but keeps its sign.
    const u32 rounded = x + 0x7fffu + ((x >> 16) & 1u);
    return __uint_as_float(a != a ? (x & 0x80000000u) | 0x7fff0000u : rounded & 0xffff0000u);
#endif
}

// --- Dtypes ----------------------------------------------------------------------------------

INLINE i64 load_bool(u8 b) { return b != 0; }
@INTEGER_LOADS@INLINE float load_f32(u32 b) { return __uint_as_float(b); }
INLINE double load_f64(u64 b) { return __longlong_as_double((i64)b); }

INLINE u8 store_bool(i64 a) { return a != 0; }
@INTEGER_STORES@INLINE u32 store_f32(float a) { return __float_as_uint(a); }
INLINE u64 store_f64(double a) { return (u64)__double_as_longlong(a); }

INLINE i64 round_bool(i64 a) { return a != 0; }
@INTEGER_ROUNDS@INLINE float round_f16(float a) {
    u16 b;
    float rounded;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(a));
    asm("cvt.f32.f16 %0, %1;" : "=f"(rounded) : "h"(b));
    return __uint_as_float((__float_as_uint(rounded) & 0x7fffffffu) | (__float_as_uint(a) & 0x80000000u));
}
INLINE float round_f32(float a) { return a; }
INLINE double round_f64(double a) { return a; }

// Casts between classes. To an integer: toward zero, saturating, nan is 0. To bool: non-zero.
INLINE float to_f32(float a) { return a; }
INLINE float to_f32(double a) { return __double2float_rn(a); }
INLINE float to_f32(i64 a) { return __ll2float_rn(a); }
INLINE double to_f64(float a) { return a; }
INLINE double to_f64(double a) { return a; }
INLINE double to_f64(i64 a) { return __ll2double_rn(a); }
INLINE i64 to_i64(float a) { return a != a ? 0 : __float2ll_rz(a); }
INLINE i64 to_i64(double a) { return a != a ? 0 : __double2ll_rz(a); }
INLINE i64 to_i64(i64 a) { return a; }
INLINE i64 to_bool(float a) { return a != 0.0f; }
INLINE i64 to_bool(double a) { return a != 0.0; }
INLINE i64 to_bool(i64 a) { return a != 0; }

INLINE bool is_nan(float a) { return a != a; }
INLINE bool is_nan(double a) { return a != a; }
INLINE bool is_nan(i64) { return false; }

// --- Units: WORDS x 4 bytes, moved with the widest instruction that fits -------------------------

template <int WORDS> INLINE void load_words(u32 (&w)[WORDS], u64 address) {
    if constexpr (WORDS % 4 == 0) {
#pragma unroll
        for (int i = 0; i < WORDS / 4; i++) {
            const uint4 v = memory<const uint4>(address)[i];
            w[4 * i] = v.x; w[4 * i + 1] = v.y; w[4 * i + 2] = v.z; w[4 * i + 3] = v.w;
        }
    } else if constexpr (WORDS == 2) {
        const uint2 v = *memory<const uint2>(address);
        w[0] = v.x; w[1] = v.y;
    } else {
        w[0] = *memory<const u32>(address);
    }
}
// Inline assembly keeps the store whole: the compiler would split a vector store into words.
template <int WORDS> INLINE void store_words(const u32 (&w)[WORDS], u64 address) {
    if constexpr (WORDS % 4 == 0) {
#pragma unroll
        for (int i = 0; i < WORDS / 4; i++) {
            asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address + 16 * i), "r"(w[4 * i]),
                         "r"(w[4 * i + 1]), "r"(w[4 * i + 2]), "r"(w[4 * i + 3])
                         : "memory");
        }
    } else if constexpr (WORDS == 2) {
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(w[0]), "r"(w[1]) : "memory");
    } else {
        *memory<u32>(address) = w[0];
    }
}
// Reads and writes element j of a unit (units are cleared before narrow elements are written).
template <class B, int WORDS> INLINE B take(const u32 (&w)[WORDS], int j) {
    if constexpr (sizeof(B) == 1) return (B)(w[j / 4] >> (8 * (j % 4)));
    else if constexpr (sizeof(B) == 2) return (B)(w[j / 2] >> (16 * (j % 2)));
    else if constexpr (sizeof(B) == 4) return (B)w[j];
    else if constexpr (sizeof(B) == 8) return (B)((u64)w[2 * j] | (u64)w[2 * j + 1] << 32);
    else return (B)w[4 * j] | (B)w[4 * j + 1] << 32 | (B)w[4 * j + 2] << 64 | (B)w[4 * j + 3] << 96;
}
template <class B, int WORDS> INLINE void put(u32 (&w)[WORDS], int j, B b) {
    if constexpr (sizeof(B) == 1) w[j / 4] |= (u32)b << (8 * (j % 4));
    else if constexpr (sizeof(B) == 2) w[j / 2] |= (u32)b << (16 * (j % 2));
    else if constexpr (sizeof(B) == 4) w[j] = (u32)b;
    else if constexpr (sizeof(B) == 8) { w[2 * j] = (u32)b; w[2 * j + 1] = (u32)((u64)b >> 32); }
    else {
        w[4 * j] = (u32)b; w[4 * j + 1] = (u32)(b >> 32);
        w[4 * j + 2] = (u32)(b >> 64); w[4 * j + 3] = (u32)(b >> 96);
    }
}

// --- Index arithmetic --------------------------------------------------------------------------

// i / d for i < 2^31; `magic` holds the multiplier in its low half and the shift in its high half.
INLINE u32 quotient(u32 i, u64, u64 magic) { return (__umulhi(i, (u32)magic) + i) >> (u32)(magic >> 32); }
INLINE u64 quotient(u64 i, u64 extent, u64) { return i / extent; }

// --- Faults ------------------------------------------------------------------------------------

// The fault record of a device. Among the faults of the first launch that reports, it keeps the one with the
// lowest position. The host reads a copy in its own memory; taking it starts a new epoch with an empty
// record.
struct FaultCopy {
    u32 epoch, tag;
    u64 position;
    i64 value;
};
struct FaultRecord {
    u32 lock, epoch, tag, graph_epoch;
    u64 position;
    u64 copy;
};
// `stamp` holds the launch's tag in its low half and the epoch in its high half.
INLINE void report_fault(u64 record, u64 stamp, u64 position, i64 value) {
    volatile FaultRecord* held = memory<volatile FaultRecord>(record);
    const u32 tag = (u32)stamp;
    const u32 epoch = stamp >> 32 ? (u32)(stamp >> 32) : held->graph_epoch;
    u32* lock = memory<u32>(record);
    do {
        // Most threads have nothing to add and must not wait for the lock.
        if (held->epoch == epoch) {
            __threadfence();
            if (held->tag != tag || held->position <= position) return;
        }
    } while (atomicCAS(lock, 0u, 1u) != 0u);
    __threadfence();
    if (held->epoch != epoch || (held->tag == tag && position < held->position)) {
        held->tag = tag;
        held->position = position;
        __threadfence();
        held->epoch = epoch;
        volatile FaultCopy* copy = memory<volatile FaultCopy>(held->copy);
        copy->tag = tag;
        copy->position = position;
        copy->value = value;
        __threadfence_system();
        copy->epoch = epoch;
    }
    __threadfence();
    atomicExch(lock, 0u);
}

// --- Random bits: Philox 4x32-10 (Salmon et al., 2011) -------------------------------------------

struct Philox { u32 x, y, z, w; };
INLINE Philox philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
#pragma unroll
    for (int round = 0; round < 10; round++) {
        // Computed in halves: for whole products the compiler emits long 64-bit multiplications.
        const u32 a_low = 0xd2511f53u * c0, a_high = __umulhi(0xd2511f53u, c0);
        const u32 b_low = 0xcd9e8d57u * c2, b_high = __umulhi(0xcd9e8d57u, c2);
        const u32 n0 = b_high ^ c1 ^ k0, n2 = a_high ^ c3 ^ k1;
        c1 = b_low;
        c3 = a_low;
        c0 = n0;
        c2 = n2;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return Philox{c0, c1, c2, c3};
}
