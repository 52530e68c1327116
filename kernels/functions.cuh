// Device functions, in addition to CUDA's own, that the CUDA texts of operations call. Each has the same
// formula as the operation's host code.

// --- Division and powers -------------------------------------------------------------------------

template <class T> INLINE T float_floor_divide(T a, T b, T rest) {
    T whole = (a - rest) / b - (rest != (T)0 && (b < (T)0) != (rest < (T)0) ? (T)1 : (T)0);
    const T down = floor(whole);
    if (b == (T)0) return a / b;
    if (whole != (T)0) return whole - down > (T)0.5 ? down + (T)1 : down;
    return copysign((T)0 * a, a / b);
}
INLINE float floor_divide(float a, float b) { return float_floor_divide(a, b, fmodf(a, b)); }
INLINE double floor_divide(double a, double b) { return float_floor_divide(a, b, fmod(a, b)); }
INLINE i64 floor_divide(i64 a, i64 b) {
    if (b == 0) return 0;
    if (b == -1) return (i64)(0 - (u64)a);
    const i64 whole = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? whole - 1 : whole;
}

INLINE float remainder_of(float a, float b) {
    const float rest = fmodf(a, b);
    return rest != 0.0f && (b < 0.0f) != (rest < 0.0f) ? rest + b : rest;
}
INLINE double remainder_of(double a, double b) {
    const double rest = fmod(a, b);
    return rest != 0.0 && (b < 0.0) != (rest < 0.0) ? rest + b : rest;
}
INLINE i64 remainder_of(i64 a, i64 b) {
    if (b == 0 || b == -1) return 0;
    const i64 rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

INLINE i64 integer_power(i64 base, i64 exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? 1 - 2 * (exponent & 1) : 0;
    u64 result = 1, factor = (u64)base;
    for (u64 left = (u64)exponent; left; left >>= 1) {
        if (left & 1) result *= factor;
        factor *= factor;
    }
    return (i64)result;
}

// --- Bits ------------------------------------------------------------------------------------------

INLINE i64 shift_left(i64 a, i64 by) { return by < 0 || by > 63 ? 0 : (i64)((u64)a << by); }
INLINE i64 shift_right(i64 a, i64 by) { return a >> (by < 0 || by > 63 ? 63 : by); }

// --- Activations -----------------------------------------------------------------------------------

INLINE float sigmoid_of(float a) { return 1.0f / (1.0f + expf(-a)); }
INLINE double sigmoid_of(double a) { return 1.0 / (1.0 + exp(-a)); }

// The rounding of `a / sqrt(2)` would cost the tail its last digits. So the rounding error is computed with
// products of halves, which are exact (sqrt(1/2) is split into its first bits and a remainder), and corrected
// to first order.
INLINE float gelu_of(float a) {
    float y = -a * 0.70710678118654752f;
    float high = __uint_as_float(__float_as_uint(a) & 0xfffff000u);
    float lost = (high * 0.70703125f + y) + (high * 7.553118484793231e-05f + (a - high) * 0.70710678118654752f);
    float correction = y > 1.0f && y < 11.0f ? 2.0f * y * lost : 0.0f;
    float tail = erfcf(y);
    return 0.5f * a * (tail + tail * correction);
}
INLINE double gelu_of(double a) {
    double y = -a * 0.70710678118654752440;
    double high = __longlong_as_double(__double_as_longlong(a) & ~0x3ffffffll);
    double lost = (high * 0.7071067690849304 + y) + (high * 1.210161710447897e-08 + (a - high) * 0.70710678118654752440);
    double correction = y > 1.0 && y < 28.0 ? 2.0 * y * lost : 0.0;
    double tail = erfc(y);
    return 0.5 * a * (tail + tail * correction);
}

INLINE float gelu_tanh_of(float a) {
    return 0.5f * a * (1.0f + tanhf(0.79788456080286535588f * (a + 0.044715f * (a * a * a))));
}
INLINE double gelu_tanh_of(double a) {
    return 0.5 * a * (1.0 + tanh(0.79788456080286535588 * (a + 0.044715 * (a * a * a))));
}

// --- Activations of halves ---------------------------------------------------------------------------

// Results have at most 11 bits, so a relative error of 1e-5 is enough, and there are no branches.

INLINE float exp2_near(float a) {
#ifdef __CUDA_ARCH__
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(a));
    return e;
#else
    return exp2f(a);
#endif
}
INLINE float inverse_near(float a) {
#ifdef __CUDA_ARCH__
    float e;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(a));
    return e;
#else
    return 1.0f / a;
#endif
}

INLINE float sigmoid_half_of(float a) { return inverse_near(1.0f + exp2_near(a * -1.44269504088896341f)); }

