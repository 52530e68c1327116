//! Elementary functions of `f32`, as straight-line code that vectorises.
//!
//! Each is computed in `f64` by a polynomial with a relative error below 2^-33 and rounded once. Nearly all
//! results are correctly rounded; none is off by more than one unit in the last place. No branches, tables or
//! fused multiply-adds: every machine gives the same bits. The polynomials are minimax fits by the Remez
//! exchange.

/// Adding and subtracting this rounds a float to an integer. The low bits of the sum hold that integer.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// The largest |x| for which the range reduction of [`sin`], [`cos`] and [`tan`] is accurate enough. Larger
/// values use [`libm`].
pub const MAX_ANGLE: f32 = 1_000_000.0;

/// e^x
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    exp_wide(limited(f64::from(x), -110.0, 90.0)) as f32
}

/// 2^x
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let x = limited(f64::from(x), -160.0, 130.0);
    let t = x + MAGIC;
    let r = (x - (t - MAGIC)) * std::f64::consts::LN_2;
    ((1.0 + exp_tail(r)) * power_of_two(t)) as f32
}

/// e^x - 1
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let result = expm1_wide(limited(f64::from(x), -110.0, 90.0)) as f32;
    // Keeps the sign of -0.
    if x == 0.0 { x } else { result }
}

/// The natural logarithm.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    let (whole, part) = ln_parts(f64::from(x));
    defined(x, whole * std::f64::consts::LN_2 + part)
}

/// The binary logarithm.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    let (whole, part) = ln_parts(f64::from(x));
    defined(x, whole + part * std::f64::consts::LOG2_E)
}

/// The decimal logarithm.
#[inline(always)]
pub fn log10(x: f32) -> f32 {
    let (whole, part) = ln_parts(f64::from(x));
    defined(x, whole * std::f64::consts::LOG10_2 + part * std::f64::consts::LOG10_E)
}

/// ln(1 + x)
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    let y = f64::from(x);
    let sum = 1.0 + y;
    let (whole, part) = ln_parts(sum);
    // First-order correction for the rounding of the sum.
    let full = whole * std::f64::consts::LN_2 + part + (y - (sum - 1.0)) / sum;
    let small = y - 0.5 * (y * y);
    let result = if y.abs() < 1e-6 { small } else { full };
    let result = if x == f32::INFINITY { f64::INFINITY } else { result };
    let result = if y > -1.0 { result } else { f64::NAN };
    (if y == -1.0 { f64::NEG_INFINITY } else { result }) as f32
}

/// The sine of an angle up to [`MAX_ANGLE`].
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    let (r, quarter) = reduced(f64::from(x));
    let sine = turned(r, quarter) as f32;
    // Keeps the sign of -0.
    if x == 0.0 { x } else { sine }
}

/// The cosine of an angle up to [`MAX_ANGLE`].
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    let (r, quarter) = reduced(f64::from(x));
    turned(r, quarter.wrapping_add(1)) as f32
}

/// The tangent of an angle up to [`MAX_ANGLE`].
#[inline(always)]
pub fn tan(x: f32) -> f32 {
    let (r, quarter) = reduced(f64::from(x));
    let tangent = (turned(r, quarter) / turned(r, quarter.wrapping_add(1))) as f32;
    if x == 0.0 { x } else { tangent }
}

/// The angle of the point (x, y), from -pi to pi.
#[inline(always)]
pub fn atan2(y: f32, x: f32) -> f32 {
    angle(f64::from(y), f64::from(x)) as f32
}

/// The arc tangent.
#[inline(always)]
pub fn atan(x: f32) -> f32 {
    angle(f64::from(x), 1.0) as f32
}

/// The arc sine.
#[inline(always)]
pub fn asin(x: f32) -> f32 {
    let x = f64::from(x);
    angle(x, ((1.0 - x) * (1.0 + x)).sqrt()) as f32
}

/// The arc cosine.
#[inline(always)]
pub fn acos(x: f32) -> f32 {
    let x = f64::from(x);
    angle(((1.0 - x) * (1.0 + x)).sqrt(), x) as f32
}

