//! cuBLAS: one handle per device. Each call sets its stream and workspace.

use super::context::{Context, check};
use super::driver::CudaDriver;
use super::dynamic::{self, CUBLAS};
use crate::array::Dtype;
use crate::base::Result;
use crate::driver::StreamHandle;
use crate::driver::error::driver_failed;
use crate::kernel::Ptr;
use crate::kernel::cuda::{Operand, Product};
use cudarc::driver::sys;
use foldhash::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::ffi::{c_char, c_int, c_longlong, c_void};

/// `cublasHandle_t`
type Handle = *mut c_void;
/// `cublasStatus_t`
type Status = c_int;
/// A matrix in device memory, or a scalar factor in host memory.
type Data = *const c_void;

dynamic::api! {
    CUBLAS:
    create = c"cublasCreate_v2"(*mut Handle) -> Status;
    destroy = c"cublasDestroy_v2"(Handle) -> Status;
    get_property = c"cublasGetProperty"(c_int, *mut c_int) -> Status;
    get_status_name = c"cublasGetStatusName"(Status) -> *const c_char;
    set_math_mode = c"cublasSetMathMode"(Handle, c_int) -> Status;
    set_stream = c"cublasSetStream_v2"(Handle, *mut c_void) -> Status;
    set_workspace = c"cublasSetWorkspace_v2"(Handle, *mut c_void, usize) -> Status;
    // Handle, operations, m, n, k, alpha, A, B, beta, C, batch, compute type, algorithm. A matrix is passed
    // as its address, dtype, leading dimension and, in a batch, the distance to the next.
    gemm_strided_batched = c"cublasGemmStridedBatchedEx"(
        Handle, c_int, c_int, c_int, c_int, c_int, Data, Data, c_int, c_int, c_longlong, Data, c_int, c_int,
        c_longlong, Data, *mut c_void, c_int, c_int, c_longlong, c_int, c_int, c_int
    ) -> Status;
    // The same with arrays of addresses in device memory in place of addresses and distances.
    gemm_batched = c"cublasGemmBatchedEx"(
        Handle, c_int, c_int, c_int, c_int, c_int, Data, Data, c_int, c_int, Data, c_int, c_int, Data,
        *mut c_void, c_int, c_int, c_int, c_int, c_int
    ) -> Status;
}

/// `CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION`: halves always accumulate in f32, also in split sums.
const MATH_MODE: c_int = 16;

/// Names of the calls in errors.
const STRIDED_BATCHED: &str = "cublasGemmStridedBatchedEx";
const BATCHED: &str = "cublasGemmBatchedEx";

/// `CUBLAS_GEMM_DEFAULT`
const ALGORITHM: c_int = -1;

/// Bytes of a stream's workspace; NVIDIA's recommendation for Hopper and later.
const WORKSPACE: usize = 32 << 20;

/// The stream of the products that load kernels.
const DEFAULT_STREAM: StreamHandle = 0;

/// Rows and columns of their matrices.
const WARM_UP: usize = 1024;

/// A device's handle.
pub(super) struct Blas {
    api: &'static Api,
    handle: Handle,
    stream: Option<StreamHandle>,
    /// One workspace per stream: products on two streams may overlap.
    workspaces: HashMap<StreamHandle, Ptr>,
}

// SAFETY: the handle is used only under the driver's lock, and cuBLAS allows use by one thread after another.
unsafe impl Send for Blas {}

/// A scalar factor (alpha or beta) in the compute type, real or complex. cuBLAS reads the first part or both,
/// and may read a pair of doubles as one aligned word.
#[repr(C, align(16))]
struct Factor<T>([T; 2]);

impl Api {
    fn check(&self, status: Status, call: &'static str) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the call returns a static string for every number.
        let name = unsafe { dynamic::text((self.get_status_name)(status)) };
        Err(driver_failed("cuBLAS", call, &name))
    }
}

/// True when products need kernels of our own.
pub(super) fn is_missing() -> bool {
    CUBLAS.find().is_err()
}

/// cuBLAS' version.
pub(super) fn version() -> Result<String> {
    dynamic::version_of(Api::get()?.get_property)
        .ok_or_else(|| driver_failed("cuBLAS", "cublasGetProperty", "it does not report its version"))
}

/// `cudaDataType`
fn data_type(dtype: Dtype) -> c_int {
    match dtype {
        Dtype::F64 => 1,
        Dtype::F16 => 2,
        Dtype::C64 => 4,
        Dtype::C128 => 5,
        Dtype::BF16 => 14,
        _ => 0,
    }
}

