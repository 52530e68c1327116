//! Settings of the embedding program at their extremes: zero, one, and the maximum of their type. Every script ends
//! with a value or an error with a code, and the engine stays usable.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::engine::Builder;
use runnel::{Array, Backend, DeviceId, Engine};
use std::time::Duration;

type Change = Box<dyn Fn(Builder) -> Builder>;

/// Every setting with each of its extremes.
fn settings() -> Vec<(String, Change)> {
    let mut all: Vec<(String, Change)> = Vec::new();
    macro_rules! ends {
        ($name:ident, $($value:expr),*) => {
            $(all.push((format!("{}({:?})", stringify!($name), $value), Box::new(|b: Builder| b.$name($value))));)*
        };
    }
    let many = usize::MAX;
    ends!(devices, 0, 1, 64);
    all.push(("devices(MAX)".into(), Box::new(move |b| b.devices(many))));
    ends!(device_memory, 0, 1, 512, 1 << 20, 1u64 << 62, u64::MAX);
    ends!(schedule, 0, u64::MAX);
    ends!(priorities, 0, u64::MAX);
    ends!(poison, 0, u8::MAX);
    ends!(kept_from, 0, u64::MAX);
    ends!(mapped_from, 0, usize::MAX);
    ends!(fuel, 0, 1, u64::MAX);
    ends!(call_depth, 0, 1, usize::MAX);
    ends!(host_memory, 0, 1, 1 << 16, usize::MAX);
    ends!(device_limit, 0, 1, u64::MAX);
    ends!(pinned_limit, 0, 1, u64::MAX);
    ends!(tensors, 0, 1, usize::MAX);
    ends!(events, 0, 1, usize::MAX);
    ends!(output_limit, 0, 1, u64::MAX);
    ends!(line_width, 0, 1, usize::MAX);
    ends!(time, Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(u64::MAX / 2), Duration::MAX);
    all
}

/// Scripts that terminate, and use the resources that the settings bound.
const SCRIPTS: &[&str] = &[
    "1 + 1",
    "print(arange(30.0).reshape(5, 6), \"é\" * 200)",
    "fn f(n) { if n > 0 { f(n - 1) + 1 } else { 0 } }\nf(300)",
    "let l = list(0..20_000)\nsorted(l, key=|x| -x)[0]",
    "let x = ones(1000, requires_grad=true)\n(x * x).sum().backward()\nx.grad.sum().item()",
    "let s = Stream()\nlet e = s.record_event()\nwith stream(s) { ones(10) + 1 }\ne.synchronize()\ns.synchronize()",
    "map(|i| ones(i), 0..50)",
    "map(|i| Event(), 0..50)",
    "ones(1000, device=cpu).pin_memory().to(cuda)",
    "zeros(1 << 24, dtype=f64).sum().item()",
    "\"0123456789\" * (1 << 12)",
    "for x in progress(0..3) { warn(\"one\") }",
    "cuda.sleep(1000)\ncuda.synchronize()\ncuda.empty_cache()",
    "let g = cuda.graphed(|a| a + 1, ones(4))\ng(ones(4))",
    "try { [1][2] } catch e { e.message }",
    "throw \"no\"",
    "input()",
];

#[test]
fn settings_at_their_ends_give_values_or_errors() {
    for (name, change) in settings() {
        let builder = Engine::builder().backend(Backend::Emu).devices(2).output(|_| {}).files(false);
        let Ok(mut engine) = change(builder).build() else { continue };
        for script in SCRIPTS {
            if let Err(error) = engine.eval::<()>(script) {
                assert!(error.code().id.starts_with('E'), "{name}: {script}: {error:?}");
                assert!(engine.report(&error).contains(error.code().id), "{name}: {script}");
            }
        }
        let tensor = engine.tensor(&[1.0f32, 2.0], &[2], DeviceId::Cuda(0));
        if let Ok(tensor) = &tensor {
            let _ = engine.set("x", tensor);
            let _ = engine.read::<f32>(tensor);
            let _ = engine.requires_grad(tensor).and_then(|_| engine.backward(tensor, None));
        }
        for shape in [vec![], vec![0], vec![usize::MAX], vec![usize::MAX, 2], vec![1 << 33, 1 << 33, 0]] {
            let _ = engine.tensor::<f32>(&[], &shape, DeviceId::Cpu);
            let _ = engine.set("y", Array { shape, data: vec![1.0f32] });
        }
        let handle = engine.interrupt_handle();
        handle.interrupt();
        let _ = engine.eval::<()>("while true { }");
        handle.clear();
        // Values of the engine outlive it.
        drop(engine);
        handle.interrupt();
        drop(tensor);
    }
}
