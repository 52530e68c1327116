use super::*;
use crate::device::Backend;
use std::sync::Mutex;

fn engine() -> Engine {
    Engine::builder().backend(Backend::Emu).devices(2).device_memory(64 << 20).build().unwrap()
}

#[test]
fn a_file_that_cannot_be_run_is_told_as_in_a_script() {
    let mut engine = Engine::builder().backend(crate::device::Backend::Emu).build().unwrap();
    let error = engine.run_file("nowhere.rnl").unwrap_err();
    assert_eq!(error.message(), "`nowhere.rnl` cannot be used: there is no such file");
}

#[test]
fn values_cross_both_ways() {
    let mut e = engine();
    assert_eq!(e.eval::<i64>("1 + 1").unwrap(), 2);
    assert_eq!(e.eval::<f32>("3 / 2").unwrap(), 1.5);
    assert_eq!(e.eval::<(bool, String)>("(true, \"a\")").unwrap(), (true, "a".to_string()));
    assert_eq!(e.eval::<Option<u8>>("none").unwrap(), None);
    assert_eq!(e.eval::<Vec<Vec<i32>>>("[[1], [2, 3]]").unwrap(), [vec![1], vec![2, 3]]);
    e.set("x", (1, Some(2.5), vec!["a", "b"])).unwrap();
    assert_eq!(e.eval::<String>("\"{x}\"").unwrap(), "(1, 2.5, [\"a\", \"b\"])");
    assert_eq!(e.get::<(i64, f64, Vec<String>)>("x").unwrap().1, 2.5);
}

#[test]
fn a_failed_conversion_names_both_types() {
    let mut e = engine();
    let error = e.eval::<i64>("\"a\"").unwrap_err();
    assert_eq!((error.code().id, error.message()), ("E0961", "expected an int, found str"));
    assert_eq!(e.eval::<u8>("256").unwrap_err().code().id, "E0961");
    assert_eq!(e.eval::<u64>("-1").unwrap_err().code().id, "E0961");
    assert_eq!(e.set("x", u64::MAX).unwrap_err().code().id, "E0961");
    assert!(e.eval::<(i64, i64)>("(1, 2, 3)").unwrap_err().message().contains("tuple of 3"));
    assert_eq!(e.eval::<i64>("1").unwrap(), 1);
}

#[test]
fn host_functions_are_called_and_their_errors_are_caught() {
    let mut e = engine();
    let calls = Arc::new(Mutex::new(0));
    let counter = calls.clone();
    e.register_fn("add", move |a: i64, b: i64| {
        *counter.lock().unwrap() += 1;
        a + b
    });
    e.register_fn("fail", |text: String| -> std::result::Result<(), String> { Err(text) });
    assert_eq!(e.eval::<i64>("add(1, b = 2)").unwrap(), 3);
    assert_eq!(*calls.lock().unwrap(), 1);
    assert_eq!(e.eval::<String>("try { fail(\"no\") } catch err { err.message }").unwrap(), "no");
    let error = e.eval::<()>("let y = 1\nadd(y, \"a\")").unwrap_err();
    assert_eq!(error.code().id, "E0961");
    assert_eq!(e.sources().snippet(error.span()), "\"a\"");
    assert!(e.eval::<()>("add(1)").is_err());
}

#[test]
fn script_functions_are_called_by_name() {
    let mut e = engine();
    e.eval::<()>("let total = 0\nfn step(x, by) { total = total + x * by; total }").unwrap();
    assert_eq!(e.call::<i64>("step", (3, 2)).unwrap(), 6);
    assert_eq!(e.call::<i64>("step", (1, 1)).unwrap(), 7);
    let error = e.call::<()>("stop", ()).unwrap_err();
    assert_eq!(error.kind(), crate::base::ErrorKind::Name);
    assert!(error.help_text().unwrap().contains("step"), "{error:?}");
}

#[test]
fn a_failure_leaves_the_session_as_it_was() {
    let mut e = engine();
    e.eval::<()>("let x = 1").unwrap();
    let error = e.eval::<()>("x = 2\nlet y = 3\nnowhere(x)").unwrap_err();
    assert!(e.report(&error).contains("nowhere"));
    assert_eq!(e.eval::<i64>("x").unwrap(), 1);
}