// Near 0 the difference would cancel.
INLINE float tanh_half_of(float a) {
    float s = a * a;
    float near = fmaf(fmaf(fmaf(-0.053968253968253968f, s, 0.13333333333333333f), s, -0.33333333333333333f), s, 1.0f);
    float far = fmaf(-2.0f, inverse_near(1.0f + exp2_near(a * 2.88539008177792681f)), 1.0f);
    return s < 0.1225f ? a * near : far;
}

// The tail of the normal distribution is exp(-y * y / 2) times a polynomial of 1 / (1 + 0.31 * y), fitted for
// 0 <= y <= 14.5.
INLINE float gelu_half_of(float a) {
    float y = fminf(fabsf(a), 15.0f);
    float t = inverse_near(fmaf(0.31f, y, 1.0f));
    float sum = fmaf(-0.07392477858506528f, t, 0.18043820262560661f);
    sum = fmaf(sum, t, 0.015757592030222214f);
    sum = fmaf(sum, t, 0.1334232956160079f);
    sum = fmaf(sum, t, 0.12044282655008662f);
    sum = fmaf(sum, t, 0.12386056157363984f);
    float tail = sum * t * exp2_near(y * y * -0.72134752044448170f);
    // nan, and minus infinity as the product with 0.
    float above = fmaf(0.5f, fabsf(a), 0.5f * a);
    return copysignf(fmaf(-y, tail, above), a);  // -0 stays.
}

// The sigmoid of 2 * u is (1 + tanh(u)) / 2.
INLINE float gelu_tanh_half_of(float a) {
    float u = a * fmaf(a * a, 0.1029432395800235f, 2.302208198144325f);
    return a * inverse_near(1.0f + exp2_near(-u));
}

INLINE float softplus_of(float a, float beta, float threshold) {
    return a * beta > threshold ? a : log1pf(expf(a * beta)) / beta;
}
INLINE double softplus_of(double a, double beta, double threshold) {
    return a * beta > threshold ? a : log1p(exp(a * beta)) / beta;
}

// ln(1 / (1 + e^-a)) without overflow.
INLINE float log_sigmoid_of(float a) { return fminf(a, 0.0f) - log1pf(expf(-fabsf(a))); }
INLINE double log_sigmoid_of(double a) { return fmin(a, 0.0) - log1p(exp(-fabs(a))); }

// --- Bounds ----------------------------------------------------------------------------------------

// Clamps to [low, high]. If the limits cross, high wins; nan stays.
template <class T> INLINE T clamp_to(T a, T low, T high) {
    const T raised = a != a || a > low ? a : low;
    return raised != raised || raised < high ? raised : high;
}

// --- Logarithms ------------------------------------------------------------------------------------

// Near 1/2 the logarithm cancels nearly all digits of the quotient, so `float` computes in `double`.
INLINE float logit_of(float a) { return (float)log((double)a / (1.0 - (double)a)); }
INLINE double logit_of(double a) { return log(a / (1.0 - a)); }
INLINE float logit_clamped(float a, float eps) {
    const float high = 1.0f - eps, inner = a < eps ? eps : a > high ? high : a;
    return logit_of(inner);
}
INLINE double logit_clamped(double a, double eps) {
    const double high = 1.0 - eps, inner = a < eps ? eps : a > high ? high : a;
    return log(inner / (1.0 - inner));
}

// --- Special functions -----------------------------------------------------------------------------

INLINE double inverse_near(double a) {
#ifdef __CUDA_ARCH__
    double e;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(e) : "d"(a));
    e = fma(fma(-a, e, 1.0), e, e);
    return fma(fma(-a, e, 1.0), e, e);
#else
    return 1.0 / a;
#endif
}

