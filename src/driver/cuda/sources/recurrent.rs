//! Recurrent layers in one kernel.

#![cfg(test)]

use super::*;
use crate::device::{Backend, Config, Machine};
use crate::plan::{Runtime, Settings};
use crate::vm::Mode;

/// The launches of layers that a script computes on an emulated device.
pub(in crate::driver::cuda) fn launches(script: &str) -> Vec<Launch> {
    let config = Config { backend: Backend::Emu, devices: Some(1), ..Config::default() };
    let rt = Runtime::new(Machine::open(&config).unwrap(), Settings::default());
    let mut vm = crate::library::machine(rt);
    vm.rt.start_listing(false).unwrap();
    vm.eval("<test>", script, Mode::Script).unwrap();
    let mut all: Vec<_> = vm.rt.stop_listing().launches.into_iter().map(|listed| listed.launch).collect();
    all.retain(|launch| launch.program.kind.label().ends_with("_layer"));
    all
}

/// A call with its backward pass, for a batch and a size.
pub(in crate::driver::cuda) fn script(layer: &str, batch: usize, size: usize, mask: bool) -> String {
    let mask = if mask { "rand(2, B, 1) < 0.5" } else { "none" };
    let (gates, rest, of) = match layer {
        "lstm" => (4, "zeros(B, H), mask", ".h"),
        "gru" => (3, "zeros(H), mask", ""),
        _ => (1, "\"relu\", mask", ""),
    };
    format!(
        "let (B, H) = ({batch}, {size})
         let mask = {mask}
         let make = |*shape| randn(..shape, requires_grad=true)
         let y = {layer}_layer(make(2, B, {gates} * H), make({gates} * H, H), make(B, H), {rest}){of}
         y.sum().backward()"
    )
}

#[test]
fn layers_with_few_weights_compile() {
    if !nvrtc_is_here() {
        return;
    }
    for (layer, size) in [("lstm", 5), ("lstm", 128), ("gru", 64), ("rnn", 256)] {
        for (batch, mask) in [(1, false), (3, true), (300, false), (2048, true)] {
            let found = launches(&script(layer, batch, size, mask));
            assert_eq!(found.len(), 2, "forward and backward of {layer}");
            for launch in found {
                let signature = launch.program.kind.signature(&launch);
                assert_ne!(signature, Signature::default(), "{layer} {batch} {size}");
                words_are_declared(&launch, signature);
                if batch == 3 {
                    everywhere(&launch)
                } else {
                    check(&launch)
                }
                // While it is not compiled: two kernels per step.
                let mut noted = Noted::default();
                assert!(launch.program.kind.interpret(&launch, &mut noted).unwrap());
                assert_eq!(noted.launches.len(), 4);
            }
        }
    }
}

#[test]
fn other_layers_are_products_and_programs() {
    for (layer, batch, size) in [("lstm", 4, 200), ("gru", 4, 200), ("rnn", 4096, 32)] {
        let found = launches(&script(layer, batch, size, false));
        assert_eq!(found.len(), 2, "forward and backward of {layer}");
        for launch in found {
            let kind = &launch.program.kind;
            assert_eq!(kind.signature(&launch), Signature::default());
            let mut noted = Noted::default();
            kind.enqueue(&launch, Signature::default(), &mut noted).unwrap();
            assert_eq!([noted.products, noted.launches.len()], [2, 2], "{layer}");
            assert!(!kind.interpret(&launch, &mut noted).unwrap());
            assert_eq!(kind.parts(&launch).len(), 2);
        }
    }
}
