//! The kernels that ship for kinds of programs, and a check whether the files in `kernels/ready` are up to
//! date.
//!
//! `RUNNEL_UPDATE=1` rewrites the files; `.ci/ready` does so with every compiler that is needed.

#![cfg(test)]

use super::nvrtc;
use super::ready;
use super::shipped;
use super::sources::{launch, nvrtc_is_here, view, words_are_declared};
use crate::array::{Class, Dtype, contiguous_strides};
use crate::kernel::cuda::{Planned, Product};
use crate::kernel::fft::{FftSpec, OwnFft, OwnPlan, Transform};
use crate::kernel::{
    Addresses, Count, Gather, Kind, Launch, Matmul, NonZero, Nth, Pack, ReduceFn, Scan, Scatter, Search,
    Sort, SortFew, ThinProduct, TiledProduct, TinyProduct, Top,
};
use crate::ops::folds::{AMAX, MAX, SUM};
use crate::ops::reduce::{AMIN, MIN, PROD};
use crate::ops::scan::LOG_SUM;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// A dtype of each size.
const SIZES: [Dtype; 5] = [Dtype::U8, Dtype::I16, Dtype::I32, Dtype::I64, Dtype::C128];
/// A dtype of each class.
const CLASSES: [Dtype; 3] = [Dtype::F32, Dtype::F64, Dtype::I64];
/// The functions that scans combine with.
const SCANS: [&ReduceFn; 5] = [&SUM, &PROD, &MAX, &MIN, &LOG_SUM];

/// A launch with contiguous views of these dtypes; `far`: the first view needs 64-bit positions.
fn sample(kind: impl Kind, shape: &[usize], views: &[Dtype], far: bool) -> Launch {
    let strides = contiguous_strides(shape);
    let mut views: Vec<_> = views.iter().map(|&dtype| view(dtype, &strides, 0)).collect();
    if far {
        views[0].strides[0] = 1 << 33;
    }
    launch(kind, shape, &views, 0)
}

/// The source that also serves all launches of this form: the general one, or the only one of its kind.
fn general(launch: &Launch) -> String {
    let kind = &launch.program.kind;
    kind.source(kind.general(launch).unwrap_or_else(|| kind.signature(launch))).text
}

