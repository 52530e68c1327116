// Sums of floats that do not depend on their order: the note in kernel/kinds/scatter/sums.rs.
//
// A target's top is the greatest exponent, as stored and at least 1, of the numbers to add; 0 where there are none. The
// highest bits say that a number is not finite.

#define PLUS_INFINITY (1u << 29)
#define MINUS_INFINITY (1u << 30)
#define NOT_A_NUMBER (1u << 31)

INLINE u32 top_of(float a) {
    const u32 exponent = __float_as_uint(a) >> 23 & 255;
    if (exponent == 255) return a != a ? NOT_A_NUMBER : a < 0 ? MINUS_INFINITY : PLUS_INFINITY;
    return exponent > 1 ? exponent : 1;
}
INLINE u32 higher(u32 a, u32 b) {
    if ((a | b) >= PLUS_INFINITY) return (a | b) & ~255u;
    return a > b ? a : b;
}
// `held` is a value that the top had earlier.
INLINE void raise_top(u32* top, u32 held, u32 a) {
    if (a >= PLUS_INFINITY) {
        atomicOr(top, a);
    } else if (a > held) {
        atomicMax(top, a);
    }
}
INLINE double power_of_two(i32 exponent) { return __longlong_as_double((i64)((u64)(1023 + exponent) << 52)); }
// A number as a multiple of the target's unit. `room` is the number of bits of the greatest one.
INLINE i64 units(float a, u32 top, u32 room) {
    return __double2ll_rn((double)a * power_of_two((i32)(room + 126) - (i32)top));
}
INLINE float sum_of(i64 units, u32 top, u32 room) {
    if (top >= PLUS_INFINITY) {
        const u32 both = PLUS_INFINITY | MINUS_INFINITY;
        if (top >= NOT_A_NUMBER || (top & both) == both) return NAN;
        return (top & PLUS_INFINITY) ? INFINITY : -INFINITY;
    }
    return __double2float_rn(__ll2double_rn(units) * power_of_two((i32)top - (i32)(room + 126)));
}
