//! The addresses of a batch's matrices, for batches without a common stride.

use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::{CudaSource, Product, Queue, Signature, assemble, blocks};
use crate::kernel::host::FaultSlot;
use crate::kernel::{Kind, Launch, Program, Ptr, View};
use smallvec::smallvec;
use std::sync::Arc;

/// Writes the addresses of all left matrices of a batch, then those of the right ones and of the results.
///
/// Views: 0 left, 1 right, 2 results, with a stride per dimension of the batch; 3 the addresses, contiguous. Launch shape:
/// the batch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Addresses;

/// Maximum batch dimensions, also in the template.
const DIMS: usize = 8;

impl Addresses {
    /// The launch for a product, and the buffer for the addresses, which `take` allocates. `None`, without an
    /// allocation, if the batch has too many dimensions or matrices.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn launch(product: &Product, take: impl FnOnce(u64) -> Result<Ptr>) -> Result<Option<(Launch, Ptr)>> {
        let inner = [product.left.step, product.right.step, product.out_step];
        let dims = || {
            let outer = product.outer.iter().map(|outer| (outer.extent, outer.steps));
            outer.chain([(product.batch, inner)])
        };
        if product.outer.len() >= DIMS || i32::try_from(product.count()).is_err() {
            return Ok(None);
        }
        let place = take(3 * product.count() as u64 * size_of::<u64>() as u64)?;
        let view = |number: usize, ptr: Ptr, dtype: Dtype| {
            View::new(ptr, dtype, dims().map(|(_, steps)| steps[number] as isize).collect())
        };
        let launch = Launch::new(
            Arc::new(Program::new(&Addresses)),
            dims().map(|(extent, _)| extent).collect(),
            smallvec![
                view(0, product.left.ptr, product.dtype),
                view(1, product.right.ptr, product.dtype),
                view(2, product.out, product.out_dtype),
                View::new(place, Dtype::I64, smallvec![]),
            ],
        );
        Ok(Some((launch, place)))
    }
}

impl Kind for Addresses {
    fn label(&self) -> String {
        super::LABEL.into()
    }

    unsafe fn run(&self, launch: &Launch, _faults: &FaultSlot) {
        let count: usize = launch.shape.iter().product();
        let [operands @ .., place] = &launch.views[..] else { return };
        for (number, view) in operands.iter().enumerate() {
            for product in 0..count {
                let (mut rest, mut offset) = (product, 0);
                for (&extent, &stride) in launch.shape.iter().zip(&view.strides).rev() {
                    offset += (rest % extent) as isize * stride;
                    rest /= extent;
                }
                let address = view.ptr.wrapping_add_signed((offset * view.dtype.size() as isize) as i64);
                // SAFETY: the caller guarantees that the buffer holds three addresses for each product.
                unsafe { (place.ptr as *mut u64).add(number * count + product).write_unaligned(address) };
            }
        }
    }

    fn ships(&self) -> bool {
        true
    }

    fn source(&self, _signature: Signature) -> CudaSource {
        let values = [("DIMS", DIMS.to_string())];
        let values = values.each_ref().map(|(name, text)| (*name, text.as_str()));
        let text = assemble(include_str!("../../../../kernels/addresses.cu"), &values);
        CudaSource { text, entries: &["addresses"] }
    }

    fn enqueue(&self, launch: &Launch, _signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        let [operands @ .., place] = &launch.views[..] else { return Ok(()) };
        let count: u64 = launch.shape.iter().map(|&n| n as u64).product();
        let mut words = vec![count, place.ptr];
        words.extend(operands.iter().map(|view| view.ptr));
        for d in (0..DIMS).map(|d| launch.shape.len().checked_sub(d + 1)) {
            words.push(d.map_or(1, |d| launch.shape[d] as u64));
            let bytes = |view: &View, d: usize| (view.strides[d] * view.dtype.size() as isize) as u64;
            words.extend(operands.iter().map(|view| d.map_or(0, |d| bytes(view, d))));
        }
        queue.run(0, blocks(count, 256), 256, &words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::cuda::Outer;
    use crate::kernel::host;

    #[test]
    fn addresses_are_those_of_the_batches() {
        let mut product = Product::of_matrices(Dtype::F16, [4, 5, 6], [false, true], 4096);
        let of = |extent, steps| Outer { extent, steps };
        product.outer.extend([of(2, [1000, 0, 120]), of(3, [24, 7, 60]), of(1, [9, 9, 9])]);
        let mut place = vec![0u64; 3 * product.count()];
        let take = |bytes| {
            assert_eq!(bytes, 8 * 3 * 18, "two by three outer batches of three products");
            Ok(place.as_mut_ptr() as Ptr)
        };
        let (launch, at) = Addresses::launch(&product, take).unwrap().unwrap();
        assert_eq!(at, place.as_ptr() as Ptr);
        // SAFETY: the launch writes only the buffer.
        unsafe { host::run(&launch, &FaultSlot::default()) };
        let mut want = [vec![], vec![], vec![]];
        for batch in product.batches() {
            for number in 0..batch.batch as i64 {
                let at = |ptr: Ptr, step: i64| ptr.wrapping_add_signed(2 * number * step);
                want[0].push(at(batch.left.ptr, batch.left.step));
                want[1].push(at(batch.right.ptr, batch.right.step));
                want[2].push(at(batch.out, batch.out_step));
            }
        }
        assert_eq!(place, want.concat());
        product.outer.extend([of(1, [0; 3]); DIMS]);
        let refused = Addresses::launch(&product, |_| panic!("memory is taken")).unwrap();
        assert!(refused.is_none(), "more dimensions than the kernel has");
    }
}
