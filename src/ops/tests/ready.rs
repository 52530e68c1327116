//! With only a CUDA driver installed, everything runs: a kernel ships for each launch of each operation.

#![cfg(test)]

use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::driver::cuda::ships;
use crate::kernel::cuda::interpret::Encoded;
use crate::kernel::cuda::{Planned, Product, Queue, Tiles};
use crate::kernel::fft::{Fft, FftSpec, OwnPlan};
use crate::kernel::{Addresses, Launch, Ptr, Rows, ThinProduct, TiledProduct};
use crate::ops::signature::{Default, Kind, Param};
use crate::ops::testing::{GPU, Lab};
use crate::ops::{Arg, Args, Call, Data, Op, apply, table};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};

/// Kinds whose general kernels take at most eight dimensions after merging.
const FEW_DIMENSIONS: &[&str] = &["gather", "scatter_", "search", "sort"];

/// A queue that runs nothing and collects launches without a ready-made kernel.
#[derive(Default)]
struct Spy {
    problems: Vec<String>,
    /// The Fourier transform being checked.
    transform: Option<FftSpec>,
}

impl Spy {
    /// Adds what the launch lacks.
    fn look(&mut self, launch: &Launch) {
        let kind = &*launch.program.kind;
        if kind.is_empty(launch) {
            return;
        }
        // Its groups run one by one until its own kernel is compiled.
        if (kind as &dyn Any).downcast_ref::<Rows>().is_some() {
            return;
        }
        let signature = kind.signature(launch);
        if !kind.is_plain() {
            self.transform = (kind as &dyn Any).downcast_ref::<Fft>().map(|fft| fft.spec.clone());
            kind.enqueue(launch, signature, self).unwrap();
            return;
        }
        // Library work, or our own product instead of it.
        if kind.source(signature).entries.is_empty() {
            kind.enqueue(launch, signature, self).unwrap();
            return;
        }
        let shipped = if kind.ships() { Some(signature) } else { kind.general(launch) };
        let ready = match shipped {
            Some(signature) => {
                let source = kind.source(signature);
                let found = ships(&source.text);
                if found {
                    kind.enqueue(launch, signature, self).unwrap();
                }
                found
            }
            None => kind.interpret(launch, self).unwrap(),
        };
        if !ready {
            let views: Vec<_> = launch.views.iter().map(|view| view.dtype.name()).collect();
            self.problems.push(format!("{} {:?} {views:?}", launch.program.label, launch.shape));
        }
    }
}

impl Queue for Spy {
    fn run_grid(&mut self, _: usize, _: (u32, u32, u32), _: u32, _: &[u64]) -> Result<()> {
        Ok(())
    }
    fn interpret(&mut self, _: &Encoded) -> Result<bool> {
        Ok(true)
    }
    fn launch(&mut self, launch: &Launch) -> Result<()> {
        self.look(launch);
        Ok(())
    }
    fn multiply(&mut self, product: &Product) -> Result<()> {
        for batch in product.batches() {
            self.look(&ThinProduct::launch(&batch).unwrap_or_else(|| TiledProduct::launch(&batch)));
        }
        if let Some((addresses, _)) = Addresses::launch(product, |_| Ok(0)).unwrap() {
            self.look(&addresses);
        }
        Ok(())
    }
    fn run_tiles(&mut self, _: &Tiles, _: &[u64]) -> Result<()> {
        unreachable!()
    }
    fn transform(&mut self, transform: &Planned<'_>) -> Result<()> {
        let spec = self.transform.take().unwrap();
        self.look(&OwnPlan::new(&spec).launch(transform));
        Ok(())
    }
    fn clear(&mut self, _: Ptr, _: u64) -> Result<()> {
        Ok(())
    }
    fn scratch(&mut self, _: u64) -> Result<Ptr> {
        Ok(1 << 20)
    }
    fn fault_record(&self) -> u64 {
        0
    }
    fn fault_stamp(&self, _: u32) -> u64 {
        0
    }
}

