//! Calls of the embedding API in any order, on two sessions that do not share tensors. Each call gives a
//! value or an error with a code, the program reads back what it wrote, and both sessions are intact at the
//! end.

use super::{embed_more, is_sound, settings};
use runnel::{
    Array, Complex, DeviceId, Dlpack, Dtype, Engine, Error, Function, InterruptHandle, Program, RawTensor,
    Result, Shared, SourceMap, Tensor,
};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Scripts that define names, use them, fail, open streams, test, or loop forever.
const SCRIPTS: &[&str] = &[
    "1 + 1",
    "x",
    "let x = arange(6)\nx",
    "let x = [1.5, 2.5]",
    "let x = (ones(3) on cuda:1)\nx * 2",
    "fn f(a, b = 2) { a * b }",
    "fn f(a) { a.sum() }\nf",
    "f(3)",
    "f(x)",
    "let x = none",
    "host(x)",
    "host(1, 2)",
    "let s = Stream()\ns.wait_stream(cuda.current_stream())\nlet x = with stream(s) { ones(5) }",
    "cuda.synchronize()",
    "x[100]",
    "tensor([1, 2])[tensor([5])]",
    "while true { x = 1 }",
    "throw \"no\"",
    "test \"one\" { assert(1 == 1) }\ntest \"two\" { assert(false) }",
    "let c = counter\nc.add(3)\nc.total",
    "counter.add(counter)",
    "let l = []\nl.append(l)\nl",
    "dict((a = 1, b = \"two\"))",
    "\"text\"",
    "true",
    "zeros(1 << 24)",
    "cuda.empty_cache()",
    "let g = cuda.graphed(|a| a + 1, [ones(4)])\ng(ones(4))",
    "import nowhere",
    "fn (",
    "x.copy_(x + 1)",
    "with device(cuda:1) { x = ones(2) }",
    "lent.read(1)",
    "lent.many",
    "let x = ones(3).requires_grad_()\nx",
    "(exp(x) * x[0..2].sum()).sum()",
    "with no_grad() { x.mul_(2) }",
    "x.register_hook(|g| { throw \"no\" })",
    "let y = x * 2\ny[0] = x[1]\ny.mean()",
    "checkpoint(|x| x.sin(), x).sum()",
    "grad(|x| (x ** 3).sum())(x)",
    "x.to(cuda:1).sum()",
    "dict((ok = [1, 2], n = x))",
    "complex([1.0, 2.0], [3.0, 4.0])",
    "x.index_add(0, [0], [1.0])",
    "foreach(|a, b| a + b, [(x, 1), (x, 2)])",
    "x.scatter_reduce(0, [0, 0], [1.0, 2.0], \"prod\")",
    "with autocast(bf16) { x @ x }",
    "match x { [a, ..rest] => rest, _ => none }",
    "let t = \"aé\" * 1000\nt[.. by -7]",
    "print([x, x, x])",
];

/// The numbers of calls from here are those of [`World::later`].
const LATER: u8 = 216;
/// Of these, the last are those of `embed_more`.
const LATEST: u8 = 32;

/// The state of a host object.
struct Counter {
    total: i64,
}

/// The input bytes as small choices; zeros past the end.
pub(super) struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        self.byte() as usize % n.max(1)
    }

    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A short text from the input.
    pub(super) fn text(&mut self) -> &'a str {
        let length = self.below(64).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        std::str::from_utf8(text).unwrap_or("x")
    }

    pub(super) fn script(&mut self) -> &'a str {
        match self.below(SCRIPTS.len() + 4) {
            n if n < SCRIPTS.len() => SCRIPTS[n],
            _ => self.text(),
        }
    }

    fn name(&mut self) -> &'static str {
        self.of(&["x", "f", "host", "counter", "lent", "s", "missing", "a b", "sum", "print", "ones"])
    }

    fn device(&mut self) -> DeviceId {
        self.of(&[DeviceId::Cuda(0), DeviceId::Cpu, DeviceId::Cuda(1), DeviceId::Cuda(7)])
    }

    /// Extents that are valid, zero, or far too large.
    fn shape(&mut self) -> Vec<usize> {
        (0..self.below(4)).map(|_| self.of(&[3, 1, 2, 0, 5, usize::MAX, 1 << 40])).collect()
    }
}

