//! Products of large matrices of halves with the programs that read them, as one launch and as two.

#![cfg(test)]

use super::super::sources::mapped::mapped;
use super::*;
use crate::device::Backend;
use crate::engine::Engine;

/// Elements of the memory from which operands are filled.
const FILLED: usize = (1 << 18) - 8;

/// A device whose products are joined with programs.
fn joining() -> Option<Arc<CudaDriver>> {
    let gpu = device()?;
    if !gpu.maps_products() {
        skip("products by tiles", "there is no device of compute capability 9.0, or no cuBLAS");
        return None;
    }
    Some(gpu)
}

/// Numbers between -1 and 1 of a dtype, of which the first is not always the same.
fn fill(gpu: &dyn Side, ptr: Ptr, dtype: Dtype, count: usize, seed: u64) {
    let size = dtype.size();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0u8; count.min(FILLED) * size];
    for element in bytes.chunks_exact_mut(size) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let value = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        match dtype {
            Dtype::BF16 => element.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
            Dtype::F16 => element.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
            Dtype::F32 => element.copy_from_slice(&value.to_le_bytes()),
            _ => element[0] = u8::from(value > 0.0),
        }
    }
    for first in (0..count).step_by(FILLED) {
        let part = FILLED.min(count - first) * size;
        let to = ptr + (first * size) as u64;
        gpu.transfer(to, bytes.as_ptr() as u64, part as u64, CopyKind::HostToDevice);
    }
}

fn bytes_at(gpu: &dyn Side, ptr: Ptr, count: usize) -> Vec<u8> {
    let mut bytes = vec![0u8; count];
    gpu.transfer(bytes.as_mut_ptr() as u64, ptr, count as u64, CopyKind::DeviceToHost);
    bytes
}

#[test]
fn products_with_programs_have_the_bits_of_two_launches() {
    let Some(gpu) = joining() else { return };
    let mut state = 7u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for case in 0..60 {
        let extent = |draw: usize, other: usize| match draw % 3 {
            0 => 256 << (other % 4),
            _ => 8 * (32 + other % 300),
        };
        let (mut m, n) = (extent(below(3), below(1000)), extent(below(3), below(1000)));
        m = m.max((1usize << 20).div_ceil(n).next_multiple_of(8));
        let most = [8, 64, 384][below(3)];
        let k = 8 * (1 + below(most));
        let dtype = [Dtype::BF16, Dtype::F16][below(2)];
        let transposed = [below(2) == 1, below(2) == 1];
        let others: Vec<(Dtype, [isize; 2])> = (0..below(4))
            .map(|_| (below(4), below(4)))
            .map(|(dtype, strides)| {
                let dtype = [Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::Bool][dtype];
                (dtype, [[0, 1], [n as isize, 1], [1, 0], [0, 0]][strides])
            })
            .collect();
        let mut launch = mapped(dtype, [m, n, k], transposed, &others, case % 3 == 0);
        // Rows that the product does not have keep their values.
        let extents = |number: usize| match number {
            0 => m * k,
            1 => k * n,
            _ => m * n,
        };
        let outputs = launch.views.len() - 2..launch.views.len();
        for (number, view) in launch.views.iter_mut().enumerate() {
            view.ptr = gpu.take((extents(number) * view.dtype.size()) as u64 + 64);
            fill(&gpu, view.ptr, view.dtype, extents(number), case * 31 + number as u64);
        }
        let results = |launch: &Launch| -> Vec<Vec<u8>> {
            let stored = outputs.clone().chain((case % 3 == 0).then_some(2));
            let bytes = |number: usize| extents(number) * launch.views[number].dtype.size() + 64;
            stored.map(|number| bytes_at(&gpu, launch.views[number].ptr, bytes(number))).collect()
        };
        launch.program.kind.parts(&launch).iter().for_each(|part| gpu.run(part));
        let expected = results(&launch);
        for number in outputs.clone().chain([2]) {
            let view = &launch.views[number];
            fill(&gpu, view.ptr, view.dtype, extents(number), 999);
        }
        gpu.make_ready(Some(&launch), 0).unwrap();
        assert!(gpu.prepared(&launch));
        gpu.run(&launch);
        for (number, (got, want)) in results(&launch).iter().zip(&expected).enumerate() {
            let differing = got.iter().zip(want).filter(|(a, b)| a != b).count();
            assert!(
                differing == 0,
                "case {case}, {m} x {n} x {k}, {dtype}, {transposed:?}, {others:?}: {differing} bytes of result {number}"
            );
        }
        launch.views.iter().for_each(|view| gpu.give(view.ptr));
    }
}

#[test]
fn scripts_have_the_same_values_whether_products_are_joined_or_not() {
    let Some(_gpu) = joining() else { return };
    // Faults of other tests would be raised here.
    let _turn = FAULTS.lock();
    let code = |dtype: &str| {
        format!(
            "manual_seed(3)\n\
             let (x, w, b) = (randn(2048, 520).to({dtype}), (randn(520, 1032) * 0.1).to({dtype}), randn(1032).to({dtype}))\n\
             let (r, all) = (randn(2048, 1032).to({dtype}), [])\n\
             let note = |t| all.append((t.float().double().sum().item(), t.float().abs().max().item(), t[77, 5].item()))\n\
             note(gelu(x @ w + b))\n\
             note(r + (x @ w + b))\n\
             let h = x @ w\n\
             note(h.sigmoid() * h)\n\
             note(h)\n\
             h += b\n\
             note(h)\n\
             note(x.linear(w.T.contiguous(), b).relu())\n\
             note((x.T.contiguous() @ r) * 0.01)\n\
             for t in [x, w, b] {{ t.requires_grad_() }}\n\
             gelu(x @ w + b, approximate=\"tanh\").float().square().mean().backward()\n\
             for t in [x, w, b] {{ all.append(t.grad.double().abs().sum().item()) }}\n\
             let g = Graph()\n\
             let out = zeros(2048, 1032, dtype={dtype})\n\
             with no_grad() {{\n\
                 with graph(g) {{ out.copy_((x @ w + b).tanh()) }}\n\
                 g.replay()\n\
                 note(out)\n\
             }}\n\
             str(all)"
        )
    };
    let run = |fuse: bool, code: &str| {
        let engine = Engine::builder().backend(Backend::Cuda).devices(1).fuse(fuse).build();
        engine.unwrap().eval::<String>(code).unwrap_or_else(|e| panic!("{e:?}\n{code}"))
    };
    for dtype in ["bf16", "f16"] {
        let expected = run(false, &code(dtype));
        for _ in 0..3 {
            assert_eq!(run(true, &code(dtype)), expected, "{dtype}");
            std::thread::sleep(std::time::Duration::from_secs(2));
        }
    }
}
