//! Plans of transforms that are too long to run in a test.

#![cfg(test)]

use super::passes::{Buffer, Passes, capacity};
use super::{FftSpec, OwnPlan, Transform};
use crate::array::Dtype;

#[test]
fn passes_of_any_length_fit_their_memory() {
    let longest = OwnPlan::LONGEST;
    let lengths = [1, 2, 61, 67, 2048, 2049, 1 << 20, 3 << 20, 61 * 61 * 61, longest - 1, longest];
    for (length, transform) in lengths.iter().flat_map(|&n| {
        [Transform::Complex, Transform::FromReal, Transform::ToReal].map(|transform| (n, transform))
    }) {
        for (part, extents) in
            [(Dtype::F32, vec![length]), (Dtype::F64, vec![length]), (Dtype::F32, vec![length, 3, 2])]
        {
            let spec = FftSpec { transform, part, extents: extents.into_iter().collect(), batch: 2 };
            let passes = Passes::new(&spec, false);
            let (first, last) = (&passes.steps[0], &passes.steps[passes.steps.len() - 1]);
            assert!(first.from == Buffer::Input || first.filter.is_some(), "{spec:?}");
            assert_eq!(last.to, Buffer::Out, "{spec:?}");
            for step in &passes.steps {
                assert_ne!(step.to, Buffer::Input, "{spec:?}");
                let [line, lines, tile] = [2, 3, 4].map(|word| step.words[word]);
                for buffer in [step.from, step.to] {
                    assert!(!matches!(buffer, Buffer::Work(begin) if begin >= passes.workspace), "{spec:?}");
                }
                if step.entry != 0 {
                    continue;
                }
                let radices = step.words[8].to_le_bytes();
                let product: u64 =
                    radices.iter().filter(|&&radix| radix > 0).map(|&radix| u64::from(radix)).product();
                assert_eq!(line, product, "{spec:?}");
                assert!(line * tile <= capacity(part) as u64, "{spec:?}");
                assert!(u64::from(step.blocks) * tile >= lines || step.blocks == 0x7fff_ffff, "{spec:?}");
            }
        }
    }
}