// ln(e^a + e^b) of numbers that differ. The terms may cancel, so it is computed in `double`: the larger one, and ln(1 + e^-d)
// of their distance, without branches. e^-d = 2^n e^r, and ln(1 + u) is a series in u / (2 + u).
INLINE float log_sum_of(float a, float b) {
    const double d = fmin(fabs((double)a - (double)b), 700.0), magic = 6755399441055744.0;
    const double t = fma(d, -1.4426950408889634, magic), n = t - magic;
    const double r = fma(n, -1.90821492927058770002e-10, fma(n, -6.93147180369123816490e-01, -d));
    double e = 2.5110372746250101e-8;
    e = fma(e, r, 2.7633075465575111e-7);
    e = fma(e, r, 2.7557240010243493e-6);
    e = fma(e, r, 2.480148430110454e-5);
    e = fma(e, r, 0.00019841269890898131);
    e = fma(e, r, 0.0013888888953421457);
    e = fma(e, r, 0.0083333333333192803);
    e = fma(e, r, 0.04166666666648393);
    e = fma(e, r, 0.16666666666666681);
    e = fma(e, r, 0.50000000000000189);
    e = fma(e, r, 1.0);
    e = fma(e, r, 1.0);
    const double u = __longlong_as_double(__double_as_longlong(e) + (i64)((u64)__double_as_longlong(t) << 52));
    const double whole = 2.0 + u, part = inverse_near(whole);
    double s = u * part;
    s = fma(fma(-s, whole, u), part, s);
    const double z = s * s;
    double sum = 0.1624460567651987;
    sum = fma(sum, z, 0.08762586025987901);
    sum = fma(sum, z, 0.12008573928010659);
    sum = fma(sum, z, 0.13313352204765816);
    sum = fma(sum, z, 0.1538561857161066);
    sum = fma(sum, z, 0.18181787700540683);
    sum = fma(sum, z, 0.2222222275209015);
    sum = fma(sum, z, 0.28571428566764584);
    sum = fma(sum, z, 0.4000000000001589);
    sum = fma(sum, z, 0.6666666666666666);
    return (float)((double)fmaxf(a, b) + fma(s * z, sum, 2.0 * s));
}

// The derivative of `lgamma`. Below 5/2 a polynomial times the distance from the root, over the distances from two poles;
// above, a logarithm and its correction in 1 / a. Negative numbers by reflection: minus pi / tan(pi a), whose period is 1.
INLINE float digamma_of(float a) {
    const float y = a < 0.0f ? 1.0f - a : a;
    const bool low = y < 2.5f;
    float t = 2.2669205398225579e-7f;
    t = fmaf(t, y, -4.1522629528835924e-6f);
    t = fmaf(t, y, 3.5076590110026276e-5f);
    t = fmaf(t, y, -0.00018368633398228572f);
    t = fmaf(t, y, 0.00068282705860312414f);
    t = fmaf(t, y, -0.0019853767872463148f);
    t = fmaf(t, y, 0.0049471863048446776f);
    t = fmaf(t, y, -0.011599191483735304f);
    t = fmaf(t, y, 0.028087918440817968f);
    t = fmaf(t, y, -0.078567815972301086f);
    t = fmaf(t, y, 0.32801809750268103f);
    t = fmaf(t, y, 1.5471624937984256f);
    t = fmaf(t, y, 0.68416667129428033f);
    const float from_root = (y - 1.46163177490234375f) - 3.7006601859126266e-7f;
    const float part = (low ? from_root * t : 1.0f) / (low ? y * (y + 1.0f) : y);
    float far = -0.0025653708332281602f;
    far = fmaf(far, part, 0.0046763830208400646f);
    far = fmaf(far, part, -0.00010026231345656752f);
    far = fmaf(far, part, -0.008326324136770882f);
    far = fmaf(far, part, -2.0719402782301457e-7f);
    far = fmaf(far, part, 0.083333335293319838f);
    far = fmaf(far, part, 0.49999999999455901f);
    const float value = low ? part : logf(y) - part * far;
    if (a >= 0.0f) return a == 0.0f ? copysignf(__uint_as_float(0x7f800000u), -a) : value;
    const float r = a - rintf(a), square = r * r;
    float cot = -6.0651343080909656f;
    cot = fmaf(cot, square, -0.00047695885674903237f);
    cot = fmaf(cot, square, -2.4658890002669456f);
    cot = fmaf(cot, square, -1.9508419896699234f);
    cot = fmaf(cot, square, -2.0384529840428159f);
    cot = fmaf(cot, square, -2.1645264455614118f);
    cot = fmaf(cot, square, -3.2898695768846282f);
    cot = fmaf(cot, square, 1.000000002824243f);
    return r == 0.0f ? (a == 0.0f ? copysignf(__uint_as_float(0x7f800000u), -a) : __uint_as_float(0x7fffffffu)) : value - cot / r;
}

// --- Powers ---------------------------------------------------------------------------------------

// Whole powers of whole numbers are exact, as on the host: `pow` may be off in the last digit.
INLINE double power_of(double a, double b) {
    if (a != trunc(a) || b != trunc(b) || b < 0.0 || b > 40.0) return pow(a, b);
    double result = 1.0, factor = a;
    for (int left = (int)b; left; left >>= 1) {
        if (left & 1) result *= factor;
        factor *= factor;
    }
    return result;
}

// --- Ranges ----------------------------------------------------------------------------------------

// Element `at` of `count` evenly spaced numbers from first to last. The second half is computed from last.
INLINE double spaced(i64 at, double first, double last, i64 count) {
    if (count < 2) return first;
    const double step = (last - first) / (double)(count - 1);
    return at < count / 2 ? first + step * (double)at : last - step * (double)(count - 1 - at);
}
