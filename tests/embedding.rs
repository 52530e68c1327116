//! Programs that embed Runnel: runs the examples unchanged, and tests what the API guarantees.

#![cfg(feature = "files")]
#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::{
    Backend, DeviceId, Dlpack, DlpackDevice, DlpackDtype, DlpackManaged, DlpackVersion, DlpackView, Dtype,
    Engine, ErrorKind, Function, RawTensor, Shared, Stream, Tensor,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

// The examples, compiled in, so that the tests run them unchanged.
#[path = "../examples/embed_async.rs"]
mod embed_async;
#[path = "../examples/embed_dlpack.rs"]
mod embed_dlpack;
#[path = "../examples/embed_filters.rs"]
mod embed_filters;
#[path = "../examples/embed_functions.rs"]
mod embed_functions;
#[path = "../examples/embed_hello.rs"]
mod embed_hello;
#[path = "../examples/embed_limits.rs"]
mod embed_limits;
#[path = "../examples/embed_modules.rs"]
mod embed_modules;
#[path = "../examples/embed_threads.rs"]
mod embed_threads;
#[path = "../examples/embed_training.rs"]
mod embed_training;
#[path = "../examples/embed_types.rs"]
mod embed_types;

#[test]
fn the_example_hello_runs() {
    embed_hello::main().unwrap();
}

#[test]
fn the_example_filters_runs() {
    embed_filters::main().unwrap();
}

#[test]
fn the_example_functions_runs() {
    embed_functions::main().unwrap();
}

#[test]
fn the_example_limits_runs() {
    embed_limits::main().unwrap();
}

#[test]
fn the_example_modules_runs() {
    embed_modules::main().unwrap();
}

#[test]
fn the_example_types_runs() {
    embed_types::main().unwrap();
}

#[test]
fn the_example_threads_runs() {
    embed_threads::main().unwrap();
}

#[test]
fn the_example_async_runs() {
    embed_async::main().unwrap();
}

#[test]
fn the_example_dlpack_runs() {
    embed_dlpack::main().unwrap();
}

#[test]
fn the_example_training_runs() {
    embed_training::main().unwrap();
}

#[test]
fn every_example_is_run_and_in_the_readme() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let own = std::fs::read_to_string(root.join("tests/embedding.rs")).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir(root.join("examples")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(stem) = name.strip_prefix("embed_").and_then(|n| n.strip_suffix(".rs")) {
            count += 1;
            assert!(own.contains(&format!("embed_{stem}::main()")), "{name} is not run");
            assert!(readme.contains(&format!("examples/{name}")), "{name} is not in the README");
        }
    }
    assert!(count >= 9, "{count}");
}

fn engine() -> Engine {
    Engine::builder().backend(Backend::Emu).build().unwrap()
}

#[test]
fn functions_are_checked_when_they_are_fetched() {
    let mut e = engine();
    let text = "fn f(x, y = 1) { x + y }\nfn g(*rest) { len(rest) }\nfn h(x, *rest, key) { x }\nlet n = 5";
    let program = e.compile("p", text).unwrap();
    let kind = |e: &mut Engine, name: &str| {
        program.function::<fn(i64) -> i64>(e, name).map(|_| ()).unwrap_err().kind()
    };
    assert_eq!(program.function::<fn(i64) -> i64>(&mut e, "f").unwrap().call(&mut e, (1,)).unwrap(), 2);
    assert_eq!(
        program.function::<fn(i64, i64) -> i64>(&mut e, "f").unwrap().call(&mut e, (1, 5)).unwrap(),
        6
    );
    assert_eq!(
        program.function::<fn(i64, i64, i64) -> i64>(&mut e, "g").unwrap().call(&mut e, (1, 2, 3)).unwrap(),
        3
    );
    assert_eq!(kind(&mut e, "n"), ErrorKind::Type);
    assert_eq!(kind(&mut e, "h"), ErrorKind::Type);
    assert_eq!(kind(&mut e, "missing"), ErrorKind::Name);
    let wrong = program.function::<fn() -> i64>(&mut e, "f").unwrap_err();
    assert!(wrong.help_text().unwrap().contains("f(x, y=...)"), "{wrong:?}");
    assert!(program.function::<fn(i64, i64, i64) -> i64>(&mut e, "f").is_err());
    assert_eq!(program.get::<i64>(&mut e, "n").unwrap(), 5);
    // Results are converted, or rejected.
    let f: Function<fn(i64) -> String> = program.function(&mut e, "f").unwrap();
    assert_eq!(f.call(&mut e, (1,)).unwrap_err().code().id, "E0961");
    assert!(e.function::<fn(f64) -> f64>("sqrt").is_ok());
}

