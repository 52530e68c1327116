//! Loops over the steps of a sequence: a matrix product and an elementwise program per step.
//!
//! The steps of a recurrent layer are so small that most of their time would be spent in the host if each were
//! recorded, checked and queued as operations. A launch of this kind queues all of them: two kernels per step, or one kernel
//! for all steps of a layer with few weights.

mod whole;

use super::{Map, Matmul};
use crate::array::Dtype;
use crate::base::Result;
use crate::kernel::cuda::{CudaSource, Queue, Signature};
use crate::kernel::host::FaultSlot;
use crate::kernel::host::tasks::Until;
use crate::kernel::{Kind, Launch, Program, Ptr, View};
use smallvec::smallvec;
use std::sync::Arc;
use whole::Whole;

/// A loop over the steps of a sequence. Each step multiplies what the previous step computed by a matrix, and runs an
/// elementwise program that reads the product.
///
/// Shape: `[steps, rows, width, inner, columns]`. Views: 0 the matrix, `[inner, columns]`; 1 the left factor of the first
/// step, `[rows, inner]`; 2 that of the other steps, `[steps, rows, inner]`, at the step before; from 3 on those of
/// [`Place`], `[steps, rows, width]` or, for a first step, `[rows, width]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Recurrent {
    /// The name of the layer.
    pub name: &'static str,
    /// The dtype of the factors. The product of halves is `f32`.
    pub dtype: Dtype,
    /// Allows TF32 for a product by the library.
    pub tf32: bool,
    /// The program of a step, over `[rows, width]`.
    pub cell: Map,
    /// The views of the program.
    pub places: Vec<Place>,
    /// The numbers of the program.
    pub numbers: Vec<u64>,
    /// The views of the program that make up the left factor of the next step, by columns of `width`.
    pub left: Vec<u16>,
    /// From the last step to the first.
    pub reverse: bool,
}

/// A view of the program of a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Place {
    /// The part of the product with this number; a part has `width` columns.
    Product(u16),
    /// The launch's view with this number, at the step.
    Now(u16),
    /// The launch's view with the first number at the step before; in the first step, the view with the second number.
    Before(u16, u16),
}

impl Place {
    /// The highest number of a view of the launch.
    fn last_view(&self) -> u16 {
        match *self {
            Place::Product(_) => 0,
            Place::Now(view) => view,
            Place::Before(view, first) => view.max(first),
        }
    }
}

/// A view at a step.
fn at(view: &View, step: usize) -> View {
    let (along, rest) = view.strides.split_first().map_or((0, &[][..]), |(&along, rest)| (along, rest));
    let offset = step as i64 * along as i64 * view.dtype.size() as i64;
    View::new(view.ptr.wrapping_add(offset as u64), view.dtype, rest.into())
}

/// The launches of a step, except for their addresses.
struct Steps<'a> {
    kind: &'a Recurrent,
    launch: &'a Launch,
    product: Launch,
    cell: Launch,
}

impl<'a> Steps<'a> {
    /// `product`: memory for [`Recurrent::product_bytes`].
    fn new(kind: &'a Recurrent, launch: &'a Launch, product: Ptr) -> Steps<'a> {
        let [rows, width, inner, columns] = [1, 2, 3, 4].map(|d| launch.shape[d]);
        let out = View::new(product, kind.product_dtype(), smallvec![columns as isize, 1]);
        let first = launch.views[1].clone();
        let mut cell = Launch::new(Arc::new(Program::new(&kind.cell)), smallvec![rows, width], smallvec![]);
        cell.numbers = kind.numbers.iter().copied().collect();
        let product = Launch::new(
            Arc::new(Program::new(&kind.product())),
            smallvec![rows, columns, inner],
            smallvec![first, launch.views[0].clone(), out],
        );
        Steps { kind, launch, product, cell }
    }

    /// The product and the program of a step.
    fn at(&mut self, number: usize) -> [&Launch; 2] {
        let (views, steps) = (&self.launch.views, self.launch.shape[0]);
        let time = |number: usize| if self.kind.reverse { steps - 1 - number } else { number };
        let before = |view: u16, first: u16| match number.checked_sub(1) {
            Some(number) => at(&views[usize::from(view)], time(number)),
            None => views[usize::from(first)].clone(),
        };
        self.product.views[0] = before(2, 1);
        let product = &self.product.views[2];
        let width = self.launch.shape[2];
        self.cell.views.clear();
        self.cell.views.extend(self.kind.places.iter().map(|place| match *place {
            Place::Product(part) => {
                let offset = usize::from(part) * width * product.dtype.size();
                View { ptr: product.ptr + offset as u64, ..product.clone() }
            }
            Place::Now(view) => at(&views[usize::from(view)], time(number)),
            Place::Before(view, first) => before(view, first),
        }));
        [&self.product, &self.cell]
    }
}

