//! Elementwise programs over views that wrap or have padding.

use super::{check, everywhere, launch, nvrtc_is_here, sample_map, view};
use crate::array::{Dtype, contiguous_strides};
use crate::kernel::{Beside, Padding, Source};

#[test]
fn maps_of_wrapping_views_compile() {
    if !nvrtc_is_here() {
        return;
    }
    let (a, c) = (Dtype::F32, Dtype::BF16);
    for (shape, wraps) in [
        (&[6, 5, 8][..], [6, 2, 8]),
        (&[6, 5, 8], [3, 5, 7]),
        (&[6, 50, 80], [6, 1, 79]),
        (&[1, 50, 80], [1, 1, 80]),
        (&[1, 1, 1 << 20], [1, 1, 1]),
        (&[6, 5, 3], [6, 5, 1]),
    ] {
        let dense = contiguous_strides(shape);
        let back: Vec<isize> = dense.iter().map(|stride| -stride).collect();
        for (first, second) in [(&dense[..], &dense[..]), (&back, &dense), (&dense, &[0, 0, 1])] {
            let mut views = [
                view(a, first, 0),
                view(a, second, 0),
                view(c, &dense, 0),
                view(Dtype::Bool, &dense, 0),
                view(a, &dense, 0),
            ];
            views[0].wraps = Some(Box::new(wraps));
            let work = launch(sample_map(a, c), shape, &views, 0);
            if shape[1] == 50 && second == dense.as_slice() { everywhere(&work) } else { check(&work) }
        }
    }
}

#[test]
fn maps_of_padded_views_compile() {
    if !nvrtc_is_here() {
        return;
    }
    let (a, c) = (Dtype::F32, Dtype::BF16);
    for (shape, inside) in [
        (&[6, 5, 8][..], [[0, 6], [1, 5], [0, 8]]),
        (&[6, 5, 8], [[0, 6], [1, 5], [1, 8]]),
        (&[6, 50, 80], [[0, 6], [1, 50], [1, 79]]),
        (&[1, 50, 80], [[0, 1], [1, 50], [0, 79]]),
        (&[1, 1, 1 << 20], [[0, 1], [0, 1], [1, 1 << 20]]),
    ] {
        let dense = contiguous_strides(shape);
        for beside in [Beside::Number(0x3f80_0000), Beside::Nearest, Beside::Wrapped] {
            let mut views = [a, a, c, Dtype::Bool, a].map(|dtype| view(dtype, &dense, 0));
            let padding = Padding { inside: inside.into_iter().collect(), beside };
            views[0].padding = Some(Box::new(padding));
            let mut map = sample_map(a, c);
            if matches!(beside, Beside::Number(_)) {
                // Another number of its class.
                let number = map.sources.iter_mut().find(|source| matches!(source, Source::Number { .. }));
                if let Some(number) = number {
                    *number = Source::Inside { view: 0 }
                }
            }
            let work = launch(map, shape, &views, 0);
            if shape[1] == 50 && beside == Beside::Nearest { everywhere(&work) } else { check(&work) }
        }
    }
}
