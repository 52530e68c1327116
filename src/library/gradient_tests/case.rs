//! Calls of operations with random leaves, their gradients and central differences.

use crate::array::{Dtype, Scalar};
use crate::base::Result;
use crate::driver::DeviceId;
use crate::ops::gradient::{self, Create, Event, Options, Pass, Target};
use crate::ops::signature::Kind;
use crate::ops::subscript::{INDEX, Index, SET_INDEX};
use crate::ops::{Arg, Args, Call, Gradient, Op, Out, apply, table};
use crate::plan::Runtime;
use crate::tensor::Tensor;
use crate::vm::Vm;

/// The operands of a call that become leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Floating-point operands.
    Real,
    /// Integer operands, in calls without floating-point ones.
    Whole,
    /// The first operand, in calls without floating-point ones.
    First,
    /// Floating-point operands, as complex numbers.
    Complex,
}

/// The ways in which leaves become operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variant {
    /// The leaf itself.
    Plain,
    /// A leaf with the dimensions in reverse order, permuted.
    Turned,
    /// Every second element of a leaf.
    Stepped,
    /// A leaf of extent 1, expanded.
    Expanded,
    /// Operands of elementwise operations after the first have only its last dimension.
    Broadcast,
    /// A copy of the leaf receives the result.
    InPlace,
}

impl Variant {
    pub const ALL: [Variant; 6] = [
        Variant::Plain,
        Variant::Turned,
        Variant::Stepped,
        Variant::Expanded,
        Variant::Broadcast,
        Variant::InPlace,
    ];
}

/// An operand that is a leaf.
struct Place {
    param: usize,
    element: Option<usize>,
    shape: Vec<usize>,
    dtype: Dtype,
    device: DeviceId,
}

/// A call whose floating-point operands are leaves.
pub struct Case {
    pub op: &'static Op,
    /// The operation and its arguments, for messages.
    pub name: String,
    args: Vec<Arg>,
    places: Vec<Place>,
}

/// Deterministic numbers in 0 .. 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, count: usize, (low, high): (f64, f64)) -> Vec<f64> {
        (0..count).map(|_| low + (high - low) * self.next()).collect()
    }
}

fn describe(arg: &Arg) -> String {
    let tensor = |x: &Tensor| format!("{}{:?}", x.dtype(), x.shape());
    match arg {
        Arg::None => "none".into(),
        Arg::Bool(x) => x.to_string(),
        Arg::Int(x) => x.to_string(),
        Arg::Float(x) => x.to_string(),
        Arg::Str(x) => x.clone(),
        Arg::Tensor(x) => tensor(x),
        Arg::Tensors(all) => all.iter().map(tensor).collect::<Vec<_>>().join(" "),
        Arg::Ints(x) => format!("{x:?}"),
        Arg::Dtype(x) => x.to_string(),
        Arg::Device(x) => x.to_string(),
        Arg::Indices(x) => x
            .iter()
            .map(|i| match i {
                Index::Int(i) => i.to_string(),
                Index::Slice { start, end, step } => format!("{start:?}..{end:?}..{step}"),
                Index::NewAxis => "new".into(),
                Index::Ellipsis => "...".into(),
                Index::Mask(x) | Index::Ids(x) => tensor(x),
            })
            .collect::<Vec<_>>()
            .join(","),
        _ => "_".into(),
    }
}

/// Arguments for an elementwise operation with several operands, all of them tensors of different shapes.
pub fn made_up(vm: &mut Vm, op: &Op) -> Option<Vec<Arg>> {
    let is_operand = |kind: &Kind| matches!(kind, Kind::Tensor | Kind::TensorOrNumber);
    op.elementwise()?;
    if op.name == "where" || op.params.iter().filter(|p| is_operand(&p.kind)).count() < 2 {
        return None;
    }
    let mut args = Vec::new();
    for (i, param) in op.params.iter().enumerate() {
        let shape: &[usize] = if i == 1 { &[3] } else { &[2, 3] };
        args.push(match is_operand(&param.kind) {
            true => Arg::Tensor(vm.rt.empty(shape, Dtype::F64, DeviceId::Cuda(0)).ok()?),
            false => crate::ops::default_arg(param.default),
        });
    }
    Some(args)
}

