//! The submission queue: the launches and memory that it saves. Fusion never changes a bit.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

#[path = "common/draw.rs"]
mod draw;

use draw::Draw;
use runnel::array::{Dtype, Layout};
use runnel::base::Span;
use runnel::device::{Backend, Config, Machine};
use runnel::driver::DeviceId;
use runnel::ops::{Arg, Args, Call, Op, Out, apply, table};
use runnel::plan::{Runtime, Settings};
use runnel::tensor::Tensor;
use std::sync::{Arc, OnceLock};

fn open() -> Arc<Machine> {
    Machine::open(&Config { backend: Backend::Emu, devices: Some(2), ..Config::default() }).unwrap()
}

/// A runtime on the machine that the tests share; counts per device include work of other tests.
fn runtime(fuse: bool) -> Runtime {
    static MACHINE: OnceLock<Arc<Machine>> = OnceLock::new();
    Runtime::new(MACHINE.get_or_init(open).clone(), Settings { fuse, kept_from: 0, ..Settings::default() })
}

fn op(name: &str) -> &'static Op {
    table::find(name).unwrap_or_else(|| panic!("no operation {name}"))
}

fn call(rt: &mut Runtime, name: &str, args: &[Arg]) -> Tensor {
    match apply(rt, op(name), Call::Plain(Args(args))) {
        Ok(Out::Tensor(tensor)) => tensor,
        Ok(_) => panic!("{name} gives no tensor"),
        Err(e) => panic!("{name}: {e:?}"),
    }
}

fn floats(rt: &mut Runtime, tensor: &Tensor) -> Vec<f32> {
    let bytes = rt.read(tensor).unwrap();
    bytes.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}

fn tensor(rt: &mut Runtime, values: &[f32], shape: &[usize], device: DeviceId) -> Tensor {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    rt.from_host(&bytes, shape, Dtype::F32, device).unwrap()
}

const PLACES: [DeviceId; 2] = [DeviceId::Cpu, DeviceId::Cuda(0)];

#[test]
fn a_chain_is_few_launches_and_dead_temporaries_take_no_memory() {
    let mut rt = Runtime::new(open(), Settings::default()); // Its own machine: it counts bytes.
    let a = tensor(&mut rt, &[1.0; 1024], &[1024], DeviceId::Cuda(0));
    let b = tensor(&mut rt, &[0.5; 1024], &[1024], DeviceId::Cuda(0));
    let (before, launches) = (rt.device(DeviceId::Cuda(0)).unwrap().memory_allocated(), rt.launches());
    let mut x = a.clone();
    for _ in 0..50 {
        x = call(&mut rt, "add", &[Arg::Tensor(x), Arg::Tensor(b.clone()), Arg::Int(1)]);
    }
    rt.flush().unwrap();
    // Every eighth operation may flush the queue.
    assert!(rt.launches() - launches <= 50 / 8 + 1, "{} launches", rt.launches() - launches);
    assert_eq!(rt.device(DeviceId::Cuda(0)).unwrap().memory_allocated(), before + 4096);
    assert_eq!(floats(&mut rt, &x), [26.0; 1024]);
}

#[test]
fn dead_work_is_never_launched() {
    let mut rt = runtime(true);
    let a = tensor(&mut rt, &[1.0, 2.0], &[2], DeviceId::Cuda(0));
    let launches = rt.launches();
    let y = call(&mut rt, "tanh", &[Arg::Tensor(a)]);
    drop(y);
    rt.flush().unwrap();
    assert_eq!(rt.launches(), launches);
}

#[test]
fn elementwise_work_joins_the_reduction_that_follows() {
    let mut rt = Runtime::new(open(), Settings::default()); // Its own machine: it counts allocations.
    let a = tensor(&mut rt, &[1.0, -2.0, 3.0, -4.0], &[2, 2], DeviceId::Cuda(0));
    let allocations =
        |rt: &mut Runtime| rt.device(DeviceId::Cuda(0)).unwrap().stats().allocation.all().allocated;
    let (launches, before) = (rt.launches(), allocations(&mut rt));
    let y = call(&mut rt, "abs", &[Arg::Tensor(a.clone())]);
    let s = call(&mut rt, "sum", &[Arg::Tensor(y), Arg::Ints(vec![1]), Arg::Bool(false), Arg::None]);
    rt.flush().unwrap();
    assert_eq!(rt.launches(), launches + 1);
    assert_eq!(allocations(&mut rt), before + 1, "only the sums are stored");
    assert_eq!(floats(&mut rt, &s), [3.0, 7.0]);
}