/// A tensor that the program holds: its session, and its elements if no script can change them.
struct Kept {
    engine: usize,
    tensor: Tensor,
    elements: Option<Vec<f32>>,
}

pub(super) type OfNumbers = Function<fn(f64) -> f64>;
type OfTensors = Function<fn(Tensor) -> Tensor>;

/// All values that calls produce and consume.
pub(super) struct World {
    pub(super) engines: [Engine; 2],
    tensors: VecDeque<Kept>,
    pub(super) programs: Vec<(usize, Program)>,
    pub(super) functions: Vec<(usize, OfNumbers)>,
    on_tensors: Vec<(usize, OfTensors)>,
    tests: Vec<runnel::Test>,
    lent: Vec<(usize, Dlpack)>,
    handles: Vec<InterruptHandle>,
    counter: Shared<Counter>,
    /// Numbers of foreign buffers passed in, and of those released.
    given: Arc<AtomicUsize>,
    returned: Arc<AtomicUsize>,
}

/// Runs the calls that the bytes encode.
pub fn play(data: &[u8]) {
    let mut choices = Choices(data);
    let mut world = World {
        engines: [engine(choices.byte()), engine(choices.byte())],
        tensors: VecDeque::new(),
        programs: Vec::new(),
        functions: Vec::new(),
        on_tensors: Vec::new(),
        tests: Vec::new(),
        lent: Vec::new(),
        handles: Vec::new(),
        counter: Shared::new(Counter { total: 0 }),
        given: Arc::default(),
        returned: Arc::default(),
    };
    for _ in 0..48 {
        if choices.0.is_empty() {
            break;
        }
        world.step(&mut choices);
    }
    world.end();
}

pub(super) fn engine(flags: u8) -> Engine {
    let mut builder = settings().fuel(20_000).time(Duration::from_secs(1)).fuse(flags & 1 == 0);
    if flags & 2 != 0 {
        builder = builder.schedule(flags.into());
    }
    if flags & 4 != 0 {
        builder = builder.launch_blocking(true);
    }
    if flags & 8 != 0 {
        builder = builder.tensors(20).events(8).output_limit(1000);
    }
    if flags & 16 != 0 {
        builder = builder.races(runnel::RaceMode::Fix);
    }
    if flags & 32 != 0 {
        builder = builder.kept_from(0).mapped_from(1);
    }
    builder.module("memory", "fn area(w, h) { w * h }").build().expect("emulated devices")
}

/// Every error has a code, and its report can be rendered.
pub(super) fn judge<T>(engine: &mut Engine, outcome: Result<T>) -> Option<T> {
    match outcome {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(error.code().id.starts_with('E'), "{error:?}");
            assert!(!engine.report(&error).is_empty());
            None
        }
    }
}

/// The code of an expected error.
pub(super) fn code<T>(outcome: Result<T>) -> Option<&'static str> {
    outcome.err().map(|error: Error| error.code().id)
}

