//! Tensors: a layout over late-bound storage.
//!
//! A [`Tensor`] is a handle: dtype, [`Layout`] and a shared [`Storage`]. It knows where its bytes are (or
//! will be) and how to read them; `plan` computes them. Views share storage. Handles are `Send + Sync`.

mod generator;
mod print;
mod relaid;
mod sorted;
mod storage;
mod track;

pub use generator::{Generator, GeneratorState};
pub use print::{PrintOptions, corner_shape, format_corner, format_tensor, tensor_source};
pub use sorted::{IndexPart, SortedIndex, SortedIndices};
pub use storage::{Memory, Pending, Storage};
pub use track::Edge;
pub(crate) use track::{Mark, Origin};

use crate::array::{Dims, Dtype, Layout};
use crate::base::Piece;
use crate::driver::DeviceId;
use crate::stream::races::Region;
use relaid::Relaid;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock, Weak};
use track::Track;

/// A tensor.
///
/// Invariant: all elements of the layout lie within the storage.
///
/// Example: `zeros(2, 3).t()` has shape `[3, 2]`, strides `[1, 3]`, and the storage of the zeros.
#[derive(Clone)]
pub struct Tensor(Arc<Content>);

struct Content {
    base: Base,
    layout: Layout,
    dtype: Dtype,
    /// The number of references that gradient records keep. Counted in the storage's first tensor.
    kept: AtomicU32,
    /// State that few tensors have.
    extra: OnceLock<Box<Extra>>,
}

/// State that few tensors have.
#[derive(Default)]
struct Extra {
    /// Later layouts, set in place: `x.t_()`.
    relaid: OnceLock<Box<Relaid>>,
    /// The recording of gradients.
    track: Track,
}

/// The location of a tensor's storage. A tensor created with its storage shares one allocation with it.
#[allow(clippy::large_enum_variant, reason = "boxing would add the second allocation that this avoids")]
enum Base {
    Own(Storage),
    Of(StorageRef),
}

/// Uninitialised memory for a tensor with its own storage. The content is written in place: it is large, and
/// moving it would cost as much as an operation.
pub struct Room(Arc<MaybeUninit<Content>>);

/// A counted reference to a storage.
#[derive(Clone)]
pub struct StorageRef(Arc<Content>);

/// A weak reference to a storage.
#[derive(Clone)]
pub struct WeakStorage(Weak<Content>);

impl Tensor {
    /// A tensor with its own storage. The layout must lie within it.
    #[doc(hidden)]
    #[inline]
    pub fn new(storage: Storage, layout: Layout, dtype: Dtype) -> Tensor {
        Room::default().fill(storage, layout, dtype)
    }

    /// A tensor over the same storage. The layout must lie within it.
    #[doc(hidden)]
    pub fn view(&self, layout: Layout, dtype: Dtype) -> Tensor {
        self.storage_ref().view(layout, dtype)
    }

