//! Fourier transforms by our own kernels. The reference is the host's transform in `f64`.

#![cfg(test)]

use super::*;
use crate::kernel::cuda::Planned;
use crate::kernel::fft::{Fft, FftPlan, FftSpec, OwnPlan, Transform};
use crate::kernel::host::{self, FaultSlot};

/// Number of reals in the input and the output.
fn counts(spec: &FftSpec) -> [usize; 2] {
    let (signal, half) = (count(&spec.extents), count(&spec.half()));
    let [from, to] = match spec.transform {
        Transform::Complex => [2 * signal; 2],
        Transform::FromReal => [signal, 2 * half],
        Transform::ToReal => [2 * half, signal],
    };
    [from, to].map(|count| spec.batch * count)
}

fn on_host(spec: &FftSpec, inverse: bool, input: &[f64]) -> Vec<f64> {
    let spec = FftSpec { part: Dtype::F64, ..spec.clone() };
    let mut out = vec![0.0; counts(&spec)[1]];
    let plan = host::fft::plan(&spec);
    let extents: Vec<usize> = std::iter::once(spec.batch).chain(spec.extents.iter().copied()).collect();
    let views = [input.as_ptr() as u64, out.as_mut_ptr() as u64];
    let views = views.map(|ptr| View::new(ptr, Dtype::F64, Strides::default()));
    let work = launch(&program(Fft { spec, inverse, plan }), &extents, views.to_vec(), &[]);
    // SAFETY: the vectors hold as many numbers as the transform reads and writes.
    unsafe { work.program.kind.run(&work, &FaultSlot::default()) };
    out
}

/// The root of the mean square of the differences, relative to that of the results.
fn error(gpu: &dyn Side, spec: &FftSpec, inverse: bool) -> f64 {
    let [from, to] = counts(spec);
    let random = |count: usize| -> Vec<f64> {
        (0..count as u64).map(|i| (mix(i) >> 11) as f64 / 2f64.powi(52) - 1.0).collect()
    };
    let mut input: Vec<f64> = if spec.transform == Transform::ToReal {
        let forward = FftSpec { transform: Transform::FromReal, ..spec.clone() };
        on_host(&forward, false, &random(to))
    } else {
        random(from)
    };
    let single = spec.part == Dtype::F32;
    if single {
        input.iter_mut().for_each(|value| *value = f64::from(*value as f32));
    }
    let want = on_host(spec, inverse, &input);
    let size = spec.part.size();
    let words = |count: usize| (count * size).div_ceil(8) + 8;
    let bytes = |values: &[f64]| -> Vec<u8> {
        let bytes = |&value: &f64| match single {
            true => (value as f32).to_le_bytes().to_vec(),
            false => value.to_le_bytes().to_vec(),
        };
        values.iter().flat_map(bytes).collect()
    };
    // Memory that must not be read or written is filled with nan.
    let filled = |words: usize| {
        let ptr = gpu.take(8 * words as u64);
        gpu.transfer(ptr, vec![u64::MAX; words].as_ptr() as u64, 8 * words as u64, CopyKind::HostToDevice);
        ptr
    };
    let own = OwnPlan::new(spec);
    let held = bytes(&input);
    let [source, out, workspace] =
        [words(from), words(to), own.workspace().div_ceil(8) as usize + 8].map(filled);
    gpu.transfer(source, held.as_ptr() as u64, held.len() as u64, CopyKind::HostToDevice);
    gpu.run(&own.launch(&Planned { plan: &own, inverse, input: source, out, workspace }));
    let read = |ptr, bytes: usize| {
        let mut read = vec![0u8; bytes];
        gpu.transfer(read.as_mut_ptr() as u64, ptr, bytes as u64, CopyKind::DeviceToHost);
        read
    };
    let (got, kept) = (read(out, 8 * words(to)), read(source, held.len()));
    assert!(got[to * size..].iter().all(|&byte| byte == u8::MAX), "{spec:?} writes behind its out");
    assert_eq!(kept, held, "{spec:?} writes its input");
    let workspace_bytes = own.workspace() as usize;
    assert!(
        read(workspace + workspace_bytes as u64, 64).iter().all(|&byte| byte == u8::MAX),
        "{spec:?} writes behind its workspace"
    );
    [source, out, workspace].into_iter().for_each(|ptr| gpu.give(ptr));
    let (mut off, mut whole) = (0.0, 0.0);
    for (at, want) in want.iter().enumerate() {
        let bytes = &got[at * size..][..size];
        let got = match single {
            true => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
            false => f64::from_le_bytes(bytes.try_into().unwrap()),
        };
        off += (got - want).powi(2);
        whole += want.powi(2);
    }
    (off / whole).sqrt()
}