impl World {
    fn step(&mut self, choices: &mut Choices<'_>) {
        let at = choices.below(2);
        let kind = choices.byte();
        if kind >= LATER {
            return self.later(at, kind - LATER, choices);
        }
        match kind % 24 {
            0 | 1 => self.eval(at, choices),
            2 => {
                let name = choices.name();
                let engine = &mut self.engines[at];
                let set = match choices.below(6) {
                    0 => engine.set(name, choices.byte() as i64),
                    1 => engine.set(name, choices.text()),
                    2 => engine.set(name, vec![Some(1.5), None]),
                    3 => engine.set(name, Array { shape: choices.shape(), data: vec![1i64, 2, 3] }),
                    4 => engine.set(name, u64::MAX),
                    _ => engine.set(name, self.counter.clone()),
                };
                judge(engine, set);
            }
            3 => self.get(at, choices),
            4 | 5 => self.make(at, choices),
            6 => self.read(at, choices),
            8 => {
                // A script may change tensors it receives.
                let Some(kept) = self.tensors.back_mut() else { return };
                let (own, name) = (kept.engine == at, choices.name());
                let set = self.engines[at].set(name, &kept.tensor);
                if own && kept.elements.is_some() && set.is_ok() {
                    kept.elements = None;
                }
                // The name may be none, which is checked first.
                assert!(own || matches!(code(set), Some("E0965" | "E0962")));
            }
            9 => {
                let compiled = self.engines[at].compile("program", choices.script());
                if let Some(program) = judge(&mut self.engines[at], compiled) {
                    self.programs.push((at, program));
                }
            }
            10 => self.run_program(at, choices),
            11 => {
                let name = choices.name();
                let engine = &mut self.engines[at];
                let found = engine.function(name);
                self.functions.extend(judge(engine, found).map(|f| (at, f)));
                let found = engine.function(name);
                self.on_tensors.extend(judge(engine, found).map(|f| (at, f)));
            }
            12 => self.call_function(at, choices),
            13 => {
                let (name, argument) = (choices.name(), choices.byte());
                let engine = &mut self.engines[at];
                let called: Result<f64> = match argument % 3 {
                    0 => engine.call(name, (argument as i64,)),
                    1 => engine.call(name, ()),
                    _ => engine.call(name, ("text", vec![1.0, 2.0], Some(true))),
                };
                judge(engine, called);
            }
            14 => {
                let engine = &mut self.engines[at];
                match choices.below(3) {
                    0 => drop(engine.register_fn("host", |x: f64| x + 1.0).params(["x"]).doc("One more.")),
                    1 => drop(engine.register_fn("host", |x: Tensor| x)),
                    _ => drop(engine.register_fn("host", |a: i64, b: i64| a.checked_div(b).ok_or("by zero"))),
                }
            }
            15 => {
                let engine = &mut self.engines[at];
                engine
                    .register_type::<Counter>("Counter")
                    .method("add", |counter: &mut Counter, by: i64| {
                        counter.total = counter.total.wrapping_add(by);
                        counter.total
                    })
                    .field("total", |counter: &Counter| counter.total);
                let set = engine.set("counter", self.counter.clone());
                judge(engine, set);
            }
            16 => {
                let engine = &mut self.engines[at];
                let filled = engine.register_module("lent", |m| {
                    m.function("read", |id: u32| vec![id as f32]).params(["id"]);
                    m.constant("many", vec![1, 2]);
                });
                judge(engine, filled);
            }
            17 => {
                let engine = &mut self.engines[at];
                let handle = engine.interrupt_handle();
                if choices.below(2) == 0 {
                    handle.interrupt();
                    if choices.below(2) == 0 {
                        assert!(handle.clear());
                    }
                }
                self.handles.push(handle);
            }
            18 => {
                let engine = &mut self.engines[at];
                self.tests.extend(engine.take_tests());
                if let Some(test) = self.tests.last() {
                    let ran = engine.run_test(test);
                    judge(engine, ran);
                }
            }
            19 => self.lend(at, choices),
            21 => self.foreign(at, choices),
            7 | 20 => self.differentiate(at, choices),
            22 => self.move_away(at, choices),
            _ => match choices.below(6) {
                0 => drop(self.tensors.pop_front()),
                1 => drop(self.programs.pop()),
                2 => drop(self.lent.pop()),
                3 => drop(self.functions.pop()),
                4 => drop(self.engines[at].take_warnings()),
                // Ends the session, even if parts of it are still held.
                _ => {
                    self.engines[at] = engine(choices.byte());
                    self.tensors.iter_mut().filter(|k| k.engine == at).for_each(|k| k.engine = usize::MAX);
                    self.lent.iter_mut().filter(|(e, _)| *e == at).for_each(|(e, _)| *e = usize::MAX);
                    self.programs.iter_mut().filter(|(e, _)| *e == at).for_each(|(e, _)| *e = usize::MAX);
                    self.functions.iter_mut().filter(|(e, _)| *e == at).for_each(|(e, _)| *e = usize::MAX);
                    self.on_tensors.iter_mut().filter(|(e, _)| *e == at).for_each(|(e, _)| *e = usize::MAX);
                }
            },
        }
    }

