//! Tensors that operations create internally: constants and positions.

use crate::array::{Dims, Dtype, Layout, Scalar};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::kernel::host::define::{host_binary, host_ternary};
use crate::kernel::host::isa::multiversion;
use crate::kernel::{CAST, CudaText, MapFn, Reg, RegMut};
use crate::plan::{Elementwise, MapArg, Runtime};
use crate::tensor::Tensor;

/// A tensor filled with one value.
pub fn filled(
    rt: &mut Runtime,
    shape: &[usize],
    dtype: Dtype,
    device: DeviceId,
    value: Scalar,
) -> Result<Tensor> {
    rt.map_over(
        Elementwise::new("full", &CAST, &[MapArg::Number(value)], dtype, dtype),
        Dims::from_slice(shape),
        device,
    )
}

/// A new dense tensor in another shape: itself, if it has that shape already.
pub fn in_shape(new: Tensor, shape: &Dims) -> Tensor {
    if new.shape() == shape { new } else { new.with_layout(Layout::contiguous(shape)) }
}

/// `start + i * step` for `i` in `0..count`, `i64`.
pub fn positions(rt: &mut Runtime, device: DeviceId, count: usize, start: i64, step: i64) -> Result<Tensor> {
    let args = [MapArg::Position, MapArg::Number(Scalar::Int(step)), MapArg::Number(Scalar::Int(start))];
    rt.map_over(
        Elementwise::new("positions", &AFFINE, &args, Dtype::I64, Dtype::I64),
        Dims::from_slice(&[count]),
        device,
    )
}

/// `a * b + c` over integers, wrapping.
pub static AFFINE: MapFn = MapFn {
    name: "affine",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "(i64)((u64)a * (u64)b + (u64)c)" },
    host: host_ternary!(i64: |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
    complex: None,
};

/// `(a / b) % c` over integers: one coordinate of a row-major position. 0 if a divisor is 0.
pub static DIGIT: MapFn = MapFn {
    name: "digit",
    arity: 3,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "((b == 0 || c == 0) ? 0 : (a / b) % c)" },
    host: &digits,
    complex: None,
};

/// [`DIGIT`] on the host. Integers below 2^51 are divided as floats, several at a time: a quotient that is not whole is
/// farther from the next integer than it is rounded.
fn digits(args: &[Reg<'_>], out: RegMut<'_>) -> bool {
    #[inline(always)]
    fn short(a: &[i64], b: &[i64], c: &[i64], out: &mut [i64]) {
        const WHOLE: f64 = (1u64 << 52) as f64;
        let float = |x: i64| f64::from_bits(x as u64 | WHOLE.to_bits()) - WHOLE;
        for (i, out) in out.iter_mut().enumerate() {
            let (b, c) = (float(b[i]), float(c[i]));
            let quotient = (float(a[i]) / b).trunc();
            let digit = quotient - (quotient / c).trunc() * c;
            *out = ((digit + WHOLE).to_bits() ^ WHOLE.to_bits()) as i64;
        }
    }
    #[inline(always)]
    fn are_short(a: &[i64], b: &[i64], c: &[i64]) -> bool {
        const LONG: i64 = -1 << 51;
        let (mut bits, mut least) = (0, 1);
        for ((&a, &b), &c) in a.iter().zip(b).zip(c) {
            bits |= a | b | c;
            least = least.min(b).min(c);
        }
        bits & LONG == 0 && least > 0
    }
    let (&[Reg::I64(a), Reg::I64(b), Reg::I64(c)], RegMut::I64(out)) = (args, out) else { return false };
    let n = out.len();
    let (a, b, c) = (&a[..n], &b[..n], &c[..n]);
    if multiversion!(are_short(a: &[i64] = a, b: &[i64] = b, c: &[i64] = c) -> bool) {
        multiversion!(short(a: &[i64] = a, b: &[i64] = b, c: &[i64] = c, out: &mut [i64] = out));
        return true;
    }
    for (i, out) in out.iter_mut().enumerate() {
        let (a, b, c) = (a[i], b[i], c[i]);
        *out = if b == 0 || c == 0 { 0 } else { a.wrapping_div(b).wrapping_rem(c) };
    }
    true
}

/// A position, counted from the start; a negative one counts from the end of an extent. Positions out of
/// range become 0.
pub static WRAPPED: MapFn = MapFn {
    name: "wrapped",
    arity: 2,
    select: false,
    cuda: CudaText { f32: "", f64: "", i64: "((a < -b || a >= b) ? 0 : (a < 0 ? a + b : a))" },
    host: host_binary!(i64: |a, b| {
        if a < b.wrapping_neg() || a >= b { 0 } else if a < 0 { a.wrapping_add(b) } else { a }
    }),
    complex: None,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::host::isa::at_every_level;

    #[test]
    fn digits_are_those_of_integer_divisions() {
        let edges =
            [0, 1, 2, 3, 7, 1000, (1 << 26) - 1, 1 << 26, (1 << 51) - 1, 1 << 51, i64::MAX, -1, -7, i64::MIN];
        at_every_level(|_| {
            for b in edges {
                for c in edges {
                    let products =
                        edges.iter().flat_map(|&q| [-1, 0, 1].map(|d| q.wrapping_mul(b).wrapping_add(d)));
                    let all: Vec<i64> = edges.into_iter().chain(products).collect();
                    // All numbers, and those that are divided as floats.
                    for a in [all.clone(), all.into_iter().filter(|a| (0..1 << 51).contains(a)).collect()] {
                        let (many_b, many_c) = (vec![b; a.len()], vec![c; a.len()]);
                        let mut out = vec![0; a.len()];
                        assert!(digits(
                            &[Reg::I64(&a), Reg::I64(&many_b), Reg::I64(&many_c)],
                            RegMut::I64(&mut out)
                        ));
                        for (&a, &out) in a.iter().zip(&out) {
                            let want = if b == 0 || c == 0 { 0 } else { a.wrapping_div(b).wrapping_rem(c) };
                            assert_eq!(out, want, "{a} {b} {c}");
                        }
                    }
                }
            }
        });
    }
}