/// Values for a parameter.
fn values(lab: &mut Lab, kind: Kind, dtype: Dtype, deep: bool) -> Vec<Arg> {
    if deep && matches!(kind, Kind::Tensor | Kind::TensorOrNumber) {
        return deep_tensors(lab, dtype);
    }
    let numbers: Vec<f64> = (0..16).map(|i| if i % 5 == 0 { 2.0 } else { f64::from(i % 3) / 4.0 }).collect();
    let square = |lab: &mut Lab| lab.tensor(&[4, 4], &numbers, dtype);
    match kind {
        Kind::Tensor | Kind::TensorOrNumber => {
            let whole = square(lab);
            let mut all = vec![
                Arg::Tensor(whole.clone()),
                Arg::Tensor(lab.tensor(&[4], &[0.0, 1.0, 2.0, 1.0], Dtype::I64)),
                Arg::Tensor(lab.tensor(&[4], &numbers[..4], dtype)),
                Arg::Tensor(whole.with_layout(whole.layout().permute(&[1, 0]))),
                Arg::Tensor(lab.tensor(&[4, 4], &[0.0; 16], Dtype::I64)),
                Arg::Tensor(lab.tensor(&[4, 4], &numbers, Dtype::Bool)),
                Arg::Tensor(lab.tensor(&[2, 2, 2], &numbers[..8], dtype)),
                Arg::Tensor(lab.tensor(&[], &numbers[..1], dtype)),
            ];
            if kind == Kind::TensorOrNumber {
                all.insert(2, Arg::Float(0.5));
            }
            all
        }
        Kind::Tensors => vec![Arg::Tensors(vec![square(lab), square(lab)])],
        Kind::Number => vec![Arg::Int(1), Arg::Float(0.5)],
        Kind::Float => vec![Arg::Float(0.5)],
        Kind::Int => vec![Arg::Int(1), Arg::Int(0), Arg::Int(2), Arg::Int(4)],
        Kind::Bool => vec![Arg::Bool(true)],
        Kind::Str => ["sum", "ij,jk->ik", "amax", "linear"].map(|text| Arg::Str(text.into())).into(),
        Kind::Shape | Kind::ShapeOrDtype => {
            vec![Arg::Ints(vec![4, 4]), Arg::Ints(vec![16]), Arg::Ints(vec![1, 0]), Arg::Ints(vec![1])]
        }
        Kind::Dims => vec![Arg::Ints(vec![1]), Arg::Ints(vec![0]), Arg::Ints(vec![0, 1])],
        Kind::Dtype => vec![Arg::Dtype(dtype), Arg::Dtype(Dtype::C64), Arg::Dtype(Dtype::F16)],
        Kind::Device => vec![Arg::Device(GPU)],
        Kind::Data => vec![Arg::Data(Data::Number(Scalar::Float(1.0)))],
        Kind::Stream | Kind::Event | Kind::Generator | Kind::Fn | Kind::Any => vec![Arg::None],
    }
}

/// Tensors with more dimensions than general kernels support, which cannot be merged.
fn deep_tensors(lab: &mut Lab, dtype: Dtype) -> Vec<Arg> {
    const RANK: usize = 12;
    let shape = [2; RANK];
    let numbers: Vec<f64> = (0..1 << RANK).map(|i| f64::from(i % 7) / 4.0).collect();
    let whole = lab.tensor(&shape, &numbers, dtype);
    let turned: Vec<usize> = (0..RANK).rev().collect();
    let places: Vec<f64> = numbers.iter().map(|x| f64::from(*x > 0.5)).collect();
    let places = lab.tensor(&shape, &places, Dtype::I64);
    let all = [whole.with_layout(whole.layout().permute(&turned)), whole, places];
    all.into_iter().map(Arg::Tensor).collect()
}

