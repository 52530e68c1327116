//! Untrusted scripts: `cargo run --example embed_limits`.

use runnel::{Backend, Engine, ErrorKind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub fn main() -> runnel::Result<()> {
    let printed = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&printed);
    let mut engine = Engine::builder()
        .backend(Backend::Emu)
        .devices(1)
        .fuel(30_000_000) // operations per call: the same script stops at the same point everywhere
        .time(Duration::from_secs(20)) // per call, waits for devices included
        .call_depth(200)
        .host_memory(64 << 20)
        .device_limit(64 << 20)
        .tensors(1_000)
        .output_limit(10_000)
        .files(false)
        .environment(false)
        .output(move |text| {
            if let Ok(mut all) = sink.lock() {
                all.push_str(text);
            }
        })
        .build()?;

    // Hostile scripts, each stopped by one of the limits.
    let hostile = [
        ("runs for ever", "while true { }"),
        ("recurses for ever", "fn f(n) { f(n + 1) }\nf(0)"),
        ("fills the host", "let s = \"x\"\nwhile true { s = s ++ s }"),
        ("fills the device", "let all = []\nwhile true { all.append(zeros(1_000_000)) }"),
        ("prints for ever", "while true { print(\"spam\") }"),
    ];
    for (what, script) in hostile {
        let error = engine.eval::<()>(script).expect_err("the script fails");
        println!("{what}: {error}");
        assert_eq!(error.kind(), ErrorKind::Limit, "{what}: {error}");
    }
    let error = engine.eval::<String>("read(\"/etc/passwd\")").expect_err("the script fails");
    println!("reads a file: {error}");

    // The session is intact.
    engine.eval::<()>("print(\"still here\")")?;
    let text = printed.lock().map(|all| all.clone()).unwrap_or_default();
    assert!(text.ends_with("still here\n"));

    // Another thread can stop a script at any time, for example when a window closes or on Ctrl-C.
    let mut engine = Engine::builder().backend(Backend::Emu).build()?;
    let handle = engine.interrupt_handle();
    let watcher = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        handle.interrupt();
    });
    let error = engine.eval::<()>("while true { }").expect_err("the script fails");
    println!("is stopped: {error}");
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert!(watcher.join().is_ok());
    assert_eq!(engine.eval::<i64>("6 * 7")?, 42);
    Ok(())
}
