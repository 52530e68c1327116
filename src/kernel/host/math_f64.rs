//! Elementary functions of `f64`, as straight-line code that vectorises. They give the bits of [`libm`], whose branches are
//! selections here.

/// The natural logarithm of 2: its first bits, and the rest.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// Adding this to an integer leaves the integer in the low bits of the sum.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// e^x
#[inline(always)]
pub fn exp(x: f64) -> f64 {
    // Beyond these, the result is 0 or infinity.
    let y = if x > 800.0 { 800.0 } else { x };
    let y = if y < -800.0 { -800.0 } else { y };
    let size = y.to_bits() & !(1 << 63);
    let half = if y < 0.0 { -0.5 } else { 0.5 };
    // From 1.5 ln(2) on, from 0.5 ln(2) on, and below.
    let many = (std::f64::consts::LOG2_E * y + half).trunc();
    let some = if size >= 0x3ff0_a2b2 << 32 { many } else { 2.0 * half };
    let count = if size >= 0x3fd6_2e43 << 32 { some } else { 0.0 };
    let (high, low) = (y - count * LN_2_HIGH, count * LN_2_LOW);
    let r = high - low;
    let t = r * r;
    let p = EXP[0] + t * (EXP[1] + t * (EXP[2] + t * (EXP[3] + t * EXP[4])));
    let c = r - t * p;
    let part = 1.0 + (r * c / (2.0 - c) - low + high);
    let part = if size >= 0x3e30_0001 << 32 { part } else { 1.0 + y };
    // In two steps, so that a subnormal result is rounded once.
    let first = (0.5 * count).trunc();
    let value = part * power_of_two(first) * power_of_two(count - first);
    let value = if x > 709.782_712_893_384 { f64::INFINITY } else { value };
    let value = if x < -745.133_219_101_941_1 { 0.0 } else { value };
    if x.is_nan() { x } else { value }
}

/// The natural logarithm.
#[inline(always)]
pub fn ln(x: f64) -> f64 {
    let is_small = x < f64::MIN_POSITIVE;
    let y = if is_small { x * 18_014_398_509_481_984.0 } else { x };
    // The exponent, and the number between sqrt(1/2) and sqrt(2) that it scales.
    let bits = y.to_bits().wrapping_add((0x3ff0_0000 - 0x3fe6_a09e) << 32);
    let biased = f64::from_bits(bits >> 52 | 0x4330_0000_0000_0000) - 4_503_599_627_370_496.0;
    let exponent = biased - if is_small { 1023.0 + 54.0 } else { 1023.0 };
    let scaled = f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(0x3fe6_a09e << 32));
    let f = scaled - 1.0;
    let half = 0.5 * f * f;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let even = w * (LN[1] + w * (LN[3] + w * LN[5]));
    let odd = z * (LN[0] + w * (LN[2] + w * (LN[4] + w * LN[6])));
    let value = s * (half + (odd + even)) + exponent * LN_2_LOW - half + f + exponent * LN_2_HIGH;
    let value = if x == f64::INFINITY { x } else { value };
    let value = if x == 0.0 { f64::NEG_INFINITY } else { value };
    let value = if x == 1.0 { 0.0 } else { value };
    if x < 0.0 || x.is_nan() { f64::NAN } else { value }
}

/// 2^n for an integer n from -1022 to 1023.
#[inline(always)]
fn power_of_two(n: f64) -> f64 {
    f64::from_bits((n + MAGIC).to_bits().wrapping_add(1023) << 52)
}

const EXP: [f64; 5] = [
    0.166_666_666_666_666_02,
    -2.777_777_777_701_559_3e-3,
    6.613_756_321_437_934e-5,
    -1.653_390_220_546_525_2e-6,
    4.138_136_797_057_238_5e-8,
];

const LN: [f64; 7] = [
    0.666_666_666_666_673_5,
    0.399_999_999_994_094_2,
    0.285_714_287_436_623_9,
    0.222_221_984_321_497_84,
    0.181_835_721_616_180_5,
    0.153_138_376_992_093_73,
    0.147_981_986_051_165_86,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_bits_of_libm() {
        let special =
            [0.0, 1.0, 0.346_573_590_279_972_6, 1.039_720_770_839_917_9, 709.78, 745.13, 2e-9, 4e-9, 708.4];
        let step = if cfg!(debug_assertions) { 40_503_000_000_007 } else { 400_000_000_007 };
        let all = (0..=u64::MAX).step_by(step).map(f64::from_bits);
        let near = (-800_000..800_000).map(|i| f64::from(i) * 1.000_123e-3);
        let edges = special.into_iter().flat_map(|x: f64| [x, x.next_up(), x.next_down()]);
        let limits = [f64::INFINITY, f64::NAN, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1e-310];
        for x in all.chain(near).chain(edges).chain(limits).flat_map(|x| [x, -x]) {
            for (name, have, want) in [("exp", exp(x), libm::exp(x)), ("ln", ln(x), libm::log(x))] {
                let are_nan = have.is_nan() && want.is_nan();
                assert!(
                    are_nan || have.to_bits() == want.to_bits(),
                    "{name}({x:e}) = {have:e}, not {want:e}"
                );
            }
        }
    }
}