    /// Another layout over the same storage. A layout without elements keeps this one's offset.
    #[doc(hidden)]
    pub fn with_layout(&self, mut layout: Layout) -> Tensor {
        if layout.shape.contains(&0) {
            layout.offset = self.layout().offset;
        }
        self.view(layout, self.0.dtype)
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    /// Shape, strides, offset.
    #[doc(hidden)]
    #[inline]
    pub fn layout(&self) -> &Layout {
        match self.0.extra.get().and_then(|extra| extra.relaid.get()) {
            None => &self.0.layout,
            Some(relaid) => relaid.current(&self.0.layout),
        }
    }

    /// Gives this tensor, and everything that holds it, another layout over its storage. Work that reads or
    /// writes it must have been submitted: queued work reads the layout later.
    pub(crate) fn relay(&self, layout: Layout) {
        debug_assert!(
            (layout.extent().end as u64).saturating_mul(self.0.dtype.size() as u64) <= self.storage().bytes()
        );
        self.0.extra().relaid.get_or_init(Box::default).set(&self.0.layout, layout);
    }

    /// Extents of the dimensions: `x.shape()[0]`, `x.shape().as_slice()`.
    pub fn shape(&self) -> &Dims {
        &self.layout().shape
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.layout().rank()
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.layout().count()
    }

    /// True for a single real element, which can act as a script number.
    #[doc(hidden)]
    pub fn is_real_number(&self) -> bool {
        self.count() == 1 && !self.dtype().is_complex()
    }

    /// The device of the storage.
    pub fn device(&self) -> DeviceId {
        self.storage().device()
    }

    /// The shared storage.
    #[doc(hidden)]
    #[inline]
    pub fn storage(&self) -> &Storage {
        self.0.storage()
    }

    /// The shared storage, as a counted reference.
    #[doc(hidden)]
    pub fn storage_ref(&self) -> StorageRef {
        match &self.0.base {
            Base::Own(_) => StorageRef(self.0.clone()),
            Base::Of(storage) => storage.clone(),
        }
    }

    /// True for the tensor that its storage was created with.
    #[doc(hidden)]
    #[inline]
    pub fn is_first(&self) -> bool {
        matches!(self.0.base, Base::Own(_))
    }

    /// The number of owners of the storage: handles of its first tensor, views, and [`StorageRef`]s.
    #[doc(hidden)]
    pub fn storage_holders(&self) -> usize {
        match &self.0.base {
            Base::Own(_) => Arc::strong_count(&self.0),
            Base::Of(storage) => storage.holders(),
        }
    }

    /// The number of handles of this tensor.
    #[doc(hidden)]
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// True when both handles refer to the same object (`x.to(x.device)` returns `x` itself).
    #[doc(hidden)]
    pub fn same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The range of bytes of the storage that the layout spans.
    #[doc(hidden)]
    pub fn byte_range(&self) -> std::ops::Range<u64> {
        let extent = self.layout().extent();
        let size = self.0.dtype.size() as u64;
        extent.start as u64 * size..extent.end as u64 * size
    }

    /// The accessed region for the race checker, which distinguishes the columns of a matrix.
    #[doc(hidden)]
    #[inline]
    pub fn region(&self) -> Region {
        let (layout, size) = (self.layout(), self.0.dtype.size());
        let whole = self.storage().bytes();
        // Nearly always a tensor over the whole of its own storage.
        if self.is_first() && layout.offset == 0 && layout.bytes(self.0.dtype) == whole {
            return Region::from(0..whole);
        }
        match layout.is_contiguous() {
            true => {
                let start = (layout.offset * size) as u64;
                Region::from(start..start + layout.bytes(self.0.dtype))
            }
            false => Region::of(layout, size),
        }
    }

    /// Its memory, as race reports identify it.
    #[doc(hidden)]
    pub fn piece(&self) -> Piece {
        let bytes = self.region().bytes();
        let id = std::ptr::from_ref(&self.storage().history).addr();
        Piece { id, from: bytes.start, to: bytes.end }
    }

    /// `f32[3, 4] on cuda:0`: the description in error labels. Above 12 dimensions only their number is
    /// given.
    pub fn describe(&self) -> String {
        if self.rank() > 12 {
            return format!("{} with {} dimensions on {}", self.dtype(), self.rank(), self.device());
        }
        format!("{}{:?} on {}", self.dtype(), self.shape().as_slice(), self.device())
    }
}

impl Default for Room {
    #[inline]
    fn default() -> Room {
        Room(Arc::new_uninit())
    }
}

/// Approximate bytes of host memory per tensor, excluding its elements.
pub(crate) const TENSOR_BYTES: usize = size_of::<Content>() + 64;

/// Approximate bytes of the state that few tensors have.
const EXTRA_BYTES: usize = size_of::<Extra>() + 16;

impl Room {
    /// Initialises the memory, as [`Tensor::new`].
    #[inline(always)]
    pub fn fill(self, storage: Storage, layout: Layout, dtype: Dtype) -> Tensor {
        debug_assert!((layout.extent().end as u64).saturating_mul(dtype.size() as u64) <= storage.bytes());
        storage.owner().begin_tensor(TENSOR_BYTES);
        self.fill_over(Base::Own(storage), layout, dtype)
    }

    #[inline(always)]
    fn fill_over(self, base: Base, layout: Layout, dtype: Dtype) -> Tensor {
        let place = Arc::as_ptr(&self.0).cast_mut().cast::<Content>();
        // SAFETY: the memory has no other owner and is written completely.
        Tensor(unsafe {
            place.write(Content { base, layout, dtype, kept: AtomicU32::new(0), extra: OnceLock::new() });
            self.0.assume_init()
        })
    }
}

impl Drop for Content {
    #[inline]
    fn drop(&mut self) {
        let extra = if self.extra.get().is_some() { EXTRA_BYTES } else { 0 };
        self.storage().owner().end_tensor(TENSOR_BYTES + extra);
    }
}

impl Content {
    fn extra(&self) -> &Extra {
        self.extra.get_or_init(|| {
            self.storage().owner().begin_tensor(EXTRA_BYTES);
            Box::default()
        })
    }

    #[inline]
    fn track(&self) -> Option<&Track> {
        self.extra.get().map(|extra| &extra.track)
    }

    fn tracked(&self) -> &Track {
        &self.extra().track
    }

    #[inline]
    fn storage(&self) -> &Storage {
        match &self.base {
            Base::Own(storage) => storage,
            Base::Of(storage) => storage,
        }
    }
}

impl StorageRef {
    /// See [`Tensor::storage_holders`].
    #[inline]
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// The layout of the tensor that the storage was created with.
    #[inline]
    pub fn first_layout(&self) -> &Layout {
        &self.0.layout
    }

    /// True when this refers to exactly this storage.
    #[inline]
    pub fn is(&self, storage: &Storage) -> bool {
        std::ptr::eq::<Storage>(&**self, storage)
    }

    /// A tensor over this storage. The layout must lie within it.
    pub fn view(&self, layout: Layout, dtype: Dtype) -> Tensor {
        debug_assert!((layout.extent().end as u64).saturating_mul(dtype.size() as u64) <= self.bytes());
        self.owner().begin_tensor(TENSOR_BYTES);
        Room::default().fill_over(Base::Of(self.clone()), layout, dtype)
    }

    /// Makes a weak reference.
    pub fn downgrade(&self) -> WeakStorage {
        WeakStorage(Arc::downgrade(&self.0))
    }
}

impl std::ops::Deref for StorageRef {
    type Target = Storage;

    #[inline]
    fn deref(&self) -> &Storage {
        self.0.storage()
    }
}

impl WeakStorage {
    /// The storage, if it is alive.
    pub fn upgrade(&self) -> Option<StorageRef> {
        self.0.upgrade().map(StorageRef)
    }

    /// True while the storage has owners.
    pub fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl std::fmt::Debug for Tensor {
    /// Shows the description, not the elements, which may not be computed yet.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}