impl Case {
    /// A case; `None` if no operand can become a leaf.
    pub fn new(op: &'static Op, args: &[Arg], form: Form) -> Option<Case> {
        let floats = |x: &Tensor| x.dtype().is_float() || x.dtype().is_complex();
        let mut all: Vec<(usize, Option<usize>, &Tensor)> = Vec::new();
        for (param, arg) in args.iter().enumerate() {
            match arg {
                Arg::Tensor(x) => all.push((param, None, x)),
                Arg::Tensors(list) => {
                    all.extend(list.iter().enumerate().map(|(i, x)| (param, Some(i), x)));
                }
                _ => {}
            }
        }
        let any = all.iter().any(|(.., x)| floats(x));
        match form {
            Form::Real => all.retain(|(.., x)| floats(x)),
            Form::Complex => all.retain(|(.., x)| if any { floats(x) } else { x.dtype().is_int() }),
            Form::Whole if !any => all.retain(|(.., x)| x.dtype().is_int()),
            Form::First if !any => all.retain(|(param, _, x)| *param == 0 && x.dtype().is_int()),
            Form::Whole | Form::First => return None,
        }
        if all.is_empty() {
            return None;
        }
        let complex = |d: Dtype| form == Form::Complex || d.is_complex();
        let wide = |d: Dtype| if complex(d) { Dtype::C128 } else { Dtype::F64 };
        let places: Vec<Place> = (all.iter())
            .map(|&(param, element, x)| Place {
                param,
                element,
                shape: x.shape().to_vec(),
                dtype: wide(x.dtype()),
                device: x.device(),
            })
            .collect();
        let args: Vec<Arg> = (args.iter())
            .map(|arg| match arg {
                Arg::Dtype(d) if (d.is_float() || d.is_complex()) && op.name != "to" => Arg::Dtype(wide(*d)),
                other => other.clone(),
            })
            .collect();
        let text: Vec<String> = args.iter().map(describe).collect();
        Some(Case { op, name: format!("{}({}) {form:?}", op.name, text.join(", ")), args, places })
    }

    /// The shape of a leaf.
    fn shape(&self, number: usize, variant: Variant) -> Vec<usize> {
        let mut shape = self.places[number].shape.clone();
        match variant {
            Variant::Turned => shape.reverse(),
            Variant::Stepped => {
                if let Some(last) = shape.last_mut() {
                    *last *= 2;
                }
            }
            Variant::Expanded => {
                if let Some(first) = shape.first_mut() {
                    *first = 1;
                }
            }
            Variant::Broadcast if number > 0 => shape = shape.last().copied().into_iter().collect(),
            Variant::Broadcast if shape.len() == 1 => shape.insert(0, 3),
            _ => {}
        }
        shape
    }

    /// Returns whether operands can be passed like this.
    pub fn takes(&self, vm: &mut Vm, variant: Variant, range: (f64, f64)) -> bool {
        let rank = self.places.iter().map(|place| place.shape.len()).max().unwrap_or(0);
        let fits = match variant {
            Variant::Plain => true,
            Variant::Turned => rank > 1,
            // `as_strided` reads the memory between the elements too.
            Variant::Stepped => rank > 0 && self.op.name != "as_strided",
            Variant::Expanded => self.places.iter().any(|place| place.shape.first().is_some_and(|&n| n > 1)),
            Variant::Broadcast => self.op.elementwise().is_some() && self.places.len() > 1,
            Variant::InPlace => self.op.form.in_place && self.places[0].param == 0,
        };
        if !fits {
            return false;
        }
        let data = self.data(variant, range);
        match self.values(vm, variant, &data, 1) {
            Ok(values) => values.iter().all(|x| x.is_finite()),
            // A result of another shape or dtype cannot be written.
            Err(error) if variant == Variant::InPlace => {
                let data = self.data(Variant::Plain, range);
                let same = self.forward(vm, Variant::Plain, &data, false).is_ok_and(|(leaves, results)| {
                    let of = |x: &Tensor| (x.shape().clone(), x.dtype());
                    results.iter().any(|result| of(result) == of(&leaves[0]))
                });
                assert!(!same, "{} in place: {error:?}", self.name);
                false
            }
            Err(error) => {
                assert!(
                    variant == Variant::Expanded
                        || variant == Variant::Turned
                        || variant == Variant::Stepped
                        || variant == Variant::Broadcast,
                    "{}: {error:?}",
                    self.name
                );
                false
            }
        }
    }