/// The sources of the kernels that ship, in groups of similar ones.
fn texts() -> Vec<Vec<String>> {
    let (mut moves, mut sorts, mut scans) = (Vec::new(), Vec::new(), Vec::new());
    let (mut combinations, mut others, mut selections) = (Vec::new(), Vec::new(), Vec::new());
    for dtype in SIZES {
        for far in [false, true] {
            moves.push(general(&sample(Gather { dtype }, &[4, 4], &[dtype, Dtype::I64, dtype], far)));
        }
    }
    for dtype in SIZES.into_iter().filter(|dtype| !dtype.is_complex()) {
        for length in [4, 4096] {
            let sort = Sort { dtype, descending: false };
            sorts.push(general(&sample(sort, &[4, length], &[dtype, dtype, Dtype::I64], false)));
        }
        let sort = Sort { dtype, descending: false };
        sorts.push(general(&sample(SortFew(sort.clone()), &[4, 4], &[dtype, dtype, Dtype::I64], false)));
        sorts.push(general(&sample(Top(sort.clone()), &[4, 4], &[dtype, dtype, Dtype::I64], false)));
        if Nth::takes(dtype, 5000) {
            selections.push(general(&sample(
                Nth { sort, nan: false },
                &[4],
                &[dtype, dtype, Dtype::I64],
                false,
            )));
        }
    }
    for f in SCANS {
        for dtype in CLASSES.into_iter().filter(|dtype| !f.cuda.of(dtype.class()).is_empty()) {
            for length in [4, 4096] {
                scans.push(general(&sample(Scan { f, dtype }, &[4, length], &[dtype, dtype], false)));
            }
        }
    }
    // 64-bit positions; few targets, many, and more than elements. Similar sources are adjacent.
    for (shape, limit, far) in
        [([4, 4], 4, true), ([4, 4], 4, false), ([100, 100], 100, false), ([4, 4], 5, false)]
    {
        for dtype in [Dtype::F64, Dtype::F32, Dtype::I64, Dtype::I32] {
            for f in [&SUM, &PROD, &AMAX, &AMIN] {
                let views = [dtype, Dtype::I64, dtype];
                let work = sample(Scatter { dtype, f: Some(f) }, &shape, &views, far);
                let text = general(&Launch { limit, ..work });
                if !combinations.contains(&text) {
                    combinations.push(text);
                }
            }
        }
    }
    for dtype in [Dtype::C64, Dtype::C128] {
        let scatter = Scatter { dtype, f: Some(&PROD) };
        combinations.push(general(&sample(scatter, &[4, 4], &[dtype, Dtype::I64, dtype], false)));
    }
    for dtype in SIZES {
        for far in [false, true] {
            moves.push(general(&sample(
                Scatter { dtype, f: None },
                &[4, 4],
                &[dtype, Dtype::I64, dtype],
                far,
            )));
        }
        others.push(general(&sample(NonZero { dtype }, &[4], &[dtype, Dtype::I64, Dtype::I64], false)));
    }
    for far in [false, true] {
        let search = Search { dtype: Dtype::I64, right: false };
        others.push(general(&sample(search, &[4, 4], &[Dtype::I64; 3], far)));
    }
    for dtype in [Dtype::F32, Dtype::F64] {
        let search = Search { dtype, right: false };
        let work = sample(search, &[10_000], &[dtype, dtype, Dtype::I64], false);
        others.push(general(&Launch { limit: 4, ..work }));
    }
    for dtype in [Dtype::U8, Dtype::I16, Dtype::I32, Dtype::I64] {
        others.push(general(&sample(Count { dtype }, &[4], &[dtype, Dtype::I64], false)));
    }
    let product = Matmul { dtype: Dtype::I64, tf32: false };
    others.push(general(&sample(product, &[4, 4, 4], &[Dtype::I64; 3], false)));
    others.push(general(&sample(Pack, &[4], &[Dtype::U8; 2], false)));
    for dtype in [Dtype::F32, Dtype::F64, Dtype::C64, Dtype::C128] {
        others.push(general(&sample(TiledProduct { dtype }, &[4; 4], &[dtype; 3], false)));
    }
    others.push(general(&sample(Addresses, &[4; 2], &[Dtype::F32; 4], false)));
    let dtype = Dtype::F32;
    let tiny = general(&sample(TinyProduct { dtype }, &[64, 4, 4, 4], &[dtype; 3], false));
    for dtype in ThinProduct::dtypes() {
        others.push(general(&thin(dtype, [1, 128, 512], true)));
    }
    let part = |part| general(&sample(OwnFft { part }, &[4; 2], &[Dtype::C64; 3], false));
    let transforms = [Dtype::F32, Dtype::F64].map(part).to_vec();
    vec![moves, sorts, scans, combinations, others, transforms, vec![tiny], selections]
}

/// Rewrites the files that this machine's NVRTC produces. Images and groups of unchanged sources are kept.
#[test]
fn shipped_kernels_are_up_to_date() {
    let texts = texts();
    let hashes: Vec<Vec<_>> =
        texts.iter().map(|group| group.iter().map(|text| ready::hash(text)).collect()).collect();
    let updates = std::env::var_os("RUNNEL_UPDATE").is_some();
    for file in ready::FILES {
        let name = format!("{}{}", file.arch.major, file.arch.minor);
        let path = format!("kernels/ready/kinds_{name}-{}.bin", file.kinds_compiler);
        let groups = shipped::groups(file.kinds).unwrap();
        let own: Vec<Vec<_>> =
            groups.iter().map(|group| group.entries.iter().map(|(hash, _)| *hash).collect()).collect();
        if !updates {
            assert!(own == hashes, "{path} is old: run `.ci/ready`");
        }
        let builds = updates && nvrtc_is_here() && nvrtc::version().unwrap() == file.kinds_compiler;
        if !builds || own == hashes {
            continue;
        }
        let mut known = HashMap::new();
        for group in &groups {
            let images = group.images().unwrap();
            known.extend(group.entries.iter().map(|(hash, _)| *hash).zip(images));
        }
        let mut bytes = Vec::new();
        for (texts, hashes) in texts.iter().zip(&hashes) {
            // An unchanged group is not compressed again.
            let same =
                |group: &&shipped::ImageGroup<'_>| group.entries.iter().map(|(hash, _)| hash).eq(hashes);
            if let Some(group) = groups.iter().find(same) {
                bytes.extend(shipped::group(&group.entries, group.packed));
                continue;
            }
            let image = |(text, hash): (&String, _)| match known.get(hash) {
                Some(image) => image.clone(),
                None => nvrtc::compile_now(text, &format!("sm_{name}"), "ready").unwrap(),
            };
            let images: Vec<Vec<u8>> = texts.iter().zip(hashes).map(image).collect();
            let entries: Vec<_> = hashes.iter().copied().zip(images.iter().map(Vec::len)).collect();
            bytes.extend(shipped::group(&entries, &shipped::packed(&images)));
        }
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(path), bytes).unwrap();
    }
}