#[test]
fn tensors_cross_with_their_shape() {
    let mut e = engine();
    let x = e.tensor(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], DeviceId::Cuda(1)).unwrap();
    assert_eq!((x.shape().as_slice(), x.device()), (&[2, 2][..], DeviceId::Cuda(1)));
    e.set("x", &x).unwrap();
    let y: Tensor = e.eval("x + x").unwrap();
    assert_eq!(e.read::<f32>(&y).unwrap(), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(e.read::<f64>(&y).unwrap(), [2.0, 4.0, 6.0, 8.0]);
    assert_eq!(e.read::<i64>(&y).unwrap_err().code().id, "E0961");
    assert_eq!(e.tensor(&[1i64], &[2], DeviceId::Cpu).unwrap_err().code().id, "E0964");
    assert_eq!(e.tensor(&[1i64], &[usize::MAX, 4], DeviceId::Cpu).unwrap_err().code().id, "E0964");
    e.register_fn("turn", |a: Array<f32>| Array {
        shape: a.shape.clone(),
        data: a.data.iter().rev().copied().collect(),
    });
    let turned: Array<f32> = e.eval("turn(x)").unwrap();
    assert_eq!(turned, Array::new(&[2, 2], vec![4.0, 3.0, 2.0, 1.0]).unwrap());
}

#[test]
fn a_script_is_bounded_and_interrupted() {
    let mut e = Engine::builder().backend(Backend::Emu).fuel(100_000).call_depth(50).build().unwrap();
    assert_eq!(e.eval::<()>("while true { }").unwrap_err().kind(), crate::base::ErrorKind::Limit);
    assert_eq!(e.eval::<()>("fn f(n) { f(n + 1) }\nf(0)").unwrap_err().kind(), crate::base::ErrorKind::Limit);
    let mut e = engine();
    let handle = e.interrupt_handle();
    let watcher = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        handle.interrupt();
    });
    assert_eq!(e.eval::<()>("while true { }").unwrap_err().kind(), crate::base::ErrorKind::Interrupted);
    watcher.join().unwrap();
    assert_eq!(e.eval::<i64>("1").unwrap(), 1);
}

#[test]
fn an_engine_moves_between_threads() {
    let mut e = engine();
    e.eval::<()>("let names = [\"a\", \"b\"]\nfn last() { names[-1] }").unwrap();
    let mut e = std::thread::spawn(move || {
        e.eval::<()>("names.append(\"c\")").unwrap();
        e
    })
    .join()
    .unwrap();
    assert_eq!(e.call::<String>("last", ()).unwrap(), "c");
}

#[test]
fn values_passed_to_the_embedder_are_not_charged_to_the_session() {
    let mut e = Engine::builder().backend(Backend::Emu).host_memory(4 << 20).build().unwrap();
    for _ in 0..50 {
        assert_eq!(e.eval::<String>("\"x\" * 1_000_000").unwrap().len(), 1_000_000);
        e.set("kept", "y".repeat(1_000_000)).unwrap();
    }
    e.register_fn("size", |text: String| text.len());
    for _ in 0..50 {
        assert_eq!(e.eval::<usize>("size(kept ++ kept)").unwrap(), 2_000_000);
    }
    assert_eq!(e.eval::<()>("let s = \"x\"\nwhile true { s = s ++ s }").unwrap_err().code().id, "E1003");
    assert_eq!(e.get::<String>("kept").unwrap().len(), 1_000_000);
}

#[test]
fn a_panic_of_the_host_is_an_error_of_the_script() {
    let mut e = Engine::builder().backend(Backend::Emu).fuel(10_000).build().unwrap();
    e.register_fn("divide", |a: i64, b: i64| a / b);
    let error = e.eval::<i64>("divide(1, 0)").unwrap_err();
    assert_eq!(error.code().id, "E0963");
    assert!(error.message().contains("divide by zero"), "{error}");
    assert_eq!(e.eval::<i64>("try { divide(1, 0) } catch { 7 }").unwrap(), 7);
    // Each call resets the limits.
    for _ in 0..5 {
        e.eval::<()>("for i in 0..5000 { }").unwrap();
    }
}

#[test]
fn an_engine_whose_process_exits_drops_no_value() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Told;
    impl Drop for Told {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let run = |exits: bool| {
        let mut engine = engine();
        engine.register_type::<Told>("Told");
        engine.set("told", Shared::new(Told)).unwrap();
        let script = "let all = [told]\nall.append(all)\nfn f() { all }\ntest \"x\" { f() }";
        engine.eval::<()>(script).unwrap();
        let tests = engine.take_tests();
        if exits {
            engine.leave_heap();
        }
        drop((engine, tests));
        DROPPED.load(Ordering::Relaxed)
    };
    assert_eq!((run(true), run(false)), (0, 1));
}
