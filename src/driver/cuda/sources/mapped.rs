//! Products with the programs that read them. Their kernels are for compute capability 9.0 alone.

#![cfg(test)]

use super::*;
use crate::kernel::MappedMatmul;
use smallvec::SmallVec;

/// The launch of a product of these sizes, with operands that are transposed or not, and of a program that adds a number
/// and a view of each of these dtypes and strides to it.
pub(in crate::driver::cuda) fn mapped(
    dtype: Dtype,
    [m, n, k]: [usize; 3],
    transposed: [bool; 2],
    others: &[(Dtype, [isize; 2])],
    is_needed: bool,
) -> Launch {
    let operand = |rows: usize, columns: usize, transposed: bool| match transposed {
        true => [1, rows as isize],
        false => [columns as isize, 1],
    };
    let out = view(dtype, &[n as isize, 1], 1 << 30);
    let views = [
        view(dtype, &operand(m, k, transposed[0]), 1 << 20),
        view(dtype, &operand(k, n, transposed[1]), 1 << 25),
        out.clone(),
    ];
    let product = launch(Matmul { dtype, tf32: false }, &[m, n, k], &views, 0);
    let args = |args: &[u16]| args.iter().copied().collect::<Regs>();
    let mut map = Map { sources: vec![Register::Load { view: 0, dtype }], ..Map::default() };
    let mut all: SmallVec<[View; 4]> = smallvec![out];
    for (number, (dtype, strides)) in others.iter().enumerate() {
        map.sources.push(Register::Load { view: number as u16 + 1, dtype: *dtype });
        all.push(view(*dtype, strides, (8 + number as u64) << 32));
    }
    map.sources.push(Register::Number { slot: 1, dtype: Dtype::F32 });
    let count = map.sources.len() as u16;
    map.instrs.push(Instr { f: &ADD, args: args(&[0, count - 1]), class: Class::F32, dtype });
    for reg in 1..count - 1 {
        let last = count + map.instrs.len() as u16 - 1;
        let from = map.dtype(reg).class();
        let read = match from {
            Class::F32 => reg,
            _ => {
                map.instrs.push(Instr { f: &CAST, args: args(&[reg]), class: from, dtype: Dtype::F32 });
                last + 1
            }
        };
        map.instrs.push(Instr { f: &ADD, args: args(&[last, read]), class: Class::F32, dtype });
    }
    let last = count + map.instrs.len() as u16 - 1;
    map.instrs.push(Instr { f: &CAST, args: args(&[last]), class: Class::F32, dtype: Dtype::F32 });
    for (reg, dtype) in [(last, dtype), (last + 1, Dtype::F32)] {
        map.stores.push(Store { reg, view: all.len() as u16 });
        all.push(view(dtype, &[n as isize, 1], (64 + all.len() as u64) << 32));
    }
    let program = launch(map, &[m, n], &all, 0);
    let (kind, views) = MappedMatmul::join(&product, &program, is_needed).unwrap();
    let launch = launch(kind, &[m, n, k], &views, 0);
    assert_eq!(launch.views.len(), all.len() + 2);
    launch
}

#[test]
fn products_with_programs_compile() {
    if !nvrtc_is_here() {
        return;
    }
    let others = [
        (Dtype::BF16, [0, 1]),
        (Dtype::F32, [0, 1]),
        (Dtype::F16, [3072, 1]),
        (Dtype::F32, [1, 0]),
        (Dtype::Bool, [3072, 1]),
        (Dtype::BF16, [0, 0]),
    ];
    let mut number = 0;
    for (columns, sizes) in [(256, [8192, 3072, 768]), (192, [8192, 768, 3072]), (128, [2048, 1024, 1024])] {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            let count = [1, 2, 3, 5][number % 4];
            let others: Vec<_> = (0..count).map(|i| others[(number + i) % others.len()]).collect();
            let dtype = [Dtype::BF16, Dtype::F16][number / 2 % 2];
            let launch = mapped(dtype, sizes, transposed, &others, number % 3 == 0);
            let signature = launch.program.kind.signature(&launch);
            words_are_declared(&launch, signature);
            let text = launch.program.kind.source(signature).text;
            assert!(text.contains(&format!("#define TILE_N {columns}\n")), "{sizes:?}");
            assert_eq!(text.contains("store_words(product"), number % 3 == 0);
            if let Err(problem) = compiled(&text, "sm_90a", &launch.program.label) {
                panic!("{problem}\n{text}");
            }
            number += 1;
        }
    }
}