    /// Calls that were added later, so that older inputs still mean what they meant.
    fn later(&mut self, at: usize, kind: u8, choices: &mut Choices<'_>) {
        if kind >= LATEST {
            return embed_more::step(self, at, choices);
        }
        let engine = &mut self.engines[at];
        match kind % 8 {
            0 => {
                let value = engine.eval::<HashMap<String, i64>>(choices.script());
                judge(engine, value);
            }
            1 => {
                let value = engine.eval::<BTreeMap<String, Vec<String>>>(choices.script());
                judge(engine, value);
            }
            2 => {
                let value = engine.eval::<Vec<Complex<f32>>>(choices.script());
                judge(engine, value);
            }
            3 => {
                let entries = (0..choices.below(20)).map(|i| (choices.text().to_string(), i as u64));
                let entries: HashMap<String, u64> = entries.collect();
                let set = engine.set("x", entries);
                judge(engine, set);
            }
            4 => {
                let numbers = vec![Complex::new(choices.byte() as f64, 1.0); choices.below(5)];
                let set = engine.set("x", numbers);
                judge(engine, set);
            }
            5 => {
                let (name, script) = (choices.name(), choices.script());
                let help = engine.help(name);
                judge(engine, help);
                let mut sources = SourceMap::default();
                let found = runnel::engine::diagnose(&mut sources, "fuzzed", script);
                for error in found.errors.iter().chain(&found.warnings) {
                    assert!(!engine.report(error).is_empty());
                }
            }
            6 => {
                let path = choices.of(&["/", "/dev/null", "/dev/zero", "nowhere.rnl", ""]);
                let ran = engine.run_file(path);
                judge(engine, ran);
            }
            _ => {
                // SAFETY: 0 is every device's default stream.
                let stream = unsafe { engine.external_stream(choices.device(), 0) };
                if let Some(stream) = judge(engine, stream) {
                    let set = engine.set("s", stream);
                    judge(engine, set);
                }
            }
        }
    }

    pub(super) fn keep(&mut self, engine: usize, tensor: Tensor, elements: Option<Vec<f32>>) {
        self.tensors.push_back(Kept { engine, tensor, elements });
        if self.tensors.len() > 8 {
            self.tensors.pop_front();
        }
    }

    fn eval(&mut self, at: usize, choices: &mut Choices<'_>) {
        let script = choices.script();
        let engine = &mut self.engines[at];
        match choices.below(6) {
            0 => judge(engine, Ok(())).map_or((), |()| {
                let done = engine.eval::<()>(script);
                judge(engine, done);
            }),
            1 => {
                let value = engine.eval::<f64>(script);
                judge(engine, value);
            }
            2 => {
                let value = engine.eval::<Vec<Option<i64>>>(script);
                judge(engine, value);
            }
            3 => {
                let value = engine.eval::<Array<f32>>(script);
                if let Some(array) = judge(engine, value) {
                    assert_eq!(array.shape.iter().product::<usize>(), array.data.len());
                }
            }
            4 => {
                let value = engine.eval::<(String, bool)>(script);
                judge(engine, value);
            }
            _ => {
                let value = engine.eval::<Tensor>(script);
                if let Some(tensor) = judge(engine, value) {
                    self.keep(at, tensor, None);
                }
            }
        }
    }

    fn get(&mut self, at: usize, choices: &mut Choices<'_>) {
        let (name, kind) = (choices.name(), choices.below(4));
        let engine = &mut self.engines[at];
        match kind {
            0 => {
                let got = engine.get::<u8>(name);
                judge(engine, got);
            }
            1 => {
                let got = engine.get::<String>(name);
                judge(engine, got);
            }
            2 => {
                let got = engine.get::<Shared<Counter>>(name);
                if let Some(counter) = judge(engine, got) {
                    counter.with(|c| c.total).expect("nobody is at work on it");
                }
            }
            _ => {
                let got = engine.get::<Tensor>(name);
                if let Some(tensor) = judge(engine, got) {
                    self.keep(at, tensor, None);
                }
            }
        }
    }

