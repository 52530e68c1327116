//! Random numbers on the host: Philox 4x32-10 and the distributions drawn from it.
//!
//! Element `i` of a draw is a function of (seed, offset, i) alone. `kernels/random.cuh` has the same
//! functions in CUDA C. Both use only integer arithmetic and operations that IEEE 754 rounds exactly (sums,
//! products, quotients, roots, fused multiply-adds), so both give the same bits. Source: Salmon et al.,
//! "Parallel random numbers: as easy as 1, 2, 3" (SC11); Box and Muller (1958) for the normal distribution.
//!
//! Note [Which word]. The counter of a block is the draw's offset; its subsequence is the block's number. A
//! block serves four elements of a 32-bit draw, or two of a 64-bit draw. A pair of normal numbers shares its
//! two words, radius first.

/// Ten rounds of Philox 4x32: four random words for a counter and a key.
#[inline(always)]
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut c0, mut c1, mut c2, mut c3], [mut k0, mut k1]) = (counter, key);
    let mut round = 0;
    while round < 10 {
        let a = 0xd251_1f53 * u64::from(c0);
        let b = 0xcd9e_8d57 * u64::from(c2);
        (c0, c1, c2, c3) = ((b >> 32) as u32 ^ c1 ^ k0, b as u32, (a >> 32) as u32 ^ c3 ^ k1, a as u32);
        k0 = k0.wrapping_add(0x9e37_79b9);
        k1 = k1.wrapping_add(0xbb67_ae85);
        round += 1;
    }
    [c0, c1, c2, c3]
}

/// The four words of a block; see Note [Which word].
#[inline(always)]
pub fn block(seed: i64, offset: i64, number: u64) -> [u32; 4] {
    let (seed, offset) = (seed as u64, offset as u64);
    let counter = [offset as u32, (offset >> 32) as u32, number as u32, (number >> 32) as u32];
    philox(counter, [seed as u32, (seed >> 32) as u32])
}

/// Element `at` of a 32-bit draw.
#[inline(always)]
pub fn word(at: i64, seed: i64, offset: i64) -> u32 {
    let [x, y, z, w] = block(seed, offset, at as u64 >> 2);
    let (even, odd) = if at & 2 == 0 { (x, y) } else { (z, w) };
    if at & 1 == 0 { even } else { odd }
}

/// Element `at` of a 64-bit draw.
#[inline(always)]
pub fn wide_word(at: i64, seed: i64, offset: i64) -> u64 {
    let [x, y, z, w] = block(seed, offset, at as u64 >> 1);
    if at & 1 == 0 { joined(x, y) } else { joined(z, w) }
}

/// Uniform in [0, 1), a multiple of 2^-digits; `digits` from 1 to 24.
#[inline(always)]
pub fn uniform(at: i64, seed: i64, offset: i64, digits: i64) -> f32 {
    let unit = f32::from_bits(((127 - digits) as u32) << 23);
    (word(at, seed, offset) >> (32 - digits) as u32) as i32 as f32 * unit
}

/// Uniform in [0, 1), a multiple of 2^-53.
#[inline(always)]
pub fn uniform_wide(at: i64, seed: i64, offset: i64) -> f64 {
    const UNIT: f64 = 1.0 / 9_007_199_254_740_992.0;
    (wide_word(at, seed, offset) >> 11) as i64 as f64 * UNIT
}

/// Uniform in [0, `range`); a range of 0 means 2^64.
#[inline(always)]
pub fn below(at: i64, seed: i64, offset: i64, range: i64) -> i64 {
    let word = wide_word(at, seed, offset);
    let high = ((u128::from(word) * u128::from(range as u64)) >> 64) as i64;
    if range == 0 { word as i64 } else { high }
}

/// Exponentially distributed with rate 1.
#[inline(always)]
pub fn exponential(at: i64, seed: i64, offset: i64) -> f32 {
    -ln_of(word(at, seed, offset))
}

/// Exponentially distributed with rate 1.
#[inline(always)]
pub fn exponential_wide(at: i64, seed: i64, offset: i64) -> f64 {
    -ln_of_wide(wide_word(at, seed, offset))
}

