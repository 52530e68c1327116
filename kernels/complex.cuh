// Complex numbers. Same formulas in the same order as `src/kernel/host/complex.rs`; with contraction off,
// sums, products and quotients have the same bits on host and device. Every function has a single return and
// selects parts, not whole numbers: on returns inside branches NVRTC 13.0 does not terminate, and neither does
// NVRTC 12.0 on a choice between two results of functions.

template <class T> struct complex { T re, im; };
typedef complex<float> c64;
typedef complex<double> c128;

INLINE c64 c64_of(u64 w) { return c64{f32_of(w), 0.0f}; }
INLINE c128 c128_of(u64 w) { return c128{f64_of(w), 0.0}; }

INLINE c64 load_c64(u64 b) { return c64{__uint_as_float((u32)b), __uint_as_float((u32)(b >> 32))}; }
INLINE c128 load_c128(u128 b) {
    return c128{__longlong_as_double((i64)b), __longlong_as_double((i64)(b >> 64))};
}
INLINE u64 store_c64(c64 a) { return (u64)__float_as_uint(a.re) | (u64)__float_as_uint(a.im) << 32; }
INLINE u128 store_c128(c128 a) {
    return (u128)(u64)__double_as_longlong(a.re) | (u128)(u64)__double_as_longlong(a.im) << 64;
}
INLINE c64 round_c64(c64 a) { return a; }
INLINE c128 round_c128(c128 a) { return a; }

template <class T> INLINE float to_f32(complex<T> a) { return to_f32(a.re); }
template <class T> INLINE double to_f64(complex<T> a) { return to_f64(a.re); }
template <class T> INLINE i64 to_i64(complex<T> a) { return to_i64(a.re); }
template <class T> INLINE i64 to_bool(complex<T> a) { return a.re != (T)0 || a.im != (T)0; }
template <class A> INLINE c64 to_c64(A a) { return c64{to_f32(a), 0.0f}; }
template <class A> INLINE c128 to_c128(A a) { return c128{to_f64(a), 0.0}; }
template <class T> INLINE c64 to_c64(complex<T> a) { return c64{to_f32(a.re), to_f32(a.im)}; }
template <class T> INLINE c128 to_c128(complex<T> a) { return c128{to_f64(a.re), to_f64(a.im)}; }

// CUDA's functions, overloaded for both widths.
INLINE float part_hypot(float a, float b) { return hypotf(a, b); }
INLINE double part_hypot(double a, double b) { return hypot(a, b); }
INLINE float part_atan2(float a, float b) { return atan2f(a, b); }
INLINE double part_atan2(double a, double b) { return atan2(a, b); }
INLINE float part_exp(float a) { return expf(a); }
INLINE double part_exp(double a) { return exp(a); }
INLINE float part_log(float a) { return logf(a); }
INLINE double part_log(double a) { return log(a); }
INLINE float part_log1p(float a) { return log1pf(a); }
INLINE double part_log1p(double a) { return log1p(a); }
INLINE float part_sin(float a) { return sinf(a); }
INLINE double part_sin(double a) { return sin(a); }
INLINE float part_cos(float a) { return cosf(a); }
INLINE double part_cos(double a) { return cos(a); }
INLINE float part_sinh(float a) { return sinhf(a); }
INLINE double part_sinh(double a) { return sinh(a); }
INLINE float part_cosh(float a) { return coshf(a); }
INLINE double part_cosh(double a) { return cosh(a); }
INLINE float part_asinh(float a) { return asinhf(a); }
INLINE double part_asinh(double a) { return asinh(a); }
INLINE float part_tan(float a) { return tanf(a); }
INLINE double part_tan(double a) { return tan(a); }
INLINE float part_expm1(float a) { return expm1f(a); }
INLINE double part_expm1(double a) { return expm1(a); }
INLINE float part_huge(float) { return 1e5f; }
INLINE double part_huge(double) { return 1e9; }
INLINE float part_flat(float) { return 12.0f; }
INLINE double part_flat(double) { return 24.0; }
INLINE float part_far(float) { return 88.72f; }
INLINE double part_far(double) { return 709.78; }
INLINE float part_top(float) { return 8e37f; }
INLINE double part_top(double) { return 4e307; }
INLINE float part_low(float) { return 1e-30f; }
INLINE double part_low(double) { return 1e-290; }
INLINE float part_sqrt(float a) { return sqrtf(a); }
INLINE double part_sqrt(double a) { return sqrt(a); }
INLINE float part_abs(float a) { return fabsf(a); }
INLINE double part_abs(double a) { return fabs(a); }
INLINE float part_sign(float a, float b) { return copysignf(a, b); }
INLINE double part_sign(double a, double b) { return copysign(a, b); }
INLINE bool part_finite(float a) { return fabsf(a) < INFINITY; }
INLINE bool part_finite(double a) { return fabs(a) < (double)INFINITY; }
INLINE bool part_infinite(float a) { return fabsf(a) == INFINITY; }
INLINE bool part_infinite(double a) { return fabs(a) == (double)INFINITY; }

