//! Every operation writes its whole result: every operation of the table, with all dtypes, on shapes and
//! layouts of many kinds, gives the same bytes whatever its memory contained before.
//!
//! Each call runs on two machines that overwrite memory with different bytes when it is handed out; which
//! bytes varies from call to call. Arguments are random, and an error that a call raises counts as its result.
//! `RUNNEL_POISONED=200` sets the number of calls per operation and dtype (6, or 16 with `RUNNEL_LONG=1`); with `RUNNEL_BACKEND=cuda` they
//! run on a GPU.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::array::{Dtype, Layout};
use runnel::device::{Backend, Config, Machine};
use runnel::driver::DeviceId;
use runnel::ops::signature::{Default, Kind, Param};
use runnel::ops::{Arg, Args, Call, Data, Op, Out, apply, table};
use runnel::plan::{Runtime, Settings};
use runnel::tensor::Tensor;

#[path = "common/draw.rs"]
mod draw;
#[path = "common/long.rs"]
mod long;
use draw::Draw;
use long::few_or_many;

/// Operations that leave elements uninitialised on purpose.
const UNWRITTEN: &[&str] = &["empty", "empty_like", "new_empty"];

/// The result that represents a panic.
const PANICS: &str = "panics";

/// The shapes of arguments.
const SHAPES: &[&[usize]] =
    &[&[], &[0], &[1], &[3], &[2, 3], &[3, 3], &[3, 2], &[0, 3], &[3, 0], &[2, 1, 3], &[2, 3, 3]];

/// What memory holds when it is handed out: zeros, nan and -1, large numbers, negative numbers. No two of them
/// hide an unwritten element in every operation: a maximum hides small numbers, a minimum large ones.
const PATTERNS: [u8; 4] = [0x00, 0xff, 0x55, 0xaa];

/// The patterns that a call is made with, by its number.
const PAIRS: [[usize; 2]; 6] = [[0, 1], [2, 3], [0, 2], [1, 3], [1, 2], [0, 3]];

/// Maximum draws until a call succeeds.
const MOST_DRAWS: u64 = 100_000;

/// A machine whose memory is filled with one byte value.
struct Lab {
    rt: Runtime,
    device: DeviceId,
}

impl Lab {
    fn new(byte: u8, device: DeviceId) -> Lab {
        let backend = match std::env::var("RUNNEL_BACKEND").is_ok_and(|name| name == "cuda") {
            true => Backend::Cuda,
            false => Backend::Emu,
        };
        let devices = (backend == Backend::Emu).then_some(1);
        let config = Config {
            backend,
            devices,
            device_memory: devices.map(|_| 256 << 20),
            poison: Some(byte),
            ..Config::default()
        };
        let mut rt = Runtime::new(Machine::open(&config).unwrap(), Settings::default());
        rt.set_device(device).unwrap();
        Lab { rt, device }
    }

    /// A tensor of small numbers; by `layout` all of its memory, its transpose, or every second element.
    fn tensor(&mut self, draw: &mut Draw, shape: &[usize], dtype: Dtype, limit: usize) -> Tensor {
        let layout = draw.below(4);
        let held: Vec<usize> = match layout {
            1 if shape.len() == 2 => vec![shape[1], shape[0]],
            2 if !shape.is_empty() => shape.iter().map(|n| 2 * n).collect(),
            _ => shape.to_vec(),
        };
        let count: usize = held.iter().product();
        let numbers: Vec<u8> = (0..count).map(|_| draw.below(limit) as u8).collect();
        let whole = self.rt.from_host(&numbers, &held, Dtype::U8, self.device).unwrap();
        let whole = self.rt.cast(&whole, dtype).unwrap();
        let strides = whole.layout().strides.clone();
        let strides = match layout {
            1 if shape.len() == 2 => strides.iter().rev().copied().collect(),
            2 => strides.iter().map(|stride| 2 * stride).collect(),
            _ => strides,
        };
        whole.with_layout(Layout { shape: shape.into(), strides, offset: 0 })
    }

