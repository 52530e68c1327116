//! Tensors over memory of other libraries, and exported tensors: raw addresses and DLPack.
//!
//! Nothing is copied. The structs are those of DLPack 1.0 (`dlpack.h`).

use super::convert::{check_own, check_own_stream};
use super::{Engine, error};
use crate::array::{Dtype, Layout, Strides, contiguous_strides, element_count};
use crate::base::Result;
use crate::base::guard::{self, Owned};
use crate::driver::DeviceId;
use crate::ops::gradient;
use crate::stream::{Foreign, Stream};
use crate::tensor::{Memory, Storage, Tensor};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// A tensor in memory of another owner.
#[derive(Clone, Copy, Debug)]
pub struct RawTensor<'a> {
    /// The address of its first element.
    pub ptr: u64,
    /// Its extents.
    pub shape: &'a [usize],
    /// Its strides in elements; `None` if it is row-major.
    pub strides: Option<&'a [isize]>,
    /// The dtype of its elements.
    pub dtype: Dtype,
    /// The device of its memory.
    pub device: DeviceId,
}

/// `DLPackVersion`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlpackVersion {
    pub major: u32,
    pub minor: u32,
}

/// `DLDevice`: 1 is the host, 2 CUDA, 3 page-locked host memory. 12 (`kDLExtDev`) is an emulated device, so
/// that its addresses are not taken for GPU addresses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlpackDevice {
    pub device_type: i32,
    pub device_id: i32,
}

/// `DLDataType`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlpackDtype {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// `DLTensor`
#[repr(C)]
#[derive(Debug)]
pub struct DlpackView {
    pub data: *mut c_void,
    pub device: DlpackDevice,
    pub ndim: i32,
    pub dtype: DlpackDtype,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

/// `DLManagedTensorVersioned`
#[repr(C)]
#[derive(Debug)]
pub struct DlpackManaged {
    pub version: DlpackVersion,
    pub manager_ctx: *mut c_void,
    pub deleter: Option<unsafe extern "C-unwind" fn(*mut DlpackManaged)>,
    pub flags: u64,
    pub view: DlpackView,
}

/// An owned DLPack tensor: dropping it calls its deleter. A deleter that unwinds (a panic, a C++ exception)
/// is caught; if a script's work drops the tensor, that raises E0963. Only a deleter compiled by Rust as
/// plain `extern "C"` cannot be caught: Rust aborts the process on a panic in it.
#[derive(Debug)]
pub struct Dlpack(NonNull<DlpackManaged>);

// SAFETY: a managed tensor has one owner, which DLPack allows to be any thread.
unsafe impl Send for Dlpack {}

impl Dlpack {
    /// Takes ownership of a managed tensor, for example from a Python capsule named `dltensor_versioned`.
    ///
    /// # Safety
    ///
    /// `managed` is a valid `DLManagedTensorVersioned` without another owner. Its memory is usable by its
    /// device until the deleter is called, and the deleter may be called on any thread.
    pub unsafe fn from_raw(managed: NonNull<DlpackManaged>) -> Dlpack {
        Dlpack(managed)
    }

    /// Passes ownership to another library, which calls the deleter.
    pub fn into_raw(self) -> NonNull<DlpackManaged> {
        let managed = self.0;
        std::mem::forget(self);
        managed
    }

    /// The managed tensor.
    pub fn managed(&self) -> &DlpackManaged {
        // SAFETY: owned, and valid until it is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Dlpack {
    fn drop(&mut self) {
        if let Some(deleter) = self.managed().deleter {
            // SAFETY: this is the owner, and calls it once.
            guard::quiet("a DLPack deleter", || unsafe { deleter(self.0.as_ptr()) });
        }
    }
}

/// The data that an exported tensor keeps alive; the managed tensor is the first field.
#[repr(C)]
struct Exported {
    managed: DlpackManaged,
    shape: Vec<i64>,
    strides: Vec<i64>,
    tensor: Tensor,
}

/// Called by another library, perhaps from C, so it must not unwind.
unsafe extern "C-unwind" fn release_exported(managed: *mut DlpackManaged) {
    guard::quiet("a lent tensor", || {
        // SAFETY: `export_dlpack` made it from a boxed `Exported`, whose address is the context.
        drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<Exported>()) });
    });
}

const READ_ONLY: u64 = 1;
const CPU: i32 = 1;
const CUDA: i32 = 2;
const CUDA_HOST: i32 = 3;
const EMULATED: i32 = 12;