/// sqrt(x^2 + y^2)
#[inline(always)]
pub fn hypot(x: f32, y: f32) -> f32 {
    let (a, b) = (f64::from(x), f64::from(y));
    let is_infinite = x.abs() == f32::INFINITY || y.abs() == f32::INFINITY;
    if is_infinite { f32::INFINITY } else { (a * a + b * b).sqrt() as f32 }
}

/// [`atan2`] with a relative error of 2^-40.
#[inline(always)]
fn angle(y: f64, x: f64) -> f64 {
    let (high, low) = if y.abs() > x.abs() { (y.abs(), x.abs()) } else { (x.abs(), y.abs()) };
    let are_infinite = low == f64::INFINITY;
    let (high, low) = (if are_infinite { 1.0 } else { high }, if are_infinite { 1.0 } else { low });
    // Above tan(pi/8), the tangent of the angle minus pi/4.
    let is_wide = low > high * (std::f64::consts::SQRT_2 - 1.0);
    let above = if is_wide { low - high } else { low };
    let below = if is_wide { low + high } else { high };
    let t = if below == 0.0 { 0.0 } else { above / below };
    let turn = if is_wide { std::f64::consts::FRAC_PI_4 } else { 0.0 };
    let first = turn + t * polynomial(ATAN, t * t);
    let half = if y.abs() > x.abs() { std::f64::consts::FRAC_PI_2 - first } else { first };
    let whole = if x.is_sign_negative() { std::f64::consts::PI - half } else { half };
    if x.is_nan() || y.is_nan() { f64::NAN } else { whole.copysign(y) }
}

/// The hyperbolic sine.
#[inline(always)]
pub fn sinh(x: f32) -> f32 {
    let t = expm1_wide(limited(f64::from(x).abs(), 0.0, 90.5));
    ((0.5 * (t + t / (t + 1.0))) as f32).copysign(x)
}

/// The hyperbolic cosine.
#[inline(always)]
pub fn cosh(x: f32) -> f32 {
    let t = exp_wide(limited(f64::from(x).abs(), 0.0, 90.5));
    (0.5 * (t + 1.0 / t)) as f32
}

/// The hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let t = expm1_wide(2.0 * limited(f64::from(x).abs(), 0.0, 10.0));
    ((t / (t + 2.0)) as f32).copysign(x)
}

/// 1 / (1 + e^-x)
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    (1.0 / (1.0 + exp_wide(-limited(f64::from(x), -110.0, 40.0)))) as f32
}

/// The error function.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let y = limited(f64::from(x).abs(), 0.0, 4.0);
    let near = y * polynomial(ERF, y * y);
    let far = 1.0 - exp_wide(-polynomial(LN_ERFC, y));
    let result = if y < 1.0 { near } else { far };
    (result as f32).copysign(x)
}

/// 1 - erf(x), accurate where the result is small.
#[inline(always)]
pub fn erfc(x: f32) -> f32 {
    erfc_wide(f64::from(x)) as f32
}

/// x times the cumulative normal distribution at x.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    let x = f64::from(x);
    (0.5 * x * erfc_wide(-std::f64::consts::FRAC_1_SQRT_2 * x)) as f32
}

/// 1 - erf(x) with a relative error of 2^-33; 0 when the result underflows `f32`.
#[inline(always)]
fn erfc_wide(x: f64) -> f64 {
    let y = limited(x.abs(), 0.0, 11.0);
    let t = 1.0 / (1.0 + 0.5 * y);
    let tail = t * exp_wide(polynomial(ERFC, t) - y * y);
    let tail = if x.abs() > 11.0 { 0.0 } else { tail };
    if x < 0.0 { 2.0 - tail } else { tail }
}

/// The inverse of [`erf`].
#[inline(always)]
pub fn erfinv(x: f32) -> f32 {
    let y = f64::from(x);
    let inside = limited((1.0 - y) * (1.0 + y), f64::from(f32::MIN_POSITIVE), 1.0);
    let (whole, part) = ln_parts(inside);
    let t = whole * std::f64::consts::LN_2 + part;
    let ratio = if t < -6.0 { polynomial(ERFINV_FAR, t) } else { polynomial(ERFINV_NEAR, t) };
    let result = (y * ratio) as f32;
    let edge = if y.abs() == 1.0 { f32::INFINITY.copysign(x) } else { f32::NAN };
    if y.abs() < 1.0 { result } else { edge }
}