/// `cublasComputeType_t`
fn compute_type(dtype: Dtype, tf32: bool) -> c_int {
    match dtype {
        Dtype::F64 | Dtype::C128 => 70,
        Dtype::F32 | Dtype::C64 if tf32 => 77,
        _ => 68,
    }
}

impl Blas {
    /// The device's context must be current.
    fn new() -> Result<Blas> {
        let api = Api::get()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: a context is current.
        api.check(unsafe { (api.create)(&mut handle) }, "cublasCreate")?;
        let blas = Blas { api, handle, stream: None, workspaces: HashMap::default() };
        // SAFETY: the handle is new.
        match api.check(unsafe { (api.set_math_mode)(handle, MATH_MODE) }, "cublasSetMathMode") {
            Ok(()) => Ok(blas),
            Err(error) => {
                blas.release();
                Err(error)
            }
        }
    }

    /// The handle that `torch.cuda.current_blas_handle` returns.
    pub fn handle(&self) -> u64 {
        self.handle as u64
    }

    fn use_stream(&mut self, stream: StreamHandle, memory: impl FnOnce() -> Result<Ptr>) -> Result<()> {
        if self.stream == Some(stream) {
            return Ok(());
        }
        let workspace = match self.workspaces.get(&stream) {
            Some(&workspace) => workspace,
            None => {
                let workspace = memory()?;
                self.workspaces.insert(stream, workspace);
                workspace
            }
        };
        // SAFETY: stream and workspace belong to this device and live as long as the driver. Setting a stream
        // resets the workspace, so the workspace is set second.
        unsafe {
            let api = self.api;
            api.check((api.set_stream)(self.handle, stream as *mut _), "cublasSetStream")?;
            let set = (api.set_workspace)(self.handle, workspace as *mut _, WORKSPACE);
            api.check(set, "cublasSetWorkspace")?;
        }
        self.stream = Some(stream);
        Ok(())
    }

    /// Multiplies once, and ignores the result: the library loads its kernels at the first product of a dtype.
    fn warm_up(&mut self, dtype: Dtype) -> Result<()> {
        let memory = || {
            let mut ptr = 0;
            // SAFETY: the context is current.
            check(unsafe { sys::cuMemAlloc_v2(&mut ptr, WORKSPACE) }, "cuMemAlloc").map(|()| ptr)
        };
        self.use_stream(DEFAULT_STREAM, memory)?;
        let Some(&workspace) = self.workspaces.get(&DEFAULT_STREAM) else { return Ok(()) };
        // The operands take the end of the workspace, until the stream is set again.
        self.stream = None;
        let bytes = WARM_UP * WARM_UP * dtype.size();
        let rest = WORKSPACE - 3 * bytes;
        // SAFETY: the workspace is this handle's.
        let set = unsafe { (self.api.set_workspace)(self.handle, workspace as *mut _, rest) };
        self.api.check(set, "cublasSetWorkspace")?;
        let place = |number: usize| workspace + (rest + number * bytes) as u64;
        let operand =
            |number| Operand { ptr: place(number), transposed: false, leading: WARM_UP as i64, step: 0 };
        self.multiply(&Product {
            dtype,
            out_dtype: dtype,
            tf32: false,
            sizes: [WARM_UP; 3],
            batch: 1,
            left: operand(0),
            right: operand(1),
            out: place(2),
            out_step: 0,
            outer: SmallVec::new(),
        })
    }

    /// Queues a product without outer dimensions on the handle's stream. Previous contents of `out` are ignored, even nan.
    pub fn multiply(&mut self, product: &Product) -> Result<()> {
        self.queue_product(product, None)
    }

    /// Queues the products of all batches; the previous launch writes their addresses to `addresses`.
    pub fn multiply_at(&mut self, product: &Product, addresses: Ptr) -> Result<()> {
        self.queue_product(product, Some(addresses))
    }