#[test]
fn writes_through_views_are_seen_in_program_order() {
    for place in PLACES {
        let mut rt = runtime(true);
        let x = tensor(&mut rt, &[1.0, 2.0, 3.0, 4.0], &[2, 2], place);
        let old = call(&mut rt, "add", &[Arg::Tensor(x.clone()), Arg::Int(0), Arg::Int(1)]);
        let row = x.with_layout(Layout { offset: 2, ..Layout::contiguous(&[2]) });
        apply(&mut rt, op("mul"), Call::InPlace(Args(&[Arg::Tensor(row.clone()), Arg::Int(10)]))).unwrap();
        let new = call(&mut rt, "add", &[Arg::Tensor(x.clone()), Arg::Int(0), Arg::Int(1)]);
        // x += x[0]: the row is read before it is written.
        let first = x.with_layout(Layout::contiguous(&[2]));
        apply(
            &mut rt,
            op("add"),
            Call::InPlace(Args(&[Arg::Tensor(x.clone()), Arg::Tensor(first), Arg::Int(1)])),
        )
        .unwrap();
        // Swapped views: the transpose is read whole before it is written.
        let t = x.with_layout(x.layout().permute(&[1, 0]));
        rt.assign("copy_", &x, &t).unwrap();
        assert_eq!(floats(&mut rt, &old), [1.0, 2.0, 3.0, 4.0], "{place}");
        assert_eq!(floats(&mut rt, &new), [1.0, 2.0, 30.0, 40.0], "{place}");
        assert_eq!(floats(&mut rt, &x), [2.0, 31.0, 4.0, 42.0], "{place}");
    }
}

#[test]
fn streams_see_each_others_work_after_a_wait_and_are_refused_before() {
    let mut rt = runtime(true);
    let device = rt.device(DeviceId::Cuda(0)).unwrap();
    let (main, side) = (device.default_stream().clone(), device.stream(0).unwrap());
    let a = tensor(&mut rt, &[1.0; 8], &[8], DeviceId::Cuda(0));
    let b = call(&mut rt, "neg", &[Arg::Tensor(a)]);
    rt.set_stream(&side).unwrap();
    let error =
        apply(&mut rt, op("neg"), Call::Plain(Args(&[Arg::Tensor(b.clone())]))).err().expect("a race");
    assert_eq!(error.code().id, "E0601", "{error:?}");
    rt.wait_stream(&side, &main).unwrap();
    let c = call(&mut rt, "neg", &[Arg::Tensor(b)]);
    assert_eq!(floats(&mut rt, &c), [1.0; 8]);
}

fn rolled(rt: &mut Runtime, x: &Tensor, shifts: [i64; 2]) -> Tensor {
    call(rt, "roll", &[Arg::Tensor(x.clone()), Arg::Ints(shifts.to_vec()), Arg::Ints(vec![0, 1])])
}

fn sum_of(rt: &mut Runtime, x: &Tensor, y: &Tensor) -> Tensor {
    call(rt, "add", &[Arg::Tensor(x.clone()), Arg::Tensor(y.clone()), Arg::Int(1)])
}

/// The elements of a matrix moved by these shifts.
fn moved(values: &[f32], [rows, columns]: [usize; 2], shifts: [i64; 2]) -> Vec<f32> {
    let from = |at: usize, n: usize, shift: i64| (at as i64 - shift).rem_euclid(n as i64) as usize;
    let at = |i: usize| from(i / columns, rows, shifts[0]) * columns + from(i % columns, columns, shifts[1]);
    (0..values.len()).map(|i| values[at(i)]).collect()
}