/// The derivative of [`lgamma`](super::math::lgamma).
#[inline(always)]
pub fn digamma(x: f32) -> f32 {
    let a = f64::from(x);
    let y = if a < 0.0 { 1.0 - a } else { a };
    let is_low = y < 2.5;
    let low = limited(y, 0.0, 2.5);
    let low = (low - DIGAMMA_ROOT) * polynomial(DIGAMMA_LOW, low);
    let part = (if is_low { low } else { 1.0 }) / (if is_low { y * (y + 1.0) } else { y });
    let (whole, rest) = ln_parts(y);
    let logarithm = if y < f64::INFINITY { whole * std::f64::consts::LN_2 + rest } else { y };
    let high = logarithm - part * polynomial(DIGAMMA_HIGH, part);
    let value = if is_low { part } else { high };
    // By reflection: minus pi / tan(pi a), whose period is 1. The result is infinite at 0 and nan at the other poles.
    let r = a - a.round_ties_even();
    let (angle, quarter) = reduced(std::f64::consts::PI * r);
    let cot = turned(angle, quarter.wrapping_add(1)) / turned(angle, quarter);
    let below = if r == 0.0 { f64::NAN } else { value - std::f64::consts::PI * cot };
    let result = if a < 0.0 { below } else { value };
    if a == 0.0 { f32::NEG_INFINITY.copysign(-x) } else { result as f32 }
}

/// x to the power of y, as C's `pow`.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let base = f64::from(x).abs();
    let (whole, part) = ln_parts(base);
    let log = whole * std::f64::consts::LN_2 + part;
    let log = if base == 0.0 { f64::NEG_INFINITY } else { log };
    let log = if base < f64::INFINITY { log } else { base };
    let size = exp_wide(limited(f64::from(y) * log, -110.0, 90.0)) as f32;
    let is_whole = y == y.trunc();
    let is_odd = is_whole && (0.5 * y) != (0.5 * y).trunc();
    let signed = if is_odd { size.copysign(x) } else { size };
    let defined = if x < 0.0 && !is_whole && x != f32::NEG_INFINITY { f32::NAN } else { signed };
    let one = y == 0.0 || x == 1.0 || (x == -1.0 && y.is_infinite());
    if one { 1.0 } else { defined }
}

/// Clamps x; nan stays nan.
#[inline(always)]
fn limited(x: f64, low: f64, high: f64) -> f64 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// The logarithm for positive finite x; limits and nan elsewhere.
#[inline(always)]
fn defined(x: f32, logarithm: f64) -> f32 {
    let result = if x == f32::INFINITY { f64::INFINITY } else { logarithm };
    let result = if x > 0.0 { result } else { f64::NAN };
    (if x == 0.0 { f64::NEG_INFINITY } else { result }) as f32
}

#[inline(always)]
fn polynomial<const N: usize>(coefficients: [f64; N], x: f64) -> f64 {
    let mut sum = coefficients[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        sum = sum * x + coefficients[i];
    }
    sum
}

/// 2^n, where n is the integer that [`MAGIC`] left in `t`; n from -1022 to 1023.
#[inline(always)]
fn power_of_two(t: f64) -> f64 {
    f64::from_bits(t.to_bits().wrapping_add(1023) << 52)
}

/// e^r - 1 for |r| <= ln(2) / 2.
#[inline(always)]
fn exp_tail(r: f64) -> f64 {
    r + (r * r) * polynomial(EXP, r)
}

/// e^x for |x| < 700.
#[inline(always)]
fn exp_wide(x: f64) -> f64 {
    let t = x * std::f64::consts::LOG2_E + MAGIC;
    let r = x - (t - MAGIC) * std::f64::consts::LN_2;
    (1.0 + exp_tail(r)) * power_of_two(t)
}

/// e^x - 1 for |x| < 700.
#[inline(always)]
fn expm1_wide(x: f64) -> f64 {
    let t = x * std::f64::consts::LOG2_E + MAGIC;
    let r = x - (t - MAGIC) * std::f64::consts::LN_2;
    let scale = power_of_two(t);
    scale * exp_tail(r) + (scale - 1.0)
}

