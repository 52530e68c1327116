//! Stencils over padded tensors, joined tensors, and steps that overwrite the interior of a copy, by scripts.

#![cfg(test)]

use super::device;
use crate::device::Backend;
use crate::engine::Engine;

/// Stencils of five and nine points with each mode, one that overwrites the interior, and the gradient of one. Sums of
/// a few small multiples of 1/8 are exact in each dtype but `u8`, whose sums wrap.
fn script(dtype: &str, rows: usize, columns: usize) -> String {
    format!(
        "let u = ((arange({rows} * {columns}) * 37 % 11).reshape({rows}, {columns}) / 8).to({dtype})\n\
         let w = u.clone()\n\
         let all = []\n\
         for k in 0..6 {{\n\
         for mode in [\"constant\", \"replicate\", \"reflect\", \"circular\"] {{\n\
             let p = w.pad([1, 1, 1, 1], mode=mode)\n\
             w = p[..-2, 1..-1] + p[2.., 1..-1] + p[1..-1, ..-2] + p[1..-1, 2..] - 3 * w\n\
             w = where(w > 1, u, where(w < 0, 0 * u, w))\n\
         }}\n\
         let p = w.pad([1, 1, 1, 1], value=1)\n\
         let m = p[..-2, ..-2]\n\
         for i in 0..3 {{ for j in 0..3 {{ m = maximum(m, p[i..{rows} + i, j..{columns} + j]) }} }}\n\
         let v = w.clone()\n\
         v[1..-1, 1..-1] = w[..-2, 1..-1] + w[2.., 1..-1] - w[1..-1, 1..-1]\n\
         w = where(v > 1, m, v).to({dtype})\n\
         }}\n\
         let x = u.float().requires_grad_()\n\
         let q = x.pad([1, 1, 1, 1])\n\
         (q[..-2, 1..-1] * 2 - q[2.., 1..-1] + q[1..-1, 2..]).backward(u.float())\n\
         str((w.tolist(), x.grad.tolist()))"
    )
}

/// Joined tensors along each dimension, whole and in parts, with computed parts, numbers, and other dtypes.
fn joining(dtype: &str, rows: usize, columns: usize) -> String {
    format!(
        "let u = ((arange({rows} * {columns}) * 37 % 11).reshape({rows}, {columns}) / 8).to({dtype})\n\
         let w = u.clone()\n\
         let all = []\n\
         for k in 0..4 {{\n\
             let half = {columns} // 2\n\
             let (a, b) = (w[.., ..half], w[.., half..])\n\
             w = u + cat([1 - b, a], 1)[.., ..{columns}]\n\
             w = w - cat([w[1..], u[..1]])\n\
             let c = stack([w, u * 2, u], -1)\n\
             all.append((c + 1).tolist())\n\
             let d = stack([u, w])\n\
             w = d[1] + (d * 2)[0] - cat([zeros({rows}, 1, dtype=u.dtype), w[.., ..-1]], 1)\n\
             let e = cat([w, u, w * 2], 1)\n\
             w = e[.., 1..1 + 2 * {columns} by 2] * 3 - e[.., {columns}..2 * {columns}]\n\
             all.append((cat([u, w.float()]) * 2).tolist())\n\
             w = where(w > 1, u, where(w < 0, 0 * u, w)).to({dtype})\n\
         }}\n\
         str((w.tolist(), all))"
    )
}

#[test]
fn stencils_and_joined_tensors_have_the_bits_of_the_host() {
    let Some(_gpu) = device() else { return };
    let run = |backend: Backend, fuse: bool, code: &str| {
        let engine = Engine::builder().backend(backend).devices(1).fuse(fuse).build();
        engine.unwrap().eval::<String>(code).unwrap_or_else(|e| panic!("{e:?}\n{code}"))
    };
    let shapes = [(64, 96), (37, 130), (5, 7), (300, 2)];
    // The first rounds are interpreted until the kernels are compiled.
    for _ in 0..3 {
        for dtype in ["f32", "bf16", "f16", "u8", "i64"] {
            for (rows, columns) in shapes {
                for code in [script(dtype, rows, columns), joining(dtype, rows, columns)] {
                    let expected = run(Backend::Emu, false, &code);
                    assert_eq!(run(Backend::Cuda, true, &code), expected, "{code}");
                    assert_eq!(run(Backend::Cuda, false, &code), expected, "{code}");
                }
            }
        }
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
}
