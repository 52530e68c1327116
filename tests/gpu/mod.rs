//! Tests on a real device; skipped with a note on machines without one. Tests that need only memory and launches run on
//! the CPU instead (`on_cpu`).
//!
//! Results are compared with the host's executor if the semantics fix every bit, and otherwise with short
//! references.

mod batches;
mod complex;
mod driver;
mod fft;
mod folds;
mod gathers;
mod graphs;
mod links;
mod mapped;
mod mapping;
mod maps;
mod moves;
pub(super) mod on_cpu;
mod pads;
mod peers;
mod products;
mod profiling;
mod ready;
mod recurrent;
mod rows;
mod scatters;
mod tiles;
mod timing;

use super::driver::{CudaDriver, open_device};
use super::skip;
use crate::array::{Dims, Dtype, Strides, contiguous_strides};
use crate::driver::{CopyKind, Driver};
use crate::kernel::{Fault, Kind, Launch, Program, Ptr, View};
use half::{bf16, f16};
use smallvec::SmallVec;
use std::sync::Arc;

/// The first device; `None`, with a note, if there is none.
fn device() -> Option<Arc<CudaDriver>> {
    match super::probe().problem {
        Some(problem) => {
            skip("a GPU", problem);
            None
        }
        None => Some(open_device(0).unwrap()),
    }
}

/// Memory and launches of a GPU, or of the CPU instead.
trait Side {
    fn take(&self, bytes: u64) -> Ptr;
    fn give(&self, ptr: Ptr);
    /// Copies, and waits for it.
    fn transfer(&self, to: u64, from: u64, bytes: u64, kind: CopyKind);
    /// Runs a launch and waits for it.
    fn run(&self, launch: &Launch);
    /// The fault that launches have reported since the last call.
    fn fault(&self) -> Option<Fault>;
    fn has_fault(&self) -> bool {
        self.fault().is_some()
    }
}

impl Side for CudaDriver {
    fn take(&self, bytes: u64) -> Ptr {
        self.alloc(bytes).unwrap()
    }
    fn give(&self, ptr: Ptr) {
        self.free(ptr, 0);
    }
    fn transfer(&self, to: u64, from: u64, bytes: u64, kind: CopyKind) {
        self.copy(to, from, bytes, kind, 0).unwrap();
        self.stream_synchronize(0).unwrap();
    }
    fn run(&self, launch: &Launch) {
        self.launch(launch, 0).unwrap_or_else(|e| panic!("{e}: {:?}", launch.program));
        self.stream_synchronize(0).unwrap_or_else(|e| panic!("{e}: {:?}", launch.program));
    }
    fn fault(&self) -> Option<Fault> {
        self.take_fault()
    }
}

impl<S: Side + ?Sized> Side for Arc<S> {
    fn take(&self, bytes: u64) -> Ptr {
        (**self).take(bytes)
    }
    fn give(&self, ptr: Ptr) {
        (**self).give(ptr);
    }
    fn transfer(&self, to: u64, from: u64, bytes: u64, kind: CopyKind) {
        (**self).transfer(to, from, bytes, kind);
    }
    fn run(&self, launch: &Launch) {
        (**self).run(launch);
    }
    fn fault(&self) -> Option<Fault> {
        (**self).fault()
    }
}

/// The first device, or the CPU instead; `None`, with a note, if there is no C++ compiler either.
fn side() -> Option<Arc<dyn Side>> {
    if super::probe().problem.is_none() {
        return Some(open_device(0).unwrap());
    }
    match on_cpu::find() {
        Some(cpu) => Some(Arc::new(cpu)),
        None => {
            skip("a GPU or a C++ compiler", "there is no GPU, and no C++ compiler");
            None
        }
    }
}

/// A device has one fault slot, so tests that use it run one at a time.
static FAULTS: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// A tensor on both sides: its whole storage, dtype and strides.
#[derive(Clone, Debug)]
struct Pair {
    dtype: Dtype,
    strides: Strides,
    /// Elements in front of the first one, to unalign the view.
    offset: usize,
    bytes: Vec<u64>,
    device: Ptr,
}

impl Pair {
    /// Random elements with these strides; floats include special values.
    fn random(gpu: &dyn Side, dtype: Dtype, shape: &[usize], strides: &[isize], seed: u64) -> Pair {
        Pair::at(gpu, dtype, shape, strides, 0, seed)
    }

    fn at(
        gpu: &dyn Side,
        dtype: Dtype,
        shape: &[usize],
        strides: &[isize],
        offset: usize,
        seed: u64,
    ) -> Pair {
        let reach: usize = shape.iter().zip(strides).map(|(&n, &s)| n.saturating_sub(1) * s as usize).sum();
        let count = offset + reach + 1;
        let bytes = vec![0u64; (count * dtype.size()).div_ceil(8) + 1];
        let mut pair = Pair { dtype: dtype.real(), strides: strides.into(), offset, bytes, device: 0 };
        for i in 0..count * dtype.size() / dtype.real().size() {
            pair.set_raw(i, random_bits(pair.dtype, i as u64 ^ seed << 32));
        }
        pair.dtype = dtype;
        pair.device = gpu.take(8 * pair.bytes.len() as u64);
        pair.upload(gpu);
        pair
    }