/// (e, ln m) with x = m * 2^e and m from sqrt(1/2) to sqrt(2), for normal x > 0. Otherwise meaningless finite
/// values or nan.
#[inline(always)]
fn ln_parts(x: f64) -> (f64, f64) {
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const TWO_52: f64 = 4_503_599_627_370_496.0;
    let bits = x.to_bits();
    let biased = bits.wrapping_add(ONE - SQRT_HALF) >> 52;
    let whole = f64::from_bits(TWO_52.to_bits() | biased) - (TWO_52 + 1023.0);
    let m = f64::from_bits(bits.wrapping_sub(biased << 52).wrapping_add(ONE));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    (whole, 2.0 * s + (s * z) * polynomial(LN, z))
}

/// The distance to the nearest multiple of a quarter turn, and that multiple (modulo 4, in the low bits).
#[inline(always)]
fn reduced(x: f64) -> (f64, u64) {
    // Half pi in two parts; integers below 2^20 times the first are exact.
    const FIRST: f64 = 1.570_796_326_734_125_6;
    const REST: f64 = 6.077_100_506_506_192e-11;
    let t = x * std::f64::consts::FRAC_2_PI + MAGIC;
    let n = t - MAGIC;
    ((x - n * FIRST) - n * REST, t.to_bits())
}

/// The sine of `quarter` quarter turns and `r`.
#[inline(always)]
fn turned(r: f64, quarter: u64) -> f64 {
    let z = r * r;
    let sine = r + (r * z) * polynomial(SIN, z);
    let cosine = 1.0 + z * polynomial(COS, z);
    let size = if quarter & 1 == 0 { sine } else { cosine };
    f64::from_bits(size.to_bits() ^ ((quarter & 2) << 62))
}

/// (e^r - 1 - r) / r^2 over |r| <= ln(2) / 2, to 2^-34.
const EXP: [f64; 6] = [
    0.500_000_007_790_423_2,
    0.166_666_668_607_218_4,
    0.041_666_269_938_852_84,
    0.008_333_264_348_574_3,
    0.001_394_607_353_370_313_2,
    0.000_199_183_889_760_581_75,
];

/// (ln((1 + s) / (1 - s)) - 2 s) / s^3 in s^2, over m from sqrt(1/2) to sqrt(2), to 2^-43.
const LN: [f64; 5] = [
    0.666_666_666_758_046_6,
    0.399_999_956_207_226_95,
    0.285_721_092_640_523_87,
    0.221_761_846_911_845_15,
    0.195_842_043_040_862_2,
];

/// (sin(r) / r - 1) / r^2 in r^2, over |r| <= pi / 4, to 2^-47.
const SIN: [f64; 5] = [
    -0.166_666_666_666_316_08,
    0.008_333_333_325_273_981,
    -0.000_198_412_638_240_705_86,
    2.755_535_797_159_038e-6,
    -2.476_166_705_795_613_5e-8,
];

/// (cos(r) - 1) / r^2 in r^2, over |r| <= pi / 4, to 2^-43.
const COS: [f64; 5] = [
    -0.499_999_999_995_449_03,
    0.041_666_666_562_042_45,
    -0.001_388_888_107_672_637_6,
    2.479_904_060_025_55e-5,
    -2.718_006_792_670_969e-7,
];

/// erf(y) / y in y^2, over y from 0 to 1, to 2^-40.
const ERF: [f64; 9] = [
    1.128_379_167_094_712_3,
    -0.376_126_388_900_894_2,
    0.112_837_913_181_001_81,
    -0.026_866_133_991_766,
    0.005_223_786_438_901_093,
    -0.000_854_270_095_953_298_3,
    0.000_119_573_041_720_110_39,
    -1.391_388_890_093_108_3e-5,
    1.060_071_681_275_108_4e-6,
];