/// The layout of foreign elements, and the number of bytes they span.
fn layout_of(ptr: u64, shape: &[usize], strides: Option<&[isize]>, dtype: Dtype) -> Result<(Layout, u64)> {
    let refuse = |why: &str| Err(error::bad_foreign(why));
    let Some(count) = element_count(shape) else { return refuse("its shape is too large") };
    let strides: Strides = strides.map_or_else(|| contiguous_strides(shape), Strides::from_slice);
    if strides.len() != shape.len() {
        return refuse("it does not have one stride for each dimension");
    }
    if strides.iter().any(|&stride| stride < 0) {
        return refuse("it has a negative stride");
    }
    let mut steps = shape.iter().zip(&strides).map(|(&n, &s)| n.saturating_sub(1).checked_mul(s as usize));
    let last = steps.try_fold(0usize, |sum, step| sum.checked_add(step?));
    let bytes = last.and_then(|last| last.checked_add(1)?.checked_mul(dtype.size()));
    let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok()).map(|bytes| bytes as u64);
    let Some(bytes) = bytes else { return refuse("its strides reach too far") };
    let bytes = if count == 0 { 0 } else { bytes };
    if bytes > 0 && (ptr == 0 || ptr.checked_add(bytes).is_none()) {
        return refuse("its address is null");
    }
    if bytes > 0 && !ptr.is_multiple_of(dtype.real().size() as u64) {
        return refuse("its address is not aligned to its elements");
    }
    Ok((Layout { shape: shape.into(), strides, offset: 0 }, bytes))
}