    fn random(&self, salt: u64) -> Random {
        let seed =
            self.name.bytes().fold(salt.wrapping_add(1), |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
        let mut random = Random(seed);
        random.between(4, (0.0, 1.0));
        random
    }

    /// Random elements of the leaves; complex ones are pairs.
    pub fn data(&self, variant: Variant, range: (f64, f64)) -> Vec<Vec<f64>> {
        let mut random = self.random(1);
        (0..self.places.len())
            .map(|number| {
                let parts = if self.places[number].dtype.is_complex() { 2 } else { 1 };
                random.between(self.shape(number, variant).iter().product::<usize>() * parts, range)
            })
            .collect()
    }

    /// Calls the operation; returns the leaves and the floating-point results.
    fn forward(
        &self,
        vm: &mut Vm,
        variant: Variant,
        data: &[Vec<f64>],
        track: bool,
    ) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let rt = &mut vm.rt;
        for device in [DeviceId::Cpu, DeviceId::Cuda(0), DeviceId::Cuda(1)] {
            rt.generator(device)?.manual_seed(7);
        }
        let mut args = self.args.clone();
        let mut leaves = Vec::new();
        for (number, place) in self.places.iter().enumerate() {
            let bytes: Vec<u8> = data[number].iter().flat_map(|x| x.to_le_bytes()).collect();
            let shape = self.shape(number, variant);
            let leaf = rt.from_host(&bytes, &shape, place.dtype, place.device)?;
            if track {
                gradient::require(rt, &leaf, true)?;
            }
            let operand = passed(rt, &leaf, variant, &place.shape)?;
            leaves.push(leaf);
            match (&mut args[place.param], place.element) {
                (Arg::Tensors(list), Some(element)) => list[element] = operand,
                (arg, _) => *arg = Arg::Tensor(operand),
            }
        }
        let writes = matches!(self.op.gradient, Gradient::Writes(_)) || std::ptr::eq(self.op, &SET_INDEX);
        let target = match &args[0] {
            Arg::Tensor(x) if writes || variant == Variant::InPlace => {
                Some(call(rt, "clone", &[Arg::Tensor(x.clone())])?)
            }
            _ => None,
        };
        if let Some(target) = &target {
            args[0] = Arg::Tensor(target.clone());
        }
        let bound = Args(&args);
        let out = apply(
            rt,
            self.op,
            if variant == Variant::InPlace { Call::InPlace(bound) } else { Call::Plain(bound) },
        )?;
        let results = match (target, out) {
            (Some(target), _) => vec![target],
            (None, Out::Tensor(x)) => vec![x],
            (None, Out::Tuple(all) | Out::Record(_, all)) => all,
            _ => Vec::new(),
        };
        let results =
            results.into_iter().filter(|x| x.dtype().is_float() || x.dtype().is_complex()).collect();
        Ok((leaves, results))
    }

    /// The results, as numbers; with order 2 the gradients.
    pub fn values(&self, vm: &mut Vm, variant: Variant, data: &[Vec<f64>], order: usize) -> Result<Vec<f64>> {
        if order == 2 {
            return Ok(self.gradients(vm, variant, data, 1)?.concat());
        }
        let (_, results) = self.forward(vm, variant, data, false)?;
        let mut all = Vec::new();
        for result in &results {
            all.extend(numbers(&mut vm.rt, result)?);
        }
        Ok(all)
    }