impl Recurrent {
    fn product(&self) -> Matmul {
        Matmul { dtype: self.dtype, tf32: self.tf32 }
    }

    fn product_dtype(&self) -> Dtype {
        self.dtype.accumulator()
    }

    /// The bytes of a step's product.
    fn product_bytes(&self, launch: &Launch) -> u64 {
        let size = self.product_dtype().size() as u64;
        size.saturating_mul(launch.shape[1] as u64).saturating_mul(launch.shape[4] as u64)
    }

    /// The product and the program of the first step.
    fn first(&self, launch: &Launch) -> [Launch; 2] {
        let mut steps = Steps::new(self, launch, 1 << 8);
        steps.at(0).map(Launch::clone)
    }
}

impl Kind for Recurrent {
    fn label(&self) -> String {
        self.name.into()
    }

    fn work(&self, shape: &[usize]) -> usize {
        let &[steps, rows, width, inner, columns] = shape else { return 0 };
        let cell = width.saturating_mul(self.cell.instrs.len());
        let row = inner.saturating_mul(columns).saturating_add(cell);
        steps.saturating_mul(rows).saturating_mul(row)
    }

    fn elements(&self, launch: &Launch) -> u64 {
        launch.shape[..3].iter().fold(1u64, |n, &extent| n.saturating_mul(extent as u64))
    }

    fn bytes(&self, launch: &Launch) -> u64 {
        let read: u64 = self
            .places
            .iter()
            .map(|place| match *place {
                Place::Product(_) => 4,
                Place::Now(view) | Place::Before(view, _) => {
                    launch.views[usize::from(view)].dtype.size() as u64
                }
            })
            .sum();
        let matrix = launch.shape[3].saturating_mul(launch.shape[4]).saturating_mul(self.dtype.size());
        let matrices = (matrix as u64).saturating_mul(launch.shape[0] as u64);
        self.elements(launch).saturating_mul(read).saturating_add(matrices)
    }

    fn cost(&self, launch: &Launch) -> u64 {
        let multiplied = launch.shape.iter().enumerate().filter(|(d, _)| *d != 2);
        let multiplied = multiplied.fold(1u64, |n, (_, &extent)| n.saturating_mul(extent as u64));
        (2000 * launch.shape[0] as u64).saturating_add(multiplied / 5_000)
    }

    fn updates(&self) -> bool {
        // States that a step replaces.
        true
    }

    unsafe fn run(&self, launch: &Launch, faults: &FaultSlot) {
        let mut product = vec![0u64; self.product_bytes(launch).div_ceil(8) as usize];
        let mut steps = Steps::new(self, launch, product.as_mut_ptr() as u64);
        let until = Until::now();
        for number in 0..launch.shape[0] {
            if until.ended() {
                return;
            }
            let [product, cell] = steps.at(number);
            // SAFETY: guaranteed by the caller, and the memory of the product outlives the step.
            unsafe {
                self.product().run(product, faults);
                self.cell.run(cell, faults);
            }
        }
    }

    fn scratch(&self, launch: &Launch) -> u64 {
        let [product, _] = self.first(launch);
        self.product_bytes(launch).saturating_add(self.product().scratch(&product))
    }

    fn multiplies(&self, launch: &Launch) -> bool {
        if Whole::of(self, &launch.shape).is_some() {
            return false;
        }
        let [product, _] = self.first(launch);
        self.product().multiplies(&product)
    }

    fn signature(&self, launch: &Launch) -> Signature {
        Whole::of(self, &launch.shape).map(|whole| whole.signature()).unwrap_or_default()
    }

    fn source(&self, signature: Signature) -> CudaSource {
        match Whole::read(signature) {
            Some(whole) => whole.source(self),
            None => CudaSource { text: String::new(), entries: &[] },
        }
    }

    fn enqueue(&self, launch: &Launch, signature: Signature, queue: &mut dyn Queue) -> Result<()> {
        if let Some(whole) = Whole::read(signature) {
            return whole.enqueue(self, launch, queue);
        }
        let product = queue.scratch(self.product_bytes(launch))?;
        let mut steps = Steps::new(self, launch, product);
        for number in 0..launch.shape[0] {
            let [product, cell] = steps.at(number);
            self.product().enqueue(product, Signature::default(), queue)?;
            queue.launch(cell)?;
        }
        Ok(())
    }

    fn interpret(&self, launch: &Launch, queue: &mut dyn Queue) -> Result<bool> {
        if Whole::of(self, &launch.shape).is_none() {
            return Ok(false);
        }
        Whole::by_steps(self, launch, queue).map(|()| true)
    }

    fn parts(&self, launch: &Launch) -> Vec<Launch> {
        match Whole::of(self, &launch.shape) {
            Some(_) => Vec::new(),
            None => self.first(launch).into(),
        }
    }
}