    fn queue_product(&mut self, product: &Product, addresses: Option<Ptr>) -> Result<()> {
        let (one, zero) = (Factor([1f32, 0.0]), Factor([0f32; 2]));
        let (one_wide, zero_wide) = (Factor([1f64, 0.0]), Factor([0f64; 2]));
        let (alpha, beta): (Data, Data) = match product.dtype {
            Dtype::F64 | Dtype::C128 => ((&raw const one_wide).cast(), (&raw const zero_wide).cast()),
            _ => ((&raw const one).cast(), (&raw const zero).cast()),
        };
        let (data, out_data) = (data_type(product.dtype), data_type(product.out_dtype));
        let call = if addresses.is_some() { BATCHED } else { STRIDED_BATCHED };
        // `CUBLAS_OP_N` and `CUBLAS_OP_T`.
        let operation = |operand: &Operand| c_int::from(operand.transposed);
        let [m, n, k, batch] = extents(product, call)?;
        let (left, right) = (&product.left, &product.right);
        let compute = compute_type(product.dtype, product.tf32);
        if let Some(addresses) = addresses {
            let of = |number: u64| addresses + number * 8 * product.count() as u64;
            // SAFETY: as below; the addresses are those of the matrices once the launch before has run.
            let status = unsafe {
                (self.api.gemm_batched)(
                    self.handle,
                    operation(right),
                    operation(left),
                    n,
                    m,
                    k,
                    alpha,
                    of(1) as *const _,
                    data,
                    right.leading as i32,
                    of(0) as *const _,
                    data,
                    left.leading as i32,
                    beta,
                    of(2) as *mut _,
                    out_data,
                    n,
                    batch,
                    compute,
                    ALGORITHM,
                )
            };
            return self.api.check(status, call);
        }
        // SAFETY: the launch guarantees that the matrices lie in live memory. alpha and beta have the compute
        // type, complex for complex data. cuBLAS is column-major, so the operands are swapped.
        let status = unsafe {
            (self.api.gemm_strided_batched)(
                self.handle,
                operation(right),
                operation(left),
                n,
                m,
                k,
                alpha,
                right.ptr as *const _,
                data,
                right.leading as i32,
                right.step,
                left.ptr as *const _,
                data,
                left.leading as i32,
                left.step,
                beta,
                product.out as *mut _,
                out_data,
                n,
                product.out_step,
                batch,
                compute,
                ALGORITHM,
            )
        };
        self.api.check(status, call)
    }

    /// Destroys the handle. The device must be idle.
    pub fn release(self) {
        // SAFETY: made by `cublasCreate`; the caller guarantees that it is idle.
        let _ = unsafe { (self.api.destroy)(self.handle) };
        for ptr in self.workspaces.into_values() {
            // SAFETY: allocated for this handle alone.
            let _ = unsafe { sys::cuMemFree_v2(ptr) };
        }
    }
}

/// m, n, k and the number of matrices, for a call of cuBLAS.
fn extents(product: &Product, call: &'static str) -> Result<[c_int; 4]> {
    let [m, n, k] = product.sizes;
    let mut found = [0; 4];
    for (place, extent) in found.iter_mut().zip([m, n, k, product.count()]) {
        *place = c_int::try_from(extent)
            .map_err(|_| driver_failed("cuBLAS", call, "an extent is above 2147483647"))?;
    }
    Ok(found)
}

/// Creates a device's handle and loads the kernels of a dtype's products, unless a product has done so.
pub(super) fn warm_up(slot: &Mutex<Option<Blas>>, context: Context, dtype: Dtype) -> Result<()> {
    let mut slot = slot.lock();
    if slot.is_some() {
        return Ok(());
    }
    context.enter()?;
    slot.insert(Blas::new()?).warm_up(dtype)
}

impl CudaDriver {
    /// Calls `work` with the device's handle, set to a stream. The context must be current.
    pub(super) fn with_blas<T>(
        &self,
        stream: StreamHandle,
        work: impl FnOnce(&mut Blas) -> Result<T>,
    ) -> Result<T> {
        let mut slot = self.blas.lock();
        let blas = match &mut *slot {
            Some(blas) => blas,
            empty => empty.insert(Blas::new()?),
        };
        blas.use_stream(stream, || self.take_memory(WORKSPACE as u64))?;
        work(blas)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cuda::Outer;

    #[test]
    fn extents_that_the_library_cannot_count_are_errors_of_the_call() {
        let mut product = Product::of_matrices(Dtype::F32, [4, 5, 6], [false; 2], 0);
        product.outer.push(Outer { extent: 3, steps: [0; 3] });
        assert_eq!(extents(&product, BATCHED).unwrap(), [4, 5, 6, 9]);
        product.sizes[1] = 1 << 31;
        for call in [BATCHED, STRIDED_BATCHED] {
            let error = extents(&product, call).unwrap_err();
            assert!(error.to_string().contains(call), "{error}");
        }
    }
}
