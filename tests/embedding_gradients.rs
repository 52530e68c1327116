//! Gradients through the embedding API match those that a script sees.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::{Backend, DeviceId, Engine, Result, Tensor};

fn engine() -> Engine {
    Engine::builder().backend(Backend::Emu).devices(2).build().unwrap()
}

fn code<T>(outcome: Result<T>) -> &'static str {
    outcome.err().map_or("no error", |error| error.code().id)
}

fn leaf(engine: &mut Engine, data: &[f32]) -> Tensor {
    let tensor = engine.tensor(data, &[data.len()], DeviceId::Cuda(0)).unwrap();
    engine.set_requires_grad(&tensor, true).unwrap();
    tensor
}

fn gradient(engine: &mut Engine, tensor: &Tensor) -> Option<Vec<f32>> {
    let gradient = engine.grad(tensor).unwrap()?;
    Some(engine.read(&gradient).unwrap())
}

#[test]
fn rust_runs_backward_over_script_computations() {
    let mut e = engine();
    e.eval::<()>("fn loss(w, x) { ((w * x) ** 2).sum() }").unwrap();
    let loss = e.function::<fn(Tensor, Tensor) -> Tensor>("loss").unwrap();
    let (w, x) = (leaf(&mut e, &[1.0, 2.0]), e.tensor(&[3.0f32, 1.0], &[2], DeviceId::Cuda(0)).unwrap());
    assert!(e.requires_grad(&w).unwrap() && !e.requires_grad(&x).unwrap());
    assert_eq!(gradient(&mut e, &w), None);
    for pass in 1..=2 {
        let y = loss.call(&mut e, (w.clone(), x.clone())).unwrap();
        assert!(e.requires_grad(&y).unwrap());
        e.backward(&y, None).unwrap();
        let sum = [18.0, 4.0].map(|g| g * pass as f32);
        assert_eq!(gradient(&mut e, &w).unwrap(), sum, "gradients add up");
        assert_eq!(gradient(&mut e, &x), None);
    }
    // The script sees the same gradient, and the embedder sees the gradient that the script sets.
    e.set("w", &w).unwrap();
    assert_eq!(e.eval::<Vec<f32>>("w.grad").unwrap(), [36.0, 8.0]);
    e.eval::<()>("w.grad = zeros(2)").unwrap();
    assert_eq!(gradient(&mut e, &w).unwrap(), [0.0, 0.0]);
    e.set_grad(&w, Some(&x)).unwrap();
    assert_eq!(e.eval::<Vec<f32>>("w.grad").unwrap(), [3.0, 1.0]);
    e.set_grad(&w, None).unwrap();
    assert!(e.eval::<bool>("w.grad == none").unwrap());
}

#[test]
fn a_training_loop_in_rust_equals_the_one_of_a_script() {
    let text = "
        let w = zeros(3, 1) on cuda:0
        let x = (arange(24.0).reshape(8, 3) / 10).sin() on cuda:0
        let y = x @ tensor([[1.0], [-2.0], [0.5]]) + 0.25
        fn loss() { ((x @ w - y) ** 2).mean() }
        fn update() { w.sub_(0.1 * w.grad) }";
    let (mut one, mut other) = (engine(), engine());
    one.eval::<()>(text).unwrap();
    let w: Tensor = one.get("w").unwrap();
    one.set_requires_grad(&w, true).unwrap();
    for _ in 0..20 {
        let loss: Tensor = one.call("loss", ()).unwrap();
        one.backward(&loss, None).unwrap();
        assert_eq!(code(one.call::<()>("update", ())), "E0382");
        one.no_grad(|engine| engine.call::<()>("update", ())).unwrap();
        one.set_grad(&w, None).unwrap();
    }
    other.eval::<()>(text).unwrap();
    let step = "w.requires_grad_()\nfor _ in 0..20 {\nloss().backward()\nwith no_grad() { update() }\nw.grad = none\n}";
    other.eval::<()>(step).unwrap();
    assert_eq!(one.read::<f32>(&w).unwrap(), other.eval::<Vec<f32>>("w.detach().flatten()").unwrap());
    assert!(one.requires_grad(&w).unwrap());
}

