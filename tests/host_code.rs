//! Panics in code of the host program: wherever Runnel calls such code, a panic is an error of the script,
//! and the engine continues as after any other error.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::engine::Builder;
use runnel::{Backend, DeviceId, Dtype, Engine, Error, RawTensor, Shared};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a bomb");
    }
}

/// An error whose formatting panics.
struct Mute;

impl fmt::Display for Mute {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no text");
    }
}

fn builder() -> Builder {
    Engine::builder().backend(Backend::Emu).devices(2)
}

/// Everything that a script may leave open when it fails.
fn inside(code: &str) -> String {
    format!(
        "let s = Stream(device=1)\nfn deep(n) {{ if n > 0 {{ deep(n - 1) }} else {{ {code} }} }}\n\
         with device(1), stream(s), no_grad() {{ deep(20); zeros(1) + 1 }}"
    )
}

fn is_sound(engine: &mut Engine) {
    assert_eq!(engine.eval::<String>("\"{zeros(1).device} {cuda.current_device()}\"").unwrap(), "cuda:0 0");
    assert!(engine.eval::<bool>("cuda.current_stream(1) == cuda.default_stream(1)").unwrap());
    assert_eq!(
        engine.eval::<i64>("fn depth(n) { if n == 0 { 0 } else { 1 + depth(n - 1) } }\ndepth(9000)").unwrap(),
        9000
    );
    assert_eq!(engine.eval::<f64>("(ones(3) on cuda:1).sum().item()").unwrap(), 3.0);
    assert!(engine.eval::<()>("throw \"x\"").unwrap_err().message().contains('x'));
    assert_eq!(engine.eval::<i64>("try { throw 1 } catch { 2 }").unwrap(), 2);
}

fn panicked(error: &Error, text: &str) {
    assert_eq!(error.code().id, "E0963", "{error:?}");
    assert!(error.message().ends_with(text) && error.message().contains("panicked"), "{error:?}");
}

/// The script fails with this panic, `try` catches it, and the engine is sound each time.
fn fails(mut engine: Engine, code: &str, text: &str) {
    for _ in 0..2 {
        panicked(&engine.eval::<()>(&inside(code)).unwrap_err(), text);
        is_sound(&mut engine);
        let caught = format!("let got = none\ntry {{ {} }} catch e {{ got = e.code }}\ngot", inside(code));
        assert_eq!(engine.eval::<Option<String>>(&caught).unwrap().as_deref(), Some("E0963"));
        is_sound(&mut engine);
    }
}

fn with(register: impl FnOnce(&mut Engine)) -> Engine {
    let mut engine = builder().build().unwrap();
    register(&mut engine);
    engine
}

