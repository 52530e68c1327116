//! Any script, with all limits on: it ends in a value or a coded error, and the session is sound.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(engine) = runnel::Engine::builder()
        .backend(runnel::Backend::Emu)
        .devices(2)
        .device_memory(64 << 20)
        .output(|_| {})
        .fuel(200_000)
        .call_depth(200)
        .host_memory(64 << 20)
        .time(std::time::Duration::from_secs(2))
        .files(false)
        .environment(false)
        .build()
    else {
        return;
    };
    let mut engine = engine;
    let _ = engine.eval::<()>(text);
    // Its names and memory are the script's: what is asked uses neither.
    assert_eq!(engine.eval::<i64>("1 + 1").expect("a sound session"), 2);
});