fn absent(param: &Param) -> Arg {
    match param.default {
        Default::Required | Default::None | Default::Absent => Arg::None,
        Default::Bool(b) => Arg::Bool(b),
        Default::Int(i) => Arg::Int(i),
        Default::Float(f) => Arg::Float(f),
        Default::Str(s) => Arg::Str(s.into()),
    }
}

/// Limits per operation: calls that are tried, and calls that succeed.
const MAX_CALLS: (usize, usize) = (300, 6);

/// Argument lists: all combinations of the required ones; then each optional one.
fn calls(lab: &mut Lab, op: &Op, dtype: Dtype, deep: bool, all_given: bool) -> Vec<Vec<Arg>> {
    let mut all: Vec<Vec<Arg>> = vec![Vec::new()];
    for param in op.params {
        let choices = match param.default {
            Default::Required => values(lab, param.kind, dtype, deep),
            _ if param.kind == Kind::Device => values(lab, param.kind, dtype, deep),
            _ if param.rest || all_given => values(lab, param.kind, dtype, deep),
            _ => vec![absent(param)],
        };
        all = all
            .iter()
            .flat_map(|list| {
                choices.iter().map(move |choice| [&list[..], std::slice::from_ref(choice)].concat())
            })
            .take(MAX_CALLS.0)
            .collect();
    }
    all
}

/// The calls that succeed; then the same calls with each optional argument.
fn run(lab: &mut Lab, op: &'static Op, dtype: Dtype, deep: bool) -> usize {
    let mut succeeded = Vec::new();
    let try_one = |lab: &mut Lab, list: &[Arg]| {
        let args = Args(list);
        let call = if op.form.function || op.form.method { Call::Plain(args) } else { Call::InPlace(args) };
        apply(&mut lab.rt, op, call).is_ok()
    };
    for all_given in [false, true] {
        let lists = if succeeded.is_empty() { calls(lab, op, dtype, deep, all_given) } else { Vec::new() };
        for list in lists {
            if succeeded.len() < MAX_CALLS.1 && try_one(lab, &list) {
                succeeded.push(list);
            }
        }
    }
    for list in succeeded.iter().take(3) {
        for (i, param) in op.params.iter().enumerate().filter(|(_, param)| param.default != Default::Required)
        {
            for value in values(lab, param.kind, dtype, deep) {
                let mut list = list.clone();
                list[i] = value;
                try_one(lab, &list);
            }
        }
    }
    succeeded.len()
}

#[test]
fn every_operation_runs_without_a_compiler() {
    let (launches, never) = check(&Dtype::ALL, false);
    assert!(launches > 10_000, "{launches}");
    assert!(never.len() < 20, "{never:?}");
}

#[test]
fn operations_over_tensors_of_many_dimensions_run_without_a_compiler() {
    let (launches, _) = check(&[Dtype::F32, Dtype::C64], true);
    assert!(launches > 1000, "{launches}");
}

/// The launches, and the operations for which no arguments were found.
fn check(dtypes: &[Dtype], deep: bool) -> (usize, Vec<&'static str>) {
    let mut problems: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut launches, mut never) = (0, Vec::new());
    for op in table::all() {
        let mut found = 0;
        for &dtype in dtypes {
            let mut lab = Lab::new();
            lab.rt.start_listing(false).unwrap();
            found += run(&mut lab, op, dtype, deep);
            let listing = lab.rt.stop_listing();
            let mut spy = Spy::default();
            for listed in listing.launches.iter().filter(|listed| listed.device == GPU) {
                launches += 1;
                spy.look(&listed.launch);
            }
            let own = problems.entry(format!("{} over {dtype}", op.name)).or_default();
            let excused =
                |problem: &String| deep && FEW_DIMENSIONS.iter().any(|name| problem.starts_with(name));
            own.extend(spy.problems.into_iter().filter(|problem| !excused(problem)));
        }
        if found == 0 {
            never.push(op.name);
        }
    }
    problems.retain(|_, problems| !problems.is_empty());
    assert!(problems.is_empty(), "{problems:#?}");
    (launches, never)
}