#[test]
fn records_and_dicts_are_maps_with_texts_as_keys() {
    use std::collections::{BTreeMap, HashMap};
    let mut e = engine();
    let found: BTreeMap<String, f64> = e.eval("(loss = 0.5, step = 3)").unwrap();
    assert_eq!(found, BTreeMap::from([("loss".to_string(), 0.5), ("step".to_string(), 3.0)]));
    let found: HashMap<String, Vec<i64>> = e.eval("let d = dict()\nd[\"a b\"] = [1, 2]\nd").unwrap();
    assert_eq!(found["a b"], [1, 2]);
    e.set("limits", HashMap::from([("b".to_string(), 2), ("a".to_string(), 1)])).unwrap();
    assert_eq!(e.eval::<String>("repr(limits)").unwrap(), "{\"a\": 1, \"b\": 2}");
    e.register_fn("total", |parts: BTreeMap<String, f64>| parts.values().sum::<f64>());
    assert_eq!(e.eval::<f64>("total((a = 1, b = 2.5)) + total(limits)").unwrap(), 6.5);
    for wrong in ["[1]", "(a = \"x\")", "let d = dict()\nd[1] = 2\nd"] {
        assert_eq!(e.eval::<HashMap<String, i64>>(wrong).unwrap_err().code().id, "E0961", "{wrong}");
    }
}

#[test]
fn programs_run_repeatedly_with_separate_names() {
    let mut e = engine();
    e.eval::<()>("let n = 100").unwrap();
    let counter = e.compile("counter", "let n = 0\nfn next() { n = n + 1; n }\nnext()").unwrap();
    assert_eq!(counter.run::<i64>(&mut e).unwrap(), 1);
    assert_eq!(counter.run::<i64>(&mut e).unwrap(), 1);
    let next = counter.function::<fn() -> i64>(&mut e, "next").unwrap();
    assert_eq!((next.call(&mut e, ()).unwrap(), next.call(&mut e, ()).unwrap()), (2, 3));
    assert_eq!(e.eval::<i64>("n").unwrap(), 100);
    let error = e.compile("bad", "n + missing").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Name);
    assert!(e.report(&error).contains("bad:1"), "{}", e.report(&error));
    assert!(e.compile("bad", "let = 3").is_err());
    // A failed program can be run again once the missing name exists.
    assert!(e.compile("early", "assert(is_on())\n7").is_err());
    let switch = Shared::new(false);
    let own = switch.clone();
    e.register_fn("is_on", move || own.with(|on| *on));
    let program = e.compile("switch", "assert(is_on())\n7").unwrap();
    assert!(program.run::<i64>(&mut e).is_err());
    switch.with(|on| *on = true).unwrap();
    assert_eq!(program.run::<i64>(&mut e).unwrap(), 7);
}

#[test]
fn values_of_another_engine_are_rejected() {
    let (mut a, mut b) = (engine(), engine());
    a.eval::<()>("fn f(x) { x }").unwrap();
    let f = a.function::<fn(i64) -> i64>("f").unwrap();
    let program = a.compile("p", "1").unwrap();
    let x: Tensor = a.eval("ones(2)").unwrap();
    assert_eq!(f.call(&mut b, (1,)).unwrap_err().code().id, "E0965");
    assert_eq!(program.run::<i64>(&mut b).unwrap_err().code().id, "E0965");
    assert_eq!(b.set("x", &x).unwrap_err().code().id, "E0965");
    assert_eq!(b.set("x", vec![Some(x.clone())]).unwrap_err().code().id, "E0965");
    assert_eq!(b.read::<f32>(&x).unwrap_err().code().id, "E0965");
    // The handles outlive their engine.
    drop(a);
    drop((f, program, x));
}

#[test]
fn registered_functions_are_checked_and_seen_by_modules() {
    let mut e =
        Engine::builder().backend(Backend::Emu).module("m", "fn twice(x) { double(x) }").build().unwrap();
    e.register_fn("double", |x: i64| 2 * x).params(["x", "more"]).doc("Twice.");
    assert_eq!(e.eval::<i64>("import m\nm.twice(4)").unwrap(), 8);
    assert_eq!(e.help("double").unwrap(), "double(x)\n\nTwice.");
    assert_eq!(e.eval::<i64>("double(x = 3)").unwrap(), 6);
    assert!(e.eval::<String>("help(double)").unwrap().contains("Twice."));
    let error = e.eval::<()>("print(1)\ndouble(1, 2)").unwrap_err();
    assert_eq!(error.code().id, "E0207");
    // A script's own name takes precedence; new code sees a new registration.
    e.register_fn("double", |x: i64| 20 * x);
    assert_eq!(e.eval::<i64>("double(4)").unwrap(), 80);
    assert!(e.register_module("no name", |_| {}).is_err());
    assert!(Engine::builder().module("no name", "").build().is_err());
}

