// Complex numbers. Same formulas in the same order as `src/kernel/host/complex.rs`; with contraction off,
// sums, products and quotients have the same bits on host and device. Every function has a single return and
// uses selects: on returns inside branches NVRTC 13.0 does not terminate.

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
template <class T> INLINE complex<T> complex_exp(complex<T> a) {
    const T size = part_exp(a.re);
    const complex<T> turned = complex_polar(size, a.im);
    const bool real = a.im == (T)0;
    return complex<T>{real ? size : turned.re, real ? a.im : turned.im};
}
template <class T> INLINE complex<T> complex_log(complex<T> a) {
    const T x = part_abs(a.re), y = part_abs(a.im);
    const T most = x < y ? y : x, least = x < y ? x : y;
    const bool near = most > (T)0.5 && most < (T)2;
    const T size = near ? (T)0.5 * part_log1p((most - (T)1) * (most + (T)1) + least * least)
                        : part_log(part_hypot(a.re, a.im));
    return complex<T>{size, complex_angle(a)};
}
template <class T> INLINE complex<T> complex_sqrt(complex<T> a) {
    const bool nothing = a.re == (T)0 & a.im == (T)0, endless = part_infinite(a.im), right = a.re >= (T)0;
    const T size = part_sqrt((T)0.5 * part_abs(a.re) + (T)0.5 * part_hypot(a.re, a.im));
    const T re = right ? size : part_abs(a.im) / ((T)2 * size);
    const T im = right ? a.im / ((T)2 * size) : part_sign(size, a.im);
    return complex<T>{nothing ? (T)0 : endless ? part_abs(a.im) : re, nothing | endless ? a.im : im};
}
template <class T> INLINE complex<T> complex_pow(complex<T> a, complex<T> b) {
    const bool one = b.re == (T)0 & b.im == (T)0;
    const bool nothing = a.re == (T)0 & a.im == (T)0 & b.re > (T)0;
    const complex<T> power = complex_exp(complex_mul(b, complex_log(a)));
    return complex<T>{one ? (T)1 : nothing ? (T)0 : power.re, one | nothing ? (T)0 : power.im};
}
// The exponent multiplies the error of the logarithm: `c64` computes in `c128`.
INLINE c64 complex_pow(c64 a, c64 b) {
    const c128 power = complex_pow(to_c128(a), to_c128(b));
    return c64{(float)power.re, (float)power.im};
}
template <class T> INLINE complex<T> complex_sin(complex<T> a) {
    return complex<T>{part_sin(a.re) * part_cosh(a.im), part_cos(a.re) * part_sinh(a.im)};
}
template <class T> INLINE complex<T> complex_cos(complex<T> a) {
    return complex<T>{part_cos(a.re) * part_cosh(a.im), -(part_sin(a.re) * part_sinh(a.im))};
}
template <class T> INLINE complex<T> complex_sinh(complex<T> a) {
    return complex<T>{part_sinh(a.re) * part_cos(a.im), part_cosh(a.re) * part_sin(a.im)};
}
template <class T> INLINE complex<T> complex_cosh(complex<T> a) {
    return complex<T>{part_cosh(a.re) * part_cos(a.im), part_sinh(a.re) * part_sin(a.im)};
}
template <class T> INLINE complex<T> complex_tanh(complex<T> a) {
    const T size = part_abs(a.re);
    const bool flat = size > part_flat(a.re);
    const T small = (T)4 * part_exp((T)-2 * size);
    const T end = part_finite(a.im) ? part_sin(a.im) * part_cos(a.im) * small : (T)0;
    const T t = part_tan(a.im), s = part_sinh(a.re);
    const T beta = (T)1 + t * t, rho = part_sqrt((T)1 + s * s);
    const T scale = (T)1 / ((T)1 + beta * s * s);
    const bool steep = part_infinite(t);
    const T re = steep ? rho / s : beta * rho * s * scale, im = steep ? (T)1 / t : t * scale;
    return complex<T>{flat ? part_sign((T)1, a.re) : re, flat ? end : im};
}
template <class T> INLINE complex<T> complex_tan(complex<T> a) {
    const complex<T> b = complex_tanh(complex<T>{-a.im, a.re});
    return complex<T>{b.im, -b.re};
}
template <class T> INLINE complex<T> complex_sigmoid(complex<T> a) {
    return complex_reciprocal(complex_add(complex<T>{(T)1, (T)0}, complex_exp(complex_neg(a))));
}
template <class T> INLINE complex<T> complex_silu(complex<T> a) {
    return complex_div(a, complex_add(complex<T>{(T)1, (T)0}, complex_exp(complex_neg(a))));
}
template <class T> INLINE complex<T> complex_softsign(complex<T> a) {
    const T scale = (T)1 + complex_abs(a);
    return complex<T>{a.re / scale, a.im / scale};
}
template <class T> INLINE complex<T> complex_expm1(complex<T> a) {
    const T half = part_sin((T)0.5 * a.im);
    const T re = part_expm1(a.re) * part_cos(a.im) - (T)2 * half * half;
    return complex<T>{re, a.im == (T)0 ? a.im : part_exp(a.re) * part_sin(a.im)};
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
    const complex<T> low = complex<T>{less ? a.re : b.re, less ? a.im : b.im};
    const complex<T> high = complex<T>{less ? b.re : a.re, less ? b.im : a.im};
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
    const T re = part_atan2(a.re, huge ? part_abs(a.im) : less.re * more.re - less.im * more.im);
    const T im = part_asinh(less.re * more.im - less.im * more.re);
    return complex<T>{re, huge ? part_sign(complex_log_of_twice(a), a.im) : im};
}
template <class T> INLINE complex<T> complex_acos(complex<T> a) {
    const bool huge = complex_huge(a);
    const complex<T> less = complex_sqrt(complex<T>{(T)1 - a.re, -a.im});
    const complex<T> more = complex_sqrt(complex<T>{(T)1 + a.re, a.im});
    const T re = huge ? part_atan2(part_abs(a.im), a.re) : (T)2 * part_atan2(less.re, more.re);
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
    const T im = huge ? part_atan2(a.im, a.re) : (T)2 * part_atan2(less.im, more.re);
    return complex<T>{huge ? complex_log_of_twice(a) : re, im};
}
template <class T> INLINE complex<T> complex_atanh(complex<T> a) {
    const bool huge = complex_huge(a);
    const T size = part_hypot(a.re, a.im);
    const T far = part_sign(part_infinite(size) ? (T)0 : a.re / size / size, a.re);
    // By the magnitude: near -1 the logarithm would cancel.
    const T along = part_abs(a.re), less = (T)1 - along, square = a.im * a.im;
    const T re = part_sign(part_log1p((T)4 * along / (less * less + square)) / (T)4, a.re);
    const T im = (T)0.5 * part_atan2((T)2 * a.im, less * ((T)1 + along) - square);
    return complex<T>{huge ? far : re, huge ? part_sign(part_atan2((T)1, (T)0), a.im) : im};
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
    const complex<T> apart = complex_sub(a, b);
    return complex_equal(a, b)
        || (complex_finite(apart) && complex_abs(apart) <= absolute + part_abs(relative * complex_abs(b)));
}