template <class T> INLINE complex<T> complex_pair(T re, T im) { return complex<T>{re, im}; }
template <class T> INLINE complex<T> complex_choose(bool first, complex<T> a, complex<T> b) {
    return complex<T>{first ? a.re : b.re, first ? a.im : b.im};
}
template <class T> INLINE complex<T> complex_add(complex<T> a, complex<T> b) {
    return complex<T>{a.re + b.re, a.im + b.im};
}
template <class T> INLINE complex<T> complex_sub(complex<T> a, complex<T> b) {
    return complex<T>{a.re - b.re, a.im - b.im};
}
template <class T> INLINE complex<T> complex_neg(complex<T> a) { return complex<T>{-a.re, -a.im}; }
template <class T> INLINE complex<T> complex_conj(complex<T> a) { return complex<T>{a.re, -a.im}; }
template <class T> INLINE complex<T> complex_mul(complex<T> a, complex<T> b) {
    return complex<T>{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T> INLINE complex<T> complex_div(complex<T> a, complex<T> b) {
    const T re = part_abs(b.re), im = part_abs(b.im);
    const bool wide = re >= im, nothing = re == (T)0 & im == (T)0;
    const T major = wide ? b.re : b.im, minor = wide ? b.im : b.re;
    const T ratio = minor / major;
    const T scale = (T)1 / (major + minor * ratio);
    const T along = wide ? a.re + a.im * ratio : a.re * ratio + a.im;
    const T across = wide ? a.im - a.re * ratio : a.im * ratio - a.re;
    return complex<T>{nothing ? a.re / re : along * scale, nothing ? a.im / im : across * scale};
}
template <class T> INLINE complex<T> complex_reciprocal(complex<T> a) {
    return complex_div(complex<T>{(T)1, (T)0}, a);
}
template <class T> INLINE T complex_abs(complex<T> a) { return part_hypot(a.re, a.im); }
template <class T> INLINE T complex_angle(complex<T> a) { return part_atan2(a.im, a.re); }
template <class T> INLINE complex<T> complex_polar(T abs, T angle) {
    return complex<T>{abs * part_cos(angle), abs * part_sin(angle)};
}
// e^x t, also where e^x alone overflows; 0 where t is 0.
template <class T> INLINE T part_grown(T x, T t) {
    const bool far = x > part_far(x);
    const T size = part_exp(far ? (T)0.5 * x : x);
    const T grown = size * t;
    return t == (T)0 ? t : far ? grown * size : grown;
}
// cosh(x) t and sinh(x) t, in the same way; sinh(0) t is 0 for every t. Far from 0, cosh(x) is 2 cosh(x / 2)^2.
template <class T> INLINE T part_cosh_of(T x, T t) {
    const bool far = part_abs(x) > part_far(x);
    const T size = part_cosh(far ? (T)0.5 * x : x);
    return t == (T)0 ? t : far ? (T)2 * (size * t * size) : t * size;
}
template <class T> INLINE T part_sinh_of(T x, T t) {
    const bool far = part_abs(x) > part_far(x);
    const T size = part_sinh(far ? (T)0.5 * x : x), one = part_sign((T)1, x);
    const T grown = far ? (T)2 * (size * t * part_abs(size)) : t * size;
    return t == (T)0 ? one * t : x == (T)0 ? (t < (T)0 ? -x : x) : grown;
}
// The cosine of an angle that turns e^x: of no angle 1 where x is infinite.
template <class T> INLINE T part_turned(T x, T angle) {
    return part_infinite(x) & !part_finite(angle) ? (T)1 : part_cos(angle);
}
template <class T> INLINE complex<T> complex_exp(complex<T> a) {
    const bool nothing = part_infinite(a.re) & a.re < (T)0 & !part_finite(a.im);
    const T re = part_grown(a.re, part_turned(a.re, a.im)), im = part_grown(a.re, part_sin(a.im));
    return complex<T>{re, nothing ? (T)0 : im};
}
template <class T> INLINE complex<T> complex_log(complex<T> a) {
    const T x = part_abs(a.re), y = part_abs(a.im);
    const T most = x < y ? y : x, least = x < y ? x : y;
    const bool near = most > (T)0.5 && most < (T)2;
    // Scaled where the magnitude overflows or has few digits.
    const bool huge = most > part_top(most), small = most < part_low(most);
    const T by = huge ? (T)0.25 : small ? (T)18446744073709551616.0 : (T)1;
    const T off = huge ? (T)-1.38629436111989061883 : small ? (T)44.3614195558364998027 : (T)0;
    const T far = part_log(part_hypot(by * a.re, by * a.im)) - off;
    const T size = near ? (T)0.5 * part_log1p((most - (T)1) * (most + (T)1) + least * least) : far;
    return complex<T>{size, complex_angle(a)};
}
template <class T> INLINE complex<T> complex_sqrt(complex<T> a) {
    const bool nothing = a.re == (T)0 & a.im == (T)0, endless = part_infinite(a.im), right = a.re >= (T)0;
    // Scaled where the magnitude overflows or has few digits.
    const T most = part_abs(a.re) < part_abs(a.im) ? part_abs(a.im) : part_abs(a.re);
    const bool huge = most > part_top(most), small = most < part_low(most);
    const T by = huge ? (T)0.25 : small ? (T)18446744073709551616.0 : (T)1;
    const T scale = huge ? (T)2 : small ? (T)0.00000000023283064365386962890625 : (T)1;
    const T x = by * a.re, y = by * a.im;
    const T size = part_sqrt((T)0.5 * part_abs(x) + (T)0.5 * part_hypot(x, y));
    const T re = scale * (right ? size : part_abs(y) / ((T)2 * size));
    const T im = scale * (right ? y / ((T)2 * size) : part_sign(size, y));
    return complex<T>{nothing ? (T)0 : endless ? part_abs(a.im) : re, nothing | endless ? a.im : im};
}
template <class T> INLINE complex<T> complex_pow(complex<T> a, complex<T> b) {
    const bool one = b.re == (T)0 & b.im == (T)0 | a.re == (T)1 & a.im == (T)0;
    const bool same = b.re == (T)1 & b.im == (T)0;
    const bool nothing = a.re == (T)0 & a.im == (T)0 & b.re > (T)0;
    const complex<T> power = complex_exp(complex_mul(b, complex_log(a)));
    const T re = one ? (T)1 : same ? a.re : nothing ? (T)0 : power.re;
    return complex<T>{re, one ? (T)0 : same ? a.im : nothing ? (T)0 : power.im};
}
// The exponent multiplies the error of the logarithm: `c64` computes in `c128`.
INLINE c64 complex_pow(c64 a, c64 b) {
    const c128 power = complex_pow(to_c128(a), to_c128(b));
    return c64{(float)power.re, (float)power.im};
}
template <class T> INLINE complex<T> complex_sin(complex<T> a) {
    return complex<T>{part_cosh_of(a.im, part_sin(a.re)), part_sinh_of(a.im, part_turned(a.im, a.re))};
}
template <class T> INLINE complex<T> complex_cos(complex<T> a) {
    return complex<T>{part_cosh_of(a.im, part_turned(a.im, a.re)), -part_sinh_of(a.im, part_sin(a.re))};
}
template <class T> INLINE complex<T> complex_sinh(complex<T> a) {
    return complex<T>{part_sinh_of(a.re, part_turned(a.re, a.im)), part_cosh_of(a.re, part_sin(a.im))};
}
template <class T> INLINE complex<T> complex_cosh(complex<T> a) {
    return complex<T>{part_cosh_of(a.re, part_turned(a.re, a.im)), part_sinh_of(a.re, part_sin(a.im))};
}
template <class T> INLINE complex<T> complex_tanh(complex<T> a) {
    const T size = part_abs(a.re);
    const bool flat = size > part_flat(a.re);
    const bool lost = part_finite(a.re) & !part_finite(a.im), real = a.im == (T)0;
    const T small = (T)4 * part_exp((T)-2 * size);
    const T end = part_finite(a.im) ? part_sin(a.im) * part_cos(a.im) * small : (T)0;
    const T t = part_tan(a.im), s = part_sinh(a.re);
    const T beta = (T)1 + t * t, rho = part_sqrt((T)1 + s * s);
    const T scale = (T)1 / ((T)1 + beta * s * s);
    const bool steep = part_infinite(t);
    const T re = flat ? part_sign((T)1, a.re) : steep ? rho / s : beta * rho * s * scale;
    const T im = flat ? end : steep ? (T)1 / t : t * scale;
    const T none = a.im - a.im;
    return complex<T>{lost ? (a.re == (T)0 ? a.re : none) : re, lost ? none : real ? a.im : im};
}
template <class T> INLINE complex<T> complex_tan(complex<T> a) {
    const complex<T> b = complex_tanh(complex<T>{-a.im, a.re});
    return complex<T>{b.im, -b.re};
}
// By e^a on the left and e^-a on the right, so that neither overflows.
template <class T> INLINE complex<T> complex_sigmoid(complex<T> a) {
    const bool left = a.re < (T)0;
    const complex<T> one = complex<T>{(T)1, (T)0}, size = complex_exp(complex_choose(left, a, complex_neg(a)));
    return complex_div(complex_choose(left, size, one), complex_add(one, size));
}
template <class T> INLINE complex<T> complex_silu(complex<T> a) {
    const bool left = a.re < (T)0;
    const complex<T> one = complex<T>{(T)1, (T)0}, size = complex_exp(complex_choose(left, a, complex_neg(a)));
    return complex_div(complex_choose(left, complex_mul(a, size), a), complex_add(one, size));
}
template <class T> INLINE complex<T> complex_softsign(complex<T> a) {
    const T scale = (T)1 + complex_abs(a);
    return complex<T>{a.re / scale, a.im / scale};
}
template <class T> INLINE complex<T> complex_expm1(complex<T> a) {
    const complex<T> whole = complex_exp(a);
    const T half = part_sin((T)0.5 * a.im);
    const T re = part_expm1(a.re) * part_cos(a.im) - (T)2 * half * half;
    return complex<T>{part_abs(a.re) > part_far(a.re) ? whole.re - (T)1 : re, whole.im};
}
template <class T> INLINE complex<T> complex_exp2(complex<T> a) {
    return complex_exp(complex<T>{a.re * (T)0.69314718055994530942, a.im * (T)0.69314718055994530942});
}
template <class T> INLINE complex<T> complex_log2(complex<T> a) {
    const complex<T> b = complex_log(a);
    return complex<T>{b.re / (T)0.69314718055994530942, b.im / (T)0.69314718055994530942};
}
template <class T> INLINE complex<T> complex_log10(complex<T> a) {
    const complex<T> b = complex_log(a);
    return complex<T>{b.re / (T)2.30258509299404568402, b.im / (T)2.30258509299404568402};
}
template <class T> INLINE complex<T> complex_log1p(complex<T> a) {
    const complex<T> far = complex_log(complex<T>{(T)1 + a.re, a.im});
    const bool near = part_abs(a.re) < (T)0.5 && part_abs(a.im) < (T)0.5;
    const T size = (T)0.5 * part_log1p(a.re * (a.re + (T)2) + a.im * a.im);
    return complex<T>{near ? size : far.re, far.im};
}
template <class T> INLINE i64 complex_nan(complex<T> a) { return a.re != a.re || a.im != a.im; }
template <class T> INLINE complex<T> complex_log_add_exp(complex<T> a, complex<T> b) {
    const bool less = a.re < b.re;
    const complex<T> low = complex_choose(less, a, b), high = complex_choose(less, b, a);
    const bool odd = complex_nan(a) || complex_nan(b);
    const bool ends = part_infinite(low.re) && low.re == high.re, nothing = low.re < (T)0;
    const complex<T> sum = complex_log(complex_add(complex_exp(low), complex_exp(high)));
    const complex<T> plain = complex_add(complex_log1p(complex_exp(complex_sub(low, high))), high);
    const T spoilt = b.re + b.im;
    const T re = odd ? a.re + spoilt : !ends ? plain.re : nothing ? low.re : sum.re;
    const T im = odd ? a.im + spoilt : !ends ? plain.im : nothing ? low.im : sum.im;
    return complex<T>{re, im};
}
template <class T> INLINE T complex_log_of_twice(complex<T> a) {
    const T two = (T)0.69314718055994530942;
    return part_log(part_hypot((T)0.5 * a.re, (T)0.5 * a.im)) + two + two;
}
template <class T> INLINE bool complex_huge(complex<T> a) {
    return part_abs(a.re) > part_huge(a.re) || part_abs(a.im) > part_huge(a.im);
}
template <class T> INLINE complex<T> complex_asin(complex<T> a) {
    const bool huge = complex_huge(a);
    const complex<T> less = complex_sqrt(complex<T>{(T)1 - a.re, -a.im});
    const complex<T> more = complex_sqrt(complex<T>{(T)1 + a.re, a.im});
    const T angle = part_atan2(a.re, huge ? part_abs(a.im) : less.re * more.re - less.im * more.im);
    const T re = a.re == (T)0 ? a.re : angle;
    const T im = part_asinh(less.re * more.im - less.im * more.re);
    return complex<T>{re, huge ? part_sign(complex_log_of_twice(a), a.im) : im};
}
template <class T> INLINE complex<T> complex_acos(complex<T> a) {
    const bool huge = complex_huge(a);
    const complex<T> less = complex_sqrt(complex<T>{(T)1 - a.re, -a.im});
    const complex<T> more = complex_sqrt(complex<T>{(T)1 + a.re, a.im});
    const T angle = huge ? part_atan2(part_abs(a.im), a.re) : (T)2 * part_atan2(less.re, more.re);
    const T re = a.re == (T)0 ? part_atan2((T)1, (T)0) : angle;
    const T im = part_asinh(more.re * less.im - more.im * less.re);
    return complex<T>{re, huge ? part_sign(complex_log_of_twice(a), -a.im) : im};
}
template <class T> INLINE complex<T> complex_asinh(complex<T> a) {
    const complex<T> b = complex_asin(complex<T>{-a.im, a.re});
    return complex<T>{b.im, -b.re};
}
template <class T> INLINE complex<T> complex_acosh(complex<T> a) {
    const bool huge = complex_huge(a);
    const complex<T> less = complex_sqrt(complex<T>{a.re - (T)1, a.im});
    const complex<T> more = complex_sqrt(complex<T>{a.re + (T)1, a.im});
    const T re = part_asinh(less.re * more.re + less.im * more.im);
    const T angle = huge ? part_atan2(a.im, a.re) : (T)2 * part_atan2(less.im, more.re);
    const T im = a.re == (T)0 ? part_sign(part_atan2((T)1, (T)0), a.im) : angle;
    return complex<T>{huge ? complex_log_of_twice(a) : re, im};
}
template <class T> INLINE complex<T> complex_atanh(complex<T> a) {
    const bool huge = complex_huge(a), lost = a.im != a.im || (a.re != a.re && !part_infinite(a.im));
    const T size = part_hypot(a.re, a.im);
    const T far = part_sign(part_infinite(size) ? (T)0 : a.re / size / size, a.re);
    // By the magnitude: near -1 the logarithm would cancel.
    const T along = part_abs(a.re), less = (T)1 - along, square = a.im * a.im, angle = part_abs(a.im);
    const T ratio = part_log1p((T)4 * along / (less * less + square)) / (T)4;
    const T pole = (T)0.5 * ((T)0.69314718055994530942 - part_log(angle));
    const T re = part_sign(less == (T)0 & angle < (T)1e-10 ? pole : ratio, a.re);
    const T im = (T)0.5 * part_atan2((T)2 * a.im, less * ((T)1 + along) - square);
    const T end = huge ? part_sign(part_atan2((T)1, (T)0), a.im) : im;
    return complex<T>{a.re == (T)0 ? a.re : huge ? far : re, lost ? a.re + a.im : end};
}
template <class T> INLINE complex<T> complex_atan(complex<T> a) {
    const complex<T> b = complex_atanh(complex<T>{-a.im, a.re});
    return complex<T>{b.im, -b.re};
}
template <class T> INLINE T part_to_num(T a, T nan, T above, T below) {
    return a != a ? nan : !part_infinite(a) ? a : a > (T)0 ? above : below;
}
template <class T> INLINE complex<T> complex_nan_to_num(complex<T> a, T nan, T above, T below) {
    return complex<T>{part_to_num(a.re, nan, above, below), part_to_num(a.im, nan, above, below)};
}
template <class T> INLINE complex<T> complex_lerp(complex<T> a, complex<T> b, complex<T> c) {
    const complex<T> way = complex_sub(b, a);
    const complex<T> early = complex_add(a, complex_mul(c, way));
    const complex<T> late = complex_sub(b, complex_mul(way, complex_sub(complex<T>{(T)1, (T)0}, c)));
    const bool near = complex_abs(c) < (T)0.5;
    return complex<T>{near ? early.re : late.re, near ? early.im : late.im};
}
template <class T> INLINE i64 complex_equal(complex<T> a, complex<T> b) {
    return a.re == b.re && a.im == b.im;
}
template <class T> INLINE i64 complex_finite(complex<T> a) {
    return part_finite(a.re) && part_finite(a.im);
}
template <class T> INLINE i64 complex_infinite(complex<T> a) {
    return part_infinite(a.re) || part_infinite(a.im);
}
template <class T> INLINE i64 complex_close(complex<T> a, complex<T> b, T relative, T absolute) {
    const T apart = complex_abs(complex_sub(a, b));
    const T most = absolute + complex_abs(complex<T>{relative * b.re, relative * b.im});
    return complex_equal(a, b) || (part_finite(apart) && apart <= most);
}
