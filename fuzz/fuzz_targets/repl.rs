//! Any lines of an interactive session: colours, completion and hints at every letter neither panic nor
//! disturb the session that the lines run in.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(mut engine) = runnel::Engine::builder()
        .backend(runnel::Backend::Emu)
        .devices(2)
        .device_memory(64 << 20)
        .output(|_| {})
        .fuel(50_000)
        .call_depth(200)
        .host_memory(64 << 20)
        .time(std::time::Duration::from_secs(1))
        .files(false)
        .environment(false)
        .build()
    else {
        return;
    };
    for line in text.lines().take(16) {
        let short = line.char_indices().nth(80).map_or(line, |(at, _)| &line[..at]);
        runnel::cli::typed(&mut engine, short);
        let _ = engine.eval::<()>(line);
    }
    assert_eq!(engine.eval::<i64>("1 + 1").expect("a sound session"), 2);
});
