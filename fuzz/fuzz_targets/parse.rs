//! Any bytes: the parser neither panics nor overruns its stack, and every error has a place.
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
});