#[test]
fn native_types_behave_like_the_languages_own() {
    struct Point(f64, f64);
    let mut e = engine();
    assert_eq!(e.set("p", Shared::new(Point(1.0, 2.0))).unwrap_err().code().id, "E0961");
    e.register_type::<Point>("point")
        .method("moved", |p: &Point, x: f64, y: f64| Shared::new(Point(p.0 + x, p.1 + y)))
        .params(["x", "y"])
        .method("boom", |_: &mut Point| -> i64 { panic!("no points today") })
        .field("x", |p: &Point| p.0)
        .field("y", |p: &Point| p.1);
    let p = Shared::new(Point(1.0, 2.0));
    e.set("p", p.clone()).unwrap();
    assert_eq!(e.eval::<(f64, f64)>("let q = p.moved(1, y = 2)\n(q.x, q.y)").unwrap(), (2.0, 4.0));
    assert!(e.eval::<bool>("p == p and p != q").unwrap());
    assert_eq!(e.eval::<String>("str(p)").unwrap(), "<point>");
    let error = e.eval::<()>("p.z").unwrap_err();
    assert!(e.report(&error).contains('z'));
    let error = e.eval::<()>("p.move(1, 2)").unwrap_err();
    assert!(e.report(&error).contains("moved"), "{}", e.report(&error));
    assert!(e.eval::<()>("p.x = 3").is_err());
    assert!(e.eval::<i64>("p.boom()").unwrap_err().message().contains("no points today"));
    // The panic poisoned no lock.
    assert_eq!(p.with(|p| p.0).unwrap(), 1.0);
    e.register_fn("norm", |p: Shared<Point>| p.with(|p| p.0.hypot(p.1)));
    assert_eq!(e.eval::<f64>("norm(p.moved(2, 2))").unwrap(), 5.0);
    assert_eq!(e.eval::<f64>("norm(1)").unwrap_err().code().id, "E0961");
    assert!(e.get::<Shared<Point>>("p").is_ok());
    assert!(e.get::<Shared<i64>>("p").is_err());
}

#[test]
fn foreign_memory_is_checked_and_released_once_after_its_work() {
    let mut e = engine();
    let released = Arc::new(AtomicUsize::new(0));
    let mut data = [1.0f32; 64];
    let ptr = data.as_mut_ptr() as u64;
    let make = |e: &mut Engine, ptr: u64, shape: &[usize], strides: Option<&[isize]>, device| {
        let released = released.clone();
        let raw = RawTensor { ptr, shape, strides, dtype: Dtype::F32, device };
        // SAFETY: `data` outlives the engine.
        unsafe {
            e.tensor_from_raw(raw, move || {
                released.fetch_add(1, Ordering::SeqCst);
            })
        }
    };
    for (ptr, shape, strides) in [
        (ptr, &[2, 2][..], Some(&[1][..])),
        (ptr, &[2], Some(&[-1])),
        (ptr + 1, &[2], None),
        (0, &[2], None),
        (ptr, &[usize::MAX, 2], None),
        (ptr, &[1 << 40, 1 << 20], Some(&[1 << 60, 1])),
        (u64::MAX - 3, &[2], None),
    ] {
        let error = make(&mut e, ptr, shape, strides, DeviceId::Cpu).unwrap_err();
        assert_eq!(error.code().id, "E0967", "{error}");
    }
    assert!(make(&mut e, ptr, &[2], None, DeviceId::Cuda(99)).is_err());
    assert_eq!(released.load(Ordering::SeqCst), 0);
    // Empty tensors need no memory.
    drop(make(&mut e, 0, &[0, 3], None, DeviceId::Cpu).unwrap());
    assert_eq!(released.load(Ordering::SeqCst), 1);
    // On a device (an emulated one uses this process's memory), with work of two streams.
    let x = make(&mut e, ptr, &[64], None, DeviceId::Cuda(0)).unwrap();
    e.set("x", &x).unwrap();
    drop(x);
    let text = "x.add_(1)\nlet s = Stream()\ns.wait_stream(cuda.current_stream())\nwith stream(s) { x.mul_(3) }\nx = none";
    e.eval::<()>(text).unwrap();
    e.eval::<()>("cuda.synchronize()").unwrap();
    while released.load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    assert_eq!(data, [6.0; 64]);
    assert_eq!(released.load(Ordering::SeqCst), 2);
}

