//! Programs, and the interface of a program kind.
//!
//! A kind is its own type: a file that implements [`Kind`], and the line that names its module. The planner,
//! executors and profiles use programs only through this trait. Only code that builds a program names its
//! kind.

use super::Launch;
use super::cuda::{CudaSource, Queue, Signature};
use super::host::FaultSlot;
use crate::array::Dtype;
use crate::base::Result;
use foldhash::fast::FixedState;
use std::any::Any;
use std::fmt::{self, Debug, Write};
use std::hash::{BuildHasher, Hash, Hasher};

/// The structure of a launch, without sizes. Immutable and shared. Equal programs run the same code, so
/// executors keep compiled forms by program.
pub struct Program {
    /// The code.
    pub kind: Box<dyn Kind>,
    /// [`Kind::label`].
    pub label: String,
}

/// A kind of program. Views are numbered as in [`Launch::views`].
///
/// The default methods fit a kind that reads and writes its views once, cannot fail, and does nothing over an
/// empty shape.
pub trait Kind: Identity + Debug + Send + Sync {
    /// A short name, made of function names if there are any: `add+mul+sum`, `sort`.
    fn label(&self) -> String;
    /// True when the program may hold several operations. Its label then names it better than the operation
    /// that submitted it.
    fn is_fused(&self) -> bool {
        false
    }
    /// Writes the lines of [`Launch::listing`].
    fn list(&self, launch: &Launch, text: &mut String) {
        for (number, view) in launch.views.iter().enumerate() {
            let _ =
                writeln!(text, "view {number}: {} by {}", view.dtype, super::listing::steps(&view.strides));
        }
    }

    /// The dtype whose values are compared or combined in order, which is undefined for complex numbers.
    fn ordered(&self) -> Option<Dtype> {
        None
    }
    /// True when a launch may report a [`Fault`](super::Fault).
    fn may_fault(&self) -> bool {
        false
    }
    /// True when elements of the written views keep their values unless the program writes them.
    fn updates(&self) -> bool {
        false
    }
    /// Operations to charge for a launch over this shape, beyond its elements.
    fn work(&self, shape: &[usize]) -> usize {
        let _ = shape;
        0
    }
    /// Operations per element that are fused into a launch, for charging a replay as its operations were charged.
    fn fused(&self) -> usize {
        1
    }
    /// False when the value holds a resource of one device. Such programs stay out of program tables and have
    /// no CUDA source.
    fn is_plain(&self) -> bool {
        true
    }
    /// True when a launch has nothing to compute.
    fn is_empty(&self, launch: &Launch) -> bool {
        launch.shape.contains(&0)
    }
    /// The number of elements that a launch iterates over.
    fn elements(&self, launch: &Launch) -> u64 {
        launch.shape.iter().fold(1u64, |n, &extent| n.saturating_mul(extent as u64))
    }
    /// The bytes that a launch reads and writes.
    fn bytes(&self, launch: &Launch) -> u64 {
        let bytes = launch.views.iter().map(|view| {
            let is_read = |stride: isize| stride != 0 || view.indexed.is_some();
            let extents = launch.shape.iter().enumerate().zip(&view.strides);
            let read = extents.filter(|(_, stride)| is_read(**stride)).map(|((d, &extent), _)| {
                view.padding.as_ref().map_or(extent, |padding| padding.inside[d][1] - padding.inside[d][0])
            });
            read.fold(view.dtype.size() as u64, |n, extent| n.saturating_mul(extent as u64))
        });
        bytes.fold(0, u64::saturating_add)
    }
    /// Modelled nanoseconds on an emulated device: 1 us to start, 1 TB/s of memory, 10 TFLOP/s.
    fn cost(&self, launch: &Launch) -> u64 {
        1000 + self.elements(launch).saturating_mul(4 * launch.views.len() as u64) / 1000
    }

    /// Runs a launch on the CPU, in parallel when large. Faults go to the slot.
    ///
    /// # Safety
    /// As for [`host::run`](super::host::run).
    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot);
    /// The memory in bytes that `run` allocates, where it is proportional to the operands.
    fn scratch(&self, launch: &Launch) -> u64 {
        let _ = launch;
        0
    }

    /// The properties of a launch, besides the program, that its CUDA source depends on.
    fn signature(&self, launch: &Launch) -> Signature {
        let _ = launch;
        Signature::default()
    }
    /// The CUDA source; without kernels if a library of the device does all the work. The same signature
    /// always gives the same text.
    fn source(&self, signature: Signature) -> CudaSource;
    /// Queues a launch whose source has been compiled and loaded.
    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()>;
    /// Queues a launch through the ready-made kernel that interprets programs, with the same bits; false when
    /// this program cannot be interpreted, and nothing is queued.
    fn interpret(&self, launch: &Launch, queue: &mut dyn Queue) -> Result<bool> {
        let _ = (launch, queue);
        Ok(false)
    }
    /// True when every launch has a source that ships compiled.
    fn ships(&self) -> bool {
        false
    }
    /// The signature of a source that serves more launches than this one and gives the same bits: for any dtype or any
    /// rank. Such kernels ship compiled; `source` and `enqueue` take the signature as one of their own.
    fn general(&self, launch: &Launch) -> Option<Signature> {
        let _ = launch;
        None
    }
    /// Other programs that `enqueue` queues, to be compiled before this launch is captured in a graph.
    fn parts(&self, launch: &Launch) -> Vec<Launch> {
        let _ = launch;
        Vec::new()
    }
    /// True when `enqueue` calls [`Queue::multiply`], which needs a handle and a workspace of the stream.
    fn multiplies(&self, launch: &Launch) -> bool {
        let _ = launch;
        false
    }
}

/// Comparison and copies of boxed kinds. Implemented for every kind that is `Clone + Eq + Hash`.
pub trait Identity: Any {
    /// True when `other` has the same kind and is equal.
    fn equals(&self, other: &dyn Kind) -> bool;
    /// Equal for equal values.
    fn fingerprint(&self) -> u64;
    /// A copy.
    fn boxed(&self) -> Box<dyn Kind>;
}

impl<K: Kind + Clone + Eq + Hash> Identity for K {
    #[inline]
    fn equals(&self, other: &dyn Kind) -> bool {
        (other as &dyn Any).downcast_ref::<K>().is_some_and(|other| self == other)
    }

    fn fingerprint(&self) -> u64 {
        FixedState::default().hash_one((std::any::TypeId::of::<K>(), self))
    }

    fn boxed(&self) -> Box<dyn Kind> {
        Box::new(self.clone())
    }
}

impl Program {
    /// Makes a program from a kind's value.
    pub fn new(kind: &dyn Kind) -> Program {
        Program { kind: kind.boxed(), label: kind.label() }
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        self.kind.equals(&*other.kind)
    }
}

impl Eq for Program {}

impl Hash for Program {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.kind.fingerprint());
    }
}

/// The full structure of the program.
impl Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}
