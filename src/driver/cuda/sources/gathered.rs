//! Programs that load at indices.

use super::*;
use crate::kernel::{Also, Indexed};

/// `x[index] + y`, of views 1, 0 and 2.
fn map(dtype: Dtype) -> Map {
    Map {
        sources: vec![
            Register::Load { view: 0, dtype: Dtype::I64 },
            Register::Gathered { view: 1, index: 0, dtype },
            Register::Load { view: 2, dtype },
        ],
        instrs: vec![Instr { f: &ADD, args: [1, 2].into_iter().collect(), class: dtype.class(), dtype }],
        stores: vec![Store { reg: 3, view: 3 }],
    }
}

/// The views of a map over a shape: the index has these strides, and the source those.
fn views(dtype: Dtype, shape: &[usize], index: &[isize], source: &[isize]) -> Vec<View> {
    let dense = view(dtype, &contiguous_strides(shape), 4096);
    let indexed = Some(Box::new(Indexed { step: 64, limit: 100, tag: 1 }));
    vec![view(Dtype::I64, index, 512), View { indexed, ..view(dtype, source, 1024) }, dense.clone(), dense]
}

#[test]
fn loads_at_indices_compile() {
    if !nvrtc_is_here() {
        return;
    }
    for dtype in [Dtype::Bool, Dtype::I8, Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64] {
        for (shape, index, source) in [
            (&[1000][..], &[1][..], &[0][..]),
            (&[], &[], &[]),
            (&[40, 64], &[1, 0], &[0, 1]),
            (&[40, 63], &[1, 0], &[0, 1]),
            (&[40, 64], &[64, 1], &[0, 1]),
            (&[40, 64], &[1, 0], &[0, 0]),
            (&[40, 64], &[0, 0], &[0, 1 << 33]),
            (&[6, 5, 64], &[0, 1, 0], &[320, 0, 1]),
        ] {
            let work = launch(map(dtype), shape, &views(dtype, shape, index, source), 0);
            if dtype == Dtype::F32 {
                everywhere(&work)
            } else {
                check(&work)
            }
            let is_tested = [Dtype::F16, Dtype::F64].contains(&dtype);
            for reduced in (1..=shape.len()).filter(|_| is_tested) {
                for (f, also) in [(&SUM, false), (&SUM, true), (&ARGMAX, false)] {
                    let kept = contiguous_strides(&shape[..shape.len() - reduced]);
                    let mut views = views(dtype, shape, index, source);
                    views.truncate(3);
                    let second = if also { dtype } else { Dtype::I64 };
                    views.extend([view(dtype, &kept, 8192), view(second, &kept, 1 << 14)]);
                    let also = also.then_some(Also { value: 1, f, dtype, out: 4 });
                    let reduce = Reduce {
                        map: Map { stores: Vec::new(), ..map(dtype) },
                        value: 3,
                        f,
                        dtype,
                        out: 3,
                        out_index: f.indexed.then_some(4),
                        store_value: true,
                        also: also.into_iter().collect(),
                    };
                    check(&launch(reduce, shape, &views, reduced));
                }
            }
        }
    }
}

/// `x[(a * b).to(i64) + 1] + y`, of views 3, 1, 2 and 4; view 0 is not read.
fn computed(dtype: Dtype) -> Map {
    let i64 = |f, args: &[u16], class: Dtype, dtype| Instr {
        f,
        args: args.iter().copied().collect(),
        class: class.class(),
        dtype,
    };
    Map {
        sources: vec![
            Register::Load { view: 1, dtype: Dtype::F32 },
            Register::Load { view: 2, dtype: Dtype::F32 },
            Register::Number { slot: 0, dtype: Dtype::I64 },
            Register::Gathered { view: 3, index: 7, dtype },
            Register::Load { view: 4, dtype },
        ],
        instrs: vec![
            i64(&MUL, &[0, 1], Dtype::F32, Dtype::F32),
            i64(&CAST, &[5], Dtype::F32, Dtype::I64),
            i64(&ADD, &[6, 2], Dtype::I64, Dtype::I64),
            i64(&ADD, &[3, 4], dtype, dtype),
        ],
        stores: vec![Store { reg: 8, view: 5 }],
    }
}

/// The views of [`computed`] over a shape: both operands of the index have these strides, and the source those.
fn computed_views(dtype: Dtype, shape: &[usize], index: &[isize], source: &[isize]) -> Vec<View> {
    let dense = view(dtype, &contiguous_strides(shape), 4096);
    let indexed = Some(Box::new(Indexed { step: 64, limit: 100, tag: 1 }));
    let operand = view(Dtype::F32, index, 512);
    let place = view(Dtype::I64, index, 512);
    let source = View { indexed, ..view(dtype, source, 1024) };
    vec![place, operand.clone(), operand, source, dense.clone(), dense]
}

#[test]
fn loads_at_computed_indices_compile() {
    if !nvrtc_is_here() {
        return;
    }
    for dtype in [Dtype::Bool, Dtype::F16, Dtype::F32, Dtype::I64] {
        for (shape, index, source) in [
            (&[1000][..], &[1][..], &[0][..]),
            (&[], &[], &[]),
            (&[40, 64], &[1, 0], &[0, 1]),
            (&[40, 63], &[63, 1], &[0, 0]),
            (&[40, 64], &[1, 40], &[64, 0]),
            (&[40, 64], &[0, 0], &[0, 1 << 33]),
        ] {
            let numbered = |work: Launch| Launch { numbers: smallvec![1], ..work };
            let views = computed_views(dtype, shape, index, source);
            let work = numbered(launch(computed(dtype), shape, &views, 0));
            if dtype == Dtype::F32 {
                everywhere(&work)
            } else {
                check(&work)
            }
            words_are_declared(&work, work.program.kind.signature(&work));
            for reduced in (1..=shape.len()).filter(|_| dtype == Dtype::F16) {
                let kept = contiguous_strides(&shape[..shape.len() - reduced]);
                let mut views = views.clone();
                views[5] = view(dtype, &kept, 8192);
                let reduce = Reduce {
                    map: Map { stores: Vec::new(), ..computed(dtype) },
                    value: 8,
                    f: &SUM,
                    dtype,
                    out: 5,
                    out_index: None,
                    store_value: true,
                    also: Default::default(),
                };
                let work = numbered(launch(reduce, shape, &views, reduced));
                check(&work);
                words_are_declared(&work, work.program.kind.signature(&work));
            }
        }
    }
}