/// Normally distributed with mean 0 and standard deviation 1.
#[inline(always)]
pub fn normal(at: i64, seed: i64, offset: i64) -> f32 {
    let [x, y, z, w] = block(seed, offset, at as u64 >> 2);
    let (radius, angle) = if at & 2 == 0 { (x, y) } else { (z, w) };
    // The top two bits select the quarter turn; the next 23 give the position in it, relative to its middle.
    // (The even element of a pair is the cosine: the sine a quarter turn later.)
    let turn = (angle >> 30) + u32::from(at & 1 == 0);
    let t = (f32::from_bits(0x3f80_0000 | (angle << 2) >> 9) - 1.5) * std::f32::consts::FRAC_PI_2;
    let z = t * t;
    let sine = (t * z).mul_add(z.mul_add(z.mul_add(-0.000_195_172_67, 0.008_332_178), -0.166_666_55), t);
    let cosine = z.mul_add(2.439_041e-5, -0.001_388_676_4);
    let cosine = z.mul_add(z.mul_add(z.mul_add(cosine, 0.041_666_623), -0.5), 1.0);
    let size = if turn & 1 == 0 { sine } else { cosine };
    let signed = f32::from_bits(size.to_bits() ^ ((turn & 2) << 30));
    (-2.0 * ln_of(radius)).sqrt() * signed
}

/// Normally distributed with mean 0 and standard deviation 1.
#[inline(always)]
pub fn normal_wide(at: i64, seed: i64, offset: i64) -> f64 {
    let [x, y, z, w] = block(seed, offset, at as u64 >> 1);
    let (radius, angle) = (joined(x, y), joined(z, w));
    let turn = (angle >> 62) + u64::from(at & 1 == 0);
    let t = (f64::from_bits(0x3ff0_0000_0000_0000 | (angle << 2) >> 12) - 1.5) * std::f64::consts::FRAC_PI_2;
    let z = t * t;
    let sine = t + (t * z) * polynomial(&SIN, z);
    let cosine = 1.0 + z * polynomial(&COS, z);
    let size = if turn & 1 == 0 { sine } else { cosine };
    let signed = f64::from_bits(size.to_bits() ^ ((turn & 2) << 62));
    (-2.0 * ln_of_wide(radius)).sqrt() * signed
}