#[test]
fn mistakes_are_errors_with_their_codes() {
    let (mut e, mut other) = (engine(), engine());
    let w = leaf(&mut e, &[1.0, 2.0]);
    let whole = e.tensor(&[1i64, 2], &[2], DeviceId::Cuda(0)).unwrap();
    assert_eq!(code(e.set_requires_grad(&whole, true)), "E0380");
    e.set_requires_grad(&whole, false).unwrap();
    let plain = e.tensor(&[1.0f32], &[1], DeviceId::Cuda(0)).unwrap();
    assert_eq!(code(e.backward(&plain, None)), "E0380");
    // A tensor cannot be its own gradient.
    assert_eq!(code(e.set_grad(&plain, Some(&plain))), "E0381");
    e.set_grad(&plain, None).unwrap();
    let y: Tensor = e.call("exp", (&w,)).unwrap();
    assert_eq!(code(e.set_requires_grad(&y, false)), "E0380");
    assert_eq!(code(e.backward(&y, None)), "E0381");
    assert_eq!(code(e.backward(&y, Some(&plain))), "E0381");
    assert_eq!(code(e.set_grad(&w, Some(&plain))), "E0381");
    let elsewhere = e.tensor(&[1.0f32, 1.0], &[2], DeviceId::Cuda(1)).unwrap();
    assert_eq!(code(e.backward(&y, Some(&elsewhere))), "E0381");
    // A failed call consumes nothing.
    e.backward(&y, Some(&w)).unwrap();
    assert_eq!(code(e.backward(&y, Some(&w))), "E0383");
    e.set("w", &w).unwrap();
    let y: Tensor = e.eval("let y = exp(w)\ny.add_(1)\ny.sum()").unwrap();
    assert_eq!(code(e.backward(&y, None)), "E0384");
    let y: Tensor = e.eval("nextafter(w, w + 1).sum()").unwrap();
    assert_eq!(code(e.backward(&y, None)), "E0385");
    assert_eq!(code(e.export_dlpack(&w, None)), "E0388");
    let apart = e.detach(&w).unwrap();
    e.export_dlpack(&apart, None).unwrap();
    // Tensors of another engine.
    assert_eq!(code(other.requires_grad(&w)), "E0965");
    assert_eq!(code(other.set_requires_grad(&w, true)), "E0965");
    assert_eq!(code(other.grad(&w)), "E0965");
    assert_eq!(code(other.set_grad(&w, None)), "E0965");
    assert_eq!(code(other.backward(&w, None)), "E0965");
    assert_eq!(code(other.detach(&w)), "E0965");
    let own = leaf(&mut other, &[1.0, 2.0]);
    assert_eq!(code(other.backward(&own, Some(&w))), "E0965");
    assert_eq!(code(other.set_grad(&own, Some(&w))), "E0965");
}

#[test]
fn hooks_and_rules_of_scripts_run_and_their_errors_arrive() {
    let mut e = engine();
    let w = leaf(&mut e, &[1.0, 2.0]);
    e.set("w", &w).unwrap();
    let y: Tensor = e
        .eval("let twice = custom_gradient(|x| (x * 2, none), |_, g| g * 20)\nw.register_hook(|g| g + 1)\ntwice(w).sum()")
        .unwrap();
    e.backward(&y, None).unwrap();
    assert_eq!(gradient(&mut e, &w).unwrap(), [21.0, 21.0]);
    let y: Tensor = e.eval("w.register_hook(|g| { throw \"no\" })\nw.sum()").unwrap();
    let error = e.backward(&y, None).unwrap_err();
    assert!(error.to_string().contains("no"), "{error}");
    assert_eq!(e.eval::<i64>("1 + 1").unwrap(), 2);
}

#[test]
fn detached_tensors_share_memory_and_have_no_record() {
    let mut e = engine();
    let plain = e.tensor(&[1.0f32], &[1], DeviceId::Cuda(0)).unwrap();
    assert_eq!(e.detach(&plain).map(|t| e.read::<f32>(&t).unwrap()).unwrap(), [1.0]);
    let w = leaf(&mut e, &[1.0, 2.0]);
    let apart = e.detach(&w).unwrap();
    assert!(!e.requires_grad(&apart).unwrap());
    e.set("apart", &apart).unwrap();
    e.eval::<()>("apart.add_(1)").unwrap();
    assert_eq!(e.read::<f32>(&w).unwrap(), [2.0, 3.0]);
}