#[test]
fn dlpack_keeps_the_tensor_until_its_deleter_runs() {
    let mut e = engine();
    let x: Tensor = e.eval("tensor([1, 2, 3], dtype=i16)[1..]").unwrap();
    let lent = e.export_dlpack(&x, None).unwrap();
    drop(x);
    let view = &lent.managed().view;
    assert_eq!((view.dtype.code, view.dtype.bits, view.byte_offset, view.device.device_type), (0, 16, 2, 12));
    let mut raw = lent.into_raw();
    // SAFETY: it has no other owner.
    unsafe { raw.as_mut() }.flags = 1;
    // SAFETY: as above.
    let error = unsafe { e.import_dlpack(Dlpack::from_raw(raw)) }.unwrap_err();
    assert_eq!(error.code().id, "E0967");
    let mut other = engine();
    let x: Tensor = e.eval("tensor([1, 2, 3], dtype=i16)[1..]").unwrap();
    // SAFETY: the work of `e` on it is complete, and `e` does not use it meanwhile.
    let y = unsafe { other.import_dlpack(e.export_dlpack(&x, None).unwrap()) }.unwrap();
    drop((x, e));
    assert_eq!(other.read::<i64>(&y).unwrap(), [2, 3]);
}

/// The tensor `x` of a script on a seeded schedule, lent to a stream. The borrower is the same engine with a separate
/// tensor; the race checker does not know that both share memory.
fn lend_in_an_order(seed: u64, script: &str) -> Engine {
    let mut e = Engine::builder().backend(Backend::Emu).devices(2).schedule(seed).build().unwrap();
    let consumer: Arc<Stream> =
        e.eval("let (s, t, consumer) = (Stream(), Stream(), Stream())\nconsumer").unwrap();
    let x: Tensor = e.eval(&format!("{script}\nx")).unwrap();
    let lent = e.export_dlpack(&x, Some(&consumer)).unwrap();
    // SAFETY: `x` lives as long as its engine, and the borrower uses the memory on the consumer's stream.
    let lent = unsafe { e.import_dlpack(lent) }.unwrap();
    e.set("lent", lent).unwrap();
    e
}

#[test]
fn dlpack_orders_the_consumer_after_all_work_on_the_memory() {
    let writes = [
        "let x = ones(64) + 1",
        "let x = with stream(s) { ones(64) + 1 }",
        "let x = with stream(s) { ones(64) }\nt.wait_stream(s)\nwith stream(t) { x.add_(1) }",
        "let x = zeros(64)\nlet g = Graph()\nwith graph(g) { x.add_(1) }\nwith stream(s) { g.replay()\ng.replay() }",
        "let x = full([64], 2.0, device=cuda:1).to(cuda:0)",
        "let x = full([64], 2.0, device=cpu)",
    ];
    // A borrower may also write, so work that reads the memory must come first.
    let reads = "let x = ones(64) + 1\ncuda.synchronize()\nlet y = with stream(s) { x * 3 }";
    for seed in 0..24 {
        for script in writes {
            let mut e = lend_in_an_order(seed, script);
            let sum: f32 = e.eval("with stream(consumer) { lent.sum().item() }").unwrap();
            assert_eq!(sum, 128.0, "seed {seed}: {script}");
        }
        let mut e = lend_in_an_order(seed, reads);
        e.eval::<()>("with stream(consumer) { lent.zero_() }\ncuda.synchronize()").unwrap();
        assert_eq!(e.eval::<f32>("y.sum().item()").unwrap(), 384.0, "seed {seed}");
    }
}

/// Only streams of another device use the memory, and the stream that it was allocated on does not wait for them.
#[test]
fn dlpack_orders_the_consumer_after_streams_of_other_devices() {
    let streams =
        "let (s, near) = (Stream(), Stream())\nlet (far, other) = with device(1) { (Stream(), Stream()) }
let x = ones(64) + 1\nlet y = full([64], 3.0, device=cuda:1)\ncuda.synchronize(0)\ncuda.synchronize(1)\n";
    let read = "let z = with stream(s) { with stream(far) { x.to(cuda:1) } }";
    let written = "with stream(s) { with stream(far) { comm.gather([y], out=x) } }";
    let clear =
        "with stream(near) { lent.zero_() }\ncuda.synchronize(0)\ncuda.synchronize(1)\nz.sum().item()";
    let cases = [
        (read, "near", clear, 128.0),
        (read, "none", clear, 128.0),
        (written, "near", "with stream(near) { lent.sum().item() }", 192.0),
        (
            written,
            "other",
            "with stream(near) { with stream(other) { lent.to(cuda:1).sum().item() } }",
            192.0,
        ),
        (written, "none", "with stream(near) { lent.sum().item() }", 192.0),
    ];
    for seed in 0..24 {
        for (script, consumer, used, sum) in cases {
            let mut e = Engine::builder().backend(Backend::Emu).devices(2).schedule(seed).build().unwrap();
            let x: Tensor = e.eval(&format!("{streams}{script}\nx")).unwrap();
            let consumer: Option<Arc<Stream>> = e.eval(consumer).unwrap();
            let lent = e.export_dlpack(&x, consumer.as_ref()).unwrap();
            // SAFETY: `x` lives as long as its engine, and the borrower's work follows the export.
            let lent = unsafe { e.import_dlpack(lent) }.unwrap();
            e.set("lent", lent).unwrap();
            let found: f32 = e.eval(used).unwrap();
            assert_eq!(found, sum, "seed {seed}: {script}; {used}");
        }
    }
}