#[test]
fn shipped_images_unpack() {
    for file in ready::FILES {
        for group in shipped::groups(file.kinds).unwrap() {
            let images = group.images().unwrap();
            assert_eq!(images.len(), group.entries.len());
            assert!(images.iter().all(|image| image.starts_with(b"\x7fELF")), "{:?}", file.arch);
        }
    }
}

/// The launch that multiplies matrices without cuBLAS.
fn product(dtype: Dtype, transposed: bool) -> Launch {
    TiledProduct::launch(&Product::of_matrices(dtype, [70, 80, 90], [transposed; 2], 0))
}

/// The launch that multiplies vectors by a matrix.
fn thin(dtype: Dtype, sizes: [usize; 3], transposed: bool) -> Launch {
    ThinProduct::launch(&Product::of_matrices(dtype, sizes, [false, transposed], 0)).unwrap()
}

/// The launch that transforms without cuFFT.
fn transform(transform: Transform, part: Dtype, extents: &[usize]) -> Launch {
    let plan = OwnPlan::new(&FftSpec { transform, part, extents: extents.into(), batch: 3 });
    plan.launch(&Planned { plan: &plan, inverse: false, input: 0, out: 0, workspace: 0 })
}

/// Launches of many ranks, layouts and all dtypes use the kernels that ship, and pass the parameters that these
/// declare.
#[test]
fn launches_of_all_kinds_find_kernels_that_ship() {
    let shipped: BTreeSet<String> = texts().into_iter().flatten().collect();
    let check = |work: Launch| {
        let kind = &work.program.kind;
        assert!(shipped.contains(&general(&work)), "{:?} {:?}", work.program, work.shape);
        assert_eq!(kind.general(&work).is_none(), kind.ships(), "{:?}", work.program);
        kind.general(&work).into_iter().for_each(|signature| words_are_declared(&work, signature));
        words_are_declared(&work, kind.signature(&work));
    };
    for dtype in Dtype::ALL {
        for rank in 0..=8 {
            let shape = vec![3; rank];
            let dense = contiguous_strides(&shape);
            let mut rows = dense.clone();
            rows.last_mut().into_iter().for_each(|step| *step = 0);
            for (index, far) in [(&dense, 1), (&rows, 1), (&dense, 1 << 33), (&rows, 1 << 33)] {
                let mut source = dense.clone();
                source.first_mut().into_iter().for_each(|step| *step *= far);
                let views = [view(dtype, &source, 0), view(Dtype::I64, index, 0), view(dtype, &dense, 0)];
                check(launch(Gather { dtype }, &shape, &views, 0));
                for f in [None, Some(&SUM), Some(&PROD), Some(&AMIN)] {
                    if f.is_none_or(|f| f.name == "prod") || !dtype.is_complex() {
                        check(launch(Scatter { dtype, f }, &shape, &views, 0));
                        for limit in [4000, 1 << 40] {
                            check(Launch { limit, ..launch(Scatter { dtype, f }, &shape, &views, 0) });
                        }
                    }
                }
                // Rows of units of 16 bytes.
                if rank < 6 {
                    let shape = [&[3, 2][..], &shape, &[16]].concat();
                    let dense = contiguous_strides(&shape);
                    let mut index = dense.clone();
                    index.last_mut().into_iter().for_each(|step| *step = 0);
                    let views = [view(dtype, &dense, 0), view(Dtype::I64, &index, 0), view(dtype, &dense, 0)];
                    check(launch(Scatter { dtype, f: None }, &shape, &views, 0));
                }
                // Dimensions of one element count only as the axis.
                let mut one = launch(Gather { dtype }, &shape, &views, 0);
                one.shape.extend([1; 9]);
                one.views.iter_mut().for_each(|view| view.strides.extend([0; 9]));
                one.axis = rank / 2;
                check(one);
            }
        }
        if dtype.is_complex() {
            check(product(dtype, true));
        }
        for sizes in [[2, 2, 2], [16, 16, 16], [3, 1, 9]] {
            let shape = [&[3, 40][..], &sizes].concat();
            check(sample(TinyProduct { dtype }, &shape, &[dtype; 3], false));
        }
        check(sample(NonZero { dtype }, &[5000], &[dtype, Dtype::I64, Dtype::I64], false));
        if dtype.is_complex() {
            continue;
        }
        if dtype.is_float() {
            check(product(dtype, false));
            check(product(dtype, true));
        } else {
            check(Launch { limit: 9, ..sample(Count { dtype }, &[5000], &[dtype, Dtype::I64], false) });
            check(sample(Matmul { dtype, tf32: false }, &[3, 40, 50, 60], &[dtype; 3], false));
        }
        for shape in [&[][..], &[1], &[7], &[3, 2048], &[2, 3, 2049], &[100_000], &[3000, 5000]] {
            for descending in [false, true] {
                let (sort, views) = (Sort { dtype, descending }, [dtype, dtype, Dtype::I64]);
                check(sample(sort.clone(), shape, &views, false));
                if shape.last().is_some_and(|&length| length <= SortFew::MOST) {
                    check(sample(SortFew(sort.clone()), shape, &views, false));
                    check(sample(SortFew(sort.clone()), &[3; SortFew::RANK], &views, false));
                }
                for limit in [2000, 50_000] {
                    let views = views.map(|dtype| view(dtype, &[limit as isize, 1], 0));
                    check(Launch { limit, ..launch(Top(sort.clone()), &[3, 7], &views, 0) });
                }
                if Nth::takes(dtype, 5000) {
                    let nth = Nth { sort: sort.clone(), nan: dtype.is_float() };
                    check(Launch { limit: 9, ..sample(nth, &[3, 5000], &views, false) });
                    let views = views.map(|dtype| view(dtype, &[5000, 1], 0));
                    check(Launch { limit: 5000, ..launch(Top(sort.clone()), &[3, 700], &views, 0) });
                }
                let search = Search { dtype, right: descending };
                let work = sample(search, shape, &[dtype, dtype, Dtype::I64], shape.len() > 1);
                check(Launch { limit: 9, ..work.clone() });
                check(work);
            }
            for f in SCANS.into_iter().filter(|f| !f.cuda.of(dtype.class()).is_empty()) {
                check(sample(Scan { f, dtype }, shape, &[dtype, dtype], false));
            }
        }
    }
    for dtype in ThinProduct::dtypes() {
        for m in 1..=if dtype.is_half() { 4 } else { 8 } {
            check(thin(dtype, [m, 130, 1024], true));
        }
    }
    for m in 2..=8 {
        check(thin(Dtype::F32, [m, 1028, 130], false));
    }
    for kind in [Transform::Complex, Transform::FromReal, Transform::ToReal] {
        for extents in [&[1][..], &[67], &[5000], &[7, 71, 3]] {
            [Dtype::F32, Dtype::F64].into_iter().for_each(|part| check(transform(kind, part, extents)));
        }
    }
    check(launch(Pack, &[403], &[400, 3, 403].map(|n| view(Dtype::U8, &[n], 0)), 0));
    assert_eq!(CLASSES.map(Dtype::class), [Class::F32, Class::F64, Class::I64]);
}