#[inline(always)]
fn joined(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// ln((word + 1/2) / 2^32), with the argument rounded to 24 bits; from -22.9 to 0.
#[inline(always)]
fn ln_of(word: u32) -> f32 {
    let x = (word as f32).mul_add(2.328_306_4e-10, 1.164_153_2e-10);
    let bits = x.to_bits();
    let biased = bits.wrapping_add(0x3f80_0000 - 0x3f35_04f3) >> 23;
    let f = f32::from_bits(bits.wrapping_sub(biased << 23).wrapping_add(0x3f80_0000)) - 1.0;
    let p = f.mul_add(f.mul_add(0.087_349_32, -0.143_075_5), 0.149_179_56);
    let p = f.mul_add(f.mul_add(f.mul_add(p, -0.165_705_04), 0.199_620_73), -0.250_017_55);
    let part = (f * f).mul_add(f.mul_add(f.mul_add(p, 0.333_339_5), -0.499_999_9), f);
    // Converts the exponent to a float through the low bits of 2^23.
    (f32::from_bits(0x4b00_0000 | biased) - 8_388_735.0).mul_add(std::f32::consts::LN_2, part)
}

/// ln((word / 2^11 + 1) / 2^53); from -36.8 to 0.
#[inline(always)]
fn ln_of_wide(word: u64) -> f64 {
    let x = ((word >> 11) + 1) as i64 as f64 * (1.0 / 9_007_199_254_740_992.0);
    let bits = x.to_bits();
    let biased = bits.wrapping_add(0x3ff0_0000_0000_0000 - 0x3fe6_a09e_667f_3bcd) >> 52;
    let m = f64::from_bits(bits.wrapping_sub(biased << 52).wrapping_add(0x3ff0_0000_0000_0000));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let part = 2.0 * s + (s * z) * polynomial(&LN, z);
    (f64::from_bits(0x4330_0000_0000_0000 | biased) - 4_503_599_627_371_519.0) * std::f64::consts::LN_2 + part
}

#[inline(always)]
fn polynomial(coefficients: &[f64; 6], x: f64) -> f64 {
    let [a, b, c, d, e, f] = *coefficients;
    a + x * (b + x * (c + x * (d + x * (e + x * f))))
}

/// Minimax over |t| <= pi / 4 in t^2, to 2^-58.
const SIN: [f64; 6] = [
    -0.166_666_666_666_666_32,
    0.008_333_333_333_322_418,
    -0.000_198_412_698_298_123_83,
    2.755_731_369_357_332e-6,
    -2.505_075_838_441_646_3e-8,
    1.589_681_179_859_990_4e-10,
];

/// Minimax over |t| <= pi / 4 in t^2, to 2^-54.
const COS: [f64; 6] = [
    -0.499_999_999_999_994_84,
    0.041_666_666_666_503_135,
    -0.001_388_888_887_172_083_7,
    2.480_157_901_411_201_2e-5,
    -2.755_529_597_785_909_3e-7,
    2.063_356_618_585_863e-9,
];

/// Minimax over m from sqrt(1/2) to sqrt(2), in ((m - 1) / (m + 1))^2, to 2^-51.
const LN: [f64; 6] = [
    0.666_666_666_665_871_6,
    0.400_000_000_523_021,
    0.285_714_171_248_330_6,
    0.222_233_720_570_908_48,
    0.181_236_298_878_079_04,
    0.168_199_807_039_751_32,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_known_answers() {
        // Random123's kat_vectors, philox4x32-10.
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([!0; 4], [!0; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, words) in cases {
            assert_eq!(philox(counter, key), words);
        }
    }

    #[test]
    fn adjacent_elements_share_a_philox_block() {
        let words = block(7, 12, 3);
        let drawn: Vec<u32> = (12..16).map(|i| word(i, 7, 12)).collect();
        assert_eq!(drawn, words);
        let [x, y, z, w] = words;
        assert_eq!((wide_word(6, 7, 12), wide_word(7, 7, 12)), (joined(x, y), joined(z, w)));
    }

    #[test]
    fn logarithms_and_angles_are_accurate() {
        for word in [0, 1, 2, 1000, 1 << 20, 1 << 31, 0xb504_f333, u32::MAX - 300, u32::MAX] {
            let exact = libm::log(f64::from(word as f32 * 2.328_306_4e-10 + 1.164_153_2e-10));
            assert!((f64::from(ln_of(word)) - exact).abs() <= 2e-7 * exact.abs(), "{word}");
        }
        for word in [0, 1 << 11, 1 << 40, 1 << 63, 0xb504_f333_f9de_6484, u64::MAX - (1 << 30), u64::MAX] {
            let exact = libm::log(((word >> 11) + 1) as f64 / 9_007_199_254_740_992.0);
            assert!((ln_of_wide(word) - exact).abs() <= 6e-16 * exact.abs(), "{word}");
        }
        // A pair of normal numbers has the angle given by its second word.
        for i in (0..4000i64).step_by(2) {
            let [x, y, z, w] = block(3, 0, i as u64 >> 2);
            let (radius, angle) = if i & 2 == 0 { (x, y) } else { (z, w) };
            let r = libm::sqrt(-2.0 * f64::from(ln_of(radius)));
            let turn = (f64::from(angle) / 1_073_741_824.0 - 0.5) * std::f64::consts::FRAC_PI_2;
            let (even, odd) = (normal(i, 3, 0), normal(i + 1, 3, 0));
            assert!((f64::from(even) - r * libm::cos(turn)).abs() < 4e-6, "{i}");
            assert!((f64::from(odd) - r * libm::sin(turn)).abs() < 4e-6, "{i}");
            let [x, y, z, w] = block(3, 0, i as u64 >> 1);
            let r = libm::sqrt(-2.0 * ln_of_wide(joined(x, y)));
            let turn =
                (joined(z, w) as f64 / 4_611_686_018_427_387_904.0 - 0.5) * std::f64::consts::FRAC_PI_2;
            assert!((normal_wide(i, 3, 0) - r * libm::cos(turn)).abs() < 1e-14, "{i}");
            assert!((normal_wide(i + 1, 3, 0) - r * libm::sin(turn)).abs() < 1e-14, "{i}");
        }
    }

    #[test]
    fn draws_have_their_distributions() {
        let count = 100_000;
        let moments = |f: &dyn Fn(i64) -> f64| {
            let (mut sum, mut squares) = (0.0, 0.0);
            for i in 0..count {
                sum += f(i);
                squares += f(i) * f(i);
            }
            let mean = sum / count as f64;
            (mean, squares / count as f64 - mean * mean)
        };
        let near = |(mean, variance): (f64, f64), (m, v): (f64, f64)| {
            assert!((mean - m).abs() < 0.02 && (variance - v).abs() < 0.05, "{mean} {variance}");
        };
        near(moments(&|i| f64::from(normal(i, 1, 4))), (0.0, 1.0));
        near(moments(&|i| normal_wide(i, 1, 4)), (0.0, 1.0));
        near(moments(&|i| f64::from(uniform(i, 1, 4, 24))), (0.5, 1.0 / 12.0));
        near(moments(&|i| uniform_wide(i, 1, 4)), (0.5, 1.0 / 12.0));
        near(moments(&|i| f64::from(exponential(i, 1, 4))), (1.0, 1.0));
        near(moments(&|i| exponential_wide(i, 1, 4)), (1.0, 1.0));
        let mut seen = [0; 3];
        for i in 0..30_000 {
            seen[below(i, 1, 4, 3) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
        assert!((0..1000).all(|i| uniform(i, 9, 0, 8) * 256.0 % 1.0 == 0.0));
        assert!((0..1000).any(|i| below(i, 9, 0, 0) < 0), "the whole range of 64 bits");
    }
}