#[test]
fn a_stencil_by_rolls_is_one_launch_a_step() {
    let shape = [37, 70];
    for place in PLACES {
        let mut rt = Runtime::new(open(), Settings::default()); // Its own machine: it counts bytes.
        let mut values: Vec<f32> = (0..37 * 70).map(|i| (i * i % 251) as f32 / 8.0).collect();
        let mut u = tensor(&mut rt, &values, &shape, place);
        let five = [[1, 0], [-1, 0], [0, 1], [0, -1]];
        let nine = [[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [1, -1], [-1, 1], [-1, -1]];
        for (shifts, apart) in
            [(&five[..], false), (&nine, false), (&nine, true), (&[[-36, 0], [5, 69]], true)]
        {
            let before = rt.launches();
            for _ in 0..3 {
                let mut sum = u.clone();
                for &[down, right] in shifts {
                    // A loop of a script: the same source positions repeatedly.
                    rt.span = Span::new(1, 9);
                    // The roll of a roll reads the original.
                    let row = if apart { rolled(&mut rt, &u, [down, 0]) } else { u.clone() };
                    let one = rolled(&mut rt, &row, [if apart { 0 } else { down }, right]);
                    rt.span = Span::new(10, 19);
                    sum = sum_of(&mut rt, &sum, &one);
                }
                rt.span = Span::new(20, 29);
                u = call(&mut rt, "mul", &[Arg::Tensor(sum), Arg::Float(0.125)]);
                let moves: Vec<Vec<f32>> = shifts.iter().map(|&by| moved(&values, shape, by)).collect();
                let sum = |i: usize| moves.iter().fold(values[i], |sum, moved| sum + moved[i]) * 0.125;
                values = (0..values.len()).map(sum).collect();
            }
            rt.flush().unwrap();
            assert_eq!(rt.launches() - before, 3, "{shifts:?} on {place}");
            assert_eq!(floats(&mut rt, &u), values, "{shifts:?} on {place}");
        }
    }
}

#[test]
fn rolls_read_the_values_at_the_time_of_the_call() {
    for place in PLACES {
        for fuse in [true, false] {
            let mut rt = runtime(fuse);
            let add = |rt: &mut Runtime, x: &Tensor, y: Arg| {
                apply(rt, op("add"), Call::InPlace(Args(&[Arg::Tensor(x.clone()), y, Arg::Int(1)]))).unwrap();
            };
            let u = tensor(&mut rt, &[1.0, 2.0, 3.0, 4.0], &[2, 2], place);
            // A write in place to the roll's operand.
            let rows = rolled(&mut rt, &u, [1, 0]);
            add(&mut rt, &u, Arg::Tensor(rows));
            assert_eq!(floats(&mut rt, &u), [4.0, 6.0, 4.0, 6.0], "{place}");
            let columns = rolled(&mut rt, &u, [0, 1]);
            rt.assign("copy_", &u, &columns).unwrap();
            assert_eq!(floats(&mut rt, &u), [6.0, 4.0, 6.0, 4.0], "{place}");
            // A roll before and after a write, and the roll of a value that is pending.
            let before = rolled(&mut rt, &u, [0, 1]);
            add(&mut rt, &u, Arg::Int(1));
            let after = rolled(&mut rt, &u, [0, 1]);
            let both = sum_of(&mut rt, &before, &after);
            let turned = rolled(&mut rt, &both, [1, 1]);
            assert_eq!(floats(&mut rt, &before), [4.0, 6.0, 4.0, 6.0], "{place}");
            assert_eq!(floats(&mut rt, &after), [5.0, 7.0, 5.0, 7.0], "{place}");
            assert_eq!(floats(&mut rt, &turned), [13.0, 9.0, 13.0, 9.0], "{place}");
            // The original is written after a copy, and before the copy is rolled.
            let copy = call(&mut rt, "clone", &[Arg::Tensor(u.clone())]);
            add(&mut rt, &u, Arg::Int(1));
            let old = rolled(&mut rt, &copy, [0, 1]);
            assert_eq!(floats(&mut rt, &old), [5.0, 7.0, 5.0, 7.0], "{place}");
            assert_eq!(floats(&mut rt, &u), [8.0, 6.0, 8.0, 6.0], "{place}");
            // A view that is written while a roll of the whole is pending.
            let whole = rolled(&mut rt, &u, [1, 0]);
            add(
                &mut rt,
                &u.with_layout(Layout::contiguous(&[2])),
                Arg::Tensor(u.with_layout(Layout::contiguous(&[2]))),
            );
            let sum = sum_of(&mut rt, &whole, &u);
            assert_eq!(floats(&mut rt, &sum), [24.0, 18.0, 16.0, 12.0], "{place}");
            // Reductions of rolls.
            let flipped = call(&mut rt, "flip", &[Arg::Tensor(u.clone()), Arg::Ints(vec![0, 1])]);
            let sum = sum_of(&mut rt, &flipped, &whole);
            let sums =
                call(&mut rt, "sum", &[Arg::Tensor(sum), Arg::Ints(vec![1]), Arg::Bool(false), Arg::None]);
            assert_eq!(floats(&mut rt, &sums), [28.0, 42.0], "{place}");
        }
    }
}

/// Runs a random program of elementwise operations, in-place writes through views and reductions; returns the bytes of
/// all final tensors.
fn random_program(seed: u64, fuse: bool, place: DeviceId) -> Vec<Vec<u8>> {
    let mut rt = runtime(fuse);
    let mut dice = Draw(seed);
    let dtypes = [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::I32, Dtype::U8, Dtype::F64];
    let mut live: Vec<Tensor> = Vec::new();
    for _ in 0..4 {
        let values: Vec<f32> = (0..12).map(|_| dice.below(200) as f32 / 16.0 - 6.0).collect();
        let base = tensor(&mut rt, &values, &[3, 4], place);
        let dtype = dtypes[dice.below(dtypes.len())];
        live.push(rt.convert(&base, dtype).unwrap());
    }
    let unary = ["neg", "abs", "relu", "square", "sigmoid", "tanh", "exp"];
    let binary = ["add", "mul", "sub", "maximum", "minimum"];
    for _ in 0..40 {
        let pick = |dice: &mut Draw, live: &[Tensor]| live[dice.below(live.len())].clone();
        let (x, y) = (pick(&mut dice, &live), pick(&mut dice, &live));
        let made = match dice.below(12) {
            0..=2 => Some(call(&mut rt, unary[dice.below(unary.len())], &[Arg::Tensor(x)])),
            3..=5 => {
                let name = binary[dice.below(binary.len())];
                let args = [Arg::Tensor(x), Arg::Tensor(y), Arg::Int(1)];
                Some(call(&mut rt, name, &args))
            }
            6 => {
                // In place through a row, a column, or the whole.
                let layout = match dice.below(3) {
                    0 => Layout { shape: [4].as_slice().into(), strides: [1].as_slice().into(), offset: 4 },
                    1 => Layout { shape: [3].as_slice().into(), strides: [4].as_slice().into(), offset: 1 },
                    _ => Layout::contiguous(&[3, 4]),
                };
                let view = x.with_layout(layout);
                apply(
                    &mut rt,
                    op("add"),
                    Call::InPlace(Args(&[Arg::Tensor(view), Arg::Int(3), Arg::Int(1)])),
                )
                .unwrap();
                None
            }
            7 => {
                // A column sum, broadcast back.
                let f = rt.convert(&x, Dtype::F32).unwrap();
                let args = [
                    Arg::Tensor(f.clone()),
                    Arg::Ints(vec![dice.below(2) as i64]),
                    Arg::Bool(true),
                    Arg::None,
                ];
                let sum = call(&mut rt, "sum", &args);
                Some(call(&mut rt, "sub", &[Arg::Tensor(f), Arg::Tensor(sum), Arg::Int(1)]))
            }
            8 => {
                rt.assign("copy_", &x, &y).unwrap();
                None
            }
            9 => {
                let shifts = vec![dice.below(9) as i64 - 4, dice.below(9) as i64 - 4];
                Some(call(&mut rt, "roll", &[Arg::Tensor(x), Arg::Ints(shifts), Arg::Ints(vec![0, 1])]))
            }
            10 => {
                let dims = [vec![0], vec![1], vec![0, 1]][dice.below(3)].clone();
                Some(call(&mut rt, "flip", &[Arg::Tensor(x), Arg::Ints(dims)]))
            }
            _ => {
                let at = dice.below(live.len());
                if live.len() > 2 {
                    live.swap_remove(at);
                }
                None
            }
        };
        live.extend(made);
        if dice.below(12) == 0 {
            rt.flush().unwrap();
        }
    }
    live.iter().map(|t| rt.read(t).unwrap()).collect()
}

#[test]
fn fusion_never_changes_a_bit() {
    for place in PLACES {
        for seed in 0..200 {
            let (fused, apart) = (random_program(seed, true, place), random_program(seed, false, place));
            assert!(fused == apart, "seed {seed} on {place}");
        }
    }
}

/// The outcome of a script: the code of its error, or its value as a text.
fn ends(code: &str, fuse: bool) -> String {
    let builder =
        runnel::Engine::builder().backend(Backend::Emu).devices(2).device_memory(48 << 20).fuse(fuse);
    match builder.build().unwrap().eval::<String>(code) {
        Ok(value) => value,
        Err(error) => error.code().id.to_string(),
    }
}

/// Which scripts are accepted does not depend on fusion, which drops dead work. The only difference is memory: dropped
/// work, and intermediate values of a kernel, take none.
#[test]
fn scripts_are_accepted_alike_with_and_without_fusion() {
    const OK: &str = "ok";
    let side = |end: &str| format!("let s = Stream()\nlet x = ones(1000)\n{end}\n\"ok\"");
    let alike = [
        // Memory that dead work has used before: the stream waits implicitly.
        (side("x = none\nlet b = empty(1000)\nwith stream(s) { b.fill_(1) }"), OK),
        (side("x + 1\nlet b = empty(1000)\nwith stream(s) { b.fill_(1) }"), OK),
        (
            side(
                "let y = ((x + 1) * 2).exp()\ny = none\nlet b = empty_like(x)\nwith stream(s) { b.zero_() }",
            ),
            OK,
        ),
        (
            side(
                "x + 1\nlet b = [empty(1000), empty(1000) on cuda:1]\nwith stream(s) { comm.broadcast(ones(1000), out=b) }",
            ),
            OK,
        ),
        (
            side("x + 1\nlet b = empty(1000)\nwith stream(s) { b.fill_(1) }\nassert((b + 0).sum() == 1000)"),
            "E0601",
        ),
        // Races are found at submission, also of dead work.
        (side("with stream(s) { x + 1 }"), "E0601"),
        (side("x + 1\nwith stream(s) { x.add_(1) }"), "E0601"),
        (side("cuda.synchronize()\nwith stream(s) { x + 1 }\nx.add_(1)"), "E0601"),
        (
            side(
                "let h = empty(1000, device=cpu, pin_memory=true)\nwith stream(s) { h.copy_(x, non_blocking=true) }",
            ),
            "E0601",
        ),
        (side("let d = (ones(9) on cpu).pin_memory()\nd.to(cuda, non_blocking=true)\nd.add_(1)"), "E0601"),
        // Work that can fail while it runs is not elementwise, and always runs.
        (side("x[[5000]]\ncuda.synchronize()"), "E0802"),
        (side("embedding([7], ones(2, 2))\ncuda.synchronize()"), "E0802"),
        (side("one_hot(tensor([9]), 3)\ncuda.synchronize()"), "E0802"),
        (side("assert_async(tensor(false))\ncuda.synchronize()"), "E0804"),
        (side("multinomial(tensor([-1.0, 2.0]), 1)\ncuda.synchronize()"), "E0804"),
        (side("tensor([1, 2]) // 0\ntensor([1]) << tensor([100])\ncuda.synchronize()"), OK),
        // Captures.
        (side("let g = Graph()\nwith graph(g) { x + 1 }\ng.replay()\nassert(x.sum() == 1000)"), OK),
        (
            side(
                "let g = Graph()\nx + 1\nlet b = empty(10)\nwith graph(g) { b.fill_(1) }\ng.replay()\nassert(b.sum() == 10)",
            ),
            OK,
        ),
        // A request that cannot fit fails where it is made.
        (side("zeros(64 * 1024 * 1024)"), "E0701"),
        (side("empty(64 * 1024 * 1024)"), "E0701"),
    ];
    for (code, wanted) in &alike {
        assert_eq!((ends(code, true), ends(code, false)), (wanted.to_string(), wanted.to_string()), "{code}");
    }
    let memory = [
        // Never computed.
        side("ones(1).expand(64 * 1024 * 1024) + 1\ncuda.synchronize()"),
        // Intermediate values of a kernel.
        side("let x = ones(4 * 1024 * 1024, dtype=u8)\n(x.to(f64) * 2 + 1).to(u8).sum().item()"),
    ];
    for code in &memory {
        assert_eq!((ends(code, true), ends(code, false)), (OK.to_string(), "E0701".to_string()), "{code}");
    }
}