    fn make(&mut self, at: usize, choices: &mut Choices<'_>) {
        let (shape, device) = (choices.shape(), choices.device());
        let count = shape.iter().try_fold(1usize, |n, &e| n.checked_mul(e)).filter(|&n| n < 1000);
        let data: Vec<f32> = (0..count.unwrap_or(7)).map(|i| i as f32 + 0.5).collect();
        let engine = &mut self.engines[at];
        let made = engine.tensor(&data, &shape, device);
        if count.is_none() {
            assert_eq!(code(made), Some("E0964"), "{shape:?}");
        } else if let Some(tensor) = judge(engine, made) {
            assert_eq!(
                (&tensor.shape()[..], tensor.dtype(), tensor.device()),
                (&shape[..], Dtype::F32, device)
            );
            self.keep(at, tensor, Some(data));
        }
    }

    fn read(&mut self, at: usize, choices: &mut Choices<'_>) {
        if self.tensors.is_empty() {
            return;
        }
        let index = choices.below(self.tensors.len());
        let Kept { engine, tensor, elements } = &self.tensors[index];
        let session = &mut self.engines[at];
        if *engine != at {
            assert_eq!(code(session.read::<f32>(tensor)), Some("E0965"));
            return;
        }
        match choices.below(3) {
            0 => {
                let read = session.read::<i64>(tensor);
                judge(session, read);
            }
            1 => {
                let mut ready = std::pin::pin!(tensor.ready());
                let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
                let _ = std::future::Future::poll(ready.as_mut(), context);
            }
            _ => {
                let read = session.read::<f32>(tensor);
                if let (Some(read), Some(elements)) = (judge(session, read), elements) {
                    assert_eq!(read, *elements);
                }
            }
        }
    }

    /// Calls for gradients, of any tensors.
    fn differentiate(&mut self, at: usize, choices: &mut Choices<'_>) {
        if self.tensors.is_empty() {
            return;
        }
        let (first, second) = (choices.below(self.tensors.len()), choices.below(self.tensors.len()));
        let (kept, other) = (&self.tensors[first], &self.tensors[second]);
        let (tensor, given) = (kept.tensor.clone(), other.tensor.clone());
        let (own, both) = (kept.engine == at, kept.engine == at && other.engine == at);
        let session = &mut self.engines[at];
        let kind = choices.below(8);
        let owned = if matches!(kind, 3 | 5) { both } else { own };
        let outcome = match kind {
            0 => session.requires_grad(&tensor).map(drop),
            1 => session.set_requires_grad(&tensor, choices.below(4) > 0),
            2 => session.set_grad(&tensor, None),
            3 => session.set_grad(&tensor, Some(&given)),
            4 => session.backward(&tensor, None),
            5 => session.backward(&tensor, Some(&given)),
            6 => session.grad(&tensor).map(|found| {
                if let Some(found) = found {
                    assert_eq!(found.shape(), tensor.shape());
                    self.keep(at, found, None);
                }
            }),
            _ => session.no_grad(|session| session.detach(&tensor)).map(|apart| self.keep(at, apart, None)),
        };
        if !owned {
            assert_eq!(code(outcome), Some("E0965"));
            return;
        }
        judge(&mut self.engines[at], outcome);
    }

    fn run_program(&mut self, at: usize, choices: &mut Choices<'_>) {
        if self.programs.is_empty() {
            return;
        }
        let (own, program) = &self.programs[choices.below(self.programs.len())];
        let engine = &mut self.engines[at];
        if *own != at {
            assert_eq!(code(program.run::<()>(engine)), Some("E0965"));
            return;
        }
        match choices.below(3) {
            0 => {
                let ran = program.run::<()>(engine);
                judge(engine, ran);
            }
            1 => {
                let got = program.get::<i64>(engine, choices.name());
                judge(engine, got);
            }
            _ => {
                let found = program.function(engine, choices.name());
                self.functions.extend(judge(engine, found).map(|f| (at, f)));
            }
        }
    }

    fn call_function(&mut self, at: usize, choices: &mut Choices<'_>) {
        let engine = &mut self.engines[at];
        if let Some((own, function)) = self.functions.get(choices.below(self.functions.len())) {
            let called = function.call(engine, (choices.byte().into(),));
            if *own != at {
                assert_eq!(code(called), Some("E0965"));
            } else {
                judge(engine, called);
            }
        }
        let Some((own, function)) = self.on_tensors.get(choices.below(self.on_tensors.len())) else { return };
        let Some(kept) = self.tensors.back_mut() else { return };
        let called = function.call(engine, (kept.tensor.clone(),));
        if *own != at || kept.engine != at {
            assert_eq!(code(called), Some("E0965"));
            return;
        }
        kept.elements = None;
        if let Some(tensor) = judge(engine, called) {
            self.keep(at, tensor, None);
        }
    }

