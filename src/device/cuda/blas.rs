//! cuBLAS: one handle per device, its stream and workspace set for each call.

use super::driver::CudaDriver;
use super::{error, probe};
use crate::array::Dtype;
use crate::base::Result;
use crate::device::StreamHandle;
use crate::device::error::driver_failed;
use crate::kernel::Ptr;
use crate::kernel::cuda::{Operand, Product};
use cudarc::cublas::sys::{
    self, cublasComputeType_t as Compute, cublasGemmAlgo_t, cublasHandle_t, cublasMath_t, cublasOperation_t,
    cublasStatus_t, cudaDataType,
};
use rustc_hash::FxHashMap;

/// Bytes of a stream's workspace; what cuBLAS recommends for Hopper and later.
const WORKSPACE: usize = 32 << 20;

/// A device's handle.
pub(super) struct Blas {
    handle: cublasHandle_t,
    stream: Option<StreamHandle>,
    /// Streams' workspaces: products on two streams may overlap, so they share none.
    workspaces: FxHashMap<StreamHandle, Ptr>,
}

// SAFETY: the handle is used under the driver's lock only, and cuBLAS lets threads take turns.
unsafe impl Send for Blas {}

/// A factor of a product in the compute type, real or complex: cuBLAS reads the first part, or both, and
/// may read a pair of doubles as one aligned word.
#[repr(C, align(16))]
struct Factor<T>([T; 2]);

fn check(status: cublasStatus_t, call: &'static str) -> Result<()> {
    match status {
        cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        status => Err(driver_failed("cuBLAS", call, &format!("{status:?}"))),
    }
}

impl Blas {
    /// Needs the device's context current.
    fn new() -> Result<Blas> {
        if !probe::load("cublas", sys::is_culib_present) {
            return Err(error::no_library("cuBLAS", &probe::file_name("cublas")));
        }
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is there and a context is current.
        unsafe {
            check(sys::cublasCreate_v2(&mut handle), "cublasCreate")?;
            // Halves accumulate in f32 throughout, split sums too.
            let mode = cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
            check(sys::cublasSetMathMode(handle, mode), "cublasSetMathMode")?;
        }
        Ok(Blas { handle, stream: None, workspaces: FxHashMap::default() })
    }

    /// The handle as `torch.cuda.current_blas_handle` gives it.
    pub fn handle(&self) -> u64 {
        self.handle as u64
    }

    fn use_stream(&mut self, driver: &CudaDriver, stream: StreamHandle) -> Result<()> {
        if self.stream == Some(stream) {
            return Ok(());
        }
        let workspace = match self.workspaces.get(&stream) {
            Some(&workspace) => workspace,
            None => {
                let workspace = driver.take_memory(WORKSPACE as u64)?;
                self.workspaces.insert(stream, workspace);
                workspace
            }
        };
        // SAFETY: stream and workspace are this device's and live as long as the driver. Setting a
        // stream resets the workspace, so it comes second.
        unsafe {
            check(sys::cublasSetStream_v2(self.handle, stream as *mut _), "cublasSetStream")?;
            check(
                sys::cublasSetWorkspace_v2(self.handle, workspace as *mut _, WORKSPACE),
                "cublasSetWorkspace",
            )?;
        }
        self.stream = Some(stream);
        Ok(())
    }

    /// Queues a product on the handle's stream. What `out` held does not matter, not even a nan.
    pub fn multiply(&mut self, product: &Product) -> Result<()> {
        let (one, zero) = (Factor([1f32, 0.0]), Factor([0f32; 2]));
        let (one_wide, zero_wide) = (Factor([1f64, 0.0]), Factor([0f64; 2]));
        let (alpha, beta): (*const std::ffi::c_void, *const std::ffi::c_void) = match product.dtype {
            Dtype::F64 | Dtype::C128 => ((&raw const one_wide).cast(), (&raw const zero_wide).cast()),
            _ => ((&raw const one).cast(), (&raw const zero).cast()),
        };
        let data = match product.dtype {
            Dtype::F16 => cudaDataType::CUDA_R_16F,
            Dtype::BF16 => cudaDataType::CUDA_R_16BF,
            Dtype::F64 => cudaDataType::CUDA_R_64F,
            Dtype::C64 => cudaDataType::CUDA_C_32F,
            Dtype::C128 => cudaDataType::CUDA_C_64F,
            _ => cudaDataType::CUDA_R_32F,
        };
        let compute = match product.dtype {
            Dtype::F64 | Dtype::C128 => Compute::CUBLAS_COMPUTE_64F,
            Dtype::F32 | Dtype::C64 if product.tf32 => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => Compute::CUBLAS_COMPUTE_32F,
        };
        let operation = |operand: &Operand| match operand.transposed {
            true => cublasOperation_t::CUBLAS_OP_T,
            false => cublasOperation_t::CUBLAS_OP_N,
        };
        let int = |n: usize| {
            i32::try_from(n).map_err(|_| {
                driver_failed("cuBLAS", "cublasGemmStridedBatchedEx", "an extent is above 2147483647")
            })
        };
        let [m, n, k] = product.sizes;
        let (m, n, k, batch) = (int(m)?, int(n)?, int(k)?, int(product.batch)?);
        let (left, right) = (&product.left, &product.right);
        // SAFETY: the matrices lie in live memory by the launch's contract; alpha and beta are of
        // the compute type, complex where the data are. Columns come first in cuBLAS: the operands change places.
        let status = unsafe {
            sys::cublasGemmStridedBatchedEx(
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
                data,
                n,
                product.out_step,
                batch,
                compute,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        check(status, "cublasGemmStridedBatchedEx")
    }

    /// Gives the handle back. The device must be idle.
    pub fn release(self) {
        // SAFETY: made by `cublasCreate`, and idle by the caller.
        let _ = unsafe { sys::cublasDestroy_v2(self.handle) };
        for ptr in self.workspaces.into_values() {
            // SAFETY: allocated for this handle alone.
            let _ = unsafe { cudarc::driver::sys::cuMemFree_v2(ptr) };
        }
    }
}

impl CudaDriver {
    /// Runs `work` with the device's handle on a stream. The context must be current.
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
        blas.use_stream(self, stream)?;
        work(blas)
    }
}
