//! Programs that together contain every function, every kind of view and every shape of reduction.

use crate::array::{Class, Dtype};
use crate::kernel::View;
use crate::kernel::cuda::interpret::table::all;
use crate::kernel::cuda::interpret::{Coder, Encoded, Function, HEAD, Phase};

fn native(class: Class) -> Dtype {
    match class {
        Class::F32 => Dtype::F32,
        Class::F64 => Dtype::F64,
        Class::I64 => Dtype::I64,
        Class::C64 => Dtype::C64,
        Class::C128 => Dtype::C128,
    }
}

/// `f(f(...), ...)` over linear views, nested `times` deep.
fn function(code: u64, function: &Function<'_>, times: usize) -> Option<Encoded> {
    let mut coder = Coder::new();
    let dims = coder.dims(&[1 << 20]);
    let view = |coder: &mut Coder, class| {
        coder.view(&[1 << 20], &[1], &View::new(1 << 20, native(class), [1].as_slice().into()))
    };
    let mut arguments = Vec::new();
    for class in function.arguments() {
        let (view, place) = (view(&mut coder, class), coder.take(class));
        coder.emit_move(native(class), view, place, false);
        arguments.push(place);
    }
    let result = coder.take(function.result);
    for time in 0..times {
        coder.emit(code, result, &arguments);
        if time + 1 < times && function.arguments().first() == Some(&function.result) {
            arguments[0] = result;
        }
    }
    let out = view(&mut coder, function.result);
    coder.emit_move(native(function.result), out, result, true);
    let main = Phase { code: [0, coder.at()], dims };
    let mut head = [0; HEAD];
    head[0] = 1 << 20;
    coder.finish(head, main, Default::default(), 128, 32)
}

/// A copy between views of a kind.
fn copy(dtype: Dtype, strides: &[isize], ptr: u64, wide: bool) -> Option<Encoded> {
    let mut coder = Coder::new();
    let shape = [6, 40, 64];
    let dims = coder.dims(&shape);
    let from = coder.view(&shape, strides, &View::new(ptr, dtype, strides.into()));
    let to: &[isize] = if strides.contains(&0) { &[2560, 64, 1] } else { strides };
    let to = coder.view(&shape, to, &View::new(ptr, dtype, to.into()));
    let place = coder.take(dtype.class());
    coder.emit_move(dtype, from, place, false);
    coder.emit_move(dtype, to, place, true);
    let main = Phase { code: [0, coder.at()], dims };
    let mut head = [0; HEAD];
    (head[0], head[10]) = (6 * 40 * 64, u64::from(wide));
    coder.finish(head, main, Default::default(), 128, 32)
}

/// Every function, copied and called; every dtype through every kind of view.
pub(crate) fn samples() -> Vec<(String, Encoded)> {
    let mut samples = Vec::new();
    for (known, code) in all() {
        for times in [1, 30] {
            let name = format!("{times} of {}", known.line());
            samples.extend(function(code, &known, times).map(|encoded| (name, encoded)));
        }
    }
    let strides: [&[isize]; 6] =
        [&[2560, 64, 1], &[1, 1, 1], &[0, 0, 0], &[64, 0, 1], &[0, 64, 0], &[1, 6, 240]];
    for dtype in Dtype::ALL {
        for strides in strides {
            for (ptr, wide) in [(1 << 20, false), ((1 << 20) + 8, true)] {
                let name = format!("copy of {dtype} by {strides:?}, {wide}");
                samples.extend(copy(dtype, strides, ptr, wide).map(|encoded| (name, encoded)));
            }
        }
    }
    samples
}
