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
template <class T> INLINE i64 complex_equal(complex<T> a, complex<T> b) {
    return a.re == b.re && a.im == b.im;
}
template <class T> INLINE i64 complex_finite(complex<T> a) {
    return part_finite(a.re) && part_finite(a.im);
}
template <class T> INLINE i64 complex_infinite(complex<T> a) {
    return part_infinite(a.re) || part_infinite(a.im);
}
template <class T> INLINE i64 complex_nan(complex<T> a) { return a.re != a.re || a.im != a.im; }
template <class T> INLINE i64 complex_close(complex<T> a, complex<T> b, T relative, T absolute) {
    const complex<T> apart = complex_sub(a, b);
    return complex_equal(a, b)
        || (complex_finite(apart) && complex_abs(apart) <= absolute + part_abs(relative * complex_abs(b)));
}