impl Engine {
    /// A tensor over memory of another owner, without a copy. `on_drop` is called, on any thread, when the last handle
    /// is gone and the work queued on the memory has completed. It is not called if this returns an error.
    ///
    /// # Safety
    ///
    /// Until `on_drop` is called, every element lies in valid memory of that device (for an emulated device:
    /// of this process). Nobody else writes the elements, or reads what scripts write, except in order with
    /// the streams that use them: make those streams wait for previously queued work, with
    /// [`Engine::external_stream`] or on the host. The race checker does not see work of other libraries.
    ///
    /// # Errors
    ///
    /// E0967 for an invalid layout; E0501 and E0502 if the device does not exist.
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// use runnel::{DeviceId, Dtype, RawTensor};
    /// let mut engine = runnel::Engine::builder().backend(runnel::Backend::Emu).build()?;
    /// let mut pixels = vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    /// let ptr = pixels.as_mut_ptr() as u64;
    /// // SAFETY: the vector lives in the closure until the engine is done with it.
    /// let x = unsafe {
    ///     let (dtype, device) = (Dtype::F32, DeviceId::Cpu);
    ///     let raw = RawTensor { ptr, shape: &[3, 2], strides: Some(&[1, 3]), dtype, device };
    ///     engine.tensor_from_raw(raw, move || drop(pixels))?
    /// };
    /// engine.set("x", &x)?;
    /// assert_eq!(engine.eval::<Vec<f32>>("x.sum(dim=1)")?, [5.0, 7.0, 9.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub unsafe fn tensor_from_raw(
        &mut self,
        raw: RawTensor<'_>,
        on_drop: impl FnOnce() + Send + 'static,
    ) -> Result<Tensor> {
        let RawTensor { ptr, shape, strides, dtype, device } = raw;
        // Its captures are dropped if this fails.
        let on_drop = Owned::new(on_drop);
        let (layout, bytes) = layout_of(ptr, shape, strides, dtype)?;
        let owner = self.vm.rt.device(device)?;
        let memory = Memory::Foreign(Foreign::new(ptr, on_drop.into_inner()));
        Ok(Tensor::new(Storage::bound(owner, bytes, memory), layout, dtype))
    }

    /// Exports a tensor's memory to another library through DLPack 1.0, without a copy. The tensor stays alive
    /// until its deleter is called. With a `consumer` stream, work queued there afterwards runs after all work
    /// that scripts have queued on that memory, on any stream, and the memory is not reused before that work
    /// has completed. Without one, this call waits. Work that scripts queue on the tensor later is not ordered
    /// with the consumer's.
    ///
    /// # Errors
    ///
    /// Errors of the work that computes the tensor; E0965 for a tensor or stream of another engine; E0820
    /// while that work is captured into a graph; E0388 for a tensor that requires gradients
    /// ([`Engine::detach`]).
    ///
    /// ```
    /// # fn main() -> runnel::Result<()> {
    /// # use runnel::{Backend, Engine, Tensor};
    /// let (mut one, mut two) = (
    ///     Engine::builder().backend(Backend::Emu).build()?,
    ///     Engine::builder().backend(Backend::Emu).build()?,
    /// );
    /// let x: Tensor = one.eval("arange(3.0)")?;
    /// let lent = one.export_dlpack(&x, None)?;
    /// // SAFETY: `one` has finished the tensor, and leaves it alone.
    /// let y = unsafe { two.import_dlpack(lent)? };
    /// two.set("y", y)?;
    /// assert_eq!(two.eval::<f32>("y.sum()")?, 3.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn export_dlpack(&mut self, tensor: &Tensor, consumer: Option<&Arc<Stream>>) -> Result<Dlpack> {
        let id = tensor.device();
        let backend = self.vm.within(|vm| {
            check_own(vm, tensor)?;
            gradient::refuse(&mut vm.rt, "export_dlpack", 0, tensor)?;
            consumer.map_or(Ok(()), |stream| check_own_stream(vm, stream))?;
            vm.flush()?;
            vm.rt.lend(tensor, consumer)?;
            Ok(vm.rt.device(id)?.driver().backend())
        })?;
        let (device_type, device_id) = match id {
            DeviceId::Cpu if tensor.storage().is_pinned() && backend == "cuda" => (CUDA_HOST, 0),
            DeviceId::Cpu => (CPU, 0),
            DeviceId::Cuda(index) => (if backend == "emu" { EMULATED } else { CUDA }, index as i32),
        };
        let dtype = tensor.dtype();
        let layout = tensor.layout();
        let start = tensor.storage().memory().map_or(0, Memory::ptr);
        let null = std::ptr::null_mut();
        let mut exported = Box::new(Exported {
            shape: layout.shape.iter().map(|&n| n as i64).collect(),
            strides: layout.strides.iter().map(|&s| s as i64).collect(),
            tensor: tensor.clone(),
            managed: DlpackManaged {
                version: DlpackVersion { major: 1, minor: 0 },
                manager_ctx: null,
                deleter: Some(release_exported),
                flags: 0,
                view: DlpackView {
                    data: start as usize as *mut c_void,
                    device: DlpackDevice { device_type, device_id },
                    ndim: tensor.rank() as i32,
                    dtype: DlpackDtype { code: dtype.dlpack(), bits: (dtype.size() * 8) as u8, lanes: 1 },
                    shape: std::ptr::null_mut(),
                    strides: std::ptr::null_mut(),
                    byte_offset: (layout.offset * dtype.size()) as u64,
                },
            },
        });
        exported.managed.view.shape = exported.shape.as_mut_ptr();
        exported.managed.view.strides = exported.strides.as_mut_ptr();
        let owner = NonNull::from(Box::leak(exported));
        // SAFETY: just made, and not shared yet.
        unsafe {
            (*owner.as_ptr()).managed.manager_ctx = owner.as_ptr().cast();
            Ok(Dlpack::from_raw(owner.cast()))
        }
    }

    /// A tensor over the memory of a DLPack tensor, without a copy. Its deleter is called, on any thread,
    /// when the last handle is gone and the work queued on the memory has completed. If this returns an
    /// error, the deleter is called immediately.
    ///
    /// # Safety
    /// As for [`Engine::tensor_from_raw`].
    ///
    /// # Errors
    ///
    /// E0967 for an unsupported tensor: another version or device, an unknown element type, read-only memory,
    /// negative strides.
    pub unsafe fn import_dlpack(&mut self, tensor: Dlpack) -> Result<Tensor> {
        let managed = tensor.managed();
        let view = &managed.view;
        let refuse = |why: &str| Err(error::bad_foreign(why));
        if managed.version.major != 1 {
            return refuse("it is not of DLPack 1");
        }
        if managed.flags & READ_ONLY != 0 {
            return refuse("its memory is read-only");
        }
        let size = |dtype: Dtype| dtype.size() * 8 == usize::from(view.dtype.bits);
        let found = Dtype::ALL.into_iter().find(|dtype| dtype.dlpack() == view.dtype.code && size(*dtype));
        let Some(dtype) = found.filter(|_| view.dtype.lanes == 1) else {
            return refuse("its element type is not supported");
        };
        let device = match (view.device.device_type, u32::try_from(view.device.device_id)) {
            (CPU | CUDA_HOST, _) => DeviceId::Cpu,
            (CUDA | EMULATED, Ok(index)) => DeviceId::Cuda(index),
            _ => return refuse("it is on a device of another kind"),
        };
        let backend = self.vm.rt.device(device)?.driver().backend();
        if (backend == "cuda" && view.device.device_type == EMULATED)
            || (backend == "emu" && view.device.device_type == CUDA)
        {
            return refuse("one side is emulated and the other is not");
        }
        let Ok(rank) = usize::try_from(view.ndim) else { return refuse("its rank is negative") };
        let list = |start: *const i64| match rank {
            0 => &[][..],
            // SAFETY: the caller promises a valid tensor: as many extents and strides as dimensions.
            _ => unsafe { std::slice::from_raw_parts(start, rank) },
        };
        if rank > 0 && view.shape.is_null() {
            return refuse("it has no shape");
        }
        let shape: Option<Vec<usize>> = list(view.shape).iter().map(|&n| usize::try_from(n).ok()).collect();
        let Some(shape) = shape else { return refuse("its shape is negative") };
        let strides: Option<Vec<isize>> =
            (!view.strides.is_null()).then(|| list(view.strides).iter().map(|&s| s as isize).collect());
        let Some(ptr) = (view.data as usize as u64).checked_add(view.byte_offset) else {
            return refuse("its address is null");
        };
        let raw = RawTensor { ptr, shape: &shape, strides: strides.as_deref(), dtype, device };
        // SAFETY: the caller's promise; the closure owns the tensor, and outlives the use of its memory.
        unsafe { self.tensor_from_raw(raw, move || drop(tensor)) }
    }
}