    fn argument(&mut self, draw: &mut Draw, param: &Param, first: &mut Option<Tensor>, dtype: Dtype) -> Arg {
        if param.default != Default::Required && !param.rest && draw.below(3) > 0 && param.kind != Kind::Dtype
        {
            return default(param);
        }
        match param.kind {
            Kind::Tensor if param.rest => {
                let shape = *draw.of(SHAPES);
                Arg::Tensors((0..2).map(|_| self.tensor(draw, shape, dtype, 3)).collect())
            }
            Kind::TensorOrNumber if draw.below(2) == 0 => number(draw, dtype),
            Kind::Tensor | Kind::TensorOrNumber => {
                let Some(first) = first else {
                    let shape = *draw.of(SHAPES);
                    let tensor = self.tensor(draw, shape, dtype, 3);
                    return Arg::Tensor(first.insert(tensor).clone());
                };
                if param.name == "target" {
                    // Classes of the rows.
                    let mut shape = first.shape().to_vec();
                    shape.pop();
                    return Arg::Tensor(self.tensor(draw, &shape, Dtype::I64, 2));
                }
                let shape = match draw.below(4) {
                    0 => draw.of(SHAPES).to_vec(),
                    1 => first.shape().iter().copied().rev().collect(),
                    _ => first.shape().to_vec(),
                };
                let dtype = *draw.of(&[dtype, dtype, Dtype::I64, Dtype::I64, Dtype::Bool]);
                Arg::Tensor(self.tensor(draw, &shape, dtype, 2))
            }
            Kind::Tensors => {
                let shape = *draw.of(SHAPES);
                let dtype = *draw.of(&[dtype, dtype, Dtype::I64]);
                let count = 1 + draw.below(3);
                Arg::Tensors((0..count).map(|_| self.tensor(draw, shape, dtype, 2)).collect())
            }
            Kind::Number => number(draw, dtype),
            Kind::Int => Arg::Int(draw.below(4) as i64),
            Kind::Float => Arg::Float(draw.below(5) as f64 / 4.0),
            Kind::Bool => Arg::Bool(draw.below(2) == 0),
            Kind::Str => {
                let words = [
                    "ij->ji",
                    "ij,jk->ik",
                    "i,j->ij",
                    "ii->i",
                    "sum",
                    "mean",
                    "prod",
                    "amax",
                    "linear",
                    "lower",
                ];
                Arg::Str(draw.of(&words).to_string())
            }
            Kind::Shape | Kind::ShapeOrDtype => {
                let shapes: &[&[i64]] =
                    &[&[], &[0], &[3], &[2, 3], &[3, 2], &[6], &[-1], &[3, 0], &[1, 2, 3]];
                Arg::Ints(draw.of(shapes).to_vec())
            }
            Kind::Dims => {
                let dims: &[&[i64]] = &[&[0], &[1], &[-1], &[0, 1], &[]];
                Arg::Ints(draw.of(dims).to_vec())
            }
            Kind::Dtype if draw.below(4) > 0 => Arg::Dtype(dtype),
            Kind::Device => Arg::Device(self.device),
            Kind::Data => {
                let list = (0..draw.below(4)).map(|i| Data::Number(runnel::array::Scalar::Int(i as i64)));
                Arg::Data(Data::List(list.collect()))
            }
            Kind::Any => Arg::Int(1 + draw.below(3) as i64),
            _ => default(param),
        }
    }

    /// The arguments of a recurrent layer, whose shapes fit each other.
    fn layer(&mut self, draw: &mut Draw, op: &'static Op, gates: usize, dtype: Dtype) -> Vec<Arg> {
        let [length, batch, size] = [0; 3].map(|_| 1 + draw.below(3));
        let mut of = |shape: &[usize], dtype| Arg::Tensor(self.tensor(draw, shape, dtype, 2));
        let mut args = vec![
            of(&[length, batch, gates * size], dtype),
            of(&[gates * size, size], dtype),
            of(&[batch, size], dtype),
        ];
        args.push(match op.params[3].kind {
            Kind::Str => default(&op.params[3]),
            _ => of(&[if gates == 4 { batch } else { 1 }, size], dtype),
        });
        args.push(of(&[length, batch, 1], Dtype::Bool));
        args.push(Arg::Bool(draw.below(2) == 0));
        args
    }

    /// The result of a call, or its error. Work whose result is not read may fail too; it must not fail in a later
    /// call.
    fn call(&mut self, op: &'static Op, seed: u64, dtype: Dtype) -> Result<Vec<u8>, String> {
        let result = self.called(op, seed, dtype);
        match self.rt.synchronize_device(self.device) {
            Ok(()) => result,
            Err(error) => Err(error.message().to_string()),
        }
    }