/// Without a compiler, an index is computed first.
#[test]
fn computed_indices_are_interpreted_in_parts() {
    let views = computed_views(Dtype::F32, &[6, 40], &[40, 1], &[0, 0]);
    let work = launch(computed(Dtype::F32), &[6, 40], &views, 0);
    let work = Launch { numbers: smallvec![1], ..work };
    let mut noted = Noted::default();
    assert!(work.program.kind.interpret(&work, &mut noted).unwrap());
    let names: Vec<&str> = noted.launches.iter().map(|launch| launch.program.label.as_str()).collect();
    assert_eq!((names, noted.work.len()), (vec!["mul+cast+add", "gather"], 1));
}

/// Without a compiler, each view is gathered to scratch memory by kernels that ship.
#[test]
fn loads_at_indices_are_interpreted_in_parts() {
    let dtype = Dtype::F32;
    let shape = [6, 5, 64];
    for (index, source) in [
        (&[0, 1, 0], &[320, 0, 1]),
        (&[5, 1, 0], &[0, 0, 1]),
        (&[0, 0, 0], &[0, 0, 0]),
        (&[5, 1, 0], &[0, 0, 0]),
    ] {
        let views = views(dtype, &shape, index, source);
        let work = launch(map(dtype), &shape, &views, 0);
        let mut noted = Noted::default();
        assert!(work.program.kind.interpret(&work, &mut noted).unwrap());
        let names: Vec<&str> = noted.launches.iter().map(|launch| launch.program.label.as_str()).collect();
        assert_eq!((names, noted.work.len()), (vec!["gather"], 1));
        // An element has the same position as in the whole launch, so that a fault names the same index.
        let copy = &noted.launches[0].shape;
        let first = copy.iter().position(|&n| n != 1).unwrap_or(3);
        assert!(first == 3 || copy[first..3] == shape[first..], "{copy:?}");
    }
}

/// The scatter of `x[index] + y`, or of `y + y`, of each kind of kernel.
#[test]
fn scatters_of_computed_values_compile() {
    if !nvrtc_is_here() {
        return;
    }
    let forms: [(&[usize], &[isize], &[usize]); 5] = [
        (&[9000], &[1], &[50, 5000, 20_000]),
        (&[4000, 64], &[1, 0], &[50]),
        (&[4000, 3], &[1, 0], &[50]),
        (&[6, 5, 64], &[0, 1, 0], &[7]),
        (&[1 << 23], &[1], &[1 << 20]),
    ];
    let functions = [
        (Dtype::F32, &SUM),
        (Dtype::BF16, &SUM),
        (Dtype::I32, &SUM),
        (Dtype::F64, &SUM),
        (Dtype::F32, &AMAX),
    ];
    for (number, (dtype, f)) in
        functions.into_iter().chain([(Dtype::I64, &AMIN), (Dtype::U8, &PROD)]).enumerate()
    {
        for (shape, index, limits) in forms {
            for (&limit, gathers) in limits.iter().flat_map(|limit| [(limit, true), (limit, false)]) {
                let mut map = map(dtype);
                let axis = index.iter().position(|&stride| stride != 0).unwrap_or(0);
                let mut targets = shape.to_vec();
                targets[axis] = limit;
                let out = view(dtype, &contiguous_strides(&targets), 1 << 20);
                let mut source = index.to_vec();
                source.iter_mut().for_each(|stride| *stride = 1 - *stride);
                let mut views = views(dtype, shape, index, &source);
                views.splice(3.., [view(Dtype::I64, index, 512), out]);
                if !gathers {
                    map.sources = vec![Register::Load { view: 0, dtype }];
                    map.instrs[0].args = [0, 0].into_iter().collect();
                    map.stores = vec![Store { reg: 1, view: 1 }];
                    views.drain(..2);
                }
                let kind = MappedScatter { map, scatter: Scatter { dtype, f: Some(f) } };
                let work = Launch { axis, limit, ..launch(kind, shape, &views, 0) };
                if number < 2 && gathers {
                    everywhere(&work)
                } else {
                    check(&work)
                }
                // A word for each stride: none is missing on any architecture.
                words_are_declared(&work, work.program.kind.signature(&work));
                let text = work.program.kind.source(work.program.kind.signature(&work)).text;
                assert!(!text.contains('@'), "{text}");
            }
        }
    }
}

/// Scatters along the last dimension, into few and many targets per row.
#[test]
fn scatters_into_rows_of_few_targets_compile() {
    if !nvrtc_is_here() {
        return;
    }
    for dtype in Dtype::ALL {
        for f in [None, Some(&SUM)].into_iter().filter(|f| f.is_none() || !dtype.is_complex()) {
            for limit in [90, 2000] {
                let [source, index] = [dtype, Dtype::I64].map(|dtype| view(dtype, &[700, 1], 0));
                let views = [source, index, view(dtype, &[limit as isize, 1], 0)];
                check(&Launch { axis: 1, limit, ..launch(Scatter { dtype, f }, &[300, 700], &views, 0) });
            }
        }
    }
}