    /// Exports a tensor by DLPack, or imports one.
    fn lend(&mut self, at: usize, choices: &mut Choices<'_>) {
        let engine = &mut self.engines[at];
        if choices.below(2) == 0 {
            let Some(kept) = self.tensors.back_mut() else { return };
            let lent = engine.export_dlpack(&kept.tensor, None);
            if kept.engine != at {
                assert_eq!(code(lent), Some("E0965"));
            } else if let Some(lent) = judge(engine, lent) {
                kept.elements = None;
                self.lent.push((at, lent));
            }
        } else if let Some((_, lent)) = self.lent.pop() {
            // SAFETY: the exported tensor is idle, and its owner's scripts do not run while it is read.
            let taken = unsafe { engine.import_dlpack(lent) };
            if let Some(tensor) = judge(engine, taken) {
                self.keep(at, tensor, None);
            }
        }
    }

    /// The program's own memory, with valid and invalid layouts.
    fn foreign(&mut self, at: usize, choices: &mut Choices<'_>) {
        let shape = choices.shape();
        let strides: Option<Vec<isize>> = (choices.below(2) == 0)
            .then(|| shape.iter().map(|_| choices.of(&[1, 0, 3, 10, -1, isize::MAX])).collect());
        let mut reach = Some(0usize);
        let mut row = 1usize;
        for (index, &extent) in shape.iter().enumerate().rev() {
            let stride = strides.as_ref().map_or(Some(row), |s| usize::try_from(s[index]).ok());
            let step = stride.and_then(|stride| extent.saturating_sub(1).checked_mul(stride));
            reach = reach.and_then(|sum| sum.checked_add(step?));
            row = row.saturating_mul(extent.max(1));
        }
        let empty = shape.contains(&0);
        if !empty && reach.is_some_and(|reach| reach > 10_000) {
            return;
        }
        let mut memory = vec![1.0f32; reach.filter(|_| !empty).unwrap_or(0) + 1];
        let (ptr, device) = (memory.as_mut_ptr() as u64, choices.of(&[DeviceId::Cpu, DeviceId::Cuda(0)]));
        let returned = Arc::clone(&self.returned);
        let back = move || {
            drop(memory);
            returned.fetch_add(1, Ordering::Relaxed);
        };
        let engine = &mut self.engines[at];
        let raw = RawTensor { ptr, shape: &shape, strides: strides.as_deref(), dtype: Dtype::F32, device };
        // SAFETY: the memory covers the layout, or the layout is rejected; the closure owns the memory.
        let made = unsafe { engine.tensor_from_raw(raw, back) };
        match judge(engine, made) {
            Some(tensor) => {
                assert!(empty || reach.is_some(), "{shape:?} {strides:?} was taken");
                self.given.fetch_add(1, Ordering::Relaxed);
                self.keep(at, tensor, None);
            }
            None => assert!(reach.is_none() || row > 1 << 20 || strides.is_some() || empty, "{shape:?}"),
        }
    }

    /// A session works the same on another thread.
    fn move_away(&mut self, at: usize, choices: &mut Choices<'_>) {
        let script = choices.script();
        let engine = &mut self.engines[at];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let done = engine.eval::<()>(script);
                judge(engine, done);
            });
        });
    }

    fn end(mut self) {
        for handle in &self.handles {
            handle.clear();
        }
        self.engines.iter_mut().for_each(is_sound);
        let World { engines, tensors, lent, given, returned, .. } = self;
        let [first, second] = engines;
        // Handles outlive their sessions, or vice versa.
        drop((first, tensors));
        drop((lent, second));
        let start = std::time::Instant::now();
        while returned.load(Ordering::Relaxed) < given.load(Ordering::Relaxed) {
            assert!(start.elapsed() < Duration::from_secs(20), "foreign memory does not come back");
            std::thread::yield_now();
        }
    }
}
