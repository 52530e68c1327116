//! Any bytes: the parser neither panics nor overruns its stack, every error has a place, and what the
//! formatter lays out is the same program, which it leaves alone the second time.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = runnel::syntax::decode(data) else { return };
    let parsed = runnel::syntax::parse(1, &text);
    for error in &parsed.errors {
        let span = error.span();
        assert!(span.lo >= 1 && span.hi as usize <= text.len() + 1, "{error:?}");
    }
    runnel::syntax::classify(&text);
    if let Ok(formatted) = runnel::syntax::format(1, text) {
        assert_eq!(runnel::syntax::format(1, &formatted).expect("still a program"), formatted);
    }
});