    fn dense(gpu: &dyn Side, dtype: Dtype, shape: &[usize], seed: u64) -> Pair {
        Pair::random(gpu, dtype, shape, &contiguous_strides(shape), seed)
    }

    fn upload(&self, gpu: &dyn Side) {
        let bytes = 8 * self.bytes.len() as u64;
        gpu.transfer(self.device, self.bytes.as_ptr() as u64, bytes, CopyKind::HostToDevice);
    }

    /// Copies the device's elements to the host.
    fn download(&self, gpu: &dyn Side) -> Pair {
        let mut copy = self.clone();
        let bytes = 8 * self.bytes.len() as u64;
        gpu.transfer(copy.bytes.as_mut_ptr() as u64, self.device, bytes, CopyKind::DeviceToHost);
        copy
    }

    fn on_device(&self) -> View {
        let ptr = self.device + (self.offset * self.dtype.size()) as u64;
        View::new(ptr, self.dtype, self.strides.clone())
    }

    fn on_host(&mut self) -> View {
        let ptr = self.bytes.as_mut_ptr() as u64 + (self.offset * self.dtype.size()) as u64;
        View::new(ptr, self.dtype, self.strides.clone())
    }

    fn raw(&self, at: usize) -> u64 {
        let size = self.dtype.size();
        self.bytes[at * size / 8] >> (at * size % 8 * 8) & (u64::MAX >> (64 - 8 * size))
    }

    fn set_raw(&mut self, at: usize, bits: u64) {
        let size = self.dtype.size();
        let (word, shift) = (at * size / 8, at * size % 8 * 8);
        let mask = u64::MAX >> (64 - 8 * size);
        self.bytes[word] = self.bytes[word] & !(mask << shift) | (bits & mask) << shift;
    }

    /// The bits of the element at a row-major position of `shape`.
    fn bits(&self, shape: &[usize], position: usize) -> u64 {
        self.raw(self.place(shape, position))
    }

    fn place(&self, shape: &[usize], mut position: usize) -> usize {
        let mut at = self.offset;
        for (d, &n) in shape.iter().enumerate().rev() {
            at += position % n * self.strides[d] as usize;
            position /= n;
        }
        at
    }

    /// The first real number that differs in the whole storage (a complex number is two): its index, and both
    /// bits.
    fn difference(&self, other: &Pair) -> Option<(usize, u64, u64)> {
        if self.bytes == other.bytes {
            return None;
        }
        let part = self.dtype.real();
        let (a, b) = (Pair { dtype: part, ..self.clone() }, Pair { dtype: part, ..other.clone() });
        (0..8 * a.bytes.len() / part.size())
            .map(|i| (i, a.raw(i), b.raw(i)))
            .find(|&(_, a, b)| !same(part, a, b))
    }

    fn value(&self, shape: &[usize], position: usize) -> f64 {
        number(self.dtype, self.bits(shape, position))
    }

    fn free(self, gpu: &dyn Side) {
        gpu.give(self.device);
    }
}

/// An element as a number.
fn number(dtype: Dtype, bits: u64) -> f64 {
    match dtype {
        Dtype::Bool => f64::from(u8::from(bits != 0)),
        Dtype::F16 => f64::from(f16::from_bits(bits as u16)),
        Dtype::BF16 => f64::from(bf16::from_bits(bits as u16)),
        Dtype::F32 => f64::from(f32::from_bits(bits as u32)),
        Dtype::F64 => f64::from_bits(bits),
        integer => crate::kernel::host::tests::whole(integer, bits) as f64,
    }
}

fn bits_of(dtype: Dtype, value: f64) -> u64 {
    match dtype {
        Dtype::Bool => u64::from(value != 0.0),
        Dtype::F16 => u64::from(f16::from_f64(value).to_bits()),
        Dtype::BF16 => u64::from(bf16::from_f64(value).to_bits()),
        Dtype::F32 => u64::from((value as f32).to_bits()),
        Dtype::F64 => value.to_bits(),
        _ => value as i64 as u64,
    }
}

fn mix(i: u64) -> u64 {
    let mut x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 32
}

fn random_bits(dtype: Dtype, i: u64) -> u64 {
    let x = mix(i);
    if !dtype.is_float() {
        return if dtype == Dtype::Bool { x & 1 } else { x >> 5 };
    }
    let value = match x % 41 {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        3 => -0.0,
        4 => 1e-7,
        5 => 65519.0,
        6 => 6e-8,
        _ => ((x >> 8) % 4096) as f64 / 16.0 - 128.0,
    };
    bits_of(dtype, value)
}

/// True for two nans or equal bits.
fn same(dtype: Dtype, a: u64, b: u64) -> bool {
    a == b || dtype.is_float() && number(dtype, a).is_nan() && number(dtype, b).is_nan()
}

fn launch(program: &Arc<Program>, shape: &[usize], views: Vec<View>, numbers: &[u64]) -> Launch {
    Launch {
        numbers: SmallVec::from(numbers),
        ..Launch::new(program.clone(), Dims::from(shape), SmallVec::from_vec(views))
    }
}

fn program(kind: impl Kind) -> Arc<Program> {
    Arc::new(Program::new(&kind))
}

fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Runs a launch and waits for it.
fn run(gpu: &dyn Side, launch: &Launch) {
    gpu.run(launch);
}
