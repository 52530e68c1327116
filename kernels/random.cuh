// Distributions drawn from Philox 4x32-10, equal in every bit to `src/kernel/philox.rs`: only integer
// arithmetic and operations that IEEE 754 rounds exactly. `at` is the element's position in its draw.

INLINE Philox philox_block(i64 seed, i64 offset, u64 number) {
    return philox((u32)offset, (u32)((u64)offset >> 32), (u32)number, (u32)(number >> 32), (u32)seed,
                  (u32)((u64)seed >> 32));
}
INLINE u64 joined(u32 low, u32 high) { return (u64)low | (u64)high << 32; }

INLINE u32 random_word(i64 at, i64 seed, i64 offset) {
    const Philox p = philox_block(seed, offset, (u64)at >> 2);
    const u32 even = at & 2 ? p.z : p.x, odd = at & 2 ? p.w : p.y;
    return at & 1 ? odd : even;
}
INLINE u64 random_wide(i64 at, i64 seed, i64 offset) {
    const Philox p = philox_block(seed, offset, (u64)at >> 1);
    return at & 1 ? joined(p.z, p.w) : joined(p.x, p.y);
}

// --- Uniform -----------------------------------------------------------------------------------------

INLINE float random_uniform(i64 at, i64 seed, i64 offset, i64 digits) {
    const float unit = __uint_as_float((u32)(127 - digits) << 23);
    return (float)(i32)(random_word(at, seed, offset) >> (u32)(32 - digits)) * unit;
}
INLINE double random_uniform_wide(i64 at, i64 seed, i64 offset) {
    return (double)(i64)(random_wide(at, seed, offset) >> 11) * (1.0 / 9007199254740992.0);
}
INLINE i64 random_below(i64 at, i64 seed, i64 offset, i64 range) {
    const u64 word = random_wide(at, seed, offset);
    return range == 0 ? (i64)word : (i64)__umul64hi(word, (u64)range);
}

// --- Logarithms --------------------------------------------------------------------------------------

INLINE float random_ln(u32 word) {
    const float x = __fmaf_rn(__uint2float_rn(word), 2.3283064e-10f, 1.1641532e-10f);
    const u32 b = __float_as_uint(x), biased = (b + (0x3f800000u - 0x3f3504f3u)) >> 23;
    const float f = __uint_as_float(b - (biased << 23) + 0x3f800000u) - 1.0f;
    float p = __fmaf_rn(f, __fmaf_rn(f, 0.08734932f, -0.1430755f), 0.14917956f);
    p = __fmaf_rn(f, __fmaf_rn(f, __fmaf_rn(f, p, -0.16570504f), 0.19962073f), -0.25001755f);
    const float part = __fmaf_rn(f * f, __fmaf_rn(f, __fmaf_rn(f, p, 0.3333395f), -0.4999999f), f);
    return __fmaf_rn(__uint_as_float(0x4b000000u | biased) - 8388735.0f, 0.693147182464599609375f, part);
}
INLINE double random_ln_wide(u64 word) {
    const double x = (double)(i64)((word >> 11) + 1) * (1.0 / 9007199254740992.0);
    const u64 b = (u64)__double_as_longlong(x);
    const u64 biased = (b + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull)) >> 52;
    const double m = __longlong_as_double((i64)(b - (biased << 52) + 0x3ff0000000000000ull));
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    const double p =
        0.6666666666658716 + z * (0.400000000523021 + z * (0.2857141712483306 + z * (0.22223372057090848 +
        z * (0.18123629887807904 + z * 0.16819980703975132))));
    const double part = 2.0 * s + (s * z) * p;
    return (__longlong_as_double((i64)(0x4330000000000000ull | biased)) - 4503599627371519.0) * 0.69314718055994530942 +
        part;
}

INLINE float random_exponential(i64 at, i64 seed, i64 offset) { return -random_ln(random_word(at, seed, offset)); }
INLINE double random_exponential_wide(i64 at, i64 seed, i64 offset) {
    return -random_ln_wide(random_wide(at, seed, offset));
}

// --- Normal ------------------------------------------------------------------------------------------

INLINE float random_normal(i64 at, i64 seed, i64 offset) {
    const Philox p = philox_block(seed, offset, (u64)at >> 2);
    const u32 radius = at & 2 ? p.z : p.x, angle = at & 2 ? p.w : p.y;
    const u32 turn = (angle >> 30) + ((at & 1) == 0);
    const float t = (__uint_as_float(0x3f800000u | (angle << 2) >> 9) - 1.5f) * 1.57079637050628662109375f;
    const float z = t * t;
    const float sine =
        __fmaf_rn(t * z, __fmaf_rn(z, __fmaf_rn(z, -0.00019517267f, 0.008332178f), -0.16666655f), t);
    float cosine = __fmaf_rn(z, 2.439041e-5f, -0.0013886764f);
    cosine = __fmaf_rn(z, __fmaf_rn(z, __fmaf_rn(z, cosine, 0.041666623f), -0.5f), 1.0f);
    const float size = turn & 1 ? cosine : sine;
    return sqrtf(-2.0f * random_ln(radius)) * __uint_as_float(__float_as_uint(size) ^ ((turn & 2) << 30));
}
INLINE double random_normal_wide(i64 at, i64 seed, i64 offset) {
    const Philox p = philox_block(seed, offset, (u64)at >> 1);
    const u64 radius = joined(p.x, p.y), angle = joined(p.z, p.w);
    const u64 turn = (angle >> 62) + ((at & 1) == 0);
    const double t =
        (__longlong_as_double((i64)(0x3ff0000000000000ull | (angle << 2) >> 12)) - 1.5) * 1.57079632679489661923;
    const double z = t * t;
    const double sine = t + (t * z) * (-0.16666666666666632 + z * (0.008333333333322418 +
        z * (-0.00019841269829812383 + z * (2.755731369357332e-06 + z * (-2.5050758384416463e-08 +
        z * 1.5896811798599904e-10)))));
    const double cosine = 1.0 + z * (-0.49999999999999484 + z * (0.041666666666503135 +
        z * (-0.0013888888871720837 + z * (2.4801579014112012e-05 + z * (-2.7555295977859093e-07 +
        z * 2.063356618585863e-09)))));
    const double size = turn & 1 ? cosine : sine;
    return sqrt(-2.0 * random_ln_wide(radius)) * (turn & 2 ? -size : size);
}