/// Panics only once, because the checks call the closure too.
fn once(what: &'static str, armed: &Arc<AtomicBool>) -> impl Fn() + Send + 'static {
    let armed = Arc::clone(armed);
    move || assert!(!armed.load(Ordering::Relaxed), "{what}")
}

type Case = (&'static str, fn());

/// The functions of the API that take host code, by file, each with its test.
const CASES: &[Case] = &[
    ("builder.rs output", || {
        let engine =
            builder().output(|text| assert!(!text.contains("bang"), "in the output")).build().unwrap();
        fails(engine, "print(\"bang\")", "in the output");
    }),
    ("builder.rs input", || {
        fails(builder().input(|| panic!("in the input")).build().unwrap(), "input()", "in the input");
    }),
    ("builder.rs warnings", || {
        let engine = builder().warnings(|_, _| panic!("in a warning")).build().unwrap();
        let race = "races(\"warn\")";
        let code = format!(
            "let q = Stream(device=1)\nlet x = zeros(1000)\nwith {race} {{ with stream(q) {{ x.add_(1) }} }}\nfor i in 0..2 {{ }}"
        );
        fails(engine, &code, "in a warning");
    }),
    ("builder.rs progress", || {
        let engine = builder().progress(|_| panic!("in the progress")).build().unwrap();
        fails(engine, "for x in progress([1, 2]) { }", "in the progress");
        let engine = builder().progress(|now| assert!(!now.ended, "at the end")).build().unwrap();
        fails(engine, "for x in progress([1, 2]) { break }", "at the end");
    }),
    ("register.rs register_fn", || {
        fails(
            with(|e| drop(e.register_fn("f", || -> i64 { panic!("in a function") }))),
            "f()",
            "in a function",
        );
        fails(
            with(|e| drop(e.register_fn("f", |x: i64| assert!(x < 0, "by a callback")))),
            "map(f, [1])",
            "by a callback",
        );
        fails(with(|e| drop(e.register_fn("f", || Err::<(), _>(Mute)))), "f()", "no text");
        let odd = |_: i64| -> i64 { std::panic::panic_any(Bomb) };
        fails(with(|e| drop(e.register_fn("f", odd))), "f(1)", "no reason given");
        // Arguments that were already converted are dropped if another one does not convert.
        let two = |_: Shared<Bomb>, _: i64| ();
        fails(
            with(|e| {
                drop(e.register_type::<Bomb>("bomb"));
                drop(e.register_fn("make", || Shared::new(Bomb)));
                drop(e.register_fn("f", two));
            }),
            "f(make(), \"no int\")",
            "a bomb",
        );
        // A type that scripts do not know.
        fails(with(|e| drop(e.register_fn("f", || Shared::new(Bomb)))), "f()", "a bomb");
        drop(with(|e| {
            let bomb = Bomb;
            drop(e.register_fn("f", move || {
                let _ = &bomb;
            }));
        }));
    }),
    ("register.rs function", || {
        let engine = with(|e| {
            e.register_module("m", |m| drop(m.function("f", || -> i64 { panic!("in a module") }))).unwrap()
        });
        fails(engine, "m.f()", "in a module");
    }),
    ("register.rs register_module", || {
        let mut engine = builder().build().unwrap();
        panicked(&engine.register_module("m", |_| panic!("in the filling")).unwrap_err(), "in the filling");
        is_sound(&mut engine);
    }),
    ("register.rs method", || {
        struct Thing;
        let engine = with(|e| {
            e.register_type::<Thing>("thing")
                .method("read", |_: &Thing| -> i64 { panic!("in a method") })
                .method("write", |_: &mut Thing, _: i64| -> i64 { panic!("in a change") });
            drop(e.register_fn("thing_of", || Shared::new(Thing)));
        });
        fails(engine, "thing_of().read()", "in a method");
        let engine = with(|e| {
            e.register_type::<Thing>("thing")
                .method("write", |_: &mut Thing, _: i64| -> i64 { panic!("in a change") });
            e.set("t", Shared::new(Thing)).unwrap_or_else(|e| panic!("{e}"));
        });
        fails(engine, "t.write(1)", "in a change");
    }),
    ("register.rs field", || {
        struct Thing;
        let engine = with(|e| {
            drop(e.register_type::<Thing>("thing").field("x", |_: &Thing| -> i64 { panic!("in a field") }));
            e.set("t", Shared::new(Thing)).unwrap_or_else(|e| panic!("{e}"));
        });
        fails(engine, "t.x", "in a field");
    }),
    ("native_type.rs a shared value", || {
        let engine = with(|e| {
            drop(e.register_type::<Bomb>("bomb"));
            drop(e.register_fn("make", || Shared::new(Bomb)));
        });
        fails(engine, "let b = make(); b = none; for i in 0..2 { }; 1", "a bomb");
        let mut engine = with(|e| drop(e.register_type::<Bomb>("bomb")));
        engine.set("b", Shared::new(Bomb)).unwrap();
        panicked(&engine.set("b", 1).unwrap_err(), "a bomb");
        is_sound(&mut engine);
        engine.set("b", Shared::new(Bomb)).unwrap();
        drop(engine);
        // The value is dropped when the name is rejected.
        let error = with(|_| ()).set("a b", Shared::new(Bomb)).unwrap_err();
        panicked(error.others().first().unwrap_or(&error), "a bomb");
    }),
    ("foreign.rs tensor_from_raw", || {
        let mut engine = builder().build().unwrap();
        let data = [1.0f32, 2.0];
        for device in [DeviceId::Cpu, DeviceId::Cuda(1)] {
            let ptr = data.as_ptr() as u64;
            let raw = RawTensor { ptr, shape: &[2], strides: None, dtype: Dtype::F32, device };
            // SAFETY: the data outlives the test, and nothing writes it.
            let tensor = unsafe { engine.tensor_from_raw(raw, || panic!("in the owner")).unwrap() };
            engine.set("x", tensor).unwrap();
            // It is dropped here, or on the thread that waits for the stream, where the panic cannot be reported.
            match engine.eval::<f64>("let total = x.sum().item()\nx = none\ntotal") {
                Ok(total) => assert_eq!(total, 3.0),
                Err(error) => panicked(&error, "in the owner"),
            }
            engine.eval::<()>("cuda.synchronize(1)").unwrap();
            is_sound(&mut engine);
        }
        let bomb = Bomb;
        let (dtype, device) = (Dtype::F32, DeviceId::Cpu);
        let raw = RawTensor { ptr: 0, shape: &[2], strides: None, dtype, device };
        // SAFETY: nothing is read: the address is refused.
        let refused = unsafe {
            engine.tensor_from_raw(raw, move || {
                let _ = &bomb;
            })
        };
        assert_eq!(refused.unwrap_err().code().id, "E0967");
        is_sound(&mut engine);
    }),
    ("ready.rs poll", || {
        struct Loud;
        impl std::task::Wake for Loud {
            fn wake(self: Arc<Loud>) {
                panic!("in an executor");
            }
        }
        let mut engine = builder().build().unwrap();
        let tensor: runnel::Tensor = engine.eval("ones(1000, 1000) @ ones(1000, 1000)").unwrap();
        let mut ready = Box::pin(tensor.ready());
        let waker = Arc::new(Loud).into();
        let _ = std::future::Future::poll(ready.as_mut(), &mut std::task::Context::from_waker(&waker));
        assert_eq!(engine.read::<f32>(&tensor).unwrap()[0], 1000.0);
        is_sound(&mut engine);
        // Later waiters of the stream are still notified.
        let another: runnel::Tensor = engine.eval("ones(2) + 1").unwrap();
        let mut ready = Box::pin(another.ready());
        let noop = std::task::Waker::noop();
        for _ in 0..1000 {
            match std::future::Future::poll(ready.as_mut(), &mut std::task::Context::from_waker(noop)) {
                std::task::Poll::Ready(result) => return result.unwrap(),
                std::task::Poll::Pending => std::thread::sleep(std::time::Duration::from_millis(10)),
            }
        }
        panic!("nobody woke it");
    }),
    ("builder.rs what closures own", || {
        let bombs = [(); 4].map(|()| Bomb);
        let [a, b, c, d] = bombs;
        let builder = builder()
            .output(move |_| {
                let _ = &a;
            })
            .input(move || {
                let _ = &b;
                None
            })
            .warnings(move |_, _| {
                let _ = &c;
            })
            .progress(move |_| {
                let _ = &d;
            });
        let mut engine = builder.build().unwrap();
        assert_eq!(engine.eval::<i64>("for x in progress([1]) { print(input()) }; 7").unwrap(), 7);
        drop(engine);
    }),
];

#[test]
fn a_panic_of_the_host_program_is_an_error_of_the_script() {
    // The panics are intended; their messages would bury a real one.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let failed: Vec<String> = CASES
        .iter()
        .filter_map(|(name, case)| Some((*name, std::panic::catch_unwind(case).err()?)))
        .map(|(name, why)| format!("{name}: {}", why.downcast_ref::<String>().map_or("?", |why| why)))
        .collect();
    std::panic::set_hook(usual);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let armed = Arc::new(AtomicBool::new(false));
    let mut engine = builder().build().unwrap();
    drop(engine.register_fn("f", once("it", &armed)));
    engine.eval::<()>("f()").unwrap();
}

/// Every closure parameter of the API needs a case.
#[test]
fn every_place_that_takes_host_code_has_a_case() {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("src/engine").unwrap() {
        let path = entry.unwrap().path();
        let Some(file) = path.file_name().and_then(|f| f.to_str()).filter(|f| f.ends_with(".rs")) else {
            continue;
        };
        let text = std::fs::read_to_string(&path).unwrap();
        let mut function = String::new();
        for line in text.lines().take_while(|line| !line.contains("#[cfg(test)]")) {
            if let Some((before, rest)) = line.split_once("fn ") {
                let public = matches!(before.trim(), "pub" | "pub unsafe");
                function = rest.split(['(', '<']).next().filter(|_| public).unwrap_or("").to_string();
            }
            let takes = ["impl FnMut(", "impl FnOnce(", "impl Fn(", "impl HostFunction<", "impl HostMethod<"];
            if takes.iter().any(|take| line.contains(take))
                && !function.is_empty()
                && !line.trim_start().starts_with("//")
            {
                found.push(format!("{file} {function}"));
            }
        }
    }
    let known = |place: &String| CASES.iter().any(|(name, _)| name == place);
    // They run the caller's closure directly.
    let direct = ["native_type.rs with", "gradient.rs no_grad"];
    let missing: Vec<&String> =
        found.iter().filter(|place| !known(place) && !direct.contains(&place.as_str())).collect();
    assert!(found.len() >= 10, "{found:?}");
    assert!(missing.is_empty(), "{missing:?}");
}
