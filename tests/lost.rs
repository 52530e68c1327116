//! A value that could not be computed stays lost until all of it is written: writing a part does not make it
//! a tensor of uninitialised memory. Other work in its queue is still computed.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::{Backend, Engine};

/// A session whose device has room for two tensors of `n`, and not for three.
fn engine(fuse: bool) -> Engine {
    let builder = Engine::builder().backend(Backend::Emu).devices(1).device_memory(20 << 20).poison(0xa5);
    builder.fuse(fuse).build().unwrap()
}

/// `y` does not fit together with `x` and `z`.
const LOSE: &str = "
    let n = 2_000_000
    let x = zeros(n)
    let z = zeros(n)
    cuda.synchronize()
    let y = { try { let y = x + 1; y[0].item(); y } catch e { none } }
";

/// The same with a tensor that outlives the error, because its work is queued when it is created.
const KEEP: &str = "
    let n = 2_000_000
    let x = zeros(n)
    let z = zeros(n)
    cuda.synchronize()
    let y = VALUE
    z.add_(1)
    let caught = try { y[0].item(); \"nothing\" } catch e { e.code }
    x = none
";

fn code(engine: &mut Engine, script: &str) -> String {
    match engine.eval::<()>(script) {
        Ok(()) => "passes".into(),
        Err(error) => error.code().id.into(),
    }
}

#[test]
fn writing_a_part_does_not_restore_a_lost_value() {
    let parts = [
        "y[0..2] = 7",
        "y[0] = 7",
        "y[1..].fill_(7)",
        "y[0..n by 2] = 7",
        "y[0..3].copy_(ones(3))",
        "y[0..3].copy_(ones(3, device=cpu))",
        "y[[1, 2]] = 7",
        "y.index_fill_(0, [1], 7)",
        "y.scatter_(0, tensor([1]), tensor([7.0]))",
        "y.masked_fill_(y > 0, 7)",
        "y[0..0] = 7",
        "y.add_(1)",
    ];
    // The second value goes on waiting for memory.
    for (value, expected) in [("sin(x)", "E0706"), ("x + 1", "E0701")] {
        for part in parts {
            let mut engine = engine(true);
            engine.eval::<()>(&KEEP.replace("VALUE", value)).unwrap();
            assert_eq!(engine.eval::<String>("caught").unwrap(), "E0701", "{part}");
            // It may be rejected at once, or when it is read.
            let _ = code(&mut engine, part);
            assert_eq!(code(&mut engine, "y[0..1].item()"), expected, "{value}: {part}");
            assert_eq!(code(&mut engine, "y.sum().item()"), expected, "{value}: {part}");
            engine.eval::<()>("y.fill_(3); assert(y.sum().item() == 3 * n)").unwrap();
        }
    }
}

#[test]
fn other_work_in_the_queue_of_a_lost_value_is_computed() {
    let mut engine = engine(true);
    engine.eval::<()>(&KEEP.replace("VALUE", "sin(x)")).unwrap();
    assert_eq!(engine.eval::<f64>("z.sum().item()").unwrap(), 2e6);
}

#[test]
fn without_fusion_the_operation_itself_fails() {
    let mut engine = engine(false);
    engine.eval::<()>(LOSE).unwrap();
    engine.eval::<()>("assert(y == none); z.add_(1); assert(z.sum().item() == n)").unwrap();
}