#[test]
fn dlpack_without_a_stream_waits_for_copies_to_page_locked_memory() {
    let mut e = Engine::builder().backend(Backend::Emu).devices(1).schedule(1).build().unwrap();
    let script = "let s = Stream()\nwith stream(s) { full([4], 7.0).to(cpu, non_blocking=true) }";
    let x: Tensor = e.eval(script).unwrap();
    let lent = e.export_dlpack(&x, None).unwrap();
    // SAFETY: the memory holds four floats as long as `lent` does.
    let values = unsafe { std::slice::from_raw_parts(lent.managed().view.data.cast::<f32>(), 4) };
    assert_eq!(values, [7.0; 4]);
}

#[test]
fn dlpack_rejects_streams_it_cannot_order() {
    let mut e = engine();
    let x: Tensor = e.eval("let x = ones(4)\nx").unwrap();
    let foreign: Arc<Stream> = engine().eval("Stream()").unwrap();
    assert_eq!(e.export_dlpack(&x, Some(&foreign)).unwrap_err().code().id, "E0965");
}

/// A deleter that panics, as no deleter should.
unsafe extern "C-unwind" fn panicking(managed: *mut DlpackManaged) {
    // SAFETY: `dlpack_deleters_may_unwind` has made it of a box.
    drop(unsafe { Box::from_raw(managed) });
    panic!("in a deleter");
}