/// -ln(erfc(y)) over y from 1 to 4; the error times erfc(y) is below 2^-37.
const LN_ERFC: [f64; 10] = [
    -0.000_116_645_909_392_164_55,
    1.129_155_782_110_527,
    0.634_312_897_865_626,
    0.106_798_892_271_490_4,
    -0.023_693_534_105_697_783,
    0.003_277_981_971_102_796_4,
    -7.077_105_969_745_808e-5,
    -7.170_279_215_043_928e-5,
    1.345_342_270_753_867_8e-5,
    -8.438_130_830_240_851e-7,
];

/// ln(erfc(y)) + y^2 - ln(t) in t = 1 / (1 + y / 2), over y from 0 to 11.2, to 2^-37.
const ERFC: [f64; 16] = [
    -1.265_513_603_162_661_5,
    1.000_061_987_227_935_3,
    0.373_822_230_593_251_2,
    0.096_795_298_010_556_48,
    -0.189_435_154_471_576_9,
    0.422_880_212_092_627,
    -2.371_201_763_878_016_7,
    6.873_617_622_918_714,
    -15.261_124_323_763_133,
    25.848_397_883_625_58,
    -31.266_784_509_657_5,
    26.259_645_026_226_145,
    -14.997_457_041_247_902,
    5.580_092_193_187_97,
    -1.224_283_064_531_473_5,
    0.120_487_006_825_448_06,
];

/// The inverse of erf over its argument x, in ln(1 - x^2) from -6.2 to 0, to 2^-32.
const ERFINV_NEAR: [f64; 14] = [
    0.886_226_925_273_233_5,
    -0.232_013_677_915_828_08,
    0.011_549_221_109_902_884,
    0.002_334_590_274_141_846_5,
    -0.000_129_182_816_628_080_25,
    -4.814_600_788_426_833_5e-5,
    6.717_903_847_045_145e-7,
    2.058_462_767_522_431_6e-7,
    -3.723_633_697_201_811_6e-7,
    -1.188_993_626_245_518_6e-7,
    -1.747_820_137_766_182e-8,
    -1.457_914_128_700_430_8e-9,
    -6.736_097_299_469_701e-11,
    -1.353_092_802_679_959_4e-12,
];

/// The same from -17 to -6, to 2^-32.
const ERFINV_FAR: [f64; 12] = [
    0.922_480_439_002_381_9,
    -0.183_609_838_505_723_82,
    0.040_243_468_726_591_43,
    0.012_107_338_916_756_683,
    0.001_911_513_256_591_155_3,
    0.000_202_144_992_479_604_98,
    1.512_151_927_605_026_1e-5,
    8.077_355_061_271_803e-7,
    3.027_530_609_841_658e-8,
    7.586_680_731_713_556e-10,
    1.143_463_992_758_935e-11,
    7.847_287_126_880_434e-14,
];

/// digamma(y) * y * (y + 1) / (y - [`DIGAMMA_ROOT`]) in y, over y from 0 to 5/2, to 2^-35.
const DIGAMMA_LOW: [f64; 15] = [
    0.684_166_671_767_709_2,
    1.547_162_430_424_780_6,
    0.328_019_517_065_856,
    -0.078_580_422_141_754_38,
    0.028_146_599_189_673_29,
    -0.011_763_291_282_513_747,
    0.005_244_930_466_827_781,
    -0.002_352_146_021_666_878_6,
    0.000_997_356_686_861_577_2,
    -0.000_373_268_291_131_458_2,
    0.000_114_972_859_256_965_53,
    -2.715_764_962_936_907_4e-5,
    4.528_708_536_813_749e-6,
    -4.693_550_619_720_22e-7,
    2.258_063_157_111_832_8e-8,
];

/// (ln(y) - digamma(y)) * y in 1 / y, over y from 5/2, to 2^-36.
const DIGAMMA_HIGH: [f64; 9] = [
    0.499_999_999_994_946_6,
    0.083_333_335_374_846_13,
    -1.343_541_432_167_198e-7,
    -0.008_329_975_456_805_836,
    -4.108_544_737_577_112e-5,
    0.004_237_837_645_735_186,
    -0.000_924_266_066_396_735_7,
    -0.003_020_813_216_971_556_4,
    0.002_174_808_774_740_889_4,
];