    fn called(&mut self, op: &'static Op, seed: u64, dtype: Dtype) -> Result<Vec<u8>, String> {
        let mut draw = Draw(seed);
        let mut first = None;
        let args: Vec<Arg> = match LAYERS.iter().find(|(name, _)| *name == op.name) {
            Some((_, gates)) => self.layer(&mut draw, op, *gates, dtype),
            None => {
                op.params.iter().map(|param| self.argument(&mut draw, param, &mut first, dtype)).collect()
            }
        };
        self.rt.generator(self.device).map_err(|e| e.message().to_string())?.manual_seed(1);
        let in_place = op.form.in_place && (draw.below(3) == 0 || !op.form.function && !op.form.method);
        let rt = &mut self.rt;
        let out = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match in_place {
            true => apply(rt, op, Call::InPlace(Args(&args))),
            false => apply(rt, op, Call::Plain(Args(&args))),
        }));
        let Ok(out) = out else { return Err(PANICS.into()) };
        let mut bytes = Vec::new();
        let tensors = match out {
            Ok(Out::Tensor(tensor)) => vec![tensor],
            Ok(Out::Tuple(tensors) | Out::Record(_, tensors)) => tensors,
            Ok(_) => Vec::new(),
            Err(error) => return Err(error.message().to_string()),
        };
        for tensor in &tensors {
            bytes.extend(format!("{tensor:?} ").into_bytes());
            bytes.extend(self.rt.read(tensor).map_err(|error| error.message().to_string())?);
        }
        Ok(bytes)
    }
}

fn number(draw: &mut Draw, dtype: Dtype) -> Arg {
    match dtype.is_int() || draw.below(2) == 0 {
        true => Arg::Int(1 + draw.below(3) as i64),
        false => Arg::Float(0.5 + draw.below(3) as f64),
    }
}

fn default(param: &Param) -> Arg {
    match param.default {
        Default::Bool(b) => Arg::Bool(b),
        Default::Int(i) => Arg::Int(i),
        Default::Float(f) => Arg::Float(f),
        Default::Str(text) => Arg::Str(text.to_string()),
        _ if param.rest && matches!(param.kind, Kind::Tensor | Kind::Tensors) => Arg::Tensors(Vec::new()),
        _ => Arg::None,
    }
}

fn every_operation_writes_its_result(device: DeviceId) {
    let draws: u64 =
        std::env::var("RUNNEL_POISONED").ok().and_then(|n| n.parse().ok()).unwrap_or(few_or_many(6, 16));
    let mut labs = PATTERNS.map(|byte| Lab::new(byte, device));
    let (mut wrong, mut never, mut calls) = (Vec::new(), Vec::new(), 0usize);
    for (number, op) in table::all().enumerate().filter(|(_, op)| !UNWRITTEN.contains(&op.name)) {
        let mut worked = 0;
        let mut call = |kind: usize, turn: u64| {
            let (seed, dtype) = ((number as u64) << 32 | (kind as u64) << 24 | turn, Dtype::ALL[kind]);
            let [a, b] = PAIRS[turn as usize % PAIRS.len()].map(|lab| labs[lab].call(op, seed, dtype));
            worked += usize::from(a.is_ok());
            let fits = a == b && a != Err(PANICS.into());
            if !fits && wrong.len() < 40 {
                let show = |bytes: &Result<Vec<u8>, String>| match bytes {
                    Ok(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    Err(error) => error.clone(),
                };
                let (a, b) = (show(&a), show(&b));
                wrong.push(format!("{} {dtype} seed {seed:#x}:\n  {a}\n  {b}", op.name));
            }
            (fits, worked)
        };
        for kind in 0..Dtype::ALL.len() {
            (0..draws).all(|turn| call(kind, turn).0);
        }
        // Arguments that fit are rare for some.
        (draws..MOST_DRAWS).all(|turn| call(turn as usize % Dtype::ALL.len(), turn).1 == 0);
        calls += worked;
        if worked == 0 {
            never.push(op.name);
        }
    }
    println!("{device}: {calls} calls gave something; never: {never:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(never.len() <= NEVER.len() && never.iter().all(|name| NEVER.contains(name)), "{never:?}");
}

/// Operations whose operands have shapes that random ones rarely have, with the widths of `x` per width of the state.
const LAYERS: [(&str, usize); 3] = [("lstm_layer", 4), ("gru_layer", 3), ("rnn_layer", 1)];

/// Operations that only work on the host.
const NEVER: &[&str] = &["pin_memory"];

#[test]
fn every_operation_writes_its_result_on_a_device() {
    every_operation_writes_its_result(DeviceId::Cuda(0));
}

#[test]
fn every_operation_writes_its_result_on_the_host() {
    every_operation_writes_its_result(DeviceId::Cpu);
}