#[test]
fn dlpack_deleters_may_unwind() {
    let mut empty = [0i64];
    let shape = empty.as_mut_ptr();
    let lent = |device_type: i32| {
        let view = DlpackView {
            data: std::ptr::null_mut(),
            device: DlpackDevice { device_type, device_id: 0 },
            ndim: 1,
            dtype: DlpackDtype { code: 2, bits: 32, lanes: 1 },
            shape,
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let version = DlpackVersion { major: 1, minor: 0 };
        let manager_ctx = std::ptr::null_mut();
        let managed = DlpackManaged { version, manager_ctx, deleter: Some(panicking), flags: 0, view };
        // SAFETY: it has no elements and no other owner, and its shape outlives it.
        unsafe { Dlpack::from_raw(std::ptr::NonNull::from(Box::leak(Box::new(managed)))) }
    };
    let mut e = engine();
    drop(lent(1));
    // SAFETY: as above.
    let error = unsafe { e.import_dlpack(lent(77)) }.unwrap_err();
    assert_eq!(error.code().id, "E0967");
    // SAFETY: as above.
    let x = unsafe { e.import_dlpack(lent(1)) }.unwrap();
    e.set("x", x).unwrap();
    let error = e.eval::<()>("x = none").unwrap_err();
    assert_eq!(error.code().id, "E0963");
    assert!(error.message().contains("in a deleter"), "{error}");
    assert_eq!(e.eval::<i64>("1").unwrap(), 1);
}

/// A value of the host program that reports its drop.
struct Token(Arc<AtomicUsize>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn an_engine_moves_between_threads_with_all_that_it_holds() {
    let drops = Arc::new(AtomicUsize::new(0));
    let mut e = engine();
    let counter = drops.clone();
    e.register_type::<Token>("token_type");
    e.register_fn("token", move || Shared::new(Token(counter.clone())));
    e.register_fn("fail", || -> i64 { panic!("in a host function") });
    // Values, a cycle that only a collection finds, a graph, queued work, and handles to functions and tests.
    e.eval::<()>(
        "let held = [token()]\nlet cycle = [token()]\ncycle.append(cycle)\ncycle = none\n\
         let (x, y, g, s) = (ones(1000) * 2, zeros(4), Graph(), Stream())\nwith graph(g) { y.add_(1) }\n\
         let late = with stream(s) { cuda.sleep(1000000)\nfull([64], 3.0) + 1 }\n\
         fn bump(n) { held.append(token())\nn + 1 }\ntest \"later\" { assert(len(held) == 2) }",
    )
    .unwrap();
    let (tests, x) = (e.take_tests(), e.get::<Tensor>("x").unwrap());
    let bump: Function<fn(i64) -> i64> = e.function("bump").unwrap();
    let program = e.compile("later", "let total = ones(3).sum().item()").unwrap();
    let ready = x.ready();
    let (mut e, bump) = std::thread::spawn(move || {
        e.eval::<()>("g.replay()\ng.replay()\ns.synchronize()").unwrap();
        assert_eq!(bump.call(&mut e, (1,)).unwrap(), 2);
        assert_eq!(e.eval::<i64>("fail()").unwrap_err().code().id, "E0963");
        (e, bump)
    })
    .join()
    .unwrap();
    assert_eq!(e.eval::<f32>("late.sum().item()").unwrap(), 256.0);
    let x = std::thread::spawn(move || {
        e.run_test(&tests[0]).unwrap();
        assert_eq!(program.get::<f64>(&mut e, "total").unwrap(), 3.0);
        assert_eq!(e.eval::<f32>("y.sum().item()").unwrap(), 8.0);
        assert_eq!(e.read::<f32>(&x).unwrap()[999], 2.0);
        drop(e);
        x
    })
    .join()
    .unwrap();
    assert_eq!(drops.load(Ordering::SeqCst), 3);
    // Handles outlive their engine, on any thread.
    drop((bump, x, ready));
}

#[test]
fn tensors_of_hosts_and_empty_ones_are_ready_at_once() {
    use std::future::Future;
    let mut e = engine();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for text in ["tensor([1.0], device=cpu)", "zeros(0)", "ones(2)", "ones(3).to(cpu, non_blocking=true)"] {
        let x: Tensor = e.eval(text).unwrap();
        e.eval::<()>("cuda.synchronize()").unwrap();
        let ready = std::pin::pin!(x.ready()).poll(&mut context);
        assert!(matches!(ready, std::task::Poll::Ready(Ok(()))), "{text}");
    }
}

#[test]
fn complex_numbers_cross_both_ways() {
    use runnel::Complex;
    let mut e = engine();
    let z = [Complex::new(1.0f32, 2.0), Complex::new(0.0, -1.0)];
    let tensor = e.tensor(&z, &[2], DeviceId::Cuda(0)).unwrap();
    e.set("z", tensor.clone()).unwrap();
    assert_eq!(e.eval::<String>("str(z.dtype)").unwrap(), "c64");
    let turned: runnel::Tensor = e.eval("z * z").unwrap();
    assert_eq!(e.read::<Complex<f32>>(&turned).unwrap(), [Complex::new(-3.0, 4.0), Complex::new(-1.0, 0.0)]);
    assert_eq!(e.read::<Complex<f64>>(&tensor).unwrap()[1], Complex::new(0.0, -1.0));
    let real: runnel::Tensor = e.eval("arange(2)").unwrap();
    assert_eq!(e.read::<Complex<f32>>(&real).unwrap(), [Complex::new(0.0, 0.0), Complex::new(1.0, 0.0)]);
    let error = e.read::<f32>(&tensor).unwrap_err();
    assert!(e.report(&error).contains("x.real"), "{}", e.report(&error));
    let host = e.tensor(&[Complex::new(0.5f64, 0.25)], &[1], DeviceId::Cpu).unwrap();
    assert_eq!(e.read::<Complex<f64>>(&host).unwrap(), [Complex::new(0.5, 0.25)]);
}

#[test]
fn help_knows_functions_of_the_program_of_the_language_and_of_modules() {
    let mut e = engine();
    e.register_fn("rate", |n: i64| n).params(["n"]).doc("How fast.");
    e.register_module("sensor", |m| drop(m.function("read", |n: i64| n).doc("Reads."))).unwrap();
    e.eval::<()>("# Halves.\nfn half(x) { x / 2 }").unwrap();
    for (name, parts) in [
        ("rate", ["rate(n)", "How fast."]),
        ("sensor.read", ["read(a)", "Reads."]),
        ("half", ["half(x)", "Halves."]),
        ("plot.line", ["line(x", "Draws lines"]),
        ("tensor.sum", ["sum(", "dim"]),
        ("data.loader", ["data.loader(", "batches"]),
    ] {
        let text = e.help(name).unwrap();
        assert!(parts.iter().all(|part| text.contains(part)), "{name}: {text}");
    }
    assert_eq!(e.help("nowhere").unwrap_err().code().id, "E0328");
}

#[test]
fn vectors_of_complex_numbers_cross_both_ways() {
    use runnel::Complex;
    let mut engine = Engine::builder().backend(Backend::Emu).build().unwrap();
    let n = |re: f32, im: f32| Complex::new(re, im);
    engine.register_fn("spectrum", move |count: usize| -> Vec<Complex<f32>> {
        (0..count).map(|i| n(i as f32, 1.0)).collect()
    });
    engine.register_fn("norm", |x: Complex<f64>| x.norm());
    engine.register_fn("flip", |x: Vec<Complex<f64>>| -> Vec<Complex<f64>> {
        x.iter().map(Complex::conj).collect()
    });
    assert_eq!(engine.eval::<Vec<Complex<f32>>>("spectrum(2) * 2").unwrap(), [n(0.0, 2.0), n(2.0, 2.0)]);
    assert!(engine.eval::<bool>("let s = spectrum(3)\ns.dtype == c64 and s.shape == (3,)").unwrap());
    assert_eq!(engine.eval::<f64>("norm(complex([3.0], [4.0])) + norm(2)").unwrap(), 7.0);
    assert_eq!(engine.eval::<Complex<f64>>("flip(spectrum(3))[2]").unwrap(), Complex::new(2.0, -1.0));
    assert_eq!(engine.eval::<Vec<Complex<f32>>>("arange(2)").unwrap(), [n(0.0, 0.0), n(1.0, 0.0)]);
    engine.set("z", n(1.0, -1.0)).unwrap();
    assert!(engine.eval::<bool>("z.shape == () and z.dtype == c64").unwrap());
    let error = engine.eval::<Vec<f64>>("spectrum(2)").unwrap_err();
    assert_eq!(error.code().id, "E0961");
    assert_eq!(engine.eval::<Complex<f64>>("\"text\"").unwrap_err().code().id, "E0961");
}

#[test]
fn exit_is_an_error_with_its_status_and_the_engine_continues() {
    let mut engine = Engine::builder().backend(Backend::Emu).build().unwrap();
    let error = engine.eval::<()>("let n = 1\ntry { exit(7) } catch e { n = 2 }").unwrap_err();
    assert_eq!((error.kind(), error.exit_status()), (ErrorKind::Exit, Some(7)));
    assert_eq!(engine.eval::<i64>("n").unwrap(), 1);
    assert_eq!(engine.eval::<i64>("1 / 0 // 1").unwrap_err().exit_status(), None);
}

#[test]
fn input_is_the_embedders() {
    let mut engine = Engine::builder().backend(Backend::Emu).build().unwrap();
    assert_eq!(engine.eval::<()>("input()").unwrap_err().code().id, "E0927");
    let mut lines = vec!["two".to_string(), "one".to_string()];
    let mut engine = Engine::builder().backend(Backend::Emu).input(move || lines.pop()).build().unwrap();
    assert_eq!(engine.eval::<Vec<Option<String>>>("[input(), input(), input()]").unwrap().len(), 3);
}

#[test]
fn an_error_of_another_engine_is_shown_over_its_own_text() {
    let mut outer = engine();
    let inner = std::sync::Mutex::new(engine());
    outer.register_fn("run", move |code: String| inner.lock().unwrap().eval::<i64>(&code));
    let own = "let padding = \"a text of the outer engine, long enough to be pointed into\"\nlet code = \"let a = 1\\n[a][5]\"\n";
    let error = outer.eval::<()>(&format!("{own}run(code)")).unwrap_err();
    assert_eq!(error.code().id, "E0315");
    let report = outer.report(&error);
    assert!(report.contains("run(code)") && report.contains("[a][5]"), "{report}");
    let marked = report.lines().filter(|line| line.contains("padding =")).count();
    assert_eq!(marked, 0, "{report}");
    let caught =
        outer.eval::<String>(&format!("{own}try {{ run(code) }} catch e {{ \"{{e.code}} {{e.line}}\" }}"));
    assert_eq!(caught.unwrap(), "E0315 3");
    // A syntax error, and an error that the host keeps, also own their source text.
    let error = outer.eval::<()>("run(\"let = 1\")").unwrap_err();
    assert!(outer.report(&error).contains("let = 1"), "{}", outer.report(&error));
    let mut first = engine();
    let kept = first.eval::<()>("throw \"kept\"").unwrap_err();
    drop(first);
    let report = outer.report(&kept);
    assert!(report.contains("throw \"kept\"") && report.contains("<eval:1>"), "{report}");
    let again = kept.clone();
    outer.register_fn("again", move || -> runnel::Result<()> { Err(again.clone()) });
    let error = outer.eval::<()>("again()").unwrap_err();
    let report = outer.report(&error);
    assert!(report.contains("again()") && report.contains("throw \"kept\""), "{report}");
}

#[test]
fn types_of_one_name_stay_apart() {
    struct First(i64);
    struct Second(String);
    let mut e = engine();
    e.register_type::<First>("thing").method("get", |t: &First| t.0).field("own", |t: &First| t.0 + 1);
    e.register_type::<Second>("thing").method("get", |t: &Second| t.0.clone());
    assert!(e.take_warnings()[0].message().contains("thing_2"));
    e.register_type::<First>("thing").method("more", |t: &First| t.0 + 2);
    assert!(e.take_warnings().is_empty());
    e.set("a", Shared::new(First(7))).unwrap();
    e.set("b", Shared::new(Second("text".into()))).unwrap();
    assert_eq!(
        e.eval::<(i64, String, i64, i64)>("(a.get(), b.get(), a.own, a.more())").unwrap(),
        (7, "text".into(), 8, 9)
    );
    assert!(e.eval::<()>("b.more()").is_err() && e.eval::<()>("b.own").is_err());
    // Names of Runnel's own types.
    struct Own;
    let names = [
        "tensor",
        "list",
        "str",
        "dict",
        "stream",
        "int",
        "none",
        "fn",
        "module",
        "generator",
        "event",
        "graph",
    ];
    for name in names {
        let mut e = engine();
        e.register_type::<Own>(name)
            .method("sum", |_: &Own| "own")
            .method("len", |_: &Own| 1)
            .field("shape", |_: &Own| 2);
        e.set("own", Shared::new(Own)).unwrap();
        assert_eq!(e.eval::<(String, i64)>("(own.sum(), own.shape)").unwrap(), ("own".into(), 2), "{name}");
        let usual = "ones(2, 3).sum().item() == 6.0 and ones(2, 3).shape == (2, 3) and [1, 2].sum().item() == 3 \
                     and \"ab\".upper() == \"AB\" and len(dict([(1, 2)]).keys()) == 1 and (|| 1)() == 1";
        assert!(e.eval::<bool>(usual).unwrap(), "{name}");
        assert!(
            e.eval::<()>("let s = Stream()\ns.synchronize()\nlet g = Generator()\ng.manual_seed(1)").is_ok(),
            "{name}"
        );
    }
}

#[test]
fn names_of_variables_are_names() {
    let mut e = engine();
    for bad in [
        "", "a b", "let", "1a", "a.b", "a-b", "true", "cuda", "f32", "a\nb", "é́ x", " a", "a ", "\"",
        "self:", "🦀",
    ] {
        let error = e.set(bad, 1).unwrap_err();
        assert_eq!(error.code().id, "E0962", "{bad:?}");
        assert!(error.help_text().is_some());
        let error = e.register_module(bad, |_| ()).unwrap_err();
        assert_eq!(error.code().id, "E0962", "{bad:?}");
    }
    for good in ["a", "_a1", "größe", "変数", "print", "test", "by", "self"] {
        e.set(good, 1).unwrap();
        assert_eq!(e.eval::<i64>(&format!("{good} + 1")).unwrap(), 2, "{good}");
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_is_rejected_as_a_program_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.rnl");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut e = engine();
    for path in [
        pipe.as_path(),
        folder.path(),
        std::path::Path::new("/dev/zero"),
        std::path::Path::new("no/file.rnl"),
    ] {
        let error = e.run_file(path).unwrap_err();
        assert!(["E0907", "E0920"].contains(&error.code().id), "{path:?}: {error:?}");
    }
    let file = folder.path().join("file.rnl");
    std::fs::write(&file, "let x = 41").unwrap();
    e.run_file(&file).unwrap();
    assert_eq!(e.eval::<i64>("x + 1").unwrap(), 42);
    std::fs::write(&file, b"let x = \"\xff\"").unwrap();
    assert_eq!(e.run_file(&file).unwrap_err().code().id, "E0113");
}

#[test]
fn reports_are_short_for_every_program() {
    let mut e = engine();
    let long = "a".repeat(1 << 19);
    let line = format!("print({}) + ", "1, ".repeat(1 << 15));
    let programs = [
        format!("print({long})"),
        format!("let {long} = 1\n{long}.b"),
        format!("throw \"{long}\""),
        format!("{line}{long}"),
        format!("f({long}={long})"),
        format!("{{ {line} }}(\n{line}\n{line}\n)({long})"),
        format!("let x = [1]\n{line} x[9]"),
        format!("print(zeros(2) + zeros(3), \"{long}\")"),
        format!("import \"{long}\""),
        format!("dict()[\"{long}\"]"),
        format!("(a = 1).{long}"),
        "print(xyzw)\n".repeat(1 << 14),
        (0..1 << 12).map(|i| format!("print(x{i})\n")).collect(),
        format!("let = {long}\nlet y = '{long}'\n\"{long}"),
    ];
    for program in &programs {
        let error = e.eval::<()>(program).unwrap_err();
        let start: String = program.chars().take(40).collect();
        assert!(e.report(&error).len() < 256 << 10, "{start}: {} bytes", e.report(&error).len());
    }
    let error = e.compile(&"n".repeat(1 << 20), "x").unwrap_err();
    assert!(e.report(&error).len() < 64 << 10);
}
