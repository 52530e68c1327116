//! Runnel in every build: parts that are left out raise E0928, everything else works. CI also runs this without
//! features.

#![allow(clippy::unwrap_used)] // A test that cannot go on fails.

use runnel::{Backend, Engine};

fn engine() -> Engine {
    Engine::builder().backend(Backend::Emu).build().unwrap()
}

#[test]
fn scripts_run_and_errors_are_reported_in_every_build() {
    let mut engine = engine();
    engine.register_fn("twice", |x: f64| 2.0 * x);
    let text = "let x = [1.0, 2.0] on cuda:1\ntwice((x * x).sum().item())";
    assert_eq!(engine.eval::<f64>(text).unwrap(), 10.0);
    let error = engine.eval::<()>("let a = ones(3)\na + ones(2)").unwrap_err();
    let report = engine.report(&error);
    assert!(report.contains("E0402") && report.contains("╰── this is f32[2]"), "{report}");
}

#[test]
fn a_part_that_is_left_out_says_so_and_keeps_its_names() {
    let parts = [
        (cfg!(feature = "dist"), "dist", "dist.is_initialized()"),
        (cfg!(feature = "files"), "files", "files.formats()"),
        (cfg!(feature = "plot"), "plot", "plot.hist([1, 2, 2], bins=2, width=40)"),
    ];
    for (present, feature, call) in parts {
        let mut engine = engine();
        let result = engine.eval::<()>(&format!("{call}\nnone"));
        if present {
            result.unwrap();
            continue;
        }
        let error = result.unwrap_err();
        assert_eq!(error.code().id, "E0928");
        let report = engine.report(&error);
        assert!(report.contains(&format!("this build of Runnel has no `{feature}`")), "{report}");
        assert!(report.contains(&format!("build Runnel with the feature `{feature}`")), "{report}");
        // Arguments are checked, and the error can be caught.
        assert_eq!(engine.eval::<()>("plot.hist([1], binz=2)").unwrap_err().code().id, "E0206");
        engine
            .eval::<()>(&format!("try {{ {call} }} catch e {{ assert(e.kind == \"Name\") }}\nnone"))
            .unwrap();
    }
}

/// Modules of the library that use such parts can be imported.
#[test]
fn every_module_can_be_imported() {
    for module in runnel::library::MODULES {
        engine().eval::<()>(&format!("import {}\nnone", module.name)).unwrap();
    }
}

#[cfg(not(feature = "cuda"))]
#[test]
fn without_cuda_there_are_emulated_devices() {
    let error = Engine::builder().backend(Backend::Cuda).build().map(drop).unwrap_err();
    assert_eq!(error.code().id, "E0503");
    assert!(error.message().contains("lacks the feature `cuda`"), "{}", error.message());
    let mut engine = Engine::builder().backend(Backend::Auto).build().unwrap();
    assert!(engine.eval::<bool>("cuda.is_available()").unwrap());
}
