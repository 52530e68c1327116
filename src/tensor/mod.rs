//! Tensors: a layout over storage that may be bound late.
//!
//! A [`Tensor`] is a handle: dtype, [`Layout`], and a shared [`Storage`]. It knows where its bytes
//! are (or will be) and how to read them once they are there; it does not know how they are
//! computed, that is `plan`'s. Views share storage. Handles are `Send + Sync`.

mod generator;
mod print;
mod storage;

pub use generator::{Generator, GeneratorState};
pub use print::{PrintOptions, corner_shape, format_corner, format_tensor, tensor_source};
pub use storage::{Memory, Pending, Storage};

use crate::array::{Dims, Dtype, Layout};
use crate::device::DeviceId;
use crate::device::races::Region;
use std::mem::MaybeUninit;
use std::sync::{Arc, Weak};

/// A tensor.
///
/// Invariant: every element of the layout lies within the storage, in units of the dtype.
///
/// Sample: `zeros(2, 3).t()` has shape `[3, 2]`, strides `[1, 3]`, and the storage of the zeros.
#[derive(Clone)]
pub struct Tensor(Arc<Content>);

struct Content {
    base: Base,
    layout: Layout,
    dtype: Dtype,
}

/// Where a tensor's storage is: a tensor that is made with its storage takes one allocation for both.
#[allow(clippy::large_enum_variant)] // A box would be the second allocation, which this spares.
enum Base {
    Own(Storage),
    Of(StorageRef),
}

/// Room for a tensor with a storage of its own, whose content can be written where it stays: it is large, and
/// to move it would cost as much as an operation.
pub struct Room(Arc<MaybeUninit<Content>>);

/// A counted reference to a storage.
#[derive(Clone)]
pub struct StorageRef(Arc<Content>);

/// A reference to a storage that does not keep it.
#[derive(Clone)]
pub struct WeakStorage(Weak<Content>);

impl Tensor {
    /// A tensor over a storage of its own. The layout must lie within it.
    #[doc(hidden)]
    #[inline]
    pub fn new(storage: Storage, layout: Layout, dtype: Dtype) -> Tensor {
        Room::default().fill(storage, layout, dtype)
    }

    /// A tensor over the same storage. The layout must lie within it.
    #[doc(hidden)]
    pub fn view(&self, layout: Layout, dtype: Dtype) -> Tensor {
        debug_assert!(
            (layout.extent().end as u64).saturating_mul(dtype.size() as u64) <= self.storage().bytes()
        );
        Tensor(Arc::new(Content { base: Base::Of(self.storage_ref()), layout, dtype }))
    }

    /// Another layout over the same storage. One without elements starts where this one does.
    #[doc(hidden)]
    pub fn with_layout(&self, mut layout: Layout) -> Tensor {
        if layout.shape.contains(&0) {
            layout.offset = self.0.layout.offset;
        }
        self.view(layout, self.0.dtype)
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    /// Shape, strides, offset.
    #[doc(hidden)]
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// Extents of the dimensions: `x.shape()[0]`, `x.shape().as_slice()`.
    pub fn shape(&self) -> &Dims {
        &self.0.layout.shape
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.layout.rank()
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.0.layout.count()
    }

    /// True for one element that is a real number, as a script number is.
    #[doc(hidden)]
    pub fn is_real_number(&self) -> bool {
        self.count() == 1 && !self.dtype().is_complex()
    }

    /// Where it lives.
    pub fn device(&self) -> DeviceId {
        self.storage().device()
    }

    /// The shared storage.
    #[doc(hidden)]
    #[inline]
    pub fn storage(&self) -> &Storage {
        self.0.storage()
    }

    /// The same, counted.
    #[doc(hidden)]
    pub fn storage_ref(&self) -> StorageRef {
        match &self.0.base {
            Base::Own(_) => StorageRef(self.0.clone()),
            Base::Of(storage) => storage.clone(),
        }
    }

    /// True when this is the tensor that its storage was made with.
    #[doc(hidden)]
    #[inline]
    pub fn is_first(&self) -> bool {
        matches!(self.0.base, Base::Own(_))
    }

    /// How many hold the storage: handles of the tensor it was made with, views, and [`StorageRef`]s.
    #[doc(hidden)]
    pub fn storage_holders(&self) -> usize {
        match &self.0.base {
            Base::Own(_) => Arc::strong_count(&self.0),
            Base::Of(storage) => storage.holders(),
        }
    }

    /// True when both handles are the same object (`x.to(x.device)` gives `x` itself).
    #[doc(hidden)]
    pub fn same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The bytes of the storage that it touches.
    #[doc(hidden)]
    pub fn byte_range(&self) -> std::ops::Range<u64> {
        let extent = self.0.layout.extent();
        let size = self.0.dtype.size() as u64;
        extent.start as u64 * size..extent.end as u64 * size
    }

    /// The same for the race checker, which tells the columns of a matrix apart.
    #[doc(hidden)]
    #[inline]
    pub fn region(&self) -> Region {
        let (layout, size) = (&self.0.layout, self.0.dtype.size());
        match layout.is_contiguous() {
            true => {
                let start = (layout.offset * size) as u64;
                Region::from(start..start + layout.bytes(self.0.dtype))
            }
            false => Region::of(layout, size),
        }
    }

    /// `f32[3, 4] on cuda:0`: how error labels name it. Of more than 12 dimensions the number alone is told.
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

impl Room {
    /// As [`Tensor::new`].
    #[inline(always)]
    pub fn fill(self, storage: Storage, layout: Layout, dtype: Dtype) -> Tensor {
        debug_assert!((layout.extent().end as u64).saturating_mul(dtype.size() as u64) <= storage.bytes());
        let place = Arc::as_ptr(&self.0).cast_mut().cast::<Content>();
        // SAFETY: nobody else holds the room, and it is written whole.
        Tensor(unsafe {
            place.write(Content { base: Base::Own(storage), layout, dtype });
            self.0.assume_init()
        })
    }
}

impl Content {
    #[inline]
    fn storage(&self) -> &Storage {
        match &self.base {
            Base::Own(storage) => storage,
            Base::Of(storage) => storage,
        }
    }
}

impl StorageRef {
    /// As [`Tensor::storage_holders`].
    #[inline]
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// The layout of the tensor that the storage was made with.
    #[inline]
    pub fn first_layout(&self) -> &Layout {
        &self.0.layout
    }

    /// True for the very storage.
    #[inline]
    pub fn is(&self, storage: &Storage) -> bool {
        std::ptr::eq::<Storage>(&**self, storage)
    }

    /// A reference that does not keep it.
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

    /// True while somebody holds the storage.
    pub fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl std::fmt::Debug for Tensor {
    /// What it is, not its elements: they may not be there yet.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}