    /// True if no result requires gradients.
    pub fn depends_on_nothing(&self, vm: &mut Vm, data: &[Vec<f64>]) -> std::result::Result<bool, String> {
        let (_, results) =
            self.forward(vm, Variant::Plain, data, true).map_err(|e| format!("recorded: {e:?}"))?;
        Ok(!results.iter().any(|result| gradient::requires_gradient(&mut vm.rt, result)))
    }

    /// True if small changes of the leaves do not change the results.
    pub fn is_still(
        &self,
        vm: &mut Vm,
        data: &[Vec<f64>],
        values: &[f64],
    ) -> std::result::Result<bool, String> {
        let moved: Vec<Vec<f64>> = data.iter().map(|leaf| leaf.iter().map(|x| x + 1e-7).collect()).collect();
        let after = self.values(vm, Variant::Plain, &moved, 1).map_err(|e| format!("{e:?}"))?;
        Ok(after == values || values.is_empty())
    }

    /// The gradients of the leaves, of a weighted sum of the results. With order 2, those of a weighted sum of
    /// the gradients.
    pub fn gradients(
        &self,
        vm: &mut Vm,
        variant: Variant,
        data: &[Vec<f64>],
        order: usize,
    ) -> Result<Vec<Vec<f64>>> {
        let (leaves, results) = self.forward(vm, variant, data, true)?;
        let rt = &mut vm.rt;
        let mut random = self.random(2);
        let mut found = passed_back(rt, &leaves, &results, &mut random, order == 2)?;
        if order == 2 {
            let mut first = Vec::new();
            for (gradient, leaf) in found.into_iter().zip(&leaves) {
                first.push(match gradient {
                    Some(gradient) => gradient,
                    None => call(rt, "zeros_like", &[Arg::Tensor(leaf.clone())])?,
                });
            }
            found = passed_back(rt, &leaves, &first, &mut self.random(3), false)?;
        }
        let mut all = Vec::new();
        for (gradient, data) in found.iter().zip(data) {
            all.push(match gradient {
                Some(gradient) => numbers(rt, gradient)?,
                None => vec![0.0; data.len()],
            });
        }
        Ok(all)
    }

    /// Compares gradients with central differences.
    pub fn compared(
        &self,
        vm: &mut Vm,
        variant: Variant,
        range: (f64, f64),
        order: usize,
    ) -> Result<std::result::Result<(), String>> {
        let data = self.data(variant, range);
        let (_, results) = self.forward(vm, variant, &data, false)?;
        let digits =
            results.iter().map(|x| x.dtype().real()).fold(0.0f64, |most, dtype| most.max(dtype.epsilon()));
        let (step, tolerance) = match digits {
            e if e < 1e-10 => (1e-5, 2e-6),
            e if e < 1e-5 => (1e-2, 1e-2),
            _ => (0.1, 0.3),
        };
        let gradients = self.gradients(vm, variant, &data, order)?;
        let values = self.values(vm, variant, &data, order)?;
        let mut random = self.random(if order == 1 { 2 } else { 3 });
        let weights = weights(&mut random, values.len());
        let sum = |values: &[f64]| -> f64 { values.iter().zip(&weights).map(|(x, w)| x * w).sum() };
        let mut directions = self.random(4);
        for (number, leaf) in data.iter().enumerate() {
            let direction = directions.between(leaf.len(), (-1.0, 1.0));
            let mut at = |sign: f64| -> Result<f64> {
                let mut moved = data.clone();
                let steps = leaf.iter().zip(&direction);
                moved[number] = steps.map(|(x, d)| x + sign * step * d).collect();
                Ok(sum(&self.values(vm, variant, &moved, order)?))
            };
            let difference = (at(1.0)? - at(-1.0)?) / (2.0 * step);
            let found: f64 = gradients[number].iter().zip(&direction).map(|(g, d)| g * d).sum();
            let limit = tolerance * (1.0 + difference.abs().max(found.abs()));
            if (found - difference).abs() > limit || !found.is_finite() {
                let text = format!("operand {number}: the gradient gives {found}, differences {difference}");
                return Ok(Err(text));
            }
        }
        Ok(Ok(()))
    }
}