/// Checks a transform in both directions and dtypes.
fn check(gpu: &dyn Side, transform: Transform, batch: usize, extents: &[usize]) {
    let length = count(extents) as f64;
    // In `f64` the reference has errors too.
    for (part, unit, bound) in [(Dtype::F32, f64::from(f32::EPSILON), 0.4), (Dtype::F64, f64::EPSILON, 0.8)] {
        let spec = FftSpec { transform, part, extents: extents.into(), batch };
        for inverse in [false, true] {
            if inverse == (transform == Transform::FromReal) && transform != Transform::Complex {
                continue;
            }
            let error = error(gpu, &spec, inverse);
            let most = bound * unit * (1.0 + length.log2());
            assert!(error <= most, "{spec:?} inverse {inverse}: {error:e}, at most {most:e}");
        }
    }
}

const ALL: [Transform; 3] = [Transform::Complex, Transform::FromReal, Transform::ToReal];

#[test]
fn transforms_of_all_short_lengths() {
    let Some(gpu) = side() else { return };
    for length in 1..=300 {
        check(&gpu, Transform::Complex, 1 + length % 3, &[length]);
    }
    for length in (1..80).chain([128, 134, 201, 255, 256]) {
        check(&gpu, Transform::FromReal, 1 + length % 3, &[length]);
        check(&gpu, Transform::ToReal, 1 + length % 3, &[length]);
    }
}

/// Powers, products and primes, of one pass and several.
#[test]
fn transforms_of_long_lengths() {
    let Some(gpu) = side() else { return };
    for length in [1021, 1024, 1458, 2048, 2049, 3721, 4096, 6561, 10007, 16807, 61 * 61 * 8, 65536, 99991] {
        check(&gpu, Transform::Complex, 1, &[length]);
    }
    for length in [1000, 3001, 4098, 8192, 9973, 30030] {
        for transform in ALL {
            check(&gpu, transform, 2, &[length]);
        }
    }
    check(&gpu, Transform::FromReal, 1, &[1 << 18]);
    check(&gpu, Transform::Complex, 1, &[1 << 20]);
}

#[test]
fn transforms_of_many_signals_and_dimensions() {
    let Some(gpu) = side() else { return };
    let cases: &[(usize, &[usize])] = &[
        (3, &[5, 7, 9]),
        (1, &[64, 3]),
        (2, &[16, 2, 33]),
        (1, &[1, 1]),
        (5, &[1, 6]),
        (5, &[6, 1]),
        (1, &[4100, 3]),
        (2, &[67, 12]),
        (3, &[5, 71]),
        (1, &[3, 5000]),
        (1, &[73, 2, 79]),
        (700, &[4]),
        (700, &[2, 3]),
        (40, &[67]),
    ];
    for &(batch, extents) in cases {
        for transform in ALL {
            check(&gpu, transform, batch, extents);
        }
    }
    // More signals than one batch of a convolution.
    check(&gpu, Transform::Complex, 70, &[1031]);
    check(&gpu, Transform::Complex, 2, &[67, 70]);
}