/// atan(t) / t in terms of t^2, for t up to tan(pi/8).
const ATAN: [f64; 8] = [
    0.999_999_999_999_276_3,
    -0.333_333_332_787_054_9,
    0.199_999_932_183_120_68,
    -0.142_853_922_713_374_46,
    0.111_035_514_909_965_08,
    -0.089_933_566_612_106_67,
    0.069_775_864_540_256_64,
    -0.037_711_259_300_095_625,
];

/// Where digamma is 0.
const DIGAMMA_ROOT: f64 = 1.461_632_144_968_362_3;

#[cfg(test)]
mod tests {
    use super::*;

    /// The error in units in the last place of f32.
    fn ulps(have: f32, want: f64) -> f64 {
        let rounded = want as f32;
        if have.is_nan() || rounded.is_nan() {
            return if have.is_nan() && rounded.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if have == rounded {
            return 0.0;
        }
        if have.is_infinite() || rounded.is_infinite() {
            return f64::INFINITY;
        }
        let unit = f64::from((rounded.abs().next_up() - rounded.abs()).max(f32::from_bits(1)));
        (f64::from(have) - want).abs() / unit
    }

    /// Floats of all magnitudes and both signs, and the special values.
    fn floats(step: usize) -> impl Iterator<Item = f32> {
        let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN];
        special.into_iter().chain((0..=u32::MAX).step_by(step).map(f32::from_bits))
    }

    fn worst(f: fn(f32) -> f32, exact: fn(f64) -> f64, within: impl Fn(f32) -> bool) -> (f64, f32) {
        let step = if cfg!(debug_assertions) { 40_503 } else { 211 };
        let mut worst = (0.0, 0.0);
        for x in floats(step).filter(|&x| within(x)) {
            let off = ulps(f(x), exact(f64::from(x)));
            if off > worst.0 {
                worst = (off, x);
            }
        }
        worst
    }