/// A leaf as an operand of this shape.
fn passed(rt: &mut Runtime, leaf: &Tensor, variant: Variant, shape: &[usize]) -> Result<Tensor> {
    let rank = shape.len() as i64;
    let x = Arg::Tensor(leaf.clone());
    match variant {
        Variant::Turned if rank > 1 => call(rt, "permute", &[x, Arg::Ints((0..rank).rev().collect())]),
        Variant::Stepped if rank > 0 => {
            let step = Index::Slice { start: None, end: None, step: 2 };
            let args = [x, Arg::Indices(vec![Index::Ellipsis, step])];
            tensor_of(apply(rt, &INDEX, Call::Plain(Args(&args)))?)
        }
        Variant::Expanded if rank > 0 => {
            call(rt, "expand", &[x, Arg::Ints(shape.iter().map(|&n| n as i64).collect())])
        }
        _ => Ok(leaf.clone()),
    }
}

fn call(rt: &mut Runtime, name: &str, args: &[Arg]) -> Result<Tensor> {
    let op = table::find(name).unwrap();
    let defaults = op.params.iter().skip(args.len()).map(|param| crate::ops::default_arg(param.default));
    let args: Vec<Arg> = args.iter().cloned().chain(defaults).collect();
    tensor_of(apply(rt, op, Call::Plain(Args(&args)))?)
}

fn tensor_of(out: Out) -> Result<Tensor> {
    match out {
        Out::Tensor(tensor) => Ok(tensor),
        _ => Err(crate::ops::error::wrong_argument(0, "a tensor")),
    }
}

/// The elements as numbers; complex ones as pairs.
pub fn numbers(rt: &mut Runtime, x: &Tensor) -> Result<Vec<f64>> {
    let part = x.dtype().real();
    let bytes = rt.read(x)?;
    Ok(bytes.chunks_exact(part.size()).map(|b| Scalar::decode(b, part).as_f64()).collect())
}

fn weights(random: &mut Random, count: usize) -> Vec<f64> {
    let coarse = |x: f64| (x * 16.0).round() / 16.0;
    // Exact in every dtype.
    random.between(count, (-1.0, 1.0)).into_iter().map(coarse).collect()
}

/// The gradients of the leaves, of a weighted sum of results.
fn passed_back(
    rt: &mut Runtime,
    leaves: &[Tensor],
    results: &[Tensor],
    random: &mut Random,
    create: bool,
) -> Result<Vec<Option<Tensor>>> {
    let mut targets = Vec::new();
    for result in results {
        let parts = if result.dtype().is_complex() { 2 } else { 1 };
        let mut bytes = Vec::new();
        for weight in weights(random, result.count() * parts) {
            Scalar::Float(weight).encode(result.dtype().real(), &mut bytes);
        }
        if gradient::requires_gradient(rt, result) {
            let weight = rt.from_host(&bytes, result.shape(), result.dtype(), result.device())?;
            targets.push(Target { tensor: result.clone(), gradient: Some(weight) });
        }
    }
    if targets.is_empty() {
        return Ok(vec![None; leaves.len()]);
    }
    let inputs = leaves.iter().map(|leaf| gradient::edge_of(rt, leaf).unwrap()).collect();
    let create = if create { Create::Yes } else { Create::No };
    let options = Options { retain: create == Create::Yes, create, accumulate: false, inputs: Some(inputs) };
    match Pass::start(rt, targets, options)?.advance(rt)? {
        Event::Done(found) => Ok(found),
        _ => panic!("a hook"),
    }
}