#[test]
fn recording_continues_after_panics_and_nested_calls() {
    let mut e = engine();
    let w = leaf(&mut e, &[1.0, 2.0]);
    let inside: Tensor = e.no_grad(|e| {
        let kept = e.no_grad(|e| e.call::<Tensor>("exp", (&w,)).unwrap());
        assert!(!e.requires_grad(&kept).unwrap());
        e.call("exp", (&w,)).unwrap()
    });
    assert!(!e.requires_grad(&inside).unwrap());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        e.no_grad(|_| std::panic::resume_unwind(Box::new("on purpose")));
    }));
    assert!(panicked.is_err());
    let y: Tensor = e.call("exp", (&w,)).unwrap();
    assert!(e.requires_grad(&y).unwrap());
}

#[test]
fn records_move_with_their_engine_and_are_dropped_anywhere() {
    let mut e = engine();
    let w = leaf(&mut e, &[1.0, 2.0]);
    let y: Tensor = e.call("exp", (&w,)).unwrap();
    let y: Tensor = e.call("sum", (&y,)).unwrap();
    let (mut e, w) = std::thread::spawn(move || {
        e.backward(&y, None).unwrap();
        (e, w)
    })
    .join()
    .unwrap();
    assert!((gradient(&mut e, &w).unwrap()[0] - 1f32.exp()).abs() < 1e-5);
    // A long record outlives the engine, and is dropped by another thread.
    let mut y = w;
    for _ in 0..2000 {
        y = e.call("sin", (&y,)).unwrap();
    }
    drop(e);
    std::thread::Builder::new().stack_size(128 << 10).spawn(move || drop(y)).unwrap().join().unwrap();
}

#[test]
fn functions_of_the_embedder_pass_records_on() {
    let mut e = engine();
    let w = leaf(&mut e, &[1.0, 2.0]);
    e.register_fn("same", |x: Tensor| x);
    e.set("w", &w).unwrap();
    let y: Tensor = e.eval("(same(w) * 3).sum()").unwrap();
    e.backward(&y, None).unwrap();
    assert_eq!(gradient(&mut e, &w).unwrap(), [3.0, 3.0]);
}

#[test]
fn records_that_refer_to_themselves_end_with_their_engine() {
    use runnel::{Dtype, RawTensor};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let scripts = [
        "x.grad = x.view(3)",
        "x.grad = x * 2",
        "(x ** 3).sum().backward(create_graph=true)",
        "let y = x.sin()\ny.retain_grad()\n(y * y).sum().backward(create_graph=true)",
        "let y = x.clone()\ny[0] = y[1].sin() * y[2]\nlet z = y * y",
        "let y = x.clone()\nfor i in 1..3 { y[i] = y[i - 1].sin() * x[0] }\nx.register_hook(|g| y.sum() + g)",
        "let f = custom_gradient(|t| { (t * 2, x) }, |s, g| g * s)\nlet y = f(x)\ny.sum().backward(retain_graph=true)",
        "let y = checkpoint(|t| t.sin() * x, x)\ny.sum().backward(retain_graph=true)",
    ];
    let returned = Arc::new(AtomicUsize::new(0));
    for script in scripts {
        let mut e = engine();
        let mut memory = vec![0.5f32; 3];
        let (ptr, seen) = (memory.as_mut_ptr() as u64, returned.clone());
        let raw = RawTensor { ptr, shape: &[3], strides: None, dtype: Dtype::F32, device: DeviceId::Cuda(0) };
        // SAFETY: the closure owns the memory.
        let x = unsafe {
            e.tensor_from_raw(raw, move || {
                drop(memory);
                seen.fetch_add(1, Ordering::Relaxed);
            })
        };
        let x = x.unwrap();
        e.set_requires_grad(&x, true).unwrap();
        e.set("x", &x).unwrap();
        e.eval::<()>(script).unwrap();
        let before = returned.load(Ordering::Relaxed);
        drop((x, e));
        let start = std::time::Instant::now();
        while returned.load(Ordering::Relaxed) == before {
            assert!(start.elapsed().as_secs() < 20, "memory is kept after `{script}`");
            std::thread::yield_now();
        }
    }
}