    #[test]
    fn every_function_is_within_a_unit_in_the_last_place() {
        let all = |_: f32| true;
        let angle = |x: f32| x.abs() <= MAX_ANGLE;
        type Row = (&'static str, fn(f32) -> f32, fn(f64) -> f64, fn(f32) -> bool);
        let rows: &[Row] = &[
            ("exp", exp, libm::exp, all),
            ("exp2", exp2, libm::exp2, all),
            ("expm1", expm1, libm::expm1, all),
            ("ln", ln, libm::log, all),
            ("log2", log2, libm::log2, all),
            ("log10", log10, libm::log10, all),
            ("log1p", log1p, libm::log1p, all),
            ("sin", sin, libm::sin, angle),
            ("cos", cos, libm::cos, angle),
            ("tan", tan, libm::tan, angle),
            ("asin", asin, libm::asin, all),
            ("acos", acos, libm::acos, all),
            ("atan", atan, libm::atan, all),
            ("sinh", sinh, libm::sinh, all),
            ("cosh", cosh, libm::cosh, all),
            ("tanh", tanh, libm::tanh, all),
            ("sigmoid", sigmoid, |x| 1.0 / (1.0 + libm::exp(-x)), all),
            ("erf", erf, libm::erf, all),
            ("erfc", erfc, libm::erfc, all),
            ("gelu", gelu, |x| 0.5 * x * libm::erfc(-std::f64::consts::FRAC_1_SQRT_2 * x), all),
        ];
        for &(name, f, exact, within) in rows {
            let (off, x) = worst(f, exact, within);
            assert!(off <= 0.51, "{name}({x:?}) = {:?} is off by {off} units", f(x));
        }
    }

    #[test]
    fn zeros_keep_their_sign() {
        for f in [expm1, log1p, sin, tan, asin, atan, sinh, tanh, erf] {
            assert_eq!(f(-0.0).to_bits(), (-0.0f32).to_bits());
            assert_eq!(f(0.0).to_bits(), 0);
        }
    }

    #[test]
    fn angles_and_lengths_of_points_are_within_a_unit_in_the_last_place() {
        let one = [0.0, -0.0, 1.0, -1.0, 3.0, 0.5, 1e-40, f32::MAX, -f32::INFINITY, f32::INFINITY, f32::NAN];
        let some: Vec<f32> = one.into_iter().chain(floats(60_000_011)).collect();
        for &y in &some {
            for &x in &some {
                let (b, a) = (f64::from(y), f64::from(x));
                let (have, want) = (atan2(y, x), libm::atan2(b, a));
                assert!(ulps(have, want) <= 0.51, "atan2({y:e}, {x:e}) = {have:e}, not {want:e}");
                assert!(want != 0.0 || have.is_sign_negative() == want.is_sign_negative(), "{y:e} {x:e}");
                let (have, want) = (hypot(x, y), libm::hypot(b, a));
                assert!(ulps(have, want) <= 0.51, "hypot({y:e}, {x:e}) = {have:e}, not {want:e}");
            }
        }
    }

    #[test]
    fn inverses_of_erf_are_rounded_once() {
        // The solution of erf(y) = x by Newton's method, from the result of the function.
        let mut count = 0;
        for x in floats(20_011).chain((1..2000).map(|i| 1.0 - i as f32 * f32::EPSILON / 2.0)) {
            let size = f64::from(x).abs();
            let have = erfinv(x);
            if size.is_nan() || size >= 1.0 {
                let want = if size == 1.0 { f32::INFINITY.copysign(x) } else { f32::NAN };
                assert!(have == want || have.is_nan() && want.is_nan(), "{x}: {have}");
                continue;
            }
            let mut y = f64::from(have).abs();
            for _ in 0..3 {
                let off = if size < 0.5 { libm::erf(y) - size } else { (1.0 - size) - libm::erfc(y) };
                y -= off / (std::f64::consts::FRAC_2_SQRT_PI * libm::exp(-y * y));
            }
            let off = ulps(have.abs(), y);
            assert!(
                off <= 0.51 && have.is_sign_negative() == x.is_sign_negative(),
                "{x}: {have}, off by {off}"
            );
            count += 1;
        }
        assert!(count > 100_000);
    }

    #[test]
    fn digammas_are_those_of_the_series() {
        // The asymptotic series after steps up, by reflection below 0.
        fn exact(a: f64) -> f64 {
            if a < 0.0 {
                let r = std::f64::consts::PI * (a - a.round_ties_even());
                return exact(1.0 - a) - std::f64::consts::PI * libm::cos(r) / libm::sin(r);
            }
            let steps: f64 = (0..20).map(|k| 1.0 / (a + f64::from(k))).sum();
            let y = a + 20.0;
            let z = 1.0 / (y * y);
            libm::log(y)
                - 0.5 / y
                - z * (1.0 / 12.0 - z * (1.0 / 120.0 - z * (1.0 / 252.0 - z / 240.0)))
                - steps
        }
        for x in floats(20_011).filter(|x| x.is_finite() && *x != x.round()) {
            let (have, want) = (digamma(x), exact(f64::from(x)));
            // Near the roots, the error is relative to 1.
            let near = (f64::from(have) - want).abs() < 1e-9;
            assert!(near || ulps(have, want) <= 0.51, "{x}: {have} for {want}");
        }
        for (x, want) in [(0.0, f32::NEG_INFINITY), (-0.0, f32::INFINITY), (f32::INFINITY, f32::INFINITY)] {
            assert_eq!(digamma(x), want);
        }
        for x in [-1.0, -2.0, -1e9, f32::NEG_INFINITY, f32::NAN] {
            assert!(digamma(x).is_nan(), "{x}");
        }
    }

    #[test]
    fn powers_follow_c() {
        let special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1e30, -1e30, 1e-30];
        let special: Vec<f32> =
            special.into_iter().chain([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 2.5, -7.0]).collect();
        for &x in &special {
            for &y in &special {
                let (have, want) = (pow(x, y), libm::pow(f64::from(x), f64::from(y)) as f32);
                assert!(
                    have.to_bits() == want.to_bits() || (have.is_nan() && want.is_nan()),
                    "{x}^{y}: {have} for {want}"
                );
            }
        }
        for x in floats(40_000_003).map(f32::abs).filter(|x| x.is_finite()) {
            for y in floats(40_000_003).filter(|y| y.is_finite()) {
                let off = ulps(pow(x, y), libm::pow(f64::from(x), f64::from(y)));
                assert!(off <= 0.51, "{x}^{y} is off by {off} units");
            }
        }
    }
}
